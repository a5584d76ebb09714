// SPDX-License-Identifier: Apache-2.0
//! Sources that are fetched: exporters scraped one by one, a Prometheus asked once for the whole
//! fleet, addresses that must answer. What is found becomes samples, verdicts of rules, and, where
//! we ourselves reached for a host, a probe. A fetch that fails says nothing about the host but that
//! it was not reached.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Degraded, Input, Observation, ProbeResult, Prober};
use cobaltcore_kit::tls::TokenFile;
use futures::StreamExt as _;
use rusqlite::params;
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::exposition::{self, MOST_BYTES, Sample};
use super::expr::{Expr, Labels, Term};
use crate::config::{Pull, PullKind, Rule, RuleMonitor, RuleVerdict, TargetsFrom};
use crate::error::Error;
use crate::http::App;
use crate::leadership::pause;
use crate::metrics::OfSource;
use crate::peers::{client, read_at_most};
use crate::signals::{Said, record};

/// Values kept of each series for `increase` and `rate`.
const MOST_POINTS: usize = 512;
/// Series kept for that, per host.
const MOST_SERIES: usize = 4096;
const LONGEST_HISTORY: Duration = Duration::from_secs(6 * 3600);

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    url: String,
    host: Option<HostName>,
}

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

type SeriesKey = (HostName, String, Labels);
type History = HashMap<SeriesKey, VecDeque<(Instant, f64)>>;

/// Fetches one source.
pub struct Puller {
    pull: Pull,
    app: Arc<App>,
    client: reqwest::Client,
    token: Option<TokenFile>,
    rules: Vec<Compiled>,
    wanted: HashSet<String>,
    history: History,
    /// Since when each rule has held for each host.
    holding: HashMap<(String, HostName), Instant>,
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
            .collect();
        let token = Some(pull.token_file.as_str())
            .filter(|path| !path.is_empty())
            .map(TokenFile::new);
        Ok(Self {
            client: client(&pull.ca_file, pull.timeout.0)?,
            pull,
            app,
            token,
            rules,
            wanted,
            history: HashMap::new(),
            holding: HashMap::new(),
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
            if pause(&stop, self.pull.interval.0.saturating_sub(begun.elapsed())).await {
                return;
            }
        }
    }

    fn targets(&self) -> Vec<Target> {
        if self.pull.from == TargetsFrom::Hypervisors {
            return self
                .app
                .directory
                .all()
                .iter()
                .filter_map(|(host, entry)| {
                    let url = fill(&self.pull.url, |name| match name {
                        "host" => Some(host.to_string()),
                        "internal_ip" => entry.internal_ip.clone(),
                        "zone" => entry.zone().map(str::to_owned),
                        "bb" => entry.building_block().map(str::to_owned),
                        _ => None,
                    })?;
                    Some(Target {
                        url,
                        host: Some(host.clone()),
                    })
                })
                .collect();
        }
        self.pull
            .targets
            .iter()
            .map(|url| Target {
                host: self.host_of_url(url),
                url: url.clone(),
            })
            .collect()
    }

    /// The host a static target is on, if it is one of ours: by its name or its address.
    fn host_of_url(&self, url: &str) -> Option<HostName> {
        let parsed = url::Url::parse(url).ok()?;
        let name = parsed.host_str()?.to_ascii_lowercase();
        let short = name.split('.').next()?.to_owned();
        let named = HostName::new(short)
            .ok()
            .filter(|host| self.app.directory.get(host).is_some());
        named.or_else(|| {
            let address: IpAddr = name.parse().ok()?;
            self.app
                .directory
                .all()
                .into_iter()
                .find(|(_, entry)| {
                    entry.internal_ip.as_deref().and_then(|ip| ip.parse().ok()) == Some(address)
                })
                .map(|(host, _)| host)
        })
    }

