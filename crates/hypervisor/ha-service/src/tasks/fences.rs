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

use crate::act::{Executor, Unfit};
use crate::directory::Directory;
use crate::leadership::pause;
use crate::metrics::Metrics;
use crate::settings::InForce;

const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
const BAD_FOR: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(5);
/// What a look takes besides what devices do.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Devices asked in one round.
const AT_ONCE: usize = 16;

/// What is known of the fencing device of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// Nothing: nobody looked within a day, or since devices are configured differently.
    #[default]
    Unchecked,
    /// It is its own and works.
    Works,
    /// It could not be used, and why.
    Fails(String),
    /// What was checked under the name of this host is another machine.
    Replaced,
}

/// What a check found, when, and of which machine.
struct Check {
    at: Instant,
    machine: Identity,
    result: Result<(), String>,
    /// Devices are configured differently since.
    outdated: bool,
}

impl Check {
    /// Whether it was another machine's. One that was not known by anything may have been this one.
    fn of_another(&self, machine: &Identity) -> bool {
        let nobody = Identity::default();
        self.machine.known() != nobody && machine.known() != nobody && !self.machine.matches(machine)
    }

    fn counts(&self, machine: &Identity) -> bool {
        self.machine == *machine && !self.outdated
    }
}

/// What the last check of each device found. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct FenceChecks(Arc<Mutex<HashMap<HostName, Check>>>);

impl FenceChecks {
    /// What the last check of this machine found.
    pub fn of(&self, host: &HostName, machine: &Identity) -> Fence {
        let known = self.0.lock();
        let Some(check) = known.get(host) else {
            return Fence::Unchecked;
        };
        let lately = check.at.elapsed() < GOOD_FOR + 2 * EVERY;
        match &check.result {
            _ if check.of_another(machine) => Fence::Replaced,
            _ if !check.counts(machine) || !lately => Fence::Unchecked,
            Ok(()) => Fence::Works,
            Err(why) => Fence::Fails(why.clone()),
        }
    }

    /// How long ago the device of a host was looked at.
    pub fn age(&self, host: &HostName) -> Option<Duration> {
        self.0.lock().get(host).map(|check| check.at.elapsed())
    }

    fn due(&self, host: &HostName, machine: &Identity) -> bool {
        let known = self.0.lock();
        let Some(check) = known.get(host).filter(|check| check.counts(machine)) else {
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
            outdated: false,
        };
        self.0.lock().insert(host.clone(), check);
    }

    /// How many of our hosts could not be fenced. Hosts that are gone are forgotten.
    fn bad(&self, directory: &Directory, in_cluster: bool) -> usize {
        let mut known = self.0.lock();
        known.retain(|host, _| directory.get(host).is_some());
        let ours = |host: &HostName| directory.get(host).is_some_and(|entry| entry.ours(in_cluster));
        known
            .iter()
            .filter(|(host, check)| check.result.is_err() && ours(host))
            .count()
    }

    /// What was found out was about other devices: all of it is to be found out again, and of which machine it was
    /// stays known.
    fn outdate(&self) {
        for check in self.0.lock().values_mut() {
            check.outdated = true;
        }
    }
}

