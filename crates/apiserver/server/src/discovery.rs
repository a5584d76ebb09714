// SPDX-License-Identifier: Apache-2.0
//! What is served: groups, versions and resources, in the plain and the aggregated form.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::call::{Answer, Call};
use crate::meta;
use crate::negotiate::{self, Form};
use crate::registry::{Group, Registry, Resource, VersionEntry};
use crate::status::{ApiError, ApiResult};
use crate::view;

/// Content type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Api {
    /// `/api`, `/apis` and what lies below them without naming a resource.
    pub fn discover(&self, call: &Call, segments: &[&str]) -> ApiResult<Answer> {
        let registry = self.types();
        let of_builtins = match segments {
            ["api", ..] => true,
            ["apis", group, version] => registry.tells_builtins(group, version)?,
            _ => false,
        };
        if of_builtins && !negotiate::takes_objects(&call.headers) {
            return Err(ApiError::no_representation("get"));
        }
        match segments {
            ["api" | "apis"] => {
                let core = segments == ["api"];
                if aggregated_asked(call) {
                    return Ok(aggregated(call, &registry, core));
                }
                let document = if core {
                    self.api_versions()
                } else {
                    group_list(&registry)
                };
                self.document(call, &document)
            }
            ["api", version] => self.resource_list(call, &registry, "", version),
            ["apis", group] => {
                let found = registry
                    .group(group)
                    .filter(|g| !g.is_empty() && !group.is_empty());
                let found = found.ok_or_else(ApiError::no_such_path)?;
                let mut document = group_entry(group, found);
                let map = meta::fields(&mut document);
                map.insert("kind".into(), json!("APIGroup"));
                map.insert("apiVersion".into(), json!("v1"));
                self.document(call, &document)
            }
            ["apis", group, version] if !group.is_empty() => {
                self.resource_list(call, &registry, group, version)
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn document(&self, call: &Call, document: &Value) -> ApiResult<Answer> {
        let form = Form::negotiate(&call.headers, &call.query, false)?;
        Ok(Answer::value(200, form, document))
    }

    fn api_versions(&self) -> Value {
        let port = self.port.load(std::sync::atomic::Ordering::Relaxed);
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": format!("127.0.0.1:{port}")}],
        })
    }

    fn resource_list(
        &self,
        call: &Call,
        registry: &Registry,
        group: &str,
        version: &str,
    ) -> ApiResult<Answer> {
        let (_, entry) = registry.served_version(group, version)?;
        let resources: Vec<Value> = entry.served().flat_map(resource_entries).collect();
        let mut document = json!({
            "kind": "APIResourceList",
            "groupVersion": meta::api_version(group, version),
            "resources": resources,
        });
        // The list of the core group is the one without a version of its own.
        if !group.is_empty() {
            document["apiVersion"] = json!("v1");
        }
        self.document(call, &document)
    }
}

impl Registry {
    /// A version that is served, with its group.
    fn served_version(&self, group: &str, version: &str) -> ApiResult<(&Group, &VersionEntry)> {
        let known = self
            .group(group)
            .filter(|g| !g.is_empty())
            .ok_or_else(ApiError::no_such_path)?;
        let entry = known.served().find(|v| *v.name == *version);
        let entry = entry.ok_or_else(|| {
            if known.has_builtins() {
                ApiError::no_such_resource()
            } else {
                ApiError::no_such_path()
            }
        })?;
        Ok((known, entry))
    }

    /// Whether what is told about a version is about built-in kinds; 404 when nothing is told.
    pub(crate) fn tells_builtins(&self, group: &str, version: &str) -> ApiResult<bool> {
        Ok(self.served_version(group, version)?.0.has_builtins())
    }
}

fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = ordered_groups(registry)
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, group)| group_entry(name, group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .served()
        .map(|v| json!({"groupVersion": meta::api_version(name, &v.name), "version": &*v.name}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

/// The order the reference lists its own groups in, which clients search them in too.
const PRECEDENCE: [&str; 19] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

/// Built-in groups first, by precedence, then those of definitions by name.
fn ordered_groups(registry: &Registry) -> Vec<(&str, &Group)> {
    let mut groups: Vec<(&str, &Group)> = registry
        .groups()
        .filter(|(_, g)| !g.is_empty())
        .map(|(name, group)| (&**name, group))
        .collect();
    groups.sort_by_key(|(name, _)| {
        let place = PRECEDENCE.iter().position(|known| known == name);
        (place.unwrap_or(PRECEDENCE.len()), *name)
    });
    groups
}

/// The entries of a resource and its subresources in a plain resource list.
fn resource_entries(resource: &Arc<Resource>) -> Vec<Value> {
    let mut main = json!({
        "name": &*resource.plural,
        "singularName": &*resource.singular,
        "namespaced": resource.namespaced,
        "kind": &*resource.kind,
        "verbs": resource.offered_verbs(),
    });
    let map = meta::fields(&mut main);
    if !resource.short_names.is_empty() {
        map.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        map.insert("categories".into(), json!(resource.categories));
    }
    if resource.is_stored() {
        map.insert("storageVersionHash".into(), json!(storage_hash(resource)));
    }
    let mut all = vec![main];
    for sub in resource.subresource_entries() {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, sub.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        if !(sub.group.is_empty() && sub.version.is_empty()) {
            let map = meta::fields(&mut entry);
            if !sub.group.is_empty() {
                map.insert("group".into(), json!(sub.group));
            }
            map.insert("version".into(), json!(sub.version));
        }
        all.push(entry);
    }
    all
}

/// Identifies the form a resource is stored in.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let text = format!("{}/{}/{}", resource.storage.0, resource.storage.1, resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest.as_ref().get(..8).unwrap_or_default())
}

/// Whether the client takes the aggregated form. The first acceptable clause wins.
fn aggregated_asked(call: &Call) -> bool {
    let accept = call.header(&http::header::ACCEPT).unwrap_or_default();
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*") {
            continue;
        }
        let params: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
        let get = |key: &str| params.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        match (get("as"), get("g"), get("v")) {
            (None, ..) => return false,
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => return true,
            _ => {}
        }
    }
    false
}

fn aggregated(call: &Call, registry: &Registry, core: bool) -> Answer {
    let items: Vec<Value> = ordered_groups(registry)
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(name, group)| aggregated_group(name, group))
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let body = crate::store::serialize(&document);
    let digest = ring::digest::digest(&ring::digest::SHA512, &body);
    let etag: String = digest.as_ref().iter().map(|b| format!("{b:02X}")).collect();
    let etag = format!("\"{etag}\"");
    let headers = |answer: Answer| {
        answer
            .with(ETAG, etag.clone())
            .with(VARY, "Accept")
            .with(CACHE_CONTROL, "public")
    };
    if call
        .header(&IF_NONE_MATCH)
        .is_some_and(|sent| sent.split(',').any(|tag| tag.trim() == etag))
    {
        return headers(Answer::bytes(304, AGGREGATED, bytes::Bytes::new()));
    }
    let form = Form::indented(&call.headers, &call.query);
    headers(Answer {
        content_type: AGGREGATED,
        ..Answer::object(200, form, view::encode(form, body.into()))
    })
}

fn aggregated_group(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .served()
        .map(|version| {
            let resources: Vec<Value> = version.served().map(aggregated_resource).collect();
            json!({"version": &*version.name, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if name.is_empty() {
        json!({})
    } else {
        json!({"name": name})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Arc<Resource>) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    // Built-in kinds name group and version only where they are not those of the list.
    let (group, version) = if resource.as_builtin().is_some() {
        ("", "")
    } else {
        (&*resource.group, &*resource.version)
    };
    let mut entry: Map<String, Value> = Map::new();
    entry.insert("resource".into(), json!(&*resource.plural));
    entry.insert("responseKind".into(), kind(group, version, &resource.kind));
    entry.insert(
        "scope".into(),
        json!(if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        }),
    );
    entry.insert("singularResource".into(), json!(&*resource.singular));
    entry.insert("verbs".into(), json!(resource.offered_verbs()));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
    let subresources: Vec<Value> = resource
        .subresource_entries()
        .into_iter()
        .map(|sub| {
            let (group, version) = if sub.version.is_empty() {
                (group, version)
            } else {
                (sub.group.as_str(), sub.version.as_str())
            };
            json!({"subresource": sub.name, "responseKind": kind(group, version, &sub.kind), "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), json!(subresources));
    }
    Value::Object(entry)
}
