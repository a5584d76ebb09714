// SPDX-License-Identifier: Apache-2.0
//! Defaults, preparation, and who owns which half of an object.

use cobaltcore_builtins::{
    Kind, Priority, default_priority, default_service_account, default_tolerations, find, protect_storage,
    taint_new_node,
};
use serde_json::{Value, json};

fn kind(group: &str, plural: &str) -> &'static Kind {
    find(
        group,
        if plural == "horizontalpodautoscalers" {
            "v2"
        } else {
            "v1"
        },
        plural,
    )
    .expect("served")
}

/// Decoded and defaulted.
fn made(kind: &Kind, object: Value) -> Value {
    let mut object = object;
    kind.decode(&mut object).unwrap_or_else(|error| panic!("{error}"));
    kind.default(&mut object);
    object
}

#[test]
fn pods_get_their_defaults() {
    let pod = made(
        kind("", "pods"),
        json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": true,
            "containers": [
                {"name": "a", "image": "nginx", "ports": [{"containerPort": 80}],
                 "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                 "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
                {"name": "b", "image": "registry:5000/app:1.2"},
                {"name": "c", "image": "app@sha256:abc"},
                {"name": "d", "image": "app:latest"},
            ],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/x"}},
                        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        }}),
    );
    let spec = &pod["spec"];
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["dnsPolicy"], "ClusterFirst");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["securityContext"], json!({}));
    assert_eq!(spec["enableServiceLinks"], true);
    let pull: Vec<&Value> = (0..4)
        .map(|i| &spec["containers"][i]["imagePullPolicy"])
        .collect();
    assert_eq!(pull, ["Always", "IfNotPresent", "IfNotPresent", "Always"]);
    let first = &spec["containers"][0];
    assert_eq!(
        first["resources"]["requests"],
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    assert_eq!(
        first["ports"][0],
        json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})
    );
    assert_eq!(
        first["livenessProbe"],
        json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
               "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(first["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(first["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(first["terminationMessagePolicy"], "File");
    assert_eq!(spec["containers"][1]["resources"], json!({}));
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 420);
    assert_eq!(spec["volumes"][2]["hostPath"]["type"], "");
    assert_eq!(
        spec["volumes"][3]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3600
    );
}

#[test]
fn templates_do_not_get_what_only_pods_get() {
    let deployment = made(
        kind("apps", "deployments"),
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"hostNetwork": true, "serviceAccountName": "sa", "containers": [{"name": "c", "image": "i",
                "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1"}}}]}}}}),
    );
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(spec["revisionHistoryLimit"], 10);
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    let template = &spec["template"]["spec"];
    assert!(template.get("enableServiceLinks").is_none());
    assert!(template["containers"][0]["resources"].get("requests").is_none());
    assert!(template["containers"][0]["ports"][0].get("hostPort").is_none());
    assert_eq!(
        template["serviceAccount"], "sa",
        "the old field mirrors the new one"
    );
}

