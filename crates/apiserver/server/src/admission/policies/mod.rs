// SPDX-License-Identifier: Apache-2.0
//! Admission policies: expressions that judge requests or change their objects, and the bindings
//! that put them to work. All are immutable sets swapped with every commit, so the next request
//! already sees the change. What a policy cannot decide, its failure policy does.

mod mutation;
mod mutator;
mod policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cobaltcore_cel::Input;
use serde_json::Value;

use self::mutator::Mutator;
use self::policy::{Binding, Finding, Missing, ParamKind, Params, Policy};
use super::Attempt;
use super::rights::Asking;
use super::subject::{Form, Subject, attributes};
use crate::api::Api;
use crate::meta;
use crate::selector::LabelSelector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Key, Op, Table};

pub(crate) use mutator::errors as mutator_errors;
pub(crate) use policy::errors as policy_errors;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const MUTATORS: &str = "mutatingadmissionpolicies";
const MUTATOR_BINDINGS: &str = "mutatingadmissionpolicybindings";

const ALL: [&str; 4] = [POLICIES, BINDINGS, MUTATORS, MUTATOR_BINDINGS];

/// The policies there are.
#[derive(Debug, Default)]
pub struct Policies {
    set: ArcSwap<Set>,
}

/// Policies and bindings by name.
#[derive(Debug, Default, Clone)]
struct Set {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    mutators: BTreeMap<String, Arc<Mutator>>,
    mutator_bindings: BTreeMap<String, Arc<Binding>>,
}

impl Set {
    fn put(&mut self, plural: &str, name: &str, object: Option<&Value>) {
        fn keep<T>(kept: &mut BTreeMap<String, Arc<T>>, name: &str, made: Option<T>) {
            match made {
                Some(made) => drop(kept.insert(name.to_owned(), Arc::new(made))),
                None => drop(kept.remove(name)),
            }
        }
        match plural {
            POLICIES => keep(&mut self.policies, name, object.map(|o| Policy::of(name, o))),
            MUTATORS => keep(&mut self.mutators, name, object.map(|o| Mutator::of(name, o))),
            BINDINGS => keep(&mut self.bindings, name, object.map(|o| Binding::of(name, o))),
            MUTATOR_BINDINGS => keep(
                &mut self.mutator_bindings,
                name,
                object.map(|o| Binding::of(name, o)),
            ),
            _ => {}
        }
    }
}

/// A request refused by a policy.
struct Denial {
    policy: String,
    binding: Option<String>,
    finding: Finding,
}

impl Policies {
    /// A policy or a binding changed. Runs in the writer.
    pub fn changed(&self, table: &Table, event: &Event) {
        if !ALL.contains(&&*table.plural) {
            return;
        }
        let mut set = (**self.set.load()).clone();
        let object = (event.op != Op::Deleted).then(|| event.new.parse());
        set.put(&table.plural, &event.key.name, object.as_ref());
        self.set.store(Arc::new(set));
    }

    /// Reads what is stored.
    pub fn load(&self, api: &Api) {
        let mut set = Set::default();
        for plural in ALL {
            for object in api.objects(GROUP, plural, None) {
                set.put(plural, meta::name(&object), Some(&object));
            }
        }
        self.set.store(Arc::new(set));
    }

    /// Asks every policy that is bound to the request; `object` is absent for deletions.
    pub fn validate(&self, api: &Api, attempt: &Attempt<'_>, object: Option<&Value>) -> ApiResult<()> {
        let set = self.set.load();
        if set.bindings.is_empty() || set.policies.is_empty() || exempt(attempt) {
            return Ok(());
        }
        let subject = Subject::of(attempt);
        let mut denials = Vec::new();
        for policy in set.policies.values() {
            let Some(form) = policy.scope.form(api, &subject, object)? else {
                continue;
            };
            for binding in set.bindings.values().filter(|b| b.policy == policy.name) {
                if binding.scope.form(api, &subject, object)?.is_some() {
                    ask(api, &subject, &form, object, policy, binding, &mut denials);
                }
            }
        }
        match denials.into_iter().next() {
            None => Ok(()),
            Some(first) => Err(refuse(&subject, &first)),
        }
    }
}

/// Policies say nothing about themselves nor about who may do what.
fn exempt(attempt: &Attempt<'_>) -> bool {
    let resource = attempt.write.resource;
    (*resource.group == *GROUP && resource.plural.contains("admissionpolic"))
        || (!resource.is_stored()
            && matches!(&*resource.group, "authentication.k8s.io" | "authorization.k8s.io"))
}

