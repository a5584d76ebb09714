// SPDX-License-Identifier: Apache-2.0
//! Verdicts that others push: our own form, or the webhook of an Alertmanager. They count in the
//! groups of monitoring and storage only, so no sender can have a host fenced by itself.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Input, Observation, Onlooker};
use cobaltcore_ha_wire::{Problem, Scalar};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::json as object;

use super::call::{Answer, Call, json};
use super::{App, problem};
use crate::access::Caller;
use crate::config::{Push, PushSchema};
use crate::signals::{Said, record_all};

/// Items of one body.
const MOST: usize = 10_000;
/// A verdict may be ahead of our clock by this much.
const SKEW_S: i64 = 60;
/// One that is older than this says nothing about now.
const OLDEST: Duration = Duration::from_mins(10);
/// Nor does one that accuses and is older than this, unless the source was said to be heard for longer.
const ACCUSES: Duration = Duration::from_mins(1);
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

/// What one item of a body says.
struct Read {
    host: HostName,
    /// The alert, where a source has several words for one host.
    about: String,
    word: Option<Word>,
    said: Said,
}

/// Whether a host is up, and for how long that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    up: bool,
    good_for: Duration,
}

impl Word {
    /// Of two about one host, the one that its group hears: accusations of monitoring, signs of life of storage.
    fn with(self, other: Self, by: Onlooker) -> Self {
        let heard = by == Onlooker::Storage;
        match (self.up == heard, other.up == heard) {
            (true, false) => self,
            (false, true) => other,
            _ if self.good_for > other.good_for => self,
            _ => other,
        }
    }
}

pub(super) async fn push(call: Call) -> Answer {
    let push = source(&call)?;
    let Caller::Sender(sender) = &call.caller else {
        return Err(problem(403, "Forbidden", "this is for senders"));
    };
    if !push.senders.contains(sender) {
        call.app.count_refused("telemetry", "foreign");
        return Err(problem(
            403,
            "Forbidden",
            format!("sender {sender} is not bound to source {}", push.name),
        ));
    }
    let items = read(&call, &push)?;
    // Senders reach one replica, and whoever leads judges by what it heard itself.
    let others = call.app.peers.pass_on(&push.name, &call.body);
    let ((), answer) = tokio::join!(others, async { take(&call, &push, items) });
    answer
}

/// What a sender pushed to another replica. That one knows the sender, and vouches for it as a replica.
pub(super) fn pushed(call: Call) -> Ready<Answer> {
    let taken = source(&call).and_then(|push| {
        let items = read(&call, &push)?;
        take(&call, &push, items)
    });
    ready(taken)
}

fn source(call: &Call) -> Result<Push, Problem> {
    let name = call.param("source");
    let config = call.app.config();
    let found = config.sources.push.iter().find(|push| push.name == name);
    found
        .cloned()
        .ok_or_else(|| problem(404, "Not found", format!("there is no source {name}")))
}

fn read(call: &Call, push: &Push) -> Result<Vec<Read>, Problem> {
    match push.schema {
        PushSchema::Generic => generic(call, push),
        PushSchema::Alertmanager => alertmanager(call, push),
    }
    .inspect_err(|_| call.app.count_refused("telemetry", "malformed"))
}

/// Tells the engine what was read, and writes it down. Who lives is judged whatever the database does; a sender is told
/// if either did not happen, and may say it all again.
fn take(call: &Call, push: &Push, items: Vec<Read>) -> Answer {
    let app = &call.app;
    let by = if push.group == "S" {
        Onlooker::Storage
    } else {
        Onlooker::Monitoring
    };
    let (mut said, mut ignored) = (Vec::new(), 0);
    let mut words: BTreeMap<(HostName, String), Word> = BTreeMap::new();
    for item in items {
        if app.directory.get(&item.host).is_none() {
            ignored += 1;
            continue;
        }
        if let Some(word) = item.word {
            words
                .entry((item.host.clone(), item.about))
                .and_modify(|known| *known = known.with(word, by))
                .or_insert(word);
        }
        said.push((item.host, item.said));
    }
    let taken = said.len();
    judge(app, push, by, words)?;
    if !record_all(&app.store, &push.group, said) {
        app.count_refused("telemetry", "storage");
        let detail = "too much waits to be written; it was judged, and not kept: send it again";
        return Err(problem(503, "Not stored", detail));
    }
    json(&object!({ "accepted": taken, "ignored": ignored }))
}

