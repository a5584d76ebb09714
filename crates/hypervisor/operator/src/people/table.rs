// SPDX-License-Identifier: Apache-2.0
//! The fleet as a table.

use cobaltcore_api::conditions::HypervisorCondition::Ready;
use cobaltcore_api::{Hypervisor, labels};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::ready::phase;
use crate::seen::{LookAtHypervisor as _, elapsed};

/// How much of each hypervisor is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// What fits a terminal.
    Usual,
    /// Everything worth a column.
    Wide,
}

/// Hypervisors as a table, one per line.
pub fn table(hypervisors: &[Hypervisor], width: Width, now: Timestamp) -> String {
    let mut head = vec![
        "NAME",
        "PHASE",
        "READY",
        "MAINTENANCE",
        "ZONE",
        "INSTANCES",
        "AGE",
    ];
    if width == Width::Wide {
        head.extend(["IP", "VERSION", "AGGREGATES", "WHY"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(hypervisors.iter().map(|hypervisor| row(hypervisor, width, now)));
    aligned(&rows)
}

fn row(hypervisor: &Hypervisor, width: Width, now: Timestamp) -> Vec<String> {
    let (status, ready) = (hypervisor.known(), hypervisor.seen(Ready));
    // Under the definitions of the running system the phase is not stored, but it is known.
    let phase = status.phase.unwrap_or_else(|| phase(hypervisor));
    let age = hypervisor
        .creation_timestamp()
        .map(|time| elapsed(time.0, now).as_secs());
    let mut row = vec![
        hypervisor.name_any(),
        phase.to_string(),
        ready.map_or("", |seen| seen.status.as_str()).to_owned(),
        hypervisor.spec.maintenance.to_string(),
        hypervisor.label(labels::ZONE).unwrap_or_default().to_owned(),
        status.num_instances.to_string(),
        age.map(human).unwrap_or_default(),
    ];
    if width == Width::Wide {
        let aggregates: Vec<&str> = status.aggregates.iter().map(|a| a.name.as_str()).collect();
        let system = status.operating_system.as_ref();
        row.extend([
            status.internal_ip.clone(),
            system
                .map(|system| system.pretty_version.clone())
                .unwrap_or_default(),
            aggregates.join(","),
            ready
                .filter(|seen| !seen.is_true())
                .map_or("", |seen| seen.message)
                .to_owned(),
        ]);
    }
    row
}

/// A time as kubectl writes it, in its largest unit.
fn human(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let cell = |row: &Vec<String>, column: usize| {
        row.get(column)
            .filter(|text| !text.is_empty())
            .cloned()
            .unwrap_or_else(|| "-".into())
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| cell(row, column).chars().count())
                .max()
                .unwrap_or_default()
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = widths
            .iter()
            .enumerate()
            .map(|(column, width)| format!("{:<width$}", cell(row, column)));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up_and_gaps_are_shown() {
        let hypervisor = |name: &str, status: serde_json::Value| -> Hypervisor {
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"topology.kubernetes.io/zone": "z1"}},
                "spec": {}, "status": status,
            }))
            .unwrap()
        };
        let fleet = [
            hypervisor(
                "a",
                json!({"numInstances": 12, "phase": "Active", "internalIp": "10.0.0.1", "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready", "message": "fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            ),
            hypervisor("long-name", json!({"numInstances": 0})),
        ];
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        let text = table(&fleet, Width::Usual, now);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "NAME        PHASE     READY   MAINTENANCE   ZONE   INSTANCES   AGE",
                "a           Active    True    -             z1     12          3h",
                "long-name   Initial   -       -             z1     0           3h",
            ]
        );
        assert!(table(&fleet, Width::Wide, now).contains("10.0.0.1"));
        assert_eq!(table(&[], Width::Usual, now).lines().count(), 1);
    }
}
