// SPDX-License-Identifier: Apache-2.0
//! The status of a workload that runs as it should, for clusters in which nothing runs: the numbers
//! and conditions its controller would write once every pod is there. A pure function of the
//! workload, the nodes and the time.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::json::{at, flag, list, map, number, text};
use crate::times::{Precision, render};

/// Names the workloads whose status was made up.
pub const SIMULATED: &str = "cobaltcore.cloud/simulated";

/// The status of a workload of this kind when everything it asks for is there. Nothing for kinds
/// that are no workloads, and for workloads that are not to run now.
pub fn fulfilled(kind: &str, workload: &Value, nodes: &[Value], now: Timestamp) -> Option<Value> {
    if flag(workload, "spec.suspend") || flag(workload, "spec.paused") {
        return None;
    }
    let status = match kind {
        "Deployment" => deployment(workload, now),
        "ReplicaSet" => replica_set(workload),
        "StatefulSet" => stateful_set(workload),
        "DaemonSet" => daemon_set(workload, nodes),
        "Job" => job(workload, now),
        _ => return None,
    };
    Some(Value::Object(status))
}

/// A status as Go writes it: numbers that may be left out are left out when they are zero.
fn counted(workload: &Value, always: &[(&str, i64)], unless_zero: &[(&str, i64)]) -> Map<String, Value> {
    let generation = [("observedGeneration", number(workload, "metadata.generation"))];
    let shown = unless_zero.iter().chain(&generation).filter(|(_, n)| *n != 0);
    always
        .iter()
        .chain(shown)
        .map(|(name, n)| ((*name).to_owned(), json!(n)))
        .collect()
}

fn replicas(workload: &Value) -> i64 {
    at(workload, "spec.replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn deployment(workload: &Value, now: Timestamp) -> Map<String, Value> {
    let n = replicas(workload);
    let all = [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ];
    let mut status = counted(workload, &[], &all.map(|name| (name, n)));
    let name = text(workload, "metadata.name");
    let conditions = json!([
        condition(
            workload,
            now,
            "Available",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability."
        ),
        condition(
            workload,
            now,
            "Progressing",
            "NewReplicaSetAvailable",
            &format!("Deployment \"{name}\" has successfully progressed.")
        ),
    ]);
    status.insert("conditions".into(), conditions);
    status
}

/// A condition that holds. Its times stay what they were when it held before.
fn condition(workload: &Value, now: Timestamp, kind: &str, reason: &str, message: &str) -> Value {
    let held = list(workload, "status.conditions")
        .iter()
        .find(|c| text(c, "type") == kind && text(c, "status") == "True" && text(c, "reason") == reason);
    if let Some(held) = held {
        return held.clone();
    }
    let now = render(now, Precision::Seconds);
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now})
}

fn replica_set(workload: &Value) -> Map<String, Value> {
    let n = replicas(workload);
    let unless_zero = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    counted(workload, &[("replicas", n)], &unless_zero.map(|name| (name, n)))
}

fn stateful_set(workload: &Value) -> Map<String, Value> {
    let n = replicas(workload);
    let unless_zero = ["readyReplicas", "currentReplicas", "updatedReplicas"];
    let always = [("replicas", n), ("availableReplicas", n)];
    let mut status = counted(workload, &always, &unless_zero.map(|name| (name, n)));
    // One revision per state of the specification; nobody is between two of them.
    let (name, generation) = (
        text(workload, "metadata.name"),
        number(workload, "metadata.generation"),
    );
    let revision = format!("{name}-{generation}");
    status.insert("currentRevision".into(), json!(revision));
    status.insert("updateRevision".into(), json!(revision));
    status.insert("collisionCount".into(), json!(0));
    status
}

