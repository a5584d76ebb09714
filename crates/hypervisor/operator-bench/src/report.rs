// SPDX-License-Identifier: Apache-2.0
//! The figures, for programs and for people.

use serde::Serialize;

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One entry per size.
    pub fleets: Vec<Fleet>,
    /// The drain, if it was asked for.
    pub drain: Option<Drain>,
}

/// A fleet from nothing to rest.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// How many.
    pub hypervisors: usize,
    /// From the operator's start to the last active one.
    pub seconds_to_active: f64,
    /// As many bare writes to the same API, and nothing else.
    pub seconds_of_raw_writes: f64,
    /// Objects stored per host.
    pub writes_per_host: f64,
    /// Calls to the cloud per host.
    pub cloud_calls_per_host: f64,
    /// Processor time until all were active.
    pub busy_cpu_seconds: f64,
    /// Processor time of the API and the cloud for it.
    pub served_cpu_seconds: f64,
    /// Memory at rest.
    pub resident_mib: f64,
    /// How long rest was watched.
    pub idle_seconds: u64,
    /// Objects stored at rest.
    pub idle_writes: usize,
    /// Calls to the cloud at rest.
    pub idle_cloud_calls: u64,
    /// Lists of aggregates among them.
    pub idle_aggregate_lists: u64,
    /// Processor time at rest.
    pub idle_cpu_percent: f64,
}

/// A host emptied.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// Servers moved.
    pub servers: usize,
    /// At the same time.
    pub parallel: usize,
    /// From the request to the empty host.
    pub seconds: f64,
    /// How long one move took in the cloud.
    pub seconds_per_move: f64,
    /// What the moves alone take.
    pub seconds_of_moves: f64,
    /// Migrations that ended well; as many as servers, or a server was moved twice.
    pub migrations: usize,
    /// Calls to the cloud per server moved, those of the whole operator counted.
    pub cloud_calls_per_server: f64,
}

impl Report {
    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "hypervisors   to active   x raw writes   writes/host   cloud calls/host   CPU s (ms/host)   served s (ms/host)   MiB   idle: writes   calls   aggregate lists   CPU %\n",
        );
        for fleet in &self.fleets {
            text += &format!(
                "{:<11}   {:>7.1} s   {:>12.1}   {:>11.1}   {:>16.1}   {:>5.1} ({:>7.1})   {:>8.1} ({:>7.1})   {:>3.0}   {:>12}   {:>5}   {:>15}   {:>5.2}\n",
                fleet.hypervisors,
                fleet.seconds_to_active,
                ratio(fleet.seconds_to_active, fleet.seconds_of_raw_writes),
                fleet.writes_per_host,
                fleet.cloud_calls_per_host,
                fleet.busy_cpu_seconds,
                per_host(fleet.busy_cpu_seconds, fleet.hypervisors),
                fleet.served_cpu_seconds,
                per_host(fleet.served_cpu_seconds, fleet.hypervisors),
                fleet.resident_mib,
                fleet.idle_writes,
                fleet.idle_cloud_calls,
                fleet.idle_aggregate_lists,
                fleet.idle_cpu_percent,
            );
        }
        if let Some(drain) = &self.drain {
            text += &format!(
                "\ndrain of {} servers, {} at a time: {:.1} s, {:.2} times the moves alone ({:.0} s, {:.1} s each); the goal is 110 s\n\
                 {} migrations, {:.1} calls to the cloud per server\n",
                drain.servers,
                drain.parallel,
                drain.seconds,
                ratio(drain.seconds, drain.seconds_of_moves),
                drain.seconds_of_moves,
                drain.seconds_per_move,
                drain.migrations,
                drain.cloud_calls_per_server,
            );
        }
        text
    }
}

/// Milliseconds of each host.
fn per_host(seconds: f64, hosts: usize) -> f64 {
    ratio(seconds * 1_000.0, hosts as f64)
}

fn ratio(one: f64, other: f64) -> f64 {
    if other > 0.0 { one / other } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_text() {
        let report = Report {
            fleets: vec![Fleet {
                hypervisors: 10,
                seconds_to_active: 8.0,
                seconds_of_raw_writes: 2.0,
                writes_per_host: 12.0,
                cloud_calls_per_host: 9.5,
                busy_cpu_seconds: 1.0,
                served_cpu_seconds: 2.0,
                resident_mib: 20.0,
                idle_seconds: 10,
                idle_writes: 0,
                idle_cloud_calls: 0,
                idle_aggregate_lists: 0,
                idle_cpu_percent: 0.1,
            }],
            drain: Some(Drain {
                servers: 40,
                parallel: 4,
                seconds: 100.0,
                seconds_per_move: 8.0,
                seconds_of_moves: 80.0,
                migrations: 40,
                cloud_calls_per_server: 4.5,
            }),
        };
        let text = report.to_text();
        assert!(text.contains("8.0 s            4.0"), "{text}");
        assert!(text.contains("1.0 (  100.0)        2.0 (  200.0)"), "{text}");
        assert!(
            text.contains("100.0 s, 1.25 times the moves alone (80 s, 8.0 s each)"),
            "{text}"
        );
    }
}
