// SPDX-License-Identifier: Apache-2.0
//! What the parts of the agent know of each other: how libvirt is, which guests there are, when the service was last
//! reached and what it asked. Short locks, never held while waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{
    AgentId, BootId, CommandResult, Inventory, Kind, Libvirt, Machine, ProbeReport, SelfFence, bounds,
};
use cobaltcore_kit::health::Health;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use crate::args::Start;
use crate::config::Config;
use crate::intake::Intake;
use crate::libvirt::known::Guests;
use crate::metrics::Metrics;
use crate::reaction::Incident;
use crate::spool::SharedSpool;

/// How libvirt is.
#[derive(Clone, Debug, Default)]
pub struct LibvirtFacts {
    /// Whether there is a connection.
    pub connected: bool,
    /// The daemon's version.
    pub version: String,
    /// When it last answered.
    pub last_ok: Option<Instant>,
    /// Since when there is no connection.
    pub down_since: Option<Instant>,
    /// Kinds its driver does not have.
    pub unsupported: Vec<Kind>,
}

/// What waits to be told to one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// What probes found.
    pub probes: Vec<ProbeReport>,
    /// What became of commands.
    pub results: Vec<CommandResult>,
}

impl Outbox {
    fn bound(&mut self) {
        let most = bounds::RESULTS * bounds::TARGETS;
        self.probes.drain(..self.probes.len().saturating_sub(most));
        self.results
            .drain(..self.results.len().saturating_sub(bounds::RESULTS));
    }
}

/// The last word of one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    /// When it last answered a heartbeat.
    pub at: Option<Instant>,
    /// Whether it asked to repair nothing.
    pub hold: bool,
    /// Whom to ask before fencing oneself.
    pub peers: Vec<String>,
    /// Whether it believes that the watchdog runs: what the last heartbeat said that it answered, and yes since one said
    /// so that it may have heard. Nothing before that; it may remember an earlier start of the agent.
    pub believes_armed: Option<bool>,
}

/// How the list of guests stands to what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// When every guest was last looked at; the list is as of then.
    pub at: Option<Instant>,
    /// How often a list was made because somebody asked for it.
    pub asked: u64,
}

/// Everything shared.
#[derive(Default)]
pub struct Board {
    libvirt: Mutex<LibvirtFacts>,
    guests: Mutex<Guests>,
    contacts: Mutex<BTreeMap<String, Contact>>,
    outboxes: Mutex<BTreeMap<String, Outbox>>,
    fence: Mutex<SelfFence>,
    /// Whether a watchdog is open: until it is closed, the service goes on hearing this host.
    pub guarded: watch::Sender<bool>,
    shutdown: AtomicBool,
    looks: Mutex<Looks>,
    /// Somebody asked for the list of guests.
    pub resync: Notify,
    /// Somebody has something to tell with a heartbeat.
    pub beat: watch::Sender<u64>,
}

/// What every part is given.
#[derive(Clone)]
pub struct Context {
    /// What was said on the command line.
    pub start: Arc<Start>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// Which one that is.
    pub config_hash: watch::Receiver<String>,
    /// What is shared.
    pub board: Arc<Board>,
    /// Where records go.
    pub intake: Intake,
    /// Where they wait.
    pub spool: Arc<SharedSpool>,
    /// The id made with the spool.
    pub agent_id: AgentId,
    /// How often an agent was started on it.
    pub epoch: u64,
    /// The list of guests, with its version.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// What may call for a local repair.
    pub incidents: mpsc::Sender<Incident>,
    /// What is counted.
    pub metrics: Metrics,
    /// What is well.
    pub health: Health,
    /// This boot.
    pub boot: BootId,
    /// This machine.
    pub machine: Machine,
}

impl Context {
    /// The configuration at this moment.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }
}

impl Board {
    /// How libvirt is.
    pub fn libvirt(&self) -> LibvirtFacts {
        self.libvirt.lock().clone()
    }

    /// Changes what is known of libvirt.
    pub fn change_libvirt(&self, change: impl FnOnce(&mut LibvirtFacts)) {
        change(&mut self.libvirt.lock());
    }

    /// The part of a heartbeat about libvirt.
    pub fn libvirt_for_heartbeat(&self) -> Libvirt {
        let facts = self.libvirt.lock();
        Libvirt {
            connected: facts.connected,
            version: facts.version.clone(),
            last_ok_ms: facts.last_ok.map(|at| at.elapsed().as_millis() as u64),
            unsupported: facts.unsupported.clone(),
        }
    }

    /// Looks at the guests, or changes what is known of them.
    pub fn guests<R>(&self, look: impl FnOnce(&mut Guests) -> R) -> R {
        look(&mut self.guests.lock())
    }

    /// A heartbeat is about to tell an endpoint that the watchdog runs. From now on it may believe so, whether its answer
    /// arrives or not.
    pub fn says_armed(&self, endpoint: &str) {
        if let Some(contact) = self.contacts.lock().get_mut(endpoint) {
            contact.believes_armed = Some(true);
        }
    }

