// SPDX-License-Identifier: Apache-2.0
//! What becomes of servers in every state, by table.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::names::ServerId;
use cobaltcore_api::reasons::{EvictingReason, EvictionStepReason};
use cobaltcore_api::{EvictionSpec, EvictionState, Maintenance, MoveKind, ReEnable};
use cobaltcore_kit::controller::Next;
use cobaltcore_kit::status::Intent;
use serde_json::json;

use super::*;
use crate::look::{after, noon};

pub(super) const HOST: &str = "node1.example";

pub(super) fn id(number: u32) -> ServerId {
    ServerId::new(format!("00000000-0000-4000-8000-{number:012}")).unwrap()
}

pub(super) fn server(number: u32, status: &str) -> Server {
    Server {
        id: id(number),
        name: format!("vm{number}"),
        state: ServerState::parse(status),
        task: None,
        host: Some(HOST.to_owned()),
        ram_mb: u64::from(number) * 64,
        vcpus: 1,
        fault: None,
        pinned: None,
        volume_backed: true,
    }
}

pub(super) fn host() -> Host {
    Host {
        registered: true,
        hypervisor_id: "hv-uuid".to_owned(),
        compute_host: HOST.to_owned(),
        maintenance: Maintenance::Manual,
        disabled: true,
        terminating: false,
    }
}

pub(super) fn snapshot(servers: Vec<Server>) -> Snapshot {
    Snapshot {
        now: noon(),
        settings: Settings::default(),
        order: Order {
            name: "node1.example".to_owned(),
            spec: EvictionSpec {
                hypervisor: HOST.to_owned(),
                reason: "test".to_owned(),
                ..EvictionSpec::default()
            },
            controlled: true,
            ..Order::default()
        },
        host: Some(host()),
        service: Some(Service {
            enabled: false,
            up: true,
            forced_down: false,
            reason: "Hypervisor CRD: spec.maintenance=manual".to_owned(),
        }),
        servers,
        departed: BTreeMap::new(),
        migrations: Vec::new(),
        remaining: BTreeMap::new(),
        capacity: None,
        candidates: Vec::new(),
        fleet_free: 100,
        ledger: Ledger::default(),
    }
}

/// What the API server would hold after the report was written.
pub(super) fn written(snapshot: &Snapshot, report: &Report) -> cobaltcore_api::EvictionStatus {
    let before = json!({"status": {"conditions": snapshot.order.status.conditions}});
    let intent = report.conditions.onto(Intent::new());
    let status = intent.status(&before, snapshot.now);
    let conditions = status.get("conditions").cloned().unwrap_or_else(|| json!([]));
    cobaltcore_api::EvictionStatus {
        conditions: serde_json::from_value(conditions).unwrap(),
        ..report.status.clone()
    }
}

fn moves(decision: &Decision) -> Vec<(ServerId, MoveKind)> {
    let of = |step: &Step| match step {
        Step::Move { server, kind, .. } => Some((server.clone(), kind.clone())),
        _ => None,
    };
    decision.steps.iter().filter_map(of).collect()
}

fn evicting(decision: &Decision) -> (bool, String) {
    let said = decision
        .report
        .conditions
        .get(EvictionCondition::Evicting)
        .unwrap();
    (said.is(true, &said.reason), said.reason.clone())
}

fn message(decision: &Decision, type_: EvictionCondition) -> String {
    let said = decision.report.conditions.get(type_);
    said.map(|said| said.message.clone()).unwrap_or_default()
}

