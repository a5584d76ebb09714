// SPDX-License-Identifier: Apache-2.0
//! What to do with a lease, decided without a client and without a clock. Time is measured
//! from when *we* last saw the lease change, never from the times written in it, because the
//! clocks of candidates differ.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::LeaderConfig;

/// A lease and when it last changed before our eyes.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    lease: Lease,
    changed: Instant,
}

impl Observed {
    pub(super) fn new(lease: Lease, now: Instant) -> Self {
        Self { lease, changed: now }
    }

    /// Takes a lease that was just read; its time of change stays if its content did.
    pub(super) fn refresh(before: Option<Self>, lease: Lease, now: Instant) -> Self {
        let changed = before
            .filter(|before| before.lease.spec == lease.spec)
            .map_or(now, |before| before.changed);
        Self { lease, changed }
    }

    pub(super) fn held_by(&self, identity: &str) -> bool {
        self.holder() == identity
    }

    fn spec(&self) -> LeaseSpec {
        self.lease.spec.clone().unwrap_or_default()
    }

    fn holder(&self) -> &str {
        self.lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default()
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Create(Lease),
    Update(Lease),
    Wait { holder: String },
}

/// Whether a lease that was seen, and is now free or gone, is still to be waited for.
pub(super) fn lasts(config: &LeaderConfig, observed: &Observed, now: Instant) -> bool {
    config.patient && !observed.held_by(&config.identity) && observed.changed + config.lease_duration > now
}

/// Decides about the lease as last seen. It says at least `transitions` of how often it changed hands.
pub(super) fn step(
    config: &LeaderConfig,
    observed: Option<&Observed>,
    transitions: i32,
    now: Instant,
    clock: Timestamp,
) -> Step {
    let Some(observed) = observed else {
        let metadata = ObjectMeta {
            name: Some(config.name.clone()),
            namespace: Some(config.namespace.clone()),
            ..ObjectMeta::default()
        };
        return Step::Create(Lease {
            metadata,
            spec: Some(held(config, clock, MicroTime(clock), transitions)),
        });
    };
    if observed.held_by(&config.identity) {
        return Step::Update(renewed(config, observed, transitions, clock));
    }
    let free = observed.holder().is_empty() && !lasts(config, observed, now);
    if !free && observed.changed + config.lease_duration > now {
        return Step::Wait {
            holder: observed.holder().to_owned(),
        };
    }
    let next = observed.spec().lease_transitions.unwrap_or(0).saturating_add(1);
    Step::Update(with_spec(
        observed,
        held(config, clock, MicroTime(clock), next.max(transitions)),
    ))
}

/// The lease with a fresh sign of life.
pub(super) fn renewed(
    config: &LeaderConfig,
    observed: &Observed,
    transitions: i32,
    clock: Timestamp,
) -> Lease {
    let spec = observed.spec();
    let acquired = spec.acquire_time.unwrap_or(MicroTime(clock));
    let transitions = spec.lease_transitions.unwrap_or(0).max(transitions);
    with_spec(observed, held(config, clock, acquired, transitions))
}

/// The lease without a holder, free for the taking.
pub(super) fn released(observed: &Observed, clock: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(clock)),
        renew_time: Some(MicroTime(clock)),
        lease_transitions: observed.spec().lease_transitions,
        ..LeaseSpec::default()
    };
    with_spec(observed, spec)
}

