// SPDX-License-Identifier: Apache-2.0
//! A server's life: open the store, make the keys, fill in what every cluster begins with, listen,
//! and stop without losing anything. Several may live in one process.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use cobaltcore_access::AccessError;
use cobaltcore_access::identity::User;
use cobaltcore_access::pki::{KubeconfigEntry, Pki, PkiOptions, merge_kubeconfig, write_kubeconfig};
use cobaltcore_access::rbac::Index;
use cobaltcore_access::recorder::Recorder;
use cobaltcore_access::tokens::{Authenticator, StaticTokens};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::audit::Audit;
use crate::client::InProcess;
use crate::clock::Clock;
use crate::config::{Authorization, Config};
use crate::definitions;
use crate::listen;
use crate::registry::{Registry, Resource};
use crate::store::{Durability, Keys, Op, Store, StoreError, StoreOptions};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration contradicts itself; every problem is listed.
    #[error("{}", .0.join("\n"))]
    Config(Vec<String>),
    /// Another process has the data directory.
    #[error("{} is in use by another process; stop it or choose another --data-dir", .0.display())]
    InUse(PathBuf),
    /// A file or socket could not be used.
    #[error("cannot {action} {what}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Keys, certificates or tokens.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Bootstrap or manifests failed.
    #[error("{0}")]
    Start(String),
}

impl ServerError {
    /// The exit code of a process that fails for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Store(StoreError::Keys(_) | StoreError::Sealed { .. }) => 2,
            Self::InUse(_) => 3,
            Self::Store(StoreError::Damaged { .. } | StoreError::Corrupt(_) | StoreError::Newer { .. }) => 4,
            _ => 1,
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    api: Arc<Api>,
    pki: Arc<Pki>,
    addresses: Vec<SocketAddr>,
    kubeconfig: Option<PathBuf>,
    tasks: Option<JoinSet<()>>,
    _lock: Option<File>,
}

impl Server {
    /// Starts a server and returns when it answers.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        check(&config)?;
        let lock = config.data_dir.as_deref().map(claim).transpose()?;
        let mut listeners = Vec::new();
        for address in &config.listen {
            let listener = listen::bind(*address, config.port_given)
                .await
                .map_err(|source| ServerError::Io {
                    action: "listen on",
                    what: address.to_string(),
                    source,
                })?;
            listeners.push(listener);
        }
        let addresses: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
        let pki = Arc::new(open_pki(&config, &addresses)?);
        let api = Arc::new(open_api(config, &pki)?);
        api.port.store(
            addresses.first().map_or(0, |a| u64::from(a.port())),
            Ordering::Relaxed,
        );
        prepare(&api).await?;
        api.store.harden()?;
        let mut tasks = JoinSet::new();
        crate::control::spawn(&api, &mut tasks);
        let tls = tls_config(&pki)?;
        for listener in listeners {
            tasks.spawn(listen::serve_tls(api.clone(), listener, tls.clone()));
        }
        if let Some(path) = &api.config.unix_socket {
            let listener = listen::bind_unix(path).map_err(|source| ServerError::Io {
                action: "listen on",
                what: path.display().to_string(),
                source,
            })?;
            tasks.spawn(listen::serve_unix(api.clone(), listener));
        }
        api.ready.store(true, Ordering::Release);
        let mut server = Self {
            api,
            pki,
            addresses,
            kubeconfig: None,
            tasks: Some(tasks),
            _lock: lock,
        };
        server.publish_kubeconfig()?;
        Ok(server)
    }

    fn publish_kubeconfig(&mut self) -> Result<(), ServerError> {
        let config = &self.api.config;
        let path = config
            .kubeconfig
            .clone()
            .or_else(|| config.data_dir.as_ref().map(|d| d.join("kubeconfig")));
        if let (Some(path), Some(url)) = (path, self.url()) {
            write_kubeconfig(&path, &self.kubeconfig_entry(&url))?;
            if let Some(own) = &config.kubeconfig_merge {
                merge_kubeconfig(own, &self.kubeconfig_entry(&url))?;
            }
            self.kubeconfig = Some(path);
        }
        Ok(())
    }

    /// What a kubeconfig says about this server, for its administrator.
    pub fn kubeconfig_entry<'a>(&'a self, url: &'a str) -> KubeconfigEntry<'a> {
        KubeconfigEntry {
            name: &self.api.config.context,
            server: url,
            ca_pem: self.pki.ca_pem(),
            token: self.pki.admin_token(),
            namespace: None,
        }
    }

    /// Writes one kubeconfig with a context for each of several servers, of which the first is the current one.
    pub fn share_kubeconfig(path: &Path, servers: &[Self]) -> Result<(), ServerError> {
        for (at, server) in servers.iter().enumerate() {
            let Some(url) = server.url() else { continue };
            let write = if at == 0 {
                write_kubeconfig
            } else {
                merge_kubeconfig
            };
            write(path, &server.kubeconfig_entry(&url))?;
        }
        Ok(())
    }

    /// Where the admin kubeconfig was written.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// The URL of the first listener.
    pub fn url(&self) -> Option<String> {
        self.addresses.first().map(|address| {
            let ip = address.ip();
            if ip.is_unspecified() {
                format!("https://127.0.0.1:{}", address.port())
            } else {
                format!("https://{address}")
            }
        })
    }

    /// The addresses listened on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The state behind the listener.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// Keys and certificates.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// A client inside this process that acts as `user`: no network, no TLS, still authorised.
    pub fn client_as(&self, user: User) -> InProcess {
        InProcess::new(self.api.clone(), user)
    }

    /// Applies an object as the server itself (server-side apply, manager `cobaltcore-bootstrap`).
    pub async fn apply(&self, object: &serde_json::Value) -> Result<(), String> {
        crate::manifests::apply_one(&self.api, object).await
    }

    /// Applies every document of a YAML text, as [`Self::apply`] does.
    pub async fn apply_yaml(&self, text: &str) -> Result<(), String> {
        for document in crate::yaml::decode_all(text.as_bytes())? {
            self.apply(&document.value).await?;
        }
        Ok(())
    }

    /// Serves the webhooks of a service inside this process: calls for it need no network, no
    /// certificate and no Service object.
    pub fn register_webhook(
        &self,
        namespace: &str,
        name: &str,
        path: &str,
        handler: crate::admission::Handler,
    ) {
        self.api.register_webhook(namespace, name, path, handler);
    }

    /// Waits until something stops the server.
    pub async fn stopped(&self) {
        self.api.stop.cancelled().await;
    }

    /// Stops: readiness fails, watches end, running requests finish, everything is on disk.
    pub async fn stop(mut self) {
        self.api.ready.store(false, Ordering::Release);
        self.api.end();
        if let Some(mut tasks) = self.tasks.take() {
            while tasks.join_next().await.is_some() {}
        }
        let api = self.api.clone();
        let _ = tokio::task::spawn_blocking(move || api.store.close()).await;
        if let Some(path) = &self.api.config.unix_socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.api.end();
    }
}

