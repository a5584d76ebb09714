// SPDX-License-Identifier: Apache-2.0
//! Cleaning the database, following the journal while somebody else leads, ending planned work that
//! is over, and the figures that are read rather than counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cobaltcore_api::Maintenance;
use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Group, HeldReason, Input, Verdict};
use cobaltcore_kit::health::Check;
use rusqlite::params;
use tokio_util::sync::CancellationToken;

use crate::http::{App, state_of};
use crate::journal::{Journal, News};
use crate::leadership::pause;
use crate::metrics::{OfGrade, OfGroup, OfIncident, OfState, OfVerdict};
use crate::store::Limits;

const CLEAN_EVERY: Duration = Duration::from_secs(60);
const FOLLOW_EVERY: Duration = Duration::from_secs(5);
/// The same before the journal was ever read.
const FIRST_LOOKS: Duration = Duration::from_millis(250);
/// After this long without reading the journal a replica does not know what the others do.
const OUT_OF_SYNC: Duration = Duration::from_secs(30);
const CUT_EVERY: Duration = Duration::from_hours(1);
/// How old records must be that are about no incident before they leave the journal.
const OLD: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);
const FIGURES_EVERY: Duration = Duration::from_secs(5);

/// Cleans the database until `stop`.
pub async fn clean(app: Arc<App>, stop: CancellationToken) {
    while !pause(&stop, CLEAN_EVERY).await {
        let config = app.config();
        let limits = Limits {
            retention: config.retention.clone(),
            max_bytes: config.storage.max_bytes,
        };
        let now = jiff::Timestamp::now().as_millisecond();
        match app.store.clean(&limits, now).await {
            Ok(pruned) => {
                app.metrics.db_up.set(1);
                app.metrics
                    .db_size
                    .set(i64::try_from(pruned.bytes).unwrap_or(i64::MAX));
                if pruned.surplus > 0 {
                    tracing::warn!(
                        rows = pruned.surplus,
                        "the telemetry database was too large; the least important rows were removed"
                    );
                }
            }
            Err(error) => {
                app.metrics.db_up.set(0);
                tracing::error!(%error, "the telemetry database cannot be cleaned");
            }
        }
        end_planned(&app, now).await;
    }
}

