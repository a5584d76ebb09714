// SPDX-License-Identifier: Apache-2.0
//! Patterns of schemas: RE2 syntax and semantics on top of the `regex` crate.
//!
//! The two dialects are close, but not the same: RE2 takes a lone `{` or `[` literally where
//! `regex` refuses it, its `\d`, `\s`, `\w` and `\b` are ASCII, and it knows no set operations in
//! classes. A pattern is rewritten before it is compiled, so that it accepts what it accepts there.

use regex::{Regex, RegexBuilder};

use crate::error::SchemaError;

const MAX_REPEAT: u32 = 1000;
const MAX_PROGRAM_BYTES: usize = 16 << 20;

/// Compiles a pattern; the error is worded as the reference words it.
pub fn compile(pattern: &str) -> Result<Regex, SchemaError> {
    let rewritten = rewrite(pattern).map_err(SchemaError::Pattern)?;
    RegexBuilder::new(&rewritten)
        .size_limit(MAX_PROGRAM_BYTES)
        .build()
        .map_err(|e| SchemaError::Pattern(explain(pattern, &e)))
}

fn explain(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let detail = if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if text.contains("unclosed character class") {
        let from = pattern
            .rfind('[')
            .and_then(|at| pattern.get(at..))
            .unwrap_or(pattern);
        format!("missing closing ]: `{from}`")
    } else if text.contains("repetition operator missing expression") {
        let operator = pattern.chars().find(|c| "*+?".contains(*c)).unwrap_or('*');
        format!("missing argument to repetition operator: `{operator}`")
    } else if text.contains("look-around") {
        let at = pattern.find("(?").unwrap_or(0);
        let operator: String = pattern.get(at..).unwrap_or_default().chars().take(3).collect();
        format!("invalid or unsupported Perl syntax: `{operator}`")
    } else if text.contains("invalid character class range") {
        let at = pattern.find('[').map_or(0, |at| at + 1);
        let range: String = pattern.get(at..).unwrap_or_default().chars().take(3).collect();
        format!("invalid character class range: `{range}`")
    } else if text.contains("escape") || text.contains("backreference") {
        let at = pattern.find('\\').unwrap_or(0);
        let escape: String = pattern.get(at..).unwrap_or_default().chars().take(2).collect();
        format!("invalid escape sequence: `{escape}`")
    } else {
        format!("invalid regular expression: `{pattern}`")
    };
    format!("error parsing regexp: {detail}")
}

fn rewrite(pattern: &str) -> Result<String, String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' => at = escape(&chars, at, &mut out, false),
            '[' => at = class(&chars, at, &mut out),
            '{' => at = braces(&chars, at, &mut out)?,
            '}' => {
                out.push_str("\\}");
                at += 1;
            }
            _ => {
                out.push(c);
                at += 1;
            }
        }
    }
    Ok(out)
}

fn escape(chars: &[char], at: usize, out: &mut String, in_class: bool) -> usize {
    let Some(&next) = chars.get(at + 1) else {
        out.push('\\');
        return at + 1;
    };
    let replacement = match (next, in_class) {
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('s', true) => "\\t\\n\\x0c\\r ",
        ('s', false) => "[\\t\\n\\x0c\\r ]",
        ('S', _) => "[^\\t\\n\\x0c\\r ]",
        ('w', true) => "0-9A-Za-z_",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('b', false) => "(?-u:\\b)",
        ('B', false) => "(?-u:\\B)",
        ('<', _) => "<",
        ('>', _) => ">",
        ('_', _) => "_",
        ('Q', _) => return literal(chars, at + 2, out),
        _ => "",
    };
    if replacement.is_empty() {
        out.push('\\');
        out.push(next);
        // `\p{Greek}` and `\x{10FFFF}` keep their braces.
        if "pPx".contains(next) && chars.get(at + 2) == Some(&'{') {
            let end = chars
                .iter()
                .skip(at)
                .position(|c| *c == '}')
                .map_or(chars.len(), |n| at + n + 1);
            out.extend(chars.get(at + 2..end).unwrap_or_default());
            return end;
        }
    } else {
        out.push_str(replacement);
    }
    at + 2
}

