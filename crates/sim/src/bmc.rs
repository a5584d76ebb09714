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
use http::{HeaderValue, StatusCode, header};
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
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TASK: &str = "/redfish/v1/TaskService/Tasks/1/Monitor";
/// A call that is never answered is held this long; every caller has given up by then.
const FOREVER: Duration = Duration::from_secs(3_600);

/// What is wrong with a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// It closes every connection without a word.
    Drops,
    /// It answers this much later.
    Slow(Duration),
    /// Its cable leads to another machine: it shows and switches that one.
    WiredTo(HostName),
    /// It has no name for the machine behind it.
    Nameless,
    /// It says that this is the power, in words of its own.
    Says(String),
    /// It takes commands as tasks and carries them out when the task is looked at for the second time.
    Tasks,
    /// It takes commands as tasks, and every task fails.
    FailsTasks,
    /// It wants to hear which state of the system is meant, and refuses otherwise.
    WantsTag,
    /// It cannot switch off at once.
    NoForceOff,
    /// It names what it offers in a document of its own.
    ActionInfo,
    /// It names a path on another machine as the button.
    TargetElsewhere,
}

struct Board {
    world: World,
    host: HostName,
    trouble: Mutex<Trouble>,
    /// What it says while it lies.
    claimed: Mutex<Option<Power>>,
    /// The button of the task that is under way, and how often it was looked at.
    task: Mutex<Option<(String, u32)>>,
    /// The tokens of people who are signed in.
    sessions: Mutex<Vec<String>>,
}

impl Board {
    /// The host whose machine is at the other end of the cable.
    fn machine(&self) -> HostName {
        match &*self.trouble.lock() {
            Trouble::WiredTo(other) => other.clone(),
            _ => self.host.clone(),
        }
    }
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
                task: Mutex::default(),
                sessions: Mutex::default(),
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

    /// Signs everybody out of a host's BMC.
    pub fn end_sessions(&self, host: &str) {
        if let Some((_, board, _)) = self.boards.get(host) {
            board.sessions.lock().clear();
        }
    }

    /// How many are signed in at a host's BMC.
    pub fn sessions(&self, host: &str) -> usize {
        self.boards
            .get(host)
            .map_or(0, |(_, board, _)| board.sessions.lock().len())
    }

    /// Breaks a host's BMC, or mends it.
    pub fn set(&self, host: &str, trouble: Trouble) {
        if let Some((_, board, _)) = self.boards.get(host) {
            *board.trouble.lock() = trouble;
            *board.claimed.lock() = None;
            *board.task.lock() = None;
        }
    }
}

/// Ends the connection before an answer: a body that fails is what the server cannot send.
fn drop_connection() -> Response {
    let broken =
        futures::stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("the BMC hangs up")) });
    Response::builder()
        .header(header::CONTENT_LENGTH, "1000")
        .body(Body::from_stream(broken))
        .unwrap_or_default()
}

