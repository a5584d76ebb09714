// SPDX-License-Identifier: Apache-2.0
//! The grammar of paths. Hand-written, no recursion beyond filters and unions, which cannot nest
//! deeper than the text is long.

use serde_json::Value;

/// The longest path that is read.
const MAX_LENGTH: usize = 4096;
/// Filters and unions inside each other.
const MAX_DEPTH: usize = 16;

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Node>>),
    Filter {
        left: Vec<Node>,
        operator: Operator,
        right: Vec<Node>,
    },
    Literal(Value),
}

/// `[start:end:step]`; `derived` marks an end that follows from a single index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) step: Option<i64>,
    pub(super) derived: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Reads a path, with or without braces around it.
pub(super) fn parse(path: &str) -> Result<Vec<Node>, String> {
    let trimmed = path.trim();
    let inner = trimmed
        .strip_prefix('{')
        .and_then(|p| p.strip_suffix('}'))
        .unwrap_or(trimmed);
    if inner.len() > MAX_LENGTH {
        return Err(format!("path is longer than {MAX_LENGTH} bytes"));
    }
    parse_inside(inner, 0)
}

fn parse_inside(text: &str, depth: usize) -> Result<Vec<Node>, String> {
    if depth > MAX_DEPTH {
        return Err("path is nested too deeply".to_owned());
    }
    let mut nodes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = if let Some(after) = rest.strip_prefix("[?(") {
            parse_filter(after, &mut nodes, depth)?
        } else if let Some(after) = rest.strip_prefix("..") {
            parse_recursive(after, &mut nodes)?
        } else {
            let after = rest.get(first.len_utf8()..).unwrap_or_default();
            match first {
                ' ' | '@' | '$' => after,
                '\n' | '\r' => return Err("unclosed action".to_owned()),
                '[' => parse_array(after, &mut nodes, depth)?,
                '"' | '\'' => parse_quoted(rest, first, &mut nodes)?,
                '.' => parse_field(after, &mut nodes),
                '+' | '-' => parse_number(rest, &mut nodes)?,
                c if c.is_ascii_digit() => parse_number(rest, &mut nodes)?,
                c if c == '_' || c.is_alphanumeric() => parse_identifier(rest, &mut nodes)?,
                c => {
                    return Err(format!(
                        "unrecognized character in action: U+{:04X} '{c}'",
                        c as u32
                    ));
                }
            }
        };
    }
    Ok(nodes)
}

fn is_terminator(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn parse_field<'a>(text: &'a str, nodes: &mut Vec<Node>) -> &'a str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((i, c)) = chars.next() {
        if c == '\\' {
            if let Some((_, escaped)) = chars.next() {
                name.push(escaped);
            }
        } else if is_terminator(c) {
            end = i;
            break;
        } else {
            name.push(c);
        }
    }
    if name == "*" {
        nodes.push(Node::Wildcard);
    } else if !name.is_empty() {
        nodes.push(Node::Field(name));
    }
    text.get(end..).unwrap_or_default()
}

fn parse_recursive<'a>(text: &'a str, nodes: &mut Vec<Node>) -> Result<&'a str, String> {
    if nodes.last() == Some(&Node::Recursive) {
        return Err("invalid multiple recursive descent".to_owned());
    }
    nodes.push(Node::Recursive);
    if text.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
        return Ok(parse_field(text, nodes));
    }
    Ok(text)
}

fn parse_identifier<'a>(text: &'a str, nodes: &mut Vec<Node>) -> Result<&'a str, String> {
    let end = text.find(is_terminator).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "true" | "false" => nodes.push(Node::Literal(Value::Bool(name == "true"))),
        other => return Err(format!("unrecognized identifier {other}")),
    }
    Ok(rest)
}

fn parse_number<'a>(text: &'a str, nodes: &mut Vec<Node>) -> Result<&'a str, String> {
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text.get(sign..).unwrap_or_default();
    let end = sign
        + digits
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .unwrap_or(digits.len());
    let (number, rest) = text.split_at(end);
    let plain = number.strip_prefix('+').unwrap_or(number);
    let value = match plain.parse::<i64>() {
        Ok(integer) => Value::from(integer),
        Err(_) => plain
            .parse::<f64>()
            .map(Value::from)
            .map_err(|_| format!("cannot parse number {number}"))?,
    };
    nodes.push(Node::Literal(value));
    Ok(rest)
}

