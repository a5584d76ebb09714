// SPDX-License-Identifier: Apache-2.0
//! What agents and other replicas call. An agent speaks for its own host and nobody else's.

use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_wire::rest::{ObserveAnswer, Observed};
use cobaltcore_ha_wire::{Batch, BatchAnswer, CommandList, Problem, WireError, bounds};

use super::call::{Answer, Call, json};
use super::{App, problem};
use crate::access::Caller;
use crate::directory::{HostEntry, ZONE};
use crate::ingest;
use crate::neighbours::{Neighbour, choose};
use crate::peers::probe_word;

impl Call {
    /// The host in the path, if the caller may speak for it.
    fn own_host(&self) -> Result<HostName, Problem> {
        let host = self.host()?;
        match &self.caller {
            Caller::Agent(None) => Ok(host),
            Caller::Agent(Some(bound)) if *bound == host => Ok(host),
            _ => {
                self.app.count_refused("agent", "foreign");
                Err(problem(
                    403,
                    "Forbidden",
                    format!("these credentials do not speak for {host}"),
                ))
            }
        }
    }
}

pub(super) async fn report(call: Call) -> Answer {
    let host = call.own_host()?;
    let app = &call.app;
    let mut batch = Batch::decode(&call.body).map_err(|error| {
        app.count_refused("report", "malformed");
        match error {
            WireError::TooLarge { .. } => problem(413, "Too large", error.to_string()),
            WireError::Malformed(_) => problem(400, "Bad request", error.to_string()),
            WireError::Schema { .. } | WireError::Invalid { .. } => {
                problem(422, "Not valid", error.to_string())
            }
        }
    })?;
    let mut peers = Vec::new();
    if let Some(beat) = batch
        .heartbeat
        .as_mut()
        .filter(|beat| beat.self_fence.timeout_s > 0)
    {
        peers = neighbours_of(app, &host);
        // Whom its agent would ask by now nobody knows, so nobody counts on its watchdog.
        beat.self_fence.armed &= !peers.is_empty();
    }
    let acked_seq = ingest::take(app, &host, batch, call.place.clone()).await?;
    let asked = host.clone();
    let hold = app
        .brain
        .ask(move |engine, _| engine.hold_reactions(&asked))
        .await
        // Nobody knows: repair nothing locally.
        .unwrap_or(true);
    let now = tokio::time::Instant::now();
    json(&BatchAnswer {
        acked_seq,
        server_time: jiff::Timestamp::now(),
        hold,
        commands: app
            .commands
            .take(&host)
            .into_iter()
            .take(bounds::COMMANDS)
            .map(|waiting| ingest::on_the_wire(waiting, now))
            .collect(),
        peers,
    })
}

/// Whom this agent may ask before its host takes itself out.
fn neighbours_of(app: &App, host: &HostName) -> Vec<String> {
    let config = app.config();
    let innermost = config.kubernetes.failure_domains.last();
    let rack = |entry: &HostEntry| innermost.and_then(|key| entry.labels.get(key).cloned());
    let lately = config.agents.silent_after.0;
    let all: Vec<Neighbour> = app
        .directory
        .all()
        .into_iter()
        .filter(|(name, _)| app.heard.fresh(name, lately))
        .filter_map(|(name, entry)| {
            Some(Neighbour {
                rack: rack(&entry),
                address: entry.internal_ip.as_deref()?.parse().ok()?,
                host: name,
            })
        })
        .collect();
    let own = app.directory.get(host).and_then(|entry| rack(&entry));
    // The only zone is the fleet, and says nothing about racks.
    let fleet = innermost.is_some_and(|key| key == ZONE) && all.iter().all(|other| other.rack == own);
    choose(host, own.as_deref().filter(|_| !fleet), &all, config.agents.port)
}

pub(super) async fn commands(call: Call) -> Answer {
    let host = call.own_host()?;
    let seconds = match call.asked("wait") {
        None => 0,
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| problem(400, "Bad request", "wait must be a number of seconds"))?
            .min(bounds::WAIT_S),
    };
    // A thousand of these wait all day, and need nothing else of their calls.
    let commands = call.app.commands.clone();
    drop(call);
    let found = commands.wait(&host, Duration::from_secs(seconds)).await;
    let now = tokio::time::Instant::now();
    json(&CommandList {
        commands: found
            .into_iter()
            .map(|waiting| ingest::on_the_wire(waiting, now))
            .collect(),
    })
}

pub(super) async fn observe(call: Call) -> Answer {
    let app = &call.app;
    let wanted: Vec<HostName> = call
        .asked("hosts")
        .unwrap_or_default()
        .split(',')
        .filter_map(|name| HostName::new(name).ok())
        .take(64)
        .collect();
    let view = app
        .brain
        .ask(|engine, now| (engine.leads().is_some(), engine.peer_view(now.mono)))
        .await;
    let Some((leads, seen)) = view else {
        return Err(problem(503, "Busy", "this replica is ending"));
    };
    let mut hosts: Vec<Observed> = seen
        .into_iter()
        .filter(|(host, _)| wanted.is_empty() || wanted.contains(host))
        .map(|(host, seen)| Observed {
            host,
            age_ms: seen.age_ms,
            boot_id: seen.boot.map(|boot| boot.0),
            resets_after_ms: seen.resets_after.map(|after| after.as_millis() as u64),
            probe: None,
        })
        .collect();
    if call.asked("probe") == Some("true") && !wanted.is_empty() {
        let looks = hosts.iter_mut().map(|seen| async {
            let found = app.investigator.look(&seen.host).await;
            seen.probe = found.map(|result| probe_word(result).to_owned());
        });
        futures::future::join_all(looks).await;
    }
    json(&ObserveAnswer {
        replica: app.investigator.me.0,
        leads,
        hosts,
    })
}
