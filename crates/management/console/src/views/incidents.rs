// SPDX-License-Identifier: Apache-2.0
//! The list of incidents, and what one of them is about in words: how far it got, what spoke against the host, what
//! people may decide now, and where each guest stands. The story itself is told by [`super::timeline`].

use askama::Template;
use cobaltcore_ha_engine::{
    Decision, Group, HeldReason, IncidentKind, IncidentState, Verdict, VmProgress, VmRecord,
};
use cobaltcore_ha_wire::rest::{GuestSummary, IncidentDetail, IncidentSummary, Signal};
use jiff::Timestamp;

use super::timeline::{self, Step};
use super::{Tone, ago, moment, span};
use crate::fleet::Known;
use crate::session::Allowed;

/// All incidents.
#[derive(Debug, Template)]
#[template(path = "incidents.html")]
pub struct Incidents {
    /// Whether there is a service to ask.
    pub configured: bool,
    /// Whether the list was seen.
    pub complete: bool,
    /// Open ones first.
    pub rows: Vec<Row>,
    /// Pauses in force.
    pub pauses: Vec<PauseRow>,
    /// Whether the person who looks may decide.
    pub may_decide: bool,
}

/// One incident in a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// The host.
    pub host: String,
    /// What it is about.
    pub kind: &'static str,
    /// Where it stands.
    pub state: &'static str,
    /// How it is doing.
    pub tone: Tone,
    /// Why it does not go on.
    pub held: Option<&'static str>,
    /// Guests.
    pub guests: Guests,
    /// Since when.
    pub opened: String,
    /// The same in full.
    pub opened_at: String,
    /// Whether there is still something to do.
    pub open: bool,
}

/// How the guests of an incident stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guests {
    /// All of them.
    pub total: usize,
    /// Run elsewhere.
    pub recovered: usize,
    /// Failed, or wait for a person.
    pub troubled: usize,
    /// Left alone.
    pub skipped: usize,
}

impl Guests {
    fn of(summary: GuestSummary) -> Self {
        Self {
            total: summary.total,
            recovered: summary.recovered,
            troubled: summary.failed + summary.blocked,
            skipped: summary.skipped,
        }
    }

    /// In one line.
    pub fn words(self) -> String {
        if self.total == 0 {
            return "no guest is planned yet".into();
        }
        let mut text = format!("{} of {} guests run again elsewhere", self.recovered, self.total);
        if self.troubled > 0 {
            text.push_str(&format!(", {} need a person", self.troubled));
        }
        if self.skipped > 0 {
            text.push_str(&format!(", {} left alone", self.skipped));
        }
        text
    }
}

/// A pause in force.
#[derive(Debug)]
pub struct PauseRow {
    /// The scope as the service calls it.
    pub scope: String,
    /// Where, in words.
    pub place: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// How much longer.
    pub left: String,
}

impl Row {
    /// The row of an incident.
    pub fn of(incident: &IncidentSummary, now: Timestamp) -> Self {
        Self {
            id: incident.id.clone(),
            host: incident.host.to_string(),
            kind: kind(incident.kind),
            state: word(incident.state),
            tone: tone(incident.state, incident.held),
            held: incident.held.map(held),
            guests: Guests::of(incident.guests),
            opened: ago(now, incident.opened_at),
            opened_at: moment(incident.opened_at),
            open: incident.open,
        }
    }
}

impl Incidents {
    /// The page.
    pub fn of(known: &Known, allowed: Allowed, now: Timestamp) -> Self {
        let incidents = &known.incidents;
        let pauses = incidents.pauses.iter().map(|pause| PauseRow {
            place: place(&pause.scope),
            scope: pause.scope.clone(),
            reason: pause.reason.clone(),
            actor: pause.actor.clone(),
            left: span(pause.until.as_second().saturating_sub(now.as_second())),
        });
        Self {
            configured: incidents.configured,
            complete: incidents.complete,
            rows: incidents
                .list
                .iter()
                .map(|incident| Row::of(incident, now))
                .collect(),
            pauses: pauses.collect(),
            may_decide: allowed.change_hypervisors,
        }
    }
}

/// The scope of a pause in words.
fn place(scope: &str) -> String {
    match scope.split_once('/') {
        None if scope == "global" => "everywhere".into(),
        Some(("zone", name)) => format!("in zone {name}"),
        Some(("bb", name)) => format!("in building block {name}"),
        Some(("host", name)) => format!("on {name}"),
        Some(("vm", name)) => format!("for server {name}"),
        _ => scope.to_owned(),
    }
}

/// One incident.
#[derive(Debug, Template)]
#[template(path = "incident.html")]
pub struct Incident {
    /// What a list shows.
    pub row: Row,
    /// Who opened it.
    pub opened_by: String,
    /// What happens next, or who must do what.
    pub next: String,
    /// The way from failure to return, with where it stands.
    pub way: Vec<Stage>,
    /// What people may decide now: word on the wire, and on the button.
    pub actions: Vec<(&'static str, &'static str)>,
    /// What was known when it was opened.
    pub evidence: Vec<Accusation>,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// The guests.
    pub vms: Vec<Vm>,
    /// Whether the person who looks may decide.
    pub may_decide: bool,
}

