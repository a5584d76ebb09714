// SPDX-License-Identifier: Apache-2.0
//! Listens to libvirt. Every event becomes a record; after every gap (a lost connection, missed events, a restart of
//! the agent) the list of guests is compared with what was known, and each difference becomes a record too. Nothing
//! here ever ends because libvirt does.

pub(crate) mod disks;
pub mod known;
mod look;
mod memory;
pub(crate) mod reach;
mod read;
mod translate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{
    DEVICE_CLASS, DomainEntry, DomainState, Inventory, Job, Kind, ServerId, agent, bounds,
};
use cobaltcore_kit::{BoxError, CancellationToken};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::event::{Event, EventId};
use cobaltcore_libvirt::session::{Notice, Notices, Session};
use tokio::sync::watch;
use uuid::Uuid;

use crate::board::Context;
use crate::clock;
use crate::config::Events;
use crate::draft::Draft;
use crate::reaction::Incident;
use known::{Before, Guests, Listed};
use look::{Found, Look};
use memory::Memory;
use read::{Definitions, Row};

/// After a change the inventory is read this much later, so that many changes are one.
const SETTLE: Duration = Duration::from_millis(400);

struct Reader {
    context: Context,
    inventory: watch::Sender<Arc<Inventory>>,
    session: Session,
    notices: Notices,
    /// Came when a list had been read, and is no event.
    pending: Option<Notice>,
    connection: Option<Connection>,
    /// The version of this connection's libvirt is known.
    version_known: bool,
    /// What is read now; events go on being taken.
    look: Option<Look>,
    /// Another look is wanted when that one is over; whether events were missed.
    again: Option<bool>,
    /// When to look for another reason than that it is time.
    due: Option<tokio::time::Instant>,
    definitions: Definitions,
    /// Guests with events since the look under way, or the last one, began.
    touched: BTreeSet<Uuid>,
    /// Nothing was ever known of the guests of this boot.
    first: bool,
    /// Somebody asked for the list, and none was made since.
    asked: bool,
    /// The stream was lost and is not yet resumed.
    lost: bool,
    /// There was a connection before.
    connected_before: bool,
    memory: Memory,
}

/// Listens until `stop`.
pub(crate) async fn run(
    context: Context,
    inventory: watch::Sender<Arc<Inventory>>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let config = context.config();
    let file = config.spool.dir.join("guests.json");
    let (memory, remembered) = Memory::open(file, &context.boot.0).await;
    let first = remembered.is_none();
    if let Some(guests) = remembered {
        context.board.guests(|known| *known = guests);
    }
    let (session, notices) = Session::start(reach::session(&context.start, wanted(&config.events)));
    let reader = Reader {
        context,
        inventory,
        session,
        notices,
        pending: None,
        connection: None,
        version_known: false,
        look: None,
        again: None,
        due: None,
        definitions: Definitions::default(),
        touched: BTreeSet::new(),
        first,
        asked: false,
        lost: false,
        connected_before: false,
        memory,
    };
    reader.listen(stop).await;
    Ok(())
}

/// What is registered: what is reported, and lifecycle always, because the inventory lives from it.
fn wanted(events: &Events) -> Vec<EventId> {
    Kind::LIBVIRT
        .into_iter()
        .filter(|kind| *kind == Kind::Lifecycle || events.choice(*kind).is_some_and(|choice| choice.enabled))
        .filter_map(translate::event_id)
        .collect()
}

async fn next_notice(pending: &mut Option<Notice>, notices: &mut Notices) -> Option<Notice> {
    match pending.take() {
        Some(notice) => Some(notice),
        None => notices.next().await,
    }
}

