// SPDX-License-Identifier: Apache-2.0
//! The durable half of the state: a fold over the journal and nothing else. The live engine
//! changes it only by the records it writes, so what a successor loads is what its predecessor
//! knew.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::ids::{BootId, Epoch, Grade, IncidentId, MigrationId};
use crate::input::{Decision, VmState};
use crate::journal::{Entry, JournalError, LOCK, Record, VERSION, forgotten};
use crate::status::{Gate, HeldReason};

/// Where an incident stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IncidentState {
    /// The host is down; nothing was done.
    Confirmed,
    /// It is to be fenced; there is no way back before its power is known.
    Fencing,
    /// It is off.
    Fenced,
    /// Its guests are being moved.
    Evacuating,
    /// All were.
    Recovered,
    /// Some were not.
    Failed,
    /// The host is being taken back.
    Releasing,
    /// It was.
    Released,
    /// It came back before anything was done.
    Cancelled,
    /// A person ended it.
    Closed,
}

impl IncidentState {
    /// Whether there is still something to do or to guard.
    pub fn open(self) -> bool {
        !matches!(self, Self::Released | Self::Cancelled | Self::Closed)
    }

    /// Whether it occupies one of the places in flight.
    pub fn in_flight(self) -> bool {
        matches!(self, Self::Fencing | Self::Fenced | Self::Evacuating)
    }

    /// Whether the guests are settled and the host is not in service again.
    pub(crate) fn settled(self) -> bool {
        matches!(
            self,
            Self::Recovered | Self::Failed | Self::Releasing | Self::Closed
        )
    }
}

/// What an incident is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// The host is dead.
    HostDown,
    /// It booted by itself, and its compute service did not come back.
    HostRebooted,
    /// It runs, but nobody reaches it.
    Isolated,
    /// Its kernel answers and nothing else.
    Hung,
    /// A person asked for it.
    OperatorRequested,
}

/// Whether a guest is to run at its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Wanted {
    Running,
    Stopped,
}

/// Where a guest stands on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[allow(missing_docs)]
pub enum VmProgress {
    Pending,
    Requested,
    InFlight { migration: MigrationId },
    Verifying { destination: HostName },
    Recovered { destination: HostName },
    Failed { reason: FailedReason },
    Skipped { reason: SkipReason },
    Blocked { reason: BlockedReason },
    Conflict { seen_on: HostName },
}

impl VmProgress {
    /// Whether nothing more happens to it by itself.
    pub fn terminal(&self) -> bool {
        matches!(
            self,
            Self::Recovered { .. }
                | Self::Failed { .. }
                | Self::Skipped { .. }
                | Self::Blocked { .. }
                | Self::Conflict { .. }
        )
    }

    /// Whether an evacuation may be under way.
    pub fn moving(&self) -> bool {
        matches!(self, Self::Requested | Self::InFlight { .. })
    }
}

/// Why a guest could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FailedReason {
    NoValidHost,
    NovaError,
    VerifyFailed,
    AttemptsExhausted,
}

/// Why a guest was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum SkipReason {
    NotOnHost,
    Excluded,
    Policy,
    /// Of earlier programs: a pause that was in force when the plan was made.
    Paused,
    LocalDisk,
    Deleting,
    Building,
    Shelved,
    ErrorState,
}

/// Why a person has to decide about a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum BlockedReason {
    Unsupported,
    Resized,
    NotStorageFenced,
    /// It was on its way, and its destination neither says whether it arrived nor is known to be off.
    ArrivalUnknown,
    /// Somebody paused it; it goes on when the pause ends.
    Paused,
}

/// What a guest has lost although it is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// What it held in memory: it was paused or suspended, and boots anew.
    Memory,
    /// What was on disks of its host: they are made anew, and empty.
    Disks,
}

