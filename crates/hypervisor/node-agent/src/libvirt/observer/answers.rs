// SPDX-License-Identifier: Apache-2.0
//! What libvirt's answers change on the board. An answer that belongs to an earlier connection is not looked at, and one
//! that was overtaken by an event does not win over it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use cobaltcore_libvirt::error::Error as LibvirtError;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Answer, Body, Observer};
use crate::board::{LibvirtView, Link, Outage, OutageKind, Reading};
use crate::capacity::HostCells;
use crate::libvirt::guests::{Guests, apply_list};
use crate::libvirt::read::{Definition, Listing};
use crate::metrics::Source;
use crate::migration::Sign;

/// After a list that failed although the connection works.
const LIST_AGAIN: Duration = Duration::from_secs(5);

const LIST: &str = "list of guests";
const CAPABILITIES: &str = "capabilities";
const DOMAIN_CAPABILITIES: &str = "domain capabilities";
const FREE_PAGES: &str = "free pages";

impl Observer {
    pub(super) fn answer(&mut self, answer: Answer) {
        let current = self.live.as_ref().map(|live| live.generation);
        if current != Some(answer.generation) {
            return;
        }
        match answer.body {
            Body::Listed { began, result } => self.listed(began, result),
            Body::Host(result) => self.host(result),
            Body::DomainCapabilities(result) => self.put(DOMAIN_CAPABILITIES, result, |view, value| {
                let changed = value.is_some() && view.domain_capabilities != value;
                if value.is_some() {
                    view.domain_capabilities = value;
                }
                changed
            }),
            Body::Pages(result) => self.put(FREE_PAGES, result, |view, value| {
                let changed = view.free_pages != value;
                view.free_pages = value;
                changed
            }),
            Body::Definition(guest, result) => self.defined(guest, result),
        }
    }

    fn host(&mut self, result: Result<HostCells, String>) {
        if result.is_ok() {
            self.context.metrics.ages.fresh(Source::Capabilities);
        }
        let mut changed = false;
        self.put(CAPABILITIES, result, |view, host| {
            changed = view.cells.as_ref() != Some(&host);
            view.cells = Some(host);
            changed
        });
        let known = self
            .context
            .board
            .read(|model| model.libvirt.domain_capabilities.is_some());
        // A host that changed may have another hypervisor, and with it other abilities.
        if changed && known {
            self.read_domain_capabilities();
        }
        if changed {
            self.read_pages();
        }
    }

    /// Puts an answer on the board, or that there was none.
    fn put<T>(
        &self,
        call: &'static str,
        result: Result<T, String>,
        apply: impl FnOnce(&mut LibvirtView, T) -> bool,
    ) {
        self.context.board.update(|model| {
            let view = &mut model.libvirt;
            match result {
                Ok(value) => view.trouble.remove(call).is_some() | apply(view, value),
                Err(why) => view.trouble.insert(call, why.clone()) != Some(why),
            }
        });
    }

    fn listed(&mut self, began: Instant, result: Result<Listing, LibvirtError>) {
        let touched = self.touched.take().unwrap_or_default();
        let listing = match result {
            Ok(listing) => listing,
            Err(error) if error.is_closed() => return,
            Err(error) => return self.not_listed(&error),
        };
        self.context
            .metrics
            .resync_seconds
            .observe(began.elapsed().as_secs_f64());
        self.context.metrics.ages.fresh(Source::Libvirt);
        let new_connection = listing.versions.is_some();
        let mut early = std::mem::take(&mut self.early);
        let mut to_read = Vec::new();
        let endpoint = self
            .live
            .as_ref()
            .map(|live| live.connection.endpoint().to_owned());
        self.context.board.update(|model| {
            let view = &mut model.libvirt;
            let first = view.guests.is_none();
            let guests = view.guests.get_or_insert_with(|| std::mem::take(&mut early));
            let (mut changed, new) = apply_list(guests, &listing.guests, &listing.states, &touched);
            to_read = if new_connection {
                guests.keys().copied().collect()
            } else {
                new
            };
            changed |= first | view.trouble.remove(LIST).is_some();
            if let Some(versions) = listing.versions {
                let news = (
                    Some(versions.driver),
                    Some(versions.library),
                    Some(versions.hypervisor),
                    endpoint,
                );
                changed |= (
                    &view.driver,
                    &view.lib_version,
                    &view.hypervisor_version,
                    &view.uri,
                ) != (&news.0, &news.1, &news.2, &news.3);
                (view.driver, view.lib_version, view.hypervisor_version, view.uri) = news;
            }
            view.complete |= guests_are_read(view);
            changed
        });
        for guest in to_read {
            self.reads.add(guest);
        }
        let known: HashSet<Uuid> = listing.guests.iter().map(|domain| domain.uuid).collect();
        self.reads.keep(&known);
        if new_connection {
            self.set_link(Link::Up);
        }
        if new_connection || std::mem::take(&mut self.missed_sign) {
            self.connected_sign();
        }
        if self.list_again {
            self.list(false);
        }
    }

