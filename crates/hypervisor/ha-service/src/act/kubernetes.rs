// SPDX-License-Identifier: Apache-2.0
//! What the engine does to objects of the cluster: it takes a host by its maintenance and gives it
//! back, says that it is disabled, marks its node, and stops an eviction that cannot go on. Every
//! change is bound to what was read. Hosts that no cluster knows keep their maintenance here.

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::names::HostName;
use cobaltcore_api::reasons::{HaRecoveryReason, HypervisorDisabledReason};
use cobaltcore_api::taints::HA_FENCED;
use cobaltcore_api::{Eviction, Hypervisor, Maintenance, annotations};
use cobaltcore_ha_engine::{Answer, IncidentId, Refusal, Trouble};
use cobaltcore_kit::status::NewCondition;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{Bounds, Executor, Outcome, named};
use crate::config::EvictionOnTakeover;
use crate::said::{self, FIRST_PAUSE, TRIES};

/// What the operator itself says of a host that is out of scheduling.
const DISABLED: &str = "Hypervisor is disabled";

impl Executor {
    /// The cluster, for a host that it knows.
    fn cluster(&self, host: &HostName) -> Option<&Client> {
        let known = self
            .deps
            .directory
            .get(host)
            .is_some_and(|entry| entry.in_kubernetes);
        self.deps.kubernetes.as_ref().filter(|_| known)
    }

    pub(super) async fn read_maintenance(&self, host: &HostName) -> Outcome {
        let Some(client) = self.cluster(host) else {
            return Ok(Answer::Maintenance(self.deps.local_maintenance.get(host)));
        };
        let hypervisor = hypervisor(client, host).await?;
        Ok(Answer::Maintenance(hypervisor.spec.maintenance))
    }

    pub(super) async fn claim(
        &self,
        host: &HostName,
        expected: &Maintenance,
        incident: Option<&IncidentId>,
        bounds: Bounds<'_>,
    ) -> Outcome {
        let Some(client) = self.cluster(host) else {
            return self.change_locally(host, expected, &Maintenance::Ha);
        };
        let claimed = change_maintenance(client, host, expected, &Maintenance::Ha, bounds).await?;
        let note = format!("incident {} has claimed the host", named(incident));
        say(client, &claimed, HaRecoveryReason::Fencing, note, Disabled::Keep).await;
        Ok(Answer::Done)
    }

    pub(super) async fn restore_maintenance(
        &self,
        host: &HostName,
        value: &Maintenance,
        incident: Option<&IncidentId>,
        bounds: Bounds<'_>,
    ) -> Outcome {
        let Some(client) = self.cluster(host) else {
            return self.change_locally(host, &Maintenance::Ha, value);
        };
        let restored = change_maintenance(client, host, &Maintenance::Ha, value, bounds).await?;
        let note = format!("incident {} has given the host back", named(incident));
        say(
            client,
            &restored,
            HaRecoveryReason::Released,
            note,
            Disabled::Keep,
        )
        .await;
        Ok(Answer::Done)
    }

    fn change_locally(&self, host: &HostName, expected: &Maintenance, value: &Maintenance) -> Outcome {
        match self.deps.local_maintenance.set(host, expected, value) {
            Ok(true) => Ok(Answer::Done),
            Ok(false) => Err(Trouble::Refused(Refusal::Conflict)),
            Err(error) => {
                tracing::error!(%host, %error, "its maintenance cannot be written");
                Err(Trouble::Unknown)
            }
        }
    }

    /// Written only while the host is ours: the operator would take it for its own word and give
    /// the host back to the scheduler.
    pub(super) async fn set_disabled(&self, host: &HostName, incident: Option<&IncidentId>) -> Outcome {
        let Some(client) = self.cluster(host) else {
            return Ok(Answer::Done);
        };
        let hypervisor = hypervisor(client, host).await?;
        if hypervisor.spec.maintenance != Maintenance::Ha {
            return Err(Trouble::Refused(Refusal::Conflict));
        }
        let note = format!("incident {} moves the guests of the host", named(incident));
        let reason = HaRecoveryReason::Evacuating;
        if say(client, &hypervisor, reason, note, Disabled::Set).await {
            Ok(Answer::Done)
        } else {
            Err(Trouble::Unknown)
        }
    }