#[test]
fn each_state_of_a_server_has_its_answer() {
    let table: &[(&str, Option<&str>, &str)] = &[
        ("ACTIVE", None, "live"),
        ("PAUSED", None, "live"),
        ("SHUTOFF", None, "cold"),
        ("ACTIVE", Some("deleting"), "wait"),
        ("ACTIVE", Some("powering-off"), "wait"),
        ("BUILD", Some("spawning"), "wait"),
        ("REBOOT", Some("rebooting"), "wait"),
        ("SUSPENDED", None, "wait"),
        ("RESCUE", None, "wait"),
        ("MIGRATING", Some("migrating"), "busy"),
        ("RESIZE", Some("resize_migrating"), "busy"),
        ("VERIFY_RESIZE", None, "confirm"),
        ("ERROR", None, "given up"),
        ("SHELVED_OFFLOADED", None, "left"),
    ];
    for (status, task, answer) in table {
        let mut one = server(1, status);
        one.task = task.map(str::to_owned);
        let decision = decide(&snapshot(vec![one]));
        let confirms = decision.steps.contains(&Step::Confirm(id(1)));
        let got = match moves(&decision).first() {
            Some((_, MoveKind::Live)) => "live",
            Some((_, MoveKind::Cold)) => "cold",
            _ if confirms => "confirm",
            _ if !decision.report.status.in_flight.is_empty() => "busy",
            _ if evicting(&decision) == (false, "Failed".into()) => "given up",
            _ if evicting(&decision) == (false, "Succeeded".into()) => "left",
            _ => "wait",
        };
        assert_eq!(got, *answer, "{status} {task:?}");
    }
}

#[test]
fn a_move_is_announced_before_it_is_asked_for() {
    let decision = decide(&snapshot(vec![server(1, "ACTIVE"), server(2, "ACTIVE")]));
    assert_eq!(moves(&decision).len(), 2);
    let announced: Vec<&str> = decision
        .report
        .status
        .in_flight
        .iter()
        .map(|entry| entry.id.as_str())
        .collect();
    assert_eq!(announced, [id(1).as_str(), id(2).as_str()]);
    assert_eq!(decision.moving, 2);
    assert!(matches!(decision.next, Next::After(pause) if pause == Duration::from_secs(2)));
}

#[test]
fn shut_off_servers_go_first_then_small_ones_and_the_list_says_so() {
    let servers = vec![server(3, "ACTIVE"), server(1, "ACTIVE"), server(9, "SHUTOFF")];
    let decision = decide(&snapshot(servers));
    assert_eq!(
        moves(&decision),
        [(id(9), MoveKind::Cold), (id(1), MoveKind::Live)]
    );
    let outstanding = &decision.report.status.outstanding_instances;
    assert_eq!(outstanding.last().unwrap(), id(9).as_str());
    assert_eq!(outstanding.first().unwrap(), id(3).as_str());
    assert_eq!(decision.report.status.outstanding_ram_mb, (3 + 1 + 9) * 64);
}

#[test]
fn the_lowest_of_host_limit_and_fleet_limit_holds() {
    for (parallel, fleet, started) in [(None, 100, 2), (Some(4), 100, 4), (Some(4), 1, 1), (None, 0, 0)] {
        let mut all = snapshot((1..=6).map(|n| server(n, "ACTIVE")).collect());
        all.order.spec.max_parallel = parallel;
        all.fleet_free = fleet;
        let decision = decide(&all);
        assert_eq!(moves(&decision).len(), started, "{parallel:?} {fleet}");
        if fleet == 0 {
            let text = message(&decision, EvictionCondition::MigratingInstance);
            assert!(text.contains("fleet"), "{text}");
        }
    }
}

#[test]
fn nothing_starts_before_the_checks_are_met_and_the_reason_is_visible() {
    type Edit = fn(&mut Snapshot);
    let table: &[(&str, Edit)] = &[
        ("hypervisor not disabled", |s| {
            s.service.as_mut().unwrap().enabled = true;
        }),
        ("compute service is down, use high availability evacuation", |s| {
            s.service.as_mut().unwrap().up = false;
        }),
        ("1 incoming migration(s) under way", |s| {
            s.migrations
                .push(record(7, 99, "elsewhere", Some(HOST), MigrationState::Committed));
        }),
        ("1 incoming migration(s) are being stopped", |s| {
            s.migrations
                .push(record(7, 99, "elsewhere", Some(HOST), MigrationState::Abortable));
        }),
    ];
    for (text, edit) in table {
        let mut closed = snapshot(vec![server(1, "ACTIVE")]);
        edit(&mut closed);
        let decision = decide(&closed);
        assert!(moves(&decision).is_empty(), "{text}");
        let said = decision
            .report
            .conditions
            .get(EvictionCondition::PreflightChecksSucceeded)
            .unwrap();
        assert!(said.is(false, EvictionStepReason::Failed), "{text}");
        assert_eq!(said.message, *text);
        assert!(matches!(decision.next, Next::After(_)), "{text}");
    }
}

