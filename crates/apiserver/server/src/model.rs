// SPDX-License-Identifier: Apache-2.0
//! What a type does with its objects: decoding, defaults, preparation, validation, field selectors.
//! Built-in kinds and custom resources differ here and nowhere else.

use cobaltcore_cel::Budget;
use cobaltcore_patch::Filter;
use cobaltcore_schema::crd;
use cobaltcore_schema::meta::validate_builtin_finalizers;
use cobaltcore_schema::{
    FieldError, NameRule, Root, prune, validate, validate_object_meta, validate_object_meta_update,
    validate_status,
};
use serde_json::Value;

use crate::meta;
use crate::registry::{Custom, Model, Resource};
use crate::status::{ApiError, ApiResult, qualified};

impl Resource {
    /// Brings a client's object into the type's form and returns the fields the type does not know.
    pub fn decode(&self, object: &mut Value) -> ApiResult<Vec<String>> {
        match &self.model {
            Model::Builtin(kind) => {
                let decoded = kind
                    .decode(object)
                    .map_err(|e| ApiError::bad_request(e.answer(kind)))?;
                let mut unknown = decoded.unknown;
                if self.is_definition() {
                    unknown.extend(crd::unknown_fields(object));
                }
                Ok(unknown)
            }
            Model::Custom(custom) => {
                let schema = &custom.version().schema;
                cobaltcore_schema::check_metadata(schema, object, Root::Resource).map_err(|why| {
                    ApiError::bad_request(format!(
                        "{0} in version \"{1}\" cannot be handled as a {0}: {why}",
                        self.kind, self.version
                    ))
                })?;
                Ok(prune(schema, object, Root::Resource))
            }
        }
    }

    /// What a judged object looks like when it is stored: nobody can tell any more which lists of a
    /// built-in kind were given empty and which not at all.
    pub fn settle(&self, object: &mut Value) {
        if let Model::Builtin(kind) = &self.model {
            kind.forget_unstored(object);
        }
    }

    /// Removes what the type does not know from a configuration, leaving everything else as written.
    pub fn unknown_fields(&self, config: &mut Value) -> Vec<String> {
        prune(self.schema(), config, Root::Resource)
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        match &self.model {
            Model::Builtin(_) if self.is_definition() => crd::default_crd(object),
            Model::Builtin(kind) => kind.default(object),
            Model::Custom(custom) => cobaltcore_schema::default(&custom.version().schema, object),
        }
    }

    /// Whether this is the kind of definitions.
    pub fn is_definition(&self) -> bool {
        self.is("apiextensions.k8s.io", "CustomResourceDefinition")
    }

    /// What creation does with an object before it is looked at: status is not the client's to set.
    pub fn prepare_create(&self, object: &mut Value) {
        match &self.model {
            Model::Builtin(kind) => {
                if self.is("", "Service") {
                    // What cannot be settled is told when addresses are allocated.
                    let _ = cobaltcore_builtins::prepare_service(object, None);
                }
                kind.prepare_create(object);
            }
            Model::Custom(custom) if custom.version().status => {
                meta::fields(object).remove("status");
            }
            Model::Custom(_) => {}
        }
    }

