// SPDX-License-Identifier: Apache-2.0
//! The smaller records of the cloud: aggregates, images, networks, volumes, server groups and identities. They have no
//! behaviour of their own beyond what their services' answers need.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::names::HostName;

/// A host aggregate of Nova.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Aggregate {
    /// Number.
    pub id: u64,
    /// Identity.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Hosts.
    pub hosts: BTreeSet<HostName>,
    /// Pairs; `availability_zone` makes it a zone.
    pub metadata: BTreeMap<String, String>,
    /// When it was made.
    pub created: Moment,
    /// When it last changed.
    pub updated: Option<Moment>,
}

impl Aggregate {
    /// The zone it makes.
    pub fn zone(&self) -> Option<&str> {
        self.metadata.get("availability_zone").map(String::as_str)
    }

    /// Whether a host is in it.
    pub fn has(&self, host: &str) -> bool {
        self.hosts.contains(host)
    }
}

/// An image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Image {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// `queued`, `active` and so on.
    pub status: String,
    /// `public`, `private`, `shared`, `community`.
    pub visibility: String,
    /// Whose.
    pub owner: Uuid,
    /// How it is stored.
    pub disk_format: Option<String>,
    /// What it is wrapped in.
    pub container_format: Option<String>,
    /// Bytes, once there are any.
    pub size: Option<u64>,
    /// GiB a root disk needs at least.
    pub min_disk: u64,
    /// MiB it needs at least.
    pub min_ram: u64,
    /// Whether it may not be deleted.
    pub protected: bool,
    /// Other properties.
    pub properties: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// When it was made.
    pub created: Moment,
    /// When it last changed.
    pub updated: Moment,
}

/// A network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Network {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Whose.
    pub project: Uuid,
    /// Whether everybody may use it.
    pub shared: bool,
    /// Whether it leads outside.
    pub external: bool,
    /// `vlan`, `vxlan`, `flat`.
    pub kind: String,
    /// Its number on the wire.
    pub segment: Option<u32>,
    /// Packet size.
    pub mtu: u32,
    /// When it was made.
    pub created: Moment,
}

/// Addresses of a network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Subnet {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Of which network.
    pub network: Uuid,
    /// Whose.
    pub project: Uuid,
    /// First two numbers of its 16-bit range, such as `10.20`.
    pub prefix: String,
    /// Next address to give away.
    pub next: u32,
    /// When it was made.
    pub created: Moment,
}

/// A port of a network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Port {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// In which network.
    pub network: Uuid,
    /// With an address from which subnet.
    pub subnet: Uuid,
    /// Its address.
    pub address: String,
    /// Its hardware address.
    pub mac: String,
    /// Whose.
    pub project: Uuid,
    /// The server it is plugged into.
    pub server: Option<Uuid>,
    /// The host it is bound to.
    pub host: Option<HostName>,
    /// When it was made.
    pub created: Moment,
}

impl Subnet {
    /// The address with this number.
    pub(crate) fn address(&self, number: u32) -> String {
        format!("{}.{}.{}", self.prefix, number / 250 % 250, number % 250 + 1)
    }
}

impl Port {
    /// The hardware address that Neutron gives a port.
    pub(crate) fn mac_of(id: Uuid) -> String {
        let [.., five, four, three] = id.into_bytes();
        format!("fa:16:3e:{five:02x}:{four:02x}:{three:02x}")
    }
}

/// A volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Volume {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Whose.
    pub project: Uuid,
    /// Who made it.
    pub user: Uuid,
    /// GiB.
    pub size: u64,
    /// Type.
    pub kind: String,
    /// `available`, `in-use` and so on.
    pub status: String,
    /// Zone.
    pub zone: String,
    /// Whether a server can boot from it.
    pub bootable: bool,
    /// The image on it.
    pub image: Option<Uuid>,
    /// The server it is in, and as which device.
    pub attached: Option<(Uuid, String)>,
    /// When it was made.
    pub created: Moment,
}

/// A server group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerGroup {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// `affinity`, `anti-affinity` and their soft forms.
    pub policy: String,
    /// Whose.
    pub project: Uuid,
    /// Who made it.
    pub user: Uuid,
    /// Servers in it.
    pub members: BTreeSet<Uuid>,
}

/// A key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keypair {
    /// Whose.
    pub user: Uuid,
    /// Name.
    pub name: String,
    /// The public half.
    pub public_key: String,
}

/// An identity domain.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdentityDomain {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
}

/// A project.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Project {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// In which domain.
    pub domain: String,
}

/// A user with its password and what it may do where.
#[derive(Clone, Serialize, Deserialize)]
pub struct User {
    /// Identity.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// In which domain.
    pub domain: String,
    /// Password.
    pub password: String,
    /// Roles by project.
    pub roles: BTreeMap<Uuid, BTreeSet<String>>,
    /// Roles in the system itself.
    pub system_roles: BTreeSet<String>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A secret that stands for a user in one project.
#[derive(Clone, Serialize, Deserialize)]
pub struct AppCredential {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// Secret.
    pub secret: String,
    /// Whose.
    pub user: Uuid,
    /// Where.
    pub project: Uuid,
    /// What it may do there.
    pub roles: BTreeSet<String>,
}

impl std::fmt::Debug for AppCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppCredential")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
