// SPDX-License-Identifier: Apache-2.0
//! One request, one answer: the HTTP client with its TLS, the bound on what is read and the
//! deadline. It says honestly whether a request that failed may have been done; whether it is sent
//! again is decided elsewhere.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::call::{Repeat, Request};
use crate::config::{ConfigError, Tls};
use crate::error::{Attempted, Error};
use crate::fault;
use crate::session::Settings;

/// As much of a refusal as is read: its words are near the beginning.
const REFUSAL_LIMIT: usize = 64 * 1024;

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.status, 200..300)
    }
}

#[derive(Debug)]
pub(crate) struct Transport {
    client: reqwest::Client,
    longest_answer: usize,
}

impl Transport {
    pub(crate) fn new(tls: &Tls, settings: &Settings) -> Result<Self, ConfigError> {
        // the only provider in this project; somebody else may have installed it before
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = match build(tls, settings, false) {
            Ok(client) => client,
            // a machine without authorities of its own can still speak plain HTTP
            Err(error) if tls.ca_file.is_none() => {
                tracing::warn!(%error, "this machine trusts no certificate authority; https needs a CA file");
                build(tls, settings, true)?
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            client,
            longest_answer: settings.longest_answer,
        })
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(crate) async fn send(
        &self,
        request: &Request,
        endpoint: &Url,
        headers: HeaderMap,
        deadline: Deadline,
    ) -> Result<Answer, Error> {
        let url = address(endpoint, request);
        let method = http::Method::from_bytes(request.call.method.as_bytes()).unwrap_or_default();
        let mut outgoing = self.client.request(method, url).headers(headers);
        if !request.content_type.is_empty() {
            outgoing = outgoing
                .header(http::header::CONTENT_TYPE, request.content_type)
                .body(request.body.clone());
        }
        match timeout_at(deadline.at, self.exchange(request, outgoing)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(deadline.missed(request)),
        }
    }

    async fn exchange(&self, request: &Request, outgoing: reqwest::RequestBuilder) -> Result<Answer, Error> {
        let mut answer = outgoing.send().await.map_err(|error| lost(request, &error))?;
        let status = answer.status().as_u16();
        let headers = std::mem::take(answer.headers_mut());
        let success = answer.status().is_success();
        let limit = if success {
            self.longest_answer
        } else {
            REFUSAL_LIMIT
        };
        let mut body = BytesMut::new();
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // the status of a refusal says enough
                Err(_) if !success => break,
                Err(error) => return Err(lost(request, &error)),
            };
            let room = limit.saturating_sub(body.len());
            if chunk.len() > room && success {
                return Err(Error::BadAnswer {
                    of: Box::new(request.attempted()),
                    status: Some(status),
                    detail: format!("longer than {limit} bytes"),
                });
            }
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if chunk.len() > room {
                break;
            }
        }
        if let Some(id) = fault::request_id(&headers) {
            tracing::debug!(call = %request.call, object = %request.object, status, request_id = %id, "answered");
        }
        Ok(Answer {
            status,
            headers,
            body: body.freeze(),
        })
    }
}

/// When a call is over, and how long it had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        // nobody waits longer than a day, and a clock has an end
        let limit = limit.min(Duration::from_hours(24));
        Self {
            at: Instant::now() + limit,
            limit,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// No answer to a request that was sent.
    fn missed(&self, request: &Request) -> Error {
        let of = Box::new(request.attempted());
        match request.call.repeat {
            Repeat::Safe => self.passed(request, "waiting for the answer"),
            Repeat::Once => Error::UnknownOutcome {
                of,
                cause: format!("no answer within {} s", self.limit.as_secs_f64()),
            },
        }
    }

    /// The time is over before anything was sent, or sending it again would do no harm.
    pub(crate) fn passed(&self, request: &Request, doing: &'static str) -> Error {
        Error::Deadline {
            of: Box::new(request.attempted()),
            limit: self.limit,
            doing,
        }
    }
}

impl Request {
    pub(crate) fn attempted(&self) -> Attempted {
        Attempted {
            call: self.call,
            object: self.object.clone(),
        }
    }
}

/// A request whose answer did not come, or not whole.
fn lost(request: &Request, error: &reqwest::Error) -> Error {
    let of = Box::new(request.attempted());
    let cause = causes(error);
    if error.is_connect() || error.is_builder() || request.call.repeat == Repeat::Safe {
        Error::Unreachable { of, cause }
    } else {
        Error::UnknownOutcome { of, cause }
    }
}

/// The chain of causes in one line; the address in front is known already.
fn causes(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if words.last() != Some(&text) {
            words.push(text);
        }
        next = cause.source();
    }
    if words.is_empty() {
        words.push(error.to_string());
    }
    let place = error.url().map(|url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}: ", url.host_str().unwrap_or_default())
    });
    format!("{}{}", place.unwrap_or_default(), words.join(": "))
}

fn address(endpoint: &Url, request: &Request) -> Url {
    let mut url = endpoint.clone();
    let path = format!("{}{}", endpoint.path().trim_end_matches('/'), request.path);
    url.set_path(&path);
    if !request.query.is_empty() {
        url.query_pairs_mut().extend_pairs(&request.query);
    }
    url
}

fn build(tls: &Tls, settings: &Settings, trust_nobody: bool) -> Result<reqwest::Client, ConfigError> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(30))
        .user_agent(&settings.user_agent)
        // a redirect could carry the token to another host
        .redirect(Policy::none())
        .retry(reqwest::retry::never());
    if !settings.proxy_from_environment {
        builder = builder.no_proxy();
    }
    if tls.insecure {
        builder = builder.tls_danger_accept_invalid_certs(true);
    } else if let Some(path) = &tls.ca_file {
        let authorities = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|error| unusable(path, &causes(&error)))?;
        if authorities.is_empty() {
            return Err(unusable(path, "there is no certificate in it"));
        }
        builder = builder.tls_certs_only(authorities);
    } else if trust_nobody {
        builder = builder.tls_certs_only([]);
    }
    if let Some((certificate, key)) = &tls.client {
        let mut pem = read(certificate)?;
        if certificate != key {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        let identity =
            reqwest::Identity::from_pem(&pem).map_err(|error| unusable(certificate, &causes(&error)))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|error| ConfigError::Tls(causes(&error)))
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| unusable(path, &error.to_string()))
}

fn unusable(path: &Path, detail: &str) -> ConfigError {
    ConfigError::File {
        path: path.to_owned(),
        detail: detail.to_owned(),
    }
}

/// A header whose value came from configuration or a token.
pub(crate) fn header(headers: &mut HeaderMap, name: &'static str, value: &str, secret: bool) {
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(secret);
        headers.insert(HeaderName::from_static(name), value);
    }
}
