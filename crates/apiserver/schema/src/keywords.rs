// SPDX-License-Identifier: Apache-2.0
//! What the keywords of a definition's schema may say, and whether its rules compile and can be
//! afforded. Errors of rules come after errors of the schema, as in the reference.

use serde_json::{Map, Value};

mod rules;

use rules::{Costs, too_expensive};

use crate::error::FieldError;
use crate::node::{Additional, Schema};
use crate::parse::strings;
use crate::path::Path;
use crate::structural::{flag, is_set, type_of};

/// The largest estimated cost of one expression.
pub const RULE_COST_MAX: u64 = 10_000_000;
/// The largest estimated cost of all expressions of one schema.
pub const SCHEMA_COST_MAX: u64 = 100_000_000;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// What an update does not hold against a definition because the old one had it already.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leniency {
    /// Types that do not exist.
    pub types: bool,
    /// Sets of non-atomic items.
    pub set_items: bool,
    /// Nullable or optional keys of list-maps.
    pub list_keys: bool,
    /// The cost of single expressions.
    pub rule_cost: bool,
}

/// Checks the keywords of a schema. `tree` is the same schema with its rules compiled; without it
/// rules are not looked at.
pub fn check_keywords(
    schema: &Value,
    tree: Option<&Schema>,
    path: &str,
    lenient: Leniency,
) -> Vec<FieldError> {
    let mut checker = Checker {
        lenient,
        schema: Vec::new(),
        rules: Vec::new(),
        costs: Costs::default(),
    };
    let base = Path::Base(path);
    if let Some(node) = schema.as_object() {
        let scope = Scope {
            root: true,
            ..Scope::default()
        };
        checker.node(
            node,
            &base,
            &scope,
            tree.map(|tree| Context { tree, times: Some(1) }),
        );
    }
    let mut errors = checker.schema;
    errors.append(&mut checker.rules);
    if checker.costs.total > SCHEMA_COST_MAX {
        for (field, _) in &checker.costs.most_expensive {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(
            path,
            &too_expensive(name, checker.costs.total, SCHEMA_COST_MAX),
        ));
    }
    errors
}

/// What the places around a node decide about it.
#[derive(Clone, Default)]
struct Scope {
    root: bool,
    no_defaults: Option<String>,
    in_meta: bool,
    uncorrelated: Option<String>,
}

/// The compiled tree at a node, and how often the node can occur.
#[derive(Clone, Copy)]
struct Context<'a> {
    tree: &'a Schema,
    times: Option<u64>,
}

