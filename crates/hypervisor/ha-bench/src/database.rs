// SPDX-License-Identifier: Apache-2.0
//! The telemetry database as it grows: what an event weighs in it, and how soon a service that has many is ready. A full
//! one holds what a fleet tells in two weeks; filling it takes minutes and gigabytes, so it is measured when asked for.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::ingest::{flood, names};
use crate::service::{DEAF, Place};
use crate::{BenchError, Row, set_up};

/// Two weeks at fifty records a second.
pub(crate) const TWO_WEEKS: u64 = 14 * 86_400 * 50;
pub(crate) const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Events in a database, and the bytes of it that are used.
pub(crate) fn weight(path: &Path) -> Result<(u64, u64), BenchError> {
    let failed = |error: rusqlite::Error| set_up("the database")(error.into());
    let connection = Connection::open(path).map_err(failed)?;
    connection
        .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
        .map_err(failed)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let count = number("select count(*) from events").map_err(failed)?;
    let pages =
        number("pragma page_count").map_err(failed)? - number("pragma freelist_count").map_err(failed)?;
    let bytes = pages * number("pragma page_size").map_err(failed)?;
    Ok((count.cast_unsigned(), bytes.cast_unsigned()))
}

/// From start to ready, with an empty database and with ever more events in it.
pub(crate) async fn starts(
    program: &Path,
    place: &Place,
    count: u64,
    empty: Duration,
    quick: bool,
) -> Result<Vec<Row>, BenchError> {
    let mut growth = vec![(0, empty.as_secs_f64())];
    let mut have = count;
    for times in [1, 4, 4] {
        have = grow(&place.database(), have, have * if quick { 1 } else { times })?;
        let (service, took) = place.start_ready(program).await?;
        growth.push((have as usize, took.as_secs_f64()));
        service.role.kill().await;
    }
    let last = growth.last().copied().unwrap_or_default();
    Ok(vec![ready(last.0, last.1).grown("events", growth)])
}

/// A database with all that a fleet tells before the oldest of it is forgotten: its size, and how soon a service with it is
/// ready.
pub(crate) async fn full(program: &Path, quick: bool, progress: fn(&str)) -> Result<Vec<Row>, BenchError> {
    let hosts = names(if quick { 20 } else { 1000 });
    let wanted = if quick { 10_000 } else { TWO_WEEKS };
    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let place = Place::new(folder.path(), &hosts, DEAF, None)?;
    let (service, _) = place.start_ready(program).await?;
    flood(&service, &hosts, 5, if quick { 20 } else { 60 }).await?;
    service.role.kill().await;
    let (mut have, _) = weight(&place.database())?;
    while have < wanted {
        have = grow(&place.database(), have, wanted.min(10 * have))?;
        progress(&format!("{have} of {wanted} events are in the database"));
    }
    let (count, bytes) = weight(&place.database())?;
    let (service, took) = place.start_ready(program).await?;
    service.role.kill().await;
    let size = Row::new(
        format!("full database: {count} events of {} hosts", hosts.len()),
        bytes as f64 / GIB,
        "GiB",
    );
    Ok(vec![
        size.at_most(6.0, 8.0),
        ready(count as usize, took.as_secs_f64()),
    ])
}

fn ready(events: usize, seconds: f64) -> Row {
    Row::new(
        format!("start to ready with {events} events in the database"),
        seconds,
        "s",
    )
    .at_most(3.0, 10.0)
}

/// Makes a database hold `wanted` events: those it has again and again, numbered on. Gives back how many there are.
fn grow(path: &Path, have: u64, wanted: u64) -> Result<u64, BenchError> {
    let failed = |error: rusqlite::Error| set_up("a large database")(error.into());
    let connection = Connection::open(path).map_err(failed)?;
    let columns: Vec<String> = connection
        .prepare("select name from pragma_table_info('events')")
        .and_then(|mut query| query.query_map([], |row| row.get(0))?.collect())
        .map_err(failed)?;
    let highest: i64 = connection
        .query_row("select max(seq) from events", [], |row| row.get(0))
        .map_err(failed)?;
    let source: Vec<String> = columns
        .iter()
        .map(|column| match column.as_str() {
            // The same rows again under numbers that are free.
            "seq" => format!("seq + ?1 * {highest}"),
            "id" => "null".to_owned(),
            other => other.to_owned(),
        })
        .collect();
    let sql = format!(
        "insert into events({}) select {} from events where seq <= {highest} limit ?2",
        columns.join(", "),
        source.join(", ")
    );
    let mut count = have;
    for round in 1_i64.. {
        let most = have.min(wanted.saturating_sub(count)).cast_signed();
        if most == 0 {
            break;
        }
        count += connection.execute(&sql, [round, most]).map_err(failed)? as u64;
    }
    Ok(count)
}
