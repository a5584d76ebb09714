// SPDX-License-Identifier: Apache-2.0
//! A careless world around one engine: hosts speak or not, answers are right, wrong or missing.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each suite uses its part; a test that unwraps says where it failed"
)]

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Action, AgentId, Answer, BootId, Config, Decision, Domain, Effect, Engine, Entry, Epoch, Evidence, Grade,
    Heartbeat, HostFacts, Identity, IncidentId, IncidentKind, IncidentState, Input, Mono, Notice, Now,
    Observation, PeerHost, Power, ProbeResult, Prober, Record, Refusal, ReplicaId, ServerFacts, ServiceFacts,
    Trouble, VmState,
};

pub(crate) fn host(n: u8) -> HostName {
    HostName::new(format!("n{n}")).unwrap()
}

pub(crate) fn machine(n: u8) -> Identity {
    Identity {
        system_uuid: Some(format!("machine-{n}")),
        serial: None,
    }
}

pub(crate) fn facts(n: u8) -> HostFacts {
    HostFacts {
        host: host(n),
        domains: vec![Domain("zone=a".into()), Domain(format!("bb={}", n % 3))],
        ha_enabled: true,
        ambiguous: false,
        maintenance: Maintenance::Off,
        instances: 1,
        libvirt_down: false,
        machine: machine(n),
        room: None,
        reserved: Vec::new(),
    }
}

pub(crate) fn beat(n: u8, boot: u8, mono_ns: u64) -> Heartbeat {
    Heartbeat {
        host: host(n),
        agent: AgentId("agent".into()),
        starts: 1 + u64::from(boot),
        boot: BootId(format!("boot-{boot}")),
        mono_ns,
        up_for: Duration::from_hours(500),
        sent_at_ms: 0,
        libvirt: true,
        machine: machine(n),
        resets_after: None,
        planned_shutdown: false,
    }
}

