// SPDX-License-Identifier: Apache-2.0
//! Sources that are fetched: exporters scraped one by one, a Prometheus asked once for the whole
//! fleet, addresses that must answer. What is found becomes samples, verdicts of rules, and, where
//! we ourselves reached for a host, a probe. A fetch that fails says nothing about the host but that
//! it was not reached.

mod fetch;
mod history;
mod prometheus;
mod targets;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Degraded, Input, Mono, Observation, Onlooker, ProbeResult, Prober};
use futures::StreamExt as _;
use rusqlite::params;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use fetch::{Failure, Fetcher};
use history::{History, local_values};
use targets::Target;

use super::exposition::{Sample, Scrape};
use super::expr::{Expr, Labels, Term};
use crate::clock::Clock;
use crate::config::{Pull, PullKind, Rule, RuleMonitor, RuleVerdict};
use crate::error::Error;
use crate::http::App;
use crate::leadership::pause;
use crate::metrics::OfSource;
use crate::signals::{Said, record};

/// Series of one host that rules may ask for.
const MOST_SERIES: usize = 4096;

struct Compiled {
    rule: Rule,
    expr: Expr,
    /// It asks for nothing but whether the fetch went well.
    about_up: bool,
}

/// How much of what was fetched there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fetched {
    /// All of it.
    Whole,
    /// Nothing but that it failed. What a rule does not find then is not missing.
    Failed,
}

/// How a target is looked at.
#[derive(Clone)]
struct Look {
    kind: PullKind,
    clock: Clock,
    fetcher: Arc<Fetcher>,
    wanted: Arc<HashSet<String>>,
}

impl Look {
    async fn at(self, target: Target) -> Looked {
        let asked_at = self.clock.mono();
        let found = if self.kind == PullKind::Exposition {
            let wanted = |metric: &str| self.wanted.contains(metric);
            self.fetcher.scrape(&target.url, wanted).await
        } else {
            let answered = self.fetcher.knock(&target.url).await;
            answered.map(|()| Scrape::default())
        };
        Looked {
            target,
            asked_at,
            found,
        }
    }
}

/// What came of one target.
struct Looked {
    target: Target,
    asked_at: Mono,
    found: Result<Scrape, Failure>,
}

/// Fetches one source.
pub struct Puller {
    pull: Pull,
    app: Arc<App>,
    fetcher: Arc<Fetcher>,
    rules: Vec<Compiled>,
    /// The metrics that rules ask for.
    wanted: Arc<HashSet<String>>,
    history: History,
    /// Since when each rule has held for each host.
    holding: HashMap<(String, HostName), Instant>,
    /// How long the last fetch took, of all targets.
    took: Duration,
}

