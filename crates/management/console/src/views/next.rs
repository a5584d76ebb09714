// SPDX-License-Identifier: Apache-2.0
//! What happens next with a host, who does it, why, and what comes after. Read from what the roles wrote down: the phase
//! and the conditions of the host, its eviction, and its incident.

use cobaltcore_api::{Hypervisor, Maintenance};

use super::evictions::Progress;
use super::incidents::Row;
use super::{Tone, condition, phase, tone};

/// The next step, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Who does what.
    pub what: String,
    /// Why.
    pub why: Vec<String>,
    /// What comes after it, or what a person has to do.
    pub then: String,
}

impl Next {
    fn new(what: impl Into<String>, why: Vec<String>, then: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into_iter().filter(|text| !text.is_empty()).collect(),
            then: then.into(),
        }
    }

    /// The next step of a host. Recovery goes before everything, emptying before the phase.
    pub(crate) fn of(host: &Hypervisor, eviction: Option<&Progress>, incident: Option<&Row>) -> Self {
        if let Some(incident) = incident.filter(|incident| incident.open) {
            return recovery(incident);
        }
        if condition(host, "HaRecovery").is_some_and(|condition| condition.status == "True") {
            return Self::new(
                "The HA service recovers the guests of this host elsewhere.",
                vec![said(host, "HaRecovery")],
                "Once they run, somebody repairs the host and releases it.",
            );
        }
        eviction
            .and_then(|eviction| emptying(host, eviction))
            .unwrap_or_else(|| by_phase(host))
    }
}

fn recovery(incident: &Row) -> Next {
    let why = vec![
        format!(
            "Incident {}: {} since {}.",
            incident.id, incident.kind, incident.opened
        ),
        incident
            .held
            .map(|why| format!("It is held: {why}."))
            .unwrap_or_default(),
    ];
    let (what, then) = match incident.state {
        "Recovered" => (
            "Nothing by itself: it stays off until a person takes it back.".to_owned(),
            "Repair the host, then release it on the page of the incident.",
        ),
        "Releasing" => (
            "The HA service takes the host back.".to_owned(),
            "When its agent, libvirt and nova-compute are well, it takes servers again.",
        ),
        state => (
            format!(
                "The HA service recovers this host ({state}): {}.",
                incident.guests.words()
            ),
            "Once they run, somebody repairs the host and releases it.",
        ),
    };
    Next::new(what, why, then)
}

/// What an eviction means for its host; an eviction that ended well means something as long as it is kept.
fn emptying(host: &Hypervisor, eviction: &Progress) -> Option<Next> {
    let because = match eviction.reason.as_str() {
        "" => format!("Eviction {}.", eviction.name),
        reason => format!("Eviction {}: “{reason}”.", eviction.name),
    };
    let in_maintenance = !host.spec.maintenance.is_off();
    let after = if in_maintenance {
        "It stays out of scheduling until maintenance is ended."
    } else {
        "It stays out of scheduling until the eviction is removed."
    };
    Some(match eviction.state.as_str() {
        "Succeeded" if in_maintenance => return None,
        "Succeeded" => Next::new("Nothing: it is empty.", vec![because], after),
        "Failed" => Next::new(
            "Nothing by itself: it could not be emptied.",
            vec![because, eviction.message.clone()],
            "Look at what is stuck, then try the eviction again or remove it.",
        ),
        "Pending" => Next::new(
            "The operator checks whether this host may be emptied, then begins.",
            vec![because],
            after,
        ),
        _ => {
            let moving = eviction.moving.len();
            let stuck = match eviction.stuck.len() {
                0 => String::new(),
                count => format!("{count} of them cannot be moved; somebody should look."),
            };
            Next::new(
                format!(
                    "The operator moves its guests away: {} of {} are gone, {moving} on their way.",
                    eviction.done, eviction.total
                ),
                vec![because, stuck],
                after,
            )
        }
    })
}

