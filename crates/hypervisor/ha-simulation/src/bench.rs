// SPDX-License-Identifier: Apache-2.0
//! What a decision costs: one round over all hosts, a storm of heartbeats, and the plan of a dead
//! host, for growing fleets, beside a loop that only touches as many map entries.

use std::collections::BTreeMap;
use std::time::Instant;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    AgentId, BootId, Config, Domain, DomainState, Engine, Epoch, Heartbeat, HostFacts, Identity, Input,
    Inventory, Mono, Now, Observation, PeerHost, ReplicaId, ServiceFacts,
};

use crate::hosts::Server;

/// One fleet size.
#[derive(Clone, Debug)]
pub struct Line {
    /// Hosts.
    pub hosts: usize,
    /// Guests.
    pub guests: usize,
    /// One round over all hosts, in microseconds.
    pub round_us: f64,
    /// One heartbeat, in nanoseconds.
    pub heartbeat_ns: f64,
    /// One inventory of fifty guests, in microseconds.
    pub inventory_us: f64,
    /// Touching one map entry per host in the same run, in microseconds.
    pub baseline_us: f64,
}

/// Measures fleets of 10, 100 and 1,000 hosts with fifty guests each.
pub fn run() -> Vec<Line> {
    [10, 100, 1000].into_iter().map(measure).collect()
}

/// The report as text.
pub fn to_text(lines: &[Line]) -> String {
    let mut text = format!(
        "{:>6} {:>7} {:>12} {:>14} {:>14} {:>12} {:>8}\n",
        "HOSTS", "GUESTS", "ROUND", "HEARTBEAT", "INVENTORY", "BASELINE", "RATIO"
    );
    for line in lines {
        text += &format!(
            "{:>6} {:>7} {:>9.1} us {:>11.0} ns {:>11.1} us {:>9.2} us {:>7.0}x\n",
            line.hosts,
            line.guests,
            line.round_us,
            line.heartbeat_ns,
            line.inventory_us,
            line.baseline_us,
            line.round_us / line.baseline_us.max(0.001)
        );
    }
    text += "goal: one round of 1,000 hosts within 5,000 us (gate 20,000 us)\n";
    text
}

fn measure(hosts: usize) -> Line {
    const PER_HOST: usize = 50;
    let mut fleet = Fleet::new(hosts, PER_HOST);
    let rounds = (20_000 / hosts).clamp(20, 400);
    let mut heartbeat = 0.0;
    let mut round = 0.0;
    for _ in 0..rounds {
        fleet.now += 1000;
        let begin = Instant::now();
        fleet.heartbeats();
        heartbeat += begin.elapsed().as_secs_f64();
        fleet.polls();
        let begin = Instant::now();
        fleet.step(Input::Tick);
        round += begin.elapsed().as_secs_f64();
    }
    let begin = Instant::now();
    fleet.inventories();
    let inventory = begin.elapsed().as_secs_f64();
    Line {
        hosts,
        guests: hosts * PER_HOST,
        round_us: round * 1e6 / rounds as f64,
        heartbeat_ns: heartbeat * 1e9 / (rounds * hosts) as f64,
        inventory_us: inventory * 1e6 / hosts as f64,
        baseline_us: baseline(hosts),
    }
}

fn baseline(hosts: usize) -> f64 {
    let mut map: BTreeMap<HostName, u64> = (0..hosts).map(|n| (name(n), 0)).collect();
    let keys: Vec<HostName> = map.keys().cloned().collect();
    let begin = Instant::now();
    let times = 200;
    for _ in 0..times {
        for key in &keys {
            if let Some(value) = map.get_mut(key) {
                *value = std::hint::black_box(*value + 1);
            }
        }
    }
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(times)
}

fn name(n: usize) -> HostName {
    HostName::new(format!("node{n:04}")).unwrap_or_else(|_| unreachable!("a valid name"))
}

struct Fleet {
    engine: Engine,
    hosts: Vec<HostName>,
    per_host: usize,
    now: u64,
}

impl Fleet {
    fn new(count: usize, per_host: usize) -> Self {
        let mut fleet = Self {
            engine: Engine::new(Config::default(), ReplicaId(0)),
            hosts: (0..count).map(name).collect(),
            per_host,
            now: 1000,
        };
        for n in 0..count {
            let facts = HostFacts {
                host: fleet.hosts[n].clone(),
                domains: vec![Domain("zone=a".to_owned()), Domain(format!("bb={}", n / 20))],
                ha_enabled: true,
                ambiguous: false,
                maintenance: Maintenance::Off,
                instances: per_host,
                libvirt_down: false,
                machine: Identity::default(),
                room: None,
                reserved: Vec::new(),
            };
            fleet.step(Input::Saw(Observation::Host(facts)));
        }
        fleet.step(Input::Lead {
            epoch: Epoch(1),
            sent_at: Mono(1000),
            journal: Vec::new(),
        });
        fleet
    }

    fn step(&mut self, input: Input) {
        let now = Now {
            mono: Mono(self.now),
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        std::hint::black_box(self.engine.step(input, now));
    }

    fn heartbeats(&mut self) {
        for n in 0..self.hosts.len() {
            let beat = Heartbeat {
                host: self.hosts[n].clone(),
                agent: AgentId("agent".to_owned()),
                starts: 1,
                boot: BootId("boot".to_owned()),
                mono_ns: self.now * 1_000_000,
                up_for: std::time::Duration::from_hours(500),
                sent_at_ms: 0,
                libvirt: true,
                machine: Identity {
                    system_uuid: Some("uuid".to_owned()),
                    serial: None,
                },
                resets_after: None,
                planned_shutdown: false,
            };
            self.step(Input::Saw(Observation::Heartbeat(beat)));
        }
    }

    fn polls(&mut self) {
        self.step(Input::LeaseRenewed {
            sent_at: Mono(self.now),
        });
        let service = |now: u64| ServiceFacts {
            updated_at: now.to_string(),
            up: true,
            disabled: false,
            forced_down: false,
        };
        let services = self
            .hosts
            .iter()
            .map(|h| (h.clone(), service(self.now)))
            .collect();
        self.step(Input::Saw(Observation::Services(services)));
        let leases = self
            .hosts
            .iter()
            .map(|h| (h.clone(), self.now.to_string()))
            .collect();
        self.step(Input::Saw(Observation::NodeLeases(leases)));
        for r in 1..3 {
            let seen = PeerHost {
                age_ms: Some(10),
                boot: None,
                resets_after: None,
            };
            let hosts = self.hosts.iter().map(|h| (h.clone(), seen.clone())).collect();
            self.step(Input::Saw(Observation::Peer {
                replica: ReplicaId(r),
                hosts,
            }));
        }
    }

    fn inventories(&mut self) {
        for n in 0..self.hosts.len() {
            let guests = (0..self.per_host).map(|g| Server::new(n * self.per_host + g, 0).id);
            let inventory = Inventory {
                host: self.hosts[n].clone(),
                agent: AgentId("agent".to_owned()),
                starts: 1,
                boot: BootId("boot".to_owned()),
                version: 1,
                domains: guests.map(|id| (id, DomainState::Running)).collect(),
                devices: Vec::new(),
            };
            self.step(Input::Saw(Observation::Inventory(inventory)));
        }
    }
}
