// SPDX-License-Identifier: Apache-2.0
//! Cinder: volumes, as far as servers boot from them and operators list them.

use serde_json::{Value, json};

use super::Shared;
use super::http::{Answer, Outcome, Page, Refusal, Req, uuid};
use crate::world::{State, Volume};

const MAX: u32 = 70;

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    let path = req.path.clone();
    let mut path: Vec<&str> = path.iter().map(String::as_str).collect();
    let version = json!({
        "id": "v3.0", "status": "CURRENT", "version": format!("3.{MAX}"), "min_version": "3.0",
        "updated": "2022-08-31T00:00:00Z", "links": [{"rel": "self", "href": format!("{}/v3/", req.base())}],
    });
    if path.is_empty() {
        return Ok(Answer::new(300, json!({"versions": [version]})));
    }
    if path == ["v3"] {
        return Ok(Answer::ok(json!({"versions": [version]})));
    }
    req.caller()?;
    path.remove(0);
    // The project may come first.
    if path.len() > 1 && path.first().is_some_and(|first| uuid(first).is_some()) {
        path.remove(0);
    }
    shared
        .world
        .attend(req.changes(), |state| dispatch(state, req, &path))
}

fn dispatch(state: &mut State, req: &Req, path: &[&str]) -> Outcome {
    match (req.method.as_str(), path) {
        ("GET", ["volumes"]) => list(state, req, false),
        ("GET", ["volumes", "detail"]) => list(state, req, true),
        ("POST", ["volumes"]) => create(state, req),
        ("GET", ["volumes", id]) => Ok(Answer::ok(json!({"volume": view(find(state, req, id)?)}))),
        ("DELETE", ["volumes", id]) => {
            let volume = find(state, req, id)?;
            if volume.attached.is_some() {
                let text = "Invalid volume: Volume status must be available or error or error_restoring or error_extending or error_managing and must not be migrating, attached, belong to a group, have snapshots, awaiting a transfer, or be disassociated from snapshots after volume transfer.";
                return Err(Refusal::bad(text));
            }
            let id = volume.id;
            state.volumes.remove(&id);
            Ok(Answer::empty(202))
        }
        ("GET", ["types"]) => Ok(Answer::ok(json!({"volume_types": [{
            "id": "premium", "name": "premium", "is_public": true, "description": "", "extra_specs": {},
        }]}))),
        ("GET", ["os-services"]) => Ok(Answer::ok(json!({"services": [{
            "binary": "cinder-volume", "host": "control@rbd", "zone": "nova", "status": "enabled", "state": "up",
            "updated_at": state.now.naive(), "disabled_reason": null,
        }]}))),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn sees(req: &Req, volume: &Volume) -> bool {
    let me = req.caller.as_ref();
    me.is_some_and(|me| me.is_admin() || me.project() == Some(volume.project))
}

fn find<'a>(state: &'a State, req: &Req, id: &str) -> Result<&'a Volume, Refusal> {
    let found = uuid(id)
        .and_then(|id| state.volumes.get(&id))
        .filter(|volume| sees(req, volume));
    found.ok_or_else(|| Refusal::missing(format!("Volume {id} could not be found.")))
}

fn list(state: &State, req: &Req, detail: bool) -> Outcome {
    let me = req.caller()?;
    let all = me.is_admin() && req.flag("all_tenants");
    let wanted = |volume: &&Volume| {
        (all || me.project() == Some(volume.project))
            && req.param("name").is_none_or(|name| volume.name == name)
            && req.param("status").is_none_or(|status| volume.status == status)
    };
    let found: Vec<&Volume> = state.volumes.values().filter(wanted).collect();
    let (page, _) = Page::of(req)?.cut(found, |volume| volume.id.to_string())?;
    let show = |volume: &Volume| {
        if detail {
            view(volume)
        } else {
            json!({"id": volume.id.to_string(), "name": volume.name, "links": []})
        }
    };
    Ok(Answer::ok(
        json!({"volumes": page.into_iter().map(show).collect::<Vec<_>>()}),
    ))
}

fn view(volume: &Volume) -> Value {
    let attachments: Vec<Value> = volume
        .attached
        .iter()
        .map(|(server, device)| {
            json!({"id": volume.id.to_string(), "volume_id": volume.id.to_string(), "attachment_id": volume.id.to_string(),
                   "server_id": server.to_string(), "device": device, "host_name": null})
        })
        .collect();
    json!({
        "id": volume.id.to_string(), "name": volume.name, "status": volume.status, "size": volume.size,
        "volume_type": volume.kind, "availability_zone": volume.zone, "bootable": volume.bootable.to_string(),
        "attachments": attachments, "user_id": volume.user.simple().to_string(), "multiattach": false, "encrypted": false,
        "os-vol-tenant-attr:tenant_id": volume.project.simple().to_string(), "metadata": {}, "description": null,
        "created_at": volume.created.naive(), "updated_at": volume.created.naive(), "links": [], "snapshot_id": null,
        "source_volid": null, "replication_status": null, "consistencygroup_id": null,
    })
}

fn create(state: &mut State, req: &Req) -> Outcome {
    let body = req.json()?;
    let asked = &body["volume"];
    let me = req.caller()?;
    let size = match &asked["size"] {
        Value::Number(size) => size.as_u64(),
        Value::String(size) => size.parse().ok(),
        _ => None,
    };
    let size = size.filter(|size| *size > 0);
    let size = size.ok_or_else(|| Refusal::bad("Invalid input received: Invalid volume size provided for create request: None (size argument must be an integer (or string representation of an integer) and greater than zero)."))?;
    let image = asked["imageRef"].as_str().and_then(uuid);
    let volume = Volume {
        id: state.fresh(),
        name: asked["name"].as_str().unwrap_or_default().to_owned(),
        project: me.project().unwrap_or_default(),
        user: me.user,
        size,
        kind: asked["volume_type"].as_str().unwrap_or("premium").to_owned(),
        status: "available".to_owned(),
        zone: asked["availability_zone"].as_str().unwrap_or("nova").to_owned(),
        bootable: image.is_some(),
        image,
        attached: None,
        created: state.now,
    };
    let shown = view(&volume);
    state.volumes.insert(volume.id, volume);
    Ok(Answer::new(202, json!({"volume": shown})))
}
