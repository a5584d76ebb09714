// SPDX-License-Identifier: Apache-2.0
//! What happens next. Everything that takes time is a step in one queue, ordered by its moment and then by when it was
//! put there, so that the same seed and the same calls replay the same story.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Moment;
use super::names::HostName;
use super::state::State;

/// A step that is due at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Due {
    /// The next step of making a server.
    Build(Uuid, BuildStep),
    /// A power action of a server ends.
    Act(Uuid, Act),
    /// A server is gone.
    Delete(Uuid),
    /// A live migration goes on.
    Live(u64, LiveStep),
    /// A cold migration goes on.
    Cold(u64, ColdStep),
    /// An evacuation goes on.
    Evacuate(u64, EvacuateStep),
    /// A host's operating system is up.
    HostUp(HostName, Uuid),
    /// A host's nova-compute is up.
    ComputeUp(HostName, Uuid),
    /// Nova compares power states of a host with what libvirt says.
    SyncHost(HostName),
    /// Nova compares the power state of one server.
    SyncServer(Uuid),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BuildStep {
    Schedule,
    Network,
    Volumes,
    Spawn,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Stop,
    Start,
    RebootSoft,
    RebootHard,
    Pause,
    Unpause,
    Suspend,
    Resume,
    Rescue,
    Unrescue,
    Rebuild,
    Shelve,
    Unshelve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LiveStep {
    Schedule,
    Prepare,
    Start,
    /// A round of the job that began at this moment ends; a newer one makes it void.
    Round(u64),
    Switch,
    Finish,
    Complete,
    Abort,
    Rollback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ColdStep {
    Schedule,
    Migrate,
    Copied,
    Finish,
    Done,
    Confirm,
    Revert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EvacuateStep {
    Schedule,
    Volumes,
    Spawn,
    Done,
}

impl State {
    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.timers.keys().next().copied()
    }

    /// Lets everything happen up to `now`.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let Some(at) = self.next_due().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            for due in self.timers.remove(&at).unwrap_or_default() {
                self.happen(due);
            }
        }
        self.now = self.now.max(now);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Build(id, step) => self.build_step(id, step),
            Due::Act(id, act) => self.act_done(id, act),
            Due::Delete(id) => self.delete_done(id),
            Due::Live(id, step) => self.live_step(id, step),
            Due::Cold(id, step) => self.cold_step(id, step),
            Due::Evacuate(id, step) => self.evacuate_step(id, step),
            Due::HostUp(host, boot) => self.host_up(&host, boot),
            Due::ComputeUp(host, boot) => self.compute_up(&host, boot),
            Due::SyncHost(host) => self.sync_host(&host),
            Due::SyncServer(id) => self.sync_server(id),
        }
    }
}
