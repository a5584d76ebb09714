// SPDX-License-Identifier: Apache-2.0
//! Single rules, each in a few seconds of a small world: watchdogs, wishes of people, room, and
//! settings that change under way.

#![allow(clippy::unwrap_used)]

mod play;

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    Answer, Assessment, CapacityCheck, Command, Config, Decision, Domain, Effect, Epoch, Group, HeldReason,
    HostFacts, IncidentKind, IncidentState, IncidentStatus, Input, Mono, Notice, Observation, Power, Request,
    Reserved, Room, Verdict,
};
use play::{Play, at, facts, host};

/// After the warm-up, with everything well.
fn calm(armed: Option<Duration>) -> Play {
    let mut play = Play::new();
    play.armed = armed;
    for _ in 0..70 {
        play.second(0, true);
    }
    play
}

fn watchdog(play: &Play, n: u8) -> Verdict {
    let status = play.engine.host_status(&host(n), at(play.now)).unwrap();
    status.evidence.of(Group::W).verdict
}

#[test]
fn a_watchdog_has_fired_after_its_own_time_and_not_before() {
    for (seconds, fired) in [(30 + 60 + 15, 106), (60 + 120 + 15, 196)] {
        let mut play = calm(Some(Duration::from_secs(seconds)));
        for _ in 0..fired - 2 {
            play.second(1, true);
        }
        assert_eq!(watchdog(&play, 0), Verdict::Unknown, "{seconds}");
        for _ in 0..3 {
            play.second(1, true);
        }
        assert_eq!(watchdog(&play, 0), Verdict::Dead, "{seconds}");
        assert_eq!(watchdog(&play, 1), Verdict::Unknown, "one that speaks");
    }
    let mut play = calm(None);
    for _ in 0..300 {
        play.second(1, true);
    }
    assert_eq!(watchdog(&play, 0), Verdict::Unknown, "one without a watchdog");
}

/// In an outage of the service agents that ask each other keep their hosts alive. It may have taken the leadership as well.
#[test]
fn a_watchdog_counts_from_when_the_fleet_is_heard_again() {
    for led in [true, false] {
        counts_from_when_the_fleet_is_heard_again(led);
    }
}

/// An agent that has lost most of the service goes on if its neighbours have as well, whoever leads.
#[test]
fn a_leader_that_alone_hears_the_fleet_believes_no_watchdog() {
    let mut play = calm(Some(Duration::from_secs(105)));
    play.others_deaf = true;
    for _ in 0..300 {
        play.second(1, true);
        assert_eq!(watchdog(&play, 0), Verdict::Unknown);
    }
}

fn counts_from_when_the_fleet_is_heard_again(led: bool) {
    let mut play = calm(Some(Duration::from_secs(105)));
    if !led {
        play.step(Input::LeaseLost);
    }
    for _ in 0..300 {
        play.second(0b11_1111, led);
    }
    if !led {
        play.step(Input::Lead {
            epoch: Epoch(2),
            sent_at: Mono(play.now),
            journal: play.journal.clone(),
        });
    }
    for after in 1..=105 {
        play.second(1, true);
        assert_eq!(watchdog(&play, 0), Verdict::Unknown, "{after} s after the outage");
    }
    for _ in 0..3 {
        play.second(1, true);
    }
    assert_eq!(watchdog(&play, 0), Verdict::Dead);
}

/// Seconds of an outage, and then of a fleet that is heard again but for one host: until its watchdog counts.
fn counts_after(play: &mut Play, outage: u64) -> u64 {
    for _ in 0..outage {
        play.second(0b11_1111, true);
        assert_eq!(watchdog(play, 0), Verdict::Unknown, "nobody hears anything");
    }
    (1..300)
        .find(|_| {
            play.second(1, true);
            watchdog(play, 0) == Verdict::Dead
        })
        .unwrap()
}

