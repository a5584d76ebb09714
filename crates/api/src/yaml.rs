// SPDX-License-Identifier: Apache-2.0
//! Manifests as YAML. They are read by people and by every kind of YAML reader, so texts are
//! quoted more often than the API's own answers quote them.

use cobaltcore_text::yaml::{encode_where, is_reserved};
use serde_json::Value;

/// The value as a YAML document without markers, ending in a line break.
///
/// ```
/// let text = cobaltcore_api::yaml::to_yaml(&serde_json::json!({"a": [1, "yes"], "b": {}}));
/// assert_eq!(text, "a:\n- 1\n- \"yes\"\nb: {}\n");
/// ```
pub fn to_yaml(value: &Value) -> String {
    encode_where(value, is_plain)
}

/// Whether no YAML reader can take a text for something else.
fn is_plain(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./ ,'()".contains(c);
    // A path such as `.spec.reason` may stay plain, a number such as `.5` may not.
    let head = text.strip_prefix('.').unwrap_or(text);
    head.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.chars().all(safe)
        && !is_reserved(text)
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
