// SPDX-License-Identifier: Apache-2.0
//! What the engine is told: observations, answers to its actions, leadership, decisions of people.
//! Each is a fact as it was seen; whether it is old, doubled or late is judged inside.

use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::{HostName, ServerId};
use serde::{Deserialize, Serialize};

use crate::config::{Config, VmPolicy};
use crate::domains::Domains;
pub use crate::identity::Identity;
use crate::ids::{
    ActionId, AgentId, BootId, DeviceClass, Domain, Epoch, Grade, IncidentId, MigrationId, Mono, ReplicaId,
};
use crate::journal::Record;
use crate::ledger::Ledger;
use crate::status::Degraded;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time went by.
    Tick,
    /// Something was seen.
    Saw(Observation),
    /// An action ended.
    Outcome {
        /// Which.
        id: ActionId,
        /// How.
        result: Result<Answer, Trouble>,
    },
    /// The lease is ours, its predecessor's time has passed, and this is the whole journal.
    Lead {
        /// The number of the term.
        epoch: Epoch,
        /// When the request that won the lease was sent.
        sent_at: Mono,
        /// Every record, in order.
        journal: Vec<Record>,
    },
    /// The lease was renewed by a request sent at this moment.
    LeaseRenewed {
        /// Not the time of the answer: the lease runs from when the request could first have counted.
        sent_at: Mono,
    },
    /// The lease is lost or was given up.
    LeaseLost,
    /// Records could not be made durable.
    JournalFailed,
    /// What the journal tells while somebody else leads: which hosts are being handled.
    Follow(Box<Ledger>),
    /// A person decided something.
    Command(Command),
    /// A person wants a host recovered that nobody calls dead.
    Request(Request),
    /// From now on other settings hold. What was decided stays decided.
    Configure(Box<Config>),
    /// The pauses in force, all of them.
    Pauses(Vec<Pause>),
}

/// Something seen of the world outside.
#[derive(Clone, Debug)]
pub enum Observation {
    /// What the Kubernetes API knows of a host.
    Host(HostFacts),
    /// The host is no longer known to anybody.
    HostGone(HostName),
    /// An agent reported, to this replica.
    Heartbeat(Heartbeat),
    /// An agent listed its guests.
    Inventory(Inventory),
    /// A guest event.
    Guest(GuestEvent),
    /// The compute services as Nova lists them. A host that Nova gave no state for is left out.
    Services(Vec<(HostName, ServiceFacts)>),
    /// Node leases: a text that changes with every renewal.
    NodeLeases(Vec<(HostName, String)>),
    /// Somebody tried to reach a host.
    Probe {
        /// Whom.
        host: HostName,
        /// Who.
        by: Prober,
        /// When it was begun.
        asked_at: Mono,
        /// What came of it.
        result: ProbeResult,
    },
    /// Somebody with a path of its own judged a host.
    Judged {
        /// Whom.
        host: HostName,
        /// Who looks.
        by: Onlooker,
        /// Which of them: what one says does not take back what another says.
        source: String,
        /// Up or down; for storage, whether there is a living session.
        up: bool,
        /// For how long that counts.
        good_for: Duration,
    },
    /// The storage side sees the host's sessions, or does not. Counts as long as any answer that is repeated.
    Storage {
        /// Whom.
        host: HostName,
        /// Whether there is a living session.
        watcher: bool,
    },
    /// Metrics of a living host tell of a lasting trouble of it, or that there is none.
    Trouble {
        /// Whom.
        host: HostName,
        /// Which: memory and libvirt are asked about.
        what: Degraded,
        /// Whether it has it.
        holds: bool,
    },
    /// What another replica hears.
    Peer {
        /// Which.
        replica: ReplicaId,
        /// Its hosts.
        hosts: Vec<(HostName, PeerHost)>,
    },
    /// How many of the places that must always answer did.
    Canaries {
        /// Answered.
        ok: usize,
        /// Asked.
        total: usize,
    },
    /// The host of this replica's own pod.
    OwnHost(HostName),
}

