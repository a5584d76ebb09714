// SPDX-License-Identifier: Apache-2.0
//! Admission webhooks served inside the process: what their answers do.

use std::sync::Arc;

use crate::hooks::{MAPS, REGISTRATION, World, annotate, map, patch, rule};
use cobaltcore_apiserver::WebhookHandler;
use futures::FutureExt;
use serde_json::{Value, json};

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
