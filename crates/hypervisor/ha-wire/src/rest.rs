// SPDX-License-Identifier: Apache-2.0
//! What viewers and operators read from the service: hosts, incidents with their journal, guests, pauses. Service,
//! command line and console share these types. Readers are lenient: a field they do not know is not for them.

use std::collections::BTreeMap;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{
    Assessment, Decision, Degraded, Evidence, Group, HeldReason, IncidentKind, IncidentState, Record,
    Verdict, VmRecord,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where viewers and operators ask. The functions fill the patterns in.
pub mod path {
    /// All hosts.
    pub const HOSTS: &str = "/api/v1/hosts";
    /// All incidents.
    pub const INCIDENTS: &str = "/api/v1/incidents";
    /// One decision for many incidents.
    pub const BULK: &str = "/api/v1/incidents/bulk";
    /// Stored events.
    pub const EVENTS: &str = "/api/v1/events";
    /// All guests.
    pub const VMS: &str = "/api/v1/vms";
    /// All pauses.
    pub const PAUSES: &str = "/api/v1/pauses";

    /// One host.
    pub fn host(host: &str) -> String {
        format!("{HOSTS}/{host}")
    }

    /// Why a host is judged as it is.
    pub fn evidence(host: &str) -> String {
        format!("{HOSTS}/{host}/evidence")
    }

    /// The wish that a host be recovered.
    pub fn recover(host: &str) -> String {
        format!("{HOSTS}/{host}/actions/recover")
    }

    /// One incident.
    pub fn incident(id: &str) -> String {
        format!("{INCIDENTS}/{id}")
    }

    /// A decision about an incident, by its word: `ack-fenced`, `approve`, `abort`, `retry`, `release`, `close`.
    pub fn decide(id: &str, decision: &str) -> String {
        format!("{INCIDENTS}/{id}/actions/{decision}")
    }

    /// A pause, by its scope: `global`, `zone/x`, `bb/x`, `host/x`, `vm/x`.
    pub fn pause(scope: &str) -> String {
        format!("{PAUSES}/{scope}")
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; nothing on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What one group of signals says of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The group.
    pub group: Group,
    /// What it says.
    pub verdict: Verdict,
    /// Milliseconds since the last sign of life it knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Too many hosts died in this group at once; its accusation does not count.
    #[serde(default)]
    pub untrusted: bool,
    /// In words.
    #[serde(default)]
    pub says: String,
}

/// Where a host stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum HostState {
    Healthy,
    Degraded,
    Suspect,
    Incident,
    Unmanaged,
    Disabled,
}

impl HostState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Suspect => "suspect",
            Self::Incident => "incident",
            Self::Unmanaged => "unmanaged",
            Self::Disabled => "disabled",
        }
    }
}

/// One host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// What Nova calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nova_host: Option<String>,
    /// Where it stands.
    pub state: HostState,
    /// Whether HA is on for it, and why or why not.
    pub ha_enabled: bool,
    /// In words.
    #[serde(default)]
    pub ha_reason: String,
    /// Its maintenance; empty if none.
    #[serde(default)]
    pub maintenance: String,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its building block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bb: Option<String>,
    /// The verdict about it.
    pub assessment: Assessment,
    /// Lasting troubles.
    #[serde(default)]
    pub degraded: Vec<Degraded>,
    /// What its signals say.
    #[serde(default)]
    pub signals: Vec<Signal>,
    /// Its open incident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// When its agent was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// How many guests it is known to have.
    #[serde(default)]
    pub instances: usize,
}

/// Why a host is judged as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostEvidence {
    /// The host.
    pub name: HostName,
    /// When this was computed.
    pub at: Timestamp,
    /// The verdict.
    pub assessment: Assessment,
    /// Whether it is suspected, so that everybody who could know is asked.
    #[serde(default)]
    pub suspect: bool,
    /// What each group says.
    pub signals: Vec<Signal>,
    /// The rules that were applied, and what each led to.
    pub rules: Vec<RuleOutcome>,
    /// The first rule that keeps it from being taken for dead, if any does.
    #[serde(default)]
    pub blocked_by: Option<String>,
    /// In one sentence: what happens, or what stands in the way.
    pub summary: String,
}

/// One rule of judgement, applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleOutcome {
    /// Its name.
    pub rule: String,
    /// Whether it lets the host be taken for dead.
    pub passed: bool,
    /// Why.
    pub because: String,
}

/// How the guests of an incident stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSummary {
    /// All of them.
    pub total: usize,
    /// Recovered elsewhere.
    pub recovered: usize,
    /// Tried in vain.
    pub failed: usize,
    /// Left alone.
    pub skipped: usize,
    /// Waiting for a person.
    pub blocked: usize,
    /// On their way for too long.
    #[serde(default)]
    pub stuck: usize,
}

