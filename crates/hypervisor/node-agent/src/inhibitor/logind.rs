// SPDX-License-Identifier: Apache-2.0
//! logind over the bus: the lock, its limit, and the signals around a shutdown. The lock is a file descriptor;
//! closing it is how it is given back, so the release needs no call that could hang.

use std::time::Duration;

use futures::StreamExt as _;
use zbus::proxy::CacheProperties;
use zbus::{MessageStream, OwnedFd};
use zbus_systemd::login1::{ManagerProxy, PrepareForShutdownStream};

use crate::systemd::{BusError, Link, owner_changes};

const WHO: &str = "kvm-node-agent";
const WHY: &str = "Emergency evacuation of host node.";

/// What logind, or its absence, tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// A shutdown begins, or was called off.
    Shutdown(bool),
    /// logind came back without the lock.
    Restarted,
    /// The bus is gone.
    Lost,
}

/// The present connection to logind and the lock.
#[derive(Default)]
pub(super) struct Logind {
    session: Option<Session>,
    lock: Option<OwnedFd>,
    why_not: Option<String>,
    limit: Option<Duration>,
}

struct Session {
    connection: zbus::Connection,
    proxy: ManagerProxy<'static>,
    shutdowns: PrepareForShutdownStream,
    owners: MessageStream,
}

impl Logind {
    /// Uses the connection of `link`, subscribing anew when it is another one than before.
    pub(super) async fn follow(&mut self, link: &Link) {
        let current = self
            .session
            .as_ref()
            .map(|session| session.connection.unique_name().cloned());
        match link {
            Link::Up(connection) if current.as_ref() == Some(&connection.unique_name().cloned()) => {}
            Link::Up(connection) => match Session::open(connection).await {
                Ok((session, limit)) => {
                    self.limit = limit.or(self.limit);
                    self.session = Some(session);
                    self.why_not = None;
                }
                Err(error) => {
                    self.session = None;
                    self.why_not = Some(error.to_string());
                }
            },
            // The lock does not depend on the bus: it stays until logind is known to have forgotten it.
            Link::Untried | Link::Down(_) => {
                self.session = None;
                self.why_not = Some(format!("the system bus is away: {}", link.why_not()));
            }
        }
    }

    /// The next signal; never without a connection.
    pub(super) async fn next(&mut self) -> Signal {
        let Some(session) = &mut self.session else {
            return std::future::pending().await;
        };
        let heard = tokio::select! {
            signal = session.shutdowns.next() => signal.map(|signal| match signal.args() {
                Ok(args) => Signal::Shutdown(args.start),
                // Something was said about a shutdown; whatever it was, doubt holds it back.
                Err(_) => Signal::Shutdown(true),
            }),
            owner = session.owners.next() => owner.map(|_| Signal::Restarted),
        };
        if heard.is_none_or(|signal| signal == Signal::Restarted) {
            self.session = None;
        }
        heard.unwrap_or(Signal::Lost)
    }

    /// Takes the lock and learns its limit.
    pub(super) async fn take_lock(&mut self) -> Result<(), BusError> {
        let what = "taking a shutdown lock from logind";
        let Some(session) = &self.session else {
            let why = self.why_not.clone().unwrap_or_else(|| "not connected".to_owned());
            return Err(BusError::Down {
                what: what.to_owned(),
                why,
            });
        };
        let lock = session
            .proxy
            .inhibit("shutdown".into(), WHO.into(), WHY.into(), "delay".into())
            .await
            .map_err(|error| BusError::from_call(what, error))?;
        let limit = session.proxy.inhibit_delay_max_u_sec().await;
        self.limit = limit.ok().map(Duration::from_micros).or(self.limit);
        tracing::info!(limit = ?self.limit, "a shutdown of the host would be held back");
        self.lock = Some(lock);
        Ok(())
    }

    /// Whether a shutdown is under way.
    pub(super) async fn is_preparing(&self) -> bool {
        match &self.session {
            Some(session) => session.proxy.preparing_for_shutdown().await.unwrap_or(false),
            None => false,
        }
    }

    pub(super) fn holds_lock(&self) -> bool {
        self.lock.is_some()
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Gives the lock back.
    pub(super) fn release(&mut self) {
        self.lock = None;
    }

    /// logind does not know the lock any more, so a new one is needed.
    pub(super) fn forget_lock(&mut self) {
        self.lock = None;
    }
}

impl Session {
    async fn open(connection: &zbus::Connection) -> Result<(Self, Option<Duration>), BusError> {
        let failed = |error| BusError::from_call("speaking to logind", error);
        let proxy = ManagerProxy::builder(connection)
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(failed)?;
        let shutdowns = proxy.receive_prepare_for_shutdown().await.map_err(failed)?;
        let owners = owner_changes(connection, "org.freedesktop.login1").await?;
        let limit = proxy
            .inhibit_delay_max_u_sec()
            .await
            .ok()
            .map(Duration::from_micros);
        let session = Self {
            connection: connection.clone(),
            proxy,
            shutdowns,
            owners,
        };
        Ok((session, limit))
    }
}