/// Our hosts and their machines.
fn ours(directory: &Directory, in_cluster: bool) -> impl Iterator<Item = (HostName, Identity)> {
    let all = directory.all().into_iter();
    let ours = all.filter(move |(_, entry)| entry.ours(in_cluster));
    ours.map(|(host, entry)| (host, entry.machine.clone()))
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
    let mut devices = in_force.get().fencing.clone();
    while !pause(&stop, EVERY).await {
        let config = in_force.get();
        if config.fencing != devices {
            devices.clone_from(&config.fencing);
            checks.outdate();
        }
        let in_cluster = config.kubernetes.enabled;
        let due = checks.next(ours(&directory, in_cluster));
        let limit = config.fencing.longest_look().saturating_add(ANSWER_TIME);
        let looks = due.iter().map(|(host, machine)| async {
            let found = tokio::time::timeout(limit, executor.check_fence(host)).await;
            match found {
                Ok(Ok(())) => checks.note(host, machine, Ok(())),
                Ok(Err(Unfit::Because(why))) => checks.note(host, machine, Err(why)),
                // It is asked first in the next round.
                Ok(Err(Unfit::NotAsked)) => {}
                Err(_) => checks.note(host, machine, Err(format!("no answer within {limit:?}"))),
            }
        });
        futures::future::join_all(looks).await;
        executor.retain_fences(|host| directory.get(host).is_some());
        let bad = checks.bad(&directory, in_cluster);
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
            tokio::time::advance(Duration::from_secs(25) + EVERY).await;
        }
        assert_eq!(seen.len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_replaced_has_to_be_checked_anew() {
        let host = HostName::new("n1").unwrap();
        let (old, new) = (machine("old"), machine("new"));
        let checks = FenceChecks::default();
        let known = |machine: &Identity| (checks.of(&host, machine), checks.due(&host, machine));
        assert_eq!(known(&old), (Fence::Unchecked, true));
        checks.note(&host, &old, Ok(()));
        assert_eq!(known(&old), (Fence::Works, false));
        assert_eq!(known(&new), (Fence::Replaced, true));
        checks.note(&host, &new, Err("another machine's".into()));
        assert_eq!(known(&new), (Fence::Fails("another machine's".into()), false));
        tokio::time::advance(BAD_FOR).await;
        assert!(checks.due(&host, &new), "what was wrong is looked at again soon");
        checks.note(&host, &new, Ok(()));
        tokio::time::advance(GOOD_FOR + 2 * EVERY).await;
        assert_eq!(known(&new), (Fence::Unchecked, true), "a day is over");
    }

    #[tokio::test]
    async fn a_machine_of_which_more_is_known_now_was_not_replaced() {
        let host = HostName::new("n1").unwrap();
        let checks = FenceChecks::default();
        let told = machine("one");
        let more = Identity {
            serial: Some("S1".to_owned()),
            ..told.clone()
        };
        checks.note(&host, &Identity::default(), Err("whose is it?".into()));
        assert_eq!(checks.of(&host, &told), Fence::Unchecked, "nobody was checked");
        checks.note(&host, &told, Ok(()));
        assert_eq!(checks.of(&host, &more), Fence::Unchecked);
        assert!(checks.due(&host, &more), "the device may contradict what is new");
        assert_eq!(checks.of(&host, &Identity::default()), Fence::Unchecked);
    }

    #[tokio::test]
    async fn other_devices_are_checked_anew_and_who_was_checked_stays_known() {
        let host = HostName::new("n1").unwrap();
        let (old, new) = (machine("old"), machine("new"));
        let checks = FenceChecks::default();
        for found in [Ok(()), Err("no answer".to_owned())] {
            checks.note(&host, &old, found);
            checks.outdate();
            assert_eq!(checks.of(&host, &old), Fence::Unchecked);
            assert!(checks.due(&host, &old));
            assert_eq!(checks.of(&host, &new), Fence::Replaced);
        }
        checks.note(&host, &old, Ok(()));
        assert_eq!(checks.of(&host, &old), Fence::Works);
    }

    #[tokio::test]
    async fn hosts_of_other_services_are_not_checked_and_not_counted() {
        let directory = Directory::default();
        let checks = FenceChecks::default();
        for (host, object) in [("n1", true), ("esx1", false)] {
            let host = HostName::new(host).unwrap();
            directory.change(&host, |entry| entry.in_kubernetes = object);
            checks.note(&host, &Identity::default(), Err("no device".into()));
        }
        let seen = |in_cluster| {
            let hosts = ours(&directory, in_cluster).map(|(host, _)| host.to_string());
            (hosts.collect::<Vec<_>>(), checks.bad(&directory, in_cluster))
        };
        assert_eq!(seen(true), (vec!["n1".to_owned()], 1));
        let all = vec!["esx1".to_owned(), "n1".to_owned()];
        assert_eq!(
            seen(false),
            (all, 2),
            "without a cluster every host of Nova is ours"
        );
    }

    fn machine(uuid: &str) -> Identity {
        Identity {
            system_uuid: Some(uuid.to_owned()),
            serial: None,
        }
    }
}
