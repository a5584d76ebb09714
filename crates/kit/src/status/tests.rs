// SPDX-License-Identifier: Apache-2.0
//! What a status write looks like on the wire.

use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;

use super::*;

fn node() -> Node {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node1", "generation": 4},
        "status": {"conditions": []},
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-03-04T05:06:07Z".parse().unwrap()
}

/// A writer whose one request is checked by `check` and answered with what was applied.
fn writer(
    check: impl FnOnce(String, String, Value) + Send + 'static,
) -> (StatusWriter, tokio::task::JoinHandle<()>) {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let server = tokio::spawn(async move {
        let (request, send) = handle.next_request().await.expect("a request");
        let (target, kind) = (
            request.uri().to_string(),
            request.headers()["content-type"].to_str().unwrap().to_owned(),
        );
        let body = request.into_body().collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        send.send_response(Response::new(Body::from(serde_json::to_vec(&body).unwrap())));
        check(target, kind, body);
    });
    (
        StatusWriter::new(kube::Client::new(service, "default"), "ready"),
        server,
    )
}

#[tokio::test]
async fn a_write_is_a_forced_apply_of_the_status_under_our_name() {
    let (writer, server) = writer(|target, kind, body| {
        assert_eq!(
            target,
            "/api/v1/nodes/node1/status?&force=true&fieldManager=ready"
        );
        assert_eq!(kind, "application/apply-patch+yaml");
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"},
                "status": {
                    "phase": "Active",
                    "conditions": [{
                        "type": "Ready", "status": "False", "reason": "Maintenance", "message": "m",
                        "observedGeneration": 4, "lastTransitionTime": "2026-03-04T05:06:07Z",
                    }],
                },
            })
        );
    });
    let intent = Intent::new()
        .field("phase", "Active")
        .field("absent", Value::Null)
        .condition(NewCondition::yes("Ready", "Ready", "replaced below"))
        .condition(NewCondition::no("Ready", "Maintenance", "m"));
    let written = writer.write_at(&node(), &intent, now()).await.unwrap();
    assert!(matches!(written, Written::Applied(_)));
    server.await.unwrap();
}

#[tokio::test]
async fn objects_in_namespaces_are_written_there() {
    let (writer, server) = writer(|target, _, body| {
        assert!(
            target.starts_with("/api/v1/namespaces/monsoon3/pods/p/status?"),
            "{target}"
        );
        assert_eq!(body["metadata"], json!({"name": "p", "namespace": "monsoon3"}));
    });
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "monsoon3"}})).unwrap();
    writer
        .write_at(&pod, &Intent::new().field("message", "x"), now())
        .await
        .unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn nothing_is_sent_when_nothing_would_change_or_the_server_would_refuse() {
    let (service, _handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let writer = StatusWriter::new(kube::Client::new(service, "default"), "ready");
    assert!(matches!(
        writer.write(&node(), &Intent::new()).await.unwrap(),
        Written::Unchanged
    ));
    let invalid = Intent::new().condition(NewCondition::yes("Ready", "", ""));
    let error = writer.write(&node(), &invalid).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "condition \"Ready\" of Node node1: \"\" is not a valid reason"
    );
}
