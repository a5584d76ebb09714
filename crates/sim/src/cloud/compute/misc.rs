// SPDX-License-Identifier: Apache-2.0
//! The smaller resources of Nova: server groups, keys, zones, limits and quotas, what was done to a server and what is
//! plugged into it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Refusal, Req, uuid};
use super::{admin, find};
use crate::world::{Action, Keypair, ServerGroup, State};

fn nothing() -> Refusal {
    Refusal::missing("The resource could not be found.")
}

pub(super) fn groups(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    let me = req.caller()?.clone();
    let visible = |group: &ServerGroup| me.is_admin() || me.project() == Some(group.project);
    let missing = |id: &str| Refusal::missing(format!("Instance group {id} could not be found."));
    match (req.method.as_str(), rest) {
        ("GET", []) => {
            let all = me.is_admin() && req.flag("all_projects");
            let mine = |group: &&ServerGroup| all || me.project() == Some(group.project);
            let shown: Vec<Value> = state
                .groups
                .values()
                .filter(mine)
                .map(|group| group_view(req, group))
                .collect();
            Ok(Answer::ok(json!({"server_groups": shown})))
        }
        ("POST", []) => {
            let body = req.json()?;
            let asked = &body["server_group"];
            let policy = asked["policy"].as_str().or_else(|| asked["policies"][0].as_str());
            let policy = policy.ok_or_else(|| {
                Refusal::bad(
                    "Invalid input for field/attribute server_group. 'policy' is a required property",
                )
            })?;
            if !["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"].contains(&policy) {
                return Err(Refusal::bad(format!(
                    "Invalid input for field/attribute policy. Value: {policy}. '{policy}' is not one of ['anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity']"
                )));
            }
            let group = ServerGroup {
                id: state.fresh(),
                name: asked["name"].as_str().unwrap_or_default().to_owned(),
                policy: policy.to_owned(),
                project: me.project().unwrap_or_default(),
                user: me.user,
                members: BTreeSet::new(),
            };
            let shown = group_view(req, &group);
            state.groups.insert(group.id, group);
            Ok(Answer::ok(json!({"server_group": shown})))
        }
        ("GET", [id]) => {
            let group = uuid(id)
                .and_then(|id| state.groups.get(&id))
                .filter(|group| visible(group));
            let group = group.ok_or_else(|| missing(id))?;
            Ok(Answer::ok(json!({"server_group": group_view(req, group)})))
        }
        ("DELETE", [id]) => {
            let key = uuid(id).unwrap_or_default();
            state
                .groups
                .get(&key)
                .filter(|group| visible(group))
                .ok_or_else(|| missing(id))?;
            state.groups.remove(&key);
            for server in state
                .servers
                .values_mut()
                .filter(|server| server.group == Some(key))
            {
                server.group = None;
            }
            Ok(Answer::empty(204))
        }
        _ => Err(nothing()),
    }
}

fn group_view(req: &Req, group: &ServerGroup) -> Value {
    let members: Vec<String> = group.members.iter().map(Uuid::to_string).collect();
    let mut shown = json!({"id": group.id.to_string(), "name": group.name, "members": members});
    if req.since(13) {
        shown["project_id"] = group.project.simple().to_string().into();
        shown["user_id"] = group.user.simple().to_string().into();
    }
    if req.since(64) {
        shown["policy"] = group.policy.clone().into();
        shown["rules"] = json!({});
    } else {
        shown["policies"] = json!([group.policy]);
        shown["metadata"] = json!({});
    }
    shown
}

