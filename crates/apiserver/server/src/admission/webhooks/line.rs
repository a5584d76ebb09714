// SPDX-License-Identifier: Apache-2.0
//! The line to one webhook: HTTPS with connections that are kept and used again. Redirects are not
//! followed, answers are bounded, and whoever stops waiting closes the connection.

use std::io::{ErrorKind, Result as IoResult};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls;

/// Largest answer read.
const MAX_ANSWER: usize = 3 << 20;
/// Idle connections kept per webhook.
const MAX_IDLE: usize = 8;
/// An idle connection is not used after this time; servers close theirs about then.
const IDLE_FOR: Duration = Duration::from_mins(1);

/// Connections to one webhook.
#[derive(Debug)]
pub(super) struct Line {
    bundle: Option<Vec<u8>>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    address: String,
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// One request to send.
#[derive(Debug)]
pub(super) struct Letter<'a> {
    /// Addresses to try, `host:port`.
    pub addresses: &'a [String],
    /// The name the certificate must carry.
    pub server_name: &'a str,
    /// Host and port as the URL names them.
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
    pub body: Bytes,
}

/// What a webhook answered.
pub(super) struct Reply {
    pub code: u16,
    /// Whether the body calls itself a text for people.
    pub is_text: bool,
    pub body: Bytes,
}

/// An exchange that failed.
enum Broken {
    /// Nothing of an answer was seen; the server may have closed an idle connection.
    Early(String),
    Late(String),
}

impl Line {
    pub(super) fn new(bundle: Option<Vec<u8>>) -> Self {
        Self {
            bundle,
            tls: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    /// Checks that the line can be used at all.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls
            .get_or_init(|| tls::client_config(self.bundle.as_deref()))
            .clone()
    }

    /// Sends a request and reads the answer.
    pub(super) async fn send(&self, letter: &Letter<'_>) -> Result<Reply, String> {
        while let Some(mut kept) = self.take(letter.addresses) {
            if kept.sender.ready().await.is_err() {
                continue;
            }
            match exchange(&mut kept.sender, letter).await {
                Ok(answer) => {
                    self.keep(kept.address, kept.sender);
                    return Ok(answer);
                }
                // The server hung up between two requests: a fresh connection decides.
                Err(Broken::Early(_)) => break,
                Err(Broken::Late(why)) => return Err(why),
            }
        }
        let (address, mut sender) = self.connect(letter).await?;
        match exchange(&mut sender, letter).await {
            Ok(answer) => {
                self.keep(address, sender);
                Ok(answer)
            }
            Err(Broken::Early(why) | Broken::Late(why)) => Err(why),
        }
    }

    fn take(&self, addresses: &[String]) -> Option<Idle> {
        let mut idle = self.idle.lock();
        idle.retain(|kept| kept.since.elapsed() < IDLE_FOR && !kept.sender.is_closed());
        let at = idle.iter().rposition(|kept| addresses.contains(&kept.address))?;
        Some(idle.swap_remove(at))
    }

    fn keep(&self, address: String, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle {
                address,
                sender,
                since: Instant::now(),
            });
        }
    }

    async fn connect(&self, letter: &Letter<'_>) -> Result<(String, SendRequest<Full<Bytes>>), String> {
        let config = self.tls()?;
        let name = ServerName::try_from(letter.server_name.to_owned())
            .map_err(|_| format!("tls: {:?} is no server name", letter.server_name))?;
        let mut failure = "no address to connect to".to_owned();
        for address in letter.addresses {
            let stream = match TcpStream::connect(address.as_str()).await {
                Ok(stream) => stream,
                Err(error) => {
                    failure = dial_text(address, &error);
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let stream = tokio_rustls::TlsConnector::from(config)
                .connect(name, stream)
                .await
                .map_err(|error| tls::handshake_text(&error, letter.server_name))?;
            let (sender, connection) = handshake(TokioIo::new(Abrupt(stream)))
                .await
                .map_err(|error| error.to_string())?;
            // Ends when the sender is dropped or the server closes.
            tokio::spawn(async move {
                let _ = connection.await;
            });
            return Ok((address.clone(), sender));
        }
        Err(failure)
    }
}

/// A connection whose end counts as one however abruptly it comes. Small servers close without the
/// farewell TLS asks for; an answer that announced its length is still missed when it is cut short.
struct Abrupt(TlsStream<TcpStream>);

impl AsyncRead for Abrupt {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buf) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

impl AsyncWrite for Abrupt {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, letter: &Letter<'_>) -> Result<Reply, Broken> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(letter.path)
        .header(HOST, letter.authority)
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(letter.body.clone()))
        .map_err(|error| Broken::Late(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| {
        let gone = error.is_closed() || error.is_canceled() || error.is_incomplete_message();
        if gone {
            Broken::Early("EOF".into())
        } else {
            Broken::Late(error.to_string())
        }
    })?;
    let code = response.status().as_u16();
    let media = response.headers().get(CONTENT_TYPE);
    let is_text = media.is_some_and(|media| media.as_bytes().starts_with(b"text/"));
    match Limited::new(response.into_body(), MAX_ANSWER).collect().await {
        Ok(body) => Ok(Reply {
            code,
            is_text,
            body: body.to_bytes(),
        }),
        Err(error) if error.is::<LengthLimitError>() => Err(Broken::Late(format!(
            "the answer of the webhook is larger than {MAX_ANSWER} bytes"
        ))),
        Err(error) => Err(Broken::Late(format!(
            "unexpected error when reading response body: {error}"
        ))),
    }
}

fn dial_text(address: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        _ => format!("dial tcp {address}: {error}"),
    }
}
