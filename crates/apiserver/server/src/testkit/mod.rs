// SPDX-License-Identifier: Apache-2.0
//! A whole API server inside a test: real watches, conflicts, admission, validation, finalizers,
//! garbage collection and RBAC, started in milliseconds, gone with the test.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use cobaltcore_apiserver::testkit::TestServer;
//! let server = TestServer::start().await;
//! let answer = server.admin().get("/api/v1/namespaces/default").await;
//! assert_eq!(answer.code, 200);
//! assert_eq!(answer.body["status"]["phase"], "Active");
//! # }
//! ```

mod writes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cobaltcore_access::identity::User;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use parking_lot::Mutex;
use serde_json::Value;
use tower::ServiceExt;

use crate::client::InProcess;
use crate::clock::Clock;
use crate::config::{Authorization, Config};
use crate::faults::Faults;
use crate::server::{Server, ServerError};

pub use writes::WriteEntry;

/// A server of one's own.
#[derive(Debug)]
pub struct TestServer {
    server: Option<Server>,
    writes: Arc<Mutex<Vec<WriteEntry>>>,
}

impl TestServer {
    /// A server in memory that allows everything, without a network listener.
    pub async fn start() -> Self {
        Self::with(Config {
            authorization: Authorization::AlwaysAllow,
            ..Config::default()
        })
        .await
    }

    /// The same with RBAC in force.
    pub async fn start_with_rbac() -> Self {
        Self::with(Config::default()).await
    }

    /// The same listening on a port the system chose.
    pub async fn listening() -> Self {
        Self::with(Config {
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            ..Config::default()
        })
        .await
    }

    /// A server of any configuration. Panics when it does not start: there is no test without it.
    pub async fn with(config: Config) -> Self {
        Self::try_with(config)
            .await
            .unwrap_or_else(|error| panic!("the test server did not start: {error}"))
    }

    /// A server of any configuration.
    pub async fn try_with(config: Config) -> Result<Self, ServerError> {
        let server = Server::start(config).await?;
        let writes: Arc<Mutex<Vec<WriteEntry>>> = Arc::default();
        let (log, api) = (writes.clone(), Arc::downgrade(server.api()));
        server.api().store.observe(Box::new(move |table, event| {
            let Some(table) = api.upgrade().and_then(|api| api.store.by_id(table)) else {
                return;
            };
            let resource = crate::status::qualified(&table.group, &table.plural);
            log.lock().push(WriteEntry::new(resource, event));
        }));
        Ok(Self {
            server: Some(server),
            writes,
        })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        self.server
            .as_ref()
            .unwrap_or_else(|| unreachable!("only stop() takes it, and that consumes self"))
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Caller {
        self.caller(User::admin())
    }

    /// A client with a user's name and groups.
    pub fn as_user(&self, name: &str, groups: &[&str]) -> Caller {
        self.caller(User::new(name, groups.iter().copied()))
    }

    /// A client acting as a ServiceAccount.
    pub fn as_service_account(&self, namespace: &str, name: &str) -> Caller {
        self.caller(User::service_account(namespace, name, None))
    }

    /// A client acting as `user`.
    pub fn caller(&self, user: User) -> Caller {
        Caller {
            service: self.server().client_as(user),
        }
    }

    /// The server's clock.
    pub fn clock(&self) -> &Clock {
        &self.server().api().clock
    }

    /// Faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.server().api().faults
    }

    /// Everything stored since the start, in order.
    pub fn writes(&self) -> Vec<WriteEntry> {
        self.writes.lock().clone()
    }

    /// Panics if anything is stored during `time`: a controller that has nothing to do must not write.
    pub async fn assert_quiescent(&self, time: Duration) {
        self.log_catches_up().await;
        let before = self.writes.lock().len();
        tokio::time::sleep(time).await;
        let new: Vec<WriteEntry> = self.writes.lock().iter().skip(before).cloned().collect();
        assert!(
            new.is_empty(),
            "the server should be quiet, but these were stored: {new:#?}"
        );
    }

    /// Waits until nothing was stored for `time`, and panics if that takes longer than two minutes: a controller may
    /// take a while to finish, but then it rests.
    pub async fn comes_to_rest(&self, time: Duration) {
        let begun = std::time::Instant::now();
        loop {
            self.log_catches_up().await;
            let before = self.writes.lock().len();
            tokio::time::sleep(time).await;
            let new: Vec<WriteEntry> = self.writes.lock().iter().skip(before).cloned().collect();
            if new.is_empty() {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_mins(2),
                "the server never comes to rest; the last that was stored: {new:#?}"
            );
        }
    }

