// SPDX-License-Identifier: Apache-2.0
//! One request to a BMC and its answer: TLS, signing in, the deadline, the bound on what is read.
//! No request is repeated, except once with a fresh token when a session has ended; no answer is
//! cached, and no redirect is followed, because it could carry the password elsewhere.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, Method, header};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use url::Url;

use crate::config::{Auth, DeviceConfig};
use crate::credentials::{Credentials, Secret, hidden};
use crate::error::{Error, Result};
use crate::network::{Guarded, Network, allowed};

/// Most bytes of an answer; a system is a few thousand.
const LONGEST_ANSWER: usize = 1 << 20;
/// Most characters of a BMC's words.
const LONGEST_WORDS: usize = 300;

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// What the devices of one entry of the configuration share.
#[derive(Debug)]
pub(crate) struct Wire {
    client: reqwest::Client,
    auth: Auth,
    limit: Duration,
    networks: Arc<[Network]>,
    /// Tokens by address.
    sessions: Mutex<BTreeMap<String, Secret>>,
    /// The only system, by address.
    systems: Mutex<BTreeMap<String, String>>,
}

/// A request.
pub(super) struct Ask<'a> {
    pub(super) what: &'static str,
    pub(super) url: &'a Url,
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Option<&'a Value>,
    pub(super) tag: Option<&'a str>,
    pub(super) credentials: Option<&'a Credentials>,
}

impl Wire {
    pub(crate) fn new(config: &DeviceConfig, networks: &Arc<[Network]>) -> Result<Self> {
        // The only provider in this project; somebody else may have installed it before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |key: &str, message: String| Error::Config {
            key: key.to_owned(),
            message,
        };
        let mut builder = reqwest::Client::builder()
            .connect_timeout(config.limit())
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(10))
            .user_agent("cobaltcore-ha-service")
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy();
        if !networks.is_empty() {
            builder = builder.dns_resolver(Arc::new(Guarded(Arc::clone(networks))));
        }
        if !config.verify_tls {
            builder = builder.tls_danger_accept_invalid_certs(true);
        } else if let Some(path) = &config.ca_file {
            let read = std::fs::read(path)
                .map_err(|error| wrong("ca_file", format!("{}: {error}", path.display())))?;
            let bad = |reason: String| wrong("ca_file", format!("{}: {reason}", path.display()));
            let authorities =
                reqwest::Certificate::from_pem_bundle(&read).map_err(|error| bad(causes(&error)))?;
            if authorities.is_empty() {
                return Err(bad("there is no certificate in it".to_owned()));
            }
            builder = builder.tls_certs_only(authorities);
        }
        let client = builder
            .build()
            .map_err(|error| wrong("ca_file", causes(&error)))?;
        Ok(Self {
            client,
            auth: config.auth,
            limit: config.limit(),
            networks: Arc::clone(networks),
            sessions: Mutex::default(),
            systems: Mutex::default(),
        })
    }

    /// Whether a device may be at this address, where it is one. Names are looked at when they are
    /// resolved.
    pub(super) fn may_reach(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(url::Host::Ipv4(address)) => IpAddr::from(address),
            Some(url::Host::Ipv6(address)) => IpAddr::from(address),
            _ => return true,
        };
        allowed(&self.networks, address)
    }

    pub(super) fn known_system(&self, url: &Url) -> Option<String> {
        self.systems.lock().get(url.as_str()).cloned()
    }

    pub(super) fn learn_system(&self, url: &Url, path: &str) {
        self.systems
            .lock()
            .insert(url.as_str().to_owned(), path.to_owned());
    }

    pub(super) fn forget_system(&self, url: &Url) {
        self.systems.lock().remove(url.as_str());
    }

    pub(super) async fn send(&self, ask: Ask<'_>) -> Result<Answer> {
        if self.auth == Auth::Basic || ask.credentials.is_none() {
            return self.once(&ask, None).await;
        }
        if let Some(token) = self.token(ask.url) {
            let answer = self.once(&ask, Some(&token)).await?;
            if answer.status != 401 {
                return Ok(answer);
            }
            self.sessions.lock().remove(ask.url.as_str());
        }
        let token = self.sign_in(&ask).await?;
        self.once(&ask, Some(&token)).await
    }

    fn token(&self, url: &Url) -> Option<Secret> {
        self.sessions.lock().get(url.as_str()).cloned()
    }

    async fn sign_in(&self, ask: &Ask<'_>) -> Result<Secret> {
        const WHAT: &str = "signing in";
        let Credentials { username, password } = ask.credentials.cloned().unwrap_or_default();
        let body = json!({"UserName": username, "Password": password.reveal()});
        let login = Ask {
            what: WHAT,
            url: ask.url,
            method: Method::POST,
            path: "/redfish/v1/SessionService/Sessions",
            body: Some(&body),
            tag: None,
            credentials: None,
        };
        let device = ask.url.as_str().trim_end_matches('/').to_owned();
        let mut answer = self.once(&login, None).await?;
        answer.secrets.push(password);
        let answer = answer.good(WHAT, &device)?;
        let Some(token) = answer.header(&TOKEN) else {
            return Err(Error::BadAnswer {
                what: WHAT,
                device,
                detail: "the BMC gave no token; try auth: basic".to_owned(),
            });
        };
        let token = Secret::new(token);
        self.sessions
            .lock()
            .insert(ask.url.as_str().to_owned(), token.clone());
        Ok(token)
    }

    async fn once(&self, ask: &Ask<'_>, token: Option<&Secret>) -> Result<Answer> {
        let device = ask.url.as_str().trim_end_matches('/').to_owned();
        let late = || Error::TimedOut {
            what: ask.what,
            device: device.clone(),
            limit: self.limit,
        };
        tokio::time::timeout(self.limit, self.exchange(ask, token, &device))
            .await
            .map_err(|_| late())?
    }

    async fn exchange(&self, ask: &Ask<'_>, token: Option<&Secret>, device: &str) -> Result<Answer> {
        let lost = |error: &reqwest::Error| Error::Unreachable {
            what: ask.what,
            device: device.to_owned(),
            cause: causes(error),
        };
        let bad = |detail: String| Error::BadAnswer {
            what: ask.what,
            device: device.to_owned(),
            detail,
        };
        // A BMC names paths; one that names another machine would be sent our password. What a path leads to is known
        // when it was read as an address: backslashes and line breaks count as nobody would think.
        let found = ask.url.join(ask.path).ok();
        let own = |url: &Url| ask.path.starts_with('/') && url.origin() == ask.url.origin();
        let Some(url) = found.filter(own) else {
            return Err(bad(format!(
                "the BMC names {:?}, which is no path of its own",
                line(ask.path)
            )));
        };
        let mut request = self
            .client
            .request(ask.method.clone(), url)
            .header(header::ACCEPT, "application/json")
            .header(header::CACHE_CONTROL, "no-cache")
            .header("OData-Version", "4.0");
        match (token, ask.credentials) {
            (Some(token), _) => request = request.header(TOKEN, sensitive(token.reveal())),
            (None, Some(who)) => request = request.basic_auth(&who.username, Some(who.password.reveal())),
            (None, None) => {}
        }
        if let Some(tag) = ask.tag {
            request = request.header(header::IF_MATCH, tag);
        }
        if let Some(body) = ask.body {
            request = request.json(body);
        }
        let mut answer = request.send().await.map_err(|error| lost(&error))?;
        let status = answer.status().as_u16();
        let headers = std::mem::take(answer.headers_mut());
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| lost(&error))? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(bad(format!("the answer is longer than {LONGEST_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status,
            headers,
            body: body.to_vec(),
            secrets: secrets(ask, token),
        })
    }
}

