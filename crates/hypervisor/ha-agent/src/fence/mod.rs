// SPDX-License-Identifier: Apache-2.0
//! Self-fencing: a watchdog that is fed only while this host is in touch with the service. Off unless configured. An
//! orderly end of the agent disarms it once the service knows: silence after that must not be taken for a reset. Anything
//! else resets the host, which is the point.

pub mod decide;
mod device;
mod left;

use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{SelfFence, path};
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::future::join_all;

use crate::board::Context;
use crate::config::{self, SHORTEST_WATCHDOG};
use crate::kept::Kept;
use crate::libvirt::reach;
use decide::{Situation, Verdict};
use device::Watchdog;
use left::Left;

const ASK_TIME: Duration = Duration::from_secs(2);
const PAUSE_TIME: Duration = Duration::from_secs(5);
/// By then all agents have found a service that is back, also one with other addresses.
const MOST_DOUBT: Duration = Duration::from_secs(30);
const NOBODY: &str = "the service names no agents that could be asked before this host is taken out; see that the Node has \
    the label of its rack (the last of kubernetes.failure_domains), and that agents of five hosts report, four of them in \
    other racks";
/// How often an agent without a watchdog looks whether it should have one.
const IDLE: Duration = Duration::from_secs(1);
/// How long an agent that stops waits for the service to know that its watchdog stops as well.
pub(crate) const STAND_DOWN: Duration = Duration::from_secs(7);
const LOOK: Duration = Duration::from_millis(100);
/// How often people are told of a host that was taken out and goes on.
const REMIND: Duration = Duration::from_secs(60);

/// A watchdog that runs, and the settings the service was told with it. Those count until it is stopped: the service takes
/// silence for a reset after that lease and that timeout, whatever the configuration says by then.
struct Armed {
    watchdog: Watchdog,
    settings: config::SelfFence,
    /// Whom to ask before this host is taken out, as the service named them last.
    neighbours: Vec<String>,
    /// Since when this host looks cut off.
    doubted: Option<Instant>,
}

impl Armed {
    fn lease(&self) -> Duration {
        self.settings.lease_ttl.0
    }

    /// How long until it is fed again. The service is not told of that, so a new one counts at once, as far as the device
    /// that runs can bear it.
    fn pace(&self, settings: &config::SelfFence) -> Duration {
        let pace = settings.feed_interval.0.min(self.watchdog.timeout() / 3);
        if self.doubted.is_some() {
            pace.min(IDLE)
        } else {
            pace
        }
    }

    /// Tells the next start of the agent what runs.
    fn remember(&self, context: &Context, fenced: bool, kept: &Kept) {
        let left = Left::new(&context.boot, &self.settings, &self.neighbours, fenced);
        kept.keep(&Some(left));
    }

    /// What is known of this host, before its neighbours are asked.
    fn situation(&self, context: &Context) -> Situation {
        Situation {
            contacts: contacts(context),
            lease: self.lease(),
            peers: None,
            looked_cut_off: self.doubted.map_or(Duration::ZERO, |since| since.elapsed()),
            doubt: doubt(
                self.watchdog.timeout(),
                context.config().self_fence.feed_interval.0,
            ),
        }
    }

    /// Whether it would be armed like this now.
    fn is_as_configured(&self, settings: &config::SelfFence) -> bool {
        let told =
            |settings: &config::SelfFence| (settings.device.clone(), settings.timeout, settings.lease_ttl);
        told(&self.settings) == told(settings)
    }
}

/// For how long a host may look cut off before it is taken out, with a watchdog that is not fed meanwhile. Before that it was
/// fed, and neighbours were asked; the last two questions may begin just before the end and after it; and guests are stopped
/// before the watchdog does it.
fn doubt(timeout: Duration, feed_interval: Duration) -> Duration {
    let fed = feed_interval.min(timeout / 3);
    let spent = fed + ASK_TIME * 3 + IDLE + PAUSE_TIME;
    MOST_DOUBT.min(timeout.saturating_sub(spent))
}

