// SPDX-License-Identifier: Apache-2.0
//! What clients wrote into a switch's database, kept as differences from what the world says, so that both go on: a port
//! that somebody added stays while guests come and go around it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::tables::{Row, Tables, blank};
use super::value::{Atom, Datum, Type};

/// Everything clients wrote, by table and row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Writes(BTreeMap<String, BTreeMap<Uuid, Write>>);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Write {
    /// Whether a client made the row.
    made: bool,
    /// Whether a client, or what it did, took the row away.
    gone: bool,
    columns: BTreeMap<String, Delta>,
}

/// How a column differs from what the world says.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Delta {
    /// It holds this instead.
    Now(Datum),
    /// It has these as well, and those not.
    With { put: Datum, without: Vec<Atom> },
}

impl Delta {
    fn apply(&self, datum: &mut Datum) {
        match self {
            Self::Now(now) => datum.clone_from(now),
            Self::With { put, without } => {
                for key in without {
                    datum.0.remove(key);
                }
                datum
                    .0
                    .extend(put.0.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
    }

    /// Adds a change from one value to another to what is known already.
    fn note(known: Option<Self>, old: &Datum, new: &Datum, kind: &Type) -> Self {
        if kind.is_single() {
            return Self::Now(new.clone());
        }
        let (mut put, mut without) = match known {
            Some(Self::With { put, without }) => (put, without),
            _ => (Datum::default(), Vec::new()),
        };
        for (key, value) in &new.0 {
            if old.0.get(key) != Some(value) {
                put.0.insert(key.clone(), value.clone());
                without.retain(|other| other != key);
            }
        }
        for key in old.0.keys().filter(|key| !new.0.contains_key(key)) {
            if put.0.remove(key).is_none() || !without.contains(key) {
                without.push(key.clone());
            }
        }
        without.sort();
        without.dedup();
        Self::With { put, without }
    }
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client made this row.
    pub(crate) fn made(&self, table: &str, id: &Uuid) -> bool {
        let write = self.0.get(table).and_then(|rows| rows.get(id));
        write.is_some_and(|write| write.made)
    }

    /// Remembers what turned `before` into `after`.
    pub(crate) fn note(&mut self, before: &Tables, after: &Tables) {
        for (number, facts) in before.schema.tables.iter().enumerate() {
            let (old, new) = (before.rows(number), after.rows(number));
            for id in old.keys().filter(|id| !new.contains_key(id)) {
                let rows = self.0.entry(facts.name.clone()).or_default();
                let made = rows.remove(id).is_some_and(|write| write.made);
                if !made {
                    let write = Write {
                        gone: true,
                        ..Write::default()
                    };
                    rows.insert(*id, write);
                }
            }
            for (id, row) in new {
                let was = old.get(id);
                if was == Some(row) {
                    continue;
                }
                let nothing = blank(facts);
                let rows = self.0.entry(facts.name.clone()).or_default();
                let write = rows.entry(*id).or_default();
                write.made |= was.is_none();
                write.gone = false;
                let from: &Row = was.map_or(&nothing, |row| row);
                for ((column, old), new) in facts.columns.iter().zip(from).zip(row.iter()) {
                    if old != new {
                        let known = write.columns.remove(&column.name);
                        let delta = Delta::note(known, old, new, &column.kind);
                        write.columns.insert(column.name.clone(), delta);
                    }
                }
            }
        }
        self.0.retain(|_, rows| !rows.is_empty());
    }

    /// Lays what clients wrote over what the world says.
    pub(crate) fn apply(&self, tables: &mut Tables) {
        for (name, rows) in &self.0 {
            let Some(number) = tables.schema.table(name) else {
                continue;
            };
            let Some(facts) = tables.schema.tables.get(number) else {
                continue;
            };
            for (id, write) in rows {
                if write.gone {
                    tables.remove(number, id);
                    continue;
                }
                if write.made {
                    tables.put(number, *id, blank(facts));
                }
                let Some(row) = tables.edit(number, id) else {
                    continue;
                };
                for (column, delta) in &write.columns {
                    if let Some(datum) = facts.column(column).and_then(|at| row.get_mut(at)) {
                        delta.apply(datum);
                    }
                }
            }
        }
    }

    /// Forgets what was written to rows that the world has no more.
    pub(crate) fn forget(&mut self, base: &Tables) {
        for (name, rows) in &mut self.0 {
            rows.retain(|id, write| write.made || base.named(name).contains_key(id));
        }
        self.0.retain(|_, rows| !rows.is_empty());
    }
}
