// SPDX-License-Identifier: Apache-2.0
//! What this machine allows at best: how fast its disk makes data safe, how many commits SQLite
//! gets through it, how many requests TLS and HTTP carry when nobody does anything with them, and
//! how soon watchers have what was written when nothing else is done with it.

mod disk;
mod echo;
mod fanout;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) use fanout::Fanout;

use crate::client::{Target, trust};
use crate::report::Row;
use crate::{BenchError, Scale};

/// Changes per commit when eight clients write at once.
const BATCH: u64 = 8;

/// The floors of one machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Floors {
    /// Median and 99th percentile of making 8 KiB safe, in milliseconds.
    sync: (f64, f64),
    /// Commits of one change per second.
    commits: f64,
    /// Changes per second in commits of eight.
    batched: f64,
    /// Requests per second of a server that does nothing, with 1 and 8 clients.
    echo: (f64, f64),
}

impl Floors {
    pub(crate) async fn measure(dir: &Path, scale: Scale) -> Result<Self, BenchError> {
        let (path, time) = (dir.to_owned(), scale.each);
        let disk = tokio::task::spawn_blocking(move || -> Result<_, BenchError> {
            let sync = disk::fdatasync(&path.join("sync"), time)?;
            let commits = disk::commits(&path.join("one.db"), time, 1)?;
            let batched = disk::commits(&path.join("batch.db"), time, BATCH)?;
            Ok((sync, commits, batched))
        });
        let (sync, commits, batched) = disk
            .await
            .map_err(|e| BenchError::Ended("the floor of the disk".into(), e.to_string()))??;
        let echo = echo::rates(scale.each).await?;
        Ok(Self {
            sync,
            commits,
            batched,
            echo,
        })
    }

    /// The most requests per second this machine allows `clients`.
    pub(crate) fn best(&self, writing: bool, clients: usize) -> f64 {
        match (writing, clients) {
            (false, 1) => self.echo.0,
            (false, _) => self.echo.1,
            // One client waits for the network and the disk in turn.
            (true, 1) => 1.0 / (1.0 / self.echo.0.max(1.0) + 1.0 / self.commits.max(1.0)),
            (true, _) => self.echo.1.min(self.batched),
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        vec![
            Row::new("floor-sync", "floor: fdatasync of 8 KiB")
                .figure("p50", &[self.sync.0])
                .figure("p99", &[self.sync.1]),
            Row::new("floor-commit", "floor: SQLite commits, 1 change each").figure("rate", &[self.commits]),
            Row::new("floor-batch", "floor: SQLite changes, commits of 8").figure("rate", &[self.batched]),
            Row::new("floor-echo-1", "floor: TLS and HTTP alone, 1 client").figure("rate", &[self.echo.0]),
            Row::new("floor-echo-8", "floor: TLS and HTTP alone, 8 clients").figure("rate", &[self.echo.1]),
        ]
    }
}

/// A certificate for this machine's own address, signed by itself.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])
            .map_err(|e| BenchError::Tls(e.to_string()))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|e| BenchError::Tls(e.into()))?;
        Ok(Self {
            certificate_pem: made.cert.pem(),
            certificate: made.cert.into(),
            key_pem: made.signing_key.serialize_pem(),
            key,
        })
    }
}

/// A listener on loopback with a certificate of its own, and how to reach it.
async fn listen(name: &'static str) -> Result<(TcpListener, TlsAcceptor, Target), BenchError> {
    let identity = Identity::new()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|c| {
            c.with_no_client_auth()
                .with_single_cert(vec![identity.certificate.clone()], identity.key)
        })
        .map_err(|e| BenchError::Tls(e.to_string()))?;
    let failed = || BenchError::io("listen on", "127.0.0.1");
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .map_err(failed())?;
    let target = Target {
        name,
        address: listener.local_addr().map_err(failed())?,
        tls: trust([identity.certificate])?,
        token: "none".into(),
        tasks: Vec::new(),
    };
    Ok((listener, TlsAcceptor::from(Arc::new(config)), target))
}

/// Length of the first request if all of it is there.
fn request_length(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(buffer.get(..head)?).ok()?;
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let whole = head + length.and_then(|l| l.trim().parse::<usize>().ok()).unwrap_or(0);
    (buffer.len() >= whole).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_last_byte() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(request_length(request), Some(request.len()));
        assert_eq!(request_length(&request[..request.len() - 1]), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\nGET"), Some(18));
    }

    #[test]
    fn one_writing_client_is_slower_than_disk_and_network_alone() {
        let floors = Floors {
            sync: (0.5, 1.0),
            commits: 1_000.0,
            batched: 6_000.0,
            echo: (4_000.0, 9_000.0),
        };
        assert_eq!(floors.best(true, 1), 800.0);
        assert_eq!(floors.best(true, 8), 6_000.0);
        assert_eq!(floors.best(false, 8), 9_000.0);
    }
}
