// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore console`: the web page for the people on call, against any cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use cobaltcore_console::{Config, Console};

use crate::apiserver::signals;
use crate::run::{self, LogArgs};

/// Show the fleet in a browser
///
/// People sign in with their own Kubernetes bearer token and see and do what their roles allow. The console's own
/// account needs only to list and watch hypervisors, evictions, migrations and events.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Address to listen on
    #[arg(
        long,
        env = "COBALTCORE_CONSOLE_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDR"
    )]
    listen: SocketAddr,
    /// A proxy in front ends TLS; needed to listen beyond this machine
    #[arg(long, env = "COBALTCORE_CONSOLE_BEHIND_TLS")]
    behind_tls: bool,
    /// Kubeconfig to use instead of the pod's account
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "console", async move {
        let Args {
            listen,
            behind_tls,
            kubeconfig,
        } = args;
        let shutdown = signals()?;
        let kube = run::cluster(kubeconfig.as_deref()).await?;
        let config = Config {
            listen: Some(listen),
            behind_tls,
            ..Config::default()
        };
        let console = Console::start(config, &kube).await.map_err(anyhow::Error::from)?;
        say!("console ready at {}", console.url());
        shutdown.token().cancelled().await;
        shutdown.drain(console.stop()).await;
        Ok(())
    })
}
