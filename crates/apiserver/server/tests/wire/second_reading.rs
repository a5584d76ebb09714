// SPDX-License-Identifier: Apache-2.0
//! What a second reading beside the reference brought up: empty lists that somebody owns, numbers of
//! replicas that nobody owns, owners named twice, and bodies that are no JSON in many ways.

use std::sync::Arc;

use cobaltcore_apiserver::testkit::TestServer;
use futures::FutureExt as _;
use http::Method;
use serde_json::{Value, json};

use super::hooks::World;
use super::requests::{DEPLOYMENTS, MAPS, call, deployment, map, told, widget};
use super::words::{CRDS, RBAC, definition, definition_with, install, managed};

/// An empty list of a field that is always there was set by whoever wrote it, and no stored object
/// tells it from none.
#[tokio::test]
async fn whoever_empties_a_list_owns_it() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let roles = format!("{RBAC}/namespaces/default/roles");
    for (name, given, owned) in [("a", json!([]), true), ("b", Value::Null, false)] {
        let body = json!({"metadata": {"name": name}, "rules": given});
        let made = admin.post(&format!("{roles}?fieldManager=me"), &body).await;
        assert_eq!(
            (made.code, &made.body["rules"]),
            (201, &Value::Null),
            "{}",
            made.body
        );
        let entries = made.body["metadata"]["managedFields"].as_array();
        assert_eq!(entries.is_some(), owned, "{}", made.body);
    }
    let mut crd = definition("widgets", "Widget", json!({"type": "object"}));
    crd["spec"]["versions"] = json!([]);
    let refused = admin.post(CRDS, &crd).await;
    assert!(
        told(&refused.body).contains(
            &"spec.versions: Invalid value: []: must have exactly one version marked as storage version"
                .to_owned()
        ),
        "{}",
        refused.body
    );
    let policies = json!({"scaleUp": {"policies": []}});
    let autoscaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "behavior": policies,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let refused = admin.post(path, &autoscaler).await;
    assert_eq!(
        told(&refused.body),
        ["spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"]
    );
}

/// Zero replicas are none given, and what nobody owns stays so until it is applied.
#[tokio::test]
async fn replicas_set_to_zero_belong_to_nobody() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let (object, scale) = (format!("{DEPLOYMENTS}/d"), format!("{DEPLOYMENTS}/d/scale"));
    let to = |n: i64| json!({"spec": {"replicas": n}});
    let through = format!("{scale}?fieldManager=scaler");
    admin.merge(&through, &to(3)).await;
    let owned = managed(&admin.get(&object).await.body, "scaler", Some("scale")).clone();
    assert_eq!(owned["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    for replicas in [0, 5] {
        assert_eq!(admin.merge(&through, &to(replicas)).await.code, 200);
        let now = admin.get(&object).await.body;
        assert_eq!(now["spec"]["replicas"], replicas);
        let text = now["metadata"]["managedFields"].to_string();
        assert!(!text.contains("scaler"), "{replicas}: {text}");
    }
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 7}});
    let refused = admin.apply(&format!("{scale}?fieldManager=other"), &config).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: .spec.replicas"
        )
    );
}

/// A Scale is read like any other object.
#[tokio::test]
async fn a_scale_is_read_as_strictly_as_an_object() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let scale = format!("{DEPLOYMENTS}/d/scale");
    let broken = admin.merge(&scale, &json!({"spec": {"replicas": 1.5}})).await;
    assert!(
        broken.message().ends_with(
            "json: cannot unmarshal number 1.5 into Go struct field ScaleSpec.spec.replicas of type int32"
        ),
        "{}",
        broken.body
    );
    let odd = json!({"spec": {"foo": 1}});
    let warned = admin.merge(&scale, &odd).await;
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"spec.foo\\\"\""]);
    let strict = admin
        .merge(&format!("{scale}?fieldValidation=Strict"), &odd)
        .await;
    assert_eq!(strict.code, 422, "{}", strict.body);
    let other = admin.merge(&scale, &json!({"metadata": {"uid": "x"}})).await;
    assert_eq!(
        (other.code, &other.body["details"]["kind"]),
        (409, &json!("deployments/scale"))
    );
    let foreign = admin
        .put(&scale, &json!({"kind": "Foo", "metadata": {"name": "d"}}))
        .await;
    assert_eq!(
        foreign.message(),
        "Foo in version \"v1\" cannot be handled as a Scale: no kind \"Foo\" is registered for version \"autoscaling/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    );
}