#[test]
fn other_workloads_get_their_defaults() {
    let set = made(kind("apps", "statefulsets"), json!({"spec": {}}));
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(
        set["spec"]["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    let daemons = made(kind("apps", "daemonsets"), json!({"spec": {}}));
    assert_eq!(
        daemons["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    let cron = made(kind("batch", "cronjobs"), json!({"spec": {"schedule": "@daily"}}));
    assert_eq!(cron["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(cron["spec"]["successfulJobsHistoryLimit"], 3);
    assert_eq!(cron["spec"]["failedJobsHistoryLimit"], 1);
    assert!(cron["spec"]["jobTemplate"]["spec"].get("backoffLimit").is_none());
    let scaler = made(
        kind("autoscaling", "horizontalpodautoscalers"),
        json!({"spec": {"maxReplicas": 3}}),
    );
    assert_eq!(scaler["spec"]["minReplicas"], 1);
    assert_eq!(
        scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        80
    );
}

#[test]
fn jobs_get_a_selector_made_from_their_uid() {
    let jobs = kind("batch", "jobs");
    let mut job = made(
        jobs,
        json!({"metadata": {"name": "j", "uid": "u-1"}, "spec": {"template": {"metadata": {"labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    );
    jobs.prepare_create(&mut job);
    let spec = &job["spec"];
    for (field, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    assert_eq!(
        spec["selector"]["matchLabels"],
        json!({"batch.kubernetes.io/controller-uid": "u-1"})
    );
    assert_eq!(
        spec["template"]["metadata"]["labels"],
        json!({"app": "x", "batch.kubernetes.io/controller-uid": "u-1", "batch.kubernetes.io/job-name": "j",
               "controller-uid": "u-1", "job-name": "j"})
    );
    assert_eq!(jobs.validate_create(&job), []);
}

#[test]
fn cluster_kinds_get_their_defaults() {
    for (group, plural, given, path, expected) in [
        (
            "",
            "services",
            json!({"spec": {"ports": [{"port": 80}]}}),
            "/spec/ports/0/targetPort",
            json!(80),
        ),
        (
            "",
            "services",
            json!({"spec": {}}),
            "/spec/type",
            json!("ClusterIP"),
        ),
        (
            "",
            "services",
            json!({"spec": {}}),
            "/spec/sessionAffinity",
            json!("None"),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer"}}),
            "/spec/externalTrafficPolicy",
            json!("Cluster"),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer"}}),
            "/spec/allocateLoadBalancerNodePorts",
            json!(true),
        ),
        (
            "",
            "services",
            json!({"spec": {}}),
            "/spec/internalTrafficPolicy",
            json!("Cluster"),
        ),
        ("", "secrets", json!({}), "/type", json!("Opaque")),
        (
            "",
            "secrets",
            json!({"data": {"a": "eA=="}, "stringData": {"a": "y"}}),
            "/data/a",
            json!("eQ=="),
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({}),
            "/spec/volumeMode",
            json!("Filesystem"),
        ),
        (
            "",
            "persistentvolumes",
            json!({}),
            "/spec/persistentVolumeReclaimPolicy",
            json!("Retain"),
        ),
        (
            "",
            "nodes",
            json!({"status": {"capacity": {"cpu": "4"}}}),
            "/status/allocatable/cpu",
            json!("4"),
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            json!({"spec": {"egress": [{}]}}),
            "/spec/policyTypes",
            json!(["Ingress", "Egress"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"subjects": [{"kind": "User", "name": "u"}]}),
            "/subjects/0/apiGroup",
            json!("rbac.authorization.k8s.io"),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({}),
            "/roleRef/apiGroup",
            json!("rbac.authorization.k8s.io"),
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            json!({"webhooks": [{"name": "a"}]}),
            "/webhooks/0/reinvocationPolicy",
            json!("Never"),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            json!({"webhooks": [{"name": "a", "rules": [{}]}]}),
            "/webhooks/0/rules/0/scope",
            json!("*"),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({"provisioner": "p"}),
            "/reclaimPolicy",
            json!("Delete"),
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({"spec": {"names": {"kind": "Widget"}}}),
            "/spec/names/listKind",
            json!("WidgetList"),
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({"spec": {}}),
            "/spec/conversion/strategy",
            json!("None"),
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"value": 1}),
            "/preemptionPolicy",
            json!("PreemptLowerPriority"),
        ),
    ] {
        let object = made(kind(group, plural), given);
        assert_eq!(object.pointer(path), Some(&expected), "{plural} {path}");
        assert!(object.get("stringData").is_none());
    }
}

#[test]
fn new_objects_start_with_their_own_status() {
    let pods = kind("", "pods");
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (json!({"limits": {"cpu": "1"}}), "Burstable"),
    ] {
        let mut pod = made(
            pods,
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}, "status": {"phase": "Running"}}),
        );
        pods.prepare_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": class}));
    }
    let namespaces = kind("", "namespaces");
    let mut namespace = made(
        namespaces,
        json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}),
    );
    namespaces.prepare_create(&mut namespace);
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    let nodes = kind("", "nodes");
    let mut node = made(
        nodes,
        json!({"metadata": {"name": "n"}, "status": {"phase": "Running"}}),
    );
    nodes.prepare_create(&mut node);
    assert_eq!(
        node["status"]["phase"], "Running",
        "kubelets register with their status"
    );
    assert_eq!(node["status"]["nodeInfo"]["machineID"], "");
    assert_eq!(
        node["status"]["daemonEndpoints"],
        json!({"kubeletEndpoint": {"Port": 0}})
    );
    let budgets = kind("policy", "poddisruptionbudgets");
    let mut budget = made(budgets, json!({"status": {"currentHealthy": 5}}));
    budgets.prepare_create(&mut budget);
    assert_eq!(
        budget["status"],
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    );
}

#[test]
fn each_endpoint_writes_its_own_half() {
    let deployments = kind("apps", "deployments");
    let old = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "1"}}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
    let sent = json!({"metadata": {"labels": {"a": "2"}, "annotations": {"x": "2"}}, "spec": {"replicas": 2}, "status": {"replicas": 2}});
    let mut main = sent.clone();
    deployments.prepare_update(&mut main, &old, None);
    assert_eq!(main["status"], old["status"]);
    assert_eq!(main["spec"], sent["spec"]);
    assert!(deployments.spec_changed(&main, &old));
    let mut status = sent.clone();
    deployments.prepare_update(&mut status, &old, Some("status"));
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"], sent["status"]);
    assert_eq!(status["metadata"]["labels"], old["metadata"]["labels"]);
    assert_eq!(status["metadata"]["annotations"], sent["metadata"]["annotations"]);
    let mut annotated = old.clone();
    annotated["metadata"]["annotations"]["x"] = json!("3");
    assert!(
        deployments.spec_changed(&annotated, &old),
        "annotations of deployments count"
    );
    let daemons = kind("apps", "daemonsets");
    let mut first = json!({"metadata": {}, "spec": {"template": {"a": 1}}});
    daemons.prepare_create(&mut first);
    let mut second = json!({"metadata": {}, "spec": {"template": {"a": 2}}});
    daemons.prepare_update(&mut second, &first, None);
    assert_eq!(
        second["metadata"]["annotations"]["deprecated.daemonset.template.generation"],
        "2"
    );
}

#[test]
fn a_service_that_changes_type_loses_what_the_new_type_cannot_use() {
    let services = kind("", "services");
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30000}]}, "status": {"loadBalancer": {}}});
    let mut new = old.clone();
    new["spec"]["type"] = json!("ExternalName");
    new["spec"]["externalName"] = json!("a.example");
    services.prepare_update(&mut new, &old, None);
    assert_eq!(
        new["spec"],
        json!({"type": "ExternalName", "externalName": "a.example", "ports": [{"port": 80}]})
    );
}