/// Feeds until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let file = context.config().spool.dir.join("watchdog.json");
    let (kept, left) = Kept::open::<Option<Left>>(file).await;
    let mut left = left.flatten().filter(|left| left.may_run(&context.boot));
    let mut fenced = left.as_ref().is_some_and(|left| left.fenced);
    if left.is_some() && !fenced {
        tracing::warn!(
            "an earlier agent left its watchdog running; it is fed once the service is reached, or neighbours have lost it too"
        );
    }
    let began = Instant::now();
    let mut reminded: Option<Instant> = None;
    let mut watchdog: Option<Armed> = None;
    let mut refused: Option<String> = None;
    // Since when the service is reached and names nobody who could be asked.
    let mut alone: Option<Instant> = None;
    loop {
        let settings = context.config().self_fence.clone();
        let pause = watchdog.as_ref().map_or(IDLE, |armed| armed.pace(&settings));
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        if fenced {
            // The decision is taken; nothing takes it back, nor does an agent that begins after this one.
            if reminded.is_none_or(|at| at.elapsed() >= REMIND) {
                tracing::error!(
                    "this host was taken out and its guests stand still: if its watchdog does not reset it, do"
                );
                reminded = Some(Instant::now());
            }
            continue;
        }
        if left.as_ref().is_some_and(|left| left.is_over(began.elapsed())) {
            tracing::warn!("the watchdog that an earlier agent left does not run any more");
            kept.keep(&None::<Left>);
            left = None;
        }
        let lease = watchdog.as_ref().map_or(settings.lease_ttl.0, Armed::lease);
        let reached = decide::lease_holds(&contacts(&context), lease);
        alone =
            (reached && named(&context, lease, &[]).is_empty()).then(|| alone.unwrap_or_else(Instant::now));
        match (&mut watchdog, settings.enabled || left.is_some()) {
            (None, false) => context.board.set_fence(SelfFence::default()),
            (None, true) => match take(&context, &settings, alone, left.as_ref()).await {
                Ok(Some(armed)) => {
                    context.board.guarded.send_replace(true);
                    armed.remember(&context, false, &kept);
                    watchdog = Some(armed);
                    (refused, left) = (None, None);
                }
                Ok(None) => {}
                Err(why) => {
                    if refused.as_ref() != Some(&why) {
                        tracing::error!(why, "self-fencing is configured but cannot be armed");
                    }
                    refused = Some(why);
                }
            },
            (Some(armed), _) => {
                let neighbours = named(&context, lease, &armed.neighbours);
                if !neighbours.is_empty() && neighbours != armed.neighbours {
                    armed.neighbours = neighbours;
                    armed.remember(&context, false, &kept);
                }
                fenced = feed(&context, armed, &kept).await;
                if !fenced && stand_down(&context, &settings, armed, alone) {
                    disarm(&context, watchdog.take(), &kept);
                }
            }
        }
    }
    if let Some(armed) = watchdog.filter(|_| !fenced) {
        end(&context, armed, &kept).await;
    }
    context.board.guarded.send_replace(false);
    kept.finish().await;
    Ok(())
}