/// Everything wrong with a configuration, at once.
fn check(config: &Config) -> Result<(), ServerError> {
    let mut problems = Vec::new();
    let exposed = config.listen.iter().filter(|a| !a.ip().is_loopback());
    for address in exposed {
        tracing::warn!(%address, "listening beyond this machine");
        if config.authorization == Authorization::AlwaysAllow {
            problems.push(format!(
                "--authorization always-allow is refused on {address}: it is reachable from other machines"
            ));
        }
    }
    if !(8..=30).contains(&config.service_cidr.1) {
        problems.push(format!(
            "--service-cidr /{}: the prefix must be between 8 and 30",
            config.service_cidr.1
        ));
    }
    if config.node_ports.0 == 0 || config.node_ports.0 > config.node_ports.1 {
        problems.push(format!(
            "--node-ports {}-{}: the range is empty",
            config.node_ports.0, config.node_ports.1
        ));
    }
    if config.max_request_bytes < 1024 {
        problems.push(format!(
            "--max-request-bytes {}: at least 1024 are needed",
            config.max_request_bytes
        ));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ServerError::Config(problems))
    }
}

/// Takes the data directory for this process.
fn claim(dir: &Path) -> Result<File, ServerError> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let io = |action: &'static str, path: &Path| {
        let what = path.display().to_string();
        move |source| ServerError::Io { action, what, source }
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io("create", dir))?;
    cobaltcore_access::pki::check_private_dir(dir)?;
    let path = dir.join("lock");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(io("open", &path))?;
    match rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(ServerError::InUse(dir.to_owned())),
    }
}

fn open_pki(config: &Config, addresses: &[SocketAddr]) -> Result<Pki, ServerError> {
    let options = PkiOptions {
        sans: config.tls_sans.clone(),
        bind: addresses.iter().map(SocketAddr::ip).collect(),
        service_ip: Some(config.service_ip().into()),
    };
    Ok(match &config.data_dir {
        Some(dir) => Pki::open_or_create(&dir.join("pki"), &options)?,
        None => Pki::ephemeral(&options)?,
    })
}

