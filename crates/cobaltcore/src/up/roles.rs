// SPDX-License-Identifier: Apache-2.0
//! Starts every role the way production does, each with its own configuration; only what is on
//! the other side of their wires is simulated.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args as _, FromArgMatches as _};
use cobaltcore_console::Console;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::CloudConfig;
use cobaltcore_operator::config::HaMode;
use cobaltcore_sim::system::{Bus, Unit};
use cobaltcore_sim::world::{Host, HostName, Power};
use cobaltcore_sim::{System, World};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::Fleet;
use super::cluster::Cluster;
use super::ha::{Ha, Told};
use super::world::LONGEST_SOCKET;

/// Agents that failed are started again after this.
const AGAIN: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(5);
/// The link that a start prints works for as long as anybody leaves it running.
const SIGNED_IN_SECONDS: i64 = 365 * 24 * 3_600;

/// Runs a node agent and an HA agent on every host that has power and a network, until the end.
pub(super) fn agents(
    fleet: &Fleet,
    folder: &Path,
    client: &kube::Client,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinHandle<()>> {
    let Fleet { simulated, ha, .. } = fleet;
    let names: Vec<HostName> = simulated
        .world
        .read(|state| state.hosts.keys().cloned().collect());
    let mut agents = tokio::task::JoinSet::new();
    for name in names {
        let uri = simulated.hosts.uri(name.as_str());
        let agent = Agent {
            uri: uri.with_context(|| format!("{name} has no libvirt"))?,
            root: folder.join("hosts").join(name.as_str()),
            told: ha.told(),
            world: simulated.world.clone(),
            client: client.clone(),
            shutdown: shutdown.clone(),
            name,
        };
        agents.spawn(agent.live());
    }
    Ok(tokio::spawn(async move {
        while agents.join_next().await.is_some() {}
    }))
}

/// The agents of one host.
struct Agent {
    name: HostName,
    uri: String,
    root: PathBuf,
    told: Arc<Told>,
    world: World,
    client: kube::Client,
    shutdown: Shutdown,
}

impl Agent {
    /// Starts with its host, dies with it.
    async fn live(self) {
        let (end, changed) = (self.shutdown.token(), self.world.watch(&self.name));
        while !end.is_cancelled() {
            if let Some(boot) = self.boot()
                && let Err(error) = self.run(boot, &changed).await
            {
                tracing::warn!(host = %self.name, "the agents ended: {error:#}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            tokio::select! {
                () = end.cancelled() => {}
                () = changed.notified() => {}
            }
        }
    }

    /// The boot the host is in, while anybody can reach it.
    fn boot(&self) -> Option<Uuid> {
        let reachable = |host: &&Host| host.power == Power::On && !host.cut;
        self.world
            .read(|state| Some(state.hosts.get(&self.name).filter(reachable)?.boot_id))
    }

    async fn run(&self, boot: Uuid, changed: &Notify) -> anyhow::Result<()> {
        let host = self.world.read(|state| state.hosts.get(&self.name).cloned());
        let host = host.context("the host left the world")?;
        cobaltcore_sim::facts::write(&host, &self.root)?;
        let bus = self.system_bus(&host).await?;
        let own = Shutdown::new(GRACE);
        let config = self.config(bus.as_ref())?;
        let told = self.told.write_for(&self.name, &self.root)?;
        let node_agent = async {
            let ended = cobaltcore_node_agent::run(config, self.client.clone(), own.clone()).await;
            ended.context("the node agent cannot run")
        };
        let agents = async {
            let ha_agent = self.ha_agent(told, own.clone());
            tokio::try_join!(node_agent, ha_agent).map(|_| ())
        };
        let asked = async {
            self.shutdown.token().cancelled().await;
            own.begin("everything ends");
            std::future::pending::<()>().await;
        };
        let gone = async {
            while self.boot() == Some(boot) {
                changed.notified().await;
            }
        };
        let ended = tokio::select! {
            ended = agents => ended,
            // A host without power says no last word.
            () = gone => Ok(()),
            () = asked => Ok(()),
        };
        own.begin("the agents are gone");
        ended
    }

    /// The system services of the host; they end with it. Where the name of the socket would be too long there are none,
    /// and the agent says so.
    async fn system_bus(&self, host: &Host) -> anyhow::Result<Option<Bus>> {
        let socket = self.root.join("bus");
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Ok(None);
        }
        let system = System::default();
        system.describe(cobaltcore_sim::facts::description(host));
        for unit in ["libvirtd.service", "openvswitch-switch.service"] {
            system.set(unit, Unit::new("active", "running")).await?;
        }
        // Left behind by whoever was killed.
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", socket.display()));
            }
            _ => {}
        }
        Ok(Some(system.listen(&socket)?))
    }

    /// Runs the HA agent until the host is gone.
    async fn ha_agent(&self, config: PathBuf, shutdown: Shutdown) -> anyhow::Result<()> {
        let args = cobaltcore_ha_agent::Args {
            node_name: Some(self.name.to_string()),
            config,
            libvirt_uri: self.uri.clone(),
            libvirt_socket: None,
            host_root: self.root.clone(),
            // Nobody here announces a shutdown, and a thousand hosts are short of open files as it is.
            system_bus: Some("none".to_owned()),
        };
        let start = cobaltcore_ha_agent::Start::new(args)?;
        cobaltcore_ha_agent::run(start, shutdown)
            .await
            .context("the HA agent cannot run")
    }

    fn bus_address(&self, bus: Option<&Bus>) -> String {
        bus.map_or_else(
            || format!("unix:path={}", self.root.join("no-bus").display()),
            Bus::address,
        )
    }

    fn config(&self, bus: Option<&Bus>) -> anyhow::Result<cobaltcore_node_agent::Config> {
        let bus = self.bus_address(bus);
        let command = cobaltcore_node_agent::Args::augment_args(clap::Command::new("node-agent"));
        let given = [
            "node-agent".into(),
            format!("--node-name={}", self.name),
            format!("--namespace={}", super::accounts::AGENTS),
            format!("--libvirt-uri={}", self.uri),
            format!("--host-root={}", self.root.display()),
            format!("--state-dir={}", self.root.join("state").display()),
            format!("--system-bus={bus}"),
            "--metrics-bind-address=0".into(),
            "--health-probe-bind-address=0".into(),
        ];
        let matches = command.try_get_matches_from(given)?;
        let args = cobaltcore_node_agent::Args::from_arg_matches(&matches)?;
        Ok(cobaltcore_node_agent::Config::new(args)?)
    }
}

