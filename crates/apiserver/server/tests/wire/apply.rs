// SPDX-License-Identifier: Apache-2.0
//! Server-side apply over the wire: who owns what, who may change it, and what is said when two want
//! the same.

use crate::applying::*;
use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::json;

#[tokio::test]
async fn applying_creates_and_records_exactly_what_was_said() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut config = cm(json!({"k": "v"}));
    config["metadata"]["labels"] = json!({"l": "1"});
    config["metadata"]["finalizers"] = json!(["example.com/f"]);
    let reply = apply_as(&admin, "alpha", &format!("{MAPS}/a"), &config).await;
    assert_eq!(reply.code, 201);
    let stamp = reply.body["metadata"]["creationTimestamp"].clone();
    assert_eq!(
        reply.body["metadata"]["managedFields"],
        json!([{"manager": "alpha", "operation": "Apply", "apiVersion": "v1", "time": stamp, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}},
                "f:metadata": {"f:finalizers": {"v:\"example.com/f\"": {}}, "f:labels": {"f:l": {}}}}}])
    );
    let again = apply_as(&admin, "alpha", &format!("{MAPS}/a"), &config).await;
    assert_eq!(
        (again.code, rv(&again.body)),
        (200, rv(&reply.body)),
        "nothing changed"
    );
    assert_eq!(again.body, reply.body);
}

#[tokio::test]
async fn lists_of_maps_are_owned_by_key_and_nobody_owns_defaults() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let config = deployment(
        json!([{"name": "a", "image": "i:1", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "1"}]}]),
    );
    let reply = apply_as(&admin, "alpha", &format!("{DEPLOYMENTS}/d"), &config).await;
    assert_eq!(reply.code, 201, "{}", reply.body);
    assert_eq!(reply.body["spec"]["replicas"], 1, "defaulted");
    let fields = &managed(&reply.body, "alpha", None)["fieldsV1"];
    assert_eq!(
        fields,
        &json!({"f:spec": {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {
            "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {},
                "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}})
    );
}

#[tokio::test]
async fn creating_records_an_update_with_dots() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let reply = admin
        .send(
            Method::POST,
            MAPS,
            &[
                ("content-type", "application/json"),
                ("user-agent", "mytool/v1.2 (x)"),
            ],
            labelled("a", json!({"l": "1"})).to_string(),
        )
        .await;
    let entry = managed(&reply.body, "mytool", None);
    assert_eq!(entry["operation"], "Update", "{}", reply.body);
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}})
    );
}

#[tokio::test]
async fn contested_fields_are_conflicts() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    apply_as(&admin, "alpha", &path, &cm(json!({"a": "1", "b": "1", "c": "1"}))).await;
    let one = apply_as(&admin, "beta", &path, &cm(json!({"a": "2"}))).await;
    assert_eq!((one.code, one.reason()), (409, "Conflict"));
    assert_eq!(
        one.message(),
        "Apply failed with 1 conflict: conflict with \"alpha\": .data.a"
    );
    assert_eq!(
        one.body["details"],
        json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"alpha\"", "field": ".data.a"}]})
    );
    assert_eq!(one.body["status"], "Failure");
    let two = apply_as(&admin, "beta", &path, &cm(json!({"a": "2", "b": "2"}))).await;
    assert_eq!(
        two.message(),
        "Apply failed with 2 conflicts: conflicts with \"alpha\":\n- .data.a\n- .data.b"
    );
    assert_eq!(two.body["details"]["causes"].as_array().unwrap().len(), 2);
    // An update takes what it changes, and its description names the version.
    let changed = admin
        .merge(&format!("{path}?fieldManager=hand"), &json!({"data": {"c": "2"}}))
        .await;
    assert_eq!(changed.code, 200);
    let both = apply_as(&admin, "beta", &path, &cm(json!({"a": "2", "c": "3"}))).await;
    assert_eq!(
        both.message(),
        "Apply failed with 2 conflicts: conflicts with \"alpha\":\n- .data.a\nconflicts with \"hand\" using v1:\n- .data.c"
    );
    let alone = apply_as(&admin, "gamma", &path, &cm(json!({"c": "3"}))).await;
    assert_eq!(
        alone.message(),
        "Apply failed with 1 conflict: conflict with \"hand\" using v1: .data.c"
    );
}

