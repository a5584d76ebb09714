// SPDX-License-Identifier: Apache-2.0
//! Server processes: started on a port the system chose, looked at through /proc, ended by their
//! id when their owner is dropped, whatever the reason.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::BenchError;
use crate::client::{Connection, Request, Target, trust};

/// Longest start, generous for a busy machine.
const START: Duration = Duration::from_mins(1);
/// How long a process may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(20);

/// A child process that does not outlive this value.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    /// Starts a program; what it prints goes to `log`.
    pub(crate) fn start(name: &'static str, mut command: Command, log: &Path) -> Result<Self, BenchError> {
        let file = std::fs::File::create(log).map_err(BenchError::io("create", log.display().to_string()))?;
        let errors = file
            .try_clone()
            .map_err(BenchError::io("open", log.display().to_string()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().map_err(BenchError::io("start", name))?;
        Ok(Self { name, child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error if the process is gone already.
    pub(crate) fn check(&mut self, log: &Path) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                Err(BenchError::Ended(
                    self.name.into(),
                    format!("{status}; {}", said.trim()),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Asks the process to stop and waits for it.
    pub(crate) async fn stop(mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The embedded API server as a process.
pub(crate) struct Ours {
    process: Process,
    target: Target,
    data: PathBuf,
    /// From the start of the process to the first answered request.
    pub(crate) first_answer: Duration,
    /// From the start of the process to readiness.
    pub(crate) ready: Duration,
}

impl Ours {
    /// Starts the server over `dir` (its data and everything else) and waits until it is ready.
    pub(crate) async fn start(program: &Path, dir: &Path) -> Result<Self, BenchError> {
        std::fs::create_dir_all(dir).map_err(BenchError::io("create", dir.display().to_string()))?;
        let (data, kubeconfig, log) = (dir.join("data"), dir.join("kubeconfig"), dir.join("log"));
        let _ = std::fs::remove_file(&kubeconfig);
        let mut command = Command::new(program);
        command.args([
            "apiserver",
            "--listen",
            "127.0.0.1:0",
            "--durability",
            "full",
            "--data-dir",
        ]);
        command.arg(&data).arg("--kubeconfig").arg(&kubeconfig);
        let began = Instant::now();
        let mut process = Process::start("cobaltcore apiserver", command, &log)?;
        let text = loop {
            if let Some(text) = std::fs::read_to_string(&kubeconfig)
                .ok()
                .filter(|text| text.contains("token:"))
            {
                break text;
            }
            process.check(&log)?;
            if began.elapsed() > START {
                return Err(BenchError::NotReady("cobaltcore apiserver".into(), START));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        };
        let target = read_kubeconfig(&text, process.pid())?;
        let mut connection = Connection::open(&target)
            .await
            .map_err(BenchError::io("connect to", target.address.to_string()))?;
        connection
            .call(&Request::get("/api/v1/namespaces/default"), false)
            .await?;
        let first_answer = began.elapsed();
        while connection.ask(&Request::get("/readyz"), false).await?.status != 200 {
            if began.elapsed() > START {
                return Err(BenchError::NotReady("cobaltcore apiserver".into(), START));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Self {
            process,
            target,
            data,
            first_answer,
            ready: began.elapsed(),
        })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Bytes in the data directory.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let Ok(files) = std::fs::read_dir(&self.data) else {
            return 0;
        };
        files
            .flatten()
            .filter_map(|file| file.metadata().ok())
            .filter(std::fs::Metadata::is_file)
            .map(|m| m.len())
            .sum()
    }

    /// Stops the server the way an operator does.
    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        self.process.stop().await;
        Ok(())
    }
}

/// Address, trust and token out of a kubeconfig this project wrote.
fn read_kubeconfig(text: &str, pid: u32) -> Result<Target, BenchError> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key))
            .map(|rest| rest.trim().trim_matches('"').to_owned())
            .ok_or_else(|| BenchError::Kubeconfig(format!("has no {key}")))
    };
    let server = value("server:")?;
    let address: SocketAddr = server
        .trim_start_matches("https://")
        .parse()
        .map_err(|_| BenchError::Kubeconfig(format!("names {server:?}, not an address on this machine")))?;
    let pem = base64::engine::general_purpose::STANDARD
        .decode(value("certificate-authority-data:")?)
        .map_err(|e| BenchError::Kubeconfig(format!("has an unreadable certificate: {e}")))?;
    let root = CertificateDer::from_pem_slice(&pem).map_err(|e| BenchError::Tls(e.to_string()))?;
    Ok(Target {
        name: "cobaltcore",
        address,
        tls: trust([root])?,
        token: value("token:")?.into(),
        tasks: vec![pid],
    })
}

/// CPU time of processes, or of threads of this one, so far; user and system.
pub(crate) fn cpu(tasks: &[u32]) -> Duration {
    let ticks: u64 = tasks.iter().filter_map(|id| ticks(*id)).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn ticks(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"))
        .or_else(|_| std::fs::read_to_string(format!("/proc/{id}/stat")))
        .ok()?;
    // The name in brackets may contain anything; the numbers follow its end.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory of processes in MiB.
pub(crate) fn memory(pids: &[u32]) -> f64 {
    let kib = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    pids.iter().filter_map(kib).sum::<f64>() / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_its_threads_use_time() {
        assert!(memory(&[std::process::id()]) > 0.1);
        let me = [rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()];
        let before = cpu(&me);
        let mut sum = 0u64;
        while cpu(&me) == before {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        assert!(cpu(&me) > before, "{sum}");
    }

    #[test]
    fn a_kubeconfig_without_a_token_is_refused_by_name() {
        let error = read_kubeconfig("clusters:\n- cluster:\n    server: https://127.0.0.1:1\n", 1)
            .err()
            .map(|e| e.to_string());
        assert_eq!(
            error.as_deref(),
            Some("the kubeconfig has no certificate-authority-data:")
        );
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sleep");
        command.arg("600");
        let process = Process::start("sleep", command, &dir.path().join("log")).expect("a process");
        let pid = process.pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
