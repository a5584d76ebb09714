// SPDX-License-Identifier: Apache-2.0
//! The way into the spool. Whoever notices something hands it over and goes on at once; one task makes records
//! durable, many at a flush and on a thread that may wait, and says how far it is. When it cannot keep up, equal records
//! become one; it never holds the reader of libvirt back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{Kind, agent};
use cobaltcore_kit::CancellationToken;
use cobaltcore_kit::health::Check;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use crate::clock;
use crate::draft::Draft;
use crate::metrics::Metrics;
use crate::spool::{Coalescer, Dropped, SharedSpool, Spool, SpoolError};

/// Records between the readers and the disk.
const QUEUE: usize = 10_000;
/// Records of one flush.
const GROUP: usize = 500;
/// Different records that may wait for room in the queue.
const MOST_WAITING: usize = 10_000;
/// How often the spool is looked after when nothing happens.
const IDLE: Duration = Duration::from_millis(500);
/// How long the spool may go without being looked after when nothing calls for it: endpoints that are not waited for any more
/// are noticed only then.
const LOOK_AFTER: Duration = Duration::from_secs(60);
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// How far the spool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every record up to this number is durable.
    pub accepted: u64,
    /// The newest record that must be known at once.
    pub urgent: u64,
    /// The newest record that says that the host goes down.
    pub shutdown: u64,
}

/// Hands records over. Clones share it.
#[derive(Clone)]
pub struct Intake {
    queue: mpsc::Sender<Draft>,
    waiting: Arc<Mutex<Waiting>>,
    progress: watch::Receiver<Progress>,
}

/// Records for which the queue had no room; equal ones are one.
#[derive(Default)]
struct Waiting {
    order: Vec<Draft>,
    places: HashMap<(Kind, String, String, Option<uuid::Uuid>), usize>,
    lost: u64,
}

impl Waiting {
    fn add(&mut self, draft: Draft) {
        let key = (
            draft.kind,
            draft.event.clone(),
            draft.detail.clone(),
            draft.domain.as_ref().map(|domain| domain.uuid),
        );
        let (place, waiting) = (self.places.get(&key).copied(), self.order.len());
        if let Some(known) = place.and_then(|place| self.order.get_mut(place)) {
            known.count = known.count.saturating_add(draft.count);
        } else if waiting >= MOST_WAITING {
            self.lost += 1;
        } else {
            self.places.insert(key, waiting);
            self.order.push(draft);
        }
    }
}

/// The task that makes records durable.
pub struct Writer {
    task: tokio::task::JoinHandle<()>,
    ending: CancellationToken,
}

impl Intake {
    /// Starts the task.
    pub fn start(spool: Arc<SharedSpool>, metrics: Metrics, healthy: Check) -> (Self, Writer) {
        let (queue, drafts) = mpsc::channel(QUEUE);
        let accepted = spool.standing().flushed();
        let (tell, progress) = watch::channel(Progress {
            accepted,
            urgent: 0,
            shutdown: 0,
        });
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let intake = Self {
            queue,
            waiting: Arc::clone(&waiting),
            progress,
        };
        let ending = CancellationToken::new();
        let worker = Worker {
            spool,
            waiting,
            tell,
            coalescer: Coalescer::default(),
            unsaid: Vec::new(),
            looked: Instant::now(),
            metrics,
            healthy,
        };
        let task = tokio::spawn(work(worker, drafts, ending.clone()));
        (intake, Writer { task, ending })
    }

    /// Hands a record over. Returns at once.
    pub fn put(&self, draft: Draft) {
        let mut waiting = self.waiting.lock();
        if waiting.order.is_empty() {
            match self.queue.try_send(draft) {
                Ok(()) => {}
                Err(TrySendError::Full(draft) | TrySendError::Closed(draft)) => waiting.add(draft),
            }
        } else {
            // Behind those that wait already, so that nothing overtakes.
            waiting.add(draft);
        }
    }

