// SPDX-License-Identifier: Apache-2.0
//! The world by itself: the same seed tells the same story, a saved world goes on where it stood, and whatever happens
//! to hosts and servers, the books of Nova, Placement and libvirt agree in the end.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use cobaltcore_sim::world::{
    Domain, MigrationFault, MigrationTrouble, Moment, Phase, Power, State, TaskState, VmState, World,
};
use serde_json::json;
use support::Api;

const ONE: &str = "node001-bb1";
const TWO: &str = "node002-bb1";

fn fixed(seed: u64) -> World {
    let start = Moment::parse("2026-01-01T00:00:00Z").unwrap();
    World::builder()
        .hosts(4)
        .vms_per_host(3)
        .seed(seed)
        .manual_clock_at(start)
        .build()
}

/// A few turbulent minutes.
fn story(world: &World) {
    world
        .crash_guest(world.read(|state| *state.servers.keys().next().unwrap()))
        .unwrap();
    world.power_off(ONE).unwrap();
    world.step(Duration::from_secs(30));
    world.cut(TWO).unwrap();
    world.step(Duration::from_secs(90));
    world.power_on(ONE).unwrap();
    world.mend(TWO).unwrap();
    world.step(Duration::from_secs(1_200));
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let told = |seed: u64| {
        let world = fixed(seed);
        story(&world);
        world.read(|state| serde_json::to_string(state).unwrap())
    };
    assert_eq!(told(7), told(7));
    assert_ne!(told(7), told(8));
}

#[tokio::test]
async fn a_saved_world_goes_on_in_the_middle_of_a_migration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("world.json");
    let id = {
        let api = Api::start(fixed(7)).await;
        let id = api.on(ONE).await.remove(0);
        let live = json!({"os-migrateLive": {"host": TWO, "block_migration": "auto"}});
        api.act(&id, live).await.expect(202);
        api.step(2);
        assert_eq!(api.server(&id).await["status"], "MIGRATING");
        api.world().save(&file).unwrap();
        id
    };
    let api = Api::start(World::load(&file, 0.0).unwrap()).await;
    assert_eq!(api.server(&id).await["status"], "MIGRATING");
    api.step(30);
    let server = api.server(&id).await;
    assert_eq!(
        (server["status"].as_str(), server["OS-EXT-SRV-ATTR:host"].as_str()),
        (Some("ACTIVE"), Some(TWO))
    );
    assert_eq!(api.on(TWO).await.len(), 4);
    api.world().read(books_agree);
    let real = World::load(&file, 1.0).unwrap();
    let ahead = real.read(|state| state.now);
    assert!(
        ahead > Moment::wall() - Duration::from_secs(60),
        "time goes on from now"
    );
}

#[test]
fn a_file_that_holds_no_world_is_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("world.json");
    std::fs::write(&file, "cobaltcore simulated world 99\n{}").unwrap();
    let refused = World::load(&file, 1.0).unwrap_err().to_string();
    assert!(
        refused.contains("does not begin with") && refused.contains("remove the file"),
        "{refused}"
    );
    std::fs::write(&file, "cobaltcore simulated world 1\n{").unwrap();
    assert!(World::load(&file, 1.0).is_err());
}

/// What must hold whenever nothing is under way.
fn books_agree(state: &State) {
    for server in state
        .servers
        .values()
        .filter(|server| server.task_state.is_none())
    {
        let Some(host) = &server.host else { continue };
        let node = state.hosts[host].node_uuid;
        let held = state
            .placement
            .consumers
            .get(&server.id)
            .expect("a placed server holds resources");
        assert!(
            held.allocations.contains_key(&node),
            "{} holds nothing on {host}",
            server.id
        );
    }
    for provider in state.placement.providers.values() {
        let mut sum = std::collections::BTreeMap::new();
        for consumer in state.placement.consumers.values() {
            for (class, amount) in consumer.allocations.get(&provider.uuid).into_iter().flatten() {
                *sum.entry(class.clone()).or_insert(0) += amount;
            }
        }
        for (class, used) in &provider.used {
            assert_eq!(
                sum.get(class).copied().unwrap_or(0),
                *used,
                "{class} of {}",
                provider.name
            );
        }
    }
    assert_eq!(state.running_twice(), []);
}