/// Somebody who sees hosts from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onlooker {
    /// A monitoring system: it may accuse, and cannot defend.
    Monitoring,
    /// The storage side: it may defend, and cannot accuse.
    Storage,
}

/// What the Kubernetes API knows of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub host: HostName,
    /// Its failure domains, outermost first.
    pub domains: Vec<Domain>,
    /// Whether HA is on for it.
    pub ha_enabled: bool,
    /// Two names of Nova or two objects fit it; nothing may be done to it.
    pub ambiguous: bool,
    /// Its maintenance.
    pub maintenance: Maintenance,
    /// How many guests it is known to have.
    pub instances: usize,
    /// The node agent could not reach libvirt.
    pub libvirt_down: bool,
    /// The machine, as it was last recorded; the agent's own word wins.
    pub machine: Identity,
    /// What its guests take, and what is left, if anybody knows.
    pub room: Option<Room>,
    /// What is kept free here for guests of other hosts.
    pub reserved: Vec<Reserved>,
}

impl HostFacts {
    /// Whether people or the operator work on it and no guest is left there: that it is off is no trouble of anybody's.
    pub(crate) fn emptied(&self) -> bool {
        let worked_on = !matches!(self.maintenance, Maintenance::Off | Maintenance::Ha);
        worked_on && self.instances == 0
    }
}

/// Room that is kept free for when other hosts die.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Memory.
    pub mib: u64,
    /// Processors.
    pub vcpus: u64,
    /// The hosts for whose guests it is.
    pub covers: Vec<HostName>,
}

/// How full a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Memory that its guests take.
    pub used_mib: u64,
    /// Memory that other guests could have.
    pub free_mib: u64,
    /// Processors that its guests take.
    pub used_vcpus: u64,
    /// Processors that other guests could have.
    pub free_vcpus: u64,
}

impl Room {
    /// Whether what is left here is enough for the guests that take so much.
    pub(crate) fn holds(&self, needed: Self) -> bool {
        self.free_mib >= needed.used_mib && self.free_vcpus >= needed.used_vcpus
    }

    /// What is left here and there.
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.free_mib += other.free_mib;
        self.free_vcpus += other.free_vcpus;
        self
    }

    /// What is left when this is kept for others.
    pub(crate) fn without(mut self, reserved: &Reserved) -> Self {
        self.free_mib = self.free_mib.saturating_sub(reserved.mib);
        self.free_vcpus = self.free_vcpus.saturating_sub(reserved.vcpus);
        self
    }
}

/// A sign of life of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its host.
    pub host: HostName,
    /// The agent's id and the number of its starts.
    pub agent: AgentId,
    /// Starts.
    pub starts: u64,
    /// The host's boot.
    pub boot: BootId,
    /// The host's boot-time clock; grows within a boot. Orders heartbeats, and nothing else.
    pub mono_ns: u64,
    /// For how long the host has been up, by its own word.
    pub up_for: Duration,
    /// What the sender's wall clock said, in milliseconds. For people.
    pub sent_at_ms: i64,
    /// Whether libvirt answers.
    pub libvirt: bool,
    /// The machine.
    pub machine: Identity,
    /// How long after its last contact with the service the host has reset itself for certain;
    /// nothing if its watchdog is not armed.
    pub resets_after: Option<Duration>,
    /// Whether a shutdown was announced.
    pub planned_shutdown: bool,
}

/// The guests of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The host.
    pub host: HostName,
    /// The agent.
    pub agent: AgentId,
    /// Its starts.
    pub starts: u64,
    /// The boot.
    pub boot: BootId,
    /// Grows with each change within (agent, starts).
    pub version: u64,
    /// The guests.
    pub domains: Domains,
    /// The classes of device their disks are on; empty if nobody says.
    pub devices: Vec<DeviceClass>,
}

