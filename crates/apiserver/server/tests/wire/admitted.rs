// SPDX-License-Identifier: Apache-2.0
//! What built-in admission and allocation make of objects: labels of nodes, sizes of pods, ports of
//! services; and what becomes of what webhooks and policies did.

use std::sync::Arc;

use cobaltcore_apiserver::WebhookHandler;
use cobaltcore_apiserver::testkit::TestServer;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::hooks::{PODS, REGISTRATION, World, patch, rule};
use super::requests::{DEPLOYMENTS, MAPS, SECRETS, SERVICES, deployment, map, pod, told};

const NODES: &str = "/api/v1/nodes";
const OWNER: &str = "00000000-0000-4000-8000-000000000001";

/// A pod knows the zone and region of its node, whatever it said itself.
#[tokio::test]
async fn pods_are_labelled_with_where_their_node_is() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let labels =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    let node = json!({"metadata": {"name": "n", "labels": labels}});
    assert_eq!(admin.post(NODES, &node).await.code, 201);
    let mut bound = pod("bound");
    bound["metadata"]["labels"] = json!({"a": "b", "topology.kubernetes.io/zone": "mine"});
    admin.post(PODS, &bound).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(
        admin.post(&format!("{PODS}/bound/binding"), &binding).await.code,
        201
    );
    let bound = admin.get(&format!("{PODS}/bound")).await.body;
    let wanted = json!({"a": "b", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    assert_eq!(bound["metadata"]["labels"], wanted);
    let mut placed = pod("placed");
    placed["metadata"]["labels"] = json!({"a": "b"});
    placed["spec"]["nodeName"] = json!("n");
    assert_eq!(admin.post(PODS, &placed).await.body["metadata"]["labels"], wanted);
    placed["metadata"]["name"] = json!("elsewhere");
    placed["spec"]["nodeName"] = json!("unknown");
    let elsewhere = admin.post(PODS, &placed).await.body;
    assert_eq!(elsewhere["metadata"]["labels"], json!({"a": "b"}));
}

/// A pod grows as far as its node allows, and only where its node can do that.
#[tokio::test]
async fn a_pod_does_not_outgrow_its_node() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (name, system) in [("lin", "linux"), ("win", "windows")] {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": system}},
            "status": {"capacity": {"cpu": "2", "memory": "2Gi"}}});
        assert_eq!(admin.post(NODES, &node).await.code, 201);
    }
    let small = "node didn't have enough allocatable resources: cpu, requested: 4000, allocatable: 2000";
    for (name, node, cpu, refusal) in [
        ("a", "lin", "1", None),
        ("b", "lin", "4", Some(("NodeCapacity", small))),
        (
            "c",
            "win",
            "1",
            Some((
                "UnsupportedPlatform",
                "pod resize is only supported on linux nodes, node \"win\" is \"windows\"",
            )),
        ),
    ] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = json!(node);
        object["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "500m", "memory": "512Mi"}});
        assert_eq!(admin.post(PODS, &object).await.code, 201);
        let size = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        let resized = admin.strategic(&format!("{PODS}/{name}/resize"), &size).await;
        match refusal {
            None => assert_eq!(resized.code, 200, "{}", resized.body),
            Some((reason, why)) => {
                assert_eq!(
                    (resized.code, resized.message()),
                    (403, format!("pods \"{name}\" is forbidden: {why}").as_str())
                );
                assert_eq!(resized.body["details"]["causes"], json!([{"reason": reason}]));
            }
        }
    }
}

/// A load balancer that needs no node ports gives back those that are not asked for any more.
#[tokio::test]
async fn node_ports_are_kept_only_where_they_are_wanted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let mut made = admin.post(SERVICES, &service).await.body;
    let ports = |service: &Value| {
        let ports = service["spec"]["ports"].as_array().expect("ports");
        let given = |port: &Value| port["nodePort"].as_i64().is_some_and(|port| port > 0);
        ports.iter().map(given).collect::<Vec<_>>()
    };
    assert_eq!(ports(&made), [true, true]);
    let path = format!("{SERVICES}/s");
    made["spec"]["ports"][0]["nodePort"] = Value::Null;
    made["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(ports(&admin.put(&path, &made).await.body), [true, true]);
    made["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    assert_eq!(ports(&admin.put(&path, &made).await.body), [false, true]);
    let other = json!({"spec": {"ports": [{"port": 81, "nodePort": null}]}});
    assert_eq!(ports(&admin.strategic(&path, &other).await.body), [false, false]);
    let again = json!({"spec": {"allocateLoadBalancerNodePorts": true}});
    assert_eq!(ports(&admin.merge(&path, &again).await.body), [true, true]);
}

/// A service that is only a name has no traffic inside the cluster, but may say so.
#[tokio::test]
async fn a_name_has_no_internal_traffic() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut service = json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.b.c",
        "internalTrafficPolicy": "Cluster"}});
    let made = admin.post(SERVICES, &service).await;
    assert_eq!(
        (made.code, made.body["spec"].get("internalTrafficPolicy")),
        (201, None)
    );
    let stored = admin.get(&format!("{SERVICES}/s")).await.body;
    assert_eq!(stored["spec"].get("internalTrafficPolicy"), None);
    service["metadata"]["name"] = json!("t");
    service["spec"]["internalTrafficPolicy"] = json!("Nowhere");
    assert_eq!(admin.post(SERVICES, &service).await.code, 422);
}

