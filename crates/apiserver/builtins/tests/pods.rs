// SPDX-License-Identifier: Apache-2.0
//! Binding, eviction, budgets and scales.

use cobaltcore_builtins::{
    BindError, Eviction, Owner, bind, evict, find, pdb_status, validate_binding, validate_scale,
};
use jiff::Timestamp;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().expect("a time")
}

fn pod(name: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"metadata": {"name": name, "labels": {"app": "a"}, "ownerReferences": [
               {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": true}]},
           "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}})
}

fn budget(spec: Value, status: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    let mut budget = json!({"metadata": {"name": "b", "generation": 1}});
    budget["spec"] = spec;
    budget["status"] = status;
    budget
}

#[test]
fn binding_assigns_a_pod_once() {
    let binding =
        json!({"metadata": {"annotations": {"zone": "z"}}, "target": {"kind": "Node", "name": "n"}});
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {}});
    assert_eq!(bind(&mut pod, &binding, now()), Ok(()));
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["metadata"]["annotations"], json!({"zone": "z"}));
    assert_eq!(
        pod["status"]["conditions"],
        json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2024-01-01T00:00:00Z"}])
    );
    let again = bind(&mut pod, &binding, now()).expect_err("assigned already");
    assert_eq!(again.to_string(), "pod p is already assigned to node \"n\"");
    let mut gated = json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}});
    assert_eq!(
        bind(&mut gated, &binding, now()),
        Err(BindError::Gated("p".into()))
    );
    let mut going =
        json!({"metadata": {"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z"}, "spec": {}});
    assert_eq!(
        bind(&mut going, &binding, now()),
        Err(BindError::Deleted("p".into()))
    );
    let wrong: Vec<String> = validate_binding(&json!({"target": {"kind": "Pod"}}))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        wrong,
        [
            r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#,
            "target.name: Required value"
        ]
    );
}

#[test]
fn eviction_asks_the_budget() {
    let healthy =
        json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2});
    let exhausted =
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2});
    assert_eq!(
        evict(&pod("p", true), &[], now()),
        Eviction::Delete { locked: false }
    );
    let refused = evict(&pod("p", true), &[budget(json!({}), exhausted.clone())], now());
    assert_eq!(
        refused,
        Eviction::TooManyRequests {
            message: "Cannot evict pod as it would violate the pod's disruption budget.".into(),
            cause: "The disruption budget b needs 2 healthy pods and has 2 currently".into(),
            retry_after_seconds: None,
        }
    );
    let Eviction::Spend(spent) = evict(&pod("p", true), &[budget(json!({}), healthy.clone())], now()) else {
        panic!("the budget allows one");
    };
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert_eq!(
        spent["status"]["disruptedPods"],
        json!({"p": "2024-01-01T00:00:00Z"})
    );
    let behind = evict(
        &pod("p", true),
        &[budget(json!({}), json!({"disruptionsAllowed": 1}))],
        now(),
    );
    assert!(
        matches!(behind, Eviction::TooManyRequests { retry_after_seconds: Some(10), ref cause, .. }
        if cause == "The disruption budget b is still being processed by the server.")
    );
    let two = [budget(json!({}), healthy.clone()), budget(json!({}), healthy)];
    assert!(matches!(
        evict(&pod("p", true), &two, now()),
        Eviction::TooManyBudgets(_)
    ));
    let unready = evict(&pod("p", false), &[budget(json!({}), exhausted.clone())], now());
    assert_eq!(
        unready,
        Eviction::Delete { locked: true },
        "the budget is healthy, the pod adds nothing"
    );
    let poor =
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2});
    let always = budget(json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), poor.clone());
    assert_eq!(
        evict(&pod("p", false), &[always], now()),
        Eviction::Delete { locked: true }
    );
    assert!(matches!(
        evict(&pod("p", false), &[budget(json!({}), poor)], now()),
        Eviction::TooManyRequests { .. }
    ));
    let mut pending = pod("p", false);
    pending["status"]["phase"] = json!("Pending");
    assert_eq!(
        evict(&pending, &[budget(json!({}), exhausted)], now()),
        Eviction::Delete { locked: true }
    );
}

#[test]
fn budgets_count_pods() {
    let pods = [pod("a", true), pod("b", true), pod("c", false)];
    let scale = |owner: &Owner| (owner.kind == "ReplicaSet").then_some(4);
    for (spec, expected) in [
        (json!({"minAvailable": 1}), [3, 2, 1, 1]),
        (json!({"minAvailable": "50%"}), [4, 2, 2, 0]),
        (json!({"maxUnavailable": 3}), [4, 2, 1, 1]),
        (json!({"maxUnavailable": "25%"}), [4, 2, 3, 0]),
    ] {
        let status = pdb_status(&budget(spec.clone(), json!({})), &pods, now(), scale);
        let numbers = [
            "expectedPods",
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
        ];
        let found: Vec<i64> = numbers.iter().filter_map(|name| status[*name].as_i64()).collect();
        assert_eq!(found, expected, "{spec}");
        assert_eq!(status["observedGeneration"], 1);
        let reason = if expected[3] > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        };
        assert_eq!(status["conditions"][0]["reason"], reason);
    }
    let disrupted = json!({"disruptedPods": {"a": "2024-01-01T00:00:00Z", "gone": "2024-01-01T00:00:00Z"}});
    let status = pdb_status(
        &budget(json!({"minAvailable": 1}), disrupted),
        &pods,
        now(),
        scale,
    );
    assert_eq!(status["currentHealthy"], 1, "a promised pod no longer counts");
    assert_eq!(status["disruptedPods"], json!({"a": "2024-01-01T00:00:00Z"}));
    let lost = pdb_status(
        &budget(json!({"maxUnavailable": 1}), json!({})),
        &pods,
        now(),
        |_| None,
    );
    assert_eq!(lost["conditions"][0]["reason"], "SyncFailed");
}

#[test]
fn scales_are_views_of_their_parent() {
    let deployments = find("apps", "v1", "deployments").expect("served");
    let mut deployment = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}, "status": {"replicas": 2}});
    let scale = deployments.get_scale(&deployment).expect("has a scale");
    assert_eq!(
        scale,
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
               "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}})
    );
    deployments.set_scale(&mut deployment, &json!({"spec": {}}));
    assert_eq!(deployment["spec"]["replicas"], 0);
    let wrong: Vec<String> = validate_scale(&json!({"metadata": {"name": "d"}, "spec": {"replicas": -1}}))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        wrong,
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert_eq!(
        find("", "v1", "pods").and_then(|kind| kind.get_scale(&json!({}))),
        None
    );
}
