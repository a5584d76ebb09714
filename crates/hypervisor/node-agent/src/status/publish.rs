// SPDX-License-Identifier: Apache-2.0
//! Writes the status when it should say something else than it does. Changes are collected for a moment; what must be
//! seen at once is not; a refusal is logged, counted, shown as an Event and tried again with growing pauses.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::EventReason;
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::status::{StatusWriter, Written};
use cobaltcore_kit::{BoxError, CancellationToken};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::decide::{Decision, Standing, decide};
use super::takeover::{left_behind, taken_over};
use crate::board::Pending;
use crate::context::{Context, Seen};
use crate::error::Error;
use crate::hypervisor::BEAT;
use crate::metrics::ResultLabel;

const WRITE_TIME: Duration = Duration::from_secs(10);
const AGAIN: Backoff = Backoff {
    base: Duration::from_millis(500),
    factor: 2.0,
    max: Duration::from_secs(30),
    jitter: 0.2,
};
/// What the API server says to fields that its definition does not have.
/// What is left of the former agent is looked at again after this time.
const LEFTOVERS_AGAIN: Duration = Duration::from_secs(5);
const UNKNOWN_FIELD: &str = "field not declared in schema";

struct Publisher {
    context: Context,
    writer: StatusWriter,
    standing: Standing,
    /// The object as our own last write left it, until the watch has caught up.
    written: Option<Arc<Hypervisor>>,
    last_write: Option<Instant>,
    failures: u32,
    next_attempt: Option<Instant>,
    troubles: Vec<String>,
    /// The API said that this agent does not change who owns what.
    may_not_take_over: bool,
    /// Something of the former agent is still there that should not be.
    leftovers: bool,
}

/// Publishes until `stop`.
pub(crate) async fn publish(
    context: Context,
    standing: Standing,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let writer = StatusWriter::new(context.client.clone(), FieldManager::NodeAgent.as_str());
    let beat = context.health.heartbeat("publisher", 3 * BEAT);
    let (mut changes, mut hypervisor) = (context.board.changes(), context.hypervisor.clone());
    let mut publisher = Publisher {
        context,
        writer,
        standing,
        written: None,
        last_write: None,
        failures: 0,
        next_attempt: None,
        troubles: Vec::new(),
        may_not_take_over: false,
        leftovers: false,
    };
    // Whatever is known at the start wants to be compared with the object.
    changes.mark_changed();
    loop {
        beat.beat();
        let beat_at = Instant::now() + BEAT;
        let wake = publisher.next_attempt.map_or(beat_at, |at| at.min(beat_at));
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = changes.changed() => changed?,
            changed = hypervisor.changed() => changed?,
            () = sleep_until(wake) => if publisher.next_attempt.is_none() { continue },
        }
        // After a refusal everything new goes with the next attempt.
        let too_early = publisher.next_attempt.is_some_and(|at| at > Instant::now());
        if too_early && !publisher.context.board.is_urgent() {
            continue;
        }
        publisher.settle(&stop).await;
        changes.borrow_and_update();
        let seen = hypervisor.borrow_and_update().clone();
        publisher.pass(seen).await;
    }
}

