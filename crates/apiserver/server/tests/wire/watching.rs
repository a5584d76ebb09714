// SPDX-License-Identifier: Apache-2.0
//! What the tests of watches share.

use std::time::Duration;

use cobaltcore_apiserver::testkit::{Caller, Events};

use crate::words::{brief, rv};

/// Where ConfigMaps are.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Long enough to believe that nothing comes.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

/// The present revision.
pub(crate) async fn revision(caller: &Caller) -> u64 {
    rv(&caller.get(MAPS).await.body)
}

/// The next event in brief.
pub(crate) async fn next(events: &mut Events) -> String {
    brief(&events.expect().await)
}
