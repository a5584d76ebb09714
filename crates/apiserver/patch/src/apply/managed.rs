// SPDX-License-Identifier: Apache-2.0
//! `metadata.managedFields`: reading, changing and writing the entries. Entries stay in their
//! encoded form until something in them changes, and untouched ones are written back as they were.

use std::collections::BTreeMap;

use cobaltcore_text::go;
use serde_json::{Map, Value};

use super::set::{FieldSet, encoded_owns, encoded_touches};
use super::time::unix_seconds;

/// Most entries of operation Update; older ones are merged.
const MAX_UPDATERS: usize = 10;
/// The manager old Update entries are merged into.
const ANCIENT: &str = "ancient-changes";

/// Who writes: the request's manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manager<'a> {
    /// The `fieldManager`, or what stands in for it; empty becomes `unknown`.
    pub(crate) name: &'a str,
    /// Whether the request is an apply; everything else is an update.
    pub(crate) apply: bool,
    /// `group/version` (or `v1`) of the request.
    pub(crate) api_version: &'a str,
    /// The subresource, `None` on the main endpoint.
    pub(crate) subresource: Option<&'a str>,
}

impl Manager<'_> {
    pub(crate) fn entry(&self, set: FieldSet, time: Option<String>) -> Entry<'static> {
        Entry {
            manager: if self.name.is_empty() {
                "unknown".to_owned()
            } else {
                self.name.to_owned()
            },
            apply: self.apply,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.unwrap_or_default().to_owned(),
            time,
            fields: Fields::Decoded(set),
            stored_at: None,
        }
    }
}

/// The paths of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Fields<'a> {
    Encoded(&'a Value),
    Decoded(FieldSet),
}

/// One entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) manager: String,
    pub(crate) apply: bool,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields<'a>,
    /// Where the entry is stored, while nothing but its time has changed.
    stored_at: Option<usize>,
}

impl<'a> Entry<'a> {
    fn read(value: &'a Value, position: usize) -> Result<Self, String> {
        let Value::Object(map) = value else {
            return Err(format!("managed fields entry {position} is not an object"));
        };
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let apply = match text("operation") {
            "Apply" => true,
            "Update" => false,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {position}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {position}",
                    go::quote(other)
                ));
            }
        }
        let fields = map.get("fieldsV1").filter(|f| !f.is_null());
        Ok(Self {
            manager: text("manager").to_owned(),
            apply,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: map.get("time").and_then(Value::as_str).map(str::to_owned),
            fields: fields.map_or_else(|| Fields::Decoded(FieldSet::new()), Fields::Encoded),
            stored_at: Some(position),
        })
    }

    /// The identity under which the manager is known; the order of identities is the order of
    /// conflicts. An Apply entry is the same whatever version it was written through.
    pub(crate) fn identity(&self) -> String {
        let mut map = String::with_capacity(96);
        map.push('{');
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                if map.len() > 1 {
                    map.push(',');
                }
                map.push('"');
                map.push_str(name);
                map.push_str("\":");
                if value.bytes().all(is_plain) {
                    map.push('"');
                    map.push_str(value);
                    map.push('"');
                } else {
                    map.push_str(&go::json(&Value::String(value.to_owned())));
                }
            }
        };
        put("manager", &self.manager);
        put("operation", if self.apply { "Apply" } else { "Update" });
        if !self.apply {
            put("apiVersion", &self.api_version);
        }
        put("subresource", &self.subresource);
        map.push('}');
        map
    }

    /// The manager in the words of conflicts.
    pub(crate) fn described(&self) -> String {
        let mut text = go::quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&go::quote(&self.subresource));
        }
        if !self.apply {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }

    /// The paths, decoded. What cannot be decoded owns nothing.
    pub(crate) fn set(&self) -> FieldSet {
        match &self.fields {
            Fields::Encoded(value) => FieldSet::from_fields_v1(value).unwrap_or_default(),
            Fields::Decoded(set) => set.clone(),
        }
    }

    /// The paths, taken out of the entry.
    pub(crate) fn take_set(&mut self) -> FieldSet {
        match &mut self.fields {
            Fields::Encoded(value) => FieldSet::from_fields_v1(value).unwrap_or_default(),
            Fields::Decoded(set) => std::mem::take(set),
        }
    }

    /// Whether the entry owns any of these paths.
    pub(crate) fn touches(&self, set: &FieldSet) -> bool {
        match &self.fields {
            Fields::Encoded(value) => encoded_touches(value, set, &mut String::new()),
            Fields::Decoded(own) => !own.intersection(set).is_empty(),
        }
    }

    /// Whether the entry owns all of these paths.
    pub(crate) fn owns(&self, set: &FieldSet) -> bool {
        match &self.fields {
            Fields::Encoded(value) => encoded_owns(value, set, &mut String::new()),
            Fields::Decoded(own) => set.is_subset(own),
        }
    }

    pub(crate) fn replace_set(&mut self, set: FieldSet) {
        self.fields = Fields::Decoded(set);
        self.stored_at = None;
    }

    pub(crate) fn set_time(&mut self, time: Option<String>) {
        self.time = time;
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Encoded(value) => value.as_object().is_some_and(Map::is_empty),
            Fields::Decoded(set) => set.is_empty(),
        }
    }

    fn write(self, stored: &mut Stored<'_>) -> Value {
        if let Some(mut value) = self.stored_at.and_then(|at| stored.take(at)) {
            put_time(&mut value, self.time);
            return value;
        }
        let mut map = Map::new();
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                map.insert(name.to_owned(), Value::String(value));
            }
        };
        put("manager", self.manager);
        put(
            "operation",
            if self.apply { "Apply" } else { "Update" }.to_owned(),
        );
        put("apiVersion", self.api_version);
        put("subresource", self.subresource);
        put("time", self.time.unwrap_or_default());
        put("fieldsType", "FieldsV1".to_owned());
        let fields = match self.fields {
            Fields::Encoded(value) => value.clone(),
            Fields::Decoded(set) => set.to_fields_v1(),
        };
        map.insert("fieldsV1".to_owned(), fields);
        Value::Object(map)
    }

    fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(unix_seconds).unwrap_or_default()
    }
}

