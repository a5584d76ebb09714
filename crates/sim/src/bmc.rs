// SPDX-License-Identifier: Apache-2.0
//! One Redfish BMC per simulated host, each on its own port: the system's power state and the button that changes it. A
//! BMC stays reachable when its host is dark or cut off, and can be made to fail, to hang or to lie.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;
use crate::world::{HostName, Power, World};

/// User of every simulated BMC.
pub const USER: &str = "admin";
/// Password of every simulated BMC.
pub const PASSWORD: &str = "redfish";
/// `admin:redfish` in the form that basic authentication sends.
const BASIC: &str = "Basic YWRtaW46cmVkZmlzaA==";

/// Most bytes of one request.
const MAX_BODY: usize = 64 << 10;
/// A call that is never answered is held this long; every caller has given up by then.
const FOREVER: Duration = Duration::from_secs(3_600);

/// What is wrong with a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// It answers nothing.
    Hangs,
    /// It answers 500 to everything.
    Errors,
    /// It takes commands, does nothing, and says what one wants to hear.
    Lies,
}

struct Board {
    world: World,
    host: HostName,
    trouble: Mutex<Trouble>,
    /// What it says while it lies.
    claimed: Mutex<Option<Power>>,
}

/// The BMCs of all hosts of a world; they end with this value.
pub struct Bmcs {
    boards: BTreeMap<HostName, (SocketAddr, Arc<Board>, AbortOnDropHandle<()>)>,
    _time: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Bmcs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bmcs")
            .field("count", &self.boards.len())
            .finish_non_exhaustive()
    }
}

impl Bmcs {
    /// Starts a BMC for every host the world has now, on ports of the loopback interface that the system chooses.
    pub async fn start(world: &World) -> Result<Self, Error> {
        let names: Vec<HostName> = world.read(|state| state.hosts.keys().cloned().collect());
        let mut boards = BTreeMap::new();
        for host in names {
            let failed = |source| Error::Listen {
                what: "a simulated BMC",
                address: "127.0.0.1:0".to_owned(),
                source,
            };
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
                .await
                .map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let board = Arc::new(Board {
                world: world.clone(),
                host: host.clone(),
                trouble: Mutex::default(),
                claimed: Mutex::default(),
            });
            let router = Router::new().fallback(serve).with_state(Arc::clone(&board));
            let task = AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = axum::serve(listener, router).await {
                    tracing::warn!(%error, "a simulated BMC ended");
                }
            }));
            boards.insert(host, (address, board, task));
        }
        Ok(Self {
            boards,
            _time: world.run(),
        })
    }

    /// Where a host's BMC is.
    pub fn url(&self, host: &str) -> Option<String> {
        self.boards
            .get(host)
            .map(|(address, _, _)| format!("http://{address}"))
    }

    /// Breaks a host's BMC, or mends it.
    pub fn set(&self, host: &str, trouble: Trouble) {
        if let Some((_, board, _)) = self.boards.get(host) {
            *board.trouble.lock() = trouble;
            *board.claimed.lock() = None;
        }
    }
}

