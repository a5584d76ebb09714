// SPDX-License-Identifier: Apache-2.0
//! Devices that say Off about a host that shows life. People are told once, when it begins, and once more when it is
//! over; in between it is counted. Such a device makes nobody suspect, and is asked again once a minute, because one
//! day it may be right.

use std::time::Duration;

use cobaltcore_api::names::HostName;

use crate::action::Effect;
use crate::engine::{Engine, Slot};
use crate::evidence::Assessment;
use crate::ids::{Mono, Now};
use crate::status::Notice;

/// How often a device is asked that was found to contradict its host.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// A device that says nothing more for this long contradicts nobody.
const OVER: Duration = Duration::from_mins(10);

/// One episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(crate) since: Mono,
    /// The latest reading that was contradicted.
    read: Mono,
    /// When the device was last asked because of it.
    asked: Mono,
    /// How many readings were contradicted.
    pub(crate) times: u32,
}

impl Engine {
    /// Begins, counts and ends the episodes of one host, which has no open incident.
    pub(super) fn watch_device(&mut self, name: &HostName, assessment: Assessment, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let read = host.signals.last_off();
        let contradicted = assessment == Assessment::Contradicted;
        match (&mut host.contradiction, read) {
            (None, Some(read)) if contradicted => {
                host.contradiction = Some(Contradiction {
                    since: now.mono,
                    read,
                    asked: now.mono,
                    times: 1,
                });
                self.tell(Notice::Inconclusive {
                    host: name.clone(),
                    assessment,
                });
            }
            (Some(episode), Some(read)) if contradicted => {
                episode.times = episode.times.saturating_add(u32::from(read > episode.read));
                episode.read = read;
            }
            // It said On, or nothing more.
            (Some(episode), read) if read.is_none() || now.mono.since(episode.read) >= OVER => {
                let times = episode.times;
                host.contradiction = None;
                self.tell(Notice::DeviceAgrees {
                    host: name.clone(),
                    times,
                });
            }
            _ => {}
        }
        self.ask_device(name, now);
    }

    /// Nobody else asks while the host is not suspected.
    fn ask_device(&mut self, name: &HostName, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let Some(episode) = host.contradiction.as_mut().filter(|_| host.suspicion.is_none()) else {
            return;
        };
        if now.mono.since(episode.asked) < ASK_AGAIN {
            return;
        }
        episode.asked = now.mono;
        let effect = Effect::ReadPower {
            host: name.clone(),
            level: 0,
        };
        self.act(None, Slot::HostPower(name.clone()), effect, now);
    }
}