/// Moves the time of a stored entry, if it moved.
fn put_time(entry: &mut Value, time: Option<String>) {
    let Value::Object(fields) = entry else { return };
    let stored = fields.get("time").and_then(Value::as_str);
    match time {
        time if time.as_deref() == stored => {}
        Some(time) => {
            fields.insert("time".to_owned(), Value::String(time));
        }
        None => {
            fields.remove("time");
        }
    }
}

/// Whether a byte stands for itself in JSON, however it is written.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b' ')
}

/// The list the entries were read from, for those that are written back as they were.
pub(crate) enum Stored<'a> {
    /// Only to look at.
    Borrowed(&'a [Value]),
    /// A copy nobody else needs.
    Owned(Vec<Value>),
}

impl<'a> Stored<'a> {
    pub(crate) fn of(object: Option<&'a Value>) -> Self {
        let entries = object.and_then(managed_fields).and_then(Value::as_array);
        Self::Borrowed(entries.map_or(&[], Vec::as_slice))
    }

    fn take(&mut self, at: usize) -> Option<Value> {
        match self {
            Self::Borrowed(values) => values.get(at).cloned(),
            Self::Owned(values) => values.get_mut(at).map(Value::take),
        }
    }
}

/// All entries of an object by identity.
#[derive(Debug, Clone, Default)]
pub(crate) struct Managed<'a> {
    pub(crate) entries: BTreeMap<String, Entry<'a>>,
}

/// The managedFields of an object, if it has any.
pub(crate) fn managed_fields(object: &Value) -> Option<&Value> {
    object
        .get("metadata")?
        .get("managedFields")
        .filter(|v| !v.is_null())
}

impl<'a> Managed<'a> {
    /// Reads stored entries; their fields are decoded when needed.
    pub(crate) fn read(object: Option<&'a Value>) -> Result<Self, String> {
        Self::read_entries(object.and_then(managed_fields))
    }

    fn read_entries(value: Option<&'a Value>) -> Result<Self, String> {
        let items: &[Value] = match value {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => return Err("managedFields is not a list".to_owned()),
        };
        let mut entries = BTreeMap::new();
        for (i, item) in items.iter().enumerate() {
            let entry = Entry::read(item, i)?;
            entries.insert(entry.identity(), entry);
        }
        Ok(Self { entries })
    }

    /// Reads entries a client wrote: everything is decoded at once, so that malformed ones are
    /// noticed and the rest is stored in canonical form. `None` when any is malformed.
    pub(crate) fn read_foreign(value: &Value) -> Option<Self> {
        let foreign = Managed::read_entries(Some(value)).ok()?;
        let mut entries = BTreeMap::new();
        for (identity, entry) in foreign.entries {
            let set = match entry.fields {
                Fields::Encoded(fields) => FieldSet::from_fields_v1(fields).ok()?,
                Fields::Decoded(set) => set,
            };
            entries.insert(
                identity,
                Entry {
                    fields: Fields::Decoded(set),
                    stored_at: None,
                    ..entry
                },
            );
        }
        Some(Self { entries })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn drop_empty(&mut self) {
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    /// The entries in the order they are stored in.
    pub(crate) fn write(self, mut stored: Stored<'_>) -> Vec<Value> {
        let mut entries: Vec<Entry<'_>> = self.entries.into_values().collect();
        entries.sort_by(|a, b| {
            b.apply
                .cmp(&a.apply)
                .then_with(|| a.seconds().cmp(&b.seconds()))
                .then_with(|| a.manager.cmp(&b.manager))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        entries
            .into_iter()
            .map(|entry| entry.write(&mut stored))
            .collect()
    }

    /// Merges the oldest Update entries of each version until few enough are left.
    pub(crate) fn cap_updaters(&mut self) {
        let mut count = self.entries.values().filter(|entry| !entry.apply).count();
        if count <= MAX_UPDATERS {
            return;
        }
        let mut updaters: Vec<(i64, String)> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.apply)
            .map(|(identity, entry)| (entry.seconds(), identity.clone()))
            .collect();
        updaters.sort();
        let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
        for (_, identity) in updaters {
            if count <= MAX_UPDATERS {
                break;
            }
            let Some(version) = self.entries.get(&identity).map(|e| e.api_version.clone()) else {
                continue;
            };
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, identity);
                continue;
            };
            let bucket = Manager {
                name: ANCIENT,
                apply: false,
                api_version: &version,
                subresource: None,
            };
            let mut entry = bucket.entry(FieldSet::new(), None);
            let bucket = entry.identity();
            if bucket == identity {
                continue;
            }
            let Some(mut merged) = self.entries.remove(&identity) else {
                continue;
            };
            let base = if self.entries.contains_key(&bucket) {
                &bucket
            } else {
                first
            };
            let base = self
                .entries
                .remove(base)
                .map(|mut e| e.take_set())
                .unwrap_or_default();
            entry.time.clone_from(&merged.time);
            entry.fields = Fields::Decoded(merged.take_set().union(base));
            self.entries.insert(bucket, entry);
            count -= 1;
        }
    }
}
