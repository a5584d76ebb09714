// SPDX-License-Identifier: Apache-2.0
//! Evaluating the rules of a schema on an object.
//!
//! Rules of a node run before those of its children. When the budget is used up nothing further
//! runs. A rule that does not look at the old object is forgiven where nothing changed.

use cobaltcore_cel::{Budget, EvalError, Input, Outcome};
use cobaltcore_text::go;
use serde_json::{Map, Value};

use super::valid_field_path;
use crate::check::name_of;
use crate::correlate::{Pair, find_by_keys};
use crate::error::{Cause, FieldError};
use crate::node::{Additional, ListType, Rule, Schema};
use crate::path::Path;

const MESSAGE_MAX: usize = 5 << 10;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Runs all rules of a whole object; with `old` those that compare with it, too. What is wrong but
/// was so before is not refused: it goes to `forgiven`.
pub fn run_rules(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    budget: &mut Budget,
    forgiven: &mut Vec<FieldError>,
) -> Vec<FieldError> {
    let pair = old.map(|old| Pair { schema, new, old });
    let runner = run(schema, new, old, pair, &Path::Root, budget);
    forgiven.extend(runner.forgiven);
    runner.errors
}

/// Runs the rules of a value at a place; nothing is forgiven.
pub fn run_rules_at(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    base: &str,
    budget: &mut Budget,
) -> Vec<FieldError> {
    run(schema, new, old, None, &Path::Base(base), budget).errors
}

fn run<'b>(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    pair: Option<Pair<'_>>,
    path: &Path<'_>,
    budget: &'b mut Budget,
) -> Runner<'b> {
    let mut runner = Runner {
        errors: Vec::new(),
        forgiven: Vec::new(),
        budget,
        stopped: false,
    };
    runner.node(
        schema,
        new,
        old,
        Ratchet {
            current: pair,
            nearest: None,
        },
        path,
    );
    runner
}

/// What decides whether an error is forgiven: this node's counterpart, or else its parent's.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<Pair<'a>>,
    nearest: Option<Pair<'a>>,
}

impl Ratchet<'_> {
    fn forgives(&self) -> bool {
        self.current.or(self.nearest).is_some_and(|p| p.unchanged())
    }

    fn field(self, name: &str) -> Self {
        match self.current {
            None => self,
            Some(_) if self.nearest.is_none() && matches!(name, "apiVersion" | "kind") => Self {
                current: None,
                nearest: None,
            },
            Some(pair) => Self {
                current: pair.field(name),
                nearest: Some(pair),
            },
        }
    }

    fn element(self, index: usize) -> Self {
        match self.current {
            None => self,
            Some(pair) => Self {
                current: pair.element(index),
                nearest: Some(pair),
            },
        }
    }
}

struct Runner<'b> {
    errors: Vec<FieldError>,
    forgiven: Vec<FieldError>,
    budget: &'b mut Budget,
    stopped: bool,
}

/// One rule on one value.
struct Case<'a> {
    schema: &'a Schema,
    rule: &'a Rule,
    new: &'a Value,
    old: Option<&'a Value>,
    forgiven: bool,
}

