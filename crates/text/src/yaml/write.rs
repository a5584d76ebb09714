// SPDX-License-Identifier: Apache-2.0
//! Writes JSON values as YAML in one fixed style. Manifests are compared byte by byte in tests and
//! reviewed in diffs, so the style must not depend on a library's version.

use std::fmt::Write;

use serde_json::Value;

use super::read::finite;

/// A tree as a YAML document without markers, ending in a line break. Texts are quoted wherever a
/// reader of YAML 1.1 could take them for something else; texts of several lines become blocks.
///
/// ```
/// let text = cobaltcore_text::yaml::encode(&serde_json::json!({"a": [1, "yes"], "b": {}}));
/// assert_eq!(text, "a:\n- 1\n- \"yes\"\nb: {}\n");
/// ```
pub fn encode(value: &Value) -> String {
    write(value, is_plain, true)
}

/// A tree as a YAML document, where `plain` says which texts and keys may go without quotes. All
/// others are quoted, however many lines they have.
pub fn encode_where(value: &Value, plain: fn(&str) -> bool) -> String {
    write(value, plain, false)
}

fn write(value: &Value, plain: fn(&str) -> bool, blocks: bool) -> String {
    let mut writer = Writer {
        out: String::new(),
        plain,
        blocks,
    };
    writer.node(value, 0, false);
    writer.out
}

/// Whether a word means something of its own to some reader of YAML, in whatever case.
pub fn is_reserved(word: &str) -> bool {
    const WORDS: [&str; 11] = [
        "true", "false", "yes", "no", "on", "off", "null", "y", "n", ".inf", ".nan",
    ];
    WORDS.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

struct Writer {
    out: String,
    plain: fn(&str) -> bool,
    blocks: bool,
}

impl Writer {
    /// Writes a node and its line break; `inline` says that the cursor stands behind a dash already.
    fn node(&mut self, value: &Value, indent: usize, inline: bool) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (at, (key, child)) in map.iter().enumerate() {
                    self.pad(if at > 0 || !inline { indent } else { 0 });
                    self.text(key);
                    self.out.push(':');
                    self.child(child, indent);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                for (at, child) in list.iter().enumerate() {
                    self.pad(if at > 0 || !inline { indent } else { 0 });
                    self.out.push_str("- ");
                    self.node(child, indent + 2, true);
                }
            }
            Value::String(text) if self.blocks && is_block(text) => self.block(text, indent),
            leaf => {
                self.leaf(leaf);
                self.out.push('\n');
            }
        }
    }

    /// Writes what belongs to a key.
    fn child(&mut self, child: &Value, indent: usize) {
        let (block, indent) = match child {
            Value::Object(map) => (!map.is_empty(), indent + 2),
            Value::Array(list) => (!list.is_empty(), indent),
            _ => (false, indent + 2),
        };
        self.out.push(if block { '\n' } else { ' ' });
        self.node(child, indent, false);
    }

    /// A text of several lines, line by line.
    fn block(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        match text.strip_suffix('\n') {
            None => self.out.push('-'),
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => self.out.push('+'),
            Some(_) => {}
        }
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.pad(indent);
                self.out.push_str(line);
            }
        }
        self.out.push('\n');
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    fn leaf(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            // Whole numbers go without a fraction, as Go writes them.
            Value::Number(number) => {
                let whole = number
                    .as_f64()
                    .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
                // Writing to a string cannot fail.
                let _ = match whole {
                    Some(float) => write!(self.out, "{float:.0}"),
                    None => write!(self.out, "{number}"),
                };
            }
            other => {
                let _ = write!(self.out, "{other}");
            }
        }
    }

    fn text(&mut self, text: &str) {
        if (self.plain)(text) {
            self.out.push_str(text);
        } else {
            // Strings of JSON are strings of YAML.
            let _ = write!(self.out, "{}", Value::from(text));
        }
    }
}

/// Whether a text is written as a block: it has lines, and nothing in it gets lost that way.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.ends_with(' ')
        && !text.contains(" \n")
        && text
            .chars()
            .all(|c| c == '\n' || (!c.is_control() && c != '\u{feff}'))
}

/// Whether a reader of YAML 1.1 takes a bare text for just this string.
fn is_plain(text: &str) -> bool {
    let plain_start = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.'));
    plain_start
        && !text.ends_with(' ')
        && text.chars().all(|c| !c.is_control() && c != '\u{feff}')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
        && finite(text).is_ok_and(|value| value.is_string())
        && !looks_like_date(text)
}

fn looks_like_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes.iter().take(4).all(u8::is_ascii_digit) && bytes.get(4) == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::decode;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back_the_same() {
        let value = json!({"a": "yes", "b": ["1", 2, {"c": []}, [3, [4]]], "d": {"e": null, "f": "x: y", "g": {}},
            "h": "multi\nline", "i": "2026-01-01", "j": "", "k": "- x", "l": 1.5, "m": true,
            "texts": ["plain", "# hash", " lead", "trail ", "Null", "1.5", ".5", ".spec.a", "-", "a'b", "it's",
                "tab\t", "\u{1f7e2}", "{}", "[a]", "*a", "&a", "!t", "%", "@", "`", "?", "~", "0x1f", "1e3", "k:", "a #b",
                ".inf", "-.Inf", ".NaN"],
            "lines": ["a\nb\n", "a\n\n", " a\nb", {"c": "\nd"}, "tab\t\n", "e \nf"],
            "odd key: yes": 1, "on": false});
        let never: fn(&str) -> bool = |_| false;
        for text in [encode(&value), encode_where(&value, never)] {
            assert_eq!(decode(text.as_bytes()).unwrap().value, value, "{text}");
        }
    }

    #[test]
    fn the_style_is_that_of_kubectl() {
        for (value, text) in [
            (json!({"a": [{"b": 1, "c": [2]}]}), "a:\n- b: 1\n  c:\n  - 2\n"),
            (json!([[1, [2]], {}]), "- - 1\n  - - 2\n- {}\n"),
            (json!({"a": {"b": {}, "c": []}}), "a:\n  b: {}\n  c: []\n"),
            (json!([7.0, 1.5, -3]), "- 7\n- 1.5\n- -3\n"),
            (json!({"a": "b\nc"}), "a: |-\n  b\n  c\n"),
            (
                json!({"a": {"b": ["c\n\nd\n"]}}),
                "a:\n  b:\n  - |\n    c\n\n    d\n",
            ),
            (json!("x"), "x\n"),
            (json!({}), "{}\n"),
        ] {
            assert_eq!(encode(&value), text);
        }
    }

    #[test]
    fn the_caller_may_ask_for_more_quotes() {
        let words: fn(&str) -> bool = |text| text.chars().all(char::is_alphabetic) && !is_reserved(text);
        assert_eq!(
            encode_where(&json!({"a": "b", "c-d": "On"}), words),
            "a: b\n\"c-d\": \"On\"\n"
        );
    }
}
