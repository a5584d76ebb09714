// SPDX-License-Identifier: Apache-2.0
//! The client side of a closed loop: one TLS 1.3 connection, requests built by hand, answers read
//! but not parsed. It does as little as a client can, so that what is measured is the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::BenchError;

/// No answer takes longer than this, not even the largest list.
const DEADLINE: Duration = Duration::from_mins(1);
/// Of an answer that is not kept, this much stays for error messages.
const KEPT: usize = 400;
/// Longest head of an answer.
const HEAD: usize = 64 << 10;

/// A server to measure: where it is, who asks, and which processes (or threads of this one) it consists of.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) token: Arc<str>,
    pub(crate) tasks: Vec<u32>,
}

/// A client configuration that trusts exactly these certificates.
pub(crate) fn trust(
    roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<rustls::ClientConfig>, BenchError> {
    let tls = |e: rustls::Error| BenchError::Tls(e.to_string());
    let mut store = rustls::RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(tls)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// One request, and the code its answer must have.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    pub(crate) expect: u16,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: impl Into<String>, expect: u16) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            body: String::new(),
            expect,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, 200)
    }

    pub(crate) fn with(mut self, content_type: &'static str, body: impl Into<String>) -> Self {
        self.content_type = content_type;
        self.body = body.into();
        self
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes of the body on the wire.
    pub(crate) length: usize,
    /// The body, or its beginning where it was not to be kept.
    pub(crate) body: Vec<u8>,
}

/// One open connection.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    host: String,
    token: Arc<str>,
    /// Bytes read and not yet used.
    pending: Vec<u8>,
    used: usize,
    out: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(target: &Target) -> std::io::Result<Self> {
        let socket = TcpStream::connect(target.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::from(target.address.ip());
        let stream = TlsConnector::from(target.tls.clone())
            .connect(name, socket)
            .await?;
        Ok(Self {
            stream,
            host: target.address.to_string(),
            token: target.token.clone(),
            pending: Vec::with_capacity(16 << 10),
            used: 0,
            out: Vec::with_capacity(4 << 10),
        })
    }

    /// Uses other credentials from now on.
    pub(crate) fn act_as(&mut self, token: &str) {
        self.token = token.into();
    }

    /// Sends a request and reads its whole answer; the code must be the expected one.
    pub(crate) async fn call(&mut self, request: &Request, keep: bool) -> Result<Answer, BenchError> {
        let answer = self.ask(request, keep).await?;
        if answer.status == request.expect {
            return Ok(answer);
        }
        let body = String::from_utf8_lossy(&answer.body).chars().take(KEPT).collect();
        Err(BenchError::Answer {
            request: describe(request),
            status: answer.status,
            body,
        })
    }

    /// Sends a request and reads its whole answer, whatever it says.
    pub(crate) async fn ask(&mut self, request: &Request, keep: bool) -> Result<Answer, BenchError> {
        let failed = |why: String| BenchError::Answer {
            request: describe(request),
            status: 0,
            body: why,
        };
        let exchange = async {
            self.send(request).await?;
            self.receive(keep).await
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Err(_) => Err(failed(format!("no answer within {DEADLINE:?}"))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// Sends a request; one write, so it travels in one record.
    pub(crate) async fn send(&mut self, request: &Request) -> std::io::Result<()> {
        use std::io::Write as _;
        self.out.clear();
        let Request {
            method,
            path,
            content_type,
            body,
            ..
        } = request;
        let (host, token) = (&self.host, &self.token);
        write!(
            self.out,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n"
        )?;
        write!(self.out, "Authorization: Bearer {token}\r\n")?;
        if !body.is_empty() {
            write!(
                self.out,
                "Content-Type: {content_type}\r\nContent-Length: {}\r\n",
                body.len()
            )?;
        }
        self.out.extend_from_slice(b"\r\n");
        self.out.extend_from_slice(body.as_bytes());
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await
    }

    async fn receive(&mut self, keep: bool) -> std::io::Result<Answer> {
        let head = self.head().await?;
        let mut answer = Answer {
            status: head.status,
            length: 0,
            body: Vec::new(),
        };
        if head.chunked {
            while let Some(size) = self.chunk_size().await? {
                self.take(size, keep, &mut answer).await?;
                self.line().await?;
            }
        } else {
            self.take(head.length, keep, &mut answer).await?;
        }
        Ok(answer)
    }

    /// Reads the head of a streamed answer; the pieces are read with `piece`.
    pub(crate) async fn open_stream(&mut self) -> std::io::Result<u16> {
        Ok(self.head().await?.status)
    }

    /// The next bytes of a streamed answer as they come, chunk marks included; `None` at its end.
    /// What was handed out before is gone.
    pub(crate) async fn piece(&mut self) -> std::io::Result<Option<&[u8]>> {
        if self.used == self.pending.len() {
            self.pending.clear();
            self.used = 0;
            if self.stream.read_buf(&mut self.pending).await? == 0 {
                return Ok(None);
            }
        }
        let from = std::mem::replace(&mut self.used, self.pending.len());
        Ok(self.pending.get(from..))
    }

    async fn head(&mut self) -> std::io::Result<Head> {
        let mut head = Head {
            status: 0,
            length: 0,
            chunked: false,
        };
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(head);
            }
            if head.status == 0 {
                head.status = line
                    .split(' ')
                    .nth(1)
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0);
                continue;
            }
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.trim().parse().map_err(std::io::Error::other)?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = value.trim().eq_ignore_ascii_case("chunked");
            }
        }
    }

    async fn chunk_size(&mut self) -> std::io::Result<Option<usize>> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(std::io::Error::other)?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        Ok(Some(size))
    }

    /// A line without its end.
    async fn line(&mut self) -> std::io::Result<String> {
        loop {
            let rest = self.pending.get(self.used..).unwrap_or_default();
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
                self.used += end + 2;
                return Ok(line);
            }
            if rest.len() > HEAD {
                return Err(std::io::Error::other("a header line without end"));
            }
            self.fill().await?;
        }
    }

    /// Moves `size` bytes into the answer.
    async fn take(&mut self, mut size: usize, keep: bool, answer: &mut Answer) -> std::io::Result<()> {
        answer.length += size;
        while size > 0 {
            if self.used == self.pending.len() {
                self.fill().await?;
            }
            let rest = self.pending.get(self.used..).unwrap_or_default();
            let part = rest.get(..size.min(rest.len())).unwrap_or_default();
            let wanted = if keep {
                part.len()
            } else {
                part.len().min(KEPT.saturating_sub(answer.body.len()))
            };
            answer
                .body
                .extend_from_slice(part.get(..wanted).unwrap_or_default());
            size -= part.len();
            self.used += part.len();
        }
        Ok(())
    }

    async fn fill(&mut self) -> std::io::Result<()> {
        self.pending.drain(..self.used);
        self.used = 0;
        if self.stream.read_buf(&mut self.pending).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

struct Head {
    status: u16,
    length: usize,
    chunked: bool,
}

fn describe(request: &Request) -> String {
    format!("{} {}", request.method, request.path)
}
