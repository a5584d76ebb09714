// SPDX-License-Identifier: Apache-2.0
//! Power through simulated BMCs.

use std::time::Duration;

use cobaltcore_ha_engine::{
    AgentId, Answer, BootId, Effect, Epoch, Group, Heartbeat, Identity, Input, Observation, Power, Refusal,
    Trouble, Verdict,
};
use cobaltcore_ha_fencing::{DeviceConfig, Driver, Protocol};
use cobaltcore_sim::bmc::Trouble as Fault;
use cobaltcore_sim::world::Power as Real;

use super::terms::begin;
use super::{ONE, Rig, TWO, action, name};
use crate::act::{Bounds, Executor, Unfit};
use crate::brain::BrainHandle;
use crate::deps::Deps;
use crate::journal::{FileJournal, Journal};
use crate::settings::InForce;

fn read(host: &str) -> Effect {
    Effect::ReadPower {
        host: name(host),
        level: 0,
    }
}

async fn power(rig: &Rig) -> Result<Power, Trouble> {
    match rig.act(read(ONE)).await {
        Ok(Answer::Power(power)) => Ok(power),
        Ok(other) => panic!("{other:?}"),
        Err(trouble) => Err(trouble),
    }
}

#[tokio::test]
async fn a_host_is_identified_switched_off_held_and_released() {
    let rig = Rig::new().await;
    let machine = rig.world.read(|state| state.hosts[ONE].node_uuid.to_string());
    let told = rig
        .act(Effect::Identify {
            host: name(ONE),
            level: 0,
        })
        .await
        .unwrap();
    let Answer::Identity(told) = told else {
        panic!("{told:?}")
    };
    let meant = Identity {
        system_uuid: Some(machine),
        serial: None,
    };
    assert!(meant.matches(&told));
    assert_eq!(power(&rig).await, Ok(Power::On));
    rig.act(Effect::PowerOff {
        host: name(ONE),
        level: 0,
    })
    .await
    .unwrap();
    assert_eq!(rig.world.read(|state| state.hosts[ONE].power), Real::Off);
    assert_eq!(power(&rig).await, Ok(Power::Off));
    rig.act(Effect::Hold {
        host: name(ONE),
        level: 0,
    })
    .await
    .unwrap();
    rig.act(Effect::ReleaseFence {
        host: name(ONE),
        levels: vec![0],
    })
    .await
    .unwrap();
    assert_eq!(power(&rig).await, Ok(Power::On));
    assert_eq!(rig.world.read(|state| state.hosts[TWO].power), Real::On);
}

/// It was switched off by one level after another had been tried, which the configuration does not have any more; and its
/// BMC is dead. Nothing keeps it off.
#[tokio::test]
async fn a_host_is_let_go_of_by_every_level_that_there_still_is() {
    let rig = Rig::new().await;
    rig.world.power_off(ONE).unwrap();
    let release = || Effect::ReleaseFence {
        host: name(ONE),
        levels: vec![0, 3],
    };
    rig.bmcs.set(ONE, Fault::Drops);
    rig.act(release()).await.unwrap();
    assert_eq!(rig.world.read(|state| state.hosts[ONE].power), Real::Off);
    rig.bmcs.set(ONE, Fault::None);
    rig.act(release()).await.unwrap();
    assert_eq!(power(&rig).await, Ok(Power::On));
}

#[tokio::test]
async fn a_device_that_does_not_answer_is_unknown_and_never_off() {
    let rig = Rig::new().await;
    rig.world.power_off(ONE).unwrap();
    for fault in [
        Fault::Hangs,
        Fault::Errors,
        Fault::Drops,
        Fault::Slow(Duration::from_secs(60)),
        Fault::Says("Odd".into()),
    ] {
        rig.bmcs.set(ONE, fault.clone());
        assert_eq!(power(&rig).await, Err(Trouble::Unknown), "{fault:?}");
    }
}

#[tokio::test]
async fn what_cannot_have_had_an_effect_is_a_refusal() {
    let rig = Rig::new().await;
    let off = Effect::PowerOff {
        host: name(ONE),
        level: 0,
    };
    rig.bmcs.set(ONE, Fault::NoForceOff);
    assert_eq!(
        rig.act(off.clone()).await.unwrap_err(),
        Trouble::Refused(Refusal::Other)
    );
    rig.bmcs.set(ONE, Fault::Hangs);
    assert_eq!(rig.act(off).await.unwrap_err(), Trouble::Unknown);
    let missing = Effect::ReadPower {
        host: name(ONE),
        level: 5,
    };
    assert_eq!(
        rig.act(missing).await.unwrap_err(),
        Trouble::Refused(Refusal::Other)
    );
}

