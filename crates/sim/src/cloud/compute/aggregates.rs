// SPDX-License-Identifier: Apache-2.0
//! Host aggregates. Nova mirrors membership to Placement's aggregates, and keeps a host from being in two zones.

use serde_json::{Value, json};

use super::super::http::{Answer, Outcome, Refusal, Req};
use super::admin;
use crate::world::{Aggregate, HostName, Moment, State};

pub(super) fn handle(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    match (req.method.as_str(), rest) {
        ("GET", []) => {
            admin(req, "os-aggregates:index")?;
            let all: Vec<Value> = state
                .aggregates
                .values()
                .map(|aggregate| view(req, aggregate))
                .collect();
            Ok(Answer::ok(json!({"aggregates": all})))
        }
        ("POST", []) => create(state, req),
        ("GET", [id]) => {
            admin(req, "os-aggregates:show")?;
            Ok(Answer::ok(json!({"aggregate": view(req, find(state, id)?)})))
        }
        ("PUT", [id]) => update(state, req, id),
        ("DELETE", [id]) => delete(state, req, id),
        ("POST", [id, "action"]) => action(state, req, id),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn view(req: &Req, aggregate: &Aggregate) -> Value {
    let mut shown = json!({
        "id": aggregate.id, "name": aggregate.name, "hosts": aggregate.hosts, "metadata": aggregate.metadata,
        "availability_zone": aggregate.zone(), "created_at": aggregate.created.naive(),
        "updated_at": aggregate.updated.map(Moment::naive), "deleted": false, "deleted_at": null,
    });
    if req.since(41) {
        shown["uuid"] = aggregate.uuid.to_string().into();
    }
    shown
}

fn number(id: &str) -> Result<u64, Refusal> {
    id.parse()
        .map_err(|_| Refusal::bad("Invalid input received: id must be an integer"))
}

fn missing(id: &str) -> Refusal {
    Refusal::missing(format!("Aggregate {id} could not be found."))
}

fn find<'a>(state: &'a State, id: &str) -> Result<&'a Aggregate, Refusal> {
    state.aggregates.get(&number(id)?).ok_or_else(|| missing(id))
}

fn create(state: &mut State, req: &Req) -> Outcome {
    admin(req, "os-aggregates:create")?;
    let body = req.json()?;
    let asked = &body["aggregate"];
    let name = asked["name"]
        .as_str()
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| Refusal::bad("Invalid input for field/attribute name. Value: . '' is too short"))?;
    if state.aggregates.values().any(|aggregate| aggregate.name == name) {
        return Err(Refusal::conflict(format!("Aggregate {name} already exists.")));
    }
    let id = state.aggregates.keys().next_back().map_or(1, |last| last + 1);
    let mut aggregate = Aggregate {
        id,
        uuid: state.fresh(),
        name: name.to_owned(),
        hosts: std::collections::BTreeSet::new(),
        metadata: std::collections::BTreeMap::new(),
        created: state.now,
        updated: None,
    };
    if let Some(zone) = asked["availability_zone"].as_str() {
        aggregate
            .metadata
            .insert("availability_zone".to_owned(), zone.to_owned());
    }
    let mut shown = view(req, &aggregate);
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("hosts");
        fields.remove("metadata");
    }
    state.aggregates.insert(id, aggregate);
    Ok(Answer::ok(json!({"aggregate": shown})))
}

fn update(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-aggregates:update")?;
    let number = find(state, id)?.id;
    let body = req.json()?;
    let asked = &body["aggregate"];
    if let Some(name) = asked["name"].as_str()
        && state
            .aggregates
            .values()
            .any(|other| other.name == name && other.id != number)
    {
        return Err(Refusal::conflict(format!("Aggregate {name} already exists.")));
    }
    if let Some(zone) = asked["availability_zone"].as_str() {
        zone_change(state, number, zone, "update")?;
    }
    let now = state.now;
    let Some(aggregate) = state.aggregates.get_mut(&number) else {
        return Err(missing(id));
    };
    if let Some(name) = asked["name"].as_str() {
        name.clone_into(&mut aggregate.name);
    }
    if let Some(zone) = asked["availability_zone"].as_str() {
        aggregate
            .metadata
            .insert("availability_zone".to_owned(), zone.to_owned());
    }
    aggregate.updated = Some(now);
    Ok(Answer::ok(json!({"aggregate": view(req, aggregate)})))
}

/// Hosts of an aggregate may be in one zone only, and servers do not change zones.
fn zone_change(state: &State, id: u64, zone: &str, what: &str) -> Result<(), Refusal> {
    let Some(aggregate) = state.aggregates.get(&id) else {
        return Err(missing(&id.to_string()));
    };
    let refuse = |reason: String| {
        Err(Refusal::bad(format!(
            "Cannot {what} aggregate {id}. Reason: {reason}."
        )))
    };
    for host in &aggregate.hosts {
        if let Some(other) = other_zone(state, host, zone, id) {
            return refuse(format!(
                "One or more hosts already in availability zone(s) ['{other}']"
            ));
        }
    }
    let busy = aggregate
        .hosts
        .iter()
        .any(|host| state.servers_on(host.as_str()).next().is_some());
    if aggregate.zone() != Some(zone) && busy {
        return refuse("One or more hosts contain instances in this zone".to_owned());
    }
    Ok(())
}

