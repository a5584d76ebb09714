// SPDX-License-Identifier: Apache-2.0
//! Puts the service together and runs it until it is told to end. Everything it opens is opened
//! before anything runs, so what is wrong with a configuration is known at the start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Engine, Input, Notice, Observation};
use cobaltcore_kit::auth::AllowAll;
use cobaltcore_kit::events::{self, Reporter};
use cobaltcore_kit::health::{Health, Kind};
use cobaltcore_kit::http::{Endpoints, Listener};
use cobaltcore_kit::leader::LeaderConfig;
use cobaltcore_kit::retry::Backoff;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::supervisor::{OnExit, Supervisor};
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_kit::tls::{ServerFiles, ServerTls};
use cobaltcore_kit::watched::watched;
use cobaltcore_openstack::Session;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::watcher;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::act::Executor;
use crate::brain::{self, Brain, Parts};
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::commands::Commands;
use crate::config::Config;
use crate::deps::Deps;
use crate::directory::Directory;
use crate::error::Error;
use crate::heard::Heard;
use crate::http::{ApiListener, App, Door, Port};
use crate::journal::{FileJournal, Journal, ObjectJournal};
use crate::leadership::{Campaign, Leadership};
use crate::maintenance::LocalMaintenance;
use crate::metrics::Metrics;
use crate::mirror::{Mirror, Objects};
use crate::pauses::PauseBook;
use crate::peers::{Peers, own_ordinal};
use crate::probe::Investigator;
use crate::reload;
use crate::settings::{InForce, engine_config};
use crate::store::{Durability, Store};
use crate::switches::Switches;
use crate::tasks::canaries::Canaries;
use crate::tasks::cluster::{self, Caches};
use crate::tasks::fences::{self, FenceChecks};
use crate::tasks::notices::Teller;
use crate::tasks::nova::{LastAnswer, NovaWatch};
use crate::tasks::preflight::Preflight;
use crate::tasks::{cover, facts, housekeeping, past, pulls, released, reservations};

/// How long the loop may go without a tick. It makes several a second.
const LOOP_HANGS: Duration = Duration::from_secs(30);

/// What the process brings along.
pub struct Surroundings {
    /// The cluster; must be there if the configuration wants one.
    pub client: Option<kube::Client>,
    /// The cloud; must be there if the configuration wants one.
    pub openstack: Option<Session>,
    /// Where figures are shown.
    pub telemetry: Telemetry,
    /// Where health is shown.
    pub health: Health,
    /// When to end.
    pub shutdown: Shutdown,
    /// The host this process runs on, if it is one of those it looks after.
    pub own_host: Option<HostName>,
    /// The namespace this process runs in.
    pub namespace: String,
}

/// Runs the service until `surroundings.shutdown` begins.
pub async fn run(config: Config, surroundings: Surroundings) -> Result<(), Error> {
    Service::prepare(config, surroundings).await?.run().await
}

/// A service that listens but does not run yet.
pub struct Service {
    app: Arc<App>,
    brain: Brain,
    notices: mpsc::Receiver<Notice>,
    campaign: Campaign,
    executor: Executor,
    surroundings: Surroundings,
    api: ApiListener,
    legacy: Option<ApiListener>,
    metrics: Option<Listener>,
    file: Option<Followed>,
}

/// The file whose changes are followed, and what the process does about a level of logging in it.
struct Followed {
    path: PathBuf,
    relog: Box<dyn Fn(&str) + Send + Sync>,
}