    /// How far the spool is; follow it with `changed`.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

impl Writer {
    /// Ends the task once everything handed over is durable, or cannot be made so.
    pub async fn finish(self) {
        let Self { task, ending } = self;
        ending.cancel();
        if task.await.is_err() {
            tracing::error!("the task of the spool ended in a panic");
        }
    }
}

/// Makes records durable until the end is asked for or nobody can hand any over.
async fn work(mut worker: Worker, mut drafts: mpsc::Receiver<Draft>, ending: CancellationToken) {
    worker.healthy.ok();
    let mut ended = false;
    while !ended {
        let group = gather(&mut drafts, &ending).await;
        ended = group.is_none();
        let group = group.unwrap_or_default();
        if group.is_empty() && !ended && worker.rests() {
            continue;
        }
        // The disk may be slow; nobody else waits for it.
        let done = tokio::task::spawn_blocking(move || {
            worker.take(group, ended);
            worker
        });
        worker = match done.await {
            Ok(worker) => worker,
            Err(error) => {
                tracing::error!(%error, "the spool is not written any more");
                return;
            }
        };
    }
}

/// The next records: what came while the last group was flushed is one group. None after the last.
async fn gather(drafts: &mut mpsc::Receiver<Draft>, ending: &CancellationToken) -> Option<Vec<Draft>> {
    let mut group = Vec::new();
    tokio::select! {
        biased;
        count = drafts.recv_many(&mut group, GROUP) => (count > 0).then_some(group),
        () = ending.cancelled() => None,
        () = tokio::time::sleep(IDLE) => Some(group),
    }
}

struct Worker {
    spool: Arc<SharedSpool>,
    waiting: Arc<Mutex<Waiting>>,
    tell: watch::Sender<Progress>,
    coalescer: Coalescer,
    /// What was dropped and is not announced yet. Not written with what needed the room: that is durable by then, and
    /// would be written twice if the announcement failed.
    unsaid: Vec<Draft>,
    /// When the spool was last looked after.
    looked: Instant,
    metrics: Metrics,
    healthy: Check,
}

impl Worker {
    /// Whether there is nothing to do on the disk. Asked where nothing may wait for it.
    fn rests(&self) -> bool {
        self.coalescer.is_empty()
            && self.unsaid.is_empty()
            && self.waiting.lock().order.is_empty()
            && !self.spool.is_asked()
            && !self.spool.standing().is_unsaved()
            && self.looked.elapsed() < LOOK_AFTER
    }

    /// Makes a group durable, with whatever waits.
    fn take(&mut self, mut group: Vec<Draft>, ended: bool) {
        if group.len() < GROUP {
            group.extend(self.take_waiting());
        }
        if self.spool.work(|spool| spool.is_pressed()) {
            group = group
                .into_iter()
                .filter_map(|draft| self.coalescer.take(draft))
                .collect();
        }
        if !self.coalescer.is_empty() {
            group.extend(self.coalescer.due(clock::boot_ns(), false));
        }
        if ended {
            group.extend(self.coalescer.due(0, true));
        }
        self.commit(group, ended);
        let unsaid = std::mem::take(&mut self.unsaid);
        self.commit(unsaid, ended);
        self.look_after();
    }

    fn take_waiting(&self) -> Vec<Draft> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let mut drafts = waiting.order;
        if waiting.lost > 0 {
            tracing::error!(
                lost = waiting.lost,
                "more happens than the disk takes; records were lost"
            );
            let draft = Draft::agent(agent::SPOOL_OVERFLOW).with("unnumbered", waiting.lost as i64);
            drafts.push(draft);
        }
        drafts
    }

    /// Makes a group durable, however long it takes: nothing is given up before the queue is full.
    fn commit(&mut self, mut group: Vec<Draft>, ended: bool) {
        while !group.is_empty() {
            let now: Vec<Draft> = group.drain(..group.len().min(GROUP)).collect();
            while let Err(error) = self.write(&now) {
                tracing::error!(%error, "records cannot be written; trying again");
                self.healthy.failed(error.to_string());
                self.metrics.spool_failed();
                if ended {
                    return;
                }
                std::thread::sleep(AFTER_ERROR);
            }
            self.healthy.ok();
        }
    }

