// SPDX-License-Identifier: Apache-2.0
//! From signals to a verdict about one host. Signals that can fail together form a group and count
//! once; a missing answer is never a negative one; one fresh sign of life stops everything but a
//! proof. The verdict is computed from one snapshot, and the snapshot is what is stored.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::mutation::{Broken, Mutation};

/// Signals that can fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Group {
    /// Heartbeats of the agent.
    A,
    /// The compute service in Nova.
    N,
    /// The node's lease in Kubernetes.
    K,
    /// Probes from the replicas.
    P,
    /// Probes from agents of other hosts.
    Q,
    /// A monitoring system with its own path.
    M,
    /// The storage side.
    S,
    /// Power, read from the device: a proof.
    B,
    /// The self-fence lease: a proof.
    W,
}

impl Group {
    /// All groups, in the order of [`Evidence::groups`].
    pub const ALL: [Self; 9] = [
        Self::A,
        Self::N,
        Self::K,
        Self::P,
        Self::Q,
        Self::M,
        Self::S,
        Self::B,
        Self::W,
    ];
    /// Those that can accuse.
    const VOTERS: [Self; 6] = [Self::A, Self::N, Self::K, Self::P, Self::Q, Self::M];
    /// Those whose sign of life stops a verdict.
    const WITNESSES: [Self; 6] = [Self::A, Self::N, Self::K, Self::P, Self::Q, Self::S];
}

/// What a group says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A fresh sign of life.
    Alive,
    /// Only the network stack answers; user space may hang.
    KernelOnly,
    /// No data, old data, or data that is not believed.
    Unknown,
    /// Positively no life.
    Dead,
}

/// What a group says, since when, and whether it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupVerdict {
    /// What it says.
    pub verdict: Verdict,
    /// Milliseconds since the last sign of life it knows of.
    pub age_ms: Option<u64>,
    /// Too many hosts died in this group at once; its accusation does not count.
    pub untrusted: bool,
}

impl Default for GroupVerdict {
    fn default() -> Self {
        Self {
            verdict: Verdict::Unknown,
            age_ms: None,
            untrusted: false,
        }
    }
}

/// Everything known about one host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// One verdict per group, in the order of [`Group::ALL`].
    pub groups: [GroupVerdict; 9],
    /// Its agent is gone while the host lived: one group more is needed.
    pub blind: bool,
    /// Some group saw life after the power was read to be off.
    pub proof_contradicted: bool,
}

impl Evidence {
    /// What `group` says, believed or not.
    pub fn of(&self, group: Group) -> GroupVerdict {
        self.groups[group as usize]
    }

    fn dead(&self, group: Group) -> bool {
        let g = self.of(group);
        g.verdict == Verdict::Dead && !g.untrusted
    }

    fn is(&self, group: Group, verdict: Verdict) -> bool {
        self.of(group).verdict == verdict
    }

    /// Whether any group that may speak for the host shows a fresh sign of life.
    pub fn any_alive(&self) -> bool {
        Group::WITNESSES
            .iter()
            .any(|g| matches!(self.of(*g).verdict, Verdict::Alive | Verdict::KernelOnly))
    }

    /// Whether anybody but its agent shows the host at work: an answer of its kernel or of its storage is none.
    pub fn seen_at_work(&self) -> bool {
        [Group::N, Group::K, Group::P, Group::Q]
            .iter()
            .any(|g| self.is(*g, Verdict::Alive))
    }

    /// Whether anybody shows the host itself to live. What Nova says is no such sign: whatever touches the record of a service
    /// looks like a report of it.
    pub fn shows_itself(&self) -> bool {
        let alive = |g: &&Group| matches!(self.of(**g).verdict, Verdict::Alive | Verdict::KernelOnly);
        Group::WITNESSES.iter().any(|g| *g != Group::N && alive(&g))
    }

    /// Whether the host itself answers somebody who asks it.
    pub fn answers(&self) -> bool {
        let answers = |g: Group| matches!(self.of(g).verdict, Verdict::Alive | Verdict::KernelOnly);
        answers(Group::P) || answers(Group::Q)
    }

    /// How many groups show full life.
    pub fn alive_groups(&self) -> usize {
        Group::WITNESSES
            .iter()
            .filter(|g| self.is(**g, Verdict::Alive))
            .count()
    }

