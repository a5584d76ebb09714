// SPDX-License-Identifier: Apache-2.0
//! What must hold whatever comes in: the journal tells exactly what the engine knows, records
//! survive being written down, and old or doubled telemetry changes nothing.

#![allow(clippy::unwrap_used)]

mod play;

use cobaltcore_ha_engine::{
    Config, Effect, Engine, Entry, Epoch, Evidence, Group, IncidentId, IncidentKind, IncidentState, Input,
    Ledger, Mono, Now, Observation, Record, ReplicaId, ServiceFacts, VERSION, Verdict,
};
use play::{Play, at, beat, host};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, folding the journal gives the ledger of the engine that wrote it, also
    /// after every record went through JSON.
    #[test]
    fn the_journal_tells_what_the_engine_knows(
        silent in 0u8..64,
        script in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 60..160),
    ) {
        let mut play = Play::new();
        for second in 0..70 {
            play.second(0, true);
            let _ = second;
        }
        for (pick, how, renew) in script {
            play.second(silent, renew || !pick.is_multiple_of(4));
            for n in 0..3 {
                play.answer(pick as usize + n, how.wrapping_add(n as u8), silent);
            }
        }
        let read: Vec<Record> = play
            .journal
            .iter()
            .map(|record| serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap())
            .collect();
        prop_assert_eq!(&read, &play.journal);
        prop_assert_eq!(&Ledger::replay(&read).unwrap(), play.engine.ledger());
    }

    /// Heartbeats that were heard before, in any order and number, are no sign of life.
    #[test]
    fn old_heartbeats_prove_nothing(replayed in proptest::collection::vec((0u64..20, 0u8..2), 0..60)) {
        let mut play = Play::new();
        for n in 0..10u64 {
            play.step(Input::Saw(Observation::Heartbeat(beat(0, 0, n * 5))));
        }
        for n in 10..20u64 {
            play.step(Input::Saw(Observation::Heartbeat(beat(0, 1, n * 5))));
        }
        play.now += 60_000;
        for (n, boot) in replayed {
            let mono = if boot == 0 { n.min(9) * 5 } else { n.max(10) * 5 };
            play.step(Input::Saw(Observation::Heartbeat(beat(0, boot, mono))));
        }
        let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
        prop_assert_ne!(status.evidence.of(Group::A).verdict, Verdict::Alive);
        play.step(Input::Saw(Observation::Heartbeat(beat(0, 1, 1_000))));
        let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
        prop_assert_eq!(status.evidence.of(Group::A).verdict, Verdict::Alive);
    }
}

#[test]
fn a_compute_service_that_still_looks_up_is_no_sign_of_life() {
    let mut play = Play::new();
    let service = |token: &str| ServiceFacts {
        updated_at: token.into(),
        up: true,
        disabled: false,
        forced_down: false,
    };
    for _ in 0..8 {
        play.now += 5_000;
        play.step(Input::Saw(Observation::Services(vec![(host(0), service("old"))])));
    }
    let verdict = |play: &Play| {
        play.engine
            .host_status(&host(0), at(play.now))
            .unwrap()
            .evidence
            .of(Group::N)
            .verdict
    };
    assert_eq!(
        verdict(&play),
        Verdict::Dead,
        "it says up, and never reported while we watched"
    );
    play.step(Input::Saw(Observation::Services(vec![(host(0), service("new"))])));
    assert_eq!(verdict(&play), Verdict::Alive);
}

#[test]
fn a_journal_of_a_newer_program_or_with_a_gap_is_refused() {
    let mut play = Play::new();
    play.second(0, true);
    let mut newer = play.journal.clone();
    newer[0].version = VERSION + 1;
    assert!(
        Ledger::replay(&newer)
            .unwrap_err()
            .to_string()
            .contains(&format!("version {}", VERSION + 1))
    );
    let mut gap = play.journal.clone();
    gap[0].seq = 7;
    assert!(
        Ledger::replay(&gap)
            .unwrap_err()
            .to_string()
            .contains("record 7 follows record 0")
    );
    let mut engine = Engine::new(Config::default(), ReplicaId(1));
    let output = engine.step(
        Input::Lead {
            epoch: Epoch(5),
            sent_at: Mono(1),
            journal: gap,
        },
        at(1),
    );
    assert_eq!(
        output.actions.first().map(|a| a.effect.clone()),
        Some(Effect::Resign)
    );
    assert_eq!(engine.leads(), None);
}

#[test]
fn a_leader_that_could_not_renew_starts_nothing() {
    let mut play = Play::new();
    for _ in 0..70 {
        play.second(0, true);
    }
    play.open.clear();
    for _ in 0..60 {
        play.second(1, false);
    }
    assert!(
        play.open.iter().all(|action| action.not_after < Mono(play.now)),
        "{:?}",
        play.open
    );
    assert_eq!(play.effects, 0);
}

#[test]
fn what_has_been_over_for_thirty_days_is_forgotten_and_a_successor_reads_on() {
    let mut play = Play::new();
    let incident = IncidentId {
        epoch: Epoch(1),
        n: 1,
        host: host(0),
        opened_ms: None,
    };
    let day = |n: i64| jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * n);
    let record = |seq, at, entry| Record {
        version: VERSION,
        seq,
        epoch: Epoch(1),
        at,
        entry,
    };
    let opened = Entry::Opened {
        incident: incident.clone(),
        kind: IncidentKind::HostDown,
        by: "monitor/host-down".into(),
        boot: None,
        evidence: Box::new(Evidence::default()),
        announced: false,
    };
    let closed = Entry::Moved {
        incident: incident.clone(),
        state: IncidentState::Closed,
    };
    let journal = vec![
        record(1, day(0), Entry::Led),
        record(2, day(1), opened),
        record(3, day(2), closed),
    ];
    let mut lead = |journal: Vec<Record>, days: i64| {
        let mut records = journal.clone();
        let epoch = journal.last().map_or(1, |record| record.epoch.0 + 1);
        for wait in [0, 1000] {
            play.now += wait;
            let now = Now {
                mono: Mono(play.now),
                wall: day(days),
            };
            let sent_at = now.mono;
            let input = match wait {
                0 => Input::Lead {
                    epoch: Epoch(epoch),
                    sent_at,
                    journal: journal.clone(),
                },
                _ => Input::Tick,
            };
            records.extend(play.engine.step(input, now).journal);
        }
        records
    };
    let kept = lead(journal.clone(), 31);
    assert!(Ledger::replay(&kept).unwrap().incidents.contains_key(&incident));
    let mut after = lead(journal, 33);
    let forgets = |record: &Record| {
        record.entry
            == Entry::Forgotten {
                incident: incident.clone(),
            }
    };
    assert!(after.iter().any(forgets), "{after:?}");
    assert!(Ledger::replay(&after).unwrap().incidents.is_empty());
    // Half of its records have left already, and one stands for them.
    after.drain(..2);
    after.insert(0, record(1, day(1), Entry::Left { until: 2 }));
    let read = Ledger::replay(&after).unwrap();
    assert_eq!((read.seq, read.incidents.len()), (after.last().unwrap().seq, 0));
    let next = lead(after, 33);
    assert_eq!(next.iter().filter(|record| forgets(record)).count(), 1, "once");
    assert_eq!(next.last().unwrap().epoch, Epoch(3), "{next:?}");
}
