// SPDX-License-Identifier: Apache-2.0
//! PUT and the four kinds of PATCH. All of them fetch the stored object, build a candidate and run
//! the same pipeline; a candidate built without a resource version is rebuilt when the object
//! changed meanwhile.

mod candidate;
mod locks;
mod reading;
mod refusals;
mod replicas;

use std::sync::Arc;

use cobaltcore_access::rbac::Attributes;
use cobaltcore_cel::Budget;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::call::{Answer, Call};
use crate::meta;
use crate::negotiate::{self, Form};
use crate::options::WriteOptions;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::{Action, Change, CommitError, Draft, Expect, Key, Record};
use crate::write::{Outcome, Write, receive, take_in};

pub(crate) use locks::check_name;
use locks::{keep_server_owned, uid_conflict};
pub(crate) use reading::illegible_configuration;
pub(crate) use reading::strange_parts;
use reading::{read_patch, unsupported_patch};
pub(crate) use refusals::judge_configuration;
use refusals::unconvertible;
pub(crate) use refusals::{other_envelope, shown_start};

/// A candidate is rebuilt whenever somebody else was faster: a change that names no version never
/// fails for that. Every round some writer succeeds, so this is far beyond any real contention.
const ATTEMPTS: usize = 1000;

/// How a candidate is made from the stored object.
#[derive(Debug)]
pub enum Edit {
    /// The client's object replaces the stored one.
    Replace(Value),
    /// A JSON patch.
    Json(Patch),
    /// A merge patch.
    Merge(Patch),
    /// A strategic merge patch.
    Strategic(Patch),
    /// A server-side apply.
    Apply(Patch),
}

/// What a client sent to change an object with.
#[derive(Debug)]
pub struct Patch {
    /// The patch or configuration itself.
    pub value: Value,
    /// What is strange about it. That is told, or refused, together with what is strange about the
    /// result, and so not before there is one.
    pub problems: Vec<String>,
}

impl Patch {
    /// A patch that nothing is strange about.
    pub fn plain(value: Value) -> Self {
        Self {
            value,
            problems: Vec::new(),
        }
    }
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
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object(resource)?;
        let write = Write {
            call,
            registry,
            resource,
            subresource,
            options: &options,
            form,
        };
        let decoded = call.decode_object(resource)?;
        let object = receive(&write, decoded)?;
        let mut object = object;
        self.check_namespace_match(call, resource, &mut object)?;
        check_name(call, &object)?;
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
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object(resource)?;
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
            Edit::Apply(Patch {
                value: config,
                problems,
            }) if write.subresource.is_none() => {
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
                judge_configuration(write, problems)?;
                check_name(call, config)?;
                meta::set(&mut object, "resourceVersion", Value::Null);
                meta::set(&mut object, "name", json!(name));
                if resource.namespaced {
                    meta::set(&mut object, "namespace", json!(call.info.namespace));
                }
                take_in(write, &mut object).map_err(|e| unconvertible(resource, config, &e))?;
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
        // A custom object is completed as it was sent; what is not the request's stays as it is stored.
        let custom = resource.as_custom().is_some();
        if custom {
            resource.default(&mut new);
        }
        resource.prepare_update(&mut new, &old, write.subresource);
        if !custom {
            resource.default(&mut new);
        }
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
            if write.subresource == Some("scale") {
                self.own_replicas(write, &old, &mut new);
            } else {
                self.own(write, Some(&old), &mut new);
            }
        }
        self.admit_owners(&attempt, &mut new);
        self.admit_builtin(&mut attempt, &mut new)?;
        if self.mutate(&attempt, &mut new).await? {
            keep_server_owned(resource, &mut new, &old);
            resource.prepare_update(&mut new, &old, write.subresource);
            resource.default(&mut new);
        }
        resource.stamp_update(&mut new, &old, write.subresource, self.clock.now());
        let turn = self.take_turn(resource).await;
        if resource.has_generation()
            && write.subresource.is_none_or(|s| s != "status")
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
        resource.settle(&mut new);
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
        if !finished
            && cobaltcore_patch::unchanged(&old, &new)
            && self.is_stored_so(write, record, &new).await?
        {
            return Ok(Some(Outcome::Stored(shown)));
        }
        let _quota = self.quota_turn(write, &new, Some(&old)).await?;
        if write.options.dry_run {
            return Ok(Some(Outcome::Tree(new)));
        }
        self.store_change(write, key, record, new, finished, pinned).await
    }

    /// Whether an object that did not change would be stored as it is stored. Under another schema or
    /// in another version it would not: whoever writes it again brings it up to date.
    async fn is_stored_so(&self, write: &Write<'_>, record: &Record, new: &Value) -> ApiResult<bool> {
        let resource = write.resource;
        if resource.as_custom().is_none() || record.schema == resource.stored_schema() {
            return Ok(true);
        }
        let mut next = new.clone();
        self.to_storage(resource, write.registry, &mut next).await?;
        Ok(cobaltcore_patch::unchanged(&record.parse(), &next))
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
            Action::Put(crate::size::draft(write, key, &mut new)?)
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
