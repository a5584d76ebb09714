// SPDX-License-Identifier: Apache-2.0
//! Server-side apply in the corners: times of entries, keys with defaults, metadata, nulls, objects on
//! their way out, several versions, and requests that race.

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use jiff::SignedDuration;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn apply_as(caller: &Caller, manager: &str, path: &str, body: &Value) -> Reply {
    let sign = if path.contains('?') { '&' } else { '?' };
    caller
        .apply(&format!("{path}{sign}fieldManager={manager}"), body)
        .await
}

#[tokio::test]
async fn times_move_only_with_changes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let first = apply_as(&admin, "alpha", &path, &map("a", "1")).await.body;
    admin
        .merge(&format!("{path}?fieldManager=hand"), &json!({"data": {"w": "1"}}))
        .await;
    let before = admin.get(&path).await.body;
    server.clock().advance(SignedDuration::from_secs(60));
    let same = apply_as(&admin, "alpha", &path, &map("a", "1")).await.body;
    assert_eq!(same, before, "nothing changed, nothing is stored");
    let changed = admin
        .merge(&format!("{path}?fieldManager=hand"), &json!({"data": {"w": "2"}}))
        .await
        .body;
    assert_eq!(
        managed(&changed, "alpha", None)["time"],
        managed(&first, "alpha", None)["time"],
        "others keep their time"
    );
    assert_ne!(
        managed(&changed, "hand", None)["time"],
        managed(&before, "hand", None)["time"]
    );
    assert_eq!(
        managed(&changed, "hand", None)["fieldsV1"],
        json!({"f:data": {"f:w": {}}})
    );
    server.clock().advance(SignedDuration::from_secs(60));
    let applied = apply_as(&admin, "alpha", &path, &map("a", "2")).await.body;
    assert_ne!(
        managed(&applied, "alpha", None)["time"],
        managed(&first, "alpha", None)["time"]
    );
}

