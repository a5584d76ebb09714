// SPDX-License-Identifier: Apache-2.0
//! The fleet as a list: search, filters and order from the query of the address, so that a view
//! can be kept as a bookmark and sent to a colleague.

use std::collections::BTreeSet;

use askama::Template;
use cobaltcore_api::{Hypervisor, labels};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Deserialize;

use super::order::{Counted, counted};
use super::{Tone, ago, label, phase, shares, tone};
use crate::fleet::Known;

/// What of the list is wanted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Wanted {
    /// Words that must all occur in name, labels, hardware, version or guests.
    pub q: String,
    /// Only this phase.
    pub phase: String,
    /// Only this zone.
    pub zone: String,
    /// Only hosts somebody should look at.
    pub trouble: String,
    /// The column to order by; a leading `-` turns it around.
    pub sort: String,
}

/// The list.
#[derive(Debug, Template)]
#[template(path = "hosts.html")]
pub struct Hosts {
    /// What was asked for.
    pub wanted: Wanted,
    /// All phases there are.
    pub phases: BTreeSet<&'static str>,
    /// All zones there are.
    pub zones: BTreeSet<Counted>,
    /// The hosts found.
    pub rows: Vec<Row>,
    /// How many hosts there are in all.
    pub total: usize,
}

/// One host of the list.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: &'static str,
    /// How it is doing.
    pub tone: Tone,
    /// Its zone.
    pub zone: String,
    /// Its building block.
    pub block: String,
    /// The operating system's version.
    pub version: String,
    /// Its guests.
    pub guests: i64,
    /// Processors taken, in percent.
    pub cpu: i64,
    /// Memory taken, in percent.
    pub memory: i64,
    /// Vendor and model.
    pub hardware: String,
    /// The kernel.
    pub kernel: String,
    /// How old the object is.
    pub age: String,
    born: Option<Timestamp>,
}

impl Row {
    fn of(hypervisor: &Hypervisor, now: Timestamp) -> Self {
        let status = hypervisor.status.as_ref();
        let system = status.and_then(|status| status.operating_system.as_ref());
        let (cpu, memory) = shares(hypervisor);
        let born = hypervisor.creation_timestamp().map(|time| time.0);
        Self {
            name: hypervisor.name_any(),
            phase: phase(hypervisor),
            tone: tone(hypervisor),
            zone: label(hypervisor, labels::ZONE),
            block: label(hypervisor, labels::BUILDING_BLOCK),
            version: system
                .map(|system| system.pretty_version.clone())
                .unwrap_or_default(),
            guests: status.map_or(0, |status| status.num_instances),
            cpu: cpu.percent(),
            memory: memory.percent(),
            hardware: system
                .map(|system| {
                    format!("{} {}", system.hardware_vendor, system.hardware_model)
                        .trim()
                        .to_owned()
                })
                .unwrap_or_default(),
            kernel: system
                .map(|system| system.kernel_release.clone())
                .unwrap_or_default(),
            age: born.map(|born| ago(now, born)).unwrap_or_default(),
            born,
        }
    }

    fn matches(&self, wanted: &Wanted, hypervisor: &Hypervisor) -> bool {
        (wanted.phase.is_empty() || wanted.phase == self.phase)
            && (wanted.zone.is_empty() || wanted.zone == self.zone)
            && (wanted.trouble.is_empty() || self.tone >= Tone::Warn)
            && wanted
                .q
                .split_whitespace()
                .all(|word| self.mentions(&word.to_lowercase(), hypervisor))
    }

    fn mentions(&self, word: &str, hypervisor: &Hypervisor) -> bool {
        let own = [
            &self.name,
            &self.zone,
            &self.block,
            &self.version,
            &self.hardware,
            &self.kernel,
        ];
        let guests = hypervisor.status.iter().flat_map(|status| &status.instances);
        own.iter().any(|text| text.to_lowercase().contains(word))
            || self.phase.to_lowercase() == word
            || guests
                .into_iter()
                .any(|guest| guest.id.contains(word) || guest.name.to_lowercase().contains(word))
    }
}

