// SPDX-License-Identifier: Apache-2.0
//! Events for people who ask `kubectl describe`. Recording never waits: events go through a
//! bounded queue to one worker, which folds repetitions into a series instead of flooding the
//! API. What cannot be recorded is counted and logged, and work goes on.

mod aggregate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::BoxError;
use crate::retry::{Backoff, Retry};
use aggregate::{Aggregator, Write};

/// Whether an event is worth worrying about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Whether it is worth worrying about.
    pub severity: Severity,
    /// One word for programs.
    pub reason: String,
    /// What was being done, one word.
    pub action: String,
    /// One sentence for people.
    pub note: String,
}

impl Happening {
    /// Something that went as it should.
    pub fn normal(reason: impl AsRef<str>, action: impl AsRef<str>, note: impl Into<String>) -> Self {
        Self::new(Severity::Normal, reason, action, note)
    }

    /// Something that somebody may want to look at.
    pub fn warning(reason: impl AsRef<str>, action: impl AsRef<str>, note: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, action, note)
    }

    fn new(
        severity: Severity,
        reason: impl AsRef<str>,
        action: impl AsRef<str>,
        note: impl Into<String>,
    ) -> Self {
        let (reason, action) = (reason.as_ref().to_owned(), action.as_ref().to_owned());
        Self {
            severity,
            reason,
            action,
            note: note.into(),
        }
    }
}

const QUEUE: usize = 1024;
const CALL_TIME: Duration = Duration::from_secs(10);
/// An API that is away for a moment costs nobody an event.
const PATIENCE: Retry = Retry {
    backoff: Backoff::CALL,
    attempts: 8,
    deadline: Duration::from_secs(20),
    retry_conflicts: false,
};

/// Records events; cheap to clone, never waits.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<(ObjectReference, Happening)>,
    dropped: Arc<AtomicU64>,
}

/// Sends recorded events; to be run by a supervisor.
pub struct EventWorker {
    client: kube::Client,
    queue: mpsc::Receiver<(ObjectReference, Happening)>,
    aggregator: Aggregator,
}

/// Who reports events, and how often the same one is written at most.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The name of the controller, such as `kvm.cloud.sap/node-agent`.
    pub controller: String,
    /// The name of this process, such as its pod.
    pub instance: String,
    /// The shortest time between two writes of the same series.
    pub quiet: Duration,
}

/// A recorder and the worker that serves it.
///
/// ```no_run
/// use cobaltcore_kit::events::{self, Happening, Reporter};
/// use std::time::Duration;
/// # async fn example(client: kube::Client, node: k8s_openapi::api::core::v1::Node) {
/// let reporter = Reporter {
///     controller: "kvm.cloud.sap/node-agent".into(),
///     instance: "agent-x7k2p".into(),
///     quiet: Duration::from_secs(600),
/// };
/// let (recorder, worker) = events::channel(client, reporter);
/// tokio::spawn(worker.run(tokio_util::sync::CancellationToken::new()));
/// recorder.record(&node, Happening::warning("LibvirtLost", "Connecting", "libvirt does not answer"));
/// # }
/// ```
pub fn channel(client: kube::Client, reporter: Reporter) -> (Recorder, EventWorker) {
    let (send, receive) = mpsc::channel(QUEUE);
    let worker = EventWorker {
        client,
        queue: receive,
        aggregator: Aggregator::new(reporter),
    };
    (
        Recorder {
            queue: send,
            dropped: Arc::default(),
        },
        worker,
    )
}

impl Recorder {
    /// Records that something happened to `object`.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, happening: Happening) {
        self.record_for(object.object_ref(&()), happening);
    }

    /// Records that something happened to the object behind `reference`.
    pub fn record_for(&self, reference: ObjectReference, happening: Happening) {
        if let Err(error) = self.queue.try_send((reference, happening)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let (mpsc::error::TrySendError::Full((object, lost))
            | mpsc::error::TrySendError::Closed((object, lost))) = error;
            tracing::warn!(
                object = object.name,
                reason = lost.reason,
                note = lost.note,
                "event not recorded"
            );
        }
    }

    /// How many events could not be queued.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl EventWorker {
    /// Sends events until `stop`; what is queued by then is still sent.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), BoxError> {
        let mut tick = tokio::time::interval(Duration::from_secs(30));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                next = self.queue.recv() => match next {
                    Some((object, happening)) => self.send(&object, &happening).await,
                    None => return Ok(()),
                },
                _ = tick.tick() => self.send_due().await,
                () = stop.cancelled() => break,
            }
        }
        self.queue.close();
        while let Some((object, happening)) = self.queue.recv().await {
            self.send(&object, &happening).await;
        }
        Ok(())
    }

    async fn send(&mut self, object: &ObjectReference, happening: &Happening) {
        let write = self.aggregator.take(object, happening, Timestamp::now());
        self.perform(write).await;
    }

    /// Writes the counts of series that kept going while it was too early to write them.
    async fn send_due(&mut self) {
        for write in self.aggregator.due(Timestamp::now()) {
            self.perform(write).await;
        }
    }

    async fn perform(&mut self, write: Write) {
        if let (Err(error), Write::Create(event) | Write::Series(event)) =
            (PATIENCE.run(|| self.attempt(&write)).await, &write)
        {
            self.aggregator.forget(event);
            tracing::warn!(reason = event.reason, note = event.note, %error, "event not written");
        }
    }

    async fn attempt(&self, write: &Write) -> Result<(), kube::Error> {
        match write {
            Write::Nothing => Ok(()),
            Write::Create(event) => self.create(event).await,
            Write::Series(event) => match self.extend(event).await {
                // The API forgets events after an hour; the series then starts over.
                Err(kube::Error::Api(status)) if status.code == 404 => self.create(event).await,
                outcome => outcome,
            },
        }
    }

    async fn create(&self, event: &Event) -> Result<(), kube::Error> {
        match limit(self.api(event).create(&PostParams::default(), event)).await {
            // An attempt whose answer was lost has made it: nobody else gives this name.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            outcome => outcome,
        }
    }

    async fn extend(&self, event: &Event) -> Result<(), kube::Error> {
        let patch = serde_json::json!({"series": event.series});
        let name = event.metadata.name.as_deref().unwrap_or_default();
        limit(
            self.api(event)
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch)),
        )
        .await
    }

    fn api(&self, event: &Event) -> Api<Event> {
        Api::namespaced(
            self.client.clone(),
            event.metadata.namespace.as_deref().unwrap_or("default"),
        )
    }
}

async fn limit<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<(), kube::Error> {
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(outcome) => outcome.map(drop),
        Err(_) => Err(kube::Error::Service("no answer in time".into())),
    }
}

#[cfg(test)]
mod tests;
