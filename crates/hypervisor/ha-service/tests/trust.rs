// SPDX-License-Identifier: Apache-2.0
//! Whom and what the service believes: bad telemetry has no effect, a decision without an effect is refused, and what
//! people change is written down with what was before.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use std::path::Path;

use cobaltcore_ha_wire::Packing;
use common::{AGENT, Agent, N1, OPERATOR, SENDER, fixture, fixture_with, until};
use serde_json::json;

/// Every row that a report or a push may write, without those of `other`.
fn stored(folder: &Path, other: &str) -> Vec<String> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(folder.join("telemetry.db"), flags).unwrap();
    let mut found = Vec::new();
    for table in [
        "select s.host, e.seq, e.recv_at, e.lag, e.word, e.guest, e.attrs, e.count from events e join streams s on s.id = e.stream",
        "select host, agent_id, epoch, boot_id, last_seq, first_seen, gaps from streams",
        "select agent_host, uuid, agent_state, inv_version from vms",
        "select * from signals",
        "select * from signal_history",
        "select * from incidents",
        "select * from journal",
        "select * from audit",
        "select * from pauses",
        "select * from planned",
    ] {
        let mut query = database.prepare(table).unwrap();
        let columns = query.column_count();
        let mut rows = query.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|n| row.get_ref(n).unwrap()).collect();
            found.push(format!("{table}: {values:?}"));
        }
    }
    let other = format!("{:?}", rusqlite::types::ValueRef::Text(other.as_bytes()));
    found.retain(|row| !row.contains(&other));
    found
}

const FORGER: &str = "token-of-another-host";

