// SPDX-License-Identifier: Apache-2.0
//! Resource providers with their inventories, usages and aggregates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Refusal, Req, uuid};
use super::find;
use crate::world::{Inventory, Provider, RESOURCE_CLASSES, Resources, State};

fn not_found(id: &str) -> String {
    format!("No resource provider with uuid {id} found : No resource provider with uuid {id}.")
}

fn view(req: &Req, provider: &Provider) -> Value {
    let at = format!("/placement/resource_providers/{}", provider.uuid);
    let mut links = vec![
        json!({"rel": "self", "href": at}),
        json!({"rel": "inventories", "href": format!("{at}/inventories")}),
        json!({"rel": "usages", "href": format!("{at}/usages")}),
    ];
    for (rel, since) in [("aggregates", 1), ("traits", 6), ("allocations", 11)] {
        if req.since(since) {
            links.push(json!({"rel": rel, "href": format!("{at}/{rel}")}));
        }
    }
    let mut shown = json!({
        "uuid": provider.uuid.to_string(), "name": provider.name, "generation": provider.generation, "links": links,
    });
    if req.since(14) {
        shown["parent_provider_uuid"] = json!(provider.parent.map(|id| id.to_string()));
        shown["root_provider_uuid"] = provider.parent.unwrap_or(provider.uuid).to_string().into();
    }
    shown
}

pub(super) fn list(state: &mut State, req: &Req) -> Outcome {
    let resources = amounts(req.param("resources").unwrap_or_default())?;
    let required = TraitRule::all(state, req)?;
    let member: Vec<BTreeSet<Uuid>> = req
        .params("member_of")
        .map(|text| {
            text.trim_start_matches("in:")
                .split(',')
                .filter_map(uuid)
                .collect()
        })
        .collect();
    let wanted = |provider: &&Provider| {
        req.param("name").is_none_or(|name| provider.name == name)
            && req
                .param("uuid")
                .and_then(uuid)
                .is_none_or(|id| provider.uuid == id)
            && req
                .param("in_tree")
                .and_then(uuid)
                .is_none_or(|id| provider.uuid == id || provider.parent == Some(id))
            && provider.fits(&resources)
            && required.iter().all(|rule| rule.holds(&provider.traits))
            && member.iter().all(|set| !set.is_disjoint(&provider.aggregates))
    };
    let shown: Vec<Value> = state
        .placement
        .providers
        .values()
        .filter(wanted)
        .map(|p| view(req, p))
        .collect();
    Ok(Answer::ok(json!({"resource_providers": shown})))
}

/// `VCPU:2,MEMORY_MB:512`.
pub(super) fn amounts(text: &str) -> Result<Resources, Refusal> {
    let mut found = Resources::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let Some((class, amount)) = part
            .split_once(':')
            .and_then(|(class, n)| Some((class, n.parse().ok()?)))
        else {
            return Err(Refusal::bad(format!(
                "Badly formed resources parameter. Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024. Got: {text}."
            )));
        };
        if !RESOURCE_CLASSES.contains(&class) && !class.starts_with("CUSTOM_") {
            return Err(Refusal::bad(format!(
                "Invalid resource class in resources parameter: No such resource class {class}."
            )));
        }
        found.insert(class.to_owned(), amount);
    }
    Ok(found)
}

/// One part of `required`.
pub(super) enum TraitRule {
    Has(String),
    Lacks(String),
    HasAny(BTreeSet<String>),
}

impl TraitRule {
    pub(super) fn all(state: &State, req: &Req) -> Result<Vec<Self>, Refusal> {
        let mut rules = Vec::new();
        for text in req.params("required") {
            if let Some(any) = text.strip_prefix("in:") {
                rules.push(Self::HasAny(any.split(',').map(str::to_owned).collect()));
                continue;
            }
            for name in text.split(',').filter(|name| !name.is_empty()) {
                rules.push(match name.strip_prefix('!') {
                    Some(name) => Self::Lacks(name.to_owned()),
                    None => Self::Has(name.to_owned()),
                });
            }
        }
        let names = rules.iter().flat_map(|rule| match rule {
            Self::Has(name) | Self::Lacks(name) => vec![name],
            Self::HasAny(names) => names.iter().collect(),
        });
        let unknown: Vec<&String> = names.filter(|name| !state.placement.knows_trait(name)).collect();
        if let Some(name) = unknown.first() {
            return Err(Refusal::bad(format!("No such trait(s): {name}.")));
        }
        Ok(rules)
    }

    pub(super) fn holds(&self, traits: &BTreeSet<String>) -> bool {
        match self {
            Self::Has(name) => traits.contains(name),
            Self::Lacks(name) => !traits.contains(name),
            Self::HasAny(names) => !names.is_disjoint(traits),
        }
    }
}

pub(super) fn show(state: &mut State, req: &Req, id: &str) -> Outcome {
    let words = |id: &str| format!("No resource provider with uuid {id} found");
    let provider = find(&state.placement, id, words)?;
    Ok(Answer::ok(view(req, provider)))
}

fn name_taken(state: &State, name: &str, but: Uuid) -> Result<(), Refusal> {
    if state
        .placement
        .providers
        .values()
        .any(|other| other.name == name && other.uuid != but)
    {
        let text = format!("Conflicting resource provider {name} already exists.");
        return Err(Refusal::conflict(text).code("placement.duplicate_name"));
    }
    Ok(())
}

