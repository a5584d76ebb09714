// SPDX-License-Identifier: Apache-2.0
//! What people decide holds for what they decided about, and for nothing else: an approval opens one gate, an abort gives
//! back what was taken, and a host whose incident a person ended is theirs until it is heard again.

#![allow(clippy::unwrap_used)]

mod play;

use std::collections::BTreeMap;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    AgentId, Answer, BlockedReason, BootId, Command, Config, Decision, DomainState, Effect, Entry, Epoch,
    FenceLevel, Gate, Grade, HeldReason, Identity, IncidentId, IncidentState, IncidentStatus, Input,
    Inventory, Ledger, Mono, Notice, Observation, Pause, PauseScope, Power, Record, ReplicaId, ServiceChange,
    ServiceFacts, Trouble, VERSION, VmProgress, allowed,
};
use play::{Play, at, beat, facts, host, machine, right};

/// A cluster, a cloud and devices that do as they are told.
struct World {
    play: Play,
    /// Hosts that are dead, as bits.
    silent: u8,
    maintenance: BTreeMap<u8, Maintenance>,
    /// What every device says; nothing if they do not answer.
    power: Option<Power>,
    /// Whom the devices say they belong to, where it is not their host.
    identity: Option<Identity>,
    disabled: bool,
    forced_down: bool,
    /// Orders to switch off come too late to leave.
    late: bool,
    written: Vec<Effect>,
}

fn number(name: &str) -> u8 {
    name[1..].parse().unwrap()
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            play: Play::new(),
            silent: 0,
            maintenance: BTreeMap::new(),
            power: Some(Power::On),
            identity: None,
            disabled: false,
            forced_down: false,
            late: false,
            written: Vec::new(),
        };
        world.seconds(70);
        world
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.play.second(self.silent, true);
            while let Some(action) = self.play.open.pop() {
                if action.effect.changes() {
                    self.written.push(action.effect.clone());
                }
                if matches!(action.effect, Effect::Investigate { .. }) {
                    self.play.open.push(action);
                    let last = self.play.open.len() - 1;
                    self.play.answer(last, 3, self.silent);
                    continue;
                }
                let result = self.answer(&action.effect);
                self.play.step(Input::Outcome {
                    id: action.id,
                    result,
                });
            }
        }
    }

    fn answer(&mut self, effect: &Effect) -> Result<Answer, Trouble> {
        let of = |host: &cobaltcore_api::names::HostName| number(host.as_str());
        Ok(match effect {
            Effect::ReadPower { .. } | Effect::ReadHold { .. } => {
                Answer::Power(self.power.ok_or(Trouble::Unknown)?)
            }
            Effect::PowerOff { .. } if self.late => return Err(Trouble::NotStarted),
            Effect::Identify { host, .. } => {
                Answer::Identity(self.identity.clone().unwrap_or_else(|| machine(of(host))))
            }
            Effect::ReadMaintenance { host } => {
                Answer::Maintenance(self.maintenance.get(&of(host)).cloned().unwrap_or_default())
            }
            Effect::Claim { host, .. } => {
                self.maintenance.insert(of(host), Maintenance::Ha);
                Answer::Done
            }
            Effect::RestoreMaintenance { host, value } => {
                self.maintenance.insert(of(host), value.clone());
                Answer::Done
            }
            Effect::SetDisabled { host } => {
                assert_eq!(self.maintenance.get(&of(host)), Some(&Maintenance::Ha));
                Answer::Done
            }
            Effect::UpdateService { change, .. } => {
                self.forced_down = *change == ServiceChange::ForceDown;
                self.disabled = self.forced_down || *change == ServiceChange::Disable;
                Answer::Done
            }
            Effect::ReadService { .. } => Answer::Service(ServiceFacts {
                updated_at: "1".into(),
                up: false,
                disabled: self.disabled,
                forced_down: self.forced_down,
            }),
            effect => right(effect, 4),
        })
    }

    fn of(&self, n: u8) -> IncidentStatus {
        let all = self.play.engine.incidents();
        let mine = all.into_iter().filter(|incident| incident.id.host == host(n));
        mine.last().unwrap()
    }

    fn incidents(&self) -> usize {
        self.play.engine.ledger().incidents.len()
    }

    /// Decides; says why not, if it was refused.
    fn decide(&mut self, n: u8, decision: Decision) -> Option<String> {
        self.play.notices.clear();
        self.play.step(Input::Command(Command {
            incident: self.of(n).id,
            actor: "operator/olga".into(),
            reason: "looked at it".into(),
            confirm: host(n).to_string(),
            decision,
        }));
        self.play.notices.iter().find_map(|notice| match notice {
            Notice::CommandRefused { why, .. } => Some(why.clone()),
            _ => None,
        })
    }

    fn wrote(&self, wanted: impl Fn(&Effect) -> bool) -> usize {
        self.written.iter().filter(|effect| wanted(effect)).count()
    }
}

