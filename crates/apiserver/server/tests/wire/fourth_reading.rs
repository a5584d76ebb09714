// SPDX-License-Identifier: Apache-2.0
//! What a fourth reading beside the reference brought up, with an etcd that tells how far it is: the old paths of
//! watches, the forms of streams, what bookmarks carry, places in lists and their order.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

use super::requests::{DEPLOYMENTS, MAPS, PODS, SECRETS, WIDGETS, call, made, map, widget, widgets};
use super::words::{install, names};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

async fn get_as(admin: &Caller, path: &str, accept: &str) -> Reply {
    admin.send(Method::GET, path, &[("accept", accept)], "").await
}

fn events(reply: &Reply) -> Vec<Value> {
    String::from_utf8_lossy(&reply.raw)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Under the old paths there is nothing but watches: what asks for something else must not get it.
#[tokio::test]
async fn the_old_paths_of_watches_change_nothing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &widgets()).await;
    made(&admin, MAPS, &map("kept")).await;
    made(&admin, WIDGETS, &widget("kept", 1)).await;
    let old = "/api/v1/watch/namespaces/default/configmaps";
    for (method, path, code) in [
        ("DELETE", format!("{old}/kept"), 405),
        ("DELETE", old.to_owned(), 405),
        ("DELETE", "/api/v1/watch/namespaces/default".to_owned(), 405),
        ("POST", old.to_owned(), 405),
        ("PUT", format!("{old}/kept"), 405),
        ("PATCH", format!("{old}/kept"), 405),
        ("DELETE", format!("{old}/kept/status"), 404),
        (
            "GET",
            "/apis/apps/v1/watch/namespaces/default/deployments/x/status".to_owned(),
            404,
        ),
    ] {
        let body = if method == "GET" || method == "DELETE" {
            ""
        } else {
            "{}"
        };
        let reply = call(&admin, method, &path, "application/json", body).await;
        assert_eq!(reply.code, code, "{method} {path}: {}", reply.body);
    }
    assert_eq!(admin.get(&format!("{MAPS}/kept")).await.code, 200);
    // Custom kinds do not look at the method at all.
    let path = "/apis/example.com/v1/watch/namespaces/default/widgets/kept?timeoutSeconds=1";
    let reply = call(&admin, "DELETE", path, "application/json", "").await;
    assert_eq!((reply.code, &events(&reply)[0]["type"]), (200, &json!("ADDED")));
    assert_eq!(admin.get(&format!("{WIDGETS}/kept")).await.code, 200);
    // A name and a selector have to mean the same.
    for selector in [
        "metadata.name%3Dother",
        "metadata.namespace%3Ddefault",
        "metadata.name!%3Dkept",
    ] {
        let reply = admin
            .get(&format!("{old}/kept?timeoutSeconds=1&fieldSelector={selector}"))
            .await;
        assert_eq!(
            (reply.code, reply.message()),
            (400, "fieldSelector metadata.name doesn't match requested name"),
            "{selector}"
        );
    }
}

#[tokio::test]
async fn streams_come_in_the_first_form_that_is_taken_or_not_at_all() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("m")).await;
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dm");
    for (accept, code) in [
        ("application/json;stream=foo", 406),
        ("application/json;stream=foo,application/json", 200),
        ("application/yaml,application/json;stream=watch", 406),
        ("application/json;stream=watch", 200),
    ] {
        let reply = get_as(&admin, &watch, accept).await;
        assert_eq!(reply.code, code, "{accept}: {}", reply.body);
    }
    let list = get_as(&admin, MAPS, "application/json;stream=foo").await;
    assert_eq!(list.code, 406);
    // No event is a list.
    let lists = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let reply = get_as(&admin, &watch, lists).await;
    assert_eq!((reply.code, reply.raw.len()), (200, 0));
    let operators = admin
        .get(&format!("{MAPS}?fieldSelector=%3D,!%3D,metadata.name%3Dm"))
        .await;
    assert_eq!(
        names(&operators.body),
        ["m"],
        "an operator alone asks for nothing"
    );
}

