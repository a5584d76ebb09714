// SPDX-License-Identifier: Apache-2.0
//! One stored state of one object: the JSON bytes exactly as served, plus the few facts that
//! selectors and the garbage collector need without parsing. Records are immutable and shared.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// Namespace (empty for cluster scope) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from borrowed parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Keys are sorted as paths, `namespace/name`, the way they lie in etcd: `a-b/x` comes before `a/x`.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (self.namespace.as_bytes(), other.namespace.as_bytes());
        let common = ours.len().min(theirs.len());
        ours[..common]
            .cmp(&theirs[..common])
            .then_with(|| match (ours.get(common), theirs.get(common)) {
                (Some(next), _) => next.cmp(&b'/'),
                (_, Some(next)) => b'/'.cmp(next),
                (None, None) => self.name.cmp(&other.name),
            })
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An object's uid in 16 bytes. Uids are version-4 UUIDs; anything else is hashed into the space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(u128);

impl Uid {
    /// Reads a uid.
    pub fn parse(text: &str) -> Self {
        if let Ok(id) = uuid::Uuid::try_parse(text) {
            Self(id.as_u128())
        } else {
            let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
            let mut bytes = [0u8; 16];
            for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
                *to = *from;
            }
            Self(u128::from_be_bytes(bytes))
        }
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_u128(self.0).fmt(f)
    }
}

/// One stored state.
#[derive(Debug)]
pub struct Record {
    /// Revision of the change that produced this state.
    pub revision: u64,
    /// The object as served in its storage version.
    pub body: Bytes,
    /// The facts read out of the object.
    pub facts: Facts,
    /// Generation of the schema the object was written under (custom resources).
    pub schema: u32,
}

impl Record {
    /// The object as a tree.
    pub fn parse(&self) -> Value {
        // Bodies are written by this server only; a body that does not parse is caught by `check`.
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// What selectors and inner controllers need of an object without parsing it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The object's uid.
    pub uid: Option<Uid>,
    /// Labels, sorted.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Uids of the owners.
    pub owners: Box<[Uid]>,
    /// Whether deletion has begun.
    pub deleting: bool,
}

impl Facts {
    /// Reads the facts off a tree.
    pub fn of(object: &Value) -> Self {
        let meta = &object["metadata"];
        let labels = meta["labels"].as_object().map_or_else(Box::default, |map| {
            map.iter()
                .map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into()))
                .collect()
        });
        let owners = meta["ownerReferences"]
            .as_array()
            .map_or_else(Box::default, |list| {
                list.iter()
                    .filter_map(|owner| owner["uid"].as_str())
                    .map(Uid::parse)
                    .collect()
            });
        Self {
            uid: meta["uid"].as_str().map(Uid::parse),
            labels,
            owners,
            deleting: meta["deletionTimestamp"].is_string(),
        }
    }

    /// Reads the facts off stored bytes. They stand in the metadata, which comes first; nothing
    /// behind it is looked at.
    pub fn scan(body: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta<'a> {
            #[serde(borrow, default)]
            uid: std::borrow::Cow<'a, str>,
            #[serde(default)]
            labels: std::collections::BTreeMap<Box<str>, Box<str>>,
            #[serde(default)]
            owner_references: Vec<Owner>,
            #[serde(default)]
            deletion_timestamp: Option<serde::de::IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Owner {
            #[serde(default)]
            uid: String,
        }
        let meta = without_envelope(body)
            .strip_prefix(b"\"metadata\":")
            .ok_or_else(|| serde::de::Error::custom("its metadata is not where it was written"))?;
        let meta = Meta::deserialize(&mut serde_json::Deserializer::from_slice(meta))?;
        Ok(Self {
            uid: (!meta.uid.is_empty()).then(|| Uid::parse(&meta.uid)),
            labels: meta.labels.into_iter().collect(),
            owners: meta
                .owner_references
                .iter()
                .map(|owner| Uid::parse(&owner.uid))
                .collect(),
            deleting: meta.deletion_timestamp.is_some(),
        })
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }
}

/// An object on its way into the store: serialised, with a gap where its revision will stand.
#[derive(Debug, Clone)]
pub struct Draft {
    head: Vec<u8>,
    tail: Vec<u8>,
    facts: Facts,
    schema: u32,
}

impl Draft {
    /// Serialises `object` (kind and apiVersion first, then metadata, then the rest) leaving a gap
    /// for the resource version.
    pub fn new(object: &Value, schema: u32) -> Self {
        let facts = Facts::of(object);
        let mut head = Vec::with_capacity(1024);
        let mut tail = Vec::new();
        write_object(object, &mut head, &mut tail);
        Self {
            head,
            tail,
            facts,
            schema,
        }
    }

