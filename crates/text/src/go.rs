// SPDX-License-Identifier: Apache-2.0
//! How Go prints values. Messages of the reference embed `%v`, `%#v`, `%q` and `%T` of what was
//! decoded, and clients match on them, so they are rebuilt here exactly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Number, Value};

/// `%q` of a string: double quotes and Go's escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let code = c as u32;
        // Writing to a string cannot fail.
        let _ = match short_escape(c) {
            Some(escape) => out.write_str(escape),
            None if is_printable(c) => out.write_char(c),
            None if c.is_ascii() => write!(out, "\\x{code:02x}"),
            None if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            None => write!(out, "\\U{code:08x}"),
        };
    }
    out.push('"');
    out
}

/// The escapes of one letter, which Go and CEL share.
pub fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

/// Whether Go takes a character for printable: letters, marks, numbers, punctuation, symbols and
/// the ASCII space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // The standard library escapes the same Unicode categories when it prints for debugging. It
    // also escapes a mark that stands first, hence the letter in front.
    let pair: String = ['a', c].into_iter().collect();
    pair.escape_debug().nth(1) == Some(c)
}

/// How Go's `time` package quotes what it cannot parse: every byte outside of ASCII in hexadecimal.
pub fn quote_time(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            0x20..0x80 => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

/// `%q` of a list of strings: `["a" "b"]`.
pub fn quote_list<S: AsRef<str>>(list: &[S]) -> String {
    let parts: Vec<String> = list.iter().map(|s| quote(s.as_ref())).collect();
    format!("[{}]", parts.join(" "))
}

/// `%#v` of a list of strings.
pub fn syntax_list(list: &[String]) -> String {
    if list.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let parts: Vec<String> = list.iter().map(|s| quote(s)).collect();
    format!("[]string{{{}}}", parts.join(", "))
}

/// `%#v` of a map of lists of strings.
pub fn syntax_map(map: &BTreeMap<String, Vec<String>>) -> String {
    if map.is_empty() {
        return "map[string][]string(nil)".to_owned();
    }
    let parts: Vec<String> = map
        .iter()
        .map(|(k, v)| format!("{}:{}", quote(k), syntax_list(v)))
        .collect();
    format!("map[string][]string{{{}}}", parts.join(", "))
}

/// Several error texts as the reference joins them: one stays bare, several become `[a, b]`,
/// repetitions vanish.
pub fn aggregate(texts: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_str()) {
            seen.push(text);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// `%v` of a float64: the fewest digits, an exponent below -4 and from 21 on.
pub fn float(value: f64) -> String {
    shortest(value, 21)
}

/// `strconv.FormatFloat(value, 'g', -1, 64)`: the fewest digits, an exponent already from 6 on.
pub fn float_g(value: f64) -> String {
    shortest(value, 6)
}

fn shortest(value: f64, exponent_from: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..exponent_from).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// `%v` of a number: integers as digits, floats as [`float`] has them.
pub fn number(n: &Number) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() => float(f),
        _ => n.to_string(),
    }
}

/// `%v` of a decoded value: `map[a:1 b:[x y]]`, strings bare, `<nil>` for null.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(out, item);
            }
            out.push(']');
        }
    }
}

/// `%#v` of a decoded value.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => number(n),
        Value::String(s) => quote(s),
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", parts.join(", "))
        }
        Value::Object(map) => {
            let parts: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", quote(k), syntax(v)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", parts.join(", "))
        }
    }
}

/// A value as field errors show it: strings quoted, numbers without superfluous digits, composite
/// values as compact JSON.
pub fn value(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        Value::Number(n) => number(n),
        other => json(other),
    }
}

