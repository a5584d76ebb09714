// SPDX-License-Identifier: Apache-2.0
//! One host: what will happen next and why, conditions with their history, guests, services, network, NUMA cells, facts
//! and migrations.

use std::sync::Arc;

use askama::Template;
use cobaltcore_api::{Cell, Eviction, EvictionState, Hypervisor, Instance, Maintenance, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::activity::Activity;
use super::evictions::Progress;
use super::incidents::Row;
use super::migrations::Migrations;
use super::next::Next;
use super::{Share, Tone, ago, condition, label, moment, phase, shares, tone, tone_of_condition};
use crate::faults::Truth;
use crate::fleet::Known;
use crate::session::Allowed;

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
    pub next: Next,
    /// Facts, by what they are called.
    pub facts: Vec<(&'static str, String)>,
    /// Where it is in the network.
    pub network: Vec<(&'static str, String)>,
    /// What runs there for the platform.
    pub services: Vec<ServiceRow>,
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
    /// What the person who looks may see and do.
    pub allowed: Allowed,
}

/// Something that runs on a host for the platform.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceRow {
    /// Its name.
    pub name: String,
    /// How it is doing.
    pub tone: Tone,
    /// The same in a word.
    pub word: &'static str,
    /// More precisely.
    pub text: String,
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
    /// When, in full.
    pub at: String,
    /// How long ago.
    pub age: String,
    /// Which condition.
    pub condition: String,
    /// What it became.
    pub status: String,
    /// How that is.
    pub tone: Tone,
    /// Why.
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
    pub fn of(
        known: &Known,
        name: &str,
        truth: Option<Truth>,
        allowed: Allowed,
        now: Timestamp,
    ) -> Option<Self> {
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
            age: ago(now, past.at),
            condition: past.condition.clone(),
            status: past.status.clone(),
            tone: tone_of_condition(&past.condition, &past.status),
            text: [past.reason.as_str(), past.message.as_str()]
                .join(" ")
                .trim()
                .to_owned(),
        });
        let eviction = eviction_of(known, name).filter(|_| allowed.see_evictions);
        let eviction = eviction.map(|eviction| Progress::of(eviction, known, now));
        let incidents: Vec<Row> = known
            .incidents
            .of_host(name)
            .take(PAST_INCIDENTS)
            .map(|incident| Row::of(incident, now))
            .collect();
        Some(Self {
            phase: phase(host),
            tone: tone(host),
            next: Next::of(host, eviction.as_ref(), incidents.iter().find(|row| row.open)),
            facts: facts(host, now),
            network: network(host),
            services: services(host),
            cpu,
            memory,
            conditions,
            history: history.collect(),
            guests,
            cells: status.cells.iter().map(cell).collect(),
            migrations: Migrations::of(known, now, |row| {
                allowed.see_migrations && (row.origin == name || row.destination == name)
            }),
            eviction: eviction.filter(|eviction| eviction.state != "Succeeded"),
            activity: Activity::of(known, now, RECENT, |entry| {
                allowed.see_events
                    && entry.name == name
                    && (entry.kind == "Hypervisor" || entry.kind == "Node")
            }),
            in_maintenance: host.spec.maintenance == Maintenance::Manual,
            may_onboard: phase(host) == "Aborted",
            incidents,
            truth,
            allowed,
            name: name.to_owned(),
        })
    }
}

/// The eviction that matters for a host: one that is not over, or else the newest.
fn eviction_of<'a>(known: &'a Known, host: &str) -> Option<&'a Arc<Eviction>> {
    let of_host = known
        .evictions
        .objects()
        .filter(|eviction| eviction.spec.hypervisor == host);
    of_host.max_by_key(|eviction| {
        let state = eviction
            .status
            .as_ref()
            .and_then(|status| status.eviction_state.as_ref());
        let over = state.is_some_and(|state| *state == EvictionState::Succeeded);
        (!over, eviction.creation_timestamp().map(|time| time.0))
    })
}

