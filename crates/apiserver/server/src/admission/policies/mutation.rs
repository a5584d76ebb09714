// SPDX-License-Identifier: Apache-2.0
//! One request among the mutating policies: who is asked, in which order, and who is asked again
//! because somebody else changed the object after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cobaltcore_cel::Input;
use cobaltcore_schema::Schema;
use serde_json::Value;

use super::mutator::Mutator;
use super::policy::Binding;
use super::{Policies, exempt, namespace_object, parameters};
use crate::admission::Attempt;
use crate::admission::rights::Asking;
use crate::admission::subject::{Form, Subject, attributes};
use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};

/// A policy under a binding with a parameter: what is asked at most twice per request.
type Invocation = (String, String, String);

/// What the first round left for the second.
#[derive(Debug, Default)]
pub(crate) struct Mutations {
    /// Whether the object was changed.
    pub changed: bool,
    asked: BTreeSet<Invocation>,
    again: BTreeSet<Invocation>,
}

impl Mutations {
    /// The object was changed by somebody else after the policies saw it.
    pub(crate) fn overtaken(&mut self) {
        self.again.append(&mut self.asked);
    }
}

/// Something that kept a policy from doing its work.
struct Fault {
    message: String,
    reason: &'static str,
}

impl Policies {
    /// Lets every policy that is bound to the request change the object.
    pub(crate) fn mutate(
        &self,
        api: &Api,
        attempt: &Attempt<'_>,
        object: &mut Value,
    ) -> ApiResult<Mutations> {
        let mut mutations = Mutations::default();
        self.round(api, attempt, object, &mut mutations, false)?;
        Ok(mutations)
    }

    /// Asks those again that want to be and whose object was changed after them.
    pub(crate) fn mutate_again(
        &self,
        api: &Api,
        attempt: &Attempt<'_>,
        object: &mut Value,
        mutations: &mut Mutations,
    ) -> ApiResult<()> {
        if mutations.again.is_empty() {
            return Ok(());
        }
        self.round(api, attempt, object, mutations, true)
    }

    fn round(
        &self,
        api: &Api,
        attempt: &Attempt<'_>,
        object: &mut Value,
        mutations: &mut Mutations,
        second: bool,
    ) -> ApiResult<()> {
        let set = self.set.load();
        let idle = set.mutators.is_empty() || set.mutator_bindings.is_empty();
        if idle || object.is_null() || exempt(attempt) {
            return Ok(());
        }
        let subject = Subject::of(attempt);
        let mut faults = Vec::new();
        for policy in set.mutators.values() {
            let Some(form) = policy.scope.form(api, &subject, Some(object))? else {
                continue;
            };
            for binding in set.mutator_bindings.values() {
                if binding.policy != policy.name || binding.scope.form(api, &subject, Some(object))?.is_none()
                {
                    continue;
                }
                let turn = Turn {
                    api,
                    subject: &subject,
                    form: &form,
                    policy,
                    binding,
                    second,
                };
                faults.extend(turn.take(object, mutations));
            }
        }
        match faults.into_iter().next() {
            None => Ok(()),
            Some(fault) => Err(refuse(&subject, &fault)),
        }
    }
}

/// One policy under one binding.
struct Turn<'a> {
    api: &'a Api,
    subject: &'a Subject<'a>,
    form: &'a Form,
    policy: &'a Mutator,
    binding: &'a Binding,
    second: bool,
}

impl Turn<'_> {
    /// Asks the policy once per parameter; what went wrong counts only if the policy says so.
    fn take(&self, object: &mut Value, mutations: &mut Mutations) -> Vec<Fault> {
        let (policy, binding) = (self.policy, self.binding);
        let params = match parameters(self.api, self.subject, policy.param_kind.as_ref(), binding) {
            Ok(params) => params,
            Err(why) => return self.fault(&why.to_string(), "Forbidden"),
        };
        let mut faults = Vec::new();
        for param in &params {
            let identity = (
                policy.name.clone(),
                binding.name.clone(),
                format!("{}/{}", meta::namespace(param), meta::name(param)),
            );
            if self.second && !mutations.again.contains(&identity) {
                continue;
            }
            let before = object.clone();
            let (next, failed) = self.ask(object.clone(), param);
            *object = next;
            faults.extend(failed);
            if *object != before {
                mutations.changed = true;
                mutations.overtaken();
            }
            if policy.reinvocable {
                mutations.asked.insert(identity);
            }
        }
        faults
    }

    /// What the policy makes of an object. A change that fails leaves the object to the next one.
    fn ask(&self, mut object: Value, param: &Value) -> (Value, Vec<Fault>) {
        let (subject, form) = (self.subject, self.form);
        let request = attributes(subject, form);
        let namespace = namespace_object(self.api, subject);
        let asking = Asking::of(self.api, subject);
        let Some(schema) = self.schema() else {
            let faults = self.fault("the bodies of this endpoint have no schema", "Invalid");
            return (object, faults);
        };
        let mut faults = Vec::new();
        for (at, mutation) in self.policy.mutations.iter().enumerate() {
            let changed = {
                let seen = form.view(subject, Some(&object));
                let bindings = [
                    ("object", Input::Json(seen.object.as_ref())),
                    ("oldObject", Input::Json(seen.old.as_ref())),
                    ("request", Input::Json(&request)),
                    ("namespaceObject", Input::Json(&namespace)),
                    ("params", Input::Json(param)),
                    asking.authorizer(),
                    asking.request_resource(),
                ];
                // Conditions are about the object as the policy finds it.
                let holds = if at == 0 {
                    self.policy.conditions.hold(&bindings, &self.api.metrics)
                } else {
                    Ok(true)
                };
                match holds {
                    Ok(true) => mutation
                        .change(&seen.object, &schema, &bindings, &self.api.metrics)
                        .and_then(|changed| form.accept(subject, changed)),
                    Ok(false) => return (object, faults),
                    Err(why) => return (object, self.fault(&why, "Invalid")),
                }
            };
            match changed {
                Ok(changed) => object = changed,
                Err(why) => faults.extend(self.fault(&why, "Invalid")),
            }
        }
        (object, faults)
    }

    /// The schema of the bodies as the policy sees them.
    fn schema(&self) -> Option<Arc<Schema>> {
        if self.subject.own_kind {
            return Some(self.form.resource.schema().clone());
        }
        let kind = &self.form.kind;
        let bodies = self
            .subject
            .registry
            .by_kind(&kind.group, &kind.version, &kind.name)?;
        Some(bodies.schema().clone())
    }

    fn fault(&self, why: &str, reason: &'static str) -> Vec<Fault> {
        if self.policy.fails_open {
            return Vec::new();
        }
        vec![Fault {
            message: format!(
                "policy '{}' with binding '{}' denied request: {why}",
                self.policy.name, self.binding.name
            ),
            reason,
        }]
    }
}

fn refuse(subject: &Subject<'_>, fault: &Fault) -> ApiError {
    let (group, plural) = (&subject.resource.group, &subject.resource.plural);
    ApiError::new(403, fault.reason, fault.message.clone())
        .about(group, plural, &subject.name)
        .with_cause("", &fault.message, "")
}
