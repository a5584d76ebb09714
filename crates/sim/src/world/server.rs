// SPDX-License-Identifier: Apache-2.0
//! A server as Nova records it: what was asked for, where Nova believes it is, and the states that the API derives its
//! status from. Whether and where it really executes is in the hosts' domains.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::names::HostName;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }
        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
            /// As Nova spells it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Nova's stable state of a server.
    VmState {
        /// Runs.
        Active = "active",
        /// Is being made.
        Building = "building",
        /// Is paused.
        Paused = "paused",
        /// Is suspended to disk.
        Suspended = "suspended",
        /// Is off.
        Stopped = "stopped",
        /// Runs from a rescue image.
        Rescued = "rescued",
        /// Waits on its new host for somebody to confirm.
        Resized = "resized",
        /// Is deleted and can be restored.
        SoftDeleted = "soft-delete",
        /// Is gone.
        Deleted = "deleted",
        /// Something failed.
        Error = "error",
        /// Is off and imaged.
        Shelved = "shelved",
        /// Is on no host.
        ShelvedOffloaded = "shelved_offloaded",
    }
}

words! {
    /// What Nova is doing with a server.
    TaskState {
        /// Looking for a host.
        Scheduling = "scheduling",
        /// Attaching volumes.
        BlockDeviceMapping = "block_device_mapping",
        /// Attaching networks.
        Networking = "networking",
        /// Starting the guest.
        Spawning = "spawning",
        /// Cold migration begins.
        ResizePrep = "resize_prep",
        /// Its disk goes over.
        ResizeMigrating = "resize_migrating",
        /// Its disk is over.
        ResizeMigrated = "resize_migrated",
        /// It is started on the new host.
        ResizeFinish = "resize_finish",
        /// It goes back to the old host.
        ResizeReverting = "resize_reverting",
        /// The old host is cleaned up.
        ResizeConfirming = "resize_confirming",
        /// A soft reboot.
        Rebooting = "rebooting",
        /// A hard reboot.
        RebootingHard = "rebooting_hard",
        /// Being paused.
        Pausing = "pausing",
        /// Being unpaused.
        Unpausing = "unpausing",
        /// Being suspended.
        Suspending = "suspending",
        /// Being resumed.
        Resuming = "resuming",
        /// Being stopped.
        PoweringOff = "powering-off",
        /// Being started.
        PoweringOn = "powering-on",
        /// Being rescued.
        Rescuing = "rescuing",
        /// Being unrescued.
        Unrescuing = "unrescuing",
        /// Being rebuilt or evacuated.
        Rebuilding = "rebuilding",
        /// Its volumes are attached again.
        RebuildBlockDeviceMapping = "rebuild_block_device_mapping",
        /// It is started again.
        RebuildSpawning = "rebuild_spawning",
        /// A live migration.
        Migrating = "migrating",
        /// Being deleted.
        Deleting = "deleting",
        /// Being shelved.
        ShelvingOffloading = "shelving_offloading",
        /// Being unshelved.
        Unshelving = "unshelving",
    }
}

/// Power states as Nova numbers them.
pub mod power {
    /// Not known yet.
    pub const NONE: i32 = 0;
    /// Running.
    pub const RUNNING: i32 = 1;
    /// Paused.
    pub const PAUSED: i32 = 3;
    /// Off.
    pub const SHUTDOWN: i32 = 4;
    /// Crashed.
    pub const CRASHED: i32 = 6;
    /// Suspended.
    pub const SUSPENDED: i32 = 7;

    /// Nova's word for one.
    pub fn word(state: i32) -> &'static str {
        match state {
            RUNNING => "running",
            PAUSED => "paused",
            SHUTDOWN => "shutdown",
            CRASHED => "crashed",
            SUSPENDED => "suspended",
            _ => "pending",
        }
    }
}

/// What a server is sized by; servers keep the one they were made with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flavor {
    /// Id, often a number as text.
    pub id: String,
    /// Name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub ram_mb: u64,
    /// Root disk in GiB; 0 for volumes.
    pub disk_gb: u64,
    /// Ephemeral disk in GiB.
    pub ephemeral_gb: u64,
    /// Swap in MiB.
    pub swap_mb: u64,
    /// Extra specs.
    pub extra_specs: BTreeMap<String, String>,
    /// Whether everybody sees it.
    pub public: bool,
    /// What it is for.
    pub description: Option<String>,
}

