// SPDX-License-Identifier: Apache-2.0
//! Compute services, servers and evacuations in a simulated Nova.

use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{
    Answer, Effect, MigrationFacts, MigrationId, MigrationKind, MigrationStatus, Refusal, ServerFacts,
    ServiceChange, ServiceFacts, Trouble, VmState,
};
use cobaltcore_sim::world::{ApiEffect, ApiFault, VmState as Real};

use super::{ONE, Rig, TWO, action, name, uuid};

async fn service(rig: &Rig) -> ServiceFacts {
    match rig.act(Effect::ReadService { host: name(ONE) }).await.unwrap() {
        Answer::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

async fn read(rig: &Rig, server: &ServerId) -> (Option<ServerFacts>, Vec<MigrationFacts>) {
    match rig
        .act(Effect::ReadServer {
            server: server.clone(),
        })
        .await
        .unwrap()
    {
        Answer::Server { server, migrations } => (server, migrations),
        other => panic!("{other:?}"),
    }
}

fn evacuate(server: &ServerId, known: &[MigrationFacts]) -> Effect {
    Effect::Evacuate {
        server: server.clone(),
        from: name(ONE),
        known: known.iter().map(|record| record.id).collect(),
    }
}

fn update(change: ServiceChange) -> Effect {
    Effect::UpdateService {
        host: name(ONE),
        change,
    }
}

#[tokio::test]
async fn a_service_is_disabled_and_forced_down_in_one_call() {
    let rig = Rig::new().await;
    let before = service(&rig).await;
    assert!(before.up && !before.disabled && !before.forced_down && !before.updated_at.is_empty());
    rig.act(update(ServiceChange::ForceDown)).await.unwrap();
    let after = service(&rig).await;
    assert!(after.disabled && after.forced_down && !after.up);
    let calls = rig.far.calls().writes();
    let calls: Vec<&str> = calls
        .iter()
        .filter(|call| call.path.contains("os-services"))
        .map(|call| call.body.as_str())
        .collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    for part in [
        "\"disabled\"",
        "\"forced_down\":true",
        "Hypervisor CRD: spec.maintenance=ha; incident node001-bb1-3-1",
    ] {
        assert!(calls[0].contains(part), "{part} in {}", calls[0]);
    }
    rig.act(update(ServiceChange::Enable)).await.unwrap();
    let after = service(&rig).await;
    assert!(!after.disabled && !after.forced_down);
    rig.act(update(ServiceChange::Disable)).await.unwrap();
    let after = service(&rig).await;
    assert!(
        after.disabled && !after.forced_down,
        "disabled alone must not say that it is down"
    );
}

#[tokio::test]
async fn a_host_that_two_services_fit_is_left_alone() {
    let rig = Rig::new().await;
    rig.deps
        .directory
        .change(&name(ONE), |entry| entry.ambiguous = true);
    let refused = rig.act(update(ServiceChange::ForceDown)).await.unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::Other));
    rig.deps.directory.change(&name(ONE), |entry| {
        entry.ambiguous = false;
        entry.nova_host = Some("nobody".into());
    });
    let refused = rig
        .act(Effect::ReadService { host: name(ONE) })
        .await
        .unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::NotFound));
}

#[tokio::test]
async fn the_guests_of_a_host_are_listed_with_what_their_owners_want() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.world.change(|state| {
        let record = state.servers.get_mut(&uuid(&server)).unwrap();
        record.metadata.insert("cobaltcore:ha".into(), "restart".into());
        record
            .metadata
            .insert("cobaltcore:ha_priority".into(), "900".into());
    });
    let listed = rig.act(Effect::ListServers { host: name(ONE) }).await.unwrap();
    let Answer::Servers {
        servers,
        migrations,
        complete,
    } = listed
    else {
        panic!("{listed:?}")
    };
    assert!(complete && migrations.is_empty());
    assert_eq!(servers.len(), 2);
    let found = servers.iter().find(|found| found.id == server).unwrap();
    assert_eq!(found.policy, Some(cobaltcore_ha_engine::VmPolicy::Restart));
    assert_eq!(
        (found.priority, found.state, found.running),
        (900, VmState::Active, true)
    );
    assert_eq!(found.host, Some(name(ONE)));
    assert!(found.memory_mib > 0);
}

