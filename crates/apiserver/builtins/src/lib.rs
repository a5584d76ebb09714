// SPDX-License-Identifier: Apache-2.0
//! The kinds Kubernetes brings along: structure, defaults, validation, columns.
//!
//! Everything here is pure: objects are JSON trees, rules are functions of one or two of them, time
//! is an argument. The server decides when to call what; the order is decode, default, prepare,
//! validate. What needs the store (addresses and ports of Services, uids, resource versions) is the
//! server's.

mod decode;
mod defaults;
mod fields;
mod json;
mod kind;
mod kinds;
pub mod names;
mod prepare;
pub mod quantity;
mod table;
mod times;
mod tree;

pub use decode::{DecodeError, Decoded, decode_definition};
pub use defaults::default_token_request;
pub use fields::event_label;
pub use kind::{Kind, ScalePaths, Subresource, Verbs, definition_schema, find, find_kind, kinds};
pub use names::NameRule;
pub use prepare::qos_class;
pub use table::{Definition, Descriptions, Field, FieldType, Form, Table, description, descriptions, table};
pub use times::{age, parse_time};
