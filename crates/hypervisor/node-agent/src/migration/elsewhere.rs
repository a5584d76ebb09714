// SPDX-License-Identifier: Apache-2.0
//! Where a server is that left while nobody watched, as far as other hosts say so. The host that the migration names is
//! asked; where none is named, all of them are, in small portions and rarely: a fleet is large and the agent is not.

use std::time::Duration;

use cobaltcore_api::Hypervisor;
use kube::api::{Api, ListParams};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::context::Context;

const CALL_TIME: Duration = Duration::from_secs(10);
/// Hypervisors looked at together.
const PORTION: u32 = 20;
/// Between two looks at all of them.
const PAUSE: Duration = Duration::from_mins(1);

/// Looks for one server on other hosts.
pub(super) struct Elsewhere {
    api: Api<Hypervisor>,
    own: String,
    server: String,
    looked: Option<Instant>,
}

impl Elsewhere {
    pub(super) fn new(context: &Context, server: Uuid) -> Self {
        Self {
            api: Api::all(context.client.clone()),
            own: context.config.host.to_string(),
            server: server.to_string(),
            looked: None,
        }
    }

    /// Whether the server runs on `host`, or on any other host when that is empty. No answer is no.
    pub(super) async fn has(&mut self, host: &str) -> bool {
        if host == self.own {
            return false;
        }
        if !host.is_empty() {
            let found = timeout(CALL_TIME, self.api.get_opt(host)).await;
            return matches!(found, Ok(Ok(Some(hypervisor))) if self.runs_at(&hypervisor));
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return false;
        }
        self.looked = Some(Instant::now());
        self.anywhere().await
    }

    async fn anywhere(&self) -> bool {
        let mut params = ListParams::default().limit(PORTION);
        loop {
            let Ok(Ok(portion)) = timeout(CALL_TIME, self.api.list(&params)).await else {
                return false;
            };
            if portion.items.iter().any(|hypervisor| self.runs_at(hypervisor)) {
                return true;
            }
            match portion.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return false,
            }
        }
    }

    fn runs_at(&self, hypervisor: &Hypervisor) -> bool {
        let here = hypervisor.metadata.name.as_deref() == Some(self.own.as_str());
        let mut instances = hypervisor.status.iter().flat_map(|status| &status.instances);
        !here && instances.any(|instance| instance.active && instance.id == self.server)
    }
}