/// What is malformed, huge, replayed, forged or dated ahead: each with its answer, its figure, and nothing in the database.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_telemetry_has_its_answer_and_its_figure_and_changes_nothing() {
    let fixture = fixture_with(|text| {
        let bound = format!(
            "agents: {{node002-bb1: [{}]}}\n  any_agent:",
            common::hash(FORGER)
        );
        let text = text.replace("any_agent:", &bound);
        format!("{text}sources: {{push: [{{name: probes, schema: generic, senders: [prom]}}]}}\n")
    })
    .await;
    let (service, folder) = (&fixture.service, fixture.folder.path());
    let mut agent = Agent::new(N1);
    let good = agent.events(1..=5);
    assert_eq!(agent.report(service, &good).await.0, 200);
    let guests = agent.inventory(7, Vec::new());
    assert_eq!(agent.report(service, &guests).await.0, 200);
    until("servers of Nova are written", async || {
        let (_, page) = service.get("/api/v1/vms").await;
        (page["items"].as_array()?.len() == 6).then_some(())
    })
    .await;
    let before = stored(folder, "node003-bb1");
    assert!(before.len() >= 6, "{before:#?}");

    let path = agent.path();
    let json_of = |batch: &cobaltcore_ha_wire::Batch| batch.encode().unwrap();
    let far_ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    let replay = agent.events(1..=5);
    let older = agent.inventory(6, Vec::new());
    let foreign = Agent::new("node002-bb1").beat();
    // Under its own name and with its own credentials, but with the numbers of another host.
    let mut stolen = Agent::new("node002-bb1");
    stolen.id = agent.id.clone();
    let (stolen_path, stolen) = (stolen.path(), stolen.events(6..=9));
    let mut ahead = agent.beat();
    ahead.envelope.sent_at = far_ahead;
    let packed = |bytes: &[u8]| Packing::Zstd.pack(bytes).unwrap();
    let plain: &[(&str, &str)] = &[];
    let zstd: &[(&str, &str)] = &[("content-encoding", "zstd")];
    let deep = format!("{{\"schema\":{}1", "[".repeat(100_000)).into_bytes();
    for (what, path, token, body, headers, status, figure) in [
        (
            "no JSON",
            &path,
            AGENT,
            b"not json".to_vec(),
            plain,
            400,
            ("report", "malformed"),
        ),
        (
            "half of it",
            &path,
            AGENT,
            json_of(&good)[..200].to_vec(),
            plain,
            400,
            ("report", "malformed"),
        ),
        (
            "too deep",
            &path,
            AGENT,
            deep,
            plain,
            400,
            ("report", "malformed"),
        ),
        (
            "no zstd",
            &path,
            AGENT,
            b"x".to_vec(),
            zstd,
            400,
            ("report", "encoding"),
        ),
        (
            "huge",
            &path,
            AGENT,
            vec![b' '; (1 << 20) + 1],
            plain,
            413,
            ("report", "size"),
        ),
        (
            "huge inside",
            &path,
            AGENT,
            packed(&vec![b' '; 20 << 20]),
            zstd,
            413,
            ("report", "size"),
        ),
        (
            "again",
            &path,
            AGENT,
            json_of(&replay),
            plain,
            200,
            ("record", "replayed"),
        ),
        (
            "an older list",
            &path,
            AGENT,
            json_of(&older),
            plain,
            200,
            ("inventory", "old"),
        ),
        (
            "of another host",
            &path,
            AGENT,
            json_of(&foreign),
            plain,
            403,
            ("report", "forged"),
        ),
        (
            "with its numbers",
            &stolen_path,
            FORGER,
            json_of(&stolen),
            plain,
            403,
            ("report", "forged"),
        ),
        (
            "with its credentials",
            &path,
            FORGER,
            json_of(&replay),
            plain,
            403,
            ("agent", "foreign"),
        ),
        (
            "tomorrow",
            &path,
            AGENT,
            json_of(&ahead),
            plain,
            200,
            ("sent_at", "ahead"),
        ),
    ] {
        let label = format!("what=\"{}\",why=\"{}\"", figure.0, figure.1);
        let count = async || service.figures().await.of("kvm_ha_ingest_refused_total", &label);
        let counted = count().await;
        let (code, answer) = service.raw("POST", path, Some(token), body, headers).await;
        assert_eq!(code, status, "{what}: {answer}");
        assert!(count().await > counted, "{what} is counted as {label}");
        if status != 200 {
            assert!(!answer["detail"].as_str().unwrap().is_empty(), "{what}: {answer}");
        }
    }
    // What waits to be written is written in order: after this, everything is.
    let mut other = Agent::new("node003-bb1");
    let last = other.events(1..=1);
    assert_eq!(other.report(service, &last).await.0, 200);
    assert_eq!(stored(folder, "node003-bb1"), before);
    let (_, answer) = agent.report(service, &agent.clone().events(6..=6)).await;
    assert_eq!(answer["acked_seq"], 6, "the stream goes on where it was");

    // A verdict from tomorrow is one of now.
    let item = json!({"items": [{"host": N1, "signal": "s", "verdict": "alive", "observed_at": far_ahead}]});
    let (code, answer) = service
        .send("POST", "/api/v1/telemetry/probes", Some(SENDER), Some(item))
        .await;
    assert_eq!((code, &answer["accepted"]), (200, &json!(1)), "{answer}");
    let label = "what=\"observed_at\",why=\"ahead\"";
    let figures = service.figures().await;
    assert_eq!(figures.of("kvm_ha_ingest_refused_total", label), 1.0);
    let kept: i64 = until("the verdict is written", async || {
        let database = rusqlite::Connection::open(folder.join("telemetry.db")).unwrap();
        database
            .query_row("select observed_at from signals where name = 's'", [], |row| {
                row.get(0)
            })
            .ok()
    })
    .await;
    assert!(kept <= jiff::Timestamp::now().as_millisecond(), "{kept}");
    let (_, incidents) = service.get("/api/v1/incidents").await;
    assert_eq!(
        incidents["items"],
        json!([]),
        "nobody is suspected because of any of it"
    );
}

