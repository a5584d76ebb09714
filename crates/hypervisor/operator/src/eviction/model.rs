// SPDX-License-Identifier: Apache-2.0
//! What the eviction judges by: servers, migrations and the compute service in the words this
//! controller needs, and the memory it keeps between passes. Nothing here talks to anybody; the
//! edge turns Nova's answers into these types once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_api::{EvictionSpec, EvictionStatus, InFlightMigration, Maintenance, MoveKind};
use jiff::Timestamp;

/// What Nova says a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Running.
    Active,
    /// Frozen in memory.
    Paused,
    /// Off.
    Shutoff,
    /// Moved cold, waiting for the word that the old copy may go.
    VerifyResize,
    /// Moving live.
    Migrating,
    /// Moving cold.
    Resize,
    /// Broken.
    Error,
    /// On disk, not on the host's processors.
    Suspended,
    /// Booted from a rescue disk.
    Rescue,
    /// Belongs to no host.
    Offloaded,
    /// On its way into existence or through something short.
    Passing(String),
    /// Anything else; not movable as it is.
    Other(String),
}

impl ServerState {
    /// Reads Nova's word.
    pub fn parse(text: &str) -> Self {
        match text {
            "ACTIVE" => Self::Active,
            "PAUSED" => Self::Paused,
            "SHUTOFF" => Self::Shutoff,
            "VERIFY_RESIZE" => Self::VerifyResize,
            "MIGRATING" => Self::Migrating,
            "RESIZE" => Self::Resize,
            "ERROR" => Self::Error,
            "SUSPENDED" => Self::Suspended,
            "RESCUE" => Self::Rescue,
            "SHELVED_OFFLOADED" | "SOFT_DELETED" | "DELETED" => Self::Offloaded,
            "BUILD" | "REBOOT" | "HARD_REBOOT" | "REBUILD" | "PASSWORD" | "REVERT_RESIZE" => {
                Self::Passing(text.to_owned())
            }
            other => Self::Other(other.to_owned()),
        }
    }
}

/// A server as far as moving it is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub state: ServerState,
    /// What Nova is doing to it.
    pub task: Option<String>,
    /// The compute host it is on.
    pub host: Option<String>,
    /// Memory of its flavor.
    pub ram_mb: u64,
    /// Processors of its flavor.
    pub vcpus: u64,
    /// What broke it.
    pub fault: Option<String>,
    /// Why it cannot move while it runs, if so.
    pub pinned: Option<String>,
    /// Whether its disk is a volume, so that no disk has to be copied.
    pub volume_backed: bool,
}

impl Server {
    /// Whether Nova is moving it.
    pub fn is_moving(&self) -> bool {
        let task = self.task.as_deref().unwrap_or_default();
        matches!(self.state, ServerState::Migrating | ServerState::Resize)
            || task.contains("migrat")
            || task.contains("resize")
    }

    /// Whether Nova is deleting it.
    pub fn is_deleting(&self) -> bool {
        matches!(self.task.as_deref(), Some("deleting" | "soft-deleting"))
    }
}

/// What became of a server that the host no longer lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departed {
    /// It does not exist any more.
    Gone,
    /// Nova has a record of the live migration that took it away.
    Left,
    /// It is somewhere, as Nova says.
    Elsewhere(Box<Server>),
    /// Nova did not say; nothing is concluded from that.
    Unknown,
}

/// How far a migration record got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// Waits for its turn.
    Queued,
    /// Under way and may be aborted.
    Abortable,
    /// Under way beyond the point of return, or of a kind that cannot be aborted.
    Committed,
    /// Ended well.
    Done,
    /// Ended without moving the server.
    Failed,
}

impl MigrationState {
    /// Reads Nova's word; a word this version does not know counts as under way.
    pub fn parse(text: &str) -> Self {
        match text {
            "queued" | "accepted" => Self::Queued,
            "preparing" | "running" => Self::Abortable,
            "completed" | "done" | "finished" | "confirmed" | "reverted" => Self::Done,
            "error" | "failed" | "cancelled" => Self::Failed,
            _ => Self::Committed,
        }
    }

    /// Whether it has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// One migration record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRecord {
    /// Its number.
    pub id: u64,
    /// The server it moves.
    pub server: ServerId,
    /// Where from.
    pub source: String,
    /// Where to; unknown before scheduling.
    pub destination: Option<String>,
    /// How far it got.
    pub state: MigrationState,
    /// Whether the server keeps running meanwhile.
    pub live: bool,
    /// When it was made.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// The compute service of the host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// Whether Nova schedules onto it.
    pub enabled: bool,
    /// Whether it reports.
    pub up: bool,
    /// Whether somebody declared it dead.
    pub forced_down: bool,
    /// Why it is disabled.
    pub reason: String,
}

/// The host that is being emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Whether both ids are known, that is, whether Nova has it.
    pub registered: bool,
    /// The hypervisor's id in Nova.
    pub hypervisor_id: String,
    /// The name Nova knows the host by.
    pub compute_host: String,
    /// The maintenance mode.
    pub maintenance: Maintenance,
    /// Whether the operator reports the service as out of scheduling.
    pub disabled: bool,
    /// Whether the node is going away.
    pub terminating: bool,
}

/// An answer of a check that only Placement or other hosts can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds; the text says what was found.
    Yes(String),
    /// It does not.
    No(String),
    /// It could not be found out, which is no reason to refuse.
    Unknown(String),
}

