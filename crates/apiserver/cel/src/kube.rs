// SPDX-License-Identifier: Apache-2.0
//! Members of the Kubernetes value types: parts of URLs, addresses and networks, arithmetic of
//! quantities, parts of versions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::eval::{Fail, R};
use crate::net::{Cidr, Ip};
use crate::quantity::Quantity;
use crate::semver::Semver;
use crate::url::Url;
use crate::value::{Key, Map, Opaque, Value};

/// Parts of a URL.
pub(crate) fn url_part<'a>(name: &str, url: &Url) -> Option<Value<'a>> {
    Some(match name {
        "getScheme" => Value::owned(url.scheme.as_str()),
        "getHost" => Value::owned(url.host.as_str()),
        "getHostname" => Value::owned(url.hostname()),
        "getPort" => Value::owned(url.port()),
        "getEscapedPath" => Value::owned(url.escaped_path()),
        "getQuery" => query(url),
        _ => return None,
    })
}

fn query<'a>(url: &Url) -> Value<'a> {
    let mut grouped: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for (key, value) in url.query() {
        grouped.entry(key).or_default().push(Value::owned(value));
    }
    let entries = grouped
        .into_iter()
        .map(|(k, values)| (Key::Str(k.clone()), (Value::owned(k), Value::list(values))))
        .collect();
    Value::Map(Map::Owned(Arc::new(entries)))
}

/// Questions to an address.
pub(crate) fn ip_part<'a>(name: &str, ip: &Ip) -> Option<Value<'a>> {
    Some(match name {
        "family" => Value::Int(ip.family()),
        "isUnspecified" => Value::Bool(ip.is_unspecified()),
        "isLoopback" => Value::Bool(ip.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(ip.is_link_local_multicast()),
        "isLinkLocalUnicast" => Value::Bool(ip.is_link_local_unicast()),
        "isGlobalUnicast" => Value::Bool(ip.is_global_unicast()),
        _ => return None,
    })
}

/// Questions to a network.
pub(crate) fn cidr_part<'a>(name: &str, cidr: &Cidr, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
    Ok(Some(match (name, rest) {
        ("ip", []) => Value::opaque(Opaque::Ip(cidr.ip())),
        ("prefixLength", []) => Value::Int(i64::from(cidr.prefix)),
        ("masked", []) => Value::opaque(Opaque::Cidr(cidr.masked())),
        ("containsIP", [Value::Str(s)]) => Value::Bool(cidr.contains(&Ip::parse(s.as_str())?)),
        ("containsCIDR", [Value::Str(s)]) => {
            let other = Cidr::parse(s.as_str())
                .map_err(|e| format!("network address parse error during conversion from string: {e}"))?;
            Value::Bool(cidr.contains_cidr(&other))
        }
        ("containsIP" | "containsCIDR", [Value::Opaque(o)]) => match (name, &**o) {
            ("containsIP", Opaque::Ip(ip)) => Value::Bool(cidr.contains(ip)),
            ("containsCIDR", Opaque::Cidr(other)) => Value::Bool(cidr.contains_cidr(other)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// Arithmetic and comparison of quantities.
pub(crate) fn quantity_part<'a>(name: &str, q: &Quantity, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
    let other = match rest {
        [] => None,
        [Value::Int(i)] if matches!(name, "add" | "sub") => Some(Quantity::from_int(*i)),
        [Value::Opaque(o)] => match &**o {
            Opaque::Quantity(other) => Some(other.clone()),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(match (name, other) {
        ("sign", None) => Value::Int(q.sign()),
        ("asApproximateFloat", None) => Value::Double(q.as_float()),
        ("isInteger", None) => Value::Bool(q.as_integer().is_some()),
        ("asInteger", None) => match q.as_integer() {
            Some(i) => Value::Int(i),
            None => return Err(Fail::error("cannot convert value to integer")),
        },
        ("isGreaterThan", Some(other)) => Value::Bool(q.compare(&other) == Ordering::Greater),
        ("isLessThan", Some(other)) => Value::Bool(q.compare(&other) == Ordering::Less),
        ("compareTo", Some(other)) => Value::Int(q.compare(&other) as i64),
        ("add", Some(other)) => Value::opaque(Opaque::Quantity(q.add(&other))),
        ("sub", Some(other)) => Value::opaque(Opaque::Quantity(q.sub(&other))),
        _ => return Ok(None),
    }))
}

/// Parts and comparison of versions.
pub(crate) fn semver_part<'a>(name: &str, v: &Semver, rest: &[Value<'a>]) -> Option<Value<'a>> {
    let number = |n: u64| Value::Int(n as i64);
    match (name, rest) {
        ("major", []) => return Some(number(v.major)),
        ("minor", []) => return Some(number(v.minor)),
        ("patch", []) => return Some(number(v.patch)),
        _ => {}
    }
    let [Value::Opaque(other)] = rest else { return None };
    let Opaque::Semver(other) = &**other else {
        return None;
    };
    let order = v.compare(other);
    Some(match name {
        "isGreaterThan" => Value::Bool(order == Ordering::Greater),
        "isLessThan" => Value::Bool(order == Ordering::Less),
        "compareTo" => Value::Int(order as i64),
        _ => return None,
    })
}

/// Values made from text.
pub(crate) fn from_text<'a>(name: &str, text: &str, normalise: bool) -> R<Option<Value<'a>>> {
    let made = match name {
        "url" => Opaque::Url(
            Url::parse(text).map_err(|e| format!("URL parse error during conversion from string: {e}"))?,
        ),
        "isURL" => return Ok(Some(Value::Bool(Url::parse(text).is_ok()))),
        "ip" => Opaque::Ip(Ip::parse(text)?),
        "isIP" => return Ok(Some(Value::Bool(Ip::parse(text).is_ok()))),
        "ip.isCanonical" => {
            return Ok(Some(Value::Bool(Ip::parse(text)?.to_string() == text)));
        }
        "cidr" => Opaque::Cidr(
            Cidr::parse(text)
                .map_err(|e| format!("network address parse error during conversion from string: {e}"))?,
        ),
        "isCIDR" => return Ok(Some(Value::Bool(Cidr::parse(text).is_ok()))),
        "quantity" => Opaque::Quantity(Quantity::parse(text)?),
        "isQuantity" => return Ok(Some(Value::Bool(Quantity::parse(text).is_ok()))),
        "semver" => Opaque::Semver(Semver::parse(text, normalise)?),
        "isSemver" => return Ok(Some(Value::Bool(Semver::parse(text, normalise).is_ok()))),
        "format.named" => {
            let found = crate::format::named(text).map(|f| Value::opaque(Opaque::Format(f)));
            return Ok(Some(found.map_or_else(Value::none, Value::some)));
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::opaque(made)))
}
