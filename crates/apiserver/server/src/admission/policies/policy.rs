// SPDX-License-Identifier: Apache-2.0
//! Policies and bindings as their objects describe them, compiled once when they are committed, and
//! what is wrong with expressions that do not compile.

use cobaltcore_cel::{Budget, DeclType, Env, EvalError, Input, Outcome, Program};
use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::admission::conditions::{self, Conditions, OUT_OF_BUDGET};
use crate::admission::matching::Scope;
use crate::metrics::Metrics;
use crate::selector::LabelSelector;

/// The longest text a message expression may give.
const MAX_MESSAGE: usize = 5 * 1024;

/// apiVersion and kind of parameters.
pub(super) type ParamKind = (String, String);

/// A policy, ready to be asked.
#[derive(Debug)]
pub(super) struct Policy {
    pub name: String,
    pub scope: Scope,
    /// What cannot be decided is let through.
    pub fails_open: bool,
    pub param_kind: Option<ParamKind>,
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
        let (base, env) = environments(spec, conditions::environment());
        let message_env = env.clone().hiding("authorizer");
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
                            .and_then(|source| cobaltcore_cel::compile(source, &message_env).ok()),
                        reason: text(&validation["reason"]),
                    }
                })
                .collect(),
        }
    }

    /// Everything the policy objects to.
    pub(super) fn judge(&self, bindings: &[(&str, Input<'_>)], counts: &Metrics) -> Vec<Finding> {
        match self.conditions.hold(bindings, counts) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(_) if self.fails_open => return Vec::new(),
            Err(why) => return vec![Finding::plain(why)],
        }
        let mut budget = Budget::per_object();
        let findings = self.objections(bindings, &mut budget);
        counts.evaluated(&budget);
        findings
    }

    fn objections(&self, bindings: &[(&str, Input<'_>)], budget: &mut Budget) -> Vec<Finding> {
        let mut findings = Vec::new();
        for validation in &self.validations {
            let result = match &validation.program {
                Ok(program) => program.evaluate(bindings, budget),
                Err(text) => Err(EvalError::Failed(text.clone())),
            };
            match result {
                Err(EvalError::BudgetExceeded { object: true }) => {
                    let told = (!self.fails_open).then(|| Finding::plain(OUT_OF_BUDGET.to_owned()));
                    return told.into_iter().collect();
                }
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

pub(super) fn param_kind(spec: &Value) -> Option<ParamKind> {
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
pub(super) fn environments(spec: &Value, given: &Env) -> (Env, Env) {
    let mut base = given.clone();
    if spec["paramKind"].is_object() {
        base = base.variable("params", DeclType::Dyn);
    }
    if spec["variables"].as_array().is_none_or(Vec::is_empty) {
        return (base.clone(), base);
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
    let mut check = Check::of(spec, conditions::environment());
    for (at, validation) in entries(spec, "validations") {
        let field = format!("spec.validations[{at}]");
        check.expression(
            format!("{field}.expression"),
            &validation["expression"],
            Wanted::Bool,
        );
    }
    // What is said to the requester does not depend on rights.
    check.env = check.env.hiding("authorizer");
    for (at, validation) in entries(spec, "validations") {
        check.expression(
            format!("spec.validations[{at}].messageExpression"),
            &validation["messageExpression"],
            Wanted::Text,
        );
    }
    for (at, annotation) in entries(spec, "auditAnnotations") {
        let field = format!("spec.auditAnnotations[{at}].valueExpression");
        check.expression(field, &annotation["valueExpression"], Wanted::Note);
    }
    check.errors
}

/// The elements of a list with their places.
pub(super) fn entries<'a>(spec: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    spec[key].as_array().into_iter().flatten().enumerate()
}

/// Compiles the expressions of a policy and keeps what does not compile.
pub(super) struct Check {
    env: Env,
    pub errors: Vec<FieldError>,
}

impl Check {
    /// Begins with what every policy has: conditions and variables.
    pub(super) fn of(spec: &Value, given: &Env) -> Self {
        let (base, env) = environments(spec, given);
        let mut check = Self {
            env: base,
            errors: Vec::new(),
        };
        for (at, condition) in entries(spec, "matchConditions") {
            let field = format!("spec.matchConditions[{at}].expression");
            check.expression(field, &condition["expression"], Wanted::Bool);
        }
        for (at, variable) in entries(spec, "variables") {
            // A variable sees those before it.
            let mut before = spec.clone();
            if let Some(Value::Array(all)) = before.get_mut("variables") {
                all.truncate(at);
            }
            check.env = environments(&before, given).1;
            let field = format!("spec.variables[{at}].expression");
            check.expression(field, &variable["expression"], Wanted::Anything);
        }
        check.env = env;
        check
    }

    pub(super) fn expression(&mut self, field: String, source: &Value, wanted: Wanted) {
        let Some(source) = source.as_str().filter(|s| !s.trim().is_empty()) else {
            return; // the kind's own validation says so
        };
        if let Err(why) = wanted.compile(source, &self.env) {
            self.errors.push(FieldError::invalid(field, &json!(source), &why));
        }
    }
}

/// What an expression must give.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Bool,
    Text,
    /// A text or nothing.
    Note,
    Object,
    Patch,
    Anything,
}

impl Wanted {
    pub(super) fn compile(self, source: &str, env: &Env) -> Result<Program, String> {
        let program = conditions::compile_any(source, env)?;
        let (fits, name) = match self {
            Self::Bool => (program.result_is_bool(), "bool"),
            Self::Text => (program.result_is_string(), "string"),
            Self::Note => (
                program.result_is_string() || program.result_type() == "null",
                "one of [string null_type]",
            ),
            Self::Object => (program.result_is_object(), "Object"),
            Self::Patch => (program.result_is_patch(), "list(JSONPatch)"),
            Self::Anything => (true, ""),
        };
        if fits {
            Ok(program)
        } else {
            Err(format!(
                "must evaluate to {name} but got {}",
                program.result_type()
            ))
        }
    }
}
