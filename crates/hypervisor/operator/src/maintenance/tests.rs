// SPDX-License-Identifier: Apache-2.0
//! Modes, services and evictions by table, and random schedules of all of them together.

use std::time::Duration;

use cobaltcore_api::Maintenance as Mode;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_kit::controller::Next;
use cobaltcore_kit::status::Intent;
use serde_json::json;

use super::*;
use crate::eviction::{Claim, Service};
use crate::look::{Dice, Says, after, noon};

fn service(enabled: bool, reason: &str) -> Service {
    Service {
        enabled,
        up: true,
        forced_down: false,
        reason: reason.to_owned(),
    }
}

fn snapshot(mode: Mode, service: Service) -> Snapshot {
    Snapshot {
        now: noon(),
        mode,
        mode_reason: String::new(),
        conditions: Vec::new(),
        evicted: false,
        registered: true,
        service: Some(service),
        own: None,
        wishes: Vec::new(),
        pressure: None,
        servers: None,
        verify: Duration::from_mins(5),
        drift: Duration::from_mins(10),
    }
}

/// The conditions as the API server would hold them.
fn write(snapshot: &mut Snapshot, decision: &Decision) {
    let before = json!({"status": {"conditions": snapshot.conditions}});
    let others = snapshot
        .conditions
        .iter()
        .filter(|c| !decide::OWN.iter().any(|own| own.as_str() == c.type_));
    let others: Vec<_> = others.cloned().collect();
    let status = decision
        .conditions
        .onto(Intent::new())
        .status(&before, snapshot.now);
    let written = status.get("conditions").cloned().unwrap_or_else(|| json!([]));
    snapshot.conditions = serde_json::from_value(written).unwrap();
    snapshot.conditions.extend(others);
    snapshot.evicted = decision.evicted;
}

fn calls(decision: &Decision) -> Vec<&Step> {
    let changes = |step: &&Step| matches!(step, Step::Enable | Step::Disable(_));
    decision.steps.iter().filter(changes).collect()
}

fn said(decision: &Decision, type_: HypervisorCondition) -> String {
    let said = decision.conditions.get(type_);
    said.map(|said| format!("{}/{}/{}", said.status.as_str(), said.reason, said.message))
        .unwrap_or_default()
}

const MANUAL: &str = "Hypervisor CRD: spec.maintenance=manual";

#[test]
fn one_order_of_precedence_decides_about_the_service() {
    let wish = Wish {
        disabled_reason: "Eviction reboot: r".into(),
        claim: Claim::Disable,
    };
    let evicts = [wish];
    let table: &[(Mode, &[Wish], Option<&str>, &str)] = &[
        (Mode::Manual, &evicts, Some("DiskPressure"), MANUAL),
        (
            Mode::Termination,
            &[],
            None,
            "Hypervisor CRD: spec.maintenance=termination",
        ),
        (Mode::Off, &evicts, Some("DiskPressure"), "Eviction reboot: r"),
        (
            Mode::Off,
            &[],
            Some("DiskPressure"),
            "Hypervisor CRD: node condition DiskPressure",
        ),
        (Mode::Off, &[], None, "enabled"),
        (Mode::Ha, &evicts, Some("DiskPressure"), "hands off"),
    ];
    for (mode, wishes, pressure, answer) in table {
        let got = match wanted(mode, wishes, *pressure) {
            Wanted::HandsOff => "hands off".to_owned(),
            Wanted::Enabled => "enabled".to_owned(),
            Wanted::Disabled { reason, .. } => reason,
        };
        assert_eq!(got, *answer);
    }
}

