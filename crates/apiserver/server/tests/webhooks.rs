// SPDX-License-Identifier: Apache-2.0
//! Admission webhooks served inside the process: which requests they are asked about, what they are
//! told, and what their answers do.

use std::sync::{Arc, Mutex};

use base64::Engine;
use cobaltcore_apiserver::WebhookHandler;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use futures::FutureExt;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Reviews a webhook was sent.
type Seen = Arc<Mutex<Vec<Value>>>;

/// A server with one webhook service, and what its webhooks saw.
struct World {
    server: TestServer,
    seen: Seen,
}

impl World {
    async fn new() -> Self {
        Self {
            server: TestServer::start_with_rbac().await,
            seen: Seen::default(),
        }
    }

    fn admin(&self) -> Caller {
        self.server.admin()
    }

    /// Serves `/path` of the service hooks/test; `respond` turns a request into a response.
    fn serve(&self, path: &str, respond: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        let seen = self.seen.clone();
        let handler: WebhookHandler = Arc::new(move |review: Value| {
            let mut response = respond(&review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            seen.lock().unwrap().push(review);
            async move {
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            }
            .boxed()
        });
        self.server
            .server()
            .register_webhook("hooks", "test", path, handler);
    }

    /// Installs a configuration with one webhook that calls `path`.
    async fn configure(&self, kind: &str, name: &str, path: &str, rule: Value, more: Value) -> Reply {
        let mut hook = json!({
            "name": format!("{name}.hooks.example"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "hooks", "name": "test", "path": path}}, "rules": [rule],
        });
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            hook[key] = value;
        }
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [hook]});
        let plural = format!("{}s", kind.to_lowercase());
        self.admin()
            .post(&format!("{REGISTRATION}/{plural}"), &body)
            .await
    }

    async fn mutating(&self, name: &str, path: &str, rule: Value, more: Value) {
        let reply = self
            .configure("MutatingWebhookConfiguration", name, path, rule, more)
            .await;
        assert_eq!(reply.code, 201, "{}", reply.body);
    }

    async fn validating(&self, name: &str, path: &str, rule: Value, more: Value) {
        let reply = self
            .configure("ValidatingWebhookConfiguration", name, path, rule, more)
            .await;
        assert_eq!(reply.code, 201, "{}", reply.body);
    }

    /// The requests seen since the last look.
    fn take(&self) -> Vec<Value> {
        self.seen
            .lock()
            .unwrap()
            .drain(..)
            .map(|review| review["request"].clone())
            .collect()
    }
}

fn rule(groups: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({"apiGroups": [groups], "apiVersions": ["*"], "resources": resources, "operations": operations})
}

fn allow() -> Value {
    json!({"allowed": true})
}

fn patch(operations: Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patch": text, "patchType": "JSONPatch"})
}

