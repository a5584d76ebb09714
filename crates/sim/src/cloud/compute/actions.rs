// SPDX-License-Identifier: Apache-2.0
//! Actions on a server: which states Nova allows them in, what it says when it does not, and the moves between hosts with
//! their checks. What an action then does over time is the world's.

use serde_json::{Map, Value, json};

use super::super::http::{Answer, Outcome, Refusal, Req, truthy};
use super::{admin, find};
use crate::world::{Act, HostName, Lock, Order, Server, State, TaskState, VmState, power_state};

use TaskState as T;
use VmState as V;

pub(super) fn handle(state: &mut State, req: &Req, id: &str) -> Outcome {
    let body = req.json()?;
    let Some((name, args)) = body.as_object().and_then(|fields| fields.iter().next()) else {
        return Err(Refusal::bad("Malformed request body"));
    };
    let server = find(state, req, id)?.clone();
    if let Some(rule) = admin_rule(name) {
        admin(req, rule)?;
    }
    let free = name == "lock" || name == "unlock" || name == "os-getConsoleOutput";
    if server.lock.is_some() && !req.caller()?.is_admin() && !free {
        return Err(Refusal::conflict(format!("Instance {} is locked", server.id)));
    }
    if let Some(answer) = power(state, req, &server, name, args)? {
        return Ok(answer);
    }
    match name.as_str() {
        "os-migrateLive" => live(state, req, &server, args),
        "migrate" => cold(state, req, &server, args),
        "resize" => resize(state, req, &server, args),
        "confirmResize" => {
            needs(&server, &[V::Resized], true, "confirmResize")?;
            note(state, req, &server, "confirmResize")?;
            if state.begin_confirm(server.id) {
                Ok(Answer::empty(204))
            } else {
                Err(Refusal::bad("Instance has not been resized."))
            }
        }
        "revertResize" => {
            needs(&server, &[V::Resized], true, "revertResize")?;
            note(state, req, &server, "revertResize")?;
            if state.begin_revert(server.id) {
                Ok(Answer::empty(202))
            } else {
                Err(Refusal::bad("Instance has not been resized."))
            }
        }
        "evacuate" => evacuate(state, req, &server, args),
        "os-resetState" => reset_state(state, &server, args),
        "os-getConsoleOutput" => console(state, &server, args),
        "lock" => lock(state, req, &server, args),
        "unlock" => {
            state.touch(server.id, |server| server.lock = None);
            Ok(Answer::empty(202))
        }
        "forceDelete" => {
            note(state, req, &server, "forceDelete")?;
            state.begin_delete(server.id);
            Ok(Answer::empty(202))
        }
        "changePassword" => {
            needs(&server, &[V::Active], true, "changePassword")?;
            Ok(Answer::empty(202))
        }
        _ => Err(Refusal::bad(format!("There is no such action: {name}"))),
    }
}

fn admin_rule(action: &str) -> Option<&'static str> {
    Some(match action {
        "os-migrateLive" => "os-migrate-server:migrate_live",
        "migrate" => "os-migrate-server:migrate",
        "evacuate" => "os-evacuate",
        "os-resetState" => "os-admin-actions:reset_state",
        _ => return None,
    })
}

/// Refuses an action in the wrong state, as Nova does and with its words.
fn needs(server: &Server, states: &[VmState], no_task: bool, action: &str) -> Result<(), Refusal> {
    let refuse = |attribute: &str, value: &str| {
        let text = format!(
            "Cannot '{action}' instance {} while it is in {attribute} {value}",
            server.id
        );
        Err(Refusal::conflict(text))
    };
    if !states.is_empty() && !states.contains(&server.vm_state) {
        return refuse("vm_state", server.vm_state.as_str());
    }
    match server.task_state {
        Some(task) if no_task => refuse("task_state", task.as_str()),
        _ => Ok(()),
    }
}

fn note(state: &mut State, req: &Req, server: &Server, action: &str) -> Result<(), Refusal> {
    let user = req.caller()?.user;
    state.note_action(server.id, action, &req.id, user);
    Ok(())
}

