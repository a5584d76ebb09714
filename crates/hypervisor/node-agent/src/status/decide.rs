// SPDX-License-Identifier: Apache-2.0
//! From what is known to what the status says, without a clock or a client. Lists come in a fixed order, so that equal
//! knowledge gives equal text; what is not known yet is repeated as the object has it, so that nothing flickers when
//! the agent starts.

use std::collections::BTreeMap;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::LibVirtConnectionReason;
use cobaltcore_api::{
    AgentInfo, Capabilities, Cell, Hypervisor, HypervisorStatus, Instance, PagePool, Quantity, ResourceMap,
};
use cobaltcore_kit::status::{ConditionStatus, Intent, NewCondition, find};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::board::{Guest, LibvirtView, Link, Model, Outage, OutageKind, Reading};
use crate::capacity::{Allocation, Amount, HostCell, HostCells, Placement, place};

/// Messages name at most so many guests.
const MOST_NAMED: usize = 10;

/// What stays the same while the agent runs.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// Who reports.
    pub agent: AgentInfo,
    /// Units whose conditions the agent writes.
    pub units: Vec<String>,
    /// Whether the installed definition has the fields that the running system does not know.
    pub additions: bool,
}

/// What the status should say.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Fields and conditions of the agent.
    pub intent: Intent,
    /// What guests take, when it is known completely.
    pub allocation: Option<Allocation>,
    /// What could not be read, by guest or call.
    pub troubles: Vec<String>,
}

/// Decides what the status of `current` should say.
pub fn decide(model: &Model, current: &Hypervisor, standing: &Standing) -> Decision {
    let empty = HypervisorStatus::default();
    let before = current.status.as_ref().unwrap_or(&empty);
    let libvirt = &model.libvirt;
    let sums = sums(libvirt);
    let troubles = troubles(libvirt, &sums);

    let mut intent = Intent::new()
        .field(
            "libVirtVersion",
            known(libvirt.lib_version.as_ref(), &before.lib_virt_version),
        )
        .field(
            "hypervisorVersion",
            known(libvirt.hypervisor_version.as_ref(), &before.hypervisor_version),
        )
        .field(
            "operatingSystem",
            json(
                model
                    .operating_system
                    .as_ref()
                    .or(before.operating_system.as_ref()),
            ),
        )
        .field(
            "updateStatus",
            json(model.update_status.as_ref().or(before.update_status.as_ref())),
        )
        .field(
            "domainCapabilities",
            json(
                libvirt
                    .domain_capabilities
                    .as_ref()
                    .or(before.domain_capabilities.as_ref()),
            ),
        );
    intent = instances(intent, libvirt.guests.as_ref(), before, standing.additions);
    intent = capacity(intent, libvirt, &sums, current, before, standing.additions);
    if standing.additions {
        let agent = AgentInfo {
            libvirt_uri: libvirt.uri.clone().unwrap_or_default(),
            driver: libvirt.driver.clone().unwrap_or_default(),
            ..standing.agent.clone()
        };
        intent = intent.field("agent", json(Some(&agent)));
    }
    let allocation = sums.complete.then_some(sums.allocation);
    Decision {
        intent: conditions(intent, model, before, standing, &troubles),
        allocation,
        troubles,
    }
}

fn json<T: Serialize>(value: Option<&T>) -> Value {
    value
        .and_then(|value| serde_json::to_value(value).ok())
        .unwrap_or_default()
}

/// The value, else what the object says, else nothing.
fn known(value: Option<&String>, before: &str) -> Value {
    match value.map(String::as_str) {
        Some(text) => text.into(),
        None if before.is_empty() => Value::Null,
        None => before.into(),
    }
}

fn instances(
    intent: Intent,
    guests: Option<&BTreeMap<Uuid, Guest>>,
    before: &HypervisorStatus,
    additions: bool,
) -> Intent {
    let Some(guests) = guests else {
        return intent
            .field("instances", json(Some(&before.instances)))
            .field("numInstances", before.num_instances);
    };
    let mut list: Vec<Instance> = guests
        .iter()
        .map(|(id, guest)| Instance {
            id: id.to_string(),
            name: guest.name.clone(),
            active: guest.active,
            state: guest
                .state
                .filter(|_| additions)
                .map(|state| state.as_str().to_owned())
                .unwrap_or_default(),
        })
        .collect();
    list.sort_by(|a, b| (!a.active, &a.name, &a.id).cmp(&(!b.active, &b.name, &b.id)));
    intent
        .field("numInstances", list.len())
        .field("instances", json(Some(&list)))
}

