// SPDX-License-Identifier: Apache-2.0
//! What every part of the agent is given: the configuration, a client, the board, the own Hypervisor as last seen,
//! a recorder of events and the metrics. Cloning is cheap; parts never talk to each other in any other way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::{Hypervisor, labels};
use cobaltcore_kit::events::{Happening, Recorder};
use cobaltcore_kit::health::Health;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::board::Board;
use crate::config::Config;
use crate::metrics::Metrics;

/// The own Hypervisor as last seen; `None` while there is none.
pub type Seen = Option<Arc<Hypervisor>>;

/// As much waits to be told while there is no Hypervisor; what comes then pushes out the oldest.
const MOST_UNTOLD: usize = 32;
/// What waited longer is history by then: an event would be dated now, and mislead.
const LONGEST_UNTOLD: Duration = Duration::from_mins(1);

/// What happened while there was no Hypervisor to tell it about. libvirt often answers before Kubernetes does.
#[derive(Clone, Debug, Default)]
pub struct Untold(Arc<Mutex<VecDeque<(Instant, Happening)>>>);

/// What every part of the agent is given.
#[derive(Clone)]
pub struct Context {
    /// What the agent was told.
    pub config: Arc<Config>,
    /// Speaks to Kubernetes.
    pub client: kube::Client,
    /// What is known about the host.
    pub board: Board,
    /// The own Hypervisor as last seen.
    pub hypervisor: watch::Receiver<Seen>,
    /// Records events for people.
    pub recorder: Recorder,
    /// Events that wait for the Hypervisor to be seen.
    pub untold: Untold,
    /// What the agent counts.
    pub metrics: Metrics,
    /// Where loops prove that they make progress.
    pub health: Health,
}

impl Context {
    /// The own Hypervisor as last seen.
    pub fn hypervisor(&self) -> Seen {
        self.hypervisor.borrow().clone()
    }

    /// Records that something happened to the own Hypervisor, as soon as one is seen.
    pub fn tell(&self, happening: Happening) {
        // Held while looking for the Hypervisor, so that one seen at this moment finds what is put here.
        let mut untold = self.untold.0.lock();
        if let Some(hypervisor) = self.hypervisor() {
            self.recorder.record(hypervisor.as_ref(), happening);
            return;
        }
        if untold.len() == MOST_UNTOLD {
            untold.pop_front();
        }
        untold.push_back((Instant::now(), happening));
    }

    /// Records what has waited for the own Hypervisor to be seen.
    pub(crate) fn tell_what_waited(&self) {
        let mut untold = self.untold.0.lock();
        if let Some(hypervisor) = self.hypervisor() {
            for (when, happening) in untold.drain(..) {
                if when.elapsed() < LONGEST_UNTOLD {
                    self.recorder.record(hypervisor.as_ref(), happening);
                }
            }
        }
    }

    /// The text under which this host appears in migrations.
    pub fn node_label(&self) -> String {
        let labelled = || {
            let hypervisor = self.hypervisor()?;
            hypervisor.labels().get(labels::METAL_NAME.as_str()).cloned()
        };
        let given = self.config.node_label.clone();
        given
            .or_else(labelled)
            .unwrap_or_else(|| self.config.host.to_string())
    }
}

/// Waits until what `part` takes from a watched value differs from `before`. A part that looks at three fields of the
/// Hypervisor is not woken by every status the agent writes itself.
pub(crate) async fn differs<T, K: PartialEq>(
    watched: &mut watch::Receiver<T>,
    before: &K,
    part: impl Fn(&T) -> K,
) -> Result<(), watch::error::RecvError> {
    loop {
        watched.changed().await?;
        if part(&watched.borrow_and_update()) != *before {
            return Ok(());
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("host", &self.config.host)
            .finish_non_exhaustive()
    }
}
