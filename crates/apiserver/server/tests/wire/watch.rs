// SPDX-License-Identifier: Apache-2.0
//! Watches as clients see them: what comes first, what each change looks like, when a stream ends,
//! and what a client that comes back is told.

use std::time::Duration;

use crate::watching::*;
use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Effect, Fault};
use serde_json::json;

#[tokio::test]
async fn from_a_revision_only_later_changes_come() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("before", "1")).await;
    let from = revision(&admin).await;
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
        .await;
    assert_eq!(events.code, 200);
    let created = create(&admin, MAPS, &map("a", "1")).await;
    let changed = admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "2"}}))
        .await
        .body;
    let added = events.expect().await;
    assert_eq!(added, json!({"type": "ADDED", "object": created}));
    assert_eq!(
        events.expect().await,
        json!({"type": "MODIFIED", "object": changed})
    );
    assert_eq!(admin.delete(&format!("{MAPS}/a")).await.code, 200);
    let deleted = events.expect().await;
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["data"]["v"], "2", "the last state");
    assert!(
        rv(&deleted["object"]) > rv(&changed),
        "with the revision of the deletion"
    );
    assert_eq!(rv(&deleted["object"]), revision(&admin).await);
}

#[tokio::test]
async fn without_a_revision_the_state_comes_first() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("b", "1")).await;
    create(&admin, MAPS, &map("a", "1")).await;
    for query in [
        "watch=true",
        "watch=1",
        "watch=true&resourceVersion=0",
        "watch=true&resourceVersion=",
    ] {
        let mut events = admin.watch(&format!("{MAPS}?{query}")).await;
        let mut first = vec![
            next(&mut events).await,
            next(&mut events).await,
            next(&mut events).await,
        ];
        first.sort();
        assert_eq!(first, ["ADDED a", "ADDED b", "ADDED kube-root-ca.crt"], "{query}");
        assert_eq!(
            events.within(QUIET).await,
            None,
            "{query}: nothing else, no bookmark"
        );
    }
}

#[tokio::test]
async fn asking_for_bookmarks_closes_the_first_part() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("a", "1")).await;
    for query in [
        "watch=true&allowWatchBookmarks=true",
        "watch=true&allowWatchBookmarks=true&resourceVersion=0",
        "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
        "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ] {
        let newest = revision(&admin).await;
        let mut events = admin.watch(&format!("{MAPS}?{query}")).await;
        assert_eq!(next(&mut events).await, "ADDED a", "{query}");
        assert_eq!(next(&mut events).await, "ADDED kube-root-ca.crt", "{query}");
        let end = events.expect().await;
        assert_eq!(end["type"], "BOOKMARK", "{query}");
        let object = &end["object"];
        assert_eq!(object["kind"], "ConfigMap");
        assert_eq!(object["apiVersion"], "v1");
        assert_eq!(
            object["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"}),
            "{query}"
        );
        assert!(rv(object) >= newest, "{query}");
        assert!(object.get("data").is_none());
        create(&admin, MAPS, &map(&format!("x{newest}"), "1")).await;
        assert_eq!(
            next(&mut events).await,
            format!("ADDED x{newest}"),
            "{query}: changes follow"
        );
        admin.delete(&format!("{MAPS}/x{newest}")).await;
    }
}

#[tokio::test]
async fn a_streaming_list_is_the_list() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for n in 0..300 {
        create(&admin, MAPS, &map(&format!("m{n:03}"), "x")).await;
    }
    let list = admin.get(MAPS).await.body;
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))
        .await;
    let mut seen = Vec::new();
    let end = loop {
        let event = events.expect().await;
        if event["type"] == "BOOKMARK" {
            break event;
        }
        assert_eq!(event["type"], "ADDED");
        assert_eq!(
            (&event["object"]["kind"], &event["object"]["apiVersion"]),
            (&json!("ConfigMap"), &json!("v1"))
        );
        seen.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
    };
    assert_eq!(seen, names(&list));
    assert_eq!(rv(&end["object"]), rv(&list));
}

