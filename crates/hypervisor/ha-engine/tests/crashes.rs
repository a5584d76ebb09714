// SPDX-License-Identifier: Apache-2.0
//! Guests that crash on a host that lives: who is restarted, how often, and who is left alone. A storm of crashes, a
//! pause or a host in doubt only delay it; whoever leads next knows of it as well.

#![allow(clippy::unwrap_used)]

mod play;

use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{
    AgentId, Answer, BootId, Config, DomainState, Effect, Epoch, GuestEvent, GuestEventKind, Input,
    Inventory, Mono, Notice, Observation, Pause, PauseScope, ServerFacts, VmPolicy, VmState,
};
use play::{Play, host, server};

/// One host with guests, and a Nova that restarts what it is told to.
struct World {
    play: Play,
    servers: Vec<ServerFacts>,
    /// Which of them run, as their host lists them.
    running: Vec<bool>,
    /// Whether a restart brings a guest back.
    helps: bool,
    restarts: Vec<Effect>,
    seq: u64,
}

impl World {
    fn new(guests: u8) -> Self {
        let servers = (0..guests).map(|n| ServerFacts {
            id: format!("00000000-0000-0000-0000-{n:012}").parse().unwrap(),
            host: Some(host(0)),
            policy: Some(VmPolicy::Restart),
            ..server(0)
        });
        let mut world = Self {
            play: Play::new(),
            servers: servers.collect(),
            running: vec![true; usize::from(guests)],
            helps: true,
            restarts: Vec::new(),
            seq: 0,
        };
        world.seconds(70);
        world
    }

    fn list(&mut self) {
        let state = |running: bool| {
            if running {
                DomainState::Running
            } else {
                DomainState::Off
            }
        };
        let all = self.servers.iter().zip(&self.running);
        let inventory = Inventory {
            host: host(0),
            agent: AgentId("agent".into()),
            starts: 1,
            boot: BootId("boot-1".into()),
            version: self.play.now,
            domains: all
                .map(|(server, runs)| (server.id.clone(), state(*runs)))
                .collect(),
            devices: Vec::new(),
        };
        self.play.step(Input::Saw(Observation::Inventory(inventory)));
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.play.second(0, true);
            if self.play.now.is_multiple_of(5000) {
                self.list();
            }
            while let Some(action) = self.play.open.pop() {
                let answer = self.answer(&action.effect);
                self.play.step(Input::Outcome {
                    id: action.id,
                    result: Ok(answer),
                });
            }
        }
    }

    fn answer(&mut self, effect: &Effect) -> Answer {
        match effect {
            Effect::ReadServer { server } => Answer::Server {
                server: Some(self.servers[self.place(server)].clone()),
                migrations: Vec::new(),
            },
            Effect::Start { server } | Effect::RebootHard { server } => {
                self.restarts.push(effect.clone());
                let n = self.place(server);
                self.running[n] = self.helps;
                self.servers[n].state = if self.helps {
                    VmState::Active
                } else {
                    VmState::Error
                };
                Answer::Done
            }
            _ => Answer::Done,
        }
    }

    fn place(&self, id: &ServerId) -> usize {
        self.servers.iter().position(|server| server.id == *id).unwrap()
    }

    fn crash(&mut self, n: usize) {
        self.hear_of_crash(n, Duration::ZERO);
    }

    /// A guest crashed that long ago, and this is the first word of it.
    fn hear_of_crash(&mut self, n: usize, age: Duration) {
        self.running[n] = false;
        self.seq += 1;
        self.play.step(Input::Saw(Observation::Guest(GuestEvent {
            host: host(0),
            agent: AgentId("agent".into()),
            seq: self.seq,
            age,
            server: Some(self.servers[n].id.clone()),
            kind: GuestEventKind::Crashed,
            device: None,
        })));
    }

    fn told(&self, wanted: impl Fn(&Notice) -> bool) -> usize {
        self.play.notices.iter().filter(|notice| wanted(notice)).count()
    }
}

fn gave_up(notice: &Notice) -> bool {
    matches!(notice, Notice::GuestGaveUp { .. })
}

fn storm(notice: &Notice) -> bool {
    matches!(notice, Notice::GuestStorm { .. })
}

/// A guest that Nova takes for well and that no restart brings back was tried as often as it may be.
fn restarted_in_vain() -> World {
    let mut world = World::new(1);
    world.helps = false;
    world.crash(0);
    for _ in 0..90 {
        world.seconds(10);
        world.servers[0].state = VmState::Active;
    }
    assert_eq!(world.restarts.len(), 3);
    world
}

#[test]
fn a_storm_of_crashes_holds_back_those_that_wait_and_those_that_come_and_then_all_go_on() {
    let mut world = World::new(24);
    world.crash(0);
    world.seconds(10);
    for n in 1..24 {
        world.crash(n);
    }
    world.seconds(45);
    assert_eq!(world.restarts, [], "nobody is restarted while it lasts");
    assert_eq!(world.told(storm), 1);
    world.seconds(60);
    assert_eq!(world.restarts.len(), 24, "whoever crashed before and during it");
}

