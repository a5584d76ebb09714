// SPDX-License-Identifier: Apache-2.0
//! Allocation candidates: every provider that has room for one request group and the traits it asks for.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Refusal, Req, uuid};
use super::providers::{TraitRule, amounts};
use crate::world::{Provider, State};

pub(super) fn list(state: &mut State, req: &Req) -> Outcome {
    let Some(text) = req.param("resources") else {
        let text = "There must be at least one resources or resources[$S] parameter.";
        return Err(Refusal::bad(text).code("placement.query.missing_value"));
    };
    let wanted = amounts(text)?;
    let rules = TraitRule::all(state, req)?;
    let limit = req
        .param("limit")
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(usize::MAX);
    let member: Vec<BTreeSet<Uuid>> = req
        .params("member_of")
        .map(|text| {
            text.trim_start_matches("in:")
                .split(',')
                .filter_map(uuid)
                .collect()
        })
        .collect();
    let fits = |provider: &&Provider| {
        provider.fits(&wanted)
            && rules.iter().all(|rule| rule.holds(&provider.traits))
            && member.iter().all(|set| !set.is_disjoint(&provider.aggregates))
            && req
                .param("in_tree")
                .and_then(uuid)
                .is_none_or(|id| provider.uuid == id)
    };
    let found: Vec<&Provider> = state
        .placement
        .providers
        .values()
        .filter(fits)
        .take(limit)
        .collect();
    let requests: Vec<Value> = found
        .iter()
        .map(|provider| {
            let id = provider.uuid.to_string();
            let mut request = json!({"allocations": {(id.clone()): {"resources": wanted}}});
            if req.since(34) {
                request["mappings"] = json!({"": [id]});
            }
            request
        })
        .collect();
    let mut summaries = Map::new();
    for provider in found {
        let resources: Map<String, Value> = provider
            .inventories
            .iter()
            .map(|(class, inventory)| {
                let used = provider.used.get(class).copied().unwrap_or(0);
                (
                    class.clone(),
                    json!({"capacity": inventory.capacity(), "used": used}),
                )
            })
            .collect();
        let mut summary = json!({"resources": resources});
        if req.since(17) {
            summary["traits"] = json!(provider.traits);
        }
        if req.since(29) {
            summary["parent_provider_uuid"] = json!(provider.parent.map(|id| id.to_string()));
            summary["root_provider_uuid"] = provider.parent.unwrap_or(provider.uuid).to_string().into();
        }
        summaries.insert(provider.uuid.to_string(), summary);
    }
    Ok(Answer::ok(
        json!({"allocation_requests": requests, "provider_summaries": summaries}),
    ))
}
