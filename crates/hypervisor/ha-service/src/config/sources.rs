// SPDX-License-Identifier: Apache-2.0
//! Telemetry besides that of agents: what is pulled and what is taken.

use std::time::Duration;

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{Access, minutes, seconds};

/// How long any request may take.
const LONGEST_REQUEST: HumanDuration = seconds(10);
/// What is asked less often says too little about now to speak for or against a host.
const LONGEST_INTERVAL: HumanDuration = minutes(1);
/// How long a word may count that does not say so itself.
const LONGEST_WORD: HumanDuration = minutes(5);

/// Telemetry besides that of agents.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sources {
    /// What is taken.
    pub push: Vec<Push>,
    /// What is fetched.
    pub pull: Vec<Pull>,
}

/// The form of pushed telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PushSchema {
    /// Our own.
    Generic,
    /// The webhook of Alertmanager, version 4.
    Alertmanager,
}

/// One source that pushes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Its name, which is also in its path.
    pub name: String,
    /// The form of its bodies.
    pub schema: PushSchema,
    /// The senders that may use it.
    pub senders: Vec<String>,
    /// The group its verdicts count in: `M` or `S`.
    #[serde(default = "metrics")]
    pub group: String,
    /// alertmanager: the label that carries the host.
    #[serde(default = "node")]
    pub host_label: String,
    /// alertmanager: alerts that mean that the host is down.
    #[serde(default)]
    pub down_alerts: Vec<String>,
    /// How long a word counts that does not say so itself: 20 seconds, and a minute for alerts, when not given.
    #[serde(default)]
    pub good_for: Option<HumanDuration>,
}

impl Push {
    /// How long a word counts that does not say so itself.
    pub fn good_for(&self) -> Duration {
        let usual = match self.schema {
            PushSchema::Generic => seconds(20),
            // It says once that something is wrong, and again when that changes or when it repeats itself.
            PushSchema::Alertmanager => minutes(1),
        };
        self.good_for.unwrap_or(usual).0
    }
}

fn metrics() -> String {
    "M".into()
}

fn node() -> String {
    "node".into()
}

/// Kinds of sources that are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PullKind {
    /// Metrics in text form, scraped from each target.
    Exposition,
    /// Instant queries to a Prometheus: one request for the fleet.
    Prometheus,
    /// Whether a target answers with success.
    HttpStatus,
}

/// Where targets come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetsFrom {
    /// The list.
    #[default]
    Static,
    /// One for each hypervisor, by the template in `url`.
    Hypervisors,
}

/// What a rule says when it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// The host is down.
    Dead,
    /// The host lives.
    Alive,
    /// It lives, and suffers.
    Degraded,
}

/// The monitor that a rule with the verdict `degraded` is a witness for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleMonitor {
    /// Memory that fails beyond repair.
    MemoryFailure,
    /// A libvirt that does not answer.
    LibvirtUnreachable,
}

/// One rule over pulled metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "WrittenRule")]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The group it counts in: `M`, `P` or `S`.
    pub group: String,
    /// The expression.
    pub expr: String,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub hold: HumanDuration,
    /// What it says.
    pub verdict: RuleVerdict,
    /// The label that carries the host; the target's host when empty.
    pub host_label: String,
    /// With the verdict `degraded`: the monitor that hears it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<RuleMonitor>,
}

/// A rule as it is written: what a predefined one says already may be left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    name: String,
    group: Option<String>,
    expr: Option<String>,
    #[serde(rename = "for")]
    hold: Option<HumanDuration>,
    verdict: Option<RuleVerdict>,
    #[serde(default)]
    host_label: String,
    monitor: Option<RuleMonitor>,
}

impl Rule {
    /// Rules that many want: a name is enough.
    fn predefined(name: &str) -> Option<Self> {
        let (expr, hold, verdict, monitor) = match name {
            "node_up" => (r#"up{job=~"node-exporter.*"} == 0"#, 30, RuleVerdict::Dead, None),
            "libvirt_up" => (
                "libvirt_up == 0",
                30,
                RuleVerdict::Degraded,
                Some(RuleMonitor::LibvirtUnreachable),
            ),
            "mce" => (
                "increase(node_edac_uncorrectable_errors_total, 5m) > 0",
                0,
                RuleVerdict::Degraded,
                Some(RuleMonitor::MemoryFailure),
            ),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            group: metrics(),
            expr: expr.to_owned(),
            hold: seconds(hold),
            verdict,
            host_label: String::new(),
            monitor,
        })
    }
}

