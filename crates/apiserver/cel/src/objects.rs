// SPDX-License-Identifier: Apache-2.0
//! Objects that expressions make: `Object{...}` and `Object.spec{...}` for apply configurations,
//! `JSONPatch{...}` for operations. Only environments that ask for them have them; everywhere else
//! the names are unknown, as in the reference.

use std::sync::Arc;

use cel::common::ast::{EntryExpr, StructExpr};
use cobaltcore_text::go;
use serde_json::{Map as JsonMap, Value as Json};

use crate::check::{Checker, undeclared};
use crate::node::{Entry, Kind, Node};
use crate::render;
use crate::time;
use crate::ty::Ty;
use crate::value::Value;

/// The type of a whole object; parts are named by their path, `Object.spec.template`.
pub(crate) const ROOT: &str = "Object";
/// The type of a patch operation.
pub(crate) const OPERATION: &str = "JSONPatch";

/// Whether a function is known only where objects can be made.
pub(crate) fn only_there(function: &str) -> bool {
    function.starts_with("jsonpatch.")
}

impl Checker<'_> {
    /// `Name{field: value}`.
    pub(crate) fn object(&mut self, literal: &StructExpr, at: usize) -> Node {
        let name = literal.type_name.trim_start_matches('.');
        let known = name == OPERATION || name.split('.').next() == Some(ROOT);
        if !self.env.makes_objects() || !known {
            self.report(at, undeclared(&literal.type_name));
            return Self::failed(at);
        }
        let mut entries = Vec::with_capacity(literal.entries.len());
        for entry in &literal.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                continue;
            };
            let place = self.at(entry.id);
            let value = self.check(&field.value);
            let given = self.maybe_optional(&value, field.optional);
            if let Some(wrong) = self.misfit(name, &field.field, &given) {
                self.report(place, wrong);
            }
            let key = Node {
                kind: Kind::Const(Value::owned(field.field.clone())),
                ty: Ty::String,
                at: place,
            };
            entries.push(Entry {
                key,
                value,
                optional: field.optional,
            });
        }
        Node {
            kind: Kind::Map(entries),
            ty: Ty::Object(Arc::from(name), Arc::default()),
            at,
        }
    }

    /// Why a value cannot stand in a field.
    fn misfit(&mut self, object: &str, field: &str, given: &Ty) -> Option<String> {
        if object == OPERATION {
            let wanted = match field {
                "op" | "path" | "from" => Ty::String,
                "value" => Ty::Dyn,
                _ => return Some(format!("undefined field '{field}'")),
            };
            let fits = self.bindings.assign(given, &wanted);
            return (!fits).then(|| {
                let given = self.bindings.resolve(given, true);
                format!("expected type of field '{field}' is '{wanted}' but provided type is '{given}'")
            });
        }
        let expected = format!("{object}.{field}");
        let found = made_type(given)?;
        (*found != *expected).then(|| {
            format!(
                "unexpected type name {}, expected {}, which matches field name path from root Object type",
                go::quote(found),
                go::quote(&expected)
            )
        })
    }
}

/// The name of the object type of a value or of the elements of a list.
fn made_type(ty: &Ty) -> Option<&str> {
    match ty {
        Ty::Object(name, _) if name.split('.').next() == Some(ROOT) => Some(name),
        Ty::List(element) => made_type(element),
        other => other.unwrap_optional().and_then(made_type),
    }
}

/// A value in JSON.
pub(crate) fn to_json(value: &Value<'_>) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::from(*b),
        Value::Int(i) => Json::from(*i),
        Value::Uint(u) => Json::from(*u),
        Value::Double(d) => serde_json::Number::from_f64(*d)
            .map(Json::Number)
            .ok_or_else(|| format!("{} has no form in JSON", go::float_g(*d)))?,
        Value::Str(s) => Json::from(s.as_str()),
        Value::Bytes(b) => Json::from(crate::base64::encode(b)),
        Value::Timestamp(t) => Json::from(t.format()),
        Value::Duration(d) => Json::from(time::format_duration(*d)),
        Value::List(list) => list
            .iter()
            .map(|item| to_json(&item?))
            .collect::<Result<Vec<_>, _>>()
            .map(Json::Array)?,
        Value::Map(map) => {
            let mut out = JsonMap::new();
            for key in map.keys() {
                let Value::Str(name) = &key else {
                    return Err(format!("a key of type {} has no form in JSON", key.type_name()));
                };
                if let Some(value) = map.get(&key) {
                    out.insert(name.as_str().to_owned(), to_json(&value?)?);
                }
            }
            Json::Object(out)
        }
        Value::Opaque(opaque) => Json::from(render::opaque(opaque)),
        Value::Type(_) | Value::Optional(_) => {
            return Err(format!(
                "a value of type {} has no form in JSON",
                value.type_name()
            ));
        }
    })
}
