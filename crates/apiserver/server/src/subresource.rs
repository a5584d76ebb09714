// SPDX-License-Identifier: Apache-2.0
//! Endpoints below an object: status, scale, binding, eviction, token, finalize, approval.

use std::sync::Arc;

use cobaltcore_builtins::Eviction;
use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::api::Api;
use crate::call::{Answer, Call};
use crate::delete::Deleted;
use crate::meta;
use crate::modify::{Edit, Patch};
use crate::negotiate::{self, Form, Shape};
use crate::options::{DeleteOptions, WriteOptions};
use crate::parts;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::view;
use crate::write::{Outcome, Write};

impl Api {
    /// Routes a request for a subresource.
    pub async fn subresource(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let info = &call.info;
        let known = resource.subresources();
        let Some((_, verbs)) = known.iter().find(|(name, _)| *name == info.subresource) else {
            return Err(if resource.as_custom().is_some() {
                resource.not_found(&info.name)
            } else {
                ApiError::no_such_resource()
            });
        };
        if !verbs.contains(&info.verb) {
            return Err(resource.method_not_allowed(info.verb));
        }
        match (info.subresource.as_str(), info.verb) {
            ("scale", _) => self.scale(call, registry, resource).await,
            ("binding", "create") => self.bind_pod(call, registry, resource, &info.name).await,
            ("eviction", "create") => self.evict_pod(call, registry, resource).await,
            ("token", "create") => self.request_token(call, registry, resource).await,
            (_, "get") => self.get(call, registry, resource).await,
            (sub, "update") => self.update(call, registry, resource, Some(sub)).await,
            (sub, "patch") => self.patch(call, registry, resource, Some(sub)).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// `/scale`: the parent seen as a number of replicas.
    async fn scale(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        resource: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let form = Form::negotiate(&call.headers, &call.query, true)?.for_object(resource)?;
        // What cannot be read as a patch is refused before it is looked what it would change.
        if call.info.verb == "patch" && !is_patch(&negotiate::body_type(&call.headers), resource) {
            return Err(ApiError::unsupported_media_type(false));
        }
        let key = self.key_of(call, resource);
        let record = resource
            .table
            .get(&key)
            .ok_or_else(|| resource.not_found(&call.info.name))?;
        let options = match call.info.verb {
            "get" => None,
            "update" => Some(WriteOptions::parse(&call.query, "UpdateOptions", false)?),
            _ => {
                let apply = negotiate::body_type(&call.headers) == "application/apply-patch+yaml";
                Some(WriteOptions::parse(&call.query, "PatchOptions", apply)?)
            }
        };
        let Some(options) = options else {
            let view = view::View {
                resource,
                registry,
                form,
                clock: &self.clock,
            };
            let shown = self.present(resource, &record).await?;
            let parent = view.tree(&shown);
            let replicas = resource.scale_paths().spec_replicas;
            if resource.as_custom().is_some() && path(&parent, &replicas).is_none() {
                return Err(ApiError::internal(format!(
                    "the spec replicas field {} does not exist",
                    go::quote(&format!(".{}", replicas.trim_start_matches('.')))
                )));
            }
            return Ok(self.show_scale(200, form, scale_of(resource, &parent)));
        };
        let write = Write {
            call,
            registry,
            resource,
            subresource: Some("scale"),
            options: &options,
            form,
        };
        let (code, outcome) = self.write_scale(&write, &key).await?;
        let stored = match outcome {
            Outcome::Stored(record) => write.view(self).tree(&record),
            Outcome::Tree(tree) => tree,
        };
        Ok(self.show_scale(code, form, scale_of(resource, &stored)))
    }

    /// A Scale in the form asked for.
    fn show_scale(&self, code: u16, form: Form, scale: Value) -> Answer {
        let shown = match form.shape {
            Shape::Object => scale,
            Shape::Metadata { beta, .. } => view::partial(&scale, beta),
            Shape::Table { beta, include } => crate::table::of_scale(scale, include, beta, self.clock.now()),
        };
        Answer::value(code, form, &shown)
    }

    /// Writes the replicas into the parent as it is now; only a revision the client named itself
    /// makes another change in between a conflict.
    async fn write_scale(
        self: &Arc<Self>,
        write: &Write<'_>,
        key: &crate::store::Key,
    ) -> ApiResult<(u16, Outcome)> {
        let (call, resource) = (write.call, write.resource);
        let mut attempts = SCALE_ATTEMPTS;
        loop {
            let record = resource
                .table
                .get(key)
                .ok_or_else(|| resource.not_found(&call.info.name))?;
            let shown = self.present(resource, &record).await?;
            let parent = write.view(self).tree(&shown);
            let current = scale_of(resource, &parent);
            let wanted = self.wanted_scale(call, write, &current)?;
            let replicas = check_scale(call, resource, &current, &wanted)?;
            if negotiate::body_type(&call.headers) == "application/apply-patch+yaml" {
                if resource.as_custom().is_some() {
                    return Err(ApiError::bad_request(format!(
                        "failed to convert new object ({}/{}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
                        meta::namespace(&wanted),
                        meta::name(&wanted)
                    )));
                }
                let mut config = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind,
                    "metadata": {"name": meta::name(&parent), "namespace": parent["metadata"]["namespace"]}});
                meta::set(
                    &mut config,
                    "resourceVersion",
                    wanted["metadata"]["resourceVersion"].clone(),
                );
                set_path(
                    &mut config,
                    &resource.scale_paths().spec_replicas,
                    json!(replicas),
                );
                return self.modify(write, Edit::Apply(Patch::plain(config))).await;
            }
            let pinned = meta::text(&wanted, "resourceVersion").to_owned();
            let mut next = parent;
            set_path(&mut next, &resource.scale_paths().spec_replicas, json!(replicas));
            let version = if pinned.is_empty() {
                record.revision.to_string()
            } else {
                pinned.clone()
            };
            meta::set(&mut next, "resourceVersion", json!(version));
            attempts -= 1;
            match self.modify(write, Edit::Replace(next)).await {
                Err(error) if error.reason() == "Conflict" && pinned.is_empty() && attempts > 0 => {}
                other => return other,
            }
        }
    }

