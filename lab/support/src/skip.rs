// SPDX-License-Identifier: Apache-2.0
//! Why a suite does not run here. A machine that cannot hold a lab is no failure of the code under
//! test, so the suite says one clear line and passes; anything that goes wrong after that is one.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Once;

/// The reason why no lab is available, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    why: String,
    remedy: String,
}

/// What decides whether this machine can hold a lab.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) asked_for: bool,
    pub(crate) linux: bool,
    pub(crate) root: bool,
    pub(crate) command: bool,
    pub(crate) missing_programs: Vec<&'static str>,
    pub(crate) missing_devices: Vec<&'static str>,
}

/// One program per package group that `lab install` brings.
const PROGRAMS: [&str; 8] = [
    "/usr/sbin/libvirtd",
    "/usr/bin/qemu-system-x86_64",
    "/usr/bin/virsh",
    "/usr/bin/bindfs",
    "/usr/sbin/mariadbd",
    "/usr/sbin/rabbitmq-server",
    "/usr/bin/nova-manage",
    "/usr/bin/ovs-vsctl",
];
const DEVICES: [&str; 2] = ["/dev/fuse", "/dev/net/tun"];

impl Skip {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// Says the line, once per suite: the reason is the machine's, not the single test's. It goes
    /// past the test harness, which hides the output of tests that pass.
    pub fn print(&self) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            // A closed standard error is no reason to fail a skipped test.
            let _ = std::io::stderr().write_all(format!("\n{self}\n").as_bytes());
        });
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED: {}; {}", self.why, self.remedy)
    }
}

impl Facts {
    /// Looks at this machine.
    pub(crate) fn gather(command: &Path) -> Self {
        let absent = |path: &&'static str| !Path::new(path).exists();
        Self {
            asked_for: std::env::var("COBALTCORE_REAL").is_ok_and(|value| value == "1"),
            linux: cfg!(target_os = "linux"),
            root: effective_user() == Some(0),
            command: command.exists(),
            missing_programs: PROGRAMS.into_iter().filter(absent).collect(),
            missing_devices: DEVICES.into_iter().filter(absent).collect(),
        }
    }

    /// The first reason not to run, in the order in which a person would deal with them.
    pub(crate) fn skip(&self) -> Option<Skip> {
        if !self.asked_for {
            return Some(Skip::new(
                "the real lab was not asked for",
                "set COBALTCORE_REAL=1 to run this suite",
            ));
        }
        if !self.linux {
            return Some(Skip::new(
                "the lab needs Linux namespaces",
                "run this suite on Debian 12",
            ));
        }
        if !self.root {
            return Some(Skip::new("the lab needs root", "run this suite with sudo"));
        }
        if !self.command {
            return Some(Skip::new(
                "the lab's command is missing",
                "set COBALTCORE_LAB_COMMAND to lab/lab",
            ));
        }
        if let Some(program) = self.missing_programs.first() {
            return Some(Skip::new(
                format!("{program} is not installed"),
                "run `lab/lab install` first",
            ));
        }
        self.missing_devices.first().map(|device| {
            Skip::new(
                format!("{device} is missing"),
                "use a machine whose kernel has it",
            )
        })
    }
}

/// The effective user id from the kernel's own words; `None` where there is no such file.
fn effective_user() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able() -> Facts {
        Facts {
            asked_for: true,
            linux: true,
            root: true,
            command: true,
            missing_programs: Vec::new(),
            missing_devices: Vec::new(),
        }
    }

    #[test]
    fn a_machine_that_has_everything_is_not_skipped() {
        assert_eq!(able().skip(), None);
    }

    #[test]
    fn every_missing_thing_is_named_with_its_remedy() {
        let table = [
            (
                Facts {
                    asked_for: false,
                    ..able()
                },
                "COBALTCORE_REAL=1",
            ),
            (
                Facts {
                    linux: false,
                    ..able()
                },
                "Debian 12",
            ),
            (
                Facts {
                    root: false,
                    ..able()
                },
                "sudo",
            ),
            (
                Facts {
                    command: false,
                    ..able()
                },
                "COBALTCORE_LAB_COMMAND",
            ),
            (
                Facts {
                    missing_programs: vec!["/usr/bin/virsh"],
                    ..able()
                },
                "lab/lab install",
            ),
            (
                Facts {
                    missing_devices: vec!["/dev/fuse"],
                    ..able()
                },
                "/dev/fuse",
            ),
        ];
        for (facts, remedy) in table {
            let line = facts.skip().map(|skip| skip.to_string()).unwrap_or_default();
            assert!(
                line.starts_with("SKIPPED: ") && line.contains(remedy),
                "{line:?} lacks {remedy:?}"
            );
            assert_eq!(line.lines().count(), 1);
        }
    }
}
