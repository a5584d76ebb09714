// SPDX-License-Identifier: Apache-2.0
//! Ownership of writes that are no applies: creates, updates, patches, subresources.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod common;

use cobaltcore_patch::unchanged;
use common::World;
use serde_json::{Value, json};

#[test]
fn a_create_owns_everything_the_client_set() {
    let mut world = World::widgets();
    world.put("m", json!({"metadata": {"labels": {"l": "1"}}, "spec": {"color": "red", "parts": [{"id": "a", "size": 1}]}}));
    assert_eq!(
        world.entry("m"),
        json!({
            "manager": "m", "operation": "Update", "apiVersion": "example.com/v1",
            "time": "2026-01-01T00:00:01Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                "f:spec": {
                    ".": {}, "f:color": {},
                    "f:parts": {".": {}, "k:{\"id\":\"a\"}": {".": {}, "f:id": {}, "f:size": {}}}
                }
            }
        })
    );
}

#[test]
fn structs_of_built_in_kinds_are_there_from_the_start() {
    let mut world = World::deployments();
    world.put(
        "kubectl-create",
        json!({
            "metadata": {"labels": {"app": "n"}},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "n"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
                "template": {
                    "metadata": {"labels": {"app": "n"}},
                    "spec": {"containers": [{"name": "n", "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}
                }
            }
        }),
    );
    assert_eq!(
        world.fields("kubectl-create"),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"n\"}": {
                        ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}
                    }}}
                }
            }
        })
    );
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let mut world = World::widgets();
    world.put(
        "a",
        json!({"spec": {"color": "red", "count": 1, "limits": {"x": 1, "y": 2}}}),
    );
    world.put(
        "b",
        json!({"spec": {"color": "blue", "count": 1, "limits": {"x": 1}}}),
    );
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {".": {}, "f:count": {}, "f:limits": {".": {}, "f:x": {}}}})
    );
    assert_eq!(world.fields("b"), json!({"f:spec": {"f:color": {}}}));
    assert_eq!(world.entry("a")["time"], json!("2026-01-01T00:00:01Z"));
    assert_eq!(world.entry("b")["time"], json!("2026-01-01T00:00:02Z"));
}

#[test]
fn an_update_that_changes_nothing_leaves_every_entry() {
    let mut world = World::widgets();
    let before = world.put("a", json!({"spec": {"color": "red"}}));
    let after = world.put("b", json!({"spec": {"color": "red"}}));
    assert_eq!(before, after);
}

#[test]
fn an_applied_field_changed_by_an_update_conflicts_later() {
    let mut world = World::widgets();
    world.apply("applier", json!({"spec": {"color": "red", "count": 1}}));
    let mut edited = world.live.clone().unwrap();
    edited["spec"]["count"] = json!(5);
    world.put("editor", edited);
    assert_eq!(world.fields("applier"), json!({"f:spec": {"f:color": {}}}));
    assert_eq!(
        world.conflict("applier", json!({"spec": {"color": "red", "count": 1}})),
        "Apply failed with 1 conflict: conflict with \"editor\" using example.com/v1: .spec.count"
    );
    // Leaving the field out gives it to the editor for good.
    let live = world.apply("applier", json!({"spec": {"color": "red"}}));
    assert_eq!(live["spec"]["count"], json!(5));
}

#[test]
fn the_same_name_applying_and_updating_is_two_managers() {
    let mut world = World::widgets();
    world.apply("m", json!({"spec": {"color": "red"}}));
    let mut edited = world.live.clone().unwrap();
    edited["spec"]["color"] = json!("blue");
    world.put("m", edited);
    assert_eq!(
        world.conflict("m", json!({"spec": {"color": "red"}})),
        "Apply failed with 1 conflict: conflict with \"m\" using example.com/v1: .spec.color"
    );
}

