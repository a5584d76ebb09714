// SPDX-License-Identifier: Apache-2.0
//! The log of everything a test server stored: which object, by whom, and what changed. It shows
//! controllers that write without need, and controllers that fight over a field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cobaltcore_patch::apply::FieldSet;
use serde_json::Value;

use crate::store::{Event, Op, Record};

/// One change the server stored.
#[derive(Clone)]
pub struct WriteEntry {
    /// `plural.group`, or the plural alone for the core group.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `added`, `modified` or `deleted`.
    pub operation: &'static str,
    /// Revision.
    pub revision: u64,
    old: Option<Arc<Record>>,
    new: Arc<Record>,
}

impl WriteEntry {
    pub(super) fn new(resource: String, event: &Event) -> Self {
        Self {
            resource,
            namespace: event.key.namespace.to_string(),
            name: event.key.name.to_string(),
            operation: match event.op {
                Op::Added => "added",
                Op::Modified => "modified",
                Op::Deleted => "deleted",
            },
            revision: event.revision,
            old: event.old.clone(),
            new: event.new.clone(),
        }
    }

    /// Who made it: the field managers whose entries are not what they were.
    pub fn managers(&self) -> BTreeSet<String> {
        let before = self.old.as_ref().map(|old| old.parse()).unwrap_or_default();
        let known = entries(&before);
        entries(&self.new.parse())
            .iter()
            .filter(|entry| !known.contains(entry))
            .map(manager)
            .collect()
    }

    /// What it changed, as JSON pointers with the value before and after; the server's own
    /// bookkeeping is left out.
    pub fn changes(&self) -> Vec<String> {
        let before = self.old.as_ref().map(|old| old.parse()).unwrap_or_default();
        let after = match self.operation {
            "deleted" => Value::Null,
            _ => self.new.parse(),
        };
        let mut found = Vec::new();
        differences(&mut String::new(), &before, &after, &mut found);
        found
    }

    /// Fields that went from one manager to another with this change: path, from, to.
    fn handed_over(&self) -> Vec<(String, String, String)> {
        let Some(old) = &self.old else { return Vec::new() };
        let (before, after) = (ownership(&old.parse()), ownership(&self.new.parse()));
        let mut handed = Vec::new();
        for (to, now) in &after {
            let gained = match before.get(to) {
                Some(earlier) => now.clone().difference(earlier),
                None => now.clone(),
            };
            for (from, earlier) in before.iter().filter(|(from, _)| *from != to) {
                let kept = after.get(from).cloned().unwrap_or_default();
                let lost = earlier.clone().difference(&kept);
                gained.intersection(&lost).each_path(&mut |path| {
                    let path = path.iter().map(ToString::to_string).collect();
                    handed.push((path, from.clone(), to.clone()));
                });
            }
        }
        handed
    }
}

impl fmt::Debug for WriteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = format!("{} {}/{}", self.resource, self.namespace, self.name);
        f.debug_struct("WriteEntry")
            .field("object", &object)
            .field("operation", &self.operation)
            .field("revision", &self.revision)
            .field("managers", &self.managers())
            .field("changes", &self.changes())
            .finish_non_exhaustive()
    }
}

/// Fields that changed hands more often than `limit`, each with the managers that took it.
pub(super) fn contested(log: &[WriteEntry], limit: usize) -> Vec<String> {
    let mut taken: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for entry in log {
        let object = format!("{} {}/{}", entry.resource, entry.namespace, entry.name);
        for (path, _, to) in entry.handed_over() {
            taken.entry((object.clone(), path)).or_default().push(to);
        }
    }
    taken
        .into_iter()
        .filter(|(_, takers)| takers.len() > limit)
        .map(|((object, path), takers)| {
            format!(
                "{object} {path}: taken {} times, by {}",
                takers.len(),
                takers.join(", ")
            )
        })
        .collect()
}

fn entries(object: &Value) -> Vec<Value> {
    let list = object.pointer("/metadata/managedFields");
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn manager(entry: &Value) -> String {
    entry["manager"].as_str().unwrap_or_default().to_owned()
}

fn ownership(object: &Value) -> BTreeMap<String, FieldSet> {
    let mut owned: BTreeMap<String, FieldSet> = BTreeMap::new();
    for entry in entries(object) {
        if let Ok(fields) = FieldSet::from_fields_v1(&entry["fieldsV1"]) {
            let all = owned.entry(manager(&entry)).or_default();
            *all = std::mem::take(all).union(fields);
        }
    }
    owned
}

fn differences(at: &mut String, before: &Value, after: &Value, found: &mut Vec<String>) {
    const OWN: [&str; 3] = [
        "/metadata/managedFields",
        "/metadata/resourceVersion",
        "/metadata/generation",
    ];
    if before == after || OWN.contains(&at.as_str()) {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        found.push(format!("{at}: {before} -> {after}"));
        return;
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let length = at.len();
        at.push('/');
        at.push_str(name);
        let side = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
        differences(at, &side(old), &side(new), found);
        at.truncate(length);
    }
}
