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

impl Engine {
    pub(crate) fn make_plan(&mut self, id: &IncidentId, servers: &[ServerFacts], now: Now) {
        let grade = self.ledger.incidents.get(id).and_then(|incident| incident.grade);
        let vms: Vec<VmRecord> = servers
            .iter()
            .map(|server| {
                let progress = self.classified(id, server, grade);
                let mut record = record(server, progress);
                record.wanted = self.wanted_elsewhere(id, &server.id).unwrap_or(record.wanted);
                if self.broken.is(Mutation::StartStopped) {
                    record.wanted = Wanted::Running;
                }
                record
            })
            .collect();
        for vm in &vms {
            self.announce(id, &vm.server, &vm.progress, None);
        }
        self.write(
            Entry::Planned {
                incident: id.clone(),
                vms,
            },
            now,
        );
    }

    /// Whether a guest is to be moved, as it is now.
    pub(crate) fn classified(
        &self,
        id: &IncidentId,
        server: &ServerFacts,
        grade: Option<Grade>,
    ) -> VmProgress {
        let progress = classify(server, id, grade, &self.config);
        let reason = SkipReason::LocalDisk;
        if self.broken.is(Mutation::RebuildLocalDisks) && progress == (VmProgress::Skipped { reason }) {
            return VmProgress::Pending;
        }
        progress
    }

    /// What a guest is to be that another incident has not finished with: Nova may show what that one
    /// made of it in between.
    pub(crate) fn wanted_elsewhere(&self, id: &IncidentId, server: &ServerId) -> Option<Wanted> {
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
pub(crate) fn wanted(server: &ServerFacts) -> Wanted {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;

    fn id() -> IncidentId {
        IncidentId {
            epoch: Epoch(1),
            n: 1,
            host: "n1".parse().unwrap(),
            opened_ms: None,
        }
    }

    fn guest() -> ServerFacts {
        ServerFacts {
            id: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            name: "guest".to_owned(),
            host: Some(id().host),
            state: VmState::Active,
            task: String::new(),
            running: true,
            policy: None,
            excluded: false,
            priority: 500,
            group: String::new(),
            anti_affinity: None,
            memory_mib: 2048,
            local_disk: false,
            local_extras: false,
            on_fenced_storage: true,
            lock: None,
            user_action_ms: None,
            acted_since_move: false,
            user_stops: false,
        }
    }

    /// What becomes of a guest of a dead host that is off.
    fn fate(change: impl FnOnce(&mut ServerFacts), configure: impl FnOnce(&mut Config)) -> VmProgress {
        let (mut guest, mut config) = (guest(), Config::default());
        change(&mut guest);
        configure(&mut config);
        classify(&guest, &id(), Some(Grade::Power), &config)
    }

    const MOVED: VmProgress = VmProgress::Pending;

    const fn left(reason: SkipReason) -> VmProgress {
        VmProgress::Skipped { reason }
    }

    #[test]
    fn a_guest_of_a_dead_host_is_moved_if_its_owner_or_the_default_wants_it() {
        use VmPolicy::{Evacuate, Ignore, Restart};
        let policy = left(SkipReason::Policy);
        for (asked, default, wanted) in [
            (None, Evacuate, &MOVED),
            (None, Restart, &policy),
            (None, Ignore, &policy),
            (Some(Evacuate), Evacuate, &MOVED),
            (Some(Evacuate), Ignore, &MOVED),
            (Some(Evacuate), Restart, &MOVED),
            (Some(Restart), Evacuate, &policy),
            (Some(Ignore), Evacuate, &policy),
        ] {
            let found = fate(
                |guest| guest.policy = asked,
                |config| config.default_policy = default,
            );
            assert_eq!(found, *wanted, "asked for {asked:?}, {default:?} by default");
        }
        let excluded = |guest: &mut ServerFacts| (guest.excluded, guest.policy) = (true, Some(Evacuate));
        assert_eq!(
            fate(excluded, |_| {}),
            left(SkipReason::Excluded),
            "whatever it asks for"
        );
        let elsewhere = |guest: &mut ServerFacts| guest.host = "n2".parse().ok();
        assert_eq!(fate(elsewhere, |_| {}), left(SkipReason::NotOnHost));
    }

    #[test]
    fn states_are_moved_unless_they_cannot_be_or_nobody_wants_them_to() {
        use VmState as S;
        let resized = VmProgress::Blocked {
            reason: BlockedReason::Resized,
        };
        for (state, usually, where_skipped) in [
            (S::Active, MOVED, left(SkipReason::Policy)),
            (S::Stopped, MOVED, left(SkipReason::Policy)),
            (S::Error, MOVED, left(SkipReason::ErrorState)),
            (S::Paused, MOVED, left(SkipReason::Policy)),
            (S::Suspended, MOVED, left(SkipReason::Policy)),
            (S::Rescued, MOVED, left(SkipReason::Policy)),
            (S::Resized, resized, left(SkipReason::Policy)),
            (S::Building, left(SkipReason::Building), left(SkipReason::Policy)),
            (S::Shelved, left(SkipReason::Shelved), left(SkipReason::Policy)),
            (
                S::ShelvedOffloaded,
                left(SkipReason::Shelved),
                left(SkipReason::Policy),
            ),
            (
                S::SoftDeleted,
                left(SkipReason::Deleting),
                left(SkipReason::Policy),
            ),
            (S::Deleted, left(SkipReason::Deleting), left(SkipReason::Policy)),
        ] {
            assert_eq!(fate(|guest| guest.state = state, |_| {}), usually, "{state:?}");
            let skipped = fate(
                |guest| guest.state = state,
                |config| config.skip_states = vec![state],
            );
            assert_eq!(skipped, where_skipped, "{state:?}, which is to be skipped");
            let others = fate(|_| {}, |config| config.skip_states = vec![state]);
            assert_eq!(
                others == MOVED,
                state != S::Active,
                "{state:?} is to be skipped, and it is active"
            );
        }
        let deleting = |guest: &mut ServerFacts| "deleting".clone_into(&mut guest.task);
        assert_eq!(fate(deleting, |_| {}), left(SkipReason::Deleting));
    }

    #[test]
    fn disks_that_would_be_lost_or_written_twice_keep_a_guest_where_it_is() {
        let local = |guest: &mut ServerFacts| guest.local_disk = true;
        assert_eq!(fate(local, |_| {}), left(SkipReason::LocalDisk));
        let rebuilt = fate(local, |config| config.local_disk = LocalDisk::Rebuild);
        assert_eq!(rebuilt, MOVED, "somebody accepted that");
        let mut guest = guest();
        guest.on_fenced_storage = false;
        let by = |grade| classify(&guest, &id(), Some(grade), &Config::default());
        let reason = BlockedReason::NotStorageFenced;
        assert_eq!(by(Grade::Storage), VmProgress::Blocked { reason });
        assert_eq!(by(Grade::Power), MOVED);
    }
}
