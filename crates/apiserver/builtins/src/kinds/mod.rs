// SPDX-License-Identifier: Apache-2.0
//! The served kinds: the core first, then group by group in discovery order. What an entry does not say is as [`BASE`] has it: namespaced,
//! all verbs, stored under its own version, subdomain names, unconditional updates allowed.

mod core;
mod devices;
mod groups;

use std::sync::OnceLock;

use crate::kind::{Kind, ScalePaths, Subresource, Verbs};
use cobaltcore_schema::NameRule;

const READ_WRITE: &[&str] = &["get", "patch", "update"];

const BASE: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: Verbs::All,
    status: false,
    scale: None,
    subresources: &[],
    has_generation: false,
    creates_on_update: false,
    unconditional_update: true,
    delete_returns_object: false,
    graceful: false,
    default_orphan: false,
    name_rule: NameRule::Subdomain,
    stored: true,
    storage_group: "",
    storage_version: "v1",
    definition: "",
};

/// A review or binding: created, answered, forgotten.
const CREATE_ONLY: Kind = Kind {
    verbs: Verbs::CreateOnly,
    stored: false,
    name_rule: NameRule::Any,
    ..BASE
};

const REPLICAS: Option<ScalePaths> = Some(ScalePaths {
    spec_replicas: "spec.replicas",
    status_replicas: "status.replicas",
    selector: "spec.selector",
});

const fn own(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource {
        name,
        kind,
        group: "",
        version: "",
        verbs,
    }
}

const SCALE: Subresource = Subresource {
    name: "scale",
    kind: "Scale",
    group: "autoscaling",
    version: "v1",
    verbs: READ_WRITE,
};

/// All kinds.
pub(crate) fn all() -> &'static [Kind] {
    static ALL: OnceLock<Vec<Kind>> = OnceLock::new();
    ALL.get_or_init(|| {
        core::KINDS
            .iter()
            .chain(groups::KINDS)
            .chain(devices::KINDS)
            .copied()
            .collect()
    })
}

/// A kind nobody serves, for lookups that cannot fail.
pub(crate) static NONE: Kind = BASE;