    /// Tells the follower of migrations which guests run here.
    fn connected_sign(&mut self) {
        let Some(live) = self.live.clone() else { return };
        let (driver, active) = self.context.board.read(|model| {
            let guests = model.libvirt.guests.iter().flatten();
            let active: Vec<Uuid> = guests
                .filter(|(_, guest)| guest.active)
                .map(|(id, _)| *id)
                .collect();
            (model.libvirt.driver.clone().unwrap_or_default(), active)
        });
        self.sign(Sign::Connected {
            connection: live.connection,
            driver,
            active,
        });
    }

    fn not_listed(&mut self, error: &LibvirtError) {
        let why = error.to_string();
        let first = self.context.board.read(|model| model.libvirt.link != Link::Up);
        if first {
            self.set_link(Link::Down(Outage {
                kind: OutageKind::ProcessFailed,
                why,
            }));
            // A connection that cannot list guests is good for nothing; a new one may be.
            if let Some(live) = &self.live {
                let connection = live.connection.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LIST_AGAIN).await;
                    connection.close().await;
                });
            }
        } else {
            self.put(LIST, Err::<(), String>(why), |_, ()| false);
        }
    }

    fn defined(&mut self, guest: Uuid, result: Result<Definition, LibvirtError>) {
        let there = result
            .as_ref()
            .ok()
            .map(|found| !matches!(found, Definition::Gone));
        // An answer that was overtaken by another event is thrown away; the next one is under way.
        let overtaken = self.reads.done(guest, there);
        let Ok(definition) = result else { return };
        let all_read = self.reads.is_empty();
        self.context.board.update(|model| {
            let view = &mut model.libvirt;
            let Some(guests) = view.guests.as_mut() else {
                return false;
            };
            let mut changed = match definition {
                Definition::Gone if overtaken => false,
                Definition::Gone => guests.remove(&guest).is_some(),
                Definition::Known(claim) => set_claim(guests, guest, Reading::Known(claim)),
                Definition::Unreadable(why) => set_unreadable(guests, guest, why),
            };
            if !view.complete && (all_read || guests_are_read(view)) {
                view.complete = true;
                changed = true;
            }
            changed
        });
    }
}

fn guests_are_read(view: &LibvirtView) -> bool {
    let mut guests = view.guests.iter().flat_map(BTreeMap::values);
    guests.all(|guest| guest.claim != Reading::Pending)
}

fn set_claim(guests: &mut Guests, id: Uuid, claim: Reading) -> bool {
    let Some(guest) = guests.get_mut(&id) else {
        return false;
    };
    let changed = guest.claim != claim;
    guest.claim = claim;
    changed
}

/// A guest that was read before keeps its claim: what it takes did not vanish with the answer.
fn set_unreadable(guests: &mut Guests, id: Uuid, why: String) -> bool {
    let Some(guest) = guests.get_mut(&id) else {
        return false;
    };
    match &mut guest.claim {
        Reading::Known(claim) => {
            let line = format!("cannot be read again: {why}");
            let news = !claim.problems.contains(&line);
            if news {
                claim.problems.push(line);
            }
            news
        }
        other => {
            let new = Reading::Failed(why);
            let changed = *other != new;
            *other = new;
            changed
        }
    }
}
