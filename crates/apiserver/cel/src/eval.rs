// SPDX-License-Identifier: Apache-2.0
//! The evaluator: walks the checked tree over the object's JSON, counts the cost of every step
//! and stops when the budget is gone. Errors are values until a logical operator absorbs them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cobaltcore_text::go;
use regex::Regex;

use crate::cost;
use crate::node::{Call, Entry, Item, Kind, Node, Select, SelectMode};
use crate::ops;
use crate::program::Program;
use crate::ty::Ty;
use crate::value::{List, Map, Value};

/// The comparisons and copies an expression may cause for every unit of its budget: the costs of
/// the reference do not see how deep an equality looks.
const WORK_PER_COST: u64 = 10;
/// The bytes of text that may be walked over for one unit of work.
pub(crate) const BYTES_PER_WORK: u64 = 32;
/// Patterns made while a rule runs that are kept.
const MAX_PATTERNS: usize = 32;

/// Why there is no value.
#[derive(Debug)]
pub(crate) enum Fail {
    Error(String),
    Budget,
}

impl Fail {
    pub(crate) fn error(message: impl Into<String>) -> Fail {
        Fail::Error(message.into())
    }
}

impl From<String> for Fail {
    fn from(message: String) -> Self {
        Fail::Error(message)
    }
}

/// The result of a step.
pub(crate) type R<T> = Result<T, Fail>;

/// The reference's words for values that an operator does not take.
pub(crate) fn no_overload() -> Fail {
    Fail::error("no such overload")
}

