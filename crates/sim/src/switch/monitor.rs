// SPDX-License-Identifier: Apache-2.0
//! Monitors: what a client wants to hear of, and how a change is told in each of the three forms of the protocol.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::schema::Table;
use super::tables::{Row, Tables};
use super::transact::Conditions;
use super::value::{Names, Refusal};

/// How changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Old and new rows, as RFC 7047 has it.
    Rows,
    /// Differences.
    Differences,
    /// Differences with the identity of the transaction.
    Numbered,
}

impl Form {
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "monitor" => Some(Self::Rows),
            "monitor_cond" => Some(Self::Differences),
            "monitor_cond_since" => Some(Self::Numbered),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Initial,
    Insert,
    Delete,
    Modify,
}

/// What a client wants to hear of one table: columns on certain occasions.
struct Part {
    columns: BTreeSet<usize>,
    occasions: Vec<Cause>,
}

struct Watched {
    table: usize,
    parts: Vec<Part>,
    /// Rows that meet any of these are told of; none is all.
    conditions: Vec<Conditions>,
}

/// What a client wants to hear of.
pub(crate) struct Monitor {
    pub(crate) id: Value,
    form: Form,
    tables: Vec<Watched>,
}

impl Monitor {
    pub(crate) fn read(id: Value, form: Form, requests: &Value, tables: &Tables) -> Result<Self, Refusal> {
        let Some(requests) = requests.as_object() else {
            return Err(Refusal::syntax(requests, "monitor-requests must be object"));
        };
        let mut watched = Vec::new();
        for (name, request) in requests {
            let Some((table, facts)) = find(tables, name) else {
                return Err(Refusal::new("syntax error", format!("no table named {name}")));
            };
            let mut parts = Vec::new();
            let mut conditions = Vec::new();
            for item in items(request) {
                parts.push(Part::read(item, facts)?);
                conditions.extend(condition(item, facts)?);
            }
            watched.push(Watched {
                table,
                parts,
                conditions,
            });
        }
        Ok(Self {
            id,
            form,
            tables: watched,
        })
    }

    /// Whether it hears of figures that change all the time.
    pub(crate) fn hears_figures(&self, tables: &Tables) -> bool {
        self.tables.iter().any(|watched| {
            let facts = tables.schema.tables.get(watched.table);
            let figures = facts.and_then(|facts| facts.column("statistics"));
            figures.is_some_and(|at| watched.columns(Cause::Modify).contains(&at))
        })
    }

    /// Everything that is there.
    pub(crate) fn initial(&self, tables: &Tables) -> Value {
        self.tell(None, tables, Cause::Initial)
            .unwrap_or_else(|| json!({}))
    }

    /// The message about a change, if it concerns this monitor.
    pub(crate) fn update(&self, before: &Tables, after: &Tables) -> Option<Value> {
        self.tell(Some(before), after, Cause::Insert)
            .map(|rows| self.message(rows))
    }

    fn message(&self, rows: Value) -> Value {
        match self.form {
            Form::Rows => super::frame::notice("update", json!([self.id, rows])),
            Form::Differences => super::frame::notice("update2", json!([self.id, rows])),
            Form::Numbered => {
                super::frame::notice("update3", json!([self.id, Uuid::nil().to_string(), rows]))
            }
        }
    }

    /// Takes other conditions; gives the message about rows that come and go with them.
    pub(crate) fn retarget(&mut self, requests: &Value, tables: &Tables) -> Result<Option<Value>, Refusal> {
        let Some(requests) = requests.as_object() else {
            return Err(Refusal::syntax(
                requests,
                "monitor_cond_change: requests must be object",
            ));
        };
        let mut told = Map::new();
        for (name, request) in requests {
            let Some((table, facts)) = find(tables, name) else {
                return Err(Refusal::new("syntax error", format!("no table named {name}")));
            };
            let Some(watched) = self.tables.iter_mut().find(|watched| watched.table == table) else {
                let text = format!("no monitored table named {name}");
                return Err(Refusal::new("syntax error", text));
            };
            let mut conditions = Vec::new();
            for item in items(request) {
                conditions.extend(condition(item, facts)?);
            }
            let old = std::mem::replace(&mut watched.conditions, conditions);
            let mut rows = Map::new();
            for (id, row) in tables.rows(table) {
                let (was, is) = (wanted(&old, id, row), wanted(&watched.conditions, id, row));
                let told = match (was, is) {
                    (true, false) => json!({"delete": null}),
                    (false, true) => json!({"insert": watched.row(Cause::Insert, row, facts, true)}),
                    _ => continue,
                };
                rows.insert(id.to_string(), told);
            }
            if !rows.is_empty() {
                told.insert(name.clone(), rows.into());
            }
        }
        Ok((!told.is_empty()).then(|| self.message(told.into())))
    }

    fn tell(&self, before: Option<&Tables>, after: &Tables, arrival: Cause) -> Option<Value> {
        let mut told = Map::new();
        for watched in &self.tables {
            let Some(facts) = after.schema.tables.get(watched.table) else {
                continue;
            };
            let rows = watched.changes(before, after, arrival, self.form, facts);
            if !rows.is_empty() {
                told.insert(facts.name.clone(), rows.into());
            }
        }
        (!told.is_empty()).then(|| told.into())
    }
}

