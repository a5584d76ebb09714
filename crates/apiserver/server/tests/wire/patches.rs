// SPDX-License-Identifier: Apache-2.0
//! PUT and PATCH on the wire: what each kind of patch does, what it cannot do, and how unknown and
//! doubled fields are judged.

use crate::requests::*;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use serde_json::{Value, json};

async fn patch(admin: &Caller, path: &str, media: &str, body: &str) -> Reply {
    call(admin, "PATCH", path, media, body).await
}

#[tokio::test]
async fn json_patches_apply() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map_of("p", json!({"a": "1", "b": "2"}))).await;
    let p = format!("{MAPS}/p");
    for (body, data) in [
        (r"[]", json!({"a": "1", "b": "2"})),
        (
            r#"[{"op":"replace","path":"/data/a","value":"9"}]"#,
            json!({"a": "9", "b": "2"}),
        ),
        (
            r#"[{"op":"copy","from":"/data/a","path":"/data/c"},{"op":"move","from":"/data/b","path":"/data/d"}]"#,
            json!({"a": "9", "c": "9", "d": "2"}),
        ),
        (
            r#"[{"op":"test","path":"/data/a","value":"9"},{"op":"remove","path":"/data/c"}]"#,
            json!({"a": "9", "d": "2"}),
        ),
        (r#"[{"op":"add","path":"/data/x~1y","value":"1"}]"#, json!(null)),
        (
            r#"[{"op":"replace","path":"/data","value":{"only":"this"}}]"#,
            json!({"only": "this"}),
        ),
    ] {
        let reply = patch(&admin, &p, JSON_PATCH, body).await;
        if data.is_null() {
            assert_eq!(
                (reply.code, causes(&reply)[0].0.as_str()),
                (422, "data[x/y]"),
                "{body}"
            );
        } else {
            assert_eq!((reply.code, &reply.body["data"]), (200, &data), "{body}");
        }
    }
}

#[tokio::test]
async fn json_patches_that_do_not_apply() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map_of("p", json!({"a": "1"}))).await;
    let p = format!("{MAPS}/p");
    for body in [
        r#"[{"op":"test","path":"/data/a","value":"x"}]"#,
        r#"[{"op":"remove","path":"/data/zz"}]"#,
        r#"[{"op":"foo","path":"/data/a"}]"#,
        r#"[{"op":"add","path":"data","value":1}]"#,
        r#"[{"op":"add","path":"/metadata/annotations/a","value":"t"}]"#,
    ] {
        let reply = patch(&admin, &p, JSON_PATCH, body).await;
        assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{body}");
        assert_eq!(
            reply.message(),
            "the server rejected our request due to an error in our request",
            "{body}"
        );
    }
    for (body, message) in [
        (
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            "\"x\"",
            "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp",
        ),
    ] {
        assert_eq!(
            patch(&admin, &p, JSON_PATCH, body).await.body,
            failure(400, "BadRequest", message, None)
        );
    }
    assert_eq!(patch(&admin, &p, JSON_PATCH, "nope").await.code, 400);
    assert_eq!(patch(&admin, &p, JSON_PATCH, "[5]").await.code, 400);
    let many = format!(
        "[{}]",
        vec![r#"{"op":"test","path":"/data/a","value":"1"}"#; 10_001].join(",")
    );
    let reply = patch(&admin, &p, JSON_PATCH, &many).await;
    assert_eq!((reply.code, reply.reason()), (413, "RequestEntityTooLarge"));
    assert!(
        reply
            .message()
            .contains("The allowed maximum operations in a JSON patch is 10000, got 10001"),
        "{}",
        reply.message()
    );
}

