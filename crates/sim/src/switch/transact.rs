// SPDX-License-Identifier: Apache-2.0
//! Transactions: a list of operations that all happen or none, as RFC 7047 has them. Works on a copy of the rows and
//! leaves it to the caller to make the copy true.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::schema::{Column, Table};
use super::tables::{Row, Tables, blank, version};
use super::value::{Atom, Datum, Kind, Names, Refusal, Type};

/// Longer lists are refused as a whole.
const MOST_OPERATIONS: usize = 10_000;

/// What came of a transaction.
pub(crate) enum Outcome {
    /// It is over; rows are given if it may have changed any.
    Over(Vec<Value>, Option<Tables>),
    /// It waits for rows to be as it wants them, this many milliseconds at most or for ever.
    Waits(Option<u64>),
}

/// What a transaction needs to know beside the rows.
pub(crate) struct Context<'a> {
    /// Whether the client owns a lock.
    pub(crate) owns: &'a dyn Fn(&str) -> bool,
    /// Gives rows their identity.
    pub(crate) fresh: &'a mut dyn FnMut() -> Uuid,
    /// Whether waiting is over and what is not so is refused.
    pub(crate) late: bool,
}

enum Stop {
    Refused(Refusal),
    Waits(Option<u64>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Carries out what `operations` say on a copy of `tables`.
pub(crate) fn transact(tables: &Tables, operations: &[Value], context: &mut Context<'_>) -> Outcome {
    if operations.len() > MOST_OPERATIONS {
        let details = format!("no more than {MOST_OPERATIONS} operations in one transaction");
        let mut results = vec![Refusal::new("resources exhausted", details).to_json()];
        results.resize(operations.len(), Value::Null);
        return Outcome::Over(results, None);
    }
    let mut work = Work {
        tables: tables.clone(),
        names: Names::default(),
        changed: false,
    };
    work.name_rows(operations, context);
    let mut results: Vec<Value> = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        match work.operate(operation, (index + 1, operations.len()), context) {
            Ok(result) => results.push(result),
            Err(Stop::Waits(span)) => return Outcome::Waits(span),
            Err(Stop::Refused(refusal)) => {
                results.push(refusal.to_json());
                results.resize(operations.len(), Value::Null);
                return Outcome::Over(results, None);
            }
        }
    }
    if !work.changed {
        return Outcome::Over(results, None);
    }
    match work.tables.commit(tables) {
        Ok(()) => Outcome::Over(results, Some(work.tables)),
        Err(refusal) => {
            results.push(refusal.to_json());
            Outcome::Over(results, None)
        }
    }
}

struct Work {
    tables: Tables,
    names: Names,
    changed: bool,
}

/// A column that can be asked for.
#[derive(Clone, Copy)]
enum Place<'a> {
    Uuid,
    Version,
    At(usize, &'a Column),
}

impl Work {
    /// Rows can be referred to before the operation that makes them.
    fn name_rows(&mut self, operations: &[Value], context: &mut Context<'_>) {
        for operation in operations {
            if let Some(name) = operation.get("uuid-name").and_then(Value::as_str) {
                let given = operation.get("uuid").and_then(Value::as_str);
                let id = given.and_then(|text| text.parse().ok());
                let id = id.unwrap_or_else(|| (context.fresh)());
                self.names.0.insert(name.to_owned(), id);
            }
        }
    }

