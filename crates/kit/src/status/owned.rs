// SPDX-License-Identifier: Apache-2.0
//! Whether an apply would change anything: either because the object does not say what is
//! applied, or because the writer still owns something that is no longer applied.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

/// Keeps what an entry says as text. As a tree of small maps it takes ten times as much, and
/// a cache holds a dozen entries per object.
pub fn compact(entry: &mut ManagedFieldsEntry) {
    if let Some(FieldsV1(fields)) = &mut entry.fields_v1
        && fields.is_object()
    {
        *fields = Value::String(fields.to_string());
    }
}

/// What an entry says, whether it was kept as text or not.
pub fn owned_fields(entry: &ManagedFieldsEntry) -> Option<Cow<'_, Value>> {
    match entry.fields_v1.as_ref()? {
        FieldsV1(Value::String(text)) => serde_json::from_str(text).ok().map(Cow::Owned),
        FieldsV1(tree) => Some(Cow::Borrowed(tree)),
    }
}

/// Whether applying `wanted` over the status `current` as `manager` would change the object.
pub(super) fn would_change(
    current: &Value,
    wanted: &Value,
    managed: &[ManagedFieldsEntry],
    manager: &str,
) -> bool {
    let ours = managed.iter().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    });
    match ours.and_then(owned_fields) {
        // Without an entry of ours the first apply makes us the owner of what is there.
        None => wanted.as_object().is_some_and(|fields| !fields.is_empty()),
        Some(owned) => !contains(current, wanted, true) || !covers(wanted, &owned["f:status"]),
    }
}

/// Whether `current` says everything that `wanted` does. Objects may say more; lists must be
/// equal, except that conditions are matched by type.
fn contains(current: &Value, wanted: &Value, top: bool) -> bool {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => wanted.iter().all(|(name, value)| {
            let there = current.get(name);
            match (top && name == "conditions", value) {
                (true, Value::Array(conditions)) => {
                    conditions.iter().all(|condition| has_condition(there, condition))
                }
                _ => there.is_some_and(|there| contains(there, value, false)),
            }
        }),
        (current, wanted) => current == wanted,
    }
}

fn has_condition(conditions: Option<&Value>, wanted: &Value) -> bool {
    let mut all = conditions.and_then(Value::as_array).into_iter().flatten();
    all.any(|condition| condition["type"] == wanted["type"] && contains(condition, wanted, false))
}

/// Whether everything in the set `owned` (in the notation of managed fields) is in `value`.
fn covers(value: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else {
        return true;
    };
    owned.iter().all(|(step, below)| match step.split_once(':') {
        Some(("f", name)) => value.get(name).is_some_and(|child| covers(child, below)),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let mut items = value.as_array().into_iter().flatten();
            items.any(|item| {
                keys.iter().all(|(key, wanted)| item.get(key) == Some(wanted)) && covers(item, below)
            })
        }
        Some(("v", item)) => {
            let item: Value = serde_json::from_str(item).unwrap_or_default();
            value.as_array().is_some_and(|items| items.contains(&item))
        }
        // `.` says that the element itself is owned, which the steps above have seen to.
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
        .unwrap()
    }

    fn current() -> Value {
        json!({
            "traits": ["A", "B"], "evicted": false, "foreign": 1,
            "onboarding": {"attempts": 1, "serverId": "x"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready", "message": ""},
                {"type": "Tainted", "status": "False", "reason": "NoKubectl", "message": ""},
            ],
        })
    }

    fn ours() -> Vec<ManagedFieldsEntry> {
        vec![
            entry("other", &json!({"f:status": {"f:foreign": {}}})),
            entry(
                "ready",
                &json!({"f:status": {
                    "f:traits": {}, "f:onboarding": {"f:attempts": {}},
                    "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}, "f:reason": {}}},
                }}),
            ),
        ]
    }

    fn wanted() -> Value {
        json!({
            "traits": ["A", "B"], "onboarding": {"attempts": 1},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}],
        })
    }

    #[test]
    fn an_apply_that_says_what_is_there_changes_nothing() {
        assert!(!would_change(&current(), &wanted(), &ours(), "ready"));
        let mut kept = ours();
        kept.iter_mut().for_each(compact);
        assert!(!would_change(&current(), &wanted(), &kept, "ready"));
        assert!(
            kept.iter()
                .zip(ours())
                .all(|(kept, entry)| owned_fields(kept) == owned_fields(&entry))
        );
        let less = json!({"traits": ["A", "B"]});
        assert!(
            would_change(&current(), &less, &kept, "ready"),
            "what is given up is still known"
        );
    }

    #[test]
    fn changed_values_and_dropped_fields_are_changes() {
        type Edit = fn(&mut Value);
        let table: &[(&str, Edit)] = &[
            ("another order of an atomic list", |w| {
                w["traits"] = json!(["B", "A"]);
            }),
            ("an emptied list", |w| w["traits"] = json!([])),
            ("a new field", |w| w["evicted"] = json!(true)),
            ("another reason", |w| {
                w["conditions"][0]["reason"] = json!("Other");
            }),
            ("a new condition", |w| {
                w["conditions"] = json!([w["conditions"][0], {"type": "New", "status": "True"}]);
            }),
            ("a dropped field", |w| {
                drop(w.as_object_mut().unwrap().remove("traits"));
            }),
            ("a dropped condition", |w| {
                drop(w.as_object_mut().unwrap().remove("conditions"));
            }),
            ("a dropped nested field", |w| w["onboarding"] = json!({})),
        ];
        for (what, edit) in table {
            let mut wanted = wanted();
            edit(&mut wanted);
            assert!(would_change(&current(), &wanted, &ours(), "ready"), "{what}");
        }
    }

    #[test]
    fn the_first_apply_takes_ownership_even_of_equal_values() {
        assert!(would_change(&current(), &wanted(), &ours(), "newcomer"));
        assert!(
            !would_change(&current(), &json!({}), &ours(), "newcomer"),
            "nothing to own"
        );
    }

    #[test]
    fn the_same_name_with_another_operation_is_somebody_else() {
        let mut update = ours();
        update[1].operation = Some("Update".into());
        assert!(would_change(&current(), &wanted(), &update, "ready"));
    }
}
