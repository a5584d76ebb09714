// SPDX-License-Identifier: Apache-2.0
//! Records into the service: how many one core takes, how long an acknowledgement takes under load, what a record
//! weighs in the database, and how soon a service with a large database is ready.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::caller::Caller;
use crate::service::{DEAF, Place, Service, token};
use crate::speaker::{Speaker, encoded};
use crate::{BenchError, Row, at, floor, set_up};

/// Two weeks at fifty records a second.
const TWO_WEEKS: f64 = 14.0 * 86_400.0 * 50.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("node{n:04}")).collect()
}

struct Sender {
    speaker: Speaker,
    caller: Caller,
}

impl Sender {
    fn new(service: &Service, host: &str, number: usize) -> Result<Self, BenchError> {
        Ok(Self {
            speaker: Speaker::new(host, number)?,
            caller: Caller::new(service.address, token(host)),
        })
    }

    async fn send(&mut self, count: u64) -> Result<(), BenchError> {
        let body = encoded(&self.speaker.records(count))?;
        let answer = self.caller.post(&self.speaker.path(), body).await;
        match answer.map_err(|error| set_up("a report")(error))? {
            (200, _) => Ok(()),
            (status, body) => Err(set_up("a report")(
                format!("{status} {}", String::from_utf8_lossy(&body)).into(),
            )),
        }
    }
}

/// Records per second: of one core, and of the clock.
struct Rate {
    of_a_core: f64,
    of_the_clock: f64,
}

/// As fast as it goes, each host on a connection of its own.
async fn flood(service: &Service, hosts: &[String], batch: u64, rounds: u64) -> Result<Rate, BenchError> {
    let (began, cpu) = (Instant::now(), service.role.cpu_seconds());
    let all = hosts.iter().enumerate().map(|(number, host)| async move {
        let mut sender = Sender::new(service, host, number)?;
        for _ in 0..rounds {
            sender.send(batch).await?;
        }
        Ok::<_, BenchError>(())
    });
    futures::future::try_join_all(all).await?;
    let records = (hosts.len() as u64 * rounds * batch) as f64;
    Ok(Rate {
        of_a_core: records / (service.role.cpu_seconds() - cpu).max(0.01),
        of_the_clock: records / began.elapsed().as_secs_f64(),
    })
}

/// From the moment a report was due to its acknowledgement, at five thousand records a second, in milliseconds.
async fn paced(
    service: &Service,
    hosts: &[String],
    batch: u64,
    time: Duration,
) -> Result<Vec<f64>, BenchError> {
    let pause = Duration::from_secs_f64(batch as f64 * hosts.len() as f64 / 5000.0);
    let all = hosts.iter().enumerate().map(|(number, host)| async move {
        // Spools of their own, so that their numbers begin at one.
        let mut sender = Sender::new(service, host, 10_000 * batch as usize + number)?;
        let first = tokio::time::Instant::now() + pause.mul_f64(number as f64 / hosts.len() as f64);
        let mut ticks = tokio::time::interval_at(first, pause);
        let (end, mut times) = (first + time, Vec::new());
        loop {
            let due = ticks.tick().await;
            if due > end {
                return Ok::<_, BenchError>(times);
            }
            sender.send(batch).await?;
            times.push(due.elapsed().as_secs_f64() * 1000.0);
        }
    });
    let mut times = futures::future::try_join_all(all).await?.concat();
    times.sort_by(f64::total_cmp);
    Ok(times)
}

