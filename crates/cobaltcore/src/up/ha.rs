// SPDX-License-Identifier: Apache-2.0
//! High availability in `up`: an HA service with its own database, the simulated devices it fences by, and what the HA
//! agent of each host is told. Tokens are made anew at every start.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cobaltcore_ha_service::metrics::CloudCalls;
use cobaltcore_ha_service::{Config, Service, Surroundings};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{Session, Settings};
use cobaltcore_sim::Bmcs;
use cobaltcore_sim::bmc::{PASSWORD, USER};
use cobaltcore_sim::world::HostName;
use ring::digest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::world::{Simulated, write_private};

/// A leader that lost its lease must not have a call under way for longer.
const DEADLINE: Duration = Duration::from_secs(10);

const GRACE: Duration = Duration::from_secs(5);

/// How fast the service judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As in production.
    Production,
    /// Within seconds; every rule stays in force.
    Quick,
}

/// A running HA service, with what it reaches hosts by.
pub(crate) struct Ha {
    address: SocketAddr,
    operator: String,
    operator_file: PathBuf,
    told: Arc<Told>,
    _bmcs: Bmcs,
    task: JoinHandle<()>,
    shutdown: Shutdown,
}

impl Ha {
    /// Starts the service, and a BMC for every host.
    pub(crate) async fn start(
        simulated: &Simulated,
        folder: &Path,
        client: kube::Client,
        pace: Pace,
    ) -> anyhow::Result<Self> {
        let shutdown = Shutdown::new(GRACE);
        let folder = folder.join("ha");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let bmcs = Bmcs::start(&simulated.world).await?;
        let credentials = folder.join("bmc.yaml");
        write_private(&credentials, &format!("username: {USER}\npassword: {PASSWORD}\n"))?;
        let (operator, operator_file) = (token(), folder.join("operator-token"));
        write_private(&operator_file, &operator)?;
        let names = simulated
            .world
            .read(|state| state.hosts.keys().cloned().collect::<Vec<_>>());
        let agents: BTreeMap<HostName, String> = names.into_iter().map(|name| (name, token())).collect();
        let told = json!({
            "server": {"listen": "127.0.0.1:0", "metrics_listen": ""},
            "storage": {"path": folder},
            "access": {
                "operators": {"console": [hash(&operator)]},
                "agents": agents.iter().map(|(name, token)| (name.to_string(), json!([hash(token)])))
                    .collect::<serde_json::Map<_, _>>(),
            },
            "leader": {"enabled": false},
            // Simulated kubelets renew no leases.
            "kubernetes": {"node_lease": false},
            "ha_gate": "agent",
            "fencing": {
                "allowed_networks": ["127.0.0.0/8"],
                "levels": [[{"driver": "redfish", "url": "{bmc}", "credentials_file": credentials}]],
                "hosts": agents.keys().filter_map(|name| Some((name.to_string(), json!({"bmc": bmcs.url(name.as_str())?}))))
                    .collect::<serde_json::Map<_, _>>(),
            },
        });
        let service = Service::prepare(
            config(told, pace, simulated.doors.port())?,
            surroundings(simulated, client, &shutdown)?,
        )
        .await?;
        let address = service.address();
        let task = tokio::spawn(async move {
            if let Err(error) = service.run().await {
                tracing::error!("the HA service ended: {error}");
            }
        });
        Ok(Self {
            address,
            operator,
            operator_file,
            told: Arc::new(Told {
                url: format!("http://{address}"),
                pace,
                tokens: agents,
            }),
            _bmcs: bmcs,
            task,
            shutdown,
        })
    }

    /// Ends it. Agents end before: their last words are for it.
    pub(crate) async fn stop(self) {
        self.shutdown.begin("everything ends");
        self.task.await.ok();
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The file with the token of somebody who may decide.
    pub(crate) fn operator_file(&self) -> &Path {
        &self.operator_file
    }

    /// Where it is, for the console: whoever signs in there decides with the rights Kubernetes gives them.
    pub(crate) fn service(&self) -> cobaltcore_console::ha::Service {
        cobaltcore_console::ha::Service {
            url: self.url(),
            token: self.operator.clone(),
            authorities: Vec::new(),
        }
    }

    /// What agents are told of it.
    pub(crate) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.told)
    }
}

