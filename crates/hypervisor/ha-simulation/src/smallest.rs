// SPDX-License-Identifier: Apache-2.0
//! What a random world needs to break its promise: whatever can be left out of it is, one thing after the other, as
//! long as the same promise is broken. What is left is a story that a person can follow.

use crate::faults::Fault;
use crate::invariants::Invariant;
use crate::world::{Options, Run, World, run_seed};

/// A broken promise with nothing around it.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// What goes wrong, none of which can be left out.
    pub needs: Vec<String>,
    /// How much went wrong in the whole world.
    pub of: usize,
    /// The world with only that, and its story.
    pub run: Run,
}

/// Makes the world of a seed smaller. Nothing if it breaks no promise.
pub fn smallest(options: &Options) -> Option<Smallest> {
    let whole = run_seed(options.clone());
    let broken = whole.violation.as_ref()?.invariant;
    let of = whole.planned.len();
    let mut without = Vec::new();
    // What could not be left out at first may be once something else is.
    loop {
        let before = without.len();
        for n in (0..of).rev() {
            if without.contains(&n) {
                continue;
            }
            without.push(n);
            if breaks(options, &without) != Some(broken) {
                without.pop();
            }
        }
        if without.len() == before {
            break;
        }
    }
    let run = run_seed(Options {
        trace: true,
        without: without.clone(),
        ..options.clone()
    });
    let planned = run.planned.iter().enumerate();
    let needs = planned.filter(|(n, _)| !without.contains(n));
    let mut needs: Vec<String> = needs.map(|(_, what)| what.clone()).collect();
    // As they happen.
    needs.sort();
    Some(Smallest { needs, of, run })
}

fn breaks(options: &Options, without: &[usize]) -> Option<Invariant> {
    let run = run_seed(Options {
        trace: false,
        without: without.to_vec(),
        ..options.clone()
    });
    run.violation.map(|violation| violation.invariant)
}

impl World {
    /// Something will go wrong, unless it is left out of this world.
    pub(crate) fn at(&mut self, ms: u64, fault: Fault) {
        // Without these no fault would end.
        let ends = matches!(fault, Fault::Heal | Fault::OnDuty);
        if ends
            || self.plan(|| {
                format!(
                    "{:>4}:{:02}.{:03}  {fault:?}",
                    ms / 60_000,
                    ms / 1000 % 60,
                    ms % 1000
                )
            })
        {
            self.schedule_fault(ms, fault);
        }
    }

    /// Whether something that this world is to have stays in it.
    fn plan(&mut self, what: impl FnOnce() -> String) -> bool {
        let stays = !self.options.without.contains(&self.planned.len());
        self.planned.push(what());
        stays
    }

    /// What is wrong all the time may be left out as well.
    pub(crate) fn plan_troubles(&mut self) {
        let troubles: [Trouble; 10] = [
            (
                "messages are lost, doubled and late",
                |w| w.noise > 0,
                |w| w.noise = 0,
            ),
            (
                "Nova fails now and then",
                |w| w.nova_flaky > 0,
                |w| w.nova_flaky = 0,
            ),
            ("Nova takes its time", |w| w.nova_slow > 0, |w| w.nova_slow = 0),
            (
                "Nova does late what it did not answer",
                |w| w.nova_late > 0,
                |w| w.nova_late = 0,
            ),
            (
                "what Nova tells its hosts is lost now and then",
                |w| w.messages_lost > 0,
                |w| w.messages_lost = 0,
            ),
            ("requests leave late", |w| w.slow_sends, |w| w.slow_sends = false),
            (
                "guests arrive stopped",
                |w| w.arrive_stopped,
                |w| w.arrive_stopped = false,
            ),
            (
                "a replica dies at a record",
                |w| w.crash_at_record.is_some(),
                |w| w.crash_at_record = None,
            ),
            (
                "the clocks of replicas drift apart",
                |w| w.replicas.iter().any(|replica| replica.drift != 0),
                |w| w.replicas.iter_mut().for_each(|replica| replica.drift = 0),
            ),
            (
                "the clocks of hosts are wrong",
                |w| w.hosts.iter().any(|host| host.clock_skew_ms != 0),
                |w| w.hosts.iter_mut().for_each(|host| host.clock_skew_ms = 0),
            ),
        ];
        for (what, is, end) in troubles {
            if is(self) && !self.plan(|| what.to_owned()) {
                end(self);
            }
        }
    }
}

/// Something that is wrong in a world from its beginning: what, whether it is, and how it is ended.
type Trouble = (&'static str, fn(&World) -> bool, fn(&mut World));
