// SPDX-License-Identifier: Apache-2.0
//! The other replicas: what they hear of hosts, and what they see when they look. Each answers for
//! itself; one that does not answer says nothing.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{BootId, Input, Observation, PeerHost, ProbeResult, ReplicaId};
use cobaltcore_ha_wire::rest::ObserveAnswer;
use cobaltcore_kit::tls::TokenFile;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::brain::BrainHandle;
use crate::config::{Config, Pod};
use crate::error::Error;
use crate::leadership::pause;

const CALL_TIME: Duration = Duration::from_secs(4);
const LONGEST_ANSWER: usize = 16 << 20;
/// How often the others are asked what they hear.
const EVERY: Duration = Duration::from_secs(2);
/// Says that a request was passed on once already.
pub(crate) const FORWARDED: &str = "x-cobaltcore-forwarded";

/// Pushes that may be on their way to one replica.
const ON_THEIR_WAY: usize = 64;
/// How long a sender waits until the others know what it pushed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where replicas tell what they see.
pub const OBSERVE: &str = "/internal/v1/observe";
/// Below this they take what senders pushed to another.
pub const PUSHED: &str = "/internal/v1/telemetry";

/// The other replicas. Cheap to clone.
#[derive(Clone, Default)]
pub struct Peers(Option<Arc<Inner>>);

/// Another replica.
struct Other {
    replica: ReplicaId,
    url: String,
    /// Each has its own, so that one that is gone takes nothing from the others.
    places: Arc<Semaphore>,
}

struct Inner {
    others: Vec<Other>,
    client: reqwest::Client,
    token: Option<TokenFile>,
    /// Who of them said last that it leads.
    leader: Mutex<Option<ReplicaId>>,
}

/// What another replica answered: its status, the kind of its body, and the body.
pub(crate) type Forwarded = (http::StatusCode, Option<http::HeaderValue>, bytes::Bytes);

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others = self.0.iter().flat_map(|inner| &inner.others);
        f.debug_list().entries(others.map(|other| &other.url)).finish()
    }
}

/// Which of the replicas this one is.
pub fn own_ordinal(config: &Config) -> Result<ReplicaId, Error> {
    let pod = Pod::here();
    let peers = config.peers(&pod).len();
    if peers <= 1 && config.leader.enabled && config.leader.several() {
        return Err(Error::Setup(format!(
            "this is one of {} replicas and cannot tell where the others are: run it as a pod of a StatefulSet with \
             POD_NAMESPACE in its environment, name all of them in leader.peers, or say leader.replicas: 1",
            config.leader.replicas
        )));
    }
    if let Some(ordinal) = config.leader.ordinal {
        return Ok(ReplicaId(ordinal));
    }
    if peers <= 1 {
        return Ok(ReplicaId(0));
    }
    let Pod { name, .. } = pod;
    name.rsplit('-')
        .next()
        .and_then(|digits| digits.parse::<u8>().ok())
        .filter(|ordinal| usize::from(*ordinal) < peers)
        .map(ReplicaId)
        .ok_or_else(|| {
            Error::Setup(format!(
                "which of the {peers} peers this replica is cannot be told from the host name {name:?}: set leader.ordinal"
            ))
        })
}

impl Peers {
    /// The peers in the configuration, without `me`.
    pub fn new(config: &Config, me: ReplicaId) -> Result<Self, Error> {
        let (peers, leader) = (config.peers(&Pod::here()), &config.leader);
        if peers.len() <= 1 {
            return Ok(Self(None));
        }
        tracing::info!(?peers, me = me.0, "this is one of several replicas");
        let others = peers
            .iter()
            .enumerate()
            .filter_map(|(n, url)| Some((ReplicaId(u8::try_from(n).ok()?), url)))
            .filter(|(replica, _)| *replica != me)
            .map(|(replica, url)| Other {
                replica,
                url: url.trim_end_matches('/').to_owned(),
                places: Arc::new(Semaphore::new(ON_THEIR_WAY)),
            })
            .collect();
        let token = Some(leader.peer_token_file.as_str())
            .filter(|path| !path.is_empty())
            .map(TokenFile::new);
        Ok(Self(Some(Arc::new(Inner {
            others,
            client: client(&leader.peer_ca_file, CALL_TIME)?,
            token,
            leader: Mutex::default(),
        }))))
    }

