// SPDX-License-Identifier: Apache-2.0
//! Which hosts are covered, and saying so on their Hypervisor objects. The decision is the common
//! table; the gate in front of it shows a host that could not be protected before it takes guests.
//! Only whoever leads writes, and only what changes.

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
use crate::tasks::fences::FenceChecks;

const EVERY: Duration = Duration::from_secs(1);
const CALL_TIME: Duration = Duration::from_secs(10);

/// What is known of a host besides its object.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether its agent was heard lately.
    pub agent: bool,
    /// Whether its fencing device works and is its own; an error says what is wrong.
    pub fence: Option<Result<(), String>>,
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
    if let Some(cause) = unmet(gate, seen) {
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

fn unmet(gate: HaGate, seen: &Seen) -> Option<String> {
    if seen.ambiguous {
        return Some("two compute services of Nova fit this host; remove the one that is wrong".into());
    }
    if gate == HaGate::Spec {
        return None;
    }
    if !seen.agent {
        return Some("no heartbeat of its HA agent; is it running, and may it speak for this host?".into());
    }
    if gate == HaGate::Agent {
        return None;
    }
    match &seen.fence {
        Some(Ok(())) => None,
        Some(Err(why)) => Some(format!("it could not be fenced: {why}")),
        None => Some("its fencing device was not checked yet".into()),
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
    Seen {
        agent: app.heard.fresh(host, 2 * app.config().agents.silent_after.0),
        fence: checks.of(host, &entry.machine),
        ambiguous: entry.ambiguous,
        legacy: entry.legacy,
    }
}

fn cause(hypervisor: &Hypervisor, gate: HaGate, seen: &Seen) -> String {
    match cover(hypervisor) {
        Some(cover) if !cover.is_on() => cover.message().to_owned(),
        Some(cover) => unmet(gate, seen).unwrap_or_else(|| match seen.legacy {
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
