// SPDX-License-Identifier: Apache-2.0
//! Structural schemas: what an object may look like, and what happens to one that does not.
//!
//! One tree of [`Schema`] nodes describes every served kind, whether it comes from the table of
//! built-in kinds or from a CustomResourceDefinition. Pruning, defaulting, validation, server-side
//! apply and strategic merge all read the same tree. Nothing here does I/O or knows about HTTP.

pub mod check;
pub mod correlate;
pub mod crd;
pub mod default;
pub mod embedded;
pub mod error;
pub mod formats;
pub mod jsonpath;
pub mod keywords;
pub mod listtype;
pub mod meta;
pub mod names;
pub mod node;
pub mod objectmeta;
pub mod parse;
pub mod path;
pub mod pattern;
pub mod prune;
pub mod rules;
pub mod structural;
pub mod validate;

pub use crd::{
    CustomResource, compile, default_crd, validate_crd, validate_crd_status_update, validate_crd_update,
    version_priority,
};
pub use default::{default, default_keeping_nulls};
pub use error::{Cause, FieldError, SchemaError};
pub use jsonpath::JsonPath;
pub use meta::{validate_object_meta, validate_object_meta_update};
pub use names::NameRule;
pub use node::{Additional, ListType, MapType, PatchStrategy, Rule, Schema, Type, Validation};
pub use objectmeta::check_metadata;
pub use parse::parse;
pub use prune::{Root, prune};
pub use validate::{validate, validate_status};