/// A stage on the way.
#[derive(Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Behind us.
    pub done: bool,
    /// Where we are.
    pub here: bool,
}

/// What one group of signals says of a host.
#[derive(Debug)]
pub struct Accusation {
    /// Who speaks.
    pub who: &'static str,
    /// What it says in a word.
    pub verdict: &'static str,
    /// How that is for the host.
    pub tone: Tone,
    /// Since when there is no sign of life.
    pub silent: String,
    /// In words.
    pub says: String,
}

/// A guest of the incident.
#[derive(Debug)]
pub struct Vm {
    /// Its UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands, in a word.
    pub state: &'static str,
    /// How it is doing.
    pub tone: Tone,
    /// More precisely.
    pub text: String,
    /// How often it was asked for.
    pub attempt: u32,
    /// Its priority.
    pub priority: u16,
}

impl Incident {
    /// The page of an incident, if its details are known.
    pub fn of(known: &Known, id: &str, allowed: Allowed, now: Timestamp) -> Option<Self> {
        let detail: &IncidentDetail = known.incidents.details.get(id)?;
        Some(Self {
            row: Row::of(&detail.summary, now),
            opened_by: detail.opened_by.clone(),
            next: sentence(&detail.next),
            way: way(detail),
            actions: detail.actions.iter().map(|action| words(*action)).collect(),
            evidence: detail.signals.iter().map(accusation).collect(),
            steps: timeline::steps(detail),
            vms: detail.vms.iter().map(vm).collect(),
            may_decide: allowed.change_hypervisors,
        })
    }
}

/// What the service says in passing, as a sentence of its own.
fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let Some(first) = letters.next() else {
        return String::new();
    };
    let whole: String = first.to_uppercase().chain(letters).collect();
    if whole.ends_with(['.', '!', '?']) {
        whole
    } else {
        whole + "."
    }
}

/// The way of an incident; where it ended differently, that end is the last stage.
fn way(detail: &IncidentDetail) -> Vec<Stage> {
    use IncidentState as S;
    let state = detail.summary.state;
    let mut stages = vec![S::Confirmed, S::Fencing, S::Fenced, S::Evacuating];
    match state {
        S::Cancelled => stages = vec![S::Confirmed, S::Cancelled],
        S::Failed => stages.push(S::Failed),
        S::Closed => stages.push(S::Closed),
        _ => stages.extend([S::Recovered, S::Releasing, S::Released]),
    }
    let at = stages
        .iter()
        .position(|stage| *stage == state)
        .unwrap_or_default();
    stages
        .into_iter()
        .enumerate()
        .map(|(index, stage)| Stage {
            name: word(stage),
            done: index < at,
            here: index == at,
        })
        .collect()
}

/// Where an incident stands, in a word.
fn word(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Confirmed => "Confirmed",
        IncidentState::Fencing => "Fencing",
        IncidentState::Fenced => "Fenced",
        IncidentState::Evacuating => "Evacuating",
        IncidentState::Recovered => "Recovered",
        IncidentState::Failed => "Failed",
        IncidentState::Releasing => "Releasing",
        IncidentState::Released => "Released",
        IncidentState::Cancelled => "Cancelled",
        IncidentState::Closed => "Closed",
    }
}

fn kind(kind: IncidentKind) -> &'static str {
    match kind {
        IncidentKind::HostDown => "host down",
        IncidentKind::HostRebooted => "rebooted, compute service missing",
        IncidentKind::Isolated => "host isolated",
        IncidentKind::Hung => "host hung",
        IncidentKind::OperatorRequested => "asked for by a person",
    }
}

fn tone(state: IncidentState, held: Option<HeldReason>) -> Tone {
    match state {
        IncidentState::Released | IncidentState::Cancelled | IncidentState::Closed => Tone::Off,
        IncidentState::Failed => Tone::Bad,
        _ if held.is_some() => Tone::Warn,
        IncidentState::Recovered => Tone::Good,
        IncidentState::Confirmed => Tone::Bad,
        IncidentState::Fencing
        | IncidentState::Fenced
        | IncidentState::Evacuating
        | IncidentState::Releasing => Tone::Busy,
    }
}

/// Why an incident does not go on, in words.
pub(crate) fn held(reason: HeldReason) -> &'static str {
    match reason {
        HeldReason::Paused => "recovery is paused",
        HeldReason::Storm => "too many hosts fail at once",
        HeldReason::DomainLimit => "too many hosts of one failure domain fail",
        HeldReason::HostsInFlight => "other hosts are recovered first",
        HeldReason::SelfIsolated => "the HA service itself may be cut off",
        HeldReason::WarmUp => "the HA service has just started and looks around",
        HeldReason::PlannedMaintenance => "somebody works on this host",
        HeldReason::AwaitingApproval => "a person has to approve",
        HeldReason::IdentityMismatch => "the fencing device is not this host's",
        HeldReason::FenceFailed => "the host could not be fenced",
        HeldReason::FenceLost => "the host came back in spite of the fence",
        HeldReason::NovaUnavailable => "Nova does not do what is asked",
        HeldReason::VmListIncomplete => "Nova does not list all guests",
        HeldReason::NoCapacity => "its guests would find no room",
        HeldReason::OperatorCleared => "somebody ended the maintenance",
        HeldReason::HaDisabled => "HA is off for this host",
        HeldReason::KubernetesRefuses => "Kubernetes does not do what is asked",
        HeldReason::NotReturned => "the host does not come back into service",
    }
}

