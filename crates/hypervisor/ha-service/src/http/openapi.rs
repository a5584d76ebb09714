// SPDX-License-Identifier: Apache-2.0
//! The description of the API, made from the table that requests are routed by.

use std::future::{Ready, ready};

use serde_json::{Map, Value, json};

use super::call::{Answer, Call, json as answer};
use super::routes::{ROUTES, Role, Route};

const SCHEMAS: &str = include_str!("schemas.json");

/// One thing that is served beside the API, at `server.metrics_listen`, to everybody and as text.
struct Beside {
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    media: &'static str,
    /// The other answer, if there is one.
    otherwise: Option<(&'static str, &'static str)>,
}

const TEXT: &str = "text/plain";

const BESIDE: [Beside; 3] = [
    Beside {
        path: "/healthz",
        id: "healthz",
        summary: "Whether the process lives",
        media: TEXT,
        otherwise: Some(("500", "it hangs, and should be started again")),
    },
    Beside {
        path: "/readyz",
        id: "readyz",
        summary: "Whether the database is open, and this replica leads or follows who does",
        media: TEXT,
        otherwise: Some(("500", "not ready; ?verbose says what is missing")),
    },
    Beside {
        path: "/metrics",
        id: "metrics",
        summary: "Figures for Prometheus",
        media: "application/openmetrics-text",
        otherwise: None,
    },
];

/// The whole description.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let entry = paths.entry(route.path).or_insert_with(|| json!({}));
        entry[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    paths.extend(
        BESIDE
            .iter()
            .map(|beside| (beside.path.to_owned(), served_beside(beside))),
    );
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "CobaltCore HA service",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Signs of life, incidents, and what people decide about them."
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"}
            }
        }
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn operation(route: &Route) -> Value {
    let in_path = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let in_query = route
        .query
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}));
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let security = match route.role {
        Role::Open => json!([]),
        Role::Agent => json!([{"bearer": []}, {"certificate": []}]),
        _ => json!([{"bearer": []}]),
    };
    let mut described = json!({
        "operationId": route.id,
        "summary": route.summary,
        "x-role": route.role.as_str(),
        "parameters": parameters,
        "security": security,
        "responses": {
            "200": {
                "description": "done",
                "content": {"application/json": {"schema": reference(route.response)}}
            },
            "default": {
                "description": "refused, and why",
                "content": {"application/problem+json": {"schema": reference("Problem")}}
            }
        }
    });
    if route.takes_body {
        described["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": reference(route.request)}}
        });
    }
    described
}

fn served_beside(beside: &Beside) -> Value {
    let text = json!({beside.media: {"schema": {"type": "string"}}});
    let mut responses = json!({"200": {"description": "well", "content": text}});
    if let Some((status, description)) = beside.otherwise {
        responses[status] = json!({"description": description, "content": text});
    }
    json!({
        // Another port than that of the API, and without TLS: for the kubelet and for Prometheus.
        "servers": [{
            "url": "http://{replica}:{port}",
            "description": "server.metrics_listen",
            "variables": {"replica": {"default": "localhost"}, "port": {"default": "9185"}}
        }],
        "get": {
            "operationId": beside.id,
            "summary": beside.summary,
            "x-role": Role::Open.as_str(),
            "security": [],
            "responses": responses
        }
    })
}

pub(super) fn serve(_: Call) -> Ready<Answer> {
    ready(answer(&document()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_description_is_described() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut wanted = vec!["Problem".to_owned()];
        for route in ROUTES {
            wanted.push(route.response.to_owned());
            if route.takes_body {
                wanted.push(route.request.to_owned());
            }
        }
        let text = serde_json::to_string(&document).unwrap();
        for part in text.split("#/components/schemas/").skip(1) {
            wanted.push(part.split('"').next().unwrap().to_owned());
        }
        for name in &wanted {
            assert!(schemas.contains_key(name), "{name} is not described");
        }
        for name in schemas.keys() {
            assert!(wanted.contains(name), "{name} is described and never used");
        }
    }
}
