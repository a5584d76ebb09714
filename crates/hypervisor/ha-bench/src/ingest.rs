// SPDX-License-Identifier: Apache-2.0
//! Records into the service: how many one core takes, how long an acknowledgement takes under load, and what a record
//! weighs in the database.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::caller::Caller;
use crate::database::{GIB, TWO_WEEKS, starts, weight};
use crate::service::{DEAF, Place, Service, token};
use crate::speaker::{Speaker, encoded};
use crate::{BenchError, Row, at, floor, set_up};

pub(crate) fn names(count: usize) -> Vec<String> {
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
pub(crate) struct Rate {
    of_a_core: f64,
    of_the_clock: f64,
}

/// As fast as it goes, each host on a connection of its own.
pub(crate) async fn flood(
    service: &Service,
    hosts: &[String],
    batch: u64,
    rounds: u64,
) -> Result<Rate, BenchError> {
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
            each * TWO_WEEKS as f64 / GIB,
            "GiB",
        )
        .at_most(6.0, 8.0),
    );
    rows.extend(starts(program, &place, count, empty, quick).await?);
    Ok(rows)
}
