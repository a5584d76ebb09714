// SPDX-License-Identifier: Apache-2.0
//! Semantic versions with the precedence rules of semver 2.0, optionally normalised from
//! shortened forms such as `v1.2`.

use cobaltcore_text::go;
use std::cmp::Ordering;
use std::fmt;

/// A version; build metadata does not take part in comparisons.
#[derive(Debug, Clone)]
pub(crate) struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pre: Vec<Part>,
    build: Vec<String>,
}

/// One identifier of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Number(u64),
    Word(String),
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Semver {
    /// Parses a version; `normalise` accepts a leading `v`, missing parts and leading zeros.
    pub(crate) fn parse(text: &str, normalise: bool) -> Result<Semver, String> {
        if normalise {
            return Self::strict(&normalised(text)?);
        }
        Self::strict(text)
    }

    fn strict(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(r, b)| (r, Some(b)));
        let (patch, pre) = rest
            .split_once('-')
            .map_or((rest, None), |(p, pre)| (p, Some(pre)));
        Ok(Semver {
            major: number(major, "Major")?,
            minor: number(minor, "Minor")?,
            patch: number(patch, "Patch")?,
            pre: pre.map_or(Ok(Vec::new()), |p| p.split('.').map(pre_part).collect())?,
            build: build.map_or(Ok(Vec::new()), |b| b.split('.').map(build_part).collect())?,
        })
    }

    pub(crate) fn compare(&self, other: &Semver) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.compare_pre(other),
            })
    }

    fn compare_pre(&self, other: &Semver) -> Ordering {
        for (a, b) in self.pre.iter().zip(&other.pre) {
            let order = match (a, b) {
                (Part::Number(a), Part::Number(b)) => a.cmp(b),
                (Part::Number(_), Part::Word(_)) => Ordering::Less,
                (Part::Word(_), Part::Number(_)) => Ordering::Greater,
                (Part::Word(a), Part::Word(b)) => a.cmp(b),
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        self.pre.len().cmp(&other.pre.len())
    }
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {} number {}",
            what.to_lowercase(),
            go::quote(text)
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{what} number must not contain leading zeroes {text}",
            text = go::quote(text)
        ));
    }
    text.parse().map_err(|_| {
        format!(
            "strconv.ParseUint: parsing {text}: value out of range",
            text = go::quote(text)
        )
    })
}

fn word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn pre_part(text: &str) -> Result<Part, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {text}",
                text = go::quote(text)
            ));
        }
        return text.parse().map(Part::Number).map_err(|_| {
            format!(
                "strconv.ParseUint: parsing {text}: value out of range",
                text = go::quote(text)
            )
        });
    }
    if word(text) {
        Ok(Part::Word(text.to_owned()))
    } else {
        Err(format!(
            "Invalid character(s) found in prerelease {text}",
            text = go::quote(text)
        ))
    }
}

fn build_part(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("Build meta data is empty".into());
    }
    if word(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "Invalid character(s) found in build meta data {text}",
            text = go::quote(text)
        ))
    }
}

fn normalised(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|p| {
            if p.len() <= 1 {
                return p.to_owned();
            }
            let trimmed = p.trim_start_matches('0');
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 && parts.last().is_some_and(|p| p.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    while parts.len() < 3 {
        parts.push("0".into());
    }
    Ok(parts.join("."))
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (i, part) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match part {
                Part::Number(n) => write!(f, "{n}")?,
                Part::Word(w) => f.write_str(w)?,
            }
        }
        for (i, part) in self.build.iter().enumerate() {
            f.write_str(if i == 0 { "+" } else { "." })?;
            f.write_str(part)?;
        }
        Ok(())
    }
}
