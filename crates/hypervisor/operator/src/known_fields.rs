// SPDX-License-Identifier: Apache-2.0
//! Which of our additional fields a cluster's definitions have. Server-side apply refuses what
//! a definition does not declare, so under the definitions of the running system those fields
//! are left out and everything else works.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cobaltcore_kit::status::Intent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

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

#[derive(Debug, Default)]
struct Fields {
    hypervisor: BTreeSet<String>,
    eviction: BTreeSet<String>,
}

/// The fields of the statuses as the cluster declares them, kept up to date.
#[derive(Clone, Debug, Default)]
pub struct KnownFields(Arc<ArcSwap<Fields>>);

impl KnownFields {
    /// Whether the status of `kind` may hold `field`.
    pub fn has(&self, kind: OwnKind, field: &str) -> bool {
        let fields = self.0.load();
        match kind {
            OwnKind::Hypervisor => fields.hypervisor.contains(field),
            OwnKind::Eviction => fields.eviction.contains(field),
        }
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
        let fields = status_fields(definition);
        let old = self.0.load();
        let (mut hypervisor, mut eviction) = (old.hypervisor.clone(), old.eviction.clone());
        match name {
            HYPERVISORS => hypervisor = fields,
            EVICTIONS => eviction = fields,
            _ => return,
        }
        self.0.store(Arc::new(Fields { hypervisor, eviction }));
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
