// SPDX-License-Identifier: Apache-2.0
//! The kinds Kubernetes brings along: structure, defaults, validation, columns.
//!
//! Everything here is pure: objects are JSON trees, rules are functions of one or two of them, time
//! is an argument. The server decides when to call what; the order is decode, default, prepare,
//! validate. What needs the store (addresses and ports of Services, uids, resource versions) is the
//! server's: [`service_needs`] names what a Service still lacks.

mod admission;
mod allocate;
mod autoscaler;
mod budget;
mod convert;
mod decode;
mod defaults;
mod definitions;
mod fields;
mod json;
mod keypair;
mod kind;
mod kinds;
mod limits;
pub mod names;
mod pod_parts;
mod pods;
mod prepare;
mod print;
pub mod quantity;
mod quota;
mod scale;
mod security;
mod security_checks;
mod selector;
mod table;
mod times;
mod tree;
mod validate;
mod warnings;
mod warnings_storage;
mod workloads;

pub use admission::{
    Priority, default_priority, default_service_account, default_tolerations, missing_priority_class,
    protect_storage, taint_new_node, take_runtime_class, validate_token_request,
};
pub use allocate::{ServiceNeeds, prepare_service, service_needs};
pub use budget::{Owner, pdb_status};
pub use cobaltcore_schema::NameRule;
pub use decode::{DecodeError, Decoded, decode_definition};
pub use defaults::default_token_request;
pub use definitions::{OpenApi, definition, definitions, reachable};
pub use fields::event_label;
pub use kind::{Kind, ScalePaths, Subresource, Verbs, definition_schema, find, find_kind, kinds};
pub use limits::{claim_limit_errors, default_limits, pod_limit_errors};
pub use pod_parts::resize_objection;
pub use pods::{
    BindError, Eviction, bind, copy_topology, disruption_condition, evict, is_ready, matching_budgets,
    set_condition, validate_binding,
};
pub use prepare::qos_class;
pub use print::{Column, status_columns};
pub use quota::{
    Usage, quota_add, quota_covers, quota_difference, quota_limits, quota_refusal, quota_status, quota_usage,
};
pub use scale::validate_scale;
pub use security::{SecurityMode, security_label_errors, security_relabel_warnings, security_violation};
pub use selector::{selector_matches, selector_text};
pub use table::{Definition, Descriptions, Field, FieldType, Form, Table, description, descriptions, table};
pub use times::{age, parse_time};
pub use workloads::{SIMULATED, fulfilled};
