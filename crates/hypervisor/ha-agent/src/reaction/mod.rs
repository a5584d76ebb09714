// SPDX-License-Identifier: Apache-2.0
//! Small local repairs, if the configuration allows them: reset a guest whose watchdog fired, start one that crashed,
//! let one go on whose disk came back. Whether is decided in [`decide`]; here it is looked, done and told.

pub mod decide;
mod storage;

use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{Job, Kind, Scalar, agent};
use cobaltcore_kit::{BoxError, CancellationToken};
use cobaltcore_libvirt::client::Connection;
use cobaltcore_libvirt::types::Domain;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::board::Context;
use crate::clock;
use crate::config::{Action, Reaction};
use crate::draft::{Draft, Guest};
use crate::libvirt::{disks, reach};
use decide::{Guard, History, Look, Trigger, Verdict};

/// A guest is let go on after these pauses, if its disk can be read.
const RESUME_AFTER: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(90),
];
/// How long anything may take that is done to a guest.
const ACT_TIME: Duration = Duration::from_secs(10);
/// Incidents that wait, and repairs under way.
pub(crate) const QUEUE: usize = 256;
const MOST_AT_ONCE: usize = 16;

/// Something that may call for a repair.
#[derive(Clone, Debug)]
pub struct Incident {
    /// What.
    pub trigger: Trigger,
    /// To whom.
    pub guest: Guest,
    /// When, on the boot-time clock.
    pub at_ns: u64,
}

impl Incident {
    /// What a record calls for, if anything. What was only derived is too old to be sure of.
    pub fn of(draft: &Draft) -> Option<Self> {
        let guest = draft.domain.clone().filter(|_| !draft.synthetic)?;
        let trigger = match (draft.kind, draft.event.as_str(), draft.detail.as_str()) {
            (Kind::Watchdog, "none" | "pause", _) => Trigger::Watchdog,
            (Kind::Lifecycle, "stopped", "crashed" | "failed") => Trigger::Crash,
            (Kind::Lifecycle, "suspended", "ioerror") => Trigger::IoError,
            _ => return None,
        };
        Some(Self {
            trigger,
            guest,
            at_ns: draft.mono_ns,
        })
    }
}

/// Repairs until `stop`.
pub(crate) async fn run(
    context: Context,
    incidents: Arc<tokio::sync::Mutex<mpsc::Receiver<Incident>>>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let history = Arc::new(Mutex::new(History::default()));
    let mut incidents = incidents.lock().await;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            incident = incidents.recv(), if tasks.len() < MOST_AT_ONCE => match incident {
                Some(incident) => {
                    let (context, history) = (context.clone(), Arc::clone(&history));
                    tasks.spawn(async move { handle(&context, &history, incident).await });
                }
                None => return Ok(()),
            },
        }
    }
}

fn settings(context: &Context, trigger: Trigger) -> Reaction {
    let reactions = &context.config().reactions;
    match trigger {
        Trigger::Watchdog => reactions.watchdog.clone(),
        Trigger::Crash => reactions.crash.clone(),
        Trigger::IoError => reactions.ioerror.clone(),
    }
}

async fn handle(context: &Context, history: &Mutex<History>, incident: Incident) {
    let reaction = settings(context, incident.trigger);
    if reaction.action == Action::Report {
        return;
    }
    let pauses: &[Duration] = match incident.trigger {
        Trigger::IoError => &RESUME_AFTER,
        Trigger::Watchdog | Trigger::Crash => &[Duration::ZERO],
    };
    for (index, pause) in pauses.iter().enumerate() {
        tokio::time::sleep(*pause).await;
        let reaction = settings(context, incident.trigger);
        let outcome = attempt(context, history, &incident, &reaction).await;
        if !worth_another_try(&outcome) || index + 1 == pauses.len() {
            tell(context, &incident, reaction.action, &outcome);
            return;
        }
    }
}

#[derive(Debug)]
enum Outcome {
    Done,
    Failed(String),
    Suppressed(Guard),
}

/// Whether what stood in the way passes with time. A guest that was tried a moment ago, and stands still again, has its next
/// try when its pause is over.
fn worth_another_try(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Suppressed(Guard::DiskUnreadable | Guard::Cooldown) | Outcome::Failed(_)
    )
}

