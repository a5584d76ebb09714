// SPDX-License-Identifier: Apache-2.0
//! One host with forty servers, emptied four at a time. The baseline is what the moves alone
//! take when nobody waits for anybody, by the cloud's own records.

use std::time::{Duration, Instant};

use cobaltcore_sim::World;
use cobaltcore_sim::world::{Migration, MigrationStatus};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::process::Operator;
use crate::report::Drain;
use crate::world::{Place, kube};
use crate::{Error, Options};

const SERVERS: usize = 40;
const PARALLEL: usize = 4;
/// Getting ready takes this long twice, at the source and at the destination; with scheduling,
/// copying and cleaning up a move takes the eight seconds of the goal.
const PREPARING: Duration = Duration::from_millis(3_300);
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) async fn measure(options: &Options) -> Result<Drain, Error> {
    let world = World::builder()
        .host("source")
        .host("target1")
        .host("target2")
        .host_size(2, 64, 1024 * 1024)
        .settings(|settings| {
            // Most of a move is getting ready, so that its length does not depend on memory.
            settings.schedule = Duration::from_millis(500);
            settings.prepare = PREPARING;
            settings.finish = Duration::from_millis(500);
            settings.build_step = Duration::from_millis(50);
            settings.guest_boot = Duration::from_millis(200);
            (settings.quota.instances, settings.quota.cores, settings.quota.ram) = (-1, -1, -1);
        })
        .build();
    // Nova moves one server at a time unless told otherwise; here it must not be what holds up.
    world.change(|state| {
        for host in state.hosts.values_mut() {
            host.max_live = PARALLEL;
        }
    });
    let place = Place::new(world).await?;
    let hosts = ["source", "target1", "target2"].map(str::to_owned);
    place.nodes(&hosts, "qa-de-1a").await?;
    let auth = place.cloud.auth_url();
    let flags = [format!("--eviction-concurrency={PARALLEL}")];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = Operator::start(
        &options.program,
        &place.kubeconfig,
        &auth,
        place.folder.path(),
        &flags,
    )?;
    place.all_active(hosts.len(), &operator, LIMIT).await?;
    for _ in 0..SERVERS {
        let added = place.cloud.world().add_server("source", "1");
        added.map_err(|error| Error::Start {
            what: "a server to move",
            reason: error.to_string(),
        })?;
    }
    let calls_before = place.cloud.calls().total();
    let began = Instant::now();
    let spec = json!({"spec": {"maintenance": "auto"}});
    let api = place.hypervisors();
    let changed = api
        .patch("source", &PatchParams::default(), &Patch::Merge(spec))
        .await;
    changed.map_err(kube("asking for maintenance"))?;
    loop {
        let source = api.get("source").await.map_err(kube("reading the source"))?;
        if source.status.is_some_and(|status| status.evicted) {
            break;
        }
        if began.elapsed() > LIMIT {
            return Err(Error::Late {
                what: "the source to be empty".into(),
                seconds: LIMIT.as_secs(),
                log: operator.log.display().to_string(),
            });
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let calls = place.cloud.calls().total() - calls_before;
    operator.stop().await;
    let lengths = place.cloud.world().read(|state| {
        let ended = state
            .migrations
            .values()
            .filter(|one| one.status == MigrationStatus::Completed);
        let length = |one: &Migration| one.updated.since(one.created).as_secs_f64();
        ended.map(length).collect::<Vec<f64>>()
    });
    let total: f64 = lengths.iter().sum();
    Ok(Drain {
        servers: SERVERS,
        parallel: PARALLEL,
        seconds,
        seconds_per_move: total / lengths.len().max(1) as f64,
        seconds_of_moves: total / PARALLEL as f64,
        migrations: lengths.len(),
        cloud_calls_per_server: calls as f64 / SERVERS as f64,
    })
}