impl Runner<'_> {
    fn node(
        &mut self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) {
        if new.is_null() || self.stopped || !schema.has_rules() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        for rule in &schema.rules {
            if self.stopped {
                return;
            }
            self.rule(schema, rule, new, old, ratchet, path);
        }
        match new {
            Value::Object(map) => {
                self.object(schema, map, old.and_then(Value::as_object), ratchet, path);
            }
            Value::Array(items) => {
                let Some(element) = schema.element().filter(|s| s.has_rules()) else {
                    return;
                };
                let earlier = old
                    .and_then(Value::as_array)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                for (i, item) in items.iter().enumerate() {
                    let old = match &schema.list_type {
                        ListType::Map(keys) => find_by_keys(earlier, keys, item),
                        _ => None,
                    };
                    self.node(element, item, old, ratchet.element(i), &path.index(i));
                }
            }
            _ => {}
        }
    }

    fn object(
        &mut self,
        schema: &Schema,
        map: &Map<String, Value>,
        old: Option<&Map<String, Value>>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) {
        if let Some(Additional::Schema(values)) = &schema.additional
            && values.has_rules()
        {
            for (key, value) in map {
                let old = old.and_then(|o| o.get(key));
                self.node(values, value, old, ratchet.field(key), &path.key(key));
            }
        }
        for (name, node) in &schema.properties {
            if node.has_rules()
                && let Some(value) = map.get(name)
            {
                let old = old.and_then(|o| o.get(name));
                self.node(node, value, old, ratchet.field(name), &path.child(name));
            }
        }
    }

    fn rule(
        &mut self,
        schema: &Schema,
        rule: &Rule,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) {
        if let Some(error) = &rule.error {
            self.push(path, schema, &format!("rule compile error: {error}"));
            return;
        }
        let Some(program) = &rule.program else { return };
        let transition = rule.is_transition();
        if transition && old.is_none() && !rule.optional_old_self {
            return;
        }
        if transition && program.is_immutability_check() && !rule.optional_old_self && old == Some(new) {
            return;
        }
        if self.budget.remaining() == 0 {
            self.push(path, schema, OUT_OF_BUDGET);
            self.stopped = true;
            return;
        }
        let bindings = [("self", Input::Json(new)), ("oldSelf", old_input(rule, old))];
        match program.evaluate(&bindings, self.budget) {
            Ok(Outcome::Bool(true)) => {}
            Ok(_) => {
                let forgiven = !transition && ratchet.forgives();
                self.failed(
                    &Case {
                        schema,
                        rule,
                        new,
                        old,
                        forgiven,
                    },
                    path,
                );
            }
            Err(error) => self.broken(schema, rule, &error, path),
        }
    }

    fn broken(&mut self, schema: &Schema, rule: &Rule, error: &EvalError, path: &Path<'_>) {
        let shown = describe(rule);
        match error {
            EvalError::BudgetExceeded { object: true } => {
                self.push(path, schema, OUT_OF_BUDGET);
                self.stopped = true;
            }
            EvalError::BudgetExceeded { object: false } => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
                );
                self.push(path, schema, &detail);
                self.stopped = true;
            }
            other => {
                let text = other.to_string();
                let detail = if text.starts_with("no such overload") {
                    format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                    )
                } else {
                    format!("{text} evaluating rule: {shown}")
                };
                self.push(path, schema, &detail);
            }
        }
    }

    fn failed(&mut self, case: &Case<'_>, path: &Path<'_>) {
        let field = match case.rule.field_path.as_deref() {
            Some(relative) => match valid_field_path(relative, case.schema, true) {
                Ok((relative, _)) => path.child(&relative).to_string(),
                Err(_) => path.to_string(),
            },
            None => path.to_string(),
        };
        let detail = match self.message(case, &field) {
            Ok(Some(message)) => message,
            Ok(None) => case.rule.message.as_deref().map_or_else(
                || format!("failed rule: {}", describe(case.rule)),
                |message| message.trim().to_owned(),
            ),
            Err(error) => {
                self.stopped = true;
                self.tell(case, error);
                return;
            }
        };
        self.tell(case, refusal(case, field, &detail));
    }

    fn tell(&mut self, case: &Case<'_>, error: FieldError) {
        if case.forgiven {
            self.forgiven.push(error);
        } else {
            self.errors.push(error);
        }
    }

    /// The evaluated message; `None` if there is none or it cannot be used.
    fn message(&mut self, case: &Case<'_>, field: &str) -> Result<Option<String>, FieldError> {
        let Some(program) = &case.rule.message_program else {
            return Ok(None);
        };
        let source = case.rule.message_expression.as_deref().unwrap_or_default();
        let bindings = [
            ("self", Input::Json(case.new)),
            ("oldSelf", old_input(case.rule, case.old)),
        ];
        let stop = |detail: &str| {
            let value = Value::from(case.schema.kind.map(name_of).unwrap_or_default());
            Err(FieldError::invalid(field, &value, detail))
        };
        match program.evaluate(&bindings, self.budget) {
            Ok(Outcome::String(message)) => {
                let message = message.trim();
                let usable = !message.is_empty() && message.len() <= MESSAGE_MAX && !message.contains('\n');
                Ok(usable.then(|| message.to_owned()))
            }
            Err(EvalError::BudgetExceeded { object: true }) => stop(
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run",
            ),
            Err(EvalError::BudgetExceeded { object: false }) => stop(&format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                go::quote(source)
            )),
            _ => Ok(None),
        }
    }

    fn push(&mut self, path: &Path<'_>, schema: &Schema, detail: &str) {
        let value = Value::from(schema.kind.map(name_of).unwrap_or_default());
        self.errors
            .push(FieldError::invalid(path.to_string(), &value, detail));
    }
}

fn old_input<'a>(rule: &Rule, old: Option<&'a Value>) -> Input<'a> {
    match old {
        _ if rule.optional_old_self => Input::Optional(old),
        Some(old) => Input::Json(old),
        None => Input::Absent,
    }
}

fn describe(rule: &Rule) -> &str {
    rule.message.as_deref().unwrap_or(&rule.rule).trim()
}

/// The error of a rule that gave false. Objects and lists are not shown, other values are.
fn refusal(case: &Case<'_>, field: String, detail: &str) -> FieldError {
    use crate::node::Type;
    let omit = matches!(case.schema.kind, Some(Type::Object | Type::Array));
    let shown = |head: &str| {
        if omit {
            head.to_owned()
        } else {
            format!("{head}: {}", crate::error::quote(case.new))
        }
    };
    match case.rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
        Some("FieldValueRequired") => FieldError::required(field, detail),
        Some("FieldValueDuplicate") => FieldError::new(Cause::Duplicate, field, shown("Duplicate value")),
        _ => FieldError::new(
            Cause::Invalid,
            field,
            format!("{}: {detail}", shown("Invalid value")),
        ),
    }
}
