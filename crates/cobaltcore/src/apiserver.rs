// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore apiserver`: the embedded Kubernetes API as a process of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use cobaltcore_apiserver::{Authorization, Config, Durability, Keys, Server};
use cobaltcore_kit::config::HumanDuration;
use cobaltcore_kit::shutdown::Shutdown;

use crate::clusters;
use crate::run::{self, Failure, LogArgs};

/// Serve the Kubernetes API from one data directory
///
/// Speaks the protocol of kube-apiserver v1.36 on one SQLite file: kubectl, kube-rs and other
/// clients work unchanged. There is no kubelet and no scheduler behind it.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Write the admin kubeconfig here when the server answers [default: DIR/kubeconfig]
    #[arg(long, env = "COBALTCORE_KUBE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Serve several clusters that know nothing of each other, each from a folder DIR/NAME
    ///
    /// Each has its own database, CA, port and admin token. The kubeconfig has a context for each, named like it; the
    /// first is the current one. Of `--listen` every cluster needs one address, in the same order, or none at all.
    #[arg(
        long,
        env = "COBALTCORE_KUBE_CLUSTERS",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    clusters: Vec<String>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy the database of a data directory, also while it is in use
    Backup {
        /// The data directory
        #[arg(long, env = "COBALTCORE_KUBE_DATA_DIR", value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// The copy to write; must not exist yet
        file: PathBuf,
    },
    /// Verify the database of a data directory, also while it is in use
    Check {
        /// The data directory
        #[arg(long, env = "COBALTCORE_KUBE_DATA_DIR", value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// The keys that Secrets are sealed with, to read those too
        #[arg(long, env = "COBALTCORE_KUBE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
        encryption_key_file: Option<PathBuf>,
    },
}

/// Flags of a running server.
#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// State, keys and kubeconfig live here [default: the state directory of the user]
    #[arg(long, env = "COBALTCORE_KUBE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Address to listen on, repeatable [default: 127.0.0.1:6443 or the next free port]
    #[arg(
        long,
        env = "COBALTCORE_KUBE_LISTEN",
        value_name = "ADDR",
        value_delimiter = ','
    )]
    pub(crate) listen: Vec<SocketAddr>,
    /// Listen on a local socket too (mode 0600)
    #[arg(long, env = "COBALTCORE_KUBE_UNIX_SOCKET", value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Add a context `cobaltcore` to your own kubeconfig too (the first of KUBECONFIG, or ~/.kube/config)
    ///
    /// Your current context stays what it is; an earlier context of that name is replaced.
    #[arg(long, env = "COBALTCORE_KUBE_KUBECONFIG_MERGE")]
    pub(crate) kubeconfig_merge: bool,
    /// Further name or address of the server certificate, repeatable
    #[arg(
        long,
        env = "COBALTCORE_KUBE_TLS_SAN",
        value_name = "NAME",
        value_delimiter = ','
    )]
    tls_san: Vec<String>,
    /// Who decides what a user may do
    #[arg(
        long,
        env = "COBALTCORE_KUBE_AUTHORIZATION",
        value_enum,
        default_value = "rbac"
    )]
    authorization: Mode,
    /// Let requests without credentials in as system:anonymous
    #[arg(long, env = "COBALTCORE_KUBE_ANONYMOUS")]
    anonymous: bool,
    /// File with static tokens, lines of token,user,uid,"group1,group2"
    #[arg(long, env = "COBALTCORE_KUBE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Seal Secrets in the database with the key in this file (32 random bytes in base64, mode 0600)
    ///
    /// Make one with `(umask 077; head -c 32 /dev/urandom | base64 > FILE)` and keep a copy: without it nobody reads the
    /// Secrets again. Of several lines the first key seals and all of them open; what is there is sealed anew at the
    /// next start, history too. The word `plain` in the first line writes in the clear again.
    #[arg(long, env = "COBALTCORE_KUBE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// When a write counts as done
    #[arg(long, env = "COBALTCORE_KUBE_DURABILITY", value_enum, default_value = "full")]
    durability: Safety,
    /// Events older than this vanish
    #[arg(long, env = "COBALTCORE_KUBE_EVENT_TTL", default_value = "1h", value_parser = duration, value_name = "TIME")]
    event_ttl: Duration,
    /// Least age of watch history before it is dropped
    #[arg(long, env = "COBALTCORE_KUBE_HISTORY", default_value = "10m", value_parser = duration, value_name = "TIME")]
    history: Duration,
    /// Events a watcher may lag behind before it is cut off
    #[arg(
        long,
        env = "COBALTCORE_KUBE_WATCH_QUEUE",
        default_value_t = 1000,
        value_name = "N"
    )]
    watch_queue: usize,
    /// Reading requests under way at most
    #[arg(
        long,
        env = "COBALTCORE_KUBE_MAX_INFLIGHT",
        default_value_t = 400,
        value_name = "N"
    )]
    max_inflight: i64,
    /// Changing requests under way at most
    #[arg(
        long,
        env = "COBALTCORE_KUBE_MAX_MUTATING_INFLIGHT",
        default_value_t = 200,
        value_name = "N"
    )]
    max_mutating_inflight: i64,
    /// Largest request body
    #[arg(
        long,
        env = "COBALTCORE_KUBE_MAX_REQUEST_BYTES",
        default_value_t = 3_145_728,
        value_name = "BYTES"
    )]
    max_request_bytes: usize,
    /// Range of service addresses
    #[arg(long, env = "COBALTCORE_KUBE_SERVICE_CIDR", default_value = "10.96.0.0/16", value_parser = cidr, value_name = "CIDR")]
    service_cidr: (Ipv4Addr, u8),
    /// Range of node ports
    #[arg(long, env = "COBALTCORE_KUBE_NODE_PORTS", default_value = "30000-32767", value_parser = ports, value_name = "FROM-TO")]
    node_ports: (u16, u16),
    /// Where the webhooks of a Service are reached, repeatable
    #[arg(long, env = "COBALTCORE_KUBE_WEBHOOK_SERVICE", value_parser = webhook, value_name = "NS/NAME=HOST:PORT", value_delimiter = ',')]
    webhook_service: Vec<(String, String)>,
    /// Setting blockOwnerDeletion needs the right to update the owner's finalizers
    #[arg(long, env = "COBALTCORE_KUBE_ENFORCE_OWNER_REFERENCES")]
    enforce_owner_references: bool,
    /// Mark workloads as running although there is no kubelet to run them
    ///
    /// Deployments, StatefulSets, DaemonSets and ReplicaSets become available and Jobs complete, without any Pod, and
    /// are annotated `cobaltcore.cloud/simulated: "true"`. Nothing is marked while a kubelet renews the lease of a Node.
    #[arg(long, env = "COBALTCORE_KUBE_SIMULATE_WORKLOADS")]
    simulate_workloads: bool,
    /// How long a simulated workload takes
    #[arg(long, env = "COBALTCORE_KUBE_WORKLOAD_DELAY", default_value = "200ms", value_parser = duration, value_name = "TIME")]
    workload_delay: Duration,
    /// Append a JSON line per request to this file
    #[arg(long, env = "COBALTCORE_KUBE_AUDIT_LOG", value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Apply the manifests of this directory at start, definitions first
    #[arg(long, env = "COBALTCORE_KUBE_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Roles and bindings
    Rbac,
    /// Everybody may do everything (loopback only)
    AlwaysAllow,
    /// Everybody may do everything; what RBAC would have denied is recorded
    Shadow,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Safety {
    /// Survives a power failure
    Full,
    /// Survives a crash of the process
    Relaxed,
    /// Memory only
    None,
}

