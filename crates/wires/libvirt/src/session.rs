// SPDX-License-Identifier: Apache-2.0
//! A connection that comes back. The session connects, registers its events and publishes that it is up; when the
//! connection is lost it says so at once, tries again with growing pauses for ever, and registers everything anew.
//! State is in a watch channel; the same transitions and all events, in order, are in one stream of notices.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::queue::{Entry, Queue};
use crate::client::{Attachment, Connection, Options, Sink, add_all};
use crate::error::{CloseReason, Error, SharedError};
use crate::event::{Event, EventId};
use crate::uri::Uri;

/// Bytes of events held back while the session registers.
const HELD_BYTES: usize = 4 << 20;

/// Pauses between attempts: doubling from `first` to `last`, each varied by up to a fifth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub last: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            last: Duration::from_secs(5),
        }
    }
}

impl Backoff {
    fn pause(&self, attempt: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(attempt.min(20)).unwrap_or(u32::MAX));
        let plain = doubled.min(self.last);
        // A fifth up or down, so that a fleet does not knock at the same moment.
        let spread = f64::from(std::hash::BuildHasher::hash_one(
            &std::collections::hash_map::RandomState::new(),
            attempt,
        ) as u32)
            / f64::from(u32::MAX);
        plain.mul_f64(0.8 + 0.4 * spread)
    }
}

/// What a session connects to and wants to hear.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Tried in this order; the next one when the daemon has no driver for one of them.
    pub uris: Vec<Uri>,
    /// How each connection behaves.
    pub options: Options,
    /// Events to register for on every connection.
    pub events: Vec<EventId>,
    /// Pauses between attempts.
    pub backoff: Backoff,
}

impl SessionConfig {
    /// One URI, no events, defaults otherwise.
    pub fn new(uri: Uri) -> Self {
        Self {
            uris: vec![uri],
            options: Options::default(),
            events: Vec::new(),
            backoff: Backoff::default(),
        }
    }

    /// With these events.
    pub fn with_events(mut self, events: impl IntoIterator<Item = EventId>) -> Self {
        self.events = events.into_iter().collect();
        self
    }

    /// With these options.
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }
}

/// Since when and why there is no connection.
#[derive(Debug, Clone)]
pub struct Outage {
    /// When the last connection was lost, or when the session began.
    pub since: Instant,
    /// The newest reason.
    pub why: SharedError,
    /// Attempts that failed since.
    pub attempts: u32,
}

/// Where a session stands.
#[derive(Debug, Clone)]
pub enum State {
    /// Reaching, opening and registering; with the outage this is to end, if there was one.
    Connecting {
        /// `None` only during the very first attempt.
        outage: Option<Outage>,
    },
    /// Connected and registered.
    Up {
        /// Counts connections from 1; callback ids and everything read belong to one generation.
        generation: u64,
        /// The connection.
        connection: Connection,
    },
    /// Not connected; the next attempt comes by itself.
    Down(Outage),
    /// Stopped for good.
    Stopped,
}

impl State {
    /// The connection, when there is one.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Up { connection, .. } => Some(connection),
            _ => None,
        }
    }

    /// Whether calls can be made.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Since when and why there is no connection.
    pub fn outage(&self) -> Option<&Outage> {
        match self {
            Self::Down(outage) | Self::Connecting { outage: Some(outage) } => Some(outage),
            _ => None,
        }
    }
}

/// What a session tells, in order.
#[derive(Debug, Clone)]
pub enum Notice {
    /// Connected, and the events are registered: read the present state now, later events follow.
    Up {
        /// Counts connections from 1.
        generation: u64,
        /// The connection.
        connection: Connection,
        /// Events the daemon does not have, with its words.
        unsupported: Arc<Vec<(EventId, Error)>>,
    },
    /// Something happened to a guest.
    Event {
        /// The connection it came through.
        generation: u64,
        /// What happened.
        event: Event,
        /// When it came from the wire, however long it waited to be taken: nanoseconds of the clock that counts from
        /// boot and also while the machine sleeps.
        received_ns: u64,
    },
    /// So many notices were lost at this point because they were not taken; read state and guests again.
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The connection is lost.
    Down {
        /// Which one; 0 when the first attempt of the session failed.
        generation: u64,
        /// Why.
        why: SharedError,
    },
}

impl Entry for Notice {
    fn gap(missed: u64) -> Self {
        Self::Lagged { missed }
    }

    fn stands_for(&self) -> u64 {
        match self {
            Self::Lagged { missed } => *missed,
            _ => 1,
        }
    }
}

