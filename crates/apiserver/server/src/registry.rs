// SPDX-License-Identifier: Apache-2.0
//! The served types. A [`Resource`] is one (group, version, plural) with everything handlers need to
//! know about it, whether it is built in or defined by a CustomResourceDefinition. The [`Registry`]
//! is an immutable snapshot of all of them, swapped as a whole when a definition changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_builtins::Kind;
use cobaltcore_schema::crd::{CustomResource, Version};
use cobaltcore_schema::{FieldError, Schema};
use serde_json::Value;

use crate::admission::Converter;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::store::Table;

/// What stands behind a served type.
#[derive(Debug, Clone)]
pub enum Model {
    /// A kind of the built-in table.
    Builtin(&'static Kind),
    /// A version of a custom resource.
    Custom(Arc<Custom>),
}

/// A custom resource in one of its versions.
#[derive(Debug)]
pub struct Custom {
    /// The definition.
    pub definition: Arc<CustomResource>,
    /// Index of the version.
    pub version: usize,
    /// Changes whenever anything the definition asks for, or the names it was given, does.
    pub generation: u32,
    /// Changes whenever the schema of the version does.
    pub schema_generation: u32,
    /// The definition is being deleted: nothing new may be created.
    pub terminating: bool,
    /// The service that translates between versions, when the definition names one.
    pub(crate) converter: Option<Arc<Converter>>,
}

impl Custom {
    /// The version served.
    pub fn version(&self) -> &Version {
        &self.definition.versions[self.version]
    }
}

/// One served type.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Plural name.
    pub plural: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Kind of lists.
    pub list_kind: Arc<str>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Where the objects are stored; versions of one kind share it.
    pub table: Arc<Table>,
    /// Group and version objects are stored in.
    pub storage: (Arc<str>, Arc<str>),
    /// Whether requests may name this version; a storage version can be unserved.
    pub served: bool,
    /// What it is.
    pub model: Model,
}

/// A subresource as discovery shows it.
#[derive(Debug, Clone)]
pub struct SubresourceEntry {
    /// Path segment.
    pub name: String,
    /// Kind of its bodies.
    pub kind: String,
    /// Group of that kind; empty together with `version` when it is the parent's.
    pub group: String,
    /// Version of that kind.
    pub version: String,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// Where `/scale` finds its numbers, as dotted paths.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: String,
    /// Observed replicas.
    pub status_replicas: String,
    /// The label selector.
    pub selector: Option<String>,
}

impl Resource {
    /// A built-in kind.
    pub fn builtin(kind: &'static Kind, table: Arc<Table>) -> Self {
        Self {
            group: kind.group.into(),
            version: kind.version.into(),
            plural: kind.plural.into(),
            singular: kind.singular.into(),
            kind: kind.kind.into(),
            list_kind: format!("{}List", kind.kind).into(),
            short_names: kind.short_names.iter().map(ToString::to_string).collect(),
            categories: kind.categories.iter().map(ToString::to_string).collect(),
            namespaced: kind.namespaced,
            table,
            storage: (kind.storage_group.into(), kind.storage_version.into()),
            served: true,
            model: Model::Builtin(kind),
        }
    }

