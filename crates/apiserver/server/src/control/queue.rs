// SPDX-License-Identifier: Apache-2.0
//! The inner controllers' list of things to do. Each thing is on it at most once, is worked on by at
//! most one worker at a time, and comes back later when it failed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::{Key, TypeId};

/// First and longest delay after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// Something to look at. What is to be done is decided from the state found then.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// An object whose owners may be gone.
    Dependent(TypeId, Key),
    /// An object that waits for its dependents.
    Owner(TypeId, Key),
    /// A namespace that is going away.
    Namespace(String),
    /// A definition that is going away.
    Definition(String),
    /// What every namespace has.
    Accounts(String),
    /// The disruption budgets of a namespace.
    Budgets(String),
    /// The quotas of a namespace.
    Quotas(String),
    /// Roles that collect the rules of others.
    Roles,
    /// A workload that changed and is to be marked as running soon.
    Workload(TypeId, Key),
    /// A workload that is to be marked as running now.
    Fulfil(TypeId, Key),
    /// Workloads that run on every node.
    Daemons,
    /// Definitions of a group whose names were taken.
    Names(String),
    /// The registrations of what definitions of a group serve.
    Registrations(String),
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Work>,
    known: HashSet<Work>,
    running: HashSet<Work>,
    again: HashSet<Work>,
    /// Will be added by whoever waits for its time.
    resting: HashSet<Work>,
    failures: HashMap<Work, u32>,
}

impl Queue {
    /// Adds something, unless it waits already.
    pub(crate) fn add(&self, work: Work) {
        {
            let mut state = self.state.lock();
            state.resting.remove(&work);
            if state.running.contains(&work) {
                state.again.insert(work);
                return;
            }
            if !state.known.insert(work.clone()) {
                return;
            }
            state.waiting.push_back(work);
        }
        self.ready.notify_one();
    }

    /// Whether somebody is to add this when its time has come; not if somebody waits for that already.
    pub(crate) fn rest(&self, work: &Work) -> bool {
        self.state.lock().resting.insert(work.clone())
    }

    /// The next thing to do.
    pub(crate) async fn take(&self) -> Work {
        loop {
            let ready = self.ready.notified();
            if let Some(work) = self.pop() {
                return work;
            }
            ready.await;
        }
    }

    fn pop(&self) -> Option<Work> {
        let mut state = self.state.lock();
        let work = state.waiting.pop_front()?;
        state.known.remove(&work);
        state.running.insert(work.clone());
        if !state.waiting.is_empty() {
            self.ready.notify_one();
        }
        Some(work)
    }

    /// Marks something done; a failure returns the delay after which it must be added again.
    pub(crate) fn done(&self, work: &Work, succeeded: bool) -> Option<Duration> {
        let again = {
            let mut state = self.state.lock();
            state.running.remove(work);
            let again = state.again.remove(work);
            if !succeeded {
                let failures = state.failures.entry(work.clone()).or_insert(0);
                *failures += 1;
                let delay = BACKOFF
                    .0
                    .saturating_mul(1 << (*failures - 1).min(16))
                    .min(BACKOFF.1);
                return Some(delay);
            }
            state.failures.remove(work);
            again
        };
        if again {
            self.add(work.clone());
        }
        None
    }

    /// How often something has failed in a row.
    pub(crate) fn failures(&self, work: &Work) -> u32 {
        self.state.lock().failures.get(work).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_for_the_time_of_a_thing() {
        let queue = Queue::default();
        assert!(queue.rest(&Work::Daemons));
        assert!(!queue.rest(&Work::Daemons), "somebody waits already");
        queue.add(Work::Daemons);
        assert!(queue.rest(&Work::Daemons), "its time came, and another may come");
    }

    #[tokio::test]
    async fn nothing_waits_twice_and_nothing_is_lost() {
        let queue = Queue::default();
        queue.add(Work::Roles);
        queue.add(Work::Roles);
        let work = queue.take().await;
        assert!(queue.pop().is_none());
        queue.add(Work::Roles);
        assert!(queue.pop().is_none(), "it is being worked on");
        assert_eq!(queue.done(&work, true), None);
        assert_eq!(
            queue.pop(),
            Some(Work::Roles),
            "what came meanwhile is done afterwards"
        );
        let first = queue.done(&Work::Roles, false).unwrap();
        queue.add(Work::Roles);
        queue.pop();
        assert!(queue.done(&Work::Roles, false).unwrap() > first);
    }
}