/// A guest in the plan of an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmRecord {
    /// Which.
    pub server: ServerId,
    /// Its name, for people.
    pub name: String,
    /// 0 to 1000.
    pub priority: u16,
    /// Its start group.
    pub group: String,
    /// Its anti-affinity group, once it was asked for.
    pub anti_affinity: Option<String>,
    /// For the order.
    pub memory_mib: u64,
    /// Its state before.
    pub original: VmState,
    /// What it is to be afterwards.
    pub wanted: Wanted,
    /// Where it stands.
    pub progress: VmProgress,
    /// How often it was asked for.
    pub attempt: u32,
    /// The migration records there were before the latest request.
    pub known: Vec<MigrationId>,
    /// We may have locked it.
    #[serde(default)]
    pub locked: bool,
    /// What it loses although it is brought back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// What Nova said about where it stands, if that is more than the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// One incident, as the journal tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// Which.
    pub id: IncidentId,
    /// About what.
    pub kind: IncidentKind,
    /// Where it stands.
    pub state: IncidentState,
    /// Who opened it.
    pub by: String,
    /// The boot the host was last seen with.
    pub boot: Option<BootId>,
    /// The boot it was last heard of when somebody signed that it is off, or it was found to be; before that, when it was
    /// opened.
    pub off_after: Option<BootId>,
    /// Its shutdown had been announced.
    pub announced: bool,
    /// Why it was opened.
    pub evidence: Evidence,
    /// What people let it pass.
    pub approved: BTreeSet<Gate>,
    /// Somebody signed that the host is off.
    pub asserted: bool,
    /// Somebody ended it after it was claimed and before its power was touched.
    pub aborted: bool,
    /// What maintenance was, once a claim was intended.
    pub previous: Option<Maintenance>,
    /// Whether the claim was seen.
    pub claimed: bool,
    /// It is called off: what maintenance was before the claim is being given back.
    pub restoring: bool,
    /// A running eviction was told to end.
    pub eviction_stopped: bool,
    /// A power command was intended or the power was found off: there is no way back before it is known.
    pub fence_intended: bool,
    /// Orders to switch it off that may have left, and looks that found it off.
    pub fence_orders: u32,
    /// The level that is or was tried.
    pub level: usize,
    /// All that were: what one of them began may keep the host off although another one switched it off.
    pub levels: BTreeSet<usize>,
    /// What the fence proves, while it holds.
    pub grade: Option<Grade>,
    /// Whether device and node keep it off.
    pub held: bool,
    /// Whether the service was disabled before the fence.
    pub disabled: bool,
    /// Whether Nova was seen to have it forced down.
    pub forced_down: bool,
    /// Whether the condition was written.
    pub condition: bool,
    /// Whether the plan exists.
    pub planned: bool,
    /// Spare hosts that were called.
    pub spares: BTreeSet<HostName>,
    /// The plan.
    pub vms: BTreeMap<ServerId, VmRecord>,
    /// A release was asked for, and how far it came.
    pub fence_release_intended: bool,
    /// The fence is gone.
    pub fence_released: bool,
    /// The maintenance was given back.
    pub restored: bool,
    /// Since when its guests have been settled, and its host is not in service again.
    pub settled: Option<jiff::Timestamp>,
    /// When it was over. For people, and for how long it is remembered.
    pub ended: Option<jiff::Timestamp>,
}

impl Incident {
    /// Whether its power was or may have been touched: there is no way back before it is known.
    pub fn touched(&self) -> bool {
        self.fence_intended || self.grade.is_some() || self.planned
    }

    /// It is off since, and was last heard of in this boot. Who heard of none knows no better than those before.
    fn off_in(&mut self, boot: Option<&BootId>) {
        if let Some(boot) = boot {
            self.off_after = Some(boot.clone());
        }
    }

    /// Whether a person vouches for its host being off.
    pub(crate) fn by_word(&self) -> bool {
        self.asserted || self.grade == Some(Grade::Asserted)
    }

    /// Whether the fence is valid and good enough.
    pub fn fenced(&self, required: Grade) -> bool {
        self.grade.is_some_and(|grade| grade >= required)
    }
}

/// Everything the journal tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The latest term.
    pub epoch: Epoch,
    /// The latest record.
    pub seq: u64,
    /// All incidents, open and closed, that were not forgotten.
    pub incidents: BTreeMap<IncidentId, Incident>,
    /// How often guests were restarted in place.
    pub restarts: BTreeMap<ServerId, Restarts>,
}

/// Restarts of one guest in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restarts {
    /// How many, within one window.
    pub count: u32,
    /// When the latest was intended.
    pub at: jiff::Timestamp,
}

impl Ledger {
    /// Folds a whole journal, from its first record on or from those that stand for the first.
    pub fn replay(records: &[Record]) -> Result<Self, JournalError> {
        let gone = forgotten(records);
        let mut ledger = Self::default();
        for record in records {
            if record.entry.incident().is_some_and(|id| gone.contains(id)) {
                ledger.skip(record)?;
            } else {
                ledger.apply(record)?;
            }
        }
        Ok(ledger)
    }

    /// Folds the records of one incident, whatever was between them.
    pub fn retell(records: &[Record]) -> Result<Self, JournalError> {
        let mut ledger = Self::default();
        for record in records {
            ledger.seq = record.seq.saturating_sub(1);
            ledger.apply(record)?;
        }
        Ok(ledger)
    }

    /// The open incident of a host.
    pub fn open_incident(&self, host: &HostName) -> Option<&Incident> {
        self.incidents
            .values()
            .find(|incident| incident.state.open() && incident.id.host == *host)
    }

