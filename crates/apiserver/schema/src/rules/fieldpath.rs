// SPDX-License-Identifier: Apache-2.0
//! Simple paths through a schema: `.spec.names['a key']`, as rules name the field they complain
//! about and definitions name the fields that can be selected.

use crate::node::{Additional, Schema};

/// Follows a path through a schema. Returns the path as messages spell it and the node it ends
/// at; the error says what is wrong with the path. `brackets` allows `['name']`.
pub fn valid_field_path<'a>(
    path: &str,
    schema: &'a Schema,
    brackets: bool,
) -> Result<(String, &'a Schema), String> {
    let mut out = String::new();
    let mut node = schema;
    let mut tokens = tokenize(path).into_iter();
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let end = || "unexpected end of JSON path".to_owned();
                let quoted = tokens.next().ok_or_else(end)?;
                let inner = (quoted.len() >= 2)
                    .then(|| quoted.strip_prefix('\'').and_then(|q| q.strip_suffix('\'')))
                    .flatten()
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                node = step(node, &unescape(inner)?, &mut out)?;
                let close = tokens.next().ok_or_else(end)?;
                if close != "]" {
                    return Err(format!("expected ] but got {close}"));
                }
            }
            "." => {
                let name = tokens
                    .next()
                    .ok_or_else(|| "unexpected end of JSON path".to_owned())?;
                node = step(node, &name, &mut out)?;
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok((out, node))
}

fn step<'a>(node: &'a Schema, name: &str, out: &mut String) -> Result<&'a Schema, String> {
    let invalid = || "does not refer to a valid field".to_owned();
    if !node.properties.is_empty() {
        let next = node.properties.get(name).ok_or_else(invalid)?;
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        return Ok(next);
    }
    match &node.additional {
        Some(Additional::Schema(next)) => {
            out.push('[');
            out.push_str(name);
            out.push(']');
            Ok(next)
        }
        _ => Err(invalid()),
    }
}

fn tokenize(path: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => closing_quote(rest),
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, tail) = rest.split_at(end);
        tokens.push(token.to_owned());
        rest = tail;
    }
    tokens
}

fn closing_quote(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            '\'' if !escaped => return i + 1,
            _ => escaped = c == '\\',
        }
    }
    text.len()
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some('\'') => out.push('\''),
            Some('\\') | None => out.push('\\'),
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    #[test]
    fn paths_are_followed() {
        let schema = parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a.b": {"type": "string"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}}));
        let path = |p: &str, brackets| valid_field_path(p, &schema, brackets).map(|(p, _)| p);
        assert_eq!(path(".spec['a.b']", true), Ok("spec.a.b".to_owned()));
        assert_eq!(path(".spec.map.key", true), Ok("spec.map[key]".to_owned()));
        assert_eq!(
            path(".spec.none", true),
            Err("does not refer to a valid field".to_owned())
        );
        assert_eq!(
            path("spec", true),
            Err("expected [ or . but got: spec".to_owned())
        );
        assert_eq!(
            path(".spec['x", true),
            Err("expected single quoted string but got 'x".to_owned())
        );
        assert_eq!(
            path(".spec[", true),
            Err("unexpected end of JSON path".to_owned())
        );
        assert_eq!(
            path(".spec['x']", false),
            Err("array notation is not allowed".to_owned())
        );
    }
}
