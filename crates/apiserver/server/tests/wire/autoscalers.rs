// SPDX-License-Identifier: Apache-2.0
//! Autoscalers in both versions: what v1 has no field for travels in its annotations and comes back.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::requests::told;

const OLD: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const NEW: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn target() -> Value {
    json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3})
}

#[tokio::test]
async fn what_v1_cannot_say_is_annotated() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut spec = target();
    spec["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 50}});
    spec["metrics"] = json!([
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
    ]);
    let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec});
    assert_eq!(admin.post(NEW, &object).await.code, 201);
    let old = admin.get(&format!("{OLD}/h")).await.body;
    assert_eq!(
        old["metadata"]["annotations"],
        json!({
            METRICS: "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1Gi\"}},{\"type\":\"Pods\",\"pods\":{\"metricName\":\"x\",\"targetAverageValue\":\"1\"}}]",
            BEHAVIOR: "{\"ScaleUp\":{\"StabilizationWindowSeconds\":0,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":4,\"PeriodSeconds\":15},{\"Type\":\"Percent\",\"Value\":100,\"PeriodSeconds\":15}],\"Tolerance\":null},\"ScaleDown\":{\"StabilizationWindowSeconds\":50,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Percent\",\"Value\":100,\"PeriodSeconds\":15}],\"Tolerance\":null}}",
        })
    );
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(old["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    // Written back through v1, everything is there again, the target of the CPU last.
    let patch = json!({"spec": {"maxReplicas": 7}});
    let patched = admin.merge(&format!("{OLD}/h"), &patch).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    let new = admin.get(&format!("{NEW}/h")).await.body;
    assert_eq!(new["metadata"].get("annotations"), None);
    assert_eq!(
        new["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"],
        50
    );
    let metrics = new["spec"]["metrics"].as_array().unwrap();
    let name = |metric: &Value| match metric["resource"]["name"].as_str() {
        Some(name) => name.to_owned(),
        None => metric["pods"]["metric"]["name"].as_str().unwrap().to_owned(),
    };
    let names: Vec<String> = metrics.iter().map(name).collect();
    assert_eq!(names, ["memory", "x", "cpu"]);
    assert_eq!(
        new["status"],
        json!({"currentMetrics": null, "desiredReplicas": 0})
    );
}

#[tokio::test]
async fn v1_aims_at_eighty_percent() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": target()});
    let made = admin.post(OLD, &object).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["spec"]["targetCPUUtilizationPercentage"], 80);
    let mut none = object;
    none["spec"]["minReplicas"] = json!(0);
    none["metadata"]["name"] = json!("z");
    assert_eq!(
        told(&admin.post(OLD, &none).await.body),
        [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
        ]
    );
}

/// What annotations of v1 hold is judged as v2 is.
#[tokio::test]
async fn annotations_of_v1_are_judged() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "spec": target(),
        "metadata": {"name": "h", "annotations": {
            METRICS: "[{\"type\":\"Pods\",\"pods\":{\"targetAverageValue\":\"0\"}}]",
            BEHAVIOR: "{\"scaleup\":{\"StabilizationWindowSeconds\":3}}"}}});
    let reply = admin.post(OLD, &object).await;
    assert_eq!(
        told(&reply.body),
        [
            "spec.metrics[0].pods.metric.name: Required value: must specify a metric name",
            "spec.metrics[0].pods.target.averageValue: Invalid value: \"0\": must be positive",
            "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
        ]
    );
}
