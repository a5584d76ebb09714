// SPDX-License-Identifier: Apache-2.0
//! The wire as both sides must see it: the documented example, what is refused, and the rule of numbering.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use cobaltcore_ha_wire::{
    Admission, AgentId, Batch, BatchAnswer, BootId, CommandKind, CommandList, Envelope, Event, HostName,
    Kind, Problem, SCHEMA, WireError,
};
use proptest::prelude::*;

const EXAMPLE: &str = r#"{"schema":1,"host":"node001-bb234","agent_id":"5c2c0000-0000-4000-8000-000000000001",
 "boot_id":"9b1e0000-0000-4000-8000-000000000001","epoch":17,
 "sent_at":"2026-09-01T10:00:00.123456789Z","mono_ns":812345678901234,
 "first_seq":1041,"last_seq":1041,"dropped":[[900,950]],
 "events":[{"seq":1041,"ts":"2026-09-01T09:59:59.1Z","mono_ns":812345600000000,"kind":"lifecycle","event":"stopped",
            "detail":"failed","domain":{"uuid":"00000000-0000-4000-8000-0000000000a1","name":"instance-0000a1","id":-1},
            "attrs":{"n":3,"b":true,"t":"x"},"synthetic":false}]}"#;

/// Bytes that mean something in a batch.
const ODD: &[u8] = b"{}[]\",:0-9";

fn envelope() -> Envelope {
    Envelope {
        schema: SCHEMA,
        host: HostName::new("n1").unwrap(),
        agent_id: AgentId("a".into()),
        boot_id: BootId("b".into()),
        epoch: 1,
        sent_at: jiff::Timestamp::UNIX_EPOCH,
        mono_ns: 1,
    }
}

fn event(seq: u64) -> Event {
    Event {
        seq,
        ts: jiff::Timestamp::UNIX_EPOCH,
        mono_ns: seq,
        kind: Kind::Reboot,
        event: String::new(),
        detail: String::new(),
        domain: None,
        attrs: BTreeMap::new(),
        count: 1,
        synthetic: false,
    }
}

fn batch(events: impl IntoIterator<Item = u64>, dropped: &[(u64, u64)]) -> Batch {
    Batch {
        events: events.into_iter().map(event).collect(),
        dropped: dropped.iter().map(|(first, last)| *first..=*last).collect(),
        ..Batch::empty(envelope())
    }
}

