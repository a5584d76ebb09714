// SPDX-License-Identifier: Apache-2.0
//! What was acknowledged is there after a crash, once; what is old goes; what is damaged is put aside.

use super::*;
use cobaltcore_ha_wire::{BootId, Envelope, Event, HostName, Kind, SCHEMA, ServerId};

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
    let take = |skip, last| Stored::Taken { skip, last, lost: 0 };
    assert_eq!(store.ingest(batch("a", 1..=3), 10).await.unwrap(), take(0, 3));
    assert_eq!(store.ingest(batch("a", 2..=5), 11).await.unwrap(), take(2, 5));
    assert_eq!(store.ingest(batch("a", 1..=5), 12).await.unwrap(), take(5, 5));
    assert_eq!(
        store.ingest(batch("a", 8..=9), 13).await.unwrap(),
        Stored::Expected(6)
    );
    // A spool that was copied to another host, or an agent that lies.
    let mut stolen = Batch::clone(&batch("a", 6..=6));
    stolen.envelope.host = HostName::new("n2").unwrap();
    assert_eq!(store.ingest(Arc::new(stolen), 13).await.unwrap(), Stored::Foreign);
    assert_eq!(store.last_seq(&AgentId("a".into())), 5);
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
    assert!(matches!(
        stored,
        Stored::Taken {
            skip: 0,
            last: 12,
            ..
        }
    ));
    let gaps: i64 = store
        .read(|c| c.query_row("select gaps from streams", [], |row| row.get(0)))
        .await
        .unwrap();
    assert_eq!(gaps, 10);
}

#[tokio::test]
async fn only_what_should_have_come_here_and_never_will_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let dropped = async |ranges: &[std::ops::RangeInclusive<u64>]| {
        let mut batch = Arc::unwrap_or_clone(batch("a", 1..=1));
        batch.events.clear();
        batch.dropped = ranges.to_vec();
        match store.ingest(Arc::new(batch), 1).await.unwrap() {
            Stored::Taken { lost, last, .. } => (lost, last),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(dropped(&[1..=100]).await, (0, 100), "others may have had them");
    assert_eq!(dropped(&[1..=100]).await, (0, 100), "as was known");
    assert_eq!(dropped(&[1..=90, 91..=103]).await, (3, 103));
    assert_eq!(dropped(&[104..=110, 111..=120]).await, (17, 120));
    store.ingest(batch("a", 121..=130), 2).await.unwrap();
    assert_eq!(
        dropped(&[50..=131]).await,
        (1, 131),
        "what was stored is not lost"
    );
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
    let whole = Stored::Taken {
        skip: 0,
        last: 2,
        lost: 0,
    };
    assert_eq!(good.unwrap(), whole);
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
        Stored::Taken {
            skip: 3,
            last: 6,
            lost: 0
        }
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

#[tokio::test]
async fn events_are_found_by_guest_kind_host_and_time_and_say_what_they_said() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let guest = "a1000000-0000-4000-8000-000000000001";
    for n in 0..10_u64 {
        let mut one = Arc::unwrap_or_clone(batch("a", n + 1..=n + 1));
        for event in &mut one.events {
            if n % 2 == 0 {
                event.kind = Kind::Watchdog;
                event.event = "reset".into();
                event.detail = String::new();
                event.domain = Some(cobaltcore_ha_wire::DomainRef {
                    uuid: guest.parse().unwrap(),
                    name: "instance-1".into(),
                    id: 7,
                });
            }
            event.ts = jiff::Timestamp::from_microsecond(1_000_000 + n as i64).unwrap();
        }
        store.ingest(Arc::new(one), 2_000 + n as i64 * 10).await.unwrap();
    }
    let found = async |filter: EventFilter| {
        let (events, _) = store.events(filter, 1000).await.unwrap();
        events
    };
    let by_guest = found(EventFilter {
        domain: Some(guest.into()),
        ..EventFilter::default()
    })
    .await;
    assert_eq!(by_guest.len(), 5);
    let first = &by_guest[0];
    assert_eq!(
        (first.kind.as_str(), first.event.as_str(), first.detail.as_str()),
        ("watchdog", "reset", "")
    );
    assert_eq!(
        (first.host.as_str(), first.domain.as_deref()),
        ("n1", Some(guest))
    );
    assert_eq!(
        first.ts.as_microsecond(),
        1_000_000,
        "when it happened, not when it came"
    );
    assert_eq!(first.received_at.as_millisecond(), 2_000);
    assert_eq!(first.attrs.len(), 1);
    let by_kind = found(EventFilter {
        kind: Some("lifecycle".into()),
        host: Some("n1".into()),
        ..EventFilter::default()
    })
    .await;
    assert!(by_kind.iter().all(|event| event.seq % 2 == 0) && by_kind.len() == 5);
    for (since, until, wanted) in [
        (None, Some(2_000), 0..0),
        (None, Some(2_001), 1..2),
        (Some(2_010), Some(2_040), 2..5),
        (Some(2_011), None, 3..11),
        (Some(9_999), None, 0..0),
    ] {
        let within = found(EventFilter {
            since_ms: since,
            until_ms: until,
            ..EventFilter::default()
        })
        .await;
        let seqs: Vec<u64> = within.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, wanted.collect::<Vec<u64>>(), "{since:?} to {until:?}");
    }
    assert!(
        found(EventFilter {
            host: Some("n2".into()),
            ..EventFilter::default()
        })
        .await
        .is_empty()
    );
}

