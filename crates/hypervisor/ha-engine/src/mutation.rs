// SPDX-License-Identifier: Apache-2.0
//! Ways to break the engine on purpose, so that the simulation can show it would notice. Without
//! the feature `mutants` nothing can ask for one: [`Broken`] is empty and every question about it
//! is answered `false` at compile time.

/// One deliberate mistake.
#[cfg_attr(not(feature = "mutants"), allow(dead_code, unreachable_pub, missing_docs))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A power-off that was accepted counts as a fence; nobody reads the power state.
    SkipFenceVerification,
    /// A power reading of any age counts, also one from before the power-off.
    AcceptStalePower,
    /// One dead group is enough, and no probe is asked.
    TrustOneSignal,
    /// A fresh sign of life does not stop the verdict.
    IgnoreAliveVeto,
    /// No answer is taken for a negative answer.
    MissingIsDead,
    /// The sender's clock decides how old a heartbeat is.
    TrustSenderClock,
    /// Evacuate requests leave without their record.
    NoJournalBeforeEvacuate,
    /// Guests are moved although the compute service could not be forced down.
    IgnoreForcedDownFailure,
    /// The host is moved away from although it came back.
    IgnoreFenceLoss,
    /// The fence is never looked at again.
    NoHoldCheck,
    /// Any number of hosts at once.
    NoStormBrake,
    /// Three hosts in flight is no limit.
    NoInFlightLimit,
    /// A leader that lost its lease goes on.
    IgnoreLease,
    /// The service acts although it hears nobody.
    IgnoreSelfIsolation,
    /// A new leader acts at once.
    NoWarmUp,
    /// A pause is not looked at.
    IgnorePause,
    /// `manual` maintenance is overridden.
    IgnoreMaintenance,
    /// The fencing device may belong to any machine.
    SkipIdentityCheck,
    /// A request without an answer is sent again without looking.
    ResendBlindly,
    /// A guest that runs elsewhere is moved all the same.
    IgnoreGuestElsewhere,
    /// Local disks are rebuilt empty.
    RebuildLocalDisks,
    /// Guests their owner had stopped are started.
    StartStopped,
    /// Maintenance is given back while Nova still has open records.
    ReleaseEarly,
    /// The condition is written before the host is claimed.
    ConditionBeforeClaim,
    /// Nobody is asked about a suspect before a minute is over.
    InvestigateLate,
    /// An incident is opened without what it was concluded from.
    NoSnapshot,
    /// Hosts are recovered for which HA is off.
    IgnoreHaDisabled,
    /// A leader fences the host it runs on.
    IgnoreOwnHost,
    /// That there is no room for the guests does not matter.
    IgnoreCapacity,
    /// Power is switched off without a record.
    NoJournalBeforeFence,
    /// Nobody is told that an incident waits.
    HoldSilently,
    /// Nobody is told that Nova keeps a host from being given back.
    ReleaseSilently,
    /// A host that nobody keeps off any more counts as held as long as it reads Off.
    IgnoreUnheld,
    /// A guest that arrived stopped is started whatever became of the fence of its old host.
    StartUnfenced,
    /// The next host of a rack is switched off as soon as the one before it is well.
    NoDomainCooldown,
    /// Start groups do not wait for each other.
    IgnoreGroups,
    /// A guest that somebody paused is moved all the same.
    IgnoreGuestPause,
    /// A host that is on again after its guests are settled is left on.
    LetGoAfterwards,
    /// Every spare host is enabled where nobody knows what is needed.
    CallEverySpare,
    /// Lists of guests are used as they come, however seldom that is.
    AskForNoLists,
    /// Somebody's word that a host is off counts whatever was heard of it since.
    TrustOldSignature,
    /// A host that has power counts as let go, whatever still keeps its compute service away.
    PowerIsRelease,
    /// A new leader does not know which hosts came and went before it.
    ForgetStorm,
    /// What an owner did after the plan was made, or before this term, does not count.
    ForgetOldWishes,
    /// What an earlier term began to switch off is switched off, though it works again.
    FinishOldFence,
    /// Word of an earlier boot that comes late is taken for that of a new one, and makes deaf to the present one.
    HeedOldBoots,
    /// A look at what people plan for a host counts until it is switched off, however long ago it was.
    TrustOldPlans,
    /// A new leader asks nobody but its device whether a host that was fenced is still off.
    TrustOldFence,
    /// Nova's answers are as old as the questions, so those that took long are never used.
    AgeAnswersByAsking,
    /// What was not answered is taken not to have happened after ten seconds.
    ResendEarly,
    /// Which machine a device belongs to is asked once.
    TrustOldIdentity,
    /// A watchdog that was armed once is taken to have fired, whoever heard or saw the host since.
    TrustOldWatchdog,
    /// Hosts that are cut off together are taken to have reset themselves, though each finds others that lost the service.
    IgnoreCompany,
}