fn switched_off(effect: &Effect) -> bool {
    matches!(effect, Effect::PowerOff { .. })
}

#[test]
fn whoever_approves_a_storm_has_not_approved_that_somebodys_work_is_overridden() {
    let mut world = World::new();
    world.maintenance.insert(0, Maintenance::Manual);
    world.silent = 0b111;
    world.seconds(60);
    for n in 0..3 {
        assert_eq!(world.of(n).held, Some(HeldReason::Storm), "n{n}");
        assert_eq!(world.decide(n, Decision::Approve), None);
    }
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::PlannedMaintenance));
    assert_eq!(world.maintenance[&0], Maintenance::Manual);
    let offs =
        |n: u8| move |effect: &Effect| matches!(effect, Effect::PowerOff { host: of, .. } if *of == host(n));
    assert_eq!(world.wrote(offs(0)), 0);
    assert!(world.wrote(offs(1)) > 0 && world.wrote(offs(2)) > 0);
    // That takes an approval of its own.
    assert_eq!(world.decide(0, Decision::Approve), None);
    world.seconds(30);
    assert_eq!(world.maintenance[&0], Maintenance::Ha);
    assert!(world.wrote(offs(0)) > 0);
}

#[test]
fn an_approval_opens_one_gate_and_that_of_an_older_program_opens_all() {
    let id = IncidentId {
        epoch: Epoch(1),
        n: 1,
        host: host(0),
        opened_ms: None,
    };
    let opened = |held: Option<HeldReason>| {
        let entries = [
            Entry::Opened {
                incident: id.clone(),
                kind: cobaltcore_ha_engine::IncidentKind::HostDown,
                by: "monitor/host-down".into(),
                boot: None,
                evidence: Box::default(),
                announced: false,
            },
            Entry::Decided {
                incident: id.clone(),
                decision: Decision::Approve,
                actor: "olga".into(),
                reason: "looked".into(),
                held,
                boot: None,
            },
        ];
        let records: Vec<Record> = (1..)
            .zip(entries)
            .map(|(seq, entry)| Record {
                version: VERSION,
                seq,
                epoch: Epoch(1),
                at: at(0).wall,
                entry,
            })
            .collect();
        let text = serde_json::to_string(&records).unwrap();
        let read: Vec<Record> = serde_json::from_str(&text).unwrap();
        let ledger = Ledger::replay(&read).unwrap();
        ledger.incidents[&id].approved.iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(opened(Some(HeldReason::DomainLimit)), [Gate::Storm]);
    assert_eq!(opened(Some(HeldReason::AwaitingApproval)), [Gate::Maintenance]);
    assert_eq!(
        opened(None),
        [Gate::Storm, Gate::Maintenance, Gate::Capacity, Gate::Cleared]
    );
}

/// Its device is another machine's: nothing was done to its power, and a person may end it.
fn mismatched() -> World {
    let mut world = World::new();
    world.identity = Some(machine(9));
    world.silent = 1;
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::IdentityMismatch));
    assert_eq!(world.of(0).state, IncidentState::Fencing);
    world
}

#[test]
fn an_incident_may_be_aborted_before_power_is_touched_and_gives_back_what_it_took() {
    let mut world = mismatched();
    world.seconds(120);
    assert!(world.disabled, "it cannot be fenced, so it gets no new guests");
    assert_eq!(world.decide(0, Decision::Abort), None);
    assert_eq!(
        world.decide(0, Decision::AckFenced).as_deref(),
        Some("it is being aborted")
    );
    world.seconds(10);
    assert_eq!(world.of(0).state, IncidentState::Closed);
    assert_eq!(world.maintenance[&0], Maintenance::Off);
    assert_eq!(world.wrote(switched_off), 0);
    // Whoever clears maintenance enables the service by the condition; so it was there before.
    let place = |wanted: fn(&Effect) -> bool| world.written.iter().position(wanted).unwrap();
    let told = place(|effect| matches!(effect, Effect::SetDisabled { .. }));
    let given_back = place(|effect| matches!(effect, Effect::RestoreMaintenance { .. }));
    assert!(told < given_back, "{:?}", world.written);
}

