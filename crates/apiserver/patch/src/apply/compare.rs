// SPDX-License-Identifier: Apache-2.0
//! What one version of an object adds, changes and removes against another, as sets of paths.
//! Costs nothing where the two agree: sets are only allocated for differences.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::path::{PathElement, same};
use super::set::{FieldSet, Filter};
use super::types::{Shape, Ty};

/// The three kinds of difference.
#[derive(Debug, Default, Clone)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    pub(crate) fn filtered(self, filter: &Filter) -> Self {
        Self {
            removed: filter.keep(self.removed),
            modified: filter.keep(self.modified),
            added: filter.keep(self.added),
        }
    }

    fn put(&mut self, element: PathElement, node: NodeDiff) {
        let NodeDiff { marks, below } = node;
        let removed = marks.removed || !below.removed.is_empty();
        let modified = marks.modified || !below.modified.is_empty();
        let added = marks.added || !below.added.is_empty();
        // The usual node differs in one way: the element is handed over instead of copied.
        match (removed, modified, added) {
            (false, false, true) => self.added.put(element, marks.added, below.added),
            (false, true, false) => self.modified.put(element, marks.modified, below.modified),
            (true, false, false) => self.removed.put(element, marks.removed, below.removed),
            _ => {
                self.removed.put(element.clone(), marks.removed, below.removed);
                self.modified.put(element.clone(), marks.modified, below.modified);
                self.added.put(element, marks.added, below.added);
            }
        }
    }
}

#[derive(Default)]
struct Marks {
    removed: bool,
    modified: bool,
    added: bool,
}

#[derive(Default)]
struct NodeDiff {
    marks: Marks,
    below: Comparison,
}

impl NodeDiff {
    fn is_same(&self) -> bool {
        !self.marks.removed && !self.marks.modified && !self.marks.added && self.below.is_empty()
    }
}

/// Compares two objects. The error names a list element that cannot be identified.
pub(crate) fn compare(old: &Value, new: &Value, ty: Ty<'_>) -> Result<Comparison, String> {
    let mut diff = NodeDiff::default();
    node(Some(old), Some(new), ty, &mut diff)?;
    Ok(diff.below)
}

fn node(old: Option<&Value>, new: Option<&Value>, ty: Ty<'_>, diff: &mut NodeDiff) -> Result<(), String> {
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (None, Some(new)) => {
            diff.marks.added = true;
            diff.below.added = whole(new, ty)?;
            return Ok(());
        }
        (Some(old), None) => {
            diff.marks.removed = true;
            diff.below.removed = whole(old, ty)?;
            return Ok(());
        }
        (None, None) => return Ok(()),
    };
    let shape = ty.shape(new);
    let other = ty.shape(old);
    if shape != other {
        handle(other, old, new, ty, diff)?;
    }
    handle(shape, old, new, ty, diff)
}

/// Everything in a value that only one side has: each node counts, down to the leaves.
fn whole(value: &Value, ty: Ty<'_>) -> Result<FieldSet, String> {
    match (ty.shape(value), value) {
        (Shape::Map, Value::Object(map)) if !ty.map_is_atomic() => {
            let mut set = FieldSet::with_capacity(map.len());
            for (key, inner) in map {
                if !ty.is_skipped(key) {
                    set.put(PathElement::field(key), true, whole(inner, ty.child(key).0)?);
                }
            }
            Ok(set)
        }
        (Shape::List, Value::Array(items)) if !ty.list_is_atomic() => {
            let element = ty.element();
            let mut set = FieldSet::with_capacity(items.len());
            for (identity, members) in groups(items, ty)? {
                let below = match members.as_slice() {
                    [only] => whole(only, element)?,
                    _ => FieldSet::new(),
                };
                set.put(identity, true, below);
            }
            Ok(set)
        }
        _ => Ok(FieldSet::new()),
    }
}

/// Handles a value both sides have as one shape.
fn handle(shape: Shape, old: &Value, new: &Value, ty: Ty<'_>, diff: &mut NodeDiff) -> Result<(), String> {
    match shape {
        Shape::Map => {
            let (a, b) = (old.as_object(), new.as_object());
            let hollow = a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty);
            if !hollow && !ty.map_is_atomic() {
                return map(a, b, ty, &mut diff.below);
            }
        }
        Shape::List => {
            let (a, b) = (old.as_array(), new.as_array());
            let hollow = a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty);
            if !hollow && !ty.list_is_atomic() {
                let (a, b) = (a.map_or(&[][..], Vec::as_slice), b.map_or(&[][..], Vec::as_slice));
                return list(a, b, ty, &mut diff.below);
            }
        }
        Shape::Scalar => {}
    }
    diff.marks.modified |= !same(old, new);
    Ok(())
}