async fn serve(State(board): State<Arc<Board>>, request: Request) -> Response {
    let trouble = *board.trouble.lock();
    match trouble {
        Trouble::Hangs => tokio::time::sleep(FOREVER).await,
        Trouble::Errors => return refuse(500, "Base.1.0.InternalError", "The BMC has an internal error."),
        Trouble::None | Trouble::Lies => {}
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/').to_owned();
    let open = path == "/redfish" || path == "/redfish/v1";
    let allowed = parts
        .headers
        .get(header::AUTHORIZATION)
        .is_some_and(|value| value == BASIC);
    if !open && !allowed {
        return refuse(
            401,
            "Base.1.0.InsufficientPrivilege",
            "Sign in with basic authentication.",
        );
    }
    let body = axum::body::to_bytes(Body::new(body), MAX_BODY)
        .await
        .unwrap_or_default();
    let id = board
        .world
        .read(|state| state.hosts.get(&board.host).map(|host| host.node_uuid));
    let system = format!("/redfish/v1/Systems/{}", id.unwrap_or_default());
    match (parts.method.as_str(), path.as_str()) {
        ("GET", "/redfish") => answer(&json!({"v1": "/redfish/v1/"})),
        ("GET", "/redfish/v1") => answer(&json!({
            "@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "Id": "RootService",
            "Name": "Simulated BMC", "RedfishVersion": "1.5.0", "Systems": {"@odata.id": "/redfish/v1/Systems"},
        })),
        ("GET", "/redfish/v1/Systems") => answer(&json!({
            "@odata.id": "/redfish/v1/Systems", "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
            "Name": "Computer System Collection", "Members@odata.count": 1, "Members": [{"@odata.id": system}],
        })),
        ("GET", at) if at == system => answer(&show(&board, &system)),
        ("POST", at) if at == format!("{system}/Actions/ComputerSystem.Reset") => {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            press(&board, asked["ResetType"].as_str().unwrap_or_default())
        }
        _ => refuse(
            404,
            "Base.1.0.ResourceMissingAtURI",
            "There is nothing at this address.",
        ),
    }
}

fn show(board: &Board, system: &str) -> Value {
    let (power, serial, boot) = board.world.read(|state| {
        let host = state.hosts.get(&board.host);
        (
            host.map_or(Power::Off, |host| host.power),
            host.map_or_else(String::new, |host| host.node_uuid.to_string()),
            host.map(|host| host.boot_id.to_string()),
        )
    });
    let power = board.claimed.lock().unwrap_or(power);
    json!({
        "@odata.id": system, "@odata.type": "#ComputerSystem.v1_1_0.ComputerSystem", "Id": serial, "UUID": serial,
        "Name": board.host, "HostName": board.host, "SerialNumber": serial, "Oem": {"BootId": boot},
        "PowerState": match power {
            Power::On | Power::Booting => "On",
            Power::Off => "Off",
        },
        "Actions": {"#ComputerSystem.Reset": {
            "target": format!("{system}/Actions/ComputerSystem.Reset"),
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"],
        }},
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

fn press(board: &Board, button: &str) -> Response {
    let lies = *board.trouble.lock() == Trouble::Lies;
    let off = board.world.read(|state| {
        state
            .hosts
            .get(&board.host)
            .is_none_or(|host| host.power == Power::Off)
    });
    let host = board.host.as_str();
    if lies {
        let claim = if button == "On" { Power::On } else { Power::Off };
        *board.claimed.lock() = Some(claim);
        return empty();
    }
    let done = match button {
        "On" => board.world.power_on(host),
        "ForceOff" | "GracefulShutdown" if off => {
            return refuse(
                409,
                "Base.1.0.PropertyValueConflict",
                "The system is off already.",
            );
        }
        "ForceOff" | "GracefulShutdown" => board.world.power_off(host),
        "ForceRestart" => board
            .world
            .power_off(host)
            .and_then(|()| board.world.power_on(host)),
        _ => {
            return refuse(
                400,
                "Base.1.0.ActionParameterNotSupported",
                "There is no such ResetType.",
            );
        }
    };
    match done {
        Ok(()) => empty(),
        Err(error) => refuse(500, "Base.1.0.InternalError", &error.to_string()),
    }
}

fn answer(body: &Value) -> Response {
    respond(200, Some(body))
}

fn empty() -> Response {
    respond(204, None)
}

fn refuse(status: u16, code: &str, message: &str) -> Response {
    respond(
        status,
        Some(&json!({"error": {"code": code, "message": message}})),
    )
}

fn respond(status: u16, body: Option<&Value>) -> Response {
    let builder = Response::builder()
        .status(StatusCode::from_u16(status).unwrap_or_default())
        .header("odata-version", "4.0");
    let built = match body {
        Some(body) => builder
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string())),
        None => builder.body(Body::empty()),
    };
    built.unwrap_or_default()
}
