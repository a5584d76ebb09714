// SPDX-License-Identifier: Apache-2.0
//! An embedded API with a small fleet in it, people with different rights, and a console.

use std::collections::HashMap;
use std::time::Duration;

use cobaltcore_apiserver::Config as ServerConfig;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_console::{Config, Console};
use serde_json::{Value, json};

/// The code that stands for the administrator's token.
pub(crate) const CODE: &str = "let-me-in";

pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) console: Console,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default()).await
    }

    /// With a console that is told more.
    pub(crate) async fn start_with(config: Config) -> Self {
        choose_crypto();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let server = TestServer::with(ServerConfig {
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(file.clone()),
            ..ServerConfig::default()
        })
        .await;
        for crd in cobaltcore_api::crds() {
            server
                .server()
                .apply(&serde_json::to_value(crd).unwrap())
                .await
                .unwrap();
        }
        let kubeconfig = kube::config::Kubeconfig::read_from(&file).unwrap();
        let kube =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
                .await
                .unwrap();
        let token = token(&server, "boss", Some("cluster-admin")).await;
        let config = Config {
            codes: HashMap::from([(CODE.to_owned(), token)]),
            ..config
        };
        let console = Console::start(config, &kube).await.unwrap();
        Self {
            server,
            console,
            _folder: folder,
        }
    }

    /// A host with a status.
    pub(crate) async fn host(&self, name: &str, zone: &str, status: Value) {
        let path = "/apis/kvm.cloud.sap/v1/hypervisors";
        let object = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone, "kubernetes.metal.cloud.sap/bb": "bb1"}},
            "spec": {},
        });
        let admin = self.server.admin();
        let made = admin.post(path, &object).await;
        assert!(made.code < 300, "{}", made.message());
        self.status(name, status).await;
    }

    /// A new status for a host.
    pub(crate) async fn status(&self, name: &str, status: Value) {
        let path = format!("/apis/kvm.cloud.sap/v1/hypervisors/{name}/status");
        let done = self.server.admin().merge(&path, &json!({"status": status})).await;
        assert!(done.code < 300, "{}", done.message());
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.server.admin().get(path).await.body
    }
}

/// Once per process; who comes second finds it chosen.
pub(crate) fn choose_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A bearer token of a service account, bound to a role everywhere.
pub(crate) async fn token(server: &TestServer, name: &str, role: Option<&str>) -> String {
    let admin = server.admin();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let made = admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await;
    assert!(made.code < 300, "{}", made.message());
    if let Some(role) = role {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
        });
        let made = admin
            .post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
            .await;
        assert!(made.code < 300, "{}", made.message());
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
    let answer = admin.post(&path, &request).await;
    answer.body["status"]["token"].as_str().unwrap().to_owned()
}

/// A status as a healthy host has it.
pub(crate) fn active(guests: i64, memory: &str) -> Value {
    json!({
        "phase": "Active", "numInstances": guests,
        "capacity": {"cpu": "64", "memory": "512Gi"}, "effectiveCapacity": {"cpu": "128", "memory": "512Gi"},
        "allocation": {"cpu": (guests * 4).to_string(), "memory": memory},
        "operatingSystem": {"prettyVersion": "Garden Linux 1877.5", "kernelRelease": "6.12.40", "hardwareVendor": "Lenovo", "hardwareModel": "SR650"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    })
}

/// Asks again until `check` is content; the answer must come sooner or later.
pub(crate) async fn eventually<T, F: AsyncFnMut() -> Option<T>>(what: &str, mut check: F) -> T {
    for _ in 0..2400 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never seen: {what}");
}
