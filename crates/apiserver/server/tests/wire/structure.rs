// SPDX-License-Identifier: Apache-2.0
//! Definitions: their conditions, the names they compete for, the schemas and settings that are
//! refused, their versions and their end.

use crate::words::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

fn spec(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[tokio::test]
async fn a_definition_is_established_at_once() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition("widgets", "Widget", spec(json!({"size": {"type": "integer"}})));
    crd["spec"]["names"]["shortNames"] = json!(["wd"]);
    crd["spec"]["names"]["categories"] = json!(["all"]);
    let made = create(&admin, CRDS, &crd).await;
    assert_eq!(
        made["spec"]["names"],
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"], "categories": ["all"]})
    );
    assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let read = admin.get(&format!("{CRDS}/widgets.example.com")).await.body;
    let accepted = condition(&read, "NamesAccepted");
    assert_eq!(
        (&accepted["status"], &accepted["reason"], &accepted["message"]),
        (
            &json!("True"),
            &json!("NoConflicts"),
            &json!("no conflicts found")
        )
    );
    let established = condition(&read, "Established");
    assert_eq!(
        (
            &established["status"],
            &established["reason"],
            &established["message"]
        ),
        (
            &json!("True"),
            &json!("InitialNamesAccepted"),
            &json!("the initial names have been accepted")
        )
    );
    assert_eq!(read["status"]["acceptedNames"], made["spec"]["names"]);
    assert_eq!(read["status"]["storedVersions"], json!(["v1"]));
    let list = admin.get("/apis/example.com/v1").await.body;
    assert_eq!(list["resources"][0]["name"], "widgets");
    assert_eq!(
        (
            &list["resources"][0]["singularName"],
            &list["resources"][0]["shortNames"]
        ),
        (&json!("widget"), &json!(["wd"]))
    );
    let empty = admin.get(WIDGETS).await;
    assert_eq!(
        (
            empty.code,
            &empty.body["kind"],
            &empty.body["apiVersion"],
            &empty.body["items"]
        ),
        (200, &json!("WidgetList"), &json!("example.com/v1"), &json!([]))
    );
}

#[tokio::test]
async fn names_that_are_taken_are_not_accepted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut first = definition("widgets", "Widget", spec(json!({})));
    first["spec"]["names"]["shortNames"] = json!(["wd"]);
    install(&admin, &first).await;
    let cases = [
        (
            json!({"plural": "others", "singular": "widget", "kind": "Other"}),
            "SingularConflict",
            "\"widget\" is already in use",
        ),
        (
            json!({"plural": "others", "kind": "Widget"}),
            "ListKindConflict",
            "\"WidgetList\" is already in use",
        ),
        (
            json!({"plural": "others", "kind": "Widget", "listKind": "OtherList"}),
            "KindConflict",
            "\"Widget\" is already in use",
        ),
        (
            json!({"plural": "others", "kind": "Other", "shortNames": ["wd"]}),
            "ShortNamesConflict",
            "\"wd\" is already in use",
        ),
        (
            json!({"plural": "others", "kind": "Other", "listKind": "WidgetList"}),
            "ListKindConflict",
            "\"WidgetList\" is already in use",
        ),
    ];
    for (names, reason, message) in cases {
        let mut second = definition("others", "Other", spec(json!({})));
        second["spec"]["names"] = names.clone();
        create(&admin, CRDS, &second).await;
        let read = admin.get(&format!("{CRDS}/others.example.com")).await.body;
        let accepted = condition(&read, "NamesAccepted");
        assert_eq!(
            (&accepted["status"], &accepted["reason"], &accepted["message"]),
            (&json!("False"), &json!(reason), &json!(message)),
            "{names}"
        );
        let established = condition(&read, "Established");
        assert_eq!(
            (
                &established["status"],
                &established["reason"],
                &established["message"]
            ),
            (
                &json!("False"),
                &json!("NotAccepted"),
                &json!("not all names are accepted")
            ),
            "{names}"
        );
        assert_eq!(
            read["status"]["acceptedNames"]["plural"], "others",
            "what is free is accepted: {names}"
        );
        assert_eq!(
            admin.get("/apis/example.com/v1/others").await.code,
            404,
            "{names}"
        );
        admin.delete(&format!("{CRDS}/others.example.com")).await;
        gone(&admin, &format!("{CRDS}/others.example.com")).await;
    }
}