    /// One version of a custom resource.
    pub(crate) fn custom(
        definition: &Arc<CustomResource>,
        version: usize,
        (generation, schema_generation): (u32, u32),
        terminating: bool,
        converter: Option<Arc<Converter>>,
        table: Arc<Table>,
    ) -> Self {
        let names = &definition.names;
        let storage = definition
            .versions
            .iter()
            .find(|v| v.storage)
            .map_or("", |v| v.name.as_str());
        Self {
            group: definition.group.as_str().into(),
            version: definition.versions[version].name.as_str().into(),
            plural: names.plural.as_str().into(),
            singular: names.singular.as_str().into(),
            kind: names.kind.as_str().into(),
            list_kind: names.list_kind.as_str().into(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            namespaced: definition.namespaced,
            table,
            storage: (definition.group.as_str().into(), storage.into()),
            served: definition.versions[version].served,
            model: Model::Custom(Arc::new(Custom {
                definition: definition.clone(),
                version,
                generation,
                schema_generation,
                terminating,
                converter,
            })),
        }
    }

    /// What the reference calls one object of this type, or a list of them, in its own language.
    pub(crate) fn go_type(&self, list: bool) -> String {
        match &self.model {
            Model::Builtin(_) if list => format!("*{}.{}", self.package(), self.list_kind),
            Model::Builtin(_) => format!("*{}.{}", self.package(), self.kind),
            Model::Custom(_) if list => "*unstructured.UnstructuredList".to_owned(),
            Model::Custom(_) => "*unstructured.Unstructured".to_owned(),
        }
    }

    /// The package the reference keeps this type in.
    pub(crate) fn package(&self) -> &str {
        match &*self.group {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or_default(),
        }
    }

    /// apiVersion of this type.
    pub fn api_version(&self) -> String {
        meta::api_version(&self.group, &self.version)
    }

    /// Whether requests for this type see objects as they are stored.
    pub fn is_storage(&self) -> bool {
        *self.group == *self.storage.0 && *self.version == *self.storage.1
    }

    /// Whether stored objects may have to be translated by a webhook before they are this type.
    pub fn needs_webhook(&self) -> bool {
        self.as_custom().is_some_and(|custom| custom.converter.is_some())
    }

    /// The schema generation noted with an object stored through this type: only what went in
    /// through the storage version can be served as it lies there.
    pub fn stored_schema(&self) -> u32 {
        if self.is_storage() {
            self.schema_generation()
        } else {
            0
        }
    }

    /// The built-in kind, if it is one.
    pub fn as_builtin(&self) -> Option<&'static Kind> {
        match &self.model {
            Model::Builtin(kind) => Some(kind),
            Model::Custom(_) => None,
        }
    }

    /// The custom resource, if it is one.
    pub fn as_custom(&self) -> Option<&Arc<Custom>> {
        match &self.model {
            Model::Builtin(_) => None,
            Model::Custom(custom) => Some(custom),
        }
    }

