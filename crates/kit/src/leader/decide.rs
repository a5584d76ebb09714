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

/// Decides about the lease as last seen.
pub(super) fn step(
    config: &LeaderConfig,
    observed: Option<&Observed>,
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
            spec: Some(held(config, clock, MicroTime(clock), 0)),
        });
    };
    if observed.held_by(&config.identity) {
        return Step::Update(renewed(config, observed, clock));
    }
    let free = observed.holder().is_empty();
    if !free && observed.changed + config.lease_duration > now {
        return Step::Wait {
            holder: observed.holder().to_owned(),
        };
    }
    let transitions = observed.spec().lease_transitions.unwrap_or(0).saturating_add(1);
    Step::Update(with_spec(
        observed,
        held(config, clock, MicroTime(clock), transitions),
    ))
}

/// The lease with a fresh sign of life.
pub(super) fn renewed(config: &LeaderConfig, observed: &Observed, clock: Timestamp) -> Lease {
    let spec = observed.spec();
    let acquired = spec.acquire_time.unwrap_or(MicroTime(clock));
    with_spec(
        observed,
        held(config, clock, acquired, spec.lease_transitions.unwrap_or(0)),
    )
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
        match step(&config(identity), None, Instant::now(), clock) {
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
                start + Duration::from_secs(seconds),
                at(999),
            )
        };
        assert_eq!(look(&seen, 14), Step::Wait { holder: "a".into() });
        // The leader renews: the wait begins anew, whatever its clock says.
        let renewed = renewed(&config("a"), &seen, at(-500));
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
        let spec = renewed(&config("a"), &seen, at(102)).spec.unwrap();
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
        let Step::Update(taken) = step(&config("b"), Some(&Observed::new(free, now)), now, at(106)) else {
            panic!("free for the taking")
        };
        assert_eq!(taken.spec.unwrap().lease_transitions, Some(1));
    }
}
