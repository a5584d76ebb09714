// SPDX-License-Identifier: Apache-2.0
//! Hosts as they really are: power, kernel, user space, networks, and the guests that execute on
//! them. What the engine hears of them is somebody else's business.

use std::collections::BTreeSet;
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_ha_engine::{Identity, VmPolicy, VmState};

use crate::network::Way;

/// A device that switches a host on and off.
#[derive(Clone, Debug)]
pub(crate) struct Bmc {
    pub(crate) reachable: bool,
    /// Does what it is told, and nobody hears that it did; what it reads is heard now and then.
    pub(crate) unheard: bool,
    /// Says Off whatever is true.
    pub(crate) lies: bool,
    pub(crate) lied_until: Option<u64>,
    /// Belongs to another host.
    pub(crate) wired_to: Option<usize>,
    /// Milliseconds an answer takes.
    pub(crate) slow: u64,
    /// Milliseconds from the order to the fact; it says Off a little earlier.
    pub(crate) off_delay: u64,
    /// Says Off from here on although the host still is on its way down.
    pub(crate) says_off_from: Option<u64>,
}

impl Bmc {
    /// One that works. So is the outlet of a host, which is a device of its own.
    pub(crate) fn sound() -> Self {
        Self {
            reachable: true,
            unheard: false,
            lies: false,
            lied_until: None,
            wired_to: None,
            slow: 200,
            off_delay: 1500,
            says_off_from: None,
        }
    }
}

/// One hypervisor.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: HostName,
    pub(crate) rack: usize,
    pub(crate) power: bool,
    pub(crate) power_since: u64,
    /// Its agent was heard by somebody since then.
    pub(crate) heard_since_on: bool,
    pub(crate) kernel: bool,
    pub(crate) user: bool,
    pub(crate) agent: bool,
    pub(crate) compute: bool,
    pub(crate) kubelet: bool,
    pub(crate) libvirt: bool,
    /// The way to it, and back from it.
    pub(crate) mgmt: Way,
    pub(crate) bmc: Bmc,
    pub(crate) clock_skew_ms: i64,
    pub(crate) boot: u32,
    pub(crate) booted_at: u64,
    pub(crate) power_generation: u64,
    pub(crate) agent_starts: u64,
    pub(crate) inventory_version: u64,
    pub(crate) tainted: bool,
    /// When somebody told whoever looks after the machine to look after it again, although we keep it off.
    pub(crate) unparked: Option<u64>,
    /// The levels by which whoever looks after the machine was told to keep it off.
    pub(crate) parked: BTreeSet<usize>,
    pub(crate) announced: bool,
    /// Lists of its guests are lost, but for those that are asked for.
    pub(crate) lists_lost: bool,
    /// Its watchdog was stopped.
    pub(crate) disarmed: bool,
    /// The storage hears nothing of its guests.
    pub(crate) storage_silent: bool,
    /// Somebody switched it on because it is repaired, and wants it back.
    pub(crate) repaired: bool,
    /// Its agent was asked to list its guests.
    pub(crate) list_wanted: bool,
    /// Since when everything about it has been well.
    pub(crate) well_since: Option<u64>,
    /// Since when it has been answering somebody.
    pub(crate) answers_since: Option<u64>,
    /// Since when what its agent says has been getting out.
    pub(crate) speaks_since: Option<u64>,
    pub(crate) died_at: Option<u64>,
    // What the Kubernetes API and Nova hold about it.
    pub(crate) maintenance: Maintenance,
    /// When somebody else than the service last set it.
    pub(crate) maintenance_set: u64,
    pub(crate) disabled_condition: bool,
    pub(crate) ha_enabled: bool,
    pub(crate) node_lease: u64,
    /// When the service last reported; Nova's own opinion of it follows from this.
    pub(crate) service_seen: u64,
    /// When anybody last wrote to the service's row, which is all that Nova shows.
    pub(crate) service_updated: u64,
    /// When its compute service last started.
    pub(crate) compute_since: u64,
    pub(crate) disabled: bool,
    pub(crate) forced_down: bool,
    /// When the operator last enabled it.
    pub(crate) enabled_at: Option<u64>,
}

