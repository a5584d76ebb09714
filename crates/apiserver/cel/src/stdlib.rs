// SPDX-License-Identifier: Apache-2.0
//! Functions of the language itself: sizes, conversions, string tests, time parts, optionals,
//! and the dispatch to the libraries.

use crate::cost;
use crate::eval::{BYTES_PER_WORK, Fail, Machine, R, no_function};
use crate::format;
use crate::node::Call;
use crate::render;
use crate::time::{self, Time};
use crate::value::{Opaque, Value};

impl<'a> Machine<'a> {
    /// Runs a function on evaluated arguments.
    #[inline(never)]
    pub(crate) fn function(&mut self, call: &'a Call, args: &[Value<'a>]) -> R<Value<'a>> {
        let name = call.name;
        self.work(args.iter().map(cost::bytes).sum::<u64>() / BYTES_PER_WORK)?;
        // The reference converts literals when it plans the program.
        let planned = call.is_conversion() && call.args.iter().all(crate::node::Node::is_const);
        if !planned {
            self.charge(cost::function(name, args))?;
        }
        let result = match args {
            [Value::Str(s), rest @ ..] => match self.string_test(call, s.as_str(), rest)? {
                Some(value) => Some(value),
                None => self.string_function(call, s.as_str(), rest)?,
            },
            [Value::List(list), rest @ ..] => self.list_function(call, list, rest)?,
            [Value::Opaque(o), rest @ ..] => opaque_function(name, o, rest)?,
            [Value::Timestamp(t)] => time_part(name, *t, None)?,
            [Value::Timestamp(t), Value::Str(zone)] => time_part(name, *t, Some(zone.as_str()))?,
            [Value::Duration(d)] => time::duration_part(*d, name).map(Value::Int),
            [Value::Optional(inner), rest @ ..] => optional_function(name, inner.as_deref(), rest)?,
            [] => nullary(name),
            _ => None,
        };
        match result {
            Some(value) => Ok(value),
            None => match general(name, args)? {
                Some(value) => Ok(value),
                None => Err(no_function(name, args)),
            },
        }
    }

    /// The tests on strings that rules use most.
    fn string_test(&mut self, call: &'a Call, s: &str, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
        let [Value::Str(other)] = rest else {
            return Ok(None);
        };
        let other = other.as_str();
        Ok(Some(Value::Bool(match call.name {
            "startsWith" => s.starts_with(other),
            "endsWith" => s.ends_with(other),
            "contains" => s.contains(other),
            "matches" => {
                let regex = self.pattern(call, other)?;
                regex.is_match(s)
            }
            _ => return Ok(None),
        })))
    }
}

/// Functions that take a value of any type.
fn general<'a>(name: &str, args: &[Value<'a>]) -> R<Option<Value<'a>>> {
    let [value] = args else { return Ok(None) };
    Ok(Some(match name {
        "size" => match value {
            Value::Str(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => {
                Value::Int(value.cost_size() as i64)
            }
            _ => return Ok(None),
        },
        "type" => Value::Type(std::sync::Arc::from(value.type_name())),
        "dyn" => value.clone(),
        "optional.of" => Value::some(value.clone()),
        "optional.ofNonZeroValue" => {
            if value.is_zero() {
                Value::none()
            } else {
                Value::some(value.clone())
            }
        }
        "bool" | "bytes" | "double" | "duration" | "int" | "string" | "timestamp" | "uint" => {
            return convert(name, value).map(Some);
        }
        "lists.range" => match value {
            Value::Int(n) => Value::list((0..*n).map(Value::Int).collect()),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn nullary<'a>(name: &'static str) -> Option<Value<'a>> {
    if name == "optional.none" {
        return Some(Value::none());
    }
    let format = name.strip_prefix("format.").and_then(format::named)?;
    Some(Value::opaque(Opaque::Format(format)))
}

fn time_part<'a>(name: &str, t: Time, zone: Option<&str>) -> R<Option<Value<'a>>> {
    if !name.starts_with("get") {
        return Ok(None);
    }
    let civil = t.civil(zone)?;
    Ok(time::part(civil, name).map(Value::Int))
}

fn optional_function<'a>(name: &str, inner: Option<&Value<'a>>, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
    Ok(Some(match (name, rest) {
        ("value", []) => match inner {
            Some(value) => value.clone(),
            None => return Err(Fail::error("optional.none() dereference")),
        },
        ("hasValue", []) => Value::Bool(inner.is_some()),
        _ => return Ok(None),
    }))
}

/// Functions of the Kubernetes value types.
fn opaque_function<'a>(name: &str, value: &Opaque, rest: &[Value<'a>]) -> R<Option<Value<'a>>> {
    match value {
        Opaque::Url(url) => Ok(crate::kube::url_part(name, url)),
        Opaque::Ip(ip) => Ok(crate::kube::ip_part(name, ip)),
        Opaque::Cidr(cidr) => crate::kube::cidr_part(name, cidr, rest),
        Opaque::Quantity(q) => crate::kube::quantity_part(name, q, rest),
        Opaque::Semver(v) => Ok(crate::kube::semver_part(name, v, rest)),
        Opaque::Authorizer(_)
        | Opaque::PathCheck(_)
        | Opaque::GroupCheck(_)
        | Opaque::ResourceCheck(_)
        | Opaque::Decision(_) => crate::authorizer::call(name, value, rest),
        Opaque::Format(f) => Ok(match (name, rest) {
            ("validate", [Value::Str(s)]) => {
                let errors = format::validate(f, s.as_str());
                Some(if errors.is_empty() {
                    Value::none()
                } else {
                    Value::some(Value::list(errors.into_iter().map(Value::owned).collect()))
                })
            }
            _ => None,
        }),
    }
}

