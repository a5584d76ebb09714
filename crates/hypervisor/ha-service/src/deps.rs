// SPDX-License-Identifier: Apache-2.0
//! What the executor of the engine's actions is given: the ways into the world, and nothing of
//! the judgement.

use std::sync::Arc;

use cobaltcore_openstack::Session;

use crate::clock::Clock;
use crate::commands::Commands;
use crate::config::Config;
use crate::directory::Directory;
use crate::leadership::Leadership;
use crate::maintenance::LocalMaintenance;
use crate::metrics::Metrics;
use crate::probe::Investigator;

/// The ways into the world.
#[derive(Clone)]
pub struct Deps {
    /// What the service was told.
    pub config: Arc<Config>,
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
