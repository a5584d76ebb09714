// SPDX-License-Identifier: Apache-2.0
//! Flavors and their extra specs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::http::{Answer, Outcome, Page, Refusal, Req, next_link};
use super::{admin, view};
use crate::world::{Flavor, State};

pub(super) fn handle(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    match (req.method.as_str(), rest) {
        ("GET", []) => list(state, req, false),
        ("GET", ["detail"]) => list(state, req, true),
        ("POST", []) => create(state, req),
        ("GET", [id]) => Ok(Answer::ok(json!({"flavor": full(req, find(state, id)?)}))),
        ("DELETE", [id]) => {
            admin(req, "os-flavor-manage:delete")?;
            find(state, id)?;
            state.flavors.remove(*id);
            Ok(Answer::empty(202))
        }
        ("GET", [id, "os-extra_specs"]) => {
            Ok(Answer::ok(json!({"extra_specs": find(state, id)?.extra_specs})))
        }
        ("POST", [id, "os-extra_specs"]) => {
            admin(req, "os-flavor-extra-specs:create")?;
            find(state, id)?;
            let new = pairs(&req.json()?["extra_specs"]);
            if let Some(flavor) = state.flavors.get_mut(*id) {
                flavor.extra_specs.extend(new.clone());
            }
            Ok(Answer::ok(json!({"extra_specs": new})))
        }
        ("DELETE", [id, "os-extra_specs", key]) => {
            admin(req, "os-flavor-extra-specs:delete")?;
            find(state, id)?;
            let gone = state
                .flavors
                .get_mut(*id)
                .and_then(|flavor| flavor.extra_specs.remove(*key));
            let missing = || Refusal::missing(format!("Flavor {id} has no extra specs with key {key}."));
            gone.ok_or_else(missing).map(|_| Answer::empty(200))
        }
        ("GET", [_, "os-flavor-access"]) => Ok(Answer::ok(json!({"flavor_access": []}))),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn find<'a>(state: &'a State, id: &str) -> Result<&'a Flavor, Refusal> {
    let missing = || Refusal::missing(format!("Flavor {id} could not be found."));
    state.flavors.get(id).ok_or_else(missing)
}

fn pairs(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.map(|(key, value)| (key.clone(), text(value))).collect()
}

fn list(state: &State, req: &Req, detail: bool) -> Outcome {
    let all: Vec<&Flavor> = state.flavors.values().collect();
    let (page, next) = Page::of(req)?.cut(all, |flavor| flavor.id.clone())?;
    let show = |flavor: &Flavor| {
        if detail {
            full(req, flavor)
        } else {
            brief(req, flavor)
        }
    };
    let mut body = json!({"flavors": page.into_iter().map(show).collect::<Vec<_>>()});
    if let Some(marker) = next {
        let end = if detail { "flavors/detail" } else { "flavors" };
        body["flavors_links"] = next_link(req, &format!("{}/v2.1/{end}", req.base()), &marker);
    }
    Ok(Answer::ok(body))
}

fn brief(req: &Req, flavor: &Flavor) -> Value {
    let mut shown =
        json!({"id": flavor.id, "name": flavor.name, "links": view::links(req, "flavors", &flavor.id)});
    if req.since(55) {
        shown["description"] = json!(flavor.description);
    }
    shown
}

fn full(req: &Req, flavor: &Flavor) -> Value {
    let mut shown = brief(req, flavor);
    let swap: Value = if flavor.swap_mb == 0 && !req.since(75) {
        "".into()
    } else {
        flavor.swap_mb.into()
    };
    let more = json!({
        "ram": flavor.ram_mb, "disk": flavor.disk_gb, "vcpus": flavor.vcpus, "swap": swap,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb, "OS-FLV-DISABLED:disabled": false,
        "os-flavor-access:is_public": flavor.public, "rxtx_factor": 1.0,
    });
    if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
        shown.extend(more);
    }
    if req.since(61) {
        shown["extra_specs"] = json!(flavor.extra_specs);
    }
    shown
}

fn create(state: &mut State, req: &Req) -> Outcome {
    admin(req, "os-flavor-manage:create")?;
    let body = req.json()?;
    let asked = &body["flavor"];
    let number = |name: &str| match &asked[name] {
        Value::Number(value) => value.as_u64(),
        Value::String(value) => value.parse().ok(),
        _ => None,
    };
    let name = asked["name"].as_str().unwrap_or_default().to_owned();
    let (Some(ram_mb), Some(vcpus)) = (number("ram"), number("vcpus")) else {
        return Err(Refusal::bad(
            "Invalid input for field/attribute flavor. 'ram' is a required property",
        ));
    };
    if state.flavors.values().any(|flavor| flavor.name == name) {
        return Err(Refusal::conflict(format!(
            "Flavor with name {name} already exists."
        )));
    }
    let id = asked["id"].as_str().filter(|id| *id != "auto").map(str::to_owned);
    let id = id.unwrap_or_else(|| state.fresh().to_string());
    if state.flavors.contains_key(&id) {
        return Err(Refusal::conflict(format!("Flavor with ID {id} already exists.")));
    }
    let flavor = Flavor {
        id: id.clone(),
        name,
        vcpus: u32::try_from(vcpus).unwrap_or(1),
        ram_mb,
        disk_gb: number("disk").unwrap_or(0),
        ephemeral_gb: number("OS-FLV-EXT-DATA:ephemeral").unwrap_or(0),
        swap_mb: number("swap").unwrap_or(0),
        extra_specs: BTreeMap::new(),
        public: asked["os-flavor-access:is_public"].as_bool().unwrap_or(true),
        description: asked["description"].as_str().map(str::to_owned),
    };
    let shown = full(req, &flavor);
    state.flavors.insert(id, flavor);
    Ok(Answer::ok(json!({"flavor": shown})))
}
