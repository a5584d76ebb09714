// SPDX-License-Identifier: Apache-2.0
//! The row of a pod: what its containers are doing, boiled down to one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cells, or_none};
use crate::json::{at, flag, int, list, number, text};
use crate::times::{age, parse_time};

/// Restarts counted so far and the last time a container ended.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += number(status, "restartCount");
        let ended = parse_time(text(status, "lastState.terminated.finishedAt"));
        self.last = self.last.max(ended);
    }
}

struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

pub(super) fn pod(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let summary = summarise(object);
    let sidecars = list(object, "spec.initContainers")
        .iter()
        .filter(|c| is_sidecar(c))
        .count();
    let total = list(object, "spec.containers").len() + sidecars;
    let restarts = match summary.restarts.last {
        Some(last) if summary.restarts.count != 0 => {
            format!("{} ({} ago)", summary.restarts.count, age(last, cells.now))
        }
        _ => summary.restarts.count.to_string(),
    };
    let ip = list(object, "status.podIPs")
        .first()
        .map_or(text(object, "status.podIP"), |ip| text(ip, "ip"));
    vec![
        cells.name(),
        json!(format!("{}/{total}", summary.ready)),
        json!(summary.reason),
        json!(restarts),
        cells.age(),
        or_none(ip),
        or_none(text(object, "spec.nodeName")),
        or_none(text(object, "status.nominatedNodeName")),
        gates(object),
    ]
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn condition_is_true(object: &Value, kind: &str) -> bool {
    list(object, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == kind)
        .is_some_and(|condition| text(condition, "status") == "True")
}

fn gates(object: &Value) -> Value {
    let gates = list(object, "spec.readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates
        .iter()
        .filter(|gate| condition_is_true(object, text(gate, "conditionType")))
        .count();
    json!(format!("{open}/{}", gates.len()))
}

fn summarise(object: &Value) -> Summary {
    let phase = text(object, "status.phase");
    let stated = text(object, "status.reason");
    let mut reason = if stated.is_empty() { phase } else { stated }.to_owned();
    let gated = list(object, "status.conditions").iter().any(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    });
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut summary = Summary {
        reason,
        ready: 0,
        restarts: Restarts::default(),
    };
    let (initializing, sidecar_restarts) = init_containers(object, &mut summary);
    if !initializing || condition_is_true(object, "Initialized") {
        summary.restarts = sidecar_restarts;
        main_containers(object, &mut summary);
    }
    if at(object, "metadata.deletionTimestamp").is_some() {
        if stated == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// Walks init containers until the first that has not finished; answers whether there is one.
fn init_containers(object: &Value, summary: &mut Summary) -> (bool, Restarts) {
    let specs = list(object, "spec.initContainers");
    let mut sidecars = Restarts::default();
    for (at_index, status) in list(object, "status.initContainerStatuses").iter().enumerate() {
        summary.restarts.add(status);
        let spec = specs
            .iter()
            .find(|spec| text(spec, "name") == text(status, "name"));
        let sidecar = spec.is_some_and(is_sidecar);
        if sidecar {
            sidecars.add(status);
        }
        let terminated = at(status, "state.terminated");
        if terminated.is_some_and(|end| number(end, "exitCode") == 0) {
            continue;
        }
        if sidecar && flag(status, "started") {
            summary.ready += usize::from(flag(status, "ready"));
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        summary.reason = match terminated {
            Some(end) => format!("Init:{}", ending(end)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{at_index}/{}", specs.len()),
        };
        return (true, sidecars);
    }
    (false, sidecars)
}

/// Reason, signal or exit code of a finished container.
fn ending(end: &Value) -> String {
    let reason = text(end, "reason");
    match int(end, "signal") {
        _ if !reason.is_empty() => reason.to_owned(),
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", number(end, "exitCode")),
    }
}

fn main_containers(object: &Value, summary: &mut Summary) {
    let mut running = false;
    let mut failed = String::new();
    for status in list(object, "status.containerStatuses").iter().rev() {
        summary.restarts.add(status);
        let waiting = text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(end) = at(status, "state.terminated") {
            summary.reason = ending(end);
            if number(end, "exitCode") != 0 {
                failed.clone_from(&summary.reason);
            }
        } else if flag(status, "ready") && at(status, "state.running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        if running && condition_is_true(object, "Ready") {
            "Running".clone_into(&mut summary.reason);
        } else if !failed.is_empty() {
            summary.reason = failed;
        } else if running {
            "NotReady".clone_into(&mut summary.reason);
        }
    }
}
