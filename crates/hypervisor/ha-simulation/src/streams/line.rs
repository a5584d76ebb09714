// SPDX-License-Identifier: Apache-2.0
//! One agent's conversation with one replica about records: what is offered, what arrives, what is answered, and how
//! fast a backlog goes. What follows from an answer is decided by the code that agents run.

use std::time::Duration;

use cobaltcore_ha_engine::{AgentId, BootId};
use cobaltcore_ha_wire::stream::{Answer, Pace, REPLAY_RATE, Step, replay_rest};
use cobaltcore_ha_wire::{Batch, BatchAnswer, Envelope, SCHEMA};

use super::Mistake;
use super::store::Stored;
use crate::invariants::Invariant;
use crate::world::{Event, World};

/// Milliseconds after which no answer comes any more.
const SEND_TIME: u64 = 10_000;
/// Bytes of a backlog whose pace is worth measuring.
const MEASURED: u64 = 1 << 20;

/// A backlog on its way, without a failure so far.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: u64,
    bytes: u64,
}

/// What an agent knows of one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pace: Pace,
    /// The batch that waits for its answer, and whether another round is planned.
    waiting: Option<u64>,
    planned: bool,
    batches: u64,
    drain: Option<Drain>,
}

impl Line {
    /// The process at this end is gone.
    pub(super) fn hang_up(&mut self) {
        let batches = self.batches;
        *self = Self {
            batches,
            ..Self::default()
        };
    }
}

/// A batch under way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    to: usize,
    from: usize,
    process: u64,
    number: u64,
    sent: u64,
    incarnation: u64,
    /// The network made a second one of it; nobody waits for the answer.
    copy: bool,
    more: bool,
    bytes: u64,
    batch: Batch,
}

/// An answer on its way back.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    h: usize,
    r: usize,
    process: u64,
    number: u64,
    sent: u64,
    more: bool,
    bytes: u64,
    records: usize,
    answer: Answer,
}

impl World {
    /// A round of sending, unless one is planned or under way.
    pub(super) fn offer_later(&mut self, h: usize, r: usize, after: u64) {
        let stream = &mut self.streams[h];
        let line = &mut stream.lines[r];
        if line.planned || line.waiting.is_some() {
            return;
        }
        line.planned = true;
        let process = stream.processes;
        self.schedule(after, Event::Offer(h, r, process));
    }

    /// Sends one batch of what an endpoint lacks.
    pub(crate) fn offer(&mut self, h: usize, r: usize, process: u64) {
        if !self.is_process(h, process) {
            return;
        }
        let now = self.now;
        let stream = &mut self.streams[h];
        let line = &mut stream.lines[r];
        line.planned = false;
        if line.waiting.is_some() {
            return;
        }
        let chunk = stream.spool.read(r, line.pace.size());
        if chunk.events.is_empty() && chunk.dropped.is_empty() {
            line.drain = None;
            return;
        }
        if chunk.more && line.drain.is_none() && !line.pace.failing() {
            line.drain = Some(Drain { since: now, bytes: 0 });
        }
        line.batches += 1;
        let number = line.batches;
        line.waiting = Some(number);
        let ends = chunk.dropped.iter().map(|range| *range.end());
        let newest = chunk
            .events
            .iter()
            .map(|event| event.seq)
            .chain(ends)
            .max()
            .unwrap_or(0);
        stream.spool.sending(newest, now);
        stream.seen = stream.seen.max(newest);
        let host = &self.hosts[h];
        let envelope = Envelope {
            schema: SCHEMA,
            host: host.name.clone(),
            agent_id: AgentId(format!("agent-{h}")),
            boot_id: BootId(host.boot_id()),
            epoch: process,
            sent_at: jiff::Timestamp::UNIX_EPOCH,
            mono_ns: now,
        };
        let parcel = Parcel {
            to: r,
            from: h,
            process,
            number,
            sent: now,
            incarnation: self.replicas[r].incarnation,
            copy: false,
            more: chunk.more,
            bytes: chunk.bytes,
            batch: Batch {
                events: chunk.events,
                dropped: chunk.dropped,
                ..Batch::empty(envelope)
            },
        };
        self.post(parcel);
    }

