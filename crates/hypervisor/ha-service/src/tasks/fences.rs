// SPDX-License-Identifier: Apache-2.0
//! Checks fencing devices before they are needed: each host's device must answer and be that host's
//! own. A host that could not be fenced is known before it dies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::directory::Directory;
use crate::leadership::pause;
use crate::metrics::Metrics;
use crate::settings::InForce;

const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
const BAD_FOR: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Devices asked in one round.
const AT_ONCE: usize = 16;

type Known = HashMap<HostName, (Instant, Result<(), String>)>;

/// What the last check of each device found. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct FenceChecks(Arc<Mutex<Known>>);

impl FenceChecks {
    /// What the last check found; nothing if there was none within a day.
    pub fn of(&self, host: &HostName) -> Option<Result<(), String>> {
        let known = self.0.lock();
        let (at, result) = known.get(host)?;
        (at.elapsed() < GOOD_FOR + 2 * EVERY).then(|| result.clone())
    }

    fn due(&self, host: &HostName) -> bool {
        match self.0.lock().get(host) {
            None => true,
            Some((at, Ok(()))) => at.elapsed() >= GOOD_FOR,
            Some((at, Err(_))) => at.elapsed() >= BAD_FOR,
        }
    }
}

/// Checks until `stop`.
pub async fn check(
    checks: FenceChecks,
    in_force: InForce,
    executor: Executor,
    directory: Directory,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut changes = in_force.changes();
    while !pause(&stop, EVERY).await {
        if changes.has_changed().unwrap_or(false) {
            changes.mark_unchanged();
            // What was found out was about other devices.
            checks.0.lock().clear();
        }
        let all = directory.all();
        let due = all.iter().filter(|(host, _)| checks.due(host)).take(AT_ONCE);
        let looks = due.map(|(host, _)| async {
            let found = tokio::time::timeout(ANSWER_TIME, executor.check_fence(host)).await;
            let found = found.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIME:?}")));
            checks.0.lock().insert(host.clone(), (Instant::now(), found));
        });
        futures::future::join_all(looks).await;
        let mut known = checks.0.lock();
        known.retain(|host, _| directory.get(host).is_some());
        let bad = known.values().filter(|(_, result)| result.is_err()).count();
        metrics
            .hosts_unfenceable
            .set(i64::try_from(bad).unwrap_or(i64::MAX));
    }
}
