// SPDX-License-Identifier: Apache-2.0
//! Whether an object already says what would be applied. The server adds defaults, so the
//! object may say more; lists must have the same items in the same order.

use serde_json::Value;

/// Whether `current` says everything that `wanted` does.
pub(crate) fn covers(current: &Value, wanted: &Value) -> bool {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| current.get(key).is_some_and(|there| covers(there, value))),
        (Value::Array(current), Value::Array(wanted)) => {
            current.len() == wanted.len() && current.iter().zip(wanted).all(|(c, w)| covers(c, w))
        }
        (current, wanted) => current == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn more_is_fine_and_less_or_other_is_not() {
        let wanted = json!({"a": {"b": 1}, "l": [{"x": 1}]});
        let table = [
            (
                json!({"a": {"b": 1, "c": 2}, "l": [{"x": 1, "y": 2}], "d": 1}),
                true,
            ),
            (json!({"a": {"b": 2}, "l": [{"x": 1}]}), false),
            (json!({"a": {"b": 1}}), false),
            (json!({"a": {"b": 1}, "l": [{"x": 1}, {"x": 2}]}), false),
        ];
        for (current, expected) in table {
            assert_eq!(covers(&current, &wanted), expected, "{current}");
        }
    }
}
