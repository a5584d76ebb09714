// SPDX-License-Identifier: Apache-2.0
//! The server's state, shared by every request: the store, the served types, who may do what.
//! Handlers are methods of [`Api`] spread over the modules of this crate.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use cobaltcore_access::identity::User;
use cobaltcore_access::impersonation::LastModes;
use cobaltcore_access::pki::Pki;
use cobaltcore_access::rbac::{Attributes, Decision, Index};
use cobaltcore_access::recorder::Recorder;
use cobaltcore_access::tokens::Authenticator;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::admission::{Policies, Webhooks};
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::{Authorization, Config};
use crate::control::owners::Owners;
use crate::control::queue::Queue;
use crate::faults::Faults;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Expect, Key, Record, Store, StoreError, Table};

/// The server without its listener.
#[derive(Debug)]
pub struct Api {
    /// How it was started.
    pub config: Config,
    /// Objects.
    pub store: Store,
    /// Served types.
    pub registry: ArcSwap<Registry>,
    /// Roles and bindings.
    pub rbac: ArcSwap<Index>,
    /// What each user was allowed and denied.
    pub recorder: Recorder,
    /// Tokens.
    pub authenticator: Authenticator,
    /// By which right each user acted as somebody else last.
    pub impersonations: LastModes,
    /// Configured admission webhooks.
    pub webhooks: Webhooks,
    /// Admission policies and their bindings.
    pub policies: Policies,
    /// Owner references, for the garbage collector.
    pub(crate) owners: Owners,
    /// Time.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Documents about the served types.
    pub openapi: OpenApi,
    /// Faults that tests injected.
    pub faults: Faults,
    /// Definitions are changed one at a time, because their names must not collide.
    pub definitions: tokio::sync::Mutex<()>,
    /// Service addresses and node ports are handed out one at a time.
    pub allocations: tokio::sync::Mutex<()>,
    /// Writes into namespaces with quotas are counted and stored one at a time.
    pub quotas: tokio::sync::Mutex<()>,
    /// What the inner controllers have to do.
    pub(crate) queue: Queue,
    /// Namespaces on their way out.
    pub(crate) leaving: Mutex<HashSet<String>>,
    /// Objects whose owners were all absent once.
    pub(crate) second_looks: Mutex<HashMap<crate::store::Uid, tokio::time::Instant>>,
    /// The end of the server.
    pub stop: CancellationToken,
    /// Whether the server takes requests.
    pub ready: AtomicBool,
    /// Requests under way: reading, changing.
    pub inflight: [AtomicI64; 2],
    /// Open watches.
    pub watches: AtomicI64,
    /// The audit log.
    pub audit: Audit,
    /// Keys and certificates.
    pub pki: Arc<Pki>,
    /// Port of the first listener, published as the service `kubernetes`.
    pub port: AtomicU64,
}

impl Api {
    /// Ends the server: everything that waits is told.
    pub fn end(&self) {
        self.stop.cancel();
        for table in self.store.tables() {
            table.wake();
        }
    }

    /// The served types.
    pub fn types(&self) -> Arc<Registry> {
        self.registry.load_full()
    }

    /// The table of a built-in kind.
    pub fn builtin(&self, group: &str, version: &str, plural: &str) -> ApiResult<Arc<Resource>> {
        self.types()
            .get(group, version, plural)
            .ok_or_else(|| ApiError::internal(format!("{plural} are not served")))
    }