impl Service {
    /// Opens everything.
    pub async fn prepare(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        check_surroundings(&config, &surroundings)?;
        let in_force = InForce::new(config);
        let config = in_force.get();
        let me = own_ordinal(&config)?;
        let folder = PathBuf::from(&config.storage.path);
        let durability = if config.replicas() > 1 {
            Durability::Normal
        } else {
            Durability::Full
        };
        let clock = Clock::new();
        let metrics = Metrics::new(&surroundings.telemetry);
        let store = Store::open(&folder, durability)?;
        metrics.db_up.set(1);
        let local_maintenance = LocalMaintenance::open(&folder)?;
        let journal = open_journal(&config, &surroundings)?;
        let (brain, ends) = brain::channels();
        let directory = Directory::default();
        for (host, enabled) in facts::remembered(&store).await.unwrap_or_default() {
            directory.remember(&host, enabled);
        }
        let disks = facts::disks_outside_ceph(&store).await.unwrap_or_default();
        directory.outside_ceph.remember(disks);
        let commands = Commands::default();
        let peers = Peers::new(&config, me)?;
        let investigator = Investigator {
            me,
            clock,
            directory: directory.clone(),
            commands: commands.clone(),
            peers: peers.clone(),
            in_force: in_force.clone(),
            inputs: brain.inputs().clone(),
        };
        let (pauses, switches) = match &surroundings.client {
            Some(client) if config.journal_in_kubernetes() => {
                let (place, name) = (namespace(&config, &surroundings), &config.leader.name);
                let told = (brain.clone(), metrics.clone());
                (
                    PauseBook::in_cluster(client.clone(), &place, name, told.0, told.1),
                    Switches::in_cluster(client.clone(), &place, name, store.clone(), directory.clone()),
                )
            }
            _ => (
                PauseBook::in_database(store.clone(), brain.clone(), metrics.clone()),
                Switches::in_database(store.clone(), directory.clone()),
            ),
        };
        let leadership = Leadership::default();
        let executor = Executor::new(Deps {
            in_force: in_force.clone(),
            brain: brain.clone(),
            clock,
            directory: directory.clone(),
            openstack: surroundings.openstack.clone(),
            kubernetes: surroundings.client.clone().filter(|_| config.kubernetes.enabled),
            local_maintenance: local_maintenance.clone(),
            commands: commands.clone(),
            investigator: investigator.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
        })?;
        let failed = Arc::new(Notify::new());
        let chronicle = Chronicle::default();
        let (looped, notices) = Brain::new(Parts {
            engine: Engine::new(engine_config(&config), me),
            clock,
            journal: journal.clone(),
            executor: executor.clone(),
            chronicle: chronicle.clone(),
            metrics: metrics.clone(),
            ends,
            failed: Arc::clone(&failed),
            renew_deadline: config.leader.renew_deadline.0,
        });
        let campaign = Campaign {
            election: election(&config, &surroundings),
            journal,
            brain: brain.clone(),
            clock,
            leadership,
            failed,
            terms: executor.terms().clone(),
            renew_deadline: config.leader.renew_deadline.0,
            metrics: metrics.clone(),
            telemetry: surroundings.telemetry.clone(),
        };
        let (api, legacy, metrics_listener) = listeners(&config).await?;
        let app = Arc::new(App {
            door: Door::new(&config),
            in_force,
            clock,
            store,
            brain,
            chronicle,
            directory,
            commands,
            heard: Heard::default(),
            pauses,
            switches,
            local_maintenance,
            peers,
            investigator,
            preflight: Preflight::default(),
            metrics,
        });
        Ok(Self {
            file: None,
            app,
            brain: looped,
            notices,
            campaign,
            executor,
            surroundings,
            api,
            legacy,
            metrics: metrics_listener,
        })
    }

    /// Reads its configuration again whenever the file at `path` changes.
    #[must_use]
    pub fn following(self, path: impl Into<PathBuf>) -> Self {
        self.following_with(path, |_| {})
    }

    /// The same, and has `relog` change what is logged when `log.level` changes.
    #[must_use]
    pub fn following_with(
        mut self,
        path: impl Into<PathBuf>,
        relog: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        self.file = Some(Followed {
            path: path.into(),
            relog: Box::new(relog),
        });
        self
    }

    /// One that never runs: it fetches nothing, and nobody takes what its engine is told.
    #[cfg(test)]
    pub(crate) async fn still(folder: &std::path::Path, more: &str) -> Self {
        let text = format!(
            "server: {{listen: '127.0.0.1:0', metrics_listen: '127.0.0.1:0'}}\nstorage: {{path: '{}'}}\n\
             access: {{senders: {{prom: [{}]}}}}\nkubernetes: {{enabled: false}}\nleader: {{enabled: false}}\n\
             openstack: {{enabled: false}}\n{more}",
            folder.display(),
            "0".repeat(64),
        );
        let component = cobaltcore_kit::startup::Component {
            name: "kvm-ha-service",
            version: "0",
            commit: "none",
        };
        let surroundings = Surroundings {
            client: None,
            openstack: None,
            telemetry: Telemetry::new(&component),
            health: Health::new(),
            shutdown: Shutdown::new(Duration::from_secs(5)),
            own_host: None,
            namespace: "default".into(),
        };
        let config = Config::parse("test.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        Self::prepare(config, surroundings).await.unwrap()
    }

    /// What its handlers work with.
    #[cfg(test)]
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Where the API is.
    pub fn address(&self) -> SocketAddr {
        self.api.address()
    }

    /// Where the legacy call is, if it has its own place.
    pub fn legacy_address(&self) -> Option<SocketAddr> {
        self.legacy.as_ref().map(ApiListener::address)
    }

    /// Where health and metrics are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Listener::address)
    }

