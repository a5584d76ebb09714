// SPDX-License-Identifier: Apache-2.0
//! The journal: every decision that must survive its maker, as versioned records. An intent is
//! written before its effect; the result is written when it was observed.

use std::collections::BTreeSet;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::ids::{BootId, Epoch, Grade, IncidentId, MigrationId};
use crate::input::Decision;
use crate::ledger::{IncidentKind, IncidentState, VmProgress, VmRecord, Wanted};
use crate::status::HeldReason;

/// The version of the records written here. Older ones are read; newer ones are refused, because
/// half-understood records are worse than none.
pub const VERSION: u16 = 6;

/// What is intended when a guest is locked against its owner.
pub(crate) const LOCK: &str = "lock";

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of its form.
    pub version: u16,
    /// Counts all records, from 1, without a gap.
    pub seq: u64,
    /// The term that wrote it. Storage refuses a record of a term older than its latest.
    pub epoch: Epoch,
    /// For people.
    pub at: jiff::Timestamp,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[allow(missing_docs)]
pub enum Entry {
    /// A term began; whatever an older one still tries to write is refused from here on.
    Led,
    Opened {
        incident: IncidentId,
        kind: IncidentKind,
        by: String,
        boot: Option<BootId>,
        evidence: Box<Evidence>,
        /// Somebody had announced that the host would be shut down.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        announced: bool,
    },
    /// A person decided, about an incident that was held for this, and whose host was last heard of in this boot.
    Decided {
        incident: IncidentId,
        decision: Decision,
        actor: String,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldReason>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<BootId>,
    },
    ClaimIntended {
        incident: IncidentId,
        previous: Maintenance,
    },
    Claimed {
        incident: IncidentId,
    },
    StopEvictionIntended {
        incident: IncidentId,
    },
    FenceIntended {
        incident: IncidentId,
        level: usize,
    },
    /// The latest order to switch it off never left.
    FenceWithdrawn {
        incident: IncidentId,
    },
    /// The host is off as far as `grade` says. `boot` is the last boot it was seen with.
    Fenced {
        incident: IncidentId,
        level: usize,
        grade: Grade,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<BootId>,
    },
    FenceLost {
        incident: IncidentId,
    },
    HoldIntended {
        incident: IncidentId,
    },
    Held {
        incident: IncidentId,
    },
    DisableIntended {
        incident: IncidentId,
        forced_down: bool,
    },
    ForcedDown {
        incident: IncidentId,
    },
    ConditionIntended {
        incident: IncidentId,
    },
    ConditionSet {
        incident: IncidentId,
    },
    /// A host that was kept disabled for a bad day is to take guests.
    SpareIntended {
        incident: IncidentId,
        host: HostName,
    },
    Planned {
        incident: IncidentId,
        vms: Vec<VmRecord>,
    },
    /// An evacuation of attempt `attempt` is about to be asked for; `known` are the records there are, `wanted` is what the
    /// guest is to be afterwards, if its owner has changed that since the plan was made, and `anti_affinity` its group, of
    /// which no other member is to be asked for meanwhile.
    EvacuateIntended {
        incident: IncidentId,
        server: ServerId,
        attempt: u32,
        known: Vec<MigrationId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wanted: Option<Wanted>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anti_affinity: Option<String>,
    },
    /// Something else is about to be done to the guest on its way.
    VmIntended {
        incident: IncidentId,
        server: ServerId,
        what: String,
    },
    Vm {
        incident: IncidentId,
        server: ServerId,
        progress: VmProgress,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The guest was seen not to be locked by us.
    VmUnlocked {
        incident: IncidentId,
        server: ServerId,
    },
    Moved {
        incident: IncidentId,
        state: IncidentState,
    },
    FenceReleaseIntended {
        incident: IncidentId,
    },
    FenceReleased {
        incident: IncidentId,
    },
    RestoreIntended {
        incident: IncidentId,
    },
    Restored {
        incident: IncidentId,
    },
    /// A guest is about to be restarted where it is.
    RestartIntended {
        host: HostName,
        server: ServerId,
        n: u32,
    },
    /// A guest that runs elsewhere is about to be paused here.
    PauseIntended {
        host: HostName,
        server: ServerId,
    },
    /// The incident has been over for long and is of no concern any more: its records may leave the journal.
    Forgotten {
        incident: IncidentId,
    },
    /// Stands for the records from this one to `until`, which left the journal.
    Left {
        until: u64,
    },
}

impl Entry {
    /// The incident it is about.
    pub fn incident(&self) -> Option<&IncidentId> {
        match self {
            Self::Led | Self::RestartIntended { .. } | Self::PauseIntended { .. } | Self::Left { .. } => None,
            Self::Opened { incident, .. }
            | Self::Decided { incident, .. }
            | Self::ClaimIntended { incident, .. }
            | Self::Claimed { incident }
            | Self::StopEvictionIntended { incident }
            | Self::FenceIntended { incident, .. }
            | Self::FenceWithdrawn { incident }
            | Self::Fenced { incident, .. }
            | Self::FenceLost { incident }
            | Self::HoldIntended { incident }
            | Self::Held { incident }
            | Self::DisableIntended { incident, .. }
            | Self::ForcedDown { incident }
            | Self::ConditionIntended { incident }
            | Self::ConditionSet { incident }
            | Self::SpareIntended { incident, .. }
            | Self::Planned { incident, .. }
            | Self::EvacuateIntended { incident, .. }
            | Self::VmIntended { incident, .. }
            | Self::Vm { incident, .. }
            | Self::VmUnlocked { incident, .. }
            | Self::Moved { incident, .. }
            | Self::FenceReleaseIntended { incident }
            | Self::FenceReleased { incident }
            | Self::RestoreIntended { incident }
            | Self::Restored { incident }
            | Self::Forgotten { incident } => Some(incident),
        }
    }
}

/// The incidents that a journal has forgotten. Of some of them it may still have a part of the records, which nobody reads:
/// they leave one place after the other.
pub fn forgotten(records: &[Record]) -> BTreeSet<IncidentId> {
    let said = records.iter().filter_map(|record| match &record.entry {
        Entry::Forgotten { incident } => Some(incident.clone()),
        _ => None,
    });
    said.collect()
}

impl Record {
    /// The number of the last record it stands for.
    pub fn until(&self) -> u64 {
        match self.entry {
            Entry::Left { until } => until.max(self.seq),
            _ => self.seq,
        }
    }
}

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JournalError {
    /// Written by a newer program.
    #[error("record {seq} has version {found}, this program knows up to {VERSION}: run the newer program")]
    Newer {
        /// Which record.
        seq: u64,
        /// Its version.
        found: u16,
    },
    /// A record is missing or doubled.
    #[error("record {found} follows record {after}: the journal is incomplete, restore it before going on")]
    Gap {
        /// The one before.
        after: u64,
        /// The one found.
        found: u64,
    },
    /// An older term wrote after a newer one.
    #[error("record {seq} is of term {found} but term {newest} had begun: two leaders wrote")]
    StaleTerm {
        /// Which record.
        seq: u64,
        /// Its term.
        found: u64,
        /// The term that had begun.
        newest: u64,
    },
    /// It speaks of an incident that was never opened.
    #[error("record {seq} is about incident {incident}, which was never opened")]
    UnknownIncident {
        /// Which record.
        seq: u64,
        /// The incident.
        incident: IncidentId,
    },
}