#[test]
fn managed_fields_can_be_cleared_kept_and_replaced() {
    let body = |managed: Option<Value>| {
        let mut body = json!({"spec": {"color": "red"}});
        if let Some(managed) = managed {
            body["metadata"] = json!({"managedFields": managed});
        }
        body
    };
    let entry = |operation: &str, fields_type: &str| {
        json!([{"manager": "z", "operation": operation, "apiVersion": "example.com/v1", "fieldsType": fields_type,
                "fieldsV1": {"f:spec": {"f:color": {}}}}])
    };
    let cases: Vec<(Option<Value>, Vec<&str>)> = vec![
        (None, vec!["a"]),
        (Some(Value::Null), vec!["a"]),
        (Some(json!([])), vec![]),
        (Some(json!([{}])), vec![]),
        (Some(json!([{}, {}])), vec!["a"]),
        (Some(entry("Update", "FieldsV1")), vec!["z"]),
        (Some(entry("Nonsense", "FieldsV1")), vec!["a"]),
        (Some(entry("Update", "FieldsV9")), vec!["a"]),
        (Some(entry("Update", "")), vec!["a"]),
        (Some(json!("text")), vec!["a"]),
    ];
    for (managed, expected) in cases {
        let mut world = World::widgets();
        world.put("a", json!({"spec": {"color": "red"}}));
        world.put("b", body(managed.clone()));
        assert_eq!(world.managers(), expected, "{managed:?}");
    }
}

#[test]
fn a_cleared_object_stays_untracked_until_applied() {
    let mut world = World::widgets();
    world.put("a", json!({"spec": {"color": "red"}}));
    world.put(
        "a",
        json!({"metadata": {"managedFields": [{}]}, "spec": {"color": "red"}}),
    );
    world.put("b", json!({"spec": {"color": "blue"}}));
    assert!(world.entries().is_empty());
    world.apply("c", json!({"spec": {"count": 1}}));
    assert_eq!(world.managers(), ["c", "before-first-apply"]);
}

#[test]
fn a_subresource_write_ignores_managed_fields_of_the_request() {
    let mut world = World::widgets();
    world.put("a", json!({"spec": {"color": "red"}}));
    world.write(
        "ctl",
        &json!({"metadata": {"managedFields": [{}]}, "spec": {"color": "red"}, "status": {"phase": "P"}}),
        Some("status"),
    );
    assert_eq!(world.managers(), ["a", "ctl"]);
    let entry = world.entry("ctl");
    assert_eq!(entry["subresource"], json!("status"));
    assert_eq!(entry["fieldsV1"], json!({"f:status": {".": {}, "f:phase": {}}}));
}

#[test]
fn writes_through_scale_own_replicas_without_a_time() {
    let mut world = World::deployments();
    world.put("a", json!({"spec": {"replicas": 1}}));
    world.write("hpa", &json!({"spec": {"replicas": 3}}), Some("scale"));
    let entry = world.entry("hpa");
    assert_eq!(
        (entry["subresource"].clone(), entry.get("time")),
        (json!("scale"), None)
    );
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(world.managers(), ["hpa"]);
}

#[test]
fn old_updaters_are_merged_into_ancient_changes() {
    let mut world = World::widgets();
    for i in 1..=12 {
        let mut body = world
            .live
            .clone()
            .unwrap_or_else(|| json!({"spec": {"limits": {}}}));
        body["spec"]["limits"][format!("k{i:02}")] = json!(i);
        world.put(&format!("m{i:02}"), body);
    }
    let managers = world.managers();
    assert_eq!(managers.len(), 10);
    assert_eq!(managers.first().map(String::as_str), Some("ancient-changes"));
    assert_eq!(
        world.entry("ancient-changes")["time"],
        json!("2026-01-01T00:00:03Z")
    );
    let ancient = world.fields("ancient-changes");
    for key in ["f:k01", "f:k02", "f:k03"] {
        assert!(ancient["f:spec"]["f:limits"].get(key).is_some(), "{ancient}");
    }
}

#[test]
fn entries_are_sorted_apply_first_then_by_time_and_name() {
    let mut world = World::widgets();
    world.put("z-first", json!({"spec": {"limits": {"a": 1}}}));
    world.put("a-second", json!({"spec": {"limits": {"a": 1, "b": 2}}}));
    world.apply("applier", json!({"spec": {"color": "red"}}));
    assert_eq!(world.managers(), ["applier", "z-first", "a-second"]);
}

