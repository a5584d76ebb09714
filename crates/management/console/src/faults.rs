// SPDX-License-Identifier: Apache-2.0
//! What can be broken on purpose. Only a simulated world offers this; the console shows the buttons where it does and
//! knows nothing else of simulations.

/// Something to break or to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Take a host's power away.
    Kill {
        /// Which host.
        host: String,
    },
    /// Give it back.
    Boot {
        /// Which host.
        host: String,
    },
    /// Cut a host's network.
    Cut {
        /// Which host.
        host: String,
    },
    /// Mend it.
    Mend {
        /// Which host.
        host: String,
    },
    /// Let the process of a guest die.
    CrashGuest {
        /// The server's UUID.
        server: String,
    },
}

/// How a host is in the simulated world, whatever anybody has noticed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// It has power.
    pub powered: bool,
    /// It is still on its way up.
    pub booting: bool,
    /// Its network is cut.
    pub cut: bool,
}

/// A world that can be broken.
pub trait Faults: Send + Sync {
    /// Breaks or mends something; the answer is what happened, or why not, in words for a person.
    fn inject(&self, fault: &Fault) -> Result<String, String>;
    /// How a host is, if there is such a host.
    fn truth(&self, host: &str) -> Option<Truth>;
}