pub(crate) fn at(ms: u64) -> Now {
    Now {
        mono: Mono(ms),
        wall: jiff::Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn server(n: u8) -> ServerFacts {
    ServerFacts {
        id: format!("00000000-0000-0000-0000-{n:012}").parse().unwrap(),
        name: "guest".into(),
        host: Some(host(n)),
        state: VmState::Active,
        task: String::new(),
        running: true,
        policy: None,
        excluded: false,
        priority: 500,
        group: String::new(),
        anti_affinity: None,
        memory_mib: 1,
        local_disk: false,
        local_extras: false,
        on_fenced_storage: true,
        lock: None,
        user_action_ms: None,
        acted_since_move: false,
        user_stops: false,
    }
}

/// The incident that a story from before this term is about: host 0 died.
pub(crate) fn incident() -> IncidentId {
    IncidentId {
        epoch: Epoch(1),
        n: 1,
        host: host(0),
        opened_ms: None,
    }
}

/// Host 0 died, was claimed, and is off.
pub(crate) fn fenced(previous: Maintenance) -> Vec<Entry> {
    let incident = incident();
    vec![
        Entry::Led,
        Entry::Opened {
            incident: incident.clone(),
            kind: IncidentKind::HostDown,
            by: "the engine".to_owned(),
            boot: Some(BootId("boot-0".to_owned())),
            evidence: Box::new(Evidence::default()),
            announced: false,
        },
        Entry::ClaimIntended {
            incident: incident.clone(),
            previous,
        },
        Entry::Claimed {
            incident: incident.clone(),
        },
        Entry::Fenced {
            incident,
            level: 0,
            grade: Grade::Power,
            boot: None,
        },
    ]
}

/// Its guests are settled.
pub(crate) fn settled() -> Entry {
    Entry::Moved {
        incident: incident(),
        state: IncidentState::Recovered,
    }
}

/// A person wants it back.
pub(crate) fn wanted() -> Entry {
    Entry::Decided {
        incident: incident(),
        decision: Decision::Release,
        actor: "operator/olga".to_owned(),
        reason: "repaired".to_owned(),
        held: None,
        boot: None,
    }
}

/// The world.
pub(crate) struct Play {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) journal: Vec<Record>,
    pub(crate) open: Vec<Action>,
    pub(crate) effects: usize,
    pub(crate) notices: Vec<Notice>,
    /// How long after its last word a host resets itself.
    pub(crate) armed: Option<Duration>,
    /// When the whole fleet was switched on, if that was lately.
    pub(crate) switched_on: Option<u64>,
    /// The other replicas hear no host.
    pub(crate) others_deaf: bool,
    /// When the others last heard each host.
    pub(crate) heard: [Option<u64>; 6],
}

impl Play {
    pub(crate) fn new() -> Self {
        let mut play = Self::untold();
        play.step(Input::Pauses(Vec::new()));
        play
    }

    /// One that leads, and that nobody has told yet which pauses there are.
    pub(crate) fn untold() -> Self {
        let mut play = Self {
            engine: Engine::new(Config::default(), ReplicaId(0)),
            now: 1000,
            journal: Vec::new(),
            open: Vec::new(),
            effects: 0,
            notices: Vec::new(),
            armed: None,
            switched_on: None,
            others_deaf: false,
            heard: [None; 6],
        };
        for n in 0..6 {
            play.step(Input::Saw(Observation::Host(facts(n))));
        }
        play.step(Input::Lead {
            epoch: Epoch(1),
            sent_at: Mono(1000),
            journal: Vec::new(),
        });
        play
    }

    /// The replica begins anew and is told nothing by the others. Gives back what hosts say of their watchdogs.
    pub(crate) fn restart(&mut self) -> Option<Duration> {
        let fresh = Self::new();
        let (armed, now) = (self.armed, self.now);
        *self = Self { now, ..fresh };
        armed
    }

    pub(crate) fn step(&mut self, input: Input) {
        let output = self.engine.step(input, at(self.now));
        for action in &output.actions {
            if action.effect.changes() {
                self.effects += 1;
                assert!(self.engine.ledger().seq > 1, "an effect before any record");
            }
        }
        self.journal.extend(output.journal);
        self.open.extend(output.actions);
        self.notices.extend(output.notices);
    }

    /// One second of the world: `silent` hosts are dead.
    pub(crate) fn second(&mut self, silent: u8, renew: bool) {
        self.now += 1000;
        if renew {
            self.step(Input::LeaseRenewed {
                sent_at: Mono(self.now),
            });
        }
        self.step(Input::Saw(Observation::Canaries { ok: 4, total: 4 }));
        for n in (0..6).filter(|n| silent & (1 << n) == 0) {
            let beat = Heartbeat {
                resets_after: self.armed,
                ..beat(n, 1, self.now * 1000)
            };
            let lately = self.switched_on.map(|at| Duration::from_millis(self.now - at));
            let beat = Heartbeat {
                up_for: lately.unwrap_or(beat.up_for),
                ..beat
            };
            self.step(Input::Saw(Observation::Heartbeat(beat)));
            if !self.others_deaf {
                self.heard[usize::from(n)] = Some(self.now);
            }
        }
        let view = (0..6)
            .map(|n| {
                (
                    host(n),
                    PeerHost {
                        age_ms: self.heard[usize::from(n)].map(|at| self.now - at),
                        boot: self.heard[usize::from(n)].map(|_| beat(n, 1, 0).boot),
                        resets_after: self.armed,
                    },
                )
            })
            .collect::<Vec<_>>();
        for r in 1..3 {
            self.step(Input::Saw(Observation::Peer {
                replica: ReplicaId(r),
                hosts: view.clone(),
            }));
        }
        self.step(Input::Tick);
    }

    pub(crate) fn answer(&mut self, pick: usize, how: u8, silent: u8) {
        if self.open.is_empty() {
            return;
        }
        let action = self.open.remove(pick % self.open.len());
        if let Effect::Investigate { host, .. } = &action.effect {
            let n: u8 = host.as_str()[1..].parse().unwrap();
            let result = if silent & (1 << n) == 0 {
                ProbeResult::App
            } else {
                ProbeResult::Timeout
            };
            for r in 0..3 {
                let by = Prober::Replica(ReplicaId(r));
                let asked_at = Mono(self.now);
                self.step(Input::Saw(Observation::Probe {
                    host: host.clone(),
                    by,
                    asked_at,
                    result,
                }));
            }
        }
        let result = match how % 8 {
            0 => Err(Trouble::Unknown),
            1 => Err(Trouble::Refused(Refusal::Conflict)),
            2 => Err(Trouble::NotStarted),
            _ => Ok(right(&action.effect, how)),
        };
        self.step(Input::Outcome {
            id: action.id,
            result,
        });
    }
}

pub(crate) fn right(effect: &Effect, how: u8) -> Answer {
    match effect {
        Effect::ReadPower { .. } | Effect::ReadHold { .. } => Answer::Power(if how.is_multiple_of(3) {
            Power::On
        } else {
            Power::Off
        }),
        Effect::Identify { host, .. } => Answer::Identity(machine(host.as_str()[1..].parse().unwrap())),
        Effect::ReadMaintenance { .. } => Answer::Maintenance(if how.is_multiple_of(2) {
            Maintenance::Off
        } else {
            Maintenance::Ha
        }),
        Effect::ReadService { .. } => Answer::Service(ServiceFacts {
            updated_at: "1".into(),
            up: !how.is_multiple_of(2),
            disabled: how.is_multiple_of(2),
            forced_down: how.is_multiple_of(2),
        }),
        Effect::ListServers { host } => {
            let n = host.as_str()[1..].parse().unwrap();
            Answer::Servers {
                servers: vec![server(n)],
                migrations: Vec::new(),
                complete: how.is_multiple_of(2),
            }
        }
        Effect::ReadServer { server: id } => {
            let n: u8 = id.as_str()[24..].parse().unwrap();
            Answer::Server {
                server: Some(server(n)),
                migrations: Vec::new(),
            }
        }
        _ => Answer::Done,
    }
}
