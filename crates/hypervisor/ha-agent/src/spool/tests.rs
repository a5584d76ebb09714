// SPDX-License-Identifier: Apache-2.0
//! The promises of the spool, with files that are cut, flipped and filled.

use cobaltcore_ha_wire::Kind;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::draft::tests::draft;

const LIMITS: Limits = Limits {
    max_bytes: 1 << 20,
    segment_bytes: 4096,
};

fn open(dir: &TempDir) -> (Spool, Opened) {
    Spool::open(dir.path(), LIMITS).unwrap()
}

fn put(spool: &mut Spool, count: usize, what: &str) {
    let drafts: Vec<Draft> = (0..count).map(|_| draft(Kind::Lifecycle, what)).collect();
    spool.append(&drafts).unwrap();
    if let Some(file) = spool.to_flush().unwrap() {
        file.sync_data().unwrap();
    }
    spool.accept();
}

/// The power goes: the marks beside the segments were never flushed.
fn lose_marks(dir: &TempDir) {
    for mark in ["sent", "cursors.json"] {
        let _ = std::fs::remove_file(dir.path().join(mark));
    }
}

fn all(spool: &Spool) -> Vec<(u64, String)> {
    let mut place = Place::default();
    let mut after = 0;
    let mut found = Vec::new();
    loop {
        let chunk = spool.read(after, 7, 1 << 20, &mut place).unwrap();
        let Some(last) = chunk.events.last() else {
            return found;
        };
        after = last.seq;
        found.extend(chunk.events.into_iter().map(|event| (event.seq, event.event)));
    }
}

fn numbers(spool: &Spool) -> Vec<u64> {
    all(spool).into_iter().map(|(seq, _)| seq).collect()
}

#[test]
fn what_was_accepted_is_there_after_a_restart_with_the_same_numbers() {
    let dir = TempDir::new().unwrap();
    let (mut spool, opened) = open(&dir);
    assert!(opened.new);
    put(&mut spool, 30, "one");
    put(&mut spool, 30, "two");
    let (before, id) = (all(&spool), spool.agent_id().clone());
    drop(spool);
    let (mut spool, opened) = open(&dir);
    assert_eq!(opened, Opened::default());
    assert_eq!((spool.agent_id(), spool.epoch()), (&id, 2));
    assert_eq!(all(&spool), before);
    put(&mut spool, 1, "three");
    assert_eq!(numbers(&spool), (1..=61).collect::<Vec<_>>());
}

/// What was accepted is waited for, also where a disk refuses everything for a while.
#[test]
fn what_was_accepted_outlives_a_failure_that_cannot_be_undone_at_once() {
    let dir = TempDir::new().unwrap();
    let (here, away) = (dir.path().join("spool"), dir.path().join("away"));
    let (mut spool, _) = Spool::open(&here, LIMITS).unwrap();
    put(&mut spool, 2, "accepted");
    spool.append(&[draft(Kind::Reboot, "never flushed")]).unwrap();
    std::fs::rename(&here, &away).unwrap();
    assert!(spool.rollback().is_err());
    let again = [draft(Kind::Reboot, "again")];
    assert!(spool.append(&again).is_err(), "not before the rest is taken back");
    std::fs::rename(&away, &here).unwrap();
    put(&mut spool, 1, "again");
    let wanted = [(1, "accepted"), (2, "accepted"), (3, "again")];
    assert_eq!(all(&spool), wanted.map(|(seq, event)| (seq, event.to_owned())));
    drop(spool);
    let (spool, opened) = Spool::open(&here, LIMITS).unwrap();
    assert_eq!(opened, Opened::default());
    assert_eq!(numbers(&spool), [1, 2, 3]);
}

#[test]
fn two_agents_never_share_a_spool() {
    let dir = TempDir::new().unwrap();
    let _first = open(&dir);
    assert!(matches!(
        Spool::open(dir.path(), LIMITS),
        Err(SpoolError::Busy { .. })
    ));
}

#[test]
fn what_was_written_and_not_accepted_is_not_read() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 2, "accepted");
    spool.append(&[draft(Kind::Reboot, "not yet")]).unwrap();
    assert_eq!(numbers(&spool), [1, 2]);
    spool.rollback().unwrap();
    put(&mut spool, 1, "instead");
    assert_eq!(all(&spool).last().unwrap(), &(3, "instead".to_owned()));
}

#[test]
fn a_lost_identity_is_a_new_one_and_its_records_are_kept_for_people() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 5, "x");
    let id = spool.agent_id().clone();
    drop(spool);
    std::fs::remove_file(dir.path().join("identity.json")).unwrap();
    let (spool, opened) = open(&dir);
    assert_ne!(spool.agent_id(), &id);
    assert!(opened.new && opened.lost.len() == 1);
    assert_eq!(numbers(&spool), Vec::<u64>::new());
    assert_eq!(
        std::fs::read_dir(dir.path().join("quarantine")).unwrap().count(),
        1
    );
}