    fn operate(
        &mut self,
        operation: &Value,
        (index, count): (usize, usize),
        context: &mut Context<'_>,
    ) -> Result<Value, Stop> {
        let wrong = |details: &str| {
            Refusal::syntax(
                operation,
                format!("Parsing ovsdb operation {index} of {count} failed: {details}"),
            )
        };
        let Some(body) = operation.as_object() else {
            let text = format!("Parsing ovsdb operation {index} of {count} failed: Object expected.");
            return Err(Refusal::new("syntax error", text).into());
        };
        let Some(word) = body.get("op").and_then(Value::as_str) else {
            return Err(wrong("Required 'op' member is missing.").into());
        };
        match word {
            "comment" | "commit" => return Ok(json!({})),
            "abort" => return Err(Refusal::new("aborted", "aborted by request").into()),
            "assert" => {
                let lock = body.get("lock").and_then(Value::as_str).unwrap_or_default();
                if (context.owns)(lock) {
                    return Ok(json!({}));
                }
                return Err(Refusal::new("not owner", format!("Asserted lock {lock} not held.")).into());
            }
            "insert" | "select" | "update" | "mutate" | "delete" | "wait" => {}
            other => return Err(wrong(&format!("No operation \"{other}\"")).into()),
        }
        let Some(name) = body.get("table").and_then(Value::as_str) else {
            return Err(wrong("Required 'table' member is missing.").into());
        };
        let Some(table) = self.tables.schema.table(name) else {
            return Err(wrong(&format!("No table named {name}.")).into());
        };
        let Some(facts) = self.tables.schema.tables.get(table) else {
            return Err(wrong(&format!("No table named {name}.")).into());
        };
        if word == "insert" {
            return Ok(self.insert(body, table, facts, context)?);
        }
        let Some(conditions) = body.get("where") else {
            return Err(wrong("Required 'where' member is missing.").into());
        };
        let conditions = Conditions::read(conditions, facts, &self.names)?;
        let found: Vec<Uuid> = self
            .tables
            .rows(table)
            .iter()
            .filter(|(id, row)| conditions.hold(id, row))
            .map(|(id, _)| *id)
            .collect();
        match word {
            "select" => Ok(self.select(body, table, facts, &found)?),
            "update" => Ok(self.update(operation, table, facts, &found)?),
            "mutate" => Ok(self.mutate(body, table, facts, &found)?),
            "delete" => {
                self.changed |= !found.is_empty();
                for id in &found {
                    self.tables.remove(table, id);
                }
                Ok(json!({"count": found.len()}))
            }
            _ => self.wait(body, table, facts, &found, context.late),
        }
    }

    fn insert(
        &mut self,
        body: &Map<String, Value>,
        table: usize,
        facts: &Table,
        context: &mut Context<'_>,
    ) -> Result<Value, Refusal> {
        let named = body.get("uuid-name").and_then(Value::as_str);
        let given = body.get("uuid").and_then(Value::as_str);
        let id = named
            .and_then(|name| self.names.0.get(name).copied())
            .or_else(|| given.and_then(|text| text.parse().ok()))
            .unwrap_or_else(|| (context.fresh)());
        let mut row = blank(facts);
        for (place, datum) in self.given(body.get("row"), facts)? {
            if let Some(old) = row.get_mut(place) {
                *old = datum;
            }
        }
        self.tables.put(table, id, row);
        self.changed = true;
        Ok(json!({"uuid": ["uuid", id.to_string()]}))
    }

    /// The values of a `row`, by column.
    fn given(&self, row: Option<&Value>, facts: &Table) -> Result<Vec<(usize, Datum)>, Refusal> {
        let missing = Value::Null;
        let row = row.unwrap_or(&missing);
        let Some(columns) = row.as_object() else {
            return Err(Refusal::syntax(row, "row must be JSON object"));
        };
        let read = |(name, value): (&String, &Value)| {
            let place = facts.column(name);
            match place.and_then(|at| Some((at, facts.columns.get(at)?))) {
                Some((at, column)) => Ok((at, column.kind.read(value, &self.names)?)),
                None => Err(Refusal {
                    error: "unknown column",
                    ..Refusal::syntax(row, format!("No column {name} in table {}.", facts.name))
                }),
            }
        };
        columns.iter().map(read).collect()
    }

    fn select(
        &self,
        body: &Map<String, Value>,
        table: usize,
        facts: &Table,
        found: &[Uuid],
    ) -> Result<Value, Refusal> {
        let places = places(body.get("columns"), facts)?;
        let mut rows: Vec<Value> = Vec::new();
        for id in found {
            if let Some(row) = self.tables.rows(table).get(id) {
                rows.push(project(id, row, &places));
            }
        }
        if body.contains_key("columns") {
            let mut seen = std::collections::HashSet::new();
            rows.retain(|row| seen.insert(row.to_string()));
        }
        Ok(json!({"rows": rows}))
    }

    fn update(
        &mut self,
        operation: &Value,
        table: usize,
        facts: &Table,
        found: &[Uuid],
    ) -> Result<Value, Refusal> {
        let given = self.given(operation.get("row"), facts)?;
        for (place, _) in &given {
            if let Some(column) = facts.columns.get(*place).filter(|column| column.constant) {
                let text = format!(
                    "Cannot update immutable column {} in table {}.",
                    column.name, facts.name
                );
                return Err(Refusal {
                    error: "constraint violation",
                    ..Refusal::syntax(operation, text)
                });
            }
        }
        for id in found {
            let Some(row) = self.tables.edit(table, id) else {
                continue;
            };
            for (place, datum) in &given {
                if let Some(old) = row.get_mut(*place) {
                    old.clone_from(datum);
                }
            }
            self.changed = true;
        }
        Ok(json!({"count": found.len()}))
    }

