// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up`: the platform on this machine, without a cluster, a cloud or root. The embedded
//! Kubernetes API, a simulated cloud with its hosts on the far side of the real protocols, every
//! role, and the console. A real API or a real cloud can take the place of either.

mod accounts;
mod announce;
pub(crate) mod bench;
mod cluster;
mod control;
mod ha;
mod nodes;
mod roles;
mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_openstack::CloudConfig;
use tokio_util::task::AbortOnDropHandle;

use crate::apiserver::{ServeArgs, signals};
use crate::run::{self, Failure, LogArgs};
use cluster::Cluster;
use ha::Ha;
use world::Simulated;

pub(crate) use control::{Fault, Reply, SOCKET, SwitchTrouble};

/// Run the platform on this machine
///
/// Starts the embedded Kubernetes API, a simulated cloud whose hosts speak the real libvirt and OpenStack protocols,
/// every role of the platform, and the console. Nothing else is needed: no cluster, no cloud, no root. The state
/// survives: start again with the same --data-dir to go on.
///
/// With --kubeconfig the objects are in a cluster of yours, and the hosts and the cloud are still simulated. With --cloud
/// the cloud is yours, and so are its hosts: nothing is simulated, the operator and the console run here, and agents run
/// on the hosts.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    world: world::WorldArgs,
    /// Address of the console
    #[arg(
        long,
        env = "COBALTCORE_CONSOLE_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDR"
    )]
    console_listen: SocketAddr,
    /// Find dead hosts sooner than production's half minute, for demonstrations and tests; every rule of
    /// high availability stays in force
    #[arg(long, conflicts_with = "cloud", help_heading = "Simulation")]
    quick_ha: bool,
    /// Use this entry of your clouds.yaml instead of a simulated cloud; hosts are those of your cluster, none is simulated
    #[arg(long, value_name = "NAME", help_heading = "Real systems")]
    cloud: Option<String>,
    /// Use this cluster instead of the embedded API; its account must be allowed to act as others
    #[arg(long, value_name = "FILE", help_heading = "Real systems")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "up", up(args))
}

