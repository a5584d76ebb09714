// SPDX-License-Identifier: Apache-2.0
//! What people look at: hosts and why they are judged as they are, incidents and what happens next,
//! guests, events, the configuration. Looking changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Ready, ready};
use std::sync::Arc;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    HeldReason, HostStatus, IncidentId, IncidentKind, IncidentState, IncidentStatus, VmProgress,
};
use cobaltcore_ha_wire::Problem;
use cobaltcore_ha_wire::rest::{
    GuestSummary, Host, HostEvidence, HostState, IncidentDetail, IncidentSummary, Page,
};
use serde_json::json as object;

use super::call::{Answer, Call, cursor_of, json};
use super::words::{allowed, assessment_in_words, blocked_by, next, rules_of};
use super::{App, problem, signals_of};
use crate::chronicle::Story;
use crate::directory::HostEntry;
use crate::store::{EventFilter, StoreError, VmFilter};
use crate::tasks::past;

pub(super) fn not_found(what: impl std::fmt::Display) -> Problem {
    problem(404, "Not found", format!("there is no {what}"))
}

fn broken(error: StoreError) -> Problem {
    problem(503, "Not readable", error.to_string())
}

pub(crate) fn state_of(entry: &HostEntry, status: Option<&HostStatus>) -> HostState {
    match status {
        _ if entry.ambiguous => HostState::Unmanaged,
        Some(status) if status.incident.is_some() => HostState::Incident,
        _ if !entry.ha_enabled => HostState::Disabled,
        // One that a person took over is dead as far as anybody knows.
        Some(status) if status.suspect || status.left => HostState::Suspect,
        Some(status) if !status.degraded.is_empty() => HostState::Degraded,
        _ => HostState::Healthy,
    }
}

fn host_of(app: &App, name: &HostName, entry: &HostEntry, status: Option<&HostStatus>) -> Host {
    Host {
        name: name.clone(),
        nova_host: entry.nova_host.clone(),
        state: state_of(entry, status),
        ha_enabled: entry.ha_enabled,
        ha_reason: entry.ha_reason.clone(),
        maintenance: entry.maintenance.to_string(),
        zone: entry.zone().map(str::to_owned),
        bb: entry.building_block().map(str::to_owned),
        assessment: status.map_or(cobaltcore_ha_engine::Assessment::Unclear, |status| {
            status.assessment
        }),
        degraded: status.map(|status| status.degraded.clone()).unwrap_or_default(),
        signals: status
            .map(|status| signals_of(&status.evidence))
            .unwrap_or_default(),
        incident: status.and_then(|status| status.incident.as_ref().map(ToString::to_string)),
        last_seen: app.heard.last(name),
        instances: entry.instances,
    }
}

/// Every host with how it is judged.
pub(super) async fn judged(
    app: &App,
) -> Result<Vec<(HostName, Arc<HostEntry>, Option<HostStatus>)>, Problem> {
    let entries = app.directory.all();
    let names: Vec<HostName> = entries.iter().map(|(name, _)| name.clone()).collect();
    let statuses = app
        .brain
        .ask(move |engine, now| {
            names
                .iter()
                .map(|name| engine.host_status(name, now))
                .collect::<Vec<_>>()
        })
        .await
        .ok_or_else(|| problem(503, "Busy", "this replica is ending"))?;
    Ok(entries
        .into_iter()
        .zip(statuses)
        .map(|((name, entry), status)| (name, entry, status))
        .collect())
}

pub(super) async fn hosts(call: Call) -> Answer {
    let app = &call.app;
    let state: Option<HostState> = call.asked_as("state")?;
    let (zone, bb) = (call.asked("zone"), call.asked("bb"));
    let found: Vec<Host> = judged(app)
        .await?
        .iter()
        .map(|(name, entry, status)| host_of(app, name, entry, status.as_ref()))
        .filter(|host| state.is_none_or(|state| host.state == state))
        .filter(|host| zone.is_none_or(|zone| host.zone.as_deref() == Some(zone)))
        .filter(|host| bb.is_none_or(|bb| host.bb.as_deref() == Some(bb)))
        .collect();
    call.page(found, |host| host.name.to_string())
}

pub(super) async fn one(call: &Call) -> Result<(HostName, Arc<HostEntry>, Option<HostStatus>), Problem> {
    let name = call.host()?;
    let entry = call
        .app
        .directory
        .get(&name)
        .ok_or_else(|| not_found(format_args!("host {name}; hosts come from Nova and Kubernetes")))?;
    let asked = name.clone();
    let status = call
        .app
        .brain
        .ask(move |engine, now| engine.host_status(&asked, now))
        .await
        .ok_or_else(|| problem(503, "Busy", "this replica is ending"))?;
    Ok((name, entry, status))
}