    /// Asks every other replica to look at a host.
    pub(crate) async fn probe(&self, host: &HostName, time: Duration) -> Vec<(ReplicaId, ProbeResult)> {
        let query = [("hosts", host.as_str()), ("probe", "true")];
        self.ask(&query, time + Duration::from_secs(2))
            .await
            .into_iter()
            .filter_map(|(replica, answer)| {
                let seen = answer.hosts.iter().find(|seen| seen.host == *host)?;
                Some((replica, read_probe(seen.probe.as_deref()?)?))
            })
            .collect()
    }

    /// Tells the loop what the others hear, until `stop`.
    pub async fn listen(self, brain: BrainHandle, stop: CancellationToken) {
        if self.0.is_none() {
            stop.cancelled().await;
            return;
        }
        while !pause(&stop, EVERY).await {
            for (replica, answer) in self.ask(&[], CALL_TIME).await {
                let hosts = answer
                    .hosts
                    .into_iter()
                    .map(|seen| {
                        let heard = PeerHost {
                            age_ms: seen.age_ms,
                            boot: seen.boot_id.map(BootId),
                            resets_after: seen.resets_after_ms.map(Duration::from_millis),
                        };
                        (seen.host, heard)
                    })
                    .collect();
                brain.tell(Input::Saw(Observation::Peer { replica, hosts })).await;
            }
        }
    }