#[tokio::test]
async fn a_guest_is_evacuated_once_and_found_at_its_new_place() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    let (_, known) = read(&rig, &server).await;
    rig.act(evacuate(&server, &known)).await.unwrap();
    let (facts, records) = read(&rig, &server).await;
    assert_eq!(facts.unwrap().task, "rebuilding");
    assert_eq!(records.len(), known.len() + 1);
    assert_eq!(records[0].kind, MigrationKind::Evacuation);
    assert_eq!(
        (records[0].source.clone(), records[0].status),
        (name(ONE), MigrationStatus::Accepted)
    );
    // The same intent again: its record is there now, so nothing is asked for.
    let again = rig.act(evacuate(&server, &known)).await.unwrap_err();
    assert_eq!(again, Trouble::NotStarted);
    assert_eq!(
        rig.asked("evacuate"),
        1,
        "a second request could run the guest twice"
    );
    rig.world.step(Duration::from_secs(300));
    let (facts, records) = read(&rig, &server).await;
    let facts = facts.unwrap();
    assert!(facts.running && facts.task.is_empty() && facts.host != Some(name(ONE)));
    assert_eq!(records[0].status, MigrationStatus::Done);
    assert_eq!(records[0].destination, facts.host);
    let again = rig.act(evacuate(&server, &records)).await.unwrap_err();
    assert_eq!(again, Trouble::NotStarted, "it is not on that host any more");
    assert!(rig.world.running_twice().is_empty());
    let listed = rig.act(Effect::ListServers { host: name(ONE) }).await.unwrap();
    let Answer::Servers { migrations, .. } = listed else {
        panic!("{listed:?}")
    };
    assert!(
        migrations
            .iter()
            .any(|record| record.server == server && record.status == MigrationStatus::Done)
    );
}

#[tokio::test]
async fn an_answer_that_got_lost_is_unknown_and_the_records_tell() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    let (_, known) = read(&rig, &server).await;
    for (fault, happened) in [
        (ApiEffect::Refuse(503), false),
        (ApiEffect::Refuse(429), false),
        (ApiEffect::FailAfter(504), true),
    ] {
        rig.world.break_api(ApiFault::all(fault.clone()).part("evacuate"));
        let lost = rig.act(evacuate(&server, &known)).await.unwrap_err();
        assert_eq!(lost, Trouble::Unknown, "{fault:?}");
        rig.world.heal();
        let (_, records) = read(&rig, &server).await;
        assert_eq!(records.len() > known.len(), happened, "{fault:?}");
    }
}

/// The token of the session is refused and the next one comes late: by then the time of the requests is over.
#[tokio::test]
async fn a_change_that_waits_in_the_session_does_not_leave_after_its_time() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    let changes: [fn(ServerId) -> Effect; 8] = [
        |server| evacuate(&server, &[]),
        |server| Effect::Start { server },
        |server| Effect::Stop { server },
        |server| Effect::RebootHard { server },
        |server| Effect::ResetState { server },
        |server| Effect::Lock { server },
        |server| Effect::Unlock { server },
        |_| update(ServiceChange::Enable),
    ];
    for (method, times) in [("POST", 7), ("PUT", 1)] {
        let refused = ApiFault::all(ApiEffect::Refuse(401)).service("compute");
        rig.world.break_api(refused.method(method).times(times));
    }
    let late = ApiFault::all(ApiEffect::Delay(Duration::from_secs(5)));
    rig.world.break_api(late.service("identity"));
    let soon = rig.deps.clock.mono().after(Duration::from_secs(2));
    let all = changes.map(|change| {
        let change = action(change(server.clone()), soon);
        async { (rig.executor.run(&change).await, change.effect) }
    });
    for (result, effect) in futures::future::join_all(all).await {
        // What had not left by then was not started.
        let cut = matches!(result, Err(Trouble::Unknown | Trouble::NotStarted));
        assert!(cut, "{effect:?}: {result:?}");
    }
    rig.world.heal();
    let (found, records) = read(&rig, &server).await;
    assert!(records.is_empty(), "{records:?}");
    assert_eq!(found.unwrap().state, VmState::Active);
    assert!(service(&rig).await.forced_down, "it was not enabled");
}

