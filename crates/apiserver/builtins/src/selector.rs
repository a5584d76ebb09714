// SPDX-License-Identifier: Apache-2.0
//! Label selectors as objects carry them (`matchLabels`, `matchExpressions`): the text form of
//! scales and tables, and whether a set of labels matches.

use serde_json::{Map, Value};

use crate::json::{entries, list, map, strings, text};

/// The selector as text, requirements in key order; empty for a selector without requirements.
pub fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in entries(selector, "matchLabels") {
        parts.push((
            key.clone(),
            format!("{key}={}", value.as_str().unwrap_or_default()),
        ));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values = strings(expression, "values");
        values.sort_unstable();
        let written = match text(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        parts.push((key.to_owned(), written));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts
        .into_iter()
        .map(|(_, written)| written)
        .collect::<Vec<_>>()
        .join(",")
}

/// A plain map of labels as text: `a=1,b=2`.
pub(crate) fn labels_text(labels: Option<&Map<String, Value>>) -> String {
    let parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.join(",")
}

/// Whether the selector has no requirement at all, and so matches everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    map(selector, "matchLabels").is_none_or(Map::is_empty) && list(selector, "matchExpressions").is_empty()
}

/// Whether labels satisfy a selector. An absent selector matches nothing, an empty one everything.
pub fn selector_matches(selector: Option<&Value>, labels: Option<&Map<String, Value>>) -> bool {
    let Some(selector) = selector else { return false };
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = entries(selector, "matchLabels").all(|(key, wanted)| value(key) == wanted.as_str());
    equal
        && list(selector, "matchExpressions").iter().all(|expression| {
            let found = value(text(expression, "key"));
            let listed = || found.is_some_and(|found| strings(expression, "values").contains(&found));
            match text(expression, "operator") {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// Whether labels contain every entry of a plain selector map; an empty map matches nothing.
pub(crate) fn map_matches(
    selector: Option<&Map<String, Value>>,
    labels: Option<&Map<String, Value>>,
) -> bool {
    selector.is_some_and(|selector| {
        !selector.is_empty()
            && selector
                .iter()
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    })
}
