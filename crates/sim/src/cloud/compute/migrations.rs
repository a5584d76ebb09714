// SPDX-License-Identifier: Apache-2.0
//! Records of moves: all of them with filters and pages, those of one server, and the two things one can do to a running
//! one: abort it, or force it to end.

use serde_json::{Value, json};

use super::super::http::{Answer, Outcome, Page, Refusal, Req, next_link, uuid};
use super::{admin, find};
use crate::world::{Migration, MigrationKind, MigrationStatus, Moment, State};

pub(super) fn list(state: &mut State, req: &Req) -> Outcome {
    admin(req, "os-migrations:index")?;
    let param = |name: &str| req.param(name).filter(|text| !text.is_empty());
    let since = param("changes-since")
        .filter(|_| req.since(59))
        .and_then(Moment::parse);
    let before = param("changes-before")
        .filter(|_| req.since(66))
        .and_then(Moment::parse);
    let server = param("instance_uuid");
    let at = |migration: &Migration, host: &str| {
        migration.source.as_str() == host || migration.dest.as_ref().is_some_and(|dest| dest.as_str() == host)
    };
    let wanted = |migration: &&Migration| {
        param("host").is_none_or(|host| at(migration, host))
            && param("source_compute").is_none_or(|host| migration.source.as_str() == host)
            && param("status").is_none_or(|status| migration.status.as_str() == status)
            && param("migration_type").is_none_or(|kind| migration.kind.as_str() == kind)
            && since.is_none_or(|since| migration.updated >= since)
            && before.is_none_or(|before| migration.updated <= before)
            && param("user_id").is_none_or(|id| migration.user.simple().to_string() == id)
            && param("project_id").is_none_or(|id| migration.project.simple().to_string() == id)
            && migration.kind.as_str() != "hidden"
    };
    let found: Vec<&Migration> = match server {
        Some(id) => {
            let id = uuid(id).unwrap_or_default();
            state.migrations_of(id).rev().filter(wanted).collect()
        }
        None => state.migrations.values().rev().filter(wanted).collect(),
    };
    let (page, next) = if req.since(59) {
        Page::of(req)?.cut(found, |migration| migration.uuid.to_string())?
    } else {
        (found, None)
    };
    let shown: Vec<Value> = page
        .into_iter()
        .map(|migration| view(state, req, migration))
        .collect();
    let mut body = json!({"migrations": shown});
    if let Some(marker) = next {
        body["migrations_links"] = next_link(req, &format!("{}/v2.1/os-migrations", req.base()), &marker);
    }
    Ok(Answer::ok(body))
}

fn node(state: &State, host: Option<&crate::world::HostName>) -> Value {
    let host = host.and_then(|host| state.hosts.get(host));
    json!(host.map(|host| &host.hypervisor_hostname))
}

fn address(state: &State, migration: &Migration) -> Value {
    let host = migration.dest.as_ref().and_then(|host| state.hosts.get(host));
    json!(host.map(|host| &host.ip))
}

fn view(state: &State, req: &Req, migration: &Migration) -> Value {
    let flavor = state.servers.get(&migration.server).map(|server| server.number);
    let mut shown = json!({
        "id": migration.id,
        "created_at": migration.created.naive(),
        "updated_at": migration.updated.naive(),
        "instance_uuid": migration.server.to_string(),
        "source_compute": migration.source,
        "source_node": node(state, Some(&migration.source)),
        "dest_compute": migration.dest,
        "dest_host": address(state, migration),
        "dest_node": node(state, migration.dest.as_ref()),
        "status": migration.status.as_str(),
        "old_instance_type_id": flavor.map(|_| 1),
        "new_instance_type_id": flavor.map(|_| 1),
    });
    if req.since(23) {
        shown["migration_type"] = migration.kind.as_str().into();
        if migration.kind == MigrationKind::Live && migration.status.in_progress() {
            let id = migration.id.to_string();
            shown["links"] =
                super::view::links(req, &format!("servers/{}/migrations", migration.server), &id);
        }
    }
    if req.since(59) {
        shown["uuid"] = migration.uuid.to_string().into();
    }
    if req.since(80) {
        shown["user_id"] = migration.user.simple().to_string().into();
        shown["project_id"] = migration.project.simple().to_string().into();
    }
    shown
}