pub(crate) async fn measure(program: &Path, quick: bool) -> Result<Vec<Row>, BenchError> {
    let seconds = |full: u64| Duration::from_secs(if quick { 1 } else { full });
    let hosts = names(if quick { 20 } else { 1000 });
    let some = |count: usize| hosts.get(..count.min(hosts.len())).unwrap_or_default();
    let mut rows = Vec::new();

    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let place = Place::new(folder.path(), &hosts, DEAF, None)?;
    let (service, _) = place.start_ready(program).await?;
    let large = flood(&service, some(8), 200, if quick { 5 } else { 300 }).await?;
    let plain = floor::sqlite(if quick { 2000 } else { 200_000 })?;
    let mut speaker = Speaker::new("node0001", 1)?;
    let echo = 1.0 / floor::echo_of(&speaker.records(200), seconds(3)).await?;
    rows.push(
        Row::new(
            "ingest: batches of 200 through HTTP into SQLite",
            large.of_a_core,
            "events/s/core",
        )
        .at_least(50_000.0, 30_000.0)
        .beside("plain SQLite inserts", plain)
        .beside("plain HTTP echo", echo * 200.0),
    );
    rows.push(Row::new(
        "ingest: the same by the clock",
        large.of_the_clock,
        "events/s",
    ));
    let fast = some(if quick { 5 } else { 25 });
    let times = paced(&service, fast, 200, seconds(12)).await?;
    rows.push(
        Row::new(
            "ingest: acknowledgement at 5,000 events/s in batches of 200, 99 %",
            at(&times, 0.99),
            "ms",
        )
        .at_most(50.0, 100.0)
        .beside("median", at(&times, 0.5)),
    );
    let times = paced(&service, some(if quick { 5 } else { 200 }), 5, seconds(12)).await?;
    rows.push(
        Row::new(
            "ingest: acknowledgement at 5,000 events/s in batches of 5, 99 %",
            at(&times, 0.99),
            "ms",
        )
        .at_most(50.0, 100.0)
        .beside("median", at(&times, 0.5)),
    );
    service.role.kill().await;

    // Many hosts that have little to say each: how the database of a fleet grows.
    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let place = Place::new(folder.path(), &hosts, DEAF, None)?;
    let (service, empty) = place.start_ready(program).await?;
    let (_, bare) = weight(&place.database())?;
    let small = flood(&service, &hosts, 5, if quick { 20 } else { 60 }).await?;
    rows.push(Row::new(
        "ingest: batches of 5 of every host",
        small.of_a_core,
        "events/s/core",
    ));
    service.role.kill().await;
    let (count, bytes) = weight(&place.database())?;
    let each = bytes.saturating_sub(bare) as f64 / count.max(1) as f64;
    rows.push(Row::new(
        "database: bytes per event, indexes included",
        each,
        "bytes",
    ));
    rows.push(
        Row::new(
            "database: after 14 days at 50 events/s",
            each * TWO_WEEKS / GIB,
            "GiB",
        )
        .at_most(6.0, 8.0),
    );
    rows.extend(starts(program, &place, count, empty, quick).await?);
    Ok(rows)
}

/// Events in a database, and the bytes of it that are used.
fn weight(path: &Path) -> Result<(u64, u64), BenchError> {
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
async fn starts(
    program: &Path,
    place: &Place,
    count: u64,
    empty: Duration,
    quick: bool,
) -> Result<Vec<Row>, BenchError> {
    let mut growth = vec![(0, empty.as_secs_f64())];
    let mut have = count;
    for times in [1, 4, 4] {
        have = grow(&place.database(), have, if quick { 1 } else { times })?;
        let (service, took) = place.start_ready(program).await?;
        growth.push((have as usize, took.as_secs_f64()));
        service.role.kill().await;
    }
    let last = growth.last().copied().unwrap_or_default();
    let row = Row::new(
        format!("start to ready with {} events in the database", last.0),
        last.1,
        "s",
    );
    Ok(vec![row.at_most(3.0, 10.0).grown("events", growth)])
}

/// Makes a database hold `times` as many events, numbered on.
fn grow(path: &Path, have: u64, times: u64) -> Result<u64, BenchError> {
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
        "insert into events({}) select {} from events where seq <= {highest}",
        columns.join(", "),
        source.join(", ")
    );
    for round in 1..times {
        connection.execute(&sql, [round.cast_signed()]).map_err(failed)?;
    }
    Ok(have * times)
}
