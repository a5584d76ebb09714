// SPDX-License-Identifier: Apache-2.0
//! How hosts leave: every state by table, every combination of states against the order that must
//! hold, and random schedules of all controllers that take part.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::conditions::HypervisorCondition::{
    self, AgentPodsEvicted, Evicting, Offboarded, Onboarding,
};
use cobaltcore_kit::controller::Next;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;
use crate::aggregates;
use crate::look::{Dice, after, condition, noon};

fn snapshot(said: &[(HypervisorCondition, &str)]) -> Snapshot {
    Snapshot {
        now: noon(),
        host: "node1".to_owned(),
        lifecycle: true,
        mode: Maintenance::Termination,
        deleting: false,
        held: true,
        finalizers: true,
        node: true,
        service_known: true,
        conditions: said
            .iter()
            .map(|(type_, status)| condition(type_, status, "X", "3 left"))
            .collect(),
        aggregates: Vec::new(),
        nova: InNova::Unasked,
        placement: InPlacement::Unasked,
        gone_since: None,
        trouble: None,
    }
}

fn leaving() -> Snapshot {
    snapshot(&[(Evicting, "False"), (AgentPodsEvicted, "True")])
}

fn present(servers: usize) -> InNova {
    InNova::Present {
        service: "svc".to_owned(),
        servers,
    }
}

fn said(decision: &Decision) -> (bool, String) {
    let said = decision.conditions.get(Offboarded).unwrap();
    (said.is(true, &said.reason), said.message.clone())
}

#[test]
fn every_state_waits_for_something_and_says_what() {
    let table: Vec<(Snapshot, &str)> = vec![
        (
            snapshot(&[(Onboarding, "True")]),
            "waiting for onboarding to be aborted",
        ),
        (snapshot(&[]), "waiting for its instances to be moved away"),
        (
            snapshot(&[(Evicting, "True")]),
            "waiting for its instances to be moved away",
        ),
        (
            snapshot(&[(Evicting, "False")]),
            "Waiting for agent pods (nova-compute, neutron) to be evicted from node",
        ),
        (
            snapshot(&[(Evicting, "False"), (AgentPodsEvicted, "False")]),
            "Waiting for agent pods to be evicted: 3 left",
        ),
        (leaving(), "removing host from nova"),
        (
            Snapshot {
                nova: InNova::Trouble("503".into()),
                ..leaving()
            },
            "cannot get hypervisor by name node1 due to 503",
        ),
        (
            Snapshot {
                nova: present(2),
                ..leaving()
            },
            "but still has 2 assigned VMs, check with `openstack server list --all-projects --host node1`",
        ),
        (
            Snapshot {
                nova: present(0),
                aggregates: vec!["a".into(), "b".into()],
                ..leaving()
            },
            "Waiting for aggregates to be removed, current: [a b]",
        ),
        (
            Snapshot {
                nova: present(0),
                trouble: Some("cannot delete service svc due to 500".into()),
                ..leaving()
            },
            "cannot delete service svc due to 500",
        ),
        (
            Snapshot {
                nova: InNova::Absent,
                placement: InPlacement::Trouble("503".into()),
                ..leaving()
            },
            "cannot get resource provider: 503",
        ),
        (
            Snapshot {
                nova: InNova::Absent,
                placement: InPlacement::Present,
                ..leaving()
            },
            "Removing the resource provider from placement",
        ),
        (
            Snapshot {
                nova: InNova::Absent,
                placement: InPlacement::Absent,
                ..leaving()
            },
            "making sure that it does not come back",
        ),
    ];
    for (state, text) in table {
        let decision = decide(&state);
        let (done, message) = said(&decision);
        assert!(!done && message.contains(text), "{message}");
        assert!(
            matches!(decision.next, Next::After(_)),
            "{text}: nobody looks again"
        );
        assert!(decision.steps.contains(&Step::Report));
    }
}

#[test]
fn a_host_is_gone_when_it_stays_away() {
    let mut gone = leaving();
    (gone.nova, gone.placement) = (InNova::Absent, InPlacement::Absent);
    let first = decide(&gone);
    assert!(first.steps.contains(&Step::GoneSince(Some(noon()))));
    gone.gone_since = Some(noon());
    gone.now = after(noon(), Duration::from_secs(9));
    assert!(!said(&decide(&gone)).0, "too early to tell");
    gone.now = after(noon(), Duration::from_secs(10));
    let done = decide(&gone);
    assert_eq!(said(&done), (true, "Offboarding successful".into()));
    assert!(done.steps.contains(&Step::Release));
    // It came back before that: everything again.
    gone.nova = present(0);
    let again = decide(&gone);
    assert!(again.steps.contains(&Step::GoneSince(None)));
    assert!(again.steps.contains(&Step::DeleteService("svc".into())));
    (gone.nova, gone.placement) = (InNova::Absent, InPlacement::Present);
    let again = decide(&gone);
    assert!(again.steps.contains(&Step::GoneSince(None)));
    assert!(again.steps.contains(&Step::CleanProvider));
}