#[tokio::test]
async fn of_a_host_that_is_not_known_nothing_is_asked_and_nothing_is_said() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    rig.deps.directory.remove(&name(ONE));
    let before = rig.far.calls().writes().len();
    for effect in [
        evacuate(&server, &[]),
        update(ServiceChange::Enable),
        Effect::ReadService { host: name(ONE) },
        Effect::ListServers { host: name(ONE) },
    ] {
        let result = rig.act(effect.clone()).await;
        assert_eq!(
            result.unwrap_err(),
            Trouble::NotStarted,
            "that it is gone is not known: {effect:?}"
        );
    }
    assert_eq!(rig.far.calls().writes().len(), before);
}

#[tokio::test]
async fn a_nova_that_never_answers_is_given_up_in_time() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    rig.world
        .break_api(ApiFault::all(ApiEffect::HangAfter).part("evacuate").times(1));
    let lost = rig.act(evacuate(&server, &[])).await.unwrap_err();
    assert_eq!(lost, Trouble::Unknown);
    let (_, records) = read(&rig, &server).await;
    assert_eq!(records.len(), 1, "it was done all the same");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    let up = rig.act(evacuate(&server, &[])).await.unwrap_err();
    assert_eq!(up, Trouble::Refused(Refusal::StillInUse), "the service is up");
    rig.fence(ONE).await;
    rig.world
        .change(|state| state.servers.get_mut(&uuid(&server)).unwrap().vm_state = Real::Paused);
    let paused = rig.act(evacuate(&server, &[])).await.unwrap_err();
    assert_eq!(paused, Trouble::Refused(Refusal::Conflict));
    rig.act(Effect::ResetState {
        server: server.clone(),
    })
    .await
    .unwrap();
    let (facts, _) = read(&rig, &server).await;
    assert_eq!(facts.unwrap().state, VmState::Error);
    rig.act(evacuate(&server, &[])).await.unwrap();
    for code in [401, 403] {
        rig.world
            .break_api(ApiFault::all(ApiEffect::Refuse(code)).part("os-start").times(3));
        let refused = rig
            .act(Effect::Start {
                server: server.clone(),
            })
            .await
            .unwrap_err();
        assert_eq!(refused, Trouble::Refused(Refusal::Unauthorized), "{code}");
        rig.world.heal();
    }
}

/// Nova says so as of a conflict, but no other state of the guest would end it.
#[tokio::test]
async fn a_guest_with_a_share_can_never_be_moved() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    rig.world
        .change(|state| state.servers.get_mut(&uuid(&server)).unwrap().share = true);
    match rig.act(evacuate(&server, &[])).await.unwrap() {
        Answer::Unsupported(said) => assert!(said.contains("shares"), "{said}"),
        other => panic!("{other:?}"),
    }
}

/// Computes that are forced down do not count for what Nova knows of their age.
#[tokio::test]
async fn what_a_nova_does_not_take_at_a_new_microversion_is_said_once_at_an_older_one() {
    let rig = Rig::with("}\nopenstack: {evacuate_microversion: '2.95'", false).await;
    let server = rig.server_on(ONE);
    let refused = rig.act(evacuate(&server, &[])).await.unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::StillInUse));
    rig.fence(ONE).await;
    rig.world.change(|state| {
        for host in state.hosts.values_mut() {
            host.service.as_mut().unwrap().forced_down = true;
        }
    });
    let done = rig.act(evacuate(&server, &[])).await;
    assert!(matches!(done, Ok(Answer::Done)), "{done:?}");
    let asked = rig.far.calls().writes();
    let asked = asked.iter().filter(|call| call.body.contains("evacuate"));
    let versions: Vec<&str> = asked.map(|call| call.microversion.as_str()).collect();
    assert_eq!(versions, ["compute 2.95", "compute 2.95", "compute 2.94"]);
}

