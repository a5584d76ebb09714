// SPDX-License-Identifier: Apache-2.0
//! Two ways to write a set of words once: `words!` for sets that only we write, and
//! `open_words!` for fields that others write too. An open set keeps a word it does not know
//! instead of failing, because one unreadable object must not blind a watch of thousands.

use std::fmt;

/// A text that is not one of the words of a closed set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// What kind of word was expected.
    pub expected: &'static str,
    /// The text found instead.
    pub found: String,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}", self.found, self.expected)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* #[doc = concat!("Spelled `", $text, "`.")] $variant,)+
        }

        impl $name {
            /// Every word of the set, in the order of the documents.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word as it appears on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The member spelled `text`, if there is one.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text).ok_or_else(|| $crate::words::UnknownWord {
                    expected: stringify!($name),
                    found: text.to_owned(),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

macro_rules! open_words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* #[doc = concat!("Spelled `", $text, "`.")] $variant,)+
            /// A word this version does not know, kept as it was read.
            Other(String),
        }

        impl $name {
            /// The words that the schema allows, in its order.
            pub const WORDS: &'static [&'static str] = &[$($text),+];

            /// The word as it appears on the wire.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $text,)+ Self::Other(text) => text }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text { $($text => Self::$variant,)+ other => Self::Other(other.to_owned()) }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(text.as_ref()))
            }
        }
    };
}

pub(crate) use {open_words, words};

#[cfg(test)]
mod tests {
    use crate::reasons::OnboardingReason;
    use crate::{LifecyclePhase, Maintenance};

    #[test]
    fn a_closed_set_refuses_foreign_words_by_name() {
        assert_eq!(
            OnboardingReason::parse("Handover"),
            Some(OnboardingReason::Handover)
        );
        let error = "Paused".parse::<LifecyclePhase>().unwrap_err();
        assert_eq!(error.to_string(), "\"Paused\" is not a LifecyclePhase");
    }

    #[test]
    fn an_open_set_carries_foreign_words_through_unchanged() {
        let mode: Maintenance = serde_json::from_str("\"firmware\"").unwrap();
        assert_eq!(mode, Maintenance::Other("firmware".into()));
        assert_eq!(serde_json::to_string(&mode).unwrap(), "\"firmware\"");
        assert_eq!(
            serde_json::from_str::<Maintenance>("\"ha\"").unwrap(),
            Maintenance::Ha
        );
    }
}
