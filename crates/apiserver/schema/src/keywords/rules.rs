// SPDX-License-Identifier: Apache-2.0
//! Rules at registration: their texts, whether they compile, and whether they can be afforded.

use cobaltcore_text::go;
use serde_json::Value;

use super::{Checker, Context, RULE_COST_MAX, SCHEMA_COST_MAX, Scope};
use crate::error::{Cause, FieldError};
use crate::node::{Rule, Schema};
use crate::path::Path;
use crate::rules::{declare, valid_field_path};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// `estimated rule cost exceeds budget by factor of 2.2x (try ...)`.
pub(super) fn too_expensive(name: &str, cost: u64, limit: u64) -> String {
    let ratio = cost as f64 / limit as f64;
    let factor = if ratio > 100.0 {
        "more than 100x".to_owned()
    } else if ratio < 1.5 {
        format!("{ratio:.6}x")
    } else {
        format!("{ratio:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

#[derive(Default)]
pub(super) struct Costs {
    pub(super) total: u64,
    pub(super) most_expensive: Vec<(String, u64)>,
}

impl Costs {
    fn add(&mut self, field: impl FnOnce() -> String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        self.most_expensive.push((field(), cost));
        self.most_expensive
            .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.most_expensive.truncate(4);
    }
}

impl Checker {
    pub(super) fn rule_texts(&mut self, rule: &Rule, raw: &Value, tree: &Schema, path: &Path<'_>) {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
        let breaks = |s: &str| s.contains(['\n', '\r']);
        let (message, expression, field) = (text("message"), text("messageExpression"), text("fieldPath"));
        let at = path.child("message");
        if rule.rule.trim().is_empty() {
            self.require(&path.child("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            self.invalid(&at, &Value::from(message), "must be non-empty if specified");
        } else if breaks(message.trim()) {
            self.invalid(&at, &Value::from(message), "must not contain line breaks");
        } else if breaks(rule.rule.trim()) && message.trim().is_empty() {
            self.require(&at, "message must be specified if rule contains line breaks");
        }
        if !expression.is_empty() && expression.trim().is_empty() {
            self.require(
                &path.child("messageExpression"),
                "messageExpression must be non-empty if specified",
            );
        }
        if let Some(reason) = raw
            .get("reason")
            .and_then(Value::as_str)
            .filter(|r| !REASONS.contains(r))
        {
            let at = path.child("reason").to_string();
            self.schema
                .push(FieldError::not_supported(at, &Value::from(reason), &REASONS));
        }
        let at = path.child("fieldPath");
        let shown = Value::from(field);
        if !field.is_empty() && field.trim().is_empty() {
            self.invalid(&at, &shown, "must be non-empty if specified");
        }
        if breaks(field) {
            self.invalid(&at, &shown, "must not contain line breaks");
        }
        if !field.is_empty() && valid_field_path(field, tree, true).is_err() {
            self.invalid(&at, &shown, "must be a valid path");
        }
    }

    pub(super) fn compiled_rules(
        &mut self,
        raw: &[Value],
        context: Context<'_>,
        scope: &Scope,
        path: &Path<'_>,
    ) {
        let tree = context.tree;
        let Some(declared) = declare(tree, scope.root || tree.embedded_resource) else {
            let text = "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.rules
                .push(FieldError::new(Cause::InternalError, path.to_string(), text));
            return;
        };
        let times = context.times.unwrap_or_else(|| declared.cardinality());
        for (i, rule) in tree.rules.iter().enumerate() {
            let at = path.index(i);
            let shown = raw.get(i).map(show_rule).unwrap_or_default();
            self.compiled_rule(rule, &shown, times, scope, &at);
        }
    }

    fn compiled_rule(&mut self, rule: &Rule, shown: &str, times: u64, scope: &Scope, path: &Path<'_>) {
        let at = path.child("rule");
        let cost = rule
            .program
            .as_ref()
            .map_or(0, |p| p.estimated_cost().saturating_mul(times));
        if cost > RULE_COST_MAX && !self.lenient.rule_cost {
            let detail = too_expensive("estimated rule cost", cost, RULE_COST_MAX);
            self.rules.push(FieldError::forbidden(at.to_string(), &detail));
        }
        self.costs.add(|| at.to_string(), cost);
        let refuse = |field: String, detail: &str| {
            FieldError::new(Cause::Invalid, field, format!("Invalid value: {shown}: {detail}"))
        };
        if let Some(error) = &rule.error {
            self.rules.push(refuse(at.to_string(), error));
        }
        let message = path.child("messageExpression");
        if let Some(error) = &rule.message_error {
            self.rules.push(refuse(message.to_string(), error));
        } else if let Some(program) = &rule.message_program {
            let cost = program.estimated_cost();
            if cost > RULE_COST_MAX && !self.lenient.rule_cost {
                let detail = too_expensive("estimated messageExpression cost", cost, RULE_COST_MAX);
                self.rules
                    .push(FieldError::forbidden(message.to_string(), &detail));
            }
            self.costs.add(|| message.to_string(), cost);
        }
        if rule.is_transition() {
            if let Some(around) = &scope.uncorrelated {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {around}"
                );
                self.rules.push(FieldError::invalid(
                    at.to_string(),
                    &Value::from(rule.rule.as_str()),
                    &detail,
                ));
            }
        } else if rule.optional_old_self_given {
            let field = path.child("optionalOldSelf").to_string();
            let detail = "may not be set if oldSelf is not used in rule";
            self.rules.push(FieldError::invalid(
                field,
                &Value::Bool(rule.optional_old_self),
                detail,
            ));
        }
    }
}

/// A rule as the reference shows it in errors.
fn show_rule(rule: &Value) -> String {
    let text = |key: &str| {
        go::json(&Value::from(
            rule.get(key).and_then(Value::as_str).unwrap_or_default(),
        ))
    };
    let optional = |key: &str| {
        rule.get(key)
            .filter(|v| !v.is_null())
            .map_or("null".to_owned(), go::json)
    };
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        optional("reason"),
        text("fieldPath"),
        optional("optionalOldSelf")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excess_is_told_as_a_factor() {
        for (cost, factor) in [
            (12_000_000, "1.200000x"),
            (22_000_000, "2.2x"),
            (1_000_000_001, "more than 100x"),
        ] {
            let text = too_expensive("estimated rule cost", cost, RULE_COST_MAX);
            let expected = format!(
                "estimated rule cost exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            );
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn the_four_most_expensive_rules_are_remembered() {
        let mut costs = Costs::default();
        for (i, cost) in [5_000_000, 1, 9_000_000, 2_000_000, 3_000_000, 4_000_000]
            .into_iter()
            .enumerate()
        {
            costs.add(|| format!("r{i}"), cost);
        }
        let names: Vec<&str> = costs
            .most_expensive
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["r2", "r0", "r5", "r4"]);
        assert_eq!(costs.total, 23_000_001);
    }
}
