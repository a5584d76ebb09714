// SPDX-License-Identifier: Apache-2.0
//! The sign of life to one endpoint, with the list of guests when it changed or is due. Only the newest matters: what
//! could not be sent is not sent later. Nothing here waits for the disk: a host whose disk stands still is alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::stream::Answer;
use cobaltcore_ha_wire::{Batch, Heartbeat, Inventory, bounds, path};
use cobaltcore_kit::CancellationToken;

use super::commands::Executor;
use super::envelope;
use super::link::Link;
use crate::board::{Context, Looks, Outbox};
use crate::config::MOST_WHILE_GUARDED;
use crate::machine;

/// No sign of life waits longer than this for its answer.
pub(crate) const BEAT_TIME: Duration = Duration::from_secs(5);
/// A change of the guests is told this fast at most, so that a storm of changes is not a storm of reports.
const SHORTEST: Duration = Duration::from_millis(200);

/// What this endpoint was last told.
#[derive(Default)]
struct Told {
    version: u64,
    looks: Looks,
    at: Option<Instant>,
    /// Whether the watchdog runs, as the last heartbeat said.
    armed: bool,
}

impl Told {
    /// Whether the list of guests is to be told: it changed, somebody asked for it, or it was told long ago. The service takes
    /// every list for one that was made just now, so one is told again only if the guests were looked at since, and one from
    /// before the last regular look not at all: a libvirt that hangs makes no list fresh.
    fn is_due(&self, version: u64, looks: Looks, interval: Duration) -> bool {
        let made = looks.at.is_some_and(|at| at.elapsed() <= interval);
        let again = || looks.at != self.looks.at && self.at.is_none_or(|at| at.elapsed() >= interval / 2);
        version > 0 && made && (version != self.version || looks.asked != self.looks.asked || again())
    }
}

/// Beats until `stop`.
pub(super) async fn run(
    context: Context,
    endpoint: String,
    link: Link,
    executor: Arc<Executor>,
    stop: CancellationToken,
) {
    let mut beat = context.board.beat.subscribe();
    let mut inventory = context.inventory.clone();
    let mut told = Told::default();
    let mut failing = false;
    loop {
        let began = Instant::now();
        let guarded = *context.board.guarded.borrow();
        let interval = pace(context.config().heartbeat.interval.0, guarded);
        let answer = send(&context, &endpoint, &link, &mut told).await;
        let ok = matches!(answer, Answer::Acked(_));
        context.metrics.beat(&endpoint, if ok { "ok" } else { "failed" });
        match answer {
            Answer::Acked(answer) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(endpoint, "the service hears this host again");
                }
                context
                    .board
                    .reached(&endpoint, began, answer.hold, answer.peers, told.armed);
                executor.take(&endpoint, answer.commands);
            }
            other => {
                if other == Answer::Unauthorized {
                    link.renew();
                }
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(endpoint, answer = ?other, "the service does not hear this host");
                }
            }
        }
        let varied = interval.mul_f64(0.9 + fastrand::f64() * 0.2);
        let next = varied.saturating_sub(began.elapsed()).max(SHORTEST);
        // After a failure nothing is hurried: the next regular one tells everything.
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next) => {}
            Ok(()) = beat.changed(), if ok => tokio::time::sleep(SHORTEST).await,
            Ok(()) = inventory.changed(), if ok => tokio::time::sleep(SHORTEST).await,
        }
        beat.mark_unchanged();
        inventory.mark_unchanged();
    }
}

/// How far signs of life are apart. A watchdog that is not configured any more runs until the service knows; until then its
/// lease lives from the answers.
fn pace(interval: Duration, guarded: bool) -> Duration {
    if guarded {
        interval.min(MOST_WHILE_GUARDED.0)
    } else {
        interval
    }
}

