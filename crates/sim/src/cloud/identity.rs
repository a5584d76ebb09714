// SPDX-License-Identifier: Apache-2.0
//! Keystone: tokens by password, token and application credential, in project, domain and system scope, the catalogue, and
//! the lists a client needs to turn names into identifiers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Shared;
use super::http::{Answer, Outcome, Refusal, Req, Service, uuid};
use super::tokens::{Caller, Scope, caller};
use crate::world::{AppCredential, State, User};

pub(crate) const REGION: &str = "RegionOne";
const ROLES: [&str; 3] = ["admin", "member", "reader"];

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    let path: Vec<&str> = req.path.iter().map(String::as_str).collect();
    match (req.method.as_str(), path.as_slice()) {
        ("GET", []) => {
            let body = json!({"versions": {"values": [version(req)]}});
            return Ok(Answer::new(300, body));
        }
        ("GET", ["v3"]) => return Ok(Answer::ok(json!({"version": version(req)}))),
        ("POST", ["v3", "auth", "tokens"]) => return authenticate(shared, req),
        _ => {}
    }
    let me = req.caller()?.clone();
    let Some((_, rest)) = path.split_first() else {
        return Err(nothing());
    };
    match (req.method.as_str(), rest) {
        ("GET" | "HEAD", ["auth", "tokens"]) => validate(shared, req),
        ("DELETE", ["auth", "tokens"]) => revoke(shared, req),
        ("POST", ["users", user, "application_credentials"]) => create_credential(shared, req, &me, user),
        ("GET", rest) => shared.world.read(|state| look(state, req, &me, rest)),
        _ => Err(nothing()),
    }
}

fn nothing() -> Refusal {
    Refusal::missing("(https://docs.openstack.org/api-ref/identity/v3/): The resource could not be found.")
}

fn version(req: &Req) -> Value {
    json!({
        "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/v3/", req.base())}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    })
}

fn simple(id: Uuid) -> String {
    id.simple().to_string()
}

fn authenticate(shared: &Shared, req: &Req) -> Outcome {
    let body = req
        .json()
        .map_err(|_| Refusal::bad("Expecting to find valid JSON in request body."))?;
    let auth = &body["auth"];
    let identity = &auth["identity"];
    let Some(methods) = identity["methods"].as_array() else {
        return Err(Refusal::bad(
            "Invalid input for field 'auth': 'identity' is a required property",
        ));
    };
    let methods: Vec<String> = methods
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let life = shared.world.read(|state| state.settings.token_life);
    let found = shared
        .world
        .read(|state| match methods.first().map(String::as_str) {
            Some("password") => {
                let user = by_password(state, &identity["password"]["user"])?;
                let scope = wanted_scope(state, &auth["scope"])?;
                grant(user, scope).map(|(scope, roles)| (user.id, scope, roles, None))
            }
            Some("token") => {
                let old = identity["token"]["id"]
                    .as_str()
                    .and_then(|id| shared.tokens.check(id));
                let old = old.ok_or_else(Refusal::unauthorized)?;
                let user = state.users.get(&old.user).ok_or_else(Refusal::unauthorized)?;
                let scope = wanted_scope(state, &auth["scope"])?;
                grant(user, scope).map(|(scope, roles)| (user.id, scope, roles, None))
            }
            Some("application_credential") => {
                let credential = by_credential(state, &identity["application_credential"])?;
                let scope = Scope::Project(credential.project);
                Ok((
                    credential.user,
                    scope,
                    credential.roles.clone(),
                    Some(credential.id.clone()),
                ))
            }
            _ => Err(Refusal::new(
                401,
                "Attempted to authenticate with an unsupported method.",
            )),
        });
    let (user, scope, roles, credential) = found?;
    let mut caller = caller(user, scope, roles, methods, life);
    caller.credential = credential;
    let body = shared.world.read(|state| token_body(state, req, &caller));
    let token = shared.tokens.issue(caller);
    Ok(Answer::new(201, body)
        .header("x-subject-token", token)
        .header("vary", "X-Auth-Token"))
}

