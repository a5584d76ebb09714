// SPDX-License-Identifier: Apache-2.0
//! What people see: the state of hosts and incidents, why something is held, and notices that
//! become events, alerts and log lines. Words for the Kubernetes API are chosen by the service.

use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use serde::{Deserialize, Serialize};

use crate::evidence::{Assessment, Evidence};
use crate::ids::{DeviceClass, Grade, IncidentId, Mono};
use crate::ledger::{IncidentState, Loss};

/// Why an open incident does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldReason {
    /// A pause is in force.
    Paused,
    /// Too many hosts at once.
    Storm,
    /// Too many hosts of one failure domain.
    DomainLimit,
    /// Three hosts are in flight.
    HostsInFlight,
    /// The service itself may be cut off.
    SelfIsolated,
    /// The leader is new.
    WarmUp,
    /// Somebody works on this host, or announced its shutdown.
    PlannedMaintenance,
    /// A person has to say yes.
    AwaitingApproval,
    /// The fencing device is not this host's, or contradicts it.
    IdentityMismatch,
    /// It could not be fenced.
    FenceFailed,
    /// It came back in spite of the fence.
    FenceLost,
    /// Nova does not do what is asked.
    NovaUnavailable,
    /// Nova does not list all guests.
    VmListIncomplete,
    /// Its guests would find no room elsewhere.
    NoCapacity,
    /// Maintenance was cleared by somebody.
    OperatorCleared,
    /// HA is off for this host.
    HaDisabled,
    /// It is wanted back, and does not come back into service.
    NotReturned,
    /// Kubernetes does not do what is asked.
    KubernetesRefuses,
}

/// What a person may let an incident pass. Each is approved for itself: whoever knows that a storm is real has not said
/// that the person who works on one of its hosts may be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Too many hosts at once, in the fleet or in a failure domain.
    Storm,
    /// Somebody works on the host, announced its shutdown, or set `ha`.
    Maintenance,
    /// Too little room.
    Capacity,
    /// Its maintenance was cleared.
    Cleared,
}

impl Gate {
    pub(crate) const ALL: [Self; 4] = [Self::Storm, Self::Maintenance, Self::Capacity, Self::Cleared];
}

impl HeldReason {
    /// The gate that an approval opens; none where there is nothing to approve.
    pub fn gate(self) -> Option<Gate> {
        match self {
            Self::Storm | Self::DomainLimit => Some(Gate::Storm),
            Self::PlannedMaintenance | Self::AwaitingApproval => Some(Gate::Maintenance),
            Self::NoCapacity => Some(Gate::Capacity),
            Self::OperatorCleared => Some(Gate::Cleared),
            Self::Paused
            | Self::HostsInFlight
            | Self::SelfIsolated
            | Self::WarmUp
            | Self::IdentityMismatch
            | Self::FenceFailed
            | Self::FenceLost
            | Self::NovaUnavailable
            | Self::VmListIncomplete
            | Self::HaDisabled
            | Self::NotReturned
            | Self::KubernetesRefuses => None,
        }
    }
}

/// A lasting trouble of a host that still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degraded {
    /// Watchdogs of many guests fired.
    WatchdogStorm,
    /// Disks of many guests failed.
    IoErrorStorm,
    /// Memory failed.
    MemoryFailure,
    /// libvirt does not answer.
    LibvirtUnreachable,
    /// The compute service is gone.
    NovaServiceDown,
}

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For the record.
    Info,
    /// Somebody should look today.
    Warning,
    /// Somebody should look now.
    Critical,
}

