// SPDX-License-Identifier: Apache-2.0
//! Deletion: preconditions, finalizers, grace, and what is answered. What happens to dependents is
//! the garbage collector's business.

use cobaltcore_text::go;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::bootstrap::SYSTEM_PRIORITIES;
use crate::call::{Answer, Call};
use crate::meta;
use crate::negotiate::Form;
use crate::options::{DeleteOptions, FieldValidation, ListOptions, Propagation, WriteOptions};
use crate::read::Filter;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult, qualified};
use crate::store::{Action, Change, CommitError, Draft, Expect, Key, Record};
use crate::view::View;
use crate::write::{Outcome, Write};

/// The finalizers that stand for a propagation policy.
pub(crate) const ORPHAN: &str = "orphan";
/// See [`ORPHAN`].
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
const ATTEMPTS: usize = 5;
/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How a deletion ended.
#[derive(Debug)]
pub enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// Finalizers or grace keep it; this is its new state.
    Waiting(Outcome),
}

impl Api {
    /// DELETE of one object.
    pub async fn delete(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let options = self.delete_options(call)?;
        let form = Form::negotiate(&call.headers, &call.query, true)?;
        let write_options = quiet(options.dry_run);
        let write = Write {
            call,
            registry,
            resource,
            subresource: None,
            options: &write_options,
            form,
        };
        warn_of_orphans(call, resource, &options);
        let key = self.key_of(call, resource);
        match self.remove(&write, &key, &options).await? {
            // Whoever asked the old way for the dependents to go too learns that it is not over yet.
            Deleted::Waiting(outcome) if options.raw["orphanDependents"] == json!(false) => {
                Ok(write.answer(self, 202, outcome))
            }
            Deleted::Waiting(outcome) => Ok(write.answer(self, 200, outcome)),
            Deleted::Gone(object) if resource.as_builtin().is_some_and(|k| k.delete_returns_object) => {
                Ok(write.answer(self, 200, Outcome::Tree(object)))
            }
            Deleted::Gone(object) => Ok(Answer::value(200, form, &success(resource, &object))),
        }
    }

