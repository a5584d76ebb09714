// SPDX-License-Identifier: Apache-2.0
//! What every change has in common, and creation. A write is built up in a fixed order: decode,
//! server-owned metadata, defaults, mutating admission, ownership, validation, validating admission,
//! commit. Nothing is visible before the commit; a refusal at any step leaves nothing behind.

use cobaltcore_text::go;
use std::sync::Arc;

use cobaltcore_cel::Budget;
use cobaltcore_patch::UpdateRequest;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::call::{Answer, Call, duplicate_field, unknown_field, unregistered};
use crate::decode::{Decoded, json_type};
use crate::meta;
use crate::negotiate::Form;
use crate::options::{FieldValidation, WriteOptions};
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Expect, Key, Record};
use crate::view::View;

/// Names the server makes up end in this many characters out of this alphabet.
const SUFFIX: usize = 5;
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// A made-up name is tried this often before the client is told.
const NAME_ATTEMPTS: usize = 8;
/// A base name is cut to this length.
const BASE_MAX: usize = 58;

/// A change under way.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The request.
    pub call: &'a Call,
    /// The served types.
    pub registry: &'a Arc<Registry>,
    /// The type changed.
    pub resource: &'a Arc<Resource>,
    /// The subresource it goes through.
    pub subresource: Option<&'a str>,
    /// The options.
    pub options: &'a WriteOptions,
    /// The form of the answer.
    pub form: Form,
}

/// How a change ended.
#[derive(Debug)]
pub enum Outcome {
    /// Stored (or found unchanged).
    Stored(Arc<Record>),
    /// Not stored: a dry run, or the last state of an object that is now gone.
    Tree(Value),
}

impl Write<'_> {
    /// The request seen as a view of the resource.
    pub fn view<'v>(&'v self, api: &'v Api) -> View<'v> {
        View {
            resource: self.resource,
            registry: self.registry,
            form: self.form,
            clock: &api.clock,
        }
    }

    /// The answer for an outcome.
    pub fn answer(&self, api: &Api, code: u16, outcome: Outcome) -> Answer {
        let view = self.view(api);
        let body = match outcome {
            Outcome::Stored(record) => view.body(&record),
            Outcome::Tree(object) => view.body_of(object),
        };
        Answer::object(code, self.form, body)
    }

    /// Tells the client what is allowed but unwise.
    pub fn warn(&self, new: &Value, old: Option<&Value>) {
        if self.subresource.is_none() {
            self.resource
                .warnings(new, old)
                .into_iter()
                .for_each(|text| self.call.warn(text));
        }
    }

    /// The manager changes are attributed to.
    pub fn manager(&self) -> String {
        self.call.manager(self.options.manager.as_deref())
    }
}

impl Api {
    /// POST to a collection.
    pub async fn create(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object(resource)?;
        let write = Write {
            call,
            registry,
            resource,
            subresource: None,
            options: &options,
            form,
        };
        let decoded = call.decode_object(resource)?;
        let object = receive(&write, decoded)?;
        let outcome = self.insert(&write, object, None).await?;
        Ok(write.answer(self, 201, outcome))
    }

    /// Creates an object. `applied` tells that ownership was recorded by an apply already.
    pub async fn insert(
        self: &Arc<Self>,
        write: &Write<'_>,
        mut object: Value,
        applied: Option<()>,
    ) -> ApiResult<Outcome> {
        let resource = write.resource;
        self.check_namespace_match(write.call, resource, &mut object)?;
        check_versionless(&object)?;
        if let Some(custom) = resource.as_custom()
            && custom.terminating
        {
            return Err(ApiError::forbidden(
                &resource.group,
                &resource.plural,
                meta::name(&object),
                "create not allowed while custom resource definition is terminating",
            ));
        }
        wipe_system_fields(&mut object);
        resource.default(&mut object);
        if applied.is_none() {
            if let Some(kind) = resource.as_builtin() {
                kind.prepare_ownership(&mut object);
            }
            // What admission adds belongs to nobody.
            self.own(write, None, &mut object);
        }
        self.check_namespace_open(write.resource, &object)?;
        let mut attempt = Attempt {
            write,
            operation: Operation::Create,
            namespace: meta::namespace(&object).to_owned(),
            name: meta::name(&object).to_owned(),
            old: None,
            options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        };
        self.admit_owners(&attempt, &mut object);
        self.admit_builtin(&mut attempt, &mut object)?;
        if self.mutate(&attempt, &mut object).await? {
            self.check_namespace_match(write.call, resource, &mut object)?;
            check_versionless(&object)?;
            wipe_system_fields(&mut object);
        }
        self.stamp_new(resource, &mut object);
        if !meta::name(&object).is_empty() || meta::text(&object, "generateName").is_empty() {
            meta::name(&object).clone_into(&mut attempt.name);
            let named = meta::text(&object, "generateName").is_empty();
            let outcome = self.insert_once(&attempt, object).await;
            return if named {
                outcome
            } else {
                outcome.map_err(no_unique_name)
            };
        }
        for round in 1.. {
            let mut candidate = object.clone();
            let name = made_up_name(meta::text(&object, "generateName"));
            meta::set(&mut candidate, "name", json!(name));
            attempt.name = name;
            match self.insert_once(&attempt, candidate).await {
                Err(error) if error.reason() == "AlreadyExists" && round < NAME_ATTEMPTS => {}
                other => return other.map_err(no_unique_name),
            }
        }
        Err(ApiError::internal("no name could be found"))
    }