/// A bookmark is an object of its kind that says nothing, in as many words as the kind needs for that.
#[tokio::test]
async fn bookmarks_say_what_their_kind_always_says() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let asked = "?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&labelSelector=no%3Dbody";
    for (path, parts) in [
        (MAPS, json!({})),
        (PODS, json!({"spec": {"containers": null}, "status": {}})),
        ("/api/v1/namespaces", json!({"spec": {}, "status": {}})),
        (
            DEPLOYMENTS,
            json!({"spec": {"replicas": 0, "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}, "status": {}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"rules": null}),
        ),
    ] {
        let reply = admin.get(&format!("{path}{asked}")).await;
        let event = events(&reply).remove(0);
        let mut object = event["object"].clone();
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        assert_eq!(
            object["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        let fields = object.as_object_mut().unwrap();
        fields.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
        assert_eq!(object, parts, "{path}");
    }
    // The first event of a table names its columns, whatever it is, and a bookmark always has its place.
    let reply = get_as(&admin, &format!("{MAPS}{asked}&includeObject=None"), TABLE).await;
    let object = &events(&reply)[0]["object"];
    assert_eq!(object["columnDefinitions"][0]["name"], "Name");
    assert_eq!(
        object["rows"][0]["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
}

#[tokio::test]
async fn places_in_lists_are_below_what_is_listed() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for name in ["a", "b", "c"] {
        made(&admin, SECRETS, &json!({"metadata": {"name": name}})).await;
    }
    let decoded = |reply: &Reply| -> Value {
        let token = reply.body["metadata"]["continue"].as_str().unwrap_or_default();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap_or_default()
    };
    let first = admin.get(&format!("{SECRETS}?limit=1")).await;
    assert_eq!(decoded(&first)["start"], "/a\u{0}");
    let all = admin.get("/api/v1/secrets?limit=1").await;
    assert_eq!(decoded(&all)["start"], "/default/a\u{0}");
    let spaces = admin.get("/api/v1/namespaces?limit=1").await;
    assert_eq!(decoded(&spaces)["start"], "/default\u{0}");
    let revision = decoded(&first)["rv"].as_u64().unwrap();
    let page = async |rv: Value, start: &str, more: &str| {
        let token = json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string();
        let token = URL_SAFE_NO_PAD.encode(token);
        admin.get(&format!("{SECRETS}?continue={token}{more}")).await
    };
    for (start, more, expected) in [
        ("a\u{0}", "", "b c"),
        ("/b", "", "b c"),
        ("/b\u{0}", "&limit=5", "c"),
        ("/zz", "", ""),
        ("/a\u{0}", "&limit=1&resourceVersion=0", "b c"),
    ] {
        let reply = page(json!(revision), start, more).await;
        assert_eq!(names(&reply.body).join(" "), expected, "{start:?} {more}");
    }
    made(&admin, SECRETS, &json!({"metadata": {"name": "d"}})).await;
    let newest = page(json!(-1), "/b\u{0}", "").await;
    assert_eq!(names(&newest.body), ["c", "d"], "whatever there is by now");
    let future = page(json!(99_999_999), "/b\u{0}", "").await;
    assert_eq!(
        (future.code, &future.body["details"]["retryAfterSeconds"]),
        (504, &json!(1))
    );
    for (rv, start, why) in [
        (json!(revision), "../x", "../x"),
        (json!(revision), "/a//b", "/a//b"),
        (
            json!("7"),
            "a",
            "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        ),
    ] {
        let reply = page(rv, start, "").await;
        assert_eq!(
            (reply.code, reply.message()),
            (
                400,
                format!("invalid continue token: continue key is not valid: {why}").as_str()
            )
        );
    }
}

/// All namespaces are listed in the order of their paths.
#[tokio::test]
async fn a_namespace_comes_before_those_it_begins_the_name_of_only_where_its_path_does() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for space in ["oa", "oa-b", "oa0"] {
        made(
            &admin,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": space}}),
        )
        .await;
        let path = format!("/api/v1/namespaces/{space}/secrets");
        made(&admin, &path, &json!({"metadata": {"name": "s"}})).await;
    }
    let spaces = |items: Vec<&Value>| -> Vec<String> {
        let of = |item: &Value| {
            item["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        items.into_iter().map(of).collect()
    };
    let list = admin.get("/api/v1/secrets").await.body;
    let expected = ["oa-b", "oa", "oa0"];
    assert_eq!(
        spaces(list["items"].as_array().unwrap().iter().collect()),
        expected
    );
    let reply = admin.get("/api/v1/secrets?watch=true&timeoutSeconds=1").await;
    let stream = events(&reply);
    assert_eq!(
        spaces(stream.iter().map(|event| &event["object"]).collect()),
        expected
    );
}
