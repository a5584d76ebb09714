// SPDX-License-Identifier: Apache-2.0
//! The same server over its socket: TLS, tokens, and watches as they travel.

use std::time::Duration;

use crate::remote::{Lines, Remote};
use crate::words::*;
use cobaltcore_apiserver::Config;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn admin_of(server: &TestServer) -> Remote {
    let inner = server.server();
    Remote::new(
        inner.addresses()[0],
        inner.pki().ca_pem(),
        Some(inner.pki().admin_token()),
    )
}

async fn next(lines: &mut Lines) -> Value {
    tokio::time::timeout(Duration::from_secs(60), lines.next())
        .await
        .expect("no event came")
        .unwrap()
        .expect("the stream ended")
}

#[tokio::test]
async fn watches_travel_as_they_happen() {
    let server = TestServer::listening().await;
    let remote = admin_of(&server);
    let mut writer = remote.connect().await.unwrap();
    let (_, list) = writer.get(MAPS).await.unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", rv(&list));
    let (code, mut events) = remote.connect().await.unwrap().watch(&path).await.unwrap();
    assert_eq!(code, 200, "the headers come before the first event");
    let (code, made) = writer.post(MAPS, &map("a", "1")).await.unwrap();
    assert_eq!(code, 201);
    assert_eq!(next(&mut events).await, json!({"type": "ADDED", "object": made}));
    let (_, changed) = writer
        .send(
            Method::PATCH,
            &format!("{MAPS}/a"),
            Some(("application/merge-patch+json", &json!({"data": {"v": "2"}}))),
        )
        .await
        .unwrap();
    assert_eq!(
        next(&mut events).await,
        json!({"type": "MODIFIED", "object": changed})
    );
    writer
        .send(Method::DELETE, &format!("{MAPS}/a"), None)
        .await
        .unwrap();
    assert_eq!(next(&mut events).await["type"], "DELETED");
    server.stop().await;
    let end = tokio::time::timeout(Duration::from_secs(60), events.next())
        .await
        .expect("stopping ends watches");
    assert!(matches!(end, Ok(None)), "cleanly");
}

#[tokio::test]
async fn a_streaming_list_travels_and_ends_on_time() {
    let server = TestServer::listening().await;
    let remote = admin_of(&server);
    let path = format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    );
    let (code, mut events) = remote.connect().await.unwrap().watch(&path).await.unwrap();
    assert_eq!(code, 200);
    assert_eq!(brief(&next(&mut events).await), "ADDED kube-root-ca.crt");
    let end = next(&mut events).await;
    assert_eq!(
        (&end["type"], &end["object"]["metadata"]["annotations"]),
        (&json!("BOOKMARK"), &json!({"k8s.io/initial-events-end": "true"}))
    );
    while let Some(event) = events.next().await.expect("a clean end") {
        assert_eq!(event["type"], "BOOKMARK");
    }
}

#[tokio::test]
async fn tokens_open_the_door_until_their_account_goes() {
    let server = TestServer::listening().await;
    let remote = admin_of(&server);
    let mut admin = remote.connect().await.unwrap();
    for token in [None, Some("wrong"), Some("")] {
        let (code, body) = remote
            .with_token(token)
            .connect()
            .await
            .unwrap()
            .get("/api")
            .await
            .unwrap();
        assert_eq!(
            (code, &body["reason"], &body["message"]),
            (401, &json!("Unauthorized"), &json!("Unauthorized")),
            "{token:?}"
        );
        let (code, _) = remote
            .with_token(token)
            .connect()
            .await
            .unwrap()
            .get("/healthz")
            .await
            .unwrap();
        assert_eq!(
            code, 401,
            "open paths need credentials too unless anonymous access is on: {token:?}"
        );
    }
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin
        .post(
            accounts,
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
        )
        .await
        .unwrap();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    admin
        .post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            &binding,
        )
        .await
        .unwrap();
    let (code, made) = admin
        .post(&format!("{accounts}/robot/token"), &json!({}))
        .await
        .unwrap();
    assert_eq!(code, 201, "{made}");
    let mut robot = remote
        .with_token(made["status"]["token"].as_str())
        .connect()
        .await
        .unwrap();
    assert_eq!(robot.get(MAPS).await.unwrap().0, 200);
    let (code, body) = robot.get("/api/v1/secrets").await.unwrap();
    assert_eq!(
        (code, &body["message"]),
        (
            403,
            &json!(
                "secrets is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\" in API group \"\" at the cluster scope"
            )
        )
    );
    let (code, foreign) = admin
        .post(
            &format!("{accounts}/robot/token"),
            &json!({"spec": {"audiences": ["vault"]}}),
        )
        .await
        .unwrap();
    assert_eq!(code, 201);
    let mut vault = remote
        .with_token(foreign["status"]["token"].as_str())
        .connect()
        .await
        .unwrap();
    assert_eq!(vault.get(MAPS).await.unwrap().0, 401, "made for somebody else");
    admin
        .send(Method::DELETE, &format!("{accounts}/robot"), None)
        .await
        .unwrap();
    assert_eq!(robot.get(MAPS).await.unwrap().0, 401, "at the very next request");
}

#[tokio::test]
async fn strangers_see_only_what_is_public() {
    let server = TestServer::with(Config {
        listen: vec![([127, 0, 0, 1], 0).into()],
        port_given: true,
        anonymous: true,
        ..Config::default()
    })
    .await;
    let stranger = admin_of(&server).with_token(None);
    let mut connection = stranger.connect().await.unwrap();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(connection.get(path).await.unwrap().0, 200, "{path}");
    }
    let (code, body) = connection.get(MAPS).await.unwrap();
    assert_eq!(
        (code, &body["message"]),
        (
            403,
            &json!(
                "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
            )
        )
    );
    assert_eq!(
        connection.get("/api").await.unwrap().1["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/api\""
    );
    let (code, _) = stranger
        .with_token(Some("wrong"))
        .connect()
        .await
        .unwrap()
        .get("/healthz")
        .await
        .unwrap();
    assert_eq!(code, 401, "wrong credentials are not no credentials");
}
