// SPDX-License-Identifier: Apache-2.0
//! A host with a bus, a Kubernetes API and an agent, and ways to wait for what the agent says.

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use cobaltcore_api::{Hypervisor, HypervisorSpec, crds_yaml};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_node_agent::{Args, Config, Error};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::bus::Bus;
use crate::services::Far;

pub(crate) const NODE: &str = "node1";
pub(crate) const NAMESPACE: &str = "monsoon3";
/// Longer than anything here takes; what it waits for is what matters.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
pub(crate) struct Cli {
    #[command(flatten)]
    args: Args,
}

pub(crate) struct Scene {
    pub(crate) bus: Bus,
    pub(crate) far: Far,
    pub(crate) server: TestServer,
    pub(crate) host: tempfile::TempDir,
}

impl Scene {
    /// A scene with a Hypervisor of this spec; `None` where there is no bus daemon.
    pub(crate) async fn new(spec: HypervisorSpec) -> Option<Self> {
        let server = TestServer::start().await;
        Self::with(server, spec).await
    }

    pub(crate) async fn with(server: TestServer, spec: HypervisorSpec) -> Option<Self> {
        let bus = Bus::start().await?;
        let far = Far::start(&bus.address()).await;
        server.apply_yaml(&crds_yaml(None)).await.unwrap();
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
        server.apply_yaml(&namespace).await.unwrap();
        let host = tempfile::tempdir().unwrap();
        let boot = host.path().join("proc/sys/kernel/random/boot_id");
        std::fs::create_dir_all(boot.parent().unwrap()).unwrap();
        std::fs::write(boot, "1b4e28ba-2fa1-11d2-883f-0016d3cca427\n").unwrap();
        let scene = Self {
            bus,
            far,
            server,
            host,
        };
        let object = Hypervisor::new(NODE, spec);
        scene
            .hypervisors()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        Some(scene)
    }

    pub(crate) fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.server.client())
    }

    pub(crate) fn pki(&self) -> std::path::PathBuf {
        self.host.path().join("pki")
    }

    pub(crate) fn config(&self, flags: &[&str]) -> Config {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let (root, bus) = (path(self.host.path()), self.bus.address());
        let (state, pki) = (path(&self.host.path().join("state")), path(&self.pki()));
        let fixed = [
            "agent",
            "--node-name",
            NODE,
            "--node-label",
            NODE,
            "--namespace",
            NAMESPACE,
            "--libvirt-uri",
            "qemu+unix:///system?socket=/nonexistent/libvirt",
            "--metrics-bind-address",
            "0",
            "--health-probe-bind-address",
            "0",
            "--host-root",
            &root,
            "--system-bus",
            &bus,
            "--state-dir",
            &state,
            "--pki-path",
            &pki,
            "--watch-units",
            "libvirtd.service,openvswitch-switch.service",
        ];
        Config::new(Cli::parse_from(fixed.iter().chain(flags)).args).unwrap()
    }

    pub(crate) fn agent(&self, flags: &[&str]) -> Agent {
        Agent::start(self.config(flags), self.server.client())
    }

    pub(crate) async fn status(&self) -> Value {
        let object = self.hypervisors().get(NODE).await.unwrap();
        serde_json::to_value(object.status).unwrap()
    }

    /// Waits until a condition has this status and reason, and returns its message.
    pub(crate) async fn until(&self, type_: &str, wanted: &str) -> String {
        eventually(&format!("{type_} is {wanted}"), async || {
            let status = self.status().await;
            let condition = condition(&status, type_);
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let found = format!("{}/{}", text("status"), text("reason"));
            (found == wanted).then(|| text("message")).ok_or(status)
        })
        .await
    }

    /// Waits for an event about the Hypervisor, such as `Normal UpdateStarted`.
    pub(crate) async fn until_told(&self, type_and_reason: &str) {
        crate::told::until_told(&self.server, NODE, type_and_reason).await;
    }

    pub(crate) async fn change_spec(&self, spec: Value) {
        let patch = json!({ "spec": spec });
        self.hypervisors()
            .patch(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

pub(crate) fn condition(status: &Value, type_: &str) -> Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == type_)
        .cloned()
        .unwrap_or_default()
}

/// Waits until `look` finds something; what it saw instead is shown when it never does.
pub(crate) async fn eventually<T, E: std::fmt::Debug>(what: &str, look: impl AsyncFn() -> Result<T, E>) -> T {
    let begin = tokio::time::Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(begin.elapsed() < PATIENCE, "not true: {what}; seen: {seen:#?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) struct Agent {
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
}

impl Agent {
    pub(crate) fn start(config: Config, client: kube::Client) -> Self {
        let shutdown = Shutdown::new(Duration::from_secs(60));
        let task = tokio::spawn(cobaltcore_node_agent::run(config, client, shutdown.clone()));
        Self { shutdown, task }
    }

    /// Asks the agent to stop, as SIGTERM does.
    pub(crate) fn terminate(&self) {
        self.shutdown.begin("the test says so");
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) async fn stop(self) {
        assert!(
            !self.has_ended() || self.shutdown.has_begun(),
            "the agent ended by itself"
        );
        self.terminate();
        self.task.await.unwrap().unwrap();
    }
}
