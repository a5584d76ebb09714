// SPDX-License-Identifier: Apache-2.0
//! What recorded events look like on the wire.

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

type Calls = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A server that notes calls and no longer knows the event when asked to patch it.
fn server(gone: bool) -> (kube::Client, Calls) {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let calls: Calls = Arc::default();
    let seen = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let missing = gone && method == "PATCH";
            let answer = if missing {
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""})
            } else {
                json!({"metadata": {"name": "e"}, "eventTime": null})
            };
            seen.lock().push((method, path, body));
            let status = if missing {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::OK
            };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            send.send_response(Response::builder().status(status).body(body).unwrap());
        }
    });
    (kube::Client::new(service, "default"), calls)
}

async fn record_twice(gone: bool) -> Vec<(String, String, Value)> {
    let (client, calls) = server(gone);
    let reporter = Reporter {
        controller: "kvm.cloud.sap/node-agent".into(),
        instance: "pod-1".into(),
        quiet: Duration::from_mins(10),
    };
    let (recorder, worker) = channel(client, reporter);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node1", "uid": "u"}})).unwrap();
    for _ in 0..3 {
        recorder.record(
            &node,
            Happening::warning("LibvirtLost", "Connecting", "no answer"),
        );
    }
    let stop = CancellationToken::new();
    stop.cancel();
    worker.run(stop).await.unwrap();
    assert_eq!(recorder.dropped(), 0);
    std::mem::take(&mut *calls.lock())
}

#[tokio::test]
async fn an_event_is_created_once_and_then_extended() {
    let calls = record_twice(false).await;
    assert_eq!(calls.len(), 2, "the third is only counted");
    let (method, path, event) = &calls[0];
    assert_eq!(
        (method.as_str(), path.as_str()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events")
    );
    assert_eq!(event["regarding"]["kind"], "Node");
    assert_eq!(event["reportingController"], "kvm.cloud.sap/node-agent");
    assert_eq!(event["reportingInstance"], "pod-1");
    assert_eq!(
        (&event["type"], &event["reason"]),
        (&json!("Warning"), &json!("LibvirtLost"))
    );
    assert!(event["eventTime"].is_string());
    let (method, path, patch) = &calls[1];
    assert_eq!(method, "PATCH");
    assert!(
        path.ends_with(event["metadata"]["name"].as_str().unwrap()),
        "{path}"
    );
    assert_eq!(patch["series"]["count"], 2);
    assert_eq!(patch.get("note"), None, "the note of an event cannot change");
}

#[tokio::test]
async fn a_series_whose_event_expired_is_created_again() {
    let calls = record_twice(true).await;
    let methods: Vec<&str> = calls.iter().map(|(method, _, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    assert_eq!(calls[2].2["series"]["count"], 2);
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_instead_of_waiting() {
    let (client, _) = server(false);
    let reporter = Reporter {
        controller: "c".into(),
        instance: "i".into(),
        quiet: Duration::ZERO,
    };
    let (recorder, _worker) = channel(client, reporter);
    for _ in 0..QUEUE + 3 {
        recorder.record_for(ObjectReference::default(), Happening::normal("A", "B", ""));
    }
    assert_eq!(recorder.dropped(), 3);
}