    /// Whether this is the built-in kind `kind` of `group`.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.as_builtin()
            .is_some_and(|k| k.group == group && k.kind == kind)
    }

    /// Verbs of the main endpoint.
    pub fn verbs(&self) -> &'static [&'static str] {
        const CUSTOM: &[&str] = &[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ];
        self.as_builtin().map_or(CUSTOM, |kind| kind.verbs.list())
    }

    /// Verbs discovery offers: what is on its way out is to be looked at and removed, no more.
    pub fn offered_verbs(&self) -> &'static [&'static str] {
        const LEAVING: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
        match self.as_custom() {
            Some(custom) if custom.terminating => LEAVING,
            _ => self.verbs(),
        }
    }

    /// Whether objects are kept; reviews and bindings are not.
    pub fn is_stored(&self) -> bool {
        self.as_builtin().is_none_or(|kind| kind.stored)
    }

    /// The subresources, in discovery order.
    pub fn subresource_entries(&self) -> Vec<SubresourceEntry> {
        const CHANGE: &[&str] = &["get", "patch", "update"];
        let entry = |name: &str, kind: &str, group: &str, version: &str, verbs| SubresourceEntry {
            name: name.into(),
            kind: kind.into(),
            group: group.into(),
            version: version.into(),
            verbs,
        };
        match &self.model {
            Model::Builtin(builtin) => builtin
                .subresources
                .iter()
                .map(|s| entry(s.name, s.kind, s.group, s.version, s.verbs))
                .collect(),
            Model::Custom(_) => {
                let mut all = Vec::new();
                if self.has_status() {
                    all.push(entry("status", &self.kind, "", "", CHANGE));
                }
                if self.has_scale() {
                    all.push(entry("scale", "Scale", "autoscaling", "v1", CHANGE));
                }
                all
            }
        }
    }

    /// Names and verbs of the subresources.
    pub fn subresources(&self) -> Vec<(String, &'static [&'static str])> {
        self.subresource_entries()
            .into_iter()
            .map(|s| (s.name, s.verbs))
            .collect()
    }

    /// Whether a subresource is served.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources().iter().any(|(known, _)| known == name)
    }

    /// Where `/scale` finds its numbers.
    pub fn scale_paths(&self) -> ScalePaths {
        match &self.model {
            Model::Builtin(kind) => {
                let paths = kind.scale;
                ScalePaths {
                    spec_replicas: paths.map_or("spec.replicas", |p| p.spec_replicas).into(),
                    status_replicas: paths.map_or("status.replicas", |p| p.status_replicas).into(),
                    selector: paths.map(|p| p.selector.into()),
                }
            }
            Model::Custom(custom) => {
                let scale = custom.version().scale.as_ref();
                ScalePaths {
                    spec_replicas: scale.map(|s| s.spec_path.join(".")).unwrap_or_default(),
                    status_replicas: scale.map(|s| s.status_path.join(".")).unwrap_or_default(),
                    selector: scale
                        .and_then(|s| s.label_selector_path.as_ref())
                        .map(|p| p.join(".")),
                }
            }
        }
    }

    /// Whether there is a `/status`.
    pub fn has_status(&self) -> bool {
        match &self.model {
            Model::Builtin(kind) => kind.status,
            Model::Custom(custom) => custom.version().status,
        }
    }

    /// Whether there is a `/scale`.
    pub fn has_scale(&self) -> bool {
        match &self.model {
            Model::Builtin(kind) => kind.scale.is_some(),
            Model::Custom(custom) => custom.version().scale.is_some(),
        }
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        match &self.model {
            Model::Builtin(kind) => kind.schema(),
            Model::Custom(custom) => &custom.version().schema,
        }
    }

    /// Generation of the schema objects are written under now.
    pub fn schema_generation(&self) -> u32 {
        self.as_custom().map_or(0, |c| c.schema_generation)
    }

    /// 404 for an object of this type.
    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.group, &self.plural, name)
    }

    /// 404 for a path below this type that leads nowhere.
    pub fn no_such_route(&self) -> ApiError {
        if self.as_builtin().is_some() {
            ApiError::no_such_resource()
        } else {
            ApiError::no_such_path()
        }
    }

    /// 405 for this type.
    pub fn method_not_allowed(&self, verb: &str) -> ApiError {
        if self.as_builtin().is_some() {
            return ApiError::method_not_allowed();
        }
        ApiError::method_not_supported(&self.group, &self.plural, verb)
    }

    /// 409 for a stale object of this type.
    pub fn stale(&self, name: &str) -> ApiError {
        ApiError::stale(&self.group, &self.plural, name)
    }

    /// 422 for an object of this type.
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> ApiError {
        // Events are told by the name they are stored under, whichever group they came through.
        let group = if self.is("events.k8s.io", "Event") {
            ""
        } else {
            &*self.group
        };
        ApiError::invalid(group, &self.kind, name, errors)
    }

    /// Converts a tree of this type into the form it is stored in.
    pub fn to_storage(&self, object: &mut Value, registry: &Registry) {
        if self.is_storage() {
            return;
        }
        let Some(target) = registry.get(&self.storage.0, &self.storage.1, &self.plural) else {
            return;
        };
        self.convert(&target, object);
    }

    /// Converts a stored tree into this type.
    pub fn convert_stored(&self, object: &mut Value, registry: &Registry) {
        if self.is_storage() {
            return;
        }
        if let Some(source) = registry.get(&self.storage.0, &self.storage.1, &self.plural) {
            source.convert(self, object);
        }
    }

    fn convert(&self, target: &Resource, object: &mut Value) {
        if let (Model::Builtin(from), Model::Builtin(to)) = (&self.model, &target.model) {
            from.convert_to(to, object);
            return;
        }
        meta::fields(object).insert("apiVersion".into(), Value::String(target.api_version()));
        if let Some(custom) = target.as_custom() {
            custom.take_over(object);
        }
    }
}

