// SPDX-License-Identifier: Apache-2.0
//! The loop behind [`super::observe`]: takes what the session tells, puts it on the board, and sends out questions as
//! tasks of their own. It never waits for an answer, so that an event is on the board as soon as it is here.

mod answers;

use std::collections::HashSet;

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

use super::guests::{Guests, apply_event};
use super::read::{self, Definition, Listing};
use super::turns::{Reads, Turn, Turns};
use crate::board::{Link, Outage, OutageKind};
use crate::capacity::{FreePages, HostCells};
use crate::context::Context;
use crate::hypervisor::BEAT;
use crate::migration::Sign;

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
    Pages(Result<Option<FreePages>, String>),
    Definition(Uuid, Result<Definition, LibvirtError>),
}

/// The connection in use.
#[derive(Clone)]
struct Live {
    connection: Connection,
    generation: u64,
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
    turns: Turns,
    /// Whether guests came or went since free pages were asked for.
    pages_stale: bool,
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
            turns: Turns::default(),
            pages_stale: false,
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
                    self.pages_stale = true;
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
        self.list(false);
        let refresh = self.context.config.libvirt.refresh;
        let has_pages = !self.page_sizes().is_empty();
        match self.turns.next(refresh, has_pages, &self.reads) {
            Some(Turn::Host) => self.read_host(),
            Some(Turn::Pages) => self.read_pages(),
            Some(Turn::DomainCapabilities) => self.read_domain_capabilities(),
            Some(Turn::Definition(guest)) => self.reads.add(guest),
            None => {}
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
            let result = read::list(&connection, new).await;
            Body::Listed { began, result }
        });
    }

    fn read_host(&mut self) {
        self.turns.taken(Turn::Host);
        self.ask(|connection| async move { Body::Host(read::host(&connection).await) });
    }

    fn page_sizes(&self) -> Vec<u64> {
        self.context.board.read(|model| {
            let cells = model.libvirt.cells.as_ref();
            cells
                .map(|host| host.page_sizes().into_iter().collect())
                .unwrap_or_default()
        })
    }

    /// Asks how many huge pages are free, where there are any.
    fn read_pages(&mut self) {
        self.pages_stale = false;
        let (sizes, cells) = (self.page_sizes(), self.cell_ids());
        if sizes.is_empty() {
            return;
        }
        self.turns.taken(Turn::Pages);
        self.ask(
            |connection| async move { Body::Pages(read::free_pages(&connection, &sizes, &cells).await) },
        );
    }

    fn cell_ids(&self) -> Vec<u64> {
        self.context.board.read(|model| {
            let cells = model.libvirt.cells.as_ref();
            cells
                .map(|host| host.cells.keys().copied().collect())
                .unwrap_or_default()
        })
    }

    fn read_domain_capabilities(&mut self) {
        self.turns.taken(Turn::DomainCapabilities);
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
        // A burst of starts and stops costs one question, after the last of them.
        if self.pages_stale && self.reads.is_empty() {
            self.read_pages();
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
