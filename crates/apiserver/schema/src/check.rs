// SPDX-License-Identifier: Apache-2.0
//! Checking a value against a schema: types, ranges, lengths, patterns, formats, enumerations and
//! the combinators, with the texts of the reference's schema validator.
//!
//! The happy path builds no strings. Alternatives of `anyOf` and `oneOf` are first tried silently;
//! only when none fits are they tried again to find the failures worth reporting.

use cobaltcore_text::go;
use serde_json::{Number, Value};

use crate::correlate::Pair;
use crate::error::{Cause, FieldError};
use crate::formats;
use crate::node::{Additional, Schema, Type, Validation};
use crate::path::Path;

/// Checks `new` against `schema`; with `old`, errors at unchanged parts are dropped. `base` is
/// the field the value stands at: it precedes field paths but not the names inside messages.
pub fn check(schema: &Schema, new: &Value, old: Option<Pair<'_>>, base: &str) -> Vec<FieldError> {
    let mut walk = Walk {
        errors: Vec::new(),
        failures: 0,
        quiet: false,
        base,
    };
    walk.node(schema, new, &Path::Root, old, true);
    walk.errors
}

struct Walk<'a> {
    errors: Vec<FieldError>,
    failures: usize,
    quiet: bool,
    base: &'a str,
}

struct Numeric<'a> {
    value: &'a Value,
    number: &'a Number,
}

