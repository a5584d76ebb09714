// SPDX-License-Identifier: Apache-2.0
//! Sends records to one endpoint, in order, at least once. A backlog goes at a bounded rate, so that a fleet that comes
//! back does not flood the service.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::stream::{Answer, MOST_BYTES, Pace, Step, gaps, replay_rest};
use cobaltcore_ha_wire::{Batch, Event, agent, path};
use cobaltcore_kit::CancellationToken;
use jiff::Timestamp;
use tokio::sync::watch;

use super::envelope;
use super::link::Link;
use crate::board::Context;
use crate::draft::Draft;
use crate::intake::Progress;
use crate::spool::{Place, Spool, SpoolError};

/// How long records are collected.
const GATHER: Duration = Duration::from_millis(200);
/// The same when one of them is urgent.
const GATHER_URGENT: Duration = Duration::from_millis(50);
const SEND_TIME: Duration = Duration::from_secs(10);

/// What became of a batch that was sent.
struct Sent {
    answer: Answer,
    bytes: usize,
    /// The status of the answer, or `error` if there was none, for those who count.
    code: String,
}

/// What is sent at once.
struct Part {
    events: Vec<Event>,
    dropped: Vec<RangeInclusive<u64>>,
    /// Whether more is waiting behind it.
    more: bool,
}

impl Part {
    /// Reads what an endpoint does not have yet.
    fn read(
        spool: &mut Spool,
        endpoint: &str,
        size: usize,
        place: &mut Place,
    ) -> Result<Option<Self>, SpoolError> {
        let (cursor, flushed) = (spool.cursor(endpoint), spool.flushed());
        let chunk = spool.read(cursor.acked, size, MOST_BYTES, place)?;
        let mut events = chunk.events;
        // Without records there is nothing up to what is durable; of those that are skipped, up to the last of them.
        let until = events.last().map_or(flushed, |event| event.seq);
        events.retain(|event| !cursor.skipped.contains(&event.seq));
        let dropped = gaps(cursor.acked, &events, until);
        if events.is_empty() && dropped.is_empty() {
            return Ok(None);
        }
        let newest = events.last().map_or(until, |event| event.seq);
        if let Err(error) = spool.sending(newest) {
            tracing::error!(%error, "cannot mark what is sent");
        }
        Ok(Some(Self {
            events,
            dropped,
            more: chunk.more,
        }))
    }
}

struct Sender {
    context: Context,
    endpoint: String,
    link: Link,
    pace: Pace,
    place: Place,
    stop: CancellationToken,
}

/// Sends until `stop`, and then once more what is there.
pub(super) async fn run(context: Context, endpoint: String, link: Link, stop: CancellationToken) {
    let mut progress = context.intake.progress();
    let mut sender = Sender {
        context,
        endpoint,
        link,
        pace: Pace::default(),
        place: Place::default(),
        stop: stop.clone(),
    };
    let mut backlog = false;
    loop {
        if !backlog && !sender.gather(&mut progress).await {
            break;
        }
        if stop.is_cancelled() {
            break;
        }
        backlog = sender.round().await;
    }
    // Last words: what was accepted until now, once.
    sender.round().await;
}

impl Sender {
    /// Waits until there is something to send, and a little longer for more. False when it is over.
    async fn gather(&self, progress: &mut watch::Receiver<Progress>) -> bool {
        loop {
            let known = *progress.borrow_and_update();
            let spool = self.context.spool.standing();
            let acked = spool.acked(&self.endpoint);
            if spool.flushed() > acked {
                let urgent = known.urgent > acked;
                return self
                    .pause(if urgent { GATHER_URGENT } else { GATHER }, progress)
                    .await;
            }
            tokio::select! {
                () = self.stop.cancelled() => return false,
                changed = progress.changed() => if changed.is_err() { return false },
            }
        }
    }