async fn send(context: &Context, endpoint: &str, link: &Link, told: &mut Told) -> Answer {
    let outbox = context.board.outbox(endpoint);
    // In this order: a list is never older than the look that it is told with.
    let looks = context.board.looks();
    let inventory = context.inventory.borrow().clone();
    let interval = context.config().inventory.interval.0;
    let with = told
        .is_due(inventory.inventory_version, looks, interval)
        .then(|| Inventory::clone(&inventory));
    let version = with.as_ref().map(|inventory| inventory.inventory_version);
    let beat = heartbeat(context, endpoint, &outbox);
    told.armed = beat.self_fence.armed;
    if told.armed {
        context.board.says_armed(endpoint);
    }
    let body = match encode(context, beat, with) {
        Ok(body) => body,
        Err(error) => return Answer::Broken(error),
    };
    let target = path::batches(&context.start.host);
    let answer = match link.post(&target, body, BEAT_TIME).await {
        Ok(reply) => Answer::read(reply.status, reply.retry_after, &reply.body),
        Err(why) => Answer::Broken(why),
    };
    if matches!(answer, Answer::Acked(_)) {
        context.board.told(endpoint, &outbox);
        if let Some(version) = version {
            (told.version, told.looks, told.at) = (version, looks, Some(Instant::now()));
        }
    }
    answer
}

fn encode(context: &Context, beat: Heartbeat, inventory: Option<Inventory>) -> Result<Vec<u8>, String> {
    let mut batch = Batch {
        heartbeat: Some(beat),
        inventory,
        ..Batch::empty(envelope(context))
    };
    let body = batch.encode().map_err(|error| error.to_string())?;
    if body.len() <= bounds::BODY {
        return Ok(body);
    }
    // Where the disks are matters less than which guests there are.
    for domain in batch
        .inventory
        .iter_mut()
        .flat_map(|inventory| &mut inventory.domains)
    {
        domain.disks.clear();
    }
    batch.encode().map_err(|error| error.to_string())
}

fn heartbeat(context: &Context, endpoint: &str, outbox: &Outbox) -> Heartbeat {
    let root = &context.start.host_root;
    let uptime_s = machine::uptime(root);
    context.metrics.uptime(uptime_s);
    let spool = context.spool.standing();
    context.metrics.spool(&spool.worst());
    Heartbeat {
        uptime_s,
        boot_id: context.boot.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        config_hash: context.config_hash.borrow().clone(),
        libvirt: context.board.libvirt_for_heartbeat(),
        domains: context.board.guests(|guests| guests.counts()),
        spool: spool.state(endpoint),
        machine: context.machine.clone(),
        self_fence: context.board.fence(),
        planned_shutdown: context.board.shutdown_announced(),
        pressure: machine::pressure(root),
        probes: outbox.probes.clone(),
        results: outbox.results.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_told_again_only_if_the_guests_were_looked_at_since() {
        let minute = Duration::from_secs(60);
        let ago = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds));
        let look = |seconds: u64, asked: u64| Looks {
            at: ago(seconds),
            asked,
        };
        let told = Told {
            version: 3,
            looks: look(50, 1),
            at: ago(50),
            armed: false,
        };
        let fresh = look(1, 1);
        assert!(told.is_due(3, fresh, minute), "it is time");
        assert!(!told.is_due(3, told.looks, minute), "nobody has looked since");
        assert!(told.is_due(4, fresh, minute), "it is another one");
        assert!(!told.is_due(4, look(70, 1), minute), "that is old by now");
        let lately = Told { at: ago(5), ..told };
        assert!(!lately.is_due(3, fresh, minute));
        assert!(lately.is_due(3, look(1, 2), minute), "somebody asked");
        assert!(
            !Told::default().is_due(0, Looks::default(), minute),
            "nothing is known yet"
        );
        assert!(Told::default().is_due(1, fresh, minute));
    }

    #[test]
    fn while_a_watchdog_runs_no_configuration_makes_signs_of_life_rare() {
        let s = Duration::from_secs;
        for (interval, guarded, wanted) in [
            (30, true, 5),
            (30, false, 30),
            (5, true, 5),
            (1, true, 1),
            (1, false, 1),
        ] {
            assert_eq!(pace(s(interval), guarded), s(wanted), "{interval} {guarded}");
        }
    }
}
