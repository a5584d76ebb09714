// SPDX-License-Identifier: Apache-2.0
//! Server-side apply, scenario by scenario: who owns what, what conflicts, what goes.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod common;

use common::World;
use serde_json::{Value, json};

fn containers(list: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": list}}}})
}

#[test]
fn the_first_apply_creates_and_owns_what_it_lists() {
    let mut world = World::widgets();
    let live = world.apply(
        "a",
        json!({"metadata": {"labels": {"l": "1"}}, "spec": {"color": "red", "count": 1}}),
    );
    assert_eq!(live["spec"], json!({"color": "red", "count": 1}));
    assert_eq!(
        world.entry("a"),
        json!({
            "manager": "a", "operation": "Apply", "apiVersion": "example.com/v1",
            "time": "2026-01-01T00:00:01Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:color": {}, "f:count": {}}}
        })
    );
}

#[test]
fn status_is_neither_set_nor_owned_on_the_main_endpoint() {
    let mut world = World::widgets();
    let live = world.apply(
        "a",
        json!({"spec": {"color": "red"}, "status": {"phase": "Ready"}}),
    );
    assert_eq!(live.get("status"), None);
    assert_eq!(world.fields("a"), json!({"f:spec": {"f:color": {}}}));
}

#[test]
fn applying_again_changes_nothing_not_even_times() {
    let mut world = World::deployments();
    let config = containers(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]));
    let first = world.apply("a", config.clone());
    let second = world.apply("a", config);
    assert_eq!(first, second);
    assert_eq!(world.writes, 1);
}

#[test]
fn a_changed_value_of_another_manager_is_a_conflict() {
    let mut world = World::widgets();
    world.apply("alpha", json!({"spec": {"color": "red"}}));
    assert_eq!(
        world.conflict("beta", json!({"spec": {"color": "blue"}})),
        "Apply failed with 1 conflict: conflict with \"alpha\": .spec.color"
    );
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut world = World::widgets();
    world.apply("alpha", json!({"spec": {"color": "red", "count": 1}}));
    world.write(
        "beta",
        &json!({"spec": {"color": "red", "count": 1, "steps": ["a"], "limits": {"x": 1}}}),
        None,
    );
    let text = world.conflict(
        "gamma",
        json!({"spec": {"color": "blue", "count": 2, "steps": ["b"], "limits": {"x": 2}}}),
    );
    assert_eq!(
        text,
        "Apply failed with 4 conflicts: conflicts with \"alpha\":\n- .spec.color\n- .spec.count\nconflicts with \"beta\" using example.com/v1:\n- .spec.steps\n- .spec.limits.x"
    );
}

#[test]
fn a_conflict_through_a_subresource_says_so() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red"}}));
    let mut with_status = world.live.clone().unwrap();
    with_status["status"] = json!({"phase": "Ready"});
    world.write("ctl", &with_status, Some("status"));
    let refusal = world.try_apply(
        "b",
        &json!({"status": {"phase": "Broken"}}),
        Some("status"),
        false,
    );
    assert_eq!(
        refusal.unwrap_err().to_string(),
        "Apply failed with 1 conflict: conflict with \"ctl\" with subresource \"status\" using example.com/v1: .status.phase"
    );
}

#[test]
fn paths_name_list_elements_by_their_keys() {
    let mut world = World::deployments();
    world.apply(
        "a",
        containers(json!([{"name": "c", "image": "1", "ports": [{"containerPort": 80, "name": "http"}]}])),
    );
    let text = world.conflict(
        "b",
        containers(json!([{"name": "c", "image": "2", "ports": [{"containerPort": 80, "name": "web"}]}])),
    );
    assert!(
        text.contains("\n- .spec.template.spec.containers[name=\"c\"].image"),
        "{text}"
    );
    assert!(
        text.contains(
            "\n- .spec.template.spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].name"
        ),
        "{text}"
    );
}

#[test]
fn the_same_value_is_owned_by_both_and_stays_until_both_give_it_up() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red", "count": 1}}));
    world.apply("b", json!({"spec": {"color": "red"}}));
    assert_eq!(world.fields("b"), json!({"f:spec": {"f:color": {}}}));
    let live = world.apply("a", json!({"spec": {"count": 1}}));
    assert_eq!(live["spec"], json!({"color": "red", "count": 1}));
    let live = world.apply("b", json!({"spec": {}}));
    assert_eq!(live["spec"], json!({"count": 1}));
}

