// SPDX-License-Identifier: Apache-2.0
//! What a service may ask of an agent: three things and nothing else. Each has an id, so that asking twice changes
//! nothing, and a time after which it must not be done any more.

use std::fmt;

use cobaltcore_api::names::ServerId;
use serde::{Deserialize, Serialize};

/// The id of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub String);

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its id; an id is carried out once.
    pub id: CommandId,
    /// Milliseconds from the moment it is handed out until it must not be begun any more. A duration, because the
    /// clocks of two machines are never compared.
    pub expires_in_ms: u64,
    /// What to do.
    #[serde(flatten)]
    pub kind: CommandKind,
}

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CommandKind {
    /// Try to reach these.
    Probe {
        /// At most [`crate::bounds::TARGETS`].
        targets: Vec<ProbeTarget>,
        /// At most [`crate::bounds::PROBE_MS`].
        timeout_ms: u64,
    },
    /// Send the inventory now.
    Resync,
    /// Stop this guest in its tracks: it runs elsewhere. Done only if the agent's own configuration permits it.
    PauseDomain {
        /// The guest.
        uuid: ServerId,
        /// The incident, for the record.
        #[serde(default)]
        incident: String,
    },
    /// Something a newer service asks and this agent does not know: answered as unsupported.
    #[serde(other)]
    Unknown,
}

/// Whom to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeTarget {
    /// An IP address.
    pub address: std::net::IpAddr,
    /// How.
    pub method: ProbeMethod,
    /// The port, for TCP.
    #[serde(default)]
    pub port: u16,
}

/// How to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeMethod {
    /// Connect; if that succeeds, see whether a program answers.
    Tcp,
    /// An echo request.
    Icmp,
}

/// What came of reaching for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// A program answered.
    App,
    /// The network stack answered: accepted, refused, or echoed.
    Kernel,
    /// Nothing answered in time.
    Timeout,
    /// It could not be tried, which says nothing about the target.
    Failed,
}

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeReport {
    /// The command that asked.
    pub command: CommandId,
    /// Whom.
    pub target: ProbeTarget,
    /// What came of it.
    pub outcome: ProbeOutcome,
    /// How long it took.
    pub took_ms: u64,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandResult {
    /// Which.
    pub id: CommandId,
    /// How it ended.
    pub outcome: CommandOutcome,
    /// In words, if there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    /// Done.
    Done,
    /// The agent's configuration or a guard forbids it.
    Refused,
    /// It was too late.
    Expired,
    /// The agent does not know it.
    Unsupported,
    /// It was tried in vain.
    Failed,
}
