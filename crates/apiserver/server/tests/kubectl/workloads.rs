// SPDX-License-Identifier: Apache-2.0
//! Changing what runs: scale, set, rollout and wait, with the test in the part of the controllers
//! that a bare API server does not have.

use serde_json::json;

use crate::apply::SHOP;
use crate::world::desk;

#[test]
fn scale_and_set() {
    let Some(desk) = desk("scale", 0) else { return };
    desk.ok_with("create -f -", SHOP);
    desk.says(
        "scale deployment shop --replicas=5",
        "deployment.apps/shop scaled",
    );
    desk.has_value(
        "deployment/shop",
        "{.spec.replicas} {.metadata.generation}",
        "5 2",
    );
    let refused = desk.fails("scale deployment shop --current-replicas=2 --replicas=3");
    assert!(refused.contains("Expected replicas to be 2, was 5"), "{refused}");
    desk.says(
        "set image deployment/shop main=nginx:2",
        "deployment.apps/shop image updated",
    );
    desk.says(
        "set env deployment/shop MODE=fast",
        "deployment.apps/shop env updated",
    );
    desk.says(
        "set resources deployment shop --limits=cpu=1,memory=1Gi",
        "deployment.apps/shop resource requirements updated",
    );
    desk.says(
        "set serviceaccount deployment shop robot",
        "deployment.apps/shop serviceaccount updated",
    );
    desk.has_value(
        "deployment/shop",
        "{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].name} {.spec.template.spec.containers[0].resources.limits.memory} {.spec.template.spec.serviceAccountName}",
        "nginx:2 MODE 1Gi robot",
    );
    desk.has_value(
        "deployment/shop",
        "{.spec.template.spec.containers[0].ports[0].containerPort}",
        "80",
    );
    assert_eq!(
        desk.ok("set env deployment/shop --list"),
        "# Deployment shop, container main\nMODE=fast\n"
    );
}

#[test]
fn rollouts() {
    let Some(desk) = desk("rollout", 21) else { return };
    let status = "/apis/apps/v1/namespaces/rollout/deployments/shop/status";
    desk.ok_with("create -f -", SHOP);
    desk.says(
        "rollout restart deployment shop",
        "deployment.apps/shop restarted",
    );
    assert!(
        !desk
            .value("deployment/shop", "{.spec.template.metadata.annotations}")
            .is_empty(),
        "the template says when"
    );
    desk.says("rollout pause deployment shop", "deployment.apps/shop paused");
    desk.refuses(
        "rollout pause deployment shop",
        "error: deployments.apps \"shop\" is already paused",
    );
    desk.says("rollout resume deployment shop", "deployment.apps/shop resumed");

    let follow = desk.follow("rollout status deployment shop --timeout=60s");
    assert_eq!(
        follow.next(),
        "Waiting for deployment spec update to be observed..."
    );
    let generation: i64 = desk
        .value("deployment/shop", "{.metadata.generation}")
        .parse()
        .unwrap();
    desk.report(
        status,
        &json!({"status": {"observedGeneration": generation, "replicas": 2, "updatedReplicas": 1}}),
    );
    let mut line = follow.next();
    while line.contains("spec update to be observed") {
        line = follow.next();
    }
    assert_eq!(
        line,
        "Waiting for deployment \"shop\" rollout to finish: 1 out of 2 new replicas have been updated..."
    );
    desk.report(
        status,
        &json!({"status": {"updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "ok"}]}}),
    );
    assert_eq!(follow.next(), "deployment \"shop\" successfully rolled out");
    desk.says(
        "wait --for=condition=Available deployment/shop --timeout=10s",
        "deployment.apps/shop condition met",
    );
    let shown = desk.ok("get deployment shop");
    assert!(shown.contains("2/2 "), "{shown}");
    desk.refuses(
        "rollout undo deployment shop",
        "error: no rollout history found for deployment \"shop\"",
    );
}

#[test]
fn waiting() {
    let Some(desk) = desk("waiting", 23) else { return };
    desk.ok("run p --image=nginx");
    let status = "/api/v1/namespaces/waiting/pods/p/status";
    std::thread::scope(|scope| {
        let ready = scope.spawn(|| desk.ok("wait --for=condition=Ready pod/p --timeout=60s"));
        let running =
            scope.spawn(|| desk.ok("wait '--for=jsonpath={.status.phase}=Running' pod/p --timeout=60s"));
        let gone = scope.spawn(|| desk.ok("wait --for=delete pod/p --timeout=60s"));
        desk.report(
            status,
            &json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        assert_eq!(ready.join().unwrap(), "pod/p condition met\n");
        assert_eq!(running.join().unwrap(), "pod/p condition met\n");
        desk.ok("delete pod p --now --wait=false");
        assert_eq!(gone.join().unwrap(), "pod/p condition met\n");
    });
    desk.ok("create configmap c");
    desk.refuses(
        "wait --for=condition=Ready configmap/c --timeout=1s",
        "error: timed out waiting for the condition on configmaps/c",
    );
    desk.refuses(
        "wait --for=delete configmap/c --timeout=1s",
        "error: timed out waiting for the condition on configmaps/c",
    );
    desk.refuses(
        "wait --for=condition=Ready pod/p --timeout=1s",
        "Error from server (NotFound): pods \"p\" not found",
    );
}
