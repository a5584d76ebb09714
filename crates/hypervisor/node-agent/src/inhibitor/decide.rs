// SPDX-License-Identifier: Apache-2.0
//! The judgement about shutdowns. Doubt holds the shutdown back: an unknown number of guests is not zero, and only
//! an empty host, the eviction's own end or logind's limit lets it go on.

use std::fmt;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::EvacuationReadyReason as Reason;
use cobaltcore_kit::status::NewCondition;

/// logind goes on at its limit; giving the lock back a little earlier lets the agent say why.
const MARGIN: Duration = Duration::from_secs(3);

/// Whether the Hypervisor asks to hold shutdowns back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It does.
    Hold,
    /// It does not.
    Leave,
    /// It is not known yet; what is, stays.
    Unknown,
}

/// How far the eviction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionView {
    /// There is none yet.
    Absent,
    /// It has not ended.
    Running,
    /// It moved everything.
    Succeeded,
    /// It gave up.
    Failed,
}

/// Everything a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// What the Hypervisor asks for.
    pub ask: Ask,
    /// Whether logind can be asked for a lock now.
    pub reachable: bool,
    /// Whether the lock is held.
    pub locked: bool,
    /// Whether a shutdown has begun.
    pub begun: bool,
    /// How long ago it began.
    pub elapsed: Duration,
    /// How long logind lets itself be held back, when known.
    pub limit: Option<Duration>,
    /// How many guests run here; `None` when libvirt cannot be asked.
    pub guests: Option<usize>,
    /// The eviction of this shutdown.
    pub eviction: EvictionView,
    /// Whether the agent was asked to stop.
    pub stopping: bool,
}

/// Why a shutdown is not held back any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nobody asks for it any more.
    Disabled,
    /// The agent ends.
    Stopping,
    /// No guest runs here.
    Empty,
    /// The eviction says that everything was moved.
    Evacuated,
    /// The eviction gave up.
    Failed,
    /// logind will not wait any longer.
    Deadline,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "the Hypervisor does not ask for it",
            Self::Stopping => "the agent was asked to stop",
            Self::Empty => "no guest runs here",
            Self::Evacuated => "the eviction succeeded",
            Self::Failed => "the eviction failed",
            Self::Deadline => "logind does not wait any longer",
        })
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now.
    Wait,
    /// Take the lock.
    TakeLock,
    /// Ask for the guests to be moved.
    CreateEviction,
    /// Give the lock back.
    Release(Release),
    /// The part is done.
    End,
}

/// Decides.
///
/// ```
/// use cobaltcore_node_agent::inhibitor::{Ask, EvictionView, Situation, Step, decide};
/// let situation = Situation {
///     ask: Ask::Hold, reachable: true, locked: false, begun: false, elapsed: Default::default(),
///     limit: None, guests: Some(3), eviction: EvictionView::Absent, stopping: false,
/// };
/// assert_eq!(decide(&situation), Step::TakeLock);
/// ```
pub fn decide(situation: &Situation) -> Step {
    let Situation {
        ask,
        reachable,
        locked,
        begun,
        stopping,
        ..
    } = *situation;
    match (begun, locked) {
        (true, true) => evacuate(situation),
        (_, false) if stopping => Step::End,
        // It goes on without us, or was never held back.
        (true, false) => Step::Wait,
        (false, true) if stopping => Step::Release(Release::Stopping),
        (false, true) if ask == Ask::Leave => Step::Release(Release::Disabled),
        (false, false) if ask == Ask::Hold && reachable => Step::TakeLock,
        (false, _) => Step::Wait,
    }
}

fn evacuate(situation: &Situation) -> Step {
    let over = situation
        .limit
        .is_some_and(|limit| situation.elapsed >= deadline(limit));
    match situation.eviction {
        _ if situation.ask == Ask::Leave => Step::Release(Release::Disabled),
        _ if situation.guests == Some(0) => Step::Release(Release::Empty),
        EvictionView::Succeeded => Step::Release(Release::Evacuated),
        EvictionView::Failed => Step::Release(Release::Failed),
        _ if over => Step::Release(Release::Deadline),
        EvictionView::Absent => Step::CreateEviction,
        EvictionView::Running => Step::Wait,
    }
}

/// When to give up waiting: before logind does.
fn deadline(limit: Duration) -> Duration {
    limit.saturating_sub(MARGIN)
}

