// SPDX-License-Identifier: Apache-2.0
//! Where a guest runs is told by lists, and an old list tells nothing. While guests are to be moved, hosts that speak and
//! have not listed theirs for a while are asked to, and are waited for, for a moment.

use std::time::Duration;

use cobaltcore_api::names::HostName;

use super::SECOND;
use crate::action::Effect;
use crate::engine::{Engine, Host, Slot};
use crate::evidence::{Group, Verdict};
use crate::ids::{IncidentId, Mono, Now};
use crate::mutation::Mutation;

/// How often a host is asked, and how long one is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of the lists that an incident needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lists {
    looked: Option<Mono>,
    asked: Option<Mono>,
    /// Since when a host that speaks has been without a list that could tell anything.
    missing: Option<Mono>,
}

impl Engine {
    /// Asks for lists before they are too old.
    pub(crate) fn refresh_lists(&mut self, id: &IncidentId, now: Now) {
        let lists = self.run(id, now).lists;
        let lately = |at: Option<Mono>, span| at.is_some_and(|at| now.mono.since(at) < span);
        if lately(lists.looked, SECOND) || self.broken.is(Mutation::AskForNoLists) {
            return;
        }
        let fresh = self.config.inventory_fresh;
        let missing = self.unlisted(id, fresh, now).next().is_some();
        let old: Vec<HostName> = self.unlisted(id, fresh * 3 / 4, now).cloned().collect();
        let ask = !old.is_empty() && !lately(lists.asked, PATIENCE);
        self.run(id, now).lists = Lists {
            looked: Some(now.mono),
            asked: if ask { Some(now.mono) } else { lists.asked },
            missing: missing.then(|| lists.missing.unwrap_or(now.mono)),
        };
        if ask {
            self.act(Some(id), Slot::Lists, Effect::ListGuests { hosts: old }, now);
        }
    }

    /// Whether a list that was asked for may still come.
    pub(super) fn awaits_lists(&mut self, id: &IncidentId, now: Now) -> bool {
        let missing = self.run(id, now).lists.missing;
        missing.is_some_and(|since| now.mono.since(since) < PATIENCE)
    }

    /// Other hosts that speak, could list their guests, and have not done so for longer than `span`.
    fn unlisted(&self, id: &IncidentId, span: Duration, now: Now) -> impl Iterator<Item = &HostName> {
        let old = move |host: &Host| {
            let listed = host.inventory.as_ref().map(|(at, _)| *at);
            listed.is_none_or(|at| now.mono.since(at) > span)
        };
        let speaks = |host: &Host| {
            let heard = host.evidence.of(Group::A).verdict == Verdict::Alive;
            heard && host.signals.agent.libvirt
        };
        let others = self.hosts.iter().filter(|(name, _)| **name != id.host);
        others
            .filter(move |(_, host)| speaks(host) && old(host))
            .map(|(name, _)| name)
    }
}
