// SPDX-License-Identifier: Apache-2.0
//! Where clients arrive: a local socket, TCP, or TLS with the byte that says the client's certificate is welcome.
//! Only TLS knows who comes: a TCP listener belongs on loopback, a local socket into a directory with the right mode.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use super::{Client, Handler, ServerOptions, serve};
use crate::transport::Stream;

/// A client that does not finish its TLS handshake in this time is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a failed accept (for example no file descriptors left) wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// A place where clients arrive. A local socket's file goes with it.
pub struct Listener {
    socket: Socket,
    tls: Option<Arc<ServerConfig>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

enum Arrived {
    Unix(UnixStream, PathBuf),
    Tcp(TcpStream, SocketAddr),
}

/// A client that has arrived and not said anything yet.
pub struct Incoming {
    arrived: Arrived,
    tls: Option<Arc<ServerConfig>>,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on a local socket, replacing a stale file.
    pub fn unix(path: &Path) -> std::io::Result<Self> {
        if path.exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        let socket = Socket::Unix(UnixListener::bind(path)?, path.to_owned());
        Ok(Self { socket, tls: None })
    }

    /// Listens on TCP.
    pub async fn tcp(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            socket: Socket::Tcp(TcpListener::bind(address).await?),
            tls: None,
        })
    }

    /// With TLS on top; see [`crate::tls::TlsFiles::server_config`].
    pub fn with_tls(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// The address clients connect to, when it is TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Unix(..) => None,
            Socket::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// The next client. Safe to cancel.
    pub async fn accept(&self) -> std::io::Result<Incoming> {
        let arrived = match &self.socket {
            Socket::Unix(listener, path) => Arrived::Unix(listener.accept().await?.0, path.clone()),
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Arrived::Tcp(stream, peer)
            }
        };
        Ok(Incoming {
            arrived,
            tls: self.tls.clone(),
        })
    }

    /// Serves every client that arrives, until the future is dropped. `seen` learns of each of them.
    pub async fn run<H: Handler>(&self, handler: Arc<H>, options: ServerOptions, seen: impl Fn(Client)) {
        let doors = Arc::new(Semaphore::new(options.max_clients.max(1)));
        let (ready, mut established) = mpsc::channel::<(Stream, OwnedSemaphorePermit)>(64);
        let arrivals = async {
            loop {
                let Ok(door) = Arc::clone(&doors).acquire_owned().await else {
                    return;
                };
                match self.accept().await {
                    // A slow handshake must not keep the next client waiting.
                    Ok(incoming) => drop(tokio::spawn(establish(incoming, door, ready.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept clients");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let serving = async {
            while let Some((stream, door)) = established.recv().await {
                let client = serve(stream, Arc::clone(&handler), options.clone());
                seen(client.clone());
                tokio::spawn(async move {
                    client.closed().await;
                    drop(door);
                });
            }
        };
        tokio::join!(arrivals, serving);
    }
}

async fn establish(
    incoming: Incoming,
    door: OwnedSemaphorePermit,
    ready: mpsc::Sender<(Stream, OwnedSemaphorePermit)>,
) {
    match incoming.establish().await {
        Ok(stream) => {
            ready.send((stream, door)).await.ok();
        }
        Err(error) => tracing::debug!(%error, "client did not get in"),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            std::fs::remove_file(path).ok();
        }
    }
}

impl Incoming {
    /// Makes a stream of it, with TLS if the listener has it.
    pub async fn establish(self) -> std::io::Result<Stream> {
        let (stream, peer) = match self.arrived {
            Arrived::Unix(stream, path) => return Ok(Stream::unix(stream, path.display().to_string())),
            Arrived::Tcp(stream, peer) => (stream, peer.to_string()),
        };
        let Some(config) = self.tls else {
            return Ok(Stream::tcp(stream, peer));
        };
        stream.set_nodelay(true).ok();
        let handshake = async {
            let mut stream = TlsAcceptor::from(config).accept(stream).await?;
            // The verifier has accepted the client's certificate; this byte says so.
            stream.write_all(&[1]).await?;
            stream.flush().await?;
            Ok(Stream::new(stream, peer))
        };
        tokio::time::timeout(HANDSHAKE, handshake)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}