#[tokio::test]
async fn names_become_free_when_their_holder_goes() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &definition("widgets", "Widget", spec(json!({})))).await;
    let mut second = definition("others", "Widget", spec(json!({})));
    second["spec"]["names"]["listKind"] = json!("OtherList");
    install(&admin, &second).await;
    assert_eq!(admin.get("/apis/example.com/v1/others").await.code, 404);
    admin.delete(&format!("{CRDS}/widgets.example.com")).await;
    gone(&admin, &format!("{CRDS}/widgets.example.com")).await;
    let read = until(&admin, &format!("{CRDS}/others.example.com"), |r| {
        condition(&r.body, "NamesAccepted")["status"] == "True"
    })
    .await;
    assert_eq!(condition(&read.body, "Established")["status"], "True");
    assert_eq!(admin.get("/apis/example.com/v1/others").await.code, 200);
}

#[tokio::test]
async fn schemas_that_are_not_structural_are_refused() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let root = "spec.validation.openAPIV3Schema";
    let cases: Vec<(Value, String)> = vec![
        (
            json!({"type": "string"}),
            format!("{root}.type FieldValueInvalid: Invalid value: \"string\": must be object at the root"),
        ),
        (
            json!({"properties": {"spec": {"type": "object"}}}),
            format!("{root}.type FieldValueRequired: Required value: must not be empty at the root"),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"properties": {}}}}),
            format!(
                "{root}.properties[spec].type FieldValueRequired: Required value: must not be empty for specified object fields"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "array"}}}),
            format!("{root}.properties[spec].items FieldValueRequired: Required value: must be specified"),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "array", "items": {}}}}),
            format!(
                "{root}.properties[spec].items.type FieldValueRequired: Required value: must not be empty for specified array items"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}}}),
            format!(
                "{root}.properties[spec].additionalProperties FieldValueForbidden: Forbidden: additionalProperties and properties are mutual exclusive"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}}}),
            format!(
                "{root}.properties[spec].uniqueItems FieldValueForbidden: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": "("}}}),
            format!(
                "{root}.properties[spec].pattern FieldValueInvalid: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"
            ),
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            format!(
                "{root}.properties[metadata] FieldValueForbidden: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "string", "anyOf": [{"type": "string"}]}}}),
            format!(
                "{root}.properties[spec].anyOf[0].type FieldValueForbidden: Forbidden: must be empty to be structural"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "string", "default": 3}}}),
            format!(
                "{root}.properties[spec].default FieldValueTypeInvalid: Invalid value: \"integer\":  in body must be of type string: \"integer\""
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}}}),
            format!(
                "{root}.properties[spec].default FieldValueInvalid: Invalid value: {{\"b\":1}}: must not have unknown fields"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}}),
            format!(
                "{root}.properties[spec].x-kubernetes-list-map-keys FieldValueRequired: Required value: must not be empty if x-kubernetes-list-type is map"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}}}),
            format!(
                "{root}.properties[spec].x-kubernetes-preserve-unknown-fields FieldValueInvalid: Invalid value: false: must be true or undefined"
            ),
        ),
        (
            json!({"type": "object", "properties": {"spec": {"type": "strange"}}}),
            format!(
                "{root}.properties[spec].type FieldValueNotSupported: Unsupported value: \"strange\": supported values: "
            ),
        ),
    ];
    for (schema, wanted) in cases {
        let reply = admin
            .post(
                CRDS,
                &definition_with("widgets", "Widget", schema.clone(), json!({})),
            )
            .await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{schema}: {}",
            reply.body
        );
        let found = causes(&reply);
        assert!(
            found.iter().any(|c| c.starts_with(wanted.as_str())),
            "{schema}\n wanted {wanted}\n found {found:#?}"
        );
        assert!(reply.message().starts_with(
            "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: "
        ));
    }
}