    /// An object of a built-in kind, from memory.
    pub fn lookup(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Record>> {
        self.store.find(group, plural)?.get(&Key::new(namespace, name))
    }

    /// A namespace, from memory.
    pub fn namespace(&self, name: &str) -> Option<Arc<Record>> {
        self.lookup("", "namespaces", "", name)
    }

    /// Asks the authoriser.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let decision = match self.config.authorization {
            Authorization::AlwaysAllow => return Decision::allow(),
            Authorization::Rbac | Authorization::Shadow => {
                cobaltcore_access::rbac::authorize(&self.rbac.load(), attributes)
            }
        };
        self.metrics.decided(decision.allowed);
        self.recorder.record(attributes, &decision, self.clock.now());
        if self.config.authorization == Authorization::Shadow {
            Decision {
                allowed: true,
                ..decision
            }
        } else {
            decision
        }
    }

    /// Refuses with 403 what the authoriser does not allow.
    pub fn require(&self, attributes: &Attributes<'_>) -> ApiResult<()> {
        let decision = self.authorize(attributes);
        if decision.allowed {
            return Ok(());
        }
        self.metrics.rbac_denied();
        Err(ApiError::from(cobaltcore_access::rbac::forbidden(attributes, &decision.reason())).unsniffed())
    }

    /// The table of a type by group and plural.
    pub fn table(&self, group: &str, plural: &str) -> ApiResult<Arc<Table>> {
        self.store
            .find(group, plural)
            .ok_or_else(|| ApiError::internal(format!("{plural} have no table")))
    }

    /// All objects of a built-in kind, parsed.
    pub fn objects(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let Some(table) = self.store.find(group, plural) else {
            return Vec::new();
        };
        table
            .snapshot(namespace, || self.store.revision())
            .items
            .iter()
            .map(|(_, r)| r.parse())
            .collect()
    }

    /// Whether a Host header names this server.
    pub fn host_allowed(&self, host: &str) -> bool {
        self.pki.host_allowed(host)
    }

    /// The user behind a verified client certificate.
    pub fn client_user(&self, certificate: &[u8]) -> Option<User> {
        self.pki.client_user(certificate)
    }

    /// Replaces a stored object as the server itself.
    pub async fn replace_record(
        &self,
        table: &Table,
        key: &Key,
        record: &Record,
        next: &Value,
    ) -> ApiResult<Arc<Record>> {
        let change = Change {
            table: table.id,
            key: key.clone(),
            expect: Expect::Revision(record.revision),
            action: Action::Put(Draft::new(next, record.schema)),
        };
        match self.store.commit(vec![change]).await {
            Ok(mut records) => records
                .pop()
                .ok_or_else(|| ApiError::internal("nothing was stored")),
            Err(CommitError::Conflict) => Err(ApiError::stale(&table.group, &table.plural, &key.name)),
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }

    /// The served resources with their verbs, for reports about rights.
    fn served_resources(&self) -> Vec<cobaltcore_access::recorder::ServedResource> {
        let registry = self.types();
        registry
            .resources()
            .filter(|r| r.served)
            .map(|r| cobaltcore_access::recorder::ServedResource {
                group: r.group.to_string(),
                resource: r.plural.to_string(),
                verbs: r.verbs().iter().map(ToString::to_string).collect(),
            })
            .collect()
    }

    /// What RBAC let a user do, what it did not, and what it need not have.
    pub fn rbac_report_for(&self, user: &str) -> cobaltcore_access::recorder::Report {
        let served = self.served_resources();
        let options = cobaltcore_access::recorder::ReportOptions::default();
        cobaltcore_access::recorder::report(
            &self.recorder.records(),
            user,
            &self.rbac.load(),
            &served,
            options,
        )
    }

    /// Whether the server is stopping.
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled() || !self.ready.load(Ordering::Acquire)
    }

    /// The identity of an inner controller.
    pub fn controller_user(name: &str) -> User {
        let mut user = User::service_account("kube-system", name, None);
        // Inner controllers are part of the server; their rights are not a matter of manifests.
        user.groups.push("system:masters".into());
        user.authenticated()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<cobaltcore_access::Refusal> for ApiError {
    fn from(refusal: cobaltcore_access::Refusal) -> Self {
        use cobaltcore_access::Refusal;
        let plain = Self::new(refusal.code(), refusal.reason(), refusal.message());
        match &refusal {
            Refusal::BadRequest(_) => plain,
            // A path that is no resource has no details, and says so.
            Refusal::Forbidden { resource, .. } if resource.is_empty() => plain.unhandled(),
            Refusal::Internal(text) => plain.with_cause("", text, ""),
            Refusal::Forbidden {
                group,
                resource,
                name,
                ..
            }
            | Refusal::NotFound {
                group,
                resource,
                name,
            }
            | Refusal::Conflict {
                group,
                resource,
                name,
                ..
            } => plain.about(group, resource, name),
            Refusal::Invalid {
                group,
                kind,
                name,
                causes,
            } => causes.iter().fold(plain.about(group, kind, name), |error, c| {
                error.with_cause(c.reason, &c.message, &c.field)
            }),
        }
    }
}
