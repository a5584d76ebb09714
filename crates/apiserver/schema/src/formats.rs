// SPDX-License-Identifier: Apache-2.0
//! String formats (`format: date-time`, `ipv4`, ...) as the reference checks them.
//!
//! A format the reference does not know for the node's type is ignored, not refused; what remains
//! is a plain yes or no per string.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::node::{Schema, Type};

/// The format that is enforced on a node: the declared one, unless it means nothing for its type.
pub fn effective(schema: &Schema) -> Option<&str> {
    let format = schema.format.as_deref()?;
    if schema.int_or_string {
        return is_known(format).then_some(format);
    }
    match schema.kind {
        None | Some(Type::String) => is_known(format).then_some(format),
        Some(Type::Integer) => matches!(format, "int32" | "int64").then_some(format),
        Some(Type::Number) => matches!(format, "float" | "double").then_some(format),
        Some(_) => None,
    }
}

/// Whether strings are checked against this format. Dashes do not count.
pub fn is_known(format: &str) -> bool {
    checker(format).is_some()
}

/// Whether a text has the format; unknown formats accept everything.
pub fn matches(format: &str, text: &str) -> bool {
    checker(format).is_none_or(|check| check(text))
}

/// The check of a format. Names are compared without their dashes; the usual spellings are found
/// without building a string.
pub(crate) fn checker(format: &str) -> Option<fn(&str) -> bool> {
    match format {
        "date-time" => Some(is_date_time),
        "k8s-short-name" => Some(is_short_name),
        "k8s-long-name" => Some(is_long_name),
        dashed if dashed.contains('-') => plain_checker(&dashed.replace('-', "")),
        plain => plain_checker(plain),
    }
}

fn plain_checker(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "datetime" => is_date_time,
        "date" => is_date,
        "duration" => is_duration,
        "byte" => is_base64,
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => is_ipv4,
        "ipv6" => is_ipv6,
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |s| is_uuid(s, None),
        "uuid3" => |s| is_uuid(s, Some('3')),
        "uuid4" => |s| is_uuid(s, Some('4')),
        "uuid5" => |s| is_uuid(s, Some('5')),
        "bsonobjectid" => |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "isbn" => |s| is_isbn10(s) || is_isbn13(s),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "password" => |_| true,
        "k8sshortname" => is_short_name,
        "k8slongname" => is_long_name,
        _ => return None,
    })
}

fn is_date(text: &str) -> bool {
    let b = text.as_bytes();
    let shape = b.len() == 10
        && b.iter().enumerate().all(|(i, c)| {
            if i == 4 || i == 7 {
                *c == b'-'
            } else {
                c.is_ascii_digit()
            }
        });
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    if text.len() < 4 || !is_date(date) {
        return false;
    }
    let b = time.as_bytes();
    let two = |at: usize| match (b.get(at), b.get(at + 1)) {
        (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
            Some(u32::from(x - b'0') * 10 + u32::from(y - b'0'))
        }
        _ => None,
    };
    let colon = |at: usize| b.get(at) == Some(&b':');
    let clock = two(0).is_some_and(|h| h <= 23)
        && colon(2)
        && two(3).is_some_and(|m| m <= 59)
        && colon(5)
        && two(6).is_some_and(|s| s <= 59);
    clock && is_zone_after_fraction(b.get(8..).unwrap_or_default(), time.get(8..).unwrap_or_default())
}

fn is_zone_after_fraction(rest: &[u8], text: &str) -> bool {
    let zone = |z: &[u8]| {
        matches!(z, b"z" | b"Z")
            || (z.len() == 6
                && matches!(z.first(), Some(b'+' | b'-'))
                && z.get(3) == Some(&b':')
                && z.iter()
                    .enumerate()
                    .all(|(i, c)| i == 0 || i == 3 || c.is_ascii_digit()))
    };
    if zone(rest) {
        return true;
    }
    // The separator of the fraction may be any character, as it may there.
    let Some(first) = text.chars().next() else {
        return false;
    };
    let after = rest.get(first.len_utf8()..).unwrap_or_default();
    let digits = after.iter().take_while(|c| c.is_ascii_digit()).count();
    digits > 0 && zone(after.get(digits..).unwrap_or_default())
}

fn is_duration(text: &str) -> bool {
    go_duration(text) || loose_duration(text)
}