/// Has the engine judge all of it; nothing of it if there is no room for all.
fn judge(
    app: &App,
    push: &Push,
    by: Onlooker,
    words: BTreeMap<(HostName, String), Word>,
) -> Result<(), Problem> {
    let Ok(places) = app.brain.inputs().try_reserve_many(words.len()) else {
        app.count_refused("telemetry", "busy");
        let detail = "too much waits to be judged, and nothing of this was heard; send it again";
        return Err(problem(503, "Busy", detail));
    };
    for (place, ((host, about), Word { up, good_for })) in places.zip(words) {
        place.send(Input::Saw(Observation::Judged {
            host,
            by,
            source: format!("push/{}/{about}", push.name),
            up,
            good_for,
        }));
    }
    Ok(())
}

/// What an item counts for, `age` after it was observed; nothing if it is too old. Its sender says for how long, else
/// the configuration does. An accusation counts for a minute at most, unless the configuration lets its source be heard
/// for longer.
fn word(up: bool, ttl: Option<Duration>, age: Duration, push: &Push) -> Option<Word> {
    let usual = push.good_for();
    let longest = if up { OLDEST } else { ACCUSES.max(usual) };
    if age > ttl.unwrap_or(longest).min(longest) {
        return None;
    }
    let good_for = match ttl {
        Some(ttl) => ttl.min(longest).saturating_sub(age),
        None => usual,
    };
    Some(Word { up, good_for })
}

fn generic(call: &Call, push: &Push) -> Result<Vec<Read>, Problem> {
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
        let age = now.duration_since(at).max(SignedDuration::ZERO).unsigned_abs();
        let ttl = item.ttl_s.map(|ttl| Duration::from_secs(ttl.into()));
        let up = item.verdict != Verdict::Dead;
        let found = word(up, ttl, age, push);
        if found.is_none() {
            // Old words say nothing about now; they are kept for people.
            call.app.count_refused("observed_at", "stale");
        }
        let speaks = matches!(item.verdict, Verdict::Dead | Verdict::Alive);
        let verdict = match item.verdict {
            Verdict::Dead => "dead",
            Verdict::Alive => "alive",
            Verdict::Degraded => "degraded",
            Verdict::Info => "info",
        };
        let said = Said {
            name: item.signal,
            verdict: verdict.to_owned(),
            at,
            detail: serde_json::to_string(&item.attrs).unwrap_or_default(),
        };
        out.push(Read {
            host: item.host,
            about: String::new(),
            word: found.filter(|_| speaks),
            said,
        });
    }
    Ok(out)
}

