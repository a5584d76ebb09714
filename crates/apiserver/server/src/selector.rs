// SPDX-License-Identifier: Apache-2.0
//! Label and field selectors: parsing with the reference's refusals, and matching.

use cobaltcore_text::go;
use std::collections::BTreeSet;

use cobaltcore_schema::names;
use serde_json::Value;

use crate::store::Facts;

/// Longest selector accepted.
const MAX_LENGTH: usize = 64 << 10;

/// A parsed label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err("unable to parse requirement: selector is too long".into());
        }
        Parser {
            tokens: lex(text),
            at: 0,
        }
        .requirements()
        .map(Self)
    }

    /// Parses the structured form (`matchLabels`, `matchExpressions`).
    pub fn from_object(selector: &Value) -> Result<Self, String> {
        let mut all = Vec::new();
        if let Some(labels) = selector["matchLabels"].as_object() {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                all.push(Requirement {
                    key: key.clone(),
                    test: Test::In([value].into()),
                });
            }
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values: BTreeSet<String> = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => {
                    return Err(format!(
                        "{other} is not a valid label selector operator",
                        other = go::quote(other)
                    ));
                }
            };
            all.push(Requirement { key, test });
        }
        Ok(Self(all))
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels given by a look-up match.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| r.holds(label(&r.key)))
    }

    /// Whether a stored object matches.
    pub fn matches_facts(&self, facts: &Facts) -> bool {
        self.matches(|key| facts.label(key))
    }

    /// Whether an object in tree form matches.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl Requirement {
    fn holds(&self, label: Option<&str>) -> bool {
        match (&self.test, label) {
            (Test::In(values), Some(label)) => values.contains(label),
            (Test::In(_) | Test::Exists | Test::Greater(_) | Test::Less(_), None) => false,
            (Test::NotIn(values), Some(label)) => !values.contains(label),
            (Test::NotIn(_) | Test::Absent, None) | (Test::Exists, Some(_)) => true,
            (Test::Absent, Some(_)) => false,
            (Test::Greater(bound), Some(label)) => label.parse::<i64>().is_ok_and(|v| v > *bound),
            (Test::Less(bound), Some(label)) => label.parse::<i64>().is_ok_and(|v| v < *bound),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Equal,
    DoubleEqual,
    NotEqual,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    Not,
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Equal => "=",
            Self::DoubleEqual => "==",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            // Nobody reads on behind the character that ends texts elsewhere.
            '\0' => break,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '>' => Token::Greater,
            '<' => Token::Less,
            '=' if chars.next_if_eq(&'=').is_some() => Token::DoubleEqual,
            '=' => Token::Equal,
            '!' if chars.next_if_eq(&'=').is_some() => Token::NotEqual,
            '!' => Token::Not,
            c => {
                let mut word = String::from(c);
                while let Some(next) = chars
                    .next_if(|n| !n.is_whitespace() && !matches!(n, '(' | ')' | ',' | '>' | '<' | '=' | '!'))
                {
                    word.push(next);
                }
                Token::Word(word)
            }
        };
        tokens.push(token);
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirements(mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        match self.peek() {
            Token::End => return Ok(all),
            Token::Word(_) | Token::Not => {}
            other => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        }
        loop {
            all.push(
                self.requirement()
                    .map_err(|e| format!("unable to parse requirement: {e}"))?,
            );
            match self.next() {
                Token::End => return Ok(all),
                Token::Comma => match self.peek() {
                    Token::Word(_) | Token::Not => {}
                    other => {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            other.text()
                        ));
                    }
                },
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = *self.peek() == Token::Not;
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        let test = match self.peek().clone() {
            Token::End | Token::Comma => Test::Exists,
            Token::Equal | Token::DoubleEqual => {
                self.next();
                Test::In([self.exact(&key)?].into())
            }
            Token::NotEqual => {
                self.next();
                Test::NotIn([self.exact(&key)?].into())
            }
            Token::Greater => {
                self.next();
                Test::Greater(self.bound()?)
            }
            Token::Less => {
                self.next();
                Test::Less(self.bound()?)
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.next();
                let values = self.values(&key)?;
                if word == "in" {
                    Test::In(values)
                } else {
                    Test::NotIn(values)
                }
            }
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        Ok(Requirement { key, test })
    }

    fn exact(&mut self, key: &str) -> Result<String, String> {
        let value = match self.peek() {
            Token::End | Token::Comma => String::new(),
            Token::Word(word) => {
                let word = word.clone();
                self.next();
                word
            }
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_value(key, &value)?;
        Ok(value)
    }

    fn bound(&mut self) -> Result<i64, String> {
        match self.next() {
            Token::Word(word) => word
                .parse()
                .map_err(|_| format!("values[0]: Invalid value: {word}: for 'Gt', 'Lt' operators, the value must be an integer", word = go::quote(&word))),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Open => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(word) => {
                    let word = word.clone();
                    self.next();
                    word
                }
                Token::Comma | Token::Close => String::new(),
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            };
            check_value(key, &value)?;
            values.insert(value);
            match self.next() {
                Token::Comma => {}
                Token::Close => return Ok(values),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let errors = names::qualified_name(key);
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: {key}: {}",
        errors.join("; "),
        key = go::quote(key)
    ))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    let errors = names::label_value(value);
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: {value}: {}",
        errors.join("; "),
        value = go::quote(value)
    ))
}