/// A second of Nova's is one request here: most of these never get their turn, and none is cut off while it waits for it.
#[tokio::test]
async fn a_change_that_did_not_get_its_turn_was_not_started() {
    let rig = Rig::with("}\nopenstack: {rps: 1", false).await;
    let server = rig.server_on(ONE);
    let all = (0..13).map(|_| {
        rig.act(Effect::ResetState {
            server: server.clone(),
        })
    });
    let results = futures::future::join_all(all).await;
    let asked = results.iter().filter(|result| result.is_ok()).count();
    let waited = results
        .iter()
        .filter(|result| matches!(result, Err(Trouble::NotStarted)));
    assert!(asked > 0 && asked + waited.count() == 13, "{results:?}");
    assert_eq!(rig.asked("os-resetState"), asked);
}

#[tokio::test]
async fn a_guest_that_is_gone_is_gone() {
    let rig = Rig::new().await;
    rig.fence(ONE).await;
    let nobody = ServerId::new("00000000-0000-4000-8000-000000000001").unwrap();
    let (facts, records) = read(&rig, &nobody).await;
    assert!(facts.is_none() && records.is_empty());
    let refused = rig.act(evacuate(&nobody, &[])).await.unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::NotFound));
}

/// A gateway that finds no Nova behind it answers 404 as well, and so does a Nova that is asked for its versions.
#[tokio::test]
async fn that_a_guest_is_gone_is_believed_of_nova_alone() {
    let nobody_there = ApiFault::all(ApiEffect::Gateway(404)).service("compute");
    let no_versions = ApiFault::all(ApiEffect::Refuse(404)).service("compute").times(1);
    let no_user = ApiFault::all(ApiEffect::Refuse(404)).service("identity");
    for fault in [nobody_there, no_versions, no_user] {
        let rig = Rig::new().await;
        let server = rig.server_on(ONE);
        for effect in [
            Effect::ReadServer {
                server: server.clone(),
            },
            evacuate(&server, &[]),
            Effect::Start { server },
        ] {
            rig.world.heal();
            rig.world.break_api(fault.clone());
            let unknown = rig.act(effect.clone()).await.unwrap_err();
            assert_eq!(unknown, Trouble::Unknown, "{fault:?}: {effect:?}");
            if fault.times.is_some() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_record_of_somebody_else_stops_an_evacuation() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    let theirs = rig.world.evacuate(uuid(&server)).unwrap();
    let stopped = rig.act(evacuate(&server, &[])).await.unwrap_err();
    assert_eq!(stopped, Trouble::NotStarted);
    assert_eq!(rig.asked("evacuate"), 0);
    let (_, records) = read(&rig, &server).await;
    assert_eq!(
        records.iter().map(|record| record.id).collect::<Vec<_>>(),
        [MigrationId(theirs)]
    );
}

#[tokio::test]
async fn guests_are_started_stopped_and_reset_in_place() {
    let rig = Rig::new().await;
    let server = rig.server_on(TWO);
    rig.act(Effect::Stop {
        server: server.clone(),
    })
    .await
    .unwrap();
    rig.world.step(Duration::from_secs(120));
    let (facts, _) = read(&rig, &server).await;
    let facts = facts.unwrap();
    assert_eq!(
        (facts.state, facts.running, facts.user_action_ms),
        (VmState::Stopped, false, None),
        "that was us"
    );
    let refused = rig
        .act(Effect::Stop {
            server: server.clone(),
        })
        .await
        .unwrap_err();
    assert_eq!(refused, Trouble::Refused(Refusal::Conflict));
    rig.act(Effect::Start {
        server: server.clone(),
    })
    .await
    .unwrap();
    rig.world.step(Duration::from_secs(120));
    rig.act(Effect::RebootHard {
        server: server.clone(),
    })
    .await
    .unwrap();
    rig.world.step(Duration::from_secs(120));
    let (facts, _) = read(&rig, &server).await;
    assert!(facts.unwrap().running);
}

#[tokio::test]
async fn without_a_cloud_nothing_is_pretended() {
    let rig = Rig::new().await;
    let mut deps = rig.deps.clone();
    deps.openstack = None;
    let executor = super::Executor::new(deps).unwrap();
    let read = super::action(
        Effect::ReadService { host: name(ONE) },
        cobaltcore_ha_engine::Mono(u64::MAX),
    );
    assert_eq!(executor.run(&read).await.unwrap_err(), Trouble::NotStarted);
}
