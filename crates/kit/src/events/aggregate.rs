// SPDX-License-Identifier: Apache-2.0
//! Folds repetitions of an event into a series: the first is created, the second turns it
//! into a series at once, later ones are counted and written at most once per quiet period.
//! The note of an event cannot change, so another note is another event, a few times per quiet
//! period; after that, notes that differ are only counted.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::{Happening, Reporter, Severity};

/// A series ends when its event did not recur for this long, as elsewhere in Kubernetes.
const SERIES_END: SignedDuration = SignedDuration::from_mins(6);
const MOST_SERIES: usize = 4096;
const LONGEST_NOTE: usize = 1024;
/// Events of one kind about one object that may differ only in their notes, per quiet period.
const MOST_NOTES: u32 = 10;
const LONGEST_WORD: usize = 128;

/// What to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Nothing,
    Create(Event),
    Series(Event),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    object: (String, String, String, String),
    severity: Severity,
    reason: String,
    action: String,
}

#[derive(Clone, Debug)]
struct Running {
    event: Event,
    count: i32,
    last: Timestamp,
    written: Timestamp,
    written_count: i32,
    /// Events made for this key since `notes_since`.
    notes: u32,
    notes_since: Timestamp,
}

pub(super) struct Aggregator {
    reporter: Reporter,
    quiet: SignedDuration,
    running: HashMap<Key, Running>,
    made: u64,
}

impl Aggregator {
    pub(super) fn new(reporter: Reporter) -> Self {
        let quiet = SignedDuration::try_from(reporter.quiet).unwrap_or(SignedDuration::from_mins(10));
        Self {
            reporter,
            quiet,
            running: HashMap::new(),
            made: 0,
        }
    }

    /// Takes note of a happening and says what to send.
    pub(super) fn take(&mut self, object: &ObjectReference, happening: &Happening, now: Timestamp) -> Write {
        let end = SERIES_END.max(self.quiet);
        let key = key(object, happening);
        let note = cut(&happening.note, LONGEST_NOTE);
        let (mut notes, mut notes_since) = (1, now);
        if let Some(series) = self
            .running
            .get_mut(&key)
            .filter(|series| now.duration_since(series.last) < end)
        {
            if now.duration_since(series.notes_since) >= self.quiet {
                (series.notes, series.notes_since) = (0, now);
            }
            (notes, notes_since) = (series.notes.saturating_add(1), series.notes_since);
        }
        if let Some(series) = self.running.get_mut(&key).filter(|series| {
            let same = series.event.note.as_deref() == Some(note.as_str());
            now.duration_since(series.last) < end && (same || notes > MOST_NOTES)
        }) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            let early = series.count > 2 && now.duration_since(series.written) < self.quiet;
            return if early {
                Write::Nothing
            } else {
                Write::Series(series.write(now))
            };
        }
        self.make_room(now, end);
        let event = self.event(object, happening, now);
        let running = Running {
            event: event.clone(),
            count: 1,
            last: now,
            written: now,
            written_count: 1,
            notes,
            notes_since,
        };
        self.running.insert(key, running);
        Write::Create(event)
    }

    /// Series that were counted but not written, and whose quiet period is over.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Write> {
        let quiet = self.quiet;
        let late = self.running.values_mut().filter(|series| {
            series.count > series.written_count && now.duration_since(series.written) >= quiet
        });
        late.map(|series| Write::Series(series.write(now))).collect()
    }

    /// Starts over with an event that could not be written.
    pub(super) fn forget(&mut self, event: &Event) {
        self.running
            .retain(|_, series| series.event.metadata.name != event.metadata.name);
    }

    /// Drops series that are over, and when there are too many the ones silent for longest.
    fn make_room(&mut self, now: Timestamp, end: SignedDuration) {
        if self.running.len() < MOST_SERIES {
            return;
        }
        self.running
            .retain(|_, series| now.duration_since(series.last) < end);
        if self.running.len() >= MOST_SERIES {
            let mut times: Vec<Timestamp> = self.running.values().map(|series| series.last).collect();
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or(now);
            self.running.retain(|_, series| series.last > median);
        }
    }

    fn event(&mut self, object: &ObjectReference, happening: &Happening, now: Timestamp) -> Event {
        self.made += 1;
        let name = object.name.as_deref().unwrap_or("unknown");
        let stamp = now.as_nanosecond().saturating_add(i128::from(self.made));
        Event {
            metadata: ObjectMeta {
                // Room for the suffix within the limit of object names.
                name: Some(format!("{}.{stamp:x}", cut(name, 200))),
                namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".into())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(match happening.severity {
                Severity::Normal => "Normal".into(),
                Severity::Warning => "Warning".into(),
            }),
            reason: Some(cut(&happening.reason, LONGEST_WORD)),
            action: Some(cut(&happening.action, LONGEST_WORD)),
            note: Some(cut(&happening.note, LONGEST_NOTE)),
            regarding: Some(object.clone()),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: Some(cut(&self.reporter.instance, LONGEST_WORD)),
            ..Event::default()
        }
    }
}

