// SPDX-License-Identifier: Apache-2.0
//! Inner controllers: what a cluster does by itself. They read the store's indexes directly, react
//! to commits at once, and act through the same handlers as clients do.

pub mod owners;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::api::Api;

/// Starts the inner controllers.
pub fn spawn(_api: &Arc<Api>, _tasks: &mut JoinSet<()>) {}
