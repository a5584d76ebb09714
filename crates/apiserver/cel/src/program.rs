// SPDX-License-Identifier: Apache-2.0
//! A compiled expression: what is known about it before it runs, and how it is run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::authorizer::{Authority, Inquiry, Question};
use crate::budget::Budget;
use crate::decl::{DeclType, Env};
use crate::error::{CompileError, EvalError};
use crate::eval::{Fail, Machine, Slot};
use crate::node::{Kind, Node};
use crate::objects;
use crate::parse;
use crate::render;
use crate::ty::Ty;
use crate::value::{Opaque, Value};

/// A value handed to an evaluation.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A JSON value of the declared type.
    Json(&'a serde_json::Value),
    /// An optional value.
    Optional(Option<&'a serde_json::Value>),
    /// Somebody to ask about rights.
    Authorizer(&'a Arc<dyn Authority>),
    /// The same with the beginning of a question.
    ResourceCheck(&'a Arc<dyn Authority>, &'a Question),
    /// No value; using the variable is an error.
    Absent,
}

/// What an expression gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A boolean.
    Bool(bool),
    /// A string.
    String(String),
    /// Anything else, rendered.
    Other(String),
}

/// A compiled expression; cheap to clone.
#[derive(Debug, Clone)]
pub struct Program(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    root: Node,
    names: Vec<String>,
    types: Vec<Arc<DeclType>>,
    optional: Vec<bool>,
    computed: Vec<Option<Program>>,
    slots: usize,
    mentioned: BTreeSet<String>,
    estimate: u64,
}

/// Compiles an expression against the variables of an environment.
pub fn compile(source: &str, env: &Env) -> Result<Program, CompileError> {
    let checked = parse::parse_and_check(source, env)?;
    let estimate = crate::estimate::worst_case(&checked.root, env);
    let variables = env.variables();
    Ok(Program(Arc::new(Compiled {
        root: checked.root,
        names: variables.iter().map(|v| v.name.clone()).collect(),
        types: variables.iter().map(|v| v.ty.clone()).collect(),
        optional: variables.iter().map(|v| v.optional).collect(),
        computed: variables.iter().map(|v| v.computed.clone()).collect(),
        slots: checked.slots,
        mentioned: checked.mentioned,
        estimate,
    })))
}

impl Program {
    /// Whether the result is a boolean for certain.
    pub fn result_is_bool(&self) -> bool {
        matches!(self.0.root.ty, Ty::Bool)
    }

    /// Whether the result is a string for certain.
    pub fn result_is_string(&self) -> bool {
        matches!(self.0.root.ty, Ty::String)
    }

    /// The type of the result, as messages show it.
    pub fn result_type(&self) -> String {
        self.0.root.ty.to_string()
    }

    pub(crate) fn ty(&self) -> &Ty {
        &self.0.root.ty
    }

    pub(crate) fn root(&self) -> &Node {
        &self.0.root
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Slots an evaluation needs, those of loops included.
    pub(crate) fn slot_count(&self) -> usize {
        self.0.slots
    }

    /// Whether the expression mentions a variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.0.mentioned.contains(variable)
    }

    /// Whether the expression is exactly `self == oldSelf`, in either order.
    pub fn is_immutability_check(&self) -> bool {
        let Kind::Call(call) = &self.0.root.kind else {
            return false;
        };
        let [
            Node {
                kind: Kind::Var(a), ..
            },
            Node {
                kind: Kind::Var(b), ..
            },
        ] = call.args.as_slice()
        else {
            return false;
        };
        let name = |slot: &usize| self.0.names.get(*slot).map(String::as_str);
        call.name == "_==_"
            && matches!(
                (name(a), name(b)),
                (Some("self"), Some("oldSelf")) | (Some("oldSelf"), Some("self"))
            )
    }

    /// The worst-case cost of one evaluation.
    pub fn estimated_cost(&self) -> u64 {
        self.0.estimate
    }

    /// Whether the result can be an object made by the expression.
    pub fn result_is_object(&self) -> bool {
        match &self.0.root.ty {
            Ty::Object(name, _) => &**name == objects::ROOT,
            other => other.is_dyn(),
        }
    }

    /// Whether the result can be a list of patch operations made by the expression.
    pub fn result_is_patch(&self) -> bool {
        match &self.0.root.ty {
            Ty::List(element) => match &**element {
                Ty::Object(name, _) => &**name == objects::OPERATION,
                _ => false,
            },
            other => other.is_dyn(),
        }
    }

    /// Evaluates the expression.
    pub fn evaluate(
        &self,
        bindings: &[(&str, Input<'_>)],
        budget: &mut Budget,
    ) -> Result<Outcome, EvalError> {
        Ok(match self.run(bindings, budget)? {
            Value::Bool(b) => Outcome::Bool(b),
            Value::Str(s) => Outcome::String(s.as_str().to_owned()),
            other => Outcome::Other(render::plain(&other)),
        })
    }

    /// Evaluates the expression to what it is in JSON.
    pub fn evaluate_json(
        &self,
        bindings: &[(&str, Input<'_>)],
        budget: &mut Budget,
    ) -> Result<serde_json::Value, EvalError> {
        let value = self.run(bindings, budget)?;
        objects::to_json(&value).map_err(EvalError::Failed)
    }

    fn run<'a>(
        &'a self,
        bindings: &[(&str, Input<'a>)],
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        let slots = self.slots(bindings);
        let limit = budget.per_expression().min(budget.remaining());
        let mut machine = Machine::new(slots, &self.0.names, limit, budget.per_expression());
        let result = machine.eval(&self.0.root);
        let spent = machine.cost;
        let object_exhausted = budget.remaining() < budget.per_expression();
        let enough = budget.spend(spent);
        budget.evaluated(!enough || matches!(result, Err(Fail::Budget)));
        match result {
            Err(Fail::Budget) => Err(EvalError::BudgetExceeded {
                object: object_exhausted,
            }),
            _ if !enough => Err(EvalError::BudgetExceeded { object: true }),
            Err(Fail::Error(message)) => Err(EvalError::Failed(message)),
            Ok(value) => Ok(value),
        }
    }

    /// The variables and room for the loops.
    fn slots<'a>(&'a self, bindings: &[(&str, Input<'a>)]) -> Vec<Slot<'a>> {
        let mut slots = Vec::with_capacity(self.0.slots);
        let declared = self.0.names.iter().zip(&self.0.types).zip(&self.0.optional);
        for (((name, ty), optional), computed) in declared.zip(&self.0.computed) {
            if let Some(program) = computed {
                slots.push(Slot::Computed(program));
                continue;
            }
            let input = bindings
                .iter()
                .find(|(n, _)| n == name)
                .map_or(Input::Absent, |(_, i)| *i);
            slots.push(slot(input, ty, *optional));
        }
        slots.resize(self.0.slots, Slot::Unset);
        slots
    }
}

fn slot<'a>(input: Input<'a>, ty: &'a DeclType, optional: bool) -> Slot<'a> {
    let inquiry = |authority: &Arc<dyn Authority>, question: Question| Inquiry {
        authority: Arc::clone(authority),
        question,
    };
    let json = match input {
        Input::Authorizer(authority) => {
            let asked = inquiry(authority, Question::default());
            return Slot::Value(Value::opaque(Opaque::Authorizer(asked)));
        }
        Input::ResourceCheck(authority, question) => {
            let asked = inquiry(authority, question.clone());
            return Slot::Value(Value::opaque(Opaque::ResourceCheck(asked)));
        }
        Input::Absent => return Slot::Unset,
        Input::Optional(None) => return Slot::Value(Value::none()),
        Input::Json(json) | Input::Optional(Some(json)) => json,
    };
    match Value::from_json(json, ty) {
        Ok(value) if optional || matches!(input, Input::Optional(_)) => Slot::Value(Value::some(value)),
        Ok(value) => Slot::Value(value),
        Err(message) => Slot::Bad(message),
    }
}
