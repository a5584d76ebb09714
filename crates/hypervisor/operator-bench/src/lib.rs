// SPDX-License-Identifier: Apache-2.0
//! What the hypervisor operator costs: a real operator process against the embedded API and a
//! simulated cloud, both over sockets. Time, calls, memory and idle work are measured for fleets
//! of several sizes, and a drain against what the cloud's own limits allow. Nothing is asserted;
//! each figure stands beside a baseline of the same run.

mod drain;
mod fleet;
mod process;
mod report;
mod world;

use std::path::PathBuf;

pub use report::{Drain, Fleet, Report};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose `hypervisor-operator` is measured.
    pub program: PathBuf,
    /// Fleet sizes.
    pub sizes: Vec<usize>,
    /// Whether to measure a drain of forty servers.
    pub drain: bool,
    /// Seconds of idleness to watch.
    pub idle_seconds: u64,
    /// Where progress is told.
    pub progress: fn(&str),
}

/// What can go wrong while measuring.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that must run did not start.
    #[error("cannot start {what}: {reason}")]
    Start {
        /// What.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The API did not do as asked.
    #[error("{what}: {source}")]
    Kube {
        /// What was tried on what.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// What was waited for did not come.
    #[error("gave up after {seconds} s waiting for {what}; the operator's log is in {log}")]
    Late {
        /// What.
        what: String,
        /// How long.
        seconds: u64,
        /// Where to look.
        log: String,
    },
}

/// Measures.
pub async fn run(options: Options) -> Result<Report, Error> {
    let mut report = Report::default();
    for size in &options.sizes {
        (options.progress)(&format!("a fleet of {size}"));
        report.fleets.push(fleet::measure(&options, *size).await?);
    }
    if options.drain {
        (options.progress)("draining 40 servers, four at a time");
        report.drain = Some(drain::measure(&options).await?);
    }
    Ok(report)
}
