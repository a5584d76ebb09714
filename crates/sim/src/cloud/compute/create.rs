// SPDX-License-Identifier: Apache-2.0
//! New servers: what is asked for is checked in Nova's order, quotas included, then recorded; the rest takes its time.

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Refusal, Req, truthy, uuid};
use super::view;
use crate::world::{
    Attachment, BuildStep, Due, Flavor, HostName, Port, State, TaskState, VmState, Volume, hostname_of,
};

fn invalid(field: &str, value: &Value, why: &str) -> Refusal {
    Refusal::bad(format!(
        "Invalid input for field/attribute {field}. Value: {value}. {why}"
    ))
}

pub(super) fn create(state: &mut State, req: &Req) -> Outcome {
    let body = req.json()?;
    let asked = &body["server"];
    if !asked.is_object() {
        return Err(Refusal::bad(
            "Invalid input for field/attribute server. 'server' is a required property",
        ));
    }
    let me = req.caller()?.clone();
    let project = me
        .project()
        .ok_or_else(|| Refusal::policy("os_compute_api:servers:create"))?;
    let name = asked["name"]
        .as_str()
        .filter(|name| !name.trim().is_empty() && name.len() <= 255);
    let name = name
        .ok_or_else(|| invalid("name", &asked["name"], "is too short"))?
        .trim()
        .to_owned();
    let flavor = flavor(state, asked)?;
    let image = image(state, asked)?;
    let count = asked["min_count"]
        .as_u64()
        .unwrap_or(1)
        .max(asked["max_count"].as_u64().unwrap_or(1))
        .clamp(1, 100);
    let (zone, host) = zone(state, req, asked)?;
    let group = group(state, req, &body)?;
    quota(state, project, &flavor, count)?;
    let networks = networks(state, req, asked, project)?;
    let mut first = None;
    for index in 0..count {
        let shown = if count > 1 {
            format!("{name}-{}", index + 1)
        } else {
            name.clone()
        };
        let mut server = state.draft(shown, flavor.clone(), project, me.user);
        if let Some(hostname) = asked["hostname"].as_str().filter(|_| req.since(90)) {
            if hostname.len() > 63 || hostname.is_empty() {
                return Err(invalid("hostname", &asked["hostname"], "is too long"));
            }
            hostname.clone_into(&mut server.hostname);
        } else if server.hostname.is_empty() {
            server.hostname = hostname_of(&format!("Server-{}", server.id));
        }
        server.image = image;
        server.task_state = Some(TaskState::Scheduling);
        server.vm_state = VmState::Building;
        server.zone_asked.clone_from(&zone);
        server.group = group;
        server.description = asked["description"].as_str().map(str::to_owned);
        server.key_name = asked["key_name"].as_str().map(str::to_owned);
        server.config_drive = truthy(&asked["config_drive"]);
        server.metadata = strings(&asked["metadata"]);
        server.tags = asked["tags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|t| t.as_str().map(str::to_owned))
            .collect();
        let groups: Vec<String> = asked["security_groups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|group| group["name"].as_str().map(str::to_owned))
            .collect();
        if !groups.is_empty() {
            server.security_groups = groups;
        }
        let id = server.id;
        server.volumes = volumes(state, asked, &me, project, id, zone.as_deref())?;
        if server.image.is_none() && server.volumes.is_empty() {
            return Err(Refusal::bad("Invalid imageRef provided."));
        }
        server.ports = networks
            .iter()
            .filter_map(|network| plug(state, *network, project, id))
            .collect();
        state.add_server(server);
        // A forced host is remembered as the place until the scheduler has spoken.
        state.place(id, host.clone());
        if let Some(group) = group.and_then(|group| state.groups.get_mut(&group)) {
            group.members.insert(id);
        }
        state.note_action(id, "create", &req.id, me.user);
        let span = state.settings.schedule;
        state.after(span, Due::Build(id, BuildStep::Schedule));
        first.get_or_insert(id);
    }
    let id = first.unwrap_or_default().to_string();
    let location = format!("{}/v2.1/servers/{id}", req.base());
    let groups = state
        .servers
        .get(&first.unwrap_or_default())
        .map(|server| server.security_groups.clone());
    let groups: Vec<Value> = groups
        .unwrap_or_default()
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    let shown = json!({"server": {
        "id": id, "links": view::links(req, "servers", &id), "OS-DCF:diskConfig": "MANUAL",
        "adminPass": "simulated", "security_groups": groups,
    }});
    Ok(Answer::new(202, shown).header("location", location))
}

fn strings(value: &Value) -> std::collections::BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter_map(|(key, value)| value.as_str().map(|value| (key.clone(), value.to_owned())))
        .collect()
}

fn flavor(state: &State, asked: &Value) -> Result<Flavor, Refusal> {
    let id = match &asked["flavorRef"] {
        Value::String(id) => id.rsplit('/').next().unwrap_or(id).to_owned(),
        Value::Number(id) => id.to_string(),
        _ => {
            return Err(Refusal::bad(
                "Invalid input for field/attribute server. 'flavorRef' is a required property",
            ));
        }
    };
    let found = state.flavors.get(&id).cloned();
    found.ok_or_else(|| Refusal::bad(format!("Flavor {id} could not be found.")))
}

fn image(state: &State, asked: &Value) -> Result<Option<Uuid>, Refusal> {
    let text = asked["imageRef"].as_str().unwrap_or_default();
    let text = text.rsplit('/').next().unwrap_or(text);
    if text.is_empty() {
        return Ok(None);
    }
    let id = uuid(text).ok_or_else(|| Refusal::bad("Invalid imageRef provided."))?;
    if state.images.contains_key(&id) {
        Ok(Some(id))
    } else {
        Err(Refusal::bad(format!("Image {id} could not be found.")))
    }
}

/// `zone`, `zone:host` or `zone:host:node`; the last two only for administrators. Since 2.74 also `host`.
fn zone(state: &State, req: &Req, asked: &Value) -> Result<(Option<String>, Option<HostName>), Refusal> {
    let text = asked["availability_zone"].as_str().unwrap_or_default();
    let mut parts = text.split(':');
    let zone = parts.next().filter(|zone| !zone.is_empty()).map(str::to_owned);
    let mut host = parts.next().filter(|host| !host.is_empty()).map(str::to_owned);
    if host.is_some() && !req.caller()?.is_admin() && !is_test_member(state, req) {
        return Err(Refusal::policy("os_compute_api:servers:create:forced_host"));
    }
    if req.since(74)
        && let Some(wanted) = asked["host"].as_str()
    {
        super::admin(req, "compute:servers:create:requested_destination")?;
        host = Some(wanted.to_owned());
    }
    if let Some(zone) = &zone {
        let known = zone == "nova"
            || state
                .aggregates
                .values()
                .any(|aggregate| aggregate.zone() == Some(zone));
        if !known {
            return Err(Refusal::bad("The requested availability zone is not available"));
        }
    }
    if let Some(name) = &host
        && state
            .hosts
            .get(name.as_str())
            .is_none_or(|host| host.service.is_none())
    {
        return Err(Refusal::bad(format!("Compute host {name} could not be found.")));
    }
    Ok((zone, host.map(HostName::from)))
}

/// The test project's members may choose the host, as its cloud's policy says.
fn is_test_member(state: &State, req: &Req) -> bool {
    let project = req
        .caller
        .as_ref()
        .and_then(super::super::tokens::Caller::project);
    project
        .and_then(|id| state.projects.get(&id))
        .is_some_and(|project| project.name == "test")
}

fn group(state: &State, req: &Req, body: &Value) -> Result<Option<Uuid>, Refusal> {
    let hints = body
        .get("os:scheduler_hints")
        .or_else(|| body.get("OS-SCH-HNT:scheduler_hints"));
    let Some(text) = hints.and_then(|hints| hints["group"].as_str()) else {
        return Ok(None);
    };
    let me = req.caller()?;
    let found = uuid(text).and_then(|id| state.groups.get(&id));
    found
        .filter(|group| me.is_admin() || me.project() == Some(group.project))
        .map(|group| Some(group.id))
        .ok_or_else(|| Refusal::bad(format!("Instance group {text} could not be found.")))
}

fn quota(state: &State, project: Uuid, flavor: &Flavor, count: u64) -> Result<(), Refusal> {
    let quota = state.settings.quota;
    let (servers, cores, ram) = state.used_by(project);
    let count = count as i64;
    let asked = [
        ("instances", count, servers, quota.instances),
        ("cores", count * i64::from(flavor.vcpus), cores, quota.cores),
        ("ram", count * flavor.ram_mb as i64, ram, quota.ram),
    ];
    let (mut names, mut wanted, mut taken, mut limits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, more, used, most) in asked {
        if most >= 0 && used + more > most {
            names.push(name);
            wanted.push(more.to_string());
            taken.push(used.to_string());
            limits.push(most.to_string());
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    Err(Refusal::forbidden(format!(
        "Quota exceeded for {names}: Requested {}, but already used {} of {} {names}",
        wanted.join(", "),
        taken.join(", "),
        limits.join(", "),
    )))
}

/// Which networks it is plugged into: named ones, none, or the only one the project can see.
fn networks(state: &State, req: &Req, asked: &Value, project: Uuid) -> Result<Vec<Uuid>, Refusal> {
    let mine: Vec<Uuid> = state
        .networks
        .values()
        .filter(|network| network.project == project)
        .map(|network| network.id)
        .collect();
    match &asked["networks"] {
        Value::String(word) if word == "none" => Ok(Vec::new()),
        Value::Array(list) => list
            .iter()
            .map(|entry| {
                let text = entry["uuid"].as_str().unwrap_or_default();
                let found = uuid(text).and_then(|id| state.networks.get(&id));
                found
                    .map(|network| network.id)
                    .ok_or_else(|| Refusal::bad(format!("Network {text} could not be found.")))
            })
            .collect(),
        Value::Null if req.since(37) => Err(Refusal::bad(
            "Invalid input for field/attribute server. 'networks' is a required property",
        )),
        _ if mine.len() > 1 => Err(Refusal::conflict(
            "Multiple possible networks found, use a Network ID to be more specific.",
        )),
        _ => Ok(mine),
    }
}

/// A port of a network for a server.
fn plug(state: &mut State, network: Uuid, project: Uuid, server: Uuid) -> Option<Uuid> {
    let subnet = state
        .subnets
        .values_mut()
        .find(|subnet| subnet.network == network)?;
    let number = subnet.next;
    subnet.next += 1;
    let address = subnet.address(number);
    let subnet = subnet.id;
    let id = state.fresh();
    let mac = Port::mac_of(id);
    let port = Port {
        id,
        name: String::new(),
        network,
        subnet,
        address,
        mac,
        project,
        server: Some(server),
        host: None,
        created: state.now,
    };
    state.ports.insert(id, port);
    Some(id)
}

/// Volumes from `block_device_mapping_v2`: existing ones are attached, others are made.
fn volumes(
    state: &mut State,
    asked: &Value,
    me: &super::super::tokens::Caller,
    project: Uuid,
    server: Uuid,
    zone: Option<&str>,
) -> Result<Vec<Attachment>, Refusal> {
    let mut attached = Vec::new();
    for (index, entry) in asked["block_device_mapping_v2"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if entry["destination_type"].as_str() != Some("volume") {
            continue;
        }
        let device = format!("/dev/vd{}", char::from(b'a' + (index % 26) as u8));
        let source = entry["uuid"].as_str().and_then(uuid);
        let delete = truthy(&entry["delete_on_termination"]);
        let id = match (entry["source_type"].as_str(), source) {
            (Some("volume"), Some(id)) => {
                let volume = state
                    .volumes
                    .get_mut(&id)
                    .filter(|volume| volume.attached.is_none());
                let volume = volume.ok_or_else(|| {
                    Refusal::bad(format!(
                        "Block Device Mapping is Invalid: failed to get volume {id}."
                    ))
                })?;
                volume.attached = Some((server, device.clone()));
                "in-use".clone_into(&mut volume.status);
                id
            }
            (Some("image"), Some(image)) if !state.images.contains_key(&image) => {
                return Err(Refusal::bad(format!(
                    "Block Device Mapping is Invalid: failed to get image {image}."
                )));
            }
            (Some("image" | "blank"), image) => {
                let size = match &entry["volume_size"] {
                    Value::Number(size) => size.as_u64(),
                    Value::String(size) => size.parse().ok(),
                    _ => None,
                };
                let size = size.ok_or_else(|| {
                    Refusal::bad(
                        "Images with destination_type 'volume' need to have a non-zero size specified",
                    )
                })?;
                let id = state.fresh();
                let volume = Volume {
                    id,
                    name: String::new(),
                    project,
                    user: me.user,
                    size,
                    kind: entry["volume_type"].as_str().unwrap_or("premium").to_owned(),
                    status: "in-use".to_owned(),
                    zone: zone.unwrap_or("nova").to_owned(),
                    bootable: true,
                    image,
                    attached: Some((server, device.clone())),
                    created: state.now,
                };
                state.volumes.insert(id, volume);
                id
            }
            _ => return Err(Refusal::bad("Block Device Mapping is Invalid.")),
        };
        attached.push(Attachment {
            volume: id,
            device,
            delete_on_termination: delete,
        });
    }
    Ok(attached)
}
