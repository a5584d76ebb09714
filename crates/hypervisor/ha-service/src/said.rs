// SPDX-License-Identifier: Apache-2.0
//! What this service says of hosts on their Hypervisor objects, all of it under one field manager. An apply gives up what
//! it leaves out, so each carries every condition of ours, as it is to be or as it was read; one that was read too early is
//! refused by the API and made anew.

use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_kit::status::{ConditionStatus, Intent, NewCondition, find, owned_fields};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

/// How often a change is tried that somebody else was faster with.
pub(crate) const TRIES: u32 = 10;
/// The first pause between tries; it doubles.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// What this service ever says of a host.
const OURS: [HypervisorCondition; 3] = [
    HypervisorCondition::HaEnabled,
    HypervisorCondition::HaRecovery,
    HypervisorCondition::HypervisorDisabled,
];

/// Has the object say what `said` makes of it, which is looked at anew whenever somebody else was faster. Whether it
/// says so now: not if `said` has nothing to say of what was found.
pub(crate) async fn say(
    client: &Client,
    read: &Hypervisor,
    said: impl Fn(&Hypervisor) -> Option<Vec<NewCondition>>,
) -> Result<bool, kube::Error> {
    let all: Api<Hypervisor> = Api::all(client.clone());
    let name = read.name_any();
    let params = PatchParams::apply(FieldManager::HaService.as_str()).force();
    let mut current = read.clone();
    let mut pause = FIRST_PAUSE;
    let mut tries = 1;
    loop {
        let Some(said) = said(&current) else {
            return Ok(false);
        };
        let before = serde_json::to_value(&current).map_err(kube::Error::SerdeError)?;
        let status = intent(&current, said).status(&before, Timestamp::now());
        if says(&current, &before, &status) {
            return Ok(true);
        }
        let apply = json!({
            "apiVersion": Hypervisor::api_version(&()),
            "kind": Hypervisor::kind(&()),
            "metadata": {"name": name, "resourceVersion": current.resource_version()},
            "status": status,
        });
        match all.patch_status(&name, &params, &Patch::Apply(&apply)).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(refused)) if refused.code == 409 && tries < TRIES => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        (pause, tries) = (pause * 2, tries + 1);
        current = all.get(&name).await?;
    }
}

/// Everything of ours: what is new, and what is there.
fn intent(current: &Hypervisor, said: Vec<NewCondition>) -> Intent {
    let conditions = current.status.as_ref().map(|status| status.conditions.as_slice());
    let there = |kind: HypervisorCondition| {
        let found = find(conditions.unwrap_or_default(), kind)?;
        owns(current, kind).then(|| as_it_is(found))
    };
    let kept = OURS.into_iter().filter_map(there);
    // A later one of the same type replaces an earlier one.
    kept.chain(said).fold(Intent::new(), Intent::condition)
}

fn as_it_is(condition: &Condition) -> NewCondition {
    let status = match condition.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    NewCondition::new(&condition.type_, status, &condition.reason, &condition.message)
}

/// What we own of the status, as the API keeps book of it.
fn owned(current: &Hypervisor) -> Option<Value> {
    let entry = current.managed_fields().iter().find(|entry| {
        entry.manager.as_deref() == Some(FieldManager::HaService.as_str())
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    });
    owned_fields(entry?).map(std::borrow::Cow::into_owned)
}

fn owns(current: &Hypervisor, kind: HypervisorCondition) -> bool {
    let key = format!("k:{}", json!({"type": kind.as_ref()}));
    owned(current).is_some_and(|owned| owned["f:status"]["f:conditions"].get(key).is_some())
}

/// Whether the object says yes to this, in our name.
pub(crate) fn affirmed(current: &Hypervisor, kind: HypervisorCondition) -> bool {
    let conditions = current.status.as_ref().map(|status| status.conditions.as_slice());
    let found = find(conditions.unwrap_or_default(), kind);
    found.is_some_and(|found| found.status == "True") && owns(current, kind)
}

/// Whether the object says all of `status` already, in our name.
fn says(current: &Hypervisor, before: &Value, status: &Value) -> bool {
    let there = before["status"]["conditions"].as_array();
    let said = |wanted: &Value| {
        let same = |found: &Value| {
            let part = |key: &str| found[key] == wanted[key];
            part("type") && part("status") && part("reason") && part("message")
        };
        there.is_some_and(|conditions| conditions.iter().any(same))
    };
    let wanted = status["conditions"].as_array();
    owned(current).is_some() && wanted.is_none_or(|wanted| wanted.iter().all(said))
}