pub(super) fn record(
    number: u64,
    server: u32,
    source: &str,
    destination: Option<&str>,
    state: MigrationState,
) -> MigrationRecord {
    MigrationRecord {
        id: number,
        server: id(server),
        source: source.to_owned(),
        destination: destination.map(str::to_owned),
        state,
        live: true,
        created: noon(),
        updated: noon(),
    }
}

#[test]
fn a_fleet_without_room_ends_the_eviction_unless_the_host_must_go() {
    for (mode, ignore, ends) in [
        (Maintenance::Manual, false, true),
        (Maintenance::Termination, false, false),
        (Maintenance::Manual, true, false),
    ] {
        let mut full = snapshot(vec![server(1, "ACTIVE")]);
        full.capacity = Some(Answer::No("capacity: needs 1".to_owned()));
        full.host.as_mut().unwrap().maintenance = mode.clone();
        full.order.ignore_preflight = ignore;
        let decision = decide(&full);
        assert_eq!(moves(&decision).is_empty(), ends, "{mode} {ignore}");
        assert_eq!(evicting(&decision).1 == "Failed", ends);
        let text = message(&decision, EvictionCondition::PreflightChecksSucceeded);
        assert!(text.contains("capacity: needs 1"), "{text}");
    }
}

#[test]
fn what_cannot_be_found_out_does_not_stop_an_eviction() {
    let mut dark = snapshot(vec![server(1, "ACTIVE")]);
    dark.capacity = Some(Answer::Unknown("capacity".to_owned()));
    dark.candidates = vec![Answer::Unknown("placement does not answer".to_owned())];
    assert_eq!(moves(&decide(&dark)).len(), 1);
}

#[test]
fn success_means_an_empty_host_by_novas_own_list() {
    let mut running = snapshot(vec![server(1, "ACTIVE")]);
    let first = decide(&running);
    running.order.status = written(&running, &first.report);
    running.servers.clear();
    running.departed.insert(id(1), Departed::Unknown);
    let unsure = decide(&running);
    assert_eq!(
        evicting(&unsure),
        (true, "Running".into()),
        "no answer is no answer"
    );
    running.departed.insert(
        id(1),
        Departed::Elsewhere(Box::new(Server {
            host: Some("node2".to_owned()),
            ..server(1, "ACTIVE")
        })),
    );
    let done = decide(&running);
    assert_eq!(evicting(&done), (false, "Succeeded".into()));
    assert_eq!(done.report.status.eviction_state, Some(EvictionState::Succeeded));
    assert_eq!(done.report.status.migrated_instances, Some(1));
    running.servers.push(server(2, "ACTIVE"));
    let late = decide(&running);
    assert_eq!(
        evicting(&late),
        (true, "Running".into()),
        "a late arrival is moved too"
    );
    assert_eq!(moves(&late), [(id(2), MoveKind::Live)]);
    assert_eq!(late.report.status.total_instances, Some(2));
}

#[test]
fn a_cold_move_is_done_when_it_is_confirmed() {
    let mut running = snapshot(vec![server(1, "SHUTOFF")]);
    let first = decide(&running);
    running.order.status = written(&running, &first.report);
    running.ledger = first.ledger;
    running.servers.clear();
    let elsewhere = |status: &str| {
        let mut moved = server(1, status);
        moved.host = Some("node2".to_owned());
        Departed::Elsewhere(Box::new(moved))
    };
    running.departed.insert(id(1), elsewhere("VERIFY_RESIZE"));
    let confirm = decide(&running);
    assert!(confirm.steps.contains(&Step::Confirm(id(1))));
    assert_eq!(evicting(&confirm).1, "Running");
    running.order.status = written(&running, &confirm.report);
    running.departed.insert(id(1), elsewhere("SHUTOFF"));
    assert_eq!(evicting(&decide(&running)), (false, "Succeeded".into()));
}

