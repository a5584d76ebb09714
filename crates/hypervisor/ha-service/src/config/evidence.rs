// SPDX-License-Identifier: Apache-2.0
//! When a host counts as dead, and when the service doubts itself.

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{minutes, seconds};

/// Signs of life of agents.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agents {
    /// How often an agent reports.
    pub heartbeat_interval: HumanDuration,
    /// Silence longer than this is death of this signal.
    pub silent_after: HumanDuration,
    /// Where agents answer each other: the port of their `metrics.listen`.
    pub port: u16,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            heartbeat_interval: seconds(5),
            silent_after: seconds(15),
            port: 9184,
        }
    }
}

impl Agents {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.heartbeat_interval.0.is_zero() {
            mistakes.add("agents.heartbeat_interval", "must be longer than nothing");
        }
        if self.silent_after.0 < self.heartbeat_interval.0.saturating_mul(2) {
            mistakes.add(
                "agents.silent_after",
                "must be at least twice agents.heartbeat_interval: one heartbeat that is lost is no silence",
            );
        }
    }
}

/// What to do with a host that runs and cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DwellWord {
    /// Tell and wait for a person.
    Hold,
    /// Fence after the dwell time.
    Fence,
    /// Hung hosts only: fence after the dwell time if storage shows no life.
    Auto,
}

/// Probes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// Ports where a program answers: the first two kinds of life are told apart there.
    pub tcp_ports: Vec<u16>,
    /// How long one attempt may take.
    pub timeout: HumanDuration,
    /// How many agents of other hosts are asked.
    pub peers: usize,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            tcp_ports: vec![10250, 22, 9100],
            timeout: seconds(2),
            peers: 4,
        }
    }
}

/// When a source is not believed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Distrust {
    /// Share of the hosts that die in one group together.
    pub percent: u32,
    /// Within how long.
    pub window: HumanDuration,
}

impl Default for Distrust {
    fn default() -> Self {
        Self {
            percent: 20,
            window: seconds(60),
        }
    }
}

/// When a host is dead.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evidence {
    /// How many independent groups must agree.
    pub min_groups: usize,
    /// Whether one of them must be a probe of ours or of a neighbour.
    pub require_active_probe: bool,
    /// In how many rounds.
    pub confirm_rounds: u32,
    /// How far rounds are apart.
    pub round_interval: HumanDuration,
    /// Probes.
    pub probe: Probe,
    /// When a source is not believed.
    pub source_distrust: Distrust,
    /// What is done with an isolated host.
    pub isolation_response: DwellWord,
    /// After how long.
    pub isolation_dwell: HumanDuration,
    /// What is done with a hung host.
    pub hung_response: DwellWord,
    /// After how long.
    pub hung_dwell: HumanDuration,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            min_groups: 2,
            require_active_probe: true,
            confirm_rounds: 2,
            round_interval: seconds(3),
            probe: Probe::default(),
            source_distrust: Distrust::default(),
            isolation_response: DwellWord::Hold,
            isolation_dwell: minutes(5),
            hung_response: DwellWord::Auto,
            hung_dwell: minutes(3),
        }
    }
}

impl Evidence {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.min_groups < 2 {
            mistakes.add(
                "evidence.min_groups",
                "must be at least 2: one lost signal never makes a host dead",
            );
        }
        if !self.require_active_probe && self.min_groups < 3 {
            mistakes.add(
                "evidence.require_active_probe",
                "false needs evidence.min_groups of at least 3: without a probe, nobody tried to reach the host",
            );
        }
        if self.confirm_rounds == 0 {
            mistakes.add("evidence.confirm_rounds", "must be at least 1");
        }
        if self.isolation_response == DwellWord::Auto {
            mistakes.add("evidence.isolation_response", "must be hold or fence");
        }
        if self.probe.tcp_ports.is_empty() || self.probe.tcp_ports.len() > 8 {
            mistakes.add("evidence.probe.tcp_ports", "must be one to eight ports");
        }
        if self.probe.timeout.0.is_zero() || self.probe.timeout > seconds(5) {
            mistakes.add("evidence.probe.timeout", "must be at most 5s");
        }
        if !(2..=16).contains(&self.probe.peers) {
            mistakes.add(
                "evidence.probe.peers",
                "must be from 2 to 16: three quarters of them, in two racks, have to find nobody",
            );
        }
    }
}

/// Whether the service itself is cut off.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelfCheck {
    /// Addresses (`host:port`) that must always answer, besides Kubernetes, Nova and Keystone.
    pub canaries: Vec<String>,
    /// Share of the canaries that must answer.
    pub min_ok_percent: usize,
    /// Share of the hosts that must be heard.
    pub fresh_percent: usize,
    /// How long a new leader only looks.
    pub warmup: HumanDuration,
    /// For how long after most of the fleet was switched on nobody is fenced; nothing for no such time.
    pub cold_start: HumanDuration,
}

impl Default for SelfCheck {
    fn default() -> Self {
        Self {
            canaries: Vec::new(),
            min_ok_percent: 60,
            fresh_percent: 80,
            warmup: seconds(60),
            cold_start: minutes(10),
        }
    }
}
