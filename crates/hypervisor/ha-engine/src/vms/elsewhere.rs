// SPDX-License-Identifier: Apache-2.0
//! Where a guest may be besides the host that died, and what becomes of one that had to wait. That a host says nothing
//! proves nothing.

use cobaltcore_api::names::{HostName, ServerId};

use crate::engine::{Engine, Seen};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Mono, Now};
use crate::input::{Inventory, MigrationFacts, MigrationKind};
use crate::journal::Entry;
use crate::ledger::{BlockedReason, Incident, IncidentState, VmProgress};
use crate::mutation::Mutation;

impl Engine {
    /// A guest that ran elsewhere and certainly does not any more is looked at again; that nothing is heard from there is no
    /// such certainty. So is one whose pause is over.
    pub(super) fn end_waits(&mut self, id: &IncidentId, now: Now) {
        for server in self.ended_waits(id, now) {
            self.set(id, &server, VmProgress::Pending, now);
        }
    }

    /// An incident that failed because a guest ran elsewhere or was paused goes on when that is over, if its host is still
    /// kept off and there is a place in flight.
    pub(crate) fn resume_waits(&mut self, id: &IncidentId, now: Now) {
        let failed = |incident: &Incident| incident.state == IncidentState::Failed;
        let waits = self.ledger.incidents.get(id).is_some_and(failed)
            && self.fence_holds(id, now).is_some()
            && self.in_flight() < self.config.max_hosts_in_flight;
        if waits && !self.ended_waits(id, now).is_empty() {
            let incident = id.clone();
            let state = IncidentState::Evacuating;
            self.write(Entry::Moved { incident, state }, now);
        }
    }

    /// Guests that ran elsewhere and certainly do not any more, and those that somebody paused and let go on.
    fn ended_waits(&self, id: &IncidentId, now: Now) -> Vec<ServerId> {
        let Some(incident) = self.ledger.incidents.get(id) else {
            return Vec::new();
        };
        let over = incident.vms.values().filter(|vm| match &vm.progress {
            VmProgress::Conflict { seen_on } => self.gone_from(&vm.server, seen_on, now),
            VmProgress::Blocked {
                reason: BlockedReason::Paused,
            } => self.unpaused_server(&vm.server),
            _ => false,
        });
        over.map(|vm| vm.server.clone()).collect()
    }

    /// Whether a host says that the guest is not there, or is off.
    fn gone_from(&self, server: &ServerId, host: &HostName, now: Now) -> bool {
        let says = |(at, inventory): &(Mono, Inventory)| {
            let shows = inventory.domains.active(server);
            now.mono.since(*at) <= self.config.inventory_fresh && !shows
        };
        let known = self.hosts.get(host).and_then(|host| host.inventory.as_ref());
        known.is_some_and(says) || self.kept_off(host, now)
    }

    /// Whether a host is off and was seen to be kept off right now: nothing runs there, whatever it
    /// said last.
    fn kept_off(&self, host: &HostName, now: Now) -> bool {
        // A fence of somebody else's incident counts only while it is seen to hold, like our own.
        let looked_at = |id: &IncidentId| {
            let checked = self.runs.get(id).and_then(|run| run.hold_ok);
            checked.is_some_and(|at| now.mono.since(at) <= self.config.hold_max_age)
        };
        self.ledger.incidents.values().any(|incident| {
            incident.id.host == *host
                && incident.state.open()
                && incident.fenced(self.config.required_grade)
                && !incident.fence_release_intended
                && looked_at(&incident.id)
        })
    }

    /// Another host whose list shows the guest. What a host said last counts as long as it speaks, also if its libvirt hangs and
    /// it has nothing new to say.
    pub(super) fn runs_elsewhere(&self, server: &ServerId, not: &HostName, now: Now) -> Option<HostName> {
        if self.broken.is(Mutation::IgnoreGuestElsewhere) {
            return None;
        }
        self.hosts.iter().find_map(|(name, host)| {
            let (at, inventory) = host.inventory.as_ref()?;
            let shows = inventory.domains.active(server);
            let fresh = now.mono.since(*at) <= self.config.inventory_fresh;
            let counts = fresh || host.evidence.of(Group::A).verdict == Verdict::Alive;
            // What a host said before it was switched off is not true any more.
            (name != not && shows && counts && !self.kept_off(name, now)).then(|| name.clone())
        })
    }

    /// Whether an evacuation went to a host that is itself off by now, so that nothing can come of it.
    pub(super) fn destination_fenced(&self, migration: &MigrationFacts, now: Now) -> bool {
        let Some(destination) = &migration.destination else {
            return false;
        };
        let planned = |incident: &Incident| {
            incident.id.host == *destination && incident.state.open() && incident.planned
        };
        self.ledger.incidents.values().any(planned) && self.kept_off(destination, now)
    }

    /// Whether a guest that is on its way elsewhere may still be brought up on this host: it was on its way there before, and
    /// what told the compute service so is read when that starts. Whoever is new to a guest does not know. The same of guests
    /// that are `about` to be asked for elsewhere, which is possible as long as this host is off.
    pub(crate) fn may_still_take(&self, host: &HostName, about: bool) -> bool {
        let open = self.ledger.incidents.values();
        let open = open.filter(|incident| incident.state.open() && incident.id.host != *host);
        let mut vms = open.flat_map(|incident| incident.vms.values().map(|vm| (&incident.id, vm)));
        vms.any(|(id, vm)| {
            let (on_its_way, known) = match vm.progress {
                VmProgress::Requested | VmProgress::InFlight { .. } => (true, !vm.known.is_empty()),
                VmProgress::Pending => (about, vm.attempt > 0),
                _ => (false, false),
            };
            let run = self.runs.get(id).and_then(|run| run.vms.get(&vm.server));
            let went_here = |seen: &Seen| {
                seen.migrations.iter().any(|m| {
                    // The record that is followed is the one it is to arrive by.
                    let followed = vm.progress == VmProgress::InFlight { migration: m.id };
                    let before = vm.progress == VmProgress::Pending || vm.known.contains(&m.id) && !followed;
                    let here = m.kind == MigrationKind::Evacuation && m.destination.as_ref() == Some(host);
                    here && before && m.status.open()
                })
            };
            let unread = || run.is_none_or(|run| run.read.is_none());
            let before = || run.and_then(|run| run.read.as_ref()).is_some_and(went_here);
            on_its_way && known && (unread() || before())
        })
    }

    /// Whether a live migration is known not to have brought the guest to its destination: the
    /// destination listed its guests since we began to ask and has not got it, or it is off.
    pub(super) fn did_not_arrive(&self, migration: &MigrationFacts, since: Option<Mono>, now: Now) -> bool {
        let listed = || {
            let (at, inventory) = self
                .hosts
                .get(migration.destination.as_ref()?)?
                .inventory
                .as_ref()?;
            let fresh = *at >= since? && now.mono.since(*at) <= self.config.inventory_fresh;
            let absent = !inventory.domains.active(&migration.server);
            Some(fresh && absent)
        };
        self.broken.is(Mutation::IgnoreGuestElsewhere)
            || listed() == Some(true)
            || self.destination_fenced(migration, now)
    }
}