    /// The Scale a request asks for.
    fn wanted_scale(&self, call: &Call, write: &Write<'_>, current: &Value) -> ApiResult<Value> {
        if call.info.verb == "update" {
            let mut wanted = call.decode_body("Scale")?.value;
            read_scale(write, &mut wanted, Vec::new()).map_err(|why| {
                ApiError::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: {why}"
                ))
            })?;
            return Ok(wanted);
        }
        let media = negotiate::body_type(&call.headers);
        if media == "application/apply-patch+yaml" {
            let decoded =
                crate::yaml::decode(&call.body).map_err(|e| crate::modify::illegible_configuration(&e))?;
            let applied = applied_scale(current, &decoded.value)?;
            crate::modify::judge_configuration(write, &decoded.repeated)?;
            return Ok(applied);
        }
        let decoded = crate::decode::exact_json(&call.body)
            .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
        let strange = crate::modify::strange_parts(&media, &call.body, &decoded);
        let patch = decoded.value;
        let mut base = current.clone();
        let pinned = !meta::text(&patch, "resourceVersion").is_empty();
        let mut wanted = match media.as_str() {
            "application/json-patch+json" => cobaltcore_patch::json_patch(&base, &patch).map_err(|e| {
                ApiError::new(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                )
                .with_cause("FieldValueInvalid", &e.to_string(), "patch")
            })?,
            "application/merge-patch+json" => {
                cobaltcore_patch::merge_patch(&mut base, &patch);
                base
            }
            "application/strategic-merge-patch+json" if write.resource.as_builtin().is_some() => {
                cobaltcore_patch::merge_patch(&mut base, &patch);
                base
            }
            _ => return Err(ApiError::unsupported_media_type(false)),
        };
        let shown = crate::modify::shown_start(&wanted);
        read_scale(write, &mut wanted, strange).map_err(|why| {
            ApiError::invalid("", "", "", &[FieldError::invalid("patch", &json!(shown), &why)])
        })?;
        if !pinned {
            meta::set(&mut wanted, "resourceVersion", Value::Null);
        }
        Ok(wanted)
    }

    /// Puts a pod on a node.
    pub async fn bind_pod(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        pods: &Arc<Resource>,
        name: &str,
    ) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, false)?;
        let mut binding = parts::BINDING.read(call, options.validation)?;
        // `POST bindings` is a resource of its own to admission.
        let own = if call.info.subresource.is_empty() {
            registry.get("", "v1", "bindings")
        } else {
            None
        };
        let (resource, subresource) = own
            .as_ref()
            .map_or((pods, Some("binding")), |bindings| (bindings, None));
        let write = Write {
            call,
            registry,
            resource,
            subresource,
            options: &options,
            form,
        };
        if meta::name(&binding) != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        if subresource.is_some() && binding["target"]["kind"] == "Node" {
            let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
            self.copy_topology(&mut binding, &node);
        }
        let attempt = self.admit_part(&write, name, &mut binding).await?;
        let errors = cobaltcore_builtins::validate_binding(&binding);
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Binding", name, &errors));
        }
        self.validate(&attempt, Some(&binding)).await?;
        let key = crate::store::Key::new(&call.info.namespace, name);
        let record = pods.table.get(&key).ok_or_else(|| pods.not_found(name))?;
        let mut pod = record.parse();
        cobaltcore_builtins::bind(&mut pod, &binding, self.clock.now())
            .map_err(|why| ApiError::conflict("", "pods/binding", name, &why.to_string()))?;
        if !options.dry_run {
            self.replace_record(&pods.table, &key, &record, &pod).await?;
        }
        Ok(created(form))
    }

    /// Mutating admission of a body that is created at a subresource.
    async fn admit_part<'a>(
        &self,
        write: &'a Write<'a>,
        name: &str,
        body: &mut Value,
    ) -> ApiResult<Attempt<'a>> {
        // A part belongs where the whole is, whether it says so or not.
        if meta::namespace(body).is_empty() && !write.call.info.namespace.is_empty() {
            meta::set(body, "namespace", json!(write.call.info.namespace));
        }
        let attempt = Attempt {
            write,
            operation: Operation::Create,
            namespace: write.call.info.namespace.clone(),
            name: name.to_owned(),
            old: None,
            options: json!({}),
        };
        self.own_part(write, body);
        self.mutate(&attempt, body).await?;
        Ok(attempt)
    }

    /// Notes who made a body that is created at a subresource; nothing else of it is kept.
    fn own_part(&self, write: &Write<'_>, body: &mut Value) {
        let definition = match body["kind"].as_str() {
            Some("Binding") => "io.k8s.api.core.v1.Binding",
            Some("Eviction") => "io.k8s.api.policy.v1.Eviction",
            Some("TokenRequest") => "io.k8s.api.authentication.v1.TokenRequest",
            _ => return,
        };
        let api_version = body["apiVersion"].as_str().unwrap_or_default().to_owned();
        let request = cobaltcore_patch::UpdateRequest {
            old: None,
            blank: None,
            schema: cobaltcore_builtins::definition_schema(definition),
            versions: None,
            manager: &write.manager(),
            api_version: &api_version,
            subresource: write.subresource,
            // The status of a request for a token is the server's answer.
            filter: &cobaltcore_patch::Filter::without_status(),
            now: &self.clock.stamp(),
        };
        cobaltcore_patch::update(request, body);
    }

    /// Removes a pod unless a disruption budget forbids it.
    async fn evict_pod(
        self: &Arc<Self>,
        call: &Call,
        registry: &Arc<Registry>,
        pods: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let write_options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, false)?;
        let mut eviction = parts::EVICTION.read(call, write_options.validation)?;
        let name = &call.info.name;
        let asked = Write {
            call,
            registry,
            resource: pods,
            subresource: Some("eviction"),
            options: &write_options,
            form,
        };
        let attempt = self.admit_part(&asked, name, &mut eviction).await?;
        if meta::name(&eviction) != *name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        self.validate(&attempt, Some(&eviction)).await?;
        let asked_for = eviction.get("deleteOptions").filter(|v| !v.is_null());
        let mut options = DeleteOptions::from_value(asked_for.cloned().unwrap_or_else(|| json!({})))?;
        options.dry_run |= write_options.dry_run;
        let key = crate::store::Key::new(&call.info.namespace, name);
        let record = pods.table.get(&key).ok_or_else(|| pods.not_found(name))?;
        let pod = record.parse();
        if self.judge_eviction(&pod, options.dry_run).await? && options.resource_version.is_none() {
            options.resource_version = Some(record.revision.to_string());
        }
        if !options.dry_run {
            self.announce_eviction(pods, &key, &mut options).await?;
        }
        let quiet = crate::delete::quiet(options.dry_run);
        let write = Write {
            options: &quiet,
            ..asked
        };
        match self.remove(&write, &key, &options).await? {
            Deleted::Gone(_) | Deleted::Waiting(_) => Ok(created(form)),
        }
    }

    /// Notes on the pod that it goes because of an eviction, so that its owner can tell.
    async fn announce_eviction(
        &self,
        pods: &Resource,
        key: &crate::store::Key,
        options: &mut DeleteOptions,
    ) -> ApiResult<()> {
        loop {
            let record = pods.table.get(key).ok_or_else(|| pods.not_found(&key.name))?;
            let mut pod = record.parse();
            crate::delete::check_preconditions(pods, &pod, options)?;
            let before = pod.clone();
            cobaltcore_builtins::set_condition(
                &mut pod,
                cobaltcore_builtins::disruption_condition(),
                self.clock.now(),
            );
            if pod == before {
                return Ok(());
            }
            match self.replace_record(&pods.table, key, &record, &pod).await {
                Err(error) if error.code() == 409 => {}
                Err(error) => return Err(error),
                Ok(stored) => {
                    // A deletion pinned to the state that was judged follows this change of it.
                    if options.resource_version.is_some() {
                        options.resource_version = Some(stored.revision.to_string());
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Asks the budgets of the pod's namespace, again when one was changed meanwhile: its keeper and
    /// other evictions write it too. Tells whether the pod may only be removed in the state that was
    /// judged.
    async fn judge_eviction(&self, pod: &Value, dry_run: bool) -> ApiResult<bool> {
        const ATTEMPTS: u32 = 20;
        for _ in 0..ATTEMPTS {
            match self.ask_budgets(pod, dry_run).await {
                Err(error) if error.code() == 409 => {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                answer => return answer,
            }
        }
        let text = format!(
            "Timeout: couldn't update the PodDisruptionBudget of pod {} due to conflicts",
            cobaltcore_text::go::quote(meta::name(pod))
        );
        Err(ApiError::new(504, "Timeout", text).retry_after(10))
    }

    /// Takes one disruption where one is needed.
    async fn ask_budgets(&self, pod: &Value, dry_run: bool) -> ApiResult<bool> {
        let namespace = meta::namespace(pod);
        let budgets = self.objects("policy", "poddisruptionbudgets", Some(namespace));
        match cobaltcore_builtins::evict(pod, &budgets, self.clock.now()) {
            Eviction::Delete { locked } => Ok(locked),
            Eviction::Spend(_) if dry_run => Ok(false),
            Eviction::Spend(budget) => {
                let name = meta::name(&budget);
                let table = self.table("policy", "poddisruptionbudgets")?;
                let key = crate::store::Key::new(namespace, name);
                let stale = || ApiError::stale("policy", "poddisruptionbudgets", name);
                let record = table.get(&key).ok_or_else(stale)?;
                if meta::text(&budget, "resourceVersion") != record.revision.to_string() {
                    return Err(stale());
                }
                self.replace_record(&table, &key, &record, &budget)
                    .await
                    .map(|_| false)
            }
            Eviction::TooManyRequests {
                message,
                cause,
                retry_after_seconds,
            } => {
                let error =
                    ApiError::new(429, "TooManyRequests", message).with_cause("DisruptionBudget", &cause, "");
                Err(match retry_after_seconds {
                    Some(seconds) => error.retry_after(seconds.into()),
                    None => error,
                })
            }
            Eviction::Forbidden { budget, detail } => Err(ApiError::forbidden(
                "policy",
                "poddisruptionbudgets",
                &budget,
                &detail,
            )),
            Eviction::TooManyBudgets(text) => Err(ApiError::new(500, "", text)),
        }
    }

    async fn request_token(
        &self,
        call: &Call,
        registry: &Arc<Registry>,
        accounts: &Arc<Resource>,
    ) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let form = Form::negotiate(&call.headers, &call.query, false)?;
        let mut body = parts::TOKEN_REQUEST.read(call, options.validation)?;
        let namespace = meta::namespace(&body);
        if !namespace.is_empty() && namespace != call.info.namespace {
            return Err(ApiError::other_namespace());
        }
        cobaltcore_builtins::default_token_request(&mut body);
        // Who admits it sees what the answer will have.
        meta::fields(&mut body["spec"])
            .entry("boundObjectRef")
            .or_insert(Value::Null);
        body["status"] = json!({"token": "", "expirationTimestamp": null});
        let write = Write {
            call,
            registry,
            resource: accounts,
            subresource: Some("token"),
            options: &options,
            form,
        };
        let attempt = self.admit_part(&write, &call.info.name, &mut body).await?;
        let key = self.key_of(call, accounts);
        let account = accounts
            .table
            .get(&key)
            .ok_or_else(|| accounts.not_found(&call.info.name))?
            .parse();
        let mut shown = body.clone();
        meta::copy(&mut shown, &account, &["name", "namespace", "uid"]);
        meta::set(&mut shown, "creationTimestamp", json!(self.clock.stamp()));
        self.validate(&attempt, Some(&shown)).await?;
        let answer = cobaltcore_access::tokens::token_request(
            &self.authenticator,
            &body,
            &account,
            self,
            self.clock.now(),
        )?;
        Ok(Answer::value(201, form, &answer))
    }
}

/// The answer to what makes no object.
fn created(form: Form) -> Answer {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::value(201, form, &status)
}

/// A change of the replicas is tried this often while others change the object.
const SCALE_ATTEMPTS: usize = 5;

/// Takes over the replicas of a Scale.
pub(crate) fn put_replicas(resource: &Resource, parent: &mut Value, scale: &Value) {
    let replicas = scale["spec"].get("replicas").cloned().unwrap_or_else(|| json!(0));
    set_path(parent, &resource.scale_paths().spec_replicas, replicas);
}

/// The Scale of an object.
pub(crate) fn scale_of(resource: &Resource, parent: &Value) -> Value {
    let source = &parent["metadata"];
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = source.get(key) {
            metadata[key] = value.clone();
        }
    }
    let paths = resource.scale_paths();
    let mut status =
        json!({"replicas": path(parent, &paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)});
    let selector = paths
        .selector
        .as_deref()
        .and_then(|p| path(parent, p))
        .map(selector_text)
        .unwrap_or_default();
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = path(parent, &paths.spec_replicas).filter(|r| **r != 0) {
        spec["replicas"] = replicas.clone();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Reads a Scale in place, telling or refusing what is no part of one; the error is the reason.
fn read_scale(write: &Write<'_>, scale: &mut Value, mut problems: Vec<String>) -> Result<(), String> {
    let read = cobaltcore_builtins::decode_definition("io.k8s.api.autoscaling.v1.Scale", scale);
    let unknown = read.map_err(|e| e.message)?.unknown;
    problems.extend(unknown.iter().map(|p| crate::call::unknown_field(p)));
    let judged = write
        .call
        .judge_strictness(write.options.validation, &problems, "Scale", "v1");
    judged.map_err(|_| format!("strict decoding error: {}", problems.join(", ")))
}

/// The Scale that results from applying a configuration to the current one.
fn applied_scale(current: &Value, config: &Value) -> ApiResult<Value> {
    let text = |name: &str| config[name].as_str().unwrap_or_default();
    if text("apiVersion") != "autoscaling/v1" || text("kind") != "Scale" {
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            text("kind")
        )));
    }
    let mut next = current.clone();
    if let Some(replicas) = config["spec"].get("replicas") {
        next["spec"]["replicas"] = replicas.clone();
    }
    for key in ["name", "namespace", "uid"] {
        if !meta::text(config, key).is_empty() {
            meta::set(&mut next, key, config["metadata"][key].clone());
        }
    }
    // A revision is a lock only when the configuration names one.
    meta::set(
        &mut next,
        "resourceVersion",
        config["metadata"]["resourceVersion"].clone(),
    );
    Ok(next)
}

/// Whether a media type is one of patches; custom resources have no strategic ones.
fn is_patch(media: &str, resource: &Resource) -> bool {
    match media {
        "application/json-patch+json" | "application/merge-patch+json" | "application/apply-patch+yaml" => {
            true
        }
        "application/strategic-merge-patch+json" => resource.as_builtin().is_some(),
        _ => false,
    }
}

fn check_scale(call: &Call, resource: &Resource, current: &Value, wanted: &Value) -> ApiResult<i64> {
    let name = &call.info.name;
    if wanted["kind"].as_str().is_some_and(|k| k != "Scale") {
        return Err(ApiError::bad_request(format!(
            "expected input object type to be Scale, but {}",
            wanted["kind"]
        )));
    }
    let given = meta::name(wanted);
    if given != name {
        return Err(ApiError::bad_request(if given.is_empty() {
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
        } else {
            format!("the name of the object ({given}) does not match the name on the URL ({name})")
        }));
    }
    let namespace = meta::namespace(wanted);
    if !namespace.is_empty() && namespace != call.info.namespace {
        return Err(ApiError::other_namespace());
    }
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
    // The numbers of custom resources are checked with the object they are part of.
    if replicas < 0 && resource.as_builtin().is_some() {
        let error = FieldError::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        );
        return Err(ApiError::invalid("autoscaling", "Scale", name, &[error]));
    }
    let (asked, live) = (meta::text(wanted, "uid"), meta::text(current, "uid"));
    // Nobody asks for the uid of a custom resource here.
    if !asked.is_empty() && asked != live && resource.as_builtin().is_some() {
        return Err(ApiError::conflict(
            &call.info.group,
            &format!("{}/scale", call.info.resource),
            name,
            &format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {live}"),
        ));
    }
    Ok(replicas)
}

/// A field by its dotted path, with or without a leading dot.
fn path<'a>(object: &'a Value, dotted: &str) -> Option<&'a Value> {
    dotted
        .trim_start_matches('.')
        .split('.')
        .try_fold(object, |node, key| node.get(key))
}

fn set_path(object: &mut Value, dotted: &str, value: Value) {
    let mut node = object;
    for key in dotted.trim_start_matches('.').split('.') {
        node = meta::field(meta::fields(node), key);
    }
    *node = value;
}

/// A label selector in its text form; a text stays as it is.
fn selector_text(selector: &Value) -> String {
    match selector {
        Value::String(text) => text.clone(),
        other => cobaltcore_builtins::selector_text(other),
    }
}
