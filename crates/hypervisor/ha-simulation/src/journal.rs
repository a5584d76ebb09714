// SPDX-License-Identifier: Apache-2.0
//! The journal and those who write to it. A write is durable as a whole or not at all, and its writer may not learn
//! which: the answer is lost, the write comes late, the disk refuses it, or the writer dies before, in the middle of or
//! after it. One that was cut is nobody's to read before it is restored.

use cobaltcore_ha_engine::{Action, Epoch, Input, Ledger, Record};

use crate::world::{Crash, Event, World};

/// Milliseconds between two attempts to write the same.
const AGAIN: u64 = 500;
/// Milliseconds after its last renewal for which a leader tries.
const PATIENCE: u64 = 10_000;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// The disk takes nothing.
    pub(crate) full: bool,
    /// The last record is cut: it can be neither read nor continued.
    pub(crate) cut: bool,
    /// So many of a hundred writes fail, one way or another.
    pub(crate) flaky: u8,
}

/// When a leader dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// It has decided, and nothing of it is written.
    Decided,
    /// It has written what it is about to do.
    Written,
    /// It has done it, and did not hear what came of it.
    Done,
    /// It has heard, and not written that.
    Told,
}

/// How a write ends, as its writer sees it.
enum Write {
    /// Durable.
    Known,
    /// It may be durable or not.
    Unknown,
    /// Somebody else wrote.
    Replaced,
}

impl World {
    pub(crate) fn pump(&mut self, r: usize) {
        let replica = &mut self.replicas[r];
        if !replica.committing && !replica.queue.is_empty() {
            replica.committing = true;
            let incarnation = replica.incarnation;
            let latency = self.rng.u64(5..60);
            self.schedule(latency, Event::Commit(r, incarnation));
        }
    }

    /// Makes the oldest records durable, then starts their actions.
    pub(crate) fn commit(&mut self, r: usize, incarnation: u64) {
        if !self.runs(r, incarnation) {
            return;
        }
        let frozen = self.replicas[r].frozen_until.saturating_sub(self.now);
        if frozen > 0 {
            self.schedule(frozen + 1, Event::Commit(r, incarnation));
            return;
        }
        self.replicas[r].committing = false;
        let Some((records, _)) = self.replicas[r].queue.front() else {
            return;
        };
        let records = records.clone();
        if self.dies(Moment::Decided, records.len()) {
            self.crash_replica(r);
            return;
        }
        match self.try_write(r, &records) {
            Write::Known => {
                let (records, actions) = self.replicas[r].queue.pop_front().unwrap_or_default();
                self.written(r, &records, actions);
            }
            Write::Replaced => self.give_up(r),
            Write::Unknown => {
                let renewed = self.replicas[r].lease_renewed.unwrap_or(0);
                if self.now.saturating_sub(renewed) < PATIENCE {
                    self.replicas[r].committing = true;
                    self.schedule(AGAIN, Event::Commit(r, incarnation));
                } else {
                    self.give_up(r);
                }
            }
        }
    }

    /// One attempt. What is stored decides, not what was answered before.
    fn try_write(&mut self, r: usize, records: &[Record]) -> Write {
        let way = self.kubernetes(r);
        if !way.there {
            return Write::Unknown;
        }
        if self.trouble.full {
            self.mark("a record is refused");
            return Write::Unknown;
        }
        let known = |durable: bool| match (durable, way.back) {
            (true, true) => Write::Known,
            (false, true) => Write::Replaced,
            (_, false) => Write::Unknown,
        };
        let ours = records.last().is_some() && self.journal.ends_with(records);
        if ours || self.trouble.cut || !self.continues(records) {
            return known(ours && !self.trouble.cut);
        }
        if self.trouble.flaky > 0 && self.ways.u8(..100) < self.trouble.flaky {
            match self.ways.u8(..3) {
                0 => self.mark("a record is refused"),
                1 => {
                    self.mark("a record is written, and its writer does not know");
                    self.keep(records);
                }
                _ => {
                    let late = self.ways.u64(100..20_000);
                    self.schedule(late, Event::LateWrite(records.to_vec()));
                }
            }
            return Write::Unknown;
        }
        self.keep(records);
        if !way.back {
            self.mark("a record is written, and its writer does not know");
        }
        known(true)
    }

    /// Whether these records are the next ones, and of nobody who was replaced.
    fn continues(&self, records: &[Record]) -> bool {
        let newest = self.journal.last().map_or(Epoch(0), |record| record.epoch);
        let next = self.journal.len() as u64 + 1;
        let stale = records.iter().any(|record| record.epoch < newest);
        let gap = records.first().is_some_and(|record| record.seq != next);
        !stale && !gap
    }

    /// A write that its writer has long given up, or written again.
    pub(crate) fn late_write(&mut self, records: &[Record]) {
        let sound = self.kubernetes_up && !self.trouble.cut && !self.trouble.full;
        if sound && self.continues(records) {
            self.mark("a record comes late");
            self.keep(records);
        }
    }

    fn keep(&mut self, records: &[Record]) {
        for record in records {
            self.story(|| format!("journal: {:?}", record.entry));
            self.check_grounds(&record.entry);
        }
        self.written_at
            .extend(std::iter::repeat_n(self.now, records.len()));
        for record in records {
            let kept = self.durable.apply(record);
            if kept.is_err() {
                self.durable = Ledger::default();
            }
        }
        self.journal.extend_from_slice(records);
    }

    fn written(&mut self, r: usize, records: &[Record], actions: Vec<Action>) {
        let dies = |crash: &Crash| records.iter().any(|record| (crash.at)(&record.entry));
        let dies = self.options.crash.filter(|crash| self.dies_once && dies(crash));
        if let Some(crash) = dies {
            self.dies_once = false;
            if crash.done {
                self.dying = Some((r, Moment::Done));
                self.start(r, actions);
            } else {
                self.crash_replica(r);
            }
            return;
        }
        for moment in [Moment::Written, Moment::Done, Moment::Told] {
            if !self.dies(moment, 0) {
                continue;
            }
            if moment == Moment::Written {
                self.crash_replica(r);
                return;
            }
            self.dying = Some((r, moment));
        }
        self.start(r, actions);
        self.pump(r);
    }

    /// Whether a leader was to die at such a moment once the journal is so long.
    fn dies(&mut self, moment: Moment, more: usize) -> bool {
        let long = (self.journal.len() + more) as u64;
        let now = self
            .crash_at_record
            .is_some_and(|(at, when)| when == moment && long >= at);
        if now {
            self.crash_at_record = None;
            self.mark(match moment {
                Moment::Decided => "a leader dies before a record",
                Moment::Written => "a leader dies at a record",
                Moment::Done => "a leader dies after the effect",
                Moment::Told => "a leader dies after the answer",
            });
        }
        now
    }

    /// What was decided could not be written, as far as its writer knows: its term is over. What it was about to do is
    /// not done, and the next term begins by reading.
    fn give_up(&mut self, r: usize) {
        self.replicas[r].queue.clear();
        self.mark("a term ends for want of a journal");
        let incarnation = self.replicas[r].incarnation;
        self.deliver(r, incarnation, Input::JournalFailed);
    }
}
