// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a text that is no JSON, in the words of the reference's own scanner. Only texts
//! that could not be read come by here; they are gone through once more, byte by byte.

use cobaltcore_text::go;
use cobaltcore_text::yaml::MAX_DEPTH;

const END: &str = "unexpected end of JSON input";
const VALUE: &str = "looking for beginning of value";
const KEY: &str = "looking for beginning of object key string";

/// The first thing wrong with a text; `None` when it is JSON after all.
pub(crate) fn json_error(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner {
        bytes,
        at: 0,
        depth: 0,
    };
    scanner.document().err()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn document(&mut self) -> Scan {
        self.value()?;
        self.blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.invalid("after top-level value")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The byte that is next does not belong where it stands.
    fn invalid(&self, place: &str) -> String {
        let Some(byte) = self.peek() else {
            return END.to_owned();
        };
        let shown = match byte {
            b'\'' => "\\'".to_owned(),
            b'"' => "\"".to_owned(),
            // Bytes are shown as if each were a character.
            _ => go::quote(&char::from(byte).to_string())
                .trim_matches('"')
                .to_owned(),
        };
        format!("invalid character '{shown}' {place}")
    }

    fn value(&mut self) -> Scan {
        self.blanks();
        match self.peek() {
            Some(b'{') => self.nested(Self::members),
            Some(b'[') => self.nested(Self::elements),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.invalid(VALUE)),
        }
    }

    fn nested(&mut self, inside: fn(&mut Self) -> Scan) -> Scan {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.invalid("exceeded max depth"));
        }
        self.at += 1;
        inside(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn members(&mut self) -> Scan {
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.invalid(KEY));
            }
            self.string()?;
            self.blanks();
            if self.peek() != Some(b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            self.value()?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
    }

    fn elements(&mut self) -> Scan {
        self.blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.invalid("after array element")),
            }
        }
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..0x20) => return Err(self.invalid("in string literal")),
                Some(_) => self.at += 1,
                None => return Err(END.to_owned()),
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.peek() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                        return Err(self.invalid("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.invalid("in string escape code")),
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits("in numeric literal")?,
            _ => return Err(self.invalid("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self, place: &str) -> Scan {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.invalid(place));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let expecting = char::from(expected);
                return Err(self.invalid(&format!("in literal {word} (expecting '{expecting}')")));
            }
            self.at += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_mistake_is_told_where_it_is_made() {
        for (text, told) in [
            ("", END),
            ("{", END),
            ("\"abc", END),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            (r#"{"a":1}x"#, "invalid character 'x' after top-level value"),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            (
                "{'a':1}",
                "invalid character '\\'' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b"}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("- 1", "invalid character ' ' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\t\"", "invalid character '\\t' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (
                r#""\u12g4""#,
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            (
                "\u{feff}{}",
                "invalid character 'ï' looking for beginning of value",
            ),
            (
                "\u{1f}",
                "invalid character '\\x1f' looking for beginning of value",
            ),
        ] {
            assert_eq!(json_error(text.as_bytes()).as_deref(), Some(told), "{text}");
        }
        assert_eq!(json_error(br#" {"a": [1, -2.5e+3, true, "\u00e9\n"]} "#), None);
        let deep = "[".repeat(5_000);
        let told = json_error(deep.as_bytes());
        assert_eq!(told.as_deref(), Some("invalid character '[' exceeded max depth"));
    }
}
