// SPDX-License-Identifier: Apache-2.0
//! The agent's process on an emulated host: everything it says about a host, with nothing but this program, and an end
//! that leaves nothing behind.
#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cobaltcore_api::{Hypervisor, HypervisorSpec};
use cobaltcore_apiserver::{Config, Durability, Server, User};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// Longer than anything here takes; what it waits for is what matters.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    home: tempfile::TempDir,
    server: Server,
    client: kube::Client,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(Config {
            data_dir: Some(home.path().join("kube")),
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(home.path().join("kubeconfig")),
            durability: Durability::Relaxed,
            ..Config::default()
        })
        .await
        .unwrap();
        for crd in cobaltcore_api::crds() {
            server.apply(&serde_json::to_value(crd).unwrap()).await.unwrap();
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monsoon3"}});
        server.apply(&namespace).await.unwrap();
        let client = kube::Client::new(server.client_as(User::admin()), "default");
        Self { home, server, client }
    }

    fn agent(&self, emulate: &str) -> Child {
        std::fs::create_dir_all(self.home.path().join("tmp")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_cobaltcore"))
            .args(["node-agent", "--node-name", "node1", emulate])
            .args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"])
            .arg("--kubeconfig")
            .arg(self.home.path().join("kubeconfig"))
            .env("TMPDIR", self.home.path().join("tmp"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn until(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let found: Value = self.client.request(request).await.unwrap_or_default();
            if wanted(&found) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "not {what}: {found:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn condition(object: &Value, type_: &str) -> String {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all
        .find(|condition| condition["type"] == type_)
        .cloned()
        .unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or("none").to_owned();
    format!("{}/{}", text("status"), text("reason"))
}

/// Asks a process to end and returns its exit code.
fn end(mut agent: Child) -> Option<i32> {
    let pid = rustix::process::Pid::from_child(&agent);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    agent.wait().unwrap().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_host_is_reported_like_a_real_one() {
    let world = World::new().await;
    let hypervisors: Api<Hypervisor> = Api::all(world.client.clone());
    let object = Hypervisor::new("node1", HypervisorSpec::default());
    hypervisors.create(&PostParams::default(), &object).await.unwrap();
    let agent = world.agent("--emulate");
    let object = world
        .until("/apis/kvm.cloud.sap/v1/hypervisors/node1", "complete", |object| {
            [
                ("LibVirtConnection", "True/Connected"),
                ("libvirtd.service", "True/Running"),
                ("openvswitch-switch.service", "True/Running"),
                ("EvacuationReady", "True/Armed"),
            ]
            .into_iter()
            .all(|(type_, wanted)| condition(object, type_) == wanted)
                && object["status"]["cells"][1]["allocation"]["cpu"] == "4"
                && object["status"]["operatingSystem"]["version"] == "1877.5"
        })
        .await;
    let status = &object["status"];
    assert_eq!(
        status["capacity"],
        json!({"cpu": "256", "memory": "4227289164Ki"})
    );
    assert_eq!(
        status["cells"][1]["allocation"],
        json!({"cpu": "4", "memory": "8Gi"})
    );
    assert_eq!(
        status["cells"][0]["allocation"],
        json!({"cpu": "0", "memory": "0"})
    );
    assert_eq!(status["numInstances"], 1);
    assert_eq!(end(agent), Some(0));
    let left = std::fs::read_dir(world.home.path().join("tmp")).unwrap().count();
    assert_eq!(left, 0, "the emulated host is gone");
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_migration_is_recorded() {
    let world = World::new().await;
    let hypervisors: Api<Hypervisor> = Api::all(world.client.clone());
    let object = Hypervisor::new("node1", HypervisorSpec::default());
    hypervisors.create(&PostParams::default(), &object).await.unwrap();
    let scene = world.home.path().join("scene.yaml");
    std::fs::write(&scene, "migrateEvery: 2s\n").unwrap();
    let agent = world.agent(&format!("--emulate={}", scene.display()));
    let path = "/apis/kvm.cloud.sap/v1alpha1/namespaces/monsoon3/migrations";
    let list = world
        .until(path, "completed", |list| {
            list["items"][0]["status"]["type"] == "completed"
        })
        .await;
    let status = &list["items"][0]["status"];
    assert_eq!(status["origin"], "node1");
    assert_eq!(end(agent), Some(0));
    world.server.stop().await;
}