/// What runs on a host for the platform, as the conditions tell it.
fn services(host: &Hypervisor) -> Vec<ServiceRow> {
    let status = host.status.clone().unwrap_or_default();
    let row = |name: &str, type_: &str, (yes, no): (&'static str, &'static str), text: String| {
        let found = condition(host, type_)?;
        let message = found.message.trim_end_matches('.');
        Some(ServiceRow {
            name: name.to_owned(),
            tone: tone_of_condition(type_, &found.status),
            word: match found.status.as_str() {
                "True" => yes,
                "False" => no,
                _ => "unknown",
            },
            text: if text.is_empty() { message.to_owned() } else { text },
        })
    };
    let agent = status.agent.clone().unwrap_or_default();
    let named = [
        row(
            "nova-compute",
            "HypervisorDisabled",
            ("disabled", "enabled"),
            String::new(),
        ),
        row(
            "libvirt",
            "LibVirtConnection",
            ("connected", "unreachable"),
            status.lib_virt_version,
        ),
        row("kubelet", "NodeReady", ("ready", "not ready"), String::new()),
        row("high availability", "HaEnabled", ("on", "off"), String::new()),
        row(
            "shutdown guard",
            "EvacuationReady",
            ("ready", "not ready"),
            String::new(),
        ),
    ];
    let agent = (!agent.version.is_empty()).then(|| ServiceRow {
        name: "node agent".into(),
        tone: Tone::Good,
        word: "reports",
        text: format!("version {}", agent.version),
    });
    // A watched systemd unit is a condition under the name of the unit.
    let units = status
        .conditions
        .iter()
        .filter(|condition| condition.type_.contains('.'))
        .filter_map(|unit| row(&unit.type_, &unit.type_, ("active", "inactive"), String::new()));
    named.into_iter().flatten().chain(agent).chain(units).collect()
}

/// Where a host is in the network and who vouches for it there.
fn network(host: &Hypervisor) -> Vec<(&'static str, String)> {
    let status = host.status.clone().unwrap_or_default();
    let says = |type_: &str| {
        condition(host, type_)
            .map(|found| {
                let word = if found.status == "True" { "yes" } else { "no" };
                format!("{word} {}", found.message).trim_end().to_owned()
            })
            .unwrap_or_default()
    };
    let all = [
        ("Address", status.internal_ip),
        ("Compute host", status.compute_host),
        ("Compute node", status.hypervisor_hostname),
        ("libvirt", status.agent.unwrap_or_default().libvirt_uri),
        ("Bridges healthy", says("NetworkReady")),
        ("Certificate issued", says("CertificateIssued")),
        ("Certificate installed", says("TLSCertificateInstalled")),
        ("No move towards it", says("IncomingMigrationsSettled")),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn shown(condition: &Condition, now: Timestamp) -> Shown {
    Shown {
        tone: tone_of_condition(&condition.type_, &condition.status),
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: ago(now, condition.last_transition_time.0),
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
        let page = Host::of(
            &fleet.known(),
            "a",
            None,
            Allowed::everything(),
            Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        assert_eq!(
            page.next.what,
            "Nothing happens by itself: onboarding ended without success."
        );
        assert_eq!(page.next.why, ["no image \"smoke\"."]);
        assert_eq!(page.conditions.first().map(|c| c.type_.as_str()), Some("Ready"));
        assert!(page.may_onboard);
        assert_eq!(
            page.cells.first().map(|c| c.pages.as_str()),
            Some("4 free of 10 × 2Mi")
        );
        assert_eq!(page.history.len(), 3);
        assert!(
            Host::of(
                &fleet.known(),
                "b",
                None,
                Allowed::everything(),
                Timestamp::UNIX_EPOCH
            )
            .is_none()
        );
    }

    #[test]
    fn services_and_network_follow_from_what_the_host_reports() {
        let at = "2026-01-01T00:00:00Z";
        let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "R", "message": message, "lastTransitionTime": at});
        let sample = host(
            "a",
            "z",
            "b",
            &json!({
                "internalIp": "10.0.0.1", "libVirtVersion": "11.3.0",
                "agent": {"version": "1.2.3", "libvirtUri": "qemu:///system"},
                "conditions": [condition("HypervisorDisabled", "True", "Hypervisor is disabled."),
                    condition("LibVirtConnection", "True", ""), condition("libvirtd.service", "False", "dead")],
            }),
        );
        let rows: Vec<(String, &str, String)> = services(&sample)
            .into_iter()
            .map(|row| (row.name, row.word, row.text))
            .collect();
        let row = |name: &str, word, text: &str| (name.to_owned(), word, text.to_owned());
        assert_eq!(
            rows,
            [
                row("nova-compute", "disabled", "Hypervisor is disabled"),
                row("libvirt", "connected", "11.3.0"),
                row("node agent", "reports", "version 1.2.3"),
                row("libvirtd.service", "inactive", "dead"),
            ]
        );
        assert_eq!(
            network(&sample).first(),
            Some(&("Address", "10.0.0.1".to_owned()))
        );
    }
}
