// SPDX-License-Identifier: Apache-2.0
//! What was last heard of one host, per source. Old, doubled and reordered messages are dropped
//! here; ages are measured from when something was received or seen to change on this process's
//! own monotonic clock, never from a time somebody else wrote down.

mod watchdog;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smol_str::SmolStr;

use crate::config::Config;
use crate::evidence::{Evidence, Group, GroupVerdict, Verdict};
use crate::ids::{AgentId, BootId, Domain, Mono, Now, ReplicaId};
use crate::input::{Heartbeat, Identity, Onlooker, PeerHost, Power, ProbeResult, Prober, ServiceFacts};
use crate::mutation::{Broken, Mutation};

/// How long an answer about something that is polled every ten seconds stays usable.
const POLL_GAP: Duration = Duration::from_secs(15);
/// How long a dead host's last report may still surface in Nova or Kubernetes.
const REPORT_LAG: Duration = Duration::from_secs(15);
/// A device that read Off while somebody saw life is not believed for this long after the last sign.
const DISTRUST: Duration = Duration::from_secs(120);
/// Boots remembered, to recognise replayed heartbeats.
const BOOTS: usize = 8;

/// The agent's heartbeats at this replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    pub(crate) last: Option<Mono>,
    pub(crate) boot: Option<BootId>,
    /// Who spoke last, and how often it had been started.
    id: Option<AgentId>,
    starts: u64,
    past_boots: VecDeque<BootId>,
    insistent: Option<Insistent>,
    mono_ns: u64,
    sent_at_ms: i64,
    pub(crate) machine: Identity,
    pub(crate) libvirt: bool,
    pub(crate) resets_after: Option<Duration>,
    pub(crate) planned_shutdown: bool,
    up_for: Duration,
}

/// A boot that is taken for past and goes on speaking.
#[derive(Clone, Debug)]
struct Insistent {
    boot: BootId,
    mono_ns: u64,
    since: Mono,
    last: Mono,
}

/// What a heartbeat told that was not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Old or doubled.
    Nothing,
    /// Life.
    Life,
    /// Life, for the first time here.
    First,
    /// Life, after a boot.
    NewBoot,
}

impl Agent {
    /// Takes a heartbeat, which may have been sent long ago. `silence` is for how long a boot that speaks is never silent.
    pub(crate) fn hear(&mut self, beat: &Heartbeat, silence: Duration, now: Mono, broken: Broken) -> Heard {
        let new_boot = self.boot.as_ref() != Some(&beat.boot);
        if new_boot && self.is_past(beat, broken) && !self.insists(beat, silence, now, broken) {
            return Heard::Nothing;
        }
        if !new_boot && beat.mono_ns <= self.mono_ns {
            return Heard::Nothing;
        }
        self.insistent = None;
        if self.id.as_ref() != Some(&beat.agent) {
            self.id = Some(beat.agent.clone());
        }
        self.starts = beat.starts;
        let known = self.boot.is_some();
        if new_boot && let Some(old) = self.boot.replace(beat.boot.clone()) {
            self.past_boots.retain(|past| *past != beat.boot);
            self.past_boots.push_back(old);
            if self.past_boots.len() > BOOTS {
                self.past_boots.pop_front();
            }
        }
        self.last = Some(now);
        self.mono_ns = beat.mono_ns;
        self.sent_at_ms = beat.sent_at_ms;
        self.libvirt = beat.libvirt;
        self.resets_after = beat.resets_after;
        self.planned_shutdown = beat.planned_shutdown;
        if self.machine != beat.machine {
            self.machine = beat.machine.clone();
        }
        self.up_for = beat.up_for;
        match (new_boot, known) {
            (true, true) => Heard::NewBoot,
            (true, false) => Heard::First,
            (false, _) => Heard::Life,
        }
    }

