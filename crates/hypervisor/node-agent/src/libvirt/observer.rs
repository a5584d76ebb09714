// SPDX-License-Identifier: Apache-2.0
//! The loop behind [`super::observe`]: takes what the session tells, puts it on the board, and sends out questions as
//! tasks of their own. It never waits for an answer, so that an event is on the board as soon as it is here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use cobaltcore_api::DomainCapabilities;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::{BoxError, CancellationToken};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::error::Error as LibvirtError;
use cobaltcore_libvirt::event::{Event, EventBody};
use cobaltcore_libvirt::session::{Notice, Notices, Session, State};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::guests::{Guests, apply_event, apply_list};
use super::read::{self, Definition, Listing};
use crate::board::{Link, Outage, OutageKind, Reading};
use crate::capacity::HostCells;
use crate::context::Context;
use crate::migration::Sign;

/// Definitions read at once. The daemon stops listening to a client with five calls under way.
const AT_ONCE: usize = 3;
/// Loops must show progress well within the minute that liveness allows.
const BEAT: Duration = Duration::from_secs(20);
/// After a list that failed although the connection works.
const LIST_AGAIN: Duration = Duration::from_secs(5);

const LIST: &str = "list of guests";
const CAPABILITIES: &str = "capabilities";
const DOMAIN_CAPABILITIES: &str = "domain capabilities";

/// Why observing ended.
pub(super) enum End {
    /// The agent stops.
    Stopped,
    /// The unit that runs libvirt was stopped.
    ServiceStopped,
}

/// An answer of libvirt, with the connection it belongs to.
struct Answer {
    generation: u64,
    body: Body,
}

enum Body {
    Listed {
        began: Instant,
        result: Result<Listing, LibvirtError>,
    },
    Host(Result<HostCells, String>),
    DomainCapabilities(Result<Option<DomainCapabilities>, String>),
    Definition(Uuid, Result<Definition, LibvirtError>),
}

/// The connection in use.
#[derive(Clone)]
struct Live {
    connection: Connection,
    generation: u64,
}

/// Definitions that wait to be read.
#[derive(Default)]
struct Reads {
    waiting: VecDeque<Uuid>,
    queued: HashSet<Uuid>,
    running: HashSet<Uuid>,
    read_at: HashMap<Uuid, Instant>,
}

impl Reads {
    fn add(&mut self, guest: Uuid) {
        if self.queued.insert(guest) {
            self.waiting.push_back(guest);
        }
    }

    /// The next guest to read. One that is being read has to wait: its answer may be older than the wish.
    fn next(&mut self) -> Option<Uuid> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let at = self
            .waiting
            .iter()
            .position(|guest| !self.running.contains(guest))?;
        let guest = self.waiting.remove(at)?;
        self.queued.remove(&guest);
        self.running.insert(guest);
        Some(guest)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

/// Observes one session.
pub(super) struct Observer {
    context: Context,
    signs: mpsc::Sender<Sign>,
    /// Whether the follower of migrations missed something.
    missed_sign: bool,
    live: Option<Live>,
    answers: JoinSet<Answer>,
    reads: Reads,
    /// Guests that events told of before the first list.
    early: Guests,
    /// Guests with events since the list under way was asked for; `None` when none is under way.
    touched: Option<HashSet<Uuid>>,
    /// Whether another list is wanted as soon as the one under way is back.
    list_again: bool,
    next_resync: Instant,
    host_read: Option<Instant>,
    generations: u64,
}

impl Observer {
    pub(super) fn new(context: Context, signs: mpsc::Sender<Sign>) -> Self {
        Self {
            next_resync: Instant::now() + context.config.libvirt.resync,
            context,
            signs,
            missed_sign: false,
            live: None,
            answers: JoinSet::new(),
            reads: Reads::default(),
            early: Guests::new(),
            touched: None,
            list_again: false,
            host_read: None,
            generations: 0,
        }
    }

