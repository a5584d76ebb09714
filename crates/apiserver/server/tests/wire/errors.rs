// SPDX-License-Identifier: Apache-2.0
//! Refusals on the wire: routes that lead nowhere, methods nobody offers, bodies of the wrong kind,
//! and every row of the table of errors, compared whole.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::json;

const NO_SUCH: &str = "the server could not find the requested resource";
const NO_METHOD: &str = "the server does not allow this method on the requested resource";

#[tokio::test]
async fn unknown_paths_of_known_groups_are_explained() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for path in [
        "/apis/apps/v9",
        "/apis/apps/v9/deployments",
        "/apis/apps/v1/foos",
        "/api/v2",
        "/api/v2/namespaces",
        "/api/v1/foos",
        "/api/v1/namespaces/default/foos",
        "/api/v1/namespaces/default/foos/x",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/configmaps/x",
        "/api/v1/namespaces/default/pods/x/foo",
        "/api/v1/namespaces/default/pods/x/log",
        "/api/v1/namespaces/default/pods/x/exec",
        "/api/v1/namespaces/default/pods/x/status/more",
    ] {
        let reply = admin.get(path).await;
        assert_eq!(
            reply.body,
            failure(404, "NotFound", NO_SUCH, Some(json!({}))),
            "{path}"
        );
        assert_eq!(header(&reply, "content-type"), "application/json", "{path}");
    }
}

#[tokio::test]
async fn unknown_groups_are_plain_pages() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, DEFINITIONS, &widgets()).await;
    for path in [
        "/foo",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/nope/v1/foos",
        "/apis/nope/v1/namespaces/default/foos/x",
        "/healthz/nope",
        // Groups of definitions know only what is defined.
        "/apis/example.com/v9",
        "/apis/example.com/v9/widgets",
        "/apis/example.com/v1/gadgets",
        "/apis/example.com/v1/widgets/x",
    ] {
        let reply = admin.get(path).await;
        assert_eq!(
            (reply.code, &reply.raw[..]),
            (404, &b"404 page not found\n"[..]),
            "{path}"
        );
        assert_eq!(
            header(&reply, "content-type"),
            "text/plain; charset=utf-8",
            "{path}"
        );
    }
}

