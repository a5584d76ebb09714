// SPDX-License-Identifier: Apache-2.0
//! Hosts that boot by themselves, and a fleet that is switched on: who is waited for, and for how long.

#![allow(clippy::unwrap_used)]

mod play;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    AgentId, Answer, BootId, Config, DomainState, Effect, Entry, Epoch, HeldReason, IncidentKind,
    IncidentState, Input, Inventory, Mono, Notice, Observation, Pause, PauseScope, Power, ProbeResult,
    Prober, ReplicaId, ServiceFacts, Trouble, VmPolicy,
};
use play::{Play, beat, host, right, server};

/// A zone of six in which host 0 has booted anew.
struct Zone {
    play: Play,
    /// Whether the compute service of host 0 reports, and those of the others.
    compute: bool,
    others: bool,
    /// When they last did.
    reported: (u64, u64),
    /// Whether the guest of host 0 executes there.
    runs: bool,
    off: bool,
    claimed: bool,
    /// Whether Nova answers.
    nova: bool,
    /// Whether the journal refuses that a guest is to be restarted.
    refuses: bool,
    done: Vec<Effect>,
}

impl Zone {
    fn new() -> Self {
        let mut zone = Self {
            play: Play::new(),
            compute: true,
            others: true,
            reported: (0, 0),
            runs: true,
            off: false,
            claimed: false,
            nova: true,
            refuses: false,
            done: Vec::new(),
        };
        zone.seconds(90, 1);
        (zone.compute, zone.runs) = (false, false);
        zone
    }

    fn seconds(&mut self, count: u32, boot: u8) {
        for _ in 0..count {
            self.second(boot);
        }
    }

    fn second(&mut self, boot: u8) {
        let now = self.play.now + 1000;
        if !self.off {
            let beat = beat(0, boot, now * 1000);
            self.play.step(Input::Saw(Observation::Heartbeat(beat)));
            let state = if self.runs {
                DomainState::Running
            } else {
                DomainState::Off
            };
            self.play.step(Input::Saw(Observation::Inventory(Inventory {
                host: host(0),
                agent: AgentId("agent".into()),
                starts: 1 + u64::from(boot),
                boot: BootId(format!("boot-{boot}")),
                version: now,
                domains: [(server(0).id, state)].into_iter().collect(),
                devices: Vec::new(),
            })));
        }
        if self.compute {
            self.reported.0 = now;
        }
        if self.others {
            self.reported.1 = now;
        }
        let reported = |n: u8| if n == 0 { self.reported.0 } else { self.reported.1 };
        let services = (0..6)
            .map(|n| {
                let updated_at = reported(n).to_string();
                let facts = ServiceFacts {
                    updated_at,
                    up: true,
                    disabled: false,
                    forced_down: false,
                };
                (host(n), facts)
            })
            .collect();
        self.play.step(Input::Saw(Observation::Services(services)));
        self.play.second(1, true);
        self.answer();
    }

    fn answer(&mut self) {
        let restart = |effect: &Effect| matches!(effect, Effect::RebootHard { .. });
        if self.refuses && self.play.open.iter().any(|action| restart(&action.effect)) {
            let written = |entry: &Entry| matches!(entry, Entry::RestartIntended { .. });
            self.play.journal.retain(|record| !written(&record.entry));
            self.play.open.clear();
            self.play.step(Input::JournalFailed);
        }
        for action in std::mem::take(&mut self.play.open) {
            let asks = matches!(
                action.effect,
                Effect::ListServers { .. } | Effect::ReadServer { .. }
            );
            if asks && !self.nova {
                self.play.step(Input::Outcome {
                    id: action.id,
                    result: Err(Trouble::Unknown),
                });
                continue;
            }
            let answer = match &action.effect {
                Effect::ReadPower { .. } | Effect::ReadHold { .. } if self.off => Answer::Power(Power::Off),
                Effect::ReadPower { .. } | Effect::ReadHold { .. } => Answer::Power(Power::On),
                Effect::PowerOff { .. } => {
                    self.off = true;
                    Answer::Done
                }
                Effect::Claim { .. } => {
                    self.claimed = true;
                    Answer::Done
                }
                Effect::ReadMaintenance { .. } if self.claimed => Answer::Maintenance(Maintenance::Ha),
                Effect::ReadMaintenance { .. } => Answer::Maintenance(Maintenance::Off),
                other => right(other, 4),
            };
            if let Effect::Investigate { host, .. } = &action.effect {
                let by = Prober::Replica(ReplicaId(0));
                let (asked_at, host) = (cobaltcore_ha_engine::Mono(self.play.now), host.clone());
                let result = if self.off {
                    ProbeResult::Timeout
                } else {
                    ProbeResult::App
                };
                let seen = Observation::Probe {
                    host,
                    by,
                    asked_at,
                    result,
                };
                self.play.step(Input::Saw(seen));
            }
            self.done.push(action.effect);
            self.play.step(Input::Outcome {
                id: action.id,
                result: Ok(answer),
            });
        }
    }

