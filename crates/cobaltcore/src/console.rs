// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore console`: the web page for the people on call, against any cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_console::ha::Service;
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
    /// Address of the HA service; without it no incident is shown
    #[arg(
        long,
        env = "COBALTCORE_HA_URL",
        value_name = "URL",
        requires = "ha_token_file",
        help_heading = "High availability"
    )]
    ha_url: Option<String>,
    /// File with the bearer token for it: a viewer's, or an operator's if people may decide in the console
    #[arg(
        long,
        env = "COBALTCORE_HA_TOKEN_FILE",
        value_name = "FILE",
        requires = "ha_url",
        help_heading = "High availability"
    )]
    ha_token_file: Option<PathBuf>,
    /// File with the certificates it may show, in PEM; those of the system if not given
    #[arg(
        long,
        env = "COBALTCORE_HA_CA_FILE",
        value_name = "FILE",
        requires = "ha_url",
        help_heading = "High availability"
    )]
    ha_ca_file: Option<PathBuf>,
}

/// The HA service that was named, if one was.
fn ha_service(
    url: Option<String>,
    token: Option<PathBuf>,
    authorities: Option<PathBuf>,
) -> anyhow::Result<Option<Service>> {
    let (Some(url), Some(token)) = (url, token) else {
        return Ok(None);
    };
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let text =
        String::from_utf8(read(&token)?).with_context(|| format!("{} is not text", token.display()))?;
    Ok(Some(Service {
        url,
        token: text.trim().to_owned(),
        authorities: authorities.as_ref().map(read).transpose()?.unwrap_or_default(),
    }))
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "console", async move {
        let Args {
            listen,
            behind_tls,
            kubeconfig,
            ha_url,
            ha_token_file,
            ha_ca_file,
        } = args;
        let shutdown = signals()?;
        let kube = run::cluster(kubeconfig.as_deref()).await?;
        let config = Config {
            listen: Some(listen),
            behind_tls,
            ha: ha_service(ha_url, ha_token_file, ha_ca_file)?,
            ..Config::default()
        };
        let console = Console::start(config, &kube).await.map_err(anyhow::Error::from)?;
        say!("console ready at {}", console.url());
        shutdown.token().cancelled().await;
        shutdown.drain(console.stop()).await;
        Ok(())
    })
}
