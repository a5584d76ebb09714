// SPDX-License-Identifier: Apache-2.0
//! Server-side apply by several hands: containers and conditions shared, replicas handed over, the
//! move from client-side apply.

use crate::applying::*;
use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

#[tokio::test]
async fn leaving_a_field_out_gives_it_up() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/d");
    let mut config = deployment(json!([{"name": "a", "image": "i:1"}]));
    config["spec"]["replicas"] = json!(3);
    assert_eq!(apply_as(&admin, "alpha", &path, &config).await.code, 201);
    config["spec"].as_object_mut().unwrap().remove("replicas");
    let left = apply_as(&admin, "alpha", &path, &config).await;
    assert_eq!(
        (left.code, &left.body["spec"]["replicas"]),
        (200, &json!(1)),
        "the default comes back"
    );
    assert_eq!(left.body["metadata"]["generation"], 2);
    // An autoscaler that owns the field keeps it.
    config["spec"]["replicas"] = json!(3);
    apply_as(&admin, "alpha", &path, &config).await;
    let scaled = admin
        .merge(
            &format!("{path}/scale?fieldManager=hpa"),
            &json!({"spec": {"replicas": 5}}),
        )
        .await;
    assert_eq!(
        (scaled.code, &scaled.body["spec"]["replicas"]),
        (200, &json!(5)),
        "{}",
        scaled.body
    );
    let object = admin.get(&path).await.body;
    assert_eq!(
        managed(&object, "hpa", Some("scale"))["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}}})
    );
    assert_eq!(managed(&object, "hpa", Some("scale"))["apiVersion"], "apps/v1");
    let contested = apply_as(&admin, "alpha", &path, &config).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    config["spec"].as_object_mut().unwrap().remove("replicas");
    let given_up = apply_as(&admin, "alpha", &path, &config).await;
    assert_eq!(
        (given_up.code, &given_up.body["spec"]["replicas"]),
        (200, &json!(5))
    );
}

#[tokio::test]
async fn two_managers_share_the_containers_of_a_deployment() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/d");
    let first = deployment(json!([{"name": "app", "image": "app:1"}]));
    assert_eq!(apply_as(&admin, "alpha", &path, &first).await.code, 201);
    let side = |image: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": image}}}})
    };
    let added = apply_as(
        &admin,
        "beta",
        &path,
        &side(json!([{"name": "proxy", "image": "proxy:1"}])),
    )
    .await;
    assert_eq!(added.code, 200, "{}", added.body);
    let names = |object: &Value| -> Vec<String> {
        object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| format!("{}={}", c["name"].as_str().unwrap(), c["image"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(names(&added.body), ["app=app:1", "proxy=proxy:1"]);
    let changed = apply_as(
        &admin,
        "beta",
        &path,
        &side(json!([{"name": "proxy", "image": "proxy:2"}])),
    )
    .await;
    assert_eq!(names(&changed.body), ["app=app:1", "proxy=proxy:2"]);
    let contested = apply_as(
        &admin,
        "beta",
        &path,
        &side(json!([{"name": "app", "image": "app:2"}, {"name": "proxy", "image": "proxy:2"}])),
    )
    .await;
    assert_eq!(contested.code, 409);
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"alpha\": .spec.template.spec.containers[name=\"app\"].image"
    );
    let removed = apply_as(&admin, "beta", &path, &side(json!([]))).await;
    assert_eq!(removed.code, 200, "{}", removed.body);
    assert_eq!(names(&removed.body), ["app=app:1"]);
    let empty = apply_as(
        &admin,
        "alpha",
        &path,
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
    )
    .await;
    assert_eq!(
        (empty.code, empty.reason()),
        (422, "Invalid"),
        "the rest must be valid"
    );
}

#[tokio::test]
async fn two_managers_share_the_conditions_of_a_custom_status() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "properties": {"conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}}}}}});
    install(
        &admin,
        &definition_with(
            "widgets",
            "Widget",
            schema,
            json!({"subresources": {"status": {}}}),
        ),
    )
    .await;
    create(&admin, WIDGETS, &widget("w", json!({"x": 1}))).await;
    let path = format!("{WIDGETS}/w/status");
    let status = |kind: &str, value: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "status": {"conditions": [{"type": kind, "status": value}]}})
    };
    let ready = apply_as(&admin, "alpha", &path, &status("Ready", "True")).await;
    assert_eq!(ready.code, 200, "{}", ready.body);
    assert_eq!(
        managed(&ready.body, "alpha", Some("status")),
        &json!({
        "manager": "alpha", "operation": "Apply", "apiVersion": "example.com/v1", "time": managed(&ready.body, "alpha", Some("status"))["time"],
        "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}}}})
    );
    let both = apply_as(&admin, "beta", &path, &status("Synced", "True")).await;
    assert_eq!(
        both.body["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "True"}])
    );
    let contested = apply_as(&admin, "beta", &path, &status("Ready", "False")).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"alpha\" with subresource \"status\": .status.conditions[type=\"Ready\"].status"
    );
    let none = apply_as(
        &admin,
        "alpha",
        &path,
        &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
    )
    .await;
    assert_eq!(
        none.body["status"]["conditions"],
        json!([{"type": "Synced", "status": "True"}])
    );
    assert_eq!(none.body["spec"], json!({"x": 1}));
    assert_eq!(none.body["metadata"]["generation"], 1, "status never counts");
    let mut both_parts = status("Synced", "True");
    both_parts["spec"] = json!({"x": 9});
    let only_status = apply_as(&admin, "beta", &path, &both_parts).await;
    assert_eq!(
        only_status.body["spec"],
        json!({"x": 1}),
        "the status endpoint changes the status only"
    );
    let main = apply_as(&admin, "gamma", &format!("{WIDGETS}/w"), &status("Odd", "True")).await;
    assert_eq!(main.code, 200);
    assert_eq!(
        main.body["status"]["conditions"],
        json!([{"type": "Synced", "status": "True"}]),
        "the main endpoint leaves it alone"
    );
    assert_eq!(managed(&main.body, "gamma", None), &Value::Null);
}

#[tokio::test]
async fn a_client_side_applier_becomes_a_server_side_one() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let mut made = cm(json!({"a": "1", "b": "1"}));
    made["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    admin
        .post(&format!("{MAPS}?fieldManager=kubectl-client-side-apply"), &made)
        .await;
    let contested = apply_as(&admin, "kubectl", &path, &cm(json!({"a": "2"}))).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.a"
    );
    // kubectl takes over by a JSON patch of managedFields, pinned to the version it read.
    let live = admin.get(&path).await.body;
    let mut entry = managed(&live, "kubectl-client-side-apply", None).clone();
    entry["manager"] = json!("kubectl");
    entry["operation"] = json!("Apply");
    let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": rv(&live).to_string()}]);
    let moved = admin.json_patch(&path, &patch).await;
    assert_eq!(moved.code, 200, "{}", moved.body);
    assert_eq!(entries(&moved.body), ["Apply kubectl"]);
    let now = apply_as(&admin, "kubectl", &path, &cm(json!({"a": "2"}))).await;
    assert_eq!((now.code, &now.body["data"]), (200, &json!({"a": "2"})));
}

