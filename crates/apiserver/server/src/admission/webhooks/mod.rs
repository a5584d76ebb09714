// SPDX-License-Identifier: Apache-2.0
//! Mutating and validating admission webhooks. The configured ones are an immutable set that is
//! swapped on the writer thread with every commit of a configuration, so that the next request
//! already sees the change. Mutating ones run one after the other, validating ones side by side.

mod conversion;
mod counts;
mod endpoints;
mod hook;
mod invoke;
mod line;
mod review;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use cobaltcore_cel::Input;
use cobaltcore_patch::PatchError;
use cobaltcore_text::go;
use parking_lot::RwLock;
use serde_json::Value;

use self::hook::Hook;
use self::invoke::Trouble;
use super::rights::Asking;
use super::subject::{Form, Subject, attributes};
use super::{Attempt, Operation};
use crate::api::Api;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Op, Table};

pub(crate) use conversion::Converter;
pub(crate) use counts::WebhookCounts;

/// A webhook served inside this process: gets an AdmissionReview, gives one back.
pub type Handler = Arc<dyn Fn(Value) -> futures::future::BoxFuture<'static, Value> + Send + Sync>;

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// The configured webhooks, and those this process serves itself.
#[derive(Default)]
pub struct Webhooks {
    set: ArcSwap<Set>,
    /// By service (namespace, name), then path.
    handlers: RwLock<HashMap<(String, String), HashMap<String, Handler>>>,
}

/// Configurations by name, which is also the order they are called in.
#[derive(Debug, Default, Clone)]
struct Set {
    mutating: BTreeMap<String, Arc<[Hook]>>,
    validating: BTreeMap<String, Arc<[Hook]>>,
}

