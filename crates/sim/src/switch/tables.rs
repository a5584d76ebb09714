// SPDX-License-Identifier: Apache-2.0
//! The rows of a database and the promises that hold between them: references lead somewhere, rows that nobody needs are
//! gone, what is to be unique is. Copies are cheap; rows are shared until they change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::schema::{Schema, Table};
use super::value::{Atom, Datum, Refusal};
use crate::world::named_uuid;

/// A row: what each column of its table holds, by the column's number.
pub(crate) type Row = Vec<Datum>;
/// Rows of one table.
pub(crate) type Rows = BTreeMap<Uuid, Arc<Row>>;

/// The rows of a database.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) schema: &'static Schema,
    rows: Vec<Rows>,
}

impl Tables {
    /// No rows.
    pub(crate) fn new(schema: &'static Schema) -> Self {
        Self {
            schema,
            rows: vec![Rows::new(); schema.tables.len()],
        }
    }

    /// The rows of the table with this number.
    pub(crate) fn rows(&self, table: usize) -> &Rows {
        static NONE: Rows = Rows::new();
        self.rows.get(table).unwrap_or(&NONE)
    }

    /// The rows of the table with this name.
    pub(crate) fn named(&self, table: &str) -> &Rows {
        self.rows(self.schema.table(table).unwrap_or(usize::MAX))
    }

    /// What a column of a row holds.
    pub(crate) fn get<'a>(&self, table: &str, row: &'a Row, column: &str) -> Option<&'a Datum> {
        let table = self.schema.tables.get(self.schema.table(table)?)?;
        row.get(table.column(column)?)
    }

    /// Puts a row in place; rows of a table that does not exist are dropped.
    pub(crate) fn put(&mut self, table: usize, id: Uuid, row: Row) {
        if let Some(rows) = self.rows.get_mut(table) {
            rows.insert(id, Arc::new(row));
        }
    }

    /// Takes a row away.
    pub(crate) fn remove(&mut self, table: usize, id: &Uuid) {
        if let Some(rows) = self.rows.get_mut(table) {
            rows.remove(id);
        }
    }

    /// Changes a row.
    pub(crate) fn edit(&mut self, table: usize, id: &Uuid) -> Option<&mut Row> {
        self.rows.get_mut(table)?.get_mut(id).map(Arc::make_mut)
    }

    /// Makes a row with these columns, everything else as nobody had said anything.
    pub(crate) fn make<'a>(
        &mut self,
        table: &str,
        id: Uuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) -> Uuid {
        let Some(number) = self.schema.table(table) else {
            return id;
        };
        let Some(facts) = self.schema.tables.get(number) else {
            return id;
        };
        let mut row = blank(facts);
        for (name, datum) in columns {
            if let Some(place) = facts.column(name).and_then(|at| row.get_mut(at)) {
                *place = datum;
            }
        }
        self.put(number, id, row);
        id
    }

    /// Drops references to rows that are not there, then rows that need somebody who refers to them and have nobody.
    pub(crate) fn tidy(&mut self) {
        let links = Links::of(self.schema);
        self.drop_lost(&links, |_| true);
        self.collect(&links);
        self.drop_lost(&links, |_| true);
    }

    /// What a commit does after the references were checked: unneeded rows go, then weak references to what is gone.
    fn settle(&mut self, links: &Links) {
        self.collect(links);
        self.drop_lost(links, |strong| !strong);
    }

    fn collect(&mut self, links: &Links) {
        loop {
            let needed = links.strong_targets(self);
            let mut gone = false;
            for (rows, facts) in self.rows.iter_mut().zip(&self.schema.tables) {
                let before = rows.len();
                if !facts.root {
                    rows.retain(|id, _| needed.contains(id));
                }
                gone |= rows.len() != before;
            }
            if !gone || self.schema.name == "_Server" {
                return;
            }
        }
    }

    fn drop_lost(&mut self, links: &Links, wanted: impl Fn(bool) -> bool) {
        let mut lost = Vec::new();
        for link in links.0.iter().filter(|link| wanted(link.strong)) {
            for (id, row) in self.rows(link.table) {
                let ends = link
                    .ends(row)
                    .filter(|(_, end)| !self.rows(link.target).contains_key(end));
                lost.extend(ends.map(|(key, _)| (link.table, *id, link.column, key.clone())));
            }
        }
        for (table, id, column, key) in lost {
            if let Some(datum) = self.edit(table, &id).and_then(|row| row.get_mut(column)) {
                datum.0.remove(&key);
            }
        }
    }

    /// Whether this may follow `before`; what nobody needs is gone afterwards.
    pub(crate) fn commit(&mut self, before: &Self) -> Result<(), Refusal> {
        let links = Links::of(self.schema);
        links.check(self, before)?;
        self.settle(&links);
        for (number, facts) in self.schema.tables.iter().enumerate() {
            if facts.single && self.rows(number).len() > 1 {
                return Err(Refusal::constraint(format!(
                    "transaction causes \"{}\" table to contain {} rows, greater than the schema-defined limit of 1 row(s)",
                    facts.name,
                    self.rows(number).len()
                )));
            }
            self.check_unique(number, facts, before)?;
        }
        Ok(())
    }

    fn check_unique(&self, number: usize, facts: &Table, before: &Self) -> Result<(), Refusal> {
        let Some(unique) = &facts.unique else {
            return Ok(());
        };
        let mut seen: HashMap<Vec<&Atom>, &Uuid> = HashMap::new();
        for (id, row) in self.rows(number) {
            let key: Vec<&Atom> = unique
                .iter()
                .filter_map(|at| row.get(*at))
                .flat_map(|datum| datum.0.keys())
                .collect();
            let values: Vec<String> = key.iter().map(ToString::to_string).collect();
            let Some(other) = seen.insert(key, id) else {
                continue;
            };
            let names: Vec<String> = unique
                .iter()
                .filter_map(|at| facts.columns.get(*at))
                .map(|column| format!("\"{}\"", column.name))
                .collect();
            let story = |id: &Uuid| match before.rows(number).get(id) {
                None => "was inserted by this transaction",
                Some(old) if self.rows(number).get(id) == Some(old) => {
                    "existed in the database before this transaction and was not modified by the transaction"
                }
                Some(_) => "had a different index value before the transaction",
            };
            // The one that was there first is named first.
            let new = |id: &&Uuid| !before.rows(number).contains_key(*id);
            let (first, second) = if new(&other) && !new(&id) {
                (id, other)
            } else {
                (other, id)
            };
            return Err(Refusal::constraint(format!(
                "Transaction causes multiple rows in \"{}\" table to have identical values ({}) for index on column{} {}.  First row, with UUID {first}, {}.  Second row, with UUID {second}, {}.",
                facts.name,
                values.join(", "),
                if names.len() == 1 { "" } else { "s" },
                names.join(" and "),
                story(first),
                story(second),
            )));
        }
        Ok(())
    }
}

