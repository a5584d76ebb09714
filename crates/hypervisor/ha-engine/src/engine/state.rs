// SPDX-License-Identifier: Apache-2.0
//! What a leader knows beside the ledger: of each host, of each incident it drives and of each guest
//! it moves. All of it is soft and began in this process; a successor learns it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};

use crate::evidence::{Evidence, Group, GroupVerdict};
use crate::ids::{Domain, Epoch, Grade, Mono};
use crate::input::{
    HostFacts, Identity, Inventory, MigrationFacts, Onlooker, Power, ServerFacts, ServiceFacts,
};
use crate::ledger::IncidentState;
use crate::monitors::{Contradiction, HostMonitors, Reboot, Suspicion};
use crate::signals::{Signals, Word};
use crate::status::HeldReason;
use crate::vms::Lists;

/// One host and what is known of it. Soft: a new process learns it anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) facts: Option<HostFacts>,
    pub(crate) signals: Signals,
    pub(crate) inventory: Option<(Mono, Inventory)>,
    pub(crate) suspicion: Option<Suspicion>,
    pub(crate) blind: bool,
    pub(crate) shutdown_announced: Option<Mono>,
    /// The boot after which its guests may be missing.
    pub(crate) rebooted: Option<Reboot>,
    /// Its device says Off, and it shows life.
    pub(crate) contradiction: Option<Contradiction>,
    /// When an incident of it was last called off.
    pub(crate) cancelled: Option<Mono>,
    /// A person ended its incident, and it has not been heard since.
    pub(crate) ended: bool,
    /// It spoke or worked although a person had signed that it is off, whoever led then.
    pub(crate) spoke: bool,
    pub(crate) dead_in: [bool; 9],
    /// The verdict of the latest round.
    pub(crate) evidence: Evidence,
    /// Since when every round found it dead beyond any doubt.
    pub(crate) overwhelming: Option<Mono>,
    pub(crate) monitors: HostMonitors,
    /// The latest round found it well, and since then nothing but signs of life was heard of it: as long as they are
    /// fresh, another look would find the same.
    pub(crate) calm: bool,
    /// The rack in which it stood when it was heard here last.
    pub(crate) stood_in: Option<Domain>,
}

impl Host {
    /// The innermost of its failure domains.
    pub(crate) fn rack(&self) -> Option<&Domain> {
        self.facts.as_ref()?.domains.last()
    }

    pub(super) fn told(&mut self, facts: &HostFacts) {
        if self.facts.as_ref() != Some(facts) {
            self.facts = Some(facts.clone());
            self.calm = false;
        }
    }

    pub(super) fn service_seen(&mut self, facts: &ServiceFacts, now: Mono) {
        let reported = self.signals.service_seen(facts, now);
        if let Some(reboot) = self.rebooted.as_mut().filter(|_| reported) {
            reboot.reported(now);
        }
    }

    pub(super) fn judged(&mut self, by: Onlooker, source: &str, word: Word) {
        self.calm &= self.signals.judged(by, source, word);
    }

    /// Takes a power reading. One that says On ends a proof at once, not with the next round.
    pub(crate) fn power_read(&mut self, power: Option<Power>, asked_at: Mono) {
        self.signals.power(power, asked_at);
        self.calm = false;
        if power == Some(Power::On) {
            self.evidence.groups[Group::B as usize] = GroupVerdict::default();
        }
    }
}

/// The term of this leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) since: Mono,
    pub(crate) renewed: Mono,
    pub(super) next_action: u64,
    pub(super) next_incident: u32,
}

/// What at most one action may be under way for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    Investigate(HostName),
    HostPower(HostName),
    HostList(HostName),
    Guest(ServerId),
    Zombie(HostName, ServerId),
    Double(ServerId),
    Resign,
    Maintenance,
    Claim,
    Eviction,
    Identify,
    Power,
    Off,
    Hold,
    Service,
    Update,
    Condition,
    List,
    Vm(ServerId),
    /// Reading guests, all of them together.
    Guests,
    /// Asking Nova to move guests, all of them together.
    Requests,
    Fence,
    Restore,
    Spare(HostName),
    Lists,
}

/// A fact read for an incident: when it was asked for, and what it said.
pub(crate) type Read<T> = Option<(Mono, T)>;

/// A server and its migrations as they were read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When they were asked for: what was done later is not in it.
    pub(crate) asked: Mono,
    /// When the answer came. It ages from here: an answer that took long would otherwise be too old whenever it comes.
    pub(crate) came: Mono,
    pub(crate) server: Option<ServerFacts>,
    pub(crate) migrations: Vec<MigrationFacts>,
}

/// What a leader knows of one guest it moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct VmRun {
    pub(crate) read: Option<Seen>,
    /// Nothing is sent before this moment.
    pub(crate) not_before: Mono,
    /// When the latest request was answered, or this term learnt that there was one.
    pub(crate) answered: Option<Mono>,
    /// What the latest request was answered is known, so whatever it did was done by then.
    pub(crate) clear: bool,
    /// The latest request was refused for a reason that is not the guest's; the next one is the same attempt.
    pub(crate) uncounted: bool,
    /// When the latest request left in this term.
    pub(crate) asked_last: Option<Mono>,
    pub(crate) since: Mono,
    pub(crate) stuck: bool,
    pub(crate) needs_reset: bool,
    pub(crate) live_seen: Option<Mono>,
    /// This term has tried to lock it.
    pub(crate) lock_tried: bool,
}

/// Readings of Off in a row. Those too soon after the one before them count with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffReads {
    /// How many, far enough apart.
    pub(crate) count: u32,
    /// When the first of all was asked for.
    pub(crate) first: Mono,
    /// When the latest of those that count was asked for.
    counted: Mono,
    /// When the latest of all was asked for.
    pub(crate) last: Mono,
}