    /// One attempt to store an object that went through mutating admission.
    async fn insert_once(self: &Arc<Self>, attempt: &Attempt<'_>, mut object: Value) -> ApiResult<Outcome> {
        let write = attempt.write;
        let resource = write.resource;
        // Some defaults follow from the name, which may have been made up a moment ago.
        resource.default(&mut object);
        resource.prepare_create(&mut object);
        let turn = self.take_turn(resource).await;
        self.before_validation(write, &mut object, None)?;
        let name = meta::name(&object).to_owned();
        let mut budget = Budget::per_object();
        let errors = resource.validate_create(&object, &mut budget);
        self.metrics.evaluated(&budget);
        if !errors.is_empty() {
            return Err(resource.invalid(&name, &errors));
        }
        resource.settle(&mut object);
        self.guard(write, &object, None)?;
        write.warn(&object, None);
        let turns = turn.is_some();
        // Webhooks may write themselves, so nobody waits for them with a turn in hand.
        drop(turn);
        self.validate(attempt, Some(&object)).await?;
        let _turn = self.take_turn(resource).await;
        if turns {
            self.before_validation(write, &mut object, None)?;
        }
        let _quota = self.quota_turn(write, &object, None).await?;
        let key = Key::new(meta::namespace(&object), &name);
        if write.options.dry_run {
            if let Some(existing) = resource.table.get(&key) {
                return Err(taken(resource, &name, &existing));
            }
            return Ok(Outcome::Tree(object));
        }
        self.to_storage(resource, write.registry, &mut object).await?;
        let draft = crate::size::draft(write, &key, &mut object)?;
        let change = Change {
            table: resource.table.id,
            key: key.clone(),
            expect: Expect::Absent,
            action: Action::Put(draft),
        };
        match self.store.commit(vec![change]).await {
            Ok(mut records) => {
                let stored = records
                    .pop()
                    .ok_or_else(|| ApiError::internal("nothing was stored"))?;
                self.present(resource, &stored).await.map(Outcome::Stored)
            }
            Err(CommitError::Conflict) => match resource.table.get(&key) {
                Some(existing) => Err(taken(resource, &name, &existing)),
                None => Err(ApiError::already_exists(
                    &resource.group,
                    &resource.plural,
                    &name,
                    false,
                )),
            },
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }

    /// The namespace in the object must be the one in the URL; cluster-scoped objects have none.
    pub fn check_namespace_match(
        &self,
        call: &Call,
        resource: &Resource,
        object: &mut Value,
    ) -> ApiResult<()> {
        if !resource.namespaced {
            meta::set(object, "namespace", Value::Null);
            return Ok(());
        }
        let given = meta::namespace(object);
        if given.is_empty() {
            meta::set(object, "namespace", json!(call.info.namespace));
        } else if given != call.info.namespace {
            return Err(ApiError::other_namespace());
        }
        Ok(())
    }

    /// Nothing is created in a namespace that does not exist or is going away.
    fn check_namespace_open(&self, resource: &Resource, object: &Value) -> ApiResult<()> {
        let namespace = meta::namespace(object);
        if !resource.namespaced {
            return Ok(());
        }
        let Some(record) = self.namespace(namespace) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        if !record.facts.deleting {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        // What has no name yet is refused by what it will begin with.
        let named = [meta::name(object), meta::text(object, "generateName"), "Unknown"];
        let name = named
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        Err(
            ApiError::forbidden(&resource.group, &resource.plural, name, &why).with_cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ),
        )
    }

    /// Metadata only the server sets.
    fn stamp_new(&self, resource: &Resource, object: &mut Value) {
        let stamp = self.clock.stamp();
        let generation = if resource.has_generation() {
            json!(1)
        } else {
            Value::Null
        };
        for (key, value) in [
            ("uid", json!(uuid::Uuid::new_v4().to_string())),
            ("creationTimestamp", json!(stamp)),
            ("generation", generation),
        ] {
            meta::set(object, key, value);
        }
    }

    /// Records who owns the fields of `new`.
    pub fn own(&self, write: &Write<'_>, old: Option<&Value>, new: &mut Value) {
        let api_version = write.resource.api_version();
        let versions = version_schemas(write.registry, write.resource);
        let filter = write.resource.filter(write.subresource);
        let kind = write.resource.as_builtin().filter(|_| old.is_none());
        let blank = kind.map(cobaltcore_builtins::Kind::blank);
        let request = UpdateRequest {
            old,
            blank: blank.as_ref(),
            schema: write.resource.schema(),
            versions: Some(&versions),
            manager: &write.manager(),
            api_version: &api_version,
            subresource: write.subresource,
            filter: &filter,
            now: &self.clock.stamp(),
        };
        cobaltcore_patch::update(request, new);
    }

    /// Kinds whose writes must not interleave wait for their turn.
    pub async fn take_turn(&self, resource: &Resource) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            return Some(self.definitions.lock().await);
        }
        if resource.is("", "Service") {
            return Some(self.allocations.lock().await);
        }
        None
    }
}