    /// How many believed groups accuse.
    pub fn dead_groups(&self) -> usize {
        Group::VOTERS.iter().filter(|g| self.dead(**g)).count()
    }

    /// Whether the power was read to be off, which speaks for this host whatever befell the others.
    pub fn powered_off(&self) -> bool {
        self.is(Group::B, Verdict::Dead)
    }

    /// Whether it is off beyond doubt: its power says so, and nothing shows life.
    pub(crate) fn shows_off(&self) -> bool {
        self.powered_off() && !self.proof_contradicted && !self.any_alive()
    }

    /// Whether the watchdog must have reset it by now.
    pub fn reset_itself(&self) -> bool {
        self.is(Group::W, Verdict::Dead)
    }

    /// Whether so many groups call it dead, probes from here and from its neighbours among them,
    /// that somebody may want to go without a fence.
    pub fn overwhelming(&self) -> bool {
        self.dead_groups() >= 3
            && self.dead(Group::P)
            && self.dead(Group::Q)
            && !self.is(Group::S, Verdict::Alive)
    }

    /// How many groups show the host itself at work, beyond somebody seeing it from afar.
    pub fn at_work(&self) -> usize {
        [Group::A, Group::N, Group::K, Group::P]
            .iter()
            .filter(|g| self.is(**g, Verdict::Alive))
            .count()
    }

    /// Whether power or watchdog prove that it is off.
    pub fn proven(&self) -> bool {
        self.powered_off() || self.reset_itself()
    }
}

/// The verdict about one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assessment {
    /// A sign of life stands against any accusation.
    Alive,
    /// Not enough is known either way.
    Unclear,
    /// Enough independent groups agree.
    Down,
    /// Its power is off.
    Proven,
    /// It is said to be off, but shows life: the device is probably somebody else's.
    Contradicted,
    /// It runs, and management cannot reach it.
    Isolated,
    /// Its kernel answers and nothing else.
    Hung,
}

