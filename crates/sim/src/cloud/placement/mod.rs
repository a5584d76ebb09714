// SPDX-License-Identifier: Apache-2.0
//! Placement: providers, inventories, traits, aggregates, allocations and candidates, with generations that make two
//! writers notice each other and the error codes clients look for.

mod allocations;
mod candidates;
mod providers;
mod traits;

use serde_json::{Value, json};

use super::Shared;
use super::http::{Answer, Outcome, Refusal, Req, uuid};
use crate::world::{Placement, Provider, RESOURCE_CLASSES, State};

/// The newest version.
const MAX: u32 = 39;

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    if req.path.is_empty() && req.method == "GET" {
        let body = json!({"versions": [{
            "id": "v1.0", "min_version": "1.0", "max_version": format!("1.{MAX}"), "status": "CURRENT",
            "links": [{"rel": "self", "href": ""}],
        }]});
        return Ok(Answer::ok(body));
    }
    req.version = microversion(req)?;
    if !req.caller()?.is_admin() {
        let rule = req.path.join(":");
        return Err(Refusal::forbidden(format!("Access forbidden: placement:{rule}")));
    }
    let path = req.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    shared
        .world
        .attend(req.changes(), |state| dispatch(state, req, &path))
}

fn microversion(req: &Req) -> Result<u32, Refusal> {
    let header = req
        .headers
        .get("openstack-api-version")
        .and_then(|value| value.to_str().ok());
    let asked = header.and_then(|text| {
        text.split(',')
            .find_map(|one| one.trim().strip_prefix("placement "))
    });
    let Some(asked) = asked.map(str::trim) else {
        return Ok(0);
    };
    if asked == "latest" {
        return Ok(MAX);
    }
    let minor = asked.strip_prefix("1.").and_then(|minor| minor.parse().ok());
    match minor {
        Some(minor) if minor <= MAX => Ok(minor),
        _ => Err(Refusal::new(
            406,
            format!("Invalid microversion: Unacceptable version header: {asked}"),
        )),
    }
}

fn dispatch(state: &mut State, req: &Req, path: &[&str]) -> Outcome {
    match (req.method.as_str(), path) {
        ("GET", ["resource_providers"]) => providers::list(state, req),
        ("POST", ["resource_providers"]) => providers::create(state, req),
        (_, ["resource_providers", id, rest @ ..]) => provider(state, req, id, rest),
        (_, ["traits", rest @ ..]) => traits::handle(state, req, rest),
        (_, ["allocations", rest @ ..]) => allocations::handle(state, req, rest),
        ("GET", ["allocation_candidates"]) => candidates::list(state, req),
        ("GET", ["resource_classes"]) => {
            let links =
                |name: &str| json!([{"rel": "self", "href": format!("/placement/resource_classes/{name}")}]);
            let all: Vec<Value> = RESOURCE_CLASSES
                .iter()
                .map(|name| json!({"name": name, "links": links(name)}))
                .collect();
            Ok(Answer::ok(json!({"resource_classes": all})))
        }
        ("GET", ["usages"]) => Ok(usages(state, req)),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn provider(state: &mut State, req: &Req, id: &str, rest: &[&str]) -> Outcome {
    match (req.method.as_str(), rest) {
        ("GET", []) => providers::show(state, req, id),
        ("PUT", []) => providers::rename(state, req, id),
        ("DELETE", []) => providers::delete(state, id),
        ("GET", ["traits"]) => traits::of_provider(state, id),
        ("PUT", ["traits"]) => traits::set(state, req, id),
        ("DELETE", ["traits"]) => traits::clear(state, id),
        ("GET", ["inventories"]) => providers::inventories(state, id),
        ("PUT", ["inventories"]) => providers::set_inventories(state, req, id),
        ("GET", ["inventories", class]) => providers::inventory(state, id, class),
        ("GET", ["usages"]) => providers::usages(state, id),
        ("GET", ["aggregates"]) => providers::aggregates(state, req, id),
        ("PUT", ["aggregates"]) => providers::set_aggregates(state, req, id),
        ("GET", ["allocations"]) => allocations::of_provider(state, req, id),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

/// A provider, or 404 in the words of the caller's handler.
fn find<'a>(
    placement: &'a Placement,
    id: &str,
    words: impl FnOnce(&str) -> String,
) -> Result<&'a Provider, Refusal> {
    uuid(id)
        .and_then(|id| placement.providers.get(&id))
        .ok_or_else(|| Refusal::missing(words(id)))
}

fn usages(state: &State, req: &Req) -> Answer {
    let project = req.param("project_id").unwrap_or_default();
    let mut sum: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for consumer in state
        .placement
        .consumers
        .values()
        .filter(|consumer| consumer.project == project)
    {
        for (class, amount) in consumer.allocations.values().flatten() {
            *sum.entry(class).or_default() += amount;
        }
    }
    Answer::ok(json!({"usages": sum}))
}
