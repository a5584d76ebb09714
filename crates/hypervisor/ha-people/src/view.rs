// SPDX-License-Identifier: Apache-2.0
//! Incidents and pauses as text: a table of all, and everything about one. Pure functions of what
//! the service said and of the time.

use cobaltcore_ha_engine::{Decision, Loss, Verdict, VmProgress, VmRecord};
use cobaltcore_ha_wire::rest::{BulkAnswer, HostEvidence, IncidentDetail, IncidentSummary, Pause, Signal};
use jiff::Timestamp;

use crate::timeline::{kebab, progress_words, words};

/// How much of each incident is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// What fits a terminal.
    Usual,
    /// Everything worth a column.
    Wide,
}

/// What a decision does, in a few words.
fn decision_effect(decision: Decision) -> &'static str {
    match decision {
        Decision::AckFenced => "you have seen that the host is off, and sign for it",
        Decision::Approve => "go on in spite of what holds it now",
        Decision::Abort => {
            "stop; what was moved stays moved, and the host is left alone until it is heard again"
        }
        Decision::Retry => "try the guests again that failed, and look anew at those that do not arrive",
        Decision::Release => "switch the repaired host on and take it back",
        Decision::Close => "it is over; the host is not taken back, and left alone until it is heard again",
    }
}

/// Incidents as a table, one per line.
pub fn table(incidents: &[IncidentSummary], width: Width, now: Timestamp) -> String {
    let mut head = vec!["INCIDENT", "HOST", "TYPE", "STATE", "HELD", "DONE", "AGE"];
    if width == Width::Wide {
        head.extend(["FAILED", "SKIPPED", "BLOCKED", "OPENED", "UPDATED"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for incident in incidents {
        let guests = &incident.guests;
        let mut row = vec![
            incident.id.clone(),
            incident.host.to_string(),
            kebab(&incident.kind),
            format!("{:?}", incident.state),
            incident
                .held
                .map(|reason| format!("{reason:?}"))
                .unwrap_or_default(),
            format!("{}/{}", guests.recovered, guests.total),
            ago(incident.opened_at, now),
        ];
        if width == Width::Wide {
            row.extend([
                guests.failed.to_string(),
                guests.skipped.to_string(),
                guests.blocked.to_string(),
                second(incident.opened_at),
                second(incident.updated_at),
            ]);
        }
        rows.push(row);
    }
    if incidents.is_empty() {
        return "No open incident. `cobaltcore incidents list --all` shows those that are over.".to_owned();
    }
    aligned(&rows)
}

/// Pauses as a table.
pub fn pauses(pauses: &[Pause], now: Timestamp) -> String {
    if pauses.is_empty() {
        return "Nothing is paused.".to_owned();
    }
    let mut rows = vec![["SCOPE", "FOR", "BY", "WHY"].map(str::to_owned).to_vec()];
    for pause in pauses {
        let left = human(seconds_between(now, pause.until));
        rows.push(vec![
            pause.scope.clone(),
            left,
            pause.actor.clone(),
            pause.reason.clone(),
        ]);
    }
    aligned(&rows)
}

/// Everything about one incident.
pub fn detail(incident: &IncidentDetail, width: Width, now: Timestamp) -> String {
    let summary = &incident.summary;
    let guests = &summary.guests;
    let mut lines = vec![format!(
        "Incident {}: {} of {}",
        summary.id,
        kebab(&summary.kind),
        summary.host
    )];
    let held = summary
        .held
        .map(|reason| format!(", HELD for {reason:?}"))
        .unwrap_or_default();
    lines.push(format!("State    {:?}{held}", summary.state));
    lines.push(format!(
        "Opened   {} ({} ago) by {}",
        second(summary.opened_at),
        ago(summary.opened_at, now),
        incident.opened_by
    ));
    lines.push(format!(
        "Guests   {} of {} recovered, {} failed, {} left alone, {} waiting for a person",
        guests.recovered, guests.total, guests.failed, guests.skipped, guests.blocked
    ));
    if guests.stuck > 0 {
        lines.push(format!(
            "Stuck    {} have been on their way for too long",
            guests.stuck
        ));
    }
    if let Some(previous) = incident
        .previous_maintenance
        .as_deref()
        .filter(|text| !text.is_empty())
    {
        lines.push(format!(
            "Before   the host was in maintenance {previous}, and gets it back"
        ));
    }
    lines.push(format!("Next     {}", incident.next));
    for (n, action) in incident.actions.iter().enumerate() {
        let label = if n == 0 { "You may " } else { "        " };
        let word = action.as_str();
        lines.push(format!(
            "{label} cobaltcore incidents {word} {} --confirm {} --reason ...   ({})",
            summary.id,
            summary.host,
            decision_effect(*action)
        ));
    }
    lines.push(String::new());
    lines.push("EVIDENCE when it was opened".to_owned());
    lines.push(evidence(&incident.signals));
    if !incident.vms.is_empty() {
        lines.push(String::new());
        lines.push(guests_table(incident, width));
    }
    lines.push(String::new());
    lines.push("TIMELINE".to_owned());
    let first = incident
        .journal
        .first()
        .map_or(summary.opened_at, |record| record.at);
    for record in &incident.journal {
        let after = human(seconds_between(first, record.at));
        lines.push(format!(
            "  {}  +{after:<5} {}",
            second(record.at),
            words(&record.entry)
        ));
    }
    lines.join("\n")
}

/// Why a host is judged as it is: what every signal says, every rule, and the one that blocks.
pub fn explained(host: &HostEvidence) -> String {
    let suspect = if host.suspect { ", suspected" } else { "" };
    let mut lines = vec![
        format!("Host {}: {}{suspect}", host.name, kebab(&host.assessment)),
        format!("So      {}", host.summary),
    ];
    if let Some(rule) = &host.blocked_by {
        lines.push(format!("Because {rule}"));
    }
    lines.extend([String::new(), "SIGNALS".to_owned(), evidence(&host.signals)]);
    lines.extend([String::new(), "RULES for taking it for dead".to_owned()]);
    let rows = host.rules.iter().map(|rule| {
        let met = if rule.passed { "  met" } else { "  not met" };
        vec![met.to_owned(), rule.rule.clone(), rule.because.clone()]
    });
    lines.push(aligned(&rows.collect::<Vec<_>>()));
    lines.join("\n")
}

/// What became of a decision about many incidents, or would.
pub fn bulk(answer: &BulkAnswer) -> String {
    if answer.results.is_empty() {
        return "No incident fits.".to_owned();
    }
    let good = if answer.committed {
        "taken"
    } else {
        "would be taken"
    };
    let mut rows = vec![["INCIDENT", "RESULT"].map(str::to_owned).to_vec()];
    for result in &answer.results {
        let said = match &result.refused {
            Some(why) => format!("refused: {why}"),
            None => good.to_owned(),
        };
        rows.push(vec![result.incident.clone(), said]);
    }
    let mut text = aligned(&rows);
    if !answer.committed {
        text.push_str("\n\nNothing was done. Say --commit to have it done.");
    }
    text
}

fn evidence(signals: &[Signal]) -> String {
    let told = |signal: &&Signal| signal.verdict != Verdict::Unknown || !signal.says.is_empty();
    let rows: Vec<Vec<String>> = signals
        .iter()
        .filter(told)
        .map(|signal| {
            let age = signal
                .age_ms
                .map(|ms| format!("{} s", ms / 1000))
                .unwrap_or_default();
            let distrust = if signal.untrusted {
                " (not believed: too many hosts at once)"
            } else {
                ""
            };
            vec![
                format!("  {:?}", signal.group),
                format!("{:?}", signal.verdict).to_ascii_lowercase(),
                age,
                format!("{}{distrust}", signal.says),
            ]
        })
        .collect();
    if rows.is_empty() {
        "  none was recorded".to_owned()
    } else {
        aligned(&rows)
    }
}

fn guests_table(incident: &IncidentDetail, width: Width) -> String {
    let mut head = vec!["GUEST", "NAME", "PRIORITY", "TRIES", "WHERE IT STANDS"];
    if width == Width::Wide {
        head.extend(["WAS", "GROUP", "MIB"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for vm in &incident.vms {
        let mut row = vec![
            vm.server.to_string(),
            vm.name.clone(),
            vm.priority.to_string(),
            vm.attempt.to_string(),
            standing(vm),
        ];
        if width == Width::Wide {
            row.extend([kebab(&vm.original), vm.group.clone(), vm.memory_mib.to_string()]);
        }
        rows.push(row);
    }
    aligned(&rows)
}

/// Where a guest stands, and what it lost on the way there.
fn standing(vm: &VmRecord) -> String {
    let words = progress_words(&vm.progress, vm.said.as_deref());
    let recovered = matches!(vm.progress, VmProgress::Recovered { .. });
    let lost: Vec<&str> = vm.losses.iter().map(|loss| lost_words(*loss)).collect();
    if lost.is_empty() {
        return words;
    }
    let verb = if recovered { "lost" } else { "loses" };
    format!("{words}; {verb} {}", lost.join(" and "))
}

const fn lost_words(loss: Loss) -> &'static str {
    match loss {
        Loss::Memory => "its memory",
        Loss::Disks => "its disks on the dead host",
    }
}

fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn ago(then: Timestamp, now: Timestamp) -> String {
    human(seconds_between(then, now))
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_secs()).unwrap_or(0)
}

/// A time in its largest unit, as kubectl writes it.
fn human(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let cell = |row: &Vec<String>, column: usize| {
        let text = row.get(column).map_or("", String::as_str);
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| cell(row, column).chars().count())
                .max()
                .unwrap_or_default()
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = widths
            .iter()
            .enumerate()
            .map(|(column, width)| format!("{:<width$}", cell(row, column)));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