#[test]
fn a_replica_that_knew_of_no_watchdog_has_heard_nothing_before() {
    let mut play = calm(Some(Duration::from_secs(105)));
    for _ in 0..60 {
        play.second(0b11_1111, true);
    }
    // It begins anew, and hears neither hosts nor its peers.
    let heard = play.heard;
    let peers = play.restart();
    for _ in 0..200 {
        play.second(0b11_1111, true);
    }
    (play.heard, play.armed) = (heard, peers);
    assert_eq!(counts_after(&mut play, 0), 107, "from when it learned of it");
}

#[test]
fn an_outage_that_is_shorter_than_the_silence_of_dead_hosts_counts_as_one() {
    let mut play = calm(Some(Duration::from_secs(105)));
    play.step(Input::Configure(Box::new(Config {
        silent_after: Duration::from_secs(60),
        ..Config::default()
    })));
    assert_eq!(counts_after(&mut play, 50), 106);
}

/// Nothing brings back a host that was reset but its own word, and for that nobody need listen as long as for the reset.
#[test]
fn what_a_watchdog_did_is_not_undone_by_a_moment_in_which_nobody_hears() {
    let mut play = calm(Some(Duration::from_secs(105)));
    assert_eq!(counts_after(&mut play, 0), 106);
    for second in 0..60 {
        play.second(0b11_1111, true);
        let known = watchdog(&play, 0) == Verdict::Dead;
        assert!(!known || second < 20, "it may have come back unheard");
    }
    assert_eq!(
        counts_after(&mut play, 0),
        16,
        "as long as it could not come back in silence"
    );
    play.second(0, true);
    assert_eq!(watchdog(&play, 0), Verdict::Unknown);
    assert_eq!(counts_after(&mut play, 0), 106, "another time");
}

/// Three hosts of three racks that fell silent together, in a fleet where that is few.
fn three_cut_off() -> Play {
    let mut play = calm(Some(Duration::from_secs(105)));
    play.step(Input::Configure(Box::new(Config {
        fresh_percent: 30,
        ..Config::default()
    })));
    stays_unproven(&mut play);
    play
}

fn stays_unproven(play: &mut Play) {
    for second in 0..300 {
        play.second(0b111, true);
        assert_eq!(watchdog(play, 0), Verdict::Unknown, "{second}");
    }
}

#[test]
fn hosts_that_may_keep_each_other_alive_are_counted_anew_from_when_they_are_heard() {
    let mut play = three_cut_off();
    for second in 1..=105 {
        play.second(1, true);
        assert_eq!(watchdog(&play, 0), Verdict::Unknown, "{second}");
    }
    play.second(1, true);
    assert_eq!(watchdog(&play, 0), Verdict::Dead);
}

/// They were named when they stood elsewhere, and are asked all the same.
#[test]
fn what_is_said_of_racks_that_are_cut_off_changes_nothing() {
    let mut play = three_cut_off();
    for n in 0..6 {
        play.step(Input::Saw(Observation::Host(HostFacts {
            domains: vec![Domain("zone=a".into())],
            ..facts(n)
        })));
    }
    stays_unproven(&mut play);
}

#[test]
fn whose_object_was_deleted_may_keep_others_alive() {
    let mut play = three_cut_off();
    for n in [1, 2] {
        play.step(Input::Saw(Observation::HostGone(host(n))));
    }
    stays_unproven(&mut play);
}

/// A device that reads Off excuses a host only as long as somebody asks it.
#[test]
fn what_an_earlier_term_knew_of_power_is_forgotten() {
    let mut play = calm(Some(Duration::from_secs(105)));
    play.step(Input::Configure(Box::new(Config {
        fresh_percent: 30,
        ..Config::default()
    })));
    for _ in 0..20 {
        play.second(0b110, true);
        while !play.open.is_empty() {
            play.answer(0, 5, 0b110);
        }
    }
    let off = |play: &Play| {
        let status = play.engine.host_status(&host(1), at(play.now)).unwrap();
        status.evidence.of(Group::B).verdict
    };
    assert_eq!(off(&play), Verdict::Dead, "its device says so");
    play.step(Input::LeaseLost);
    // It is switched on again, and heard; then all of them are cut off.
    for _ in 0..60 {
        play.second(0, false);
    }
    for second in 0..300 {
        play.second(0b111, false);
        assert_eq!(watchdog(&play, 0), Verdict::Unknown, "{second}");
    }
}

