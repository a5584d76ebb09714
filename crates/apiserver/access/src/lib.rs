// SPDX-License-Identifier: Apache-2.0
//! Who is asking, and may they: certificates, tokens, RBAC.
//!
//! Nothing here listens, stores or waits. The server hands in credentials, objects and the
//! current time, and gets identities, decisions and the exact texts of the reference server
//! back. Whatever cannot be decided is refused.

mod error;
mod go;
pub mod identity;
pub mod impersonation;
pub mod pki;
pub mod rbac;
pub mod recorder;
pub mod review;
pub mod tokens;

pub use error::{AccessError, FieldCause, Refusal};
pub use identity::User;
pub use rbac::{Attributes, Decision, Index};
