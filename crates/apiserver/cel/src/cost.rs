// SPDX-License-Identifier: Apache-2.0
//! What each step of an evaluation costs, in the units of the reference: one for a name or a
//! simple call, a tenth of the size for a walk over a string, the product for a search.

use crate::node::Node;
use crate::value::{Opaque, Value};

/// Looking, before a round of `all`, whether it is decided already.
pub(crate) const ALL_CHECK: u64 = 2;
/// The same for `exists`.
pub(crate) const EXISTS_CHECK: u64 = 3;
/// Making a list.
pub(crate) const LIST: u64 = 10;
/// Making a map.
pub(crate) const MAP: u64 = 30;
/// Asking about a right.
pub(crate) const CHECK: u64 = 350_000;
/// Making an object.
pub(crate) const OBJECT: u64 = 40;
/// A round of `all`, beside its body.
pub(crate) const ALL_STEP: u64 = 3;
/// A round of `exists`, beside its body.
pub(crate) const EXISTS_STEP: u64 = 4;
/// An element appended by `map`, beside its body.
pub(crate) const MAP_STEP: u64 = 12;
/// An element appended by `filter`, beside its body.
pub(crate) const FILTER_STEP: u64 = 13;

/// A tenth, rounded up.
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// A quarter, rounded up: how patterns are counted.
pub(crate) fn quarter(size: u64) -> u64 {
    size.div_ceil(4)
}

/// The bytes of a string or byte value.
pub(crate) fn bytes(value: &Value<'_>) -> u64 {
    match value {
        Value::Str(s) => s.as_str().len() as u64,
        Value::Bytes(b) => b.len() as u64,
        _ => 0,
    }
}

/// The cost of a binary operator.
pub(crate) fn operator(name: &str, a: &Value<'_>, b: &Value<'_>, right: &Node) -> u64 {
    match name {
        "_==_" if matches!(a, Value::Opaque(_)) => 1,
        "_==_" | "_!=_" => tenth(a.cost_size().min(b.cost_size())),
        "_<_" | "_<=_" | "_>_" | "_>=_" => match (a, b) {
            (Value::Str(_), Value::Str(_)) | (Value::Bytes(_), Value::Bytes(_)) => {
                tenth(a.cost_size().min(b.cost_size()))
            }
            _ => 1,
        },
        "_+_" => match (a, b) {
            (Value::Str(_), Value::Str(_)) | (Value::Bytes(_), Value::Bytes(_)) => {
                tenth(a.cost_size() + b.cost_size())
            }
            _ => 1,
        },
        "@in" => match b {
            Value::List(_) if right.is_const() => 0,
            Value::List(list) => list.len() as u64,
            _ => 1,
        },
        _ => 1,
    }
}

/// The cost of a pattern search.
pub(crate) fn search(text: u64, pattern: u64) -> u64 {
    tenth(text + 1).saturating_mul(quarter(pattern))
}

/// The cost of a function; `join` is charged by its result instead.
pub(crate) fn function(name: &str, args: &[Value<'_>]) -> u64 {
    let size = |i: usize| args.get(i).map_or(1, Value::cost_size);
    match name {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(1, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver"
        | "strings.quote"
        | "jsonpatch.escapeKey"
        | "format" => tenth(size(0)),
        "startsWith" | "endsWith" => tenth(size(1)),
        "check" => CHECK,
        "ip" => match args.first() {
            Some(Value::Str(_)) => tenth(size(0)),
            _ => 1,
        },
        "bytes" | "string" => match args.first() {
            Some(Value::Str(_)) if name == "bytes" => tenth(size(0)),
            Some(Value::Bytes(_)) if name == "string" => tenth(size(0)),
            _ => 1,
        },
        "replace" | "split" | "ip.isCanonical" => tenth(size(0) * 2),
        "find" | "findAll" | "matches" => search(size(0), size(1)),
        "contains" => tenth(size(0)).saturating_mul(tenth(size(1))),
        "containsIP" => tenth(size(0) * 2) + string_extra(args),
        "containsCIDR" => tenth(size(0) * 2) + tenth(size(0)) + 1 + string_extra(args),
        "validate" => match args.first() {
            Some(Value::Opaque(o)) => match &**o {
                Opaque::Format(f) => search(size(1), crate::format::regex_size(f)),
                _ => 1,
            },
            _ => 1,
        },
        "sets.contains" | "sets.intersects" => size(0).saturating_mul(size(1)).saturating_add(1),
        "sets.equivalent" => size(0)
            .saturating_mul(size(1))
            .saturating_mul(2)
            .saturating_add(1),
        "reverse" => allocated(size(0)),
        "slice" => match (args.get(1), args.get(2)) {
            (Some(Value::Int(start)), Some(Value::Int(end))) => allocated(
                u64::try_from(end.saturating_sub(*start))
                    .unwrap_or(0)
                    .min(size(0)),
            ),
            _ => 1,
        },
        "lists.range" => match args.first() {
            Some(Value::Int(n)) => allocated(u64::try_from(*n).unwrap_or(0)),
            _ => 1,
        },
        "flatten" => match args.get(1) {
            Some(Value::Int(depth)) => allocated(size(0).saturating_mul(u64::try_from(*depth).unwrap_or(0))),
            _ => allocated(size(0)),
        },
        "sort" | "distinct" => self_compared(args.first()),
        "join" => 0,
        _ => 1,
    }
}

/// A call that makes a list of a size.
fn allocated(size: u64) -> u64 {
    size.saturating_add(1 + LIST)
}

/// A call that compares the elements of a list with each other.
pub(crate) fn self_compared(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 };
    let pairs = (list.len() as u64).saturating_mul(list.len() as u64);
    let text = matches!(list.get(0), Some(Ok(Value::Str(_) | Value::Bytes(_))));
    let factor = if text { 2.1 } else { 2.0 };
    allocated((pairs as f64 * factor) as u64)
}

fn string_extra(args: &[Value<'_>]) -> u64 {
    match args.get(1) {
        Some(v @ Value::Str(_)) => tenth(v.cost_size()),
        _ => 0,
    }
}

/// The cost of walking over a whole value.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::Str(s) => s.as_str().len() as u64 / 10,
        Value::Bytes(b) => b.len() as u64 / 10,
        Value::List(list) => list.iter().filter_map(Result::ok).map(|v| traversal(&v)).sum(),
        Value::Map(map) => map
            .keys()
            .iter()
            .map(|k| traversal(k) + map.get(k).and_then(Result::ok).map_or(0, |v| traversal(&v)))
            .sum(),
        _ => 1,
    }
}
