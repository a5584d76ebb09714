// SPDX-License-Identifier: Apache-2.0
//! Validation of an object against its schema, in the order of the reference: structure, embedded
//! resources, list keys, then rules.
//!
//! On update, errors at unchanged parts are forgiven where the reference forgives them. Metadata,
//! apiVersion and kind of the object itself are checked elsewhere.

use cobaltcore_cel::Budget;
use serde_json::Value;

use crate::check::check;
use crate::correlate::Pair;
use crate::embedded::check_embedded;
use crate::error::{Cause, FieldError};
use crate::listtype::check_lists;
use crate::node::Schema;
use crate::rules::run_rules;

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Validates a new object, or with `old` an update. Rules that are broken as they were before are no
/// errors; they are added to `forgiven`, to warn of.
pub fn validate(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    budget: &mut Budget,
    forgiven: &mut Vec<FieldError>,
) -> Vec<FieldError> {
    let pair = old.map(|old| Pair { schema, new, old });
    let mut errors = check(schema, new, pair, "");
    errors.extend(check_embedded(schema, new));
    errors.extend(changed_list_errors(schema, new, old));
    finish(schema, new, old, errors, budget, forgiven)
}

/// Validates an update through the status endpoint: only the status is checked for structure.
pub fn validate_status(
    schema: &Schema,
    new: &Value,
    old: &Value,
    budget: &mut Budget,
    forgiven: &mut Vec<FieldError>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(node), Some(status)) = (schema.properties.get("status"), new.get("status")) {
        let pair = Pair { schema, new, old }.field("status");
        errors.extend(
            check(node, status, pair, "status")
                .into_iter()
                .map(told_from_status),
        );
    }
    errors.extend(changed_list_errors(schema, new, Some(old)));
    finish(schema, new, Some(old), errors, budget, forgiven)
}

/// The reference looks at the status by itself: where an error is counts from the object, what it
/// says counts from the status.
fn told_from_status(mut error: FieldError) -> FieldError {
    let inner = error.field.strip_prefix("status").unwrap_or_default();
    let inner = format!("{} in body", inner.trim_start_matches('.'));
    error.message = error
        .message
        .replacen(&format!("{} in body", error.field), &inner, 1);
    error
}

/// Duplicates in lists, unless the old object had some already.
fn changed_list_errors(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let errors = check_lists(schema, new);
    if !errors.is_empty() && old.is_some_and(|old| !check_lists(schema, old).is_empty()) {
        return Vec::new();
    }
    errors
}

fn finish(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    mut errors: Vec<FieldError>,
    budget: &mut Budget,
    forgiven: &mut Vec<FieldError>,
) -> Vec<FieldError> {
    if !schema.has_rules() {
        return errors;
    }
    if errors.iter().any(|e| blocks_rules(e.cause)) {
        errors.push(FieldError::new(
            Cause::Invalid,
            "<nil>",
            format!("Invalid value: null: {NOT_CHECKED}"),
        ));
        return errors;
    }
    errors.extend(run_rules(schema, new, old, budget, forgiven));
    errors
}

/// Rules may assume types, presence and sizes; without them they are not run.
fn blocks_rules(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NotSupported | Cause::Required | Cause::TooLong | Cause::TooMany | Cause::TypeInvalid
    )
}