/// Evaluates one policy under one binding, once per parameter object.
fn ask(
    api: &Api,
    subject: &Subject<'_>,
    form: &Form,
    object: Option<&Value>,
    policy: &Policy,
    binding: &Binding,
    denials: &mut Vec<Denial>,
) {
    let params = match parameters(api, subject, policy.param_kind.as_ref(), binding) {
        Ok(params) => params,
        Err(why) => {
            if !policy.fails_open {
                denials.push(why.denial(&policy.name, &binding.name));
            }
            return;
        }
    };
    let seen = form.view(subject, object);
    let request = attributes(subject, form);
    let namespace = namespace_object(api, subject);
    let asking = Asking::of(api, subject);
    for param in &params {
        let bindings = [
            ("object", Input::Json(seen.object.as_ref())),
            ("oldObject", Input::Json(seen.old.as_ref())),
            ("request", Input::Json(&request)),
            ("namespaceObject", Input::Json(&namespace)),
            ("params", Input::Json(param)),
            asking.authorizer(),
            asking.request_resource(),
        ];
        for finding in policy.judge(&bindings, &api.metrics) {
            if binding.warns {
                subject.call.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, finding.message
                ));
            }
            if binding.denies {
                denials.push(Denial {
                    policy: policy.name.clone(),
                    binding: Some(binding.name.clone()),
                    finding,
                });
            }
        }
    }
}

/// The namespace of the request as expressions see it; null for what lies in none.
fn namespace_object(api: &Api, subject: &Subject<'_>) -> Value {
    if subject.is_namespace() || subject.namespace.is_empty() {
        return Value::Null;
    }
    api.namespace(&subject.namespace)
        .map(|record| record.parse())
        .unwrap_or_default()
}

/// What is wrong with a configuration: with the policy itself, or with how it is bound.
enum Misfit {
    Policy(String),
    Binding(String),
}

impl From<&str> for Misfit {
    fn from(why: &str) -> Self {
        Self::Binding(why.to_owned())
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy(why) => write!(f, "failed to configure policy: {why}"),
            Self::Binding(why) => write!(f, "failed to configure binding: {why}"),
        }
    }
}

impl Misfit {
    fn denial(&self, policy: &str, binding: &str) -> Denial {
        Denial {
            policy: policy.to_owned(),
            binding: matches!(self, Self::Binding(_)).then(|| binding.to_owned()),
            finding: Finding::plain(self.to_string()),
        }
    }
}

/// The objects `params` stands for, one evaluation each; the error is a fault of the configuration.
fn parameters(
    api: &Api,
    subject: &Subject<'_>,
    param_kind: Option<&ParamKind>,
    binding: &Binding,
) -> Result<Vec<Value>, Misfit> {
    let (Some((api_version, kind)), Some(reference)) = (param_kind, &binding.params) else {
        return Ok(vec![Value::Null]);
    };
    let (group, version) = meta::split_api_version(api_version);
    let Some(resource) = subject.registry.by_kind(group, version, kind) else {
        let shown = format!("{group}/{version}, Kind={kind}");
        return Err(Misfit::Policy(format!(
            "failed to find resource referenced by paramKind: '{shown}'"
        )));
    };
    let namespace = if resource.namespaced {
        let given = reference.namespace.as_deref().unwrap_or(&subject.namespace);
        if given.is_empty() {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        given
    } else if reference.namespace.is_some() {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
    } else {
        ""
    };
    let show = |record: &crate::store::Record| {
        let mut object = record.parse();
        resource.convert_stored(&mut object, subject.registry);
        object
    };
    let found: Vec<Value> = match &reference.select {
        Params::Named(name) => resource
            .table
            .get(&Key::new(namespace, name))
            .iter()
            .map(|record| show(record))
            .collect(),
        Params::Selected(selector) => selected(api, &resource, namespace, selector)
            .iter()
            .map(|record| show(record))
            .collect(),
    };
    match (found.is_empty(), reference.missing) {
        (true, Missing::Deny) => {
            Err("no params found for policy binding with `Deny` parameterNotFoundAction".into())
        }
        _ => Ok(found),
    }
}

fn selected(
    api: &Api,
    resource: &crate::registry::Resource,
    namespace: &str,
    selector: &LabelSelector,
) -> Vec<Arc<crate::store::Record>> {
    resource
        .table
        .snapshot(Some(namespace), || api.store.revision())
        .items
        .into_iter()
        .map(|(_, record)| record)
        .filter(|record| selector.matches_facts(&record.facts))
        .collect()
}

fn refuse(subject: &Subject<'_>, denial: &Denial) -> ApiError {
    let Denial {
        policy,
        binding,
        finding,
    } = denial;
    let binding = binding
        .as_ref()
        .map(|name| format!(" with binding '{name}'"))
        .unwrap_or_default();
    let message = format!(
        "ValidatingAdmissionPolicy '{policy}'{binding} denied request: {}",
        finding.message
    );
    let (code, reason) = match finding.reason.as_deref() {
        Some("Forbidden") => (403, "Forbidden"),
        Some("RequestEntityTooLarge") => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    let (group, plural) = (&subject.resource.group, &subject.resource.plural);
    // A collection has no name to be refused by.
    let name = match subject.name.as_str() {
        "" => "Unknown",
        name => name,
    };
    let forbidden = ApiError::forbidden(group, plural, name, &message);
    ApiError::new(code, reason, forbidden.message())
        .about(group, plural, name)
        .with_cause("", &message, "")
}
