// SPDX-License-Identifier: Apache-2.0
//! Neutron: networks, subnets, ports and agents as far as servers and operators look at them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Shared;
use super::http::{Answer, Outcome, Refusal, Req, truth, uuid};
use crate::world::{Network, Port, State, Subnet};

pub(super) fn handle(shared: &Shared, req: &mut Req) -> Outcome {
    let path = req.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    if path.is_empty() {
        let body = json!({"versions": [{
            "id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": format!("{}/v2.0/", req.base())}],
        }]});
        return Ok(Answer::ok(body));
    }
    req.caller()?;
    let Some((&"v2.0", rest)) = path.split_first() else {
        return Err(nothing());
    };
    shared
        .world
        .attend(req.changes(), |state| dispatch(state, req, rest))
}

fn nothing() -> Refusal {
    Refusal::missing("The resource could not be found.").code("HTTPNotFound")
}

fn missing(kind: &str, id: &str) -> Refusal {
    let code = match kind {
        "Network" => "NetworkNotFound",
        "Subnet" => "SubnetNotFound",
        _ => "PortNotFound",
    };
    Refusal::missing(format!("{kind} {id} could not be found.")).code(code)
}

fn dispatch(state: &mut State, req: &Req, path: &[&str]) -> Outcome {
    match (req.method.as_str(), path) {
        ("GET", []) => Ok(Answer::ok(json!({"resources": []}))),
        ("GET", ["networks"]) => {
            let seen = state.networks.values().filter(|network| sees(req, network));
            Ok(list(req, "networks", seen.map(|found| network(state, found))))
        }
        ("GET", ["networks", id]) => {
            let found = uuid(id)
                .and_then(|id| state.networks.get(&id))
                .filter(|n| sees(req, n));
            let found = found.ok_or_else(|| missing("Network", id))?;
            Ok(Answer::ok(json!({"network": network(state, found)})))
        }
        ("POST", ["networks"]) => create_network(state, req),
        ("DELETE", ["networks", id]) => {
            let key = uuid(id)
                .filter(|id| state.networks.contains_key(id))
                .ok_or_else(|| missing("Network", id))?;
            if state.ports.values().any(|port| port.network == key) {
                let text = format!(
                    "Unable to complete operation on network {id}. There are one or more ports still in use on the network."
                );
                return Err(Refusal::conflict(text).code("NetworkInUse"));
            }
            state.networks.remove(&key);
            state.subnets.retain(|_, subnet| subnet.network != key);
            Ok(Answer::empty(204))
        }
        ("GET", ["subnets"]) => Ok(list(req, "subnets", state.subnets.values().map(subnet))),
        ("GET", ["subnets", id]) => {
            let found = uuid(id)
                .and_then(|id| state.subnets.get(&id))
                .ok_or_else(|| missing("Subnet", id))?;
            Ok(Answer::ok(json!({"subnet": subnet(found)})))
        }
        ("GET", ["ports"]) => {
            let me = req.caller()?;
            let mine = state
                .ports
                .values()
                .filter(|port| me.is_admin() || me.project() == Some(port.project));
            Ok(list(req, "ports", mine.map(port)))
        }
        ("GET", ["ports", id]) => {
            let found = uuid(id)
                .and_then(|id| state.ports.get(&id))
                .ok_or_else(|| missing("Port", id))?;
            Ok(Answer::ok(json!({"port": port(found)})))
        }
        ("GET", ["agents"]) => Ok(agents(state, req)),
        ("GET", ["extensions"]) => Ok(Answer::ok(json!({"extensions": [{
            "alias": "binding", "name": "Port Binding", "description": "", "updated": "2014-02-03T10:00:00-00:00", "links": [],
        }, {
            "alias": "agent", "name": "agent", "description": "", "updated": "2013-02-03T10:00:00-00:00", "links": [],
        }]}))),
        ("GET", ["extensions", name]) => Ok(Answer::ok(json!({"extension": {"alias": name, "name": name}}))),
        ("GET", ["security-groups"]) => Ok(list(req, "security_groups", std::iter::empty())),
        ("GET", [kind @ ("routers" | "floatingips" | "trunks" | "address-groups")]) => {
            Ok(list(req, kind, std::iter::empty()))
        }
        _ => Err(nothing()),
    }
}

/// Neutron filters by any field: those in the query must equal.
fn list(req: &Req, key: &str, items: impl Iterator<Item = Value>) -> Answer {
    let skip = [
        "fields",
        "limit",
        "marker",
        "sort_key",
        "sort_dir",
        "page_reverse",
    ];
    let fits = |item: &Value| {
        req.query
            .iter()
            .filter(|(name, _)| !skip.contains(&name.as_str()))
            .all(|(name, _)| {
                let wanted: Vec<&str> = req.params(name).collect();
                wanted.iter().any(|wanted| match item.get(name) {
                    Some(Value::Bool(value)) => *value == truth(wanted),
                    Some(Value::String(value)) => value == wanted,
                    Some(Value::Number(value)) => value.to_string() == **wanted,
                    Some(_) => false,
                    // Fields Neutron does not know are no filters.
                    None => true,
                })
            })
    };
    let found: Vec<Value> = items.filter(fits).collect();
    let key = key.replace('-', "_");
    Answer::ok(json!({(key): found}))
}