    /// Observes until the agent or the unit is stopped.
    pub(super) async fn run(
        mut self,
        session: &Session,
        mut notices: Notices,
        stop: &CancellationToken,
    ) -> Result<End, BoxError> {
        let beat = self.context.health.heartbeat("libvirt", 3 * BEAT);
        let mut state = session.watch();
        let mut service_stopped = self.context.board.libvirt_service_stopped();
        loop {
            beat.beat();
            self.context.metrics.event_queue.set(notices.waiting() as i64);
            let wake = self.next_resync.min(Instant::now() + BEAT);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(End::Stopped),
                notice = notices.next() => match notice {
                    Some(notice) => self.notice(notice),
                    None => return Err("the libvirt session ended".into()),
                },
                Some(answer) = self.answers.join_next() => match answer {
                    Ok(answer) => self.answer(answer),
                    Err(error) if error.is_panic() => return Err(error.into()),
                    Err(_) => {}
                },
                changed = state.changed() => {
                    changed?;
                    let now = state.borrow_and_update().clone();
                    self.attempt_failed(&now);
                }
                changed = service_stopped.changed() => changed?,
                () = sleep_until(wake) => self.tick(),
            }
            self.read_next();
            if self.live.is_none() && *service_stopped.borrow_and_update() {
                return Ok(End::ServiceStopped);
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Up {
                generation,
                connection,
                unsupported,
            } => {
                for (event, error) in unsupported.iter() {
                    tracing::info!(event = event.name(), %error, "this libvirt does not have an event");
                }
                self.generations += 1;
                if self.generations > 1 {
                    self.context.metrics.reconnects.inc();
                }
                self.live = Some(Live {
                    connection,
                    generation,
                });
                self.reads = Reads::default();
                self.touched = None;
                self.list(true);
                self.read_host();
                self.read_domain_capabilities();
            }
            Notice::Down { generation, why } => self.lost(generation, &why),
            Notice::Lagged { missed } => {
                tracing::warn!(missed, "events were lost; everything is read again");
                self.context.metrics.overflows.inc();
                self.missed_sign = true;
                self.list_again = true;
                self.list(false);
            }
            Notice::Event { event, .. } => self.event(event),
        }
    }

    fn lost(&mut self, generation: u64, why: &LibvirtError) {
        self.live = None;
        self.touched = None;
        self.list_again = false;
        self.sign(Sign::Lost);
        let kind = match outage_kind(why) {
            OutageKind::ConnectFailed if generation > 0 => OutageKind::Disconnected,
            kind => kind,
        };
        self.set_link(Link::Down(Outage {
            kind,
            why: why.to_string(),
        }));
    }

    /// A failed attempt is news when it says something else than that the connection was lost.
    fn attempt_failed(&mut self, state: &State) {
        let State::Down(outage) = state else { return };
        if self.live.is_some() || outage.attempts == 0 {
            return;
        }
        let kind = outage_kind(&outage.why);
        let before = self.context.board.read(|model| model.libvirt.link.clone());
        let lost = matches!(
            &before,
            Link::Down(Outage {
                kind: OutageKind::Disconnected | OutageKind::Timeout,
                ..
            })
        );
        if lost && matches!(kind, OutageKind::ConnectFailed | OutageKind::Timeout) {
            return;
        }
        self.set_link(Link::Down(Outage {
            kind,
            why: outage.why.to_string(),
        }));
    }

    fn set_link(&self, link: Link) {
        let (text, up) = match &link {
            Link::Down(outage) => (outage.why.clone(), false),
            _ => (String::new(), true),
        };
        let mut changed = false;
        let mut was_up = false;
        self.context.board.update_now(|model| {
            changed = model.libvirt.link != link;
            was_up = model.libvirt.link == Link::Up;
            model.libvirt.link = link;
            changed
        });
        if !changed {
            return;
        }
        if up {
            tracing::info!("connected to libvirt");
            let note = "connected to libvirt, guests are listed";
            self.context.tell(Happening::normal(
                EventReason::LibvirtConnected,
                "Connecting",
                note,
            ));
        } else {
            tracing::warn!(why = text, "libvirt cannot be used");
            if was_up {
                self.context
                    .tell(Happening::warning(EventReason::LibvirtLost, "Connecting", text));
            }
        }
    }

    fn event(&mut self, event: Event) {
        let guest = event.domain.uuid;
        match &event.body {
            EventBody::Lifecycle { event: what, detail } => {
                let (what, detail) = (*what, *detail);
                tracing::debug!(server = %guest, name = event.domain.name, event = what, detail, "lifecycle");
                if let Some(touched) = &mut self.touched {
                    touched.insert(guest);
                }
                let mut read = false;
                let early = &mut self.early;
                self.context.board.update(|model| {
                    let listed = model.libvirt.guests.is_some();
                    let guests = model.libvirt.guests.as_mut().unwrap_or(early);
                    let change = apply_event(guests, &event.domain, what, detail);
                    read = change.read;
                    change.visible && listed
                });
                if read {
                    self.reads.add(guest);
                }
                self.sign(Sign::Event(event));
            }
            EventBody::MigrationIteration { .. } | EventBody::JobCompleted { .. } => {
                self.sign(Sign::Event(event));
            }
            // Everything else this session asked for changes what a guest takes.
            _ => self.reads.add(guest),
        }
    }

