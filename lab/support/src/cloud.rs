// SPDX-License-Identifier: Apache-2.0
//! The OpenStack calls that suites need, blocking and small. It is not the client that is under
//! test anywhere: it is the second opinion.

use std::cell::RefCell;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::web::{self, Answer};
use crate::{ControlPlane, Error, Host, Result, eventually};

/// Debian 12's Nova ends at 2.93; 2.90 keeps a server's state over an evacuation.
const COMPUTE_VERSION: &str = "compute 2.90";
const PLACEMENT_VERSION: &str = "placement 1.36";
const PATIENCE: Duration = Duration::from_mins(3);

/// An authenticated administrator.
#[derive(Debug)]
pub struct Cloud {
    control: ControlPlane,
    token: RefCell<Option<String>>,
}

/// A server as Nova sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Server {
    /// Its id, also the UUID of its libvirt domain.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `ACTIVE`, `ERROR`, ...
    pub status: String,
    /// The host it is on.
    #[serde(rename = "OS-EXT-SRV-ATTR:host")]
    pub host: Option<String>,
    /// The name of its domain.
    #[serde(rename = "OS-EXT-SRV-ATTR:instance_name")]
    pub instance_name: Option<String>,
    /// What Nova is doing with it.
    #[serde(rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    /// Nova's finer state.
    #[serde(rename = "OS-EXT-STS:vm_state")]
    pub vm_state: Option<String>,
}

/// A nova-compute service.
#[derive(Debug, Clone, Deserialize)]
pub struct ComputeService {
    /// Its id.
    pub id: String,
    /// Its host.
    pub host: String,
    /// `up` or `down`.
    pub state: String,
    /// `enabled` or `disabled`.
    pub status: String,
    /// Whether somebody declared it dead.
    pub forced_down: bool,
    /// When it last gave a sign of life.
    pub updated_at: Option<String>,
}

/// A migration or evacuation record.
#[derive(Debug, Clone, Deserialize)]
pub struct Migration {
    /// `live-migration`, `evacuation`, ...
    pub migration_type: Option<String>,
    /// `completed`, `done`, `error`, ...
    pub status: String,
    /// Where the server was.
    pub source_compute: Option<String>,
    /// Where it went.
    pub dest_compute: Option<String>,
}

impl Cloud {
    /// A client for the control plane; it logs in with the first call.
    pub fn new(control: ControlPlane) -> Self {
        Self {
            control,
            token: RefCell::new(None),
        }
    }

    /// Boots a small server on the given host and waits until it is active. The name should begin
    /// with `real-`: such servers are cleared away before the next test.
    pub fn boot(&self, name: &str, host: &Host) -> Result<Server> {
        let id = self.create(name, host)?;
        self.wait_for(&id, "ACTIVE", Some(host.name()))
    }

    /// The same without waiting, for several at once; the id of the server.
    pub fn create(&self, name: &str, host: &Host) -> Result<String> {
        self.create_from("tiny", name, host)
    }

    /// The same from another image: `hangs-once` makes a guest that does nothing, which its watchdog notices and pauses.
    pub fn create_from(&self, image: &str, name: &str, host: &Host) -> Result<String> {
        let image = self.image(image)?;
        let body = json!({ "server": {
            "name": name, "imageRef": image, "flavorRef": "nano", "networks": "none", "host": host.name(),
        }});
        let made = self.compute("POST", "/servers", Some(&body))?;
        text_at(&made, "/server/id", "/servers")
    }

    /// Waits until a server has a status, sits on a host (if given), and nothing is going on with it.
    pub fn wait_for(&self, id: &str, status: &str, host: Option<&str>) -> Result<Server> {
        let what = format!("server {id} to be {status} on {}", host.unwrap_or("any host"));
        eventually(&what, PATIENCE, || {
            let server = self.server(id)?;
            let there = host.is_none() || server.host.as_deref() == host;
            let settled = server.status == status && server.task_state.is_none() && there;
            Ok(if settled {
                Ok(server)
            } else {
                Err(format!("{server:?}"))
            })
        })
    }

    /// One server.
    pub fn server(&self, id: &str) -> Result<Server> {
        let path = format!("/servers/{id}");
        part(self.compute("GET", &path, None)?, "server", &path)
    }

    /// Every server of every project.
    pub fn servers(&self) -> Result<Vec<Server>> {
        let path = "/servers/detail?all_tenants=true";
        part(self.compute("GET", path, None)?, "servers", path)
    }

