// SPDX-License-Identifier: Apache-2.0
//! What the embedded Kubernetes API costs: a load generator of closed loops over TLS 1.3 and
//! hand-built HTTP/1.1 against a server process of its own. Every figure stands beside what the
//! disk and the network stack of the same machine allow in the same run, and beside the reference
//! (etcd and kube-apiserver): measured where both are on the PATH, documented otherwise.
//!
//! Nothing is asserted about time: the report says what met its goal and what did not.

mod client;
mod floor;
mod goals;
mod kinds;
mod life;
mod load;
mod operations;
mod process;
mod reference;
mod report;
mod size;
mod watchers;

use std::path::PathBuf;
use std::time::Duration;

pub use report::{Figure, Limit, Machine, Report, Row, Verdict};

use floor::Floors;
use process::Ours;
use reference::Reference;

/// What to measure and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `apiserver` role is measured.
    pub program: PathBuf,
    /// A few seconds that show the benchmark itself works, instead of a few minutes.
    pub quick: bool,
    /// Leave out the reference even where it is installed.
    pub no_reference: bool,
    /// Only the parts whose name contains one of these (all when empty).
    pub only: Vec<String>,
    /// Told what happens, as it happens.
    pub progress: fn(&str),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or directory could not be used.
    #[error("cannot {action} {what}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A process did not become ready.
    #[error("{0} did not answer within {1:?}")]
    NotReady(String, Duration),
    /// A process ended by itself.
    #[error("{0} ended: {1}")]
    Ended(String, String),
    /// A request was answered with something else than what it must get.
    #[error("{request} was answered with {status}: {body}")]
    Answer {
        /// Method and path.
        request: String,
        /// The code of the answer, 0 when there was none.
        status: u16,
        /// The beginning of the answer.
        body: String,
    },
    /// The kubeconfig of the server cannot be used.
    #[error("the kubeconfig {0}")]
    Kubeconfig(String),
    /// Certificates or TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The floor of the disk could not be measured.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The user ended it; processes and files are gone.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    fn io(action: &'static str, what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { action, what, source }
    }
}

/// How long things take in this run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    rounds: usize,
    /// One measurement of one operation.
    each: Duration,
    /// Watching with one number of watchers.
    watch: Duration,
    repeats: usize,
    sizes: &'static [usize],
    watchers: &'static [usize],
}

const QUICK: Scale = Scale {
    rounds: 1,
    each: Duration::from_millis(100),
    watch: Duration::from_millis(500),
    repeats: 1,
    sizes: &[10, 100, 1_000],
    watchers: &[1, 50],
};

const FULL: Scale = Scale {
    rounds: 3,
    each: Duration::from_millis(1_500),
    watch: Duration::from_secs(4),
    repeats: 5,
    sizes: &[10, 100, 1_000, 10_000, 100_000],
    watchers: &[1, 50, 100, 1_000],
};

/// Measures. Ends every process it started and removes its files, also when interrupted.
pub async fn run(options: Options) -> Result<Report, BenchError> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(BenchError::io("wait for", "SIGTERM"))?;
    // Whichever branch loses is dropped, and with it the processes and the directory it owns.
    tokio::select! {
        report = measure(options) => report,
        _ = tokio::signal::ctrl_c() => Err(BenchError::Interrupted),
        _ = terminate.recv() => Err(BenchError::Interrupted),
    }
}

async fn measure(options: Options) -> Result<Report, BenchError> {
    let scale = if options.quick { QUICK } else { FULL };
    let say = options.progress;
    let wanted =
        |part: &str| options.only.is_empty() || options.only.iter().any(|o| part.contains(o.as_str()));
    let home = tempfile::Builder::new()
        .prefix("cobaltcore-bench-")
        .tempdir()
        .map_err(BenchError::io("create", "a temporary directory"))?;
    allow_many_connections();
    let mut report = Report::begin(options.quick);

    say("floors: disk, SQLite, TLS and HTTP alone");
    let floors = Floors::measure(home.path(), scale).await?;
    report.extend(floors.rows());

    let reference = if options.no_reference {
        None
    } else {
        Reference::find()
    };
    let mut reference = match reference {
        Some(found) => {
            say("starting etcd and kube-apiserver as the reference");
            let started = found.start(&home.path().join("reference")).await?;
            report.reference_measured = true;
            Some(started)
        }
        None => None,
    };

    say("start with empty data");
    let mut ours = Ours::start(&options.program, &home.path().join("start")).await?;
    report.extend(size::start_and_idle(&options.program, home.path(), scale, &mut ours).await?);

    let mut targets = vec![ours.target().clone()];
    targets.extend(reference.as_ref().map(|r| r.target().clone()));
    if wanted("operations") {
        let done = operations::measure(&targets, scale, &floors, say, &mut report).await;
        report.part("operations", done);
    }
    if wanted("watch") {
        let done = watchers::measure(&targets, scale, home.path(), say, &mut report).await;
        report.part("watch", done);
    }
    if wanted("life") {
        let done = life::measure(&targets, scale, say, &mut report).await;
        report.part("life", done);
    }
    if let Some(reference) = reference.take() {
        reference.stop().await;
    }
    ours.stop().await?;
    if wanted("size") {
        let dir = home.path().join("growth");
        let done = size::growth(&options.program, &dir, scale, say, &mut report).await;
        report.part("size", done);
    }
    report.finish();
    Ok(report)
}

/// A thousand watchers need more descriptors than shells allow by default, here and in the server,
/// which inherits the limit.
fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        },
    );
}