/// Where labels of another kind name the places of hosts, a pause of a zone or a building block would pause nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_would_pause_nobody_is_refused() {
    let fixture = fixture_with(|text| {
        let rooms = "kubernetes: {enabled: false, failure_domains: [example.org/hall, example.org/row]}";
        text.replace("kubernetes: {enabled: false}", rooms)
    })
    .await;
    let service = &fixture.service;
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
    let wish = json!({"reason": "work on the switch", "until": soon});
    for (scope, wanted) in [
        ("zone/a", 409),
        ("bb/bb1", 409),
        ("host/node009-bb1", 404),
        (&format!("host/{N1}"), 200),
        ("global", 200),
    ] {
        let path = format!("/api/v1/pauses/{scope}");
        let (code, answer) = service
            .send("PUT", &path, Some(OPERATOR), Some(wish.clone()))
            .await;
        assert_eq!(code, wanted, "{scope}: {answer}");
        if wanted == 409 {
            let detail = answer["detail"].as_str().unwrap();
            assert!(detail.contains("kubernetes.failure_domains"), "{scope}: {detail}");
        }
    }
    let (_, pauses) = service.get("/api/v1/pauses").await;
    let scopes: Vec<&str> = pauses["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pause| pause["scope"].as_str().unwrap())
        .collect();
    assert_eq!(scopes, ["global", &format!("host/{N1}")]);
    let (_, audit) = service.get("/api/v1/audit").await;
    assert_eq!(
        audit["items"].as_array().unwrap().len(),
        2,
        "what was refused is not in it: {audit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_tells_what_was_before_and_what_is_after() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    // Pauses are kept to the millisecond.
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let (soon, later) = (
        now + jiff::SignedDuration::from_mins(10),
        now + jiff::SignedDuration::from_hours(1),
    );
    let send = async |method: &str, path: &str, body: Option<serde_json::Value>| {
        service.send(method, path, Some(OPERATOR), body).await.0
    };
    let switch = format!("/api/hypervisors/{N1}");
    for on in [false, false, true] {
        assert_eq!(send("POST", &switch, Some(json!({"enabled": on}))).await, 200);
    }
    for until in [soon, later] {
        let wish = json!({"reason": "work on the switch", "until": until});
        assert_eq!(send("PUT", "/api/v1/pauses/global", Some(wish)).await, 200);
    }
    assert_eq!(send("DELETE", "/api/v1/pauses/global", None).await, 200);
    assert_eq!(send("DELETE", "/api/v1/pauses/global", None).await, 404);
    // A host that works is not recovered, and that somebody wanted it is written down.
    let mut agent = Agent::new(N1);
    let beat = agent.beat();
    assert_eq!(agent.report(service, &beat).await.0, 200);
    let wish = json!({"reason": "it feels slow", "confirm": N1});
    let recover = format!("/api/v1/hosts/{N1}/actions/recover");
    until("the service leads", async || {
        (send("POST", &recover, Some(wish.clone())).await == 409).then_some(())
    })
    .await;
    let (_, audit) = service.get("/api/v1/audit").await;
    let word = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let mut told: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| ["action", "before", "after", "actor"].map(|key| word(entry, key)))
        .collect();
    told.reverse();
    let of =
        |action: &str, before: &str, after: &str| [action, before, after, "operator/olga"].map(str::to_owned);
    let (soon, later) = (soon.to_string(), later.to_string());
    let wanted = [
        of("switch", "true", "false"),
        of("switch", "false", "false"),
        of("switch", "false", "true"),
        of("pause", "", &soon),
        of("pause", &soon, &later),
        of("resume", &later, ""),
    ];
    assert_eq!(told[..6], wanted);
    let [action, before, after, _] = &told[told.len() - 1];
    assert_eq!((action.as_str(), before.as_str()), ("recover", "healthy"));
    assert!(after.starts_with("refused: "), "{after}");
}