impl Inventory {
    /// Whether the two say the same, whatever their versions.
    pub(crate) fn lists_as(&self, other: &Self) -> bool {
        self.starts == other.starts
            && self.domains == other.domains
            && self.devices == other.devices
            && self.boot == other.boot
            && self.agent == other.agent
    }
}

/// What libvirt says of a guest, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// Executes.
    Running,
    /// Stopped in its tracks, with memory.
    Paused,
    /// Arrives by migration; the source still has it.
    Incoming,
    /// Does not execute.
    Off,
}

impl DomainState {
    /// Whether the guest occupies its disks here.
    pub fn active(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// A guest event of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestEvent {
    /// The host.
    pub host: HostName,
    /// The agent and the number of the record: what was seen once is not seen again.
    pub agent: AgentId,
    /// The number.
    pub seq: u64,
    /// How long ago it happened.
    pub age: Duration,
    /// The guest, if it is about one.
    pub server: Option<ServerId>,
    /// What.
    pub kind: GuestEventKind,
    /// The class of the device that failed, where it is known.
    pub device: Option<DeviceClass>,
}

/// What happened to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEventKind {
    /// It ended without being asked: failed, crashed, panicked.
    Crashed,
    /// Its watchdog fired.
    Watchdog,
    /// Its disk failed.
    IoError,
    /// Memory under it failed beyond repair.
    MemoryFailure,
    /// Anything that is no trouble.
    Other,
}

/// A compute service as Nova lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Changes with every report of the service. Only a change is a sign of life: a service keeps
    /// looking `up` for a while after its host died.
    pub updated_at: String,
    /// Nova's own opinion.
    pub up: bool,
    /// Whether it is disabled.
    pub disabled: bool,
    /// Whether it is forced down.
    pub forced_down: bool,
}

/// Who tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prober {
    /// A replica of the service.
    Replica(ReplicaId),
    /// The agent of another host.
    Peer(HostName),
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// A program answered.
    App,
    /// The network stack answered.
    Kernel,
    /// Nothing.
    Timeout,
}

/// What another replica hears of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHost {
    /// Milliseconds since its last heartbeat there; nothing if it never had one.
    pub age_ms: Option<u64>,
    /// The boot it named.
    pub boot: Option<BootId>,
    /// How long after that heartbeat its watchdog has reset it if it was cut off, as it told there; nothing without one.
    pub resets_after: Option<Duration>,
}

/// What a device says about power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// On, or on its way to either state.
    On,
    /// Off.
    Off,
}

/// A server as Nova knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// Where Nova believes it to be.
    pub host: Option<HostName>,
    /// Its state.
    pub state: VmState,
    /// The task under way, empty if none.
    pub task: String,
    /// Whether Nova believes it runs.
    pub running: bool,
    /// What its owner, flavor, image or aggregate ask for, first of them that says something.
    pub policy: Option<VmPolicy>,
    /// It is on the exclusion list.
    pub excluded: bool,
    /// 0 to 1000.
    pub priority: u16,
    /// The start group, empty if none.
    pub group: String,
    /// The anti-affinity group, if any.
    pub anti_affinity: Option<String>,
    /// Memory, for the order.
    pub memory_mib: u64,
    /// Its root disk would be rebuilt from the image.
    pub local_disk: bool,
    /// It has ephemeral or swap disks on its host, which would be made anew and empty.
    pub local_extras: bool,
    /// All its disks are on the storage a storage fence covers.
    pub on_fenced_storage: bool,
    /// Why it is locked, if it is.
    pub lock: Option<String>,
    /// The latest action its owner asked for is a stop, delete, shelve or reboot, and how long ago
    /// in milliseconds.
    pub user_action_ms: Option<u64>,
    /// And that was after the latest evacuation of it was asked for.
    pub acted_since_move: bool,
    /// And it was no reboot: its owner does not want it to run.
    pub user_stops: bool,
}

/// The states of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum VmState {
    Active,
    Stopped,
    Error,
    Paused,
    Suspended,
    Rescued,
    Resized,
    Building,
    Shelved,
    ShelvedOffloaded,
    SoftDeleted,
    Deleted,
}