#[tokio::test]
async fn words_and_guests_go_with_the_last_event_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let mut one = Arc::unwrap_or_clone(batch("a", 1..=1));
    one.events[0].event = "unheard-of".into();
    one.events[0].domain = Some(cobaltcore_ha_wire::DomainRef {
        uuid: "a1000000-0000-4000-8000-000000000001".parse().unwrap(),
        name: "instance-1".into(),
        id: 7,
    });
    store.ingest(Arc::new(one.clone()), 0).await.unwrap();
    store.ingest(batch("a", 2..=2), 100 * 86_400_000).await.unwrap();
    let counts = async || {
        store
            .read(|c| {
                let count = |table: &str| -> rusqlite::Result<i64> {
                    c.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0))
                };
                Ok((count("events")?, count("words")?, count("guests")?))
            })
            .await
            .unwrap()
    };
    assert_eq!(counts().await, (2, 2, 1));
    let limits = Limits {
        retention: Retention::default(),
        max_bytes: 1 << 30,
    };
    store.clean(&limits, 100 * 86_400_000).await.unwrap();
    assert_eq!(counts().await, (1, 1, 0));
    // What was forgotten can be said again.
    one.envelope.agent_id = AgentId("b".into());
    store.ingest(Arc::new(one), 100 * 86_400_000).await.unwrap();
    assert_eq!(counts().await, (2, 2, 1));
    assert_eq!(seqs(&store).await, [2, 1]);
}

/// The events of the first layout, as it made them.
const LAYOUT_1: &str = "
    drop table events; drop table streams; drop table words; drop table guests;
    create table streams(agent_id text primary key, host text not null, epoch integer not null, boot_id text not null,
        last_seq integer not null, first_seen integer not null, last_seen integer not null, gaps integer not null) without rowid;
    create table events(agent_id text not null, seq integer not null, host text not null, ts integer not null,
        recv_at integer not null, kind text not null, event text not null, detail text not null, domain_uuid text,
        attrs text not null, count integer not null, synthetic integer not null, primary key(agent_id, seq)) without rowid;
    create index events_by_host on events(host, recv_at);
    create index events_by_domain on events(domain_uuid, recv_at) where domain_uuid is not null;
    create index events_by_kind on events(kind, recv_at);
    create index events_by_time on events(recv_at);
    alter table vms drop column outside_ceph;
    insert into streams values('a', 'n1', 1, 'b1', 2, 5, 6, 0);
    insert into events values('a', 1, 'n1', 4000001, 5000, 'reboot', '', '', null, '{}', 1, 0);
    insert into events values('a', 2, 'n1', 4000002, 6000, 'watchdog', 'reset', '',
        'a1000000-0000-4000-8000-000000000001', '{\"n\":1}', 3, 1);
    update meta set value = 1 where key = 'layout';
";

