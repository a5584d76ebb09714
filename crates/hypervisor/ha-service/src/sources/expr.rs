// SPDX-License-Identifier: Apache-2.0
//! The small language of rules over metrics: selectors, a comparison with a number, `absent`,
//! `count`, `increase`, `rate`, and `and`, `or`, `not`. A rule is judged for one host at a time;
//! there are no joins, so what a rule means can be seen by reading it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cobaltcore_kit::config::HumanDuration;
use regex::Regex;

/// Rules longer than this are a mistake.
const LONGEST: usize = 4096;
/// Nested deeper than this as well.
const DEEPEST: usize = 32;

/// Labels of one series, without its name.
pub type Labels = BTreeMap<String, String>;

/// A rule that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be understood at character {at}: {what}")]
pub struct ExprError {
    /// Where.
    pub at: usize,
    /// What was expected.
    pub what: String,
}

/// How a label is compared.
#[derive(Clone, Debug)]
pub enum Match {
    /// It is this.
    Is(String),
    /// It is not.
    IsNot(String),
    /// The whole of it fits.
    Fits(Regex),
    /// It does not.
    FitsNot(Regex),
}

/// Which series.
#[derive(Clone, Debug)]
pub struct Selector {
    /// The metric.
    pub metric: String,
    /// Its labels.
    pub labels: Vec<(String, Match)>,
    text: String,
}

