// SPDX-License-Identifier: Apache-2.0
//! Ways between the parts of the plane. Each has two directions that fail by themselves: a request that arrives is
//! carried out, whether or not its answer does. Besides, somebody may be reached by nobody and reach everybody, as
//! behind a rule that lets connections out and none in.

use crate::world::World;

/// The way to somebody and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// What is sent there arrives.
    pub(crate) there: bool,
    /// What comes from there arrives.
    pub(crate) back: bool,
}

impl Way {
    pub(crate) const OPEN: Self = Self::both(true);

    pub(crate) const fn both(on: bool) -> Self {
        Self { there: on, back: on }
    }

    /// Whether a question is answered.
    pub(crate) fn answers(self) -> bool {
        self.there && self.back
    }
}

impl World {
    /// Whether a host answers what a replica asks it.
    pub(crate) fn reaches(&self, r: usize, h: usize) -> bool {
        let (replica, host) = (&self.replicas[r], &self.hosts[h]);
        replica.alive() && replica.hosts.answers() && self.uplinks[host.rack] && host.mgmt.answers()
    }

    /// Whether a replica gets what a host says, although it may not get an answer there.
    pub(crate) fn hears(&self, r: usize, h: usize) -> bool {
        let (replica, host) = (&self.replicas[r], &self.hosts[h]);
        replica.alive() && replica.listens() && self.uplinks[host.rack] && host.mgmt.back
    }

    /// Whether two replicas speak, the first of which begins.
    pub(crate) fn asks_peer(&self, r: usize, other: usize) -> bool {
        let (asks, asked) = (&self.replicas[r], &self.replicas[other]);
        asks.peers && asked.peers && !asked.closed
    }

    /// The way from a replica to the Kubernetes API, which may be away.
    pub(crate) fn kubernetes(&self, r: usize) -> Way {
        if self.kubernetes_up {
            self.replicas[r].kubernetes
        } else {
            Way::both(false)
        }
    }

    /// The way from a replica to Nova, which may be away.
    pub(crate) fn nova(&self, r: usize) -> Way {
        if self.nova_up {
            self.replicas[r].nova
        } else {
            Way::both(false)
        }
    }
}
