// SPDX-License-Identifier: Apache-2.0
//! Neutron: networks, subnets, ports and the agents on hosts.

use serde::Deserialize;
use serde_json::json;

use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{AgentId, NetworkId, PortId, ProjectId, SubnetId};
use crate::pages::marked_by_id;
use crate::session::{Removal, Session};

static NETWORKS: Call = Call::get(Service::Neutron, "list networks", "/networks");
static CREATE_NETWORK: Call = Call::post(Service::Neutron, "create a network", "/networks");
static DELETE_NETWORK: Call = Call::delete(Service::Neutron, "delete a network", "/networks/{network}");
static SUBNETS: Call = Call::get(Service::Neutron, "list subnets", "/subnets");
static CREATE_SUBNET: Call = Call::post(Service::Neutron, "create a subnet", "/subnets");
static DELETE_SUBNET: Call = Call::delete(Service::Neutron, "delete a subnet", "/subnets/{subnet}");
static PORTS: Call = Call::get(Service::Neutron, "list ports", "/ports");
static CREATE_PORT: Call = Call::post(Service::Neutron, "create a port", "/ports");
static DELETE_PORT: Call = Call::delete(Service::Neutron, "delete a port", "/ports/{port}");
static AGENTS: Call = Call::get(Service::Neutron, "list agents", "/agents");
static DELETE_AGENT: Call = Call::delete(Service::Neutron, "delete an agent", "/agents/{agent}");

/// Neutron as one session sees it.
#[derive(Debug, Clone)]
pub struct Neutron {
    session: Session,
}

impl Session {
    /// Neutron.
    pub fn neutron(&self) -> Neutron {
        Neutron {
            session: self.clone(),
        }
    }
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Network {
    /// Its id.
    pub id: NetworkId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// `ACTIVE`, `DOWN`, ...
    #[serde(default)]
    pub status: String,
    /// Whether every project may use it.
    #[serde(default)]
    pub shared: bool,
    /// Whether it leads outside.
    #[serde(default, rename = "router:external")]
    pub external: bool,
    /// Its project.
    #[serde(default)]
    pub project_id: Option<ProjectId>,
    /// Its subnets.
    #[serde(default)]
    pub subnets: Vec<SubnetId>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Its id.
    pub id: SubnetId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its network.
    pub network_id: NetworkId,
    /// Its range.
    pub cidr: String,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Port {
    /// Its id.
    pub id: PortId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its network.
    pub network_id: NetworkId,
    /// `ACTIVE`, `DOWN`, ...
    #[serde(default)]
    pub status: String,
    /// What is plugged in: a server's id.
    #[serde(default)]
    pub device_id: String,
    /// The host it is bound to.
    #[serde(default, rename = "binding:host_id")]
    pub host: Option<String>,
    /// How it is bound; `binding_failed` tells a broken host.
    #[serde(default, rename = "binding:vif_type")]
    pub vif_type: Option<String>,
}

/// Which ports to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortFilter {
    /// Of this network.
    pub network: Option<NetworkId>,
    /// Bound to this host.
    pub host: Option<String>,
    /// Plugged into this server.
    pub device: Option<String>,
}

/// An agent on a host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// `Open vSwitch agent`, ...
    pub agent_type: String,
    /// Its program.
    #[serde(default)]
    pub binary: String,
    /// Its host.
    pub host: String,
    /// Whether it gives signs of life.
    #[serde(default)]
    pub alive: bool,
    /// Whether it is in use.
    #[serde(default)]
    pub admin_state_up: bool,
}

marked_by_id!(Network, Subnet, Port, Agent);

impl Neutron {
    /// The networks that the session may see; `shared` keeps those that every project may use, or
    /// those that it may not.
    pub async fn networks(&self, shared: Option<bool>) -> Result<Vec<Network>> {
        let request = Request::new(&NETWORKS, &[]).maybe("shared", shared.map(|shared| shared.to_string()));
        self.session.list(request, "networks").await
    }

    /// Creates a network.
    pub async fn create_network(&self, name: &str) -> Result<Network> {
        let request = Request::new(&CREATE_NETWORK, &[])
            .about(format!("network {name}"))
            .json(&json!({ "network": { "name": name } }));
        self.session.member(request, "network").await
    }

    /// Deletes a network.
    pub async fn delete_network(&self, id: &NetworkId) -> Result<Removal> {
        self.session
            .remove(Request::new(&DELETE_NETWORK, &[id.as_str()]))
            .await
    }

    /// The subnets of a network, or all.
    pub async fn subnets(&self, network: Option<&NetworkId>) -> Result<Vec<Subnet>> {
        let request = Request::new(&SUBNETS, &[]).maybe("network_id", network.map(NetworkId::as_str));
        self.session.list(request, "subnets").await
    }

    /// Creates an IPv4 subnet without DHCP.
    pub async fn create_subnet(&self, network: &NetworkId, name: &str, cidr: &str) -> Result<Subnet> {
        let body = json!({ "subnet": {
            "network_id": network, "name": name, "cidr": cidr, "ip_version": 4, "enable_dhcp": false,
        }});
        let request = Request::new(&CREATE_SUBNET, &[])
            .about(format!("subnet {name}"))
            .json(&body);
        self.session.member(request, "subnet").await
    }

    /// Deletes a subnet.
    pub async fn delete_subnet(&self, id: &SubnetId) -> Result<Removal> {
        self.session
            .remove(Request::new(&DELETE_SUBNET, &[id.as_str()]))
            .await
    }

    /// The ports that match.
    pub async fn ports(&self, filter: &PortFilter) -> Result<Vec<Port>> {
        let request = Request::new(&PORTS, &[])
            .maybe("network_id", filter.network.as_ref().map(NetworkId::as_str))
            .maybe("binding:host_id", filter.host.clone())
            .maybe("device_id", filter.device.clone());
        self.session.list(request, "ports").await
    }

    /// Creates a port.
    pub async fn create_port(&self, network: &NetworkId, name: &str) -> Result<Port> {
        let request = Request::new(&CREATE_PORT, &[])
            .about(format!("port {name}"))
            .json(&json!({ "port": { "network_id": network, "name": name } }));
        self.session.member(request, "port").await
    }

    /// Deletes a port.
    pub async fn delete_port(&self, id: &PortId) -> Result<Removal> {
        self.session
            .remove(Request::new(&DELETE_PORT, &[id.as_str()]))
            .await
    }

    /// The agents of a host, or all.
    pub async fn agents(&self, host: Option<&str>) -> Result<Vec<Agent>> {
        let request = Request::new(&AGENTS, &[]).maybe("host", host);
        self.session.list(request, "agents").await
    }

    /// Deletes an agent's record. One that still runs comes back.
    pub async fn delete_agent(&self, id: &AgentId) -> Result<Removal> {
        self.session
            .remove(Request::new(&DELETE_AGENT, &[id.as_str()]))
            .await
    }
}
