// SPDX-License-Identifier: Apache-2.0
//! Sick nodes, sick zones, and the way back.

use super::*;
use cobaltcore_kit::controller::Next;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

fn node(conditions: &[(&str, &str, &str)]) -> Node {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, status, since)| json!({"type": type_, "status": status, "lastTransitionTime": format!("2026-01-01T00:{since}:00Z")}))
        .collect();
    serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}})).unwrap()
}

fn hypervisor(change: &Value) -> Hypervisor {
    let mut object = json!({
        "metadata": {"name": "n1"}, "spec": {},
        "status": {"numInstances": 0, "conditions": [
            {"type": "Onboarding", "status": "False", "reason": "Succeeded", "message": "", "lastTransitionTime": NOW},
        ]},
    });
    for part in ["spec", "metadata"] {
        for (key, value) in change[part].as_object().into_iter().flatten() {
            object[part][key] = value.clone();
        }
    }
    if let Some(condition) = change.get("condition") {
        object["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(condition.clone());
    }
    serde_json::from_value(object).unwrap()
}

fn facts(hypervisor: Hypervisor, zone: (usize, usize, usize), compute_up: Option<bool>) -> Facts {
    let (all, unhealthy, reacting) = zone;
    Facts {
        hypervisor: Some(Arc::new(hypervisor)),
        zone: Zone {
            all,
            unhealthy,
            reacting,
        },
        compute_up,
        now: NOW.parse().unwrap(),
    }
}

fn rules() -> Rules {
    Rules {
        timeout: Duration::from_mins(10),
        most: Share::Percent(10),
    }
}

/// Everything but the mirror, in one word.
fn verdict(node: &Node, facts: &Facts, rules: &Rules) -> String {
    let plan = decide(node, facts, rules);
    let word = plan.actions.iter().find_map(|action| match action {
        Action::Report(_) => None,
        Action::Tell(reason, _) => Some(reason.as_str().to_owned()),
        Action::Maintain => Some("maintain".into()),
        Action::Recover => Some("recover".into()),
    });
    word.unwrap_or_else(|| match plan.next {
        Next::After(pause) => format!("wait {}", pause.as_secs()),
        Next::OnChange => "rest".into(),
    })
}

#[test]
fn a_sick_node_is_emptied_only_when_that_can_work_and_is_its_own_fault() {
    let sick = node(&[("Ready", "Unknown", "45")]);
    let not_long = node(&[("Ready", "False", "55")]);
    let well = node(&[("Ready", "True", "00")]);
    let plain = json!({});
    type Case<'a> = (&'a Node, Value, (usize, usize, usize), Option<bool>, &'a str);
    let table: Vec<Case<'_>> = vec![
        (&sick, plain.clone(), (20, 1, 0), Some(true), "maintain"),
        (&sick, plain.clone(), (20, 1, 0), Some(false), "HostDown"),
        (&sick, plain.clone(), (20, 1, 0), None, "NodeUnhealthy"),
        (&not_long, plain.clone(), (20, 1, 0), Some(true), "wait 300"),
        (&sick, plain.clone(), (20, 6, 0), Some(true), "maintain"),
        (&sick, plain.clone(), (20, 7, 0), Some(true), "NodeHealthBrake"),
        (&sick, plain.clone(), (20, 8, 0), Some(true), "NodeHealthBrake"),
        (&sick, plain.clone(), (20, 3, 2), Some(true), "NodeHealthBrake"),
        (&sick, plain.clone(), (9, 2, 1), Some(true), "NodeHealthBrake"),
        (
            &sick,
            json!({"spec": {"maintenance": "ha"}}),
            (20, 1, 0),
            Some(true),
            "rest",
        ),
        (
            &sick,
            json!({"spec": {"lifecycleEnabled": false}}),
            (20, 1, 0),
            Some(true),
            "rest",
        ),
        (&well, plain, (20, 0, 0), None, "rest"),
    ];
    for (node, change, zone, up, wanted) in table {
        let facts = facts(hypervisor(&change), zone, up);
        assert_eq!(
            verdict(node, &facts, &rules()),
            wanted,
            "{change} {zone:?} {up:?}"
        );
        // Nova is asked exactly when its answer makes the difference.
        let decides = ["maintain", "HostDown", "NodeUnhealthy"].contains(&wanted);
        assert_eq!(
            depends_on_compute(node, &facts, &rules()),
            decides,
            "{change} {zone:?}"
        );
    }
    let off = Rules {
        timeout: Duration::ZERO,
        ..rules()
    };
    assert_eq!(
        verdict(
            &sick,
            &facts(hypervisor(&json!({})), (20, 1, 0), Some(true)),
            &off
        ),
        "rest"
    );
}