#[test]
fn a_stuck_migration_is_stopped_tried_again_and_then_given_up() {
    let mut world = snapshot(vec![server(1, "ACTIVE"), server(2, "PAUSED")]);
    world.order.spec.max_parallel = Some(1);
    let mut failures = 0;
    let mut given_up = None;
    for _ in 0..4000 {
        let decision = decide(&world);
        world.order.status = written(&world, &decision.report);
        world.ledger = decision.ledger.clone();
        for step in &decision.steps {
            match step {
                Step::Move { server, .. } if *server == id(1) => {
                    let mut running = record(failures + 1, 1, HOST, Some("node2"), MigrationState::Abortable);
                    running.created = world.now;
                    world.migrations.push(running);
                    world.servers[0].state = ServerState::Migrating;
                    world.servers[0].task = Some("migrating".to_owned());
                }
                Step::Move { .. } => {
                    world.servers.truncate(1);
                }
                Step::Abort { migration, .. } => {
                    assert_eq!(*migration, failures + 1);
                    failures += 1;
                    let last = world.migrations.last_mut().unwrap();
                    (last.state, last.updated) = (MigrationState::Failed, world.now);
                    world.servers[0] = server(1, "ACTIVE");
                }
                Step::Tell(Word::GivenUp(server, why)) => given_up = Some((server.clone(), why.clone())),
                _ => {}
            }
        }
        if evicting(&decision).1 != "Running" {
            break;
        }
        world.now = after(world.now, Duration::from_secs(5));
    }
    assert_eq!(failures, 3, "three attempts, three aborts");
    assert_eq!(world.servers.len(), 1, "the other server was not held up");
    let (who, why) = given_up.unwrap();
    assert_eq!(who, id(1));
    assert!(why.contains("3 attempts failed"), "{why}");
    let status = &world.order.status;
    assert_eq!(status.eviction_state, Some(EvictionState::Failed));
    assert_eq!(status.outstanding_instances, [id(1).to_string()]);
    let text = &status
        .conditions
        .iter()
        .find(|c| c.type_ == "Evicting")
        .unwrap()
        .message;
    assert_eq!(*text, format!("1 of 2 instances could not be moved: {}", id(1)));
}

#[test]
fn refusals_count_only_when_they_last() {
    for (kind, minutes, counted) in [
        (RefusalKind::Trouble, 60, 0),
        (RefusalKind::Conflict, 4, 0),
        (RefusalKind::Conflict, 9, 1),
        (RefusalKind::Permanent, 0, 1),
    ] {
        let mut world = snapshot(vec![server(1, "ACTIVE")]);
        let end = after(noon(), Duration::from_secs(minutes * 60));
        loop {
            let decision = decide(&world);
            world.order.status = written(&world, &decision.report);
            world.ledger = decision.ledger.clone();
            if world.now > end {
                break;
            }
            if !moves(&decision).is_empty() {
                world.ledger.track(&id(1)).refused = Some(Refusal {
                    at: world.now,
                    text: "no".to_owned(),
                    kind,
                });
            }
            world.now = after(world.now, Duration::from_secs(5));
        }
        let unrecorded = world.ledger.track(&id(1)).unrecorded;
        assert_eq!(u32::from(unrecorded > 0), counted, "{kind:?} {minutes}");
    }
}

#[test]
fn what_a_dead_process_announced_is_found_out_and_not_repeated_blindly() {
    let mut world = snapshot(vec![server(1, "ACTIVE")]);
    let first = decide(&world);
    world.order.status = written(&world, &first.report);
    // The process died: nothing is remembered, and Nova shows no effect yet.
    world.ledger = Ledger::default();
    world.now = after(noon(), Duration::from_secs(3));
    let soon = decide(&world);
    assert!(moves(&soon).is_empty(), "Nova may still be working on it");
    world.now = after(noon(), Duration::from_secs(11));
    let later = decide(&world);
    assert_eq!(moves(&later).len(), 1, "it was never asked for");
    assert_eq!(
        later.report.status.in_flight[0].attempt, 1,
        "and so it is the first attempt"
    );
    // Had it been asked for, Nova would show it.
    world.servers[0].state = ServerState::Migrating;
    world.servers[0].task = Some("migrating".to_owned());
    assert!(moves(&decide(&world)).is_empty());
}

