// SPDX-License-Identifier: Apache-2.0
//! Servers: reading, listing, creating, deleting.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Nova;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{
    FlavorId, ImageId, NetworkId, ProjectId, ServerGroupId, ServerId, UserId, VolumeId, states,
};
use crate::pages::marked_by_id;
use crate::session::Removal;
use crate::version::Microversion;
use crate::when;

static LIST: Call = Call::get(Service::Nova, "list servers", "/servers/detail");
static LIST_SHORT: Call = Call::get(Service::Nova, "list server names", "/servers");
static SHOW: Call = Call::get(Service::Nova, "show a server", "/servers/{server}");
static CREATE: Call = Call::post(Service::Nova, "create a server", "/servers");
static DELETE: Call = Call::delete(Service::Nova, "delete a server", "/servers/{server}");

states! {
    /// A server's status, as users see it.
    ServerStatus {
        /// It runs.
        Active = "ACTIVE",
        /// It is being made.
        Build = "BUILD",
        /// It is gone.
        Deleted = "DELETED",
        /// Something failed; see its fault.
        Error = "ERROR",
        /// It is being reset.
        HardReboot = "HARD_REBOOT",
        /// It is being migrated live.
        Migrating = "MIGRATING",
        /// Its password is being set.
        Password = "PASSWORD",
        /// It stands still, in memory.
        Paused = "PAUSED",
        /// It is being rebooted.
        Reboot = "REBOOT",
        /// It is being rebuilt or evacuated.
        Rebuild = "REBUILD",
        /// It runs a rescue image.
        Rescue = "RESCUE",
        /// It is being resized or migrated cold.
        Resize = "RESIZE",
        /// A resize is being taken back.
        RevertResize = "REVERT_RESIZE",
        /// It is put aside.
        Shelved = "SHELVED",
        /// It is put aside and on no host.
        ShelvedOffloaded = "SHELVED_OFFLOADED",
        /// It is off.
        Shutoff = "SHUTOFF",
        /// It is deleted but can be brought back.
        SoftDeleted = "SOFT_DELETED",
        /// It stands still, on disk.
        Suspended = "SUSPENDED",
        /// Nova cannot tell, for example because a cell is down.
        Unknown = "UNKNOWN",
        /// A resize or cold migration waits to be confirmed.
        VerifyResize = "VERIFY_RESIZE",
    }
}

states! {
    /// A server's state in Nova's own words.
    VmState {
        /// It runs.
        Active = "active",
        /// It is being made.
        Building = "building",
        /// It stands still, in memory.
        Paused = "paused",
        /// It stands still, on disk.
        Suspended = "suspended",
        /// It is off.
        Stopped = "stopped",
        /// It runs a rescue image.
        Rescued = "rescued",
        /// A resize waits to be confirmed.
        Resized = "resized",
        /// It is deleted but can be brought back.
        SoftDeleted = "soft-delete",
        /// It is gone.
        Deleted = "deleted",
        /// Something failed.
        Error = "error",
        /// It is put aside.
        Shelved = "shelved",
        /// It is put aside and on no host.
        ShelvedOffloaded = "shelved_offloaded",
    }
}

/// What libvirt last said about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "u8")]
pub enum PowerState {
    /// Nothing.
    NoState,
    /// It runs.
    Running,
    /// It stands still.
    Paused,
    /// It is off.
    Shutdown,
    /// It broke.
    Crashed,
    /// It sleeps.
    Suspended,
    /// A number that is not known here.
    Other(u8),
}

impl From<u8> for PowerState {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::NoState,
            1 => Self::Running,
            3 => Self::Paused,
            4 => Self::Shutdown,
            6 => Self::Crashed,
            7 => Self::Suspended,
            other => Self::Other(other),
        }
    }
}