#[test]
fn without_an_operator_what_was_disabled_is_enabled_when_its_host_comes_back() {
    for release_in_nova in [false, true] {
        let mut world = mismatched();
        world.play.step(Input::Configure(Box::new(Config {
            release_in_nova,
            ..Config::default()
        })));
        world.seconds(120);
        assert!(world.disabled);
        world.silent = 0;
        world.seconds(40);
        assert_eq!(world.of(0).state, IncidentState::Cancelled);
        assert_eq!(
            world.disabled, !release_in_nova,
            "the operator's work is left to the operator"
        );
    }
}

#[test]
fn what_a_person_aborted_is_left_alone_until_its_host_is_heard_again() {
    let mut world = World::new();
    world.maintenance.insert(0, Maintenance::Manual);
    world.silent = 1;
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::PlannedMaintenance));
    assert_eq!(world.decide(0, Decision::Abort), None);
    world.seconds(600);
    assert_eq!(world.incidents(), 1, "it was ended, and stays so");
    let left = |world: &World| {
        let status = world
            .play
            .engine
            .host_status(&host(0), at(world.play.now))
            .unwrap();
        (status.left, status.suspect)
    };
    assert_eq!(left(&world), (true, false), "and that is shown");
    assert!(world.written.is_empty(), "{:?}", world.written);
    // It comes back, with the same boot, and dies in earnest.
    world.silent = 0;
    world.seconds(30);
    assert_eq!(left(&world), (false, false));
    world.silent = 1;
    world.seconds(60);
    assert_eq!(world.incidents(), 2);
}

#[test]
fn a_dead_host_whose_incident_was_closed_is_no_new_incident_to_whoever_leads_next() {
    let mut world = World::new();
    world.power = Some(Power::Off);
    world.silent = 1;
    world.seconds(200);
    let id = world.of(0).id;
    let mut journal = world.play.journal.clone();
    let seq = journal.len() as u64;
    for (n, entry) in [
        Entry::Moved {
            incident: id.clone(),
            state: IncidentState::Recovered,
        },
        Entry::Decided {
            incident: id,
            decision: Decision::Close,
            actor: "olga".into(),
            reason: "it is scrap".into(),
            held: None,
            boot: None,
        },
    ]
    .into_iter()
    .enumerate()
    {
        journal.push(Record {
            version: VERSION,
            seq: seq + 1 + n as u64,
            epoch: Epoch(1),
            at: at(0).wall,
            entry,
        });
    }
    let successor = |maintenance: Maintenance, boot: Option<u8>| {
        let mut world = World::new();
        world.play = Play {
            engine: cobaltcore_ha_engine::Engine::new(Config::default(), ReplicaId(1)),
            journal: Vec::new(),
            ..Play::new()
        };
        world.maintenance.insert(0, maintenance.clone());
        for n in 0..6 {
            let mut known = facts(n);
            if n == 0 {
                known.maintenance = maintenance.clone();
            }
            world.play.step(Input::Saw(Observation::Host(known)));
        }
        if let Some(boot) = boot {
            let said = beat(0, boot, 1);
            world.play.step(Input::Saw(Observation::Heartbeat(said)));
        }
        world.play.step(Input::Lead {
            epoch: Epoch(2),
            sent_at: Mono(world.play.now),
            journal: journal.clone(),
        });
        world.power = Some(Power::Off);
        world.silent = 1;
        for _ in 0..200 {
            // Whoever never heard its agent goes by its lease.
            let lease = vec![(host(0), "the same".to_owned())];
            world.play.step(Input::Saw(Observation::NodeLeases(lease)));
            world.seconds(1);
        }
        world.incidents()
    };
    assert_eq!(successor(Maintenance::Ha, Some(1)), 1, "the boot that died");
    assert_eq!(
        successor(Maintenance::Ha, None),
        1,
        "nobody knows, and it is as it was left"
    );
    assert_eq!(
        successor(Maintenance::Off, Some(2)),
        2,
        "it was repaired, and died again"
    );
}