    async fn ask(&self, query: &[(&str, &str)], time: Duration) -> Vec<(ReplicaId, ObserveAnswer)> {
        let Some(inner) = &self.0 else {
            return Vec::new();
        };
        let calls = inner.others.iter().map(|Other { replica, url, .. }| async move {
            match inner.observe(url, query, time).await {
                // A misconfigured list of peers must not let one replica count twice.
                Ok(answer) if answer.replica == replica.0 => {
                    inner.note(*replica, answer.leads);
                    Some((*replica, answer))
                }
                Ok(answer) => {
                    tracing::warn!(
                        url,
                        expected = replica.0,
                        found = answer.replica,
                        "another replica answers there"
                    );
                    None
                }
                Err(why) => {
                    tracing::debug!(url, why, "a replica does not answer");
                    inner.note(*replica, false);
                    None
                }
            }
        });
        futures::future::join_all(calls)
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// Passes a request on to whoever leads; nothing if nobody else does.
    pub(crate) async fn forward(
        &self,
        method: http::Method,
        path: &str,
        headers: &http::HeaderMap,
        body: bytes::Bytes,
    ) -> Option<Forwarded> {
        let inner = self.0.as_ref()?;
        for Other { url, .. } in &inner.others {
            let answer = inner.pass(method.clone(), url, path, headers, body.clone()).await;
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Asks whoever is known to lead; nothing if nobody is, or does not answer.
    pub(crate) async fn ask_leader(&self, path: &str, headers: &http::HeaderMap) -> Option<Forwarded> {
        let inner = self.0.as_ref()?;
        let leader = (*inner.leader.lock())?;
        let other = inner.others.iter().find(|other| other.replica == leader)?;
        let nothing = bytes::Bytes::new();
        inner
            .pass(http::Method::GET, &other.url, path, headers, nothing)
            .await
    }

    /// Passes on what a sender pushed to `source`, so that every replica judges by it. It is taken there from nobody but a
    /// replica, and goes no further. Waits a moment for them; to one that is slower it is still on its way afterwards.
    pub(crate) async fn pass_on(&self, source: &str, body: &bytes::Bytes) {
        let Some(inner) = &self.0 else { return };
        let sent = inner.others.iter().filter_map(|Other { url, places, .. }| {
            let Ok(place) = Arc::clone(places).try_acquire_owned() else {
                tracing::warn!(
                    url,
                    source,
                    "a replica does not keep up; it misses something that was pushed"
                );
                return None;
            };
            let (inner, url) = (Arc::clone(inner), format!("{url}{PUSHED}/{source}"));
            let body = body.clone();
            Some(tokio::spawn(async move {
                let _place = place;
                inner.push(&url, body).await;
            }))
        });
        let sent: Vec<_> = sent.collect();
        let _ = tokio::time::timeout(PATIENCE, futures::future::join_all(sent)).await;
    }
}

impl Inner {
    /// Keeps in mind whether a replica leads.
    fn note(&self, replica: ReplicaId, leads: bool) {
        let mut leader = self.leader.lock();
        if leads {
            *leader = Some(replica);
        } else if *leader == Some(replica) {
            *leader = None;
        }
    }

    /// Passes a request on to one replica; nothing if it does not lead, or does not answer.
    async fn pass(
        &self,
        method: http::Method,
        url: &str,
        path: &str,
        headers: &http::HeaderMap,
        body: bytes::Bytes,
    ) -> Option<Forwarded> {
        let mut request = self
            .client
            .request(method, format!("{url}{path}"))
            .header(FORWARDED, "1")
            .body(body);
        for name in [http::header::AUTHORIZATION, http::header::CONTENT_TYPE] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await.ok()?;
        let status = answer.status();
        if status == http::StatusCode::MISDIRECTED_REQUEST {
            return None;
        }
        let kind = answer.headers().get(http::header::CONTENT_TYPE).cloned();
        let body = answer.bytes().await.ok()?;
        Some((status, kind, body))
    }

    /// What replicas know each other by, on a request.
    fn signed(&self, request: reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, String> {
        match &self.token {
            None => Ok(request),
            Some(token) => Ok(request.bearer_auth(token.current().map_err(|error| error.to_string())?)),
        }
    }

    async fn push(&self, url: &str, body: bytes::Bytes) {
        let answer = match self.signed(self.client.post(url).body(body)) {
            Ok(request) => request.send().await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        match answer {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => {
                tracing::warn!(url, status = %answer.status(), "a replica does not take what was pushed");
            }
            Err(why) => tracing::debug!(url, why, "a replica does not hear what was pushed"),
        }
    }

    async fn observe(
        &self,
        url: &str,
        query: &[(&str, &str)],
        time: Duration,
    ) -> Result<ObserveAnswer, String> {
        let mut target = url::Url::parse(&format!("{url}{OBSERVE}")).map_err(|error| error.to_string())?;
        if !query.is_empty() {
            target.query_pairs_mut().extend_pairs(query);
        }
        let request = self.signed(self.client.get(target).timeout(time))?;
        let answer = request.send().await.map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("answered {}", answer.status()));
        }
        let body = read_at_most(answer, LONGEST_ANSWER).await?;
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }
}

/// Reads an answer up to a limit.
pub(crate) async fn read_at_most(mut answer: reqwest::Response, limit: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| error.to_string())? {
        if body.len() + chunk.len() > limit {
            return Err(format!("the answer has more than {limit} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A client that trusts the authorities in a file, or the system's own.
pub(crate) fn client(ca_file: &str, time: Duration) -> Result<reqwest::Client, Error> {
    cobaltcore_kit::startup::install_tls_provider();
    let mut builder = reqwest::Client::builder()
        .timeout(time)
        .redirect(reqwest::redirect::Policy::none());
    if !ca_file.is_empty() {
        let text = std::fs::read(ca_file).map_err(|source| Error::File {
            path: ca_file.into(),
            source,
        })?;
        let roots = reqwest::Certificate::from_pem_bundle(&text)
            .map_err(|error| Error::Setup(format!("{ca_file}: {error}")))?;
        builder = builder.tls_certs_only(roots);
    }
    builder
        .build()
        .map_err(|error| Error::Setup(format!("preparing an HTTP client: {error}")))
}

pub(crate) fn probe_word(result: ProbeResult) -> &'static str {
    match result {
        ProbeResult::App => "app",
        ProbeResult::Kernel => "kernel",
        ProbeResult::Timeout => "timeout",
    }
}

fn read_probe(word: &str) -> Option<ProbeResult> {
    match word {
        "app" => Some(ProbeResult::App),
        "kernel" => Some(ProbeResult::Kernel),
        "timeout" => Some(ProbeResult::Timeout),
        _ => None,
    }
}