#[test]
fn the_documented_batch_is_read_and_written_the_same() {
    let batch = Batch::decode(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(batch.envelope.epoch, 17);
    assert_eq!(batch.dropped, [900..=950]);
    assert!(batch.events[0].urgent());
    assert_eq!(batch.events[0].count, 1);
    let again: serde_json::Value = serde_json::from_slice(&batch.encode().unwrap()).unwrap();
    let first: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
    for key in ["first_seq", "last_seq", "dropped", "host", "sent_at", "mono_ns"] {
        assert_eq!(again[key], first[key], "{key}");
    }
    assert_eq!(again["events"][0]["attrs"], first["events"][0]["attrs"]);
}

#[test]
fn what_is_not_understood_is_refused() {
    for (from, to) in [
        (r#""schema":1"#, r#""schema":2"#),
        (r#""epoch":17"#, r#""epoch":17,"surprise":1"#),
        (r#""id":-1"#, r#""id":-1,"surprise":1"#),
        (r#""first_seq":1041"#, r#""first_seq":1040"#),
        (r#""kind":"lifecycle""#, r#""kind":"lifecycles""#),
        ("[[900,950]]", "[[950,900]]"),
        ("[[900,950]]", "[[900,950],[940,960]]"),
        ("5c2c0000-0000-4000-8000-000000000001", "no identifier"),
        (r#""n":3"#, r#""n":[3]"#),
        ("node001-bb234", "Node001"),
    ] {
        let changed = EXAMPLE.replace(from, to);
        assert_ne!(changed, EXAMPLE, "{from}");
        assert!(Batch::decode(changed.as_bytes()).is_err(), "{to}");
    }
    let long = EXAMPLE.replace("instance-0000a1", &"x".repeat(257));
    assert!(matches!(
        Batch::decode(long.as_bytes()),
        Err(WireError::Invalid { .. })
    ));
    let (half, _) = EXAMPLE.split_at(EXAMPLE.len() / 2);
    assert!(matches!(
        Batch::decode(half.as_bytes()),
        Err(WireError::Malformed(_))
    ));
    let large = vec![b' '; cobaltcore_ha_wire::bounds::BODY + 1];
    assert!(matches!(Batch::decode(&large), Err(WireError::TooLarge { .. })));
}

#[test]
fn a_batch_that_leaves_numbers_out_is_refused_unless_it_says_so() {
    let decode = |batch: &Batch| Batch::decode(&batch.encode().unwrap());
    assert!(decode(&batch([5, 6, 7], &[])).is_ok());
    assert!(decode(&batch([5, 7], &[])).is_err());
    assert!(decode(&batch([5, 7], &[(6, 6)])).is_ok());
    assert!(decode(&batch([5, 7], &[(1, 3), (6, 6)])).is_ok());
    assert!(decode(&batch([5, 6], &[(6, 6)])).is_err(), "dropped and sent");
    assert!(decode(&batch([6, 5], &[])).is_err());
    assert!(decode(&batch([0], &[])).is_err());
}

#[test]
fn the_rule_of_numbering() {
    let take = |skip, last| Admission::Take { skip, last };
    for (stored, batch, then) in [
        (0, batch([1, 2, 3], &[]), take(0, 3)),
        (2, batch([1, 2, 3], &[]), take(2, 3)),
        (3, batch([1, 2, 3], &[]), take(3, 3)),
        (9, batch([1, 2, 3], &[]), take(3, 9)),
        (3, batch([5], &[]), Admission::Expected(4)),
        (3, batch([5], &[(4, 4)]), take(0, 5)),
        (0, batch([5], &[(4, 4)]), Admission::Expected(1)),
        (0, batch([5], &[(1, 4)]), take(0, 5)),
        (3, batch([], &[(4, 9)]), take(0, 9)),
        (3, batch([], &[(5, 9)]), Admission::Expected(4)),
        (3, batch([], &[]), take(0, 3)),
        (3, batch([3, 4, 7], &[(5, 6), (8, 10)]), take(1, 10)),
    ] {
        assert_eq!(batch.admit(stored), then, "{stored} {:?}", batch.dropped);
    }
}

#[test]
fn answers_are_read_leniently() {
    let answer: BatchAnswer = serde_json::from_str(
        r#"{"acked_seq":7,"server_time":"2026-09-01T10:00:00Z","news":1,"commands":[
            {"id":"c1","expires_in_ms":5000,"type":"probe","timeout_ms":2000,
             "targets":[{"address":"10.0.0.7","method":"tcp","port":22}]},
            {"id":"c2","expires_in_ms":5000,"type":"resync"},
            {"id":"c3","expires_in_ms":5000,"type":"pause_domain","uuid":"00000000-0000-4000-8000-0000000000a1"},
            {"id":"c4","expires_in_ms":5000,"type":"dance","steps":3}]}"#,
    )
    .unwrap();
    assert!(!answer.hold);
    assert!(matches!(&answer.commands[0].kind, CommandKind::Probe { targets, .. } if targets[0].port == 22));
    assert_eq!(answer.commands[1].kind, CommandKind::Resync);
    assert!(matches!(answer.commands[2].kind, CommandKind::PauseDomain { .. }));
    assert_eq!(answer.commands[3].kind, CommandKind::Unknown);
    assert_eq!(serde_json::from_str::<CommandList>("{}").unwrap().commands, []);
    let problem: Problem = serde_json::from_str(r#"{"expected_seq":3}"#).unwrap();
    assert_eq!(problem.expected_seq, Some(3));
    let sent = serde_json::to_value(Problem::expected(3)).unwrap();
    assert_eq!(
        (sent["status"].as_u64(), sent["expected_seq"].as_u64()),
        (Some(409), Some(3))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is sent again, in whatever cuts, a service ends with every number once.
    #[test]
    fn replays_in_any_cut_store_each_number_once(
        lost in proptest::collection::btree_set(1_u64..60, 0..20),
        cuts in proptest::collection::vec((0_u64..60, 1_u64..20), 1..60),
    ) {
        let mut stored = Vec::new();
        let mut last = 0;
        for (from, length) in cuts.into_iter().chain((0..60).map(|from| (from, 1))) {
            let numbers: Vec<u64> = (from.max(1)..from + length).filter(|n| *n < 60).collect();
            let dropped: Vec<(u64, u64)> = numbers.iter().filter(|n| lost.contains(n)).map(|n| (*n, *n)).collect();
            let sent = batch(numbers.iter().copied().filter(|n| !lost.contains(n)), &dropped);
            prop_assert!(Batch::decode(&sent.encode().unwrap()).is_ok());
            match sent.admit(last) {
                Admission::Take { skip, last: now } => {
                    stored.extend(sent.events[skip..].iter().map(|event| event.seq));
                    prop_assert!(now >= last);
                    last = now;
                }
                Admission::Expected(expected) => prop_assert_eq!(expected, last + 1),
            }
        }
        let whole: Vec<u64> = (1..60).filter(|n| !lost.contains(n)).collect();
        prop_assert_eq!(stored, whole);
    }

    /// Batches a few bytes away from a good one are read or refused, and what is read holds together.
    #[test]
    fn no_damage_to_a_good_batch_makes_decoding_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6),
    ) {
        let mut bytes = batch(3..=9, &[(1, 2)]).encode().unwrap();
        for (place, value, what) in damage {
            let place = place.index(bytes.len());
            match what {
                0 => bytes[place] = value,
                1 => bytes[place] ^= 1 << (value % 8),
                2 => bytes.insert(place, ODD[usize::from(value) % ODD.len()]),
                _ => drop(bytes.remove(place)),
            }
        }
        if let Ok(read) = Batch::decode(&bytes) {
            let again = Batch::decode(&read.encode().unwrap()).unwrap();
            prop_assert_eq!(again, read);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Batch::decode(&bytes);
    }
}