pub(super) fn keypairs(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    let user = req.caller()?.user;
    let view = |key: &Keypair| {
        json!({"name": key.name, "public_key": key.public_key, "type": "ssh", "user_id": user.simple().to_string(),
               "fingerprint": "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff"})
    };
    let missing =
        |name: &str| Refusal::missing(format!("Keypair {name} not found for user {}", user.simple()));
    match (req.method.as_str(), rest) {
        ("GET", []) => {
            let mine = state.keypairs.iter().filter(|key| key.user == user);
            let shown: Vec<Value> = mine.map(|key| json!({"keypair": view(key)})).collect();
            Ok(Answer::ok(json!({"keypairs": shown})))
        }
        ("POST", []) => {
            let body = req.json()?;
            let asked = &body["keypair"];
            let key = Keypair {
                user,
                name: asked["name"].as_str().unwrap_or_default().to_owned(),
                public_key: asked["public_key"]
                    .as_str()
                    .unwrap_or("ssh-rsa simulated")
                    .to_owned(),
            };
            if state
                .keypairs
                .iter()
                .any(|known| known.user == user && known.name == key.name)
            {
                return Err(Refusal::conflict(format!(
                    "Key pair '{}' already exists.",
                    key.name
                )));
            }
            let shown = view(&key);
            state.keypairs.push(key);
            Ok(Answer::ok(json!({"keypair": shown})))
        }
        ("GET", [name]) => {
            let found = state
                .keypairs
                .iter()
                .find(|key| key.user == user && key.name == *name);
            Ok(Answer::ok(
                json!({"keypair": view(found.ok_or_else(|| missing(name))?)}),
            ))
        }
        ("DELETE", [name]) => {
            let before = state.keypairs.len();
            state.keypairs.retain(|key| key.user != user || key.name != *name);
            if state.keypairs.len() == before {
                return Err(missing(name));
            }
            Ok(Answer::empty(204))
        }
        _ => Err(nothing()),
    }
}

pub(super) fn zones(state: &mut State, req: &Req, detail: bool) -> Outcome {
    if detail {
        admin(req, "os-availability-zone:detail")?;
    }
    let mut zones: BTreeMap<String, Vec<&crate::world::Host>> = BTreeMap::new();
    let enabled = |host: &&crate::world::Host| host.service.as_ref().is_some_and(|service| !service.disabled);
    for host in state.hosts.values().filter(enabled) {
        zones
            .entry(state.zone_of(host.name.as_str()))
            .or_default()
            .push(host);
    }
    let mut shown: Vec<Value> = Vec::new();
    if detail {
        shown.push(json!({"zoneName": "internal", "zoneState": {"available": true}, "hosts": {}}));
    }
    for (zone, hosts) in zones {
        let services = |host: &&crate::world::Host| {
            let service = host.service.as_ref()?;
            let state = json!({"available": service.is_up(state.now), "active": true,
                               "updated_at": service.reported_at(state.now).naive()});
            Some((host.name.to_string(), json!({"nova-compute": state})))
        };
        let hosts: Option<serde_json::Map<String, Value>> =
            detail.then(|| hosts.iter().filter_map(services).collect());
        shown.push(json!({"zoneName": zone, "zoneState": {"available": true}, "hosts": hosts}));
    }
    Ok(Answer::ok(json!({"availabilityZoneInfo": shown})))
}

pub(super) fn limits(state: &mut State, req: &Req) -> Outcome {
    let me = req.caller()?;
    let asked = req.param("tenant_id").filter(|_| me.is_admin()).and_then(uuid);
    let project = asked.or(me.project()).unwrap_or_default();
    let (servers, cores, ram) = state.used_by(project);
    let quota = state.settings.quota;
    Ok(Answer::ok(json!({"limits": {"rate": [], "absolute": {
        "maxTotalInstances": quota.instances, "maxTotalCores": quota.cores, "maxTotalRAMSize": quota.ram,
        "totalInstancesUsed": servers, "totalCoresUsed": cores, "totalRAMUsed": ram,
        "maxServerMeta": 128, "maxTotalKeypairs": 100, "maxServerGroups": 10, "maxServerGroupMembers": 10,
        "totalServerGroupsUsed": state.groups.len(),
    }}})))
}