#[test]
fn a_rack_without_power_takes_one_signature_for_each_host_and_no_power_command() {
    let mut world = World::new();
    world.power = None;
    world.silent = 0b111;
    world.seconds(60);
    for n in 0..3 {
        assert_eq!(world.of(n).held, Some(HeldReason::Storm), "n{n}");
        assert_eq!(world.decide(n, Decision::AckFenced), None, "n{n}");
    }
    world.seconds(60);
    for n in 0..3 {
        let grade = world.play.engine.ledger().incidents[&world.of(n).id].grade;
        assert_eq!(grade, Some(Grade::Asserted), "n{n}");
    }
    assert_eq!(world.wrote(switched_off), 0);
}

#[test]
fn nobody_signs_for_a_host_whose_device_says_that_it_is_on() {
    let mut world = World::new();
    world.silent = 0b111;
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::Storm));
    let why = world.decide(0, Decision::AckFenced).unwrap();
    assert!(why.contains("approve, and it is switched off first"), "{why}");
    world.seconds(60);
    assert!(world.written.is_empty(), "{:?}", world.written);
}

#[test]
fn what_may_be_decided_is_the_same_for_whoever_shows_it() {
    let mut world = mismatched();
    let id = world.of(0).id;
    let incident = world.play.engine.ledger().incidents[&id].clone();
    let held = world.of(0).held;
    let shown: Vec<Decision> = Decision::ALL
        .into_iter()
        .filter(|decision| allowed(&incident, held, 0, *decision).is_ok())
        .collect();
    assert_eq!(shown, [Decision::AckFenced, Decision::Abort]);
    for decision in Decision::ALL {
        let refused = allowed(&incident, held, 0, decision).is_err();
        if refused {
            assert!(world.decide(0, decision).is_some(), "{decision:?}");
        }
    }
}

#[test]
fn whoever_follows_knows_which_hosts_are_handled() {
    let mut world = mismatched();
    let ledger = world.play.engine.ledger().clone();
    let mut follower = Play::new();
    follower.step(Input::LeaseLost);
    let handled = |play: &Play, n: u8| {
        let status = play.engine.host_status(&host(n), at(play.now)).unwrap();
        (play.engine.hold_reactions(&host(n)), status.incident.is_some())
    };
    assert_eq!(handled(&follower, 0), (false, false));
    follower.step(Input::Follow(Box::new(ledger.clone())));
    assert_eq!(handled(&follower, 0), (true, true));
    assert_eq!(handled(&follower, 1), (false, false));
    follower.step(Input::Follow(Box::default()));
    assert_eq!(handled(&follower, 0), (false, false), "it is over");
    // Whoever leads believes itself.
    world.play.step(Input::Follow(Box::default()));
    assert_eq!(*world.play.engine.ledger(), ledger);
}

fn configured(world: &mut World, change: impl FnOnce(&mut Config)) {
    let mut config = Config::default();
    change(&mut config);
    world.play.step(Input::Configure(Box::new(config)));
}

/// A level that is turned to is no power command: the host may still be let go, and its gates are still shut.
#[test]
fn another_level_of_fencing_touches_nothing_by_itself() {
    let mut world = World::new();
    configured(&mut world, |config| {
        config.fence_levels.push(FenceLevel {
            name: "exec".into(),
            grade: Grade::Power,
        });
    });
    world.identity = Some(machine(9));
    world.silent = 1;
    world.seconds(200);
    let incident = world.play.engine.ledger().incidents[&world.of(0).id].clone();
    assert!(!incident.touched(), "{incident:?}");
    assert_eq!(world.wrote(switched_off), 0);
    world.silent = 0;
    world.seconds(30);
    assert_eq!(world.of(0).state, IncidentState::Cancelled);
    assert_eq!(world.maintenance[&0], Maintenance::Off);
}

/// Whoever is found to have switched a host off is told to keep it off, and nobody else.
#[test]
fn the_level_that_fenced_a_host_holds_it() {
    let mut world = World::new();
    configured(&mut world, |config| {
        config.fence_levels.insert(
            0,
            FenceLevel {
                name: "ceph-fence".into(),
                grade: Grade::Storage,
            },
        );
    });
    world.silent = 1;
    world.seconds(30);
    assert!(world.wrote(switched_off) > 0);
    world.power = Some(Power::Off);
    world.seconds(20);
    let held: Vec<&Effect> = world
        .written
        .iter()
        .filter(|effect| matches!(effect, Effect::Hold { .. }))
        .collect();
    assert_eq!(
        held,
        [&Effect::Hold {
            host: host(0),
            level: 1
        }]
    );
}