impl Reader {
    async fn listen(mut self, stop: CancellationToken) {
        let mut config = self.context.config.clone();
        let mut sent = tokio::time::Instant::now();
        loop {
            let regular = sent + self.context.config().inventory.interval.0;
            let next = self.due.map_or(regular, |due| due.min(regular));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                notice = next_notice(&mut self.pending, &mut self.notices) => {
                    let Some(notice) = notice else { break };
                    self.take(notice);
                }
                (look, found) = Look::next(&mut self.look) => self.found(look, found),
                changed = config.changed() => {
                    if changed.is_err() { break }
                    let events = config.borrow_and_update().events.clone();
                    self.session.set_events(wanted(&events));
                    self.look_in(SETTLE);
                }
                () = self.context.board.resync.notified() => {
                    self.asked = true;
                    self.due = Some(tokio::time::Instant::now());
                }
                () = tokio::time::sleep_until(next) => {
                    self.due = None;
                    sent = tokio::time::Instant::now();
                    self.look(false);
                }
            }
        }
        self.session.stop().await;
        self.memory.finish().await;
    }

    /// Looks this much later, unless that happens before anyway.
    fn look_in(&mut self, pause: Duration) {
        self.due
            .get_or_insert_with(|| tokio::time::Instant::now() + pause);
    }

    /// Takes what the session tells. Nothing here waits for libvirt.
    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Up {
                connection,
                unsupported,
                ..
            } => {
                let unsupported: Vec<EventId> = unsupported.iter().map(|(id, _)| *id).collect();
                self.up(connection, &unsupported);
            }
            Notice::Event {
                event, received_ns, ..
            } => self.event(&event, received_ns),
            Notice::Lagged { missed } => {
                tracing::warn!(missed, "events of libvirt were missed; looking at every guest");
                self.context.metrics.missed(missed);
                self.look(true);
            }
            Notice::Down { why, .. } => self.down(&why.to_string()),
        }
    }

    fn up(&mut self, connection: Connection, unsupported: &[EventId]) {
        tracing::info!(endpoint = connection.endpoint(), "connected to libvirt");
        self.connection = Some(connection);
        self.version_known = false;
        self.definitions.forget_all();
        self.context.metrics.libvirt(true);
        if std::mem::replace(&mut self.connected_before, true) {
            self.context.metrics.reconnected();
        }
        self.context.board.change_libvirt(|facts| {
            facts.connected = true;
            facts.down_since = None;
            facts.last_ok = Some(Instant::now());
            facts.unsupported = unsupported
                .iter()
                .filter_map(|id| translate::kind_of(*id))
                .collect();
        });
        // What an older connection was asked is not answered any more.
        self.look = None;
        self.look(true);
        self.context.board.beat_now();
    }

    /// Looks at every guest, one look at a time. After a gap what differs from what was known is no surprise.
    fn look(&mut self, gap: bool) {
        let Some(connection) = &self.connection else {
            return;
        };
        if self.look.is_some() {
            self.again = Some(gap || self.again == Some(true));
            return;
        }
        self.again = None;
        self.touched.clear();
        self.look = Some(Look::begin(connection, gap || self.lost, self.version_known));
    }

    /// Takes what a look found.
    fn found(&mut self, look: Look, found: Found) {
        match found {
            Found::Guests(version, list) => {
                self.know_version(version);
                match list {
                    Ok(list) => {
                        self.compare(&list, look.gap);
                        let (known, disks) = (
                            std::mem::take(&mut self.definitions),
                            self.context.config().inventory.disks,
                        );
                        self.look = Some(look.go_on(list, known, disks));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot list the guests");
                        self.look_in(SETTLE * 5);
                    }
                }
            }
            Found::Entries(definitions, entries) => {
                self.definitions = definitions;
                // They may have been read before the event that changed them.
                for guest in &self.touched {
                    self.definitions.forget(*guest);
                }
                match entries {
                    Ok(entries) => self.seen(entries),
                    Err(error) => {
                        tracing::warn!(%error, "cannot read the guests");
                        self.look_in(SETTLE * 5);
                    }
                }
            }
        }
        if self.look.is_none()
            && let Some(gap) = self.again
        {
            self.look(gap);
        }
    }

    fn know_version(&mut self, version: Option<String>) {
        self.context.board.change_libvirt(|facts| {
            if let Some(version) = version {
                facts.version = version;
                self.version_known = true;
            }
        });
    }

    /// Every guest was seen: that is told, and that events come again once what was missed is known.
    fn seen(&mut self, entries: Vec<DomainEntry>) {
        let board = &self.context.board;
        let entries = board.guests(|guests| overtaken(entries, &self.touched, guests));
        self.publish(entries);
        self.context.board.looked(std::mem::take(&mut self.asked));
        if std::mem::take(&mut self.lost) {
            self.context.intake.put(Draft::agent(agent::STREAM_RESUMED));
        }
    }

    fn down(&mut self, why: &str) {
        tracing::warn!(why, "libvirt is not reachable; trying again");
        self.connection = None;
        self.look = None;
        self.again = None;
        self.context.metrics.libvirt(false);
        self.context.board.change_libvirt(|facts| {
            facts.connected = false;
            facts.down_since.get_or_insert_with(Instant::now);
        });
        if !std::mem::replace(&mut self.lost, true) {
            self.context
                .intake
                .put(Draft::agent(agent::STREAM_LOST).with("why", why));
        }
        self.context.board.beat_now();
    }

    /// Takes an event.
    fn event(&mut self, event: &Event, received_ns: u64) {
        let Some(draft) = translate::record(event, received_ns) else {
            return;
        };
        self.context.metrics.event(&draft);
        self.context
            .board
            .change_libvirt(|facts| facts.last_ok = Some(Instant::now()));
        let guest = translate::guest(&event.domain);
        let lifecycle = draft.kind == Kind::Lifecycle;
        let mut news = true;
        if lifecycle {
            self.touched.insert(guest.uuid);
            if matches!(
                draft.event.as_str(),
                "defined" | "undefined" | "started" | "stopped"
            ) {
                self.definitions.forget(guest.uuid);
            }
            let board = &self.context.board;
            news = board.guests(|guests| guests.heard(&guest, &draft.event, &draft.detail, draft.mono_ns));
        }
        if news {
            self.report(self.with_device(draft, guest.uuid));
        }
        if lifecycle {
            self.look_in(SETTLE);
        }
    }

    /// Says of a disk error which class of disk it was, so that the service can tell a host from its storage.
    fn with_device(&self, draft: Draft, guest: Uuid) -> Draft {
        let failed = draft.kind == Kind::IoError
            || (draft.kind, &*draft.event, &*draft.detail) == (Kind::Lifecycle, "suspended", "ioerror");
        if !failed {
            return draft;
        }
        let inventory = self.context.inventory.borrow().clone();
        let id = guest.hyphenated().to_string();
        let entry = inventory.domains.iter().find(|entry| entry.uuid.as_str() == id);
        let place = draft
            .attrs
            .get("src_path")
            .map(ToString::to_string)
            .unwrap_or_default();
        match entry.and_then(|entry| translate::device_class(&entry.disks, &place)) {
            Some(class) => draft.with(DEVICE_CLASS, class),
            None => draft,
        }
    }

    /// Reports what the configuration wants reported, and lets repairs look at it.
    fn report(&self, draft: Draft) {
        let events = &self.context.config().events;
        let guest = draft
            .domain
            .as_ref()
            .is_none_or(|guest| events.wants_guest(&guest.name));
        if !guest {
            return;
        }
        if let Some(incident) = Incident::of(&draft)
            && self.context.incidents.try_send(incident).is_err()
        {
            tracing::warn!(
                event = draft.event,
                "too much happens at once; no local repair for this"
            );
        }
        if events.wants(draft.kind, &draft.event, &draft.detail) {
            self.context.intake.put(draft);
        }
    }

    /// Reports what differs from what was known.
    fn compare(&mut self, list: &[Row], gap: bool) {
        self.context
            .board
            .change_libvirt(|facts| facts.last_ok = Some(Instant::now()));
        // Events that arrived meanwhile come first: they know better than the list.
        while let Some(notice) = self.notices.try_next() {
            if let Notice::Event {
                event, received_ns, ..
            } = notice
            {
                self.event(&event, received_ns);
            } else {
                self.pending = Some(notice);
                break;
            }
        }
        let listed: Vec<Listed> = list.iter().map(|(_, listed, ..)| listed.clone()).collect();
        let came = match (std::mem::take(&mut self.first), gap) {
            (true, _) => Before::Nothing,
            (false, true) => Before::Gap,
            (false, false) => Before::Events,
        };
        let (touched, now) = (&self.touched, clock::boot_ns());
        let (drafts, patience) = self.context.board.guests(|guests| {
            let drafts = guests.listed(&listed, touched, came, now);
            (drafts, guests.patience(now))
        });
        if came == Before::Events && !drafts.is_empty() {
            tracing::warn!(count = drafts.len(), "guests changed without an event");
        }
        if let Some(patience) = patience {
            self.look_in(patience);
        }
        for draft in drafts {
            self.report(draft);
        }
    }

    fn publish(&self, domains: Vec<cobaltcore_ha_wire::DomainEntry>) {
        self.inventory.send_if_modified(|inventory| {
            let changed = inventory.domains != domains || inventory.inventory_version == 0;
            if changed {
                let inventory_version = inventory.inventory_version + 1;
                *inventory = Arc::new(Inventory {
                    inventory_version,
                    domains,
                });
            }
            changed
        });
        self.context.board.guests(|guests| {
            self.context.metrics.instances(&guests.counts());
            // Events may have changed them although the list is as it was.
            self.memory.keep(guests);
        });
    }
}