#[test]
fn the_finalizer_is_on_hosts_that_nova_has() {
    let table = [
        // lifecycle, known to Nova, wanted at all, held -> what happens
        (true, true, true, false, Some(Step::Hold)),
        (true, true, true, true, None),
        (true, false, true, false, None),
        (false, true, true, false, None),
        (false, true, true, true, Some(Step::Release)),
        (true, true, false, true, Some(Step::Release)),
        (true, true, false, false, None),
    ];
    for (lifecycle, service_known, finalizers, held, wanted) in table {
        let state = Snapshot {
            mode: Maintenance::Off,
            lifecycle,
            service_known,
            finalizers,
            held,
            ..snapshot(&[])
        };
        assert_eq!(path(&state), Path::Stays);
        assert_eq!(
            decide(&state).steps,
            wanted.into_iter().collect::<Vec<_>>(),
            "{lifecycle} {service_known} {finalizers} {held}"
        );
    }
    let undone = Snapshot {
        mode: Maintenance::Ha,
        ..snapshot(&[(Offboarded, "False")])
    };
    let decision = decide(&undone);
    assert!(
        decision.conditions.get(Offboarded).is_none(),
        "termination was undone"
    );
    assert!(decision.steps.contains(&Step::Report));
}

#[test]
fn a_deleted_object_lets_go_of_a_living_node_and_offboards_a_vanished_one() {
    let mut deleted = Snapshot {
        mode: Maintenance::Off,
        deleting: true,
        ..snapshot(&[])
    };
    assert_eq!(decide(&deleted).steps, [Step::Release]);
    deleted.node = false;
    assert_eq!(path(&deleted), Path::NodeGone);
    assert!(asks(&deleted), "nobody is left to wait for");
    deleted.nova = present(2);
    let held = decide(&deleted);
    assert_eq!(said(&held).1, "node is gone but 2 instances are still assigned");
    assert!(!held.steps.iter().any(destructive), "{:?}", held.steps);
    deleted.nova = present(0);
    assert!(
        decide(&deleted)
            .steps
            .contains(&Step::DeleteService("svc".into()))
    );
}

fn destructive(step: &Step) -> bool {
    matches!(step, Step::DeleteService(_) | Step::CleanProvider)
}

/// Whether something is deleted; it must not be unless it `may`, and nor may success be told.
fn in_turn(state: &Snapshot, may: bool) -> bool {
    let decision = decide(state);
    let told = decision.conditions.get(Offboarded);
    let done = told.is_some_and(|said| said.is(true, &said.reason));
    let deletes = decision.steps.iter().any(destructive);
    assert!(may || !(deletes || done), "{state:?}");
    assert!(!done || state.nova == InNova::Absent, "{state:?}");
    let service = |step: &Step| matches!(step, Step::DeleteService(_));
    if decision.steps.iter().any(service) {
        assert!(
            state.aggregates.is_empty() && state.nova == present(0),
            "{state:?}"
        );
    }
    deletes
}

/// Nothing is deleted, and no word of success is given, unless everything before it has happened.
#[test]
fn nothing_is_deleted_out_of_turn_whatever_is_known() {
    let words = [None, Some("True"), Some("False"), Some("Unknown")];
    let novas = [
        InNova::Unasked,
        InNova::Trouble("x".into()),
        InNova::Absent,
        present(0),
        present(1),
    ];
    let placements = [
        InPlacement::Unasked,
        InPlacement::Trouble("x".into()),
        InPlacement::Absent,
        InPlacement::Present,
    ];
    let count = words.len().pow(3) * novas.len() * placements.len() * 2;
    let mut deletions = 0;
    for number in 0..count {
        // Every combination, as the digits of a number.
        let mut rest = number;
        let mut digit = |base: usize| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        let [onboarding, evicting, pods] = [(); 3].map(|()| words[digit(words.len())]);
        let nova = novas[digit(novas.len())].clone();
        let placement = placements[digit(placements.len())].clone();
        let aggregates = vec!["a".to_owned(); digit(2)];
        let said = [
            (Onboarding, onboarding),
            (Evicting, evicting),
            (AgentPodsEvicted, pods),
        ];
        let said: Vec<_> = said
            .into_iter()
            .filter_map(|(type_, status)| Some((type_, status?)))
            .collect();
        let state = Snapshot {
            nova,
            placement,
            aggregates,
            gone_since: Some(noon()),
            now: after(noon(), Duration::from_mins(1)),
            ..snapshot(&said)
        };
        let may = onboarding != Some("True") && evicting == Some("False") && pods == Some("True");
        assert_eq!(asks(&state), may, "{state:?}");
        deletions += usize::from(in_turn(&state, may));
    }
    assert!(deletions > 0, "otherwise this shows nothing");
}

/// A host on its way out, as it really is, and what has been written about it.
struct World {
    servers: u64,
    pods: u64,
    tainted: bool,
    aggregates: Vec<String>,
    applied: Vec<String>,
    service: bool,
    provider: bool,
    drain_allowed: bool,
    conditions: Vec<Condition>,
    gone_since: Option<jiff::Timestamp>,
    now: jiff::Timestamp,
    seed: u64,
}