#[tokio::test]
async fn no_order_leaves_for_a_device_when_the_lease_is_over() {
    let rig = Rig::new().await;
    // The way to the button takes three requests, and the time is over after the first.
    rig.bmcs.set(ONE, Fault::Slow(Duration::from_secs(1)));
    let off = Effect::PowerOff {
        host: name(ONE),
        level: 0,
    };
    let until = rig.deps.clock.mono().after(Duration::from_millis(1500));
    let outcome = rig.executor.run(&action(off, until)).await;
    assert_eq!(outcome.unwrap_err(), Trouble::Unknown, "it may have been sent");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(rig.world.read(|state| state.hosts[ONE].power), Real::On);
}

/// A process that was frozen goes on where it was, and looks at its timers afterwards.
#[tokio::test]
async fn no_order_leaves_a_process_that_was_frozen_until_the_lease_was_over() {
    let rig = Rig::new().await;
    let bounds = Bounds {
        not_after: rig.deps.clock.mono().after(Duration::from_secs(2)),
        term: Epoch(3),
        clock: rig.deps.clock,
        terms: rig.executor.terms(),
    };
    let mut sent = false;
    let order = async {
        std::thread::sleep(Duration::from_millis(2500));
        tokio::task::yield_now().await;
        sent = true;
    };
    assert_eq!(bounds.within(order).await, Err(Trouble::Unknown));
    assert!(!sent);
}

#[tokio::test]
async fn a_device_that_reads_off_while_the_host_is_heard_is_found_out_before_it_is_needed() {
    let rig = Rig::new().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    let (brain, _, stop, running) = begin(&rig, journal);
    let mut config = (*rig.deps.in_force.get()).clone();
    config.fencing.levels.push(vec![program(&rig)]);
    let executor = Executor::new(Deps {
        brain: brain.clone(),
        in_force: InForce::new(config),
        ..rig.deps.clone()
    })
    .unwrap();
    rig.bmcs.set(ONE, Fault::Says("Off".into()));
    executor
        .check_fence(&name(ONE))
        .await
        .expect("a host that is not heard may be off");
    let facts = rig.deps.directory.get(&name(ONE)).unwrap().facts(&name(ONE), &[]);
    brain.tell(Input::Saw(Observation::Host(facts))).await;
    let told = brain.clone();
    let agent = tokio::spawn(async move {
        for beat in 1.. {
            told.tell(Input::Saw(Observation::Heartbeat(heartbeat(beat))))
                .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    while !heard(&brain).await {
        tokio::task::yield_now().await;
    }
    let why = unfit(&executor).await;
    assert!(why.contains("its agent is heard"), "{why}");
    for works in [Fault::None, Fault::Errors] {
        rig.bmcs.set(ONE, works);
        executor.check_fence(&name(ONE)).await.unwrap();
    }
    agent.abort();
    stop.cancel();
    running.await.unwrap();
}

async fn unfit(executor: &Executor) -> String {
    match executor.check_fence(&name(ONE)).await {
        Err(Unfit::Because(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// A device of the next level, which works.
fn program(rig: &Rig) -> DeviceConfig {
    let machine = rig.world.read(|state| state.hosts[ONE].node_uuid);
    let says = format!("echo '{{\"power\": \"on\", \"system_uuid\": \"{machine}\"}}'");
    DeviceConfig {
        command: "sh".into(),
        args: vec!["-c".into(), says],
        protocol: Protocol::Json,
        ..DeviceConfig::new(Driver::Exec)
    }
}

fn heartbeat(beat: u64) -> Heartbeat {
    Heartbeat {
        host: name(ONE),
        agent: AgentId("agent".into()),
        starts: 1,
        boot: BootId("boot".into()),
        mono_ns: beat,
        up_for: Duration::from_secs(60),
        sent_at_ms: 0,
        libvirt: true,
        machine: Identity::default(),
        resets_after: None,
        planned_shutdown: false,
    }
}

async fn heard(brain: &BrainHandle) -> bool {
    let status = brain.ask(|engine, now| engine.host_status(&name(ONE), now)).await;
    status
        .flatten()
        .is_some_and(|status| status.evidence.of(Group::A).verdict == Verdict::Alive)
}

#[tokio::test]
async fn a_device_of_another_machine_is_found_out_before_it_is_needed() {
    let rig = Rig::new().await;
    rig.executor.check_fence(&name(ONE)).await.unwrap();
    rig.bmcs.set(ONE, Fault::WiredTo(TWO.into()));
    let why = unfit(&rig.executor).await;
    assert!(why.contains("another machine"), "{why}");
    // Both lead to one machine now: neither is identified, so neither is switched off.
    for host in [TWO, ONE] {
        let told = rig
            .act(Effect::Identify {
                host: name(host),
                level: 0,
            })
            .await
            .unwrap();
        let Answer::Identity(told) = told else {
            panic!("{told:?}")
        };
        assert_eq!(told, Identity::default(), "{host}");
    }
    rig.bmcs.set(ONE, Fault::Hangs);
    let why = unfit(&rig.executor).await;
    assert!(why.contains("no answer"), "{why}");
}
