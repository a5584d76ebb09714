// SPDX-License-Identifier: Apache-2.0
//! Requests, each with the reasons for which it is refused.

use cobaltcore_api::conditions::EvictionCondition;
use cobaltcore_api::conditions::HypervisorCondition::Onboarding;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::{EvictingReason, OnboardingReason};
use cobaltcore_api::{Eviction, Hypervisor, Maintenance, annotations, labels};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Desk, Refused, failed};
use crate::seen::{LookAtHypervisor as _, Seen, eviction_condition};

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The eviction to follow, if there is one.
    pub eviction: Option<String>,
    /// What was done, in one sentence.
    pub note: String,
}

/// How a host is to be emptied.
#[derive(Clone, Debug, Default)]
pub struct Evict {
    /// Why.
    pub reason: String,
    /// Servers moved at the same time.
    pub max_parallel: Option<i64>,
}

fn no(text: impl Into<String>) -> Refused {
    Refused::No(text.into())
}

/// Empties a host.
pub async fn evict(desk: &Desk, host: &str, how: &Evict) -> Result<Asked, Refused> {
    let hypervisor = desk.hypervisor(host).await?;
    let evictions: Api<Eviction> = Api::all(desk.client.clone());
    match &hypervisor.spec.maintenance {
        Maintenance::Off => {}
        Maintenance::Ha => {
            return Err(no(format!(
                "{host} is being recovered by the HA service; wait until it is done"
            )));
        }
        mode => {
            return Ok(Asked {
                eviction: Some(host.to_owned()),
                note: format!("{host} is in maintenance ({mode}) and is being emptied for it already"),
            });
        }
    }
    if !hypervisor.is_registered() {
        return Err(no(format!(
            "{host} is not registered in Nova, so no server can be on it"
        )));
    }
    let name = format!("evict-{host}");
    let what = format!("reading Eviction {name}");
    if let Some(there) = failed(&what, evictions.get_opt(&name).await)? {
        return again(&evictions, &there, host).await;
    }
    let object = eviction(&name, &hypervisor, how);
    let params = PostParams {
        field_manager: Some(FieldManager::CommandLine.into()),
        ..PostParams::default()
    };
    let created = evictions.create(&params, &object).await;
    failed(&format!("creating Eviction {name}"), created)?;
    Ok(Asked {
        note: format!("Eviction {name} created; delete it to return {host} to scheduling"),
        eviction: Some(name),
    })
}

/// An eviction that is there already is followed, started again, or in the way.
async fn again(evictions: &Api<Eviction>, there: &Eviction, host: &str) -> Result<Asked, Refused> {
    let name = there.name_any();
    let ended = eviction_condition(there, EvictionCondition::Evicting).filter(Seen::is_false);
    let note = match ended.map(|seen| EvictingReason::parse(seen.reason)) {
        None => format!("Eviction {name} is under way already"),
        Some(Some(EvictingReason::Failed)) => {
            let stamp = Timestamp::now().to_string();
            let retry = json!({"metadata": {"annotations": {annotations::RETRY.as_str(): stamp}}});
            let patched = evictions.patch(&name, &params(), &Patch::Merge(retry)).await;
            failed(&format!("changing Eviction {name}"), patched)?;
            format!("Eviction {name} had failed and starts again")
        }
        Some(_) => {
            return Err(no(format!(
                "Eviction {name} has emptied {host} already; `kubectl delete eviction.kvm.cloud.sap {name}` returns the host"
            )));
        }
    };
    Ok(Asked {
        eviction: Some(name),
        note,
    })
}

fn eviction(name: &str, hypervisor: &Hypervisor, how: &Evict) -> Eviction {
    let inherited = labels::INHERITED
        .iter()
        .filter_map(|key| Some((key.as_str().to_owned(), hypervisor.label(key)?.to_owned())));
    let mut eviction = Eviction::new(
        name,
        cobaltcore_api::EvictionSpec {
            hypervisor: hypervisor.name_any(),
            reason: how.reason.clone(),
            max_parallel: how.max_parallel,
            ..cobaltcore_api::EvictionSpec::default()
        },
    );
    eviction.metadata.labels = Some(inherited.collect());
    eviction
}

/// Takes a host out of scheduling and empties it.
pub async fn enter_maintenance(desk: &Desk, host: &str, reason: &str) -> Result<Asked, Refused> {
    if reason.trim().is_empty() {
        return Err(no(
            "Say why with --reason; the next person on call will want to know",
        ));
    }
    let spec = json!({"maintenance": "manual", "maintenanceReason": reason.trim()});
    change(desk, host, may_enter, &json!({"spec": spec})).await?;
    Ok(Asked {
        eviction: Some(host.to_owned()),
        note: format!("{host} goes into maintenance; `cobaltcore maintenance leave {host}` ends it"),
    })
}