/// Brings the events of one connection into the session's stream. Until the session is up they are held back, so
/// that the notice of being up comes first.
struct Relay {
    generation: u64,
    queue: Arc<Queue<Notice>>,
    held: Mutex<Option<Held>>,
    capacity: usize,
}

#[derive(Default)]
struct Held {
    notices: Vec<(Notice, usize)>,
    bytes: usize,
    missed: u64,
}

impl Relay {
    fn new(generation: u64, queue: Arc<Queue<Notice>>, options: &Options) -> Self {
        let held = Mutex::new(Some(Held::default()));
        Self {
            generation,
            queue,
            held,
            capacity: options.event_capacity,
        }
    }

    fn push(&self, notice: Notice, bytes: usize) {
        let mut held = self.held.lock();
        match held.as_mut() {
            None => self.queue.push(notice, bytes),
            Some(held) if held.notices.len() >= self.capacity || held.bytes > HELD_BYTES => {
                held.missed = held.missed.saturating_add(notice.stands_for());
            }
            Some(held) => {
                held.bytes = held.bytes.saturating_add(bytes);
                held.notices.push((notice, bytes));
            }
        }
    }

    /// The session is up: from now on events go straight through.
    fn release(&self, up: Notice) {
        let mut held = self.held.lock();
        let waiting = held.take().unwrap_or_default();
        self.queue.push(up, 0);
        for (notice, bytes) in waiting.notices {
            self.queue.push(notice, bytes);
        }
        if waiting.missed > 0 {
            self.queue.push(
                Notice::Lagged {
                    missed: waiting.missed,
                },
                0,
            );
        }
    }
}

impl Sink for Relay {
    fn event(&self, event: Event, bytes: usize) {
        self.push(
            Notice::Event {
                generation: self.generation,
                event,
                received_ns: boot_ns(),
            },
            bytes,
        );
    }

    fn missed(&self, count: u64) {
        self.push(Notice::Lagged { missed: count }, 0);
    }

    fn close(&self) {}
}

/// Everything a session tells. Dropping it stops nothing; unread notices are bounded.
pub struct Notices {
    queue: Arc<Queue<Notice>>,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices")
            .field("waiting", &self.queue.len())
            .finish()
    }
}

impl Notices {
    /// The next notice; `None` when the session was stopped and everything has been taken. Safe to cancel.
    pub async fn next(&mut self) -> Option<Notice> {
        self.queue.next().await
    }

    /// The next notice if there is one already.
    pub fn try_next(&mut self) -> Option<Notice> {
        self.queue.try_next()
    }

    /// How many notices wait to be taken.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// A running session; dropping it ends it.
#[derive(Debug)]
pub struct Session {
    state: watch::Receiver<State>,
    events: watch::Sender<Vec<EventId>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Session {
    /// Begins to connect in the background.
    pub fn start(config: SessionConfig) -> (Self, Notices) {
        let queue = Arc::new(Queue::new(
            config.options.event_capacity,
            config.options.event_bytes,
        ));
        let (state_in, state) = watch::channel(State::Connecting { outage: None });
        let (events, events_out) = watch::channel(config.events.clone());
        let (stop, stopped) = watch::channel(false);
        let worker = Worker {
            config,
            queue: Arc::clone(&queue),
            state: state_in,
            events: events_out,
            stopped,
            generation: 0,
        };
        let task = tokio::spawn(worker.run());
        (
            Self {
                state,
                events,
                stop,
                task,
            },
            Notices { queue },
        )
    }

    /// Where the session stands; follow it with `changed`.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Where the session stands now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The connection, when there is one.
    pub fn connection(&self) -> Option<Connection> {
        self.state.borrow().connection().cloned()
    }

    /// Waits until there is a connection; `None` when the session was stopped.
    pub async fn up(&self) -> Option<Connection> {
        let mut state = self.state.clone();
        let state = state
            .wait_for(|state| matches!(state, State::Up { .. } | State::Stopped))
            .await
            .ok()?;
        state.connection().cloned()
    }

    /// Changes which events are registered, now and on every later connection: new ones before old ones go.
    pub fn set_events(&self, events: Vec<EventId>) {
        self.events.send_replace(events);
    }

    /// Closes the connection and ends the session.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        (&mut self.task).await.ok();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Nanoseconds since boot, sleep included.
fn boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A connection that is up.
struct Opened {
    connection: Connection,
    attachment: Attachment,
    /// What was asked for while it was opened; what is wanted may have changed since.
    asked: HashSet<EventId>,
}

struct Worker {
    config: SessionConfig,
    queue: Arc<Queue<Notice>>,
    state: watch::Sender<State>,
    events: watch::Receiver<Vec<EventId>>,
    stopped: watch::Receiver<bool>,
    generation: u64,
}

impl Worker {
    async fn run(mut self) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.keep_connected() => {}
        }
        let last = self.state.send_replace(State::Stopped);
        if let State::Up { connection, .. } = last {
            connection.close().await;
        }
        self.queue.close();
    }

