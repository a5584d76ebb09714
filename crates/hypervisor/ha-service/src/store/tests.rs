// SPDX-License-Identifier: Apache-2.0
//! What was acknowledged is there after a crash, once; what is old goes; what is damaged is put aside.

use super::*;
use cobaltcore_ha_wire::{BootId, Envelope, Event, HostName, Kind, SCHEMA};

fn batch(agent: &str, seqs: std::ops::RangeInclusive<u64>) -> Arc<Batch> {
    let now = jiff::Timestamp::now();
    let envelope = Envelope {
        schema: SCHEMA,
        host: HostName::new("n1").unwrap(),
        agent_id: AgentId(agent.into()),
        boot_id: BootId("b1".into()),
        epoch: 1,
        sent_at: now,
        mono_ns: 1,
    };
    let mut batch = Batch::empty(envelope);
    batch.events = seqs
        .map(|seq| Event {
            seq,
            ts: now,
            mono_ns: seq,
            kind: Kind::Lifecycle,
            event: "stopped".into(),
            detail: "failed".into(),
            domain: None,
            attrs: std::iter::once(("n".to_owned(), (seq as i64).into())).collect(),
            count: 1,
            synthetic: false,
        })
        .collect();
    Arc::new(batch)
}

async fn seqs(store: &Store) -> Vec<u64> {
    let (events, _) = store.events(EventFilter::default(), 1000).await.unwrap();
    events.into_iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn records_are_stored_once_and_gaps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let take = |skip, last| Stored::Taken { skip, last };
    assert_eq!(store.ingest(batch("a", 1..=3), 10).await.unwrap(), take(0, 3));
    assert_eq!(store.ingest(batch("a", 2..=5), 11).await.unwrap(), take(2, 5));
    assert_eq!(store.ingest(batch("a", 1..=5), 12).await.unwrap(), take(5, 5));
    assert_eq!(
        store.ingest(batch("a", 8..=9), 13).await.unwrap(),
        Stored::Expected(6)
    );
    // Another spool counts for itself.
    assert_eq!(store.ingest(batch("b", 1..=1), 14).await.unwrap(), take(0, 1));
    let mut found = seqs(&store).await;
    found.sort_unstable();
    assert_eq!(found, [1, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn dropped_ranges_are_gone_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let mut late = Arc::unwrap_or_clone(batch("a", 11..=12));
    late.dropped = vec![1..=10];
    let stored = store.ingest(Arc::new(late), 1).await.unwrap();
    assert_eq!(stored, Stored::Taken { skip: 0, last: 12 });
    let gaps: i64 = store
        .read(|c| c.query_row("select gaps from streams", [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(gaps, 10);
}

#[tokio::test]
async fn many_agents_at_once_are_all_answered_and_all_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = Store::open(folder.path(), Durability::Full).unwrap();
        let all = (0..64).map(|n| {
            let store = store.clone();
            async move {
                for first in [1, 51] {
                    let stored = store
                        .ingest(batch(&format!("agent-{n}"), first..=first + 49), 5)
                        .await
                        .unwrap();
                    assert!(matches!(stored, Stored::Taken { skip: 0, .. }));
                }
            }
        });
        futures::future::join_all(all).await;
    }
    let store = Store::open(folder.path(), Durability::Full).unwrap();
    assert_eq!(store.last_seq(&AgentId("agent-63".into())), 100);
    let rows: i64 = store
        .read(|c| c.query_row("select count(*) from events", [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(rows, 6400);
}

#[tokio::test]
async fn a_damaged_file_is_put_aside_and_a_newer_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("telemetry.db");
    std::fs::write(&path, b"this is no database, but it has some length").unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    assert!(seqs(&store).await.is_empty());
    let aside = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("damaged")
        })
        .count();
    assert_eq!(aside, 1, "the damaged file is kept for people to look at");
    store
        .write(|t| {
            t.execute("update meta set value = 99 where key = 'layout'", [])
                .map(drop)
        })
        .await
        .unwrap();
    drop(store);
    // The writer ends with the last handle; opening waits for it through the file's lock.
    let refused = Store::open(folder.path(), Durability::Normal).err().unwrap();
    assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused}");
}

#[tokio::test]
async fn one_failing_wish_does_not_take_the_others_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let bad = store.write(|t| t.execute("insert into nowhere values(1)", []).map(drop));
    let good = store.ingest(batch("a", 1..=2), 1);
    let (bad, good) = tokio::join!(bad, good);
    assert!(bad.is_err());
    assert_eq!(good.unwrap(), Stored::Taken { skip: 0, last: 2 });
    assert_eq!(seqs(&store).await, [1, 2]);
}

#[tokio::test]
async fn what_is_old_goes_and_what_is_too_much_goes_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let day = 86_400_000;
    let now = 100 * day;
    store.ingest(batch("a", 1..=3), now - 20 * day).await.unwrap();
    store.ingest(batch("a", 4..=6), now - day).await.unwrap();
    let limits = Limits {
        retention: Retention::default(),
        max_bytes: 1 << 30,
    };
    let pruned = store.clean(&limits, now).await.unwrap();
    assert_eq!((pruned.old, pruned.surplus), (3, 0));
    assert_eq!(seqs(&store).await, [4, 5, 6]);
    let tiny = Limits {
        max_bytes: 1,
        ..limits
    };
    assert_eq!(store.clean(&tiny, now).await.unwrap().surplus, 3);
    // The numbering survives the records: nothing is stored twice.
    assert_eq!(
        store.ingest(batch("a", 4..=6), now).await.unwrap(),
        Stored::Taken { skip: 3, last: 6 }
    );
}

#[tokio::test]
async fn events_come_in_pages_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    for n in 0..5 {
        store
            .ingest(batch(&format!("a{n}"), 1..=7), i64::from(n % 2))
            .await
            .unwrap();
    }
    let mut after = None;
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let filter = EventFilter {
            host: Some("n1".into()),
            after,
            ..EventFilter::default()
        };
        let (page, more) = store.events(filter, 4).await.unwrap();
        for event in page {
            assert!(
                seen.insert((event.agent_id, event.seq)),
                "no event is on two pages"
            );
        }
        after = more;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 35);
}

use crate::config::Retention;
