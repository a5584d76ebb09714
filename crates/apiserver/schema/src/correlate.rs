// SPDX-License-Identifier: Apache-2.0
//! Which part of the old object a part of the new one corresponds to.
//!
//! Fields and map entries correspond by name, elements of list-maps by their keys; elements of
//! other lists correspond to nothing. Errors at a part that equals its counterpart are not held
//! against an update.

use serde_json::{Map, Value};

use crate::node::{ListType, Schema};

/// A part of the new object with its counterpart.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The schema both follow.
    pub schema: &'a Schema,
    /// The new value.
    pub new: &'a Value,
    /// The old value.
    pub old: &'a Value,
}

impl<'a> Pair<'a> {
    /// The pair of a field or map entry, if both sides have it and the schema knows it.
    pub fn field(&self, name: &str) -> Option<Pair<'a>> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        let schema = self.schema.child(name).filter(|s| !s.is_opaque())?;
        Some(Pair { schema, new, old })
    }

    /// The pair of a list element, if the list is a list-map and the old one has the same keys.
    pub fn element(&self, index: usize) -> Option<Pair<'a>> {
        let ListType::Map(keys) = &self.schema.list_type else {
            return None;
        };
        let new = self.new.as_array()?.get(index)?;
        let old = find_by_keys(self.old.as_array()?, keys, new)?;
        Some(Pair {
            schema: self.schema.element()?,
            new,
            old,
        })
    }

    /// Whether both sides are the same. Parts the schema does not describe never count as equal.
    pub fn unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if matches!(self.schema.list_type, ListType::Map(_)) {
                    return (0..new.len()).all(|i| self.element(i).is_some_and(|p| p.unchanged()));
                }
                new == old
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|k| self.field(k).is_some_and(|p| p.unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The element of a list-map that has the same keys as `wanted`.
pub fn find_by_keys<'a>(list: &'a [Value], keys: &[String], wanted: &Value) -> Option<&'a Value> {
    let wanted = wanted.as_object()?;
    if keys.is_empty() || !keys.iter().all(|k| wanted.get(k).is_some_and(is_scalar)) {
        return None;
    }
    list.iter()
        .find(|item| item.as_object().is_some_and(|item| same_keys(item, wanted, keys)))
}

fn same_keys(a: &Map<String, Value>, b: &Map<String, Value>, keys: &[String]) -> bool {
    keys.iter()
        .all(|k| a.get(k).is_some_and(|v| is_scalar(v) && Some(v) == b.get(k)))
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    #[test]
    fn list_maps_correspond_by_key_and_ignore_order() {
        let schema = parse(
            &json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}}),
        );
        let old = json!([{"n": "a", "v": 1}, {"n": "b", "v": 2}]);
        let new = json!([{"n": "b", "v": 2}, {"n": "a", "v": 1}]);
        let pair = Pair {
            schema: &schema,
            new: &new,
            old: &old,
        };
        assert!(pair.unchanged());
        assert_eq!(
            pair.element(0).map(|p| p.old.clone()),
            Some(json!({"n": "b", "v": 2}))
        );
        let changed = json!([{"n": "b", "v": 3}, {"n": "c", "v": 1}]);
        let pair = Pair {
            schema: &schema,
            new: &changed,
            old: &old,
        };
        assert!(!pair.unchanged());
        assert!(pair.element(1).is_none());
    }

    #[test]
    fn undescribed_fields_never_count_as_unchanged() {
        let schema = parse(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let value = json!({"a": 1});
        assert!(
            !Pair {
                schema: &schema,
                new: &value,
                old: &value
            }
            .unchanged()
        );
    }
}
