// SPDX-License-Identifier: Apache-2.0
//! Disk errors of many guests. A host is to blame if the same class of device works on other hosts that use
//! it; if it fails on many of them, it is the storage, and nothing is done to anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};

use crate::config::IoErrorStorm;
use crate::engine::{Engine, Host};
use crate::ids::{DeviceClass, Mono, Now};
use crate::status::{Degraded, Notice};

/// Errors of one storage reach different hosts at different moments: nobody is blamed before this.
const SETTLE: Duration = Duration::from_secs(10);

/// What a device is called that nobody could name; any host may use it.
type Class = Option<DeviceClass>;

/// Disk errors of the guests of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct IoErrors {
    seen: BTreeMap<(Class, ServerId), Mono>,
    /// Since when each class has been failing for many guests.
    stormy: BTreeMap<Class, Mono>,
}

impl IoErrors {
    pub(super) fn note(&mut self, class: Class, server: &ServerId, at: Mono) {
        let latest = self.seen.entry((class, server.clone())).or_insert(at);
        *latest = at.max(*latest);
    }

    /// How many guests had errors on a class of device lately.
    fn guests(&self, class: &Class) -> usize {
        self.seen.keys().filter(|(found, _)| found == class).count()
    }

    /// Forgets what is over, and finds out which classes fail for many guests.
    fn look(&mut self, instances: usize, watched: &IoErrorStorm, now: Mono) {
        // As on nearly every host in nearly every round.
        if self.seen.is_empty() && self.stormy.is_empty() {
            return;
        }
        self.seen.retain(|_, at| now.since(*at) <= watched.window);
        let classes: BTreeSet<Class> = self.seen.keys().map(|(class, _)| class.clone()).collect();
        let fails = |class: &Class| {
            let guests = self.guests(class);
            guests >= watched.min_guests && share(guests, instances) >= watched.percent as usize
        };
        let stormy = classes.into_iter().filter(fails);
        let since = |class: &Class| self.stormy.get(class).copied().unwrap_or(now);
        self.stormy = stormy.map(|class| (class.clone(), since(&class))).collect();
    }

    /// Whether any class fails for many guests.
    pub(super) fn storm(&self) -> bool {
        !self.stormy.is_empty()
    }
}

impl Engine {
    pub(super) fn watch_storage(&mut self, now: Now) {
        let watched = self.config.monitors.io_error_storm;
        if !watched.enabled {
            return;
        }
        for host in self.hosts.values_mut() {
            let all = instances(host);
            host.monitors.io_errors.look(all, &watched, now.mono);
        }
        let stormy = |host: &Host| host.monitors.io_errors.stormy.keys().cloned().collect::<Vec<_>>();
        let classes: BTreeSet<Class> = self.hosts.values().flat_map(stormy).collect();
        self.outages.retain(|class| classes.contains(class));
        for class in classes {
            self.judge_class(&class, &watched, now);
        }
    }

    fn judge_class(&mut self, class: &Class, watched: &IoErrorStorm, now: Now) {
        let users: Vec<(&HostName, &Host)> =
            self.hosts.iter().filter(|(_, host)| uses(host, class)).collect();
        let errors = |host: &Host| host.monitors.io_errors.stormy.get(class).copied();
        let suffering: Vec<(HostName, Mono)> = users
            .iter()
            .filter_map(|(name, host)| Some(((*name).clone(), errors(host)?)))
            .collect();
        let ill = |host: &Host| {
            share(host.monitors.io_errors.guests(class), instances(host)) >= watched.percent as usize
        };
        let others = users.len().saturating_sub(1);
        let well = users.iter().filter(|(_, host)| !ill(host)).count();
        let hosts = suffering.len();
        if hosts > 1 && share(hosts, users.len()) > watched.outage_percent as usize {
            if self.outages.insert(class.clone()) {
                let device = class.clone();
                self.tell(Notice::StorageOutage { hosts, device });
                for (name, _) in suffering {
                    self.degrade(&name, Degraded::IoErrorStorm, false, now);
                }
            }
            return;
        }
        let to_blame = well * 100 >= others * watched.healthy_percent as usize;
        for (name, since) in suffering {
            if to_blame && now.mono.since(since) >= SETTLE {
                self.degrade(&name, Degraded::IoErrorStorm, true, now);
            }
        }
    }
}

/// Whether guests of a host may have disks of this class; one that does not say may have any.
fn uses(host: &Host, class: &Class) -> bool {
    let listed = host.inventory.as_ref().map(|(_, inventory)| &inventory.devices);
    let may = match (class, listed) {
        (Some(class), Some(devices)) => devices.is_empty() || devices.contains(class),
        _ => true,
    };
    let fails = host.monitors.io_errors.guests(class) > 0;
    host.facts.is_some() && (may || fails)
}

fn instances(host: &Host) -> usize {
    host.facts.as_ref().map_or(0, |facts| facts.instances).max(1)
}

/// So many of so many, in per cent.
fn share(part: usize, all: usize) -> usize {
    part * 100 / all.max(1)
}