#[test]
fn only_what_was_begun_here_ends_here_and_not_at_once() {
    let ours = json!({"spec": {"maintenance": "auto"}, "metadata": {"annotations": {"kvm.cloud.sap/maintenance-set-by": "node-health"}}});
    let theirs = json!({"spec": {"maintenance": "auto"}});
    let manual = json!({"spec": {"maintenance": "manual", "maintenanceReason": "x"}, "metadata": {"annotations": {"kvm.cloud.sap/maintenance-set-by": "node-health"}}});
    for (change, since, wanted) in [
        (&ours, "50", "recover"),
        (&ours, "58", "wait 180"),
        (&theirs, "50", "rest"),
        (&manual, "50", "rest"),
    ] {
        let node = node(&[("Ready", "True", since)]);
        assert_eq!(
            verdict(&node, &facts(hypervisor(change), (20, 0, 1), None), &rules()),
            wanted,
            "{change} {since}"
        );
    }
}

#[test]
fn readiness_is_mirrored() {
    for (status, wanted) in [
        ("True", NewCondition::yes(NodeReady, "Ready", "")),
        (
            "False",
            NewCondition::no(NodeReady, "NotReady", "The kubelet says it is not ready"),
        ),
        (
            "Unknown",
            NewCondition::no(NodeReady, "Unreachable", "The kubelet does not report"),
        ),
    ] {
        assert_eq!(ready(&node(&[("Ready", status, "00")])), Some(wanted));
    }
    assert_eq!(ready(&node(&[])), None, "a node that never said anything");
}

#[test]
fn pressure_holds_until_it_has_been_over_for_a_while() {
    let now = NOW.parse().unwrap();
    let pressed = json!({"condition": {"type": "NodePressure", "status": "True", "reason": "DiskPressure", "message": "", "lastTransitionTime": NOW}});
    let disk = |status, since| node(&[("Ready", "True", "00"), ("DiskPressure", status, since)]);
    let on = NewCondition::yes(NodePressure, "DiskPressure", "node condition DiskPressure");
    let fading = NewCondition::yes(
        NodePressure,
        "DiskPressure",
        "node condition DiskPressure ended a moment ago",
    );
    let off = NewCondition::no(NodePressure, "NoPressure", "");
    let fresh = hypervisor(&json!({}));
    assert_eq!(pressure(&disk("True", "59"), &fresh, now), (on, None));
    assert!(pressure_begins(&disk("True", "59"), &fresh));
    assert!(!pressure_begins(&disk("True", "59"), &hypervisor(&pressed)));
    let left = Some(Duration::from_mins(3));
    assert_eq!(
        pressure(&disk("False", "58"), &hypervisor(&pressed), now),
        (fading, left)
    );
    assert_eq!(
        pressure(&disk("False", "50"), &hypervisor(&pressed), now),
        (off.clone(), None)
    );
    assert_eq!(pressure(&disk("False", "58"), &fresh, now), (off, None));
}

proptest! {
    /// However the zone is, no more hosts are emptied than the brake allows.
    #[test]
    fn the_brake_holds(all in 1..200usize, unhealthy in 0..200usize, reacting in 0..50usize, percent in 1..100u8) {
        let unhealthy = unhealthy.min(all);
        let rules = Rules { timeout: Duration::from_mins(1), most: Share::Percent(percent) };
        let sick = node(&[("Ready", "Unknown", "00")]);
        let facts = facts(hypervisor(&json!({})), (all, unhealthy, reacting), Some(true));
        if verdict(&sick, &facts, &rules) == "maintain" {
            prop_assert!(unhealthy * 100 <= all * 30);
            prop_assert!(reacting < Share::Percent(percent).of(all));
        }
    }
}
