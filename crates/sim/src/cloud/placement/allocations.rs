// SPDX-License-Identifier: Apache-2.0
//! Allocations of consumers and at providers. An unknown consumer has an empty set of allocations, not none.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Refusal, Req, uuid};
use super::find;
use crate::world::{Consumer, Resources, State};

pub(super) fn handle(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    match (req.method.as_str(), rest) {
        ("GET", [id]) => Ok(show(state, req, id)),
        ("PUT", [id]) => set(state, req, id),
        ("DELETE", [id]) => {
            let held = uuid(id).filter(|id| state.placement.consumers.contains_key(id));
            let held = held.ok_or_else(|| Refusal::missing(format!("No allocations for consumer '{id}'")))?;
            state.placement.allocate(held, Consumer::default());
            Ok(Answer::empty(204))
        }
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn show(state: &State, req: &Req, id: &str) -> Answer {
    let found = uuid(id).and_then(|id| state.placement.consumers.get(&id));
    let Some(consumer) = found else {
        return Answer::ok(json!({"allocations": {}}));
    };
    let mut shown = Map::new();
    for (provider, resources) in &consumer.allocations {
        let generation = state
            .placement
            .providers
            .get(provider)
            .map(|provider| provider.generation);
        shown.insert(
            provider.to_string(),
            json!({"resources": resources, "generation": generation}),
        );
    }
    let mut body = json!({"allocations": shown});
    if req.since(12) {
        body["project_id"] = consumer.project.clone().into();
        body["user_id"] = consumer.user.clone().into();
    }
    if req.since(28) {
        body["consumer_generation"] = consumer.generation.into();
    }
    if req.since(38) {
        body["consumer_type"] = consumer.kind.clone().into();
    }
    Answer::ok(body)
}

pub(super) fn of_provider(state: &mut State, req: &Req, id: &str) -> Outcome {
    let words =
        |id: &str| format!("Resource provider '{id}' not found: No resource provider with uuid {id}.");
    let provider = find(&state.placement, id, words)?;
    let mut shown = Map::new();
    for consumer in &provider.consumers {
        let Some(held) = state.placement.consumers.get(consumer) else {
            continue;
        };
        let mut entry = json!({"resources": held.allocations.get(&provider.uuid)});
        if req.since(28) {
            entry["consumer_generation"] = held.generation.into();
        }
        shown.insert(consumer.to_string(), entry);
    }
    Ok(Answer::ok(json!({
        "allocations": shown, "resource_provider_generation": provider.generation,
    })))
}

fn set(state: &mut State, req: &Req, id: &str) -> Outcome {
    let Some(consumer) = uuid(id) else {
        return Err(Refusal::bad(format!("Malformed consumer_uuid: {id}")));
    };
    let body = req.json()?;
    if req.since(28) {
        let known = state
            .placement
            .consumers
            .get(&consumer)
            .map(|held| held.generation);
        let expected = known.map_or(Value::Null, Value::from);
        if body.get("consumer_generation").unwrap_or(&Value::Null) != &expected {
            let text = format!(
                "consumer generation conflict - expected {} but got {}",
                known.map_or_else(|| "null".to_owned(), |known| known.to_string()),
                body["consumer_generation"],
            );
            return Err(Refusal::conflict(text).code("placement.concurrent_update"));
        }
    }
    let mut wanted: BTreeMap<Uuid, Resources> = BTreeMap::new();
    for (provider, entry) in body["allocations"].as_object().into_iter().flatten() {
        let resources: Resources = serde_json::from_value(entry["resources"].clone())
            .map_err(|why| Refusal::bad(format!("JSON does not validate: {why}")))?;
        let known = uuid(provider).filter(|id| state.placement.providers.contains_key(id));
        let known = known.ok_or_else(|| {
            Refusal::bad(format!(
                "Allocation for resource provider '{provider}' that does not exist."
            ))
        })?;
        wanted.insert(known, resources);
    }
    let before = state.placement.consumers.get(&consumer).cloned();
    // What it holds already does not count against itself.
    state.placement.allocate(consumer, Consumer::default());
    let lacks = wanted.iter().find(|(provider, resources)| {
        state
            .placement
            .providers
            .get(provider)
            .is_none_or(|provider| !provider.fits(resources))
    });
    if let Some((provider, resources)) = lacks {
        let class = resources.keys().next().cloned().unwrap_or_default();
        let text = format!(
            "Unable to allocate inventory: Unable to create allocation for '{class}' on resource provider '{provider}'. The requested amount would exceed the capacity."
        );
        if let Some(before) = before {
            restore(state, consumer, before);
        }
        return Err(Refusal::conflict(text));
    }
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let generation = before.map_or(0, |before| before.generation);
    let held = Consumer {
        generation,
        project: text("project_id"),
        user: text("user_id"),
        kind: body["consumer_type"].as_str().unwrap_or("INSTANCE").to_owned(),
        allocations: wanted,
    };
    restore(state, consumer, held);
    if let Some(held) = state.placement.consumers.get_mut(&consumer) {
        held.generation = generation + 1;
    }
    Ok(Answer::empty(204))
}

/// Puts allocations in place under a generation that was known before.
fn restore(state: &mut State, id: Uuid, held: Consumer) {
    let generation = held.generation;
    state.placement.allocate(id, held);
    if let Some(held) = state.placement.consumers.get_mut(&id) {
        held.generation = generation;
    }
}