async fn serve(State(board): State<Arc<Board>>, request: Request) -> Response {
    let trouble = board.trouble.lock().clone();
    match trouble {
        Trouble::Hangs => tokio::time::sleep(FOREVER).await,
        Trouble::Slow(span) => tokio::time::sleep(span).await,
        Trouble::Errors => return refuse(500, "Base.1.0.InternalError", "The BMC has an internal error."),
        Trouble::Drops => return drop_connection(),
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/').to_owned();
    let open = path == "/redfish" || path == "/redfish/v1";
    let allowed = parts
        .headers
        .get(header::AUTHORIZATION)
        .is_some_and(|value| value == BASIC);
    let token = parts
        .headers
        .get("x-auth-token")
        .and_then(|value| value.to_str().ok());
    let signed_in = token.is_some_and(|token| board.sessions.lock().iter().any(|known| known == token));
    let signs_in = parts.method == "POST" && path == SESSIONS;
    if !open && !allowed && !signed_in && !signs_in {
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
        ("GET", at) if at == system => {
            let mut shown = answer(&show(&board, &system));
            shown
                .headers_mut()
                .insert(header::ETAG, HeaderValue::from_static(TAG));
            shown
        }
        ("GET", at) if at == format!("{system}/ResetActionInfo") => answer(&json!({
            "Parameters": [{"Name": "ResetType", "Required": true, "AllowableValues": ["On", "ForceOff"]}],
        })),
        ("POST", at) if at == format!("{system}/Actions/ComputerSystem.Reset") => {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            let tag = parts.headers.get(header::IF_MATCH);
            if trouble == Trouble::WantsTag && tag.is_none_or(|tag| tag != TAG) {
                return refuse(428, "Base.1.0.PreconditionRequired", "Say which state is meant.");
            }
            let answer = press(&board, asked["ResetType"].as_str().unwrap_or_default());
            // Guests start elsewhere because a host was turned off: a crash must not undo it.
            if answer.status().is_success() && !board.world.durable().await {
                return refuse(500, "Base.1.0.InternalError", "The change could not be kept.");
            }
            answer
        }
        ("POST", SESSIONS) => sign_in(&board, &serde_json::from_slice(&body).unwrap_or_default()),
        ("GET", TASK) => look_at_task(&board),
        _ => refuse(
            404,
            "Base.1.0.ResourceMissingAtURI",
            "There is nothing at this address.",
        ),
    }
}

/// The tag of every system: nothing here is changed by its tag.
const TAG: &str = "W/\"1\"";

fn sign_in(board: &Board, asked: &Value) -> Response {
    if asked["UserName"] != USER || asked["Password"] != PASSWORD {
        return refuse(401, "Base.1.0.InsufficientPrivilege", "Wrong user or password.");
    }
    let mut sessions = board.sessions.lock();
    let token = format!("session-{}", sessions.len() + 1);
    sessions.push(token.clone());
    let mut made = respond(
        201,
        Some(&json!({"@odata.id": format!("{SESSIONS}/{}", sessions.len())})),
    );
    if let Ok(token) = HeaderValue::from_str(&token) {
        made.headers_mut().insert("x-auth-token", token);
    }
    made
}

fn look_at_task(board: &Board) -> Response {
    if *board.trouble.lock() == Trouble::FailsTasks {
        return answer(
            &json!({"TaskState": "Exception", "Messages": [{"Message": "The fan is in the way."}]}),
        );
    }
    let button = {
        let mut task = board.task.lock();
        let Some((button, looks)) = task.as_mut() else {
            return answer(&json!({"TaskState": "Completed"}));
        };
        *looks += 1;
        if *looks < 2 {
            return respond(202, Some(&json!({"TaskState": "Running"})));
        }
        let button = button.clone();
        *task = None;
        button
    };
    carry_out(board, &button);
    answer(&json!({"TaskState": "Completed"}))
}

fn show(board: &Board, system: &str) -> Value {
    let machine = board.machine();
    let (power, serial, boot) = board.world.read(|state| {
        let host = state.hosts.get(&machine);
        (
            host.map_or(Power::Off, |host| host.power),
            host.map_or_else(String::new, |host| host.node_uuid.to_string()),
            host.map(|host| host.boot_id.to_string()),
        )
    });
    let trouble = board.trouble.lock().clone();
    let power = board.claimed.lock().unwrap_or(power);
    let state = match (&trouble, power) {
        (Trouble::Says(words), _) => words.as_str(),
        (_, Power::On | Power::Booting) => "On",
        (_, Power::Off) => "Off",
    };
    let known = trouble != Trouble::Nameless;
    let target = format!("{system}/Actions/ComputerSystem.Reset");
    let reset = match trouble {
        Trouble::ActionInfo => {
            json!({"target": target, "@Redfish.ActionInfo": format!("{system}/ResetActionInfo")})
        }
        Trouble::NoForceOff => {
            json!({"target": target, "ResetType@Redfish.AllowableValues": ["On", "GracefulShutdown", "ForceRestart"]})
        }
        Trouble::TargetElsewhere => json!({"target": "//collector.example/redfish"}),
        _ => json!({
            "target": target,
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"],
        }),
    };
    json!({
        "@odata.id": system, "@odata.type": "#ComputerSystem.v1_1_0.ComputerSystem", "Id": serial,
        "UUID": known.then_some(&serial), "SerialNumber": known.then_some(&serial),
        "Name": board.host, "HostName": board.host, "Oem": {"BootId": boot}, "PowerState": state,
        "Actions": {"#ComputerSystem.Reset": reset},
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

fn press(board: &Board, button: &str) -> Response {
    let trouble = board.trouble.lock().clone();
    match trouble {
        Trouble::Lies => {
            let claim = if button == "On" { Power::On } else { Power::Off };
            *board.claimed.lock() = Some(claim);
            empty()
        }
        Trouble::Tasks | Trouble::FailsTasks => {
            *board.task.lock() = Some((button.to_owned(), 0));
            let mut taken = respond(202, Some(&json!({"TaskState": "New"})));
            taken
                .headers_mut()
                .insert(header::LOCATION, HeaderValue::from_static(TASK));
            taken
        }
        _ => carry_out(board, button),
    }
}

fn carry_out(board: &Board, button: &str) -> Response {
    let machine = board.machine();
    let off = board.world.read(|state| {
        state
            .hosts
            .get(&machine)
            .is_none_or(|host| host.power == Power::Off)
    });
    let host = machine.as_str();
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
