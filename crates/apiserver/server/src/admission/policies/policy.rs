// SPDX-License-Identifier: Apache-2.0
//! Policies and bindings as their objects describe them, compiled once when they are committed, and
//! what is wrong with expressions that do not compile.

use cobaltcore_cel::{Budget, DeclType, Env, Input, Outcome, Program};
use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::admission::conditions::{self, Conditions};
use crate::admission::matching::Scope;
use crate::selector::LabelSelector;

/// The longest text a message expression may give.
const MAX_MESSAGE: usize = 5 * 1024;

/// A policy, ready to be asked.
#[derive(Debug)]
pub(super) struct Policy {
    pub name: String,
    pub scope: Scope,
    /// What cannot be decided is let through.
    pub fails_open: bool,
    /// apiVersion and kind of the parameters.
    pub param_kind: Option<(String, String)>,
    conditions: Conditions,
    validations: Vec<Validation>,
}

#[derive(Debug)]
struct Validation {
    expression: String,
    program: Result<Program, String>,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Option<String>,
}

/// Something a policy objects to.
#[derive(Debug)]
pub(super) struct Finding {
    pub message: String,
    pub reason: Option<String>,
}

impl Finding {
    pub(super) fn plain(message: String) -> Self {
        Self {
            message,
            reason: None,
        }
    }
}