    /// Whether another boot has spoken since the one that speaks here. An agent counts its starts, so its word of an earlier
    /// one is known for old also by who has never heard that boot.
    fn is_past(&self, beat: &Heartbeat, broken: Broken) -> bool {
        let same_agent = self.id.as_ref() == Some(&beat.agent) && !broken.is(Mutation::HeedOldBoots);
        self.past_boots.contains(&beat.boot) || same_agent && beat.starts <= self.starts
    }

    /// Whether a boot that is taken for past has been the only one to speak for so long that it must be the present one: what
    /// an agent counts by may have been lost, and one late word must make nobody deaf.
    fn insists(&mut self, beat: &Heartbeat, silence: Duration, now: Mono, broken: Broken) -> bool {
        let known = self.insistent.as_mut().filter(|known| {
            known.boot == beat.boot && now.since(known.last) <= silence && !broken.is(Mutation::HeedOldBoots)
        });
        let Some(known) = known else {
            self.insistent = Some(Insistent {
                boot: beat.boot.clone(),
                mono_ns: beat.mono_ns,
                since: now,
                last: now,
            });
            return false;
        };
        if beat.mono_ns <= known.mono_ns {
            return false;
        }
        (known.mono_ns, known.last) = (beat.mono_ns, now);
        now.since(known.since) > silence
    }

    /// For how long the host has been up, if it is still the boot that was last heard.
    pub(crate) fn up_for(&self, now: Mono) -> Option<Duration> {
        self.last.map(|last| self.up_for + now.since(last))
    }
}

/// Something that reports to somebody else, whom we ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat {
    token: Option<SmolStr>,
    changed: Option<Mono>,
    /// The change before that.
    before: Option<Mono>,
    /// Since when we have been watching without a gap.
    watching: Mono,
    polled: Option<Mono>,
}

impl Beat {
    /// Whether it is a sign of life.
    pub(crate) fn see(&mut self, token: &str, now: Mono) -> bool {
        let gap = self.polled.is_none_or(|polled| now.since(polled) > POLL_GAP);
        self.polled = Some(now);
        if gap {
            // The first look, and the first after a gap, show the past and not a sign of life.
            self.watching = now;
            self.token = Some(token.into());
            return false;
        }
        let changed = self.token.as_deref() != Some(token);
        if changed {
            self.token = Some(token.into());
            self.before = self.changed.replace(now);
        }
        changed
    }

    /// Whether it changes right now and again and again, which no single touch brings about.
    fn goes_on(&self, now: Mono) -> bool {
        let lately = |before: Mono| now.since(before) <= POLL_GAP * 2;
        self.changed == Some(now) && self.before.is_some_and(lately)
    }

    /// The time changed, and not because the host reported.
    fn note(&mut self, token: &str, now: Mono) {
        let known = (self.changed, self.before);
        self.see(token, now);
        (self.changed, self.before) = known;
    }

    /// What was seen so far belongs to the past: only a report from here on is a sign of life.
    pub(crate) fn start_over(&mut self, now: Mono) {
        self.changed = None;
        self.watching = now;
    }

    fn verdict(&self, now: Mono, alive: Duration, dead: Duration, broken: Broken) -> GroupVerdict {
        let age = self.changed.map(|changed| now.since(changed));
        let usable = self.polled.is_some_and(|polled| now.since(polled) <= POLL_GAP);
        let since = self.changed.unwrap_or(self.watching).max(self.watching);
        let verdict = if age.is_some_and(|age| age <= alive) {
            Verdict::Alive
        } else if !usable {
            if broken.is(Mutation::MissingIsDead) {
                Verdict::Dead
            } else {
                Verdict::Unknown
            }
        } else if now.since(since) > dead {
            Verdict::Dead
        } else {
            Verdict::Unknown
        };
        group(verdict, age)
    }
}

/// What Nova last said of a host's service, apart from when it reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Service {
    pub(crate) up: bool,
    pub(crate) disabled: bool,
    pub(crate) forced_down: bool,
}

impl Service {
    fn changed_by_hand(self, before: Self) -> bool {
        (self.disabled, self.forced_down) != (before.disabled, before.forced_down)
    }
}