/// `%T` of a decoded value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What Go's JSON decoder calls the kind of a value it could not use.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A JSON document as Go's encoder writes it: compact, keys sorted, `<`, `>`, `&` and the line
/// separators escaped.
pub fn json(value: &Value) -> String {
    const UNSAFE: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    let text = value.to_string();
    if !text.contains(UNSAFE) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if UNSAFE.contains(&c) {
            let _ = write!(out, "\\u{:04x}", c as u32);
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        for (given, wanted) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nbreak\t\r", r#""line\nbreak\t\r""#),
            ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
            ("\0\u{1}\u{1b}\u{7f}", r#""\x00\x01\x1b\x7f""#),
            ("ünïcode 日本 🟢", "\"ünïcode 日本 🟢\""),
            ("e\u{301}\u{301}", "\"e\u{301}\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{fffd}", "\"\u{fffd}\""),
            ("it's", "\"it's\""),
            ("\u{80}\u{85}\u{a0}\u{ad}", r#""\u0080\u0085\u00a0\u00ad""#),
            (
                "\u{200b}\u{2028}\u{202e}\u{3000}\u{feff}",
                r#""\u200b\u2028\u202e\u3000\ufeff""#,
            ),
            ("\u{378}\u{e000}\u{fffe}", r#""\u0378\ue000\ufffe""#),
            ("\u{e0001}\u{10ffff}", r#""\U000e0001\U0010ffff""#),
        ] {
            assert_eq!(quote(given), wanted);
        }
        assert_eq!(quote_list(&["a", "b\""]), r#"["a" "b\""]"#);
    }

    #[test]
    fn times_are_quoted_byte_by_byte() {
        assert_eq!(quote_time("a\"\\b\né"), r#""a\"\\b\x0a\xc3\xa9""#);
    }

    #[test]
    fn floats_have_the_fewest_digits() {
        for (number, v, g) in [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (100.0, "100", "100"),
            (0.5, "0.5", "0.5"),
            (-2.25, "-2.25", "-2.25"),
            (123_456.0, "123456", "123456"),
            (1_234_567.0, "1234567", "1.234567e+06"),
            (1e20, "100000000000000000000", "1e+20"),
            (1e21, "1e+21", "1e+21"),
            (0.0001, "0.0001", "0.0001"),
            (0.00001, "1e-05", "1e-05"),
            (1.5e-7, "1.5e-07", "1.5e-07"),
            (1e100, "1e+100", "1e+100"),
            (f64::NAN, "NaN", "NaN"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
        ] {
            assert_eq!((float(number).as_str(), float_g(number).as_str()), (v, g));
        }
    }

    #[test]
    fn values_print_as_go_prints_them() {
        for (value, v, syntax_form, type_form, shown) in [
            (
                json!({"b": 1, "a": ["x", null, true]}),
                "map[a:[x <nil> true] b:1]",
                r#"map[string]interface {}{"a":[]interface {}{"x", interface {}(nil), true}, "b":1}"#,
                "map[string]interface {}",
                r#"{"a":["x",null,true],"b":1}"#,
            ),
            (json!([]), "[]", "[]interface {}{}", "[]interface {}", "[]"),
            (json!(null), "<nil>", "interface {}(nil)", "<nil>", "null"),
            (json!(true), "true", "true", "bool", "true"),
            (json!(7), "7", "7", "int64", "7"),
            (json!(1.5), "1.5", "1.5", "float64", "1.5"),
            (json!(1e21), "1e+21", "1e+21", "float64", "1e+21"),
            (json!("a\n"), "a\n", r#""a\n""#, "string", r#""a\n""#),
        ] {
            assert_eq!(plain(&value), v);
            assert_eq!(syntax(&value), syntax_form);
            assert_eq!(type_name(&value), type_form);
            assert_eq!(super::value(&value), shown);
        }
    }

    #[test]
    fn lists_and_maps_of_strings_in_go_syntax() {
        let list = vec!["a".to_owned(), "b\"".to_owned()];
        assert_eq!(syntax_list(&list), r#"[]string{"a", "b\""}"#);
        assert_eq!(syntax_list(&[]), "[]string(nil)");
        assert_eq!(syntax_map(&BTreeMap::new()), "map[string][]string(nil)");
        assert_eq!(
            syntax_map(&BTreeMap::from([("k".to_owned(), list)])),
            r#"map[string][]string{"k":[]string{"a", "b\""}}"#
        );
    }

    #[test]
    fn one_error_stays_bare_and_duplicates_vanish() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(aggregate(std::slice::from_ref(&a)), "a");
        assert_eq!(aggregate(&[a.clone(), a.clone()]), "a");
        assert_eq!(aggregate(&[a, b]), "[a, b]");
    }

    #[test]
    fn json_is_safe_inside_html() {
        assert_eq!(
            super::json(&json!({"a": "<b>&\u{2028}"})),
            r#"{"a":"\u003cb\u003e\u0026\u2028"}"#
        );
    }
}
