// SPDX-License-Identifier: Apache-2.0
//! All tables, by number and by name. Every request asks for some by their names, so they are not searched for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::table::{Table, TypeId};

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    by_id: BTreeMap<TypeId, Arc<Table>>,
    /// Few plurals are those of several groups.
    by_plural: HashMap<Arc<str>, Vec<Arc<Table>>>,
}

impl Tables {
    pub(super) fn add(&mut self, table: Arc<Table>) {
        let named = self.by_plural.entry(table.plural.clone()).or_default();
        named.push(table.clone());
        self.by_id.insert(table.id, table);
    }

    pub(super) fn remove(&mut self, table: &Table) {
        self.by_id.remove(&table.id);
        if let Some(named) = self.by_plural.get_mut(&table.plural) {
            named.retain(|other| other.id != table.id);
        }
    }

    pub(super) fn get(&self, id: TypeId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }

    pub(super) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Table>> {
        let named = self.by_plural.get(plural)?;
        named.iter().find(|table| &*table.group == group)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.by_id.values()
    }

    /// The number for the next one.
    pub(super) fn next_id(&self) -> TypeId {
        TypeId(self.by_id.keys().next_back().map_or(1, |last| last.0 + 1))
    }
}