/// Finds the schema of any served version of a kind, for ownership recorded through another version.
pub(crate) fn version_schemas<'a>(
    registry: &'a Registry,
    resource: &'a Resource,
) -> impl Fn(&str) -> Option<Arc<cobaltcore_schema::Schema>> + 'a {
    move |api_version| {
        if api_version == resource.api_version() {
            return Some(resource.schema().clone());
        }
        let (group, version) = meta::split_api_version(api_version);
        registry
            .by_kind(group, version, &resource.kind)
            .map(|r| r.schema().clone())
    }
}

/// Checks the envelope of an object and brings it into the type's form. Returns what the type does not
/// know of it.
pub(crate) fn take_in(write: &Write<'_>, object: &mut Value) -> ApiResult<Vec<String>> {
    check_envelope(write, object)?;
    let reset = resets_ownership(write.resource, object);
    let unknown = write.resource.decode(object)?;
    if reset {
        meta::set(object, "managedFields", json!([{}]));
    }
    Ok(unknown)
}

/// Takes in the object of a body and judges strictness.
pub(crate) fn receive(write: &Write<'_>, decoded: Decoded) -> ApiResult<Value> {
    let Decoded {
        mut value,
        duplicates,
        repeated,
    } = decoded;
    let unknown = take_in(write, &mut value)?;
    let mut problems: Vec<(String, String)> = unknown
        .iter()
        .map(|path| (path.clone(), unknown_field(path)))
        .collect();
    if repeated.is_empty() {
        // What a type does not know it does not count; a schema is asked after keys were counted.
        let counted = |path: &&String| write.resource.as_custom().is_some() || !unknown.contains(path);
        problems.extend(
            duplicates
                .iter()
                .filter(counted)
                .map(|path| (path.clone(), duplicate_field(path))),
        );
    }
    if problems.len() > 1 {
        if write.resource.as_custom().is_some() {
            // Keys are counted before a schema is asked which of them it knows.
            problems.rotate_left(unknown.len());
        } else {
            crate::decode::sort_by_place(&write.call.body, &mut problems);
        }
    }
    let mut problems: Vec<String> = problems.into_iter().map(|(_, text)| text).collect();
    if !repeated.is_empty() {
        // The reader of YAML complains first, and of everything at once.
        let told = match write.options.validation {
            FieldValidation::Strict => vec![unmarshal_errors(&repeated)],
            _ => repeated,
        };
        problems.splice(0..0, told);
    }
    if write.options.validation != FieldValidation::Ignore {
        write.call.judge_strictness(
            write.options.validation,
            &problems,
            &write.resource.kind,
            &write.resource.version,
        )?;
    }
    Ok(value)
}

