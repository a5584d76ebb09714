// SPDX-License-Identifier: Apache-2.0
//! Which repeated records become one when room is short. What goes first, and which segments nobody waits for any more,
//! is [`cobaltcore_ha_wire::stream`].

use std::collections::HashMap;

use cobaltcore_ha_wire::Kind;

use crate::draft::Draft;

/// Repeats within this become one record when room is short.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// Different things that may repeat at once; more pass through as they are.
const MOST_REPEATED: usize = 4096;

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