impl OffReads {
    /// One more, asked for at a moment.
    pub(crate) fn with(before: Option<Self>, asked: Mono, gap: Duration) -> Self {
        match before {
            None => Self {
                count: 1,
                first: asked,
                counted: asked,
                last: asked,
            },
            Some(reads) if asked.since(reads.counted) >= gap => Self {
                count: reads.count.saturating_add(1),
                counted: asked,
                last: asked,
                ..reads
            },
            Some(reads) => Self { last: asked, ..reads },
        }
    }
}

/// What a leader knows of one incident besides the ledger. Every time in it began in this term.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) state: IncidentState,
    pub(crate) state_since: Mono,
    pub(crate) held: Option<HeldReason>,
    /// When people were last told why.
    pub(crate) held_told: Mono,
    pub(crate) maintenance: Read<Maintenance>,
    /// When that answer came.
    pub(crate) maintenance_came: Mono,
    pub(crate) identity: Read<Identity>,
    pub(crate) service: Read<ServiceFacts>,
    /// When each slot may be used again, and how often it failed in a row.
    pub(crate) retry: BTreeMap<Slot, (Mono, u32)>,
    pub(crate) fence_since: Mono,
    pub(crate) level_since: Mono,
    /// The level that is tried, if it is another than the journal has.
    pub(crate) level: Option<usize>,
    /// When the latest power-off ended; readings asked for before it verify nothing.
    pub(crate) off_done: Option<Mono>,
    /// This term has sent a power-off: the command left, whatever became of it.
    pub(crate) off_sent: bool,
    /// Off readings in a row.
    pub(crate) off_reads: Option<OffReads>,
    pub(crate) power_asked: Option<Mono>,
    pub(crate) power_on_seen: bool,
    /// This term has asked for the power or the hold, and knows what came of it.
    pub(crate) power_looked: bool,
    pub(crate) power_answered: Mono,
    /// What the latest reading is worth, if it was not read from a device.
    pub(crate) presumed: Option<Grade>,
    /// When the fence was last seen to hold.
    pub(crate) hold_ok: Option<Mono>,
    /// When the fence was last found to be good.
    pub(crate) fenced_at: Option<Mono>,
    /// Nobody keeps the host off any more.
    pub(crate) unheld: bool,
    /// Whoever kept it off was told to let it go, and has.
    pub(crate) let_go: bool,
    /// Nova may believe that the host is up although it was forced down: it said so, or nobody has looked in this term or
    /// since the fence was lost, and somebody may have enabled it.
    pub(crate) believed_up: bool,
    pub(crate) eviction_stopped: bool,
    pub(crate) vms: BTreeMap<ServerId, VmRun>,
    pub(crate) group_since: BTreeMap<String, Mono>,
    pub(crate) healthy_since: Option<Mono>,
    /// Since when a host that was switched on has been saying nothing, and whether it has spoken before that.
    pub(crate) silent_since: Option<Mono>,
    pub(crate) spoke_anew: bool,
    /// Since when a host that an earlier term began to fence has been speaking of another boot.
    pub(crate) revived_since: Option<Mono>,
    /// Since when Nova has been seen to keep evacuations from the host on record.
    pub(crate) records_open: Option<Mono>,
    /// When everybody was last asked about the host of an incident that waits.
    pub(crate) investigated: Option<Mono>,
    /// People were told that there may be no room for its guests.
    pub(crate) told_room: bool,
    /// Nova found no place for one of its guests since spare hosts were last thought of.
    pub(crate) no_place: bool,
    /// The lists of guests that tell where a guest runs besides its host.
    pub(crate) lists: Lists,
    /// When the latest spare host was called.
    pub(crate) spare_called: Option<Mono>,
    /// Spare hosts that it was asked to enable.
    pub(crate) spares_asked: BTreeSet<HostName>,
    /// When too many hosts of its failure domain were last in trouble before it.
    pub(crate) crowded: Option<Mono>,
}

impl Run {
    pub(super) fn new(state: IncidentState, now: Mono) -> Self {
        Self {
            state,
            state_since: now,
            held: None,
            held_told: now,
            maintenance: None,
            maintenance_came: Mono(0),
            identity: None,
            service: None,
            retry: BTreeMap::new(),
            fence_since: now,
            level_since: now,
            level: None,
            off_done: None,
            off_sent: false,
            off_reads: None,
            power_asked: None,
            power_on_seen: false,
            power_looked: false,
            power_answered: now,
            presumed: None,
            hold_ok: None,
            fenced_at: None,
            unheld: false,
            let_go: false,
            believed_up: true,
            eviction_stopped: false,
            vms: BTreeMap::new(),
            group_since: BTreeMap::new(),
            healthy_since: None,
            silent_since: None,
            spoke_anew: false,
            revived_since: None,
            records_open: None,
            investigated: None,
            told_room: false,
            no_place: false,
            lists: Lists::default(),
            spare_called: None,
            spares_asked: BTreeSet::new(),
            crowded: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_off_count_when_they_are_far_enough_apart() {
        let gap = Duration::from_secs(2);
        let mut reads = None;
        let mut counts = Vec::new();
        for ms in [0, 1000, 1999, 2000, 3000, 4500, 5000, 9000] {
            let now = OffReads::with(reads, Mono(ms), gap);
            assert_eq!(now.last, Mono(ms));
            counts.push(now.count);
            reads = Some(now);
        }
        assert_eq!(counts, [1, 1, 1, 2, 2, 3, 3, 4]);
    }
}
