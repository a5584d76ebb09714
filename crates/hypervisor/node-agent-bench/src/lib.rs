// SPDX-License-Identifier: Apache-2.0
//! What the node agent costs: memory, CPU, calls to libvirt, status writes, and how long an event takes to be visible.
//! The agent runs as a process of its own between an embedded Kubernetes API and a scripted libvirt host, so that what
//! is measured is its alone. Every figure stands beside a baseline that is measured in the same run.
//!
//! Nothing is asserted about time: the report says what met its goal and what did not.

mod agent;
mod baseline;
pub mod host;
mod report;
mod scene;

use std::path::PathBuf;
use std::time::Duration;

pub use report::{Report, Row, Verdict};

/// What to measure and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `node-agent` role is measured.
    pub program: PathBuf,
    /// A few seconds that show the benchmark itself works, instead of a few minutes.
    pub quick: bool,
    /// Told what happens, as it happens.
    pub progress: fn(&str),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, socket or process could not be used.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried on what.
        action: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The embedded API did not start.
    #[error("the embedded API: {0}")]
    Server(#[from] cobaltcore_apiserver::ServerError),
    /// The embedded API answered with an error.
    #[error("{what}: {why}")]
    Api {
        /// What was tried on what.
        what: String,
        /// The answer.
        why: String,
    },
    /// The scripted host could not be asked.
    #[error("the scripted libvirt host: {0}")]
    Libvirt(#[from] cobaltcore_libvirt::Error),
    /// The agent did not do what it should.
    #[error("the agent {0}; its last words: {1}")]
    Agent(String, String),
    /// The user ended it; processes and files are gone.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    fn api(what: &str) -> impl FnOnce(kube::Error) -> Self + '_ {
        move |error| Self::Api {
            what: what.to_owned(),
            why: error.to_string(),
        }
    }
}

/// How long things take in this run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    warm: Duration,
    idle: Duration,
    busy: Duration,
    guests: &'static [u32],
    writes: u32,
}

const QUICK: Scale = Scale {
    warm: Duration::from_secs(1),
    idle: Duration::from_secs(2),
    busy: Duration::from_secs(2),
    guests: &[10],
    writes: 20,
};

const FULL: Scale = Scale {
    warm: Duration::from_secs(5),
    idle: Duration::from_secs(130),
    busy: Duration::from_secs(30),
    guests: &[10, 50, 200],
    writes: 200,
};

/// Measures. Ends every process it started and removes its files, also when interrupted.
pub async fn run(options: Options) -> Result<Report, BenchError> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(BenchError::io("wait for SIGTERM"))?;
    // Whichever branch loses is dropped, and with it the processes and the directory it owns.
    tokio::select! {
        report = measure(options) => report,
        _ = tokio::signal::ctrl_c() => Err(BenchError::Interrupted),
        _ = terminate.recv() => Err(BenchError::Interrupted),
    }
}

async fn measure(options: Options) -> Result<Report, BenchError> {
    let scale = if options.quick { QUICK } else { FULL };
    let mut report = Report::begin(options.quick);
    (options.progress)("baselines: a bare write, a pass that reads everything");
    let visible = baseline::visible_write(scale.writes).await?;
    let reading = baseline::reading_pass(50).await?;
    report.rows.extend(baseline::rows(&visible, &reading));
    (options.progress)("idle with 50 guests");
    let idle = scene::idle(&options, scale, 50).await?;
    report.rows.extend(scene::idle_rows(&idle, &reading));
    for guests in scale.guests {
        (options.progress)(&format!("{guests} guests that change state once a second"));
        let busy = scene::busy(&options, scale, *guests).await?;
        report.rows.extend(scene::busy_rows(*guests, &busy, &visible));
    }
    report.finish();
    Ok(report)
}
