// SPDX-License-Identifier: Apache-2.0
//! Strategic merge patch: merging by key, every directive, and what is refused.
#![allow(clippy::unwrap_used)]

mod common;

use cobaltcore_patch::{PatchError, strategic_merge_patch};
use serde_json::{Value, json};

fn patched(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    strategic_merge_patch(object, patch, &common::deployment())
}

fn pod(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn maps_merge_and_null_deletes() {
    let cases = [
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        ),
        (
            json!({"metadata": {}}),
            json!({"metadata": {"labels": {"a": null, "b": "2"}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        ),
        (
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 2}}),
            json!({"spec": {"replicas": 2}}),
        ),
        (json!({"spec": {"replicas": 1}}), json!({"spec": null}), json!({})),
        (
            json!({"spec": {"replicas": 1}}),
            json!({"status": {"replicas": 1}}),
            json!({"spec": {"replicas": 1}, "status": {"replicas": 1}}),
        ),
    ];
    for (object, patch, expected) in cases {
        assert_eq!(patched(&object, &patch), Ok(expected), "{object} with {patch}");
    }
}

#[test]
fn map_directives() {
    let labels = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let cases = [
        (json!({"$patch": "replace", "c": "3"}), json!({"c": "3"})),
        (json!({"$patch": "delete"}), json!({})),
        (
            json!({"$retainKeys": ["b", "c"], "c": "3"}),
            json!({"b": "2", "c": "3"}),
        ),
    ];
    for (directive, expected) in cases {
        let result = patched(&labels, &json!({"metadata": {"labels": directive}}));
        assert_eq!(
            result,
            Ok(json!({"metadata": {"labels": expected}})),
            "{directive}"
        );
    }
    for unknown in ["merge", "whatever"] {
        let result = patched(
            &labels,
            &json!({"metadata": {"labels": {"$patch": unknown, "c": "3"}}}),
        );
        assert_eq!(
            result.map_err(|error| error.to_string()),
            Err(format!(
                "unknown patch type: {unknown} in map: map[$patch:{unknown} c:3]"
            ))
        );
    }
    assert_eq!(
        patched(&labels, &json!({"$patch": "replace", "kind": "X"})),
        Ok(json!({"kind": "X"}))
    );
    // A directive that meets nothing leaves nothing behind.
    assert_eq!(
        patched(
            &json!({"metadata": {}}),
            &json!({"metadata": {"labels": {"$patch": "delete"}}})
        ),
        Ok(json!({"metadata": {}}))
    );
}

#[test]
fn lists_of_maps_merge_by_key() {
    let object = pod(
        &json!({"containers": [{"name": "a", "image": "1", "command": ["x", "y"]}, {"name": "b", "image": "2"}]}),
    );
    let cases = [
        (
            json!([{"name": "a", "image": "9"}]),
            json!([{"name": "a", "image": "9", "command": ["x", "y"]}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "c", "image": "3"}]),
            json!([{"name": "c", "image": "3"}, {"name": "a", "image": "1", "command": ["x", "y"]}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "a", "command": ["z"]}]),
            json!([{"name": "a", "image": "1", "command": ["z"]}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "a", "command": null}]),
            json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "a", "$patch": "delete"}]),
            json!([{"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "zz", "$patch": "delete"}]),
            json!([{"name": "a", "image": "1", "command": ["x", "y"]}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"$patch": "replace"}, {"name": "n"}]),
            json!([{"name": "n"}]),
        ),
        (
            json!([{"name": "a", "$patch": "replace"}, {"name": "n"}]),
            json!([{"name": "n"}]),
        ),
        (
            json!([{"name": "b", "env": [{"name": "E", "value": "v"}]}, {"name": "c", "image": null}]),
            json!([{"name": "a", "image": "1", "command": ["x", "y"]}, {"name": "b", "image": "2", "env": [{"name": "E", "value": "v"}]}, {"name": "c"}]),
        ),
    ];
    for (containers, expected) in cases {
        let result = patched(&object, &pod(&json!({"containers": containers})));
        assert_eq!(result, Ok(pod(&json!({"containers": expected}))), "{containers}");
    }
}

#[test]
fn only_the_first_key_merges_ports() {
    let object =
        pod(&json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}));
    let patch =
        pod(&json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}));
    assert_eq!(patched(&object, &patch), Ok(patch.clone()));
}

#[test]
fn lists_of_scalars_unite_and_delete() {
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let cases = [
        (json!({"finalizers": ["c"]}), json!(["c", "a", "b"])),
        (json!({"finalizers": ["b", "c"]}), json!(["a", "b", "c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            json!(["b"]),
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["d"]}),
            json!(["d", "b"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["b", "a"]}),
            json!(["b", "a"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}),
            json!(["c", "a", "b"]),
        ),
    ];
    for (patch, expected) in cases {
        let result = patched(&object, &json!({"metadata": patch}));
        assert_eq!(
            result,
            Ok(json!({"metadata": {"finalizers": expected}})),
            "{patch}"
        );
    }
}

