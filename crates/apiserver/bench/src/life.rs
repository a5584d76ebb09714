// SPDX-License-Identifier: Apache-2.0
//! How long a client waits for what the server does by itself: serving a new kind, collecting
//! dependents, emptying namespaces and definitions, forgetting tokens.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Connection, Request, Target};
use crate::kinds::{self, JSON};
use crate::load::once;
use crate::report::{Report, Row};
use crate::{BenchError, Scale};

/// Longest wait for anything here.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(1);

/// Times of the rounds, in milliseconds.
#[derive(Default)]
struct Times {
    served: Vec<f64>,
    collected: Vec<f64>,
    emptied: Vec<f64>,
    removed: Vec<f64>,
    refused: Vec<f64>,
    requests: Vec<f64>,
}

pub(crate) async fn measure(
    targets: &[Target],
    scale: Scale,
    say: fn(&str),
    report: &mut Report,
) -> Result<(), BenchError> {
    for (at, target) in targets.iter().enumerate() {
        say(&format!(
            "definitions, dependents, namespaces, tokens: {}",
            target.name
        ));
        // Dependents and namespaces are the work of a controller manager, which the reference
        // here does not have.
        let controllers = at == 0;
        let mut times = Times::default();
        for round in 0..scale.repeats {
            one_round(target, round, controllers, &mut times).await?;
        }
        let rows = [
            Row::new("new-definition", "new CRD until its first object is stored")
                .figure("time", &times.served),
            Row::new("dependents", "3 dependents of a new kind collected").figure("time", &times.collected),
            Row::new("namespace-gone", "namespace with 5 objects gone").figure("time", &times.emptied),
            Row::new("definition-gone", "CRD with 2 instances gone").figure("time", &times.removed),
            Row::new("token-refused", "token of a deleted ServiceAccount refused")
                .figure("requests", &times.requests)
                .figure("time", &times.refused),
        ];
        for row in rows {
            if at == 0 {
                report.extend([row]);
            } else if !row.figures.is_empty() {
                report.beside(row);
            }
        }
    }
    Ok(())
}

async fn one_round(
    target: &Target,
    round: usize,
    controllers: bool,
    times: &mut Times,
) -> Result<(), BenchError> {
    let plural = format!("fresh{round}s");
    let began = Instant::now();
    once(
        target,
        &Request::new("POST", kinds::definitions(), 201).with(JSON, kinds::definition(&plural)),
    )
    .await?;
    let owner = store_when_served(target, &plural, &kinds::custom(&plural, "owner", None)).await?;
    times.served.push(millis(began));

    if controllers {
        times.collected.push(dependents(target, &plural, &owner).await?);
        times
            .emptied
            .push(namespace(target, &format!("leaving-{round}")).await?);
    }
    for name in ["one", "two"] {
        let create = Request::new("POST", kinds::customs(&plural), 201);
        once(target, &create.with(JSON, kinds::custom(&plural, name, None))).await?;
    }
    times.removed.push(
        gone(
            target,
            &[kinds::definition_path(&plural)],
            &kinds::definition_path(&plural),
        )
        .await?,
    );

    let (requests, time) = token(target, &format!("bench-{round}")).await?;
    times.requests.push(requests);
    times.refused.push(time);
    Ok(())
}

/// Stores a custom object, again and again until its kind is served.
pub(crate) async fn store_when_served(
    target: &Target,
    plural: &str,
    body: &str,
) -> Result<Value, BenchError> {
    let request = Request::new("POST", kinds::customs(plural), 201).with(JSON, body);
    let began = Instant::now();
    let mut connection = connect(target).await?;
    loop {
        let answer = connection.ask(&request, true).await?;
        if answer.status == 201 {
            return Ok(serde_json::from_slice(&answer.body).unwrap_or_default());
        }
        if began.elapsed() > PATIENCE {
            return Err(BenchError::NotReady(format!("the new kind {plural}"), PATIENCE));
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn dependents(target: &Target, plural: &str, owner: &Value) -> Result<f64, BenchError> {
    let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
    let mut paths = Vec::new();
    for n in 0..3 {
        let name = format!("dependent-{n}");
        let create = Request::new("POST", kinds::customs(plural), 201);
        once(
            target,
            &create.with(JSON, kinds::custom(plural, &name, Some(("owner", uid)))),
        )
        .await?;
        paths.push(format!("{}/{name}", kinds::customs(plural)));
    }
    gone(target, &paths, &format!("{}/owner", kinds::customs(plural))).await
}

async fn namespace(target: &Target, name: &str) -> Result<f64, BenchError> {
    once(target, &kinds::namespace(name)).await?;
    for n in 0..5 {
        let create = Request::new("POST", kinds::configmaps(name), 201);
        once(target, &create.with(JSON, kinds::configmap(name, n, 0))).await?;
    }
    let path = format!("/api/v1/namespaces/{name}");
    gone(target, std::slice::from_ref(&path), &path).await
}

/// Deletes one object and waits until all of `paths` are gone.
async fn gone(target: &Target, paths: &[String], delete: &str) -> Result<f64, BenchError> {
    let mut connection = connect(target).await?;
    let began = Instant::now();
    connection
        .call(&Request::new("DELETE", delete, 200), false)
        .await?;
    for path in paths {
        while connection.ask(&Request::get(path), false).await?.status != 404 {
            if began.elapsed() > PATIENCE {
                return Err(BenchError::NotReady(format!("the end of {path}"), PATIENCE));
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(millis(began))
}

/// How many requests, and how long, a token outlives its account.
async fn token(target: &Target, name: &str) -> Result<(f64, f64), BenchError> {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}).to_string();
    once(target, &Request::new("POST", accounts, 201).with(JSON, account)).await?;
    let ask =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
    let request = Request::new("POST", format!("{accounts}/{name}/token"), 201).with(JSON, ask);
    let answer: Value = serde_json::from_slice(&once(target, &request).await?).unwrap_or_default();
    let mut holder = connect(target).await?;
    holder.act_as(answer["status"]["token"].as_str().unwrap_or_default());
    let probe = Request::get("/apis");
    holder.call(&probe, false).await?;
    once(target, &Request::new("DELETE", format!("{accounts}/{name}"), 200)).await?;
    let began = Instant::now();
    let mut requests = 0.0;
    loop {
        requests += 1.0;
        if holder.ask(&probe, false).await?.status == 401 {
            return Ok((requests, millis(began)));
        }
        if began.elapsed() > PATIENCE {
            return Err(BenchError::NotReady("the refusal of a token".into(), PATIENCE));
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn connect(target: &Target) -> Result<Connection, BenchError> {
    Connection::open(target)
        .await
        .map_err(BenchError::io("connect to", target.address.to_string()))
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