/// A server with all that roles need of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Server {
    /// Its id, also the UUID of its libvirt domain.
    pub id: ServerId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its status.
    pub status: ServerStatus,
    /// Nova's finer state.
    #[serde(default, rename = "OS-EXT-STS:vm_state")]
    pub vm_state: Option<VmState>,
    /// What Nova is doing with it, such as `migrating` or `deleting`.
    #[serde(default, rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    /// What libvirt last said.
    #[serde(default, rename = "OS-EXT-STS:power_state")]
    pub power_state: Option<PowerState>,
    /// The host it is on, as compute services are called.
    #[serde(default, rename = "OS-EXT-SRV-ATTR:host")]
    pub host: Option<String>,
    /// The host it is on, as hypervisors are called.
    #[serde(default, rename = "OS-EXT-SRV-ATTR:hypervisor_hostname")]
    pub hypervisor_hostname: Option<String>,
    /// The name of its libvirt domain.
    #[serde(default, rename = "OS-EXT-SRV-ATTR:instance_name")]
    pub instance_name: Option<String>,
    /// The host name the guest is given.
    #[serde(default, rename = "OS-EXT-SRV-ATTR:hostname")]
    pub hostname: Option<String>,
    /// When it first ran.
    #[serde(
        default,
        rename = "OS-SRV-USG:launched_at",
        deserialize_with = "when::optional"
    )]
    pub launched_at: Option<Timestamp>,
    /// When it ended.
    #[serde(
        default,
        rename = "OS-SRV-USG:terminated_at",
        deserialize_with = "when::optional"
    )]
    pub terminated_at: Option<Timestamp>,
    /// Its availability zone.
    #[serde(default, rename = "OS-EXT-AZ:availability_zone")]
    pub availability_zone: Option<String>,
    /// Its size, as it was when the server was made or resized.
    #[serde(default)]
    pub flavor: ServerFlavor,
    /// Its image; nothing for a server that boots from a volume.
    #[serde(default, deserialize_with = "image")]
    pub image: Option<ImageId>,
    /// What failed, for a server in error.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Its volumes.
    #[serde(default, rename = "os-extended-volumes:volumes_attached")]
    pub volumes: Vec<AttachedVolume>,
    /// Its server groups (2.71).
    #[serde(default)]
    pub server_groups: Vec<ServerGroupId>,
    /// Its metadata.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Its project.
    pub tenant_id: Option<ProjectId>,
    /// Who made it.
    pub user_id: Option<UserId>,
    /// Whether it is locked.
    #[serde(default)]
    pub locked: bool,
    /// Why it is locked (2.73).
    #[serde(default)]
    pub locked_reason: Option<String>,
    /// When it was made.
    #[serde(default, deserialize_with = "when::optional")]
    pub created: Option<Timestamp>,
    /// When it changed last.
    #[serde(default, deserialize_with = "when::optional")]
    pub updated: Option<Timestamp>,
    /// How far it is, while something is done with it.
    #[serde(default)]
    pub progress: Option<u8>,
}

/// The size of a server, embedded since 2.47.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ServerFlavor {
    /// The flavor's name when the server was made.
    #[serde(default)]
    pub original_name: String,
    /// Virtual CPUs.
    #[serde(default)]
    pub vcpus: u32,
    /// Memory in MiB.
    #[serde(default)]
    pub ram: u64,
    /// Root disk in GiB.
    #[serde(default)]
    pub disk: u64,
    /// Further disk in GiB.
    #[serde(default)]
    pub ephemeral: u64,
    /// Swap in MiB.
    #[serde(default)]
    pub swap: u64,
    /// What else is asked of a host.
    #[serde(default)]
    pub extra_specs: BTreeMap<String, String>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Fault {
    /// In words.
    #[serde(default)]
    pub message: String,
    /// As an HTTP status.
    #[serde(default)]
    pub code: u16,
    /// When.
    #[serde(default, deserialize_with = "when::optional")]
    pub created: Option<Timestamp>,
}

/// A volume of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AttachedVolume {
    /// Which one.
    pub id: VolumeId,
    /// Whether it goes with the server.
    #[serde(default)]
    pub delete_on_termination: bool,
}

/// A server's id and name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerRef {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// Which servers to list. Without anything: those of the session's project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFilter {
    /// Those of all projects, which takes an administrator.
    pub all_projects: bool,
    /// Those on this host.
    pub host: Option<String>,
    /// Those with this status.
    pub status: Option<ServerStatus>,
    /// Those whose name contains a match of this regular expression.
    pub name: Option<String>,
    /// Those of this project; together with `all_projects`.
    pub project: Option<ProjectId>,
    /// Those that changed since, with those that were deleted since.
    pub changes_since: Option<Timestamp>,
    /// Those that are deleted, which takes an administrator.
    pub deleted: bool,
}

impl ServerFilter {
    /// All servers of all projects.
    pub fn everywhere() -> Self {
        Self {
            all_projects: true,
            ..Self::default()
        }
    }

    /// All servers on a host.
    pub fn on_host(host: impl Into<String>) -> Self {
        Self {
            host: Some(host.into()),
            ..Self::everywhere()
        }
    }

    fn apply(&self, request: Request) -> Request {
        let flag = |set: bool| set.then_some("true");
        let about = self.host.as_ref().map(|host| format!("host {host}"));
        let request = request
            .maybe("all_tenants", flag(self.all_projects))
            .maybe("deleted", flag(self.deleted))
            .maybe("host", self.host.clone())
            .maybe("status", self.status.as_ref().map(ServerStatus::as_str))
            .maybe("name", self.name.clone())
            .maybe("project_id", self.project.as_ref().map(ProjectId::as_str))
            .maybe("changes-since", self.changes_since.map(when::write));
        match about {
            Some(about) => request.about(about),
            None => request,
        }
    }
}

/// A server to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewServer {
    /// Its name.
    pub name: String,
    /// Its flavor.
    pub flavor: FlavorId,
    /// What it boots from.
    pub boot: BootDisk,
    /// Its networks.
    pub networks: NewServerNetworks,
    /// `zone`, or `zone:host` to force a host past the scheduler.
    pub availability_zone: Option<String>,
    /// The host it must be on, still checked by the scheduler (2.74).
    pub host: Option<String>,
    /// The host name the guest is given (2.90).
    pub hostname: Option<String>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Its server group.
    pub group: Option<ServerGroupId>,
}

