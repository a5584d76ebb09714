// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore hypervisor-operator`: the lifecycle of hypervisors.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_operator::{Clock, Config, Flags, Surroundings};

use crate::run::{self, Failure, LogArgs};

/// What the process calls itself towards servers; it also names the owner of created objects.
const COMPONENT: Component = Component {
    name: "openstack-hypervisor-operator",
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("COBALTCORE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
};

/// Time for passes under way when the process is asked to end.
const GRACE: Duration = Duration::from_secs(20);

/// Bring hypervisors in, drain them, return them and take them out
///
/// Turns every Node with a virt driver into a Hypervisor and keeps it right in Nova and Placement: onboarding with a
/// test server, aggregates, traits, maintenance, evictions, offboarding, certificates and what Gardener must know.
/// The cloud comes from clouds.yaml or OS_* variables; without one, only what concerns Kubernetes is looked after.
#[derive(Debug, ClapArgs)]
#[command(version = banner())]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

fn banner() -> &'static str {
    static BANNER: OnceLock<String> = OnceLock::new();
    // The command line puts the name in front itself.
    BANNER.get_or_init(|| {
        COMPONENT
            .banner()
            .replacen("openstack-hypervisor-operator ", "", 1)
    })
}

pub(crate) fn run(log: LogArgs, args: Args) -> ExitCode {
    let Args { flags } = args;
    let level = flags.log_level().map(|level| match level {
        "debug" | "info" | "warn" | "error" => level.to_owned(),
        "panic" => "error".to_owned(),
        // Numbers are verbosity: the higher, the more is said.
        number if number.parse::<u32>().is_ok() => "debug".to_owned(),
        _ => "info".to_owned(),
    });
    run::block_on(&log.with(None, level), "hypervisor-operator", operate(flags))
}

async fn operate(flags: Flags) -> Result<(), Failure> {
    let config = Config::load(&flags).map_err(|error| Failure::config(error.to_string()))?;
    let telemetry = Telemetry::new(&COMPONENT);
    let openstack = cobaltcore_operator::openstack_session(&config, &telemetry, &COMPONENT.user_agent())
        .map_err(|error| Failure::config(error.to_string()))?;
    let shutdown = Shutdown::new(GRACE)
        .on_signals()
        .context("cannot wait for signals")?;
    let surroundings = Surroundings {
        client: crate::run::client(flags.kubeconfig().map(std::path::PathBuf::as_path)).await?,
        telemetry,
        health: Health::new(),
        shutdown,
        clock: Clock::new(),
        openstack,
    };
    cobaltcore_operator::run(config, surroundings)
        .await
        .map_err(|error| Failure::from(anyhow::Error::from(error)))
}
