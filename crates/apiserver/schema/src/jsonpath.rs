// SPDX-License-Identifier: Apache-2.0
//! JSONPath as printer columns, scale and selectable fields use it.
//!
//! A path is compiled once and evaluated on objects. The dialect is that of kubectl: dots,
//! brackets, quoted keys, indexes and ranges, wildcards, unions, filters and recursive descent.

use std::borrow::Cow;

use cobaltcore_text::go;
use serde_json::Value;

mod parser;

use parser::{Node, Operator, Slice};

use crate::error::SchemaError;

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    nodes: Vec<Node>,
}

/// The most values a path may give; descent through large objects ends there.
const MAX_RESULTS: usize = 10_000;

impl JsonPath {
    /// Compiles a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn compile(path: &str) -> Result<Self, SchemaError> {
        parser::parse(path)
            .map(|nodes| Self { nodes })
            .map_err(SchemaError::Path)
    }

    /// All values the path leads to, in order. Missing fields give nothing; an index out of
    /// bounds or a filter on something that is not a list is an error.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Vec<Cow<'a, Value>>, SchemaError> {
        walk(&self.nodes, vec![Cow::Borrowed(value)]).map_err(SchemaError::Mismatch)
    }

    /// The first value, if there is one and nothing went wrong.
    pub fn first<'a>(&self, value: &'a Value) -> Option<Cow<'a, Value>> {
        self.find(value).ok().and_then(|found| found.into_iter().next())
    }

    /// All values as one text, joined by blanks.
    pub fn text(&self, value: &Value) -> Result<String, SchemaError> {
        let found = self.find(value)?;
        Ok(found.iter().map(|v| print(v)).collect::<Vec<_>>().join(" "))
    }
}

/// A value as a printer shows it: strings bare, lists and objects as JSON.
pub fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "null".to_owned(),
        Value::Number(n) if n.is_f64() => n.as_f64().map(go::float).unwrap_or_default(),
        other => go::json(other),
    }
}

fn walk<'a>(nodes: &[Node], mut current: Vec<Cow<'a, Value>>) -> Result<Vec<Cow<'a, Value>>, String> {
    for node in nodes {
        current = step(node, current)?;
        current.truncate(MAX_RESULTS);
    }
    Ok(current)
}

/// The parts of a value, borrowed where the value is.
fn part<'a>(
    value: &Cow<'a, Value>,
    pick: impl for<'b> Fn(&'b Value) -> Option<&'b Value>,
) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => pick(value).map(Cow::Borrowed),
        Cow::Owned(value) => pick(value).map(|v| Cow::Owned(v.clone())),
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

fn nth(value: &Value, index: usize) -> Option<&Value> {
    match value {
        Value::Array(items) => items.get(index),
        Value::Object(map) => map.values().nth(index),
        _ => None,
    }
}

fn children<'a>(value: &Cow<'a, Value>) -> Vec<Cow<'a, Value>> {
    (0..length(value))
        .filter_map(|i| part(value, |v| nth(v, i)))
        .collect()
}

fn step<'a>(node: &Node, current: Vec<Cow<'a, Value>>) -> Result<Vec<Cow<'a, Value>>, String> {
    Ok(match node {
        Node::Field(name) => current
            .iter()
            .filter_map(|v| part(v, |v| v.get(name.as_str())))
            .collect(),
        Node::Wildcard => current.iter().flat_map(children).collect(),
        Node::Recursive => {
            let mut out = Vec::new();
            for value in current {
                descend(value, &mut out);
            }
            out
        }
        Node::Slice(slice) => {
            let mut out = Vec::new();
            for value in current.iter().filter(|v| !v.is_null()) {
                out.extend(take_slice(slice, value)?);
            }
            out
        }
        Node::Union(parts) => {
            let mut out = Vec::new();
            for nodes in parts {
                out.extend(walk(nodes, current.clone())?);
            }
            out
        }
        Node::Filter {
            left,
            operator,
            right,
        } => {
            let mut out = Vec::new();
            for value in &current {
                if !value.is_array() {
                    return Err(format!(
                        "{} is not array or slice and cannot be filtered",
                        print(value)
                    ));
                }
                for item in children(value) {
                    if passes(&item, left, *operator, right)? {
                        out.push(item);
                    }
                }
            }
            out
        }
        Node::Literal(value) => current.iter().map(|_| Cow::Owned(value.clone())).collect(),
    })
}

fn descend<'a>(value: Cow<'a, Value>, out: &mut Vec<Cow<'a, Value>>) {
    let below = children(&value);
    if below.is_empty() || out.len() >= MAX_RESULTS {
        return;
    }
    out.push(value);
    for child in below {
        descend(child, out);
    }
}

