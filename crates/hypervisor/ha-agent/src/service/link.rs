// SPDX-License-Identifier: Apache-2.0
//! One connection to one endpoint. Keys, certificates and tokens follow their files; answers are bounded; every
//! request has a deadline.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cobaltcore_ha_wire::{PACK_FROM, Packing};
use cobaltcore_kit::tls::{ClientTls, TokenFile};
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use url::Url;

use crate::config::Service;

/// The largest answer.
const LARGEST: usize = 1 << 20;
/// The answer to a packing that is not known.
const UNSUPPORTED: u16 = 415;
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Where a replica of the service is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// Its name in cursors, metrics and logs.
    pub(super) key: String,
    /// Its base.
    pub(super) base: Url,
    /// The address behind the name, where one name stands for all replicas.
    pub(super) address: Option<SocketAddr>,
}

/// What came back.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

type Material = Option<Arc<rustls::ClientConfig>>;

/// A connection that renews itself.
pub(super) struct Link {
    endpoint: Endpoint,
    service: Service,
    tls: Mutex<Option<ClientTls>>,
    token: Option<TokenFile>,
    client: Mutex<Option<(Material, reqwest::Client)>>,
    /// The service behind it answered that it does not know zstd.
    only_gzip: AtomicBool,
}

impl Link {
    pub(super) fn new(endpoint: Endpoint, service: &Service) -> Self {
        Self {
            tls: Mutex::new(None),
            token: service.token_file.clone().map(TokenFile::new),
            service: service.clone(),
            endpoint,
            client: Mutex::new(None),
            only_gzip: AtomicBool::new(false),
        }
    }

    /// Forgets connections, so that the next one uses what the files say now.
    pub(super) fn renew(&self) {
        *self.client.lock() = None;
    }

    fn client(&self) -> Result<reqwest::Client, String> {
        let material = self.material()?;
        let mut held = self.client.lock();
        if let Some((known, client)) = held.as_ref()
            && same(known.as_ref(), material.as_ref())
        {
            return Ok(client.clone());
        }
        if let Some(client) = self.plain() {
            return Ok(client);
        }
        let mut builder = common().pool_max_idle_per_host(1);
        if let Some(config) = &material {
            builder = builder.tls_backend_preconfigured(rustls::ClientConfig::clone(config));
        }
        if let (Some(address), Some(name)) = (self.endpoint.address, self.endpoint.base.host_str()) {
            builder = builder.resolve(name, address);
        }
        let client = builder.build().map_err(|error| words(&error))?;
        *held = Some((material, client.clone()));
        Ok(client)
    }

    /// Without TLS and with an address that speaks for itself nothing in a connection is anybody's own. Where many agents
    /// live in one process, as in a simulation, they share them.
    fn plain(&self) -> Option<reqwest::Client> {
        static SHARED: OnceLock<Option<reqwest::Client>> = OnceLock::new();
        let own = self.endpoint.base.scheme() != "http" || self.endpoint.address.is_some();
        let shared = || common().tls_certs_only([]).build().ok();
        if own {
            None
        } else {
            SHARED.get_or_init(shared).clone()
        }
    }

    /// What TLS uses now. Files that are not there yet are looked for again at the next request.
    fn material(&self) -> Result<Material, String> {
        if self.endpoint.base.scheme() != "https" {
            return Ok(None);
        }
        let mut tls = self.tls.lock();
        if tls.is_none() {
            let files = &self.service.tls;
            let ca = files.ca.as_ref().ok_or("service.tls.ca is not set")?;
            let identity = files.cert.as_deref().zip(files.key.as_deref());
            *tls = Some(ClientTls::open(ca, identity).map_err(|error| error.to_string())?);
        }
        Ok(tls.as_ref().map(ClientTls::current))
    }

    fn url(&self, path: &str) -> Result<Url, String> {
        let base = self.endpoint.base.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path}")).map_err(|error| error.to_string())
    }

    /// Sends a body. A service that does not know zstd says so, and gets gzip from then on.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>, time: Duration) -> Result<Reply, String> {
        if body.len() < PACK_FROM {
            return self.send(path, body, None, time).await;
        }
        if !self.only_gzip.load(Ordering::Relaxed) {
            let packed = pack(Packing::Zstd, &body)?;
            let reply = self.send(path, packed, Some(Packing::Zstd), time).await?;
            if reply.status != UNSUPPORTED {
                return Ok(reply);
            }
            self.only_gzip.store(true, Ordering::Relaxed);
        }
        let packed = pack(Packing::Gzip, &body)?;
        self.send(path, packed, Some(Packing::Gzip), time).await
    }

    async fn send(
        &self,
        path: &str,
        body: Vec<u8>,
        packing: Option<Packing>,
        time: Duration,
    ) -> Result<Reply, String> {
        let mut request = self
            .client()?
            .post(self.url(path)?)
            .header(CONTENT_TYPE, "application/json");
        if let Some(packing) = packing {
            request = request.header(CONTENT_ENCODING, packing.as_str());
        }
        self.exchange(request.body(body), time).await
    }

    /// Asks.
    pub(super) async fn get(&self, path: &str, time: Duration) -> Result<Reply, String> {
        let request = self.client()?.get(self.url(path)?);
        self.exchange(request, time).await
    }

    async fn exchange(&self, mut request: reqwest::RequestBuilder, time: Duration) -> Result<Reply, String> {
        if let Some(token) = &self.token {
            let token = token.current().map_err(|error| error.to_string())?;
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let whole = async {
            let mut response = request.send().await.map_err(|error| words(&error))?;
            let status = response.status().as_u16();
            let header = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok());
            let retry_after = header
                .and_then(|text| text.trim().parse().ok())
                .map(Duration::from_secs);
            let mut body = Vec::new();
            while let Some(part) = response.chunk().await.map_err(|error| words(&error))? {
                if body.len() + part.len() > LARGEST {
                    return Err(format!("the answer is larger than {LARGEST} bytes"));
                }
                body.extend_from_slice(&part);
            }
            Ok(Reply {
                status,
                retry_after,
                body,
            })
        };
        tokio::time::timeout(time, whole)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {time:?}")))
    }
}

fn common() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIME)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
}

fn same(one: Option<&Arc<rustls::ClientConfig>>, two: Option<&Arc<rustls::ClientConfig>>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => Arc::ptr_eq(one, two),
        (None, None) => true,
        _ => false,
    }
}

fn pack(packing: Packing, body: &[u8]) -> Result<Vec<u8>, String> {
    packing.pack(body).map_err(|error| error.to_string())
}

/// The whole chain of an error: what reqwest says first is rarely the cause.
fn words(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