#[tokio::test]
async fn initial_events_off_begin_now() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("old", "1")).await;
    let mut events = admin
        .watch(&format!(
            "{MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        ))
        .await;
    assert_eq!(events.code, 200);
    assert_eq!(events.within(QUIET).await, None);
    create(&admin, MAPS, &map("new", "1")).await;
    assert_eq!(next(&mut events).await, "ADDED new");
}

#[tokio::test]
async fn options_that_do_not_fit_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let cases = [
        (
            "watch=true&sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
        ),
        (
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ];
    for (query, text) in cases {
        let reply = admin.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{query}: {}",
            reply.body
        );
        assert_eq!(reply.body["details"]["kind"], "ListOptions", "{query}");
        assert!(reply.message().contains(text), "{query}: {}", reply.message());
    }
}

#[tokio::test]
async fn the_old_watch_paths_still_work() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("a", "1")).await;
    create(&admin, MAPS, &map("b", "1")).await;
    let from = revision(&admin).await - 2;
    for (path, expected) in [
        (
            "/api/v1/watch/namespaces/default/configmaps",
            vec!["ADDED a", "ADDED b"],
        ),
        ("/api/v1/watch/configmaps", vec!["ADDED a", "ADDED b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b", vec!["ADDED b"]),
        ("/api/v1/watch/namespaces", vec![]),
    ] {
        let mut events = admin.watch(&format!("{path}?resourceVersion={from}")).await;
        assert_eq!(events.code, 200, "{path}");
        for wanted in expected {
            assert_eq!(next(&mut events).await, wanted, "{path}");
        }
        assert_eq!(events.within(QUIET).await, None, "{path}");
    }
}

#[tokio::test]
async fn selectors_turn_changes_into_coming_and_going() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = revision(&admin).await;
    let mut red = admin
        .watch(&format!(
            "{MAPS}?watch=true&resourceVersion={from}&labelSelector=colour%3Dred"
        ))
        .await;
    create(&admin, MAPS, &labelled("a", json!({"colour": "blue"}))).await;
    create(&admin, MAPS, &labelled("b", json!({"colour": "red"}))).await;
    assert_eq!(next(&mut red).await, "ADDED b", "what does not match is not seen");
    let now_red = admin
        .merge(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"labels": {"colour": "red"}}}),
        )
        .await
        .body;
    assert_eq!(red.expect().await, json!({"type": "ADDED", "object": now_red}));
    admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"k": "1"}}))
        .await;
    assert_eq!(next(&mut red).await, "MODIFIED a");
    let now_blue = admin
        .merge(
            &format!("{MAPS}/a"),
            &json!({"data": {"k": "2"}, "metadata": {"labels": {"colour": "blue"}}}),
        )
        .await
        .body;
    let left = red.expect().await;
    assert_eq!(left["type"], "DELETED");
    assert_eq!(
        left["object"]["metadata"]["labels"]["colour"], "red",
        "the old state"
    );
    assert_eq!(left["object"]["data"]["k"], "1", "the old state");
    assert_eq!(
        rv(&left["object"]),
        rv(&now_blue),
        "with the revision of the change"
    );
    admin.delete(&format!("{MAPS}/a")).await;
    admin.delete(&format!("{MAPS}/b")).await;
    assert_eq!(
        next(&mut red).await,
        "DELETED b",
        "a's deletion concerns nobody here"
    );
}

#[tokio::test]
async fn field_selectors_do_the_same() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    let from = revision(&admin).await;
    let mut running = admin
        .watch(&format!(
            "{pods}?watch=true&resourceVersion={from}&fieldSelector=status.phase%3DRunning"
        ))
        .await;
    let mut one = admin
        .watch(&format!(
            "{pods}?watch=true&resourceVersion={from}&fieldSelector=metadata.name%3Dq"
        ))
        .await;
    create(&admin, pods, &pod("p")).await;
    create(&admin, pods, &pod("q")).await;
    assert_eq!(next(&mut one).await, "ADDED q");
    let set = |phase: &str| json!({"status": {"phase": phase}});
    assert_eq!(
        admin
            .merge(&format!("{pods}/p/status"), &set("Running"))
            .await
            .code,
        200
    );
    assert_eq!(next(&mut running).await, "ADDED p");
    admin.merge(&format!("{pods}/p/status"), &set("Succeeded")).await;
    let left = running.expect().await;
    assert_eq!(
        (&left["type"], &left["object"]["status"]["phase"]),
        (&json!("DELETED"), &json!("Running"))
    );
    assert_eq!(one.within(QUIET).await, None);
}

