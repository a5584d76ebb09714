// SPDX-License-Identifier: Apache-2.0
//! The operator as a process of its own, so that its memory and time are its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::Error;

/// Kernel ticks per second in `/proc`, fixed on Linux.
const TICKS: f64 = 100.0;

/// A running operator; killed when dropped.
pub(crate) struct Operator {
    child: Child,
    pub(crate) log: PathBuf,
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
}

impl Operator {
    pub(crate) fn start(
        program: &Path,
        kubeconfig: &Path,
        auth_url: &str,
        place: &Path,
        flags: &[&str],
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Start {
            what: "the operator",
            reason: error.to_string(),
        };
        let log = place.join("operator.log");
        let out = std::fs::File::create(&log).map_err(failed)?;
        let child = Command::new(program)
            .args([
                "--log=warn",
                "hypervisor-operator",
                "--agent-namespaces=default",
                "--ha-mode=off",
            ])
            .args([
                "--health-probe-bind-address=0",
                "--gardener=off",
                "--test-volume-size=0",
            ])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(flags)
            .env("OS_AUTH_URL", auth_url)
            .envs([
                ("OS_USERNAME", "admin"),
                ("OS_PASSWORD", "simulated"),
                ("OS_PROJECT_NAME", "admin"),
                ("OS_USER_DOMAIN_NAME", "Default"),
                ("OS_PROJECT_DOMAIN_NAME", "Default"),
                ("OS_REGION_NAME", "RegionOne"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log })
    }

    /// What it has used so far; zeros when it is gone.
    pub(crate) fn usage(&self) -> Usage {
        let id = self.child.id();
        id.map(|id| Usage::of(&id.to_string())).unwrap_or_default()
    }

    pub(crate) async fn stop(mut self) {
        let _ = self.child.kill().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Usage {
    /// What this process has used, which serves the API and the cloud.
    pub(crate) fn own() -> Self {
        Self::of("self")
    }

    fn of(process: &str) -> Self {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
        // The name in parentheses may hold anything; what follows are numbers.
        let stat = read("stat");
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = after
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = resident
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        Usage {
            cpu_seconds: ticks / TICKS,
            resident_mib: kib / 1024.0,
        }
    }
}