impl Host {
    pub(crate) fn new(n: usize, rack: usize) -> Self {
        Self {
            name: HostName::new(format!("n{n:02}")).unwrap_or_else(|_| unreachable!("a valid name")),
            rack,
            power: true,
            power_since: 0,
            heard_since_on: false,
            kernel: true,
            user: true,
            agent: true,
            compute: true,
            kubelet: true,
            libvirt: true,
            mgmt: Way::OPEN,
            bmc: Bmc::sound(),
            clock_skew_ms: 0,
            boot: 1,
            booted_at: 0,
            power_generation: 0,
            agent_starts: 1,
            inventory_version: 1,
            tainted: false,
            unparked: None,
            parked: BTreeSet::new(),
            announced: false,
            lists_lost: false,
            disarmed: false,
            storage_silent: false,
            repaired: false,
            list_wanted: false,
            well_since: Some(0),
            answers_since: Some(0),
            speaks_since: Some(0),
            died_at: None,
            maintenance: Maintenance::Off,
            maintenance_set: 0,
            disabled_condition: false,
            ha_enabled: true,
            node_lease: 0,
            service_seen: 0,
            service_updated: 0,
            compute_since: 0,
            disabled: false,
            forced_down: false,
            enabled_at: None,
        }
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("{}-boot-{}", self.name, self.boot)
    }

    /// How long it has been up. The fleet was there long before the story begins.
    pub(crate) fn up_for(&self, now: u64) -> Duration {
        let before = if self.boot == 1 {
            Duration::from_hours(500)
        } else {
            Duration::ZERO
        };
        before + Duration::from_millis(now - self.booted_at)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            system_uuid: Some(format!("machine-{}", self.name)),
            serial: None,
        }
    }

    pub(crate) fn agent_speaks(&self) -> bool {
        self.user && self.agent && self.mgmt.back
    }

    pub(crate) fn compute_works(&self) -> bool {
        self.compute_hears() && self.compute_speaks()
    }

    pub(crate) fn compute_hears(&self) -> bool {
        self.user && self.compute && self.mgmt.there
    }

    pub(crate) fn compute_speaks(&self) -> bool {
        self.user && self.compute && self.mgmt.back
    }

    /// Nova's opinion of its compute service.
    pub(crate) fn service_up(&self, now: u64) -> bool {
        !self.forced_down && now.saturating_sub(self.service_seen) <= 60_000
    }

    /// Whether it does what a host is there for, as seen from outside.
    pub(crate) fn well(&self) -> bool {
        self.power
            && self.kernel
            && self.user
            && self.mgmt.answers()
            && self.agent
            && self.compute
            && self.kubelet
    }

    /// Whether anything of it still answers somebody.
    pub(crate) fn shows_life(&self) -> bool {
        self.kernel && self.mgmt.back && (self.user || self.power)
    }
}

/// One guest.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    /// Where Nova believes it to be.
    pub(crate) host: usize,
    pub(crate) state: VmState,
    pub(crate) task: String,
    /// Where it executes.
    pub(crate) runs_on: BTreeSet<usize>,
    /// What its owner wants.
    pub(crate) owner_wants_it: bool,
    pub(crate) deleted: bool,
    pub(crate) local_disk: bool,
    pub(crate) excluded: bool,
    pub(crate) unsupported: bool,
    /// Its new host cannot open its disk.
    pub(crate) cannot_boot: bool,
    pub(crate) policy: Option<VmPolicy>,
    pub(crate) priority: u16,
    /// Its start group.
    pub(crate) group: String,
    pub(crate) anti_affinity: Option<String>,
    /// Milliseconds that its next rebuild takes, if not by chance.
    pub(crate) takes: Option<u64>,
    pub(crate) user_action: Option<u64>,
    /// The one that Nova forgot because the guest was moved in the same moment.
    pub(crate) overtaken: Option<u64>,
    /// Why it is locked, if it is.
    pub(crate) lock: Option<String>,
}

impl Server {
    pub(crate) fn new(n: usize, host: usize) -> Self {
        Self {
            id: ServerId::new(format!("00000000-0000-0000-0000-{n:012}"))
                .unwrap_or_else(|_| unreachable!("a valid id")),
            host,
            state: VmState::Active,
            task: String::new(),
            runs_on: BTreeSet::from([host]),
            owner_wants_it: true,
            deleted: false,
            local_disk: false,
            excluded: false,
            unsupported: false,
            cannot_boot: false,
            policy: None,
            priority: 500,
            group: String::new(),
            anti_affinity: None,
            takes: None,
            user_action: None,
            overtaken: None,
            lock: None,
        }
    }

    pub(crate) fn stopped(mut self) -> Self {
        self.state = VmState::Stopped;
        self.runs_on.clear();
        self.owner_wants_it = false;
        self
    }
}
