// SPDX-License-Identifier: Apache-2.0
//! The world the test expressions live in: one object with a field of every kind.

#![allow(unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_cel::{Budget, DeclType, Env, EvalError, Input, ListKind, Outcome, compile};
use serde_json::{Value, json};

/// An object type.
pub fn object(name: &str, fields: &[(&str, DeclType)]) -> DeclType {
    let fields: BTreeMap<_, _> = fields
        .iter()
        .map(|(n, t)| ((*n).to_owned(), Arc::new(t.clone())))
        .collect();
    DeclType::Object {
        name: name.to_owned(),
        fields: Arc::new(fields),
    }
}

/// A list type.
pub fn list(element: DeclType, kind: ListKind) -> DeclType {
    DeclType::List {
        element: Arc::new(element),
        kind,
        max: None,
    }
}

/// A map type.
pub fn map(value: DeclType) -> DeclType {
    DeclType::Map {
        value: Arc::new(value),
        max: None,
    }
}

/// A string type without limit.
pub fn string() -> DeclType {
    DeclType::String { max: None }
}

/// The declared type of `self`.
pub fn self_type() -> DeclType {
    let port = object("self.ports.@elem", &[("name", string()), ("port", DeclType::Int)]);
    object(
        "self",
        &[
            ("i", DeclType::Int),
            ("j", DeclType::Int),
            ("d", DeclType::Double),
            ("b", DeclType::Bool),
            ("s", string()),
            ("t", string()),
            ("opt", string()),
            ("nul", string()),
            ("when", DeclType::Timestamp),
            ("day", DeclType::Timestamp),
            ("dur", DeclType::Duration),
            ("bytes", DeclType::Bytes { max: None }),
            ("ios", DeclType::Dyn),
            ("ints", list(DeclType::Int, ListKind::Atomic)),
            ("strs", list(string(), ListKind::Atomic)),
            ("set", list(string(), ListKind::Set)),
            ("set2", list(string(), ListKind::Set)),
            ("ports", list(port.clone(), ListKind::Map(vec!["name".into()]))),
            ("ports2", list(port, ListKind::Map(vec!["name".into()]))),
            ("labels", map(string())),
            (
                "nested",
                object("self.nested", &[("x", DeclType::Int), ("y", DeclType::Int)]),
            ),
            (
                "nested2",
                object("self.nested", &[("x", DeclType::Int), ("y", DeclType::Int)]),
            ),
            ("my_field", DeclType::Int),
            ("my-field", DeclType::Int),
            ("a.b/c", DeclType::Int),
            ("namespace", string()),
            ("under__score", DeclType::Int),
            ("bad name", DeclType::Int),
            ("any", DeclType::Dyn),
        ],
    )
}

/// The value of `self`.
pub fn self_value() -> Value {
    json!({
        "i": 5, "j": -3, "d": 2, "b": true, "s": "hello", "t": "h\u{e9}llo \u{1f600}", "nul": null,
        "when": "2024-02-29T23:30:15.250Z", "day": "2024-02-29", "dur": "1h30m", "bytes": "aGk=", "ios": 80,
        "ints": [3, 1, 2], "strs": ["a", "b", "c"], "set": ["x", "y"], "set2": ["y", "x"],
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
        "ports2": [{"name": "b", "port": 2}, {"name": "a", "port": 1}],
        "labels": {"app": "web", "a-b": "dash"},
        "nested": {"x": 1, "y": 2}, "nested2": {"y": 2, "x": 1},
        "my_field": 1, "my-field": 2, "a.b/c": 3, "namespace": "ns", "under__score": 4, "bad name": 5,
        "any": {"n": 1, "f": 1.5, "l": [1, "two", null], "s": "str", "nul": null}
    })
}

/// The environment of the tests.
pub fn env() -> Env {
    Env::new()
        .variable("self", self_type())
        .variable("oldSelf", self_type())
        .optional_variable("optSelf", self_type())
        .variable("object", DeclType::Dyn)
        .variable("missing", DeclType::Dyn)
}

/// Compiles and evaluates; the outcome as text.
pub fn run(expression: &str) -> String {
    let program = match compile(expression, &env()) {
        Ok(program) => program,
        Err(e) => return format!("compile: {}", e.to_string().lines().next().unwrap_or_default()),
    };
    let value = self_value();
    let old = json!({"i": 4, "s": "hello"});
    let bindings = [
        ("self", Input::Json(&value)),
        ("oldSelf", Input::Json(&old)),
        ("optSelf", Input::Optional(None)),
        ("object", Input::Json(&value)),
        ("missing", Input::Absent),
    ];
    match program.evaluate(&bindings, &mut Budget::per_object()) {
        Ok(Outcome::Bool(b)) => b.to_string(),
        Ok(Outcome::String(s)) => format!("'{s}'"),
        Ok(Outcome::Other(text)) => text,
        Err(EvalError::Failed(message)) => format!("error: {message}"),
        Err(EvalError::BudgetExceeded { object }) => format!("budget {object}"),
    }
}
