// SPDX-License-Identifier: Apache-2.0
//! Follows migrations from both sides and writes one Migration object per moving server. Events only ever start or feed
//! a follower, one per guest and side; followers do the waiting, sampling and writing, so that nothing here is slow.

mod arriving;
mod elsewhere;
mod figures;
mod leaving;
mod object;
mod track;

use std::collections::HashMap;
use std::time::Duration;

use cobaltcore_kit::BoxError;
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::event::{Event, EventBody};
use cobaltcore_libvirt::types::Domain;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::context::Context;
use crate::libvirt::life;
use leaving::{Opening, Signal};

/// Signals that wait for one follower. What is dropped beyond that, sampling finds out.
const SIGNALS: usize = 256;
/// Questions about jobs at once. The daemon stops listening to a client with five calls under way.
const AT_ONCE: usize = 2;
/// How often a driver without migration events is asked, and the API about migrations that it did not tell.
const POLL: Duration = Duration::from_secs(2);
/// The detail of starting, suspending and resuming that belongs to a migration.
const MIGRATED: i32 = 1;

/// Something that may belong to a migration.
#[derive(Debug)]
pub enum Sign {
    /// libvirt is connected (again), and these guests run here.
    Connected {
        /// The connection.
        connection: Connection,
        /// Its driver.
        driver: String,
        /// Guests that run here.
        active: Vec<Uuid>,
    },
    /// The connection is lost.
    Lost,
    /// An event of a guest.
    Event(Event),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Leaving,
    Arriving,
}

type Key = (Way, Uuid);

/// A running follower.
struct Follower {
    signals: mpsc::Sender<Signal>,
}

enum Done {
    /// A follower came to its end, and was told more than it needed.
    Followed(Key, Vec<Signal>),
    /// Jobs were looked for.
    Looked(Look),
}

/// What looking for jobs brought.
struct Look {
    /// Guests with a migration under way.
    migrating: Vec<Uuid>,
    /// Servers whose objects say that they are leaving, if that is known.
    unfinished: Option<Vec<Uuid>>,
    /// The driver does not tell jobs.
    unsupported: bool,
}

struct Router {
    context: Context,
    connection: Option<Connection>,
    followers: HashMap<Key, Follower>,
    tasks: JoinSet<Done>,
    /// The driver neither announces migrations nor names its jobs.
    quiet_driver: bool,
    looking: bool,
    /// libvirt was connected while looking: what was found may be of the time before.
    look_again: bool,
    /// Objects that say that a migration has not ended were not read since libvirt was connected.
    objects_due: bool,
    next_poll: Option<Instant>,
}

/// Follows migrations until the signs end.
pub(crate) async fn follow(context: Context, mut signs: mpsc::Receiver<Sign>) -> Result<(), BoxError> {
    let mut router = Router {
        context,
        connection: None,
        followers: HashMap::new(),
        tasks: JoinSet::new(),
        quiet_driver: false,
        looking: false,
        look_again: false,
        objects_due: false,
        next_poll: None,
    };
    loop {
        let poll = router.next_poll;
        tokio::select! {
            sign = signs.recv() => match sign {
                Some(sign) => router.sign(sign),
                None => return Ok(()),
            },
            Some(done) = router.tasks.join_next() => match done {
                Ok(done) => router.done(done),
                Err(error) if error.is_panic() => return Err(error.into()),
                Err(_) => {}
            },
            () = sleep_until(poll.unwrap_or_else(Instant::now)), if poll.is_some() => router.poll(),
        }
    }
}

impl Router {
    fn sign(&mut self, sign: Sign) {
        match sign {
            Sign::Connected {
                connection,
                driver,
                active,
            } => self.connected(connection, &driver, active),
            Sign::Lost => {
                self.connection = None;
                self.next_poll = None;
                for follower in self.followers.values() {
                    follower.signals.try_send(Signal::Lost).ok();
                }
            }
            Sign::Event(event) => self.event(event),
        }
    }

    fn connected(&mut self, connection: Connection, driver: &str, active: Vec<Uuid>) {
        self.quiet_driver = driver == "CH";
        for ((_, server), follower) in &self.followers {
            let back = Signal::Back {
                connection: connection.clone(),
                active: active.contains(server),
            };
            follower.signals.try_send(back).ok();
        }
        self.connection = Some(connection);
        self.objects_due = true;
        self.look_again = self.looking;
        self.look(active);
        self.next_poll = self.quiet_driver.then(|| Instant::now() + POLL);
    }

    fn event(&mut self, event: Event) {
        let server = event.domain.uuid;
        match event.body {
            EventBody::MigrationIteration { iteration } => {
                let signal = Signal::Iteration(u64::try_from(iteration).unwrap_or(0));
                self.signal((Way::Leaving, server), signal);
            }
            EventBody::JobCompleted { params } => {
                self.signal((Way::Leaving, server), Signal::JobCompleted(params));
            }
            EventBody::Lifecycle { event, detail } => {
                let signal = Signal::Life { event, detail };
                self.signal((Way::Arriving, server), signal.clone());
                self.signal((Way::Leaving, server), signal);
            }
            _ => {}
        }
    }

    /// Tells the follower; starts one for what only a migration does.
    fn signal(&mut self, key: Key, signal: Signal) {
        if self.tell(key, signal.clone()) {
            return;
        }
        let (way, server) = key;
        match (way, &signal) {
            (Way::Arriving, Signal::Life { event, detail })
                if *event == life::STARTED && (*detail == MIGRATED || self.quiet_driver) =>
            {
                self.start_arriving(server);
            }
            (Way::Leaving, Signal::JobCompleted(params))
                if figures::operation(params) == Some(figures::MIGRATION_OUT) =>
            {
                self.start_leaving(server, Opening::Noticed(Some(signal)));
            }
            (
                Way::Leaving,
                Signal::Iteration(_)
                | Signal::Life {
                    event: life::SUSPENDED,
                    detail: MIGRATED,
                },
            ) => self.start_leaving(server, Opening::Noticed(Some(signal))),
            _ => {}
        }
    }

