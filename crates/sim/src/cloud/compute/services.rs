// SPDX-License-Identifier: Apache-2.0
//! Compute services: their state, disabling with a reason, `forced_down`, and deletion with the conditions Nova puts on it.

use serde_json::{Value, json};

use super::super::http::{Answer, Outcome, Refusal, Req, truthy, uuid};
use super::admin;
use crate::world::{Host, HostName, MigrationKind, MigrationStatus, State};

/// Services of the control plane, which only show.
const CONTROL: [&str; 2] = ["nova-scheduler", "nova-conductor"];

pub(super) fn list(state: &mut State, req: &Req) -> Outcome {
    admin(req, "os-services:list")?;
    let (host, binary) = (req.param("host"), req.param("binary"));
    let wants = |name: &str, kind: &str| {
        host.is_none_or(|host| host.is_empty() || host == name)
            && binary.is_none_or(|wanted| wanted.is_empty() || wanted == kind)
    };
    let mut shown: Vec<Value> = Vec::new();
    for (index, kind) in CONTROL.iter().enumerate() {
        if wants("control", kind) {
            let id = if req.since(53) {
                json!(uuid::Uuid::from_u128(0xc0 + index as u128).to_string())
            } else {
                json!(1_000_000 + index)
            };
            let mut service = json!({
                "binary": kind, "host": "control", "id": id, "zone": "internal", "status": "enabled", "state": "up",
                "updated_at": state.now.naive(), "disabled_reason": null,
            });
            if req.since(11) {
                service["forced_down"] = false.into();
            }
            shown.push(service);
        }
    }
    let hosts = state
        .hosts
        .values()
        .filter(|host| wants(host.name.as_str(), "nova-compute"));
    shown.extend(hosts.filter_map(|host| view(state, req, host)));
    Ok(Answer::ok(json!({"services": shown})))
}

fn view(state: &State, req: &Req, host: &Host) -> Option<Value> {
    let service = host.service.as_ref()?;
    if service.cell_down {
        // Since 2.69 with what Nova knows without the cell; before that it is left out.
        let known = || json!({"binary": "nova-compute", "host": host.name, "status": "UNKNOWN"});
        return req.since(69).then(known);
    }
    let mut shown = json!({
        "binary": "nova-compute",
        "host": host.name,
        "id": if req.since(53) { json!(service.uuid.to_string()) } else { json!(service.id) },
        "zone": state.zone_of(host.name.as_str()),
        "status": if service.disabled { "disabled" } else { "enabled" },
        "state": if service.is_up(state.now) { "up" } else { "down" },
        "updated_at": service.reported_at(state.now).naive(),
        "disabled_reason": service.disabled_reason,
    });
    if req.since(11) {
        shown["forced_down"] = service.forced_down.into();
    }
    Some(shown)
}

pub(super) fn update(state: &mut State, req: &Req, id: &str) -> Outcome {
    let body = req.json()?;
    if !req.since(53) {
        return update_by_host(state, req, id, &body);
    }
    let Some(service) = uuid(id) else {
        return Err(Refusal::bad(format!("Invalid uuid {id}")));
    };
    admin(req, "os-services:update")?;
    let Some(fields) = body.as_object() else {
        return Err(Refusal::bad("Malformed request body"));
    };
    if let Some(key) = fields
        .keys()
        .find(|key| !["status", "disabled_reason", "forced_down"].contains(&key.as_str()))
    {
        let text = format!("Additional properties are not allowed ('{key}' was unexpected)");
        return Err(Refusal::bad(text));
    }
    let name = state.host_by_service(service).map(|host| host.name.clone());
    let Some(name) = name else {
        return Err(Refusal::missing(format!("Service {id} could not be found.")));
    };
    let reason = body["disabled_reason"].as_str().map(str::to_owned);
    let status = match body.get("status") {
        None => None,
        Some(Value::String(word)) if word == "enabled" => Some(true),
        Some(Value::String(word)) if word == "disabled" => Some(false),
        Some(other) => {
            let shown = other.to_string().replace('"', "'");
            let text = format!(
                "Invalid input for field/attribute status. Value: {}. {shown} is not one of ['enabled', 'disabled']",
                shown.trim_matches('\'')
            );
            return Err(Refusal::bad(text));
        }
    };
    let forced = body.get("forced_down").map(truthy);
    if status == Some(true) && reason.is_some() {
        return Err(Refusal::bad(
            "Specifying 'disabled_reason' with status 'enabled' is invalid.",
        ));
    }
    if status.is_none() && forced.is_none() {
        let text = "No updates were requested. Fields 'status' or 'forced_down' should be specified.";
        return Err(Refusal::bad(text));
    }
    if forced == Some(false) {
        no_evacuations(state, &name)?;
    }
    if let Some(enabled) = status {
        state.set_disabled(&name, !enabled, reason);
    }
    if let Some(forced) = forced {
        force(state, &name, forced);
    }
    let shown = state.hosts.get(&name).and_then(|host| view(state, req, host));
    Ok(Answer::ok(json!({"service": shown})))
}

