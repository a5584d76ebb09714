// SPDX-License-Identifier: Apache-2.0
//! A repaired host is given back when Nova can place guests there, and not before.

#![allow(clippy::unwrap_used)]

mod play;

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    AgentId, Answer, BootId, Config, Decision, Domains, Effect, Entry, Epoch, HeldReason, IncidentState,
    Input, Inventory, MigrationFacts, MigrationId, MigrationKind, MigrationStatus, Mono, Observation, Power,
    Record, Refusal, ServiceFacts, Trouble, VERSION, allowed,
};
use play::{Play, at, host, incident};

/// Host 0 was fenced, its guests are elsewhere, and a person wants it back.
fn wanted_back(previous: Maintenance) -> Vec<Entry> {
    let mut entries = settled(previous);
    entries.push(play::wanted());
    entries
}

/// Host 0 was fenced, and its guests are elsewhere.
fn settled(previous: Maintenance) -> Vec<Entry> {
    let mut entries = play::fenced(previous);
    entries.push(play::settled());
    entries
}

/// When the row of its service was written last, before it was switched on again.
const FORCED_DOWN: &str = "forced down";

/// What Nova says of the compute service of host 0.
#[derive(Clone, Copy)]
struct Nova {
    /// Whether it reports; a report shows in its row, as any other change of it does.
    reports: bool,
    up: bool,
}

/// A world in which everything but Nova's opinion is as it should be.
struct Repaired {
    play: Play,
    enabled: bool,
    /// Evacuations from host 0 that Nova has on record.
    records: Vec<MigrationFacts>,
    /// Whether anybody wrote its maintenance.
    given_back: bool,
    /// Whether its fence was released, and its taint with it.
    let_go: bool,
    /// Whether a device can tell that it is on; where there is none, a person switches it on.
    by_hand: bool,
    /// Hosts that say nothing, as bits.
    silent: u8,
}

impl Repaired {
    fn new() -> Self {
        Self::claimed_from(Maintenance::Off)
    }

    /// Its maintenance was this before we claimed it.
    fn claimed_from(previous: Maintenance) -> Self {
        Self::after_these(wanted_back(previous))
    }

    fn after_these(entries: Vec<Entry>) -> Self {
        let mut play = Play::new();
        let records = (1..).zip(entries).map(|(seq, entry)| Record {
            version: VERSION,
            seq,
            epoch: Epoch(1),
            at: at(0).wall,
            entry,
        });
        play.step(Input::Lead {
            epoch: Epoch(2),
            sent_at: Mono(play.now),
            journal: records.collect(),
        });
        Self {
            play,
            enabled: false,
            records: Vec::new(),
            given_back: false,
            let_go: false,
            by_hand: false,
            silent: 0,
        }
    }

    /// Some seconds go by; whether the incident is over then.
    fn after(&mut self, seconds: u32, nova: Nova) -> bool {
        for second in 0..seconds {
            self.play.second(self.silent, true);
            if self.silent == 0 {
                self.look(nova, second);
            }
            while let Some(action) = self.play.open.pop() {
                if matches!(
                    action.effect,
                    Effect::UpdateService { .. } | Effect::RestoreMaintenance { .. }
                ) {
                    self.enabled = true;
                }
                self.given_back |= matches!(action.effect, Effect::RestoreMaintenance { .. });
                self.let_go |= matches!(action.effect, Effect::ReleaseFence { .. });
                assert!(
                    !matches!(action.effect, Effect::PowerOff { .. }),
                    "it is switched off again"
                );
                let result = match &action.effect {
                    Effect::ReadPower { .. } if self.by_hand => Err(Trouble::Refused(Refusal::Other)),
                    effect => Ok(self.answer(effect, nova)),
                };
                self.play.step(Input::Outcome {
                    id: action.id,
                    result,
                });
            }
        }
        let ledger = self.play.engine.ledger();
        ledger.incidents[&incident()].state == IncidentState::Released
    }

    /// What the incident waits for.
    fn held(&self) -> Option<HeldReason> {
        let incidents = self.play.engine.incidents();
        let found = incidents.iter().find(|found| found.id == incident());
        found.and_then(|found| found.held)
    }

    fn look(&mut self, nova: Nova, second: u32) {
        self.play.step(Input::Saw(Observation::Inventory(Inventory {
            host: host(0),
            agent: AgentId("agent".to_owned()),
            starts: 2,
            boot: BootId("boot-1".to_owned()),
            version: 1,
            domains: Domains::default(),
            devices: Vec::new(),
        })));
        if second.is_multiple_of(5) {
            let facts = self.service(nova);
            self.play
                .step(Input::Saw(Observation::Services(vec![(host(0), facts)])));
        }
    }

    fn service(&self, nova: Nova) -> ServiceFacts {
        ServiceFacts {
            updated_at: if nova.reports {
                self.play.now.to_string()
            } else {
                FORCED_DOWN.to_owned()
            },
            up: nova.up,
            disabled: !self.enabled,
            forced_down: !self.enabled,
        }
    }

