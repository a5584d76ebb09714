// SPDX-License-Identifier: Apache-2.0
//! How Kubernetes and Go write things.
//!
//! Clients compare messages letter by letter and read manifests by the rules of YAML 1.1, so the
//! habits of Go's printers and of the reference's YAML are kept in this one place. It knows JSON
//! values and texts, and nothing about objects, kinds or servers.

pub mod go;
pub mod yaml;
