// SPDX-License-Identifier: Apache-2.0
//! Which hosts are covered, and saying so on their Hypervisor objects. The decision is the common
//! table; the gate in front of it shows a host that could not be protected before it takes guests. A host that passed the
//! gate stays covered when it dies. Only whoever leads writes, and only what changes.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition::HaEnabled;
use cobaltcore_api::ha::{Cover, cover};
use cobaltcore_api::names::HostName;
use cobaltcore_api::reasons::HaEnabledReason;
use cobaltcore_kit::status::NewCondition;
use cobaltcore_kit::watched::Watched;
use kube::ResourceExt as _;
use tokio_util::sync::CancellationToken;

use crate::config::HaGate;
use crate::directory::HostEntry;
use crate::http::App;
use crate::leadership::pause;
use crate::said;
use crate::tasks::fences::{Fence, FenceChecks};

const EVERY: Duration = Duration::from_secs(1);
const CALL_TIME: Duration = Duration::from_secs(10);

/// What is known of a host besides its object.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether its agent was heard lately.
    pub agent: bool,
    /// Whether that was after its fencing device was looked at.
    pub outlived: bool,
    /// What is known of its fencing device.
    pub fence: Fence,
    /// Two services of Nova fit it.
    pub ambiguous: bool,
    /// What the legacy call said.
    pub legacy: Option<bool>,
}

/// What is to be said of a host; nothing before its onboarding has begun.
pub fn decide(hypervisor: &Hypervisor, gate: HaGate, seen: &Seen) -> Option<(bool, NewCondition)> {
    let cover = cover(hypervisor)?;
    if !cover.is_on() {
        return Some((false, condition(cover)));
    }
    if let Some(cause) = unmet(hypervisor, gate, seen) {
        return Some((
            false,
            NewCondition::unknown(HaEnabled, HaEnabledReason::Failed, cause),
        ));
    }
    if seen.legacy == Some(false) {
        let off = NewCondition::no(
            HaEnabled,
            HaEnabledReason::Succeeded,
            "HA was switched off by a call of the operator",
        );
        return Some((false, off));
    }
    Some((true, condition(cover)))
}

fn condition(cover: Cover) -> NewCondition {
    NewCondition::new(HaEnabled, cover.is_on(), cover.reason(), cover.message())
}

/// What keeps a host from being covered. One that is covered already has passed the gate: that it is silent now, and its
/// device with it, is what it is covered for, and a look that nobody had yet says nothing against it. It is turned out
/// by what is known to be wrong while it lives, and when another machine takes its name.
fn unmet(hypervisor: &Hypervisor, gate: HaGate, seen: &Seen) -> Option<String> {
    if seen.ambiguous {
        return Some("two compute services of Nova fit this host; remove the one that is wrong".into());
    }
    if gate == HaGate::Spec {
        return None;
    }
    let covered = said::affirmed(hypervisor, HaEnabled);
    if !seen.agent && !covered {
        return Some("no heartbeat of its HA agent; is it running, and may it speak for this host?".into());
    }
    if gate == HaGate::Agent {
        return None;
    }
    match &seen.fence {
        Fence::Works => None,
        Fence::Replaced => {
            Some("it is another machine than before, whose fencing device is checked first".into())
        }
        Fence::Unchecked if covered => None,
        Fence::Unchecked => Some("its fencing device was not checked yet".into()),
        // It may have been dying as its device was looked at.
        Fence::Fails(_) if covered && !(seen.agent && seen.outlived) => None,
        Fence::Fails(why) => Some(format!("it could not be fenced: {why}")),
    }
}

/// Keeps `HaEnabled` right, until `stop`.
pub async fn keep(
    app: Arc<App>,
    hypervisors: Watched<Hypervisor>,
    client: kube::Client,
    checks: FenceChecks,
    stop: CancellationToken,
) {
    while !pause(&stop, EVERY).await {
        let gate = app.config().ha_gate;
        for hypervisor in hypervisors.all() {
            let Ok(host) = HostName::new(hypervisor.name_any()) else {
                continue;
            };
            let Some(entry) = app.directory.get(&host) else {
                continue;
            };
            let seen = look(&app, &host, &entry, &checks);
            let Some((enabled, _)) = decide(&hypervisor, gate, &seen) else {
                continue;
            };
            app.directory.change_known(&host, |entry| {
                entry.ha_enabled = enabled;
                entry.ha_reason = cause(&hypervisor, gate, &seen);
            });
            if app.leads() {
                write(&client, &hypervisor, gate, &seen).await;
            }
        }
    }
}

fn look(app: &App, host: &HostName, entry: &HostEntry, checks: &FenceChecks) -> Seen {
    let outlived = checks.age(host).is_some_and(|age| app.heard.fresh(host, age));
    Seen {
        agent: app.heard.fresh(host, 2 * app.config().agents.silent_after.0),
        outlived,
        fence: checks.of(host, &entry.machine),
        ambiguous: entry.ambiguous,
        legacy: entry.legacy,
    }
}

