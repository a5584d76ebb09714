// SPDX-License-Identifier: Apache-2.0
//! The spool of one agent on a disk that may be full, slow, or without power. Which number comes next, what goes when
//! room is short and what nobody waits for is decided by the code that agents run; here is what becomes of it on disk.
//! What was written and not flushed outlives the process, and not the kernel.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use cobaltcore_ha_wire::Event;
use cobaltcore_ha_wire::stream::{MOST_BYTES, Numbers, Reached, Worth, gaps, may_go};

use super::Mistake;

/// Bytes of all segments.
pub(super) const LIMIT: u64 = 6 << 20;
/// The same when the file system is nearly full.
pub(super) const LITTLE: u64 = 24 << 10;
/// Bytes after which a segment is full.
const SEGMENT: u64 = 256 << 10;
/// Milliseconds that a small write may wait in the kernel.
const WRITEBACK: u64 = 30_000;

/// A record and how many bytes it takes.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) event: Event,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    records: VecDeque<Kept>,
    bytes: u64,
    last: u64,
}

impl Segment {
    fn add(&mut self, kept: Kept) {
        self.last = kept.event.seq;
        self.bytes += kept.bytes;
        self.records.push_back(kept);
    }
}

/// The mark of what was sent and where each endpoint stands, as small files hold them.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    sent: u64,
    acked: [u64; 3],
}

/// A part of the stream, as it is offered to one endpoint.
pub(super) struct Chunk {
    pub(super) events: Vec<Event>,
    pub(super) dropped: Vec<RangeInclusive<u64>>,
    pub(super) bytes: u64,
    pub(super) more: bool,
}

/// The spool.
#[derive(Clone, Debug)]
pub(super) struct Spool {
    segments: VecDeque<Segment>,
    /// Whether the last segment is being written to.
    active: bool,
    numbers: Numbers,
    /// Records of the last segment that were not flushed.
    written: usize,
    cursors: [u64; 3],
    caught_up: [u64; 3],
    /// What the small files say, and what they would say without power.
    marks: Marks,
    on_disk: (u64, Marks),
    /// The highest number that was given when records were last given up; flushed before they went.
    given: u64,
    pub(super) limit: u64,
}

