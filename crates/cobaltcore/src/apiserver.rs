// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore apiserver`: the embedded Kubernetes API as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cobaltcore_apiserver::{Authorization, Config, Durability, Server};

/// Serve the Kubernetes API from one data directory.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// State, keys and kubeconfig live here
    #[arg(long, env = "COBALTCORE_KUBE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address to listen on; repeat for several [default: 127.0.0.1:6443, or the next free port]
    #[arg(long, env = "COBALTCORE_KUBE_LISTEN", value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Where to write the admin kubeconfig [default: DIR/kubeconfig]
    #[arg(long, env = "COBALTCORE_KUBE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Who decides what a user may do
    #[arg(long, env = "COBALTCORE_KUBE_AUTHORIZATION", value_enum, default_value = "rbac")]
    authorization: Mode,
    /// When a write counts as done
    #[arg(long, env = "COBALTCORE_KUBE_DURABILITY", value_enum, default_value = "full")]
    durability: Safety,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Rbac,
    AlwaysAllow,
    Shadow,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Safety {
    Full,
    Relaxed,
    None,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let config = Config {
        data_dir: args.data_dir.or_else(|| Some(PathBuf::from("/tmp/cobaltcore-kube"))),
        port_given: !args.listen.is_empty(),
        listen: if args.listen.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 6443))] } else { args.listen },
        kubeconfig: args.kubeconfig,
        authorization: match args.authorization {
            Mode::Rbac => Authorization::Rbac,
            Mode::AlwaysAllow => Authorization::AlwaysAllow,
            Mode::Shadow => Authorization::Shadow,
        },
        durability: match args.durability {
            Safety::Full => Durability::Full,
            Safety::Relaxed => Durability::Relaxed,
            Safety::None => Durability::None,
        },
        event_ttl: Duration::from_secs(3600),
        ..Config::default()
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            return ExitCode::from(1);
        }
    };
    runtime.block_on(async {
        let server = match Server::start(config).await {
            Ok(server) => server,
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(error.exit_code());
            }
        };
        println!("ready at {}", server.url().unwrap_or_default());
        if let Some(path) = server.kubeconfig() {
            println!("export KUBECONFIG={}", path.display());
        }
        let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(term) => term,
            Err(error) => {
                eprintln!("cannot wait for signals: {error}");
                return ExitCode::from(1);
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
        server.stop().await;
        ExitCode::SUCCESS
    })
}