/// A custom resource without replicas has no Scale to show, but may be given some.
#[tokio::test]
async fn the_scale_of_a_custom_resource_needs_replicas() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let scale = json!({"subresources": {"status": {}, "scale": {
        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}});
    install(&admin, &definition_with("widgets", "Widget", schema, scale)).await;
    let widgets = super::words::WIDGETS;
    let mut empty = widget("w", 1);
    empty["spec"] = json!({});
    assert_eq!(admin.post(widgets, &empty).await.code, 201);
    let path = format!("{widgets}/w/scale");
    let refused = admin.get(&path).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            500,
            "Internal error occurred: the spec replicas field \".spec.size\" does not exist"
        )
    );
    let set = admin.merge(&path, &json!({"spec": {"replicas": 2}})).await;
    assert_eq!(
        (set.code, &set.body["spec"]["replicas"]),
        (200, &json!(2)),
        "{}",
        set.body
    );
    let text = admin.get(&format!("{widgets}/w")).await.body["metadata"]["managedFields"].to_string();
    assert!(!text.contains("scale"), "{text}");
}

/// Owners that differ in a word are two; a patch hears of those named twice when all is done.
#[tokio::test]
async fn only_owners_that_are_the_same_are_one() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u"});
    let with = |owners: Value| {
        let mut object = map("m");
        object["metadata"]["ownerReferences"] = owners;
        object
    };
    let dry = format!("{MAPS}?dryRun=All");
    let two = admin.post(&dry, &with(json!([owner("p"), owner("q")]))).await;
    assert_eq!(
        two.body["metadata"]["ownerReferences"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(two.warnings().is_empty(), "{:?}", two.warnings());
    let twice = json!([owner("p"), owner("p")]);
    let one = admin.post(&dry, &with(twice.clone())).await;
    assert_eq!(
        one.body["metadata"]["ownerReferences"].as_array().map(Vec::len),
        Some(1)
    );
    assert!(
        one.warnings()[0].contains("contains duplicate entries; API server"),
        "{:?}",
        one.warnings()
    );
    admin.post(MAPS, &map("m")).await;
    let patch = json!({"metadata": {"ownerReferences": twice}});
    let patched = admin.merge(&format!("{MAPS}/m?dryRun=All"), &patch).await;
    assert!(
        patched.warnings()[0].contains("contains duplicate entries after mutating admission happens;"),
        "{:?}",
        patched.warnings()
    );
}

/// Whoever left a name to the server is told to come again.
#[tokio::test]
async fn a_name_that_might_have_been_made_up_may_be_asked_for_again() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let both = json!({"metadata": {"name": "m", "generateName": "m-"}});
    assert_eq!(admin.post(MAPS, &both).await.code, 201);
    let taken = admin.post(MAPS, &both).await;
    assert_eq!(
        (taken.code, taken.message()),
        (
            409,
            "configmaps \"m\" already exists, the server was not able to generate a unique name for the object"
        )
    );
    assert_eq!(taken.body["details"]["retryAfterSeconds"], 1);
    assert_eq!(taken.headers["retry-after"], "1");
    let named = admin.post(MAPS, &map("m")).await;
    assert_eq!(named.message(), "configmaps \"m\" already exists");
}

/// What is asked of a form and of a body, to the last parameter.
#[tokio::test]
async fn forms_nobody_has_are_refused_by_name() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(MAPS, &map("m")).await;
    let one = format!("{MAPS}/m");
    for (path, accept, message) in [
        (
            MAPS,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            &one,
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
        (
            &one,
            "application/json;g=x",
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            &one,
            "application/yaml;stream=watch",
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            MAPS,
            "text/html",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch",
        ),
    ] {
        let reply = admin.send(Method::GET, path, &[("accept", accept)], "").await;
        assert_eq!((reply.code, reply.message()), (406, message), "{accept}");
    }
    let odd = call(&admin, "POST", MAPS, "application/json; x", "{}").await;
    assert_eq!(odd.code, 415, "{}", odd.body);
    for method in [Method::OPTIONS, Method::POST, Method::DELETE] {
        let groups = admin.send(method, "/apis/apps", &[], "").await;
        assert_eq!((groups.code, &groups.body["kind"]), (200, &json!("APIGroup")));
    }
    let known = admin.get(&one).await;
    assert!(known.headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    assert!(known.headers.contains_key("x-kubernetes-pf-prioritylevel-uid"));
}

/// A PUT that means another object is told so before anything else of it is judged.
#[tokio::test]
async fn a_put_is_for_the_object_of_its_path() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition("widgets", "Widget", json!({"type": "object"})),
    )
    .await;
    let path = format!("{}/w", super::words::WIDGETS);
    let mut other = widget("v", 1);
    other["kind"] = json!("Foo");
    assert_eq!(
        admin.put(&path, &other).await.message(),
        "the name of the object (v) does not match the name on the URL (w)"
    );
    let mut elsewhere = widget("v", 1);
    elsewhere["metadata"]["namespace"] = json!("zz");
    assert_eq!(
        admin.put(&path, &elsewhere).await.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

/// Answers of a webhook that are no reviews are told apart.
#[tokio::test]
async fn an_answer_under_another_name_is_not_read() {
    let world = World::new().await;
    let rule = super::hooks::rule("", &["configmaps"], &["CREATE"]);
    for (path, envelope, why) in [
        (
            "/kind",
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "Foo"}),
            "no kind \"Foo\" is registered for version \"admission.k8s.io/v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"",
        ),
        (
            "/old",
            json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
    ] {
        let handler: cobaltcore_apiserver::WebhookHandler = Arc::new(move |_| {
            let mut answer = envelope.clone();
            answer["response"] = json!({"allowed": true});
            async move { answer }.boxed()
        });
        world
            .server
            .server()
            .register_webhook("hooks", "test", path, handler);
        let name = path.trim_start_matches('/');
        world.validating(name, path, rule.clone(), json!({})).await;
        let refused = world.admin().post(MAPS, &map("m")).await;
        assert_eq!(
            refused.message(),
            format!(
                "Internal error occurred: failed calling webhook \"{name}.hooks.example\": failed to call webhook: {why}"
            )
        );
        let configuration = format!(
            "{}/validatingwebhookconfigurations/{name}",
            super::hooks::REGISTRATION
        );
        world.admin().delete(&configuration).await;
    }
}