/// What the operator was told about evictions in general.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Servers of one host that may move at once.
    pub concurrency: u32,
    /// The longest time for one migration.
    pub timeout: Duration,
    /// The longest time without progress.
    pub stall: Duration,
    /// Attempts per server.
    pub max_attempts: u32,
    /// Pause before a failed eviction starts over; zero for never.
    pub retry_interval: Duration,
    /// Confirm finished cold moves.
    pub confirm_resize: bool,
    /// Evacuate from hosts that were fenced.
    pub evacuate_down_hosts: bool,
    /// Whether this operator only sees part of the fleet.
    pub partitioned: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 2,
            timeout: Duration::from_mins(30),
            stall: Duration::from_mins(5),
            max_attempts: 3,
            retry_interval: Duration::from_mins(10),
            confirm_resize: true,
            evacuate_down_hosts: false,
            partitioned: false,
        }
    }
}

/// What is known of the Eviction itself.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub spec: EvictionSpec,
    /// What was last reported.
    pub status: EvictionStatus,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether our finalizer holds it.
    pub held: bool,
    /// Whether it belongs to the maintenance of the host.
    pub controlled: bool,
    /// Whether a person asks for another try.
    pub retry: bool,
    /// Whether failed capacity checks are only told.
    pub ignore_preflight: bool,
    /// Whether deletion also stops what is moving.
    pub abort_in_flight: bool,
}

/// A refused or failed request for one server, as remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// What Nova said.
    pub text: String,
    /// What kind of refusal it is.
    pub kind: RefusalKind,
}

/// How lasting a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request itself is wrong.
    Permanent,
    /// The server is in the wrong state.
    Conflict,
    /// Nova could not be asked properly.
    Trouble,
}

/// What is remembered of one server between passes. Losing it costs patience, never safety.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// When this process asked Nova to move it and nothing came back yet.
    pub asked: Option<Timestamp>,
    /// A refusal not yet judged.
    pub refused: Option<Refusal>,
    /// Since when Nova has been refusing without a break.
    pub conflict_since: Option<Timestamp>,
    /// Failures that left no record in Nova.
    pub unrecorded: u32,
    /// Failures already answered with a pause.
    pub answered: u32,
    /// Not to be tried before this time.
    pub not_before: Option<Timestamp>,
    /// What the last failure said.
    pub last_error: Option<String>,
    /// When it was first seen moving.
    pub running_since: Option<Timestamp>,
    /// The least that was left to copy, and when that was seen.
    pub progress: Option<(u64, Timestamp)>,
    /// When an abort was last asked for.
    pub aborted: Option<Timestamp>,
    /// How many aborts were asked for.
    pub aborts: u32,
    /// How often it was found in a state that Nova does not move.
    pub unmovable: u32,
    /// When a finished cold move was last asked to be confirmed.
    pub confirmed: Option<Timestamp>,
}

/// The memory of one eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By server.
    pub tracks: BTreeMap<ServerId, Track>,
}

impl Ledger {
    /// The memory of a server, made on first use.
    pub fn track(&mut self, id: &ServerId) -> &mut Track {
        self.tracks.entry(id.clone()).or_default()
    }
}

/// Everything a decision is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// How evictions are run.
    pub settings: Settings,
    /// The Eviction.
    pub order: Order,
    /// The host, if the operator knows it.
    pub host: Option<Host>,
    /// Its compute service; absent when Nova has none.
    pub service: Option<Service>,
    /// Servers on the host.
    pub servers: Vec<Server>,
    /// Servers still on the list that the host no longer has.
    pub departed: BTreeMap<ServerId, Departed>,
    /// Recent migration records from or to the host.
    pub migrations: Vec<MigrationRecord>,
    /// What is left to copy, by server.
    pub remaining: BTreeMap<ServerId, u64>,
    /// Whether other hosts can take the servers; asked before the first move only.
    pub capacity: Option<Answer>,
    /// Whether Placement finds a place per flavor; asked before the first move only.
    pub candidates: Vec<Answer>,
    /// How many more moves the fleet allows.
    pub fleet_free: u32,
    /// What is remembered.
    pub ledger: Ledger,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Put our finalizer on the Eviction.
    Hold,
    /// Take our finalizer off, which lets it go.
    Release,
    /// Take the request for another try off, it has been answered.
    TakeRetry,
    /// Ask Nova to move a server.
    Move {
        /// The server.
        server: ServerId,
        /// How.
        kind: MoveKind,
        /// Whether its disk is a volume.
        volume_backed: bool,
    },
    /// Ask Nova to finish a cold move.
    Confirm(ServerId),
    /// Ask Nova to stop a migration.
    Abort {
        /// The server.
        server: ServerId,
        /// The migration.
        migration: u64,
    },
    /// Tell people.
    Tell(Word),
}

/// Something people may want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// A migration is stuck and is being stopped.
    Stuck(ServerId, String),
    /// A server has left the host, by this move if it was one of ours.
    Moved(ServerId, Option<InFlightMigration>),
    /// An attempt failed.
    Failed(ServerId, String),
    /// A server was given up on.
    GivenUp(ServerId, String),
    /// The eviction ended well.
    Succeeded(String),
    /// The eviction ended without emptying the host.
    Ended(String),
    /// The checks before the first move were not met.
    Preflight(String),
}

/// How the incoming migrations of the host stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// None.
    Settled,
    /// These are being stopped.
    Aborting(usize),
    /// These have to be waited for.
    Waiting(usize),
}

/// Servers that are only restricted by `spec.instances`.
pub(super) fn wanted<'a>(spec: &EvictionSpec, servers: &'a [Server]) -> Vec<&'a Server> {
    let only: BTreeSet<&str> = spec.instances.iter().map(String::as_str).collect();
    servers
        .iter()
        .filter(|server| only.is_empty() || only.contains(server.id.as_str()))
        .collect()
}
