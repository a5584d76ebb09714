// SPDX-License-Identifier: Apache-2.0
//! What the server has to know about a built-in kind before it looks at any object: names, scope,
//! verbs, subresources and the switches that set one kind's behaviour apart from another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cobaltcore_schema::Schema;

use crate::tree::Trees;
use cobaltcore_schema::NameRule;

/// Which verbs a collection and its objects offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbs {
    /// create, delete, deletecollection, get, list, patch, update, watch.
    All,
    /// All but deletecollection.
    NoDeleteCollection,
    /// create alone.
    CreateOnly,
}

impl Verbs {
    /// The verbs in the order discovery lists them.
    pub const fn list(self) -> &'static [&'static str] {
        match self {
            Self::All => &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
            Self::NoDeleteCollection => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Self::CreateOnly => &["create"],
        }
    }

    /// Whether the verb is offered.
    pub fn allow(self, verb: &str) -> bool {
        self.list().contains(&verb)
    }
}

/// Where `/scale` finds its numbers, as dotted paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: &'static str,
    /// Observed replicas.
    pub status_replicas: &'static str,
    /// The label selector (an object, rendered as text in the Scale).
    pub selector: &'static str,
}

/// A subresource other than status and scale, which have flags of their own, is one of these; status
/// and scale are listed too, so that discovery can print one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// Path segment.
    pub name: &'static str,
    /// Kind of the bodies.
    pub kind: &'static str,
    /// Group of that kind; empty together with `version` when it is the parent's.
    pub group: &'static str,
    /// Version of that kind.
    pub version: &'static str,
    /// Verbs in discovery order.
    pub verbs: &'static [&'static str],
}

/// One served built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group, empty for the core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind in CamelCase.
    pub kind: &'static str,
    /// Resource name.
    pub plural: &'static str,
    /// Singular resource name.
    pub singular: &'static str,
    /// Abbreviations.
    pub short_names: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Offered verbs.
    pub verbs: Verbs,
    /// Has a `/status` subresource.
    pub status: bool,
    /// Has a `/scale` subresource.
    pub scale: Option<ScalePaths>,
    /// All subresources, in discovery order.
    pub subresources: &'static [Subresource],
    /// metadata.generation is kept.
    pub has_generation: bool,
    /// PUT of a missing object creates it.
    pub creates_on_update: bool,
    /// PUT without resourceVersion is allowed.
    pub unconditional_update: bool,
    /// DELETE answers the object instead of a Status.
    pub delete_returns_object: bool,
    /// Deletion has a grace period.
    pub graceful: bool,
    /// Dependents are orphaned when the client names no policy.
    pub default_orphan: bool,
    /// Rule for metadata.name.
    pub name_rule: NameRule,
    /// Objects are kept; reviews and bindings are not.
    pub stored: bool,
    /// Group under which objects are stored; differs where two kinds share storage.
    pub storage_group: &'static str,
    /// Version in which objects are stored.
    pub storage_version: &'static str,
    /// Name of the OpenAPI definition.
    pub definition: &'static str,
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether this kind and version is the one objects are stored in.
    pub fn is_storage(&self) -> bool {
        self.group == self.storage_group && self.version == self.storage_version
    }

    /// The kind in which objects of this kind are stored: itself, unless storage is shared.
    pub fn storage(&self) -> &'static Kind {
        find_kind(self.storage_group, self.storage_version, self.kind).unwrap_or(&crate::kinds::NONE)
    }

    /// The subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// The schema tree, without descriptions. `Schema::default` of its nodes is only set where a
    /// list-map key counts with a default; defaulting proper is [`Kind::default`].
    pub fn schema(&self) -> &'static Arc<Schema> {
        cached(self.definition, false)
    }

    /// The schema tree with the descriptions `kubectl explain` prints.
    pub fn schema_with_descriptions(&self) -> &'static Arc<Schema> {
        cached(self.definition, true)
    }

    /// The (group, kind) pair rules are chosen by.
    pub(crate) fn id(&self) -> (&'static str, &'static str) {
        (self.group, self.kind)
    }
}

/// All built-in kinds, in discovery order of groups.
pub fn kinds() -> &'static [Kind] {
    crate::kinds::all()
}

/// The kind behind a group, version and plural.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    static INDEX: OnceLock<HashMap<(&'static str, &'static str, &'static str), &'static Kind>> =
        OnceLock::new();
    let index = INDEX.get_or_init(|| {
        crate::kinds::all()
            .iter()
            .map(|kind| ((kind.group, kind.version, kind.plural), kind))
            .collect()
    });
    index.get(&(group, version, plural)).copied()
}

/// The kind behind a group, version and kind name.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    crate::kinds::all()
        .iter()
        .find(|known| known.group == group && known.version == version && known.kind == kind)
}

/// The tree of any definition of the table, for kinds that are only spoken by subresources
/// (`io.k8s.api.autoscaling.v1.Scale`) or by options (`...meta.v1.DeleteOptions`).
pub fn definition_schema(definition: &'static str) -> &'static Arc<Schema> {
    cached(definition, false)
}

fn cached(definition: &'static str, described: bool) -> &'static Arc<Schema> {
    static PLAIN: OnceLock<Trees> = OnceLock::new();
    static DESCRIBED: OnceLock<Trees> = OnceLock::new();
    type Cache = Mutex<HashMap<(&'static str, bool), &'static Arc<Schema>>>;
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let mut cache = CACHE
        .get_or_init(Cache::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    cache.entry((definition, described)).or_insert_with(|| {
        let trees = if described {
            DESCRIBED.get_or_init(|| Trees::new(true))
        } else {
            PLAIN.get_or_init(|| Trees::new(false))
        };
        // Bounded: one per definition of the table, for the life of the process.
        Box::leak(Box::new(trees.of(definition)))
    })
}