/// Kubernetes was slow, not the device.
#[test]
fn an_order_to_switch_off_that_never_left_is_given_again_at_once() {
    let mut world = World::new();
    world.silent = 1;
    world.late = true;
    while world.wrote(switched_off) < 3 {
        world.seconds(1);
    }
    world.late = false;
    let tried = world.wrote(switched_off);
    world.seconds(5);
    assert!(world.wrote(switched_off) > tried);
}

#[test]
fn a_pause_that_comes_before_the_power_command_is_heeded() {
    let mut world = mismatched();
    world.play.step(Input::Pauses(vec![Pause {
        scope: PauseScope::Host(host(0)),
        reason: "its device is being repaired".into(),
    }]));
    world.identity = None;
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::Paused));
    assert_eq!(world.wrote(switched_off), 0);
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(60);
    assert!(world.wrote(switched_off) > 0);
}

#[test]
fn a_signature_is_void_as_soon_as_the_host_shows_life() {
    let mut world = World::new();
    world.power = None;
    world.silent = 0b111;
    world.seconds(60);
    // It waits for a place, so that there is time.
    configured(&mut world, |config| config.max_hosts_in_flight = 0);
    assert_eq!(world.decide(0, Decision::AckFenced), None);
    world.seconds(5);
    let asserted = |world: &World| {
        let ledger = world.play.engine.ledger();
        ledger.incidents[&world.of(0).id].asserted
    };
    assert!(asserted(&world));
    for token in ["1", "2"] {
        let lease = vec![(host(0), token.to_owned())];
        world.play.step(Input::Saw(Observation::NodeLeases(lease)));
        world.seconds(1);
    }
    assert!(!asserted(&world), "its kubelet renewed its lease");
    configured(&mut world, |_| {});
    world.seconds(60);
    let grade = world.play.engine.ledger().incidents[&world.of(0).id].grade;
    assert_eq!(grade, None, "what was signed is about a host that was not off");
}

/// A replica that hears what the leader hears and follows its journal.
fn follow(world: &mut World, follower: &mut Play, seconds: u32) {
    for _ in 0..seconds {
        follower.now = world.play.now;
        follower.second(world.silent, false);
        world.seconds(1);
        let ledger = world.play.engine.ledger().clone();
        follower.step(Input::Follow(Box::new(ledger)));
    }
}

/// Whoever signed knew what the host had done before.
#[test]
fn whoever_leads_next_takes_no_signature_back_for_what_was_heard_before_it() {
    let mut world = World::new();
    let mut follower = Play::new();
    follower.step(Input::LeaseLost);
    world.power = None;
    world.silent = 1;
    follow(&mut world, &mut follower, 60);
    let lost = |world: &World| {
        let entries = world.play.journal.iter().map(|record| &record.entry);
        entries
            .filter(|entry| matches!(entry, Entry::FenceLost { .. }))
            .count()
    };
    assert_eq!(world.decide(0, Decision::AckFenced), None);
    follow(&mut world, &mut follower, 2);
    world.silent = 0;
    follow(&mut world, &mut follower, 2);
    assert_eq!(lost(&world), 1, "it was heard");
    world.silent = 1;
    follow(&mut world, &mut follower, 60);
    assert_eq!(world.decide(0, Decision::AckFenced), None);
    follow(&mut world, &mut follower, 2);
    let journal = world.play.journal.clone();
    follower.now = world.play.now;
    follower.step(Input::Lead {
        epoch: Epoch(2),
        sent_at: Mono(follower.now),
        journal,
    });
    follower.journal.clear();
    world.play = follower;
    world.seconds(120);
    assert_eq!(lost(&world), 0, "nothing was heard of it since");
    assert!(world.wrote(asked_for) > 0);
}

