// SPDX-License-Identifier: Apache-2.0
//! The simulated cloud: Keystone, Nova, Placement, Glance, Neutron and Cinder behind one port chosen by the system, each
//! under its own path. It answers what our roles and the unmodified `openstack` client ask, in the services' own words,
//! from the state of a [`World`]; every call is logged and can be made to fail.

mod calls;
mod compute;
mod http;
mod identity;
mod image;
mod network;
mod placement;
mod tokens;
mod volume;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub use calls::{Call, Calls};
pub use http::Service;

use self::http::{Answer, Outcome, Refusal, Req};
use self::tokens::Tokens;
use crate::error::Error;
use crate::world::{ADMIN_PASSWORD, ApiEffect, World};

/// Most bytes of one request.
const MAX_BODY: usize = 64 << 20;
/// Most bytes of a body that are kept in the log.
const LOGGED_BODY: usize = 4_096;
/// A call that is never answered is held this long; every caller has given up by then.
const FOREVER: Duration = Duration::from_secs(3_600);

pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) tokens: Tokens,
    calls: Calls,
}

/// A cloud that serves until it is dropped.
pub struct Cloud {
    address: SocketAddr,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
    _time: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Cloud {
    /// Serves a world on a port of the loopback interface that the system chooses.
    pub async fn start(world: World) -> Result<Self, Error> {
        Self::start_on(world, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Serves a world on this address.
    pub async fn start_on(world: World, address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen {
            what: "the simulated cloud",
            address: address.to_string(),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let time = world.run();
        let shared = Arc::new(Shared {
            world,
            tokens: Tokens::default(),
            calls: Calls::default(),
        });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let server = AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the simulated cloud ended");
            }
        }));
        Ok(Self {
            address,
            shared,
            _server: server,
            _time: time,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `OS_AUTH_URL`.
    pub fn auth_url(&self) -> String {
        format!("http://{}/identity/v3", self.address)
    }

    /// Address of a service, without its version part.
    pub fn url(&self, service: Service) -> String {
        format!("http://{}/{service}", self.address)
    }

    /// A `clouds.yaml` with the administrator as cloud `sim`, a member of the test project as `sim-test`, and an
    /// ordinary user as `sim-demo`.
    pub fn clouds_yaml(&self) -> String {
        let entry = |name: &str, user: &str, project: &str, domain: &str| {
            format!(
                "  {name}:\n    auth:\n      auth_url: {}\n      username: {user}\n      password: {ADMIN_PASSWORD}\n      project_name: {project}\n      user_domain_name: Default\n      project_domain_name: {domain}\n    region_name: RegionOne\n    identity_api_version: 3\n",
                self.auth_url()
            )
        };
        format!(
            "clouds:\n{}{}{}",
            entry("sim", "admin", "admin", "Default"),
            entry("sim-test", "admin", "test", "cc3test"),
            entry("sim-demo", "demo", "demo", "Default"),
        )
    }

    /// The world it serves.
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// Every call it received.
    pub fn calls(&self) -> &Calls {
        &self.shared.calls
    }

    /// Makes every token void, as a change of Keystone's keys does.
    pub fn expire_tokens(&self) {
        self.shared.tokens.revoke_all();
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let request_id = format!("req-{}", Uuid::new_v4());
    let Some(mut req) = take_apart(request, request_id.clone()).await else {
        return Answer::empty(404).respond(Service::Identity, &request_id);
    };
    let broken_now = shared.world.read(|state| !state.faults.api.is_empty());
    let fault = shared.world.attend(broken_now, |state| {
        if state.faults.api.is_empty() {
            return None;
        }
        let path = req.path.join("/");
        let query = query_text(&req);
        let body = String::from_utf8_lossy(&req.body);
        let text = [path.as_str(), query.as_str(), body.as_ref()];
        state.faults.api(req.service.name(), req.method.as_str(), &text)
    });
    match fault {
        Some(ApiEffect::Delay(span)) => tokio::time::sleep(span).await,
        Some(ApiEffect::Hang) => tokio::time::sleep(FOREVER).await,
        Some(ApiEffect::Gateway(status)) => {
            note(&shared, &req, status);
            return gateway(status);
        }
        _ => {}
    }
    let lasting = req.must_last() && !says_what_is(&shared, &req);
    let answer = match fault {
        Some(ApiEffect::Refuse(status)) => broken(&req, status),
        _ => handle(&shared, &mut req),
    };
    let answer = match fault {
        Some(ApiEffect::FailAfter(status)) => broken(&req, status),
        _ => answer,
    };
    note(&shared, &req, answer.status);
    // Whoever was told that a guest moves or a host is off may act on it: a crash must not undo it.
    let answer = if answer.status < 400 && lasting && !shared.world.durable().await {
        broken(&req, 500)
    } else {
        answer
    };
    if fault == Some(ApiEffect::HangAfter) {
        tokio::time::sleep(FOREVER).await;
    }
    answer.respond(req.service, &request_id)
}

/// Whether a service is only told again that it is dead, or that it is not. Every host that comes into service is told
/// so, and a large fleet would write its whole world to disk for each of them.
fn says_what_is(shared: &Shared, req: &Req) -> bool {
    let [.., collection, id] = req.path.as_slice() else {
        return false;
    };
    let (Ok(id), Ok(body)) = (Uuid::parse_str(id), req.json()) else {
        return false;
    };
    let asked = body.get("forced_down").map(http::truthy);
    collection == "os-services"
        && shared.world.read(|state| {
            let service = state.host_by_service(id).and_then(|host| host.service.as_ref());
            service.map(|service| service.forced_down) == asked
        })
}

async fn take_apart(request: Request, id: String) -> Option<Req> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), MAX_BODY).await.ok()?;
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let mut segments = parts.uri.path().split('/').filter(|part| !part.is_empty());
    let first = segments.next()?;
    let service = Service::ALL.into_iter().find(|service| service.name() == first)?;
    let path: Vec<String> = segments.map(decode).collect();
    let query = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect();
    let host = parts
        .headers
        .get("host")
        .and_then(|host| host.to_str().ok())
        .unwrap_or("localhost");
    Some(Req {
        service,
        method: parts.method,
        path,
        query,
        origin: format!("http://{host}"),
        headers: parts.headers,
        body,
        id,
        caller: None,
        version: 0,
    })
}

/// Checks the token, then lets the service answer.
fn handle(shared: &Shared, req: &mut Req) -> Answer {
    let token = req
        .headers
        .get("x-auth-token")
        .and_then(|token| token.to_str().ok());
    req.caller = token.and_then(|token| shared.tokens.check(token));
    let outcome = match req.service {
        Service::Identity => identity::handle(shared, req),
        Service::Compute => compute::handle(shared, req),
        Service::Placement => placement::handle(shared, req),
        Service::Image => image::handle(shared, req),
        Service::Network => network::handle(shared, req),
        Service::Volume => volume::handle(shared, req),
    };
    finish(req, outcome)
}

fn finish(req: &Req, outcome: Outcome) -> Answer {
    let mut answer = outcome.unwrap_or_else(|refusal| {
        let answer = refusal.answer(req.service, &req.id, req.version);
        if refusal.status == 401 {
            answer.header(
                "www-authenticate",
                format!("Keystone uri=\"{}/identity\"", req.origin),
            )
        } else {
            answer
        }
    });
    match req.service {
        Service::Compute if req.version > 0 => {
            answer = answer
                .header("openstack-api-version", format!("compute 2.{}", req.version))
                .header("x-openstack-nova-api-version", format!("2.{}", req.version))
                .header("vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version");
        }
        Service::Placement => {
            answer = answer
                .header("openstack-api-version", format!("placement 1.{}", req.version))
                .header("vary", "openstack-api-version");
        }
        Service::Volume => {
            answer = answer
                .header("openstack-api-version", format!("volume 3.{}", req.version))
                .header("vary", "OpenStack-API-Version");
        }
        _ => {}
    }
    answer
}

fn broken(req: &Req, status: u16) -> Answer {
    let message = match status {
        503 => "The server is currently unavailable. Please try again at a later time.".to_owned(),
        429 => "This request was rate-limited.".to_owned(),
        _ => format!(
            "Unexpected API Error. Please report this at http://bugs.launchpad.net/{}/ and attach the {} API log if possible.\n<class 'oslo_db.exception.DBConnectionError'>",
            req.service, req.service
        ),
    };
    let answer = finish(req, Err(Refusal::new(status, message)));
    if status == 429 || status == 503 {
        answer.header("retry-after", "1")
    } else {
        answer
    }
}

/// The answer of a proxy that finds nobody behind it: a page for people, and no id that any service has given.
fn gateway(status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or_default();
    let page = format!("<html><body><h1>{status}</h1></body></html>");
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}

fn query_text(req: &Req) -> String {
    let pairs: Vec<String> = req
        .query
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join("&")
}

fn note(shared: &Shared, req: &Req, status: u16) {
    let header = |name: &str| {
        let value = req.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let path: Vec<String> = match req.path.split_first() {
        Some((first, rest)) if first.starts_with('v') && first.len() <= 4 => rest.to_vec(),
        _ => req.path.clone(),
    };
    // Requests to Keystone carry passwords, and nobody needs them here.
    let body = if req.service == Service::Identity || req.body.len() > LOGGED_BODY {
        String::new()
    } else {
        String::from_utf8_lossy(&req.body).into_owned()
    };
    shared.calls.note(Call {
        at: shared.world.clock().now(),
        service: req.service,
        method: req.method.to_string(),
        route: calls::route(&path),
        path: format!("/{}", path.join("/")),
        query: query_text(req),
        body,
        user_agent: header("user-agent"),
        microversion: header("openstack-api-version"),
        status,
    });
}
