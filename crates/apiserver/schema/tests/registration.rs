// SPDX-License-Identifier: Apache-2.0
//! Definitions: what is refused when one is registered or changed, and what a good one becomes.

mod common;

use cobaltcore_schema::crd::{crd_warnings, unknown_fields};
use cobaltcore_schema::{compile, default_crd, validate_crd, validate_crd_update};
use common::{texts, widget_crd, yaml};
use serde_json::{Value, json};

const SCHEMA: &str = "spec.validation.openAPIV3Schema";

fn widget() -> Value {
    let mut crd = yaml(include_str!("fixtures/widget.yaml"));
    default_crd(&mut crd);
    crd
}

fn gadget() -> Value {
    let mut crd = yaml(include_str!("fixtures/gadget.yaml"));
    default_crd(&mut crd);
    crd
}

/// The widget with one place replaced.
fn changed(pointer: &str, value: Value) -> Value {
    let mut crd = widget();
    let (parent, key) = pointer.rsplit_once('/').expect("pointer");
    match crd.pointer_mut(parent).expect("parent") {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) => list[key.parse::<usize>().expect("index")] = value,
        other => panic!("{other}"),
    }
    crd
}

#[test]
fn good_definitions_pass() {
    assert_eq!(texts(&validate_crd(&widget())), [""; 0]);
    assert_eq!(texts(&validate_crd(&gadget())), [""; 0]);
}

#[test]
fn a_definition_becomes_a_kind() {
    let kind = compile(&widget()).expect("compiles");
    assert_eq!((kind.group.as_str(), kind.namespaced), ("g.example", true));
    assert_eq!(kind.names.list_kind, "WidgetList");
    assert_eq!(kind.names.short_names, ["wd"]);
    let v1 = kind.storage().expect("storage version");
    assert!(v1.status && v1.served && v1.deprecated.is_none());
    assert_eq!(
        v1.scale.as_ref().map(|s| s.spec_path.join(".")).as_deref(),
        Some("spec.replicas")
    );
    let object =
        json!({"spec": {"color": "red"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let cells: Vec<Value> = v1
        .columns
        .iter()
        .map(|c| c.cell(&object, &|_| String::new()))
        .collect();
    assert_eq!(cells, [json!("red"), json!("True")]);
    assert_eq!(
        v1.selectable.first().map(|s| (s.name.clone(), s.value(&object))),
        Some(("spec.color".into(), "red".into()))
    );
    let gadget = compile(&gadget()).expect("compiles");
    assert_eq!(
        gadget
            .version("v1alpha1")
            .and_then(|v| v.deprecated.clone())
            .as_deref(),
        Some("g.example/v1alpha1 Gadget is deprecated; use g.example/v1 Gadget")
    );
}

#[test]
fn each_rule_about_the_definition() {
    let no_storage = {
        let mut crd = changed("/spec/versions/0/storage", json!(false));
        crd["status"] = json!({});
        crd
    };
    let shown = "[{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]";
    for (crd, expected) in [
        (changed("/spec/group", json!("example")), vec![
            "metadata.name: Invalid value: \"widgets.g.example\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
        ]),
        (changed("/spec/scope", json!("Galaxy")), vec!["spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\""]),
        (changed("/spec/names/kind", json!("Wid_get")), vec!["spec.names.kind: Invalid value: \"Wid_get\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"]),
        (changed("/spec/names/listKind", json!("Widget")), vec!["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"]),
        (changed("/spec/preserveUnknownFields", json!(true)), vec![
            "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema",
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ]),
        (changed("/spec/versions/0/deprecationWarning", json!("old")), vec!["spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated versions"]),
        (changed("/spec/versions/0/schema", json!({})), vec![
            "spec.versions[0].schema.openAPIV3Schema: Required value",
            "spec.selectableFields: Invalid value: \"\": may only be set when validations.schema is included",
        ]),
        (no_storage, vec![
            Box::leak(format!("spec.versions: Invalid value: {shown}: must have exactly one version marked as storage version").into_boxed_str()),
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ]),
        (changed("/spec/versions/0/subresources/scale/specReplicasPath", json!(".status.replicas")), vec!["spec.subresources.scale.specReplicasPath: Invalid value: \".status.replicas\": should be a json path under .spec"]),
        (changed("/spec/versions/0/subresources/scale/statusReplicasPath", json!("")), vec!["spec.subresources.scale.statusReplicasPath: Required value"]),
        (changed("/spec/versions/0/additionalPrinterColumns/0", json!({"name": "", "type": "color", "jsonPath": "spec"})), vec![
            "spec.additionalPrinterColumns[0].name: Required value",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"color\": must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
        ]),
        (changed("/spec/versions/0/selectableFields", json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}, {"jsonPath": ".spec.tags"}, {"jsonPath": ".spec.none"}, {"jsonPath": ".spec.tags[0]"}])), vec![
            "spec.selectableFields[1].jsonPath: Duplicate value: \".spec.color\"",
            "spec.selectableFields[2].jsonPath: Invalid value: \".spec.tags\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[3].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not refer to a valid field",
            "spec.selectableFields[4].jsonPath: Invalid value: \".spec.tags[0]\": is an invalid path: array notation is not allowed",
        ]),
        (changed("/spec/conversion", json!({"strategy": "Webhook"})), vec![
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ]),
        (changed("/spec/conversion", json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v7"], "clientConfig": {"url": "http://a?b"}}})), vec![
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            "spec.conversion.webhookClientConfig.url: Invalid value: \"b\": query parameters are not permitted in the URL",
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v7\"]: must include at least one of v1, v1beta1",
        ]),
    ] {
        assert_eq!(texts(&validate_crd(&crd)), expected);
    }
}