fn held(config: &LeaderConfig, clock: Timestamp, acquired: MicroTime, transitions: i32) -> LeaseSpec {
    let seconds = i32::try_from(config.lease_duration.as_secs()).unwrap_or(i32::MAX);
    LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(acquired),
        renew_time: Some(MicroTime(clock)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// The observed object, its version included, so that a concurrent writer is noticed.
fn with_spec(observed: &Observed, spec: LeaseSpec) -> Lease {
    Lease {
        metadata: observed.lease.metadata.clone(),
        spec: Some(spec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config(identity: &str) -> LeaderConfig {
        LeaderConfig {
            identity: identity.into(),
            ..LeaderConfig::new("kube-system", "4c28796a.cloud.sap")
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease_of(identity: &str, clock: Timestamp) -> Lease {
        match step(&config(identity), None, 0, Instant::now(), clock) {
            Step::Create(lease) => lease,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_candidate_creates_the_lease() {
        let spec = lease_of("a", at(100)).spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!(spec.lease_duration_seconds, Some(15));
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(
            (spec.acquire_time, spec.renew_time),
            (Some(MicroTime(at(100))), Some(MicroTime(at(100))))
        );
    }

    #[test]
    fn a_follower_waits_from_the_last_change_it_saw_itself() {
        let start = Instant::now();
        let mut seen = Observed::new(lease_of("a", at(0)), start);
        let follower = config("b");
        let look = |seen: &Observed, seconds| {
            step(
                &follower,
                Some(seen),
                0,
                start + Duration::from_secs(seconds),
                at(999),
            )
        };
        assert_eq!(look(&seen, 14), Step::Wait { holder: "a".into() });
        // The leader renews: the wait begins anew, whatever its clock says.
        let renewed = renewed(&config("a"), &seen, 0, at(-500));
        seen = Observed::refresh(Some(seen), renewed.clone(), start + Duration::from_secs(10));
        assert_eq!(look(&seen, 24), Step::Wait { holder: "a".into() });
        // Reading the same again is no sign of life.
        seen = Observed::refresh(Some(seen), renewed, start + Duration::from_secs(20));
        let Step::Update(taken) = look(&seen, 25) else {
            panic!("the lease is over")
        };
        let spec = taken.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("b"));
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.acquire_time, Some(MicroTime(at(999))));
    }

    #[test]
    fn renewing_keeps_when_and_how_often_it_was_taken() {
        let seen = Observed::new(lease_of("a", at(100)), Instant::now());
        let spec = renewed(&config("a"), &seen, 0, at(102)).spec.unwrap();
        assert_eq!(spec.acquire_time, Some(MicroTime(at(100))));
        assert_eq!(spec.renew_time, Some(MicroTime(at(102))));
        assert_eq!(spec.lease_transitions, Some(0));
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_counted() {
        let now = Instant::now();
        let seen = Observed::new(lease_of("a", at(100)), now);
        let free = released(&seen, at(105));
        assert_eq!(free.spec.as_ref().unwrap().lease_duration_seconds, Some(1));
        let Step::Update(taken) = step(&config("b"), Some(&Observed::new(free, now)), 0, now, at(106)) else {
            panic!("free for the taking")
        };
        assert_eq!(taken.spec.unwrap().lease_transitions, Some(1));
    }

    #[test]
    fn a_patient_candidate_waits_a_whole_lease_for_what_a_released_one_began() {
        let start = Instant::now();
        let free = released(&Observed::new(lease_of("a", at(100)), start), at(105));
        let seen = Observed::new(free, start);
        let patient = LeaderConfig {
            patient: true,
            ..config("b")
        };
        let look = |after| {
            step(
                &patient,
                Some(&seen),
                0,
                start + Duration::from_secs(after),
                at(106),
            )
        };
        assert_eq!(
            look(14),
            Step::Wait {
                holder: String::new()
            }
        );
        let Step::Update(taken) = look(15) else {
            panic!("the lease is over")
        };
        assert_eq!(taken.spec.unwrap().lease_transitions, Some(1));
        assert!(
            lasts(&patient, &seen, start + Duration::from_secs(14)),
            "nor when it is gone"
        );
        assert!(!lasts(&patient, &seen, start + Duration::from_secs(15)));
        assert!(!lasts(&config("b"), &seen, start), "others take it at once");
    }

    #[test]
    fn the_count_of_changes_of_hands_is_raised_and_never_lowered() {
        let now = Instant::now();
        let seen = Observed::new(lease_of("a", at(100)), now);
        let count = |lease: Lease| lease.spec.unwrap().lease_transitions;
        assert_eq!(count(renewed(&config("a"), &seen, 7, at(102))), Some(7));
        let Step::Create(anew) = step(&config("a"), None, 7, now, at(103)) else {
            panic!("there is none")
        };
        let seen = Observed::new(anew, now);
        assert_eq!(count(renewed(&config("a"), &seen, 3, at(104))), Some(7));
        let later = now + Duration::from_secs(20);
        let Step::Update(taken) = step(&config("b"), Some(&seen), 3, later, at(124)) else {
            panic!("the lease is over")
        };
        assert_eq!(count(taken), Some(8));
    }
}