    /// Collects for this long, or shorter when something urgent comes.
    async fn pause(&self, time: Duration, progress: &mut watch::Receiver<Progress>) -> bool {
        let urgent = progress.borrow().urgent;
        let hurried = async {
            while progress.changed().await.is_ok() {
                if progress.borrow().urgent > urgent {
                    return tokio::time::sleep(GATHER_URGENT).await;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(time) => true,
            () = hurried => true,
        }
    }

    /// Sends one batch and does what the answer asks. Says whether more is waiting.
    async fn round(&mut self) -> bool {
        let part = match self.next().await {
            Ok(Some(part)) => part,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(%error, endpoint = self.endpoint, "cannot read the spool");
                self.sleep(Duration::from_secs(5)).await;
                return true;
            }
        };
        let batch = Batch {
            dropped: part.dropped,
            events: part.events,
            ..Batch::empty(envelope(&self.context))
        };
        let began = Instant::now();
        let was_failing = self.pace.failing();
        let Sent { answer, bytes, code } = self.send(&batch).await;
        self.context.metrics.batch(&self.endpoint, &code);
        let step = self.pace.after(&answer, batch.events.len(), fastrand::f64());
        self.tell(&answer, was_failing);
        self.follow(step, &batch).await;
        if matches!(step, Step::Advance(_)) {
            self.measure(&batch.events);
            if part.more {
                self.slow_down(bytes, began, was_failing).await;
            }
            return part.more;
        }
        true
    }

    /// What comes next for this endpoint, if anything. Its numbers count as seen from then on.
    async fn next(&mut self) -> Result<Option<Part>, String> {
        let (endpoint, mut place, size) = (self.endpoint.clone(), self.place, self.pace.size());
        let read = self.context.spool.work_elsewhere(move |spool| {
            let part = Part::read(spool, &endpoint, size, &mut place);
            (part, place)
        });
        let (part, place) = read.await.map_err(|error| error.to_string())?;
        self.place = place;
        part.map_err(|error| error.to_string())
    }

    /// Works on the spool without waiting for the disk here. Nothing comes back where the agent ends meanwhile.
    async fn on_spool<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Spool) -> R + Send + 'static,
    ) -> Option<R> {
        let done = self.context.spool.work_elsewhere(work).await;
        done.inspect_err(|error| tracing::error!(%error, "the spool was not worked on"))
            .ok()
    }

    async fn send(&self, batch: &Batch) -> Sent {
        let body = match batch.encode() {
            Ok(body) => body,
            Err(error) => {
                return Sent {
                    answer: Answer::Refused(400, error.to_string()),
                    bytes: 0,
                    code: "unsent".to_owned(),
                };
            }
        };
        let bytes = body.len();
        let target = path::batches(&self.context.start.host);
        let (answer, code) = match self.link.post(&target, body, SEND_TIME).await {
            Ok(reply) => (
                Answer::read(reply.status, reply.retry_after, &reply.body),
                reply.status.to_string(),
            ),
            Err(why) => (Answer::Broken(why), "error".to_owned()),
        };
        Sent { answer, bytes, code }
    }

    async fn follow(&mut self, step: Step, batch: &Batch) {
        let endpoint = self.endpoint.clone();
        match step {
            Step::Advance(acked) => {
                let stored = endpoint.clone();
                let beyond = self.on_spool(move |spool| spool.ack(&stored, acked)).await;
                match beyond {
                    None | Some(Ok(false)) => {}
                    Some(Ok(true)) => {
                        tracing::error!(acked, endpoint, "the service knows records this spool never had");
                        let draft = Draft::agent(agent::SPOOL_CORRUPT).with("known_by_service", acked as i64);
                        self.context.intake.put(draft);
                    }
                    Some(Err(error)) => tracing::error!(%error, "cannot tidy the spool"),
                }
            }
            Step::Rewind(expected, pause) => {
                self.on_spool(move |spool| spool.rewind(&endpoint, expected))
                    .await;
                self.sleep(pause).await;
            }
            Step::Shrink => {}
            Step::Quarantine(pause) => {
                self.quarantine(batch).await;
                self.sleep(pause).await;
            }
            Step::Wait(pause) => self.sleep(pause).await,
            Step::Reload(pause) => {
                self.link.renew();
                self.sleep(pause).await;
            }
        }
    }

    /// Puts the one record aside that the endpoint will never take.
    async fn quarantine(&self, batch: &Batch) {
        let Some(event) = batch.events.first() else {
            // Even the announcement of a gap is refused; there is nothing to put aside.
            return;
        };
        self.context.metrics.quarantined(&self.endpoint);
        let (endpoint, seq) = (self.endpoint.clone(), event.seq);
        let body = serde_json::to_vec_pretty(batch);
        self.on_spool(move |spool| {
            let name = format!("record-{seq:020}.json");
            let kept = body.map_or(Ok(()), |body| spool.keep_refused(&name, &body));
            if let Err(error) = kept {
                tracing::warn!(%error, "cannot keep a copy of a refused record");
            }
            spool.skip(&endpoint, seq);
        })
        .await;
    }

    fn tell(&self, answer: &Answer, was_failing: bool) {
        let endpoint = &self.endpoint;
        match answer {
            Answer::Acked(_) if was_failing => tracing::info!(endpoint, "records are taken again"),
            Answer::Acked(_) => {}
            Answer::Broken(why) if !was_failing => {
                tracing::warn!(endpoint, why, "cannot send records; trying again");
            }
            Answer::Broken(_) => {}
            Answer::Refused(status, why) => tracing::error!(endpoint, status, why, "records are refused"),
            other => tracing::warn!(endpoint, answer = other.code(), "records are not taken now"),
        }
    }

    fn measure(&self, events: &[Event]) {
        if let Some(event) = events.first() {
            let lag = Duration::try_from(Timestamp::now().duration_since(event.ts)).unwrap_or_default();
            self.context.metrics.lag(&self.endpoint, lag);
        }
    }

    /// Keeps a backlog to its rate; the first part after an outage waits a random while.
    async fn slow_down(&self, bytes: usize, began: Instant, was_failing: bool) {
        let rest = replay_rest(bytes, began.elapsed(), was_failing, fastrand::f64());
        self.sleep(rest).await;
    }

    async fn sleep(&self, time: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}
