// SPDX-License-Identifier: Apache-2.0
//! Liveness and readiness as named checks. A check starts out failing, because "nobody has
//! said anything yet" is not "all is well"; a loop that should make progress proves it by
//! beating a heart. The text format is the one people know from the API server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Which question a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// May the process go on living? A failure asks for a restart.
    Live,
    /// May the process be given work?
    Ready,
    /// Something worth knowing that stops nobody, such as an unreachable neighbour.
    Advisory,
}

#[derive(Clone, Debug)]
enum State {
    Ok,
    Failed(String),
    Beating { last: Instant, limit: Duration },
    Resting,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    state: State,
}

/// All checks of a process.
#[derive(Clone, Debug, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Entry>>>,
}

/// The handle of one check.
#[derive(Clone, Debug)]
pub struct Check {
    health: Health,
    name: String,
}

/// The handle of a loop that must make progress.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    health: Health,
    name: String,
    limit: Duration,
}

/// The answer to "is it alive" or "is it ready".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether no relevant check fails.
    pub ok: bool,
    /// The checks in order of name.
    pub checks: Vec<CheckReport>,
}

/// The state of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// The name.
    pub name: String,
    /// Which question it answers.
    pub kind: Kind,
    /// Why it fails, if it does.
    pub failure: Option<String>,
}

impl Health {
    /// No checks yet: alive and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that fails until its handle says otherwise. A check of the same name is
    /// replaced.
    ///
    /// ```
    /// use cobaltcore_kit::health::{Health, Kind};
    /// let health = Health::new();
    /// let cache = health.check("cache", Kind::Ready);
    /// assert!(!health.ready().ok);
    /// cache.ok();
    /// assert!(health.ready().ok);
    /// ```
    pub fn check(&self, name: &str, kind: Kind) -> Check {
        self.set(name, Some(kind), State::Failed("not yet reported".into()));
        Check {
            health: self.clone(),
            name: name.to_owned(),
        }
    }

    /// Adds a liveness check that fails when the loop has not beaten for `limit`.
    pub fn heartbeat(&self, name: &str, limit: Duration) -> Heartbeat {
        self.set(
            name,
            Some(Kind::Live),
            State::Beating {
                last: Instant::now(),
                limit,
            },
        );
        Heartbeat {
            health: self.clone(),
            name: name.to_owned(),
            limit,
        }
    }

    /// Whether the process may go on living.
    pub fn live(&self) -> Report {
        self.report(|kind| kind == Kind::Live)
    }

    /// Whether the process may be given work. Advisory checks are listed but do not count.
    pub fn ready(&self) -> Report {
        self.report(|kind| kind != Kind::Live)
    }

    fn set(&self, name: &str, kind: Option<Kind>, state: State) {
        let mut checks = self.checks.lock();
        match (checks.get_mut(name), kind) {
            (Some(entry), None) => entry.state = state,
            (Some(entry), Some(kind)) => *entry = Entry { kind, state },
            (None, kind) => {
                checks.insert(
                    name.to_owned(),
                    Entry {
                        kind: kind.unwrap_or(Kind::Ready),
                        state,
                    },
                );
            }
        }
    }

    fn report(&self, relevant: impl Fn(Kind) -> bool) -> Report {
        let now = Instant::now();
        let checks: Vec<CheckReport> = self
            .checks
            .lock()
            .iter()
            .filter(|(_, entry)| relevant(entry.kind))
            .map(|(name, entry)| CheckReport {
                name: name.clone(),
                kind: entry.kind,
                failure: entry.state.failure(now),
            })
            .collect();
        Report {
            ok: checks.iter().all(CheckReport::passes),
            checks,
        }
    }
}

impl State {
    fn failure(&self, now: Instant) -> Option<String> {
        match self {
            Self::Ok | Self::Resting => None,
            Self::Failed(reason) => Some(reason.clone()),
            Self::Beating { last, limit } => {
                let silent = now.saturating_duration_since(*last);
                (silent > *limit).then(|| format!("no progress for {} s", silent.as_secs()))
            }
        }
    }
}

impl Check {
    /// All is well.
    pub fn ok(&self) {
        self.health.set(&self.name, None, State::Ok);
    }

    /// Something is wrong. The reason is shown to whoever may reach the health port, so it
    /// must not hold secrets.
    pub fn failed(&self, reason: impl Into<String>) {
        self.health.set(&self.name, None, State::Failed(reason.into()));
    }
}

impl Heartbeat {
    /// The loop made progress.
    pub fn beat(&self) {
        self.health.set(
            &self.name,
            None,
            State::Beating {
                last: Instant::now(),
                limit: self.limit,
            },
        );
    }

    /// The loop has nothing to do, so silence is no failure until the next beat.
    pub fn rest(&self) {
        self.health.set(&self.name, None, State::Resting);
    }
}

impl CheckReport {
    fn passes(&self) -> bool {
        self.failure.is_none() || self.kind == Kind::Advisory
    }
}

impl Report {
    /// The text that an endpoint answers with.
    pub fn render(&self, endpoint: &str, verbose: bool) -> String {
        if self.ok && !verbose {
            return "ok".into();
        }
        let mut text = String::from("[+]ping ok\n");
        for check in &self.checks {
            let _ = match (&check.failure, check.kind) {
                (None, _) => writeln!(text, "[+]{} ok", check.name),
                (Some(reason), Kind::Advisory) => writeln!(text, "[~]{} degraded: {reason}", check.name),
                (Some(reason), _) => writeln!(text, "[-]{} failed: {reason}", check.name),
            };
        }
        let verdict = if self.ok { "passed" } else { "failed" };
        let _ = writeln!(text, "{endpoint} check {verdict}");
        text
    }

    /// The report reduced to one check, if there is one of that name.
    pub fn only(&self, name: &str) -> Option<Self> {
        let check = self.checks.iter().find(|check| check.name == name)?;
        Some(Self {
            ok: check.passes(),
            checks: vec![check.clone()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_progress_fails_liveness_but_a_resting_one_does_not() {
        let health = Health::new();
        let heart = health.heartbeat("reader", Duration::from_mins(1));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(health.live().ok);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(
            health.live().checks[0].failure.as_deref(),
            Some("no progress for 65 s")
        );
        assert!(health.ready().ok, "liveness is not readiness");
        heart.beat();
        assert!(health.live().ok);
        heart.rest();
        tokio::time::advance(Duration::from_mins(10)).await;
        assert!(health.live().ok);
    }

    #[test]
    fn an_advisory_check_is_shown_but_stops_nobody() {
        let health = Health::new();
        health.check("cache", Kind::Ready).ok();
        health
            .check("openstack", Kind::Advisory)
            .failed("connection refused");
        let report = health.ready();
        assert!(report.ok);
        assert_eq!(report.render("readyz", false), "ok");
        assert_eq!(
            report.render("readyz", true),
            "[+]ping ok\n[+]cache ok\n[~]openstack degraded: connection refused\nreadyz check passed\n"
        );
    }

    #[test]
    fn a_failing_check_is_named_without_being_asked() {
        let health = Health::new();
        let cache = health.check("cache", Kind::Ready);
        assert_eq!(
            health.ready().render("readyz", false),
            "[+]ping ok\n[-]cache failed: not yet reported\nreadyz check failed\n"
        );
        cache.ok();
        assert!(health.ready().only("cache").unwrap().ok);
        assert_eq!(health.ready().only("none"), None);
    }
}
