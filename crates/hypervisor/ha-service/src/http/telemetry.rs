// SPDX-License-Identifier: Apache-2.0
//! Verdicts that others push: our own form, or the webhook of an Alertmanager. They count in the
//! groups of monitoring and storage only, so no sender can have a host fenced by itself.

use std::collections::BTreeMap;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Input, Observation};
use cobaltcore_ha_wire::{Problem, Scalar};
use serde::Deserialize;
use serde_json::json as object;

use super::call::{Answer, Call, json};
use super::problem;
use crate::access::Caller;
use crate::config::{Push, PushSchema};
use crate::signals::{Said, record};

/// Items of one body.
const MOST: usize = 10_000;
/// A verdict may be ahead of our clock by this much.
const SKEW_S: i64 = 60;
/// One that is older than this says nothing about now.
const OLDEST_S: i64 = 600;
const LONGEST: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Generic {
    items: Vec<Item>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Dead,
    Alive,
    Degraded,
    Info,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    host: HostName,
    signal: String,
    verdict: Verdict,
    observed_at: jiff::Timestamp,
    #[serde(default)]
    ttl_s: Option<u32>,
    #[serde(default)]
    attrs: BTreeMap<String, Scalar>,
}

/// The webhook of an Alertmanager; what is not needed is not read.
#[derive(Deserialize)]
struct Webhook {
    version: String,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

pub(super) async fn push(call: Call) -> Answer {
    let source = call.param("source").to_owned();
    let app = &call.app;
    let config = app.config();
    let Some(push) = config.sources.push.iter().find(|push| push.name == source) else {
        return Err(problem(404, "Not found", format!("there is no source {source}")));
    };
    let Caller::Sender(sender) = &call.caller else {
        return Err(problem(403, "Forbidden", "this is for senders"));
    };
    if !push.senders.contains(sender) {
        app.count_refused("telemetry", "foreign");
        return Err(problem(
            403,
            "Forbidden",
            format!("sender {sender} is not bound to source {source}"),
        ));
    }
    let said = match push.schema {
        PushSchema::Generic => generic(&call),
        PushSchema::Alertmanager => alertmanager(&call, push),
    }
    .inspect_err(|_| app.count_refused("telemetry", "malformed"))?;
    let (mut taken, mut ignored) = (0, 0);
    for (host, up, said) in said {
        if app.directory.get(&host).is_none() {
            ignored += 1;
            continue;
        }
        record(&app.store, &host, &push.group, said);
        if let Some(up) = up {
            let seen = if push.group == "S" {
                Observation::Storage { host, watcher: up }
            } else {
                Observation::Metrics { host, up }
            };
            if !app.brain.offer(Input::Saw(seen)) {
                return Err(problem(503, "Busy", "too much waits to be judged; send again"));
            }
        }
        taken += 1;
    }
    json(&object!({ "accepted": taken, "ignored": ignored }))
}

type Read = Vec<(HostName, Option<bool>, Said)>;

fn generic(call: &Call) -> Result<Read, Problem> {
    let Generic { items } = call.read()?;
    if items.len() > MOST {
        return Err(problem(
            413,
            "Too large",
            format!("at most {MOST} items are taken at once"),
        ));
    }
    let now = jiff::Timestamp::now();
    let mut out = Vec::new();
    for item in items {
        if item.signal.is_empty() || item.signal.len() > LONGEST || item.attrs.len() > 16 {
            return Err(problem(
                422,
                "Not valid",
                "a signal has a name of at most 256 bytes and at most 16 attributes",
            ));
        }
        let mut at = item.observed_at;
        if at.as_second() - now.as_second() > SKEW_S {
            call.app.count_refused("observed_at", "ahead");
            at = now;
        }
        let oldest = item.ttl_s.map_or(OLDEST_S, i64::from).min(OLDEST_S);
        let stale = now.as_second() - at.as_second() > oldest;
        let up = match item.verdict {
            // Old words say nothing about now; they are kept for people.
            _ if stale => None,
            Verdict::Dead => Some(false),
            Verdict::Alive => Some(true),
            Verdict::Degraded | Verdict::Info => None,
        };
        if stale {
            call.app.count_refused("observed_at", "stale");
        }
        let word = match item.verdict {
            Verdict::Dead => "dead",
            Verdict::Alive => "alive",
            Verdict::Degraded => "degraded",
            Verdict::Info => "info",
        };
        let said = Said {
            name: item.signal,
            verdict: word.to_owned(),
            at,
            detail: serde_json::to_string(&item.attrs).unwrap_or_default(),
        };
        out.push((item.host, up, said));
    }
    Ok(out)
}

fn alertmanager(call: &Call, push: &Push) -> Result<Read, Problem> {
    let Webhook { version, alerts } = call.read()?;
    if version != "4" {
        return Err(problem(
            422,
            "Not valid",
            format!("version 4 of the webhook is read, not {version:?}"),
        ));
    }
    if alerts.len() > MOST {
        return Err(problem(
            413,
            "Too large",
            format!("at most {MOST} alerts are taken at once"),
        ));
    }
    let mut out = Vec::new();
    for alert in alerts {
        let Some(host) = alert.labels.get(&push.host_label) else {
            continue;
        };
        // `node001:9100` is the host node001.
        let name = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let Ok(host) = HostName::new(name) else { continue };
        let name = alert.labels.get("alertname").cloned().unwrap_or_default();
        let firing = match alert.status.as_str() {
            "firing" => true,
            "resolved" => false,
            other => {
                return Err(problem(
                    422,
                    "Not valid",
                    format!("an alert is firing or resolved, not {other:?}"),
                ));
            }
        };
        let up = push.down_alerts.contains(&name).then_some(!firing);
        let said = Said {
            name: name.chars().take(LONGEST).collect(),
            verdict: match (up, firing) {
                (Some(true), _) => "alive",
                (Some(false), _) => "dead",
                // It is kept for people, and says nothing about the life of the host.
                (None, true) => "degraded",
                (None, false) => "info",
            }
            .to_owned(),
            at: jiff::Timestamp::now(),
            detail: String::new(),
        };
        out.push((host, up, said));
    }
    Ok(out)
}
