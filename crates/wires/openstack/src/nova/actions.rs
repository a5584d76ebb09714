// SPDX-License-Identifier: Apache-2.0
//! What is done with servers. None of these may be sent twice when the answer to the first got
//! lost: the caller looks at the server first.

use serde_json::{Value, json};

use super::{Nova, VmState};
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::ServerId;
use crate::version::Microversion;

/// One action: its own name in messages, the same route for all.
macro_rules! action {
    ($name:ident, $words:literal) => {
        static $name: Call = Call::post(Service::Nova, $words, "/servers/{server}/action");
    };
}

action!(LIVE_MIGRATE, "live-migrate a server");
action!(MIGRATE, "migrate a server");
action!(CONFIRM, "confirm a server's resize");
action!(REVERT, "revert a server's resize");
action!(START, "start a server");
action!(STOP, "stop a server");
action!(PAUSE, "pause a server");
action!(UNPAUSE, "unpause a server");
action!(SUSPEND, "suspend a server");
action!(RESUME, "resume a server");
action!(REBOOT, "reboot a server");
action!(LOCK, "lock a server");
action!(UNLOCK, "unlock a server");

static EVACUATE: Call = Call::post(Service::Nova, "evacuate a server", "/servers/{server}/action")
    .versions(Microversion::new(2, 68), Microversion::new(2, 90));
static RESET: Call = Call::post(
    Service::Nova,
    "reset a server's state",
    "/servers/{server}/action",
)
.repeatable();
static CONSOLE: Call = Call::post(
    Service::Nova,
    "read a server's console",
    "/servers/{server}/action",
)
.repeatable();

/// Whether a live migration copies disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockMigration {
    /// Nova finds out.
    #[default]
    Auto,
    /// The disks are shared.
    No,
    /// They are copied.
    Yes,
}

/// How a server is evacuated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evacuation {
    /// To this host; otherwise the scheduler chooses.
    pub host: Option<String>,
    /// At this microversion at most. Up to 2.94 the server keeps its state; from 2.95 on it ends
    /// stopped and is started by the caller.
    pub version: Option<Microversion>,
}

impl Nova {
    /// Asks for a live migration, to a host or to wherever the scheduler likes.
    pub async fn live_migrate(
        &self,
        id: &ServerId,
        host: Option<&str>,
        block_migration: BlockMigration,
    ) -> Result<()> {
        let block_migration = match block_migration {
            BlockMigration::Auto => json!("auto"),
            BlockMigration::No => json!(false),
            BlockMigration::Yes => json!(true),
        };
        let body = json!({ "os-migrateLive": { "host": host, "block_migration": block_migration } });
        self.act(&LIVE_MIGRATE, id, &body).await
    }

    /// Asks for a cold migration; it waits for its confirmation when it is over.
    pub async fn migrate(&self, id: &ServerId, host: Option<&str>) -> Result<()> {
        let body = match host {
            None => json!({ "migrate": null }),
            Some(host) => json!({ "migrate": { "host": host } }),
        };
        let request = Request::new(&MIGRATE, &[id.as_str()]).json(&body);
        let needed = host.map_or(request.least, |_| Microversion::new(2, 56));
        self.session.done(request.at_least(needed)).await
    }

    /// Confirms a resize or cold migration.
    pub async fn confirm_resize(&self, id: &ServerId) -> Result<()> {
        self.act(&CONFIRM, id, &json!({ "confirmResize": null })).await
    }

    /// Takes a resize or cold migration back.
    pub async fn revert_resize(&self, id: &ServerId) -> Result<()> {
        self.act(&REVERT, id, &json!({ "revertResize": null })).await
    }

    /// Asks for an evacuation. Nova refuses while it thinks that the server's host is up.
    pub async fn evacuate(&self, id: &ServerId, evacuation: &Evacuation) -> Result<()> {
        let body = match &evacuation.host {
            None => json!({ "evacuate": {} }),
            Some(host) => json!({ "evacuate": { "host": host } }),
        };
        let mut request = Request::new(&EVACUATE, &[id.as_str()]).json(&body);
        if let Some(version) = evacuation.version {
            request = request.at_most(version);
        }
        self.session.done(request).await
    }

    /// Starts a server that is off.
    pub async fn start(&self, id: &ServerId) -> Result<()> {
        self.act(&START, id, &json!({ "os-start": null })).await
    }

    /// Stops a server.
    pub async fn stop(&self, id: &ServerId) -> Result<()> {
        self.act(&STOP, id, &json!({ "os-stop": null })).await
    }

    /// Lets a server stand still, in memory.
    pub async fn pause(&self, id: &ServerId) -> Result<()> {
        self.act(&PAUSE, id, &json!({ "pause": null })).await
    }

    /// Lets a paused server run on.
    pub async fn unpause(&self, id: &ServerId) -> Result<()> {
        self.act(&UNPAUSE, id, &json!({ "unpause": null })).await
    }

    /// Lets a server stand still, on disk.
    pub async fn suspend(&self, id: &ServerId) -> Result<()> {
        self.act(&SUSPEND, id, &json!({ "suspend": null })).await
    }

    /// Lets a suspended server run on.
    pub async fn resume(&self, id: &ServerId) -> Result<()> {
        self.act(&RESUME, id, &json!({ "resume": null })).await
    }

    /// Resets a server as its power button would.
    pub async fn hard_reboot(&self, id: &ServerId) -> Result<()> {
        self.act(&REBOOT, id, &json!({ "reboot": { "type": "HARD" } }))
            .await
    }

    /// Locks a server with a reason (2.73).
    pub async fn lock(&self, id: &ServerId, reason: &str) -> Result<()> {
        let request = Request::new(&LOCK, &[id.as_str()])
            .at_least(Microversion::new(2, 73))
            .json(&json!({ "lock": { "locked_reason": reason } }));
        self.session.done(request).await
    }

    /// Unlocks a server.
    pub async fn unlock(&self, id: &ServerId) -> Result<()> {
        self.act(&UNLOCK, id, &json!({ "unlock": null })).await
    }

    /// Sets a server's state in Nova's books to `active` or `error`, which changes nothing real.
    pub async fn reset_state(&self, id: &ServerId, state: &VmState) -> Result<()> {
        let body = json!({ "os-resetState": { "state": state.as_str() } });
        self.act(&RESET, id, &body).await
    }

    /// The last lines of a server's console.
    pub async fn console_output(&self, id: &ServerId, lines: u32) -> Result<String> {
        let body = json!({ "os-getConsoleOutput": { "length": lines } });
        let request = Request::new(&CONSOLE, &[id.as_str()]).json(&body);
        self.session.member(request, "output").await
    }

    async fn act(&self, call: &'static Call, id: &ServerId, body: &Value) -> Result<()> {
        let request = Request::new(call, &[id.as_str()]).json(body);
        self.session.done(request).await
    }
}
