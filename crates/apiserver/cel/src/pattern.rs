// SPDX-License-Identifier: Apache-2.0
//! Patterns in RE2 syntax, as Go reads them, for the `regex` crate. The two differ in a few
//! spellings: classes such as `\d` are ASCII in RE2, a lone brace or an inner bracket is literal,
//! and `\Q..\E` quotes. Compiled patterns are bounded in size.

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern.
const MAX_COMPILED: usize = 4 << 20;

/// The most repetitions that RE2 takes.
const MAX_REPEAT: u32 = 1_000;

/// Compiles an RE2 pattern; the error is worded like Go's.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    repetitions(pattern)?;
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

/// RE2 refuses a repetition of a repetition, and large counts.
fn repetitions(pattern: &str) -> Result<(), String> {
    let bytes = pattern.as_bytes();
    let (mut i, mut in_class, mut previous) = (0, false, None);
    while let Some(b) = bytes.get(i) {
        let length = match b {
            b'\\' => {
                previous = None;
                i += 2;
                continue;
            }
            b'[' if !in_class => {
                in_class = true;
                // A bracket right at the start is a member, not the end.
                let skip = if bytes.get(i + 1) == Some(&b'^') { 2 } else { 1 };
                i += if bytes.get(i + skip) == Some(&b']') {
                    skip + 1
                } else {
                    skip
                };
                previous = None;
                continue;
            }
            b']' if in_class => {
                in_class = false;
                0
            }
            b'*' | b'+' | b'?' if !in_class => 1,
            b'{' if !in_class && repetition(pattern.get(i..).unwrap_or_default()) => {
                count(pattern.get(i..).unwrap_or_default())?
            }
            _ => 0,
        };
        if length == 0 {
            previous = None;
            i += 1;
            continue;
        }
        let lazy = usize::from(bytes.get(i + length) == Some(&b'?'));
        let end = i + length + lazy;
        // Right after an opening parenthesis a question mark starts a flag.
        let opened = i > 0 && bytes.get(i - 1) == Some(&b'(');
        if let Some(start) = previous {
            let stacked = pattern.get(start..end).unwrap_or_default();
            return Err(format!(
                "error parsing regexp: invalid nested repetition operator: `{stacked}`"
            ));
        }
        previous = (!opened).then_some(i);
        i = end;
    }
    Ok(())
}

/// The length of `{n,m}`, if its numbers are small enough.
fn count(text: &str) -> Result<usize, String> {
    let end = text.find('}').unwrap_or_default() + 1;
    let braces = text.get(..end).unwrap_or_default();
    let numbers: Vec<Option<u32>> = braces
        .trim_matches(['{', '}'])
        .split(',')
        .filter(|n| !n.is_empty())
        .map(|n| n.parse().ok())
        .collect();
    let small = numbers.iter().all(|n| n.is_some_and(|n| n <= MAX_REPEAT));
    let ordered = !matches!(numbers.as_slice(), [Some(low), Some(high)] if low > high);
    if small && ordered {
        return Ok(end);
    }
    Err(format!("error parsing regexp: invalid repeat count: `{braces}`"))
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
                out.push_str("\\{");
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
        for good in [
            "a+?", "(?i)a*", "(?:a)+", "a{2,3}?", "[+*]+", r"\++", "(a+)+", "[]+]*", "[^]*]+",
        ] {
            assert!(compile(good).is_ok(), "{good}");
        }
        for bad in [
            "(", "[a", "*a", r"a\", r"(?=a)", r"\1", "x++", "x**", "a{2}{3}", "a+??", "a{1001}", "a{3,2}",
        ] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