#[test]
fn never_tracked_metadata() {
    let mut world = World::widgets();
    world.put("m", json!({"metadata": {"namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1, "creationTimestamp": null}}));
    assert!(world.entries().is_empty());
    world.put("m", json!({"metadata": {"annotations": {"a": "1"}}}));
    assert!(
        world.entries().is_empty(),
        "an object nobody tracked stays untracked"
    );
}

#[test]
fn duplicate_elements_are_owned_by_key_and_again_in_full_once_unique() {
    let mut world = World::widgets();
    world.put(
        "a",
        json!({"spec": {"parts": [{"id": "p", "size": 1}, {"id": "p", "size": 2}]}}),
    );
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {".": {}, "f:parts": {".": {}, "k:{\"id\":\"p\"}": {}}}})
    );
    world.put("b", json!({"spec": {"parts": [{"id": "p", "size": 1}]}}));
    assert_eq!(
        world.fields("b"),
        json!({"f:spec": {"f:parts": {"k:{\"id\":\"p\"}": {".": {}, "f:id": {}, "f:size": {}}}}})
    );
}

#[test]
fn entries_of_versions_no_longer_served_are_dropped() {
    use cobaltcore_patch::{Filter, UpdateRequest, update};
    use std::sync::Arc;
    let schema = Arc::new(common::widget());
    let known = Arc::clone(&schema);
    let versions = move |v: &str| (v == "example.com/v1").then(|| Arc::clone(&known));
    let entry = |manager: &str, version: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
               "fieldsV1": {"f:spec": {"f:color": {}}}})
    };
    let old = json!({"metadata": {"managedFields": [entry("gone", "example.com/v0"), entry("kept", "example.com/v1")]}, "spec": {"color": "red"}});
    let mut new = json!({"metadata": {}, "spec": {"color": "red", "count": 1}});
    update(
        UpdateRequest {
            old: Some(&old),
            blank: None,
            schema: &schema,
            versions: Some(&versions),
            manager: "m",
            api_version: "example.com/v2",
            subresource: None,
            filter: &Filter::Everything,
            now: "2026-01-01T00:00:00Z",
        },
        &mut new,
    );
    let managers: Vec<&str> = new["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["kept", "m"]);
}

#[test]
fn what_became_atomic_is_owned_whole() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"limits": {"x": 1}, "colors": ["red"]}}));
    let mut spec = (**world.schema.properties.get("spec").unwrap()).clone();
    let limits = common::atomic(common::map_of(common::int()));
    spec.properties.insert("limits".to_owned(), limits.into());
    spec.properties
        .insert("colors".to_owned(), common::list_of(common::text()).into());
    world.schema.properties.insert("spec".to_owned(), spec.into());
    world.put(
        "b",
        json!({"spec": {"limits": {"x": 1}, "colors": ["red"], "count": 1}}),
    );
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:colors": {}, "f:limits": {}}})
    );
}

#[test]
fn only_times_make_no_difference() {
    let with = |time: &str, color: &str| json!({"metadata": {"name": "x", "managedFields": [{"manager": "m", "time": time, "fieldsV1": {}}]}, "spec": {"color": color}});
    assert!(unchanged(&with("1", "red"), &with("2", "red")));
    assert!(!unchanged(&with("1", "red"), &with("1", "blue")));
    let mut other = with("1", "red");
    other["metadata"]["managedFields"][0]["manager"] = json!("n");
    assert!(!unchanged(&with("1", "red"), &other));
    assert!(!unchanged(
        &json!({"metadata": {}}),
        &json!({"metadata": {"managedFields": []}})
    ));
}

#[test]
fn a_scale_shows_who_owns_replicas_and_hands_them_on() {
    use cobaltcore_patch::{scale_entries, scaled_parent_entries};
    let replicas = ["spec", "replicas"];
    let mut world = World::deployments();
    world.apply("applier", json!({"spec": {"replicas": 1, "paused": true}}));
    let parent = world.live.clone().unwrap();
    let shown = scale_entries(&parent, &replicas);
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0]["apiVersion"], json!("autoscaling/v1"));
    assert_eq!(shown[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));

    let scale = |entries: Value| json!({"metadata": {"managedFields": entries}});
    let unmoved = scaled_parent_entries(&parent, "apps/v1", &replicas, &scale(Value::Array(shown))).unwrap();
    assert_eq!(Value::Array(unmoved), parent["metadata"]["managedFields"]);

    let taken = json!([{"manager": "hpa", "operation": "Update", "apiVersion": "autoscaling/v1", "subresource": "scale",
                        "time": "2026-01-01T00:00:09Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    let after = scaled_parent_entries(&parent, "apps/v1", &replicas, &scale(taken)).unwrap();
    assert_eq!(after[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(
        after[1],
        json!({"manager": "hpa", "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale",
               "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    );
}
