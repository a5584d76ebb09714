// SPDX-License-Identifier: Apache-2.0
//! Rows of tables and field selectors.

use cobaltcore_builtins::{Kind, find};
use jiff::Timestamp;
use serde_json::{Value, json};

fn kind(group: &str, plural: &str) -> &'static Kind {
    find(group, if group == "autoscaling" { "v2" } else { "v1" }, plural).expect("served")
}

fn now() -> Timestamp {
    "2024-01-01T01:00:00Z".parse().expect("a time")
}

fn row(group: &str, plural: &str, object: Value) -> Value {
    let mut object = object;
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
    Value::Array(kind(group, plural).row(&object, now()))
}

#[test]
fn pods_show_what_their_containers_do() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
    for (status, ready, shown, restarts) in [
        (json!({"phase": "Pending"}), "0/2", "Pending", "0"),
        (
            json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 2,
                 "lastState": {"terminated": {"finishedAt": "2024-01-01T00:57:00Z"}}},
                {"name": "b", "ready": true, "state": {"running": {}}, "restartCount": 0}]}),
            "2/2",
            "Running",
            "2 (3m ago)",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}]}),
            "0/2",
            "CrashLoopBackOff",
            "4",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}, "restartCount": 0}]}),
            "0/2",
            "Init:0/1",
            "0",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}, "restartCount": 1}]}),
            "0/2",
            "Init:ExitCode:3",
            "1",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}, "restartCount": 0}]}),
            "0/2",
            "Error",
            "0",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            "0/2",
            "Evicted",
            "0",
        ),
    ] {
        let cells = row("", "pods", json!({"spec": spec, "status": status}));
        assert_eq!(
            cells,
            json!([
                "x", ready, shown, restarts, "60m", "<none>", "<none>", "<none>", "<none>"
            ]),
            "{status}"
        );
    }
    let going = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]}});
    assert_eq!(
        row("", "pods", going),
        json!([
            "x",
            "0/0",
            "Terminating",
            "0",
            "60m",
            "1.2.3.4",
            "n",
            "<none>",
            "<none>"
        ])
    );
}

#[test]
fn other_kinds_show_their_columns() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["y", "x"]}]});
    for (group, plural, object, expected) in [
        (
            "apps",
            "deployments",
            json!({"spec": {"replicas": 3, "selector": selector, "template": template}, "status": {"readyReplicas": 2, "updatedReplicas": 1}}),
            json!(["x", "2/3", 1, 0, "60m", "c,d", "i,j", "a=b,k in (x,y)"]),
        ),
        (
            "",
            "replicationcontrollers",
            json!({"spec": {"replicas": 1, "selector": {"a": "b"}, "template": template}, "status": {"replicas": 1}}),
            json!(["x", 1, 1, 0, "60m", "c,d", "i,j", "a=b"]),
        ),
        (
            "apps",
            "daemonsets",
            json!({"spec": {"template": template}, "status": {"desiredNumberScheduled": 2}}),
            json!(["x", 2, 0, 0, 0, 0, "<none>", "60m", "c,d", "i,j", "<none>"]),
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"completions": 1}, "status": {"succeeded": 1, "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:05Z",
                "conditions": [{"type": "Complete", "status": "True"}]}}),
            json!(["x", "Complete", "1/1", "5s", "60m", "", "", "<none>"]),
        ),
        (
            "batch",
            "cronjobs",
            json!({"spec": {"schedule": "@daily", "suspend": false}, "status": {"active": [{}], "lastScheduleTime": "2024-01-01T00:59:00Z"}}),
            json!([
                "x", "@daily", "<none>", "False", 1, "60s", "60m", "", "", "<none>"
            ]),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 81, "protocol": "UDP"}]}}),
            json!([
                "x",
                "NodePort",
                "10.0.0.1",
                "<none>",
                "80:30000/TCP,81/UDP",
                "60m",
                "<none>"
            ]),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer"}}),
            json!([
                "x",
                "LoadBalancer",
                "<none>",
                "<pending>",
                "<none>",
                "60m",
                "<none>"
            ]),
        ),
        (
            "",
            "nodes",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "z"}}, "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
                    "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6", "architecture": "amd64"}}}),
            json!([
                "x",
                "Ready,SchedulingDisabled",
                "control-plane,z",
                "60m",
                "v1",
                "1.1.1.1",
                "<none>",
                "<unknown>",
                "6 (amd64)",
                "<unknown>"
            ]),
        ),
        (
            "",
            "secrets",
            json!({"type": "Opaque", "data": {"a": "", "b": ""}}),
            json!(["x", "Opaque", 2, "60m"]),
        ),
        (
            "",
            "configmaps",
            json!({"data": {"a": ""}, "binaryData": {"b": ""}}),
            json!(["x", 2, "60m"]),
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 4,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]},
                "status": {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}}]}}),
            json!(["x", "Deployment/d", "cpu: 12%/80%", "1", 4, 2, "60m"]),
        ),
        (
            "",
            "events",
            json!({"type": "Normal", "reason": "R", "message": " m ", "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c", "host": "h"},
                "firstTimestamp": "2024-01-01T00:30:00Z", "lastTimestamp": "2024-01-01T00:59:50Z", "count": 3}),
            json!(["10s", "Normal", "R", "pod/p", "", "c, h", "m", "30m", 3, "x"]),
        ),
        (
            "",
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}]}]}),
            json!(["x", "1.1.1.1:80,[::1]:80,1.1.1.1:81 + 1 more...", "60m"]),
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({"spec": {"volumeName": "v", "storageClassName": "s", "volumeMode": "Block"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
            json!(["x", "Bound", "v", "1Gi", "RWO", "s", "<unset>", "60m", "Block"]),
        ),
        (
            "policy",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            json!(["x", "50%", "N/A", 1, "60m"]),
        ),
        (
            "networking.k8s.io",
            "ingresses",
            json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}}),
            json!(["x", "<none>", "a,b,c + 1 more...", "", "80, 443", "60m"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            json!(["x", "Role/r", "60m", "u", "", "n/s"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "roles",
            json!({}),
            json!(["x", "2024-01-01T00:00:00Z"]),
        ),
        (
            "coordination.k8s.io",
            "leases",
            json!({"spec": {"holderIdentity": "h"}}),
            json!(["x", "h", "60m"]),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}),
            json!(["x (default)", "p", "Delete", "Immediate", false, "60m"]),
        ),
    ] {
        assert_eq!(row(group, plural, object), expected, "{plural}");
    }
}