impl Hosts {
    /// The hosts that are wanted, in the order that is wanted.
    pub fn of(known: &Known, wanted: Wanted, now: Timestamp) -> Self {
        let all: Vec<(Row, &Hypervisor)> = known
            .hypervisors
            .objects()
            .map(|host| (Row::of(host, now), host.as_ref()))
            .collect();
        let mut rows: Vec<Row> = all
            .iter()
            .filter(|(row, host)| row.matches(&wanted, host))
            .map(|(row, _)| row.clone())
            .collect();
        let (column, turned) = match wanted.sort.strip_prefix('-') {
            Some(column) => (column, true),
            None => (wanted.sort.as_str(), false),
        };
        rows.sort_by(|a, b| counted(&a.name, &b.name));
        match column {
            "phase" => rows.sort_by_key(|row| row.phase),
            "zone" => {
                rows.sort_by(|a, b| counted(&a.zone, &b.zone).then_with(|| counted(&a.block, &b.block)));
            }
            "guests" => rows.sort_by_key(|row| row.guests),
            "cpu" => rows.sort_by_key(|row| row.cpu),
            "memory" => rows.sort_by_key(|row| row.memory),
            "age" => rows.sort_by_key(|row| std::cmp::Reverse(row.born)),
            _ => {}
        }
        if turned {
            rows.reverse();
        }
        Self {
            phases: all.iter().map(|(row, _)| row.phase).collect(),
            zones: all.iter().map(|(row, _)| Counted(row.zone.clone())).collect(),
            total: all.len(),
            wanted,
            rows,
        }
    }

    /// The address that orders by `column`, turned around if it is in that order already.
    pub fn order(&self, column: &str) -> String {
        let sort = if self.wanted.sort == column {
            format!("-{column}")
        } else {
            column.to_owned()
        };
        let encode = |text: &str| -> String {
            text.bytes()
                .map(|byte| match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        char::from(byte).to_string()
                    }
                    other => format!("%{other:02X}"),
                })
                .collect()
        };
        let pairs = [
            ("q", &self.wanted.q),
            ("phase", &self.wanted.phase),
            ("zone", &self.wanted.zone),
            ("trouble", &self.wanted.trouble),
            ("sort", &sort),
        ];
        let query: Vec<String> = pairs
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key}={}", encode(value)))
            .collect();
        format!("/hypervisors?{}", query.join("&"))
    }

    /// How a column is ordered, for assistive technology.
    pub fn ordered(&self, column: &str) -> &'static str {
        match self.wanted.sort.strip_prefix('-') {
            Some(turned) if turned == column => "descending",
            None if self.wanted.sort == column => "ascending",
            _ => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;
    use crate::views::samples::host;
    use serde_json::json;

    fn names(wanted: Wanted) -> Vec<String> {
        let fleet = Fleet::with([
            host(
                "alpha",
                "east",
                "bb1",
                &json!({"phase": "Active", "numInstances": 3,
                "instances": [{"id": "11111111-2222-3333-4444-555555555555", "name": "instance-1", "active": true}]}),
            ),
            host(
                "beta",
                "west",
                "bb2",
                &json!({"phase": "Maintenance", "numInstances": 1}),
            ),
            host(
                "gamma",
                "west",
                "bb2",
                &json!({"phase": "Aborted", "numInstances": 2}),
            ),
        ]);
        let known = fleet.known();
        Hosts::of(&known, wanted, Timestamp::UNIX_EPOCH)
            .rows
            .into_iter()
            .map(|row| row.name)
            .collect()
    }

    #[test]
    fn words_filters_and_order() {
        let with = |change: fn(&mut Wanted)| {
            let mut wanted = Wanted::default();
            change(&mut wanted);
            names(wanted)
        };
        assert_eq!(with(|_| ()), ["alpha", "beta", "gamma"]);
        assert_eq!(with(|w| w.q = "west BB2".into()), ["beta", "gamma"]);
        assert_eq!(with(|w| w.q = "west bb1".into()), [""; 0]);
        assert_eq!(with(|w| w.q = "11111111-2222".into()), ["alpha"]);
        assert_eq!(with(|w| w.phase = "Maintenance".into()), ["beta"]);
        assert_eq!(with(|w| w.zone = "east".into()), ["alpha"]);
        assert_eq!(with(|w| w.trouble = "on".into()), ["gamma"]);
        assert_eq!(with(|w| w.sort = "guests".into()), ["beta", "gamma", "alpha"]);
        assert_eq!(with(|w| w.sort = "-guests".into()), ["alpha", "gamma", "beta"]);
    }

    #[test]
    fn the_order_of_a_column_turns_and_keeps_the_filters() {
        let fleet = Fleet::default();
        let wanted = Wanted {
            q: "a b&c".into(),
            sort: "cpu".into(),
            ..Wanted::default()
        };
        let hosts = Hosts::of(&fleet.known(), wanted, Timestamp::UNIX_EPOCH);
        assert_eq!(hosts.order("cpu"), "/hypervisors?q=a%20b%26c&sort=-cpu");
        assert_eq!(hosts.order("zone"), "/hypervisors?q=a%20b%26c&sort=zone");
        assert_eq!(
            (hosts.ordered("cpu"), hosts.ordered("zone")),
            ("ascending", "none")
        );
    }
}