#[test]
fn a_co_owner_that_changes_nothing_has_no_time() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red"}}));
    world.apply("b", json!({"spec": {"color": "red"}}));
    assert_eq!(world.entry("b").get("time"), None);
    assert_eq!(world.entry("a")["time"], json!("2026-01-01T00:00:01Z"));
}

#[test]
fn force_takes_fields_from_their_owners() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red", "count": 1}}));
    let live = world.force("b", json!({"spec": {"color": "blue"}}));
    assert_eq!(live["spec"]["color"], json!("blue"));
    assert_eq!(world.fields("a"), json!({"f:spec": {"f:count": {}}}));
    assert_eq!(world.fields("b"), json!({"f:spec": {"f:color": {}}}));
    let text = world.conflict("a", json!({"spec": {"color": "red", "count": 1}}));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"b\": .spec.color"
    );
}

#[test]
fn an_owner_that_loses_everything_loses_its_entry() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red"}}));
    world.force("b", json!({"spec": {"color": "blue"}}));
    assert_eq!(world.managers(), ["b"]);
}

#[test]
fn fields_given_up_are_removed() {
    let mut world = World::widgets();
    world.apply(
        "a",
        json!({"metadata": {"labels": {"x": "1", "y": "2"}}, "spec": {"color": "red", "limits": {"a": 1}}}),
    );
    let live = world.apply(
        "a",
        json!({"metadata": {"labels": {"x": "1"}}, "spec": {"color": "red"}}),
    );
    assert_eq!(live["metadata"]["labels"], json!({"x": "1"}));
    assert_eq!(live["spec"], json!({"color": "red"}));
}

#[test]
fn fields_nobody_owns_are_not_removed() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red", "nested": {"flag": true}}}));
    // A default the server added: in the object, in nobody's set.
    world.live.as_mut().unwrap()["spec"]["count"] = json!(3);
    let live = world.apply("a", json!({"spec": {"nested": {"flag": true}}}));
    assert_eq!(live["spec"], json!({"count": 3, "nested": {"flag": true}}));
}

#[test]
fn giving_up_a_list_element_keeps_what_others_own_in_it() {
    let mut world = World::deployments();
    world.apply("a", containers(json!([{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}, {"name": "d", "image": "j"}])));
    world.apply(
        "b",
        containers(json!([{"name": "c", "env": [{"name": "B", "value": "2"}]}])),
    );
    let live = world.apply("a", containers(json!([{"name": "d", "image": "j"}])));
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"],
        json!([{"name": "c", "env": [{"name": "B", "value": "2"}]}, {"name": "d", "image": "j"}])
    );
    let live = world.apply("b", containers(json!([])));
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"],
        json!([{"name": "d", "image": "j"}])
    );
}

#[test]
fn two_managers_share_the_ports_of_one_container() {
    let mut world = World::deployments();
    world.apply(
        "a",
        containers(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}])),
    );
    let live = world.apply(
        "b",
        containers(json!([{"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}]}])),
    );
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}])
    );
    assert_eq!(
        world.fields("b"),
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}
        }}}}}})
    );
    let live = world.apply("a", containers(json!([{"name": "c", "image": "i"}])));
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "UDP"}])
    );
}

#[test]
fn absent_key_fields_take_part_with_their_default() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"routes": [{"port": 1, "to": "x"}]}}));
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:routes": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:to": {}}}}})
    );
    let text = world.conflict(
        "b",
        json!({"spec": {"routes": [{"port": 1, "protocol": "TCP", "to": "y"}]}}),
    );
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"a\": .spec.routes[port=1,protocol=\"TCP\"].to"
    );
}