/// All served types at one moment.
#[derive(Debug, Default)]
pub struct Registry {
    groups: BTreeMap<Arc<str>, Group>,
    /// Changes with every change of the served types; discovery's ETag.
    pub generation: u64,
}

/// A served API group.
#[derive(Debug, Default, Clone)]
pub struct Group {
    /// Versions, preferred first.
    pub versions: Vec<VersionEntry>,
}

/// A served version of a group.
#[derive(Debug, Clone)]
pub struct VersionEntry {
    /// The version.
    pub name: Arc<str>,
    /// Resources by plural name.
    pub resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

impl VersionEntry {
    /// The resources requests may name.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values().filter(|r| r.served)
    }
}

impl Group {
    /// The versions requests may name, preferred first.
    pub fn served(&self) -> impl Iterator<Item = &VersionEntry> {
        self.versions.iter().filter(|v| v.served().next().is_some())
    }

    /// Whether nothing of the group is served.
    pub fn is_empty(&self) -> bool {
        self.served().next().is_none()
    }

    /// Whether the group is one of the server's own. Such groups explain what they do not know;
    /// those of definitions look like any path that is not there.
    pub fn has_builtins(&self) -> bool {
        self.served()
            .flat_map(VersionEntry::served)
            .any(|r| r.as_builtin().is_some())
    }
}

impl Registry {
    /// A registry of the given resources.
    pub fn new(resources: impl IntoIterator<Item = Arc<Resource>>, generation: u64) -> Self {
        let mut groups: BTreeMap<Arc<str>, Group> = BTreeMap::new();
        for resource in resources {
            let group = groups.entry(resource.group.clone()).or_default();
            let at = group
                .versions
                .iter()
                .position(|v| v.name == resource.version)
                .unwrap_or_else(|| {
                    group.versions.push(VersionEntry {
                        name: resource.version.clone(),
                        resources: BTreeMap::new(),
                    });
                    group.versions.len() - 1
                });
            group.versions[at]
                .resources
                .insert(resource.plural.clone(), resource);
        }
        for group in groups.values_mut() {
            group
                .versions
                .sort_by_key(|v| std::cmp::Reverse(cobaltcore_schema::version_priority(&v.name)));
        }
        Self { groups, generation }
    }

    /// Groups in discovery order: built-in ones first, each with its versions.
    pub fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &Group)> {
        self.groups.iter()
    }

    /// A group.
    pub fn group(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    /// All resources.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups
            .values()
            .flat_map(|g| &g.versions)
            .flat_map(|v| v.resources.values())
    }

    /// One resource.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let version = self
            .groups
            .get(group)?
            .versions
            .iter()
            .find(|v| *v.name == *version)?;
        version.resources.get(plural).cloned()
    }

    /// One resource by kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        let version = self
            .groups
            .get(group)?
            .versions
            .iter()
            .find(|v| *v.name == *version)?;
        version.resources.values().find(|r| *r.kind == *kind).cloned()
    }

    /// A resource in whatever version is preferred.
    pub fn any_version(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.groups
            .get(group)?
            .versions
            .iter()
            .find_map(|v| v.resources.get(plural).cloned())
    }

    /// The resource whose objects are stored as they are in this table.
    pub fn storage_of(&self, table: &Table) -> Option<Arc<Resource>> {
        self.resources()
            .find(|r| r.table.id == table.id && r.is_storage())
            .cloned()
    }

    /// The resource a request is about, with the reference's refusals.
    pub fn route(&self, group: &str, version: &str, plural: &str) -> ApiResult<Arc<Resource>> {
        if let Some(found) = self.get(group, version, plural).filter(|r| r.served) {
            return Ok(found);
        }
        match self.groups.get(group) {
            Some(known) if known.has_builtins() => Err(ApiError::no_such_resource()),
            _ => Err(ApiError::no_such_path()),
        }
    }
}