pub(super) async fn host(call: Call) -> Answer {
    let (name, entry, status) = one(&call).await?;
    json(&host_of(&call.app, &name, &entry, status.as_ref()))
}

pub(super) async fn evidence(call: Call) -> Answer {
    let (name, _, status) = one(&call).await?;
    let status = status.ok_or_else(|| not_found(format_args!("evidence about {name} yet")))?;
    let mut summary = assessment_in_words(status.assessment).to_owned();
    if status.blind {
        summary.push_str("; its agent is gone while it lived, so one group more is needed");
    }
    if status.left {
        summary.push_str("; a person ended its incident, so nothing is done before its agent is heard again");
    }
    let rules = rules_of(&status.evidence, &call.app.config().evidence);
    json(&HostEvidence {
        name,
        at: jiff::Timestamp::now(),
        assessment: status.assessment,
        suspect: status.suspect,
        signals: signals_of(&status.evidence),
        blocked_by: blocked_by(status.assessment, &rules),
        rules,
        summary,
    })
}

fn moment(call: &Call, name: &str) -> Result<Option<i64>, Problem> {
    call.asked(name)
        .map(|text| {
            text.parse::<jiff::Timestamp>()
                .map(jiff::Timestamp::as_millisecond)
                .map_err(|_| {
                    problem(
                        400,
                        "Bad request",
                        format!("{name} must be a moment such as 2026-09-01T10:00:00Z"),
                    )
                })
        })
        .transpose()
}

pub(super) async fn events(call: Call) -> Answer {
    let filter = EventFilter {
        host: call.asked("host").map(str::to_owned),
        domain: call.asked("domain").map(str::to_ascii_lowercase),
        kind: call.asked("kind").map(str::to_owned),
        since_ms: moment(&call, "since")?,
        until_ms: moment(&call, "until")?,
        after: call.cursor()?,
    };
    let (items, more) = call
        .app
        .store
        .events(filter, call.limit()?)
        .await
        .map_err(broken)?;
    json(&Page {
        items,
        cursor: more.map(|place| cursor_of(&place)),
    })
}

fn default_policy(call: &Call) -> &'static str {
    call.app.config().recovery.default_policy.as_str()
}

pub(super) async fn vms(call: Call) -> Answer {
    let filter = VmFilter {
        host: call.asked("host").map(str::to_owned),
        policy: call.asked("policy").map(str::to_owned),
        default_policy: default_policy(&call),
        state: call.asked("state").map(str::to_owned),
        after: call.cursor()?,
    };
    let (items, more) = call.app.store.vms(filter, call.limit()?).await.map_err(broken)?;
    json(&Page {
        items,
        cursor: more.map(|place| cursor_of(&place)),
    })
}

pub(super) async fn vm(call: Call) -> Answer {
    let id =
        ServerId::new(call.param("uuid")).map_err(|error| problem(400, "Bad request", error.to_string()))?;
    let found = call.app.store.vm(&id, default_policy(&call)).await;
    let found = found.map_err(broken)?;
    json(&found.ok_or_else(|| not_found(format_args!("guest {id}")))?)
}

pub(super) fn guests_of(story: &Story) -> GuestSummary {
    let mut sum = GuestSummary::default();
    for vm in story.incident.vms.values() {
        sum.total += 1;
        match vm.progress {
            VmProgress::Recovered { .. } => sum.recovered += 1,
            VmProgress::Failed { .. } => sum.failed += 1,
            VmProgress::Skipped { .. } => sum.skipped += 1,
            VmProgress::Blocked { .. } | VmProgress::Conflict { .. } => sum.blocked += 1,
            _ => {}
        }
    }
    sum
}

/// What only whoever leads knows of an incident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// Why it is held.
    pub(super) held: Option<HeldReason>,
    /// Guests that have been on their way for too long.
    pub(super) stuck: usize,
    /// A person ended the latest incident of its host, and this is it.
    pub(super) left: bool,
}

/// How incidents go on.
pub(super) async fn courses(app: &App) -> BTreeMap<String, Course> {
    let asked = app
        .brain
        .ask(|engine, _| {
            let incidents = engine.incidents();
            let latest: BTreeMap<HostName, IncidentId> = incidents
                .iter()
                .map(|incident| (incident.id.host.clone(), incident.id.clone()))
                .collect();
            let course = |incident: IncidentStatus| {
                let IncidentStatus { id, held, stuck, .. } = incident;
                let left = latest.get(&id.host) == Some(&id) && engine.left_to_people(&id.host);
                (id.to_string(), Course { held, stuck, left })
            };
            incidents.into_iter().map(course).collect()
        })
        .await;
    asked.unwrap_or_default()
}

/// One incident as a list shows it, without what only whoever leads knows of it.
pub(crate) fn summary_of(story: &Story) -> IncidentSummary {
    summary_with(story, Course::default())
}