fn force(state: &mut State, name: &HostName, down: bool) {
    if let Some(service) = state.hosts.get_mut(name).and_then(|host| host.service.as_mut()) {
        service.forced_down = down;
    }
}

/// `forced_down` stays while the host has not cleaned up what was evacuated from it.
fn no_evacuations(state: &State, name: &HostName) -> Result<(), Refusal> {
    let done = state.open_migrations().any(|migration| {
        migration.kind == MigrationKind::Evacuation
            && migration.status == MigrationStatus::Done
            && migration.source == *name
    });
    if done {
        return Err(Refusal::bad(format!(
            "Unable to force up host {name} as `done` evacuation migration records remain associated with the host. Ensure the compute service has been restarted, allowing these records to move to `completed` before retrying this request."
        )));
    }
    Ok(())
}

/// Before 2.53: `PUT /os-services/enable` and so on, with host and binary in the body.
fn update_by_host(state: &mut State, req: &Req, action: &str, body: &Value) -> Outcome {
    admin(req, "os-services:update")?;
    let (host, binary) = (
        body["host"].as_str().unwrap_or_default(),
        body["binary"].as_str().unwrap_or_default(),
    );
    if binary != "nova-compute" {
        return Err(Refusal::bad(format!(
            "Updating a {binary} service is not supported. Only nova-compute services can be updated."
        )));
    }
    let name = HostName::from(host);
    if state.hosts.get(&name).is_none_or(|host| host.service.is_none()) {
        return Err(Refusal::missing(format!(
            "Could not find binary {binary} on host {host}."
        )));
    }
    let mut shown = json!({"host": host, "binary": binary});
    match action {
        "enable" => {
            state.set_disabled(&name, false, None);
            shown["status"] = "enabled".into();
        }
        "disable" => {
            state.set_disabled(&name, true, None);
            shown["status"] = "disabled".into();
        }
        "disable-log-reason" => {
            let reason = body["disabled_reason"].as_str();
            let reason = reason.ok_or_else(|| Refusal::bad("Missing disabled reason field"))?;
            state.set_disabled(&name, true, Some(reason.to_owned()));
            shown["status"] = "disabled".into();
            shown["disabled_reason"] = reason.into();
        }
        "force-down" if req.since(11) => {
            let down = body.get("forced_down").map(truthy);
            let down = down.ok_or_else(|| Refusal::bad("Missing forced_down field"))?;
            if !down {
                no_evacuations(state, &name)?;
            }
            force(state, &name, down);
            shown["forced_down"] = down.into();
        }
        _ => return Err(Refusal::missing("Unknown action")),
    }
    Ok(Answer::ok(json!({"service": shown})))
}

pub(super) fn delete(state: &mut State, req: &Req, id: &str) -> Outcome {
    admin(req, "os-services:delete")?;
    let name = if req.since(53) {
        let Some(service) = uuid(id) else {
            return Err(Refusal::bad(format!("Invalid uuid {id}")));
        };
        state.host_by_service(service).map(|host| host.name.clone())
    } else {
        let wanted = id.parse().ok();
        let has = |host: &&Host| host.service.as_ref().map(|service| service.id) == wanted;
        state.hosts.values().find(has).map(|host| host.name.clone())
    };
    let Some(name) = name else {
        return Err(Refusal::missing(format!("Service {id} not found.")));
    };
    if state.servers_on(name.as_str()).next().is_some() {
        return Err(Refusal::conflict(
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first.",
        ));
    }
    let moving = state.open_migrations().any(|migration| {
        !migration.status.is_final() && (migration.source == name || migration.dest.as_ref() == Some(&name))
    });
    if moving {
        return Err(Refusal::conflict(
            "Unable to delete compute service that has in-progress migrations. Complete the migrations or delete the instances first.",
        ));
    }
    state.unregister(&name);
    Ok(Answer::empty(204))
}