impl From<&ServiceFacts> for Service {
    fn from(facts: &ServiceFacts) -> Self {
        Self {
            up: facts.up,
            disabled: facts.disabled,
            forced_down: facts.forced_down,
        }
    }
}

#[derive(Clone, Debug)]
struct Probes {
    asked_at: Mono,
    result: ProbeResult,
    timeouts: u32,
    rack: Option<Domain>,
}

/// What a source that judges by itself said, and for how long that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    at: Mono,
    up: bool,
    good_for: Duration,
}

impl Word {
    pub(crate) fn new(up: bool, good_for: Duration, now: Mono) -> Self {
        Self {
            at: now,
            up,
            good_for,
        }
    }

    fn counts(&self, now: Mono) -> bool {
        now.since(self.at) <= self.good_for
    }
}

/// What the sources of one group said, each for itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(BTreeMap<String, Word>);

impl Words {
    /// Takes the latest word of a source. Whether it is what counted of this source before.
    pub(crate) fn hear(&mut self, source: &str, word: Word) -> bool {
        self.forget(word.at);
        if let Some(said) = self.0.get_mut(source) {
            return std::mem::replace(said, word).up == word.up;
        }
        self.0.insert(source.to_owned(), word);
        false
    }

    fn forget(&mut self, now: Mono) {
        self.0.retain(|_, word| word.counts(now));
    }

    /// Whether all that was said still counts.
    fn fresh(&self, now: Mono) -> bool {
        self.0.values().all(|word| word.counts(now))
    }

    /// What they say together. Who may accuse is not outvoted; who may only defend is enough alone.
    fn verdict(&self, now: Mono, accuses: bool) -> GroupVerdict {
        let youngest = |up: bool| {
            let said = self.0.values().filter(|word| word.up == up && word.counts(now));
            said.map(|word| now.since(word.at)).min()
        };
        match (youngest(false), youngest(true)) {
            (Some(age), _) if accuses => group(Verdict::Dead, Some(age)),
            (_, Some(age)) => group(Verdict::Alive, Some(age)),
            (Some(age), None) => group(Verdict::Unknown, Some(age)),
            (None, None) => GroupVerdict::default(),
        }
    }
}

/// Everything heard of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) agent: Agent,
    pub(crate) heard_in_term: bool,
    peers: BTreeMap<ReplicaId, (Mono, PeerHost)>,
    pub(crate) nova: Beat,
    pub(crate) service: Service,
    pub(crate) lease: Beat,
    probes: BTreeMap<Prober, Probes>,
    pub(crate) metrics: Words,
    pub(crate) storage: Words,
    /// Since when the device has been reading Off, and when it last did.
    off: Option<(Mono, Mono)>,
    /// When it last read On, if that was the latest it said.
    on: Option<Mono>,
    /// When somebody last reached the host although the device read Off.
    reached: Option<Mono>,
    /// When the host last answered a probe, or monitoring or storage last saw it live.
    lived: Option<Mono>,
    /// Until when its neighbours may have kept it alive although it was cut off.
    kept: Option<Mono>,
    /// When its watchdog was last found to have fired.
    fired: Option<Mono>,
}

impl Signals {
    pub(crate) fn peer(&mut self, replica: ReplicaId, seen: &PeerHost, now: Mono) {
        match self.peers.get_mut(&replica) {
            Some((at, known)) if known.boot == seen.boot => {
                (*at, known.age_ms, known.resets_after) = (now, seen.age_ms, seen.resets_after);
            }
            _ => {
                self.peers.insert(replica, (now, seen.clone()));
            }
        }
    }

    /// Whether its compute service or its kubelet reports right now, as those of a host that works do.
    pub(crate) fn reports(&self, now: Mono) -> bool {
        self.nova.goes_on(now) || self.lease.goes_on(now)
    }

