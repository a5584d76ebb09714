// SPDX-License-Identifier: Apache-2.0
//! PUT and the four kinds of PATCH. All of them fetch the stored object, build a candidate and run
//! the same pipeline; a candidate built without a resource version is rebuilt when the object
//! changed meanwhile.

use cobaltcore_text::go;
use std::sync::Arc;

use cobaltcore_access::rbac::Attributes;
use cobaltcore_cel::Budget;
use cobaltcore_patch::{ApplyRequest, PatchError};
use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::call::{Answer, Call, duplicate_field};
use crate::decode::{self, Decoded};
use crate::meta;
use crate::negotiate::{self, Form};
use crate::options::{FieldValidation, WriteOptions};
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Expect, Key, Record};
use crate::write::{Outcome, Write, receive, version_schemas};
use crate::yaml;

/// A candidate is rebuilt whenever somebody else was faster: a change that names no version never
/// fails for that. Every round some writer succeeds, so this is far beyond any real contention.
const ATTEMPTS: usize = 1000;

/// How a candidate is made from the stored object.
#[derive(Debug)]
pub enum Edit {
    /// The client's object replaces the stored one.
    Replace(Value),
    /// A JSON patch.
    Json(Value),
    /// A merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
    /// A server-side apply.
    Apply(Value),
}

impl Edit {
    fn is_apply(&self) -> bool {
        matches!(self, Self::Apply(_))
    }
}

