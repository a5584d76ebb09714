// SPDX-License-Identifier: Apache-2.0
//! What the parts of high availability cost: the spool, the wire, and the agent as a process of its own between a
//! simulated libvirt host and a service that only counts. Nothing is asserted about time; the report shows each figure
//! beside its goal, and how it grows.

mod agent;
mod report;
mod sink;
mod spool;
mod wire;

use std::path::PathBuf;

pub use report::{Report, Row};

/// What to measure.
pub struct Options {
    /// The program that has the role `ha-agent`.
    pub program: PathBuf,
    /// Seconds instead of minutes.
    pub quick: bool,
    /// Told what is going on.
    pub progress: fn(&str),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something that is measured could not be set up.
    #[error("cannot set up {what}: {why}")]
    SetUp {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The agent did not do what was waited for.
    #[error("the agent never {what}; its log ends with:\n{log}")]
    Agent {
        /// What was waited for.
        what: &'static str,
        /// Its last words.
        log: String,
    },
}

pub(crate) fn set_up(what: &'static str) -> impl FnOnce(Box<dyn std::error::Error>) -> BenchError {
    move |error| BenchError::SetUp {
        what,
        why: error.to_string(),
    }
}

/// Measures everything.
pub async fn run(options: Options) -> Result<Report, BenchError> {
    let Options {
        program,
        quick,
        progress,
    } = options;
    let mut report = Report::default();
    progress("the spool");
    report.rows.extend(spool::measure(quick)?);
    progress("the wire");
    report.rows.extend(wire::measure(quick)?);
    for guests in [10, 100, 500] {
        progress(&format!("an agent with {guests} guests"));
        report.rows.extend(agent::measure(&program, guests, quick).await?);
    }
    Ok(report)
}
