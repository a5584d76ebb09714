// SPDX-License-Identifier: Apache-2.0
//! Many writers of one object. A change that names no version is built anew until it fits; only one
//! that names a version can be too late.

use std::sync::Arc;

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::json;

const WRITERS: usize = 32;
const PATH: &str = "/api/v1/namespaces/default/configmaps/shared";

async fn all(write: impl AsyncFn(Arc<TestServer>, usize) -> u16 + Copy + Send + Sync + 'static) -> Vec<u16> {
    let server = Arc::new(TestServer::start().await);
    let codes: Vec<u16> = futures::future::join_all((0..WRITERS).map(|n| write(server.clone(), n))).await;
    let object = server.admin().get(PATH).await.body;
    let kept = object["data"].as_object().map_or(0, serde_json::Map::len);
    assert_eq!(kept, WRITERS, "nobody's change is lost: {object}");
    codes
}

#[tokio::test]
async fn appliers_that_race_all_succeed_and_one_of_them_creates() {
    let mut codes = all(async |server, n| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
            "data": {format!("key{n}"): "value"},
        });
        let path = format!("{PATH}?fieldManager=writer{n}");
        server.admin().apply(&path, &object).await.code
    })
    .await;
    codes.sort_unstable();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert_eq!(
        codes.iter().filter(|code| **code == 200).count(),
        WRITERS - 1,
        "{codes:?}"
    );
}

#[tokio::test]
async fn merge_patches_that_race_all_succeed() {
    let codes = all(async |server, n| {
        let admin = server.admin();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}});
        admin.post("/api/v1/namespaces/default/configmaps", &object).await;
        admin
            .merge(PATH, &json!({"data": {format!("key{n}"): "value"}}))
            .await
            .code
    })
    .await;
    assert_eq!(codes, [200; WRITERS]);
}

/// Two managers each put the same field to their own value, three times.
async fn fight(server: &TestServer) {
    for round in 0..6 {
        let who = ["left", "right"][round % 2];
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
            "data": {"contested": who, who: "mine"},
        });
        let path = format!("{PATH}?fieldManager={who}&force=true");
        assert!(server.admin().apply(&path, &object).await.code < 300);
    }
}

#[tokio::test]
#[should_panic(expected = "configmaps default/shared .data.contested: taken 5 times, by right, left")]
async fn managers_that_fight_are_named() {
    let server = TestServer::start().await;
    fight(&server).await;
    server.assert_no_conflicting_managers(2).await;
}

#[tokio::test]
async fn the_log_says_who_wrote_what() {
    let server = TestServer::start().await;
    fight(&server).await;
    server.assert_no_conflicting_managers(5).await;
    let log = server.writes();
    let last = log.iter().rfind(|entry| entry.name == "shared").unwrap();
    assert_eq!(last.managers().into_iter().collect::<Vec<_>>(), ["left", "right"]);
    assert_eq!(last.changes(), [r#"/data/contested: "left" -> "right""#]);
}
