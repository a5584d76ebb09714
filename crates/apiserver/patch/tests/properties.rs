// SPDX-License-Identifier: Apache-2.0
//! Laws of apply that hold for any configuration, and the promise that no JSON makes us panic.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod common;

use cobaltcore_patch::{
    ApplyRequest, FieldSet, Filter, PatchError, UpdateRequest, apply, json_patch, merge_patch,
    strategic_merge_patch, update,
};
use common::World;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        "[a-z$./:~\\-0-9]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(key(), inner, 0..5).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Names that mean something somewhere, so that random documents reach the interesting code.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("name"),
        Just("id"),
        Just("parts"),
        Just("routes"),
        Just("port"),
        Just("colors"),
        Just("limits"),
        Just("free"),
        Just("nested"),
        Just("labels"),
        Just("finalizers"),
        Just("managedFields"),
        Just("fieldsV1"),
        Just("manager"),
        Just("operation"),
        Just("apiVersion"),
        Just("fieldsType"),
        Just("time"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/finalizers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("containers"),
        Just("template"),
        Just("f:spec"),
        Just("."),
        Just("k:{\"id\":\"a\"}"),
        Just("v:1"),
        Just("op"),
        Just("path"),
        Just("from"),
        Just("value"),
    ]
    .prop_map(str::to_owned)
}

/// The spec of a widget; `side` keeps the names of two such specs apart.
fn spec(side: &'static str) -> impl Strategy<Value = Value> {
    let name = move |range: std::ops::Range<u8>| range.prop_map(move |i| format!("{side}{i}"));
    let part = (
        option::of(0..3_i32),
        vec(name(0..3), 0..3),
        btree_map(name(0..3), "[a-c]", 0..3),
    );
    (
        btree_map(name(0..4), part, 0..4),
        vec(name(0..4), 0..4),
        btree_map(name(0..4), 0..3_i32, 0..4),
        btree_map(name(0..3), btree_map(name(0..3), "[a-c]", 0..3), 0..3),
        btree_map(name(0..3), any_scalar(), 0..3),
    )
        .prop_map(|(parts, mut colors, limits, inner, free)| {
            colors.sort();
            colors.dedup();
            let parts: Vec<Value> = parts
                .into_iter()
                .map(|(id, (size, mut tags, notes))| {
                    tags.sort();
                    tags.dedup();
                    let mut part = json!({"id": id, "tags": tags, "notes": notes});
                    if let Some(size) = size {
                        part["size"] = json!(size);
                    }
                    part
                })
                .collect();
            json!({"parts": parts, "colors": colors, "limits": limits, "nested": {"inner": inner}, "free": free})
        })
}

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..9_i64).prop_map(Value::from),
        "[a-c]".prop_map(Value::from)
    ]
}

fn body(spec: &Value) -> Value {
    json!({"spec": spec})
}

