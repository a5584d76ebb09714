// SPDX-License-Identifier: Apache-2.0
//! What the HA service can be told: one YAML file, read strictly. Every mistake is reported at
//! once with file, line and key; secrets stand in files or as hashes, never as text.

mod access;
mod evidence;
mod fencing;
mod leader;
mod monitors;
mod preflight;
mod recovery;
mod sources;

use std::path::Path;
use std::time::Duration;

use cobaltcore_kit::config::{ConfigErrors, HumanDuration, Mistakes};
use cobaltcore_kit::startup::{self, LogFormat};
use cobaltcore_openstack::Microversion;
use serde::{Deserialize, Serialize};

pub use access::{Access, Compat, Limits, Server, ServerTlsFiles, TokenHash, Tokens};
pub use evidence::{Agents, Distrust, DwellWord, Evidence, Probe, SelfCheck};
pub use fencing::{DeviceConfig, Driver, Fencing, HostConfig, RequiredGrade};
pub use leader::{Leader, Pod};
pub use monitors::{
    AgentSilent, HostDown, HostRebooted, InstanceCrashed, IoErrorStorm, LibvirtUnreachable, MemoryFailure,
    Monitors, NovaServiceDown, WatchdogStorm,
};
pub use preflight::{CephClient, Preflight};
pub use recovery::{
    Capacity, EphemeralBackend, Exclusion, Instance, InstancePolicy, LocalDiskWord, Maintenance, PolicyWord,
    Recovery, Release, ReleaseMode, StateAction, StateWord, Storm, Verify,
};
pub use sources::{
    Pull, PullAuth, PullKind, PullTls, Push, PushSchema, Rule, RuleMonitor, RuleVerdict, Sources, TargetsFrom,
};

/// Nova's answers are understood between these.
const OLDEST: Microversion = Microversion::new(2, 53);
const NEWEST: Microversion = Microversion::new(2, 90);
/// A compute service reports every ten seconds. Looked at less often, its reports cannot be told from silence.
const LONGEST_SERVICES_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) const fn seconds(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(count))
}

pub(crate) const fn minutes(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(60 * count))
}

/// Everything the service can be told.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where it listens, and how much it takes.
    pub server: Server,
    /// What older callers may do.
    pub compat: Compat,
    /// Who may call it.
    pub access: Access,
    /// Where it keeps what it hears.
    pub storage: Storage,
    /// Who of the replicas acts.
    pub leader: Leader,
    /// Where decisions are written before they are carried out.
    pub journal: Journal,
    /// What it does in Kubernetes.
    pub kubernetes: Kubernetes,
    /// The cloud.
    pub openstack: OpenStack,
    /// Signs of life of agents.
    pub agents: Agents,
    /// Telemetry besides that of agents.
    pub sources: Sources,
    /// When a host is dead.
    pub evidence: Evidence,
    /// What is watched.
    pub monitors: Monitors,
    /// How hosts are switched off.
    pub fencing: Fencing,
    /// When there are too many dead hosts to believe.
    pub storm: Storm,
    /// How guests are brought back.
    pub recovery: Recovery,
    /// Guests that crash on a living host.
    pub instance: Instance,
    /// What is done with a host that has a lasting trouble.
    pub degraded_action: DegradedAction,
    /// What a host must show before HA is enabled for it.
    pub ha_gate: HaGate,
    /// Room for the guests of a dead host.
    pub capacity: Capacity,
    /// Planned work.
    pub maintenance: Maintenance,
    /// Hosts that come back.
    pub release: Release,
    /// Whether the service itself is cut off.
    pub self_check: SelfCheck,
    /// What is looked at before it is needed.
    pub preflight: Preflight,
    /// How long things are kept.
    pub retention: Retention,
    /// What is logged, and in which form.
    pub log: Log,
}

/// What is logged, and in which form, where the command line says nothing.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A level, or `target=level,...`.
    pub level: String,
    /// The form of lines.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::Logfmt,
        }
    }
}

