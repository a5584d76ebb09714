// SPDX-License-Identifier: Apache-2.0
//! What recorded events look like on the wire.

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

type Calls = Arc<Mutex<Vec<(String, String, Value)>>>;

/// How a server refuses a call: the code and the reason.
type Refusal = Option<(u16, &'static str)>;

/// A server that notes calls, and refuses some by their method and how many there were before.
fn server(refuses: impl Fn(&str, usize) -> Refusal + Send + 'static) -> (kube::Client, Calls) {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let calls: Calls = Arc::default();
    let seen = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let before = seen.lock().len();
            let (status, answer) = match refuses(&method, before) {
                Some((code, reason)) => {
                    let said = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""});
                    (StatusCode::from_u16(code).unwrap(), said)
                }
                None => (
                    StatusCode::OK,
                    json!({"metadata": {"name": "e"}, "eventTime": null}),
                ),
            };
            seen.lock().push((method, path, body));
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            send.send_response(Response::builder().status(status).body(body).unwrap());
        }
    });
    (kube::Client::new(service, "default"), calls)
}

/// What a server heard of something that happened so often.
async fn record(
    times: usize,
    refuses: impl Fn(&str, usize) -> Refusal + Send + 'static,
) -> Vec<(String, String, Value)> {
    let (client, calls) = server(refuses);
    let reporter = Reporter {
        controller: "kvm.cloud.sap/node-agent".into(),
        instance: "pod-1".into(),
        quiet: Duration::from_mins(10),
    };
    let (recorder, worker) = channel(client, reporter);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node1", "uid": "u"}})).unwrap();
    for _ in 0..times {
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
    let calls = record(3, |_, _| None).await;
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
    let calls = record(3, |method, _| (method == "PATCH").then_some((404, "NotFound"))).await;
    let methods: Vec<&str> = calls.iter().map(|(method, _, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    assert_eq!(calls[2].2["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_for_a_moment_costs_no_event() {
    let away = |_: &str, before: usize| (before < 3).then_some((503, "ServiceUnavailable"));
    let calls = record(1, away).await;
    let names: Vec<&Value> = calls
        .iter()
        .map(|(_, _, event)| &event["metadata"]["name"])
        .collect();
    assert_eq!(names, [names[0]; 4], "the same event, until it is taken");
    // An answer that was lost: the second attempt finds the event there, and nothing is left to do.
    let made = |_: &str, before: usize| [(504, "Timeout"), (409, "AlreadyExists")].get(before).copied();
    assert_eq!(record(1, made).await.len(), 2);
    let refused = record(1, |_, _| Some((403, "Forbidden"))).await;
    assert_eq!(refused.len(), 1, "asking again would not help");
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_instead_of_waiting() {
    let (client, _) = server(|_, _| None);
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
