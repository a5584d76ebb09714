// SPDX-License-Identifier: Apache-2.0
//! Servers: lists with Nova's filters and pages, one server, its name, metadata, tags, and its deletion.

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::http::{Answer, Outcome, Page, Refusal, Req, next_link, uuid};
use super::find;
use super::view::{self, Zones};
use crate::world::{Server, State, TaskState, VmState};

fn in_lost_cell(state: &State, server: &Server) -> bool {
    let host = server.host.as_ref().and_then(|host| state.hosts.get(host));
    let service = host.and_then(|host| host.service.as_ref());
    service.is_some_and(|service| service.cell_down)
}

pub(super) fn list(state: &mut State, req: &Req, detail: bool) -> Outcome {
    let me = req.caller()?;
    let everywhere = req.flag("all_tenants")
        || (me.is_admin() && req.param("project_id").or(req.param("tenant_id")).is_some());
    if req.flag("all_tenants") && !me.is_admin() {
        let rule = if detail { "detail" } else { "index" };
        return Err(Refusal::policy(&format!(
            "os_compute_api:servers:{rule}:get_all_tenants"
        )));
    }
    let wanted = Filter::of(req)?;
    let visible = |server: &&Server| everywhere || me.project() == Some(server.project);
    let takes = |server: &&Server| visible(server) && wanted.takes(state, server);
    // By host and in their own project is how operators ask, and that is few; only who asks for everything looks at all.
    let mut found: Vec<&Server> = match (req.param("host").filter(|_| me.is_admin()), me.project()) {
        (Some(host), _) => state.servers_on(host).filter(takes).collect(),
        (None, Some(project)) if !everywhere => state.servers_of(project).filter(takes).collect(),
        (None, _) => state.servers.values().filter(takes).collect(),
    };
    // A list that is filtered or paged leaves out the servers of a cell that is down, and says nothing of it.
    found.retain(|server| !in_lost_cell(state, server));
    let key = req.param("sort_key").unwrap_or("created_at");
    match key {
        "display_name" | "name" => found.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id))),
        "uuid" | "id" => found.sort_by_key(|server| server.id),
        "updated_at" => found.sort_by_key(|server| (server.updated, server.id)),
        _ => found.sort_by_key(|server| (server.created, server.number)),
    }
    if req.param("sort_dir").unwrap_or("desc") != "asc" {
        found.reverse();
    }
    let (page, next) = Page::of(req)?.cut(found, |server| server.id.to_string())?;
    let mut zones = Zones::default();
    let items: Vec<Value> = page
        .into_iter()
        .map(|server| {
            if detail {
                let mut shown = view::full(state, req, server, &mut zones);
                // Groups are shown with a single server only.
                if let Some(fields) = shown.as_object_mut() {
                    fields.remove("server_groups");
                }
                shown
            } else {
                view::brief(req, server)
            }
        })
        .collect();
    let mut body = json!({"servers": items});
    if let Some(marker) = next {
        let end = if detail { "servers/detail" } else { "servers" };
        body["servers_links"] = next_link(req, &format!("{}/v2.1/{end}", req.base()), &marker);
    }
    Ok(Answer::ok(body))
}

/// Nova's list filters, as far as anybody uses them.
struct Filter<'a> {
    name: Option<&'a str>,
    statuses: Vec<String>,
    project: Option<Uuid>,
    user: Option<&'a str>,
    flavor: Option<&'a str>,
    image: Option<Uuid>,
    host: Option<&'a str>,
    node: Option<&'a str>,
    ids: Vec<Uuid>,
    since: Option<crate::world::Moment>,
    task: Option<&'a str>,
    vm: Option<&'a str>,
    deleted: bool,
    locked: Option<bool>,
}

impl<'a> Filter<'a> {
    fn of(req: &'a Req) -> Result<Self, Refusal> {
        let admin = req.caller()?.is_admin();
        let since = match req.param("changes-since") {
            None => None,
            Some(text) => Some(crate::world::Moment::parse(text).ok_or_else(|| {
                Refusal::bad(format!("Invalid input for query parameters changes-since. Value: {text}. '{text}' is not a 'date-time'"))
            })?),
        };
        Ok(Self {
            name: req.param("name"),
            statuses: req.params("status").map(str::to_ascii_uppercase).collect(),
            project: req
                .param("project_id")
                .or(req.param("tenant_id"))
                .filter(|_| admin)
                .and_then(uuid),
            user: req.param("user_id"),
            flavor: req.param("flavor"),
            image: req.param("image").and_then(uuid),
            host: req.param("host").filter(|_| admin),
            node: req
                .param("node")
                .or(req.param("hypervisor_hostname"))
                .filter(|_| admin),
            ids: req.params("uuid").filter_map(uuid).collect(),
            since,
            task: req.param("task_state").filter(|_| admin),
            vm: req.param("vm_state").filter(|_| admin),
            deleted: req.flag("deleted") && admin,
            locked: req
                .param("locked")
                .filter(|_| req.since(73))
                .map(super::super::http::truth),
        })
    }

