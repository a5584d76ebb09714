// SPDX-License-Identifier: Apache-2.0
//! An operator's work with the unmodified `kubectl` of this machine, over TLS, against the embedded
//! API. What is compared is what a person reads: columns, values and messages as a real cluster
//! prints them. Tests share a running server, each in a namespace of its own; without kubectl every
//! test says so in one line and passes.

// Tests unwrap: a panic says where it failed just as well.
#![allow(clippy::unwrap_used)]

mod access;
mod apply;
mod create;
mod nodes;
mod product;
mod read;
mod remove;
mod workloads;
mod world;
