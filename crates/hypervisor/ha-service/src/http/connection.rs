// SPDX-License-Identifier: Apache-2.0
//! Connections that wait hold next to nothing. Every agent keeps two of them open: one is silent between two reports, on
//! the other a request waits for commands. What HTTP needs to read a request and to write an answer is sixteen KiB, and
//! nothing of it while nobody speaks. So a server of HTTP/1 is made for the first byte of a request and ends with its
//! answer; and a request that waits is answered here, without it.
//!
//! A server may only end when the whole request was read and the whole answer has left: [`Meter`] knows.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::call::Body;
use super::{App, Port, routes};
use crate::access::PeerNames;

/// How long a connection may be silent, and how long the head of a request may take.
const HEADERS: Duration = Duration::from_secs(60);
const PING_AFTER: Duration = Duration::from_secs(30);
const MAX_HEADER: u32 = 64 << 10;
/// What a connection reads at once, and so the longest head of a request over HTTP/1.
const READ_AT_ONCE: usize = 8 << 10;
/// How long an answer may take to leave.
const LEAVES: Duration = Duration::from_secs(30);
/// What a connection with HTTP/2 begins with.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Something both can be done with.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

type Waiting = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Served = Pin<Box<dyn Future<Output = Result<Response<Given>, Infallible>> + Send>>;

/// Who answers on a connection.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) app: Arc<App>,
    pub(super) port: Port,
    /// Whom the certificate of the other side names.
    pub(super) names: Option<Arc<PeerNames>>,
}

impl Host {
    /// Answers on one connection until it ends or `stop`.
    pub(super) async fn converse(self, mut stream: impl Stream, stop: CancellationToken) {
        let mut read = Bytes::new();
        loop {
            while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
                let Some(more) = first_bytes(&mut stream, &stop).await else {
                    return;
                };
                read = [read, more].concat().into();
            }
            if read.starts_with(&PREFACE) {
                Box::pin(self.multiplexed(stream, read, stop)).await;
                return;
            }
            // In a box of its own, so that it takes no room while the connection waits.
            let after = Box::pin(self.requests(stream, read, &stop)).await;
            (stream, read) = match after {
                After::End => return,
                After::Silence(stream, read) => (stream, read),
                After::Waiting(mut stream, read, answer) => {
                    match wait(&mut stream, read, answer, &stop).await {
                        Some(read) => (stream, read),
                        None => return,
                    }
                }
            };
        }
    }

    /// All of HTTP/2: its requests share one connection, whose room is worth its while.
    async fn multiplexed(self, stream: impl Stream, read: Bytes, stop: CancellationToken) {
        let mut builder = auto::Builder::new(TokioExecutor::new()).http2_only();
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(64)
            .max_header_list_size(MAX_HEADER)
            .keep_alive_interval(PING_AFTER);
        let service = service_fn(move |request| self.answer(request, &Arc::default()));
        let connection = builder.serve_connection(TokioIo::new(Begun::new(stream, read)), service);
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

    /// Requests over HTTP/1 until there is silence, or one that waits.
    async fn requests<T: Stream>(&self, stream: T, read: Bytes, stop: &CancellationToken) -> After<T> {
        let meter = Arc::new(Meter::default());
        let (host, shared) = (self.clone(), Arc::clone(&meter));
        let service = service_fn(move |request| host.answer_or_wait(request, &shared));
        let mut begun = Begun::new(stream, read);
        begun.meter = Some(Arc::clone(&meter));
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(READ_AT_ONCE)
            .serve_connection(TokioIo::new(begun), service);
        let quiet = |cx: &mut Context<'_>, connection: &mut http1::Connection<_, _>| {
            if let Poll::Ready(ended) = connection.poll_without_shutdown(cx) {
                return Poll::Ready(Some(ended));
            }
            if meter.rests() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        };
        let ended = tokio::select! {
            ended = std::future::poll_fn(|cx| quiet(cx, &mut connection)) => ended,
            () = stop.cancelled() => {
                Pin::new(&mut connection).graceful_shutdown();
                std::future::poll_fn(|cx| quiet(cx, &mut connection)).await;
                return After::End;
            }
        };
        let parts = connection.into_parts();
        let Begun { mut stream, .. } = parts.io.into_inner();
        // A copy: even an empty rest would hold on to all the room it was read into.
        let read = Bytes::copy_from_slice(&parts.read_buf);
        drop(parts.read_buf);
        match ended {
            None => match meter.aside.lock().take() {
                Some(answer) => After::Waiting(stream, read, answer),
                None => After::Silence(stream, read),
            },
            Some(ended) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                let _ = tokio::time::timeout(LEAVES, stream.shutdown()).await;
                After::End
            }
        }
    }

    fn answer_or_wait(&self, request: Request<Incoming>, meter: &Arc<Meter>) -> Served {
        if !self.waits(&request) {
            return self.answer(request, meter);
        }
        let request = meter.asked(request);
        let host = self.clone();
        *meter.aside.lock() = Some(Box::pin(host.app.serve(host.port, host.names, request)));
        Box::pin(std::future::pending())
    }

    fn answer(&self, request: Request<Incoming>, meter: &Arc<Meter>) -> Served {
        let request = meter.asked(request);
        let (host, meter) = (self.clone(), Arc::clone(meter));
        Box::pin(async move {
            let answer = host.app.serve(host.port, host.names, request).await;
            Ok(answer.map(|body| Given { body, meter }))
        })
    }

    /// Whether a request waits for something to happen, in a form that is simple to answer.
    fn waits(&self, request: &Request<Incoming>) -> bool {
        let simple = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.body().is_end_stream()
            && !request.headers().contains_key(header::CONNECTION);
        simple
            && routes::find(request.method(), request.uri().path(), self.port)
                .is_ok_and(|(route, _)| route.waits)
    }
}

