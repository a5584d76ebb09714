// SPDX-License-Identifier: Apache-2.0
//! The client and runtime of kube-rs, unmodified, against the embedded API: inside the process and
//! over TLS with the kubeconfig the server writes. A controller of the project must find here what
//! it finds in any cluster.

// Tests unwrap: a panic says where it failed just as well.
#![allow(clippy::unwrap_used)]

mod client;
mod identity;
mod runtime;
mod storm;
mod world;
