// SPDX-License-Identifier: Apache-2.0
//! Endpoints that change one part of an object: what they let through, and who owns it afterwards.

use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

use super::requests::{PODS, told};
use super::words::{CRDS, WIDGETS, definition, definition_with, widget};

/// Owners of fields: manager, subresource, whether there is a time, and the fields.
fn owners(object: &Value) -> Vec<(String, String, bool, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap_or_default().to_owned(),
                entry["subresource"].as_str().unwrap_or_default().to_owned(),
                entry["time"].is_string(),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

async fn sized_pod(admin: &Caller) -> String {
    let sizes = json!({"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "200m"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": sizes}]}});
    assert_eq!(admin.post(PODS, &pod).await.code, 201);
    format!("{PODS}/p")
}

#[tokio::test]
async fn containers_to_look_into_a_pod_are_added_and_stay() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{}/ephemeralcontainers", sized_pod(&admin).await);
    let add = async |container: Value| {
        let patch = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"ephemeralContainers": [container]}});
        admin.strategic(&path, &patch).await
    };
    let added = add(json!({"name": "e", "image": "busybox", "targetContainerName": "c"})).await;
    assert_eq!(
        (added.code, &added.body["metadata"]["generation"]),
        (200, &json!(2))
    );
    // Nothing else of the pod changes here.
    assert_eq!(added.body["metadata"]["labels"], Value::Null);
    assert_eq!(
        added.body["spec"]["ephemeralContainers"],
        json!([{"name": "e", "image": "busybox", "targetContainerName": "c", "imagePullPolicy": "Always", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}])
    );
    assert!(
        owners(&added.body)
            .iter()
            .any(|(_, part, _, fields)| part == "ephemeralcontainers"
                && fields["f:spec"]["f:ephemeralContainers"].is_object())
    );
    let field = "spec.ephemeralContainers";
    for (container, wanted) in [
        (
            json!({"name": "c", "image": "i"}),
            format!("{field}[0].name: Duplicate value: \"c\""),
        ),
        (
            json!({"name": "f", "image": "i", "targetContainerName": "none"}),
            format!("{field}[0].targetContainerName: Not found: \"none\""),
        ),
        (
            json!({"name": "f", "image": "i", "ports": [{"containerPort": 1}]}),
            format!("{field}[0].ports: Forbidden: cannot be set for an Ephemeral Container"),
        ),
    ] {
        let refused = add(container).await;
        assert_eq!((refused.code, told(&refused.body)), (422, vec![wanted]));
    }
    let removed = admin
        .merge(&path, &json!({"spec": {"ephemeralContainers": null}}))
        .await;
    assert_eq!(
        told(&removed.body),
        [format!(
            "{field}: Forbidden: existing ephemeral containers \"e\" may not be removed\n"
        )]
    );
    assert_eq!(add(json!({"name": "e", "image": "other"})).await.code, 422);
    assert_eq!(admin.post(&path, &json!({})).await.code, 405);
    let early = json!({"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "i"}],
        "ephemeralContainers": [{"name": "e", "image": "i"}]}});
    assert_eq!(
        told(&admin.post(PODS, &early).await.body),
        [format!("{field}: Forbidden: cannot be set on create")]
    );
}

#[tokio::test]
async fn containers_of_a_pod_grow_and_shrink() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{}/resize", sized_pod(&admin).await);
    let resize = async |resources: Value| {
        let container = json!({"name": "c", "image": "other", "resources": resources});
        admin
            .strategic(&path, &json!({"spec": {"containers": [container]}}))
            .await
    };
    let grown = resize(json!({"requests": {"cpu": "150m"}})).await;
    let container = &grown.body["spec"]["containers"][0];
    assert_eq!(container["image"], "i");
    assert_eq!(
        container["resources"]["requests"],
        json!({"cpu": "150m", "memory": "1Mi"})
    );
    assert_eq!(grown.body["metadata"]["generation"], 2);
    for (resources, wanted) in [
        (
            json!({"requests": {"memory": null}}),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            json!({"requests": {"ephemeral-storage": "1Gi"}}),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            json!({"requests": {"cpu": "200m"}, "limits": {"memory": "1Mi"}}),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
    ] {
        let refused = resize(resources.clone()).await;
        assert_eq!(refused.code, 422, "{resources}");
        assert!(
            told(&refused.body).iter().any(|c| c == wanted),
            "{:?}",
            told(&refused.body)
        );
    }
    let more = json!({"spec": {"containers": [{"name": "d", "image": "i"}]}});
    assert_eq!(
        told(&admin.strategic(&path, &more).await.body),
        ["spec.containers: Forbidden: containers may not be added or removed on resize"]
    );
}

#[tokio::test]
async fn what_the_server_tells_about_a_definition_is_its_own() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let made = admin
        .post(CRDS, &definition("widgets", "Widget", json!({"type": "object"})))
        .await;
    let name = made.body["metadata"]["name"].as_str().unwrap().to_owned();
    let told = admin.get(&format!("{CRDS}/{name}")).await;
    let (_, _, timed, fields) = owners(&told.body)
        .into_iter()
        .find(|(manager, part, ..)| manager == "kube-apiserver" && part == "status")
        .unwrap();
    assert!(timed);
    let status = &fields["f:status"];
    let parts: Vec<&String> = status.as_object().unwrap().keys().collect();
    assert_eq!(parts, ["f:acceptedNames", "f:conditions"]);
    let conditions: Vec<&String> = status["f:conditions"].as_object().unwrap().keys().collect();
    assert_eq!(
        conditions,
        [r#"k:{"type":"Established"}"#, r#"k:{"type":"NamesAccepted"}"#]
    );
    // Writing the same again is no change.
    let again = admin.put(&format!("{CRDS}/{name}"), &told.body).await;
    assert_eq!(
        again.body["metadata"]["resourceVersion"],
        told.body["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn whoever_finalizes_a_namespace_owns_no_status() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let namespace = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "x.y/z"]}});
    admin.post("/api/v1/namespaces", &namespace).await;
    let kept = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}});
    let finalized = admin.put("/api/v1/namespaces/n/finalize", &kept).await;
    assert_eq!(finalized.code, 200);
    assert!(
        owners(&finalized.body)
            .iter()
            .all(|(_, _, _, fields)| fields.get("f:status").is_none())
    );
}

#[tokio::test]
async fn replicas_of_a_custom_resource_belong_to_whoever_scales_it() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let numbers =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "x": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": numbers, "status": numbers}});
    let scale = json!({"subresources": {"scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas"}}});
    admin
        .post(CRDS, &definition_with("widgets", "Widget", schema, scale))
        .await;
    let object = widget("w", json!({"replicas": 1, "x": "y"}));
    assert_eq!(admin.post(WIDGETS, &object).await.code, 201);
    let scaled = json!({"spec": {"replicas": 3}});
    let path = format!("{WIDGETS}/w/scale?fieldManager=scaler");
    assert_eq!(admin.merge(&path, &scaled).await.code, 200);
    let owned = owners(&admin.get(&format!("{WIDGETS}/w")).await.body);
    assert!(owned.contains(&(
        "scaler".to_owned(),
        "scale".to_owned(),
        false,
        json!({"f:spec": {"f:replicas": {}}})
    )));
    assert!(
        owned
            .iter()
            .any(|(_, part, _, fields)| part.is_empty() && *fields == json!({"f:spec": {".": {}, "f:x": {}}}))
    );
}
