// SPDX-License-Identifier: Apache-2.0
//! A controller through a storm: random edits and deletions of its objects and of what it made, and
//! two restarts of the server under it. Afterwards everything is as wished, nothing is left over,
//! and it is quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use cobaltcore_apiserver::Config;
use cobaltcore_apiserver::testkit::TestServer;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::runtime::run_controller;
use crate::world::{Lamp, LampSpec, config, entry_of, over_tls, serve_lamps, until};

const LAMPS: u64 = 10;
const EDITS: u64 = 240;

/// A repeatable source of whims.
struct Whims(u64);

impl Whims {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What an editor does to the world; refusals and a missing server are part of the storm.
async fn disturb(client: Client, seed: u64) {
    let lamps: Api<Lamp> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut whims = Whims(seed);
    for turn in 0..EDITS {
        let name = format!("lamp-{}", whims.below(LAMPS));
        let colour = format!("c{seed}-{turn}");
        let patch = PatchParams::default();
        let _ = match whims.below(10) {
            0..=2 => lamps
                .create(
                    &PostParams::default(),
                    &Lamp::new(&name, LampSpec { colour, bulbs: 1 }),
                )
                .await
                .map(|_| ()),
            3..=5 => lamps
                .patch(&name, &patch, &Patch::Merge(json!({"spec": {"colour": colour}})))
                .await
                .map(|_| ()),
            6 => lamps.delete(&name, &DeleteParams::default()).await.map(|_| ()),
            7 => maps.delete(&name, &DeleteParams::default()).await.map(|_| ()),
            8 => maps
                .patch(&name, &patch, &Patch::Merge(json!({"data": {"k": "spoilt"}})))
                .await
                .map(|_| ()),
            _ => lamps
                .patch_status(
                    &name,
                    &patch,
                    &Patch::Merge(json!({"status": {"colour": "spoilt"}})),
                )
                .await
                .map(|_| ()),
        };
        tokio::time::sleep(Duration::from_millis(whims.below(30))).await;
    }
}

/// Everything that is not yet as wished.
async fn unfinished(client: &Client) -> Vec<String> {
    let lamps = Api::<Lamp>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let maps = Api::<ConfigMap>::default_namespaced(client.clone())
        .list(&ListParams::default().labels("lamp"))
        .await
        .unwrap()
        .items;
    let marks = Api::<Secret>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let children: BTreeMap<String, &ConfigMap> = maps.iter().map(|m| (m.name_any(), m)).collect();
    let living: BTreeSet<String> = lamps.iter().map(ResourceExt::name_any).collect();
    let mut problems = Vec::new();
    for lamp in &lamps {
        let (name, wanted) = (lamp.name_any(), Some(lamp.spec.colour.as_str()));
        if lamp.metadata.deletion_timestamp.is_some() {
            problems.push(format!("{name} is still being deleted"));
        } else if lamp.status.as_ref().and_then(|s| s.observed_generation) != lamp.metadata.generation
            || lamp.status.as_ref().and_then(|s| s.colour.as_deref()) != wanted
        {
            problems.push(format!(
                "the status of {name} is {:?} for {:?}",
                lamp.status, lamp.spec
            ));
        }
        match children.get(&name) {
            Some(child)
                if entry_of(child) == wanted
                    && child
                        .owner_references()
                        .iter()
                        .any(|o| Some(&o.uid) == lamp.metadata.uid.as_ref()) => {}
            other => problems.push(format!("the child of {name} is {:?}", other.map(|c| &c.data))),
        }
    }
    problems.extend(
        children
            .keys()
            .filter(|name| !living.contains(*name))
            .map(|name| format!("the child of {name} is left over")),
    );
    problems.extend(
        marks
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| !living.contains(name))
            .map(|name| format!("the mark of {name} is left over")),
    );
    problems
}

async fn lead(client: &Client) {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lamps"}, "spec": {"holderIdentity": "lamps-0", "leaseDurationSeconds": 3600}});
    leases
        .patch("lamps", &PatchParams::apply("lamps"), &Patch::Apply(&lease))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_survives_the_storm() {
    let home = tempfile::tempdir().unwrap();
    let on_disk = |port: Option<SocketAddr>| Config {
        data_dir: Some(home.path().join("state")),
        listen: vec![port.unwrap_or_else(|| ([127, 0, 0, 1], 0).into())],
        ..config(&home)
    };
    let mut server = TestServer::with(on_disk(None)).await;
    let address = server.server().addresses()[0];
    let client = over_tls(&home, |_| {}).await;
    serve_lamps(&client).await;
    lead(&client).await;
    let controller = run_controller(&client);
    let editors: Vec<_> = [11, 23]
        .map(|seed| tokio::spawn(disturb(client.clone(), seed)))
        .into();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.stop().await;
        server = TestServer::with(on_disk(Some(address))).await;
    }
    for editor in editors {
        editor.await.unwrap();
    }

    let mut last = Vec::new();
    let settled = tokio::time::timeout(Duration::from_mins(3), async {
        loop {
            last = unfinished(&client).await;
            if last.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(settled.await.is_ok(), "the storm is over, but: {last:#?}");
    until("the collector is done", async || {
        unfinished(&client).await.is_empty().then_some(())
    })
    .await;
    server.comes_to_rest(Duration::from_millis(1_500)).await;
    assert!(
        !Api::<Lamp>::default_namespaced(client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let holder = Api::<Lease>::default_namespaced(client)
        .get("lamps")
        .await
        .unwrap()
        .spec
        .unwrap()
        .holder_identity;
    assert_eq!(
        holder.as_deref(),
        Some("lamps-0"),
        "the lease survived the restarts"
    );
    controller.abort();
    server.stop().await;
}