impl Puller {
    /// Prepares a source; its rules were checked with the configuration.
    pub fn new(pull: Pull, app: Arc<App>) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for rule in &pull.rules {
            let expr = Expr::parse(&rule.expr).map_err(|error| {
                Error::Setup(format!("rule {} of source {}: {error}", rule.name, pull.name))
            })?;
            let about_up = expr.terms().iter().all(|term| term.selector().metric == "up");
            rules.push(Compiled {
                rule: rule.clone(),
                expr,
                about_up,
            });
        }
        let wanted = rules
            .iter()
            .flat_map(|compiled| compiled.expr.terms())
            .map(|term| term.selector().metric.clone())
            .chain(["up".to_owned()])
            .collect();
        Ok(Self {
            fetcher: Arc::new(Fetcher::new(&pull)?),
            pull,
            app,
            rules,
            wanted: Arc::new(wanted),
            history: History::default(),
            holding: HashMap::new(),
            took: Duration::ZERO,
        })
    }

    /// Fetches until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let begun = Instant::now();
            let good = match self.pull.kind {
                PullKind::Prometheus => self.ask_prometheus().await,
                PullKind::Exposition | PullKind::HttpStatus => self.scrape_all().await,
            };
            let label = OfSource {
                source: self.pull.name.clone(),
            };
            self.app
                .metrics
                .pull_up
                .get_or_create(&label)
                .set(i64::from(good));
            self.took = begun.elapsed();
            if pause(&stop, self.pull.interval.0.saturating_sub(self.took)).await {
                return;
            }
        }
    }

    /// Fetches from all targets, and judges each as soon as it has answered: what they say is never held together.
    async fn scrape_all(&mut self) -> bool {
        self.history.forget(Instant::now());
        let look = Look {
            kind: self.pull.kind,
            clock: self.app.clock,
            fetcher: Arc::clone(&self.fetcher),
            wanted: Arc::clone(&self.wanted),
        };
        let mut looks = futures::stream::iter(self.targets())
            .map(|target| look.clone().at(target))
            .buffer_unordered(self.pull.concurrency);
        let mut good = true;
        while let Some(looked) = looks.next().await {
            good &= looked.found.is_ok();
            self.take_look(looked);
        }
        good
    }

    /// Takes what came of one target.
    fn take_look(&mut self, looked: Looked) {
        let Looked {
            target,
            asked_at,
            found,
        } = looked;
        match &found {
            Err(Failure::Unable(why)) => {
                tracing::warn!(
                    source = self.pull.name,
                    url = target.url,
                    why,
                    "nothing could be asked"
                );
            }
            Err(Failure::Unreadable(error)) => {
                tracing::warn!(source = self.pull.name, url = target.url, %error, "a scrape is not readable and says nothing");
            }
            _ => {}
        }
        let Some(host) = target.host else { return };
        let result = match &found {
            // A certificate that we miss is no silence of theirs.
            Err(Failure::Unable(_)) => return,
            Ok(_) | Err(Failure::Answered(_) | Failure::Unreadable(_)) => ProbeResult::App,
            Err(Failure::Refused) => ProbeResult::Kernel,
            Err(Failure::Silent(_)) => ProbeResult::Timeout,
        };
        let me = self.app.investigator.me;
        // Our own scrapes share our network path: they are probes, and count as such.
        self.app.brain.offer(Input::Saw(Observation::Probe {
            host: host.clone(),
            by: Prober::Replica(me),
            asked_at,
            result,
        }));
        let fetched = if found.is_ok() {
            Fetched::Whole
        } else {
            Fetched::Failed
        };
        let scrape = found.unwrap_or_default();
        self.count_doubled(scrape.doubled);
        let mut samples = vec![self.up(&host, fetched)];
        samples.extend(scrape.samples);
        self.take(&host, &samples, fetched);
    }

    /// Whether the fetch from a host went well, as a series of its own.
    fn up(&self, host: &HostName, fetched: Fetched) -> Sample {
        Sample {
            metric: "up".into(),
            labels: Labels::from([
                ("source".into(), self.pull.name.clone()),
                ("host".into(), host.to_string()),
            ]),
            value: f64::from(u8::from(fetched == Fetched::Whole)),
        }
    }

    fn count_doubled(&self, doubled: usize) {
        let label = OfSource {
            source: self.pull.name.clone(),
        };
        let counter = self.app.metrics.pull_doubled.get_or_create(&label);
        counter.inc_by(u64::try_from(doubled).unwrap_or(u64::MAX));
    }

    /// Takes the samples of one host: keeps them for rules that look back, then judges.
    fn take(&mut self, host: &HostName, samples: &[Sample], fetched: Fetched) {
        let now = Instant::now();
        self.history.keep(host, samples, now);
        self.write_down(host, samples);
        self.judge_all(host, now, fetched, |history, term| {
            local_values(history, host, samples, term, now)
        });
    }

    fn write_down(&self, host: &HostName, samples: &[Sample]) {
        let rows: Vec<(String, f64)> = samples
            .iter()
            .map(|sample| (format!("{}{:?}", sample.metric, sample.labels), sample.value))
            .collect();
        let (source, host, at) = (
            self.pull.name.clone(),
            host.to_string(),
            jiff::Timestamp::now().as_millisecond(),
        );
        self.app.store.write_later(move |transaction| {
            let mut insert =
                transaction.prepare_cached("insert or replace into samples values(?1, ?2, ?3, ?4, ?5)")?;
            for (series, value) in rows {
                insert.execute(params![source, format!("{host}/{series}"), at, host, value])?;
            }
            Ok(())
        });
    }

    /// Judges a host by every rule that what was fetched allows; the others fall silent, and what
    /// they said before grows old.
    fn judge_all(
        &mut self,
        host: &HostName,
        now: Instant,
        fetched: Fetched,
        values: impl Fn(&History, &Term) -> Vec<f64>,
    ) {
        let mut said = Vec::new();
        for compiled in &self.rules {
            let key = (compiled.rule.name.clone(), host.clone());
            if fetched == Fetched::Failed && !compiled.about_up {
                self.holding.remove(&key);
                continue;
            }
            let holds = compiled.expr.holds(|term| values(&self.history, term));
            if !holds {
                self.holding.remove(&key);
                said.push((compiled.rule.clone(), false));
                continue;
            }
            let since = *self.holding.entry(key).or_insert(now);
            if now.duration_since(since) >= compiled.rule.hold.0 {
                said.push((compiled.rule.clone(), true));
            }
        }
        let mut opinions = Opinions::default();
        for (rule, holds) in said {
            if let Some(up) = self.say(host, &rule, holds) {
                opinions.add(&rule.group, up);
            }
        }
        self.tell(host, &opinions);
    }

    /// Writes down what one rule says. Whether the host is up by it, if it says so.
    fn say(&self, host: &HostName, rule: &Rule, holds: bool) -> Option<bool> {
        let up = match (rule.verdict, holds) {
            (RuleVerdict::Dead, holds) => Some(!holds),
            (RuleVerdict::Alive, true) => Some(true),
            // That a sign of life is missing is no sign of death.
            (RuleVerdict::Alive, false) | (RuleVerdict::Degraded, _) => None,
        };
        let verdict = match (rule.verdict, holds) {
            (RuleVerdict::Degraded, true) => "degraded",
            (RuleVerdict::Degraded, false) => "info",
            _ => match up {
                Some(true) => "alive",
                Some(false) => "dead",
                None => "unknown",
            },
        };
        let said = Said {
            name: rule.name.clone(),
            verdict: verdict.to_owned(),
            at: jiff::Timestamp::now(),
            detail: rule.expr.clone(),
        };
        record(&self.app.store, host, &rule.group, said);
        if let Some(monitor) = rule.monitor {
            let what = match monitor {
                RuleMonitor::MemoryFailure => Degraded::MemoryFailure,
                RuleMonitor::LibvirtUnreachable => Degraded::LibvirtUnreachable,
            };
            let host = host.clone();
            let seen = Observation::Trouble { host, what, holds };
            self.app.brain.offer(Input::Saw(seen));
        }
        up
    }

    /// Tells the engine what the rules of each group say together. Probes were told already, by how
    /// the fetch went.
    fn tell(&self, host: &HostName, opinions: &Opinions) {
        for (by, said) in [
            (Onlooker::Monitoring, opinions.metrics),
            (Onlooker::Storage, opinions.storage),
        ] {
            let Some(up) = said else { continue };
            self.app.brain.offer(Input::Saw(Observation::Judged {
                host: host.clone(),
                by,
                source: format!("pull/{}", self.pull.name),
                up,
                good_for: self.pull.good_for(self.took),
            }));
        }
    }
}

/// What the rules of each group say together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Opinions {
    metrics: Option<bool>,
    storage: Option<bool>,
}

impl Opinions {
    fn add(&mut self, group: &str, up: bool) {
        match group {
            // One rule that accuses is not outvoted by another that does not.
            "M" => self.metrics = Some(up && self.metrics.unwrap_or(true)),
            // Storage only speaks for a host: one sign of life is enough.
            "S" => self.storage = Some(up || self.storage.unwrap_or(false)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_group_speak_together() {
        let together = |said: &[(&str, bool)]| {
            let mut opinions = Opinions::default();
            for (group, up) in said {
                opinions.add(group, *up);
            }
            (opinions.metrics, opinions.storage)
        };
        assert_eq!(together(&[]), (None, None));
        assert_eq!(together(&[("P", false)]), (None, None));
        for accusers in [[("M", false), ("M", true)], [("M", true), ("M", false)]] {
            assert_eq!(together(&accusers), (Some(false), None), "one accuser is heard");
        }
        for witnesses in [[("S", false), ("S", true)], [("S", true), ("S", false)]] {
            assert_eq!(together(&witnesses), (None, Some(true)), "one witness is enough");
        }
    }
}
