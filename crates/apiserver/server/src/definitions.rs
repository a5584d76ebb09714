// SPDX-License-Identifier: Apache-2.0
//! CustomResourceDefinitions as the server keeps them: status and conditions are set in the commit
//! that stores the definition, and the served types change with that same commit.

use cobaltcore_text::go;
use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_schema::FieldError;
use cobaltcore_schema::crd::{self, CustomResource};
use serde_json::{Value, json};

use crate::admission::Converter;
use crate::api::Api;
use crate::meta;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Op};

/// Keeps a definition until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets the condition `kind` of a definition; the time changes only with the status.
pub(crate) fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let conditions = meta::field(
        meta::fields(meta::field(meta::fields(definition), "status")),
        "conditions",
    );
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(list) = conditions else { return };
    let at = list.iter().position(|c| c["type"] == kind);
    let since = match at.and_then(|at| list.get(at)) {
        Some(found) if found["status"] == status => found["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let condition = json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
    match at.and_then(|at| list.get_mut(at)) {
        Some(slot) => *slot = condition,
        None => list.push(condition),
    }
}

/// Deletion has begun.
pub(crate) fn mark_terminating(definition: &mut Value, now: &str) {
    set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
}

/// A definition as it is before its status is told: what is not told yet is there, and empty.
fn with_empty_status(definition: &Value) -> Value {
    let mut before = definition.clone();
    let status = meta::fields(meta::field(meta::fields(&mut before), "status"));
    status.entry("conditions").or_insert_with(|| json!([]));
    status
        .entry("acceptedNames")
        .or_insert_with(|| json!({"plural": "", "kind": ""}));
    before
}

/// What the server itself tells about a definition is the server's own.
fn own_status(before: &Value, definition: &mut Value, now: &str) {
    let Some(kind) = cobaltcore_builtins::find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return;
    };
    let request = cobaltcore_patch::UpdateRequest {
        old: Some(before),
        blank: None,
        schema: kind.schema(),
        versions: None,
        manager: "kube-apiserver",
        api_version: "apiextensions.k8s.io/v1",
        subresource: Some("status"),
        filter: &cobaltcore_patch::Filter::only_status(),
        now,
    };
    cobaltcore_patch::update(request, definition);
}

impl Api {
    /// Fills in the status of a definition that is about to be stored.
    pub fn settle_definition(&self, definition: &mut Value) {
        let now = self.clock.stamp();
        note_stored_versions(definition);
        let before = with_empty_status(definition);
        note_approval(definition, &now);
        let (accepted, conflict) = self.judge_names(definition);
        definition["status"]["acceptedNames"] = accepted;
        match conflict {
            None => {
                set_condition(
                    definition,
                    "NamesAccepted",
                    "True",
                    "NoConflicts",
                    "no conflicts found",
                    &now,
                );
                if !is_true(definition, "Established") {
                    let (status, reason, text) = match Converter::bundle_problem(definition) {
                        None => (
                            "True",
                            "InitialNamesAccepted",
                            "the initial names have been accepted",
                        ),
                        Some(_) => (
                            "False",
                            "InvalidCABundle",
                            "The conversion webhook CABundle is invalid",
                        ),
                    };
                    set_condition(definition, "Established", status, reason, text, &now);
                }
            }
            Some((reason, message)) => {
                set_condition(definition, "NamesAccepted", "False", reason, &message, &now);
                if !is_true(definition, "Established") {
                    let text = "not all names are accepted";
                    set_condition(definition, "Established", "False", "NotAccepted", text, &now);
                }
            }
        }
        own_status(&before, definition, &now);
    }