#[test]
fn the_order_directive_orders_and_leaves_the_others_in_place() {
    let names = |list: &[&str]| -> Value { list.iter().map(|n| json!({"name": n})).collect() };
    let cases: [[&[&str]; 4]; 4] = [
        [&["a", "b", "c"], &["c", "a"], &[], &["b", "c", "a"]],
        [&["a", "b", "c"], &["x", "b"], &["x"], &["x", "a", "b", "c"]],
        [&["a", "b"], &["b", "a", "n"], &["n"], &["b", "a", "n"]],
        [&["a"], &["a"], &[], &["a"]],
    ];
    for [live, order, patch, expected] in cases {
        let mut body = json!({"$setElementOrder/containers": names(order)});
        if !patch.is_empty() {
            body["containers"] = names(patch);
        }
        let result = patched(&pod(&json!({"containers": names(live)})), &pod(&body));
        assert_eq!(
            result,
            Ok(pod(&json!({"containers": names(expected)}))),
            "{live:?} ordered by {order:?}"
        );
    }
}

#[test]
fn new_elements_take_the_places_of_deleted_ones_when_ordered() {
    let cases = [
        (
            json!([{"name": "a"}, {"name": "b"}, {"name": "d"}]),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}],
                   "containers": [{"name": "c"}, {"name": "a", "$patch": "delete"}]}),
            json!([{"name": "b"}, {"name": "d"}, {"name": "c"}]),
        ),
        (
            json!([{"name": "a"}, {"name": "d"}]),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}],
                   "containers": [{"name": "b"}, {"name": "c"}, {"name": "a", "$patch": "delete"}]}),
            json!([{"name": "d"}, {"name": "b"}, {"name": "c"}]),
        ),
    ];
    for (live, patch, expected) in cases {
        let result = patched(&pod(&json!({"containers": live})), &pod(&patch));
        assert_eq!(result, Ok(pod(&json!({"containers": expected}))), "{patch}");
    }
}

#[test]
fn retain_keys_switches_a_volume_source() {
    let object = pod(&json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}));
    let patch =
        pod(&json!({"volumes": [{"$retainKeys": ["name", "emptyDir"], "name": "v", "emptyDir": {}}]}));
    assert_eq!(
        patched(&object, &patch),
        Ok(pod(&json!({"volumes": [{"name": "v", "emptyDir": {}}]})))
    );
    let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched(&object, &patch),
        Ok(json!({"spec": {"strategy": {"type": "Recreate"}}}))
    );
}

#[test]
fn directives_in_new_elements_are_fields() {
    let patch = pod(&json!({"volumes": [{"$retainKeys": ["name"], "name": "v", "emptyDir": null}]}));
    let object = pod(&json!({"volumes": [{"name": "w"}]}));
    let new = json!({"$retainKeys": ["name"], "name": "v"});
    assert_eq!(
        patched(&object, &patch),
        Ok(pod(&json!({"volumes": [new, {"name": "w"}]})))
    );
    assert_eq!(
        patched(&json!({}), &patch),
        Ok(pod(&json!({"volumes": [{"$retainKeys": ["name"], "name": "v"}]})))
    );
}

#[test]
fn other_lists_and_replace_maps_are_replaced() {
    let object = pod(&json!({"containers": [{"name": "a", "command": ["1", "2"]}]}));
    let patch = pod(&json!({"containers": [{"name": "a", "command": ["3"]}]}));
    assert_eq!(patched(&object, &patch), Ok(patch.clone()));
    let mut schema = common::object(&[("selector", common::map_of(common::text()))]);
    let mut selector = common::map_of(common::text());
    selector.patch.replace = true;
    schema.properties.insert("selector".to_owned(), selector.into());
    let result = strategic_merge_patch(
        &json!({"selector": {"a": "1"}}),
        &json!({"selector": {"b": "2"}}),
        &schema,
    );
    assert_eq!(result, Ok(json!({"selector": {"b": "2"}})));
}

#[test]
fn refusals_have_the_words_of_the_reference() {
    let object = pod(&json!({"containers": [{"name": "a", "image": "1"}]}));
    let finalizers = json!({"metadata": {"finalizers": ["a"], "labels": {"x": "y"}}});
    let cases = [
        (
            &object,
            pod(&json!({"containers": [{"image": "2"}]})),
            "map: map[image:2] does not contain declared merge key: name",
        ),
        (
            &object,
            pod(&json!({"containers": [{"$patch": "delete"}]})),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            &object,
            pod(&json!({"containers": [{"$patch": "merge", "name": "a"}]})),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            &object,
            pod(&json!({"containers": ["a"]})),
            "list element types are not identical: [[map[image:1 name:a]] [a]]",
        ),
        (
            &object,
            pod(&json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "c"}]})),
            "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
        (
            &object,
            pod(&json!({"$setElementOrder/containers": "x"})),
            "expected a []interface {}, but received a string",
        ),
        (
            &object,
            pod(&json!({"$setElementOrderX": []})),
            "invalid patch format of setElementOrder list",
        ),
        (
            &finalizers,
            json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}),
            "invalid patch format of primitive list",
        ),
        (
            &finalizers,
            json!({"metadata": {"labels": {"$retainKeys": "x"}}}),
            "invalid patch format of retainKeys",
        ),
        (
            &finalizers,
            json!({"metadata": {"labels": {"$retainKeys": ["x"], "z": "1"}}}),
            "invalid patch format of retainKeys",
        ),
        (
            &finalizers,
            json!({"metadata": {"finalizers": [["a"]]}}),
            "list element types are not identical: [[a] [[a]]]",
        ),
        (&finalizers, json!(["x"]), "invalid JSON document"),
    ];
    for (object, patch, text) in cases {
        assert_eq!(patched(object, &patch).unwrap_err().to_string(), text, "{patch}");
    }
}
