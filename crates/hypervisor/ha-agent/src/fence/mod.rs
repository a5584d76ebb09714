// SPDX-License-Identifier: Apache-2.0
//! Self-fencing: a watchdog that is fed only while this host is in touch with the service. Off unless configured. An
//! orderly end of the agent disarms it; anything else resets the host, which is the point.

pub mod decide;
mod device;

use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{SelfFence, path};
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::future::join_all;

use crate::board::Context;
use crate::config;
use crate::libvirt::reach;
use decide::{Situation, Verdict};
use device::Watchdog;

const ASK_TIME: Duration = Duration::from_secs(2);
const PAUSE_TIME: Duration = Duration::from_secs(5);
const NOBODY: &str = "the service names no agent that could be asked before this host is taken out; see that the Node has \
    the label of its rack (the last of kubernetes.failure_domains), and that agents in other racks report";
/// How often an agent without a watchdog looks whether it should have one.
const IDLE: Duration = Duration::from_secs(1);

/// Feeds until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let mut watchdog: Option<Watchdog> = None;
    let mut fenced = false;
    let mut refused: Option<String> = None;
    // Since when the service is reached and names nobody who could be asked.
    let mut alone: Option<Instant> = None;
    loop {
        let settings = context.config().self_fence.clone();
        let pause = if watchdog.is_some() {
            settings.feed_interval.0
        } else {
            IDLE
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        if fenced {
            // The decision is taken; nothing takes it back.
            continue;
        }
        let reached = decide::lease_holds(&contacts(&context), settings.lease_ttl.0);
        alone = (reached && peers(&context).is_empty()).then(|| alone.unwrap_or_else(Instant::now));
        match (&mut watchdog, settings.enabled) {
            (None, false) => context.board.set_fence(SelfFence::default()),
            (None, true) => match arm(&context, &settings, alone).await {
                Ok(Some(armed)) => {
                    watchdog = Some(armed);
                    refused = None;
                }
                Ok(None) => {}
                Err(why) => {
                    if refused.as_ref() != Some(&why) {
                        tracing::error!(why, "self-fencing is configured but cannot be armed");
                    }
                    refused = Some(why);
                }
            },
            (Some(_), false) => {
                disarm(&context, watchdog.take());
            }
            (Some(armed), true) => {
                fenced = feed(&context, &settings, armed).await;
                if !fenced && stand_down(&context, &settings, armed, alone) {
                    disarm(&context, watchdog.take());
                }
            }
        }
    }
    if !fenced {
        disarm(&context, watchdog);
    }
    Ok(())
}

fn peers(context: &Context) -> Vec<String> {
    let mut peers: Vec<String> = context
        .board
        .contacts()
        .into_iter()
        .flat_map(|contact| contact.peers)
        .collect();
    peers.sort();
    peers.dedup();
    peers.truncate(cobaltcore_ha_wire::bounds::PEERS);
    peers
}

fn contacts(context: &Context) -> Vec<Option<Duration>> {
    let contacts = context.board.contacts().into_iter();
    contacts
        .map(|contact| contact.at.map(|at| at.elapsed()))
        .collect()
}

/// Opens the watchdog once it is safe to: the service is reached, it has named peers, and those answer. Without peers an
/// outage of the service would look like isolation, on every host at once.
async fn arm(
    context: &Context,
    settings: &config::SelfFence,
    alone: Option<Instant>,
) -> Result<Option<Watchdog>, String> {
    // The service names peers to those that say they will need them.
    context.board.set_fence(SelfFence {
        armed: false,
        timeout_s: settings.timeout.0.as_secs() as u32,
        lease_ttl_s: settings.lease_ttl.0.as_secs() as u32,
    });
    let neighbours = peers(context);
    if alone.is_some_and(|since| since.elapsed() > settings.lease_ttl.0) {
        return Err(NOBODY.to_owned());
    }
    if !decide::lease_holds(&contacts(context), settings.lease_ttl.0) || neighbours.is_empty() {
        return Ok(None);
    }
    if !decide::neighbours_answer(&ask(&neighbours).await) {
        let places = neighbours.join(", ");
        return Err(format!(
            "fewer than half of the agents answer that it would ask before it takes its host out: {places}; \
             see that the port of metrics.listen is open on every host"
        ));
    }
    let watchdog = Watchdog::open(&settings.device, &context.start.host_root, settings.timeout.0)?;
    let timeout_s = watchdog.timeout().as_secs() as u32;
    tracing::warn!(device = %settings.device.display(), timeout_s, "self-fencing is armed");
    context.metrics.armed(true);
    context.board.set_fence(SelfFence {
        armed: true,
        timeout_s,
        lease_ttl_s: settings.lease_ttl.0.as_secs() as u32,
    });
    context.board.beat_now();
    Ok(Some(watchdog))
}