    async fn scrape_all(&mut self) -> bool {
        let targets = self.targets();
        let this = &*self;
        let fetched: Vec<(Target, cobaltcore_ha_engine::Mono, Result<String, Failure>)> =
            futures::stream::iter(targets)
                .map(|target| async move {
                    let asked = this.app.clock.mono();
                    let body = this.fetch(&target.url).await;
                    (target, asked, body)
                })
                .buffer_unordered(self.pull.concurrency)
                .collect()
                .await;
        let mut good = true;
        for (target, asked_at, body) in fetched {
            let scrape = match &body {
                Ok(text) if self.pull.kind == PullKind::Exposition => exposition::parse(text).map(Some),
                Ok(_) => Ok(None),
                Err(_) => Ok(None),
            };
            good &= body.is_ok() && scrape.is_ok();
            let Some(host) = target.host else { continue };
            let result = match &body {
                Ok(_) | Err(Failure::Answered(_)) => ProbeResult::App,
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
            let (mut samples, fetched) = match scrape {
                Ok(Some(scrape)) => {
                    self.count_doubled(scrape.doubled);
                    (scrape.samples, Fetched::Whole)
                }
                Ok(None) if body.is_ok() => (Vec::new(), Fetched::Whole),
                Ok(None) => (Vec::new(), Fetched::Failed),
                Err(error) => {
                    tracing::warn!(source = self.pull.name, %host, %error, "a scrape is not readable and says nothing");
                    (Vec::new(), Fetched::Failed)
                }
            };
            samples.push(self.up(&host, fetched));
            self.take(&host, samples, fetched);
        }
        good
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

    async fn fetch(&self, url: &str) -> Result<String, Failure> {
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            let token = token
                .current()
                .map_err(|error| Failure::Answered(error.to_string()))?;
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(|error| failure(&error))?;
        if !answer.status().is_success() {
            return Err(Failure::Answered(format!("answered {}", answer.status())));
        }
        let body = read_at_most(answer, MOST_BYTES)
            .await
            .map_err(Failure::Answered)?;
        String::from_utf8(body).map_err(|_| Failure::Answered("the answer is not text".into()))
    }

    /// Takes the samples of one host: keeps what rules need, then judges.
    fn take(&mut self, host: &HostName, samples: Vec<Sample>, fetched: Fetched) {
        let now = Instant::now();
        let wanted: Vec<Sample> = samples
            .into_iter()
            .filter(|sample| self.wanted.contains(&sample.metric) || sample.metric == "up")
            .collect();
        self.keep(host, &wanted, now);
        self.judge_all(host, now, fetched, |history, term| {
            local_values(history, host, &wanted, term, now)
        });
    }

    fn keep(&mut self, host: &HostName, samples: &[Sample], now: Instant) {
        self.history
            .retain(|_, points| points.back().is_some_and(|(at, _)| now - *at < LONGEST_HISTORY));
        for sample in samples {
            let key = (host.clone(), sample.metric.clone(), sample.labels.clone());
            let room = self.history.len() < MOST_SERIES * self.app.directory.len().max(1);
            if !room && !self.history.contains_key(&key) {
                continue;
            }
            let points = self.history.entry(key).or_default();
            points.push_back((now, sample.value));
            while points.len() > MOST_POINTS {
                points.pop_front();
            }
        }
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
        let metrics = opinions.metrics.map(|up| Observation::Metrics {
            host: host.clone(),
            up,
        });
        let storage = opinions.storage.map(|watcher| Observation::Storage {
            host: host.clone(),
            watcher,
        });
        for seen in metrics.into_iter().chain(storage) {
            self.app.brain.offer(Input::Saw(seen));
        }
    }

    async fn ask_prometheus(&mut self) -> bool {
        let queries: Vec<String> = self
            .rules
            .iter()
            .flat_map(|compiled| compiled.expr.terms())
            .map(Term::query)
            .collect::<HashSet<_>>()
            .into_iter()
            .collect();
        let mut answers: HashMap<String, Vec<(Labels, f64)>> = HashMap::new();
        for query in queries {
            match self.query(&query).await {
                Ok(found) => {
                    answers.insert(query, found);
                }
                Err(why) => {
                    tracing::warn!(
                        source = self.pull.name,
                        query,
                        why,
                        "a query was not answered and says nothing"
                    );
                    return false;
                }
            }
        }
        let now = Instant::now();
        let hosts: Vec<HostName> = self
            .app
            .directory
            .all()
            .into_iter()
            .map(|(host, _)| host)
            .collect();
        let labels: HashMap<String, String> = self
            .rules
            .iter()
            .map(|compiled| (compiled.rule.name.clone(), compiled.rule.host_label.clone()))
            .collect();
        for host in hosts {
            // A host the monitoring system does not know gets no verdict from it.
            let known = answers
                .values()
                .flatten()
                .any(|(series, _)| labels.values().any(|label| names(series, label, &host)));
            if !known {
                continue;
            }
            let labels: Vec<String> = labels.values().cloned().collect();
            self.judge_all(&host, now, Fetched::Whole, |_, term| {
                let found = answers.get(&term.query()).map_or(&[][..], Vec::as_slice);
                let values: Vec<f64> = found
                    .iter()
                    .filter(|(series, _)| labels.iter().any(|label| names(series, label, &host)))
                    .map(|(_, value)| *value)
                    .collect();
                match term {
                    Term::Count(_) => vec![values.len() as f64],
                    _ => values,
                }
            });
        }
        true
    }

    async fn query(&self, query: &str) -> Result<Vec<(Labels, f64)>, String> {
        #[derive(Deserialize)]
        struct Reply {
            status: String,
            #[serde(default)]
            error: String,
            #[serde(default)]
            data: Data,
        }
        #[derive(Default, Deserialize)]
        struct Data {
            #[serde(default)]
            result: Vec<Series>,
        }
        #[derive(Deserialize)]
        struct Series {
            #[serde(default)]
            metric: BTreeMap<String, String>,
            value: (f64, String),
        }
        let base = self.pull.url.trim_end_matches('/');
        let mut url = url::Url::parse(&format!("{base}/api/v1/query")).map_err(|error| error.to_string())?;
        url.query_pairs_mut().append_pair("query", query);
        let text = self
            .fetch(url.as_str())
            .await
            .map_err(|failure| failure.to_string())?;
        let reply: Reply = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if reply.status != "success" {
            return Err(reply.error);
        }
        Ok(reply
            .data
            .result
            .into_iter()
            .filter_map(|series| Some((series.metric, series.value.1.parse().ok()?)))
            .collect())
    }
}

/// Whether a series is about a host: its label is the host's name, perhaps with a domain or a port.
fn names(series: &Labels, label: &str, host: &HostName) -> bool {
    let label = if label.is_empty() { "instance" } else { label };
    series.get(label).is_some_and(|value| {
        let bare = value.split(':').next().unwrap_or_default().to_ascii_lowercase();
        bare == host.as_str() || bare.split('.').next() == Some(host.short())
    })
}

fn local_values(
    history: &History,
    host: &HostName,
    samples: &[Sample],
    term: &Term,
    now: Instant,
) -> Vec<f64> {
    let chosen = samples
        .iter()
        .filter(|sample| term.selector().matches(&sample.metric, &sample.labels));
    let growth = |sample: &Sample, span: Duration| {
        let key = (host.clone(), sample.metric.clone(), sample.labels.clone());
        increase(history.get(&key)?, now, span)
    };
    match term {
        Term::Value(_) => chosen.map(|sample| sample.value).collect(),
        Term::Count(_) => vec![chosen.count() as f64],
        Term::Increase(_, span) => chosen
            .filter_map(|sample| growth(sample, *span).map(|(grown, _)| grown))
            .collect(),
        Term::Rate(_, span) => chosen
            .filter_map(|sample| growth(sample, *span).map(|(grown, seconds)| grown / seconds))
            .collect(),
    }
}

/// By how much a counter grew within `span`, and in how many seconds. A counter that fell began anew.
fn increase(points: &VecDeque<(Instant, f64)>, now: Instant, span: Duration) -> Option<(f64, f64)> {
    let inside: Vec<(Instant, f64)> = points
        .iter()
        .filter(|(at, _)| now.duration_since(*at) <= span)
        .copied()
        .collect();
    let (first, last) = (inside.first()?, inside.last()?);
    let seconds = last.0.duration_since(first.0).as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let grown = inside
        .iter()
        .zip(inside.iter().skip(1))
        .map(|((_, before), (_, after))| if after >= before { after - before } else { *after })
        .sum();
    Some((grown, seconds))
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

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A program answered, but not with what was wanted.
    #[error("{0}")]
    Answered(String),
    /// The network stack answered.
    #[error("the connection was refused")]
    Refused,
    /// Nothing answered.
    #[error("{0}")]
    Silent(String),
}

fn failure(error: &reqwest::Error) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Failure::Refused;
        }
        cause = inner.source();
    }
    if error.is_connect() || error.is_timeout() {
        Failure::Silent(error.to_string())
    } else {
        Failure::Answered(error.to_string())
    }
}