#[test]
fn admission_completes_pods_and_nodes() {
    let mut pod =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
    default_service_account(&mut pod);
    default_tolerations(&mut pod);
    assert_eq!(default_priority(&mut pod, None), Ok(()));
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    assert_eq!(pod["spec"]["serviceAccount"], "default");
    assert_eq!(pod["spec"]["priority"], 0);
    assert_eq!(pod["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(
        pod["spec"]["tolerations"][1],
        json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    );
    assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    let class = Priority {
        class: "high".into(),
        value: 100,
        preemption_policy: "Never".into(),
    };
    let mut other = json!({"spec": {"priority": 7}});
    assert!(default_priority(&mut other, Some(&class)).is_err());
    let mut node = json!({});
    taint_new_node(&mut node);
    taint_new_node(&mut node);
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let mut claim = json!({"metadata": {}});
    protect_storage(&mut claim, "PersistentVolumeClaim");
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
}

#[test]
fn kinds_that_share_storage_convert_without_loss() {
    let core = find("", "v1", "events").expect("served");
    let group = find("events.k8s.io", "v1", "events").expect("served");
    let mut event = json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "p"}, "note": "hi", "reportingController": "c", "deprecatedCount": 2});
    let original = event.clone();
    group.convert_to(core, &mut event);
    assert_eq!(
        event,
        json!({"apiVersion": "v1", "involvedObject": {"name": "p"}, "message": "hi", "reportingComponent": "c", "reportingInstance": "", "count": 2})
    );
    core.convert_to(group, &mut event);
    assert_eq!(event, original);
    let new = find("autoscaling", "v2", "horizontalpodautoscalers").expect("served");
    let old = find("autoscaling", "v1", "horizontalpodautoscalers").expect("served");
    let mut scaler = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                    {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}});
    let original = scaler.clone();
    new.convert_to(old, &mut scaler);
    assert_eq!(scaler["spec"]["targetCPUUtilizationPercentage"], 60);
    assert!(scaler["spec"].get("metrics").is_none());
    // What v1 has no field for is written in its own words and order.
    assert_eq!(
        scaler["metadata"]["annotations"],
        json!({
            "autoscaling.alpha.kubernetes.io/metrics":
                "[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"q\",\"targetAverageValue\":\"1\"}}]",
            "autoscaling.alpha.kubernetes.io/behavior":
                "{\"ScaleUp\":{\"StabilizationWindowSeconds\":null,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":4,\"PeriodSeconds\":15}],\"Tolerance\":null},\"ScaleDown\":null}",
        })
    );
    old.convert_to(new, &mut scaler);
    let mut expected = original.clone();
    expected["spec"]["metrics"]
        .as_array_mut()
        .expect("metrics")
        .reverse();
    assert_eq!(scaler, expected);
}
