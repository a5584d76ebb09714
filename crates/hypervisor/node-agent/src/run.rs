// SPDX-License-Identifier: Apache-2.0
//! Starts the parts of the agent and keeps them running until it is asked to stop. Nothing outside may end it: a part
//! that fails is restarted, and libvirt, systemd and Kubernetes may come and go.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::AgentInfo;
use cobaltcore_kit::auth::{AllowAll, KubeAuthorizer};
use cobaltcore_kit::events::{self, Reporter};
use cobaltcore_kit::health::{Health, Kind};
use cobaltcore_kit::http::{Endpoints, Listener};
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::supervisor::{OnExit, Supervisor};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;

use crate::board::Board;
use crate::config::Config;
use crate::context::{Context, Seen, Untold};
use crate::error::Error;
use crate::hypervisor::{BEAT, Listeners, follow};
use crate::metrics::Metrics;
use crate::status::{Standing, publish};
use crate::systemd::{self, Link};
use crate::{certificate, host, inhibitor, update};

/// The same event about the same object is written at most this often.
const QUIET: Duration = Duration::from_mins(10);
/// How long the parts have to end once nothing is left to wait for.
const PARTS_GRACE: Duration = Duration::from_secs(30);
const AGAIN: OnExit = OnExit::Restart(Backoff::TASK);
const COMPONENT: Component = Component {
    name: "node-agent",
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("COBALTCORE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
};

/// Runs the agent until `shutdown` begins. Fails only when a listener cannot be opened.
pub async fn run(config: Config, client: kube::Client, shutdown: Shutdown) -> Result<(), Error> {
    let config = Arc::new(config);
    let (telemetry, health) = (Telemetry::new(&COMPONENT), Health::new());
    // The parts go on while an evacuation is under way, whatever asked the agent to stop: it needs them all.
    let parts = Shutdown::new(PARTS_GRACE);
    let supervisor = Supervisor::new(parts.clone(), health.clone(), &telemetry);
    let reporter = Reporter {
        controller: "kvm.cloud.sap/node-agent".to_owned(),
        instance: config.host.to_string(),
        quiet: QUIET,
    };
    let (recorder, event_worker) = events::channel(client.clone(), reporter);
    let (seen, hypervisor) = watch::channel::<Seen>(None);
    let context = Context {
        config: Arc::clone(&config),
        client: client.clone(),
        board: Board::default(),
        hypervisor,
        recorder,
        untold: Untold::default(),
        metrics: Metrics::new(&telemetry),
        health: health.clone(),
    };

    listen(&config, &supervisor, &client, &telemetry, &health).await?;
    let mut event_worker = Some(event_worker);
    supervisor.spawn("events", OnExit::MayFinish, move |stop| {
        let worker = event_worker.take();
        async move {
            match worker {
                Some(worker) => worker.run(stop).await,
                None => Ok(()),
            }
        }
    });
    let listeners = Listeners {
        seen,
        ready: health.check("kubernetes", Kind::Ready),
        beat: health.heartbeat("hypervisor-watch", 3 * BEAT),
    };
    spawn_each(&supervisor, &context, "hypervisor", move |context, stop| {
        follow(context, listeners.clone(), stop)
    });
    let standing = standing(&config);
    spawn_each(&supervisor, &context, "publisher", move |context, stop| {
        publish(context, standing.clone(), stop)
    });
    spawn_each(&supervisor, &context, "libvirt", crate::libvirt::observe);
    let evacuating = spawn_system(&supervisor, &context, &shutdown.token());
    let asked = shutdown.token();
    tokio::spawn(async move {
        asked.cancelled().await;
        let mut evacuating = evacuating;
        // An error means that nobody is left who could evacuate.
        let _ = evacuating.wait_for(|working| !working).await;
        parts.begin("asked to stop");
    });
    let mut ended = Ok(());
    let all = async { ended = supervisor.join().await };
    shutdown.drain(all).await;
    ended.map_err(Error::from)
}

/// Starts the parts that deal with the host rather than its guests. They share one connection to the system bus.
/// Returns whether somebody may be evacuating the host.
fn spawn_system(
    supervisor: &Supervisor,
    context: &Context,
    asked: &CancellationToken,
) -> watch::Receiver<bool> {
    let (links, bus) = watch::channel(Link::default());
    let given = context.config.system.system_bus.clone();
    let address = given.unwrap_or_else(|| systemd::SYSTEM_BUS.to_owned());
    supervisor.spawn("system-bus", AGAIN, move |stop| {
        systemd::keep(address.clone(), links.clone(), stop)
    });
    let spawn = |name: &str, start: SystemPart| {
        let bus = bus.clone();
        spawn_each(supervisor, context, name, move |context, stop| {
            start(context, bus.clone(), stop)
        });
    };
    spawn("host", |context, bus, stop| {
        Box::pin(host::run(context, bus, stop))
    });
    spawn("units", |context, bus, stop| {
        Box::pin(systemd::run(context, bus, stop))
    });
    spawn("update", |context, bus, stop| {
        Box::pin(update::run(context, bus, stop))
    });
    spawn("certificate", |context, bus, stop| {
        Box::pin(certificate::run(context, bus, stop))
    });
    let (working, evacuating) = watch::channel(false);
    let (working, context, asked) = (Arc::new(working), context.clone(), asked.clone());
    supervisor.spawn("inhibitor", AGAIN, move |stop| {
        let part = inhibitor::run(context.clone(), bus.clone(), asked.clone());
        let (working, asked) = (Working::new(&working), asked.clone());
        async move {
            let ended = tokio::select! {
                biased;
                ended = part => ended,
                () = stop.cancelled() => Ok(()),
            };
            drop(working);
            if asked.is_cancelled() {
                // The others stop now; ending before them would look like a failure.
                stop.cancelled().await;
            }
            ended
        }
    });
    evacuating
}

/// Says that somebody works for as long as it lives.
struct Working(Arc<watch::Sender<bool>>);

impl Working {
    fn new(working: &Arc<watch::Sender<bool>>) -> Self {
        working.send_replace(true);
        Self(working.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

type SystemPart =
    fn(Context, watch::Receiver<Link>, CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>;

/// Starts a part of the agent that is started again whenever it ends.
pub(crate) fn spawn_each<F, Fut>(supervisor: &Supervisor, context: &Context, name: &str, start: F)
where
    F: Fn(Context, CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let context = context.clone();
    supervisor.spawn(name, AGAIN, move |stop| start(context.clone(), stop));
}

/// What the status says about the agent itself.
fn standing(config: &Config) -> Standing {
    let boot = host::HostFiles::below(&config.system.host_root).boot_id();
    Standing {
        agent: AgentInfo {
            version: COMPONENT.version.to_owned(),
            boot_id: boot.map(|boot| boot.as_str().to_owned()).unwrap_or_default(),
            started_at: Some(Time(whole_second(Timestamp::now()))),
            ..AgentInfo::default()
        },
        units: config.system.watch_units.clone(),
        additions: true,
    }
}

/// Times in the API have no fractions.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

async fn listen(
    config: &Config,
    supervisor: &Supervisor,
    client: &kube::Client,
    telemetry: &Telemetry,
    health: &Health,
) -> Result<(), Error> {
    if let Some(address) = &config.health_address {
        let listener = Listener::bind(address).await?;
        serve(supervisor, "health", listener, Endpoints::health(health.clone()));
    }
    if let Some(address) = &config.metrics_address {
        let listener = Listener::bind(address).await?;
        let endpoints = if config.metrics_secure {
            Endpoints::metrics(telemetry.clone(), KubeAuthorizer::new(client.clone()))
        } else {
            Endpoints::metrics(telemetry.clone(), AllowAll)
        };
        serve(supervisor, "metrics", listener, endpoints);
    }
    Ok(())
}

fn serve(supervisor: &Supervisor, name: &str, listener: Listener, endpoints: Endpoints) {
    let mut listener = Some(listener);
    supervisor.spawn(name, OnExit::MayFinish, move |stop| {
        let (listener, endpoints) = (listener.take(), endpoints.clone());
        async move {
            match listener {
                Some(listener) => listener.serve(endpoints, stop).await.map_err(Into::into),
                None => Ok(()),
            }
        }
    });
}
