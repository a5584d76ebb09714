// SPDX-License-Identifier: Apache-2.0
//! Our definitions as an API server understands them: defaults, rules, messages, tables.

#![allow(clippy::unwrap_used)]

mod world;

use cobaltcore_api::{
    Eviction, EvictionSpec, Hypervisor, HypervisorSpec, Maintenance, Migration, MigrationSpec,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use world::world;

fn message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_bare_hypervisor_gets_the_defaults_of_its_type() {
    let world = world().await;
    let hypervisors: Api<Hypervisor> = Api::all(world.client.clone());
    let bare: Hypervisor = serde_json::from_value(json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "node1"}, "spec": {},
    }))
    .unwrap();
    hypervisors.create(&PostParams::default(), &bare).await.unwrap();
    assert_eq!(
        hypervisors.get("node1").await.unwrap().spec,
        HypervisorSpec::default()
    );
    let status = json!({"status": {"internalIp": "10.0.0.1"}});
    let params = PatchParams::default();
    let read = hypervisors
        .patch_status("node1", &params, &Patch::Merge(&status))
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (read.num_instances, read.lib_virt_version.as_str()),
        (0, "unknown")
    );
    assert_eq!(read.update_status, None, "absent stays absent");
}

#[tokio::test]
async fn the_rules_speak_as_documented() {
    let world = world().await;
    let hypervisors: Api<Hypervisor> = Api::all(world.client.clone());
    hypervisors
        .create(
            &PostParams::default(),
            &Hypervisor::new("node1", HypervisorSpec::default()),
        )
        .await
        .unwrap();
    let try_spec = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        hypervisors.patch("node1", &PatchParams::default(), &patch).await
    };
    let table = [
        (
            json!({"maintenance": "manual"}),
            "maintenanceReason must be non-empty when maintenance is 'manual'",
        ),
        (
            json!({"overcommit": {"cpu": 0.5}}),
            "overcommit ratios must be >= 1.0",
        ),
        (json!({"groups": [{}]}), "exactly one group type must be set"),
        (json!({"maintenance": "lunch"}), "Unsupported value: \"lunch\""),
        (
            json!({"groups": [{"aggregate": {"name": "a", "uuid": "b"}}]}),
            "spec.groups[0].aggregate.uuid in body should match",
        ),
    ];
    for (spec, expected) in table {
        let text = message(try_spec(spec.clone()).await.unwrap_err());
        assert!(text.contains(expected), "{spec}: {text}");
    }
    try_spec(json!({"maintenance": "termination"})).await.unwrap();
    let text = message(try_spec(json!({"maintenance": "auto"})).await.unwrap_err());
    let rule = "spec is immutable when maintenance is 'termination'; can only change maintenance to 'ha'";
    assert!(text.contains(rule), "{text}");
    let back = try_spec(json!({"maintenance": "ha", "skipTests": true}))
        .await
        .unwrap();
    assert_eq!(back.spec.maintenance, Maintenance::Ha);
}

#[tokio::test]
async fn an_eviction_keeps_its_hypervisor_and_gains_no_fields_nobody_named() {
    let world = world().await;
    let evictions: Api<Eviction> = Api::all(world.client.clone());
    let spec = EvictionSpec {
        hypervisor: "node1".into(),
        reason: "test".into(),
        ..EvictionSpec::default()
    };
    evictions
        .create(&PostParams::default(), &Eviction::new("e", spec))
        .await
        .unwrap();
    let stored = evictions.get("e").await.unwrap();
    assert_eq!(
        serde_json::to_value(&stored.spec).unwrap(),
        json!({"hypervisor": "node1", "reason": "test"})
    );
    let patch = Patch::Merge(json!({"spec": {"hypervisor": "node2"}}));
    let text = message(
        evictions
            .patch("e", &PatchParams::default(), &patch)
            .await
            .unwrap_err(),
    );
    assert!(text.contains("Value is immutable"), "{text}");
    let empty = Eviction::new(
        "f",
        EvictionSpec {
            reason: "r".into(),
            ..EvictionSpec::default()
        },
    );
    let text = message(
        evictions
            .create(&PostParams::default(), &empty)
            .await
            .unwrap_err(),
    );
    assert!(
        text.contains("spec.hypervisor in body should be at least 1 chars long"),
        "{text}"
    );
}

#[tokio::test]
async fn a_table_of_migrations_looks_like_the_documents() {
    let world = world().await;
    let migrations: Api<Migration> = Api::namespaced(world.client.clone(), "default");
    let id = "1552e60a-bdba-4850-84da-07dd635bce2c";
    migrations
        .create(&PostParams::default(), &Migration::new(id, MigrationSpec {}))
        .await
        .unwrap();
    let status = json!({"status": {
        "origin": "node006-bb086", "destination": "node003-bb087", "type": "completed", "operation": "migration_out",
        "started": "2026-01-01T00:00:00Z", "timeElapsed": "35.078s", "dataTotal": "64.0 GiB", "dataProcessed": "58.4 GiB",
        "dataRemaining": "0 B", "memBps": "1.8 GiB/s", "memDirtyRate": "1250/s", "memIteration": 4,
    }});
    migrations
        .patch_status(id, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let table = table(
        &world,
        "/apis/kvm.cloud.sap/v1alpha1/namespaces/default/migrations",
    )
    .await;
    let headers: Vec<_> = columns(&table).map(str::to_uppercase).collect();
    assert_eq!(
        headers.join("|"),
        "NAME|ORIGIN|DESTINATION|TYPE|OPERATION|STARTED|ELAPSED|DATA TOTAL|DATA PROCESSED|DATA REMAINING|MEMORY TX|\
         MEMORY DIRTY RATE|MEMORY ITERATION"
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let texts: Vec<_> = cells
        .iter()
        .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
        .collect();
    assert_eq!(texts[0], id);
    assert_eq!(
        texts[7..],
        ["64.0 GiB", "58.4 GiB", "0 B", "1.8 GiB/s", "1250/s", "4"]
    );
}

#[tokio::test]
async fn a_table_of_hypervisors_names_what_the_documents_name() {
    let world = world().await;
    let table = table(&world, "/apis/kvm.cloud.sap/v1/hypervisors").await;
    let headers: Vec<_> = columns(&table).map(str::to_uppercase).collect();
    let mut rest = headers.iter();
    for wanted in [
        "NAME",
        "NODE",
        "VERSION",
        "INSTANCES",
        "HARDWARE",
        "KERNEL",
        "AGE",
    ] {
        assert!(
            rest.any(|header| header == wanted),
            "{wanted} in order in {headers:?}"
        );
    }
}

async fn table(world: &world::World, path: &str) -> Value {
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    world.client.request::<Value>(request).await.unwrap()
}

fn columns(table: &Value) -> impl Iterator<Item = &str> {
    table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
}
