// SPDX-License-Identifier: Apache-2.0
//! The rules of ownership: what a write takes from whom, what an applier gives up and what that
//! removes, and when times move. Works on sets of paths; knows nothing of requests.

use std::sync::{Arc, LazyLock};

use cobaltcore_schema::Schema;
use serde_json::{Map, Value};

use super::compare::compare;
use super::fields::field_set;
use super::managed::{Entry, Fields, Managed, Manager};
use super::merge::{merge, remove};
use super::path::same;
use super::reconcile::{is_outdated, reconcile};
use super::set::{FieldSet, Filter};
use super::types::Ty;
use super::{ApplyRequest, UpdateRequest, Versions};

/// Why an apply stops: what other managers own, by their description.
pub(super) enum Refusal {
    Conflict(Vec<(String, FieldSet)>),
    IllTyped(String),
}

/// What an apply made of the live object.
pub(super) struct Outcome<'m> {
    /// The merged object, without managedFields.
    pub(super) object: Value,
    /// The new entries.
    pub(super) managed: Managed<'m>,
    /// Whether the object differs from the live one.
    pub(super) changed: bool,
}

/// Everything a request brings to the rules.
pub(super) struct Engine<'a> {
    schema: &'a Schema,
    versions: Option<Versions<'a>>,
    filter: &'a Filter,
    now: &'a str,
    manager: Manager<'a>,
}

/// A schema under which entries are read.
enum Reading<'a> {
    Main(&'a Schema),
    Other(Arc<Schema>),
}

impl Reading<'_> {
    fn ty(&self) -> Ty<'_> {
        match self {
            Self::Main(schema) => Ty::root(schema),
            Self::Other(schema) => Ty::root(schema),
        }
    }
}

/// Paths no entry ever lists.
fn stripped() -> &'static FieldSet {
    static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "deletionGracePeriodSeconds"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    &STRIPPED
}

impl<'a> Engine<'a> {
    pub(super) fn of_apply(request: &ApplyRequest<'a>) -> Self {
        let manager = Manager {
            name: request.manager,
            apply: true,
            api_version: request.api_version,
            subresource: request.subresource,
        };
        Self {
            schema: request.schema,
            versions: request.versions,
            filter: request.filter,
            now: request.now,
            manager,
        }
    }

    pub(super) fn of_update(request: &UpdateRequest<'a>) -> Self {
        let manager = Manager {
            name: request.manager,
            apply: false,
            api_version: request.api_version,
            subresource: request.subresource,
        };
        Self {
            schema: request.schema,
            versions: request.versions,
            filter: request.filter,
            now: request.now,
            manager,
        }
    }

    /// Writes through `scale` carry no time: the reference loses it on the way to the parent.
    fn time(&self) -> Option<String> {
        (self.manager.subresource != Some("scale")).then(|| self.now.to_owned())
    }