/// A migration record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationFacts {
    /// Its number.
    pub id: MigrationId,
    /// The server.
    pub server: ServerId,
    /// Its kind.
    pub kind: MigrationKind,
    /// Its state.
    pub status: MigrationStatus,
    /// From where.
    pub source: HostName,
    /// To where, once known.
    pub destination: Option<HostName>,
}

/// Kinds of migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MigrationKind {
    Evacuation,
    Live,
    Other,
}

/// States of a migration record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MigrationStatus {
    Accepted,
    PreMigrating,
    Running,
    Done,
    Completed,
    Error,
    Failed,
}

impl MigrationStatus {
    /// Whether something may still come of it.
    pub fn open(self) -> bool {
        matches!(self, Self::Accepted | Self::PreMigrating | Self::Running)
    }
}

/// What an action answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It was done, or had been done before.
    Done,
    /// The power of a host, read from a device.
    Power(Power),
    /// What the power must be by now, where there is no device that could be asked: no proof to
    /// anybody else, and worth as much as the grade says.
    Presumed(Power, Grade),
    /// Off, and nobody keeps it so any more: whoever looks after the machine may switch it on at any moment.
    Unheld,
    /// The identity a device reports, if it can.
    Identity(Identity),
    /// The maintenance of a host.
    Maintenance(Maintenance),
    /// A compute service.
    Service(ServiceFacts),
    /// Every server of a host and every migration touching it.
    Servers {
        /// The servers.
        servers: Vec<ServerFacts>,
        /// The migrations.
        migrations: Vec<MigrationFacts>,
        /// False if a page or a cell is missing.
        complete: bool,
    },
    /// One server, or nothing if it is gone, with its migrations.
    Server {
        /// The server.
        server: Option<ServerFacts>,
        /// Its migrations.
        migrations: Vec<MigrationFacts>,
    },
    /// It can never be done to this server, in Nova's words.
    Unsupported(String),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It was never started.
    NotStarted,
    /// It may or may not have had an effect: no answer, a server error, too many requests.
    Unknown,
    /// Nobody said what became of it. As far as anybody knows it was not even started.
    Lost,
    /// It was refused, and had no effect.
    Refused(Refusal),
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing.
    NotFound,
    /// It is not in a state for this.
    Conflict,
    /// Nova believes the compute service to be up.
    StillInUse,
    /// We may not.
    Unauthorized,
    /// Anything else.
    Other,
}

/// A decision of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The incident it is about.
    pub incident: IncidentId,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The host, written out by the person.
    pub confirm: String,
    /// What.
    pub decision: Decision,
}

/// What a person may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The host is off; I looked.
    AckFenced,
    /// Go on in spite of the reason it is held for.
    Approve,
    /// Stop.
    Abort,
    /// Try the guests that failed again.
    Retry,
    /// Take the host back.
    Release,
    /// This is over; do not take the host back.
    Close,
}

impl Decision {
    /// Everything a person may decide.
    pub const ALL: [Self; 6] = [
        Self::AckFenced,
        Self::Approve,
        Self::Abort,
        Self::Retry,
        Self::Release,
        Self::Close,
    ];

    /// The word for it, as it is typed, sent and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AckFenced => "ack-fenced",
            Self::Approve => "approve",
            Self::Abort => "abort",
            Self::Retry => "retry",
            Self::Release => "release",
            Self::Close => "close",
        }
    }
}

/// The wish of a person that a host be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which.
    pub host: HostName,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The name of the host once more.
    pub confirm: String,
}

/// No new fencing and no new evacuation in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Where.
    pub scope: PauseScope,
    /// Why.
    pub reason: String,
}

/// Where a pause applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// Everywhere.
    Global,
    /// A failure domain.
    Domain(Domain),
    /// A host.
    Host(HostName),
    /// A guest.
    Server(ServerId),
}
