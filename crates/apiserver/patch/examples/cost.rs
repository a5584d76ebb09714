// SPDX-License-Identifier: Apache-2.0
//! What ownership costs: prints the time of typical writes. `cargo run --release --example cost`.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cobaltcore_patch::{ApplyRequest, FieldSet, Filter, UpdateRequest, apply, settle, update};
use serde_json::{Value, json};

const BATCHES: u32 = 400;
const BATCH: u32 = 50;

/// The best batch counts: on a busy machine the others measure the neighbours.
fn measure(name: &str, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            work();
        }
        best = best.min(start.elapsed() / BATCH);
    }
    println!("{name:<40} {:>8.2} µs", best.as_secs_f64() * 1e6);
}

fn workload() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example/app:1", "command": ["run", "--fast"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "n", "uid": "u", "labels": {"app": "x", "tier": "web"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "x"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {
                    "serviceAccountName": "x",
                    "containers": [container("a"), container("b")],
                    "volumes": [{"name": "v", "emptyDir": {}}]
                }
            }
        }
    })
}

fn main() {
    let schema = common::deployment();
    let main_endpoint = Filter::without_status();
    let status_endpoint = Filter::Except(FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]));
    let object = workload();
    let now = "2026-01-01T00:00:00Z";
    let request = |old, manager, subresource, filter| UpdateRequest {
        old,
        blank: None,
        schema: &schema,
        versions: None,
        manager,
        api_version: "apps/v1",
        subresource,
        filter,
        now,
    };

    measure("clone of the object, for comparison", || {
        black_box(object.clone());
    });
    measure("create", || {
        let mut new = object.clone();
        update(request(None, "client", None, &main_endpoint), &mut new);
        black_box(new);
    });
    let mut live = object.clone();
    update(request(None, "client", None, &main_endpoint), &mut live);
    let conditions = |reason: &str| json!([{"type": "Available", "status": "True", "reason": reason}]);
    let mut with_status = live.clone();
    with_status["status"] = json!({"replicas": 3, "conditions": conditions("A")});
    update(
        request(Some(&live), "controller", Some("status"), &status_endpoint),
        &mut with_status,
    );
    let live = with_status;
    let mut flip = false;
    measure("status update by its controller", || {
        flip = !flip;
        let mut new = live.clone();
        new["status"]["conditions"] = conditions(if flip { "B" } else { "C" });
        update(
            request(Some(&live), "controller", Some("status"), &status_endpoint),
            &mut new,
        );
        black_box(new);
    });
    let status = |reason: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "n"},
               "status": {"replicas": 3, "conditions": conditions(reason)}})
    };
    let applied = |live: &Value, config: &Value, subresource: Option<&str>, filter: &Filter| {
        apply(ApplyRequest {
            live: Some(live),
            config,
            schema: &schema,
            versions: None,
            manager: "applier",
            api_version: "apps/v1",
            kind: "Deployment",
            subresource,
            force: true,
            filter,
            now,
        })
        .unwrap()
    };
    let owned = applied(&live, &status("A"), Some("status"), &status_endpoint).object;
    let configs = [status("B"), status("C")];
    let mut at = 0;
    measure("status apply that changes a condition", || {
        at = 1 - at;
        black_box(applied(&owned, &configs[at], Some("status"), &status_endpoint));
    });
    let same = status("A");
    measure("status apply that changes nothing", || {
        let candidate = applied(&owned, &same, Some("status"), &status_endpoint);
        assert!(settle(&owned, candidate.object).is_none());
    });
    let mut config = object.clone();
    config["metadata"].as_object_mut().unwrap().remove("uid");
    let whole = applied(&live, &config, None, &main_endpoint).object;
    measure("apply of the whole object, unchanged", || {
        black_box(applied(&whole, &config, None, &main_endpoint));
    });
    config["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .pop();
    measure("apply that gives up a container", || {
        black_box(applied(&whole, &config, None, &main_endpoint));
    });
}
