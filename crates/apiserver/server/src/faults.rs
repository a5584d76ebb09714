// SPDX-License-Identifier: Apache-2.0
//! Faults on demand: what a real API server does to its clients on a bad day, for tests. Nothing is
//! random that is not seeded, and a fault that was used up is gone.

use std::time::Duration;

use cobaltcore_access::identity::User;
use parking_lot::Mutex;

use crate::reqinfo::RequestInfo;
use crate::status::{ApiError, ApiResult};

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Effect {
    /// It is answered with this code and reason.
    Refuse {
        /// Status code.
        code: u16,
        /// Reason.
        reason: &'static str,
        /// `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// It waits before it is handled.
    Delay(Duration),
    /// A watch ends after this many events.
    CutWatch(usize),
    /// A watch is told that its revision is too old.
    ExpireWatch,
}

/// A fault: which requests, how often, what happens.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Only requests of this user.
    pub user: Option<String>,
    /// Only this verb.
    pub verb: Option<&'static str>,
    /// Only this resource (plural).
    pub resource: Option<String>,
    /// Only this object.
    pub name: Option<String>,
    /// How many requests are struck; `None` for all.
    pub times: Option<u64>,
    /// Strikes this share of matching requests, decided from the seed.
    pub probability: f64,
    /// Decides which requests are struck when not all are.
    pub seed: u64,
    /// What happens.
    pub effect: Effect,
}

impl Fault {
    /// A fault that strikes every request.
    pub fn new(effect: Effect) -> Self {
        Self {
            user: None,
            verb: None,
            resource: None,
            name: None,
            times: None,
            probability: 1.0,
            seed: 1,
            effect,
        }
    }

    /// Only this verb.
    pub fn verb(mut self, verb: &'static str) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only this resource.
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Only this user.
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Only this object.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// At most this many requests.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// A share of the requests, the same ones for the same seed.
    pub fn sometimes(mut self, probability: f64, seed: u64) -> Self {
        self.probability = probability;
        self.seed = seed;
        self
    }

    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.user.as_ref().is_none_or(|u| *u == user.name)
            && self.verb.is_none_or(|v| v == info.verb)
            && self.resource.as_ref().is_none_or(|r| *r == info.resource)
            && self.name.as_ref().is_none_or(|n| *n == info.name)
    }

    /// Decides about one matching request and counts it.
    fn fires(&mut self) -> bool {
        // xorshift: reproducible, and good enough to pick requests.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let drawn = (self.seed >> 11) as f64 / (1u64 << 53) as f64;
        if drawn >= self.probability || self.times == Some(0) {
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}

/// The faults in force.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().push(fault);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    fn drawn(&self, user: &User, info: &RequestInfo, watch: bool) -> Vec<Effect> {
        let mut faults = self.0.lock();
        if faults.is_empty() {
            return Vec::new();
        }
        let drawn = faults
            .iter_mut()
            .filter(|f| matches!(f.effect, Effect::CutWatch(_) | Effect::ExpireWatch) == watch)
            .filter(|f| f.matches(user, info))
            .filter_map(|f| f.fires().then(|| f.effect.clone()))
            .collect();
        faults.retain(|f| f.times != Some(0));
        drawn
    }

    /// Applies the faults that match a request.
    pub(crate) async fn strike(&self, user: &User, info: &RequestInfo) -> ApiResult<()> {
        for effect in self.drawn(user, info, false) {
            match effect {
                Effect::Delay(time) => tokio::time::sleep(time).await,
                Effect::Refuse {
                    code,
                    reason,
                    retry_after,
                } => {
                    let error = ApiError::new(code, reason, "an injected fault refused this request");
                    return Err(match retry_after {
                        Some(seconds) => error.retry_after(seconds),
                        None => error,
                    });
                }
                Effect::CutWatch(_) | Effect::ExpireWatch => {}
            }
        }
        Ok(())
    }

    /// What happens to a watch: the events it may see, and whether it is told it is too old.
    pub(crate) fn strike_watch(&self, user: &User, info: &RequestInfo) -> (Option<usize>, bool) {
        let mut outcome = (None, false);
        for effect in self.drawn(user, info, true) {
            match effect {
                Effect::CutWatch(events) => outcome.0 = Some(events),
                Effect::ExpireWatch => outcome.1 = true,
                Effect::Refuse { .. } | Effect::Delay(_) => {}
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(resource: &str) -> RequestInfo {
        RequestInfo {
            verb: "get",
            resource: resource.into(),
            ..RequestInfo::default()
        }
    }

    #[tokio::test]
    async fn faults_strike_what_they_name_and_run_out() {
        let faults = Faults::default();
        let refuse = Effect::Refuse {
            code: 503,
            reason: "ServiceUnavailable",
            retry_after: None,
        };
        faults.inject(Fault::new(refuse).resource("pods").times(2));
        let user = User::anonymous();
        assert!(faults.strike(&user, &info("nodes")).await.is_ok());
        assert!(faults.strike(&user, &info("pods")).await.is_err());
        assert!(faults.strike(&user, &info("pods")).await.is_err());
        assert!(faults.strike(&user, &info("pods")).await.is_ok());
    }

    #[test]
    fn a_seed_always_picks_the_same_requests() {
        let pick = || {
            let mut fault = Fault::new(Effect::ExpireWatch).sometimes(0.3, 42);
            (0..100).map(|_| fault.fires()).collect::<Vec<_>>()
        };
        let first = pick();
        assert_eq!(first, pick());
        let struck = first.iter().filter(|f| **f).count();
        assert!((15..45).contains(&struck), "{struck}");
    }
}
