// SPDX-License-Identifier: Apache-2.0
//! The static check: every name, field and call of an expression must fit the declared types.
//! It promises the errors of the reference, word for word and at the same place, and turns the
//! syntax tree into the tree that the evaluator walks.

use std::collections::BTreeSet;
use std::sync::Arc;

use cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, SourceInfo, operators,
};

use crate::decl::Env;
use crate::error::{CompileError, Issue};
use crate::escape::spells;
use crate::functions::{self, Function, Overload};
use crate::node::{Call, Entry, Item, Kind, MAX_DEPTH, Node, Select, SelectMode};
use crate::ty::{Bindings, Ty, most_general};
use crate::value::Value;

/// The result of a check.
pub(crate) struct Checked {
    pub(crate) root: Node,
    pub(crate) slots: usize,
    pub(crate) mentioned: BTreeSet<String>,
}

/// A variable bound by a macro.
struct Local {
    name: String,
    slot: usize,
    ty: Ty,
}

pub(crate) struct Checker<'e> {
    pub(crate) env: &'e Env,
    info: &'e SourceInfo,
    ascii: bool,
    pub(crate) bindings: Bindings,
    locals: Vec<Local>,
    slots: usize,
    depth: usize,
    too_deep: bool,
    mentioned: BTreeSet<String>,
    /// Errors that the reference finds while parsing; they hide all others.
    syntax: Vec<Issue>,
    issues: Vec<Issue>,
}

/// Checks a parsed expression.
pub(crate) fn check(parsed: &IdedExpr, info: &SourceInfo, env: &Env) -> Result<Checked, CompileError> {
    let mut checker = Checker {
        env,
        info,
        ascii: info.source.is_ascii(),
        bindings: Bindings::default(),
        locals: Vec::new(),
        slots: env.variables().len(),
        depth: 0,
        too_deep: false,
        mentioned: BTreeSet::new(),
        syntax: Vec::new(),
        issues: Vec::new(),
    };
    let mut root = checker.check(parsed);
    if checker.too_deep {
        return Err(CompileError::too_deep());
    }
    let (syntax, mut issues) = (
        std::mem::take(&mut checker.syntax),
        std::mem::take(&mut checker.issues),
    );
    if !syntax.is_empty() {
        return Err(CompileError::new(&info.source, syntax));
    }
    if issues.is_empty() {
        checker.settle(&mut root);
        let unplannable = crate::validate::validate(&mut root, &mut issues);
        if let Some(reason) = unplannable.filter(|_| issues.is_empty()) {
            return Err(CompileError::unplannable(reason));
        }
    }
    if !issues.is_empty() {
        return Err(CompileError::new(&info.source, issues));
    }
    Ok(Checked {
        root,
        slots: checker.slots,
        mentioned: checker.mentioned,
    })
}

