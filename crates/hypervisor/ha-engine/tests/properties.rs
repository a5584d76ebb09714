// SPDX-License-Identifier: Apache-2.0
//! What must hold whatever comes in: the journal tells exactly what the engine knows, records
//! survive being written down, and old or doubled telemetry changes nothing.

#![allow(clippy::unwrap_used)]

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{
    Action, AgentId, Answer, BootId, Config, Domain, Effect, Engine, Epoch, Group, Heartbeat, HostFacts,
    Identity, Input, Ledger, Mono, Now, Observation, PeerHost, Power, ProbeResult, Prober, Record, Refusal,
    ReplicaId, ServerFacts, ServiceFacts, Trouble, Verdict, VmState,
};
use proptest::prelude::*;

fn host(n: u8) -> HostName {
    HostName::new(format!("n{n}")).unwrap()
}

fn machine(n: u8) -> Identity {
    Identity {
        system_uuid: Some(format!("machine-{n}")),
        serial: None,
    }
}

fn facts(n: u8) -> HostFacts {
    HostFacts {
        host: host(n),
        domains: vec![Domain("zone=a".into()), Domain(format!("bb={}", n % 3))],
        ha_enabled: true,
        ambiguous: false,
        maintenance: Maintenance::Off,
        instances: 1,
        libvirt_down: false,
        machine: machine(n),
    }
}

fn beat(n: u8, boot: u8, mono_ns: u64) -> Heartbeat {
    Heartbeat {
        host: host(n),
        agent: AgentId("agent".into()),
        starts: 1,
        boot: BootId(format!("boot-{boot}")),
        mono_ns,
        sent_at_ms: 0,
        libvirt: true,
        machine: machine(n),
        armed: false,
        planned_shutdown: false,
    }
}