impl Walk<'_> {
    /// Checks one node. Returns how many checks passed, which decides between alternatives.
    fn node(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
        ratchet: bool,
    ) -> usize {
        let (errors, failures) = (self.errors.len(), self.failures);
        let passed = self.node_checks(schema, value, path, pair);
        if self.failures > failures && ratchet && pair.is_some_and(|p| p.unchanged()) {
            self.errors.truncate(errors);
            self.failures = failures;
        }
        passed
    }

    fn node_checks(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let validation = schema.validation.as_deref();
        let format = formats::effective(schema);
        let mut passed = 0;
        let typed = schema.kind.is_some() || schema.int_or_string || format.is_some();
        if typed && !value.is_null() {
            passed += 1 + usize::from(self.type_of(schema, format, value, path));
        }
        if value.is_null() {
            if (schema.kind.is_some() || schema.int_or_string) && !schema.nullable {
                self.wrong_type(path, &type_names(schema), "null");
            } else {
                passed += 1;
            }
            self.enumeration(validation, value, path);
            return passed;
        }
        passed += 1;
        if let Some(validation) = validation {
            passed += self.combinators(validation, value, path, pair);
        }
        passed += 1;
        match value {
            Value::String(text) => {
                passed += 1;
                if let Some(validation) = validation {
                    self.string(validation, text, path);
                }
                if let Some((format, fits)) = format.and_then(|f| Some((f, formats::checker(f)?))) {
                    passed += 1;
                    if !fits(text) {
                        self.wrong_type(path, format, text);
                    }
                }
            }
            Value::Number(number) => {
                passed += 2;
                self.number(schema, format, validation, &Numeric { value, number }, path);
            }
            Value::Array(items) => {
                passed += 2 + self.list(schema, validation, items, path, pair);
            }
            _ => {}
        }
        self.enumeration(validation, value, path);
        passed += 1;
        if let Value::Object(map) = value {
            passed += 1 + self.object(schema, validation, map, path, pair);
        }
        passed + 1
    }

    fn type_of(&mut self, schema: &Schema, format: Option<&str>, value: &Value, path: &Path<'_>) -> bool {
        let numeric = schema.int_or_string || matches!(schema.kind, Some(Type::Integer | Type::Number));
        let fits = fits_type(schema, value);
        let textual = matches!(value, Value::String(_) | Value::Array(_));
        if let Some(format) = format {
            if !textual && !fits {
                self.wrong_type(path, format, implied_format(value));
                return false;
            }
            if textual && !numeric {
                return true;
            }
        }
        if !fits {
            self.wrong_type(path, &type_names(schema), type_name(value));
        }
        fits
    }

    fn combinators(
        &mut self,
        validation: &Validation,
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let mut passed = 0;
        if !validation.any_of.is_empty() {
            let first = validation
                .any_of
                .iter()
                .find_map(|s| self.silently(s, value, path, pair).ok());
            passed += if let Some(matches) = first {
                matches
            } else {
                self.composite(path, "must validate at least one schema (anyOf)");
                self.best_failure(&validation.any_of, value, path, pair)
            };
        }
        if !validation.one_of.is_empty() {
            passed += self.one_of(validation, value, path, pair);
        }
        if !validation.all_of.is_empty() {
            let mut valid = 0;
            for schema in &validation.all_of {
                let before = self.failures;
                passed += self.node(schema, value, path, pair, false);
                valid += usize::from(self.failures == before);
            }
            if valid != validation.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.composite(path, &format!("must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &validation.not
            && self.silently(not, value, path, pair).is_ok()
        {
            self.composite(path, "must not validate the schema (not)");
        }
        passed
    }

    fn one_of(
        &mut self,
        validation: &Validation,
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let mut valid = 0;
        let mut first = 0;
        for schema in &validation.one_of {
            if let Ok(matches) = self.silently(schema, value, path, pair) {
                if valid == 0 {
                    first = matches;
                }
                valid += 1;
            }
        }
        match valid {
            1 => first,
            0 => {
                self.composite(
                    path,
                    "must validate one and only one schema (oneOf). Found none valid",
                );
                self.best_failure(&validation.one_of, value, path, pair)
            }
            n => {
                self.composite(
                    path,
                    &format!("must validate one and only one schema (oneOf). Found {n} valid alternatives"),
                );
                0
            }
        }
    }

    /// Tries a schema without reporting anything; the number of passed checks, whatever the result.
    fn silently(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> Result<usize, usize> {
        let mut trial = Walk {
            errors: Vec::new(),
            failures: 0,
            quiet: true,
            base: self.base,
        };
        let passed = trial.node(schema, value, path, pair, false);
        if trial.failures == 0 {
            Ok(passed)
        } else {
            Err(passed)
        }
    }

    /// Reports the failures of the alternative that came closest.
    fn best_failure(
        &mut self,
        schemas: &[std::sync::Arc<Schema>],
        value: &Value,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let mut best: Option<(usize, &Schema)> = None;
        for schema in schemas {
            let passed = self
                .silently(schema, value, path, pair)
                .unwrap_or_else(|passed| passed);
            if best.is_none_or(|(most, _)| passed > most) {
                best = Some((passed, schema));
            }
        }
        match best {
            Some((passed, schema)) => {
                self.node(schema, value, path, pair, false);
                passed
            }
            None => 0,
        }
    }

    fn string(&mut self, validation: &Validation, value: &str, path: &Path<'_>) {
        if validation.max_length.is_none() && validation.min_length.is_none() && validation.pattern.is_none()
        {
            return;
        }
        let length = || value.chars().count() as u64;
        if let Some(max) = validation
            .max_length
            .filter(|max| value.len() as u64 > *max && length() > *max)
        {
            self.fail(|base| FieldError::too_long(field_of(base, path), max as usize));
        } else if let Some(min) = validation.min_length.filter(|min| length() < *min) {
            let detail = || format!("{} in body should be at least {min} chars long", path.dotted());
            self.fail(|base| FieldError::invalid(field_of(base, path), &Value::from(value), &detail()));
        } else if let Some((pattern, regex)) = &validation.pattern
            && !regex.is_match(value)
        {
            let detail = || format!("{} in body should match '{pattern}'", path.dotted());
            self.fail(|base| FieldError::invalid(field_of(base, path), &Value::from(value), &detail()));
        }
    }

    fn number(
        &mut self,
        schema: &Schema,
        format: Option<&str>,
        validation: Option<&Validation>,
        value: &Numeric<'_>,
        path: &Path<'_>,
    ) {
        let kind = if schema.int_or_string { None } else { schema.kind };
        self.bound_fits(kind, format, value.number, "Checked", path);
        let Some(validation) = validation else { return };
        if let Some(factor) = &validation.multiple_of {
            self.bound_fits(kind, format, factor, "MultipleOf", path);
            self.multiple_of(value, factor, path);
        }
        if let Some(min) = &validation.minimum {
            self.bound_fits(kind, format, min, "Minimum boundary", path);
            let order = compare(value.number, min);
            if order == std::cmp::Ordering::Less {
                let words = if validation.exclusive_minimum {
                    "be greater than"
                } else {
                    "be greater than or equal to"
                };
                self.out_of_bounds(value, path, words, min);
            } else if order == std::cmp::Ordering::Equal && validation.exclusive_minimum {
                self.out_of_bounds(value, path, "be greater than", min);
            }
        }
        if let Some(max) = &validation.maximum {
            self.bound_fits(kind, format, max, "Maximum boundary", path);
            let order = compare(value.number, max);
            if order == std::cmp::Ordering::Greater {
                let words = if validation.exclusive_maximum {
                    "be less than"
                } else {
                    "be less than or equal to"
                };
                self.out_of_bounds(value, path, words, max);
            } else if order == std::cmp::Ordering::Equal && validation.exclusive_maximum {
                self.out_of_bounds(value, path, "be less than", max);
            }
        }
    }

    /// A number, or a bound for it, that its type cannot hold.
    fn bound_fits(
        &mut self,
        kind: Option<Type>,
        format: Option<&str>,
        number: &Number,
        what: &str,
        path: &Path<'_>,
    ) {
        if in_range(kind, format, number) {
            return;
        }
        self.fail(|base| {
            let name = if kind == Some(Type::Integer) {
                "integer"
            } else {
                "number"
            };
            let with = format.map_or_else(|| " (default format)".to_owned(), |f| format!(" with format {f}"));
            let text = format!("{what} value must be of type {name}{with} in {}", path.dotted());
            FieldError::invalid(root_of(base), &Value::from(""), &text)
        });
    }

    fn multiple_of(&mut self, value: &Numeric<'_>, factor: &Number, path: &Path<'_>) {
        // An integer is divided by the integer part of the factor, as the reference does.
        let whole = factor.as_f64().unwrap_or(0.0).trunc();
        let effective = if value.number.is_i64() {
            whole
        } else {
            factor.as_f64().unwrap_or(0.0)
        };
        if effective <= 0.0 {
            self.fail(|base| {
                let shown = go::float(effective);
                let detail = format!(
                    "factor MultipleOf declared for {} must be positive: {shown}",
                    path.dotted()
                );
                FieldError::new(
                    Cause::Invalid,
                    field_of(base, path),
                    format!("Invalid value: {shown}: {detail}"),
                )
            });
        } else if !is_multiple(value.number, effective) {
            self.out_of_bounds(value, path, "be a multiple of", factor);
        }
    }

    fn out_of_bounds(&mut self, value: &Numeric<'_>, path: &Path<'_>, words: &str, bound: &Number) {
        self.fail(|base| {
            let shown = match (value.number.as_i64(), bound.as_f64()) {
                (Some(_), Some(float)) => go::float(float.trunc()),
                (None, Some(float)) => go::float(float),
                _ => bound.to_string(),
            };
            let detail = format!("{} in body should {words} {shown}", path.dotted());
            FieldError::invalid(field_of(base, path), value.value, &detail)
        });
    }

    fn list(
        &mut self,
        schema: &Schema,
        validation: Option<&Validation>,
        items: &[Value],
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let mut passed = 0;
        if let Some(element) = schema.element() {
            for (i, item) in items.iter().enumerate() {
                let below = pair.and_then(|p| p.element(i));
                passed += self.node(element, item, &path.index(i), below, true);
            }
        }
        let Some(validation) = validation else {
            return passed;
        };
        let size = items.len();
        if let Some(min) = validation.min_items.filter(|min| (size as u64) < *min) {
            let detail = || format!("{} in body should have at least {min} items", path.dotted());
            self.fail(|base| FieldError::invalid(field_of(base, path), &Value::from(size), &detail()));
        }
        if let Some(max) = validation.max_items.filter(|max| size as u64 > *max) {
            self.fail(|base| FieldError::too_many(field_of(base, path), size, max as usize));
        }
        if validation.unique_items && has_duplicates(items) {
            let detail = || format!("{} in body shouldn't contain duplicates", path.dotted());
            self.fail(|base| FieldError::invalid(field_of(base, path), &Value::from(""), &detail()));
        }
        passed
    }

    fn enumeration(&mut self, validation: Option<&Validation>, value: &Value, path: &Path<'_>) {
        let Some(allowed) = validation.and_then(|v| v.enumeration.as_ref()) else {
            return;
        };
        if allowed.iter().any(|a| same_value(value, a)) {
            return;
        }
        self.fail(|base| {
            let names: Vec<String> = allowed
                .iter()
                .map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned))
                .collect();
            FieldError::not_supported(field_of(base, path), value, &names)
        });
    }

    fn object(
        &mut self,
        schema: &Schema,
        validation: Option<&Validation>,
        map: &serde_json::Map<String, Value>,
        path: &Path<'_>,
        pair: Option<Pair<'_>>,
    ) -> usize {
        let size = map.len();
        if let Some(validation) = validation {
            if let Some(min) = validation.min_properties.filter(|min| (size as u64) < *min) {
                let detail = || format!("{} in body should have at least {min} properties", path.dotted());
                self.fail(|base| FieldError::invalid(field_of(base, path), &Value::from(size), &detail()));
            }
            if let Some(max) = validation.max_properties.filter(|max| size as u64 > *max) {
                self.fail(|base| FieldError::too_many(field_of(base, path), size, max as usize));
            }
        }
        let closed = validation.is_some_and(|v| v.closed);
        let mut passed = 0;
        for (key, child) in map {
            // apiVersion and kind are converted before they get here; they never count as unchanged.
            let type_meta = path.is_root() && matches!(key.as_str(), "apiVersion" | "kind");
            let below = pair.filter(|_| !type_meta).and_then(|p| p.field(key));
            if let Some(node) = schema.properties.get(key) {
                passed += self.node(node, child, &path.child(key), below, true);
            } else if let Some(Additional::Schema(node)) = &schema.additional {
                passed += self.node(node, child, &path.key(key), below, true);
            } else if closed {
                self.fail(|base| {
                    let detail = format!("{}.{key} in body is a forbidden property", path.dotted());
                    FieldError::invalid(field_of(base, path), &Value::from(key.as_str()), &detail)
                });
            }
        }
        for name in &schema.required {
            if !map.contains_key(name) {
                self.fail(|base| FieldError::required(field_of(base, &path.child(name)), ""));
            }
        }
        passed
    }

    fn wrong_type(&mut self, path: &Path<'_>, wanted: &str, found: &str) {
        self.fail(|base| {
            let shown = go::quote(found);
            let detail = format!("{} in body must be of type {wanted}: {shown}", path.dotted());
            FieldError::new(
                Cause::TypeInvalid,
                field_of(base, path),
                format!("Invalid value: {shown}: {detail}"),
            )
        });
    }

    fn composite(&mut self, path: &Path<'_>, words: &str) {
        self.fail(|base| {
            let detail = format!("{} {words}", go::quote(&path.dotted()));
            FieldError::invalid(root_of(base), &Value::from(""), &detail)
        });
    }

    fn fail(&mut self, error: impl FnOnce(&str) -> FieldError) {
        self.failures += 1;
        if self.quiet {
            return;
        }
        let error = error(self.base);
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

fn field_of(base: &str, path: &Path<'_>) -> String {
    let name = path.dotted();
    let name = name.strip_prefix('.').unwrap_or(&name);
    match (base.is_empty(), name.is_empty()) {
        (true, true) => "<nil>".to_owned(),
        (true, false) => name.to_owned(),
        (false, true) => base.to_owned(),
        (false, false) => format!("{base}.{name}"),
    }
}

fn root_of(base: &str) -> &str {
    if base.is_empty() { "<nil>" } else { base }
}

fn type_names(schema: &Schema) -> String {
    if schema.int_or_string {
        return "integer,string".to_owned();
    }
    schema.kind.map(name_of).unwrap_or_default().to_owned()
}

/// The name of a type in schemas and messages.
pub(crate) fn name_of(kind: Type) -> &'static str {
    match kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() || n.as_i64().is_none() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn implied_format(value: &Value) -> &'static str {
    match value {
        Value::Number(n) if n.is_f64() || n.as_i64().is_none() => "float64",
        Value::Number(_) => "int64",
        _ => "",
    }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64()
        || number
            .as_f64()
            .is_some_and(|f| f.fract() == 0.0 && f.abs() < 9.2e18)
}

fn fits_type(schema: &Schema, value: &Value) -> bool {
    if schema.int_or_string {
        return match value {
            Value::String(_) => true,
            Value::Number(n) => is_whole(n),
            _ => false,
        };
    }
    match (schema.kind, value) {
        (Some(Type::Object), Value::Object(_))
        | (Some(Type::Array), Value::Array(_))
        | (Some(Type::String), Value::String(_))
        | (Some(Type::Boolean), Value::Bool(_))
        | (Some(Type::Number), Value::Number(_)) => true,
        (Some(Type::Integer), Value::Number(n)) => is_whole(n),
        _ => false,
    }
}

fn in_range(kind: Option<Type>, format: Option<&str>, number: &Number) -> bool {
    match (kind, format) {
        (Some(Type::Integer), Some("int32")) => match number.as_i64() {
            Some(n) => i32::try_from(n).is_ok(),
            None => number
                .as_f64()
                .is_some_and(|f| f.fract() == 0.0 && f.abs() <= f64::from(i32::MAX)),
        },
        (Some(Type::Integer), _) => is_whole(number),
        (_, Some("float")) => number
            .as_f64()
            .is_none_or(|f| f.abs() <= f64::from(f32::MAX) || f.is_infinite()),
        _ => true,
    }
}

fn compare(value: &Number, bound: &Number) -> std::cmp::Ordering {
    if let Some(value) = value.as_i64() {
        if let Some(bound) = bound.as_i64() {
            return value.cmp(&bound);
        }
        // A bound with a fraction is cut when an integer is compared with it, as the reference does.
        let bound = bound.as_f64().unwrap_or(0.0).trunc() as i64;
        return value.cmp(&bound);
    }
    let (value, bound) = (value.as_f64().unwrap_or(0.0), bound.as_f64().unwrap_or(0.0));
    value.partial_cmp(&bound).unwrap_or(std::cmp::Ordering::Equal)
}

fn is_multiple(value: &Number, factor: f64) -> bool {
    if let Some(value) = value.as_i64() {
        return value % (factor as i64).max(1) == 0;
    }
    let value = value.as_f64().unwrap_or(0.0);
    let ratio = if factor < 1.0 {
        1.0 / factor * value
    } else {
        value / factor
    };
    let nearest = ratio.round();
    (ratio - nearest).abs() <= 1e-9 * nearest.abs().max(1.0)
}

fn same_value(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => match (value.as_i64(), allowed.as_i64()) {
            (Some(a), Some(b)) => a == b,
            (None, Some(b)) => value.as_f64().is_some_and(|f| f as i64 == b),
            _ => value.as_f64() == allowed.as_f64(),
        },
        (value, allowed) => value == allowed,
    }
}

fn has_duplicates(items: &[Value]) -> bool {
    items
        .iter()
        .enumerate()
        .any(|(i, item)| items.iter().take(i).any(|earlier| earlier == item))
}