impl TryFrom<WrittenRule> for Rule {
    type Error = String;

    fn try_from(written: WrittenRule) -> Result<Self, String> {
        let known = Self::predefined(&written.name);
        let missing = |key: &str| {
            format!(
                "rule {} says no {key}; only node_up, libvirt_up and mce are known by their name",
                written.name
            )
        };
        // One with an expression of its own is somebody's own rule, whatever its name.
        let known = known.filter(|_| written.expr.is_none());
        let of = known.as_ref();
        let needed = |given: Option<String>, usual: Option<&String>, key: &str| {
            given.or_else(|| usual.cloned()).ok_or_else(|| missing(key))
        };
        Ok(Self {
            group: needed(written.group, of.map(|rule| &rule.group), "group")?,
            expr: needed(written.expr, of.map(|rule| &rule.expr), "expr")?,
            verdict: written
                .verdict
                .or(of.map(|rule| rule.verdict))
                .ok_or_else(|| missing("verdict"))?,
            hold: written.hold.or(of.map(|rule| rule.hold)).unwrap_or_default(),
            monitor: written.monitor.or(of.and_then(|rule| rule.monitor)),
            host_label: written.host_label,
            name: written.name,
        })
    }
}

/// One source that is pulled.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pull {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: PullKind,
    /// prometheus: its address; others with `from: hypervisors`: a template with `{host}`,
    /// `{internal_ip}`, `{zone}`, `{bb}`.
    #[serde(default)]
    pub url: String,
    /// Addresses.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Where targets come from.
    #[serde(default)]
    pub from: TargetsFrom,
    /// How often.
    #[serde(default = "quarter")]
    pub interval: HumanDuration,
    /// How long one fetch may take.
    #[serde(default = "three")]
    pub timeout: HumanDuration,
    /// How many at once.
    #[serde(default = "many")]
    pub concurrency: usize,
    /// Certificates.
    #[serde(default)]
    pub tls: PullTls,
    /// Who we say we are.
    #[serde(default)]
    pub auth: PullAuth,
    /// What follows from it.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// The certificates of a pull. All of them are files, and read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullTls {
    /// The authorities of the targets' certificates; the system's own when empty.
    pub ca_file: String,
    /// Our own certificate, for targets that want one.
    pub cert_file: String,
    /// Its key.
    pub key_file: String,
}

/// Who we say we are to the targets of a pull: by a bearer token, or by name and password. What is secret
/// stands in files, and is read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullAuth {
    /// The file with a bearer token.
    pub token_file: String,
    /// The name for basic authentication.
    pub username: String,
    /// The file with its password.
    pub password_file: String,
}

impl PullTls {
    fn check(&self, key: &str, mistakes: &mut Mistakes<'_>) {
        let own = |file: &String| !file.is_empty();
        if own(&self.cert_file) != own(&self.key_file) {
            mistakes.add(&format!("{key}.tls"), "cert_file and key_file belong together");
        }
        if own(&self.cert_file) && self.ca_file.is_empty() {
            mistakes.add(
                &format!("{key}.tls.ca_file"),
                "is needed with a certificate of our own: it is shown to nobody else",
            );
        }
    }
}

impl PullAuth {
    fn check(&self, key: &str, mistakes: &mut Mistakes<'_>) {
        if self.username.is_empty() != self.password_file.is_empty() {
            mistakes.add(
                &format!("{key}.auth"),
                "username and password_file belong together",
            );
        }
        if !self.token_file.is_empty() && !self.username.is_empty() {
            mistakes.add(
                &format!("{key}.auth"),
                "must be a token_file, or a username with a password_file, not both",
            );
        }
    }
}

const fn quarter() -> HumanDuration {
    seconds(15)
}

const fn three() -> HumanDuration {
    seconds(3)
}

const fn many() -> usize {
    64
}

