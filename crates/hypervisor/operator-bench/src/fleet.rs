// SPDX-License-Identifier: Apache-2.0
//! A fleet from its first Node to the last active hypervisor, and then at rest.

use std::time::{Duration, Instant};

use cobaltcore_sim::World;
use cobaltcore_sim::cloud::Service;
use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::process::{Operator, Usage};
use crate::report::Fleet;
use crate::world::{Place, kube};
use crate::{Error, Options};

const ZONE: &str = "qa-de-1a";
/// As many writes at a time as the operator makes.
const WRITERS: usize = 8;

pub(crate) async fn measure(options: &Options, size: usize) -> Result<Fleet, Error> {
    let world = World::builder()
        .hosts(size)
        .zones([ZONE])
        .fresh()
        .settings(|settings| {
            // The cloud is not what is measured.
            settings.build_step = Duration::from_millis(50);
            settings.guest_boot = Duration::from_millis(200);
            settings.delete = Duration::from_millis(50);
            (settings.quota.instances, settings.quota.cores, settings.quota.ram) = (-1, -1, -1);
        })
        .build();
    let place = Place::new(world).await?;
    let hosts: Vec<String> = (0..size)
        .map(|index| format!("node{:03}-bb{}", index + 1, index / 8 + 1))
        .collect();
    place.nodes(&hosts, ZONE).await?;
    let before = place.server.writes().len();
    let auth = place.cloud.auth_url();
    let (kubeconfig, folder) = (place.kubeconfig.clone(), place.folder.path());
    let operator = Operator::start(&options.program, &kubeconfig, &auth, folder, &[])?;
    let served = Usage::own().cpu_seconds;
    let limit = Duration::from_secs(300 + size as u64);
    let active = place.all_active(size, &operator, limit).await?;
    let writes = place.server.writes().len() - before;
    let calls = place.cloud.calls().total();
    let busy = operator.usage();
    let served = Usage::own().cpu_seconds - served;
    let raw = raw_writes(&place, &hosts, writes / size.max(1)).await?;
    // Let the last echoes pass before rest is measured.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (quiet_writes, quiet_calls) = (place.server.writes().len(), place.cloud.calls().total());
    let lists = || aggregate_lists(&place);
    let (quiet_lists, rested, began) = (lists(), operator.usage(), Instant::now());
    tokio::time::sleep(Duration::from_secs(options.idle_seconds)).await;
    let after = operator.usage();
    let seconds = began.elapsed().as_secs_f64();
    let fleet = Fleet {
        hypervisors: size,
        seconds_to_active: active.as_secs_f64(),
        seconds_of_raw_writes: raw.as_secs_f64(),
        writes_per_host: writes as f64 / size as f64,
        cloud_calls_per_host: calls as f64 / size as f64,
        busy_cpu_seconds: busy.cpu_seconds,
        served_cpu_seconds: served,
        resident_mib: after.resident_mib,
        idle_seconds: options.idle_seconds,
        idle_writes: place.server.writes().len() - quiet_writes,
        idle_cloud_calls: place.cloud.calls().total() - quiet_calls,
        idle_aggregate_lists: lists() - quiet_lists,
        idle_cpu_percent: (after.cpu_seconds - rested.cpu_seconds) / seconds * 100.0,
    };
    operator.stop().await;
    Ok(fleet)
}

fn aggregate_lists(place: &Place) -> u64 {
    let counts = place.cloud.calls().counts();
    let lists = counts.iter().filter(|((service, method, route), _)| {
        *service == Service::Compute && method == "GET" && route.ends_with("/os-aggregates")
    });
    lists.map(|(_, count)| *count).sum()
}

/// The baseline: as many bare status writes per host as the operator made, and nothing else.
async fn raw_writes(place: &Place, hosts: &[String], each: usize) -> Result<Duration, Error> {
    let began = Instant::now();
    let all = hosts
        .iter()
        .flat_map(|host| (0..each).map(move |round| (host.clone(), round)));
    let writes = futures::stream::iter(all.map(|(host, round)| {
        let api = place.hypervisors();
        async move {
            let apply = json!({
                "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": host},
                "status": {"specHash": format!("{round}")},
            });
            let params = PatchParams::apply("bench").force();
            let written = api.patch_status(&host, &params, &Patch::Apply(&apply)).await;
            written
                .map(drop)
                .map_err(kube(format!("writing the status of {host}")))
        }
    }));
    let outcomes: Vec<Result<(), Error>> = writes.buffer_unordered(WRITERS).collect().await;
    outcomes.into_iter().collect::<Result<(), Error>>()?;
    Ok(began.elapsed())
}
