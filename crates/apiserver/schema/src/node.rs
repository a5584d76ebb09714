// SPDX-License-Identifier: Apache-2.0
//! The schema tree itself: plain data, shared by reference, never changed once built.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_cel::Program;
use regex::Regex;
use serde_json::{Number, Value};

/// JSON types a node may require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// A JSON string.
    String,
    /// A number without fraction that fits 64 bits.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// How the elements of a list belong to their owners (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// The list is owned and replaced as a whole.
    #[default]
    Atomic,
    /// Unordered scalars, each owned on its own.
    Set,
    /// Objects identified by the named key fields, each owned on its own.
    Map(Vec<String>),
}

/// How the fields of an object or map belong to their owners (`x-kubernetes-map-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    /// Every field is owned on its own.
    #[default]
    Granular,
    /// The object is owned and replaced as a whole.
    Atomic,
}

/// What strategic merge does with a field of a built-in kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Lists merge element by element instead of being replaced.
    pub merge: bool,
    /// The field that identifies list elements when merging; `None` for lists of scalars.
    pub merge_key: Option<String>,
    /// `$retainKeys` is honoured (`retainKeys` strategy).
    pub retain_keys: bool,
    /// Maps are replaced instead of merged (`replace` strategy).
    pub replace: bool,
}

/// The values of a map, where a node describes one (`additionalProperties`).
#[derive(Debug, Clone)]
pub enum Additional {
    /// Any value is allowed and kept.
    Any,
    /// Every value follows this schema.
    Schema(Arc<Schema>),
}

/// One node of a schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Required JSON type; `None` where `int_or_string` or `preserve_unknown` replaces it.
    pub kind: Option<Type>,
    /// Integer or string (`x-kubernetes-int-or-string`).
    pub int_or_string: bool,
    /// Unknown fields below this node are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// The node is a whole object with apiVersion, kind and metadata of its own.
    pub embedded_resource: bool,
    /// `null` is an allowed value.
    pub nullable: bool,
    /// Put in when the field is absent.
    pub default: Option<Value>,
    /// Named fields.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// Values of a map.
    pub additional: Option<Additional>,
    /// Elements of a list.
    pub items: Option<Arc<Schema>>,
    /// Fields that must be present.
    pub required: Vec<String>,
    /// Ownership of list elements.
    pub list_type: ListType,
    /// Ownership of fields.
    pub map_type: MapType,
    /// Strategic merge (built-in kinds only).
    pub patch: PatchStrategy,
    /// `format`, as written.
    pub format: Option<String>,
    /// Text for `kubectl explain` and table columns.
    pub description: Option<Arc<str>>,
    /// `title`, as written.
    pub title: Option<Arc<str>>,
    /// Name of the OpenAPI definition this node is an instance of (built-in kinds only),
    /// e.g. `io.k8s.api.core.v1.PodSpec`.
    pub definition: Option<Arc<str>>,
    /// Everything that restricts values without shaping them. Boxed: most nodes have none.
    pub validation: Option<Box<Validation>>,
    /// CEL rules (`x-kubernetes-validations`).
    pub rules: Vec<Rule>,
    /// Some node below has rules, so that walks can skip what has none.
    pub rules_below: bool,
    /// Some node below is an embedded resource.
    pub embedded_below: bool,
}

/// Value restrictions of one node.
#[derive(Debug, Clone, Default)]
pub struct Validation {
    /// Allowed values.
    pub enumeration: Option<Vec<Value>>,
    /// Smallest allowed number.
    pub minimum: Option<Number>,
    /// Largest allowed number.
    pub maximum: Option<Number>,
    /// `minimum` itself is not allowed.
    pub exclusive_minimum: bool,
    /// `maximum` itself is not allowed.
    pub exclusive_maximum: bool,
    /// Numbers must be a multiple of this.
    pub multiple_of: Option<Number>,
    /// Fewest characters.
    pub min_length: Option<u64>,
    /// Most characters.
    pub max_length: Option<u64>,
    /// Fewest list elements.
    pub min_items: Option<u64>,
    /// Most list elements.
    pub max_items: Option<u64>,
    /// Fewest fields.
    pub min_properties: Option<u64>,
    /// Most fields.
    pub max_properties: Option<u64>,
    /// Elements must differ (never true in structural schemas).
    pub unique_items: bool,
    /// The pattern as written, and compiled.
    pub pattern: Option<(String, Regex)>,
    /// All must hold.
    pub all_of: Vec<Arc<Schema>>,
    /// At least one must hold.
    pub any_of: Vec<Arc<Schema>>,
    /// Exactly one must hold.
    pub one_of: Vec<Arc<Schema>>,
    /// Must not hold.
    pub not: Option<Arc<Schema>>,
    /// No fields besides the named ones are allowed (`additionalProperties: false`).
    pub closed: bool,
}

/// One CEL rule of a node. The compiled program is attached by the rules module.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    /// Fixed message on failure.
    pub message: Option<String>,
    /// Expression that yields the message on failure.
    pub message_expression: Option<String>,
    /// Machine-readable reason, as written (`FieldValueInvalid` when absent).
    pub reason: Option<String>,
    /// Field the failure is reported at, relative to the node.
    pub field_path: Option<String>,
    /// `oldSelf` is an optional and the rule always runs.
    pub optional_old_self: bool,
    /// `optionalOldSelf` was written, whatever its value.
    pub optional_old_self_given: bool,
    /// The compiled expression, once the rules of the schema were compiled.
    pub program: Option<Program>,
    /// The compiled message expression.
    pub message_program: Option<Program>,
    /// Why the expression does not compile.
    pub error: Option<String>,
    /// Why the message expression does not compile.
    pub message_error: Option<String>,
}

impl Schema {
    /// The schema of a named field or map key, if the node describes it.
    pub fn child(&self, key: &str) -> Option<&Schema> {
        if let Some(found) = self.properties.get(key) {
            return Some(found);
        }
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The schema of list elements, if the node describes them.
    pub fn element(&self) -> Option<&Schema> {
        self.items.as_deref()
    }

    /// Whether only the named fields are allowed (`additionalProperties: false`).
    pub fn is_closed(&self) -> bool {
        self.validation.as_ref().is_some_and(|v| v.closed)
    }

    /// Whether the node or anything below it has rules.
    pub fn has_rules(&self) -> bool {
        self.rules_below || !self.rules.is_empty()
    }

    /// Whether the node describes nothing at all: the values of `additionalProperties: true`.
    pub fn is_opaque(&self) -> bool {
        self.kind.is_none()
            && !self.int_or_string
            && !self.preserve_unknown
            && self.properties.is_empty()
            && self.additional.is_none()
            && self.items.is_none()
    }

    /// Whether the node is a struct with named fields, as opposed to a map.
    pub fn is_struct(&self) -> bool {
        !self.properties.is_empty()
    }
}