/// Where the service keeps what it hears.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// The folder of the databases.
    pub path: String,
    /// Most bytes of telemetry.
    pub max_bytes: u64,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            path: "/var/lib/kvm-ha-service".into(),
            max_bytes: 8 << 30,
        }
    }
}

/// Where decisions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalBackend {
    /// `kubernetes` with an elected leader, `sqlite` without one.
    #[default]
    Auto,
    /// Objects in the Kubernetes API; every replica can go on.
    #[serde(alias = "crd")]
    Kubernetes,
    /// A file of this replica alone.
    Sqlite,
}

/// Where decisions are written before they are carried out.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Journal {
    /// Where.
    pub backend: JournalBackend,
}

/// What happens to a running eviction when its host dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionOnTakeover {
    /// Our operator stops it by itself.
    #[default]
    Keep,
    /// The upstream operator does not; the object is deleted.
    Delete,
}

/// The API of Hypervisors. A word that is not known here is a mistake, so that nobody believes
/// objects to be looked after whose fields nobody understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum HypervisorApi {
    /// The one that the operator serves.
    #[default]
    #[serde(rename = "kvm.cloud.sap/v1")]
    V1,
}

/// What the service does in Kubernetes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// Whether there is a cluster; without one, hosts come from Nova only.
    pub enabled: bool,
    /// The API of Hypervisors: the only one whose fields are understood.
    pub hypervisor_api: HypervisorApi,
    /// Look after matching Hypervisors only.
    pub label_selector: String,
    /// Whether node leases are a signal.
    pub node_lease: bool,
    /// What happens to a running eviction when its host dies.
    pub eviction_on_takeover: EvictionOnTakeover,
    /// Labels of nodes that name their failure domains, outermost first.
    pub failure_domains: Vec<String>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            enabled: true,
            hypervisor_api: HypervisorApi::V1,
            label_selector: String::new(),
            node_lease: true,
            eviction_on_takeover: EvictionOnTakeover::Keep,
            failure_domains: vec![
                "topology.kubernetes.io/zone".into(),
                "kubernetes.metal.cloud.sap/bb".into(),
            ],
        }
    }
}

/// The cloud.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenStack {
    /// Whether there is one; without it nothing can be brought back and everything is only told.
    pub enabled: bool,
    /// The entry of `clouds.yaml`; `OS_*` variables when empty.
    pub cloud: String,
    /// The file with that entry.
    pub clouds_file: String,
    /// Which endpoints are used: `public`, `internal` or `admin`; as the cloud's entry says when empty.
    pub interface: String,
    /// The newest microversion of calls that need no newer one, from 2.53 to 2.90.
    pub microversion: String,
    /// The microversion of evacuations: 2.90 keeps the guest's state, 2.95 leaves it stopped.
    pub evacuate_microversion: String,
    /// The longest time for one call.
    pub timeout: HumanDuration,
    /// Calls per second while guests are moved, at most.
    pub rps: u32,
    /// How often compute services are listed.
    pub services_interval: HumanDuration,
    /// How often they are listed while a host is suspected.
    pub suspect_interval: HumanDuration,
    /// How often hypervisors are listed.
    pub hypervisors_interval: HumanDuration,
    /// How often changed servers are listed.
    pub servers_interval: HumanDuration,
}

impl Default for OpenStack {
    fn default() -> Self {
        Self {
            enabled: true,
            cloud: String::new(),
            clouds_file: String::new(),
            interface: String::new(),
            microversion: "2.90".into(),
            evacuate_microversion: "2.90".into(),
            timeout: seconds(10),
            rps: 10,
            services_interval: seconds(10),
            suspect_interval: seconds(3),
            hypervisors_interval: seconds(60),
            servers_interval: seconds(30),
        }
    }
}

