// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up`: the platform on this machine, without a cluster, a cloud or root.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::anyhow;
use clap::Args as ClapArgs;
use cobaltcore_apiserver::Server;

use crate::apiserver::{ServeArgs, signals};
use crate::run::{self, Failure, LogArgs};

/// Run the platform on this machine
///
/// Starts the embedded Kubernetes API with every CustomResourceDefinition installed and keeps it
/// running until Ctrl-C. The state survives: start again with the same --data-dir to go on.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    run::block_on(log, "up", up(args))
}

async fn up(args: Args) -> Result<(), Failure> {
    let began = Instant::now();
    let shutdown = signals()?;
    let server = Server::start(args.serve.into_config("up")).await?;
    let crds = cobaltcore_api::crds();
    for crd in &crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let object = serde_json::to_value(crd).map_err(|e| anyhow!("{name}: {e}"))?;
        server
            .apply(&object)
            .await
            .map_err(|e| anyhow!("cannot install {name}: {e}"))?;
    }
    announce(&server, crds.len(), began);
    shutdown.token().cancelled().await;
    say!("stopping");
    shutdown.drain(server.stop()).await;
    say!("stopped; everything is kept");
    Ok(())
}

fn announce(server: &Server, crds: usize, began: Instant) {
    say!("CobaltCore is up ({} ms)", began.elapsed().as_millis());
    say!();
    say!("  Kubernetes API  {}", server.url().unwrap_or_default());
    say!("  custom kinds    {crds} installed");
    if let Some(path) = server.kubeconfig() {
        say!("  kubeconfig      {}", path.display());
        say!();
        say!("Try, in another terminal:");
        say!("  export KUBECONFIG={}", path.display());
        say!("  kubectl api-resources --api-group=kvm.cloud.sap");
        say!("  kubectl explain hypervisor.status");
        say!("  kubectl get hypervisors,evictions -A --watch");
    }
    say!();
    say!("Ctrl-C stops it; the state is kept.");
}
