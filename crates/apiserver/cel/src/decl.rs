// SPDX-License-Identifier: Apache-2.0
//! Declared types: what the writer of a rule may assume about `self` and the other variables.
//! They are built from structural schemas, carry the size limits that the cost estimate needs,
//! and never change once a program was compiled against them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The declared type of a value.
#[derive(Debug, Clone)]
pub enum DeclType {
    /// Anything; types are looked at when the rule runs.
    Dyn,
    /// Only null.
    Null,
    /// A boolean.
    Bool,
    /// A 64-bit signed integer.
    Int,
    /// A 64-bit unsigned integer.
    Uint,
    /// A double; JSON integers are converted.
    Double,
    /// A string of at most `max` code points.
    String {
        /// The longest allowed value, in code points.
        max: Option<u64>,
    },
    /// Bytes, in JSON a base64 string.
    Bytes {
        /// The longest allowed value, in bytes.
        max: Option<u64>,
    },
    /// A point in time, in JSON a date or date-time string.
    Timestamp,
    /// A length of time, in JSON a duration string such as `1h30m`.
    Duration,
    /// A list.
    List {
        /// What its elements are.
        element: Arc<DeclType>,
        /// How it is compared and merged.
        kind: ListKind,
        /// The most elements it may have.
        max: Option<u64>,
    },
    /// A map from strings.
    Map {
        /// What its values are.
        value: Arc<DeclType>,
        /// The most entries it may have.
        max: Option<u64>,
    },
    /// An object with known fields.
    Object {
        /// The name shown in messages.
        name: String,
        /// Fields by their JSON name, not escaped.
        fields: Arc<BTreeMap<String, Arc<DeclType>>>,
    },
}

/// How a list behaves under `==` and `+`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// Order matters.
    Atomic,
    /// Order does not matter; elements are unique.
    Set,
    /// Order does not matter; elements are told apart by these fields.
    Map(Vec<String>),
}

/// The variables a rule may use.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<Variable>,
}

/// One variable of an environment.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) ty: Arc<DeclType>,
    pub(crate) optional: bool,
}

impl Env {
    /// An environment without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    pub fn variable(self, name: &str, ty: DeclType) -> Self {
        self.add(name, ty, false)
    }

    /// Adds a variable that is an optional value of the type.
    pub fn optional_variable(self, name: &str, ty: DeclType) -> Self {
        self.add(name, ty, true)
    }

    fn add(mut self, name: &str, ty: DeclType, optional: bool) -> Self {
        self.variables.retain(|v| v.name != name);
        self.variables.push(Variable {
            name: name.to_owned(),
            ty: Arc::new(ty),
            optional,
        });
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Variable)> {
        self.variables.iter().enumerate().find(|(_, v)| v.name == name)
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
