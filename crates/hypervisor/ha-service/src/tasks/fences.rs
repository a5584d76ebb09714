// SPDX-License-Identifier: Apache-2.0
//! Checks fencing devices before they are needed: each host's device must answer and be that host's
//! own. A host that could not be fenced is known before it dies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::Identity;
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

/// What a check found, when, and of which machine.
struct Check {
    at: Instant,
    machine: Identity,
    result: Result<(), String>,
}

/// What the last check of each device found. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct FenceChecks(Arc<Mutex<HashMap<HostName, Check>>>);

impl FenceChecks {
    /// What the last check of this machine found; nothing if there was none within a day. A machine that was replaced
    /// under its host's name has not been checked.
    pub fn of(&self, host: &HostName, machine: &Identity) -> Option<Result<(), String>> {
        let known = self.0.lock();
        let check = known.get(host).filter(|check| check.machine == *machine)?;
        (check.at.elapsed() < GOOD_FOR + 2 * EVERY).then(|| check.result.clone())
    }

    fn due(&self, host: &HostName, machine: &Identity) -> bool {
        let known = self.0.lock();
        let Some(check) = known.get(host).filter(|check| check.machine == *machine) else {
            return true;
        };
        let good_for = if check.result.is_ok() { GOOD_FOR } else { BAD_FOR };
        check.at.elapsed() >= good_for
    }

    /// Whose turn it is: those that were never checked, then those whose check is the oldest. Where many devices do not
    /// answer, the others are not forgotten over them.
    fn next(&self, all: impl Iterator<Item = (HostName, Identity)>) -> Vec<(HostName, Identity)> {
        let mut due: Vec<_> = all.filter(|(host, machine)| self.due(host, machine)).collect();
        let known = self.0.lock();
        due.sort_by_key(|(host, _)| known.get(host).map(|check| check.at));
        due.truncate(AT_ONCE);
        due
    }

    fn note(&self, host: &HostName, machine: &Identity, result: Result<(), String>) {
        let check = Check {
            at: Instant::now(),
            machine: machine.clone(),
            result,
        };
        self.0.lock().insert(host.clone(), check);
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
        let due = checks.next(
            all.iter()
                .map(|(host, entry)| (host.clone(), entry.machine.clone())),
        );
        let looks = due.iter().map(|(host, machine)| async {
            let found = tokio::time::timeout(ANSWER_TIME, executor.check_fence(host)).await;
            let found = found.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIME:?}")));
            checks.note(host, machine, found);
        });
        futures::future::join_all(looks).await;
        executor.retain_fences(|host| directory.get(host).is_some());
        let mut known = checks.0.lock();
        known.retain(|host, _| directory.get(host).is_some());
        let bad = known.values().filter(|check| check.result.is_err()).count();
        metrics
            .hosts_unfenceable
            .set(i64::try_from(bad).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn devices_that_do_not_answer_do_not_keep_others_from_being_checked() {
        let checks = FenceChecks::default();
        let hosts = || (0..100).map(|n| (HostName::new(format!("n{n:03}")).unwrap(), Identity::default()));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..7 {
            for (host, machine) in checks.next(hosts()) {
                checks.note(&host, &machine, Err("no answer".into()));
                seen.insert(host);
            }
            // As long as a round takes in which nobody answers.
            tokio::time::advance(ANSWER_TIME + EVERY).await;
        }
        assert_eq!(seen.len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_replaced_has_to_be_checked_anew() {
        let host = HostName::new("n1").unwrap();
        let machine = |uuid: &str| Identity {
            system_uuid: Some(uuid.to_owned()),
            serial: None,
        };
        let (old, new) = (machine("old"), machine("new"));
        let checks = FenceChecks::default();
        assert!(checks.due(&host, &old));
        checks.note(&host, &old, Ok(()));
        assert_eq!(
            (checks.of(&host, &old), checks.due(&host, &old)),
            (Some(Ok(())), false)
        );
        assert_eq!((checks.of(&host, &new), checks.due(&host, &new)), (None, true));
        checks.note(&host, &new, Err("another machine's".into()));
        assert!(checks.of(&host, &new).is_some_and(|found| found.is_err()));
        tokio::time::advance(BAD_FOR).await;
        assert!(checks.due(&host, &new), "what was wrong is looked at again soon");
        checks.note(&host, &new, Ok(()));
        tokio::time::advance(GOOD_FOR + 2 * EVERY).await;
        assert_eq!(checks.of(&host, &new), None, "a day is over");
    }
}