fn take_slice<'a>(slice: &Slice, value: &Cow<'a, Value>) -> Result<Vec<Cow<'a, Value>>, String> {
    if !value.is_array() {
        return Err("value is not array or slice".to_owned());
    }
    let size = length(value) as i64;
    let start = slice.start.unwrap_or(0);
    let start = if start < 0 { start + size } else { start };
    let end = match slice.end {
        None => size,
        Some(end) if end < 0 || (end == 0 && slice.derived) => end + size,
        Some(end) => end,
    };
    if start == end {
        return Ok(Vec::new());
    }
    let out_of_bounds = |index: i64| format!("array index out of bounds: index {index}, length {size}");
    if start >= size || start < 0 {
        return Err(out_of_bounds(start));
    }
    if end > size || end < 0 {
        return Err(out_of_bounds(end - 1));
    }
    if start > end {
        return Err(format!(
            "starting index {start} is greater than ending index {end}"
        ));
    }
    let step = slice.step.unwrap_or(1);
    if step <= 0 {
        return Err("step must be > 0".to_owned());
    }
    Ok((start..end)
        .step_by(step as usize)
        .filter_map(|i| part(value, |v| nth(v, i as usize)))
        .collect())
}

fn passes(item: &Value, left: &[Node], operator: Operator, right: &[Node]) -> Result<bool, String> {
    let lefts = walk(left, vec![Cow::Borrowed(item)]);
    if operator == Operator::Exists {
        return Ok(lefts.is_ok_and(|found| !found.is_empty()));
    }
    let lefts = lefts?;
    let rights = walk(right, vec![Cow::Borrowed(item)])?;
    match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => compare(left, operator, right),
        _ => Err("can only compare one element at a time".to_owned()),
    }
}

fn compare(left: &Value, operator: Operator, right: &Value) -> Result<bool, String> {
    use std::cmp::Ordering;
    let order = match (left, right) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
        (Value::Bool(a), Value::Bool(b)) => match operator {
            Operator::Equal => return Ok(a == b),
            Operator::NotEqual => return Ok(a != b),
            _ => return Err("invalid type for comparison".to_owned()),
        },
        _ => return Err("incompatible types for comparison".to_owned()),
    };
    Ok(match operator {
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterEqual => order != Ordering::Less,
        Operator::Exists => true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_kubectl_finds() {
        let object = json!({
            "spec": {"replicas": 3, "a.b": "dotted", "list": [10, 20, 30, 40], "ratio": 0.5, "on": true, "none": null},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False", "n": 2}]}
        });
        for (path, text) in [
            (".spec.replicas", "3"),
            ("{.spec.replicas}", "3"),
            (".spec['a.b']", "dotted"),
            (r".spec.a\.b", "dotted"),
            (".spec.list[0]", "10"),
            (".spec.list[-1]", "40"),
            (".spec.list[1:3]", "20 30"),
            (".spec.list[::2]", "10 30"),
            (".spec.list[*]", "10 20 30 40"),
            (".spec.list[0,2]", "10 30"),
            (".spec.list", "[10,20,30,40]"),
            (".spec.ratio", "0.5"),
            (".spec.on", "true"),
            (".spec.missing", ""),
            (".status.conditions[?(@.type==\"Ready\")].status", "True"),
            (".status.conditions[?(@.type=='Other')].status", "False"),
            (".status.conditions[?(@.type!=\"Ready\")].type", "Other"),
            (".status.conditions[?(@.n>1)].type", "Other"),
            (".status.conditions[?(@.n)].type", "Other"),
            (".status.conditions[*].type", "Ready Other"),
            ("..type", "Ready Other"),
            (".spec.*", "dotted [10,20,30,40] null true 0.5 3"),
        ] {
            let compiled = JsonPath::compile(path).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(compiled.text(&object).as_deref(), Ok(text), "{path}");
        }
    }

    #[test]
    fn some_paths_fail_on_some_objects() {
        let object = json!({"a": [1], "b": "x"});
        for path in [".a[3]", ".b[0]", ".b[?(@.x==1)]", ".a[0:1:0]"] {
            assert!(
                JsonPath::compile(path).expect(path).find(&object).is_err(),
                "{path}"
            );
        }
        assert_eq!(JsonPath::compile(".a[3]").expect("compiles").first(&object), None);
    }

    #[test]
    fn bad_paths_do_not_compile() {
        for (path, error) in [
            (".a[", "unterminated array"),
            (".a[x]", "invalid array index x"),
            (".a[?(@.b==", "unterminated filter"),
            (".a[?(@.b==1)", "unclosed array expect ]"),
            ("....", "invalid multiple recursive descent"),
            (".a 'x", "unterminated quoted string"),
        ] {
            assert_eq!(
                JsonPath::compile(path),
                Err(SchemaError::Path(error.to_owned())),
                "{path}"
            );
        }
    }
}
