// SPDX-License-Identifier: Apache-2.0
//! Manifests applied at start: every YAML file of a directory, definitions first, by server-side
//! apply under one manager.

use cobaltcore_text::go;
use std::path::Path;
use std::sync::Arc;

use cobaltcore_access::identity::User;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::api::Api;
use crate::dispatch::Head;
use crate::meta;
use crate::yaml;

const MANAGER: &str = "cobaltcore-bootstrap";

/// Applies all manifests below `dir`.
pub(crate) async fn apply(api: &Arc<Api>, dir: &Path) -> Result<(), String> {
    let mut objects = Vec::new();
    read_dir(dir, &mut objects)?;
    objects.sort_by_key(|(object, _)| rank(object["kind"].as_str().unwrap_or_default()));
    for (object, source) in objects {
        apply_one(api, &object)
            .await
            .map_err(|e| format!("{source}: {} {:?}: {e}", object["kind"], meta::name(&object)))?;
    }
    Ok(())
}

/// What others need comes first.
fn rank(kind: &str) -> u8 {
    match kind {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    }
}

fn read_dir(dir: &Path, objects: &mut Vec<(Value, String)>) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", dir.display());
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .map_err(fail)?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_dir(&path, objects)?;
            continue;
        }
        if !matches!(
            path.extension().and_then(|e| e.to_str()),
            Some("yaml" | "yml" | "json")
        ) {
            continue;
        }
        let source = path.display().to_string();
        let text = std::fs::read(&path).map_err(|e| format!("cannot read {source}: {e}"))?;
        let documents = yaml::decode_all(&text).map_err(|e| format!("{source}: {e}"))?;
        objects.extend(documents.into_iter().map(|d| (d.value, source.clone())));
    }
    Ok(())
}

/// Applies one object as the server itself.
pub(crate) async fn apply_one(api: &Arc<Api>, object: &Value) -> Result<(), String> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, version) = meta::split_api_version(api_version);
    let resource = api.types().by_kind(group, version, kind).ok_or_else(|| {
        format!(
            "no kind {kind} in {api_version} is served",
            kind = go::quote(kind),
            api_version = go::quote(api_version)
        )
    })?;
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let namespace = match meta::namespace(object) {
        "" => "default",
        given => given,
    };
    let scope = if resource.namespaced {
        format!("/namespaces/{namespace}")
    } else {
        String::new()
    };
    let path = format!(
        "{root}{scope}/{}/{}?fieldManager={MANAGER}&force=true",
        resource.plural,
        meta::name(object)
    );
    let uri: http::Uri = path.parse().map_err(|e| format!("bad name: {e}"))?;
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/apply-patch+yaml"),
    );
    let head = Head::new(Method::PATCH, &uri, headers);
    let body = serde_json::to_vec(object).map_err(|e| e.to_string())?;
    let (result, _) = api.handle(head, User::admin().authenticated(), body.into()).await;
    result.map(|_| ()).map_err(|e| e.to_string())
}