fn other_zone(state: &State, host: &HostName, zone: &str, but: u64) -> Option<String> {
    let others = state
        .aggregates
        .values()
        .filter(|other| other.id != but && other.has(host.as_str()));
    others
        .filter_map(Aggregate::zone)
        .find(|other| *other != zone)
        .map(str::to_owned)
}

fn delete(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-aggregates:delete")?;
    let aggregate = find(state, id)?;
    if !aggregate.hosts.is_empty() {
        return Err(Refusal::bad(format!(
            "Cannot remove host from aggregate {id}. Reason: Host aggregate is not empty."
        )));
    }
    let number = aggregate.id;
    state.aggregates.remove(&number);
    Ok(Answer::empty(200))
}

fn action(state: &mut State, req: &Req, id: &str) -> Outcome {
    let body = req.json()?;
    let Some((name, args)) = body.as_object().and_then(|fields| fields.iter().next()) else {
        return Err(Refusal::bad("Malformed request body"));
    };
    admin(req, &format!("os-aggregates:{name}"))?;
    let host = HostName::from(args["host"].as_str().unwrap_or_default());
    let number = number(id)?;
    match name.as_str() {
        "add_host" => add(state, number, &host)?,
        "remove_host" => remove(state, number, &host)?,
        "set_metadata" => metadata(state, number, &args["metadata"])?,
        _ => return Err(Refusal::bad(format!("There is no such action: {name}"))),
    }
    let now = state.now;
    let aggregate = state.aggregates.get_mut(&number).ok_or_else(|| missing(id))?;
    aggregate.updated = Some(now);
    Ok(Answer::ok(json!({"aggregate": view(req, aggregate)})))
}

fn add(state: &mut State, id: u64, host: &HostName) -> Result<(), Refusal> {
    let node = state
        .hosts
        .get(host)
        .filter(|host| host.service.is_some())
        .map(|host| host.node_uuid);
    let node = node.ok_or_else(|| Refusal::missing(format!("Compute host {host} could not be found.")))?;
    let aggregate = state
        .aggregates
        .get(&id)
        .ok_or_else(|| missing(&id.to_string()))?;
    if let Some(zone) = aggregate.zone() {
        if let Some(other) = other_zone(state, host, zone, id) {
            return Err(Refusal::conflict(format!(
                "Cannot add host to aggregate {id}. Reason: One or more hosts already in availability zone(s) ['{other}']."
            )));
        }
        let leaves = state.zone_of(host.as_str()) != zone && !aggregate.has(host.as_str());
        if leaves && state.servers_on(host.as_str()).next().is_some() {
            return Err(Refusal::conflict(format!(
                "Cannot add host to aggregate {id}. Reason: One or more hosts contain instances in this zone."
            )));
        }
    }
    if aggregate.has(host.as_str()) {
        return Err(Refusal::conflict(format!(
            "Aggregate {id} already has host {host}."
        )));
    }
    let uuid = aggregate.uuid;
    if let Some(aggregate) = state.aggregates.get_mut(&id) {
        aggregate.hosts.insert(host.clone());
    }
    if let Some(provider) = state.placement.providers.get_mut(&node) {
        provider.generation += u64::from(provider.aggregates.insert(uuid));
    }
    Ok(())
}

fn remove(state: &mut State, id: u64, host: &HostName) -> Result<(), Refusal> {
    let refuse =
        |make: fn(String) -> Refusal| Err(make(format!("Cannot remove host {host} in aggregate {id}")));
    let Some(aggregate) = state
        .aggregates
        .get(&id)
        .filter(|aggregate| aggregate.has(host.as_str()))
    else {
        return refuse(Refusal::missing);
    };
    if aggregate.zone().is_some() && state.servers_on(host.as_str()).next().is_some() {
        return refuse(Refusal::conflict);
    }
    let uuid = aggregate.uuid;
    if let Some(aggregate) = state.aggregates.get_mut(&id) {
        aggregate.hosts.remove(host);
    }
    let node = state
        .hosts
        .get(host)
        .map(|host| host.node_uuid)
        .unwrap_or_default();
    if let Some(provider) = state.placement.providers.get_mut(&node) {
        provider.generation += u64::from(provider.aggregates.remove(&uuid));
    }
    Ok(())
}

/// Pairs with a value are set, pairs with null go.
fn metadata(state: &mut State, id: u64, pairs: &Value) -> Result<(), Refusal> {
    if let Some(zone) = pairs["availability_zone"].as_str() {
        zone_change(state, id, zone, "update metadata of")?;
    }
    let aggregate = state
        .aggregates
        .get_mut(&id)
        .ok_or_else(|| missing(&id.to_string()))?;
    for (key, value) in pairs.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => aggregate.metadata.insert(key.clone(), value.to_owned()),
            None => aggregate.metadata.remove(key),
        };
    }
    Ok(())
}