impl World {
    fn new(dice: &mut Dice, seed: u64) -> Self {
        let aggregates = vec!["prod".to_owned(), "z1".to_owned()];
        Self {
            servers: dice.roll(4),
            pods: dice.roll(3),
            tainted: false,
            applied: aggregates.clone(),
            aggregates,
            service: true,
            provider: true,
            drain_allowed: false,
            conditions: vec![condition(Onboarding, "False", "Aborted", "")],
            gone_since: None,
            now: noon(),
            seed,
        }
    }

    fn write(&mut self, type_: HypervisorCondition, status: &str) {
        self.conditions.retain(|one| one.type_ != type_.as_str());
        self.conditions.push(condition(type_, status, "X", ""));
    }

    fn says(&self, seen: &[Condition], type_: HypervisorCondition, status: &str) -> bool {
        let mut all = seen.iter();
        all.any(|one| one.type_ == type_.as_str() && one.status == status)
    }

    /// One controller looks at what it last saw of the conditions and acts on the world.
    fn turn(&mut self, dice: &mut Dice, seen: &[Condition]) {
        let seed = self.seed;
        match dice.roll(7) {
            0 if self.servers > 0 => self.servers -= 1,
            // maintenance
            1 => self.write(Evicting, if self.servers == 0 { "False" } else { "True" }),
            // the Gardener side: taint, then the gate
            2 => {
                if self.says(seen, Evicting, "False") && !self.tainted {
                    assert_eq!(self.servers, 0, "seed {seed}: agents pushed off a full host");
                    self.tainted = true;
                }
                if self.says(seen, Offboarded, "True") {
                    assert!(!self.service && !self.provider, "seed {seed}: drained too early");
                    self.drain_allowed = true;
                }
            }
            // the taint works
            3 if self.tainted && self.pods > 0 => self.pods -= 1,
            // hypervisor
            4 if self.tainted && self.says(seen, Evicting, "False") => {
                self.write(AgentPodsEvicted, if self.pods == 0 { "True" } else { "False" });
            }
            5 => self.keep_aggregates(seen),
            6 => self.offboard(dice, seen),
            _ => {}
        }
    }

    fn keep_aggregates(&mut self, seen: &[Condition]) {
        let seed = self.seed;
        let wanted = aggregates::desired(&aggregates::Snapshot {
            lifecycle: true,
            compute_host: Some("node1".to_owned()),
            mode: Maintenance::Termination,
            zone: Some("z1".to_owned()),
            spec: self.aggregates.clone(),
            applied: Vec::new(),
            conditions: seen.to_vec(),
            test_aggregate: "tests".to_owned(),
        });
        if let Some(names) = wanted.and_then(|wanted| wanted.names) {
            assert_eq!(self.servers, 0, "seed {seed}: a full host left its aggregates");
            self.aggregates.clone_from(&names);
            self.applied = names;
        }
    }

    fn offboard(&mut self, dice: &mut Dice, seen: &[Condition]) {
        let seed = self.seed;
        let mut state = Snapshot {
            now: self.now,
            conditions: seen.to_vec(),
            aggregates: self.applied.clone(),
            gone_since: self.gone_since,
            ..snapshot(&[])
        };
        if asks(&state) {
            let servers = usize::try_from(self.servers).unwrap();
            state.nova = if self.service {
                present(servers)
            } else {
                InNova::Absent
            };
            state.placement = if self.provider {
                InPlacement::Present
            } else {
                InPlacement::Absent
            };
        }
        let decision = decide(&state);
        for step in &decision.steps {
            if dice.chance(10) {
                // The process died here; its memory of the last look is gone as well.
                self.gone_since = None;
                return;
            }
            match step {
                Step::DeleteService(_) => {
                    assert_eq!(
                        (self.servers, self.pods),
                        (0, 0),
                        "seed {seed}: agents would register anew"
                    );
                    assert!(self.aggregates.is_empty(), "seed {seed}: still in aggregates");
                    self.service = dice.chance(10);
                }
                Step::CleanProvider => self.provider = dice.chance(10),
                Step::GoneSince(at) => self.gone_since = *at,
                Step::Report => {
                    let done = said(&decision).0;
                    self.write(Offboarded, if done { "True" } else { "False" });
                }
                _ => {}
            }
        }
    }
}

/// Controllers act in any order, on views of any age; the order of things holds, and it ends.
#[test]
fn any_interleaving_keeps_the_order_and_ends() {
    for seed in 1..=400 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(&mut dice, seed);
        let mut views = vec![Vec::new()];
        let mut rounds = 0;
        while !world.drain_allowed {
            rounds += 1;
            assert!(rounds < 20_000, "seed {seed}: no end");
            let oldest = views.len().saturating_sub(5) as u64;
            let view = oldest + dice.roll(views.len() as u64 - oldest);
            let seen = views[usize::try_from(view).unwrap()].clone();
            world.turn(&mut dice, &seen);
            views.push(world.conditions.clone());
            world.now = after(world.now, Duration::from_secs(dice.roll(8)));
        }
        assert!(world.aggregates.is_empty() && world.pods == 0 && world.servers == 0);
    }
}
