// SPDX-License-Identifier: Apache-2.0
//! Telemetry besides that of agents: what is pulled and what is taken.

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{Access, seconds};

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

/// One rule over pulled metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The group it counts in: `M`, `P` or `S`.
    pub group: String,
    /// The expression.
    pub expr: String,
    /// How long it must hold.
    #[serde(default, rename = "for")]
    pub hold: HumanDuration,
    /// What it says.
    pub verdict: RuleVerdict,
    /// The label that carries the host; the target's host when empty.
    #[serde(default)]
    pub host_label: String,
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
    /// The authorities of the targets' certificates.
    #[serde(default)]
    pub ca_file: String,
    /// The file with a bearer token.
    #[serde(default)]
    pub token_file: String,
    /// What follows from it.
    #[serde(default)]
    pub rules: Vec<Rule>,
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
                if !access.senders.contains_key(sender) {
                    mistakes.add(
                        &format!("{key}.senders"),
                        format!("{sender} is not in access.senders"),
                    );
                }
            }
            if !matches!(push.group.as_str(), "M" | "S") {
                mistakes.add(&format!("{key}.group"), "must be M or S");
            }
        }
        for (n, pull) in self.pull.iter().enumerate() {
            pull.check(&format!("sources.pull.{n}"), mistakes);
        }
    }
}

impl Pull {
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
            if !allowed.contains(&rule.group.as_str()) {
                mistakes.add(
                    &format!("{key}.group"),
                    format!("must be one of {} for this kind", allowed.join(", ")),
                );
            }
        }
    }
}
