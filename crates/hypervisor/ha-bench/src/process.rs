// SPDX-License-Identifier: Apache-2.0
//! A role as a process of its own, so that its memory and its processor time are its own. It dies with this value.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::{BenchError, set_up};

/// Kernel ticks per second in `/proc`, fixed on Linux.
const TICKS: f64 = 100.0;
/// Lines of a log that are shown when something does not come.
const LAST: usize = 15;

/// A running role.
pub(crate) struct Role {
    child: Child,
    log: PathBuf,
}

impl Role {
    /// Starts `program` with `args` and what `env` sets; what it says goes to a file in `folder`.
    pub(crate) fn start(
        program: &Path,
        folder: &Path,
        name: &'static str,
        args: &[String],
        env: &[(&str, &str)],
    ) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| set_up(name)(error.into());
        let log = folder.join(format!("{name}.log"));
        let out = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(failed)?;
        let child = Command::new(program)
            .arg("--log=warn")
            .args(args)
            .env_remove("LIBVIRT_SOCKET")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log })
    }

    fn read(&self, file: &str) -> String {
        let id = self.child.id().unwrap_or(0);
        std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
    }

    /// Processor time it has used, all threads, user and system.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = self.read("stat");
        // The name in parentheses may hold anything; what follows are numbers.
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = after
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        ticks / TICKS
    }

    /// Memory that is resident now.
    pub(crate) fn resident_mib(&self) -> f64 {
        self.status("VmRSS:")
    }

    /// The most memory that ever was resident.
    pub(crate) fn peak_mib(&self) -> f64 {
        self.status("VmHWM:")
    }

    fn status(&self, key: &str) -> f64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    }

    /// Its last words.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LAST);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// Ends it as a crash does.
    pub(crate) async fn kill(mut self) {
        let _ = self.child.kill().await;
    }
}