    /// An endpoint answered a heartbeat that was sent at that time and told it whether the watchdog runs. The service counts
    /// from when it came there, so a lease counts from before that, however late the answer is read.
    pub fn reached(&self, endpoint: &str, sent: Instant, hold: bool, peers: Vec<String>, armed: bool) {
        let mut peers = peers;
        peers.truncate(bounds::PEERS);
        let contact = Contact {
            at: Some(sent),
            hold,
            peers,
            believes_armed: Some(armed),
        };
        self.contacts.lock().insert(endpoint.to_owned(), contact);
    }

    /// These are the endpoints; what others said is forgotten.
    pub fn set_endpoints(&self, endpoints: &[String]) {
        let mut contacts = self.contacts.lock();
        contacts.retain(|endpoint, _| endpoints.contains(endpoint));
        for endpoint in endpoints {
            contacts.entry(endpoint.clone()).or_default();
        }
        self.outboxes
            .lock()
            .retain(|endpoint, _| endpoints.contains(endpoint));
    }

    /// The last words of all endpoints.
    pub fn contacts(&self) -> Vec<Contact> {
        self.contacts.lock().values().cloned().collect()
    }

    /// How long ago any endpoint answered.
    pub fn last_contact(&self) -> Option<Duration> {
        let contacts = self.contacts.lock();
        contacts
            .values()
            .filter_map(|contact| contact.at)
            .map(|at| at.elapsed())
            .min()
    }

    /// Whether somebody asked to repair nothing. One voice is enough.
    pub fn hold(&self) -> bool {
        self.contacts.lock().values().any(|contact| contact.hold)
    }

    /// Something to tell an endpoint with the next heartbeat, which is now.
    pub fn post(&self, endpoint: &str, probes: Vec<ProbeReport>, result: CommandResult) {
        let mut outboxes = self.outboxes.lock();
        let outbox = outboxes.entry(endpoint.to_owned()).or_default();
        outbox.probes.extend(probes);
        outbox.results.push(result);
        outbox.bound();
        drop(outboxes);
        self.beat_now();
    }

    /// What waits for an endpoint.
    pub fn outbox(&self, endpoint: &str) -> Outbox {
        self.outboxes.lock().get(endpoint).cloned().unwrap_or_default()
    }

    /// An endpoint has heard this.
    pub fn told(&self, endpoint: &str, told: &Outbox) {
        if let Some(outbox) = self.outboxes.lock().get_mut(endpoint) {
            outbox.probes.retain(|probe| !told.probes.contains(probe));
            outbox.results.retain(|result| !told.results.contains(result));
        }
    }

    /// Every guest was looked at, and the list is as they are. One that somebody asked for is told at once.
    pub fn looked(&self, asked: bool) {
        let mut looks = self.looks.lock();
        looks.at = Some(Instant::now());
        looks.asked += u64::from(asked);
        drop(looks);
        if asked {
            self.beat_now();
        }
    }

    /// How the list of guests stands.
    pub fn looks(&self) -> Looks {
        *self.looks.lock()
    }

    /// The next heartbeat is now.
    pub fn beat_now(&self) {
        self.beat.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Whether the watchdog runs.
    pub fn fence(&self) -> SelfFence {
        self.fence.lock().clone()
    }

    /// The watchdog runs, or not.
    pub fn set_fence(&self, fence: SelfFence) {
        *self.fence.lock() = fence;
    }

    /// Whether a shutdown was announced.
    pub fn shutdown_announced(&self) -> bool {
        self.shutdown.load(Ordering::SeqCst)
    }

    /// A shutdown was announced, or called off.
    pub fn announce_shutdown(&self, yes: bool) {
        self.shutdown.store(yes, Ordering::SeqCst);
        self.beat_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_is_as_old_as_the_heartbeat_that_was_answered() {
        let board = Board::default();
        let sent = Instant::now().checked_sub(Duration::from_secs(40)).unwrap();
        board.reached("a", sent, false, Vec::new(), false);
        assert!(board.last_contact().unwrap() >= Duration::from_secs(40));
    }

    /// It may have heard it, and its answer was lost.
    #[test]
    fn a_service_that_may_have_heard_of_the_watchdog_believes_in_it_until_it_answers_otherwise() {
        let board = Board::default();
        board.set_endpoints(&["a".to_owned(), "b".to_owned()]);
        let believes = || {
            let contacts = board.contacts().into_iter();
            contacts.map(|contact| contact.believes_armed).collect::<Vec<_>>()
        };
        board.reached("a", Instant::now(), false, Vec::new(), false);
        assert_eq!(believes(), [Some(false), None]);
        board.says_armed("a");
        assert_eq!(believes(), [Some(true), None]);
        board.says_armed("b");
        assert_eq!(believes(), [Some(true), Some(true)]);
        board.reached("a", Instant::now(), false, Vec::new(), false);
        assert_eq!(believes(), [Some(false), Some(true)]);
    }
}
