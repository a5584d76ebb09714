// SPDX-License-Identifier: Apache-2.0
//! Who owns which field, as the API server keeps it. The operator takes back only what it set
//! itself, and the record of that is the object's own, so it survives restarts and swaps.

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_kit::status::{compact, owned_fields};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

/// The names under which nodes were and are turned into hypervisors.
const OURS: [FieldManager; 2] = [FieldManager::Hypervisor, FieldManager::Operator];

/// Whether the operator set the field at `path` of the object itself (not its status).
pub(crate) fn is_ours(hypervisor: &Hypervisor, path: &[&str]) -> bool {
    let entries = hypervisor.metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| by_us(entry))
        .any(|entry| owned_fields(entry).is_some_and(|fields| at(&fields, path).is_some()))
}

fn at<'a>(fields: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(fields, |fields, step| fields.get(format!("f:{step}")))
}

/// The labels that the operator set.
pub(crate) fn our_labels(hypervisor: &Hypervisor) -> Vec<String> {
    let entries = hypervisor.metadata.managed_fields.iter().flatten();
    let records: Vec<_> = entries
        .filter(|entry| by_us(entry))
        .filter_map(owned_fields)
        .collect();
    let ours = |key: &&String| {
        let path = ["metadata", "labels", key.as_str()];
        records.iter().any(|fields| at(fields, &path).is_some())
    };
    let labels = hypervisor.metadata.labels.iter().flatten();
    labels.map(|(key, _)| key).filter(ours).cloned().collect()
}

fn by_us(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    entry.subresource.is_none() && OURS.iter().any(|ours| ours.as_str() == manager)
}

/// Keeps of the record of owners what is read here and by status writers: the names of all, and
/// the fields of our own. With a dozen writers the record is most of an object. What agents tell
/// about the machine and its guests, one by one, is for people.
pub(crate) fn slim(hypervisor: &mut Hypervisor) {
    cobaltcore_kit::watched::slim_metadata(hypervisor);
    if let Some(status) = &mut hypervisor.status {
        status.instances = Vec::new();
        status.cells = Vec::new();
        status.domain_capabilities = None;
        status.operating_system = None;
    }
    for entry in hypervisor.metadata.managed_fields.iter_mut().flatten() {
        let manager = entry.manager.as_deref().unwrap_or_default();
        let own_status = entry.subresource.as_deref() == Some("status")
            && entry.operation.as_deref() == Some("Apply")
            && FieldManager::parse(manager).is_some();
        if own_status || by_us(entry) {
            compact(entry);
        } else {
            entry.fields_v1 = None;
        }
        (entry.api_version, entry.fields_type, entry.time) = (None, None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hypervisor() -> Hypervisor {
        serde_json::from_value(json!({
            "metadata": {
                "name": "n", "labels": {"a.io/x": "1", "b": "2"},
                "managedFields": [
                    {"manager": "hypervisor", "operation": "Apply",
                     "fieldsV1": {"f:metadata": {"f:labels": {"f:a.io/x": {}}}, "f:spec": {"f:skipTests": {}}}},
                    {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:aggregates": {}}}},
                    {"manager": "ready", "operation": "Apply", "subresource": "status",
                     "fieldsV1": {"f:status": {"f:phase": {}}}},
                    {"manager": "somebody", "operation": "Update", "subresource": "status",
                     "fieldsV1": {"f:status": {"f:instances": {}}}},
                ],
            },
            "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn only_what_the_operator_set_is_its_own() {
        let hypervisor = hypervisor();
        assert!(is_ours(&hypervisor, &["spec", "skipTests"]));
        assert!(!is_ours(&hypervisor, &["spec", "aggregates"]));
        assert!(
            !is_ours(&hypervisor, &["status", "phase"]),
            "that is another record"
        );
        assert_eq!(our_labels(&hypervisor), ["a.io/x"]);
    }

    #[test]
    fn a_slim_object_keeps_names_and_our_fields() {
        let mut slimmed = hypervisor();
        slim(&mut slimmed);
        let entries = slimmed.metadata.managed_fields.as_ref().unwrap();
        let kept: Vec<bool> = entries.iter().map(|entry| entry.fields_v1.is_some()).collect();
        assert_eq!(kept, [true, false, true, false]);
        assert!(is_ours(&slimmed, &["spec", "skipTests"]));
    }
}