    /// The names a definition may use, and what it asked for in vain. Each free name is taken even
    /// when another is not; of several conflicts the last one is told.
    fn judge_names(&self, definition: &Value) -> (Value, Option<(&'static str, String)>) {
        let (resources, kinds) = self.names_in_use(definition);
        let wanted = &definition["spec"]["names"];
        let held = &definition["status"]["acceptedNames"];
        let mut accepted = json!({"plural": "", "kind": ""});
        let mut conflict = None;
        let used = |name: &str| format!("{name} is already in use", name = go::quote(name));
        let mut judge = |key: &str, reason: &'static str, pool: &[String]| {
            let (name, own) = (
                wanted[key].as_str().unwrap_or_default(),
                held[key].as_str().unwrap_or_default(),
            );
            if name == own || !pool.iter().any(|u| u == name) {
                keep(&mut accepted, key, &wanted[key]);
            } else {
                keep(&mut accepted, key, &held[key]);
                conflict = Some((reason, used(name)));
            }
        };
        judge("plural", "PluralConflict", &resources);
        judge("singular", "SingularConflict", &resources);
        let taken: Vec<String> = texts(&wanted["shortNames"])
            .filter(|short| {
                !texts(&held["shortNames"]).any(|own| own == *short) && resources.iter().any(|u| u == short)
            })
            .map(used)
            .collect();
        let short_conflict = match taken.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        };
        if let Some(text) = &short_conflict {
            conflict = Some(("ShortNamesConflict", text.clone()));
        }
        let mut judge = |key: &str, reason: &'static str| {
            let (name, own) = (
                wanted[key].as_str().unwrap_or_default(),
                held[key].as_str().unwrap_or_default(),
            );
            if name == own || !kinds.iter().any(|u| u == name) {
                keep(&mut accepted, key, &wanted[key]);
            } else {
                keep(&mut accepted, key, &held[key]);
                conflict = Some((reason, used(name)));
            }
        };
        judge("kind", "KindConflict");
        judge("listKind", "ListKindConflict");
        keep(
            &mut accepted,
            "shortNames",
            if short_conflict.is_some() {
                &held["shortNames"]
            } else {
                &wanted["shortNames"]
            },
        );
        keep(&mut accepted, "categories", &wanted["categories"]);
        (accepted, conflict)
    }

    /// The names other definitions of the group have been given: resources and kinds.
    fn names_in_use(&self, definition: &Value) -> (Vec<String>, Vec<String>) {
        let (own, group) = (meta::name(definition), &definition["spec"]["group"]);
        let (mut resources, mut kinds) = (Vec::new(), Vec::new());
        for other in self.objects("apiextensions.k8s.io", "customresourcedefinitions", None) {
            if meta::name(&other) == own || other["spec"]["group"] != *group {
                continue;
            }
            let accepted = &other["status"]["acceptedNames"];
            let text = |key: &str| {
                accepted[key]
                    .as_str()
                    .filter(|t| !t.is_empty())
                    .map(str::to_owned)
            };
            resources.extend(["plural", "singular"].into_iter().filter_map(text));
            resources.extend(texts(&accepted["shortNames"]).map(str::to_owned));
            kinds.extend(["kind", "listKind"].into_iter().filter_map(text));
        }
        (resources, kinds)
    }

    /// Looks again at definitions whose names were taken, after another definition of the group changed.
    pub(crate) async fn review_names(&self, group: &str) -> ApiResult<()> {
        let _turn = self.definitions.lock().await;
        let table = self.table("apiextensions.k8s.io", "customresourcedefinitions")?;
        for (name, definition) in stored_definitions(self) {
            if definition["spec"]["group"] != group || is_true(&definition, "NamesAccepted") {
                continue;
            }
            let mut next = definition.clone();
            self.settle_definition(&mut next);
            if next == definition {
                continue;
            }
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
            self.store.register(vec![(group.to_owned(), plural.to_owned())])?;
            let key = crate::store::Key::new("", &name);
            if let Some(record) = table.get(&key) {
                self.replace_record(&table, &key, &record, &next).await?;
            }
        }
        Ok(())
    }

    /// Keeps the served types in step with stored definitions. Called by the writer.
    pub fn definition_changed(&self, event: &Event) {
        let before = event.old.as_ref().map(|r| r.parse());
        let after = (event.op != Op::Deleted).then(|| event.new.parse());
        let relevant = |d: &Value| {
            let established = is_true(d, "Established");
            json!([
                d["spec"],
                d["status"]["acceptedNames"],
                established,
                meta::deleting(d)
            ])
        };
        if before.as_ref().map(relevant) == after.as_ref().map(relevant) {
            return;
        }
        let group = event.new.parse()["spec"]["group"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let plural = event.new.parse()["spec"]["names"]["plural"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
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
        self.queue.add(crate::control::queue::Work::Names(group.clone()));
        // Watches of what is gone or defined differently end.
        if let Some(table) = self.store.find(&group, &plural) {
            table.wake();
        }
    }

    /// The resources a definition serves. Its table must exist.
    pub fn compile(&self, definition: &Value) -> ApiResult<Vec<Arc<Resource>>> {
        // A definition is served under the names it was given, not those it asks for.
        let mut definition = definition.clone();
        let accepted = definition["status"]["acceptedNames"].clone();
        if accepted["plural"].as_str().is_some_and(|p| !p.is_empty()) {
            definition["spec"]["names"] = accepted;
        }
        let definition = &definition;
        let mut compiled = crd::compile(definition).map_err(|errors| {
            ApiError::invalid(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                meta::name(definition),
                &errors,
            )
        })?;
        describe_columns(&mut compiled, definition);
        let compiled = Arc::new(compiled);
        let table = self.table(&compiled.group, &compiled.names.plural)?;
        let terminating = meta::deleting(definition);
        let converter = Converter::of(definition).map(Arc::new);
        let generation = fingerprint(&definition["spec"]);
        let mut resources = Vec::new();
        for (index, version) in compiled.versions.iter().enumerate() {
            if !version.served && !version.storage {
                continue;
            }
            let schema_generation = fingerprint(&definition["spec"]["versions"][index]);
            let resource = Resource::custom(
                &compiled,
                index,
                (generation, schema_generation),
                terminating,
                converter.clone(),
                table.clone(),
            );
            resources.push(Arc::new(resource));
        }
        Ok(resources)
    }

    /// Serves a definition the store already holds.
    pub fn load_definition(&self, definition: &Value) {
        let text = |pointer: &str| {
            definition
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        if !is_true(definition, "Established") {
            return;
        }
        match self.compile(definition) {
            Ok(resources) => self.swap_types(text("/spec/group"), text("/spec/names/plural"), resources),
            Err(error) => {
                tracing::error!(name = meta::name(definition), %error, "a stored definition does not compile");
            }
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

/// Adds the storage version of a definition to those it has ever stored.
pub(crate) fn note_stored_versions(definition: &mut Value) {
    let storage = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|v| v["storage"] == true)
        .map(|v| v["name"].clone());
    let stored = meta::field(
        meta::fields(meta::field(meta::fields(definition), "status")),
        "storedVersions",
    );
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let (Value::Array(list), Some(storage)) = (stored, storage)
        && !list.contains(&storage)
    {
        list.push(storage);
    }
}

/// Keeps a name that says something.
fn keep(names: &mut Value, key: &str, value: &Value) {
    if !value.is_null() {
        meta::fields(names).insert(key.to_owned(), value.clone());
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Columns without a description are described by their path.
fn describe_columns(compiled: &mut CustomResource, definition: &Value) {
    for version in &mut compiled.versions {
        let source = definition["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|v| v["name"] == version.name);
        let paths = source.and_then(|v| v["additionalPrinterColumns"].as_array());
        for (column, written) in version.columns.iter_mut().zip(paths.into_iter().flatten()) {
            if column.description.is_empty() {
                let path = written["jsonPath"].as_str().unwrap_or_default();
                column.description =
                    format!("Custom resource definition column (in JSONPath format): {path}");
            }
        }
    }
}

/// Groups below k8s.io and kubernetes.io are protected; their definitions name an approval.
fn note_approval(definition: &mut Value, now: &str) {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|d| group == *d || group.ends_with(&format!(".{d}")));
    if !protected {
        return;
    }
    let approval = definition["metadata"]["annotations"]["api-approved.kubernetes.io"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if approval.starts_with("http") {
        set_condition(
            definition,
            KIND,
            "True",
            "ApprovedAnnotation",
            &format!("approved in {approval}"),
            now,
        );
    } else if approval.starts_with("unapproved") {
        let text = format!("not approved: {approval}", approval = go::quote(&approval));
        set_condition(definition, KIND, "False", "UnapprovedAnnotation", &text, now);
    }
}

/// A number that changes with a part of a definition and survives restarts.
fn fingerprint(part: &Value) -> u32 {
    let digest = ring::digest::digest(&ring::digest::SHA256, part.to_string().as_bytes());
    let mut bytes = [0u8; 4];
    for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    u32::from_be_bytes(bytes) | 1
}

/// What is wrong with a change of a definition's converter: once there are objects to convert, its
/// authorities may not become unreadable.
pub(crate) fn bundle_errors(definition: &Value, before: &Value) -> Vec<FieldError> {
    const FIELD: &str = "spec.conversion.webhookClientConfig.caBundle";
    if !is_true(before, "Established") || Converter::bundle_problem(before).is_some() {
        return Vec::new();
    }
    let value = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
    Converter::bundle_problem(definition)
        .map(|problem| FieldError::invalid(FIELD, value, problem))
        .into_iter()
        .collect()
}

/// Whether a condition is True.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == kind && c["status"] == "True")
}

/// The definitions of a store, by name.
pub(crate) fn stored_definitions(api: &Api) -> BTreeMap<String, Value> {
    api.objects("apiextensions.k8s.io", "customresourcedefinitions", None)
        .into_iter()
        .map(|d| (meta::name(&d).to_owned(), d))
        .collect()
}
