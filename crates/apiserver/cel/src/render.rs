// SPDX-License-Identifier: Apache-2.0
//! Values as text: how `string()` converts them, how messages show them, and Go's shortest form
//! of a double.

use cobaltcore_text::go;

use crate::time;
use crate::value::{Opaque, Value};

/// A value as messages show it.
pub(crate) fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) => go::float_g(*d),
        Value::Str(s) => s.as_str().to_owned(),
        Value::Bytes(b) => String::from_utf8_lossy(b).into_owned(),
        Value::Timestamp(t) => t.format(),
        Value::Duration(d) => time::format_duration(*d),
        Value::List(list) => {
            let items: Vec<String> = list.iter().filter_map(Result::ok).map(|v| plain(&v)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<String> = map
                .keys()
                .iter()
                .filter_map(|k| {
                    map.get(k)
                        .and_then(Result::ok)
                        .map(|v| format!("{}: {}", plain(k), plain(&v)))
                })
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Type(t) => t.to_string(),
        Value::Optional(Some(v)) => format!("optional({})", plain(v)),
        Value::Optional(None) => "optional.none()".into(),
        Value::Opaque(o) => opaque(o),
    }
}

/// A value of a Kubernetes library as text.
pub(crate) fn opaque(value: &Opaque) -> String {
    match value {
        Opaque::Url(u) => u.to_string(),
        Opaque::Ip(ip) => ip.to_string(),
        Opaque::Cidr(c) => c.to_string(),
        Opaque::Quantity(q) => q.to_string(),
        Opaque::Semver(s) => s.to_string(),
        Opaque::Format(f) => (*f).to_owned(),
        Opaque::Authorizer(_)
        | Opaque::PathCheck(_)
        | Opaque::GroupCheck(_)
        | Opaque::ResourceCheck(_)
        | Opaque::Decision(_) => value.type_name().to_owned(),
    }
}
