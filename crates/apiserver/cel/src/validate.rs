// SPDX-License-Identifier: Apache-2.0
//! Checks after the types fit: literals handed to `duration`, `timestamp` and `matches` must be
//! valid, and list and map literals must not mix types. Literal patterns are compiled here.

use crate::check::mismatch;
use crate::error::Issue;
use crate::node::{Call, Entry, Item, Kind, Node};
use crate::time::{Time, parse_duration};
use crate::ty::Ty;
use crate::value::Value;

/// Validates a tree.
pub(crate) fn validate(node: &mut Node, issues: &mut Vec<Issue>) {
    match &mut node.kind {
        Kind::Const(_) | Kind::Var(_) => {}
        Kind::Select(s) => validate(&mut s.operand, issues),
        Kind::Call(c) => {
            literal(c, issues);
            c.args.iter_mut().for_each(|a| validate(a, issues));
        }
        Kind::And(two) | Kind::Or(two) => two.iter_mut().for_each(|n| validate(n, issues)),
        Kind::Cond(three) => three.iter_mut().for_each(|n| validate(n, issues)),
        Kind::List(items) => {
            same_items(items, issues);
            items.iter_mut().for_each(|i| validate(&mut i.node, issues));
        }
        Kind::Map(entries) => {
            same_entries(entries, issues);
            for e in entries {
                validate(&mut e.key, issues);
                validate(&mut e.value, issues);
            }
        }
        Kind::Loop(l) => {
            validate(&mut l.range, issues);
            l.filter.iter_mut().for_each(|f| validate(f, issues));
            validate(&mut l.body, issues);
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

fn literal(call: &mut Call, issues: &mut Vec<Issue>) {
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
            if let Some((s, at)) = text(call.args.first())
                && Time::parse(s).is_none()
            {
                issues.push(invalid(at, call.name));
            }
        }
        "matches" | "find" | "findAll" => {
            let Some((pattern, at)) = text(call.args.get(1)) else {
                return;
            };
            match crate::pattern::compile(pattern) {
                Ok(regex) => call.regex = Some(regex),
                Err(_) if call.name == "matches" => issues.push(invalid(at, call.name)),
                Err(e) => issues.push(Issue { at, message: e }),
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
