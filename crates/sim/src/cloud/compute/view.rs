// SPDX-License-Identifier: Apache-2.0
//! How Nova shows a server, by microversion and by who asks.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::http::Req;
use crate::world::{HostName, Moment, Server, State, VmState};

pub(super) fn links(req: &Req, kind: &str, id: &str) -> Value {
    json!([
        {"rel": "self", "href": format!("{}/v2.1/{kind}/{id}", req.base())},
        {"rel": "bookmark", "href": format!("{}/{kind}/{id}", req.base())},
    ])
}

pub(super) fn brief(req: &Req, server: &Server) -> Value {
    let id = server.id.to_string();
    json!({"id": id, "name": server.name, "links": links(req, "servers", &id)})
}

/// Zones by host, looked up once per answer.
#[derive(Default)]
pub(super) struct Zones(BTreeMap<HostName, String>);

impl Zones {
    fn of(&mut self, state: &State, host: &HostName) -> String {
        self.0
            .entry(host.clone())
            .or_insert_with(|| state.zone_of(host.as_str()))
            .clone()
    }
}

pub(super) fn full(state: &State, req: &Req, server: &Server, zones: &mut Zones) -> Value {
    let admin = req
        .caller
        .as_ref()
        .is_some_and(super::super::tokens::Caller::is_admin);
    let id = server.id.to_string();
    let mut view = Map::new();
    let mut put = |key: &str, value: Value| {
        view.insert(key.to_owned(), value);
    };
    put("id", id.clone().into());
    put("name", server.name.clone().into());
    put("status", server.status().into());
    put("tenant_id", server.project.simple().to_string().into());
    put("user_id", server.user.simple().to_string().into());
    put("metadata", json!(server.metadata));
    put("hostId", host_id(server).into());
    put("image", image(req, server));
    put("flavor", flavor(req, server));
    put("created", server.created.iso().into());
    put("updated", server.updated.iso().into());
    put("addresses", addresses(state, server));
    put("accessIPv4", "".into());
    put("accessIPv6", "".into());
    put("links", links(req, "servers", &id));
    put("OS-DCF:diskConfig", "MANUAL".into());
    if matches!(server.vm_state, VmState::Error | VmState::Deleted)
        && server.status() != "REBUILD"
        && let Some(fault) = &server.fault
    {
        let mut shown = json!({"code": fault.code, "created": fault.created.iso(), "message": fault.message});
        if let (true, Some(details)) = (admin, &fault.details) {
            shown["details"] = details.clone().into();
        }
        put("fault", shown);
    }
    if matches!(
        server.status(),
        "ACTIVE" | "BUILD" | "REBUILD" | "RESIZE" | "VERIFY_RESIZE" | "MIGRATING"
    ) {
        put("progress", 0.into());
    }
    let zone = server.host.as_ref().map(|host| zones.of(state, host));
    let zone = zone.or_else(|| server.zone_asked.clone()).unwrap_or_default();
    put("OS-EXT-AZ:availability_zone", zone.into());
    put(
        "config_drive",
        if server.config_drive { "True" } else { "" }.into(),
    );
    put("key_name", json!(server.key_name));
    put(
        "OS-SRV-USG:launched_at",
        json!(server.launched_at.map(Moment::naive)),
    );
    put("OS-SRV-USG:terminated_at", Value::Null);
    if !server.ports.is_empty() {
        let groups: Vec<Value> = server
            .security_groups
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        put("security_groups", groups.into());
    }
    if admin {
        attributes(state, req, server, &mut put);
    }
    put(
        "OS-EXT-STS:task_state",
        json!(server.task_state.map(crate::world::TaskState::as_str)),
    );
    put("OS-EXT-STS:vm_state", server.vm_state.as_str().into());
    put("OS-EXT-STS:power_state", server.power_state.into());
    put("os-extended-volumes:volumes_attached", attached(req, server));
    newer(state, req, server, admin, &mut put);
    Value::Object(view)
}

