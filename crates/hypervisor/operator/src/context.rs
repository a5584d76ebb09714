// SPDX-License-Identifier: Apache-2.0
//! What every controller is given: the cluster, the shared caches, the clock, and ways to tell.
//! Caches are filled by one watch per kind, however many controllers read them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::{Eviction, Hypervisor, Migration};
use cobaltcore_kit::events::Recorder;
use cobaltcore_kit::status::{Intent, StatusWriter, Written};
use cobaltcore_kit::watched::{Change, Watchable, Watched};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use serde::Serialize;

use crate::certificate::Certificate;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::known_fields::KnownFields;
use crate::metrics::Metrics;
use crate::network::OVSNode;

/// The longest time for one call to the Kubernetes API.
const CALL_TIME: Duration = Duration::from_secs(30);

/// What every controller is given.
#[derive(Clone)]
pub struct Context {
    /// The cluster.
    pub client: kube::Client,
    /// What the operator was told.
    pub config: Arc<Config>,
    /// The caches.
    pub caches: Caches,
    /// Which additional fields the cluster's definitions have.
    pub fields: KnownFields,
    /// The time.
    pub clock: Clock,
    /// Events for people.
    pub recorder: Recorder,
    /// Figures for programs.
    pub metrics: Metrics,
}

/// The shared caches. Those of kinds that a cluster need not have stay empty without them.
#[derive(Clone)]
pub struct Caches {
    /// Nodes of our partition.
    pub nodes: Watched<Node>,
    /// Hypervisors of our partition.
    pub hypervisors: Watched<Hypervisor>,
    /// All evictions.
    pub evictions: Watched<Eviction>,
    /// All migrations.
    pub migrations: Watched<Migration>,
    /// Signalling deployments.
    pub deployments: Watched<Deployment>,
    /// Signalling disruption budgets.
    pub budgets: Watched<PodDisruptionBudget>,
    /// Certificates in the certificate namespace.
    pub certificates: Watched<Certificate>,
    /// Reports of the network agents.
    pub ovs_nodes: Watched<OVSNode>,
    /// The kinds that the cluster has.
    pub definitions: Watched<CustomResourceDefinition>,
}

impl Caches {
    /// Whether the cluster has the kind of that definition (`plural.group`).
    pub fn has_kind(&self, definition: &str) -> bool {
        self.definitions.get(definition).is_some()
    }
}

impl Context {
    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Makes one call to the Kubernetes API; `what` says what is tried on what.
    pub async fn call<T>(
        &self,
        what: impl Into<String>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(CALL_TIME, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Error::Kube {
                what: what.into(),
                source: Box::new(source),
            }),
            Err(_) => Err(Error::Late {
                what: what.into(),
                limit: CALL_TIME,
            }),
        }
    }

    /// Brings the part of a status that `manager` owns in line with `intent`. Nothing is sent
    /// when nothing would change.
    pub async fn write_status<K>(
        &self,
        manager: FieldManager,
        object: &K,
        intent: &Intent,
    ) -> Result<Written<K>, Error>
    where
        K: Watchable + Serialize,
    {
        let writer = StatusWriter::new(self.client.clone(), manager.as_str());
        match tokio::time::timeout(CALL_TIME, writer.write_at(object, intent, self.now())).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Error::Late {
                what: format!(
                    "writing the status of {} as {manager}",
                    object.meta().name.as_deref().unwrap_or_default()
                ),
                limit: CALL_TIME,
            }),
        }
    }
}

/// The Hypervisor named like the changed object, for objects that share its name.
pub fn same_name<K, T>(change: &Change<K>) -> Option<ObjectRef<T>>
where
    K: Resource<DynamicType = ()>,
    T: Resource<DynamicType = ()>,
{
    let name = change.object()?.meta().name.as_deref()?;
    Some(ObjectRef::new(name))
}