#[tokio::test]
async fn service_ports_are_keyed_with_their_default() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/api/v1/namespaces/default/services/s";
    let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": ports}});
    let made = apply_as(
        &admin,
        "alpha",
        path,
        &service(json!([{"name": "http", "port": 80}])),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        managed(&made.body, "alpha", None)["fieldsV1"]["f:spec"],
        json!({"f:selector": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}})
    );
    let two = apply_as(&admin, "beta", path, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"name": "dns", "port": 80, "protocol": "UDP"}]}})).await;
    assert_eq!(two.code, 200, "{}", two.body);
    assert_eq!(two.body["spec"]["ports"].as_array().unwrap().len(), 2);
    assert_eq!(two.body["spec"]["clusterIP"], made.body["spec"]["clusterIP"]);
    let gone = apply_as(
        &admin,
        "beta",
        path,
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}),
    )
    .await;
    assert_eq!(gone.body["spec"]["ports"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn labels_annotations_owners_and_finalizers_are_shared() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let owner_one = create(&admin, MAPS, &map("o1", "1")).await;
    let config = |meta: Value| {
        let mut meta = meta;
        meta["name"] = json!("a");
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    };
    let one = apply_as(&admin, "alpha", &path, &config(json!({"labels": {"l": "1"}, "annotations": {"x": "1"}, "finalizers": ["e.com/a"], "ownerReferences": [owner(&owner_one, false)]}))).await;
    assert_eq!(one.code, 201, "{}", one.body);
    let key = format!("k:{{\"uid\":\"{}\"}}", uid(&owner_one));
    assert_eq!(
        managed(&one.body, "alpha", None)["fieldsV1"]["f:metadata"],
        json!({"f:labels": {"f:l": {}}, "f:annotations": {"f:x": {}}, "f:finalizers": {"v:\"e.com/a\"": {}}, "f:ownerReferences": {key: {}}})
    );
    let two = apply_as(
        &admin,
        "beta",
        &path,
        &config(json!({"labels": {"m": "1"}, "finalizers": ["e.com/b"]})),
    )
    .await;
    assert_eq!(two.body["metadata"]["finalizers"], json!(["e.com/a", "e.com/b"]));
    let less = apply_as(
        &admin,
        "alpha",
        &path,
        &config(json!({"annotations": {"x": "1"}})),
    )
    .await;
    assert_eq!(
        (
            &less.body["metadata"]["labels"],
            &less.body["metadata"]["finalizers"]
        ),
        (&json!({"m": "1"}), &json!(["e.com/b"]))
    );
    assert!(less.body["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn an_object_on_its_way_out_can_lose_its_finalizer_by_apply() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let mut config = map("a", "1");
    config["metadata"]["finalizers"] = json!(["e.com/a"]);
    apply_as(&admin, "alpha", &path, &config).await;
    admin.delete(&path).await;
    let mut more = config.clone();
    more["metadata"]["finalizers"] = json!(["e.com/a", "e.com/b"]);
    let refused = apply_as(&admin, "alpha", &path, &more).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let last = apply_as(&admin, "alpha", &path, &map("a", "1")).await;
    assert_eq!(last.code, 200, "{}", last.body);
    assert_eq!(admin.get(&path).await.code, 404);
}

#[tokio::test]
async fn ownership_follows_through_versions() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition(
        "widgets",
        "Widget",
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    install(&admin, &crd).await;
    let v2 = "/apis/example.com/v2/namespaces/default/widgets/w";
    apply_as(
        &admin,
        "alpha",
        &format!("{WIDGETS}/w"),
        &widget("w", json!({"a": "1"})),
    )
    .await;
    let mut other = widget("w", json!({"a": "2"}));
    other["apiVersion"] = json!("example.com/v2");
    let contested = apply_as(&admin, "beta", v2, &other).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"alpha\": .spec.a"
    );
    let moved = apply_as(&admin, "alpha", v2, &other).await;
    assert_eq!(moved.code, 200, "{}", moved.body);
    let entries = moved.body["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(
        (entries.len(), &entries[0]["apiVersion"]),
        (1, &json!("example.com/v2")),
        "{entries:?}"
    );
    let wrong = apply_as(&admin, "alpha", v2, &widget("w", json!({"a": "3"}))).await;
    assert_eq!(wrong.code, 400, "{}", wrong.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_appliers_at_once_all_succeed() {
    let server = TestServer::start().await;
    let admin = server.admin();
    apply_as(&admin, "base", &format!("{MAPS}/a"), &map("a", "1")).await;
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let admin = admin.clone();
            tokio::spawn(async move {
                for step in 0..10 {
                    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {format!("m{n}"): step.to_string()}});
                    let mut reply = apply_as(&admin, &format!("m{n}"), &format!("{MAPS}/a"), &config).await;
                    while reply.code == 409 {
                        assert!(reply.message().contains("the object has been modified"), "{}", reply.message());
                        reply = apply_as(&admin, &format!("m{n}"), &format!("{MAPS}/a"), &config).await;
                    }
                    assert_eq!(reply.code, 200, "{}", reply.body);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let object = admin.get(&format!("{MAPS}/a")).await.body;
    assert_eq!(
        object["data"],
        json!({"v": "1", "m0": "9", "m1": "9", "m2": "9", "m3": "9"})
    );
    assert_eq!(object["metadata"]["managedFields"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn status_of_a_built_in_kind_is_applied_at_its_endpoint() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "d"}},
        "template": {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}, "status": {"replicas": 9}});
    let made = apply_as(&admin, "alpha", path, &config).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert!(made.body["status"].get("replicas").is_none());
    assert!(
        managed(&made.body, "alpha", None)["fieldsV1"]
            .get("f:status")
            .is_none()
    );
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]}});
    let set = apply_as(&admin, "ctl", &format!("{path}/status"), &status).await;
    assert_eq!(
        (set.code, &set.body["status"]["replicas"]),
        (200, &json!(1)),
        "{}",
        set.body
    );
    assert_eq!(
        managed(&set.body, "ctl", Some("status"))["fieldsV1"],
        json!({"f:status": {"f:replicas": {}, "f:conditions": {"k:{\"type\":\"Available\"}": {".": {}, "f:type": {}, "f:status": {}}}}})
    );
    assert_eq!(set.body["metadata"]["generation"], 1);
    let absent = apply_as(
        &admin,
        "ctl",
        "/apis/apps/v1/namespaces/default/deployments/none/status",
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "none"}, "status": {}}),
    )
    .await;
    assert_eq!(
        (absent.code, absent.reason()),
        (404, "NotFound"),
        "{}",
        absent.body
    );
}

