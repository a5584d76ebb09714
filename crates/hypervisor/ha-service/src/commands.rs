// SPDX-License-Identifier: Apache-2.0
//! Commands that wait for agents. An agent fetches those of its host; the result comes with its
//! next heartbeat. Commands expire, and there are few per host, so a silent agent costs nothing.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::{HostName, ServerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Commands that wait for one agent, at most; the oldest gives way.
const MOST_WAITING: usize = 64;
/// An answer that comes later than this is about a question nobody remembers.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// What an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Try to reach addresses.
    Probe {
        /// The host that is looked for.
        about: HostName,
        /// Its address.
        address: IpAddr,
        /// The ports to try.
        ports: Vec<u16>,
        /// How long one attempt may take.
        timeout: Duration,
    },
    /// Send the inventory.
    Resync,
    /// Pause a guest that runs elsewhere.
    PauseDomain(ServerId),
}

/// A command on its way.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its id, which results name.
    pub id: uuid::Uuid,
    /// What.
    pub order: Order,
    /// When it is of no use any more.
    pub expires: Instant,
}

#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<Waiting>,
    bell: Arc<Notify>,
}

/// A probe that an agent was asked for.
struct Asked {
    whom: HostName,
    about: HostName,
    at: Instant,
}

#[derive(Default)]
struct Office {
    boxes: HashMap<HostName, Mailbox>,
    probes: HashMap<uuid::Uuid, Asked>,
}

/// All commands. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct Commands(Arc<Mutex<Office>>);

impl Commands {
    /// Leaves a command for the agent of `host` and answers its id.
    pub fn push(&self, host: &HostName, order: Order, lifetime: Duration) -> uuid::Uuid {
        let id = uuid::Uuid::new_v4();
        let now = Instant::now();
        let mut office = self.0.lock();
        let Office { boxes, probes } = &mut *office;
        let mailbox = boxes.entry(host.clone()).or_default();
        // The same wish twice is one wish.
        if let Some(same) = mailbox.waiting.iter_mut().find(|waiting| waiting.order == order) {
            same.expires = now + lifetime;
            return same.id;
        }
        if let Order::Probe { about, .. } = &order {
            probes.retain(|_, asked| now.duration_since(asked.at) < ANSWER_TIME);
            let asked = Asked {
                whom: host.clone(),
                about: about.clone(),
                at: now,
            };
            probes.insert(id, asked);
        }
        if mailbox.waiting.len() >= MOST_WAITING {
            mailbox.waiting.pop_front();
        }
        mailbox.waiting.push_back(Waiting {
            id,
            order,
            expires: now + lifetime,
        });
        mailbox.bell.notify_waiters();
        id
    }

    /// Takes what waits for `host`.
    pub fn take(&self, host: &HostName) -> Vec<Waiting> {
        let mut office = self.0.lock();
        let Some(mailbox) = office.boxes.get_mut(host) else {
            return Vec::new();
        };
        let now = Instant::now();
        mailbox
            .waiting
            .drain(..)
            .filter(|waiting| waiting.expires > now)
            .collect()
    }

    /// An agent answers a probe: whom it was about, and when it was asked. Nothing if this agent was
    /// not asked, or answered before.
    pub fn settle(&self, id: &str, by: &HostName) -> Option<(HostName, Instant)> {
        let id = uuid::Uuid::parse_str(id).ok()?;
        let mut office = self.0.lock();
        let asked = office.probes.get(&id).filter(|asked| asked.whom == *by)?;
        let answer = (asked.about.clone(), asked.at);
        office.probes.remove(&id);
        Some(answer)
    }

    /// Takes what waits for `host`, or waits for it up to `time`.
    pub async fn wait(&self, host: &HostName, time: Duration) -> Vec<Waiting> {
        let deadline = Instant::now() + time;
        loop {
            let bell = Arc::clone(&self.0.lock().boxes.entry(host.clone()).or_default().bell);
            let rung = bell.notified();
            tokio::pin!(rung);
            // Registered before looking, so that nothing is missed in between.
            rung.as_mut().enable();
            let found = self.take(host);
            if !found.is_empty() {
                return found;
            }
            if tokio::time::timeout_at(deadline, rung).await.is_err() {
                return Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostName {
        HostName::new("n1").unwrap()
    }

    #[tokio::test]
    async fn a_waiting_agent_gets_the_command_at_once() {
        let commands = Commands::default();
        let asking = {
            let commands = commands.clone();
            tokio::spawn(async move { commands.wait(&host(), Duration::from_secs(60)).await })
        };
        tokio::task::yield_now().await;
        let id = commands.push(&host(), Order::Resync, Duration::from_secs(30));
        let found = asking.await.unwrap();
        assert_eq!((found.len(), found[0].id), (1, id));
        assert!(commands.take(&host()).is_empty(), "a command is handed out once");
    }

    #[tokio::test]
    async fn only_whom_was_asked_answers_and_once() {
        let commands = Commands::default();
        let about = HostName::new("n2").unwrap();
        let order = Order::Probe {
            about: about.clone(),
            address: [127, 0, 0, 1].into(),
            ports: vec![22],
            timeout: Duration::from_secs(1),
        };
        let id = commands.push(&host(), order, Duration::from_secs(10)).to_string();
        assert!(commands.settle(&id, &about).is_none(), "somebody else");
        assert!(commands.settle("made up", &host()).is_none());
        assert_eq!(commands.settle(&id, &host()).map(|(host, _)| host), Some(about));
        assert!(commands.settle(&id, &host()).is_none(), "twice");
    }

    #[tokio::test(start_paused = true)]
    async fn commands_expire_and_the_same_wish_is_one() {
        let commands = Commands::default();
        let one = commands.push(&host(), Order::Resync, Duration::from_secs(30));
        assert_eq!(
            one,
            commands.push(&host(), Order::Resync, Duration::from_secs(30))
        );
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(commands.take(&host()).is_empty());
        assert!(commands.wait(&host(), Duration::from_secs(1)).await.is_empty());
    }
}
