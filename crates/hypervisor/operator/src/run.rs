// SPDX-License-Identifier: Apache-2.0
//! Starts the operator: endpoints first, then the lease if there is to be one, then the caches
//! and the controllers over them. The same for the binary, `up` and tests.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::labels;
use cobaltcore_kit::auth::KubeAuthorizer;
use cobaltcore_kit::controller::{ControllerMetrics, Options, Reconciler, SharedRunner};
use cobaltcore_kit::events::{self, EventWorker, Reporter};
use cobaltcore_kit::health::{Health, Kind};
use cobaltcore_kit::http::{Endpoints, Listener};
use cobaltcore_kit::leader::{LeaderConfig, LeaderElector};
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::supervisor::{OnExit, Supervisor};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_kit::watched::{WatchWorker, Watchable, Watched, slim_metadata, watched};
use cobaltcore_openstack::Session;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::watcher;

use crate::clock::Clock;
use crate::cloud::Cloud;
use crate::config::{Config, lease_name};
use crate::context::{Caches, Context};
use crate::error::Error;
use crate::known_fields::{self, KnownFields};
use crate::metrics::Metrics;
use crate::{aggregates, eviction, maintenance, offboarding, onboarding, traits};
use crate::{certificate, gardener, ha, health, network, node, ownership, ready, taint};

/// The namespace of signalling deployments and budgets.
pub(crate) const SIGNAL_NAMESPACE: &str = "kube-system";

/// How often it is told whether the cloud lets us in.
const LOGIN_EVERY: Duration = Duration::from_secs(10);

/// What the operator is started in.
#[derive(Clone)]
pub struct Surroundings {
    /// The cluster.
    pub client: kube::Client,
    /// Where metrics go.
    pub telemetry: Telemetry,
    /// Where health goes.
    pub health: Health,
    /// When to stop.
    pub shutdown: Shutdown,
    /// The time.
    pub clock: Clock,
    /// The cloud; without one, only what concerns Kubernetes alone is looked after.
    pub openstack: Option<Session>,
}

/// Runs the operator until it is told to stop, loses its lease, or cannot go on.
pub async fn run(config: Config, surroundings: Surroundings) -> Result<(), Error> {
    let Surroundings {
        client,
        telemetry,
        health,
        shutdown,
        ..
    } = surroundings.clone();
    let supervisor = Supervisor::new(shutdown.clone(), health, &telemetry);
    listen(&config, &surroundings, &supervisor).await?;
    if !config.leader_elect {
        start(config, &surroundings, &supervisor);
        return Ok(supervisor.join().await?);
    }
    let namespace = match config.leader_elect_namespace.as_str() {
        "" => client.default_namespace().to_owned(),
        namespace => namespace.to_owned(),
    };
    let lease = LeaderConfig::new(namespace, lease_name(&config.label_selector));
    let elector = LeaderElector::new(client, lease)?.with_metrics(&telemetry);
    let work = |leading: cobaltcore_kit::CancellationToken| async move {
        start(config, &surroundings, &supervisor);
        leading.cancelled().await;
        surroundings.shutdown.begin("no longer leading");
        supervisor.join().await
    };
    match elector.run(shutdown.token(), work).await? {
        Some(outcome) => Ok(outcome?),
        None => Ok(()),
    }
}

/// Opens the health and metrics endpoints; `0` leaves one out.
async fn listen(config: &Config, surroundings: &Surroundings, supervisor: &Supervisor) -> Result<(), Error> {
    let Surroundings {
        client,
        telemetry,
        health,
        ..
    } = surroundings;
    if config.health_probe_bind_address != "0" {
        let listener = Listener::bind(&config.health_probe_bind_address).await?;
        serve(supervisor, "health", listener, Endpoints::health(health.clone()));
    }
    if config.metrics_bind_address != "0" {
        let listener = Listener::bind(&config.metrics_bind_address).await?;
        let (listener, endpoints) = if config.metrics_secure {
            let tls = cobaltcore_kit::tls::ServerTls::self_signed(vec!["hypervisor-operator".into()])?;
            let who = KubeAuthorizer::new(client.clone());
            (listener.with_tls(tls), Endpoints::metrics(telemetry.clone(), who))
        } else {
            let anybody = cobaltcore_kit::auth::AllowAll;
            (listener, Endpoints::metrics(telemetry.clone(), anybody))
        };
        serve(supervisor, "metrics", listener, endpoints);
    }
    Ok(())
}

fn serve(supervisor: &Supervisor, name: &str, listener: Listener, endpoints: Endpoints) {
    let mut listener = Some(listener);
    supervisor.spawn(name, OnExit::EndProcess, move |stop| {
        let (listener, endpoints) = (listener.take(), endpoints.clone());
        async move {
            match listener {
                Some(listener) => Ok(listener.serve(endpoints, stop).await?),
                None => Err("the listener is gone".into()),
            }
        }
    });
}

