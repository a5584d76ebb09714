// SPDX-License-Identifier: Apache-2.0
//! An agent as the binary starts it, against an embedded Kubernetes API, and ways to wait for what it says.
#![allow(dead_code)]

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use cobaltcore_api::{Hypervisor, HypervisorSpec, Migration, crds_yaml};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_node_agent::{Args, Config, Error};
use kube::api::{Api, PostParams};
use serde_json::Value;
use tokio::task::JoinHandle;

/// Longer than anything here takes; what it waits for is what matters.
const PATIENCE: Duration = Duration::from_mins(2);
pub(crate) const NAMESPACE: &str = "monsoon3";

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// The configuration of an agent on `node` that talks to `uri`, with further flags.
pub(crate) fn config(node: &str, uri: &str, flags: &[&str]) -> Config {
    let fixed = [
        "agent",
        "--node-name",
        node,
        "--node-label",
        node,
        "--namespace",
        NAMESPACE,
        "--libvirt-uri",
        uri,
        "--metrics-bind-address",
        "0",
    ];
    let health = ["--health-probe-bind-address", "0"];
    let health = if flags.contains(&health[0]) {
        &[]
    } else {
        &health[..]
    };
    // Parts that look at the host itself must not find the machine that runs the test.
    let nowhere = [
        "--host-root",
        "/nonexistent",
        "--system-bus",
        "unix:path=/nonexistent",
    ];
    Config::new(Cli::parse_from(fixed.iter().chain(&nowhere).chain(health).chain(flags)).args).unwrap()
}

pub(crate) fn over_socket(socket: &Path) -> String {
    format!("qemu+unix:///system?socket={}", socket.display())
}

/// A running agent.
pub(crate) struct Agent {
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
}

impl Agent {
    pub(crate) fn start(config: Config, server: &TestServer) -> Self {
        Self::start_as(config, server.client())
    }

    pub(crate) fn start_as(config: Config, client: kube::Client) -> Self {
        let shutdown = Shutdown::new(Duration::from_mins(1));
        let task = tokio::spawn(cobaltcore_node_agent::run(config, client, shutdown.clone()));
        Self { shutdown, task }
    }

    /// An agent that ended by itself is a failure, whatever it said before.
    pub(crate) fn assert_alive(&self) {
        assert!(!self.task.is_finished(), "the agent ended by itself");
    }

    pub(crate) async fn stop(self) {
        self.assert_alive();
        self.shutdown.begin("the test is over");
        self.task.await.unwrap().unwrap();
    }
}

/// An API with the definitions and the namespace of migrations.
pub(crate) async fn server() -> TestServer {
    let server = TestServer::start().await;
    prepare(&server).await;
    server
}

/// Brings the definitions and the namespace of migrations to an API.
pub(crate) async fn prepare(server: &TestServer) {
    server.apply_yaml(&crds_yaml(None)).await.unwrap();
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    server.apply_yaml(&namespace).await.unwrap();
}

pub(crate) fn hypervisors(server: &TestServer) -> Api<Hypervisor> {
    Api::all(server.client())
}

pub(crate) fn migrations(server: &TestServer) -> Api<Migration> {
    Api::namespaced(server.client(), NAMESPACE)
}

pub(crate) async fn create(server: &TestServer, node: &str) {
    let object = Hypervisor::new(node, HypervisorSpec::default());
    hypervisors(server)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

/// The status of a Hypervisor as JSON; null when there is none.
pub(crate) async fn status(server: &TestServer, node: &str) -> Value {
    let object = hypervisors(server).get_opt(node).await.unwrap();
    serde_json::to_value(object.and_then(|object| object.status)).unwrap()
}

/// Waits until the status is as wanted and returns it.
pub(crate) async fn until(
    server: &TestServer,
    node: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let begin = tokio::time::Instant::now();
    loop {
        let status = status(server, node).await;
        if wanted(&status) {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "not {what}: {status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a Migration is as wanted and returns its status.
pub(crate) async fn until_migration(
    server: &TestServer,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let begin = tokio::time::Instant::now();
    loop {
        let object = migrations(server).get_opt(name).await.unwrap();
        let status = serde_json::to_value(object.and_then(|object| object.status)).unwrap();
        if wanted(&status) {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "not {what}: {status:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The condition of a type, or null.
pub(crate) fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut of_type = conditions.filter(|condition| condition["type"] == type_);
    of_type.next().cloned().unwrap_or_default()
}

/// Status and reason of the connection to libvirt, such as `True/Connected`.
pub(crate) fn connection(status: &Value) -> String {
    let condition = condition(status, "LibVirtConnection");
    let text = |field: &str| condition[field].as_str().unwrap_or("none").to_owned();
    format!("{}/{}", text("status"), text("reason"))
}

pub(crate) fn is_connected(status: &Value) -> bool {
    connection(status) == "True/Connected"
}

/// A guest of the status by name, or null.
pub(crate) fn instance(status: &Value, name: &str) -> Value {
    let mut all = status["instances"].as_array().into_iter().flatten();
    all.find(|instance| instance["name"] == name)
        .cloned()
        .unwrap_or_default()
}

/// Hears warnings and errors that are logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Heard(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl Heard {
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl tracing::Subscriber for Heard {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = Text(format!("{} ", event.metadata().target()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
