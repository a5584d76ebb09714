// SPDX-License-Identifier: Apache-2.0
//! How a server is started: everything that can be chosen, with the defaults of the documentation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::store::Durability;

/// Who decides what a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// Roles and bindings.
    #[default]
    Rbac,
    /// Everybody may do everything.
    AlwaysAllow,
    /// Everybody may do everything, but what RBAC would have denied is recorded.
    Shadow,
}

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// State, keys and kubeconfig; `None` keeps everything in memory.
    pub data_dir: Option<PathBuf>,
    /// Addresses to listen on; empty for in-process use only.
    pub listen: Vec<SocketAddr>,
    /// Whether the port was chosen by the user; otherwise a taken port is stepped over.
    pub port_given: bool,
    /// A local socket besides.
    pub unix_socket: Option<PathBuf>,
    /// Further names and addresses of the server certificate.
    pub tls_sans: Vec<String>,
    /// Authorisation.
    pub authorization: Authorization,
    /// Whether requests without credentials are served at all.
    pub anonymous: bool,
    /// File with static tokens.
    pub token_file: Option<PathBuf>,
    /// What the context in a kubeconfig is called.
    pub context: String,
    /// Where the admin kubeconfig is written; inside the data directory when absent.
    pub kubeconfig: Option<PathBuf>,
    /// A kubeconfig of the user's own that gets a context for this server as well.
    pub kubeconfig_merge: Option<PathBuf>,
    /// File with the keys that Secrets are sealed with in the database; absent, they lie there in the clear.
    pub encryption_key_file: Option<PathBuf>,
    /// When a write counts as done.
    pub durability: Durability,
    /// Events older than this vanish.
    pub event_ttl: Duration,
    /// Least age of watch history.
    pub history: Duration,
    /// Events a watcher may lag behind.
    pub watch_queue: usize,
    /// Reading requests under way at most.
    pub max_inflight: i64,
    /// Changing requests under way at most.
    pub max_mutating_inflight: i64,
    /// Largest body.
    pub max_request_bytes: usize,
    /// Range of service addresses (IPv4 network and prefix length).
    pub service_cidr: (std::net::Ipv4Addr, u8),
    /// Range of node ports.
    pub node_ports: (u16, u16),
    /// Where webhooks of services are reached: `namespace/name` to `host:port`.
    pub webhook_services: BTreeMap<String, String>,
    /// Setting blockOwnerDeletion needs the right to update the owner's finalizers.
    pub enforce_owner_references: bool,
    /// Workloads are marked as running this long after they changed; nothing runs them otherwise.
    pub simulate_workloads: Option<Duration>,
    /// JSON lines about every request.
    pub audit_log: Option<PathBuf>,
    /// Manifests applied at start.
    pub manifests: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: None,
            listen: Vec::new(),
            port_given: false,
            unix_socket: None,
            tls_sans: Vec::new(),
            authorization: Authorization::Rbac,
            anonymous: false,
            token_file: None,
            context: "cobaltcore".into(),
            kubeconfig: None,
            kubeconfig_merge: None,
            encryption_key_file: None,
            durability: Durability::Full,
            event_ttl: Duration::from_hours(1),
            history: Duration::from_mins(10),
            watch_queue: 1_000,
            max_inflight: 400,
            max_mutating_inflight: 200,
            max_request_bytes: 3 << 20,
            service_cidr: (std::net::Ipv4Addr::new(10, 96, 0, 0), 16),
            node_ports: (30_000, 32_767),
            webhook_services: BTreeMap::new(),
            enforce_owner_references: false,
            simulate_workloads: None,
            audit_log: None,
            manifests: None,
        }
    }
}

impl Config {
    /// The address of the service `kubernetes`: the first of the range.
    pub fn service_ip(&self) -> std::net::Ipv4Addr {
        std::net::Ipv4Addr::from(u32::from(self.service_cidr.0) + 1)
    }
}