impl Spool {
    pub(super) fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            active: false,
            numbers: Numbers::found(0, 0),
            written: 0,
            cursors: [0; 3],
            caught_up: [0; 3],
            marks: Marks::default(),
            on_disk: (0, Marks::default()),
            given: 0,
            limit: LIMIT,
        }
    }

    pub(super) fn flushed(&self) -> u64 {
        self.numbers.flushed()
    }

    pub(super) fn cursor(&self, r: usize) -> u64 {
        self.cursors[r]
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Whether a record is on the disk.
    pub(super) fn has(&self, seq: u64) -> bool {
        let holds = |segment: &Segment| {
            let found = segment.records.binary_search_by_key(&seq, |kept| kept.event.seq);
            found.is_ok()
        };
        self.segments
            .iter()
            .any(|segment| segment.last >= seq && holds(segment))
    }

    /// The power is gone: of what was not flushed only a beginning is left, and the small files are as they were.
    pub(super) fn lose_power(&mut self, rng: &mut fastrand::Rng) {
        let lost = rng.usize(..=self.written);
        if let Some(segment) = self.segments.back_mut() {
            for kept in segment
                .records
                .drain(segment.records.len().saturating_sub(lost)..)
            {
                segment.bytes -= kept.bytes;
            }
            segment.last = segment.records.back().map_or(0, |kept| kept.event.seq);
        }
        // What is left is on the disk, however often the power goes.
        self.written = 0;
        self.marks = self.on_disk.1;
    }

    /// A process begins on what it finds.
    pub(super) fn open(&mut self, wrong: Option<Mistake>) {
        self.segments.retain(|segment| !segment.records.is_empty());
        let last = self.segments.back().map_or(0, |segment| segment.last);
        let acked = self.marks.acked.into_iter().max().unwrap_or(0);
        let known = if wrong == Some(Mistake::ForgetSent) {
            0
        } else {
            self.marks.sent.max(acked).max(self.given)
        };
        self.numbers = Numbers::found(last, known);
        self.cursors = self.marks.acked;
        // What was found is flushed before anybody hears of it.
        self.written = 0;
        self.active = false;
    }

    /// Writes records, and gives back what had to go for them.
    pub(super) fn write(&mut self, drafts: Vec<Kept>, wrong: Option<Mistake>) -> Vec<Kept> {
        if self.numbers.must_jump() {
            self.active = false;
            self.numbers.jump();
        }
        let need: u64 = drafts.iter().map(|kept| kept.bytes).sum();
        let gone = self.make_room(need, wrong);
        let full = self
            .segments
            .back()
            .is_some_and(|segment| segment.bytes >= SEGMENT);
        if !self.active || full {
            self.segments.push_back(Segment::default());
            self.active = true;
        }
        self.written = drafts.len();
        for mut kept in drafts {
            kept.event.seq = self.numbers.next();
            self.numbers.give(1);
            if let Some(segment) = self.segments.back_mut() {
                segment.add(kept);
            }
        }
        gone
    }

    /// What was written is durable. The numbers of those that are new.
    pub(super) fn accept(&mut self) -> impl Iterator<Item = &Event> {
        self.numbers.accept();
        let written = std::mem::take(&mut self.written);
        let records = self.segments.back().map(|segment| &segment.records);
        let new = records
            .into_iter()
            .flat_map(move |records| records.iter().rev().take(written));
        new.map(|kept| &kept.event)
    }

    /// The cheapest first, the oldest of those first.
    fn make_room(&mut self, need: u64, wrong: Option<Mistake>) -> Vec<Kept> {
        let mut over = (self.bytes() + need).saturating_sub(self.limit);
        let mut gone = Vec::new();
        if over == 0 {
            return gone;
        }
        over += self.limit / 16;
        self.active = false;
        if wrong != Some(Mistake::DropSilently) {
            self.given = self.numbers.next() - 1;
        }
        for worth in Worth::ALL {
            for segment in &mut self.segments {
                let mut kept = VecDeque::with_capacity(segment.records.len());
                for record in segment.records.drain(..) {
                    if over > 0 && Worth::of(&record.event) == worth {
                        over = over.saturating_sub(record.bytes);
                        segment.bytes -= record.bytes;
                        gone.push(record);
                    } else {
                        kept.push_back(record);
                    }
                }
                segment.records = kept;
                segment.last = segment.records.back().map_or(segment.last, |kept| kept.event.seq);
            }
        }
        self.segments.retain(|segment| !segment.records.is_empty());
        gone
    }

    /// Accepted records behind what an endpoint has, at most so many.
    pub(super) fn read(&self, r: usize, most: usize) -> Chunk {
        let after = self.cursors[r];
        let mut chunk = Chunk {
            events: Vec::new(),
            dropped: Vec::new(),
            bytes: 0,
            more: false,
        };
        let records = self.segments.iter().filter(|segment| segment.last > after);
        for kept in records.flat_map(|segment| &segment.records) {
            let seq = kept.event.seq;
            if seq <= after || seq > self.flushed() {
                continue;
            }
            let full = chunk.bytes + kept.bytes > MOST_BYTES as u64 && chunk.bytes > 0;
            if chunk.events.len() >= most || full {
                chunk.more = true;
                break;
            }
            chunk.bytes += kept.bytes;
            chunk.events.push(kept.event.clone());
        }
        let until = chunk.events.last().map_or(self.flushed(), |event| event.seq);
        chunk.dropped = gaps(after, &chunk.events, until);
        chunk
    }

    /// Numbers up to this are about to be seen by somebody.
    pub(super) fn sending(&mut self, seq: u64, now: u64) {
        self.mark(now, |marks| marks.sent = marks.sent.max(seq));
    }

    /// An endpoint has stored everything up to `acked`. What nobody waits for any more goes, and is given back.
    pub(super) fn ack(&mut self, r: usize, acked: u64, now: u64, wrong: Option<Mistake>) -> Vec<Kept> {
        if self.numbers.acked(acked) {
            self.mark(now, |marks| marks.sent = acked);
        }
        self.cursors[r] = self.cursors[r].max(acked);
        if acked >= self.flushed() {
            self.caught_up[r] = now;
        }
        let cursors = self.cursors;
        self.mark(now, |marks| marks.acked = cursors);
        self.collect(now, wrong)
    }

    /// An endpoint has less than was thought.
    pub(super) fn rewind(&mut self, r: usize, expected: u64) {
        self.cursors[r] = expected.saturating_sub(1);
    }

    fn mark(&mut self, now: u64, change: impl FnOnce(&mut Marks)) {
        if now - self.on_disk.0 > WRITEBACK {
            self.on_disk = (now, self.marks);
        }
        change(&mut self.marks);
    }

    fn collect(&mut self, now: u64, wrong: Option<Mistake>) -> Vec<Kept> {
        let forgets = matches!(wrong, Some(Mistake::ForgetNewest | Mistake::ForgetSent));
        let mut gone = Vec::new();
        // The newest of which anything was flushed stays.
        let begun = self.active
            && self
                .segments
                .back()
                .is_some_and(|it| it.records.len() <= self.written);
        let kept = if begun { 2 } else { 1 };
        loop {
            let stays = if forgets {
                self.segments.len() == 1 && self.active
            } else {
                self.segments.len() <= kept
            };
            let Some(oldest) = self.segments.front().filter(|_| !stays) else {
                return gone;
            };
            let mut reached = self.reached(now);
            if wrong == Some(Mistake::ForgetAfterOne) {
                reached.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.acked));
                reached.truncate(1);
            }
            if !may_go(oldest.last, &reached, self.limit) {
                return gone;
            }
            gone.extend(
                self.segments
                    .pop_front()
                    .into_iter()
                    .flat_map(|segment| segment.records),
            );
        }
    }

    fn reached(&self, now: u64) -> Vec<Reached> {
        let behind = |acked: u64| -> u64 {
            let unread = self.segments.iter().filter(|segment| segment.last > acked);
            unread.map(|segment| segment.bytes).sum()
        };
        let endpoints = self.cursors.iter().zip(&self.caught_up);
        endpoints
            .map(|(acked, caught_up)| Reached {
                acked: *acked,
                behind_for: Duration::from_millis(now - caught_up),
                behind_bytes: behind(*acked),
            })
            .collect()
    }
}
