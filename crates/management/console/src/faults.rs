// SPDX-License-Identifier: Apache-2.0
//! What can be broken on purpose. Only a simulated world offers this; the console shows the buttons where it does and
//! knows nothing else of simulations.

use serde::{Deserialize, Serialize};

/// Something to break or to mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Let a host's libvirt accept connections and answer nothing, or answer again.
    HangLibvirt {
        /// Which host.
        host: String,
        /// Whether it hangs.
        hangs: bool,
    },
    /// Fill a host's disk, or make room.
    FillDisk {
        /// Which host.
        host: String,
        /// Whether it is full.
        full: bool,
    },
    /// Let every migration from a host break on its way, or no longer.
    FailMigrations {
        /// Which host.
        host: String,
        /// Whether they fail.
        fail: bool,
    },
    /// Let a host's virtual switch misbehave, or behave again.
    Switch {
        /// Which host.
        host: String,
        /// In which way.
        trouble: SwitchTrouble,
    },
    /// Let every call of a service of the cloud take this much longer; zero ends it.
    Slow {
        /// Which service.
        service: String,
        /// How much.
        milliseconds: u64,
    },
    /// Let every call of a service of the cloud be refused with this code; zero ends it.
    Refuse {
        /// Which service.
        service: String,
        /// An HTTP status.
        code: u16,
    },
    /// Let the process of a guest die.
    CrashGuest {
        /// The server's UUID.
        server: String,
    },
    /// Let a guest do nothing any more while its process lives on.
    HangGuest {
        /// The server's UUID.
        server: String,
    },
}

/// What can be wrong with a host's virtual switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchTrouble {
    /// It answers this many milliseconds later; zero ends it.
    Slow(u64),
    /// It accepts connections and answers nothing, or answers again.
    Hangs(bool),
    /// ovs-vswitchd is stopped, or runs again.
    Stopped(bool),
    /// ovsdb-server is stopped, or runs again.
    DatabaseStopped(bool),
    /// ovn-controller has lost the Southbound database, or found it again.
    OvnDisconnected(bool),
    /// A port is left behind whose guest and device are gone.
    OrphanPort,
    /// A flow is left behind that matches a port that is gone.
    StaleFlow,
    /// What was left behind is cleared away.
    Tidy,
}

/// How a host is in the simulated world, whatever anybody has noticed of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// It has power.
    pub powered: bool,
    /// It is still on its way up.
    pub booting: bool,
    /// Its network is cut.
    pub cut: bool,
    /// Its libvirt answers nothing.
    pub libvirt_hangs: bool,
    /// Its disk is full.
    pub disk_full: bool,
    /// Migrations from it break on their way.
    pub migrations_fail: bool,
    /// Its virtual switch answers late, nothing, or is stopped.
    pub switch_fails: bool,
    /// The database of its switch is stopped.
    pub switch_database_stopped: bool,
    /// Its ovn-controller has lost the Southbound database.
    pub ovn_disconnected: bool,
    /// Ports or flows were left behind on its switch.
    pub switch_untidy: bool,
}

impl Truth {
    /// In one sentence.
    pub fn words(self) -> String {
        let power = match (self.powered, self.booting) {
            (_, true) => "boots",
            (true, _) => "has power",
            _ => "has no power",
        };
        let more = [
            (self.cut, "its network is cut"),
            (self.libvirt_hangs, "its libvirt answers nothing"),
            (self.disk_full, "its disk is full"),
            (self.migrations_fail, "every migration from it breaks"),
            (self.switch_fails, "its switch does not answer as it should"),
            (
                self.switch_database_stopped,
                "the database of its switch is stopped",
            ),
            (self.ovn_disconnected, "its ovn-controller is not connected"),
            (
                self.switch_untidy,
                "its switch has ports or flows that nobody needs",
            ),
        ];
        let more: String = more
            .iter()
            .filter(|(so, _)| *so)
            .map(|(_, words)| format!(", {words}"))
            .collect();
        format!("In truth it {power}{more}.")
    }
}

/// How a service of the simulated cloud answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudService {
    /// Its name.
    pub name: String,
    /// What its calls run into, in words; empty while all is well.
    pub trouble: String,
}

/// A world that can be broken.
pub trait Faults: Send + Sync {
    /// Breaks or mends something; the answer is what happened, or why not, in words for a person.
    fn inject(&self, fault: &Fault) -> Result<String, String>;
    /// How a host is, if there is such a host.
    fn truth(&self, host: &str) -> Option<Truth>;
    /// The hosts that are not as they should be.
    fn broken(&self) -> Vec<(String, Truth)>;
    /// The services of the cloud.
    fn services(&self) -> Vec<CloudService>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_names_everything_that_is_broken() {
        let well = Truth {
            powered: true,
            ..Truth::default()
        };
        assert_eq!(well.words(), "In truth it has power.");
        let broken = Truth {
            cut: true,
            disk_full: true,
            ..Truth::default()
        };
        assert_eq!(
            broken.words(),
            "In truth it has no power, its network is cut, its disk is full."
        );
    }
}