/// A user named by id, or by name and domain, with the right password.
fn by_password<'a>(state: &'a State, asked: &Value) -> Result<&'a User, Refusal> {
    let user = if let Some(id) = asked["id"].as_str() {
        uuid(id).and_then(|id| state.users.get(&id))
    } else {
        let domain = domain_id(state, &asked["domain"]);
        state.users.values().find(|user| {
            Some(user.name.as_str()) == asked["name"].as_str() && Some(&user.domain) == domain.as_ref()
        })
    };
    user.filter(|user| asked["password"].as_str() == Some(user.password.as_str()))
        .ok_or_else(Refusal::unauthorized)
}

fn by_credential<'a>(state: &'a State, asked: &Value) -> Result<&'a AppCredential, Refusal> {
    let credential = if let Some(id) = asked["id"].as_str() {
        state
            .app_credentials
            .iter()
            .find(|credential| credential.id == id)
    } else {
        let name = asked["name"].as_str();
        let who = &asked["user"];
        let domain = domain_id(state, &who["domain"]);
        let user = state.users.values().find(|user| {
            let by_name =
                who["name"].as_str() == Some(user.name.as_str()) && Some(&user.domain) == domain.as_ref();
            by_name || who["id"].as_str() == Some(simple(user.id).as_str())
        });
        let user = user.map(|user| user.id);
        state
            .app_credentials
            .iter()
            .find(|credential| Some(credential.name.as_str()) == name && Some(credential.user) == user)
    };
    credential
        .filter(|credential| asked["secret"].as_str() == Some(credential.secret.as_str()))
        .ok_or_else(Refusal::unauthorized)
}

fn domain_id(state: &State, asked: &Value) -> Option<String> {
    let by_name = |name: &str| {
        let named = state
            .domains
            .values()
            .find(|domain| domain.name.eq_ignore_ascii_case(name));
        named.map(|domain| domain.id.clone())
    };
    match (asked["id"].as_str(), asked["name"].as_str()) {
        (Some(id), _) => state.domains.get(id).map(|domain| domain.id.clone()),
        (None, Some(name)) => by_name(name),
        (None, None) => None,
    }
}

fn wanted_scope(state: &State, asked: &Value) -> Result<Scope, Refusal> {
    if let Some(project) = asked.get("project") {
        let found = if let Some(id) = project["id"].as_str() {
            uuid(id).and_then(|id| state.projects.get(&id))
        } else {
            let domain = domain_id(state, &project["domain"]);
            let name = project["name"].as_str();
            state.projects.values().find(|project| {
                Some(project.name.as_str()) == name && Some(&project.domain) == domain.as_ref()
            })
        };
        return found
            .map(|project| Scope::Project(project.id))
            .ok_or_else(Refusal::unauthorized);
    }
    if let Some(domain) = asked.get("domain") {
        return domain_id(state, domain)
            .map(Scope::Domain)
            .ok_or_else(Refusal::unauthorized);
    }
    if asked.get("system").is_some() {
        return Ok(Scope::System);
    }
    Ok(Scope::Unscoped)
}

/// What a user may do in a scope; nothing there means no token.
fn grant(user: &User, scope: Scope) -> Result<(Scope, BTreeSet<String>), Refusal> {
    let roles = match &scope {
        Scope::Unscoped => return Ok((scope, BTreeSet::new())),
        Scope::Project(project) => user.roles.get(project).cloned().unwrap_or_default(),
        Scope::Domain(_) | Scope::System => user.system_roles.clone(),
    };
    if roles.is_empty() {
        return Err(Refusal::unauthorized());
    }
    Ok((scope, roles))
}

fn token_body(state: &State, req: &Req, caller: &Caller) -> Value {
    let domain = |id: &str| {
        let name = state.domains.get(id).map_or(id, |domain| domain.name.as_str());
        json!({"id": id, "name": name})
    };
    let mut token = json!({
        "methods": caller.methods, "issued_at": caller.issued.precise(), "expires_at": caller.expires.precise(),
        "audit_ids": [caller.audit], "is_domain": false,
    });
    if let Some(user) = state.users.get(&caller.user) {
        token["user"] = json!({
            "id": simple(user.id), "name": user.name, "domain": domain(&user.domain), "password_expires_at": null,
        });
    }
    match &caller.scope {
        Scope::Unscoped => {
            return json!({"token": token});
        }
        Scope::Project(id) => {
            if let Some(project) = state.projects.get(id) {
                token["project"] = json!({
                    "id": simple(*id), "name": project.name, "domain": domain(&project.domain),
                });
            }
        }
        Scope::Domain(id) => token["domain"] = domain(id),
        Scope::System => token["system"] = json!({"all": true}),
    }
    if let Some(id) = &caller.credential {
        token["application_credential"] = json!({"id": id, "restricted": true});
    }
    token["roles"] = caller
        .roles
        .iter()
        .map(|name| json!({"id": role_id(name), "name": name}))
        .collect();
    token["catalog"] = catalog(req);
    json!({"token": token})
}

