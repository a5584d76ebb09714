// SPDX-License-Identifier: Apache-2.0
//! Opens the byte stream to a daemon: local socket, TCP or TLS. What it gives back is ready for the first call.

use std::fmt;
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::error::Error;
use crate::tls::TlsFiles;
use crate::uri::{Transport, Uri};

/// The reading half of a transport.
pub type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
/// The writing half of a transport.
pub type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// An open byte stream.
pub struct Stream {
    /// Bytes from the peer.
    pub reader: ReadHalf,
    /// Bytes to the peer.
    pub writer: WriteHalf,
    /// Where it leads, for messages.
    pub endpoint: String,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Any byte stream, for example one half of an in-process pipe.
    pub fn new<S>(stream: S, endpoint: impl Into<String>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            endpoint: endpoint.into(),
        }
    }

    /// A local socket.
    pub fn unix(stream: UnixStream, endpoint: impl Into<String>) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            endpoint: endpoint.into(),
        }
    }

    /// A TCP connection.
    pub fn tcp(stream: TcpStream, endpoint: impl Into<String>) -> Self {
        // Frames are small and somebody waits for each of them.
        stream.set_nodelay(true).ok();
        let (reader, writer) = stream.into_split();
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            endpoint: endpoint.into(),
        }
    }
}

/// Reaches the daemon the URI names, within `deadline` including the TLS handshake.
pub async fn connect(
    uri: &Uri,
    read_only: bool,
    tls: Option<&TlsFiles>,
    deadline: Duration,
) -> Result<Stream, Error> {
    let attempt = async {
        match uri.transport() {
            Transport::Unix { .. } => connect_unix(uri, read_only).await,
            Transport::Tcp { host, port } => {
                let stream = connect_tcp(uri, host, *port).await?;
                Ok(Stream::tcp(stream, uri.endpoint()))
            }
            Transport::Tls { host, port, pkipath } => {
                let files = match (tls, pkipath) {
                    (Some(files), _) => files.clone(),
                    (None, Some(directory)) => TlsFiles::flat(directory),
                    (None, None) => TlsFiles::system(),
                };
                let stream = connect_tcp(uri, host, *port).await?;
                connect_tls(uri, host, stream, &files).await
            }
        }
    };
    tokio::time::timeout(deadline, attempt).await.unwrap_or_else(|_| {
        Err(Error::Timeout {
            what: format!("connecting to {}", uri.endpoint()),
            after: deadline,
        })
    })
}

async fn connect_unix(uri: &Uri, read_only: bool) -> Result<Stream, Error> {
    let mut failures = Vec::new();
    for path in uri.sockets(read_only) {
        match UnixStream::connect(&path).await {
            Ok(stream) => return Ok(Stream::unix(stream, format!("unix socket {}", path.display()))),
            Err(error) => failures.push(format!("{}: {error}", path.display())),
        }
    }
    Err(Error::Connect {
        endpoint: uri.endpoint(),
        why: failures.join("; "),
    })
}

async fn connect_tcp(uri: &Uri, host: &str, port: u16) -> Result<TcpStream, Error> {
    TcpStream::connect((host, port))
        .await
        .map_err(|error| Error::Connect {
            endpoint: uri.endpoint(),
            why: error.to_string(),
        })
}

async fn connect_tls(uri: &Uri, host: &str, stream: TcpStream, files: &TlsFiles) -> Result<Stream, Error> {
    let endpoint = uri.endpoint();
    let failed = |why: String| Error::Tls {
        endpoint: endpoint.clone(),
        why,
    };
    stream.set_nodelay(true).ok();
    let config = files.client_config().map_err(&failed)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(format!("{host:?}: {error}")))?;
    let mut stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| failed(error.to_string()))?;
    // After the handshake the daemon looks at our certificate and says in one byte whether it likes it.
    let verdict = stream.read_u8().await.map_err(|error| {
        failed(format!(
            "the daemon refused this client's certificate ({}): {error}",
            files.client_identity()
        ))
    })?;
    if verdict != 1 {
        return Err(failed(format!(
            "the daemon refused this client's certificate (answer {verdict})"
        )));
    }
    Ok(Stream::new(stream, endpoint))
}
