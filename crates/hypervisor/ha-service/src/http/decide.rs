// SPDX-License-Identifier: Apache-2.0
//! What people decide: about incidents, pauses and planned work. Every decision has a reason, is
//! written to the audit with its author, and is refused with one sentence that says what to do.

use std::future::{Ready, ready};

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Command, Decision, Request};
use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::{
    BulkAnswer, BulkFilter, BulkRequest, BulkResult, DecisionRequest, HostState, Page, Pause, PauseRequest,
};
use rusqlite::params;
use serde_json::json as object;

use super::call::{Answer, Call, json};
use super::people::{courses, detail, not_found, one, summary_with};
use super::{problem, state_of};
use crate::brain::Refused;
use crate::chronicle::Story;
use crate::directory::{BUILDING_BLOCK, ZONE};
use crate::metrics::OfEnd;

const LONGEST_REASON: usize = 1024;
/// The longest a pause may last; it can be renewed.
const LONGEST_PAUSE_S: i64 = 24 * 3600;

impl Call {
    fn actor(&self) -> String {
        self.caller.name()
    }

    /// Writes what was done to the audit. What cannot be recorded is not done.
    async fn audit(
        &self,
        action: &str,
        target: &str,
        reason: &str,
        before: String,
        after: String,
    ) -> Result<(), Problem> {
        let (at, actor) = (jiff::Timestamp::now().as_millisecond(), self.actor());
        tracing::info!(actor, action, target, reason, before, after, "a person decided");
        let (action, target, reason) = (action.to_owned(), target.to_owned(), reason.to_owned());
        self.app
            .store
            .write(move |transaction| {
                transaction.execute(
                    "insert into audit(at, actor, action, target, reason, before, after) values(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![at, actor, action, target, reason, before, after],
                )?;
                Ok(())
            })
            .await
            .map_err(|error| {
                problem(
                    503,
                    "Not recorded",
                    format!("{error}; decisions of people must be recorded, so nothing was done"),
                )
            })
    }

    fn count(&self, action: &str, result: &str) {
        let label = OfEnd {
            r#type: action.to_owned(),
            result: result.to_owned(),
        };
        self.app.metrics.operator_actions.get_or_create(&label).inc();
    }
}

fn reason_ok(reason: &str) -> Result<(), Problem> {
    if reason.trim().is_empty() || reason.len() > LONGEST_REASON {
        return Err(problem(
            400,
            "Bad request",
            format!("say why, in at most {LONGEST_REASON} bytes"),
        ));
    }
    Ok(())
}

pub(super) async fn decide(call: Call) -> Answer {
    let decision: Decision = serde_json::from_value(call.param("action").into()).map_err(|_| {
        problem(
            404,
            "Not found",
            "one can ack-fenced, approve, abort, retry, release or close",
        )
    })?;
    let DecisionRequest { reason, confirm } = call.read()?;
    reason_ok(&reason)?;
    let id = call.param("id").to_owned();
    let story = call
        .app
        .chronicle
        .story(&id)
        .ok_or_else(|| not_found(format_args!("incident {id}; see /api/v1/incidents")))?;
    take(&call, &story, decision, &reason, &confirm).await?;
    json(&detail(&call.app, &id).await?)
}

async fn take(
    call: &Call,
    story: &Story,
    decision: Decision,
    reason: &str,
    confirm: &str,
) -> Result<(), Problem> {
    let id = story.incident.id.to_string();
    let before = format!("{:?}", story.incident.state);
    let taken = call
        .app
        .brain
        .decide(Command {
            incident: story.incident.id.clone(),
            actor: call.actor(),
            reason: reason.to_owned(),
            confirm: confirm.to_owned(),
            decision,
        })
        .await;
    let after = || {
        let story = call.app.chronicle.story(&id);
        story.map_or_else(
            || "taken".to_owned(),
            |story| format!("{:?}", story.incident.state),
        )
    };
    settle(
        call,
        decision.as_str(),
        &id,
        reason,
        before,
        (taken, after),
        || format!("see what is allowed and what happens next at /api/v1/incidents/{id}"),
    )
    .await
}

/// Counts and audits a decision, and says what became of it.
async fn settle(
    call: &Call,
    action: &str,
    target: &str,
    reason: &str,
    before: String,
    (taken, after): (Result<(), Refused>, impl FnOnce() -> String),
    hint: impl FnOnce() -> String,
) -> Result<(), Problem> {
    let (result, after) = match &taken {
        Ok(()) => ("taken", after()),
        Err(refused) => ("refused", format!("refused: {refused}")),
    };
    call.count(action, result);
    // The journal has the decision already; the audit also has the refusals.
    let audited = call.audit(action, target, reason, before, after).await;
    match taken {
        Ok(()) => {
            if let Err(problem) = audited {
                tracing::error!(
                    detail = problem.detail,
                    "a decision is in the journal but not in the audit"
                );
            }
            Ok(())
        }
        Err(refused @ Refused::NotAllowed(_)) => {
            Err(problem(409, "Not allowed now", format!("{refused}; {}", hint())))
        }
        Err(refused @ (Refused::NotLeading | Refused::NotWritten)) => Err(problem(
            503,
            "Not taken",
            format!("{refused}; try again in a few seconds"),
        )),
    }
}