/// A sequence of decimal numbers with units, as in `1h30m` or `-1.5s`.
fn go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    let mut total = 0f64;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (value, tail) = rest.split_at(number);
        if !value.chars().any(|c| c.is_ascii_digit()) || value.matches('.').count() > 1 {
            return false;
        }
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (name, next) = tail.split_at(unit);
        let nanos = match name {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return false,
        };
        let Ok(value) = value
            .trim_end_matches('.')
            .parse::<f64>()
            .or_else(|_| format!("0{value}").parse())
        else {
            return false;
        };
        total += value * nanos;
        rest = next;
    }
    total <= i64::MAX as f64
}

/// Any text with a number and a known unit in it, such as `3 days`.
fn loose_duration(text: &str) -> bool {
    static PARTS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"([0-9]+)[\t\n\x0c\r ]*([A-Za-zµ]+)").ok());
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let Some(parts) = PARTS.as_ref() else { return false };
    let mut found = false;
    for part in parts.captures_iter(text) {
        let (Some(number), Some(unit)) = (part.get(1), part.get(2)) else {
            continue;
        };
        if number.as_str().parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.as_str().to_lowercase();
        found |= UNITS.iter().any(|names| {
            names.iter().any(|n| *n == unit) || names.last().is_some_and(|last| unit.starts_with(last))
        });
    }
    found
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// An absolute URI or an absolute path, as an HTTP request line may carry it.
pub(crate) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    if !percent_escapes_are_valid(text) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if !scheme_ok {
        return false;
    }
    let Some(authority) = rest.strip_prefix("//") else {
        // Opaque URIs such as mailto:someone are not accepted in requests unless rooted.
        return rest.starts_with('/') || !rest.is_empty();
    };
    let host = authority.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    is_host_with_port(host)
}

fn is_host_with_port(host: &str) -> bool {
    let port_ok = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let Some((_, port)) = rest.split_once(']') else {
            return false;
        };
        return port.is_empty() || port.strip_prefix(':').is_some_and(port_ok);
    }
    match host.split_once(':') {
        Some((name, port)) => !name.contains(' ') && port_ok(port),
        None => !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}']),
    }
}

fn percent_escapes_are_valid(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    let mut bytes = path.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let ok = bytes.next().is_some_and(|b| b.is_ascii_hexdigit())
                && bytes.next().is_some_and(|b| b.is_ascii_hexdigit());
            if !ok {
                return false;
            }
        }
    }
    true
}

fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(open), Some(inner)) => inner.get(open + 1..).unwrap_or_default(),
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let dotted = |s: &str| {
        s.split('.')
            .all(|part| !part.is_empty() && part.chars().all(atom))
    };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || dotted(local)) && (literal || dotted(domain))
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        )
        .ok()
    });
    HOSTNAME.as_ref().is_some_and(|r| r.is_match(text))
        && text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
}