impl ServeArgs {
    /// The configuration these flags describe; `role` names the default data directory.
    pub(crate) fn into_config(self, role: &str) -> Config {
        let Self {
            data_dir,
            listen,
            unix_socket,
            kubeconfig_merge,
            tls_san,
            authorization,
            anonymous,
            token_file,
            encryption_key_file,
            durability,
            event_ttl,
            history,
            watch_queue,
            max_inflight,
            max_mutating_inflight,
            max_request_bytes,
            service_cidr,
            node_ports,
            webhook_service,
            enforce_owner_references,
            simulate_workloads,
            workload_delay,
            audit_log,
            manifests,
        } = self;
        let folder = data_dir.unwrap_or_else(|| run::state_dir(role));
        Config {
            // Its files are named to others, who may stand somewhere else.
            data_dir: Some(std::path::absolute(&folder).unwrap_or(folder)),
            port_given: !listen.is_empty(),
            listen: if listen.is_empty() {
                vec![SocketAddr::from(([127, 0, 0, 1], 6443))]
            } else {
                listen
            },
            context: "cobaltcore".into(),
            kubeconfig: None,
            kubeconfig_merge: kubeconfig_merge.then(run::own_kubeconfig),
            unix_socket,
            tls_sans: tls_san,
            authorization: match authorization {
                Mode::Rbac => Authorization::Rbac,
                Mode::AlwaysAllow => Authorization::AlwaysAllow,
                Mode::Shadow => Authorization::Shadow,
            },
            anonymous,
            token_file,
            encryption_key_file,
            durability: match durability {
                Safety::Full => Durability::Full,
                Safety::Relaxed => Durability::Relaxed,
                Safety::None => Durability::None,
            },
            event_ttl,
            history,
            watch_queue,
            max_inflight,
            max_mutating_inflight,
            max_request_bytes,
            service_cidr,
            node_ports,
            webhook_services: webhook_service.into_iter().collect::<BTreeMap<_, _>>(),
            enforce_owner_references,
            simulate_workloads: simulate_workloads.then_some(workload_delay),
            audit_log,
            manifests,
        }
    }
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    match args.command {
        None => {
            let config = Config {
                kubeconfig: args.kubeconfig,
                ..args.serve.into_config("kube")
            };
            if args.clusters.is_empty() {
                run::block_on(log, "apiserver", serve(config))
            } else {
                run::block_on(log, "apiserver", clusters::serve(args.clusters, config))
            }
        }
        Some(Command::Backup { data_dir, file }) => run::block_on(log, "apiserver", async move {
            let dir = data_dir.unwrap_or_else(|| run::state_dir("kube"));
            backup(&dir, &file).map_err(Failure::from)
        }),
        Some(Command::Check {
            data_dir,
            encryption_key_file,
        }) => run::block_on(log, "apiserver", async move {
            let dir = data_dir.unwrap_or_else(|| run::state_dir("kube"));
            check(&dir, encryption_key_file.as_deref()).map_err(Failure::from)
        }),
    }
}