/// What was read, with what events said since: they know better than answers to questions that were asked before.
fn overtaken(entries: Vec<DomainEntry>, touched: &BTreeSet<Uuid>, guests: &Guests) -> Vec<DomainEntry> {
    let mut missing = touched.clone();
    let newest = |mut entry: DomainEntry| {
        let id = Uuid::parse_str(entry.uuid.as_str()).ok();
        let Some(id) = id.filter(|id| missing.remove(id)) else {
            return Some(entry);
        };
        let known = guests.all.get(&id);
        // One that is being started is there, whatever it was before.
        if entry.reason == known::STARTING && !known.is_some_and(|known| known.state.active()) {
            return Some(entry);
        }
        let known = known?;
        if known.state != entry.state {
            entry.state = known.state;
            "unknown".clone_into(&mut entry.reason);
        }
        // One that runs has arrived, whatever was on its way when it was asked for.
        let arrived = known.state == DomainState::Running && entry.job == Job::MigrationIn;
        if arrived || !known.state.active() {
            entry.job = Job::None;
        }
        Some(entry)
    };
    let mut entries: Vec<DomainEntry> = entries.into_iter().filter_map(newest).collect();
    entries.extend(missing.into_iter().filter_map(|id| appeared(id, guests)));
    entries.sort_by(|one, two| one.uuid.cmp(&two.uuid));
    entries.truncate(bounds::DOMAINS);
    entries
}