/// Actions that change a server's power and nothing else.
fn power(
    state: &mut State,
    req: &Req,
    server: &Server,
    name: &str,
    args: &Value,
) -> Result<Option<Answer>, Refusal> {
    let soft = args["type"]
        .as_str()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("SOFT"));
    let (states, word, act, task): (&[VmState], &str, Act, TaskState) = match name {
        "os-start" => (&[V::Stopped], "start", Act::Start, T::PoweringOn),
        "os-stop" => (&[V::Active, V::Error], "stop", Act::Stop, T::PoweringOff),
        "reboot" if soft => (&[V::Active], "reboot", Act::RebootSoft, T::Rebooting),
        "reboot" => (
            &[V::Active, V::Stopped, V::Paused, V::Suspended, V::Error],
            "reboot",
            Act::RebootHard,
            T::RebootingHard,
        ),
        "pause" => (&[V::Active], "pause", Act::Pause, T::Pausing),
        "unpause" => (&[V::Paused], "unpause", Act::Unpause, T::Unpausing),
        "suspend" => (&[V::Active], "suspend", Act::Suspend, T::Suspending),
        "resume" => (&[V::Suspended], "resume", Act::Resume, T::Resuming),
        "rescue" => (
            &[V::Active, V::Stopped, V::Error],
            "rescue",
            Act::Rescue,
            T::Rescuing,
        ),
        "unrescue" => (&[V::Rescued], "unrescue", Act::Unrescue, T::Unrescuing),
        "rebuild" => (
            &[V::Active, V::Stopped, V::Error],
            "rebuild",
            Act::Rebuild,
            T::Rebuilding,
        ),
        "shelve" | "shelveOffload" => (
            &[V::Active, V::Stopped, V::Paused, V::Suspended],
            "shelve",
            Act::Shelve,
            T::ShelvingOffloading,
        ),
        "unshelve" => (
            &[V::Shelved, V::ShelvedOffloaded],
            "unshelve",
            Act::Unshelve,
            T::Unshelving,
        ),
        _ => return Ok(None),
    };
    needs(server, states, true, word)?;
    note(state, req, server, word)?;
    state.begin(server.id, act, task);
    let answer = match name {
        "rescue" => Answer::ok(json!({"adminPass": "simulated"})),
        _ => Answer::empty(202),
    };
    Ok(Some(answer))
}

fn order(req: &Req, server: &Server, asked: Option<HostName>) -> Result<Order, Refusal> {
    let me = req.caller()?;
    Ok(Order {
        server: server.id,
        asked,
        user: me.user,
        project: me.project().unwrap_or(server.project),
    })
}

fn fields<'a>(args: &'a Value, action: &str) -> Result<&'a Map<String, Value>, Refusal> {
    args.as_object().ok_or_else(|| {
        Refusal::bad(format!(
            "Invalid input for field/attribute {action}. Value: {args}. {args} is not of type 'object'"
        ))
    })
}

fn required<'a>(args: &'a Map<String, Value>, action: &str, name: &str) -> Result<&'a Value, Refusal> {
    args.get(name).ok_or_else(|| {
        let text = format!(
            "Invalid input for field/attribute {action}. Value: {}. '{name}' is a required property",
            python(args)
        );
        Refusal::bad(text)
    })
}

fn no_extra(args: &Map<String, Value>, action: &str, known: &[&str]) -> Result<(), Refusal> {
    match args.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(Refusal::bad(format!(
            "Invalid input for field/attribute {action}. Value: {}. Additional properties are not allowed ('{key}' was unexpected)",
            python(args)
        ))),
    }
}

