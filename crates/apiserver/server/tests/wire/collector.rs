// SPDX-License-Identifier: Apache-2.0
//! The garbage collector: dependents follow their owners the way the deletion asked for, through
//! generations and across kinds.

use std::time::Duration;

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn owned(name: &str, owners: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// Widget `root` owns ConfigMap `child`, which owns widget `grandchild`.
async fn three_generations(admin: &Caller, blocking: bool) {
    install(admin, &definition("widgets", "Widget", json!({"type": "object"}))).await;
    let root = create(admin, WIDGETS, &widget("root", json!({}))).await;
    let child = create(admin, MAPS, &owned("child", json!([owner(&root, blocking)]))).await;
    let mut grandchild = widget("grandchild", json!({}));
    grandchild["metadata"]["ownerReferences"] = json!([owner(&child, blocking)]);
    create(admin, WIDGETS, &grandchild).await;
}

#[tokio::test]
async fn background_deletion_takes_three_generations() {
    let server = TestServer::start().await;
    let admin = server.admin();
    three_generations(&admin, false).await;
    let reply = admin
        .delete(&format!("{WIDGETS}/root?propagationPolicy=Background"))
        .await;
    assert_eq!((reply.code, &reply.body["status"]), (200, &json!("Success")));
    assert_eq!(
        admin.get(&format!("{WIDGETS}/root")).await.code,
        404,
        "the owner goes first"
    );
    gone(&admin, &format!("{MAPS}/child")).await;
    gone(&admin, &format!("{WIDGETS}/grandchild")).await;
}

#[tokio::test]
async fn foreground_deletion_takes_the_youngest_first() {
    let server = TestServer::start().await;
    let admin = server.admin();
    three_generations(&admin, true).await;
    let reply = admin
        .delete(&format!("{WIDGETS}/root?propagationPolicy=Foreground"))
        .await;
    assert_eq!((reply.code, &reply.body["kind"]), (200, &json!("Widget")));
    assert_eq!(
        reply.body["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    assert!(reply.body["metadata"]["deletionTimestamp"].is_string());
    gone(&admin, &format!("{WIDGETS}/root")).await;
    let order: Vec<String> = server
        .writes()
        .iter()
        .filter(|w| w.operation == "deleted")
        .map(|w| w.name.clone())
        .collect();
    assert_eq!(order, ["grandchild", "child", "root"]);
}

#[tokio::test]
async fn a_foreground_owner_waits_for_a_held_dependent() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let root = create(&admin, MAPS, &map("root", "1")).await;
    let mut child = owned("child", json!([owner(&root, true)]));
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, MAPS, &child).await;
    create(&admin, MAPS, &owned("loose", json!([owner(&root, false)]))).await;
    admin
        .delete(&format!("{MAPS}/root?propagationPolicy=Foreground"))
        .await;
    until(&admin, &format!("{MAPS}/child"), |r| {
        r.body["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    gone(&admin, &format!("{MAPS}/loose")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        admin.get(&format!("{MAPS}/root")).await.code,
        200,
        "still waiting"
    );
    admin
        .merge(
            &format!("{MAPS}/child"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    gone(&admin, &format!("{MAPS}/root")).await;
}

#[tokio::test]
async fn a_dependent_that_does_not_block_is_not_waited_for() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let root = create(&admin, MAPS, &map("root", "1")).await;
    let mut child = owned("child", json!([owner(&root, false)]));
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, MAPS, &child).await;
    admin
        .delete(&format!("{MAPS}/root?propagationPolicy=Foreground"))
        .await;
    gone(&admin, &format!("{MAPS}/root")).await;
    until(&admin, &format!("{MAPS}/child"), |r| {
        r.body["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
}

#[tokio::test]
async fn orphans_stay_and_forget() {
    let server = TestServer::start().await;
    let admin = server.admin();
    three_generations(&admin, true).await;
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"});
    let reply = admin
        .send(
            http::Method::DELETE,
            &format!("{WIDGETS}/root"),
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await;
    assert_eq!(
        (reply.code, &reply.body["metadata"]["finalizers"]),
        (200, &json!(["orphan"]))
    );
    gone(&admin, &format!("{WIDGETS}/root")).await;
    let child = admin.get(&format!("{MAPS}/child")).await.body;
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
    let grandchild = admin.get(&format!("{WIDGETS}/grandchild")).await.body;
    assert_eq!(
        grandchild["metadata"]["ownerReferences"][0]["name"], "child",
        "its own owner is still there"
    );
}

#[tokio::test]
async fn another_owner_keeps_the_dependent() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for policy in ["Background", "Foreground"] {
        let (one, two) = (
            create(&admin, MAPS, &map("one", "1")).await,
            create(&admin, MAPS, &map("two", "1")).await,
        );
        create(
            &admin,
            MAPS,
            &owned("child", json!([owner(&one, true), owner(&two, true)])),
        )
        .await;
        admin
            .delete(&format!("{MAPS}/one?propagationPolicy={policy}"))
            .await;
        gone(&admin, &format!("{MAPS}/one")).await;
        let left = until(&admin, &format!("{MAPS}/child"), |r| {
            r.body["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|o| o.len() == 1)
        })
        .await;
        assert_eq!(
            left.body["metadata"]["ownerReferences"][0]["uid"],
            json!(uid(&two)),
            "{policy}"
        );
        admin.delete(&format!("{MAPS}/two")).await;
        gone(&admin, &format!("{MAPS}/child")).await;
    }
}

#[tokio::test]
async fn owners_that_never_were_take_their_dependents_along() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let real = create(&admin, MAPS, &map("real", "1")).await;
    let mut wrong_uid = owner(&real, false);
    wrong_uid["uid"] = json!("00000000-0000-4000-8000-000000000000");
    create(&admin, MAPS, &owned("wrong-uid", json!([wrong_uid]))).await;
    let absent = json!({"apiVersion": "v1", "kind": "Secret", "name": "nope", "uid": "00000000-0000-4000-8000-000000000001"});
    create(&admin, MAPS, &owned("absent", json!([absent]))).await;
    let both = json!([absent, owner(&real, false)]);
    create(&admin, MAPS, &owned("one-of-two", both)).await;
    gone(&admin, &format!("{MAPS}/wrong-uid")).await;
    gone(&admin, &format!("{MAPS}/absent")).await;
    let kept = until(&admin, &format!("{MAPS}/one-of-two"), |r| {
        r.body["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|o| o.len() == 1)
    })
    .await;
    assert_eq!(kept.body["metadata"]["ownerReferences"][0]["name"], "real");
}

#[tokio::test]
async fn an_owner_in_another_namespace_counts_as_absent() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(
        &admin,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}}),
    )
    .await;
    let far = create(&admin, "/api/v1/namespaces/far/configmaps", &map("owner", "1")).await;
    create(&admin, MAPS, &owned("child", json!([owner(&far, false)]))).await;
    gone(&admin, &format!("{MAPS}/child")).await;
    assert_eq!(
        admin.get("/api/v1/namespaces/far/configmaps/owner").await.code,
        200
    );
    let told = until(
        &admin,
        "/api/v1/namespaces/default/events?fieldSelector=reason%3DOwnerRefInvalidNamespace",
        |r| r.body["items"] != json!([]),
    )
    .await;
    let event = &told.body["items"][0];
    assert_eq!(
        (&event["type"], &event["involvedObject"]["name"]),
        (&json!("Warning"), &json!("child"))
    );
    assert_eq!(
        event["message"],
        format!(
            "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {}] does not exist in namespace \"default\"",
            uid(&far)
        )
    );
}

#[tokio::test]
async fn a_cluster_object_may_own_anything() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "boss"}, "rules": []});
    let role = create(&admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    create(&admin, MAPS, &owned("child", json!([owner(&role, false)]))).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(admin.get(&format!("{MAPS}/child")).await.code, 200);
    admin
        .delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/boss")
        .await;
    gone(&admin, &format!("{MAPS}/child")).await;
}

