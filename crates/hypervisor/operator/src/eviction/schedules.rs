// SPDX-License-Identifier: Apache-2.0
//! Random schedules: a small Nova that is late, refuses, fails and forgets, and an operator that
//! dies at any point between any two steps. Whatever happens, no server is moved twice, none is
//! left out, every state has a next look or a visible reason, and the end is honest. A failing
//! seed is printed and replays by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::names::ServerId;
use cobaltcore_kit::controller::Next;
use jiff::Timestamp;

use super::tests::{HOST, host, id, record, server, snapshot, written};
use super::*;
use crate::look::{Dice, Says, after, noon, reason, says};

/// A small Nova.
struct World {
    now: Timestamp,
    servers: BTreeMap<ServerId, Server>,
    records: Vec<MigrationRecord>,
    arrived: BTreeMap<ServerId, u32>,
    service: Service,
    seed: u64,
}

impl World {
    fn new(dice: &mut Dice, seed: u64) -> Self {
        let states = [
            "ACTIVE",
            "ACTIVE",
            "ACTIVE",
            "PAUSED",
            "SHUTOFF",
            "ERROR",
            "SUSPENDED",
            "BUILD",
        ];
        let count = 1 + dice.roll(8) as u32;
        let servers = (1..=count).map(|number| {
            let state = states[dice.roll(states.len() as u64) as usize];
            (id(number), server(number, state))
        });
        Self {
            now: noon(),
            servers: servers.collect(),
            records: Vec::new(),
            arrived: BTreeMap::new(),
            service: snapshot(Vec::new()).service.unwrap(),
            seed,
        }
    }

    fn ask(
        &mut self,
        dice: &mut Dice,
        server: &ServerId,
        kind: &cobaltcore_api::MoveKind,
    ) -> Option<RefusalKind> {
        let seed = self.seed;
        let one = self.servers.get_mut(server)?;
        assert_eq!(
            one.host.as_deref(),
            Some(HOST),
            "seed {seed}: {server} was moved twice"
        );
        if one.is_moving() {
            return Some(RefusalKind::Conflict);
        }
        if dice.chance(10) {
            let kinds = [
                RefusalKind::Conflict,
                RefusalKind::Trouble,
                RefusalKind::Permanent,
            ];
            return Some(kinds[dice.roll(3) as usize]);
        }
        if dice.chance(5) {
            // Accepted, and nothing comes of it.
            return None;
        }
        let live = *kind == cobaltcore_api::MoveKind::Live;
        one.task = Some(if live { "migrating" } else { "resize_migrating" }.to_owned());
        one.state = if live {
            ServerState::Migrating
        } else {
            ServerState::Resize
        };
        let mut record = record(
            self.records.len() as u64 + 1,
            1,
            HOST,
            Some("node2"),
            MigrationState::Queued,
        );
        record.server = server.clone();
        record.live = live;
        (record.created, record.updated) = (self.now, self.now);
        self.records.push(record);
        None
    }

    /// Time passes: things move on, or not.
    fn pass(&mut self, dice: &mut Dice) {
        self.now = after(self.now, Duration::from_secs(1 + dice.roll(40)));
        for record in self.records.iter_mut().filter(|record| !record.state.is_final()) {
            let Some(server) = self.servers.get_mut(&record.server) else {
                record.state = MigrationState::Failed;
                continue;
            };
            let rests = if record.live {
                ServerState::Active
            } else {
                ServerState::Shutoff
            };
            record.updated = self.now;
            match (record.state, dice.roll(10)) {
                (MigrationState::Queued, 0..5) => record.state = MigrationState::Abortable,
                (MigrationState::Abortable, 0..4) => {
                    record.state = MigrationState::Done;
                    server.host = Some("node2".to_owned());
                    server.task = None;
                    server.state = if record.live {
                        rests
                    } else {
                        ServerState::VerifyResize
                    };
                    *self.arrived.entry(server.id.clone()).or_default() += 1;
                }
                (MigrationState::Abortable, 4) => {
                    record.state = MigrationState::Failed;
                    server.task = None;
                    server.state = rests;
                }
                _ => {}
            }
        }
        for server in self.servers.values_mut() {
            if matches!(server.state, ServerState::Passing(_)) && dice.chance(30) {
                server.state = ServerState::Active;
            }
            if server.state == ServerState::Suspended && dice.chance(2) {
                server.state = ServerState::Active;
            }
        }
        if dice.chance(2) {
            self.service.up = !self.service.up;
        }
        if !self.service.up && dice.chance(60) {
            self.service.up = true;
        }
    }
}

struct Operator {
    order: Order,
    ledger: Ledger,
}

impl Operator {
    fn look(&self, world: &World, dice: &mut Dice) -> Snapshot {
        let on_host = |server: &&Server| server.host.as_deref() == Some(HOST);
        let servers: Vec<Server> = world.servers.values().filter(on_host).cloned().collect();
        let mut departed = BTreeMap::new();
        for text in &self.order.status.outstanding_instances {
            let one = ServerId::new(text.clone()).unwrap();
            if servers.iter().any(|server| server.id == one) {
                continue;
            }
            let what = match world.servers.get(&one) {
                _ if dice.chance(5) => Departed::Unknown,
                Some(server) => Departed::Elsewhere(Box::new(server.clone())),
                None => Departed::Gone,
            };
            departed.insert(one, what);
        }
        Snapshot {
            now: world.now,
            order: self.order.clone(),
            host: Some(host()),
            service: Some(world.service.clone()),
            servers,
            departed,
            migrations: world.records.clone(),
            ledger: self.ledger.clone(),
            fleet_free: dice.roll(4) as u32,
            ..snapshot(Vec::new())
        }
    }