    /// Deletes a server and waits until Nova has forgotten it.
    pub fn delete(&self, id: &str) -> Result<()> {
        let path = format!("/servers/{id}");
        match self.compute("DELETE", &path, None) {
            Ok(_) | Err(Error::Status { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        eventually(&format!("server {id} to be gone"), PATIENCE, || {
            match self.server(id) {
                Err(Error::Status { status: 404, .. }) => Ok(Ok(())),
                other => Ok(Err(format!("{other:?}"))),
            }
        })
    }

    /// Asks for a live migration to a host, or to wherever the scheduler likes.
    pub fn live_migrate(&self, id: &str, target: Option<&Host>) -> Result<()> {
        let body = json!({ "os-migrateLive": { "host": target.map(Host::name), "block_migration": "auto" } });
        self.action(id, &body)
    }

    /// Waits until a live migration has brought a server to its target and its record is closed: until then the
    /// host it came from still cleans up, and would take along what comes back to it. One that Nova gave up is an
    /// error at once: the server then stays active where it was, and nothing more will come.
    pub fn wait_for_live_migration(&self, id: &str, target: &Host) -> Result<Server> {
        let what = format!("server {id} to be migrated to {}", target.name());
        let arrived = eventually(&what, PATIENCE, || {
            let server = self.server(id)?;
            let settled = server.status == "ACTIVE" && server.task_state.is_none();
            let arrived = server.host.as_deref() == Some(target.name());
            // newest first
            let newest = self.migrations(id)?.into_iter().next();
            let status = newest.as_ref().map_or("", |record| record.status.as_str());
            Ok(match status {
                "completed" if settled && arrived => Ok(Ok(server)),
                "error" | "failed" if settled => Ok(Err(format!("{newest:?}"))),
                _ => Err(format!("{server:?} {newest:?}")),
            })
        })?;
        arrived.map_err(|last| Error::Timeout {
            what,
            waited: Duration::ZERO,
            last,
        })
    }

    /// Asks for an evacuation; Nova refuses while it thinks that the host is up.
    pub fn evacuate(&self, id: &str) -> Result<()> {
        self.action(id, &json!({ "evacuate": {} }))
    }

    /// Any other server action.
    pub fn action(&self, id: &str, body: &Value) -> Result<()> {
        self.compute("POST", &format!("/servers/{id}/action"), Some(body))
            .map(drop)
    }

    /// The migration records of a server.
    pub fn migrations(&self, id: &str) -> Result<Vec<Migration>> {
        let path = format!("/os-migrations?instance_uuid={id}");
        part(self.compute("GET", &path, None)?, "migrations", &path)
    }

    /// Every nova-compute service.
    pub fn services(&self) -> Result<Vec<ComputeService>> {
        let path = "/os-services?binary=nova-compute";
        part(self.compute("GET", path, None)?, "services", path)
    }

    /// The hosts that Nova schedules to: those whose nova-compute it has found, and found up.
    pub fn schedulable(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Hypervisor {
            hypervisor_hostname: String,
            state: String,
        }
        let path = "/os-hypervisors/detail";
        let all: Vec<Hypervisor> = part(self.compute("GET", path, None)?, "hypervisors", path)?;
        let up = all.into_iter().filter(|one| one.state == "up");
        Ok(up.map(|one| one.hypervisor_hostname).collect())
    }

    /// The nova-compute service of one host.
    pub fn service(&self, host: &Host) -> Result<ComputeService> {
        let mut services = self.services()?.into_iter();
        services
            .find(|service| service.host == host.name())
            .ok_or_else(|| Error::NoHost(host.name().to_owned()))
    }

    /// Waits until a host's nova-compute is `up` or `down`. Nova says `up` for some seconds after the
    /// last sign of life, also of a host that has been dead meanwhile; here `up` takes a new sign.
    pub fn wait_for_service(&self, host: &Host, state: &str) -> Result<ComputeService> {
        let first = self.service(host).ok().map(|service| service.updated_at);
        let what = format!("nova-compute on {} to be {state}", host.name());
        eventually(&what, PATIENCE, || {
            let service = self.service(host)?;
            let fresh = state != "up" || Some(&service.updated_at) != first.as_ref();
            let wanted = service.state == state && fresh;
            Ok(if wanted {
                Ok(service)
            } else {
                Err(format!("{service:?}"))
            })
        })
    }

    /// Declares a host's nova-compute dead.
    pub fn force_down(&self, host: &Host) -> Result<()> {
        self.update_service(host, &json!({ "forced_down": true }))
    }

    /// Takes that back. Nova answers 400 until the returned nova-compute has cleaned up after its
    /// evacuations, so this waits for it.
    pub fn unforce(&self, host: &Host) -> Result<()> {
        eventually(
            &format!("forced_down of {} to be cleared", host.name()),
            PATIENCE,
            || {
                self.update_service(host, &json!({ "forced_down": false }))?;
                Ok(Ok(()))
            },
        )
    }

    /// Enables or disables scheduling to a host.
    pub fn set_enabled(&self, host: &Host, enabled: bool) -> Result<()> {
        let status = if enabled { "enabled" } else { "disabled" };
        self.update_service(host, &json!({ "status": status }))
    }

    fn update_service(&self, host: &Host, body: &Value) -> Result<()> {
        let id = self.service(host)?.id;
        self.compute("PUT", &format!("/os-services/{id}"), Some(body))
            .map(drop)
    }

    /// How many resource providers a server holds allocations on: one when all is well.
    pub fn allocations(&self, id: &str) -> Result<usize> {
        let path = format!("/allocations/{id}");
        let answer = self.placement("GET", &path, None)?;
        Ok(answer
            .get("allocations")
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len))
    }

    fn image(&self, name: &str) -> Result<String> {
        let path = format!("/v2/images?name={name}");
        let answer = self.call("GET", 9292, &path, "image 2", None)?;
        text_at(&answer, "/images/0/id", &path)
    }

    /// Any call to Nova, below `/v2.1`.
    pub fn compute(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.call(method, 8774, &format!("/v2.1{path}"), COMPUTE_VERSION, body)
    }

    /// Any call to Placement.
    pub fn placement(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.call(method, 8778, path, PLACEMENT_VERSION, body)
    }

    fn call(
        &self,
        method: &str,
        port: u16,
        path: &str,
        version: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let url = format!("http://{}:{port}{path}", self.control.address);
        let mut answer = self.attempt(method, &url, version, body)?;
        if answer.status == 401 {
            self.token.replace(None); // expired, or the control plane was started anew
            answer = self.attempt(method, &url, version, body)?;
        }
        answer.success()?.json()
    }

    fn attempt(&self, method: &str, url: &str, version: &str, body: Option<&Value>) -> Result<Answer> {
        let token = self.token()?;
        let headers = [
            ("x-auth-token", token.as_str()),
            ("openstack-api-version", version),
        ];
        // A question may be asked again when its answer was lost on the way; an order may not.
        let mut again = if method == "GET" { 2 } else { 0 };
        loop {
            match web::call(method, url, &headers, body) {
                Err(Error::Transport { .. }) if again > 0 => again -= 1,
                other => return other,
            }
        }
    }

    fn token(&self) -> Result<String> {
        if let Some(token) = self.token.borrow().clone() {
            return Ok(token);
        }
        let ControlPlane {
            auth_url,
            username,
            password,
            ..
        } = &self.control;
        let domain = json!({ "id": "default" });
        let user = json!({ "name": username, "password": password, "domain": domain });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user } },
            "scope": { "project": { "name": "admin", "domain": domain } },
        }});
        let url = format!("{auth_url}/auth/tokens");
        let answer = web::call("POST", &url, &[], Some(&body))?.success()?;
        let header = answer
            .headers
            .get("x-subject-token")
            .and_then(|value| value.to_str().ok());
        let token = header.map(str::to_owned).ok_or_else(|| Error::Shape {
            url,
            detail: "no X-Subject-Token".to_owned(),
        })?;
        self.token.replace(Some(token.clone()));
        Ok(token)
    }
}

/// Takes one member out of an answer and gives it its type.
fn part<T: DeserializeOwned>(mut answer: Value, member: &str, path: &str) -> Result<T> {
    let value = answer.get_mut(member).map(Value::take).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| Error::Shape {
        url: path.to_owned(),
        detail: format!("{member}: {error}"),
    })
}

fn text_at(answer: &Value, pointer: &str, path: &str) -> Result<String> {
    let text = answer.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| Error::Shape {
        url: path.to_owned(),
        detail: format!("nothing at {pointer}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_novas_words() {
        let answer = json!({ "server": {
            "id": "a", "name": "real-1", "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": "hv1",
            "OS-EXT-SRV-ATTR:instance_name": "instance-00000001",
            "OS-EXT-STS:task_state": null, "OS-EXT-STS:vm_state": "active",
        }});
        let server: Result<Server> = part(answer, "server", "/servers/a");
        assert_eq!(server.ok().and_then(|server| server.host).as_deref(), Some("hv1"));
    }

    #[test]
    fn a_missing_member_names_itself() {
        let outcome: Result<Vec<Server>> = part(json!({ "error": 1 }), "servers", "/servers/detail");
        let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("servers"), "{text}");
    }
}
