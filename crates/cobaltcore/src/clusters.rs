// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore apiserver --clusters`: several Kubernetes APIs in one process that share nothing but it, so that code
//! which reaches from one cluster into another can be tried on one machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cobaltcore_apiserver::{Config, Server};
use tokio::task::JoinSet;

use crate::apiserver::signals;
use crate::run::{self, Failure};

/// Serves until a signal comes.
pub(crate) async fn serve(names: Vec<String>, config: Config) -> Result<(), Failure> {
    let (folder, configs) = each(&names, &config).map_err(Failure::config)?;
    let shared = config.kubeconfig.unwrap_or_else(|| folder.join("kubeconfig"));
    let shutdown = signals()?;
    let servers = start(configs).await?;
    if let Err(error) = Server::share_kubeconfig(&shared, &servers) {
        stop(servers).await;
        return Err(run::of_server(error));
    }
    announce(&names, &servers, &shared);
    shutdown.token().cancelled().await;
    shutdown.drain(stop(servers)).await;
    Ok(())
}

/// The configuration of each cluster, and the folder that holds them all.
fn each(names: &[String], config: &Config) -> Result<(PathBuf, Vec<Config>), String> {
    let folder = config.data_dir.clone().ok_or("a data directory is needed")?;
    let mut known = BTreeSet::new();
    for name in names {
        if !is_label(name) {
            return Err(format!(
                "--clusters: {name:?} cannot name a folder and a context; use lower case letters, digits and hyphens"
            ));
        }
        if !known.insert(name) {
            return Err(format!("--clusters: {name} is named twice"));
        }
    }
    for (flag, given) in [
        ("--unix-socket", config.unix_socket.is_some()),
        ("--audit-log", config.audit_log.is_some()),
    ] {
        if given {
            return Err(format!("{flag} is for one cluster: leave it or --clusters out"));
        }
    }
    if config.port_given && config.listen.len() != names.len() {
        return Err(format!(
            "--listen: {} addresses for {} clusters; name one for each, in the same order, or none",
            config.listen.len(),
            names.len()
        ));
    }
    let one = |(at, name): (usize, &String)| Config {
        context: name.clone(),
        data_dir: Some(folder.join(name)),
        kubeconfig: None,
        listen: if config.port_given {
            vec![config.listen[at]]
        } else {
            config.listen.clone()
        },
        ..config.clone()
    };
    let configs = names.iter().enumerate().map(one).collect();
    Ok((folder, configs))
}

fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Starts all of them, or none.
async fn start(configs: Vec<Config>) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::with_capacity(configs.len());
    for config in configs {
        let name = config.context.clone();
        match Server::start(config).await {
            Ok(server) => servers.push(server),
            Err(error) => {
                stop(servers).await;
                return Err(Failure::new(
                    error.exit_code(),
                    format!("cluster {name}: {error}"),
                ));
            }
        }
    }
    Ok(servers)
}

async fn stop(servers: Vec<Server>) {
    let stopping: JoinSet<()> = servers.into_iter().map(Server::stop).collect();
    stopping.join_all().await;
}

fn announce(names: &[String], servers: &[Server], shared: &Path) {
    let width = names.iter().map(String::len).max().unwrap_or_default();
    say!("Kubernetes APIs ready");
    for (name, server) in names.iter().zip(servers) {
        say!("  {name:width$}  {}", server.url().unwrap_or_default());
    }
    say!("export KUBECONFIG={}", shared.display());
    if let Some(last) = names.last() {
        say!("kubectl --context {last} get namespaces");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            data_dir: Some("/state".into()),
            listen: vec!["127.0.0.1:6443".parse().expect("an address")],
            ..Config::default()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn clusters_share_no_folder_no_context_and_no_address() {
        let mut config = config();
        config.listen.push("127.0.0.1:7443".parse().expect("an address"));
        config.port_given = true;
        let (_, each) = each(&names(&["hypervisor", "storage"]), &config).expect("it is valid");
        let seen: Vec<_> = each
            .iter()
            .map(|c| (c.context.as_str(), c.data_dir.as_deref(), c.listen[0].port()))
            .collect();
        assert_eq!(
            seen,
            [
                ("hypervisor", Some(Path::new("/state/hypervisor")), 6443),
                ("storage", Some(Path::new("/state/storage")), 7443),
            ]
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |given: &[&str], change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            each(&names(given), &config).expect_err("it is not valid")
        };
        for bad in ["", "A", "a/b", "..", "-a", "a-"] {
            assert!(refused(&[bad], |_| {}).contains(&format!("{bad:?}")), "{bad}");
        }
        assert!(refused(&["a", "b", "a"], |_| {}).contains("a is named twice"));
        assert!(refused(&["a"], |c| c.audit_log = Some("x".into())).contains("--audit-log"));
        assert!(refused(&["a"], |c| c.unix_socket = Some("x".into())).contains("--unix-socket"));
        assert!(refused(&["a", "b"], |c| c.port_given = true).contains("1 addresses for 2 clusters"));
    }
}