#[tokio::test]
async fn methods_a_resource_does_not_offer() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (method, path) in [
        ("POST", "/api/v1/configmaps"),
        ("PUT", "/api/v1/configmaps"),
        ("PATCH", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
        ("DELETE", "/api/v1/namespaces"),
        ("PUT", "/api/v1/nodes"),
        ("OPTIONS", MAPS),
        ("GET", "/api/v1/namespaces/default/bindings"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/api/v1/namespaces/default/pods/x/status"),
        ("DELETE", "/api/v1/namespaces/default/pods/x/status"),
        ("GET", "/api/v1/namespaces/default/pods/x/eviction"),
        ("GET", "/api/v1/namespaces/default/pods/x/binding"),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("POST", "/api"),
        ("POST", "/version"),
        ("DELETE", "/apis/apps/v1"),
    ] {
        let reply = call(&admin, method, path, "application/json", "").await;
        assert_eq!(
            reply.body,
            failure(405, "MethodNotAllowed", NO_METHOD, Some(json!({}))),
            "{method} {path}"
        );
    }
    let head = call(&admin, "HEAD", MAPS, "", "").await;
    assert_eq!(
        (head.code, head.raw.len()),
        (405, 0),
        "objects are asked for with GET"
    );
    made(&admin, DEFINITIONS, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let reply = call(
        &admin,
        "POST",
        &format!("{WIDGETS}/w/status"),
        "application/json",
        "{}",
    )
    .await;
    let details = json!({"group": "example.com", "kind": "widgets"});
    let message = "create is not supported on resources of kind \"widgets.example.com\"";
    assert_eq!(
        reply.body,
        failure(405, "MethodNotAllowed", message, Some(details))
    );
    let reply = admin.get(&format!("{WIDGETS}/w/scale")).await;
    let details = json!({"group": "example.com", "kind": "widgets", "name": "w"});
    assert_eq!(
        reply.body,
        failure(
            404,
            "NotFound",
            "widgets.example.com \"w\" not found",
            Some(details)
        )
    );
}

#[tokio::test]
async fn objects_that_are_missing_taken_or_newer() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let here = |name: &str| json!({"kind": "configmaps", "name": name});
    let deployment_here = json!({"group": "apps", "kind": "deployments", "name": "no"});
    for (reply, expected) in [
        (
            admin.get(&format!("{MAPS}/no")).await,
            failure(404, "NotFound", "configmaps \"no\" not found", Some(here("no"))),
        ),
        (
            admin.delete(&format!("{MAPS}/no")).await,
            failure(404, "NotFound", "configmaps \"no\" not found", Some(here("no"))),
        ),
        (
            admin.put(&format!("{MAPS}/no"), &map("no")).await,
            failure(404, "NotFound", "configmaps \"no\" not found", Some(here("no"))),
        ),
        (
            admin.merge(&format!("{MAPS}/no"), &json!({})).await,
            failure(404, "NotFound", "configmaps \"no\" not found", Some(here("no"))),
        ),
        (
            admin.get(&format!("{DEPLOYMENTS}/no")).await,
            failure(
                404,
                "NotFound",
                "deployments.apps \"no\" not found",
                Some(deployment_here.clone()),
            ),
        ),
        (
            admin.get(&format!("{DEPLOYMENTS}/no/scale")).await,
            failure(
                404,
                "NotFound",
                "deployments.apps \"no\" not found",
                Some(deployment_here),
            ),
        ),
        (
            admin
                .post("/api/v1/namespaces/nowhere/configmaps", &map("a"))
                .await,
            failure(
                404,
                "NotFound",
                "namespaces \"nowhere\" not found",
                Some(json!({"kind": "namespaces", "name": "nowhere"})),
            ),
        ),
    ] {
        assert_eq!(reply.body, expected);
    }
    let first = made(&admin, MAPS, &map("a")).await;
    let taken = admin.post(MAPS, &map("a")).await;
    assert_eq!(
        taken.body,
        failure(
            409,
            "AlreadyExists",
            "configmaps \"a\" already exists",
            Some(here("a"))
        )
    );
    assert_eq!(
        admin
            .merge(&format!("{MAPS}/a"), &json!({"data": {"k": "v"}}))
            .await
            .code,
        200
    );
    let stale = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again";
    let conflict = failure(409, "Conflict", stale, Some(here("a")));
    assert_eq!(admin.put(&format!("{MAPS}/a"), &first).await.body, conflict);
    let pinned = json!({"metadata": {"resourceVersion": version(&first)}, "data": {"k": "w"}});
    assert_eq!(admin.merge(&format!("{MAPS}/a"), &pinned).await.body, conflict);
    let mut other = map("a");
    other["metadata"]["uid"] = json!("zzz");
    let reply = admin.put(&format!("{MAPS}/a"), &other).await;
    let uid = first["metadata"]["uid"].as_str().unwrap();
    let message = format!(
        "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: zzz, UID in object meta: {uid}"
    );
    assert_eq!(reply.body, failure(409, "Conflict", &message, Some(here("a"))));
}

#[tokio::test]
async fn bodies_that_do_not_fit_the_url() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}});
    let versioned =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "resourceVersion": "5"}});
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    for (method, path, body, message) in [
        (
            "PUT",
            "/a",
            map("b"),
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "PUT",
            "/a",
            nameless,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        ("PUT", "/a", elsewhere.clone(), namespace),
        ("POST", "", elsewhere, namespace),
        (
            "POST",
            "",
            versioned,
            "resourceVersion should not be set on objects to be created",
        ),
    ] {
        let reply = call(
            &admin,
            method,
            &format!("{MAPS}{path}"),
            "application/json",
            &body.to_string(),
        )
        .await;
        assert_eq!(
            reply.body,
            failure(400, "BadRequest", message, None),
            "{method} {body}"
        );
    }
}

#[tokio::test]
async fn bodies_of_another_kind() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let scheme = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (api_version, kind, message) in [
        ("v1", "Secret", "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned()),
        ("apps/v1", "Deployment", "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion".to_owned()),
        ("v1", "Foo", format!("Foo in version \"v1\" cannot be handled as a ConfigMap: no kind \"Foo\" is registered for version \"v1\" {scheme}")),
        ("v2", "ConfigMap", format!("ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" {scheme}")),
        ("apps/v1", "ConfigMap", format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"apps/v1\" {scheme}")),
    ] {
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "q"}});
        let reply = admin.post(MAPS, &body).await;
        assert_eq!(reply.body, failure(400, "BadRequest", &message, None), "{api_version} {kind}");
    }
    let autoscaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
    let reply = admin
        .post(
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            &autoscaler,
        )
        .await;
    let message = "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)";
    assert_eq!(reply.body, failure(400, "BadRequest", message, None));
    for missing in [
        json!({"metadata": {"name": "q1"}}),
        json!({"kind": "ConfigMap", "metadata": {"name": "q2"}}),
    ] {
        let reply = admin.post(MAPS, &missing).await;
        assert_eq!(
            (reply.code, &reply.body["kind"], &reply.body["apiVersion"]),
            (201, &json!("ConfigMap"), &json!("v1")),
            "what is left out is that of the endpoint"
        );
    }
}

