// SPDX-License-Identifier: Apache-2.0
//! Hosts that blink, and hosts that live and suffer: what is counted, told and left alone.

#![allow(clippy::unwrap_used)]

mod play;

use std::time::Duration;

use cobaltcore_ha_engine::{
    AgentId, Answer, Assessment, Config, Degraded, Effect, GuestEvent, GuestEventKind, HeldReason, HostFacts,
    Input, Notice, Observation, Power,
};
use play::{Play, at, facts, host, server};

/// A second in which every question is answered: silent hosts answer nothing and have power.
fn second(play: &mut Play, silent: u8) {
    play.second(silent, true);
    let open = play.open.len();
    for _ in 0..open {
        play.answer(0, 3, silent);
    }
}

fn seconds(play: &mut Play, count: u32, silent: u8) {
    for _ in 0..count {
        second(play, silent);
    }
}

fn calm(storm_window: Duration) -> Play {
    let mut play = Play::new();
    play.step(Input::Configure(Box::new(Config {
        storm_window,
        ..Config::default()
    })));
    seconds(&mut play, 70, 0);
    play
}

fn held(play: &Play, wanted: HeldReason) -> bool {
    let is = |notice: &Notice| matches!(notice, Notice::Held { reason, .. } if *reason == wanted);
    play.notices.iter().any(is)
}

/// Two hosts blink one after the other, then a third dies. The limit of six hosts is two.
fn blinking(window: Duration) -> Play {
    let mut play = calm(window);
    for n in 0..2 {
        seconds(&mut play, 18, 1 << n);
        seconds(&mut play, 15, 0);
    }
    seconds(&mut play, 40, 1 << 2);
    let confirmed =
        |notice: &Notice| matches!(notice, Notice::State { incident, .. } if incident.host == host(2));
    assert!(play.notices.iter().any(confirmed), "{:?}", play.notices);
    play
}

#[test]
fn hosts_that_blink_within_the_window_are_a_storm_and_others_are_not() {
    assert!(held(&blinking(Duration::from_mins(5)), HeldReason::Storm));
    assert!(!held(&blinking(Duration::from_secs(1)), HeldReason::Storm));
}

/// Host 0 speaks, and whoever asks its device is told that it is off. Everybody else's device tells the truth.
fn lied_about(play: &mut Play, count: u32) {
    for _ in 0..count {
        play.second(0, true);
        for action in std::mem::take(&mut play.open) {
            let result = match &action.effect {
                Effect::ReadPower { .. } => Ok(Answer::Power(Power::Off)),
                _ => Ok(Answer::Done),
            };
            play.step(Input::Outcome {
                id: action.id,
                result,
            });
        }
    }
}

#[test]
fn a_device_that_contradicts_its_host_is_told_of_once_and_counted() {
    let mut play = calm(Duration::from_mins(5));
    // Its agent is away for a moment, so its device is asked.
    for _ in 0..18 {
        play.second(1, true);
    }
    lied_about(&mut play, 3600);
    let count = |play: &Play, wanted: fn(&Notice) -> bool| play.notices.iter().filter(|n| wanted(n)).count();
    assert_eq!(count(&play, |n| matches!(n, Notice::Suspect { .. })), 1);
    assert_eq!(count(&play, |n| matches!(n, Notice::SuspicionEnded { .. })), 1);
    let contradicted = |n: &Notice| {
        matches!(
            n,
            Notice::Inconclusive {
                assessment: Assessment::Contradicted,
                ..
            }
        )
    };
    assert_eq!(count(&play, contradicted), 1, "{:?}", play.notices);
    let status = |play: &Play| play.engine.host_status(&host(0), at(play.now)).unwrap();
    let (lasts, times) = status(&play).contradicted.unwrap();
    assert!(lasts > Duration::from_mins(59), "{lasts:?}");
    assert!((55..80).contains(&times), "asked once a minute: {times}");
    assert!(!status(&play).suspect, "it lives");
    assert_eq!(play.effects, 0, "nothing is done to anybody");
    // The device is mended.
    seconds(&mut play, 120, 0);
    assert_eq!(status(&play).contradicted, None);
    assert_eq!(
        count(
            &play,
            |n| matches!(n, Notice::DeviceAgrees { times, .. } if *times > 50)
        ),
        1
    );
    // That was one episode; the next is told of again.
    for _ in 0..18 {
        play.second(1, true);
    }
    lied_about(&mut play, 60);
    assert_eq!(count(&play, contradicted), 2);
}

fn told(play: &Play, wanted: &Notice) -> usize {
    play.notices.iter().filter(|notice| *notice == wanted).count()
}

fn metrics(play: &mut Play, what: Degraded) {
    play.step(Input::Saw(Observation::Trouble {
        host: host(0),
        what,
        holds: true,
    }));
}

fn memory_event(play: &mut Play) {
    play.step(Input::Saw(Observation::Guest(GuestEvent {
        host: host(0),
        agent: AgentId("agent".into()),
        seq: 1,
        age: Duration::ZERO,
        kind: GuestEventKind::MemoryFailure,
        server: Some(server(0).id),
        device: None,
    })));
}

#[test]
fn failed_memory_needs_two_witnesses_of_which_metrics_may_be_one() {
    let once = Notice::MemoryFailed { host: host(0) };
    let degraded = Notice::HostDegraded {
        host: host(0),
        what: Degraded::MemoryFailure,
    };
    for metrics_first in [true, false] {
        let mut play = calm(Duration::from_mins(5));
        for first in [true, false] {
            if first == metrics_first {
                metrics(&mut play, Degraded::MemoryFailure);
                metrics(&mut play, Degraded::MemoryFailure);
            } else {
                memory_event(&mut play);
            }
            assert_eq!(told(&play, &once), 1, "one witness: people are told, once");
            assert_eq!(told(&play, &degraded), usize::from(!first), "{metrics_first}");
        }
        assert_eq!(play.effects, 0);
    }
}

#[test]
fn a_libvirt_that_two_of_three_miss_is_told_of_and_then_lasting() {
    let gone = Notice::ServiceGone {
        host: host(0),
        what: Degraded::LibvirtUnreachable,
    };
    let degraded = Notice::HostDegraded {
        host: host(0),
        what: Degraded::LibvirtUnreachable,
    };
    let mut play = calm(Duration::from_mins(5));
    let missed = HostFacts {
        libvirt_down: true,
        ..facts(0)
    };
    play.step(Input::Saw(Observation::Host(missed)));
    seconds(&mut play, 400, 0);
    assert_eq!(told(&play, &gone), 0, "one alone proves nothing");
    let with_metrics = |play: &mut Play, count: u32| {
        for _ in 0..count {
            metrics(play, Degraded::LibvirtUnreachable);
            second(play, 0);
        }
    };
    with_metrics(&mut play, 50);
    assert_eq!(told(&play, &gone), 0, "it may come back");
    with_metrics(&mut play, 20);
    assert_eq!((told(&play, &gone), told(&play, &degraded)), (1, 0));
    with_metrics(&mut play, 260);
    assert_eq!((told(&play, &gone), told(&play, &degraded)), (1, 1));
    assert_eq!(play.effects, 0, "its guests run: nothing is done to it");
}