/// Three hosts that people closed their incidents of wait for parts. Whoever begins to lead counts them for no storm and
/// does not take their silence for its own deafness.
#[test]
fn incidents_that_were_over_long_ago_hold_nobody_back() {
    let closed = |days: i64| {
        let mut world = World::new();
        let wall = at(0).wall - jiff::SignedDuration::from_hours(24 * days);
        let mut records = Vec::new();
        for n in 0..3u8 {
            let incident = IncidentId {
                epoch: Epoch(1),
                n: u32::from(n) + 1,
                host: host(n),
                opened_ms: None,
            };
            let opened = Entry::Opened {
                incident: incident.clone(),
                kind: cobaltcore_ha_engine::IncidentKind::HostDown,
                by: "monitor/host-down".into(),
                boot: None,
                evidence: Box::default(),
                announced: false,
            };
            let ended = Entry::Moved {
                incident,
                state: IncidentState::Closed,
            };
            for entry in [opened, ended] {
                records.push(Record {
                    version: VERSION,
                    seq: records.len() as u64 + 1,
                    epoch: Epoch(1),
                    at: wall,
                    entry,
                });
            }
        }
        world.play.step(Input::Lead {
            epoch: Epoch(2),
            sent_at: Mono(world.play.now),
            journal: records,
        });
        world.seconds(70);
        world.silent = 0b1000;
        world.seconds(40);
        world.of(3)
    };
    assert_eq!(closed(0).held, Some(HeldReason::Storm), "that was just now");
    assert_eq!(closed(7).state, IncidentState::Fencing);
}

#[test]
fn hosts_that_people_left_off_are_no_sign_of_being_cut_off() {
    let mut world = World::new();
    configured(&mut world, |config| config.storm_percent = 100);
    world.identity = Some(machine(9));
    for n in [0, 1] {
        world.silent |= 1 << n;
        world.seconds(60);
        assert_eq!(world.decide(n, Decision::Abort), None, "n{n}");
        world.seconds(10);
        assert_eq!(world.of(n).state, IncidentState::Closed, "n{n}");
    }
    world.identity = None;
    world.silent |= 0b100;
    world.seconds(60);
    assert!(
        world.wrote(|effect| matches!(effect, Effect::PowerOff { host: of, .. } if *of == host(2))) > 0,
        "held for {:?}",
        world.of(2).held
    );
}

#[test]
fn a_second_attempt_needs_a_place_in_flight() {
    let mut world = World::new();
    world.silent = 1;
    world.power = Some(Power::Off);
    world.seconds(60);
    let id = world.of(0).id;
    // Nova had no place for its guest.
    let mut journal = world.play.journal.clone();
    journal.push(Record {
        version: VERSION,
        seq: journal.len() as u64 + 1,
        epoch: Epoch(1),
        at: at(0).wall,
        entry: Entry::Moved {
            incident: id,
            state: IncidentState::Failed,
        },
    });
    world.play.step(Input::Lead {
        epoch: Epoch(2),
        sent_at: Mono(world.play.now),
        journal,
    });
    world.seconds(5);
    configured(&mut world, |config| config.max_hosts_in_flight = 0);
    let why = world.decide(0, Decision::Retry).unwrap();
    assert!(why.contains("in flight"), "{why}");
    configured(&mut world, |_| {});
    assert_eq!(world.decide(0, Decision::Retry), None);
    assert_eq!(world.of(0).state, IncidentState::Evacuating);
}

#[test]
fn a_host_that_was_emptied_before_it_is_taken_away_is_let_go() {
    for (maintenance, instances, incidents) in [
        (Maintenance::Termination, 0, 0),
        (Maintenance::Termination, 1, 1),
        (Maintenance::Auto, 0, 0),
        (Maintenance::Off, 0, 1),
    ] {
        let mut world = World::new();
        world.maintenance.insert(0, maintenance.clone());
        let mut known = facts(0);
        (known.maintenance, known.instances) = (maintenance.clone(), instances);
        world.play.step(Input::Saw(Observation::Host(known)));
        world.silent = 1;
        world.seconds(60);
        assert_eq!(world.incidents(), incidents, "{maintenance:?} with {instances}");
    }
}

/// Host 0 died, was switched off, and Nova could not move its guest: it is kept off.
fn settled() -> World {
    let mut world = World::new();
    world.silent = 1;
    world.seconds(40);
    world.power = Some(Power::Off);
    world.seconds(400);
    assert_eq!(world.of(0).state, IncidentState::Failed);
    assert_eq!((world.of(0).held, world.of(0).fenced), (None, Some(Grade::Power)));
    world.written.clear();
    world
}

