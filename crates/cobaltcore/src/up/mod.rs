// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up`: the platform on this machine, without a cluster, a cloud or root. The embedded
//! Kubernetes API, a simulated cloud with its hosts on the far side of the real protocols, every
//! role, and the console.

mod accounts;
pub(crate) mod bench;
mod control;
mod ha;
mod nodes;
mod roles;
mod world;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use clap::Args as ClapArgs;
use cobaltcore_apiserver::Server;
use cobaltcore_console::Console;

use crate::apiserver::{ServeArgs, signals};
use crate::run::{self, Failure, LogArgs};
use ha::Ha;
use world::Simulated;

pub(crate) use control::{Fault, Reply, SOCKET};

/// Run the platform on this machine
///
/// Starts the embedded Kubernetes API, a simulated cloud whose hosts speak the real libvirt and OpenStack protocols,
/// every role of the platform, and the console. Nothing else is needed: no cluster, no cloud, no root. The state
/// survives: start again with the same --data-dir to go on.
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
    /// Find dead hosts within seconds instead of production's half minute, for demonstrations and tests; every rule of
    /// high availability stays in force
    #[arg(long, help_heading = "Simulation")]
    quick_ha: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "up", up(args))
}

async fn up(args: Args) -> Result<(), Failure> {
    let began = Instant::now();
    let shutdown = signals()?;
    raise_open_files();
    let pace = if args.quick_ha {
        ha::Pace::Quick
    } else {
        ha::Pace::Production
    };
    let config = args.serve.into_config("up");
    let folder = config.data_dir.clone().context("a data directory is needed")?;
    let server = Server::start(config).await.map_err(run::of_server)?;
    install_definitions(&server).await?;
    let simulated = Simulated::start(&folder, &args.world).await?;
    accounts::install(&server).await?;
    let client = accounts::administrator(&server);
    nodes::register(&client, &simulated.world).await?;
    let kept = nodes::keep(client.clone(), simulated.world.clone());
    let controlled = control::serve(&folder, &simulated.world)?;
    let ha = ha::Ha::start(
        &simulated,
        &folder,
        accounts::ha_service(&server),
        pace,
        &shutdown,
    )
    .await?;
    let agents = roles::agents(
        &simulated,
        &folder,
        &accounts::node_agent(&server),
        &ha,
        &shutdown,
    );
    let operator = roles::operator(&simulated, &accounts::operator(&server), &shutdown)?;
    let (console, code) =
        roles::console(&server, &client, &simulated.world, &ha, args.console_listen).await?;
    announce(&server, &simulated, &ha, &console, &code, began);
    shutdown.token().cancelled().await;
    say!("stopping");
    shutdown
        .drain(async {
            console.stop().await;
            drop((controlled, kept));
            operator.await.ok();
            agents.await.ok();
            ha.task.await.ok();
            if let Err(error) = simulated.stop() {
                tracing::error!("{error:#}");
            }
            server.stop().await;
        })
        .await;
    say!("stopped; everything is kept");
    Ok(())
}

async fn install_definitions(server: &Server) -> anyhow::Result<()> {
    for crd in &cobaltcore_api::crds() {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let object = serde_json::to_value(crd).with_context(|| name.to_owned())?;
        server
            .apply(&object)
            .await
            .map_err(|error| anyhow!("cannot install {name}: {error}"))?;
    }
    Ok(())
}

/// A fleet needs many connections; the usual limit is for one program with a few.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

fn announce(server: &Server, simulated: &Simulated, ha: &Ha, console: &Console, code: &str, began: Instant) {
    let (hosts, guests) = simulated
        .world
        .read(|state| (state.hosts.len(), state.servers.len()));
    say!("CobaltCore is up ({} ms)", began.elapsed().as_millis());
    say!();
    say!("  console         {}/sign-in#code={code}", console.url());
    say!("  Kubernetes API  {}", server.url().unwrap_or_default());
    let kubeconfig = server.kubeconfig().map(Path::display);
    if let Some(path) = &kubeconfig {
        say!("  kubeconfig      {path}");
    }
    say!(
        "  cloud           {} (simulated: {hosts} hosts, {guests} servers)",
        simulated.cloud.auth_url()
    );
    say!("  clouds.yaml     {}", simulated.clouds_yaml.display());
    say!(
        "  HA service      {} (token: {})",
        ha.url(),
        ha.operator_file().display()
    );
    say!();
    say!("Try, in another terminal:");
    if let Some(path) = &kubeconfig {
        say!("  KUBECONFIG={path} kubectl get hypervisors --watch");
    }
    say!(
        "  OS_CLIENT_CONFIG_FILE={} openstack --os-cloud sim server list --all-projects",
        simulated.clouds_yaml.display()
    );
    if let Some((host, uri)) = simulated.a_host() {
        say!("  virsh -c '{uri}' list");
        say!("  cobaltcore sim kill {host}");
    }
    say!();
    say!("Ctrl-C stops it; the state is kept.");
}
