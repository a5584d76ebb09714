// SPDX-License-Identifier: Apache-2.0
//! Which tables and columns a database has. Schemas are kept as short text: a line `table NAME` with what is special about
//! it, then a line per column with its name and type.
//!
//! | type | means |
//! | --- | --- |
//! | `string`, `integer`, `boolean`, `uuid` | an atom |
//! | `Port`, `~Port` | a reference to a row of that table, strong or weak |
//! | `string{a\|b}`, `integer[0..9]` | only these |
//! | `K:V` | pairs |
//! | nothing, `?`, `*`, `*9`, `+` | exactly one, at most one, any number, at most nine, at least one |

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::value::{Base, Kind, Type};

/// The database of a switch.
pub(crate) static OPEN_VSWITCH: LazyLock<Schema> =
    LazyLock::new(|| Schema::parse(include_str!("schema/open_vswitch.txt")));
/// The database about databases.
pub(crate) static SERVER: LazyLock<Schema> =
    LazyLock::new(|| Schema::parse(include_str!("schema/server.txt")));

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Type,
    /// Whether it keeps the value it was made with.
    pub(crate) constant: bool,
    ephemeral: bool,
}

/// A table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Whether its rows live without anybody who refers to them.
    pub(crate) root: bool,
    /// Whether it has at most one row.
    pub(crate) single: bool,
    /// Columns that no two rows have the same values in, by number.
    pub(crate) unique: Option<Vec<usize>>,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    /// The number of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// A database's tables.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) name: String,
    pub(crate) version: String,
    checksum: String,
    pub(crate) tables: Vec<Table>,
}

impl Schema {
    /// The number of a table.
    pub(crate) fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }

    fn parse(text: &str) -> Self {
        let mut schema = Self::default();
        let mut index = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["database", name, version, checksum @ ..] => {
                    (schema.name, schema.version) = ((*name).to_owned(), (*version).to_owned());
                    schema.checksum = checksum.join(" ");
                }
                ["table", name, special @ ..] => {
                    schema.close(index.take());
                    index = special
                        .iter()
                        .position(|word| *word == "by")
                        .and_then(|at| special.get(at + 1).copied());
                    schema.tables.push(Table {
                        name: (*name).to_owned(),
                        root: special.contains(&"root"),
                        single: special.contains(&"single"),
                        ..Table::default()
                    });
                }
                ["#", ..] | [] => {}
                [name, kind, special @ ..] => {
                    if let Some(table) = schema.tables.last_mut() {
                        table.columns.push(Column {
                            name: (*name).to_owned(),
                            kind: parse_type(kind),
                            constant: special.contains(&"constant"),
                            ephemeral: special.contains(&"ephemeral"),
                        });
                    }
                }
                [_] => {}
            }
        }
        schema.close(index);
        schema
    }

    /// Finds the columns of the last table's index, now that it has them all.
    fn close(&mut self, index: Option<&str>) {
        if let (Some(table), Some(index)) = (self.tables.last_mut(), index) {
            table.unique = Some(index.split('+').filter_map(|name| table.column(name)).collect());
        }
    }

    /// As `get_schema` answers.
    pub(crate) fn to_json(&self) -> Value {
        let tables: Map<String, Value> = self
            .tables
            .iter()
            .map(|table| (table.name.clone(), table_json(table)))
            .collect();
        json!({"name": self.name, "version": self.version, "cksum": self.checksum, "tables": tables})
    }
}

fn table_json(table: &Table) -> Value {
    let columns: Map<String, Value> = table.columns.iter().map(column_json).collect();
    let mut body = json!({"columns": columns});
    if let Some(body) = body.as_object_mut() {
        if table.root {
            body.insert("isRoot".into(), true.into());
        }
        if table.single {
            body.insert("maxRows".into(), 1.into());
        }
        if let Some(unique) = &table.unique {
            let names: Vec<&str> = unique
                .iter()
                .filter_map(|at| table.columns.get(*at))
                .map(|column| column.name.as_str())
                .collect();
            body.insert("indexes".into(), json!([names]));
        }
    }
    body
}

fn column_json(column: &Column) -> (String, Value) {
    let mut body = json!({"type": column.kind.to_json()});
    if let Some(body) = body.as_object_mut() {
        if column.ephemeral {
            body.insert("ephemeral".into(), true.into());
        }
        if column.constant {
            body.insert("mutable".into(), false.into());
        }
    }
    (column.name.clone(), body)
}

fn parse_type(text: &str) -> Type {
    let (text, min, max) = if let Some(text) = text.strip_suffix('?') {
        (text, 0, 1)
    } else if let Some(text) = text.strip_suffix('+') {
        (text, 1, usize::MAX)
    } else if let Some((text, most)) = text.rsplit_once('*') {
        (text, 0, most.parse().unwrap_or(usize::MAX))
    } else {
        (text, 1, 1)
    };
    let (key, value) = match text.split_once(':') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    Type {
        key: parse_base(key),
        value: value.map(parse_base),
        min,
        max,
    }
}

fn parse_base(text: &str) -> Base {
    let end = text.find(['{', '[']).unwrap_or(text.len());
    let (name, limits) = text.split_at(end);
    let mut base = Base {
        kind: Kind::Uuid,
        allowed: Vec::new(),
        least: None,
        most: None,
        refers: None,
    };
    match name {
        "string" => base.kind = Kind::String,
        "integer" => base.kind = Kind::Integer,
        "boolean" => base.kind = Kind::Boolean,
        "uuid" => {}
        table => base.refers = Some((table.trim_start_matches('~').to_owned(), !table.starts_with('~'))),
    }
    if let Some(words) = limits.strip_prefix('{') {
        base.allowed = words
            .trim_end_matches('}')
            .split('|')
            .map(str::to_owned)
            .collect();
        base.allowed.sort();
    }
    if let Some((least, most)) = limits.strip_prefix('[').and_then(|range| range.split_once("..")) {
        (base.least, base.most) = (least.parse().ok(), most.trim_end_matches(']').parse().ok());
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_gives_the_types_of_the_real_schema() {
        let table = |name| &OPEN_VSWITCH.tables[OPEN_VSWITCH.table(name).unwrap()];
        let kind = |of, name| {
            let table = table(of);
            table.columns[table.column(name).unwrap()].kind.to_json()
        };
        assert_eq!(OPEN_VSWITCH.tables.len(), 19);
        assert_eq!(kind("Bridge", "name"), json!("string"));
        assert_eq!(
            kind("Port", "tag"),
            json!({"key": {"type": "integer", "minInteger": 0, "maxInteger": 4095}, "min": 0})
        );
        assert_eq!(
            kind("Mirror", "select_src_port"),
            json!({"key": {"type": "uuid", "refTable": "Port", "refType": "weak"}, "min": 0, "max": "unlimited"})
        );
        assert_eq!(table("Flow_Sample_Collector_Set").unique, Some(vec![0, 1]));
        assert_eq!(SERVER.tables.len(), 1);
    }
}
