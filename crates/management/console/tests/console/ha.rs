// SPDX-License-Identifier: Apache-2.0
//! The far side of incidents: a small HTTP service that speaks the HA service's own words, with its rules about tokens,
//! confirmation and states, and a story that a test can move on.

// Refusals are whole answers here, and nobody counts their bytes.
#![allow(clippy::result_large_err)]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::{DecisionRequest, IncidentDetail, IncidentSummary, Page, Pause, PauseRequest};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "the-consoles-token";
pub(crate) const HOST: &str = "node001";
pub(crate) const ID: &str = "node001-3-1";

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) incidents: Vec<IncidentDetail>,
    pub(crate) pauses: Vec<Pause>,
    /// Decisions that were taken: incident, word, reason.
    pub(crate) decisions: Vec<(String, String, String)>,
}

/// A service that listens; it ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct HaService {
    pub(crate) address: SocketAddr,
    pub(crate) told: Arc<Mutex<Told>>,
}

impl HaService {
    pub(crate) async fn start() -> Self {
        let told: Arc<Mutex<Told>> = Arc::default();
        let router = Router::new()
            .route("/api/v1/incidents", get(list))
            .route("/api/v1/incidents/{id}", get(detail))
            .route("/api/v1/incidents/{id}/actions/{word}", post(decide))
            .route("/api/v1/pauses", get(pauses))
            .route("/api/v1/pauses/{*scope}", put(pause).delete(resume))
            .with_state(told.clone());
        let socket = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { address, told }
    }

    pub(crate) fn service(&self) -> cobaltcore_console::ha::Service {
        cobaltcore_console::ha::Service {
            url: format!("http://{}", self.address),
            token: TOKEN.into(),
            authorities: Vec::new(),
        }
    }

    pub(crate) fn put(&self, incident: IncidentDetail) {
        let mut told = self.told.lock();
        told.incidents
            .retain(|known| known.summary.id != incident.summary.id);
        told.incidents.push(incident);
    }
}

fn problem(status: StatusCode, detail: &str) -> Response {
    (status, Json(Problem::new(status.as_u16(), "Refused", detail))).into_response()
}

type Shared = State<Arc<Mutex<Told>>>;

fn let_in(headers: &HeaderMap) -> Result<(), Response> {
    let wanted = format!("Bearer {TOKEN}");
    if headers
        .get("authorization")
        .is_some_and(|value| value == wanted.as_str())
    {
        Ok(())
    } else {
        Err(problem(StatusCode::UNAUTHORIZED, "no such token"))
    }
}

async fn list(State(told): Shared, headers: HeaderMap) -> Result<Json<Page<IncidentSummary>>, Response> {
    let_in(&headers)?;
    let items = told
        .lock()
        .incidents
        .iter()
        .map(|one| one.summary.clone())
        .collect();
    Ok(Json(Page { items, cursor: None }))
}

