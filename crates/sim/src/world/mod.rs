// SPDX-License-Identifier: Apache-2.0
//! The simulated world: hosts, guests and what a cloud knows about them, under one lock and one clock of its own. A
//! [`World`] is a handle that can be cloned; servers on the wires ([`crate::cloud`], [`crate::hosts`]) and tests share it.
//! No lock is held while anybody waits.

mod build;
mod clock;
mod cold;
mod domain;
mod evacuate;
mod fault;
mod guests;
mod host;
mod keeper;
mod lifecycle;
mod live;
mod names;
mod placement;
mod power;
mod records;
mod schedule;
mod server;
mod state;
mod store;
mod switch;
mod timers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub use build::{ADMIN_PASSWORD, Builder, TEST_AGGREGATE};
pub use clock::{Clock, Moment};
pub use domain::{Domain, Finished, Job, Paused, Phase, Running, ShutOff};
pub use fault::{ApiEffect, ApiFault, BuildFault, BuildTrouble, Faults, MigrationFault, MigrationTrouble};
pub use host::{Cell, Driver, Host, Libvirt, Power, SERVICE_DOWN, Service};
pub use keeper::Kept;
pub use names::HostName;
pub(crate) use names::named_uuid;
pub use placement::{
    Consumer, Inventory, Placement, Provider, RESOURCE_CLASSES, Resources, STANDARD_TRAITS, STATUS_DISABLED,
};
pub use records::{
    Aggregate, AppCredential, IdentityDomain, Image, Keypair, Network, Port, Project, ServerGroup, Subnet,
    User, Volume,
};
pub use server::{
    Action, Attachment, Fault, Flavor, Lock, Migration, MigrationKind, MigrationStatus, Server, TaskState,
    VmState, flavor_resources, power as power_state,
};
pub use state::{HostEvent, Quota, Settings, State};
pub(crate) use switch::Plug;
pub use switch::{Orphan, Switch, Vswitchd};

pub(crate) use build::hostname_of;
pub(crate) use live::Order;
pub(crate) use timers::{Act, BuildStep, Due};

use crate::error::Error;

/// Told what happens to the guests of a host, as its libvirt announces it. Called while the world is locked: it must neither wait nor call back.
pub(crate) type Listener = Arc<dyn Fn(&HostEvent) + Send + Sync>;
/// Told that something about a host itself changed.
pub type Watcher = Arc<Notify>;

struct Inner {
    state: Mutex<State>,
    clock: Clock,
    changes: AtomicU64,
    wake: Notify,
    listeners: Mutex<HashMap<HostName, Vec<Listener>>>,
    watchers: Mutex<HashMap<HostName, Vec<Watcher>>>,
    keeper: Mutex<Option<Arc<keeper::Keeper>>>,
    saving: Mutex<()>,
}

