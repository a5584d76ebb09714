// SPDX-License-Identifier: Apache-2.0
//! Listeners of the API: TLS or plain text, HTTP/1.1 and HTTP/2, bounded in connections, of each address as well, and in
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_kit::tls::ServerTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::App;
use super::connection::Host;
use super::limit::Crowd;
use crate::access::PeerNames;
use crate::error::Error;

const HANDSHAKE: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(3);

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Everything.
    Api,
    /// The legacy call only.
    Legacy,
}

/// A listener that is open but does not answer yet.
pub struct ApiListener {
    socket: TcpListener,
    tls: Option<ServerTls>,
    port: Port,
    address: SocketAddr,
}

impl ApiListener {
    /// Opens `address`, written as `host:port` or `:port`.
    pub async fn bind(address: &str, tls: Option<ServerTls>, port: Port) -> Result<Self, Error> {
        let wanted = match address.strip_prefix(':') {
            Some(number) => format!("[::]:{number}"),
            None => address.to_owned(),
        };
        let bound = match TcpListener::bind(&wanted).await {
            Err(_) if address.starts_with(':') => TcpListener::bind(format!("0.0.0.0{address}")).await,
            other => other,
        };
        let failed = |source| {
            Error::Kit(cobaltcore_kit::Error::Listen {
                address: address.to_owned(),
                source,
            })
        };
        let socket = bound.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self {
            socket,
            tls,
            port,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`.
    pub async fn serve(self, app: Arc<App>, stop: CancellationToken) {
        let Self {
            socket,
            tls,
            port,
            address,
        } = self;
        tracing::info!(%address, tls = tls.is_some(), ?port, "listening");
        let connections = app.config().server.limits.connections;
        let places = Arc::new(Semaphore::new(connections));
        let crowd = Crowd::new(connections);
        let tracker = TaskTracker::new();
        loop {
            let place = tokio::select! {
                () = stop.cancelled() => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = socket.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%address, %error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(admitted) = crowd.admit(from.ip()) else {
                app.count_refused("connection", "address");
                continue;
            };
            let (app, tls, stop) = (Arc::clone(&app), tls.clone(), stop.clone());
            tracker.spawn(async move {
                converse(stream, tls, app, port, stop).await;
                drop((place, admitted));
            });
        }
        drop(socket);
        tracker.close();
        let _ = tokio::time::timeout(DRAIN, tracker.wait()).await;
    }
}

async fn converse(
    stream: TcpStream,
    tls: Option<ServerTls>,
    app: Arc<App>,
    port: Port,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let names = None;
    let host = Host { app, port, names };
    match tls {
        None => host.converse(stream, stop).await,
        // In a box of its own: a connection in plain text has no use for its room.
        Some(tls) => Box::pin(secured(stream, tls, host, stop)).await,
    }
}

async fn secured(stream: TcpStream, tls: ServerTls, mut host: Host, stop: CancellationToken) {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            host.names = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .and_then(PeerNames::read)
                .map(Arc::new);
            host.converse(stream, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}
