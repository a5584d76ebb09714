// SPDX-License-Identifier: Apache-2.0
//! What the machine allows, measured in the same run: the rows of events written to SQLite without a service around it,
//! and HTTP without anything behind it. Both on a thread of their own, whose processor time the kernel counts.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use cobaltcore_ha_wire::Batch;
use rusqlite::{Connection, params};

use crate::caller::Caller;
use crate::speaker::{Speaker, encoded};
use crate::{BenchError, set_up};

/// Processor time of the calling thread.
fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn joined<T>(thread: std::thread::JoinHandle<Result<T, BenchError>>) -> Result<T, BenchError> {
    thread
        .join()
        .unwrap_or_else(|_| Err(set_up("a baseline")("its thread ended early".into())))
}

/// Rows per second of one core: one table with its key, nothing else, in transactions of two thousand.
pub(crate) fn sqlite(rows: u64) -> Result<f64, BenchError> {
    joined(std::thread::spawn(move || {
        let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
        let mut speaker = Speaker::new("node001", 1)?;
        let batches: Vec<Batch> = (0..rows / 200).map(|_| speaker.records(200)).collect();
        let failed = |error: rusqlite::Error| set_up("a database")(error.into());
        let mut connection = Connection::open(folder.path().join("plain.db")).map_err(failed)?;
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full;
                 create table plain(agent text, seq integer, ts integer, kind text, event text, detail text,
                    domain text, attrs text, primary key(agent, seq)) without rowid;",
            )
            .map_err(failed)?;
        let before = thread_seconds();
        for group in batches.chunks(10) {
            let transaction = connection.transaction().map_err(failed)?;
            {
                let mut insert = transaction
                    .prepare_cached("insert into plain values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
                    .map_err(failed)?;
                for batch in group {
                    for event in &batch.events {
                        let row = params![
                            batch.envelope.agent_id.0,
                            event.seq.cast_signed(),
                            event.ts.as_microsecond(),
                            event.kind.as_str(),
                            event.event,
                            event.detail,
                            event.domain.as_ref().map(|domain| domain.uuid.as_str()),
                            "{}",
                        ];
                        insert.execute(row).map_err(failed)?;
                    }
                }
            }
            transaction.commit().map_err(failed)?;
        }
        Ok(rows as f64 / (thread_seconds() - before))
    }))
}

/// Requests per second of one core that a server answers which reads the body and says nothing.
pub(crate) async fn echo(body: Vec<u8>, time: Duration) -> Result<f64, BenchError> {
    let socket =
        std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| set_up("a port")(error.into()))?;
    socket
        .set_nonblocking(true)
        .map_err(|error| set_up("a port")(error.into()))?;
    let address = socket
        .local_addr()
        .map_err(|error| set_up("a port")(error.into()))?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| set_up("a thread")(error.into()))?;
        runtime.block_on(async move {
            let socket =
                tokio::net::TcpListener::from_std(socket).map_err(|error| set_up("a port")(error.into()))?;
            let router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
            let before = thread_seconds();
            tokio::select! {
                served = async { axum::serve(socket, router).await } => {
                    served.map_err(|error| set_up("an echo")(error.into()))?;
                }
                _ = stopped => {}
            }
            Ok(thread_seconds() - before)
        })
    });
    let callers = (0..8).map(|_| {
        let body = Bytes::from(body.clone());
        async move {
            let mut caller = Caller::new(address, "");
            let (began, mut count) = (Instant::now(), 0_u64);
            while began.elapsed() < time {
                let answer = caller.post("/", body.clone()).await;
                answer.map_err(|error| set_up("an echo")(error))?;
                count += 1;
            }
            Ok::<_, BenchError>(count)
        }
    });
    let counts = futures::future::try_join_all(callers).await?;
    let _ = stop.send(());
    let used = joined(server)?;
    Ok(counts.iter().sum::<u64>() as f64 / used)
}

/// The cost of an echo of this report, in seconds of a core.
pub(crate) async fn echo_of(batch: &Batch, time: Duration) -> Result<f64, BenchError> {
    Ok(1.0 / echo(encoded(batch)?, time).await?)
}