#[test]
fn a_host_is_suspected_at_the_very_moment_its_silence_is_too_long() {
    let mut play = calm(None);
    let last = play.now;
    for _ in 0..14 {
        play.second(1, true);
    }
    let suspected = |play: &mut Play, ms: u64| {
        play.now = last + ms;
        play.step(Input::Tick);
        play.engine.host_status(&host(0), at(play.now)).unwrap().suspect
    };
    let next = play.engine.next_silence(at(play.now).mono);
    assert_eq!(next, Some(at(last + 15_001).mono), "it is known beforehand");
    assert!(!suspected(&mut play, 15_000));
    assert!(
        suspected(&mut play, 15_001),
        "although a round was held a second ago"
    );
    let next = play.engine.next_silence(at(play.now).mono);
    assert!(next > Some(at(last + 15_001).mono), "the others spoke since");
    play.step(Input::LeaseLost);
    assert_eq!(
        play.engine.next_silence(at(play.now).mono),
        None,
        "that is the leader's"
    );
}

#[test]
fn a_silence_that_was_slept_through_proves_nothing() {
    let mut play = calm(Some(Duration::from_secs(105)));
    play.now += 360_000;
    play.second(0b11_1111, true);
    for n in 0..6 {
        assert_eq!(watchdog(&play, n), Verdict::Unknown);
    }
}

#[test]
fn whoever_hears_nobody_believes_no_watchdog() {
    let mut play = calm(Some(Duration::from_secs(105)));
    for _ in 0..300 {
        play.second(0b11_1111, true);
        // Nobody is reached, but nothing else is wrong either.
        while !play.open.is_empty() {
            play.answer(0, 0, 0b11_1111);
        }
    }
    assert_eq!(watchdog(&play, 0), Verdict::Unknown);
    assert_eq!(play.effects, 0, "nothing is done to anybody");
}

fn wish(n: u8) -> Request {
    Request {
        host: host(n),
        actor: "operator/olga".into(),
        reason: "its guests do not work".into(),
        confirm: host(n).to_string(),
    }
}

