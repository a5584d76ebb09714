// SPDX-License-Identifier: Apache-2.0
//! Conversion between kinds that share storage: the two event versions and the two autoscaler
//! versions. Nothing is lost on the way to storage and back; what an old version has no field for
//! travels in annotations, as in the reference.

use serde_json::{Value, json};

use crate::autoscaler;
use crate::json::{default, ensure, text};
use crate::kind::Kind;

/// Fields of an event: core name, name in events.k8s.io.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// What a core event always says and the other leaves out when it is empty.
const REPORTED: [&str; 2] = ["reportingComponent", "reportingInstance"];

impl Kind {
    /// Turns an object of this kind into one of another that shares its storage. Converting to the
    /// same kind changes nothing.
    pub fn convert_to(&self, other: &Kind, object: &mut Value) {
        if (self.group, self.version) == (other.group, other.version) || self.kind != other.kind {
            return;
        }
        match (self.kind, other.group, other.version) {
            ("Event", "", _) => {
                rename(object, |pair| (pair.1, pair.0));
                for name in REPORTED {
                    default(ensure(object, ""), name, "");
                }
            }
            ("Event", _, _) => {
                for name in REPORTED {
                    if text(object, name).is_empty() {
                        ensure(object, "").remove(name);
                    }
                }
                rename(object, |pair| (pair.0, pair.1));
            }
            ("HorizontalPodAutoscaler", _, "v2") => autoscaler::to_v2(object),
            ("HorizontalPodAutoscaler", _, "v1") => autoscaler::to_v1(object),
            _ => {}
        }
        if object.get("apiVersion").is_some() {
            ensure(object, "").insert("apiVersion".to_owned(), json!(other.api_version()));
        }
    }
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = ensure(object, "");
    for pair in EVENT {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