#[tokio::test]
async fn custom_resources_are_selected_by_their_fields() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition(
        "widgets",
        "Widget",
        json!({"type": "object", "properties": {"colour": {"type": "string"}, "size": {"type": "integer"}}}),
    );
    crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    install(&admin, &crd).await;
    let from = revision(&admin).await;
    let mut red = admin
        .watch(&format!(
            "{WIDGETS}?watch=true&resourceVersion={from}&fieldSelector=spec.colour%3Dred"
        ))
        .await;
    create(&admin, WIDGETS, &widget("a", json!({"colour": "red"}))).await;
    create(&admin, WIDGETS, &widget("b", json!({"colour": "blue"}))).await;
    assert_eq!(next(&mut red).await, "ADDED a");
    admin
        .merge(&format!("{WIDGETS}/a"), &json!({"spec": {"colour": "green"}}))
        .await;
    assert_eq!(next(&mut red).await, "DELETED a");
    assert_eq!(
        names(
            &admin
                .get(&format!("{WIDGETS}?fieldSelector=spec.colour%3Dgreen"))
                .await
                .body
        ),
        ["a"]
    );
    assert_eq!(
        names(
            &admin
                .get(&format!("{WIDGETS}?fieldSelector=spec.colour!%3Dgreen"))
                .await
                .body
        ),
        ["b"]
    );
    let refused = admin.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await;
    assert_eq!(
        (refused.code, refused.reason(), refused.message()),
        (400, "BadRequest", "field label not supported: spec.size")
    );
    let refused = admin
        .get(&format!("{WIDGETS}?watch=true&fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(
        (refused.code, refused.message()),
        (400, "field label not supported: spec.size")
    );
}

#[tokio::test]
async fn timeout_seconds_ends_the_stream_and_a_bookmark_comes_before() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = revision(&admin).await;
    let begun = std::time::Instant::now();
    let mut events = admin
        .watch(&format!(
            "{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=1"
        ))
        .await;
    assert_eq!(events.next().await, None, "a clean end, no event");
    assert!(begun.elapsed() >= Duration::from_millis(900));
    let mut events = admin
        .watch(&format!(
            "{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=3&allowWatchBookmarks=true"
        ))
        .await;
    create(
        &admin,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}),
    )
    .await;
    let event = events.expect().await;
    assert_eq!(event["type"], "BOOKMARK");
    let meta = event["object"]["metadata"].as_object().unwrap();
    assert!(
        rv(&event["object"]) > from,
        "bookmarks go with the whole server's revision"
    );
    assert!(!meta.contains_key("annotations"));
    assert_eq!(event["object"]["kind"], "ConfigMap");
    while let Some(event) = events.next().await {
        assert_eq!(event["type"], "BOOKMARK");
    }
}

#[tokio::test]
async fn a_revision_of_the_future_waits_silently() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let from = revision(&admin).await + 2;
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={from}"))
        .await;
    assert_eq!(events.code, 200);
    create(&admin, MAPS, &map("one", "1")).await;
    create(&admin, MAPS, &map("two", "1")).await;
    assert_eq!(events.within(QUIET).await, None, "not reached yet");
    create(&admin, MAPS, &map("three", "1")).await;
    assert_eq!(next(&mut events).await, "ADDED three");
}