impl Policy {
    pub(super) fn of(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (base, env) = environments(spec);
        let validations = spec["validations"].as_array().into_iter().flatten();
        Self {
            name: name.to_owned(),
            scope: Scope::of_resources(&spec["matchConstraints"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            param_kind: param_kind(spec),
            conditions: Conditions::of(&spec["matchConditions"], &base),
            validations: validations
                .map(|validation| {
                    let expression = text(&validation["expression"]).unwrap_or_default();
                    Validation {
                        program: conditions::compile(&expression, &env),
                        expression,
                        message: text(&validation["message"]),
                        message_program: validation["messageExpression"]
                            .as_str()
                            .and_then(|source| cobaltcore_cel::compile(source, &env).ok()),
                        reason: text(&validation["reason"]),
                    }
                })
                .collect(),
        }
    }

    /// Everything the policy objects to.
    pub(super) fn judge(&self, bindings: &[(&str, Input<'_>)], budget: &mut Budget) -> Vec<Finding> {
        match self.conditions.hold(bindings) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(_) if self.fails_open => return Vec::new(),
            Err(why) => return vec![Finding::plain(why)],
        }
        let mut findings = Vec::new();
        for validation in &self.validations {
            let result = match &validation.program {
                Ok(program) => program
                    .evaluate(bindings, budget)
                    .map_err(|error| error.to_string()),
                Err(text) => Err(text.clone()),
            };
            match result {
                Ok(Outcome::Bool(true)) => {}
                Ok(_) => findings.push(validation.finding(bindings, budget)),
                Err(_) if self.fails_open => {}
                Err(why) => findings.push(Finding::plain(format!(
                    "expression '{}' resulted in error: {why}",
                    validation.expression
                ))),
            }
        }
        findings
    }
}

impl Validation {
    /// What a refused request is told: the message made for it, the fixed one, or the expression.
    fn finding(&self, bindings: &[(&str, Input<'_>)], budget: &mut Budget) -> Finding {
        let made = self
            .message_program
            .as_ref()
            .and_then(|program| match program.evaluate(bindings, budget) {
                Ok(Outcome::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            })
            .filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
        let fixed = self
            .message
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let message = made
            .or_else(|| fixed.map(str::to_owned))
            .unwrap_or_else(|| format!("failed expression: {}", self.expression.trim()));
        Finding {
            message,
            reason: self.reason.clone(),
        }
    }
}

/// A binding.
#[derive(Debug)]
pub(super) struct Binding {
    pub name: String,
    pub policy: String,
    pub scope: Scope,
    pub params: Option<Reference>,
    pub denies: bool,
    pub warns: bool,
}

/// Where a binding finds its parameters.
#[derive(Debug)]
pub(super) struct Reference {
    pub namespace: Option<String>,
    pub select: Params,
    pub missing: Missing,
}

/// Which objects are parameters.
#[derive(Debug)]
pub(super) enum Params {
    Named(String),
    Selected(LabelSelector),
}

/// What happens when there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Allow,
    Deny,
}

impl Binding {
    pub(super) fn of(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let actions: Vec<&str> = spec["validationActions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let reference = &spec["paramRef"];
        Self {
            name: name.to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            scope: Scope::of_resources(&spec["matchResources"]),
            params: reference.is_object().then(|| Reference {
                namespace: reference["namespace"]
                    .as_str()
                    .filter(|n| !n.is_empty())
                    .map(str::to_owned),
                select: match reference["name"].as_str().filter(|n| !n.is_empty()) {
                    Some(name) => Params::Named(name.to_owned()),
                    None => Params::Selected(
                        LabelSelector::from_object(&reference["selector"]).unwrap_or_default(),
                    ),
                },
                missing: if reference["parameterNotFoundAction"] == "Allow" {
                    Missing::Allow
                } else {
                    Missing::Deny
                },
            }),
            denies: actions.contains(&"Deny"),
            warns: actions.contains(&"Warn"),
        }
    }
}

fn param_kind(spec: &Value) -> Option<(String, String)> {
    let kind = spec["paramKind"].as_object()?;
    let text = |key: &str| {
        kind.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Some((text("apiVersion"), text("kind")))
}

/// The variables of match conditions, and those of everything else, which may use `variables` too.
fn environments(spec: &Value) -> (Env, Env) {
    let mut base = conditions::environment().clone();
    if spec["paramKind"].is_object() {
        base = base.variable("params", DeclType::Dyn);
    }
    let mut env = base.clone().variable(
        "variables",
        DeclType::Object {
            name: "kubernetes.variables".into(),
            fields: std::sync::Arc::default(),
        },
    );
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let (Some(name), Some(source)) = (variable["name"].as_str(), variable["expression"].as_str()) else {
            continue;
        };
        if let Ok(program) = cobaltcore_cel::compile(source, &env) {
            env = env.computed(&format!("variables.{name}"), program);
        }
    }
    (base, env)
}

/// What is wrong with the expressions of a policy.
pub(crate) fn errors(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let (base, env) = environments(spec);
    let list = |key: &str| spec[key].as_array().cloned().unwrap_or_default();
    let mut errors = Vec::new();
    let mut check = |field: String, source: &Value, env: &Env, wanted: Wanted| {
        let Some(source) = source.as_str().filter(|s| !s.trim().is_empty()) else {
            return; // the kind's own validation says so
        };
        if let Err(why) = wanted.compile(source, env) {
            errors.push(FieldError::invalid(field, &json!(source), &why));
        }
    };
    for (at, condition) in list("matchConditions").iter().enumerate() {
        let field = format!("spec.matchConditions[{at}].expression");
        check(field, &condition["expression"], &base, Wanted::Bool);
    }
    for (at, variable) in list("variables").iter().enumerate() {
        // A variable sees those before it.
        let mut before = spec.clone();
        if let Some(Value::Array(all)) = before.get_mut("variables") {
            all.truncate(at);
        }
        let field = format!("spec.variables[{at}].expression");
        check(
            field,
            &variable["expression"],
            &environments(&before).1,
            Wanted::Anything,
        );
    }
    for (at, validation) in list("validations").iter().enumerate() {
        let field = format!("spec.validations[{at}].expression");
        check(field, &validation["expression"], &env, Wanted::Bool);
        let field = format!("spec.validations[{at}].messageExpression");
        check(field, &validation["messageExpression"], &env, Wanted::Text);
    }
    for (at, annotation) in list("auditAnnotations").iter().enumerate() {
        let field = format!("spec.auditAnnotations[{at}].valueExpression");
        check(field, &annotation["valueExpression"], &env, Wanted::Anything);
    }
    errors
}

/// What an expression must give.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Bool,
    Text,
    Anything,
}

impl Wanted {
    fn compile(self, source: &str, env: &Env) -> Result<(), String> {
        match self {
            Self::Bool => conditions::compile(source, env).map(drop),
            Self::Text => {
                let program = conditions::compile_any(source, env)?;
                if program.result_is_string() {
                    Ok(())
                } else {
                    Err("must evaluate to string".into())
                }
            }
            Self::Anything => conditions::compile_any(source, env).map(drop),
        }
    }
}
