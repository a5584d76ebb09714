// SPDX-License-Identifier: Apache-2.0
//! The gate, the taint and the two signals.

use super::*;
use proptest::prelude::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn node(terminating: bool, tainted: bool) -> Node {
    let taint = json!([{"key": "other", "effect": "NoSchedule"}, {"key": "kvm.cloud.sap/offboarding", "effect": "NoExecute"}]);
    let taints = if tainted { taint } else { json!([taint[0]]) };
    let status = if terminating { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": "n1", "uid": "u1", "labels": {"worker.gardener.cloud/pool": "kvm", "kubernetes.io/hostname": "host1"}},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Terminating", "status": status}]},
    }))
    .unwrap()
}

fn hypervisor(mode: &str, conditions: &[&str]) -> Hypervisor {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|text| {
            let (type_, status) = text.split_once('=').unwrap();
            json!({"type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:50:00Z"})
        })
        .collect();
    serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": {"maintenance": mode, "maintenanceReason": "x"}, "status": {"conditions": conditions, "numInstances": 0}}))
        .unwrap()
}

fn rules() -> Rules {
    Rules {
        mode: GardenerMode::Auto,
        image: "image".into(),
        ha: HaMode::Delegated,
        ha_patience: Duration::from_mins(15),
    }
}

fn facts(hypervisor: Hypervisor) -> Facts {
    Facts {
        hypervisor: Some(Arc::new(hypervisor)),
        deployment: None,
        budget: None,
        now: NOW.parse().unwrap(),
    }
}

fn actions(node: &Node, hypervisor: Hypervisor) -> Vec<Action> {
    decide(node, &facts(hypervisor), &rules()).actions
}