fn role_id(name: &str) -> String {
    simple(Uuid::from_u128(
        0x0b0b << 64 | name.bytes().fold(0, |sum, byte| sum * 31 + u128::from(byte)),
    ))
}

/// Where each service is, as its own documents say.
fn endpoints(req: &Req) -> Vec<(Service, &'static str, &'static str, String)> {
    let at = |path: &str| format!("{}{path}", req.origin);
    vec![
        (Service::Identity, "identity", "keystone", at("/identity")),
        (Service::Compute, "compute", "nova", at("/compute/v2.1")),
        (Service::Placement, "placement", "placement", at("/placement")),
        (Service::Image, "image", "glance", at("/image")),
        (Service::Network, "network", "neutron", at("/network")),
        (Service::Volume, "volumev3", "cinderv3", at("/volume/v3")),
        (Service::Volume, "block-storage", "cinder", at("/volume/v3")),
    ]
}

fn service_id(kind: &str) -> String {
    role_id(&format!("service-{kind}"))
}

fn catalog(req: &Req) -> Value {
    let entry = |(_, kind, name, url): (Service, &str, &str, String)| {
        let places: Vec<Value> = ["public", "internal", "admin"]
            .iter()
            .map(|interface| {
                json!({
                    "id": role_id(&format!("{kind}-{interface}")), "interface": interface,
                    "region": REGION, "region_id": REGION, "url": url,
                })
            })
            .collect();
        json!({"id": service_id(kind), "type": kind, "name": name, "endpoints": places})
    };
    endpoints(req).into_iter().map(entry).collect()
}

fn subject(req: &Req) -> Result<&str, Refusal> {
    let token = req
        .headers
        .get("x-subject-token")
        .and_then(|token| token.to_str().ok());
    token.ok_or_else(|| Refusal::bad("Expecting to find X-Subject-Token in header."))
}

fn validate(shared: &Shared, req: &Req) -> Outcome {
    let token = subject(req)?;
    let missing = || Refusal::missing("Failed to validate token");
    let caller = shared.tokens.check(token).ok_or_else(missing)?;
    let body = shared.world.read(|state| token_body(state, req, &caller));
    Ok(Answer::ok(body).header("x-subject-token", token))
}

fn revoke(shared: &Shared, req: &Req) -> Outcome {
    if shared.tokens.revoke(subject(req)?) {
        Ok(Answer::empty(204))
    } else {
        Err(Refusal::missing("Failed to validate token"))
    }
}

fn create_credential(shared: &Shared, req: &Req, me: &Caller, user: &str) -> Outcome {
    let asked = &req.json()?["application_credential"];
    let name = asked["name"].as_str().unwrap_or_default().to_owned();
    let Some(project) = me.project().filter(|_| uuid(user) == Some(me.user)) else {
        let text =
            "You are not authorized to perform the requested action: identity:create_application_credential.";
        return Err(Refusal::forbidden(text));
    };
    if name.is_empty() {
        return Err(Refusal::bad("'name' is a required property"));
    }
    let secret = asked["secret"]
        .as_str()
        .map_or_else(|| simple(Uuid::new_v4()), str::to_owned);
    let credential = shared.world.change(|state| {
        let credential = AppCredential {
            id: simple(state.fresh()),
            name,
            secret,
            user: me.user,
            project,
            roles: me.roles.clone(),
        };
        state.app_credentials.push(credential.clone());
        credential
    });
    let body = json!({"application_credential": {
        "id": credential.id, "name": credential.name, "secret": credential.secret, "project_id": simple(project),
        "roles": credential.roles.iter().map(|name| json!({"id": role_id(name), "name": name})).collect::<Vec<_>>(),
        "unrestricted": false, "expires_at": null, "description": null,
    }});
    Ok(Answer::new(201, body))
}

