// SPDX-License-Identifier: Apache-2.0
//! How guests are brought back, and the brakes: storms, capacity, planned work, release.

use std::collections::BTreeMap;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::CapacityCheck;
use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{minutes, seconds};

/// When there are too many dead hosts to believe.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storm {
    /// Hosts between fencing and evacuation.
    pub max_hosts_in_flight: usize,
    /// Share of the fleet, never less than two hosts.
    pub max_fleet_percent: u32,
    /// Hosts of one failure domain.
    pub max_domain_hosts: usize,
    /// Share of a failure domain, never less than one host.
    pub max_domain_percent: u32,
    /// How long a host that was in trouble and came back still counts.
    pub window: HumanDuration,
    /// How long it must be calm.
    pub cooldown: HumanDuration,
    /// How long a finished incident still counts.
    pub memory: HumanDuration,
    /// Hosts whose power is off may go on during a storm.
    pub proven_dead_bypass: bool,
}

impl Default for Storm {
    fn default() -> Self {
        Self {
            max_hosts_in_flight: 3,
            max_fleet_percent: 10,
            max_domain_hosts: 2,
            max_domain_percent: 10,
            window: minutes(5),
            cooldown: minutes(5),
            memory: minutes(60),
            proven_dead_bypass: true,
        }
    }
}

impl Storm {
    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.max_hosts_in_flight == 0 {
            mistakes.add(
                "storm.max_hosts_in_flight",
                "must be at least 1; pause the service to stop it",
            );
        }
        if self.max_fleet_percent > 100 || self.max_domain_percent > 100 {
            mistakes.add("storm", "a share is at most 100");
        }
    }
}

/// What high availability does for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyWord {
    /// Moved when its host dies.
    Evacuate,
    /// Restarted in place only.
    Restart,
    /// Left alone.
    Ignore,
}

impl PolicyWord {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evacuate => "evacuate",
            Self::Restart => "restart",
            Self::Ignore => "ignore",
        }
    }
}

/// What is done with guests whose disk would be rebuilt empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalDiskWord {
    /// They are left alone.
    #[default]
    Skip,
    /// They are rebuilt; their data is lost.
    Rebuild,
}

/// Where ephemeral disks live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EphemeralBackend {
    /// In Ceph.
    #[default]
    Rbd,
    /// On shared storage.
    Shared,
    /// On the host.
    Local,
}

/// A state of guests for which something else may be wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateWord {
    /// Running.
    Active,
    /// Shut off.
    Stopped,
    /// Nova lost track of it.
    Error,
    /// Its memory is lost with the host; it boots anew.
    Paused,
    /// Its memory is lost with the host; it boots anew.
    Suspended,
    /// It boots its own disk again.
    Rescued,
}

/// What is done with guests in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateAction {
    /// They are moved.
    Evacuate,
    /// They are left alone.
    Skip,
}

/// Who must say that a moved guest is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Nova, and the agent of its new host where that says anything.
    #[default]
    Agent,
    /// Nova alone.
    Nova,
}

/// Guests that are never touched. Every field that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exclusion {
    /// The name, with `*` for any text.
    pub name: String,
    /// The project.
    pub project: String,
    /// The flavor's name, with `*` for any text.
    pub flavor: String,
    /// Metadata that the server must have.
    pub metadata: BTreeMap<String, String>,
    /// A tag of its image.
    pub image_tag: String,
}

/// How guests are brought back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recovery {
    /// Guests of one incident at once.
    pub vm_concurrency: usize,
    /// Guests of all incidents at once.
    pub global_concurrency: usize,
    /// After how long a moving guest counts as stuck.
    pub vm_timeout: HumanDuration,
    /// How often a guest is tried.
    pub vm_attempts: u32,
    /// The first pause between attempts; doubles.
    pub backoff: HumanDuration,
    /// What is done for guests that say nothing.
    pub default_policy: PolicyWord,
    /// What is done with guests whose disk would be rebuilt empty.
    pub local_disk: LocalDiskWord,
    /// Must be set for `local_disk: rebuild`.
    pub accept_data_loss: bool,
    /// Where ephemeral disks live.
    pub ephemeral_backend: EphemeralBackend,
    /// Where that differs: by the name of a host, `bb/NAME` or `zone/NAME`.
    pub ephemeral_backend_of: BTreeMap<String, EphemeralBackend>,
    /// What is done with guests in a state, where that differs from the usual: `evacuate` or `skip`.
    pub states: BTreeMap<StateWord, StateAction>,
    /// Who must say that a moved guest is well.
    pub verify: Verify,
    /// Whether guests are locked against their owners while they are moved.
    pub lock_servers: bool,
    /// Guests that are never touched.
    pub exclude: Vec<Exclusion>,
    /// Disabled hosts that may be enabled when the guests of a dead host find no room, in order.
    pub spares: Vec<HostName>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            vm_concurrency: 16,
            global_concurrency: 48,
            vm_timeout: seconds(600),
            vm_attempts: 5,
            backoff: seconds(10),
            default_policy: PolicyWord::Evacuate,
            local_disk: LocalDiskWord::Skip,
            accept_data_loss: false,
            ephemeral_backend: EphemeralBackend::Rbd,
            ephemeral_backend_of: BTreeMap::new(),
            states: BTreeMap::new(),
            verify: Verify::Agent,
            lock_servers: true,
            spares: Vec::new(),
            exclude: vec![
                Exclusion {
                    name: "amphora-*".into(),
                    ..Exclusion::default()
                },
                Exclusion {
                    image_tag: "amphora".into(),
                    ..Exclusion::default()
                },
            ],
        }
    }
}