/// What has no name is allowed to nobody, and the refusal says as much.
#[tokio::test]
async fn a_method_without_a_verb_is_refused_without_one() {
    let server = TestServer::start_with_rbac().await;
    let bob = server.as_user("bob", &[]);
    let refused = bob.send(Method::OPTIONS, MAPS, &[], "").await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "configmaps is forbidden: User \"bob\" cannot  resource \"configmaps\" in API group \"\" in the namespace \"default\""
        )
    );
}

/// Without a webhook another version is the same object as far as that version knows it, and what is
/// not given is filled in as the version it is stored in would have it.
#[tokio::test]
async fn a_version_shows_what_it_knows() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition(
        "widgets",
        "Widget",
        json!({"type": "object", "properties": {"a": {"type": "string"}, "c": {"type": "string", "default": "cc"}}}),
    );
    let mut other = crd["spec"]["versions"][0].clone();
    other["name"] = json!("v2");
    other["storage"] = json!(false);
    let fields = &mut other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    *fields = json!({"a": {"type": "string"}, "z": {"type": "string", "default": "zz"}});
    crd["spec"]["versions"].as_array_mut().unwrap().push(other);
    install(&admin, &crd).await;
    let (first, second) = (
        super::words::WIDGETS,
        "/apis/example.com/v2/namespaces/default/widgets",
    );
    let made = admin
        .post(first, &super::words::widget("w", json!({"a": "1"})))
        .await;
    assert_eq!(made.body["spec"], json!({"a": "1", "c": "cc"}));
    let seen = admin.get(&format!("{second}/w")).await;
    assert_eq!(seen.body["spec"], json!({"a": "1"}));
    let list = admin.get(second).await;
    assert_eq!(list.body["items"][0]["spec"], json!({"a": "1"}));
    let mut new = super::words::widget("v", json!({"a": "2"}));
    new["apiVersion"] = json!("example.com/v2");
    assert_eq!(admin.post(second, &new).await.body["spec"], json!({"a": "2"}));
    let stored = admin.get(&format!("{first}/v")).await;
    assert_eq!(stored.body["spec"], json!({"a": "2", "c": "cc"}));
}

/// A strategic patch is merged into the type itself, and does not fit for reasons of its own.
#[tokio::test]
async fn a_strategic_patch_that_does_not_fit_is_shown_itself() {
    let server = TestServer::start().await;
    let admin = server.admin();
    admin.post(DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    for (patch, told) in [
        (
            json!({"spec": {"replicas": "x"}}),
            "\"map[spec:map[replicas:x]]\": unrecognized type: int32",
        ),
        (
            json!({"metadata": {"labels": {"n": 1}}}),
            "\"map[metadata:map[labels:map[n:1]]]\": cannot convert int64 to string",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": "x"}}}}),
            "\"map[spec:map[template:map[spec:map[containers:x]]]]\": cannot restore slice from string",
        ),
    ] {
        let refused = admin.strategic(&path, &patch).await;
        assert_eq!(
            (refused.code, refused.message()),
            (
                422,
                format!(" \"\" is invalid: patch: Invalid value: {told}").as_str()
            )
        );
    }
    let strict = format!("{path}?fieldValidation=Strict");
    let refused = admin.strategic(&strict, &json!({"spec": {"foo": 1}})).await;
    assert_eq!(
        refused.message(),
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[foo:1]]\": strict decoding error: unknown field \"spec.foo\""
    );
}