    fn reading(&self, api_version: &str) -> Option<Reading<'a>> {
        match self.versions {
            Some(find) if api_version != self.manager.api_version => {
                let schema = find(api_version)?;
                let same = std::ptr::eq(Arc::as_ref(&schema), self.schema);
                Some(if same {
                    Reading::Main(self.schema)
                } else {
                    Reading::Other(schema)
                })
            }
            _ => Some(Reading::Main(self.schema)),
        }
    }

    /// Drops entries of versions that are gone and fits the others to the present schema.
    fn refresh(&self, managed: &mut Managed<'_>) {
        managed.entries.retain(|_, entry| {
            let Some(reading) = self.reading(&entry.api_version) else {
                return false;
            };
            if let Fields::Encoded(fields) = entry.fields {
                if is_outdated(fields, reading.ty()) {
                    let set = reconcile(&entry.set(), reading.ty());
                    entry.replace_set(set);
                }
            } else {
                let set = entry.set();
                let reconciled = reconcile(&set, reading.ty());
                if reconciled != set {
                    entry.replace_set(reconciled);
                }
            }
            true
        });
    }

    /// Takes from every entry but `own` what the change from `old` to `new` touches, and says what
    /// it adds or modifies and what it removes. Without `force` the former, as opposed to the latter,
    /// are conflicts.
    fn disown(
        &self,
        old: &Value,
        new: &Value,
        managed: &mut Managed<'_>,
        own: Option<&str>,
        force: bool,
    ) -> Result<(FieldSet, FieldSet), Refusal> {
        let diff = |reading: &Reading<'_>| {
            compare(old, new, reading.ty())
                .map(|c| c.filtered(self.filter))
                .map_err(|e| Refusal::IllTyped(format!("failed to compare objects: {e}")))
        };
        let main = diff(&Reading::Main(self.schema))?;
        let main_removed = main.removed;
        let main_changed = main.modified.union(main.added);
        let mut others: Vec<(Arc<Schema>, FieldSet, FieldSet)> = Vec::new();
        let mut owners = Vec::new();
        for (identity, entry) in &mut managed.entries {
            if own == Some(identity.as_str()) {
                continue;
            }
            let (changed, removed) = match self.reading(&entry.api_version) {
                Some(Reading::Other(schema)) => {
                    if !others.iter().any(|(known, ..)| Arc::ptr_eq(known, &schema)) {
                        let c = diff(&Reading::Other(Arc::clone(&schema)))?;
                        others.push((Arc::clone(&schema), c.modified.union(c.added), c.removed));
                    }
                    match others.iter().find(|(known, ..)| Arc::ptr_eq(known, &schema)) {
                        Some((_, changed, removed)) => (changed, removed),
                        None => continue,
                    }
                }
                _ => (&main_changed, &main_removed),
            };
            let conflicting = !changed.is_empty() && entry.touches(changed);
            let shrinking = !removed.is_empty() && entry.touches(removed);
            if !conflicting && !shrinking {
                continue;
            }
            if conflicting && !force {
                owners.push((entry.described(), entry.set().intersection(changed)));
                continue;
            }
            let set = entry.take_set().difference(changed).difference(removed);
            entry.replace_set(set);
        }
        if !owners.is_empty() {
            return Err(Refusal::Conflict(owners));
        }
        managed.drop_empty();
        Ok((main_changed, main_removed))
    }

    /// Records a write that is not an apply.
    pub(super) fn update<'m>(
        &self,
        old: &Value,
        new: &Value,
        mut managed: Managed<'m>,
        manager: &Manager<'_>,
    ) -> Result<Managed<'m>, String> {
        self.refresh(&mut managed);
        let mut entry = manager.entry(FieldSet::new(), self.time());
        let identity = entry.identity();
        let own = managed.entries.remove(&identity);
        let (changed, removed) = match self.disown(old, new, &mut managed, None, true) {
            Ok(touched) => touched,
            Err(Refusal::IllTyped(text)) => return Err(text),
            Err(Refusal::Conflict(_)) => return Err("conflict without cause".to_owned()),
        };
        let own = match own {
            Some(own) if !own.touches(&changed) && !own.touches(&removed) => Some(own),
            // The usual case: a manager writes again what it owns, and only the time of that moves.
            Some(mut own) if own.owns(&changed) && !own.touches(&removed) && !own.touches(stripped()) => {
                own.set_time(self.time());
                managed.entries.insert(identity, own);
                managed.cap_updaters();
                return Ok(managed);
            }
            Some(mut own) => {
                let set = own.take_set().difference(&changed).difference(&removed);
                own.replace_set(set);
                Some(own)
            }
            None => None,
        };
        let own = own.filter(|own| !own.is_empty());
        let set = changed.difference(stripped());
        if set.is_empty() {
            managed.entries.extend(own.map(|own| (identity, own)));
        } else {
            let previous = own.map(|mut own| own.take_set()).unwrap_or_default();
            entry.fields = Fields::Decoded(set.union(previous));
            managed.entries.insert(identity, entry);
        }
        managed.cap_updaters();
        Ok(managed)
    }

    /// Merges a checked configuration.
    pub(super) fn apply<'m>(
        &self,
        live: &Value,
        config: &Value,
        mut managed: Managed<'m>,
        force: bool,
    ) -> Result<Outcome<'m>, Refusal> {
        let ty = Ty::root(self.schema);
        self.refresh(&mut managed);
        let mut merged = without_managed_fields(live);
        merge(&mut merged, config, ty)
            .map_err(|e| Refusal::IllTyped(format!("failed to merge config: {e}")))?;

        let set = self.filter.keep(field_set(config, ty));
        let mut entry = self.manager.entry(FieldSet::new(), None);
        let identity = entry.identity();
        let last = managed.entries.remove(&identity);
        let last_set = last.as_ref().map(Entry::set).unwrap_or_default();
        entry.time = last.as_ref().and_then(|l| l.time.clone());
        // What is listed again cannot go, and neither can what surrounds it.
        let gives_up = !last_set.is_subset(&set);
        entry.replace_set(set);
        managed.entries.insert(identity.clone(), entry);
        if let Some(last) = last.as_ref().filter(|_| gives_up) {
            merged = self.prune(merged, &managed, &last_set, &last.api_version);
        }
        self.disown(live, &merged, &mut managed, Some(&identity), force)?;

        let changed = !same_object(live, &merged);
        if let Some(entry) = managed.entries.get_mut(&identity) {
            let owned = entry.take_set().difference(stripped());
            match last {
                // The stored entry says the same and is kept.
                Some(last) if !changed && last.api_version == entry.api_version && last_set == owned => {
                    *entry = last;
                }
                _ => entry.replace_set(owned),
            }
            if changed {
                entry.set_time(self.time());
            }
        }
        managed.drop_empty();
        let object = if changed {
            merged
        } else {
            without_managed_fields(live)
        };
        Ok(Outcome {
            object,
            managed,
            changed,
        })
    }

    /// Takes out of `merged` what the manager listed last time, lists no more and nobody else owns.
    fn prune(&self, merged: Value, managed: &Managed<'_>, last_set: &FieldSet, version: &str) -> Value {
        let Some(reading) = self.reading(version) else {
            return merged;
        };
        let ty = reading.ty();
        let last_set = last_set.with_named_fields(ty);
        let mut pruned = merged.clone();
        remove(&mut pruned, &last_set, ty);
        for (reading, owned) in self.owned_by_version(managed, version) {
            let ty = reading.ty();
            let present = field_set(&merged, ty).with_named_fields(ty);
            let kept = field_set(&pruned, ty)
                .with_named_fields(ty)
                .union(owned.with_named_fields(ty));
            pruned.clone_from(&merged);
            remove(&mut pruned, &present.difference(&kept), ty);
        }
        let present = field_set(&merged, ty).with_named_fields(ty);
        let kept = field_set(&pruned, ty).with_named_fields(ty);
        let mut result = merged;
        remove(
            &mut result,
            &present.difference(&kept).intersection(&last_set),
            ty,
        );
        result
    }

    /// All owned paths by the schema they are read under, `first` version first.
    fn owned_by_version(&self, managed: &Managed<'_>, first: &str) -> Vec<(Reading<'a>, FieldSet)> {
        let mut versions: Vec<(&str, FieldSet)> = Vec::new();
        for entry in managed.entries.values() {
            match versions
                .iter_mut()
                .find(|(version, _)| *version == entry.api_version)
            {
                Some((_, set)) => *set = std::mem::take(set).union(entry.set()),
                None => versions.push((&entry.api_version, entry.set())),
            }
        }
        versions.sort_by_key(|(version, _)| *version != first);
        versions
            .into_iter()
            .filter_map(|(version, set)| Some((self.reading(version)?, set)))
            .collect()
    }
}