/// Has a host recovered because a person wants it.
pub(super) async fn recover(call: Call) -> Answer {
    let DecisionRequest { reason, confirm } = call.read()?;
    reason_ok(&reason)?;
    let (host, entry, status) = one(&call).await?;
    let before = state_of(&entry, status.as_ref()).as_str().to_owned();
    let taken = call
        .app
        .brain
        .request(Request {
            host: host.clone(),
            actor: call.actor(),
            reason: reason.clone(),
            confirm,
        })
        .await;
    settle(
        &call,
        "recover",
        host.as_str(),
        &reason,
        before,
        (taken, || HostState::Incident.as_str().to_owned()),
        || format!("see what is known of it at /api/v1/hosts/{host}/evidence"),
    )
    .await?;
    let opened = call
        .app
        .chronicle
        .stories()
        .into_iter()
        .find(|story| story.incident.id.host == host && story.incident.state.open())
        .ok_or_else(|| {
            problem(
                503,
                "Not shown yet",
                "the incident is open; look again in a moment",
            )
        })?;
    json(&detail(&call.app, &opened.incident.id.to_string()).await?)
}

fn fits(
    call: &Call,
    filter: &BulkFilter,
    story: &Story,
    held: Option<cobaltcore_ha_engine::HeldReason>,
) -> bool {
    let entry = call.app.directory.get(&story.incident.id.host);
    let label = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    label(&filter.zone, entry.as_deref().and_then(|entry| entry.zone()))
        && label(
            &filter.bb,
            entry.as_deref().and_then(|entry| entry.building_block()),
        )
        && filter.hold.is_none_or(|wanted| held == Some(wanted))
        && filter.state.is_none_or(|wanted| story.incident.state == wanted)
}

pub(super) async fn bulk(call: Call) -> Answer {
    let BulkRequest {
        filter,
        action,
        reason,
        commit,
    } = call.read()?;
    reason_ok(&reason)?;
    if filter == BulkFilter::default() {
        return Err(problem(
            400,
            "Bad request",
            "the filter must say which incidents: zone, bb, hold or state",
        ));
    }
    let courses = courses(&call.app).await;
    let course = |story: &Story| {
        let id = story.incident.id.to_string();
        courses.get(&id).copied().unwrap_or_default()
    };
    let chosen: Vec<Story> = call
        .app
        .chronicle
        .stories()
        .into_iter()
        .filter(|story| story.incident.state.open())
        .filter(|story| fits(&call, &filter, story, course(story).held))
        .collect();
    let mut results = Vec::new();
    for story in chosen {
        let id = story.incident.id.to_string();
        let refused = if commit {
            let confirm = story.incident.id.host.to_string();
            take(&call, &story, action, &reason, &confirm)
                .await
                .err()
                .map(|problem| problem.detail)
        } else {
            let course = course(&story);
            let may = super::words::allowed(&story.incident, course).contains(&action);
            (!may).then(|| {
                let summary = summary_with(&story, course);
                format!("not allowed in state {:?}", summary.state)
            })
        };
        results.push(BulkResult {
            incident: id,
            refused,
        });
    }
    json(&BulkAnswer {
        committed: commit,
        results,
    })
}

// --- pauses

pub(super) fn pauses(call: Call) -> Ready<Answer> {
    ready(json(&Page {
        items: call.app.pauses.all(),
        cursor: None,
    }))
}

fn scope(call: &Call) -> Result<String, Problem> {
    let text = match call.params.get("kind") {
        None => "global".to_owned(),
        Some(kind) => format!("{kind}/{}", call.param("name")),
    };
    if crate::pauses::scope(&text).is_none() {
        return Err(problem(
            404,
            "Not found",
            format!("{text} is no scope; there are global, zone/…, bb/…, host/… and vm/…"),
        ));
    }
    Ok(text)
}

fn until_ok(until: jiff::Timestamp) -> Result<(), Problem> {
    let ahead = until.as_second() - jiff::Timestamp::now().as_second();
    if !(1..=LONGEST_PAUSE_S).contains(&ahead) {
        return Err(problem(
            400,
            "Bad request",
            "until must lie ahead, at most 24 hours; it can be renewed",
        ));
    }
    Ok(())
}