/// What is said about evacuations, or nothing while it is not known what is asked for.
pub fn condition(situation: &Situation, shortest: Duration, trouble: Option<&str>) -> Option<NewCondition> {
    const TYPE: HypervisorCondition = HypervisorCondition::EvacuationReady;
    let limit = situation.limit.map(|limit| limit.as_secs());
    Some(match (situation.ask, situation.locked, trouble) {
        (Ask::Unknown, ..) => return None,
        (Ask::Leave, ..) => NewCondition::no(
            TYPE,
            Reason::Disabled,
            "spec.evacuateOnReboot is false: a shutdown is not held back",
        ),
        (Ask::Hold, true, _) => match (situation.limit, limit) {
            (Some(time), Some(seconds)) if time < shortest => NewCondition::no(
                TYPE,
                Reason::DelayTooShort,
                format!(
                    "logind holds a shutdown back for {seconds} s only; set InhibitDelayMaxSec={} in the section \
                     [Login] of /etc/systemd/logind.conf",
                    shortest.as_secs()
                ),
            ),
            (_, Some(seconds)) => {
                let message =
                    format!("a shutdown is held back for up to {seconds} s while guests are moved away");
                NewCondition::yes(TYPE, Reason::Armed, message)
            }
            (_, None) => NewCondition::yes(
                TYPE,
                Reason::Armed,
                "a shutdown is held back while guests are moved away",
            ),
        },
        // The lock was given back on purpose, and what was said before still holds.
        (Ask::Hold, false, _) if situation.begun => return None,
        (Ask::Hold, false, trouble) => {
            let why = trouble.unwrap_or("the lock has not been taken yet");
            NewCondition::no(
                TYPE,
                Reason::InhibitFailed,
                format!("a shutdown cannot be held back: {why}"),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Situation = Situation {
        ask: Ask::Hold,
        reachable: true,
        locked: true,
        begun: false,
        elapsed: Duration::ZERO,
        limit: Some(Duration::from_secs(600)),
        guests: Some(2),
        eviction: EvictionView::Absent,
        stopping: false,
    };
    const BEGUN: Situation = Situation { begun: true, ..IDLE };

    #[test]
    fn each_situation_has_its_step() {
        use EvictionView::{Failed, Running, Succeeded};
        let late = Duration::from_secs(597);
        let table = [
            ("held and quiet", IDLE, Step::Wait),
            (
                "not held yet",
                Situation {
                    locked: false,
                    ..IDLE
                },
                Step::TakeLock,
            ),
            (
                "logind away",
                Situation {
                    locked: false,
                    reachable: false,
                    ..IDLE
                },
                Step::Wait,
            ),
            (
                "not asked for",
                Situation {
                    ask: Ask::Leave,
                    ..IDLE
                },
                Step::Release(Release::Disabled),
            ),
            (
                "nobody knows",
                Situation {
                    ask: Ask::Unknown,
                    ..IDLE
                },
                Step::Wait,
            ),
            (
                "asked to stop",
                Situation {
                    stopping: true,
                    ..IDLE
                },
                Step::Release(Release::Stopping),
            ),
            (
                "stopped",
                Situation {
                    stopping: true,
                    locked: false,
                    ..IDLE
                },
                Step::End,
            ),
            ("begins with guests", BEGUN, Step::CreateEviction),
            (
                "begins empty",
                Situation {
                    guests: Some(0),
                    ..BEGUN
                },
                Step::Release(Release::Empty),
            ),
            (
                "libvirt silent",
                Situation {
                    guests: None,
                    ..BEGUN
                },
                Step::CreateEviction,
            ),
            (
                "moving",
                Situation {
                    eviction: Running,
                    ..BEGUN
                },
                Step::Wait,
            ),
            (
                "moving, asked to stop",
                Situation {
                    eviction: Running,
                    stopping: true,
                    ..BEGUN
                },
                Step::Wait,
            ),
            (
                "moved",
                Situation {
                    eviction: Succeeded,
                    ..BEGUN
                },
                Step::Release(Release::Evacuated),
            ),
            (
                "gave up",
                Situation {
                    eviction: Failed,
                    ..BEGUN
                },
                Step::Release(Release::Failed),
            ),
            (
                "last guest left",
                Situation {
                    eviction: Running,
                    guests: Some(0),
                    ..BEGUN
                },
                Step::Release(Release::Empty),
            ),
            (
                "time is up",
                Situation {
                    eviction: Running,
                    elapsed: late,
                    ..BEGUN
                },
                Step::Release(Release::Deadline),
            ),
            (
                "time is up before the start",
                Situation {
                    elapsed: late,
                    ..BEGUN
                },
                Step::Release(Release::Deadline),
            ),
            (
                "released",
                Situation {
                    locked: false,
                    ..BEGUN
                },
                Step::Wait,
            ),
            (
                "released, asked to stop",
                Situation {
                    locked: false,
                    stopping: true,
                    ..BEGUN
                },
                Step::End,
            ),
        ];
        for (name, situation, step) in table {
            assert_eq!(decide(&situation), step, "{name}");
        }
    }

    #[test]
    fn the_condition_says_whether_an_evacuation_would_work() {
        let shortest = Duration::from_secs(300);
        let reason = |situation: Situation, trouble: Option<&str>| {
            condition(&situation, shortest, trouble).map(|condition| format!("{condition:?}"))
        };
        let holds = |text: Option<String>, words: &[&str]| {
            let text = text.unwrap();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        holds(reason(IDLE, None), &["True", "\"Armed\"", "600 s"]);
        let short = Situation {
            limit: Some(Duration::from_secs(5)),
            ..IDLE
        };
        holds(
            reason(short, None),
            &["False", "DelayTooShort", "InhibitDelayMaxSec=300"],
        );
        let failed = Situation {
            locked: false,
            ..IDLE
        };
        holds(
            reason(failed, Some("Access denied")),
            &["False", "InhibitFailed", "Access denied"],
        );
        holds(
            reason(
                Situation {
                    ask: Ask::Leave,
                    ..IDLE
                },
                None,
            ),
            &["False", "Disabled"],
        );
        assert_eq!(
            reason(
                Situation {
                    ask: Ask::Unknown,
                    ..IDLE
                },
                None
            ),
            None
        );
    }

    proptest! {
        #[test]
        fn guests_or_doubt_hold_a_shutdown_until_the_deadline(guests in proptest::option::of(1usize..100), elapsed in 0u64..597) {
            let situation = Situation { guests, elapsed: Duration::from_secs(elapsed), ..BEGUN };
            prop_assert_eq!(decide(&situation), Step::CreateEviction);
            let moving = Situation { eviction: EvictionView::Running, ..situation };
            prop_assert_eq!(decide(&moving), Step::Wait);
        }
    }
}