/// Starts caches and controllers.
fn start(config: Config, surroundings: &Surroundings, supervisor: &Supervisor) {
    let Surroundings {
        client,
        telemetry,
        health,
        clock,
        openstack,
        ..
    } = surroundings;
    let caches = fill(&config, client, health, supervisor);
    let (recorder, worker) = events::channel(
        client.clone(),
        Reporter {
            controller: "kvm.cloud.sap/hypervisor-operator".into(),
            instance: std::env::var("HOSTNAME").unwrap_or_else(|_| "hypervisor-operator".into()),
            quiet: Duration::from_mins(10),
        },
    );
    send_events(supervisor, worker);
    let context = Context {
        client: client.clone(),
        fields: KnownFields::default(),
        clock: clock.clone(),
        recorder,
        metrics: Metrics::new(telemetry, &caches.hypervisors, &caches.evictions),
        config: Arc::new(config),
        caches,
    };
    learn_fields(supervisor, &context);
    let controllers = Starter {
        metrics: ControllerMetrics::new(telemetry),
        context,
        health: health.clone(),
        supervisor: supervisor.clone(),
    };
    controllers.start("hypervisor", node::controller);
    controllers.start("certificate", certificate::controller);
    controllers.start("maintenance", gardener::controller);
    controllers.start("ready", ready::controller);
    controllers.start("HypervisorTaint", taint::controller);
    controllers.start("HypervisorInstanceHa", ha::controller);
    controllers.start("network", network::controller);
    let compute = openstack.clone();
    controllers.start_alone("node-health", move |context| {
        health::controller(context, compute.as_ref())
    });
    if let Some(session) = openstack {
        watch_cloud(session, health, supervisor);
        let cloud = Cloud::new(session.clone(), &controllers.context.config);
        start_openstack(&controllers, &cloud);
    } else {
        tracing::warn!("no cloud is configured: hosts are neither onboarded, drained nor offboarded");
    }
}

/// Keeps a check that says whether the cloud lets us in. It stops nobody: the Kubernetes side works
/// without a cloud, and the rest says on its objects what it waits for.
fn watch_cloud(session: &Session, health: &Health, supervisor: &Supervisor) {
    let (session, check) = (session.clone(), health.check("openstack", Kind::Advisory));
    supervisor.spawn("openstack", OnExit::Restart(Backoff::TASK), move |stop| {
        let (session, check) = (session.clone(), check.clone());
        async move {
            loop {
                // Costs a request only when there is no token.
                match session.identity().await {
                    Ok(_) => check.ok(),
                    Err(error) => check.failed(error.to_string()),
                }
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = tokio::time::sleep(LOGIN_EVERY) => {}
                }
            }
        }
    });
}

/// Starts what needs a cloud.
fn start_openstack(controllers: &Starter, cloud: &Cloud) {
    let shared = cloud.clone();
    controllers.start("onboarding", move |context| {
        onboarding::controller(context, &shared)
    });
    let shared = cloud.clone();
    controllers.start("eviction", move |context| eviction::controller(context, &shared));
    let shared = cloud.clone();
    controllers.start("HypervisorMaintenance", move |context| {
        maintenance::controller(context, &shared)
    });
    let shared = cloud.clone();
    controllers.start("offboarding", move |context| {
        offboarding::controller(context, &shared)
    });
    let shared = cloud.clone();
    controllers.start("aggregates", move |context| {
        aggregates::controller(context, &shared)
    });
    let shared = cloud.clone();
    controllers.start("traits", move |context| traits::controller(context, &shared));
}

/// Starts one controller after the other.
struct Starter {
    context: Context,
    metrics: ControllerMetrics,
    health: Health,
    supervisor: Supervisor,
}

impl Starter {
    /// A controller that works on several objects at the same time.
    fn start<R: Reconciler>(
        &self,
        name: &'static str,
        build: impl Fn(&Context) -> SharedRunner<R> + Send + 'static,
    ) {
        self.spawn(name, self.context.config.workers, build);
    }

    /// A controller that works on one object after the other.
    fn start_alone<R: Reconciler>(
        &self,
        name: &'static str,
        build: impl Fn(&Context) -> SharedRunner<R> + Send + 'static,
    ) {
        self.spawn(name, 1, build);
    }

    fn spawn<R: Reconciler>(
        &self,
        name: &'static str,
        workers: u16,
        build: impl Fn(&Context) -> SharedRunner<R> + Send + 'static,
    ) {
        let Self {
            context,
            metrics,
            health,
            supervisor,
        } = self;
        let (context, metrics, health) = (context.clone(), metrics.clone(), health.clone());
        let options = Options {
            workers,
            ..Options::default()
        };
        supervisor.spawn(name, OnExit::Restart(Backoff::TASK), move |stop| {
            let runner = build(&context).options(options);
            let (fields, running) = (
                context.fields.clone(),
                runner.run(metrics.clone(), health.clone(), stop.clone()),
            );
            async move {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = fields.learned() => {}
                }
                running.await
            }
        });
    }
}