/// Something people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Notice {
    Suspect {
        host: HostName,
    },
    SuspicionEnded {
        host: HostName,
        assessment: Assessment,
    },
    AgentSilent {
        host: HostName,
    },
    Inconclusive {
        host: HostName,
        assessment: Assessment,
    },
    /// A device that said Off about a living host does so no more; so many readings were wrong.
    DeviceAgrees {
        host: HostName,
        times: u32,
    },
    Isolated {
        host: HostName,
    },
    Hung {
        host: HostName,
    },
    HostRebooted {
        host: HostName,
    },
    HostDegraded {
        host: HostName,
        what: Degraded,
    },
    /// A service of a living host is gone for a minute; its guests run on.
    ServiceGone {
        host: HostName,
        what: Degraded,
    },
    /// Disks of one class fail on many of the hosts that use it.
    StorageOutage {
        hosts: usize,
        device: Option<DeviceClass>,
    },
    State {
        incident: IncidentId,
        state: IncidentState,
    },
    Held {
        incident: IncidentId,
        reason: HeldReason,
    },
    Resumed {
        incident: IncidentId,
        reason: HeldReason,
    },
    VmRecovered {
        incident: IncidentId,
        server: ServerId,
    },
    /// A guest is back, and has lost something that its owner may miss.
    VmLost {
        incident: IncidentId,
        server: ServerId,
        what: Loss,
    },
    VmNeedsPerson {
        incident: IncidentId,
        server: ServerId,
        why: String,
    },
    VmStuck {
        incident: IncidentId,
        server: ServerId,
    },
    Zombie {
        host: HostName,
        server: ServerId,
    },
    /// Two hosts say that they run one guest.
    GuestDoubled {
        server: ServerId,
        hosts: [HostName; 2],
    },
    /// The watchdog of one guest fires again and again.
    GuestWatchdogs {
        host: HostName,
        server: ServerId,
    },
    /// Memory of a host failed beyond repair, once so far.
    MemoryFailed {
        host: HostName,
    },
    /// A host that was kept for a bad day takes guests now.
    SpareCalled {
        incident: IncidentId,
        host: HostName,
    },
    GuestRestarted {
        host: HostName,
        server: ServerId,
    },
    GuestGaveUp {
        host: HostName,
        server: ServerId,
    },
    GuestStorm {
        crashes: usize,
    },
    CommandRefused {
        incident: IncidentId,
        why: String,
    },
    RequestRefused {
        host: HostName,
        why: String,
    },
    RoomShort {
        incident: IncidentId,
        needed_mib: u64,
        free_mib: u64,
    },
    SelfIsolated {
        active: bool,
    },
    GroupUntrusted {
        group: crate::evidence::Group,
        untrusted: bool,
    },
}

impl Notice {
    /// How loud it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Held { .. }
            | Self::Isolated { .. }
            | Self::Hung { .. }
            | Self::StorageOutage { .. }
            | Self::VmNeedsPerson { .. }
            | Self::Zombie { .. }
            | Self::GuestDoubled { .. }
            | Self::SelfIsolated { active: true } => Severity::Critical,
            Self::Suspect { .. }
            | Self::AgentSilent { .. }
            | Self::Inconclusive { .. }
            | Self::HostDegraded { .. }
            | Self::ServiceGone { .. }
            | Self::VmStuck { .. }
            | Self::VmLost { .. }
            | Self::GuestGaveUp { .. }
            | Self::GuestWatchdogs { .. }
            | Self::MemoryFailed { .. }
            | Self::SpareCalled { .. }
            | Self::GuestStorm { .. }
            | Self::CommandRefused { .. }
            | Self::RequestRefused { .. }
            | Self::RoomShort { .. }
            | Self::GroupUntrusted { untrusted: true, .. } => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

/// One host as this replica judges it.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// The host.
    pub host: HostName,
    /// What its signals say, each with its age.
    pub evidence: Evidence,
    /// The verdict, and the rule behind it.
    pub assessment: Assessment,
    /// Whether it is suspected.
    pub suspect: bool,
    /// For how long its device has been saying Off although it lives, and how often.
    pub contradicted: Option<(Duration, u32)>,
    /// Whether its agent is gone while the host lives; detection needs one group more.
    pub blind: bool,
    /// Whether a person ended its incident and it has not been heard since: nothing is done to it.
    pub left: bool,
    /// Its lasting troubles.
    pub degraded: Vec<Degraded>,
    /// For how long every round has found it dead beyond any doubt.
    pub overwhelming_for: Option<Duration>,
    /// Its open incident.
    pub incident: Option<IncidentId>,
}

/// One incident.
#[derive(Clone, Debug)]
pub struct IncidentStatus {
    /// Which.
    pub id: IncidentId,
    /// Where it stands.
    pub state: IncidentState,
    /// Why it does not go on, if it does not.
    pub held: Option<HeldReason>,
    /// What is certain of its host, while it is fenced.
    pub fenced: Option<Grade>,
    /// When its fence was last seen to hold, in this term.
    pub hold_checked: Option<Mono>,
    /// Guests by how they stand: all, recovered, failed, skipped, blocked or in conflict.
    pub guests: [usize; 5],
    /// Guests that have been on their way for too long, as far as this term has seen.
    pub stuck: usize,
}
