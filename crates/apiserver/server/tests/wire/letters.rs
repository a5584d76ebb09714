// SPDX-License-Identifier: Apache-2.0
//! Small print: answers that were compared with the reference's letter by letter, where it was easy
//! to be nearly right.

use std::time::Duration;

use cobaltcore_apiserver::Config;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::requests::{LEASES, MAPS, PODS, map, map_of, pod, told};
use super::words::{CRDS, WIDGETS, definition, widget};

/// The header a problem is told in.
fn warning(problem: &str, path: &str) -> String {
    format!("299 - \"{problem} field \\\"{path}\\\"\"")
}

async fn apply(admin: &Caller, path: &str, body: &Value) -> Reply {
    admin.apply(&format!("{path}?fieldManager=alpha"), body).await
}

/// Metadata is judged before the kind's own rules and again with them: two causes, said once.
#[tokio::test]
async fn wrong_metadata_of_an_update_is_found_twice_and_said_once() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let path = format!("{MAPS}/m");
    let wrong = "metadata.uid: Invalid value: \"x\": field is immutable";
    let patch = json!({"metadata": {"uid": "x"}});
    let mut config = map("m");
    config["metadata"]["uid"] = json!("x");
    for reply in [
        admin.merge(&path, &patch).await,
        apply(&admin, &path, &config).await,
    ] {
        assert_eq!(reply.code, 422);
        assert_eq!(reply.message(), format!("ConfigMap \"m\" is invalid: {wrong}"));
        assert_eq!(told(&reply.body), [wrong, wrong]);
    }
}

/// A revision locks what exists; where nothing does, it locks nothing. A uid is another matter.
#[tokio::test]
async fn what_is_created_instead_needs_no_revision() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut config = map_of("new", json!({"a": "1"}));
    config["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(apply(&admin, &format!("{MAPS}/new"), &config).await.code, 201);
    let lease = json!({"metadata": {"name": "l", "resourceVersion": "7"}, "spec": {}});
    assert_eq!(admin.put(&format!("{LEASES}/l"), &lease).await.code, 201);
    let lease = json!({"metadata": {"name": "k", "uid": "7"}, "spec": {}});
    let refused = admin.put(&format!("{LEASES}/k"), &lease).await;
    assert_eq!((refused.code, refused.reason()), (409, "Conflict"));
    assert!(
        refused
            .message()
            .contains("UID in precondition: 7, UID in object meta: ")
    );
}

/// The typed check of a configuration names the object as the configuration does.
#[tokio::test]
async fn configurations_are_called_what_they_call_themselves() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let wrong = map_of("m", json!({"a": 1}));
    let refused = apply(&admin, &format!("{MAPS}/m"), &wrong).await;
    assert!(
        refused
            .message()
            .starts_with("failed to create typed patch object (/m; /v1, Kind=ConfigMap): "),
        "{}",
        refused.body
    );
    let nothing = apply(&admin, &format!("{MAPS}/m"), &Value::Null).await;
    assert_eq!(nothing.message(), "invalid object type: /, Kind=");
    let list = apply(&admin, &format!("{MAPS}/m"), &json!([])).await;
    assert_eq!(
        list.message(),
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}

/// What is unknown in a patched object is told by name; in a custom resource in the order of reading.
#[tokio::test]
async fn unknown_fields_have_their_order() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let patched = admin
        .merge(&format!("{MAPS}/m"), &json!({"foo": 1, "metadata": {"bar": 2}}))
        .await;
    assert_eq!(
        patched.warnings(),
        [warning("unknown", "foo"), warning("unknown", "metadata.bar")]
    );
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    assert_eq!(
        admin
            .post(CRDS, &definition("widgets", "Widget", spec))
            .await
            .code,
        201
    );
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","foo":1},
        "spec":{"size":1,"size":2,"zz":1},"bar":1}"#;
    let stored = super::requests::call(&admin, "POST", WIDGETS, "application/json", body).await;
    assert_eq!(
        stored.warnings(),
        [
            warning("duplicate", "spec.size"),
            warning("unknown", "metadata.foo"),
            warning("unknown", "bar"),
            warning("unknown", "spec.zz"),
        ]
    );
}

/// Custom resources under a foreign envelope, and lists that say they go on nowhere.
#[tokio::test]
async fn envelopes_of_custom_resources() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    admin.post(CRDS, &definition("widgets", "Widget", spec)).await;
    let send = |change: Value| {
        let mut body = widget("w", json!({}));
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let admin = admin.clone();
        async move { admin.post(WIDGETS, &body).await.message().to_owned() }
    };
    assert_eq!(
        send(json!({"kind": "Foo"})).await,
        "Foo.example.com \"w\" is invalid: kind: Invalid value: \"Foo\": must be Widget"
    );
    assert_eq!(
        send(json!({"apiVersion": ""})).await,
        "the API version in the data () does not match the expected API version (example.com/v1)"
    );
    assert!(send(json!({"kind": ""})).await.starts_with(
        "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{"
    ));
    assert_eq!(
        send(json!({"metadata": "x"})).await,
        "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal string into Go value of type v1.ObjectMeta"
    );
    admin.post(WIDGETS, &widget("w", json!({}))).await;
    let moved = admin
        .merge(&format!("{WIDGETS}/w"), &json!({"apiVersion": "example.com/v9"}))
        .await;
    assert_eq!(
        (moved.code, moved.message()),
        (
            422,
            "Widget.example.com \"w\" is invalid: apiVersion: Invalid value: \"example.com/v9\": must be example.com/v1"
        )
    );
    assert_eq!(admin.get(WIDGETS).await.body["metadata"]["continue"], "");
    assert!(admin.get(MAPS).await.body["metadata"].get("continue").is_none());
    let verbs = &admin.get("/apis/example.com/v1").await.body["resources"][0]["verbs"];
    assert_eq!(
        verbs,
        &json!([
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch"
        ])
    );
}