#[test]
fn who_is_restarted_and_who_is_left_alone() {
    let left = |change: fn(&mut ServerFacts)| {
        let mut world = World::new(1);
        change(&mut world.servers[0]);
        world.crash(0);
        world.seconds(60);
        world.restarts
    };
    let id = server(0).id;
    assert_eq!(left(|_| {}), [Effect::RebootHard { server: id.clone() }]);
    let stopped = left(|server| server.state = VmState::Stopped);
    assert_eq!(stopped, [Effect::Start { server: id }]);
    assert_eq!(left(|server| server.policy = None), [], "nobody asked for it");
    assert_eq!(left(|server| server.policy = Some(VmPolicy::Ignore)), []);
    let by_default = |policy| {
        let mut world = World::new(1);
        let config = Config {
            restart_by_default: true,
            ..Config::default()
        };
        world.play.step(Input::Configure(Box::new(config)));
        world.servers[0].policy = policy;
        world.crash(0);
        world.seconds(60);
        world.restarts.len()
    };
    assert_eq!(by_default(None), 1, "where nobody need ask for it");
    assert_eq!(
        by_default(Some(VmPolicy::Ignore)),
        0,
        "unless its owner wants none"
    );
    assert_eq!(
        left(|server| server.excluded = true),
        [],
        "whatever its owner wants"
    );
    assert_eq!(
        left(|server| server.user_action_ms = Some(30_000)),
        [],
        "its owner acts"
    );
    assert_eq!(left(|server| server.task = "rebooting".into()), []);
    for state in [
        VmState::Paused,
        VmState::Rescued,
        VmState::Resized,
        VmState::Error,
    ] {
        let mut world = World::new(1);
        world.servers[0].state = state;
        world.crash(0);
        world.seconds(60);
        assert_eq!(world.restarts, [], "{state:?}");
    }
}

#[test]
fn a_crash_that_is_heard_of_late_does_not_undo_what_its_owner_did_since() {
    let heard_after = |seconds: u64, acted: Option<u64>| {
        let mut world = World::new(1);
        world.servers[0].state = VmState::Stopped;
        world.servers[0].user_action_ms = acted;
        world.hear_of_crash(0, Duration::from_secs(seconds));
        world.seconds(60);
        world.restarts.len()
    };
    assert_eq!(heard_after(300, None), 1, "nobody did anything");
    assert_eq!(
        heard_after(300, Some(200_000)),
        0,
        "its owner stopped it after it crashed"
    );
    assert_eq!(heard_after(0, Some(200_000)), 1, "long before it crashed");
    assert_eq!(heard_after(660, None), 0, "who knows what happened since");
    assert_eq!(heard_after(u64::MAX, None), 0);
}

#[test]
fn a_restart_that_does_not_help_is_told_of() {
    let mut world = World::new(1);
    world.helps = false;
    world.crash(0);
    world.seconds(400);
    assert_eq!(world.restarts.len(), 1, "what is in error takes a person");
    assert_eq!(world.told(gave_up), 1);
    // One that Nova takes for well is tried three times, after one and five minutes.
    let world = restarted_in_vain();
    assert_eq!(world.told(gave_up), 1);
}

#[test]
fn a_pause_and_a_host_in_doubt_delay_it() {
    let mut world = World::new(1);
    let pause = Pause {
        scope: PauseScope::Server(world.servers[0].id.clone()),
        reason: "its owner looks for the cause".into(),
    };
    world.play.step(Input::Pauses(vec![pause]));
    world.crash(0);
    world.seconds(100);
    assert_eq!(world.restarts, []);
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(10);
    assert_eq!(world.restarts.len(), 1);
}

#[test]
fn who_is_stopped_by_its_owner_while_it_waits_stays_stopped() {
    let mut world = World::new(1);
    let pause = Pause {
        scope: PauseScope::Global,
        reason: "the network is mended".into(),
    };
    world.play.step(Input::Pauses(vec![pause]));
    world.crash(0);
    world.seconds(95);
    // Whatever Nova was last asked, it was asked before this.
    world.servers[0].state = VmState::Stopped;
    world.servers[0].user_action_ms = Some(0);
    world.play.step(Input::Pauses(Vec::new()));
    world.seconds(20);
    assert_eq!(world.restarts, []);
}

/// Every replica hears of a crash, and whoever leads when it is due acts. What another term began counts as a restart.
#[test]
fn whoever_leads_next_knows_of_the_crash_and_of_earlier_restarts() {
    let follower = |world: &mut World| {
        world.play.step(Input::LeaseLost);
    };
    let leads = |world: &mut World, epoch: u64| {
        world.play.step(Input::Lead {
            epoch: Epoch(epoch),
            sent_at: Mono(world.play.now),
            journal: world.play.journal.clone(),
        });
    };
    let mut world = World::new(1);
    follower(&mut world);
    world.crash(0);
    world.seconds(15);
    leads(&mut world, 2);
    world.seconds(10);
    assert_eq!(world.restarts.len(), 1);
    // It crashes once more, and its leader dies with the intent written and nothing done.
    world.helps = false;
    world.crash(0);
    world.seconds(100);
    let before = world.restarts.len();
    assert_eq!(before, 2);
    world.servers[0].state = VmState::Active;
    leads(&mut world, 3);
    world.seconds(250);
    assert_eq!(
        world.restarts.len(),
        2,
        "the third comes five minutes after what may have been the second"
    );
    world.seconds(100);
    assert_eq!(world.restarts.len(), 3);
}

#[test]
fn restarts_of_a_day_ago_do_not_count() {
    let world = restarted_in_vain();
    let successor = |days: i64| {
        let mut journal = world.play.journal.clone();
        for record in &mut journal {
            record.at -= jiff::SignedDuration::from_hours(24 * days);
        }
        let mut world = World::new(1);
        world.play.journal.clear();
        world.play.step(Input::Lead {
            epoch: Epoch(2),
            sent_at: Mono(world.play.now),
            journal,
        });
        world.seconds(5);
        world.crash(0);
        world.seconds(60);
        (world.restarts.len(), world.told(gave_up))
    };
    assert_eq!(successor(0), (0, 1));
    assert_eq!(successor(1), (1, 0));
}