impl Selector {
    /// Whether a series is meant.
    pub fn matches(&self, metric: &str, labels: &Labels) -> bool {
        self.metric == metric
            && self.labels.iter().all(|(name, how)| {
                let value = labels.get(name).map_or("", String::as_str);
                match how {
                    Match::Is(text) => value == text,
                    Match::IsNot(text) => value != text,
                    Match::Fits(pattern) => pattern.is_match(value),
                    Match::FitsNot(pattern) => !pattern.is_match(value),
                }
            })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a number is taken from.
#[derive(Clone, Debug)]
pub enum Term {
    /// The values themselves.
    Value(Selector),
    /// How many series there are.
    Count(Selector),
    /// By how much they grew.
    Increase(Selector, Duration),
    /// How fast.
    Rate(Selector, Duration),
}

impl Term {
    /// The series it reads.
    pub fn selector(&self) -> &Selector {
        match self {
            Self::Value(selector)
            | Self::Count(selector)
            | Self::Increase(selector, _)
            | Self::Rate(selector, _) => selector,
        }
    }

    /// The same in the language of Prometheus, but for `count`, which is counted here per host.
    pub fn query(&self) -> String {
        match self {
            Self::Value(selector) | Self::Count(selector) => selector.to_string(),
            Self::Increase(selector, span) => format!("increase({selector}[{}s])", span.as_secs()),
            Self::Rate(selector, span) => format!("rate({selector}[{}s])", span.as_secs()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    Differs,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

impl Compare {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Differs => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::More => left > right,
            Self::MoreOrEqual => left >= right,
        }
    }
}

#[derive(Clone, Debug)]
enum Node {
    Compare(usize, Compare, f64),
    Absent(usize),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Expr {
    terms: Vec<Term>,
    root: Node,
}

impl Expr {
    /// Reads a rule.
    ///
    /// ```
    /// use cobaltcore_ha_service::sources::expr::Expr;
    /// let rule = Expr::parse(r#"up{job=~"node-exporter.*"} == 0 and not absent(node_load1)"#).unwrap();
    /// assert!(rule.holds(|term| match term.selector().metric.as_str() {
    ///     "up" => vec![0.0],
    ///     _ => vec![1.5],
    /// }));
    /// assert!(Expr::parse("up ==").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        if text.len() > LONGEST {
            return Err(ExprError {
                at: LONGEST,
                what: format!("a rule has at most {LONGEST} characters"),
            });
        }
        let mut parser = Parser {
            text,
            at: 0,
            terms: Vec::new(),
        };
        let root = parser.or(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.wrong("the end, `and` or `or`"));
        }
        Ok(Self {
            terms: parser.terms,
            root,
        })
    }

    /// What it reads.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether it holds for a host, given the values that each term has there. A comparison holds
    /// if any of the values satisfies it; without values only `absent` holds.
    pub fn holds(&self, values: impl Fn(&Term) -> Vec<f64>) -> bool {
        let values: Vec<Vec<f64>> = self.terms.iter().map(values).collect();
        judge(&self.root, &values)
    }
}

fn judge(node: &Node, values: &[Vec<f64>]) -> bool {
    match node {
        Node::Compare(term, compare, number) => values
            .get(*term)
            .is_some_and(|all| all.iter().any(|value| compare.holds(*value, *number))),
        Node::Absent(term) => values.get(*term).is_none_or(Vec::is_empty),
        Node::And(one, two) => judge(one, values) && judge(two, values),
        Node::Or(one, two) => judge(one, values) || judge(two, values),
        Node::Not(inner) => !judge(inner, values),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    terms: Vec<Term>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, expected: &str) -> ExprError {
        ExprError {
            at: self.at,
            what: format!("{expected} was expected"),
        }
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), ExprError> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.wrong(token))
        }
    }

    fn peek_word(&mut self) -> &'a str {
        self.space();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
            .unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    fn or(&mut self, depth: usize) -> Result<Node, ExprError> {
        let mut left = self.and(depth)?;
        while self.eat_word("or") {
            left = Node::Or(Box::new(left), Box::new(self.and(depth)?));
        }
        Ok(left)
    }

    fn and(&mut self, depth: usize) -> Result<Node, ExprError> {
        let mut left = self.not(depth)?;
        while self.eat_word("and") {
            left = Node::And(Box::new(left), Box::new(self.not(depth)?));
        }
        Ok(left)
    }

    fn not(&mut self, depth: usize) -> Result<Node, ExprError> {
        if depth > DEEPEST {
            return Err(self.wrong("less nesting"));
        }
        if self.eat_word("not") {
            return Ok(Node::Not(Box::new(self.not(depth + 1)?)));
        }
        if self.eat("(") {
            let inner = self.or(depth + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, ExprError> {
        let word = self.peek_word();
        let after = self.rest().get(word.len()..).unwrap_or_default();
        let call = after.trim_start().starts_with('(');
        if call && word == "absent" {
            self.at += word.len();
            self.expect("(")?;
            let selector = self.selector()?;
            self.expect(")")?;
            return Ok(Node::Absent(self.term(Term::Value(selector))));
        }
        let term = if call {
            self.call(word)?
        } else {
            Term::Value(self.selector()?)
        };
        let term = self.term(term);
        let compare = self.operator()?;
        Ok(Node::Compare(term, compare, self.number()?))
    }

    fn call(&mut self, word: &str) -> Result<Term, ExprError> {
        let known = matches!(word, "count" | "increase" | "rate");
        if !known {
            return Err(self.wrong("absent, count, increase or rate"));
        }
        self.at += word.len();
        self.expect("(")?;
        let selector = self.selector()?;
        let term = if word == "count" {
            Term::Count(selector)
        } else {
            self.expect(",")?;
            let span = self.span()?;
            if word == "rate" {
                Term::Rate(selector, span)
            } else {
                Term::Increase(selector, span)
            }
        };
        self.expect(")")?;
        Ok(term)
    }

    fn span(&mut self) -> Result<Duration, ExprError> {
        let word = self.peek_word();
        let span: HumanDuration = word.parse().map_err(|_| self.wrong("a duration such as 5m"))?;
        if span.0 < Duration::from_secs(1) || span.0 > Duration::from_secs(6 * 3600) {
            return Err(self.wrong("a duration between 1s and 6h"));
        }
        self.at += word.len();
        Ok(span.0)
    }

    fn term(&mut self, term: Term) -> usize {
        self.terms.push(term);
        self.terms.len() - 1
    }

    fn operator(&mut self) -> Result<Compare, ExprError> {
        const ALL: [(&str, Compare); 6] = [
            ("==", Compare::Equal),
            ("!=", Compare::Differs),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::MoreOrEqual),
            ("<", Compare::Less),
            (">", Compare::More),
        ];
        ALL.into_iter()
            .find(|(token, _)| self.eat(token))
            .map(|(_, compare)| compare)
            .ok_or_else(|| self.wrong("a comparison such as == or >"))
    }

    fn number(&mut self) -> Result<f64, ExprError> {
        self.space();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '+'))
            .unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        let number = word.parse::<f64>().map_err(|_| self.wrong("a number"))?;
        self.at += end;
        Ok(number)
    }

    fn selector(&mut self) -> Result<Selector, ExprError> {
        self.space();
        let start = self.at;
        let metric = self.peek_word();
        if metric.is_empty() || metric.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong("the name of a metric"));
        }
        self.at += metric.len();
        let mut labels = Vec::new();
        if self.rest().starts_with('{') {
            self.expect("{")?;
            while !self.eat("}") {
                labels.push(self.label()?);
                if !self.eat(",") {
                    self.expect("}")?;
                    break;
                }
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default().to_owned();
        Ok(Selector {
            metric: metric.to_owned(),
            labels,
            text,
        })
    }

    fn label(&mut self) -> Result<(String, Match), ExprError> {
        let name = self.peek_word();
        if name.is_empty() {
            return Err(self.wrong("the name of a label"));
        }
        self.at += name.len();
        let how = ["=~", "!~", "!=", "="]
            .into_iter()
            .find(|token| self.eat(token))
            .ok_or_else(|| self.wrong("=, !=, =~ or !~"))?;
        let value = self.quoted()?;
        let pattern = |parser: &Self| {
            regex::RegexBuilder::new(&format!("^(?:{value})$"))
                .size_limit(1 << 20)
                .build()
                .map_err(|_| parser.wrong("a regular expression"))
        };
        let how = match how {
            "=" => Match::Is(value),
            "!=" => Match::IsNot(value),
            "=~" => Match::Fits(pattern(self)?),
            _ => Match::FitsNot(pattern(self)?),
        };
        Ok((name.to_owned(), how))
    }

    fn quoted(&mut self) -> Result<String, ExprError> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut escaped = false;
        for (n, c) in self.rest().char_indices() {
            match (escaped, c) {
                (false, '"') => {
                    self.at += n + 1;
                    return Ok(out);
                }
                (false, '\\') => escaped = true,
                (true, 'n') => {
                    out.push('\n');
                    escaped = false;
                }
                (_, c) => {
                    out.push(c);
                    escaped = false;
                }
            }
        }
        Err(self.wrong("a closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Given<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

    fn holds(rule: &str, samples: &[Given<'_>]) -> bool {
        let rule = Expr::parse(rule).unwrap();
        rule.holds(|term| {
            samples
                .iter()
                .filter(|(metric, labels, _)| {
                    let labels = labels
                        .iter()
                        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                        .collect();
                    term.selector().matches(metric, &labels)
                })
                .map(|(_, _, value)| *value)
                .collect()
        })
    }

    #[test]
    fn rules_mean_what_they_say() {
        let up: &[Given<'_>] = &[
            ("up", &[("job", "node-exporter"), ("az", "a")], 0.0),
            ("load", &[], 3.5),
        ];
        for (rule, wanted) in [
            ("up == 0", true),
            ("up{job=\"node-exporter\"} == 0", true),
            ("up{job=\"other\"} == 0", false),
            ("up{job!=\"other\"} == 0", true),
            ("up{job=~\"node.*\"} == 0", true),
            ("up{job=~\"node\"} == 0", false),
            ("up{job!~\"node\", az=\"a\"} == 0", true),
            ("load > 3 and up == 0", true),
            ("load > 4 or up == 0", true),
            ("not load > 4", true),
            ("not (load > 3 or up == 0)", false),
            ("absent(down)", true),
            ("absent(up)", false),
            ("down == 0", false),
            ("load >= 3.5", true),
            ("load != -1e3", true),
            ("load < +Inf", true),
        ] {
            assert_eq!(holds(rule, up), wanted, "{rule}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (rule, at) in [
            ("", 0),
            ("up", 2),
            ("up ==", 5),
            ("up == zero", 6),
            ("up{job} == 0", 6),
            ("up{job=\"a} == 0", 8),
            ("up{job=~\"(\"} == 0", 11),
            ("sum(up) == 0", 0),
            ("increase(up) > 0", 11),
            ("increase(up, 5) > 0", 13),
            ("up == 0 up == 1", 8),
            ("(up == 0", 8),
            ("1up == 0", 0),
        ] {
            let error = Expr::parse(rule).unwrap_err();
            assert_eq!(error.at, at, "{rule}: {error}");
        }
        assert!(Expr::parse(&"not ".repeat(40)).is_err());
        assert!(Expr::parse(&"(".repeat(2000)).is_err());
    }

    #[test]
    fn terms_become_queries() {
        let rule =
            Expr::parse("increase(errors{a=\"b\"}, 5m) > 0 and rate(x, 1h) < 1 and count(y) == 2").unwrap();
        let queries: Vec<String> = rule.terms().iter().map(Term::query).collect();
        assert_eq!(
            queries,
            ["increase(errors{a=\"b\"}[300s])", "rate(x[3600s])", "y"]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,80}") {
            let _ = Expr::parse(&text);
        }
    }
}
