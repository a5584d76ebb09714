// SPDX-License-Identifier: Apache-2.0
//! Settings that are more than a number or a text.

use std::fmt;
use std::str::FromStr;

use cobaltcore_kit::config::HumanDuration;
use serde::{Deserialize, Deserializer};

/// How a value looks on the command line.
pub(crate) trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown_as_written {
    ($($kind:ty),+) => { $(impl Shown for $kind { fn shown(&self) -> String { self.to_string() } })+ };
}

shown_as_written!(String, bool, u16, u32, HumanDuration, Share, TraitConcurrency);

impl<T: Shown> Shown for Vec<T> {
    fn shown(&self) -> String {
        self.iter().map(Shown::shown).collect::<Vec<_>>().join(",")
    }
}

macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),+ }

        impl Shown for $name {
            fn shown(&self) -> String {
                match self { $(Self::$variant => $text),+ }.to_owned()
            }
        }
    };
}

choices! {
    /// Whether Gardener is told about nodes.
    GardenerMode {
        /// If the node carries labels of Gardener.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off"
    }
}

choices! {
    /// Whether certificates are requested.
    CertificateMode {
        /// If cert-manager is installed and the hypervisor wants one.
        Auto = "auto",
        /// For every node.
        Always = "always",
        /// Never.
        Never = "never"
    }
}

choices! {
    /// Who switches high availability.
    HaMode {
        /// The HA service, by itself.
        Delegated = "delegated",
        /// The operator, by calling the HA service.
        Direct = "direct",
        /// Nobody.
        Off = "off"
    }
}

choices! {
    /// Where the wanted aggregates and traits stand.
    GroupsSource {
        /// In `spec.aggregates` and `spec.customTraits`.
        Lists = "lists",
        /// In `spec.groups`, if there are any.
        Groups = "spec.groups"
    }
}

/// A number, or a share of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Count(usize),
    /// So many of a hundred.
    Percent(u8),
}

impl Share {
    /// How many that is of `all`, at least one.
    pub fn of(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count.max(1),
            Self::Percent(percent) => (all * usize::from(percent) / 100).max(1),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither a count such as 2 nor a share such as 10%");
        match text.strip_suffix('%') {
            None => text.parse().map(Self::Count).map_err(|_| wrong()),
            Some(number) => match number.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
        }
    }
}

/// How many servers may leave a host with a trait at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraitConcurrency {
    /// The trait.
    pub name: String,
    /// How many, at least one.
    pub most: u32,
}

impl fmt::Display for TraitConcurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.most)
    }
}

impl FromStr for TraitConcurrency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(name, most)| {
            let most = most.trim().parse().ok().filter(|most| *most > 0)?;
            let name = name.trim().to_owned();
            (!name.is_empty()).then_some(Self { name, most })
        });
        parsed.ok_or_else(|| format!("{text:?} is not of the form TRAIT=n with n of at least 1"))
    }
}

macro_rules! read_from_text {
    ($($kind:ty),+) => { $(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+ };
}

read_from_text!(Share, TraitConcurrency);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_at_least_one() {
        assert_eq!("10%".parse::<Share>().map(|share| share.of(57)), Ok(5));
        assert_eq!("10%".parse::<Share>().map(|share| share.of(3)), Ok(1));
        assert_eq!("4".parse::<Share>().map(|share| share.of(100)), Ok(4));
        for bad in ["", "%", "0%", "101%", "a", "-1"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }

    #[test]
    fn traits_have_counts() {
        let parsed: TraitConcurrency = "CUSTOM_SLOW = 1".parse().unwrap();
        assert_eq!((parsed.name.as_str(), parsed.most), ("CUSTOM_SLOW", 1));
        for bad in ["CUSTOM_SLOW", "=1", "CUSTOM_SLOW=0", "CUSTOM_SLOW=x"] {
            assert!(bad.parse::<TraitConcurrency>().is_err(), "{bad}");
        }
    }
}
