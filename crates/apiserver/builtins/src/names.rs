// SPDX-License-Identifier: Apache-2.0
//! Rules for names, keys and values, each answering with the list of what is wrong, in the words of
//! the reference. An empty list means the value is fine. Nothing here knows where the value came from.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

/// How the name of an object must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, at most 253.
    Subdomain,
    /// RFC 1123 label, at most 63.
    Label,
    /// Anything that can stand between two slashes of a path.
    PathSegment,
    /// Not checked: the object is never stored.
    Any,
}

impl NameRule {
    /// What is wrong with a name, or with a generateName when `prefix` is set.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = if prefix {
            mask_trailing_dash(name)
        } else {
            name.to_owned()
        };
        match self {
            Self::Subdomain => dns1123_subdomain(&masked),
            Self::Label => dns1123_label(&masked),
            Self::PathSegment if prefix => path_segment_prefix(name),
            Self::PathSegment => path_segment(name),
            Self::Any => Vec::new(),
        }
    }
}

/// A generateName may end in a dash, because more follows.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest.push('a');
            rest
        }
        _ => name.to_owned(),
    }
}

fn full(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        fn $name(value: &str) -> bool {
            static COMPILED: LazyLock<Option<Regex>> = LazyLock::new(|| full($pattern));
            COMPILED.as_ref().is_some_and(|regex| regex.is_match(value))
        }
    };
}

pattern!(is_label, LABEL);
pattern!(is_subdomain, SUBDOMAIN);
pattern!(is_label_1035, "[a-z]([-a-z0-9]*[a-z0-9])?");
pattern!(is_qualified, "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]");
pattern!(is_label_text, "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?");
pattern!(is_config_key, "[-._a-zA-Z0-9]+");
pattern!(is_port_chars, "[-a-z0-9]+");
pattern!(is_percent, "[0-9]+%");
pattern!(is_header, "[-A-Za-z0-9]+");
pattern!(is_c_identifier, "[A-Za-z_][A-Za-z0-9_]*");
pattern!(
    is_wildcard,
    r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
);

/// The reference's way of naming a pattern.
pub fn regex_error(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let list: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{text} (e.g. {}regex used for validation is '{pattern}')",
        list.join(" or ")
    )
}

fn max_characters(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn max_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// `must be between 1 and 65535, inclusive`.
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// RFC 1123 label.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_characters(63));
    }
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// RFC 1123 subdomain.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !is_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// RFC 1035 label.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_characters(63));
    }
    if !is_label_1035(value) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// `*.` and a subdomain.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !is_wildcard(value) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        ));
    }
    errors
}

/// A path segment as the name of an object.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." => return vec!["may not be '.'".to_owned()],
        ".." => return vec!["may not be '..'".to_owned()],
        _ => {}
    }
    path_segment_prefix(name)
}

fn path_segment_prefix(name: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|forbidden| name.contains(**forbidden))
        .map(|forbidden| format!("may not contain '{forbidden}'"))
        .collect()
}

/// Optional DNS prefix and a name of at most 63: label keys, finalizers, resource names.
pub fn qualified_name(value: &str) -> Vec<String> {
    const PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    const TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let mut errors = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(prefix_subdomain(prefix));
            }
            *name
        }
        _ => {
            let text = regex_error(
                &format!("a valid label key {TEXT}"),
                PATTERN,
                &["MyName", "my.name", "123-abc"],
            );
            return vec![format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", max_bytes(63)));
    }
    if !is_qualified(name) {
        errors.push(format!(
            "name part {}",
            regex_error(TEXT, PATTERN, &["MyName", "my.name", "123-abc"])
        ));
    }
    errors
}

/// Label keys count bytes where names count characters.
fn prefix_subdomain(prefix: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if prefix.len() > 253 {
        errors.push(format!("prefix part {}", max_bytes(253)));
    }
    if !is_subdomain(prefix) {
        errors.push(format!(
            "prefix part {}",
            regex_error(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"])
        ));
    }
    errors
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_bytes(63));
    }
    if !is_label_text(value) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !is_config_key(value) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        other if other.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an environment variable (relaxed form of recent versions).
pub fn env_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned(),
        );
    }
    errors
}

/// The name of a port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(max_characters(15));
    }
    if !is_port_chars(value) {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.contains(|c: char| c.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A percentage such as `25%`.
pub fn percent(value: &str) -> Vec<String> {
    if is_percent(value) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// The name of an HTTP header.
pub fn header_name(value: &str) -> Vec<String> {
    if is_header(value) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// An identifier of the C family.
pub fn c_identifier(value: &str) -> Vec<String> {
    if is_c_identifier(value) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}