fn kept_off(effect: &Effect) -> bool {
    matches!(effect, Effect::Hold { .. })
}

#[test]
fn a_host_whose_guests_are_settled_is_kept_off_until_somebody_wants_it_back() {
    let mut world = settled();
    world.power = Some(Power::On);
    world.seconds(15);
    assert_eq!(world.wrote(switched_off), 1, "it is on, and nobody wants it back");
    assert_eq!(world.of(0).fenced, None);
    world.power = Some(Power::Off);
    world.seconds(15);
    assert_eq!(world.of(0).fenced, Some(Grade::Power));
    assert_eq!(world.wrote(kept_off), 1, "and kept off again");
    assert_eq!(world.decide(0, Decision::Release), None);
    world.power = Some(Power::On);
    world.silent = 0;
    world.seconds(120);
    assert_eq!(world.wrote(switched_off), 1, "somebody wants it back");
}

#[test]
fn a_device_that_is_another_machines_switches_nothing_off_again_either() {
    let mut world = settled();
    world.play.step(Input::LeaseLost);
    let journal = world.play.journal.clone();
    world.play.step(Input::Lead {
        epoch: Epoch(2),
        sent_at: Mono(world.play.now),
        journal,
    });
    world.identity = Some(machine(9));
    world.power = Some(Power::On);
    world.seconds(30);
    assert_eq!(world.wrote(switched_off), 0);
    assert_eq!(world.of(0).held, Some(HeldReason::IdentityMismatch));
}

#[test]
fn a_host_that_people_took_into_their_hands_is_not_switched_off_again() {
    let mut world = settled();
    world.play.step(Input::Pauses(vec![Pause {
        scope: PauseScope::Host(host(0)),
        reason: "somebody looks at it".into(),
    }]));
    world.power = Some(Power::On);
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::Paused));
    // Maintenance that was cleared has it in service again, with whatever guests Nova sends there.
    world.maintenance.insert(0, Maintenance::Off);
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::OperatorCleared));
    assert_eq!(world.wrote(switched_off), 0);
    assert_eq!(world.decide(0, Decision::Abort), None);
    world.seconds(60);
    assert_eq!(world.of(0).state, IncidentState::Closed);
    assert_eq!(world.wrote(switched_off), 0);
}

#[test]
fn a_fence_that_no_device_could_renew_is_told_until_somebody_acts() {
    let mut world = settled();
    configured(&mut world, |config| {
        config.fence_levels[0].grade = Grade::SelfFence;
        config.required_grade = Grade::SelfFence;
    });
    world.silent = 0;
    world.seconds(30);
    assert_eq!(world.of(0).held, Some(HeldReason::FenceLost));
    assert_eq!(world.wrote(switched_off), 0);
    assert_eq!(world.decide(0, Decision::Release), None);
    world.seconds(5);
    assert_eq!(world.of(0).state, IncidentState::Releasing);
}

/// Whoever took a host back by hand may have guests there that are in nobody's plan: only they can give it up again.
#[test]
fn a_host_whose_guests_are_settled_is_not_claimed_again_by_an_approval() {
    let mut world = settled();
    world.power = Some(Power::On);
    world.maintenance.insert(0, Maintenance::Off);
    world.seconds(60);
    assert_eq!(world.of(0).held, Some(HeldReason::OperatorCleared));
    let refused = world.decide(0, Decision::Approve).unwrap();
    assert!(refused.contains("settled"), "{refused}");
    world.seconds(60);
    assert_eq!(world.wrote(switched_off), 0);
}

/// A device that reads On says nothing against a watchdog that has reset its host, and could not hold what that did.
#[test]
fn what_a_watchdog_did_is_held_by_the_level_that_stands_for_it() {
    let level = |name: &str, grade| FenceLevel {
        name: name.into(),
        grade,
    };
    let fenced_by = |levels: Vec<FenceLevel>| {
        let mut world = World::new();
        configured(&mut world, |config| {
            config.required_grade = Grade::SelfFence;
            config.fence_levels = levels;
        });
        world.play.armed = Some(std::time::Duration::from_secs(105));
        world.seconds(5);
        world.power = None;
        world.silent = 1;
        world.seconds(240);
        let fenced = world
            .play
            .journal
            .iter()
            .filter_map(|record| match &record.entry {
                Entry::Fenced { level, grade, .. } => Some((*level, *grade)),
                _ => None,
            });
        fenced.collect::<Vec<_>>()
    };
    let power = || level("redfish", Grade::Power);
    let watchdog = || level("watchdog-lease", Grade::SelfFence);
    let found = fenced_by(vec![power(), watchdog()]);
    assert_eq!(found.first(), Some(&(1, Grade::SelfFence)));
    assert_eq!(
        fenced_by(vec![power()]),
        [],
        "nobody said that a watchdog is a fence"
    );
}