/// A parsed field selector: all terms must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector(pub Vec<FieldTerm>);

/// One term of a field selector.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTerm {
    /// The field label.
    pub field: String,
    /// The value compared with.
    pub value: String,
    /// Whether it must be equal (or must not).
    pub equal: bool,
}

impl FieldSelector {
    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err("invalid field selector: too long".into());
        }
        let mut terms = Vec::new();
        let mut parts = split_terms(text);
        parts.sort_unstable();
        for part in parts {
            if part.is_empty() {
                continue;
            }
            let (at, width, equal) = operator(part)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let value = unescape(&part[at + width..])?;
            // An operator alone asks for nothing, even where it says that nothing is not nothing.
            if at == 0 && value.is_empty() {
                continue;
            }
            terms.push(FieldTerm {
                field: part[..at].to_owned(),
                value,
                equal,
            });
        }
        Ok(Self(terms))
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether values given by a look-up match.
    pub fn matches(&self, value: impl Fn(&str) -> String) -> bool {
        self.0
            .iter()
            .all(|term| (value(&term.field) == term.value) == term.equal)
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn operator(part: &str) -> Option<(usize, usize, bool)> {
    for (at, _) in part.char_indices() {
        let rest = &part[at..];
        if rest.starts_with("!=") {
            return Some((at, 2, false));
        }
        if rest.starts_with("==") {
            return Some((at, 2, true));
        }
        if rest.starts_with('=') {
            return Some((at, 1, true));
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                other => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{}",
                        other.map(String::from).unwrap_or_default()
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(selector: &str, labels: &[(&str, &str)]) -> bool {
        LabelSelector::parse(selector)
            .unwrap()
            .matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn label_selectors_match() {
        let labels = [("env", "prod"), ("n", "5"), ("empty", "")];
        for (selector, expected) in [
            ("", true),
            ("env=prod", true),
            ("env==prod,n", true),
            ("env!=prod", false),
            ("missing!=x", true),
            ("env in (dev, prod)", true),
            ("env notin (dev)", true),
            ("missing notin (dev)", true),
            ("!missing", true),
            ("!env", false),
            ("n>4,n<6", true),
            ("n>5", false),
            ("empty=", true),
            ("env in (prod),!x", true),
        ] {
            assert_eq!(holds(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn bad_label_selectors_are_refused() {
        for selector in [
            "=a", "a in", "a in (", "a,,b", "a=b=c", "n>x", "a b", "-a=b", "a=b,", "a=-",
        ] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn field_selectors_parse_and_match() {
        let selector = FieldSelector::parse(r"metadata.name=a,spec.x!=b\,c,y==z").unwrap();
        assert!(selector.matches(|f| match f {
            "metadata.name" => "a".into(),
            "spec.x" => "other".into(),
            _ => "z".into(),
        }));
        assert!(!selector.matches(|f| if f == "spec.x" { "b,c".into() } else { "a".into() }));
        assert!(FieldSelector::parse("nope").is_err());
    }
}