#[cfg(feature = "mutants")]
impl Mutation {
    /// Every mistake there is.
    pub const ALL: &'static [Self] = &[
        Self::SkipFenceVerification,
        Self::AcceptStalePower,
        Self::TrustOneSignal,
        Self::IgnoreAliveVeto,
        Self::MissingIsDead,
        Self::TrustSenderClock,
        Self::NoJournalBeforeEvacuate,
        Self::IgnoreForcedDownFailure,
        Self::IgnoreFenceLoss,
        Self::NoHoldCheck,
        Self::NoStormBrake,
        Self::NoInFlightLimit,
        Self::IgnoreLease,
        Self::IgnoreSelfIsolation,
        Self::NoWarmUp,
        Self::IgnorePause,
        Self::IgnoreMaintenance,
        Self::SkipIdentityCheck,
        Self::ResendBlindly,
        Self::IgnoreGuestElsewhere,
        Self::RebuildLocalDisks,
        Self::StartStopped,
        Self::ReleaseEarly,
        Self::ConditionBeforeClaim,
        Self::InvestigateLate,
        Self::NoSnapshot,
        Self::IgnoreHaDisabled,
        Self::IgnoreOwnHost,
        Self::IgnoreCapacity,
        Self::NoJournalBeforeFence,
        Self::HoldSilently,
        Self::ReleaseSilently,
        Self::IgnoreUnheld,
        Self::StartUnfenced,
        Self::NoDomainCooldown,
        Self::IgnoreGroups,
        Self::IgnoreGuestPause,
        Self::LetGoAfterwards,
        Self::CallEverySpare,
        Self::AskForNoLists,
        Self::TrustOldSignature,
        Self::PowerIsRelease,
        Self::ForgetStorm,
        Self::ForgetOldWishes,
        Self::FinishOldFence,
        Self::HeedOldBoots,
        Self::TrustOldPlans,
        Self::TrustOldFence,
        Self::TrustOldWatchdog,
        Self::IgnoreCompany,
        Self::AgeAnswersByAsking,
        Self::ResendEarly,
        Self::TrustOldIdentity,
    ];
}

/// The mistake an engine was given, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken {
    #[cfg(feature = "mutants")]
    mutation: Option<Mutation>,
    #[cfg(feature = "mutants")]
    thorough: bool,
}

impl Broken {
    #[cfg(feature = "mutants")]
    pub(crate) fn by(mutation: Mutation) -> Self {
        Self {
            mutation: Some(mutation),
            thorough: false,
        }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn thorough() -> Self {
        Self {
            mutation: None,
            thorough: true,
        }
    }

    /// Whether a host that was found well is well as long as it only shows life. Not for mistakes that take something
    /// else for life, and not for those who compare.
    #[inline]
    pub(crate) fn trusts_calm(self) -> bool {
        #[cfg(feature = "mutants")]
        return !self.thorough && !self.is(Mutation::TrustSenderClock) && !self.is(Mutation::MissingIsDead);
        #[cfg(not(feature = "mutants"))]
        true
    }

    /// Whether the engine is to make this mistake.
    #[inline]
    pub(crate) fn is(self, mutation: Mutation) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutation == Some(mutation);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutation;
            false
        }
    }
}