/// A decision: its word on the wire, and on a button.
pub(crate) fn words(decision: Decision) -> (&'static str, &'static str) {
    match decision {
        Decision::AckFenced => ("ack-fenced", "It is off, I looked…"),
        Decision::Approve => ("approve", "Approve…"),
        Decision::Abort => ("abort", "Abort…"),
        Decision::Retry => ("retry", "Try again…"),
        Decision::Release => ("release", "Release the host…"),
        Decision::Close => ("close", "Close…"),
    }
}

/// Who a group of signals is.
pub(crate) fn speaker(group: Group) -> &'static str {
    match group {
        Group::A => "HA agent",
        Group::N => "Nova compute service",
        Group::K => "Kubernetes node",
        Group::P => "probes of the HA service",
        Group::Q => "probes of other hosts",
        Group::M => "monitoring",
        Group::S => "storage",
        Group::B => "power",
        Group::W => "watchdog",
    }
}

fn accusation(signal: &Signal) -> Accusation {
    let (verdict, tone) = match signal.verdict {
        Verdict::Alive => ("alive", Tone::Good),
        Verdict::KernelOnly => ("kernel only", Tone::Warn),
        Verdict::Unknown => ("unknown", Tone::Off),
        Verdict::Dead if signal.untrusted => ("not believed", Tone::Off),
        Verdict::Dead => ("dead", Tone::Bad),
    };
    Accusation {
        who: speaker(signal.group),
        verdict,
        tone,
        silent: signal
            .age_ms
            .map(|ms| span(i64::try_from(ms / 1000).unwrap_or(i64::MAX)))
            .unwrap_or_default(),
        says: signal.says.clone(),
    }
}

fn vm(record: &VmRecord) -> Vm {
    let (state, tone, mut text) = progress(&record.progress);
    if let Some(said) = &record.said {
        text = format!("{text}: {said}");
    }
    Vm {
        id: record.server.to_string(),
        name: record.name.clone(),
        state,
        tone,
        text,
        attempt: record.attempt,
        priority: record.priority,
    }
}

/// Where a guest stands: in a word, how that is, and more precisely.
pub(crate) fn progress(progress: &VmProgress) -> (&'static str, Tone, String) {
    match progress {
        VmProgress::Pending => ("waiting", Tone::Off, String::new()),
        VmProgress::Requested => ("requested", Tone::Busy, "Nova is asked to evacuate it".into()),
        VmProgress::InFlight { migration } => {
            ("moving", Tone::Busy, format!("Nova's migration {}", migration.0))
        }
        VmProgress::Verifying { destination } => ("verifying", Tone::Busy, format!("on {destination}")),
        VmProgress::Recovered { destination } => ("recovered", Tone::Good, format!("on {destination}")),
        VmProgress::Failed { reason } => ("failed", Tone::Bad, format!("{reason:?}")),
        VmProgress::Skipped { reason } => ("left alone", Tone::Off, format!("{reason:?}")),
        VmProgress::Blocked { reason } => ("blocked", Tone::Warn, format!("{reason:?}")),
        VmProgress::Conflict { seen_on } => ("conflict", Tone::Bad, format!("it runs on {seen_on}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_told_with_what_went_wrong() {
        let words = |total, recovered, failed, skipped, blocked| {
            Guests::of(GuestSummary {
                total,
                recovered,
                failed,
                skipped,
                blocked,
                stuck: 0,
            })
            .words()
        };
        assert_eq!(words(0, 0, 0, 0, 0), "no guest is planned yet");
        assert_eq!(words(5, 2, 0, 0, 0), "2 of 5 guests run again elsewhere");
        assert_eq!(
            words(5, 2, 1, 1, 1),
            "2 of 5 guests run again elsewhere, 2 need a person, 1 left alone"
        );
    }

    #[test]
    fn what_is_held_needs_a_look_and_what_is_over_does_not() {
        let table = [
            (IncidentState::Evacuating, None, Tone::Busy),
            (IncidentState::Evacuating, Some(HeldReason::Paused), Tone::Warn),
            (IncidentState::Failed, Some(HeldReason::Paused), Tone::Bad),
            (IncidentState::Recovered, None, Tone::Good),
            (IncidentState::Released, None, Tone::Off),
        ];
        for (state, held, wanted) in table {
            assert_eq!(tone(state, held), wanted, "{state:?} {held:?}");
        }
    }

    #[test]
    fn scopes_are_told_in_words() {
        assert_eq!(place("global"), "everywhere");
        assert_eq!(place("host/node1"), "on node1");
        assert_eq!(place("something/else"), "something/else");
    }
}