/// The last thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// HTTP-like code.
    pub code: u16,
    /// What happened.
    pub message: String,
    /// More for administrators.
    pub details: Option<String>,
    /// When.
    pub created: Moment,
}

/// Who keeps others from changing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// `owner` or `admin`.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// A volume in a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The volume.
    pub volume: Uuid,
    /// The device it appears as.
    pub device: String,
    /// Whether it goes with the server.
    pub delete_on_termination: bool,
}

/// Something that was done to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What.
    pub action: String,
    /// By which request.
    pub request_id: String,
    /// By whom.
    pub user: Uuid,
    /// When.
    pub start: Moment,
    /// `Error` once it failed.
    pub message: Option<String>,
}

/// A server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Server {
    /// Identity.
    pub id: Uuid,
    /// Number its libvirt name is made from.
    pub number: u64,
    /// Name.
    pub name: String,
    /// Name inside the guest.
    pub hostname: String,
    /// Whose.
    pub project: Uuid,
    /// Who made it.
    pub user: Uuid,
    /// Size.
    pub flavor: Flavor,
    /// Image it was made from; none with a boot volume.
    pub image: Option<Uuid>,
    /// Where Nova believes it is.
    pub host: Option<HostName>,
    /// Stable state.
    pub vm_state: VmState,
    /// What is being done.
    pub task_state: Option<TaskState>,
    /// Nova's idea of its power.
    pub power_state: i32,
    /// When it was asked for.
    pub created: Moment,
    /// When it last changed.
    pub updated: Moment,
    /// When it first ran.
    pub launched_at: Option<Moment>,
    /// When the guest last began to boot.
    pub boot_began: Option<Moment>,
    /// Free-form pairs.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Key in it.
    pub key_name: Option<String>,
    /// Zone asked for.
    pub zone_asked: Option<String>,
    /// Volumes in it.
    pub volumes: Vec<Attachment>,
    /// Ports of it.
    pub ports: Vec<Uuid>,
    /// Security groups asked for.
    pub security_groups: Vec<String>,
    /// Last failure.
    pub fault: Option<Fault>,
    /// Who locked it.
    pub lock: Option<Lock>,
    /// Server group.
    pub group: Option<Uuid>,
    /// Whether it has a configuration drive.
    pub config_drive: bool,
    /// Bytes it dirties per second while it runs.
    pub dirty_rate: u64,
    /// What was done to it, newest first.
    pub actions: Vec<Action>,
    /// Whether its guest never says anything.
    #[serde(default)]
    pub mute: bool,
    /// Whether a share of a file system is attached to it.
    #[serde(default)]
    pub share: bool,
    /// Size to return to when a resize is reverted.
    #[serde(default)]
    pub old_flavor: Option<Flavor>,
    /// State to return to when a cold migration is confirmed.
    pub old_vm_state: Option<VmState>,
}

impl Server {
    /// Name of its domain in libvirt.
    pub fn domain_name(&self) -> String {
        format!("instance-{:08x}", self.number)
    }

    /// The status the API shows.
    pub fn status(&self) -> &'static str {
        use TaskState as T;
        match (self.vm_state, self.task_state) {
            (VmState::Active, Some(T::Rebooting)) => "REBOOT",
            (VmState::Active, Some(T::RebootingHard)) => "HARD_REBOOT",
            (VmState::Active | VmState::Paused, Some(T::Migrating)) => "MIGRATING",
            (
                VmState::Active | VmState::Stopped | VmState::Error,
                Some(T::Rebuilding | T::RebuildBlockDeviceMapping | T::RebuildSpawning),
            ) => "REBUILD",
            (
                VmState::Active | VmState::Stopped,
                Some(T::ResizePrep | T::ResizeMigrating | T::ResizeMigrated | T::ResizeFinish),
            ) => "RESIZE",
            (VmState::Resized, Some(T::ResizeReverting)) => "REVERT_RESIZE",
            (VmState::Active, _) => "ACTIVE",
            (VmState::Building, _) => "BUILD",
            (VmState::Stopped, _) => "SHUTOFF",
            (VmState::Resized, _) => "VERIFY_RESIZE",
            (VmState::Paused, _) => "PAUSED",
            (VmState::Suspended, _) => "SUSPENDED",
            (VmState::Rescued, _) => "RESCUE",
            (VmState::Error, _) => "ERROR",
            (VmState::Deleted, _) => "DELETED",
            (VmState::SoftDeleted, _) => "SOFT_DELETED",
            (VmState::Shelved, _) => "SHELVED",
            (VmState::ShelvedOffloaded, _) => "SHELVED_OFFLOADED",
        }
    }

    /// Whether its root disk is a volume.
    pub fn volume_backed(&self) -> bool {
        self.image.is_none()
    }

    /// Resources it takes in Placement.
    pub fn resources(&self) -> BTreeMap<String, u64> {
        flavor_resources(&self.flavor, self.volume_backed())
    }
}

