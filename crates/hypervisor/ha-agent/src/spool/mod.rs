// SPDX-License-Identifier: Apache-2.0
//! The spool: records become durable here before anybody hears of them, and stay until enough endpoints have them.
//!
//! Promises: a record that was accepted is sent, whatever dies in between, unless the disk itself loses it or room
//! runs out; a number is never given to two different records that anybody may have seen; what is lost leaves a gap in
//! the numbers, and every gap is announced. A gap needs no bookkeeping of its own: it is what is missing between one
//! record and the next.
//!
//! One directory belongs to one agent process, which a lock ensures.

mod crc;
mod cursor;
mod files;
mod frame;
mod policy;
mod segment;
mod shared;

use cobaltcore_ha_wire::stream::{Numbers, Reached, Worth, may_go};
use cobaltcore_ha_wire::{AgentId, Event, SpoolState};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use cursor::Cursor;
use cursor::Cursors;
use files::Meta;
pub(crate) use policy::Coalescer;
use segment::Segment;
pub use shared::{SharedSpool, Standing};

use crate::draft::Draft;

/// Quarantined bytes that are kept for people; more are only counted.
const MOST_QUARANTINED: u64 = 64 << 20;
/// What one read takes from a segment at once: more than the largest record.
const WINDOW: usize = 512 * 1024;

/// What went wrong on disk.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        source: std::io::Error,
    },
    /// Another process has the directory.
    #[error("{path} is used by another agent; two agents must not share a spool")]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A record cannot be written as JSON.
    #[error("a record cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SpoolError {
    let path = path.to_owned();
    move |source| SpoolError::Io { what, path, source }
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// Bytes after which a new segment begins.
    pub segment_bytes: u64,
}

/// Something that was lost on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub segment: String,
    /// How many bytes belong to no record.
    pub bytes: u64,
}

/// Records that were given up for want of room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The lowest number among them.
    pub first: u64,
    /// The highest.
    pub last: u64,
    /// How many, by kind.
    pub kinds: BTreeMap<cobaltcore_ha_wire::Kind, u64>,
}

/// What the spool found when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether a new identity was made.
    pub new: bool,
    /// What was lost.
    pub lost: Vec<Lost>,
    /// Bytes of a write that never ended; they were never accepted.
    pub torn: u64,
}

/// A part of the stream.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The records.
    pub events: Vec<Event>,
    /// Whether more are waiting behind them.
    pub more: bool,
}

/// Where a reader was, so that it need not search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    segment: u64,
    generation: u64,
    offset: u64,
    after: u64,
}

/// The spool of one agent.
pub struct Spool {
    dir: PathBuf,
    limits: Limits,
    meta: Meta,
    segments: Vec<Segment>,
    active: Option<File>,
    numbers: Numbers,
    flushed_bytes: u64,
    /// What was written and not accepted could not be taken back yet.
    unsettled: bool,
    cursors: Cursors,
    sent: files::SentMark,
    generation: u64,
    _lock: File,
}

impl Spool {
    /// Opens or creates the spool in `dir`. Counts as a start of the agent.
    pub fn open(dir: &Path, limits: Limits) -> Result<(Self, Opened), SpoolError> {
        std::fs::create_dir_all(dir.join("quarantine")).map_err(failed("create", dir))?;
        let lock = files::lock(dir)?;
        let mut opened = Opened::default();
        let mut meta = files::read_meta(dir).unwrap_or_else(|| {
            opened.new = true;
            Meta::new()
        });
        let names = files::segments(dir)?;
        if opened.new && !names.is_empty() {
            // Whoever numbered these is forgotten: sent under a new id they would be other records.
            for (_, path) in &names {
                let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
                opened.lost.push(lost(path, bytes));
                files::quarantine(dir, path)?;
            }
        }
        let names = if opened.new { Vec::new() } else { names };
        meta.epoch += 1;
        files::write_meta(dir, &meta)?;
        let mut spool = Self {
            sent: files::SentMark::open(dir)?,
            cursors: Cursors::read(dir, &meta.agent_id),
            dir: dir.to_owned(),
            limits,
            meta,
            segments: Vec::new(),
            active: None,
            numbers: Numbers::found(0, 0),
            flushed_bytes: 0,
            unsettled: false,
            generation: 1,
            _lock: lock,
        };
        spool.load(names, &mut opened)?;
        Ok((spool, opened))
    }