fn look(state: &State, req: &Req, me: &Caller, path: &[&str]) -> Outcome {
    let links =
        json!({"self": format!("{}/v3/{}", req.base(), path.join("/")), "next": null, "previous": null});
    let named = |name: &str| req.param("name").is_none_or(|wanted| wanted == name);
    let list = |key: &str, items: Vec<Value>| Ok(Answer::ok(json!({(key): items, "links": links})));
    let project = |project: &crate::world::Project| {
        json!({"id": simple(project.id), "name": project.name, "domain_id": project.domain, "enabled": true,
               "is_domain": false, "parent_id": project.domain, "description": "", "tags": [], "options": {}})
    };
    let user = |user: &User| {
        json!({"id": simple(user.id), "name": user.name, "domain_id": user.domain, "enabled": true,
               "password_expires_at": null, "options": {}})
    };
    let domain = |domain: &crate::world::IdentityDomain| json!({"id": domain.id, "name": domain.name, "enabled": true, "description": "", "tags": [], "options": {}});
    let role = |name: &str| json!({"id": role_id(name), "name": name, "domain_id": null, "options": {}});
    let in_domain = |id: &str| req.param("domain_id").is_none_or(|wanted| wanted == id);
    match path {
        ["auth", "catalog"] => list("catalog", catalog(req).as_array().cloned().unwrap_or_default()),
        ["auth", "projects"] | ["users", _, "projects"] => {
            let roles = state.users.get(&me.user).map(|user| &user.roles);
            let mine = state
                .projects
                .values()
                .filter(|p| roles.is_some_and(|roles| roles.contains_key(&p.id)));
            list("projects", mine.map(project).collect())
        }
        ["projects"] => {
            let wanted = state
                .projects
                .values()
                .filter(|p| named(&p.name) && in_domain(&p.domain));
            list("projects", wanted.map(project).collect())
        }
        ["projects", id] => {
            let found = uuid(id).and_then(|id| state.projects.get(&id));
            let found = found.ok_or_else(|| Refusal::missing(format!("Could not find project: {id}.")))?;
            Ok(Answer::ok(json!({"project": project(found)})))
        }
        ["users"] => {
            let wanted = state
                .users
                .values()
                .filter(|u| named(&u.name) && in_domain(&u.domain));
            list("users", wanted.map(user).collect())
        }
        ["users", id] => {
            let found = uuid(id).and_then(|id| state.users.get(&id));
            let found = found.ok_or_else(|| Refusal::missing(format!("Could not find user: {id}.")))?;
            Ok(Answer::ok(json!({"user": user(found)})))
        }
        ["domains"] => list(
            "domains",
            state
                .domains
                .values()
                .filter(|d| named(&d.name))
                .map(domain)
                .collect(),
        ),
        ["domains", id] => {
            let found = state.domains.get(*id);
            let found = found.ok_or_else(|| Refusal::missing(format!("Could not find domain: {id}.")))?;
            Ok(Answer::ok(json!({"domain": domain(found)})))
        }
        ["roles"] => list(
            "roles",
            ROLES
                .iter()
                .filter(|name| named(name))
                .map(|name| role(name))
                .collect(),
        ),
        ["regions"] => list(
            "regions",
            vec![json!({"id": REGION, "description": "", "parent_region_id": null})],
        ),
        ["regions", REGION] => Ok(Answer::ok(
            json!({"region": {"id": REGION, "description": "", "parent_region_id": null}}),
        )),
        ["services"] => {
            let all = endpoints(req).into_iter().filter(|(_, kind, name, _)| {
                named(name) && req.param("type").is_none_or(|wanted| wanted == *kind)
            });
            let entry = |(_, kind, name, _): (_, &str, &str, _)| json!({"id": service_id(kind), "type": kind, "name": name, "enabled": true, "description": ""});
            list("services", all.map(entry).collect())
        }
        ["endpoints"] => {
            let entry = |(_, kind, _, url): (_, &str, &str, String)| {
                json!({"id": role_id(&format!("{kind}-public")), "interface": "public", "region": REGION,
                       "region_id": REGION, "service_id": service_id(kind), "url": url, "enabled": true})
            };
            list("endpoints", endpoints(req).into_iter().map(entry).collect())
        }
        _ => Err(nothing()),
    }
}