#[tokio::test]
async fn identity_cannot_be_patched() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map_of("p", json!({"a": "1"}))).await;
    let p = format!("{MAPS}/p");
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    let nameless = "the name of the object (p based on URL) was undeterminable: name must be provided";
    for (body, message) in [
        (
            json!({"metadata": {"name": "q"}}),
            "the name of the object (q) does not match the name on the URL (p)",
        ),
        (json!({"metadata": {"namespace": "q"}}), namespace),
        (json!({"metadata": {"name": null}}), nameless),
        (json!({"metadata": null}), nameless),
    ] {
        assert_eq!(
            admin.merge(&p, &body).await.body,
            failure(400, "BadRequest", message, None),
            "{body}"
        );
    }
    let uid = admin.merge(&p, &json!({"metadata": {"uid": "u"}})).await;
    assert_eq!((uid.code, causes(&uid)[0].0.as_str()), (422, "metadata.uid"));
    assert_eq!(
        uid.message(),
        "ConfigMap \"p\" is invalid: metadata.uid: Invalid value: \"u\": field is immutable"
    );
    let dead = admin
        .merge(
            &p,
            &json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}),
        )
        .await;
    assert_eq!(
        (dead.code, causes(&dead)[0].0.as_str()),
        (422, "metadata.deletionTimestamp")
    );
    for body in [
        json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
        json!({"metadata": {"resourceVersion": null}}),
        json!({}),
    ] {
        let before = admin.get(&p).await;
        let reply = admin.merge(&p, &body).await;
        assert_eq!(
            (reply.code, &reply.body),
            (200, &before.body),
            "{body} changes nothing"
        );
    }
}