fn parse_quoted<'a>(text: &'a str, quote: char, nodes: &mut Vec<Node>) -> Result<&'a str, String> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, escaped)) => out.push(escaped),
                None => break,
            },
            c if c == quote => {
                nodes.push(Node::Literal(Value::String(out)));
                return Ok(text.get(i + quote.len_utf8()..).unwrap_or_default());
            }
            c => out.push(c),
        }
    }
    Err("unterminated quoted string".to_owned())
}

fn parse_array<'a>(text: &'a str, nodes: &mut Vec<Node>, depth: usize) -> Result<&'a str, String> {
    let end = text.find([']', '\n']).ok_or("unterminated array")?;
    if text.get(end..=end) != Some("]") {
        return Err("unterminated array".to_owned());
    }
    let (inner, rest) = (
        text.get(..end).unwrap_or_default(),
        text.get(end + 1..).unwrap_or_default(),
    );
    if inner.contains(',') {
        let parts: Result<Vec<_>, _> = inner
            .split(',')
            .map(|part| parse_inside(&format!("[{}]", part.trim()), depth + 1))
            .collect();
        nodes.push(Node::Union(parts?));
        return Ok(rest);
    }
    let quoted = inner.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
    if let Some(key) = quoted.filter(|key| !key.contains('\'')) {
        nodes.push(Node::Field(key.replace('\\', "")));
        return Ok(rest);
    }
    nodes.push(Node::Slice(parse_slice(if inner == "*" { ":" } else { inner })?));
    Ok(rest)
}

fn parse_slice(text: &str) -> Result<Slice, String> {
    let invalid = || format!("invalid array index {text}");
    let parts: Vec<&str> = text.split(':').collect();
    let number = |part: &str| -> Result<Option<i64>, String> {
        let digits = part.strip_prefix('-').unwrap_or(part);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        if part.is_empty() {
            return Ok(None);
        }
        part.parse()
            .map(Some)
            .map_err(|_| format!("array index {part} is not a number"))
    };
    match parts.as_slice() {
        [index] => {
            let start = number(index)?;
            Ok(Slice {
                start,
                end: Some(start.unwrap_or(0) + 1),
                step: None,
                derived: true,
            })
        }
        [start, end] => Ok(Slice {
            start: number(start)?,
            end: number(end)?,
            step: None,
            derived: false,
        }),
        [start, end, step] => Ok(Slice {
            start: number(start)?,
            end: number(end)?,
            step: number(step)?,
            derived: false,
        }),
        _ => Err(invalid()),
    }
}

fn parse_filter<'a>(text: &'a str, nodes: &mut Vec<Node>, depth: usize) -> Result<&'a str, String> {
    let mut quote: Option<char> = None;
    let mut previous = ' ';
    let mut end = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (_, '\n') => break,
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q && previous != '\\' => quote = None,
            (None, ')') => {
                end = Some(i);
                break;
            }
            _ => {}
        }
        previous = c;
    }
    let end = end.ok_or("unterminated filter")?;
    let (condition, rest) = (
        text.get(..end).unwrap_or_default(),
        text.get(end + 1..).unwrap_or_default(),
    );
    let rest = rest.strip_prefix(']').ok_or("unclosed array expect ]")?;
    let at = condition.find(['!', '<', '>', '=']).filter(|at| *at > 0);
    let Some(at) = at else {
        let left = parse_inside(condition, depth + 1)?;
        nodes.push(Node::Filter {
            left,
            operator: Operator::Exists,
            right: Vec::new(),
        });
        return Ok(rest);
    };
    let (left, tail) = condition.split_at(at);
    let width = tail
        .find(|c| !"!<>=".contains(c))
        .ok_or_else(|| format!("invalid filter {condition}"))?;
    let (symbol, right) = tail.split_at(width);
    let operator = match symbol {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterEqual,
        other => return Err(format!("unrecognized filter operator {other}")),
    };
    nodes.push(Node::Filter {
        left: parse_inside(left, depth + 1)?,
        operator,
        right: parse_inside(right, depth + 1)?,
    });
    Ok(rest)
}
