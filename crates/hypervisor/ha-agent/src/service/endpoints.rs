// SPDX-License-Identifier: Apache-2.0
//! Which replicas there are, and a conversation with each. Replicas come and go with the configuration and with what
//! the name resolves to; one that cannot be resolved for a while is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_kit::{BoxError, CancellationToken};
use tokio::task::JoinSet;
use url::Url;

use super::commands::Executor;
use super::heartbeat::BEAT_TIME;
use super::link::{Endpoint, Link};
use super::{commands, heartbeat, sender};
use crate::board::Context;
use crate::config::{Discover, Service};

/// How often names are resolved and conversations are looked after.
const RESOLVE: Duration = Duration::from_secs(10);
/// How often while no replica answers: they may be elsewhere by now, and a watchdog may wait for their answer.
const RESOLVE_LOST: Duration = Duration::from_secs(2);
const RESOLVE_TIME: Duration = Duration::from_secs(5);
/// How long conversations may go on after the end was asked for, so that the last record still arrives.
const LAST_WORDS: Duration = Duration::from_secs(3);

struct Conversation {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Talks to every endpoint until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let executor = Executor::new(context.clone());
    let mut config = context.config.clone();
    let mut talks: BTreeMap<Endpoint, Conversation> = BTreeMap::new();
    let mut service = config.borrow_and_update().service.clone();
    loop {
        if let Some(endpoints) = resolve(&service).await {
            follow(&context, &executor, &service, &endpoints, &mut talks);
        }
        let lately = context.config().heartbeat.interval.0 * 2 + BEAT_TIME;
        let answered = context.board.last_contact().is_some_and(|ago| ago <= lately);
        let pause = if answered { RESOLVE } else { RESOLVE_LOST };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {
                // None of the tasks ends by itself; one that did is begun anew, with the others.
                talks.retain(|_, talk| talk.tasks.try_join_next().is_none());
            }
            // That nothing changes any more is no reason to end: whoever reads the configuration ends before the last words.
            Ok(()) = config.changed() => {
                let now = config.borrow_and_update().service.clone();
                if now != service {
                    // Other keys or another token: every conversation begins anew.
                    service = now;
                    talks.clear();
                }
            }
        }
    }
    for talk in talks.values() {
        talk.stop.cancel();
    }
    let ended = async {
        for talk in talks.values_mut() {
            while talk.tasks.join_next().await.is_some() {}
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, ended).await;
    Ok(())
}

fn follow(
    context: &Context,
    executor: &Arc<Executor>,
    service: &Service,
    endpoints: &[Endpoint],
    talks: &mut BTreeMap<Endpoint, Conversation>,
) {
    let keys: Vec<String> = endpoints.iter().map(|endpoint| endpoint.key.clone()).collect();
    context.spool.set_endpoints(&keys);
    context.board.set_endpoints(&keys);
    talks.retain(|endpoint, _| endpoints.contains(endpoint));
    for endpoint in endpoints {
        if talks.contains_key(endpoint) {
            continue;
        }
        tracing::info!(endpoint = endpoint.key, "talking to the service");
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let link = || Link::new(endpoint.clone(), service);
        let key = endpoint.key.clone();
        tasks.spawn(sender::run(context.clone(), key.clone(), link(), stop.clone()));
        tasks.spawn(heartbeat::run(
            context.clone(),
            key.clone(),
            link(),
            Arc::clone(executor),
            stop.clone(),
        ));
        tasks.spawn(commands::poll(
            context.clone(),
            key,
            link(),
            Arc::clone(executor),
            stop.clone(),
        ));
        talks.insert(endpoint.clone(), Conversation { stop, tasks });
    }
}

/// The endpoints; nothing if a name cannot be resolved now.
async fn resolve(service: &Service) -> Option<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    for text in &service.endpoints {
        let base = Url::parse(text).ok()?;
        let named = |address| Endpoint {
            key: match address {
                Some(address) => format!("{}#{address}", text.trim_end_matches('/')),
                None => text.trim_end_matches('/').to_owned(),
            },
            base: base.clone(),
            address,
        };
        if service.discover == Discover::None {
            endpoints.push(named(None));
            continue;
        }
        let host = base.host_str()?.to_owned();
        let port = base.port_or_known_default()?;
        let found = tokio::time::timeout(RESOLVE_TIME, tokio::net::lookup_host((host.as_str(), port))).await;
        match found {
            Ok(Ok(addresses)) => endpoints.extend(addresses.map(|address| named(Some(address)))),
            Ok(Err(error)) => {
                tracing::warn!(host, %error, "cannot resolve the service; keeping what was known");
                return None;
            }
            Err(_) => {
                tracing::warn!(
                    host,
                    "the name of the service is not resolved in time; keeping what was known"
                );
                return None;
            }
        }
    }
    endpoints.sort();
    endpoints.dedup();
    (!endpoints.is_empty()).then_some(endpoints)
}
