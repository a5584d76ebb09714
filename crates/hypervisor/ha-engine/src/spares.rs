// SPDX-License-Identifier: Apache-2.0
//! Hosts that are kept disabled for a bad day. They are enabled, in the order they are named, when
//! the guests of a dead host would find no room without them, before the first of these is moved,
//! and one more whenever Nova finds no place for a guest. Disabling them again is left to people.

use cobaltcore_api::names::HostName;

use crate::action::{Effect, ServiceChange};
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Now};
use crate::input::Room;
use crate::journal::Entry;
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
            let short = needed.is_none_or(|needed| !free.holds(needed));
            if !short && wanted == 0 {
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
        self.enable_spare(id, spare, now);
    }

    /// An answer got lost, and the service still is disabled.
    fn call_again(&mut self, id: &IncidentId, spare: &HostName, now: Now) {
        let slot = Slot::Spare(spare.clone());
        let failed = self.run(id, now).retry.get(&slot).map_or(0, |(_, tries)| *tries);
        if (1..TRIES).contains(&failed) && self.ready(id, &slot, now) {
            self.enable_spare(id, spare, now);
        }
    }

    fn enable_spare(&mut self, id: &IncidentId, spare: &HostName, now: Now) {
        let effect = Effect::UpdateService {
            host: spare.clone(),
            change: ServiceChange::EnableSpare,
        };
        self.act(Some(id), Slot::Spare(spare.clone()), effect, now);
    }
}