#[test]
fn columns_have_the_headings_and_priorities_of_the_reference() {
    let headings = |group: &str, plural: &str| -> Vec<String> {
        kind(group, plural)
            .columns()
            .iter()
            .map(|column| {
                format!(
                    "{}{}",
                    column.name,
                    "*".repeat(usize::try_from(column.priority).unwrap_or(0))
                )
            })
            .collect()
    };
    assert_eq!(
        headings("", "pods"),
        [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP*",
            "Node*",
            "Nominated Node*",
            "Readiness Gates*"
        ]
    );
    assert_eq!(
        headings("", "events"),
        [
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "Subobject*",
            "Source*",
            "Message",
            "First Seen*",
            "Count*",
            "Name*"
        ]
    );
    assert_eq!(
        headings("rbac.authorization.k8s.io", "roles"),
        ["Name", "Created At"]
    );
    let first = &kind("", "pods").columns()[0];
    assert_eq!((first.format, first.kind), ("name", "string"));
}

#[test]
fn selectors_find_fields_or_say_they_do_not_know_them() {
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}});
    let pods = kind("", "pods");
    for (label, value) in [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("spec.nodeName", "a"),
        ("spec.host", "a"),
        ("spec.hostNetwork", "false"),
        ("status.phase", "Running"),
        ("spec.schedulerName", ""),
    ] {
        assert_eq!(pods.field(&pod, label).as_deref(), Some(value), "{label}");
    }
    assert_eq!(pods.field(&pod, "spec.foo"), None);
    assert_eq!(
        pods.unknown_field_label("spec.foo"),
        "field label not supported: spec.foo"
    );
    assert_eq!(
        kind("batch", "jobs").unknown_field_label("x"),
        "field label \"x\" not supported for Job"
    );
    assert_eq!(
        kind("", "configmaps").unknown_field_label("data.x"),
        "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    let event = json!({"reportingComponent": "c", "involvedObject": {"name": "p"}});
    assert_eq!(kind("", "events").field(&event, "source").as_deref(), Some("c"));
    assert_eq!(kind("", "nodes").field(&json!({}), "metadata.namespace"), None);
    assert!(kind("", "secrets").field_labels().contains(&"type"));
}

#[test]
fn surprising_objects_are_accepted_with_a_warning() {
    let pod = json!({"metadata": {"name": "a.b"}, "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]}]}});
    assert_eq!(
        kind("", "pods").warnings_create(&pod),
        [
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": [
        {"name": "c", "resources": {"limits": {"memory": "100m"}}}]}}}});
    let deployments = kind("apps", "deployments");
    assert_eq!(
        deployments.warnings_create(&deployment),
        [
            "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer"
        ]
    );
    assert_eq!(deployments.warnings_update(&deployment, &deployment), [""; 0]);
    assert!(
        kind("", "endpoints")
            .deprecation()
            .is_some_and(|text| text.starts_with("v1 Endpoints is deprecated"))
    );
}
