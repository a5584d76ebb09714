// SPDX-License-Identifier: Apache-2.0
//! A spool that many parts use. Whoever works on it may wait for the disk, and so may everybody else who wants to: that
//! is for threads that may wait. What the others need to know of it, and what they ask of it, is kept beside it, so that
//! a disk that stands still silences nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_wire::SpoolState;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinError;

use super::{Cursor, Limits, Spool};

/// How a spool stood when it was last worked on.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub(super) flushed: u64,
    pub(super) bytes: u64,
    pub(super) dropped_total: u64,
    /// The last number of each segment, and how old its oldest record is.
    pub(super) segments: Vec<(u64, Timestamp)>,
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// The endpoints that count.
    pub(super) current: BTreeSet<String>,
    pub(super) unsaved: bool,
}

impl Standing {
    /// Every record up to this number is durable.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// How far an endpoint is.
    pub fn acked(&self, endpoint: &str) -> u64 {
        self.cursors.get(endpoint).map_or(0, |cursor| cursor.acked)
    }

    /// Whether any endpoint has stored this record.
    pub fn anybody_has(&self, seq: u64) -> bool {
        self.cursors.values().any(|cursor| cursor.acked >= seq)
    }

    /// Whether where the endpoints stand is not written down yet.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// What waits for an endpoint.
    pub fn state(&self, endpoint: &str) -> SpoolState {
        self.waiting(self.acked(endpoint))
    }

    /// What waits for the endpoint that is farthest behind.
    pub fn worst(&self) -> SpoolState {
        let slowest = self.current.iter().map(|endpoint| self.acked(endpoint)).min();
        self.waiting(slowest.unwrap_or(0))
    }

    fn waiting(&self, acked: u64) -> SpoolState {
        let oldest = self.segments.iter().find(|(last, _)| *last > acked);
        let age = oldest.map_or(Duration::ZERO, |(_, oldest)| {
            Duration::try_from(Timestamp::now().duration_since(*oldest)).unwrap_or_default()
        });
        SpoolState {
            depth: self.flushed.saturating_sub(acked),
            bytes: self.bytes,
            oldest_s: age.as_secs(),
            dropped_total: self.dropped_total,
        }
    }
}

/// What is to be changed when the spool is worked on next.
#[derive(Default)]
struct Asked {
    endpoints: Option<Vec<String>>,
    limits: Option<Limits>,
}

/// See the module.
pub struct SharedSpool {
    spool: Mutex<Spool>,
    standing: Mutex<Arc<Standing>>,
    asked: Mutex<Asked>,
}

impl SharedSpool {
    /// Shares a spool.
    pub fn new(spool: Spool) -> Arc<Self> {
        Arc::new(Self {
            standing: Mutex::new(Arc::new(spool.standing())),
            asked: Mutex::default(),
            spool: Mutex::new(spool),
        })
    }

    /// Works on the spool. Waits for whoever does already, and for the disk.
    pub fn work<R>(&self, work: impl FnOnce(&mut Spool) -> R) -> R {
        let mut spool = self.spool.lock();
        let asked = std::mem::take(&mut *self.asked.lock());
        if let Some(endpoints) = asked.endpoints {
            spool.set_endpoints(&endpoints);
        }
        if let Some(limits) = asked.limits {
            spool.set_limits(limits);
        }
        let result = work(&mut spool);
        *self.standing.lock() = Arc::new(spool.standing());
        result
    }

    /// The same on a thread that may wait.
    pub async fn work_elsewhere<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Spool) -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.work(work)).await
    }

    /// How it stood when it was last worked on. Never waits.
    pub fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.lock())
    }

    /// Which endpoints count from the next work on. Never waits.
    pub fn set_endpoints(&self, endpoints: &[String]) {
        self.asked.lock().endpoints = Some(endpoints.to_vec());
    }

    /// How much room there is from the next work on. Never waits.
    pub fn set_limits(&self, limits: Limits) {
        self.asked.lock().limits = Some(limits);
    }

    /// Whether something was asked that is not carried out yet.
    pub(crate) fn is_asked(&self) -> bool {
        let asked = self.asked.lock();
        asked.endpoints.is_some() || asked.limits.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::tests::draft;
    use cobaltcore_ha_wire::Kind;

    /// Signs of life and the watchdog depend on it.
    #[test]
    fn whoever_looks_or_asks_does_not_wait_for_whoever_works() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            max_bytes: 1 << 20,
            segment_bytes: 64 << 10,
        };
        let (spool, _) = Spool::open(folder.path(), limits).unwrap();
        let shared = SharedSpool::new(spool);
        shared.work(|spool| {
            spool.append(&[draft(Kind::Reboot, "one")]).unwrap();
            spool.accept();
        });
        let (began, working) = std::sync::mpsc::channel();
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let worker = Arc::clone(&shared);
        let worker = std::thread::spawn(move || {
            worker.work(|spool| {
                began.send(()).unwrap();
                finished.recv().unwrap();
                spool.append(&[draft(Kind::Reboot, "two")]).unwrap();
                spool.accept();
            });
        });
        working.recv().unwrap();
        shared.set_endpoints(&["a".to_owned()]);
        assert!(shared.is_asked());
        let standing = shared.standing();
        assert_eq!((standing.flushed(), standing.state("a").depth), (1, 1));
        assert!(!standing.anybody_has(1));
        finish.send(()).unwrap();
        worker.join().unwrap();
        assert_eq!(shared.standing().flushed(), 2);
        shared.work(|spool| spool.ack("a", 1).unwrap());
        assert!(!shared.is_asked());
        let standing = shared.standing();
        assert!(standing.anybody_has(1) && standing.is_unsaved());
        assert_eq!(
            standing.worst().depth,
            1,
            "the endpoint that was asked for counts"
        );
    }
}