impl Api {
    /// PUT.
    pub async fn update(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
        subresource: Option<&str>,
    ) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object()?;
        let write = Write {
            call,
            registry,
            resource,
            subresource,
            options: &options,
            form,
        };
        let decoded = call.decode_body(&resource.kind)?;
        let object = receive(&write, decoded)?;
        check_name(call, &object)?;
        let mut object = object;
        self.check_namespace_match(call, resource, &mut object)?;
        let (code, outcome) = self.modify(&write, Edit::Replace(object)).await?;
        Ok(write.answer(self, code, outcome))
    }

    /// PATCH.
    pub async fn patch(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
        subresource: Option<&str>,
    ) -> ApiResult<Answer> {
        let media = negotiate::body_type(&call.headers);
        let apply = media == "application/apply-patch+yaml";
        let known = matches!(
            media.as_str(),
            "application/json-patch+json" | "application/merge-patch+json"
        ) || (media == "application/strategic-merge-patch+json"
            && resource.as_builtin().is_some());
        if !known && !apply {
            return Err(unsupported_patch(resource));
        }
        let options = WriteOptions::parse(&call.query, "PatchOptions", apply)?;
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object()?;
        let write = Write {
            call,
            registry,
            resource,
            subresource,
            options: &options,
            form,
        };
        if !apply && resource.table.get(&self.key_of(call, resource)).is_none() {
            return Err(resource.not_found(&call.info.name));
        }
        let edit = read_patch(&write, &media)?;
        let (code, outcome) = self.modify(&write, edit).await?;
        Ok(write.answer(self, code, outcome))
    }

    /// Changes one object; the code is 201 when it had to be created.
    pub async fn modify(self: &Arc<Self>, write: &Write<'_>, edit: Edit) -> ApiResult<(u16, Outcome)> {
        let resource = write.resource;
        let key = self.key_of(write.call, resource);
        for _ in 0..ATTEMPTS {
            let Some(record) = resource.table.get(&key) else {
                match self.create_instead(write, &edit).await {
                    // Somebody created it meanwhile; it is changed then.
                    Err(error) if error.reason() == "AlreadyExists" => continue,
                    created => return created.map(|outcome| (201, outcome)),
                }
            };
            if let Some(outcome) = self.modify_once(write, &edit, &key, &record).await? {
                return Ok((200, outcome));
            }
        }
        Err(resource.stale(&key.name))
    }

    /// PUT and apply create what is not there, where the kind allows it and the client may.
    async fn create_instead(self: &Arc<Self>, write: &Write<'_>, edit: &Edit) -> ApiResult<Outcome> {
        let (resource, call) = (write.resource, write.call);
        let name = &call.info.name;
        let may_create = |api: &Self| {
            let attributes = Attributes::resource(&call.user, "create", &resource.group, &resource.plural)
                .in_namespace(&call.info.namespace)
                .named(name);
            api.require(&attributes)
        };
        match edit {
            Edit::Replace(object) if write.subresource.is_none() && resource.creates_on_update() => {
                may_create(self)?;
                let mut object = object.clone();
                if !meta::text(&object, "uid").is_empty() {
                    return Err(uid_conflict(resource, name, &object, &Value::Null));
                }
                // A revision locks what exists; here there is nothing to lock.
                meta::set(&mut object, "resourceVersion", Value::Null);
                meta::set(&mut object, "name", json!(name));
                self.insert(write, object, None).await
            }
            Edit::Apply(config) if write.subresource.is_none() => {
                may_create(self)?;
                let uid = meta::text(config, "uid");
                if !uid.is_empty() {
                    return Err(ApiError::conflict(
                        &resource.group,
                        &resource.plural,
                        name,
                        &format!(
                            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                        ),
                    ));
                }
                let mut object = self.apply_to(write, config, None)?;
                check_name(call, config)?;
                meta::set(&mut object, "resourceVersion", Value::Null);
                meta::set(&mut object, "name", json!(name));
                if resource.namespaced {
                    meta::set(&mut object, "namespace", json!(call.info.namespace));
                }
                let object = receive(
                    write,
                    Decoded {
                        value: object,
                        ..Decoded::default()
                    },
                )?;
                self.insert(write, object, Some(())).await
            }
            _ => Err(resource.not_found(name)),
        }
    }

    /// One attempt; `None` when the object changed meanwhile and the edit may be tried again.
    async fn modify_once(
        self: &Arc<Self>,
        write: &Write<'_>,
        edit: &Edit,
        key: &Key,
        record: &Arc<Record>,
    ) -> ApiResult<Option<Outcome>> {
        let resource = write.resource;
        let shown = self.present(resource, record).await?;
        let old = write.view(self).tree(&shown);
        let mut new = self.build(write, edit, &old)?;
        let pinned = self.check_preconditions(write, edit, &old, &new)?;
        keep_server_owned(resource, &mut new, &old);
        resource.prepare_update(&mut new, &old, write.subresource);
        resource.default(&mut new);
        let mut attempt = Attempt {
            write,
            operation: Operation::Update,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            old: Some(&old),
            // A patch is an update to those who admit it.
            options: json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}),
        };
        if !edit.is_apply() {
            // What admission adds belongs to nobody.
            self.own(write, Some(&old), &mut new);
        }
        self.admit_builtin(&mut attempt, &mut new)?;
        if self.mutate(&attempt, &mut new).await? {
            keep_server_owned(resource, &mut new, &old);
            resource.prepare_update(&mut new, &old, write.subresource);
            resource.default(&mut new);
        }
        resource.stamp_update(&mut new, &old, write.subresource, self.clock.now());
        let turn = self.take_turn(resource).await;
        if resource.has_generation()
            && write.subresource.is_none_or(|s| s == "scale")
            && resource.spec_changed(&new, &old)
        {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::set(&mut new, "generation", json!(generation));
        }
        self.before_validation(write, &mut new, Some(&old))?;
        let (mut forgiven, mut budget) = (Vec::new(), Budget::per_object());
        let errors = resource.validate_update(&new, &old, write.subresource, &mut forgiven, &mut budget);
        self.metrics.evaluated(&budget);
        for known in forgiven {
            write.call.warn(known.to_string());
        }
        if !errors.is_empty() {
            return Err(resource.invalid(&key.name, &errors));
        }
        self.guard(write, &new, Some(&old))?;
        write.warn(&new, Some(&old));
        let turns = turn.is_some();
        // Webhooks may write themselves, so nobody waits for them with a turn in hand.
        drop(turn);
        self.validate(&attempt, Some(&new)).await?;
        let _turn = self.take_turn(resource).await;
        if turns {
            self.before_validation(write, &mut new, Some(&old))?;
        }
        let finished = is_finished(resource, &new);
        if !finished && cobaltcore_patch::unchanged(&old, &new) {
            return Ok(Some(Outcome::Stored(shown)));
        }
        let _quota = self.quota_turn(write, &new, Some(&old)).await?;
        if write.options.dry_run {
            return Ok(Some(Outcome::Tree(new)));
        }
        self.store_change(write, key, record, new, finished, pinned).await
    }

    async fn store_change(
        &self,
        write: &Write<'_>,
        key: &Key,
        record: &Record,
        mut new: Value,
        finished: bool,
        pinned: bool,
    ) -> ApiResult<Option<Outcome>> {
        let resource = write.resource;
        let answer = finished.then(|| new.clone());
        if !finished {
            self.to_storage(resource, write.registry, &mut new).await?;
        }
        let action = if finished {
            // Watchers see the last stored state, not the one without finalizers.
            Action::Delete(Draft::new(&record.parse(), record.schema))
        } else {
            Action::Put(Draft::new(&new, resource.stored_schema()))
        };
        let change = Change {
            table: resource.table.id,
            key: key.clone(),
            expect: Expect::Revision(record.revision),
            action,
        };
        match self.store.commit(vec![change]).await {
            Ok(mut records) => Ok(match (answer, records.pop()) {
                (Some(tree), _) => Some(Outcome::Tree(tree)),
                (None, Some(record)) => Some(Outcome::Stored(self.present(resource, &record).await?)),
                (None, None) => None,
            }),
            Err(CommitError::Conflict) if pinned => Err(resource.stale(&key.name)),
            Err(CommitError::Conflict) => Ok(None),
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }

    /// The candidate.
    fn build(&self, write: &Write<'_>, edit: &Edit, old: &Value) -> ApiResult<Value> {
        let resource = write.resource;
        let mut patched = match edit {
            Edit::Replace(object) => return Ok(object.clone()),
            Edit::Apply(config) => self.apply_to(write, config, Some(old))?,
            Edit::Json(patch) => {
                cobaltcore_patch::json_patch(old, patch).map_err(|e| refused(resource, old, e))?
            }
            Edit::Merge(patch) => {
                let mut patched = old.clone();
                cobaltcore_patch::merge_patch(&mut patched, patch);
                patched
            }
            Edit::Strategic(patch) => cobaltcore_patch::strategic_merge_patch(old, patch, resource.schema())
                .map_err(|e| refused(resource, old, e))?,
        };
        let name = meta::name(old);
        if !patched.is_object() {
            return Err(undecodable(
                resource,
                &shown_start(&patched),
                "the patched object is not an object",
            ));
        }
        for field in ["kind", "apiVersion"] {
            if patched[field] == old[field] {
                continue;
            }
            // A strategic patch is merged into the type itself, which has no other name.
            if !matches!(edit, Edit::Strategic(_)) {
                return Err(envelope_changed(write, &patched, old));
            }
            meta::fields(&mut patched).insert(field.into(), old[field].clone());
        }
        if meta::name(&patched) != name {
            check_name(write.call, &patched)?;
        }
        if meta::namespace(&patched) != meta::namespace(old) {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let patched_text = shown_start(&patched);
        let reset = crate::write::resets_ownership(&patched);
        // Strictness of an apply concerns its configuration and was judged when that was read.
        let unknown = resource.decode(&mut patched).map_err(|e| {
            if e.code() == 400 {
                undecodable(resource, &patched_text, e.message())
            } else {
                e
            }
        })?;
        if reset {
            meta::set(&mut patched, "managedFields", json!([{}]));
        }
        if !edit.is_apply() {
            let mut problems: Vec<String> = unknown.iter().map(|p| crate::call::unknown_field(p)).collect();
            // A patched object has no order of its own any more.
            problems.sort();
            write
                .call
                .judge_strictness(
                    write.options.validation,
                    &problems,
                    &resource.kind,
                    &resource.version,
                )
                .map_err(|_| {
                    undecodable(
                        resource,
                        &patched_text,
                        &format!("strict decoding error: {}", problems.join(", ")),
                    )
                })?;
        }
        Ok(patched)
    }

    /// Merges an apply configuration into the live object.
    fn apply_to(&self, write: &Write<'_>, config: &Value, live: Option<&Value>) -> ApiResult<Value> {
        let resource = write.resource;
        let api_version = resource.api_version();
        let versions = version_schemas(write.registry, resource);
        let filter = resource.filter(write.subresource);
        let attributed = live
            .filter(|_| write.subresource == Some("scale"))
            .and_then(|live| replicas_attributed(resource, live, &self.clock.stamp()));
        let request = ApplyRequest {
            live: attributed.as_ref().or(live),
            config,
            schema: resource.schema(),
            versions: Some(&versions),
            manager: &write.manager(),
            api_version: &api_version,
            kind: &resource.kind,
            subresource: write.subresource,
            force: write.options.force,
            filter: &filter,
            now: &self.clock.stamp(),
        };
        let applied = cobaltcore_patch::apply(request).map_err(|mut e| {
            if let PatchError::Conflict(conflicts) = &mut e {
                self.metrics.apply_conflict();
                if write.subresource == Some("scale") {
                    name_as_scale(conflicts);
                }
            }
            refused(resource, config, e)
        })?;
        if let Some(custom) = resource.as_custom() {
            let errors = custom.null_errors(config, &applied.object, live);
            if !errors.is_empty() {
                return Err(resource.invalid(&write.call.info.name, &errors));
            }
        }
        Ok(applied.object)
    }

    /// Checks uid and resource version; tells whether the client pinned the revision.
    fn check_preconditions(
        &self,
        write: &Write<'_>,
        edit: &Edit,
        old: &Value,
        new: &Value,
    ) -> ApiResult<bool> {
        let resource = write.resource;
        let (uid, live_uid) = (meta::text(new, "uid"), meta::text(old, "uid"));
        if matches!(edit, Edit::Replace(_)) && !uid.is_empty() && uid != live_uid {
            return Err(uid_conflict(resource, meta::name(old), new, old));
        }
        let asked = match edit {
            Edit::Apply(config) => meta::text(config, "resourceVersion"),
            _ => meta::text(new, "resourceVersion"),
        };
        let live = meta::text(old, "resourceVersion");
        match edit {
            Edit::Replace(_) if asked.is_empty() || asked == "0" => {
                if resource.unconditional_update() {
                    return Ok(false);
                }
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                // The reference names the resource where other refusals name the kind.
                return Err(ApiError::invalid(
                    &resource.group,
                    &resource.plural,
                    meta::name(old),
                    &[error],
                ));
            }
            Edit::Replace(_) => {}
            // A patch that does not touch the resource version leaves the stored one in place.
            _ if asked == live && !patch_names_version(edit) => return Ok(false),
            _ if asked.is_empty() => return Ok(false),
            _ => {}
        }
        let Ok(_) = asked.parse::<u64>() else {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(asked),
                "must be a valid resource version",
            );
            return Err(ApiError::new(400, "BadRequest", format!("{error}")));
        };
        if asked != live {
            return Err(resource.stale(meta::name(old)));
        }
        Ok(true)
    }
}

