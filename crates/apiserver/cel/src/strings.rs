// SPDX-License-Identifier: Apache-2.0
//! The string library: positions are counted in code points, as everywhere in CEL.

use cobaltcore_text::go;

use crate::eval::{BYTES_PER_WORK, Fail, Machine, Pattern, R};
use crate::kube;
use crate::node::Call;
use crate::value::Value;

/// The longest string a function may make.
const MAX_MADE: usize = 16 << 20;

impl<'a> Machine<'a> {
    /// Functions whose first argument, or receiver, is a string.
    pub(crate) fn string_function(
        &mut self,
        call: &'a Call,
        s: &str,
        rest: &[Value<'a>],
    ) -> R<Option<Value<'a>>> {
        let value = match (call.name, rest) {
            ("charAt", [Value::Int(i)]) => Value::owned(char_at(s, *i)?),
            ("indexOf", [Value::Str(sub)]) => Value::Int(index_of(s, sub.as_str(), 0)?),
            ("indexOf", [Value::Str(sub), Value::Int(from)]) => Value::Int(index_of(s, sub.as_str(), *from)?),
            ("lastIndexOf", [Value::Str(sub)]) => Value::Int(last_index_of(s, sub.as_str(), None)?),
            ("lastIndexOf", [Value::Str(sub), Value::Int(from)]) => {
                Value::Int(last_index_of(s, sub.as_str(), Some(*from))?)
            }
            ("lowerAscii", []) => Value::owned(s.to_ascii_lowercase()),
            ("upperAscii", []) => Value::owned(s.to_ascii_uppercase()),
            ("replace", [Value::Str(old), Value::Str(new)]) => {
                self.replaced(replace(s, old.as_str(), new.as_str(), -1)?)?
            }
            ("replace", [Value::Str(old), Value::Str(new), Value::Int(n)]) => {
                self.replaced(replace(s, old.as_str(), new.as_str(), *n)?)?
            }
            ("split", [Value::Str(sep)]) => self.strings(split(s, sep.as_str(), -1))?,
            ("split", [Value::Str(sep), Value::Int(n)]) => self.strings(split(s, sep.as_str(), *n))?,
            ("substring", [Value::Int(start)]) => Value::owned(substring(s, *start, None)?),
            ("substring", [Value::Int(start), Value::Int(end)]) => {
                Value::owned(substring(s, *start, Some(*end))?)
            }
            ("trim", []) => Value::owned(s.trim()),
            ("jsonpatch.escapeKey", []) => Value::owned(s.replace('~', "~0").replace('/', "~1")),
            ("strings.quote", []) => Value::owned(quote(s)),
            ("format", [Value::List(args)]) => {
                let text = crate::printf::format(s, args)?;
                self.work(text.len() as u64 / 16)?;
                Value::owned(text)
            }
            ("find", [Value::Str(pattern)]) => {
                let regex = self.search_pattern(call, pattern.as_str())?;
                Value::owned(regex.find(s).map_or("", |m| m.as_str()))
            }
            ("findAll", [Value::Str(pattern), limit @ ..]) => {
                let regex = self.search_pattern(call, pattern.as_str())?;
                let limit = match limit {
                    [Value::Int(n)] if *n >= 0 => usize::try_from(*n).unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                self.strings(
                    regex
                        .find_iter(s)
                        .take(limit)
                        .map(|m| m.as_str().to_owned())
                        .collect(),
                )?
            }
            (name @ ("semver" | "isSemver"), [Value::Bool(normalise)]) => {
                return kube::from_text(name, s, *normalise);
            }
            (name, []) => return kube::from_text(name, s, false),
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    fn search_pattern(&mut self, call: &'a Call, pattern: &str) -> R<Pattern<'a>> {
        match self.pattern(call, pattern) {
            Err(Fail::Error(e)) => Err(Fail::Error(format!("Illegal regex: {e}"))),
            other => other,
        }
    }

    /// A replacement can be much longer than what it was made from.
    fn replaced(&mut self, text: String) -> R<Value<'a>> {
        self.work(text.len() as u64 / BYTES_PER_WORK)?;
        Ok(Value::owned(text))
    }

    fn strings(&mut self, parts: Vec<String>) -> R<Value<'a>> {
        self.work(parts.len() as u64)?;
        Ok(Value::list(parts.into_iter().map(Value::owned).collect()))
    }
}

fn out_of_range(index: i64) -> Fail {
    Fail::Error(format!("index out of range: {index}"))
}

fn char_at(s: &str, index: i64) -> R<String> {
    let at = usize::try_from(index).map_err(|_| out_of_range(index))?;
    match s.chars().nth(at) {
        Some(c) => Ok(c.to_string()),
        None if at == s.chars().count() => Ok(String::new()),
        None => Err(out_of_range(index)),
    }
}

/// The byte offset of a code point.
fn byte_at(s: &str, index: usize) -> Option<usize> {
    s.char_indices().map(|(i, _)| i).chain([s.len()]).nth(index)
}

fn index_of(s: &str, sub: &str, from: i64) -> R<i64> {
    if sub.is_empty() {
        return Ok(from);
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let Some(offset) = byte_at(s, start) else {
        return Ok(-1);
    };
    let Some(tail) = s.get(offset..) else {
        return Ok(-1);
    };
    Ok(tail.find(sub).map_or(-1, |at| {
        (start + tail.get(..at).map_or(0, |t| t.chars().count())) as i64
    }))
}

fn last_index_of(s: &str, sub: &str, from: Option<i64>) -> R<i64> {
    let length = s.chars().count();
    if sub.is_empty() {
        return Ok(from.unwrap_or(length as i64));
    }
    let from = match from {
        None => length.saturating_sub(1),
        Some(f) => {
            let at = usize::try_from(f).map_err(|_| out_of_range(f))?;
            if at >= length {
                return Ok(-1);
            }
            at
        }
    };
    // The match must start at or before the offset.
    let Some(start) = byte_at(s, from) else {
        return Ok(-1);
    };
    let end = (start + sub.len()).min(s.len());
    let end = (end..=s.len())
        .find(|e| s.is_char_boundary(*e))
        .unwrap_or(s.len());
    let found = s
        .get(..end)
        .and_then(|head| head.rfind(sub))
        .filter(|at| *at <= start);
    Ok(found.map_or(-1, |at| s.get(..at).map_or(0, |h| h.chars().count()) as i64))
}

fn replace(s: &str, old: &str, new: &str, n: i64) -> R<String> {
    let limit = usize::try_from(n).unwrap_or(usize::MAX);
    let matches = s.matches(old).count().min(limit);
    if s.len().saturating_add(matches.saturating_mul(new.len())) > MAX_MADE {
        return Err(Fail::Budget);
    }
    Ok(s.replacen(old, new, limit))
}

fn split(s: &str, sep: &str, n: i64) -> Vec<String> {
    let owned = |parts: &mut dyn Iterator<Item = &str>| parts.map(str::to_owned).collect::<Vec<String>>();
    let limit = match n {
        0 => return Vec::new(),
        n if n < 0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    if !sep.is_empty() {
        return owned(&mut s.splitn(limit, sep));
    }
    let mut parts: Vec<String> = Vec::new();
    let mut rest = s;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            break;
        }
        parts.push(c.to_string());
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    if !rest.is_empty() {
        parts.push(rest.to_owned());
    }
    parts
}

fn substring(s: &str, start: i64, end: Option<i64>) -> R<String> {
    if let Some(end) = end
        && start > end
    {
        return Err(Fail::Error(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let offset = |index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|i| byte_at(s, i))
            .ok_or_else(|| out_of_range(index))
    };
    let from = offset(start)?;
    let to = end.map_or(Ok(s.len()), offset)?;
    Ok(s.get(from..to).unwrap_or_default().to_owned())
}

/// A CEL string literal of a text.
pub(crate) fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match go::short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
