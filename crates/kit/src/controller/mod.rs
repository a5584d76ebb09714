// SPDX-License-Identifier: Apache-2.0
//! Controllers in three steps: observe (ask the world), decide (pure judgement), act (carry
//! out one action after the other). The runner around them limits concurrency and time,
//! retries failures per object with growing pauses under one overall rate, and makes every
//! pass visible in metrics, spans and health.

mod limiter;
mod metrics;
mod shared;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::Api;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::error::BoxError;
use crate::health::{Health, Heartbeat, Kind};
use crate::retry::Backoff;
use limiter::Limiter;

pub use metrics::ControllerMetrics;
pub use shared::SharedRunner;

/// When to look at an object again after a successful pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    OnChange,
    /// After a while, or earlier when something changes.
    After(Duration),
}

/// What a decision comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<A> {
    /// What to do, in this order.
    pub actions: Vec<A>,
    /// When to look again.
    pub next: Next,
}

impl<A> Plan<A> {
    /// Nothing to do until something changes.
    pub fn rest() -> Self {
        Self {
            actions: Vec::new(),
            next: Next::OnChange,
        }
    }

    /// Does `actions` and waits for the next change.
    pub fn of(actions: Vec<A>) -> Self {
        Self {
            actions,
            next: Next::OnChange,
        }
    }

    /// Looks again after `pause`.
    #[must_use]
    pub fn again_after(self, pause: Duration) -> Self {
        Self {
            next: Next::After(pause),
            ..self
        }
    }
}

/// The judgement of a controller.
///
/// `decide` has no client, no clock and no way to wait; whatever it needs to know is in the
/// object and in what `observe` found, time included. That makes it testable with tables.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind of object it looks after.
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static;
    /// What it must know of the world besides the object.
    type Facts: Send + Sync;
    /// What it may do.
    type Action: Debug + Send;
    /// What may go wrong.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Asks the world. Every call in here has a deadline of its own.
    fn observe(
        &self,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<Self::Facts, Self::Error>> + Send;

    /// Decides what to do.
    fn decide(&self, object: &Self::Object, facts: &Self::Facts) -> Plan<Self::Action>;

    /// Carries one action out. An error ends the pass; the next one observes anew.
    fn act(
        &self,
        object: &Arc<Self::Object>,
        action: Self::Action,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// How a controller is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Objects worked on at the same time; one object never by two.
    pub workers: u16,
    /// The longest time for one pass.
    pub pass_time: Duration,
    /// Pauses between failed passes of one object.
    pub backoff: Backoff,
    /// Failed passes per second over all objects, after a burst.
    pub retries_per_second: f64,
    /// The size of that burst.
    pub retry_burst: u32,
    /// Gathers changes for this long before a pass.
    pub debounce: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 8,
            pass_time: Duration::from_mins(5),
            backoff: Backoff::CONTROLLER,
            retries_per_second: 10.0,
            retry_burst: 100,
            debounce: Duration::ZERO,
        }
    }
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError<E: std::error::Error + 'static> {
    /// The reconciler says so.
    #[error("{0}")]
    Reconciler(#[source] E),
    /// It took too long and was dropped.
    #[error("not done within {0:?}")]
    TookTooLong(Duration),
}

/// A controller ready to run.
pub struct ControllerRunner<R: Reconciler> {
    name: &'static str,
    controller: Controller<R::Object>,
    reconciler: R,
    options: Options,
}

impl<R: Reconciler> ControllerRunner<R> {
    /// A controller called `name` for the objects behind `api`.
    pub fn new(name: &'static str, api: Api<R::Object>, watch: watcher::Config, reconciler: R) -> Self {
        Self {
            name,
            controller: Controller::new(api, watch),
            reconciler,
            options: Options::default(),
        }
    }

    /// Sets how it is run.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Adds watches on other objects, owned or mapped.
    #[must_use]
    pub fn watching(self, add: impl FnOnce(Controller<R::Object>) -> Controller<R::Object>) -> Self {
        Self {
            controller: add(self.controller),
            ..self
        }
    }

    /// The cache of the objects.
    pub fn store(&self) -> Store<R::Object> {
        self.controller.store()
    }

    /// Runs until `stop`; passes that are under way are finished. Readiness is reported as
    /// `controller-<name>` once the cache is filled, and liveness while passes are stuck.
    pub async fn run(
        self,
        metrics: ControllerMetrics,
        health: Health,
        stop: CancellationToken,
    ) -> Result<(), BoxError> {
        let Self {
            name,
            controller,
            reconciler,
            options,
        } = self;
        let store = controller.store();
        let context = Context::begin(name, reconciler, options, &store, &metrics, &health);
        let config = controller::Config::default()
            .concurrency(options.workers)
            .debounce(options.debounce);
        let passes = controller
            .with_config(config)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(pass, on_error, context);
        to_the_end(name, passes, &store, &metrics, &health, &stop).await
    }
}

