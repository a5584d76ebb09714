// SPDX-License-Identifier: Apache-2.0
//! What an operator may decide about judgement. The defaults are the recommended values; reading
//! them from a file is left to the service.

mod monitors;

use std::time::Duration;

use cobaltcore_api::names::HostName;
use serde::{Deserialize, Serialize};

use crate::ids::Grade;
use crate::input::VmState;

pub use monitors::{
    AgentSilent, HostRebooted, InstanceCrashed, IoErrorStorm, MemoryFailure, Monitors, ServiceGone,
    WatchdogStorm,
};

/// What to do with a host that runs but cannot be reached or hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// Tell and wait for a person.
    Hold,
    /// Fence after the dwell time; guests that may still work are sacrificed.
    Fence,
    /// Hung hosts only: fence after the dwell time if storage is watched and shows no life.
    Auto,
}

/// A response and how long the shape must last before it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DwellResponse {
    /// What to do.
    pub response: Response,
    /// After how long.
    pub dwell: Duration,
}

/// One level of fencing. What devices it takes is the service's matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceLevel {
    /// The name of the driver or drivers, for people.
    pub name: String,
    /// What it proves when it succeeds.
    pub grade: Grade,
}

/// What happens to a guest whose disk would be rebuilt empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalDisk {
    /// It is left alone.
    Skip,
    /// It is rebuilt from its image: its data is lost, and somebody accepted that.
    Rebuild,
}

/// What high availability does for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmPolicy {
    /// Moved when its host dies, restarted when it crashes.
    Evacuate,
    /// Restarted when it crashes; not moved.
    Restart,
    /// Left alone.
    Ignore,
}

/// What is done when the guests of a dead host may find no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapacityCheck {
    /// Nobody looks.
    Off,
    /// People are told; the most important guests come first.
    Warn,
    /// It waits for a person.
    Hold,
}

