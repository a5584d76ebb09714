// SPDX-License-Identifier: Apache-2.0
//! What the journal told of incidents, kept in this replica's database for longer than the journal
//! has it. Whoever leads and whoever follows keeps it alike; nothing is decided by it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_engine::Record;
use cobaltcore_ha_wire::rest::IncidentSummary;
use rusqlite::{Transaction, params};
use tokio_util::sync::CancellationToken;

use crate::chronicle::Story;
use crate::http::{App, summary_of};
use crate::leadership::pause;
use crate::store::{Store, StoreError};

const EVERY: Duration = Duration::from_secs(2);

/// Keeps it until `stop`.
pub async fn keep(app: Arc<App>, stop: CancellationToken) {
    // Up to which record each incident is kept.
    let mut kept: Option<HashMap<String, u64>> = None;
    while !pause(&stop, EVERY).await {
        let known = match kept.take() {
            Some(known) => Ok(known),
            None => ends(&app.store).await,
        };
        kept = match known {
            Ok(known) => write_new(&app, known).await,
            Err(error) => {
                tracing::debug!(%error, "what is kept of incidents cannot be read");
                None
            }
        };
    }
}

async fn ends(store: &Store) -> Result<HashMap<String, u64>, StoreError> {
    store
        .read(|connection| {
            let mut query = connection.prepare("select incident, max(seq) from journal group by incident")?;
            query
                .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?
                .collect()
        })
        .await
}

/// Writes what is new; nothing is known of what is kept if that fails.
async fn write_new(app: &App, mut kept: HashMap<String, u64>) -> Option<HashMap<String, u64>> {
    for (id, end) in app.chronicle.ends() {
        let id = id.to_string();
        let known = kept.get(&id).copied().unwrap_or(0);
        if known >= end {
            continue;
        }
        let Some(story) = app.chronicle.story(&id) else {
            continue;
        };
        let end = story.records.last().map_or(end, |record| record.seq);
        if let Err(error) = app.store.write(move |rows| write(rows, &story, known)).await {
            tracing::debug!(%error, incident = id, "what became of it cannot be kept");
            return None;
        }
        kept.insert(id, end);
    }
    Some(kept)
}

fn write(rows: &Transaction<'_>, story: &Story, known: u64) -> rusqlite::Result<()> {
    let summary = summary_of(story);
    let word = |text: String| text.trim_matches('"').to_owned();
    let json = |value: serde_json::Result<String>| {
        value.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
    };
    rows.execute(
        "insert or replace into incidents values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            summary.id,
            summary.host.as_str(),
            word(json(serde_json::to_string(&summary.kind))?),
            word(json(serde_json::to_string(&summary.state))?),
            summary.opened_at.as_millisecond(),
            summary.updated_at.as_millisecond(),
            summary.open,
            json(serde_json::to_string(&summary))?,
        ],
    )?;
    for record in story.records.iter().filter(|record| record.seq > known) {
        rows.execute(
            "insert or replace into journal values(?1, ?2, ?3, ?4)",
            params![
                summary.id,
                record.seq.cast_signed(),
                record.at.as_millisecond(),
                json(serde_json::to_string(record))?,
            ],
        )?;
    }
    Ok(())
}

/// Incidents that are over and kept, also those that have left the journal.
pub(crate) async fn over(store: &Store) -> Result<Vec<IncidentSummary>, StoreError> {
    let rows: Vec<String> = store
        .read(|connection| {
            let mut query = connection.prepare_cached("select summary from incidents where open = 0")?;
            query.query_map([], |row| row.get(0))?.collect()
        })
        .await?;
    // What another version of this program wrote and this one does not understand is not shown.
    Ok(rows
        .iter()
        .filter_map(|row| serde_json::from_str(row).ok())
        .collect())
}

/// What is kept of one incident.
pub(crate) async fn story(store: &Store, id: &str) -> Result<Option<Story>, StoreError> {
    let wanted = id.to_owned();
    let rows: Vec<String> = store
        .read(move |connection| {
            let mut query =
                connection.prepare_cached("select record from journal where incident = ?1 order by seq")?;
            query.query_map(params![wanted], |row| row.get(0))?.collect()
        })
        .await?;
    let records: Result<Vec<Record>, _> = rows.iter().map(|row| serde_json::from_str(row)).collect();
    Ok(records.ok().and_then(|records| Story::of(id, records)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cobaltcore_ha_engine::{Entry, Epoch, Evidence, IncidentId, IncidentKind, IncidentState, VERSION};
    use jiff::Timestamp;

    use crate::chronicle::Chronicle;
    use crate::config::Retention;
    use crate::store::{Durability, Limits};

    const DAY: i64 = 24 * 3600;
    const BEGIN: i64 = 1_800_000_000;

    fn records() -> Vec<Record> {
        let incident = IncidentId {
            epoch: Epoch(7),
            n: 1,
            host: "n1".parse().unwrap(),
            opened_ms: None,
        };
        let opened = Entry::Opened {
            incident: incident.clone(),
            kind: IncidentKind::HostDown,
            by: "monitor/host-down".into(),
            boot: None,
            evidence: Box::new(Evidence::default()),
            announced: false,
        };
        let closed = Entry::Moved {
            incident: incident.clone(),
            state: IncidentState::Closed,
        };
        // It took a hundred days, and it was forgotten thirty days after.
        let said = [
            (0, Entry::Led),
            (0, opened),
            (1, Entry::Led),
            (100, closed),
            (130, Entry::Forgotten { incident }),
        ];
        let record = |(seq, (day, entry)): (u64, (i64, Entry))| Record {
            version: VERSION,
            seq,
            epoch: Epoch(7),
            at: Timestamp::from_second(BEGIN + day * DAY).unwrap(),
            entry,
        };
        (1..).zip(said).map(record).collect()
    }

    #[tokio::test]
    async fn what_left_the_journal_is_told_for_four_hundred_days() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Durability::Normal).unwrap();
        let (records, chronicle) = (records(), Chronicle::default());
        let (before, last) = records.split_at(4);
        chronicle.replace(before);
        let id = chronicle.stories()[0].incident.id.to_string();
        let told = chronicle.story(&id).unwrap();
        // As it went on: first what was known, then what came.
        for (count, known) in [(1, 0), (2, 2)] {
            let part = Story::of(&id, told.records[..count].to_vec()).unwrap();
            store.write(move |rows| write(rows, &part, known)).await.unwrap();
        }
        assert_eq!(ends(&store).await.unwrap().get(&id), Some(&4));
        chronicle.append(last);
        assert!(chronicle.story(&id).is_none(), "the journal has forgotten it");
        let kept = story(&store, &id).await.unwrap().unwrap();
        assert_eq!((&kept.incident, &kept.records), (&told.incident, &told.records));
        let [summary] = over(&store).await.unwrap().try_into().unwrap();
        assert_eq!(
            (summary.id.as_str(), summary.state),
            (id.as_str(), IncidentState::Closed)
        );
        let limits = Limits {
            retention: Retention::default(),
            max_bytes: 8 << 30,
        };
        for (day, there) in [(100 + 399, true), (100 + 401, false)] {
            store.clean(&limits, (BEGIN + day * DAY) * 1000).await.unwrap();
            let found = story(&store, &id).await.unwrap();
            assert_eq!(
                found.map(|story| story.records.len()),
                there.then_some(2),
                "day {day}"
            );
            assert_eq!(over(&store).await.unwrap().len(), usize::from(there));
        }
    }
}
