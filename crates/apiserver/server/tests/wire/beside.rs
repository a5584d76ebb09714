// SPDX-License-Identifier: Apache-2.0
//! More of what the reference does beside what one asks of it: registrations of custom groups, owners
//! of bodies that are never stored, and what those who admit them are shown.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use super::requests::{DEFINITIONS, DEPLOYMENTS, MAPS, call, deployment, widgets};
use super::words::until;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// What a definition serves is registered while it is served, and not a moment longer than needed.
#[tokio::test]
async fn custom_groups_are_registered_while_they_are_served() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{SERVICES}/v1.example.com");
    assert_eq!(admin.get(&path).await.code, 404);
    admin.post(DEFINITIONS, &widgets()).await;
    let made = until(&admin, &path, |reply| reply.code == 200).await;
    assert_eq!(
        made.body["metadata"]["labels"],
        json!({"kube-aggregator.kubernetes.io/automanaged": "true"})
    );
    assert_eq!(
        made.body["spec"],
        json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    assert_eq!(made.body["status"]["conditions"][0]["reason"], "Local");
    admin.delete(&format!("{DEFINITIONS}/widgets.example.com")).await;
    until(&admin, &path, |reply| reply.code == 404).await;
}

/// Metadata of a definition may be changed through its status, as the reference has it.
#[tokio::test]
async fn the_status_of_a_definition_takes_labels_along() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEFINITIONS, &widgets()).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"names": {"shortNames": ["w"]}}});
    let reply = admin
        .merge(&format!("{path}/status?fieldManager=m"), &patch)
        .await;
    assert_eq!(reply.code, 200, "{}", reply.message());
    assert_eq!(reply.body["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(reply.body["spec"]["names"].get("shortNames"), None);
    let entry = reply.body["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "m")
        .unwrap()
        .clone();
    assert_eq!(
        (&entry["subresource"], &entry["fieldsV1"]),
        (
            &json!("status"),
            &json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}})
        )
    );
}

/// A request for a token names its author, though it is never stored.
#[tokio::test]
async fn token_requests_have_an_author() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}});
    let path = "/api/v1/namespaces/default/serviceaccounts/s/token?fieldManager=m";
    let reply = admin.post(path, &request).await;
    assert_eq!(reply.code, 201, "{}", reply.message());
    let mut entry = reply.body["metadata"]["managedFields"][0].clone();
    entry["time"] = Value::Null;
    assert_eq!(
        entry,
        json!({"manager": "m", "operation": "Update", "apiVersion": "authentication.k8s.io/v1", "time": null,
            "fieldsType": "FieldsV1", "subresource": "token",
            "fieldsV1": {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}})
    );
}

/// What nobody knows the parts of is owned as a whole.
#[tokio::test]
async fn data_of_a_revision_is_owned_as_a_whole() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"},
        "revision": 1, "data": {"a": {"b": [1]}}});
    let reply = admin
        .post("/apis/apps/v1/namespaces/default/controllerrevisions", &revision)
        .await;
    assert_eq!(reply.code, 201, "{}", reply.message());
    assert_eq!(
        reply.body["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:data": {}, "f:revision": {}})
    );
}

/// Of several documents in a body the first counts.
#[tokio::test]
async fn the_first_document_of_a_body_counts() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\n---\nnot: [closed\n";
    let made = call(&admin, "POST", MAPS, "application/yaml", body).await;
    assert_eq!((made.code, &made.body["metadata"]["name"]), (201, &json!("one")));
    let path = format!("{MAPS}/one?fieldManager=m");
    let applied = call(&admin, "PATCH", &path, "application/apply-patch+yaml", body).await;
    assert_eq!(applied.code, 200, "{}", applied.message());
}

/// Configurations that fit the schema and still are no object of the type.
#[tokio::test]
async fn configurations_that_cannot_be_converted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut config = deployment("d");
    config["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "x"}});
    let path = format!("{DEPLOYMENTS}/d?fieldManager=m");
    let text = "failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: quantities must match the regular expression";
    let refused = admin.apply(&path, &config).await;
    assert!(refused.message().starts_with(text), "{}", refused.message());
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let refused = admin.apply(&path, &config).await;
    assert!(refused.message().starts_with(text), "{}", refused.message());
    assert_eq!(refused.code, 400);
}
