// SPDX-License-Identifier: Apache-2.0
//! How this replica comes to lead and ceases to: over a Lease among several, at once when it is
//! the only one. The loop is told; the executor can give leadership up.

use std::sync::Arc;

use tokio::sync::Notify;

/// The wish to give leadership up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    resign: Arc<Notify>,
}

impl Leadership {
    /// Gives leadership up; another replica takes over.
    pub fn resign(&self) {
        self.resign.notify_one();
    }

    /// Waits until somebody wants leadership given up.
    pub async fn resigned(&self) {
        self.resign.notified().await;
    }
}