fn open_api(config: Config, pki: &Arc<Pki>) -> Result<Api, ServerError> {
    let keys = match &config.encryption_key_file {
        None => Arc::default(),
        Some(path) => Arc::new(Keys::read(path)?),
    };
    let store = Store::open(&StoreOptions {
        path: config.data_dir.as_ref().map(|d| d.join("state.db")),
        durability: if config.data_dir.is_some() {
            config.durability
        } else {
            Durability::None
        },
        history: config.history,
        keys,
    })?;
    let mut authenticator = Authenticator::new(pki.admin_token(), pki.sa_key());
    if let Some(path) = &config.token_file {
        authenticator = authenticator.with_static_tokens(StaticTokens::read(path)?);
    }
    let audit = match &config.audit_log {
        None => Audit::default(),
        Some(path) => Audit::open(path).map_err(|source| ServerError::Io {
            action: "open",
            what: path.display().to_string(),
            source,
        })?,
    };
    let registry = builtin_types(&store)?;
    Ok(Api {
        config,
        store,
        registry: ArcSwap::from_pointee(registry),
        rbac: ArcSwap::from_pointee(Index::new()),
        recorder: Recorder::new(),
        authenticator,
        webhooks: crate::admission::Webhooks::default(),
        policies: crate::admission::Policies::default(),
        owners: crate::control::owners::Owners::default(),
        clock: Clock::default(),
        metrics: crate::metrics::Metrics::default(),
        openapi: crate::openapi::OpenApi::default(),
        faults: crate::faults::Faults::default(),
        audit,
        definitions: tokio::sync::Mutex::new(()),
        allocations: tokio::sync::Mutex::new(()),
        quotas: tokio::sync::Mutex::new(()),
        queue: crate::control::queue::Queue::default(),
        leaving: parking_lot::Mutex::default(),
        impersonations: cobaltcore_access::impersonation::LastModes::default(),
        second_looks: parking_lot::Mutex::default(),
        stop: CancellationToken::new(),
        ready: AtomicBool::new(false),
        inflight: [AtomicI64::new(0), AtomicI64::new(0)],
        watches: AtomicI64::new(0),
        pki: pki.clone(),
        port: AtomicU64::new(0),
    })
}

/// The built-in kinds, each with its table.
fn builtin_types(store: &Store) -> Result<Registry, ServerError> {
    let kinds = cobaltcore_builtins::kinds();
    let wanted: Vec<(String, String)> = kinds
        .iter()
        .map(|k| (k.storage_group.to_owned(), k.plural.to_owned()))
        .collect();
    let tables = store.register(wanted)?;
    let resources = kinds
        .iter()
        .zip(tables)
        .map(|(kind, table)| Arc::new(Resource::builtin(kind, table)));
    Ok(Registry::new(resources, 1))
}

/// Brings derived state in step with the store, keeps it there, and fills in the beginning.
async fn prepare(api: &Arc<Api>) -> Result<(), ServerError> {
    for definition in definitions::stored_definitions(api).values() {
        api.load_definition(definition);
    }
    api.load_derived();
    let watcher = Arc::downgrade(api);
    api.store.observe(Box::new(move |table, event| {
        if let Some(api) = watcher.upgrade() {
            api.committed(table, event);
        }
    }));
    api.bootstrap()
        .await
        .map_err(|e| ServerError::Start(format!("bootstrap: {e}")))?;
    if let Some(dir) = api.config.manifests.clone() {
        crate::manifests::apply(api, &dir)
            .await
            .map_err(ServerError::Start)?;
    }
    Ok(())
}

fn tls_config(pki: &Pki) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.ca_der().clone())?;
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|e| ServerError::Start(format!("cannot set up client certificates: {e}")))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pki.cert_chain(), pki.server_key())?;
    tls.alpn_protocols = vec![crate::listen::HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

impl Api {
    /// Keeps everything derived from objects in step with a commit. Runs in the writer,
    /// before the client is answered, so the next request already sees the effect.
    fn committed(&self, table: crate::store::TypeId, event: &Arc<crate::store::Event>) {
        let Some(table) = self.store.by_id(table) else {
            return;
        };
        match (&*table.group, &*table.plural) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.definition_changed(event),
            ("rbac.authorization.k8s.io", plural) => self.rights_changed(plural, event),
            ("admissionregistration.k8s.io", _) => {
                self.webhooks.changed(&table, event);
                self.policies.changed(&table, event);
            }
            _ => {}
        }
        self.owners.observe(table.id, event);
        self.controllers_observe(&table, event);
    }

    fn rights_changed(&self, plural: &str, event: &crate::store::Event) {
        let kind = match plural {
            "roles" => "Role",
            "clusterroles" => "ClusterRole",
            "rolebindings" => "RoleBinding",
            _ => "ClusterRoleBinding",
        };
        let mut index = (**self.rbac.load()).clone();
        match event.op {
            Op::Deleted => index.remove(kind, &event.key.namespace, &event.key.name),
            _ => index.upsert(kind, &event.key.namespace, &event.key.name, &event.new.parse()),
        }
        self.rbac.store(Arc::new(index));
    }

    /// Builds everything derived from what the store already holds.
    fn load_derived(&self) {
        let mut index = Index::new();
        for (plural, kind) in [
            ("roles", "Role"),
            ("clusterroles", "ClusterRole"),
            ("rolebindings", "RoleBinding"),
            ("clusterrolebindings", "ClusterRoleBinding"),
        ] {
            for object in self.objects("rbac.authorization.k8s.io", plural, None) {
                index.upsert(
                    kind,
                    crate::meta::namespace(&object),
                    crate::meta::name(&object),
                    &object,
                );
            }
        }
        self.rbac.store(Arc::new(index));
        self.webhooks.load(self);
        self.policies.load(self);
        for table in self.store.tables() {
            self.owners.load(&table);
        }
        self.resume_controllers();
    }
}
