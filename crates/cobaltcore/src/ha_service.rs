// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore ha-service`: notices dead hosts and brings their guests back.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_service::metrics::CloudCalls;
use cobaltcore_ha_service::{Config, Service, Surroundings};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::{self, Component};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_openstack::{CloudConfig, Interface, Session, Settings};

use crate::run::{self, Failure, LogArgs};

const COMPONENT: Component = Component {
    name: "kvm-ha-service",
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("COBALTCORE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
};

/// Time for requests under way when the process is asked to end.
const GRACE: Duration = Duration::from_secs(15);

/// Notice dead hosts, fence them, and bring their guests back
///
/// Collects signs of life from agents, Nova, the cluster, probes and monitoring; when independent signs agree that a
/// host is dead, switches it off, verifies that, and has Nova rebuild its guests elsewhere. Nothing is moved from a
/// host that is not verified to be off. People look and decide with `cobaltcore incidents`.
///
/// The cloud comes from clouds.yaml or OS_* variables.
#[derive(Debug, ClapArgs)]
#[command(version = banner())]
pub(crate) struct Args {
    /// The configuration file
    #[arg(
        long,
        env = "KVM_HA_SERVICE_CONFIG",
        default_value = "/etc/kvm-ha-service/config.yaml"
    )]
    config: PathBuf,
    /// Read the configuration, tell every mistake in it, and end
    #[arg(long)]
    check: bool,
    /// The cluster's kubeconfig; the pod's own account or the usual places when not given
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The node this runs on: a leader does not judge the host it stands on
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// The namespace of the lease and the journal
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
}

fn banner() -> &'static str {
    static BANNER: OnceLock<String> = OnceLock::new();
    BANNER.get_or_init(|| COMPONENT.banner().replacen("kvm-ha-service ", "", 1))
}

pub(crate) fn run(log: &LogArgs, args: Args) -> ExitCode {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return run::tell(&Failure::config(error.to_string())),
    };
    if args.check {
        println!("{} is good", args.config.display());
        return ExitCode::SUCCESS;
    }
    // What the command line says stays so, whatever the file says later.
    let follow_level = !log.says_what();
    let log = log.or(config.log.format, &config.log.level);
    run::block_on(&log, "ha-service", serve(args, config, follow_level))
}

async fn serve(args: Args, config: Config, follow_level: bool) -> Result<(), Failure> {
    let Args {
        config: path,
        check: _,
        kubeconfig,
        node_name,
        namespace,
    } = args;
    let telemetry = Telemetry::new(&COMPONENT);
    let openstack = if config.openstack.enabled {
        Some(session(&config, &telemetry).map_err(|error| Failure::config(error.to_string()))?)
    } else {
        None
    };
    let client = if config.kubernetes.enabled {
        Some(run::client(kubeconfig.as_deref()).await?)
    } else {
        None
    };
    let own_host = node_name.and_then(|name| HostName::new(name).ok());
    let shutdown = Shutdown::new(GRACE)
        .on_signals()
        .context("cannot wait for signals")?;
    let surroundings = Surroundings {
        client,
        openstack,
        telemetry,
        health: Health::new(),
        shutdown,
        own_host,
        namespace,
    };
    let failed = |error| Failure::from(anyhow::Error::from(error));
    let relog = move |level: &str| {
        // A level that cannot be read was refused with the configuration.
        if follow_level && startup::change_filter(level).is_ok() {
            tracing::info!(level, "what is logged changed");
        }
    };
    let service = Service::prepare(config, surroundings).await.map_err(failed)?;
    service.following_with(path, relog).run().await.map_err(failed)
}

fn session(config: &Config, telemetry: &Telemetry) -> Result<Session, cobaltcore_openstack::ConfigError> {
    let mut cloud = if config.openstack.clouds_file.is_empty() {
        CloudConfig::from_env()?
    } else {
        CloudConfig::from_file(&config.openstack.clouds_file, &config.openstack.cloud)?
    };
    match config.openstack.interface.as_str() {
        "public" => cloud.interface = Interface::Public,
        "internal" => cloud.interface = Interface::Internal,
        "admin" => cloud.interface = Interface::Admin,
        // As the cloud's entry says; anything else was refused with the configuration.
        _ => {}
    }
    let settings = Settings {
        deadline: config.openstack.timeout.0,
        user_agent: COMPONENT.user_agent(),
        nova_newest: config.openstack.microversion.parse().ok(),
        observer: Some(Arc::new(CloudCalls::new(telemetry))),
        ..Settings::default()
    };
    Session::new(cloud, settings)
}
