// SPDX-License-Identifier: Apache-2.0
//! What grows with the number of objects: lists, memory, the data on disk, the time to start.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Connection, Request, Target};
use crate::kinds::{self, JSON, NAMESPACE};
use crate::load::{self, Until, once};
use crate::process::{self, Ours};
use crate::report::{Report, Row};
use crate::{BenchError, Scale};

/// How long a server rests before its memory is read.
const REST: Duration = Duration::from_millis(500);
/// The size at which selected and limited lists are measured.
const SELECTED_AT: usize = 10_000;
/// No fill takes longer than this.
const FILL: Duration = Duration::from_mins(10);

/// Start times over empty data, and the memory of a server nobody has used.
pub(crate) async fn start_and_idle(
    program: &Path,
    home: &Path,
    scale: Scale,
    ours: &mut Ours,
) -> Result<Vec<Row>, BenchError> {
    let mut times = vec![(ours.first_answer, ours.ready)];
    tokio::time::sleep(REST).await;
    let idle = process::memory(&ours.target().tasks);
    for round in 1..scale.repeats {
        let dir = home.join(format!("start-{round}"));
        let other = Ours::start(program, &dir).await?;
        times.push((other.first_answer, other.ready));
        other.stop().await?;
        let _ = std::fs::remove_dir_all(&dir);
    }
    let first: Vec<f64> = times.iter().map(|t| millis(t.0)).collect();
    let ready: Vec<f64> = times.iter().map(|t| millis(t.1)).collect();
    Ok(vec![
        Row::new("start", "start, empty data, to first answer")
            .figure("time", &first)
            .figure("ready", &ready),
        Row::new("memory-idle", "memory, idle").figure("memory", &[idle]),
    ])
}

/// Fills a server of its own step by step and measures at every size.
pub(crate) async fn growth(
    program: &Path,
    dir: &Path,
    scale: Scale,
    say: fn(&str),
    report: &mut Report,
) -> Result<(), BenchError> {
    let ours = Ours::start(program, dir).await?;
    let target = ours.target();
    once(target, &kinds::namespace(NAMESPACE)).await?;
    let empty = process::memory(&target.tasks);
    let mut there = 0;
    for size in scale.sizes.iter().copied() {
        say(&format!("size: {size} objects"));
        fill(target, there, size).await?;
        there = size;
        tokio::time::sleep(REST).await;
        let memory = process::memory(&target.tasks);
        let each = (memory - empty).max(0.0) * f64::from(1 << 20) / size as f64;
        report.extend([
            Row::new(format!("memory-{size}"), format!("memory, {size} objects"))
                .figure("memory", &[memory])
                .figure("object", &[each]),
        ]);
        let path = kinds::configmaps(NAMESPACE);
        report.extend([list(
            target,
            &format!("list-{size}"),
            &format!("list {size}"),
            &path,
            scale,
        )
        .await?]);
        if size == SELECTED_AT || scale.sizes.last() == Some(&size) && size < SELECTED_AT {
            let selected = format!("{path}?labelSelector=bucket%3Db1");
            let title = format!("list, label selector, {} of {size}", size / 10);
            report.extend([list(target, "list-selector", &title, &selected, scale).await?]);
            let limited = format!("{path}?limit=500");
            report.extend([list(
                target,
                "list-limit",
                &format!("list limit=500 of {size}"),
                &limited,
                scale,
            )
            .await?]);
        }
    }
    let disk = ours.bytes_on_disk() as f64 / 1e6;
    report.extend([
        Row::new(format!("disk-{there}"), format!("data on disk, {there} objects")).figure("disk", &[disk]),
    ]);
    say(&format!("start with {there} objects"));
    ours.stop().await?;
    let again = Ours::start(program, dir).await?;
    tokio::time::sleep(REST).await;
    report.extend([
        Row::new(
            format!("start-{there}"),
            format!("start, {there} objects, to first answer"),
        )
        .figure("time", &[millis(again.first_answer)])
        .figure("ready", &[millis(again.ready)]),
        Row::new(
            format!("memory-{there}-again"),
            format!("memory, {there} objects, after a start"),
        )
        .figure("memory", &[process::memory(&again.target().tasks)]),
    ]);
    again.stop().await
}

async fn fill(target: &Target, from: usize, to: usize) -> Result<(), BenchError> {
    let until = Until {
        time: FILL,
        requests: (to - from) as u64,
    };
    let make: load::Maker = Arc::new(move |n| {
        let body = kinds::configmap(NAMESPACE, from as u64 + n, 0);
        Request::new("POST", kinds::configmaps(NAMESPACE), 201).with(JSON, body)
    });
    load::run(target, 8, until, make).await?;
    Ok(())
}

async fn list(target: &Target, id: &str, title: &str, path: &str, scale: Scale) -> Result<Row, BenchError> {
    let mut connection = Connection::open(target)
        .await
        .map_err(BenchError::io("connect to", target.address.to_string()))?;
    let request = Request::get(path);
    let mut bytes = connection.call(&request, false).await?.length;
    let mut times = Vec::new();
    let cpu = process::cpu(&target.tasks);
    for _ in 0..scale.repeats {
        let began = Instant::now();
        bytes = connection.call(&request, false).await?.length;
        times.push(millis(began.elapsed()));
    }
    let cpu = process::cpu(&target.tasks).saturating_sub(cpu);
    Ok(Row::new(id, title)
        .figure("time", &times)
        .figure("cpu-ms", &[millis(cpu) / scale.repeats.max(1) as f64])
        .figure("size", &[bytes as f64 / 1e6]))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
