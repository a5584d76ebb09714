// SPDX-License-Identifier: Apache-2.0
//! Structural schemas: what an object may look like, and what happens to one that does not.
//!
//! One tree of [`Schema`] nodes describes every served kind, whether it comes from the table of
//! built-in kinds or from a CustomResourceDefinition. Pruning, defaulting, validation, server-side
//! apply and strategic merge all read the same tree. Nothing here does I/O or knows about HTTP.

pub mod error;
pub mod node;

pub use error::{Cause, FieldError};
pub use node::{Additional, ListType, MapType, PatchStrategy, Rule, Schema, Type, Validation};