async fn up(args: Args) -> Result<(), Failure> {
    let began = Instant::now();
    let shutdown = signals()?;
    let may_open = raise_open_files();
    let Args {
        world,
        console_listen,
        quick_ha,
        cloud,
        kubeconfig,
        serve,
    } = args;
    if kubeconfig.is_some() && serve.kubeconfig_merge {
        return Err(Failure::config(
            "--kubeconfig-merge is for the embedded API, and --kubeconfig names another: leave one of them out".into(),
        ));
    }
    if kubeconfig.is_some() && !serve.listen.is_empty() {
        return Err(Failure::config(
            "--listen is for the embedded API, and --kubeconfig names another: leave one of them out".into(),
        ));
    }
    let switches = enough_open_files(world.hypervisors, may_open)?;
    // A name that is not there is told before anything starts.
    let named = cloud.as_deref().map(named_cloud).transpose()?;
    let config = serve.into_config("up");
    let folder = config.data_dir.clone().context("a data directory is needed")?;
    let simulated = named.is_none().then(|| world::world_of(&folder, &world));
    let cluster = match &kubeconfig {
        Some(path) => Cluster::real(path).await?,
        None => Cluster::embedded(config).await?,
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    cluster.install_definitions().await?;
    let pace = if quick_ha {
        ha::Pace::Quick
    } else {
        ha::Pace::Production
    };
    let fleet = if let Some(made) = simulated {
        let made = made.await.context("the simulated world could not be made")?;
        let made = made.map_err(anyhow::Error::from)?;
        let far = Simulated::start(&folder, world.cloud_listen, made, switches).await?;
        Some(Fleet::start(&cluster, &folder, far, pace).await?)
    } else {
        accounts::install(&cluster).await?;
        None
    };
    let cloud_config = match (named, &fleet) {
        (Some(named), _) => named,
        (None, Some(fleet)) => fleet.simulated.cloud_config()?,
        (None, None) => return Err(Failure::config("there is no cloud".into())),
    };
    let auth_url = cloud_config.auth_url.to_string();
    let operator = roles::operator(cloud_config, accounts::operator(&cluster)?, &shutdown)?;
    let (console, code) = roles::console(
        &cluster,
        fleet.as_ref().map(|fleet| &fleet.simulated.world),
        fleet.as_ref().map(|fleet| &fleet.ha),
        console_listen,
    )
    .await?;
    // A thousand agents have much to do at first; what people look at is there before them.
    let agents = fleet
        .as_ref()
        .map(|fleet| roles::agents(fleet, &folder, &accounts::node_agent(&cluster)?, &shutdown))
        .transpose()?;
    announce::ready(
        &cluster,
        fleet.as_ref().map(|fleet| (fleet, folder.as_path())),
        &auth_url,
        &console,
        code.as_deref(),
        began,
    );
    shutdown.token().cancelled().await;
    say!("stopping");
    shutdown
        .drain(async {
            console.stop().await;
            operator.await.ok();
            if let Some(agents) = agents {
                agents.await.ok();
            }
            if let Some(fleet) = fleet {
                fleet.stop().await;
            }
            cluster.stop().await;
        })
        .await;
    say!("stopped; everything is kept");
    Ok(())
}

/// The cloud of this name, found where every OpenStack client looks.
fn named_cloud(name: &str) -> Result<CloudConfig, Failure> {
    let lookup = |variable: &str| match variable {
        "OS_CLOUD" => Some(name.to_owned()),
        other => std::env::var(other).ok(),
    };
    CloudConfig::from_variables(lookup).map_err(|error| Failure::config(format!("--cloud {name}: {error}")))
}

/// Everything that is simulated, with the HA service that looks after it. Agents live on it and end before it.
struct Fleet {
    simulated: Simulated,
    ha: Ha,
    kept: (AbortOnDropHandle<()>, AbortOnDropHandle<()>),
}

impl Fleet {
    async fn start(
        cluster: &Cluster,
        folder: &Path,
        simulated: Simulated,
        pace: ha::Pace,
    ) -> anyhow::Result<Self> {
        let world = &simulated.world;
        cluster
            .has_no_others(|name| world.read(|state| state.hosts.contains_key(name)))
            .await?;
        accounts::install(cluster).await?;
        let client = cluster.administrator()?;
        let service = Ha::start(&simulated, folder, accounts::ha_service(cluster)?, pace);
        let ((), ha) = tokio::try_join!(nodes::register(&client, world), service)?;
        let kept = (nodes::keep(client, world.clone()), control::serve(folder, world)?);
        Ok(Self { simulated, ha, kept })
    }

    /// Keeps the world, once nobody lives on it any more.
    async fn stop(self) {
        let Self { simulated, ha, kept } = self;
        drop(kept);
        ha.stop().await;
        if let Err(error) = simulated.stop() {
            tracing::error!("{error:#}");
        }
    }
}

/// Both ends of everything between a host and its agents, listeners and spool, as counted in a fleet of a thousand.
const FILES_PER_HOST: usize = 18;
/// The same of the virtual switch of a host.
const FILES_PER_SWITCH: usize = 12;
/// Everything else.
const FILES_BESIDES: usize = 500;

/// Half a fleet that could not open its files is no fleet; it is told before anything starts. Virtual switches are left
/// out where only they do not fit. Answers whether they do.
fn enough_open_files(hypervisors: usize, may_open: Option<u64>) -> Result<bool, Failure> {
    let needed = FILES_BESIDES + FILES_PER_HOST * hypervisors;
    let with_switches = needed + FILES_PER_SWITCH * hypervisors;
    match may_open {
        Some(limit) if limit < needed as u64 => Err(Failure::config(format!(
            "{hypervisors} hypervisors need about {needed} open files, and this process may open {limit}: raise the limit \
             (`ulimit -Hn`) or ask for fewer with --hypervisors"
        ))),
        Some(limit) if limit < with_switches as u64 => {
            tracing::warn!(
                "simulated hosts have no virtual switch: {hypervisors} hypervisors with one each need about {with_switches} \
                 open files, and this process may open {limit}; raise the limit (`ulimit -Hn`) to have them"
            );
            Ok(false)
        }
        _ => Ok(true),
    }
}

/// A fleet needs many connections; the usual limit is for one program with a few. Answers with the limit, if there is one.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::enough_open_files;

    #[test]
    fn a_fleet_goes_without_switches_before_it_is_refused() {
        let fits = |hypervisors, limit| enough_open_files(hypervisors, limit).ok();
        assert_eq!(fits(8, Some(1024)), Some(true));
        assert_eq!(fits(1000, Some(1 << 20)), Some(true));
        assert_eq!(fits(1000, Some(20_000)), Some(false));
        assert_eq!(fits(1000, Some(4096)), None);
        assert_eq!(fits(100_000, None), Some(true), "nobody limits it");
    }
}