/// Follows the passes of a controller until it is told to stop.
async fn to_the_end<K, E, Q>(
    name: &'static str,
    passes: impl Stream<Item = Outcome<K, E, Q>>,
    store: &Store<K>,
    metrics: &ControllerMetrics,
    health: &Health,
    stop: &CancellationToken,
) -> Result<(), BoxError>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    E: std::error::Error + 'static,
    Q: std::error::Error + 'static,
{
    let ready = health.check(&format!("controller-{name}"), Kind::Ready);
    let passes = passes.for_each(|outcome| {
        note(name, metrics, outcome);
        std::future::ready(())
    });
    let filled = async {
        if store.wait_until_ready().await.is_ok() {
            tracing::info!(controller = name, "cache is filled");
            ready.ok();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = passes => {}
        () = filled => {}
    }
    if stop.is_cancelled() {
        Ok(())
    } else {
        Err(format!("controller {name} ran out of events").into())
    }
}

/// How the runtime reports one pass.
type Outcome<K, E, Q> = Result<(ObjectRef<K>, Action), controller::Error<PassError<E>, Q>>;

struct Context<R: Reconciler> {
    name: &'static str,
    reconciler: R,
    options: Options,
    limiter: Limiter,
    metrics: ControllerMetrics,
    heart: Heartbeat,
    active: AtomicUsize,
    store: Store<R::Object>,
}

impl<R: Reconciler> Context<R> {
    fn begin(
        name: &'static str,
        reconciler: R,
        options: Options,
        store: &Store<R::Object>,
        metrics: &ControllerMetrics,
        health: &Health,
    ) -> Arc<Self> {
        let heart = health.heartbeat(&format!("controller-{name}-progress"), options.pass_time * 2);
        heart.rest();
        metrics.started(name, options.workers);
        Arc::new(Self {
            name,
            reconciler,
            options,
            limiter: Limiter::new(options.backoff, options.retries_per_second, options.retry_burst),
            metrics: metrics.clone(),
            heart,
            active: AtomicUsize::new(0),
            store: store.clone(),
        })
    }
}

/// Marks a pass as under way, also when it is dropped in the middle.
struct Active<'a, R: Reconciler>(&'a Context<R>);

impl<'a, R: Reconciler> Active<'a, R> {
    fn begin(context: &'a Context<R>) -> Self {
        context.active.fetch_add(1, Ordering::SeqCst);
        context.heart.beat();
        context.metrics.active(context.name, 1);
        Self(context)
    }
}

impl<R: Reconciler> Drop for Active<'_, R> {
    fn drop(&mut self) {
        let Context {
            active,
            heart,
            metrics,
            name,
            ..
        } = self.0;
        metrics.active(name, -1);
        // Any finished pass proves that the others are not all stuck behind it.
        heart.beat();
        if active.fetch_sub(1, Ordering::SeqCst) == 1 {
            heart.rest();
        }
    }
}

async fn pass<R: Reconciler>(
    object: Arc<R::Object>,
    context: Arc<Context<R>>,
) -> Result<Action, PassError<R::Error>> {
    let span = tracing::info_span!(
        "reconcile",
        controller = context.name,
        object = object.name_any(),
        namespace = object.namespace()
    );
    async {
        let (_active, began) = (Active::begin(&context), Instant::now());
        let limit = context.options.pass_time;
        let outcome = match tokio::time::timeout(limit, three_steps(&context.reconciler, &object)).await {
            Ok(outcome) => outcome.map_err(PassError::Reconciler),
            Err(_) => Err(PassError::TookTooLong(limit)),
        };
        let result = match &outcome {
            Ok(Next::OnChange) => "success",
            Ok(Next::After(_)) => "requeue_after",
            Err(_) => "error",
        };
        context.metrics.finished(context.name, result, began.elapsed());
        let next = outcome?;
        context.limiter.succeeded(&key(object.as_ref()));
        Ok(match next {
            Next::OnChange => Action::await_change(),
            Next::After(pause) => Action::requeue(pause),
        })
    }
    .instrument(span)
    .await
}

async fn three_steps<R: Reconciler>(reconciler: &R, object: &Arc<R::Object>) -> Result<Next, R::Error> {
    let facts = reconciler.observe(object).await?;
    let Plan { actions, next } = reconciler.decide(object, &facts);
    for action in actions {
        tracing::debug!(?action, "acting");
        reconciler.act(object, action).await?;
    }
    Ok(next)
}

#[allow(clippy::needless_pass_by_value, reason = "the signature the runtime asks for")]
fn on_error<R: Reconciler>(
    object: Arc<R::Object>,
    error: &PassError<R::Error>,
    context: Arc<Context<R>>,
) -> Action {
    let known = || {
        context
            .store
            .state()
            .iter()
            .map(|object| key(object.as_ref()))
            .collect()
    };
    let verdict = context
        .limiter
        .failed(&key(object.as_ref()), &error.to_string(), Instant::now(), known);
    if verdict.failures == 1 && overtaken(error) {
        tracing::debug!(
            controller = context.name,
            object = object.name_any(),
            "somebody else was faster; looking again"
        );
    } else if verdict.tell {
        tracing::warn!(
            controller = context.name,
            object = object.name_any(),
            namespace = object.namespace(),
            failures = verdict.failures,
            retry_in = ?verdict.pause,
            %error,
            "pass failed"
        );
    }
    Action::requeue(verdict.pause)
}

/// Whether the object changed between reading and writing, which the next pass settles.
fn overtaken(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(cause) = at {
        // Errors that hold one of the client hold it in a box.
        let boxed = cause.downcast_ref::<Box<kube::Error>>().map(Box::as_ref);
        if let Some(kube::Error::Api(status)) = cause.downcast_ref().or(boxed) {
            return status.code == 409;
        }
        at = cause.source();
    }
    false
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What the runner itself has to say about a pass; failures of passes are told by `on_error`.
fn note<K, E, Q>(name: &'static str, metrics: &ControllerMetrics, outcome: Outcome<K, E, Q>)
where
    K: Resource<DynamicType = ()>,
    E: std::error::Error + 'static,
    Q: std::error::Error + 'static,
{
    match outcome {
        Ok(_) | Err(controller::Error::ReconcilerFailed(..) | controller::Error::ObjectNotFound(_)) => {}
        Err(controller::Error::QueueError(error)) => {
            metrics.watch_failed(name);
            tracing::warn!(controller = name, %error, "a watch failed and is tried again");
        }
        Err(controller::Error::RunnerError(error)) => {
            tracing::error!(controller = name, %error, "the cache is gone");
        }
    }
}

#[cfg(test)]
mod tests;