    /// Runs until the shutdown begins and the tasks are done.
    pub async fn run(self) -> Result<(), Error> {
        let Self {
            app,
            brain,
            notices,
            campaign,
            executor,
            surroundings,
            api,
            legacy,
            metrics,
            file,
        } = self;
        let Surroundings {
            client,
            openstack,
            telemetry,
            health,
            shutdown,
            own_host,
            ..
        } = surroundings;
        let supervisor = Supervisor::new(shutdown, health.clone(), &telemetry);
        let tasks = Tasks {
            supervisor: &supervisor,
        };
        let ready = health.check("database", Kind::Ready);
        ready.ok();
        let heart = health.heartbeat("loop-progress", LOOP_HANGS);
        tasks.once("loop", move |stop| brain.run(heart, stop));
        if let Some(host) = own_host {
            app.brain.tell(Input::Saw(Observation::OwnHost(host))).await;
        }
        let served = Arc::clone(&app);
        tasks.once("api", move |stop| async move { api.serve(served, stop).await });
        if let Some(legacy) = legacy {
            let served = Arc::clone(&app);
            tasks.once("legacy-api", move |stop| async move {
                legacy.serve(served, stop).await;
            });
        }
        if let Some(listener) = metrics {
            let endpoints = Endpoints::health(health.clone()).and_metrics(telemetry.clone(), AllowAll);
            tasks.once("metrics", move |stop| async move {
                if let Err(error) = listener.serve(endpoints, stop).await {
                    tracing::error!(%error, "health and metrics are not served any more");
                }
            });
        }
        if let Some(Followed { path, relog }) = file {
            let (shared, acting) = (Arc::clone(&app), executor.clone());
            tasks.once("configuration", move |stop| {
                reload::follow(path, shared, acting, relog, stop)
            });
        }
        let answered = LastAnswer::default();
        let ready = health.check("journal", Kind::Ready);
        let (shared, journal) = (Arc::clone(&app), campaign.journal.clone());
        tasks.once("follower", move |stop| {
            housekeeping::follow(shared, journal, ready, stop)
        });
        tasks.of_the_service(&app, &campaign, client.clone(), openstack.clone(), &answered);
        if let Some(session) = openstack.clone() {
            tasks.of_the_cloud(&app, session, executor.clone(), answered);
        }
        let checks = FenceChecks::default();
        let (shared, known) = (Arc::clone(&app), checks.clone());
        tasks.once("fences", move |stop| {
            fences::check(
                known,
                shared.in_force.clone(),
                executor,
                shared.directory.clone(),
                shared.metrics.clone(),
                stop,
            )
        });
        let client = client.filter(|_| app.config().kubernetes.enabled);
        let caches = client
            .clone()
            .map(|client| tasks.of_the_cluster(&app, client, checks, &health));
        let objects = Objects::default();
        if let Some(client) = client.clone() {
            let mirror = Mirror::new(Arc::clone(&app), client, objects.clone());
            tasks.once("incidents", move |stop| mirror.run(stop));
        }
        if let Some(client) = client.clone() {
            let shared = Arc::clone(&app);
            tasks.once("reservations", move |stop| {
                reservations::keep(shared, client, stop)
            });
        }
        let teller = Teller {
            app: Arc::clone(&app),
            cluster: caches,
            objects,
            client,
            openstack,
        };
        tasks.once(
            "notices",
            move |stop| async move { teller.run(notices, stop).await },
        );
        let leading = campaign.clone();
        supervisor.spawn("leadership", OnExit::Restart(Backoff::TASK), move |stop| {
            leading.clone().run(stop)
        });
        supervisor.join().await?;
        Ok(())
    }
}

/// Starts tasks.
struct Tasks<'a> {
    supervisor: &'a Supervisor,
}

