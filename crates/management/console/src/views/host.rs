// SPDX-License-Identifier: Apache-2.0
//! One host: facts, conditions with their history, guests, NUMA cells, migrations, and what will
//! happen next and why.

use askama::Template;
use cobaltcore_api::{Cell, Instance, Maintenance};
use cobaltcore_api::{Hypervisor, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::activity::Activity;
use super::evictions::Progress;
use super::incidents::Row;
use super::migrations::Migrations;
use super::{Share, Tone, ago, condition, label, moment, phase, shares, tone};
use crate::faults::Truth;
use crate::fleet::Known;

/// Incidents of the past that are still shown.
const PAST_INCIDENTS: usize = 10;
const RECENT: usize = 20;

/// The page.
#[derive(Debug, Template)]
#[template(path = "host.html")]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: &'static str,
    /// How it is doing.
    pub tone: Tone,
    /// What happens next, and why.
    pub next: String,
    /// Facts, by what they are called.
    pub facts: Vec<(&'static str, String)>,
    /// Processors taken.
    pub cpu: Share,
    /// Memory taken.
    pub memory: Share,
    /// Conditions by type.
    pub conditions: Vec<Shown>,
    /// How conditions changed.
    pub history: Vec<Past>,
    /// Guests by name.
    pub guests: Vec<Instance>,
    /// NUMA cells.
    pub cells: Vec<CellRow>,
    /// Migrations from or to this host.
    pub migrations: Migrations,
    /// The eviction under way, if any.
    pub eviction: Option<Progress>,
    /// What was reported lately.
    pub activity: Activity,
    /// Whether it is in maintenance on request of a person.
    pub in_maintenance: bool,
    /// Whether onboarding may be tried again.
    pub may_onboard: bool,
    /// Its incidents, open ones first.
    pub incidents: Vec<Row>,
    /// How it is in a simulated world, where there is one.
    pub truth: Option<Truth>,
}

/// A condition as shown.
#[derive(Debug)]
pub struct Shown {
    /// Its type.
    pub type_: String,
    /// Its status.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: String,
    /// How it is doing.
    pub tone: Tone,
}

/// A past change of a condition.
#[derive(Debug)]
pub struct Past {
    /// When.
    pub at: String,
    /// What became what and why.
    pub text: String,
}

/// A NUMA cell as shown.
#[derive(Debug)]
pub struct CellRow {
    /// Its number.
    pub id: u64,
    /// Processors taken.
    pub cpu: Share,
    /// Memory taken.
    pub memory: Share,
    /// Memory pages.
    pub pages: String,
}

impl Host {
    /// The page of a host, if it is known.
    pub fn of(known: &Known, name: &str, truth: Option<Truth>, now: Timestamp) -> Option<Self> {
        let host = known.hypervisors.get(name)?;
        let status = host.status.clone().unwrap_or_default();
        let (cpu, memory) = shares(host);
        let mut guests = status.instances;
        guests.sort_by(|a, b| a.name.cmp(&b.name));
        let mut conditions: Vec<Shown> = status
            .conditions
            .iter()
            .map(|condition| shown(condition, now))
            .collect();
        conditions.sort_by(|a, b| {
            (std::cmp::Reverse(a.tone), &a.type_).cmp(&(std::cmp::Reverse(b.tone), &b.type_))
        });
        let history = known.transitions(name).map(|past| Past {
            at: moment(past.at),
            text: format!(
                "{} became {} ({}) {}",
                past.condition, past.status, past.reason, past.message
            )
            .trim_end()
            .to_owned(),
        });
        let eviction = known.evictions.objects().find(|eviction| {
            let state = eviction
                .status
                .as_ref()
                .and_then(|status| status.eviction_state.as_ref());
            eviction.spec.hypervisor == name && state.is_none_or(|state| state.as_str() != "Succeeded")
        });
        Some(Self {
            phase: phase(host),
            tone: tone(host),
            next: next(host),
            facts: facts(host, now),
            cpu,
            memory,
            conditions,
            history: history.collect(),
            guests,
            cells: status.cells.iter().map(cell).collect(),
            migrations: Migrations::of(known, now, |row| row.origin == name || row.destination == name),
            eviction: eviction.map(|eviction| Progress::of(eviction, known, now)),
            activity: Activity::of(known, now, RECENT, |entry| {
                entry.name == name && (entry.kind == "Hypervisor" || entry.kind == "Node")
            }),
            in_maintenance: host.spec.maintenance == Maintenance::Manual,
            may_onboard: phase(host) == "Aborted",
            incidents: known
                .incidents
                .of_host(name)
                .take(PAST_INCIDENTS)
                .map(|incident| Row::of(incident, now))
                .collect(),
            truth,
            name: name.to_owned(),
        })
    }
}

/// Conditions for which `True` is bad news.
const BAD_WHEN_TRUE: [&str; 4] = ["Tainted", "NodePressure", "HaRecovery", "Terminating"];
/// Conditions that only say what is going on.
const NEUTRAL: [&str; 5] = [
    "Onboarding",
    "Evicting",
    "HypervisorDisabled",
    "Offboarded",
    "OperatingSystemUpdate",
];

fn shown(condition: &Condition, now: Timestamp) -> Shown {
    let type_ = condition.type_.as_str();
    let tone = match condition.status.as_str() {
        "True" if BAD_WHEN_TRUE.contains(&type_) => Tone::Warn,
        "True" if NEUTRAL.contains(&type_) => Tone::Busy,
        "True" => Tone::Good,
        "False" if BAD_WHEN_TRUE.contains(&type_) || NEUTRAL.contains(&type_) => Tone::Good,
        "False" => Tone::Warn,
        _ => Tone::Off,
    };
    Shown {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: ago(now, condition.last_transition_time.0),
        tone,
    }
}

fn cell(cell: &Cell) -> CellRow {
    let of = |name| Share::of(name, &cell.allocation, &cell.effective_capacity, &cell.capacity);
    let pages: Vec<String> = cell
        .pages
        .iter()
        .map(|pool| format!("{} free of {} × {}", pool.free, pool.total, pool.size))
        .collect();
    CellRow {
        id: cell.cell_id,
        cpu: of("cpu"),
        memory: of("memory"),
        pages: pages.join(", "),
    }
}

fn facts(host: &Hypervisor, now: Timestamp) -> Vec<(&'static str, String)> {
    let status = host.status.clone().unwrap_or_default();
    let system = status.operating_system.unwrap_or_default();
    let agent = status.agent.unwrap_or_default();
    let all = [
        ("Zone", label(host, labels::ZONE)),
        ("Building block", label(host, labels::BUILDING_BLOCK)),
        ("Address", status.internal_ip),
        ("Operating system", system.pretty_version),
        ("Kernel", system.kernel_release),
        (
            "Hardware",
            format!("{} {}", system.hardware_vendor, system.hardware_model)
                .trim()
                .to_owned(),
        ),
        ("Serial number", system.hardware_serial),
        (
            "Firmware",
            format!("{} {}", system.firmware_vendor, system.firmware_version)
                .trim()
                .to_owned(),
        ),
        ("libvirt", status.lib_virt_version),
        ("Hypervisor", status.hypervisor_version),
        ("Compute host", status.compute_host),
        ("Nova service", status.service_id),
        (
            "Aggregates",
            status
                .aggregates
                .iter()
                .map(|a| a.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("Traits", status.traits.join(", ")),
        ("Node agent", agent.version),
        (
            "Known since",
            host.creation_timestamp()
                .map(|time| ago(now, time.0))
                .unwrap_or_default(),
        ),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_empty() && value != "–" && value != "unknown")
        .collect()
}

/// What happens next with a host and why, in one or two sentences.
fn next(host: &Hypervisor) -> String {
    let said = |type_: &str| {
        let text = condition(host, type_)
            .map(|condition| condition.message.as_str())
            .unwrap_or_default();
        if text.is_empty() {
            String::new()
        } else {
            format!(" {}", text.trim_end_matches('.')) + "."
        }
    };
    if condition(host, "HaRecovery").is_some_and(|condition| condition.status == "True") {
        return format!(
            "The HA service recovers the guests of this host elsewhere.{}",
            said("HaRecovery")
        );
    }
    match phase(host) {
        "Active" if tone(host) == Tone::Good => "Nothing: it carries guests and takes new ones.".into(),
        "Active" => format!("It carries guests, but somebody should look.{}", said("Ready")),
        "Initial" => "The operator waits for the compute service of this host to appear in Nova.".into(),
        "Onboarding" | "Testing" => format!(
            "The operator prepares it and proves it with a test server.{}",
            said("Onboarding")
        ),
        "Ready" => {
            "Tests passed. The operator puts it into its aggregates and traits, then it is Active.".into()
        }
        "Aborted" => format!(
            "Nothing happens by itself: onboarding ended without success.{}",
            said("Onboarding")
        ),
        "Evicting" => format!("The operator moves its guests away.{}", said("Evicting")),
        "Maintenance" => format!(
            "It stays out of scheduling until maintenance is ended{}.",
            if host.spec.maintenance_reason.is_empty() {
                String::new()
            } else {
                format!(" (“{}”)", host.spec.maintenance_reason)
            }
        ),
        "Decommissioned" => "Nothing: it has left OpenStack and its Node may go.".into(),
        _ => "Nobody has said yet where it is in its life; the operator does when it looks after it.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;
    use crate::views::samples::host;
    use serde_json::json;

    #[test]
    fn the_page_says_what_is_wrong_first_and_what_happens_next() {
        let at = "2026-01-01T00:00:00Z";
        let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "R", "message": message, "lastTransitionTime": at});
        let fleet = Fleet::with([host(
            "a",
            "z",
            "b",
            &json!({
                "phase": "Aborted",
                "conditions": [condition("AggregatesUpdated", "True", ""), condition("Onboarding", "False", "no image \"smoke\"."), condition("Ready", "False", "")],
                "cells": [{"cellID": 1, "capacity": {"cpu": "8", "memory": "16Gi"}, "pages": [{"size": "2Mi", "total": 10, "free": 4}]}],
            }),
        )]);
        let page = Host::of(&fleet.known(), "a", None, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            page.next,
            "Nothing happens by itself: onboarding ended without success. no image \"smoke\"."
        );
        assert_eq!(page.conditions.first().map(|c| c.type_.as_str()), Some("Ready"));
        assert!(page.may_onboard);
        assert_eq!(
            page.cells.first().map(|c| c.pages.as_str()),
            Some("4 free of 10 × 2Mi")
        );
        assert_eq!(page.history.len(), 3);
        assert!(Host::of(&fleet.known(), "b", None, Timestamp::UNIX_EPOCH).is_none());
    }
}
