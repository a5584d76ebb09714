// SPDX-License-Identifier: Apache-2.0
//! Listens to libvirt. Every event becomes a record; after every gap (a lost connection, missed events, a restart of
//! the agent) the list of guests is compared with what was known, and each difference becomes a record too. Nothing
//! here ever ends because libvirt does.

pub(crate) mod disks;
pub mod known;
pub(crate) mod reach;
mod read;
mod translate;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{DEVICE_CLASS, Inventory, Kind, agent};
use cobaltcore_kit::{BoxError, CancellationToken};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::event::{Event, EventId};
use cobaltcore_libvirt::session::{Notice, Notices, Session};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use crate::board::Context;
use crate::clock;
use crate::config::Events;
use crate::draft::Draft;
use crate::reaction::Incident;
use known::{Guests, Listed};
use read::Definitions;

/// After a change the inventory is read this much later, so that many changes are one.
const SETTLE: Duration = Duration::from_millis(400);

/// What is remembered across restarts of the agent.
#[derive(Serialize, Deserialize)]
struct Remembered {
    boot: String,
    guests: Guests,
}

struct Reader {
    context: Context,
    inventory: watch::Sender<Arc<Inventory>>,
    session: Session,
    notices: Notices,
    /// Came while the list was read, and is no event.
    pending: Option<Notice>,
    connection: Option<Connection>,
    definitions: Definitions,
    /// Guests with events since the list under way was asked for.
    touched: BTreeSet<Uuid>,
    /// Nothing was ever known of the guests of this boot.
    first: bool,
    /// The stream was lost and is not yet resumed.
    lost: bool,
    /// There was a connection before.
    connected_before: bool,
    file: PathBuf,
}

/// Listens until `stop`.
pub(crate) async fn run(
    context: Context,
    inventory: watch::Sender<Arc<Inventory>>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let config = context.config();
    let file = config.spool.dir.join("guests.json");
    let remembered = remember(&file, &context.boot.0);
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
        definitions: Definitions::default(),
        touched: BTreeSet::new(),
        first,
        lost: false,
        connected_before: false,
        file,
    };
    reader.listen(stop).await;
    Ok(())
}

