// SPDX-License-Identifier: Apache-2.0
//! The small listeners of a process: health without questions, metrics behind an
//! authorizer. HTTP/1 only, bounded in connections, header size and time, because these
//! ports are open to the whole network of a cluster.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Authorize, Verdict};
use crate::error::Error;
use crate::health::Health;
use crate::telemetry::{CONTENT_TYPE, Telemetry};
use crate::tls::ServerTls;

const MOST_CONNECTIONS: usize = 128;
const HEADER_TIME: Duration = Duration::from_secs(10);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
const LARGEST_HEADER: usize = 64 * 1024;
const FINISH_TIME: Duration = Duration::from_secs(5);

/// What a listener answers.
#[derive(Clone)]
pub struct Endpoints {
    health: Option<Health>,
    metrics: Option<(Telemetry, Arc<dyn Authorize>)>,
}

impl Endpoints {
    /// `/livez`, `/healthz`, `/readyz` and their single checks, for everybody.
    pub fn health(health: Health) -> Self {
        Self {
            health: Some(health),
            metrics: None,
        }
    }

    /// `/metrics`, for whom the authorizer lets in.
    pub fn metrics(telemetry: Telemetry, authorizer: impl Authorize) -> Self {
        Self {
            health: None,
            metrics: Some((telemetry, Arc::new(authorizer))),
        }
    }

    /// Both on one port; health stays open.
    #[must_use]
    pub fn and_metrics(self, telemetry: Telemetry, authorizer: impl Authorize) -> Self {
        Self {
            metrics: Some((telemetry, Arc::new(authorizer))),
            ..self
        }
    }

    async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let response = if path == "/metrics" {
            self.answer_metrics(&request).await
        } else {
            self.answer_health(path, request.uri().query().unwrap_or_default())
        };
        match (response, request.method()) {
            (None, _) => text(StatusCode::NOT_FOUND, "not found\n".into()),
            (Some(response), &Method::GET) => response,
            (Some(response), &Method::HEAD) => response.map(|_| Full::default()),
            (Some(_), _) => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n".into()),
        }
    }

    fn answer_health(&self, path: &str, query: &str) -> Option<Response<Full<Bytes>>> {
        let health = self.health.as_ref()?;
        let mut steps = path.trim_start_matches('/').splitn(2, '/');
        let endpoint = steps.next()?;
        let report = match endpoint {
            "livez" | "healthz" => health.live(),
            "readyz" => health.ready(),
            _ => return None,
        };
        let report = match steps.next().filter(|name| !name.is_empty()) {
            Some(name) => report.only(name)?,
            None => report,
        };
        let verbose = query
            .split('&')
            .any(|part| part == "verbose" || part.starts_with("verbose="));
        let status = if report.ok {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Some(text(status, report.render(endpoint, verbose)))
    }

    async fn answer_metrics<B>(&self, request: &Request<B>) -> Option<Response<Full<Bytes>>> {
        let (telemetry, authorizer) = self.metrics.as_ref()?;
        let verb = request.method().as_str().to_ascii_lowercase();
        let verdict = authorizer.authorize(bearer(request), &verb, "/metrics").await;
        Some(match verdict {
            Verdict::Allowed => typed(StatusCode::OK, CONTENT_TYPE, telemetry.encode()),
            Verdict::Unauthenticated => text(StatusCode::UNAUTHORIZED, "a bearer token is needed\n".into()),
            Verdict::Forbidden(reason) => text(StatusCode::FORBIDDEN, reason + "\n"),
            Verdict::Unavailable(reason) => {
                tracing::warn!(reason, "cannot check who asks for metrics");
                text(StatusCode::SERVICE_UNAVAILABLE, "cannot check the token\n".into())
            }
        })
    }
}

fn bearer<B>(request: &Request<B>) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    response
}

/// A listener that is open but does not answer yet.
pub struct Listener {
    socket: TcpListener,
    tls: Option<ServerTls>,
    address: SocketAddr,
}