    fn answer(&self, effect: &Effect, nova: Nova) -> Answer {
        match effect {
            Effect::ReadPower { .. } | Effect::ReadHold { .. } => Answer::Power(Power::On),
            Effect::ReadMaintenance { .. } if self.enabled => Answer::Maintenance(Maintenance::Off),
            Effect::ReadMaintenance { .. } => Answer::Maintenance(Maintenance::Ha),
            Effect::ReadService { .. } => Answer::Service(self.service(nova)),
            Effect::ListServers { .. } => Answer::Servers {
                servers: Vec::new(),
                migrations: self.records.clone(),
                complete: true,
            },
            _ => Answer::Done,
        }
    }
}

#[test]
fn a_compute_service_that_does_not_report_is_not_enabled() {
    let mut world = Repaired::new();
    let silent = Nova {
        reports: false,
        up: false,
    };
    assert!(!world.after(120, silent));
    assert!(!world.enabled, "enabled before anybody heard of it");
}

#[test]
fn an_incident_is_over_when_nova_says_that_the_service_is_up() {
    let mut world = Repaired::new();
    let down = Nova {
        reports: true,
        up: false,
    };
    assert!(!world.after(120, down), "over although Nova says that it is down");
    assert!(world.enabled);
    assert!(world.after(30, Nova { up: true, ..down }));
}

#[test]
fn what_was_written_to_its_row_before_it_was_switched_on_is_no_report() {
    let mut world = Repaired::new();
    let silent = Nova {
        reports: false,
        up: false,
    };
    for token in ["a report", FORCED_DOWN] {
        let facts = ServiceFacts {
            updated_at: token.to_owned(),
            ..world.service(silent)
        };
        world
            .play
            .step(Input::Saw(Observation::Services(vec![(host(0), facts)])));
    }
    assert!(!world.after(120, silent));
    assert!(!world.enabled, "enabled because of our own force-down");
}

#[test]
fn a_record_that_nova_never_closes_is_told_and_waited_for() {
    let mut world = Repaired::new();
    let well = Nova {
        reports: true,
        up: true,
    };
    // Its destination died before it heard of the guest, which was then brought up somewhere else.
    world.records.push(MigrationFacts {
        id: MigrationId(7),
        server: "00000000-0000-0000-0000-000000000001".parse().unwrap(),
        kind: MigrationKind::Evacuation,
        status: MigrationStatus::Accepted,
        source: host(0),
        destination: Some(host(1)),
    });
    assert!(!world.after(30, well));
    assert_eq!(world.held(), None, "told before Nova had time for it");
    assert!(!world.after(90, well));
    assert_eq!(world.held(), Some(HeldReason::NovaUnavailable));
    assert!(!world.enabled, "given back with a record open");
    world.records.clear();
    assert!(world.after(30, well));
    assert_eq!(world.held(), None);
}

/// Somebody set `ha` before we did. It is theirs: they take it away when they are done, and only then does anybody enable
/// the service.
#[test]
fn what_somebody_else_set_to_ha_is_released_and_left_at_ha() {
    let mut world = Repaired::claimed_from(Maintenance::Ha);
    let silent = Nova {
        reports: false,
        up: false,
    };
    assert!(!world.after(120, silent), "over before it is back");
    let well = Nova {
        reports: true,
        up: true,
    };
    assert!(world.after(60, well));
    assert!(!world.given_back, "their maintenance was taken away");
    assert!(!world.enabled, "enabled although somebody keeps it at ha");
    assert_eq!(world.held(), None);
}

/// No device can tell whether it is on: nobody is told for as long as a boot takes, then somebody is, and once its agent
/// speaks of a new boot it goes on.
#[test]
fn a_host_that_a_person_switches_on_is_taken_back_when_it_speaks() {
    let mut world = Repaired::new();
    (world.by_hand, world.silent) = (true, 1);
    let well = Nova {
        reports: true,
        up: true,
    };
    assert!(!world.after(200, well));
    assert_eq!(world.held(), None);
    assert!(!world.after(200, well));
    assert_eq!(
        world.held(),
        Some(HeldReason::FenceFailed),
        "somebody has to switch it on"
    );
    let found = &world.play.engine.ledger().incidents[&incident()];
    let may = |decision| allowed(found, world.held(), 0, decision).is_ok();
    assert!(!may(Decision::AckFenced), "nobody is asked whether it is off");
    assert!(may(Decision::Abort));
    world.silent = 0;
    assert!(world.after(60, well));
    assert!(world.given_back);
    assert_eq!(world.held(), None);
}

/// Our own taint keeps its compute service away until it is released, so that is not waited for before, and is after.
#[test]
fn a_host_that_was_repaired_is_taken_back_by_itself_where_that_is_wanted() {
    let mut world = Repaired::after_these(settled(Maintenance::Off));
    let silent = Nova {
        reports: false,
        up: false,
    };
    let config = Config {
        auto_release: Some(Duration::from_secs(60)),
        ..Config::default()
    };
    world.play.step(Input::Configure(Box::new(config)));
    world.silent = 1;
    world.after(120, silent);
    assert!(!world.let_go, "it is still dead");
    world.silent = 0;
    world.after(50, silent);
    assert!(!world.let_go, "it has not been well for long");
    assert!(!world.after(120, silent));
    assert!(world.let_go, "its compute service cannot start before that");
    assert!(!world.given_back, "and has not");
    let well = Nova {
        reports: true,
        up: true,
    };
    assert!(world.after(60, well));
    assert!(world.given_back);
}
