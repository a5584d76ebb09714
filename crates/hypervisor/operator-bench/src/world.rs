// SPDX-License-Identifier: Apache-2.0
//! A cluster and a cloud for one measurement, and nodes in it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cobaltcore_api::{Hypervisor, LifecyclePhase};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Config, Durability};
use cobaltcore_sim::{Cloud, World};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tempfile::TempDir;

use crate::Error;
use crate::process::Operator;

/// Nodes written at the same time while a fleet is made.
const WRITERS: usize = 8;

/// A cluster and a cloud.
pub(crate) struct Place {
    pub(crate) server: TestServer,
    pub(crate) client: kube::Client,
    pub(crate) cloud: Cloud,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: TempDir,
}

fn start(what: &'static str) -> impl Fn(String) -> Error {
    move |reason| Error::Start { what, reason }
}

pub(crate) fn kube(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let what = what.into();
    move |source| Error::Kube {
        what,
        source: Box::new(source),
    }
}

impl Place {
    pub(crate) async fn new(world: World) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(|e| start("a place for files")(e.to_string()))?;
        let kubeconfig = folder.path().join("kubeconfig");
        let server = TestServer::try_with(Config {
            data_dir: Some(folder.path().join("api")),
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(kubeconfig.clone()),
            durability: Durability::Relaxed,
            ..Config::default()
        })
        .await
        .map_err(|e| start("the embedded API")(e.to_string()))?;
        let definitions = cobaltcore_api::crds_yaml(None);
        server
            .apply_yaml(&definitions)
            .await
            .map_err(start("the definitions"))?;
        let cloud = Cloud::start(world)
            .await
            .map_err(|e| start("the simulated cloud")(e.to_string()))?;
        Ok(Self {
            client: server.client(),
            server,
            cloud,
            kubeconfig,
            folder,
        })
    }

    /// A Node for each host.
    pub(crate) async fn nodes(&self, hosts: &[String], zone: &str) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let all = futures::stream::iter(hosts.iter().cloned().map(|host| {
            let nodes = nodes.clone();
            async move {
                let node: Node = node(&host, zone);
                nodes
                    .create(&PostParams::default(), &node)
                    .await
                    .map_err(kube(format!("creating Node {host}")))?;
                let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
                nodes
                    .patch_status(&host, &PatchParams::default(), &Patch::Merge(ready))
                    .await
                    .map_err(kube(format!("writing the status of Node {host}")))
                    .map(drop)
            }
        }));
        let outcomes: Vec<Result<(), Error>> = all.buffer_unordered(WRITERS).collect().await;
        outcomes.into_iter().collect()
    }

    pub(crate) fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    /// Waits until so many hypervisors are active; the time it took.
    pub(crate) async fn all_active(
        &self,
        count: usize,
        operator: &Operator,
        limit: Duration,
    ) -> Result<Duration, Error> {
        let began = Instant::now();
        loop {
            let list = self
                .hypervisors()
                .list(&ListParams::default())
                .await
                .map_err(kube("listing hypervisors"))?;
            let active = list.items.iter().filter(|hypervisor| {
                hypervisor.status.as_ref().and_then(|status| status.phase) == Some(LifecyclePhase::Active)
            });
            let active = active.count();
            if active >= count {
                return Ok(began.elapsed());
            }
            if began.elapsed() > limit {
                return Err(Error::Late {
                    what: format!("{count} active hypervisors, {active} are"),
                    seconds: limit.as_secs(),
                    log: operator.log.display().to_string(),
                });
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

fn node(host: &str, zone: &str) -> Node {
    let labels = [
        ("nova.openstack.cloud.sap/virt-driver", "kvm"),
        ("cobaltcore.cloud.sap/node-hypervisor-lifecycle", ""),
        ("kubernetes.io/hostname", host),
        ("topology.kubernetes.io/zone", zone),
    ];
    let mut node = Node::default();
    node.metadata.name = Some(host.to_owned());
    node.metadata.labels = Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let aggregates = ("nova.openstack.cloud.sap/aggregates".to_owned(), String::new());
    node.metadata.annotations = Some([aggregates].into());
    node
}