fn sees(req: &Req, network: &Network) -> bool {
    let me = req.caller.as_ref();
    network.shared
        || network.external
        || me.is_some_and(|me| me.is_admin() || me.project() == Some(network.project))
}

fn simple(id: Uuid) -> String {
    id.simple().to_string()
}

fn network(state: &State, network: &Network) -> Value {
    let subnets: Vec<String> = state
        .subnets
        .values()
        .filter(|subnet| subnet.network == network.id)
        .map(|subnet| subnet.id.to_string())
        .collect();
    json!({
        "id": network.id.to_string(), "name": network.name, "status": "ACTIVE", "admin_state_up": true,
        "project_id": simple(network.project), "tenant_id": simple(network.project), "shared": network.shared,
        "router:external": network.external, "mtu": network.mtu, "subnets": subnets, "description": "", "tags": [],
        "provider:network_type": network.kind, "provider:physical_network": "physnet1",
        "provider:segmentation_id": network.segment, "port_security_enabled": true, "availability_zones": ["nova"],
        "availability_zone_hints": [], "ipv4_address_scope": null, "ipv6_address_scope": null,
        "created_at": network.created.iso(), "updated_at": network.created.iso(), "revision_number": 1,
    })
}

fn subnet(subnet: &Subnet) -> Value {
    let prefix = &subnet.prefix;
    json!({
        "id": subnet.id.to_string(), "name": subnet.name, "network_id": subnet.network.to_string(),
        "project_id": simple(subnet.project), "tenant_id": simple(subnet.project), "ip_version": 4,
        "cidr": format!("{prefix}.0.0/16"), "gateway_ip": format!("{prefix}.0.1"), "enable_dhcp": true,
        "allocation_pools": [{"start": format!("{prefix}.0.2"), "end": format!("{prefix}.255.254")}],
        "dns_nameservers": [], "host_routes": [], "description": "", "tags": [],
        "created_at": subnet.created.iso(), "updated_at": subnet.created.iso(), "revision_number": 0,
    })
}

fn port(port: &Port) -> Value {
    json!({
        "id": port.id.to_string(), "name": port.name, "network_id": port.network.to_string(), "status": "ACTIVE",
        "admin_state_up": true, "mac_address": port.mac, "project_id": simple(port.project), "tenant_id": simple(port.project),
        "fixed_ips": [{"subnet_id": port.subnet.to_string(), "ip_address": port.address}],
        "device_id": port.server.map(|id| id.to_string()).unwrap_or_default(),
        "device_owner": if port.server.is_some() { "compute:nova" } else { "" },
        "binding:host_id": port.host, "binding:vif_type": if port.host.is_some() { "ovs" } else { "unbound" },
        "binding:vnic_type": "normal", "binding:vif_details": {}, "binding:profile": {},
        "security_groups": [], "description": "", "tags": [],
        "created_at": port.created.iso(), "updated_at": port.created.iso(), "revision_number": 1,
    })
}

fn create_network(state: &mut State, req: &Req) -> Outcome {
    let body = req.json()?;
    let asked = &body["network"];
    let project = req.caller()?.project().unwrap_or_default();
    let made = Network {
        id: state.fresh(),
        name: asked["name"].as_str().unwrap_or_default().to_owned(),
        project,
        shared: asked["shared"].as_bool().unwrap_or(false),
        external: asked["router:external"].as_bool().unwrap_or(false),
        kind: "vlan".to_owned(),
        segment: Some(200 + state.networks.len() as u32),
        mtu: 1500,
        created: state.now,
    };
    let range = Subnet {
        id: state.fresh(),
        name: format!("{}-v4", made.name),
        network: made.id,
        project,
        prefix: format!("10.{}", 10 + state.networks.len()),
        next: 10,
        created: state.now,
    };
    let id = made.id;
    state.subnets.insert(range.id, range);
    state.networks.insert(id, made);
    let shown = state.networks.get(&id).map(|made| network(state, made));
    Ok(Answer::new(201, json!({"network": shown})))
}

fn agents(state: &State, req: &Req) -> Answer {
    let shown = state.hosts.values().filter(|host| host.service.is_some()).map(|host| {
        json!({
            "id": Uuid::from_u128(host.node_uuid.as_u128() ^ 0xa9e).to_string(), "agent_type": "Open vSwitch agent",
            "binary": "neutron-openvswitch-agent", "host": host.name, "topic": "N/A", "admin_state_up": true,
            "alive": host.reports(), "availability_zone": null, "configurations": {}, "description": null,
            "heartbeat_timestamp": state.now.naive().replace('T', " "),
        })
    });
    list(req, "agents", shown)
}
