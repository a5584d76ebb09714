// SPDX-License-Identifier: Apache-2.0
//! Typed reading: what is accepted, how it is rewritten, and the words of refusals.

use cobaltcore_builtins::{Kind, find, kinds};
use proptest::prelude::*;
use serde_json::{Value, json};

fn kind(group: &str, version: &str, plural: &str) -> &'static Kind {
    find(group, version, plural).unwrap_or_else(|| panic!("{group}/{version} {plural}"))
}

fn read(kind: &Kind, object: Value) -> Value {
    let mut object = object;
    kind.decode(&mut object).unwrap_or_else(|error| panic!("{error}"));
    object
}

#[test]
fn objects_are_rewritten_as_the_reference_prints_them() {
    let pod = kind("", "v1", "pods");
    let service = kind("", "v1", "services");
    let role = kind("rbac.authorization.k8s.io", "v1", "roles");
    let event = kind("", "v1", "events");
    let deployment = kind("apps", "v1", "deployments");
    for (kind, given, expected) in [
        (
            pod,
            json!({"metadata": {"name": "a", "labels": {"x": null}, "annotations": {}, "creationTimestamp": null},
                   "spec": {"nodeName": "", "hostNetwork": false, "terminationGracePeriodSeconds": 0,
                            "containers": [{"name": "c", "env": [], "securityContext": {}}],
                            "securityContext": {}, "tolerations": null}}),
            json!({"metadata": {"name": "a", "labels": {"x": ""}},
                   "spec": {"terminationGracePeriodSeconds": 0, "securityContext": {},
                            "containers": [{"name": "c", "resources": {}, "securityContext": {}}]},
                   "status": {}}),
        ),
        (
            service,
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {}}}),
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": 0}]},
                   "status": {"loadBalancer": {}}}),
        ),
        (
            role,
            json!({"metadata": {"name": "r"}, "rules": []}),
            json!({"metadata": {"name": "r"}, "rules": null}),
        ),
        (
            event,
            json!({"metadata": {"name": "e"}, "involvedObject": {}}),
            json!({"metadata": {"name": "e"}, "involvedObject": {}, "source": {}, "eventTime": null,
                   "firstTimestamp": null, "lastTimestamp": null, "reportingComponent": "", "reportingInstance": ""}),
        ),
        (
            deployment,
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 0, "paused": false, "selector": {"matchLabels": {"a": "b"}},
                   "template": {}}}),
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                   "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}}, "status": {}}),
        ),
    ] {
        let mut object = read(kind, given);
        kind.forget_unstored(&mut object);
        assert_eq!(object, expected, "{}", kind.kind);
    }
}

#[test]
fn quantities_times_and_bytes_are_normalised() {
    let pod = read(
        kind("", "v1", "pods"),
        json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}),
    );
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    let lease = read(
        kind("coordination.k8s.io", "v1", "leases"),
        json!({"spec": {"renewTime": "2024-05-06T09:08:07.123456+02:00"}}),
    );
    assert_eq!(lease["spec"]["renewTime"], "2024-05-06T07:08:07.123456Z");
    let secret = read(
        kind("", "v1", "secrets"),
        json!({"data": {"a": "aGk=\n", "b": null}}),
    );
    assert_eq!(secret["data"], json!({"a": "aGk=", "b": ""}));
}