/// An IPv4 address; leading zeros are allowed as the reference's lenient parser allows them.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let significant = part.trim_start_matches('0');
        *octet = if significant.is_empty() {
            0
        } else {
            significant.parse().ok()?
        };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn is_ipv4(text: &str) -> bool {
    text.contains('.') && (parse_ipv4(text).is_some() || text.parse::<Ipv6Addr>().is_ok())
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    if prefix.is_empty() || prefix.len() > 3 || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let Ok(bits) = prefix.parse::<u32>() else {
        return false;
    };
    (parse_ipv4(address).is_some() && bits <= 32)
        || (address.contains(':') && address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn is_mac(text: &str) -> bool {
    let hex = |s: &str, len: usize| s.len() == len && s.bytes().all(|b| b.is_ascii_hexdigit());
    for separator in [':', '-'] {
        if text.contains(separator) {
            let parts: Vec<&str> = text.split(separator).collect();
            return matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| hex(p, 2));
        }
    }
    let parts: Vec<&str> = text.split('.').collect();
    matches!(parts.len(), 3 | 4 | 10) && parts.iter().all(|p| hex(p, 4))
}

/// Hexadecimal groups of 8, 4, 4, 4 and 12 with optional dashes; some versions fix digits.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    let mut groups = Vec::with_capacity(5);
    for length in [8usize, 4, 4, 4, 12] {
        if !groups.is_empty() {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(group) = rest.get(..length) else {
            return false;
        };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        groups.push(group);
        rest = rest.get(length..).unwrap_or_default();
    }
    if !rest.is_empty() {
        return false;
    }
    let Some(version) = version else { return true };
    let starts = |group: usize, allowed: &[char]| groups.get(group).is_some_and(|g| g.starts_with(allowed));
    starts(2, &[version]) && (version == '3' || starts(3, &['8', '9', 'a', 'b', 'A', 'B']))
}

fn without_separators(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0u32;
    for (i, c) in digits.chars().enumerate() {
        let value = match c {
            'X' if i == 9 => 10,
            c => match c.to_digit(10) {
                Some(d) => d,
                None => return false,
            },
        };
        sum += if i == 9 {
            10 * value
        } else {
            (i as u32 + 1) * value
        };
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = without_separators(text).chars().map(|c| c.to_digit(10)).collect();
    let Some(digits) = digits.filter(|d| d.len() == 13) else {
        return false;
    };
    let (body, check) = digits.split_at(12);
    let sum: u32 = body
        .iter()
        .enumerate()
        .map(|(i, d)| if i % 2 == 0 { *d } else { 3 * d })
        .sum();
    check.first() == Some(&((10 - sum % 10) % 10))
}

fn is_credit_card(text: &str) -> bool {
    static CARD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new("^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$").ok()
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CARD.as_ref().is_some_and(|r| r.is_match(&digits)) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let d = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if d >= 10 { d - 9 } else { d }
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() == 11
        && b.iter().enumerate().all(|(i, c)| match i {
            3 | 6 => *c == b'-' || *c == b' ',
            _ => c.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')')) else {
        return false;
    };
    let part = |s: &str| {
        let s = s.trim_matches(|c: char| c.is_ascii_whitespace());
        let plain =
            !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
        plain && s.parse::<u16>().is_ok_and(|n| n <= 255)
    };
    inner.split(',').count() == 3 && inner.split(',').all(part)
}

fn is_label(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || c == '-')
}

fn is_short_name(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

fn is_long_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_accepts_and_refuses() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
            (
                "date-time",
                "2026-01-02t03:04:05.123+02:00",
                "2026-01-02 03:04:05Z",
            ),
            ("date-time", "2026-12-31T23:59:59-08:00", "2026-02-30T00:00:00Z"),
            ("date", "2026-02-28", "2026-02-30"),
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", "1x"),
            ("duration", "-1.5s", ""),
            ("byte", "aGFsbG8=", "a"),
            ("byte", "aGFs", "a==="),
            ("uri", "https://example.com/a?b=c", "example.com"),
            ("uri", "/a/b", ""),
            ("email", "a@example.com", "a"),
            ("email", "Ann <a@example.com>", "a@@"),
            ("hostname", "example.com", "exa_mple.com"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv4", "010.0.0.1", "::1"),
            ("ipv6", "2001:db8::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "2001:db8::/32", "2001:db8::"),
            ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
            ("mac", "0011.2233.4455", "0011-2233"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123e4567"),
            (
                "uuid3",
                "123e4567-e89b-32d3-0456-426614174000",
                "123e4567-e89b-42d3-a456-426614174000",
            ),
            (
                "uuid4",
                "123e4567-e89b-42d3-a456-426614174000",
                "123e4567-e89b-42d3-c456-426614174000",
            ),
            (
                "uuid5",
                "123e4567e89b52d3a456426614174000",
                "123e4567-e89b-42d3-a456-426614174000",
            ),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("isbn", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("isbn10", "0-8044-2957-X", "0-8044-2957-1"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "123-45-6789", "123456789"),
            ("hexcolor", "#FFF", "#FFFF"),
            ("rgbcolor", "rgb(0, 12,255)", "rgb(0,12,256)"),
            ("k8s-short-name", "a-1", "-a"),
            ("k8s-long-name", "a-1.b", "a..b"),
        ] {
            assert!(matches(format, good), "{format} should accept {good:?}");
            assert!(!matches(format, bad), "{format} should refuse {bad:?}");
        }
        assert!(matches("no-such-format", "anything"));
    }

    #[test]
    fn formats_of_other_types_are_ignored() {
        let node = |kind, format: &str| Schema {
            kind: Some(kind),
            format: Some(format.to_owned()),
            ..Schema::default()
        };
        assert_eq!(effective(&node(Type::String, "ipv4")), Some("ipv4"));
        assert_eq!(effective(&node(Type::String, "int32")), None);
        assert_eq!(effective(&node(Type::Integer, "int32")), Some("int32"));
        assert_eq!(effective(&node(Type::Number, "int32")), None);
        assert_eq!(effective(&node(Type::Object, "date")), None);
    }
}
