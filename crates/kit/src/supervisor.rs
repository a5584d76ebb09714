// SPDX-License-Identifier: Apache-2.0
//! Named tasks under watch. A task that ends unexpectedly, by error, by panic or by simply
//! returning, is logged, counted, shown in health, and then restarted or takes the process
//! down with it, as its policy says. Nothing ends silently.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{BoxError, Error};
use crate::health::{Check, Health, Kind};
use crate::retry::Backoff;
use crate::shutdown::{Drained, Shutdown};
use crate::telemetry::Telemetry;

/// What happens when a task ends although nobody asked it to.
#[derive(Clone, Copy, Debug)]
pub enum OnExit {
    /// Start it again after a pause that grows while it keeps failing.
    Restart(Backoff),
    /// End the process: it is of no use without the task.
    EndProcess,
    /// Returning successfully is how this task ends; an error ends the process.
    MayFinish,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: String,
}

/// Starts tasks and watches them.
#[derive(Clone)]
pub struct Supervisor {
    tracker: TaskTracker,
    shutdown: Shutdown,
    health: Health,
    exits: Family<TaskLabel, Counter>,
    running: Family<TaskLabel, Gauge>,
    dropped: CancellationToken,
    fatal: Arc<Mutex<Option<Error>>>,
}

impl Supervisor {
    /// A supervisor whose tasks end with `shutdown`.
    pub fn new(shutdown: Shutdown, health: Health, telemetry: &Telemetry) -> Self {
        let supervisor = Self {
            tracker: TaskTracker::new(),
            shutdown,
            health,
            exits: Family::default(),
            running: Family::default(),
            dropped: CancellationToken::new(),
            fatal: Arc::default(),
        };
        telemetry.register(|registry| {
            let (exits, running) = (supervisor.exits.clone(), supervisor.running.clone());
            registry.register("cobaltcore_task_exits", "Tasks that ended unexpectedly", exits);
            registry.register("cobaltcore_task_running", "Whether a task runs", running);
        });
        supervisor
    }

    /// Starts a task. `start` is called again for every restart; the token it gets is
    /// cancelled when the process shuts down, and the task must then return.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cobaltcore_kit::{health::Health, retry::Backoff, shutdown::Shutdown, startup::Component};
    /// use cobaltcore_kit::supervisor::{OnExit, Supervisor};
    /// use cobaltcore_kit::telemetry::Telemetry;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let telemetry = Telemetry::new(&Component { name: "example", version: "1", commit: "none" });
    /// let shutdown = Shutdown::new(Duration::from_secs(5));
    /// let supervisor = Supervisor::new(shutdown.clone(), Health::new(), &telemetry);
    /// supervisor.spawn("ticker", OnExit::Restart(Backoff::TASK), |stop| async move {
    ///     stop.cancelled().await;
    ///     Ok(())
    /// });
    /// shutdown.begin("the example is over");
    /// supervisor.join().await.unwrap();
    /// # });
    /// ```
    pub fn spawn<F, Fut>(&self, name: &str, on_exit: OnExit, start: F)
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let check = self.health.check(&format!("task-{name}"), Kind::Live);
        check.ok();
        self.tracker
            .spawn(self.clone().watch(name.to_owned(), on_exit, start, check));
    }

    /// Waits until the process shuts down and the tasks are done. An error names the task that
    /// ended the process, or those left behind are logged when the grace period is over. Whoever drops this
    /// instead of waiting ends the tasks where they are, as a loss of power would.
    pub async fn join(self) -> Result<(), Error> {
        let _alive = self.dropped.clone().drop_guard();
        self.shutdown.token().cancelled().await;
        self.tracker.close();
        match self.shutdown.drain(self.tracker.wait()).await {
            Drained::Clean => tracing::info!("all tasks are done"),
            outcome => tracing::warn!(?outcome, tasks = self.tracker.len(), "leaving tasks behind"),
        }
        self.fatal.lock().take().map_or(Ok(()), Err)
    }

    async fn watch<F, Fut>(self, name: String, on_exit: OnExit, mut start: F, check: Check)
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let label = TaskLabel { task: name.clone() };
        let mut failures = 0;
        loop {
            let began = Instant::now();
            self.running.get_or_create(&label).set(1);
            let outcome = tokio::select! {
                biased;
                () = self.dropped.cancelled() => return,
                outcome = run_once(start(self.shutdown.token())) => outcome,
            };
            self.running.get_or_create(&label).set(0);
            let finished = matches!((on_exit, &outcome), (OnExit::MayFinish, Ok(())));
            if finished || self.shutdown.has_begun() {
                log_end(&name, &outcome);
                return;
            }
            let reason = outcome
                .err()
                .unwrap_or_else(|| "returned although nobody asked it to".into());
            self.exits.get_or_create(&label).inc();
            check.failed(&reason);
            let OnExit::Restart(backoff) = on_exit else {
                tracing::error!(
                    task = name,
                    reason,
                    "a task ended that the process cannot do without"
                );
                self.fatal.lock().get_or_insert(Error::TaskEnded {
                    task: name.clone(),
                    reason,
                });
                self.shutdown.begin(&format!("task {name} ended"));
                return;
            };
            // A task that worked for a good while starts over with short pauses.
            failures = if began.elapsed() > backoff.max.max(Duration::from_secs(1)) {
                1
            } else {
                failures + 1
            };
            let pause = backoff.random_pause(failures);
            tracing::error!(
                task = name,
                reason,
                failures,
                ?pause,
                "a task ended unexpectedly and is restarted"
            );
            tokio::select! {
                () = tokio::time::sleep(pause) => check.ok(),
                () = self.shutdown.token().cancelled_owned() => return,
            }
        }
    }
}

