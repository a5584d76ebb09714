// SPDX-License-Identifier: Apache-2.0
//! A cluster, a cloud and the operator between them.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use cobaltcore_api::{Eviction, Hypervisor};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_kit::config::HumanDuration;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use cobaltcore_operator::config::HaMode;
use cobaltcore_operator::{Clock, Config, Error, Surroundings};
use cobaltcore_sim::cloud::Cloud;
use cobaltcore_sim::world::{ADMIN_PASSWORD, World};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::world::install;

pub(crate) const ZONE: &str = "qa-de-1a";

/// Nobody serves HA here, and failed tests follow each other at once.
pub(crate) fn config() -> Config {
    Config {
        health_probe_bind_address: "0".into(),
        agent_namespaces: vec!["agents".into()],
        ha_mode: HaMode::Off,
        onboarding_retry_interval: HumanDuration(Duration::from_millis(100)),
        ..Config::default()
    }
}

/// The session of an administrator of the simulated cloud.
pub(crate) fn session(auth_url: &str) -> Session {
    let variables = BTreeMap::from([
        ("OS_AUTH_URL", auth_url),
        ("OS_USERNAME", "admin"),
        ("OS_PASSWORD", ADMIN_PASSWORD),
        ("OS_PROJECT_NAME", "admin"),
        ("OS_USER_DOMAIN_NAME", "Default"),
        ("OS_PROJECT_DOMAIN_NAME", "Default"),
        ("OS_REGION_NAME", "RegionOne"),
    ]);
    let lookup = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let cloud = CloudConfig::from_variables(lookup).unwrap();
    Session::new(cloud, Settings::default()).unwrap()
}

/// An operator at work.
pub(crate) struct Operator {
    pub(crate) health: Health,
    pub(crate) telemetry: Telemetry,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), Error>>,
}

impl Operator {
    pub(crate) fn start(client: kube::Client, config: Config, openstack: Session) -> Self {
        let component = Component {
            name: "hypervisor-operator",
            version: "0",
            commit: "none",
        };
        let shutdown = Shutdown::new(Duration::from_secs(10));
        let (health, telemetry) = (Health::new(), Telemetry::new(&component));
        let surroundings = Surroundings {
            client,
            telemetry: telemetry.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
            clock: Clock::new(),
            openstack: Some(openstack),
        };
        Self {
            health,
            telemetry,
            task: tokio::spawn(cobaltcore_operator::run(config, surroundings)),
            shutdown,
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.begin("the test is over");
        self.task.await.unwrap().unwrap();
    }
}

/// Everything a scenario plays in.
pub(crate) struct Scene {
    pub(crate) server: TestServer,
    pub(crate) client: kube::Client,
    pub(crate) cloud: Cloud,
    pub(crate) operator: Operator,
}

impl Scene {
    pub(crate) async fn start(world: World) -> Self {
        Self::start_with(world, config()).await
    }

    pub(crate) async fn start_with(world: World, config: Config) -> Self {
        let server = TestServer::start().await;
        install(&server).await;
        let operator = server.client();
        Self::start_in(server, operator, Cloud::start(world).await.unwrap(), config)
    }

    /// In a cluster and a cloud that are there; `operator` is how the operator may use the cluster.
    pub(crate) fn start_in(server: TestServer, operator: kube::Client, cloud: Cloud, config: Config) -> Self {
        Self {
            operator: Operator::start(operator, config, session(&cloud.auth_url())),
            client: server.client(),
            server,
            cloud,
        }
    }

    /// Ends the operator and starts another one.
    pub(crate) async fn restart(self, config: Config) -> Self {
        self.operator.stop().await;
        let client = self.client.clone();
        Self::start_in(self.server, client, self.cloud, config)
    }

    pub(crate) fn world(&self) -> &World {
        self.cloud.world()
    }

    pub(crate) fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    pub(crate) fn evictions(&self) -> Api<Eviction> {
        Api::all(self.client.clone())
    }