/// Type conversions.
pub(crate) fn convert<'a>(to: &str, value: &Value<'a>) -> R<Value<'a>> {
    let fail = |target: &str| {
        Fail::Error(format!(
            "type conversion error from '{}' to '{target}'",
            value.type_name()
        ))
    };
    match (to, value) {
        ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("double", Value::Double(_))
        | ("duration", Value::Duration(_))
        | ("int", Value::Int(_))
        | ("string", Value::Str(_))
        | ("timestamp", Value::Timestamp(_))
        | ("uint", Value::Uint(_)) => Ok(value.clone()),
        ("bool", Value::Str(s)) => go_bool(s.as_str()).map(Value::Bool).ok_or_else(|| fail("bool")),
        ("bytes", Value::Str(s)) => Ok(Value::Bytes(s.as_str().as_bytes().into())),
        ("double", Value::Int(i)) => Ok(Value::Double(*i as f64)),
        ("double", Value::Uint(u)) => Ok(Value::Double(*u as f64)),
        ("double", Value::Str(s)) => s.as_str().parse().map(Value::Double).map_err(|_| fail("double")),
        ("duration", Value::Str(s)) => time::parse_duration(s.as_str())
            .map(Value::Duration)
            .ok_or_else(|| fail("google.protobuf.Duration")),
        ("timestamp", Value::Str(s)) => Time::parse(s.as_str())
            .map(Value::Timestamp)
            .ok_or_else(|| fail("google.protobuf.Timestamp")),
        ("timestamp", Value::Int(i)) => Time::from_second(*i)
            .map(Value::Timestamp)
            .ok_or_else(|| Fail::error("timestamp overflow")),
        ("int", _) => to_int(value, &fail),
        ("uint", _) => to_uint(value, &fail),
        ("string", _) => to_string(value, &fail),
        (other, _) => Err(fail(other)),
    }
}

fn to_int<'a>(value: &Value<'a>, fail: &dyn Fn(&str) -> Fail) -> R<Value<'a>> {
    let overflow = || Fail::error("integer overflow");
    Ok(Value::Int(match value {
        Value::Uint(u) => i64::try_from(*u).map_err(|_| overflow())?,
        // The bounds themselves are not exact in a double, so they are out of range.
        Value::Double(d) if *d > -9_223_372_036_854_775_808.0 && *d < 9_223_372_036_854_775_808.0 => {
            *d as i64
        }
        Value::Double(_) => return Err(overflow()),
        Value::Str(s) => s.as_str().parse().map_err(|_| fail("int"))?,
        Value::Timestamp(t) => t.second(),
        Value::Duration(d) => *d,
        _ => return Err(fail("int")),
    }))
}

fn to_uint<'a>(value: &Value<'a>, fail: &dyn Fn(&str) -> Fail) -> R<Value<'a>> {
    let overflow = || Fail::error("unsigned integer overflow");
    Ok(Value::Uint(match value {
        Value::Int(i) => u64::try_from(*i).map_err(|_| overflow())?,
        Value::Double(d) if *d >= 0.0 && *d < 18_446_744_073_709_551_616.0 => *d as u64,
        Value::Double(_) => return Err(overflow()),
        Value::Str(s) if !s.as_str().starts_with('+') => s.as_str().parse().map_err(|_| fail("uint"))?,
        _ => return Err(fail("uint")),
    }))
}

fn to_string<'a>(value: &Value<'a>, fail: &dyn Fn(&str) -> Fail) -> R<Value<'a>> {
    match value {
        Value::Bytes(b) => match std::str::from_utf8(b) {
            Ok(s) => Ok(Value::owned(s)),
            Err(_) => Err(Fail::error("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Timestamp(_)
        | Value::Duration(_) => Ok(Value::owned(render::plain(value))),
        Value::Opaque(o) if matches!(**o, Opaque::Ip(_) | Opaque::Cidr(_)) => {
            Ok(Value::owned(render::opaque(o)))
        }
        _ => Err(fail("string")),
    }
}

/// The words Go takes for a boolean.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