const TROUBLES: [MigrationTrouble; 3] = [
    MigrationTrouble::Fails,
    MigrationTrouble::PreCheck,
    MigrationTrouble::NoValidHost,
];

/// Two hundred small worlds in which things are done and broken at random.
#[test]
fn whatever_happens_the_books_agree_and_no_guest_runs_twice() {
    let (mut migrated, mut evacuated) = (0u32, 0u32);
    for seed in 0..200u64 {
        let world = fixed(seed);
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        for _ in 0..30 {
            let host = format!("node{:03}-bb1", roll(4) + 1);
            let pick = roll(12) as usize;
            let id = world.read(|state| state.servers.keys().nth(pick).copied().unwrap());
            match roll(9) {
                0 => world.power_off(&host).unwrap(),
                1 => world.power_on(&host).unwrap(),
                2 => world.stop_compute(&host).unwrap(),
                3 => world.start_compute(&host).unwrap(),
                4 => world.break_migrations(MigrationFault {
                    server: None,
                    source: None,
                    trouble: TROUBLES[roll(TROUBLES.len() as u64) as usize],
                    times: Some(1),
                }),
                5 => {
                    world.crash_guest(id).ok();
                }
                6 => {
                    // Only what has no power and runs nowhere else: a guest that had switched over would run twice.
                    let dark = world.read(|state| {
                        let host = state.servers[&id].host.clone().unwrap();
                        let runs = state
                            .hosts
                            .values()
                            .any(|host| host.domains.get(&id).is_some_and(Domain::executes));
                        state.hosts[&host].power == Power::Off && !runs
                    });
                    if dark && world.evacuate(id).is_ok() {
                        evacuated += 1;
                    }
                }
                _ => migrated += u32::from(world.live_migrate(id).is_ok()),
            }
            world.step(Duration::from_millis(roll(8_000)));
        }
        world.heal();
        for number in 1..=4 {
            let host = format!("node{number:03}-bb1");
            world.power_on(&host).unwrap();
            world.step(Duration::from_secs(100));
            world.start_compute(&host).unwrap();
        }
        world.step(Duration::from_secs(3_600));
        world.read(|state| {
            books_agree(state);
            for host in state.hosts.values() {
                assert_eq!(host.power, Power::On, "seed {seed}");
                assert!(host.service.as_ref().unwrap().is_up(state.now), "seed {seed}");
            }
            for server in state.servers.values() {
                assert_eq!(server.task_state, None::<TaskState>, "seed {seed}");
                let phase = state
                    .domain(server.host.as_ref().unwrap().as_str(), server.id)
                    .unwrap()
                    .phase;
                let runs = matches!(phase, Phase::Running(_));
                assert_eq!(
                    server.vm_state == VmState::Active,
                    runs,
                    "seed {seed}: {:?} {phase:?}",
                    server.vm_state
                );
            }
        });
    }
    assert!(
        migrated > 500 && evacuated > 20,
        "{migrated} migrations, {evacuated} evacuations were tried"
    );
}

#[test]
fn a_full_disk_and_broken_paths_keep_guests_where_they_are() {
    let world = fixed(5);
    let (server, source) = world.read(|state| {
        let server = state.servers.values().next().unwrap();
        (server.id, server.host.clone().unwrap())
    });
    let others: Vec<String> = world.read(|state| {
        let names = state.hosts.keys().filter(|name| **name != source);
        names.map(ToString::to_string).collect()
    });
    let moves_away = || {
        world.live_migrate(server).unwrap();
        world.step(Duration::from_secs(120));
        world.server(server).unwrap().host.as_ref() != Some(&source)
    };
    for other in &others {
        world.set_disk_full(other, true).unwrap();
    }
    assert!(!moves_away(), "no disk has room for it");
    for other in &others {
        world.set_disk_full(other, false).unwrap();
    }
    world.set_migrations_fail(source.as_str(), true).unwrap();
    assert!(!moves_away(), "it breaks on its way");
    assert!(world.read(|state| state.faults.fail_from(&source)));
    world.set_migrations_fail(source.as_str(), false).unwrap();
    assert!(moves_away());
    assert_eq!(world.running_twice(), []);
}