    /// A Hypervisor that is to come in without a test.
    pub(crate) async fn add(&self, name: &str, spec: Value) {
        let mut whole = json!({
            "lifecycleEnabled": true, "skipTests": true, "highAvailability": false,
            "aggregates": ["prod", ZONE],
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let object = json!({
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONE,
            }},
            "spec": whole,
        });
        let object: Hypervisor = serde_json::from_value(object).unwrap();
        self.hypervisors()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// Hosts that are in production.
    pub(crate) async fn add_active(&self, names: &[&str]) {
        for name in names {
            self.add(name, json!({})).await;
        }
        for name in names {
            self.until(name, "Onboarding", "False/Succeeded").await;
            self.until(name, "HypervisorDisabled", "False/Succeeded").await;
        }
    }

    pub(crate) async fn edit(&self, name: &str, patch: Value) {
        let params = PatchParams {
            field_manager: Some("somebody".into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        self.hypervisors().patch(name, &params, &patch).await.unwrap();
    }

    /// Says something on a Hypervisor as another component would.
    pub(crate) async fn say(&self, name: &str, type_: &str, status: &str, reason: &str) {
        let apply = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name},
            "status": {"conditions": [{
                "type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        let params = PatchParams::apply("somebody-else").force();
        self.hypervisors()
            .patch_status(name, &params, &Patch::Apply(&apply))
            .await
            .unwrap();
    }

    /// Waits until somebody was told something with this reason.
    pub(crate) async fn until_told(&self, reason: &str) {
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(self.client.clone());
        until(&format!("an event {reason}"), || async {
            let all = events.list(&ListParams::default()).await.unwrap();
            all.items
                .iter()
                .any(|event| event.reason.as_deref() == Some(reason))
        })
        .await;
    }

    /// Waits until a condition of a Hypervisor begins with `wanted`.
    pub(crate) async fn until(&self, name: &str, type_: &str, wanted: &str) -> Hypervisor {
        let mut last = String::new();
        for _ in 0..6000 {
            // The operator may be about to make it.
            if let Some(object) = self.hypervisors().get_opt(name).await.unwrap() {
                last = condition(
                    object.status.as_ref().map_or(&[], |status| &status.conditions),
                    type_,
                );
                if last.starts_with(wanted) && (!wanted.is_empty() || last.is_empty()) {
                    return object;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let object = self.hypervisors().get(name).await.unwrap();
        panic!(
            "{name} never said {type_} {wanted}; it says {last}: {:#?}",
            object.status
        );
    }

    /// Waits until a condition of an Eviction begins with `wanted`.
    pub(crate) async fn until_eviction(&self, name: &str, type_: &str, wanted: &str) -> Eviction {
        let mut last = None;
        for _ in 0..6000 {
            last = self.evictions().get_opt(name).await.unwrap();
            if let Some(object) = &last {
                let conditions = object
                    .status
                    .as_ref()
                    .map_or(&[][..], |status| &status.conditions);
                if condition(conditions, type_).starts_with(wanted) {
                    return object.clone();
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "Eviction {name} never said {type_} {wanted}: {:#?}",
            last.and_then(|one| one.status)
        );
    }

    /// Requests to Nova's services, as bodies.
    pub(crate) fn service_updates(&self) -> Vec<Value> {
        let calls = self
            .cloud
            .calls()
            .latest(|call| call.method == "PUT" && call.path.contains("/os-services/"));
        calls
            .iter()
            .map(|call| serde_json::from_str(&call.body).unwrap())
            .collect()
    }
}

/// A condition as `status/reason/message`, empty if it is not there.
pub(crate) fn condition(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    conditions
        .iter()
        .filter(|condition| condition.type_ == type_)
        .map(|c| format!("{}/{}/{}", c.status, c.reason, c.message))
        .collect()
}

/// Waits for something to come true. The limit only keeps a failing test from hanging.
pub(crate) async fn until<F, Fut>(what: &str, mut look: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    for _ in 0..6000 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited in vain: {what}");
}

/// The names of servers' hosts, by server.
pub(crate) fn places(world: &World) -> BTreeMap<String, String> {
    world.read(|state| {
        let servers = state.servers.values();
        servers
            .map(|server| {
                let host = server.host.as_ref().map(ToString::to_string);
                (server.id.to_string(), host.unwrap_or_default())
            })
            .collect()
    })
}

/// The aggregates a host is in.
pub(crate) fn aggregates_of(world: &World, host: &str) -> Vec<String> {
    world.read(|state| {
        let all = state.aggregates.values().filter(|aggregate| aggregate.has(host));
        let mut names: Vec<String> = all.map(|aggregate| aggregate.name.clone()).collect();
        names.sort();
        names
    })
}
