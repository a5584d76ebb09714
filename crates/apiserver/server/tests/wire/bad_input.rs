// SPDX-License-Identifier: Apache-2.0
//! Hostile and broken input: bodies that are no JSON, too long, too deep or self-similar, selectors
//! and paths nobody would write. Every one is refused with a reason, and the server goes on.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;

#[tokio::test]
async fn bodies_that_cannot_be_read() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let unread = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ";
    let shape = r#"into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, message) in [
        ("", "unexpected end of JSON input (<empty>)".to_owned()),
        ("{", "unexpected end of JSON input ({)".to_owned()),
        (
            "nope",
            "invalid character 'o' in literal null (expecting 'u') (6e6f7065)".to_owned(),
        ),
        ("[]", format!("json: cannot unmarshal array {shape} (5b5d)")),
        ("\"x\"", format!("json: cannot unmarshal string {shape} (227822)")),
        ("5", format!("json: cannot unmarshal number {shape} (35)")),
        (
            r#"{"kind":5}"#,
            r#"json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})"#
                .to_owned(),
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1"} x"#,
            r#"invalid character 'x' after top-level value ({"kind":"ConfigMap","apiVersio ...)"#.to_owned(),
        ),
    ] {
        let reply = call(&admin, "POST", MAPS, "application/json", body).await;
        assert_eq!(
            reply.body,
            failure(400, "BadRequest", &format!("{unread}{message}"), None),
            "{body}"
        );
    }
    let secret = call(
        &admin,
        "POST",
        SECRETS,
        "application/json",
        r#"{"data":{"password":"aHVudGVyMg=="#,
    )
    .await;
    assert!(
        secret.code == 400 && !secret.message().contains("aHVudGVyMg"),
        "{}",
        secret.message()
    );
}

#[tokio::test]
async fn values_of_the_wrong_type() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (body, why) in [
        (
            r#"{"metadata":{"name":5}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            r#"{"metadata":[]}"#,
            "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            r#"{"metadata":{"name":"q"},"data":{"a":5}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            r#"{"metadata":{"name":"q"},"data":[]}"#,
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            r#"{"metadata":{"name":"q"},"immutable":"yes"}"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
        ),
        (
            r#"{"metadata":{"name":"q","labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            r#"{"metadata":{"name":"q","creationTimestamp":"foo"}}"#,
            "parsing time \"foo\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"foo\" as \"2006\"",
        ),
        (
            r#"{"metadata":{"name":"q"},"binaryData":{"y":"!!"}}"#,
            "illegal base64 data at input byte 0",
        ),
    ] {
        let reply = call(&admin, "POST", MAPS, "application/json", body).await;
        let message = format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {why}");
        assert_eq!(reply.body, failure(400, "BadRequest", &message, None), "{body}");
    }
}

#[tokio::test]
async fn too_long_too_deep_too_clever() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let long = call(
        &admin,
        "POST",
        MAPS,
        "application/json",
        &"x".repeat(3 * 1024 * 1024 + 1),
    )
    .await;
    assert_eq!(
        long.body,
        failure(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
            None
        )
    );
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (before, name) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        bomb.push_str(&format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{before}"); 9].join(",")
        ));
    }
    let deep = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    for (media, body) in [
        ("application/json", deep.clone()),
        ("application/json", "[".repeat(100_000)),
        ("application/yaml", "[".repeat(50_000)),
        ("application/yaml", bomb),
        ("application/json", "\u{0}\u{1}".to_owned()),
    ] {
        let reply = call(&admin, "POST", MAPS, media, &body).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (400, "BadRequest"),
            "{media} {body:.20}"
        );
    }
    made(&admin, MAPS, &map("p")).await;
    for (media, body) in [
        (MERGE_PATCH, deep.clone()),
        (JSON_PATCH, "[".repeat(100_000)),
        (STRATEGIC_PATCH, deep),
    ] {
        assert_eq!(
            call(&admin, "PATCH", &format!("{MAPS}/p"), media, &body)
                .await
                .code,
            400,
            "{media}"
        );
    }
    let bytes = admin
        .send(
            http::Method::POST,
            MAPS,
            &[("content-type", "application/json")],
            vec![0xff, 0xfe, 0x00],
        )
        .await;
    assert_eq!(bytes.code, 400);
    assert_eq!(
        admin.get(&format!("{MAPS}/p")).await.code,
        200,
        "the server goes on"
    );
}