#[test]
fn nobody_starts_a_migration_while_ha_has_the_host() {
    let mut ha = snapshot(vec![server(1, "ACTIVE")]);
    ha.host.as_mut().unwrap().maintenance = Maintenance::Ha;
    let decision = decide(&ha);
    assert!(moves(&decision).is_empty());
    let text = message(&decision, EvictionCondition::MigratingInstance);
    assert!(text.contains("HA service"), "{text}");
}

#[test]
fn fenced_hosts_are_evacuated_only_when_that_is_switched_on() {
    for (switch, forced, moved) in [(true, true, 3), (true, false, 0), (false, true, 0)] {
        let servers = vec![server(1, "ACTIVE"), server(2, "ERROR"), server(3, "SHUTOFF")];
        let mut down = snapshot(servers);
        down.order.spec.max_parallel = Some(8);
        down.settings.evacuate_down_hosts = switch;
        let service = down.service.as_mut().unwrap();
        (service.up, service.forced_down) = (false, forced);
        let got = moves(&decide(&down));
        assert_eq!(got.len(), moved, "{switch} {forced}");
        assert!(got.iter().all(|(_, kind)| *kind == MoveKind::Evacuate));
    }
}

#[test]
fn an_eviction_of_nobody_says_so_and_one_without_nova_succeeds() {
    let mut nobody = snapshot(Vec::new());
    nobody.host = None;
    let decision = decide(&nobody);
    assert_eq!(evicting(&decision), (false, "Failed".into()));
    let text = message(&decision, EvictionCondition::Evicting);
    assert_eq!(text, "hypervisor node1.example not found");
    nobody.settings.partitioned = true;
    let foreign = decide(&nobody);
    assert!(
        foreign
            .report
            .conditions
            .get(EvictionCondition::Evicting)
            .is_none()
    );
    let mut unregistered = snapshot(Vec::new());
    unregistered.host.as_mut().unwrap().registered = false;
    assert_eq!(evicting(&decide(&unregistered)), (false, "Succeeded".into()));
}

#[test]
fn a_failed_eviction_starts_over_on_request_or_after_a_while() {
    let mut failed = snapshot(vec![server(1, "ERROR")]);
    let first = decide(&failed);
    assert_eq!(evicting(&first), (false, "Failed".into()));
    failed.order.status = written(&failed, &first.report);
    failed.servers = vec![server(1, "ACTIVE")];
    failed.now = after(noon(), Duration::from_mins(9));
    let early = decide(&failed);
    assert!(moves(&early).is_empty());
    assert!(matches!(early.next, Next::After(pause) if pause == Duration::from_mins(1)));
    failed.now = after(noon(), Duration::from_mins(10));
    assert_eq!(moves(&decide(&failed)).len(), 1);
    failed.now = after(noon(), Duration::from_mins(1));
    failed.order.retry = true;
    let asked = decide(&failed);
    assert_eq!(moves(&asked).len(), 1);
    assert!(asked.steps.contains(&Step::TakeRetry));
    assert!(asked.report.status.non_migratable_instances.is_empty());
}

#[test]
fn a_standalone_eviction_holds_itself_until_the_host_is_given_back() {
    let mut alone = snapshot(Vec::new());
    alone.order.controlled = false;
    alone.order.name = "reboot".to_owned();
    alone.host.as_mut().unwrap().maintenance = Maintenance::Off;
    let ours = disabled_reason("reboot", "test");
    assert!(decide(&alone).steps.contains(&Step::Hold));
    alone.order.held = true;
    alone.order.deleting = true;
    let claim = |s: &Snapshot| {
        let host = s.host.as_ref().unwrap();
        claim_of(&s.order, &host.maintenance, host.terminating)
    };
    assert_eq!(claim(&alone), Claim::Enable);
    let service = alone.service.as_mut().unwrap();
    service.reason.clone_from(&ours);
    let waits = decide(&alone);
    assert!(!waits.steps.contains(&Step::Release));
    assert!(matches!(waits.next, Next::After(_)));
    let table = [
        (true, ours.clone(), "Hypervisor re-enabled successfully"),
        (
            false,
            "bad disk".to_owned(),
            "Hypervisor already re-enabled for reason:bad disk",
        ),
    ];
    for (enabled, reason, text) in table {
        let service = alone.service.as_mut().unwrap();
        (service.enabled, service.reason) = (enabled, reason);
        let done = decide(&alone);
        assert!(done.steps.contains(&Step::Release), "{text}");
        assert_eq!(message(&done, EvictionCondition::HypervisorReEnabled), text);
    }
    alone.host = None;
    let gone = decide(&alone);
    assert!(gone.steps.contains(&Step::Release));
}