#[test]
fn wrong_types_are_refused_in_the_decoders_words() {
    for (plural, group, object, message) in [
        (
            "configmaps",
            "",
            json!({"metadata": {"labels": "x"}}),
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            "configmaps",
            "",
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "configmaps",
            "",
            json!({"data": {"a": true}}),
            "json: cannot unmarshal bool into Go struct field ConfigMap.data of type string",
        ),
        (
            "deployments",
            "apps",
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "deployments",
            "apps",
            json!({"spec": {"replicas": 3_000_000_000_u64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "deployments",
            "apps",
            json!({"spec": {"replicas": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "pods",
            "",
            json!({"spec": {"containers": {"name": "a"}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "pods",
            "",
            json!({"spec": {"containers": ["a"]}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "pods",
            "",
            json!({"spec": {"restartPolicy": 1, "containers": []}}),
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            "pods",
            "",
            json!({"spec": "x"}),
            "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            "pods",
            "",
            json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "many"}}}]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "secrets",
            "",
            json!({"data": {"a": "not base64!"}}),
            "illegal base64 data at input byte 3",
        ),
        (
            "secrets",
            "",
            json!({"data": {"a": "YWJ"}}),
            "illegal base64 data at input byte 0",
        ),
        (
            "deployments",
            "apps",
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
            "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
    ] {
        let kind = kind(group, "v1", plural);
        let mut object = object;
        let error = kind.decode(&mut object).expect_err(message);
        assert_eq!(error.message, message);
        assert!(error.answer(kind).starts_with(&format!(
            "{0} in version \"v1\" cannot be handled as a {0}: ",
            kind.kind
        )));
    }
}

#[test]
fn unknown_fields_are_taken_out_and_named() {
    let mut pod = json!({"metadata": {"name": "a", "foo": 1},
        "spec": {"containers": [{"name": "c", "imagee": "x"}], "bar": {}}, "extra": true});
    let decoded = kind("", "v1", "pods").decode(&mut pod).expect("types are right");
    assert_eq!(
        decoded.unknown,
        ["metadata.foo", "spec.containers[0].imagee", "spec.bar", "extra"]
    );
    assert!(pod.get("extra").is_none() && pod["spec"].get("bar").is_none());
}

#[test]
fn schemas_inside_definitions_are_read_recursively() {
    let mut crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
        "type": "object", "maximum": 5.0, "bogus": 1,
        "properties": {"a": {"items": {"type": "string", "odd": 1}, "additionalProperties": true, "default": {"x": [1, null]}}},
    }}}]}});
    let decoded = kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .decode(&mut crd)
        .expect("types are right");
    assert_eq!(
        decoded.unknown,
        [
            "spec.versions[0].schema.openAPIV3Schema.properties.a.items.odd",
            "spec.versions[0].schema.openAPIV3Schema.bogus"
        ]
    );
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(schema["maximum"], json!(5));
    assert_eq!(
        schema["properties"]["a"]["default"],
        json!({"x": [1, null]}),
        "defaults are kept as written"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..100).prop_map(Value::from),
        "[a-z0-9.:/]{0,6}".prop_map(Value::from),
        Just(json!("10Mi")),
        Just(json!("2024-01-02T03:04:05Z")),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "name",
        "labels",
        "ports",
        "port",
        "selector",
        "matchLabels",
        "replicas",
        "resources",
        "limits",
        "cpu",
        "data",
        "rules",
        "verbs",
        "volumes",
        "emptyDir",
        "strategy",
        "type",
        "rollingUpdate",
        "env",
        "value",
        "image",
        "subjects",
        "webhooks",
        "roleRef",
        "x",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in: reading and defaulting a second time changes nothing, and no rule or
    /// printer stumbles over what passed.
    #[test]
    fn reading_and_defaulting_settle(object in any_json(), which in any::<prop::sample::Index>()) {
        let kind = which.get(kinds());
        let mut object = json!({"metadata": {"name": "a"}, "spec": object.clone(), "rules": object});
        if kind.decode(&mut object).is_ok() {
            let once = object.clone();
            let again = kind.decode(&mut object);
            prop_assert!(again.is_ok_and(|decoded| decoded.unknown.is_empty()));
            prop_assert_eq!(&object, &once, "reading {} twice", kind.kind);
            kind.default(&mut object);
            let defaulted = object.clone();
            kind.default(&mut object);
            prop_assert_eq!(&object, &defaulted, "defaulting {} twice", kind.kind);
            kind.prepare_create(&mut object);
            kind.validate_create(&object);
            kind.validate_update(&object, &defaulted, None);
            let now = jiff::Timestamp::UNIX_EPOCH;
            prop_assert_eq!(kind.row(&object, now).len(), kind.columns().len(), "{}", kind.kind);
        }
    }
}
