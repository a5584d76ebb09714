// SPDX-License-Identifier: Apache-2.0
//! What the executor of the engine's actions is given: the ways into the world, and nothing of
//! the judgement.

use cobaltcore_openstack::Session;

use crate::brain::BrainHandle;
use crate::clock::Clock;
use crate::commands::Commands;
use crate::directory::Directory;
use crate::leadership::Leadership;
use crate::maintenance::LocalMaintenance;
use crate::metrics::Metrics;
use crate::probe::Investigator;
use crate::settings::InForce;

/// The ways into the world.
#[derive(Clone)]
pub struct Deps {
    /// What the service is told, which may change.
    pub in_force: InForce,
    /// The loop, for what the monitors see of a host that has no device.
    pub brain: BrainHandle,
    /// The clock by which `not_after` is judged.
    pub clock: Clock,
    /// What is known of hosts: Nova's names, addresses, labels, machines.
    pub directory: Directory,
    /// The cloud, if there is one.
    pub openstack: Option<Session>,
    /// The cluster, if there is one.
    pub kubernetes: Option<kube::Client>,
    /// The maintenance of hosts where there is no cluster to keep it.
    pub local_maintenance: LocalMaintenance,
    /// Commands to agents.
    pub commands: Commands,
    /// Probes by all replicas and by agents of other hosts.
    pub investigator: Investigator,
    /// How leadership is given up.
    pub leadership: Leadership,
    /// What is counted.
    pub metrics: Metrics,
}