/// A row to which nobody gave values.
pub(crate) fn blank(table: &Table) -> Row {
    table.columns.iter().map(|column| column.kind.default()).collect()
}

/// Changes whenever the row does.
pub(crate) fn version(id: &Uuid, row: &Row) -> Uuid {
    named_uuid(*id, &format!("{row:?}"))
}

/// A column that refers to rows, by its keys or by its values.
struct Link {
    table: usize,
    column: usize,
    by_value: bool,
    target: usize,
    strong: bool,
}

impl Link {
    /// Where the references of a row lead, with the key each stands under.
    fn ends<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = (&'a Atom, Uuid)> {
        let pairs = row.get(self.column).into_iter().flat_map(|datum| &datum.0);
        pairs.filter_map(
            |(key, value)| match if self.by_value { value.as_ref()? } else { key } {
                Atom::Uuid(id) => Some((key, *id)),
                _ => None,
            },
        )
    }
}

struct Links(Vec<Link>);

impl Links {
    fn of(schema: &Schema) -> Self {
        let mut links = Vec::new();
        for (table, facts) in schema.tables.iter().enumerate() {
            for (column, kind) in facts.columns.iter().map(|column| &column.kind).enumerate() {
                for (by_value, base) in [(false, Some(&kind.key)), (true, kind.value.as_ref())] {
                    if let Some((target, strong)) = base.and_then(|base| base.refers.as_ref())
                        && let Some(target) = schema.table(target)
                    {
                        links.push(Link {
                            table,
                            column,
                            by_value,
                            target,
                            strong: *strong,
                        });
                    }
                }
            }
        }
        Self(links)
    }

    fn strong_targets(&self, tables: &Tables) -> HashSet<Uuid> {
        let mut targets = HashSet::new();
        for link in self.0.iter().filter(|link| link.strong) {
            for (id, row) in tables.rows(link.table) {
                // A row does not keep itself.
                targets.extend(link.ends(row).map(|(_, end)| end).filter(|end| end != id));
            }
        }
        targets
    }

    fn check(&self, tables: &Tables, before: &Tables) -> Result<(), Refusal> {
        for link in self.0.iter().filter(|link| link.strong) {
            let (Some(from), Some(to)) = (
                tables.schema.tables.get(link.table),
                tables.schema.tables.get(link.target),
            ) else {
                continue;
            };
            for (id, row) in tables.rows(link.table) {
                let lost = |(_, end): &(&Atom, Uuid)| !tables.rows(link.target).contains_key(end);
                let Some((_, end)) = link.ends(row).find(lost) else {
                    continue;
                };
                if before.rows(link.target).contains_key(&end) {
                    let details = format!(
                        "cannot delete {} row {end} because of 1 remaining reference(s)",
                        to.name
                    );
                    return Err(Refusal::new("referential integrity violation", details));
                }
                let column = from.columns.get(link.column).map_or("", |column| &column.name);
                let details = format!(
                    "Table {} column {column} row {id} references nonexistent row {end} in table {}.",
                    from.name, to.name
                );
                return Err(Refusal::new("referential integrity violation", details));
            }
        }
        Ok(())
    }
}