    /// Takes what Nova says of the compute service. Whether it is a sign of life: the time also changes when somebody disables
    /// the service or forces it down.
    pub(crate) fn service_seen(&mut self, facts: &ServiceFacts, now: Mono) -> bool {
        let before = std::mem::replace(&mut self.service, facts.into());
        if self.service.changed_by_hand(before) {
            self.nova.note(&facts.updated_at, now);
            return false;
        }
        self.nova.see(&facts.updated_at, now)
    }

    /// Takes what a source that judges by itself said. Whether it is what counted of this source before.
    pub(crate) fn judged(&mut self, by: Onlooker, source: &str, word: Word) -> bool {
        if word.up {
            self.lived = self.lived.max(Some(word.at));
        }
        let words = match by {
            Onlooker::Monitoring => &mut self.metrics,
            Onlooker::Storage => &mut self.storage,
        };
        words.hear(source, word)
    }

    /// Whether every source that tells of life has told of it lately, and nothing else was heard: what a round that
    /// found the host well would find again.
    pub(crate) fn still_fresh(&self, now: Mono, config: &Config) -> bool {
        let fresh = |at: Option<Mono>, span: Duration| at.is_some_and(|at| now.since(at) <= span);
        fresh(self.agent.last, config.heartbeat_alive)
            && fresh(self.nova.changed, config.nova_alive)
            && fresh(self.lease.changed, config.lease_alive)
            && self.metrics.fresh(now)
            && self.storage.fresh(now)
    }

    /// Whether nobody was asked about the host, and no device told that it is off.
    pub(crate) fn unquestioned(&self) -> bool {
        self.unasked() && self.off.is_none()
    }

    /// Whether nobody has asked the host itself.
    pub(crate) fn unasked(&self) -> bool {
        self.probes.is_empty()
    }

    pub(crate) fn probe(&mut self, by: Prober, rack: Option<Domain>, asked_at: Mono, result: ProbeResult) {
        let track = self.probes.entry(by).or_insert(Probes {
            asked_at,
            result,
            timeouts: 0,
            rack: None,
        });
        if asked_at < track.asked_at {
            return;
        }
        let again = asked_at > track.asked_at || track.timeouts == 0;
        track.timeouts = match result {
            ProbeResult::Timeout => track.timeouts + u32::from(again),
            _ => 0,
        };
        track.asked_at = asked_at;
        track.result = result;
        track.rack = rack;
        if result != ProbeResult::Timeout {
            self.lived = self.lived.max(Some(asked_at));
        }
        if result != ProbeResult::Timeout && self.off.is_some_and(|(first, _)| asked_at > first) {
            self.reached = Some(asked_at);
        }
    }

    pub(crate) fn power(&mut self, power: Option<Power>, asked_at: Mono) {
        match power {
            Some(Power::On) => self.on = Some(asked_at),
            Some(Power::Off) => self.on = None,
            None => {}
        }
        match (power, self.off) {
            (Some(Power::Off), None) => self.off = Some((asked_at, asked_at)),
            (Some(Power::Off), Some((first, last))) => self.off = Some((first, last.max(asked_at))),
            (Some(Power::On), _) => (self.off, self.reached) = (None, None),
            (None, _) => {}
        }
    }

    /// Whether the device has just said On.
    pub(crate) fn powered_on(&self, now: Mono, config: &Config) -> bool {
        self.on.is_some_and(|at| now.since(at) <= config.answer_fresh)
    }

    /// When somebody last tried to reach the host in vain, since probes were last forgotten.
    pub(crate) fn last_unanswered(&self) -> Option<Mono> {
        let in_vain = self.probes.values().filter(|p| p.result == ProbeResult::Timeout);
        in_vain.map(|p| p.asked_at).max()
    }

    /// When a device that says Off was last asked.
    pub(crate) fn last_off(&self) -> Option<Mono> {
        self.off.map(|(_, last)| last)
    }

