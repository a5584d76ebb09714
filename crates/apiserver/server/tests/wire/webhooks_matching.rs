// SPDX-License-Identifier: Apache-2.0
//! Admission webhooks served inside the process: which requests they are asked about, and what they
//! are told.

use crate::hooks::{MAPS, PODS, REGISTRATION, World, allow, annotate, map, patch, pod, rule};
use serde_json::{Value, json};

#[tokio::test]
async fn selectors_and_conditions_choose_requests() {
    let world = World::new().await;
    world.serve(
        "/v",
        |_| json!({"allowed": false, "status": {"message": "asked"}}),
    );
    let maps = || rule("", &["configmaps"], &["CREATE", "UPDATE"]);
    world
        .validating(
            "ns",
            "/v",
            maps(),
            json!({"namespaceSelector": {"matchLabels": {"watched": "yes"}}}),
        )
        .await;
    world
        .validating(
            "obj",
            "/v",
            maps(),
            json!({"objectSelector": {"matchExpressions": [{"key": "pick", "operator": "Exists"}]}}),
        )
        .await;
    let conditions = json!({"matchConditions": [
        {"name": "not-quiet", "expression": "object.metadata.name.startsWith('cond')"},
        {"name": "who", "expression": "request.userInfo.username == 'kubernetes-admin' && request.operation == 'CREATE'"}]});
    world.validating("cond", "/v", maps(), conditions).await;
    let admin = world.admin();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "watched", "labels": {"watched": "yes"}}});
    assert_eq!(admin.post("/api/v1/namespaces", &namespace).await.code, 201);
    let inside = admin
        .post("/api/v1/namespaces/watched/configmaps", &map("x"))
        .await;
    assert!(inside.message().contains("ns.hooks.example"), "{}", inside.body);
    assert_eq!(admin.post(MAPS, &map("free")).await.code, 201);
    let labelled = admin
        .merge(
            &format!("{MAPS}/free"),
            &json!({"metadata": {"labels": {"pick": "me"}}}),
        )
        .await;
    assert!(
        labelled.message().contains("obj.hooks.example"),
        "{}",
        labelled.body
    );
    let conditional = admin.post(MAPS, &map("cond-1")).await;
    assert!(
        conditional.message().contains("cond.hooks.example"),
        "{}",
        conditional.body
    );
}

#[tokio::test]
async fn the_old_object_is_selected_too() {
    let world = World::new().await;
    assert_eq!(world.admin().post(MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"pick": "me"}}})).await.code, 201);
    world.serve("/v", |_| allow());
    let more = json!({"objectSelector": {"matchLabels": {"pick": "me"}}});
    world
        .validating("obj", "/v", rule("", &["configmaps"], &["UPDATE"]), more)
        .await;
    assert_eq!(
        world
            .admin()
            .merge(&format!("{MAPS}/x"), &json!({"metadata": {"labels": null}}))
            .await
            .code,
        200
    );
    assert_eq!(world.take().len(), 1);
    assert_eq!(
        world
            .admin()
            .merge(&format!("{MAPS}/x"), &json!({"data": {"a": "b"}}))
            .await
            .code,
        200
    );
    assert_eq!(world.take().len(), 0);
}

#[tokio::test]
async fn a_condition_that_fails_follows_the_failure_policy() {
    for (policy, code) in [("Fail", 403), ("Ignore", 201)] {
        let world = World::new().await;
        world.serve("/v", |_| json!({"allowed": false}));
        let more = json!({"failurePolicy": policy, "matchConditions": [{"name": "bad", "expression": "object.missing.field == 1"}]});
        world
            .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), more)
            .await;
        let reply = world.admin().post(MAPS, &map("x")).await;
        assert_eq!(reply.code, code, "{}", reply.body);
        if policy == "Fail" {
            let text = "configmaps \"x\" is forbidden: expression 'object.missing.field == 1' resulted in error: no such key: missing";
            assert_eq!(reply.message(), text);
        }
        assert!(world.take().is_empty());
    }
}