/// What the agents of all hosts are told: where the service is, how fast it judges, and a token for each.
pub(crate) struct Told {
    url: String,
    pace: Pace,
    tokens: BTreeMap<HostName, String>,
}

impl Told {
    /// Writes what the agent of a host is told into the host's folder; answers with the file.
    pub(crate) fn write_for(&self, name: &HostName, root: &Path) -> anyhow::Result<PathBuf> {
        std::fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        let (file, token_file) = (root.join("ha-agent.yaml"), root.join("ha-token"));
        write_private(&token_file, self.tokens.get(name).map_or("", String::as_str))?;
        let mut told = json!({
            "service": {"endpoints": [self.url], "token_file": token_file},
            "spool": {"dir": root.join("ha-spool")},
            "metrics": {"listen": ""},
        });
        if self.pace == Pace::Quick {
            merge(&mut told, json!({"heartbeat": {"interval": "1s"}}));
        }
        // JSON is YAML.
        write_private(&file, &told.to_string())?;
        Ok(file)
    }
}

/// Everything that is not about this one machine is left as production has it.
fn config(mut told: Value, pace: Pace, port: u16) -> anyhow::Result<Config> {
    merge(&mut told, json!({"evidence": {"probe": {"tcp_ports": [port]}}}));
    // All hosts are this machine, and as old as it is.
    merge(&mut told, json!({"self_check": {"cold_start": "0s"}}));
    if pace == Pace::Quick {
        let quick = json!({
            "agents": {"heartbeat_interval": "1s", "silent_after": "10s"},
            "evidence": {"round_interval": "1s", "probe": {"timeout": "500ms"}},
            "self_check": {"warmup": "5s"},
            "storm": {"cooldown": "15s"},
            "openstack": {
                "services_interval": "1s", "suspect_interval": "1s", "hypervisors_interval": "2s", "servers_interval": "2s",
            },
        });
        merge(&mut told, quick);
    }
    Config::parse("up", &told.to_string()).context("the HA service of up is told something wrong")
}

/// Adds `more`; objects are joined, everything else is replaced.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn surroundings(
    simulated: &Simulated,
    client: kube::Client,
    shutdown: &Shutdown,
) -> anyhow::Result<Surroundings> {
    let cloud = simulated.cloud_config()?;
    let component = Component {
        name: "kvm-ha-service",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("COBALTCORE_COMMIT").unwrap_or("unknown"),
    };
    let telemetry = Telemetry::new(&component);
    let settings = Settings {
        deadline: DEADLINE,
        observer: Some(Arc::new(CloudCalls::new(&telemetry))),
        ..Settings::default()
    };
    Ok(Surroundings {
        client: Some(client),
        openstack: Some(Session::new(cloud, settings)?),
        telemetry,
        health: Health::new(),
        shutdown: shutdown.clone(),
        own_host: None,
        namespace: super::accounts::PLATFORM.to_owned(),
    })
}

fn token() -> String {
    Uuid::new_v4().simple().to_string()
}

fn hash(token: &str) -> String {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_pace_changes_times_and_no_rule() {
        let told = || json!({"leader": {"enabled": false}});
        let (slow, quick) = (
            config(told(), Pace::Production, 7).unwrap(),
            config(told(), Pace::Quick, 7).unwrap(),
        );
        assert_eq!(slow.evidence.probe.tcp_ports, [7]);
        assert_eq!(quick.evidence.probe.tcp_ports, [7]);
        assert_eq!(slow.evidence.min_groups, quick.evidence.min_groups);
        assert_eq!(slow.evidence.confirm_rounds, quick.evidence.confirm_rounds);
        assert!(quick.agents.silent_after < slow.agents.silent_after);
    }
}
