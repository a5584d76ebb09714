// SPDX-License-Identifier: Apache-2.0
//! Which webhooks a request concerns: rules, scope, equivalent versions, selectors. Conditions in
//! CEL come last and have a module of their own.

use std::sync::Arc;

use serde_json::Value;

use super::conditions;
use super::hook::Hook;
use super::review;
use super::subject::{Form, Subject};
use crate::api::Api;
use crate::registry::Resource;
use crate::selector::LabelSelector;
use crate::status::{ApiError, ApiResult};

/// A rule of a webhook.
#[derive(Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource, each possibly `*`; no subresource is the empty text.
    resources: Vec<(String, String)>,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Any,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(super) fn of(rule: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            rule[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let split = |text: String| match text.split_once('/') {
            Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
            None => (text, String::new()),
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").into_iter().map(split).collect(),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::Any,
            },
        }
    }

    /// Whether the rule names the request as if it were about `resource`.
    fn names(&self, subject: &Subject<'_>, resource: &Resource) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let in_namespace = !subject.namespace.is_empty() && !subject.is_namespace();
        let scope = match self.scope {
            Scope::Any => true,
            Scope::Cluster => !in_namespace,
            Scope::Namespaced => in_namespace,
        };
        scope
            && any(&self.operations, subject.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && self.resources.iter().any(|(name, sub)| {
                (name == "*" || **name == *resource.plural) && (sub == "*" || sub == subject.subresource)
            })
    }
}

/// The form in which a webhook wants to see the request; `None` when it is not concerned.
pub(super) fn concerned(
    api: &Api,
    hook: &Hook,
    subject: &Subject<'_>,
    object: Option<&Value>,
) -> ApiResult<Option<Form>> {
    let Some(form) = matching_form(hook, subject) else {
        return Ok(None);
    };
    if !namespace_matches(api, hook, subject, object)? || !object_matches(&hook.objects, object, subject.old)
    {
        return Ok(None);
    }
    if hook.conditions.is_empty() {
        return Ok(Some(form));
    }
    let seen = form.view(subject, object);
    let request = review::attributes(subject, &form);
    match conditions::hold(hook, seen.object.as_ref(), seen.old.as_ref(), &request) {
        Ok(true) => Ok(Some(form)),
        Ok(false) => Ok(None),
        Err(why) => Err(ApiError::forbidden(
            &subject.resource.group,
            &subject.resource.plural,
            &subject.name,
            &why,
        )),
    }
}

fn matching_form(hook: &Hook, subject: &Subject<'_>) -> Option<Form> {
    if hook
        .rules
        .iter()
        .any(|rule| rule.names(subject, subject.resource))
    {
        return Some(Form::requested(subject));
    }
    if !hook.equivalent {
        return None;
    }
    let others = equivalents(subject);
    // The order of the rules counts, not that of the versions.
    hook.rules.iter().find_map(|rule| {
        let other = others.iter().find(|other| rule.names(subject, other))?;
        Some(Form::equivalent(subject, other))
    })
}

/// The other served resources that show the same objects.
fn equivalents(subject: &Subject<'_>) -> Vec<Arc<Resource>> {
    let own = subject.resource;
    let offers = |other: &Resource| {
        subject.subresource.is_empty()
            || other
                .subresources()
                .iter()
                .any(|(name, _)| name == subject.subresource)
    };
    subject
        .registry
        .resources()
        .filter(|other| other.served && other.table.id == own.table.id && other.plural == own.plural)
        .filter(|other| (&other.group, &other.version) != (&own.group, &own.version) && offers(other))
        .cloned()
        .collect()
}

fn namespace_matches(
    api: &Api,
    hook: &Hook,
    subject: &Subject<'_>,
    object: Option<&Value>,
) -> ApiResult<bool> {
    // What lies in no namespace is never exempted.
    if hook.namespaces.is_empty() || (subject.namespace.is_empty() && !subject.is_namespace()) {
        return Ok(true);
    }
    if let (true, Some(namespace)) = (subject.is_namespace() && subject.subresource.is_empty(), object) {
        return Ok(hook.namespaces.matches_object(namespace));
    }
    let stored = api
        .namespace(&subject.namespace)
        .ok_or_else(|| ApiError::not_found("", "namespaces", &subject.namespace))?;
    Ok(hook.namespaces.matches_facts(&stored.facts))
}

fn object_matches(selector: &LabelSelector, new: Option<&Value>, old: Option<&Value>) -> bool {
    selector.is_empty()
        || [new, old]
            .into_iter()
            .flatten()
            .any(|object| selector.matches_object(object))
}