#[tokio::test]
async fn a_database_of_the_first_layout_is_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    store.write(|t| t.execute_batch(LAYOUT_1)).await.unwrap();
    drop(store);
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let (events, _) = store.events(EventFilter::default(), 10).await.unwrap();
    let [first, second] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        (first.kind.as_str(), first.ts.as_microsecond()),
        ("reboot", 4_000_001)
    );
    assert_eq!(
        (second.event.as_str(), second.count, second.synthetic),
        ("reset", 3, true)
    );
    assert_eq!(
        (second.received_at.as_millisecond(), second.attrs.len()),
        (6000, 1)
    );
    assert_eq!(
        store.ingest(batch("a", 1..=3), 7000).await.unwrap(),
        Stored::Taken {
            skip: 2,
            last: 3,
            lost: 0
        }
    );
    assert_eq!(seqs(&store).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_database_of_the_third_layout_keeps_its_incidents_and_guests() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let third = "
        alter table vms drop column outside_ceph;
        insert into vms(uuid, agent_host) values('a1000000-0000-4000-8000-000000000001', 'n1');
        insert into incidents values('n1-1', 'n1', 'host-down', 'Recovered', 1, 2, 0, '{}');
        update meta set value = 3 where key = 'layout';
    ";
    store.write(|t| t.execute_batch(third)).await.unwrap();
    drop(store);
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let found = store.read(|connection| {
        connection.query_row(
            "select (select count(*) from incidents), (select count(*) from vms where not outside_ceph)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    });
    let found: (i64, i64) = found.await.unwrap();
    assert_eq!(found, (1, 1));
}

#[tokio::test]
async fn damage_that_was_found_in_use_is_put_aside_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    store.ingest(batch("a", 1..=3), 1).await.unwrap();
    let found = store
        .read(|_| -> rusqlite::Result<()> {
            Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                None,
            ))
        })
        .await;
    assert!(found.is_err());
    drop(store);
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    assert!(seqs(&store).await.is_empty(), "it begins anew");
    assert!(!folder.path().join("telemetry.db-damaged").exists());
    drop(store);
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    store.ingest(batch("a", 1..=1), 1).await.unwrap();
    assert_eq!(seqs(&store).await, [1], "and once is enough");
}

use crate::config::Retention;

async fn seen(store: &Store, uuid: &'static str) -> Option<i64> {
    let seen = move |connection: &Connection| {
        connection.query_row("select nova_seen from vms where uuid = ?1", [uuid], |row| {
            row.get(0)
        })
    };
    store.read(seen).await.ok()
}

/// Has the servers kept, and waits until that is committed.
async fn list(store: &Store, servers: &[KeptServer], now_ms: i64) {
    assert!(store.keep_servers(servers.to_vec(), now_ms));
    store.write(|_| Ok(())).await.unwrap();
}

#[tokio::test]
async fn a_list_of_servers_writes_what_changed_and_once_a_day_that_they_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let hour = 3_600_000;
    let server = |name: &str| KeptServer {
        uuid: "a".into(),
        name: name.into(),
        host: Some("n1".into()),
        ..KeptServer::default()
    };
    list(&store, &[server("web")], hour).await;
    list(&store, &[server("web")], 2 * hour).await;
    assert_eq!(seen(&store, "a").await, Some(hour), "nothing changed");
    list(&store, &[server("shop")], 3 * hour).await;
    assert_eq!(seen(&store, "a").await, Some(3 * hour), "it has another name");
    let moved = KeptServer {
        host: None,
        ..server("shop")
    };
    list(&store, std::slice::from_ref(&moved), 4 * hour).await;
    assert_eq!(
        seen(&store, "a").await,
        Some(4 * hour),
        "it is on no host any more"
    );
    list(&store, std::slice::from_ref(&moved), 27 * hour).await;
    assert_eq!(seen(&store, "a").await, Some(4 * hour));
    list(&store, &[moved], 29 * hour).await;
    assert_eq!(seen(&store, "a").await, Some(29 * hour), "a day is over");
}

#[tokio::test]
async fn guests_stay_for_a_week_after_they_were_last_shown_and_while_their_agent_speaks() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let day = 86_400_000;
    store
        .write(move |t| {
            t.execute_batch(&format!(
                "insert into hosts(host, first_seen, last_seen, known_at) values('n1', 0, {0}, {0}), ('n2', 0, {1}, {0});
                 insert into vms(uuid, agent_host, agent_seen, nova_seen) values
                    ('runs', 'n1', 0, null), ('host-gone', 'n2', 0, null), ('listed', null, null, {2}), ('gone', null, null, {1});",
                100 * day,
                90 * day,
                100 * day - 7 * day - day / 2,
            ))
        })
        .await
        .unwrap();
    let limits = Limits {
        retention: Retention::default(),
        max_bytes: 1 << 30,
    };
    store.clean(&limits, 100 * day).await.unwrap();
    let names = |connection: &Connection| {
        let mut all = connection.prepare("select uuid from vms order by uuid")?;
        let rows = all.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    assert_eq!(store.read(names).await.unwrap(), ["listed", "runs"]);
}

