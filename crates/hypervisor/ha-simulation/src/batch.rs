// SPDX-License-Identifier: Apache-2.0
//! Many seeds, on all cores, with progress. Stops at the first seed that breaks a promise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use cobaltcore_ha_engine::Engine;

use crate::invariants::Violation;
use crate::world::{Options, run_seed};

/// What to run.
#[derive(Clone, Copy)]
pub struct Batch {
    /// The first seed.
    pub base: u64,
    /// How many.
    pub count: u64,
    /// Applied to every engine.
    pub prepare: Option<fn(&mut Engine)>,
}

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What.
    pub violation: Violation,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct BatchReport {
    /// Seeds that ran.
    pub seeds: u64,
    /// Steps of engines.
    pub steps: u64,
    /// Guests brought back.
    pub recovered: u64,
    /// Power-offs.
    pub fences: u64,
    /// What went wrong, and how often.
    pub struck: BTreeMap<String, u64>,
    /// The lowest seed that failed.
    pub failure: Option<Failure>,
}

/// Runs a batch. `progress` hears how many seeds are done.
pub fn run_batch(batch: Batch, mut progress: impl FnMut(u64)) -> BatchReport {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::sync_channel(64);
    let mut report = BatchReport::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= batch.count {
                        break;
                    }
                    let seed = batch.base.wrapping_add(n);
                    let run = run_seed(Options {
                        prepare: batch.prepare,
                        ..Options::new(seed)
                    });
                    if sender.send(run).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for run in receiver {
            report.seeds += 1;
            report.steps += run.steps;
            report.recovered += run.recovered as u64;
            report.fences += run.fences as u64;
            for (what, times) in run.struck {
                *report.struck.entry(what).or_default() += times;
            }
            if let Some(violation) = run.violation {
                stop.store(true, Ordering::Relaxed);
                let lower = report
                    .failure
                    .as_ref()
                    .is_none_or(|failure| run.seed < failure.seed);
                if lower {
                    report.failure = Some(Failure {
                        seed: run.seed,
                        violation,
                    });
                }
            }
            progress(report.seeds);
        }
    });
    report
}