    fn load(&mut self, names: Vec<(u64, PathBuf)>, opened: &mut Opened) -> Result<(), SpoolError> {
        let count = names.len();
        let mut last = 0;
        for (index, (_, path)) in names.into_iter().enumerate() {
            let loaded = segment::load(&self.dir, &path, last, index + 1 == count)?;
            if loaded.lost > 0 {
                opened.lost.push(lost(&path, loaded.lost));
            }
            opened.torn += loaded.torn;
            if let Some(segment) = loaded.segment {
                last = segment.last;
                self.segments.push(segment);
            }
        }
        if let Some(newest) = self.segments.last() {
            // A process that died may have written what it never flushed; what is found here counts as accepted.
            let flushed = File::open(&newest.path).and_then(|file| file.sync_data());
            flushed.map_err(failed("flush", &newest.path))?;
        }
        // What was given up for want of room is known to be gone; it is a gap like any other.
        let expected = last.max(self.meta.given);
        let known = expected.max(self.sent.highest()).max(self.cursors.highest());
        if known > expected {
            // Records that somebody has seen are gone; their numbers are not given away again.
            opened.lost.push(Lost {
                segment: format!("records {} to {known}", expected + 1),
                bytes: 0,
            });
        }
        self.numbers = Numbers::found(last, known);
        Ok(())
    }

    /// The id made with this spool.
    pub fn agent_id(&self) -> &AgentId {
        &self.meta.agent_id
    }

    /// How often an agent was started on it.
    pub fn epoch(&self) -> u64 {
        self.meta.epoch
    }

    /// Every record up to this number is durable.
    pub fn flushed(&self) -> u64 {
        self.numbers.flushed()
    }

