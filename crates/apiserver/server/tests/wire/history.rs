// SPDX-License-Identifier: Apache-2.0
//! Revisions and the past: one sequence for everything, states of earlier revisions, and what
//! survives restarts.

use std::time::Duration;

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use cobaltcore_apiserver::{Authorization, Config};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn increment(caller: Caller, times: usize) -> usize {
    let mut conflicts = 0;
    for _ in 0..times {
        loop {
            let mut counter = caller.get(&format!("{MAPS}/counter")).await.body;
            let n: u64 = counter["data"]["n"].as_str().unwrap().parse().unwrap();
            counter["data"]["n"] = json!((n + 1).to_string());
            let reply = caller.put(&format!("{MAPS}/counter"), &counter).await;
            match reply.code {
                200 => break,
                409 => {
                    assert_eq!(reply.reason(), "Conflict");
                    assert_eq!(
                        reply.message(),
                        "Operation cannot be fulfilled on configmaps \"counter\": the object has been modified; please apply your changes to the latest version and try again"
                    );
                    assert_eq!(
                        reply.body["details"],
                        json!({"name": "counter", "kind": "configmaps"})
                    );
                    conflicts += 1;
                }
                other => panic!("{other}: {}", reply.body),
            }
        }
    }
    conflicts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_clients_count_to_sixty() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"n": "0"}})).await;
    let clients: Vec<_> = (0..6)
        .map(|_| tokio::spawn(increment(admin.clone(), 10)))
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(
        admin.get(&format!("{MAPS}/counter")).await.body["data"]["n"],
        "60"
    );
}

#[tokio::test]
async fn every_change_takes_one_number_of_the_one_sequence() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let one = create(&admin, MAPS, &map("a", "1")).await;
    let two = create(
        &admin,
        "/api/v1/namespaces/default/secrets",
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
    )
    .await;
    let three = admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "2"}}))
        .await
        .body;
    assert_eq!((rv(&two), rv(&three)), (rv(&one) + 1, rv(&one) + 2));
    assert_eq!(
        admin.delete("/api/v1/namespaces/default/secrets/s").await.code,
        200
    );
    assert_eq!(
        rv(&admin.get("/api/v1/nodes").await.body),
        rv(&one) + 3,
        "a list carries the server's revision"
    );
    let refused = admin.post(MAPS, &map("a", "1")).await;
    assert_eq!(refused.code, 409);
    assert_eq!(
        rv(&create(&admin, MAPS, &map("b", "1")).await),
        rv(&one) + 4,
        "what failed took none"
    );
}

