// SPDX-License-Identifier: Apache-2.0
//! Workloads that are marked as running: what `kubectl rollout status` and operators wait for comes
//! true without a kubelet, only where it was asked for, and never beside a kubelet.

use std::time::Duration;

use crate::requests::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use cobaltcore_apiserver::{Authorization, Config};
use serde_json::{Value, json};

const MARK: &str = "cobaltcore.cloud/simulated";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const NODES: &str = "/api/v1/nodes";

async fn server(delay: Option<Duration>) -> TestServer {
    TestServer::with(Config {
        authorization: Authorization::AlwaysAllow,
        simulate_workloads: delay,
        ..Config::default()
    })
    .await
}

/// The object at `path` once it is as wanted.
async fn becomes(admin: &Caller, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let (list, name) = path.rsplit_once('/').expect("a path with a name");
    let mut events = admin
        .watch(&format!("{list}?watch=true&fieldSelector=metadata.name={name}"))
        .await;
    loop {
        let event = events.expect().await;
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

fn workload(kind: &str, api: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

#[tokio::test]
async fn workloads_become_available_and_follow_their_specification() {
    let server = server(Some(Duration::from_millis(1))).await;
    let admin = server.admin();
    for (kind, plural, spec) in [
        ("Deployment", "deployments", json!({"replicas": 3})),
        ("ReplicaSet", "replicasets", json!({"replicas": 3})),
        (
            "StatefulSet",
            "statefulsets",
            json!({"replicas": 3, "serviceName": "s"}),
        ),
    ] {
        let list = format!("/apis/apps/v1/namespaces/default/{plural}");
        made(&admin, &list, &workload(kind, "apps/v1", &spec)).await;
        let path = format!("{list}/w");
        let there = becomes(&admin, &path, |w| w["status"]["availableReplicas"] == 3).await;
        assert_eq!(there["status"]["observedGeneration"], 1, "{kind}");
        assert_eq!(there["metadata"]["annotations"][MARK], "true", "{kind}");
        let scaled = admin.merge(&path, &json!({"spec": {"replicas": 1}})).await;
        assert_eq!(scaled.code, 200, "{}", scaled.body);
        let there = becomes(&admin, &path, |w| w["status"]["observedGeneration"] == 2).await;
        assert_eq!(there["status"]["replicas"], 1, "{kind}");
    }
    server.comes_to_rest(Duration::from_millis(300)).await;
}

#[tokio::test]
async fn jobs_complete_unless_they_are_suspended() {
    let server = server(Some(Duration::from_millis(1))).await;
    let admin = server.admin();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = |name: &str, suspend: bool| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"completions": 2, "suspend": suspend, "template": template}})
    };
    made(&admin, JOBS, &job("waits", true)).await;
    made(&admin, JOBS, &job("runs", false)).await;
    let done = becomes(&admin, &format!("{JOBS}/runs"), |j| j["status"]["succeeded"] == 2).await;
    let complete = |c: &Value| c["type"] == "Complete" && c["status"] == "True";
    assert!(
        done["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(complete),
        "{done}"
    );
    server.comes_to_rest(Duration::from_millis(300)).await;
    let waits = admin.get(&format!("{JOBS}/waits")).await;
    assert_eq!(waits.body["status"].get("succeeded"), None, "{}", waits.body);
}

#[tokio::test]
async fn daemons_follow_the_nodes() {
    let server = server(Some(Duration::from_millis(1))).await;
    let admin = server.admin();
    made(&admin, DAEMONS, &workload("DaemonSet", "apps/v1", &json!({}))).await;
    let path = format!("{DAEMONS}/w");
    becomes(&admin, &path, |d| d["status"]["observedGeneration"] == 1).await;
    made(
        &admin,
        NODES,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
    )
    .await;
    becomes(&admin, &path, |d| d["status"]["numberReady"] == 1).await;
    assert_eq!(admin.delete(&format!("{NODES}/n")).await.code, 200);
    becomes(&admin, &path, |d| d["status"]["numberReady"] == 0).await;
}

#[tokio::test]
async fn nothing_is_marked_unasked_or_beside_a_kubelet() {
    let quiet = server(None).await;
    made(&quiet.admin(), DEPLOYMENTS, &deployment("d")).await;
    quiet.comes_to_rest(Duration::from_millis(300)).await;
    let plain = quiet.admin().get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(plain.body["status"], json!({}));

    let server = server(Some(Duration::from_millis(1))).await;
    let admin = server.admin();
    made(
        &admin,
        NODES,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
    )
    .await;
    let mut heartbeat = lease("n", "n");
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        .to_string();
    heartbeat["spec"]["renewTime"] = json!(now);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    made(&admin, leases, &heartbeat).await;
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    server.comes_to_rest(Duration::from_millis(300)).await;
    let real = admin.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(real.body["status"], json!({}), "{}", real.body);
}