impl Listener {
    /// Opens `address`, written as `host:port` or `:port`. Port 0 takes a free one.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(async {
    /// let listener = cobaltcore_kit::http::Listener::bind("127.0.0.1:0").await.unwrap();
    /// assert_ne!(listener.address().port(), 0);
    /// # });
    /// ```
    pub async fn bind(address: &str) -> Result<Self, Error> {
        let failed = |source| Error::Listen {
            address: address.to_owned(),
            source,
        };
        let socket = if address.starts_with(':') {
            // Both families where the machine has them.
            match TcpListener::bind(format!("[::]{address}")).await {
                Ok(socket) => socket,
                Err(_) => TcpListener::bind(format!("0.0.0.0{address}"))
                    .await
                    .map_err(failed)?,
            }
        } else {
            TcpListener::bind(address).await.map_err(failed)?
        };
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self {
            socket,
            tls: None,
            address,
        })
    }

    /// Speaks TLS; each connection uses the material of its moment.
    #[must_use]
    pub fn with_tls(self, tls: ServerTls) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is cancelled, then lets open requests finish for a short while.
    pub async fn serve(self, endpoints: Endpoints, stop: CancellationToken) -> Result<(), Error> {
        let Self { socket, tls, address } = self;
        let (tracker, places) = (TaskTracker::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
        tracing::info!(%address, tls = tls.is_some(), "listening");
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
                    // Usually out of file descriptors; a pause keeps the loop from spinning.
                    tracing::warn!(%address, %error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let tls = tls
                .as_ref()
                .map(|tls| tokio_rustls::TlsAcceptor::from(tls.current()));
            let (endpoints, stop) = (endpoints.clone(), stop.clone());
            tracker.spawn(async move {
                converse(stream, tls, endpoints, stop).await;
                drop(place);
            });
        }
        tracker.close();
        // What is still open after that belongs to clients that do not read their answers.
        let _ = tokio::time::timeout(FINISH_TIME, tracker.wait()).await;
        Ok(())
    }
}

async fn converse(
    stream: TcpStream,
    tls: Option<tokio_rustls::TlsAcceptor>,
    endpoints: Endpoints,
    stop: CancellationToken,
) {
    match tls {
        None => answer_all(stream, endpoints, stop).await,
        Some(acceptor) => match tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => answer_all(stream, endpoints, stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        },
    }
}

async fn answer_all(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    endpoints: Endpoints,
    stop: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let endpoints = endpoints.clone();
        async move { Ok::<_, Infallible>(endpoints.answer(request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(LARGEST_HEADER);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AllowAll;
    use crate::health::Kind;
    use crate::startup::Component;
    use crate::tls::TokenFile;
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn telemetry() -> Telemetry {
        Telemetry::new(&Component {
            name: "t",
            version: "1",
            commit: "c",
        })
    }

    async fn ask(endpoints: &Endpoints, method: &str, target: &str, token: Option<&str>) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(target);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = endpoints.answer(request.body(()).unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_is_open_and_names_what_fails() {
        let health = Health::new();
        let cache = health.check("cache", Kind::Ready);
        let endpoints = Endpoints::health(health);
        for target in ["/livez", "/healthz"] {
            assert_eq!(
                ask(&endpoints, "GET", target, None).await,
                (200, "ok".into()),
                "{target}"
            );
        }
        assert_eq!(ask(&endpoints, "GET", "/readyz", None).await.0, 500);
        assert_eq!(ask(&endpoints, "GET", "/readyz/cache", None).await.0, 500);
        cache.ok();
        let (status, body) = ask(&endpoints, "GET", "/readyz?verbose", None).await;
        assert_eq!(
            (status, body.as_str()),
            (200, "[+]ping ok\n[+]cache ok\nreadyz check passed\n")
        );
        assert_eq!(ask(&endpoints, "GET", "/readyz/none", None).await.0, 404);
        assert_eq!(ask(&endpoints, "GET", "/", None).await.0, 404);
        assert_eq!(ask(&endpoints, "GET", "/metrics", None).await.0, 404);
        assert_eq!(ask(&endpoints, "POST", "/livez", None).await.0, 405);
        assert_eq!(
            ask(&endpoints, "HEAD", "/livez", None).await,
            (200, String::new())
        );
    }

    #[tokio::test]
    async fn metrics_ask_for_a_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret").unwrap();
        let shared = crate::auth::SharedToken(TokenFile::new(file.path()));
        let endpoints = Endpoints::health(Health::new()).and_metrics(telemetry(), shared);
        assert_eq!(ask(&endpoints, "GET", "/metrics", None).await.0, 401);
        assert_eq!(ask(&endpoints, "GET", "/metrics", Some("wrong")).await.0, 401);
        let (status, body) = ask(&endpoints, "GET", "/metrics", Some("s3cret")).await;
        assert_eq!(status, 200);
        assert!(body.contains("cobaltcore_build_info"));
        assert_eq!(
            ask(&endpoints, "GET", "/livez", None).await.0,
            200,
            "health stays open"
        );
    }

    #[tokio::test]
    async fn a_listener_answers_until_it_is_stopped() {
        let stop = CancellationToken::new();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let serving = tokio::spawn(listener.serve(Endpoints::metrics(telemetry(), AllowAll), stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        stop.cancel();
        serving.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = first.address().to_string();
        let error = Listener::bind(&address).await.err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("cannot listen on {address}: ")),
            "{error}"
        );
    }
}
