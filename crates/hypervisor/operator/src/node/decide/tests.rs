// SPDX-License-Identifier: Apache-2.0
//! Nodes and what becomes of them.

use super::*;
use proptest::prelude::*;

fn node(labels: &Value, annotations: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n1", "uid": "u1", "labels": labels, "annotations": annotations},
        "status": {"addresses": [
            {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ]},
    }))
    .unwrap()
}

fn rules() -> Rules {
    Rules {
        inherited: ["topology.kubernetes.io/zone", "kubernetes.metal.cloud.sap/bb"]
            .map(str::to_owned)
            .to_vec(),
        manage_termination: true,
        keep_decommissioned: false,
    }
}

const LIFECYCLE: &str = "cobaltcore.cloud.sap/node-hypervisor-lifecycle";

fn plain() -> Node {
    node(
        &json!({LIFECYCLE: "", "topology.kubernetes.io/zone": "z1", "other": "x"}),
        &json!({"nova.openstack.cloud.sap/aggregates": "prod, z1"}),
    )
}

fn terminating(mut node: Node) -> Node {
    let condition = json!([{"type": "Terminating", "status": "True"}]);
    node.status.get_or_insert_default().conditions = serde_json::from_value(condition).unwrap();
    node
}

/// The Hypervisor that the operator would have made of a Node, with changes on top.
fn hypervisor(node: &Node, change: Value) -> Hypervisor {
    let Some(Action::Apply { wanted, .. }) = create(node, &rules()).actions.into_iter().next() else {
        panic!("a Node without Hypervisor gets one");
    };
    let mut object = wanted.to_object("n1");
    let own = |part: &str| -> serde_json::Map<String, Value> {
        let fields = object[part].as_object().unwrap();
        fields.keys().map(|key| (format!("f:{key}"), json!({}))).collect()
    };
    let labels: serde_json::Map<String, Value> = object["metadata"]["labels"]
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (format!("f:{key}"), json!({})))
        .collect();
    let fields = json!({"f:metadata": {"f:labels": labels}, "f:spec": own("spec")});
    object["metadata"]["managedFields"] =
        json!([{"manager": "hypervisor", "operation": "Apply", "fieldsV1": fields}]);
    object["metadata"]["resourceVersion"] = json!("7");
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn plan(node: &Node, hypervisor: Hypervisor) -> Vec<Action> {
    let facts = Facts {
        hypervisor: Some(Arc::new(hypervisor)),
        agent_pods: None,
    };
    decide(node, &facts, &rules()).actions
}

fn applied(actions: &[Action]) -> Option<&Wanted> {
    actions.iter().find_map(|action| match action {
        Action::Apply { wanted, .. } => Some(wanted),
        _ => None,
    })
}

fn mode_of(actions: &[Action]) -> Option<(&Maintenance, Option<&str>)> {
    actions.iter().find_map(|action| match action {
        Action::Maintain(change) => Some((&change.mode, change.reason.as_deref())),
        _ => None,
    })
}

#[test]
fn a_new_node_gets_a_hypervisor_with_what_it_inherits() {
    let object = match create(&plain(), &rules()).actions.as_slice() {
        [
            Action::Apply {
                wanted,
                created: true,
            },
        ] => wanted.to_object("n1"),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        object["metadata"]["labels"],
        json!({"topology.kubernetes.io/zone": "z1"})
    );
    assert_eq!(
        object["spec"],
        json!({"lifecycleEnabled": true, "skipTests": false, "aggregates": ["prod", "z1"]})
    );
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["apiVersion"], &owner["uid"]),
        (&json!("v1"), &json!("u1"))
    );
    assert_eq!(owner.get("controller"), None);
}

#[test]
fn labels_and_annotations_decide_what_a_new_hypervisor_says() {
    let zone = json!({"topology.kubernetes.io/zone": "z1"});
    let skipping = json!({LIFECYCLE: "skip-tests"});
    let table: &[(&Value, Value, Value)] = &[
        (&zone, json!({}), json!({"lifecycleEnabled": false})),
        (
            &skipping,
            json!({}),
            json!({"lifecycleEnabled": true, "skipTests": true}),
        ),
        (
            &zone,
            json!({"nova.openstack.cloud.sap/aggregates": ""}),
            json!({"lifecycleEnabled": false, "aggregates": ["z1"]}),
        ),
        (
            &zone,
            json!({"nova.openstack.cloud.sap/custom-traits": "CUSTOM_B,CUSTOM_A,CUSTOM_B"}),
            json!({"lifecycleEnabled": false, "customTraits": ["CUSTOM_B", "CUSTOM_A"]}),
        ),
    ];
    for (labels, annotations, spec) in table {
        let actions = create(&node(labels, annotations), &rules()).actions;
        assert_eq!(
            &Value::Object(applied(&actions).unwrap().spec.clone()),
            spec,
            "{labels} {annotations}"
        );
    }
}

