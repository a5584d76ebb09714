// SPDX-License-Identifier: Apache-2.0
//! Which guests of a dead host are moved, in which order, and what each is to be afterwards.

use cobaltcore_api::names::ServerId;

use crate::config::{Config, LocalDisk, VmPolicy};
use crate::engine::Engine;
use crate::ids::{Grade, IncidentId, Now};
use crate::input::{ServerFacts, VmState};
use crate::journal::Entry;
use crate::ledger::{BlockedReason, Loss, SkipReason, VmProgress, VmRecord, Wanted};
use crate::mutation::Mutation;
use crate::status::Notice;

impl Engine {
    pub(crate) fn make_plan(&mut self, id: &IncidentId, servers: &[ServerFacts], now: Now) {
        let grade = self.ledger.incidents.get(id).and_then(|incident| incident.grade);
        let vms: Vec<VmRecord> = servers
            .iter()
            .map(|server| {
                let mut progress = classify(server, id, grade, &self.config);
                if self.broken.is(Mutation::RebuildLocalDisks)
                    && progress
                        == (VmProgress::Skipped {
                            reason: SkipReason::LocalDisk,
                        })
                {
                    progress = VmProgress::Pending;
                }
                let mut record = record(server, progress);
                record.wanted = self.wanted_elsewhere(id, &server.id).unwrap_or(record.wanted);
                if self.broken.is(Mutation::StartStopped) {
                    record.wanted = Wanted::Running;
                }
                record
            })
            .collect();
        for vm in &vms {
            if let VmProgress::Blocked { reason } = &vm.progress {
                let why = format!("{reason:?}");
                self.tell(Notice::VmNeedsPerson {
                    incident: id.clone(),
                    server: vm.server.clone(),
                    why,
                });
            }
            if vm.progress
                == (VmProgress::Skipped {
                    reason: SkipReason::LocalDisk,
                })
            {
                let why = "its disk is local and would be rebuilt empty".to_owned();
                self.tell(Notice::VmNeedsPerson {
                    incident: id.clone(),
                    server: vm.server.clone(),
                    why,
                });
            }
        }
        self.write(
            Entry::Planned {
                incident: id.clone(),
                vms,
            },
            now,
        );
    }

    /// What a guest is to be that another incident has not finished with: Nova may show what that one
    /// made of it in between.
    fn wanted_elsewhere(&self, id: &IncidentId, server: &ServerId) -> Option<Wanted> {
        let others = self.ledger.incidents.values();
        let unfinished = others.filter(|other| other.id != *id && other.state.open());
        unfinished
            .filter_map(|other| other.vms.get(server))
            .find(|vm| !vm.progress.terminal())
            .map(|vm| vm.wanted)
    }
}

fn record(server: &ServerFacts, progress: VmProgress) -> VmRecord {
    VmRecord {
        server: server.id.clone(),
        name: server.name.clone(),
        priority: server.priority.min(1000),
        group: server.group.clone(),
        anti_affinity: server.anti_affinity.clone(),
        memory_mib: server.memory_mib,
        original: server.state,
        wanted: wanted(server),
        progress,
        attempt: 0,
        known: Vec::new(),
        locked: false,
        losses: losses(server),
        said: None,
    }
}

/// What goes with the host, whoever brings the guest back.
fn losses(server: &ServerFacts) -> Vec<Loss> {
    let memory = matches!(server.state, VmState::Paused | VmState::Suspended);
    let disks = server.local_disk || server.local_extras;
    let lost = [(memory, Loss::Memory), (disks, Loss::Disks)];
    lost.into_iter()
        .filter_map(|(is, loss)| is.then_some(loss))
        .collect()
}

/// As before the failure. A guest on its way down was to be stopped.
fn wanted(server: &ServerFacts) -> Wanted {
    let stopped = server.state == VmState::Stopped
        || server.task == "powering-off"
        || (server.state == VmState::Error && !server.running);
    if stopped { Wanted::Stopped } else { Wanted::Running }
}

fn classify(server: &ServerFacts, id: &IncidentId, grade: Option<Grade>, config: &Config) -> VmProgress {
    let skipped = |reason| VmProgress::Skipped { reason };
    if server.host.as_ref() != Some(&id.host) {
        return skipped(SkipReason::NotOnHost);
    }
    if server.excluded {
        return skipped(SkipReason::Excluded);
    }
    if server.policy.unwrap_or(config.default_policy) != VmPolicy::Evacuate {
        return skipped(SkipReason::Policy);
    }
    match server.state {
        VmState::Error if config.skip_states.contains(&VmState::Error) => {
            return skipped(SkipReason::ErrorState);
        }
        state if config.skip_states.contains(&state) => return skipped(SkipReason::Policy),
        _ => {}
    }
    if let Some(end) = out_of_reach(server) {
        return end;
    }
    if server.local_disk && config.local_disk == LocalDisk::Skip {
        return skipped(SkipReason::LocalDisk);
    }
    not_cut_off(server, grade).unwrap_or(VmProgress::Pending)
}

/// Why a guest in its state is not moved, whatever it was when the plan was made.
pub(crate) fn out_of_reach(server: &ServerFacts) -> Option<VmProgress> {
    let skipped = |reason| Some(VmProgress::Skipped { reason });
    match server.state {
        VmState::SoftDeleted | VmState::Deleted => skipped(SkipReason::Deleting),
        _ if server.task == "deleting" => skipped(SkipReason::Deleting),
        VmState::Building => skipped(SkipReason::Building),
        VmState::Shelved | VmState::ShelvedOffloaded => skipped(SkipReason::Shelved),
        VmState::Resized => Some(VmProgress::Blocked {
            reason: BlockedReason::Resized,
        }),
        _ => None,
    }
}

/// A host that is only cut off from its storage could still write what is elsewhere.
pub(crate) fn not_cut_off(server: &ServerFacts, grade: Option<Grade>) -> Option<VmProgress> {
    let writes = grade == Some(Grade::Storage) && !server.on_fenced_storage;
    writes.then_some(VmProgress::Blocked {
        reason: BlockedReason::NotStorageFenced,
    })
}