/// Ends planned work on hosts without an object when its time is over.
async fn end_planned(app: &App, now: i64) {
    let over = app
        .store
        .read(move |connection| {
            let mut query = connection.prepare_cached("select host from planned where until <= ?1")?;
            query
                .query_map(params![now], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })
        .await
        .unwrap_or_default();
    for name in over {
        let Ok(host) = HostName::new(name) else { continue };
        match app
            .local_maintenance
            .set(&host, &Maintenance::Manual, &Maintenance::Off)
        {
            Ok(_) => {
                tracing::info!(%host, "the planned work on it is over");
                let name = host.to_string();
                app.store.write_later(move |transaction| {
                    transaction
                        .execute("delete from planned where host = ?1", params![name])
                        .map(drop)
                });
            }
            Err(error) => tracing::error!(%host, %error, "the end of planned work cannot be recorded"),
        }
    }
}

/// Whether this replica knows what the journal says, which is what it is ready for.
struct InSync {
    check: Check,
    last: Option<Instant>,
}

impl InSync {
    fn yes(&mut self) {
        self.last = Some(Instant::now());
        self.check.ok();
    }

    fn no(&self, why: &str) {
        if self.last.is_none_or(|at| at.elapsed() > OUT_OF_SYNC) {
            self.check.failed(why);
        }
    }
}

/// Follows the journal while somebody else leads, so that every replica can tell of incidents, and agents hear from each
/// whether their host is being handled. `ready` says whether this replica leads or follows.
pub async fn follow(app: Arc<App>, journal: Journal, ready: Check, stop: CancellationToken) {
    let mut place = None;
    let mut sync = InSync {
        check: ready,
        last: None,
    };
    let alone = matches!(journal, Journal::File(_));
    let every = |sync: &InSync| {
        if sync.last.is_some() {
            FOLLOW_EVERY
        } else {
            FIRST_LOOKS
        }
    };
    while !pause(&stop, every(&sync)).await {
        if app.leads() {
            // A leader knows more than it read.
            place = None;
            sync.yes();
            continue;
        }
        if alone {
            // There is nobody to follow.
            sync.no("the journal is not read yet");
            continue;
        }
        let news = journal.follow(&mut place).await;
        if app.leads() {
            place = None;
            continue;
        }
        match news {
            Ok(News::All(records)) => app.chronicle.replace(&records),
            Ok(News::More(records)) if records.is_empty() => {
                sync.yes();
                continue;
            }
            Ok(News::More(records)) => app.chronicle.append(&records),
            Err(error) => {
                tracing::debug!(%error, "the journal cannot be read");
                sync.no(&format!("the journal cannot be read: {error}"));
                continue;
            }
        }
        sync.yes();
        let ledger = Box::new(app.chronicle.ledger());
        app.brain.tell(Input::Follow(ledger)).await;
    }
}

/// Cuts the journal while this replica leads, until `stop`.
pub async fn cut(app: Arc<App>, journal: Journal, stop: CancellationToken) {
    while !pause(&stop, CUT_EVERY).await {
        let Some(before) = jiff::Timestamp::now()
            .checked_sub(OLD)
            .ok()
            .filter(|_| app.leads())
        else {
            continue;
        };
        match journal.cut(before).await {
            Ok(0) => {}
            Ok(records) => tracing::info!(
                records,
                "records of incidents that were over long ago left the journal"
            ),
            Err(error) => {
                tracing::warn!(%error, "the journal could not be cut; it is tried again in an hour");
            }
        }
    }
}

/// Sets the figures that are read rather than counted, until `stop`.
pub async fn figures(app: Arc<App>, stop: CancellationToken) {
    while !pause(&stop, FIGURES_EVERY).await {
        let names: Vec<HostName> = app.directory.all().into_iter().map(|(host, _)| host).collect();
        let seen = app
            .brain
            .ask(move |engine, now| {
                let statuses: Vec<_> = names
                    .iter()
                    .filter_map(|name| engine.host_status(name, now))
                    .collect();
                (statuses, engine.incidents(), engine.zombies())
            })
            .await;
        let Some((statuses, incidents, zombies)) = seen else {
            return;
        };
        app.metrics
            .zombies
            .set(i64::try_from(zombies).unwrap_or(i64::MAX));
        let mut states: HashMap<&'static str, i64> = HashMap::new();
        let mut verdicts: HashMap<(Group, &'static str), i64> = HashMap::new();
        for status in &statuses {
            let Some(entry) = app.directory.get(&status.host) else {
                continue;
            };
            *states.entry(state_of(&entry, Some(status)).as_str()).or_default() += 1;
            for group in Group::ALL {
                let said = status.evidence.of(group);
                *verdicts.entry((group, verdict_word(said.verdict))).or_default() += 1;
                if let Some(age) = said.age_ms {
                    let label = OfGroup {
                        group: format!("{group:?}"),
                    };
                    app.metrics
                        .signal_age
                        .get_or_create(&label)
                        .observe(age as f64 / 1000.0);
                }
            }
        }
        let contradicted = statuses.iter().filter_map(|status| status.contradicted);
        app.metrics
            .hosts_contradicted
            .set(i64::try_from(contradicted.clone().count()).unwrap_or(i64::MAX));
        app.metrics
            .contradictions
            .set(contradicted.map(|(_, times)| i64::from(times)).sum());
        show(&app, &states, &verdicts);
        show_incidents(&app, &incidents);
    }
}

fn show(app: &App, states: &HashMap<&'static str, i64>, verdicts: &HashMap<(Group, &'static str), i64>) {
    for state in [
        "unmanaged",
        "incident",
        "disabled",
        "suspect",
        "healthy",
        "degraded",
    ] {
        let label = OfState { state: state.into() };
        app.metrics
            .hosts
            .get_or_create(&label)
            .set(states.get(state).copied().unwrap_or(0));
    }
    for group in Group::ALL {
        for verdict in [
            Verdict::Alive,
            Verdict::KernelOnly,
            Verdict::Unknown,
            Verdict::Dead,
        ] {
            let verdict = verdict_word(verdict);
            let label = OfVerdict {
                group: format!("{group:?}"),
                verdict: verdict.into(),
            };
            let count = verdicts.get(&(group, verdict)).copied().unwrap_or(0);
            app.metrics.signals.get_or_create(&label).set(count);
        }
    }
}

/// A verdict as it is written everywhere.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Alive => "alive",
        Verdict::KernelOnly => "kernel-only",
        Verdict::Unknown => "unknown",
        Verdict::Dead => "dead",
    }
}

fn show_incidents(app: &App, incidents: &[cobaltcore_ha_engine::IncidentStatus]) {
    app.metrics.incidents_open.clear();
    app.metrics.hosts_fenced.clear();
    let mut storm = false;
    let mut stuck = 0;
    for incident in incidents.iter().filter(|incident| incident.state.open()) {
        storm |= matches!(incident.held, Some(HeldReason::Storm | HeldReason::DomainLimit));
        let label = OfIncident {
            state: format!("{:?}", incident.state),
            held: incident.held.map(|held| format!("{held:?}")).unwrap_or_default(),
        };
        app.metrics.incidents_open.get_or_create(&label).inc();
        stuck += incident.stuck;
        if let Some(grade) = incident.fenced {
            let grade = grade.as_str().to_owned();
            app.metrics.hosts_fenced.get_or_create(&OfGrade { grade }).inc();
        }
    }
    app.metrics
        .vms_stuck
        .set(i64::try_from(stuck).unwrap_or(i64::MAX));
    app.metrics.storm_active.set(i64::from(storm));
}