impl Running {
    fn write(&mut self, now: Timestamp) -> Event {
        self.written = now;
        self.written_count = self.count;
        self.event.series = Some(EventSeries {
            count: self.count,
            last_observed_time: MicroTime(self.last),
        });
        self.event.clone()
    }
}

fn key(object: &ObjectReference, happening: &Happening) -> Key {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Key {
        object: (
            text(&object.kind),
            text(&object.namespace),
            text(&object.name),
            text(&object.uid),
        ),
        severity: happening.severity,
        reason: happening.reason.clone(),
        action: happening.action.clone(),
    }
}

/// The longest beginning of at most `limit` bytes.
fn cut(text: &str, limit: usize) -> String {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn aggregator() -> Aggregator {
        Aggregator::new(Reporter {
            controller: "c".into(),
            instance: "i".into(),
            quiet: Duration::from_mins(10),
        })
    }

    fn host(name: &str) -> ObjectReference {
        ObjectReference {
            kind: Some("Hypervisor".into()),
            name: Some(name.into()),
            ..ObjectReference::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn lost(note: &str) -> Happening {
        Happening::warning("LibvirtLost", "Connecting", note)
    }

    #[test]
    fn repetitions_become_a_series_that_is_written_rarely() {
        let mut events = aggregator();
        let Write::Create(first) = events.take(&host("n1"), &lost("one"), at(0)) else {
            panic!()
        };
        assert_eq!((first.series, first.type_.as_deref()), (None, Some("Warning")));
        let Write::Series(second) = events.take(&host("n1"), &lost("one"), at(10)) else {
            panic!()
        };
        assert_eq!(second.series.as_ref().map(|s| s.count), Some(2));
        assert_eq!(second.metadata.name, first.metadata.name);
        for second in 11..100 {
            assert_eq!(events.take(&host("n1"), &lost("one"), at(second)), Write::Nothing);
        }
        assert_eq!(events.due(at(300)), []);
        let [Write::Series(late)] = &events.due(at(610))[..] else {
            panic!()
        };
        let series = late.series.as_ref().unwrap();
        assert_eq!((series.count, series.last_observed_time.0), (91, at(99)));
        assert_eq!(events.due(at(9999)), [], "nothing new to tell");
    }

    #[test]
    fn another_note_is_another_event_until_there_are_too_many() {
        let mut events = aggregator();
        for count in 0..MOST_NOTES {
            let made = events.take(&host("n1"), &lost(&format!("{count} left")), at(i64::from(count)));
            assert!(matches!(made, Write::Create(_)), "{made:?}");
        }
        let Write::Series(more) = events.take(&host("n1"), &lost("one more"), at(20)) else {
            panic!("counted, not created")
        };
        assert_eq!(more.note.as_deref(), Some("9 left"), "a note cannot change");
        assert_eq!(
            events.take(&host("n1"), &lost("and another"), at(21)),
            Write::Nothing
        );
        let later = events.take(&host("n1"), &lost("much later"), at(610));
        assert!(matches!(later, Write::Create(_)), "{later:?}");
    }

    #[test]
    fn after_silence_a_new_event_begins() {
        let mut events = aggregator();
        let Write::Create(first) = events.take(&host("n1"), &lost(""), at(0)) else {
            panic!()
        };
        let Write::Create(second) = events.take(&host("n1"), &lost(""), at(601)) else {
            panic!()
        };
        assert_ne!(first.metadata.name, second.metadata.name);
    }

    #[test]
    fn different_objects_and_reasons_do_not_mix() {
        let mut events = aggregator();
        let other = Happening::normal("LibvirtConnected", "Connecting", "");
        for (object, happening) in [("n1", lost("")), ("n2", lost("")), ("n1", other)] {
            assert!(matches!(
                events.take(&host(object), &happening, at(0)),
                Write::Create(_)
            ));
        }
    }

    #[test]
    fn an_event_that_was_not_written_is_tried_as_new() {
        let mut events = aggregator();
        let Write::Create(first) = events.take(&host("n1"), &lost(""), at(0)) else {
            panic!()
        };
        events.forget(&first);
        assert!(matches!(
            events.take(&host("n1"), &lost(""), at(1)),
            Write::Create(_)
        ));
    }

    #[test]
    fn memory_is_bounded() {
        let mut events = aggregator();
        for number in 0..3 * MOST_SERIES {
            events.take(&host(&format!("n{number}")), &lost(""), at(number as i64 / 100));
        }
        assert!(events.running.len() <= MOST_SERIES);
    }

    #[test]
    fn long_texts_are_cut_to_what_the_api_takes() {
        let mut events = aggregator();
        let long = "\u{e4}".repeat(2000);
        let Write::Create(event) = events.take(&host(&"h".repeat(250)), &lost(&long), at(0)) else {
            panic!()
        };
        assert_eq!(event.note.unwrap().len(), 1024);
        assert!(event.metadata.name.unwrap().len() <= 253);
    }
}