/// What is done with a host that has a lasting trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DegradedAction {
    /// People are told.
    #[default]
    Alert,
    /// Nova gives it no new guests.
    Disable,
    /// The operator is asked to empty it.
    Drain,
}

/// What a host must show before HA is enabled for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum HaGate {
    /// Nothing besides its Hypervisor.
    #[default]
    #[serde(rename = "spec")]
    Spec,
    /// A fresh heartbeat.
    #[serde(rename = "agent")]
    Agent,
    /// A fresh heartbeat, and a fencing device that answers and is this machine's.
    #[serde(rename = "agent+fence")]
    AgentAndFence,
}

/// How long things are kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Events of guests.
    pub events: HumanDuration,
    /// Heartbeats, counted per minute.
    pub heartbeats: HumanDuration,
    /// Samples of pulled metrics.
    pub samples: HumanDuration,
    /// Verdicts of signals.
    pub signals: HumanDuration,
    /// Streams of agents that are gone.
    pub streams: HumanDuration,
    /// Guests nobody knows any more.
    pub vms: HumanDuration,
    /// Hosts nobody knows any more.
    pub hosts: HumanDuration,
    /// Incidents and the audit of people's actions.
    pub incidents: HumanDuration,
}

impl Default for Retention {
    fn default() -> Self {
        const fn days(count: u64) -> HumanDuration {
            seconds(86_400 * count)
        }
        Self {
            events: days(14),
            heartbeats: days(30),
            samples: seconds(6 * 3600),
            signals: days(2),
            streams: days(90),
            vms: days(7),
            hosts: days(30),
            incidents: days(400),
        }
    }
}