    /// Over a network that may drop, double and delay.
    fn post(&mut self, parcel: Parcel) {
        let (h, r) = (parcel.from, parcel.to);
        let takes = self.dice.u64(1..5) + self.commit_time(r);
        if self.noise > 0 && self.dice.u8(..100) < self.noise {
            self.mark("a batch is lost, doubled or late");
            match self.dice.u8(..3) {
                0 => {
                    let lost = Answer::Broken("no answer".to_owned());
                    self.answer_later(&parcel, lost, SEND_TIME);
                    return;
                }
                1 => {
                    let late = self.dice.u64(100..90_000);
                    let copy = Parcel {
                        copy: true,
                        ..parcel.clone()
                    };
                    self.schedule(late, Event::Arrive(Box::new(copy)));
                }
                _ => {
                    // It comes when nobody waits for it any more.
                    let late = SEND_TIME + self.dice.u64(100..60_000);
                    let lost = Answer::Broken("no answer".to_owned());
                    self.answer_later(&parcel, lost, SEND_TIME);
                    let copy = Parcel { copy: true, ..parcel };
                    self.schedule(late, Event::Arrive(Box::new(copy)));
                    return;
                }
            }
        }
        if self.hears(r, h) {
            self.schedule(takes, Event::Arrive(Box::new(parcel)));
        } else {
            let refused = self.dice.u64(5..5000);
            self.answer_later(&parcel, Answer::Broken("no route".to_owned()), refused);
        }
    }

    fn commit_time(&mut self, r: usize) -> u64 {
        if self.stores[r].slow {
            self.dice.u64(200..3000)
        } else {
            self.dice.u64(2..12)
        }
    }

    /// A replica takes a batch, or not.
    pub(crate) fn arrive(&mut self, parcel: Parcel) {
        let (h, r) = (parcel.from, parcel.to);
        let replica = &self.replicas[r];
        let frozen = replica.frozen_until.saturating_sub(self.now);
        let late = SEND_TIME.saturating_sub(self.now - parcel.sent);
        if !replica.up || !parcel.copy && replica.incarnation != parcel.incarnation {
            self.answer_later(&parcel, Answer::Broken("it died".to_owned()), late.min(50));
            return;
        }
        if frozen > 0 {
            if !parcel.copy {
                self.answer_later(&parcel, Answer::Broken("no answer".to_owned()), late);
            }
            let copy = Parcel { copy: true, ..parcel };
            self.schedule(frozen + 1, Event::Arrive(Box::new(copy)));
            return;
        }
        if !self.stores[r].works {
            self.answer_later(&parcel, Answer::Busy(None), 2);
            return;
        }
        if self.wrong(Mistake::AckBeforeCommit) && !parcel.copy {
            let last = parcel.batch.events.last().map_or(0, |event| event.seq);
            self.answer_later(&parcel, acked(last.max(self.stores[r].last(h))), 2);
            let copy = Parcel { copy: true, ..parcel };
            self.schedule(200, Event::Arrive(Box::new(copy)));
            return;
        }
        let blindly = self.wrong(Mistake::StoreReplays);
        let answer = match self.stores[r].take(h, &parcel.batch, self.now, blindly) {
            Stored::Expected(seq) => Answer::Expected(seq),
            Stored::Twice(seq) => {
                let what =
                    format!("replica {r} is told of record {seq} of n{h:02} again, and that changes it");
                self.violate(Invariant::S14Numbers, what);
                return;
            }
            Stored::Taken { skip, last } => {
                let new = parcel.batch.events.get(skip..).unwrap_or_default();
                self.judge_records(r, h, new);
                acked(last)
            }
        };
        self.answer_later(&parcel, answer, 2);
    }