/// A pause of a host that is called differently would protect nobody, nor would one of a zone or rack where labels of
/// another kind name them. Zones and racks may be waiting for their first host, and before any host is known a person in
/// a hurry is believed.
fn known(call: &Call) -> Result<(), Problem> {
    let label = match call.params.get("kind").map(String::as_str) {
        Some("zone") => Some(ZONE),
        Some("bb") => Some(BUILDING_BLOCK),
        _ => None,
    };
    let config = call.app.config();
    let domains = &config.kubernetes.failure_domains;
    // Whoever names racks alone has the zone around them.
    let told = |label: &str| domains.iter().any(|key| key == label) || label == ZONE && domains.len() == 1;
    if let Some(label) = label.filter(|label| !told(label)) {
        return Err(problem(
            409,
            "Nothing would be paused",
            format!(
                "kubernetes.failure_domains does not name {label}, so no host is known by it; pause its hosts, or global"
            ),
        ));
    }
    if call.params.get("kind").map(String::as_str) != Some("host") || call.app.directory.all().is_empty() {
        return Ok(());
    }
    let name = call.param("name").to_ascii_lowercase();
    let host = HostName::new(name.as_str()).ok();
    match host.and_then(|host| call.app.directory.get(&host)) {
        Some(_) => Ok(()),
        None => Err(not_found(format_args!(
            "host {name}, so nothing would be paused; /api/v1/hosts has the names"
        ))),
    }
}

/// Until when a scope is paused, for the audit.
async fn paused_until(call: &Call, scope: &str, failed: &str) -> Result<Option<String>, Problem> {
    let found = call.app.pauses.of(scope).await;
    let found = found.map_err(|why| problem(503, failed, why))?;
    Ok(found.map(|pause| pause.until.to_string()))
}

pub(super) async fn pause(call: Call) -> Answer {
    let scope = scope(&call)?;
    let PauseRequest { reason, until } = call.read()?;
    reason_ok(&reason)?;
    until_ok(until)?;
    known(&call)?;
    let pause = Pause {
        scope: scope.clone(),
        reason: reason.clone(),
        actor: call.actor(),
        until,
    };
    let before = paused_until(&call, &scope, "Not paused").await?;
    call.audit(
        "pause",
        &scope,
        &reason,
        before.unwrap_or_default(),
        until.to_string(),
    )
    .await?;
    call.app
        .pauses
        .put(pause.clone())
        .await
        .map_err(|why| problem(503, "Not paused", why))?;
    json(&pause)
}

pub(super) async fn resume(call: Call) -> Answer {
    let scope = scope(&call)?;
    let before = paused_until(&call, &scope, "Still paused").await?;
    let before = before.ok_or_else(|| not_found(format_args!("pause of {scope}")))?;
    call.audit("resume", &scope, "", before, String::new()).await?;
    let there = call
        .app
        .pauses
        .end(&scope)
        .await
        .map_err(|why| problem(503, "Still paused", why))?;
    if there {
        json(&object!({}))
    } else {
        Err(not_found(format_args!("pause of {scope}")))
    }
}

// --- planned work on hosts without a Hypervisor object

fn without_object(call: &Call) -> Result<cobaltcore_api::names::HostName, Problem> {
    let host = call.host()?;
    let entry = call
        .app
        .directory
        .get(&host)
        .ok_or_else(|| not_found(format_args!("host {host}")))?;
    if entry.in_kubernetes {
        return Err(problem(
            409,
            "Kept elsewhere",
            format!(
                "{host} has a Hypervisor object: set its spec.maintenance (cobaltcore maintenance start {host})"
            ),
        ));
    }
    Ok(host)
}

async fn change(
    call: &Call,
    from: &Maintenance,
    to: &Maintenance,
    until: Option<i64>,
    reason: &str,
) -> Answer {
    let host = without_object(call)?;
    let now = call.app.local_maintenance.get(&host);
    if now != *from && now != *to {
        return Err(problem(
            409,
            "Not allowed now",
            format!("{host} is in maintenance {now:?}, which an incident took; settle the incident first"),
        ));
    }
    call.audit(
        "maintenance",
        host.as_str(),
        reason,
        now.to_string(),
        to.to_string(),
    )
    .await?;
    let (name, actor, text) = (host.to_string(), call.actor(), reason.to_owned());
    call.app
        .store
        .write(move |transaction| {
            match until {
                Some(until) => transaction.execute(
                    "insert or replace into planned values(?1, ?2, ?3, ?4)",
                    params![name, text, actor, until],
                )?,
                None => transaction.execute("delete from planned where host = ?1", params![name])?,
            };
            Ok(())
        })
        .await
        .map_err(|error| problem(503, "Not recorded", error.to_string()))?;
    if now == *from {
        call.app
            .local_maintenance
            .set(&host, from, to)
            .map_err(|error| problem(503, "Not recorded", error.to_string()))?;
    }
    call.app
        .directory
        .change_known(&host, |entry| entry.maintenance = to.clone());
    json(&object!({}))
}

pub(super) async fn announce(call: Call) -> Answer {
    let PauseRequest { reason, until } = call.read()?;
    reason_ok(&reason)?;
    until_ok(until)?;
    let until = Some(until.as_millisecond());
    change(&call, &Maintenance::Off, &Maintenance::Manual, until, &reason).await
}

pub(super) async fn finish(call: Call) -> Answer {
    change(&call, &Maintenance::Manual, &Maintenance::Off, None, "finished").await
}