/// Runs the hypervisor operator until the end.
pub(crate) fn operator(
    cloud: CloudConfig,
    client: kube::Client,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinHandle<()>> {
    let config = cobaltcore_operator::Config {
        ha_mode: HaMode::Delegated,
        agent_namespaces: vec![super::accounts::AGENTS.into()],
        health_probe_bind_address: "0".into(),
        metrics_bind_address: "0".into(),
        ..cobaltcore_operator::Config::default()
    };
    let component = Component {
        name: "hypervisor-operator",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("COBALTCORE_COMMIT").unwrap_or("unknown"),
    };
    let telemetry = Telemetry::new(&component);
    let session = cobaltcore_operator::session_with(cloud, &config, &telemetry, &component.user_agent())?;
    let surroundings = cobaltcore_operator::Surroundings {
        client,
        telemetry,
        health: Health::new(),
        shutdown: shutdown.clone(),
        clock: cobaltcore_operator::Clock::new(),
        openstack: Some(session),
    };
    Ok(tokio::spawn(async move {
        if let Err(error) = cobaltcore_operator::run(config, surroundings).await {
            tracing::error!("the operator ended: {error}");
        }
    }))
}

/// Starts the console. With the embedded API the answer has the code that signs in as an administrator; in a real
/// cluster people have tokens of their own, and nobody is given more rights than they have there.
pub(crate) async fn console(
    cluster: &Cluster,
    world: Option<&World>,
    ha: Option<&Ha>,
    listen: SocketAddr,
) -> anyhow::Result<(Console, Option<String>)> {
    let path = cluster
        .kubeconfig()
        .ok_or_else(|| anyhow!("the embedded API has no kubeconfig"))?;
    let kube = super::accounts::console(crate::run::cluster(Some(path)).await?);
    let code = match cluster {
        Cluster::Embedded(_) => {
            let token = administrator(&cluster.administrator()?).await;
            let token = token.context("nobody could sign in to the console")?;
            Some((Uuid::new_v4().simple().to_string(), token))
        }
        Cluster::Real { .. } => None,
    };
    let config = cobaltcore_console::Config {
        listen: Some(listen),
        codes: HashMap::from_iter(code.clone()),
        ha: ha.map(Ha::service),
        faults: world.map(|world| Arc::new(super::control::Buttons(world.clone())) as _),
        ..cobaltcore_console::Config::default()
    };
    Ok((Console::start(config, &kube).await?, code.map(|(code, _)| code)))
}

/// The bearer token of an account that may do everything.
async fn administrator(client: &kube::Client) -> anyhow::Result<String> {
    use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
    const NAME: &str = "administrator";
    let params = PatchParams::apply("cobaltcore-up").force();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    accounts.patch(NAME, &params, &Patch::Apply(&account)).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "cobaltcore:administrator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": NAME}],
    });
    bindings
        .patch("cobaltcore:administrator", &params, &Patch::Apply(&binding))
        .await?;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(SIGNED_IN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(NAME, &PostParams::default(), &request)
        .await?;
    let token = answer.status.and_then(|status| status.token);
    token.ok_or_else(|| anyhow!("the API gave no token"))
}