/// What a server of this size takes in Placement.
pub fn flavor_resources(flavor: &Flavor, volume_backed: bool) -> BTreeMap<String, u64> {
    let root = if volume_backed { 0 } else { flavor.disk_gb };
    let disk = root + flavor.ephemeral_gb + flavor.swap_mb.div_ceil(1024);
    let mut resources = BTreeMap::from([
        ("VCPU".to_owned(), u64::from(flavor.vcpus)),
        ("MEMORY_MB".to_owned(), flavor.ram_mb),
    ]);
    if disk > 0 {
        resources.insert("DISK_GB".to_owned(), disk);
    }
    resources
}

/// What Nova records about a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Migration {
    /// Number.
    pub id: u64,
    /// Identity; also the consumer that holds the source's resources while it runs.
    pub uuid: Uuid,
    /// Which server.
    pub server: Uuid,
    /// Live, cold or after a failure.
    pub kind: MigrationKind,
    /// How far it is.
    pub status: MigrationStatus,
    /// From where.
    pub source: HostName,
    /// Where to, once chosen.
    pub dest: Option<HostName>,
    /// Where to, if somebody asked.
    pub asked: Option<HostName>,
    /// When it was asked for.
    pub created: Moment,
    /// When it last changed.
    pub updated: Moment,
    /// Who asked.
    pub user: Uuid,
    /// In which project.
    pub project: Uuid,
    /// Memory in all, over, and left, bytes, once it runs.
    pub memory: Option<(u64, u64, u64)>,
    /// Whether an evacuated server ends stopped (since 2.95).
    pub ends_stopped: bool,
    /// Whether it may be tried elsewhere.
    pub tries: u32,
}

words! {
    /// What kind of move.
    MigrationKind {
        /// While it runs.
        Live = "live-migration",
        /// While it is off.
        Cold = "migration",
        /// To another size.
        Resize = "resize",
        /// From a dead host.
        Evacuation = "evacuation",
    }
}

words! {
    /// How far a move is.
    MigrationStatus {
        /// The API took it.
        Accepted = "accepted",
        /// It waits for another one.
        Queued = "queued",
        /// The destination gets ready.
        Preparing = "preparing",
        /// A cold one gets ready.
        PreMigrating = "pre-migrating",
        /// A cold one copies.
        Migrating = "migrating",
        /// Memory goes over.
        Running = "running",
        /// The source cleans up.
        PostMigrating = "post-migrating",
        /// A live one is over.
        Completed = "completed",
        /// A cold one waits for somebody to confirm.
        Finished = "finished",
        /// A cold one is being confirmed.
        Confirming = "confirming",
        /// A cold one was confirmed.
        Confirmed = "confirmed",
        /// A cold one is taken back.
        Reverting = "reverting",
        /// A cold one was taken back.
        Reverted = "reverted",
        /// An evacuation is over; the source has not cleaned up yet.
        Done = "done",
        /// It could not be done.
        Error = "error",
        /// It was rolled back.
        Failed = "failed",
        /// Somebody stopped it.
        Cancelled = "cancelled",
    }
}

impl MigrationStatus {
    /// Whether it is over.
    pub fn is_final(self) -> bool {
        use MigrationStatus as S;
        matches!(
            self,
            S::Completed | S::Confirmed | S::Reverted | S::Done | S::Error | S::Failed | S::Cancelled
        )
    }

    /// Whether a live migration with it is listed as in progress.
    pub fn in_progress(self) -> bool {
        use MigrationStatus as S;
        matches!(self, S::Queued | S::Preparing | S::Running | S::PostMigrating)
    }
}

impl Migration {
    /// Whether somebody still has something to do for it; an evacuation ends when the source has cleaned up.
    pub fn is_open(&self) -> bool {
        !self.status.is_final()
            || (self.kind == MigrationKind::Evacuation && self.status == MigrationStatus::Done)
    }
}
