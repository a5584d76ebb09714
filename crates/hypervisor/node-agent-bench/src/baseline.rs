// SPDX-License-Identifier: Apache-2.0
//! What there is to compare with on this machine, now: how fast a bare status write becomes visible, and what the usual
//! way of reading everything in every pass costs against the same host.

use std::time::{Duration, Instant};

use cobaltcore_libvirt::client::{Connection, Options};
use cobaltcore_libvirt::procedure::flags;
use futures::StreamExt as _;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};

use crate::BenchError;
use crate::agent::{NODE, World};
use crate::host::FarHost;
use crate::report::{Row, percentile};

/// Passes a minute of an agent that reads everything on two timers.
const PASSES: f64 = 2.0;

/// Milliseconds from sending a write to seeing it in a watch, sorted.
#[derive(Debug, Clone)]
pub(crate) struct Visible(pub(crate) Vec<f64>);

/// One pass over a host that reads everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) guests: u32,
    pub(crate) calls_per_minute: f64,
    /// Milliseconds.
    pub(crate) pass: f64,
}

/// Writes a field again and again and waits until a watch has seen each.
pub(crate) async fn visible_write(count: u32) -> Result<Visible, BenchError> {
    let world = World::new().await?;
    let api = world.hypervisors();
    let object = api
        .get(NODE)
        .await
        .map_err(BenchError::api("reading the Hypervisor"))?;
    let version = object.metadata.resource_version.unwrap_or_default();
    let watch = api.watch(&WatchParams::default(), &version).await;
    let mut events = watch.map_err(BenchError::api("watching the Hypervisor"))?.boxed();
    let params = PatchParams::apply("bench").force();
    let mut took = Vec::new();
    for number in 1..=i64::from(count) {
        let apply = serde_json::json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": NODE}, "status": {"numInstances": number}});
        let began = Instant::now();
        let write = api.patch_status(NODE, &params, &Patch::Apply(&apply)).await;
        write.map_err(BenchError::api("writing the status"))?;
        while let Some(event) = events.next().await {
            let seen = match event.map_err(BenchError::api("watching the Hypervisor"))? {
                WatchEvent::Modified(object) => object.status.map(|status| status.num_instances),
                _ => None,
            };
            if seen == Some(number) {
                break;
            }
        }
        took.push(began.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(events);
    world.stop().await;
    took.sort_by(f64::total_cmp);
    Ok(Visible(took))
}

/// Reads a host as the agent of the running system does: two lists, the definition of every guest twice, capabilities
/// twice, domain capabilities once.
pub(crate) async fn reading_pass(guests: u32) -> Result<Reading, BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::io("create a temporary directory"))?;
    let far = FarHost::start(directory.path()).map_err(BenchError::io("start the scripted host"))?;
    far.populate(guests);
    let uri = format!("qemu+unix:///system?socket={}", far.socket().display());
    let connection = Connection::connect(&uri.parse()?, Options::default()).await?;
    let mut took = Vec::new();
    let before = far.calls();
    const ROUNDS: u32 = 5;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        connection.lib_version().await?;
        connection.hypervisor_version().await?;
        for flags in [flags::LIST_ACTIVE, flags::LIST_INACTIVE, flags::LIST_ALL] {
            let all = connection.list_all_domains(flags).await?;
            if flags != flags::LIST_INACTIVE {
                for guest in &all {
                    connection.xml(guest, 0).await?;
                }
            }
        }
        connection.capabilities().await?;
        connection.domain_capabilities().await?;
        connection.capabilities().await?;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let calls = (far.calls() - before) as f64 / f64::from(ROUNDS);
    took.sort_by(f64::total_cmp);
    Ok(Reading {
        guests,
        calls_per_minute: calls * PASSES,
        pass: percentile(&took, 50.0),
    })
}

pub(crate) fn rows(visible: &Visible, reading: &Reading) -> Vec<Row> {
    vec![
        Row::new("baseline: a bare status write becomes visible")
            .figure("p50", percentile(&visible.0, 50.0), "ms")
            .figure("p99", percentile(&visible.0, 99.0), "ms"),
        Row::new(format!("baseline: reading everything, {} guests", reading.guests))
            .figure("", reading.calls_per_minute, "calls/min")
            .figure("pass", reading.pass, "ms"),
    ]
}