#[test]
fn who_gives_the_host_back() {
    let table = [
        (None, Maintenance::Off, false, Claim::Enable),
        (None, Maintenance::Off, true, Claim::Disable),
        (Some(ReEnable::Never), Maintenance::Off, false, Claim::Disable),
        (Some(ReEnable::Always), Maintenance::Off, true, Claim::Enable),
        (Some(ReEnable::Always), Maintenance::Ha, false, Claim::Disable),
        (None, Maintenance::Termination, false, Claim::Disable),
    ];
    for (re_enable, mode, terminating, claim) in table {
        let mut order = snapshot(Vec::new()).order;
        (order.controlled, order.held, order.deleting) = (false, true, true);
        order.spec.re_enable = re_enable.clone();
        assert_eq!(
            claim_of(&order, &mode, terminating),
            claim,
            "{re_enable:?} {mode} {terminating}"
        );
    }
    let mut running = snapshot(Vec::new()).order;
    running.controlled = false;
    assert_eq!(claim_of(&running, &Maintenance::Off, false), Claim::Disable);
    running.controlled = true;
    assert_eq!(claim_of(&running, &Maintenance::Off, false), Claim::Nothing);
}

#[test]
fn only_the_named_servers_are_moved() {
    let mut some = snapshot(vec![server(1, "ACTIVE"), server(2, "ACTIVE")]);
    some.order.spec.instances = vec![id(2).to_string()];
    let decision = decide(&some);
    assert_eq!(moves(&decision), [(id(2), MoveKind::Live)]);
    some.servers.truncate(1);
    assert_eq!(
        evicting(&decide(&some)),
        (false, EvictingReason::Succeeded.to_string()),
        "others may stay"
    );
}

#[test]
fn a_running_server_is_moved_cold_only_where_that_is_allowed() {
    let mut pinned = snapshot(vec![server(1, "ACTIVE")]);
    pinned.servers[0].pinned = Some("a virtual GPU".to_owned());
    assert_eq!(evicting(&decide(&pinned)), (false, "Failed".into()));
    pinned.order.spec.allow_cold_for_running = Some(true);
    assert_eq!(moves(&decide(&pinned)), [(id(1), MoveKind::Cold)]);
}

#[test]
fn the_end_of_a_migration_wakes_the_eviction_that_waits_for_it() {
    let eviction = |name: &str, moving: &[ServerId]| -> Arc<Eviction> {
        let entries: Vec<_> = moving.iter().map(|id| json!({"id": id.as_str()})).collect();
        let object = json!({
            "metadata": {"name": name}, "spec": {"hypervisor": name, "reason": "r"}, "status": {"inFlight": entries},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let all = [
        eviction("a", &[id(1), id(2)]),
        eviction("b", &[id(3)]),
        eviction("c", &[]),
    ];
    let woken = |server: ServerId| -> Vec<String> {
        let meant = those(&all, |eviction| is_moving(eviction, server.as_str()));
        meant.into_iter().map(|one| one.name).collect()
    };
    assert_eq!(
        (woken(id(2)), woken(id(3)), woken(id(4))),
        (vec!["a".into()], vec!["b".into()], vec![])
    );
    let migration = |phase: &str, rest: i64| -> Migration {
        let status = json!({"phase": phase, "progress": {"dataRemainingBytes": rest}});
        serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {}, "status": status})).unwrap()
    };
    assert!(
        stage(&migration("Running", 9)) == stage(&migration("Running", 5)),
        "progress wakes nobody"
    );
    assert!(stage(&migration("Running", 5)) != stage(&migration("Completed", 0)));
}