/// A copy of an object without its managedFields.
fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let mut copy = Map::new();
    for (key, value) in fields {
        let value = match value {
            Value::Object(meta) if key == "metadata" && meta.contains_key("managedFields") => {
                let kept = meta.iter().filter(|(key, _)| *key != "managedFields");
                Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            other => other.clone(),
        };
        copy.insert(key.clone(), value);
    }
    Value::Object(copy)
}

/// Whether `merged`, which has no managedFields, is otherwise the live object.
fn same_object(live: &Value, merged: &Value) -> bool {
    let (Value::Object(live), Value::Object(merged)) = (live, merged) else {
        return same(live, merged);
    };
    live.len() == merged.len()
        && live.iter().zip(merged).all(|((live_key, a), (merged_key, b))| {
            live_key == merged_key
                && match (a, b) {
                    (Value::Object(a), Value::Object(b)) if live_key == "metadata" => {
                        let mut a = a.iter().filter(|(key, _)| *key != "managedFields");
                        let mut b = b.iter();
                        loop {
                            match (a.next(), b.next()) {
                                (None, None) => break true,
                                (Some((ka, va)), Some((kb, vb))) if ka == kb && same(va, vb) => {}
                                _ => break false,
                            }
                        }
                    }
                    _ => same(a, b),
                }
        })
}