    /// Nobody leads for so long, and then the same process does again.
    fn leads_again_after(&mut self, seconds: u32) {
        self.play.step(Input::LeaseLost);
        self.play.open.clear();
        self.seconds(seconds, 2);
        let epoch = self.play.engine.ledger().epoch;
        self.play.step(Input::Lead {
            epoch: Epoch(epoch.0 + 1),
            sent_at: Mono(self.play.now),
            journal: self.play.journal.clone(),
        });
    }

    /// Until it was looked which guests the boot took, and before anything was done about them.
    fn until_looked_into(&mut self) {
        let told = |zone: &Self| {
            let told = |notice: &Notice| matches!(notice, Notice::HostRebooted { .. });
            zone.play.notices.iter().any(told)
        };
        for _ in 0..120 {
            if told(self) {
                break;
            }
            self.second(2);
        }
        assert!(told(self) && !self.restarted());
    }

    fn incidents(&self) -> Vec<(IncidentKind, IncidentState)> {
        let all = self.play.engine.ledger().incidents.values();
        all.map(|incident| (incident.kind, incident.state)).collect()
    }

    fn restarted(&self) -> bool {
        let restarts = |effect: &Effect| matches!(effect, Effect::RebootHard { .. } | Effect::Start { .. });
        self.done.iter().any(restarts)
    }
}

fn held(play: &Play, wanted: HeldReason) -> bool {
    let is = |notice: &Notice| matches!(notice, Notice::Held { reason, .. } if *reason == wanted);
    play.notices.iter().any(is)
}

#[test]
fn a_rebooted_host_without_a_compute_service_for_ten_minutes_is_recovered() {
    let mut zone = Zone::new();
    zone.seconds(595, 2);
    assert_eq!(zone.incidents(), [], "its compute service may still come up");
    assert!(!zone.restarted(), "nobody there could start a guest");
    zone.seconds(60, 2);
    assert!(zone.off, "it was not switched off");
    let [(kind, state)] = zone.incidents()[..] else {
        panic!("{:?}", zone.incidents());
    };
    assert_eq!(kind, IncidentKind::HostRebooted);
    assert!(state >= IncidentState::Fenced, "{state:?}");
    assert!(
        !held(&zone.play, HeldReason::IdentityMismatch),
        "what it said before it was off says nothing about whose device that was"
    );
    let by = &zone.play.engine.ledger().incidents.values().next().unwrap().by;
    assert_eq!(by, "monitor/host-rebooted");
}

#[test]
fn a_compute_service_that_comes_up_in_time_has_a_minute_to_resume_its_guests() {
    let mut zone = Zone::new();
    zone.seconds(300, 2);
    zone.compute = true;
    zone.seconds(55, 2);
    assert!(!zone.restarted(), "it may resume its guests by itself");
    zone.seconds(20, 2);
    assert!(zone.restarted(), "it did not");
    zone.seconds(900, 2);
    assert_eq!(zone.incidents(), []);
}

#[test]
fn guests_that_high_availability_is_not_wanted_for_are_not_started_after_a_boot() {
    let mut zone = Zone::new();
    let config = Config {
        default_policy: VmPolicy::Ignore,
        ..Config::default()
    };
    zone.play.step(Input::Configure(Box::new(config)));
    zone.seconds(300, 2);
    zone.compute = true;
    zone.seconds(200, 2);
    assert!(!zone.restarted());
}

#[test]
fn a_host_that_runs_a_guest_is_not_sacrificed_for_its_compute_service() {
    let mut zone = Zone::new();
    zone.runs = true;
    zone.seconds(1800, 2);
    assert_eq!(zone.incidents(), []);
    assert!(!zone.off);
}

#[test]
fn compute_services_that_all_fall_silent_are_no_reason_to_switch_a_host_off() {
    let mut zone = Zone::new();
    zone.seconds(30, 2);
    zone.others = false;
    zone.seconds(1800, 2);
    assert_eq!(zone.incidents(), []);
    assert!(!zone.off);
}