async fn attempt(
    context: &Context,
    history: &Mutex<History>,
    incident: &Incident,
    reaction: &Reaction,
) -> Outcome {
    let connection = match tokio::time::timeout(ACT_TIME, reach::read_write(&context.start)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Outcome::Failed(error.to_string()),
        Err(_) => return Outcome::Failed(format!("libvirt did not answer within {ACT_TIME:?}")),
    };
    let look = look(context, &connection, incident).await;
    let now = Instant::now();
    let verdict = decide::decide(
        incident.trigger,
        reaction,
        &look,
        &history.lock(),
        incident.guest.uuid,
        now,
    );
    let outcome = match verdict {
        Verdict::Suppress(guard) => Outcome::Suppressed(guard),
        Verdict::Act(action) => {
            history.lock().note(incident.guest.uuid, now);
            match tokio::time::timeout(ACT_TIME, act(&connection, &incident.guest, action)).await {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(error)) => Outcome::Failed(error.to_string()),
                Err(_) => Outcome::Failed(format!("no answer within {ACT_TIME:?}")),
            }
        }
    };
    connection.close().await;
    outcome
}

/// Looks at everything the decision needs, right before it.
async fn look(context: &Context, connection: &Connection, incident: &Incident) -> Look {
    let domain = Domain::by_uuid(incident.guest.uuid);
    let job = tokio::time::timeout(ACT_TIME, connection.job_stats(&domain)).await;
    let state = tokio::time::timeout(ACT_TIME, connection.state(&domain)).await;
    let uptime_ns = match incident.trigger {
        // It has stopped: how long it ran before is what counts.
        Trigger::Crash => context
            .board
            .guests(|guests| guests.ran_before(incident.guest.uuid)),
        Trigger::Watchdog | Trigger::IoError => {
            let known = context
                .board
                .guests(|guests| guests.all.get(&incident.guest.uuid).cloned());
            let since = known.and_then(|known| known.since_ns);
            since.map(|since| incident.at_ns.saturating_sub(since))
        }
    };
    let disk_readable = match incident.trigger {
        Trigger::IoError => Some(disks_readable(connection, &domain).await),
        Trigger::Watchdog | Trigger::Crash => None,
    };
    Look {
        // A stopped guest has no job to ask for; an error about a running one is no answer.
        job: match job {
            Ok(Ok(stats)) => Some(if stats.kind == 0 { Job::None } else { Job::Other }),
            Ok(Err(error)) if error.rpc().is_some() && incident.trigger == Trigger::Crash => Some(Job::None),
            _ => None,
        },
        state: state
            .ok()
            .and_then(Result::ok)
            .map(|state| cobaltcore_ha_wire::DomainState::from_libvirt(state.state)),
        hold: context.board.hold() || context.board.shutdown_announced(),
        last_contact: context.board.last_contact(),
        age: Duration::from_nanos(clock::boot_ns().saturating_sub(incident.at_ns)),
        uptime: uptime_ns.map(Duration::from_nanos),
        disk_readable,
    }
}

/// Whether the disks of a guest are there again, as its definition names them. Nobody's answer is no.
async fn disks_readable(connection: &Connection, domain: &Domain) -> bool {
    match tokio::time::timeout(ACT_TIME, connection.xml(domain, 0)).await {
        Ok(Ok(xml)) => storage::is_back(disks::of(&xml)).await,
        _ => false,
    }
}

async fn act(
    connection: &Connection,
    guest: &Guest,
    action: Action,
) -> Result<(), cobaltcore_libvirt::Error> {
    let domain = connection.lookup_by_uuid(guest.uuid).await?;
    match action {
        Action::Reset => {
            connection.reset(&domain).await?;
            // A guest that its watchdog paused stays paused over a reset.
            let state = connection.state(&domain).await?.state;
            if cobaltcore_ha_wire::DomainState::from_libvirt(state) == cobaltcore_ha_wire::DomainState::Paused
            {
                connection.resume(&domain).await?;
            }
        }
        Action::Start => connection.start(&domain, 0).await.map(|_| ())?,
        Action::Resume => connection.resume(&domain).await?,
        Action::Pause => connection.suspend(&domain).await?,
        Action::Report => {}
    }
    Ok(())
}

/// Stops a guest in its tracks because it runs elsewhere too. Says what became of it.
pub(crate) async fn pause_zombie(context: &Context, guest: Guest, incident: &str) -> Result<(), String> {
    let connection = tokio::time::timeout(ACT_TIME, reach::read_write(&context.start)).await;
    let connection = match connection {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("libvirt did not answer within {ACT_TIME:?}")),
    };
    let done = tokio::time::timeout(ACT_TIME, act(&connection, &guest, Action::Pause)).await;
    connection.close().await;
    let result = match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ACT_TIME:?}")),
    };
    let name = if result.is_ok() { "done" } else { "failed" };
    context.metrics.reaction("zombie", "pause", name);
    let mut draft = Draft::agent(agent::REACTION_TAKEN)
        .with("trigger", "zombie")
        .with("action", "pause")
        .with("result", name)
        .with("incident", incident);
    if let Err(why) = &result {
        draft = draft.with("why", why.as_str());
    }
    context.intake.put(draft.about(guest));
    result
}