    /// Whether there is a follower to tell.
    fn tell(&self, key: Key, signal: Signal) -> bool {
        match self.followers.get(&key) {
            None => false,
            Some(follower) => match follower.signals.try_send(signal) {
                Ok(()) => true,
                // It ended and does not take anything any more; the next one will.
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    tracing::debug!(server = %key.1, "a sign of a migration was dropped");
                    true
                }
            },
        }
    }

    fn start_leaving(&mut self, server: Uuid, opening: Opening) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let (signals, received) = mpsc::channel(SIGNALS);
        let key = (Way::Leaving, server);
        let (context, unnamed) = (self.context.clone(), self.quiet_driver);
        self.followers.insert(key, Follower { signals });
        self.tasks.spawn(async move {
            let rest = leaving::follow(context, server, connection, unnamed, opening, received).await;
            Done::Followed(key, rest)
        });
    }

    fn start_arriving(&mut self, server: Uuid) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let (signals, received) = mpsc::channel(SIGNALS);
        let key = (Way::Arriving, server);
        let (context, quiet) = (self.context.clone(), self.quiet_driver);
        self.followers.insert(key, Follower { signals });
        self.tasks.spawn(async move {
            let rest = if !quiet || arriving::expected(&context, server).await {
                arriving::follow(context, server, connection, quiet, received).await
            } else {
                Vec::new()
            };
            Done::Followed(key, rest)
        });
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Followed(key, rest) => {
                let ended = self.followers.get(&key);
                // A new follower may have taken the place of the one that ended.
                if ended.is_some_and(|follower| follower.signals.is_closed()) {
                    self.followers.remove(&key);
                }
                for signal in rest {
                    self.signal(key, signal);
                }
            }
            Done::Looked(look) => self.looked(look),
        }
    }

    fn looked(&mut self, look: Look) {
        self.looking = false;
        if look.unsupported && self.next_poll.take().is_some() {
            tracing::warn!("this libvirt driver does not tell about jobs; migrations are not recorded");
        }
        if look.unfinished.is_some() {
            self.objects_due = false;
        } else if self.objects_due && self.connection.is_some() {
            self.next_poll.get_or_insert_with(|| Instant::now() + POLL);
        }
        for server in &look.migrating {
            if !self.followers.contains_key(&(Way::Leaving, *server)) {
                self.start_leaving(*server, Opening::Noticed(None));
            }
        }
        for server in look.unfinished.unwrap_or_default() {
            if !self.followers.contains_key(&(Way::Leaving, server)) {
                let active = self.runs_here(server);
                self.start_leaving(server, Opening::Unfinished { active });
            }
        }
        if std::mem::take(&mut self.look_again) {
            self.look(self.active());
        }
    }

    fn runs_here(&self, server: Uuid) -> bool {
        self.context.board.read(|model| {
            let guests = model.libvirt.guests.as_ref();
            guests
                .and_then(|guests| guests.get(&server))
                .is_some_and(|guest| guest.active)
        })
    }

    /// Asks a driver that announces nothing, and an API that did not answer.
    fn poll(&mut self) {
        self.next_poll = self.quiet_driver.then(|| Instant::now() + POLL);
        self.look(self.active());
    }

    /// Guests that run here.
    fn active(&self) -> Vec<Uuid> {
        self.context.board.read(|model| {
            let guests = model.libvirt.guests.iter().flatten();
            guests
                .filter(|(_, guest)| guest.active)
                .map(|(id, _)| *id)
                .collect()
        })
    }

    /// Looks for migrations that began while nobody watched, and for those whose end nobody saw.
    fn look(&mut self, active: Vec<Uuid>) {
        let Some(connection) = self.connection.clone().filter(|_| !self.looking) else {
            return;
        };
        self.looking = true;
        let (context, unnamed, objects) = (self.context.clone(), self.quiet_driver, self.objects_due);
        let known: Vec<Uuid> = active
            .into_iter()
            .filter(|server| !self.followers.contains_key(&(Way::Leaving, *server)))
            .collect();
        self.tasks.spawn(async move {
            let mut look = migrating(&connection, known, unnamed).await;
            if objects {
                match object::unfinished(&context).await {
                    Ok(servers) => look.unfinished = Some(servers),
                    Err(error) => {
                        tracing::warn!(%error, "unfinished migrations of this host are not known yet");
                    }
                }
            }
            Done::Looked(look)
        });
    }
}

/// Which of these guests are being migrated away.
async fn migrating(connection: &Connection, guests: Vec<Uuid>, unnamed_jobs: bool) -> Look {
    let mut look = Look {
        migrating: Vec::new(),
        unfinished: None,
        unsupported: false,
    };
    let ask = |server: Uuid| async move {
        let stats = connection.job_stats(&Domain::by_uuid(server)).await;
        (server, stats)
    };
    let mut answers = futures::stream::iter(guests.into_iter().map(ask)).buffer_unordered(AT_ONCE);
    while let Some((server, answer)) = answers.next().await {
        match answer {
            Ok(stats) if figures::runs(&stats) => {
                let operation = figures::operation(&stats.params);
                if operation.map_or(unnamed_jobs, |number| number == figures::MIGRATION_OUT) {
                    look.migrating.push(server);
                }
            }
            Err(error) if error.is_unsupported() => {
                look.unsupported = true;
                break;
            }
            Err(error) if error.is_closed() => break,
            _ => {}
        }
    }
    look
}
