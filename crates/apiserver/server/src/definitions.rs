// SPDX-License-Identifier: Apache-2.0
//! CustomResourceDefinitions as the server keeps them: status and conditions are set in the commit
//! that stores the definition, and the served types change with that same commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_schema::crd::{self, CustomResource};
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Op};

/// Keeps a definition until its instances are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets the condition `kind` of a definition; the time changes only with the status.
pub fn set_condition(definition: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = meta::field(meta::fields(meta::field(meta::fields(definition), "status")), "conditions");
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(list) = conditions else { return };
    let at = list.iter().position(|c| c["type"] == kind);
    let since = match at.and_then(|at| list.get(at)) {
        Some(found) if found["status"] == status => found["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let condition =
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
    match at.and_then(|at| list.get_mut(at)) {
        Some(slot) => *slot = condition,
        None => list.push(condition),
    }
}

/// Deletion has begun.
pub fn mark_terminating(definition: &mut Value, now: &str) {
    set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
}

impl Api {
    /// Fills in the status of a definition that is about to be stored.
    pub fn settle_definition(&self, definition: &mut Value, old: Option<&Value>) {
        let now = self.clock.stamp();
        if old.is_none() {
            let mut finalizers = meta::finalizers(definition).iter().map(ToString::to_string).collect::<Vec<_>>();
            if !finalizers.iter().any(|f| f == CLEANUP) {
                finalizers.push(CLEANUP.into());
            }
            let list: Vec<&str> = finalizers.iter().map(String::as_str).collect();
            meta::set_finalizers(definition, &list);
        }
        self.note_stored_versions(definition);
        let wanted = definition["spec"]["names"].clone();
        match self.name_conflict(definition) {
            None => {
                definition["status"]["acceptedNames"] = wanted;
                set_condition(definition, "NamesAccepted", "True", "NoConflicts", "no conflicts found", &now);
                if !is_true(definition, "Established") {
                    let text = "the initial names have been accepted";
                    set_condition(definition, "Established", "True", "InitialNamesAccepted", text, &now);
                }
            }
            Some((reason, message)) => {
                set_condition(definition, "NamesAccepted", "False", reason, &message, &now);
                if !is_true(definition, "Established") {
                    let text = "not all names are accepted";
                    set_condition(definition, "Established", "False", "NotAccepted", text, &now);
                    definition["status"]["acceptedNames"] = json!({"kind": "", "plural": ""});
                }
            }
        }
        note_approval(definition, &now);
    }

    fn note_stored_versions(&self, definition: &mut Value) {
        let storage = definition["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|v| v["storage"] == true)
            .map(|v| v["name"].clone());
        let stored = meta::field(meta::fields(meta::field(meta::fields(definition), "status")), "storedVersions");
        if !stored.is_array() {
            *stored = json!([]);
        }
        if let (Value::Array(list), Some(storage)) = (stored, storage)
            && !list.contains(&storage)
        {
            list.push(storage);
        }
    }

    /// The first of a definition's names that another definition of the group has already.
    fn name_conflict(&self, definition: &Value) -> Option<(&'static str, String)> {
        let own = meta::name(definition);
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let names = &definition["spec"]["names"];
        let mut resources: Vec<String> = Vec::new();
        let mut kinds: Vec<String> = Vec::new();
        for other in self.objects("apiextensions.k8s.io", "customresourcedefinitions", None) {
            if meta::name(&other) == own || other["spec"]["group"] != group {
                continue;
            }
            let accepted = &other["status"]["acceptedNames"];
            for key in ["plural", "singular"] {
                resources.extend(accepted[key].as_str().map(str::to_owned));
            }
            resources.extend(accepted["shortNames"].as_array().into_iter().flatten().filter_map(|s| s.as_str().map(str::to_owned)));
            for key in ["kind", "listKind"] {
                kinds.extend(accepted[key].as_str().map(str::to_owned));
            }
        }
        let clash = |pool: &[String], name: &str| !name.is_empty() && pool.iter().any(|used| used == name);
        let text = |key: &str| names[key].as_str().unwrap_or_default();
        let used = |name: &str| format!("{name:?} is already in use");
        for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
            if clash(&resources, text(key)) {
                return Some((reason, used(text(key))));
            }
        }
        for short in names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if clash(&resources, short) {
                return Some(("ShortNamesConflict", used(short)));
            }
        }
        for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
            if clash(&kinds, text(key)) {
                return Some((reason, used(text(key))));
            }
        }
        None
    }

    /// Keeps the served types in step with stored definitions. Called by the writer.
    pub fn definition_changed(&self, event: &Event) {
        let before = event.old.as_ref().map(|r| r.parse());
        let after = (event.op != Op::Deleted).then(|| event.new.parse());
        let relevant = |d: &Value| {
            let established = is_true(d, "Established");
            json!([d["spec"], d["status"]["acceptedNames"], established, meta::deleting(d)])
        };
        if before.as_ref().map(relevant) == after.as_ref().map(relevant) {
            return;
        }
        let group = event.new.parse()["spec"]["group"].as_str().unwrap_or_default().to_owned();
        let plural = event.new.parse()["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
        let served = match after {
            Some(definition) if is_true(&definition, "Established") => match self.compile(&definition) {
                Ok(resources) => resources,
                Err(error) => {
                    tracing::error!(name = %event.key.name, %error, "a stored definition does not compile");
                    return;
                }
            },
            _ => Vec::new(),
        };
        self.swap_types(&group, &plural, served);
        if event.op == Op::Deleted
            && let Some(table) = self.store.find(&group, &plural)
        {
            table.wake();
        }
    }

    /// The resources a definition serves. Its table must exist.
    pub fn compile(&self, definition: &Value) -> ApiResult<Vec<Arc<Resource>>> {
        let mut compiled = crd::compile(definition).map_err(|errors| {
            ApiError::invalid("apiextensions.k8s.io", "CustomResourceDefinition", meta::name(definition), &errors)
        })?;
        describe_columns(&mut compiled, definition);
        let compiled = Arc::new(compiled);
        let table = self.table(&compiled.group, &compiled.names.plural)?;
        let terminating = meta::deleting(definition);
        let mut resources = Vec::new();
        for (index, version) in compiled.versions.iter().enumerate() {
            if !version.served && !version.storage {
                continue;
            }
            let generation = schema_generation(definition, index);
            let resource = Resource::custom(&compiled, index, generation, terminating, table.clone());
            resources.push(Arc::new(resource));
        }
        Ok(resources)
    }

    /// Serves a definition the store already holds.
    pub fn load_definition(&self, definition: &Value) {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if !is_true(definition, "Established") {
            return;
        }
        match self.compile(definition) {
            Ok(resources) => self.swap_types(text("/spec/group"), text("/spec/names/plural"), resources),
            Err(error) => tracing::error!(name = meta::name(definition), %error, "a stored definition does not compile"),
        }
    }

    fn swap_types(&self, group: &str, plural: &str, served: Vec<Arc<Resource>>) {
        let current = self.registry.load();
        let others = current
            .resources()
            .filter(|r| !(&*r.group == group && &*r.plural == plural && r.as_custom().is_some()))
            .cloned();
        let next = Registry::new(others.chain(served), current.generation + 1);
        self.registry.store(Arc::new(next));
        self.openapi.forget();
    }
}

/// Columns without a description are described by their path.
fn describe_columns(compiled: &mut CustomResource, definition: &Value) {
    for version in &mut compiled.versions {
        let source = definition["spec"]["versions"].as_array().into_iter().flatten().find(|v| v["name"] == version.name);
        let paths = source.and_then(|v| v["additionalPrinterColumns"].as_array());
        for (column, written) in version.columns.iter_mut().zip(paths.into_iter().flatten()) {
            if column.description.is_empty() {
                let path = written["jsonPath"].as_str().unwrap_or_default();
                column.description = format!("Custom resource definition column (in JSONPath format): {path}");
            }
        }
    }
}

/// Groups below k8s.io and kubernetes.io are protected; their definitions name an approval.
fn note_approval(definition: &mut Value, now: &str) {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|d| group == *d || group.ends_with(&format!(".{d}")));
    if !protected {
        return;
    }
    let approval = definition["metadata"]["annotations"]["api-approved.kubernetes.io"].as_str().unwrap_or_default().to_owned();
    if approval.starts_with("http") {
        set_condition(definition, KIND, "True", "ApprovedAnnotation", &format!("approved in {approval}"), now);
    } else if approval.starts_with("unapproved") {
        let text = format!("not approved: {approval:?}");
        set_condition(definition, KIND, "False", "UnapprovedAnnotation", &text, now);
    }
}

/// A number that changes with the schema of a version and survives restarts.
fn schema_generation(definition: &Value, version: usize) -> u32 {
    let schema = definition["spec"]["versions"][version].to_string();
    let digest = ring::digest::digest(&ring::digest::SHA256, schema.as_bytes());
    let mut bytes = [0u8; 4];
    for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    u32::from_be_bytes(bytes) | 1
}

/// Whether a condition is True.
pub fn is_true(object: &Value, kind: &str) -> bool {
    object["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
}

/// The definitions of a store, by name.
pub fn stored_definitions(api: &Api) -> BTreeMap<String, Value> {
    api.objects("apiextensions.k8s.io", "customresourcedefinitions", None)
        .into_iter()
        .map(|d| (meta::name(&d).to_owned(), d))
        .collect()
}