fn at(ms: u64) -> Now {
    Now {
        mono: Mono(ms),
        wall: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn server(n: u8) -> ServerFacts {
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
        on_fenced_storage: true,
        user_action_ms: None,
    }
}

/// A careless world around one engine: hosts speak or not, answers are right, wrong or missing.
struct Play {
    engine: Engine,
    now: u64,
    journal: Vec<Record>,
    open: Vec<Action>,
    effects: usize,
}

impl Play {
    fn new() -> Self {
        let mut play = Self {
            engine: Engine::new(Config::default(), ReplicaId(0)),
            now: 1000,
            journal: Vec::new(),
            open: Vec::new(),
            effects: 0,
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

    fn step(&mut self, input: Input) {
        let output = self.engine.step(input, at(self.now));
        for action in &output.actions {
            if action.effect.changes() {
                self.effects += 1;
                assert!(self.engine.ledger().seq > 1, "an effect before any record");
            }
        }
        self.journal.extend(output.journal);
        self.open.extend(output.actions);
    }

    /// One second of the world: `silent` hosts are dead.
    fn second(&mut self, silent: u8, renew: bool) {
        self.now += 1000;
        if renew {
            self.step(Input::LeaseRenewed {
                sent_at: Mono(self.now),
            });
        }
        self.step(Input::Saw(Observation::Canaries { ok: 4, total: 4 }));
        for n in (0..6).filter(|n| silent & (1 << n) == 0) {
            self.step(Input::Saw(Observation::Heartbeat(beat(n, 1, self.now * 1000))));
        }
        let view = (0..6)
            .map(|n| {
                (
                    host(n),
                    PeerHost {
                        age_ms: None,
                        boot: None,
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

    fn answer(&mut self, pick: usize, how: u8, silent: u8) {
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

fn right(effect: &Effect, how: u8) -> Answer {
    match effect {
        Effect::ReadPower { .. } => Answer::Power(if how.is_multiple_of(3) {
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
            up: false,
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, folding the journal gives the ledger of the engine that wrote it, also
    /// after every record went through JSON.
    #[test]
    fn the_journal_tells_what_the_engine_knows(
        silent in 0u8..64,
        script in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 60..160),
    ) {
        let mut play = Play::new();
        for second in 0..70 {
            play.second(0, true);
            let _ = second;
        }
        for (pick, how, renew) in script {
            play.second(silent, renew || !pick.is_multiple_of(4));
            for n in 0..3 {
                play.answer(pick as usize + n, how.wrapping_add(n as u8), silent);
            }
        }
        let read: Vec<Record> = play
            .journal
            .iter()
            .map(|record| serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap())
            .collect();
        prop_assert_eq!(&read, &play.journal);
        prop_assert_eq!(&Ledger::replay(&read).unwrap(), play.engine.ledger());
    }

    /// Heartbeats that were heard before, in any order and number, are no sign of life.
    #[test]
    fn old_heartbeats_prove_nothing(replayed in proptest::collection::vec((0u64..20, 0u8..2), 0..60)) {
        let mut play = Play::new();
        for n in 0..10u64 {
            play.step(Input::Saw(Observation::Heartbeat(beat(0, 0, n * 5))));
        }
        for n in 10..20u64 {
            play.step(Input::Saw(Observation::Heartbeat(beat(0, 1, n * 5))));
        }
        play.now += 60_000;
        for (n, boot) in replayed {
            let mono = if boot == 0 { n.min(9) * 5 } else { n.max(10) * 5 };
            play.step(Input::Saw(Observation::Heartbeat(beat(0, boot, mono))));
        }
        let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
        prop_assert_ne!(status.evidence.of(Group::A).verdict, Verdict::Alive);
        play.step(Input::Saw(Observation::Heartbeat(beat(0, 1, 1_000))));
        let status = play.engine.host_status(&host(0), at(play.now)).unwrap();
        prop_assert_eq!(status.evidence.of(Group::A).verdict, Verdict::Alive);
    }
}

#[test]
fn a_compute_service_that_still_looks_up_is_no_sign_of_life() {
    let mut play = Play::new();
    let service = |token: &str| ServiceFacts {
        updated_at: token.into(),
        up: true,
        disabled: false,
        forced_down: false,
    };
    for _ in 0..8 {
        play.now += 5_000;
        play.step(Input::Saw(Observation::Services(vec![(host(0), service("old"))])));
    }
    let verdict = |play: &Play| {
        play.engine
            .host_status(&host(0), at(play.now))
            .unwrap()
            .evidence
            .of(Group::N)
            .verdict
    };
    assert_eq!(
        verdict(&play),
        Verdict::Dead,
        "it says up, and never reported while we watched"
    );
    play.step(Input::Saw(Observation::Services(vec![(host(0), service("new"))])));
    assert_eq!(verdict(&play), Verdict::Alive);
}

#[test]
fn a_journal_of_a_newer_program_or_with_a_gap_is_refused() {
    let mut play = Play::new();
    play.second(0, true);
    let mut newer = play.journal.clone();
    newer[0].version = 2;
    assert!(
        Ledger::replay(&newer)
            .unwrap_err()
            .to_string()
            .contains("version 2")
    );
    let mut gap = play.journal.clone();
    gap[0].seq = 7;
    assert!(
        Ledger::replay(&gap)
            .unwrap_err()
            .to_string()
            .contains("record 7 follows record 0")
    );
    let mut engine = Engine::new(Config::default(), ReplicaId(1));
    let output = engine.step(
        Input::Lead {
            epoch: Epoch(5),
            sent_at: Mono(1),
            journal: gap,
        },
        at(1),
    );
    assert_eq!(
        output.actions.first().map(|a| a.effect.clone()),
        Some(Effect::Resign)
    );
    assert_eq!(engine.leads(), None);
}

#[test]
fn a_leader_that_could_not_renew_starts_nothing() {
    let mut play = Play::new();
    for _ in 0..70 {
        play.second(0, true);
    }
    play.open.clear();
    for _ in 0..60 {
        play.second(1, false);
    }
    assert!(
        play.open.iter().all(|action| action.not_after < Mono(play.now)),
        "{:?}",
        play.open
    );
    assert_eq!(play.effects, 0);
}