/// Says that a guest which runs elsewhere too is left as it is, because the configuration wants it so.
pub(crate) fn leave_zombie(context: &Context, guest: Guest, incident: &str) {
    context.metrics.reaction("zombie", "report", "suppressed");
    let draft = Draft::agent(agent::REACTION_SUPPRESSED)
        .with("trigger", "zombie")
        .with("action", "report")
        .with("result", "suppressed")
        .with("guard", Guard::Report.as_str())
        .with("incident", incident);
    context.intake.put(draft.about(guest));
}

fn tell(context: &Context, incident: &Incident, action: Action, outcome: &Outcome) {
    let (event, result, why) = match outcome {
        Outcome::Done => (agent::REACTION_TAKEN, "done", None),
        Outcome::Failed(why) => (agent::REACTION_TAKEN, "failed", Some(("why", why.clone()))),
        Outcome::Suppressed(guard) => (
            agent::REACTION_SUPPRESSED,
            "suppressed",
            Some(("guard", guard.as_str().to_owned())),
        ),
    };
    let (trigger, action) = (incident.trigger.as_str(), action.as_str());
    tracing::info!(trigger, action, result, guest = %incident.guest.uuid, ?why, "local repair");
    context.metrics.reaction(trigger, action, result);
    let mut draft = Draft::agent(event)
        .with("trigger", trigger)
        .with("action", action)
        .with("result", result);
    if let Some((key, why)) = why {
        draft = draft.with(key, Scalar::Text(why));
    }
    context.intake.put(draft.about(incident.guest.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_with_a_bad_disk_is_tried_three_times_unless_that_is_forbidden() {
        assert_eq!(RESUME_AFTER.map(|pause| pause.as_secs()), [10, 30, 90]);
        for (outcome, again) in [
            (Outcome::Done, false),
            (Outcome::Failed("libvirt is busy".into()), true),
            (Outcome::Suppressed(Guard::DiskUnreadable), true),
            (Outcome::Suppressed(Guard::Cooldown), true),
            (Outcome::Suppressed(Guard::DomainLimit), false),
            (Outcome::Suppressed(Guard::HostLimit), false),
            (Outcome::Suppressed(Guard::Hold), false),
            (Outcome::Suppressed(Guard::Isolated), false),
            (Outcome::Suppressed(Guard::StateChanged), false),
        ] {
            assert_eq!(worth_another_try(&outcome), again, "{outcome:?}");
        }
    }

    /// What calls for a repair, and what never does.
    #[test]
    fn only_these_call_for_a_repair() {
        let guest = Guest {
            uuid: uuid::Uuid::from_u128(1),
            name: "instance-1".into(),
            id: 1,
        };
        let of = |kind, event: &str, detail: &str| {
            let draft = Draft::now(kind, event, detail).about(guest.clone());
            Incident::of(&draft).map(|incident| incident.trigger)
        };
        for (kind, event, detail, trigger) in [
            (Kind::Watchdog, "none", "", Some(Trigger::Watchdog)),
            (Kind::Watchdog, "pause", "", Some(Trigger::Watchdog)),
            (Kind::Watchdog, "reset", "", None),
            (Kind::Watchdog, "poweroff", "", None),
            (Kind::Lifecycle, "stopped", "crashed", Some(Trigger::Crash)),
            (Kind::Lifecycle, "stopped", "failed", Some(Trigger::Crash)),
            (Kind::Lifecycle, "stopped", "shutdown", None),
            (Kind::Lifecycle, "stopped", "destroyed", None),
            (Kind::Lifecycle, "stopped", "migrated", None),
            (Kind::Lifecycle, "stopped", "saved", None),
            (Kind::Lifecycle, "shutdown", "guest", None),
            (Kind::Lifecycle, "suspended", "ioerror", Some(Trigger::IoError)),
            (Kind::Lifecycle, "suspended", "paused", None),
            (Kind::IoError, "pause", "", None),
            (Kind::MemoryFailure, "fatal", "", None),
        ] {
            assert_eq!(of(kind, event, detail), trigger, "{kind} {event}/{detail}");
        }
        let derived = Draft {
            synthetic: true,
            ..Draft::now(Kind::Lifecycle, "stopped", "failed").about(guest.clone())
        };
        assert!(Incident::of(&derived).is_none(), "it may have happened long ago");
    }
}