fn map(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    ty: Ty<'_>,
    out: &mut Comparison,
) -> Result<(), String> {
    let mut visit = |key: &str, a: Option<&Value>, b: Option<&Value>| -> Result<(), String> {
        if ty.is_skipped(key) {
            return Ok(());
        }
        // Most writes touch one part of the object; the rest is cheaper to compare than to walk.
        if ty.is_root() && a.zip(b).is_some_and(|(a, b)| same(a, b)) {
            return Ok(());
        }
        // What was never set in a built-in kind may be written as null; nobody set it.
        if a.is_none() && b.is_some_and(Value::is_null) && ty.is_builtin() {
            return Ok(());
        }
        // A struct that is always there counts as present and empty on the side that lacks it,
        // provided that side has the surrounding object.
        let (mut a, mut b) = (a, b);
        if (a.is_none() && old.is_some() || b.is_none() && new.is_some()) && ty.is_always_there(key) {
            let stand_in = match a.or(b) {
                Some(Value::Array(_)) => &Value::Null,
                Some(Value::String(_)) => empty_text(),
                _ => empty_object(),
            };
            a = a.or(Some(stand_in));
            b = b.or(Some(stand_in));
            if is_hollow(a) && is_hollow(b) {
                return Ok(());
            }
        }
        let mut diff = NodeDiff::default();
        node(a, b, ty.child(key).0, &mut diff)?;
        if !diff.is_same() {
            out.put(PathElement::field(key), diff);
        }
        Ok(())
    };
    let (mut a, mut b) = (
        old.into_iter().flatten().peekable(),
        new.into_iter().flatten().peekable(),
    );
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) => x.cmp(y),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Ok(()),
        };
        match order {
            std::cmp::Ordering::Less => {
                if let Some((key, value)) = a.next() {
                    visit(key, Some(value), None)?;
                }
            }
            std::cmp::Ordering::Greater => {
                if let Some((key, value)) = b.next() {
                    visit(key, None, Some(value))?;
                }
            }
            std::cmp::Ordering::Equal => {
                if let Some(((key, x), (_, y))) = a.next().zip(b.next()) {
                    visit(key, Some(x), Some(y))?;
                }
            }
        }
    }
}

/// An object without fields.
pub(crate) fn empty_object() -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    &EMPTY
}

fn empty_text() -> &'static Value {
    static EMPTY: Value = Value::String(String::new());
    &EMPTY
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// List elements grouped by identity, in the order of identities.
fn groups<'a>(items: &'a [Value], ty: Ty<'_>) -> Result<Vec<(PathElement, Vec<&'a Value>)>, String> {
    let mut elements = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let identity = ty.identify(item).map_err(|e| format!("element {i}: {e}"))?;
        elements.push((identity, item));
    }
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut groups: Vec<(PathElement, Vec<&Value>)> = Vec::with_capacity(elements.len());
    for (identity, item) in elements {
        match groups.last_mut() {
            Some((last, members)) if *last == identity => members.push(item),
            _ => groups.push((identity, vec![item])),
        }
    }
    Ok(groups)
}

fn list(old: &[Value], new: &[Value], ty: Ty<'_>, out: &mut Comparison) -> Result<(), String> {
    let mut a = groups(old, ty)?.into_iter().peekable();
    let mut b = groups(new, ty)?.into_iter().peekable();
    let element = ty.element();
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) => x.cmp(y),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Ok(()),
        };
        let (identity, left, right) = match order {
            std::cmp::Ordering::Less => match a.next() {
                Some((identity, left)) => (identity, left, Vec::new()),
                None => continue,
            },
            std::cmp::Ordering::Greater => match b.next() {
                Some((identity, right)) => (identity, Vec::new(), right),
                None => continue,
            },
            std::cmp::Ordering::Equal => match a.next().zip(b.next()) {
                Some(((identity, left), (_, right))) => (identity, left, right),
                None => continue,
            },
        };
        let mut diff = NodeDiff::default();
        group(&left, &right, element, &mut diff)?;
        out.put(identity, diff);
    }
}

/// Elements of one identity. Duplicates are compared as if they were one leaf.
fn group(left: &[&Value], right: &[&Value], element: Ty<'_>, diff: &mut NodeDiff) -> Result<(), String> {
    match (left, right) {
        ([_, _, ..], [_, _, ..]) => {
            let equal = left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b));
            diff.marks.modified = !equal;
            Ok(())
        }
        ([_, _, ..], _) => {
            if let Some(new) = right.first() {
                node(None, Some(new), element, diff)?;
            }
            diff.marks.removed = true;
            Ok(())
        }
        (_, [_, _, ..]) => {
            if let Some(old) = left.first() {
                node(Some(old), None, element, diff)?;
            }
            diff.marks.added = true;
            Ok(())
        }
        _ => node(left.first().copied(), right.first().copied(), element, diff),
    }
}