/// What guests take, and whether it is known of all of them.
#[derive(Debug, Default)]
struct Sums {
    allocation: Allocation,
    complete: bool,
    misplaced: BTreeMap<Uuid, Vec<String>>,
}

fn sums(libvirt: &LibvirtView) -> Sums {
    let mut sums = Sums {
        complete: libvirt.complete,
        ..Sums::default()
    };
    let nowhere = HostCells::default();
    let cells = libvirt.cells.as_ref();
    for (id, guest) in libvirt.guests.iter().flatten() {
        let Reading::Known(claim) = &guest.claim else {
            continue;
        };
        let placement = match cells {
            Some(cells) => place(claim, cells),
            // Without knowing the host's cells nothing can be said about where a guest is.
            None => Placement {
                problems: Vec::new(),
                ..place(claim, &nowhere)
            },
        };
        sums.allocation.add(claim.amount(), &placement);
        if !placement.problems.is_empty() {
            sums.misplaced.insert(*id, placement.problems);
        }
    }
    sums
}

fn capacity(
    intent: Intent,
    libvirt: &LibvirtView,
    sums: &Sums,
    current: &Hypervisor,
    before: &HypervisorStatus,
    additions: bool,
) -> Intent {
    let map = |value: &ResourceMap| json((!value.is_empty()).then_some(value));
    let Some(host) = libvirt.cells.as_ref() else {
        return intent
            .field("capabilities", json(before.capabilities.as_ref()))
            .field("capacity", map(&before.capacity))
            .field("effectiveCapacity", map(&before.effective_capacity))
            .field("allocation", map(&before.allocation))
            .field("unplacedAllocation", map(&before.unplaced_allocation))
            .field("cells", json((!before.cells.is_empty()).then_some(&before.cells)));
    };
    let ratios = &current.spec.overcommit;
    let total = host.total();
    let capabilities = Capabilities {
        cpu_arch: host.arch.clone(),
        memory: Some(Quantity::bytes(total.memory)),
        cpus: Some(Quantity::count(total.cpus)),
    };
    let cells: Vec<Cell> = host
        .cells
        .iter()
        .map(|(id, cell)| {
            let have = Amount {
                memory: cell.memory,
                cpus: cell.cpus,
            };
            let taken = sums.allocation.cells.get(id).copied().unwrap_or_default();
            let old = before.cells.iter().find(|old| old.cell_id == *id);
            Cell {
                cell_id: *id,
                capacity: have.resources(),
                effective_capacity: have.overcommitted(ratios).resources(),
                allocation: match (sums.complete, old) {
                    (false, Some(old)) if !old.allocation.is_empty() => old.allocation.clone(),
                    _ => taken.resources(),
                },
                pages: match libvirt.free_pages.as_ref() {
                    _ if !additions => Vec::new(),
                    Some(free) => pages(cell, free.get(id)),
                    None => old.map(|old| old.pages.clone()).unwrap_or_default(),
                },
            }
        })
        .collect();
    let (allocation, unplaced) = if sums.complete || before.allocation.is_empty() {
        (
            sums.allocation.total.resources(),
            sums.allocation.unplaced().resources(),
        )
    } else {
        (before.allocation.clone(), before.unplaced_allocation.clone())
    };
    let intent = intent
        .field("capabilities", json(Some(&capabilities)))
        .field("capacity", json(Some(&total.resources())))
        .field(
            "effectiveCapacity",
            json(Some(&total.overcommitted(ratios).resources())),
        )
        .field("allocation", json(Some(&allocation)))
        .field("cells", json(Some(&cells)));
    if additions {
        intent.field("unplacedAllocation", map(&unplaced))
    } else {
        intent
    }
}

/// The huge pages of a cell, smallest first. A size whose free pages nobody told is left out: a missing number is not
/// a zero.
fn pages(cell: &HostCell, free: Option<&BTreeMap<u64, u64>>) -> Vec<PagePool> {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let known = cell.huge_pages.iter().filter_map(|(size, total)| {
        Some(PagePool {
            size: Quantity::bytes(*size),
            total: signed(*total),
            free: signed(*free?.get(size)?),
        })
    });
    known.collect()
}