#[tokio::test]
async fn nulls_and_order_in_configurations() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "/api/v1/namespaces/default/pods/p";
    let pod = |env: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": null}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}});
    let made = apply_as(
        &admin,
        "alpha",
        path,
        &pod(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.body);
    let dep = "/apis/apps/v1/namespaces/default/deployments/d";
    let config = |names: &[&str]| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "d"}}, "template": {"metadata": {"labels": {"a": "d"}},
        "spec": {"containers": names.iter().map(|n| json!({"name": n, "image": "i"})).collect::<Vec<_>>()}}}})
    };
    apply_as(&admin, "alpha", dep, &config(&["a", "b", "c"])).await;
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": [{"name": "x", "image": "i"}]}}}});
    apply_as(&admin, "beta", dep, &other).await;
    let turned = apply_as(&admin, "alpha", dep, &config(&["c", "a", "b"])).await;
    let order: Vec<&str> = turned.body["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        order.iter().filter(|n| **n != "x").collect::<Vec<_>>(),
        [&"c", &"a", &"b"],
        "the configuration's order"
    );
    assert!(order.contains(&"x"));
}

/// A configuration may empty what it owns by null or by an empty container. Nothing is left then but
/// a null, and whether that may be is for the schema to say.
#[tokio::test]
async fn what_a_configuration_empties_is_null() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let inner = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
    let mut nullable = inner.clone();
    nullable["nullable"] = json!(true);
    let list = json!({"type": "array", "nullable": true, "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let defaulted = json!({"type": "object", "default": {"a": "x"}, "properties": {"a": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {"free": nullable, "held": inner, "set": list, "filled": defaulted}});
    install(&admin, &definition("widgets", "Widget", spec)).await;
    let path = format!("{WIDGETS}/w");
    let full = widget(
        "w",
        json!({"free": {"a": "1"}, "held": {"a": "1"}, "set": ["x"], "filled": {"a": "z"}}),
    );
    let refused = "spec.held FieldValueTypeInvalid: Invalid value: \"null\": spec.held in body must be of type object: \"null\"";
    for (config, wanted) in [
        (
            json!({"free": null}),
            Ok(json!({"free": null, "filled": {"a": "x"}})),
        ),
        (
            json!({"free": {}}),
            Ok(json!({"free": null, "filled": {"a": "x"}})),
        ),
        (
            json!({"set": null}),
            Ok(json!({"set": null, "filled": {"a": "x"}})),
        ),
        (json!({"filled": null}), Ok(json!({"filled": {"a": "x"}}))),
        (json!({"held": null}), Err(refused)),
        (json!({"held": {}}), Err(refused)),
    ] {
        let whole = apply_as(&admin, "alpha", &path, &full).await;
        assert!(whole.code < 300, "{}", whole.body);
        let reply = apply_as(&admin, "alpha", &path, &widget("w", config.clone())).await;
        match wanted {
            Ok(spec) => assert_eq!(reply.body["spec"], spec, "{config}"),
            Err(cause) => assert_eq!(
                (reply.code, causes(&reply)),
                (422, vec![cause.to_owned()]),
                "{config}"
            ),
        }
    }
}