#[tokio::test]
async fn selectors_and_paths_nobody_would_write() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for query in [
        format!("labelSelector={}", "a,".repeat(30_000)),
        format!("labelSelector={}", "(".repeat(20_000)),
        format!("labelSelector=a in ({})", "b,".repeat(20_000)),
        format!("fieldSelector={}", "metadata.name!=x,".repeat(3_000)),
        format!("fieldSelector={}", "%5C".repeat(10_000)),
        "labelSelector=%FF%FE".to_owned(),
        "labelSelector=%".to_owned(),
        "labelSelector=a%00b".to_owned(),
    ] {
        let reply = call(&admin, "GET", &format!("{MAPS}?{query}"), "", "").await;
        assert!(matches!(reply.code, 200 | 400), "{:.40}: {}", query, reply.code);
    }
    for path in ["%00", "..%2fx", "a%zz", "%e2%82", "%2e%2e", "a%20b"] {
        let reply = admin.get(&format!("{MAPS}/{path}")).await;
        assert!(matches!(reply.code, 400 | 404), "{path}: {}", reply.code);
    }
    for (path, code, message) in [
        ("/%2e", 400, "Name parameter invalid: \".\": may not be '.'"),
        ("/..", 400, "Name parameter invalid: \"..\": may not be '..'"),
        (
            "/a%25b",
            400,
            "Name parameter invalid: \"a%b\": may not contain '%'",
        ),
        ("?limit=", 400, "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("/none", 404, "configmaps \"none\" not found"),
    ] {
        let reply = admin.get(&format!("{MAPS}{path}")).await;
        assert_eq!((reply.code, reply.message()), (code, message), "{path}");
    }
    let origin = admin
        .send(http::Method::GET, MAPS, &[("origin", "https://evil.example")], "")
        .await;
    assert_eq!((origin.code, origin.reason()), (403, "Forbidden"));
}

#[tokio::test]
async fn nothing_at_all_is_an_empty_object() {
    let server = TestServer::start().await;
    let json = [("content-type", "application/json")];
    let reply = server
        .admin()
        .send(
            Method::POST,
            "/api/v1/namespaces/default/configmaps",
            &json,
            "null",
        )
        .await;
    assert_eq!(reply.code, 422, "{}", reply.body);
    assert_eq!(
        reply.message(),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

/// Where a kind has whole numbers, `1.0` is none; where numbers have no type, it is one.
#[tokio::test]
async fn a_fraction_of_nothing_is_a_fraction() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let json = [("content-type", "application/json")];
    let send = async |path: &str, body: &'static str| admin.send(Method::POST, path, &json, body).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let refused = send(
        deployments,
        r#"{"metadata":{"name":"d"},"spec":{"replicas":1.0}}"#,
    )
    .await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            400,
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal number 1.0 into Go struct field DeploymentSpec.spec.replicas of type int32"
        )
    );
    let quota = r#"{"metadata":{"name":"q"},"spec":{"hard":{"pods":2.0}}}"#;
    let made = send("/api/v1/namespaces/default/resourcequotas", quota).await;
    assert_eq!(made.body["spec"]["hard"], serde_json::json!({"pods": "2"}));
    let revision = r#"{"metadata":{"name":"r"},"revision":1,"data":{"a":[2.0,{"b":1e2}]}}"#;
    let made = send("/apis/apps/v1/namespaces/default/controllerrevisions", revision).await;
    assert_eq!(made.body["data"], serde_json::json!({"a": [2, {"b": 100}]}));
}
