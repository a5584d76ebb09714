// SPDX-License-Identifier: Apache-2.0
//! `'..%s..'.format([..])`, version 1 of the reference's formatter: doubles are shown the
//! English way, strings inside lists and maps are quoted.

use cobaltcore_text::go;

use crate::error::Issue;
use crate::eval::{Fail, R};
use crate::node::{Call, Kind, Node};
use crate::render;
use crate::ty::Ty;
use crate::value::{List, Value};

/// The longest text that is made.
const MAX_TEXT: usize = 16 << 20;
/// The most digits after the point.
const MAX_PRECISION: usize = 1_000;

/// Formats a text with a list of arguments.
pub(crate) fn format(text: &str, args: &List<'_>) -> R<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(tail) = rest.strip_prefix('%') {
            out.push('%');
            rest = tail;
            continue;
        }
        let Some(arg) = args.get(index) else {
            return Err(Fail::Error(format!("index {index} out of range")));
        };
        index += 1;
        let (clause, precision, tail) = clause(rest)?;
        out.push_str(&apply(clause, precision, &arg?)?);
        if out.len() > MAX_TEXT {
            return Err(Fail::Budget);
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// Checks the clauses of a literal text against the types of a literal list of arguments.
pub(crate) fn check(call: &Call, at: usize, issues: &mut Vec<Issue>) {
    let [
        Node {
            kind: Kind::Const(Value::Str(text)),
            ..
        },
        Node {
            kind: Kind::List(args),
            ..
        },
    ] = call.args.as_slice()
    else {
        return;
    };
    let mut rest = text.as_str();
    let mut used = 0;
    while let Some(found) = rest.find('%') {
        rest = rest.get(found + 1..).unwrap_or_default();
        if let Some(tail) = rest.strip_prefix('%') {
            rest = tail;
            continue;
        }
        let Some(arg) = args.get(used) else {
            issues.push(Issue {
                at,
                message: format!("index {used} out of range"),
            });
            return;
        };
        used += 1;
        match clause(rest) {
            Ok((letter, _, tail)) => {
                if let Some(wants) = unfit(letter, &arg.node.ty) {
                    let given = type_name(&arg.node.ty);
                    let message = format!("error during formatting: {wants}, was given {given}");
                    issues.push(Issue {
                        at: arg.node.at,
                        message,
                    });
                    return;
                }
                rest = tail;
            }
            Err(Fail::Error(message)) => {
                issues.push(Issue { at, message });
                return;
            }
            Err(Fail::Budget) => return,
        }
    }
    if args.len() > used {
        let message = format!(
            "too many arguments supplied to string.format (expected {used}, got {})",
            args.len()
        );
        issues.push(Issue { at, message });
    }
}

/// What a clause can be used on, if not on this type.
fn unfit(letter: char, ty: &Ty) -> Option<&'static str> {
    let fits = match letter {
        's' => !matches!(ty, Ty::Opaque(..) | Ty::Object(..)),
        'd' | 'o' => matches!(ty, Ty::Int | Ty::Uint),
        'f' | 'e' => matches!(ty, Ty::Double | Ty::String),
        'b' => matches!(ty, Ty::Int | Ty::Uint | Ty::Bool),
        _ => matches!(ty, Ty::Int | Ty::Uint | Ty::String | Ty::Bytes),
    };
    (!fits && !ty.is_dyn_or_error()).then(|| refusal(letter))
}

/// The words for a clause that does not take a value.
fn refusal(letter: char) -> &'static str {
    match letter {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    }
}

/// The plain name of a type.
fn type_name(ty: &Ty) -> String {
    match ty {
        Ty::List(_) => "list".into(),
        Ty::Map(..) => "map".into(),
        Ty::Type(_) => "type".into(),
        Ty::Null => "null_type".into(),
        Ty::Timestamp => "google.protobuf.Timestamp".into(),
        Ty::Duration => "google.protobuf.Duration".into(),
        Ty::Opaque(name, _) => (*name).to_owned(),
        other => other.to_string(),
    }
}

/// The letter of a clause, its precision, and what follows.
fn clause(text: &str) -> R<(char, usize, &str)> {
    let parse = |why: String| Fail::Error(format!("could not parse formatting clause: {why}"));
    let (precision, rest) = match text.strip_prefix('.') {
        None => (6, text),
        Some(tail) => {
            let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = tail.split_at_checked(digits).unwrap_or(("", tail));
            if rest.is_empty() {
                return Err(parse(
                    "error while parsing precision: could not find end of precision specifier".into(),
                ));
            }
            let precision = number.parse::<usize>().ok().filter(|p| *p <= MAX_PRECISION).ok_or_else(|| {
                parse(format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {number}: invalid syntax", number = go::quote(number)
                ))
            })?;
            (precision, rest)
        }
    };
    let Some(letter) = rest.chars().next() else {
        return Err(Fail::error("unexpected end of string"));
    };
    if !"sdfebxXo".contains(letter) {
        return Err(parse(format!("unrecognized formatting clause \"{letter}\"")));
    }
    Ok((
        letter,
        precision,
        rest.get(letter.len_utf8()..).unwrap_or_default(),
    ))
}