/// The parent of a Scale whose replicas nobody owns, with an owner made up for them: seen through a
/// Scale they were set before the first apply, and whoever wants others has to insist.
fn replicas_attributed(resource: &Resource, live: &Value, now: &str) -> Option<Value> {
    let path = resource.scale_paths().spec_replicas;
    let steps: Vec<&str> = path.split('.').filter(|step| !step.is_empty()).collect();
    steps.iter().try_fold(live, |node, step| node.get(step))?;
    let mut owners = live["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let owns = |entry: &Value| {
        let fields = &entry["fieldsV1"];
        let mut names = steps.iter().map(|step| format!("f:{step}"));
        names.try_fold(fields, |node, name| node.get(name)).is_some()
    };
    if owners.iter().any(owns) {
        return None;
    }
    let fields = steps.iter().rev().fold(json!({}), |inner, step| {
        Value::Object([(format!("f:{step}"), inner)].into_iter().collect())
    });
    owners.push(
        json!({"manager": "before-first-apply", "operation": "Update", "subresource": "scale",
        "apiVersion": resource.api_version(), "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields}),
    );
    let mut live = live.clone();
    meta::set(&mut live, "managedFields", json!(owners));
    Some(live)
}

/// Seen through a Scale, all owners speak of a Scale.
fn name_as_scale(conflicts: &mut cobaltcore_patch::Conflicts) {
    for conflict in &mut conflicts.0 {
        if let Some((owner, _)) = conflict.manager.rsplit_once(" using ") {
            conflict.manager = format!("{owner} using autoscaling/v1");
        }
    }
}

/// Whether a patch itself carries a resource version.
fn patch_names_version(edit: &Edit) -> bool {
    match edit {
        Edit::Merge(patch) | Edit::Strategic(patch) | Edit::Apply(patch) => {
            !meta::text(patch, "resourceVersion").is_empty()
        }
        Edit::Json(patch) => patch
            .as_array()
            .into_iter()
            .flatten()
            .any(|op| op["path"] == "/metadata/resourceVersion" && op["op"] != "test"),
        Edit::Replace(_) => true,
    }
}

/// Reads the body of a patch.
fn read_patch(write: &Write<'_>, media: &str) -> ApiResult<Edit> {
    let body = &write.call.body;
    if media == "application/apply-patch+yaml" {
        let decoded =
            yaml::decode(body).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
        return read_configuration(write, decoded);
    }
    let strategic = media == "application/strategic-merge-patch+json";
    let mut decoded = decode::json(body).map_err(|e| {
        ApiError::bad_request(if strategic {
            e
        } else {
            format!("error decoding patch: {e}")
        })
    })?;
    if strategic && decoded.value.is_null() {
        // Nothing is changed by nothing.
        decoded.value = json!({});
    }
    let mut problems: Vec<String> = decoded
        .duplicates
        .iter()
        .map(|path| duplicate_field(path))
        .collect();
    if media == "application/json-patch+json" {
        problems.extend(strange_members(&decoded.value));
    }
    let resource = write.resource;
    write
        .call
        .judge_strictness(
            write.options.validation,
            &problems,
            &resource.kind,
            &resource.version,
        )
        .map_err(|_| {
            undecodable(
                resource,
                &shown_start(&decoded.value),
                &format!("strict decoding error: {}", problems.join(", ")),
            )
        })?;
    let patch = decoded.value;
    let found = decode::json_type(&patch);
    match media {
        "application/json-patch+json" if patch.is_array() => match strange_operation(&patch) {
            None => Ok(Edit::Json(patch)),
            Some(why) => Err(ApiError::bad_request(format!("error decoding patch: {why}"))),
        },
        "application/json-patch+json" => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        ))),
        "application/strategic-merge-patch+json" if !patch.is_object() => Err(ApiError::bad_request(
            format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"),
        )),
        _ if patch.is_null() => Err(ApiError::bad_request("Invalid JSON Patch")),
        _ if !patch.is_object() => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ))),
        "application/strategic-merge-patch+json" => Ok(Edit::Strategic(patch)),
        _ => Ok(Edit::Merge(patch)),
    }
}

