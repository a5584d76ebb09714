// SPDX-License-Identifier: Apache-2.0
//! Sets of paths as sorted tries. A node is a member when the path that ends there is in the set;
//! nodes that are neither members nor have anything below them do not exist.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::path::PathElement;
use super::types::Ty;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// One step of the trie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) element: PathElement,
    pub(crate) member: bool,
    pub(crate) below: FieldSet,
}

impl FieldSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// A set of paths made of field names only, e.g. `[["status"], ["metadata", "labels"]]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let elements: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&elements);
        }
        set
    }

    /// Adds one path; the empty path is nobody's and ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let at = match self.nodes.binary_search_by(|n| n.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(
                    at,
                    Node {
                        element: first.clone(),
                        member: false,
                        below: Self::new(),
                    },
                );
                at
            }
        };
        if let Some(node) = self.nodes.get_mut(at) {
            if rest.is_empty() {
                node.member = true;
            } else {
                node.below.insert(rest);
            }
        }
    }

    /// Puts a finished node in its place; cheap when nodes arrive in order. A node that says
    /// nothing is dropped, one that is there already is united with the new one.
    pub(crate) fn put(&mut self, element: PathElement, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        let node = Node {
            element,
            member,
            below,
        };
        if self.nodes.last().is_none_or(|last| last.element < node.element) {
            self.nodes.push(node);
            return;
        }
        match self.nodes.binary_search_by(|n| n.element.cmp(&node.element)) {
            Err(at) => self.nodes.insert(at, node),
            Ok(at) => {
                if let Some(old) = self.nodes.get_mut(at) {
                    old.member |= node.member;
                    old.below = std::mem::take(&mut old.below).union(node.below);
                }
            }
        }
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.nodes
            .iter()
            .map(|n| usize::from(n.member) + n.below.len())
            .sum()
    }

    /// Whether the path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path.split_first() {
            None => false,
            Some((first, [])) => self.node(first).is_some_and(|n| n.member),
            Some((first, rest)) => self.node(first).is_some_and(|n| n.below.has(rest)),
        }
    }

    pub(crate) fn node(&self, element: &PathElement) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|n| n.element.cmp(element)).ok()?;
        self.nodes.get(at)
    }

    /// The node of a field, without building an element for the look-up.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|n| match &n.element {
                PathElement::Field(field) => (**field).cmp(name),
                _ => Ordering::Greater,
            })
            .ok()?;
        self.nodes.get(at)
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Room for `count` nodes that are about to be put.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(count),
        }
    }

    /// Paths in either set.
    pub fn union(self, other: Self) -> Self {
        if other.is_empty() {
            return self;
        }
        if self.is_empty() {
            return other;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut a, mut b) = (
            self.nodes.into_iter().peekable(),
            other.nodes.into_iter().peekable(),
        );
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => x.element.cmp(&y.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            match order {
                Ordering::Less => nodes.extend(a.next()),
                Ordering::Greater => nodes.extend(b.next()),
                Ordering::Equal => nodes.extend(a.next().zip(b.next()).map(|(x, y)| Node {
                    element: x.element,
                    member: x.member || y.member,
                    below: x.below.union(y.below),
                })),
            }
        }
    }

    /// Paths in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::new();
        for a in &self.nodes {
            let Some(b) = other.node(&a.element) else { continue };
            let below = a.below.intersection(&b.below);
            if (a.member && b.member) || !below.is_empty() {
                result.put(a.element.clone(), a.member && b.member, below);
            }
        }
        result
    }

    /// Paths in this set and not in the other; a path says nothing about what is below it.
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other);
        self
    }

    fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.nodes.retain_mut(|node| match other.node(&node.element) {
            None => true,
            Some(gone) => {
                node.member &= !gone.member;
                node.below.subtract(&gone.below);
                node.member || !node.below.is_empty()
            }
        });
    }

    /// Paths in this set that are neither in the other nor below a path of it.
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        self.subtract_recursively(other);
        self
    }

    fn subtract_recursively(&mut self, other: &Self) {
        self.nodes.retain_mut(|node| match other.node(&node.element) {
            None => true,
            Some(gone) if gone.member => false,
            Some(gone) => {
                node.below.subtract_recursively(&gone.below);
                node.member || !node.below.is_empty()
            }
        });
    }

    /// Paths of this set that are in the other or below a path of it.
    pub fn within(mut self, prefixes: &Self) -> Self {
        self.keep_within(prefixes);
        self
    }

    fn keep_within(&mut self, prefixes: &Self) {
        self.nodes.retain_mut(|node| match prefixes.node(&node.element) {
            None => false,
            Some(prefix) if prefix.member => true,
            Some(prefix) => {
                node.below.keep_within(&prefix.below);
                node.member || !node.below.is_empty()
            }
        });
    }

    /// Whether every path of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|a| {
            let b = other.node(&a.element);
            b.is_some_and(|b| (!a.member || b.member) && a.below.is_subset(&b.below))
        })
    }

    /// The set with every named field that has paths below it added. Named fields are not owned on
    /// their own, so removal needs them spelled out: they go when all that was in them goes.
    pub(crate) fn with_named_fields(&self, ty: Ty<'_>) -> Self {
        let nodes = self
            .nodes
            .iter()
            .map(|node| {
                let (child, named) = match &node.element {
                    PathElement::Field(name) => {
                        let field = ty.field(name);
                        (
                            field.or_else(|| ty.map_value()).unwrap_or(Ty::DEDUCED),
                            field.is_some(),
                        )
                    }
                    PathElement::Key(_) => (ty.element(), false),
                    _ => (Ty::DEDUCED, false),
                };
                let named = named && !node.below.is_empty();
                Node {
                    element: node.element.clone(),
                    member: node.member || named,
                    below: node.below.with_named_fields(child),
                }
            })
            .collect();
        Self { nodes }
    }

    /// Calls `visit` for every path: at each level first what is owned there, then what is deeper.
    pub fn each_path<'a>(&'a self, visit: &mut dyn FnMut(&[&'a PathElement])) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below<'a>(&'a self, path: &mut Vec<&'a PathElement>, visit: &mut dyn FnMut(&[&'a PathElement])) {
        for node in self.nodes.iter().filter(|n| n.member) {
            path.push(&node.element);
            visit(path);
            path.pop();
        }
        for node in self.nodes.iter().filter(|n| !n.below.is_empty()) {
            path.push(&node.element);
            node.below.each_below(path, visit);
            path.pop();
        }
    }

    /// The `fieldsV1` form.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.encode(false))
    }

    fn encode(&self, with_self: bool) -> Map<String, Value> {
        // Keys come in the order of the trie, which is nearly the order of the map: inserting is
        // cheap, and building from a sorted iterator is not offered by the map type.
        let mut map = Map::new();
        if with_self {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            let mut key = String::with_capacity(24);
            node.element.encode(&mut key);
            let value = if node.below.is_empty() {
                Map::new()
            } else {
                node.below.encode(node.member)
            };
            map.insert(key, Value::Object(value));
        }
        map
    }

    /// Reads the `fieldsV1` form. Kinds of path elements this version does not know are dropped.
    pub fn from_fields_v1(value: &Value) -> Result<Self, String> {
        decode(value, 0).map(|(set, _)| set)
    }
}

/// Deepest nesting that is read; JSON parsers refuse deeper documents anyway.
const MAX_DEPTH: usize = 256;

fn decode(value: &Value, depth: usize) -> Result<(FieldSet, bool), String> {
    let map = match value {
        Value::Object(map) if depth <= MAX_DEPTH => map,
        Value::Object(_) => return Err("fields are nested too deeply".to_owned()),
        Value::Null => return Ok((FieldSet::new(), true)),
        other => return Err(format!("expected an object of fields, got {other}")),
    };
    let mut nodes = Vec::with_capacity(map.len());
    let mut is_member = false;
    for (key, inner) in map {
        if key == "." {
            is_member = true;
            continue;
        }
        let Some(element) = PathElement::decode(key)? else {
            continue;
        };
        let (below, member) = decode(inner, depth + 1)?;
        nodes.push(Node {
            element,
            member,
            below,
        });
    }
    // The order of keys as text is the order of elements, but for numbers and foreign spellings.
    if !nodes.is_sorted_by(|a, b| a.element < b.element) {
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
    }
    let mut set = FieldSet::with_capacity(nodes.len());
    for node in nodes {
        set.put(node.element, node.member, node.below);
    }
    let is_member = is_member || set.is_empty();
    Ok((set, is_member))
}

/// Whether the encoded set owns any path of `set`, told without decoding it. Relies on stored
/// entries being in canonical form, which is how this crate writes them.
pub(crate) fn encoded_touches(encoded: &Value, set: &FieldSet, key: &mut String) -> bool {
    let Value::Object(map) = encoded else { return true };
    set.nodes.iter().any(|node| {
        key.clear();
        node.element.encode(key);
        let Some(inner) = map.get(key.as_str()) else {
            return false;
        };
        let Value::Object(fields) = inner else { return true };
        (node.member && (fields.is_empty() || fields.contains_key(".")))
            || (!node.below.is_empty() && encoded_touches(inner, &node.below, key))
    })
}

/// Whether the encoded set owns every path of `set`, told the same way.
pub(crate) fn encoded_owns(encoded: &Value, set: &FieldSet, key: &mut String) -> bool {
    let Value::Object(map) = encoded else { return false };
    set.nodes.iter().all(|node| {
        key.clear();
        node.element.encode(key);
        let Some(inner @ Value::Object(fields)) = map.get(key.as_str()) else {
            return false;
        };
        (!node.member || fields.is_empty() || fields.contains_key("."))
            && (node.below.is_empty() || encoded_owns(inner, &node.below, key))
    })
}

/// Which paths a request may neither change nor own; the server puts them back before storing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Filter {
    /// Every path counts.
    #[default]
    Everything,
    /// All paths but these and what is below them (`status` on the main endpoint).
    Except(FieldSet),
    /// Only these paths and what is below them (`status` on a status endpoint).
    Only(FieldSet),
}

impl Filter {
    /// The main endpoint of a kind with a status subresource.
    pub fn without_status() -> Self {
        Self::without(&[&["status"]])
    }

    /// An endpoint that leaves some fields alone.
    pub fn without(fields: &[&[&str]]) -> Self {
        Self::Except(FieldSet::of_fields(fields))
    }

    /// The status endpoint of a custom resource.
    pub fn only_status() -> Self {
        Self::only(&[&["status"]])
    }

    /// An endpoint that lets some fields be changed and no others.
    pub fn only(fields: &[&[&str]]) -> Self {
        Self::Only(FieldSet::of_fields(fields))
    }

    pub(crate) fn keep(&self, set: FieldSet) -> FieldSet {
        match self {
            _ if set.is_empty() => set,
            Self::Everything => set,
            Self::Except(paths) => set.recursive_difference(paths),
            Self::Only(paths) => set.within(paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::from_fields_v1(fields).expect("well-formed fields")
    }

    #[test]
    fn fields_v1_round_trips_every_kind_of_element() {
        let fields = json!({
            "f:spec": {
                ".": {},
                "f:containers": {
                    "k:{\"name\":\"a\"}": {".": {}, "f:image": {}},
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}
                },
                "f:finalizers": {"v:\"x\"": {}, "v:1": {}, "v:true": {}},
                "f:list": {"i:0": {}}
            }
        });
        assert_eq!(set(&fields).to_fields_v1(), fields);
        assert_eq!(set(&fields).len(), 8);
    }

    #[test]
    fn unknown_elements_are_dropped_and_malformed_ones_refused() {
        assert_eq!(set(&json!({"x:new": {}, "f:a": {}})), set(&json!({"f:a": {}})));
        for bad in [
            json!({"a": {}}),
            json!({"fa": {}}),
            json!({"k:{": {}}),
            json!({"i:x": {}}),
            json!({"f:a": 1}),
            json!([]),
        ] {
            assert!(FieldSet::from_fields_v1(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn set_algebra() {
        let a = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = set(&json!({"f:a": {"f:b": {}, "f:d": {}}, "f:e": {}}));
        assert_eq!(
            a.clone().union(b.clone()),
            set(&json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}, "f:e": {}}))
        );
        assert_eq!(a.intersection(&b), set(&json!({"f:a": {"f:b": {}}})));
        assert_eq!(a.clone().difference(&b), set(&json!({"f:a": {}, "f:c": {}})));
        assert_eq!(
            a.clone().difference(&set(&json!({"f:a": {}}))),
            set(&json!({"f:a": {"f:b": {}}, "f:c": {}}))
        );
        assert_eq!(
            a.clone().recursive_difference(&set(&json!({"f:a": {}}))),
            set(&json!({"f:c": {}}))
        );
        assert_eq!(
            b.clone().within(&set(&json!({"f:a": {}}))),
            set(&json!({"f:a": {"f:b": {}, "f:d": {}}}))
        );
        assert!(a.intersection(&b).is_subset(&a));
        assert!(!a.is_subset(&b));
    }

    #[test]
    fn touching_is_told_from_the_encoded_form() {
        let encoded = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}});
        let touches = |fields: Value| encoded_touches(&encoded, &set(&fields), &mut String::new());
        assert!(touches(json!({"f:a": {}})));
        assert!(touches(json!({"f:a": {"f:b": {}}})));
        assert!(touches(json!({"f:c": {"f:d": {}}})));
        assert!(!touches(json!({"f:c": {}})));
        assert!(!touches(json!({"f:a": {"f:x": {}}})));
    }

    #[test]
    fn owning_is_told_from_the_encoded_form() {
        let encoded = json!({"f:a": {".": {}, "f:b": {}, "k:{\"name\":\"x\"}": {}}, "f:c": {"f:d": {}}});
        let owns = |fields: Value| encoded_owns(&encoded, &set(&fields), &mut String::new());
        assert!(owns(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}})));
        assert!(owns(json!({"f:a": {"k:{\"name\":\"x\"}": {}}})));
        assert!(owns(json!({})));
        assert!(!owns(json!({"f:a": {}, "f:x": {}})));
        assert!(!owns(json!({"f:c": {}})));
        assert!(!owns(json!({"f:c": {"f:d": {"f:e": {}}}})));
    }
}