#[tokio::test]
async fn lists_of_the_past_are_exact() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("a", "1")).await;
    let then = rv(&create(&admin, MAPS, &map("b", "1")).await);
    admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "2"}}))
        .await;
    admin.delete(&format!("{MAPS}/b")).await;
    create(&admin, MAPS, &map("c", "1")).await;
    let past = admin
        .get(&format!(
            "{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!(past.code, 200, "{}", past.body);
    assert_eq!(
        (names(&past.body), rv(&past.body)),
        (vec!["a", "b", "kube-root-ca.crt"], then)
    );
    assert_eq!(past.body["items"][0]["data"]["v"], "1");
    let newer = admin
        .get(&format!(
            "{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan"
        ))
        .await;
    assert_eq!(names(&newer.body), ["a", "c", "kube-root-ca.crt"]);
    let page = admin
        .get(&format!(
            "{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact&limit=1"
        ))
        .await
        .body;
    assert_eq!(
        (names(&page), rv(&page), &page["metadata"]["remainingItemCount"]),
        (vec!["a"], then, &json!(2))
    );
}

#[tokio::test]
async fn revisions_of_the_future_time_out() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let now = rv(&admin.get(MAPS).await.body);
    let reply = admin.get(&format!("{MAPS}?resourceVersion={}", now + 1000)).await;
    assert_eq!((reply.code, reply.reason()), (504, "Timeout"));
    assert_eq!(
        reply.message(),
        format!(
            "Timeout: Too large resource version: {}, current: {now}",
            now + 1000
        )
    );
    assert_eq!(
        causes(&reply),
        [" ResourceVersionTooLarge: Too large resource version"]
    );
    assert_eq!(reply.body["details"]["retryAfterSeconds"], 1);
    let soon = {
        let admin = admin.clone();
        tokio::spawn(async move {
            admin
                .get(&format!("{MAPS}/late?resourceVersion={}", now + 1))
                .await
        })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    create(&admin, MAPS, &map("late", "1")).await;
    assert_eq!(soon.await.unwrap().code, 200, "it came in time");
}

#[tokio::test]
async fn two_restarts_lose_nothing_and_repeat_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut last = 0;
    let mut account = String::new();
    for round in 0..3 {
        let server = TestServer::with(Config {
            data_dir: Some(dir.path().to_owned()),
            authorization: Authorization::AlwaysAllow,
            ..Config::default()
        })
        .await;
        let admin = server.admin();
        let list = admin.get(&format!("{MAPS}?labelSelector=kept")).await.body;
        assert_eq!(list["items"].as_array().unwrap().len(), round);
        let made = create(
            &admin,
            MAPS,
            &labelled(&format!("r{round}"), json!({"kept": "1"})),
        )
        .await;
        assert!(rv(&made) > last, "round {round}");
        last = rv(&made);
        let own = uid(&admin
            .get("/api/v1/namespaces/default/serviceaccounts/default")
            .await
            .body);
        assert!(
            account.is_empty() || account == own,
            "what was there is kept, not made anew"
        );
        account = own;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_restart_finishes_what_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let config = || Config {
        data_dir: Some(dir.path().to_owned()),
        authorization: Authorization::AlwaysAllow,
        ..Config::default()
    };
    let server = TestServer::with(config()).await;
    let admin = server.admin();
    let root = create(&admin, MAPS, &map("root", "1")).await;
    let mut child = map("child", "1");
    child["metadata"]["ownerReferences"] = json!([owner(&root, true)]);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, MAPS, &child).await;
    create(
        &admin,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
    )
    .await;
    let mut held = map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, "/api/v1/namespaces/n/configmaps", &held).await;
    admin
        .delete(&format!("{MAPS}/root?propagationPolicy=Foreground"))
        .await;
    admin.delete("/api/v1/namespaces/n").await;
    server.stop().await;
    let server = TestServer::with(config()).await;
    let admin = server.admin();
    until(&admin, &format!("{MAPS}/child"), |r| {
        r.body["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    for path in [
        format!("{MAPS}/child"),
        "/api/v1/namespaces/n/configmaps/held".to_owned(),
    ] {
        admin
            .merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await;
    }
    gone(&admin, &format!("{MAPS}/root")).await;
    gone(&admin, "/api/v1/namespaces/n").await;
    server.stop().await;
}

#[tokio::test]
async fn a_definition_made_anew_begins_its_own_history() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let config = || Config {
        data_dir: Some(dir.path().to_owned()),
        authorization: Authorization::AlwaysAllow,
        ..Config::default()
    };
    let crd = definition("widgets", "Widget", json!({"type": "object"}));
    let server = TestServer::with(config()).await;
    let admin = server.admin();
    install(&admin, &crd).await;
    let first = create(&admin, WIDGETS, &widget("w", json!({}))).await;
    admin.delete(&format!("{CRDS}/widgets.example.com")).await;
    gone(&admin, &format!("{CRDS}/widgets.example.com")).await;
    gone(&admin, WIDGETS).await;
    install(&admin, &crd).await;
    let second = create(&admin, WIDGETS, &widget("w", json!({}))).await;
    assert_ne!(uid(&first), uid(&second));
    let expect = async |admin: &Caller, when: &str| {
        let mut events = admin
            .watch(&format!("{WIDGETS}?watch=true&resourceVersion=1"))
            .await;
        let event = events.expect().await;
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&json!("ERROR"), &json!(410)),
            "{when}: {event}"
        );
        let mut events = admin
            .watch(&format!(
                "{WIDGETS}?watch=true&resourceVersion={}",
                rv(&second) - 1
            ))
            .await;
        assert_eq!(uid(&events.expect().await["object"]), uid(&second), "{when}");
    };
    expect(&admin, "before the restart").await;
    server.stop().await;
    let server = TestServer::with(config()).await;
    expect(&server.admin(), "after the restart").await;
    server.stop().await;
}

#[tokio::test]
async fn both_kinds_of_store_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut seen = Vec::new();
    for data_dir in [None, Some(dir.path().to_owned())] {
        let server = TestServer::with(Config {
            data_dir,
            authorization: Authorization::AlwaysAllow,
            ..Config::default()
        })
        .await;
        let admin = server.admin();
        let from = rv(&admin.get(MAPS).await.body);
        create(&admin, MAPS, &map("a", "1")).await;
        admin
            .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "2"}}))
            .await;
        create(&admin, MAPS, &map("b", "1")).await;
        admin.delete(&format!("{MAPS}/a")).await;
        let mut events = admin
            .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
            .await;
        let mut story = Vec::new();
        for _ in 0..4 {
            let event = events.expect().await;
            story.push((
                brief(&event),
                rv(&event["object"]) - from,
                event["object"]["data"].clone(),
            ));
        }
        assert_eq!(
            events.within(Duration::from_millis(150)).await,
            None,
            "that is all"
        );
        let exact = admin
            .get(&format!(
                "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
                from + 2
            ))
            .await
            .body;
        story.push((names(&exact).join(","), rv(&exact) - from, json!(null)));
        seen.push(story);
        server.stop().await;
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].len(), 5);
}
