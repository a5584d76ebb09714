// SPDX-License-Identifier: Apache-2.0
//! What passes between the agents and the service of high availability, and what the service tells people: types,
//! bounds, and the one rule of numbering both sides must agree on. There is no I/O here.
//!
//! | module | holds |
//! | --- | --- |
//! | [`event`] | one record of the stream |
//! | [`batch`] | the envelope, its decoding, and which records of it are new |
//! | [`heartbeat`], [`inventory`] | what is not numbered: only the newest counts |
//! | [`command`] | what a service may ask of an agent, and the results |
//! | [`answer`] | what a service answers |
//! | [`stream`] | numbers, what may be forgotten, and what follows from an answer, as agents have it |
//! | [`bounds`], [`path`], [`packing`] | how large things may be, where they are sent, how they are made smaller |
//! | [`rest`] | what viewers and operators read |
//!
//! What an agent sends is decoded strictly: unknown fields and anything beyond the [`bounds`] are errors, because an
//! agent speaks for a machine that may be broken. What a service answers is decoded leniently, so that services are
//! renewed before agents.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod answer;
pub mod batch;
pub mod bounds;
pub mod command;
pub mod event;
pub mod heartbeat;
pub mod inventory;
pub mod packing;
pub mod path;
pub mod rest;
pub mod stream;

pub use answer::{BatchAnswer, CommandList, PROBLEM_JSON, Problem};
pub use batch::{Admission, Batch, Envelope, SCHEMA, WireError};
pub use cobaltcore_api::names::{HostName, ServerId};
pub use cobaltcore_ha_engine::{AgentId, BootId};
pub use command::{
    Command, CommandId, CommandKind, CommandOutcome, CommandResult, ProbeMethod, ProbeOutcome, ProbeReport,
    ProbeTarget,
};
pub use event::{DEVICE_CLASS, DomainRef, Event, Kind, Scalar, agent};
pub use heartbeat::{Heartbeat, Libvirt, Machine, Pressure, PressureLine, SelfFence, SpoolState};
pub use inventory::{Disk, DomainEntry, DomainState, Inventory, Job};
pub use packing::{PACK_FROM, PACKINGS, Packing, Unpackable};