#[test]
fn conditions_of_several_controllers_live_side_by_side() {
    let mut world = World::widgets();
    world.apply("creator", json!({"spec": {"color": "red"}}));
    let one = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let two = json!({"status": {"conditions": [{"type": "Synced", "status": "False", "reason": "Busy"}]}});
    world.try_apply("one", &one, Some("status"), false).unwrap();
    let live = world.try_apply("two", &two, Some("status"), false).unwrap();
    assert_eq!(
        live["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False", "reason": "Busy"}])
    );
    assert_eq!(
        world.entry("two")["fieldsV1"],
        json!({"f:status": {"f:conditions": {"k:{\"type\":\"Synced\"}": {".": {}, "f:reason": {}, "f:status": {}, "f:type": {}}}}})
    );
    assert_eq!(world.entry("two")["subresource"], json!("status"));
    let live = world
        .try_apply(
            "two",
            &json!({"status": {"conditions": []}}),
            Some("status"),
            false,
        )
        .unwrap();
    assert_eq!(
        live["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}])
    );
}

#[test]
fn the_same_manager_has_separate_entries_for_object_and_status() {
    let mut world = World::widgets();
    world.apply("m", json!({"spec": {"color": "red"}}));
    let live = world
        .try_apply("m", &json!({"status": {"phase": "Ready"}}), Some("status"), false)
        .unwrap();
    assert_eq!(live["spec"], json!({"color": "red"}));
    assert_eq!(world.entries().len(), 2);
    let live = world.apply("m", json!({"spec": {"color": "blue"}}));
    assert_eq!(live["status"], json!({"phase": "Ready"}));
    assert_eq!(world.entries().len(), 2);
}

#[test]
fn members_of_sets_have_owners_of_their_own() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"colors": ["x", "y"]}}));
    let live = world.apply("b", json!({"spec": {"colors": ["z", "y"]}}));
    assert_eq!(live["spec"]["colors"], json!(["x", "z", "y"]));
    assert_eq!(
        world.fields("b"),
        json!({"f:spec": {"f:colors": {"v:\"y\"": {}, "v:\"z\"": {}}}})
    );
    let live = world.apply("a", json!({"spec": {"colors": ["x"]}}));
    assert_eq!(live["spec"]["colors"], json!(["x", "z", "y"]));
    let live = world.apply("b", json!({"spec": {"color": "c"}}));
    assert_eq!(live["spec"], json!({"color": "c", "colors": ["x"]}));
}

#[test]
fn atomic_lists_and_maps_are_owned_whole() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"steps": ["1", "2"], "frozen": {"a": "x"}}}));
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:frozen": {}, "f:steps": {}}})
    );
    let text = world.conflict("b", json!({"spec": {"steps": ["1"], "frozen": {"b": "y"}}}));
    assert!(
        text.contains("- .spec.frozen") && text.contains("- .spec.steps"),
        "{text}"
    );
    let live = world.force("b", json!({"spec": {"steps": ["1"], "frozen": {"b": "y"}}}));
    assert_eq!(live["spec"], json!({"steps": ["1"], "frozen": {"b": "y"}}));
}

#[test]
fn preserved_unknown_fields_are_granular_maps_and_atomic_lists() {
    let mut world = World::widgets();
    world.apply(
        "a",
        json!({"spec": {"free": {"m": {"x": 1, "y": {}}, "l": [{"k": 1}]}}}),
    );
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:free": {"f:l": {}, "f:m": {".": {}, "f:x": {}, "f:y": {}}}}})
    );
    let live = world.apply("b", json!({"spec": {"free": {"m": {"z": "s"}}}}));
    assert_eq!(
        live["spec"]["free"],
        json!({"m": {"x": 1, "y": {}, "z": "s"}, "l": [{"k": 1}]})
    );
}

#[test]
fn map_keys_are_owned_themselves_but_named_fields_are_not() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"nested": {"inner": {"k": {"v": "1"}}}}}));
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:nested": {"f:inner": {"f:k": {".": {}, "f:v": {}}}}}})
    );
    world.apply("b", json!({"spec": {"nested": {"inner": {"k": {"w": "2"}}}}}));
    let live = world.apply("a", json!({"spec": {"nested": {"flag": true}}}));
    assert_eq!(
        live["spec"]["nested"],
        json!({"inner": {"k": {"w": "2"}}, "flag": true})
    );
}

