// SPDX-License-Identifier: Apache-2.0
//! Checks after the types fit: literals handed to `duration`, `timestamp`, `matches` and conversions
//! must be valid, and list and map literals must not mix types. Literal patterns are compiled here.

use crate::check::mismatch;
use crate::error::Issue;
use crate::eval::Fail;
use crate::node::{Call, Entry, Item, Kind, Node};
use crate::time::{Time, parse_duration};
use crate::ty::Ty;
use crate::value::Value;

/// Validates a tree. The result is why no program can be made of a valid one.
pub(crate) fn validate(node: &mut Node, issues: &mut Vec<Issue>) -> Option<String> {
    let mut found = Found {
        issues,
        unplannable: None,
    };
    walk(node, false, &mut found);
    found.unplannable
}

/// What a walk found.
struct Found<'i> {
    issues: &'i mut Vec<Issue>,
    unplannable: Option<String>,
}

/// `mixed` is true inside the arguments of `format`, which may mix types.
fn walk(node: &mut Node, mixed: bool, found: &mut Found<'_>) {
    let at = node.at;
    // The fields of an object differ by nature.
    let is_object = matches!(node.ty, Ty::Object(..));
    match &mut node.kind {
        Kind::Const(_) | Kind::Var(_) => {}
        Kind::Select(s) => walk(&mut s.operand, mixed, found),
        Kind::Call(c) => {
            literal(c, found);
            if c.name == "format" {
                crate::printf::check(c, at, found.issues);
            }
            let mixed = mixed || c.name == "format";
            c.args.iter_mut().for_each(|a| walk(a, mixed, found));
        }
        Kind::And(two) | Kind::Or(two) => two.iter_mut().for_each(|n| walk(n, mixed, found)),
        Kind::Cond(three) => three.iter_mut().for_each(|n| walk(n, mixed, found)),
        Kind::List(items) => {
            if !mixed {
                same_items(items, found.issues);
            }
            for item in items {
                walk(&mut item.node, mixed, found);
            }
        }
        Kind::Map(entries) => {
            if !mixed && !is_object {
                same_entries(entries, found.issues);
            }
            for e in entries {
                walk(&mut e.key, mixed, found);
                walk(&mut e.value, mixed, found);
            }
        }
        Kind::Loop(l) => {
            walk(&mut l.range, mixed, found);
            l.filter.iter_mut().for_each(|f| walk(f, mixed, found));
            walk(&mut l.body, mixed, found);
        }
    }
}

/// The text of a literal argument.
fn text(node: Option<&Node>) -> Option<(&str, usize)> {
    match node {
        Some(Node {
            kind: Kind::Const(Value::Str(s)),
            at,
            ..
        }) => Some((s.as_str(), *at)),
        _ => None,
    }
}

fn literal(call: &mut Call, found: &mut Found<'_>) {
    let issues = &mut *found.issues;
    let invalid = |at: usize, name: &str| Issue {
        at,
        message: format!("invalid {name} argument"),
    };
    match call.name {
        "duration" => {
            if let Some((s, at)) = text(call.args.first())
                && parse_duration(s).is_none()
            {
                issues.push(invalid(at, call.name));
            }
        }
        "timestamp" => {
            let valid = match call.args.first() {
                Some(Node {
                    kind: Kind::Const(Value::Str(s)),
                    ..
                }) => Time::parse(s.as_str()).is_some(),
                Some(Node {
                    kind: Kind::Const(Value::Int(i)),
                    ..
                }) => Time::from_second(*i).is_some(),
                _ => true,
            };
            if !valid {
                let at = call.args.first().map_or(0, |a| a.at);
                issues.push(invalid(at, call.name));
            }
        }
        // Literals are converted when the program is made, not when it runs.
        "bool" | "bytes" | "double" | "int" | "string" | "uint" => {
            if let Some(Node {
                kind: Kind::Const(value),
                ..
            }) = call.args.first()
                && let Err(Fail::Error(why)) = crate::stdlib::convert(call.name, value)
            {
                found.unplannable = found.unplannable.take().or(Some(why));
            }
        }
        "matches" | "find" | "findAll" => {
            let Some((pattern, at)) = text(call.args.get(1)) else {
                return;
            };
            match crate::pattern::compile(pattern) {
                Ok(regex) => call.regex = Some(regex),
                Err(_) if call.name == "matches" => issues.push(invalid(at, call.name)),
                Err(e) => found.unplannable = found.unplannable.take().or(Some(e)),
            }
        }
        _ => {}
    }
}

/// The type that an element counts as.
fn counted(node: &Node, optional: bool) -> &Ty {
    if optional {
        node.ty.unwrap_optional().unwrap_or(&node.ty)
    } else {
        &node.ty
    }
}

fn same_items(items: &[Item], issues: &mut Vec<Issue>) {
    let mut first: Option<&Ty> = None;
    for item in items {
        let ty = counted(&item.node, item.optional);
        match first {
            None => first = Some(ty),
            Some(f) if !f.same(ty) => {
                issues.push(Issue {
                    at: item.node.at,
                    message: mismatch(f, ty),
                });
                return;
            }
            Some(_) => {}
        }
    }
}

fn same_entries(entries: &[Entry], issues: &mut Vec<Issue>) {
    let mut first: Option<(&Ty, &Ty)> = None;
    for entry in entries {
        let (key, value) = (&entry.key.ty, counted(&entry.value, entry.optional));
        match first {
            None => first = Some((key, value)),
            Some((k, v)) => {
                if !k.same(key) {
                    issues.push(Issue {
                        at: entry.key.at,
                        message: mismatch(k, key),
                    });
                }
                if !v.same(value) {
                    issues.push(Issue {
                        at: entry.value.at,
                        message: mismatch(v, value),
                    });
                }
            }
        }
    }
}