/// What a server boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootDisk {
    /// A disk on its host, made from an image.
    Image(ImageId),
    /// A new volume, made from an image and deleted with the server.
    VolumeFromImage {
        /// The image.
        image: ImageId,
        /// The size of the volume.
        size_gib: u32,
        /// The type of the volume (2.67).
        volume_type: Option<String>,
        /// The bus of the disk.
        bus: Option<String>,
    },
}

/// The networks of a new server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewServerNetworks {
    /// None at all.
    None,
    /// Whatever the project has.
    Auto,
    /// A port in each of these.
    In(Vec<NetworkId>),
}

impl NewServer {
    /// A server without networks that boots from an image.
    pub fn new(name: impl Into<String>, flavor: impl Into<FlavorId>, image: impl Into<ImageId>) -> Self {
        Self {
            name: name.into(),
            flavor: flavor.into(),
            boot: BootDisk::Image(image.into()),
            networks: NewServerNetworks::None,
            availability_zone: None,
            host: None,
            hostname: None,
            metadata: BTreeMap::new(),
            group: None,
        }
    }

    fn body(&self) -> Value {
        let mut server = json!({ "name": self.name, "flavorRef": self.flavor, "metadata": self.metadata });
        match &self.boot {
            BootDisk::Image(image) => server["imageRef"] = json!(image),
            BootDisk::VolumeFromImage {
                image,
                size_gib,
                volume_type,
                bus,
            } => {
                let mut device = json!({
                    "boot_index": 0, "uuid": image, "source_type": "image", "destination_type": "volume",
                    "volume_size": size_gib, "delete_on_termination": true,
                });
                if let Some(kind) = volume_type {
                    device["volume_type"] = json!(kind);
                }
                if let Some(bus) = bus {
                    device["disk_bus"] = json!(bus);
                }
                server["imageRef"] = json!("");
                server["block_device_mapping_v2"] = json!([device]);
            }
        }
        server["networks"] = match &self.networks {
            NewServerNetworks::None => json!("none"),
            NewServerNetworks::Auto => json!("auto"),
            NewServerNetworks::In(networks) => networks
                .iter()
                .map(|network| json!({ "uuid": network }))
                .collect(),
        };
        let optional = [
            ("availability_zone", &self.availability_zone),
            ("host", &self.host),
            ("hostname", &self.hostname),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                server[name] = json!(value);
            }
        }
        let mut body = json!({ "server": server });
        if let Some(group) = &self.group {
            body["os:scheduler_hints"] = json!({ "group": group });
        }
        body
    }

    /// What the body needs of the cloud.
    fn least_version(&self) -> Microversion {
        let typed = matches!(
            &self.boot,
            BootDisk::VolumeFromImage {
                volume_type: Some(_),
                ..
            }
        );
        let needs = [
            (self.hostname.is_some(), Microversion::new(2, 90)),
            (self.host.is_some(), Microversion::new(2, 74)),
            (typed, Microversion::new(2, 67)),
        ];
        let needed = needs.into_iter().filter(|(needed, _)| *needed);
        needed
            .map(|(_, version)| version)
            .max()
            .unwrap_or(Microversion::new(2, 53))
    }
}

marked_by_id!(Server);

marked_by_id!(ServerRef);

impl Nova {
    /// The servers that match, all pages; it fails rather than giving a part.
    pub async fn servers(&self, filter: &ServerFilter) -> Result<Vec<Server>> {
        let request = filter.apply(Request::new(&LIST, &[]));
        self.session.list(request, "servers").await
    }

    /// The same, handed to `take` page by page, for those who do not need all at once. After an
    /// error, what was handed out is a part.
    pub async fn each_page_of_servers(
        &self,
        filter: &ServerFilter,
        take: impl FnMut(Vec<Server>),
    ) -> Result<()> {
        let request = filter.apply(Request::new(&LIST, &[]));
        self.session.each_page(request, "servers", take).await
    }

    /// The same with ids and names only.
    pub async fn server_names(&self, filter: &ServerFilter) -> Result<Vec<ServerRef>> {
        let request = filter.apply(Request::new(&LIST_SHORT, &[]));
        self.session.list(request, "servers").await
    }

    /// One server.
    pub async fn server(&self, id: &ServerId) -> Result<Server> {
        self.session
            .member(Request::new(&SHOW, &[id.as_str()]), "server")
            .await
    }

    /// Asks for a server; what comes back is its id alone.
    pub async fn create_server(&self, server: &NewServer) -> Result<ServerId> {
        #[derive(Deserialize)]
        struct Made {
            id: ServerId,
        }
        let request = Request::new(&CREATE, &[])
            .about(format!("server {}", server.name))
            .at_least(server.least_version())
            .json(&server.body());
        let made: Made = self.session.member(request, "server").await?;
        Ok(made.id)
    }

    /// Asks for a server's deletion.
    pub async fn delete_server(&self, id: &ServerId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }
}

/// An empty text for a server that boots from a volume.
fn image<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ImageId>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Image {
        Known { id: ImageId },
        None(#[allow(dead_code)] Option<String>),
    }
    Ok(match Image::deserialize(deserializer)? {
        Image::Known { id } => Some(id),
        Image::None(_) => None,
    })
}