fn apply(clause: char, precision: usize, value: &Value<'_>) -> R<String> {
    let refuse = || {
        let wants = refusal(clause);
        Err(Fail::Error(format!(
            "error during formatting: {wants}, was given {}",
            value.type_name()
        )))
    };
    match (clause, value) {
        ('s', _) => string(value),
        ('d', Value::Int(i)) => Ok(i.to_string()),
        ('d', Value::Uint(u)) => Ok(u.to_string()),
        ('f', _) => match as_double(value) {
            Some(d) => Ok(fixed(d, precision)),
            None => refuse(),
        },
        ('e', _) => match as_double(value) {
            Some(d) => Ok(scientific(d, precision)),
            None => refuse(),
        },
        ('b', Value::Int(i)) => Ok(signed(*i, |u| format!("{u:b}"))),
        ('b', Value::Uint(u)) => Ok(format!("{u:b}")),
        ('b', Value::Bool(b)) => Ok(u8::from(*b).to_string()),
        ('o', Value::Int(i)) => Ok(signed(*i, |u| format!("{u:o}"))),
        ('o', Value::Uint(u)) => Ok(format!("{u:o}")),
        ('d' | 'b' | 'o', _) => refuse(),
        (letter, _) => {
            let hex = match value {
                Value::Int(i) => signed(*i, |u| format!("{u:x}")),
                Value::Uint(u) => format!("{u:x}"),
                Value::Str(s) => hex_bytes(s.as_str().as_bytes()),
                Value::Bytes(b) => hex_bytes(b),
                _ => return refuse(),
            };
            Ok(if letter == 'X' { hex.to_uppercase() } else { hex })
        }
    }
}

fn hex_bytes(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

fn signed(i: i64, show: impl Fn(u64) -> String) -> String {
    let digits = show(i.unsigned_abs());
    if i < 0 { format!("-{digits}") } else { digits }
}

/// A double, or one of the words for what JSON cannot say.
fn as_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(d) => Some(*d),
        Value::Str(s) => match s.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(d: f64) -> Option<String> {
    if d.is_nan() {
        return Some("NaN".into());
    }
    d.is_infinite().then(|| {
        if d > 0.0 {
            "\u{221e}".into()
        } else {
            "-\u{221e}".into()
        }
    })
}

/// Thousands are separated.
fn fixed(d: f64, precision: usize) -> String {
    if let Some(word) = special(d) {
        return word;
    }
    let plain = format!("{d:.precision$}");
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain.as_str()), |p| ("-", p));
    let (whole, fraction) = digits
        .split_once('.')
        .map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(c);
    }
    match fraction {
        Some(f) => format!("{sign}{grouped}.{f}"),
        None => format!("{sign}{grouped}"),
    }
}

fn scientific(d: f64, precision: usize) -> String {
    if let Some(word) = special(d) {
        return word;
    }
    let plain = format!("{d:.precision$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((plain.as_str(), "0"));
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |e| ("\u{207b}", e));
    let raised: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{mantissa}\u{d7}10{sign}{raised}")
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        '0'..='9' => char::from_u32(0x2070 + u32::from(digit) - u32::from('0')).unwrap_or(digit),
        other => other,
    }
}

fn string(value: &Value<'_>) -> R<String> {
    match value {
        Value::List(list) => {
            let mut parts = Vec::with_capacity(list.len());
            for item in list.iter() {
                parts.push(member(&item?)?);
            }
            Ok(format!("[{}]", parts.join(", ")))
        }
        Value::Map(map) => {
            let mut parts = Vec::with_capacity(map.len());
            for key in map.keys() {
                if let Some(value) = map.get(&key) {
                    parts.push((member(&key)?, member(&value?)?));
                }
            }
            parts.sort();
            let shown: Vec<String> = parts.into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
            Ok(format!("{{{}}}", shown.join(", ")))
        }
        Value::Optional(_) | Value::Opaque(_) => Err(Fail::Error(format!(
            "error during formatting: {}, was given {}",
            refusal('s'),
            value.type_name()
        ))),
        other => Ok(render::plain(other)),
    }
}

/// A value inside a list or map.
fn member(value: &Value<'_>) -> R<String> {
    Ok(match value {
        Value::Str(s) => go::quote(s.as_str()),
        Value::Bytes(b) => format!("b{}", go::quote(&String::from_utf8_lossy(b))),
        Value::Double(d) if d.is_finite() => format!("{d:.6}"),
        Value::Double(_) => go::quote(&render::plain(value)),
        Value::Timestamp(_) => format!("timestamp({})", go::quote(&render::plain(value))),
        Value::Duration(_) => format!("duration({})", go::quote(&render::plain(value))),
        other => string(other)?,
    })
}
