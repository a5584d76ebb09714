// SPDX-License-Identifier: Apache-2.0
//! Which webhooks and policies a request concerns: rules, scope, equivalent versions, selectors.
//! Conditions in CEL come last and have a module of their own.

use std::sync::Arc;

use serde_json::Value;

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
    /// Only objects of these names; all when empty.
    objects: Vec<String>,
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
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
            objects: texts("resourceNames"),
            reach: match rule["scope"].as_str() {
                Some("Cluster") => Reach::Cluster,
                Some("Namespaced") => Reach::Namespaced,
                _ => Reach::Any,
            },
        }
    }

    /// Whether the rule names the request as if it were about `resource`.
    fn names(&self, subject: &Subject<'_>, resource: &Resource) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let in_namespace = !subject.namespace.is_empty() && !subject.is_namespace();
        let reach = match self.reach {
            Reach::Any => true,
            Reach::Cluster => !in_namespace,
            Reach::Namespaced => in_namespace,
        };
        reach
            && (self.objects.is_empty() || self.objects.contains(&subject.name))
            && any(&self.operations, subject.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && self.resources.iter().any(|(name, sub)| {
                (name == "*" || **name == *resource.plural) && (sub == "*" || sub == subject.subresource)
            })
    }
}

/// Which requests a webhook, a policy or a binding is about.
#[derive(Debug, Default)]
pub(super) struct Scope {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// No rules mean everything.
    open: bool,
    /// Other versions of a resource match as well.
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Scope {
    /// The scope of a webhook.
    pub(super) fn of_webhook(hook: &Value) -> Self {
        Self::read(hook, "rules")
    }

    /// The scope of a policy's `matchConstraints` or a binding's `matchResources`.
    pub(super) fn of_resources(resources: &Value) -> Self {
        let scope = Self::read(resources, "resourceRules");
        Self {
            open: scope.rules.is_empty(),
            ..scope
        }
    }

    fn read(source: &Value, rules: &str) -> Self {
        let selector = |key: &str| LabelSelector::from_object(&source[key]).unwrap_or_default();
        let list = |key: &str| {
            source[key]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::of)
                .collect()
        };
        Self {
            rules: list(rules),
            excluded: list("excludeResourceRules"),
            open: false,
            equivalent: source["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The form in which the request is to be shown; `None` when it is out of scope.
    pub(super) fn form(
        &self,
        api: &Api,
        subject: &Subject<'_>,
        object: Option<&Value>,
    ) -> ApiResult<Option<Form>> {
        let Some(form) = self.matching_form(subject) else {
            return Ok(None);
        };
        let inside = self.namespace_matches(api, subject, object)?
            && object_matches(&self.objects, object, subject.old);
        Ok(inside.then_some(form))
    }

    fn matching_form(&self, subject: &Subject<'_>) -> Option<Form> {
        let named =
            |rules: &[Rule], resource: &Resource| rules.iter().any(|rule| rule.names(subject, resource));
        if named(&self.excluded, subject.resource) {
            return None;
        }
        if self.open || named(&self.rules, subject.resource) {
            return Some(Form::requested(subject));
        }
        if !self.equivalent {
            return None;
        }
        let others = equivalents(subject);
        if others.iter().any(|other| named(&self.excluded, other)) {
            return None;
        }
        // The order of the rules counts, not that of the versions.
        self.rules.iter().find_map(|rule| {
            let other = others.iter().find(|other| rule.names(subject, other))?;
            Some(Form::equivalent(subject, other))
        })
    }

    fn namespace_matches(&self, api: &Api, subject: &Subject<'_>, object: Option<&Value>) -> ApiResult<bool> {
        // What lies in no namespace is never exempted.
        if self.namespaces.is_empty() || (subject.namespace.is_empty() && !subject.is_namespace()) {
            return Ok(true);
        }
        if let (true, Some(namespace)) = (subject.is_namespace() && subject.subresource.is_empty(), object) {
            return Ok(self.namespaces.matches_object(namespace));
        }
        let stored = api
            .namespace(&subject.namespace)
            .ok_or_else(|| ApiError::not_found("", "namespaces", &subject.namespace))?;
        Ok(self.namespaces.matches_facts(&stored.facts))
    }
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

fn object_matches(selector: &LabelSelector, new: Option<&Value>, old: Option<&Value>) -> bool {
    selector.is_empty()
        || [new, old]
            .into_iter()
            .flatten()
            .any(|object| selector.matches_object(object))
}