    /// Panics if a field went from one manager to another more often than `limit`: two controllers
    /// that fight never come to rest.
    pub async fn assert_no_conflicting_managers(&self, limit: usize) {
        self.log_catches_up().await;
        let contested = writes::contested(&self.writes(), limit);
        assert!(contested.is_empty(), "managers fight over fields: {contested:#?}");
    }

    /// Readers see a change a moment before the log does. An empty commit is answered when the log
    /// has caught up with everything before it.
    async fn log_catches_up(&self) {
        let _ = self.server().api().store.commit(Vec::new()).await;
    }

    /// Applies every document of a YAML text.
    pub async fn apply_yaml(&self, text: &str) -> Result<(), String> {
        self.server().apply_yaml(text).await
    }

    /// Stops the server and waits for it.
    pub async fn stop(mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }
}

/// Speaks HTTP to a server in the same process.
#[derive(Debug, Clone)]
pub struct Caller {
    service: InProcess,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub code: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as sent.
    pub raw: Bytes,
    /// The body as JSON, null when it is none.
    pub body: Value,
}

impl Reply {
    /// The `message` of a Status.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The `reason` of a Status.
    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// The texts of all `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all(http::header::WARNING);
        all.iter()
            .filter_map(|v| v.to_str().ok())
            .map(str::to_owned)
            .collect()
    }
}

impl Caller {
    /// The in-process service, for other clients.
    pub fn service(&self) -> InProcess {
        self.service.clone()
    }

    /// Any request.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let response = self.open(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let raw = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
        Reply {
            code: parts.status.as_u16(),
            headers: parts.headers,
            raw,
            body,
        }
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<crate::http::ResponseBody> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_else(|e| panic!("{path} is no path: {e}"));
        for (name, value) in headers {
            let name: HeaderName = name
                .parse()
                .unwrap_or_else(|e| panic!("{name} is no header: {e}"));
            let value =
                HeaderValue::from_str(value).unwrap_or_else(|e| panic!("{value} is no header value: {e}"));
            request.headers_mut().append(name, value);
        }
        match self.service.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::PUT,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    /// Merge patch.
    pub async fn merge(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::PATCH,
            path,
            &[("content-type", "application/merge-patch+json")],
            body.to_string(),
        )
        .await
    }

    /// JSON patch.
    pub async fn json_patch(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::PATCH,
            path,
            &[("content-type", "application/json-patch+json")],
            body.to_string(),
        )
        .await
    }

    /// Strategic merge patch.
    pub async fn strategic(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::PATCH,
            path,
            &[("content-type", "application/strategic-merge-patch+json")],
            body.to_string(),
        )
        .await
    }

    /// Server-side apply; `path` names the manager.
    pub async fn apply(&self, path: &str, body: &Value) -> Reply {
        self.send(
            Method::PATCH,
            path,
            &[("content-type", "application/apply-patch+yaml")],
            body.to_string(),
        )
        .await
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Events {
        let response = self.open(Method::GET, path, &[], Bytes::new()).await;
        let code = response.status().as_u16();
        let stream = BodyStream::new(response.into_body())
            .filter_map(|frame| async move { frame.ok().and_then(|f| f.into_data().ok()) })
            .boxed();
        Events {
            code,
            stream,
            buffer: Vec::new(),
        }
    }
}

/// A running watch.
pub struct Events {
    /// Status code of the answer.
    pub code: u16,
    stream: futures::stream::BoxStream<'static, Bytes>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

impl Events {
    /// The next event; `None` when the stream ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            self.buffer.extend_from_slice(&self.stream.next().await?);
        }
    }

    /// The next event, or `None` when none comes within `time`.
    pub async fn within(&mut self, time: Duration) -> Option<Value> {
        tokio::time::timeout(time, self.next()).await.ok().flatten()
    }

    /// The next event; panics when none comes within a minute.
    pub async fn expect(&mut self) -> Value {
        self.within(Duration::from_mins(1))
            .await
            .unwrap_or_else(|| panic!("no event came"))
    }
}

#[cfg(feature = "kube")]
impl TestServer {
    /// A kube client that may do everything.
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// A kube client acting as `user`.
    pub fn client_as(&self, user: User) -> kube::Client {
        kube::Client::new(self.server().client_as(user), "default")
    }

    /// A kube client acting as a ServiceAccount.
    pub fn client_for_service_account(&self, namespace: &str, name: &str) -> kube::Client {
        self.client_as(User::service_account(namespace, name, None))
    }
}
