// SPDX-License-Identifier: Apache-2.0
//! Rules for names, keys and values, each answering with the list of what is wrong, in the words of
//! the reference. An empty list means the value is fine. What every kind shares comes from the
//! schema crate; the rules of single built-in fields are added here.

pub use cobaltcore_schema::names::{
    dns1035_label, dns1123_label, dns1123_subdomain, label_value, path_segment, qualified_name, range_error,
    regex_error,
};
use cobaltcore_schema::names::{is_subdomain, too_many_characters};

/// Whether a text is not empty and made of ASCII letters, digits and some other characters only.
fn is_made_of(text: &str, others: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

fn is_percent(text: &str) -> bool {
    text.strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// A subdomain whose labels may hold and begin with underscores, as search paths of resolvers do.
pub fn underscored_subdomain(value: &str) -> Vec<String> {
    const TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
    const REGEX: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    let fits = |label: &str| is_lower_word(label.strip_prefix('_').unwrap_or(label));
    if !value.split('.').all(fits) {
        problems.push(regex_error(TEXT, REGEX, &["example.com"]));
    }
    problems
}

/// What is said about the name of a kernel setting that cannot be one.
pub const SYSCTL_RULE: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// Whether a text can name a kernel setting: words between dots or slashes.
pub fn is_sysctl(value: &str) -> bool {
    value.len() <= 253 && value.split(['.', '/']).all(is_lower_word)
}

/// Lower-case letters and digits, with dashes and underscores inside.
fn is_lower_word(word: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = word.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || matches!(b, b'-' | b'_'))
}

/// `*.` and a subdomain.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(too_many_characters(253));
    }
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(too_many_characters(253));
    }
    if !is_made_of(value, "-._") {
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
        errors.push(too_many_characters(15));
    }
    if !is_made_of(value, "-") || value.contains(|c: char| c.is_ascii_uppercase()) {
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
    if is_made_of(value, "-") {
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
    if is_made_of(value, "_") && !value.starts_with(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}
