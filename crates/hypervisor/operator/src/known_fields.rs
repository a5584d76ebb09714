// SPDX-License-Identifier: Apache-2.0
//! Which of our additional fields a cluster's definitions have. Server-side apply refuses what
//! a definition does not declare, so under the definitions of the running system those fields
//! are left out and everything else works.

use std::collections::BTreeSet;
use std::sync::Arc;

use cobaltcore_kit::status::Intent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio::sync::watch;

/// The names of the definitions that are read.
const HYPERVISORS: &str = "hypervisors.kvm.cloud.sap";
const EVICTIONS: &str = "evictions.kvm.cloud.sap";

/// The kinds whose status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnKind {
    /// Hypervisor.
    Hypervisor,
    /// Eviction.
    Eviction,
}

#[derive(Clone, Debug, Default)]
struct Fields {
    hypervisor: Option<BTreeSet<String>>,
    eviction: Option<BTreeSet<String>>,
}

/// The fields of the statuses as the cluster declares them, kept up to date.
#[derive(Clone, Debug)]
pub struct KnownFields(Arc<watch::Sender<Fields>>);

impl Default for KnownFields {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Fields::default())))
    }
}

impl KnownFields {
    /// Whether the status of `kind` may hold `field`.
    pub fn has(&self, kind: OwnKind, field: &str) -> bool {
        let fields = self.0.borrow();
        let declared = match kind {
            OwnKind::Hypervisor => &fields.hypervisor,
            OwnKind::Eviction => &fields.eviction,
        };
        declared.as_ref().is_some_and(|fields| fields.contains(field))
    }

    /// Waits until both definitions were read once. Writing earlier would leave fields out that
    /// nobody adds later.
    pub(crate) async fn learned(&self) {
        let mut fields = self.0.subscribe();
        let both = |fields: &Fields| fields.hypervisor.is_some() && fields.eviction.is_some();
        // The sender is in `self`, so the wait cannot fail.
        let _ = fields.wait_for(both).await;
    }

    /// Adds a field to an intent if the status of `kind` may hold it.
    #[must_use]
    pub fn add(&self, kind: OwnKind, intent: Intent, field: &str, value: impl Into<Value>) -> Intent {
        if self.has(kind, field) {
            intent.field(field, value)
        } else {
            intent
        }
    }

    /// Takes note of a definition.
    pub(crate) fn read(&self, definition: &CustomResourceDefinition) {
        let Some(name) = definition.metadata.name.as_deref() else {
            return;
        };
        let fields = Some(status_fields(definition));
        self.0.send_if_modified(|known| {
            let place = match name {
                HYPERVISORS => &mut known.hypervisor,
                EVICTIONS => &mut known.eviction,
                _ => return false,
            };
            let new = *place != fields;
            *place = fields;
            new
        });
    }
}

fn status_fields(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let versions = definition.spec.versions.iter().filter(|version| version.served);
    let status = |version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
        let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        let status = schema.properties.as_ref()?.get("status")?;
        Some(status.properties.as_ref()?.keys().cloned().collect::<Vec<_>>())
    };
    versions.filter_map(status).flatten().collect()
}

/// Keeps of a definition what the operator reads: the name, and for our own kinds the schema.
pub(crate) fn slim(definition: &mut CustomResourceDefinition) {
    cobaltcore_kit::watched::slim_metadata(definition);
    definition.metadata.managed_fields = None;
    if !matches!(definition.metadata.name.as_deref(), Some(HYPERVISORS | EVICTIONS)) {
        definition.spec.versions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_definitions_have_our_fields_and_a_poorer_one_does_not() {
        let known = KnownFields::default();
        assert!(
            !known.has(OwnKind::Hypervisor, "phase"),
            "nothing is known at first"
        );
        for definition in cobaltcore_api::crds() {
            known.read(&definition);
        }
        for field in [
            "phase",
            "computeHost",
            "managedTraits",
            "conditions",
            "numInstances",
        ] {
            assert!(known.has(OwnKind::Hypervisor, field), "{field}");
        }
        assert!(known.has(OwnKind::Eviction, "evictionState"));
        let mut poorer = cobaltcore_api::crds().remove(0);
        poorer.metadata.name = Some(HYPERVISORS.into());
        for version in &mut poorer.spec.versions {
            version.schema = None;
        }
        known.read(&poorer);
        assert!(!known.has(OwnKind::Hypervisor, "phase"));
        assert!(
            known.has(OwnKind::Eviction, "evictionState"),
            "the other kind stays"
        );
    }
}
