// SPDX-License-Identifier: Apache-2.0
//! The far side for tests: a real HTTP server that answers by a script, remembers what it was asked,
//! and speaks TLS if told to. Keystone is part of it; tests script the rest.

#![allow(clippy::unwrap_used, reason = "a far side that cannot start fails the test")]
#![allow(dead_code, reason = "every suite uses its own part")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What the server was asked.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn token(&self) -> &str {
        self.header("x-auth-token")
    }

    /// The value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = url::form_urlencoded::parse(self.query.as_bytes());
        let mut found = pairs.filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.into_owned())
    }
}

/// What it answers.
pub(crate) enum Reply {
    Json(u16, Value),
    With(u16, Vec<(&'static str, String)>, String),
    /// When so many are asked at the same time.
    Together(Arc<Barrier>, Box<Reply>),
    /// Never.
    Silence,
}

pub(crate) fn ok(body: Value) -> Reply {
    Reply::Json(200, body)
}

pub(crate) fn unauthorized() -> Reply {
    let body =
        json!({ "error": { "code": 401, "message": "The request you have made requires authentication." } });
    Reply::Json(401, body)
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

/// A running cloud.
pub(crate) struct Cloud {
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    seen: Arc<Mutex<Vec<Seen>>>,
    tokens: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cloud {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, None, script)
    }

    pub(crate) fn serve(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, tokens, most) = (Arc::default(), Arc::default(), Arc::default());
        let state = State {
            base: format!("{scheme}://{address}"),
            script: Arc::new(script),
            seen: Arc::clone(&seen),
            tokens: Arc::clone(&tokens),
            waiting: Arc::default(),
            most: Arc::clone(&most),
        };
        let router = Router::new().fallback(move |request: Request| state.clone().answer(request));
        let task = tokio::spawn(async move {
            match tls {
                None => axum::serve(listener, router).await.unwrap(),
                Some(acceptor) => axum::serve(Tls { listener, acceptor }, router).await.unwrap(),
            }
        });
        Self {
            address,
            scheme,
            seen,
            tokens,
            most,
            task,
        }
    }

    pub(crate) fn auth_url(&self) -> String {
        format!("{}://{}/v3", self.scheme, self.address)
    }

    /// How many tokens were given out.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::SeqCst)
    }

    /// How many that wait for one another were here at once.
    pub(crate) fn most_at_once(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }

    /// What was asked of a path.
    pub(crate) fn asked(&self, path: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.path == path).cloned().collect()
    }

    pub(crate) fn session(&self) -> Session {
        self.session_with(settings())
    }

    pub(crate) fn session_with(&self, settings: Settings) -> Session {
        Session::new(cloud(&self.auth_url(), &[]), settings).unwrap()
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        proxy_from_environment: false,
        ..Settings::default()
    }
}

/// A user of the scripted cloud, with further variables.
pub(crate) fn cloud(auth_url: &str, more: &[(&str, &str)]) -> CloudConfig {
    let mut variables = vec![
        ("OS_AUTH_URL", auth_url),
        ("OS_USERNAME", "admin"),
        ("OS_USER_DOMAIN_NAME", "Default"),
        ("OS_PASSWORD", "s3cret-password"),
        ("OS_PROJECT_NAME", "admin"),
        ("OS_PROJECT_DOMAIN_NAME", "Default"),
    ];
    variables.extend(more);
    let lookup = |name: &str| {
        let mut found = variables.iter().rev().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| (*value).to_owned())
    };
    CloudConfig::from_variables(lookup).unwrap()
}

#[derive(Clone)]
struct State {
    base: String,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    tokens: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl State {
    async fn answer(self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let seen = Seen {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        self.seen.lock().unwrap().push(seen.clone());
        let mut reply = (self.script)(&seen);
        while let Reply::Together(barrier, then) = reply {
            self.most
                .fetch_max(self.waiting.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            barrier.wait().await;
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            reply = *then;
        }
        match reply {
            Reply::Together(..) => unreachable!("unwrapped above"),
            Reply::Silence => std::future::pending().await,
            // a script that says nothing leaves it to the cloud
            Reply::Json(0, _) => self.keystone(&seen),
            Reply::Json(status, body) => {
                let kind = vec![("content-type", "application/json".to_owned())];
                response(status, kind, body.to_string())
            }
            Reply::With(status, headers, body) => response(status, headers, body),
        }
    }

    fn keystone(&self, seen: &Seen) -> Response {
        let kind = ("content-type", "application/json".to_owned());
        match (seen.method.as_str(), seen.path.as_str()) {
            ("POST", "/v3/auth/tokens") => {
                let number = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
                let headers = vec![kind, ("x-subject-token", format!("token-{number}"))];
                response(201, headers, token(&self.base, 3600).to_string())
            }
            ("GET", "/compute/v2.1/") => response(200, vec![kind], nova_versions("2.93").to_string()),
            ("GET", "/placement/") => {
                let body =
                    json!({ "versions": [{ "id": "v1.0", "max_version": "1.39", "min_version": "1.0" }] });
                response(200, vec![kind], body.to_string())
            }
            _ => response(
                404,
                vec![kind],
                json!({ "itemNotFound": { "message": "not scripted" } }).to_string(),
            ),
        }
    }
}

/// Leaves the answer to the cloud: tokens and versions.
pub(crate) fn usual() -> Reply {
    Reply::Json(0, Value::Null)
}

pub(crate) fn nova_versions(newest: &str) -> Value {
    json!({ "version": { "id": "v2.1", "version": newest, "min_version": "2.1" } })
}

/// A token as Keystone describes it.
pub(crate) fn token(base: &str, seconds: i64) -> Value {
    let issued = jiff::Timestamp::now();
    let expires = issued + jiff::SignedDuration::from_secs(seconds);
    let endpoint = |path: &str| {
        let inside =
            json!({ "interface": "internal", "region_id": "here", "url": format!("{base}/inside{path}") });
        json!([{ "interface": "public", "region_id": "here", "url": format!("{base}{path}") }, inside])
    };
    json!({ "token": {
        "methods": ["password"], "user": { "id": "u1", "name": "admin", "domain": { "id": "default", "name": "Default" } },
        "project": { "id": "p1", "name": "admin", "domain": { "id": "default", "name": "Default" } },
        "roles": [{ "id": "r1", "name": "admin" }],
        "issued_at": issued.to_string(), "expires_at": expires.to_string(),
        "catalog": [
            { "type": "compute", "name": "nova", "endpoints": endpoint("/compute/v2.1") },
            { "type": "placement", "name": "placement", "endpoints": endpoint("/placement") },
            { "type": "image", "name": "glance", "endpoints": endpoint("/image") },
        ],
    }})
}

fn response(status: u16, headers: Vec<(&'static str, String)>, body: String) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body)).unwrap()
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // a client that does not trust us hangs up
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A server that reads one request per connection, sends these bytes, and hangs up.
pub(crate) async fn blunt(answer: &'static [u8]) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests: Arc<AtomicU64> = Arc::default();
    let counter = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 64 * 1024];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (address, requests)
}