/// A guest that came when the list had been read. The next look tells the rest.
fn appeared(id: Uuid, guests: &Guests) -> Option<DomainEntry> {
    let known = guests.all.get(&id).filter(|known| known.state.active())?;
    Some(DomainEntry {
        uuid: ServerId::new(id.hyphenated().to_string()).ok()?,
        name: bounds::clip(&known.name, bounds::NAME).to_owned(),
        state: known.state,
        reason: "unknown".to_owned(),
        vcpus: 0,
        mem_kib: 0,
        persistent: false,
        autostart: false,
        job: Job::None,
        disks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::Guest;

    #[test]
    fn what_events_said_during_a_look_counts_more_than_what_it_read() {
        let entry = |id: u128| DomainEntry {
            uuid: ServerId::new(Uuid::from_u128(id).to_string()).unwrap(),
            name: format!("instance-{id}"),
            state: DomainState::Running,
            reason: "booted".to_owned(),
            vcpus: 1,
            mem_kib: 1,
            persistent: true,
            autostart: false,
            job: Job::Other,
            disks: Vec::new(),
        };
        let mut guests = Guests::default();
        for (id, event, detail) in [
            (1, "stopped", "failed"),
            (2, "resumed", "unpaused"),
            (3, "stopped", "failed"),
            (5, "started", "migrated"),
            (6, "resumed", "migrated"),
            (7, "resumed", "migrated"),
            (8, "stopped", "destroyed"),
            (9, "defined", "added"),
        ] {
            let guest = Guest {
                uuid: Uuid::from_u128(id),
                name: format!("instance-{id}"),
                id: 1,
            };
            guests.heard(&guest, event, detail, 1);
        }
        // Of the third nothing was heard since; the fourth is gone; the fifth arrives and the sixth has; the seventh and the
        // eighth were not there yet when the list was read; the ninth is being started.
        let touched = BTreeSet::from([1, 2, 4, 5, 6, 7, 8, 9].map(Uuid::from_u128));
        let mut entries: Vec<DomainEntry> = [1, 2, 3, 4].map(entry).into();
        entries.extend([5, 6].map(|id| DomainEntry {
            state: DomainState::Paused,
            job: Job::MigrationIn,
            ..entry(id)
        }));
        entries.push(DomainEntry {
            state: DomainState::Paused,
            reason: known::STARTING.to_owned(),
            ..entry(9)
        });
        let found = overtaken(entries, &touched, &guests);
        let found: Vec<_> = found
            .iter()
            .map(|entry| (entry.name.as_str(), entry.state, entry.reason.as_str(), entry.job))
            .collect();
        assert_eq!(
            found,
            [
                ("instance-1", DomainState::Shutoff, "unknown", Job::None),
                ("instance-2", DomainState::Running, "booted", Job::Other),
                ("instance-3", DomainState::Running, "booted", Job::Other),
                ("instance-5", DomainState::Paused, "booted", Job::MigrationIn),
                ("instance-6", DomainState::Running, "unknown", Job::None),
                ("instance-7", DomainState::Running, "unknown", Job::None),
                ("instance-9", DomainState::Paused, "starting_up", Job::Other),
            ]
        );
    }
}
