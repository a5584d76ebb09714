// SPDX-License-Identifier: Apache-2.0
//! Where agents send and ask. The patterns are for the router of a service, the functions for its callers.

use cobaltcore_api::names::HostName;

/// Pattern of the reports of an agent: `POST`, a [`crate::Batch`].
pub const BATCHES: &str = "/api/v1/agents/{host}/batches";
/// Pattern of the commands for an agent: `GET` with `?wait=<seconds>`, a [`crate::CommandList`].
pub const COMMANDS: &str = "/api/v1/agents/{host}/commands";
/// The check on the agent's own listener that says whether it reaches the service.
pub const CONTACT_CHECK: &str = "service-lease";
/// Where peers read that check before they fence themselves: `[+]service-lease ok` if it does.
pub const CONTACT: &str = "/readyz/service-lease?verbose";

/// Where the agent of `host` reports.
pub fn batches(host: &HostName) -> String {
    format!("/api/v1/agents/{host}/batches")
}

/// Where the agent of `host` asks for commands.
pub fn commands(host: &HostName, wait_s: u64) -> String {
    format!("/api/v1/agents/{host}/commands?wait={wait_s}")
}