    /// DELETE of a collection.
    pub async fn delete_collection(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let options = self.delete_options(call)?;
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_list(resource)?;
        let list_options = ListOptions::parse(&call.query, false)?;
        let filter = Filter::parse(resource, &call.info.namespace, &list_options)?;
        let write_options = quiet(options.dry_run);
        warn_of_orphans(call, resource, &options);
        let write = Write {
            call,
            registry,
            resource,
            subresource: None,
            options: &write_options,
            form,
        };
        let listing = {
            let view = View {
                resource,
                registry,
                form,
                clock: &self.clock,
            };
            self.select(&view, &list_options, &filter).await?
        };
        let shown = self.present_all(resource, listing.records.clone()).await?;
        for record in &listing.records {
            let object = record.parse();
            let key = Key::new(meta::namespace(&object), meta::name(&object));
            match self.remove(&write, &key, &options).await {
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        let view = View {
            resource,
            registry,
            form,
            clock: &self.clock,
        };
        Ok(Answer::object(
            200,
            form,
            view.list(&shown, listing.metadata(&filter)),
        ))
    }

    fn delete_options(&self, call: &Call) -> ApiResult<DeleteOptions> {
        if call.body.is_empty() {
            return DeleteOptions::parse(&call.query, None);
        }
        let body = call.decode_body("DeleteOptions")?;
        if !body.value.is_object() && !body.value.is_null() {
            return Err(call.unrecognized(
                "DeleteOptions",
                &format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    crate::decode::json_type(&body.value)
                ),
            ));
        }
        DeleteOptions::parse(&call.query, Some(&body.value))
    }

    /// Deletes one object as far as its finalizers and grace allow.
    pub async fn remove(
        self: &Arc<Self>,
        write: &Write<'_>,
        key: &Key,
        options: &DeleteOptions,
    ) -> ApiResult<Deleted> {
        let resource = write.resource;
        if resource.is("", "Namespace") && IMMORTAL.contains(&&*key.name) {
            return Err(ApiError::forbidden(
                "",
                "namespaces",
                &key.name,
                "this namespace may not be deleted",
            ));
        }
        // A whole collection may go with them; the next start brings them back.
        if resource.is("scheduling.k8s.io", "PriorityClass")
            && write.call.info.verb == "delete"
            && SYSTEM_PRIORITIES.iter().any(|(name, ..)| *name == &*key.name)
        {
            return Err(ApiError::forbidden(
                &resource.group,
                &resource.plural,
                &key.name,
                "this is a system priority class and cannot be deleted",
            ));
        }
        for _ in 0..ATTEMPTS {
            let record = resource
                .table
                .get(key)
                .ok_or_else(|| resource.not_found(&key.name))?;
            let shown = self.present(resource, &record).await?;
            let object = write.view(self).tree(&shown);
            check_preconditions(resource, &object, options)?;
            self.admit_removal(write, key, &object, options).await?;
            if let Some(done) = self.remove_once(write, key, &record, object, options).await? {
                return Ok(done);
            }
        }
        Err(resource.stale(&key.name))
    }

    /// Asks the webhooks. They are not asked again about a pod whose grace runs already, nor about
    /// the removal that follows an eviction: they were asked about the eviction.
    async fn admit_removal(
        &self,
        write: &Write<'_>,
        key: &Key,
        object: &Value,
        options: &DeleteOptions,
    ) -> ApiResult<()> {
        let graceful = write.resource.as_builtin().is_some_and(|k| k.graceful);
        let pending = graceful && matches!(self.plan(write.resource, object, options), Plan::Nothing);
        if write.subresource.is_some() || pending {
            return Ok(());
        }
        let collection = write.call.info.verb == "deletecollection";
        let attempt = Attempt {
            write,
            operation: Operation::Delete,
            namespace: key.namespace.to_string(),
            name: if collection {
                String::new()
            } else {
                key.name.to_string()
            },
            old: Some(object),
            options: options.raw.clone(),
        };
        self.mutate(&attempt, &mut Value::Null).await?;
        self.validate(&attempt, None).await
    }

    async fn remove_once(
        &self,
        write: &Write<'_>,
        key: &Key,
        record: &Arc<Record>,
        object: Value,
        options: &DeleteOptions,
    ) -> ApiResult<Option<Deleted>> {
        let resource = write.resource;
        let plan = self.plan(resource, &object, options);
        let mut next = object.clone();
        match plan {
            Plan::Nothing => {
                let shown = self.present(resource, record).await?;
                Ok(Some(Deleted::Waiting(Outcome::Stored(shown))))
            }
            Plan::Wait { grace, finalizers } => {
                self.mark_deleting(resource, &mut next, &object, grace, &finalizers);
                if write.options.dry_run {
                    return Ok(Some(Deleted::Waiting(Outcome::Tree(next))));
                }
                self.to_storage(resource, write.registry, &mut next).await?;
                let draft = Draft::new(&next, resource.stored_schema());
                let Some(stored) = self.put(resource, key, record, Action::Put(draft)).await? else {
                    return Ok(None);
                };
                let shown = self.present(resource, &stored).await?;
                Ok(Some(Deleted::Waiting(Outcome::Stored(shown))))
            }
            Plan::Remove => {
                if resource.is("", "Pod") {
                    // Pods go gracefully, also where the grace is none: those who follow them hear
                    // of the end first and then of the removal.
                    self.mark_deleting(resource, &mut next, &object, 0, &[]);
                }
                if write.options.dry_run {
                    return Ok(Some(Deleted::Gone(next)));
                }
                let mut last = record.clone();
                if next != object {
                    let mut marked = next.clone();
                    self.to_storage(resource, write.registry, &mut marked).await?;
                    let draft = Draft::new(&marked, resource.stored_schema());
                    let Some(stored) = self.put(resource, key, record, Action::Put(draft)).await? else {
                        return Ok(None);
                    };
                    last = stored;
                }
                self.take_out(resource, key, &last, next).await
            }
        }
    }

    /// Removes an object whose time has come. Somebody else may have done so a moment ago.
    async fn take_out(
        &self,
        resource: &Resource,
        key: &Key,
        last: &Arc<Record>,
        mut next: Value,
    ) -> ApiResult<Option<Deleted>> {
        let draft = Draft::new(&last.parse(), last.schema);
        let removed = self.put(resource, key, last, Action::Delete(draft)).await?;
        if removed.is_none() && (!meta::deleting(&next) || resource.table.get(key).is_some()) {
            return Ok(None);
        }
        let revision = removed.map_or(last.revision, |record| record.revision);
        meta::set(&mut next, "resourceVersion", json!(revision.to_string()));
        Ok(Some(Deleted::Gone(next)))
    }

    async fn put(
        &self,
        resource: &Resource,
        key: &Key,
        record: &Record,
        action: Action,
    ) -> ApiResult<Option<Arc<Record>>> {
        let change = Change {
            table: resource.table.id,
            key: key.clone(),
            expect: Expect::Revision(record.revision),
            action,
        };
        match self.store.commit(vec![change]).await {
            Ok(mut records) => Ok(records.pop()),
            Err(CommitError::Conflict) => Ok(None),
            Err(CommitError::Failed(why)) => Err(ApiError::internal(why)),
        }
    }

    fn plan(&self, resource: &Resource, object: &Value, options: &DeleteOptions) -> Plan {
        let mut finalizers: Vec<String> = meta::finalizers(object).iter().map(ToString::to_string).collect();
        let before = finalizers.clone();
        let default = if resource.as_builtin().is_some_and(|k| k.default_orphan) {
            Some(Propagation::Orphan)
        } else {
            None
        };
        if let Some(policy) = options.propagation.or(default) {
            // An explicit policy replaces a policy finalizer that is already there.
            finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
            match policy {
                Propagation::Orphan => finalizers.push(ORPHAN.into()),
                Propagation::Foreground => finalizers.push(FOREGROUND.into()),
                Propagation::Background => {}
            }
        }
        if resource.is_definition() && !meta::deleting(object) {
            // The first deletion of a definition only begins the removal of its instances.
            finalizers.clone_from(&before);
            if !finalizers.iter().any(|f| f == crate::definitions::CLEANUP) {
                finalizers.push(crate::definitions::CLEANUP.into());
            }
        }
        let grace = self.grace(resource, object, options);
        let held = !finalizers.is_empty() || !resource.own_finalizers_done(object);
        if !held && grace == 0 {
            return Plan::Remove;
        }
        if meta::deleting(object) {
            let current = object["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(0);
            if finalizers == before && (grace >= current || current == 0) {
                return Plan::Nothing;
            }
            return Plan::Wait {
                grace: grace.min(current),
                finalizers,
            };
        }
        Plan::Wait { grace, finalizers }
    }

    /// Only pods that run somewhere are given time.
    fn grace(&self, resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
        if !resource.as_builtin().is_some_and(|k| k.graceful) {
            return 0;
        }
        let scheduled = object["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
        let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if !scheduled || over {
            return 0;
        }
        let asked = options
            .grace
            .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64());
        let wanted = match asked {
            Some(seconds) if seconds < 0 => 1,
            Some(seconds) => seconds,
            None => 30,
        };
        // A later delete without a period of its own keeps the one that runs.
        match (meta::deleting(object), options.grace) {
            (true, None) => object["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(wanted),
            _ => wanted,
        }
    }

    fn mark_deleting(
        &self,
        resource: &Resource,
        next: &mut Value,
        object: &Value,
        grace: i64,
        finalizers: &[String],
    ) {
        let first = !meta::deleting(object);
        let at = self.clock.now();
        let end = at
            .saturating_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(at);
        if first
            || grace
                < object["metadata"]["deletionGracePeriodSeconds"]
                    .as_i64()
                    .unwrap_or(0)
        {
            meta::set(next, "deletionTimestamp", json!(crate::clock::stamp(end)));
            // Namespaces and definitions go through a deletion of their own, which knows no grace.
            if !resource.is("", "Namespace") && !resource.is_definition() {
                meta::set(next, "deletionGracePeriodSeconds", json!(grace));
            }
        }
        let list: Vec<&str> = finalizers.iter().map(String::as_str).collect();
        meta::set_finalizers(next, &list);
        if first && resource.has_generation() && !resource.is_definition() {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::set(next, "generation", json!(generation));
        }
        if resource.is("", "Namespace") {
            meta::fields(meta::field(meta::fields(next), "status"))
                .insert("phase".into(), json!("Terminating"));
        }
        if resource.is_definition() {
            crate::definitions::mark_terminating(next, &self.clock.stamp());
        }
    }
}

enum Plan {
    /// Everything asked for is under way already.
    Nothing,
    /// Something holds the object.
    Wait { grace: i64, finalizers: Vec<String> },
    /// Nothing holds it.
    Remove,
}

/// Jobs leave their pods behind unless they are told otherwise.
fn warn_of_orphans(call: &Call, resource: &Resource, options: &DeleteOptions) {
    if resource.is("batch", "Job") && options.propagation.is_none() {
        call.warn("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning");
    }
}

/// Options for writes a client did not send as such.
pub(crate) fn quiet(dry_run: bool) -> WriteOptions {
    WriteOptions {
        dry_run,
        validation: FieldValidation::Ignore,
        manager: None,
        force: false,
    }
}

pub(crate) fn check_preconditions(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
) -> ApiResult<()> {
    let name = meta::name(object);
    // Namespaces and definitions are deleted by code of their own, which has its own words.
    let own_words = resource.is("", "Namespace") || resource.is_definition();
    let conflict = |what: &str, wanted: &str, found: &str, why: String| {
        if own_words {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(ApiError::conflict(&resource.group, &resource.plural, name, &why));
        }
        Err(ApiError::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} {name}: {why}",
                qualified(&resource.group, &resource.kind),
                name = go::quote(name)
            ),
        )
        .about(&resource.group, &resource.kind, name))
    };
    let uid = meta::text(object, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return conflict("UID", wanted, uid, why);
    }
    let version = meta::text(object, "resourceVersion");
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|wanted| *wanted != version)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return conflict("ResourceVersion", wanted, version, why);
    }
    Ok(())
}

/// The answer for an object that is gone.
fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::name(object),
        "kind": &*resource.plural,
        "uid": meta::text(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = json!(&*resource.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
