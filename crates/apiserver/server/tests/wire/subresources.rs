// SPDX-License-Identifier: Apache-2.0
//! Endpoints below objects, and kinds that are asked and never stored.

use std::time::Duration;

use crate::requests::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

/// A signing request for the name x, as openssl makes it; its key was thrown away.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmVEQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCQTZ6LzVlNHhqTmxrUnc0WE03aTR1aGw3OVlnc0tPbUZoQ3R6NHd4eklXNlF3OXhZZTRSQTM4NHZtN3pNMi9sCmd2ajQyQnplQjl3bTJHNUExYU1sUTBDZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpQkMrT2dORkxJckdPT0oKVmFTaGFTV0hOU0ZrNzdyRFR4VGdjaEdWd25MZW5RSWhBT2ZXTmZkdVU5c28zdStjenpzOGRCNG13V1dwa09MeQpJNTZrS1R2NDlCUlIKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

#[tokio::test]
async fn status_and_spec_keep_out_of_each_other_s_way() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let d = format!("{DEPLOYMENTS}/d");
    let mut object = admin.get(&d).await.body;
    object["spec"]["replicas"] = json!(50);
    object["status"] = json!({"replicas": 4, "readyReplicas": 4, "observedGeneration": 1});
    object["metadata"]["labels"] = json!({"n": "l"});
    object["metadata"]["annotations"] = json!({"n": "a"});
    let reply = admin.put(&format!("{d}/status"), &object).await;
    assert_eq!(
        (
            reply.code,
            &reply.body["spec"]["replicas"],
            &reply.body["status"]["replicas"]
        ),
        (200, &json!(1), &json!(4))
    );
    assert_eq!(
        (
            &reply.body["metadata"]["labels"],
            &reply.body["metadata"]["generation"]
        ),
        (&Value::Null, &json!(1))
    );
    assert_eq!(
        reply.body["metadata"]["annotations"],
        json!({"n": "a"}),
        "annotations go along"
    );
    let reply = admin
        .merge(&d, &json!({"spec": {"paused": true}, "status": {"replicas": 9}}))
        .await;
    assert_eq!(
        (
            &reply.body["status"]["replicas"],
            &reply.body["metadata"]["generation"]
        ),
        (&json!(4), &json!(2))
    );
    let reply = admin
        .merge(&format!("{d}/status"), &json!({"status": {"replicas": -1}}))
        .await;
    assert_eq!(
        (reply.code, causes(&reply)[0].0.as_str()),
        (422, "status.replicas")
    );
    assert_eq!(admin.get(&format!("{d}/status")).await.body["kind"], "Deployment");
    made(&admin, DEFINITIONS, &widgets()).await;
    let mut object = widget("w", 1);
    object["status"] = json!({"phase": "x"});
    assert_eq!(
        made(&admin, WIDGETS, &object).await["status"],
        Value::Null,
        "status is dropped at creation"
    );
    let reply = admin
        .merge(
            &format!("{WIDGETS}/w/status"),
            &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 7}, "status": {"phase": "y"}}),
        )
        .await;
    assert_eq!(
        (
            &reply.body["spec"]["size"],
            &reply.body["status"]["phase"],
            &reply.body["metadata"]["labels"]
        ),
        (&json!(1), &json!("y"), &Value::Null)
    );
}