    /// Each endpoint changes its own part: the main one not the status, `/status` nothing else.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, subresource: Option<&str>) {
        match &self.model {
            Model::Builtin(kind) => {
                if self.is("", "Service") && subresource.is_none() {
                    let _ = cobaltcore_builtins::prepare_service(new, Some(old));
                }
                kind.prepare_update(new, old, subresource);
            }
            Model::Custom(custom) if !custom.version().status => {}
            Model::Custom(_) => match subresource {
                Some("status") => {
                    restore(meta::fields(new), old, &["status", "metadata"]);
                    let metadata = meta::field(meta::fields(new), "metadata");
                    restore(meta::fields(metadata), &old["metadata"], &["managedFields"]);
                }
                _ => meta::take_field(new, old, "status"),
            },
        }
    }

    /// Times the server sets while it prepares a change.
    pub fn stamp_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Option<&str>,
        now: jiff::Timestamp,
    ) {
        if let Some(kind) = self.as_builtin() {
            kind.stamp_update(new, old, subresource, now);
        }
    }

    /// What is allowed in an object but unwise.
    pub fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match (&self.model, old) {
            (Model::Builtin(_), _) if self.is_definition() => crd::crd_warnings(new, old),
            (Model::Builtin(kind), None) => kind.warnings_create(new),
            (Model::Builtin(kind), Some(old)) => kind.warnings_update(new, old),
            (Model::Custom(_), _) => {
                cobaltcore_schema::meta::finalizer_warnings(&new["metadata"], old.map(|o| &o["metadata"]))
            }
        }
    }

    /// Everything wrong with a new object.
    pub fn validate_create(&self, object: &Value, budget: &mut Budget) -> Vec<FieldError> {
        let mut errors = self.check_meta(object);
        if self.is_definition() {
            // The rest of its metadata is judged with a definition.
            errors.retain(|e| matches!(e.field.as_str(), "metadata.name" | "metadata.generateName"));
        }
        errors.extend(match &self.model {
            Model::Builtin(_) if self.is_definition() => crd::validate_crd(object),
            Model::Builtin(kind) => {
                let mut found = kind.validate_create(object);
                found.extend(self.condition_errors(object));
                found
            }
            Model::Custom(custom) => custom.validate(object, None, None, &mut Vec::new(), budget),
        });
        errors
    }

    /// Everything wrong with a change. What was wrong before is only to be warned of: `forgiven`.
    pub fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Option<&str>,
        forgiven: &mut Vec<FieldError>,
        budget: &mut Budget,
    ) -> Vec<FieldError> {
        let mut errors = self.check_meta(new);
        let own = errors.len();
        errors.extend(validate_object_meta_update(
            &new["metadata"],
            &old["metadata"],
            "metadata",
        ));
        // Metadata is checked before the kind's own rules and again as part of them, where those
        // of definitions (which do so themselves) and custom resources look at the change only.
        match &self.model {
            Model::Builtin(_) if self.is_definition() => {}
            Model::Builtin(_) => errors.extend_from_within(..),
            Model::Custom(_) => errors.extend_from_within(own..),
        }
        errors.extend(match &self.model {
            Model::Builtin(_) if self.is_definition() && subresource == Some("status") => {
                crd::validate_crd_status_update(new, old)
            }
            Model::Builtin(_) if self.is_definition() => {
                let mut errors = crd::validate_crd_update(new, old);
                errors.extend(crate::definitions::bundle_errors(new, old));
                errors
            }
            Model::Builtin(kind) => {
                let mut found = kind.validate_update(new, old, subresource);
                found.extend(self.condition_errors(new));
                found
            }
            Model::Custom(custom) => custom.validate(new, Some(old), subresource, forgiven, budget),
        });
        errors
    }

    /// Expressions of webhook configurations and policies that do not compile.
    fn condition_errors(&self, object: &Value) -> Vec<FieldError> {
        if *self.group != *"admissionregistration.k8s.io" {
            return Vec::new();
        }
        if self.kind.ends_with("WebhookConfiguration") {
            crate::admission::condition_errors(object)
        } else if &*self.kind == "ValidatingAdmissionPolicy" {
            crate::admission::policy_errors(object)
        } else if &*self.kind == "MutatingAdmissionPolicy" {
            crate::admission::mutator_errors(object)
        } else {
            Vec::new()
        }
    }

    fn check_meta(&self, object: &Value) -> Vec<FieldError> {
        let rule = self
            .as_builtin()
            .map_or(NameRule::Subdomain, |kind| kind.name_rule);
        if rule == NameRule::Any {
            return Vec::new();
        }
        let mut errors = validate_object_meta(&object["metadata"], self.namespaced, rule, "metadata");
        // Definitions and webhook configurations are held to the rules of custom resources.
        if self.as_builtin().is_some()
            && !matches!(
                &*self.group,
                "apiextensions.k8s.io" | "admissionregistration.k8s.io"
            )
        {
            errors.extend(validate_builtin_finalizers(&object["metadata"], "metadata"));
        }
        errors
    }

    /// Whether metadata.generation counts changes.
    pub fn has_generation(&self) -> bool {
        self.as_builtin().is_none_or(|kind| kind.has_generation)
    }

    /// Whether anything outside metadata and status changed.
    pub fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        match &self.model {
            Model::Builtin(kind) => kind.spec_changed(new, old),
            Model::Custom(custom) => {
                let has_status = custom.version().status;
                let counts = |(key, _): &(&String, &Value)| match key.as_str() {
                    "metadata" | "apiVersion" => false,
                    "status" => !has_status,
                    _ => true,
                };
                let (new, old) = (new.as_object(), old.as_object());
                !new.into_iter()
                    .flatten()
                    .filter(counts)
                    .eq(old.into_iter().flatten().filter(counts))
            }
        }
    }

    /// Whether PUT creates a missing object.
    pub fn creates_on_update(&self) -> bool {
        self.as_builtin().is_some_and(|kind| kind.creates_on_update)
    }

    /// Whether PUT may leave the resource version out.
    pub fn unconditional_update(&self) -> bool {
        self.as_builtin().is_some_and(|kind| kind.unconditional_update)
    }

    /// Namespaces have a second list of finalizers of their own.
    pub fn own_finalizers_done(&self, object: &Value) -> bool {
        !self.is("", "Namespace") || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
    }

    /// The fields an endpoint lets a client change, as ownership sees it.
    pub fn filter(&self, subresource: Option<&str>) -> Filter {
        match subresource {
            // What is signed cannot be changed, and so nobody owns it.
            None if &*self.group == "certificates.k8s.io" => Filter::without(&[&["spec"], &["status"]]),
            Some("approval") => Filter::without(&[&["spec"], &["status", "certificate"]]),
            Some("finalize") => Filter::without_status(),
            None if self.has_status() => Filter::without_status(),
            Some("status") if self.as_custom().is_some() => Filter::only_status(),
            Some("status") => Filter::without(self.kept_by_status()),
            Some("ephemeralcontainers") => Filter::only(&[&["spec", "ephemeralContainers"]]),
            _ => Filter::Everything,
        }
    }

    /// What the status endpoint of a built-in kind leaves alone, and so nobody owns through it.
    fn kept_by_status(&self) -> &'static [&'static [&'static str]] {
        match (&*self.group, &*self.kind) {
            ("apps", "Deployment") => &[&["spec"], &["metadata", "labels"]],
            ("", "Pod") => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            ("certificates.k8s.io", _) => &[&["spec"], &["status", "conditions"]],
            _ if self
                .as_builtin()
                .is_some_and(cobaltcore_builtins::Kind::status_keeps_metadata) =>
            {
                &[&["spec"], &["metadata"]]
            }
            _ => &[&["spec"]],
        }
    }

    /// Refuses field labels the type cannot select by.
    pub fn check_field_label(&self, label: &str) -> ApiResult<()> {
        match &self.model {
            Model::Builtin(kind) if kind.field_labels().contains(&label) => Ok(()),
            Model::Builtin(kind) => Err(ApiError::bad_request(kind.unknown_field_label(label))),
            Model::Custom(custom) => {
                let known = label == "metadata.name"
                    || (label == "metadata.namespace" && self.namespaced)
                    || custom.version().selectable.iter().any(|path| path.name == label);
                if known {
                    Ok(())
                } else {
                    Err(ApiError::bad_request(format!(
                        "field label not supported: {label}"
                    )))
                }
            }
        }
    }

    /// The value of a field label that was checked.
    pub fn field_value(&self, object: &Value, label: &str) -> String {
        match (&self.model, label) {
            (_, "metadata.name") => meta::name(object).to_owned(),
            (_, "metadata.namespace") => meta::namespace(object).to_owned(),
            (Model::Builtin(kind), _) => kind.field(object, label).unwrap_or_default(),
            (Model::Custom(custom), _) => custom
                .version()
                .selectable
                .iter()
                .find(|path| path.name == label)
                .map(|path| path.value(object))
                .unwrap_or_default(),
        }
    }

    /// `plural.group`, as messages name the type.
    pub fn qualified(&self) -> String {
        qualified(&self.group, &self.plural)
    }
}