/// As Python prints a dictionary, which is what Nova's validation messages show.
fn python(args: &Map<String, Value>) -> String {
    let one = |value: &Value| match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    };
    let pairs: Vec<String> = args
        .iter()
        .map(|(key, value)| format!("'{key}': {}", one(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

fn live(state: &mut State, req: &Req, server: &Server, args: &Value) -> Outcome {
    const NAME: &str = "os-migrateLive";
    let args = fields(args, NAME)?;
    let known: &[&str] = match req.version {
        0..=24 => &["host", "block_migration", "disk_over_commit"],
        25..=29 => &["host", "block_migration"],
        30..=67 => &["host", "block_migration", "force"],
        _ => &["host", "block_migration"],
    };
    required(args, NAME, "host")?;
    let block = required(args, NAME, "block_migration")?;
    if !req.since(25) {
        required(args, NAME, "disk_over_commit")?;
    } else if block.as_str() != Some("auto") && !block.is_boolean() && !block.is_string() {
        return Err(Refusal::bad(format!(
            "Invalid input for field/attribute block_migration. Value: {block}."
        )));
    }
    no_extra(args, NAME, known)?;
    let host = args.get("host").and_then(Value::as_str).map(HostName::from);
    if args.get("force").is_some_and(truthy) && host.is_none() {
        return Err(Refusal::bad("Can't force to a non-provided destination"));
    }
    needs(server, &[V::Active, V::Paused], true, NAME)?;
    if let Some(host) = &host {
        if state.hosts.get(host).is_none_or(|host| host.service.is_none()) {
            return Err(Refusal::bad(format!("Compute host {host} could not be found.")));
        }
        if server.host.as_ref() == Some(host) && !req.since(34) {
            let text = format!(
                "Unable to migrate instance ({}) to current host ({host}).",
                server.id
            );
            return Err(Refusal::bad(text));
        }
    }
    let source_up = server
        .host
        .as_ref()
        .and_then(|host| state.hosts.get(host)?.service.as_ref())
        .is_some_and(|service| service.is_up(state.now));
    note(state, req, server, "live-migration")?;
    if !source_up {
        return live_refused(state, req, server);
    }
    let order = order(req, server, host)?;
    state.begin_live(&order);
    Ok(Answer::empty(202))
}

/// The source is down: before 2.34 the caller is told, later the failure only shows in the records.
fn live_refused(state: &mut State, req: &Req, server: &Server) -> Outcome {
    let host = server.host.clone().unwrap_or_else(|| HostName::from(""));
    let text = format!("Compute service of {host} is unavailable at this time.");
    let order = order(req, server, None)?;
    if let Some(id) = state.record_move(&order, crate::world::MigrationKind::Live) {
        state.set_migration(id, crate::world::MigrationStatus::Error);
    }
    state.set_fault(server.id, 400, text.clone());
    if req.since(34) {
        Ok(Answer::empty(202))
    } else {
        Err(Refusal::bad(text))
    }
}

fn cold(state: &mut State, req: &Req, server: &Server, args: &Value) -> Outcome {
    let host = if req.since(56) && !args.is_null() {
        let args = fields(args, "migrate")?;
        no_extra(args, "migrate", &["host"])?;
        args.get("host").and_then(Value::as_str).map(HostName::from)
    } else {
        None
    };
    needs(server, &[V::Active, V::Stopped], true, "migrate")?;
    if let Some(host) = &host {
        if state.hosts.get(host).is_none_or(|host| host.service.is_none()) {
            return Err(Refusal::bad(format!("Compute host {host} could not be found.")));
        }
        if server.host.as_ref() == Some(host) {
            return Err(Refusal::bad(
                "Cannot migrate to the host where the server exists.",
            ));
        }
    }
    let up = server
        .host
        .as_ref()
        .and_then(|host| state.hosts.get(host)?.service.as_ref())
        .is_some_and(|service| service.is_up(state.now));
    if !up {
        return Err(Refusal::conflict("Service is unavailable at this time."));
    }
    note(state, req, server, "migrate")?;
    let order = order(req, server, host)?;
    state.begin_cold(&order, None);
    Ok(Answer::empty(202))
}

fn resize(state: &mut State, req: &Req, server: &Server, args: &Value) -> Outcome {
    needs(server, &[V::Active, V::Stopped], true, "resize")?;
    let id = match &args["flavorRef"] {
        Value::String(id) => id.rsplit('/').next().unwrap_or(id).to_owned(),
        Value::Number(id) => id.to_string(),
        _ => {
            return Err(Refusal::bad(
                "Invalid input for field/attribute resize. 'flavorRef' is a required property",
            ));
        }
    };
    let flavor = state.flavors.get(&id).cloned();
    let flavor = flavor.ok_or_else(|| Refusal::bad("Unable to locate requested flavor."))?;
    if flavor.id == server.flavor.id {
        return Err(Refusal::bad("When resizing, instances must change flavor!"));
    }
    note(state, req, server, "resize")?;
    let order = order(req, server, None)?;
    state.begin_cold(&order, Some(flavor));
    Ok(Answer::empty(202))
}

/// The version of compute services from which on evacuated servers end stopped.
const ENDS_STOPPED: u32 = 62;

/// Whether Nova knows a compute service at all that is new enough. It does not look at those that are forced down, and
/// answers with the text of a dictionary.
fn knows_new_computes(state: &State) -> Result<(), Refusal> {
    let mut services = state.hosts.values().filter_map(|host| host.service.as_ref());
    if services.any(|service| !service.forced_down && !service.cell_down) {
        return Ok(());
    }
    let text = format!("{{'currently': 0, 'expected': {ENDS_STOPPED}}}");
    Err(Refusal::bad(text))
}

fn evacuate(state: &mut State, req: &Req, server: &Server, args: &Value) -> Outcome {
    const NAME: &str = "evacuate";
    let args = fields(args, NAME)?;
    if req.since(95) {
        knows_new_computes(state)?;
    }
    let known: &[&str] = match req.version {
        0..=13 => &["host", "onSharedStorage", "adminPass"],
        14..=28 => &["host", "adminPass"],
        29..=67 => &["host", "adminPass", "force"],
        _ => &["host", "adminPass"],
    };
    if !req.since(14) {
        required(args, NAME, "onSharedStorage")?;
    }
    no_extra(args, NAME, known)?;
    let host = args.get("host").and_then(Value::as_str).map(HostName::from);
    if args.get("force").is_some_and(truthy) && host.is_none() {
        return Err(Refusal::bad("Can't force to a non-provided destination"));
    }
    if let Some(host) = &host {
        if state.hosts.get(host).is_none_or(|host| host.service.is_none()) {
            return Err(Refusal::missing(format!("Compute host {host} not found.")));
        }
        if server.host.as_ref() == Some(host) {
            return Err(Refusal::bad("The target host can't be the same one."));
        }
    }
    if server.share {
        let text = "Feature not supported with instances that have shares.";
        return Err(Refusal::conflict(text));
    }
    // Since Zed a task state does not keep a server from being evacuated.
    needs(server, &[V::Active, V::Stopped, V::Error], false, NAME)?;
    let source = server.host.clone().unwrap_or_else(|| HostName::from(""));
    let up = state
        .hosts
        .get(&source)
        .and_then(|host| host.service.as_ref())
        .is_some_and(|service| service.is_up(state.now));
    if up {
        return Err(Refusal::bad(format!(
            "Compute service of {source} is still in use."
        )));
    }
    note(state, req, server, NAME)?;
    let order = order(req, server, host)?;
    state.begin_evacuate(&order, req.since(95));
    if req.since(14) {
        Ok(Answer::empty(200))
    } else {
        Ok(Answer::ok(json!({"adminPass": "simulated"})))
    }
}

fn reset_state(state: &mut State, server: &Server, args: &Value) -> Outcome {
    let vm = match args["state"].as_str() {
        Some("active") => V::Active,
        Some("error") => V::Error,
        _ => {
            let asked = args["state"].as_str().unwrap_or_default();
            let text = format!(
                "Invalid input for field/attribute state. Value: {asked}. '{asked}' is not one of ['active', 'error']"
            );
            return Err(Refusal::bad(text));
        }
    };
    state.set_states(server.id, vm, None);
    Ok(Answer::empty(202))
}

fn lock(state: &mut State, req: &Req, server: &Server, args: &Value) -> Outcome {
    let reason = args["locked_reason"].as_str().map(str::to_owned);
    if reason.is_some() && !req.since(73) {
        return Err(Refusal::bad(
            "Invalid input for field/attribute lock. Additional properties are not allowed",
        ));
    }
    let by = if req.caller()?.is_admin() {
        "admin"
    } else {
        "owner"
    };
    let lock = Lock {
        by: by.to_owned(),
        reason,
    };
    state.touch(server.id, |server| server.lock = Some(lock));
    Ok(Answer::empty(202))
}

fn console(state: &mut State, server: &Server, args: &Value) -> Outcome {
    let ready = server.host.as_ref().is_some_and(|host| state.drivable(host));
    if server.vm_state == V::Building || server.host.is_none() {
        return Err(Refusal::conflict(format!("Instance {} is not ready", server.id)));
    }
    if !ready {
        let host = server.host.clone().unwrap_or_else(|| HostName::from(""));
        return Err(Refusal::conflict(format!(
            "Compute service of {host} is unavailable at this time."
        )));
    }
    if server.power_state != power_state::RUNNING {
        return Err(Refusal::missing("Guest does not have a console available."));
    }
    let text = server.console(state.now, state.settings.guest_boot);
    let lines: Vec<&str> = text.split('\n').collect();
    let wanted = match &args["length"] {
        Value::Number(count) => count.as_i64(),
        Value::String(count) => count.parse().ok(),
        _ => None,
    };
    let from = match wanted {
        Some(count) if count >= 0 => lines.len().saturating_sub(count as usize),
        _ => 0,
    };
    let output = lines.get(from..).unwrap_or_default().join("\n");
    Ok(Answer::ok(json!({"output": output})))
}
