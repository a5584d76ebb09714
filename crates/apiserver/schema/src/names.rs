// SPDX-License-Identifier: Apache-2.0
//! What names may look like: labels, subdomains, qualified names, label values.
//!
//! Every function returns the list of what is wrong, in the words of the reference; an empty list
//! means the name is fine.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The longest DNS label.
pub const LABEL_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

/// How the name of an object must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// An RFC 1123 subdomain; most kinds.
    Subdomain,
    /// An RFC 1123 label: Namespace, Service.
    Label,
    /// Anything that can stand between two slashes of a path: RBAC kinds.
    PathSegment,
    /// Not checked: the object is never stored.
    Any,
}

impl NameRule {
    /// What is wrong with a name, or with a generateName when `prefix` is set.
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
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

/// `text (e.g. 'a',  or 'b', regex used for validation is 're')`.
pub fn regex_error(text: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{regex}')");
    }
    let list: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{text} (e.g. {}regex used for validation is '{regex}')",
        list.join(" or ")
    )
}

/// The words for a name that is too long.
pub fn too_many_characters(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The words for a key or value that is too long.
pub fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn lower_edge(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(lower_edge)
        && bytes.last().copied().is_some_and(lower_edge)
        && bytes.iter().all(|b| lower_edge(*b) || *b == b'-')
}

/// Whether a text has the form of an RFC 1123 subdomain, whatever its length.
pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// A lower-case RFC 1123 label of at most 63 characters.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX {
        problems.push(too_many_characters(LABEL_MAX));
    }
    if !is_label(value) {
        problems.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(LABEL_TEXT, LABEL, &["my-name", "123-abc"])
        });
    }
    problems
}

/// A lower-case RFC 1123 subdomain of at most 253 characters.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        problems.push(too_many_characters(SUBDOMAIN_MAX));
    }
    if !is_subdomain(value) {
        problems.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"]));
    }
    problems
}

/// A label that begins with a letter (RFC 1035), at most 63 characters.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX {
        problems.push(too_many_characters(LABEL_MAX));
    }
    if !(is_label(value) && value.starts_with(|c: char| c.is_ascii_lowercase())) {
        problems.push(regex_error(LABEL_1035_TEXT, LABEL_1035, &["my-name", "abc-123"]));
    }
    problems
}

/// A qualified name: an optional subdomain and `/`, then at most 63 bytes. Label and annotation
/// keys and finalizers are qualified names.
pub fn qualified_name(value: &str) -> Vec<String> {
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut problems = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    prefix_problems(prefix)
                        .into_iter()
                        .map(|p| format!("prefix part {p}")),
                );
            }
            name
        }
        _ => {
            let text = regex_error(QUALIFIED_TEXT, QUALIFIED, &EXAMPLES);
            problems.push(format!(
                "a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part {}", too_many_bytes(LABEL_MAX)));
    }
    if !is_qualified(name) {
        problems.push(format!(
            "name part {}",
            regex_error(QUALIFIED_TEXT, QUALIFIED, &EXAMPLES)
        ));
    }
    problems
}

fn prefix_problems(prefix: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if prefix.len() > SUBDOMAIN_MAX {
        problems.push(too_many_bytes(SUBDOMAIN_MAX));
    }
    if !is_subdomain(prefix) {
        problems.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"]));
    }
    problems
}

/// A label value: empty, or at most 63 bytes that begin and end with a letter or digit.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX {
        problems.push(too_many_bytes(LABEL_MAX));
    }
    if !value.is_empty() && !is_qualified(value) {
        problems.push(regex_error(
            LABEL_VALUE_TEXT,
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// A name that can stand as one segment of a path.
pub fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// The beginning of a name that can stand as one segment of a path.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|bad| value.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A name prefix with its trailing dash masked, because something will be appended to it.
pub fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        // The reference replaces the last two characters by one; the result only serves as a check.
        Some(rest) if !rest.is_empty() => {
            let mut masked: String = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => name.to_owned(),
    }
}

/// A port number of 1 to 65535.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) {
        return Vec::new();
    }
    vec![range_error(1, 65535)]
}

/// `must be between 1 and 65535, inclusive`.
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        assert!(dns1123_label("my-name").is_empty());
        assert!(dns1123_subdomain("a.b-c.9").is_empty());
        assert!(dns1035_label("abc-1").is_empty());
        assert!(qualified_name("example.com/My_Name.x").is_empty());
        assert!(qualified_name("name").is_empty());
        assert!(label_value("").is_empty());
        assert!(label_value("a_b.c").is_empty());
        assert!(path_segment("system:admin").is_empty());
    }

    #[test]
    fn bad_names_say_why() {
        let long = "a".repeat(64);
        for (problems, expected) in [
            (
                dns1123_subdomain("Bad_Name"),
                vec![
                    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                ],
            ),
            (dns1123_label("a.b"), vec!["must not contain dots"]),
            (
                dns1123_label("-a"),
                vec![
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                ],
            ),
            (dns1123_label(&long), vec!["must be no more than 63 characters"]),
            (label_value(&long), vec!["must be no more than 63 bytes"]),
            (
                qualified_name(&format!("x/{long}")),
                vec!["name part must be no more than 63 bytes"],
            ),
            (
                dns1035_label("1a"),
                vec![
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                ],
            ),
            (
                qualified_name(""),
                vec![
                    "name part must be non-empty",
                    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ],
            ),
            (
                qualified_name("a/b/c"),
                vec![
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                ],
            ),
            (path_segment(".."), vec!["may not be '..'"]),
            (
                path_segment("a/b%"),
                vec!["may not contain '/'", "may not contain '%'"],
            ),
            (
                label_value("-x"),
                vec![
                    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ],
            ),
        ] {
            assert_eq!(problems, expected);
        }
    }

    #[test]
    fn prefixes_may_end_with_a_dash() {
        assert!(dns1123_subdomain(&mask_trailing_dash("my-")).is_empty());
        assert!(!dns1123_subdomain(&mask_trailing_dash("-")).is_empty());
    }
}