#[test]
fn each_rule_about_the_schema() {
    for (spec, expected) in [
        (
            json!({"type": "object", "$ref": "x"}),
            vec![".properties[spec].$ref: Forbidden: $ref is not supported"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}}),
            vec![
                ".properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
            vec![
                ".properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            vec![".properties[spec].items: Forbidden: items must be a schema object and not an array"],
        ),
        (
            json!({"type": "text"}),
            vec![
                ".properties[spec].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            vec![
                ".properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            vec![
                ".properties[spec].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
            vec![
                ".properties[spec].x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            vec![
                ".properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            vec![
                ".properties[spec].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            vec![
                ".properties[spec].x-kubernetes-list-map-keys: Invalid value: [\"b\"]: entries must all be names of item properties",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            vec![
                ".properties[spec].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
            vec![".properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not specified"],
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb", "reason": "Because"}]}),
            vec![
                ".properties[spec].x-kubernetes-validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                ".properties[spec].x-kubernetes-validations[0].reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".b"}]}),
            vec![
                ".properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: \".b\": must be a valid path",
            ],
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self + 1"}]}),
            vec![
                ".properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self + 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: cel expression must evaluate to a bool",
            ],
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]}),
            vec![
                ".properties[spec].x-kubernetes-validations[0].messageExpression: Invalid value: {\"Rule\":\"true\",\"Message\":\"\",\"MessageExpression\":\"1\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: messageExpression must evaluate to a string",
            ],
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]}),
            vec![
                ".properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
            ],
        ),
        (
            json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}, "maxItems": 3}),
            vec![
                ".properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[spec]",
            ],
        ),
        (
            json!({"type": "integer", "default": "x"}),
            vec![
                ".properties[spec].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
    ] {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let mut crd = widget_crd(schema);
        let version = crd
            .pointer_mut("/spec/versions/0")
            .and_then(Value::as_object_mut)
            .expect("version");
        version.remove("selectableFields");
        let expected: Vec<String> = expected.iter().map(|e| format!("{SCHEMA}{e}")).collect();
        assert_eq!(texts(&validate_crd(&crd)), expected);
    }
}

#[test]
fn rules_that_do_not_compile_are_shown_with_their_place() {
    let mut crd = widget_crd(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.foo < 1"}]}}}),
    );
    crd.pointer_mut("/spec/versions/0")
        .and_then(Value::as_object_mut)
        .expect("version")
        .remove("selectableFields");
    let errors = texts(&validate_crd(&crd));
    let expected = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.foo \\u003c 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'foo'";
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors.first().is_some_and(|e| e.starts_with(expected)),
        "{errors:?}"
    );
    assert!(compile(&crd).is_err());
}

#[test]
fn expensive_rules_are_refused() {
    let rule = json!([{"rule": "self.all(a, self.all(b, a == b || a.contains(b)))"}]);
    let mut crd = widget_crd(
        json!({"type": "object", "properties": {"spec": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule}}}),
    );
    crd.pointer_mut("/spec/versions/0")
        .and_then(Value::as_object_mut)
        .expect("version")
        .remove("selectableFields");
    let errors = texts(&validate_crd(&crd));
    assert!(
        errors.iter().any(|e| e == "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"),
        "{errors:?}"
    );
    assert!(errors.iter().any(|e| e.starts_with("spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget")), "{errors:?}");
}

#[test]
fn different_schemas_are_named_by_version() {
    let mut crd = gadget();
    *crd.pointer_mut("/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/min")
        .expect("min") = json!({});
    assert_eq!(
        texts(&validate_crd(&crd)),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[min].type: Required value: must not be empty for specified object fields"
        ]
    );
}

#[test]
fn protected_groups_need_approval() {
    let mut crd = widget();
    crd["spec"]["group"] = json!("things.k8s.io");
    crd["metadata"]["name"] = json!("widgets.things.k8s.io");
    assert_eq!(
        texts(&validate_crd(&crd)),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    for (annotation, count) in [
        ("unapproved, testing", 0),
        ("https://github.com/kubernetes/kubernetes/pull/1", 0),
        ("yes", 1),
    ] {
        crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        assert_eq!(validate_crd(&crd).len(), count, "{annotation}");
    }
}

#[test]
fn updates_keep_what_identifies_the_kind() {
    let mut old = widget();
    old["metadata"]["resourceVersion"] = json!("1");
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    assert_eq!(texts(&validate_crd_update(&old, &old)), [""; 0]);
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Gizmo");
    assert_eq!(
        texts(&validate_crd_update(&new, &old)),
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Gizmo\": field is immutable"
        ]
    );
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = json!("v2");
    new["status"]["storedVersions"] = json!(["v1", "v2"]);
    assert_eq!(
        texts(&validate_crd_update(&new, &old)),
        [
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
        ]
    );
}

#[test]
fn unknown_keywords_and_formats_are_noticed() {
    let mut crd = widget();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["foo"] = json!(1);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["format"] =
        json!("paint");
    assert_eq!(
        unknown_fields(&crd),
        ["spec.versions[0].schema.openAPIV3Schema.properties.spec.foo"]
    );
    assert_eq!(crd_warnings(&crd, None), ["unrecognized format \"paint\""]);
    assert!(crd_warnings(&crd, Some(&crd)).is_empty());
}