    /// What does not count any more is not looked at again.
    pub(crate) fn forget_words(&mut self, now: Mono) {
        self.metrics.forget(now);
        self.storage.forget(now);
    }

    /// A suspicion ended: what was probed belongs to it.
    pub(crate) fn forget_probes(&mut self) {
        self.probes.clear();
    }

    /// When any replica last heard the agent, as this process's clock counts.
    pub(crate) fn last_heard(&self) -> Option<Mono> {
        let peers = self
            .peers
            .values()
            .filter_map(|(at, seen)| Some(at.before(Duration::from_millis(seen.age_ms?))));
        self.agent.last.into_iter().chain(peers).max()
    }

    /// The boot that was heard of last, whichever replica heard it.
    pub(crate) fn latest_boot(&self) -> Option<&BootId> {
        let ours = self.agent.last.zip(self.agent.boot.as_ref());
        let peers = self.peers.values().filter_map(|(at, seen)| {
            let last = at.before(Duration::from_millis(seen.age_ms?));
            Some((last, seen.boot.as_ref()?))
        });
        let latest = peers.chain(ours).max_by_key(|(last, _)| *last);
        latest.map(|(_, boot)| boot)
    }

    /// The youngest heartbeat any replica knows of.
    pub(crate) fn heartbeat_age(&self, now: Mono) -> Option<Duration> {
        self.last_heard().map(|last| now.since(last))
    }

    /// Whether this replica itself hears the host.
    pub(crate) fn fresh_here(&self, now: Mono, silence: Duration) -> bool {
        self.agent.last.is_some_and(|last| now.since(last) <= silence)
    }

    /// Whether another replica says that it hears the host, and said so just now.
    pub(crate) fn fresh_at(&self, replica: ReplicaId, now: Mono, silence: Duration, config: &Config) -> bool {
        self.peers.get(&replica).is_some_and(|(at, seen)| {
            let said = now.since(*at) <= config.answer_fresh;
            let age = |ms: u64| Duration::from_millis(ms) + now.since(*at);
            said && seen.age_ms.is_some_and(|ms| age(ms) <= silence)
        })
    }

    /// One snapshot of all groups. `listening` is since when we have been, without a gap.
    pub(crate) fn evidence(
        &self,
        now: Now,
        listening: Mono,
        config: &Config,
        blind: bool,
        broken: Broken,
    ) -> Evidence {
        let mono = now.mono;
        let mut evidence = Evidence {
            blind,
            ..Evidence::default()
        };
        let mut set = |group: Group, verdict| evidence.groups[group as usize] = verdict;
        set(Group::A, self.agent_verdict(now, config, broken));
        set(
            Group::N,
            self.nova
                .verdict(mono, config.nova_alive, config.nova_dead, broken),
        );
        set(
            Group::K,
            self.lease
                .verdict(mono, config.lease_alive, config.lease_dead, broken),
        );
        set(Group::P, self.replica_probes(mono, config, broken));
        set(Group::Q, self.peer_probes(mono, config));
        set(Group::M, self.metrics.verdict(mono, true));
        set(Group::S, self.storage.verdict(mono, false));
        set(Group::B, self.power_verdict(mono, config));
        if self.self_fenced(mono, listening, config, broken) && !evidence.any_alive() {
            evidence.groups[Group::W as usize].verdict = Verdict::Dead;
        }
        evidence.proof_contradicted = self.contradicted(mono);
        evidence
    }

    fn voices(&self, now: Mono, config: &Config) -> usize {
        let fresh = |at: Mono| now.since(at) <= config.answer_fresh;
        1 + self.peers.values().filter(|(at, _)| fresh(*at)).count()
    }