fn scale(name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn scales() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let parent = made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let got = admin.get(&path).await;
    let metadata = json!({"name": "d", "namespace": "default", "uid": parent["metadata"]["uid"],
        "resourceVersion": version(&parent), "creationTimestamp": parent["metadata"]["creationTimestamp"]});
    assert_eq!(
        got.body,
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": 1}, "status": {"replicas": 0, "selector": "a=b"}})
    );
    assert_eq!(admin.put(&path, &scale("d", 3)).await.body["spec"]["replicas"], 3);
    assert_eq!(
        admin.merge(&path, &json!({"spec": {"replicas": 5}})).await.body["spec"]["replicas"],
        5
    );
    assert_eq!(
        admin
            .json_patch(
                &path,
                &json!([{"op": "replace", "path": "/spec/replicas", "value": 7}])
            )
            .await
            .body["spec"]["replicas"],
        7
    );
    assert_eq!(
        admin
            .put(&format!("{path}?dryRun=All"), &scale("d", 99))
            .await
            .body["spec"]["replicas"],
        99
    );
    let parent = admin.get(&format!("{DEPLOYMENTS}/d")).await.body;
    assert_eq!(
        (&parent["spec"]["replicas"], &parent["metadata"]["generation"]),
        (&json!(7), &json!(4))
    );
    let managers = parent["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        managers.iter().any(|m| m["subresource"] == "scale"),
        "{managers:?}"
    );
    let negative = "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    let details = json!({"group": "autoscaling", "kind": "Scale", "name": "d", "causes": [
        cause("FieldValueInvalid", "spec.replicas", "Invalid value: -1: must be greater than or equal to 0")]});
    assert_eq!(
        admin.put(&path, &scale("d", -1)).await.body,
        failure(422, "Invalid", negative, Some(details))
    );
    let mut other = scale("d", 1);
    other["metadata"]["namespace"] = json!("other");
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(
        admin.put(&path, &other).await.body,
        failure(400, "BadRequest", namespace, None)
    );
    assert_eq!(
        admin.put(&path, &scale("q", 1)).await.message(),
        "the name of the object (q) does not match the name on the URL (d)"
    );
    let mut stale = scale("d", 1);
    stale["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(admin.put(&path, &stale).await.reason(), "Conflict");
    assert_eq!(
        admin
            .put(&format!("{DEPLOYMENTS}/none/scale"), &scale("none", 1))
            .await
            .message(),
        "deployments.apps \"none\" not found"
    );
}

#[tokio::test]
async fn replicas_nobody_owns_were_there_before_the_first_apply() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let parent = format!("{DEPLOYMENTS}/d");
    admin
        .apply(&format!("{parent}?fieldManager=alpha"), &deployment("d"))
        .await;
    let path = format!("{parent}/scale?fieldManager=scaler");
    let refused = admin.apply(&path, &scale("d", 4)).await;
    assert_eq!(
        refused.message(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: .spec.replicas"
    );
    let owners = async || {
        let object = admin.get(&parent).await.body;
        let entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
        let manager = |e: &Value| e["manager"].as_str().unwrap().to_owned();
        entries.iter().map(manager).collect::<Vec<_>>()
    };
    assert_eq!(admin.apply(&path, &scale("d", 1)).await.code, 200);
    assert_eq!(owners().await, ["scaler", "alpha", "before-first-apply"]);
    let forced = admin.apply(&format!("{path}&force=true"), &scale("d", 4)).await;
    assert_eq!(forced.body["spec"]["replicas"], 4);
    assert_eq!(owners().await, ["scaler", "alpha"]);
}

fn binding(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": {"by": "me"}}, "target": {"kind": "Node", "name": node}})
}

#[tokio::test]
async fn pods_are_bound_once() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, PODS, &pod("p")).await;
    let path = format!("{PODS}/p/binding");
    let done = admin.post(&path, &binding("p", "n1")).await;
    assert_eq!(
        done.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    );
    let bound = admin.get(&format!("{PODS}/p")).await.body;
    assert_eq!(
        (
            &bound["spec"]["nodeName"],
            &bound["metadata"]["annotations"]["by"]
        ),
        (&json!("n1"), &json!("me"))
    );
    let condition = bound["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap();
    assert_eq!(condition["status"], "True");
    let again = admin.post(&path, &binding("p", "n2")).await;
    let message =
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\"";
    assert_eq!(
        again.body,
        failure(
            409,
            "Conflict",
            message,
            Some(json!({"kind": "pods/binding", "name": "p"}))
        )
    );
    assert_eq!(
        admin
            .post(&format!("{PODS}/none/binding"), &binding("none", "n"))
            .await
            .message(),
        "pods \"none\" not found"
    );
    made(&admin, PODS, &pod("q")).await;
    assert_eq!(
        admin
            .post("/api/v1/namespaces/default/bindings", &binding("q", "n1"))
            .await
            .code,
        201
    );
    assert_eq!(
        admin.get(&format!("{PODS}/q")).await.body["spec"]["nodeName"],
        "n1"
    );
}

