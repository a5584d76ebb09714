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
    heard(play, GuestEventKind::MemoryFailure, 1, 0, Duration::ZERO);
}

/// The agent of host 0 tells in its record `seq` what happened to a guest that long ago.
fn heard(play: &mut Play, kind: GuestEventKind, seq: u64, guest: u8, age: Duration) {
    play.step(Input::Saw(Observation::Guest(GuestEvent {
        host: host(0),
        agent: AgentId("agent".into()),
        seq,
        age,
        kind,
        server: Some(server(guest).id),
        device: None,
    })));
}

/// What comes of watchdogs that fired so many seconds ago, of all of which is heard now: whether the host is said to
/// suffer, and how many guests are.
fn watchdogs(fired: &[(u8, u64)]) -> (usize, usize) {
    let mut play = calm(Duration::from_mins(5));
    for (seq, (guest, ago)) in (1..).zip(fired) {
        heard(
            &mut play,
            GuestEventKind::Watchdog,
            seq,
            *guest,
            Duration::from_secs(*ago),
        );
    }
    suffering(&play)
}

fn suffering(play: &Play) -> (usize, usize) {
    let of_guest = |notice: &&Notice| matches!(notice, Notice::GuestWatchdogs { .. });
    let of_host = Notice::HostDegraded {
        host: host(0),
        what: Degraded::WatchdogStorm,
    };
    (told(play, &of_host), play.notices.iter().filter(of_guest).count())
}

#[test]
fn watchdogs_that_are_heard_of_together_are_no_storm_unless_they_fired_together() {
    assert_eq!(watchdogs(&[(1, 3600), (2, 2700), (3, 1800), (4, 900)]), (0, 0));
    assert_eq!(
        watchdogs(&[(1, 3590), (2, 3580), (3, 3570), (4, 3560)]),
        (0, 0),
        "it is over"
    );
    assert_eq!(watchdogs(&[(1, 290), (2, 280), (3, 270)]), (1, 0));
    let one = |between: u64| -> Vec<(u8, u64)> { (0..5).rev().map(|n| (1, n * between)).collect() };
    assert_eq!(watchdogs(&one(100)), (0, 1), "five in ten minutes");
    assert_eq!(watchdogs(&one(160)), (0, 0));
}

#[test]
fn a_watchdog_that_is_heard_of_late_counts_from_when_it_fired() {
    let mut play = calm(Duration::from_mins(5));
    seconds(&mut play, 240, 0);
    for (seq, guest) in [(1, 1), (2, 2)] {
        heard(
            &mut play,
            GuestEventKind::Watchdog,
            seq,
            guest,
            Duration::from_mins(4),
        );
    }
    seconds(&mut play, 90, 0);
    heard(&mut play, GuestEventKind::Watchdog, 3, 3, Duration::ZERO);
    assert_eq!(
        suffering(&play),
        (0, 0),
        "the others fired more than five minutes ago"
    );
    for (seq, guest) in [(4, 1), (5, 2)] {
        heard(&mut play, GuestEventKind::Watchdog, seq, guest, Duration::ZERO);
    }
    assert_eq!(suffering(&play), (1, 0));
}

#[test]
fn memory_that_failed_days_ago_accuses_nobody() {
    let of_host = Notice::HostDegraded {
        host: host(0),
        what: Degraded::MemoryFailure,
    };
    let mut play = calm(Duration::from_mins(5));
    let hours = Duration::from_hours;
    for (seq, age) in [(1, Duration::MAX), (2, hours(25)), (3, hours(23))] {
        heard(&mut play, GuestEventKind::MemoryFailure, seq, 0, age);
    }
    assert_eq!(told(&play, &of_host), 0, "one of them was within a day");
    heard(&mut play, GuestEventKind::MemoryFailure, 4, 0, Duration::ZERO);
    assert_eq!(told(&play, &of_host), 1);
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