fn log_end(name: &str, outcome: &Result<(), String>) {
    match outcome {
        Ok(()) => tracing::debug!(task = name, "task is done"),
        Err(reason) => tracing::warn!(
            task = name,
            reason,
            "task ended with an error while shutting down"
        ),
    }
}

/// Runs a task so that a panic becomes an outcome like any other, and so that dropping the
/// supervision ends the task too.
async fn run_once(task: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Result<(), String> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(task);
    match tasks.join_next().await {
        Some(Ok(Ok(()))) | None => Ok(()),
        Some(Ok(Err(error))) => Err(error.to_string()),
        Some(Err(error)) => Err(match error.try_into_panic() {
            Ok(panic) => format!("panicked: {}", panic_text(panic.as_ref())),
            Err(error) => error.to_string(),
        }),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::Component;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn supervisor() -> (Supervisor, Shutdown, Health, Telemetry) {
        let telemetry = Telemetry::new(&Component {
            name: "t",
            version: "1",
            commit: "c",
        });
        let (shutdown, health) = (Shutdown::new(Duration::from_secs(5)), Health::new());
        (
            Supervisor::new(shutdown.clone(), health.clone(), &telemetry),
            shutdown,
            health,
            telemetry,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn who_drops_the_waiting_ends_the_tasks_where_they_are() {
        let (supervisor, shutdown, _, telemetry) = supervisor();
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        supervisor.spawn("stubborn", OnExit::Restart(Backoff::TASK), move |_| {
            let kept = Arc::clone(&kept);
            async move {
                std::future::pending::<()>().await;
                drop(kept);
                Ok(())
            }
        });
        let waited = tokio::time::timeout(Duration::from_secs(1), supervisor.join()).await;
        assert!(waited.is_err() && !shutdown.has_begun());
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(
            !telemetry.encode().contains("cobaltcore_task_exits_total{"),
            "nobody takes that for a failure"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_or_panics_is_counted_and_restarted() {
        let (supervisor, shutdown, health, telemetry) = supervisor();
        let starts = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&starts);
        let (done, wait) = (shutdown.clone(), shutdown.token());
        supervisor.spawn("flaky", OnExit::Restart(Backoff::TASK), move |stop| {
            let (start, done) = (counter.fetch_add(1, Ordering::SeqCst), done.clone());
            async move {
                match start {
                    0 => Err("no connection".into()),
                    1 => panic!("at the disco"),
                    2 => Ok(()),
                    _ => {
                        done.begin("seen enough");
                        stop.cancelled().await;
                        Ok(())
                    }
                }
            }
        });
        wait.cancelled().await;
        assert!(health.live().ok, "running again");
        supervisor.join().await.unwrap();
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        let text = telemetry.encode();
        assert!(
            text.contains("cobaltcore_task_exits_total{task=\"flaky\"} 3"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn health_shows_a_task_that_is_down() {
        let (supervisor, shutdown, health, _) = supervisor();
        supervisor.spawn("reader", OnExit::Restart(Backoff::TASK), |_| async {
            Err("no connection".into())
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let report = health.live();
        assert_eq!(report.checks[0].name, "task-reader");
        assert_eq!(report.checks[0].failure.as_deref(), Some("no connection"));
        shutdown.begin("test");
        supervisor.join().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_the_process_needs_ends_it_with_its_name() {
        let (supervisor, shutdown, _, _) = supervisor();
        supervisor.spawn("leader", OnExit::EndProcess, |_| async { Ok(()) });
        supervisor.spawn("other", OnExit::EndProcess, |stop| async move {
            stop.cancelled().await;
            Ok(())
        });
        let error = supervisor.join().await.unwrap_err().to_string();
        assert_eq!(error, "task leader ended: returned although nobody asked it to");
        assert!(shutdown.has_begun());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_may_finish_does_so_quietly() {
        let (supervisor, shutdown, health, _) = supervisor();
        supervisor.spawn("install", OnExit::MayFinish, |_| async { Ok(()) });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(health.live().ok && !shutdown.has_begun());
        supervisor.spawn("migrate", OnExit::MayFinish, |_| async {
            Err("disk full".into())
        });
        assert_eq!(
            supervisor.join().await.unwrap_err().to_string(),
            "task migrate ended: disk full"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_stubborn_task_cannot_hold_the_process() {
        let (supervisor, shutdown, _, _) = supervisor();
        supervisor.spawn("stubborn", OnExit::EndProcess, |_| std::future::pending());
        shutdown.begin("test");
        supervisor.join().await.unwrap();
    }
}