    fn mutate(
        &mut self,
        body: &Map<String, Value>,
        table: usize,
        facts: &Table,
        found: &[Uuid],
    ) -> Result<Value, Refusal> {
        let wanted = body.get("mutations").and_then(Value::as_array);
        let mutations: Vec<Mutation<'_>> = wanted
            .into_iter()
            .flatten()
            .map(|mutation| Mutation::read(mutation, facts, &self.names))
            .collect::<Result<_, _>>()?;
        for id in found {
            let Some(row) = self.tables.edit(table, id) else {
                continue;
            };
            for mutation in &mutations {
                if let Some(datum) = row.get_mut(mutation.place) {
                    mutation.apply(datum)?;
                }
            }
            self.changed = true;
        }
        Ok(json!({"count": found.len()}))
    }

    fn wait(
        &self,
        body: &Map<String, Value>,
        table: usize,
        facts: &Table,
        found: &[Uuid],
        late: bool,
    ) -> Result<Value, Stop> {
        let places = places(body.get("columns"), facts)?;
        let text = |row: Value| row.to_string();
        let have: std::collections::BTreeSet<String> = found
            .iter()
            .filter_map(|id| Some(text(project(id, self.tables.rows(table).get(id)?, &places))))
            .collect();
        let rows = body.get("rows").and_then(Value::as_array);
        let mut want = std::collections::BTreeSet::new();
        for wanted in rows.into_iter().flatten() {
            // Read and written again, so that the same values are the same text.
            let mut row = blank(facts);
            let mut id = Uuid::nil();
            let mut rest = wanted.clone();
            if let Some(given) = rest.as_object_mut().and_then(|row| row.remove("_uuid")) {
                id = uuid_type()
                    .read(&given, &self.names)?
                    .uuids()
                    .next()
                    .unwrap_or_default();
            }
            for (place, datum) in self.given(Some(&rest), facts)? {
                if let Some(old) = row.get_mut(place) {
                    *old = datum;
                }
            }
            want.insert(text(project(&id, &row, &places)));
        }
        let equal = have == want;
        let until = body.get("until").and_then(Value::as_str) == Some("==");
        if equal == until {
            return Ok(json!({}));
        }
        let timeout = body.get("timeout").and_then(Value::as_u64);
        if timeout == Some(0) || late {
            return Err(Refusal::new("timed out", "\"where\" clause test failed").into());
        }
        Err(Stop::Waits(timeout))
    }
}

fn uuid_type() -> Type {
    Type {
        key: super::value::Base {
            kind: Kind::Uuid,
            allowed: Vec::new(),
            least: None,
            most: None,
            refers: None,
        },
        value: None,
        min: 1,
        max: 1,
    }
}

fn place<'a>(name: &str, facts: &'a Table) -> Option<Place<'a>> {
    match name {
        "_uuid" => Some(Place::Uuid),
        "_version" => Some(Place::Version),
        name => {
            let at = facts.column(name)?;
            Some(Place::At(at, facts.columns.get(at)?))
        }
    }
}

/// The columns that were asked for, or all of them.
fn places<'a>(columns: Option<&Value>, facts: &'a Table) -> Result<Vec<(String, Place<'a>)>, Refusal> {
    let Some(columns) = columns else {
        let own = ["_uuid", "_version"].into_iter();
        let all = own.chain(facts.columns.iter().map(|column| column.name.as_str()));
        return Ok(all
            .filter_map(|name| Some((name.to_owned(), place(name, facts)?)))
            .collect());
    };
    let Some(names) = columns.as_array() else {
        return Err(Refusal::syntax(
            columns,
            "array of distinct column names expected",
        ));
    };
    let read = |name: &Value| {
        let Some(name) = name.as_str() else {
            return Err(Refusal::syntax(
                columns,
                "array of distinct column names expected",
            ));
        };
        let place = place(name, facts)
            .ok_or_else(|| Refusal::syntax(columns, format!("{name} is not a valid column name")))?;
        Ok((name.to_owned(), place))
    };
    names.iter().map(read).collect()
}

