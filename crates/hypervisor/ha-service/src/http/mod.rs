// SPDX-License-Identifier: Apache-2.0
//! The API: agents report, senders push, people look and decide, replicas compare. One table says
//! what is served and to whom; whatever comes in is bounded in size, rate and number before it is
//! looked at, and every refusal is a problem document that says what to do.

mod agents;
mod call;
mod connection;
mod decide;
mod legacy;
mod limit;
mod listen;
mod openapi;
mod people;
mod routes;
mod telemetry;
mod words;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cobaltcore_ha_wire::{PACKINGS, Packing, Problem, Unpackable};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::RwLock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::connection::Asked;
use crate::access::{Caller, Doorkeeper, PeerNames};
use crate::brain::BrainHandle;
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::commands::Commands;
use crate::config::Config;
use crate::directory::Directory;
use crate::heard::Heard;
use crate::maintenance::LocalMaintenance;
use crate::metrics::{Metrics, OfCode, OfRefusal};
use crate::pauses::PauseBook;
use crate::peers::{FORWARDED, Forwarded, Peers};
use crate::probe::Investigator;
use crate::settings::InForce;
use crate::store::Store;
use crate::switches::Switches;
use crate::tasks::preflight::Preflight;

pub(crate) use call::{Answer, Body, Call, problem};
pub use listen::{ApiListener, Port};
pub use openapi::document;
pub(crate) use people::{state_of, summary_of};
pub use routes::{ROUTES, Role, Route};
pub(crate) use words::{assessment_in_words, held_in_words, signals_of};

/// How long a caller may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A place among the requests under way. Work that outlives its request keeps it.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

/// What the handlers work with.
pub struct App {
    /// What the service is told, which may change.
    pub in_force: InForce,
    /// The clock.
    pub clock: Clock,
    /// The telemetry.
    pub store: Store,
    /// The loop.
    pub brain: BrainHandle,
    /// What is told of incidents.
    pub chronicle: Chronicle,
    /// What is known of hosts.
    pub directory: Directory,
    /// Commands to agents.
    pub commands: Commands,
    /// When agents were last heard.
    pub heard: Heard,
    /// Pauses in force.
    pub pauses: PauseBook,
    /// Hosts that were switched off.
    pub switches: Switches,
    /// The maintenance of hosts without a cluster.
    pub local_maintenance: LocalMaintenance,
    /// The other replicas.
    pub peers: Peers,
    /// Looks at hosts.
    pub investigator: Investigator,
    /// What is known to be missing before it is needed.
    pub preflight: Preflight,
    /// What is counted.
    pub metrics: Metrics,
    pub(crate) door: Door,
}

/// What stands between callers and handlers.
pub(crate) struct Door {
    keeper: RwLock<Arc<Doorkeeper>>,
    limiter: limit::Limiter,
    places: Arc<Semaphore>,
    pub(crate) inventories: crate::ingest::Inventories,
    pub(crate) storing: crate::ingest::Storing,
    pub(crate) ages: crate::ages::Ages,
}

impl Door {
    /// With the rules of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            keeper: RwLock::new(Arc::new(Doorkeeper::new(config))),
            limiter: limit::Limiter::new(config.server.limits.per_agent_rps),
            places: Arc::new(Semaphore::new(config.server.limits.inflight)),
            inventories: crate::ingest::Inventories::default(),
            storing: crate::ingest::Storing::new(config.server.limits.inflight),
            ages: crate::ages::Ages::default(),
        }
    }

    /// From now on these callers are known.
    pub(crate) fn change(&self, config: &Config) {
        *self.keeper.write() = Arc::new(Doorkeeper::new(config));
    }
}

impl App {
    /// The configuration in force now.
    pub fn config(&self) -> Arc<Config> {
        self.in_force.get()
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.metrics.leader.get() == 1
    }