/// A service that becomes a name gives its address back, though its list was left out.
#[tokio::test]
async fn a_name_has_no_address() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for address in ["None", ""] {
        let service =
            json!({"metadata": {"name": "s"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
        let made = admin.post(SERVICES, &service).await.body;
        let named = json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.b",
            "clusterIP": made["spec"]["clusterIP"]}});
        let changed = admin.put(&format!("{SERVICES}/s"), &named).await;
        assert_eq!((changed.code, changed.body["spec"].get("clusterIP")), (200, None));
        admin.delete(&format!("{SERVICES}/s")).await;
    }
}

/// Whoever makes pods that their namespace will not take is warned of annotations, too.
#[tokio::test]
async fn profiles_in_annotations_of_templates_are_warned_of() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    admin.merge("/api/v1/namespaces/default", &labels).await;
    let mut object = deployment("d");
    object["spec"]["template"]["metadata"]["annotations"] =
        json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"});
    let made = admin.post(DEPLOYMENTS, &object).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let warnings = made.warnings();
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("would violate PodSecurity")
                && text.contains(
                    "forbidden AppArmor profile (annotation must not set AppArmor profile type to"
                )),
        "{warnings:?}"
    );
}

/// Old notations are called what they are.
#[tokio::test]
async fn leading_zeros_are_named() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    for cidr in ["172.017.0.0/16", "10.0.0.0/08"] {
        let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {},
            "ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]}});
        assert_eq!(
            told(&admin.post(path, &policy).await.body),
            [format!(
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"{cidr}\": must not have leading 0s in IP or prefix length"
            )]
        );
    }
    let endpoints = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "192.168.3.011"}]}]});
    assert_eq!(
        told(
            &admin
                .post("/api/v1/namespaces/default/endpoints", &endpoints)
                .await
                .body
        ),
        ["subsets[0].addresses[0].ip: Invalid value: \"192.168.3.011\": must not have leading 0s"]
    );
}

/// An owner a webhook names again is dropped, and whose doing that was is told.
#[tokio::test]
async fn owners_named_twice_by_a_webhook_are_its_doing() {
    let world = World::new().await;
    let admin = world.admin();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": OWNER});
    let again = owner.clone();
    world.serve("/m", move |_| {
        patch(json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": again}]))
    });
    world
        .mutating("m", "/m", rule("", &["pods"], &["CREATE"]), json!({}))
        .await;
    let mut object = pod("p");
    object["metadata"]["ownerReferences"] = json!([owner]);
    let made = admin.post(PODS, &object).await;
    assert_eq!(made.body["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(
        made.warnings(),
        [format!(
            "299 - \".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {OWNER}\""
        )]
    );
}

/// Who owns what cannot be made unreadable by a webhook.
#[tokio::test]
async fn ownership_a_webhook_breaks_is_put_back() {
    let world = World::new().await;
    let admin = world.admin();
    world.serve("/m", |_| {
        patch(json!([{"op": "remove", "path": "/metadata/managedFields/0/fieldsType"}]))
    });
    world
        .mutating("m", "/m", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    let mut object = map("m");
    object["data"] = json!({"k": "v"});
    let made = admin.post(&format!("{MAPS}?fieldManager=me"), &object).await;
    let entry = &made.body["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["fieldsType"]),
        (&json!("me"), &json!("FieldsV1"))
    );
    assert_eq!(
        made.warnings(),
        [
            "299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: missing fieldsType in managed fields entry 0\""
        ]
    );
}

/// Expressions that together cost too much are all there is to say.
#[tokio::test]
async fn conditions_that_cost_too_much_together_end_the_judgement() {
    const SPENT: &str =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    let world = World::new().await;
    let admin = world.admin();
    let check = "authorizer.group('').resource('pods').check('create').allowed()";
    let costly = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|n| json!({"name": format!("c{n}"), "expression": format!("({check} && {check}) || {n} == 99")}))
            .collect()
    };
    world
        .validating(
            "v",
            "/v",
            rule("", &["configmaps"], &["CREATE"]),
            json!({"matchConditions": costly(8)}),
        )
        .await;
    let refused = admin.post(MAPS, &map("m")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (403, format!("configmaps \"m\" is forbidden: {SPENT}").as_str())
    );
    let validations: Vec<Value> = costly(20)
        .iter()
        .map(|condition| json!({"expression": condition["expression"]}))
        .collect();
    let policy = json!({"metadata": {"name": "p"}, "spec": {"validations": validations,
        "matchConstraints": {"resourceRules": [rule("", &["secrets"], &["CREATE"])]}}});
    let made = admin
        .post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy)
        .await;
    assert_eq!(made.code, 201, "{}", made.body);
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    admin
        .post(
            &format!("{REGISTRATION}/validatingadmissionpolicybindings"),
            &binding,
        )
        .await;
    let refused = admin.post(SECRETS, &json!({"metadata": {"name": "s"}})).await;
    assert_eq!(
        refused.message(),
        format!(
            "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {SPENT}"
        )
    );
}

/// A webhook has no more time than the client has.
#[tokio::test]
async fn a_webhook_is_told_how_long_the_client_waits() {
    let world = World::new().await;
    let handler: WebhookHandler = Arc::new(|_| async { panic!("a test wants this") }.boxed());
    world
        .server
        .server()
        .register_webhook("hooks", "test", "/v", handler);
    world
        .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    for (asked, given) in [("7s", "7s"), ("2m", "10s"), ("", "10s")] {
        let refused = world
            .admin()
            .post(&format!("{MAPS}?timeout={asked}"), &map("m"))
            .await;
        assert!(
            refused.message().contains(&format!("/v?timeout={given}")),
            "{asked}: {}",
            refused.body
        );
    }
}