impl Checker<'_> {
    /// Where a node stands, in characters; the parser counts bytes.
    pub(crate) fn at(&self, id: u64) -> usize {
        let byte = self.info.offset_for(id).map_or(0, |(start, _)| start as usize);
        if self.ascii {
            return byte;
        }
        self.info
            .source
            .char_indices()
            .take_while(|(i, _)| *i < byte)
            .count()
    }

    pub(crate) fn report(&mut self, at: usize, message: String) {
        self.issues.push(Issue { at, message });
    }

    pub(crate) fn report_syntax(&mut self, at: usize, message: &str) {
        self.syntax.push(Issue {
            at,
            message: message.to_owned(),
        });
    }

    pub(crate) fn failed(at: usize) -> Node {
        Node {
            kind: Kind::Const(Value::Null),
            ty: Ty::Error,
            at,
        }
    }

    pub(crate) fn check(&mut self, e: &IdedExpr) -> Node {
        let at = self.at(e.id);
        if self.depth >= MAX_DEPTH {
            self.too_deep = true;
            return Self::failed(at);
        }
        self.depth += 1;
        let node = match &e.expr {
            Expr::Literal(literal) => self.literal(literal, at),
            Expr::Ident(name) => self.ident(name, at),
            Expr::Select(_) => self.select(e, at),
            Expr::Call(call) => self.call(call, at),
            Expr::List(list) => self.list(list, at),
            Expr::Map(map) => self.map(&map.entries, at),
            Expr::Struct(s) => self.object(s, at),
            Expr::Comprehension(_) | Expr::Unspecified => {
                self.report_syntax(at, "unsupported expression");
                Self::failed(at)
            }
        };
        self.depth -= 1;
        node
    }

    fn literal(&self, literal: &LiteralValue, at: usize) -> Node {
        let (value, ty) = match literal {
            LiteralValue::Boolean(b) => (Value::Bool(*b.inner()), Ty::Bool),
            LiteralValue::Bytes(b) => (Value::Bytes(Arc::from(b.inner())), Ty::Bytes),
            LiteralValue::Double(d) => (Value::Double(*d.inner()), Ty::Double),
            LiteralValue::Int(i) => (Value::Int(*i.inner()), Ty::Int),
            LiteralValue::Null => (Value::Null, Ty::Null),
            LiteralValue::String(s) => (Value::owned(s.inner().to_string()), Ty::String),
            LiteralValue::UInt(u) => (Value::Uint(*u.inner()), Ty::Uint),
        };
        // The parser places a negative number at its first digit, the reference at its sign.
        let negative =
            matches!(value, Value::Int(i) if i < 0) || matches!(value, Value::Double(d) if d < 0.0);
        let signed = negative && at > 0 && self.info.source.chars().nth(at - 1) == Some('-');
        Node {
            kind: Kind::Const(value),
            ty,
            at: if signed { at - 1 } else { at },
        }
    }

    fn ident(&mut self, name: &str, at: usize) -> Node {
        let global = name.strip_prefix('.');
        if global.is_none()
            && let Some(local) = self.locals.iter().rev().find(|l| l.name == name)
        {
            return Node {
                kind: Kind::Var(local.slot),
                ty: local.ty.clone(),
                at,
            };
        }
        if let Some(node) = self.global(global.unwrap_or(name), at) {
            return node;
        }
        self.report(at, undeclared(name));
        Self::failed(at)
    }

    /// A variable of the environment, or the name of a type.
    fn global(&mut self, name: &str, at: usize) -> Option<Node> {
        if let Some((slot, variable)) = self.env.find(name) {
            self.mentioned.insert(name.to_owned());
            let ty = match &variable.computed {
                Some(program) => program.ty().clone(),
                None => Ty::of(&variable.ty),
            };
            let ty = if variable.optional { Ty::optional(ty) } else { ty };
            return Some(Node {
                kind: Kind::Var(slot),
                ty,
                at,
            });
        }
        let ty = type_name(name)?;
        Some(Node {
            kind: Kind::Const(Value::Type(Arc::from(name))),
            ty: Ty::type_of(ty),
            at,
        })
    }

    /// The dotted name an expression spells, if it does.
    fn qualified(e: &IdedExpr) -> Option<String> {
        match &e.expr {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select(s) if !s.test => Some(format!("{}.{}", Self::qualified(&s.operand)?, s.field)),
            _ => None,
        }
    }

    fn is_local(&self, qualified: &str) -> bool {
        let root = qualified.split('.').next().unwrap_or_default();
        self.locals.iter().any(|l| l.name == root)
    }

    fn select(&mut self, e: &IdedExpr, at: usize) -> Node {
        let Expr::Select(select) = &e.expr else {
            return Self::failed(at);
        };
        if let Some(name) = Self::qualified(e)
            && !self.is_local(&name)
            && let Some(node) = self.global(name.trim_start_matches('.'), at)
        {
            return node;
        }
        self.field(&select.operand, &select.field, SelectMode::Value, at)
    }

    /// `a.b`, `a.?b` or `has(a.b)`.
    pub(crate) fn field(&mut self, operand: &IdedExpr, field: &str, mode: SelectMode, at: usize) -> Node {
        let operand = self.check(operand);
        let operand_ty = self.bindings.resolve(&operand.ty, false);
        let optional = operand_ty.unwrap_optional().cloned();
        let target = optional.as_ref().unwrap_or(&operand_ty);
        let mut json = None;
        let result = match target {
            Ty::Map(_, value) => (**value).clone(),
            Ty::Object(_, fields) => {
                if let Some((name, decl)) = fields.iter().find(|(n, _)| spells(field, n)) {
                    json = Some(name.clone());
                    Ty::of(decl)
                } else {
                    self.report(at, format!("undefined field '{field}'"));
                    Ty::Error
                }
            }
            Ty::Var(_) => {
                self.bindings.assign(&Ty::Dyn, target);
                Ty::Dyn
            }
            Ty::Dyn | Ty::Error => Ty::Dyn,
            Ty::Opaque(name, _) if name.starts_with("kubernetes.") => {
                self.report(at, format!("undefined field '{field}'"));
                Ty::Error
            }
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.report(at, message);
                Ty::Dyn
            }
        };
        let result = if optional.is_some() || mode == SelectMode::Optional {
            Ty::optional(result)
        } else {
            result
        };
        let result = if mode == SelectMode::Test {
            Ty::Bool
        } else {
            result
        };
        let ty = self.bindings.resolve(&result, false);
        Node {
            kind: Kind::Select(Box::new(Select {
                operand,
                field: field.to_owned(),
                json,
                mode,
            })),
            ty,
            at,
        }
    }

    fn call(&mut self, call: &CallExpr, at: usize) -> Node {
        if let Some(node) = self.expand(call, at) {
            return node;
        }
        if call.func_name == operators::OPT_SELECT {
            return self.opt_select(call, at);
        }
        let args: Vec<Node> = call.args.iter().map(|a| self.check(a)).collect();
        let Some(target) = &call.target else {
            let Some(function) = functions::lookup(&call.func_name) else {
                self.report(at, undeclared(&call.func_name));
                return Self::failed(at);
            };
            return self.resolve(function, false, args, at);
        };
        if let Some(prefix) = Self::qualified(target)
            && let Some(function) = functions::lookup(&format!("{prefix}.{}", call.func_name))
            && (self.env.makes_objects() || !crate::objects::only_there(function.name))
        {
            return self.resolve(function, false, args, at);
        }
        let mut all = vec![self.check(target)];
        all.extend(args);
        let Some(function) = functions::lookup(&call.func_name) else {
            self.report(at, undeclared(&call.func_name));
            return Self::failed(at);
        };
        self.resolve(function, true, all, at)
    }

    fn opt_select(&mut self, call: &CallExpr, at: usize) -> Node {
        let field = match call.args.get(1).map(|a| &a.expr) {
            Some(Expr::Literal(LiteralValue::String(s))) => s.inner().to_string(),
            _ => String::new(),
        };
        let Some(operand) = call.args.first() else {
            return Self::failed(at);
        };
        self.field(operand, &field, SelectMode::Optional, at)
    }

    /// Finds the overloads that fit and makes the call.
    pub(crate) fn resolve(
        &mut self,
        function: &'static Function,
        member: bool,
        args: Vec<Node>,
        at: usize,
    ) -> Node {
        if function.name == operators::LOGICAL_AND || function.name == operators::LOGICAL_OR {
            return self.logic(function.name, args, at);
        }
        let types: Vec<Ty> = args.iter().map(|a| a.ty.clone()).collect();
        let Some((ty, overloads)) = self.overload(function, member, &types, at) else {
            return Self::failed(at);
        };
        let call = |args: Vec<Node>| {
            Kind::Call(Call {
                name: function.name,
                args,
                overloads,
                regex: None,
            })
        };
        let kind = match <[Node; 3]>::try_from(args) {
            Ok(three) if function.name == operators::CONDITIONAL => Kind::Cond(Box::new(three)),
            Ok(three) => call(Vec::from(three)),
            Err(args) => call(args),
        };
        Node { kind, ty, at }
    }

    /// The result type of a call and the overloads that fit, or `None` after reporting that none does.
    pub(crate) fn overload(
        &mut self,
        function: &'static Function,
        member: bool,
        types: &[Ty],
        at: usize,
    ) -> Option<(Ty, Vec<&'static Overload>)> {
        let mut result: Option<Ty> = None;
        let mut fitting = Vec::new();
        for overload in function.overloads.iter().filter(|o| o.member == member) {
            let params: Vec<(char, Ty)> = overload
                .params
                .iter()
                .map(|p| (*p, self.bindings.fresh()))
                .collect();
            let wanted: Vec<Ty> = overload.args.iter().map(|a| a.instantiate(&params)).collect();
            if !self.bindings.assign_all(types, &wanted) {
                continue;
            }
            fitting.push(overload);
            let given = self
                .bindings
                .resolve(&overload.result.instantiate(&params), false);
            result = Some(match result {
                None => given,
                Some(r) if !r.is_dyn() && !given.same(&r) => Ty::Dyn,
                Some(r) => r,
            });
        }
        if result.is_none() {
            let message = no_overload(function.name, member, types, &self.bindings);
            self.report(at, message);
        }
        result.map(|r| (r, fitting))
    }

    fn logic(&mut self, name: &str, args: Vec<Node>, at: usize) -> Node {
        let mut fits = true;
        for arg in &args {
            fits &= self.expect_bool(arg);
        }
        match <[Node; 2]>::try_from(args) {
            Ok(two) if fits => {
                let two = Box::new(two);
                let kind = if name == operators::LOGICAL_AND {
                    Kind::And(two)
                } else {
                    Kind::Or(two)
                };
                Node {
                    kind,
                    ty: Ty::Bool,
                    at,
                }
            }
            _ => Self::failed(at),
        }
    }

    /// Reports a node that cannot be a boolean.
    pub(crate) fn expect_bool(&mut self, node: &Node) -> bool {
        let fits = self.bindings.assign(&node.ty, &Ty::Bool);
        if !fits {
            let found = self.bindings.resolve(&node.ty, false);
            self.report(node.at, format!("expected type 'bool' but found '{found}'"));
        }
        fits
    }

    fn list(&mut self, list: &ListExpr, at: usize) -> Node {
        let mut joined = None;
        let mut items = Vec::with_capacity(list.elements.len());
        for (i, element) in list.elements.iter().enumerate() {
            let node = self.check(element);
            let optional = list.optional_indices.contains(&i);
            let ty = self.maybe_optional(&node, optional);
            joined = Some(self.join(joined, &ty));
            items.push(Item { node, optional });
        }
        let element = joined.unwrap_or_else(|| self.bindings.fresh());
        Node {
            kind: Kind::List(items),
            ty: Ty::list(element),
            at,
        }
    }

    /// The type an optional element contributes.
    pub(crate) fn maybe_optional(&mut self, node: &Node, optional: bool) -> Ty {
        if !optional {
            return node.ty.clone();
        }
        if let Some(inner) = node.ty.unwrap_optional() {
            return inner.clone();
        }
        if !node.ty.is_dyn() {
            self.report(node.at, mismatch(&Ty::optional(node.ty.clone()), &node.ty));
        }
        node.ty.clone()
    }

    fn join(&mut self, previous: Option<Ty>, current: &Ty) -> Ty {
        let Some(previous) = previous else {
            return current.clone();
        };
        if self.bindings.assign(&previous, current) {
            return most_general(&previous, current);
        }
        // Mixed literals are refused afterwards, except as arguments of `format`.
        Ty::Dyn
    }

    fn map(&mut self, source: &[IdedEntryExpr], at: usize) -> Node {
        let (mut key_ty, mut value_ty) = (None, None);
        let mut entries = Vec::with_capacity(source.len());
        for entry in source {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let key = self.check(&entry.key);
            key_ty = Some(self.join(key_ty, &key.ty));
            let value = self.check(&entry.value);
            let ty = self.maybe_optional(&value, entry.optional);
            value_ty = Some(self.join(value_ty, &ty));
            entries.push(Entry {
                key,
                value,
                optional: entry.optional,
            });
        }
        let key = key_ty.unwrap_or_else(|| self.bindings.fresh());
        let value = value_ty.unwrap_or_else(|| self.bindings.fresh());
        Node {
            kind: Kind::Map(entries),
            ty: Ty::map(key, value),
            at,
        }
    }

    /// Runs `inside` with a variable bound.
    pub(crate) fn with_locals<R>(
        &mut self,
        names: Vec<(String, Ty)>,
        inside: impl FnOnce(&mut Self, &[usize]) -> R,
    ) -> R {
        let before = self.locals.len();
        let mut slots = Vec::with_capacity(names.len());
        for (name, ty) in names {
            slots.push(self.slots);
            self.locals.push(Local {
                name,
                slot: self.slots,
                ty,
            });
            self.slots += 1;
        }
        let result = inside(self, &slots);
        self.locals.truncate(before);
        result
    }

    /// Replaces type variables by what they turned out to be.
    fn settle(&self, node: &mut Node) {
        node.ty = self.bindings.resolve(&node.ty, true);
        match &mut node.kind {
            Kind::Const(_) | Kind::Var(_) => {}
            Kind::Select(s) => self.settle(&mut s.operand),
            Kind::Call(c) => c.args.iter_mut().for_each(|a| self.settle(a)),
            Kind::And(two) | Kind::Or(two) => two.iter_mut().for_each(|a| self.settle(a)),
            Kind::Cond(three) => three.iter_mut().for_each(|a| self.settle(a)),
            Kind::List(items) => items.iter_mut().for_each(|i| self.settle(&mut i.node)),
            Kind::Map(entries) => entries.iter_mut().for_each(|e| {
                self.settle(&mut e.key);
                self.settle(&mut e.value);
            }),
            Kind::Loop(l) => {
                self.settle(&mut l.range);
                l.filter.iter_mut().for_each(|f| self.settle(f));
                self.settle(&mut l.body);
            }
        }
    }
}