fn send_events(supervisor: &Supervisor, worker: EventWorker) {
    let mut worker = Some(worker);
    supervisor.spawn("events", OnExit::EndProcess, move |stop| {
        let worker = worker.take();
        async move {
            match worker {
                Some(worker) => worker.run(stop).await,
                None => Err("the sender of events is gone".into()),
            }
        }
    });
}

/// Keeps what is known of the definitions' fields up to date.
fn learn_fields(supervisor: &Supervisor, context: &Context) {
    let (definitions, fields) = (context.caches.definitions.clone(), context.fields.clone());
    supervisor.spawn("definitions", OnExit::Restart(Backoff::TASK), move |stop| {
        let (mut changes, fields) = (definitions.changes(), fields.clone());
        async move {
            loop {
                let change = tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    change = changes.next() => change,
                };
                match change.as_ref().map(|change| &change.after) {
                    Some(Some(definition)) => fields.read(definition),
                    Some(None) => {}
                    None => return Err("the cache of definitions is gone".into()),
                }
            }
        }
    });
}

/// Starts one watch per kind.
fn fill(config: &Config, client: &kube::Client, health: &Health, supervisor: &Supervisor) -> Caches {
    let all = watcher::Config::default;
    let ours = match config.label_selector.as_str() {
        "" => all(),
        selector => all().labels(selector),
    };
    let signals = all().labels(labels::MAINTENANCE_CONTROLLER.as_str());
    let (definitions, worker) = watched(Api::all(client.clone()), all(), known_fields::slim);
    keep(supervisor, health, worker, None);
    let filler = Filler {
        supervisor,
        health,
        definitions: &definitions,
    };
    Caches {
        nodes: filler.fill(Api::all(client.clone()), ours.clone(), slim_node, None),
        hypervisors: filler.fill(Api::all(client.clone()), ours, ownership::slim, None),
        evictions: filler.fill(Api::all(client.clone()), all(), slim_metadata, None),
        migrations: filler.fill(
            Api::all(client.clone()),
            all(),
            slim_unmanaged,
            Some("migrations.kvm.cloud.sap"),
        ),
        deployments: filler.fill(
            Api::namespaced(client.clone(), SIGNAL_NAMESPACE),
            signals.clone(),
            slim_metadata,
            None,
        ),
        budgets: filler.fill(
            Api::namespaced(client.clone(), SIGNAL_NAMESPACE),
            signals,
            slim_metadata,
            None,
        ),
        certificates: filler.fill(
            Api::namespaced(client.clone(), &config.certificate_namespace),
            all(),
            slim_metadata,
            Some(certificate::DEFINITION),
        ),
        ovs_nodes: filler.fill(
            Api::namespaced(client.clone(), network::NAMESPACE),
            all(),
            slim_unmanaged,
            Some(network::DEFINITION),
        ),
        definitions: definitions.clone(),
    }
}

/// Starts watches.
struct Filler<'a> {
    supervisor: &'a Supervisor,
    health: &'a Health,
    definitions: &'a Watched<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >,
}

impl Filler<'_> {
    /// A cache and its watch; with `needs`, the watch begins when the cluster has that kind.
    fn fill<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        slim: fn(&mut K),
        needs: Option<&'static str>,
    ) -> Watched<K>
    where
        K: Watchable + Debug,
    {
        let (cache, worker) = watched(api, config, slim);
        let needs = needs.map(|kind| (self.definitions.clone(), kind));
        keep(self.supervisor, self.health, worker, needs);
        cache
    }
}

type Needs = (
    Watched<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>,
    &'static str,
);

/// Runs a watch for as long as the process lives.
fn keep<K: Watchable>(
    supervisor: &Supervisor,
    health: &Health,
    worker: WatchWorker<K>,
    needs: Option<Needs>,
) {
    let (mut worker, health) = (Some(worker), health.clone());
    let name = format!("watch-{}", K::plural(&()));
    supervisor.spawn(&name, OnExit::EndProcess, move |stop| {
        let (worker, health, needs) = (worker.take(), health.clone(), needs.clone());
        async move {
            let Some(worker) = worker else {
                return Err("the watch is gone".into());
            };
            if let Some((definitions, kind)) = needs {
                let mut changes = definitions.changes();
                while definitions.get(kind).is_none() {
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        change = changes.next() => if change.is_none() { return Ok(()) },
                    }
                }
            }
            worker.run(health, stop).await
        }
    });
}

/// Keeps of a Node what is read: the list of its images is most of it.
fn slim_node(node: &mut Node) {
    slim_metadata(node);
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_in_use = None;
        status.volumes_attached = None;
        status.node_info = None;
    }
}

fn slim_unmanaged<K: kube::Resource<DynamicType = ()>>(object: &mut K) {
    slim_metadata(object);
    object.meta_mut().managed_fields = None;
}
