// SPDX-License-Identifier: Apache-2.0
//! The spool in a process that is killed at random moments: what was accepted is there, once, under its number.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use cobaltcore_ha_agent::draft::Draft;
use cobaltcore_ha_agent::spool::{Limits, Place, Spool};
use cobaltcore_ha_wire::Kind;

const LIMITS: Limits = Limits {
    max_bytes: 64 << 20,
    segment_bytes: 64 << 10,
};

/// Writes for ever and says what was accepted; runs only as a child of the test below.
#[test]
fn child() {
    let Ok(dir) = std::env::var("SPOOL_CRASH_DIR") else {
        return;
    };
    let mut count: u64 = std::env::var("SPOOL_CRASH_FROM").unwrap().parse().unwrap();
    let (mut spool, _) = Spool::open(dir.as_ref(), LIMITS).unwrap();
    let mut out = std::io::stdout();
    loop {
        let group: Vec<Draft> = (0..=count % 7)
            .map(|_| {
                count += 1;
                Draft::now(
                    Kind::Lifecycle,
                    format!("event-{count}"),
                    "x".repeat((count % 200) as usize),
                )
            })
            .collect();
        let first = spool.flushed() + 1;
        spool.append(&group).unwrap();
        if let Some(file) = spool.to_flush().unwrap() {
            file.sync_data().unwrap();
        }
        spool.accept();
        for (draft, seq) in group.iter().zip(first..) {
            writeln!(out, "ACCEPTED {seq} {}", draft.event).unwrap();
        }
        out.flush().unwrap();
    }
}

fn records(spool: &Spool) -> Vec<(u64, String)> {
    let (mut place, mut after, mut all) = (Place::default(), 0, Vec::new());
    loop {
        let chunk = spool.read(after, 100, 1 << 20, &mut place).unwrap();
        let Some(last) = chunk.events.last() else {
            return all;
        };
        after = last.seq;
        all.extend(chunk.events.into_iter().map(|event| (event.seq, event.event)));
    }
}

#[test]
fn nothing_accepted_is_lost_and_nothing_has_two_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut accepted: BTreeMap<u64, String> = BTreeMap::new();
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("SPOOL_CRASH_DIR", dir.path())
            .env("SPOOL_CRASH_FROM", (round * 1_000_000).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        let mut hear = |line: &str| {
            let mut words = line.strip_prefix("ACCEPTED ")?.split(' ');
            let (seq, event) = (words.next()?.parse::<u64>().ok()?, words.next()?.to_owned());
            let before = accepted.insert(seq, event);
            assert_eq!(before, None, "number {seq} was given twice");
            Some(())
        };
        while seen < 20 + 37 * round {
            let line = lines.next().unwrap().unwrap();
            seen += u64::from(hear(&line).is_some());
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..40)));
        child.kill().unwrap();
        child.wait().unwrap();
        // A line that was cut by the end of the process was accepted too, but nobody was told.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        for line in rest.iter().take(rest.len().saturating_sub(1)) {
            hear(line);
        }
        let (spool, opened) = Spool::open(dir.path(), LIMITS).unwrap();
        assert_eq!(opened.lost, [], "round {round}");
        let found = records(&spool);
        let numbers: Vec<u64> = found.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let by_number: BTreeMap<u64, String> = found.iter().cloned().collect();
        for (seq, event) in &accepted {
            assert_eq!(by_number.get(seq), Some(event), "round {round}");
        }
        let mut names: Vec<&String> = by_number.values().collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), by_number.len(), "an event has two numbers");
        // What nobody was told of counts as accepted from now on.
        accepted = by_number;
    }
    assert!(accepted.len() > 1000);
}