    fn answer_later(&mut self, parcel: &Parcel, answer: Answer, after: u64) {
        if parcel.copy {
            return;
        }
        let answered = Answered {
            h: parcel.from,
            r: parcel.to,
            process: parcel.process,
            number: parcel.number,
            sent: parcel.sent,
            more: parcel.more,
            bytes: parcel.bytes,
            records: parcel.batch.events.len(),
            answer,
        };
        self.schedule(after, Event::Answered(Box::new(answered)));
    }

    /// An agent does what an answer asks of it.
    pub(crate) fn answered(&mut self, mut got: Answered) {
        let (h, r) = (got.h, got.r);
        if !self.is_process(h, got.process) || self.streams[h].lines[r].waiting != Some(got.number) {
            return;
        }
        if !self.reaches(r, h) || self.replicas[r].closed {
            got.answer = Answer::Broken("the answer was lost".to_owned());
        }
        let chance = self.dice.f64();
        let line = &mut self.streams[h].lines[r];
        line.waiting = None;
        let was_failing = line.pace.failing();
        let step = line.pace.after(&got.answer, got.records, chance);
        if !matches!(step, Step::Advance(_)) {
            line.drain = None;
        }
        let rest = match step {
            Step::Advance(acked) => return self.advance(&got, acked, was_failing),
            Step::Rewind(expected, pause) => {
                if !self.wrong(Mistake::NeverRewind) {
                    self.streams[h].spool.rewind(r, expected);
                }
                pause
            }
            Step::Shrink => Duration::ZERO,
            Step::Quarantine(pause) | Step::Wait(pause) | Step::Reload(pause) => pause,
        };
        self.offer_later(h, r, millis(rest) + 1);
    }

    fn advance(&mut self, got: &Answered, acked: u64, was_failing: bool) {
        let (h, r, now) = (got.h, got.r, self.now);
        self.check_acked(h, r, acked);
        let wrong = self.options.mistake;
        let gone = self.streams[h].spool.ack(r, acked, now, wrong);
        self.check_forgotten(h, &gone);
        self.measure(got);
        let chance = self.dice.f64();
        let rest = if got.more {
            let took = Duration::from_millis(now - got.sent);
            let fair = replay_rest(got.bytes as usize, took, was_failing, chance);
            if self.wrong(Mistake::SlowReplay) {
                fair * 2 + took
            } else {
                fair
            }
        } else {
            Duration::ZERO
        };
        self.offer_later(h, r, millis(rest).max(1));
    }

    /// A backlog goes at its rate, as long as a replica answers in the time its part takes.
    fn measure(&mut self, got: &Answered) {
        let (h, r, now) = (got.h, got.r, self.now);
        let fair = |bytes: u64| bytes as f64 / REPLAY_RATE * 1000.0;
        let line = &mut self.streams[h].lines[r];
        let Some(drain) = &mut line.drain else { return };
        drain.bytes += got.bytes;
        if (now - got.sent) as f64 > fair(got.bytes) {
            line.drain = None;
            return;
        }
        let Drain { since, bytes } = *drain;
        if !got.more {
            line.drain = None;
        }
        let took = (now - since) as f64;
        // A millisecond of each part is lost to the clock.
        if bytes >= MEASURED && took > fair(bytes) * 1.05 + 150.0 {
            let rate = bytes as f64 / took / 1048.576;
            let what = format!("the backlog of n{h:02} goes to replica {r} at {rate:.1} MiB/s");
            self.violate(Invariant::L7Backlog, what);
        }
    }
}

fn acked(seq: u64) -> Answer {
    Answer::Acked(BatchAnswer {
        acked_seq: seq,
        server_time: jiff::Timestamp::UNIX_EPOCH,
        hold: false,
        commands: Vec::new(),
        peers: Vec::new(),
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