    pub(super) async fn stop_eviction(&self, host: &HostName) -> Outcome {
        let keep = self.deps.in_force.get().kubernetes.eviction_on_takeover == EvictionOnTakeover::Keep;
        let Some(client) = self.cluster(host).filter(|_| !keep) else {
            return Ok(Answer::Done);
        };
        // Before the claim is there, the operator would make it again.
        if hypervisor(client, host).await?.spec.maintenance != Maintenance::Ha {
            return Err(Trouble::Refused(Refusal::Conflict));
        }
        let evictions: Api<Eviction> = Api::all(client.clone());
        let found = evictions.get_opt(host.as_str()).await;
        let Some(eviction) = found.map_err(|error| trouble(host, "reading its Eviction", &error))? else {
            return Ok(Answer::Done);
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: eviction.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match evictions.delete(host.as_str(), &params).await {
            Ok(_) => Ok(Answer::Done),
            Err(error) => match trouble(host, "deleting its Eviction", &error) {
                Trouble::Refused(Refusal::NotFound) => Ok(Answer::Done),
                trouble => Err(trouble),
            },
        }
    }

    pub(super) async fn mark_node(
        &self,
        host: &HostName,
        incident: Option<&IncidentId>,
    ) -> Result<(), Trouble> {
        let taint = self.deps.in_force.get().fencing.taint;
        let Some(client) = self.deps.kubernetes.as_ref() else {
            return Ok(());
        };
        let incident = named(incident);
        change_node(client, host, |node| {
            let mut taints = taints(node);
            let known = taints.iter().any(is_ours);
            let marked = node.annotations().get(annotations::HA_FENCED.as_str()) == Some(&incident);
            if marked && (known || !taint) {
                return None;
            }
            if taint && !known {
                taints.push(Taint {
                    key: HA_FENCED.key.to_owned(),
                    effect: HA_FENCED.effect.as_str().to_owned(),
                    // For whom it is says the annotation: a value may have 63 letters, and hosts have long names.
                    value: None,
                    time_added: None,
                });
            }
            Some(json!({
                "metadata": {"annotations": {annotations::HA_FENCED.as_str(): incident}},
                "spec": {"taints": taints},
            }))
        })
        .await
    }

    pub(super) async fn unmark_node(&self, host: &HostName) -> Result<(), Trouble> {
        let Some(client) = self.deps.kubernetes.as_ref() else {
            return Ok(());
        };
        change_node(client, host, |node| {
            let mut taints = taints(node);
            let before = taints.len();
            taints.retain(|taint| !is_ours(taint));
            let marked = node.annotations().contains_key(annotations::HA_FENCED.as_str());
            (marked || taints.len() < before).then(|| {
                json!({
                    "metadata": {"annotations": {annotations::HA_FENCED.as_str(): null}},
                    "spec": {"taints": taints},
                })
            })
        })
        .await
    }
}

/// Says where the recovery stands.
async fn say(
    client: &Client,
    hypervisor: &Hypervisor,
    reason: HaRecoveryReason,
    note: String,
    disabled: Disabled,
) -> bool {
    let over = reason == HaRecoveryReason::Released;
    let kind = HypervisorCondition::HaRecovery;
    let stands = NewCondition::new(kind, !over, reason, note);
    let conditions = |found: &Hypervisor| {
        let mut conditions = vec![stands.clone()];
        if disabled == Disabled::Set {
            // The operator would take it for its own word while the host is not ours.
            if found.spec.maintenance != Maintenance::Ha {
                return None;
            }
            let kind = HypervisorCondition::HypervisorDisabled;
            let reason = HypervisorDisabledReason::Succeeded;
            conditions.push(NewCondition::yes(kind, reason, DISABLED));
        }
        Some(conditions)
    };
    match said::say(client, hypervisor, conditions).await {
        Ok(said) => said,
        Err(error) => {
            tracing::warn!(%error, "the conditions of a host are not written");
            false
        }
    }
}

/// Says of a host that is still claimed how far its recovery is.
pub(crate) async fn tell_progress(client: &Client, host: &HostName, reason: HaRecoveryReason, note: String) {
    if let Ok(found) = hypervisor(client, host).await
        && found.spec.maintenance == Maintenance::Ha
    {
        say(client, &found, reason, note, Disabled::Keep).await;
    }
}

/// What becomes of the condition that the host is disabled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disabled {
    /// It is set.
    Set,
    /// It stays as it is.
    Keep,
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == HA_FENCED.key && taint.effect == HA_FENCED.effect.as_str()
}

