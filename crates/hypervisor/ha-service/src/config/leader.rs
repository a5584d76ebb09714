// SPDX-License-Identifier: Apache-2.0
//! Which replicas there are, and who of them acts.

use cobaltcore_kit::config::{HumanDuration, Mistakes};
use serde::{Deserialize, Serialize};

use super::{Config, JournalBackend, seconds};

/// Who of the replicas acts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Leader {
    /// Whether replicas elect a leader; without it, this process is the only one.
    pub enabled: bool,
    /// The namespace of the lease; the pod's own when empty.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// How long others wait after the last sign of life.
    pub lease_duration: HumanDuration,
    /// How long the leader may act without having renewed.
    pub renew_deadline: HumanDuration,
    /// The pause between attempts.
    pub retry_period: HumanDuration,
    /// All replicas, in the order of their ordinals, as base addresses; this one among them. Where none is named and
    /// there is a token, they are the pods of this StatefulSet.
    pub peers: Vec<String>,
    /// The headless service that the pods of the StatefulSet have their names from.
    pub peer_service: String,
    /// How many pods the StatefulSet has.
    pub replicas: u8,
    /// Which of the peers this replica is; the number at the end of the host name when not given.
    pub ordinal: Option<u8>,
    /// The file with the token by which replicas know each other.
    pub peer_token_file: String,
    /// The authorities of the peers' certificates; the system's own when empty.
    pub peer_ca_file: String,
}

impl Default for Leader {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: String::new(),
            name: "kvm-ha-service".into(),
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            retry_period: seconds(2),
            peers: Vec::new(),
            peer_service: "kvm-ha-service-peers".into(),
            replicas: 3,
            ordinal: None,
            peer_token_file: String::new(),
            peer_ca_file: String::new(),
        }
    }
}

impl Leader {
    /// Whether there is more than one replica: as many as are named, else as many as are said.
    pub(crate) fn several(&self) -> bool {
        if self.peers.is_empty() {
            self.replicas > 1
        } else {
            self.peers.len() > 1
        }
    }
}

/// The pod this process runs in, as far as it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl Pod {
    /// What the environment says.
    pub fn here() -> Self {
        let said = |name: &str| std::env::var(name).unwrap_or_default();
        Self {
            name: said("HOSTNAME"),
            namespace: said("POD_NAMESPACE"),
        }
    }

    /// The StatefulSet it belongs to, and which of its pods it is.
    fn place(&self) -> Option<(&str, u8)> {
        let (set, ordinal) = self.name.rsplit_once('-')?;
        Some((set, ordinal.parse().ok()?))
    }
}

impl Config {
    pub(super) fn check_leader(&self, mistakes: &mut Mistakes<'_>) {
        let Leader {
            enabled,
            peers,
            ordinal,
            renew_deadline,
            lease_duration,
            replicas,
            peer_token_file,
            ..
        } = &self.leader;
        if *replicas == 0 {
            mistakes.add("leader.replicas", "must be at least 1");
        }
        if *enabled && !self.kubernetes.enabled {
            mistakes.add(
                "leader.enabled",
                "needs kubernetes.enabled: the lease is kept there; set it to false for a single replica",
            );
        }
        if !*enabled && !peers.is_empty() {
            mistakes.add(
                "leader.peers",
                "needs leader.enabled: several replicas must elect one",
            );
        }
        if self.journal.backend == JournalBackend::Kubernetes && !self.kubernetes.enabled {
            mistakes.add("journal.backend", "kubernetes needs kubernetes.enabled");
        }
        if *enabled && self.leader.several() && peer_token_file.is_empty() {
            mistakes.add(
                "leader.peer_token_file",
                "is needed: without it replicas do not know each other, and each would decide by what it hears alone; \
                 a single one says leader.replicas: 1",
            );
        }
        if self.journal.backend == JournalBackend::Sqlite && *enabled && self.leader.several() {
            mistakes.add(
                "journal.backend",
                "sqlite is read by one replica only; several need kubernetes",
            );
        }
        if let Some(ordinal) = ordinal
            && !peers.is_empty()
            && usize::from(*ordinal) >= peers.len()
        {
            mistakes.add("leader.ordinal", format!("there are only {} peers", peers.len()));
        }
        if renew_deadline >= lease_duration {
            mistakes.add(
                "leader.renew_deadline",
                "must be shorter than leader.lease_duration",
            );
        }
    }

    /// All replicas, in the order of their ordinals: those that are named or, in a pod of a StatefulSet whose replicas can
    /// prove to each other who they are, its pods by their names in DNS. That one of them does not exist at the moment
    /// changes nothing: it is missed, not forgotten.
    pub fn peers(&self, pod: &Pod) -> Vec<String> {
        let Leader {
            enabled,
            peers,
            peer_service,
            replicas,
            peer_token_file,
            ..
        } = &self.leader;
        let known = !peers.is_empty() || !*enabled || peer_token_file.is_empty() || pod.namespace.is_empty();
        let Some((set, _)) = pod.place().filter(|(_, ordinal)| !known && ordinal < replicas) else {
            return peers.clone();
        };
        let scheme = if self.server.tls.cert_file.is_empty() {
            "http"
        } else {
            "https"
        };
        let port = self.server.listen.rsplit(':').next().unwrap_or_default();
        let namespace = &pod.namespace;
        let address = |n| format!("{scheme}://{set}-{n}.{peer_service}.{namespace}.svc:{port}");
        (0..*replicas).map(address).collect()
    }

    /// How many replicas there are.
    pub fn replicas(&self) -> u8 {
        let all = self.peers(&Pod::here()).len().max(1);
        u8::try_from(all).unwrap_or(u8::MAX)
    }
}