/// The agent stops. Its watchdog is stopped if the service learns of it in time; else it goes on and resets this host unless
/// an agent feeds it again: whoever was told that it runs takes silence for a reset, and starts the guests elsewhere.
async fn end(context: &Context, mut armed: Armed, kept: &Kept) {
    let (lease, pace) = (armed.lease(), armed.pace(&context.config().self_fence));
    say(context, &armed, false);
    let known = async {
        let mut fed: Option<Instant> = None;
        while !service_knows(context, lease) {
            // In an outage of the service the next agent has what is left of the timeout to come.
            if fed.is_none_or(|at| at.elapsed() >= pace) {
                fed = Some(Instant::now());
                feed_if_well(context, &mut armed).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(STAND_DOWN, known).await.is_ok() {
        disarm(context, Some(armed), kept);
    } else {
        let timeout_s = armed.watchdog.timeout().as_secs();
        tracing::error!(
            timeout_s,
            "the service cannot be told that self-fencing ends, so the watchdog stays armed; it resets this host unless the \
             agent is started again within its timeout, and reaches the service or neighbours that have lost it as well"
        );
    }
}

/// Whom to ask before this host is taken out, as the replicas name them that were reached within the lease.
fn named(context: &Context, lease: Duration, before: &[String]) -> Vec<String> {
    let contacts = context.board.contacts().into_iter();
    let reached = contacts.filter_map(|contact| Some((contact.at?.elapsed(), contact.peers)));
    decide::named(reached.filter(|(age, _)| *age <= lease), before)
}

fn contacts(context: &Context) -> Vec<Option<Duration>> {
    let contacts = context.board.contacts().into_iter();
    contacts
        .map(|contact| contact.at.map(|at| at.elapsed()))
        .collect()
}

/// Has a watchdog run: the one that an earlier agent left, or one that is started.
async fn take(
    context: &Context,
    settings: &config::SelfFence,
    alone: Option<Instant>,
    left: Option<&Left>,
) -> Result<Option<Armed>, String> {
    match left {
        Some(left) => take_over(context, settings, left).await,
        None => arm(context, settings, alone).await,
    }
}

/// Feeds on what an earlier agent left running, also if no watchdog is wanted any more: it is stopped like any other. It needs
/// the service, or neighbours that have lost it as well; else the watchdog does what it is there for.
async fn take_over(
    context: &Context,
    settings: &config::SelfFence,
    left: &Left,
) -> Result<Option<Armed>, String> {
    let settings = left.settings(settings);
    let situation = Situation {
        contacts: contacts(context),
        lease: settings.lease_ttl.0,
        peers: Some(ask(&left.neighbours).await),
        looked_cut_off: Duration::ZERO,
        doubt: Duration::ZERO,
    };
    if decide::decide(&situation) != Verdict::Feed {
        return Ok(None);
    }
    // What runs already is fed, however hasty it is.
    start(context, settings, Duration::ZERO, left.neighbours.clone()).map(Some)
}

/// Opens the watchdog once it is safe to: the service is reached, it has named peers, and those answer. Without peers an
/// outage of the service would look like isolation, on every host at once.
async fn arm(
    context: &Context,
    settings: &config::SelfFence,
    alone: Option<Instant>,
) -> Result<Option<Armed>, String> {
    // The service names peers to those that say they will need them.
    context.board.set_fence(SelfFence {
        armed: false,
        timeout_s: settings.timeout.0.as_secs() as u32,
        lease_ttl_s: settings.lease_ttl.0.as_secs() as u32,
    });
    let neighbours = named(context, settings.lease_ttl.0, &[]);
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
    start(context, settings.clone(), SHORTEST_WATCHDOG, neighbours).map(Some)
}

/// Opens the watchdog, which starts it, and tells the service.
fn start(
    context: &Context,
    settings: config::SelfFence,
    shortest: Duration,
    neighbours: Vec<String>,
) -> Result<Armed, String> {
    let (root, longest) = (&context.start.host_root, settings.timeout.0);
    let watchdog = Watchdog::open(&settings.device, root, shortest, longest)?;
    let timeout_s = watchdog.timeout().as_secs() as u32;
    tracing::warn!(device = %settings.device.display(), timeout_s, "self-fencing is armed");
    context.metrics.armed(true);
    context.board.set_fence(SelfFence {
        armed: true,
        timeout_s,
        lease_ttl_s: settings.lease_ttl.0.as_secs() as u32,
    });
    context.board.beat_now();
    Ok(Armed {
        watchdog,
        settings,
        neighbours,
        doubted: None,
    })
}

/// Whether an armed watchdog is to be stopped now: it is not configured any more, or otherwise than the service was told,
/// or the service names nobody any more, and then the next outage of the service would reset this host, and with it all
/// others that are alone. The service is told first; until it knows, the watchdog is fed as it was armed.
fn stand_down(
    context: &Context,
    settings: &config::SelfFence,
    armed: &Armed,
    alone: Option<Instant>,
) -> bool {
    let alone = alone.is_some_and(|since| since.elapsed() > armed.lease());
    let changed = settings.enabled && !armed.is_as_configured(settings);
    let wanted = settings.enabled && !alone && !changed;
    if context.board.fence().armed != wanted {
        say(context, armed, wanted);
        if alone {
            tracing::error!(why = NOBODY, "self-fencing will be disarmed");
        } else if changed {
            tracing::warn!("self-fencing will be disarmed and armed anew, because its settings changed");
        }
    }
    !wanted && service_knows(context, armed.lease())
}

/// Tells the service whether this watchdog counts.
fn say(context: &Context, watchdog: &Armed, armed: bool) {
    let mut told = context.board.fence();
    told.armed = armed;
    told.timeout_s = watchdog.watchdog.timeout().as_secs() as u32;
    context.board.set_fence(told);
    context.board.beat_now();
}

fn service_knows(context: &Context, lease: Duration) -> bool {
    let contacts = context.board.contacts().into_iter();
    let contacts: Vec<_> = contacts
        .map(|contact| (contact.at.map(|at| at.elapsed()), contact.believes_armed))
        .collect();
    decide::service_knows(&contacts, lease)
}

fn disarm(context: &Context, armed: Option<Armed>, kept: &Kept) {
    if let Some(armed) = armed {
        match armed.watchdog.disarm() {
            Ok(()) => tracing::warn!("self-fencing is disarmed"),
            Err(error) => tracing::error!(%error, "the watchdog cannot be disarmed and may reset this host"),
        }
        kept.keep(&None::<Left>);
        context.metrics.armed(false);
        context.board.set_fence(SelfFence::default());
        context.board.guarded.send_replace(false);
    }
}

/// Feeds, or fences. Says whether it fenced.
async fn feed(context: &Context, armed: &mut Armed, kept: &Kept) -> bool {
    match feed_if_well(context, armed).await {
        Verdict::Fence => {
            armed.remember(context, true, kept);
            tracing::error!("cut off from the service: stopping the guests and this host");
            pause_all(context).await;
            true
        }
        Verdict::Feed | Verdict::Ask | Verdict::Doubt => false,
    }
}

/// Feeds unless this host looks cut off. Gives back how it looks.
async fn feed_if_well(context: &Context, armed: &mut Armed) -> Verdict {
    let mut situation = armed.situation(context);
    let mut verdict = decide::decide(&situation);
    if verdict == Verdict::Ask {
        situation.peers = Some(ask(&armed.neighbours).await);
        // The service may have answered meanwhile.
        situation.contacts = contacts(context);
        verdict = decide::decide(&situation);
    }
    match verdict {
        Verdict::Feed => {
            armed.doubted = None;
            if let Err(error) = armed.watchdog.feed() {
                tracing::error!(%error, "the watchdog cannot be fed and may reset this host");
            }
        }
        Verdict::Doubt | Verdict::Fence | Verdict::Ask => {
            if armed.doubted.is_none() {
                tracing::warn!(peers = ?situation.peers, "this host looks cut off from the service");
            }
            armed.doubted.get_or_insert_with(Instant::now);
        }
    }
    verdict
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_look_cut_off_for_as_long_as_its_watchdog_gives_it() {
        for (timeout, feed_interval, wanted) in [
            (30, 5, 13),
            (30, 10, 8),
            (30, 60, 8),
            (40, 5, 23),
            (60, 5, 30),
            (60, 20, 28),
            (600, 5, 30),
        ] {
            let found = doubt(Duration::from_secs(timeout), Duration::from_secs(feed_interval));
            assert_eq!(found.as_secs(), wanted, "{timeout} {feed_interval}");
            let fed = feed_interval.min(timeout / 3);
            assert!(
                fed + 2 + wanted + 1 + 2 + 2 + 5 <= timeout,
                "guests are stopped in time"
            );
        }
    }
}
