// SPDX-License-Identifier: Apache-2.0
//! One hypervisor host: who runs on it, and everything that can be done to it. Faults go through
//! the lab's command, so that a test and a person break things in the same way.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::command::run;
use crate::{HostDescription, Redfish, Result};

const LIBVIRT_PORT: u16 = 16509;

/// A handle to a host; cheap to copy around.
#[derive(Debug, Clone)]
pub struct Host {
    command: PathBuf,
    description: HostDescription,
}

/// A libvirt domain on a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    /// The host that has it.
    pub host: String,
    /// Its UUID, which is the server's id in Nova.
    pub uuid: String,
    /// Whether it is active there (running or paused).
    pub active: bool,
}

impl Host {
    pub(crate) fn new(command: PathBuf, description: HostDescription) -> Self {
        Self { command, description }
    }

    /// Its name, also in Nova.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Addresses and paths.
    pub fn description(&self) -> &HostDescription {
        &self.description
    }

    /// Its BMC.
    pub fn redfish(&self) -> Redfish {
        Redfish::new(self.description.redfish.clone())
    }

    /// Every domain that its libvirtd knows, asked over the unix socket: that works while the host
    /// is cut off. A host that is off has none.
    pub fn domains(&self) -> Result<Vec<Domain>> {
        if !self.is_on()? {
            return Ok(Vec::new());
        }
        // one connection for both lists; the word between them is no UUID
        let lists = self.virsh(&["list --uuid; echo inactive; list --inactive --uuid"])?;
        let (active, inactive) = lists.split_once("inactive").unwrap_or((&lists, ""));
        let of = |list: &str, active| {
            let domains = list.split_whitespace().map(|uuid| Domain {
                host: self.name().to_owned(),
                uuid: uuid.to_owned(),
                active,
            });
            domains.collect::<Vec<_>>()
        };
        let mut domains = of(active, true);
        domains.extend(of(inactive, false));
        Ok(domains)
    }

    /// virsh on the host's unix socket.
    pub fn virsh(&self, arguments: &[&str]) -> Result<String> {
        virsh(&self.description.libvirt_unix, arguments)
    }

    /// virsh over the lab's network, as another host would connect.
    pub fn virsh_tcp(&self, arguments: &[&str]) -> Result<String> {
        virsh(&self.description.libvirt_tcp, arguments)
    }

    /// Whether libvirtd can be reached over the lab's network within two seconds.
    pub fn reachable(&self) -> bool {
        let address = format!("{}:{LIBVIRT_PORT}", self.description.address).parse();
        address.is_ok_and(|address| TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok())
    }

    /// Whether the host has power: whether its first process, noted by id and start time, is there.
    /// Asked of the kernel, so that the answer does not depend on a BMC that a test has broken.
    pub fn is_on(&self) -> Result<bool> {
        let noted = std::fs::read_to_string(&self.description.init).unwrap_or_default();
        let Some((pid, since)) = noted.trim().split_once(' ') else {
            return Ok(false);
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // after the command name in brackets: the state, and 19 fields later the start time
        let fields = stat
            .rsplit_once(") ")
            .map(|(_, fields)| fields)
            .unwrap_or_default();
        let mut fields = fields.split_whitespace();
        let alive = fields.next().is_some_and(|state| state != "Z");
        Ok(alive && fields.nth(18) == Some(since))
    }

    /// Runs a command inside the host and returns its output.
    pub fn exec(&self, arguments: &[&str]) -> Result<String> {
        let mut words = vec!["exec", self.name()];
        words.extend(arguments);
        self.lab(&words)
    }

    /// Changes with every boot.
    pub fn boot_id(&self) -> Result<String> {
        let id = self.exec(&["cat", "/proc/sys/kernel/random/boot_id"])?;
        Ok(id.trim().to_owned())
    }

    /// Takes the power away: every process ends at once, nobody is told.
    pub fn power_off(&self) -> Result<()> {
        self.lab(&["kill", self.name()]).map(drop)
    }

    /// Gives the power back and waits for libvirtd.
    pub fn power_on(&self) -> Result<()> {
        self.lab(&["boot", self.name()]).map(drop)
    }

    /// Unplugs the network; the host keeps running.
    pub fn cut(&self) -> Result<()> {
        self.lab(&["cut", self.name()]).map(drop)
    }

    /// Plugs the network in again.
    pub fn mend(&self) -> Result<()> {
        self.lab(&["mend", self.name()]).map(drop)
    }

    /// Stops a process in its tracks, `libvirtd` or `nova-compute` for instance, or `guest/NAME`.
    pub fn freeze(&self, process: &str) -> Result<()> {
        self.lab(&["freeze", self.name(), process]).map(drop)
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self, process: &str) -> Result<()> {
        self.lab(&["thaw", self.name(), process]).map(drop)
    }

    /// Kills a process; nothing starts it again.
    pub fn kill_process(&self, process: &str) -> Result<()> {
        self.lab(&["kill-process", self.name(), process]).map(drop)
    }

    /// Starts a service that was killed.
    pub fn start_process(&self, process: &str) -> Result<()> {
        self.lab(&["start-process", self.name(), process]).map(drop)
    }

    /// Names and states of the host's processes.
    pub fn processes(&self) -> Result<Vec<(String, String)>> {
        let text = self.lab(&["processes", self.name()])?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs
            .map(|(name, state)| (name.to_owned(), state.to_owned()))
            .collect())
    }

    /// Makes the shared storage of this host pause; zero ends it.
    pub fn slow_disk(&self, milliseconds: u32) -> Result<()> {
        self.lab(&["slow-disk", self.name(), &milliseconds.to_string()])
            .map(drop)
    }

    /// Freezes the host's BMC: it accepts connections and never answers.
    pub fn freeze_bmc(&self) -> Result<()> {
        self.lab(&["freeze", "bmc", self.name()]).map(drop)
    }

    /// Lets the BMC answer again.
    pub fn thaw_bmc(&self) -> Result<()> {
        self.lab(&["thaw", "bmc", self.name()]).map(drop)
    }

    fn lab(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new(&self.command).args(arguments))
    }
}

/// virsh with a deadline, because a libvirtd may be frozen or cut off on purpose.
fn virsh(uri: &str, arguments: &[&str]) -> Result<String> {
    run(Command::new("timeout")
        .args(["20", "virsh", "-q", "-c", uri])
        .args(arguments))
}