fn literal(chars: &[char], mut at: usize, out: &mut String) -> usize {
    while let Some(&c) = chars.get(at) {
        if c == '\\' && chars.get(at + 1) == Some(&'E') {
            return at + 2;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
        at += 1;
    }
    at
}

fn class(chars: &[char], start: usize, out: &mut String) -> usize {
    out.push('[');
    let mut at = start + 1;
    if chars.get(at) == Some(&'^') {
        out.push('^');
        at += 1;
    }
    let mut first = true;
    while let Some(&c) = chars.get(at) {
        match c {
            ']' if !first => {
                out.push(']');
                return at + 1;
            }
            ']' => out.push_str("\\]"),
            '[' if chars.get(at + 1) == Some(&':') => {
                let end = (at + 2..chars.len())
                    .find(|i| chars.get(*i) == Some(&':') && chars.get(*i + 1) == Some(&']'));
                match end {
                    Some(end) => {
                        out.extend(chars.get(at..end + 2).unwrap_or_default());
                        at = end + 2;
                        first = false;
                        continue;
                    }
                    None => out.push_str("\\["),
                }
            }
            '[' => out.push_str("\\["),
            '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '-' if chars.get(at + 1) == Some(&'-') => out.push_str("\\-"),
            '\\' => {
                at = escape(chars, at, out, true);
                first = false;
                continue;
            }
            _ => out.push(c),
        }
        first = false;
        at += 1;
    }
    at
}

fn braces(chars: &[char], at: usize, out: &mut String) -> Result<usize, String> {
    let close = chars.iter().skip(at).position(|c| *c == '}').map(|n| at + n);
    let body: Option<String> = close
        .and_then(|close| chars.get(at + 1..close))
        .map(|b| b.iter().collect());
    if let (Some(close), Some(body)) = (close, body) {
        let (low, high) = body.split_once(',').unwrap_or((&body, "0"));
        let number = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_digit());
        if number(low) && (high.is_empty() || number(high)) {
            let large = |s: &str| !s.is_empty() && s.parse::<u32>().map_or(true, |n| n > MAX_REPEAT);
            if large(low) || large(high) {
                return Err(format!(
                    "error parsing regexp: invalid repeat count: `{{{body}}}`"
                ));
            }
            out.push('{');
            out.push_str(&body);
            out.push('}');
            return Ok(close + 1);
        }
    }
    out.push_str("\\{");
    Ok(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_re2_accepts() {
        for (pattern, yes, no) in [
            (r"^[a-z]+$", "abc", "ab1"),
            (r"^\d+$", "12", "١٢"),
            (r"^[[]a$", "[a", "a"),
            (r"^{a}$", "{a}", "a"),
            (r"^a{2,3}$", "aa", "a"),
            (r"^[\w-]+$", "a_-", "a b"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^[[:alpha:]]+$", "ab", "a1"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^[a&&b]$", "&", "c"),
            (r"^\/x\-y$", "/x-y", "x"),
            (r"^[]a]$", "]", "b"),
        ] {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(regex.is_match(yes), "{pattern} should match {yes}");
            assert!(!regex.is_match(no), "{pattern} should not match {no}");
        }
    }

    #[test]
    fn refuses_in_the_words_of_the_reference() {
        for (pattern, text) in [
            ("a(b", "error parsing regexp: missing closing ): `a(b`"),
            ("a[b", "error parsing regexp: missing closing ]: `[b`"),
            (
                "*",
                "error parsing regexp: missing argument to repetition operator: `*`",
            ),
            ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
            (
                "(?=a)",
                "error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
            ),
        ] {
            assert_eq!(
                compile(pattern).map(|_| ()),
                Err(SchemaError::Pattern(text.to_owned())),
                "{pattern}"
            );
        }
    }
}