#[tokio::test]
async fn conditions_must_compile() {
    let world = World::new().await;
    let more = json!({"matchConditions": [{"name": "bad", "expression": "object.x =="}]});
    let reply = world
        .configure(
            "MutatingWebhookConfiguration",
            "m",
            "/m",
            rule("", &["pods"], &["CREATE"]),
            more,
        )
        .await;
    assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{}", reply.body);
    assert_eq!(
        reply.body["details"]["causes"][0]["field"],
        "webhooks[0].matchConditions[0].expression"
    );
    assert!(
        reply.message().contains("compilation failed: ERROR: <input>:1:"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn deletions_show_the_old_object_only() {
    let world = World::new().await;
    world.serve(
        "/v",
        |request| json!({"allowed": request["oldObject"]["metadata"]["name"] != "kept"}),
    );
    world.serve("/m", |_| annotate("x", "y"));
    world
        .validating("v", "/v", rule("", &["configmaps"], &["DELETE"]), json!({}))
        .await;
    let admin = world.admin();
    for name in ["kept", "gone", "other"] {
        assert_eq!(admin.post(MAPS, &map(name)).await.code, 201);
    }
    assert_eq!(
        admin
            .delete(&format!("{MAPS}/kept?propagationPolicy=Background"))
            .await
            .code,
        400
    );
    let request = &world.take()[0];
    assert_eq!(
        (&request["object"], &request["name"]),
        (&Value::Null, &json!("kept"))
    );
    assert_eq!(request["oldObject"]["data"], json!({"k": "v"}));
    assert_eq!(
        request["options"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"})
    );
    assert_eq!(admin.delete(&format!("{MAPS}/gone")).await.code, 200);
    assert_eq!(
        world.take()[0]["options"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"})
    );
    world
        .mutating("m", "/m", rule("", &["configmaps"], &["DELETE"]), json!({}))
        .await;
    let reply = admin.delete(&format!("{MAPS}/other")).await;
    assert_eq!(reply.code, 500);
    assert!(
        reply
            .message()
            .contains("attempted to modify the object, which is not supported for this operation"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn each_deletion_is_asked_about_and_its_end_is_not() {
    let world = World::new().await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(world.admin().post(MAPS, &held).await.code, 201);
    world.serve("/v", |_| allow());
    world
        .validating("v", "/v", rule("", &["configmaps"], &["DELETE"]), json!({}))
        .await;
    for _ in 0..2 {
        assert_eq!(world.admin().delete(&format!("{MAPS}/held")).await.code, 200);
    }
    assert_eq!(world.take().len(), 2);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        world.admin().merge(&format!("{MAPS}/held"), &free).await.code,
        200
    );
    assert_eq!(world.take().len(), 0, "the end of a deletion is no second one");
}

#[tokio::test]
async fn zones_reach_pods_through_their_binding() {
    let world = World::new().await;
    let admin = world.admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}}});
    assert_eq!(admin.post("/api/v1/nodes", &node).await.code, 201);
    world.serve("/bind", |request| {
        assert_eq!(request["object"]["target"]["name"], "n1");
        patch(json!([{"op": "add", "path": "/metadata/annotations", "value": {"zone": "z1"}}]))
    });
    world
        .mutating(
            "zones",
            "/bind",
            rule("", &["pods/binding"], &["CREATE"]),
            json!({}),
        )
        .await;
    for (name, legacy) in [("p", false), ("q", true)] {
        assert_eq!(admin.post(PODS, &pod(name)).await.code, 201);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
        let path = if legacy {
            "/api/v1/namespaces/default/bindings".to_owned()
        } else {
            format!("{PODS}/{name}/binding")
        };
        let reply = admin.post(&path, &binding).await;
        assert_eq!(reply.code, 201, "{}", reply.body);
        let bound = admin.get(&format!("{PODS}/{name}")).await.body;
        assert_eq!(bound["spec"]["nodeName"], "n1");
        // The old way of binding is a resource of its own, which the rule does not name.
        assert_eq!(
            bound["metadata"]["annotations"]["zone"].as_str(),
            (!legacy).then_some("z1")
        );
    }
    let requests = world.take();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(
        request["kind"],
        json!({"group": "", "version": "v1", "kind": "Binding"})
    );
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "pods"})
    );
    assert_eq!(
        (&request["subResource"], &request["name"]),
        (&json!("binding"), &json!("p"))
    );
}

