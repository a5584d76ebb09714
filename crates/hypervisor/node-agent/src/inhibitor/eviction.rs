// SPDX-License-Identifier: Apache-2.0
//! The Eviction of a shutdown: created once, found again if it is there already, and watched until it ends.

use std::time::Duration;

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::names::HostName;
use cobaltcore_api::reasons::EvictingReason;
use cobaltcore_api::{Eviction, EvictionSpec, EvictionState};
use cobaltcore_kit::status::find;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::decide::EvictionView;
use crate::context::Seen;
use crate::error::{Error, in_time};
use crate::host::BootId;

const REASON: &str = "kvm-node-agent: emergency evacuation due to host reboot";
const CALL_TIME: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);

/// The Eviction of the shutdown under way.
pub(super) struct Evacuation {
    api: Api<Eviction>,
    host: HostName,
    boot: Option<BootId>,
    watched: Option<Watched>,
}

struct Watched {
    views: watch::Receiver<EvictionView>,
    _task: AbortOnDropHandle<()>,
}

impl Evacuation {
    pub(super) fn new(client: kube::Client, host: HostName, boot: Option<BootId>) -> Self {
        Self {
            api: Api::all(client),
            host,
            boot,
            watched: None,
        }
    }

    pub(super) fn view(&self) -> EvictionView {
        self.watched
            .as_ref()
            .map_or(EvictionView::Absent, |watched| *watched.views.borrow())
    }

    pub(super) fn forget(&mut self) {
        self.watched = None;
    }

    /// Returns when the view changed.
    pub(super) async fn changed(&mut self) {
        if let Some(watched) = &mut self.watched
            && watched.views.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Makes sure that an Eviction exists which has not ended, and watches it.
    pub(super) async fn create(&mut self, hypervisor: Seen) -> Result<(), Error> {
        let Some(hypervisor) = hypervisor else {
            return Err(Error::kube(
                format!("creating an Eviction for {}", self.host),
                kube::Error::Api(
                    kube::core::Status::failure("there is no Hypervisor", "NotFound")
                        .with_code(404)
                        .boxed(),
                ),
            ));
        };
        let owner = OwnerReference {
            controller: None,
            block_owner_deletion: None,
            ..hypervisor.owner_ref(&()).unwrap_or_default()
        };
        let mut name = self.host.to_string();
        let mut found = self.create_or_get(&name, owner.clone()).await?;
        // One that ended belongs to an earlier shutdown.
        if view_of(&found) != EvictionView::Running
            && let Some(boot) = &self.boot
        {
            name = format!("{name}-{}", boot.short());
            found = self.create_or_get(&name, owner).await?;
        }
        tracing::info!(eviction = name, "waiting for the guests to be moved away");
        let (views, receiver) = watch::channel(view_of(&found));
        let version = found.metadata.resource_version.clone().unwrap_or_default();
        let task = tokio::spawn(follow(self.api.clone(), name, version, views));
        self.watched = Some(Watched {
            views: receiver,
            _task: AbortOnDropHandle::new(task),
        });
        Ok(())
    }

    async fn create_or_get(&self, name: &str, owner: OwnerReference) -> Result<Eviction, Error> {
        let mut eviction = Eviction::new(
            name,
            EvictionSpec {
                hypervisor: self.host.to_string(),
                reason: REASON.to_owned(),
                ..EvictionSpec::default()
            },
        );
        eviction.metadata.owner_references = Some(vec![owner]);
        let what = format!("creating Eviction {name}");
        match in_time(
            &what,
            CALL_TIME,
            self.api.create(&PostParams::default(), &eviction),
        )
        .await
        {
            Err(Error::Kube { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 409) => {
                in_time(&format!("reading Eviction {name}"), CALL_TIME, self.api.get(name)).await
            }
            answer => answer,
        }
    }
}

/// Keeps `views` current until the Eviction ends or nobody looks any more.
async fn follow(api: Api<Eviction>, name: String, mut version: String, views: watch::Sender<EvictionView>) {
    let selector = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        if let Ok(stream) = api.watch(&selector, &version).await {
            let mut stream = stream.boxed();
            while let Some(Ok(event)) = stream.next().await {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        show(&views, view_of(&object));
                    }
                    // Somebody removed it: it is created again.
                    WatchEvent::Deleted(_) => show(&views, EvictionView::Absent),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => break,
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
        match in_time("reading the Eviction", CALL_TIME, api.get(&name)).await {
            Ok(object) => {
                version = object.metadata.resource_version.clone().unwrap_or_default();
                show(&views, view_of(&object));
            }
            Err(Error::Kube { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) =>
            {
                show(&views, EvictionView::Absent);
            }
            Err(error) => tracing::warn!(%error, "cannot follow the Eviction"),
        }
    }
}

fn show(views: &watch::Sender<EvictionView>, view: EvictionView) {
    views.send_if_modified(|now| std::mem::replace(now, view) != view);
}

/// How far an Eviction is. The condition is what the running operators write, the word what ours adds.
fn view_of(eviction: &Eviction) -> EvictionView {
    let Some(status) = &eviction.status else {
        return EvictionView::Running;
    };
    let evicting = find(&status.conditions, EvictionCondition::Evicting);
    let reason =
        |reason: EvictingReason| evicting.is_some_and(|condition| condition.reason == reason.as_str());
    let over = evicting.is_some_and(|condition| condition.status == "False");
    match &status.eviction_state {
        Some(EvictionState::Succeeded) => EvictionView::Succeeded,
        Some(EvictionState::Failed) => EvictionView::Failed,
        _ if over && reason(EvictingReason::Succeeded) => EvictionView::Succeeded,
        _ if reason(EvictingReason::Failed) => EvictionView::Failed,
        _ => EvictionView::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_eviction_ends_by_its_word_or_by_its_condition() {
        let evicting = |status: &str, reason: &str| {
            json!({"conditions": [{"type": "Evicting", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let table = [
            (json!({}), EvictionView::Running),
            (json!({"evictionState": "Pending"}), EvictionView::Running),
            (json!({"evictionState": "Succeeded"}), EvictionView::Succeeded),
            (json!({"evictionState": "Failed"}), EvictionView::Failed),
            (json!({"evictionState": "SomethingNew"}), EvictionView::Running),
            (evicting("True", "Running"), EvictionView::Running),
            (evicting("True", "Succeeded"), EvictionView::Running),
            (evicting("False", "Succeeded"), EvictionView::Succeeded),
            (evicting("False", "Failed"), EvictionView::Failed),
            (evicting("True", "Failed"), EvictionView::Failed),
        ];
        for (status, view) in table {
            let eviction: Eviction = serde_json::from_value(json!({
                "apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": "n"},
                "spec": {"hypervisor": "n", "reason": "r"}, "status": status.clone()}))
            .unwrap();
            assert_eq!(view_of(&eviction), view, "{status}");
        }
    }
}
