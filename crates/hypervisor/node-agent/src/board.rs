// SPDX-License-Identifier: Apache-2.0
//! What the agent knows about its host, in one place. Observers put what they learn here, the publisher turns it into
//! a status; nobody else keeps a copy. Nothing here waits: a board is locked only for the time of a small change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cobaltcore_api::{DomainCapabilities, HypervisorUpdateStatus, OperatingSystem};
use cobaltcore_kit::status::NewCondition;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use crate::capacity::{Claim, FreePages, HostCells};

/// How the connection to libvirt stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Link {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// The unit that runs libvirt is stopped, so nothing is tried.
    ServiceStopped,
    /// Connected, and the guests have been listed.
    Up,
    /// Not usable.
    Down(Outage),
}

/// Why libvirt cannot be used, in the order in which a person would look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// What kind of trouble it is.
    pub kind: OutageKind,
    /// The words of whoever noticed.
    pub why: String,
}

/// What kind of trouble an outage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// No connection could be made.
    ConnectFailed,
    /// The connection was lost.
    Disconnected,
    /// Nobody answers.
    Timeout,
    /// Authentication or access control said no.
    AuthFailed,
    /// The daemon has no driver for the URI.
    DriverUnavailable,
    /// Connected, but the guests cannot be listed.
    ProcessFailed,
}

/// What a guest is doing, in libvirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuestState {
    /// Its processors run.
    Running,
    /// Its processors stand still.
    Paused,
    /// It is on its way down.
    ShuttingDown,
    /// It is off.
    Shutoff,
    /// It crashed and was kept for inspection.
    Crashed,
    /// It sleeps.
    PmSuspended,
}

impl GuestState {
    /// The word libvirt uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ShuttingDown => "shutdown",
            Self::Shutoff => "shutoff",
            Self::Crashed => "crashed",
            Self::PmSuspended => "pmsuspended",
        }
    }
}

/// One guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// Name of the libvirt domain.
    pub name: String,
    /// Whether it has a live id.
    pub active: bool,
    /// What it is doing, if known.
    pub state: Option<GuestState>,
    /// What it takes from the host.
    pub claim: Reading,
}

/// How far the definition of a guest is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// Not read yet.
    Pending,
    /// Read.
    Known(Box<Claim>),
    /// Could not be read, and why.
    Failed(String),
}

/// What libvirt says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LibvirtView {
    /// How the connection stands.
    pub link: Link,
    /// The driver's name, such as `QEMU`.
    pub driver: Option<String>,
    /// The URI in use.
    pub uri: Option<String>,
    /// Version of libvirt; `N/A` when it does not say.
    pub lib_version: Option<String>,
    /// Version of the hypervisor below; `N/A` when it does not say.
    pub hypervisor_version: Option<String>,
    /// The host's cells.
    pub cells: Option<HostCells>,
    /// Free huge pages by cell and size; `None` until asked for, and where the driver does not tell.
    pub free_pages: Option<FreePages>,
    /// What guests may have.
    pub domain_capabilities: Option<DomainCapabilities>,
    /// Guests by UUID; `None` until they were listed for the first time.
    pub guests: Option<BTreeMap<Uuid, Guest>>,
    /// Whether every guest of the first list has been read, so that sums are complete.
    pub complete: bool,
    /// Calls that fail although the connection works, with libvirt's words.
    pub trouble: BTreeMap<&'static str, String>,
}

/// Everything the agent knows.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What libvirt says.
    pub libvirt: LibvirtView,
    /// Operating system, kernel, hardware and firmware.
    pub operating_system: Option<OperatingSystem>,
    /// Progress of an operating system update.
    pub update_status: Option<HypervisorUpdateStatus>,
    /// Conditions of other parts by type; `None` says that there is nothing to say any more.
    pub conditions: BTreeMap<String, Option<NewCondition>>,
}

#[derive(Debug, Default)]
struct State {
    model: Model,
    urgent: bool,
    oldest_change: Option<Instant>,
}

/// A change that waits to be published.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) model: Model,
    pub(crate) since: Option<Instant>,
}

