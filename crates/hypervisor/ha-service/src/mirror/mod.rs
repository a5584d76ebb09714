// SPDX-License-Identifier: Apache-2.0
//! Incidents as objects in the cluster, for people and their tools. Whoever leads keeps them equal
//! to the journal. Nothing is ever read back from them: that they are late, missing or changed by
//! somebody has no effect on any decision. Each is written under the version that was read and with
//! the term of its writer, so a leader that was replaced without noticing does not write over its
//! successor.

mod render;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::{HaIncident, HaIncidentSpec, HaIncidentStatus, labels};
use cobaltcore_ha_engine::{Epoch, IncidentId};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use parking_lot::RwLock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::chronicle::Story;
use crate::http::App;
use crate::leadership::pause;
use render::Now;

/// How long changes are gathered before they are written.
const EVERY: Duration = Duration::from_millis(250);
/// After a refusal, nothing is tried for this long.
const REST: Duration = Duration::from_secs(30);
const CALL_TIME: Duration = Duration::from_secs(10);
/// How long objects of incidents that are over stay; the database keeps them longer.
const KEEP: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);

/// The objects there are, by name. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<RwLock<HashMap<String, Arc<HaIncident>>>>);

impl Objects {
    /// The object of an incident, once it was written.
    pub(crate) fn get(&self, id: &IncidentId) -> Option<Arc<HaIncident>> {
        self.0.read().get(&id.to_string()).cloned()
    }
}

/// Keeps the objects of incidents.
pub(crate) struct Mirror {
    app: Arc<App>,
    api: Api<HaIncident>,
    objects: Objects,
    /// What was shown last of each incident: its latest record, and why it is held.
    shown: HashMap<IncidentId, (u64, Now)>,
    /// Whether the objects there are were listed in this term.
    listed: bool,
}

impl Mirror {
    pub(crate) fn new(app: Arc<App>, client: kube::Client, objects: Objects) -> Self {
        Self {
            app,
            api: Api::all(client),
            objects,
            shown: HashMap::new(),
            listed: false,
        }
    }