    fn write(&mut self, drafts: &[Draft]) -> Result<(), SpoolError> {
        let (dropped, file, first) = self.spool.work(|spool| {
            let dropped = spool.append(drafts)?;
            Ok::<_, SpoolError>((dropped, spool.to_flush()?, spool.flushed() + 1))
        })?;
        let began = Instant::now();
        if let Some(Err(source)) = file.map(|file| file.sync_data()) {
            self.spool.work(Spool::rollback)?;
            return Err(SpoolError::Io {
                what: "flush",
                path: "the spool".into(),
                source,
            });
        }
        self.metrics.flushed(began.elapsed());
        let accepted = self.spool.work(Spool::accept);
        let newest = |wanted: &dyn Fn(&Draft) -> bool| {
            let place = drafts.iter().rposition(wanted);
            place.map_or(0, |place| first + place as u64)
        };
        let urgent = newest(&|draft| draft.clone().numbered(1).urgent());
        let shutdown = newest(&|draft| draft.event == agent::HOST_SHUTDOWN);
        self.tell.send_modify(|progress| {
            progress.accepted = accepted;
            progress.urgent = progress.urgent.max(urgent);
            progress.shutdown = progress.shutdown.max(shutdown);
        });
        if let Some(dropped) = dropped {
            self.announce(&dropped);
        }
        Ok(())
    }

    /// Says what was dropped, in the stream itself.
    fn announce(&mut self, dropped: &Dropped) {
        let total: u64 = dropped.kinds.values().sum();
        tracing::warn!(
            first = dropped.first,
            last = dropped.last,
            total,
            "no room; records were dropped"
        );
        let mut draft = Draft::agent(agent::SPOOL_OVERFLOW)
            .with("first_seq", dropped.first as i64)
            .with("last_seq", dropped.last as i64)
            .with("dropped", total as i64);
        for (kind, count) in &dropped.kinds {
            self.metrics.dropped(*kind, *count);
            draft = draft.with(kind.as_str(), *count as i64);
        }
        self.unsaid.push(draft);
    }