/// Everything that could not be read or understood, one line each.
fn troubles(libvirt: &LibvirtView, sums: &Sums) -> Vec<String> {
    let calls = libvirt.trouble.iter().map(|(call, why)| format!("{call}: {why}"));
    let mut lines: Vec<String> = calls.collect();
    for problem in libvirt.cells.iter().flat_map(|cells| &cells.problems) {
        lines.push(format!("capabilities: {problem}"));
    }
    for (id, guest) in libvirt.guests.iter().flatten() {
        let mut why: Vec<&str> = match &guest.claim {
            Reading::Pending => Vec::new(),
            Reading::Failed(why) => vec![why],
            Reading::Known(claim) => claim.problems.iter().map(String::as_str).collect(),
        };
        why.extend(sums.misplaced.get(id).into_iter().flatten().map(String::as_str));
        if !why.is_empty() {
            lines.push(format!("guest {} ({id}): {}", guest.name, why.join(", ")));
        }
    }
    lines
}

fn conditions(
    mut intent: Intent,
    model: &Model,
    before: &HypervisorStatus,
    standing: &Standing,
    troubles: &[String],
) -> Intent {
    let connection = HypervisorCondition::LibVirtConnection.as_str();
    if let Some(condition) = connection_condition(&model.libvirt.link, troubles) {
        intent = intent.condition(condition);
    } else if let Some(condition) = repeated(before, connection) {
        intent = intent.condition(condition);
    }
    for condition in model.conditions.values().flatten() {
        intent = intent.condition(condition.clone());
    }
    let others = [
        HypervisorCondition::OperatingSystemUpdate.as_str(),
        HypervisorCondition::TlsCertificateInstalled.as_str(),
        HypervisorCondition::EvacuationReady.as_str(),
    ];
    let units = standing.units.iter().map(String::as_str);
    for type_ in others.into_iter().chain(units) {
        if !model.conditions.contains_key(type_)
            && let Some(condition) = repeated(before, type_)
        {
            intent = intent.condition(condition);
        }
    }
    intent
}

/// A condition as the object has it: nobody has said anything newer yet.
fn repeated(before: &HypervisorStatus, type_: &str) -> Option<NewCondition> {
    let old = find(&before.conditions, type_)?;
    let status = match old.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Some(NewCondition::new(type_, status, &old.reason, old.message.clone()))
}

fn connection_condition(link: &Link, troubles: &[String]) -> Option<NewCondition> {
    use LibVirtConnectionReason as Reason;
    let type_ = HypervisorCondition::LibVirtConnection;
    Some(match link {
        Link::Unknown => return None,
        Link::Up if troubles.is_empty() => NewCondition::yes(type_, Reason::Connected, ""),
        Link::Up => NewCondition::yes(type_, Reason::Degraded, named(troubles)),
        Link::ServiceStopped => NewCondition::no(
            type_,
            Reason::LibVirtServiceNotRunning,
            "libvirtd service is not running",
        ),
        Link::Down(Outage { kind, why }) => {
            let (reason, text) = match kind {
                OutageKind::ConnectFailed => (
                    Reason::ConnectFailed,
                    format!("unable to connect to libvirtd: {why}"),
                ),
                OutageKind::Disconnected => (
                    Reason::Disconnected,
                    format!("connection to libvirtd lost, reconnecting: {why}"),
                ),
                OutageKind::Timeout => (Reason::Timeout, format!("libvirtd does not answer: {why}")),
                OutageKind::AuthFailed => (
                    Reason::AuthFailed,
                    format!("libvirtd does not let the agent in: {why}"),
                ),
                OutageKind::DriverUnavailable => (
                    Reason::DriverUnavailable,
                    format!("libvirtd has no such driver: {why}"),
                ),
                OutageKind::ProcessFailed => (
                    Reason::ProcessFailed,
                    format!("unable to process hypervisor via libvirt: {why}"),
                ),
            };
            NewCondition::no(type_, reason, text)
        }
    })
}

fn named(troubles: &[String]) -> String {
    let mut text = troubles
        .iter()
        .take(MOST_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if troubles.len() > MOST_NAMED {
        text.push_str(&format!("; and {} more", troubles.len() - MOST_NAMED));
    }
    text
}

#[cfg(test)]
mod tests;