/// The same for a function, with the types it was given.
pub(crate) fn no_function(name: &str, args: &[Value<'_>]) -> Fail {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    Fail::Error(format!("no such overload: {name}({})", types.join(", ")))
}

/// What a slot holds.
#[derive(Debug, Clone)]
pub(crate) enum Slot<'a> {
    Unset,
    Value(Value<'a>),
    Bad(String),
    /// Not looked at yet.
    Computed(&'a Program),
}

/// One evaluation.
pub(crate) struct Machine<'a> {
    pub(crate) slots: Vec<Slot<'a>>,
    pub(crate) names: &'a [String],
    pub(crate) cost: u64,
    limit: u64,
    work: u64,
    max_work: u64,
    patterns: HashMap<String, Arc<Regex>>,
}

impl<'a> Machine<'a> {
    /// `limit` is what may be spent now, `full` the budget of an expression.
    pub(crate) fn new(slots: Vec<Slot<'a>>, names: &'a [String], limit: u64, full: u64) -> Self {
        Self {
            slots,
            names,
            cost: 0,
            limit,
            work: 0,
            max_work: full.saturating_mul(WORK_PER_COST),
            patterns: HashMap::new(),
        }
    }

    /// Counts cost.
    pub(crate) fn charge(&mut self, cost: u64) -> R<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(Fail::Budget)
        } else {
            Ok(())
        }
    }

    /// Counts work that has no cost of its own.
    pub(crate) fn work(&mut self, steps: u64) -> R<()> {
        self.work = self.work.saturating_add(steps);
        if self.work > self.max_work {
            Err(Fail::Budget)
        } else {
            Ok(())
        }
    }

    pub(crate) fn set(&mut self, slot: usize, value: Value<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Slot::Value(value);
        }
    }

    pub(crate) fn eval(&mut self, node: &'a Node) -> R<Value<'a>> {
        match &node.kind {
            Kind::Const(value) => Ok(value.clone()),
            Kind::Var(slot) => self.variable(*slot),
            Kind::Select(select) => self.select(select),
            Kind::Call(call) => self.call(call),
            Kind::And(two) => self.logic(two, false),
            Kind::Or(two) => self.logic(two, true),
            Kind::Cond(three) => self.conditional(three),
            Kind::List(items) => self.list(node, items),
            Kind::Map(entries) => self.map(node, entries),
            Kind::Loop(l) => self.run_loop(l),
        }
    }

    /// Evaluates to a boolean.
    pub(crate) fn truth(&mut self, node: &'a Node) -> R<bool> {
        match self.eval(node)? {
            Value::Bool(b) => Ok(b),
            _ => Err(no_overload()),
        }
    }

    #[inline(never)]
    fn variable(&mut self, slot: usize) -> R<Value<'a>> {
        self.charge(1)?;
        match self.slots.get(slot) {
            Some(Slot::Value(value)) => Ok(value.clone()),
            Some(Slot::Bad(message)) => Err(Fail::Error(message.clone())),
            Some(Slot::Computed(program)) => self.compute(slot, program),
            _ => {
                let name = self.names.get(slot).map_or("", String::as_str);
                Err(Fail::Error(format!("no such attribute(s): {name}")))
            }
        }
    }

    /// Evaluates the expression behind a variable and keeps what it gave.
    #[inline(never)]
    fn compute(&mut self, slot: usize, program: &'a Program) -> R<Value<'a>> {
        let inherited = |name: &String| {
            let at = self.names.iter().position(|own| own == name);
            at.and_then(|at| self.slots.get(at).cloned())
                .unwrap_or(Slot::Unset)
        };
        let mut slots: Vec<Slot<'a>> = program.names().iter().map(inherited).collect();
        slots.resize(program.slot_count(), Slot::Unset);
        let mut inner = Machine {
            slots,
            names: program.names(),
            cost: self.cost,
            limit: self.limit,
            work: self.work,
            max_work: self.max_work,
            patterns: HashMap::new(),
        };
        let result = inner.eval(program.root());
        (self.cost, self.work) = (inner.cost, inner.work);
        // What it needed itself is known now, too.
        for (name, found) in program.names().iter().zip(inner.slots) {
            let at = self.names.iter().position(|own| own == name);
            if let Some(place @ Slot::Computed(_)) = at.and_then(|at| self.slots.get_mut(at)) {
                *place = found;
            }
        }
        let kept = match &result {
            Ok(value) => Slot::Value(value.clone()),
            Err(Fail::Budget) => return Err(Fail::Budget),
            Err(Fail::Error(why)) => {
                let name = self.names.get(slot).map_or("", String::as_str);
                let name = name.rsplit('.').next().unwrap_or_default();
                Slot::Bad(format!(
                    "composited variable {} fails to evaluate: {why}",
                    go::quote(name)
                ))
            }
        };
        let failed = match &kept {
            Slot::Bad(message) => Some(message.clone()),
            _ => None,
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = kept;
        }
        match failed {
            Some(message) => Err(Fail::Error(message)),
            None => result,
        }
    }

    /// `&&` and `||`: the deciding value wins over an error on the other side.
    #[inline(never)]
    fn logic(&mut self, two: &'a [Node; 2], decides: bool) -> R<Value<'a>> {
        let [left, right] = two;
        let first = match self.truth(left) {
            Err(Fail::Budget) => return Err(Fail::Budget),
            Ok(b) if b == decides => return Ok(Value::Bool(decides)),
            other => other,
        };
        match self.truth(right) {
            Err(Fail::Budget) => Err(Fail::Budget),
            Ok(b) if b == decides => Ok(Value::Bool(decides)),
            second => first.and(second).map(Value::Bool),
        }
    }

    #[inline(never)]
    fn conditional(&mut self, three: &'a [Node; 3]) -> R<Value<'a>> {
        let [condition, yes, no] = three;
        let branch = if self.truth(condition)? { yes } else { no };
        let value = self.eval(branch)?;
        // The reference reads a plain path in a branch without charging for its variable.
        if branch.is_path() {
            self.cost = self.cost.saturating_sub(1);
        }
        Ok(value)
    }

    #[inline(never)]
    fn list(&mut self, node: &'a Node, items: &'a [Item]) -> R<Value<'a>> {
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let value = self.eval(&item.node)?;
            match (item.optional, value) {
                (false, value) => out.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(inner))) => out.push((*inner).clone()),
                (true, _) => return Err(no_overload()),
            }
        }
        if !node.is_const() {
            self.charge(cost::LIST)?;
        }
        self.work(out.len() as u64)?;
        Ok(Value::list(out))
    }

    #[inline(never)]
    fn map(&mut self, node: &'a Node, entries: &'a [Entry]) -> R<Value<'a>> {
        let mut out = BTreeMap::new();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let Some(k) = key.key().filter(|_| !matches!(key, Value::Double(_))) else {
                return Err(Fail::Error(format!("unsupported key type: {}", key.type_name())));
            };
            let value = match (entry.optional, self.eval(&entry.value)?) {
                (false, value) => value,
                (true, Value::Optional(None)) => continue,
                (true, Value::Optional(Some(inner))) => (*inner).clone(),
                (true, _) => return Err(no_overload()),
            };
            if out.insert(k, (key.clone(), value)).is_some() {
                return Err(Fail::Error(format!(
                    "Failed with repeated key: {}",
                    crate::render::plain(&key)
                )));
            }
        }
        if matches!(node.ty, Ty::Object(..)) {
            self.charge(cost::OBJECT)?;
        } else if !node.is_const() {
            self.charge(cost::MAP)?;
        }
        Ok(Value::Map(Map::Owned(Arc::new(out))))
    }

    #[inline(never)]
    fn select(&mut self, s: &'a Select) -> R<Value<'a>> {
        let operand = self.eval(&s.operand)?;
        if s.mode != SelectMode::Test {
            self.charge(if s.operand.is_path() { 1 } else { 2 })?;
        }
        let (inner, through_optional) = match &operand {
            Value::Optional(None) => {
                return Ok(if s.mode == SelectMode::Test {
                    Value::Bool(false)
                } else {
                    Value::none()
                });
            }
            Value::Optional(Some(inner)) => (&**inner, true),
            other => (other, false),
        };
        let found = match inner {
            Value::Map(map) => map.get_field(&s.field, s.json.as_deref()),
            Value::List(_) if s.mode != SelectMode::Test => {
                return Err(Fail::error("unsupported index type 'string' in list"));
            }
            _ => None,
        };
        match (s.mode, found) {
            (SelectMode::Test, None) => Ok(Value::Bool(false)),
            (SelectMode::Test, Some(value)) => value.map(|_| Value::Bool(true)).map_err(Fail::Error),
            (SelectMode::Optional, None) => Ok(Value::none()),
            (SelectMode::Optional, Some(value)) => Ok(Value::some(value?)),
            (SelectMode::Value, None) if through_optional => Ok(Value::none()),
            (SelectMode::Value, Some(value)) if through_optional => Ok(Value::some(value?)),
            (SelectMode::Value, Some(value)) => Ok(value?),
            (SelectMode::Value, None) => Err(Fail::Error(format!("no such key: {}", s.field))),
        }
    }

    #[inline(never)]
    fn call(&mut self, call: &'a Call) -> R<Value<'a>> {
        match call.args.as_slice() {
            [a] => {
                let a = self.argument(a)?;
                match call.name {
                    "!_" => {
                        self.charge(1)?;
                        match a {
                            Value::Bool(b) => Ok(Value::Bool(!b)),
                            _ => Err(no_overload()),
                        }
                    }
                    "-_" => {
                        self.charge(1)?;
                        ops::negate(&a)
                    }
                    _ => self.function(call, &[a]),
                }
            }
            [a, b] if call.name.starts_with('_') || call.name == "@in" => self.binary(call, a, b),
            [a, b] if matches!(call.name, "or" | "orValue") => self.alternative(call, a, b),
            args => {
                let args = args.iter().map(|a| self.eval(a)).collect::<R<Vec<_>>>()?;
                self.function(call, &args)
            }
        }
    }

    /// The argument of a unary call, which is charged even if the argument failed.
    fn argument(&mut self, node: &'a Node) -> R<Value<'a>> {
        let value = self.eval(node);
        if matches!(value, Err(Fail::Error(_))) {
            self.charge(1)?;
        }
        value
    }

    /// `or` and `orValue` look at the alternative only if it is needed, and cost nothing themselves.
    #[inline(never)]
    fn alternative(&mut self, call: &'a Call, optional: &'a Node, other: &'a Node) -> R<Value<'a>> {
        match self.eval(optional)? {
            Value::Optional(Some(inner)) if call.name == "orValue" => Ok((*inner).clone()),
            some @ Value::Optional(Some(_)) => Ok(some),
            Value::Optional(None) => self.eval(other),
            value => {
                let other = self.eval(other)?;
                Err(no_function(call.name, &[value, other]))
            }
        }
    }

    #[inline(never)]
    fn binary(&mut self, call: &'a Call, left: &'a Node, right: &'a Node) -> R<Value<'a>> {
        let (a, b) = match (self.eval(left), self.eval(right)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(Fail::Budget), _) | (_, Err(Fail::Budget)) => return Err(Fail::Budget),
            // Both sides are looked at and the operator is charged, even if one side failed.
            (Err(e), _) | (_, Err(e)) => {
                self.charge(1)?;
                return Err(e);
            }
        };
        // Sizes are counted in characters, so even finding the cost walks over the text.
        self.work((cost::bytes(&a) + cost::bytes(&b)) / BYTES_PER_WORK)?;
        self.charge(cost::operator(call.name, &a, &b, right))?;
        if call.name.starts_with("_[") && right.is_path() {
            // The reference reads an index that is a plain path without charging for its variable.
            self.cost = self.cost.saturating_sub(1);
        }
        let ordered = |wanted: fn(Ordering) -> bool| ops::compare(&a, &b).map(|o| Value::Bool(wanted(o)));
        match call.name {
            "_==_" => self.equal(&a, &b).map(Value::Bool),
            "_!=_" => self.equal(&a, &b).map(|e| Value::Bool(!e)),
            "_<_" => ordered(Ordering::is_lt),
            "_<=_" => ordered(Ordering::is_le),
            "_>_" => ordered(Ordering::is_gt),
            "_>=_" => ordered(Ordering::is_ge),
            "_+_" => {
                if let (Value::List(x), Value::List(y)) = (&a, &b) {
                    return self.concat(x, y);
                }
                ops::add(&a, &b)
            }
            "_-_" => ops::subtract(&a, &b),
            "_*_" => ops::multiply(&a, &b),
            "_/_" => ops::divide(&a, &b),
            "_%_" => ops::modulo(&a, &b),
            "@in" => self.is_in(&a, &b),
            "_[_]" => Self::index(&a, &b, false),
            "_[?_]" => Self::index(&a, &b, true),
            other => Err(no_function(other, &[a, b])),
        }
    }

    fn is_in(&mut self, needle: &Value<'a>, hay: &Value<'a>) -> R<Value<'a>> {
        match hay {
            Value::List(list) => {
                for item in list.iter() {
                    if self.equal(&item?, needle)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Value::Map(map) => {
                if matches!(map, Map::Json { .. }) && !matches!(needle, Value::Str(_)) {
                    return Err(no_overload());
                }
                Ok(Value::Bool(map.get(needle).is_some()))
            }
            _ => Err(no_overload()),
        }
    }

    /// `a[b]`, or `a[?b]`, which gives an optional.
    fn index(of: &Value<'a>, index: &Value<'a>, optional: bool) -> R<Value<'a>> {
        let (inner, through_optional) = match of {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => (&**inner, true),
            other => (other, false),
        };
        let found = match inner {
            Value::List(list) => Self::list_index(list, index)?,
            Value::Map(map) => {
                if matches!(map, Map::Json { .. }) && !matches!(index, Value::Str(_)) {
                    return Err(no_overload());
                }
                map.get(index)
            }
            _ if optional => None,
            _ => {
                return Err(Fail::Error(format!(
                    "no such key: {}",
                    crate::render::plain(index)
                )));
            }
        };
        match found {
            Some(value) if optional || through_optional => Ok(Value::some(value?)),
            Some(value) => Ok(value?),
            None if optional || through_optional => Ok(Value::none()),
            None => {
                let what = if matches!(inner, Value::List(_)) {
                    "index out of bounds"
                } else {
                    "no such key"
                };
                Err(Fail::Error(format!("{what}: {}", crate::render::plain(index))))
            }
        }
    }

    fn list_index(list: &List<'a>, index: &Value<'a>) -> R<Option<Result<Value<'a>, String>>> {
        let at = match index {
            Value::Int(i) => usize::try_from(*i).ok(),
            Value::Uint(u) => usize::try_from(*u).ok(),
            Value::Double(d) if d.trunc() == *d && *d >= 0.0 => Some(*d as usize),
            Value::Double(_) => {
                return Err(Fail::Error(format!(
                    "unsupported index value {} in list",
                    crate::render::plain(index)
                )));
            }
            other => {
                return Err(Fail::Error(format!(
                    "unsupported index type '{}' in list",
                    other.type_name()
                )));
            }
        };
        Ok(at.and_then(|i| list.get(i)))
    }

    /// A pattern: compiled with the rule if it is a literal, else kept for this evaluation.
    pub(crate) fn pattern(&mut self, call: &'a Call, text: &str) -> R<Pattern<'a>> {
        if let Some(regex) = &call.regex {
            return Ok(Pattern::Literal(regex));
        }
        if let Some(regex) = self.patterns.get(text) {
            return Ok(Pattern::Made(regex.clone()));
        }
        self.work(text.len() as u64 * 64)?;
        let regex = Arc::new(crate::pattern::compile(text).map_err(Fail::Error)?);
        if self.patterns.len() >= MAX_PATTERNS {
            self.patterns.clear();
        }
        self.patterns.insert(text.to_owned(), regex.clone());
        Ok(Pattern::Made(regex))
    }
}

/// A compiled pattern. It is never cloned: a clone starts without the scratch memory that makes
/// searches fast.
pub(crate) enum Pattern<'a> {
    Literal(&'a Regex),
    Made(Arc<Regex>),
}

impl std::ops::Deref for Pattern<'_> {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        match self {
            Pattern::Literal(regex) => regex,
            Pattern::Made(regex) => regex,
        }
    }
}
