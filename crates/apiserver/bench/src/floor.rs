// SPDX-License-Identifier: Apache-2.0
//! What this machine allows at best: how fast its disk makes data safe, how many commits SQLite
//! gets through it, and how many requests TLS and HTTP carry when nobody does anything with them.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::client::{Request, Target, trust};
use crate::load::{self, Until, quantile};
use crate::report::Row;
use crate::{BenchError, Scale, kinds};

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
            let sync = fdatasync(&path.join("sync"), time)?;
            let commits = sqlite(&path.join("one.db"), time, 1)?;
            let batched = sqlite(&path.join("batch.db"), time, BATCH)?;
            Ok((sync, commits, batched))
        });
        let (sync, commits, batched) = disk
            .await
            .map_err(|e| BenchError::Ended("the floor of the disk".into(), e.to_string()))??;
        let echo = echo(scale.each).await?;
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

fn fdatasync(path: &Path, time: Duration) -> Result<(f64, f64), BenchError> {
    let failed = || path.display().to_string();
    let mut file = std::fs::File::create(path).map_err(BenchError::io("create", failed()))?;
    let (block, began) = (vec![0x5a; 8192], Instant::now());
    let mut times = Vec::new();
    while began.elapsed() < time {
        let one = Instant::now();
        file.write_all(&block)
            .and_then(|()| file.sync_data())
            .map_err(BenchError::io("write", failed()))?;
        times.push(one.elapsed());
    }
    times.sort_unstable();
    Ok((quantile(&times, 0.5), quantile(&times, 0.99)))
}

/// Changes per second: current state and history of one object each, like the server's.
fn sqlite(path: &Path, time: Duration, batch: u64) -> Result<f64, BenchError> {
    let mut db = rusqlite::Connection::open(path)?;
    db.pragma_update(None, "page_size", 8192)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.execute_batch(
        "create table objects(name text primary key, value blob not null) without rowid;
         create table events(rev integer primary key, value blob not null);",
    )?;
    let (mut changes, began) = (0, Instant::now());
    while began.elapsed() < time {
        let transaction = db.transaction()?;
        for _ in 0..batch {
            let body = kinds::configmap(kinds::NAMESPACE, changes, changes);
            transaction
                .prepare_cached("insert into objects values(?1, ?2)")?
                .execute(rusqlite::params![kinds::name(changes), body.as_bytes()])?;
            transaction
                .prepare_cached("insert into events values(?1, ?2)")?
                .execute(rusqlite::params![changes.cast_signed(), body.as_bytes()])?;
            changes += 1;
        }
        transaction.commit()?;
    }
    Ok(changes as f64 / began.elapsed().as_secs_f64())
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

async fn echo(time: Duration) -> Result<(f64, f64), BenchError> {
    let identity = Identity::new()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|c| {
            c.with_no_client_auth()
                .with_single_cert(vec![identity.certificate.clone()], identity.key)
        })
        .map_err(|e| BenchError::Tls(e.to_string()))?;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .map_err(BenchError::io("listen on", "127.0.0.1"))?;
    let address = listener
        .local_addr()
        .map_err(BenchError::io("listen on", "127.0.0.1"))?;
    let target = Target {
        name: "echo",
        address,
        tls: trust([identity.certificate])?,
        token: "none".into(),
        pids: Vec::new(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(accept(listener, TlsAcceptor::from(Arc::new(config))));
    let until = Until {
        time,
        requests: u64::MAX,
    };
    let make: load::Maker = Arc::new(|n| {
        let body = kinds::configmap(kinds::NAMESPACE, n, n);
        Request::new("POST", kinds::configmaps(kinds::NAMESPACE), 200).with(kinds::JSON, body)
    });
    let one = load::run(&target, 1, until, make.clone()).await?.rate();
    let eight = load::run(&target, 8, until, make).await?.rate();
    tasks.shutdown().await;
    Ok((one, eight))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) {
    let mut clients = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        clients.spawn(async move {
            // A client that goes away ends its own loop only.
            let _ = answer_all(socket, acceptor).await;
        });
    }
}

/// Answers every request with a ConfigMap, having read no more of it than its length.
async fn answer_all(socket: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    let body = kinds::configmap(kinds::NAMESPACE, 0, 0);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut buffer = Vec::with_capacity(8 << 10);
    loop {
        while let Some(whole) = request_length(&buffer) {
            buffer.drain(..whole);
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        if stream.read_buf(&mut buffer).await? == 0 || buffer.len() > 1 << 20 {
            return Ok(());
        }
    }
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