#[tokio::test]
async fn bad_revisions_and_selectors_are_refused_before_the_stream() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (query, code, text) in [
        ("resourceVersion=abc", 400, "Invalid value: \"abc\""),
        ("labelSelector=a%3D%3D%3Db", 400, "unable to parse requirement"),
        ("fieldSelector=data%3Dx", 400, "field label not supported: data"),
        ("timeoutSeconds=abc", 400, "abc"),
    ] {
        let reply = admin.get(&format!("{MAPS}?watch=true&{query}")).await;
        assert_eq!(reply.code, code, "{query}: {}", reply.body);
        assert!(
            query.starts_with("field") || reply.message().contains(text),
            "{query}: {}",
            reply.message()
        );
    }
}

#[tokio::test]
async fn too_old_a_revision_is_an_error_event() {
    let server = TestServer::start().await;
    let admin = server.admin();
    server
        .faults()
        .inject(Fault::new(Effect::ExpireWatch).verb("watch").times(1));
    let mut events = admin.watch(&format!("{MAPS}?watch=true&resourceVersion=1")).await;
    assert_eq!(events.code, 200);
    let event = events.expect().await;
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["apiVersion"], &status["status"]),
        (&json!("Status"), &json!("v1"), &json!("Failure"))
    );
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .starts_with("too old resource version: 1 ("),
        "{status}"
    );
    assert_eq!(events.next().await, None, "the stream ends");
}

#[tokio::test]
async fn a_custom_collection_has_no_history_before_its_definition() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition("widgets", "Widget", json!({"type": "object"})),
    )
    .await;
    let mut events = admin
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion=1"))
        .await;
    let event = events.expect().await;
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{event}"
    );
}

#[tokio::test]
async fn what_stores_nothing_sends_nothing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let stored = create(&admin, MAPS, &map("a", "1")).await;
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={}", rv(&stored)))
        .await;
    let same = admin.put(&format!("{MAPS}/a"), &stored).await;
    assert_eq!((same.code, rv(&same.body)), (200, rv(&stored)));
    assert_eq!(
        rv(&admin
            .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "1"}}))
            .await
            .body),
        rv(&stored)
    );
    admin
        .merge(&format!("{MAPS}/a?dryRun=All"), &json!({"data": {"v": "9"}}))
        .await;
    admin.delete(&format!("{MAPS}/a?dryRun=All")).await;
    assert_eq!(events.within(QUIET).await, None);
}

#[tokio::test]
async fn the_last_finalizer_takes_the_object_along() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut object = map("a", "1");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let created = create(&admin, MAPS, &object).await;
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={}", rv(&created)))
        .await;
    let marked = admin.delete(&format!("{MAPS}/a")).await;
    assert_eq!((marked.code, &marked.body["kind"]), (200, &json!("ConfigMap")));
    assert_eq!(marked.body["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        events.expect().await,
        json!({"type": "MODIFIED", "object": marked.body})
    );
    let again = admin.delete(&format!("{MAPS}/a")).await;
    assert_eq!(
        (again.code, rv(&again.body)),
        (200, rv(&marked.body)),
        "repeating changes nothing"
    );
    let last = admin
        .merge(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(
        (last.code, rv(&last.body)),
        (200, rv(&marked.body)),
        "the old version"
    );
    assert!(last.body["metadata"].get("finalizers").is_none());
    let deleted = events.expect().await;
    assert_eq!(deleted["type"], "DELETED");
    assert!(rv(&deleted["object"]) > rv(&marked.body));
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn deleting_a_definition_ends_its_watches() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition("widgets", "Widget", json!({"type": "object"})),
    )
    .await;
    create(&admin, WIDGETS, &widget("a", json!({}))).await;
    create(&admin, WIDGETS, &widget("b", json!({}))).await;
    let from = rv(&admin.get(WIDGETS).await.body);
    let mut events = admin
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion={from}"))
        .await;
    assert_eq!(
        admin.delete(&format!("{CRDS}/widgets.example.com")).await.code,
        200
    );
    let mut seen = vec![next(&mut events).await, next(&mut events).await];
    seen.sort();
    assert_eq!(seen, ["DELETED a", "DELETED b"]);
    let end = tokio::time::timeout(Duration::from_secs(60), events.next())
        .await
        .expect("the stream must end");
    assert_eq!(end, None);
    gone(&admin, WIDGETS).await;
}