fn name_ok(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

impl Sources {
    pub(super) fn check(&self, access: &Access, mistakes: &mut Mistakes<'_>) {
        for (n, push) in self.push.iter().enumerate() {
            let key = format!("sources.push.{n}");
            if !name_ok(&push.name) || self.push.iter().filter(|other| other.name == push.name).count() > 1 {
                mistakes.add(
                    &format!("{key}.name"),
                    "must be lower case letters, digits and dashes, and given once",
                );
            }
            if push.senders.is_empty() {
                mistakes.add(&format!("{key}.senders"), "somebody must be allowed to send");
            }
            for sender in &push.senders {
                if !access.knows_sender(sender) {
                    mistakes.add(
                        &format!("{key}.senders"),
                        format!("{sender} is neither in access.senders nor in access.sender_certificates"),
                    );
                }
            }
            if !matches!(push.group.as_str(), "M" | "S") {
                mistakes.add(&format!("{key}.group"), "must be M or S");
            }
            if push.group == "S" && push.schema == PushSchema::Alertmanager {
                mistakes.add(
                    &format!("{key}.group"),
                    "must be M for alerts: where none fires, nobody has seen a session in the storage",
                );
            }
            let good_for = push.good_for.unwrap_or(LONGEST_WORD);
            if good_for < seconds(1) || good_for > LONGEST_WORD {
                mistakes.add(&format!("{key}.good_for"), "must be from 1s to 5m");
            }
        }
        for (n, pull) in self.pull.iter().enumerate() {
            pull.check(&format!("sources.pull.{n}"), mistakes);
        }
    }
}

impl Pull {
    /// How long what was fetched counts: until the next fetch should have ended. One of a large fleet may take longer
    /// than the interval, as long as the last one `took`.
    pub(crate) fn good_for(&self, took: Duration) -> Duration {
        let every = self.interval.0.max(took).min(LONGEST_INTERVAL.0);
        every.mul_f64(1.2) + self.timeout.0
    }

    fn check(&self, key: &str, mistakes: &mut Mistakes<'_>) {
        if !name_ok(&self.name) {
            mistakes.add(
                &format!("{key}.name"),
                "must be lower case letters, digits and dashes",
            );
        }
        let wants_url = self.kind == PullKind::Prometheus || self.from == TargetsFrom::Hypervisors;
        if wants_url && self.url.is_empty() {
            mistakes.add(&format!("{key}.url"), "is needed");
        }
        if !wants_url && self.targets.is_empty() {
            mistakes.add(
                &format!("{key}.targets"),
                "are needed, or from: hypervisors with a url",
            );
        }
        if self.interval < seconds(1) || self.timeout.0.is_zero() || self.timeout > self.interval {
            mistakes.add(
                &format!("{key}.timeout"),
                "must be shorter than the interval, and that at least 1s",
            );
        }
        if self.timeout > LONGEST_REQUEST {
            mistakes.add(
                &format!("{key}.timeout"),
                "must be at most 10s, as for every request",
            );
        }
        let counts = |rule: &Rule| rule.verdict != RuleVerdict::Degraded && rule.group != "P";
        if self.interval > LONGEST_INTERVAL && self.rules.iter().any(counts) {
            mistakes.add(
                &format!("{key}.interval"),
                "must be at most 1m for rules of the groups M and S: what they say counts until the next time",
            );
        }
        self.tls.check(key, mistakes);
        self.auth.check(key, mistakes);
        if self.concurrency == 0 {
            mistakes.add(&format!("{key}.concurrency"), "must be at least 1");
        }
        for (m, rule) in self.rules.iter().enumerate() {
            let key = format!("{key}.rules.{m}");
            if let Err(error) = crate::sources::expr::Expr::parse(&rule.expr) {
                mistakes.add(&format!("{key}.expr"), error.to_string());
            }
            let allowed: &[&str] = match self.kind {
                PullKind::Prometheus => &["M", "S"],
                // Our own scrapes share our network path.
                PullKind::Exposition | PullKind::HttpStatus => &["P", "S"],
            };
            if rule.monitor.is_some() && rule.verdict != RuleVerdict::Degraded {
                mistakes.add(&format!("{key}.monitor"), "needs verdict: degraded");
            }
            // What is degraded lives: it counts in no group.
            let counts = rule.verdict != RuleVerdict::Degraded;
            if counts && !allowed.contains(&rule.group.as_str()) {
                mistakes.add(
                    &format!("{key}.group"),
                    format!("must be one of {} for this kind", allowed.join(", ")),
                );
            }
        }
    }
}