fn by_phase(host: &Hypervisor) -> Next {
    match phase(host) {
        "Active" if tone(host) == Tone::Good => {
            Next::new("Nothing: it carries guests and takes new ones.", vec![], "")
        }
        "Active" => Next::new(
            "Nothing by itself: it carries guests, but somebody should look.",
            troubles(host),
            "What is wrong is among the conditions below; it takes guests again when they are well.",
        ),
        "Initial" => Next::new(
            "The operator waits for the compute service of this host to appear in Nova.",
            vec![said(host, "Onboarding")],
            "Then it is prepared and proven with a test server.",
        ),
        "Onboarding" | "Testing" => Next::new(
            "The operator prepares it and proves it with a test server.",
            vec![said(host, "Onboarding")],
            "When the test passes it gets its aggregates and traits and is Active.",
        ),
        "Ready" => Next::new(
            "The operator puts it into its aggregates and traits.",
            vec!["Its tests passed.".into()],
            "Then it is Active.",
        ),
        "Aborted" => Next::new(
            "Nothing happens by itself: onboarding ended without success.",
            vec![said(host, "Onboarding")],
            "Repair what is named, then onboard it again.",
        ),
        "Evicting" => Next::new(
            "The operator moves its guests away.",
            vec![maintained(host), said(host, "Evicting")],
            "It stays out of scheduling until maintenance is ended.",
        ),
        "Maintenance" => Next::new(
            "Nothing: it stays out of scheduling until maintenance is ended.",
            vec![maintained(host), said(host, "HypervisorDisabled")],
            "The operator gives it back to scheduling once it is healthy.",
        ),
        "Decommissioned" => Next::new(
            "Nothing: it has left OpenStack and its Node may go.",
            vec![said(host, "Offboarded")],
            "",
        ),
        _ => Next::new(
            "Nobody has said yet where it is in its life.",
            vec![],
            "The operator does when it looks after it.",
        ),
    }
}

/// Who wants maintenance and why.
fn maintained(host: &Hypervisor) -> String {
    match (&host.spec.maintenance, host.spec.maintenance_reason.as_str()) {
        (Maintenance::Off, _) => String::new(),
        (wish, "") => format!("Maintenance: {wish}."),
        (wish, reason) => format!("Maintenance: {wish}, “{reason}”."),
    }
}

/// What a condition says, as a sentence.
fn said(host: &Hypervisor, type_: &str) -> String {
    let text = condition(host, type_).map_or("", |condition| condition.message.as_str());
    match text.trim_end_matches('.') {
        "" => String::new(),
        text => format!("{text}."),
    }
}

/// The conditions that make a host worth a look, each as a sentence.
fn troubles(host: &Hypervisor) -> Vec<String> {
    let conditions = host.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| super::tone_of_condition(&condition.type_, &condition.status) >= Tone::Warn)
        .map(|condition| {
            let text = condition.message.trim_end_matches('.');
            let text = if text.is_empty() { &condition.reason } else { text };
            format!("{} is {}: {text}.", condition.type_, condition.status)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::samples::host;
    use serde_json::{Value, json};

    fn progress(state: &str) -> Progress {
        Progress {
            name: "evict-a".into(),
            host: "a".into(),
            reason: "new fans".into(),
            state: state.into(),
            tone: Tone::Busy,
            done: 2,
            total: 5,
            left: String::new(),
            age: String::new(),
            message: "two servers cannot be moved".into(),
            moving: Vec::new(),
            waiting: Vec::new(),
            stuck: Vec::new(),
            may_retry: false,
        }
    }

    fn of(status: &Value, eviction: Option<&Progress>) -> Next {
        Next::of(&host("a", "z", "b", status), eviction, None)
    }

    #[test]
    fn an_eviction_explains_a_host_that_is_out_of_scheduling() {
        let status = json!({"phase": "Active"});
        let next = of(&status, Some(&progress("Running")));
        assert_eq!(
            next.what,
            "The operator moves its guests away: 2 of 5 are gone, 0 on their way."
        );
        assert_eq!(next.why, ["Eviction evict-a: “new fans”."]);
        assert_eq!(
            next.then,
            "It stays out of scheduling until the eviction is removed."
        );
        assert_eq!(
            of(&status, Some(&progress("Succeeded"))).what,
            "Nothing: it is empty."
        );
        assert_eq!(
            of(&status, Some(&progress("Failed")))
                .why
                .last()
                .map(String::as_str),
            Some("two servers cannot be moved")
        );
    }

    #[test]
    fn what_is_wrong_with_an_active_host_is_named() {
        let at = "2026-01-01T00:00:00Z";
        let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "R", "message": message, "lastTransitionTime": at});
        let status = json!({"phase": "Active", "conditions": [
            condition("NodePressure", "True", "the disk is full."), condition("HaEnabled", "True", "fine")]});
        let next = of(&status, None);
        assert_eq!(next.why, ["NodePressure is True: the disk is full."]);
        assert_eq!(of(&json!({"phase": "Active"}), None).why, [""; 0]);
    }

    #[test]
    fn every_phase_has_a_next_step() {
        for phase in [
            "Initial",
            "Onboarding",
            "Testing",
            "Ready",
            "Active",
            "Aborted",
            "Evicting",
            "Maintenance",
            "Decommissioned",
        ] {
            let next = of(&json!({"phase": phase}), None);
            assert!(next.what.ends_with('.'), "{phase}: {next:?}");
            assert!(!next.what.starts_with("Nobody"), "{phase}: {next:?}");
        }
        assert!(of(&json!({}), None).what.starts_with("Nobody"));
    }
}