    /// Tells the follower of migrations; what it cannot take now it will find out by asking.
    fn sign(&mut self, sign: Sign) {
        if self.signs.try_send(sign).is_err() {
            self.context.metrics.overflows.inc();
            self.missed_sign = true;
        }
    }

    fn tick(&mut self) {
        if Instant::now() < self.next_resync {
            return;
        }
        self.schedule_resync();
        let refresh = self.context.config.libvirt.refresh;
        let host_due = self.host_read.is_none_or(|at| at.elapsed() >= refresh);
        self.list(false);
        if host_due {
            self.read_host();
            return;
        }
        // One old definition a minute keeps every guest fresh without ever being noticed.
        let oldest = self.reads.read_at.iter().min_by_key(|(_, at)| **at);
        if let Some((guest, at)) = oldest
            && at.elapsed() >= refresh
        {
            let guest = *guest;
            self.reads.add(guest);
        }
    }

    /// Up to a tenth later than due, so that a fleet does not ask in step.
    fn schedule_resync(&mut self) {
        let spread = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8) % 100;
        let interval = self.context.config.libvirt.resync;
        self.next_resync = Instant::now() + interval + interval.mul_f64(spread as f64 / 1000.0);
    }

    fn ask<F>(&mut self, question: impl FnOnce(Connection) -> F)
    where
        F: Future<Output = Body> + Send + 'static,
    {
        let Some(Live {
            connection,
            generation,
        }) = self.live.clone()
        else {
            return;
        };
        let question = question(connection);
        self.answers.spawn(async move {
            Answer {
                generation,
                body: question.await,
            }
        });
    }

    fn list(&mut self, new: bool) {
        if self.touched.is_some() {
            self.list_again = true;
            return;
        }
        self.list_again = false;
        self.touched = Some(HashSet::new());
        let began = Instant::now();
        self.ask(|connection| async move {
            let result = read::list(&connection, new, true).await;
            Body::Listed { began, result }
        });
    }

    fn read_host(&mut self) {
        self.host_read = Some(Instant::now());
        self.ask(|connection| async move { Body::Host(read::host(&connection).await) });
    }

    fn read_domain_capabilities(&mut self) {
        let context = self.context.clone();
        self.ask(|connection| async move {
            Body::DomainCapabilities(read::domain_capabilities(&context, &connection).await)
        });
    }

    fn read_next(&mut self) {
        if self.live.is_none() || self.touched.is_some() {
            return;
        }
        while let Some(guest) = self.reads.next() {
            self.ask(|connection| async move {
                Body::Definition(guest, read::definition(&connection, guest).await)
            });
        }
    }

    fn answer(&mut self, answer: Answer) {
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
            Body::Definition(guest, result) => self.defined(guest, result),
        }
    }

    fn host(&mut self, result: Result<HostCells, String>) {
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
    }

    /// Puts an answer on the board, or that there was none.
    fn put<T>(
        &self,
        call: &'static str,
        result: Result<T, String>,
        apply: impl FnOnce(&mut crate::board::LibvirtView, T) -> bool,
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
        self.reads.read_at.retain(|guest, _| known.contains(guest));
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
        self.reads.running.remove(&guest);
        // An answer that was overtaken by another event is thrown away; the next one is under way.
        let overtaken = self.reads.queued.contains(&guest);
        let Ok(definition) = result else { return };
        let all_read = self.reads.is_empty();
        match &definition {
            Definition::Gone => {
                self.reads.read_at.remove(&guest);
            }
            _ => {
                self.reads.read_at.insert(guest, Instant::now());
            }
        }
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

fn guests_are_read(view: &crate::board::LibvirtView) -> bool {
    let mut guests = view.guests.iter().flat_map(std::collections::BTreeMap::values);
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

fn outage_kind(error: &LibvirtError) -> OutageKind {
    if error.is_auth() {
        OutageKind::AuthFailed
    } else if error.is_driver_unavailable() {
        OutageKind::DriverUnavailable
    } else if error.is_timeout() {
        OutageKind::Timeout
    } else {
        OutageKind::ConnectFailed
    }
}
