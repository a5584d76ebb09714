// SPDX-License-Identifier: Apache-2.0
//! The built-in kinds on the wire: names and metadata, defaults, and what is refused with which
//! causes.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

fn named(name: &str) -> Value {
    map(name)
}

fn with_meta(meta: Value) -> Value {
    let mut object = map("m");
    for (key, value) in meta.as_object().expect("metadata is an object") {
        object["metadata"][key] = value.clone();
    }
    object
}

#[tokio::test]
async fn names_and_metadata_that_are_refused() {
    let owner = |kind: &str, uid: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": uid, "controller": controller});
    refused(
        MAPS,
        vec![
            (named("Bad"), &[("metadata.name", "Invalid")]),
            (named(&"a".repeat(254)), &[("metadata.name", "Invalid")]),
            (named("-a"), &[("metadata.name", "Invalid")]),
            (named("a_b"), &[("metadata.name", "Invalid")]),
            (named("a..b"), &[("metadata.name", "Invalid")]),
            (json!({"metadata": {}}), &[("metadata.name", "Required")]),
            (
                with_meta(json!({"labels": {"a/b/c": "x"}})),
                &[("metadata.labels", "Invalid")],
            ),
            (
                with_meta(json!({"labels": {"a": "x".repeat(64)}})),
                &[("metadata.labels", "Invalid")],
            ),
            (
                with_meta(json!({"annotations": {"-": "x"}})),
                &[("metadata.annotations", "Invalid")],
            ),
            (
                with_meta(json!({"annotations": {"a": "x".repeat(262_145)}})),
                &[("metadata.annotations", "TooLong")],
            ),
            (
                with_meta(json!({"finalizers": ["nodomain"]})),
                &[("metadata.finalizers[0]", "Invalid")],
            ),
            (
                with_meta(json!({"finalizers": ["orphan", "foregroundDeletion"]})),
                &[("metadata.finalizers", "Invalid")],
            ),
            (
                with_meta(
                    json!({"ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}),
                ),
                &[
                    ("metadata.ownerReferences.apiVersion", "Invalid"),
                    ("metadata.ownerReferences.kind", "Invalid"),
                    ("metadata.ownerReferences.name", "Invalid"),
                    ("metadata.ownerReferences.uid", "Invalid"),
                ],
            ),
            (
                with_meta(json!({"ownerReferences": [owner("A", "1", true), owner("A", "2", true)]})),
                &[("metadata.ownerReferences", "Invalid")],
            ),
            (
                with_meta(json!({"ownerReferences": [owner("Event", "1", false)]})),
                &[("metadata.ownerReferences", "Invalid")],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn metadata_that_is_accepted_or_dropped() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let sent = with_meta(
        json!({"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "/x",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 4, "finalizers": ["a/b", "kubernetes"],
        "annotations": {"A/B": "x"}}),
    );
    let meta = made(&admin, MAPS, &sent).await["metadata"].clone();
    assert_ne!(meta["uid"], "mine");
    assert_eq!(
        meta["uid"].as_str().unwrap().as_bytes()[14],
        b'4',
        "a random UUID"
    );
    for dropped in [
        "generation",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        assert_eq!(meta[dropped], Value::Null, "{dropped}");
    }
    let reference = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"});
    let mut doubled = map("doubled");
    doubled["metadata"]["ownerReferences"] = json!([reference, reference]);
    let reply = admin.post(MAPS, &doubled).await;
    assert_eq!(
        (
            reply.code,
            reply.body["metadata"]["ownerReferences"]
                .as_array()
                .unwrap()
                .len()
        ),
        (201, 1)
    );
    assert!(
        reply.warnings()[0].contains("duplicate UID(s) observed: 1"),
        "{:?}",
        reply.warnings()
    );
    let reply = admin
        .post(MAPS, &json!({"metadata": {"generateName": "g".repeat(70)}}))
        .await;
    let name = reply.body["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..58]), (63, "g".repeat(58).as_str()));
    assert!(
        name[58..]
            .bytes()
            .all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
        "{name}"
    );
    let stray = json!({"metadata": {"name": "ok", "namespace": "x", "labels": {"kubernetes.io/metadata.name": "other"}}});
    let namespace = made(&admin, "/api/v1/namespaces", &stray).await;
    assert_eq!(
        namespace["metadata"]["namespace"],
        Value::Null,
        "a stray namespace is dropped"
    );
    assert_eq!(
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "ok"
    );
    assert_eq!(
        (&namespace["spec"]["finalizers"], &namespace["status"]["phase"]),
        (&json!(["kubernetes"]), &json!("Active"))
    );
}

#[tokio::test]
async fn config_maps_and_secrets() {
    refused(
        MAPS,
        vec![
            (
                map_of("a", json!({"bad key": "x"})),
                &[("data[bad key]", "Invalid")],
            ),
            (
                json!({"metadata": {"name": "a"}, "data": {"a": "x"}, "binaryData": {"a": "eA=="}}),
                &[("data[a]", "Invalid")],
            ),
            (
                map_of("a", json!({"a": "x".repeat(1 << 20), "b": "y"})),
                &[("[]", "TooLong")],
            ),
        ],
    )
    .await;
    let secret = |kind: &str, data: Value| json!({"metadata": {"name": "s"}, "type": kind, "data": data});
    refused(
        SECRETS,
        vec![
            (
                secret("kubernetes.io/tls", json!({})),
                &[("data[tls.crt]", "Required"), ("data[tls.key]", "Required")],
            ),
            (
                secret(
                    "kubernetes.io/dockerconfigjson",
                    json!({".dockerconfigjson": "eA=="}),
                ),
                &[("data[.dockerconfigjson]", "Invalid")],
            ),
            (
                secret("kubernetes.io/basic-auth", json!({})),
                &[("data[username]", "Required"), ("data[password]", "Required")],
            ),
            (
                secret("kubernetes.io/ssh-auth", json!({})),
                &[("data[ssh-privatekey]", "Required")],
            ),
            (
                secret("kubernetes.io/service-account-token", json!({})),
                &[(
                    "metadata.annotations[kubernetes.io/service-account.name]",
                    "Required",
                )],
            ),
        ],
    )
    .await;
    let server = TestServer::start().await;
    let admin = server.admin();
    made(
        &admin,
        MAPS,
        &json!({"metadata": {"name": "imm"}, "data": {"a": "x"}, "immutable": true}),
    )
    .await;
    let imm = format!("{MAPS}/imm");
    for (patch, field) in [
        (json!({"data": {"a": "y"}}), "data"),
        (json!({"immutable": false}), "immutable"),
    ] {
        let reply = admin.merge(&imm, &patch).await;
        assert_eq!(
            reply.message(),
            format!(
                "ConfigMap \"imm\" is invalid: {field}: Forbidden: field is immutable when `immutable` is set"
            )
        );
    }
    assert_eq!(
        admin
            .merge(&imm, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .code,
        200
    );
    let stored = made(
        &admin,
        SECRETS,
        &json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"a": "eA==", "c": "eA=="}}),
    )
    .await;
    assert_eq!(
        (&stored["data"], &stored["type"], &stored["stringData"]),
        (&json!({"a": "Yg==", "c": "eA=="}), &json!("Opaque"), &Value::Null)
    );
    let reply = admin
        .merge(&format!("{SECRETS}/s"), &json!({"type": "foo"}))
        .await;
    assert_eq!(
        reply.message(),
        "Secret \"s\" is invalid: type: Invalid value: \"foo\": field is immutable"
    );
}

#[tokio::test]
async fn pods() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let created = made(&admin, PODS, &pod("p")).await;
    let spec = &created["spec"];
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        assert_eq!(spec[key], value, "{key}");
    }
    let toleration = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        spec["tolerations"],
        json!([toleration("not-ready"), toleration("unreachable")])
    );
    assert_eq!(
        created["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(
        spec["containers"][0],
        json!({"name": "c", "image": "nginx:1", "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    );
    refused(PODS, vec![
        (json!({"metadata": {"name": "b"}, "spec": {}}), &[("spec.containers", "Required")]),
        (json!({"metadata": {"name": "b"}, "spec": {"restartPolicy": "Foo", "containers": [{"name": "A_b", "image": ""},
            {"name": "x", "image": "y", "ports": [{"containerPort": 70_000}]},
            {"name": "x", "image": "y", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}}), &[
            ("spec.containers[0].name", "Invalid"), ("spec.containers[0].image", "Required"),
            ("spec.containers[1].ports[0].containerPort", "Invalid"), ("spec.containers[2].resources.requests", "Invalid"),
            ("spec.containers[2].name", "Duplicate"), ("spec.restartPolicy", "NotSupported")]),
    ]).await;
    let p = format!("{PODS}/p");
    assert_eq!(
        admin
            .merge(&p, &json!({"spec": {"activeDeadlineSeconds": 9}}))
            .await
            .code,
        200
    );
    assert_eq!(
        admin
            .strategic(
                &p,
                &json!({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}})
            )
            .await
            .code,
        200
    );
    let reply = admin
        .merge(&p, &json!({"spec": {"restartPolicy": "Never"}}))
        .await;
    assert_eq!(
        (reply.code, causes(&reply)),
        (422, vec![("spec".to_owned(), "FieldValueForbidden".to_owned())])
    );
    assert!(
        reply
            .message()
            .contains("spec: Forbidden: pod updates may not change fields other than "),
        "{}",
        reply.message()
    );
    let mut again = pod("p");
    again["spec"]["serviceAccountName"] = json!("default");
    again["spec"]["activeDeadlineSeconds"] = json!(9);
    again["spec"]["containers"][0]["image"] = json!("nginx:3");
    let reply = admin.put(&p, &again).await;
    assert_eq!(
        (reply.code, &reply.body["spec"]["priority"]),
        (200, &json!(0)),
        "what admission settled stays: {}",
        reply.body
    );
}

#[tokio::test]
async fn services() {
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    refused(
        SERVICES,
        vec![
            (service("s", json!({})), &[("spec.ports", "Required")]),
            (
                service("s", json!({"ports": [{"port": 80}, {"port": 81}]})),
                &[
                    ("spec.ports[0].name", "Required"),
                    ("spec.ports[1].name", "Required"),
                ],
            ),
            (
                service("s", json!({"type": "ExternalName"})),
                &[("spec.externalName", "Required")],
            ),
            (
                service("s", json!({"type": "Foo", "ports": [{"port": 1}]})),
                &[("spec.type", "NotSupported")],
            ),
            (
                service("a.b", json!({"ports": [{"port": 1}]})),
                &[("metadata.name", "Invalid")],
            ),
            (
                service(
                    "s",
                    json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 5}]}),
                ),
                &[("spec.ports[0].nodePort", "Invalid")],
            ),
            (
                service("s", json!({"clusterIP": "10.96.0.1", "ports": [{"port": 1}]})),
                &[("spec.clusterIPs", "Invalid")],
            ),
        ],
    )
    .await;
    let server = TestServer::start().await;
    let admin = server.admin();
    let created = made(&admin, SERVICES, &service("1s", json!({"ports": [{"port": 80}]}))).await;
    let spec = &created["spec"];
    assert_eq!(
        spec["ports"],
        json!([{"port": 80, "protocol": "TCP", "targetPort": 80}])
    );
    assert_eq!(
        (
            &spec["type"],
            &spec["sessionAffinity"],
            &spec["ipFamilyPolicy"],
            &spec["ipFamilies"],
            &spec["internalTrafficPolicy"]
        ),
        (
            &json!("ClusterIP"),
            &json!("None"),
            &json!("SingleStack"),
            &json!(["IPv4"]),
            &json!("Cluster")
        )
    );
    assert!(
        spec["clusterIP"].as_str().unwrap().starts_with("10.96.")
            && spec["clusterIPs"] == json!([spec["clusterIP"]])
    );
    assert_eq!(created["status"], json!({"loadBalancer": {}}));
    let port = made(
        &admin,
        SERVICES,
        &service("n", json!({"type": "NodePort", "ports": [{"port": 80}]})),
    )
    .await;
    assert!((30_000..=32_767).contains(&port["spec"]["ports"][0]["nodePort"].as_i64().unwrap()));
    let headless = made(&admin, SERVICES, &service("h", json!({"clusterIP": "None"}))).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test]
async fn the_rest_of_level_a() {
    refused(
        LEASES,
        vec![(
            {
                let mut bad = lease("l", "x");
                bad["spec"] = json!({"leaseDurationSeconds": 0, "leaseTransitions": -1});
                bad
            },
            &[
                ("spec.leaseDurationSeconds", "Invalid"),
                ("spec.leaseTransitions", "Invalid"),
            ],
        )],
    )
    .await;
    refused("/api/v1/namespaces/default/events", vec![
        (json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "other", "name": "x"}}), &[("involvedObject.namespace", "Invalid")]),
    ]).await;
    refused(
        "/api/v1/namespaces",
        vec![(
            json!({"metadata": {"name": "a.b"}}),
            &[("metadata.name", "Invalid")],
        )],
    )
    .await;
    refused(
        BUDGETS,
        vec![
            (
                json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}),
                &[("spec", "Invalid")],
            ),
            (
                json!({"metadata": {"name": "b"}, "spec": {"minAvailable": "abc"}}),
                &[("spec.minAvailable", "Invalid")],
            ),
        ],
    )
    .await;
    refused("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", vec![
        (json!({"metadata": {"name": "r"}, "rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]}), &[("rules[0].verbs", "Required")]),
        (json!({"metadata": {"name": "a%b"}}), &[("metadata.name", "Invalid")]),
    ]).await;
    let server = TestServer::start().await;
    let admin = server.admin();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let made_binding = made(&admin, bindings, &json!({"metadata": {"name": "rb"}, "roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "User", "name": "u"}]})).await;
    assert_eq!(made_binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    let reply = admin
        .merge(&format!("{bindings}/rb"), &json!({"roleRef": {"name": "y"}}))
        .await;
    assert!(
        reply.code == 422 && reply.message().ends_with("cannot change roleRef"),
        "{}",
        reply.message()
    );
    let node = made(&admin, "/api/v1/nodes", &json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24", "providerID": "p"}, "status": {"capacity": {"cpu": "1000m", "memory": "1024Mi"}}})).await;
    assert_eq!(
        (&node["status"]["capacity"], &node["status"]["allocatable"]),
        (
            &json!({"cpu": "1", "memory": "1Gi"}),
            &json!({"cpu": "1", "memory": "1Gi"})
        )
    );
    assert_eq!(
        (&node["spec"]["podCIDRs"], &node["spec"]["taints"]),
        (
            &json!(["10.0.0.0/24"]),
            &json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        )
    );
    let reply = admin
        .merge("/api/v1/nodes/n", &json!({"spec": {"providerID": "q"}}))
        .await;
    assert_eq!(
        causes(&reply),
        [("spec.providerID".to_owned(), "FieldValueForbidden".to_owned())]
    );
    let claim = made(&admin, "/api/v1/namespaces/default/persistentvolumeclaims", &json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}})).await;
    assert_eq!(
        (
            &claim["spec"]["resources"]["requests"]["storage"],
            &claim["spec"]["volumeMode"],
            &claim["status"]["phase"]
        ),
        (&json!("1Gi"), &json!("Filesystem"), &json!("Pending"))
    );
    let reply = admin
        .post(
            "/api/v1/namespaces/default/persistentvolumeclaims",
            &json!({"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "abc"}}}}),
        )
        .await;
    assert_eq!(
        reply.body,
        failure(
            400,
            "BadRequest",
            "PersistentVolumeClaim in version \"v1\" cannot be handled as a PersistentVolumeClaim: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            None
        )
    );
    let policy = made(
        &admin,
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        &json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "egress": [{}]}}),
    )
    .await;
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let scaler = made(&admin, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}})).await;
    assert_eq!(scaler["spec"]["minReplicas"], 1);
    let old = admin
        .get("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h")
        .await;
    assert_eq!(old.body["spec"]["targetCPUUtilizationPercentage"], 80);
}