    /// Answers one request that came in at `port`.
    pub(crate) async fn serve(
        self: Arc<Self>,
        port: Port,
        names: Option<Arc<PeerNames>>,
        request: Request<Asked>,
    ) -> http::Response<Body> {
        let id = request_id(&request);
        let batches = request.uri().path().ends_with("/batches");
        let mut response = match self.route(port, names.as_deref(), request).await {
            Ok(response) => response,
            Err(mut problem) => {
                problem.instance = format!("urn:request:{id}");
                call::refused(&problem)
            }
        };
        if batches {
            let code = response.status().as_str().to_owned();
            self.metrics.ingest_batches.get_or_create(&OfCode { code }).inc();
        }
        if let Ok(value) = id.parse() {
            response.headers_mut().insert("x-request-id", value);
        }
        response
    }

    async fn route(
        self: &Arc<Self>,
        port: Port,
        names: Option<&PeerNames>,
        request: Request<Asked>,
    ) -> Answer {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let (route, params) = routes::find(&parts.method, path, port).map_err(|miss| match miss {
            routes::Miss::Path => problem(
                404,
                "Not found",
                format!("there is nothing at {path}; see /openapi.json"),
            ),
            routes::Miss::Method(allowed) => {
                problem(405, "Method not allowed", format!("{path} takes {allowed}"))
            }
        })?;
        let keeper = Arc::clone(&self.door.keeper.read());
        let caller = keeper.who(&parts.headers, names).ok_or_else(|| {
            self.refuse(
                route,
                "credentials",
                401,
                "Unauthorized",
                "the credentials are not known",
            )
        })?;
        self.admit(route, &caller)?;
        // A poll that waits holds no place: a thousand agents do that all day.
        let place = if route.waits {
            None
        } else {
            Some(self.place(route)?)
        };
        let body = self.body(route, &parts.headers, body).await?;
        if route.leader && !self.leads() {
            // Rare and large: in a box, so that no other request has room for it.
            return Box::pin(self.pass_on(&parts, body)).await;
        }
        if route.best && !self.leads() {
            if parts.headers.contains_key(FORWARDED) {
                return Err(not_leading());
            }
            if let Some(answer) = Box::pin(self.ask_leader(&parts)).await {
                return Ok(answer);
            }
        }
        let query = call::read_query(parts.uri.query().unwrap_or_default());
        // Names and values of headers lie in the room the connection read them into; an answer that is waited for
        // would hold on to it.
        drop(parts);
        let call = Call {
            app: Arc::clone(self),
            caller,
            params,
            query,
            body,
            place: place.clone(),
        };
        let answer = (route.handler)(call).await;
        drop(place);
        answer
    }

    fn place(&self, route: &Route) -> Result<Place, Problem> {
        let place = Arc::clone(&self.door.places).try_acquire_owned();
        place
            .map(Arc::new)
            .map_err(|_| self.refuse(route, "busy", 503, "Busy", "too many requests are under way"))
    }

    fn refuse(&self, route: &Route, why: &str, status: u16, title: &str, detail: &str) -> Problem {
        self.count_refused(route.id, why);
        problem(status, title, detail)
    }

    pub(crate) fn count_refused(&self, what: &str, why: &str) {
        let label = OfRefusal {
            what: what.to_owned(),
            why: why.to_owned(),
        };
        self.metrics.refused.get_or_create(&label).inc();
    }

    /// Records came that are stored already: they are not stored again, and nothing is judged by them twice.
    pub(crate) fn count_known(&self, records: usize) {
        let label = OfRefusal {
            what: "record".to_owned(),
            why: "replayed".to_owned(),
        };
        let refused = self.metrics.refused.get_or_create(&label);
        refused.inc_by(records as u64);
    }