    async fn keep_connected(&mut self) {
        let mut outage: Option<Outage> = None;
        let mut since = Instant::now();
        loop {
            self.state.send_replace(State::Connecting {
                outage: outage.clone(),
            });
            let (why, attempts) = match self.open().await {
                Ok(opened) => {
                    let why = self.stay_up(opened).await;
                    since = Instant::now();
                    (why, 0)
                }
                Err(error) => (
                    Arc::new(error),
                    outage.as_ref().map_or(0, |outage| outage.attempts) + 1,
                ),
            };
            if outage.is_none() && attempts == 1 {
                // Who only reads notices must also learn that the very first attempt failed.
                self.queue.push(
                    Notice::Down {
                        generation: 0,
                        why: Arc::clone(&why),
                    },
                    0,
                );
            }
            let down = Outage { since, why, attempts };
            self.state.send_replace(State::Down(down.clone()));
            outage = Some(down);
            tokio::time::sleep(self.config.backoff.pause(attempts)).await;
        }
    }

    /// Connects, registers, and says so in the stream; events of the new connection come after that notice.
    async fn open(&mut self) -> Result<Opened, Error> {
        let connection = Connection::connect_first(&self.config.uris, &self.config.options).await?;
        self.generation += 1;
        let generation = self.generation;
        let relay = Arc::new(Relay::new(
            generation,
            Arc::clone(&self.queue),
            &self.config.options,
        ));
        let attachment = Attachment::new(&connection, Arc::clone(&relay) as Arc<dyn Sink>);
        let wanted = self.events.borrow_and_update().clone();
        let unsupported = Arc::new(add_all(&connection, &attachment, &wanted).await?);
        let up = Notice::Up {
            generation,
            connection: connection.clone(),
            unsupported,
        };
        relay.release(up);
        self.state.send_replace(State::Up {
            generation,
            connection: connection.clone(),
        });
        Ok(Opened {
            connection,
            attachment,
            asked: wanted.into_iter().collect(),
        })
    }

    /// Until the connection is lost or given up; says why it is not there any more.
    async fn stay_up(&mut self, opened: Opened) -> SharedError {
        let connection = opened.connection.clone();
        let why = Arc::new(self.follow(opened).await);
        // Others hold it too, and must not go on with one that is given up.
        connection.shared().close(&CloseReason::Local);
        self.queue.push(
            Notice::Down {
                generation: self.generation,
                why: Arc::clone(&why),
            },
            0,
        );
        why
    }

    /// Follows what is wanted until the connection is lost. One that cannot be brought to it is given up: nobody knows
    /// what is registered there, and the next one begins with all that is wanted.
    async fn follow(&mut self, opened: Opened) -> Error {
        let Opened {
            connection,
            attachment,
            asked: mut current,
        } = opened;
        loop {
            tokio::select! {
                biased;
                reason = connection.closed() => return Error::closed(connection.endpoint(), reason),
                changed = self.events.changed() => {
                    if changed.is_err() {
                        return Error::closed(connection.endpoint(), connection.closed().await);
                    }
                    let wanted: HashSet<EventId> = self.events.borrow_and_update().iter().copied().collect();
                    if let Err(error) = change_events(&connection, &attachment, &current, &wanted).await {
                        tracing::warn!(endpoint = connection.endpoint(), %error, "cannot change events; connecting anew");
                        return error;
                    }
                    current = wanted;
                }
            }
        }
    }
}

async fn change_events(
    connection: &Connection,
    attachment: &Attachment,
    current: &HashSet<EventId>,
    wanted: &HashSet<EventId>,
) -> Result<(), Error> {
    let new: Vec<EventId> = wanted.difference(current).copied().collect();
    for (id, error) in add_all(connection, attachment, &new).await? {
        tracing::warn!(endpoint = connection.endpoint(), ?id, %error, "event not available");
    }
    for id in current.difference(wanted) {
        attachment.remove(connection, *id).await?;
    }
    Ok(())
}
