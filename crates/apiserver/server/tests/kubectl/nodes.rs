// SPDX-License-Identifier: Apache-2.0
//! Looking after nodes: cordon, taint, describe and drain against a disruption budget.

use serde_json::json;

use crate::world::{Desk, Table, desk, has_lines};

fn node(desk: &Desk, name: &str) {
    desk.ok_with(
        "create -f -",
        &format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, node-role.kubernetes.io/worker: ''}}}}\n"),
    );
    desk.report(
        &format!("/api/v1/nodes/{name}/status"),
        &json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Garden Linux 1933.0", "kernelVersion": "6.12.38-amd64",
                "containerRuntimeVersion": "containerd://2.1", "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64"}}}),
    );
}

#[test]
fn cordon_and_taint() {
    let Some(desk) = desk("cordon", 0) else { return };
    node(&desk, "cordon-1");
    let nodes = Table::read(&desk.ok("get node cordon-1 -o wide"));
    nodes.has_headings("NAME  STATUS  ROLES  AGE  VERSION  INTERNAL-IP  EXTERNAL-IP  OS-IMAGE  KERNEL-VERSION  CONTAINER-RUNTIME");
    nodes.has_row(
        "cordon-1",
        &[
            "cordon-1",
            "Ready",
            "worker",
            "v1.36.0",
            "10.0.0.1",
            "<none>",
            "Garden Linux 1933.0",
            "6.12.38-amd64 (amd64)",
            "containerd://2.1",
        ],
    );
    desk.says("cordon cordon-1", "node/cordon-1 cordoned");
    desk.says("cordon cordon-1", "node/cordon-1 already cordoned");
    assert_eq!(
        Table::read(&desk.ok("get node cordon-1")).row("cordon-1")["STATUS"],
        "Ready,SchedulingDisabled"
    );
    desk.says(
        "taint node cordon-1 dedicated=kvm:NoSchedule",
        "node/cordon-1 tainted",
    );
    let twice = desk.fails("taint node cordon-1 dedicated=kvm:NoSchedule");
    assert!(
        twice.contains("already has dedicated taint(s) with same effect(s) and --overwrite is false"),
        "{twice}"
    );
    has_lines(
        &desk.ok("describe node cordon-1"),
        &[
            "Name: cordon-1",
            "Roles: worker",
            "Labels: kubernetes.io/hostname=cordon-1",
            "Taints: dedicated=kvm:NoSchedule",
            "Unschedulable: true",
            "Conditions:",
            "Type Status LastHeartbeatTime LastTransitionTime Reason Message",
            "Addresses:",
            "InternalIP: 10.0.0.1",
            "Capacity:",
            "cpu: 4",
            "memory: 8Gi",
            "OS Image: Garden Linux 1933.0",
            "Kubelet Version: v1.36.0",
            "Non-terminated Pods: (0 in total)",
            "Allocated resources:",
            "Events: <none>",
        ],
    );
    desk.says("taint node cordon-1 dedicated-", "node/cordon-1 untainted");
    desk.says("uncordon cordon-1", "node/cordon-1 uncordoned");
    assert_eq!(
        Table::read(&desk.ok("get node cordon-1")).row("cordon-1")["STATUS"],
        "Ready"
    );
}

#[test]
fn drain_respects_the_budget() {
    let Some(desk) = desk("drain", 22) else { return };
    node(&desk, "drain-1");
    for name in ["one", "two"] {
        desk.ok_with(
            "create -f -",
            &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: db}}}}\nspec: {{nodeName: drain-1, terminationGracePeriodSeconds: 0, containers: [{{name: c, image: x}}]}}\n"),
        );
        desk.report(
            &format!("/api/v1/namespaces/drain/pods/{name}/status"),
            &json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }
    desk.ok("create poddisruptionbudget db --selector=app=db --min-available=2");
    desk.until(
        "get pdb db -o 'jsonpath={.status.currentHealthy}/{.status.expectedPods}'",
        |s| s == "2/2",
    );
    let refused = desk.run("drain drain-1 --force --timeout=2s", "", &[]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("error when evicting pods/\"one\" -n \"drain\" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget."),
        "{}{}",
        refused.out,
        refused.err
    );
    assert_eq!(
        Table::read(&desk.ok("get pods")).names(),
        ["one", "two"],
        "nothing was evicted"
    );
    desk.ok("patch pdb db --type=merge -p '{\"spec\":{\"minAvailable\":0}}'");
    desk.until("get pdb db -o 'jsonpath={.status.disruptionsAllowed}'", |s| {
        s == "2"
    });
    let drained = desk.ok("drain drain-1 --force --timeout=60s");
    has_lines(&drained, &["node/drain-1 already cordoned"]);
    assert!(
        drained.contains("evicting pod drain/one") || desk.ok("get pods -o name").is_empty(),
        "{drained}"
    );
    assert!(drained.trim_end().ends_with("node/drain-1 drained"), "{drained}");
    assert_eq!(desk.ok("get pods -o name"), "");
}
