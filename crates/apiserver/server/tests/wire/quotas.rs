// SPDX-License-Identifier: Apache-2.0
//! Limits and quotas of namespaces: what containers get without asking, and what is too much.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use crate::words::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, resources: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

fn quota(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn limit_ranges_fill_in_and_bound() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "250m"}, "min": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    create(&admin, "/api/v1/namespaces/default/limitranges", &range).await;
    let made = create(&admin, PODS, &pod("a", json!({}))).await;
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "250m"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let small = admin
        .post(PODS, &pod("b", json!({"requests": {"cpu": "50m"}})))
        .await;
    assert_eq!(
        (small.code, small.message()),
        (
            403,
            "pods \"b\" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"
        )
    );
    let large = admin.post(PODS, &pod("b", json!({"limits": {"cpu": "2"}}))).await;
    assert_eq!(
        large.message(),
        "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
}

#[tokio::test]
async fn quotas_count_objects() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{QUOTAS}/q");
    // The CA certificate is there already.
    create(
        &admin,
        QUOTAS,
        &quota("q", json!({"hard": {"configmaps": "2", "count/configmaps": "9"}})),
    )
    .await;
    let first = until(&admin, &path, |r| r.body["status"]["used"]["configmaps"] == "1").await;
    assert_eq!(
        first.body["status"]["hard"],
        json!({"configmaps": "2", "count/configmaps": "9"})
    );
    create(&admin, MAPS, &map("a", "1")).await;
    let refused = admin.post(MAPS, &map("b", "1")).await;
    assert_eq!(
        (refused.code, refused.reason(), refused.message()),
        (
            403,
            "Forbidden",
            "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        )
    );
    until(&admin, &path, |r| {
        r.body["status"]["used"]["count/configmaps"] == "2"
    })
    .await;
    admin.delete(&format!("{MAPS}/a")).await;
    until(&admin, &path, |r| r.body["status"]["used"]["configmaps"] == "1").await;
    create(&admin, MAPS, &map("b", "1")).await;
}

#[tokio::test]
async fn quotas_count_what_pods_ask_for() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(
        &admin,
        QUOTAS,
        &quota("q", json!({"hard": {"requests.cpu": "1", "pods": "5"}})),
    )
    .await;
    let silent = admin.post(PODS, &pod("a", json!({}))).await;
    assert_eq!(
        silent.message(),
        "pods \"a\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    create(&admin, PODS, &pod("a", json!({"requests": {"cpu": "600m"}}))).await;
    let refused = admin
        .post(PODS, &pod("b", json!({"requests": {"cpu": "0.5"}})))
        .await;
    assert_eq!(
        refused.message(),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    create(&admin, PODS, &pod("b", json!({"requests": {"cpu": "400m"}}))).await;
    until(&admin, &format!("{QUOTAS}/q"), |r| {
        r.body["status"]["used"] == json!({"pods": "2", "requests.cpu": "1"})
    })
    .await;
}

#[tokio::test]
async fn concurrent_requests_cannot_share_the_last_place() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(
        &admin,
        QUOTAS,
        &quota("q", json!({"hard": {"count/secrets": "3"}})),
    )
    .await;
    let secret =
        |n: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{n}")}});
    let tries = futures::future::join_all((0..12).map(|n| {
        let admin = server.admin();
        async move {
            admin
                .post("/api/v1/namespaces/default/secrets", &secret(n))
                .await
                .code
        }
    }))
    .await;
    assert_eq!(tries.iter().filter(|code| **code == 201).count(), 3, "{tries:?}");
}
