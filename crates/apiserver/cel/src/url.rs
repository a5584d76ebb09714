// SPDX-License-Identifier: Apache-2.0
//! URLs as Go's parser takes them apart; only absolute ones are accepted.

use std::fmt;

use cobaltcore_text::go;

/// An absolute URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    path: String,
    query: String,
}

impl Url {
    /// Parses an absolute URL or path.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        Self::take_apart(text).map_err(|why| format!("parse {text}: {why}", text = go::quote(text)))
    }

    fn take_apart(text: &str) -> Result<Url, String> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        if text.is_empty() {
            return Err("empty url".into());
        }
        // The check of the reference knows no fragment; taking apart afterwards does.
        Self::checked(text)?;
        let without_fragment = text.split('#').next().unwrap_or(text);
        let (scheme, rest) = scheme(without_fragment)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Url {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: String::new(),
            path: String::new(),
            query: query.to_owned(),
        };
        if !rest.starts_with('/') {
            return Ok(url);
        }
        let mut path = rest;
        if let Some(after) = rest
            .strip_prefix("//")
            .filter(|_| !rest.starts_with("///") || !scheme.is_empty())
        {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, tail) = after.split_at_checked(end).unwrap_or((after, ""));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            url.host = percent_decode(host, false)?;
            path = tail;
        }
        path.clone_into(&mut url.path);
        Ok(url)
    }

    /// The checks for a request URI.
    fn checked(text: &str) -> Result<(), String> {
        if text == "*" {
            return Ok(());
        }
        let (scheme, rest) = scheme(text)?;
        let rest = rest.split_once('?').map_or(rest, |(r, _)| r);
        if !rest.starts_with('/') {
            return if scheme.is_empty() {
                Err("invalid URI for request".into())
            } else {
                Ok(())
            };
        }
        let mut path = rest;
        if let Some(after) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, tail) = after.split_at_checked(end).unwrap_or((after, ""));
            check_authority(authority)?;
            path = tail;
        }
        percent_decode(path, false).map(drop)
    }

    pub(crate) fn hostname(&self) -> &str {
        let (host, _) = split_port(&self.host);
        host.strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        split_port(&self.host).1
    }

    /// The path, with everything escaped that must be.
    pub(crate) fn escaped_path(&self) -> String {
        if self.path.bytes().all(|b| {
            b == b'%' || path_byte(b) || matches!(b, b'!' | b'\'' | b'(' | b')' | b'*' | b'[' | b']')
        }) {
            return self.path.clone();
        }
        let Ok(plain) = percent_decode(&self.path, false) else {
            return self.path.clone();
        };
        let mut out = String::with_capacity(plain.len());
        for b in plain.bytes() {
            if path_byte(b) {
                out.push(char::from(b));
            } else {
                let digit = |n: u8| {
                    char::from_digit(u32::from(n), 16)
                        .unwrap_or('0')
                        .to_ascii_uppercase()
                };
                out.extend(['%', digit(b >> 4), digit(b & 15)]);
            }
        }
        out
    }

    /// Query parameters in order; broken ones are left out.
    pub(crate) fn query(&self) -> Vec<(String, String)> {
        self.query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .filter_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((percent_decode(key, true).ok()?, percent_decode(value, true).ok()?))
            })
            .collect()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Bytes that stay as they are in a path.
fn path_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@'
        )
}

/// Splits the scheme off.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".into()),
            b':' => {
                return Ok((
                    text.get(..i).unwrap_or_default(),
                    text.get(i + 1..).unwrap_or_default(),
                ));
            }
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn check_authority(authority: &str) -> Result<(), String> {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(u, h)| (Some(u), h));
    if let Some(user) = user {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
        if !user.bytes().all(allowed) {
            return Err("net/url: invalid userinfo".into());
        }
        percent_decode(user, false)?;
    }
    if host.starts_with('[') {
        let Some((_, after)) = host.rsplit_once(']') else {
            return Err("missing ']' in host".into());
        };
        return check_port(after);
    }
    if let Some(colon) = host.rfind(':') {
        check_port(host.get(colon..).unwrap_or_default())?;
    }
    if let Some(bad) = host.chars().find(|c| c.is_ascii() && !host_char(*c)) {
        return Err(format!(
            "invalid character {} in host name",
            go::quote(&bad.to_string())
        ));
    }
    percent_decode(host, false).map(drop)
}

fn host_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c)
}

fn check_port(port: &str) -> Result<(), String> {
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(()),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        _ => Err(format!("invalid port {port} after host", port = go::quote(port))),
    }
}

/// Host and port; the port is empty if there is none.
fn split_port(host: &str) -> (&str, &str) {
    let bracket = host.rfind(']').unwrap_or(0);
    match host.rfind(':') {
        Some(colon) if colon > bracket || bracket == 0 => (
            host.get(..colon).unwrap_or(host),
            host.get(colon + 1..).unwrap_or_default(),
        ),
        _ => (host, ""),
    }
}

fn percent_decode(text: &str, plus: bool) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(b) = bytes.get(i) {
        match b {
            b'%' => {
                let escape = text
                    .get(i + 1..i + 3)
                    .filter(|e| e.bytes().all(|b| b.is_ascii_hexdigit()));
                let Some(byte) = escape.and_then(|e| u8::from_str_radix(e, 16).ok()) else {
                    let end = (i..=(i + 3).min(text.len()))
                        .rev()
                        .find(|e| text.is_char_boundary(*e))
                        .unwrap_or(i);
                    return Err(format!(
                        "invalid URL escape {}",
                        go::quote(text.get(i..end).unwrap_or("%"))
                    ));
                };
                out.push(byte);
                i += 3;
                continue;
            }
            b'+' if plus => out.push(b' '),
            other => out.push(*other),
        }
        i += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