/// An object without the order of its lists, empty or null containers and bookkeeping.
fn content(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: Map<String, Value> = map
                .iter()
                .filter(|(key, _)| *key != "managedFields")
                .map(|(key, value)| (key.clone(), content(value)))
                .filter(|(_, value)| !value.is_null())
                .filter(|(_, value)| !matches!(value, Value::Object(m) if m.is_empty()))
                .filter(|(_, value)| !matches!(value, Value::Array(a) if a.is_empty()))
                .collect();
            Value::Object(fields)
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(content).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(a in spec("s"), b in spec("s")) {
        let mut world = World::widgets();
        world.apply("one", body(&a));
        let first = world.force("two", body(&b));
        let writes = world.writes;
        let second = world.apply("two", body(&b));
        prop_assert_eq!(first, second);
        prop_assert_eq!(writes, world.writes);
    }

    #[test]
    fn appliers_of_different_things_commute(a in spec("a"), b in spec("b")) {
        let mut left = World::widgets();
        left.apply("one", body(&a));
        left.apply("two", body(&b));
        let mut right = World::widgets();
        right.apply("two", body(&b));
        right.apply("one", body(&a));
        prop_assert_eq!(content(left.live.as_ref().unwrap()), content(right.live.as_ref().unwrap()));
        prop_assert_eq!(left.fields("one"), right.fields("one"));
        prop_assert_eq!(left.fields("two"), right.fields("two"));
    }

    #[test]
    fn the_loser_of_a_forced_apply_conflicts_when_it_insists(a in spec("a"), before in 0..5_i64, after in 5..9_i64) {
        let mut mine = a.clone();
        mine["count"] = json!(before);
        let mut theirs = a;
        theirs["count"] = json!(after);
        let mut world = World::widgets();
        world.apply("loser", body(&mine));
        world.force("winner", body(&theirs));
        prop_assert_eq!(
            world.conflict("loser", body(&mine)),
            "Apply failed with 1 conflict: conflict with \"winner\": .spec.count"
        );
    }

    #[test]
    fn giving_up_everything_leaves_what_the_others_own(a in spec("a"), b in spec("b")) {
        let mut world = World::widgets();
        world.apply("stays", body(&b));
        let alone = content(world.live.as_ref().unwrap());
        world.apply("leaves", body(&a));
        world.apply("leaves", json!({}));
        prop_assert_eq!(content(world.live.as_ref().unwrap()), alone);
        prop_assert_eq!(world.managers(), vec!["stays".to_owned()]);
    }

    #[test]
    fn a_forced_apply_wins_everywhere(a in spec("s"), b in spec("s")) {
        let mut world = World::widgets();
        world.put("updater", body(&a));
        let live = world.force("applier", body(&b));
        let mut alone = World::widgets();
        let wanted = alone.apply("applier", body(&b));
        prop_assert_eq!(world.fields("applier"), alone.fields("applier"));
        for (key, value) in wanted["spec"]["limits"].as_object().unwrap() {
            prop_assert_eq!(&live["spec"]["limits"][key], value);
        }
    }

    #[test]
    fn field_sets_survive_encoding(a in spec("s")) {
        let mut world = World::widgets();
        world.put("m", body(&a));
        let fields = world.fields("m");
        let set = FieldSet::from_fields_v1(&fields).unwrap();
        prop_assert_eq!(set.to_fields_v1(), fields);
    }

    #[test]
    fn nothing_panics(old in any_json(), new in any_json(), patch in any_json(), deployment: bool, status: bool) {
        let schema = if deployment { common::deployment() } else { common::widget() };
        let filter = if status { Filter::only_status() } else { Filter::without_status() };
        let mut config = patch.clone();
        if let Value::Object(map) = &mut config {
            map.insert("apiVersion".to_owned(), json!("v1"));
            map.insert("kind".to_owned(), json!("K"));
        }
        let outcome = apply(ApplyRequest {
            live: Some(&old), config: &config, schema: &schema, versions: None, manager: "kubectl", api_version: "v1",
            kind: "K", subresource: None, force: false, filter: &filter, now: "2026-01-01T00:00:00Z",
        });
        if let Ok(applied) = outcome {
            prop_assert!(applied.object.is_object() || !old.is_object());
        }
        let mut updated = new.clone();
        update(
            UpdateRequest {
                old: Some(&old), schema: &schema, versions: None, manager: "m", api_version: "v1", subresource: None,
                blank: None,
                filter: &filter, now: "2026-01-01T00:00:00Z",
            },
            &mut updated,
        );
        let _ = strategic_merge_patch(&old, &patch, &schema);
        let _ = json_patch(&old, &patch);
        let _ = json_patch(&old, &json!([patch, {"op": "add", "path": "/spec/a", "value": new}]));
        let mut merged = old.clone();
        merge_patch(&mut merged, &patch);
        let _ = FieldSet::from_fields_v1(&patch);
    }

    #[test]
    fn a_json_patch_that_fails_leaves_the_document(document in any_json(), operations in vec(any_json(), 0..4)) {
        let before = document.clone();
        let result = json_patch(&document, &Value::Array(operations));
        prop_assert_eq!(before, document);
        let expected = matches!(result, Ok(_) | Err(PatchError::Operation { .. } | PatchError::BadRequest(_)));
        prop_assert!(expected, "{:?}", result);
    }
}