/// A handle to what the agent knows; clones are the same board.
#[derive(Debug, Clone)]
pub struct Board {
    state: Arc<Mutex<State>>,
    version: Arc<watch::Sender<u64>>,
    service_stopped: Arc<watch::Sender<bool>>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(0)),
            service_stopped: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Board {
    /// Changes what is known. `change` says whether it changed anything that may show in the status.
    pub fn update(&self, change: impl FnOnce(&mut Model) -> bool) {
        self.touch(false, change);
    }

    /// The same for what must be visible at once, such as a lost connection.
    pub fn update_now(&self, change: impl FnOnce(&mut Model) -> bool) {
        self.touch(true, change);
    }

    fn touch(&self, urgent: bool, change: impl FnOnce(&mut Model) -> bool) {
        {
            let mut state = self.state.lock();
            if !change(&mut state.model) {
                return;
            }
            state.urgent |= urgent;
            state.oldest_change.get_or_insert_with(Instant::now);
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// Says what the host is made of.
    pub fn set_operating_system(&self, system: OperatingSystem) {
        self.update(|model| {
            let new = Some(system);
            let changed = model.operating_system != new;
            model.operating_system = new;
            changed
        });
    }

    /// Says how far an operating system update is.
    pub fn set_update_status(&self, status: HypervisorUpdateStatus) {
        self.update(|model| {
            let new = Some(status);
            let changed = model.update_status != new;
            model.update_status = new;
            changed
        });
    }

    /// States a condition under its type.
    pub fn set_condition(&self, type_: impl AsRef<str>, condition: NewCondition) {
        self.put_condition(type_.as_ref(), Some(condition));
    }

    /// Takes a condition back: there is nothing to say about this type any more.
    pub fn clear_condition(&self, type_: impl AsRef<str>) {
        self.put_condition(type_.as_ref(), None);
    }

    fn put_condition(&self, type_: &str, condition: Option<NewCondition>) {
        self.update(|model| {
            let changed = model.conditions.get(type_) != Some(&condition);
            model.conditions.insert(type_.to_owned(), condition);
            changed
        });
    }

    /// Says whether the unit that runs libvirt is known to be stopped. Connecting is then not tried, because the
    /// socket would accept and nobody would answer.
    pub fn set_libvirt_service_stopped(&self, stopped: bool) {
        self.service_stopped.send_if_modified(|now| {
            let changed = *now != stopped;
            *now = stopped;
            changed
        });
    }

    /// Follows whether the unit that runs libvirt is known to be stopped.
    pub fn libvirt_service_stopped(&self) -> watch::Receiver<bool> {
        self.service_stopped.subscribe()
    }

    /// Follows changes; the value counts them.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// How many guests run here as far as libvirt told; `None` when it could not be asked.
    pub fn active_guests(&self) -> Option<usize> {
        self.read(|model| {
            let up = model.libvirt.link == Link::Up;
            let guests = model.libvirt.guests.as_ref().filter(|_| up)?;
            Some(guests.values().filter(|guest| guest.active).count())
        })
    }

    /// Looks at what is known.
    pub fn read<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.state.lock().model)
    }

    /// Whether something waits that must be visible at once.
    pub(crate) fn is_urgent(&self) -> bool {
        self.state.lock().urgent
    }

    /// Takes the present state for publishing.
    pub(crate) fn take(&self) -> Pending {
        let mut state = self.state.lock();
        state.urgent = false;
        Pending {
            since: state.oldest_change.take(),
            model: state.model.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_wakes_nobody() {
        let board = Board::default();
        let changes = board.changes();
        board.clear_condition("A");
        assert!(changes.has_changed().unwrap(), "taking back is a statement");
        let mut changes = board.changes();
        changes.mark_unchanged();
        board.clear_condition("A");
        board.update(|_| false);
        assert!(!changes.has_changed().unwrap());
        board.set_condition("A", NewCondition::yes("A", "Fine", ""));
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn guests_are_counted_only_while_libvirt_answers() {
        let board = Board::default();
        let guest = |active| Guest {
            name: "g".into(),
            active,
            state: None,
            claim: Reading::Pending,
        };
        board.update(|model| {
            model.libvirt.guests = Some(
                [
                    (Uuid::from_u128(1), guest(true)),
                    (Uuid::from_u128(2), guest(false)),
                ]
                .into(),
            );
            true
        });
        assert_eq!(board.active_guests(), None);
        board.update_now(|model| {
            model.libvirt.link = Link::Up;
            true
        });
        assert_eq!(board.active_guests(), Some(1));
        assert!(board.is_urgent());
        assert!(board.take().since.is_some() && !board.is_urgent());
    }
}