impl Recovery {
    /// Where the ephemeral disks of a host are: what is said of it, of its building block, of its zone, of all.
    pub fn backend_of(&self, host: &HostName, bb: Option<&str>, zone: Option<&str>) -> EphemeralBackend {
        let of = |key: &str| self.ephemeral_backend_of.get(key).copied();
        of(host.as_str())
            .or_else(|| of(&format!("bb/{}", bb?)))
            .or_else(|| of(&format!("zone/{}", zone?)))
            .unwrap_or(self.ephemeral_backend)
    }

    pub(super) fn check(&self, mistakes: &mut Mistakes<'_>) {
        if self.local_disk == LocalDiskWord::Rebuild && !self.accept_data_loss {
            mistakes.add(
                "recovery.local_disk",
                "rebuild destroys the guests' data and needs recovery.accept_data_loss: true",
            );
        }
        if self.vm_concurrency == 0 || self.global_concurrency == 0 || self.vm_attempts == 0 {
            mistakes.add(
                "recovery",
                "vm_concurrency, global_concurrency and vm_attempts must be at least 1",
            );
        }
        for (n, spare) in self.spares.iter().enumerate() {
            if self.spares.iter().take(n).any(|other| other == spare) {
                mistakes.add(&format!("recovery.spares.{n}"), format!("{spare} is named twice"));
            }
        }
        if self.exclude.contains(&Exclusion::default()) {
            mistakes.add(
                "recovery.exclude",
                "an entry without any field excludes every guest",
            );
        }
    }
}

/// Whether crashed guests that say nothing are restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstancePolicy {
    /// Only those that ask for it.
    #[default]
    OptIn,
    /// All that do not refuse.
    OptOut,
}

/// Guests that crash on a living host.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Instance {
    /// Which are restarted.
    pub default_policy: InstancePolicy,
    /// How often, within the window.
    pub max_restarts: usize,
    /// The window.
    pub window: HumanDuration,
}

impl Default for Instance {
    fn default() -> Self {
        Self {
            default_policy: InstancePolicy::OptIn,
            max_restarts: 3,
            window: minutes(60),
        }
    }
}

/// Room for the guests of a dead host.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// What is done when there may be too little: `off`, `warn` or `hold`.
    pub check: CapacityCheck,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            check: CapacityCheck::Warn,
        }
    }
}

/// After how long something is taken over, or `never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Takeover {
    /// Never.
    #[default]
    Never,
    /// After this time.
    After(HumanDuration),
}

impl TryFrom<String> for Takeover {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "never" => Ok(Self::Never),
            time => time.parse().map(Self::After),
        }
    }
}

impl From<Takeover> for String {
    fn from(takeover: Takeover) -> Self {
        match takeover {
            Takeover::Never => "never".to_owned(),
            Takeover::After(span) => span.to_string(),
        }
    }
}

impl Takeover {
    /// The time, if there is one.
    pub fn span(self) -> Option<std::time::Duration> {
        match self {
            Self::Never => None,
            Self::After(span) => Some(span.0),
        }
    }
}

/// Planned work.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maintenance {
    /// After how long a dead host in `auto` maintenance is taken over.
    pub auto_takeover: HumanDuration,
    /// After how long one in `manual` maintenance is; `never` unless somebody says so.
    pub manual_takeover: Takeover,
    /// How long an announced shutdown may take to come back.
    pub planned_grace: HumanDuration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            auto_takeover: minutes(10),
            manual_takeover: Takeover::default(),
            planned_grace: minutes(15),
        }
    }
}

/// Who enables a released host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReleaseMode {
    /// The hypervisor operator.
    #[default]
    Operator,
    /// This service: there is no operator.
    Nova,
}

/// Hosts that come back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Release {
    /// Who enables them.
    pub mode: ReleaseMode,
    /// Whether they are released without being asked.
    pub auto: bool,
    /// After how long of good health.
    pub healthy_for: HumanDuration,
}

impl Default for Release {
    fn default() -> Self {
        Self {
            mode: ReleaseMode::Operator,
            auto: false,
            healthy_for: minutes(5),
        }
    }
}
