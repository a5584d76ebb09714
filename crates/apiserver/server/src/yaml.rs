// SPDX-License-Identifier: Apache-2.0
//! YAML in and out, as every part of the project reads and writes it: bodies and manifests by the
//! rules of YAML 1.1, answers in the style of `kubectl -o yaml`. Bodies that cannot be read are
//! refused in the words of the reference's reader, and with the lines it counts.

pub(crate) use cobaltcore_text::yaml::{Decoded, decode_all, encode};

/// Reads the first document of a body.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    check_characters(bytes)?;
    cobaltcore_text::yaml::decode_first(bytes).map_err(|why| told(&why))
}

/// Refuses bytes that are no characters, and characters that control something.
fn check_characters(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let wrong = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        let why = match error.error_len() {
            None => "incomplete UTF-8 octet sequence",
            Some(_) if matches!(wrong, 0xc2..=0xf4) => "invalid trailing UTF-8 octet",
            Some(_) => "invalid leading UTF-8 octet",
        };
        format!("yaml: {why}")
    })?;
    let legible = |(at, c): (usize, char)| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fefe}' => true,
        // Marks the order of bytes, and only where there are none before.
        '\u{feff}' => at == 0,
        other => other > '\u{feff}' && !matches!(other, '\u{fffe}' | '\u{ffff}'),
    };
    if !text.char_indices().all(legible) {
        return Err("yaml: control characters are not allowed".to_owned());
    }
    check_directives(text)
}

/// Refuses documents that say they are of another version, and directives nobody knows.
fn check_directives(text: &str) -> Result<(), String> {
    for line in text.lines().take_while(|line| line.starts_with('%')) {
        let mut words = line.split_whitespace();
        let why = match (words.next(), words.next()) {
            (Some("%YAML"), Some(version)) if version != "1.1" && is_version(version) => {
                "found incompatible YAML document"
            }
            (Some("%YAML" | "%TAG"), _) => continue,
            _ => "found unknown directive name",
        };
        return Err(format!("yaml: {why}"));
    }
    Ok(())
}

fn is_version(word: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    word.split_once('.')
        .is_some_and(|(major, minor)| number(major) && number(minor))
}

/// Which part of a reader noticed that something is wrong. They count lines in two ways.
#[derive(Clone, Copy)]
enum Noticed {
    /// While telling words apart: the line itself, unless it is the first.
    Scanning,
    /// While putting them together: the line before.
    Parsing,
    /// When everything had been read: no line.
    Afterwards,
}

/// A refusal of our reader in the words of the reference's.
fn told(why: &str) -> String {
    let Some((line, text)) = why
        .strip_prefix("yaml: line ")
        .and_then(|rest| rest.split_once(": "))
        .and_then(|(line, text)| Some((line.parse::<usize>().ok()?, text)))
    else {
        return why.to_owned();
    };
    // What was going on is not told, only what is wrong.
    let text = match text.split_once(", ") {
        Some((circumstance, problem)) if circumstance.starts_with("while ") => problem,
        _ => text,
    };
    // It was YAML, and is no JSON.
    if text.starts_with("json: ") || text.starts_with("unsupported map key ") {
        return text.to_owned();
    }
    let (noticed, text) = in_other_words(text);
    match (noticed, line) {
        (Noticed::Afterwards, _) | (_, 0 | 1) => format!("yaml: {text}"),
        (Noticed::Scanning, line) => format!("yaml: line {line}: {text}"),
        (Noticed::Parsing, line) => format!("yaml: line {}: {text}", line - 1),
    }
}

fn in_other_words(text: &str) -> (Noticed, &str) {
    use Noticed::{Afterwards, Parsing, Scanning};
    match text {
        "did not find expected node content"
        | "did not find expected ',' or '}'"
        | "did not find expected key"
        | "did not find expected '-' indicator"
        | "did not find expected <document start>" => (Parsing, text),
        "expected ',' or ']'" => (Parsing, "did not find expected ',' or ']'"),
        "misplaced bracket" | "invalid content after document end marker" => {
            (Parsing, "did not find expected node content")
        }
        "the handle wasn't declared" => (Parsing, "found undefined tag handle"),
        "wrongly indented line in block scalar" => (Parsing, "did not find expected key"),
        _ if text.starts_with("invalid trailing content after") => (Parsing, "did not find expected key"),
        _ if text.starts_with("map merge requires") || text.starts_with("cannot decode ") => {
            (Afterwards, text)
        }
        _ if text.starts_with("unexpected character") || text.starts_with("tabs disallowed") => {
            (Scanning, "found character that cannot start any token")
        }
        "did not find expected hexadecimal number" => (Scanning, "did not find expected hexdecimal number"),
        "found a tab" => (Scanning, "found a tab character that violates indentation"),
        "simple key expect ':'" | "simple key expected" => (Scanning, "could not find expected ':'"),
        _ => (Scanning, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_words_and_lines_of_the_reference() {
        for (body, expected) in [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            (
                "x: y\na: b: c",
                "yaml: line 2: mapping values are not allowed in this context",
            ),
            ("a: [", "yaml: line 1: did not find expected node content"),
            ("key: [a, b", "yaml: line 1: did not find expected ',' or ']'"),
            ("a: b\n- c", "yaml: line 1: did not find expected key"),
            ("a: \"x", "yaml: found unexpected end of stream"),
            ("a: @x", "yaml: found character that cannot start any token"),
            (
                "a:\n\t- b",
                "yaml: line 2: found character that cannot start any token",
            ),
            ("%YAML 1.2\n---\na: b", "yaml: found incompatible YAML document"),
            ("%FOO\n---\na: b", "yaml: found unknown directive name"),
            ("a: \u{1}", "yaml: control characters are not allowed"),
            ("a: \u{7f}", "yaml: control characters are not allowed"),
        ] {
            assert_eq!(decode(body.as_bytes()).unwrap_err(), expected, "{body}");
        }
        for (body, expected) in [
            (b"a: \xff".as_slice(), "yaml: invalid leading UTF-8 octet"),
            (b"a: \xc3x", "yaml: invalid trailing UTF-8 octet"),
            (b"a: \xc3", "yaml: incomplete UTF-8 octet sequence"),
        ] {
            assert_eq!(decode(body).unwrap_err(), expected);
        }
        assert!(decode(b"%YAML 1.1\n---\na: b").is_ok());
        assert!(decode("\u{feff}a: é\u{1f600}".as_bytes()).is_ok());
    }
}