impl Watched {
    fn columns(&self, cause: Cause) -> BTreeSet<usize> {
        let parts = self.parts.iter().filter(|part| part.occasions.contains(&cause));
        parts.flat_map(|part| part.columns.iter().copied()).collect()
    }

    fn on(&self, cause: Cause) -> bool {
        self.parts.iter().any(|part| part.occasions.contains(&cause))
    }

    /// The columns of a row; the short form leaves out what has the value that every new row has.
    fn row(&self, cause: Cause, row: &Row, facts: &Table, short: bool) -> Value {
        let columns = self.columns(cause).into_iter().filter_map(|at| {
            let (column, datum) = (facts.columns.get(at)?, row.get(at)?);
            let usual = short && *datum == column.kind.default();
            (!usual).then(|| (column.name.clone(), column.kind.write(datum)))
        });
        Value::Object(columns.collect())
    }

    fn changes(
        &self,
        before: Option<&Tables>,
        after: &Tables,
        arrival: Cause,
        form: Form,
        facts: &Table,
    ) -> Map<String, Value> {
        let mut changes = Map::new();
        let new = after.rows(self.table);
        let old = before.map(|before| before.rows(self.table));
        for (id, row) in old.into_iter().flatten() {
            let goes = new.get(id).is_none_or(|row| !wanted(&self.conditions, id, row));
            if goes && wanted(&self.conditions, id, row) && self.on(Cause::Delete) {
                let told = match form {
                    Form::Rows => json!({"old": self.row(Cause::Delete, row, facts, false)}),
                    _ => json!({"delete": null}),
                };
                changes.insert(id.to_string(), told);
            }
        }
        for (id, row) in new.iter().filter(|(id, row)| wanted(&self.conditions, id, row)) {
            let was = old.and_then(|old| old.get(id));
            let told = match was.filter(|was| wanted(&self.conditions, id, was)) {
                Some(was) => self.modified(was, row, form, facts),
                None if !self.on(arrival) => None,
                None => Some(match (form, arrival) {
                    (Form::Rows, _) => json!({"new": self.row(arrival, row, facts, false)}),
                    (_, Cause::Initial) => json!({"initial": self.row(arrival, row, facts, true)}),
                    _ => json!({"insert": self.row(arrival, row, facts, true)}),
                }),
            };
            if let Some(told) = told {
                changes.insert(id.to_string(), told);
            }
        }
        changes
    }

    fn modified(&self, old: &Row, new: &Row, form: Form, facts: &Table) -> Option<Value> {
        let mut differences = Map::new();
        for at in self.columns(Cause::Modify) {
            let (Some(column), Some(old), Some(new)) = (facts.columns.get(at), old.get(at), new.get(at))
            else {
                continue;
            };
            if old != new {
                let told = match form {
                    Form::Rows => old.clone(),
                    _ => old.difference(new, &column.kind),
                };
                differences.insert(column.name.clone(), column.kind.write(&told));
            }
        }
        if differences.is_empty() {
            return None;
        }
        Some(match form {
            Form::Rows => json!({"old": differences, "new": self.row(Cause::Modify, new, facts, false)}),
            _ => json!({"modify": differences}),
        })
    }
}

impl Part {
    fn read(item: &Value, facts: &Table) -> Result<Self, Refusal> {
        let columns = match item.get("columns") {
            None => (0..facts.columns.len()).collect(),
            Some(names) => {
                let list = names.as_array().map(Vec::as_slice).unwrap_or_default();
                let mut columns = BTreeSet::new();
                for name in list {
                    let name = name.as_str().unwrap_or_default();
                    match facts.column(name) {
                        Some(at) => drop(columns.insert(at)),
                        None if name == "_uuid" || name == "_version" => {}
                        None => {
                            let text = format!("{name} is not a valid column name");
                            return Err(Refusal::syntax(names, text));
                        }
                    }
                }
                columns
            }
        };
        let asked = |name: &str| item.get("select").and_then(|select| select.get(name)?.as_bool());
        let occasions = [
            ("initial", Cause::Initial),
            ("insert", Cause::Insert),
            ("delete", Cause::Delete),
            ("modify", Cause::Modify),
        ];
        let occasions = occasions
            .into_iter()
            .filter(|(name, _)| asked(name) != Some(false));
        Ok(Self {
            columns,
            occasions: occasions.map(|(_, cause)| cause).collect(),
        })
    }
}

fn find<'a>(tables: &'a Tables, name: &str) -> Option<(usize, &'a Table)> {
    let table = tables.schema.table(name)?;
    Some((table, tables.schema.tables.get(table)?))
}

/// A table is asked for once or several times.
fn items(request: &Value) -> &[Value] {
    match request {
        Value::Array(items) => items,
        one => std::slice::from_ref(one),
    }
}

fn condition(item: &Value, facts: &Table) -> Result<Option<Conditions>, Refusal> {
    let given = item.get("where");
    given
        .map(|value| Conditions::read(value, facts, &Names::default()))
        .transpose()
}

fn wanted(conditions: &[Conditions], id: &Uuid, row: &Row) -> bool {
    conditions.is_empty() || conditions.iter().any(|condition| condition.any(id, row))
}
