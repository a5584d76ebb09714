// SPDX-License-Identifier: Apache-2.0
//! Glance: images and their properties. Of an upload only the size is kept.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Shared;
use super::http::{Answer, Outcome, Page, Refusal, Req, uuid};
use crate::world::{Image, State};

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    let path = req.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    if path.is_empty() || path == ["versions"] {
        let version = |id: &str, status: &str| json!({"id": id, "status": status, "links": [{"rel": "self", "href": format!("{}/v2/", req.base())}]});
        let body = json!({"versions": [version("v2.15", "CURRENT"), version("v2.9", "SUPPORTED"), version("v2.0", "SUPPORTED")]});
        return Ok(Answer::new(300, body));
    }
    req.caller()?;
    let Some((&"v2", rest)) = path.split_first() else {
        return Err(Refusal::missing("The resource could not be found."));
    };
    shared
        .world
        .attend(req.changes(), |state| dispatch(state, req, rest))
}

fn dispatch(state: &mut State, req: &Req, path: &[&str]) -> Outcome {
    match (req.method.as_str(), path) {
        ("GET", ["images"]) => list(state, req),
        ("POST", ["images"]) => create(state, req),
        ("GET", ["images", id]) => Ok(Answer::ok(view(find(state, req, id)?))),
        ("PUT", ["images", id, "file"]) => {
            let id = find(state, req, id)?.id;
            let (now, size) = (state.now, req.body.len() as u64);
            if let Some(image) = state.images.get_mut(&id) {
                image.size = Some(size);
                image.updated = now;
                "active".clone_into(&mut image.status);
            }
            Ok(Answer::empty(204))
        }
        ("DELETE", ["images", id]) => {
            let id = find(state, req, id)?.id;
            state.images.remove(&id);
            Ok(Answer::empty(204))
        }
        ("GET", ["schemas", "image"]) => Ok(Answer::ok(json!({"name": "image", "properties": {}}))),
        ("GET", ["info", "import"]) => Ok(Answer::ok(
            json!({"import-methods": {"value": [], "type": "array", "description": "Import methods available."}}),
        )),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn visible(req: &Req, image: &Image) -> bool {
    let me = req.caller.as_ref();
    image.visibility == "public" || me.is_some_and(|me| me.is_admin() || me.project() == Some(image.owner))
}

fn find<'a>(state: &'a State, req: &Req, id: &str) -> Result<&'a Image, Refusal> {
    let found = uuid(id)
        .and_then(|id| state.images.get(&id))
        .filter(|image| visible(req, image));
    found.ok_or_else(|| Refusal::missing(format!("No image found with ID {id}")))
}

fn list(state: &State, req: &Req) -> Outcome {
    let text = |name: &str| {
        req.param(name)
            .map(|value| value.trim_start_matches("in:").trim_matches('"'))
    };
    let wanted = |image: &&Image| {
        visible(req, image)
            && text("name").is_none_or(|name| image.name == name)
            && text("id").is_none_or(|id| uuid(id) == Some(image.id))
            && text("status").is_none_or(|status| image.status == status)
            && text("visibility").is_none_or(|word| image.visibility == word || word == "all")
    };
    let mut found: Vec<&Image> = state.images.values().filter(wanted).collect();
    found.sort_by(|one, two| (two.created, &one.name).cmp(&(one.created, &two.name)));
    let (page, next) = Page::of(req)?.cut(found, |image| image.id.to_string())?;
    let shown: Vec<Value> = page.into_iter().map(view).collect();
    let mut body = json!({"images": shown, "first": "/v2/images", "schema": "/v2/schemas/images"});
    if let Some(marker) = next {
        body["next"] = format!("/v2/images?marker={marker}").into();
    }
    Ok(Answer::ok(body))
}

fn view(image: &Image) -> Value {
    let mut shown = json!({
        "id": image.id.to_string(), "name": image.name, "status": image.status, "visibility": image.visibility,
        "owner": image.owner.simple().to_string(), "disk_format": image.disk_format,
        "container_format": image.container_format, "size": image.size, "virtual_size": null,
        "min_disk": image.min_disk, "min_ram": image.min_ram, "protected": image.protected, "tags": image.tags,
        "checksum": image.size.map(|size| format!("{size:032x}")),
        "os_hash_algo": image.size.map(|_| "sha512"), "os_hash_value": image.size.map(|size| format!("{size:0128x}")),
        "os_hidden": false, "created_at": image.created.iso(), "updated_at": image.updated.iso(),
        "self": format!("/v2/images/{}", image.id), "file": format!("/v2/images/{}/file", image.id),
        "schema": "/v2/schemas/image",
    });
    if let Some(fields) = shown.as_object_mut() {
        for (key, value) in &image.properties {
            fields.insert(key.clone(), value.clone().into());
        }
    }
    shown
}

fn create(state: &mut State, req: &Req) -> Outcome {
    let body = req.json()?;
    let owner = req.caller()?.project().unwrap_or_default();
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    let known = [
        "name",
        "id",
        "visibility",
        "disk_format",
        "container_format",
        "min_disk",
        "min_ram",
        "protected",
        "tags",
        "owner",
    ];
    let properties: BTreeMap<String, String> = body
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !known.contains(&key.as_str()))
        .filter_map(|(key, value)| value.as_str().map(|value| (key.clone(), value.to_owned())))
        .collect();
    let id: Uuid = text("id")
        .as_deref()
        .and_then(uuid)
        .unwrap_or_else(|| state.fresh());
    if state.images.contains_key(&id) {
        return Err(Refusal::conflict(format!("Image ID {id} already exists!")));
    }
    let image = Image {
        id,
        name: text("name").unwrap_or_default(),
        status: "queued".to_owned(),
        visibility: text("visibility").unwrap_or_else(|| "shared".to_owned()),
        owner,
        disk_format: text("disk_format"),
        container_format: text("container_format"),
        size: None,
        min_disk: body["min_disk"].as_u64().unwrap_or(0),
        min_ram: body["min_ram"].as_u64().unwrap_or(0),
        protected: body["protected"].as_bool().unwrap_or(false),
        properties,
        tags: Vec::new(),
        created: state.now,
        updated: state.now,
    };
    let shown = view(&image);
    state.images.insert(id, image);
    Ok(Answer::new(201, shown))
}
