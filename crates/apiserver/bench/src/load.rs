// SPDX-License-Identifier: Apache-2.0
//! Closed loops: each client sends the next request when the last is answered. One sample holds
//! what a loop did, how long each request took, and what the server's processes spent on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::BenchError;
use crate::client::{Connection, Request, Target};
use crate::process;

/// The n-th request of a loop; numbers are never given twice.
pub(crate) type Maker = Arc<dyn Fn(u64) -> Request + Send + Sync>;

/// When a loop ends: after this time or this many requests, whichever comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    pub(crate) time: Duration,
    pub(crate) requests: u64,
}

/// What one loop did.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Duration,
    /// Sorted.
    pub(crate) latencies: Vec<Duration>,
}

impl Sample {
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Microseconds of server CPU per request.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    /// A latency in milliseconds; `part` of all requests were at least as fast.
    pub(crate) fn millis(&self, part: f64) -> f64 {
        quantile(&self.latencies, part)
    }
}

/// A quantile of sorted times, in milliseconds.
pub(crate) fn quantile(sorted: &[Duration], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = ((sorted.len() as f64 * part).ceil() as usize)
        .saturating_sub(1)
        .min(last);
    sorted.get(at).map_or(0.0, |t| t.as_secs_f64() * 1e3)
}

/// Runs `clients` loops beside each other.
pub(crate) async fn run(
    target: &Target,
    clients: usize,
    until: Until,
    make: Maker,
) -> Result<Sample, BenchError> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        let open = Connection::open(target).await;
        connections.push(open.map_err(BenchError::io("connect to", target.address.to_string()))?);
    }
    let next = Arc::new(AtomicU64::new(0));
    let cpu = process::cpu(&target.tasks);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn(one(connection, began, until, next.clone(), make.clone()));
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let times = done.map_err(|e| BenchError::Ended("a client".into(), e.to_string()))??;
        latencies.extend(times);
    }
    let elapsed = began.elapsed();
    latencies.sort_unstable();
    Ok(Sample {
        requests: latencies.len() as u64,
        elapsed,
        cpu: process::cpu(&target.tasks).saturating_sub(cpu),
        latencies,
    })
}

async fn one(
    mut connection: Connection,
    began: Instant,
    until: Until,
    next: Arc<AtomicU64>,
    make: Maker,
) -> Result<Vec<Duration>, BenchError> {
    let mut times = Vec::with_capacity(4_096);
    while began.elapsed() < until.time {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= until.requests {
            break;
        }
        let request = make(number);
        let sent = Instant::now();
        connection.call(&request, false).await?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

/// Sends one request on a connection of its own and keeps the answer.
pub(crate) async fn once(target: &Target, request: &Request) -> Result<Vec<u8>, BenchError> {
    let mut connection = Connection::open(target)
        .await
        .map_err(BenchError::io("connect to", target.address.to_string()))?;
    Ok(connection.call(request, true).await?.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_members_of_the_sample() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 0.5), 50.0);
        assert_eq!(quantile(&times, 0.99), 99.0);
        assert_eq!(quantile(&times, 1.0), 100.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