    fn look_after(&mut self) {
        self.looked = Instant::now();
        let done = self
            .spool
            .work(|spool| spool.save_cursors().and_then(|()| spool.collect()));
        if let Err(error) = done {
            tracing::warn!(%error, "cannot look after the spool");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::tests::draft;
    use crate::spool::{Limits, Place};
    use cobaltcore_ha_wire::{Event, Scalar};
    use cobaltcore_kit::health::{Health, Kind as CheckKind};
    use cobaltcore_kit::startup::Component;
    use cobaltcore_kit::telemetry::Telemetry;

    const HERE: Component = Component {
        name: "test",
        version: "0",
        commit: "none",
    };

    fn all(spool: &Spool) -> Vec<Event> {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let chunk = spool.read(after, 1000, 1 << 20, &mut Place::default()).unwrap();
            found.extend(chunk.events);
            after = found.last().map_or(0, |event| event.seq);
            if !chunk.more {
                return found;
            }
        }
    }

    /// What had to go is counted by its kind and told once, with its numbers; nothing is there twice.
    #[tokio::test]
    async fn a_spool_that_overflows_says_what_it_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            max_bytes: 128 << 10,
            segment_bytes: 64 << 10,
        };
        let (spool, _) = Spool::open(folder.path(), limits).unwrap();
        let spool = SharedSpool::new(spool);
        spool.set_endpoints(&["nobody".to_owned()]);
        let telemetry = Telemetry::new(&HERE);
        let health = Health::new();
        let check = health.check("spool", CheckKind::Ready);
        let (intake, writer) = Intake::start(Arc::clone(&spool), Metrics::new(&telemetry), check);
        let mut progress = intake.progress();
        // Each of another kind of thing, so that none of them becomes one with another.
        for n in 0..1000_u64 {
            let before = progress.borrow_and_update().accepted;
            intake.put(draft(Kind::Reboot, &format!("reboot-{n}")).with("filling", "x".repeat(100)));
            progress
                .wait_for(|progress| progress.accepted > before)
                .await
                .unwrap();
        }
        writer.finish().await;
        assert!(health.ready().ok);
        let events = spool.work(|spool| all(spool));
        let overflows: Vec<&Event> = events
            .iter()
            .filter(|event| event.event == agent::SPOOL_OVERFLOW)
            .collect();
        assert!(!overflows.is_empty());
        let number = |event: &Event, key: &str| match event.attrs.get(key) {
            Some(Scalar::Number(number)) => *number,
            other => panic!("{key}: {other:?}"),
        };
        let mut told = 0;
        for overflow in &overflows {
            let (first, last) = (number(overflow, "first_seq"), number(overflow, "last_seq"));
            assert!(
                first >= 1 && first <= last && last < overflow.seq as i64,
                "{overflow:?}"
            );
            assert_eq!(
                number(overflow, "dropped"),
                number(overflow, "reboot"),
                "of one kind"
            );
            told += number(overflow, "dropped");
        }
        let reboots = events.iter().filter(|event| event.kind == Kind::Reboot).count() as i64;
        assert_eq!(told + reboots, 1000, "each is there or told of");
        assert!(
            telemetry.encode().contains(&format!(
                "kvm_ha_agent_spool_dropped_total{{kind=\"reboot\"}} {told}"
            )),
            "{}",
            telemetry.encode()
        );
        let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert!(numbers.is_sorted_by(|one, two| one < two), "{numbers:?}");
    }

    /// Whoever reads libvirt is never held back: ten thousand wait as they are, then equal ones become one, and of more
    /// than another ten thousand different ones the number is told.
    #[tokio::test]
    async fn the_queue_has_an_end_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            max_bytes: 64 << 20,
            segment_bytes: 8 << 20,
        };
        let (spool, _) = Spool::open(folder.path(), limits).unwrap();
        let spool = SharedSpool::new(spool);
        let health = Health::new();
        let check = health.check("spool", CheckKind::Ready);
        let metrics = Metrics::new(&Telemetry::new(&HERE));
        let (intake, writer) = Intake::start(Arc::clone(&spool), metrics, check);
        // Nothing here waits, so the task that empties the queue has no turn before the end.
        let other = |n: usize| draft(Kind::Lifecycle, &format!("started-{n}"));
        for n in 0..QUEUE {
            intake.put(other(n));
        }
        for _ in 0..5000 {
            intake.put(draft(Kind::Watchdog, "reset"));
        }
        for n in QUEUE..QUEUE + MOST_WAITING + 50 {
            intake.put(other(n));
        }
        assert_eq!(intake.waiting.lock().order.len(), MOST_WAITING);
        writer.finish().await;
        let events = spool.work(|spool| all(spool));
        assert_eq!(events.len(), QUEUE + MOST_WAITING + 1);
        let named: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
        assert_eq!(
            named[..3],
            ["started-0", "started-1", "started-2"],
            "in the order in which they came"
        );
        let barks = &events[QUEUE];
        assert_eq!(
            (barks.kind, barks.count),
            (Kind::Watchdog, 5000),
            "equal ones are one"
        );
        let last = events.last().unwrap();
        assert_eq!(last.event, agent::SPOOL_OVERFLOW);
        let lost = last.attrs.get("unnumbered");
        assert!(matches!(lost, Some(Scalar::Number(51))), "{lost:?}");
    }

    /// A disk that takes nothing makes the agent unready, and loses nothing.
    #[tokio::test]
    async fn records_wait_for_a_disk_that_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            max_bytes: 4 << 20,
            segment_bytes: 64 << 10,
        };
        let dir = folder.path().join("spool");
        let (spool, _) = Spool::open(&dir, limits).unwrap();
        let spool = SharedSpool::new(spool);
        let health = Health::new();
        let check = health.check("spool", CheckKind::Ready);
        let metrics = Metrics::new(&Telemetry::new(&HERE));
        let (intake, writer) = Intake::start(Arc::clone(&spool), metrics, check);
        // The directory is gone: no segment can be begun in it.
        let away = folder.path().join("away");
        std::fs::rename(&dir, &away).unwrap();
        intake.put(draft(Kind::Reboot, "one"));
        while health.ready().ok {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(intake.progress().borrow().accepted, 0);
        std::fs::rename(&away, &dir).unwrap();
        let mut progress = intake.progress();
        progress
            .wait_for(|progress| progress.accepted == 1)
            .await
            .unwrap();
        writer.finish().await;
        assert!(health.ready().ok);
        assert_eq!(spool.work(|spool| all(spool)).len(), 1);
    }
}
