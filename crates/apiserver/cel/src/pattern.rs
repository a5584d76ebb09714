// SPDX-License-Identifier: Apache-2.0
//! Patterns in RE2 syntax, as Go reads them, for the `regex` crate. The two differ in a few
//! spellings: classes such as `\d` are ASCII in RE2, a lone brace or an inner bracket is literal,
//! and `\Q..\E` quotes. Compiled patterns are bounded in size.

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern.
const MAX_COMPILED: usize = 4 << 20;

/// Compiles an RE2 pattern; the error is worded like Go's.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated)
        .size_limit(MAX_COMPILED)
        .nest_limit(250)
        .build()
        .map_err(|e| explain(pattern, &e))
}

fn explain(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let go = match reason {
        r if r.starts_with("unclosed group") => "missing closing )".to_owned(),
        r if r.starts_with("unopened group") => "unexpected )".to_owned(),
        r if r.starts_with("unclosed character class") => "missing closing ]".to_owned(),
        r if r.starts_with("repetition operator missing expression") => {
            "missing argument to repetition operator".to_owned()
        }
        r if r.starts_with("Compiled regex exceeds size limit") => "expression too large".to_owned(),
        r if r.starts_with("look-around") => "invalid or unsupported Perl syntax".to_owned(),
        r if r.starts_with("invalid character class range") => "invalid character class range".to_owned(),
        r if r.starts_with("incomplete escape sequence") => {
            "trailing backslash at end of expression".to_owned()
        }
        r if r.starts_with("unrecognized escape sequence") || r.starts_with("backreferences") => {
            "invalid escape sequence".to_owned()
        }
        r => r.to_owned(),
    };
    format!("error parsing regexp: {go}: `{pattern}`")
}

/// Rewrites what the two syntaxes spell differently.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.char_indices().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some((i, c)) = chars.next() {
        let first_in_class = class_start;
        class_start = false;
        match c {
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    return Err("error parsing regexp: trailing backslash at end of expression: ``".into());
                };
                if escaped == 'Q' && !in_class {
                    let rest = pattern.get(i + 2..).unwrap_or_default();
                    let quoted = rest.split("\\E").next().unwrap_or(rest);
                    out.push_str(&regex::escape(quoted));
                    let end = i + 2 + quoted.len() + 2;
                    while chars.peek().is_some_and(|(at, _)| *at < end) {
                        chars.next();
                    }
                    continue;
                }
                escape(escaped, in_class, &mut out);
            }
            '[' if in_class => {
                // `[[:alpha:]]` is a class in both; any other inner bracket is a literal in RE2.
                if pattern
                    .get(i..)
                    .is_some_and(|r| r.starts_with("[:") && r.contains(":]"))
                {
                    let end = i + pattern.get(i..).and_then(|r| r.find(":]")).unwrap_or(0) + 2;
                    out.push_str(pattern.get(i..end).unwrap_or("["));
                    while chars.peek().is_some_and(|(at, _)| *at < end) {
                        chars.next();
                    }
                } else {
                    out.push_str("\\[");
                }
            }
            '[' => {
                in_class = true;
                class_start = true;
                out.push('[');
            }
            '^' if in_class && first_in_class => {
                class_start = true;
                out.push('^');
            }
            ']' if in_class && first_in_class => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.peek().is_some_and(|(_, n)| *n == '-') => out.push_str("\\-"),
            '{' if !in_class
                && !repetition(pattern.get(i..).unwrap_or_default())
                && !property(pattern, i) =>
            {
                out.push_str("\\{")
            }
            '}' if !in_class && !closes_repetition(pattern, i) => out.push_str("\\}"),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Whether a text starts with `{n}`, `{n,}` or `{n,m}`.
fn repetition(text: &str) -> bool {
    let Some((inside, _)) = text.get(1..).and_then(|t| t.split_once('}')) else {
        return false;
    };
    let (low, high) = inside.split_once(',').unwrap_or((inside, ""));
    !low.is_empty() && low.bytes().all(|b| b.is_ascii_digit()) && high.bytes().all(|b| b.is_ascii_digit())
}

fn closes_repetition(pattern: &str, at: usize) -> bool {
    let before = pattern.get(..at).unwrap_or_default();
    match before.rfind('{') {
        Some(open) => {
            let braces = pattern.get(open..=at).unwrap_or_default();
            repetition(braces) || braces.starts_with("{^") || property(before, open)
        }
        None => false,
    }
}

/// Whether a brace belongs to `\p{..}` or `\x{..}`.
fn property(before: &str, open: usize) -> bool {
    let head = before.get(..open).unwrap_or_default();
    ["\\p", "\\P", "\\x"].iter().any(|p| head.ends_with(p))
}

/// An escape; Perl classes are ASCII only.
fn escape(c: char, in_class: bool, out: &mut String) {
    let class = match c {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\x0C\\r ",
        'b' if !in_class => {
            out.push_str("(?-u:\\b)");
            return;
        }
        'C' if !in_class => {
            out.push_str("(?s:.)");
            return;
        }
        // Only these mean something in both; RE2 refuses other letters.
        c if c.is_ascii_alphanumeric() => {
            out.push('\\');
            out.push(c);
            return;
        }
        c => {
            out.push_str(&regex::escape(&c.to_string()));
            return;
        }
    };
    if in_class && !class.starts_with('^') {
        out.push_str(class);
    } else {
        out.push('[');
        out.push_str(class);
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn re2_spellings_mean_the_same() {
        for (pattern, text, want) in [
            ("^[a-z]+$", "abc", true),
            (r"^\d+$", "123", true),
            (r"^\d+$", "\u{661}", false),
            (r"^\w+$", "\u{e9}", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[\D]+$", "abc", true),
            (r"^a{$", "a{", true),
            (r"^{}$", "{}", true),
            (r"^a{2}$", "aa", true),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "bc", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[a&&b]+$", "&", true),
            (r"^\p{Greek}+$", "\u{3b1}", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^\x{41}$", "A", true),
        ] {
            match compile(pattern) {
                Ok(regex) => assert_eq!(regex.is_match(text), want, "{pattern} on {text}"),
                Err(e) => assert!(!want, "{pattern}: {e}"),
            }
        }
        for bad in ["(", "[a", "*a", r"a\", r"(?=a)", r"\1"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
