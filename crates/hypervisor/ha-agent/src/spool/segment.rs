// SPDX-License-Identifier: Apache-2.0
//! One file of records: loading it after a start, saving what is whole when something is damaged, and rewriting it
//! without the records that are given up.

use std::path::{Path, PathBuf};

use cobaltcore_ha_wire::stream::Worth;
use cobaltcore_ha_wire::{Event, Kind};
use jiff::Timestamp;

use super::{SpoolError, failed, files, frame};

/// What is known of a segment without reading it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) bytes: u64,
    pub(super) records: u64,
    pub(super) oldest: Timestamp,
    /// Changes when the file is rewritten, so that places in it are not used any more.
    pub(super) generation: u64,
    worth: [u64; Worth::ALL.len()],
}

/// A segment found at start.
pub(super) struct Loaded {
    pub(super) segment: Option<Segment>,
    pub(super) lost: u64,
    pub(super) torn: u64,
}

impl Segment {
    pub(super) fn new(path: PathBuf, first: u64, generation: u64) -> Self {
        Self {
            path,
            first,
            last: 0,
            bytes: 0,
            records: 0,
            oldest: Timestamp::now(),
            generation,
            worth: [0; Worth::ALL.len()],
        }
    }

    pub(super) fn add(&mut self, event: &Event, length: u64) {
        if self.records == 0 {
            self.oldest = event.ts;
        }
        self.last = event.seq;
        self.bytes += length;
        self.records += 1;
        if let Some(bytes) = self.worth.get_mut(Worth::of(event) as usize) {
            *bytes += length;
        }
    }

    /// Counts again after the file was cut.
    pub(super) fn forget_after(&mut self, last: u64, bytes: u64) {
        self.last = last;
        self.bytes = bytes;
        self.generation += 1;
    }

    /// Rewrites the file without records of this worth, oldest first, until so many bytes are free. What went is added
    /// to `gone`.
    pub(super) fn drop_worth(
        &mut self,
        worth: Worth,
        wanted: u64,
        generation: u64,
        gone: &mut Vec<(u64, Kind)>,
    ) -> Result<u64, SpoolError> {
        if self.worth.get(worth as usize).copied().unwrap_or(0) == 0 {
            return Ok(0);
        }
        let bytes = std::fs::read(&self.path).map_err(failed("read", &self.path))?;
        let mut kept = Vec::with_capacity(bytes.len());
        let mut fresh = Self::new(self.path.clone(), self.first, generation);
        let mut freed = 0;
        for (event, offset, length) in frame::scan(&bytes).records {
            if freed < wanted && Worth::of(&event) == worth {
                freed += length as u64;
                gone.push((event.seq, event.kind));
                continue;
            }
            kept.extend_from_slice(bytes.get(offset..offset + length).unwrap_or_default());
            fresh.add(&event, length as u64);
        }
        files::replace(&self.path, &kept)?;
        if fresh.records == 0 {
            fresh.last = self.last;
        }
        *self = fresh;
        Ok(freed)
    }
}

/// Loads the segment at `path`, whose numbers follow `after`. If something in it is damaged a copy is quarantined and
/// the whole records stay; only the last segment may end in a torn write.
pub(super) fn load(dir: &Path, path: &Path, after: u64, is_last: bool) -> Result<Loaded, SpoolError> {
    let bytes = std::fs::read(path).map_err(failed("read", path))?;
    let scan = frame::scan(&bytes);
    let tail = bytes.len().saturating_sub(scan.end);
    let (torn, lost) = if is_last {
        (tail, scan.holes)
    } else {
        (0, scan.holes + tail)
    };
    let mut segment = Segment::new(path.to_owned(), 0, 0);
    let mut kept = Vec::with_capacity(scan.end);
    for (event, offset, length) in scan.records {
        if event.seq <= after {
            continue;
        }
        if segment.records == 0 {
            segment.first = event.seq;
        }
        kept.extend_from_slice(bytes.get(offset..offset + length).unwrap_or_default());
        segment.add(&event, length as u64);
    }
    if lost > 0 {
        files::copy_to_quarantine(dir, path)?;
    }
    if segment.records == 0 {
        files::remove(path)?;
    } else if kept.len() != bytes.len() {
        files::replace(path, &kept)?;
    }
    Ok(Loaded {
        segment: (segment.records > 0).then_some(segment),
        lost: lost as u64,
        torn: torn as u64,
    })
}
