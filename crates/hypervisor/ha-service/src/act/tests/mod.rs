// SPDX-License-Identifier: Apache-2.0
//! Every effect over the real wires: a simulated Nova and simulated BMCs over HTTP, the embedded
//! Kubernetes API, and what each of them can do wrong.

mod devices;
mod lists;
mod objects;
mod servers;
mod terms;

use std::collections::BTreeMap;

use cobaltcore_api::names::{HostName, ServerId};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_engine::{
    Action, ActionId, Answer, Effect, Epoch, IncidentId, Input, Mono, ReplicaId, Trouble,
};
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use cobaltcore_sim::bmc::{Bmcs, PASSWORD, USER};
use cobaltcore_sim::cloud::Cloud as Far;
use cobaltcore_sim::world::{ADMIN_PASSWORD, World};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Executor;
use crate::clock::Clock;
use crate::config::Config;
use crate::deps::Deps;
use crate::directory::Directory;
use crate::maintenance::LocalMaintenance;
use crate::probe::Investigator;
use crate::settings::InForce;

pub(super) const ONE: &str = "node001-bb1";
pub(super) const TWO: &str = "node002-bb1";

/// A cloud, its hosts and their BMCs, perhaps a cluster, and an executor between them.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) far: Far,
    pub(super) bmcs: Bmcs,
    pub(super) executor: Executor,
    pub(super) deps: Deps,
    pub(super) api: Option<TestServer>,
    _folder: tempfile::TempDir,
    _inputs: mpsc::Receiver<Input>,
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with("", false).await
    }

    pub(super) async fn with(options: &str, cluster: bool) -> Self {
        let world = World::builder().hosts(3).vms_per_host(2).manual_clock().build();
        Self::of(world, options, cluster).await
    }

    pub(super) async fn of(world: World, options: &str, cluster: bool) -> Self {
        let far = Far::start(world.clone()).await.unwrap();
        let bmcs = Bmcs::start(&world).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("bmc.yaml");
        std::fs::write(&secret, format!("username: {USER}\npassword: {PASSWORD}\n")).unwrap();
        let hosts: Vec<String> =
            world.read(|state| state.hosts.keys().map(|host| host.as_str().to_owned()).collect());
        let devices: String = hosts
            .iter()
            .map(|host| format!("    {host}: {{bmc: '{}'}}\n", bmcs.url(host).unwrap()))
            .collect();
        let text = format!(
            "evidence: {{probe: {{tcp_ports: [9], timeout: 100ms}}}}\nleader: {{enabled: false}}\nkubernetes: {{enabled: {cluster}{options}}}\nfencing:\n  levels: [[{{driver: redfish, url: '{{bmc}}', timeout: 5s, credentials_file: {}}}]]\n  hosts:\n{devices}",
            secret.display()
        );
        let config = Config::parse("test.yaml", &text).unwrap();
        let api = if cluster {
            Some(install(&hosts).await)
        } else {
            None
        };
        let (inputs, received) = mpsc::channel(64);
        let deps = deps(&world, &far, config, api.as_ref(), folder.path(), inputs);
        Self {
            executor: Executor::new(deps.clone()).unwrap(),
            world,
            far,
            bmcs,
            deps,
            api,
            _folder: folder,
            _inputs: received,
        }
    }

    /// Carries an effect out as the engine would have it.
    pub(super) async fn act(&self, effect: Effect) -> Result<Answer, Trouble> {
        self.executor.run(&action(effect, Mono(u64::MAX))).await
    }

    pub(super) fn server_on(&self, host: &str) -> ServerId {
        let id = self.world.read(|state| {
            let on = |server: &&cobaltcore_sim::world::Server| {
                server.host.as_ref().is_some_and(|found| found.as_str() == host)
            };
            state.servers.values().find(on).map(|server| server.id)
        });
        ServerId::new(id.unwrap().to_string()).unwrap()
    }

    /// Switches the host off and tells Nova, as an incident does before it moves anything.
    pub(super) async fn fence(&self, host: &str) {
        self.world.power_off(host).unwrap();
        let effect = Effect::UpdateService {
            host: name(host),
            change: cobaltcore_ha_engine::ServiceChange::ForceDown,
        };
        self.act(effect).await.unwrap();
    }

    /// How often Nova was asked for something with this word in it.
    pub(super) fn asked(&self, word: &str) -> usize {
        self.far
            .calls()
            .writes()
            .iter()
            .filter(|call| call.body.contains(word))
            .count()
    }
}

pub(super) fn name(host: &str) -> HostName {
    HostName::new(host).unwrap()
}

pub(super) fn uuid(server: &ServerId) -> Uuid {
    server.as_str().parse().unwrap()
}

pub(super) fn incident(host: &str) -> IncidentId {
    IncidentId {
        epoch: Epoch(3),
        n: 1,
        host: name(host),
        opened_ms: None,
    }
}

pub(super) fn action(effect: Effect, not_after: Mono) -> Action {
    Action {
        id: ActionId {
            epoch: Epoch(3),
            n: 7,
        },
        incident: Some(incident(ONE)),
        not_after,
        effect,
    }
}