/// What only administrators see.
fn attributes(state: &State, req: &Req, server: &Server, put: &mut impl FnMut(&str, Value)) {
    let node = server.host.as_ref().and_then(|host| state.hosts.get(host));
    put("OS-EXT-SRV-ATTR:host", json!(server.host));
    put("OS-EXT-SRV-ATTR:instance_name", server.domain_name().into());
    put(
        "OS-EXT-SRV-ATTR:hypervisor_hostname",
        json!(node.map(|host| &host.hypervisor_hostname)),
    );
    if req.since(3) {
        put(
            "OS-EXT-SRV-ATTR:reservation_id",
            format!("r-{:08x}", server.number).into(),
        );
        put("OS-EXT-SRV-ATTR:launch_index", 0.into());
        put("OS-EXT-SRV-ATTR:hostname", server.hostname.clone().into());
        put("OS-EXT-SRV-ATTR:kernel_id", "".into());
        put("OS-EXT-SRV-ATTR:ramdisk_id", "".into());
        put("OS-EXT-SRV-ATTR:root_device_name", "/dev/vda".into());
        put("OS-EXT-SRV-ATTR:user_data", Value::Null);
    }
}

fn newer(state: &State, req: &Req, server: &Server, admin: bool, put: &mut impl FnMut(&str, Value)) {
    if req.since(16) && admin {
        put("host_status", host_status(state, server).into());
    }
    if req.since(9) {
        put("locked", server.lock.is_some().into());
    }
    if req.since(73) {
        let reason = server.lock.as_ref().and_then(|lock| lock.reason.clone());
        put("locked_reason", json!(reason));
    }
    if req.since(19) {
        put("description", json!(server.description));
    }
    if req.since(26) {
        put("tags", json!(server.tags));
    }
    if req.since(63) {
        put("trusted_image_certificates", Value::Null);
    }
    if req.since(71) {
        put(
            "server_groups",
            server.group.iter().map(Uuid::to_string).collect(),
        );
    }
    if req.since(90) && !admin {
        put("OS-EXT-SRV-ATTR:hostname", server.hostname.clone().into());
    }
    if req.since(96) {
        put("pinned_availability_zone", json!(server.zone_asked));
    }
}

/// A stable name for a host that does not give it away to tenants.
fn host_id(server: &Server) -> String {
    let Some(host) = &server.host else {
        return String::new();
    };
    let seed = format!("{}{host}", server.project.simple());
    let hash = |salt: u64| {
        seed.bytes().fold(0xcbf2_9ce4_8422_2325 ^ salt, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    format!(
        "{:016x}{:016x}{:016x}{:08x}",
        hash(0),
        hash(1),
        hash(2),
        hash(3) as u32
    )
}

fn image(req: &Req, server: &Server) -> Value {
    match server.image {
        None => "".into(),
        Some(image) => json!({
            "id": image.to_string(),
            "links": [{"rel": "bookmark", "href": format!("{}/images/{image}", req.base())}],
        }),
    }
}

fn flavor(req: &Req, server: &Server) -> Value {
    let flavor = &server.flavor;
    if !req.since(47) {
        return json!({
            "id": flavor.id,
            "links": [{"rel": "bookmark", "href": format!("{}/flavors/{}", req.base(), flavor.id)}],
        });
    }
    json!({
        "original_name": flavor.name, "vcpus": flavor.vcpus, "ram": flavor.ram_mb, "disk": flavor.disk_gb,
        "ephemeral": flavor.ephemeral_gb, "swap": flavor.swap_mb, "extra_specs": flavor.extra_specs,
    })
}

pub(super) fn addresses(state: &State, server: &Server) -> Value {
    let mut networks: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in server.ports.iter().filter_map(|port| state.ports.get(port)) {
        let name = state
            .networks
            .get(&port.network)
            .map_or_else(String::new, |network| network.name.clone());
        networks.entry(name).or_default().push(json!({
            "version": 4, "addr": port.address, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": port.mac,
        }));
    }
    json!(networks)
}

fn attached(req: &Req, server: &Server) -> Value {
    let show = |attachment: &crate::world::Attachment| {
        let mut shown = json!({"id": attachment.volume.to_string()});
        if req.since(3) {
            shown["delete_on_termination"] = attachment.delete_on_termination.into();
        }
        shown
    };
    server.volumes.iter().map(show).collect()
}

/// What Nova says about the host to those who may know.
fn host_status(state: &State, server: &Server) -> &'static str {
    let Some(host) = server.host.as_ref().and_then(|host| state.hosts.get(host)) else {
        return "";
    };
    match &host.service {
        None => "UNKNOWN",
        Some(service) if service.forced_down => "DOWN",
        Some(service) if service.disabled => "MAINTENANCE",
        Some(service) if service.is_up(state.now) => "UP",
        Some(_) => "UNKNOWN",
    }
}
