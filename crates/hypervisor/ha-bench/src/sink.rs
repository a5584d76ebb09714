// SPDX-License-Identifier: Apache-2.0
//! A service that takes everything and remembers when it came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use cobaltcore_ha_wire::{Admission, Batch, BatchAnswer, CommandList, Kind, Packing, Problem, bounds, path};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{BenchError, set_up};

/// What came.
#[derive(Default)]
pub(crate) struct Came {
    pub(crate) last: u64,
    pub(crate) watchdogs: Vec<Instant>,
    pub(crate) heartbeats: u64,
    pub(crate) guests: usize,
}

/// The service; ends with this value.
pub(crate) struct Sink {
    pub(crate) came: Arc<Mutex<Came>>,
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sink {
    pub(crate) async fn start() -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| set_up("a listener")(error.into());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let came = Arc::new(Mutex::new(Came::default()));
        let router = Router::new()
            .route(path::BATCHES, post(take))
            .route(path::COMMANDS, get(commands))
            .with_state(Arc::clone(&came));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { came, address, task })
    }
}

async fn commands() -> Response {
    tokio::time::sleep(Duration::from_secs(20)).await;
    axum::Json(CommandList::default()).into_response()
}

async fn take(State(came): State<Arc<Mutex<Came>>>, headers: HeaderMap, raw: Bytes) -> Response {
    let now = Instant::now();
    let packing = headers
        .get("content-encoding")
        .and_then(|value| Packing::named(value.to_str().ok()?));
    let plain = match packing {
        None => raw.to_vec(),
        Some(packing) => match packing.unpack(&raw, bounds::BODY) {
            Ok(plain) => plain,
            Err(_) => return StatusCode::BAD_REQUEST.into_response(),
        },
    };
    let Ok(batch) = Batch::decode(&plain) else {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    };
    let mut came = came.lock();
    came.heartbeats += u64::from(batch.heartbeat.is_some());
    if let Some(inventory) = &batch.inventory {
        came.guests = inventory.domains.len();
    }
    match batch.admit(came.last) {
        Admission::Expected(seq) => {
            (StatusCode::CONFLICT, axum::Json(Problem::expected(seq))).into_response()
        }
        Admission::Take { skip, last } => {
            let fresh = batch.events.get(skip..).unwrap_or_default();
            let count = fresh.iter().filter(|event| event.kind == Kind::Watchdog).count();
            came.watchdogs.extend(std::iter::repeat_n(now, count));
            came.last = last;
            let answer = BatchAnswer {
                acked_seq: last,
                server_time: jiff::Timestamp::now(),
                hold: false,
                commands: Vec::new(),
                peers: Vec::new(),
            };
            axum::Json(answer).into_response()
        }
    }
}
