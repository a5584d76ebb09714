// SPDX-License-Identifier: Apache-2.0
//! os-release(5): assignments in a subset of shell syntax. Reading never fails: a line that is no
//! assignment is skipped, because one odd line must not hide the version of a host.

use std::collections::BTreeMap;

/// Lines beyond this many are not read; real files have a few dozen.
const MOST_LINES: usize = 1000;

/// What a release file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease(BTreeMap<String, String>);

impl OsRelease {
    /// Reads a release file.
    ///
    /// ```
    /// use cobaltcore_node_agent::host::OsRelease;
    /// let release = OsRelease::parse(b"# comment\nNAME='Garden Linux'\nVARIANT_ID=metal\n");
    /// assert_eq!(release.get("NAME"), Some("Garden Linux"));
    /// ```
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let assignments = text.lines().take(MOST_LINES).filter_map(|line| {
            let line = line.trim();
            let (key, value) = line.split_once('=')?;
            is_key(key).then(|| (key.to_owned(), unquote(value.trim())))
        });
        Self(assignments.collect())
    }

    /// Takes `KEY=value` entries as hostnamed delivers them: already without shell quoting, but
    /// one pair of matching quotes is removed should a version leave it in place.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let pairs = entries.into_iter().take(MOST_LINES).filter_map(|entry| {
            let (key, value) = entry.split_once('=')?;
            is_key(key).then(|| (key.to_owned(), strip_pair(value).to_owned()))
        });
        Self(pairs.collect())
    }

    /// The value of a key, when there is one and it is not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text inside one pair of equal quotes, or the text itself.
fn strip_pair(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Shell quoting as os-release(5) allows it: nothing is special in single quotes; a backslash
/// keeps `$`, `` ` ``, `"` and itself in double quotes, and anything outside of quotes.
fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (Some('"'), '\\') => match chars.next() {
                Some(kept @ ('$' | '`' | '"' | '\\')) => out.push(kept),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            (None, '\\') => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quoting_follows_the_manual() {
        let table = [
            ("A=plain", "plain"),
            ("A=\"with blanks\"", "with blanks"),
            ("A='single $HOME'", "single $HOME"),
            (
                r#"A="a \"quoted\" \$word \`tick\` \\""#,
                r#"a "quoted" $word `tick` \"#,
            ),
            (r#"A="unknown \n escape""#, r"unknown \n escape"),
            (r"A=one\ word", "one word"),
            ("A=", ""),
            ("A=x=y", "x=y"),
            ("  A=trimmed  ", "trimmed"),
        ];
        for (line, value) in table {
            let release = OsRelease::parse(line.as_bytes());
            assert_eq!(release.0.get("A").map(String::as_str), Some(value), "{line}");
        }
    }

    #[test]
    fn what_is_no_assignment_is_skipped() {
        let release = OsRelease::parse(b"# NAME=comment\n\nnonsense\n9KEY=x\nA-B=x\n=x\nNAME=ok\n");
        assert_eq!(release, OsRelease::parse(b"NAME=ok"));
        let entries = OsRelease::from_entries(["no equals sign", "A=\"quoted\"", "B='x", "C=a=b"]);
        assert_eq!(entries.get("A"), Some("quoted"));
        assert_eq!(entries.get("B"), Some("'x"), "a lone quote is part of the value");
        assert_eq!(entries.get("C"), Some("a=b"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let release = OsRelease::parse(&bytes);
            prop_assert!(release.0.keys().all(|key| is_key(key)));
            // Lossy decoding may triple a byte; nothing else makes values grow.
            prop_assert!(release.0.values().map(String::len).sum::<usize>() <= bytes.len() * 3);
        }

        #[test]
        fn a_double_quoted_value_comes_back(value in "[^\n\r\0]{0,80}") {
            let mut quoted = String::new();
            for c in value.chars() {
                if matches!(c, '$' | '`' | '"' | '\\') { quoted.push('\\'); }
                quoted.push(c);
            }
            let release = OsRelease::parse(format!("A=\"{quoted}\"").as_bytes());
            prop_assert_eq!(release.0.get("A"), Some(&value));
        }
    }
}
