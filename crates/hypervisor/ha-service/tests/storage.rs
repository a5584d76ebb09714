// SPDX-License-Identifier: Apache-2.0
//! The telemetry database under faults: crashes with a torn write behind the last commit, and a
//! disk that takes nothing any more. What was acknowledged is there, once; what cannot be stored is
//! refused, and signs of life need no database.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::path::Path;

use cobaltcore_ha_engine::{
    Entry, Epoch, Evidence, IncidentId, IncidentKind, IncidentState, Record, VERSION,
};
use common::{AGENT, ALONE, Agent, Running, base, until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HOST: &str = "node001-bb1";
const DATABASE: &str = "telemetry.db";
const LOG: &str = "telemetry.db-wal";

async fn start(folder: &Path) -> Running {
    let text = format!("{}{ALONE}openstack: {{enabled: false}}\n", base(folder));
    Running::start(&text, None, None).await
}

/// What a crash at this moment could leave on the disk: everything that was flushed, perhaps a part of
/// what was not, and bytes of a write that was torn.
fn crash(from: &Path, to: &Path, flushed: u64, chance: &mut fastrand::Rng) {
    // As long as somebody reads, nothing is taken out of the log.
    let reader = rusqlite::Connection::open(from.join(DATABASE)).unwrap();
    reader.execute_batch("begin").unwrap();
    reader
        .query_row("select count(*) from sqlite_schema", [], |row| {
            row.get::<_, i64>(0)
        })
        .unwrap();
    std::fs::copy(from.join(DATABASE), to.join(DATABASE)).unwrap();
    let mut log = std::fs::read(from.join(LOG)).unwrap();
    let whole = log.len();
    let flushed = usize::try_from(flushed).unwrap().min(whole);
    log.truncate(chance.usize(flushed..=whole));
    let torn = chance.usize(0..9000);
    log.extend(std::iter::repeat_with(|| chance.u8(..)).take(torn));
    std::fs::write(to.join(LOG), log).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_crash_with_a_torn_write() {
    let mut chance = fastrand::Rng::with_seed(7);
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let mut agent = Agent::new(HOST);
    let mut last = 0;
    for _ in 0..5 {
        let next = last + chance.u64(1..150);
        let batch = agent.events(last + 1..=next);
        let (code, answer) = agent.report(&service, &batch).await;
        assert_eq!((code, &answer["acked_seq"]), (200, &json!(next)), "{answer}");
        last = next;
        let flushed = std::fs::metadata(folder.path().join(LOG)).unwrap().len();

        let image = tempfile::tempdir().unwrap();
        crash(folder.path(), image.path(), flushed, &mut chance);
        let after = start(image.path()).await;
        let beat = agent.beat();
        let (code, answer) = agent.report(&after, &beat).await;
        assert_eq!((code, &answer["acked_seq"]), (200, &json!(last)), "{answer}");
        let (_, page) = after.get("/api/v1/events?limit=1000").await;
        let stored = page["items"].as_array().unwrap().len();
        assert_eq!(stored, usize::try_from(last).unwrap(), "each once");
        let more = agent.events(last + 1..=last + 3);
        assert_eq!(agent.report(&after, &more).await.0, 200, "and it goes on");
        after.stop().await;
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_nothing_stops_telemetry_and_no_sign_of_life() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let mut agent = Agent::new(HOST);
    let first = agent.events(1..=3);
    assert_eq!(agent.report(&service, &first).await.0, 200);

    // Whoever holds this lock is a disk that does not get its writes done.
    let fault = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
    fault.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    fault.execute_batch("begin immediate").unwrap();
    let more = agent.events(4..=6);
    let (code, refused) = agent.report(&service, &more).await;
    assert_eq!(code, 503, "{refused}");
    assert!(
        refused["detail"].as_str().unwrap().contains("send them again"),
        "{refused}"
    );
    let beat = agent.beat();
    let (code, answer) = agent.report(&service, &beat).await;
    assert_eq!(
        (code, &answer["acked_seq"]),
        (200, &json!(3)),
        "it is heard all the same"
    );
    assert_eq!(
        service.figures().await.of("kvm_ha_db_up", ""),
        0.0,
        "people are told"
    );
    let health = common::client().get(format!("http://{}/readyz", service.metrics));
    assert_eq!(
        health.send().await.unwrap().status().as_u16(),
        200,
        "it is of use"
    );

    fault.execute_batch("rollback").unwrap();
    until("the same records are taken", async || {
        let (code, answer) = agent.report(&service, &more).await;
        (code == 200 && answer["acked_seq"] == 6).then_some(())
    })
    .await;
    assert_eq!(service.figures().await.of("kvm_ha_db_up", ""), 1.0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_whose_agent_did_not_wait_for_a_slow_disk_are_judged_once() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let mut agent = Agent::new(HOST);
    let slow = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
    slow.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    slow.execute_batch("begin immediate").unwrap();

    let mut report = agent.events(1..=6);
    // That is counted in the moment in which the records go to the disk.
    report.envelope.sent_at += jiff::SignedDuration::from_hours(1);
    let body = report.encode().unwrap();
    let mut line = TcpStream::connect(service.address).await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: ha\r\nauthorization: Bearer {AGENT}\r\ncontent-length: {}\r\n\r\n",
        agent.path(),
        body.len()
    );
    line.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let count = async |name: &str, label: &str| service.figures().await.of(name, label);
    until("the records wait for the disk", async || {
        (count("kvm_ha_ingest_refused_total", "why=\"ahead\"").await == 1.0).then_some(())
    })
    .await;
    line.shutdown().await.unwrap();
    let mut rest = Vec::new();
    line.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "nobody waits any more, and nobody is answered");
    let (code, refused) = agent.report(&service, &report).await;
    assert_eq!(code, 503, "{refused}");

    slow.execute_batch("rollback").unwrap();
    until("it is acknowledged when it comes again", async || {
        let (code, answer) = agent.report(&service, &report).await;
        (code == 200 && answer["acked_seq"] == 6).then_some(())
    })
    .await;
    assert_eq!(count("kvm_ha_ingest_events_total", "").await, 6.0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_collected_elsewhere_are_not_counted_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let mut agent = Agent::new(HOST);
    for (dropped, last, counted) in [(1..=40, 42, 0.0), (1..=40, 42, 0.0), (43..=45, 46, 3.0)] {
        let mut report = agent.events(dropped.end() + 1..=last);
        report.dropped = vec![dropped];
        let (code, answer) = agent.report(&service, &report).await;
        assert_eq!((code, &answer["acked_seq"]), (200, &json!(last)), "{answer}");
        let figures = service.figures().await;
        assert_eq!(figures.of("kvm_ha_spool_dropped_total", ""), counted, "{last}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_that_left_the_journal_is_still_told() {
    let folder = tempfile::tempdir().unwrap();
    start(folder.path()).await.stop().await;
    let incident = IncidentId {
        epoch: Epoch(1),
        n: 1,
        host: HOST.parse().unwrap(),
        opened_ms: None,
    };
    let id = incident.to_string();
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 60);
    let opened = Entry::Opened {
        incident: incident.clone(),
        kind: IncidentKind::HostDown,
        by: "monitor/host-down".into(),
        boot: None,
        evidence: Box::new(Evidence::default()),
        announced: false,
    };
    let state = IncidentState::Released;
    let summary = json!({
        "id": id, "host": HOST, "type": "host-down", "state": "Released", "open": false,
        "guests": {"total": 0, "recovered": 0, "failed": 0, "skipped": 0, "blocked": 0, "stuck": 0},
        "opened_at": at, "updated_at": at,
    });
    let database = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
    database
        .execute(
            "insert into incidents values(?1, ?2, 'host-down', 'Released', ?3, ?3, 0, ?4)",
            rusqlite::params![id, HOST, at.as_millisecond(), summary.to_string()],
        )
        .unwrap();
    for (seq, entry) in [(2, opened), (9, Entry::Moved { incident, state })] {
        let record = Record {
            version: VERSION,
            seq,
            epoch: Epoch(1),
            at,
            entry,
        };
        let text = serde_json::to_string(&record).unwrap();
        database
            .execute(
                "insert into journal values(?1, ?2, ?3, ?4)",
                rusqlite::params![id, record.seq.cast_signed(), at.as_millisecond(), text],
            )
            .unwrap();
    }
    drop(database);
    let service = start(folder.path()).await;
    let (code, page) = service.get("/api/v1/incidents?open=false").await;
    assert_eq!((code, &page["items"][0]["id"]), (200, &json!(id)), "{page}");
    let (code, detail) = service.get(&format!("/api/v1/incidents/{id}")).await;
    assert_eq!((code, &detail["state"]), (200, &json!("Released")), "{detail}");
    assert_eq!(detail["journal"].as_array().unwrap().len(), 2);
    service.stop().await;
}