#[tokio::test]
async fn evictions_are_asked_about_instead_of_the_deletion_they_cause() {
    let world = World::new().await;
    let admin = world.admin();
    world.serve(
        "/v",
        |request| json!({"allowed": request["name"] != "kept", "status": {"code": 429, "message": "later"}}),
    );
    for name in ["kept", "free"] {
        assert_eq!(admin.post(PODS, &pod(name)).await.code, 201);
    }
    world
        .validating(
            "v",
            "/v",
            rule("", &["pods", "pods/eviction"], &["CREATE", "DELETE"]),
            json!({}),
        )
        .await;
    for (name, code) in [("kept", 429), ("free", 201)] {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
        let reply = admin.post(&format!("{PODS}/{name}/eviction"), &eviction).await;
        assert_eq!(reply.code, code, "{}", reply.body);
        let requests = world.take();
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(
            requests[0]["kind"],
            json!({"group": "policy", "version": "v1", "kind": "Eviction"})
        );
        assert_eq!(
            (&requests[0]["operation"], &requests[0]["subResource"]),
            (&json!("CREATE"), &json!("eviction"))
        );
        assert_eq!(requests[0]["object"]["kind"], "Eviction");
    }
    assert_eq!(admin.get(&format!("{PODS}/free")).await.code, 404);
}

#[tokio::test]
async fn scale_and_status_are_seen_as_what_they_are() {
    let world = World::new().await;
    let admin = world.admin();
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(admin.post(DEPLOYMENTS, &deployment).await.code, 201);
    world.serve("/cap", |request| {
        let wanted = request["object"]["spec"]["replicas"].as_i64().unwrap_or(0);
        if wanted > 3 {
            patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]))
        } else {
            allow()
        }
    });
    world.serve("/status", |_| {
        patch(json!([{"op": "add", "path": "/status/observedGeneration", "value": 7}, {"op": "add", "path": "/spec/replicas", "value": 50}]))
    });
    world
        .mutating("cap", "/cap", rule("apps", &["*/scale"], &["UPDATE"]), json!({}))
        .await;
    world
        .mutating(
            "status",
            "/status",
            rule("apps", &["deployments/status"], &["UPDATE"]),
            json!({}),
        )
        .await;
    let reply = admin
        .merge(
            &format!("{DEPLOYMENTS}/d/scale"),
            &json!({"spec": {"replicas": 9}}),
        )
        .await;
    assert_eq!(
        (reply.code, &reply.body["spec"]["replicas"]),
        (200, &json!(3)),
        "{}",
        reply.body
    );
    let request = &world.take()[0];
    assert_eq!(
        request["kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert_eq!(
        (&request["object"]["kind"], &request["oldObject"]["kind"]),
        (&json!("Scale"), &json!("Scale"))
    );
    assert_eq!(
        (
            &request["oldObject"]["spec"]["replicas"],
            &request["object"]["spec"]["replicas"]
        ),
        (&json!(1), &json!(9))
    );
    assert_eq!(
        (&request["subResource"], &request["options"]["kind"]),
        (&json!("scale"), &json!("UpdateOptions"))
    );
    let reply = admin
        .merge(
            &format!("{DEPLOYMENTS}/d/status"),
            &json!({"status": {"replicas": 1}}),
        )
        .await;
    assert_eq!(
        (reply.code, &reply.body["status"]["observedGeneration"]),
        (200, &json!(7)),
        "{}",
        reply.body
    );
    assert_eq!(
        reply.body["spec"]["replicas"], 3,
        "a status webhook cannot change the spec"
    );
    assert_eq!(world.take()[0]["kind"]["kind"], "Deployment");
}

