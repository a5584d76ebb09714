// SPDX-License-Identifier: Apache-2.0
//! A world on disk: one file, a line that names its form and then JSON, that is replaced as a whole, so that a crash leaves
//! the old or the new world and never half of one. A loaded world goes on where it stood; the time in between has not passed in it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::World;
use super::clock::{Clock, Moment};
use super::state::State;
use crate::error::Error;

/// First line of the file; the number goes up when the form changes.
const FORM: &str = "cobaltcore simulated world 1";

/// Where the next version of the file is written before it takes the place of the old one.
pub(super) fn draft_of(path: &Path) -> PathBuf {
    path.with_extension("new")
}

impl World {
    /// Writes the world to a file.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        self.save_counted(path).map(|_| ())
    }

    /// Reads a world from a file; its time runs on from now, `scale` times as fast as outside (0: stands).
    pub fn load(path: &Path, scale: f64) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::Load {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::read(path).map_err(failed)?;
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(bytes.len());
        let (form, state) = bytes.split_at(end);
        if form != FORM.as_bytes() {
            return Err(Error::Form {
                path: path.to_owned(),
                wanted: FORM,
            });
        }
        let mut state: State = serde_json::from_slice(state).map_err(|error| failed(error.into()))?;
        state.index();
        let clock = if scale > 0.0 {
            state.move_to(Moment::wall());
            Clock::running(state.now, scale)
        } else {
            Clock::standing(state.now)
        };
        Ok(Self::of(state, clock))
    }
}

impl State {
    /// Writes a copy of the world to a file. Copying is quicker than writing: nobody waits for the disk.
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::Save {
            path: path.to_owned(),
            source,
        };
        let draft = draft_of(path);
        let file = File::create(&draft).map_err(failed)?;
        let mut out = BufWriter::new(file);
        writeln!(out, "{FORM}").map_err(failed)?;
        serde_json::to_writer(&mut out, self).map_err(|error| failed(error.into()))?;
        out.flush().map_err(failed)?;
        out.get_ref().sync_data().map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)
    }
}

impl State {
    /// Moves the whole world in time, so that nothing is overdue only because it was asleep.
    fn move_to(&mut self, now: Moment) {
        let gap = now.since(self.now);
        self.now = self.now + gap;
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().map(|(at, due)| (at + gap, due)).collect();
        for host in self.hosts.values_mut() {
            if let Some(since) = host
                .service
                .as_mut()
                .and_then(|service| service.silent_since.as_mut())
            {
                *since = *since + gap;
            }
            for domain in host.domains.values_mut() {
                domain.since = domain.since + gap;
                if let Some(job) = &mut domain.job {
                    job.started = job.started + gap;
                    job.round_started = job.round_started + gap;
                    job.transfer_started = job.transfer_started.map(|at| at + gap);
                }
            }
        }
    }
}
