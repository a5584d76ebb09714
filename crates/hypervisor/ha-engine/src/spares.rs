// SPDX-License-Identifier: Apache-2.0
//! Hosts that are kept disabled for a bad day. They are enabled, in the order they are named, when
//! the guests of a dead host would find no room without them, before the first of these is moved;
//! one, where nobody knows how much they need; and one more whenever Nova finds no place for a guest
//! in spite of them. Disabling them again is left to people.

use cobaltcore_api::names::HostName;

use crate::action::{Effect, ServiceChange};
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Mono, Now};
use crate::input::Room;
use crate::journal::Entry;
use crate::mutation::Mutation;
use crate::recovery::Pass;
use crate::status::Notice;

/// How often it is tried to enable one.
const TRIES: u32 = 3;

impl Engine {
    /// Lets as many spare hosts take guests as are needed; passes when nobody is waited for.
    pub(crate) fn call_spares(&mut self, id: &IncidentId, now: Now) -> Pass {
        if self.config.spares.is_empty() {
            return Ok(());
        }
        let (needed, mut free) = self.room(&id.host);
        let refused = std::mem::take(&mut self.run(id, now).no_place);
        let mut wanted = usize::from(refused);
        for spare in self.config.spares.clone() {
            if !self.idle_spare(&spare) {
                continue;
            }
            let called = self
                .ledger
                .incidents
                .get(id)
                .is_some_and(|i| i.spares.contains(&spare));
            if called {
                // It counts already, although Nova does not show it yet.
                free = free.with(self.free_of(&spare));
                self.call_again(id, &spare, now);
                continue;
            }
            if !self.short(id, needed, free) && wanted == 0 {
                break;
            }
            wanted = wanted.saturating_sub(1);
            free = free.with(self.free_of(&spare));
            self.call_spare(id, &spare, now);
        }
        let waits = |spare: &HostName| self.busy(Some(id), &Slot::Spare(spare.clone()));
        if self.config.spares.iter().any(waits) {
            return Err(None);
        }
        Ok(())
    }

    /// Whether there is too little room without another spare. Where nobody says what is needed, or what those that were
    /// called have, one is called, and what Nova finds tells the rest.
    fn short(&self, id: &IncidentId, needed: Option<Room>, free: Room) -> bool {
        let called = self.ledger.incidents.get(id).map(|incident| &incident.spares);
        let mut called = called.into_iter().flatten();
        let facts = |spare: &HostName| self.hosts.get(spare).and_then(|host| host.facts.as_ref());
        let unknown = |spare: &HostName| facts(spare).is_none_or(|facts| facts.room.is_none());
        match needed {
            Some(needed) if !called.clone().any(unknown) => !free.holds(needed),
            _ => called.next().is_none() || self.broken.is(Mutation::CallEverySpare),
        }
    }

    /// Whether a host is a spare that works and takes no guests yet.
    pub(crate) fn idle_spare(&self, name: &HostName) -> bool {
        let idle = |host: &Host| {
            let service = host.signals.service;
            let disabled = service.disabled && !service.forced_down && service.up;
            let free = host
                .facts
                .as_ref()
                .is_some_and(|facts| facts.maintenance.is_off());
            let heard = host.evidence.of(Group::A).verdict == Verdict::Alive;
            disabled && free && heard && host.suspicion.is_none()
        };
        self.config.spares.contains(name)
            && self.hosts.get(name).is_some_and(idle)
            && self.ledger.open_incident(name).is_none()
    }

    /// What a host has left, as it says.
    pub(crate) fn free_of(&self, name: &HostName) -> Room {
        let facts = self.hosts.get(name).and_then(|host| host.facts.as_ref());
        facts.and_then(|facts| facts.room).unwrap_or_default()
    }

    fn call_spare(&mut self, id: &IncidentId, spare: &HostName, now: Now) {
        self.write(
            Entry::SpareIntended {
                incident: id.clone(),
                host: spare.clone(),
            },
            now,
        );
        self.tell(Notice::SpareCalled {
            incident: id.clone(),
            host: spare.clone(),
        });
        self.run(id, now).spare_called = Some(now.mono);
        self.enable_spare(id, spare, now);
    }

    /// Nova found no place for a guest. What it said to a request from before the latest spare host was called is no news.
    pub(crate) fn no_place(&mut self, id: &IncidentId, asked: Option<Mono>, now: Now) {
        let run = self.run(id, now);
        run.no_place |= run
            .spare_called
            .is_none_or(|called| asked.is_none_or(|asked| asked > called));
    }

    /// The service still is disabled: an answer got lost, or whoever called it in an earlier term was gone before it asked.
    /// To enable it twice is to enable it once.
    fn call_again(&mut self, id: &IncidentId, spare: &HostName, now: Now) {
        let slot = Slot::Spare(spare.clone());
        let run = self.run(id, now);
        let failed = run.retry.get(&slot).map_or(0, |(_, tries)| *tries);
        let unasked = !run.spares_asked.contains(spare);
        if (unasked || (1..TRIES).contains(&failed)) && self.ready(id, &slot, now) {
            self.enable_spare(id, spare, now);
        }
    }

    fn enable_spare(&mut self, id: &IncidentId, spare: &HostName, now: Now) {
        self.run(id, now).spares_asked.insert(spare.clone());
        let effect = Effect::UpdateService {
            host: spare.clone(),
            change: ServiceChange::EnableSpare,
        };
        self.act(Some(id), Slot::Spare(spare.clone()), effect, now);
    }
}