#[test]
fn a_flipped_bit_loses_one_record_and_says_so() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 5, "x");
    let path = spool.segments[0].path.clone();
    drop(spool);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (mut spool, opened) = open(&dir);
    assert_eq!(numbers(&spool), [1, 2, 4, 5]);
    assert_eq!(opened.lost.len(), 1);
    assert_eq!(
        std::fs::read_dir(dir.path().join("quarantine")).unwrap().count(),
        1
    );
    put(&mut spool, 1, "x");
    assert_eq!(numbers(&spool), [1, 2, 4, 5, 6]);
}

#[test]
fn numbers_that_somebody_saw_are_not_given_to_other_records() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 5, "x");
    spool.sending(5).unwrap();
    let path = spool.segments[0].path.clone();
    drop(spool);
    // The disk forgets the last two records, exactly at the edge of one.
    let bytes = std::fs::read(&path).unwrap();
    let edge = frame::scan(&bytes).records[3].1;
    std::fs::write(&path, &bytes[..edge]).unwrap();
    let (mut spool, opened) = open(&dir);
    assert_eq!(opened.lost.len(), 1);
    put(&mut spool, 1, "y");
    assert_eq!(numbers(&spool), [1, 2, 3, 6]);
}

#[test]
fn a_service_that_knows_more_than_we_do_moves_the_numbers() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    spool.set_endpoints(&["a".into()]);
    put(&mut spool, 2, "x");
    assert!(!spool.ack("a", 2).unwrap());
    assert!(spool.ack("a", 100).unwrap());
    put(&mut spool, 1, "y");
    assert_eq!(all(&spool).last().unwrap().0, 101);
}

#[test]
fn what_is_shown_is_what_the_slowest_endpoint_lacks() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    spool.set_endpoints(&["a".into(), "b".into()]);
    put(&mut spool, 9, "x");
    spool.ack("a", 9).unwrap();
    spool.ack("b", 4).unwrap();
    assert_eq!((spool.state("a").depth, spool.state("b").depth), (0, 5));
    assert_eq!(spool.standing().worst().depth, 5);
}

#[test]
fn segments_go_when_everybody_has_them() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    spool.set_endpoints(&["a".into(), "b".into()]);
    for _ in 0..10 {
        put(&mut spool, 30, "x");
    }
    let whole = spool.segments.len();
    assert!(whole > 4);
    spool.ack("a", 300).unwrap();
    assert_eq!(spool.segments.len(), whole, "b lacks them");
    spool.ack("b", 155).unwrap();
    assert!(spool.segments.len() < whole);
    assert!(numbers(&spool).contains(&156) && numbers(&spool).contains(&300));
    spool.ack("b", 300).unwrap();
    assert_eq!(spool.segments.len(), 1, "the one that is written to stays");
}

/// The marks of what was sent and acknowledged are not flushed. Without power they may be what they were, or nothing.
#[test]
fn numbers_that_everybody_has_are_not_given_again_after_a_power_cut() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 9, "x");
    drop(spool);
    let (mut spool, _) = open(&dir);
    spool.set_endpoints(&["a".into()]);
    spool.sending(9).unwrap();
    spool.ack("a", 9).unwrap();
    drop(spool);
    lose_marks(&dir);
    let (mut spool, _) = open(&dir);
    put(&mut spool, 1, "y");
    assert_eq!(spool.flushed(), 10, "nine is known to a");
}

/// What was written after them is not flushed when they are known everywhere, and is lost with the power.
#[test]
fn numbers_are_not_given_again_when_the_power_goes_before_a_new_segment_was_flushed() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 9, "x");
    drop(spool);
    let (mut spool, _) = open(&dir);
    spool.set_endpoints(&["a".into()]);
    spool.append(&[draft(Kind::Lifecycle, "stopped")]).unwrap();
    spool.sending(9).unwrap();
    spool.ack("a", 9).unwrap();
    spool.collect().unwrap();
    let unflushed = spool.segments.last().unwrap().path.clone();
    drop(spool);
    std::fs::remove_file(unflushed).unwrap();
    lose_marks(&dir);
    let (mut spool, _) = open(&dir);
    put(&mut spool, 1, "y");
    assert_eq!(spool.flushed(), 10, "nine is known to a");
}

/// The cheapest go first, and those may be the newest. What was written after them is lost with the power.
#[test]
fn numbers_of_records_that_were_given_up_are_not_given_again_after_a_power_cut() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 20, "stopped");
    put(&mut spool, 20, "started");
    let limits = Limits {
        max_bytes: spool.bytes() / 2 + 2000,
        ..LIMITS
    };
    spool.set_limits(limits);
    spool.set_endpoints(&["a".into()]);
    spool.sending(40).unwrap();
    let big = draft(Kind::Lifecycle, "stopped").with("why", "x".repeat(7000));
    let dropped = spool.append(&[big]).unwrap().unwrap();
    assert_eq!(dropped.last, 40, "the newest are among those that went");
    let unflushed = spool.segments.last().unwrap().path.clone();
    drop(spool);
    std::fs::remove_file(unflushed).unwrap();
    lose_marks(&dir);
    let (mut spool, opened) = Spool::open(dir.path(), limits).unwrap();
    assert_eq!(opened, Opened::default(), "a gap, and nothing is damaged");
    put(&mut spool, 1, "y");
    assert_eq!(spool.flushed(), 41, "40 may be known to a");
}