    fn agent_verdict(&self, now: Now, config: &Config, broken: Broken) -> GroupVerdict {
        let mono = now.mono;
        if broken.is(Mutation::TrustSenderClock) && self.agent.last.is_some() {
            let age = u64::try_from(now.wall.as_millisecond() - self.agent.sent_at_ms).unwrap_or(0);
            let age = Duration::from_millis(age);
            let verdict = if age <= config.silent_after {
                Verdict::Alive
            } else {
                Verdict::Dead
            };
            return group(verdict, Some(age));
        }
        let Some(age) = self.heartbeat_age(mono) else {
            return GroupVerdict::default();
        };
        let vouched = self.heard_in_term || self.peers.values().any(|(_, seen)| seen.age_ms.is_some());
        let majority = usize::from(config.replicas) / 2 + 1;
        let heard = self.voices(mono, config) >= majority || broken.is(Mutation::MissingIsDead);
        let verdict = if age <= config.heartbeat_alive {
            Verdict::Alive
        } else if age > config.silent_after && heard && vouched {
            Verdict::Dead
        } else {
            Verdict::Unknown
        };
        group(verdict, Some(age))
    }

    fn replica_probes(&self, now: Mono, config: &Config, broken: Broken) -> GroupVerdict {
        let ours = || {
            self.probes
                .iter()
                .filter(|(by, _)| matches!(by, Prober::Replica(_)))
                .map(|(_, p)| p)
        };
        let needed = usize::from(config.replicas).min(2);
        let silent = ours()
            .filter(|p| p.timeouts >= 2 && now.since(p.asked_at) <= config.answer_fresh)
            .count();
        let missing = broken.is(Mutation::MissingIsDead) && ours().count() < needed;
        probed(ours(), now, config, silent >= needed || missing)
    }

    fn peer_probes(&self, now: Mono, config: &Config) -> GroupVerdict {
        let peers = || {
            self.probes
                .iter()
                .filter(|(by, _)| matches!(by, Prober::Peer(_)))
                .map(|(_, p)| p)
        };
        let silent: Vec<_> = peers()
            .filter(|p| p.timeouts >= 2 && now.since(p.asked_at) <= config.answer_fresh)
            .collect();
        let racks: std::collections::BTreeSet<_> = silent.iter().filter_map(|p| p.rack.as_ref()).collect();
        let most = (config.probe_peers * 3).div_ceil(4).max(2);
        probed(peers(), now, config, silent.len() >= most && racks.len() >= 2)
    }

    fn power_verdict(&self, now: Mono, config: &Config) -> GroupVerdict {
        match self.off {
            Some((first, last))
                if last.since(first) >= config.verify_gap && now.since(last) <= config.answer_fresh =>
            {
                group(Verdict::Dead, None)
            }
            _ => GroupVerdict::default(),
        }
    }

    /// Whether anybody saw life after the device began to read Off. Reports of the last moments
    /// surface a little later, so those get some grace. A device that was caught is not believed
    /// again as soon as an answer got lost.
    fn contradicted(&self, now: Mono) -> bool {
        let Some((first, _)) = self.off else {
            return false;
        };
        let recent = |at: Mono| now.since(at) <= DISTRUST;
        let changed = |beat: &Beat| {
            beat.changed
                .is_some_and(|changed| changed > first.after(REPORT_LAG) && recent(changed))
        };
        self.reached.is_some_and(recent) || changed(&self.nova) || changed(&self.lease)
    }
}

fn probed<'a>(
    probes: impl Iterator<Item = &'a Probes> + Clone,
    now: Mono,
    config: &Config,
    dead: bool,
) -> GroupVerdict {
    let any = |wanted: ProbeResult| {
        let fresh = |p: &&Probes| now.since(p.asked_at) <= config.heartbeat_alive;
        probes.clone().filter(fresh).any(|p| p.result == wanted)
    };
    let verdict = if any(ProbeResult::App) {
        Verdict::Alive
    } else if any(ProbeResult::Kernel) {
        Verdict::KernelOnly
    } else if dead {
        Verdict::Dead
    } else {
        Verdict::Unknown
    };
    group(verdict, None)
}

