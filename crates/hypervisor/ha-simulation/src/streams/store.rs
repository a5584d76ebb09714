// SPDX-License-Identifier: Apache-2.0
//! What one replica has stored of every agent's stream. Which records of a batch are new is decided by the code that
//! services run. A power cut of its machine takes what was committed in the last seconds.

use cobaltcore_ha_wire::{Admission, Batch};

/// Milliseconds after which the system has written down what was committed.
const WRITTEN_DOWN: u64 = 10_000;

/// The records of one stream: what each number stands for, nothing for those that were announced as lost.
#[derive(Clone, Debug, Default)]
struct Rows {
    what: Vec<u64>,
    /// How many of them a power cut leaves.
    safe: usize,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// So many at its beginning were known; everything is stored up to a number.
    Taken { skip: usize, last: u64 },
    /// This number must come next.
    Expected(u64),
    /// A record that was stored before would have been stored again, or another one under its number.
    Twice(u64),
}

/// The database of one replica.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    rows: Vec<Rows>,
    written_down: u64,
    /// Whether anything can be stored.
    pub(crate) works: bool,
    /// Whether that takes seconds.
    pub(crate) slow: bool,
}

impl Store {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            rows: vec![Rows::default(); hosts],
            written_down: 0,
            works: true,
            slow: false,
        }
    }

    pub(crate) fn mend(&mut self) {
        self.works = true;
        self.slow = false;
    }

    pub(super) fn last(&self, h: usize) -> u64 {
        self.rows[h].what.len() as u64
    }

    /// What is stored under a number, if anything is.
    pub(super) fn what(&self, h: usize, seq: u64) -> Option<u64> {
        let place = usize::try_from(seq).ok()?.checked_sub(1)?;
        self.rows[h].what.get(place).copied().filter(|what| *what != 0)
    }

    /// Commits what is new in a batch.
    pub(super) fn take(&mut self, h: usize, batch: &Batch, now: u64, blindly: bool) -> Stored {
        let known = self.last(h);
        let (skip, last) = match batch.admit(known) {
            _ if blindly => (0, batch.events.last().map_or(known, |event| event.seq.max(known))),
            Admission::Expected(seq) => return Stored::Expected(seq),
            Admission::Take { skip, last } => (skip, last),
        };
        for event in &batch.events {
            let other = self.what(h, event.seq).is_some_and(|what| what != event.mono_ns);
            let again = self.what(h, event.seq).is_some() && blindly;
            if other || again {
                return Stored::Twice(event.seq);
            }
        }
        if now - self.written_down > WRITTEN_DOWN {
            self.written_down = now;
            for rows in &mut self.rows {
                rows.safe = rows.what.len();
            }
        }
        let rows = &mut self.rows[h].what;
        rows.resize(usize::try_from(last).unwrap_or(rows.len()), 0);
        for event in batch.events.iter().skip(skip) {
            let place = usize::try_from(event.seq - 1).unwrap_or(usize::MAX);
            if let Some(row) = rows.get_mut(place) {
                *row = event.mono_ns;
            }
        }
        Stored::Taken { skip, last }
    }

    /// Its machine loses power, or its disk with everything.
    pub(super) fn lose(&mut self, everything: bool) {
        for rows in &mut self.rows {
            let safe = if everything { 0 } else { rows.safe };
            rows.what.truncate(safe);
            rows.safe = rows.safe.min(safe);
        }
    }
}
