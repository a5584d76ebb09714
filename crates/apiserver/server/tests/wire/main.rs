// SPDX-License-Identifier: Apache-2.0
//! The black-box suite: everything a client can see, asked over the API and compared to the letter.
//! One binary, because linking one for each file costs more than running them all; every test has a
//! server of its own, so they share nothing but words.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "literals read better in place"
)]

mod applying;
mod hooks;
#[path = "../common/remote.rs"]
mod remote;
mod requests;
mod watching;
mod words;

mod addresses_and_devices;
mod admitted;
mod apply;
mod apply_more;
mod apply_shared;
mod autoscalers;
mod bad_input;
mod beside;
mod cel;
mod collector;
mod confinement;
mod contention;
mod conversion;
mod conversion_more;
mod custom;
mod definitions;
mod delete;
mod discovery;
mod errors;
mod fine_print;
mod first_steps;
mod forms;
mod fourth_reading;
mod health;
mod history;
mod kinds;
mod kinds_more;
mod last_words;
mod letters;
mod likeness;
mod likeness_kinds;
mod likeness_more;
mod lists;
mod mutations;
mod namespaces;
mod openapi;
mod options;
mod parts;
mod patches;
mod policies;
mod quotas;
mod roles;
mod rules_more;
mod sealed;
mod second_reading;
mod side_by_side;
mod simulated;
mod socket;
mod strictness;
mod structure;
mod subresources;
mod tables;
mod third_reading;
mod tokens;
mod transport;
mod watch;
mod watch_forms;
mod watch_more;
mod webhooks;
mod webhooks_https;
mod webhooks_matching;
mod workloads;