pub(super) fn create(state: &mut State, req: &Req) -> Outcome {
    let body = req.json()?;
    let name = body["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::bad("JSON does not validate: 'name' is a required property"))?;
    let id = body["uuid"]
        .as_str()
        .and_then(uuid)
        .unwrap_or_else(|| state.fresh());
    name_taken(state, name, Uuid::nil())?;
    if state.placement.providers.contains_key(&id) {
        let text = format!("Conflicting resource provider uuid: {id} already exists.");
        return Err(Refusal::conflict(text).code("placement.duplicate_name"));
    }
    let mut provider = Provider::new(id, name);
    provider.parent = body["parent_provider_uuid"].as_str().and_then(uuid);
    let shown = view(req, &provider);
    state.placement.providers.insert(id, provider);
    let location = format!("{}/resource_providers/{id}", req.base());
    let answer = if req.since(20) {
        Answer::ok(shown)
    } else {
        Answer::empty(201)
    };
    Ok(answer.header("location", location))
}

pub(super) fn rename(state: &mut State, req: &Req, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?.uuid;
    let body = req.json()?;
    let name = body["name"].as_str().unwrap_or_default();
    name_taken(state, name, provider)?;
    let Some(provider) = state.placement.providers.get_mut(&provider) else {
        return Err(Refusal::missing(not_found(id)));
    };
    name.clone_into(&mut provider.name);
    Ok(Answer::ok(view(req, provider)))
}

pub(super) fn delete(state: &mut State, id: &str) -> Outcome {
    let words = |id: &str| format!("No resource provider with uuid {id} found for delete");
    let provider = find(&state.placement, id, words)?;
    if !provider.consumers.is_empty() {
        let text = format!("Unable to delete resource provider {id}: Resource provider has allocations.");
        return Err(Refusal::conflict(text).code("placement.resource_provider.inuse"));
    }
    if state
        .placement
        .providers
        .values()
        .any(|child| child.parent == Some(provider.uuid))
    {
        let text =
            format!("Unable to delete parent resource provider {id}: It has child resource providers.");
        return Err(Refusal::conflict(text).code("placement.resource_provider.cannot_delete_parent"));
    }
    let uuid = provider.uuid;
    state.placement.remove_provider(uuid);
    Ok(Answer::empty(204))
}

pub(super) fn inventories(state: &mut State, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    Ok(Answer::ok(json!({
        "resource_provider_generation": provider.generation, "inventories": provider.inventories,
    })))
}

pub(super) fn inventory(state: &mut State, id: &str, class: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    let missing = || Refusal::missing(format!("No inventory of class {class} for {id}"));
    let mut shown = json!(provider.inventories.get(class).ok_or_else(missing)?);
    shown["resource_provider_generation"] = provider.generation.into();
    Ok(Answer::ok(shown))
}

pub(super) fn set_inventories(state: &mut State, req: &Req, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    let (uuid, generation) = (provider.uuid, provider.generation);
    let body = req.json()?;
    if body["resource_provider_generation"].as_u64() != Some(generation) {
        let text = "resource provider generation conflict";
        return Err(Refusal::conflict(text).code("placement.concurrent_update"));
    }
    let new: Result<BTreeMap<String, Inventory>, _> = serde_json::from_value(body["inventories"].clone());
    let new = new.map_err(|why| Refusal::bad(format!("JSON does not validate: {why}")))?;
    let in_use = provider
        .used
        .iter()
        .find(|(class, used)| **used > 0 && !new.contains_key(*class));
    if let Some((class, _)) = in_use {
        let text = format!("update conflict: Inventory for '{class}' on resource provider '{id}' in use.");
        return Err(Refusal::conflict(text).code("placement.inventory.inuse"));
    }
    let Some(provider) = state.placement.providers.get_mut(&uuid) else {
        return Err(Refusal::missing(not_found(id)));
    };
    provider.inventories = new;
    provider.generation += 1;
    inventories(state, id)
}

pub(super) fn usages(state: &mut State, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    let used: BTreeMap<&String, u64> = provider
        .inventories
        .keys()
        .map(|class| (class, provider.used.get(class).copied().unwrap_or(0)))
        .collect();
    Ok(Answer::ok(
        json!({"resource_provider_generation": provider.generation, "usages": used}),
    ))
}

pub(super) fn aggregates(state: &mut State, req: &Req, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    let names: Vec<String> = provider.aggregates.iter().map(Uuid::to_string).collect();
    let mut shown = json!({"aggregates": names});
    if req.since(19) {
        shown["resource_provider_generation"] = provider.generation.into();
    }
    Ok(Answer::ok(shown))
}

pub(super) fn set_aggregates(state: &mut State, req: &Req, id: &str) -> Outcome {
    let provider = find(&state.placement, id, not_found)?;
    let (key, generation) = (provider.uuid, provider.generation);
    let body = req.json()?;
    let list = if req.since(19) {
        if body["resource_provider_generation"].as_u64() != Some(generation) {
            let text =
                "Resource provider's generation already changed. Please update the generation and try again.";
            return Err(Refusal::conflict(text).code("placement.concurrent_update"));
        }
        &body["aggregates"]
    } else {
        &body
    };
    let new: BTreeSet<Uuid> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|id| uuid(id.as_str()?))
        .collect();
    if let Some(provider) = state.placement.providers.get_mut(&key) {
        provider.aggregates = new;
        provider.generation += u64::from(req.since(19));
    }
    aggregates(state, req, id)
}