fn taints(node: &Node) -> Vec<Taint> {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default()
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FieldManager::HaService.as_str().to_owned()),
        ..PatchParams::default()
    }
}

async fn hypervisor(client: &Client, host: &HostName) -> Result<Hypervisor, Trouble> {
    let all: Api<Hypervisor> = Api::all(client.clone());
    let found = all.get(host.as_str()).await;
    found.map_err(|error| trouble(host, "reading its Hypervisor", &error))
}

/// Sets the maintenance if it still is what was expected. Agents write to the object all the time,
/// so a conflict is looked at anew; only another maintenance is an answer.
async fn change_maintenance(
    client: &Client,
    host: &HostName,
    expected: &Maintenance,
    value: &Maintenance,
    bounds: Bounds<'_>,
) -> Result<Hypervisor, Trouble> {
    let all: Api<Hypervisor> = Api::all(client.clone());
    for n in 0..TRIES {
        let found = hypervisor(client, host).await?;
        if found.spec.maintenance != *expected {
            return Err(Trouble::Refused(Refusal::Conflict));
        }
        let patch = json!({
            "metadata": {"resourceVersion": found.resource_version()},
            "spec": {"maintenance": value.to_string()},
        });
        bounds.check()?;
        match all.patch(host.as_str(), &manager(), &Patch::Merge(&patch)).await {
            Ok(changed) => return Ok(changed),
            Err(error) => match trouble(host, "changing its maintenance", &error) {
                Trouble::Refused(Refusal::Conflict) => {}
                trouble => return Err(trouble),
            },
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.saturating_pow(n)).await;
    }
    Err(Trouble::Unknown)
}

/// Changes a node, if there is one and it is not as wanted.
async fn change_node(
    client: &Client,
    host: &HostName,
    wanted: impl Fn(&Node) -> Option<Value>,
) -> Result<(), Trouble> {
    let nodes: Api<Node> = Api::all(client.clone());
    for n in 0..TRIES {
        let found = nodes.get_opt(host.as_str()).await;
        let Some(node) = found.map_err(|error| trouble(host, "reading its Node", &error))? else {
            return Ok(());
        };
        let Some(mut patch) = wanted(&node) else {
            return Ok(());
        };
        patch["metadata"]["resourceVersion"] = json!(node.resource_version());
        match nodes
            .patch(host.as_str(), &manager(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) => match trouble(host, "marking its Node", &error) {
                Trouble::Refused(Refusal::Conflict) => {}
                trouble => return Err(trouble),
            },
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.saturating_pow(n)).await;
    }
    Err(Trouble::Unknown)
}

/// What an answer of the API means to the engine.
fn trouble(host: &HostName, doing: &str, error: &kube::Error) -> Trouble {
    let kube::Error::Api(status) = error else {
        tracing::warn!(%host, %error, "Kubernetes: {doing} failed");
        return Trouble::Unknown;
    };
    match status.code {
        404 | 410 => Trouble::Refused(Refusal::NotFound),
        409 => Trouble::Refused(Refusal::Conflict),
        401 | 403 => {
            tracing::error!(%host, %error, "Kubernetes: {doing} is not allowed; see deploy/ha-service/rbac.yaml");
            Trouble::Refused(Refusal::Unauthorized)
        }
        // Too many requests, or a server that broke on the way.
        429 | 500.. => Trouble::Unknown,
        _ => {
            tracing::warn!(%host, %error, "Kubernetes: {doing} is refused");
            Trouble::Refused(Refusal::Other)
        }
    }
}
