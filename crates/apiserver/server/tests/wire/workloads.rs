// SPDX-License-Identifier: Apache-2.0
//! Workloads on the wire: Deployments, StatefulSets, Jobs and CronJobs, their defaults and what they
//! refuse.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

#[tokio::test]
async fn workloads() {
    let template =
        || json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let of = |kind: &str, spec: Value| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "k"}, "spec": spec});
    refused(
        DEPLOYMENTS,
        vec![
            (
                of("Deployment", json!({})),
                &[
                    ("spec.selector", "Required"),
                    ("spec.template.metadata.labels", "Invalid"),
                    ("spec.template.spec.containers", "Required"),
                ],
            ),
            (
                of("Deployment", json!({"selector": {}, "template": template()})),
                &[("spec.selector", "Invalid")],
            ),
            (
                of(
                    "Deployment",
                    json!({"selector": {"matchLabels": {"x": "y"}}, "template": template()}),
                ),
                &[("spec.template.metadata.labels", "Invalid")],
            ),
            (
                of(
                    "Deployment",
                    json!({"replicas": -1, "selector": {"matchLabels": {"a": "b"}}, "template": template()}),
                ),
                &[("spec.replicas", "Invalid")],
            ),
        ],
    )
    .await;
    let server = TestServer::start().await;
    let admin = server.admin();
    let created = made(&admin, DEPLOYMENTS, &deployment("d")).await;
    assert_eq!(
        created["spec"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(
        (
            &created["spec"]["replicas"],
            &created["spec"]["revisionHistoryLimit"],
            &created["spec"]["progressDeadlineSeconds"]
        ),
        (&json!(1), &json!(10), &json!(600))
    );
    assert_eq!(
        (&created["metadata"]["generation"], &created["status"]),
        (&json!(1), &json!({}))
    );
    let d = format!("{DEPLOYMENTS}/d");
    let moved = admin.merge(&d, &json!({"spec": {"selector": {"matchLabels": {"a": null, "x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}})).await;
    assert_eq!(
        moved.message(),
        "Deployment.apps \"d\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"x\":\"y\"}}: field is immutable"
    );
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"l": "m"}}}), 1),
        (json!({"spec": {"replicas": 2}}), 2),
        (json!({"spec": {"replicas": 2}}), 2),
    ] {
        assert_eq!(
            admin.merge(&d, &patch).await.body["metadata"]["generation"],
            generation,
            "{patch}"
        );
    }
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    made(
        &admin,
        sets,
        &of(
            "StatefulSet",
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": template()}),
        ),
    )
    .await;
    let reply = admin
        .merge(&format!("{sets}/k"), &json!({"spec": {"serviceName": "x"}}))
        .await;
    assert_eq!(
        reply.message(),
        "StatefulSet.apps \"k\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    );
}

#[tokio::test]
async fn jobs() {
    let template = |policy: &str| json!({"spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}});
    let cron = |name: &str, schedule: &str| {
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": template("Never")}}}})
    };
    let mut zone = cron("z", "@daily");
    zone["spec"]["timeZone"] = json!("Foo/Bar");
    refused(
        "/apis/batch/v1/namespaces/default/cronjobs",
        vec![
            (cron("c", "foo"), &[("spec.schedule", "Invalid")]),
            (cron("c", "TZ=UTC * * * * *"), &[("spec.schedule", "Invalid")]),
            (
                cron(&"c".repeat(53), "* * * * *"),
                &[("metadata.name", "Invalid")],
            ),
            (zone, &[("spec.timeZone", "Invalid")]),
        ],
    )
    .await;
    refused(JOBS, vec![(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}), &[("spec.template.spec.restartPolicy", "Required")])]).await;
    let server = TestServer::start().await;
    let admin = server.admin();
    let job = made(&admin, JOBS, &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template("Never")}})).await;
    let uid = job["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    );
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j", "controller-uid": uid, "job-name": "j"})
    );
    for (key, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
    ] {
        assert_eq!(job["spec"][key], value, "{key}");
    }
    let reply = admin
        .merge(&format!("{JOBS}/j"), &json!({"spec": {"completions": 3}}))
        .await;
    assert_eq!(
        reply.message(),
        "Job.batch \"j\" is invalid: spec.completions: Invalid value: 3: field is immutable"
    );
    for schedule in ["*/5 * * * *", "@every 5m", "@daily"] {
        let name = format!("c{}", schedule.len());
        made(
            &admin,
            "/apis/batch/v1/namespaces/default/cronjobs",
            &cron(&name, schedule),
        )
        .await;
    }
}