/// One incident, as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncidentSummary {
    /// Its id.
    pub id: String,
    /// The host.
    pub host: HostName,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: IncidentKind,
    /// Where it stands.
    pub state: IncidentState,
    /// Why it does not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldReason>,
    /// Its guests.
    pub guests: GuestSummary,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When the latest record about it was written.
    pub updated_at: Timestamp,
    /// Whether there is still something to do or to guard.
    pub open: bool,
}

/// One incident with everything about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncidentDetail {
    /// What a list shows.
    #[serde(flatten)]
    pub summary: IncidentSummary,
    /// Who opened it.
    pub opened_by: String,
    /// What was known when it was opened.
    pub evidence: Evidence,
    /// The same in words.
    #[serde(default)]
    pub signals: Vec<Signal>,
    /// What happens next, or who must do what.
    pub next: String,
    /// What people may decide now.
    #[serde(default)]
    pub actions: Vec<Decision>,
    /// What the maintenance was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_maintenance: Option<String>,
    /// The guests.
    #[serde(default)]
    pub vms: Vec<VmRecord>,
    /// Every record about it, in order.
    #[serde(default)]
    pub journal: Vec<Record>,
}

/// A decision about an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// Why.
    pub reason: String,
    /// The name of the host, written out.
    pub confirm: String,
}

/// A decision about many incidents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// Which.
    pub filter: BulkFilter,
    /// What.
    pub action: Decision,
    /// Why.
    pub reason: String,
    /// Without it nothing is done and the answer says what would be.
    #[serde(default)]
    pub commit: bool,
}

/// Which incidents are meant; every field that is given must fit, and one must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkFilter {
    /// The zone of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The building block of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bb: Option<String>,
    /// Why the incident is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HeldReason>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<IncidentState>,
}

/// What became of a decision about many incidents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// Whether anything was done.
    pub committed: bool,
    /// One entry for each incident that fits.
    pub results: Vec<BulkResult>,
}

/// What became of one incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkResult {
    /// The incident.
    pub incident: String,
    /// Why it was refused; nothing if it was taken, or would be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Its UUID.
    pub uuid: ServerId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Where its agent sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_host: Option<String>,
    /// In which state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_state: Option<String>,
    /// Where Nova believes it to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nova_host: Option<String>,
    /// In which state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_state: Option<String>,
    /// The task under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_state: Option<String>,
    /// What HA does for it: `evacuate`, `restart`, `ignore` or `excluded`; empty before Nova has listed it.
    #[serde(default)]
    pub policy: String,
    /// Nobody asked for that policy: it is the one for all who say nothing.
    #[serde(default)]
    pub policy_default: bool,
    /// 0 to 1000.
    #[serde(default)]
    pub priority: u16,
    /// The incident that last moved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_incident: Option<String>,
}

/// One stored event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The agent.
    pub agent_id: String,
    /// Its number.
    pub seq: u64,
    /// The host.
    pub host: String,
    /// When it happened, by the host's clock.
    pub ts: Timestamp,
    /// When it arrived, by the service's clock.
    pub received_at: Timestamp,
    /// What it is about.
    pub kind: String,
    /// What happened.
    #[serde(default)]
    pub event: String,
    /// More precisely.
    #[serde(default)]
    pub detail: String,
    /// The guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What else is known.
    #[serde(default)]
    pub attrs: BTreeMap<String, crate::Scalar>,
    /// How many occurrences it stands for.
    pub count: u32,
    /// Derived, not received.
    #[serde(default)]
    pub synthetic: bool,
}

/// A pause: no new fencing and no new evacuation in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Where: `global`, `zone/x`, `bb/x`, `host/x` or `vm/x`.
    pub scope: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// Until when.
    pub until: Timestamp,
}

/// The wish to pause, or to announce planned work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Why.
    pub reason: String,
    /// Until when; at most a day ahead.
    pub until: Timestamp,
}

/// One host in the short form of the legacy interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyHost {
    /// Its name.
    pub name: HostName,
    /// Whether HA is on for it.
    pub enabled: bool,
    /// Where it stands.
    pub state: HostState,
    /// When its agent was last heard.
    #[serde(default)]
    pub last_seen: Option<Timestamp>,
}

/// What one replica tells another about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The host.
    pub host: HostName,
    /// Milliseconds since its last heartbeat there.
    #[serde(default)]
    pub age_ms: Option<u64>,
    /// The boot it named.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Milliseconds after that heartbeat in which its watchdog resets it if it is cut off; nothing without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_after_ms: Option<u64>,
    /// What a look at it found, if one was asked for: `app`, `kernel` or `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
}

/// What one replica tells another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserveAnswer {
    /// Which replica.
    pub replica: u8,
    /// Whether it leads.
    #[serde(default)]
    pub leads: bool,
    /// Its hosts.
    #[serde(default)]
    pub hosts: Vec<Observed>,
}