#[test]
fn empty_maps_and_nulls_are_owned() {
    let mut world = World::widgets();
    let live = world.apply("a", json!({"spec": {"limits": {}, "nested": {}, "color": null}}));
    assert_eq!(live["spec"], json!({"limits": {}, "nested": {}, "color": null}));
    assert_eq!(
        world.fields("a"),
        json!({"f:spec": {"f:color": {}, "f:limits": {}, "f:nested": {}}})
    );
    let live = world.apply("b", json!({"spec": {"limits": {"x": 1}}}));
    assert_eq!(live["spec"]["limits"], json!({"x": 1}));
    let live = world.apply("b", json!({"spec": {}}));
    assert_eq!(live["spec"]["limits"], json!(null), "nothing is left of it");
}

#[test]
fn null_does_not_clear_a_granular_map_of_another() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"limits": {"x": 1}}}));
    let live = world.apply("b", json!({"spec": {"limits": null}}));
    assert_eq!(live["spec"]["limits"], json!({"x": 1}));
}

#[test]
fn elements_come_in_the_order_of_the_configuration() {
    let cases = [
        (json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
        (json!(["a", "b", "c"]), json!(["x"]), json!(["a", "b", "c", "x"])),
        (
            json!(["a", "b", "c"]),
            json!(["b", "x"]),
            json!(["a", "b", "c", "x"]),
        ),
        (
            json!(["a", "b", "c"]),
            json!(["x", "b"]),
            json!(["a", "x", "b", "c"]),
        ),
        (
            json!(["a", "b", "c"]),
            json!(["c", "b", "a"]),
            json!(["c", "b", "a"]),
        ),
        (json!([]), json!(["b", "a"]), json!(["b", "a"])),
    ];
    for (first, second, expected) in cases {
        let mut world = World::widgets();
        world.apply("one", json!({"spec": {"colors": first}}));
        let live = world.apply("two", json!({"spec": {"colors": second}}));
        assert_eq!(live["spec"]["colors"], expected, "{second} into {first}");
    }
}

#[test]
fn what_was_there_before_the_first_apply_belongs_to_its_stand_in() {
    let mut world = World::widgets();
    world.live = Some(world.object(
        &json!({"metadata": {"uid": "u"}, "spec": {"color": "red", "count": 1}, "status": {"phase": "P"}}),
    ));
    let text = world.conflict("a", json!({"spec": {"color": "blue"}}));
    assert_eq!(
        text,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using example.com/v1: .spec.color"
    );
    world.apply("a", json!({"spec": {"color": "red"}}));
    assert_eq!(world.managers(), ["a", "before-first-apply"]);
    assert_eq!(
        world.fields("before-first-apply"),
        json!({"f:spec": {".": {}, "f:color": {}, "f:count": {}}})
    );
}

#[test]
fn kubectl_takes_over_what_client_side_apply_wrote() {
    let last = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"color": "red", "count": 1}});
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let mut world = World::widgets();
    world.put(
        "kubectl-client-side-apply",
        json!({"metadata": {"annotations": annotations}, "spec": {"color": "red", "count": 1}}),
    );
    assert!(
        world
            .conflict("other", json!({"spec": {"color": "blue"}}))
            .contains("kubectl-client-side-apply")
    );
    let live = world.apply("kubectl", json!({"spec": {"color": "blue", "count": 1}}));
    assert_eq!(live["spec"]["color"], json!("blue"));
    let annotation = live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert!(annotation.ends_with("}\n"));
    assert_eq!(
        serde_json::from_str::<Value>(annotation).unwrap()["spec"],
        json!({"color": "blue", "count": 1})
    );
}

#[test]
fn kubectl_does_not_take_over_what_has_changed_since() {
    let last = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"color": "red"}});
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let mut world = World::widgets();
    world.put(
        "kubectl-client-side-apply",
        json!({"metadata": {"annotations": annotations}, "spec": {"color": "red"}}),
    );
    world.put(
        "someone",
        json!({"metadata": {"annotations": annotations}, "spec": {"color": "green"}}),
    );
    assert_eq!(
        world.conflict("kubectl", json!({"spec": {"color": "blue"}})),
        "Apply failed with 1 conflict: conflict with \"someone\" using example.com/v1: .spec.color"
    );
}

