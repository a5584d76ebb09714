// SPDX-License-Identifier: Apache-2.0
//! Takes faulty values out of the way, so that the next reading gets further and finds the
//! next mistake. A faulty value is removed, which lets its default apply; where there is no
//! default something harmless takes its place; where nothing harmless exists the whole section
//! goes. What follows from an earlier mistake is never reported.

use std::collections::BTreeSet;

use super::fault::{Fault, Kind};
use super::layers::Layers;
use super::tree::{Node, Value};

/// What was touched so far.
#[derive(Default)]
pub(super) struct Repairs {
    reported: BTreeSet<String>,
    replaced: BTreeSet<String>,
}

/// What came of putting a fault aside.
pub(super) struct Aside {
    /// Whether it is news.
    pub(super) report: bool,
    /// Whether another reading may find more.
    pub(super) go_on: bool,
}

impl Layers {
    /// Takes the cause of a fault out of the way.
    pub(super) fn put_aside(&mut self, fault: &Fault) -> Aside {
        let key = fault.key();
        let report = !fault.consequential && self.repairs.reported.insert(key.clone());
        let path = fault.path.clone().unwrap_or_default();
        let go_on = match &fault.kind {
            Kind::Unknown => self.remove(&path),
            Kind::Missing(field) if self.repairs.replaced.insert(key) => self.replace_missing(&path, field),
            Kind::Missing(_) => self.remove_section(&path),
            Kind::Invalid => self.remove_given(&path) || self.remove(&path) || self.replace_item(&path),
        };
        Aside { report, go_on }
    }

    /// Removes an entry of a map.
    fn remove(&mut self, path: &[String]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        let Some(Value::Map(entries)) = self.tree.find_mut(above).map(|node| &mut node.value) else {
            return false;
        };
        let before = entries.len();
        entries.retain(|(name, _)| name != last);
        if entries.len() == before {
            return false;
        }
        self.repairs.reported.insert(path.join("."));
        true
    }

    /// Removes what a flag or variable gave.
    fn remove_given(&mut self, path: &[String]) -> bool {
        let variable = self.variable(path);
        self.flags
            .remove(&path.join("."))
            .or_else(|| self.variables.remove(&variable))
            .is_some()
    }

    /// Puts something harmless where a field is missing.
    fn replace_missing(&mut self, path: &[String], field: &str) -> bool {
        let Some(node) = self.tree.find_mut(path) else {
            return false;
        };
        let aside = Node {
            value: Value::Aside,
            place: node.place.clone(),
        };
        match &mut node.value {
            Value::Map(entries) => entries.push((field.to_owned(), aside)),
            value => *value = Value::Map(vec![(field.to_owned(), aside)]),
        }
        true
    }

    /// Puts something harmless in place of an item of a list, whose number must not change.
    fn replace_item(&mut self, path: &[String]) -> bool {
        match self.tree.find_mut(path) {
            Some(node) if !path.is_empty() && !matches!(node.value, Value::Aside) => {
                node.value = Value::Aside;
                true
            }
            _ => self.remove_section(path),
        }
    }

    /// Removes the nearest entry at or above a path that can be removed.
    fn remove_section(&mut self, path: &[String]) -> bool {
        (1..=path.len())
            .rev()
            .any(|length| path.get(..length).is_some_and(|section| self.remove(section)))
    }
}