impl Config {
    /// Reads a file; every mistake is named.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        cobaltcore_kit::config::Config::new()
            .file(Some(path))
            .load_checked(Self::check)
    }

    /// Reads a text under a name.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        cobaltcore_kit::config::Config::new()
            .text(name, text)
            .load_checked(Self::check)
    }

    fn check(&self, mistakes: &mut Mistakes<'_>) {
        self.access.check(mistakes);
        self.server.check(mistakes);
        self.sources.check(&self.access, mistakes);
        self.agents.check(mistakes);
        self.evidence.check(mistakes);
        self.monitors.check(mistakes);
        fencing::check(&self.fencing, mistakes);
        self.storm.check(mistakes);
        self.recovery.check(mistakes);
        self.preflight.check(mistakes);
        self.check_leader(mistakes);
        for (key, value) in [
            ("openstack.timeout", self.openstack.timeout),
            ("openstack.services_interval", self.openstack.services_interval),
            ("openstack.suspect_interval", self.openstack.suspect_interval),
            (
                "openstack.hypervisors_interval",
                self.openstack.hypervisors_interval,
            ),
            ("openstack.servers_interval", self.openstack.servers_interval),
        ] {
            if value.0.is_zero() {
                mistakes.add(key, "must be longer than nothing");
            }
        }
        if self.openstack.services_interval.0 > LONGEST_SERVICES_INTERVAL {
            mistakes.add(
                "openstack.services_interval",
                "must be at most 10s: a compute service reports every ten seconds, and its silence is noticed by looking as often",
            );
        }
        if self.openstack.timeout.0 > Duration::from_secs(10) {
            mistakes.add(
                "openstack.timeout",
                "must be at most 10s: a leader that lost its lease must not have a call under way for longer",
            );
        }
        let understood = |version: &Microversion| (OLDEST..=NEWEST).contains(version);
        if crate::act::microversion(&self.openstack.microversion).is_none_or(|it| !understood(&it)) {
            mistakes.add(
                "openstack.microversion",
                "must be between \"2.53\", since when services have ids, and \"2.90\", the newest whose answers are \
                 understood; evacuations have openstack.evacuate_microversion",
            );
        }
        if let Err(error) = startup::check_filter(&self.log.level) {
            mistakes.add("log.level", error.to_string());
        }
        if crate::act::microversion(&self.openstack.evacuate_microversion).is_none() {
            mistakes.add(
                "openstack.evacuate_microversion",
                "must be a microversion such as \"2.90\"",
            );
        }
        if !matches!(
            self.openstack.interface.as_str(),
            "" | "public" | "internal" | "admin"
        ) {
            mistakes.add("openstack.interface", "must be public, internal or admin");
        }
        let (action, key) = (self.degraded_action, "degraded_action");
        if action == DegradedAction::Drain && !self.kubernetes.enabled {
            mistakes.add(
                key,
                "drain needs kubernetes.enabled: the operator empties the host",
            );
        }
        if action == DegradedAction::Disable && !self.openstack.enabled {
            mistakes.add(
                key,
                "disable needs openstack.enabled: Nova gives the host no new guests",
            );
        }
        if self.openstack.rps == 0 {
            mistakes.add("openstack.rps", "must be at least 1");
        }
    }

    /// Whether it says the same as another; what is secret in it counts as well.
    pub fn same(&self, other: &Self) -> bool {
        same(self, other) && self.access == other.access
    }

    /// The keys of `self` that differ from `old` and are read at the start only. They keep their old
    /// values until the process starts again.
    pub fn keep_fixed(&mut self, old: &Self) -> Vec<&'static str> {
        let mut changed = Vec::new();
        let mut keep = |key: &'static str, same: bool| {
            if !same {
                changed.push(key);
            }
        };
        keep("server", same(&self.server, &old.server));
        keep("storage", same(&self.storage, &old.storage));
        keep("leader", same(&self.leader, &old.leader));
        keep("journal", same(&self.journal, &old.journal));
        let Kubernetes {
            enabled,
            label_selector,
            node_lease,
            ..
        } = &self.kubernetes;
        keep("kubernetes.enabled", *enabled == old.kubernetes.enabled);
        keep(
            "kubernetes.label_selector",
            *label_selector == old.kubernetes.label_selector,
        );
        keep("kubernetes.node_lease", *node_lease == old.kubernetes.node_lease);
        let OpenStack {
            enabled,
            cloud,
            clouds_file,
            interface,
            microversion,
            ..
        } = &self.openstack;
        keep("openstack.enabled", *enabled == old.openstack.enabled);
        keep("openstack.cloud", *cloud == old.openstack.cloud);
        keep("openstack.clouds_file", *clouds_file == old.openstack.clouds_file);
        keep("openstack.interface", *interface == old.openstack.interface);
        keep(
            "openstack.microversion",
            *microversion == old.openstack.microversion,
        );
        keep("log.format", self.log.format == old.log.format);
        self.server = old.server.clone();
        self.storage = old.storage.clone();
        self.leader = old.leader.clone();
        self.journal = old.journal.clone();
        self.kubernetes.enabled = old.kubernetes.enabled;
        self.kubernetes
            .label_selector
            .clone_from(&old.kubernetes.label_selector);
        self.kubernetes.node_lease = old.kubernetes.node_lease;
        self.openstack.enabled = old.openstack.enabled;
        self.openstack.cloud.clone_from(&old.openstack.cloud);
        self.openstack.clouds_file.clone_from(&old.openstack.clouds_file);
        self.openstack.interface.clone_from(&old.openstack.interface);
        self.openstack
            .microversion
            .clone_from(&old.openstack.microversion);
        self.log.format = old.log.format;
        changed
    }

    /// Where decisions are written, `auto` resolved.
    pub fn journal_in_kubernetes(&self) -> bool {
        match self.journal.backend {
            JournalBackend::Auto => self.leader.enabled && self.kubernetes.enabled,
            JournalBackend::Kubernetes => true,
            JournalBackend::Sqlite => false,
        }
    }
}

/// Whether two parts say the same, as they would be written.
fn same<T: Serialize>(one: &T, two: &T) -> bool {
    serde_json::to_value(one).ok() == serde_json::to_value(two).ok()
}

#[cfg(test)]
mod tests;
