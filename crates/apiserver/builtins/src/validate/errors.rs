// SPDX-License-Identifier: Apache-2.0
//! The list rules write into, and the small rules they share.

use cobaltcore_schema::{Cause, FieldError};
use serde_json::Value;

use crate::json::{at, entries, int, list, same, strings, text};
use crate::names;
use crate::quantity::Quantity;

/// Errors found so far.
#[derive(Default)]
pub(super) struct Errors {
    pub(super) list: Vec<FieldError>,
}

const NEGATIVE: &str = "must be greater than or equal to 0";

impl Errors {
    pub(super) fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.list.push(FieldError::required(field, detail));
    }

    pub(super) fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, detail: &str) {
        self.list.push(FieldError::invalid(field, &value.into(), detail));
    }

    pub(super) fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.list.push(FieldError::forbidden(field, detail));
    }

    pub(super) fn duplicate(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.list.push(FieldError::duplicate(field, &value.into()));
    }

    pub(super) fn not_supported(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) {
        self.list
            .push(FieldError::not_supported(field, &value.into(), supported));
    }

    pub(super) fn not_found(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.list.push(FieldError::not_found(field, &value.into()));
    }

    /// Conditions as most kinds have them: each type once, with a status, a time and a reason.
    pub(super) fn conditions(&mut self, object: &Value, field: &str) {
        const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        let mut seen: Vec<&str> = Vec::new();
        for (position, condition) in list(object, field).iter().enumerate() {
            let path = format!("{field}[{position}]");
            let (kind, reason) = (text(condition, "type"), text(condition, "reason"));
            if seen.contains(&kind) {
                self.duplicate(format!("{path}.type"), kind);
            }
            seen.push(kind);
            self.all(&format!("{path}.type"), kind, names::qualified_name(kind));
            let status = text(condition, "status");
            if !matches!(status, "True" | "False" | "Unknown") {
                self.not_supported(format!("{path}.status"), status, &["False", "True", "Unknown"]);
            }
            if let Some(seen) = int(condition, "observedGeneration").filter(|seen| *seen < 0) {
                let field = format!("{path}.observedGeneration");
                self.invalid(field, seen, "must be greater than or equal to zero");
            }
            if text(condition, "lastTransitionTime").is_empty() {
                self.required(format!("{path}.lastTransitionTime"), "");
            }
            let field = format!("{path}.reason");
            if reason.is_empty() {
                self.required(field.as_str(), "");
            } else if !is_reason(reason) {
                self.invalid(field.as_str(), reason, REASON);
            }
            if reason.len() > 1024 {
                self.too_long(field, 1024);
            }
            if text(condition, "message").len() > 32 * 1024 {
                self.too_long(format!("{path}.message"), 32 * 1024);
            }
        }
    }

    /// A claim of a container that the pod does not have.
    pub(super) fn claim_not_found(&mut self, field: String, name: &str, none: bool) {
        let mut error = FieldError::not_found(field, &Value::from(name));
        error
            .message
            .push_str(": must be one of the names in pod.spec.resourceClaims");
        if none {
            error.message.push_str(" which is empty");
        }
        self.list.push(error);
    }

    pub(super) fn too_long(&mut self, field: impl Into<String>, max: usize) {
        self.list.push(FieldError::too_long(field, max));
    }

    pub(super) fn too_many(&mut self, field: impl Into<String>, actual: usize, max: usize) {
        self.list.push(FieldError::too_many(field, actual, max));
    }

    /// A complete message of its own.
    pub(super) fn raw(&mut self, cause: Cause, field: impl Into<String>, message: impl Into<String>) {
        self.list.push(FieldError::new(cause, field, message));
    }

    /// A refused struct, shown with the names its fields have in the reference and in their order.
    pub(super) fn invalid_struct(
        &mut self,
        field: impl Into<String>,
        parts: &[(&str, Option<&Value>)],
        detail: &str,
    ) {
        let shown = printed(parts);
        self.raw(Cause::Invalid, field, format!("Invalid value: {shown}: {detail}"));
    }

    /// One error per message a name rule gave.
    pub(super) fn all(&mut self, field: &str, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(field, value, &message);
        }
    }

    /// The integer at a path of `parent` may not be negative.
    pub(super) fn non_negative(&mut self, parent: &Value, path: &str, field: &str) {
        if let Some(number) = int(parent, path).filter(|number| *number < 0) {
            self.invalid(field, number, NEGATIVE);
        }
    }

    /// The value at a path may not change.
    pub(super) fn immutable(&mut self, path: &str, new: &Value, old: &Value, field: &str) {
        if !same(at(new, path), at(old, path)) {
            let value = at(new, path).cloned().unwrap_or(Value::Null);
            self.invalid(field, value, "field is immutable");
        }
    }

    /// A string that must be one of a set; empty is a required value.
    pub(super) fn choice(&mut self, value: &str, field: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(field, "");
        } else if !supported.contains(&value) {
            self.not_supported(field, value, supported);
        }
    }

    /// Same, where the field may be absent.
    pub(super) fn optional_choice(&mut self, value: Option<&Value>, field: &str, supported: &[&str]) {
        if let Some(text) = value.and_then(Value::as_str)
            && !supported.contains(&text)
        {
            self.not_supported(field, text, supported);
        }
    }

    pub(super) fn port(&mut self, number: i64, field: &str) {
        if !(1..=65535).contains(&number) {
            self.invalid(field, number, &names::range_error(1, 65535));
        }
    }

    pub(super) fn port_or_name(&mut self, value: Option<&Value>, field: &str) {
        match value {
            Some(Value::String(name)) => self.all(field, name, names::port_name(name)),
            other => self.port(other.and_then(Value::as_i64).unwrap_or(0), field),
        }
    }

    /// Keys and values of labels; all errors name the map.
    pub(super) fn labels(&mut self, parent: &Value, path: &str, field: &str) {
        for (key, value) in entries(parent, path) {
            self.all(field, key, names::qualified_name(key));
            let value = value.as_str().unwrap_or_default();
            self.all(field, value, names::label_value(value));
        }
    }

    pub(super) fn annotations(&mut self, parent: &Value, path: &str, field: &str) {
        let mut size = 0;
        for (key, value) in entries(parent, path) {
            self.all(field, key, names::qualified_name(&key.to_lowercase()));
            size += key.len() + value.as_str().unwrap_or_default().len();
        }
        if size > 256 * 1024 {
            self.too_long(field, 256 * 1024);
        }
    }

    /// A label selector; an absent one is fine.
    pub(super) fn selector(&mut self, selector: Option<&Value>, field: &str) {
        let Some(selector) = selector else { return };
        self.labels(selector, "matchLabels", &format!("{field}.matchLabels"));
        for (at_index, expression) in list(selector, "matchExpressions").iter().enumerate() {
            self.requirement(expression, &format!("{field}.matchExpressions[{at_index}]"), &[]);
        }
    }

    /// The same, telling whether nothing was wrong.
    pub(super) fn sound_selector(&mut self, selector: &Value, field: &str) -> bool {
        let before = self.list.len();
        self.selector(Some(selector), field);
        self.list.len() == before
    }

    /// One `key operator values` requirement; `single` lists operators that take exactly one value.
    pub(super) fn requirement(&mut self, requirement: &Value, field: &str, single: &[&str]) {
        let values = strings(requirement, "values");
        let operator = text(requirement, "operator");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                self.required(
                    format!("{field}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => self.forbidden(
                format!("{field}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other if single.contains(&other) => {
                if values.len() != 1 {
                    self.required(
                        format!("{field}.values"),
                        "must be specified single value when `operator` is 'Lt' or 'Gt'",
                    );
                }
            }
            other => self.invalid(
                format!("{field}.operator"),
                other,
                "not a valid selector operator",
            ),
        }
        let key = text(requirement, "key");
        self.all(&format!("{field}.key"), key, names::qualified_name(key));
        for (position, value) in values.iter().enumerate() {
            self.all(
                &format!("{field}.values[{position}]"),
                value,
                names::label_value(value),
            );
        }
    }

    /// A number that may not be negative, or a percentage.
    pub(super) fn int_or_percent(&mut self, value: Option<&Value>, field: &str) {
        match value {
            Some(Value::String(percent)) => self.all(field, percent, names::percent(percent)),
            Some(other) if other.as_i64().is_some_and(|number| number < 0) => {
                self.invalid(field, other.clone(), NEGATIVE);
            }
            _ => {}
        }
    }

    /// A percentage above 100 is too much.
    pub(super) fn at_most_all(&mut self, value: Option<&Value>, field: &str) {
        if let Some(Value::String(percent)) = value
            && names::percent(percent).is_empty()
            && percent_of(percent) > 100
        {
            self.invalid(field, percent.as_str(), "must not be greater than 100%");
        }
    }

    /// A quantity of a resource: not negative, whole where the resource is counted.
    pub(super) fn amount(&mut self, name: &str, value: &Value, field: &str) {
        let Ok(quantity) = Quantity::from_value(value) else {
            return;
        };
        if quantity.is_negative() {
            self.invalid(field, quantity.to_string(), NEGATIVE);
        }
        if is_counted(name) && quantity.is_fractional() {
            self.invalid(field, quantity.to_string(), "must be an integer");
        }
    }
}

/// The number of a percentage, or of anything that is not one, zero.
/// A struct as the reference prints it.
pub(super) fn printed(parts: &[(&str, Option<&Value>)]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, value)| format!("\"{name}\":{}", value.unwrap_or(&Value::Null)))
        .collect();
    format!("{{{}}}", parts.join(","))
}

pub(super) fn percent_of(text: &str) -> i64 {
    text.strip_suffix('%')
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// The number in front of a percent sign, or the number itself.
pub(super) fn int_or_percent_value(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) => percent_of(text),
        Some(other) => other.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// Whether a resource belongs to Kubernetes itself.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_counted(name: &str) -> bool {
    matches!(
        name,
        "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || is_extended(name)
}

/// A word, or words joined by what may join them.
fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || matches!(c, ',' | ':'))
}
