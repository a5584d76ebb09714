// SPDX-License-Identifier: Apache-2.0
//! An agent's half of the conversation about records, without files and without a network: which numbers records get,
//! which of them may be forgotten, and what follows from an answer. The service's half is
//! [`Batch::admit`](crate::Batch::admit). Agents carry it out, and the simulation of the whole plane does the same.

mod keep;
mod numbers;
mod pace;

pub use keep::{Reached, Worth, may_go};
pub use numbers::Numbers;
pub use pace::{Answer, MOST_BYTES, MOST_RECORDS, Pace, REPLAY_RATE, Step, gaps, replay_rest};

#[cfg(test)]
mod tests {
    use crate::event::{Event, Kind};

    pub(super) fn record(kind: Kind, event: &str) -> Event {
        Event {
            seq: 1,
            ts: jiff::Timestamp::UNIX_EPOCH,
            mono_ns: 0,
            kind,
            event: event.to_owned(),
            detail: String::new(),
            domain: None,
            attrs: std::collections::BTreeMap::new(),
            count: 1,
            synthetic: false,
        }
    }
}
