// SPDX-License-Identifier: Apache-2.0
//! Rows of events and of everything with one or two columns of its own.

use serde_json::{Map, Value, json};

use super::Cells;
use crate::json::{at, entries, int, list, map, number, text};
use crate::kind::Kind;
use crate::times::human_duration;

pub(super) fn event(cells: &Cells<'_>, group: &str) -> Vec<Value> {
    let object = cells.object;
    let new = group == "events.k8s.io";
    let pick = |old: &'static str, own: &'static str| if new { own } else { old };
    let or = |path: &str, other: String| {
        if at(object, path).is_some() {
            cells.since(path)
        } else {
            other
        }
    };
    let first = or(
        pick("firstTimestamp", "deprecatedFirstTimestamp"),
        cells.since("eventTime"),
    );
    let mut last = or(pick("lastTimestamp", "deprecatedLastTimestamp"), first.clone());
    let mut count = number(object, pick("count", "deprecatedCount")).max(1);
    if let Some(series) = at(object, "series") {
        last = cells.since("series.lastObservedTime");
        count = number(series, "count");
    }
    let about = at(object, pick("involvedObject", "regarding")).unwrap_or(&Value::Null);
    let kind = text(about, "kind").to_lowercase();
    let name = text(about, "name");
    let target = if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    };
    vec![
        json!(last),
        json!(text(object, "type")),
        json!(text(object, "reason")),
        json!(target),
        json!(text(about, "fieldPath")),
        json!(source(object, new)),
        json!(text(object, pick("message", "note")).trim()),
        json!(first),
        json!(count),
        cells.name(),
    ]
}

fn source(object: &Value, new: bool) -> String {
    let first = |a: &str, b: &str| {
        let given = text(object, a);
        if given.is_empty() {
            text(object, b).to_owned()
        } else {
            given.to_owned()
        }
    };
    let (component, instance) = if new {
        (
            first("deprecatedSource.component", "reportingController"),
            first("deprecatedSource.host", "reportingInstance"),
        )
    } else {
        (
            first("source.component", "reportingComponent"),
            first("source.host", "reportingInstance"),
        )
    };
    if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    }
}

pub(super) fn other(cells: &Cells<'_>, kind: &Kind) -> Vec<Value> {
    let object = cells.object;
    match kind.id() {
        ("", "Namespace") => vec![cells.name(), json!(text(object, "status.phase")), cells.age()],
        ("", "Secret") => {
            let size = map(object, "data").map_or(0, Map::len);
            vec![
                cells.name(),
                json!(text(object, "type")),
                json!(size),
                cells.age(),
            ]
        }
        ("", "ConfigMap") => {
            let size =
                map(object, "data").map_or(0, Map::len) + map(object, "binaryData").map_or(0, Map::len);
            vec![cells.name(), json!(size), cells.age()]
        }
        ("", "ServiceAccount") => vec![cells.name(), cells.age()],
        ("", "ResourceQuota") => quota(cells),
        ("coordination.k8s.io", _) => vec![
            cells.name(),
            json!(text(object, "spec.holderIdentity")),
            cells.age(),
        ],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(cells),
        ("scheduling.k8s.io", _) => vec![
            cells.name(),
            json!(number(object, "value")),
            json!(crate::json::flag(object, "globalDefault")),
            cells.age(),
            json!(text(object, "preemptionPolicy")),
        ],
        ("node.k8s.io", _) => vec![cells.name(), json!(text(object, "handler")), cells.age()],
        ("admissionregistration.k8s.io", kind) => admission(cells, kind),
        ("certificates.k8s.io", _) => request(cells),
        ("apiregistration.k8s.io", _) => api_service(cells),
        _ => vec![cells.name(), json!(text(object, "metadata.creationTimestamp"))],
    }
}

fn quota(cells: &Cells<'_>) -> Vec<Value> {
    let used = map(cells.object, "status.used");
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in entries(cells.object, "status.hard") {
        let amount = used
            .and_then(|used| used.get(name))
            .and_then(Value::as_str)
            .unwrap_or("0");
        let written = format!("{name}: {amount}/{}", hard.as_str().unwrap_or("0"));
        if name.starts_with("limits.") {
            limits.push(written);
        } else {
            requests.push(written);
        }
    }
    vec![
        cells.name(),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        cells.age(),
    ]
}

fn binding(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let role = format!(
        "{}/{}",
        text(object, "roleRef.kind"),
        text(object, "roleRef.name")
    );
    let subjects = |kind: &str| {
        list(object, "subjects")
            .iter()
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
                _ => text(subject, "name").to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    vec![
        cells.name(),
        json!(role),
        cells.age(),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}

fn admission(cells: &Cells<'_>, kind: &str) -> Vec<Value> {
    let object = cells.object;
    let param_kind = at(object, "spec.paramKind").map_or("<unset>".to_owned(), |kind| {
        format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind"))
    });
    match kind {
        "ValidatingAdmissionPolicy" => {
            vec![
                cells.name(),
                json!(list(object, "spec.validations").len()),
                json!(param_kind),
                cells.age(),
            ]
        }
        "MutatingAdmissionPolicy" => {
            vec![
                cells.name(),
                json!(list(object, "spec.mutations").len()),
                json!(param_kind),
                cells.age(),
            ]
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            let name = text(object, "spec.paramRef.name");
            let namespace = text(object, "spec.paramRef.namespace");
            let reference = match (name, namespace) {
                ("", _) => {
                    at(object, "spec.paramRef.selector").map_or("<unset>".to_owned(), Value::to_string)
                }
                (name, "") => format!("*/{name}"),
                (name, namespace) => format!("{namespace}/{name}"),
            };
            vec![
                cells.name(),
                json!(text(object, "spec.policyName")),
                json!(reference),
                cells.age(),
            ]
        }
        _ => vec![cells.name(), json!(list(object, "webhooks").len()), cells.age()],
    }
}

fn request(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let has = |kind: &str| {
        list(object, "status.conditions")
            .iter()
            .any(|c| text(c, "type") == kind)
    };
    let mut condition = if has("Denied") {
        "Denied".to_owned()
    } else if has("Approved") {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(object, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let duration =
        int(object, "spec.expirationSeconds").map_or("<none>".to_owned(), |s| human_duration(s as f64));
    vec![
        cells.name(),
        cells.age(),
        super::or_none(text(object, "spec.signerName")),
        json!(text(object, "spec.username")),
        json!(duration),
        json!(condition),
    ]
}

fn api_service(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let service = at(object, "spec.service").map_or("Local".to_owned(), |service| {
        format!("{}/{}", text(service, "namespace"), text(service, "name"))
    });
    let available = list(object, "status.conditions")
        .iter()
        .find(|c| text(c, "type") == "Available");
    let status = match available {
        None => "Unknown".to_owned(),
        Some(condition) => match (text(condition, "status"), text(condition, "reason")) {
            ("True", _) => "True".to_owned(),
            (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![cells.name(), json!(service), json!(status), cells.age()]
}
