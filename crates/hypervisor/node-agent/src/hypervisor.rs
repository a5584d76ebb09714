// SPDX-License-Identifier: Apache-2.0
//! Follows the own Hypervisor object. It may not exist yet, may be deleted and come back, and the API may be away: the
//! rest of the agent only ever sees the newest known object or none.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_kit::health::{Check, Heartbeat};
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::StreamExt as _;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::context::{Context, Seen};
use crate::metrics::Source;

const REMIND: Duration = Duration::from_mins(1);
/// Loops must show progress well within the minute that liveness allows.
pub(crate) const BEAT: Duration = Duration::from_secs(20);

/// Who hears what the watch tells.
#[derive(Clone)]
pub(crate) struct Listeners {
    /// Everybody who needs the object.
    pub(crate) seen: watch::Sender<Seen>,
    /// Turns well with the first answer of the API.
    pub(crate) ready: Check,
    /// Beats while the loop goes round.
    pub(crate) beat: Heartbeat,
}

/// Follows the Hypervisor of this host until `stop`.
pub(crate) async fn follow(
    context: Context,
    listeners: Listeners,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let Listeners { seen, ready, beat } = listeners;
    let name = context.config.host.to_string();
    let api: Api<Hypervisor> = Api::all(context.client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut found = false;
    let mut reminded: Option<Instant> = None;
    loop {
        beat.beat();
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            event = events.next() => event,
            () = sleep(BEAT) => {
                remind(&name, &seen, &mut reminded);
                continue;
            }
        };
        if matches!(event, Some(Ok(_))) {
            context.metrics.ages.fresh(Source::Hypervisor);
        }
        match event {
            None => return Err("the watch ended".into()),
            Some(Err(error)) => tracing::warn!(hypervisor = name, %error, "cannot watch the Hypervisor"),
            Some(Ok(watcher::Event::Init)) => found = false,
            Some(Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                found = true;
                ready.ok();
                seen.send_replace(Some(Arc::new(object)));
                context.tell_what_waited();
            }
            Some(Ok(watcher::Event::InitDone)) => {
                ready.ok();
                if !found {
                    seen.send_replace(None);
                    remind(&name, &seen, &mut reminded);
                }
            }
            Some(Ok(watcher::Event::Delete(_))) => {
                tracing::info!(
                    hypervisor = name,
                    "the Hypervisor was deleted; waiting for a new one"
                );
                seen.send_replace(None);
            }
        }
    }
}

fn remind(name: &str, seen: &watch::Sender<Seen>, last: &mut Option<Instant>) {
    if seen.borrow().is_none() && last.is_none_or(|last| last.elapsed() >= REMIND) {
        *last = Some(Instant::now());
        tracing::info!(
            hypervisor = name,
            "there is no Hypervisor of this name yet; waiting for the operator to create it"
        );
    }
}