/// What a connection is about to do when its server has ended.
enum After<T> {
    /// Nothing more.
    End,
    /// Wait for the next request, of which something may have been read.
    Silence(T, Bytes),
    /// Wait for an answer; something of the next request may have been read.
    Waiting(T, Bytes, Waiting),
}

/// The first bytes of a request; nothing if none will come.
async fn first_bytes(stream: &mut impl Stream, stop: &CancellationToken) -> Option<Bytes> {
    let mut bytes = [0; PREFACE.len()];
    let read = tokio::select! {
        read = tokio::time::timeout(HEADERS, stream.read(&mut bytes)) => read.ok()?.ok()?,
        () = stop.cancelled() => return None,
    };
    let read = bytes.get(..read).filter(|read| !read.is_empty())?;
    Some(Bytes::copy_from_slice(read))
}

/// Waits for an answer and sends it, unless the other side leaves first. Gives what was read meanwhile.
async fn wait(
    stream: &mut impl Stream,
    read: Bytes,
    mut answer: Waiting,
    stop: &CancellationToken,
) -> Option<Bytes> {
    let mut next = read;
    let response = loop {
        let mut bytes = [0; 1];
        tokio::select! {
            response = answer.as_mut() => break response,
            more = stream.read(&mut bytes), if next.is_empty() => {
                if more.ok()? == 0 {
                    return None;
                }
                next = Bytes::copy_from_slice(&bytes);
            }
            () = stop.cancelled() => return None,
        }
    };
    drop(answer);
    // In a box as well: the connection waits for much longer than it sends.
    let sent = Box::pin(async {
        stream.write_all(&written(response).await).await?;
        stream.flush().await
    });
    tokio::time::timeout(LEAVES, sent).await.ok()?.ok()?;
    Some(next)
}

/// An answer as HTTP/1 writes it.
async fn written(response: Response<Body>) -> Vec<u8> {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let now = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
    let mut out = format!(
        "HTTP/1.1 {}\r\ndate: {now}\r\ncontent-length: {}\r\n",
        parts.status,
        body.len()
    )
    .into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
    out
}

/// How far the requests of a connection are.
#[derive(Default)]
struct Meter {
    /// Something of the body of the latest request was not read yet.
    unread: AtomicBool,
    /// The server has taken all of its answer.
    answered: AtomicBool,
    /// All of it has left.
    left: AtomicBool,
    /// What will answer a request that waits.
    aside: Mutex<Option<Waiting>>,
}

impl Meter {
    fn asked(self: &Arc<Self>, request: Request<Incoming>) -> Request<Asked> {
        self.unread.store(!request.body().is_end_stream(), Relaxed);
        self.answered.store(false, Relaxed);
        self.left.store(false, Relaxed);
        request.map(|body| Asked {
            body,
            meter: Arc::clone(self),
        })
    }

    fn flushed(&self) {
        self.left.store(self.answered.load(Relaxed), Relaxed);
    }

    /// Whether nothing is under way that only the server of the connection knows of.
    fn rests(&self) -> bool {
        let unread = self.unread.load(Relaxed);
        !unread && (self.left.load(Relaxed) || self.aside.lock().is_some())
    }
}

/// The body of a request.
pub(crate) struct Asked {
    body: Incoming,
    meter: Arc<Meter>,
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.meter.unread.store(false, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. The server drops it when it has taken all of it.
struct Given {
    body: Body,
    meter: Arc<Meter>,
}

impl HttpBody for Given {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.meter.answered.store(true, Relaxed);
    }
}

/// A stream of which something was read already.
struct Begun<T> {
    read: Bytes,
    stream: T,
    meter: Option<Arc<Meter>>,
}

impl<T> Begun<T> {
    fn new(stream: T, read: Bytes) -> Self {
        Self {
            read,
            stream,
            meter: None,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Begun<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Begun<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// The server has handed over everything it had when this is called.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if let Some(meter) = &self.meter
            && flushed.is_ok()
        {
            meter.flushed();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
