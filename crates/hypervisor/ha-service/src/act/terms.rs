// SPDX-License-Identifier: Apache-2.0
//! Terms that are over. A term may end while some of its actions wait for their turn, and the next one may begin in the
//! same process a moment later: what the old one wanted must not leave after anything that the new one does. So nothing
//! of a term that is over leaves any more, and the next begins when everything that had left is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cobaltcore_ha_engine::Epoch;
use tokio::sync::watch;

/// Which terms are over, and how many actions are under way. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct Terms {
    over: Arc<AtomicU64>,
    under_way: watch::Sender<usize>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            over: Arc::default(),
            under_way: watch::Sender::new(0),
        }
    }
}

/// An action that is under way until this is dropped.
pub(super) struct UnderWay(Terms);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl Terms {
    /// A term and all before it are over.
    pub(crate) fn end(&self, term: Epoch) {
        self.over.fetch_max(term.0, Ordering::SeqCst);
    }

    /// The number of the next term: `at_least` so much, and one that no term of this process had. The journal does not
    /// know of one that could not write a single record.
    pub(crate) fn next(&self, at_least: u64) -> u64 {
        at_least.max(self.over.load(Ordering::SeqCst) + 1)
    }

    pub(super) fn is_over(&self, term: Epoch) -> bool {
        term.0 <= self.over.load(Ordering::SeqCst)
    }

    pub(super) fn enter(&self) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(self.clone())
    }

    /// Waits until nothing is under way. Each action ends by itself within its time.
    pub(crate) async fn settled(&self) {
        let mut watched = self.under_way.subscribe();
        // Whoever counts is ourselves.
        let _ = watched.wait_for(|count| *count == 0).await;
    }
}
