// SPDX-License-Identifier: Apache-2.0
//! Every call the simulated cloud received: counts by route for benches, and the latest calls with their answers for
//! tests and people. Memory is bounded: counts stay, old calls go.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use super::http::Service;
use crate::world::Moment;

/// The latest calls that are kept.
const KEPT: usize = 20_000;

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// When, in world time.
    pub at: Moment,
    /// To whom.
    pub service: Service,
    /// Method.
    pub method: String,
    /// Path without the service and version parts.
    pub path: String,
    /// Path with `{id}` for every identifier.
    pub route: String,
    /// Query as it was sent.
    pub query: String,
    /// Body, if it was text of a reasonable size; what looks like a credential is left out.
    pub body: String,
    /// Who asked, as they call themselves.
    pub user_agent: String,
    /// Microversion asked for.
    pub microversion: String,
    /// Answer.
    pub status: u16,
}

#[derive(Debug, Default)]
struct Log {
    latest: VecDeque<Call>,
    counts: BTreeMap<(Service, String, String), u64>,
    total: u64,
}

/// The log.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Log>);

impl Calls {
    pub(crate) fn note(&self, call: Call) {
        let mut log = self.0.lock();
        log.total += 1;
        *log.counts
            .entry((call.service, call.method.clone(), call.route.clone()))
            .or_default() += 1;
        if log.latest.len() >= KEPT {
            log.latest.pop_front();
        }
        log.latest.push_back(call);
    }

    /// All calls since the start or the last [`Self::reset`].
    pub fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// Calls of one kind: service, method, route such as `/servers/{id}`.
    pub fn count(&self, service: Service, method: &str, route: &str) -> u64 {
        let key = (service, method.to_owned(), route.to_owned());
        self.0.lock().counts.get(&key).copied().unwrap_or(0)
    }

    /// Counts by service, method and route.
    pub fn counts(&self) -> BTreeMap<(Service, String, String), u64> {
        self.0.lock().counts.clone()
    }

    /// Calls to one service, token requests of Keystone included.
    pub fn of(&self, service: Service) -> u64 {
        let log = self.0.lock();
        log.counts
            .iter()
            .filter(|((of, _, _), _)| *of == service)
            .map(|(_, count)| count)
            .sum()
    }

    /// Calls that could have changed something, Keystone's tokens left out.
    pub fn writes(&self) -> Vec<Call> {
        self.latest(|call| call.method != "GET" && call.method != "HEAD" && call.service != Service::Identity)
    }

    /// The latest calls that match, oldest first.
    pub fn latest(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
        self.0
            .lock()
            .latest
            .iter()
            .filter(|call| wanted(call))
            .cloned()
            .collect()
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        *self.0.lock() = Log::default();
    }
}

/// `{id}` for everything that looks like an identifier.
pub(crate) fn route(path: &[String]) -> String {
    let mut route = String::new();
    for part in path {
        route.push('/');
        let is_id = super::http::uuid(part).is_some() || part.bytes().all(|byte| byte.is_ascii_digit());
        route.push_str(if is_id { "{id}" } else { part });
    }
    if route.is_empty() { "/".to_owned() } else { route }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_do_not_make_routes() {
        let path = [
            "servers",
            "381239f5-1d45-411a-a5dd-dd20c4e081f4",
            "migrations",
            "12",
        ]
        .map(str::to_owned);
        assert_eq!(route(&path), "/servers/{id}/migrations/{id}");
        assert_eq!(route(&[]), "/");
        assert_eq!(
            route(&["servers".to_owned(), "detail".to_owned()]),
            "/servers/detail"
        );
    }
}
