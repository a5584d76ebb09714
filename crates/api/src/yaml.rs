// SPDX-License-Identifier: Apache-2.0
//! Writes JSON values as YAML in one fixed style. Manifests are compared byte by byte in
//! tests and reviewed in diffs, so the style must not depend on a library's version.

use std::fmt::Write as _;

use serde_json::Value;

/// The value as a YAML document without markers, ending in a line break.
///
/// ```
/// let text = cobaltcore_api::yaml::to_yaml(&serde_json::json!({"a": [1, "yes"], "b": {}}));
/// assert_eq!(text, "a:\n- 1\n- \"yes\"\nb: {}\n");
/// ```
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_block(&mut text, value, 0),
        Value::Array(items) if !items.is_empty() => write_block(&mut text, value, 0),
        scalar => {
            text.push_str(&inline(scalar));
            text.push('\n');
        }
    }
    text
}

/// Writes a non-empty object or list, one entry per line.
fn write_block(text: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, entry) in map {
                let _ = write!(text, "{pad}{}:", plain_or_quoted(key));
                // A list inside an object stays at the object's indentation, as kubectl writes it.
                let deeper = if entry.is_array() { indent } else { indent + 2 };
                write_entry(text, entry, deeper);
            }
        }
        Value::Array(items) => {
            for item in items {
                if is_block(item) {
                    let start = text.len();
                    write_block(text, item, indent + 2);
                    // The first line of the item carries the dash instead of two spaces.
                    text.replace_range(start + indent..start + indent + 2, "- ");
                } else {
                    let _ = writeln!(text, "{pad}- {}", inline(item));
                }
            }
        }
        _ => {}
    }
}

fn write_entry(text: &mut String, entry: &Value, indent: usize) {
    if is_block(entry) {
        text.push('\n');
        write_block(text, entry, indent);
    } else {
        let _ = writeln!(text, " {}", inline(entry));
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => plain_or_quoted(text),
        // The schema type stores bounds as floating point; people and diffs expect `1`.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                format!("{float:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A text without quotes where no YAML reader can take it for something else.
fn plain_or_quoted(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./ ,'()".contains(c);
    // A path such as `.spec.reason` may stay plain, a number such as `.5` may not.
    let head = text.strip_prefix('.').unwrap_or(text);
    let reserved = [
        "true", "false", "yes", "no", "on", "off", "null", "y", "n", ".inf", ".nan",
    ];
    let plain = head.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.chars().all(safe)
        && !reserved.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back_alike() {
        let value = json!({
            "texts": ["plain", "with: colon", "# hash", "", " lead", "trail ", "true", "Null", "1", "1.5", ".5", ".spec.a",
                      "-", "- x", "a'b", "it's", "x\ny", "tab\t", "U+1F7E2 \u{1f7e2}", "{}", "[a]", "*a", "&a", "!t", "%", "@", "`", "?", "~", "0x1f", "1e3"],
            "numbers": [0, -3, 1.5, 7.0],
            "nested": [[1, [2, {"a": [], "b": {}}]], {"k": {"l": [{"m": null}, {"n": true, "o": [1]}]}}],
            "odd key: yes": 1,
            "on": false,
        });
        let text = to_yaml(&value);
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(normal(&read), normal(&value), "{text}");
    }

    /// Whole floating point numbers are the same number as the integer.
    fn normal(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(normal).collect(),
            Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), normal(v))).collect(),
            Value::Number(n) => json!(n.as_f64()),
            other => other.clone(),
        }
    }

    #[test]
    fn lists_sit_at_the_indentation_of_their_key() {
        let text = to_yaml(&json!({"a": [{"b": 1, "c": [2]}]}));
        assert_eq!(text, "a:\n- b: 1\n  c:\n  - 2\n");
    }
}