impl Publisher {
    /// Waits until it is time to write: changes are collected for a moment and writes keep their distance.
    async fn settle(&self, stop: &CancellationToken) {
        let config = &self.context.config;
        let mut changes = self.context.board.changes();
        let calm = Instant::now() + config.status_debounce;
        let due = self
            .last_write
            .map_or(calm, |last| calm.max(last + config.status_interval));
        loop {
            if self.context.board.is_urgent() {
                return;
            }
            tokio::select! {
                () = sleep_until(due) => return,
                () = stop.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn pass(&mut self, seen: Seen) {
        let Some(current) = self.newest(seen) else { return };
        self.leftovers = false;
        let current = self.take_over(current).await;
        let Pending { model, since } = self.context.board.take();
        let decision = decide(&model, &current, &self.standing);
        self.context.metrics.show(&model, decision.allocation.as_ref());
        self.tell_troubles(&decision);
        let began = Instant::now();
        match self.write(&current, &decision).await {
            Ok(Written::Unchanged) => {
                self.worked();
                self.sweep(&current).await;
            }
            Ok(Written::Applied(object)) => {
                let metrics = &self.context.metrics;
                self.count("written");
                metrics.write_seconds.observe(began.elapsed().as_secs_f64());
                if let Some(since) = since {
                    metrics.event_to_status.observe(since.elapsed().as_secs_f64());
                }
                self.last_write = Some(Instant::now());
                let object = Arc::new(*object);
                self.written = Some(Arc::clone(&object));
                self.worked();
                self.sweep(&object).await;
            }
            Err(error) => self.failed(&error),
        }
        if self.leftovers && self.next_attempt.is_none() {
            self.next_attempt = Some(Instant::now() + LEFTOVERS_AGAIN);
        }
    }

    /// Makes what the agent of the running system owned ours, where this agent may. Failed, it is tried again soon.
    async fn take_over(&mut self, current: Arc<Hypervisor>) -> Arc<Hypervisor> {
        let managers = taken_over(current.managed_fields());
        let Some(managers) = managers.filter(|_| !self.may_not_take_over) else {
            return current;
        };
        let metadata = json!({"managedFields": managers, "resourceVersion": current.resource_version()});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let (api, name) = (self.hypervisors(), current.name_any());
        let answer = timeout(WRITE_TIME, api.patch(&name, &PatchParams::default(), &patch)).await;
        match answer {
            Ok(Ok(object)) => {
                tracing::info!(hypervisor = name, "took over the fields of the former agent");
                let object = Arc::new(object);
                self.written = Some(Arc::clone(&object));
                return object;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::info!(
                    hypervisor = name,
                    why = status.message,
                    "fields are shared with the former agent"
                );
                self.may_not_take_over = true;
            }
            Ok(Err(error)) => {
                tracing::warn!(hypervisor = name, %error, "fields of the former agent not taken over yet");
                self.leftovers = true;
            }
            Err(_) => {
                tracing::warn!(hypervisor = name, limit = ?WRITE_TIME, "no answer to taking over fields of the former agent");
                self.leftovers = true;
            }
        }
        current
    }

    /// Removes conditions that the former agent wrote and nobody writes any more.
    async fn sweep(&mut self, current: &Hypervisor) {
        let left = left_behind(current.managed_fields());
        let conditions = current.status.iter().flat_map(|status| &status.conditions);
        let kept: Vec<_> = conditions
            .filter(|condition| !left.contains(&condition.type_.as_str()))
            .collect();
        if left.is_empty() {
            return;
        }
        let metadata = json!({"resourceVersion": current.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": {"conditions": kept}}));
        let (api, name) = (self.hypervisors(), current.name_any());
        let params = PatchParams {
            field_manager: Some(FieldManager::NodeAgent.as_str().to_owned()),
            ..PatchParams::default()
        };
        match timeout(WRITE_TIME, api.patch_status(&name, &params, &patch)).await {
            Ok(Ok(object)) => {
                tracing::info!(hypervisor = name, ?left, "removed conditions of the former agent");
                self.written = Some(Arc::new(object));
            }
            Ok(Err(error)) => {
                tracing::info!(hypervisor = name, %error, "conditions of the former agent not removed yet");
                self.leftovers = true;
            }
            Err(_) => {
                tracing::warn!(hypervisor = name, limit = ?WRITE_TIME, "no answer to removing conditions of the former agent");
                self.leftovers = true;
            }
        }
    }

    fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.context.client.clone())
    }

    /// The watch is late by nature; comparing with an older object than our own last write would write again.
    fn newest(&mut self, seen: Seen) -> Seen {
        let Some(seen) = seen else {
            self.written = None;
            return None;
        };
        let version = |object: &Hypervisor| {
            object
                .resource_version()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let same_object = |ours: &Arc<Hypervisor>| ours.uid() == seen.uid();
        match self.written.take().filter(same_object) {
            Some(ours) if version(&ours) > version(&seen) => {
                self.written = Some(Arc::clone(&ours));
                Some(ours)
            }
            _ => Some(seen),
        }
    }

    async fn write(
        &mut self,
        current: &Hypervisor,
        decision: &Decision,
    ) -> Result<Written<Hypervisor>, Error> {
        let attempt = timeout(WRITE_TIME, self.writer.write(current, &decision.intent)).await;
        match attempt {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) if self.standing.additions && error.to_string().contains(UNKNOWN_FIELD) => {
                tracing::warn!(%error, "the installed Hypervisor definition is older; writing the fields it has");
                self.standing.additions = false;
                Err(Error::Kit(error))
            }
            Ok(Err(error)) => Err(Error::Kit(error)),
            Err(_) => Err(Error::Deadline {
                what: format!("writing the status of Hypervisor {}", current.name_any()),
                limit: WRITE_TIME,
            }),
        }
    }

    fn worked(&mut self) {
        self.failures = 0;
        self.next_attempt = None;
    }

    fn failed(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        self.next_attempt = Some(Instant::now() + AGAIN.random_pause(self.failures));
        self.count("failed");
        tracing::warn!(%error, failures = self.failures, "status not written, will be tried again");
    }

    fn count(&self, result: &'static str) {
        let label = ResultLabel { result };
        self.context.metrics.writes.get_or_create(&label).inc();
    }

    fn tell_troubles(&mut self, decision: &Decision) {
        let new: Vec<&String> = decision
            .troubles
            .iter()
            .filter(|line| !self.troubles.contains(line))
            .collect();
        for line in &new {
            tracing::warn!(
                trouble = line.as_str(),
                "libvirt works, but not everything can be read"
            );
        }
        if let Some(first) = new.first() {
            self.context.tell(Happening::warning(
                EventReason::DomainUnreadable,
                "Reading",
                first.as_str(),
            ));
        }
        self.troubles.clone_from(&decision.troubles);
    }
}