fn alertmanager(call: &Call, push: &Push) -> Result<Vec<Read>, Problem> {
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
        // That an alert is over says that nobody accuses any more; also one whose target is gone is over.
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
        out.push(Read {
            host,
            about: name,
            word: up.and_then(|up| word(up, None, Duration::ZERO, push)),
            said,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use crate::run::Service;

    const HOSTS: usize = 2000;

    /// A service that knows hosts, and a push with a verdict about each of five guests of theirs.
    async fn pushed_about_all(folder: &std::path::Path) -> (Service, Call) {
        let more = "sources: {push: [{name: probes, schema: generic, senders: [prom]}]}\n";
        let service = Service::still(folder, more).await;
        let app = Arc::clone(service.app());
        let now = jiff::Timestamp::now();
        let mut items = Vec::new();
        for n in 0..HOSTS {
            let host = HostName::new(format!("n{n}")).unwrap();
            app.directory.change(&host, |_| {});
            for signal in 0..5 {
                items.push(object!({"host": host, "signal": format!("s{signal}"), "verdict": "alive", "observed_at": now}));
            }
        }
        let call = Call {
            app,
            caller: Caller::Sender("prom".to_owned()),
            params: BTreeMap::from([("source", "probes".to_owned())]),
            query: BTreeMap::new(),
            body: object!({"items": items}).to_string().into(),
            place: None,
        };
        (service, call)
    }

    /// How many inputs wait for the engine.
    fn told(app: &App) -> usize {
        app.brain.inputs().max_capacity() - app.brain.inputs().capacity()
    }

    async fn kept(app: &App) -> i64 {
        let count =
            |c: &rusqlite::Connection| c.query_row("select count(*) from signals", [], |row| row.get(0));
        app.store.read(count).await.unwrap()
    }

    /// Until what is given is dropped, nothing is written.
    fn hold_writer(app: &App) -> std::sync::mpsc::Sender<()> {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        assert!(app.store.write_later(move |_| {
            let _ = held.recv();
            Ok(())
        }));
        hold
    }

    #[tokio::test]
    async fn a_large_push_is_kept_as_a_whole_and_leaves_room_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let (service, call) = pushed_about_all(folder.path()).await;
        let hold = hold_writer(service.app());
        let answer = push(call).await.unwrap();
        assert_eq!(answer.status(), 200);
        let after = service.app().store.write(|_| Ok(()));
        drop(hold);
        after.await.unwrap();
        assert_eq!(kept(service.app()).await, 10_000);
        assert_eq!(told(service.app()), HOSTS);
    }

    #[tokio::test]
    async fn a_push_that_cannot_be_kept_is_judged_and_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (service, call) = pushed_about_all(folder.path()).await;
        let hold = hold_writer(service.app());
        while service.app().store.write_later(|_| Ok(())) {}
        let refused = push(call).await.unwrap_err();
        assert_eq!((refused.status, refused.title.as_str()), (503, "Not stored"));
        assert_eq!(told(service.app()), HOSTS);
        drop(hold);
        service.app().store.write(|_| Ok(())).await.unwrap();
        assert_eq!(kept(service.app()).await, 0);
    }

    #[tokio::test]
    async fn of_a_push_that_cannot_be_judged_as_a_whole_nothing_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (service, call) = pushed_about_all(folder.path()).await;
        let inputs = service.app().brain.inputs();
        while inputs.capacity() >= HOSTS {
            assert!(service.app().brain.offer(Input::Tick));
        }
        let refused = push(call).await.unwrap_err();
        assert_eq!((refused.status, refused.title.as_str()), (503, "Busy"));
        assert_eq!(inputs.capacity(), HOSTS - 1);
        service.app().store.write(|_| Ok(())).await.unwrap();
        assert_eq!(kept(service.app()).await, 0);
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn source(text: &str) -> Push {
        serde_json::from_value(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_word_counts_as_long_as_its_sender_says_and_an_accusation_for_a_minute() {
        let usual = source(r#"{"name": "a", "schema": "generic", "senders": []}"#);
        let told = |up, ttl: Option<u64>, age| word(up, ttl.map(s), s(age), &usual).map(|word| word.good_for);
        assert_eq!(told(true, None, 0), Some(s(20)));
        assert_eq!(told(true, Some(300), 0), Some(s(300)));
        assert_eq!(told(true, Some(300), 40), Some(s(260)), "it was said a while ago");
        assert_eq!(told(true, Some(300), 301), None);
        assert_eq!(told(true, Some(86_400), 0), Some(s(600)), "that has an end");
        assert_eq!(told(false, Some(30), 0), Some(s(30)));
        assert_eq!(
            told(false, Some(300), 0),
            Some(s(60)),
            "an accusation ends sooner"
        );
        assert_eq!(told(false, Some(300), 61), None);
        assert_eq!(told(false, None, 0), Some(s(20)));
        assert_eq!(told(false, None, 61), None, "what is old accuses nobody");
        assert_eq!(told(true, None, 599), Some(s(20)));
        assert_eq!(told(true, None, 601), None);
    }

    #[test]
    fn an_alert_counts_for_as_long_as_its_source_was_said_to() {
        let firing = |more: &str| {
            let text = format!(r#"{{"name": "a", "schema": "alertmanager", "senders": []{more}}}"#);
            word(false, None, Duration::ZERO, &source(&text)).map(|word| word.good_for)
        };
        assert_eq!(firing(""), Some(s(60)));
        assert_eq!(firing(r#", "good_for": "5m""#), Some(s(300)));
        assert_eq!(firing(r#", "good_for": "10s""#), Some(s(10)));
    }

    #[test]
    fn of_two_words_of_one_body_the_one_counts_that_its_group_is_for() {
        let of = |up, seconds| Word {
            up,
            good_for: s(seconds),
        };
        let (dead, alive) = (of(false, 10), of(true, 300));
        for (one, other) in [(dead, alive), (alive, dead)] {
            assert_eq!(one.with(other, Onlooker::Monitoring), dead);
            assert_eq!(one.with(other, Onlooker::Storage), alive);
        }
        assert_eq!(
            of(true, 10).with(alive, Onlooker::Storage),
            alive,
            "the longer of two alike"
        );
    }
}
