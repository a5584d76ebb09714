// SPDX-License-Identifier: Apache-2.0
//! What conversions leave out and what they are refused for, word for word.

use std::sync::Arc;

use cobaltcore_apiserver::WebhookHandler;
use cobaltcore_apiserver::testkit::TestServer;
use futures::FutureExt;
use serde_json::{Value, json};

use super::requests::{WIDGETS, made};
use super::words::{definition, install};

/// v1 has `spec.old`, v2 has `spec.new`; v2 is stored, and each has a default of its own. What is named after a
/// mistake is converted with it.
fn translator() -> WebhookHandler {
    Arc::new(|review: Value| {
        let request = review["request"].clone();
        let wanted = request["desiredAPIVersion"].clone();
        let convert = |object: &Value| {
            let mut object = object.clone();
            let (from, to) = if wanted == "example.com/v2" {
                ("old", "new")
            } else {
                ("new", "old")
            };
            let value = object["spec"][from].clone();
            object["apiVersion"] = wanted.clone();
            object["spec"] = json!({to: value});
            match object["metadata"]["name"].as_str().unwrap_or_default() {
                "number" => object["metadata"]["labels"] = json!({"a": 5}),
                "text" => object["metadata"]["labels"] = json!("x"),
                "illegal" => object["metadata"]["labels"] = json!({"not ok": "x"}),
                "string" => object = json!("x"),
                "gone" => object = Value::Null,
                _ => {}
            }
            object
        };
        let objects: Vec<Value> = request["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(convert)
            .collect();
        let named = |name: &str| request["objects"][0]["metadata"]["name"] == name;
        let mut answer = json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview",
            "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
        if named("kind") {
            answer["kind"] = json!("Other");
        }
        if named("version") {
            answer["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
        }
        if named("objects") {
            answer["response"]["convertedObjects"] = json!("x");
        }
        if request["objects"]
            .as_array()
            .unwrap()
            .iter()
            .any(|o| o["metadata"]["name"] == "none")
        {
            answer["response"]["convertedObjects"] = json!([]);
        }
        async move { answer }.boxed()
    })
}

fn translated() -> Value {
    let version = |name: &str, storage: bool, field: &str| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: {"type": "string"},
                format!("{name}d"): {"type": "string", "default": name}}}}}}})
    };
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    crd["spec"]["versions"] = json!([version("v1", false, "old"), version("v2", true, "new")]);
    let service = json!({"service": {"namespace": "hooks", "name": "translate", "path": "/"}});
    crd["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": service}});
    crd
}

/// Defaults are those of the version an object is stored in, and what a webhook gives back is read as closely as what a
/// client sends.
#[tokio::test]
async fn conversions_are_held_to_the_letter() {
    let server = TestServer::start().await;
    server
        .server()
        .register_webhook("hooks", "translate", "/", translator());
    let admin = server.admin();
    install(&admin, &translated()).await;
    let (old, new) = (WIDGETS, "/apis/example.com/v2/namespaces/default/widgets");
    let stored = |name: &str| json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": {"new": "x"}});
    made(&admin, new, &stored("good")).await;
    assert_eq!(
        admin.get(&format!("{new}/good")).await.body["spec"],
        json!({"new": "x", "v2d": "v2"})
    );
    assert_eq!(
        admin.get(&format!("{old}/good")).await.body["spec"],
        json!({"old": "x"}),
        "what comes from another version is not filled in"
    );
    let subject = "conversion webhook for example.com/v2, Kind=Widget";
    for (name, message) in [
        (
            "number",
            format!(
                "{subject} returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object"
            ),
        ),
        (
            "text",
            format!(
                "{subject} returned invalid metadata: invalid metadata.labels of type string in converted object"
            ),
        ),
        (
            "illegal",
            format!(
                "{subject} returned invalid metadata: metadata.labels: Invalid value: \"not ok\": name part must consist of"
            ),
        ),
        (
            "string",
            "json: cannot unmarshal string into Go value of type map[string]interface {}".to_owned(),
        ),
        ("gone", "unexpected end of JSON input".to_owned()),
        (
            "kind",
            format!(
                "{subject} failed: no kind \"Other\" is registered for version \"apiextensions.k8s.io/v1\" in scheme"
            ),
        ),
        (
            "version",
            format!(
                "{subject} failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"
            ),
        ),
        (
            "objects",
            format!(
                "{subject} failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension"
            ),
        ),
    ] {
        made(&admin, new, &stored(name)).await;
        let reply = admin.get(&format!("{old}/{name}")).await;
        assert_eq!(reply.code, 500, "{name}: {}", reply.body);
        assert!(reply.message().starts_with(&message), "{}", reply.message());
        assert_eq!(admin.delete(&format!("{new}/{name}")).await.code, 200);
    }
    // Of many it is the one that fails which is told about, as if it had come alone.
    made(&admin, new, &stored("none")).await;
    assert_eq!(
        admin.get(old).await.message(),
        format!("{subject} returned 0 objects, expected 1")
    );
}
