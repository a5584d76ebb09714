// SPDX-License-Identifier: Apache-2.0
//! Nova: versions and microversions, then one function per resource. Paths, bodies, refusals and their texts follow the
//! real service; what only administrators may do is refused to others with the rule Nova names.

mod actions;
mod aggregates;
mod create;
mod flavors;
mod hypervisors;
mod migrations;
mod misc;
mod servers;
mod services;
mod view;

use serde_json::{Value, json};

use super::Shared;
use super::http::{Answer, Outcome, Refusal, Req, uuid};
use crate::world::{Server, State};

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    let max = shared.world.read(|state| state.settings.nova_max);
    let path: Vec<String> = req.path.clone();
    let mut path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [] => {
            return Ok(Answer::ok(
                json!({"versions": [old_version(req), version(req, max, false)]}),
            ));
        }
        ["v2.1"] => {
            req.version = microversion(req, max)?;
            return Ok(Answer::ok(json!({"version": version(req, max, true)})));
        }
        ["v2.1", ..] => {}
        _ => return Err(Refusal::missing("The resource could not be found.")),
    }
    req.version = microversion(req, max)?;
    req.caller()?;
    path.remove(0);
    // Older clients put the project first.
    if path.len() > 1 && path.first().is_some_and(|first| uuid(first).is_some()) {
        path.remove(0);
    }
    shared
        .world
        .attend(req.changes(), |state| dispatch(state, req, &path))
}

fn dispatch(state: &mut State, req: &Req, path: &[&str]) -> Outcome {
    match (req.method.as_str(), path) {
        ("GET", ["servers"]) => servers::list(state, req, false),
        ("GET", ["servers", "detail"]) => servers::list(state, req, true),
        ("POST", ["servers"]) => create::create(state, req),
        (_, ["servers", id, rest @ ..]) => server(state, req, id, rest),
        ("GET", ["os-services"]) => services::list(state, req),
        ("PUT", ["os-services", id]) => services::update(state, req, id),
        ("DELETE", ["os-services", id]) => services::delete(state, req, id),
        ("GET", ["os-hypervisors"]) => hypervisors::list(state, req, false),
        ("GET", ["os-hypervisors", "detail"]) => hypervisors::list(state, req, true),
        ("GET", ["os-hypervisors", "statistics"]) => hypervisors::statistics(state, req),
        ("GET", ["os-hypervisors", id]) => hypervisors::show(state, req, id),
        ("GET", ["os-hypervisors", id, "uptime"]) => hypervisors::uptime(state, req, id),
        (_, ["os-aggregates", rest @ ..]) => aggregates::handle(state, req, rest),
        ("GET", ["os-migrations"]) => migrations::list(state, req),
        (_, ["flavors", rest @ ..]) => flavors::handle(state, req, rest),
        (_, ["os-server-groups", rest @ ..]) => misc::groups(state, req, rest),
        (_, ["os-keypairs", rest @ ..]) => misc::keypairs(state, req, rest),
        ("GET", ["os-availability-zone"]) => misc::zones(state, req, false),
        ("GET", ["os-availability-zone", "detail"]) => misc::zones(state, req, true),
        ("GET", ["limits"]) => misc::limits(state, req),
        (_, ["os-quota-sets", rest @ ..]) => misc::quotas(state, req, rest),
        ("GET", ["extensions"]) => Ok(Answer::ok(json!({"extensions": []}))),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn server(state: &mut State, req: &Req, id: &str, rest: &[&str]) -> Outcome {
    match (req.method.as_str(), rest) {
        ("GET", []) => servers::show(state, req, id),
        ("PUT", []) => servers::update(state, req, id),
        ("DELETE", []) => servers::delete(state, req, id),
        ("POST", ["action"]) => actions::handle(state, req, id),
        ("GET", ["migrations"]) => migrations::of_server(state, req, id),
        ("GET", ["migrations", number]) => migrations::show(state, req, id, number),
        ("DELETE", ["migrations", number]) => migrations::abort(state, req, id, number),
        ("POST", ["migrations", number, "action"]) => migrations::force(state, req, id, number),
        ("GET", ["os-instance-actions"]) => misc::actions(state, req, id),
        ("GET", ["os-instance-actions", request]) => misc::action(state, req, id, request),
        (_, ["metadata", rest @ ..]) => servers::metadata(state, req, id, rest),
        ("GET", ["ips"]) => servers::addresses(state, req, id),
        ("GET", ["os-volume_attachments"]) => misc::attachments(state, req, id),
        ("GET", ["os-interface"]) => misc::interfaces(state, req, id),
        ("GET", ["os-security-groups"]) => Ok(Answer::ok(json!({"security_groups": []}))),
        ("GET", ["diagnostics"]) => misc::diagnostics(state, req, id),
        (_, ["tags", rest @ ..]) => servers::tags(state, req, id, rest),
        _ => Err(Refusal::missing("The resource could not be found.")),
    }
}

fn old_version(req: &Req) -> Value {
    json!({
        "id": "v2.0", "status": "SUPPORTED", "version": "", "min_version": "", "updated": "2011-01-21T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{}/v2/", req.base())}],
    })
}

fn version(req: &Req, max: u32, whole: bool) -> Value {
    let mut version = json!({
        "id": "v2.1", "status": "CURRENT", "version": format!("2.{max}"), "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{}/v2.1/", req.base())}],
    });
    if whole {
        version["links"] = json!([
            {"rel": "self", "href": format!("{}/v2.1/", req.base())},
            {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"},
        ]);
        version["media-types"] = json!([
            {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"},
        ]);
    }
    version
}

/// The microversion asked for: the newer header first, then the older, else 2.1.
fn microversion(req: &Req, max: u32) -> Result<u32, Refusal> {
    let header = |name: &str| req.headers.get(name).and_then(|value| value.to_str().ok());
    let asked = header("openstack-api-version")
        .and_then(|text| {
            text.split(',')
                .find_map(|one| one.trim().strip_prefix("compute "))
        })
        .or_else(|| header("x-openstack-nova-api-version"));
    let Some(asked) = asked.map(str::trim) else {
        return Ok(1);
    };
    if asked.eq_ignore_ascii_case("latest") {
        return Ok(max);
    }
    let numbers = asked
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    match numbers {
        Some((2, minor)) if (1..=max).contains(&minor) => Ok(minor),
        Some(_) => Err(Refusal::new(
            406,
            format!("Version {asked} is not supported by the API. Minimum is 2.1 and maximum is 2.{max}."),
        )),
        None => Err(Refusal::bad(format!(
            "API Version String {asked} is of invalid format. Must be of format MajorNum.MinorNum."
        ))),
    }
}

/// Refuses whoever is not an administrator.
fn admin(req: &Req, rule: &str) -> Result<(), Refusal> {
    if req.caller()?.is_admin() {
        Ok(())
    } else {
        Err(Refusal::policy(&format!("os_compute_api:{rule}")))
    }
}

/// A server the caller may see.
fn find<'a>(state: &'a State, req: &Req, id: &str) -> Result<&'a Server, Refusal> {
    let me = req.caller()?;
    uuid(id)
        .and_then(|id| state.servers.get(&id))
        .filter(|server| me.is_admin() || me.project() == Some(server.project))
        .ok_or_else(|| Refusal::missing(format!("Instance {id} could not be found.")))
}
