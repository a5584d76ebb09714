// SPDX-License-Identifier: Apache-2.0
//! What the tests share: definitions as YAML, and errors as texts.
#![allow(dead_code, unreachable_pub)]

use cobaltcore_schema::{FieldError, default_crd};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Errors as `reason field: message`.
pub fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The first document of a YAML text.
pub fn yaml(text: &str) -> Value {
    let mut events = Parser::new_from_str(text)
        .map(|e| e.expect("YAML").0)
        .filter(|e| !matches!(e, Event::StreamStart | Event::DocumentStart(_) | Event::Nothing));
    let first = events.next().expect("a document");
    node(first, &mut events)
}

fn node<'a>(event: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Value {
    match event {
        Event::Scalar(text, style, _, _) => scalar(&text, style),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match events.next().expect("end of list") {
                    Event::SequenceEnd => return Value::Array(items),
                    event => items.push(node(event, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut map = Map::new();
            loop {
                match events.next().expect("end of map") {
                    Event::MappingEnd => return Value::Object(map),
                    key => {
                        let key = match key {
                            Event::Scalar(text, ..) => text.into_owned(),
                            other => panic!("key {other:?}"),
                        };
                        let event = events.next().expect("value");
                        map.insert(key, node(event, events));
                    }
                }
            }
        }
        other => panic!("{other:?}"),
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        other => match (other.parse::<i64>(), other.parse::<f64>()) {
            (Ok(n), _) => Value::from(n),
            (_, Ok(f)) if other.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.') => {
                Number::from_f64(f).map_or_else(|| Value::from(other), Value::Number)
            }
            _ => Value::from(other),
        },
    }
}

/// A definition of widgets.g.example with one version and the given schema of its spec.
pub fn widget_crd(schema: Value) -> Value {
    let mut crd = yaml(include_str!("../fixtures/widget.yaml"));
    *crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
        .expect("schema") = schema;
    default_crd(&mut crd);
    crd
}