/// Why the operations of a JSON patch cannot be read, though they are a list.
fn strange_operation(patch: &Value) -> Option<String> {
    let mut operations = patch.as_array().into_iter().flatten();
    operations.find_map(|operation| match operation {
        Value::Null => None,
        Value::Object(map) => ["op", "path", "from"].into_iter().find_map(|name| {
            let value = map.get(name).filter(|v| !v.is_string() && !v.is_null())?;
            Some(format!(
                "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                decode::json_type(value)
            ))
        }),
        other => Some(format!(
            "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
            decode::json_type(other)
        )),
    })
}

/// Members of operations that mean nothing.
fn strange_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(at, operation)| {
            let members = operation.as_object().into_iter().flat_map(|map| map.keys());
            members
                .filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
                .map(move |name| {
                    format!(
                        "json patch {}",
                        crate::call::unknown_field(&format!("[{at}].{name}"))
                    )
                })
        })
        .collect()
}

/// Reads an apply configuration: its strictness is judged, its content left as the client wrote it.
fn read_configuration(write: &Write<'_>, decoded: Decoded) -> ApiResult<Edit> {
    let resource = write.resource;
    let Decoded {
        value: mut config,
        repeated,
        ..
    } = decoded;
    if config.is_null() {
        config = json!({});
    }
    if !config.is_object() {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::json_type(&config)
        )));
    }
    // Unknown fields are no matter of strictness: the typed check refuses them in every mode.
    match write.options.validation {
        FieldValidation::Strict if !repeated.is_empty() => {
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {}",
                crate::write::unmarshal_errors(&repeated)
            )));
        }
        FieldValidation::Warn => repeated.into_iter().for_each(|text| write.call.warn(text)),
        _ => {}
    }
    if !meta::name(&config).is_empty() {
        check_name(write.call, &config)?;
    }
    let namespace = meta::namespace(&config);
    if resource.namespaced && !namespace.is_empty() && namespace != write.call.info.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(Edit::Apply(config))
}

