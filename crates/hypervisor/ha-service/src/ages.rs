// SPDX-License-Identifier: Apache-2.0
//! How long ago something happened on a host, by the host's own boot-time clock: no wall clock has a say. A record may have
//! waited in the spool, and its report on the way here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cobaltcore_api::names::HostName;
use cobaltcore_ha_wire::{BootId, Envelope, Event};
use parking_lot::Mutex;

/// How far the clocks of hosts are behind ours, boot by boot. The quickest report tells.
pub(crate) struct Ages {
    begin: Instant,
    clocks: Mutex<HashMap<HostName, Clock>>,
}

struct Clock {
    boot: BootId,
    /// The least that our clock was ahead when a report arrived.
    ahead_ns: i128,
}

impl Default for Ages {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            clocks: Mutex::default(),
        }
    }
}

impl Ages {
    /// Takes a report that arrived now; how much longer it was on its way than the quickest of its boot.
    pub(crate) fn arrived(&self, envelope: &Envelope, now: Instant) -> Duration {
        let ours = now.saturating_duration_since(self.begin).as_nanos();
        let ahead_ns = i128::try_from(ours).unwrap_or(i128::MAX) - i128::from(envelope.mono_ns);
        let mut clocks = self.clocks.lock();
        let clock = clocks.entry(envelope.host.clone()).or_insert_with(|| Clock {
            boot: envelope.boot_id.clone(),
            ahead_ns,
        });
        if clock.boot != envelope.boot_id {
            *clock = Clock {
                boot: envelope.boot_id.clone(),
                ahead_ns,
            };
        }
        clock.ahead_ns = clock.ahead_ns.min(ahead_ns);
        Duration::from_nanos(u64::try_from(ahead_ns - clock.ahead_ns).unwrap_or(u64::MAX))
    }
}

/// How old a record of a report is that was so long on its way. What an earlier boot wrote down is as old as can be.
pub(crate) fn age(envelope: &Envelope, event: &Event, on_its_way: Duration) -> Duration {
    envelope
        .mono_ns
        .checked_sub(event.mono_ns)
        .map_or(Duration::MAX, |waited| {
            Duration::from_nanos(waited).saturating_add(on_its_way)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_ha_wire::{AgentId, Kind, SCHEMA};
    use jiff::Timestamp;

    fn envelope(boot: &str, mono: Duration) -> Envelope {
        Envelope {
            schema: SCHEMA,
            host: HostName::new("node001").unwrap(),
            agent_id: AgentId("a".into()),
            boot_id: BootId(boot.into()),
            epoch: 1,
            sent_at: Timestamp::UNIX_EPOCH,
            mono_ns: u64::try_from(mono.as_nanos()).unwrap(),
        }
    }

    #[test]
    fn what_waited_on_the_host_and_on_the_way_is_that_much_older() {
        let s = Duration::from_secs;
        let (ages, begin) = (Ages::default(), Instant::now());
        let quick = ages.arrived(&envelope("one", s(1000)), begin + s(10));
        assert_eq!(quick, s(0), "nothing was quicker yet");
        let held_up = envelope("one", s(1005));
        let on_its_way = ages.arrived(&held_up, begin + s(375));
        assert_eq!(on_its_way, s(360));
        let event = Event {
            seq: 1,
            ts: Timestamp::UNIX_EPOCH,
            mono_ns: 990_000_000_000,
            kind: Kind::Lifecycle,
            event: "crashed".into(),
            detail: String::new(),
            domain: None,
            attrs: std::collections::BTreeMap::new(),
            count: 1,
            synthetic: false,
        };
        assert_eq!(age(&held_up, &event, on_its_way), s(375));
        let booted = envelope("two", s(20));
        assert_eq!(ages.arrived(&booted, begin + s(900)), s(0), "another clock");
        assert_eq!(age(&booted, &event, s(0)), Duration::MAX, "of an earlier boot");
    }
}
