// SPDX-License-Identifier: Apache-2.0
//! How field names of objects are spelled inside rules: characters that CEL identifiers cannot
//! hold, and names that are CEL keywords, are escaped. Keys of maps are never escaped.

/// Names that are words of the language.
const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The spelling of a field name inside rules, or `None` if rules cannot reach it.
pub fn escape(name: &str) -> Option<String> {
    let mut chars = name.chars();
    let first = chars.next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/'))
    {
        return None;
    }
    if KEYWORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            other => out.push(other),
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// Whether a rule that writes `field` means the field of this name: in its escaped spelling, or a
/// keyword as it is where the grammar allows that.
pub(crate) fn spells(field: &str, name: &str) -> bool {
    escape(name).as_deref() == Some(field) || (field == name && KEYWORDS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_the_reference_does() {
        for (name, want) in [
            ("plain", Some("plain")),
            ("my_field", Some("my_field")),
            ("my__field", Some("my__underscores__field")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("in", Some("__in__")),
            ("int", Some("int")),
            ("1st", None),
            ("sp ace", None),
            ("ünicode", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), want, "{name}");
        }
    }
}