fn group(verdict: Verdict, age: Option<Duration>) -> GroupVerdict {
    GroupVerdict {
        verdict,
        age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        untrusted: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_api::names::HostName;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// An agent's word: of which boot, after how many starts, and how many seconds after it booted.
    fn beat(boot: &str, starts: u64, second: u64) -> Heartbeat {
        Heartbeat {
            host: HostName::new("n1").unwrap(),
            agent: AgentId("agent".to_owned()),
            starts,
            boot: BootId(boot.to_owned()),
            mono_ns: second * 1_000_000_000,
            up_for: s(second),
            sent_at_ms: 0,
            libvirt: true,
            machine: Identity::default(),
            resets_after: None,
            planned_shutdown: false,
        }
    }

    fn hears(agent: &mut Agent, beat: &Heartbeat, second: u64) -> Heard {
        agent.hear(beat, s(15), Mono(second * 1000), Broken::default())
    }

    #[test]
    fn an_earlier_boot_that_was_never_heard_here_is_known_by_the_starts_of_its_agent() {
        let mut agent = Agent::default();
        assert_eq!(hears(&mut agent, &beat("second", 2, 30), 100), Heard::First);
        assert_eq!(hears(&mut agent, &beat("first", 1, 600), 101), Heard::Nothing);
        assert_eq!(hears(&mut agent, &beat("second", 2, 35), 105), Heard::Life);
        assert_eq!(hears(&mut agent, &beat("third", 3, 1), 200), Heard::NewBoot);
        assert_eq!(hears(&mut agent, &beat("second", 2, 40), 201), Heard::Nothing);
    }

    #[test]
    fn a_boot_taken_for_past_is_believed_when_it_alone_goes_on_speaking() {
        let mut agent = Agent::default();
        hears(&mut agent, &beat("old", 7, 600), 0);
        // Its spool was restored from a copy, and counts from there.
        for second in [10, 15, 20, 25] {
            assert_eq!(hears(&mut agent, &beat("new", 3, second), second), Heard::Nothing);
        }
        assert_eq!(hears(&mut agent, &beat("new", 3, 30), 30), Heard::NewBoot);
        assert_eq!(hears(&mut agent, &beat("new", 3, 35), 35), Heard::Life);
        assert_eq!(agent.last, Some(Mono(35_000)));
    }

    #[test]
    fn late_words_of_a_past_boot_never_add_up_to_a_living_one() {
        let mut agent = Agent::default();
        hears(&mut agent, &beat("first", 1, 600), 0);
        hears(&mut agent, &beat("second", 2, 1), 60);
        // Now and then, again and again the same, or while the present one speaks.
        for (boot, starts, sent, second) in [
            ("first", 1, 605, 70),
            ("first", 1, 610, 90),
            ("first", 1, 610, 95),
            ("first", 1, 610, 100),
            ("first", 1, 610, 106),
            ("second", 2, 50, 109),
            ("first", 1, 615, 110),
            ("first", 1, 620, 120),
        ] {
            let heard = hears(&mut agent, &beat(boot, starts, sent), second);
            let expected = if boot == "second" {
                Heard::Life
            } else {
                Heard::Nothing
            };
            assert_eq!(heard, expected, "{boot} at {second}");
        }
    }

    /// What the leader heard and what a peer tells: when that was, and whether the watchdog ran.
    fn reset_itself(own: (u64, bool), peer: (u64, bool), second: u64) -> bool {
        let config = Config::default();
        let armed = |armed: bool| armed.then(|| s(105));
        let mut signals = Signals::default();
        let beat = Heartbeat {
            resets_after: armed(own.1),
            ..beat("boot", 1, 1)
        };
        hears(&mut signals.agent, &beat, own.0);
        for replica in [1, 2] {
            let seen = PeerHost {
                age_ms: Some((second - peer.0) * 1000),
                boot: None,
                resets_after: armed(peer.1),
            };
            signals.peer(ReplicaId(replica), &seen, Mono(second * 1000));
        }
        signals.self_fenced(Mono(second * 1000), Mono(0), &config, Broken::default())
    }

    #[test]
    fn that_a_watchdog_runs_is_believed_of_whoever_heard_the_host_last() {
        assert!(reset_itself((100, true), (100, true), 206));
        // One heartbeat never came to the leader.
        assert!(!reset_itself((100, true), (110, true), 206), "it is too early");
        assert!(reset_itself((100, true), (110, true), 216));
        for own in [90, 100, 109] {
            assert!(
                !reset_itself((own, true), (110, false), 900),
                "it was stopped, and that was told elsewhere"
            );
        }
        assert!(!reset_itself((110, false), (109, true), 900), "and here");
    }

    fn said(words: &Words, accuses: bool, second: u64) -> Verdict {
        words.verdict(Mono(second * 1000), accuses).verdict
    }

    #[test]
    fn a_word_counts_as_long_as_its_source_promises_and_no_longer() {
        let mut words = Words::default();
        words.hear("prometheus", Word::new(false, s(39), Mono(0)));
        assert_eq!(said(&words, true, 39), Verdict::Dead);
        assert_eq!(
            said(&words, true, 40),
            Verdict::Unknown,
            "what is old accuses nobody"
        );
        assert!(words.fresh(Mono(39_000)) && !words.fresh(Mono(40_000)));
        let mut words = Words::default();
        words.hear("ceph", Word::new(true, s(300), Mono(0)));
        assert_eq!(said(&words, false, 300), Verdict::Alive);
        assert_eq!(said(&words, false, 301), Verdict::Unknown, "nor defends it");
    }

    #[test]
    fn sources_of_one_group_do_not_take_back_what_others_say() {
        let mut words = Words::default();
        let tell = |words: &mut Words, source: &str, up: bool, second: u64| {
            words.hear(source, Word::new(up, s(30), Mono(second * 1000)))
        };
        assert!(!tell(&mut words, "one", false, 0), "that is news");
        assert!(!tell(&mut words, "other", true, 10));
        assert_eq!(
            said(&words, true, 20),
            Verdict::Dead,
            "an accuser is not outvoted"
        );
        assert_eq!(said(&words, false, 20), Verdict::Alive, "a witness is enough");
        assert!(tell(&mut words, "one", false, 20), "that was known");
        assert!(!tell(&mut words, "one", true, 21), "that is news again");
        assert_eq!(said(&words, true, 22), Verdict::Alive);
        assert!(
            !tell(&mut words, "one", true, 60),
            "what had grown old counted for nothing"
        );
        assert_eq!(words.0.len(), 1, "and is forgotten");
    }

    #[test]
    fn storage_that_shows_no_session_accuses_nobody() {
        let mut words = Words::default();
        words.hear("ceph", Word::new(false, s(30), Mono(0)));
        assert_eq!(said(&words, false, 1), Verdict::Unknown);
    }

    #[test]
    fn three_quarters_of_the_neighbours_that_are_asked_must_find_nobody() {
        let asked = |peers: usize, silent: u8, racks: u8| {
            let config = Config {
                probe_peers: peers,
                ..Config::default()
            };
            let mut signals = Signals::default();
            for n in 0..silent {
                let peer = || Prober::Peer(HostName::new(format!("n{n}")).unwrap());
                let rack = || Some(Domain(format!("bb={}", n % racks)));
                signals.probe(peer(), rack(), Mono(1000), ProbeResult::Timeout);
                signals.probe(peer(), rack(), Mono(2000), ProbeResult::Timeout);
            }
            signals.peer_probes(Mono(3000), &config).verdict
        };
        for (peers, enough) in [(2, 2), (3, 3), (4, 3), (5, 4), (8, 6)] {
            assert_eq!(asked(peers, enough, 2), Verdict::Dead, "{enough} of {peers}");
            assert_eq!(asked(peers, enough - 1, 2), Verdict::Unknown, "fewer of {peers}");
            assert_eq!(asked(peers, enough, 1), Verdict::Unknown, "all in one rack");
        }
    }
}
