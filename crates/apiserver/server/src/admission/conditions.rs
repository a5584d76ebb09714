// SPDX-License-Identifier: Apache-2.0
//! Match conditions: expressions that a request must satisfy before a webhook is called or a policy
//! is asked. They are compiled when the configuration is committed and run under a budget.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cobaltcore_cel::{Budget, DeclType, Env, EvalError, Input, ListKind, Outcome, Program};
use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::metrics::Metrics;

/// What is said instead of everything else when the expressions together cost too much.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The conditions of a webhook or a policy.
#[derive(Debug, Default)]
pub(super) struct Conditions(Vec<Condition>);

/// One condition.
#[derive(Debug)]
struct Condition {
    expression: String,
    program: Result<Program, String>,
}

impl Conditions {
    /// Compiles a list of conditions.
    pub(super) fn of(list: &Value, env: &Env) -> Self {
        let read = |condition: &Value| {
            let expression = condition["expression"].as_str().unwrap_or_default().to_owned();
            let program = compile(&expression, env);
            Condition { expression, program }
        };
        Self(list.as_array().into_iter().flatten().map(read).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all conditions hold; the error is why that cannot be told.
    pub(super) fn hold(&self, bindings: &[(&str, Input<'_>)], counts: &Metrics) -> Result<bool, String> {
        let mut budget = Budget::match_conditions();
        let holds = self.hold_within(bindings, &mut budget);
        counts.evaluated(&budget);
        holds
    }

    fn hold_within(&self, bindings: &[(&str, Input<'_>)], budget: &mut Budget) -> Result<bool, String> {
        let mut errors: Vec<String> = Vec::new();
        for condition in &self.0 {
            let result = match &condition.program {
                Ok(program) => program.evaluate(bindings, budget),
                Err(text) => Err(EvalError::Failed(text.clone())),
            };
            match result {
                Err(EvalError::BudgetExceeded { object: true }) => return Err(OUT_OF_BUDGET.to_owned()),
                // One plain no decides, whatever else failed.
                Ok(Outcome::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(why) => {
                    let text = format!("expression '{}' resulted in error: {why}", condition.expression);
                    if !errors.contains(&text) {
                        errors.push(text);
                    }
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// What is wrong with the conditions of a configuration.
pub(crate) fn errors(configuration: &Value) -> Vec<FieldError> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut errors = Vec::new();
    for (at, hook) in list(&configuration["webhooks"]).iter().enumerate() {
        for (position, condition) in list(&hook["matchConditions"]).iter().enumerate() {
            let expression = condition["expression"].as_str().unwrap_or_default();
            if expression.trim().is_empty() {
                continue; // the kind's own validation says so
            }
            if let Err(why) = compile(expression, environment()) {
                let field = format!("webhooks[{at}].matchConditions[{position}].expression");
                errors.push(FieldError::invalid(field, &json!(expression), &why));
            }
        }
    }
    errors
}

/// Compiles an expression that answers yes or no.
pub(super) fn compile(expression: &str, env: &Env) -> Result<Program, String> {
    let program = compile_any(expression, env)?;
    if program.result_is_bool() {
        Ok(program)
    } else {
        Err(format!("must evaluate to bool but got {}", program.result_type()))
    }
}

/// Compiles an expression of any type.
pub(super) fn compile_any(expression: &str, env: &Env) -> Result<Program, String> {
    cobaltcore_cel::compile(expression, env).map_err(|error| {
        let stage = if error.is_instantiation() {
            "program instantiation"
        } else {
            "compilation"
        };
        format!("{stage} failed: {error}")
    })
}

/// The variables: bodies of any kind, and the request with the fields it always has.
pub(super) fn environment() -> &'static Env {
    static ENV: OnceLock<Env> = OnceLock::new();
    ENV.get_or_init(|| {
        Env::new()
            .variable("object", DeclType::Dyn)
            .variable("oldObject", DeclType::Dyn)
            .variable("namespaceObject", namespace_type())
            .variable("request", request_type())
            .variable("authorizer", DeclType::Authorizer)
            .variable("authorizer.requestResource", DeclType::ResourceCheck)
    })
}

fn text() -> DeclType {
    DeclType::String { max: None }
}

fn texts() -> DeclType {
    DeclType::List {
        element: Arc::new(text()),
        kind: ListKind::Atomic,
        max: None,
    }
}

fn text_map() -> DeclType {
    DeclType::Map {
        value: Arc::new(text()),
        max: None,
    }
}

/// What a namespace shows of itself. Its uid cannot be asked for: the reference declares it in
/// capitals, under which no namespace has it.
fn namespace_type() -> DeclType {
    let metadata = record(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", text_map()),
            ("annotations", text_map()),
            ("UID", text()),
            ("creationTimestamp", DeclType::Timestamp),
            ("deletionGracePeriodSeconds", DeclType::Int),
            ("deletionTimestamp", DeclType::Timestamp),
            ("generation", DeclType::Int),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let condition = record(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", DeclType::Timestamp),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let conditions = DeclType::List {
        element: Arc::new(condition),
        kind: ListKind::Atomic,
        max: None,
    };
    record(
        "kubernetes.Namespace",
        vec![
            ("metadata", metadata),
            (
                "spec",
                record("kubernetes.NamespaceSpec", vec![("finalizers", texts())]),
            ),
            (
                "status",
                record(
                    "kubernetes.NamespaceStatus",
                    vec![("conditions", conditions), ("phase", text())],
                ),
            ),
        ],
    )
}

fn request_type() -> DeclType {
    let kind = || {
        record(
            "kubernetes.GroupVersionKind",
            vec![("group", text()), ("version", text()), ("kind", text())],
        )
    };
    let resource = || {
        record(
            "kubernetes.GroupVersionResource",
            vec![("group", text()), ("version", text()), ("resource", text())],
        )
    };
    let user = record(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            (
                "extra",
                DeclType::Map {
                    value: Arc::new(texts()),
                    max: None,
                },
            ),
        ],
    );
    record(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclType::Bool),
            ("options", DeclType::Dyn),
        ],
    )
}

fn record(name: &str, fields: Vec<(&str, DeclType)>) -> DeclType {
    let fields: BTreeMap<String, Arc<DeclType>> = fields
        .into_iter()
        .map(|(name, ty)| (name.to_owned(), Arc::new(ty)))
        .collect();
    DeclType::Object {
        name: name.to_owned(),
        fields: Arc::new(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_compiled_against_the_request() {
        let configuration = |expression: &str| json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": expression}]}]});
        for good in [
            "request.operation == 'CREATE'",
            "!('system:nodes' in request.userInfo.groups)",
            "object.metadata.name.startsWith('x') || oldObject == null",
            "request.?subResource.orValue('') == ''",
            "authorizer.group('').resource('pods').namespace('a').check('get').allowed()",
            "authorizer.requestResource.check('update').reason() == ''",
        ] {
            assert_eq!(errors(&configuration(good)), [], "{good}");
        }
        for (bad, text) in [
            (
                "nonsense",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nonsense'",
            ),
            (
                "request.verb == ''",
                "compilation failed: ERROR: <input>:1:8: undefined field 'verb'",
            ),
            ("'text'", "must evaluate to bool but got string"),
        ] {
            let found = errors(&configuration(bad));
            assert_eq!(found.len(), 1, "{bad}");
            assert_eq!(found[0].field, "webhooks[0].matchConditions[0].expression");
            assert!(found[0].message.contains(text), "{bad}: {}", found[0].message);
        }
    }
}