#[tokio::test]
async fn the_same_value_is_shared() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    apply_as(&admin, "alpha", &path, &cm(json!({"a": "1"}))).await;
    let shared = apply_as(&admin, "beta", &path, &cm(json!({"a": "1", "b": "1"}))).await;
    assert_eq!(shared.code, 200);
    assert_eq!(entries(&shared.body), ["Apply alpha", "Apply beta"]);
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let left = apply_as(&admin, "alpha", &path, &bare).await;
    assert_eq!(
        left.body["data"],
        json!({"a": "1", "b": "1"}),
        "beta still wants it"
    );
    assert_eq!(
        entries(&left.body),
        ["Apply beta"],
        "an entry without fields vanishes"
    );
    let gone = apply_as(&admin, "beta", &path, &cm(json!({"b": "1"}))).await;
    assert_eq!(gone.body["data"], json!({"b": "1"}), "nobody wants it any more");
    // A change of a shared value is a conflict with the other owner.
    apply_as(&admin, "alpha", &path, &cm(json!({"b": "1"}))).await;
    let contested = apply_as(&admin, "alpha", &path, &cm(json!({"b": "2"}))).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"beta\": .data.b"
    );
}

#[tokio::test]
async fn force_moves_ownership() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    apply_as(&admin, "alpha", &path, &cm(json!({"a": "1", "b": "1"}))).await;
    let forced = apply_as(
        &admin,
        "beta",
        &format!("{path}?force=true"),
        &cm(json!({"a": "2"})),
    )
    .await;
    assert_eq!((forced.code, &forced.body["data"]["a"]), (200, &json!("2")));
    assert_eq!(
        managed(&forced.body, "alpha", None)["fieldsV1"],
        json!({"f:data": {"f:b": {}}})
    );
    assert_eq!(
        managed(&forced.body, "beta", None)["fieldsV1"],
        json!({"f:data": {"f:a": {}}})
    );
    let loser = apply_as(&admin, "alpha", &path, &cm(json!({"a": "1", "b": "1"}))).await;
    assert_eq!(
        loser.message(),
        "Apply failed with 1 conflict: conflict with \"beta\": .data.a"
    );
}

#[tokio::test]
async fn composite_keys_are_written_out() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{DEPLOYMENTS}/d");
    let with = |name: &str| {
        deployment(json!([{"name": "a", "image": "i", "ports": [{"containerPort": 80, "name": name}]}]))
    };
    apply_as(&admin, "alpha", &path, &with("http")).await;
    let contested = apply_as(&admin, "beta", &path, &with("web")).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"alpha\": .spec.template.spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"].name"
    );
}

#[tokio::test]
async fn objects_nobody_tracked_belong_to_before_first_apply() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    admin
        .post(
            &format!("{MAPS}?fieldManager=maker"),
            &cm(json!({"a": "1", "b": "1"})),
        )
        .await;
    // Nobody owns anything any more: an empty list says so, and so does an empty entry.
    for (way, nobody) in [("alone", json!([])), ("together", json!([{}]))] {
        let cleared = admin
            .merge(&path, &json!({"metadata": {"managedFields": nobody}}))
            .await;
        assert_eq!(cleared.code, 200, "{}", cleared.body);
        assert!(
            cleared.body["metadata"].get("managedFields").is_none(),
            "{way}: {}",
            cleared.body
        );
    }
    let contested = apply_as(&admin, "alpha", &path, &cm(json!({"a": "2"}))).await;
    assert_eq!(
        contested.message(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let fine = apply_as(&admin, "alpha", &path, &cm(json!({"a": "1"}))).await;
    assert_eq!(entries(&fine.body), ["Apply alpha", "Update before-first-apply"]);
    assert_eq!(
        managed(&fine.body, "before-first-apply", None)["fieldsV1"],
        json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}})
    );
}