fn annotate(key: &'static str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": format!("/metadata/annotations/{key}"), "value": value}]))
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {"a": "b"}}, "data": {"k": "v"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn a_mutation_is_stored_pruned_defaulted_and_owned_by_nobody() {
    let world = World::new().await;
    world.serve("/m", |_| {
        patch(json!([
            {"op": "add", "path": "/data/added", "value": "by webhook"},
            {"op": "add", "path": "/nonsense", "value": true},
            {"op": "add", "path": "/metadata/uid", "value": "not the webhook's to set"},
        ]))
    });
    world
        .mutating("m", "/m", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    let reply = world
        .admin()
        .post(
            &format!("{MAPS}?fieldManager=me&fieldValidation=Strict"),
            &map("x"),
        )
        .await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(reply.body["data"], json!({"k": "v", "added": "by webhook"}));
    assert!(reply.body.get("nonsense").is_none());
    assert_ne!(reply.body["metadata"]["uid"], "not the webhook's to set");
    let owned = &reply.body["metadata"]["managedFields"][0]["fieldsV1"]["f:data"];
    assert!(
        owned.get("f:k").is_some() && owned.get("f:added").is_none(),
        "{owned}"
    );
    let request = &world.take()[0];
    assert_eq!(
        request["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "configmaps"})
    );
    assert_eq!(request["requestKind"], request["kind"]);
    assert_eq!(request["requestResource"], request["resource"]);
    assert_eq!(
        (&request["name"], &request["namespace"]),
        (&json!("x"), &json!("default"))
    );
    assert_eq!(
        (&request["operation"], &request["dryRun"]),
        (&json!("CREATE"), &json!(false))
    );
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["oldObject"], Value::Null);
    assert!(request.get("subResource").is_none());
    assert_eq!(request["object"]["data"], json!({"k": "v"}));
    assert!(
        request["object"]["metadata"].get("uid").is_none(),
        "not stamped yet"
    );
    assert_eq!(request["object"]["metadata"]["managedFields"][0]["manager"], "me");
    assert_eq!(
        request["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict"})
    );
}

#[tokio::test]
async fn a_denial_passes_the_webhooks_status_through() {
    let world = World::new().await;
    world.serve("/v", |request| match request["name"].as_str().unwrap_or_default() {
        "full" => json!({"allowed": false, "warnings": ["look out"],
            "status": {"code": 409, "reason": "Conflict", "message": "no room", "details": {"name": "full", "retryAfterSeconds": 7}}}),
        "reason" => json!({"allowed": false, "status": {"reason": "Because"}}),
        "low" => json!({"allowed": false, "status": {"code": 200, "status": "Success", "message": "hm"}}),
        _ => json!({"allowed": false}),
    });
    world
        .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    let by = "admission webhook \"v.hooks.example\" denied the request";
    let full = world.admin().post(MAPS, &map("full")).await;
    assert_eq!(
        (full.code, full.message()),
        (409, format!("{by}: no room").as_str())
    );
    assert_eq!(
        (full.reason(), &full.body["status"]),
        ("Conflict", &json!("Failure"))
    );
    assert_eq!(
        full.body["details"],
        json!({"name": "full", "retryAfterSeconds": 7})
    );
    assert!(
        full.warnings().iter().any(|w| w.contains("look out")),
        "{:?}",
        full.warnings()
    );
    let reason = world.admin().post(MAPS, &map("reason")).await;
    assert_eq!(
        (reason.code, reason.message(), reason.reason()),
        (400, format!("{by}: Because").as_str(), "Because")
    );
    let low = world.admin().post(MAPS, &map("low")).await;
    assert_eq!(
        (low.code, low.message(), &low.body["status"]),
        (400, format!("{by}: hm").as_str(), &json!("Failure"))
    );
    let plain = world.admin().post(MAPS, &map("plain")).await;
    assert_eq!(
        (plain.code, plain.message()),
        (400, format!("{by} without explanation").as_str())
    );
    assert!(plain.body.get("reason").is_none(), "{}", plain.body);
    assert_eq!(
        world.admin().get(&format!("{MAPS}/full")).await.code,
        404,
        "nothing was stored"
    );
}

#[tokio::test]
async fn configurations_count_from_their_commit_on_and_in_the_order_of_their_names() {
    let world = World::new().await;
    for step in ["a", "b", "c"] {
        world.serve(&format!("/{step}"), move |request| {
            let so_far = request["object"]["data"]["steps"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            patch(json!([{"op": "add", "path": "/data/steps", "value": format!("{so_far}{step}")}]))
        });
    }
    for step in ["c", "a", "b"] {
        world
            .mutating(
                step,
                &format!("/{step}"),
                rule("", &["configmaps"], &["*"]),
                json!({}),
            )
            .await;
    }
    let reply = world.admin().post(MAPS, &map("x")).await;
    assert_eq!(reply.body["data"]["steps"], "abc");
    let gone = world
        .admin()
        .delete(&format!("{REGISTRATION}/mutatingwebhookconfigurations/b"))
        .await;
    assert_eq!(gone.code, 200);
    let reply = world.admin().post(MAPS, &map("y")).await;
    assert_eq!(reply.body["data"]["steps"], "ac");
}

#[tokio::test]
async fn an_earlier_webhook_is_called_again_when_a_later_one_changed_the_object() {
    for (policy, calls) in [("IfNeeded", 2), ("Never", 1)] {
        let world = World::new().await;
        world.serve("/count", |request| {
            let keys = request["object"]["data"]
                .as_object()
                .map_or(0, serde_json::Map::len);
            patch(json!([{"op": "add", "path": "/metadata/annotations/keys", "value": keys.to_string()}]))
        });
        world.serve("/add", |_| {
            patch(json!([{"op": "add", "path": "/data/late", "value": "x"}]))
        });
        let more = json!({"reinvocationPolicy": policy});
        world
            .mutating(
                "a-count",
                "/count",
                rule("", &["configmaps"], &["CREATE"]),
                more.clone(),
            )
            .await;
        world
            .mutating("b-add", "/add", rule("", &["configmaps"], &["CREATE"]), more)
            .await;
        let reply = world.admin().post(MAPS, &map("x")).await;
        assert_eq!(reply.code, 201, "{}", reply.body);
        let counting = world
            .take()
            .iter()
            .filter(|r| r["object"]["data"].get("late").is_none())
            .count();
        assert_eq!(counting, 2, "both once without the late key");
        let keys = reply.body["metadata"]["annotations"]["keys"].as_str().unwrap();
        assert_eq!(keys, if calls == 2 { "2" } else { "1" }, "{policy}");
    }
}

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
async fn dry_runs_are_told_and_store_nothing() {
    let world = World::new().await;
    world.serve("/m", |_| annotate("seen", "yes"));
    world
        .mutating(
            "m",
            "/m",
            rule("", &["configmaps"], &["CREATE"]),
            json!({"sideEffects": "NoneOnDryRun"}),
        )
        .await;
    let reply = world.admin().post(&format!("{MAPS}?dryRun=All"), &map("x")).await;
    assert_eq!(
        (reply.code, &reply.body["metadata"]["annotations"]["seen"]),
        (201, &json!("yes")),
        "{}",
        reply.body
    );
    let request = &world.take()[0];
    assert_eq!(
        (&request["dryRun"], &request["options"]["dryRun"]),
        (&json!(true), &json!(["All"]))
    );
    assert_eq!(world.admin().get(&format!("{MAPS}/x")).await.code, 404);
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
async fn a_repeated_deletion_is_not_asked_about() {
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
    assert_eq!(world.take().len(), 1);
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
        (&json!("scale"), &json!("PatchOptions"))
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
    assert_eq!(world.take().len(), 2, "matched by its own labels");
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
async fn answers_that_do_not_fit_are_failed_calls() {
    for (path, response, text) in [
        (
            "/uid",
            json!({"uid": "other", "allowed": true}),
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "/patch",
            json!({"allowed": true, "patch": "W10="}),
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
        (
            "/junk",
            json!({"allowed": true, "patch": "e30=", "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response",
        ),
        (
            "/type",
            json!({"allowed": true, "patch": "W3t9XQ==", "patchType": "Other"}),
            "unsupported patch type \"Other\"",
        ),
    ] {
        for (policy, code) in [("Fail", 500), ("Ignore", 201)] {
            let world = World::new().await;
            let answer = response.clone();
            world.serve(path, move |_| answer.clone());
            world
                .mutating(
                    "m",
                    path,
                    rule("", &["configmaps"], &["CREATE"]),
                    json!({"failurePolicy": policy}),
                )
                .await;
            let reply = world.admin().post(MAPS, &map("x")).await;
            assert_eq!(reply.code, code, "{path} {policy}: {}", reply.body);
            if policy == "Fail" {
                let begin = "Internal error occurred: failed calling webhook \"m.hooks.example\": ";
                assert!(
                    reply.message().starts_with(&format!("{begin}{text}")),
                    "{}",
                    reply.body
                );
                assert_eq!(reply.reason(), "InternalError");
            }
        }
    }
}

#[tokio::test]
async fn a_patch_that_does_not_apply_is_the_servers_refusal_whatever_the_policy() {
    let world = World::new().await;
    world.serve("/m", |_| patch(json!([{"op": "remove", "path": "/data/absent"}])));
    world
        .mutating(
            "m",
            "/m",
            rule("", &["configmaps"], &["CREATE"]),
            json!({"failurePolicy": "Ignore"}),
        )
        .await;
    assert_eq!(world.admin().post(MAPS, &map("x")).await.code, 500);
}

#[tokio::test]
async fn what_webhooks_made_is_validated() {
    let world = World::new().await;
    world.serve("/m", |_| {
        patch(json!([{"op": "add", "path": "/data/bad key", "value": "x"}]))
    });
    world
        .mutating(
            "m",
            "/m",
            rule("", &["configmaps"], &["CREATE", "UPDATE"]),
            json!({}),
        )
        .await;
    let reply = world.admin().post(MAPS, &map("x")).await;
    assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{}", reply.body);
    assert_eq!(reply.body["details"]["causes"][0]["field"], "data[bad key]");
}

#[tokio::test]
async fn reviews_and_configurations_are_never_asked_about() {
    let world = World::new().await;
    world.serve("/v", |_| json!({"allowed": false}));
    world
        .validating("v", "/v", rule("*", &["*/*"], &["*"]), json!({}))
        .await;
    let admin = world.admin();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    assert_eq!(
        admin
            .post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
            .await
            .code,
        201
    );
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

#[tokio::test]
async fn a_webhook_may_write_while_it_is_asked() {
    let world = World::new().await;
    let admin = world.admin();
    let inner = world.admin();
    let handler: WebhookHandler = Arc::new(move |review: Value| {
        let inner = inner.clone();
        async move {
            let request = &review["request"];
            if request["name"] == "outer" {
                let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "inner"}, "spec": {"ports": [{"port": 80}]}});
                assert_eq!(inner.post("/api/v1/namespaces/default/services", &service).await.code, 201);
            }
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": request["uid"], "allowed": true}})
        }
        .boxed()
    });
    world
        .server
        .server()
        .register_webhook("hooks", "test", "/v", handler);
    world
        .validating(
            "v",
            "/v",
            rule("", &["services"], &["CREATE"]),
            json!({"timeoutSeconds": 5}),
        )
        .await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "outer"}, "spec": {"ports": [{"port": 80}]}});
    let reply = admin.post("/api/v1/namespaces/default/services", &service).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let other = admin.get("/api/v1/namespaces/default/services/inner").await;
    assert_ne!(reply.body["spec"]["clusterIP"], other.body["spec"]["clusterIP"]);
}

#[tokio::test]
async fn a_handler_that_panics_is_a_failed_call() {
    let world = World::new().await;
    let handler: WebhookHandler = Arc::new(|_| async { panic!("a test wants this") }.boxed());
    world
        .server
        .server()
        .register_webhook("hooks", "test", "/v", handler);
    world
        .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), json!({}))
        .await;
    let reply = world.admin().post(MAPS, &map("x")).await;
    assert_eq!(reply.code, 500);
    assert!(reply.message().contains("failed calling webhook \"v.hooks.example\": failed to call webhook: Post \"https://test.hooks.svc:443/v?timeout=10s\""), "{}", reply.body);
    let metrics = world.admin().get("/metrics").await;
    assert_eq!(metrics.code, 200);
}

#[tokio::test]
async fn services_without_a_place_are_unreachable() {
    let world = World::new().await;
    let admin = world.admin();
    let elsewhere =
        json!({"clientConfig": {"service": {"namespace": "default", "name": "lost"}}, "timeoutSeconds": 2});
    world
        .validating("v", "/v", rule("", &["configmaps"], &["CREATE"]), elsewhere)
        .await;
    let reply = admin.post(MAPS, &map("x")).await;
    assert!(
        reply.message().ends_with("service \"lost\" not found"),
        "{}",
        reply.body
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lost"}, "spec": {"ports": [{"port": 443}]}});
    assert_eq!(
        admin
            .post("/api/v1/namespaces/default/services", &service)
            .await
            .code,
        201
    );
    let reply = admin.post(MAPS, &map("x")).await;
    assert!(
        reply
            .message()
            .ends_with("no endpoints available for service \"lost\""),
        "{}",
        reply.body
    );
}