fn project(id: &Uuid, row: &Row, places: &[(String, Place<'_>)]) -> Value {
    let value = |place: &Place<'_>| match place {
        Place::Uuid => json!(["uuid", id.to_string()]),
        Place::Version => json!(["uuid", version(id, row).to_string()]),
        Place::At(at, column) => row.get(*at).map_or(Value::Null, |datum| column.kind.write(datum)),
    };
    let columns = places.iter().map(|(name, place)| (name.clone(), value(place)));
    Value::Object(columns.collect())
}

#[derive(Clone, Copy, PartialEq)]
enum Test {
    Equals,
    Differs,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Includes,
    Excludes,
}

impl Test {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "==" => Self::Equals,
            "!=" => Self::Differs,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            "includes" => Self::Includes,
            "excludes" => Self::Excludes,
            _ => return None,
        })
    }

    fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::AtMost | Self::Greater | Self::AtLeast)
    }
}

enum Condition {
    Always(bool),
    Uuid(Test, Datum),
    Version(Test, Datum),
    Column(usize, Test, Datum),
}

/// Which rows are meant. Rows must meet all conditions of a `where`; a monitor tells of rows that meet any.
pub(crate) struct Conditions(Vec<Condition>);

impl Conditions {
    pub(crate) fn read(value: &Value, facts: &Table, names: &Names) -> Result<Self, Refusal> {
        let Some(items) = value.as_array() else {
            return Err(Refusal::syntax(value, "array expected"));
        };
        let all: Result<Vec<Condition>, Refusal> = items
            .iter()
            .map(|item| Condition::read(item, facts, names))
            .collect();
        Ok(Self(all?))
    }

    /// Whether a row meets all of them.
    pub(crate) fn hold(&self, id: &Uuid, row: &Row) -> bool {
        self.0.iter().all(|condition| condition.holds(id, row))
    }

    /// Whether a row meets one of them; none at all is no restriction.
    pub(crate) fn any(&self, id: &Uuid, row: &Row) -> bool {
        self.0.is_empty() || self.0.iter().any(|condition| condition.holds(id, row))
    }
}

impl Condition {
    fn read(item: &Value, facts: &Table, names: &Names) -> Result<Self, Refusal> {
        if let Value::Bool(always) = item {
            return Ok(Self::Always(*always));
        }
        let Some([Value::String(name), Value::String(word), value]) = item.as_array().map(Vec::as_slice)
        else {
            return Err(Refusal::syntax(item, "Parse error in condition."));
        };
        let Some(place) = place(name, facts) else {
            let text = format!("No column {name} in table {}.", facts.name);
            return Err(Refusal {
                error: "unknown column",
                ..Refusal::syntax(item, text)
            });
        };
        let Some(test) = Test::read(word) else {
            return Err(Refusal {
                error: "unknown function",
                ..Refusal::syntax(item, format!("No function named {word}."))
            });
        };
        let kind = match place {
            Place::At(_, column) => column.kind.clone(),
            Place::Uuid | Place::Version => uuid_type(),
        };
        let ordered = kind.key.kind == Kind::Integer && kind.is_single();
        if test.is_order() && !ordered {
            let text = format!(
                "Type mismatch: \"{word}\" operator may not be applied to column {name} of type {}.",
                kind.words()
            );
            return Err(Refusal::syntax(item, text));
        }
        let datum = kind.read_loosely(value, names)?;
        Ok(match place {
            Place::Uuid => Self::Uuid(test, datum),
            Place::Version => Self::Version(test, datum),
            Place::At(at, _) => Self::Column(at, test, datum),
        })
    }

    fn holds(&self, id: &Uuid, row: &Row) -> bool {
        match self {
            Self::Always(always) => *always,
            Self::Uuid(test, wanted) => compare(&Datum::one(*id), *test, wanted),
            Self::Version(test, wanted) => compare(&Datum::one(version(id, row)), *test, wanted),
            Self::Column(at, test, wanted) => row.get(*at).is_some_and(|datum| compare(datum, *test, wanted)),
        }
    }
}

fn compare(have: &Datum, test: Test, wanted: &Datum) -> bool {
    let has = |(key, value): (&Atom, &Option<Atom>)| have.0.get(key) == Some(value);
    let order = || {
        have.number()
            .zip(wanted.number())
            .map(|(have, wanted)| have.cmp(&wanted))
    };
    match test {
        Test::Equals => have == wanted,
        Test::Differs => have != wanted,
        Test::Includes => wanted.0.iter().all(has),
        Test::Excludes => !wanted.0.iter().any(has),
        Test::Less => order() == Some(Ordering::Less),
        Test::AtMost => order().is_some_and(Ordering::is_le),
        Test::Greater => order() == Some(Ordering::Greater),
        Test::AtLeast => order().is_some_and(Ordering::is_ge),
    }
}