/// What must not be heard again from the one it was told to: some repeat what they did not like.
fn secrets(ask: &Ask<'_>, token: Option<&Secret>) -> Vec<Secret> {
    let password = ask.credentials.map(|who| who.password.clone());
    password.into_iter().chain(token.cloned()).collect()
}

/// What the BMC said.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    secrets: Vec<Secret>,
}

impl Answer {
    /// Itself, if the BMC did what was asked.
    pub(super) fn good(self, what: &'static str, device: &str) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let body = self.body();
        let error = &body["error"];
        let words = error["@Message.ExtendedInfo"][0]["Message"]
            .as_str()
            .or_else(|| error["message"].as_str());
        let hint = match self.status {
            401 | 403 => "; check credentials_file",
            _ => "",
        };
        Err(Error::Refused {
            what,
            device: device.to_owned(),
            status: self.status,
            message: format!("{}{hint}", self.words(words.unwrap_or("without a word"))),
        })
    }

    /// Words of the BMC in one line of bearable length, without what it was told in confidence.
    pub(super) fn words(&self, text: &str) -> String {
        line(&hidden(text, &self.secrets))
    }

    pub(super) fn header(&self, name: impl header::AsHeaderName) -> Option<String> {
        self.headers.get(name)?.to_str().ok().map(str::to_owned)
    }

    pub(super) fn json(&self, what: &'static str, device: &str) -> Result<Value> {
        serde_json::from_slice(&self.body).map_err(|error| Error::BadAnswer {
            what,
            device: device.to_owned(),
            detail: format!("the answer is no JSON: {error}"),
        })
    }

    /// The body, or nothing where it is no JSON.
    pub(super) fn body(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

fn sensitive(text: &str) -> http::HeaderValue {
    let mut value = http::HeaderValue::from_str(text).unwrap_or_else(|_| http::HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// A text in one line of bearable length.
fn line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(LONGEST_WORDS)
        .collect()
}

/// The chain of causes in one line, without the address that stands in front already.
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
        "the connection failed".to_owned()
    } else {
        words.join(": ")
    }
}