#[test]
fn it_is_called_off_when_the_compute_service_comes_up_before_the_power_is_touched() {
    let mut zone = Zone::new();
    let pause = Pause {
        scope: PauseScope::Host(host(0)),
        reason: "works".into(),
    };
    zone.play.step(Input::Pauses(vec![pause]));
    zone.seconds(620, 2);
    assert_eq!(
        zone.incidents(),
        [(IncidentKind::HostRebooted, IncidentState::Confirmed)]
    );
    zone.compute = true;
    zone.seconds(15, 2);
    assert_eq!(
        zone.incidents(),
        [(IncidentKind::HostRebooted, IncidentState::Cancelled)]
    );
    assert!(!zone.off);
}

#[test]
fn guests_that_a_boot_took_are_started_though_the_record_of_it_could_not_be_written_first() {
    let mut zone = Zone::new();
    (zone.compute, zone.refuses) = (true, true);
    zone.seconds(120, 2);
    assert!(!zone.restarted(), "no step without its record");
    zone.refuses = false;
    zone.leads_again_after(5);
    zone.seconds(30, 2);
    assert!(zone.restarted(), "nobody else knows of them");
}

#[test]
fn guests_that_a_boot_took_are_started_by_whoever_led_before_if_that_one_leads_again() {
    let mut zone = Zone::new();
    zone.compute = true;
    zone.until_looked_into();
    zone.leads_again_after(1800);
    zone.seconds(30, 2);
    assert!(zone.restarted());
    // After more than an hour they may be down for any reason.
    let mut later = Zone::new();
    later.compute = true;
    later.until_looked_into();
    later.leads_again_after(3660);
    later.seconds(120, 2);
    assert!(!later.restarted());
}

/// Its own boots are all that a replica knows that does not lead: whoever led has looked into them.
#[test]
fn a_new_leader_looks_into_boots_of_the_last_hour_and_not_of_the_days_before() {
    let listed = |zone: &Zone| {
        let lists = |effect: &&Effect| matches!(effect, Effect::ListServers { host: of } if *of == host(0));
        zone.done.iter().filter(lists).count()
    };
    for (seconds, wanted) in [(3000, true), (4000, false)] {
        let mut zone = Zone::new();
        zone.compute = true;
        zone.leads_again_after(seconds);
        zone.seconds(120, 2);
        assert_eq!(zone.restarted(), wanted, "after {seconds} seconds");
        assert_eq!(listed(&zone), usize::from(wanted), "after {seconds} seconds");
    }
}

#[test]
fn a_host_whose_compute_service_comes_up_after_hours_is_looked_into_then() {
    let mut zone = Zone::new();
    zone.others = false;
    zone.leads_again_after(7200);
    (zone.compute, zone.others) = (true, true);
    zone.seconds(120, 2);
    assert!(zone.restarted());
}

#[test]
fn a_leader_whom_nova_does_not_answer_for_hours_goes_on_asking() {
    let mut zone = Zone::new();
    (zone.compute, zone.nova) = (true, false);
    zone.seconds(5400, 2);
    zone.leads_again_after(60);
    zone.seconds(2400, 2);
    zone.nova = true;
    zone.seconds(60, 2);
    assert!(zone.restarted());
}

/// Six hosts; the last is off while the others were switched on at this moment.
fn switched_on(at: Option<u64>) -> Play {
    let mut play = Play::new();
    play.switched_on = at;
    play
}

fn seconds(play: &mut Play, count: u32, silent: u8) {
    for _ in 0..count {
        play.second(silent, true);
        for _ in 0..play.open.len() {
            play.answer(0, 4, silent);
        }
    }
}

#[test]
fn while_most_of_the_fleet_was_just_switched_on_a_host_that_is_still_off_is_waited_for() {
    const LAST: u8 = 1 << 5;
    let opened = |play: &Play| !play.engine.ledger().incidents.is_empty();
    let claims = |play: &Play| {
        let written = |record: &cobaltcore_ha_engine::Record| {
            matches!(record.entry, cobaltcore_ha_engine::Entry::ClaimIntended { .. })
        };
        play.journal.iter().any(written)
    };
    // Its power reads Off: proof enough, were the others not just as young.
    let mut cold = switched_on(Some(1000));
    seconds(&mut cold, 70, 0);
    seconds(&mut cold, 480, LAST);
    assert!(
        opened(&cold) && held(&cold, HeldReason::WarmUp),
        "{:?}",
        cold.notices
    );
    assert!(!claims(&cold));
    seconds(&mut cold, 120, LAST);
    assert!(
        claims(&cold),
        "ten minutes after the start it counts as any other"
    );
    let mut warm = switched_on(None);
    seconds(&mut warm, 70, 0);
    seconds(&mut warm, 60, LAST);
    assert!(claims(&warm) && !held(&warm, HeldReason::WarmUp));
}