struct Mutation<'a> {
    place: usize,
    column: &'a Column,
    change: Change,
}

enum Change {
    Arithmetic(char, i64),
    Insert(Datum),
    Delete(Datum),
}

impl<'a> Mutation<'a> {
    fn read(item: &Value, facts: &'a Table, names: &Names) -> Result<Self, Refusal> {
        let Some([Value::String(name), Value::String(word), value]) = item.as_array().map(Vec::as_slice)
        else {
            return Err(Refusal::syntax(item, "Parse error in mutation."));
        };
        let found = facts
            .column(name)
            .and_then(|at| Some((at, facts.columns.get(at)?)));
        let Some((place, column)) = found else {
            let text = format!("No column {name} in table {}.", facts.name);
            return Err(Refusal {
                error: "unknown column",
                ..Refusal::syntax(item, text)
            });
        };
        if column.constant {
            let text = format!("Cannot mutate immutable column {name} in table {}.", facts.name);
            return Err(Refusal {
                error: "constraint violation",
                ..Refusal::syntax(item, text)
            });
        }
        let mismatch = || {
            let text = format!(
                "Type mismatch: \"{word}\" operator may not be applied to column {name} of type {}.",
                column.kind.words()
            );
            Refusal::syntax(item, text)
        };
        let change = match word.as_str() {
            "insert" if !column.kind.is_single() || column.kind.min == 0 => {
                Change::Insert(column.kind.read_loosely(value, names)?)
            }
            "delete" if !column.kind.is_single() || column.kind.min == 0 => {
                Change::Delete(column.kind.read_removed(value, names)?)
            }
            "+=" | "-=" | "*=" | "/=" | "%="
                if column.kind.key.kind == Kind::Integer && !column.kind.is_map() =>
            {
                let number = value
                    .as_i64()
                    .ok_or_else(|| Refusal::syntax(value, "expected integer"))?;
                Change::Arithmetic(word.chars().next().unwrap_or('+'), number)
            }
            "insert" | "delete" | "+=" | "-=" | "*=" | "/=" | "%=" => return Err(mismatch()),
            other => {
                return Err(Refusal {
                    error: "unknown mutator",
                    ..Refusal::syntax(item, format!("No mutator named {other}."))
                });
            }
        };
        Ok(Self {
            place,
            column,
            change,
        })
    }

    fn apply(&self, datum: &mut Datum) -> Result<(), Refusal> {
        match &self.change {
            Change::Arithmetic(operator, number) => {
                let old = std::mem::take(datum);
                for atom in old.0.into_keys() {
                    datum.0.insert(calculate(atom, *operator, *number)?, None);
                }
            }
            // What a map has already stays as it is.
            Change::Insert(more) => {
                for (key, value) in &more.0 {
                    datum.0.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            Change::Delete(less) => {
                datum.0.retain(|key, value| match less.0.get(key) {
                    None => true,
                    Some(None) => false,
                    Some(wanted) => wanted != value,
                });
            }
        }
        let size = datum.0.len();
        if size < self.column.kind.min || size > self.column.kind.max {
            return Err(Refusal::constraint(format!(
                "Attempted to store {size} elements in {}.",
                self.column.kind.words()
            )));
        }
        // Numbers must stay in range.
        let written = self.column.kind.write(datum);
        self.column.kind.read(&written, &Names::default()).map(|_| ())
    }
}

fn calculate(atom: Atom, operator: char, by: i64) -> Result<Atom, Refusal> {
    let Atom::Integer(number) = atom else {
        return Ok(atom);
    };
    let result = match operator {
        '+' => number.checked_add(by),
        '-' => number.checked_sub(by),
        '*' => number.checked_mul(by),
        '/' | '%' if by == 0 => {
            return Err(Refusal::new("domain error", "Division by zero."));
        }
        '/' => number.checked_div(by),
        _ => number.checked_rem(by),
    };
    result
        .map(Atom::Integer)
        .ok_or_else(|| Refusal::new("range error", "Result of \"+=\" operation is out of range."))
}
