// SPDX-License-Identifier: Apache-2.0
//! Microversions: what a service offers, what a call needs, and the one both sides understand.
//! A cloud that is too old is refused in words before anything is sent to it.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A microversion such as 2.90.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Microversion {
    major: u16,
    minor: u16,
}

impl Microversion {
    /// A microversion from its two numbers.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Microversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Microversion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(major, minor)| {
            let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
            Some(Self::new(major, minor))
        });
        parts.ok_or_else(|| format!("{text:?} is not a microversion; write it like 2.90"))
    }
}

/// What a service offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The oldest.
    pub oldest: Microversion,
    /// The newest.
    pub newest: Microversion,
}

impl Offer {
    /// The newest microversion that the service offers and the call understands.
    pub(crate) fn choose(self, least: Microversion, best: Microversion) -> Option<Microversion> {
        let version = best.min(self.newest);
        (version >= least && version >= self.oldest).then_some(version)
    }

    /// Reads a version document: `version`, `versions`, or Keystone's `versions.values`.
    pub(crate) fn read(document: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(document).ok()?;
        let entries = match (document.version, document.versions) {
            (Some(one), _) => vec![one],
            (None, Some(Entries::List(list) | Entries::Values { values: list })) => list,
            (None, None) => Vec::new(),
        };
        let offers = entries.into_iter().filter_map(|entry| {
            let newest = entry.max_version.or(entry.version)?.parse().ok()?;
            let oldest = entry.min_version?.parse().ok()?;
            Some(Self { oldest, newest })
        });
        offers.max_by_key(|offer| offer.newest)
    }
}

#[derive(Deserialize)]
struct Document {
    version: Option<Entry>,
    versions: Option<Entries>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entries {
    List(Vec<Entry>),
    Values { values: Vec<Entry> },
}

#[derive(Deserialize)]
struct Entry {
    version: Option<String>,
    max_version: Option<String>,
    min_version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(major: u16, minor: u16) -> Microversion {
        Microversion::new(major, minor)
    }

    #[test]
    fn both_sides_meet_at_the_newest_they_share() {
        let debian = Offer {
            oldest: v(2, 1),
            newest: v(2, 93),
        };
        assert_eq!(debian.choose(v(2, 53), v(2, 90)), Some(v(2, 90)));
        assert_eq!(debian.choose(v(2, 53), v(2, 95)), Some(v(2, 93)));
        assert_eq!(debian.choose(v(2, 94), v(2, 96)), None);
        let young = Offer {
            oldest: v(2, 95),
            newest: v(2, 99),
        };
        assert_eq!(young.choose(v(2, 53), v(2, 90)), None);
        assert!(v(2, 9) < v(2, 10), "minor versions are numbers");
    }

    #[test]
    fn version_documents_are_read_in_every_shape() {
        let nova = br#"{"version": {"id": "v2.1", "version": "2.93", "min_version": "2.1", "links": []}}"#;
        let placement = br#"{"versions": [{"id": "v1.0", "max_version": "1.39", "min_version": "1.0"}]}"#;
        let root = br#"{"versions": [{"id": "v2.0", "version": "", "min_version": ""},
                        {"id": "v2.1", "version": "2.96", "min_version": "2.1"}]}"#;
        assert_eq!(Offer::read(nova).map(|offer| offer.newest), Some(v(2, 93)));
        assert_eq!(Offer::read(placement).map(|offer| offer.newest), Some(v(1, 39)));
        assert_eq!(Offer::read(root).map(|offer| offer.newest), Some(v(2, 96)));
        assert_eq!(Offer::read(b"<html>"), None);
        assert_eq!(Offer::read(br#"{"versions": []}"#), None);
    }

    #[test]
    fn only_numbers_are_microversions() {
        assert_eq!("2.90".parse(), Ok(v(2, 90)));
        for wrong in ["2", "latest", "2.x", "", "2.90.1", "70000.1"] {
            assert!(wrong.parse::<Microversion>().is_err(), "{wrong}");
        }
    }
}
