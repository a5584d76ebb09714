// SPDX-License-Identifier: Apache-2.0
//! A guest that was moved away from a dead host and runs there again: stopped at once while the host is ours, and on a
//! host that takes guests again only if Nova has it elsewhere.

#![allow(clippy::unwrap_used)]

mod play;

use cobaltcore_api::Maintenance;
use cobaltcore_ha_engine::{
    AgentId, Answer, BootId, DomainState, Effect, Entry, Epoch, HostFacts, IncidentState, Input, Inventory,
    MigrationFacts, MigrationId, MigrationKind, MigrationStatus, Mono, Notice, Observation, Power, Record,
    ServerFacts, ServiceFacts, Trouble, VERSION, VmProgress, VmRecord, VmState, Wanted,
};
use play::{Play, at, facts, host, incident, server};

/// The guest of host 0, which was brought up on host 1.
fn moved() -> VmRecord {
    VmRecord {
        server: server(0).id,
        name: "guest".to_owned(),
        priority: 500,
        group: String::new(),
        anti_affinity: None,
        memory_mib: 1,
        original: VmState::Active,
        wanted: Wanted::Running,
        progress: VmProgress::Recovered { destination: host(1) },
        attempt: 1,
        known: Vec::new(),
        locked: false,
        losses: Vec::new(),
        said: None,
    }
}

/// Host 0 died, was fenced and claimed, and its guest was moved to host 1. A person wants it back, and its fence is gone.
fn repaired() -> Vec<Entry> {
    let planned = Entry::Planned {
        incident: incident(),
        vms: vec![moved()],
    };
    let let_go = [
        Entry::FenceReleaseIntended { incident: incident() },
        Entry::FenceReleased { incident: incident() },
    ];
    let mut entries = play::fenced(Maintenance::Off);
    entries.extend([planned, play::settled(), play::wanted()]);
    entries.extend(let_go);
    entries
}

/// The same, and its maintenance was given back: Nova places guests there.
fn given_back() -> Vec<Entry> {
    let mut entries = repaired();
    entries.push(Entry::Restored { incident: incident() });
    entries
}

/// Host 0 is well and lists the guest, and Nova says of it what a test wants.
struct World {
    play: Play,
    maintenance: Maintenance,
    listed: DomainState,
    /// Where Nova has the guest; nothing if Nova does not answer.
    home: Option<u8>,
    migrations: Vec<MigrationFacts>,
    /// Whether Nova says that the compute service of host 0 is up.
    up: bool,
    done: Vec<Effect>,
}

impl World {
    fn new(entries: Vec<Entry>, maintenance: Maintenance, home: Option<u8>) -> Self {
        let mut world = Self {
            play: Play::new(),
            maintenance,
            listed: DomainState::Running,
            home,
            migrations: Vec::new(),
            up: false,
            done: Vec::new(),
        };
        world.lead(2, entries);
        world
    }

    fn lead(&mut self, term: u64, entries: Vec<Entry>) {
        let records = (1..).zip(entries).map(|(seq, entry)| Record {
            version: VERSION,
            seq,
            epoch: Epoch(1),
            at: at(0).wall,
            entry,
        });
        self.play.open.clear();
        self.play.step(Input::Lead {
            epoch: Epoch(term),
            sent_at: Mono(self.play.now),
            journal: records.collect(),
        });
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.second();
        }
    }

    fn second(&mut self) {
        self.play.second(0, true);
        let told = HostFacts {
            maintenance: self.maintenance.clone(),
            ..facts(0)
        };
        self.play.step(Input::Saw(Observation::Host(told)));
        let services = vec![(host(0), self.service())];
        self.play.step(Input::Saw(Observation::Services(services)));
        self.play.step(Input::Saw(Observation::Inventory(Inventory {
            host: host(0),
            agent: AgentId("agent".to_owned()),
            starts: 2,
            boot: BootId("boot-1".to_owned()),
            version: self.play.now,
            domains: [(server(0).id, self.listed)].into_iter().collect(),
            devices: Vec::new(),
        })));
        while let Some(action) = self.play.open.pop() {
            let result = self.answer(&action.effect);
            self.done.push(action.effect);
            self.play.step(Input::Outcome {
                id: action.id,
                result,
            });
        }
    }

    fn service(&self) -> ServiceFacts {
        ServiceFacts {
            updated_at: self.play.now.to_string(),
            up: self.up,
            disabled: false,
            forced_down: false,
        }
    }

    fn answer(&self, effect: &Effect) -> Result<Answer, Trouble> {
        Ok(match effect {
            Effect::ReadPower { .. } | Effect::ReadHold { .. } => Answer::Power(Power::On),
            Effect::ReadMaintenance { .. } => Answer::Maintenance(self.maintenance.clone()),
            Effect::ReadService { .. } => Answer::Service(self.service()),
            Effect::ListServers { .. } => Answer::Servers {
                servers: Vec::new(),
                migrations: Vec::new(),
                complete: true,
            },
            Effect::ReadServer { .. } => Answer::Server {
                server: Some(ServerFacts {
                    host: Some(host(self.home.ok_or(Trouble::Unknown)?)),
                    ..server(0)
                }),
                migrations: self.migrations.clone(),
            },
            _ => Answer::Done,
        })
    }

    fn paused(&self) -> bool {
        let pauses = |effect: &Effect| matches!(effect, Effect::PauseDomain { .. });
        self.done.iter().any(pauses)
    }

    fn asked(&self) -> bool {
        let asks = |effect: &Effect| matches!(effect, Effect::ReadServer { .. });
        self.done.iter().any(asks)
    }

    fn over(&self) -> bool {
        self.play.engine.ledger().incidents[&incident()].state == IncidentState::Released
    }
}

