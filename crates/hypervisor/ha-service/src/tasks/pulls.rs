// SPDX-License-Identifier: Apache-2.0
//! One task per source that is pulled, for the sources of the configuration in force. A source that
//! did not change keeps what it remembers when others do.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Pull;
use crate::http::App;
use crate::sources::pull::Puller;

/// Pulls until `stop`.
pub async fn keep(app: Arc<App>, stop: CancellationToken) {
    let mut changes = app.in_force.changes();
    let mut running: HashMap<String, (Pull, AbortOnDropHandle<()>)> = HashMap::new();
    loop {
        let wanted = changes.borrow_and_update().sources.pull.clone();
        running.retain(|name, (pull, _)| wanted.iter().any(|w| w.name == *name && w == pull));
        for pull in wanted {
            if running.contains_key(&pull.name) {
                continue;
            }
            match Puller::new(pull.clone(), Arc::clone(&app)) {
                Ok(puller) => {
                    let task = tokio::spawn(puller.run(stop.child_token()));
                    running.insert(pull.name.clone(), (pull, AbortOnDropHandle::new(task)));
                }
                Err(error) => tracing::error!(source = pull.name, %error, "a source cannot be pulled"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}