fn may_enter(hypervisor: &Hypervisor) -> Result<(), String> {
    let (host, spec) = (hypervisor.name_any(), &hypervisor.spec);
    match &spec.maintenance {
        Maintenance::Off => {}
        Maintenance::Termination => {
            return Err(format!("{host} is leaving for good and is being emptied already"));
        }
        Maintenance::Ha => {
            return Err(format!(
                "{host} is being recovered by the HA service; wait until it is done"
            ));
        }
        mode => {
            let why = match spec.maintenance_reason.as_str() {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            return Err(format!("{host} is in maintenance already ({mode}{why})"));
        }
    }
    if hypervisor.is(Onboarding) {
        return Err(format!(
            "{host} is being onboarded; wait until it is done, or switch spec.lifecycleEnabled off"
        ));
    }
    Ok(())
}

/// Returns a host to scheduling.
pub async fn leave_maintenance(desk: &Desk, host: &str) -> Result<Asked, Refused> {
    let patch = json!({
        "metadata": {"annotations": {annotations::MAINTENANCE_SET_BY.as_str(): null}},
        "spec": {"maintenance": "", "maintenanceReason": null},
    });
    change(desk, host, may_leave, &patch).await?;
    Ok(Asked {
        eviction: None,
        note: format!("{host} leaves maintenance and takes servers again"),
    })
}

fn may_leave(hypervisor: &Hypervisor) -> Result<(), String> {
    let host = hypervisor.name_any();
    match &hypervisor.spec.maintenance {
        Maintenance::Off => Err(format!("{host} is not in maintenance")),
        Maintenance::Termination => Err(format!(
            "{host} is leaving for good; a termination cannot be taken back"
        )),
        Maintenance::Ha => Err(format!(
            "{host} is being recovered by the HA service, which ends this itself"
        )),
        _ => Ok(()),
    }
}

/// Starts onboarding again.
pub async fn retry_onboarding(desk: &Desk, host: &str) -> Result<Asked, Refused> {
    let stamp = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {annotations::RESTART_ONBOARDING.as_str(): stamp}}});
    change(desk, host, may_retry, &patch).await?;
    Ok(Asked {
        eviction: None,
        note: format!("Onboarding of {host} starts again"),
    })
}

fn may_retry(hypervisor: &Hypervisor) -> Result<(), String> {
    let host = hypervisor.name_any();
    if !hypervisor.spec.lifecycle_enabled {
        return Err(format!(
            "The lifecycle of {host} is not managed; label its Node with {}",
            labels::LIFECYCLE
        ));
    }
    if hypervisor.spec.maintenance == Maintenance::Termination {
        return Err(format!("{host} is leaving for good"));
    }
    match hypervisor.onboarding() {
        Some((_, OnboardingReason::Aborted)) => Ok(()),
        Some((_, OnboardingReason::Succeeded)) => Err(format!("{host} is onboarded already")),
        Some((true, reason)) => Err(format!(
            "{host} is being onboarded ({reason}); watch it with `cobaltcore hypervisors`"
        )),
        _ if !hypervisor.is_registered() => Err(format!(
            "{host} is not registered in Nova yet; see that nova-compute runs there"
        )),
        _ => Err(format!("The onboarding of {host} begins by itself")),
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FieldManager::CommandLine.into()),
        ..PatchParams::default()
    }
}

/// How often a request is looked at anew because somebody wrote to the host in between.
const TRIES: usize = 8;

/// Changes a hypervisor if `allowed` says so. The change is pinned to what was looked at, and
/// looked at anew when somebody else was faster: agents write all the time.
async fn change(
    desk: &Desk,
    host: &str,
    allowed: fn(&Hypervisor) -> Result<(), String>,
    patch: &Value,
) -> Result<(), Refused> {
    let mut patch = patch.clone();
    for _ in 0..TRIES {
        let hypervisor = desk.hypervisor(host).await?;
        allowed(&hypervisor).map_err(no)?;
        patch["metadata"]["resourceVersion"] = json!(hypervisor.resource_version());
        let outcome = desk.all().patch(host, &params(), &Patch::Merge(&patch)).await;
        match failed(&format!("changing Hypervisor {host}"), outcome) {
            Err(Refused::Failed(error)) if error.is_conflict() => {}
            outcome => return outcome.map(drop),
        }
    }
    Err(no(format!("{host} keeps changing; look at it and try again")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hypervisor(spec: &Value, onboarding: Option<(&str, &str)>) -> Hypervisor {
        let conditions: Vec<Value> = onboarding
            .iter()
            .map(|(status, reason)| json!({"type": "Onboarding", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": spec, "status": {"numInstances": 0, "conditions": conditions}})).unwrap()
    }

    #[test]
    fn refusals_are_sentences_that_help() {
        let mode = |mode: &str| hypervisor(&json!({"maintenance": mode, "maintenanceReason": "disk"}), None);
        assert_eq!(may_enter(&mode("")), Ok(()));
        assert_eq!(
            may_enter(&mode("manual")).unwrap_err(),
            "n1 is in maintenance already (manual: disk)"
        );
        assert!(
            may_enter(&mode("termination"))
                .unwrap_err()
                .contains("leaving for good")
        );
        assert!(may_enter(&mode("ha")).unwrap_err().contains("HA service"));
        assert!(
            may_enter(&hypervisor(&json!({}), Some(("True", "Testing"))))
                .unwrap_err()
                .contains("being onboarded")
        );
        assert_eq!(may_leave(&mode("")).unwrap_err(), "n1 is not in maintenance");
        assert_eq!(may_leave(&mode("auto")), Ok(()));
        assert!(may_leave(&mode("ha")).is_err() && may_leave(&mode("termination")).is_err());
        let plain = json!({});
        assert_eq!(may_retry(&hypervisor(&plain, Some(("False", "Aborted")))), Ok(()));
        for (status, reason, part) in [
            ("False", "Succeeded", "onboarded already"),
            ("True", "Testing", "being onboarded (Testing)"),
        ] {
            let text = may_retry(&hypervisor(&plain, Some((status, reason)))).unwrap_err();
            assert!(text.contains(part), "{text}");
        }
        assert!(
            may_retry(&hypervisor(&plain, None))
                .unwrap_err()
                .contains("nova-compute")
        );
        assert!(
            may_retry(&hypervisor(&json!({"lifecycleEnabled": false}), None))
                .unwrap_err()
                .contains("node-hypervisor-lifecycle")
        );
    }
}