pub(super) fn summary_with(story: &Story, course: Course) -> IncidentSummary {
    IncidentSummary {
        id: story.incident.id.to_string(),
        host: story.incident.id.host.clone(),
        kind: story.incident.kind,
        state: story.incident.state,
        held: course.held,
        guests: GuestSummary {
            stuck: course.stuck,
            ..guests_of(story)
        },
        opened_at: story.opened_at(),
        updated_at: story.updated_at(),
        open: story.incident.state.open(),
    }
}

pub(super) async fn incidents(call: Call) -> Answer {
    let state: Option<IncidentState> = call.asked_as("state")?;
    let kind: Option<IncidentKind> = call.asked_as("type")?;
    let host = call.asked("host");
    let open = call
        .asked("open")
        .map(|text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(problem(400, "Bad request", "open must be true or false")),
        })
        .transpose()?;
    let courses = courses(&call.app).await;
    let course = |story: &Story| {
        let id = story.incident.id.to_string();
        courses.get(&id).copied().unwrap_or_default()
    };
    let mut all: Vec<IncidentSummary> = call
        .app
        .chronicle
        .stories()
        .iter()
        .map(|story| summary_with(story, course(story)))
        .collect();
    // What has left the journal is told from the database, if that can be read.
    let told: BTreeSet<String> = all.iter().map(|incident| incident.id.clone()).collect();
    let over = past::over(&call.app.store).await.unwrap_or_default();
    all.extend(over.into_iter().filter(|incident| !told.contains(&incident.id)));
    let found: Vec<IncidentSummary> = all
        .into_iter()
        .filter(|incident| state.is_none_or(|state| incident.state == state))
        .filter(|incident| kind.is_none_or(|kind| incident.kind == kind))
        .filter(|incident| host.is_none_or(|host| incident.host.as_str() == host))
        .filter(|incident| open.is_none_or(|open| incident.open == open))
        .collect();
    // The newest first: the key falls with time.
    call.page(found, |incident| {
        (-incident.opened_at.as_microsecond(), incident.id.clone())
    })
}

pub(super) async fn detail(app: &App, id: &str) -> Result<IncidentDetail, Problem> {
    let story = match app.chronicle.story(id) {
        Some(story) => Some(story),
        None => past::story(&app.store, id).await.map_err(broken)?,
    };
    let story = story.ok_or_else(|| not_found(format_args!("incident {id}; see /api/v1/incidents")))?;
    let course = courses(app).await.get(id).copied().unwrap_or_default();
    let summary = summary_with(&story, course);
    let Story { incident, records } = story;
    Ok(IncidentDetail {
        summary,
        opened_by: incident.by.clone(),
        signals: signals_of(&incident.evidence),
        next: next(&incident, course),
        actions: allowed(&incident, course),
        previous_maintenance: incident.previous.as_ref().map(ToString::to_string),
        vms: incident.vms.values().cloned().collect(),
        journal: records,
        evidence: incident.evidence,
    })
}

pub(super) async fn incident(call: Call) -> Answer {
    json(&detail(&call.app, call.param("id")).await?)
}

pub(super) async fn audit(call: Call) -> Answer {
    let limit = call.limit()?;
    let after: Option<i64> = call.cursor()?;
    let rows = call
        .app
        .store
        .read(move |connection| {
            let mut query = connection.prepare_cached(
                "select n, at, actor, action, target, reason, before, after from audit where n < ?1 order by n desc limit ?2",
            )?;
            query
                .query_map(
                    rusqlite::params![after.unwrap_or(i64::MAX), limit as i64],
                    |row| {
                        let at: i64 = row.get(1)?;
                        let entry = object!({
                            "at": jiff::Timestamp::from_millisecond(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
                            "actor": row.get::<_, String>(2)?,
                            "action": row.get::<_, String>(3)?,
                            "target": row.get::<_, String>(4)?,
                            "reason": row.get::<_, String>(5)?,
                            "before": row.get::<_, String>(6)?,
                            "after": row.get::<_, String>(7)?,
                        });
                        Ok((row.get::<_, i64>(0)?, entry))
                    },
                )?
                .collect::<rusqlite::Result<Vec<_>>>()
        })
        .await
        .map_err(broken)?;
    let cursor = if rows.len() == limit {
        rows.last().map(|(n, _)| cursor_of(n))
    } else {
        None
    };
    json(&Page {
        items: rows.into_iter().map(|(_, entry)| entry).collect(),
        cursor,
    })
}

pub(super) fn config(call: Call) -> Ready<Answer> {
    // Nothing secret is in it: hashes hide themselves, the rest are paths.
    ready(json(&object!({ "config": call.app.config().as_ref() })))
}