async fn serve(config: Config) -> Result<(), Failure> {
    let shutdown = signals()?;
    let server = Server::start(config).await.map_err(run::of_server)?;
    say!("Kubernetes API ready at {}", server.url().unwrap_or_default());
    if let Some(path) = server.kubeconfig() {
        say!("export KUBECONFIG={}", path.display());
    }
    shutdown.token().cancelled().await;
    shutdown.drain(server.stop()).await;
    Ok(())
}

/// A shutdown that begins with SIGTERM or Ctrl-C.
pub(crate) fn signals() -> Result<Shutdown, Failure> {
    let shutdown = Shutdown::new(Duration::from_secs(15)).on_signals();
    shutdown.map_err(|e| Failure::from(anyhow::Error::from(e).context("cannot wait for signals")))
}

fn backup(dir: &Path, file: &Path) -> anyhow::Result<()> {
    let database = dir.join("state.db");
    if !database.exists() {
        bail!(
            "{} has no database; name the data directory with --data-dir",
            dir.display()
        );
    }
    if file.exists() {
        bail!(
            "{} exists already; choose another name, nothing is overwritten",
            file.display()
        );
    }
    cobaltcore_apiserver::backup(&database, file)
        .with_context(|| format!("cannot copy {}", database.display()))?;
    say!("copied {} to {}", database.display(), file.display());
    Ok(())
}

fn check(dir: &Path, keys: Option<&Path>) -> anyhow::Result<()> {
    let database = dir.join("state.db");
    let keys = keys.map_or_else(|| Ok(Keys::default()), Keys::read)?;
    let report = cobaltcore_apiserver::check(&database, &keys)
        .with_context(|| format!("cannot read {}", database.display()))?;
    say!("{} objects, {} events of history", report.objects, report.events);
    if report.sealed > 0 {
        say!(
            "sealed and not read: {} of the Secrets; --encryption-key-file opens them",
            report.sealed
        );
    }
    if report.problems.is_empty() {
        say!("no problems found");
        return Ok(());
    }
    for problem in &report.problems {
        say!("  {problem}");
    }
    Err(anyhow!(
        "{} problems found; restore a copy made with `cobaltcore apiserver backup`",
        report.problems.len()
    ))
}

/// A time with a unit: `90s`, `10m`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: HumanDuration = text.parse().map_err(|e: String| e)?;
    Ok(parsed.0)
}

fn cidr(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let (address, bits) = text.split_once('/').ok_or("write it as 10.96.0.0/16")?;
    let address = address
        .parse()
        .map_err(|_| format!("{address:?} is no IPv4 address"))?;
    let bits = bits
        .parse()
        .map_err(|_| format!("{bits:?} is no prefix length"))?;
    Ok((address, bits))
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once('-').ok_or("write it as 30000-32767")?;
    let number = |part: &str| part.parse().map_err(|_| format!("{part:?} is no port"));
    Ok((number(low)?, number(high)?))
}

fn webhook(text: &str) -> Result<(String, String), String> {
    let (service, target) = text
        .split_once('=')
        .ok_or("write it as namespace/name=host:port")?;
    if service.split('/').filter(|part| !part.is_empty()).count() != 2 || !target.contains(':') {
        return Err("write it as namespace/name=host:port".into());
    }
    Ok((service.to_owned(), target.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_mistakes_explained() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert!(duration("ten").is_err());
        assert_eq!(cidr("10.0.0.0/24"), Ok((Ipv4Addr::new(10, 0, 0, 0), 24)));
        assert!(cidr("10.0.0.0").unwrap_err().contains("10.96.0.0/16"));
        assert_eq!(ports("1-2"), Ok((1, 2)));
        assert!(webhook("a=b").is_err());
        assert_eq!(
            webhook("ns/hook=127.0.0.1:9443"),
            Ok(("ns/hook".into(), "127.0.0.1:9443".into()))
        );
    }
}