async fn running(admin: &Caller, name: &str) {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!("n1");
    made(admin, PODS, &object).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(
        admin.merge(&format!("{PODS}/{name}/status"), &ready).await.code,
        200
    );
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}})
}

fn budget(name: &str, min: i64) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": min, "selector": {"matchLabels": {"app": "x"}}}})
}

/// Waits until the budget's status is about its present form.
async fn settled(admin: &Caller, name: &str, healthy: i64) -> Value {
    for _ in 0..6_000 {
        let found = admin.get(&format!("{BUDGETS}/{name}")).await.body;
        if found["status"]["observedGeneration"] == found["metadata"]["generation"]
            && found["status"]["currentHealthy"] == healthy
        {
            return found["status"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "the budget never settled: {}",
        admin.get(&format!("{BUDGETS}/{name}")).await.body
    );
}

#[tokio::test]
async fn evictions_ask_the_budget() {
    let server = TestServer::start().await;
    let admin = server.admin();
    running(&admin, "e1").await;
    running(&admin, "e2").await;
    made(&admin, BUDGETS, &budget("b", 2)).await;
    let status = settled(&admin, "b", 2).await;
    assert_eq!(
        (
            &status["desiredHealthy"],
            &status["expectedPods"],
            &status["disruptionsAllowed"]
        ),
        (&json!(2), &json!(2), &json!(0))
    );
    let refused = admin.post(&format!("{PODS}/e1/eviction"), &eviction("e1")).await;
    assert_eq!((refused.code, refused.reason()), (429, "TooManyRequests"));
    assert_eq!(
        refused.message(),
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let why = json!([{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods and has 2 currently"}]);
    assert_eq!(refused.body["details"]["causes"], why);
    assert_eq!(
        admin
            .merge(&format!("{BUDGETS}/b"), &json!({"spec": {"minAvailable": 1}}))
            .await
            .code,
        200
    );
    let status = settled(&admin, "b", 2).await;
    assert_eq!(status["disruptionsAllowed"], 1);
    let dry = admin
        .post(&format!("{PODS}/e1/eviction?dryRun=All"), &eviction("e1"))
        .await;
    assert_eq!(dry.code, 201);
    assert_eq!(
        admin.get(&format!("{BUDGETS}/b")).await.body["status"]["disruptionsAllowed"],
        1,
        "a dry run spends nothing"
    );
    let done = admin.post(&format!("{PODS}/e1/eviction"), &eviction("e1")).await;
    assert_eq!(
        done.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    );
    assert!(admin.get(&format!("{PODS}/e1")).await.body["metadata"]["deletionTimestamp"].is_string());
    let second = admin.post(&format!("{PODS}/e2/eviction"), &eviction("e2")).await;
    assert_eq!(second.code, 429, "{}", second.body);
}

#[tokio::test]
async fn evictions_without_a_say_for_budgets() {
    let server = TestServer::start().await;
    let admin = server.admin();
    running(&admin, "e").await;
    assert_eq!(
        admin
            .post(&format!("{PODS}/none/eviction"), &eviction("none"))
            .await
            .message(),
        "pods \"none\" not found"
    );
    let wrong = admin.post(&format!("{PODS}/e/eviction"), &eviction("zz")).await;
    assert_eq!(
        wrong.body,
        failure(
            400,
            "BadRequest",
            "name in URL does not match name in Eviction object",
            None
        )
    );
    let mut pinned = eviction("e");
    pinned["deleteOptions"] = json!({"preconditions": {"uid": "x"}});
    assert_eq!(
        admin.post(&format!("{PODS}/e/eviction"), &pinned).await.reason(),
        "Conflict"
    );
    assert_eq!(
        admin
            .post(&format!("{PODS}/e/eviction"), &eviction("e"))
            .await
            .code,
        201,
        "no budget, no question"
    );
    made(&admin, PODS, &pod("pending")).await;
    for name in ["b1", "b2"] {
        made(&admin, BUDGETS, &budget(name, 1)).await;
    }
    running(&admin, "f").await;
    assert_eq!(
        admin
            .post(&format!("{PODS}/pending/eviction"), &eviction("pending"))
            .await
            .code,
        201,
        "what does not run is not protected"
    );
    let two = admin.post(&format!("{PODS}/f/eviction"), &eviction("f")).await;
    assert_eq!(two.code, 500);
    assert!(two.message().contains(
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    ));
}

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

fn token_request(spec: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

#[tokio::test]
async fn tokens_for_accounts() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (spec, why) in [
        (
            json!({"expirationSeconds": 100}),
            "Invalid value: 100: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"expirationSeconds": 8_589_934_592_i64}),
            "Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds",
        ),
    ] {
        let reply = admin.post(TOKEN, &token_request(spec)).await;
        let details = json!({"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": [cause("FieldValueInvalid", "spec.expirationSeconds", why)]});
        let message =
            format!("TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: {why}");
        assert_eq!(reply.body, failure(422, "Invalid", &message, Some(details)));
    }
    let missing = admin
        .post(
            &TOKEN.replace("/default/token", "/none/token"),
            &token_request(json!({})),
        )
        .await;
    assert_eq!(missing.message(), "serviceaccounts \"none\" not found");
    let reply = admin
        .post(
            TOKEN,
            &token_request(json!({"audiences": ["aud"], "expirationSeconds": 700})),
        )
        .await;
    assert_eq!(
        (
            reply.code,
            &reply.body["kind"],
            &reply.body["spec"]["expirationSeconds"]
        ),
        (201, &json!("TokenRequest"), &json!(700))
    );
    let token = reply.body["status"]["token"].as_str().unwrap();
    let review =
        |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let known = admin
        .post(
            path,
            &review(json!({"token": token, "audiences": ["aud", "other"]})),
        )
        .await;
    assert_eq!(
        (
            known.code,
            &known.body["status"]["authenticated"],
            &known.body["status"]["audiences"]
        ),
        (201, &json!(true), &json!(["aud"]))
    );
    assert_eq!(
        known.body["status"]["user"]["username"],
        "system:serviceaccount:default:default"
    );
    assert_eq!(
        known.body["status"]["user"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    for spec in [json!({"token": token}), json!({"token": "x"})] {
        let reply = admin.post(path, &review(spec)).await;
        assert_eq!(
            (reply.code, &reply.body["status"]["authenticated"]),
            (201, &Value::Null)
        );
        assert!(reply.body["status"]["error"].is_string());
    }
    let empty = admin.post(path, &review(json!({"token": ""}))).await;
    assert_eq!(
        empty.body,
        failure(
            400,
            "BadRequest",
            "token is required for TokenReview in authentication",
            None
        )
    );
}

#[tokio::test]
async fn reviews_of_access() {
    let server = TestServer::start_with_rbac().await;
    let bob = server.as_user("bob", &[]);
    let admin = server.admin();
    let base = "/apis/authorization.k8s.io/v1";
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    for (caller, allowed) in [(&admin, true), (&bob, false)] {
        let reply = caller
            .post(
                &format!("{base}/selfsubjectaccessreviews"),
                &review("SelfSubjectAccessReview", json!({"resourceAttributes": pods})),
            )
            .await;
        assert_eq!(
            (reply.code, &reply.body["status"]["allowed"]),
            (201, &json!(allowed))
        );
    }
    let path = json!({"nonResourceAttributes": {"path": "/version", "verb": "get"}});
    let reply = bob
        .post(
            &format!("{base}/selfsubjectaccessreviews"),
            &review("SelfSubjectAccessReview", path),
        )
        .await;
    assert_eq!(reply.body["status"]["allowed"], true, "{}", reply.body);
    for (resource, kind, spec, field) in [
        (
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            json!({}),
            "spec.resourceAttributes",
        ),
        (
            "subjectaccessreviews",
            "SubjectAccessReview",
            json!({"resourceAttributes": pods}),
            "spec.user",
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            json!({"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}),
            "spec.resourceAttributes.namespace",
        ),
    ] {
        let reply = admin
            .post(&format!("{base}/{resource}"), &review(kind, spec))
            .await;
        assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{resource}");
        assert_eq!(causes(&reply)[0].0, field, "{resource}: {}", reply.body);
    }
    let rules = bob
        .post(
            &format!("{base}/selfsubjectrulesreviews"),
            &review("SelfSubjectRulesReview", json!({"namespace": "default"})),
        )
        .await;
    assert_eq!(
        (rules.code, &rules.body["status"]["incomplete"]),
        (201, &json!(false))
    );
    let me = bob
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        )
        .await;
    assert_eq!(
        (me.code, &me.body["status"]["userInfo"]["username"]),
        (201, &json!("bob"))
    );
}

#[tokio::test]
async fn forbidden_is_said_before_anything_is_read() {
    let server = TestServer::start_with_rbac().await;
    let bob = server.as_user("bob", &[]);
    for (method, path, message, details) in [
        (
            "GET",
            "/api/v1/namespaces/n/configmaps",
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"n\"",
            json!({"kind": "configmaps"}),
        ),
        (
            "GET",
            "/api/v1/namespaces/n/secrets/x",
            "secrets \"x\" is forbidden: User \"bob\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"",
            json!({"kind": "secrets", "name": "x"}),
        ),
        (
            "GET",
            "/api/v1/nodes",
            "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
            json!({"kind": "nodes"}),
        ),
        (
            "PUT",
            "/apis/apps/v1/namespaces/n/deployments/d/status",
            "deployments.apps \"d\" is forbidden: User \"bob\" cannot update resource \"deployments/status\" in API group \"apps\" in the namespace \"n\"",
            json!({"group": "apps", "kind": "deployments", "name": "d"}),
        ),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/n/deployments",
            "deployments.apps is forbidden: User \"bob\" cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"n\"",
            json!({"group": "apps", "kind": "deployments"}),
        ),
        (
            "GET",
            "/apis/nope/v1/foos",
            "foos.nope is forbidden: User \"bob\" cannot list resource \"foos\" in API group \"nope\" at the cluster scope",
            json!({"group": "nope", "kind": "foos"}),
        ),
    ] {
        let reply = call(&bob, method, path, "application/json", "").await;
        assert_eq!(
            reply.body,
            failure(403, "Forbidden", message, Some(details)),
            "{method} {path}"
        );
    }
    let path = bob.get("/metrics").await;
    assert_eq!(
        (path.code, path.message()),
        (403, "forbidden: User \"bob\" cannot get path \"/metrics\"")
    );
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_goes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut running = pod("p");
    running["spec"]["nodeName"] = json!("n");
    made(&admin, PODS, &running).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let reply = admin.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let leaving = admin.get(&format!("{PODS}/p")).await.body;
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    let condition = leaving["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == "DisruptionTarget"))
        .cloned()
        .unwrap_or_default();
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (
            &json!("True"),
            &json!("EvictionByEvictionAPI"),
            &json!("Eviction API: evicting")
        )
    );
}

#[tokio::test]
async fn a_signing_request_names_who_asked() {
    let server = TestServer::start().await;
    let admin = server.as_user("alice", &["system:masters", "team"]);
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"},
        "spec": {"signerName": "example.com/s", "usages": ["client auth"], "username": "mallory", "uid": "0",
            "request": CSR}});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let reply = admin.post(path, &request).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    let spec = &reply.body["spec"];
    assert_eq!(
        (&spec["username"], &spec["groups"], spec.get("uid")),
        (
            &json!("alice"),
            &json!(["system:masters", "team", "system:authenticated"]),
            None
        )
    );
}