    fn takes(&self, state: &State, server: &Server) -> bool {
        let node = || {
            server
                .host
                .as_ref()
                .and_then(|host| state.hosts.get(host))
                .map(|host| host.hypervisor_hostname.as_str())
        };
        // Names are patterns to Nova; without special characters that is a search for a piece.
        self.name.is_none_or(|name| matches(name, &server.name))
            && (self.statuses.is_empty() || self.statuses.iter().any(|status| status == server.status()))
            && self.project.is_none_or(|project| project == server.project)
            && self.user.is_none_or(|user| user == server.user.simple().to_string())
            && self.flavor.is_none_or(|flavor| flavor == server.flavor.id)
            && self.image.is_none_or(|image| Some(image) == server.image)
            && self.host.is_none_or(|host| server.host.as_ref().is_some_and(|name| name.as_str() == host))
            && self.node.is_none_or(|wanted| node() == Some(wanted))
            && (self.ids.is_empty() || self.ids.contains(&server.id))
            && self.since.is_none_or(|since| server.updated >= since)
            && self.task.is_none_or(|task| server.task_state.is_some_and(|state| state.as_str() == task))
            && self.vm.is_none_or(|vm| server.vm_state.as_str() == vm)
            && self.locked.is_none_or(|locked| server.lock.is_some() == locked)
            // Deleted servers are forgotten at once here; those that may be reclaimed are in no list of what there is.
            && !self.deleted
            && (server.vm_state != VmState::SoftDeleted || self.since.is_some())
    }
}

/// The part of MySQL's regular expressions that callers use: a piece, anchored or not.
fn matches(pattern: &str, text: &str) -> bool {
    let (front, rest) = pattern
        .strip_prefix('^')
        .map_or((false, pattern), |rest| (true, rest));
    let (back, piece) = rest.strip_suffix('$').map_or((false, rest), |rest| (true, rest));
    let piece = piece.replace('\\', "").to_lowercase();
    let text = text.to_lowercase();
    match (front, back) {
        (true, true) => text == piece,
        (true, false) => text.starts_with(&piece),
        (false, true) => text.ends_with(&piece),
        (false, false) => text.contains(&piece),
    }
}

pub(super) fn show(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    let shown = view::full(state, req, server, &mut Zones::default());
    Ok(Answer::ok(json!({"server": shown})))
}

pub(super) fn update(state: &mut State, req: &Req, id: &str) -> Outcome {
    let id = find(state, req, id)?.id;
    let body = req.json()?;
    let asked = &body["server"];
    let (name, description) = (
        asked["name"].as_str().map(str::to_owned),
        asked.get("description").cloned(),
    );
    let hostname = asked["hostname"]
        .as_str()
        .map(str::to_owned)
        .filter(|_| req.since(90));
    state.touch(id, |server| {
        if let Some(name) = name {
            server.name = name;
        }
        if let Some(description) = description {
            server.description = description.as_str().map(str::to_owned);
        }
        if let Some(hostname) = hostname {
            server.hostname = hostname;
        }
    });
    show(state, req, &id.to_string())
}

pub(super) fn delete(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    let (id, locked) = (server.id, server.lock.is_some());
    let again = server.task_state == Some(TaskState::Deleting);
    let me = req.caller()?;
    if locked && !me.is_admin() {
        return Err(Refusal::conflict(format!("Instance {id} is locked")));
    }
    if !again {
        state.note_action(id, "delete", &req.id, me.user);
        state.begin_delete(id);
    }
    Ok(Answer::empty(204))
}

pub(super) fn addresses(state: &mut State, req: &Req, id: &str) -> Outcome {
    let server = find(state, req, id)?;
    Ok(Answer::ok(json!({"addresses": view::addresses(state, server)})))
}

pub(super) fn metadata(state: &mut State, req: &Req, id: &str, rest: &[&str]) -> Outcome {
    let id = find(state, req, id)?.id;
    let pairs = |value: &Value| -> Vec<(String, String)> {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter_map(|(key, value)| value.as_str().map(|value| (key.clone(), value.to_owned())))
            .collect()
    };
    let change =
        |state: &mut State, work: &mut dyn FnMut(&mut Server)| state.touch(id, |server| work(server));
    match (req.method.as_str(), rest) {
        ("GET", []) => {}
        ("GET", [key]) => {
            let value = state
                .servers
                .get(&id)
                .and_then(|server| server.metadata.get(*key));
            let value = value.ok_or_else(|| Refusal::missing("Metadata item was not found"))?;
            return Ok(Answer::ok(json!({"meta": {(*key): value}})));
        }
        ("POST", []) => {
            let new = pairs(&req.json()?["metadata"]);
            change(state, &mut |server| server.metadata.extend(new.clone()));
        }
        ("PUT", []) => {
            let new = pairs(&req.json()?["metadata"]);
            change(state, &mut |server| {
                server.metadata = new.clone().into_iter().collect();
            });
        }
        ("PUT", [_]) => {
            let new = pairs(&req.json()?["meta"]);
            change(state, &mut |server| server.metadata.extend(new.clone()));
        }
        ("DELETE", [key]) => {
            let gone = state.touch(id, |server| server.metadata.remove(*key)).flatten();
            gone.ok_or_else(|| Refusal::missing("Metadata item was not found"))?;
            return Ok(Answer::empty(204));
        }
        _ => return Err(Refusal::missing("The resource could not be found.")),
    }
    let metadata = state.servers.get(&id).map(|server| server.metadata.clone());
    Ok(Answer::ok(json!({"metadata": metadata})))
}

pub(super) fn tags(state: &mut State, req: &Req, id: &str, rest: &[&str]) -> Outcome {
    let id = find(state, req, id)?.id;
    match (req.method.as_str(), rest) {
        ("GET", []) => {
            let tags = state.servers.get(&id).map(|server| server.tags.clone());
            Ok(Answer::ok(json!({"tags": tags})))
        }
        ("PUT", [tag]) => {
            let tag = (*tag).to_owned();
            let new = state.touch(id, |server| {
                let new = !server.tags.contains(&tag);
                if new {
                    server.tags.push(tag);
                }
                new
            });
            Ok(Answer::empty(if new == Some(true) { 201 } else { 204 }))
        }
        ("DELETE", [tag]) => {
            state.touch(id, |server| server.tags.retain(|known| known != tag));
            Ok(Answer::empty(204))
        }
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}
