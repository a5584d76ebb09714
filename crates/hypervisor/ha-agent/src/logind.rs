// SPDX-License-Identifier: Apache-2.0
//! Hears from logind that the host is about to go, and holds it back just long enough for the service to learn of it.
//! A host without logind, or whose bus is away, is a host whose shutdowns come as a surprise; nothing else changes.

use std::time::Duration;

use cobaltcore_ha_wire::agent;
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::StreamExt as _;
use zbus::proxy::CacheProperties;
use zbus_systemd::login1::ManagerProxy;

use crate::board::Context;
use crate::draft::Draft;

/// Where the system bus is unless told otherwise.
pub(crate) const SYSTEM_BUS: &str = "unix:path=/var/run/dbus/system_bus_socket";

const CALL_TIME: Duration = Duration::from_secs(10);
/// How long a shutdown is held back for the service to hear of it; logind waits five seconds unless told otherwise.
pub(crate) const HOLD: Duration = Duration::from_secs(4);

/// Listens until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), BoxError> {
    let Some(bus) = context.start.system_bus.clone() else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut failures = 0;
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            ended = listen(&context, &bus, &mut failures) => ended,
        };
        if failures == 0 {
            tracing::warn!(
                why = ended,
                "shutdowns of the host cannot be heard of; trying again"
            );
        }
        failures += 1;
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Backoff::TASK.random_pause(failures)) => {}
        }
    }
}

/// Listens until the bus or logind is away, and says why.
async fn listen(context: &Context, bus: &str, failures: &mut u32) -> String {
    let words = |error: zbus::Error| error.to_string();
    let build = zbus::connection::Builder::address(bus)
        .method_timeout(CALL_TIME)
        .build();
    let connection = match tokio::time::timeout(CALL_TIME, build).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return words(error),
        Err(_) => return format!("no bus within {CALL_TIME:?}"),
    };
    let proxy = ManagerProxy::builder(&connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await;
    let proxy = match proxy {
        Ok(proxy) => proxy,
        Err(error) => return words(error),
    };
    let mut shutdowns = match proxy.receive_prepare_for_shutdown().await {
        Ok(shutdowns) => shutdowns,
        Err(error) => return words(error),
    };
    let mut lock = take_lock(&proxy).await;
    if lock.is_some() {
        *failures = 0;
        tracing::info!("shutdowns of the host are announced");
    }
    // It may have begun, or been called off, before anybody listened.
    match proxy.preparing_for_shutdown().await {
        Ok(true) => {
            announce(context).await;
            lock = None;
        }
        Ok(false) => call_off(context),
        Err(error) => tracing::warn!(%error, "logind does not say whether the host is shutting down"),
    }
    loop {
        let signal = tokio::select! {
            signal = shutdowns.next() => signal,
            () = connection.closed() => None,
        };
        let Some(signal) = signal else {
            return "the connection to the bus was lost".to_owned();
        };
        // Something was said about a shutdown; what cannot be read is taken for one.
        if signal.args().map_or(true, |args| args.start) {
            announce(context).await;
            drop(lock.take());
        } else {
            call_off(context);
            lock = take_lock(&proxy).await;
        }
    }
}

async fn take_lock(proxy: &ManagerProxy<'_>) -> Option<zbus::OwnedFd> {
    let why = "Tells the HA service that this host is going down.";
    let lock = proxy
        .inhibit(
            "shutdown".into(),
            "kvm-ha-agent".into(),
            why.into(),
            "delay".into(),
        )
        .await;
    match lock {
        Ok(lock) => Some(lock),
        Err(error) => {
            tracing::warn!(%error, "a shutdown cannot be held back for a moment");
            None
        }
    }
}

/// The host stays, whatever was announced before.
fn call_off(context: &Context) {
    if context.board.shutdown_announced() {
        tracing::warn!("the shutdown was called off");
        context.board.announce_shutdown(false);
    }
}

/// Tells of the shutdown, and waits a moment until somebody has heard it.
async fn announce(context: &Context) {
    if context.board.shutdown_announced() {
        return;
    }
    tracing::warn!("the host is about to shut down");
    let mut progress = context.intake.progress();
    let before = progress.borrow().shutdown;
    context.board.announce_shutdown(true);
    context.intake.put(Draft::agent(agent::HOST_SHUTDOWN));
    let heard = async {
        let written = progress.wait_for(|progress| progress.shutdown > before).await;
        let seq = written.map_or(u64::MAX, |progress| progress.shutdown);
        while !context.spool.standing().anybody_has(seq) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(context.start.hold, heard).await;
}