#[tokio::test]
async fn replicas_are_applied_through_scale() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/d");
    let mut config = deployment(json!([{"name": "a", "image": "i:1"}]));
    config["spec"]["replicas"] = json!(3);
    assert_eq!(apply_as(&admin, "alpha", &path, &config).await.code, 201);
    let scale = |n: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": n}});
    for (key, value, message) in [
        (
            "metadata",
            json!({"name": "other"}),
            "the name of the object (other) does not match the name on the URL (d)",
        ),
        (
            "kind",
            json!("Deployment"),
            "invalid object type: autoscaling/v1, Kind=Deployment",
        ),
    ] {
        let mut config = scale(5);
        config[key] = value;
        let refused = apply_as(&admin, "hpa", &format!("{path}/scale?force=true"), &config).await;
        assert_eq!(
            (refused.code, refused.body["message"].as_str()),
            (400, Some(message))
        );
    }
    let contested = apply_as(&admin, "hpa", &format!("{path}/scale"), &scale(5)).await;
    assert_eq!(
        (contested.code, contested.message()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"alpha\": .spec.replicas"
        )
    );
    let forced = apply_as(&admin, "hpa", &format!("{path}/scale?force=true"), &scale(5)).await;
    assert_eq!(
        (
            forced.code,
            &forced.body["kind"],
            &forced.body["spec"]["replicas"]
        ),
        (200, &json!("Scale"), &json!(5)),
        "{}",
        forced.body
    );
    let object = admin.get(&path).await.body;
    let entry = managed(&object, "hpa", Some("scale"));
    assert_eq!(
        (&entry["operation"], &entry["fieldsV1"]),
        (&json!("Apply"), &json!({"f:spec": {"f:replicas": {}}}))
    );
    assert!(
        managed(&object, "alpha", None)["fieldsV1"]["f:spec"]
            .get("f:replicas")
            .is_none()
    );
}

#[tokio::test]
async fn scaling_loses_nobodys_changes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/d");
    create(
        &admin,
        DEPLOYMENTS,
        &deployment(json!([{"name": "a", "image": "i:1"}])),
    )
    .await;
    let scaling = async {
        for n in 1..30 {
            assert_eq!(
                admin
                    .merge(&format!("{path}/scale"), &json!({"spec": {"replicas": n}}))
                    .await
                    .code,
                200
            );
        }
    };
    let labelling = async {
        for n in 1..30 {
            assert_eq!(
                admin
                    .merge(&path, &json!({"metadata": {"labels": {format!("l{n}"): "1"}}}))
                    .await
                    .code,
                200
            );
        }
    };
    tokio::join!(scaling, labelling);
    let object = admin.get(&path).await.body;
    assert_eq!(object["spec"]["replicas"], 29);
    assert_eq!(object["metadata"]["labels"].as_object().unwrap().len(), 29);
}
