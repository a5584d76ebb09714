// SPDX-License-Identifier: Apache-2.0
//! What happened lately: the Events of the objects the console shows.

use askama::Template;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde::Deserialize;

use super::{Tone, ago, moment};
use crate::fleet::Known;

const KINDS: [&str; 4] = ["Hypervisor", "Eviction", "Migration", "Node"];

/// The feed.
#[derive(Debug, Template)]
#[template(path = "activity.html")]
pub struct Activity {
    /// The newest first.
    pub entries: Vec<Entry>,
    /// What of it was asked for.
    pub feed: Feed,
}

/// Which part of the feed is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Feed {
    /// Words that an entry must contain.
    #[serde(default)]
    pub q: String,
    /// Anything: only warnings.
    #[serde(default)]
    pub warnings: String,
}

impl Feed {
    /// Whether an entry is wanted.
    pub fn wants(&self, entry: &Entry) -> bool {
        let text = [
            entry.kind.as_str(),
            entry.name.as_str(),
            entry.reason.as_str(),
            entry.note.as_str(),
        ];
        let text = text.join(" ").to_lowercase();
        let worth = self.warnings.is_empty() || entry.tone >= Tone::Warn;
        worth
            && self
                .q
                .split_whitespace()
                .all(|word| text.contains(&word.to_lowercase()))
    }
}

/// One Event.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When, for a person.
    pub age: String,
    /// When, in full.
    pub at: String,
    /// What it is about.
    pub kind: String,
    /// Which one.
    pub name: String,
    /// Where to read more.
    pub link: Option<String>,
    /// Why, in one word.
    pub reason: String,
    /// In words.
    pub note: String,
    /// How often.
    pub count: i32,
    /// How it is doing.
    pub tone: Tone,
}

/// The moment an Event last occurred.
fn occurred(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let own = event.event_time.as_ref().map(|time| time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    series
        .or(own)
        .or(old)
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

impl Entry {
    fn of(event: &Event, now: Timestamp) -> Option<(Timestamp, Self)> {
        let about = event.regarding.as_ref()?;
        let kind = about.kind.clone().filter(|kind| KINDS.contains(&kind.as_str()))?;
        let name = about.name.clone().unwrap_or_default();
        let at = occurred(event)?;
        let link = match kind.as_str() {
            "Hypervisor" | "Node" => Some(format!("/hypervisors/{name}")),
            "Eviction" => Some("/evictions".into()),
            "Migration" => Some("/migrations".into()),
            _ => None,
        };
        let entry = Self {
            age: ago(now, at),
            at: moment(at),
            kind,
            name,
            link,
            reason: event.reason.clone().unwrap_or_default(),
            note: event.note.clone().unwrap_or_default(),
            count: event.series.as_ref().map_or(1, |series| series.count),
            tone: if event.type_.as_deref() == Some("Warning") {
                Tone::Warn
            } else {
                Tone::Good
            },
        };
        Some((at, entry))
    }
}

impl Activity {
    /// The newest `most` entries that `wanted` lets through.
    pub fn of(known: &Known, now: Timestamp, most: usize, wanted: impl Fn(&Entry) -> bool) -> Self {
        let mut entries: Vec<(Timestamp, Entry)> = known
            .events
            .objects()
            .filter_map(|event| Entry::of(event, now))
            .filter(|(_, entry)| wanted(entry))
            .collect();
        entries.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        entries.truncate(most);
        Self {
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
            feed: Feed::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_to_be_there_and_warnings_can_be_had_alone() {
        let entry = |tone| Entry {
            age: String::new(),
            at: String::new(),
            kind: "Hypervisor".into(),
            name: "node001".into(),
            link: None,
            reason: "PhaseChanged".into(),
            note: "Ready -> Active".into(),
            count: 1,
            tone,
        };
        let feed = |q: &str, warnings: &str| Feed {
            q: q.into(),
            warnings: warnings.into(),
        };
        assert!(feed("", "").wants(&entry(Tone::Good)));
        assert!(feed("NODE001 active", "").wants(&entry(Tone::Good)));
        assert!(!feed("node001 gone", "").wants(&entry(Tone::Good)));
        assert!(!feed("", "on").wants(&entry(Tone::Good)));
        assert!(feed("", "on").wants(&entry(Tone::Warn)));
    }
}
