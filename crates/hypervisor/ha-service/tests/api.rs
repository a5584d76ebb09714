// SPDX-License-Identifier: Apache-2.0
//! The API over the wire: what agents, senders, people and older operators get, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod common;

use cobaltcore_ha_wire::{Packing, SelfFence};
use cobaltcore_sim::{Cloud, World};
use common::{
    AGENT, ALONE, Agent, N1, OPERATOR, Running, SENDER, VIEWER, base, fixture, fixture_of, session, until,
};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_call_works_as_operators_send_it() {
    let fixture = fixture("compat: {legacy_unauthenticated: true}\n").await;
    let service = &fixture.service;
    let legacy = |path: &str, body: &'static str| {
        let request = common::client()
            .post(format!("http://{}{path}", service.legacy))
            .header("content-type", "application/json")
            .body(body);
        async move {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    };
    let on = r#"{"enabled": true}"#;
    let off = r#"{"enabled": false}"#;
    for path in [
        format!("/api/hypervisors/{N1}"),
        format!("//api/hypervisors//{N1}/"),
    ] {
        assert_eq!(legacy(&path, on).await, (200, "{}".into()));
        assert_eq!(
            legacy(&path, on).await,
            (200, "{}".into()),
            "again changes nothing"
        );
        assert_eq!(legacy(&path, off).await, (200, "{}".into()));
    }
    let (_, host) = service.get(&format!("/api/hypervisors/{N1}")).await;
    assert_eq!(
        (&host["enabled"], &host["state"]),
        (&json!(false), &json!("disabled"))
    );
    assert_eq!(legacy("/api/hypervisors/unknown", off).await.0, 404);
    assert_eq!(legacy("/api/hypervisors/unknown", on).await.0, 404);
    assert_eq!(
        legacy(&format!("/api/hypervisors/{N1}"), r#"{"enabled": "yes"}"#)
            .await
            .0,
        400
    );
    assert_eq!(legacy(&format!("/api/hypervisors/{N1}"), "").await.0, 400);
    let more = r#"{"enabled": true, "and": {"what": "ever"}}"#;
    assert_eq!(legacy(&format!("/api/hypervisors/{N1}"), more).await.0, 200);
    // The other port serves nothing else.
    assert_eq!(legacy("/api/v1/incidents/bulk", "{}").await.0, 404);
}

/// Whoever can turn HA off can have guests lost: without another agreement, that is for operators.
#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_call_is_for_operators_unless_something_else_was_agreed() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let path = format!("/api/hypervisors/{N1}");
    let switch = |enabled: bool| Some(json!({"enabled": enabled}));
    let enabled = async || service.get(&path).await.1["enabled"].clone();
    for (token, code) in [(None, 401), (Some(common::VIEWER), 403)] {
        assert_eq!(service.send("POST", &path, token, switch(false)).await.0, code);
    }
    let url = format!("http://{}{path}", service.legacy);
    let unknown = common::client().post(url).json(&json!({"enabled": false}));
    assert_eq!(
        unknown.send().await.unwrap().status().as_u16(),
        401,
        "nor at the other port"
    );
    assert_eq!(enabled().await, json!(true), "nobody changed it");
    for wanted in [false, false, true, true] {
        let (code, body) = service.send("POST", &path, Some(OPERATOR), switch(wanted)).await;
        assert_eq!((code, body), (200, json!({})));
        assert_eq!(enabled().await, json!(wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_acknowledged_once_they_are_stored() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let mut agent = Agent::new(N1);
    let (code, answer) = agent.report(service, &agent.clone().events(1..=5)).await;
    assert_eq!((code, &answer["acked_seq"]), (200, &json!(5)), "{answer}");
    let again = agent.events(1..=5);
    let (code, answer) = agent.report(service, &again).await;
    assert_eq!(
        (code, &answer["acked_seq"]),
        (200, &json!(5)),
        "a replay changes nothing"
    );
    let gap = agent.events(9..=9);
    let (code, answer) = agent.report(service, &gap).await;
    assert_eq!((code, &answer["expected_seq"]), (409, &json!(6)), "{answer}");
    let mut told = agent.events(9..=9);
    told.dropped = vec![6..=8];
    let (code, answer) = agent.report(service, &told).await;
    assert_eq!((code, &answer["acked_seq"]), (200, &json!(9)), "{answer}");
    let (code, page) = service.get(&format!("/api/v1/events?host={N1}&limit=4")).await;
    assert_eq!(code, 200);
    assert_eq!(page["items"].as_array().unwrap().len(), 4);
    let cursor = page["cursor"].as_str().unwrap();
    let (_, rest) = service
        .get(&format!("/api/v1/events?host={N1}&limit=4&cursor={cursor}"))
        .await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 2, "{rest}");
    assert!(rest["cursor"].is_null());
    // A sign of life without records is answered with what is stored.
    let beat = agent.beat();
    let (code, answer) = agent.report(service, &beat).await;
    assert_eq!((code, &answer["acked_seq"]), (200, &json!(9)));
    let (_, host) = service.get(&format!("/api/v1/hosts/{N1}")).await;
    assert!(host["last_seen"].is_string(), "{host}");
    // Compressed bodies are taken as well.
    for (way, records, last) in [(Packing::Zstd, 10..=209, 209), (Packing::Gzip, 210..=400, 400)] {
        let packed = way.pack(&agent.events(records).encode().unwrap()).unwrap();
        let headers = [("content-encoding", way.as_str())];
        let (code, answer) = service
            .raw("POST", &agent.path(), Some(AGENT), packed, &headers)
            .await;
        assert_eq!(
            (code, &answer["acked_seq"]),
            (200, &json!(last)),
            "{way:?}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_reports_are_refused_counted_and_harmless() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let mut agent = Agent::new(N1);
    let beat = agent.beat();
    assert_eq!(agent.report(service, &beat).await.0, 200);
    let path = agent.path();
    let post = |body: Vec<u8>, headers: &'static [(&'static str, &'static str)]| {
        let path = path.clone();
        async move { service.raw("POST", &path, Some(AGENT), body, headers).await.0 }
    };
    assert_eq!(post(b"not json".to_vec(), &[]).await, 400);
    assert_eq!(post(vec![b' '; (1 << 20) + 1], &[]).await, 413);
    let bomb = Packing::Gzip.pack(&vec![b' '; 20 << 20]).unwrap();
    assert_eq!(post(bomb, &[("content-encoding", "gzip")]).await, 413);
    assert_eq!(post(b"x".to_vec(), &[("content-encoding", "gzip")]).await, 400);
    assert_eq!(post(b"x".to_vec(), &[("content-encoding", "zstd")]).await, 400);
    assert_eq!(post(b"x".to_vec(), &[("content-encoding", "br")]).await, 415);
    // A report about another host, and one that contradicts itself.
    let foreign = Agent::new("node002-bb1").beat().encode().unwrap();
    assert_eq!(post(foreign, &[]).await, 403);
    let mut torn = agent.beat();
    torn.heartbeat.as_mut().unwrap().boot_id.0 = "another-boot".into();
    assert_eq!(post(torn.encode().unwrap(), &[]).await, 422);
    let unknown = String::from_utf8(agent.beat().encode().unwrap()).unwrap();
    let unknown = unknown.replacen("{\"schema\":1", "{\"surprise\":1,\"schema\":1", 1);
    assert_eq!(
        post(unknown.into_bytes(), &[]).await,
        400,
        "unknown fields are errors"
    );
    let newer = String::from_utf8(agent.beat().encode().unwrap()).unwrap();
    let newer = newer.replacen("\"schema\":1", "\"schema\":2", 1);
    assert_eq!(post(newer.into_bytes(), &[]).await, 422);
    // A clock that runs a day ahead decides nothing.
    let mut future = agent.beat();
    future.envelope.sent_at = future
        .envelope
        .sent_at
        .checked_add(jiff::SignedDuration::from_hours(24))
        .unwrap();
    assert_eq!(agent.report(service, &future).await.0, 200);
    // Credentials: none, wrong, of somebody else.
    let body = agent.beat().encode().unwrap();
    for (token, wanted) in [
        (None, 401),
        (Some("guess"), 401),
        (Some(VIEWER), 403),
        (Some(OPERATOR), 403),
    ] {
        let (code, problem) = service.raw("POST", &path, token, body.clone(), &[]).await;
        assert_eq!(code, wanted, "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    let (_, page) = service.get("/api/v1/events").await;
    assert_eq!(page["items"], json!([]), "nothing of it was stored");
    let (_, incidents) = service.get("/api/v1/incidents").await;
    assert_eq!(incidents["items"], json!([]));
    let text = service.telemetry.encode();
    for label in [
        "forged",
        "malformed",
        "size",
        "contradiction",
        "ahead",
        "anonymous",
    ] {
        assert!(
            text.contains(&format!("why=\"{label}\"")),
            "{label} is counted:\n{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_credential_is_slowed_down() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{ALONE}openstack: {{enabled: false}}\n", base(folder.path()))
        .replace("per_agent_rps: 1000", "per_agent_rps: 2");
    let service = Running::start(&text, None, None).await;
    let mut agent = Agent::new(N1);
    let beats: Vec<_> = (0..60).map(|_| agent.beat()).collect();
    let sent = beats.iter().map(|beat| agent.report(&service, beat));
    let codes: Vec<u16> = futures::future::join_all(sent)
        .await
        .into_iter()
        .map(|(code, _)| code)
        .collect();
    assert!(codes.contains(&200) && codes.contains(&429), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_the_agent_that_waits() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let (code, answer) = service
        .send(
            "GET",
            &format!("/api/v1/agents/{N1}/commands?wait=0"),
            Some(AGENT),
            None,
        )
        .await;
    assert_eq!((code, answer), (200, json!({"commands": []})));
    let (code, _) = service
        .send(
            "GET",
            &format!("/api/v1/agents/{N1}/commands?wait=soon"),
            Some(AGENT),
            None,
        )
        .await;
    assert_eq!(code, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_of_others_are_taken_from_whom_may_send_them() {
    let more = "sources:\n  push:\n    - {name: probes, schema: generic, senders: [prom]}\n    - {name: alerts, schema: alertmanager, senders: [prom], down_alerts: [NodeDown]}\n";
    let fixture = fixture(more).await;
    let service = &fixture.service;
    let now = jiff::Timestamp::now();
    let item = |host: &str, verdict: &str, at: jiff::Timestamp| json!({"items": [{"host": host, "signal": "s", "verdict": verdict, "observed_at": at, "ttl_s": 30, "attrs": {"a": 1}}]});
    let send = |path: &'static str, token: &'static str, body: serde_json::Value| async move {
        service.send("POST", path, Some(token), Some(body)).await
    };
    let probes = "/api/v1/telemetry/probes";
    assert_eq!(
        send(probes, SENDER, item(N1, "dead", now)).await,
        (200, json!({"accepted": 1, "ignored": 0}))
    );
    assert_eq!(
        send(probes, SENDER, item("unknown", "dead", now)).await,
        (200, json!({"accepted": 0, "ignored": 1}))
    );
    let ahead = now.checked_add(jiff::SignedDuration::from_hours(2)).unwrap();
    assert_eq!(send(probes, SENDER, item(N1, "alive", ahead)).await.0, 200);
    let old = now.checked_sub(jiff::SignedDuration::from_hours(2)).unwrap();
    assert_eq!(send(probes, SENDER, item(N1, "dead", old)).await.0, 200);
    assert_eq!(send(probes, SENDER, item(N1, "confused", now)).await.0, 400);
    assert_eq!(send(probes, VIEWER, item(N1, "dead", now)).await.0, 403);
    assert_eq!(
        send("/api/v1/telemetry/none", SENDER, item(N1, "dead", now))
            .await
            .0,
        404
    );
    let alert = |status: &str, version: &str| json!({"version": version, "alerts": [{"status": status, "labels": {"alertname": "NodeDown", "node": format!("{N1}:9100")}, "annotations": {}}]});
    let alerts = "/api/v1/telemetry/alerts";
    assert_eq!(
        send(alerts, SENDER, alert("firing", "4")).await,
        (200, json!({"accepted": 1, "ignored": 0}))
    );
    assert_eq!(send(alerts, SENDER, alert("resolved", "4")).await.0, 200);
    assert_eq!(send(alerts, SENDER, alert("firing", "3")).await.0, 422);
    assert_eq!(send(alerts, SENDER, alert("perhaps", "4")).await.0, 422);
    // However often a sender says so, one group alone never opens an incident.
    let (_, incidents) = service.get("/api/v1/incidents").await;
    assert_eq!(incidents["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn people_look_pause_and_announce() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let evidence = until("the host is judged", async || {
        let (code, evidence) = service.get(&format!("/api/v1/hosts/{N1}/evidence")).await;
        (code == 200).then_some(evidence)
    })
    .await;
    assert_eq!(evidence["signals"].as_array().unwrap().len(), 9);
    assert!(!evidence["summary"].as_str().unwrap().is_empty());
    assert_eq!(evidence["rules"].as_array().unwrap().len(), 4);
    assert_eq!(service.get("/api/v1/hosts/unknown").await.0, 404);
    assert_eq!(service.get("/api/v1/incidents/none").await.0, 404);
    let (_, page) = service.get("/api/v1/hosts?limit=2").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let cursor = page["cursor"].as_str().unwrap();
    let (_, rest) = service
        .get(&format!("/api/v1/hosts?limit=2&cursor={cursor}"))
        .await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    for wrong in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=zz",
        "cursor=00",
        "state=odd",
    ] {
        assert_eq!(
            service.get(&format!("/api/v1/hosts?{wrong}")).await.0,
            400,
            "{wrong}"
        );
    }
    until("servers of Nova are known", async || {
        let (_, page) = service.get("/api/v1/vms").await;
        (page["items"].as_array()?.len() == 6).then_some(())
    })
    .await;
    let (_, on_one) = service.get(&format!("/api/v1/vms?host={N1}")).await;
    assert_eq!(on_one["items"].as_array().unwrap().len(), 2, "{on_one}");
    let one = &on_one["items"][0];
    assert_eq!(
        (&one["policy"], &one["policy_default"]),
        (&json!("evacuate"), &json!(true))
    );
    let (_, same) = service
        .get(&format!("/api/v1/vms/{}", one["uuid"].as_str().unwrap()))
        .await;
    assert_eq!(same, *one);

    let soon = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_mins(10))
        .unwrap();
    let late = soon.checked_add(jiff::SignedDuration::from_hours(48)).unwrap();
    let wish = |until: jiff::Timestamp| Some(json!({"reason": "work on the switch", "until": until}));
    let put = |path: &'static str, token: &'static str, body| async move {
        service.send("PUT", path, Some(token), body).await.0
    };
    assert_eq!(put("/api/v1/pauses/global", VIEWER, wish(soon)).await, 403);
    assert_eq!(put("/api/v1/pauses/global", OPERATOR, wish(late)).await, 400);
    assert_eq!(
        put("/api/v1/pauses/global", OPERATOR, Some(json!({"until": soon}))).await,
        400
    );
    assert_eq!(put("/api/v1/pauses/rack/x", OPERATOR, wish(soon)).await, 404);
    assert_eq!(put("/api/v1/pauses/host/n0ne", OPERATOR, wish(soon)).await, 404);
    assert_eq!(put("/api/v1/pauses/zone/a", OPERATOR, wish(soon)).await, 200);
    assert_eq!(put("/api/v1/pauses/global", OPERATOR, wish(soon)).await, 200);
    let (_, pauses) = service.get("/api/v1/pauses").await;
    assert_eq!(pauses["items"].as_array().unwrap().len(), 2);
    assert_eq!(pauses["items"][0]["actor"], "operator/olga");
    let (code, _) = service
        .send("DELETE", "/api/v1/pauses/global", Some(OPERATOR), None)
        .await;
    assert_eq!(code, 200);
    let (code, _) = service
        .send("DELETE", "/api/v1/pauses/global", Some(OPERATOR), None)
        .await;
    assert_eq!(code, 404);

    let planned = format!("/api/v1/maintenance/host/{N1}");
    let (code, answer) = service.send("PUT", &planned, Some(OPERATOR), wish(soon)).await;
    assert_eq!(code, 200, "{answer}");
    let (_, host) = service.get(&format!("/api/v1/hosts/{N1}")).await;
    assert_eq!(host["maintenance"], "manual");
    assert_eq!(
        service.send("DELETE", &planned, Some(OPERATOR), None).await.0,
        200
    );
    let (_, host) = service.get(&format!("/api/v1/hosts/{N1}")).await;
    assert_eq!(host["maintenance"], "");

    let (_, audit) = service.get("/api/v1/audit").await;
    let actions: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    for action in ["pause", "resume", "maintenance"] {
        assert!(actions.contains(&action), "{actions:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_what_is_served() {
    let fixture = fixture("").await;
    let service = &fixture.service;
    let (code, described) = service.send("GET", "/openapi.json", Some(VIEWER), None).await;
    assert_eq!(code, 200);
    let mut calls = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        if methods["servers"].is_array() {
            // Beside the API: health and figures, as text and without asking who it is.
            calls += 1;
            let answer = until(path, async || {
                let url = format!("http://{}{path}", service.metrics);
                let answer = common::client().get(url).send().await.unwrap();
                (answer.status() == 200).then_some(answer)
            })
            .await;
            let said = answer.headers()["content-type"]
                .to_str()
                .unwrap()
                .split(';')
                .next()
                .unwrap()
                .to_owned();
            let known = &methods["get"]["responses"]["200"]["content"];
            assert!(known[&said].is_object(), "{path}: {said} is not in {known}");
            assert!(!answer.text().await.unwrap().is_empty());
            continue;
        }
        let filled = path
            .replace("{id}", "none-1-1")
            .replace("{action}", "approve")
            .replace("{uuid}", "00000000-0000-0000-0000-000000000000")
            .replace("{kind}", "zone")
            .replace("{source}", "none")
            .replace("{host}", N1)
            .replace("{hostname}", N1)
            .replace("{name}", "a");
        for (method, operation) in methods.as_object().unwrap() {
            calls += 1;
            let method = method.to_ascii_uppercase();
            // Without credentials everything is refused, so it is there.
            let (code, answer) = service.send(&method, &filled, None, None).await;
            assert_eq!(code, 401, "{method} {filled}: {answer}");
            // With them, whatever is answered is described.
            let token = match operation["x-role"].as_str().unwrap() {
                "viewers" => VIEWER,
                "operators" => OPERATOR,
                "agents" => AGENT,
                "senders" => SENDER,
                _ => continue,
            };
            if method != "GET" {
                continue;
            }
            let (code, answer) = service.send(&method, &filled, Some(token), None).await;
            if code == 200 {
                let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
                conforms(&described, schema, &answer, &filled);
            } else {
                let schema = json!({"$ref": "#/components/schemas/Problem"});
                conforms(&described, &schema, &answer, &filled);
            }
        }
    }
    assert!(calls > 20, "{calls}");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(described["paths"][path]["get"].is_object(), "{path}");
    }
    assert_eq!(
        service
            .send("GET", "/api/v1/undescribed", Some(VIEWER), None)
            .await
            .0,
        404
    );
    assert_eq!(
        service.send("PATCH", "/api/v1/hosts", Some(VIEWER), None).await.0,
        405
    );
}

/// Whether a value is as a schema says: required fields are there, and no field is unknown.
fn conforms(document: &serde_json::Value, schema: &serde_json::Value, value: &serde_json::Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return conforms(document, &document["components"]["schemas"][name], value, at);
    }
    if let Some(items) = value.as_array() {
        assert!(schema["items"].is_object(), "{at}: a list was not described");
        for item in items {
            conforms(document, &schema["items"], item, at);
        }
    }
    let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else {
        return;
    };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(
            fields.contains_key(required.as_str().unwrap()),
            "{at}: {required} is missing in {value}"
        );
    }
    for (name, value) in fields {
        let described = properties.get(name);
        assert!(described.is_some(), "{at}: {name} is not described");
        conforms(document, described.unwrap(), value, at);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_decided_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::builder().hosts(1).build();
    let cloud = Cloud::start(world).await.unwrap();
    let text = format!("{}{ALONE}", base(folder.path()));
    let host = format!("/api/v1/hosts/{N1}");
    let known = async |service: &Running| {
        until("the host is known", async || {
            (service.get(&host).await.0 == 200).then_some(())
        })
        .await;
    };
    let service = Running::start(&text, Some(session(&cloud, folder.path())), None).await;
    known(&service).await;
    let off = Some(json!({"enabled": false}));
    let switch = format!("/api/hypervisors/{N1}");
    assert_eq!(service.send("POST", &switch, Some(OPERATOR), off).await.0, 200);
    let mut agent = Agent::new(N1);
    let events = agent.events(1..=3);
    assert_eq!(agent.report(&service, &events).await.0, 200);
    service.kill().await;

    let service = Running::start(&text, Some(session(&cloud, folder.path())), None).await;
    known(&service).await;
    let (_, found) = service.get(&host).await;
    assert_eq!(found["ha_enabled"], false, "{found}");
    let again = agent.events(1..=4);
    let (code, answer) = agent.report(&service, &again).await;
    assert_eq!((code, &answer["acked_seq"]), (200, &json!(4)), "{answer}");
    let (_, page) = service.get("/api/v1/events").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 4, "stored once each");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_fences_itself_is_told_whom_to_ask() {
    // What is cut off together must be known: without a cluster, zones are all that is.
    let world = World::builder().hosts(6).zones(["a", "b", "c"]).build();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token-of-peers").unwrap();
    let fixture = fixture_of(world, |text| {
        let zones = "kubernetes: {enabled: false, failure_domains: [topology.kubernetes.io/zone]}";
        let text = text.replace("kubernetes: {enabled: false}", zones);
        let peers = format!(
            "leader: {{enabled: false, peer_token_file: '{}'}}",
            token.display()
        );
        let text = text.replace("leader: {enabled: false}", &peers);
        format!("{text}openstack: {{services_interval: 1s, hypervisors_interval: 1s}}\n")
    })
    .await;
    let service = &fixture.service;
    let mut agents: Vec<Agent> = (1..=6).map(|n| Agent::new(&format!("node00{n}-bb1"))).collect();
    let said = async |agent: &Agent| {
        // A clone starts over; the boot clock must not.
        let mut agent = agent.clone();
        agent.mono_ns = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
        let mut beat = agent.beat();
        beat.heartbeat.as_mut().unwrap().self_fence = SelfFence {
            armed: true,
            timeout_s: 60,
            lease_ttl_s: 30,
        };
        let (code, answer) = agent.report(service, &beat).await;
        assert_eq!(code, 200, "{answer}");
        answer["peers"].as_array().cloned().unwrap_or_default()
    };
    let seen = async || {
        let (code, answer) = service
            .send(
                "GET",
                "/internal/v1/observe?hosts=node001-bb1",
                Some("token-of-peers"),
                None,
            )
            .await;
        assert_eq!(code, 200, "{answer}");
        answer["hosts"][0].clone()
    };
    until("its host is known", async || {
        assert_eq!(
            said(&agents[0]).await,
            Vec::<Value>::new(),
            "nobody else was heard"
        );
        seen().await.get("age_ms").cloned()
    })
    .await;
    assert_eq!(
        seen().await.get("resets_after_ms"),
        None,
        "nobody knows whom it would ask"
    );
    let peers = until(
        "the others were heard and their addresses are known",
        async || {
            for agent in &agents {
                said(agent).await;
            }
            let peers = said(&agents[0]).await;
            (!peers.is_empty()).then_some(peers)
        },
    )
    .await;
    assert_eq!(peers.len(), 5);
    for url in &peers {
        assert!(url.as_str().unwrap().ends_with(":9184"), "{peers:?}");
    }
    assert_eq!(seen().await["resets_after_ms"], json!(105_000));
    let mut plain = agents.pop().unwrap();
    plain.mono_ns = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
    let beat = plain.beat();
    let (_, answer) = plain.report(service, &beat).await;
    assert_eq!(
        answer.get("peers"),
        None,
        "one that does not fence itself needs nobody"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_takes_effect_and_a_bad_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let text = format!(
        "{}{ALONE}openstack: {{enabled: false}}\nagents: {{silent_after: 15s}}\n",
        base(folder.path())
    );
    common::write_whole(&file, &text);
    let service = Running::start_with(&text, None, None, common::telemetry(), Some(file.clone())).await;
    let shown = async || service.get("/api/v1/config").await.1["config"].clone();
    let counted = async |result: &str| {
        let label = format!("result=\"{result}\"");
        service.figures().await.of("kvm_ha_config_reload_total", &label)
    };
    let until_counted = async |result: &str, count: f64| {
        until(&format!("{count} {result}"), async || {
            (counted(result).await >= count).then_some(())
        })
        .await;
    };
    assert_eq!(shown().await["agents"]["silent_after"], "15s");
    // A new limit, another caller, and a port, which takes a restart.
    let better = text
        .replace("silent_after: 15s", "silent_after: 25s")
        .replace(
            "viewers: {",
            &format!("viewers: {{vera: [{}], ", common::hash("token-of-vera")),
        )
        .replace("per_agent_rps: 1000", "per_agent_rps: 7");
    let vera = async || {
        service
            .send("GET", "/api/v1/hosts", Some("token-of-vera"), None)
            .await
            .0
    };
    assert_eq!(vera().await, 401);
    common::write_whole(&file, &better);
    until_counted("applied", 1.0).await;
    let now = shown().await;
    assert_eq!(now["agents"]["silent_after"], "25s");
    assert_eq!(
        now["server"]["limits"]["per_agent_rps"], 1000,
        "what is read at the start only stays"
    );
    assert_eq!(vera().await, 200);
    // Mistakes of any kind: unknown keys, bad values, devices that cannot be used.
    let bad = [
        format!("{better}evidence: {{min_groups: 1}}\n"),
        format!("{better}surprise: 1\n"),
        format!("{better}fencing: {{levels: [[{{driver: redfish, url: 'ftp://x'}}]]}}\n"),
        format!(
            "{better}fencing: {{levels: [[{{driver: redfish, url: 'https://x', ca_file: /nonexistent}}]]}}\n"
        ),
        "{".to_owned(),
    ];
    for (n, text) in bad.iter().enumerate() {
        common::write_whole(&file, text);
        until_counted("rejected", n as f64 + 1.0).await;
        assert_eq!(
            shown().await["agents"]["silent_after"],
            "25s",
            "{text}: the old one stays"
        );
    }
    assert_eq!(counted("applied").await, 1.0);
    common::write_whole(&file, &text);
    until_counted("applied", 2.0).await;
    assert_eq!(vera().await, 401, "a caller that is not known any more");
    service.stop().await;
}

/// Every promised figure that needs no incident is there, under its name; the others are looked at where a host dies.
#[tokio::test(flavor = "multi_thread")]
async fn every_promised_figure_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::start(World::builder().hosts(2).build()).await.unwrap();
    let telemetry = common::telemetry();
    let session = common::counted_session(&cloud, folder.path(), Some(&telemetry));
    let more = "sources:\n  pull:\n    - {name: gone, kind: prometheus, url: 'http://127.0.0.1:1', interval: 2s, timeout: 1s, rules: [{name: r, group: M, expr: 'up == 0', verdict: dead, host_label: node}]}\n";
    let text = format!("{}{ALONE}{more}", base(folder.path()));
    let service = Running::start_with(&text, Some(session), None, telemetry, None).await;
    let mut agent = Agent::new(N1);
    let batch = agent.events(1..=3);
    assert_eq!(agent.report(&service, &batch).await.0, 200);
    let until_when = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_hours(1))
        .unwrap();
    let pause = Some(json!({"reason": "planned work", "until": until_when}));
    service
        .send("PUT", "/api/v1/pauses/zone/a", Some(OPERATOR), pause)
        .await;
    let figures = until("what happens at intervals has happened", async || {
        let figures = service.figures().await;
        let done = figures.of("kvm_ha_hosts", "") > 0.0
            && figures.0.contains("kvm_ha_pull_up{source=\"gone\"} 0")
            && figures.of("kvm_ha_nova_requests_total", "code=\"200\"") > 0.0;
        done.then_some(figures)
    })
    .await;
    for name in [
        "hosts",
        "hosts_unfenceable",
        "signals",
        "detection_seconds",
        "evacuate_call_seconds",
        "vm_recovery_seconds",
        "nova_requests",
        "nova_request_seconds",
        "ingest_events",
        "ingest_batches",
        "ingest_lag_seconds",
        "db_size_bytes",
        "db_commit_seconds",
        "pull_up",
        "self_isolated",
        "storm_active",
        "leader",
        "zombies",
        "paused",
        "build_info",
    ] {
        let described = figures.describes(&format!("kvm_ha_{name}"));
        assert!(described, "kvm_ha_{name}:\n{}", figures.0);
    }
    let begins = r#"kvm_ha_vm_recoveries_total{result="needs-person",reason="VerifyFailed"} 0"#;
    assert!(
        figures.0.contains(begins),
        "the first guest is seen as a growth: {}",
        figures.0
    );
    for (name, label, wanted) in [
        ("kvm_ha_ingest_events_total", "kind=\"lifecycle\"", 3.0),
        ("kvm_ha_ingest_batches_total", "code=\"200\"", 1.0),
        ("kvm_ha_ingest_lag_seconds_count", "", 3.0),
        ("kvm_ha_db_commit_seconds_count", "", 1.0),
        ("kvm_ha_paused", "scope=\"zone\"", 1.0),
    ] {
        assert_eq!(figures.of(name, label), wanted, "{name}:\n{}", figures.0);
    }
    service.stop().await;
}