/// The reference's words for an unknown name.
pub(crate) fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// The reference's words for a type that does not fit.
pub(crate) fn mismatch(expected: &Ty, found: &Ty) -> String {
    format!("expected type '{expected}' but found '{found}'")
}

fn no_overload(name: &str, member: bool, types: &[Ty], bindings: &Bindings) -> String {
    let shown: Vec<String> = types
        .iter()
        .map(|t| bindings.resolve(t, true).to_string())
        .collect();
    let signature = match shown.split_first() {
        Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
        _ => format!("({})", shown.join(", ")),
    };
    format!("found no matching overload for '{name}' applied to '{signature}'")
}

/// The type that a name stands for.
fn type_name(name: &str) -> Option<Ty> {
    Some(match name {
        "bool" => Ty::Bool,
        "bytes" => Ty::Bytes,
        "double" => Ty::Double,
        "int" => Ty::Int,
        "uint" => Ty::Uint,
        "string" => Ty::String,
        "null_type" => Ty::Null,
        "list" => Ty::list(Ty::Dyn),
        "map" => Ty::map(Ty::Dyn, Ty::Dyn),
        "type" => Ty::Type(None),
        "google.protobuf.Timestamp" => Ty::Timestamp,
        "google.protobuf.Duration" => Ty::Duration,
        "optional_type" => Ty::optional(Ty::Dyn),
        other => Ty::Opaque(functions::opaque(other)?, Vec::new()),
    })
}
