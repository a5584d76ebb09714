// SPDX-License-Identifier: Apache-2.0
//! The outer form of answers: where lines end, what is indented for whom, and which media types a
//! path has.

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::json;

use super::requests::{MAPS, header, map};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn ask(admin: &Caller, path: &str, accept: &str) -> Reply {
    admin.send(Method::GET, path, &[("accept", accept)], "").await
}

fn lines(reply: &Reply) -> usize {
    String::from_utf8_lossy(&reply.raw).matches('\n').count()
}

#[tokio::test]
async fn every_object_is_a_line() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/m");
    let mut replies = vec![
        ("create", admin.post(MAPS, &map("m")).await),
        ("patch", admin.merge(&path, &json!({"data": {"a": "b"}})).await),
        ("get", admin.get(&path).await),
        ("list", admin.get(MAPS).await),
        ("table", ask(&admin, MAPS, TABLE).await),
        ("missing", admin.get(&format!("{MAPS}/none")).await),
        ("taken", admin.post(MAPS, &map("m")).await),
        ("delete", admin.delete(&path).await),
        ("groups", admin.get("/apis").await),
        ("resources", admin.get("/apis/apps/v1").await),
        ("aggregated", ask(&admin, "/apis", AGGREGATED).await),
    ];
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    replies.push((
        "review",
        admin
            .post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
            .await,
    ));
    for (what, reply) in replies {
        assert!(reply.raw.ends_with(b"}\n"), "{what}");
        assert_eq!(lines(&reply), 1, "{what}");
        assert_eq!(
            header(&reply, "content-length"),
            reply.raw.len().to_string(),
            "{what}"
        );
    }
}

#[tokio::test]
async fn what_is_indented_ends_with_its_brace() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/m");
    admin.post(MAPS, &map("m")).await;
    for (path, accept) in [
        (format!("{path}?pretty=true"), "application/json"),
        (path.clone(), "application/json;pretty=1"),
        (format!("{MAPS}/none?pretty=1"), "*/*"),
        ("/version".to_owned(), "application/json"),
        ("/".to_owned(), "*/*"),
        ("/apis?pretty=true".to_owned(), AGGREGATED),
        // A refusal that has none of the forms asked for is written for people.
        (path.clone(), "text/html"),
        (format!("{MAPS}/none"), TABLE),
    ] {
        let reply = ask(&admin, &path, accept).await;
        assert!(reply.raw.ends_with(b"\n}"), "{path} {accept}");
        assert!(lines(&reply) > 2, "{path} {accept}");
    }
    assert_eq!(ask(&admin, &format!("{MAPS}/none"), TABLE).await.code, 404);
}

#[tokio::test]
async fn each_path_has_its_media_types() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let beta = AGGREGATED.replace("v=v2;", "v=v2beta1;");
    let or_plain = format!("{beta},application/json");
    for (path, accept, code, content_type) in [
        ("/openid/v1/jwks", "*/*", 200, "application/jwk-set+json"),
        ("/openid/v1/jwks", "application/json", 406, "application/json"),
        (
            "/.well-known/openid-configuration",
            "text/html",
            406,
            "application/json",
        ),
        ("/version", TABLE, 200, "application/json"),
        ("/version", "application/yaml", 406, "application/yaml"),
        ("/apis", "application/*", 200, "application/json"),
        ("/apis", &beta, 406, "application/json"),
        ("/apis", &or_plain, 200, "application/json"),
        (
            "/openapi/v3",
            "application/json",
            200,
            "text/plain; charset=utf-8",
        ),
        (MAPS, "application/json;q=0", 200, "application/json"),
        (MAPS, "APPLICATION/JSON", 406, "application/json"),
        (MAPS, "application/*", 406, "application/json"),
    ] {
        let reply = ask(&admin, path, accept).await;
        assert_eq!(
            (reply.code, header(&reply, "content-type")),
            (code, content_type),
            "{path} {accept}"
        );
    }
    assert_eq!(
        ask(&admin, "/openid/v1/jwks", "text/html").await.message(),
        "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json"
    );
    assert_eq!(ask(&admin, "/apis", &or_plain).await.body["kind"], "APIGroupList");
}

/// Only once there is an object is its form of any interest.
#[tokio::test]
async fn a_missing_object_is_missing_in_every_form() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(ask(&admin, &format!("{MAPS}/none"), accept).await.code, 404);
    admin.post(MAPS, &map("m")).await;
    assert_eq!(ask(&admin, &format!("{MAPS}/m"), accept).await.code, 406);
}