#[test]
fn what_runs_on_a_host_that_is_ours_is_paused_without_asking_anybody() {
    let mut world = World::new(repaired(), Maintenance::Ha, None);
    world.seconds(2);
    assert!(world.paused(), "nothing else can have come there");
    assert!(!world.asked(), "nobody is waited for");
    let zombie = Notice::Zombie {
        host: host(0),
        server: server(0).id,
    };
    assert!(world.play.notices.contains(&zombie));
    world.listed = DomainState::Paused;
    world.seconds(120);
    assert!(!world.over(), "given back with a zombie on it");
}

#[test]
fn a_guest_that_came_back_to_a_host_in_service_runs_on_and_the_incident_ends() {
    let mut world = World::new(given_back(), Maintenance::Off, Some(0));
    world.seconds(120);
    assert!(!world.paused(), "the only copy was stopped");
    assert!(!world.over(), "its compute service is not up");
    world.up = true;
    world.seconds(30);
    assert!(world.over() && !world.paused());
    assert_eq!(world.play.engine.zombies(), 0);
}

/// Its owner paused it, or its host has it back at `ha` that was there before us.
#[test]
fn a_guest_that_came_back_is_no_zombie_however_it_is_and_whosever_maintenance_it_is() {
    for (listed, maintenance) in [
        (DomainState::Paused, Maintenance::Off),
        (DomainState::Running, Maintenance::Ha),
    ] {
        let mut entries = given_back();
        entries[2] = Entry::ClaimIntended {
            incident: incident(),
            previous: maintenance.clone(),
        };
        let mut world = World::new(entries, maintenance, Some(0));
        (world.listed, world.up) = (listed, true);
        world.seconds(60);
        assert!(world.over() && !world.paused(), "{listed:?}");
    }
}

/// Nobody gave it back but a person, by hand.
#[test]
fn on_a_host_whose_maintenance_somebody_cleared_nova_is_asked_as_well() {
    let mut here = World::new(repaired(), Maintenance::Off, Some(0));
    here.seconds(60);
    assert!(!here.paused());
    let mut elsewhere = World::new(repaired(), Maintenance::Manual, Some(1));
    elsewhere.seconds(5);
    assert!(elsewhere.paused());
}

#[test]
fn a_copy_of_a_guest_that_nova_has_elsewhere_is_paused_and_the_incident_goes_on() {
    let mut world = World::new(given_back(), Maintenance::Off, Some(1));
    world.up = true;
    world.seconds(5);
    assert!(world.paused() && world.asked());
    world.listed = DomainState::Paused;
    world.seconds(120);
    assert!(!world.over(), "a guest is there that belongs elsewhere");
    // Nova has cleaned up, and brings it back later.
    world.listed = DomainState::Off;
    world.seconds(30);
    assert!(world.over());
}

#[test]
fn where_nova_says_nothing_and_while_somebody_moves_it_nothing_is_done_and_nothing_ends() {
    let mut silent = World::new(given_back(), Maintenance::Off, None);
    silent.up = true;
    let mut moving = World::new(given_back(), Maintenance::Off, Some(1));
    moving.up = true;
    moving.migrations.push(MigrationFacts {
        id: MigrationId(7),
        server: server(0).id,
        kind: MigrationKind::Live,
        status: MigrationStatus::Running,
        source: host(1),
        destination: Some(host(0)),
    });
    for world in [&mut silent, &mut moving] {
        world.seconds(120);
        assert!(world.asked());
        assert!(!world.paused(), "nobody knows which copy is the good one");
        assert!(!world.over(), "nor whether there are two");
        // It arrived, and Nova says so.
        world.home = Some(0);
        world.migrations.clear();
        world.seconds(60);
        assert!(world.over() && !world.paused());
    }
}

/// What one term was told, the next asks anew.
#[test]
fn a_new_term_asks_before_it_ends_the_incident() {
    let mut world = World::new(given_back(), Maintenance::Off, Some(0));
    world.seconds(30);
    (world.home, world.up) = (None, true);
    world.lead(3, given_back());
    world.seconds(60);
    assert!(!world.over() && !world.paused());
    world.home = Some(0);
    world.seconds(60);
    assert!(world.over() && !world.paused());
}