/// Makes every member but those in `free` what it is in `old`. Nearly always they are the same
/// already, so they are compared and not copied.
fn restore(new: &mut serde_json::Map<String, Value>, old: &Value, free: &[&str]) {
    let is_free = |key: &String| free.contains(&key.as_str());
    new.retain(|key, _| is_free(key) || old.get(key).is_some());
    for (key, value) in old.as_object().into_iter().flatten() {
        if !is_free(key) && new.get(key) != Some(value) {
            new.insert(key.clone(), value.clone());
        }
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

impl Custom {
    /// Brings a stored object under the schema of today.
    pub fn reread(&self, object: &mut Value) {
        let schema = &self.version().schema;
        prune(schema, object, Root::Resource);
        cobaltcore_schema::default(schema, object);
    }

    /// Takes out what this version does not know of an object that was another version's a moment ago.
    /// Nothing is filled in: defaults are those of the version an object came from.
    pub fn take_over(&self, object: &mut Value) {
        prune(&self.version().schema, object, Root::Resource);
    }

    /// What is wrong with an applied object because it has nulls: those of its configuration, and
    /// what is left of containers it emptied. Elsewhere a null that may not be is left out; here it
    /// is a value like any other.
    pub fn null_errors(&self, applied: &Value, live: Option<&Value>) -> Vec<FieldError> {
        if !has_null(applied) {
            return Vec::new();
        }
        let mut object = applied.clone();
        cobaltcore_schema::default_keeping_nulls(&self.version().schema, &mut object);
        self.validate(&object, live, None, &mut Vec::new(), &mut Budget::per_object())
    }

    fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        subresource: Option<&str>,
        forgiven: &mut Vec<FieldError>,
        budget: &mut Budget,
    ) -> Vec<FieldError> {
        let version = self.version();
        let schema = &version.schema;
        let status_only = subresource == Some("status");
        let mut errors = match old {
            Some(old) if status_only => validate_status(schema, new, old, budget, forgiven),
            _ => validate(schema, new, old, budget, forgiven),
        };
        if let Some(scale) = &version.scale {
            errors.extend(crd::validate_scale(scale, new, status_only));
        }
        errors
    }
}
