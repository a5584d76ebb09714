// SPDX-License-Identifier: Apache-2.0
//! A cluster of one's own with the operator running in it. Nodes are given, everything else
//! comes from the operator over the real API.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each suite uses its part; a test that unwraps says where it failed"
)]

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_operator::{Clock, Config, Error, Surroundings};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Nothing is served to the outside and there are agents in one namespace.
pub(crate) fn config() -> Config {
    Config {
        health_probe_bind_address: "0".into(),
        agent_namespaces: vec!["agents".into()],
        ..Config::default()
    }
}

/// An API server with our definitions.
pub(crate) async fn cluster() -> TestServer {
    let server = TestServer::start().await;
    install(&server).await;
    server
}

/// Installs our definitions and the namespaces the operator works in.
pub(crate) async fn install(server: &TestServer) {
    let definitions = cobaltcore_api::crds_yaml(None);
    server.apply_yaml(&definitions).await.unwrap();
    for namespace in ["agents", "monsoon3"] {
        let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        server.apply_yaml(&text).await.unwrap();
    }
}

/// Gives the operator's service account what its manifests give it.
pub(crate) async fn apply_manifests(server: &TestServer) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../deploy");
    for file in [
        "namespace.yaml",
        "hypervisor-operator/service-account.yaml",
        "hypervisor-operator/rbac.yaml",
        "hypervisor-operator/namespaced-rbac.yaml",
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        server.apply_yaml(&text).await.unwrap();
    }
}

/// An operator at work.
pub(crate) struct Operator {
    pub(crate) telemetry: Telemetry,
    pub(crate) health: Health,
    pub(crate) clock: Clock,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
}

impl Operator {
    pub(crate) fn start(client: kube::Client, config: Config) -> Self {
        let component = Component {
            name: "hypervisor-operator",
            version: "0",
            commit: "none",
        };
        let surroundings = Surroundings {
            client,
            telemetry: Telemetry::new(&component),
            health: Health::new(),
            shutdown: Shutdown::new(Duration::from_secs(10)),
            clock: Clock::new(),
            openstack: None,
        };
        let Surroundings {
            telemetry,
            health,
            shutdown,
            clock,
            ..
        } = surroundings.clone();
        Self {
            task: tokio::spawn(cobaltcore_operator::run(config, surroundings)),
            telemetry,
            health,
            clock,
            shutdown,
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.begin("the test is over");
        self.task.await.unwrap().unwrap();
    }
}

/// Waits for something to come true. The limit only keeps a failing test from hanging.
pub(crate) async fn until<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    for _ in 0..2400 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited in vain: {what}");
}

/// A healthy node of a hypervisor in zone `qa-de-1a`, with its lifecycle managed.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "nova.openstack.cloud.sap/virt-driver": "kvm",
                "cobaltcore.cloud.sap/node-hypervisor-lifecycle": "",
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": "qa-de-1a",
                "topology.kubernetes.io/region": "qa-de-1",
                "worker.gardener.cloud/pool": "kvm",
                "kubernetes.metal.cloud.sap/bb": "bb1",
            },
            "annotations": {"nova.openstack.cloud.sap/aggregates": "prod"},
        },
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// Creates a node together with its status.
pub(crate) async fn create_node(client: &kube::Client, node: &Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let object: Node = serde_json::from_value(node.clone()).unwrap();
    let name = object.metadata.name.clone().unwrap();
    nodes.create(&PostParams::default(), &object).await.unwrap();
    node_status(client, &name, &node["status"]).await;
}

/// Changes the status of a node as the kubelet does.
pub(crate) async fn node_status(client: &kube::Client, name: &str, status: &Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"status": status}));
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Changes an object as a person would, under a name of one's own.
pub(crate) async fn edit<K>(api: &Api<K>, name: &str, patch: &Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = PatchParams {
        field_manager: Some("somebody".into()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
}

/// Writes conditions and fields of a Hypervisor's status as another component would.
pub(crate) async fn say(client: &kube::Client, name: &str, manager: &str, status: Value) {
    let mut status = status;
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        if condition.get("message").is_none() {
            condition["message"] = json!("");
        }
    }
    let apply = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name}, "status": status});
    hypervisors(client)
        .patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&apply))
        .await
        .unwrap();
}

pub(crate) fn hypervisors(client: &kube::Client) -> Api<Hypervisor> {
    Api::all(client.clone())
}

/// A condition of a Hypervisor as `status/reason/message`, empty if it is not there.
pub(crate) fn condition(hypervisor: &Hypervisor, type_: &str) -> String {
    let conditions = hypervisor.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == type_)
        .map(|c| format!("{}/{}/{}", c.status, c.reason, c.message))
        .collect()
}

/// Waits until a condition of a Hypervisor begins with `wanted`.
pub(crate) async fn until_condition(
    client: &kube::Client,
    name: &str,
    type_: &str,
    wanted: &str,
) -> Hypervisor {
    until(&format!("{type_} {wanted} on {name}"), || async {
        let hypervisor = hypervisors(client).get_opt(name).await.unwrap()?;
        let found = condition(&hypervisor, type_);
        (found.starts_with(wanted) && (!wanted.is_empty() || found.is_empty())).then_some(hypervisor)
    })
    .await
}
