// SPDX-License-Identifier: Apache-2.0
//! Requests per second, latencies and server CPU of each operation, with 1 and 8 clients, in
//! rounds that alternate between the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Request, Target};
use crate::floor::Floors;
use crate::kinds::{self, APPLY, JSON, MERGE};
use crate::load::{self, Maker, Sample, Until, once};
use crate::report::{Report, Row};
use crate::{BenchError, Scale};

const CLIENTS: [usize; 2] = [1, 8];
/// The custom kind whose status is written, and how many there are of it.
const HOSTS: &str = "benchhosts";
const HOST_COUNT: u64 = 64;

/// Operation, what people call it, and whether it waits for the disk.
const OPERATIONS: [(&str, &str, bool); 8] = [
    ("create", "create", true),
    ("update", "update (PUT)", true),
    ("merge-patch", "merge patch", true),
    ("apply", "server-side apply", true),
    ("get", "get", false),
    ("status-patch", "CR status merge patch", true),
    ("status-apply", "CR status apply", true),
    ("delete", "delete", true),
];

type Samples = BTreeMap<(usize, String), Vec<Sample>>;

pub(crate) async fn measure(
    targets: &[Target],
    scale: Scale,
    floors: &Floors,
    say: fn(&str),
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut samples = Samples::new();
    for target in targets {
        prepare_hosts(target).await?;
    }
    for round in 0..scale.rounds {
        for (at, target) in targets.iter().enumerate() {
            for clients in CLIENTS {
                say(&format!(
                    "operations: {}, round {}, {clients} clients",
                    target.name,
                    round + 1
                ));
                one_round(target, at, round, clients, scale, &mut samples).await?;
            }
        }
    }
    for (operation, title, writing) in OPERATIONS {
        for clients in CLIENTS {
            let id = format!("{operation}-{clients}");
            let plural = if clients == 1 { "client" } else { "clients" };
            let row = |at: usize| {
                let taken = samples
                    .get(&(at, id.clone()))
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let each = |value: fn(&Sample) -> f64| taken.iter().map(value).collect::<Vec<f64>>();
                Row::new(id.clone(), format!("{title}, {clients} {plural}"))
                    .figure("rate", &each(Sample::rate))
                    .figure("p50", &each(|s| s.millis(0.5)))
                    .figure("p99", &each(|s| s.millis(0.99)))
                    .figure("cpu", &each(Sample::cpu_micros))
            };
            report.extend([row(0).over_rate(floors.best(writing, clients))]);
            if targets.len() > 1 {
                report.beside(row(1));
            }
        }
    }
    Ok(())
}

async fn prepare_hosts(target: &Target) -> Result<(), BenchError> {
    once(
        target,
        &Request::new("POST", kinds::definitions(), 201).with(JSON, kinds::definition(HOSTS)),
    )
    .await?;
    for n in 0..HOST_COUNT {
        crate::life::store_when_served(target, HOSTS, &kinds::custom(HOSTS, &format!("host-{n}"), None))
            .await?;
    }
    Ok(())
}

async fn one_round(
    target: &Target,
    at: usize,
    round: usize,
    clients: usize,
    scale: Scale,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let namespace = format!("bench-{round}-{clients}");
    once(target, &kinds::namespace(&namespace)).await?;
    let mut there = 1;
    for (operation, _, _) in OPERATIONS {
        let requests = if operation == "delete" { there } else { u64::MAX };
        let until = Until {
            time: scale.each,
            requests,
        };
        let sample = load::run(target, clients, until, maker(operation, &namespace, there)).await?;
        if operation == "create" {
            there = sample.requests.max(1);
        }
        samples
            .entry((at, format!("{operation}-{clients}")))
            .or_default()
            .push(sample);
    }
    once(
        target,
        &Request::new("DELETE", kinds::configmaps(&namespace), 200),
    )
    .await?;
    Ok(())
}

/// The requests of an operation over the `there` objects of a namespace.
fn maker(operation: &'static str, namespace: &str, there: u64) -> Maker {
    let ns = namespace.to_owned();
    Arc::new(move |n| {
        let path = || kinds::configmap_path(&ns, &kinds::name(n % there));
        let host = format!("host-{}", n % HOST_COUNT);
        let status = format!("{}/{host}/status", kinds::customs(HOSTS));
        match operation {
            "create" => {
                Request::new("POST", kinds::configmaps(&ns), 201).with(JSON, kinds::configmap(&ns, n, 0))
            }
            "update" => Request::new("PUT", path(), 200).with(JSON, kinds::configmap(&ns, n % there, n + 1)),
            "merge-patch" => {
                Request::new("PATCH", path(), 200).with(MERGE, format!(r#"{{"data":{{"value":"m{n}"}}}}"#))
            }
            "apply" => Request::new("PATCH", format!("{}?fieldManager=bench&force=true", path()), 200)
                .with(APPLY, kinds::configmap(&ns, n % there, n + 1)),
            "status-patch" => Request::new("PATCH", status, 200).with(MERGE, kinds::status_patch(n)),
            "status-apply" => Request::new("PATCH", format!("{status}?fieldManager=bench&force=true"), 200)
                .with(APPLY, kinds::status_apply(HOSTS, &host, n)),
            "delete" => Request::new("DELETE", path(), 200),
            _ => Request::get(path()),
        }
    })
}
