// SPDX-License-Identifier: Apache-2.0
//! The system services of one simulated host: systemd, logind and hostnamed, with the real names, paths and signatures,
//! and units and shutdowns that are moved by hand. They join a message bus that is there, or bring one along.

mod bus;
mod services;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedObjectPath};

use crate::error::Error;
pub use bus::Bus;

/// The state of a unit, in systemd's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `loaded`, `not-found`, ...
    pub load: String,
    /// `active`, `activating`, ...
    pub active: String,
    /// `running`, `exited`, `dead`, ...
    pub sub: String,
    /// How the last run ended: `success`, `exit-code`, ...
    pub result: String,
    /// The id of the last run; empty before the first.
    pub invocation: Vec<u8>,
}

impl Unit {
    /// A loaded unit in this state.
    pub fn new(active: &str, sub: &str) -> Self {
        Self {
            load: "loaded".to_owned(),
            active: active.to_owned(),
            sub: sub.to_owned(),
            result: "success".to_owned(),
            invocation: vec![1; 16],
        }
    }

    fn missing() -> Self {
        Self {
            load: "not-found".to_owned(),
            ..Self::new("inactive", "dead")
        }
    }
}

/// What a unit does when it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStart {
    /// Its job ends at once, well.
    Done,
    /// Its job ends at once, badly.
    Fail,
    /// Its job runs until [`System::finish`].
    Run,
}

/// What somebody asked logind to hold back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// `shutdown`, `sleep`, ...
    pub what: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
    /// `delay` or `block`.
    pub mode: String,
}

#[derive(Default)]
struct State {
    units: BTreeMap<String, Unit>,
    on_start: BTreeMap<String, OnStart>,
    jobs: BTreeMap<String, (u32, OwnedObjectPath)>,
    started: Vec<String>,
    restarted: Vec<String>,
    locks: Vec<Lock>,
    preparing: bool,
    delay: Option<Duration>,
    description: Option<String>,
    /// Everybody who hears signals.
    listeners: Vec<Connection>,
}

struct Inner {
    state: Mutex<State>,
    next_job: AtomicU32,
    held: watch::Sender<u32>,
}

/// The system services of one host; clones are the same host.
#[derive(Clone)]
pub struct System(Arc<Inner>);

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").finish_non_exhaustive()
    }
}

impl Default for System {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            next_job: AtomicU32::new(1),
            held: watch::Sender::new(0),
        }))
    }
}

impl System {
    /// Joins the message bus at `address` under the services' names. They leave it when the connection is closed.
    pub async fn join(&self, address: &str) -> zbus::Result<Connection> {
        let connection = services::serve(zbus::connection::Builder::address(address), self)
            .name(services::SYSTEMD)
            .name(services::LOGIND)
            .name(services::HOSTNAMED)
            .build()
            .await?;
        self.0.state.lock().listeners.push(connection.clone());
        Ok(connection)
    }

    /// Brings a bus along: clients that connect to this socket find the services on it and nobody else.
    pub fn listen(&self, socket: &Path) -> Result<Bus, Error> {
        Bus::listen(self, socket)
    }

    /// Gives a unit its state and tells, as systemd does.
    pub async fn set(&self, name: &str, unit: Unit) -> zbus::Result<()> {
        self.0.state.lock().units.insert(name.to_owned(), unit);
        for listener in self.listeners() {
            services::unit_changed(&listener, self, name).await?;
        }
        Ok(())
    }

    /// Makes a unit known that does this when it is started.
    pub fn on_start(&self, unit: &str, behaviour: OnStart) {
        let mut state = self.0.state.lock();
        let never_ran = Unit {
            invocation: Vec::new(),
            ..Unit::new("inactive", "dead")
        };
        state.units.entry(unit.to_owned()).or_insert(never_ran);
        state.on_start.insert(unit.to_owned(), behaviour);
    }

    /// Ends the running job of a unit with this result, `done` for a good one.
    pub async fn finish(&self, name: &str, result: &str) -> zbus::Result<()> {
        let ended = {
            let mut state = self.0.state.lock();
            if let Some(unit) = state.units.get_mut(name) {
                (unit.active, unit.sub) = ("inactive".to_owned(), "dead".to_owned());
            }
            state.jobs.remove(name)
        };
        let Some((number, job)) = ended else {
            return Ok(());
        };
        for listener in self.listeners() {
            let emitter = SignalEmitter::new(&listener, services::SYSTEMD_PATH)?;
            services::job_removed(&emitter, number, job.clone(), name, result).await?;
        }
        Ok(())
    }

    /// Begins a shutdown, or calls it off.
    pub async fn prepare_for_shutdown(&self, start: bool) -> zbus::Result<()> {
        self.0.state.lock().preparing = start;
        for listener in self.listeners() {
            let emitter = SignalEmitter::new(&listener, services::LOGIND_PATH)?;
            services::shutdown_prepared(&emitter, start).await?;
        }
        Ok(())
    }

    /// How long logind lets itself be held back; ten minutes unless told.
    pub fn set_delay(&self, delay: Duration) {
        self.0.state.lock().delay = Some(delay);
    }

    /// What hostnamed says, as its JSON text.
    pub fn describe(&self, description: impl Into<String>) {
        self.0.state.lock().description = Some(description.into());
    }

    /// Every unit that was asked to start, in order.
    pub fn started(&self) -> Vec<String> {
        self.0.state.lock().started.clone()
    }

    /// Every unit that was asked to restart, in order.
    pub fn restarted(&self) -> Vec<String> {
        self.0.state.lock().restarted.clone()
    }

    /// Every lock that was ever asked for.
    pub fn locks(&self) -> Vec<Lock> {
        self.0.state.lock().locks.clone()
    }

    /// How many locks are held.
    pub fn held(&self) -> watch::Receiver<u32> {
        self.0.held.subscribe()
    }

    fn listeners(&self) -> Vec<Connection> {
        let mut state = self.0.state.lock();
        state.listeners.retain(|listener| !listener.is_closed());
        state.listeners.clone()
    }

    fn unit(&self, name: &str) -> Unit {
        let state = self.0.state.lock();
        state.units.get(name).cloned().unwrap_or_else(Unit::missing)
    }

    fn job(&self) -> (u32, OwnedObjectPath) {
        let number = self.0.next_job.fetch_add(1, Ordering::Relaxed);
        (number, services::job_path(number))
    }
}
