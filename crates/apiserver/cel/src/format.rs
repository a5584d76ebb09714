// SPDX-License-Identifier: Apache-2.0
//! Named formats: `format.dns1123Label().validate(name)` gives the reasons why a text is not of
//! the format, in the words of the reference, or nothing if it is.

use std::sync::LazyLock;

use regex::Regex;

use crate::functions::FORMATS;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const KEY_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The patterns, anchored.
struct Patterns {
    label: Option<Regex>,
    subdomain: Option<Regex>,
    label_1035: Option<Regex>,
    key: Option<Regex>,
    value: Option<Regex>,
    uuid: Option<Regex>,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let anchored = |p: &str| Regex::new(&format!("^(?:{p})$")).ok();
    Patterns {
        label: anchored(LABEL),
        subdomain: anchored(SUBDOMAIN),
        label_1035: anchored(LABEL_1035),
        key: anchored(KEY),
        value: anchored(VALUE),
        uuid: anchored("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    }
});

fn matches(pattern: Option<&Regex>, text: &str) -> bool {
    pattern.is_some_and(|p| p.is_match(text))
}

/// The format of a name, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    FORMATS
        .iter()
        .filter_map(|f| f.strip_prefix("format."))
        .find(|f| *f == name)
}

/// The pattern length that a validation is charged for.
pub(crate) fn regex_size(format: &str) -> u64 {
    match format {
        "dns1123Label" | "dns1035Label" | "dns1123LabelPrefix" | "dns1035LabelPrefix" => 30,
        "dns1123Subdomain" | "dns1123SubdomainPrefix" | "qualifiedName" => 60,
        "labelValue" => 40,
        "uuid" => 81,
        "byte" => 84,
        "date" | "datetime" => 132,
        _ => 1121,
    }
}

/// Why a text is not of a format; nothing if it is.
pub(crate) fn validate(format: &str, text: &str) -> Vec<String> {
    match format {
        "dns1123Label" => label(text),
        "dns1123LabelPrefix" => label(&masked(text)),
        "dns1123Subdomain" => subdomain(text, "characters"),
        "dns1123SubdomainPrefix" => subdomain(&masked(text), "characters"),
        "dns1035Label" => label_1035(text),
        "dns1035LabelPrefix" => label_1035(&masked(text)),
        "qualifiedName" => qualified_name(text),
        "labelValue" => label_value(text),
        "uri" => crate::url::Url::parse(text).err().into_iter().collect(),
        "uuid" => unless(
            matches(PATTERNS.uuid.as_ref(), text),
            "does not match the UUID format",
        ),
        "byte" => unless(
            !text.is_empty() && crate::base64::decode(text).is_some(),
            "invalid base64",
        ),
        "date" => unless(
            text.len() == 10 && crate::time::Time::parse_schema(text).is_some(),
            "invalid date",
        ),
        "datetime" => unless(
            text.len() > 10 && crate::time::Time::parse_schema(text).is_some(),
            "invalid datetime",
        ),
        _ => Vec::new(),
    }
}

fn unless(ok: bool, message: &str) -> Vec<String> {
    if ok { Vec::new() } else { vec![message.to_owned()] }
}

/// A trailing dash of a prefix is fine: a suffix will follow.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(head) if !head.is_empty() => format!("{head}a"),
        _ => text.to_owned(),
    }
}

fn too_long(text: &str, max: usize, unit: &str) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} {unit}"))
}

fn regex_error(message: &str, pattern: &str, examples: &[&str]) -> String {
    let shown: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        shown.join(" or ")
    )
}

fn label(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    if !matches(PATTERNS.label.as_ref(), text) {
        errors.push(if matches(PATTERNS.subdomain.as_ref(), text) {
            "must not contain dots".into()
        } else {
            regex_error(LABEL_MESSAGE, LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

fn subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 253, unit).into_iter().collect();
    if !matches(PATTERNS.subdomain.as_ref(), text) {
        errors.push(regex_error(SUBDOMAIN_MESSAGE, SUBDOMAIN, &["example.com"]));
    }
    errors
}

fn label_1035(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    if !matches(PATTERNS.label_1035.as_ref(), text) {
        errors.push(regex_error(
            LABEL_1035_MESSAGE,
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

fn qualified_name(text: &str) -> Vec<String> {
    let key_error = || regex_error(KEY_MESSAGE, KEY, &["MyName", "my.name", "123-abc"]);
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                errors.extend(
                    subdomain(prefix, "bytes")
                        .into_iter()
                        .map(|e| format!("prefix part {e}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                key_error()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if let Some(long) = too_long(name, 63, "bytes") {
        errors.push(format!("name part {long}"));
    }
    if !matches(PATTERNS.key.as_ref(), name) {
        errors.push(format!("name part {}", key_error()));
    }
    errors
}

fn label_value(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "bytes").into_iter().collect();
    if !matches(PATTERNS.value.as_ref(), text) {
        errors.push(regex_error(
            VALUE_MESSAGE,
            VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}