#[tokio::test]
async fn managed_fields_are_kept_cleared_and_checked() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let made = apply_as(&admin, "alpha", &path, &cm(json!({"a": "1"})))
        .await
        .body;
    let mut without = made.clone();
    without["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    let kept = admin.put(&path, &without).await;
    assert_eq!(
        (kept.code, &kept.body["metadata"]["managedFields"]),
        (200, &made["metadata"]["managedFields"]),
        "leaving them out keeps them"
    );
    assert_eq!(rv(&kept.body), rv(&made));
    let mut cleared = made.clone();
    cleared["metadata"]["managedFields"] = json!([{}]);
    let cleared = admin.put(&path, &cleared).await;
    assert_eq!(cleared.code, 200, "{}", cleared.body);
    assert!(
        cleared.body["metadata"].get("managedFields").is_none(),
        "{}",
        cleared.body
    );
    let patched = apply_as(&admin, "alpha", &path, &cm(json!({"a": "1"}))).await;
    assert_eq!(patched.code, 200);
    let by_patch = admin
        .json_patch(
            &path,
            &json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
        )
        .await;
    assert!(
        by_patch.body["metadata"].get("managedFields").is_none(),
        "{}",
        by_patch.body
    );
    let mut with = cm(json!({"a": "1"}));
    with["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let refused = apply_as(&admin, "alpha", &path, &with).await;
    assert_eq!(
        (refused.code, refused.message()),
        (400, "metadata.managedFields must be nil")
    );
}

#[tokio::test]
async fn configurations_that_do_not_fit_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let no_manager = admin.apply(&path, &cm(json!({}))).await;
    assert_eq!((no_manager.code, no_manager.reason()), (422, "Invalid"));
    assert_eq!(
        no_manager.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let mut other = cm(json!({}));
    other["kind"] = json!("Secret");
    let kind = apply_as(&admin, "alpha", &path, &other).await;
    assert_eq!(kind.code, 400, "{}", kind.body);
    assert!(
        kind.message().contains("invalid object type: /v1, Kind=Secret"),
        "{}",
        kind.message()
    );
    let mut named = cm(json!({}));
    named["metadata"]["name"] = json!("b");
    let name = apply_as(&admin, "alpha", &path, &named).await;
    assert_eq!(
        (name.code, name.message()),
        (
            400,
            "the name of the object (b) does not match the name on the URL (a)"
        )
    );
    let mut with_uid = cm(json!({}));
    with_uid["metadata"]["uid"] = json!("aaaa");
    let uid = apply_as(&admin, "alpha", &path, &with_uid).await;
    assert_eq!((uid.code, uid.reason()), (409, "Conflict"));
    assert!(
        uid.message().contains(
            "uid mismatch: the provided object specified uid aaaa, and no existing object was found"
        ),
        "{}",
        uid.message()
    );
    let force = admin.merge(&format!("{path}?force=true"), &json!({})).await;
    assert_eq!(force.code, 422);
    assert!(
        force
            .message()
            .contains("force: Forbidden: may not be specified for non-apply patch"),
        "{}",
        force.message()
    );
    let strict = apply_as(
        &admin,
        "alpha",
        &format!("{path}?fieldValidation=Strict"),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "foo": 1}),
    )
    .await;
    assert_eq!(strict.code, 400, "{}", strict.body);
    assert!(
        strict.message().contains("unknown field \"foo\"")
            || strict.message().contains(".foo: field not declared in schema"),
        "{}",
        strict.message()
    );
    let duplicate = apply_as(
        &admin,
        "alpha",
        &format!("{DEPLOYMENTS}/d"),
        &deployment(json!([{"name": "a", "image": "1"}, {"name": "a", "image": "2"}])),
    )
    .await;
    assert!(matches!(duplicate.code, 400 | 422 | 500), "{}", duplicate.body);
    assert!(
        duplicate.message().contains("duplicate entries for key"),
        "{}",
        duplicate.message()
    );
}

#[tokio::test]
async fn a_version_in_the_configuration_is_a_lock() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    let made = apply_as(&admin, "alpha", &path, &cm(json!({"a": "1"})))
        .await
        .body;
    let mut pinned = cm(json!({"a": "2"}));
    pinned["metadata"]["resourceVersion"] = json!(rv(&made).to_string());
    assert_eq!(apply_as(&admin, "alpha", &path, &pinned).await.code, 200);
    let stale = apply_as(&admin, "alpha", &path, &{
        let mut p = pinned.clone();
        p["data"]["a"] = json!("3");
        p
    })
    .await;
    assert_eq!((stale.code, stale.reason()), (409, "Conflict"));
    assert_eq!(
        stale.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
}

