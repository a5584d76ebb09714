// SPDX-License-Identifier: Apache-2.0
//! The promises, and who broke one. Safety is judged against the truth of the world at the moment
//! an effect reaches it, not against what the engine believed.

use std::fmt;

/// A promise of the HA plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// No guest executes on two hosts.
    S1OneCopy,
    /// No evacuation of a host that is not off, or whose fence was not looked at within ten seconds.
    S2Fenced,
    /// No healthy host is switched off, whatever signal was lost.
    S3NoFalseFence,
    /// No power command while the service is cut off, new to the job, paused or in a storm.
    S4Brakes,
    /// Never more hosts in flight than allowed.
    S5InFlight,
    /// Never two evacuations of one guest.
    S6OneRequest,
    /// No effect of a term after one of a later term.
    S7Terms,
    /// No effect without its durable intent.
    S8Journal,
    /// An acknowledged record is stored on most replicas and survives any single crash.
    S9Stored,
    /// No disk rebuilt empty, no excluded guest touched, no stopped guest started.
    S10Guests,
    /// `manual` is never overridden without approval.
    S11Manual,
    /// The condition only on a claimed host, `forced_down` only on a fenced one, and no evacuation before it.
    S12Order,
    /// Maintenance is not given back before a new boot and a report of its compute service, and while
    /// Nova has open records.
    S13Release,
    /// The numbers of records strictly increase, and replays change nothing.
    S14Numbers,
    /// A dead host with everything working: first request within 75 seconds.
    L1Fast,
    /// Once faults stop, every guest is settled.
    L2Settled,
    /// Somebody leads within 35 seconds, whenever somebody could.
    L3Succession,
    /// Once faults stop, no living host stays suspect.
    L4Calm,
    /// People are told of every incident that waits, and why.
    L5Told,
    /// The cover of a host is told five seconds after its object changed.
    L6Cover,
    /// A backlog of records goes at two MiB a second, and completely.
    L7Backlog,
    /// Once faults stop, a host that is given back is in service five minutes after its compute service is up.
    L8GivenBack,
    /// The outcome the failure matrix demands.
    Outcome,
}

impl Invariant {
    /// Its short name.
    pub fn id(self) -> &'static str {
        match self {
            Self::S1OneCopy => "S1",
            Self::S2Fenced => "S2",
            Self::S3NoFalseFence => "S3",
            Self::S4Brakes => "S4",
            Self::S5InFlight => "S5",
            Self::S6OneRequest => "S6",
            Self::S7Terms => "S7",
            Self::S8Journal => "S8",
            Self::S9Stored => "S9",
            Self::S10Guests => "S10",
            Self::S11Manual => "S11",
            Self::S12Order => "S12",
            Self::S13Release => "S13",
            Self::S14Numbers => "S14",
            Self::L1Fast => "L1",
            Self::L2Settled => "L2",
            Self::L3Succession => "L3",
            Self::L4Calm => "L4",
            Self::L5Told => "L5",
            Self::L6Cover => "L6",
            Self::L7Backlog => "L7",
            Self::L8GivenBack => "L8",
            Self::Outcome => "outcome",
        }
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When, in milliseconds of virtual time.
    pub at_ms: u64,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at_ms / 1000;
        write!(
            f,
            "{} at {}.{:03}s: {}",
            self.invariant.id(),
            seconds,
            self.at_ms % 1000,
            self.what
        )
    }
}
