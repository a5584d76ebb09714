// SPDX-License-Identifier: Apache-2.0
//! What high availability costs and how fast it is: the spool, the wire, agent and service as processes of their own
//! between simulated hosts, clouds and BMCs. Nothing is asserted about time; the report shows each figure beside its
//! goal, beside what the machine allows in the same run, and how it grows with the fleet.

mod agent;
mod caller;
mod database;
mod engine;
mod fleet;
mod floor;
mod ingest;
mod process;
mod report;
mod resume;
mod scale;
mod service;
mod sink;
mod speaker;
mod spool;
mod wire;

use std::path::PathBuf;

pub use report::{Beside, Growth, Report, Row};

/// What can be measured alone. [`FULL`] is measured only if it is named.
pub const PARTS: [&str; 8] = [
    "spool", "wire", "agent", "ingest", "engine", "fleet", "resume", FULL,
];
/// A full database: minutes to fill, and six gigabytes.
const FULL: &str = "full";

/// What to measure.
pub struct Options {
    /// The program that has the roles.
    pub program: PathBuf,
    /// The program whose agent is measured.
    pub agent: PathBuf,
    /// Seconds instead of minutes.
    pub quick: bool,
    /// Only these of [`PARTS`]; if empty, all but the full database.
    pub only: Vec<String>,
    /// Hosts of the fleets, in growing order.
    pub sizes: Vec<usize>,
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
    /// A role did not do what was waited for.
    #[error("the {who} never {what}; its log ends with:\n{log}")]
    Never {
        /// Which.
        who: &'static str,
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

/// The value below which this share of the sorted values lies.
pub(crate) fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).or(sorted.last()).copied().unwrap_or(0.0)
}

/// Measures everything that was asked for.
pub async fn run(options: Options) -> Result<Report, BenchError> {
    let Options {
        program,
        agent,
        quick,
        only,
        sizes,
        progress,
    } = options;
    let named = |part: &str| only.iter().any(|one| one == part);
    let wanted = |part: &str| only.is_empty() || named(part);
    let mut report = Report::default();
    if wanted("spool") {
        progress("the spool");
        report.rows.extend(spool::measure(quick)?);
    }
    if wanted("wire") {
        progress("the wire");
        report.rows.extend(wire::measure(quick)?);
    }
    if wanted("agent") {
        for guests in [10, 100, 500] {
            progress(&format!("an agent with {guests} guests"));
            report.rows.extend(agent::measure(&agent, guests, quick).await?);
        }
        progress("an agent and a service");
        report.rows.extend(agent::stored(&program, &agent, quick).await?);
    }
    if wanted("ingest") {
        progress("records into the service");
        report.rows.extend(ingest::measure(&program, quick).await?);
    }
    if named(FULL) {
        progress("a full database");
        report
            .rows
            .extend(database::full(&program, quick, progress).await?);
    }
    if wanted("engine") {
        progress("decisions");
        report.rows.extend(engine::measure(quick));
    }
    // Both wait for real seconds most of the time.
    let fleets = async {
        if wanted("fleet") {
            scale::measure(&program, &sizes, quick, progress).await
        } else {
            Ok(Vec::new())
        }
    };
    let recoveries = async {
        if !wanted("resume") {
            return Ok(Vec::new());
        }
        progress("a whole host, a restart and a new leader");
        let (whole, restart, failover) = tokio::try_join!(
            resume::whole_host(&program),
            resume::restart(&program),
            resume::failover(&program, if quick { 1 } else { 3 }),
        )?;
        Ok([whole, restart, failover].concat())
    };
    let (fleets, recoveries) = tokio::try_join!(fleets, recoveries)?;
    report.rows.extend(fleets);
    report.rows.extend(recoveries);
    Ok(report)
}