fn cause(hypervisor: &Hypervisor, gate: HaGate, seen: &Seen) -> String {
    match cover(hypervisor) {
        Some(cover) if !cover.is_on() => cover.message().to_owned(),
        Some(cover) => unmet(hypervisor, gate, seen).unwrap_or_else(|| match seen.legacy {
            Some(false) => "switched off by a call of the operator".to_owned(),
            _ => cover.message().to_owned(),
        }),
        None => "its onboarding has not begun".to_owned(),
    }
}

async fn write(client: &kube::Client, hypervisor: &Hypervisor, gate: HaGate, seen: &Seen) {
    let call = said::say(client, hypervisor, |found| {
        let (_, said) = decide(found, gate, seen)?;
        Some(vec![said])
    });
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(host = hypervisor.name_any(), %error, "HaEnabled cannot be written"),
        Err(_) => tracing::warn!(
            host = hypervisor.name_any(),
            "HaEnabled cannot be written: no answer"
        ),
    }
}

#[cfg(test)]
mod tests {
    use cobaltcore_api::field_managers::FieldManager;
    use serde_json::{Value, json};

    use super::*;

    /// A host that has proved itself, with what the object says of its cover, and who says it.
    fn host(wanted: bool, said: Option<(&str, &str)>) -> Hypervisor {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Succeeded", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let mut conditions = vec![condition("Onboarding", "False")];
        let mut managed = Value::Null;
        if let Some((status, manager)) = said {
            conditions.push(condition("HaEnabled", status));
            managed = json!([{
                "manager": manager, "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"HaEnabled\"}": {}}}},
            }]);
        }
        serde_json::from_value(json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": "n1", "managedFields": managed},
            "spec": {"highAvailability": wanted}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    const US: &str = FieldManager::HaService.as_str();

    fn fences() -> [Fence; 4] {
        [
            Fence::Unchecked,
            Fence::Works,
            Fence::Fails("no answer".into()),
            Fence::Replaced,
        ]
    }

    /// Whether it is covered, for each thing that may be known of its device.
    fn covered(hypervisor: &Hypervisor, gate: HaGate, agent: bool) -> [bool; 4] {
        fences().map(|fence| {
            let seen = Seen {
                agent,
                outlived: agent,
                fence,
                ..Seen::default()
            };
            let (enabled, said) = decide(hypervisor, gate, &seen).unwrap();
            let wanted = if enabled {
                condition(Cover::On)
            } else {
                let cause = unmet(hypervisor, gate, &seen).unwrap();
                NewCondition::unknown(HaEnabled, HaEnabledReason::Failed, cause)
            };
            assert_eq!(said, wanted, "the condition says the same");
            enabled
        })
    }

    #[test]
    fn the_gate_is_in_front_of_the_cover() {
        use HaGate::{Agent, AgentAndFence, Spec};
        let no = [false; 4];
        let yes = [true; 4];
        // Columns: device unchecked, works, fails, another machine's.
        let works = [false, true, false, false];
        for said in [
            None,
            Some(("False", US)),
            Some(("Unknown", US)),
            Some(("True", "somebody-else")),
        ] {
            let host = host(true, said);
            for (gate, agent, wanted) in [
                (Spec, false, yes),
                (Agent, false, no),
                (Agent, true, yes),
                (AgentAndFence, false, no),
                (AgentAndFence, true, works),
            ] {
                assert_eq!(
                    covered(&host, gate, agent),
                    wanted,
                    "{said:?} {gate:?} heard: {agent}"
                );
            }
        }
    }

    #[test]
    fn a_look_at_the_device_of_a_host_that_was_dying_says_nothing_against_it() {
        let decided = |outlived| {
            let seen = Seen {
                agent: true,
                outlived,
                fence: Fence::Fails("no answer".into()),
                ..Seen::default()
            };
            decide(&host(true, Some(("True", US))), HaGate::AgentAndFence, &seen)
                .unwrap()
                .0
        };
        assert_eq!((decided(false), decided(true)), (true, false));
    }

    #[test]
    fn a_host_that_is_covered_stays_so_when_it_dies_or_was_not_looked_at_yet() {
        use HaGate::{Agent, AgentAndFence, Spec};
        let host = host(true, Some(("True", US)));
        let yes = [true; 4];
        // Columns: device unchecked, works, fails, another machine's.
        for (gate, agent, wanted) in [
            (Spec, false, yes),
            (Agent, false, yes),
            (Agent, true, yes),
            (AgentAndFence, false, [true, true, true, false]),
            (AgentAndFence, true, [true, true, false, false]),
        ] {
            assert_eq!(covered(&host, gate, agent), wanted, "{gate:?} heard: {agent}");
        }
    }

    #[test]
    fn what_people_and_nova_say_counts_at_once() {
        let on = host(true, Some(("True", US)));
        for agent in [false, true] {
            let seen = Seen {
                agent,
                ..Seen::default()
            };
            let off = |host: &Hypervisor, seen: &Seen| !decide(host, HaGate::AgentAndFence, seen).unwrap().0;
            assert!(off(&host(false, Some(("True", US))), &seen));
            let twice = Seen {
                ambiguous: true,
                ..seen.clone()
            };
            assert!(off(&on, &twice));
            let switched = Seen {
                legacy: Some(false),
                ..seen.clone()
            };
            assert!(off(&on, &switched));
            assert!(!off(&on, &seen));
        }
    }
}