/// Everything the engine can be told to do differently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// How many replicas the service has.
    pub replicas: u8,
    /// A heartbeat this young is a sign of life.
    pub heartbeat_alive: Duration,
    /// Silence longer than this is death of group A.
    pub silent_after: Duration,
    /// A compute service that changed this recently is alive.
    pub nova_alive: Duration,
    /// One that did not for this long is dead.
    pub nova_dead: Duration,
    /// A node lease that changed this recently is alive.
    pub lease_alive: Duration,
    /// One that did not for this long is dead.
    pub lease_dead: Duration,
    /// How old the answer of any other source may be.
    pub answer_fresh: Duration,
    /// How many independent groups must agree.
    pub min_groups: usize,
    /// Whether one of them must be a probe.
    pub require_active_probe: bool,
    /// In how many rounds.
    pub confirm_rounds: u32,
    /// How far rounds are apart.
    pub round: Duration,
    /// Share of hosts that makes a group untrusted when they die in it together, and the least number.
    pub distrust_percent: u32,
    /// The least number of hosts for that.
    pub distrust_min: usize,
    /// Within how long they must die.
    pub distrust_window: Duration,
    /// How long the distrust lasts.
    pub distrust_for: Duration,
    /// What is done with an isolated host.
    pub isolated: DwellResponse,
    /// What is done with a hung host.
    pub hung: DwellResponse,
    /// Whether storage liveness is observed at all.
    pub storage_watched: bool,
    /// Whether leases of nodes are; where they are not, nobody waits for them to be dead.
    pub leases_watched: bool,
    /// How many agents of other hosts are asked to probe a suspect.
    pub probe_peers: usize,
    /// The levels of fencing, in order.
    pub fence_levels: Vec<FenceLevel>,
    /// What a fence must prove.
    pub required_grade: Grade,
    /// How long a level is tried before the next.
    pub fence_timeout: Duration,
    /// How many readings of Off verify a fence.
    pub verify_reads: u32,
    /// How far they are apart, at least.
    pub verify_gap: Duration,
    /// First pause between attempts to fence.
    pub fence_retry_min: Duration,
    /// Longest pause.
    pub fence_retry_max: Duration,
    /// How old the proof that a fence holds may be when a guest is moved.
    pub hold_max_age: Duration,
    /// Hosts between Fencing and Evacuating.
    pub max_hosts_in_flight: usize,
    /// Share of the fleet that may be impacted before everything holds; never less than two hosts.
    pub storm_percent: u32,
    /// Hosts of one failure domain, at most.
    pub max_domain_hosts: usize,
    /// Share of a failure domain, at most; never less than one host.
    pub domain_percent: u32,
    /// How long a host that was in trouble counts after it came back.
    pub storm_window: Duration,
    /// How long it must be calm before a storm is over.
    pub storm_cooldown: Duration,
    /// How long a finished incident still counts.
    pub storm_memory: Duration,
    /// Hosts whose power is off may go on during a storm.
    pub proven_dead_bypass: bool,
    /// A leader that could not renew for this long starts nothing.
    pub renew_deadline: Duration,
    /// How long a new leader only looks.
    pub warmup: Duration,
    /// How long after most of the fleet booted nobody is fenced: it is being switched on.
    pub cold_start: Duration,
    /// Share of the hosts that must be heard.
    pub fresh_percent: usize,
    /// Share of the canaries that must answer.
    pub canary_percent: usize,
    /// Guests of one incident moved at once.
    pub vm_concurrency: usize,
    /// Guests moved at once, altogether.
    pub global_concurrency: usize,
    /// After how long a moving guest counts as stuck.
    pub vm_timeout: Duration,
    /// How often a guest is tried.
    pub vm_attempts: u32,
    /// First pause between attempts; doubles, and is a fifth more or less for each guest.
    pub vm_backoff: Duration,
    /// How old an inventory may be that proves where a guest runs.
    pub inventory_fresh: Duration,
    /// What is done for guests that say nothing.
    pub default_policy: VmPolicy,
    /// What is done for guests whose disk is local.
    pub local_disk: LocalDisk,
    /// Guests in these states are left alone.
    pub skip_states: Vec<VmState>,
    /// Whether the agent of the destination must show a moved guest as well, where it says anything.
    pub verify_by_agent: bool,
    /// Whether crashed guests that say nothing are restarted.
    pub restart_by_default: bool,
    /// Restarts of one guest within the window.
    pub max_restarts: usize,
    /// The window.
    pub restart_window: Duration,
    /// After how long a dead host in `auto` maintenance is taken over.
    pub auto_takeover: Duration,
    /// How long an announced shutdown may take to come back.
    pub planned_grace: Duration,
    /// Release hosts without being asked, after they were healthy for this long.
    pub auto_release: Option<Duration>,
    /// No operator is there to enable the service after a release; do it here.
    pub release_in_nova: bool,
    /// What is done when the guests of a dead host may find no room.
    pub capacity: CapacityCheck,
    /// What is watched.
    pub monitors: Monitors,
    /// Whether guests are locked against their owners while they are moved.
    pub lock_servers: bool,
    /// After how long a dead host in `manual` maintenance is taken over; never, if nothing.
    pub manual_takeover: Option<Duration>,
    /// Disabled hosts that may be enabled when there is no room otherwise, in order.
    pub spares: Vec<HostName>,
    /// For how long an incident that is over stays in the journal.
    pub remember: Duration,
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            replicas: 3,
            heartbeat_alive: s(7),
            silent_after: s(15),
            nova_alive: s(12),
            nova_dead: s(30),
            lease_alive: s(12),
            lease_dead: s(20),
            answer_fresh: s(10),
            min_groups: 2,
            require_active_probe: true,
            confirm_rounds: 2,
            round: s(3),
            distrust_percent: 20,
            distrust_min: 5,
            distrust_window: s(60),
            distrust_for: s(120),
            isolated: DwellResponse {
                response: Response::Hold,
                dwell: s(300),
            },
            hung: DwellResponse {
                response: Response::Auto,
                dwell: s(180),
            },
            storage_watched: false,
            leases_watched: true,
            probe_peers: 4,
            fence_levels: vec![FenceLevel {
                name: "redfish".to_owned(),
                grade: Grade::Power,
            }],
            required_grade: Grade::Power,
            fence_timeout: s(60),
            verify_reads: 2,
            verify_gap: s(2),
            fence_retry_min: s(30),
            fence_retry_max: s(300),
            hold_max_age: s(10),
            max_hosts_in_flight: 3,
            storm_percent: 10,
            max_domain_hosts: 2,
            domain_percent: 10,
            storm_window: s(300),
            storm_cooldown: s(300),
            storm_memory: s(3600),
            proven_dead_bypass: true,
            renew_deadline: s(10),
            warmup: s(60),
            cold_start: s(600),
            fresh_percent: 80,
            canary_percent: 60,
            vm_concurrency: 16,
            global_concurrency: 48,
            vm_timeout: s(600),
            vm_attempts: 5,
            vm_backoff: s(10),
            inventory_fresh: s(90),
            default_policy: VmPolicy::Evacuate,
            local_disk: LocalDisk::Skip,
            skip_states: Vec::new(),
            verify_by_agent: true,
            restart_by_default: false,
            max_restarts: 3,
            restart_window: s(3600),
            auto_takeover: s(600),
            planned_grace: s(900),
            auto_release: None,
            release_in_nova: false,
            capacity: CapacityCheck::Warn,
            monitors: Monitors::default(),
            lock_servers: true,
            manual_takeover: None,
            spares: Vec::new(),
            remember: Duration::from_hours(30 * 24),
        }
    }
}
