// SPDX-License-Identifier: Apache-2.0
//! What the service asks: probe an address, send the list of guests, stop a guest that runs elsewhere. Nothing else. An
//! id is carried out once, whoever asks and however often; what is too late is not done.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{
    Command, CommandId, CommandKind, CommandList, CommandOutcome, CommandResult, ProbeReport, ServerId,
    bounds, path,
};
use cobaltcore_kit::CancellationToken;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::link::Link;
use super::probe;
use crate::board::Context;
use crate::config::Action;
use crate::draft::Guest;
use crate::reaction;

/// Ids that are remembered.
const REMEMBERED: usize = 1024;
const MOST_AT_ONCE: usize = 16;
/// What a poll may take beyond its wait.
const MARGIN: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
const AFTER_FAILURES: Duration = Duration::from_secs(30);

/// Carries commands out.
pub(crate) struct Executor {
    context: Context,
    seen: Mutex<Seen>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Seen {
    order: VecDeque<CommandId>,
    ids: HashSet<CommandId>,
}

impl Seen {
    /// Whether this id is new; it is remembered.
    fn add(&mut self, id: &CommandId) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id.clone());
        if self.order.len() > REMEMBERED
            && let Some(old) = self.order.pop_front()
        {
            self.ids.remove(&old);
        }
        true
    }
}

impl Executor {
    pub(crate) fn new(context: Context) -> Arc<Self> {
        Arc::new(Self {
            context,
            seen: Mutex::default(),
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        })
    }

    /// Takes what an endpoint asks; the results go to that endpoint.
    pub(crate) fn take(self: &Arc<Self>, endpoint: &str, commands: Vec<Command>) {
        let received = Instant::now();
        for command in commands.into_iter().take(bounds::COMMANDS) {
            if command.id.0.is_empty()
                || command.id.0.len() > bounds::ID
                || !self.seen.lock().add(&command.id)
            {
                continue;
            }
            let (this, endpoint) = (Arc::clone(self), endpoint.to_owned());
            tokio::spawn(async move {
                let Ok(_place) = this.places.clone().acquire_owned().await else {
                    return;
                };
                let id = command.id.clone();
                let (outcome, message, probes) = this.carry_out(command, received).await;
                tracing::info!(%id, ?outcome, message, "command");
                let message = bounds::clip(&message, bounds::TEXT).to_owned();
                this.context
                    .board
                    .post(&endpoint, probes, CommandResult { id, outcome, message });
            });
        }
    }

    async fn carry_out(
        &self,
        command: Command,
        received: Instant,
    ) -> (CommandOutcome, String, Vec<ProbeReport>) {
        if received.elapsed() >= Duration::from_millis(command.expires_in_ms) {
            return (CommandOutcome::Expired, String::new(), Vec::new());
        }
        match command.kind {
            CommandKind::Probe { targets, timeout_ms } => {
                if targets.len() > bounds::TARGETS {
                    let message = format!("{} targets are more than {}", targets.len(), bounds::TARGETS);
                    return (CommandOutcome::Refused, message, Vec::new());
                }
                let time = Duration::from_millis(timeout_ms.min(bounds::PROBE_MS));
                let tries = targets
                    .into_iter()
                    .map(|target| probe::probe(command.id.clone(), target, time));
                (CommandOutcome::Done, String::new(), join_all(tries).await)
            }
            CommandKind::Resync => {
                self.context.board.resync.notify_one();
                (CommandOutcome::Done, String::new(), Vec::new())
            }
            CommandKind::PauseDomain { uuid, incident } => {
                let (outcome, message) = self.pause(&uuid, &incident).await;
                (outcome, message, Vec::new())
            }
            CommandKind::Unknown => (
                CommandOutcome::Unsupported,
                format!("{} does not know this", env!("CARGO_PKG_VERSION")),
                Vec::new(),
            ),
        }
    }

    async fn pause(&self, uuid: &ServerId, incident: &str) -> (CommandOutcome, String) {
        let Ok(id) = Uuid::parse_str(uuid.as_str()) else {
            return (CommandOutcome::Failed, format!("{uuid} is no UUID"));
        };
        let known = self.context.board.guests(|guests| guests.all.get(&id).cloned());
        let Some(known) = known else {
            return (CommandOutcome::Failed, format!("there is no guest {uuid} here"));
        };
        let guest = Guest {
            uuid: id,
            name: known.name,
            id: known.id,
        };
        if self.context.config().reactions.zombie.action != Action::Pause {
            reaction::leave_zombie(&self.context, guest, incident);
            let message = "reactions.zombie.action of this agent is not pause".to_owned();
            return (CommandOutcome::Refused, message);
        }
        match reaction::pause_zombie(&self.context, guest, incident).await {
            Ok(()) => (CommandOutcome::Done, String::new()),
            Err(why) => (CommandOutcome::Failed, why),
        }
    }
}

/// Asks one endpoint for commands until `stop`.
pub(super) async fn poll(
    context: Context,
    endpoint: String,
    link: Link,
    executor: Arc<Executor>,
    stop: CancellationToken,
) {
    let target = path::commands(&context.start.host, bounds::WAIT_S);
    let mut failures = 0_u32;
    loop {
        let asked = link.get(&target, Duration::from_secs(bounds::WAIT_S) + MARGIN);
        let reply = tokio::select! {
            () = stop.cancelled() => return,
            reply = asked => reply,
        };
        let list = reply.map_err(Some).and_then(|reply| match reply.status {
            200 => {
                serde_json::from_slice::<CommandList>(&reply.body).map_err(|error| Some(error.to_string()))
            }
            204 => Ok(CommandList::default()),
            status => Err(Some(format!("status {status}"))),
        });
        let began = Instant::now();
        match list {
            Ok(list) => {
                failures = 0;
                let nothing = list.commands.is_empty();
                executor.take(&endpoint, list.commands);
                // A service that does not wait must not be asked in a loop.
                let pause = if nothing {
                    Duration::from_millis(500)
                } else {
                    Duration::ZERO
                };
                tokio::time::sleep(pause.saturating_sub(began.elapsed())).await;
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                tracing::debug!(endpoint, ?why, "cannot ask for commands");
                let pause = if failures < 3 {
                    AFTER_FAILURE
                } else {
                    AFTER_FAILURES
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_new_once_and_memory_is_bounded() {
        let mut seen = Seen::default();
        let id = |n: usize| CommandId(n.to_string());
        assert!(seen.add(&id(0)));
        assert!(!seen.add(&id(0)));
        for n in 1..=REMEMBERED {
            assert!(seen.add(&id(n)));
        }
        assert_eq!((seen.ids.len(), seen.order.len()), (REMEMBERED, REMEMBERED));
        assert!(seen.add(&id(0)), "forgotten after a thousand others");
    }
}