async fn detail(
    State(told): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<IncidentDetail>, Response> {
    let_in(&headers)?;
    let found = told
        .lock()
        .incidents
        .iter()
        .find(|one| one.summary.id == id)
        .cloned();
    found
        .map(Json)
        .ok_or_else(|| problem(StatusCode::NOT_FOUND, "there is no such incident"))
}

async fn decide(
    State(told): Shared,
    headers: HeaderMap,
    Path((id, word)): Path<(String, String)>,
    Json(request): Json<DecisionRequest>,
) -> Result<Json<Value>, Response> {
    let_in(&headers)?;
    let mut told = told.lock();
    let found = told.incidents.iter().find(|one| one.summary.id == id);
    let allowed = found.is_some_and(|one| {
        let offered = one
            .actions
            .iter()
            .any(|action| serde_json::to_value(action).is_ok_and(|known| known == json!(word)));
        offered && one.summary.host.as_str() == request.confirm
    });
    if !allowed {
        return Err(problem(StatusCode::CONFLICT, "its guests are not settled"));
    }
    told.decisions.push((id, word, request.reason));
    Ok(Json(json!({})))
}

async fn pauses(State(told): Shared, headers: HeaderMap) -> Result<Json<Page<Pause>>, Response> {
    let_in(&headers)?;
    let items = told.lock().pauses.clone();
    Ok(Json(Page { items, cursor: None }))
}

async fn pause(
    State(told): Shared,
    headers: HeaderMap,
    Path(scope): Path<String>,
    Json(request): Json<PauseRequest>,
) -> Result<Json<Value>, Response> {
    let_in(&headers)?;
    told.lock().pauses.push(Pause {
        scope,
        reason: request.reason,
        actor: "console".into(),
        until: request.until,
    });
    Ok(Json(json!({})))
}

async fn resume(
    State(told): Shared,
    headers: HeaderMap,
    Path(scope): Path<String>,
) -> Result<StatusCode, Response> {
    let_in(&headers)?;
    told.lock().pauses.retain(|pause| pause.scope != scope);
    Ok(StatusCode::NO_CONTENT)
}

/// An incident whose guests are on their way; `recovered` of three are there.
pub(crate) fn incident(state: &str, recovered: usize, actions: &[&str]) -> IncidentDetail {
    let id = json!({"epoch": 3, "n": 1, "host": HOST});
    let server = |n: usize| format!("00000000-0000-4000-8000-00000000000{n}");
    let progress = |n: usize| {
        if n < recovered {
            json!({"state": "recovered", "destination": "node002"})
        } else {
            json!({"state": "in-flight", "migration": n})
        }
    };
    let vms: Vec<Value> = (0..3)
        .map(|n| {
            json!({"server": server(n), "name": format!("web-{n}"), "priority": 500, "group": "", "antiAffinity": null,
                "memoryMib": 4096, "original": "active", "wanted": "running", "progress": progress(n), "attempt": 1, "known": []})
        })
        .collect();
    let unknown = json!({"verdict": "unknown", "age_ms": null, "untrusted": false});
    let dead = json!({"verdict": "dead", "age_ms": 21_000, "untrusted": false});
    let groups = json!([
        dead, dead, unknown, dead, unknown, unknown, unknown, unknown, unknown
    ]);
    let evidence = json!({"groups": groups, "blind": false, "proof_contradicted": false});
    let record = |seq: u64, entry: Value| {
        let mut record =
            json!({"version": 1, "seq": seq, "epoch": 3, "at": format!("2026-01-02T00:00:{:02}Z", seq * 2)});
        record
            .as_object_mut()
            .unwrap()
            .extend(entry.as_object().unwrap().clone());
        record
    };
    let journal = json!([
        record(
            1,
            json!({"entry": "opened", "incident": id, "kind": "host-down", "by": "host monitor", "boot": null, "evidence": evidence})
        ),
        record(2, json!({"entry": "fence-intended", "incident": id, "level": 0})),
        record(
            3,
            json!({"entry": "fenced", "incident": id, "level": 0, "grade": "power"})
        ),
        record(4, json!({"entry": "planned", "incident": id, "vms": vms})),
        record(
            5,
            json!({"entry": "evacuate-intended", "incident": id, "server": server(0), "attempt": 1, "known": []})
        ),
    ]);
    serde_json::from_value(json!({
        "id": ID, "host": HOST, "type": "host-down", "state": state,
        "guests": {"total": 3, "recovered": recovered, "failed": 0, "skipped": 0, "blocked": 0},
        "opened_at": "2026-01-02T00:00:02Z", "updated_at": format!("2026-01-02T00:01:0{recovered}Z"), "open": true,
        "opened_by": "host monitor", "evidence": evidence,
        "signals": [
            {"group": "A", "verdict": "dead", "age_ms": 21_000, "says": "no heartbeat"},
            {"group": "P", "verdict": "dead", "age_ms": 20_000, "says": "does not answer"},
            {"group": "K", "verdict": "unknown", "says": "lease not expired"},
        ],
        "next": "The remaining guests are asked for as soon as Nova has room.",
        "actions": actions, "vms": vms, "journal": journal,
    }))
    .unwrap()
}
