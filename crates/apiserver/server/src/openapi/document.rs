// SPDX-License-Identifier: Apache-2.0
//! Whole documents: one per group version in version 3, one for everything in version 2. A document
//! contains the definitions its paths refer to and everything those refer to, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_builtins::{OpenApi as Edition, reachable};
use serde_json::{Value, json};

use super::catalogue::{self, Catalogue, write};
use super::custom;
use super::names;
use super::paths;
use super::protobuf;
use super::render;
use super::serve::Encoding;
use crate::registry::Resource;

/// What the version 3 index lists besides group versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// A served group version.
    Version(String, String),
    /// A built-in group.
    Group(String),
    /// `api`, `apis`, `version` and the service account issuer's paths.
    Path(&'static str),
}

/// The paths that are no groups.
pub(super) const PATHS: [&str; 5] = [
    ".well-known/openid-configuration",
    "api",
    "apis",
    "openid/v1/jwks",
    "version",
];

impl Subject {
    /// Its name in the index and below `/openapi/v3/`.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Version(group, version) => names::group_version(group, version),
            Self::Group(group) => format!("apis/{group}"),
            Self::Path(path) => (*path).to_owned(),
        }
    }
}

/// The answer of `/version`, which is no kind and so in no table.
fn version_schema() -> Value {
    const ALWAYS: [&str; 9] = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    const ALSO: [&str; 4] = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let always = ALWAYS.map(|name| (name, json!({"type": "string", "default": ""})));
    let also = ALSO.map(|name| (name, json!({"type": "string"})));
    let properties: serde_json::Map<String, Value> = always
        .into_iter()
        .chain(also)
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    json!({"description": "Which version this server is, and which it behaves like.", "type": "object",
        "required": ALWAYS, "properties": properties})
}

/// Title and version of what is built in.
const INFO: (&str, &str) = ("Kubernetes", "1.36");
/// What `/version` answers with.
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A document in the making.
struct Parts<'a> {
    catalogue: &'a Catalogue,
    definitions: BTreeMap<String, std::borrow::Cow<'a, [u8]>>,
    paths: BTreeMap<String, Vec<u8>>,
}

impl<'a> Parts<'a> {
    fn new(catalogue: &'a Catalogue) -> Self {
        Self {
            catalogue,
            definitions: BTreeMap::new(),
            paths: BTreeMap::new(),
        }
    }

    /// Adds a built-in definition and what it refers to.
    fn need(&mut self, root: &str) {
        // Events are described beside the type table, with the one thing they refer to.
        let carried = (root == names::meta("WatchEvent")).then_some(catalogue::ANY);
        for name in [root].into_iter().chain(carried).chain(reachable(root)) {
            if let Some(schema) = self.catalogue.get(name)
                && !self.definitions.contains_key(name)
            {
                self.definitions.insert(name.to_owned(), schema.into());
            }
        }
    }

    fn discovery(&mut self, path: String, id: &str, text: &str, tag: &str, kind: &str) {
        let definition = names::meta(kind);
        let schema = render::reference(self.catalogue.edition, &definition);
        self.need(&definition);
        let item = render::plain(self.catalogue.edition, id, text, tag, render::DISCOVERY, &schema);
        self.paths.insert(path, write(&item));
    }

    fn resource(&mut self, resource: &Arc<Resource>, definition: Option<&Value>) {
        let edition = self.catalogue.edition;
        let tag = names::tag(&resource.group, &resource.version);
        for item in paths::of(resource) {
            for operation in &item.operations {
                self.need(&operation.answer);
                operation.body.iter().for_each(|body| self.need(&body.definition));
            }
            let written = write(&render::path_item(edition, &item, &tag));
            self.paths.insert(item.path, written);
        }
        if resource.as_custom().is_some() {
            let schemas = custom::definitions(edition, resource, definition.unwrap_or(&Value::Null));
            self.definitions.extend(
                schemas
                    .into_iter()
                    .map(|(name, schema)| (name, write(&schema).into())),
            );
            self.need(&names::meta("ObjectMeta"));
        } else {
            self.need(&names::definition(resource));
        }
        self.need(&names::meta("ListMeta"));
    }

    /// The group version's own path, which lists its resources.
    fn version(&mut self, group: &str, version: &str) {
        let path = format!("/{}/", names::group_version(group, version));
        let id = format!("get{}APIResources", names::camel(group, version));
        self.discovery(
            path,
            &id,
            "get available resources",
            &names::tag(group, version),
            "APIResourceList",
        );
    }

    fn group(&mut self, group: &str) {
        let id = format!("get{}APIGroup", names::camel(group, ""));
        self.discovery(
            format!("/apis/{group}/"),
            &id,
            "get information of a group",
            &names::tag(group, ""),
            "APIGroup",
        );
    }