impl Tasks<'_> {
    /// A task without which the process is of no use.
    fn once<F, Fut>(&self, name: &str, start: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let mut start = Some(start);
        self.supervisor.spawn(name, OnExit::EndProcess, move |stop| {
            let start = start.take();
            async move {
                if let Some(start) = start {
                    start(stop).await;
                }
                Ok(())
            }
        });
    }

    fn of_the_service(
        &self,
        app: &Arc<App>,
        campaign: &Campaign,
        client: Option<kube::Client>,
        openstack: Option<Session>,
        answered: &LastAnswer,
    ) {
        let shared = Arc::clone(app);
        self.once("facts", move |stop| {
            facts::tell(
                shared.in_force.clone(),
                shared.directory.clone(),
                shared.local_maintenance.clone(),
                shared.brain.clone(),
                shared.store.clone(),
                stop,
            )
        });
        let (heard, store) = (app.heard.clone(), app.store.clone());
        self.once("heartbeats", move |stop| heard.keep(store, stop));
        let pauses = app.pauses.clone();
        self.once("pauses", move |stop| pauses.keep(stop));
        let switches = app.switches.clone();
        self.once("switches", move |stop| switches.keep(stop));
        let (peers, brain) = (app.peers.clone(), app.brain.clone());
        self.once("peers", move |stop| peers.listen(brain, stop));
        let shared = Arc::clone(app);
        self.once("janitor", move |stop| housekeeping::clean(shared, stop));
        let (shared, journal) = (Arc::clone(app), campaign.journal.clone());
        self.once("journal-cut", move |stop| {
            housekeeping::cut(shared, journal, stop)
        });
        let shared = Arc::clone(app);
        self.once("past", move |stop| past::keep(shared, stop));
        let shared = Arc::clone(app);
        self.once("figures", move |stop| housekeeping::figures(shared, stop));
        let canaries = Canaries {
            kubernetes: client.filter(|_| app.config().kubernetes.enabled),
            nova: openstack.is_some().then(|| answered.clone()),
            keystone: openstack,
            in_force: app.in_force.clone(),
            clock: app.clock,
            brain: app.brain.clone(),
        };
        self.once("canaries", move |stop| canaries.run(stop));
        let shared = Arc::clone(app);
        self.once("preflight", move |stop| {
            shared
                .preflight
                .clone()
                .keep(shared.in_force.clone(), shared.metrics.clone(), stop)
        });
        let shared = Arc::clone(app);
        self.once("pulls", move |stop| pulls::keep(shared, stop));
    }

    fn of_the_cloud(&self, app: &Arc<App>, session: Session, executor: Executor, answered: LastAnswer) {
        let watch = NovaWatch {
            session,
            in_force: app.in_force.clone(),
            executor,
            clock: app.clock,
            directory: app.directory.clone(),
            heard: app.heard.clone(),
            brain: app.brain.clone(),
            store: app.store.clone(),
            answered,
        };
        self.once("nova", move |stop| watch.run(stop));
    }

    fn of_the_cluster(
        &self,
        app: &Arc<App>,
        client: kube::Client,
        checks: FenceChecks,
        health: &Health,
    ) -> (
        cobaltcore_kit::events::Recorder,
        cobaltcore_kit::watched::Watched<Hypervisor>,
    ) {
        let config = watcher::Config::default().labels(&app.config().kubernetes.label_selector);
        let (hypervisors, worker) = watched(Api::<Hypervisor>::all(client.clone()), config, |_| {});
        let checked = health.clone();
        self.worker("hypervisors", move |stop| worker.run(checked, stop));
        let (nodes, worker) = watched(
            Api::<Node>::all(client.clone()),
            watcher::Config::default(),
            slim_node,
        );
        let checked = health.clone();
        self.worker("nodes", move |stop| worker.run(checked, stop));
        let leases = app.config().kubernetes.node_lease.then(|| {
            let api = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
            let (leases, worker) = watched(api, watcher::Config::default(), |_| {});
            let checked = health.clone();
            self.worker("node-leases", move |stop| worker.run(checked, stop));
            leases
        });
        if let Some(leases) = leases.clone() {
            let brain = app.brain.clone();
            self.once("leases", move |stop| cluster::leases(leases, brain, stop));
        }
        let caches = Caches {
            hypervisors: hypervisors.clone(),
            nodes,
            leases,
        };
        let directory = app.directory.clone();
        self.once("cluster", move |stop| cluster::fill(caches, directory, stop));
        let (shared, watched, writer) = (Arc::clone(app), hypervisors.clone(), client.clone());
        self.once("cover", move |stop| {
            cover::keep(shared, watched, writer, checks, stop)
        });
        let (shared, watched, writer) = (Arc::clone(app), hypervisors.clone(), client.clone());
        self.once("released", move |stop| {
            released::keep(shared, watched, writer, stop)
        });
        let reporter = Reporter {
            controller: "kvm.cloud.sap/ha-service".into(),
            instance: std::env::var("HOSTNAME").unwrap_or_else(|_| "kvm-ha-service".into()),
            quiet: Duration::from_secs(60),
        };
        let (recorder, worker) = events::channel(client, reporter);
        self.worker("events", move |stop| worker.run(stop));
        (recorder, hypervisors)
    }

    fn worker<F, Fut>(&self, name: &str, start: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), cobaltcore_kit::BoxError>> + Send + 'static,
    {
        let mut start = Some(start);
        self.supervisor.spawn(name, OnExit::EndProcess, move |stop| {
            let start = start.take();
            async move {
                match start {
                    Some(start) => start(stop).await,
                    None => Ok(()),
                }
            }
        });
    }
}