#[test]
fn the_service_is_called_only_where_it_differs() {
    let other = "Hypervisor CRD: spec.maintenance=auto";
    let ha = "Hypervisor CRD: spec.maintenance=ha; incident 7";
    let forced = Service {
        forced_down: true,
        ..service(false, "fenced by somebody")
    };
    let table = [
        (
            Mode::Off,
            service(true, ""),
            vec![],
            "False/Succeeded/Hypervisor is enabled",
        ),
        (
            Mode::Off,
            service(false, ""),
            vec![Step::Enable],
            "False/Succeeded/Hypervisor is enabled",
        ),
        (
            Mode::Off,
            service(false, MANUAL),
            vec![Step::Enable],
            "False/Succeeded/Hypervisor is enabled",
        ),
        (
            Mode::Off,
            service(false, ha),
            vec![Step::Enable],
            "False/Succeeded/Hypervisor is enabled",
        ),
        (
            Mode::Off,
            forced,
            vec![Step::Enable],
            "False/Succeeded/Hypervisor is enabled",
        ),
        (
            Mode::Off,
            service(false, "bad disk"),
            vec![],
            "True/Succeeded/Hypervisor already disabled for reason \"bad disk\"",
        ),
        (
            Mode::Manual,
            service(true, ""),
            vec![Step::Disable(MANUAL.into())],
            "True/Succeeded/Hypervisor is disabled",
        ),
        (
            Mode::Manual,
            service(false, MANUAL),
            vec![],
            "True/Succeeded/Hypervisor is disabled",
        ),
        (
            Mode::Manual,
            service(false, other),
            vec![Step::Disable(MANUAL.into())],
            "True/Succeeded/Hypervisor is disabled",
        ),
        (Mode::Ha, service(true, ""), vec![], ""),
    ];
    for (mode, service, steps, text) in table {
        let snapshot = snapshot(mode.clone(), service.clone());
        let decision = super::decide(&snapshot);
        assert_eq!(
            calls(&decision),
            steps.iter().collect::<Vec<_>>(),
            "{mode} {service:?}"
        );
        assert_eq!(
            said(&decision, HypervisorCondition::HypervisorDisabled),
            text,
            "{mode} {service:?}"
        );
    }
}

#[test]
fn ha_keeps_its_hands_on_everything() {
    let mut ha = snapshot(Mode::Ha, service(true, ""));
    ha.own = Some(finished(true, "Succeeded"));
    let decision = super::decide(&ha);
    assert!(decision.steps.is_empty(), "{:?}", decision.steps);
}

#[test]
fn what_nova_does_not_say_changes_nothing() {
    let mut dark = snapshot(Mode::Manual, service(true, ""));
    dark.service = None;
    let decision = super::decide(&dark);
    assert!(calls(&decision).is_empty());
    assert_eq!(said(&decision, HypervisorCondition::HypervisorDisabled), "");
    assert!(matches!(decision.next, Next::After(_)));
}

fn finished(controlled: bool, reason: &str) -> Own {
    Own {
        created: noon(),
        controlled,
        deleting: false,
        evicting: Says::No,
        reason: reason.to_owned(),
        message: "1 of 2 instances could not be moved: x".to_owned(),
    }
}

#[test]
fn three_outcomes_are_three_outcomes() {
    let running = Own {
        evicting: Says::Yes,
        ..finished(true, "Running")
    };
    let table = [
        (running, "True/Running/Evicting", false),
        (finished(true, "Succeeded"), "False/Succeeded/Evicted", true),
        (
            finished(true, "Failed"),
            "True/Failed/1 of 2 instances could not be moved: x",
            false,
        ),
    ];
    for (own, text, evicted) in table {
        let mut snapshot = snapshot(Mode::Manual, service(false, MANUAL));
        snapshot.own = Some(own);
        let decision = super::decide(&snapshot);
        assert_eq!(said(&decision, HypervisorCondition::Evicting), text);
        assert_eq!(decision.evicted, evicted);
    }
}

#[test]
fn an_eviction_of_another_time_does_not_make_a_host_empty() {
    let mut now = snapshot(Mode::Manual, service(false, MANUAL));
    let first = super::decide(&now);
    assert!(first.steps.contains(&Step::CreateEviction));
    write(&mut now, &first);
    now.own = Some(Own {
        created: after(noon(), Duration::ZERO)
            .checked_sub(Duration::from_hours(1))
            .unwrap(),
        ..finished(true, "Succeeded")
    });
    let stale = super::decide(&now);
    assert!(stale.steps.contains(&Step::DeleteEviction));
    assert!(!stale.evicted);
    now.own = Some(Own {
        evicting: Says::Yes,
        ..finished(false, "Running")
    });
    let foreign = super::decide(&now);
    assert!(foreign.steps.contains(&Step::AdoptEviction));
    assert!(!foreign.evicted);
}

#[test]
fn a_host_that_fills_up_again_is_evicted_again() {
    let mut empty = snapshot(Mode::Manual, service(false, MANUAL));
    empty.own = Some(finished(true, "Succeeded"));
    let decision = super::decide(&empty);
    write(&mut empty, &decision);
    assert!(empty.evicted);
    empty.servers = Some(0);
    assert!(super::decide(&empty).evicted);
    empty.servers = Some(1);
    let refilled = super::decide(&empty);
    assert!(!refilled.evicted);
    assert!(refilled.steps.contains(&Step::DeleteEviction));
    assert_eq!(
        said(&refilled, HypervisorCondition::Evicting),
        "True/Running/Evicting"
    );
}