    /// Takes one more record.
    pub fn apply(&mut self, record: &Record) -> Result<(), JournalError> {
        self.skip(record)?;
        let seq = record.seq;
        self.fold(&record.entry, record.at)
            .map_err(|incident| JournalError::UnknownIncident { seq, incident })?;
        let about = record.entry.incident().and_then(|id| self.incidents.get_mut(id));
        if let Some(incident) = about {
            let over = !incident.state.open();
            incident.ended = over.then(|| incident.ended.unwrap_or(record.at));
            let settled = incident.state.settled();
            incident.settled = settled.then(|| incident.settled.unwrap_or(record.at));
        }
        Ok(())
    }

    /// Takes one more record without what it says.
    pub fn skip(&mut self, record: &Record) -> Result<(), JournalError> {
        let seq = record.seq;
        if record.version > VERSION {
            return Err(JournalError::Newer {
                seq,
                found: record.version,
            });
        }
        if seq != self.seq + 1 {
            return Err(JournalError::Gap {
                after: self.seq,
                found: seq,
            });
        }
        if record.epoch < self.epoch {
            return Err(JournalError::StaleTerm {
                seq,
                found: record.epoch.0,
                newest: self.epoch.0,
            });
        }
        self.seq = record.until();
        self.epoch = record.epoch;
        Ok(())
    }

    fn fold(&mut self, entry: &Entry, at: jiff::Timestamp) -> Result<(), IncidentId> {
        match entry {
            Entry::Led | Entry::PauseIntended { .. } | Entry::Left { .. } => {}
            Entry::Forgotten { incident } => {
                self.incidents.remove(incident);
            }
            Entry::RestartIntended { server, n, .. } => {
                self.restarts.insert(server.clone(), Restarts { count: *n, at });
            }
            Entry::Opened {
                incident,
                kind,
                by,
                boot,
                evidence,
                announced,
            } => {
                let mut opened = opened(incident, *kind, by, boot.clone(), Evidence::clone(evidence));
                opened.announced = *announced;
                self.incidents.insert(incident.clone(), opened);
            }
            Entry::Decided {
                incident,
                decision,
                held,
                boot,
                ..
            } => {
                let incident = self.get(incident)?;
                if *decision == Decision::AckFenced {
                    incident.off_in(boot.as_ref());
                }
                decide(incident, *decision, *held);
            }
            Entry::ClaimIntended { incident, previous } => {
                let incident = self.get(incident)?;
                incident.state = incident.state.max(IncidentState::Fencing);
                // Once only: a second look would find our own `ha`.
                incident.previous.get_or_insert_with(|| previous.clone());
                // Whoever cleared our maintenance may have had the service enabled as well.
                incident.forced_down = false;
                incident.condition = false;
            }
            Entry::Claimed { incident } => self.get(incident)?.claimed = true,
            Entry::StopEvictionIntended { incident } => self.get(incident)?.eviction_stopped = true,
            Entry::FenceIntended { incident, level } => {
                let incident = self.get(incident)?;
                incident.state = incident.state.max(IncidentState::Fencing);
                incident.level = *level;
                incident.levels.insert(*level);
                incident.fence_intended = true;
                incident.fence_orders += 1;
            }
            Entry::FenceWithdrawn { incident } => {
                let incident = self.get(incident)?;
                incident.fence_orders = incident.fence_orders.saturating_sub(1);
                incident.fence_intended = incident.fence_orders > 0;
            }
            Entry::Fenced {
                incident,
                level,
                grade,
                boot,
            } => {
                let incident = self.get(incident)?;
                incident.off_in(boot.as_ref());
                incident.state = incident.state.max(IncidentState::Fenced);
                incident.level = *level;
                incident.levels.insert(*level);
                incident.grade = Some(*grade);
                incident.fence_intended = true;
                incident.fence_orders += 1;
            }
            Entry::FenceLost { incident } => {
                let incident = self.get(incident)?;
                incident.grade = None;
                incident.held = false;
                incident.asserted = false;
            }
            Entry::HoldIntended { incident } | Entry::ConditionIntended { incident } => {
                self.get(incident)?;
            }
            Entry::RestoreIntended { incident } => self.get(incident)?.restoring = true,
            Entry::Held { incident } => self.get(incident)?.held = true,
            Entry::DisableIntended {
                incident,
                forced_down,
            } => {
                let incident = self.get(incident)?;
                incident.disabled |= !forced_down;
                // Whoever had enabled the service has taken the condition back as well.
                incident.condition &= !forced_down;
            }
            Entry::ForcedDown { incident } => self.get(incident)?.forced_down = true,
            Entry::SpareIntended { incident, host } => {
                self.get(incident)?.spares.insert(host.clone());
            }
            Entry::ConditionSet { incident } => self.get(incident)?.condition = true,
            Entry::Planned { incident, vms } => {
                let incident = self.get(incident)?;
                incident.planned = true;
                incident.state = incident.state.max(IncidentState::Evacuating);
                incident.vms = vms.iter().map(|vm| (vm.server.clone(), vm.clone())).collect();
            }
            Entry::EvacuateIntended {
                incident,
                server,
                attempt,
                known,
                wanted,
                anti_affinity,
            } => {
                if let Some(vm) = self.get(incident)?.vms.get_mut(server) {
                    vm.attempt = *attempt;
                    if anti_affinity.is_some() {
                        vm.anti_affinity.clone_from(anti_affinity);
                    }
                    vm.wanted = wanted.unwrap_or(vm.wanted);
                    vm.known.clone_from(known);
                    vm.progress = VmProgress::Requested;
                }
            }
            Entry::VmIntended {
                incident,
                server,
                what,
            } => {
                let vm = self.get(incident)?.vms.get_mut(server);
                if let Some(vm) = vm.filter(|_| what == LOCK) {
                    vm.locked = true;
                }
            }
            Entry::VmUnlocked { incident, server } => {
                if let Some(vm) = self.get(incident)?.vms.get_mut(server) {
                    vm.locked = false;
                }
            }
            Entry::Vm {
                incident,
                server,
                progress,
                said,
            } => {
                if let Some(vm) = self.get(incident)?.vms.get_mut(server) {
                    vm.progress.clone_from(progress);
                    vm.said.clone_from(said);
                }
            }
            Entry::Moved { incident, state } => self.get(incident)?.state = *state,
            Entry::FenceReleaseIntended { incident } => self.get(incident)?.fence_release_intended = true,
            Entry::FenceReleased { incident } => self.get(incident)?.fence_released = true,
            Entry::Restored { incident } => self.get(incident)?.restored = true,
        }
        Ok(())
    }

