// SPDX-License-Identifier: Apache-2.0
//! Listeners of the API: TLS or plain text, HTTP/1.1 and HTTP/2, bounded in connections and time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_kit::tls::ServerTls;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::App;
use crate::access::PeerNames;
use crate::error::Error;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(60);
const PING_AFTER: Duration = Duration::from_secs(30);
const MAX_HEADER: usize = 64 << 10;
/// What a connection reads at once, and so the longest head of a request over HTTP/1. Every agent keeps two
/// connections open that wait most of the time, and they keep their buffers meanwhile.
const READ_AT_ONCE: usize = 8 << 10;
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
        let places = Arc::new(Semaphore::new(app.config().server.limits.connections));
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
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%address, %error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (app, tls, stop) = (Arc::clone(&app), tls.clone(), stop.clone());
            tracker.spawn(async move {
                converse(stream, tls, app, port, stop).await;
                drop(place);
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
    let Some(tls) = tls else {
        answer(stream, None, app, port, stop).await;
        return;
    };
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let names = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .and_then(PeerNames::read)
                .map(Arc::new);
            answer(stream, names, app, port, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    names: Option<Arc<PeerNames>>,
    app: Arc<App>,
    port: Port,
    stop: CancellationToken,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(READ_AT_ONCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(64)
        .max_header_list_size(MAX_HEADER as u32)
        .keep_alive_interval(PING_AFTER);
    let service = service_fn(move |request| {
        let (app, names) = (Arc::clone(&app), names.clone());
        // In a box of its own, so that a connection that waits does not hold the room of an answer.
        Box::pin(async move { Ok::<_, Infallible>(app.serve(port, names, request).await) })
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