    /// Keeps them until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut wait = EVERY;
        while !pause(&stop, wait).await {
            wait = EVERY;
            if !self.app.leads() {
                self.shown.clear();
                self.listed = false;
                continue;
            }
            let Err(error) = self.round().await else { continue };
            match refusal(&error) {
                // Somebody else wrote: what there is now is read before anything more is written.
                Some(409) => self.listed = false,
                Some(404) => {
                    tracing::warn!(
                        "incidents are not shown as objects: the cluster does not know HaIncident; apply the output of `cobaltcore crds`"
                    );
                    wait = REST;
                }
                _ => {
                    tracing::warn!(%error, "incidents are not shown as objects; it is tried again");
                    wait = REST;
                }
            }
        }
    }

    async fn round(&mut self) -> kube::Result<()> {
        if !self.listed {
            let all = timed(self.api.list(&ListParams::default())).await?;
            let named = all
                .items
                .into_iter()
                .map(|object| (object.name_any(), Arc::new(object)));
            *self.objects.0.write() = named.collect();
            self.listed = true;
        }
        let Some((term, now)) = self.now().await else {
            return Ok(());
        };
        let mut refused = Ok(());
        for (id, seq) in self.app.chronicle.ends() {
            let here = now.get(&id).cloned().unwrap_or_default();
            let known = self.shown.get(&id);
            // That a fence still holds is no news.
            if known.is_some_and(|(shown, before)| *shown == seq && before.held == here.held) {
                continue;
            }
            let Some(story) = self.app.chronicle.story(&id.to_string()) else {
                continue;
            };
            match self.show(&story, term, &here).await {
                Ok(()) => drop(self.shown.insert(id, (seq, here))),
                // That the cluster does not like one of them does not hide the others.
                Err(error) if concerns_one(&error) => refused = Err(error),
                Err(error) => return Err(error),
            }
        }
        self.forget_old().await?;
        refused
    }

    /// The term of this leader, and what the engine knows besides the journal. Nothing if it leads no more.
    async fn now(&self) -> Option<(Epoch, HashMap<IncidentId, Now>)> {
        let wall = Timestamp::now();
        let told = self.app.brain.ask(move |engine, now| {
            let term = engine.leads()?;
            let ago = |at| now.mono.since(at);
            let held = engine.incidents().into_iter().map(|one| {
                let age = one.hold_checked.map(ago);
                let hold_checked = age.and_then(|age| wall.checked_sub(age).ok());
                let here = Now {
                    held: one.held,
                    hold_checked,
                };
                (one.id, here)
            });
            Some((term, held.collect()))
        });
        told.await.flatten()
    }

    async fn show(&self, story: &Story, term: Epoch, now: &Now) -> kube::Result<()> {
        if over_for(story) > KEEP {
            return Ok(());
        }
        let config = self.app.config();
        let levels: Vec<String> = config
            .fencing
            .fence_levels()
            .into_iter()
            .map(|level| level.name)
            .collect();
        let spec = render::spec(&story.incident);
        let name = story.incident.id.to_string();
        let (status, more) = render::status(story, term, now, &levels);
        self.write(&name, &spec, status).await?;
        for (part, n) in more.into_iter().zip(1..) {
            self.write(&format!("{name}-vms-{n}"), &spec, part).await?;
        }
        Ok(())
    }

    /// Makes one object what it should be; nothing is sent if it is.
    async fn write(&self, name: &str, spec: &HaIncidentSpec, status: HaIncidentStatus) -> kube::Result<()> {
        let there = self.objects.0.read().get(name).cloned();
        let same = there
            .as_ref()
            .and_then(|object| object.status.as_ref())
            .is_some_and(|known| *known == status);
        if same {
            return Ok(());
        }
        let params = PatchParams::apply(FieldManager::HaService.as_ref()).force();
        let known = if let Some(there) = there {
            there
        } else {
            let object = json!({
                "apiVersion": "kvm.cloud.sap/v1alpha1", "kind": "HaIncident",
                "metadata": {"name": name, "labels": {(labels::HYPERVISOR.as_str()): spec.host}},
                "spec": spec,
            });
            Arc::new(timed(self.api.patch(name, &params, &Patch::Apply(object))).await?)
        };
        let object = json!({
            "apiVersion": "kvm.cloud.sap/v1alpha1", "kind": "HaIncident",
            "metadata": {"name": name, "resourceVersion": known.resource_version()}, "status": status,
        });
        let written = timed(self.api.patch_status(name, &params, &Patch::Apply(object))).await;
        match written {
            Ok(object) => {
                self.objects.0.write().insert(name.to_owned(), Arc::new(object));
                Ok(())
            }
            Err(error) => {
                // Somebody deleted it: it is made anew next time.
                self.objects.0.write().remove(name);
                Err(error)
            }
        }
    }

    /// Deletes what has been over for long.
    async fn forget_old(&self) -> kube::Result<()> {
        let old: Vec<String> = self
            .objects
            .0
            .read()
            .values()
            .filter(|object| ended(object).is_some_and(|at| Timestamp::now().duration_since(at) > KEEP))
            .map(|object| object.name_any())
            .collect();
        for name in old {
            match timed(self.api.delete(&name, &DeleteParams::default())).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
            self.objects.0.write().remove(&name);
        }
        Ok(())
    }
}

/// The code of a refusal.
fn refusal(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether it is this object that the cluster does not like, and not the writer or the moment.
fn concerns_one(error: &kube::Error) -> bool {
    matches!(refusal(error), Some(400 | 413 | 422))
}

/// How long an incident has been over.
fn over_for(story: &Story) -> jiff::SignedDuration {
    if story.incident.state.open() {
        jiff::SignedDuration::ZERO
    } else {
        Timestamp::now().duration_since(story.updated_at())
    }
}

/// When the incident of an object ended, if it did.
fn ended(object: &HaIncident) -> Option<Timestamp> {
    let conditions = &object.status.as_ref()?.conditions;
    let open = conditions.iter().find(|condition| condition.type_ == "Open")?;
    (open.status == "False").then_some(open.last_transition_time.0)
}

async fn timed<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(CALL_TIME, call).await.unwrap_or_else(|_| {
        Err(kube::Error::Service(
            format!("no answer within {CALL_TIME:?}").into(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_refused_does_not_hide_the_others() {
        let refused = |code| {
            let status = kube::core::Status::failure("no", "no").with_code(code);
            concerns_one(&kube::Error::Api(status.boxed()))
        };
        for code in [400, 413, 422] {
            assert!(refused(code), "{code}");
        }
        for code in [401, 403, 404, 409, 429, 500, 503] {
            assert!(!refused(code), "{code}");
        }
        assert!(!concerns_one(&kube::Error::Service("no answer".into())));
    }
}