#[test]
fn a_hypervisor_in_step_is_only_reported_on() {
    let actions = plan(&plain(), hypervisor(&plain(), json!({})));
    let report = Report {
        internal_ip: Some("10.0.0.1".into()),
        conditions: vec![NewCondition::no(
            "Terminating",
            "NotTerminating",
            "Node is not terminating",
        )],
    };
    assert_eq!(actions, [Action::Report(report)]);
}

#[test]
fn what_vanishes_from_the_node_is_taken_back_if_it_was_ours() {
    let bare = node(&json!({}), &json!({}));
    let actions = plan(&bare, hypervisor(&plain(), json!({})));
    assert!(
        actions.contains(&Action::DropLabels(vec!["topology.kubernetes.io/zone".into()])),
        "{actions:?}"
    );
    let spec = Value::Object(applied(&actions).unwrap().spec.clone());
    assert_eq!(
        spec,
        json!({"lifecycleEnabled": false, "skipTests": false, "aggregates": []})
    );

    let by_hand =
        json!({"metadata": {"managedFields": [{"manager": "kubectl-edit", "operation": "Update"}]}});
    let actions = plan(&bare, hypervisor(&plain(), by_hand));
    assert_eq!(
        applied(&actions),
        None,
        "somebody else's word stands: {actions:?}"
    );
}

#[test]
fn termination_is_set_whatever_the_mode_was_except_ha() {
    for (mode, lifecycle, wanted) in [
        ("", true, true),
        ("auto", true, true),
        ("manual", true, true),
        ("ha", true, false),
        ("termination", true, false),
        ("", false, false),
    ] {
        let change =
            json!({"spec": {"maintenance": mode, "maintenanceReason": "x", "lifecycleEnabled": lifecycle}});
        // Somebody else's word on the lifecycle, so that it stays.
        let mut given = hypervisor(&plain(), change);
        given.metadata.managed_fields = None;
        let mut node = terminating(plain());
        if !lifecycle {
            node.metadata.labels.as_mut().unwrap().remove(LIFECYCLE);
        }
        let actions = plan(&node, given);
        let set = mode_of(&actions) == Some((&Maintenance::Termination, None));
        assert_eq!(set, wanted, "{mode} {lifecycle} {actions:?}");
    }
    let mut off = rules();
    off.manage_termination = false;
    let facts = Facts {
        hypervisor: Some(Arc::new(hypervisor(&plain(), json!({})))),
        agent_pods: None,
    };
    assert_eq!(
        mode_of(&decide(&terminating(plain()), &facts, &off).actions),
        None,
        "switched off"
    );
}

#[test]
fn a_mode_change_is_pinned_to_what_was_seen() {
    let actions = plan(&terminating(plain()), hypervisor(&plain(), json!({})));
    let Some(Action::Maintain(change)) = actions
        .iter()
        .find(|action| matches!(action, Action::Maintain(_)))
    else {
        panic!("{actions:?}");
    };
    let patch = change.to_patch();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(
        patch["spec"],
        json!({"maintenance": "termination", "maintenanceReason": null})
    );
}

#[test]
fn in_termination_the_spec_stays_as_it_is() {
    let changed = node(
        &json!({"topology.kubernetes.io/zone": "z2"}),
        &json!({"nova.openstack.cloud.sap/aggregates": "other"}),
    );
    let given = hypervisor(&plain(), json!({"spec": {"maintenance": "termination"}}));
    let actions = plan(&changed, given.clone());
    let wanted = applied(&actions).expect("labels are still kept in step");
    assert_eq!(wanted.labels["topology.kubernetes.io/zone"], "z2");
    assert_eq!(wanted.spec["aggregates"], json!(given.spec.aggregates));
    assert_eq!(wanted.spec["lifecycleEnabled"], json!(true));
}

