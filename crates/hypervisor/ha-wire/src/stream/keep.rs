// SPDX-License-Identifier: Apache-2.0
//! What goes first when there is no room, and which segments of a spool nobody waits for any more.

use std::time::Duration;

use crate::event::{Event, Kind};

/// An endpoint that lags longer than this is not waited for.
const LAGGARD: Duration = Duration::from_hours(24);

/// How dear a record is; the cheapest are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// The guest agent came or went.
    GuestAgent,
    /// A guest rebooted.
    Reboot,
    /// The life of a guest changed, and it did not end.
    Lifecycle,
    /// A disk failed.
    IoError,
    /// The monitor of a guest is broken.
    ControlError,
    /// A watchdog fired.
    Watchdog,
    /// What somebody may have to act on.
    Rest,
}

impl Worth {
    /// From the cheapest to the dearest.
    pub const ALL: [Self; 7] = [
        Self::GuestAgent,
        Self::Reboot,
        Self::Lifecycle,
        Self::IoError,
        Self::ControlError,
        Self::Watchdog,
        Self::Rest,
    ];

    /// Of a record.
    pub fn of(event: &Event) -> Self {
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
pub struct Reached {
    /// Everything up to this number is stored there.
    pub acked: u64,
    /// How long it has been behind.
    pub behind_for: Duration,
    /// Bytes it has not acknowledged.
    pub behind_bytes: u64,
}

/// Whether a segment that ends with `last` may go: most endpoints have it, and those that have not are too far behind
/// to be waited for.
pub fn may_go(last: u64, endpoints: &[Reached], limit: u64) -> bool {
    let (have, lack): (Vec<&Reached>, Vec<&Reached>) =
        endpoints.iter().partition(|endpoint| endpoint.acked >= last);
    let given_up = |endpoint: &&Reached| endpoint.behind_for > LAGGARD || endpoint.behind_bytes > limit / 2;
    have.len() * 2 > endpoints.len() && lack.iter().all(given_up)
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

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
        let worth = |kind, event: &str| Worth::of(&record(kind, event));
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
}