fn remember(file: &std::path::Path, boot: &str) -> Option<Guests> {
    let saved: Remembered = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    // Guests of another boot all ended with it, and the service learns that from the boot itself.
    (saved.boot == boot).then_some(saved.guests)
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
        let mut due: Option<tokio::time::Instant> = None;
        let mut sent = tokio::time::Instant::now();
        loop {
            let regular = sent + self.context.config().inventory.interval.0;
            let next = due.map_or(regular, |due| due.min(regular));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                notice = next_notice(&mut self.pending, &mut self.notices) => {
                    let Some(notice) = notice else { break };
                    if self.take(notice).await {
                        due.get_or_insert(tokio::time::Instant::now() + SETTLE);
                    }
                }
                changed = config.changed() => {
                    if changed.is_err() { break }
                    let events = config.borrow_and_update().events.clone();
                    self.session.set_events(wanted(&events));
                    due.get_or_insert(tokio::time::Instant::now() + SETTLE);
                }
                () = self.context.board.resync.notified() => due = Some(tokio::time::Instant::now()),
                () = tokio::time::sleep_until(next) => {
                    due = None;
                    sent = tokio::time::Instant::now();
                    if !self.look(false).await && self.connection.is_some() {
                        due = Some(sent + SETTLE * 5);
                    }
                }
            }
        }
        self.session.stop().await;
    }

    /// Takes what the session tells; says whether the inventory may have changed.
    async fn take(&mut self, notice: Notice) -> bool {
        match notice {
            Notice::Up {
                connection,
                unsupported,
                ..
            } => {
                self.up(
                    connection,
                    &unsupported.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
                )
                .await;
                true
            }
            Notice::Event { event, .. } => self.event(&event),
            Notice::Lagged { missed } => {
                tracing::warn!(missed, "events of libvirt were missed; looking at every guest");
                self.context.metrics.missed(missed);
                self.refresh(true).await;
                true
            }
            Notice::Down { why, .. } => {
                self.down(&why.to_string());
                false
            }
        }
    }

    async fn up(&mut self, connection: Connection, unsupported: &[EventId]) {
        let version = connection
            .lib_version()
            .await
            .map(cobaltcore_libvirt::names::version);
        tracing::info!(endpoint = connection.endpoint(), "connected to libvirt");
        self.connection = Some(connection);
        self.definitions.forget_all();
        self.context.metrics.libvirt(true);
        if std::mem::replace(&mut self.connected_before, true) {
            self.context.metrics.reconnected();
        }
        self.context.board.change_libvirt(|facts| {
            facts.connected = true;
            facts.down_since = None;
            facts.last_ok = Some(Instant::now());
            facts.version = version.unwrap_or_default();
            facts.unsupported = unsupported
                .iter()
                .filter_map(|id| translate::kind_of(*id))
                .collect();
        });
        self.touched.clear();
        self.look(true).await;
        self.context.board.beat_now();
    }

    /// Looks at every guest, and tells that events come again once what was missed is known.
    async fn look(&mut self, gap: bool) -> bool {
        let seen = self.refresh(gap || self.lost).await;
        if seen && std::mem::take(&mut self.lost) {
            self.context.intake.put(Draft::agent(agent::STREAM_RESUMED));
        }
        seen
    }

    fn down(&mut self, why: &str) {
        tracing::warn!(why, "libvirt is not reachable; trying again");
        self.connection = None;
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

    /// Takes an event; says whether the inventory may have changed.
    fn event(&mut self, event: &Event) -> bool {
        let Some(draft) = translate::record(event) else {
            return false;
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
        lifecycle
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

    /// Reads the guests; after a gap, reports what differs from what was known. Says whether it worked.
    async fn refresh(&mut self, gap: bool) -> bool {
        let Some(connection) = self.connection.clone() else {
            return false;
        };
        self.touched.clear();
        let list = match read::list(&connection).await {
            Ok(list) => list,
            Err(error) => {
                tracing::warn!(%error, "cannot list the guests");
                return false;
            }
        };
        self.context
            .board
            .change_libvirt(|facts| facts.last_ok = Some(Instant::now()));
        // Events that arrived meanwhile come first: they know better than the list.
        while let Some(notice) = self.notices.try_next() {
            if let Notice::Event { event, .. } = notice {
                self.event(&event);
            } else {
                self.pending = Some(notice);
                break;
            }
        }
        let listed: Vec<Listed> = list.iter().map(|(_, listed, ..)| listed.clone()).collect();
        let (touched, first) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.first));
        let drafts = self
            .context
            .board
            .guests(|guests| guests.listed(&listed, &touched, first, clock::boot_ns()));
        if !gap && !drafts.is_empty() {
            tracing::warn!(count = drafts.len(), "guests changed without an event");
        }
        for draft in drafts {
            self.report(draft);
        }
        let with_disks = self.context.config().inventory.disks;
        let entries = read::entries(&connection, &list, &mut self.definitions, with_disks).await;
        match entries {
            Ok(entries) => {
                self.publish(entries);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the guests");
                false
            }
        }
    }

    fn publish(&self, domains: Vec<cobaltcore_ha_wire::DomainEntry>) {
        let changed = self.inventory.send_if_modified(|inventory| {
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
        let counts = self.context.board.guests(|guests| guests.counts());
        self.context.metrics.instances(&counts);
        if changed {
            self.save();
        }
    }

    /// Remembers the guests for the next start of the agent. Losing this costs nothing but derived records.
    fn save(&self) {
        let saved = Remembered {
            boot: self.context.boot.0.clone(),
            guests: self.context.board.guests(|guests| guests.clone()),
        };
        let fresh = self.file.with_extension("new");
        let written = serde_json::to_vec(&saved)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&fresh, text))
            .and_then(|()| std::fs::rename(&fresh, &self.file));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot remember the guests");
        }
    }
}