/// What the two objects say: may be drained, is ready.
fn signals(actions: &[Action]) -> (i64, String) {
    let mut found = (-1, String::new());
    for action in actions {
        match action {
            Action::Budget(budget) => found.0 = budget["spec"]["minAvailable"].as_i64().unwrap(),
            Action::Deployment(deployment) => {
                let container = &deployment["spec"]["template"]["spec"]["containers"][0];
                found.1 = container["args"][1].as_str().unwrap().to_owned();
                assert_eq!(deployment["spec"]["replicas"], found.0, "pods and budget agree");
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_signals_follow_the_life_of_a_host() {
    let gone = ["Offboarded=True", "Onboarding=False", "HaEnabled=False"];
    let table: &[(&str, &[&str], (i64, &str))] = &[
        ("", &[], (1, "--ready=false")),
        ("", &["Onboarding=True"], (1, "--ready=false")),
        ("", &["Onboarding=False"], (1, "--ready=true")),
        (
            "termination",
            &["Onboarding=False", "Evicting=False", "Offboarded=False"],
            (1, "--ready=true"),
        ),
        ("termination", &gone, (0, "--ready=true")),
        (
            "termination",
            &["Offboarded=True", "Onboarding=False", "HaEnabled=True"],
            (1, "--ready=true"),
        ),
        (
            "termination",
            &["Offboarded=True", "Onboarding=False"],
            (1, "--ready=true"),
        ),
        ("termination", &["Offboarded=True"], (0, "--ready=false")),
    ];
    for (mode, conditions, (least, ready)) in table {
        let found = signals(&actions(&node(true, true), hypervisor(mode, conditions)));
        assert_eq!(found, (*least, (*ready).to_owned()), "{mode} {conditions:?}");
    }
}

#[test]
fn waiting_for_ha_ends() {
    let held = hypervisor(
        "termination",
        &["Offboarded=True", "Onboarding=False", "HaEnabled=True"],
    );
    let now: Timestamp = NOW.parse().unwrap();
    let at = |rules: &Rules, hv: &Hypervisor, terminating| gate(&node(terminating, true), hv, rules, now);
    assert_eq!(
        at(&rules(), &held, true),
        Gate::AwaitingHa(Duration::from_mins(5))
    );
    let impatient = Rules {
        ha_patience: Duration::from_mins(10),
        ..rules()
    };
    assert_eq!(at(&impatient, &held, true), Gate::Open);
    assert_eq!(
        at(
            &Rules {
                ha: HaMode::Off,
                ..rules()
            },
            &held,
            true
        ),
        Gate::Open
    );
    assert_eq!(at(&rules(), &held, false), Gate::Open, "nothing terminates");
    let mut unwanted = held.clone();
    unwanted.spec.high_availability = false;
    assert_eq!(at(&rules(), &unwanted, true), Gate::Open);
}

#[test]
fn agents_are_pushed_off_an_empty_host_and_let_back_when_it_is_undone() {
    let evicted = ["Evicting=False"];
    let table: &[(&str, &[&str], bool, Option<usize>)] = &[
        ("termination", &evicted, false, Some(2)),
        ("termination", &evicted, true, None),
        ("termination", &["Evicting=True"], false, None),
        ("termination", &["Evicting=True"], true, Some(1)),
        ("termination", &[], false, None),
        ("termination", &[], true, None),
        ("ha", &[], true, None),
        ("", &[], true, Some(1)),
        ("auto", &evicted, true, Some(1)),
        ("auto", &evicted, false, None),
    ];
    for (mode, conditions, tainted, wanted) in table {
        let actions = actions(&node(true, *tainted), hypervisor(mode, conditions));
        let found = actions.iter().find_map(|action| match action {
            Action::Taints(taints) => Some(taints.as_array().unwrap().len()),
            _ => None,
        });
        assert_eq!(found, *wanted, "{mode} {conditions:?} {tainted}");
    }
}

#[test]
fn outside_of_gardener_and_without_lifecycle_nothing_is_signalled_and_leftovers_go() {
    let mut unmanaged = hypervisor("", &[]);
    unmanaged.spec.lifecycle_enabled = false;
    assert_eq!(actions(&node(false, false), unmanaged.clone()), []);
    let mut elsewhere = node(false, false);
    elsewhere.metadata.labels = None;
    assert_eq!(actions(&elsewhere, hypervisor("", &[])), []);
    let mut left = facts(unmanaged);
    left.budget = Some(Arc::default());
    left.deployment = Some(Arc::default());
    assert_eq!(
        decide(&node(false, false), &left, &rules()).actions,
        [Action::DropBudget, Action::DropDeployment]
    );
}

#[test]
fn what_is_there_is_not_applied_again() {
    let given = hypervisor("", &["Onboarding=False"]);
    let mut facts = facts(given);
    let wanted = decide(&node(false, false), &facts, &rules()).actions;
    for action in wanted {
        match action {
            Action::Budget(budget) => facts.budget = Some(Arc::new(serde_json::from_value(budget).unwrap())),
            Action::Deployment(deployment) => {
                facts.deployment = Some(Arc::new(serde_json::from_value(deployment).unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(decide(&node(false, false), &facts, &rules()).actions, []);
}

proptest! {
    /// However conditions come and go: never drained before offboarded, never tainted before empty.
    #[test]
    fn the_order_holds_under_any_interleaving(
        mode in prop::sample::select(vec!["", "manual", "auto", "ha", "termination"]),
        terminating in any::<bool>(),
        tainted in any::<bool>(),
        said in prop::collection::vec(
            (prop::sample::select(vec!["Evicting", "Onboarding", "Offboarded", "HaEnabled", "Terminating"]),
             prop::sample::select(vec!["True", "False", "Unknown"])), 0..6),
    ) {
        let conditions: Vec<String> = said.iter().map(|(t, s)| format!("{t}={s}")).collect();
        let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
        let given = hypervisor(mode, &conditions);
        let actions = actions(&node(terminating, tainted), given.clone());
        let (least, _) = signals(&actions);
        prop_assert!(least != 0 || given.is(Offboarded));
        for action in &actions {
            if let Action::Taints(taints) = action {
                let pushes = taints.as_array().unwrap().iter().any(|t| t["key"] == "kvm.cloud.sap/offboarding");
                prop_assert!(!pushes || (given.is_not(Evicting) && mode == "termination"));
            }
        }
    }
}
