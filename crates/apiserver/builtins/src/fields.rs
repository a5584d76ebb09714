// SPDX-License-Identifier: Apache-2.0
//! Field selectors of built-in kinds: which labels a kind knows, what an object has there, and the
//! text for a label it does not know.

use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{flag, number, text};
use crate::kind::Kind;

const INVOLVED: [&str; 7] = [
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
];

impl Kind {
    /// The labels this kind supports, metadata first.
    pub fn field_labels(&self) -> Vec<&'static str> {
        let mut labels = vec!["metadata.name"];
        if self.knows_namespace() {
            labels.push("metadata.namespace");
        }
        labels.extend_from_slice(self.own_labels());
        labels
    }

    /// Kinds without labels of their own know both of the metadata, also where no object has a
    /// namespace: selecting one there is no mistake, it finds nothing.
    fn knows_namespace(&self) -> bool {
        self.namespaced || self.own_labels().is_empty()
    }

    fn own_labels(&self) -> &'static [&'static str] {
        match self.id() {
            ("", "Pod") => &[
                "spec.nodeName",
                "spec.host",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
            ("", "Node") => &["spec.unschedulable"],
            ("", "Namespace") => &["status.phase"],
            ("", "Secret") => &["type"],
            ("", "Service") => &["spec.clusterIP", "spec.type"],
            ("", "Event") => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            ("events.k8s.io", "Event") => &[
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "regarding.resourceVersion",
                "regarding.fieldPath",
                "reason",
                "reportingController",
                "type",
            ],
            ("batch", "Job") => &["status.successful"],
            ("", "ReplicationController") => &["status.replicas"],
            ("certificates.k8s.io", _) => &["spec.signerName"],
            ("resource.k8s.io", "ResourceSlice") => &["spec.nodeName", "spec.driver"],
            _ => &[],
        }
    }

    /// The value a selector on `label` is compared with, or nothing when the label is unknown.
    pub fn field(&self, object: &Value, label: &str) -> Option<String> {
        match label {
            "metadata.name" => return Some(text(object, label).to_owned()),
            "metadata.namespace" if self.knows_namespace() => return Some(text(object, label).to_owned()),
            _ => {}
        }
        if !self.own_labels().contains(&label) {
            return None;
        }
        Some(match label {
            "spec.host" => text(object, "spec.nodeName").to_owned(),
            "spec.hostNetwork" | "spec.unschedulable" => flag(object, label).to_string(),
            // Known to the selector parser, but no object has it there.
            "status.podIPs" => String::new(),
            "status.successful" => number(object, "status.succeeded").to_string(),
            "status.replicas" => number(object, label).to_string(),
            "source" => event_source(object),
            "reportingController" => text(object, "reportingController").to_owned(),
            _ => text(object, label).to_owned(),
        })
    }

    /// The text of the 400 answer for a label this kind does not know.
    pub fn unknown_field_label(&self, label: &str) -> String {
        if self.id() == ("batch", "Job") {
            return format!(
                "field label {label} not supported for Job",
                label = go::quote(label)
            );
        }
        if self.id() == ("resource.k8s.io", "ResourceSlice") {
            return format!(
                "field label not supported for {}, Kind={}: {label}",
                self.api_version(),
                self.kind
            );
        }
        if self.own_labels().is_empty() {
            return format!(
                "{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                label = go::quote(label)
            );
        }
        format!("field label not supported: {label}")
    }
}

fn event_source(object: &Value) -> String {
    let component = text(object, "source.component");
    let source = if component.is_empty() {
        text(object, "reportingComponent")
    } else {
        component
    };
    source.to_owned()
}

/// The labels of one event version in the words of the other, so that selectors work on stored objects.
pub fn event_label(label: &str, from_events_group: bool) -> String {
    let (own, other) = if from_events_group {
        ("regarding.", "involvedObject.")
    } else {
        ("involvedObject.", "regarding.")
    };
    if let Some(rest) = label.strip_prefix(own).filter(|rest| INVOLVED.contains(rest)) {
        return format!("{other}{rest}");
    }
    match (label, from_events_group) {
        ("reportingController", true) => "reportingComponent".to_owned(),
        ("reportingComponent", false) => "reportingController".to_owned(),
        _ => label.to_owned(),
    }
}