async fn install(hosts: &[String]) -> TestServer {
    let api = TestServer::start().await;
    api.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    for host in hosts {
        let text = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {host}}}\nspec: {{taints: [{{key: other, effect: NoSchedule}}]}}\n---\napiVersion: kvm.cloud.sap/v1\nkind: Hypervisor\nmetadata: {{name: {host}}}\nspec: {{lifecycleEnabled: true}}\n"
        );
        api.apply_yaml(&text).await.unwrap();
    }
    api
}

fn deps(
    world: &World,
    far: &Far,
    config: Config,
    api: Option<&TestServer>,
    folder: &std::path::Path,
    inputs: mpsc::Sender<Input>,
) -> Deps {
    let clock = Clock::new();
    let directory = Directory::default();
    let hosts: BTreeMap<String, String> = world.read(|state| {
        let machine = |host: &cobaltcore_sim::world::Host| host.node_uuid.to_string();
        state
            .hosts
            .iter()
            .map(|(name, host)| (name.as_str().to_owned(), machine(host)))
            .collect()
    });
    for (host, machine) in hosts {
        directory.change(&name(&host), |entry| {
            entry.nova_host = Some(host.clone());
            entry.in_kubernetes = api.is_some();
            entry.machine.system_uuid = Some(machine);
        });
    }
    let commands = crate::commands::Commands::default();
    let in_force = InForce::new(config);
    Deps {
        clock,
        openstack: Some(session(&far.auth_url())),
        kubernetes: api.map(TestServer::client),
        local_maintenance: LocalMaintenance::open(folder).unwrap(),
        investigator: Investigator {
            me: ReplicaId(0),
            clock,
            directory: directory.clone(),
            commands: commands.clone(),
            peers: crate::peers::Peers::default(),
            in_force: in_force.clone(),
            inputs,
        },
        commands,
        directory,
        leadership: crate::leadership::Leadership::default(),
        metrics: crate::metrics::Metrics::new(&Telemetry::new(&Component {
            name: "kvm-ha-service",
            version: "0",
            commit: "none",
        })),
        in_force,
        // Nobody is at home: what the monitors see is not known.
        brain: crate::brain::channels().0,
    }
}

fn session(auth_url: &str) -> Session {
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
    Session::new(CloudConfig::from_variables(lookup).unwrap(), Settings::default()).unwrap()
}

#[tokio::test]
async fn nothing_is_started_after_its_time() {
    let rig = Rig::with("", true).await;
    let server = rig.server_on(ONE);
    rig.fence(ONE).await;
    let before = rig.far.calls().writes().len();
    let late = Mono(rig.deps.clock.mono().0 - 1);
    for effect in [
        Effect::Evacuate {
            server: server.clone(),
            from: name(ONE),
            known: Vec::new(),
        },
        Effect::PowerOff {
            host: name(TWO),
            level: 0,
        },
        Effect::Claim {
            host: name(TWO),
            expected: cobaltcore_api::Maintenance::Off,
        },
        Effect::Start { server },
        Effect::UpdateService {
            host: name(TWO),
            change: cobaltcore_ha_engine::ServiceChange::Disable,
        },
    ] {
        let result = rig.executor.run(&action(effect.clone(), late)).await;
        assert_eq!(result.unwrap_err(), Trouble::NotStarted, "{effect:?}");
    }
    assert_eq!(rig.far.calls().writes().len(), before, "Nova heard nothing");
    assert_eq!(
        rig.world.read(|state| state.hosts[TWO].power),
        cobaltcore_sim::world::Power::On
    );
}

#[tokio::test]
async fn every_action_is_answered_exactly_once() {
    let rig = Rig::new().await;
    let (reply, mut replies) = mpsc::channel(8);
    rig.executor.start(
        action(Effect::ReadService { host: name(ONE) }, Mono(u64::MAX)),
        reply.clone(),
    );
    rig.executor.start(action(Effect::Resign, Mono(u64::MAX)), reply);
    for _ in 0..2 {
        let Some(Input::Outcome { result, .. }) = replies.recv().await else {
            panic!("an action was not answered");
        };
        assert!(result.is_ok(), "{result:?}");
    }
    assert!(replies.recv().await.is_none(), "and no more than that");
}

#[tokio::test]
async fn a_guest_that_runs_twice_is_paused_by_its_agent() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    let effect = Effect::PauseDomain {
        host: name(TWO),
        server: server.clone(),
    };
    rig.act(effect).await.unwrap();
    let waiting = rig.deps.commands.take(&name(TWO));
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].order, crate::commands::Order::PauseDomain(server));
}

#[tokio::test]
async fn agents_are_asked_for_their_lists_once_however_often_that_is_wanted() {
    let rig = Rig::new().await;
    for _ in 0..2 {
        let hosts = vec![name(ONE), name(TWO)];
        rig.act(Effect::ListGuests { hosts }).await.unwrap();
    }
    for host in [ONE, TWO] {
        let waiting = rig.deps.commands.take(&name(host));
        let orders: Vec<_> = waiting.into_iter().map(|waiting| waiting.order).collect();
        assert_eq!(orders, [crate::commands::Order::Resync], "{host}");
    }
}
