// SPDX-License-Identifier: Apache-2.0
//! Declared types: what the writer of a rule may assume about `self` and the other variables.
//! They are built from structural schemas, carry the size limits that the cost estimate needs,
//! and never change once a program was compiled against them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::program::Program;

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
        /// The most elements it may have; without it, as many as fit a request if all fields of
        /// the elements were optional (see [`max_items`] for a better bound).
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
    /// Somebody to ask about rights.
    Authorizer,
    /// A question about the rights to one resource, to be finished and asked.
    ResourceCheck,
}

/// The largest request, which bounds what has no bound of its own.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// The most elements of a list that fit into a request, by the size of the smallest element in JSON.
pub fn max_items(min_element_size: u64) -> u64 {
    (MAX_REQUEST - 2) / min_element_size.saturating_add(1)
}

/// The most entries of a map that fit into a request, by the size of the smallest value in JSON.
pub fn max_properties(min_value_size: u64) -> u64 {
    (MAX_REQUEST - 2) / min_value_size.saturating_add(6)
}

/// How often data of a smallest size can occur in a request.
pub fn max_cardinality(min_size: u64) -> u64 {
    MAX_REQUEST / min_size.saturating_add(1)
}

impl DeclType {
    /// The size of the smallest value in JSON; fields of objects are taken as optional.
    pub fn min_size(&self) -> u64 {
        match self {
            DeclType::Dyn
            | DeclType::Int
            | DeclType::Uint
            | DeclType::Double
            | DeclType::Authorizer
            | DeclType::ResourceCheck => 1,
            DeclType::Null | DeclType::Bool => 4,
            DeclType::Duration => 3,
            DeclType::Timestamp => 21,
            DeclType::String { .. }
            | DeclType::Bytes { .. }
            | DeclType::List { .. }
            | DeclType::Map { .. }
            | DeclType::Object { .. } => 2,
        }
    }

    /// The most elements, characters or bytes that the cost estimate has to reckon with.
    pub(crate) fn max_elements(&self) -> u64 {
        match self {
            DeclType::List { element, max, .. } => max.unwrap_or_else(|| max_items(element.min_size())),
            DeclType::Map { value, max } => max.unwrap_or_else(|| max_properties(value.min_size())),
            // A character may take four bytes.
            DeclType::String { max } => max.map_or(MAX_REQUEST - 2, |m| m.saturating_mul(4)),
            DeclType::Bytes { max } => max.unwrap_or(MAX_REQUEST - 2),
            DeclType::Dyn => MAX_REQUEST - 2,
            DeclType::Timestamp | DeclType::Duration => 32,
            DeclType::Null
            | DeclType::Bool
            | DeclType::Int
            | DeclType::Uint
            | DeclType::Double
            | DeclType::Object { .. }
            | DeclType::Authorizer
            | DeclType::ResourceCheck => 0,
        }
    }
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
    makes_objects: bool,
    hidden: Option<String>,
}

/// One variable of an environment.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) ty: Arc<DeclType>,
    pub(crate) optional: bool,
    /// The expression that gives its value, when it is not handed in.
    pub(crate) computed: Option<Program>,
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

    /// Hides a variable and what is below it from expressions; computed variables still see it.
    pub fn hiding(mut self, name: &str) -> Self {
        self.hidden = Some(name.to_owned());
        self
    }

    /// Adds a variable that is an optional value of the type.
    pub fn optional_variable(self, name: &str, ty: DeclType) -> Self {
        self.add(name, ty, true)
    }

    /// Adds a variable whose value is that of another expression, compiled against the variables
    /// there are so far. It is evaluated when it is first needed, once per evaluation.
    pub fn computed(mut self, name: &str, program: Program) -> Self {
        self.variables.retain(|v| v.name != name);
        self.variables.push(Variable {
            name: name.to_owned(),
            ty: Arc::new(DeclType::Dyn),
            optional: false,
            computed: Some(program),
        });
        self
    }

    /// Lets expressions make objects and patches, as those of mutating policies do: `Object{...}`,
    /// `Object.spec{...}`, `JSONPatch{...}` and what belongs to them.
    pub fn with_objects(mut self) -> Self {
        self.makes_objects = true;
        self
    }

    pub(crate) fn makes_objects(&self) -> bool {
        self.makes_objects
    }

    fn add(mut self, name: &str, ty: DeclType, optional: bool) -> Self {
        self.variables.retain(|v| v.name != name);
        self.variables.push(Variable {
            name: name.to_owned(),
            ty: Arc::new(ty),
            optional,
            computed: None,
        });
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Variable)> {
        let below = |hidden: &String| name.strip_prefix(hidden.as_str());
        if self
            .hidden
            .as_ref()
            .and_then(below)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        {
            return None;
        }
        self.variables.iter().enumerate().find(|(_, v)| v.name == name)
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