    /// One pass that may die between any two steps. Returns whether it lived.
    fn pass(&mut self, world: &mut World, dice: &mut Dice, mortal: bool) -> (bool, Next) {
        let seen = self.look(world, dice);
        let decision = decide(&seen);
        let dies = |dice: &mut Dice| mortal && dice.chance(8);
        if dies(dice) {
            self.ledger = Ledger::default();
            return (false, decision.next);
        }
        self.order.status = written(&seen, &decision.report);
        self.ledger = decision.ledger.clone();
        self.check(world, &decision);
        for step in &decision.steps {
            if dies(dice) {
                self.ledger = Ledger::default();
                return (false, decision.next);
            }
            match step {
                Step::Move { server, kind, .. } => {
                    if let Some(kind) = world.ask(dice, server, kind) {
                        self.ledger.track(server).refused = Some(Refusal {
                            at: world.now,
                            text: "refused".to_owned(),
                            kind,
                        });
                    }
                }
                Step::Confirm(server) => {
                    let one = world.servers.get_mut(server).unwrap();
                    if one.state == ServerState::VerifyResize {
                        one.state = ServerState::Shutoff;
                    }
                }
                Step::Abort { server, migration } => {
                    let record = world
                        .records
                        .iter_mut()
                        .find(|record| record.id == *migration)
                        .unwrap();
                    if record.state == MigrationState::Abortable {
                        record.state = MigrationState::Failed;
                        let one = world.servers.get_mut(server).unwrap();
                        (one.state, one.task) = (ServerState::Active, None);
                    }
                }
                _ => {}
            }
        }
        (true, decision.next)
    }

    /// Every state has a next look or has ended, and says why it stands where it stands.
    fn check(&self, world: &World, decision: &Decision) {
        let seed = world.seed;
        let status = &self.order.status;
        let running = says(&status.conditions, EvictionCondition::Evicting) == Says::Yes;
        if !running {
            return;
        }
        assert!(
            matches!(decision.next, Next::After(_)),
            "seed {seed}: nobody looks again"
        );
        let preflight = says(&status.conditions, EvictionCondition::PreflightChecksSucceeded);
        let moving = says(&status.conditions, EvictionCondition::MigratingInstance);
        let visible = preflight == Says::No
            || moving != Says::Nothing
            || status.outstanding_instances.is_empty()
            || !status.in_flight.is_empty();
        assert!(visible || decision.moving == 0, "seed {seed}: no visible reason");
        for server in world.servers.values() {
            let here = server.host.as_deref() == Some(HOST);
            let listed = status.outstanding_instances.contains(&server.id.to_string());
            assert!(!here || listed, "seed {seed}: {} is left out", server.id);
        }
        assert!(status.in_flight.len() <= 64);
    }
}

fn run(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut world = World::new(&mut dice, seed);
    let mut operator = Operator {
        order: snapshot(Vec::new()).order,
        ledger: Ledger::default(),
    };
    let mut late = 0;
    for round in 0..20_000 {
        // In the end processes live long enough to finish.
        let mortal = round < 400;
        operator.pass(&mut world, &mut dice, mortal);
        if says(&operator.order.status.conditions, EvictionCondition::Evicting) == Says::No {
            return end(&world, &operator, seed);
        }
        if late < 2 && dice.chance(1) {
            late += 1;
            let number = 100 + late;
            world.servers.insert(id(number), server(number, "ACTIVE"));
        }
        if dice.chance(1) && world.servers.len() > 1 {
            let gone = world.servers.keys().next().cloned().unwrap();
            world.servers.remove(&gone);
        }
        world.pass(&mut dice);
    }
    panic!("seed {seed}: no end, {:#?}", operator.order.status);
}

fn end(world: &World, operator: &Operator, seed: u64) {
    let status = &operator.order.status;
    let left: Vec<&Server> = world
        .servers
        .values()
        .filter(|server| server.host.as_deref() == Some(HOST))
        .collect();
    if reason(&status.conditions, EvictionCondition::Evicting) == "Succeeded" {
        assert!(left.is_empty(), "seed {seed}: success with {left:?}");
    } else {
        for server in &left {
            let named = status
                .non_migratable_instances
                .iter()
                .any(|given_up| given_up.id == server.id.as_str() && !given_up.reason.is_empty());
            assert!(named, "seed {seed}: {} is not accounted for", server.id);
        }
        assert!(
            !status.non_migratable_instances.is_empty(),
            "seed {seed}: failed for nothing"
        );
    }
    for (server, times) in &world.arrived {
        assert_eq!(*times, 1, "seed {seed}: {server} was moved {times} times");
    }
}

#[test]
fn whatever_happens_the_end_is_honest() {
    for seed in 1..=600 {
        run(seed);
    }
}