#[tokio::test]
async fn kinds_are_changed_by_no_patch() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("p")).await;
    let p = format!("{MAPS}/p");
    for (media, body) in [
        (MERGE_PATCH, r#"{"kind":"Secret"}"#),
        (MERGE_PATCH, r#"{"apiVersion":"v2"}"#),
        (
            JSON_PATCH,
            r#"[{"op":"replace","path":"/kind","value":"Secret"}]"#,
        ),
    ] {
        let reply = patch(&admin, &p, media, body).await;
        assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{body}");
        assert!(
            reply
                .message()
                .starts_with(" \"\" is invalid: patch: Invalid value: "),
            "{}",
            reply.message()
        );
        assert_eq!(
            causes(&reply),
            [("patch".to_owned(), "FieldValueInvalid".to_owned())]
        );
        assert_eq!(reply.body["details"].as_object().unwrap().len(), 1, "only causes");
    }
    let reply = patch(&admin, &p, STRATEGIC_PATCH, r#"{"kind":"Secret"}"#).await;
    assert_eq!(
        (reply.code, &reply.body["kind"]),
        (200, &json!("ConfigMap")),
        "merged into the type itself"
    );
}

#[tokio::test]
async fn results_that_do_not_decode_are_the_patch_s_fault() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map_of("p", json!({"a": "1"}))).await;
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let (p, d) = (format!("{MAPS}/p"), format!("{DEPLOYMENTS}/d"));
    for (path, media, body, ending) in [
        (
            &p,
            MERGE_PATCH,
            r#"{"data":{"a":5}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            &p,
            JSON_PATCH,
            r#"[{"op":"replace","path":"/data","value":"s"}]"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            &d,
            MERGE_PATCH,
            r#"{"spec":{"replicas":"x"}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
    ] {
        let reply = patch(&admin, path, media, body).await;
        assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{body}");
        assert!(
            reply
                .message()
                .starts_with(" \"\" is invalid: patch: Invalid value: \""),
            "{}",
            reply.message()
        );
        assert!(reply.message().ends_with(ending), "{}", reply.message());
        assert_eq!(
            causes(&reply),
            [("patch".to_owned(), "FieldValueInvalid".to_owned())]
        );
    }
    for (media, body, message) in [
        (
            MERGE_PATCH,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            STRATEGIC_PATCH,
            "[]",
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ] {
        assert_eq!(
            patch(&admin, &p, media, body).await.body,
            failure(400, "BadRequest", message, None)
        );
    }
}

#[tokio::test]
async fn strategic_merges_follow_their_directives() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let d = format!("{DEPLOYMENTS}/d");
    let containers = |reply: &Reply| -> Vec<String> {
        let list = reply.body["spec"]["template"]["spec"]["containers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.iter()
            .map(|c| format!("{}={}", c["name"].as_str().unwrap(), c["image"].as_str().unwrap()))
            .collect()
    };
    let spec = |inner: Value| json!({"spec": {"template": {"spec": inner}}});
    for (body, expected) in [
        (
            spec(json!({"containers": [{"name": "c", "image": "i2"}, {"name": "d", "image": "j"}]})),
            vec!["c=i2", "d=j"],
        ),
        (
            spec(
                json!({"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}], "containers": [{"name": "d", "image": "k"}]}),
            ),
            vec!["d=k", "c=i2"],
        ),
        (
            spec(json!({"containers": [{"name": "d", "$patch": "delete"}]})),
            vec!["c=i2"],
        ),
        (
            spec(json!({"containers": [{"$patch": "replace"}, {"name": "z", "image": "zz"}]})),
            vec!["z=zz"],
        ),
    ] {
        let reply = admin.strategic(&d, &body).await;
        assert_eq!(
            (reply.code, containers(&reply)),
            (200, expected.iter().map(ToString::to_string).collect()),
            "{body}"
        );
    }
    let reply = admin
        .strategic(
            &d,
            &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        )
        .await;
    assert_eq!(reply.body["spec"]["strategy"], json!({"type": "Recreate"}));
    let reply = admin
        .strategic(&d, &json!({"metadata": {"finalizers": ["a/b", "c/d"]}}))
        .await;
    assert_eq!(reply.body["metadata"]["finalizers"], json!(["a/b", "c/d"]));
    let reply = admin
        .strategic(
            &d,
            &json!({"metadata": {"finalizers": ["e/f"], "$deleteFromPrimitiveList/finalizers": ["a/b"]}}),
        )
        .await;
    assert_eq!(
        reply.body["metadata"]["finalizers"],
        json!(["e/f", "c/d"]),
        "lists of scalars are united, the patch's own first"
    );
    let reply = admin.strategic(&d, &json!({"spec": {"template": {"metadata": {"labels": {"$patch": "replace", "a": "b", "n": "m"}}}}})).await;
    assert_eq!(
        reply.body["spec"]["template"]["metadata"]["labels"],
        json!({"a": "b", "n": "m"})
    );
    made(&admin, DEFINITIONS, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let reply = admin
        .strategic(&format!("{WIDGETS}/w"), &json!({"spec": {"size": 2}}))
        .await;
    assert_eq!(
        (reply.code, reply.reason()),
        (415, "UnsupportedMediaType"),
        "custom resources have no strategies"
    );
    assert!(
        reply.message().contains(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    );
}

#[tokio::test]
async fn unknown_and_doubled_fields() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let body = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"st","name":"st","foo":1},"bar":2,"data":{"a":"1","a":"2"}}"#;
    let said = [
        r#"duplicate field "metadata.name""#,
        r#"unknown field "metadata.foo""#,
        r#"unknown field "bar""#,
        r#"duplicate field "data.a""#,
    ];
    let strict = call(
        &admin,
        "POST",
        &format!("{MAPS}?fieldValidation=Strict"),
        "application/json",
        body,
    )
    .await;
    let message = format!(
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: {}",
        said.join(", ")
    );
    assert_eq!(
        strict.body,
        failure(400, "BadRequest", &message, None),
        "in the order of the document"
    );
    for query in ["", "?fieldValidation=Warn"] {
        let reply = call(
            &admin,
            "POST",
            &format!("{MAPS}{query}"),
            "application/json",
            body,
        )
        .await;
        let warnings: Vec<String> = said
            .iter()
            .map(|s| format!("299 - \"{}\"", s.replace('"', "\\\"")))
            .collect();
        assert_eq!((reply.code, reply.warnings()), (201, warnings));
        assert_eq!(
            (&reply.body["data"]["a"], &reply.body["bar"]),
            (&json!("2"), &Value::Null),
            "the last one wins"
        );
        admin.delete(&format!("{MAPS}/st")).await;
    }
    let reply = call(
        &admin,
        "POST",
        &format!("{MAPS}?fieldValidation=Ignore"),
        "application/json",
        body,
    )
    .await;
    assert_eq!((reply.code, reply.warnings().len()), (201, 0));
    let st = format!("{MAPS}/st");
    let put = call(
        &admin,
        "PUT",
        &format!("{st}?fieldValidation=Strict"),
        "application/json",
        body,
    )
    .await;
    assert_eq!(put.body, failure(400, "BadRequest", &message, None));
    for (media, body, why) in [
        (MERGE_PATCH, r#"{"foo":1}"#, r#"unknown field "foo""#),
        (
            JSON_PATCH,
            r#"[{"op":"add","path":"/foo","value":1}]"#,
            r#"unknown field "foo""#,
        ),
        (
            STRATEGIC_PATCH,
            r#"{"metadata":{"foo":1}}"#,
            r#"unknown field "metadata.foo""#,
        ),
        (
            MERGE_PATCH,
            r#"{"data":{"a":"1","a":"2"}}"#,
            r#"duplicate field "data.a""#,
        ),
    ] {
        let reply = patch(&admin, &format!("{st}?fieldValidation=Strict"), media, body).await;
        assert_eq!((reply.code, reply.reason()), (422, "Invalid"), "{body}");
        assert!(
            reply
                .message()
                .ends_with(&format!("strict decoding error: {why}")),
            "{}",
            reply.message()
        );
        let reply = patch(&admin, &st, media, body).await;
        assert_eq!(
            (reply.code, reply.warnings()),
            (200, vec![format!("299 - \"{}\"", why.replace('"', "\\\""))]),
            "{body}"
        );
    }
}

#[tokio::test]
async fn replacing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let first = made(&admin, MAPS, &map_of("a", json!({"k": "v"}))).await;
    let a = format!("{MAPS}/a");
    let same = admin.put(&a, &map_of("a", json!({"k": "v"}))).await;
    assert_eq!(
        (same.code, version(&same.body)),
        (200, version(&first)),
        "nothing changed"
    );
    let next = admin.put(&a, &map("a")).await;
    assert_eq!((next.code, &next.body["data"]), (200, &Value::Null));
    assert_ne!(version(&next.body), version(&first));
    for (path, object) in [
        (format!("{LEASES}/new"), lease("new", "x")),
        (
            format!("{SERVICES}/new"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new"}, "spec": {"ports": [{"port": 1}]}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/new".to_owned(),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "new"}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/new".to_owned(),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "new"}}),
        ),
    ] {
        assert_eq!(
            admin.put(&path, &object).await.code,
            201,
            "{path} is created by PUT"
        );
    }
    let unpinned = admin.put(&format!("{LEASES}/new"), &lease("new", "y")).await;
    let message = "leases.coordination.k8s.io \"new\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    let details = json!({"group": "coordination.k8s.io", "kind": "leases", "name": "new", "causes": [
        cause("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]});
    assert_eq!(unpinned.body, failure(422, "Invalid", message, Some(details)));
    made(&admin, DEFINITIONS, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let unpinned = admin.put(&format!("{WIDGETS}/w"), &widget("w", 2)).await;
    assert_eq!(
        (unpinned.code, causes(&unpinned)[0].0.as_str()),
        (422, "metadata.resourceVersion")
    );
    assert_eq!(
        admin
            .put(&format!("{WIDGETS}/none"), &widget("none", 2))
            .await
            .code,
        404
    );
}

#[tokio::test]
async fn dry_runs_look_real_and_leave_nothing() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let before = server.writes().len();
    let reply = admin.post(&format!("{MAPS}?dryRun=All"), &map("a")).await;
    assert_eq!(reply.code, 201);
    assert!(
        reply.body["metadata"]["uid"].is_string() && reply.body["metadata"]["creationTimestamp"].is_string()
    );
    assert_eq!(reply.body["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(
        admin.post(&format!("{MAPS}?dryRun=All"), &map("BAD")).await.code,
        422,
        "everything is checked"
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
    assert_eq!(
        admin.post(&format!("{SERVICES}?dryRun=All"), &service).await.code,
        201
    );
    assert_eq!(server.writes().len(), before);
    let real = made(&admin, MAPS, &map("a")).await;
    let a = format!("{MAPS}/a");
    let patched = admin
        .merge(&format!("{a}?dryRun=All"), &json!({"data": {"k": "v"}}))
        .await;
    assert_eq!((patched.code, &patched.body["data"]["k"]), (200, &json!("v")));
    assert_eq!(
        admin
            .put(&format!("{a}?dryRun=All"), &map_of("a", json!({"z": "z"})))
            .await
            .code,
        200
    );
    assert_eq!(
        admin.delete(&format!("{a}?dryRun=All")).await.body["status"],
        "Success"
    );
    assert_eq!(admin.get(&a).await.body, real);
}

#[tokio::test]
async fn a_strategic_patch_without_its_key_has_no_reason() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"image": "other"}]}}}});
    let reply = admin.strategic(&format!("{DEPLOYMENTS}/d"), &patch).await;
    assert_eq!(
        reply.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
            "message": "map: map[image:other] does not contain declared merge key: name"})
    );
}
