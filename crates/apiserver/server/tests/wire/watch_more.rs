// SPDX-License-Identifier: Apache-2.0
//! Further ways to watch: after definitions change, through selectors with sets, by metadata only
//! with bookmarks, and what happens to a watch when rights or kinds go away.

use std::time::Duration;

use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Effect, Fault};
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUIET: Duration = Duration::from_millis(150);

fn lines(raw: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(raw)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}")))
        .collect()
}

#[tokio::test]
async fn bookmarks_fit_the_form_of_the_watch() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1");
    let metas = admin
        .send(
            Method::GET,
            &path,
            &[(
                "accept",
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            )],
            "",
        )
        .await;
    let metas = lines(&metas.raw);
    let end = metas.iter().find(|e| e["type"] == "BOOKMARK").unwrap();
    assert_eq!(
        (&end["object"]["kind"], &end["object"]["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(
        end["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    let tables = admin
        .send(
            Method::GET,
            &path,
            &[(
                "accept",
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            )],
            "",
        )
        .await;
    let tables = lines(&tables.raw);
    let end = tables.iter().find(|e| e["type"] == "BOOKMARK").unwrap();
    assert_eq!(
        (
            &end["object"]["kind"],
            end["object"]["rows"].as_array().map(Vec::len)
        ),
        (&json!("Table"), Some(1)),
        "{end}"
    );
    assert_eq!(
        end["object"]["rows"][0]["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"}),
        "{end}"
    );
}

#[tokio::test]
async fn set_selectors_follow_objects() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = rv(&admin.get(MAPS).await.body);
    let watch = async |selector: &str| {
        admin
            .watch(&format!(
                "{MAPS}?watch=true&resourceVersion={from}&labelSelector={selector}"
            ))
            .await
    };
    let mut within = watch("t%20in%20(a,b)").await;
    let mut without = watch("!t").await;
    let mut not_a = watch("t!%3Da").await;
    create(&admin, MAPS, &labelled("x", json!({"t": "a"}))).await;
    admin
        .merge(&format!("{MAPS}/x"), &json!({"metadata": {"labels": {"t": "b"}}}))
        .await;
    admin
        .merge(&format!("{MAPS}/x"), &json!({"metadata": {"labels": {"t": "c"}}}))
        .await;
    admin
        .merge(
            &format!("{MAPS}/x"),
            &json!({"metadata": {"labels": {"t": null}}}),
        )
        .await;
    let all = async |events: &mut cobaltcore_apiserver::testkit::Events| {
        let mut seen = Vec::new();
        while let Some(event) = events.within(QUIET).await {
            seen.push(event["type"].as_str().unwrap().to_owned());
        }
        seen
    };
    assert_eq!(all(&mut within).await, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(all(&mut without).await, ["ADDED"]);
    assert_eq!(all(&mut not_a).await, ["ADDED", "MODIFIED", "MODIFIED"]);
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_again() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut from = rv(&admin.get(MAPS).await.body);
    for n in 0..7 {
        create(&admin, MAPS, &map(&format!("m{n}"), "1")).await;
    }
    server
        .faults()
        .inject(Fault::new(Effect::CutWatch(2)).verb("watch").times(3));
    let mut seen = Vec::new();
    while seen.len() < 7 {
        let mut events = admin
            .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
            .await;
        while let Some(event) = events.within(QUIET).await {
            from = rv(&event["object"]);
            seen.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
}

#[tokio::test]
async fn watching_a_name_that_does_not_exist_yet() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Dlater"))
        .await;
    create(&admin, MAPS, &map("sooner", "1")).await;
    create(&admin, MAPS, &map("later", "1")).await;
    assert_eq!(brief(&events.expect().await), "ADDED later");
    let single = admin.get(&format!("{MAPS}/later?watch=true")).await;
    assert_eq!(
        (single.code, &single.body["kind"]),
        (200, &json!("ConfigMap")),
        "watch on one object's path is a get"
    );
}

#[tokio::test]
async fn a_changed_schema_ends_watches_and_shows_in_the_next() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition(
            "widgets",
            "Widget",
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
    )
    .await;
    let from = rv(&admin.get(WIDGETS).await.body);
    create(&admin, WIDGETS, &widget("w", json!({"a": "1"}))).await;
    let patch = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b", "value": {"type": "integer", "default": 4}}]);
    let mut old = admin
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion={from}"))
        .await;
    assert_eq!(old.expect().await["object"]["spec"], json!({"a": "1"}));
    assert_eq!(
        admin
            .merge(
                &format!("{CRDS}/widgets.example.com"),
                &json!({"metadata": {"labels": {"x": "y"}}})
            )
            .await
            .code,
        200
    );
    assert_eq!(old.within(QUIET).await, None);
    create(&admin, WIDGETS, &widget("w2", json!({"a": "2"}))).await;
    assert_eq!(
        brief(&old.expect().await),
        "ADDED w2",
        "a label of the definition changes nothing"
    );
    assert_eq!(
        admin
            .json_patch(&format!("{CRDS}/widgets.example.com"), &patch)
            .await
            .code,
        200
    );
    let end = tokio::time::timeout(Duration::from_secs(60), old.next())
        .await
        .expect("the stream must end");
    assert_eq!(end, None, "what comes now would be shown by the old schema");
    let mut events = admin
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion={from}"))
        .await;
    assert_eq!(events.expect().await["object"]["spec"], json!({"a": "1", "b": 4}));
}

/// A further version is a change of the definition too, although nothing of the watched one changed.
#[tokio::test]
async fn a_new_version_ends_the_watches_of_the_others() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut widgets = definition("widgets", "Widget", any);
    install(&admin, &widgets).await;
    let mut events = admin.watch(&format!("{WIDGETS}?watch=true")).await;
    create(&admin, WIDGETS, &widget("w", json!({}))).await;
    assert_eq!(brief(&events.expect().await), "ADDED w");
    let mut second = widgets["spec"]["versions"][0].take();
    widgets["spec"]["versions"] = json!([second.clone()]);
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    widgets["spec"]["versions"].as_array_mut().unwrap().push(second);
    let path = format!("{CRDS}/widgets.example.com");
    let changed = admin.merge(&path, &json!({"spec": widgets["spec"]})).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let end = tokio::time::timeout(Duration::from_secs(60), events.next())
        .await
        .expect("the stream must end");
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_version_no_longer_served_ends_its_watches() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    install(&admin, &crd).await;
    let mut events = admin.watch("/apis/example.com/v2/widgets?watch=true").await;
    assert_eq!(events.code, 200);
    let patch = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    assert_eq!(
        admin
            .json_patch(&format!("{CRDS}/widgets.example.com"), &patch)
            .await
            .code,
        200
    );
    assert_eq!(admin.get("/apis/example.com/v2/widgets").await.code, 404);
    let end = tokio::time::timeout(Duration::from_secs(60), events.next())
        .await
        .expect("the stream must end");
    assert_eq!(end, None);
}

#[tokio::test]
async fn delete_collection_is_seen_one_by_one() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for n in 0..3 {
        create(&admin, MAPS, &labelled(&format!("m{n}"), json!({"g": "1"}))).await;
    }
    let from = rv(&admin.get(MAPS).await.body);
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
        .await;
    let reply = admin.delete(&format!("{MAPS}?labelSelector=g%3D1")).await;
    assert_eq!((reply.code, names(&reply.body)), (200, vec!["m0", "m1", "m2"]));
    for name in ["m0", "m1", "m2"] {
        assert_eq!(brief(&events.expect().await), format!("DELETED {name}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_does_not_cost_an_attentive_watcher_its_stream() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = rv(&admin.get(MAPS).await.body);
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
        .await;
    let writers: Vec<_> = (0..8)
        .map(|w| {
            let admin = admin.clone();
            tokio::spawn(async move {
                for n in 0..400 {
                    create(&admin, MAPS, &map(&format!("b{w}-{n}"), "1")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    // It was not read at all during the burst; now it is.
    let mut last = from;
    for n in 0..3_200 {
        let event = events
            .next()
            .await
            .unwrap_or_else(|| panic!("cut off after {n} events"));
        assert!(rv(&event["object"]) > last);
        last = rv(&event["object"]);
    }
}

#[tokio::test]
async fn followers_of_one_object_hear_of_no_other() {
    const FOLLOWERS: usize = 200;
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut followers = Vec::new();
    for n in 0..FOLLOWERS {
        create(&admin, MAPS, &map(&format!("m{n}"), "1")).await;
    }
    let from = rv(&admin.get(MAPS).await.body);
    for n in 0..FOLLOWERS {
        let path = format!("{MAPS}?watch=true&resourceVersion={from}&fieldSelector=metadata.name%3Dm{n}");
        followers.push(admin.watch(&path).await);
    }
    for round in 0..3 {
        for n in (0..FOLLOWERS).rev() {
            let change = json!({"data": {"v": format!("r{round}")}});
            let changed = admin.merge(&format!("{MAPS}/m{n}"), &change).await;
            assert_eq!(changed.code, 200);
        }
    }
    for (n, follower) in followers.iter_mut().enumerate() {
        for round in 0..3 {
            let event = follower.expect().await;
            assert_eq!(brief(&event), format!("MODIFIED m{n}"));
            assert_eq!(event["object"]["data"]["v"], format!("r{round}"));
        }
    }
    let metrics = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.raw).into_owned();
    let sent = format!("apiserver_watch_events_total {}", 3 * FOLLOWERS);
    assert!(text.lines().any(|line| line == sent), "{text}");
}
