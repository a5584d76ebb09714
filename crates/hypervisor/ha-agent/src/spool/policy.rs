// SPDX-License-Identifier: Apache-2.0
//! What the spool decides, without files: what goes first when there is no room, which segments nobody waits for any
//! more, and which repeated records become one.

use std::collections::HashMap;
use std::time::Duration;

use cobaltcore_ha_wire::{Event, Kind};

use crate::draft::Draft;

/// An endpoint that lags longer than this is not waited for.
const LAGGARD: Duration = Duration::from_hours(24);
/// Repeats within this become one record when room is short.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// Different things that may repeat at once; more pass through as they are.
const MOST_REPEATED: usize = 4096;

/// How dear a record is; the cheapest are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    GuestAgent,
    Reboot,
    Lifecycle,
    IoError,
    ControlError,
    Watchdog,
    Rest,
}

impl Worth {
    pub(crate) const ALL: [Self; 7] = [
        Self::GuestAgent,
        Self::Reboot,
        Self::Lifecycle,
        Self::IoError,
        Self::ControlError,
        Self::Watchdog,
        Self::Rest,
    ];

    pub(crate) fn of(event: &Event) -> Self {
        match event.kind {
            Kind::AgentLifecycle => Self::GuestAgent,
            Kind::Reboot => Self::Reboot,
            Kind::Lifecycle if matches!(event.event.as_str(), "stopped" | "crashed") => Self::Rest,
            Kind::Lifecycle => Self::Lifecycle,
            Kind::IoError => Self::IoError,
            Kind::ControlError => Self::ControlError,
            Kind::Watchdog => Self::Watchdog,
            Kind::MemoryFailure | Kind::Agent => Self::Rest,
        }
    }
}

/// How far an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Everything up to this number is stored there.
    pub(crate) acked: u64,
    /// How long it has been behind.
    pub(crate) behind_for: Duration,
    /// Bytes it has not acknowledged.
    pub(crate) behind_bytes: u64,
}

/// Whether a segment that ends with `last` may go: most endpoints have it, and those that have not are too far behind
/// to be waited for.
pub(crate) fn may_go(last: u64, endpoints: &[Reached], limit: u64) -> bool {
    let (have, lack): (Vec<&Reached>, Vec<&Reached>) =
        endpoints.iter().partition(|endpoint| endpoint.acked >= last);
    let given_up = |endpoint: &&Reached| endpoint.behind_for > LAGGARD || endpoint.behind_bytes > limit / 2;
    have.len() * 2 > endpoints.len() && lack.iter().all(given_up)
}

/// What makes two records the same thing happening again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Repeated {
    kind: Kind,
    event: String,
    detail: String,
    domain: Option<uuid::Uuid>,
}

struct Repeats {
    since_ns: u64,
    waiting: Option<Draft>,
}

/// Makes one record of many: the first passes at once, those that follow within a minute are counted and pass as one
/// when the minute is over.
#[derive(Default)]
pub(crate) struct Coalescer {
    known: HashMap<Repeated, Repeats>,
}

impl Coalescer {
    /// Takes a record; gives it back if it is to be written now.
    pub(crate) fn take(&mut self, draft: Draft) -> Option<Draft> {
        let key = Repeated {
            kind: draft.kind,
            event: draft.event.clone(),
            detail: draft.detail.clone(),
            domain: draft.domain.as_ref().map(|domain| domain.uuid),
        };
        let known = self.known.len();
        match self.known.get_mut(&key) {
            // What the agent says of itself has its own numbers in it and is never the same twice.
            _ if draft.kind == Kind::Agent => Some(draft),
            Some(repeats) => {
                match &mut repeats.waiting {
                    Some(waiting) => waiting.count = waiting.count.saturating_add(draft.count),
                    waiting @ None => *waiting = Some(draft),
                }
                None
            }
            None if known >= MOST_REPEATED => Some(draft),
            None => {
                let since_ns = draft.mono_ns;
                self.known.insert(
                    key,
                    Repeats {
                        since_ns,
                        waiting: None,
                    },
                );
                Some(draft)
            }
        }
    }

    /// What is due at `now_ns`, or everything.
    pub(crate) fn due(&mut self, now_ns: u64, everything: bool) -> Vec<Draft> {
        let mut due = Vec::new();
        self.known.retain(|_, repeats| {
            let over = everything || now_ns.saturating_sub(repeats.since_ns) >= WINDOW_NS;
            if over {
                due.extend(repeats.waiting.take());
            }
            !over
        });
        due.sort_by_key(|draft| draft.mono_ns);
        due
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::tests::draft;
    use proptest::prelude::*;

    fn reached(acked: u64, hours: u64, bytes: u64) -> Reached {
        Reached {
            acked,
            behind_for: Duration::from_hours(hours),
            behind_bytes: bytes,
        }
    }

    #[test]
    fn a_segment_goes_when_nobody_is_waited_for() {
        let (has, lags) = (reached(10, 0, 0), reached(3, 1, 10));
        let (late, far) = (reached(3, 25, 10), reached(3, 1, 60));
        for (endpoints, goes) in [
            (vec![], false),
            (vec![has], true),
            (vec![lags], false),
            (vec![late], false),
            (vec![has, has, has], true),
            (vec![has, has, lags], false),
            (vec![has, has, late], true),
            (vec![has, has, far], true),
            (vec![has, late, far], false),
            (vec![has, late], false),
        ] {
            assert_eq!(may_go(10, &endpoints, 100), goes, "{endpoints:?}");
        }
    }

    #[test]
    fn the_order_in_which_records_are_given_up() {
        let worth = |kind, event: &str| Worth::of(&draft(kind, event).numbered(1));
        let order = [
            worth(Kind::AgentLifecycle, "connected"),
            worth(Kind::Reboot, ""),
            worth(Kind::Lifecycle, "started"),
            worth(Kind::IoError, ""),
            worth(Kind::ControlError, ""),
            worth(Kind::Watchdog, ""),
            worth(Kind::Lifecycle, "stopped"),
        ];
        assert_eq!(order, Worth::ALL);
        assert_eq!(worth(Kind::Lifecycle, "crashed"), Worth::Rest);
        assert_eq!(worth(Kind::Agent, "agent_started"), Worth::Rest);
    }

    proptest! {
        /// Nothing is lost by making one of many: the counts add up.
        #[test]
        fn counts_add_up(steps in proptest::collection::vec((0_u8..4, 0_u64..30), 1..100)) {
            let mut coalescer = Coalescer::default();
            let (mut now, mut put_in, mut came_out) = (0, 0, 0);
            for (which, seconds) in steps {
                now += seconds * 1_000_000_000;
                for draft in coalescer.due(now, false) {
                    came_out += draft.count;
                }
                let mut one = draft(Kind::Watchdog, &which.to_string());
                one.mono_ns = now;
                put_in += 1;
                came_out += coalescer.take(one).map_or(0, |draft| draft.count);
            }
            came_out += coalescer.due(now, true).iter().map(|draft| draft.count).sum::<u32>();
            prop_assert_eq!(put_in, came_out);
            prop_assert!(coalescer.is_empty());
        }
    }
}
