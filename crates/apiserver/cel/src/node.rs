// SPDX-License-Identifier: Apache-2.0
//! The checked expression: names are resolved to slots, functions to their table entry, macros
//! to loops. The evaluator and the cost estimate both walk this tree; its depth is bounded.

use regex::Regex;

use crate::functions::Overload;
use crate::ty::Ty;
use crate::value::Value;

/// The deepest tree that is accepted.
pub(crate) const MAX_DEPTH: usize = 250;

/// A node of the tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) ty: Ty,
    /// Where it stands in the source, in characters.
    pub(crate) at: usize,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Kind {
    Const(Value<'static>),
    Var(usize),
    Select(Box<Select>),
    Call(Call),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Cond(Box<[Node; 3]>),
    List(Vec<Item>),
    Map(Vec<Entry>),
    Loop(Box<Loop>),
}

/// A field access.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Node,
    /// The name as written.
    pub(crate) field: String,
    /// The name in JSON, where the operand is a declared object.
    pub(crate) json: Option<String>,
    pub(crate) mode: SelectMode,
}

/// What is wanted of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectMode {
    /// Its value.
    Value,
    /// Whether it is there: `has(a.b)`.
    Test,
    /// An optional: `a.?b`.
    Optional,
}

/// A call; the receiver, if any, is the first argument.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<Node>,
    /// The overloads that fit.
    pub(crate) overloads: Vec<&'static Overload>,
    /// The compiled pattern, where it is a literal.
    pub(crate) regex: Option<Regex>,
}

/// An element of a list literal.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) node: Node,
    pub(crate) optional: bool,
}

/// An entry of a map literal.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// A loop, or one of the macros that bind a variable.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) range: Node,
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

/// The macros that bind a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
}

impl Node {
    /// Whether this is a variable or a path of fields from one.
    pub(crate) fn is_path(&self) -> bool {
        match &self.kind {
            Kind::Var(_) => true,
            Kind::Select(s) => s.mode == SelectMode::Value,
            Kind::Call(c) => matches!(c.name, "_[_]" | "_[?_]"),
            _ => false,
        }
    }

    /// Whether this is a literal, a list or map of literals, or the conversion of a literal.
    pub(crate) fn is_const(&self) -> bool {
        match &self.kind {
            Kind::Const(_) => true,
            Kind::List(items) => items.iter().all(|i| !i.optional && i.node.is_const()),
            Kind::Map(entries) => entries
                .iter()
                .all(|e| !e.optional && e.key.is_const() && e.value.is_const()),
            Kind::Call(call) => call.is_conversion() && call.args.iter().all(Node::is_const),
            _ => false,
        }
    }
}

impl Call {
    /// Whether this converts a value to another type.
    pub(crate) fn is_conversion(&self) -> bool {
        matches!(
            self.name,
            "bool"
                | "bytes"
                | "double"
                | "duration"
                | "dyn"
                | "int"
                | "string"
                | "timestamp"
                | "type"
                | "uint"
        )
    }
}
