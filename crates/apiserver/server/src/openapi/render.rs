// SPDX-License-Identifier: Apache-2.0
//! Paths and operations as JSON, in either edition.

use cobaltcore_builtins::OpenApi as Edition;
use serde_json::{Map, Value, json};

use super::parameters;
use super::paths::{Operation, PathItem};

/// What answers are encoded in.
const MEDIA: [&str; 2] = ["application/json", "application/yaml"];
/// What lists are encoded in besides, when they are watched.
const STREAM: &str = "application/json;stream=watch";

/// A reference to a definition.
pub(super) fn reference(edition: Edition, definition: &str) -> Value {
    match edition {
        Edition::V2 => json!({"$ref": format!("#/definitions/{definition}")}),
        Edition::V3 => json!({"$ref": format!("#/components/schemas/{definition}")}),
    }
}

/// A reference with a description beside it.
pub(super) fn described_reference(edition: Edition, definition: &str, text: &str) -> Value {
    match (edition, reference(edition, definition)) {
        (Edition::V3, target) => json!({"allOf": [target], "description": text}),
        (Edition::V2, mut target) => {
            target["description"] = json!(text);
            target
        }
    }
}

/// A path with its operations.
pub(super) fn path_item(edition: Edition, item: &PathItem, tag: &str) -> Value {
    let mut entry = Map::new();
    for operation in &item.operations {
        entry.insert(operation.method.into(), self::operation(edition, operation, tag));
    }
    entry.insert(
        "parameters".into(),
        parameters::of_path(edition, item.named.as_deref(), item.namespaced),
    );
    Value::Object(entry)
}

fn operation(edition: Edition, operation: &Operation, tag: &str) -> Value {
    let [group, version, kind] = &operation.about;
    let mut parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|name| parameters::query(edition, name))
        .collect();
    let mut entry = Map::new();
    entry.insert("tags".into(), json!([tag]));
    entry.insert("operationId".into(), json!(operation.id));
    entry.insert("description".into(), json!(operation.text));
    entry.insert("x-kubernetes-action".into(), json!(operation.action));
    entry.insert(
        "x-kubernetes-group-version-kind".into(),
        json!({"group": group, "version": version, "kind": kind}),
    );
    if let Some(body) = &operation.body {
        let schema = reference(edition, &body.definition);
        match edition {
            Edition::V2 => {
                entry.insert("consumes".into(), json!(body.media));
                let mut parameter = json!({"name": "body", "in": "body", "schema": schema});
                if body.required {
                    parameter["required"] = json!(true);
                }
                parameters.insert(0, parameter);
            }
            Edition::V3 => {
                let mut taken = json!({"content": content(body.media.iter(), &schema)});
                if body.required {
                    taken["required"] = json!(true);
                }
                entry.insert("requestBody".into(), taken);
            }
        }
    } else if edition == Edition::V2 {
        entry.insert("consumes".into(), json!(["*/*"]));
    }
    if !parameters.is_empty() {
        entry.insert("parameters".into(), Value::Array(parameters));
    }
    let media: Vec<&str> = MEDIA
        .into_iter()
        .chain(matches!(operation.action, "list" | "watch" | "watchlist").then_some(STREAM))
        .collect();
    if edition == Edition::V2 {
        entry.insert("produces".into(), json!(media));
        entry.insert("schemes".into(), json!(["https"]));
    }
    entry.insert(
        "responses".into(),
        responses(edition, operation.codes, &operation.answer, &media),
    );
    Value::Object(entry)
}

fn content<'a>(media: impl Iterator<Item = &'a &'a str>, schema: &Value) -> Value {
    media
        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
        .collect::<Map<_, _>>()
        .into()
}

fn responses(edition: Edition, codes: &[u16], answer: &str, media: &[&str]) -> Value {
    let schema = reference(edition, answer);
    let mut all = Map::new();
    for code in codes {
        let text = match code {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        };
        let mut response = json!({"description": text});
        match edition {
            Edition::V2 => response["schema"] = schema.clone(),
            Edition::V3 => response["content"] = content(media.iter(), &schema),
        }
        all.insert(code.to_string(), response);
    }
    all.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(all)
}

/// A path that is only read: discovery and the like.
pub(super) fn plain(
    edition: Edition,
    id: &str,
    text: &str,
    tag: &str,
    media: &[&str],
    schema: &Value,
) -> Value {
    let mut ok = json!({"description": "OK"});
    match edition {
        Edition::V2 => ok["schema"] = schema.clone(),
        Edition::V3 => ok["content"] = content(media.iter(), schema),
    }
    let mut get = json!({
        "description": text,
        "operationId": id,
        "tags": [tag],
        "responses": {"200": ok, "401": {"description": "Unauthorized"}},
    });
    if edition == Edition::V2 {
        get["consumes"] = json!(media);
        get["produces"] = json!(media);
        get["schemes"] = json!(["https"]);
    }
    json!({"get": get})
}

/// The media types of discovery.
pub(super) const DISCOVERY: &[&str] = &MEDIA;