/// An object is read by the schema of the version it is stored in; others see it under their name.
#[tokio::test]
async fn the_stored_version_decides_what_is_read() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let version = |name: &str, storage: bool, fields: Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}})
    };
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    crd["spec"]["versions"] = json!([
        version("v1", true, json!({"a": {"type": "string", "default": "x"}})),
        version(
            "v2",
            false,
            json!({"a": {"type": "string"}, "b": {"type": "string", "default": "y"}})
        ),
    ]);
    assert_eq!(admin.post(CRDS, &crd).await.code, 201);
    let second = WIDGETS.replace("/v1/", "/v2/");
    let mut body = widget("w", json!({"b": "mine"}));
    body["apiVersion"] = json!("example.com/v2");
    let made = admin.post(&second, &body).await;
    for seen in [made, admin.get(&format!("{second}/w")).await] {
        assert_eq!(seen.body["apiVersion"], "example.com/v2");
        assert_eq!(seen.body["spec"], json!({"a": "x"}), "{}", seen.body);
    }
}

/// A watch from the beginning and a page of a list do not go together.
#[tokio::test]
async fn watches_do_not_continue() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let refused = admin.get(&format!("{MAPS}?watch=true&continue=abc")).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        told(&refused.body),
        ["resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"]
    );
}

/// Pods go gracefully, also where the grace is none; options are objects; bindings name their pod.
#[tokio::test]
async fn pods_leave_with_their_time() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(PODS, &pod("p")).await;
    let path = format!("{PODS}/p");
    let binding = json!({"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n"}});
    let refused = admin.post(&format!("{path}/binding"), &binding).await;
    assert_eq!(
        (refused.code, refused.message()),
        (400, "name in URL does not match name in Binding object")
    );
    let refused = super::requests::call(&admin, "DELETE", &path, "application/json", "[]").await;
    assert_eq!(refused.code, 400, "{}", refused.body);
    let gone = admin.delete(&path).await.body;
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(gone["metadata"]["deletionTimestamp"].is_string(), "{gone}");
    assert_eq!(admin.get(&path).await.code, 404);
}

/// Rules of pods and workloads that say where they were broken, and what workloads are given.
#[tokio::test]
async fn rules_and_gifts_of_kinds() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut wrong = pod("p");
    wrong["spec"]["os"] = json!({"name": "foo"});
    wrong["spec"]["containers"][0]["resizePolicy"] = json!([{"resourceName": "foo", "restartPolicy": "x"}]);
    assert_eq!(
        told(&admin.post(PODS, &wrong).await.body),
        [
            "spec.containers[0].resizePolicy: Unsupported value: \"foo\": supported values: \"cpu\", \"memory\"",
            "spec.containers[0].resizePolicy: Unsupported value: \"x\": supported values: \"NotRequired\", \"RestartContainer\"",
            "spec.os: Unsupported value: \"foo\": supported values: \"linux\", \"windows\"",
        ]
    );
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = admin.post(super::requests::JOBS, &job).await.body;
    assert_eq!(
        job["metadata"]["labels"],
        job["spec"]["template"]["metadata"]["labels"]
    );
    assert_eq!(job["metadata"]["labels"]["job-name"], "j");
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    let set = admin
        .post("/apis/apps/v1/namespaces/default/statefulsets", &set)
        .await
        .body;
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (&claim["kind"], &claim["apiVersion"]),
        (&json!("PersistentVolumeClaim"), &json!("v1"))
    );
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
    admin.post(super::requests::SERVICES, &service).await;
    let moved = admin
        .merge(
            &format!("{}/s", super::requests::SERVICES),
            &json!({"spec": {"clusterIP": "10.0.0.5"}}),
        )
        .await;
    assert_eq!(
        told(&moved.body),
        ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.5\"]: may not change once set"]
    );
    let event = json!({"metadata": {"name": "e"}, "regarding": {"namespace": "default"}});
    let event = admin
        .post("/apis/events.k8s.io/v1/namespaces/default/events", &event)
        .await;
    assert!(
        event.message().starts_with("Event \"e\" is invalid: ["),
        "{}",
        event.body
    );
    let groups = admin.get("/apis").await.body["groups"].clone();
    let names: Vec<&str> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
}

/// A refusal that needed no body leaves the connection usable, also where the body comes later.
#[tokio::test]
async fn refused_requests_leave_their_connection_open() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    let _server = TestServer::with(Config {
        unix_socket: Some(socket.clone()),
        ..Config::default()
    })
    .await;
    let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let head = |method: &str, path: &str, length: usize| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    stream.write_all(head("POST", MAPS, 2).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(b"{}").await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    let mut asked = false;
    while seen.matches("HTTP/1.1 401").count() < 2 {
        let count = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert_ne!(count, 0, "the connection was closed after: {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if !asked && seen.contains("\"Unauthorized\"") {
            asked = true;
            stream.write_all(head("GET", MAPS, 0).as_bytes()).await.unwrap();
        }
    }
}