#[tokio::test]
async fn updates_take_and_remove_ownership() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = format!("{MAPS}/a");
    apply_as(&admin, "alpha", &path, &cm(json!({"a": "1", "b": "1", "c": "1"}))).await;
    let changed = admin
        .merge(
            &format!("{path}?fieldManager=hand"),
            &json!({"data": {"a": "2", "b": null}}),
        )
        .await
        .body;
    assert_eq!(entries(&changed), ["Apply alpha", "Update hand"]);
    assert_eq!(
        managed(&changed, "alpha", None)["fieldsV1"],
        json!({"f:data": {"f:c": {}}})
    );
    assert_eq!(
        managed(&changed, "hand", None)["fieldsV1"],
        json!({"f:data": {"f:a": {}}})
    );
    // A new value of an own field moves no path but the time of the entry.
    let dry = apply_as(
        &admin,
        "alpha",
        &format!("{path}?dryRun=All"),
        &cm(json!({"c": "9"})),
    )
    .await;
    assert_eq!((dry.code, &dry.body["data"]["c"]), (200, &json!("9")));
    assert_eq!(admin.get(&path).await.body["data"]["c"], "1");
}

#[tokio::test]
async fn many_updaters_are_folded_into_ancient_changes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(&admin, MAPS, &cm(json!({"k": "0"}))).await;
    for n in 0..12 {
        admin
            .merge(
                &format!("{MAPS}/a?fieldManager=m{n:02}"),
                &json!({"data": {format!("k{n}"): "1"}}),
            )
            .await;
    }
    let object = admin.get(&format!("{MAPS}/a")).await.body;
    let all = entries(&object);
    assert_eq!(all.len(), 10, "{all:?}");
    assert!(all.contains(&"Update ancient-changes".to_owned()), "{all:?}");
}

#[tokio::test]
async fn apply_of_a_custom_resource_respects_its_schema() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 3},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "plain": {"type": "array", "items": {"type": "string"}}}});
    install(&admin, &definition("widgets", "Widget", spec)).await;
    let path = format!("{WIDGETS}/w");
    let made = apply_as(
        &admin,
        "alpha",
        &path,
        &widget("w", json!({"atomic": {"a": "1"}, "set": ["x"], "plain": ["p"]})),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["spec"]["size"], 3);
    assert_eq!(
        managed(&made.body, "alpha", None)["fieldsV1"],
        json!({"f:spec": {"f:atomic": {}, "f:plain": {}, "f:set": {"v:\"x\"": {}}}})
    );
    let second = apply_as(&admin, "beta", &path, &widget("w", json!({"set": ["y"]}))).await;
    assert_eq!(second.body["spec"]["set"], json!(["x", "y"]));
    let atomic = apply_as(
        &admin,
        "beta",
        &path,
        &widget("w", json!({"set": ["y"], "atomic": {"b": "1"}, "plain": ["q"]})),
    )
    .await;
    assert_eq!(
        atomic.message(),
        "Apply failed with 2 conflicts: conflicts with \"alpha\":\n- .spec.atomic\n- .spec.plain"
    );
    let removed = apply_as(
        &admin,
        "alpha",
        &path,
        &widget("w", json!({"atomic": {"a": "1"}, "plain": ["p"]})),
    )
    .await;
    assert_eq!(removed.body["spec"]["set"], json!(["y"]));
    let wrong = apply_as(&admin, "alpha", &path, &widget("w", json!({"size": "big"}))).await;
    assert!(matches!(wrong.code, 400 | 422 | 500), "{}", wrong.body);
}

#[tokio::test]
async fn yaml_is_as_good_as_json() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: \"yes\"\n";
    let reply = admin
        .send(
            Method::PATCH,
            &format!("{MAPS}/a?fieldManager=alpha"),
            &[("content-type", "application/apply-patch+yaml")],
            text,
        )
        .await;
    assert_eq!((reply.code, &reply.body["data"]["k"]), (201, &json!("yes")));
}
