// SPDX-License-Identifier: Apache-2.0
//! Listeners: TLS over TCP, and optionally a local socket. Connections speak HTTP/1.1 or HTTP/2 and
//! end with the server.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::dispatch::Credentials;
use crate::http::{Origin, ResponseBody};
use crate::patience::Patient;
use crate::rooms::{Connection, Rooms, Streams};

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_mins(2);
const PING_AFTER: Duration = Duration::from_secs(30);
const MAX_STREAMS: u32 = 250;
/// A client may take back so many requests that nobody has looked at yet: one that ends all its watches is no attack.
const MAX_RESETS: usize = 400;
const MAX_HEADER: usize = 64 << 10;
const MAX_BUFFER: usize = 400 << 10;
/// The name of HTTP/2 in a TLS handshake.
pub(crate) const HTTP2: &[u8] = b"h2";
/// Ports tried after the default one, before any free port is taken.
const NEXT_PORTS: u16 = 10;
/// Running requests get this long when the server stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// Binds an address; a taken port that nobody asked for is stepped over.
pub(crate) async fn bind(address: SocketAddr, given: bool) -> std::io::Result<TcpListener> {
    let first = TcpListener::bind(address).await;
    match first {
        Err(error) if !given && error.kind() == std::io::ErrorKind::AddrInUse => {
            for port in address.port() + 1..=address.port().saturating_add(NEXT_PORTS) {
                if let Ok(listener) = TcpListener::bind(SocketAddr::new(address.ip(), port)).await {
                    return Ok(listener);
                }
            }
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        other => other,
    }
}

/// Accepts TLS connections until the server stops.
pub(crate) async fn serve_tls(api: Arc<Api>, listener: TcpListener, tls: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = TaskTracker::new();
    let rooms = Rooms::open(connections.clone());
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = api.stop.cancelled() => break,
        };
        let (api, acceptor, rooms) = (api.clone(), acceptor.clone(), rooms.clone());
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let credentials = client_identity(&api, stream.get_ref().1);
                    let origin = Origin {
                        credentials,
                        check_host: true,
                        peer: peer.to_string(),
                    };
                    // Without a word about it, it is HTTP/1.1.
                    let plain = stream.get_ref().1.alpn_protocol() != Some(HTTP2);
                    rooms.serve(connection(api, stream, origin, plain)).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
            }
        });
    }
    drop((listener, rooms));
    drain(&connections).await;
}

/// Accepts connections on a local socket, which only its owner can open.
pub(crate) async fn serve_unix(api: Arc<Api>, listener: UnixListener) {
    let connections = TaskTracker::new();
    let rooms = Rooms::open(connections.clone());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            () = api.stop.cancelled() => break,
        };
        let origin = Origin {
            credentials: Credentials::Header,
            check_host: false,
            peer: "unix".into(),
        };
        connections.spawn(
            rooms
                .clone()
                .serve(connection(api.clone(), stream, origin, false)),
        );
    }
    drop(rooms);
    drain(&connections).await;
}

/// Binds a local socket with mode 0600, replacing one that nobody listens on any more.
pub(crate) fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    if path.exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn drain(connections: &TaskTracker) {
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

fn client_identity(api: &Api, connection: &rustls::ServerConnection) -> Credentials {
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    match certificate.and_then(|der| api.client_user(der)) {
        Some(user) => Credentials::Known(user),
        None => Credentials::Header,
    }
}

/// Everything about one connection, from its first request to its end. One that speaks HTTP/1.1 alone need not be asked
/// what it speaks.
fn connection<S>(api: Arc<Api>, stream: S, origin: Origin, plain: bool) -> Connection
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Streams::default();
    let service = {
        let (api, streams) = (api.clone(), streams.clone());
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (api, origin, streams) = (api.clone(), origin.clone(), streams.clone());
            async move {
                streams.stopped().await;
                let alone = request.version() < http::Version::HTTP_2;
                let response = api.serve(request, origin).await;
                if alone && matches!(response.body(), ResponseBody::Stream(_)) {
                    streams.began();
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        })
    };
    let stream = TokioIo::new(stream);
    if plain {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(MAX_BUFFER);
        let serving = builder.serve_connection(stream, service);
        let finish = http1::Connection::graceful_shutdown;
        return Connection::new(until_stopped(api, serving, finish), streams);
    }
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(MAX_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER as u32)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .keep_alive_interval(PING_AFTER)
        .adaptive_window(true);
    let serving = async move {
        let serving = builder.serve_connection(stream, service);
        until_stopped(api, serving, auto::Connection::graceful_shutdown).await;
    };
    Connection::new(serving, streams)
}

/// Serves until the connection ends. When the server stops, what is running is finished.
async fn until_stopped<C, E>(api: Arc<Api>, connection: C, finish: impl FnOnce(Pin<&mut C>))
where
    C: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let mut stopped = Patient::new(api.stop.cancelled());
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stopped.due(|_| api.stop.is_cancelled()) => {
            finish(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
