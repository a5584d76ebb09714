// SPDX-License-Identifier: Apache-2.0
//! Watches in other forms and over interruptions: tables, metadata, versions, clients that come back
//! and servers that restart.

use std::collections::BTreeMap;

use crate::watching::*;
use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Authorization, Config};
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn tables_and_metadata_can_be_watched() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("a", "1")).await;
    let from = revision(&admin).await;
    create(&admin, MAPS, &map("b", "1")).await;
    create(&admin, MAPS, &map("c", "1")).await;
    let open = async |accept: &str| {
        let path = format!("{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=1");
        let reply = admin.send(Method::GET, &path, &[("accept", accept)], "").await;
        assert_eq!(reply.code, 200);
        String::from_utf8_lossy(&reply.raw)
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap())
            .collect::<Vec<_>>()
    };
    let tables = open("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(tables.len(), 2);
    let first = &tables[0]["object"];
    assert_eq!(
        (&tables[0]["type"], &first["kind"], &first["apiVersion"]),
        (&json!("ADDED"), &json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns: Vec<&str> = first["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(first["rows"][0]["cells"][0], "b");
    assert_eq!(first["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let later = tables[1]["object"]["columnDefinitions"].as_array();
    assert!(
        later.is_none_or(Vec::is_empty),
        "only the first event describes the columns: {}",
        tables[1]
    );
    let metas = open("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
    assert_eq!(metas[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(metas[0]["object"]["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(metas[1]["object"]["metadata"]["name"], "c");
    assert!(metas[0]["object"].get("data").is_none());
}

#[tokio::test]
async fn all_namespaces_and_cluster_objects_are_watched_alike() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = revision(&admin).await;
    let mut all = admin
        .watch(&format!(
            "/api/v1/configmaps?watch=true&resourceVersion={from}&labelSelector=t%3D1"
        ))
        .await;
    let mut spaces = admin
        .watch(&format!("/api/v1/namespaces?watch=true&resourceVersion={from}"))
        .await;
    create(
        &admin,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n2"}}),
    )
    .await;
    assert_eq!(next(&mut spaces).await, "ADDED n2");
    create(
        &admin,
        "/api/v1/namespaces/n2/configmaps",
        &labelled("x", json!({"t": "1"})),
    )
    .await;
    create(&admin, MAPS, &labelled("y", json!({"t": "1"}))).await;
    assert_eq!(next(&mut all).await, "ADDED x");
    assert_eq!(next(&mut all).await, "ADDED y");
}

#[tokio::test]
async fn another_version_of_an_event_or_a_kind_is_watched_in_its_own_form() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition(
        "widgets",
        "Widget",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    install(&admin, &crd).await;
    let from = revision(&admin).await;
    let mut two = admin
        .watch(&format!(
            "/apis/example.com/v2/widgets?watch=true&resourceVersion={from}"
        ))
        .await;
    create(&admin, WIDGETS, &widget("a", json!({"x": 1}))).await;
    let event = two.expect().await;
    assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    assert_eq!(event["object"]["spec"]["x"], 1);
}

#[tokio::test]
async fn a_client_that_reconnects_misses_nothing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let start = revision(&admin).await;
    let mut writers = Vec::new();
    for w in 0..4 {
        let admin = admin.clone();
        writers.push(tokio::spawn(async move {
            for n in 0..40 {
                let path = format!("{MAPS}/w{w}-{}", n % 5);
                if admin
                    .post(MAPS, &map(&format!("w{w}-{}", n % 5), &n.to_string()))
                    .await
                    .code
                    == 409
                {
                    if n % 7 == 0 {
                        admin.delete(&path).await;
                    } else {
                        admin.merge(&path, &json!({"data": {"v": n.to_string()}})).await;
                    }
                }
            }
        }));
    }
    let (mut from, mut seen) = (start, Vec::new());
    let mut done = false;
    while !done {
        done = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let mut events = admin
            .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
            .await;
        for _ in 0..12 {
            let Some(event) = events.within(QUIET).await else {
                break;
            };
            let at = rv(&event["object"]);
            assert!(at > from, "in order, no repetition: {at} after {from}");
            from = at;
            seen.push(event);
        }
    }
    loop {
        let mut events = admin
            .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
            .await;
        let Some(event) = events.within(QUIET).await else {
            break;
        };
        from = rv(&event["object"]);
        seen.push(event);
    }
    let stored: Vec<u64> = server
        .writes()
        .iter()
        .filter(|w| w.resource == "configmaps" && w.namespace == "default" && w.revision > start)
        .map(|w| w.revision)
        .collect();
    let watched: Vec<u64> = seen.iter().map(|e| rv(&e["object"])).collect();
    assert_eq!(watched, stored, "every change exactly once");
    let mut state: BTreeMap<String, String> = BTreeMap::new();
    for event in &seen {
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "DELETED" => assert!(state.remove(&name).is_some(), "deleted what was there"),
            "ADDED" => assert!(
                state
                    .insert(name, event["object"]["data"]["v"].to_string())
                    .is_none(),
                "added what was not"
            ),
            _ => assert!(
                state
                    .insert(name, event["object"]["data"]["v"].to_string())
                    .is_some(),
                "modified what was there"
            ),
        }
    }
    let list = admin.get(MAPS).await.body;
    let listed: BTreeMap<String, String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|i| i["metadata"]["name"] != "kube-root-ca.crt")
        .map(|i| {
            (
                i["metadata"]["name"].as_str().unwrap().to_owned(),
                i["data"]["v"].to_string(),
            )
        })
        .collect();
    assert_eq!(state, listed);
}

#[tokio::test]
async fn a_paged_list_and_its_watch_converge() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for n in 0..25 {
        create(&admin, MAPS, &map(&format!("m{n:02}"), "0")).await;
    }
    let first = admin.get(&format!("{MAPS}?limit=10")).await.body;
    let at = rv(&first);
    let mut state: BTreeMap<String, Value> = BTreeMap::new();
    let mut page = first;
    let mut turn = 0;
    loop {
        for item in page["items"].as_array().unwrap() {
            state.insert(
                item["metadata"]["name"].as_str().unwrap().into(),
                item["data"].clone(),
            );
        }
        admin
            .merge(
                &format!("{MAPS}/m{:02}", 20 + turn),
                &json!({"data": {"v": "changed"}}),
            )
            .await;
        admin.delete(&format!("{MAPS}/m{turn:02}")).await;
        turn += 1;
        let token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
        page = admin.get(&format!("{MAPS}?limit=10&continue={token}")).await.body;
        assert_eq!(rv(&page), at, "all pages are of one revision");
    }
    assert_eq!(state.len(), 26, "the state of the first page");
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={at}"))
        .await;
    while let Some(event) = events.within(QUIET).await {
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        if event["type"] == "DELETED" {
            state.remove(&name);
        } else {
            state.insert(name, event["object"]["data"].clone());
        }
    }
    let list = admin.get(MAPS).await.body;
    let listed: BTreeMap<String, Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| (i["metadata"]["name"].as_str().unwrap().into(), i["data"].clone()))
        .collect();
    assert_eq!(state, listed);
}

#[tokio::test]
async fn watches_survive_two_restarts() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let config = || Config {
        data_dir: Some(dir.path().to_owned()),
        authorization: Authorization::AlwaysAllow,
        ..Config::default()
    };
    let mut from = 0;
    let mut expected = Vec::new();
    for round in 0..3 {
        let server = TestServer::with(config()).await;
        let admin = server.admin();
        if from == 0 {
            from = revision(&admin).await;
        }
        let mut events = admin
            .watch(&format!(
                "{MAPS}?watch=true&resourceVersion={from}&labelSelector=t"
            ))
            .await;
        let name = format!("r{round}");
        create(&admin, MAPS, &labelled(&name, json!({"t": "1"}))).await;
        expected.push(format!("ADDED {name}"));
        for wanted in &expected {
            assert_eq!(&next(&mut events).await, wanted, "round {round}");
        }
        admin
            .merge(
                &format!("{MAPS}/{name}"),
                &json!({"metadata": {"labels": {"t": null}}}),
            )
            .await;
        expected.push(format!("DELETED {name}"));
        assert_eq!(next(&mut events).await, format!("DELETED {name}"));
        drop(events);
        server.stop().await;
    }
}
