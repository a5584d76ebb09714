// SPDX-License-Identifier: Apache-2.0
//! Definitions whose versions only a webhook can translate: every way in and out goes through it,
//! and when it fails nothing is passed off as converted.

use std::sync::Arc;

use cobaltcore_apiserver::WebhookHandler;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::words::*;

const OLD: &str = "/apis/example.com/v1/namespaces/default/widgets";
const NEW: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// v1 has `spec.hostPort: "host:port"`, v2 has `spec.host` and `spec.port`. v2 is stored.
fn translate(object: &Value, wanted: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = json!(wanted);
    let spec = &object["spec"];
    out["spec"] = if wanted.ends_with("/v2") {
        let (host, port) = spec["hostPort"].as_str().unwrap_or(":").split_once(':').unwrap();
        json!({"host": host, "port": port})
    } else {
        let part = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
        json!({"hostPort": format!("{}:{}", part("host"), part("port"))})
    };
    out
}

fn converter() -> WebhookHandler {
    Arc::new(|review: Value| {
        let request = review["request"].clone();
        let wanted = request["desiredAPIVersion"].as_str().unwrap().to_owned();
        let objects: Vec<Value> = request["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| translate(o, &wanted))
            .collect();
        let broken = objects
            .iter()
            .any(|o| o["metadata"]["annotations"]["broken"] == "yes");
        let result = if broken {
            json!({"status": "Failed", "message": "cannot translate this"})
        } else {
            json!({"status": "Success"})
        };
        async move {
            json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview",
                "response": {"uid": request["uid"], "result": result, "convertedObjects": objects}})
        }
        .boxed()
    })
}

fn version(name: &str, storage: bool, fields: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "selectableFields": fields.as_object().unwrap().keys().map(|f| json!({"jsonPath": format!(".spec.{f}")})).collect::<Vec<_>>(),
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
}

fn crd(client: Value) -> Value {
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    crd["spec"]["versions"] = json!([
        version("v1", false, json!({"hostPort": {"type": "string"}})),
        version(
            "v2",
            true,
            json!({"host": {"type": "string"}, "port": {"type": "string"}})
        ),
    ]);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}});
    crd
}

async fn world() -> (TestServer, Caller) {
    let server = TestServer::start().await;
    server
        .server()
        .register_webhook("hooks", "convert", "/convert", converter());
    let admin = server.admin();
    let service = json!({"service": {"namespace": "hooks", "name": "convert", "path": "/convert"}});
    install(&admin, &crd(service)).await;
    (server, admin)
}

#[tokio::test]
async fn both_versions_show_the_same_object() {
    let (_server, admin) = world().await;
    let made = create(&admin, OLD, &widget("w", json!({"hostPort": "a:1"}))).await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v1"), &json!({"hostPort": "a:1"}))
    );
    let stored = admin.get(&format!("{NEW}/w")).await.body;
    assert_eq!(
        (&stored["apiVersion"], &stored["spec"]),
        (&json!("example.com/v2"), &json!({"host": "a", "port": "1"}))
    );
    assert_eq!(uid(&made), uid(&stored));
    assert_eq!(rv(&made), rv(&stored));
    let list = admin.get(OLD).await.body;
    assert_eq!(list["items"][0]["spec"], json!({"hostPort": "a:1"}));
    let selected = admin
        .get(&format!("{OLD}?fieldSelector=spec.hostPort%3Da:1"))
        .await
        .body;
    assert_eq!(names(&selected), ["w"]);
    let none = admin
        .get(&format!("{OLD}?fieldSelector=spec.hostPort%3Db:1"))
        .await
        .body;
    assert_eq!(names(&none), Vec::<&str>::new());
}

#[tokio::test]
async fn changes_go_through_either_version() {
    let (_server, admin) = world().await;
    create(&admin, OLD, &widget("w", json!({"hostPort": "a:1"}))).await;
    let patched = admin
        .merge(&format!("{OLD}/w"), &json!({"spec": {"hostPort": "b:2"}}))
        .await;
    assert_eq!(
        (patched.code, &patched.body["spec"]),
        (200, &json!({"hostPort": "b:2"})),
        "{}",
        patched.body
    );
    let patched = admin
        .merge(&format!("{NEW}/w"), &json!({"spec": {"port": "3"}}))
        .await;
    assert_eq!(patched.body["spec"], json!({"host": "b", "port": "3"}));
    let before = admin.get(&format!("{OLD}/w")).await.body;
    assert_eq!(before["spec"], json!({"hostPort": "b:3"}));
    assert_eq!(before["metadata"]["generation"], 3);
    let mut again = before.clone();
    again["spec"]["hostPort"] = json!("c:3");
    let replaced = admin.put(&format!("{OLD}/w"), &again).await;
    assert_eq!(
        (replaced.code, &replaced.body["spec"]),
        (200, &json!({"hostPort": "c:3"})),
        "{}",
        replaced.body
    );
    let same = admin.put(&format!("{OLD}/w"), &replaced.body).await;
    assert_eq!(rv(&same.body), rv(&replaced.body), "nothing changed");
    let status = admin
        .merge(&format!("{OLD}/w/status"), &json!({"status": {"ok": true}}))
        .await;
    assert_eq!(status.code, 200, "{}", status.body);
    assert_eq!(admin.delete(&format!("{OLD}/w")).await.code, 200);
    gone(&admin, &format!("{NEW}/w")).await;
}

#[tokio::test]
async fn watches_show_the_version_they_asked_for() {
    let (_server, admin) = world().await;
    create(
        &admin,
        NEW,
        &json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"host": "a", "port": "1"}}),
    )
    .await;
    let mut events = admin.watch(&format!("{OLD}?watch=true")).await;
    let first = events.next().await.unwrap();
    assert_eq!(first["object"]["spec"], json!({"hostPort": "a:1"}));
    admin
        .merge(&format!("{NEW}/w"), &json!({"spec": {"port": "2"}}))
        .await;
    let second = events.next().await.unwrap();
    assert_eq!(
        (
            brief(&second),
            &second["object"]["spec"],
            &second["object"]["apiVersion"]
        ),
        (
            "MODIFIED w".to_owned(),
            &json!({"hostPort": "a:2"}),
            &json!("example.com/v1")
        )
    );
}

#[tokio::test]
async fn a_webhook_that_fails_is_told() {
    let (_server, admin) = world().await;
    let mut broken = widget("w", json!({"hostPort": "a:1"}));
    broken["metadata"]["annotations"] = json!({"broken": "yes"});
    let refused = admin.post(OLD, &broken).await;
    assert_eq!(
        (refused.code, refused.message(), refused.reason()),
        (
            500,
            "conversion webhook for example.com/v1, Kind=Widget failed: cannot translate this",
            ""
        )
    );
    assert_eq!(
        admin.get(&format!("{NEW}/w")).await.code,
        404,
        "nothing was stored"
    );
    let elsewhere = TestServer::start().await;
    let admin = elsewhere.admin();
    install(&admin, &crd(json!({"url": "https://127.0.0.1:1/convert"}))).await;
    create(
        &admin,
        NEW,
        &json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}}),
    )
    .await;
    let unreachable = admin.get(&format!("{OLD}/w")).await;
    assert_eq!(unreachable.code, 500);
    assert!(
        unreachable.message().starts_with(
            "conversion webhook for example.com/v2, Kind=Widget failed: Post \"https://127.0.0.1:1/convert?timeout=30s\": "
        ),
        "{}",
        unreachable.message()
    );
    assert_eq!(
        admin.get(&format!("{NEW}/w")).await.code,
        200,
        "the stored version needs no conversion"
    );
}