/// The name in the object must be the one in the URL.
fn check_name(call: &Call, object: &Value) -> ApiResult<()> {
    let (given, wanted) = (meta::name(object), &call.info.name);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != wanted {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

/// Metadata a client can neither change nor remove.
fn keep_server_owned(resource: &Resource, new: &mut Value, old: &Value) {
    meta::copy(new, old, &["creationTimestamp", "selfLink", "resourceVersion"]);
    if resource.has_generation() {
        meta::copy(new, old, &["generation"]);
    } else {
        meta::set(new, "generation", Value::Null);
    }
    if meta::text(new, "uid").is_empty() {
        meta::copy(new, old, &["uid"]);
    }
    if meta::deleting(old) {
        meta::copy(new, old, &["deletionTimestamp"]);
        if new["metadata"]["deletionGracePeriodSeconds"].is_null() {
            meta::copy(new, old, &["deletionGracePeriodSeconds"]);
        }
    }
}

/// Whether the object is being deleted and nothing holds it any more.
fn is_finished(resource: &Resource, object: &Value) -> bool {
    meta::deleting(object)
        && meta::finalizers(object).is_empty()
        && resource.own_finalizers_done(object)
        && object["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
            == 0
}

fn uid_conflict(resource: &Resource, name: &str, new: &Value, old: &Value) -> ApiError {
    ApiError::conflict(
        &resource.group,
        &resource.plural,
        name,
        &format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            meta::text(new, "uid"),
            meta::text(old, "uid")
        ),
    )
}

fn envelope_changed(write: &Write<'_>, patched: &Value, old: &Value) -> ApiError {
    let resource = write.resource;
    let (kind, version) = (
        patched["kind"].as_str().unwrap_or_default(),
        patched["apiVersion"].as_str().unwrap_or_default(),
    );
    if resource.as_custom().is_some() {
        return other_envelope(resource, meta::name(old), kind, version);
    }
    let why = crate::write::foreign(write.registry, resource, kind, version);
    let why = why
        .message()
        .split_once(&format!(" cannot be handled as a {}: ", resource.kind))
        .map_or(why.message(), |(_, why)| why);
    undecodable(resource, &shown_start(patched), why)
}

/// 422 for a custom resource under the kind or version of another; it is called what it says it is.
pub(crate) fn other_envelope(resource: &Resource, name: &str, kind: &str, version: &str) -> ApiError {
    let expected = resource.api_version();
    let mut errors = Vec::new();
    if kind != &*resource.kind {
        let must = format!("must be {}", resource.kind);
        errors.push(FieldError::invalid("kind", &json!(kind), &must));
    }
    if version != expected {
        let must = format!("must be {expected}");
        errors.push(FieldError::invalid("apiVersion", &json!(version), &must));
    }
    ApiError::invalid(&resource.group, kind, name, &errors)
}

/// A patched object that does not decode is the patch's fault; which object it was is not said.
fn undecodable(resource: &Resource, shown: &str, why: &str) -> ApiError {
    let shown = if resource.is("", "Secret") { "" } else { shown };
    let prefix = format!(
        "{0} in version {1} cannot be handled as a {0}: ",
        resource.kind,
        go::quote(&resource.version)
    );
    let why = why.strip_prefix(&prefix).unwrap_or(why);
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", &json!(shown), why)])
}

/// As much of a value as an error text may show.
fn shown_start(value: &Value) -> String {
    const SHOWN: usize = 64;
    // Nothing beyond what is shown is written: every patch comes by here, few are refused.
    struct Start(Vec<u8>);
    impl std::io::Write for Start {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > SHOWN * 4 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut start = Start(Vec::with_capacity(SHOWN * 5));
    let whole = serde_json::to_writer(&mut start, value).is_ok();
    let text = String::from_utf8_lossy(&start.0);
    if whole && text.len() <= SHOWN {
        return text.into_owned();
    }
    format!("{}...", text.chars().take(SHOWN).collect::<String>())
}

fn unsupported_patch(resource: &Resource) -> ApiError {
    if resource.as_builtin().is_some() {
        return ApiError::unsupported_patch_type();
    }
    let text = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    ApiError::new(415, "UnsupportedMediaType", text)
}

/// A patch that does not apply.
fn refused(resource: &Resource, object: &Value, error: PatchError) -> ApiError {
    const REJECTED: &str = "the server rejected our request due to an error in our request";
    let name = meta::name(object).to_owned();
    match error {
        PatchError::BadRequest(text) | PatchError::IllTyped(text) => ApiError::bad_request(text),
        // The reference has no status for these, so clients see its fallback: 500 without a reason.
        PatchError::Strategic(text) => ApiError::new(500, "", text),
        PatchError::TooLarge(text) => ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {text}"),
        ),
        PatchError::Operation { .. } => ApiError::new(422, "Invalid", REJECTED).with_cause(
            "FieldValueInvalid",
            &error.to_string(),
            "patch",
        ),
        PatchError::Unprocessable(text) => {
            let cause = FieldError::new(
                cobaltcore_schema::Cause::Invalid,
                "patch",
                format!("Invalid value: {text}"),
            );
            resource.invalid(&name, &[cause])
        }
        PatchError::Conflict(conflicts) => conflicts.0.iter().fold(
            ApiError::new(409, "Conflict", conflicts.to_string()),
            |error, c| error.with_cause("FieldManagerConflict", &c.message(), &c.path),
        ),
    }
}