    fn get(&mut self, id: &IncidentId) -> Result<&mut Incident, IncidentId> {
        self.incidents.get_mut(id).ok_or_else(|| id.clone())
    }
}

fn opened(
    id: &IncidentId,
    kind: IncidentKind,
    by: &str,
    boot: Option<BootId>,
    evidence: Evidence,
) -> Incident {
    Incident {
        id: id.clone(),
        kind,
        state: IncidentState::Confirmed,
        by: by.to_owned(),
        off_after: boot.clone(),
        boot,
        announced: false,
        evidence,
        approved: BTreeSet::new(),
        asserted: false,
        aborted: false,
        previous: None,
        claimed: false,
        restoring: false,
        eviction_stopped: false,
        fence_intended: false,
        fence_orders: 0,
        level: 0,
        levels: BTreeSet::new(),
        grade: None,
        held: false,
        disabled: false,
        forced_down: false,
        condition: false,
        planned: false,
        spares: BTreeSet::new(),
        vms: BTreeMap::new(),
        fence_release_intended: false,
        fence_released: false,
        restored: false,
        settled: None,
        ended: None,
    }
}

fn decide(incident: &mut Incident, decision: Decision, held: Option<HeldReason>) {
    match decision {
        Decision::Approve => {
            // Records of earlier programs do not say what for; there an approval was one for everything.
            let gate = held.and_then(HeldReason::gate);
            match gate {
                Some(gate) => incident.approved.extend([gate]),
                None => incident.approved.extend(Gate::ALL),
            }
            // An approval after somebody cleared maintenance claims the host again.
            if gate.is_none_or(|gate| gate == Gate::Cleared) {
                incident.claimed = false;
            }
        }
        Decision::AckFenced => incident.asserted = true,
        Decision::Retry => {
            incident.state = IncidentState::Evacuating;
            for vm in incident.vms.values_mut() {
                // Whether it runs elsewhere, and what stands against it, is looked at again before anything is asked for.
                if matches!(
                    vm.progress,
                    VmProgress::Failed { .. } | VmProgress::Conflict { .. } | VmProgress::Blocked { .. }
                ) {
                    vm.progress = VmProgress::Pending;
                    vm.attempt = 0;
                } else if vm.progress.moving() {
                    // It stays asked for; if that fails after all, it is asked for anew.
                    vm.attempt = vm.attempt.min(1);
                }
            }
        }
        Decision::Release => incident.state = IncidentState::Releasing,
        // What was claimed is given back first.
        Decision::Abort if incident.state == IncidentState::Fencing => incident.aborted = true,
        Decision::Abort | Decision::Close => incident.state = IncidentState::Closed,
    }
}
