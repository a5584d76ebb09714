// SPDX-License-Identifier: Apache-2.0
//! The query and path parameters of operations. Which operation takes which is what kubectl reads to
//! find out whether the server validates fields and understands dry runs.

use cobaltcore_builtins::{OpenApi as Edition, description};
use serde_json::{Map, Value, json};

use super::names;

/// Parameters of lists.
pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
/// Parameters of create and replace.
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
/// Parameters of patch.
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
/// Parameters of delete.
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
/// Parameters of deletecollection.
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

/// What a parameter does. Options of deletions are described by the type table; the others are not
/// part of it.
fn text(name: &str) -> &'static str {
    let own = match name {
        "allowWatchBookmarks" => "Asks a watch for bookmark events.",
        "continue" => "The token a list with a limit answered with; asks for what follows.",
        "fieldManager" => {
            "The name changes are attributed to, at most 128 printable characters. Required for apply."
        }
        "fieldSelector" => "Restricts the answer to objects whose fields match.",
        "fieldValidation" => {
            "What to do about unknown and duplicate fields: Ignore, Warn (the default) or Strict."
        }
        "force" => "Takes over fields that other managers own. For apply only.",
        "labelSelector" => "Restricts the answer to objects whose labels match.",
        "limit" => "The largest number of objects to answer with; the rest is behind the continue token.",
        "pretty" => "Whether to indent the answer.",
        "resourceVersion" => "The version to answer from, or to begin a watch at.",
        "resourceVersionMatch" => "How resourceVersion is meant: Exact or NotOlderThan.",
        "sendInitialEvents" => "Whether a watch begins with the objects that exist, followed by a bookmark.",
        "timeoutSeconds" => "How long a list or watch may take.",
        "watch" => "Whether to stream changes instead of listing.",
        _ => "",
    };
    if own.is_empty() {
        description(&names::meta("DeleteOptions"), &[name]).unwrap_or_default()
    } else {
        own
    }
}

fn kind(name: &str) -> &'static str {
    match name {
        "allowWatchBookmarks"
        | "force"
        | "ignoreStoreReadErrorWithClusterBreakingPotential"
        | "orphanDependents"
        | "sendInitialEvents"
        | "watch" => "boolean",
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        _ => "string",
    }
}

fn parameter(edition: Edition, name: &str, text: &str, path: bool) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(name));
    entry.insert("in".into(), json!(if path { "path" } else { "query" }));
    if path {
        entry.insert("required".into(), json!(true));
    }
    if !text.is_empty() {
        entry.insert("description".into(), json!(text));
    }
    match edition {
        Edition::V2 => {
            entry.insert("type".into(), json!(kind(name)));
            entry.insert("uniqueItems".into(), json!(true));
        }
        Edition::V3 => {
            entry.insert("schema".into(), json!({"type": kind(name), "uniqueItems": true}));
        }
    }
    Value::Object(entry)
}

/// A query parameter.
pub(super) fn query(edition: Edition, name: &str) -> Value {
    parameter(edition, name, text(name), false)
}

/// What every operation of a path takes: the object's name, its namespace, indentation.
pub(super) fn of_path(edition: Edition, named: Option<&str>, namespaced: bool) -> Value {
    let mut all = Vec::new();
    if let Some(kind) = named {
        all.push(parameter(edition, "name", &format!("name of the {kind}"), true));
    }
    if namespaced {
        all.push(parameter(
            edition,
            "namespace",
            "the namespace of the object",
            true,
        ));
    }
    all.push(query(edition, "pretty"));
    Value::Array(all)
}
