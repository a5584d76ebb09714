// SPDX-License-Identifier: Apache-2.0
//! What the journal tells of incidents, kept for those who ask: the ledger and the records of each
//! incident. Only what is durable is told. A leader fills it as it writes, the others by reading.

use std::collections::BTreeMap;
use std::sync::Arc;

use cobaltcore_ha_engine::{Entry, Incident, IncidentId, Ledger, Record, forgotten};
use parking_lot::RwLock;

#[derive(Default)]
struct Told {
    ledger: Ledger,
    records: BTreeMap<IncidentId, Vec<Record>>,
}

/// What is told of incidents. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct Chronicle(Arc<RwLock<Told>>);

/// One incident with its records.
#[derive(Clone, Debug)]
pub struct Story {
    /// Where it stands.
    pub incident: Incident,
    /// How it came to that.
    pub records: Vec<Record>,
}

impl Story {
    /// The story that the records of one incident tell.
    pub fn of(id: &str, records: Vec<Record>) -> Option<Self> {
        let ledger = Ledger::retell(&records).ok()?;
        let mut told = ledger.incidents.into_values();
        let incident = told.find(|incident| incident.id.to_string() == id)?;
        Some(Self { incident, records })
    }

    /// When it was opened.
    pub fn opened_at(&self) -> jiff::Timestamp {
        self.records.first().map_or(jiff::Timestamp::UNIX_EPOCH, |r| r.at)
    }

    /// When the latest record was written.
    pub fn updated_at(&self) -> jiff::Timestamp {
        self.records.last().map_or(jiff::Timestamp::UNIX_EPOCH, |r| r.at)
    }
}

impl Chronicle {
    /// Takes a whole journal.
    pub fn replace(&self, records: &[Record]) {
        let gone = forgotten(records);
        let mut told = Told::default();
        for record in records {
            if record.entry.incident().is_some_and(|id| gone.contains(id)) {
                let _ = told.ledger.skip(record);
            } else {
                told.take(record);
            }
        }
        *self.0.write() = told;
    }

    /// Takes what was written after it.
    pub fn append(&self, records: &[Record]) {
        let mut told = self.0.write();
        for record in records {
            told.take(record);
        }
    }

    /// All that the journal tells.
    pub fn ledger(&self) -> Ledger {
        self.0.read().ledger.clone()
    }

    /// The number of the latest record.
    pub fn seq(&self) -> u64 {
        self.0.read().ledger.seq
    }

    /// Every incident with the number of its latest record.
    pub fn ends(&self) -> Vec<(IncidentId, u64)> {
        let told = self.0.read();
        let last = |records: &Vec<Record>| records.last().map_or(0, |record| record.seq);
        told.records
            .iter()
            .map(|(id, records)| (id.clone(), last(records)))
            .collect()
    }

    /// Every incident, the newest first.
    pub fn stories(&self) -> Vec<Story> {
        let told = self.0.read();
        let mut all: Vec<Story> = told
            .ledger
            .incidents
            .values()
            .map(|incident| told.story(incident))
            .collect();
        all.sort_by_key(|story| std::cmp::Reverse((story.opened_at(), story.incident.id.clone())));
        all
    }

    /// One incident by the text of its id.
    pub fn story(&self, id: &str) -> Option<Story> {
        let told = self.0.read();
        let incident = told
            .ledger
            .incidents
            .values()
            .find(|incident| incident.id.to_string() == id)?;
        Some(told.story(incident))
    }
}

impl Told {
    fn take(&mut self, record: &Record) {
        // A reader that cannot follow shows what it understood; judgement is the engine's.
        if self.ledger.apply(record).is_err() {
            return;
        }
        match (&record.entry, record.entry.incident()) {
            (Entry::Forgotten { incident }, _) => {
                self.records.remove(incident);
            }
            (_, Some(incident)) => {
                self.records
                    .entry(incident.clone())
                    .or_default()
                    .push(record.clone());
            }
            _ => {}
        }
    }

    fn story(&self, incident: &Incident) -> Story {
        Story {
            incident: incident.clone(),
            records: self.records.get(&incident.id).cloned().unwrap_or_default(),
        }
    }
}