/// A new object has no version yet. Anything that is no number is no version at all.
fn check_versionless(object: &Value) -> ApiResult<()> {
    let version = meta::text(object, "resourceVersion").parse::<u64>();
    if version.is_ok_and(|version| version > 0) {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    Ok(())
}

/// What the reader of YAML says of keys that stand twice.
pub(crate) fn unmarshal_errors(repeated: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "))
}

/// Whether an object says that nobody owns anything: an empty list, which decoding would drop. In
/// custom resources an empty list says nothing.
pub(crate) fn resets_ownership(resource: &Resource, object: &Value) -> bool {
    resource.as_builtin().is_some()
        && object["metadata"]["managedFields"]
            .as_array()
            .is_some_and(Vec::is_empty)
}

/// kind and apiVersion of a body must be those of the endpoint.
fn check_envelope(write: &Write<'_>, value: &mut Value) -> ApiResult<()> {
    let resource = write.resource;
    let expected = resource.api_version();
    let illegible = |error: String| {
        write.call.unrecognized(
            &resource.kind,
            &format!("couldn't get version/kind; json parse error: json: cannot unmarshal {error}"),
        )
    };
    if value.is_null() && resource.as_builtin().is_some() {
        // Nothing at all is an empty object; what it lacks is said by validation.
        *value = json!({});
    }
    if !value.is_object() {
        return Err(illegible(format!(
            "{} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            json_type(value),
        )));
    }
    for key in ["kind", "apiVersion"] {
        if let Some(wrong) = value.get(key).filter(|v| !v.is_null() && !v.is_string()) {
            return Err(illegible(format!(
                "{} into Go struct field .{key} of type string",
                json_type(wrong)
            )));
        }
    }
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, api_version) = (text("kind"), plain_version(text("apiVersion")));
    if api_version.matches('/').count() > 1 {
        return Err(write.call.unrecognized(
            &resource.kind,
            &format!("unexpected GroupVersion string: {api_version}"),
        ));
    }
    if resource.as_builtin().is_some() {
        if (kind.is_empty() || kind == *resource.kind) && (api_version.is_empty() || api_version == expected)
        {
            let map = meta::fields(value);
            map.insert("kind".into(), json!(&*resource.kind));
            map.insert("apiVersion".into(), json!(expected));
            return Ok(());
        }
        return Err(foreign(write.registry, resource, &kind, &api_version));
    }
    if kind.is_empty() {
        return Err(write.call.unrecognized(
            &resource.kind,
            &format!("Object 'Kind' is missing in '{}'", write.call.body_start()),
        ));
    }
    if api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if kind != *resource.kind {
        // The reference judges the kind with the rest of the object, when it is sure which one is meant.
        if write.call.info.verb == "update" {
            crate::modify::check_name(write.call, value)?;
        }
        let name = meta::name(value);
        return Err(crate::modify::other_envelope(resource, name, &kind, &api_version));
    }
    Ok(())
}

/// An apiVersion without the slash that stands for the group without a name.
pub(crate) fn plain_version(api_version: String) -> String {
    match api_version.strip_prefix('/') {
        Some(version) if !version.contains('/') => version.to_owned(),
        _ => api_version,
    }
}

/// 400 for a body of another kind or version than the endpoint of a built-in kind takes. Parts left
/// out are those of the endpoint.
pub(crate) fn foreign(registry: &Registry, resource: &Resource, kind: &str, api_version: &str) -> ApiError {
    let expected = resource.api_version();
    let kind = if kind.is_empty() { &*resource.kind } else { kind };
    let api_version = if api_version.is_empty() {
        expected.as_str()
    } else {
        api_version
    };
    let (group, version) = meta::split_api_version(api_version);
    let builtin = |kind: &str| {
        registry
            .by_kind(group, version, kind)
            .is_some_and(|found| found.as_builtin().is_some())
    };
    // Lists are kinds too, though no endpoint takes one.
    if !builtin(kind) && !kind.strip_suffix("List").is_some_and(builtin) {
        return unregistered(kind, &resource.kind, api_version);
    }
    if *kind == *resource.kind && *group == *resource.group {
        return ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        ));
    }
    let package = resource.package();
    ApiError::bad_request(format!(
        "{kind} in version {quoted_version} cannot be handled as a {0}: converting ({version}.{kind}) to ({package}.{0}): unknown conversion",
        resource.kind,
        quoted_version = go::quote(version)
    ))
}

fn taken(resource: &Resource, name: &str, existing: &Record) -> ApiError {
    ApiError::already_exists(&resource.group, &resource.plural, name, existing.facts.deleting)
}

/// Whoever left the name to the server is told to ask again when the name was taken.
fn no_unique_name(error: ApiError) -> ApiError {
    if error.reason() != "AlreadyExists" {
        return error;
    }
    let text = format!(
        "{}, the server was not able to generate a unique name for the object",
        error.message()
    );
    error.saying(text).retry_after(1)
}

/// Removes the metadata only the server sets.
fn wipe_system_fields(object: &mut Value) {
    for key in [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        meta::set(object, key, Value::Null);
    }
}

/// A base with a random ending.
fn made_up_name(base: &str) -> String {
    let mut end = base.len().min(BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    let random = uuid::Uuid::new_v4().as_u128();
    for at in 0..SUFFIX {
        let index = (random >> (at * 16)) as u16 as usize % ALPHABET.len();
        name.push(ALPHABET[index] as char);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_keep_their_base() {
        let name = made_up_name("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(made_up_name(&"x".repeat(100)).len(), BASE_MAX + SUFFIX);
        assert_ne!(made_up_name("a"), made_up_name("a"));
    }
}
