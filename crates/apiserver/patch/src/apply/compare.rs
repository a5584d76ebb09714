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
        if node.is_same() {
            return;
        }
        let NodeDiff { marks, below } = node;
        let mut targets = [
            (&mut self.removed, marks.removed, below.removed),
            (&mut self.modified, marks.modified, below.modified),
            (&mut self.added, marks.added, below.added),
        ];
        // The usual node differs in one way: hand the element over instead of copying it.
        targets.sort_by_key(|(_, mark, below)| *mark || !below.is_empty());
        let mut element = Some(element);
        let last = targets.len() - 1;
        for (i, (set, mark, below)) in targets.into_iter().enumerate() {
            if !mark && below.is_empty() {
                continue;
            }
            let own = if i == last {
                element.take()
            } else {
                element.clone()
            };
            if let Some(own) = own {
                set.put(own, mark, below);
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
    let (shape, other) = match (old, new) {
        (_, None) => (old.map(|v| ty.shape(v)), None),
        (Some(a), Some(b)) if ty.shapes_differ(a, b) => (Some(ty.shape(b)), Some(ty.shape(a))),
        (_, Some(b)) => (Some(ty.shape(b)), None),
    };
    let Some(shape) = shape else { return Ok(()) };
    if let Some(other) = other {
        handle(other, old, new, ty, diff)?;
    }
    let leaf = handle(shape, old, new, ty, diff)?;
    if !leaf {
        match (old, new) {
            (None, _) => diff.marks.added = true,
            (_, None) => diff.marks.removed = true,
            _ => {}
        }
    }
    Ok(())
}

/// Handles one shape; says whether the node was taken as a leaf.
fn handle(
    shape: Shape,
    old: Option<&Value>,
    new: Option<&Value>,
    ty: Ty<'_>,
    diff: &mut NodeDiff,
) -> Result<bool, String> {
    match shape {
        Shape::Scalar => {
            leaf(old, new, diff);
            Ok(true)
        }
        Shape::Map => {
            let a = old.and_then(Value::as_object);
            let b = new.and_then(Value::as_object);
            if ty.map_is_atomic() || (a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty)) {
                leaf(old, new, diff);
                return Ok(true);
            }
            map(a, b, ty, &mut diff.below).map(|()| false)
        }
        Shape::List => {
            let a = old.and_then(Value::as_array);
            let b = new.and_then(Value::as_array);
            if ty.list_is_atomic() || (a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty)) {
                leaf(old, new, diff);
                return Ok(true);
            }
            let empty = Vec::new();
            list(a.unwrap_or(&empty), b.unwrap_or(&empty), ty, &mut diff.below).map(|()| false)
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, diff: &mut NodeDiff) {
    match (old, new) {
        (None, _) => diff.marks.added = true,
        (_, None) => diff.marks.removed = true,
        (Some(a), Some(b)) if !same(a, b) => diff.marks.modified = true,
        _ => {}
    }
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
        // A struct that is always there counts as present and empty on the side that lacks it,
        // provided that side has the surrounding object.
        let (mut a, mut b) = (a, b);
        if (a.is_none() && old.is_some() || b.is_none() && new.is_some()) && ty.is_always_there(key) {
            let stand_in = if a.or(b).is_some_and(Value::is_array) {
                &Value::Null
            } else {
                empty_object()
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

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
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
