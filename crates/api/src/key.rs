// SPDX-License-Identifier: Apache-2.0
//! The type of label keys, annotation keys and finalizer names: a word that is fixed at
//! compile time and cannot be confused with a value.

use std::fmt;

/// The key of a label or an annotation, or the name of a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(&'static str);

impl Key {
    /// A key with the given spelling.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    /// The key as it appears on the wire.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0.to_owned()
    }
}
