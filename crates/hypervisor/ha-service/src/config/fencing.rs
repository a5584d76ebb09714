// SPDX-License-Identifier: Apache-2.0
//! How hosts are switched off: levels of drivers, tried in order, and what differs per host.
//! Credentials stand in files that are read when a device is used.

use std::collections::BTreeMap;

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{minutes, seconds};

/// What a fence must prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GradeWord {
    /// Read to be off, twice.
    #[default]
    Power,
    /// Its watchdog has reset it.
    SelfFence,
    /// It cannot write its disks.
    Storage,
}

/// The drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// A BMC that speaks Redfish.
    Redfish,
    /// Objects of the metal operator.
    MetalOperator,
    /// A program: IPMI, fence agents.
    Exec,
    /// A person acknowledges.
    Manual,
    /// Nothing is verified. Unsafe, and has to be accepted explicitly.
    NovaForceDownOnly,
}

/// How the metal operator is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MetalMode {
    /// Park the server, switch it off by its BMC.
    #[default]
    #[serde(rename = "park+redfish")]
    ParkAndRedfish,
    /// Change the claim's power.
    #[serde(rename = "claim")]
    Claim,
}

/// What a program is told and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecProtocol {
    /// The interface of fence agents.
    #[default]
    FenceAgent,
    /// `{"power": "on|off|unknown"}`.
    Json,
}

/// One driver. Which fields it takes depends on its kind. In texts, `{host}`, `{bmc}`,
/// `{internal_ip}` and `{label/<key>}` stand for what is known of the host.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Which.
    pub driver: DriverKind,
    /// redfish, metal-operator: the address of the BMC.
    #[serde(default)]
    pub url: String,
    /// redfish: the path of the system; the only one when empty.
    #[serde(default)]
    pub system: String,
    /// redfish, metal-operator, exec: a file with `username` and `password`.
    #[serde(default)]
    pub credentials_file: String,
    /// redfish: the authorities of the BMC's certificate; the system's own when empty.
    #[serde(default)]
    pub ca_file: String,
    /// redfish: whether the certificate is verified.
    #[serde(default = "yes")]
    pub verify_tls: bool,
    /// metal-operator: how it is used.
    #[serde(default)]
    pub mode: MetalMode,
    /// metal-operator: where the server's name is found, `label/<key>` or `host`.
    #[serde(default)]
    pub server_from: String,
    /// exec: the program.
    #[serde(default)]
    pub command: String,
    /// exec: its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// exec: what it is told and answers.
    #[serde(default)]
    pub protocol: ExecProtocol,
    /// The longest time for one request.
    #[serde(default = "request_time")]
    pub timeout: HumanDuration,
    /// nova-force-down-only: must be set.
    #[serde(default)]
    pub accept_split_brain: bool,
}

const fn yes() -> bool {
    true
}

const fn request_time() -> HumanDuration {
    seconds(5)
}

/// What differs for one host.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FencedHost {
    /// What `{bmc}` stands for.
    pub bmc: String,
    /// Its own levels; the common ones when empty.
    pub levels: Vec<Vec<Driver>>,
}

/// How hosts are switched off.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fencing {
    /// Levels, tried in order; all drivers of a level must succeed.
    pub levels: Vec<Vec<Driver>>,
    /// What a fence must prove.
    pub required_grade: GradeWord,
    /// What differs per host.
    pub hosts: BTreeMap<String, FencedHost>,
    /// How long a level is tried.
    pub timeout: HumanDuration,
    /// How far the two reads of a verification are apart.
    pub verify_gap: HumanDuration,
    /// The first pause between attempts.
    pub retry_min: HumanDuration,
    /// The longest.
    pub retry_max: HumanDuration,
    /// Whether a fenced node is tainted, so that nothing starts on it.
    pub taint: bool,
    /// Networks (`10.0.0.0/8`) that fencing devices may be in; any when empty.
    pub allowed_networks: Vec<String>,
}

impl Default for Fencing {
    fn default() -> Self {
        Self {
            levels: Vec::new(),
            required_grade: GradeWord::Power,
            hosts: BTreeMap::new(),
            timeout: seconds(60),
            verify_gap: seconds(2),
            retry_min: seconds(30),
            retry_max: minutes(5),
            taint: true,
            allowed_networks: Vec::new(),
        }
    }
}

impl Fencing {
    /// The levels of a host.
    pub fn levels_of(&self, host: &str) -> &[Vec<Driver>] {
        match self.hosts.get(host) {
            Some(own) if !own.levels.is_empty() => &own.levels,
            _ => &self.levels,
        }
    }

    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        check_levels("fencing.levels", &self.levels, mistakes);
        for (host, own) in &self.hosts {
            check_levels(&format!("fencing.hosts.{host}.levels"), &own.levels, mistakes);
        }
        if self.verify_gap < seconds(2) {
            mistakes.add(
                "fencing.verify_gap",
                "must be at least 2s: some devices say Off before it is true",
            );
        }
    }
}

fn check_levels(key: &str, levels: &[Vec<Driver>], mistakes: &mut Mistakes<'_>) {
    for (n, level) in levels.iter().enumerate() {
        if level.is_empty() {
            mistakes.add(&format!("{key}.{n}"), "a level needs at least one driver");
        }
        for (m, driver) in level.iter().enumerate() {
            let key = format!("{key}.{n}.{m}");
            let missing = match driver.driver {
                DriverKind::Redfish if driver.url.is_empty() => Some("url"),
                DriverKind::Redfish if driver.credentials_file.is_empty() => Some("credentials_file"),
                DriverKind::MetalOperator if driver.server_from.is_empty() => Some("server_from"),
                DriverKind::Exec if driver.command.is_empty() => Some("command"),
                _ => None,
            };
            if let Some(missing) = missing {
                mistakes.add(&key, format!("{missing} is needed"));
            }
            if driver.driver == DriverKind::NovaForceDownOnly && !driver.accept_split_brain {
                mistakes.add(
                    &key,
                    "verifies nothing: a guest may run twice. If that is acceptable say accept_split_brain: true",
                );
            }
            if driver.timeout.0.is_zero() || driver.timeout > seconds(10) {
                mistakes.add(&format!("{key}.timeout"), "must be at most 10s");
            }
        }
    }
}
