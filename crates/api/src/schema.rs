// SPDX-License-Identifier: Apache-2.0
//! A small language for structural schemas. Schemas are written out by hand because the wire
//! contract is exact: formats, defaults and requiredness must not follow from Rust types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use serde_json::Value;

/// The form of a Kubernetes quantity.
pub const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// The form of a UUID.
pub const UUID_PATTERN: &str =
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";

/// A structural schema under construction.
#[derive(Clone, Debug, Default)]
pub struct Schema(Box<JSONSchemaProps>);

impl Schema {
    fn of(type_: &str) -> Self {
        Self(Box::new(JSONSchemaProps {
            type_: Some(type_.into()),
            ..JSONSchemaProps::default()
        }))
    }

    /// A string.
    pub fn text() -> Self {
        Self::of("string")
    }

    /// A boolean.
    pub fn boolean() -> Self {
        Self::of("boolean")
    }

    /// A whole number without a stated width.
    pub fn integer() -> Self {
        Self::of("integer")
    }

    /// A 64-bit whole number.
    pub fn int64() -> Self {
        Self::integer().format("int64")
    }

    /// Any number.
    pub fn number() -> Self {
        Self::of("number")
    }

    /// A point in time.
    pub fn time() -> Self {
        Self::text().format("date-time")
    }

    /// One word out of a set.
    pub fn word(words: &[&str]) -> Self {
        let mut schema = Self::text();
        schema.0.enum_ = Some(words.iter().map(|word| JSON(Value::from(*word))).collect());
        schema
    }

    /// An amount of a resource, as text or integer.
    pub fn quantity() -> Self {
        Self(Box::new(JSONSchemaProps {
            any_of: Some(vec![*Self::of("integer").0, *Self::of("string").0]),
            pattern: Some(QUANTITY_PATTERN.into()),
            x_kubernetes_int_or_string: Some(true),
            ..JSONSchemaProps::default()
        }))
    }

    /// An object with the given fields.
    pub fn object<const N: usize>(fields: [(&str, Schema); N]) -> Self {
        let mut schema = Self::of("object");
        if N > 0 {
            schema.0.properties = Some(
                fields
                    .into_iter()
                    .map(|(name, field)| (name.to_owned(), *field.0))
                    .collect::<BTreeMap<_, _>>(),
            );
        }
        schema
    }

    /// An object with free keys and values of one form.
    pub fn map_of(value: Schema) -> Self {
        let mut schema = Self::of("object");
        schema.0.additional_properties = Some(JSONSchemaPropsOrBool::Schema(value.0));
        schema
    }

    /// A list of items of one form.
    pub fn list_of(item: Schema) -> Self {
        let mut schema = Self::of("array");
        schema.0.items = Some(JSONSchemaPropsOrArray::Schema(item.0));
        schema
    }

    /// A list of strings.
    pub fn texts() -> Self {
        Self::list_of(Self::text())
    }

    /// The list of conditions that every status carries, merged by type.
    pub fn conditions() -> Self {
        let condition = Self::object([
            (
                "type",
                Self::text()
                    .max_length(316)
                    .pattern(CONDITION_TYPE_PATTERN)
                    .doc("Which aspect this is about."),
            ),
            (
                "status",
                Self::word(&["True", "False", "Unknown"]).doc("Whether the aspect holds."),
            ),
            (
                "reason",
                Self::text()
                    .min_length(1)
                    .max_length(1024)
                    .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
                    .doc("One word for programs: why the status is what it is."),
            ),
            (
                "message",
                Self::text()
                    .max_length(32768)
                    .doc("One sentence for people; may be empty."),
            ),
            (
                "lastTransitionTime",
                Self::time().doc("When the status last changed."),
            ),
            (
                "observedGeneration",
                Self::int64()
                    .minimum(0)
                    .doc("The generation of the object that this condition speaks about."),
            ),
        ])
        .required(&["lastTransitionTime", "message", "reason", "status", "type"])
        .doc("What is known about one aspect of the object.");
        Self::list_of(condition).keyed_by(&["type"])
    }

    /// States the meaning.
    #[must_use]
    pub fn doc(mut self, text: &str) -> Self {
        self.0.description = Some(text.into());
        self
    }

    /// Sets a format.
    #[must_use]
    pub fn format(mut self, format: &str) -> Self {
        self.0.format = Some(format.into());
        self
    }

    /// Sets the value of an absent field.
    #[must_use]
    pub fn default_value(mut self, value: impl Into<Value>) -> Self {
        self.0.default = Some(JSON(value.into()));
        self
    }

    /// Sets the fewest characters.
    #[must_use]
    pub fn min_length(mut self, length: i64) -> Self {
        self.0.min_length = Some(length);
        self
    }

    /// Sets the most characters.
    #[must_use]
    pub fn max_length(mut self, length: i64) -> Self {
        self.0.max_length = Some(length);
        self
    }

    /// Sets the form of a text.
    #[must_use]
    pub fn pattern(mut self, pattern: &str) -> Self {
        self.0.pattern = Some(pattern.into());
        self
    }

    /// Sets the smallest number.
    #[must_use]
    pub fn minimum(mut self, value: i32) -> Self {
        self.0.minimum = Some(value.into());
        self
    }

    /// Sets the largest number.
    #[must_use]
    pub fn maximum(mut self, value: i32) -> Self {
        self.0.maximum = Some(value.into());
        self
    }

    /// Names the fields that must be present.
    #[must_use]
    pub fn required(mut self, fields: &[&str]) -> Self {
        self.0.required = Some(fields.iter().map(|field| (*field).to_owned()).collect());
        self
    }

    /// Adds a CEL rule.
    #[must_use]
    pub fn rule(mut self, rule: &str, message: &str) -> Self {
        let rule = ValidationRule {
            rule: rule.into(),
            message: Some(message.into()),
            ..ValidationRule::default()
        };
        self.0.x_kubernetes_validations.get_or_insert_default().push(rule);
        self
    }

    /// Sets the most items.
    #[must_use]
    pub fn max_items(mut self, count: i64) -> Self {
        self.0.max_items = Some(count);
        self
    }

    /// Makes a list merge by the given keys.
    #[must_use]
    pub fn keyed_by(mut self, keys: &[&str]) -> Self {
        self.0.x_kubernetes_list_type = Some("map".into());
        self.0.x_kubernetes_list_map_keys = Some(keys.iter().map(|key| (*key).to_owned()).collect());
        self
    }

    /// The finished schema.
    pub fn build(self) -> JSONSchemaProps {
        *self.0
    }
}

const CONDITION_TYPE_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
