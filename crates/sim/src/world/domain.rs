// SPDX-License-Identifier: Apache-2.0
//! A domain as one libvirt daemon knows it: its state with libvirt's reasons, the job that runs on it, and figures that
//! follow from the time it has been running. The same server can be a domain on two hosts, during a migration or by accident.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;

/// State and reason, in libvirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Executes.
    Running(Running),
    /// Holds its memory and does not execute.
    Paused(Paused),
    /// Does not exist as a process.
    ShutOff(ShutOff),
}

/// Why it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Running {
    /// It was started.
    Booted = 1,
    /// It came from another host.
    Migrated = 2,
    /// It was resumed.
    Unpaused = 5,
    /// Its migration was given up.
    MigrationCanceled = 6,
}

/// Why it is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Paused {
    /// Somebody asked for it.
    User = 1,
    /// It is about to be migrated, or arrives.
    Migration = 2,
    /// Its disk failed.
    IoError = 5,
    /// Its watchdog fired.
    Watchdog = 6,
}

/// Why it is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShutOff {
    /// Never started here, or the host lost power.
    Unknown = 0,
    /// The guest shut down.
    Shutdown = 1,
    /// It was destroyed.
    Destroyed = 2,
    /// It crashed.
    Crashed = 3,
    /// It moved to another host.
    Migrated = 4,
    /// It could not be started.
    Failed = 6,
}

impl Phase {
    /// Number of the state.
    pub fn state(self) -> i32 {
        match self {
            Self::Running(_) => 1,
            Self::Paused(_) => 3,
            Self::ShutOff(_) => 5,
        }
    }

    /// Number of the reason.
    pub fn reason(self) -> i32 {
        match self {
            Self::Running(why) => why as i32,
            Self::Paused(why) => why as i32,
            Self::ShutOff(why) => why as i32,
        }
    }
}

/// A migration as the source's libvirt sees it: memory goes over in rounds, each carries what the guest dirtied during
/// the one before, until the rest fits into the allowed downtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// When it began.
    pub started: Moment,
    /// When the first byte went over.
    pub transfer_started: Option<Moment>,
    /// Round, from 1.
    pub iteration: u64,
    /// When this round began.
    pub round_started: Moment,
    /// What this round carries, bytes.
    pub round_bytes: u64,
    /// What went over in earlier rounds, bytes.
    pub processed: u64,
    /// All memory, bytes.
    pub total: u64,
    /// Bytes per second.
    pub bandwidth: u64,
    /// Bytes the guest dirties per second.
    pub dirty_rate: u64,
    /// Longest pause allowed, milliseconds.
    pub max_downtime_ms: u64,
    /// What it is: 4 incoming migration, 5 outgoing migration.
    pub operation: i32,
    /// Whether no byte moves, by fault.
    pub stalled: bool,
}

impl Job {
    /// Bytes of this round that are over.
    pub fn moved(&self, now: Moment) -> u64 {
        if self.stalled || self.transfer_started.is_none() {
            return 0;
        }
        let moved = now.since(self.round_started).as_secs_f64() * self.bandwidth as f64;
        (moved as u64).min(self.round_bytes)
    }

    /// Bytes that are still to go.
    pub fn remaining(&self, now: Moment) -> u64 {
        if self.transfer_started.is_none() {
            return 0;
        }
        self.round_bytes - self.moved(now)
    }

    /// How long this round takes.
    pub fn round(&self) -> Duration {
        Duration::from_secs_f64(self.round_bytes as f64 / self.bandwidth.max(1) as f64)
    }

    /// What the guest dirties during this round.
    pub fn next_round_bytes(&self) -> u64 {
        let dirtied = self.round().as_secs_f64() * self.dirty_rate as f64;
        (dirtied as u64).min(self.total)
    }

    /// Whether what would be left after this round fits into the allowed downtime.
    pub fn converges(&self) -> bool {
        let left = self.next_round_bytes() as f64 / self.bandwidth.max(1) as f64;
        left * 1000.0 <= self.max_downtime_ms as f64
    }

    /// The pause the guest sees at the end.
    pub fn downtime_ms(&self) -> u64 {
        let left = self.next_round_bytes() as f64 / self.bandwidth.max(1) as f64;
        ((left * 1000.0) as u64).max(20)
    }
}

/// Figures of a job that ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finished {
    /// The job as it was.
    pub job: Job,
    /// When it ended.
    pub at: Moment,
}

/// A domain on one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Domain {
    /// Identity, the server's.
    pub uuid: Uuid,
    /// Name in libvirt.
    pub name: String,
    /// Number while active, -1 otherwise.
    pub id: i32,
    /// State and reason.
    pub phase: Phase,
    /// Since when it is in it.
    pub since: Moment,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// CPU time used up to `since`, nanoseconds.
    pub cpu_time_ns: u64,
    /// Whether its process answers.
    pub hung: bool,
    /// NUMA cell it is bound to.
    pub cell: Option<u32>,
    /// What runs on it.
    pub job: Option<Job>,
    /// Figures of the last job.
    pub finished: Option<Finished>,
    /// The definition somebody else gave, verbatim; Nova's guests are written from the server.
    pub xml: Option<String>,
}

impl Domain {
    /// Whether there is a process for it.
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::ShutOff(_))
    }

    /// Whether its CPUs run.
    pub fn executes(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// CPU time used, nanoseconds; a running guest uses a quarter of its CPUs.
    pub fn cpu_time(&self, now: Moment) -> u64 {
        if !self.executes() {
            return self.cpu_time_ns;
        }
        let running = now.since(self.since).as_nanos() as u64;
        self.cpu_time_ns + running / 4 * u64::from(self.vcpus)
    }

    /// Goes into another state.
    pub fn enter(&mut self, phase: Phase, now: Moment) {
        self.cpu_time_ns = self.cpu_time(now);
        self.phase = phase;
        self.since = now;
        if !self.is_active() {
            self.id = -1;
            self.hung = false;
            self.cpu_time_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(bandwidth: u64, dirty_rate: u64) -> Job {
        Job {
            started: Moment(0),
            transfer_started: Some(Moment(0)),
            iteration: 1,
            round_started: Moment(0),
            round_bytes: 1_000_000,
            processed: 0,
            total: 1_000_000,
            bandwidth,
            dirty_rate,
            max_downtime_ms: 300,
            operation: 5,
            stalled: false,
        }
    }

    #[test]
    fn each_round_carries_what_was_dirtied_during_the_one_before() {
        let job = job(1_000_000, 500_000);
        assert_eq!(job.round(), Duration::from_secs(1));
        assert_eq!(job.next_round_bytes(), 500_000);
        assert!(!job.converges());
        assert_eq!(job.moved(Moment(250)), 250_000);
        assert_eq!(job.remaining(Moment(250)), 750_000);
        assert_eq!(job.remaining(Moment(5_000)), 0);
    }

    #[test]
    fn a_guest_that_dirties_faster_than_the_wire_never_converges() {
        assert!(!job(1_000_000, 2_000_000).converges());
        assert_eq!(job(1_000_000, 2_000_000).next_round_bytes(), 1_000_000);
        assert!(job(1_000_000, 100_000).converges());
    }
}