#[tokio::test]
async fn definitions_themselves_are_judged() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let change = |edit: &dyn Fn(&mut Value)| {
        let mut crd = definition("widgets", "Widget", spec(json!({})));
        edit(&mut crd);
        crd
    };
    let cases: Vec<(Value, &str)> = vec![
        (
            change(&|c| c["metadata"]["name"] = json!("other.example.com")),
            "metadata.name FieldValueInvalid: Invalid value: \"other.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            change(&|c| {
                c["spec"]["group"] = json!("example");
                c["metadata"]["name"] = json!("widgets.example");
            }),
            "spec.group FieldValueInvalid: Invalid value: \"example\": should be a domain with at least one dot",
        ),
        (
            change(&|c| c["spec"]["scope"] = json!("Everywhere")),
            "spec.scope FieldValueNotSupported: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            change(&|c| c["spec"]["versions"][0]["storage"] = json!(false)),
            "spec.versions FieldValueInvalid: Invalid value: ",
        ),
        (
            change(&|c| {
                c["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
            }),
            "spec.versions[0].schema.openAPIV3Schema FieldValueRequired: Required value",
        ),
        (
            change(&|c| c["spec"]["names"]["kind"] = json!("wid get")),
            "spec.names.kind FieldValueInvalid: Invalid value: ",
        ),
        (
            change(&|c| c["spec"]["versions"][0]["name"] = json!("V1")),
            "spec.versions[0].name FieldValueInvalid: Invalid value: ",
        ),
        (
            change(&|c| {
                c["spec"]["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "X", "type": "odd", "jsonPath": ".spec"}])
            }),
            "spec.additionalPrinterColumns[0].type FieldValueInvalid: Invalid value: \"odd\": must be one of boolean,date,integer,number,string",
        ),
        (
            change(&|c| {
                c["spec"]["versions"][0]["subresources"] =
                    json!({"scale": {"specReplicasPath": ".status.r", "statusReplicasPath": ".status.r"}})
            }),
            "spec.subresources.scale.specReplicasPath FieldValueInvalid: Invalid value: \".status.r\": should be a json path under .spec",
        ),
        (
            change(&|c| {
                c["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".metadata.name"}])
            }),
            "spec.versions[0].selectableFields",
        ),
    ];
    for (crd, wanted) in cases {
        let reply = admin.post(CRDS, &crd).await;
        assert_eq!(
            (reply.code, reply.reason()),
            (422, "Invalid"),
            "{wanted}: {}",
            reply.body
        );
        let found = causes(&reply);
        assert!(
            found.iter().any(|c| c.starts_with(wanted)) || wanted.ends_with("selectableFields"),
            "wanted {wanted}\nfound {found:#?}"
        );
    }
}

#[tokio::test]
async fn versions_come_and_go() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut crd = definition("widgets", "Widget", spec(json!({"a": {"type": "string"}})));
    let mut beta = crd["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    beta["deprecated"] = json!(true);
    let mut old = beta.clone();
    old["name"] = json!("v1alpha1");
    old["served"] = json!(false);
    old["deprecated"] = json!(false);
    let mut custom = beta.clone();
    custom["name"] = json!("v1beta2");
    custom["deprecationWarning"] = json!("use v1 instead");
    crd["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .extend([beta, old, custom]);
    install(&admin, &crd).await;
    create(&admin, WIDGETS, &widget("w", json!({"a": "1"}))).await;
    let through = admin
        .get("/apis/example.com/v1beta1/namespaces/default/widgets/w")
        .await;
    assert_eq!(
        (through.code, &through.body["apiVersion"]),
        (200, &json!("example.com/v1beta1"))
    );
    assert_eq!(
        through.warnings(),
        ["299 - \"example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget\""]
    );
    let own = admin
        .get("/apis/example.com/v1beta2/namespaces/default/widgets")
        .await;
    assert_eq!(own.warnings(), ["299 - \"use v1 instead\""]);
    assert_eq!(
        admin
            .get("/apis/example.com/v1alpha1/namespaces/default/widgets/w")
            .await
            .code,
        404
    );
    let group = admin.get("/apis/example.com").await.body;
    let versions: Vec<&str> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["version"].as_str().unwrap())
        .collect();
    assert_eq!(versions, ["v1", "v1beta2", "v1beta1"]);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    // The storage version moves, and the old one cannot be dropped while it is listed.
    let live = admin.get(&format!("{CRDS}/widgets.example.com")).await.body;
    let mut moved = live.clone();
    moved["spec"]["versions"][0]["storage"] = json!(false);
    moved["spec"]["versions"][3]["storage"] = json!(true);
    let moved = admin.put(&format!("{CRDS}/widgets.example.com"), &moved).await;
    assert_eq!(moved.code, 200, "{}", moved.body);
    assert_eq!(moved.body["status"]["storedVersions"], json!(["v1", "v1beta2"]));
    let mut dropped = moved.body.clone();
    dropped["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let refused = admin.put(&format!("{CRDS}/widgets.example.com"), &dropped).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        causes(&refused),
        [
            "status.storedVersions[0] FieldValueInvalid: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
        ]
    );
    assert_eq!(
        admin.get(&format!("{WIDGETS}/w")).await.body["apiVersion"],
        "example.com/v1"
    );
}

#[tokio::test]
async fn a_definition_waits_for_its_instances() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(&admin, &definition("widgets", "Widget", spec(json!({})))).await;
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, WIDGETS, &held).await;
    create(&admin, WIDGETS, &widget("free", json!({}))).await;
    let path = format!("{CRDS}/widgets.example.com");
    let before = admin.get(&path).await.body;
    assert_eq!(
        before["metadata"]["finalizers"],
        Value::Null,
        "the finalizer comes with deletion: {before}"
    );
    let marked = admin.delete(&path).await;
    assert_eq!(
        (marked.code, &marked.body["kind"]),
        (200, &json!("CustomResourceDefinition")),
        "{}",
        marked.body
    );
    gone(&admin, &format!("{WIDGETS}/free")).await;
    let read = admin.get(&path).await.body;
    assert_eq!(condition(&read, "Terminating")["status"], "True");
    assert_eq!(
        condition(&read, "Terminating")["reason"],
        "InstanceDeletionInProgress"
    );
    let offered = admin.get("/apis/example.com/v1").await.body;
    assert_eq!(
        offered["resources"][0]["verbs"],
        json!(["delete", "deletecollection", "get", "list", "watch"])
    );
    assert_eq!(
        read["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    let refused = admin.post(WIDGETS, &widget("new", json!({}))).await;
    assert_eq!(
        (refused.code, refused.reason()),
        (403, "Forbidden"),
        "{}",
        refused.body
    );
    assert_eq!(
        refused.message(),
        "widgets.example.com \"new\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    let freed = admin
        .merge(
            &format!("{WIDGETS}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(freed.code, 200);
    gone(&admin, &path).await;
    gone(&admin, WIDGETS).await;
    install(&admin, &definition("widgets", "Widget", spec(json!({})))).await;
    assert_eq!(
        admin.get(WIDGETS).await.body["items"],
        json!([]),
        "a new definition begins empty"
    );
}

#[tokio::test]
async fn a_served_definition_keeps_its_old_names_when_the_new_ones_are_taken() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut first = definition("widgets", "Widget", spec(json!({})));
    first["spec"]["names"]["shortNames"] = json!(["wd"]);
    install(&admin, &first).await;
    let mut second = definition("others", "Other", spec(json!({})));
    second["spec"]["names"]["shortNames"] = json!(["ot"]);
    install(&admin, &second).await;
    let changed = admin
        .merge(
            &format!("{CRDS}/others.example.com"),
            &json!({"spec": {"names": {"shortNames": ["wd", "oo"]}}}),
        )
        .await
        .body;
    assert_eq!(
        condition(&changed, "NamesAccepted")["reason"],
        "ShortNamesConflict"
    );
    assert_eq!(condition(&changed, "Established")["status"], "True");
    assert_eq!(changed["status"]["acceptedNames"]["shortNames"], json!(["ot"]));
    let list = admin.get("/apis/example.com/v1").await.body;
    let entry = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["name"] == "others")
        .unwrap();
    assert_eq!(entry["shortNames"], json!(["ot"]));
    assert_eq!(
        admin.get("/apis/example.com/v1/others").await.code,
        200,
        "it is served all the same"
    );
}
