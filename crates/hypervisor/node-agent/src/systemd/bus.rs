// SPDX-License-Identifier: Apache-2.0
//! One connection to the system bus for the whole agent, made again whenever it is lost. Everybody sees the present
//! connection through a watch, and is woken when it goes.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::{BoxError, CancellationToken};
use tokio::sync::watch;
use zbus::connection::Builder;

use super::error::BusError;

/// Where the system bus is unless told otherwise.
pub const SYSTEM_BUS: &str = "unix:path=/var/run/dbus/system_bus_socket";

/// How long one call may take. Services that the bus starts on demand need a moment.
pub const CALL_TIME: Duration = Duration::from_secs(10);

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long facts that can be had without the bus wait for its first answer.
const MOMENT: Duration = Duration::from_millis(500);

/// The connection to the bus at one moment.
#[derive(Clone, Debug, Default)]
pub enum Link {
    /// Nobody has tried yet.
    #[default]
    Untried,
    /// There is none, and why.
    Down(Arc<str>),
    /// There is one.
    Up(zbus::Connection),
}

impl Link {
    /// The connection, or an error that says what could not be done.
    pub fn connection(&self, what: &str) -> Result<&zbus::Connection, BusError> {
        match self {
            Self::Up(connection) => Ok(connection),
            Self::Untried | Self::Down(_) => Err(BusError::Down {
                what: what.to_owned(),
                why: self.why_not().to_owned(),
            }),
        }
    }

    /// Why there is no connection; empty when there is one.
    pub fn why_not(&self) -> &str {
        match self {
            Self::Untried => "not tried yet",
            Self::Down(why) => why,
            Self::Up(_) => "",
        }
    }
}

/// Waits a moment for the first connection, so that a start does not look like an outage.
pub async fn settled(bus: &mut watch::Receiver<Link>) {
    let up = bus.wait_for(|link| matches!(link, Link::Up(_)));
    let _ = tokio::time::timeout(CONNECT_TIME, up).await;
}

/// Waits for the first attempt, and only a moment for a bus that does not even refuse: a host without a bus says
/// what it is at once.
pub async fn tried(bus: &mut watch::Receiver<Link>) {
    let tried = bus.wait_for(|link| !matches!(link, Link::Untried));
    let _ = tokio::time::timeout(MOMENT, tried).await;
}

/// Keeps a connection to the bus at `address` until `stop`.
pub async fn keep(
    address: String,
    links: watch::Sender<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let mut failures = 0;
    loop {
        match connect(&address).await {
            Ok(connection) => {
                tracing::info!(address, "connected to the system bus");
                failures = 0;
                links.send_replace(Link::Up(connection.clone()));
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = connection.closed() => {}
                }
                tracing::warn!(address, "lost the system bus");
                links.send_replace(Link::Down("the connection was lost".into()));
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "will keep trying");
                }
                links.send_replace(Link::Down(error.to_string().into()));
            }
        }
        failures += 1;
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Backoff::CONNECT.random_pause(failures)) => {}
        }
    }
}

async fn connect(address: &str) -> Result<zbus::Connection, BusError> {
    let build = async {
        let builder = Builder::address(address).method_timeout(CALL_TIME);
        builder.build().await
    };
    let answer = tokio::time::timeout(CONNECT_TIME, build).await;
    answer
        .map_err(|_| BusError::timeout(format!("connecting to the system bus at {address}"), CONNECT_TIME))?
        .map_err(|source| BusError::Connect {
            address: address.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn facts_do_not_wait_for_a_bus_that_is_missing_or_silent() {
        let (links, mut bus) = watch::channel(Link::default());
        let began = Instant::now();
        tried(&mut bus).await;
        assert_eq!(began.elapsed(), MOMENT, "a silent bus costs a moment");
        links.send_replace(Link::Down("no such file".into()));
        let began = Instant::now();
        tried(&mut bus).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "a missing one costs nothing");
        // Units are a question to the bus alone: its first failure is not yet an answer.
        settled(&mut bus).await;
        assert_eq!(began.elapsed(), CONNECT_TIME);
    }
}
