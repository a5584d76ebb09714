// SPDX-License-Identifier: Apache-2.0
//! The four kinds of patch: JSON patch, merge patch, strategic merge, server-side apply.
//!
//! Pure functions from JSON values to JSON values; nothing here does I/O, reads a clock or knows
//! about HTTP. Every function promises never to panic, whatever JSON it is handed, and errors carry
//! the texts Kubernetes clients expect. Defaulting, pruning, admission and storage are the caller's.

pub mod apply;
pub mod error;
mod go;
pub mod json_patch;
pub mod merge_patch;
pub mod strategic;

pub use apply::{
    Applied, ApplyRequest, Conflict, Conflicts, FieldSet, Filter, Manager, PathElement, UpdateRequest, apply,
    settle, unchanged, update,
};
pub use error::{ApplyError, PatchError};
pub use json_patch::json_patch;
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge_patch;