#[test]
fn configurations_that_are_refused() {
    let prefix = "failed to create typed patch object (/x; example.com/v1, Kind=Widget): ";
    let cases = [
        (
            json!({"spec": {"bogus": 1}}),
            ".spec.bogus: field not declared in schema",
        ),
        (
            json!({"spec": {"color": 1}}),
            ".spec.color: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"spec": {"count": "1"}}),
            ".spec.count: expected numeric (int or float), got string",
        ),
        (
            json!({"spec": {"nested": {"flag": "no"}}}),
            ".spec.nested.flag: expected boolean, got &{no}",
        ),
        (
            json!({"spec": {"parts": {"id": "a"}}}),
            ".spec.parts: expected list, got &{map[id:a]}",
        ),
        (
            json!({"spec": {"limits": [1]}}),
            ".spec.limits: expected map, got &{[1]}",
        ),
        (
            json!({"spec": {"parts": [{"id": "a"}, {"id": "a"}]}}),
            ".spec.parts: duplicate entries for key [id=\"a\"]",
        ),
        (
            json!({"spec": {"colors": ["a", "a"]}}),
            ".spec.colors: duplicate entries for key [=\"a\"]",
        ),
        (
            json!({"spec": {"parts": [{"size": 1}]}}),
            ".spec.parts: element 0: associative list with keys has an element that omits all key fields [\"id\"] (and doesn't have default values for any key fields)",
        ),
        (
            json!({"spec": {"parts": [null]}}),
            ".spec.parts: element 0: associative list with keys may not have a null element",
        ),
        (
            json!({"spec": {"parts": ["a"]}}),
            ".spec.parts: element 0: associative list with keys may not have non-map elements",
        ),
        (
            json!({"spec": {"color": 1, "count": "x"}}),
            "errors:\n  .spec.color: expected string, got &value.valueUnstructured{Value:1}\n  .spec.count: expected numeric (int or float), got string",
        ),
    ];
    for (body, text) in cases {
        assert_eq!(World::widgets().refused("a", body), format!("{prefix}{text}"));
    }
    let mut world = World::widgets();
    assert_eq!(
        world.refused("a", json!({"metadata": {"managedFields": []}})),
        "metadata.managedFields must be nil"
    );
    world.kind = "Gadget";
    let mut config = world.object(&json!({}));
    config["kind"] = json!("Widget");
    let mut world = World::new(common::widget(), "v1", "Gadget");
    world.kind = "Gadget";
    let filter = cobaltcore_patch::Filter::Everything;
    let error = cobaltcore_patch::apply(cobaltcore_patch::ApplyRequest {
        live: None,
        config: &json!({"apiVersion": "v1", "kind": "Secret"}),
        schema: &world.schema,
        versions: None,
        manager: "a",
        api_version: "v1",
        kind: "Gadget",
        subresource: None,
        force: false,
        filter: &filter,
        now: "2026-01-01T00:00:00Z",
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "invalid object type: /v1, Kind=Secret"
    );
}

#[test]
fn duplicates_in_the_live_object_do_not_block_an_apply() {
    let mut world = World::widgets();
    world.put("old", json!({"spec": {"colors": ["a", "a", "b"]}}));
    let live = world.apply("new", json!({"spec": {"color": "red", "colors": ["b"]}}));
    assert_eq!(live["spec"]["colors"], json!(["a", "a", "b"]));
    assert_eq!(live["spec"]["color"], json!("red"));
}

#[test]
fn an_apply_entry_follows_its_manager_to_another_version() {
    let mut world = World::widgets();
    world.apply("a", json!({"spec": {"color": "red", "count": 1}}));
    world.api_version = "example.com/v2";
    world.live.as_mut().unwrap()["apiVersion"] = json!("example.com/v2");
    let live = world.apply("a", json!({"spec": {"color": "red"}}));
    assert_eq!(live["spec"], json!({"color": "red"}));
    assert_eq!(world.entries().len(), 1);
    assert_eq!(world.entry("a")["apiVersion"], json!("example.com/v2"));
}

#[test]
fn key_fields_of_the_metadata_nobody_declared_are_known() {
    let mut world = World::widgets();
    world.apply(
        "a",
        json!({"metadata": {"finalizers": ["x"], "ownerReferences": [{"uid": "1", "name": "o"}]}}),
    );
    assert_eq!(
        world.fields("a"),
        json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}, "f:ownerReferences": {"k:{\"uid\":\"1\"}": {}}}})
    );
    let live = world.apply("b", json!({"metadata": {"finalizers": ["y"]}}));
    assert_eq!(live["metadata"]["finalizers"], json!(["x", "y"]));
}