/// Fills a template; nothing if something it names is not known.
fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (name, after) = after.split_once('}')?;
        out.push_str(&value(name)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_or_left_out() {
        let value = |name: &str| (name == "host").then(|| "n1".to_owned());
        assert_eq!(
            fill("http://{host}:9100/metrics", value).unwrap(),
            "http://n1:9100/metrics"
        );
        assert_eq!(fill("http://{internal_ip}:9100", value), None);
        assert_eq!(fill("http://{host", value), None);
    }

    #[tokio::test(start_paused = true)]
    async fn counters_grow_and_begin_anew() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let points: VecDeque<_> = [(0, 10.0), (60, 12.0), (120, 3.0), (180, 4.0)]
            .into_iter()
            .map(|(s, v)| (at(s), v))
            .collect();
        let whole = increase(&points, at(180), Duration::from_secs(300)).unwrap();
        assert_eq!(whole, (6.0, 180.0));
        let part = increase(&points, at(180), Duration::from_secs(60)).unwrap();
        assert_eq!(part, (1.0, 60.0));
        assert_eq!(increase(&points, at(180), Duration::from_secs(1)), None);
    }

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

    #[test]
    fn series_are_matched_to_hosts_by_whole_names() {
        let host = HostName::new("node1").unwrap();
        let series = |value: &str| Labels::from([("instance".to_owned(), value.to_owned())]);
        for (value, wanted) in [
            ("node1:9100", true),
            ("node1", true),
            ("node1.example.org:9100", true),
            ("node10:9100", false),
            ("xnode1", false),
        ] {
            assert_eq!(names(&series(value), "", &host), wanted, "{value}");
        }
    }
}
