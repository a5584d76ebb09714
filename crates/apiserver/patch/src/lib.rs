// SPDX-License-Identifier: Apache-2.0
//! The four kinds of patch: JSON patch, merge patch, strategic merge, server-side apply.
//!
//! Pure functions from JSON values to JSON values; nothing here does I/O, reads a clock or knows
//! about HTTP. Every function promises never to panic, whatever JSON it is handed, and errors carry
//! the texts Kubernetes clients expect. Defaulting, pruning, admission and storage are the caller's.
//!
//! ```
//! use cobaltcore_patch::{ApplyRequest, Filter, apply, settle};
//! use cobaltcore_schema::Schema;
//! use serde_json::json;
//!
//! let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}});
//! let request = ApplyRequest {
//!     live: None,
//!     config: &config,
//!     schema: &Schema::default(),
//!     versions: None,
//!     manager: "alpha",
//!     api_version: "v1",
//!     kind: "ConfigMap",
//!     subresource: None,
//!     force: false,
//!     filter: &Filter::Everything,
//!     now: "2026-01-01T00:00:00Z",
//! };
//! let created = apply(request)?.object;
//! assert_eq!(created["metadata"]["managedFields"][0]["manager"], "alpha");
//!
//! // The same again, a second later: nothing to store.
//! let again = apply(ApplyRequest { live: Some(&created), now: "2026-01-01T00:00:01Z", ..request })?;
//! assert!(settle(&created, again.object).is_none());
//!
//! // Somebody else with another opinion: a conflict.
//! let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "2"}});
//! let refused = apply(ApplyRequest { live: Some(&created), config: &other, manager: "beta", ..request });
//! assert_eq!(
//!     refused.unwrap_err().to_string(),
//!     "Apply failed with 1 conflict: conflict with \"alpha\": .data.a"
//! );
//! # Ok::<(), cobaltcore_patch::PatchError>(())
//! ```

pub mod apply;
pub mod error;
pub mod json_patch;
pub mod merge_patch;
pub mod strategic;

pub use apply::{
    Applied, ApplyRequest, Conflict, Conflicts, FieldSet, Filter, PathElement, UpdateRequest, Versions,
    apply, merge_configuration, scale_entries, scaled_parent_entries, settle, unchanged,
    unreadable_ownership, update,
};
pub use error::{ApplyError, PatchError};
pub use json_patch::json_patch;
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge_patch;