/// Rows that went leave pages behind; the file itself becomes smaller only if they are given back.
#[tokio::test]
async fn a_file_becomes_smaller_when_what_was_in_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    for n in 0..20 {
        store
            .ingest(batch("a", n * 500 + 1..=n * 500 + 500), 10)
            .await
            .unwrap();
    }
    let pages = async |name: &'static str| {
        let read = move |connection: &Connection| {
            connection.query_row(&format!("pragma {name}"), [], |row| row.get::<_, i64>(0))
        };
        store.read(read).await.unwrap()
    };
    let before = pages("page_count").await;
    let limits = Limits {
        retention: crate::config::Retention::default(),
        max_bytes: 8 << 30,
    };
    store
        .clean(&limits, jiff::Timestamp::now().as_millisecond())
        .await
        .unwrap();
    // It is made smaller once nothing waits to be written.
    for _ in 0..1000 {
        if pages("freelist_count").await == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(pages("freelist_count").await, 0);
    assert!(pages("page_count").await < before);
}

#[tokio::test]
async fn the_latest_verdict_stays_while_its_host_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    store
        .write(move |transaction| {
            for (host, known) in [("n1", true), ("n2", false)] {
                transaction.execute(
                    "insert into signals values(?1, 'M', 'x', 'dead', 5, '')",
                    rusqlite::params![host],
                )?;
                if known {
                    transaction.execute(
                        "insert into hosts(host, first_seen, known_at) values(?1, 5, ?2)",
                        rusqlite::params![host, now],
                    )?;
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    let limits = Limits {
        retention: crate::config::Retention::default(),
        max_bytes: 8 << 30,
    };
    store.clean(&limits, now).await.unwrap();
    let left = store.read(|connection| {
        connection.query_row("select group_concat(host) from signals", [], |row| {
            row.get::<_, String>(0)
        })
    });
    assert_eq!(left.await.unwrap(), "n1");
}

#[tokio::test]
async fn a_guest_shows_the_policy_that_applies_and_whether_anybody_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Durability::Normal).unwrap();
    let id = |n: u8| format!("00000000-0000-4000-8000-0000000000a{n}");
    let server = |n: u8, policy: &str| KeptServer {
        uuid: id(n),
        vm_state: Some("active".into()),
        policy: policy.into(),
        ..KeptServer::default()
    };
    let servers = vec![
        server(1, ""),
        server(2, "evacuate"),
        server(3, "ignore"),
        server(4, "excluded"),
    ];
    store.keep_servers(servers, 1);
    // One that only its agent has seen so far.
    let unlisted = id(5);
    store
        .write(move |transaction| {
            transaction
                .execute(
                    "insert into vms(uuid, agent_host, agent_state) values(?1, 'n1', 'running')",
                    [unlisted],
                )
                .map(drop)
        })
        .await
        .unwrap();
    let listed = async |policy: Option<&str>, default_policy| {
        let filter = VmFilter {
            policy: policy.map(str::to_owned),
            default_policy,
            ..VmFilter::default()
        };
        let (found, _) = store.vms(filter, 10).await.unwrap();
        found
            .into_iter()
            .map(|vm| {
                (
                    vm.uuid.as_str().chars().last().unwrap(),
                    vm.policy,
                    vm.policy_default,
                )
            })
            .collect::<Vec<_>>()
    };
    let of = |n: char, policy: &str, default: bool| (n, policy.to_owned(), default);
    assert_eq!(
        listed(None, "evacuate").await,
        [
            of('1', "evacuate", true),
            of('2', "evacuate", false),
            of('3', "ignore", false),
            of('4', "excluded", false),
            of('5', "", false),
        ]
    );
    assert_eq!(
        listed(Some("evacuate"), "evacuate").await,
        [of('1', "evacuate", true), of('2', "evacuate", false)]
    );
    assert_eq!(
        listed(Some("ignore"), "ignore").await,
        [of('1', "ignore", true), of('3', "ignore", false)]
    );
    assert_eq!(
        listed(Some("evacuate"), "ignore").await,
        [of('2', "evacuate", false)]
    );
    let id = ServerId::new(id(1)).unwrap();
    let one = store.vm(&id, "ignore").await.unwrap().unwrap();
    assert_eq!((one.policy.as_str(), one.policy_default), ("ignore", true));
}