/// What of nodes nobody here reads.
fn slim_node(node: &mut Node) {
    node.metadata.managed_fields = None;
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        status.images = None;
    }
}

fn check_surroundings(config: &Config, surroundings: &Surroundings) -> Result<(), Error> {
    if config.kubernetes.enabled && surroundings.client.is_none() {
        return Err(Error::Setup(
            "there is no cluster, but kubernetes.enabled is true: set it to false, or give a kubeconfig"
                .into(),
        ));
    }
    if config.openstack.enabled && surroundings.openstack.is_none() {
        return Err(Error::Setup(
            "there is no cloud: set OS_* variables or openstack.cloud; or set openstack.enabled to false, and nothing is ever brought back"
                .into(),
        ));
    }
    Ok(())
}

fn namespace(config: &Config, surroundings: &Surroundings) -> String {
    if config.leader.namespace.is_empty() {
        surroundings.namespace.clone()
    } else {
        config.leader.namespace.clone()
    }
}

fn open_journal(config: &Config, surroundings: &Surroundings) -> Result<Journal, Error> {
    match &surroundings.client {
        Some(client) if config.journal_in_kubernetes() => Ok(Journal::Objects(Box::new(ObjectJournal::new(
            client.clone(),
            &namespace(config, surroundings),
            &config.leader.name,
        )))),
        _ => Ok(Journal::File(FileJournal::open(&PathBuf::from(
            &config.storage.path,
        ))?)),
    }
}

fn election(config: &Config, surroundings: &Surroundings) -> Option<(kube::Client, LeaderConfig)> {
    let client = surroundings.client.clone().filter(|_| config.leader.enabled)?;
    let election = LeaderConfig {
        lease_duration: config.leader.lease_duration.0,
        renew_deadline: config.leader.renew_deadline.0,
        retry_period: config.leader.retry_period.0,
        // What another leader began may still be under way, also if it gave the lease back.
        patient: true,
        ..LeaderConfig::new(namespace(config, surroundings), &config.leader.name)
    };
    Some((client, election))
}

async fn listeners(config: &Config) -> Result<(ApiListener, Option<ApiListener>, Option<Listener>), Error> {
    let files = &config.server.tls;
    let tls = if files.cert_file.is_empty() {
        None
    } else {
        let client_ca =
            Some(PathBuf::from(&files.client_ca_file)).filter(|path| !path.as_os_str().is_empty());
        let files = ServerFiles {
            certificate: PathBuf::from(&files.cert_file),
            key: PathBuf::from(&files.key_file),
            client_ca,
        };
        Some(ServerTls::open_to_all(&files, &["h2", "http/1.1"])?)
    };
    let api = ApiListener::bind(&config.server.listen, tls.clone(), Port::Api).await?;
    let legacy = match config.server.legacy_listen.as_str() {
        "" => None,
        address => Some(ApiListener::bind(address, tls, Port::Legacy).await?),
    };
    let metrics = match config.server.metrics_listen.as_str() {
        "" => None,
        address => Some(Listener::bind(address).await?),
    };
    Ok((api, legacy, metrics))
}