fn asked_for(effect: &Effect) -> bool {
    matches!(effect, Effect::Evacuate { .. })
}

/// A guest that somebody paused waits, whether that was before the plan or after it, and its incident says so. Whoever
/// leads next and has not been told of any pause yet does not take that for its end.
#[test]
fn a_guest_that_is_paused_waits_for_the_end_of_its_pause() {
    let pause = Pause {
        scope: PauseScope::Server(play::server(0).id),
        reason: "its owner looks for the cause".into(),
    };
    let waits = |world: &World| {
        let incident = &world.play.engine.ledger().incidents[&world.of(0).id];
        let reason = BlockedReason::Paused;
        incident.state == IncidentState::Failed
            && incident.vms[&play::server(0).id].progress == VmProgress::Blocked { reason }
    };
    let mut world = World::new();
    world.play.step(Input::Pauses(vec![pause]));
    world.silent = 1;
    world.seconds(40);
    world.power = Some(Power::Off);
    world.seconds(60);
    assert!(waits(&world), "{:?}", world.of(0));
    let named = |notice: &&Notice| matches!(notice, Notice::VmNeedsPerson { why, .. } if why == "Paused");
    assert_eq!(world.play.notices.iter().filter(named).count(), 1);
    assert_eq!(world.wrote(asked_for), 0);
    let mut next = Play::untold();
    next.now = world.play.now;
    next.step(Input::Lead {
        epoch: Epoch(2),
        sent_at: Mono(next.now),
        journal: world.play.journal.clone(),
    });
    world.play = next;
    world.seconds(60);
    assert!(waits(&world), "nobody has said that it is over");
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(30);
    assert!(world.wrote(asked_for) > 0);
}

/// Its libvirt hangs and it has nothing newer to say. It speaks, so the guest may well run there.
#[test]
fn what_a_host_that_speaks_said_last_counts_however_long_ago_that_was() {
    for (shows, conflict) in [(true, true), (false, false)] {
        let mut world = World::new();
        let guest = play::server(0).id;
        let listed = (guest.clone(), DomainState::Running);
        world.play.step(Input::Saw(Observation::Inventory(Inventory {
            host: host(1),
            agent: AgentId("agent".to_owned()),
            starts: 2,
            boot: BootId("boot-1".to_owned()),
            version: 1,
            domains: Some(listed).filter(|_| shows).into_iter().collect(),
            devices: Vec::new(),
        })));
        world.seconds(300);
        world.silent = 1;
        world.seconds(40);
        world.power = Some(Power::Off);
        world.seconds(120);
        let of_guest =
            |effect: &Effect| matches!(effect, Effect::Evacuate { server, .. } if *server == guest);
        assert_eq!(
            world.wrote(of_guest) == 0,
            conflict,
            "the guest is asked for elsewhere"
        );
        let incident = &world.play.engine.ledger().incidents[&world.of(0).id];
        let found = matches!(incident.vms[&guest].progress, VmProgress::Conflict { .. });
        assert_eq!(found, conflict);
    }
}

#[test]
fn a_pause_that_comes_between_two_attempts_is_heeded() {
    let mut world = World::new();
    world.silent = 1;
    world.seconds(40);
    world.power = Some(Power::Off);
    while world.wrote(asked_for) == 0 {
        world.seconds(1);
    }
    world.play.step(Input::Pauses(vec![Pause {
        scope: PauseScope::Server(play::server(0).id),
        reason: "its owner looks for the cause".into(),
    }]));
    world.seconds(120);
    assert_eq!(world.wrote(asked_for), 1, "Nova did not take the first");
    assert_eq!(world.of(0).state, IncidentState::Failed);
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(60);
    assert!(world.wrote(asked_for) > 1);
}