#[tokio::test]
async fn jobs_orphan_by_default_and_say_so() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let job = create(&admin, jobs, &job).await;
    create(&admin, MAPS, &owned("child", json!([owner(&job, true)]))).await;
    let reply = admin.delete(&format!("{jobs}/j")).await;
    assert_eq!(
        reply.warnings(),
        [
            "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning\""
        ]
    );
    gone(&admin, &format!("{jobs}/j")).await;
    assert!(
        admin.get(&format!("{MAPS}/child")).await.body["metadata"]
            .get("ownerReferences")
            .is_none()
    );
}

#[tokio::test]
async fn a_cycle_of_owners_can_be_deleted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let a = create(&admin, MAPS, &map("a", "1")).await;
    let b = create(&admin, MAPS, &owned("b", json!([owner(&a, true)]))).await;
    admin
        .merge(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"ownerReferences": [owner(&b, true)]}}),
        )
        .await;
    admin
        .delete(&format!("{MAPS}/a?propagationPolicy=Foreground"))
        .await;
    gone(&admin, &format!("{MAPS}/a")).await;
    gone(&admin, &format!("{MAPS}/b")).await;
}

#[tokio::test]
async fn collected_within_a_moment_even_of_a_kind_just_defined() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition("widgets", "Widget", json!({"type": "object"})),
    )
    .await;
    let root = create(&admin, MAPS, &map("root", "1")).await;
    for n in 0..50 {
        let mut child = widget(&format!("c{n}"), json!({}));
        child["metadata"]["ownerReferences"] = json!([owner(&root, false)]);
        create(&admin, WIDGETS, &child).await;
    }
    admin.delete(&format!("{MAPS}/root")).await;
    until(&admin, WIDGETS, |r| r.body["items"] == json!([])).await;
}