#[test]
fn cursors_survive_and_a_rewind_offers_records_again() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = open(&dir);
    put(&mut spool, 9, "x");
    spool.ack("a", 7).unwrap();
    spool.skip("a", 8);
    spool.save_cursors().unwrap();
    drop(spool);
    let (mut spool, _) = open(&dir);
    let wanted = Cursor {
        acked: 7,
        skipped: [8].into(),
    };
    assert_eq!(spool.cursor("a"), wanted);
    spool.ack("a", 8).unwrap();
    assert!(spool.cursor("a").skipped.is_empty(), "behind it");
    spool.rewind("a", 3);
    assert_eq!(spool.cursor("a").acked, 2);
    let mut place = Place::default();
    assert_eq!(spool.read(8, 10, 1000, &mut place).unwrap().events[0].seq, 9);
    assert_eq!(spool.read(2, 10, 100_000, &mut place).unwrap().events[0].seq, 3);
}

#[test]
fn a_full_spool_gives_up_the_cheapest_first_and_announces_it() {
    let dir = TempDir::new().unwrap();
    let limits = Limits {
        max_bytes: 40_000,
        segment_bytes: 4096,
    };
    let (mut spool, _) = Spool::open(dir.path(), limits).unwrap();
    let mut dropped = BTreeMap::new();
    let mut pressed = false;
    for round in 0..200 {
        let drafts = [
            draft(Kind::AgentLifecycle, "connected"),
            draft(Kind::Reboot, ""),
            draft(Kind::Lifecycle, "stopped"),
        ];
        if let Some(now) = spool.append(&drafts).unwrap() {
            for (kind, count) in now.kinds {
                *dropped.entry(kind).or_insert(0) += count;
            }
        }
        spool.accept();
        pressed |= spool.is_pressed();
        assert!(spool.bytes() <= limits.max_bytes, "round {round}");
    }
    assert!(pressed);
    assert!(dropped[&Kind::AgentLifecycle] > 0 && dropped[&Kind::Reboot] > 0);
    let left = all(&spool);
    let stopped: Vec<_> = left.iter().filter(|(_, event)| event == "stopped").collect();
    let total: u64 = dropped.values().sum();
    assert_eq!(
        left.len() as u64 + total,
        600,
        "every record is there or was announced"
    );
    // The dearest go last: none of them while a cheaper one was left.
    if stopped.len() < 200 {
        assert_eq!(left.len(), stopped.len());
    }
    assert_eq!(spool.state("a").dropped_total, total);
    drop(spool);
    let (spool, opened) = Spool::open(dir.path(), limits).unwrap();
    assert_eq!(all(&spool), left);
    assert_eq!(opened, Opened::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens to the bytes: what is read was written under that number, in order, and a number that was
    /// sent is never given to another record.
    #[test]
    fn damage_never_changes_what_a_number_means(
        steps in proptest::collection::vec((0_u8..6, any::<u32>()), 1..25),
    ) {
        let dir = TempDir::new().unwrap();
        let mut meaning: BTreeMap<u64, String> = BTreeMap::new();
        let mut sent = 0;
        let mut spool = Some(open(&dir).0);
        for (count, (step, chance)) in steps.into_iter().enumerate() {
            let mut now = match spool.take() { Some(spool) => spool, None => open(&dir).0 };
            for (seq, event) in all(&now) {
                if seq <= sent {
                    prop_assert_eq!(meaning.get(&seq), Some(&event), "number {}", seq);
                }
                meaning.insert(seq, event);
            }
            match step {
                0..=2 => {
                    put(&mut now, 1 + (chance % 20) as usize, &format!("step {count}"));
                    spool = Some(now);
                }
                3 => {
                    sent = now.flushed();
                    for (seq, event) in all(&now) {
                        meaning.insert(seq, event);
                    }
                    now.sending(sent).unwrap();
                    spool = Some(now);
                }
                _ => {
                    let path = now.segments.get(chance as usize % now.segments.len().max(1)).map(|s| s.path.clone());
                    drop(now);
                    let Some(path) = path else { continue };
                    let mut bytes = std::fs::read(&path).unwrap();
                    let place = chance as usize % bytes.len().max(1);
                    if step == 4 {
                        bytes.truncate(place);
                    } else if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 1 << (chance % 8);
                    }
                    std::fs::write(&path, bytes).unwrap();
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let scan = frame::scan(&bytes);
        prop_assert!(scan.end <= bytes.len());
    }
}
