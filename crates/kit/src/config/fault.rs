// SPDX-License-Identifier: Apache-2.0
//! The mistake that a reading stopped at: what is wrong, and as soon as it is known, where.

use std::fmt;

use serde::de::{self, Unexpected};

use super::tree::{Node, Place, Value};

/// The first mistake of one reading.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Option<Vec<String>>,
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) kind: Kind,
    /// Whether this only follows from a mistake reported before.
    pub(super) consequential: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Unknown,
    Missing(&'static str),
    Invalid,
}

impl Fault {
    pub(super) fn new(kind: Kind, message: String) -> Self {
        let place = Place {
            source: String::new(),
            line: None,
        };
        Self {
            path: None,
            place,
            message,
            kind,
            consequential: false,
        }
    }

    /// Fills in where it happened, unless that is known better already.
    pub(super) fn at(mut self, path: &[String], node: &Node) -> Self {
        if self.path.is_none() {
            self.path = Some(path.to_vec());
            self.place = node.place.clone();
            self.consequential = matches!(node.value, Value::Aside);
        }
        self
    }

    pub(super) fn key(&self) -> String {
        let mut path = self.path.clone().unwrap_or_default();
        if let Kind::Missing(field) = self.kind {
            path.push(field.to_owned());
        }
        path.join(".")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Kind::Invalid, message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Kind::Missing(field), "is required".into())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(Kind::Invalid, format!("expected {expected}, found {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(Kind::Invalid, format!("expected {expected}, found {found}"))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::new(
            Kind::Invalid,
            format!("{found:?} is not one of {}", expected.join(", ")),
        )
    }
}
