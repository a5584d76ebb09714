// SPDX-License-Identifier: Apache-2.0
//! Rules: CEL expressions attached to nodes of a schema.
//!
//! They are compiled once, when a definition is registered, against types taken from the schema
//! ([`declare`]); the programs stay on the nodes. [`run_rules`] evaluates them on an object.

mod declare;
mod fieldpath;
mod run;

use std::sync::Arc;

use cobaltcore_cel::{Env, Program};

pub use declare::{Declared, declare};
pub use fieldpath::valid_field_path;
pub use run::{run_rules, run_rules_at};

use crate::node::{Additional, Rule, Schema};

/// Compiles every rule of a schema and leaves the programs, or the reasons why there are none, on
/// the rules. `root` says whether the schema is that of a whole object.
pub fn compile_rules(schema: &mut Schema, root: bool) {
    if !schema.has_rules() {
        return;
    }
    if !schema.rules.is_empty() {
        compile_node(schema, root);
    }
    if let Some(items) = &mut schema.items {
        compile_child(items);
    }
    if let Some(Additional::Schema(values)) = &mut schema.additional {
        compile_child(values);
    }
    for node in schema.properties.values_mut() {
        compile_child(node);
    }
}

fn compile_child(node: &mut Arc<Schema>) {
    if node.has_rules() {
        let node = Arc::make_mut(node);
        let embedded = node.embedded_resource;
        compile_rules(node, embedded);
    }
}

fn compile_node(schema: &mut Schema, root: bool) {
    let Some(declared) = declare(schema, root) else {
        return;
    };
    let plain = Env::new()
        .variable("self", declared.kind.clone())
        .variable("oldSelf", declared.kind.clone());
    let optional = Env::new()
        .variable("self", declared.kind.clone())
        .optional_variable("oldSelf", declared.kind.clone());
    for rule in &mut schema.rules {
        compile_rule(rule, if rule.optional_old_self { &optional } else { &plain });
    }
}

fn compile_rule(rule: &mut Rule, env: &Env) {
    if rule.rule.trim().is_empty() {
        return;
    }
    match cobaltcore_cel::compile(&rule.rule, env) {
        Err(error) if error.is_instantiation() => {
            rule.error = Some(format!("program instantiation failed: {error}"));
        }
        Err(error) => rule.error = Some(format!("compilation failed: {error}")),
        Ok(program) if !program.result_is_bool() => {
            rule.error = Some("cel expression must evaluate to a bool".to_owned());
        }
        Ok(program) => rule.program = Some(program),
    }
    let Some(expression) = rule
        .message_expression
        .as_deref()
        .filter(|_| rule.program.is_some())
    else {
        return;
    };
    match cobaltcore_cel::compile(expression, env) {
        Err(error) => {
            let stage = if error.is_instantiation() {
                "instantiation"
            } else {
                "compilation"
            };
            rule.message_error = Some(format!("messageExpression {stage} failed: {error}"));
        }
        Ok(program) if !program.result_is_string() => {
            rule.message_error = Some("messageExpression must evaluate to a string".to_owned());
        }
        Ok(program) => rule.message_program = Some(program),
    }
}

impl Rule {
    /// Whether the rule compares with the old object.
    pub fn is_transition(&self) -> bool {
        self.program
            .as_ref()
            .is_some_and(|p: &Program| p.mentions("oldSelf"))
    }
}