#[test]
fn leaving_maintenance_takes_everything_back() {
    let mut leaving = snapshot(Mode::Manual, service(false, MANUAL));
    leaving.own = Some(finished(true, "Succeeded"));
    let entered = super::decide(&leaving);
    write(&mut leaving, &entered);
    leaving.mode = Mode::Off;
    let decision = super::decide(&leaving);
    assert_eq!(calls(&decision), [&Step::Enable]);
    assert!(decision.steps.contains(&Step::DeleteEviction));
    assert!(!decision.evicted);
    assert_eq!(said(&decision, HypervisorCondition::Evicting), "");
    leaving.own = Some(finished(false, "Succeeded"));
    let standalone = super::decide(&leaving);
    assert!(
        !standalone.steps.contains(&Step::DeleteEviction),
        "not ours to delete"
    );
}

/// Modes come and go, services are changed by others, evictions run, fail and vanish: the host
/// ends up as its last mode wants it, and meanwhile is never called empty without being so.
#[test]
fn any_schedule_ends_where_the_last_mode_wants() {
    let modes = [Mode::Off, Mode::Manual, Mode::Auto, Mode::Ha, Mode::Termination];
    for seed in 1..=500u64 {
        let mut dice = Dice::new(seed);
        let mut roll = |sides: u64| dice.roll(sides);
        let mut world = snapshot(Mode::Off, service(true, ""));
        let mut servers = roll(3) as usize;
        for round in 0..160 {
            let wild = round < 100;
            if wild && roll(8) == 0 && world.mode != Mode::Termination {
                world.mode = modes[roll(modes.len() as u64) as usize].clone();
            }
            if wild && roll(20) == 0 {
                world.service = Some(service(roll(2) == 0, ["", "somebody"][roll(2) as usize]));
            }
            if let Some(own) = &mut world.own {
                match roll(6) {
                    0 if own.deleting => world.own = None,
                    1 if own.evicting == Says::Yes => {
                        let ends = if wild && roll(3) == 0 {
                            "Failed"
                        } else {
                            "Succeeded"
                        };
                        if ends == "Succeeded" {
                            servers = 0;
                        }
                        (own.evicting, own.reason) = (Says::No, ends.to_owned());
                    }
                    2 if own.reason == "Failed" && !own.deleting => {
                        (own.evicting, own.reason) = (Says::Yes, "Running".to_owned());
                    }
                    _ => {}
                }
            }
            if !wild && world.own.as_ref().is_some_and(|own| own.deleting) {
                world.own = None;
            }
            world.servers = Some(servers);
            let decision = super::decide(&world);
            let died = wild && roll(10) == 0;
            for step in &decision.steps {
                if died && roll(3) == 0 {
                    break;
                }
                match step {
                    Step::Enable => world.service = Some(service(true, "")),
                    Step::Disable(reason) => world.service = Some(service(false, reason)),
                    Step::Report => write(&mut world, &decision),
                    Step::CreateEviction => {
                        world.own = Some(Own {
                            created: world.now,
                            evicting: Says::Yes,
                            ..finished(true, "Running")
                        });
                    }
                    Step::DeleteEviction => world.own.as_mut().unwrap().deleting = true,
                    Step::AdoptEviction => world.own.as_mut().unwrap().controlled = true,
                    Step::Tell(_) => {}
                }
            }
            assert!(
                !world.evicted || servers == 0,
                "seed {seed}: called empty with {servers} servers"
            );
            let rests = decision.next == Next::OnChange && world.mode != Mode::Ha;
            assert!(!rests, "seed {seed}: nobody looks again in {}", world.mode);
            world.now = after(world.now, Duration::from_secs(1 + roll(100)));
        }
        let (service, evicting) = (
            world.service.clone().unwrap(),
            crate::look::says(&world.conditions, HypervisorCondition::Evicting),
        );
        match world.mode {
            Mode::Off => {
                assert!(
                    service.enabled || service.reason == "somebody",
                    "seed {seed}: {service:?}"
                );
                assert_eq!(evicting, Says::Nothing, "seed {seed}");
            }
            Mode::Ha => {}
            _ => {
                assert!(!service.enabled, "seed {seed}");
                assert!(
                    world.evicted,
                    "seed {seed}: {:?} {:?}",
                    world.own, world.conditions
                );
            }
        }
    }
}