#[test]
fn terminating_is_cleared_until_offboarding_began() {
    let said = |offboarded: bool| {
        let mut conditions = vec![
            json!({"type": "Terminating", "status": "True", "reason": "Terminating", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}),
        ];
        if offboarded {
            conditions.push(json!({"type": "Offboarded", "status": "False", "reason": "Offboarding", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        }
        json!({"status": {"conditions": conditions}})
    };
    for (offboarding, reason) in [(false, "NotTerminating"), (true, "Terminating")] {
        let actions = plan(&plain(), hypervisor(&plain(), said(offboarding)));
        let Some(Action::Report(report)) = actions.last() else {
            panic!("{actions:?}")
        };
        let text = format!("{:?}", report.conditions[0]);
        assert!(text.contains(&format!("\"{reason}\"")), "{text}");
    }
}

#[test]
fn the_annotation_of_the_node_asks_for_maintenance_and_takes_it_back() {
    let asking = |text: &str| {
        node(
            &json!({LIFECYCLE: ""}),
            &json!({"kvm.cloud.sap/maintenance": text}),
        )
    };
    let ours = json!({"metadata": {"annotations": {"kvm.cloud.sap/maintenance-set-by": "node-annotation"}},
        "spec": {"maintenance": "manual", "maintenanceReason": "disk"}});
    let theirs = json!({"spec": {"maintenance": "manual", "maintenanceReason": "mine"}});
    let none = node(&json!({LIFECYCLE: ""}), &json!({}));
    type Case<'a> = (&'a Node, Value, Option<(Maintenance, Option<&'a str>)>);
    let (auto, manual, empty) = (asking("auto"), asking("manual: disk "), asking("manual:"));
    let table: Vec<Case<'_>> = vec![
        (&auto, json!({}), Some((Maintenance::Auto, None))),
        (&manual, json!({}), Some((Maintenance::Manual, Some("disk")))),
        (&manual, ours.clone(), None),
        (&auto, ours.clone(), Some((Maintenance::Auto, None))),
        (&none, ours.clone(), Some((Maintenance::Off, None))),
        (&empty, json!({}), None),
        (&auto, theirs.clone(), None),
        (&none, theirs, None),
        (&auto, json!({"spec": {"maintenance": "ha"}}), None),
    ];
    for (node, change, wanted) in table {
        let actions = plan(node, hypervisor(node, change.clone()));
        let found = mode_of(&actions).map(|(mode, reason)| (mode.clone(), reason));
        assert_eq!(found, wanted, "{change}");
    }
}

#[test]
fn a_kept_record_outlives_its_node() {
    let mut keeping = rules();
    keeping.keep_decommissioned = true;
    let offboarded = json!({"status": {"conditions": [{"type": "Offboarded", "status": "True", "reason": "Offboarded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let facts = Facts {
        hypervisor: Some(Arc::new(hypervisor(&plain(), offboarded))),
        agent_pods: None,
    };
    let actions = decide(&plain(), &facts, &keeping).actions;
    assert!(actions.contains(&Action::Release), "{actions:?}");
    assert_eq!(applied(&actions), None);
}

#[test]
fn pods_that_remain_are_counted_again_soon() {
    let facts = Facts {
        hypervisor: Some(Arc::new(hypervisor(&plain(), json!({})))),
        agent_pods: Some(vec!["a/b".into()]),
    };
    let plan = decide(&plain(), &facts, &rules());
    assert_eq!(plan.next, cobaltcore_kit::controller::Next::After(POD_POLL));
}

proptest! {
    /// Whatever the Node says, a second look after a change finds nothing left to apply.
    #[test]
    fn what_was_applied_stays_applied(
        zone in prop::option::of("[a-z]{1,3}"),
        lifecycle in prop::option::of(prop::sample::select(vec!["", "skip-tests", "x"])),
        aggregates in prop::option::of("[a-c, ]{0,8}"),
        traits in prop::option::of("[A-C,]{0,6}"),
    ) {
        let mut labels = json!({});
        let mut annotations = json!({});
        for (key, value) in [("topology.kubernetes.io/zone", &zone), (LIFECYCLE, &lifecycle.map(str::to_owned))] {
            if let Some(value) = value { labels[key] = json!(value); }
        }
        for (key, value) in [("nova.openstack.cloud.sap/aggregates", &aggregates), ("nova.openstack.cloud.sap/custom-traits", &traits)] {
            if let Some(value) = value { annotations[key] = json!(value); }
        }
        let node = node(&labels, &annotations);
        let actions = plan(&node, hypervisor(&node, json!({})));
        prop_assert_eq!(applied(&actions), None);
        prop_assert_eq!(actions.len(), 1);
    }
}