#[tokio::test]
async fn another_version_of_a_resource_matches_and_is_converted() {
    for (policy, asked) in [("Equivalent", true), ("Exact", false)] {
        let world = World::new().await;
        let admin = world.admin();
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema}]}});
        assert_eq!(
            admin
                .post(
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                    &definition
                )
                .await
                .code,
            201
        );
        world.serve("/m", |request| {
            assert_eq!(request["object"]["apiVersion"], "example.com/v1");
            patch(json!([{"op": "replace", "path": "/spec/size", "value": 8}, {"op": "add", "path": "/spec/unknown", "value": 1}]))
        });
        let only_v1 = json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]});
        world
            .mutating("m", "/m", only_v1, json!({"matchPolicy": policy}))
            .await;
        let widget = json!({"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}});
        let reply = admin
            .post("/apis/example.com/v1beta1/namespaces/default/widgets", &widget)
            .await;
        assert_eq!(reply.code, 201, "{}", reply.body);
        assert_eq!(reply.body["apiVersion"], "example.com/v1beta1");
        assert_eq!(
            reply.body["spec"],
            if asked {
                json!({"size": 8})
            } else {
                json!({"size": 3})
            }
        );
        let requests = world.take();
        assert_eq!(requests.len(), usize::from(asked));
        if let Some(request) = requests.first() {
            assert_eq!(
                (&request["kind"]["version"], &request["requestKind"]["version"]),
                (&json!("v1"), &json!("v1beta1"))
            );
            assert_eq!(
                (
                    &request["resource"]["version"],
                    &request["requestResource"]["version"]
                ),
                (&json!("v1"), &json!("v1beta1"))
            );
        }
    }
}

#[tokio::test]
async fn scope_and_namespaces_themselves() {
    let world = World::new().await;
    world.serve("/v", |_| allow());
    let scoped = |scope: &str| json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "operations": ["CREATE"], "scope": scope});
    world
        .validating("cluster", "/v", scoped("Cluster"), json!({}))
        .await;
    let admin = world.admin();
    assert_eq!(admin.post(MAPS, &map("x")).await.code, 201);
    assert!(world.take().is_empty());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}});
    assert_eq!(admin.post("/api/v1/namespaces", &namespace).await.code, 201);
    let requests = world.take();
    assert_eq!((requests.len(), &requests[0]["namespace"]), (1, &json!("fresh")));
    let more = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "own"}}});
    world.validating("own", "/v", scoped("*"), more).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}});
    assert_eq!(admin.post("/api/v1/namespaces", &namespace).await.code, 201);
    // What the server puts into the new namespace by and by is asked about too.
    let about_itself = world
        .take()
        .iter()
        .filter(|request| request["kind"]["kind"] == "Namespace")
        .count();
    assert_eq!(about_itself, 2, "matched by its own labels");
}

#[tokio::test]
async fn creation_by_put_and_apply_is_a_creation() {
    let world = World::new().await;
    world.serve("/v", |_| allow());
    world
        .validating("v", "/v", rule("*", &["*"], &["CREATE"]), json!({}))
        .await;
    let admin = world.admin();
    let applied = admin
        .apply(&format!("{MAPS}/x?fieldManager=me&force=true"), &map("x"))
        .await;
    assert_eq!(applied.code, 201, "{}", applied.body);
    let request = &world.take()[0];
    assert_eq!(
        (&request["operation"], &request["oldObject"]),
        (&json!("CREATE"), &Value::Null)
    );
    assert_eq!(
        request["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );
    assert!(
        request["object"]["metadata"]["uid"].is_string(),
        "validating webhooks see the object as it is stored"
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    assert_eq!(
        admin
            .put("/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease)
            .await
            .code,
        201
    );
    assert_eq!(world.take()[0]["operation"], "CREATE");
}

#[tokio::test]
async fn made_up_names_come_after_mutation() {
    let world = World::new().await;
    world.serve("/m", |_| allow());
    world.serve("/v", |_| allow());
    world
        .mutating("m", "/m", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    world
        .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}});
    let reply = world.admin().post(MAPS, &body).await;
    assert_eq!(reply.code, 201);
    let requests = world.take();
    assert!(requests[0].get("name").is_none() && requests[0]["object"]["metadata"].get("name").is_none());
    assert_eq!(requests[1]["name"], reply.body["metadata"]["name"]);
}

#[tokio::test]
async fn configurations_are_never_asked_about() {
    let world = World::new().await;
    world.serve("/v", |_| json!({"allowed": false}));
    world
        .validating("v", "/v", rule("*", &["*/*"], &["*"]), json!({}))
        .await;
    let admin = world.admin();
    assert_eq!(admin.post(MAPS, &map("x")).await.code, 400);
    assert_eq!(
        admin
            .delete(&format!("{REGISTRATION}/validatingwebhookconfigurations/v"))
            .await
            .code,
        200
    );
    assert_eq!(admin.post(MAPS, &map("x")).await.code, 201);
}
