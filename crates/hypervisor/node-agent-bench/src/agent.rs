// SPDX-License-Identifier: Apache-2.0
//! The world around a measured agent: an embedded API that listens, a scripted host, and the agent's process, looked at
//! through /proc and ended by its id when its owner is dropped.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cobaltcore_api::{Hypervisor, HypervisorSpec};
use cobaltcore_apiserver::{Config, Server};
use kube::api::{Api, PostParams};

use crate::host::FarHost;
use crate::{BenchError, Options};

pub(crate) const NODE: &str = "bench";
/// Longest wait for a state, generous for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// An API that listens and has everything the agent expects.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) client: kube::Client,
    kubeconfig: PathBuf,
    server: Server,
}

impl World {
    pub(crate) async fn new() -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new()
            .prefix("cobaltcore-bench")
            .tempdir()
            .map_err(BenchError::io("create a temporary directory"))?;
        let kubeconfig = directory.path().join("kubeconfig");
        let config = Config {
            data_dir: Some(directory.path().join("kube")),
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(kubeconfig.clone()),
            durability: cobaltcore_apiserver::Durability::Relaxed,
            ..Config::default()
        };
        let server = Server::start(config).await?;
        let namespace =
            serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monsoon3"}});
        let crds = cobaltcore_api::crds();
        let objects = crds.iter().filter_map(|crd| serde_json::to_value(crd).ok());
        for object in objects.chain([namespace]) {
            server.apply(&object).await.map_err(|why| BenchError::Api {
                what: format!("installing {}", object["metadata"]["name"]),
                why,
            })?;
        }
        let service = server.client_as(cobaltcore_apiserver::User::admin());
        let client = kube::Client::new(service, "default");
        let world = Self {
            directory,
            client,
            kubeconfig,
            server,
        };
        let object = Hypervisor::new(NODE, HypervisorSpec::default());
        let create = world.hypervisors().create(&PostParams::default(), &object).await;
        create.map_err(BenchError::api("creating the Hypervisor"))?;
        Ok(world)
    }

    pub(crate) fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    /// Starts the agent and waits until it has reported so many guests.
    pub(crate) async fn start_agent(
        &self,
        options: &Options,
        far: &FarHost,
        guests: usize,
    ) -> Result<Agent, BenchError> {
        let log = self.directory.path().join("agent.log");
        let file =
            std::fs::File::create(&log).map_err(BenchError::io(format!("create {}", log.display())))?;
        let mut command = Command::new(&options.program);
        command
            .args([
                "--log",
                "warn",
                "node-agent",
                "--node-name",
                NODE,
                "--node-label",
                NODE,
            ])
            .args(["--namespace", "monsoon3", "--libvirt-readonly", "never"])
            .args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"])
            .args([
                "--host-root",
                "/nonexistent",
                "--system-bus",
                "unix:path=/nonexistent",
            ])
            .args(["--libvirt-uri", "qemu:///system"])
            .arg("--libvirt-socket")
            .arg(far.socket())
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command
            .spawn()
            .map_err(BenchError::io(format!("start {}", options.program.display())))?;
        let mut agent = Agent { child, log };
        let began = std::time::Instant::now();
        loop {
            agent.check()?;
            let object = self.hypervisors().get(NODE).await;
            let object = object.map_err(BenchError::api("reading the Hypervisor"))?;
            let status = object.status.unwrap_or_default();
            let connected = status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "LibVirtConnection" && condition.status == "True");
            let counted = status
                .allocation
                .get("cpu")
                .and_then(cobaltcore_api::Quantity::value);
            if connected && status.instances.len() == guests && counted == i128::try_from(guests * 2).ok() {
                return Ok(agent);
            }
            if began.elapsed() > PATIENCE {
                return Err(BenchError::Agent(
                    format!("did not report {guests} guests"),
                    agent.last_words(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

/// A running agent; it does not outlive this value.
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Seconds of user and system time since its start.
    pub(crate) cpu: f64,
    /// MiB resident, of which private.
    pub(crate) resident: f64,
    pub(crate) private: f64,
}

impl Agent {
    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(BenchError::Agent(format!("ended: {status}"), self.last_words())),
            _ => Ok(()),
        }
    }

    fn last_words(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        said.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
    }

    pub(crate) fn usage(&self) -> Result<Usage, BenchError> {
        let pid = self.child.id();
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).map_err(BenchError::io(format!("read {path}")))
        };
        let (status, stat) = (read("status")?, read("stat")?);
        let mib = |keys: &[&str]| {
            let lines = status
                .lines()
                .filter(|line| keys.iter().any(|key| line.starts_with(key)));
            let kib = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            kib.sum::<f64>() / 1024.0
        };
        // The name may hold spaces; everything after the last bracket is numbers.
        let numbers = stat.rsplit(')').next().unwrap_or_default();
        let ticks = numbers.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|text| text.parse::<f64>().ok()).sum();
        Ok(Usage {
            cpu: ticks / rustix::param::clock_ticks_per_second() as f64,
            resident: mib(&["VmRSS:"]),
            private: mib(&["RssAnon:"]),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