pub(super) fn quotas(state: &mut State, req: &Req, rest: &[&str]) -> Outcome {
    let Some(id) = rest.first() else {
        return Err(nothing());
    };
    if req.method == "PUT" {
        admin(req, "os-quota-sets:update")?;
        let body = req.json()?;
        let asked = &body["quota_set"];
        let quota = &mut state.settings.quota;
        for (name, field) in [
            ("instances", &mut quota.instances),
            ("cores", &mut quota.cores),
            ("ram", &mut quota.ram),
        ] {
            if let Some(value) = asked[name].as_i64() {
                *field = value;
            }
        }
    }
    let quota = state.settings.quota;
    let (servers, cores, ram) = state.used_by(uuid(id).unwrap_or_default());
    let detail = rest.last() == Some(&"detail");
    let one = |limit: i64, used: i64| {
        if detail {
            json!({"limit": limit, "in_use": used, "reserved": 0})
        } else {
            json!(limit)
        }
    };
    Ok(Answer::ok(json!({"quota_set": {
        "id": id, "instances": one(quota.instances, servers), "cores": one(quota.cores, cores), "ram": one(quota.ram, ram),
        "metadata_items": one(128, 0), "key_pairs": one(100, 0), "server_groups": one(10, 0),
        "server_group_members": one(10, 0),
    }})))
}

fn action_view(server: Uuid, project: Uuid, action: &Action) -> Value {
    json!({
        "action": action.action, "instance_uuid": server.to_string(), "request_id": action.request_id,
        "user_id": action.user.simple().to_string(), "project_id": project.simple().to_string(),
        "start_time": action.start.naive(), "updated_at": action.start.naive(), "message": action.message,
    })
}

pub(super) fn actions(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    let shown: Vec<Value> = server
        .actions
        .iter()
        .map(|action| action_view(server.id, server.project, action))
        .collect();
    Ok(Answer::ok(json!({"instanceActions": shown})))
}

pub(super) fn action(state: &mut State, req: &Req, id: &str, request: &str) -> Outcome {
    let server = find(state, req, id)?;
    let found = server.actions.iter().find(|action| action.request_id == request);
    let found = found.ok_or_else(|| {
        Refusal::missing(format!(
            "Action for request_id {request} on instance {id} not found"
        ))
    })?;
    let mut shown = action_view(server.id, server.project, found);
    shown["events"] = json!([]);
    Ok(Answer::ok(json!({"instanceAction": shown})))
}

pub(super) fn attachments(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    let show = |attachment: &crate::world::Attachment| {
        let volume = attachment.volume.to_string();
        let mut shown =
            json!({"volumeId": volume, "serverId": server.id.to_string(), "device": attachment.device});
        if !req.since(89) {
            shown["id"] = volume.into();
        }
        if req.since(79) {
            shown["delete_on_termination"] = attachment.delete_on_termination.into();
        }
        shown
    };
    let shown: Vec<Value> = server.volumes.iter().map(show).collect();
    Ok(Answer::ok(json!({"volumeAttachments": shown})))
}

pub(super) fn interfaces(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    let show = |port: &crate::world::Port| {
        json!({"port_id": port.id.to_string(), "net_id": port.network.to_string(), "mac_addr": port.mac,
               "port_state": "ACTIVE",
               "fixed_ips": [{"subnet_id": port.subnet.to_string(), "ip_address": port.address}]})
    };
    let ports = server.ports.iter().filter_map(|port| state.ports.get(port));
    Ok(Answer::ok(
        json!({"interfaceAttachments": ports.map(show).collect::<Vec<_>>()}),
    ))
}

pub(super) fn diagnostics(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-server-diagnostics")?;
    let server = find(state, req, id)?;
    let domain = server
        .host
        .as_ref()
        .and_then(|host| state.domain(host.as_str(), server.id));
    let uptime = domain.map_or(0, |domain| state.now.since(domain.since).as_secs());
    Ok(Answer::ok(json!({
        "state": crate::world::power_state::word(server.power_state), "driver": "libvirt", "hypervisor": "kvm",
        "hypervisor_os": "linux", "uptime": uptime, "config_drive": server.config_drive,
        "num_cpus": server.flavor.vcpus, "num_nics": server.ports.len(), "num_disks": server.volumes.len().max(1),
        "memory_details": {"maximum": server.flavor.ram_mb, "used": server.flavor.ram_mb},
        "cpu_details": [], "disk_details": [], "nic_details": [],
    })))
}