    /// Size in bytes, without the revision.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Fills the gap.
    pub fn settle(self, revision: u64) -> Record {
        let digits = revision.to_string();
        // Exactly as long as needed: this is what stays in memory as long as the object does.
        let mut body = Vec::with_capacity(self.head.len() + digits.len() + self.tail.len());
        body.extend_from_slice(&self.head);
        body.extend_from_slice(digits.as_bytes());
        body.extend_from_slice(&self.tail);
        Record {
            revision,
            body: Bytes::from(body),
            facts: self.facts,
            schema: self.schema,
        }
    }
}

/// Writes `object`; everything up to and including `"resourceVersion":"` goes to `head`, the rest,
/// beginning with the closing quote, to `tail`.
fn write_object(object: &Value, head: &mut Vec<u8>, tail: &mut Vec<u8>) {
    write_envelope(object, head);
    head.extend_from_slice(b"\"metadata\":{");
    let empty = serde_json::Map::new();
    let meta = object["metadata"].as_object().unwrap_or(&empty);
    let mut first = true;
    let mut wrote_gap = false;
    for (key, value) in meta {
        if key == "resourceVersion" {
            continue;
        }
        if !wrote_gap && key.as_str() > "resourceVersion" {
            open_gap(head, first);
            tail.push(b'"');
            wrote_gap = true;
            first = false;
        }
        let out = if wrote_gap { &mut *tail } else { &mut *head };
        write_member(out, key, value, &mut first);
    }
    if !wrote_gap {
        open_gap(head, first);
        tail.push(b'"');
    }
    tail.push(b'}');
    for (key, value) in object.as_object().unwrap_or(&empty) {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            write_member(tail, key, value, &mut false);
        }
    }
    tail.push(b'}');
}

fn open_gap(head: &mut Vec<u8>, first: bool) {
    if !first {
        head.push(b',');
    }
    head.extend_from_slice(b"\"resourceVersion\":\"");
}

/// `{"kind":"X","apiVersion":"v1",`
fn write_envelope(object: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    write_value(out, &object["kind"]);
    out.extend_from_slice(b",\"apiVersion\":");
    write_value(out, &object["apiVersion"]);
    out.push(b',');
}

fn write_member(out: &mut Vec<u8>, key: &str, value: &Value, first: &mut bool) {
    if !*first {
        out.push(b',');
    }
    *first = false;
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
    write_value(out, value);
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    // Writing a JSON tree into a vector cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// An object in the order clients are used to: kind, apiVersion, metadata, the rest sorted.
pub(crate) fn serialize(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let Some(map) = object.as_object() else {
        write_value(&mut out, object);
        return out;
    };
    out.push(b'{');
    let mut first = true;
    for key in ["kind", "apiVersion", "metadata"] {
        if let Some(value) = map.get(key) {
            write_member(&mut out, key, value, &mut first);
        }
    }
    for (key, value) in map {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            write_member(&mut out, key, value, &mut first);
        }
    }
    out.push(b'}');
    out
}

/// The part of a stored body after kind and apiVersion, beginning with `"metadata"`: what stands
/// inside a list of a built-in kind, where items do not repeat their kind.
pub(crate) fn without_envelope(body: &[u8]) -> &[u8] {
    const MARK: &[u8] = b",\"metadata\":{";
    // Kind and apiVersion are short and contain no quotes, so the first match is the real one.
    let window = &body[..body.len().min(512)];
    match window.windows(MARK.len()).position(|w| w == MARK) {
        Some(at) => &body[at + 1..],
        None => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_revision_lands_in_the_gap() {
        for meta in [
            json!({"name": "a"}),
            json!({"name": "a", "uid": "x", "labels": {"z": "1"}}),
            json!({"resourceVersion": "9", "uid": "u"}),
            json!({}),
        ] {
            let object =
                json!({"apiVersion": "v1", "kind": "K", "metadata": meta, "data": {"resourceVersion": "7"}});
            let record = Draft::new(&object, 0).settle(42);
            let parsed = record.parse();
            assert_eq!(parsed["metadata"]["resourceVersion"], "42");
            assert_eq!(parsed["data"]["resourceVersion"], "7");
            assert!(
                record
                    .body
                    .starts_with(b"{\"kind\":\"K\",\"apiVersion\":\"v1\",\"metadata\":{")
            );
        }
    }

    #[test]
    fn scanned_facts_equal_parsed_ones() {
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {
            "uid": "6f1f0a3e-3d0d-4c62-8a55-0a54d9a1f0c1", "labels": {"a": "b\"c", "d": ""},
            "ownerReferences": [{"uid": "o1"}, {"uid": "o2"}], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let record = Draft::new(&object, 0).settle(1);
        let scanned = Facts::scan(&record.body).unwrap();
        assert_eq!(scanned.uid, record.facts.uid);
        assert_eq!(scanned.labels, record.facts.labels);
        assert_eq!(scanned.owners, record.facts.owners);
        assert!(scanned.deleting);
        assert_eq!(scanned.label("a"), Some("b\"c"));
    }

    #[test]
    fn list_items_lose_their_envelope() {
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}});
        let record = Draft::new(&object, 0).settle(1);
        assert!(without_envelope(&record.body).starts_with(b"\"metadata\":{"));
    }
}
