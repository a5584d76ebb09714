// SPDX-License-Identifier: Apache-2.0
//! Traits: those that exist, and those a provider has.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::http::{Answer, Outcome, Refusal, Req};
use super::find;
use crate::world::{STANDARD_TRAITS, State};

fn not_found(id: &str) -> String {
    format!("No resource provider with uuid {id} found: No resource provider with uuid {id} found")
}

/// Whether Placement would take it as a custom trait.
fn well_formed(name: &str) -> bool {
    let rest = name.strip_prefix("CUSTOM_").unwrap_or_default();
    let letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !rest.is_empty() && name.len() <= 255 && rest.bytes().all(letter)
}

pub(super) fn handle(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    let missing = |name: &str| Refusal::missing(format!("No such trait(s): {name}."));
    match (req.method.as_str(), rest) {
        ("GET", []) => Ok(list(state, req)),
        ("GET", [name]) => {
            if state.placement.knows_trait(name) {
                Ok(Answer::empty(204))
            } else {
                Err(missing(name))
            }
        }
        ("PUT", [name]) => {
            if !well_formed(name) {
                return Err(Refusal::bad(
                    "The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix \"CUSTOM_\" and use following characters: \"A\"-\"Z\", \"0\"-\"9\" and \"_\"",
                ));
            }
            let new = state.placement.custom_traits.insert((*name).to_owned());
            let location = format!("{}/traits/{name}", req.base());
            Ok(Answer::empty(if new { 201 } else { 204 }).header("location", location))
        }
        ("DELETE", [name]) => {
            if STANDARD_TRAITS.contains(name) {
                return Err(Refusal::bad(format!("Cannot delete standard trait {name}.")));
            }
            if !state.placement.custom_traits.contains(*name) {
                return Err(missing(name));
            }
            if state
                .placement
                .providers
                .values()
                .any(|provider| provider.traits.contains(*name))
            {
                return Err(Refusal::conflict(format!(
                    "The trait {name} is in use by a resource provider."
                )));
            }
            state.placement.custom_traits.remove(*name);
            Ok(Answer::empty(204))
        }
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn list(state: &State, req: &Req) -> Answer {
    let used: Option<BTreeSet<&str>> = req.param("associated").map(|_| {
        let traits = state
            .placement
            .providers
            .values()
            .flat_map(|provider| &provider.traits);
        traits.map(String::as_str).collect()
    });
    let associated = req.flag("associated");
    let wanted = |name: &&str| {
        let by_name = match req.param("name").and_then(|rule| rule.split_once(':')) {
            Some(("in", names)) => names.split(',').any(|wanted| wanted == *name),
            Some(("startswith", prefix)) => name.starts_with(prefix),
            _ => true,
        };
        by_name
            && used
                .as_ref()
                .is_none_or(|used| used.contains(*name) == associated)
    };
    let all = STANDARD_TRAITS
        .iter()
        .copied()
        .chain(state.placement.custom_traits.iter().map(String::as_str));
    let shown: Vec<&str> = all.filter(wanted).collect();
    Answer::ok(json!({"traits": shown}))
}

pub(super) fn of_provider(state: &mut State, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    Ok(Answer::ok(json!({
        "traits": provider.traits, "resource_provider_generation": provider.generation,
    })))
}

pub(super) fn set(state: &mut State, req: &Req, id: &str) -> Outcome {
    let body = req.json()?;
    let generation = body["resource_provider_generation"].as_u64();
    let Some(names) = body["traits"].as_array().filter(|_| generation.is_some()) else {
        return Err(Refusal::bad(
            "JSON does not validate: 'traits' is a required property",
        ));
    };
    let new: BTreeSet<String> = names
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let words = |id: &str| format!("No resource provider with uuid {id} found");
    let provider = find(&state.placement, id, words)?;
    if generation != Some(provider.generation) {
        let text =
            "Resource provider's generation already changed. Please update the generation and try again.";
        return Err(Refusal::conflict(text).code("placement.concurrent_update"));
    }
    let unknown: Vec<&str> = new
        .iter()
        .filter(|name| !state.placement.knows_trait(name))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        return Err(Refusal::bad(format!("No such trait {}", unknown.join(", "))));
    }
    let uuid = provider.uuid;
    if let Some(provider) = state.placement.providers.get_mut(&uuid) {
        provider.generation += u64::from(provider.traits != new);
        provider.traits = new;
    }
    of_provider(state, id)
}

pub(super) fn clear(state: &mut State, id: &str) -> Outcome {
    let uuid = find(&state.placement, id, not_found)?.uuid;
    if let Some(provider) = state.placement.providers.get_mut(&uuid) {
        provider.traits.clear();
        provider.generation += 1;
    }
    Ok(Answer::empty(204))
}