impl<'a> Context<'a> {
    fn below(self, tree: &'a Schema, node: &Map<String, Value>) -> Context<'a> {
        let times = self
            .times
            .and_then(|times| Some(times.saturating_mul(max_elements(node)?)));
        Context { tree, times }
    }
}

/// By how much a node multiplies what is below it; `None` is without limit.
fn max_elements(node: &Map<String, Value>) -> Option<u64> {
    let bound = |key: &str| {
        node.get(key)
            .and_then(Value::as_i64)
            .map(|n| n.max(0).cast_unsigned())
    };
    match type_of(node) {
        "object" if node.get("additionalProperties").is_some_and(|v| !v.is_null()) => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

struct Checker {
    lenient: Leniency,
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
    costs: Costs,
}

impl Checker {
    fn forbid(&mut self, path: &Path<'_>, detail: &str) {
        self.schema.push(FieldError::forbidden(path.to_string(), detail));
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.schema
            .push(FieldError::invalid(path.to_string(), value, detail));
    }

    fn require(&mut self, path: &Path<'_>, detail: &str) {
        self.schema.push(FieldError::required(path.to_string(), detail));
    }

    fn node(
        &mut self,
        node: &Map<String, Value>,
        path: &Path<'_>,
        scope: &Scope,
        context: Option<Context<'_>>,
    ) {
        let before = self.schema.len();
        self.plain(node, path, scope);
        self.additional(node, path, scope, context);
        self.properties(node, path, scope, context);
        self.clauses(node, path, scope);
        self.items(node, path, scope, context);
        self.topology(node, path);
        let rules = node.get("x-kubernetes-validations").and_then(Value::as_array);
        let rules = rules.map(Vec::as_slice).unwrap_or_default();
        if rules.is_empty() {
            return;
        }
        let here = path.child("x-kubernetes-validations");
        let parsed = crate::parse::parse_rules(node.get("x-kubernetes-validations"));
        let tree = crate::parse::parse(&Value::Object(node.clone()));
        for (i, rule) in parsed.iter().enumerate() {
            self.rule_texts(rule, rules.get(i).unwrap_or(&Value::Null), &tree, &here.index(i));
        }
        if self.schema.len() == before
            && let Some(context) = context
        {
            self.compiled_rules(rules, context, scope, &here);
        }
    }

    fn plain(&mut self, node: &Map<String, Value>, path: &Path<'_>, scope: &Scope) {
        let kind = type_of(node);
        if !kind.is_empty() && !TYPES.contains(&kind) && !self.lenient.types {
            let field = path.child("type").to_string();
            self.schema
                .push(FieldError::not_supported(field, &Value::from(kind), &TYPES));
        }
        if node.get("default").is_some_and(|v| !v.is_null())
            && let Some(reason) = &scope.no_defaults
        {
            self.forbid(&path.child("default"), &format!("must not be set {reason}"));
        }
        for (key, filled) in [
            ("id", node.get("id").is_some_and(is_set)),
            (
                "additionalItems",
                node.get("additionalItems").is_some_and(|v| !v.is_null()),
            ),
            (
                "patternProperties",
                node.get("patternProperties").is_some_and(is_set),
            ),
            ("definitions", node.get("definitions").is_some_and(is_set)),
            (
                "dependencies",
                node.get("dependencies").is_some_and(Value::is_object),
            ),
            ("$ref", node.get("$ref").is_some_and(|v| !v.is_null())),
        ] {
            if filled {
                self.forbid(&path.child(key), &format!("{key} is not supported"));
            }
        }
        if kind == "null" {
            self.forbid(
                &path.child("type"),
                "type cannot be set to null, use nullable as an alternative",
            );
        }
        if node
            .get("items")
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty())
        {
            self.forbid(
                &path.child("items"),
                "items must be a schema object and not an array",
            );
        }
        if scope.in_meta && flag(node, "x-kubernetes-embedded-resource") {
            self.forbid(
                &path.child("x-kubernetes-embedded-resource"),
                "must not be used inside of resource meta",
            );
        }
        if flag(node, "uniqueItems") {
            self.forbid(
                &path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
    }

    fn additional(
        &mut self,
        node: &Map<String, Value>,
        path: &Path<'_>,
        scope: &Scope,
        context: Option<Context<'_>>,
    ) {
        let Some(additional) = node.get("additionalProperties").filter(|v| !v.is_null()) else {
            return;
        };
        let here = path.child("additionalProperties");
        if node.get("properties").is_some_and(is_set) && additional != &Value::Bool(true) {
            self.forbid(&here, "additionalProperties and properties are mutual exclusive");
        }
        let Some(values) = additional.as_object() else {
            return;
        };
        let mut scope = Scope {
            root: false,
            ..scope.clone()
        };
        if scope.in_meta {
            scope.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        let below = context.and_then(|c| match &c.tree.additional {
            Some(Additional::Schema(tree)) => Some(c.below(tree, node)),
            _ => None,
        });
        self.node(values, &here, &scope, below);
    }

    fn properties(
        &mut self,
        node: &Map<String, Value>,
        path: &Path<'_>,
        scope: &Scope,
        context: Option<Context<'_>>,
    ) {
        let below = path.child("properties");
        let resource = scope.root || flag(node, "x-kubernetes-embedded-resource");
        for (name, child) in node
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let Some(child) = child.as_object() else { continue };
            let mut inner = Scope {
                root: false,
                ..scope.clone()
            };
            if resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                inner.in_meta = true;
                if scope.root {
                    inner.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            let context = context.and_then(|c| c.tree.properties.get(name).map(|tree| c.below(tree, node)));
            self.node(child, &below.key(name), &inner, context);
        }
    }

    fn clauses(&mut self, node: &Map<String, Value>, path: &Path<'_>, scope: &Scope) {
        let scope = Scope {
            root: false,
            ..scope.clone()
        };
        if let Some(not) = node.get("not").and_then(Value::as_object) {
            self.node(not, &path.child("not"), &scope, None);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            let below = path.child(key);
            for (i, clause) in node
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                if let Some(clause) = clause.as_object() {
                    self.node(clause, &below.index(i), &scope, None);
                }
            }
        }
        for key in ["definitions", "dependencies"] {
            let below = path.child(key);
            for (name, child) in node.get(key).and_then(Value::as_object).into_iter().flatten() {
                if let Some(child) = child.as_object() {
                    self.node(child, &below.key(name), &scope, None);
                }
            }
        }
    }

    fn items(
        &mut self,
        node: &Map<String, Value>,
        path: &Path<'_>,
        scope: &Scope,
        context: Option<Context<'_>>,
    ) {
        let Some(items) = node.get("items") else { return };
        let mut scope = Scope {
            root: false,
            ..scope.clone()
        };
        if node.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map") {
            scope.uncorrelated.get_or_insert_with(|| path.to_string());
        }
        let here = path.child("items");
        match items {
            Value::Object(items) => {
                let below = context.and_then(|c| c.tree.element().map(|tree| c.below(tree, node)));
                self.node(items, &here, &scope, below);
            }
            Value::Array(list) => {
                for (i, items) in list.iter().enumerate() {
                    if let Some(items) = items.as_object() {
                        self.node(items, &here.index(i), &scope, None);
                    }
                }
            }
            _ => {}
        }
    }

    fn topology(&mut self, node: &Map<String, Value>, path: &Path<'_>) {
        if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let here = path.child("x-kubernetes-preserve-unknown-fields");
            self.invalid(&here, &Value::Bool(false), "must be true or undefined");
        }
        let map_type = node.get("x-kubernetes-map-type").and_then(Value::as_str);
        let list_type = node.get("x-kubernetes-list-type").and_then(Value::as_str);
        if map_type.is_some() {
            self.needs_type(node, "object", "x-kubernetes-map-type", path);
        }
        if let Some(other) = map_type.filter(|t| !matches!(*t, "atomic" | "granular")) {
            let field = path.child("x-kubernetes-map-type").to_string();
            let error = FieldError::not_supported(field, &Value::from(other), &["atomic", "granular"]);
            self.schema.push(error);
        }
        if list_type.is_some() && !self.needs_type(node, "array", "x-kubernetes-list-type", path) {
            self.set_items(node, list_type, path);
        }
        if let Some(other) = list_type.filter(|t| !matches!(*t, "atomic" | "set" | "map")) {
            let field = path.child("x-kubernetes-list-type").to_string();
            let error = FieldError::not_supported(field, &Value::from(other), &["atomic", "set", "map"]);
            self.schema.push(error);
        }
        let keys = strings(node.get("x-kubernetes-list-map-keys"));
        if !keys.is_empty() && list_type != Some("map") {
            let here = path.child("x-kubernetes-list-type");
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => self.require(&here, detail),
                Some(other) => self.invalid(&here, &Value::from(other), detail),
            }
        }
        if list_type == Some("map") {
            self.list_map(node, &keys, path);
        }
        if let Some(list_type @ ("map" | "set")) = list_type
            && !self.lenient.list_keys
        {
            self.list_keys(node, list_type, &keys, path);
        }
    }

    /// True if the node has another type than the keyword needs.
    fn needs_type(
        &mut self,
        node: &Map<String, Value>,
        wanted: &str,
        keyword: &str,
        path: &Path<'_>,
    ) -> bool {
        let kind = type_of(node);
        if kind == wanted {
            return false;
        }
        let detail = format!("must be {wanted} if {keyword} is specified");
        let here = path.child("type");
        if kind.is_empty() {
            self.require(&here, &detail);
        } else {
            self.invalid(&here, &Value::from(kind), &detail);
        }
        true
    }

    fn set_items(&mut self, node: &Map<String, Value>, list_type: Option<&str>, path: &Path<'_>) {
        if list_type != Some("set") || self.lenient.set_items {
            return;
        }
        let Some(items) = node.get("items").and_then(Value::as_object) else {
            return;
        };
        let here = path.child("items");
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let inner = items.get("x-kubernetes-list-type").filter(|v| v.is_string());
        match type_of(items) {
            "array" => {
                if let Some(inner) = inner.filter(|t| t.as_str() != Some("atomic")) {
                    self.invalid(&here.child("x-kubernetes-list-type"), inner, detail);
                }
            }
            "object" if items.get("x-kubernetes-map-type").and_then(Value::as_str) != Some("atomic") => {
                let shown = inner.unwrap_or(&Value::Null);
                self.invalid(&here.child("x-kubernetes-map-type"), shown, detail);
            }
            _ => {}
        }
    }

    fn list_map(&mut self, node: &Map<String, Value>, keys: &[String], path: &Path<'_>) {
        let (keys_path, items_path) = (path.child("x-kubernetes-list-map-keys"), path.child("items"));
        if keys.is_empty() {
            self.require(&keys_path, "must not be empty if x-kubernetes-list-type is map");
        }
        let items = match node.get("items") {
            Some(Value::Object(items)) => items,
            Some(other @ Value::Array(_)) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                return self.invalid(&items_path, other, detail);
            }
            _ => return self.require(&items_path, "must have a schema if x-kubernetes-list-type is map"),
        };
        let kind = type_of(items);
        if kind != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return self.invalid(&items_path.child("type"), &Value::from(kind), detail);
        }
        let shown = Value::from(keys.to_vec());
        for (i, key) in keys.iter().enumerate() {
            match items
                .get("properties")
                .and_then(|p| p.get(key))
                .and_then(Value::as_object)
            {
                Some(node) if matches!(type_of(node), "array" | "object") => {
                    let below = items_path.child("properties");
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.invalid(&below.key(key).child("type"), &Value::from(kind), detail);
                }
                Some(_) => {}
                None => self.invalid(&keys_path, &shown, "entries must all be names of item properties"),
            }
            if keys.iter().take(i).any(|earlier| earlier == key) {
                self.invalid(&keys_path, &shown, "must not contain duplicate entries");
            }
        }
    }

    fn list_keys(&mut self, node: &Map<String, Value>, list_type: &str, keys: &[String], path: &Path<'_>) {
        let Some(items) = node.get("items").and_then(Value::as_object) else {
            return;
        };
        let here = path.child("items");
        if flag(items, "nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbid(&here.child("nullable"), &detail);
        }
        if list_type != "map" {
            return;
        }
        let required = strings(items.get("required"));
        let below = here.child("properties");
        for key in keys {
            let Some(node) = items
                .get("properties")
                .and_then(|p| p.get(key))
                .and_then(Value::as_object)
            else {
                continue;
            };
            let at = below.key(key);
            if !required.contains(key) && node.get("default").is_none_or(Value::is_null) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.require(&at.child("default"), detail);
            }
            if flag(node, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbid(&at.child("nullable"), detail);
            }
        }
    }
}