impl Set {
    fn list(&mut self, plural: &str) -> Option<&mut BTreeMap<String, Arc<[Hook]>>> {
        match plural {
            MUTATING => Some(&mut self.mutating),
            VALIDATING => Some(&mut self.validating),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}

impl Webhooks {
    /// A configuration changed. Runs in the writer.
    pub fn changed(&self, table: &Table, event: &Event) {
        let mut set = (**self.set.load()).clone();
        let Some(list) = set.list(&table.plural) else {
            return;
        };
        let name = event.key.name.to_string();
        if event.op == Op::Deleted {
            list.remove(&name);
        } else {
            let hooks = hook::read(&name, &event.new.parse());
            list.insert(name, hooks.into());
        }
        self.set.store(Arc::new(set));
    }

    /// Reads the stored configurations.
    pub fn load(&self, api: &Api) {
        let mut set = Set::default();
        for plural in [MUTATING, VALIDATING] {
            let Some(list) = set.list(plural) else { continue };
            for object in api.objects(GROUP, plural, None) {
                let name = crate::meta::name(&object).to_owned();
                let hooks = hook::read(&name, &object);
                list.insert(name, hooks.into());
            }
        }
        self.set.store(Arc::new(set));
    }

    fn serves(&self, namespace: &str, name: &str) -> bool {
        !self.handlers.read().is_empty()
            && self
                .handlers
                .read()
                .contains_key(&(namespace.to_owned(), name.to_owned()))
    }

    fn handler(&self, namespace: &str, name: &str, path: &str) -> Option<Handler> {
        self.handlers
            .read()
            .get(&(namespace.to_owned(), name.to_owned()))?
            .get(path)
            .cloned()
    }

    /// Calls the mutating webhooks; tells whether they changed the object, which is in its type's
    /// form again then. `object` is null for deletions.
    pub async fn mutate(&self, api: &Api, attempt: &Attempt<'_>, object: &mut Value) -> ApiResult<bool> {
        let set = self.set.load_full();
        if set.mutating.is_empty() || exempt(attempt) {
            return Ok(false);
        }
        let subject = Subject::of(attempt);
        let mut again = Reinvocation::default();
        self.round(api, &set, &subject, object, &mut again, false).await?;
        if !again.changed {
            return Ok(false);
        }
        if subject.subresource.is_empty() {
            // Built-in plugins look at what webhooks made of the object, and webhooks at what the
            // plugins made of that.
            let before = object.clone();
            api.admit_builtin(&mut attempt.clone(), object)?;
            if *object != before {
                again.require();
            }
        }
        self.round(api, &set, &subject, object, &mut again, true).await?;
        Ok(true)
    }

    async fn round(
        &self,
        api: &Api,
        set: &Set,
        subject: &Subject<'_>,
        object: &mut Value,
        again: &mut Reinvocation,
        second: bool,
    ) -> ApiResult<()> {
        for hook in set.mutating.values().flat_map(|hooks| hooks.iter()) {
            if second && !again.wanted.contains(&hook.identity) {
                continue;
            }
            let seen = (!object.is_null()).then_some(&*object);
            let Some(form) = concerned(api, hook, subject, seen)? else {
                continue;
            };
            let changed = match self.call_mutating(api, hook, subject, &form, seen).await? {
                Some(next) if next != *object => {
                    *object = next;
                    true
                }
                _ => false,
            };
            if changed {
                again.changed = true;
                again.require();
            }
            if hook.reinvocable {
                again.called.insert(hook.identity.clone());
            }
        }
        Ok(())
    }

    /// One mutating call; the object it made, if it made one.
    async fn call_mutating(
        &self,
        api: &Api,
        hook: &Hook,
        subject: &Subject<'_>,
        form: &Form,
        object: Option<&Value>,
    ) -> ApiResult<Option<Value>> {
        let began = Instant::now();
        let result = match self.invoke(api, hook, subject, form, object, true).await {
            Ok(verdict) => patched(hook, subject, form, object, &verdict),
            Err(trouble) => Err(trouble),
        };
        judge(api, hook, subject, "admit", began, result).map(Option::flatten)
    }

    /// Calls the validating webhooks; `object` is absent for deletions.
    pub async fn validate(&self, api: &Api, attempt: &Attempt<'_>, object: Option<&Value>) -> ApiResult<()> {
        let set = self.set.load_full();
        if set.validating.is_empty() || exempt(attempt) {
            return Ok(());
        }
        let subject = Subject::of(attempt);
        let mut asked = Vec::new();
        for hook in set.validating.values().flat_map(|hooks| hooks.iter()) {
            if let Some(form) = concerned(api, hook, &subject, object)? {
                asked.push((hook, form));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        if subject.call.deadline <= Instant::now() {
            return Err(out_of_time());
        }
        let calls = asked.iter().map(|(hook, form)| {
            let subject = &subject;
            async move {
                let began = Instant::now();
                let result = self.invoke(api, hook, subject, form, object, false).await;
                judge(api, hook, subject, "validating", began, result).map(|_| ())
            }
        });
        // All are heard before the first refusal is answered, so that all warnings are there.
        futures::future::join_all(calls).await.into_iter().collect()
    }
}

impl Api {
    /// Serves the webhooks of a service inside this process, at one path. Calls for that service
    /// never leave the process from then on.
    pub fn register_webhook(&self, namespace: &str, name: &str, path: &str, handler: Handler) {
        let service = (namespace.to_owned(), name.to_owned());
        self.webhooks
            .handlers
            .write()
            .entry(service)
            .or_default()
            .insert(hook::rooted(path), handler);
    }
}

/// Which webhooks are called a second time: those that want to be and were called before another
/// one changed the object.
#[derive(Default)]
struct Reinvocation {
    changed: bool,
    called: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

impl Reinvocation {
    fn require(&mut self) {
        self.wanted.append(&mut self.called);
    }
}

/// Requests webhooks are never asked about: a broken one must not stand in the way of its repair.
fn exempt(attempt: &Attempt<'_>) -> bool {
    *attempt.write.resource.group == *GROUP
}

/// The form in which a webhook wants to see the request; `None` when it is not concerned.
fn concerned(
    api: &Api,
    hook: &Hook,
    subject: &Subject<'_>,
    object: Option<&Value>,
) -> ApiResult<Option<Form>> {
    let Some(form) = hook.scope.form(api, subject, object)? else {
        return Ok(None);
    };
    if hook.conditions.is_empty() {
        return Ok(Some(form));
    }
    let seen = form.view(subject, object);
    let request = attributes(subject, &form);
    let asking = Asking::of(api, subject);
    let bindings = [
        ("object", Input::Json(seen.object.as_ref())),
        ("oldObject", Input::Json(seen.old.as_ref())),
        ("request", Input::Json(&request)),
        ("namespaceObject", Input::Json(&Value::Null)),
        asking.authorizer(),
        asking.request_resource(),
    ];
    match hook.conditions.hold(&bindings, &api.metrics) {
        Ok(true) => Ok(Some(form)),
        Ok(false) => Ok(None),
        Err(_) if hook.fails_open => Ok(None),
        Err(why) => Err(ApiError::forbidden(
            &subject.resource.group,
            &subject.resource.plural,
            &subject.name,
            &why,
        )),
    }
}

/// Applies the patch of a verdict.
fn patched(
    hook: &Hook,
    subject: &Subject<'_>,
    form: &Form,
    object: Option<&Value>,
    verdict: &review::Verdict,
) -> Result<Option<Value>, Trouble> {
    let internal = |why: String| Trouble::Internal(ApiError::internal(why));
    if verdict.patch.is_empty() {
        return Ok(None);
    }
    let patch = match crate::decode::json(&verdict.patch).map(|decoded| decoded.value) {
        Ok(patch) if patch.is_array() => patch,
        Ok(other) => {
            return Err(undecodable(&format!(
                "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
                crate::decode::json_type(&other)
            )));
        }
        Err(why) => return Err(undecodable(&why)),
    };
    if patch.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let Some(object) = object.filter(|_| subject.operation != Operation::Delete) else {
        return Err(internal(format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            go::quote(&hook.name)
        )));
    };
    if verdict.patch_type != "JSONPatch" {
        let why = format!("unsupported patch type {}", go::quote(&verdict.patch_type));
        return Err(Trouble::Call { why, code: 400 });
    }
    let seen = form.view(subject, Some(object)).object.into_owned();
    let changed = cobaltcore_patch::json_patch(&seen, &patch).map_err(|error| match error {
        PatchError::BadRequest(why) => undecodable(&why),
        PatchError::Operation { reason, .. } => internal(reason),
        other => internal(other.to_string()),
    })?;
    let changed = form.same_kind(subject, changed).map_err(Trouble::Internal)?;
    form.accept(subject, changed).map(Some).map_err(internal)
}

fn undecodable(why: &str) -> Trouble {
    Trouble::Call {
        why: format!("received undecodable patch in webhook response: {why}"),
        code: 503,
    }
}

/// Counts a call and turns its trouble into the refusal the client sees; `None` when the trouble is
/// to be ignored.
fn judge<T>(
    api: &Api,
    hook: &Hook,
    subject: &Subject<'_>,
    kind: &str,
    began: Instant,
    result: Result<T, Trouble>,
) -> ApiResult<Option<T>> {
    let counts = &api.metrics.webhooks;
    let operation = subject.operation.as_str();
    let (outcome, rejection) = match result {
        Ok(value) => (Ok(Some(value)), None),
        Err(Trouble::Denied(status)) => {
            let code = status.code();
            (Err(status), Some(("no_error", code)))
        }
        Err(Trouble::Internal(error)) => (Err(error), Some(("apiserver_internal_error", 0))),
        Err(Trouble::Call { why, code }) => {
            let text = format!("failed calling webhook {}: {why}", go::quote(&hook.name));
            tracing::warn!(webhook = %hook.name, ignored = hook.fails_open, "{text}");
            if hook.fails_open {
                counts.failed_open(&hook.name, kind);
                let late = subject.call.deadline <= Instant::now();
                (if late { Err(out_of_time()) } else { Ok(None) }, None)
            } else {
                (
                    Err(ApiError::internal(text)),
                    Some(("calling_webhook_error", code)),
                )
            }
        }
    };
    if let Some((error, code)) = rejection {
        counts.rejection(&hook.name, kind, operation, error, code);
    }
    counts.call(&hook.name, kind, operation, rejection.is_some(), began.elapsed());
    outcome
}

fn out_of_time() -> ApiError {
    ApiError::new(
        504,
        "Timeout",
        "Timeout: request did not complete within requested timeout",
    )
}