    fn path(&mut self, path: &'static str) {
        let edition = self.catalogue.edition;
        let key = format!("/{path}/");
        let text = json!({"type": "string"});
        match path {
            "api" => self.discovery(
                key,
                "getCoreAPIVersions",
                "get available API versions",
                "core",
                "APIVersions",
            ),
            "apis" => self.discovery(
                key,
                "getAPIVersions",
                "get available API versions",
                "apis",
                "APIGroupList",
            ),
            "version" => {
                self.definitions
                    .insert(VERSION.to_owned(), write(&version_schema()).into());
                let item = render::plain(
                    edition,
                    "getCodeVersion",
                    "get the version information for this server",
                    path,
                    &["application/json"],
                    &render::reference(edition, VERSION),
                );
                self.paths.insert(key, write(&item));
            }
            "openid/v1/jwks" => {
                let media = &["application/jwk-set+json"];
                let item = render::plain(
                    edition,
                    "getServiceAccountIssuerOpenIDKeyset",
                    "get the keys service account tokens are signed with",
                    "openid",
                    media,
                    &text,
                );
                self.paths.insert(key, write(&item));
            }
            _ => {
                let item = render::plain(
                    edition,
                    "getServiceAccountIssuerOpenIDConfiguration",
                    "get the configuration of the service account issuer",
                    "WellKnown",
                    &["application/json"],
                    &text,
                );
                self.paths.insert(key, write(&item));
            }
        }
    }

    /// The document. The frame holds everything but definitions and paths.
    fn finish(self, custom: bool) -> Vec<u8> {
        let (title, version) = if custom {
            ("Kubernetes CRD Swagger", "v0.1.0")
        } else {
            INFO
        };
        let info = write(&json!({"title": title, "version": version}));
        let scheme = json!({"BearerToken": {
            "type": "apiKey",
            "in": "header",
            "name": "authorization",
            "description": "Bearer Token authentication",
        }});
        let scheme = write(&scheme);
        let mut out = Vec::with_capacity(self.definitions.values().map(|d| d.len() + 64).sum::<usize>() * 2);
        match self.catalogue.edition {
            Edition::V3 => {
                out.extend_from_slice(b"{\"components\":{\"schemas\":");
                members(
                    &mut out,
                    self.definitions
                        .iter()
                        .map(|(name, schema)| (name, schema.as_ref())),
                );
                out.extend_from_slice(b",\"securitySchemes\":");
                out.extend_from_slice(&scheme);
                out.extend_from_slice(b"},\"info\":");
                out.extend_from_slice(&info);
                out.extend_from_slice(b",\"openapi\":\"3.0.0\"");
            }
            Edition::V2 => {
                out.extend_from_slice(b"{\"definitions\":");
                members(
                    &mut out,
                    self.definitions
                        .iter()
                        .map(|(name, schema)| (name, schema.as_ref())),
                );
                out.extend_from_slice(b",\"info\":");
                out.extend_from_slice(&info);
                out.extend_from_slice(b",\"security\":[{\"BearerToken\":[]}],\"securityDefinitions\":");
                out.extend_from_slice(&scheme);
                out.extend_from_slice(b",\"swagger\":\"2.0\"");
            }
        }
        out.extend_from_slice(b",\"paths\":");
        members(&mut out, self.paths.iter());
        out.push(b'}');
        out
    }
}

/// Writes an object whose values are JSON already.
fn members<V: AsRef<[u8]>>(out: &mut Vec<u8>, entries: impl Iterator<Item = (impl AsRef<str>, V)>) {
    out.push(b'{');
    for (at, (name, value)) in entries.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&write(&json!(name.as_ref())));
        out.push(b':');
        out.extend_from_slice(value.as_ref());
    }
    out.push(b'}');
}

/// Looks up the stored definition behind a custom resource.
pub(super) type Lookup<'a> = dyn Fn(&Resource) -> Option<Value> + 'a;

/// The version 3 document of a subject that consists of `resources`.
pub(super) fn three(
    catalogue: &Catalogue,
    subject: &Subject,
    resources: &[Arc<Resource>],
    lookup: &Lookup<'_>,
) -> Vec<u8> {
    let mut parts = Parts::new(catalogue);
    match subject {
        Subject::Version(group, version) => {
            let custom = resources.iter().all(|r| r.as_custom().is_some());
            if !custom {
                parts.version(group, version);
            }
            for resource in resources {
                parts.resource(resource, lookup(resource).as_ref());
            }
            return parts.finish(custom);
        }
        Subject::Group(group) => parts.group(group),
        Subject::Path(path) => parts.path(path),
    }
    parts.finish(false)
}

/// The version 2 document of everything.
pub(super) fn two(
    catalogue: &Catalogue,
    subjects: &[(Subject, Vec<Arc<Resource>>)],
    lookup: &Lookup<'_>,
    encoding: Encoding,
) -> Vec<u8> {
    let mut parts = Parts::new(catalogue);
    for (name, schema) in catalogue.all() {
        parts.definitions.insert(name.to_owned(), schema.into());
    }
    for (subject, resources) in subjects {
        match subject {
            Subject::Version(group, version) => {
                if resources.iter().any(|r| r.as_builtin().is_some()) {
                    parts.version(group, version);
                }
                for resource in resources {
                    parts.resource(resource, lookup(resource).as_ref());
                }
            }
            Subject::Group(group) => parts.group(group),
            Subject::Path(path) => parts.path(path),
        }
    }
    match encoding {
        Encoding::Json => parts.finish(false),
        Encoding::Protobuf => protobuf::document(INFO, &parts.definitions, &parts.paths),
    }
}