/// Applies the rules to one snapshot.
pub(crate) fn assess(evidence: &Evidence, config: &Config, broken: Broken) -> Assessment {
    if broken.is(Mutation::TrustOneSignal) && evidence.dead_groups() >= 1 {
        return Assessment::Down;
    }
    if evidence.proven() {
        if evidence.is(Group::A, Verdict::Alive) || evidence.proof_contradicted {
            return Assessment::Contradicted;
        }
        return Assessment::Proven;
    }
    // Where nobody looks at leases, they are not waited for.
    let leases = !config.leases_watched || evidence.dead(Group::K);
    let silent = evidence.dead(Group::A) && evidence.dead(Group::N) && leases;
    let alive = |g| evidence.is(g, Verdict::Alive);
    if silent && evidence.dead(Group::P) && (alive(Group::S) || alive(Group::Q)) {
        return Assessment::Isolated;
    }
    let kernel = evidence.is(Group::P, Verdict::KernelOnly) || evidence.is(Group::Q, Verdict::KernelOnly);
    if silent && kernel && !alive(Group::P) && !alive(Group::Q) {
        return Assessment::Hung;
    }
    if evidence.any_alive() && !broken.is(Mutation::IgnoreAliveVeto) {
        return Assessment::Alive;
    }
    let needed = config.min_groups + usize::from(evidence.blind);
    let probed = evidence.dead(Group::P)
        || evidence.dead(Group::Q)
        || !config.require_active_probe
        || broken.is(Mutation::IgnoreAliveVeto);
    if evidence.dead_groups() >= needed && probed {
        Assessment::Down
    } else {
        Assessment::Unclear
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(says: &[(Group, Verdict)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (group, verdict) in says {
            evidence.groups[*group as usize].verdict = *verdict;
        }
        evidence
    }

    fn verdict(says: &[(Group, Verdict)]) -> Assessment {
        assess(&evidence(says), &Config::default(), Broken::default())
    }

    #[test]
    fn one_lost_signal_is_never_enough() {
        for group in Group::VOTERS {
            assert_eq!(
                verdict(&[(group, Verdict::Dead)]),
                Assessment::Unclear,
                "{group:?}"
            );
        }
    }

    #[test]
    fn two_groups_agree_only_if_somebody_tried_to_reach_the_host() {
        use Verdict::Dead;
        assert_eq!(
            verdict(&[(Group::A, Dead), (Group::N, Dead), (Group::K, Dead)]),
            Assessment::Unclear
        );
        assert_eq!(verdict(&[(Group::A, Dead), (Group::P, Dead)]), Assessment::Down);
        assert_eq!(verdict(&[(Group::K, Dead), (Group::Q, Dead)]), Assessment::Down);
        let unprobed = Config {
            require_active_probe: false,
            ..Config::default()
        };
        let silent = evidence(&[(Group::A, Dead), (Group::N, Dead)]);
        assert_eq!(
            assess(&silent, &unprobed, Broken::default()),
            Assessment::Down,
            "where somebody does without probes"
        );
        let mut blind = evidence(&[(Group::A, Dead), (Group::P, Dead)]);
        blind.blind = true;
        assert_eq!(
            assess(&blind, &Config::default(), Broken::default()),
            Assessment::Unclear
        );
    }

    #[test]
    fn one_sign_of_life_stops_any_number_of_accusers() {
        use Verdict::{Alive, Dead};
        for witness in [Group::A, Group::N, Group::K, Group::Q] {
            let mut all: Vec<_> = Group::VOTERS.iter().map(|g| (*g, Dead)).collect();
            all.push((witness, Alive));
            let assessment = verdict(&all);
            assert!(
                matches!(assessment, Assessment::Alive | Assessment::Isolated),
                "{witness:?}: {assessment:?}"
            );
        }
    }

    #[test]
    fn a_group_in_which_the_whole_fleet_died_accuses_nobody() {
        let mut evidence = evidence(&[(Group::A, Verdict::Dead), (Group::P, Verdict::Dead)]);
        evidence.groups[Group::A as usize].untrusted = true;
        assert_eq!(
            assess(&evidence, &Config::default(), Broken::default()),
            Assessment::Unclear
        );
    }

    #[test]
    fn a_proof_needs_no_second_opinion_but_stands_no_contradiction() {
        use Verdict::{Alive, Dead};
        assert_eq!(verdict(&[(Group::B, Dead)]), Assessment::Proven);
        assert_eq!(
            verdict(&[(Group::B, Dead), (Group::K, Alive)]),
            Assessment::Proven,
            "leases outlive their node"
        );
        assert_eq!(
            verdict(&[(Group::B, Dead), (Group::A, Alive)]),
            Assessment::Contradicted
        );
    }

    #[test]
    fn isolated_and_hung_are_not_down() {
        use Verdict::{Alive, Dead, KernelOnly};
        let silent = [(Group::A, Dead), (Group::N, Dead), (Group::K, Dead)];
        let with = |more: &[(Group, Verdict)]| verdict(&[&silent[..], more].concat());
        assert_eq!(with(&[(Group::P, Dead), (Group::Q, Alive)]), Assessment::Isolated);
        assert_eq!(with(&[(Group::P, Dead), (Group::S, Alive)]), Assessment::Isolated);
        assert_eq!(with(&[(Group::P, KernelOnly)]), Assessment::Hung);
        assert_eq!(with(&[(Group::P, Dead), (Group::Q, Dead)]), Assessment::Down);
    }

    #[test]
    fn where_nobody_looks_at_leases_they_are_not_waited_for() {
        use Verdict::{Alive, Dead, KernelOnly};
        let silent = [(Group::A, Dead), (Group::N, Dead)];
        let found = |leases_watched: bool, more: &[(Group, Verdict)]| {
            let config = Config {
                leases_watched,
                ..Config::default()
            };
            let says = evidence(&[&silent[..], more].concat());
            assess(&says, &config, Broken::default())
        };
        let isolated = [(Group::P, Dead), (Group::Q, Alive)];
        assert_eq!(found(false, &isolated), Assessment::Isolated);
        assert_eq!(found(false, &[(Group::P, KernelOnly)]), Assessment::Hung);
        assert_eq!(
            found(true, &isolated),
            Assessment::Alive,
            "one that is watched and says nothing is waited for"
        );
        assert_eq!(
            found(false, &[(Group::P, Dead)]),
            Assessment::Down,
            "nobody defends it"
        );
    }
}