/// A running one with its figures, as they are at this moment.
fn progress(state: &State, req: &Req, migration: &Migration) -> Value {
    let job = state
        .domain(migration.source.as_str(), migration.server)
        .and_then(|domain| domain.job.as_ref())
        .filter(|job| job.transfer_started.is_some());
    let memory = job.map(|job| {
        let processed = job.processed + job.moved(state.now);
        (job.total, processed, job.remaining(state.now))
    });
    let memory = memory.or(migration.memory);
    let disk = memory.map(|_| 0);
    let mut shown = json!({
        "id": migration.id,
        "server_uuid": migration.server.to_string(),
        "created_at": migration.created.naive(),
        "updated_at": migration.updated.naive(),
        "source_compute": migration.source,
        "source_node": node(state, Some(&migration.source)),
        "dest_compute": migration.dest,
        "dest_host": address(state, migration),
        "dest_node": node(state, migration.dest.as_ref()),
        "status": migration.status.as_str(),
        "memory_total_bytes": memory.map(|memory| memory.0),
        "memory_processed_bytes": memory.map(|memory| memory.1),
        "memory_remaining_bytes": memory.map(|memory| memory.2),
        "disk_total_bytes": disk,
        "disk_processed_bytes": disk,
        "disk_remaining_bytes": disk,
    });
    if req.since(59) {
        shown["uuid"] = migration.uuid.to_string().into();
    }
    if req.since(80) {
        shown["user_id"] = migration.user.simple().to_string().into();
        shown["project_id"] = migration.project.simple().to_string().into();
    }
    shown
}

pub(super) fn of_server(state: &mut State, req: &Req, id: &str) -> Outcome {
    if !req.since(23) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    admin(req, "servers:migrations:index")?;
    let server = find(state, req, id)?.id;
    let shown: Vec<Value> = state
        .migrations_of(server)
        .filter(|migration| migration.kind == MigrationKind::Live && migration.status.in_progress())
        .map(|migration| progress(state, req, migration))
        .collect();
    Ok(Answer::ok(json!({"migrations": shown})))
}

pub(super) fn show(state: &mut State, req: &Req, id: &str, number: &str) -> Outcome {
    admin(req, "servers:migrations:show")?;
    let server = find(state, req, id)?.id;
    let found = number
        .parse()
        .ok()
        .and_then(|number: u64| state.migrations.get(&number));
    let Some(migration) = found.filter(|migration| migration.server == server) else {
        return Err(Refusal::missing(format!(
            "In-progress live migration {number} is not found for server {id}."
        )));
    };
    if migration.kind != MigrationKind::Live {
        return Err(Refusal::missing(format!(
            "Migration {number} for server {id} is not live-migration."
        )));
    }
    if !migration.status.in_progress() {
        return Err(Refusal::missing(format!(
            "Live migration {number} for server {id} is not in progress."
        )));
    }
    Ok(Answer::ok(json!({"migration": progress(state, req, migration)})))
}

/// A server's running migration, after the checks that abort and force share.
fn running(state: &State, req: &Req, id: &str, number: &str, action: &str) -> Result<Migration, Refusal> {
    let server = find(state, req, id)?;
    if server.task_state != Some(crate::world::TaskState::Migrating) {
        let task = server.task_state.map_or("None", |task| task.as_str());
        // Nova says nothing about a task state that is not there.
        let text = if server.task_state.is_none() {
            format!("Instance {id} is in an invalid state for '{action}'")
        } else {
            format!("Cannot '{action}' instance {id} while it is in task_state {task}")
        };
        return Err(Refusal::conflict(text));
    }
    let found = number
        .parse()
        .ok()
        .and_then(|number: u64| state.migrations.get(&number));
    let found = found.filter(|migration| migration.server == server.id);
    found
        .cloned()
        .ok_or_else(|| Refusal::missing(format!("Migration {number} not found for instance {id}")))
}

fn wrong(migration: &Migration, method: &str) -> Refusal {
    Refusal::bad(format!(
        "Migration {} state of instance {} is {}. Cannot {method} while the migration is in this state.",
        migration.id, migration.server, migration.status
    ))
}

pub(super) fn abort(state: &mut State, req: &Req, id: &str, number: &str) -> Outcome {
    use MigrationStatus as S;
    if !req.since(24) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    admin(req, "servers:migrations:delete")?;
    let migration = running(state, req, id, number, "abort live migration")?;
    let early = matches!(migration.status, S::Queued | S::Preparing) && req.since(65);
    if migration.status != S::Running && !early {
        return Err(wrong(&migration, "abort live migration"));
    }
    state.live_abort(migration.id);
    Ok(Answer::empty(202))
}

pub(super) fn force(state: &mut State, req: &Req, id: &str, number: &str) -> Outcome {
    admin(req, "servers:migrations:force_complete")?;
    if req.json()?.get("force_complete").is_none() {
        return Err(Refusal::bad("Invalid input for field/attribute force_complete."));
    }
    let migration = running(state, req, id, number, "force_complete")?;
    if migration.status != MigrationStatus::Running {
        return Err(wrong(&migration, "force complete"));
    }
    state.live_force(migration.id);
    Ok(Answer::empty(202))
}
