// SPDX-License-Identifier: Apache-2.0
//! Starts the parts of the agent and keeps them running until it is asked to stop. Libvirt, the service and the bus may
//! come and go; a part that fails is started again.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_wire::{Inventory, agent, path};
use cobaltcore_kit::auth::AllowAll;
use cobaltcore_kit::health::{Check, Health, Kind};
use cobaltcore_kit::http::{Endpoints, Listener};
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::supervisor::{OnExit, Supervisor};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_kit::{BoxError, CancellationToken};
use tokio::sync::{mpsc, watch};

use crate::args::Start;
use crate::board::{Board, Context};
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::reload::InForce;
use crate::spool::{Opened, SharedSpool, Spool};
use crate::{fence, libvirt, logind, machine, reaction, reload, service};

const AGAIN: OnExit = OnExit::Restart(Backoff::TASK);
/// A host without libvirt for this long is not ready.
const LIBVIRT_PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);
const COMPONENT: Component = Component {
    name: "ha-agent",
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("COBALTCORE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
};

/// Runs the agent until `shutdown` begins. Fails only for what it was told and for a spool it cannot use.
pub async fn run(start: Start, shutdown: Shutdown) -> Result<(), Error> {
    cobaltcore_kit::startup::install_tls_provider();
    let content = std::fs::read(&start.config).unwrap_or_default();
    let config = Config::read(&start.config)?;
    let (telemetry, health) = (Telemetry::new(&COMPONENT), Health::new());
    let metrics = Metrics::new(&telemetry);
    let hash = reload::hash(&content);
    metrics.config(&hash);
    let (spool, opened) = Spool::open(&config.spool.dir, config.spool.limits())?;
    let (agent_id, epoch) = (spool.agent_id().clone(), spool.epoch());
    let spool = SharedSpool::new(spool);
    let written = health.check("spool", Kind::Ready);
    let (intake, writer) = Intake::start(Arc::clone(&spool), metrics.clone(), written);
    let listen = config.metrics.listen.clone();
    let (config, config_seen) = watch::channel(Arc::new(config));
    let (hash, hash_seen) = watch::channel(hash);
    let (inventory, inventory_seen) = watch::channel(Arc::new(Inventory::default()));
    let (incidents, incidents_seen) = mpsc::channel(reaction::QUEUE);
    let context = Context {
        config: config_seen,
        config_hash: hash_seen,
        board: Arc::new(Board::default()),
        intake,
        spool,
        agent_id,
        epoch,
        inventory: inventory_seen,
        incidents,
        metrics,
        boot: machine::boot_id(&start.host_root),
        machine: machine::machine(&start.host_root),
        start: Arc::new(start),
        health: health.clone(),
    };
    begin(&context, &opened).await;
    let supervisor = Supervisor::new(shutdown.clone(), health.clone(), &telemetry);
    serve(&listen, &supervisor, &telemetry, &health).await?;
    spawn_parts(
        &supervisor,
        &context,
        InForce { config, hash },
        inventory,
        incidents_seen,
    );
    let ended = supervisor.join().await;
    // What the parts said last is made durable before the process ends.
    writer.finish().await;
    ended.map_err(Error::from)
}

fn spawn_parts(
    supervisor: &Supervisor,
    context: &Context,
    in_force: InForce,
    inventory: watch::Sender<Arc<Inventory>>,
    incidents: mpsc::Receiver<reaction::Incident>,
) {
    let part = |name: &str, start: Part| {
        let context = context.clone();
        supervisor.spawn(name, AGAIN, move |stop| start(context.clone(), stop));
    };
    part("service", |context, stop| Box::pin(talk(context, stop)));
    part("logind", |context, stop| Box::pin(logind::run(context, stop)));
    part("self-fence", |context, stop| Box::pin(fence::run(context, stop)));
    part("readiness", |context, stop| Box::pin(watch_health(context, stop)));
    let (first, in_force) = (context.clone(), Arc::new(in_force));
    supervisor.spawn("config", AGAIN, move |stop| {
        reload::run(first.clone(), Arc::clone(&in_force), stop)
    });
    let first = context.clone();
    supervisor.spawn("libvirt", AGAIN, move |stop| {
        libvirt::run(first.clone(), inventory.clone(), stop)
    });
    let (first, incidents) = (context.clone(), Arc::new(tokio::sync::Mutex::new(incidents)));
    supervisor.spawn("reactions", AGAIN, move |stop| {
        reaction::run(first.clone(), Arc::clone(&incidents), stop)
    });
}

type Part = fn(Context, CancellationToken) -> futures::future::BoxFuture<'static, Result<(), BoxError>>;

/// Talks to the service; the last thing it says is that the agent stops. A watchdog is closed before: the service must hear
/// that it does not run any more, or it takes silence for a host that has reset itself.
async fn talk(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let talking = CancellationToken::new();
    let talk = service::run(context.clone(), talking.clone());
    let goodbye = async {
        stop.cancelled().await;
        let mut progress = context.intake.progress();
        let before = progress.borrow_and_update().accepted;
        context.intake.put(Draft::agent(agent::STOPPING));
        let written = progress.wait_for(|progress| progress.accepted > before);
        let _ = tokio::time::timeout(Duration::from_secs(5), written).await;
        let mut guarded = context.board.guarded.subscribe();
        let _ = tokio::time::timeout(
            fence::STAND_DOWN + Duration::from_secs(1),
            guarded.wait_for(|guarded| !guarded),
        )
        .await;
        talking.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = talk => ended,
        () = goodbye => Ok(()),
    }
}

/// What the agent says first.
async fn begin(context: &Context, opened: &Opened) {
    let (epoch, id) = (context.epoch, &context.agent_id.0);
    tracing::info!(host = %context.start.host, agent_id = id, epoch, boot = %context.boot, "the agent begins");
    if opened.torn > 0 {
        tracing::warn!(
            bytes = opened.torn,
            "the last write before this start never ended; it was never accepted"
        );
    }
    for lost in &opened.lost {
        tracing::error!(
            segment = lost.segment,
            bytes = lost.bytes,
            "records were lost on disk"
        );
        let draft = Draft::agent(agent::SPOOL_CORRUPT)
            .with("segment", lost.segment.as_str())
            .with("bytes", lost.bytes as i64);
        context.intake.put(draft);
    }
    let version = COMPONENT.version;
    let draft = Draft::agent(agent::STARTED)
        .with("version", version)
        .with("epoch", epoch as i64);
    context.intake.put(draft);
    let hash = context.config_hash.borrow().clone();
    context
        .intake
        .put(Draft::agent(agent::CONFIG_APPLIED).with("hash", hash));
    for dump in machine::dumps(&context.start.host_root) {
        let name = dump.clone();
        let remembered = context
            .spool
            .work_elsewhere(move |spool| spool.is_new_dump(&name));
        let new = remembered.await.is_ok_and(|new| new.unwrap_or(true));
        if new {
            tracing::warn!(dump, "the boot before this one ended in a crash");
            context
                .intake
                .put(Draft::agent(agent::PREVIOUS_BOOT_CRASH).with("dump", dump));
        }
    }
}

/// Keeps the checks in step with what is known.
async fn watch_health(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let libvirt = context.health.check("libvirt", Kind::Ready);
    let lease = context.health.check(path::CONTACT_CHECK, Kind::Advisory);
    loop {
        let facts = context.board.libvirt();
        let away = facts.down_since.map(|since| since.elapsed());
        tell(
            &libvirt,
            ready_without(facts.connected, away),
            "libvirt is not reachable",
        );
        let contacts: Vec<_> = context
            .board
            .contacts()
            .iter()
            .map(|contact| contact.at.map(|at| at.elapsed()))
            .collect();
        let ttl = context.config().self_fence.lease_ttl.0;
        tell(
            &lease,
            fence::decide::lease_holds(&contacts, ttl),
            "most of the service is not reachable",
        );
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Whether the agent is of use: libvirt is there, or was a moment ago.
fn ready_without(connected: bool, away: Option<Duration>) -> bool {
    connected || away.is_none_or(|away| away < LIBVIRT_PATIENCE)
}

fn tell(check: &Check, ok: bool, why: &str) {
    if ok {
        check.ok();
    } else {
        check.failed(why);
    }
}

async fn serve(
    address: &str,
    supervisor: &Supervisor,
    telemetry: &Telemetry,
    health: &Health,
) -> Result<(), Error> {
    if matches!(address, "" | "0") {
        return Ok(());
    }
    let listener = Listener::bind(address).await?;
    let endpoints = Endpoints::health(health.clone()).and_metrics(telemetry.clone(), AllowAll);
    let mut listener = Some(listener);
    supervisor.spawn("listener", OnExit::MayFinish, move |stop| {
        let (listener, endpoints) = (listener.take(), endpoints.clone());
        async move {
            match listener {
                Some(listener) => listener.serve(endpoints, stop).await.map_err(Into::into),
                None => Ok(()),
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_ready_with_libvirt_and_half_a_minute_without() {
        for (connected, away, ready) in [
            (true, None, true),
            (true, Some(100), true),
            (false, None, true),
            (false, Some(29), true),
            (false, Some(30), false),
        ] {
            let away = away.map(Duration::from_secs);
            assert_eq!(ready_without(connected, away), ready, "{connected} {away:?}");
        }
    }
}