#[tokio::test]
async fn bodies_of_subresources_have_kinds_of_their_own() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, PODS, &pod("p")).await;
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    for (method, path, package, kind) in [
        ("POST", format!("{PODS}/p/binding"), "core", "Binding"),
        ("POST", format!("{PODS}/p/eviction"), "policy", "Eviction"),
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/default/token".to_owned(),
            "authentication",
            "TokenRequest",
        ),
        ("PUT", format!("{DEPLOYMENTS}/d/scale"), "autoscaling", "Scale"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let reply = call(&admin, method, &path, "application/json", &body.to_string()).await;
        let message = format!(
            "Pod in version \"v1\" cannot be handled as a {kind}: converting (v1.Pod) to ({package}.{kind}): unknown conversion"
        );
        assert_eq!(reply.body, failure(400, "BadRequest", &message, None), "{path}");
    }
}

#[tokio::test]
async fn formats_nobody_speaks() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    let body = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    for media in [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
    ] {
        let reply = call(&admin, "POST", MAPS, media, &map("b").to_string()).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (415, "UnsupportedMediaType"),
            "{media}"
        );
        assert!(reply.message().starts_with(body), "{media}: {}", reply.message());
    }
    for media in ["application/json; charset=utf-8", ""] {
        let reply = call(
            &admin,
            "POST",
            MAPS,
            media,
            &map(&format!("m{}", media.len())).to_string(),
        )
        .await;
        assert_eq!(reply.code, 201, "{media:?}");
    }
    for media in ["application/json", "application/yaml", "text/plain", ""] {
        let reply = call(&admin, "PATCH", &format!("{MAPS}/a"), media, "{}").await;
        let expected = failure(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
            Some(json!({})),
        );
        assert_eq!(reply.body, expected, "{media:?}");
    }
    // Media types lead nowhere; a form that does not exist is looked for where the media type leads.
    let nowhere = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch";
    let formless = "only the following media types are accepted: application/json, application/yaml";
    for (accept, message, details) in [
        ("text/html", nowhere, Some(json!({}))),
        ("application/xml", nowhere, Some(json!({}))),
        ("text/*", nowhere, Some(json!({}))),
        ("application/json;as=Table;g=meta.k8s.io;v=v9", formless, None),
    ] {
        let reply = admin
            .send(http::Method::GET, MAPS, &[("accept", accept)], "")
            .await;
        assert_eq!(
            reply.body,
            failure(406, "NotAcceptable", message, details),
            "{accept}"
        );
    }
}

#[tokio::test]
async fn the_same_mistake_is_said_once_and_counted_twice() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    let reply = admin
        .merge(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"labels": {"-bad": "x"}}}),
        )
        .await;
    assert_eq!((reply.code, reply.reason()), (422, "Invalid"));
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    assert_eq!(
        reply.message(),
        format!("ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"-bad\": {name}")
    );
    assert!(
        causes(&reply)
            .iter()
            .all(|(field, reason)| field == "metadata.labels" && reason == "FieldValueInvalid")
    );
}

#[tokio::test]
async fn refusals_come_in_the_form_asked_for() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/no");
    let yaml = admin
        .send(http::Method::GET, &path, &[("accept", "application/yaml")], "")
        .await;
    assert_eq!(
        (yaml.code, header(&yaml, "content-type")),
        (404, "application/yaml")
    );
    assert!(String::from_utf8_lossy(&yaml.raw).contains("reason: NotFound\n"));
    let pretty = admin.get(&format!("{path}?pretty=true")).await;
    assert!(
        pretty
            .raw
            .starts_with(b"{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n"),
        "{:?}",
        pretty.raw
    );
    let table = admin
        .send(
            http::Method::GET,
            &path,
            &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")],
            "",
        )
        .await;
    assert_eq!((table.code, &table.body["kind"]), (404, &json!("Status")));
    made(&admin, MAPS, &map("a")).await;
    let gone = admin
        .send(
            http::Method::DELETE,
            &format!("{MAPS}/a"),
            &[("accept", "application/yaml")],
            "",
        )
        .await;
    assert_eq!(
        (gone.code, header(&gone, "content-type")),
        (200, "application/yaml")
    );
}