/// Whether an armed watchdog must go because the service names nobody any more: the next outage of the service would reset
/// this host, and with it all others that are alone. The service is told first, and believes it once it was reached since.
fn stand_down(
    context: &Context,
    settings: &config::SelfFence,
    watchdog: &Watchdog,
    alone: Option<Instant>,
) -> bool {
    let mut told = context.board.fence();
    let armed = alone.is_none_or(|since| since.elapsed() <= settings.lease_ttl.0);
    if told.armed != armed {
        told.armed = armed;
        told.timeout_s = watchdog.timeout().as_secs() as u32;
        context.board.set_fence(told);
        context.board.beat_now();
        if !armed {
            tracing::error!(why = NOBODY, "self-fencing will be disarmed");
        }
    }
    // Whoever is in touch now was so within the lease, and so after it was told.
    alone.is_some_and(|since| since.elapsed() > settings.lease_ttl.0 * 3)
}

fn disarm(context: &Context, watchdog: Option<Watchdog>) {
    if let Some(watchdog) = watchdog {
        match watchdog.disarm() {
            Ok(()) => tracing::warn!("self-fencing is disarmed"),
            Err(error) => tracing::error!(%error, "the watchdog cannot be disarmed and may reset this host"),
        }
        context.metrics.armed(false);
        context.board.set_fence(SelfFence::default());
    }
}

/// Feeds, or fences. Says whether it fenced.
async fn feed(context: &Context, settings: &config::SelfFence, watchdog: &mut Watchdog) -> bool {
    let mut situation = Situation {
        contacts: contacts(context),
        lease: settings.lease_ttl.0,
        peers: None,
    };
    let mut verdict = decide::decide(&situation);
    if verdict == Verdict::Ask {
        situation.peers = Some(ask(&peers(context)).await);
        // The service may have answered meanwhile.
        situation.contacts = contacts(context);
        verdict = decide::decide(&situation);
    }
    match verdict {
        Verdict::Feed | Verdict::Ask => {
            if let Err(error) = watchdog.feed() {
                tracing::error!(%error, "the watchdog cannot be fed and may reset this host");
            }
            false
        }
        Verdict::Fence => {
            tracing::error!(peers = ?situation.peers, "cut off from the service: stopping the guests and this host");
            pause_all(context).await;
            true
        }
    }
}

/// Asks other agents whether they reach the service.
async fn ask(peers: &[String]) -> Vec<Option<bool>> {
    let Ok(client) = reqwest::Client::builder().timeout(ASK_TIME).no_proxy().build() else {
        return Vec::new();
    };
    let questions = peers.iter().map(|peer| {
        let request = client.get(format!("{}{}", peer.trim_end_matches('/'), path::CONTACT));
        async move {
            let text = request.send().await.ok()?.text().await.ok()?;
            Some(text.contains(&format!("[+]{} ok", path::CONTACT_CHECK)))
        }
    });
    join_all(questions).await
}

/// Stops every reported guest in its tracks, as far as there is time.
async fn pause_all(context: &Context) {
    let filter = context.config().events.clone();
    let work = async {
        let connection = reach::read_write(&context.start).await?;
        let running = connection.list_all_domains(1).await?;
        let chosen: Vec<_> = running
            .iter()
            .filter(|domain| filter.wants_guest(&domain.name))
            .collect();
        for result in join_all(chosen.iter().map(|domain| connection.suspend(domain))).await {
            if let Err(error) = result {
                tracing::error!(%error, "a guest cannot be stopped; the watchdog will");
            }
        }
        Ok::<_, cobaltcore_libvirt::Error>(())
    };
    match tokio::time::timeout(PAUSE_TIME, work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "guests cannot be stopped; the watchdog will"),
        Err(_) => tracing::error!("guests are not stopped in time; the watchdog will"),
    }
}
