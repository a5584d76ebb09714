// SPDX-License-Identifier: Apache-2.0
//! A server with a kind of the tests' own, and clients that reach it both ways.

use std::time::Duration;

use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Config, User};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a lamp should be.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[kube(
    group = "test.cobaltcore.dev",
    version = "v1",
    kind = "Lamp",
    namespaced,
    status = "LampStatus",
    shortname = "lp"
)]
#[kube(scale(spec_replicas_path = ".spec.bulbs", status_replicas_path = ".status.bulbs"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct LampSpec {
    /// Its colour.
    pub(crate) colour: String,
    /// How many bulbs it has.
    #[serde(default)]
    pub(crate) bulbs: i32,
}

/// What a lamp is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LampStatus {
    /// The colour it shines in.
    pub(crate) colour: Option<String>,
    /// How many bulbs shine.
    pub(crate) bulbs: Option<i32>,
    /// The generation of the spec that this follows.
    pub(crate) observed_generation: Option<i64>,
}

/// A server that listens, and whose files go with it.
pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) home: tempfile::TempDir,
}

/// How a server of the tests is configured; its state is in `home` when it should survive.
pub(crate) fn config(home: &tempfile::TempDir) -> Config {
    Config {
        listen: vec![([127, 0, 0, 1], 0).into()],
        port_given: true,
        kubeconfig: Some(home.path().join("kubeconfig")),
        ..Config::default()
    }
}

/// Starts a server in memory that serves lamps.
pub(crate) async fn world() -> World {
    let home = tempfile::tempdir().unwrap();
    let server = TestServer::with(config(&home)).await;
    let world = World { server, home };
    serve_lamps(&world.inside()).await;
    world
}

/// Registers the kind of the tests and waits until it is served.
pub(crate) async fn serve_lamps(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = Lamp::crd();
    definitions
        .patch(
            Lamp::crd_name(),
            &PatchParams::apply("tests"),
            &Patch::Apply(&crd),
        )
        .await
        .unwrap();
    await_condition(definitions, Lamp::crd_name(), conditions::is_crd_established())
        .await
        .unwrap();
}

/// A client over TLS, configured by the file the server wrote.
pub(crate) async fn over_tls(home: &tempfile::TempDir, change: impl FnOnce(&mut kube::Config)) -> Client {
    let kubeconfig = Kubeconfig::read_from(home.path().join("kubeconfig")).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    change(&mut config);
    Client::try_from(config).unwrap()
}

impl World {
    /// An administrator's client inside the process.
    pub(crate) fn inside(&self) -> Client {
        Client::new(self.server.server().client_as(User::admin()), "default")
    }

    /// Both ways in, each with a namespace of its own.
    pub(crate) async fn both_ways(&self) -> [(&'static str, Client); 2] {
        let ways = [
            ("inside", self.inside()),
            (
                "tls",
                over_tls(&self.home, |config| config.default_retry = false).await,
            ),
        ];
        for (name, client) in &ways {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some((*name).to_owned()),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            namespaces
                .create(&PostParams::default(), &namespace)
                .await
                .unwrap();
        }
        ways
    }
}

/// A ConfigMap with one entry.
pub(crate) fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("kept".to_owned(), "yes".to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("k".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

/// The value of the entry of [`map`].
pub(crate) fn entry_of(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("k").map(String::as_str)
}

/// The code, reason and message of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("the server should have refused, but: {other:?}"),
    }
}

/// Waits until `check` gives something; panics when it never does.
pub(crate) async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1_200 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} never came true")
}