fn daemon_set(workload: &Value, nodes: &[Value]) -> Map<String, Value> {
    let wanted = map(workload, "spec.template.spec.nodeSelector");
    let takes = |node: &&Value| {
        let labels = map(node, "metadata.labels");
        let has = |(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value));
        wanted.is_none_or(|wanted| wanted.iter().all(has))
    };
    let n = nodes.iter().filter(takes).count() as i64;
    let always = [
        ("currentNumberScheduled", n),
        ("desiredNumberScheduled", n),
        ("numberMisscheduled", 0),
        ("numberReady", n),
    ];
    counted(
        workload,
        &always,
        &[("numberAvailable", n), ("updatedNumberScheduled", n)],
    )
}

/// A job that did all it had to do. One that ended already stays as it is.
fn job(workload: &Value, now: Timestamp) -> Map<String, Value> {
    let ended = |c: &Value| matches!(text(c, "type"), "Complete" | "Failed") && text(c, "status") == "True";
    if list(workload, "status.conditions").iter().any(ended) {
        return map(workload, "status").cloned().unwrap_or_default();
    }
    let succeeded = at(workload, "spec.completions")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let time = render(now, Precision::Seconds);
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
            "lastProbeTime": time, "lastTransitionTime": time})
    };
    let mut status = Map::new();
    let start = at(workload, "status.startTime")
        .cloned()
        .unwrap_or_else(|| json!(time));
    status.insert("startTime".into(), start);
    status.insert("completionTime".into(), json!(time));
    status.insert("succeeded".into(), json!(succeeded));
    status.insert("ready".into(), json!(0));
    status.insert("terminating".into(), json!(0));
    status.insert("uncountedTerminatedPods".into(), json!({}));
    let conditions = ["SuccessCriteriaMet", "Complete"].map(condition);
    status.insert("conditions".into(), json!(conditions));
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_noon() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn every_replica_is_there_and_a_second_look_changes_nothing() {
        let mut workload = json!({"metadata": {"name": "web", "generation": 3}, "spec": {"replicas": 2}});
        let status = fulfilled("Deployment", &workload, &[], at_noon()).unwrap();
        assert_eq!(status["observedGeneration"], 3);
        for count in [
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
        ] {
            assert_eq!(status[count], 2, "{count}");
        }
        workload["status"] = status.clone();
        let later = "2026-01-01T13:00:00Z".parse().unwrap();
        assert_eq!(fulfilled("Deployment", &workload, &[], later), Some(status));
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_wanted() {
        let workload = json!({"metadata": {"name": "web", "generation": 1}, "spec": {"replicas": 0}});
        let set = fulfilled("ReplicaSet", &workload, &[], at_noon()).unwrap();
        assert_eq!(set, json!({"replicas": 0, "observedGeneration": 1}));
        let deployment = fulfilled("Deployment", &workload, &[], at_noon()).unwrap();
        assert!(deployment.get("replicas").is_none(), "{deployment}");
    }

    #[test]
    fn a_daemon_runs_on_the_nodes_it_selects() {
        let node = |labels: Value| json!({"metadata": {"labels": labels}});
        let nodes = [
            node(json!({"disk": "ssd"})),
            node(json!({"disk": "hdd"})),
            node(json!({})),
        ];
        let set = |selector: Value| json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}});
        let count = |selector: Value| {
            fulfilled("DaemonSet", &set(selector), &nodes, at_noon()).unwrap()["numberReady"].clone()
        };
        assert_eq!(count(json!({"disk": "ssd"})), 1);
        assert_eq!(count(Value::Null), 3);
    }

    #[test]
    fn a_job_ends_once_and_a_suspended_one_does_not() {
        let mut workload = json!({"spec": {"completions": 3}});
        let status = fulfilled("Job", &workload, &[], at_noon()).unwrap();
        assert_eq!(
            (&status["succeeded"], &status["conditions"][1]["type"]),
            (&json!(3), &json!("Complete"))
        );
        workload["status"] = status.clone();
        let later = "2026-01-01T13:00:00Z".parse().unwrap();
        assert_eq!(fulfilled("Job", &workload, &[], later), Some(status));
        assert_eq!(
            fulfilled("Job", &json!({"spec": {"suspend": true}}), &[], at_noon()),
            None
        );
        assert_eq!(fulfilled("Pod", &json!({}), &[], at_noon()), None);
    }
}
