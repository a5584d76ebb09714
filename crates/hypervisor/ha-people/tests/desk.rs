// SPDX-License-Identifier: Apache-2.0
//! The person on call against a service that speaks the real vocabulary over HTTP.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use cobaltcore_ha_engine::Decision;
use cobaltcore_ha_people::{Desk, Refused, Service, Width, bulk, detail, explained, pauses, table};
use cobaltcore_ha_wire::Problem;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

const TOKEN: &str = "let-me-in";

#[derive(Default)]
struct Far {
    incidents: Mutex<Vec<Value>>,
    refuse: Mutex<Option<(u16, String)>>,
    seen: Mutex<Vec<String>>,
}

fn incident(id: &str, host: &str, state: &str, open: bool) -> Value {
    json!({
        "id": id, "host": host, "type": "host-down", "state": state, "held": null,
        "guests": {"total": 2, "recovered": 1, "failed": 0, "skipped": 0, "blocked": 1},
        "opened_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:01:00Z", "open": open,
    })
}

/// Everything about it, made from what the engine itself writes.
fn full(summary: &Value) -> Value {
    let id = json!({"epoch": 1, "n": 1, "host": summary["host"]});
    let record = |seq: u64, at: &str, mut entry: Value| {
        for (key, value) in [
            ("version", json!(1)),
            ("seq", json!(seq)),
            ("epoch", json!(1)),
            ("at", json!(at)),
        ] {
            entry[key] = value;
        }
        entry["incident"] = id.clone();
        entry
    };
    let group = json!({"verdict": "Unknown", "ageMs": null, "untrusted": false});
    let sample = serde_json::to_value(sample_evidence()).unwrap_or(group);
    let mut all = summary.clone();
    let more = json!({
        "opened_by": "monitor/host-down", "evidence": sample, "next": "The host is held until somebody signs.",
        "signals": [{"group": "A", "verdict": serde_json::to_value(cobaltcore_ha_engine::Verdict::Dead).unwrap(), "age_ms": 17_000, "untrusted": false, "says": "no heartbeat"}],
        "actions": ["ack-fenced", "abort"], "previous_maintenance": "auto",
        "vms": [], "journal": [
            record(1, "2026-01-01T00:00:00Z", json!({"entry": "claim-intended", "previous": "auto"})),
            record(2, "2026-01-01T00:00:05Z", json!({"entry": "fence-intended", "level": 0})),
            record(3, "2026-01-01T00:00:09Z", json!({"entry": "fence-lost"})),
            record(4, "2026-01-01T00:02:00Z", json!({"entry": "decided", "decision": "ack-fenced", "actor": "ada", "reason": "pulled the plug"})),
        ],
    });
    for (key, value) in more.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn sample_evidence() -> cobaltcore_ha_engine::Evidence {
    cobaltcore_ha_engine::Evidence::default()
}

async fn far_side(far: Arc<Far>) -> String {
    async fn listed(State(far): State<Arc<Far>>, request: Request) -> Response {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let all = far.incidents.lock().clone();
        // Two pages, so that whoever stops at the first is found out.
        let half = all.len() / 2;
        let (items, cursor) = if query.contains("cursor=") {
            (all[half..].to_vec(), None)
        } else {
            (all[..half].to_vec(), Some("second"))
        };
        axum::Json(json!({"items": items, "cursor": cursor})).into_response()
    }
    async fn one(State(far): State<Arc<Far>>, Path(id): Path<String>) -> Response {
        match far.incidents.lock().iter().find(|incident| incident["id"] == id) {
            Some(found) => axum::Json(full(found)).into_response(),
            None => problem(404, "there is no such incident"),
        }
    }
    async fn decided(
        State(far): State<Arc<Far>>,
        Path((id, word)): Path<(String, String)>,
        body: String,
    ) -> Response {
        far.seen.lock().push(format!("{id} {word} {body}"));
        match far.refuse.lock().clone() {
            Some((status, text)) => problem(status, &text),
            None => axum::Json(json!({})).into_response(),
        }
    }
    async fn paused(State(far): State<Arc<Far>>, Path(scope): Path<String>, request: Request) -> Response {
        let method = request.method().clone();
        far.seen.lock().push(format!("{method} {}", request.uri().path()));
        let refuse = far.refuse.lock().clone();
        match refuse {
            Some((status, text)) => problem(status, &text),
            None if method == "PUT" => {
                let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
                let mut kept: Value = serde_json::from_slice(&body).unwrap();
                (kept["scope"], kept["actor"]) = (json!(scope), json!("operator/ada"));
                axum::Json(kept).into_response()
            }
            None => axum::Json(json!({})).into_response(),
        }
    }
    fn problem(status: u16, text: &str) -> Response {
        let body = Problem::new(status, "No", text);
        (
            axum::http::StatusCode::from_u16(status).unwrap(),
            axum::Json(body),
        )
            .into_response()
    }
    async fn who(request: Request, next: axum::middleware::Next) -> Response {
        let right = format!("Bearer {TOKEN}");
        match request.headers().get("authorization") {
            Some(given) if *given == *right => next.run(request).await,
            _ => problem(401, "who are you?"),
        }
    }
    let router = Router::new()
        .route("/api/v1/incidents", get(listed))
        .route("/api/v1/incidents/{id}", get(one))
        .route("/api/v1/incidents/{id}/actions/{word}", post(decided))
        .route(
            "/api/v1/pauses",
            get(|| async {
                axum::Json(json!({"items": [{"scope": "bb/bb1", "reason": "rack work", "actor": "ada", "until": "2026-01-01T02:00:00Z"}]}))
            }),
        )
        .route("/api/v1/pauses/{*scope}", put(paused).delete(paused))
        .layer(axum::middleware::from_fn(who))
        .with_state(far);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn desk(far: &Arc<Far>) -> (Desk, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let desk = Desk::new(Service {
        url: far_side(Arc::clone(far)).await,
        token_file: Some(token),
        ca_file: None,
    })
    .unwrap();
    (desk, folder)
}

fn far(incidents: Vec<Value>) -> Arc<Far> {
    Arc::new(Far {
        incidents: Mutex::new(incidents),
        ..Far::default()
    })
}

fn now() -> Timestamp {
    "2026-01-01T00:03:00Z".parse().unwrap()
}

#[tokio::test]
async fn open_incidents_of_all_pages_are_listed() {
    let far = far(vec![
        incident("n1-1-1", "n1", "Fencing", true),
        incident("n2-1-2", "n2", "Released", false),
        incident("n3-1-3", "n3", "Evacuating", true),
    ]);
    let (desk, _folder) = desk(&far).await;
    let open = desk.incidents(false).await.unwrap();
    let lines = table(&open, Width::Usual, now());
    assert_eq!(
        lines.lines().collect::<Vec<_>>(),
        [
            "INCIDENT   HOST   TYPE        STATE        HELD   DONE   AGE",
            "n1-1-1     n1     host-down   Fencing      -      1/2    3m",
            "n3-1-3     n3     host-down   Evacuating   -      1/2    3m",
        ]
    );
    assert_eq!(desk.incidents(true).await.unwrap().len(), 3);
    assert!(table(&[], Width::Usual, now()).contains("No open incident"));
}

#[tokio::test]
async fn an_incident_is_found_by_its_host_and_tells_its_story() {
    let far = far(vec![
        incident("n1-1-1", "n1", "Fencing", true),
        incident("n1-1-0", "n1", "Released", false),
    ]);
    let (desk, _folder) = desk(&far).await;
    let found = desk.incident("n1").await.unwrap();
    assert_eq!(found.summary.id, "n1-1-1", "the open one is meant");
    let text = detail(&found, Width::Wide, now());
    for part in [
        "Incident n1-1-1: host-down of n1",
        "Next     The host is held until somebody signs.",
        "cobaltcore incidents ack-fenced n1-1-1 --confirm n1 --reason",
        "no heartbeat",
        "maintenance auto",
        "+5s    switching it off, level 0",
        "THE FENCE IS LOST",
        "+2m    ada decided ack-fenced: pulled the plug",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let error = desk.incident("n9").await.unwrap_err().to_string();
    assert!(error.contains("list --all"), "{error}");
    let error = desk.incident("../config").await.unwrap_err().to_string();
    assert!(error.contains("neither an incident nor a host"), "{error}");
}

#[tokio::test]
async fn two_open_incidents_of_a_host_are_not_mixed_up() {
    let far = far(vec![
        incident("n1-1-1", "n1", "Fencing", true),
        incident("n1-2-1", "n1", "Fencing", true),
    ]);
    let (desk, _folder) = desk(&far).await;
    let error = desk.incident("n1").await.unwrap_err().to_string();
    assert!(error.contains("n1-1-1") && error.contains("n1-2-1"), "{error}");
}

#[tokio::test]
async fn a_decision_carries_its_reason_and_the_name_of_the_host() {
    let far = far(vec![
        incident("n1-1-1", "n1", "Fencing", true),
        incident("x-1-1", "x", "Closed", false),
    ]);
    let (desk, _folder) = desk(&far).await;
    let error = desk
        .decide("n1", Decision::AckFenced, " ", "n1")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("--reason"), "{error}");
    let error = desk
        .decide("n1", Decision::AckFenced, "off", "n2")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("--confirm must be the host's name, n1"), "{error}");
    assert!(far.seen.lock().is_empty(), "nothing was sent");
    desk.decide("n1", Decision::AckFenced, "pulled the plug", "n1")
        .await
        .unwrap();
    assert_eq!(
        far.seen.lock().as_slice(),
        [r#"n1-1-1 ack-fenced {"reason":"pulled the plug","confirm":"n1"}"#]
    );
}

#[tokio::test]
async fn a_refusal_says_what_is_possible_instead() {
    let far = far(vec![
        incident("n1-1-1", "n1", "Fencing", true),
        incident("x-1-1", "x", "Closed", false),
    ]);
    let (desk, _folder) = desk(&far).await;
    *far.refuse.lock() = Some((409, "its guests are not settled".into()));
    let error = desk
        .decide("n1", Decision::Release, "done", "n1")
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "release was refused: its guests are not settled (it is Fencing). Possible now: ack-fenced, abort; `cobaltcore incidents show n1-1-1` tells more"
    );
}

#[tokio::test]
async fn pauses_are_made_listed_and_ended() {
    let far = far(Vec::new());
    let (desk, _folder) = desk(&far).await;
    let until: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
    let kept = desk.pause("bb/bb1", "rack work", until).await.unwrap();
    assert_eq!(
        (kept.scope.as_str(), kept.actor.as_str(), kept.until),
        ("bb/bb1", "operator/ada", until)
    );
    desk.unpause("global").await.unwrap();
    assert_eq!(
        far.seen.lock().as_slice(),
        ["PUT /api/v1/pauses/bb/bb1", "DELETE /api/v1/pauses/global"]
    );
    let text = pauses(&desk.pauses().await.unwrap(), now());
    assert!(
        text.contains("bb/bb1") && text.contains("rack work") && text.contains("117m"),
        "{text}"
    );
    for wrong in ["everything", "host/", "host/../x", "rack/7"] {
        let error = desk.pause(wrong, "x", until).await.unwrap_err().to_string();
        assert!(error.contains("`zone/NAME`"), "{error}");
    }
    *far.refuse.lock() = Some((404, "no".into()));
    let error = desk.unpause("host/n1").await.unwrap_err().to_string();
    assert!(error.contains("is not paused"), "{error}");
    for error in [
        desk.evidence("n1").await.unwrap_err().to_string(),
        desk.recover("n1", "it hangs", "n1")
            .await
            .unwrap_err()
            .to_string(),
        desk.pause("host/n1", "x", until).await.unwrap_err().to_string(),
    ] {
        assert!(error.contains("knows no host n1"), "{error}");
    }
}

#[tokio::test]
async fn whoever_is_not_known_or_not_there_is_told_what_to_do() {
    let far = far(Vec::new());
    let url = far_side(Arc::clone(&far)).await;
    let plain = |url: &str| {
        Desk::new(Service {
            url: url.to_owned(),
            ..Service::default()
        })
    };
    let error = plain(&url)
        .unwrap()
        .incidents(false)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("--token-file"), "{error}");
    let error = plain("http://127.0.0.1:1")
        .unwrap()
        .incidents(false)
        .await
        .unwrap_err();
    assert!(matches!(error, Refused::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("--url"), "{error}");
    let error = plain("somewhere").unwrap_err().to_string();
    assert!(error.contains("KVM_HA_SERVICE_URL"), "{error}");
}

#[test]
fn a_verdict_is_explained_with_the_rule_that_blocks() {
    let host = json!({
        "name": "node001", "at": "2026-01-01T00:00:00Z", "assessment": "alive", "suspect": true,
        "signals": [{"group": "A", "verdict": "dead", "age_ms": 17_000, "untrusted": false, "says": "its agent: no life, 17 s ago"}],
        "rules": [
            {"rule": "enough independent groups", "passed": false, "because": "1 of 2 groups that are needed see no life"},
            {"rule": "no sign of life", "passed": false, "because": "life is seen by N"},
            {"rule": "proof", "passed": true, "because": "its power is off"},
        ],
        "blocked_by": "no sign of life: life is seen by N",
        "summary": "a sign of life stands against any accusation: nothing happens",
    });
    let text = explained(&serde_json::from_value(host).unwrap());
    for wanted in [
        "Host node001: alive, suspected",
        "So      a sign of life stands against any accusation",
        "Because no sign of life: life is seen by N",
        "dead",
        "17 s",
        "not met   enough independent groups   1 of 2 groups",
        "met       proof",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}

#[test]
fn a_decision_about_many_says_what_became_of_each() {
    let answer = |committed: bool| {
        let results = json!([{"incident": "a-1"}, {"incident": "b-1", "refused": "it is not held"}]);
        let answer = json!({"committed": committed, "results": results});
        bulk(&serde_json::from_value(answer).unwrap())
    };
    let dry = answer(false);
    assert!(
        dry.contains("a-1        would be taken") && dry.contains("--commit"),
        "{dry}"
    );
    let done = answer(true);
    assert!(done.contains("b-1        refused: it is not held"), "{done}");
    assert!(!done.contains("--commit"), "{done}");
    let none = bulk(&serde_json::from_value(json!({"committed": true, "results": []})).unwrap());
    assert_eq!(none, "No incident fits.");
}

#[tokio::test]
async fn a_decision_about_many_needs_to_say_which_and_why() {
    let desk = Desk::new(Service {
        url: "http://127.0.0.1:1".into(),
        ..Service::default()
    })
    .unwrap();
    let wish = |filter: Value, reason: &str| {
        let wish = json!({"filter": filter, "action": "ack-fenced", "reason": reason});
        serde_json::from_value(wish).unwrap()
    };
    let nobody = desk
        .bulk(&wish(json!({}), "rack without power"))
        .await
        .unwrap_err();
    assert!(nobody.to_string().contains("--bb"), "{nobody}");
    let mute = desk.bulk(&wish(json!({"bb": "bb1"}), " ")).await.unwrap_err();
    assert!(mute.to_string().contains("--reason"), "{mute}");
}