#[test]
fn looks_are_frequent_at_first_and_the_next_server_starts_in_the_pass_that_sees_the_end() {
    let mut three = snapshot(vec![
        server(1, "ACTIVE"),
        server(2, "ACTIVE"),
        server(3, "ACTIVE"),
    ]);
    let begun = decide(&three);
    assert_eq!(moves(&begun), [(id(1), MoveKind::Live), (id(2), MoveKind::Live)]);
    assert_eq!(begun.next, Next::After(Duration::from_secs(2)));
    three.order.status = written(&three, &begun.report);
    three.ledger = begun.ledger;
    for moving in &mut three.servers[..2] {
        (moving.state, moving.task) = (ServerState::Migrating, Some("migrating".into()));
    }
    three.now = after(noon(), Duration::from_secs(40));
    let later = decide(&three);
    assert!(moves(&later).is_empty());
    assert_eq!(later.next, Next::After(Duration::from_secs(10)));
    three.order.status = written(&three, &later.report);
    three.ledger = later.ledger;
    let mut gone = three.servers.remove(0);
    (gone.state, gone.task, gone.host) = (ServerState::Active, None, Some("node2".into()));
    three.departed.insert(id(1), Departed::Elsewhere(Box::new(gone)));
    assert_eq!(moves(&decide(&three)), [(id(3), MoveKind::Live)]);
}

#[test]
fn once_moves_have_ended_the_next_look_is_when_the_next_one_should_end() {
    let mut two = snapshot(vec![server(1, "ACTIVE"), server(2, "ACTIVE")]);
    two.order.spec.max_parallel = Some(1);
    let begun = decide(&two);
    two.order.status = written(&two, &begun.report);
    two.ledger = begun.ledger;
    let seconds = |seconds| after(noon(), Duration::from_secs(seconds));
    // The first one took eight seconds, by Nova's own record.
    let mut ended = record(7, 1, HOST, Some("node2"), MigrationState::Done);
    (ended.created, ended.updated) = (seconds(1), seconds(9));
    two.migrations = vec![ended];
    two.servers.remove(0);
    two.departed.insert(id(1), Departed::Left);
    two.now = seconds(10);
    let next = decide(&two);
    assert_eq!(moves(&next), [(id(2), MoveKind::Live)]);
    assert_eq!(
        next.next,
        Next::After(Duration::from_secs(2)),
        "what Nova does not show yet may have been refused"
    );
    two.order.status = written(&two, &next.report);
    two.ledger = next.ledger;
    two.departed.clear();
    (two.servers[0].state, two.servers[0].task) = (ServerState::Migrating, Some("migrating".into()));
    let mut running = record(8, 2, HOST, Some("node2"), MigrationState::Abortable);
    (running.created, running.updated) = (seconds(10), seconds(11));
    two.migrations.push(running);
    for (now, pause) in [(12, 5), (17, 1), (18, 1), (25, 1), (26, 10)] {
        two.now = seconds(now);
        let look = decide(&two);
        assert!(moves(&look).is_empty());
        assert_eq!(look.next, Next::After(Duration::from_secs(pause)), "at {now} s");
    }
}

#[test]
fn a_deleted_eviction_starts_nothing_and_stops_what_moves_only_if_told() {
    let mut running = snapshot(vec![
        server(1, "ACTIVE"),
        server(2, "ACTIVE"),
        server(3, "ACTIVE"),
    ]);
    running.order.abort_in_flight = true;
    let begun = decide(&running);
    assert!(
        begun.steps.contains(&Step::Hold),
        "held, so that there is time to stop what moves"
    );
    running.order.status = written(&running, &begun.report);
    running.ledger = begun.ledger;
    let moving = record(7, 1, HOST, Some("node2"), MigrationState::Abortable);
    running.migrations = vec![moving, record(8, 2, HOST, None, MigrationState::Committed)];
    (running.order.held, running.order.deleting) = (true, true);
    let ended = decide(&running);
    let stop = Step::Abort {
        server: id(1),
        migration: 7,
    };
    assert_eq!(
        ended.steps,
        [stop, Step::Release],
        "what cannot be stopped goes on, and the object goes"
    );
    running.order.abort_in_flight = false;
    assert_eq!(decide(&running).steps, [Step::Release]);
}