    fn admit(&self, route: &Route, caller: &Caller) -> Result<(), Problem> {
        let allowed = match (route.role, caller) {
            (Role::Open, _) => true,
            (Role::Legacy, Caller::Operator(_)) => true,
            (Role::Legacy, _) => self.config().compat.legacy_unauthenticated,
            (Role::Agent, Caller::Agent(_)) => true,
            (Role::Sender, Caller::Sender(_)) => true,
            (Role::Viewer, Caller::Viewer(_) | Caller::Operator(_)) => true,
            (Role::Operator, Caller::Operator(_)) => true,
            (Role::Peer, Caller::Peer) => true,
            _ => false,
        };
        if !allowed {
            let needed = route.role.as_str();
            return Err(if *caller == Caller::Anonymous {
                let detail = format!("this is for {needed}; show a bearer token or a certificate");
                self.refuse(route, "anonymous", 401, "Unauthorized", &detail)
            } else {
                let detail = format!("this is for {needed}, and you are {}", caller.name());
                self.refuse(route, "role", 403, "Forbidden", &detail)
            });
        }
        let limited = matches!(caller, Caller::Agent(_) | Caller::Sender(_));
        if limited && !self.door.limiter.take(&caller.name(), std::time::Instant::now()) {
            return Err(self.refuse(
                route,
                "rate",
                429,
                "Too many requests",
                "fewer requests per second are taken from one credential; wait and send again",
            ));
        }
        Ok(())
    }

    async fn body(&self, route: &Route, headers: &http::HeaderMap, body: Asked) -> Result<Bytes, Problem> {
        if !route.takes_body {
            return Ok(Bytes::new());
        }
        let limit = self.config().server.limits.body_bytes;
        let too_large = || {
            let detail = format!("at most {limit} bytes are taken; send less at once");
            self.refuse(route, "size", 413, "Too large", &detail)
        };
        let read = tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect());
        let sent = match read.await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => {
                return Err(self.refuse(route, "broken", 400, "Bad request", "the body ended early"));
            }
            Err(_) => {
                return Err(self.refuse(route, "slow", 408, "Request timeout", "the body came too slowly"));
            }
        };
        let encoding = headers
            .get(http::header::CONTENT_ENCODING)
            .map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
        let packing = match encoding.as_deref() {
            None | Some("" | "identity") => return Ok(sent),
            Some(name) => Packing::named(name),
        };
        let Some(packing) = packing else {
            let detail = format!("bodies are taken as they are or packed: {PACKINGS}");
            return Err(self.refuse(route, "encoding", 415, "Unsupported encoding", &detail));
        };
        match packing.unpack(&sent, limit) {
            Ok(body) => Ok(Bytes::from(body)),
            Err(Unpackable::TooLarge) => Err(too_large()),
            Err(Unpackable::Broken) => {
                let detail = format!("the body is not {}", packing.as_str());
                Err(self.refuse(route, "encoding", 400, "Bad request", &detail))
            }
        }
    }

    /// Lets whoever leads answer.
    async fn pass_on(&self, parts: &http::request::Parts, body: Bytes) -> Answer {
        if parts.headers.contains_key(FORWARDED) {
            return Err(not_leading());
        }
        let answer = self
            .peers
            .forward(parts.method.clone(), path_of(parts), &parts.headers, body)
            .await;
        let nobody = || {
            problem(
                503,
                "Nobody leads",
                "no replica leads right now, so nothing can be decided; try again in a few seconds",
            )
        };
        answer.map(passed).ok_or_else(nobody)
    }

    /// What whoever leads says; nothing if nobody is known to lead, or does not answer.
    async fn ask_leader(&self, parts: &http::request::Parts) -> Option<http::Response<Body>> {
        let answer = self.peers.ask_leader(path_of(parts), &parts.headers).await?;
        Some(passed(answer))
    }
}

fn not_leading() -> Problem {
    problem(421, "Not leading", "this replica does not lead")
}

fn path_of(parts: &http::request::Parts) -> &str {
    let path = parts.uri.path_and_query();
    path.map_or("/", http::uri::PathAndQuery::as_str)
}

/// The answer of another replica.
fn passed((status, kind, body): Forwarded) -> http::Response<Body> {
    let mut response = http::Response::new(Body::from(body));
    *response.status_mut() = status;
    if let Some(kind) = kind {
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    }
    response
}

/// The caller's own id if it is harmless, else a new one.
fn request_id<B>(request: &Request<B>) -> String {
    let harmless = |text: &&str| {
        !text.is_empty()
            && text.len() <= 128
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
    };
    request
        .headers()
        .get("x-request-id")
        .and_then(|value| value.to_str().ok())
        .filter(harmless)
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// A status code by its number, for those that are known to be good.
pub(crate) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