/// A simulated world.
#[derive(Clone)]
pub struct World(Arc<Inner>);

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// Describes a world.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cobaltcore_sim::world::World;
    ///
    /// let world = World::builder().hosts(3).vms_per_host(2).seed(7).manual_clock().build();
    /// assert_eq!(world.read(|state| state.servers.len()), 6);
    /// world.power_off("node001-bb1").unwrap();
    /// world.step(Duration::from_secs(61));
    /// let up = world.read(|state| state.hosts["node001-bb1"].service.as_ref().unwrap().is_up(state.now));
    /// assert!(!up);
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of(state: State, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            clock,
            changes: AtomicU64::new(0),
            wake: Notify::new(),
            listeners: Mutex::default(),
            watchers: Mutex::default(),
            keeper: Mutex::default(),
            saving: Mutex::default(),
        }))
    }

    /// The world's clock.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock();
        let now = self.0.clock.now();
        if state.next_due().is_some_and(|at| at <= now) {
            self.0.changes.fetch_add(1, Ordering::Relaxed);
        }
        state.advance(now);
        self.deliver(&mut state);
        state
    }

    fn deliver(&self, state: &mut State) {
        if !state.changed.is_empty() {
            let watchers = self.0.watchers.lock();
            for host in state.changed.drain(..) {
                for watcher in watchers.get(&host).into_iter().flatten() {
                    watcher.notify_one();
                }
            }
        }
        if state.outbox.is_empty() {
            return;
        }
        let events = std::mem::take(&mut state.outbox);
        let listeners = self.0.listeners.lock();
        for event in &events {
            for listener in listeners.get(&event.host).into_iter().flatten() {
                listener(event);
            }
        }
    }

    /// Counts what happened; while it stays the same, so does the world, its time aside.
    pub fn changes(&self) -> u64 {
        drop(self.lock());
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Looks at the world as it is now.
    pub fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// Changes the world as it is now. Meant for the wires and for tests that need a state no API can make.
    pub fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.attend(true, change)
    }

    /// The same for a caller who knows whether this leaves a trace: questions are not worth saving a world for.
    pub(crate) fn attend<R>(&self, changes: bool, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        if changes {
            self.0.changes.fetch_add(1, Ordering::Relaxed);
        }
        let before = state.next_due();
        let result = change(&mut state);
        self.deliver(&mut state);
        if state.next_due() != before {
            self.0.wake.notify_one();
        }
        result
    }

    /// Moves time forward and lets everything happen that is due by then.
    pub fn step(&self, span: Duration) {
        self.0.clock.step(span);
        drop(self.lock());
        self.0.wake.notify_one();
    }

    /// Lets things happen when they are due, until the handle is dropped. Without it they happen when somebody looks,
    /// which is enough for an API but leaves events unsent.
    pub fn run(&self) -> AbortOnDropHandle<()> {
        let world = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let next = world.read(State::next_due);
                let wait = next.and_then(|at| world.0.clock.wait_for(at));
                let woken = world.0.wake.notified();
                match wait {
                    Some(span) => {
                        // A little late rather than a little early, which would spin.
                        tokio::time::timeout(span + Duration::from_millis(1), woken)
                            .await
                            .ok();
                    }
                    None => woken.await,
                }
            }
        }))
    }

    pub(crate) fn listen(&self, host: &HostName, listener: Listener) {
        let mut listeners = self.0.listeners.lock();
        listeners.entry(host.clone()).or_default().push(listener);
    }

    /// Is told whenever something about a host itself changed: power, network, daemons.
    pub fn watch(&self, host: &HostName) -> Watcher {
        let watcher = Watcher::default();
        let mut watchers = self.0.watchers.lock();
        watchers
            .entry(host.clone())
            .or_default()
            .push(Arc::clone(&watcher));
        watcher
    }

    fn on_host(&self, name: &str, change: impl FnOnce(&mut State, &HostName)) -> Result<(), Error> {
        let name = HostName::from(name);
        self.change(|state| {
            if state.hosts.contains_key(&name) {
                change(state, &name);
                state.changed.push(name.clone());
                Ok(())
            } else {
                Err(Error::NoHost(name))
            }
        })
    }

    /// Takes a host's power away. Its guests are gone; nobody is told.
    pub fn power_off(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, State::power_off)
    }

    /// Gives a host power; it takes its time to boot.
    pub fn power_on(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, State::power_on)
    }

    /// Cuts a host off from the network. Its guests go on.
    pub fn cut(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, |state, host| state.set_cut(host, true))
    }

    /// Connects a host again.
    pub fn mend(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, |state, host| state.set_cut(host, false))
    }

    /// Stops a host's nova-compute. Its guests go on.
    pub fn stop_compute(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, State::stop_compute)
    }

    /// Starts a host's nova-compute; it registers itself when Nova does not know it.
    pub fn start_compute(&self, host: &str) -> Result<(), Error> {
        self.on_host(host, State::start_compute)
    }

    /// Makes a host's libvirt answer, hang or be gone.
    pub fn set_libvirt(&self, host: &str, libvirt: Libvirt) -> Result<(), Error> {
        self.on_host(host, |state, name| {
            if let Some(host) = state.hosts.get_mut(name) {
                host.libvirt = libvirt;
            }
        })
    }

    /// Fills a host's disk, or makes room.
    pub fn set_disk_full(&self, host: &str, full: bool) -> Result<(), Error> {
        self.on_host(host, |state, name| {
            if let Some(host) = state.hosts.get_mut(name) {
                host.disk_full = full;
            }
        })
    }

    /// Lets a guest's process die.
    pub fn crash_guest(&self, server: Uuid) -> Result<(), Error> {
        self.on_guest(server, |state, host| state.crash(host, server))
    }

    /// Lets a guest stop doing anything while its process lives on.
    pub fn hang_guest(&self, server: Uuid) -> Result<(), Error> {
        self.on_guest(server, |state, host| {
            state
                .domain_mut(host, server)
                .map(|domain| domain.hung = true)
                .is_some()
        })
    }

    fn on_guest(
        &self,
        server: Uuid,
        change: impl FnOnce(&mut State, &HostName) -> bool,
    ) -> Result<(), Error> {
        self.change(|state| {
            let running = |host: &&Host| host.domains.get(&server).is_some_and(Domain::is_active);
            let host = state.hosts.values().find(running).map(|host| host.name.clone());
            match host {
                Some(host) if change(state, &host) => Ok(()),
                _ => Err(Error::NotRunning(server)),
            }
        })
    }

    /// Lets a guest's libvirt announce something: a watchdog, an I/O error, a memory failure.
    pub fn announce(&self, server: Uuid, body: cobaltcore_libvirt::EventBody) -> Result<(), Error> {
        self.on_guest(server, |state, host| {
            let reference = state.domain(host.as_str(), server).map(Domain::reference);
            reference
                .map(|reference| state.announce(host, reference, body))
                .is_some()
        })
    }

    /// Makes calls to the cloud fail.
    pub fn break_api(&self, fault: ApiFault) {
        self.change(|state| state.faults.api.push(fault));
    }

    /// What every call of a service runs into from now on, in place of what it ran into so far; nothing mends it.
    pub fn set_api(&self, service: &str, effect: Option<ApiEffect>) {
        self.change(|state| {
            state.faults.api.retain(|fault| !fault.stands(service));
            let fault = effect.map(|effect| ApiFault::all(effect).service(service));
            state.faults.api.extend(fault);
        });
    }

    /// Lets every migration that starts on a host break on its way, or no longer.
    pub fn set_migrations_fail(&self, host: &str, fail: bool) -> Result<(), Error> {
        self.on_host(host, |state, name| {
            state.faults.migrations.retain(|fault| !fault.stands(name));
            if fail {
                state.faults.migrations.push(MigrationFault {
                    server: None,
                    source: Some(name.clone()),
                    trouble: MigrationTrouble::Fails,
                    times: None,
                });
            }
        })
    }

    /// Makes migrations fail.
    pub fn break_migrations(&self, fault: MigrationFault) {
        self.change(|state| state.faults.migrations.push(fault));
    }

    /// Makes new servers fail.
    pub fn break_builds(&self, fault: BuildFault) {
        self.change(|state| state.faults.builds.push(fault));
    }

    /// Ends every fault of calls, migrations and builds.
    pub fn heal(&self) {
        self.change(|state| state.faults = Faults::default());
    }

    /// Adds a server of the demo project that has been running on a host for a day.
    pub fn add_server(&self, host: &str, flavor: &str) -> Result<Uuid, Error> {
        let name = HostName::from(host);
        self.change(|state| {
            if !state.hosts.contains_key(&name) {
                return Err(Error::NoHost(name.clone()));
            }
            let flavor = state
                .flavors
                .get(flavor)
                .cloned()
                .ok_or_else(|| Error::NoFlavor(flavor.to_owned()))?;
            let project = state
                .projects
                .values()
                .find(|project| project.name == "demo")
                .map(|project| project.id);
            let user = state
                .users
                .values()
                .find(|user| user.name == "admin")
                .map(|user| user.id);
            let image = state.images.keys().next().copied();
            let (project, user) = (project.unwrap_or_default(), user.unwrap_or_default());
            Ok(state.add_running(&name, flavor, image, project, user))
        })
    }

    /// Begins to move a running server to another host, as its owner's administrator would; gives the number of the move.
    pub fn live_migrate(&self, server: Uuid) -> Result<u64, Error> {
        self.begin_move(server, |state, order| {
            let record = state.servers.get(&order.server)?;
            let runs = matches!(record.vm_state, VmState::Active | VmState::Paused);
            (runs && record.task_state.is_none())
                .then(|| state.begin_live(order))
                .flatten()
        })
    }

    /// Begins to make a server of a dead host anew elsewhere, unless that is under way; gives the number of the move.
    pub fn evacuate(&self, server: Uuid) -> Result<u64, Error> {
        self.begin_move(server, |state, order| {
            let host = state.servers.get(&order.server)?.host.as_ref()?;
            let up = state.hosts.get(host)?.service.as_ref()?.is_up(state.now);
            let mut moves = state.migrations_of(order.server);
            let busy = moves
                .any(|migration| migration.kind == MigrationKind::Evacuation && !migration.status.is_final());
            drop(moves);
            (!up && !busy)
                .then(|| state.begin_evacuate(order, false))
                .flatten()
        })
    }

    fn begin_move(
        &self,
        server: Uuid,
        begin: impl FnOnce(&mut State, &Order) -> Option<u64>,
    ) -> Result<u64, Error> {
        self.change(|state| {
            let record = state.servers.get(&server).ok_or(Error::CannotMove(server))?;
            let order = Order {
                server,
                asked: None,
                user: record.user,
                project: record.project,
            };
            begin(state, &order).ok_or(Error::CannotMove(server))
        })
    }

    /// A copy of a server's record.
    pub fn server(&self, id: Uuid) -> Option<Server> {
        self.read(|state| state.servers.get(&id).cloned())
    }

    /// The guests that execute on more than one host, which must never be.
    pub fn running_twice(&self) -> Vec<(Uuid, Vec<HostName>)> {
        self.read(State::running_twice)
    }
}