fn refused(play: &Play) -> Option<String> {
    play.notices.iter().rev().find_map(|notice| match notice {
        Notice::RequestRefused { why, .. } => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn a_person_may_have_a_silent_host_recovered_and_no_other() {
    let mut play = calm(None);
    play.step(Input::Request(wish(0)));
    assert!(refused(&play).unwrap().contains("the host works"));
    for (broken, why) in [
        (
            Request {
                confirm: "n1".into(),
                ..wish(0)
            },
            "confirm",
        ),
        (
            Request {
                reason: " ".into(),
                ..wish(0)
            },
            "reason",
        ),
        (
            Request {
                host: "n9".parse().unwrap(),
                confirm: "n9".into(),
                ..wish(0)
            },
            "no such host",
        ),
    ] {
        play.step(Input::Request(broken));
        assert!(refused(&play).unwrap().contains(why), "{why}");
    }
    assert!(play.engine.ledger().incidents.is_empty());
    // Silent, but answering: nothing calls it dead.
    for _ in 0..30 {
        play.second(1, true);
        while !play.open.is_empty() {
            play.answer(0, 0, 0);
        }
    }
    let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
    assert_eq!(status.assessment, Assessment::Alive);
    assert!(play.engine.ledger().incidents.is_empty());
    play.step(Input::Request(wish(0)));
    let incidents: Vec<_> = play.engine.ledger().incidents.values().collect();
    assert_eq!(incidents.len(), 1);
    assert_eq!(incidents[0].kind, IncidentKind::OperatorRequested);
    assert_eq!(incidents[0].by, "operator/olga: its guests do not work");
    play.step(Input::Request(wish(0)));
    assert!(refused(&play).unwrap().contains("open incident"));
    assert_eq!(play.engine.ledger().incidents.len(), 1);
}

fn with_room(n: u8, used_mib: u64, free_mib: u64) -> Input {
    Input::Saw(Observation::Host(HostFacts {
        room: Some(Room {
            used_mib,
            free_mib,
            used_vcpus: 1,
            free_vcpus: 100,
        }),
        ..facts(n)
    }))
}

/// What holds the incident of host 0, some time after it died, and whether people heard of room.
fn after_death(check: CapacityCheck, rooms: &[(u64, u64)]) -> (Option<HeldReason>, bool) {
    let mut play = calm(None);
    play.step(Input::Configure(Box::new(Config {
        capacity: check,
        ..Config::default()
    })));
    for (n, (used, free)) in (0..).zip(rooms) {
        play.step(with_room(n, *used, *free));
    }
    for _ in 0..40 {
        play.second(1, true);
        while !play.open.is_empty() {
            // Probes find nobody, and nobody else answers, so nothing is claimed.
            play.answer(0, 0, 1);
        }
    }
    let held = play
        .engine
        .incidents()
        .first()
        .map(|incident| incident.held)
        .expect("an incident");
    let told = play
        .notices
        .iter()
        .any(|notice| matches!(notice, Notice::RoomShort { .. }));
    (held, told)
}

/// What an incident is held for that has passed the gates: what comes next is Kubernetes, and nobody answers here.
const PASSED: Option<HeldReason> = Some(HeldReason::KubernetesRefuses);

#[test]
fn guests_without_room_are_told_of_or_wait_as_configured() {
    let full = [(4096, 0), (0, 1024), (0, 1024), (0, 1024)];
    let roomy = [(4096, 0), (0, 2048), (0, 2048)];
    assert_eq!(after_death(CapacityCheck::Off, &full), (PASSED, false));
    assert_eq!(after_death(CapacityCheck::Warn, &full), (PASSED, true));
    assert_eq!(after_death(CapacityCheck::Warn, &roomy), (PASSED, false));
    assert_eq!(
        after_death(CapacityCheck::Warn, &[]),
        (PASSED, false),
        "nobody knows"
    );
    assert_eq!(
        after_death(CapacityCheck::Hold, &full),
        (Some(HeldReason::NoCapacity), false)
    );
    assert_eq!(after_death(CapacityCheck::Hold, &roomy), (PASSED, false));
    assert_eq!(
        after_death(CapacityCheck::Hold, &[]),
        (Some(HeldReason::NoCapacity), false),
        "what nobody reports is not there"
    );
}

/// What is kept free for other hosts is not there for this one, and what is kept for this one is.
#[test]
fn reservations_are_room_for_those_they_were_made_for() {
    let held = |covers: u8| {
        let mut play = calm(None);
        play.step(Input::Configure(Box::new(Config {
            capacity: CapacityCheck::Hold,
            ..Config::default()
        })));
        play.step(with_room(0, 4096, 0));
        for n in 1..3 {
            let Input::Saw(Observation::Host(mut facts)) = with_room(n, 0, 2048) else {
                panic!("not a host")
            };
            facts.reserved = vec![Reserved {
                mib: 1024,
                vcpus: 1,
                covers: vec![host(covers)],
            }];
            play.step(Input::Saw(Observation::Host(facts)));
        }
        for _ in 0..40 {
            play.second(1, true);
            while !play.open.is_empty() {
                play.answer(0, 0, 1);
            }
        }
        play.engine.incidents().first().expect("an incident").held
    };
    assert_eq!(held(0), PASSED);
    assert_eq!(held(2), Some(HeldReason::NoCapacity));
}

#[test]
fn other_settings_hold_at_once_and_decide_nothing_by_themselves() {
    let mut play = calm(None);
    let before = play.engine.ledger().clone();
    play.step(Input::Configure(Box::new(Config {
        silent_after: Duration::from_secs(40),
        ..Config::default()
    })));
    assert_eq!(*play.engine.ledger(), before);
    for _ in 0..30 {
        play.second(1, true);
    }
    let verdict = |play: &Play| {
        let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
        status.evidence.of(Group::A).verdict
    };
    assert_eq!(
        verdict(&play),
        Verdict::Unknown,
        "thirty seconds are no death any more"
    );
    play.step(Input::Configure(Box::default()));
    assert_eq!(verdict(&play), Verdict::Dead);
}

/// A world in which host 0 is at `ha` by somebody else's hand and dies; the API says the same whenever it is asked, and
/// devices say On.
struct SetByOthers {
    play: Play,
    /// Whether the claim was answered; as long as it was not, nothing is done to the power.
    answers_claims: bool,
    written: Vec<Effect>,
}

impl SetByOthers {
    fn new() -> Self {
        let mut play = calm(None);
        play.step(Input::Saw(Observation::Host(HostFacts {
            maintenance: Maintenance::Ha,
            ..facts(0)
        })));
        Self {
            play,
            answers_claims: true,
            written: Vec::new(),
        }
    }

    fn seconds(&mut self, count: u32, silent: u8) {
        for _ in 0..count {
            self.play.second(silent, true);
            while let Some(action) = self.play.open.pop() {
                if action.effect.changes() {
                    self.written.push(action.effect.clone());
                }
                if matches!(action.effect, Effect::Claim { .. }) && !self.answers_claims {
                    continue;
                }
                if matches!(action.effect, Effect::Investigate { .. }) {
                    self.play.open.push(action);
                    let last = self.play.open.len() - 1;
                    self.play.answer(last, 3, silent);
                    continue;
                }
                let answer = match &action.effect {
                    Effect::ReadMaintenance { .. } => Answer::Maintenance(Maintenance::Ha),
                    Effect::ReadPower { .. } => Answer::Power(Power::On),
                    _ => Answer::Done,
                };
                self.play.step(Input::Outcome {
                    id: action.id,
                    result: Ok(answer),
                });
            }
        }
    }

    fn decide(&mut self, decision: Decision) {
        let incident = self.incident().id;
        self.play.step(Input::Command(Command {
            incident,
            actor: "operator/olga".into(),
            reason: "looked at it".into(),
            confirm: host(0).to_string(),
            decision,
        }));
    }

    fn incident(&self) -> IncidentStatus {
        let mut all = self.play.engine.incidents();
        assert_eq!(all.len(), 1, "one incident");
        all.remove(0)
    }

    /// Dead, noticed, and waiting for a person.
    fn waiting() -> Self {
        let mut world = Self::new();
        world.seconds(60, 1);
        let incident = world.incident();
        assert_eq!(incident.state, IncidentState::Confirmed);
        assert_eq!(incident.held, Some(HeldReason::AwaitingApproval));
        let opened = &world.play.engine.ledger().incidents[&incident.id];
        assert_eq!(opened.kind, IncidentKind::OperatorRequested);
        assert!(world.written.is_empty(), "{:?}", world.written);
        world
    }
}

#[test]
fn a_host_that_others_set_to_ha_and_that_comes_back_is_left_at_ha() {
    let mut world = SetByOthers::waiting();
    world.seconds(30, 0);
    assert_eq!(world.incident().state, IncidentState::Cancelled);
    assert!(world.written.is_empty(), "{:?}", world.written);
}

#[test]
fn a_claim_of_what_others_set_to_ha_is_called_off_without_touching_it() {
    let mut world = SetByOthers::waiting();
    world.answers_claims = false;
    world.decide(Decision::Approve);
    world.seconds(4, 1);
    let claim = Effect::Claim {
        host: host(0),
        expected: Maintenance::Ha,
    };
    assert_eq!(
        world.written,
        std::slice::from_ref(&claim),
        "approved, and ours from here on"
    );
    // It speaks before its power was touched. The claim without an answer is given up after half a minute.
    world.seconds(60, 0);
    assert_eq!(world.incident().state, IncidentState::Cancelled);
    assert_eq!(world.written, [claim], "their maintenance is theirs");
}

#[test]
fn a_person_may_abort_what_others_asked_for() {
    let mut world = SetByOthers::waiting();
    let asked_for = world.incident().id;
    world.decide(Decision::Abort);
    let aborted = &world.play.engine.ledger().incidents[&asked_for];
    assert!(!aborted.state.open(), "{:?}", aborted.state);
    // It is still dead, which is another incident, and waits for a person again.
    world.seconds(60, 1);
    assert!(world.written.is_empty(), "{:?}", world.written);
}