    /// Changes how much room there is.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Which endpoints count. Where others stopped is remembered, but they are not waited for.
    pub fn set_endpoints(&mut self, endpoints: &[String]) {
        self.cursors.set(endpoints);
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The limit as it is now: what was configured, and never a tenth of the file system.
    fn limit(&self) -> u64 {
        self.limits.max_bytes.min(files::tenth_of_disk(&self.dir))
    }

    /// Whether room is short enough for repeated records to become one.
    pub fn is_pressed(&self) -> bool {
        self.bytes() * 5 >= self.limit() * 4
    }

    /// Writes records and gives them numbers. They are not accepted before [`Spool::accept`]. On an error nothing was
    /// written and no number was used. Says what had to be dropped to make room.
    pub fn append(&mut self, drafts: &[Draft]) -> Result<Option<Dropped>, SpoolError> {
        if self.unsettled {
            self.rollback()?;
        }
        if self.numbers.must_jump() {
            self.roll()?;
            self.numbers.jump();
        }
        let mut text = Vec::with_capacity(drafts.len() * 320);
        let mut events = Vec::with_capacity(drafts.len());
        for (draft, seq) in drafts.iter().zip(self.numbers.next()..) {
            let event = draft.clone().numbered(seq);
            let length = frame::write(&event, &mut text)?;
            events.push((event, length as u64));
        }
        let dropped = self.make_room(text.len() as u64)?;
        self.roll_if_full()?;
        let file = self.active_file()?;
        if let Err(source) = std::io::Write::write_all(&mut &*file, &text) {
            self.rollback()?;
            let path = self
                .segments
                .last()
                .map_or_else(|| self.dir.clone(), |segment| segment.path.clone());
            return Err(SpoolError::Io {
                what: "write to",
                path,
                source,
            });
        }
        if let Some(segment) = self.segments.last_mut() {
            for (event, length) in &events {
                segment.add(event, *length);
            }
        }
        self.numbers.give(drafts.len() as u64);
        Ok(dropped)
    }

    /// What must be flushed before [`Spool::accept`]. Flushing needs no access to the spool.
    pub fn to_flush(&self) -> Result<Option<File>, SpoolError> {
        let clone = self.active.as_ref().map(File::try_clone).transpose();
        clone.map_err(failed("flush", &self.dir))
    }

    /// Everything written so far has been flushed.
    pub fn accept(&mut self) -> u64 {
        self.flushed_bytes = self.segments.last().map_or(0, |segment| segment.bytes);
        self.numbers.accept()
    }

    /// Takes back what was written and not accepted, after a failed write or flush. Where the disk refuses that too, it is
    /// done before anything else is written: what was accepted in the same segment is still waited for.
    pub fn rollback(&mut self) -> Result<(), SpoolError> {
        self.unsettled = true;
        let (keep, accepted) = (self.flushed_bytes, self.numbers.flushed());
        if self.active.is_some()
            && let Some(segment) = self.segments.last_mut()
        {
            let file = files::open_for_append(&segment.path)?;
            file.set_len(keep).map_err(failed("truncate", &segment.path))?;
            if keep == 0 {
                files::remove(&segment.path)?;
                self.segments.pop();
            } else {
                segment.forget_after(accepted, keep);
            }
        }
        self.active = None;
        self.numbers.take_back(self.sent.highest().max(self.meta.given));
        self.unsettled = false;
        Ok(())
    }

    fn active_file(&mut self) -> Result<&File, SpoolError> {
        if self.active.is_none() {
            // After a start or an error a new segment: what lies behind is settled.
            let path = self.dir.join(files::segment_name(self.numbers.next()));
            let file = files::create(&path)?;
            files::sync_dir(&self.dir)?;
            self.generation += 1;
            self.segments
                .push(Segment::new(path, self.numbers.next(), self.generation));
            self.flushed_bytes = 0;
            self.active = Some(file);
        }
        match &self.active {
            Some(file) => Ok(file),
            None => Err(SpoolError::Busy {
                path: self.dir.clone(),
            }),
        }
    }

    /// Ends the segment if it is full. What is in it is flushed, so that only the last one may be torn.
    fn roll_if_full(&mut self) -> Result<(), SpoolError> {
        let full = |segment: &Segment| segment.bytes >= self.limits.segment_bytes;
        if self.active.is_some() && self.segments.last().is_some_and(full) {
            self.roll()?;
        }
        Ok(())
    }

    fn roll(&mut self) -> Result<(), SpoolError> {
        if let Some(file) = self.active.take() {
            file.sync_data().map_err(failed("flush", &self.dir))?;
            self.accept();
        }
        Ok(())
    }

    fn make_room(&mut self, need: u64) -> Result<Option<Dropped>, SpoolError> {
        let limit = self.limit();
        if self.bytes() + need <= limit {
            return Ok(None);
        }
        self.collect()?;
        let over = (self.bytes() + need).saturating_sub(limit);
        if over == 0 {
            return Ok(None);
        }
        // A slice at once, so that a full spool is not rewritten for every record.
        let mut wanted = over + limit / 16;
        self.roll()?;
        // The newest may be among those that go, and with it what tells which numbers were given.
        self.meta.given = self.numbers.next() - 1;
        files::write_meta(&self.dir, &self.meta)?;
        let mut gone = Vec::new();
        for worth in Worth::ALL {
            for index in 0..self.segments.len() {
                if wanted == 0 {
                    break;
                }
                self.generation += 1;
                let generation = self.generation;
                if let Some(segment) = self.segments.get_mut(index) {
                    let freed = segment.drop_worth(worth, wanted, generation, &mut gone)?;
                    wanted = wanted.saturating_sub(freed);
                }
            }
        }
        for segment in self.segments.extract_if(.., |segment| segment.records == 0) {
            files::remove(&segment.path)?;
        }
        self.note_dropped(&gone)
    }

    fn note_dropped(
        &mut self,
        gone: &[(u64, cobaltcore_ha_wire::Kind)],
    ) -> Result<Option<Dropped>, SpoolError> {
        let mut kinds = BTreeMap::new();
        for (_, kind) in gone {
            *kinds.entry(*kind).or_insert(0) += 1;
        }
        let numbers = || gone.iter().map(|(seq, _)| *seq);
        let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else {
            return Ok(None);
        };
        self.meta.dropped_total += gone.len() as u64;
        files::write_meta(&self.dir, &self.meta)?;
        Ok(Some(Dropped { first, last, kinds }))
    }

    /// Removes the segments nobody is waited for.
    pub fn collect(&mut self) -> Result<(), SpoolError> {
        while let Some(path) = self.unneeded() {
            files::remove(path)?;
            self.segments.remove(0);
        }
        Ok(())
    }

    /// The oldest segment, if nobody waits for it. The newest of which anything was flushed stays, whoever has it: after a
    /// power cut it may be all that tells which numbers were given, because the marks beside it are not flushed.
    fn unneeded(&self) -> Option<&Path> {
        let begun = self.active.is_some() && self.flushed_bytes == 0;
        let kept = if begun { 2 } else { 1 };
        let oldest = self.segments.first().filter(|_| self.segments.len() > kept)?;
        may_go(oldest.last, &self.reached(), self.limit()).then_some(&oldest.path)
    }

    fn reached(&self) -> Vec<Reached> {
        let behind = |acked: u64| -> u64 {
            let unread = self.segments.iter().filter(|segment| segment.last > acked);
            unread.map(|segment| segment.bytes).sum()
        };
        self.cursors
            .current()
            .map(|(cursor, caught_up)| Reached {
                acked: cursor.acked,
                behind_for: caught_up.elapsed(),
                behind_bytes: behind(cursor.acked),
            })
            .collect()
    }

    /// Accepted records after number `after`, at most so many and so many bytes.
    pub fn read(
        &self,
        after: u64,
        records: usize,
        bytes: usize,
        place: &mut Place,
    ) -> Result<Chunk, SpoolError> {
        let mut chunk = Chunk::default();
        let mut taken = 0;
        for segment in self.segments.iter().filter(|segment| segment.last > after) {
            let known = place.segment == segment.first
                && place.generation == segment.generation
                && place.after <= after;
            let mut offset = if known { place.offset } else { 0 };
            while offset < segment.bytes {
                let window = files::read_at(&segment.path, offset, WINDOW)?;
                let mut used = 0;
                while let frame::Found::Record(event, length) = frame::read(&window, used) {
                    let seq = event.seq;
                    if seq > self.numbers.flushed() {
                        return Ok(chunk);
                    }
                    if seq > after {
                        if chunk.events.len() >= records || (taken + length > bytes && taken > 0) {
                            chunk.more = true;
                            return Ok(chunk);
                        }
                        taken += length;
                        chunk.events.push(*event);
                    }
                    used += length;
                    *place = Place {
                        segment: segment.first,
                        generation: segment.generation,
                        offset: offset + used as u64,
                        after: seq,
                    };
                }
                if used == 0 {
                    break;
                }
                offset += used as u64;
            }
        }
        Ok(chunk)
    }

    /// Where an endpoint stands.
    pub fn cursor(&self, endpoint: &str) -> Cursor {
        self.cursors.get(endpoint)
    }

    /// An endpoint has stored everything up to `acked`. If that is more than was ever sent, this spool is older than
    /// what was delivered: its numbers continue behind.
    pub fn ack(&mut self, endpoint: &str, acked: u64) -> Result<bool, SpoolError> {
        let beyond = self.numbers.acked(acked);
        if beyond {
            self.sent.raise(acked)?;
        }
        self.cursors.ack(endpoint, acked, self.numbers.flushed());
        self.collect()?;
        Ok(beyond)
    }

    /// An endpoint says that it has less than was thought.
    pub fn rewind(&mut self, endpoint: &str, expected: u64) {
        self.cursors.rewind(endpoint, expected.saturating_sub(1));
    }

    /// This record is not offered to this endpoint again; it hears of a gap.
    pub fn skip(&mut self, endpoint: &str, seq: u64) {
        self.cursors.skip(endpoint, seq);
    }

    /// Numbers up to `seq` are about to be seen by somebody.
    pub fn sending(&mut self, seq: u64) -> Result<(), SpoolError> {
        self.sent.raise(seq)
    }

    /// Keeps a copy of what an endpoint refused, for people.
    pub fn keep_refused(&self, name: &str, body: &[u8]) -> Result<(), SpoolError> {
        let folder = self.dir.join("quarantine");
        if files::folder_bytes(&folder) + body.len() as u64 > MOST_QUARANTINED {
            return Ok(());
        }
        let path = folder.join(name);
        std::fs::write(&path, body).map_err(failed("write", &path))
    }

    /// Writes down where the endpoints stand.
    pub fn save_cursors(&mut self) -> Result<(), SpoolError> {
        self.cursors.save(&self.dir, &self.meta.agent_id)
    }

    /// Whether a crash dump of this name is new; it is remembered.
    pub fn is_new_dump(&mut self, name: &str) -> Result<bool, SpoolError> {
        let new = self.meta.dumps.insert(name.to_owned());
        if new {
            files::write_meta(&self.dir, &self.meta)?;
        }
        Ok(new)
    }

    /// What waits for an endpoint.
    pub fn state(&self, endpoint: &str) -> SpoolState {
        self.standing().state(endpoint)
    }

    /// How it stands, for whoever must not wait for it.
    pub fn standing(&self) -> Standing {
        let segments = self.segments.iter();
        Standing {
            flushed: self.numbers.flushed(),
            bytes: self.bytes(),
            dropped_total: self.meta.dropped_total,
            segments: segments.map(|segment| (segment.last, segment.oldest)).collect(),
            cursors: self.cursors.all().clone(),
            current: self.cursors.names().cloned().collect(),
            unsaved: self.cursors.is_dirty(),
        }
    }
}

fn lost(path: &Path, bytes: u64) -> Lost {
    let segment = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Lost { segment, bytes }
}

#[cfg(test)]
mod tests;
