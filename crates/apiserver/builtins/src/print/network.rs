// SPDX-License-Identifier: Apache-2.0
//! Rows of services, endpoints, ingresses, policies and nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Cells, or_none, selector};
use crate::json::{at, entries, flag, int, list, map, number, strings, text};
use crate::selector::labels_text;

/// How many entries a cell lists before it counts the rest.
const SHOWN: usize = 3;

pub(super) fn service(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let internal = list(object, "spec.clusterIPs").first().and_then(Value::as_str);
    let internal = internal
        .or_else(|| at(object, "spec.clusterIP").and_then(Value::as_str))
        .unwrap_or_default();
    let ports: Vec<String> = list(object, "spec.ports")
        .iter()
        .map(|port| match number(port, "nodePort") {
            0 => format!("{}/{}", number(port, "port"), text(port, "protocol")),
            node => format!("{}:{node}/{}", number(port, "port"), text(port, "protocol")),
        })
        .collect();
    vec![
        cells.name(),
        json!(text(object, "spec.type")),
        or_none(internal),
        json!(external_address(object)),
        or_none(&ports.join(",")),
        cells.age(),
        or_none(&labels_text(map(object, "spec.selector"))),
    ]
}

fn external_address(object: &Value) -> String {
    let own = strings(object, "spec.externalIPs").join(",");
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" => {
            if own.is_empty() {
                "<none>".to_owned()
            } else {
                own
            }
        }
        "LoadBalancer" => {
            let balanced = ingress_points(object);
            match (balanced.is_empty(), own.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => own,
                (false, true) => balanced,
                (false, false) => format!("{balanced},{own}"),
            }
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn ingress_points(object: &Value) -> String {
    let points: BTreeSet<&str> = list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|point| {
            if text(point, "ip").is_empty() {
                text(point, "hostname")
            } else {
                text(point, "ip")
            }
        })
        .filter(|point| !point.is_empty())
        .collect();
    points.into_iter().collect::<Vec<_>>().join(",")
}

fn shortened(parts: &[String], empty: &str) -> String {
    let shown = parts.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(",");
    if parts.len() > SHOWN {
        format!("{shown} + {} more...", parts.len() - SHOWN)
    } else if shown.is_empty() {
        empty.to_owned()
    } else {
        shown
    }
}

pub(super) fn endpoints(cells: &Cells<'_>) -> Vec<Value> {
    let mut parts = Vec::new();
    for subset in list(cells.object, "subsets") {
        let addresses = list(subset, "addresses");
        let ports = list(subset, "ports");
        if ports.is_empty() {
            parts.extend(addresses.iter().map(|address| text(address, "ip").to_owned()));
        }
        for port in ports {
            for address in addresses {
                let ip = text(address, "ip");
                let host = if ip.contains(':') {
                    format!("[{ip}]")
                } else {
                    ip.to_owned()
                };
                parts.push(format!("{host}:{}", number(port, "port")));
            }
        }
    }
    let none = if list(cells.object, "subsets").is_empty() {
        "<none>"
    } else {
        ""
    };
    vec![cells.name(), json!(shortened(&parts, none)), cells.age()]
}

pub(super) fn slice(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let ports: Vec<String> = list(object, "ports")
        .iter()
        .map(
            |port| match (int(port, "port"), at(port, "name").and_then(Value::as_str)) {
                (Some(number), _) => number.to_string(),
                (None, Some(name)) => name.to_owned(),
                _ => "*".to_owned(),
            },
        )
        .collect();
    let addresses: Vec<String> = list(object, "endpoints")
        .iter()
        .flat_map(|endpoint| strings(endpoint, "addresses"))
        .map(str::to_owned)
        .collect();
    vec![
        cells.name(),
        json!(text(object, "addressType")),
        json!(shortened(&ports, "<unset>")),
        json!(shortened(&addresses, "<unset>")),
        cells.age(),
    ]
}

pub(super) fn ingress(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let rules = list(object, "spec.rules");
    let hosts: Vec<&str> = rules
        .iter()
        .map(|rule| text(rule, "host"))
        .filter(|host| !host.is_empty())
        .collect();
    let shown = hosts.iter().take(SHOWN).copied().collect::<Vec<_>>().join(",");
    // Rules after the third named host count, whether they name one or not.
    let third = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| !text(rule, "host").is_empty())
        .nth(SHOWN - 1)
        .map(|(at, _)| at);
    let hosts = match third {
        _ if hosts.is_empty() => "*".to_owned(),
        Some(at) if at + 1 < rules.len() => {
            format!("{shown} + {} more...", rules.len().saturating_sub(SHOWN))
        }
        _ => shown,
    };
    let ports = if list(object, "spec.tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        cells.name(),
        at(object, "spec.ingressClassName")
            .cloned()
            .unwrap_or(json!("<none>")),
        json!(hosts),
        json!(ingress_points(object)),
        json!(ports),
        cells.age(),
    ]
}

pub(super) fn ingress_class(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let name = default_marked(object, "ingressclass.kubernetes.io/is-default-class");
    let parameters = at(object, "spec.parameters").map_or("<none>".to_owned(), |parameters| {
        let group = at(parameters, "apiGroup")
            .and_then(Value::as_str)
            .map(|group| format!(".{group}"));
        format!(
            "{}{}/{}",
            text(parameters, "kind"),
            group.unwrap_or_default(),
            text(parameters, "name")
        )
    });
    vec![
        json!(name),
        json!(text(object, "spec.controller")),
        json!(parameters),
        cells.age(),
    ]
}

/// The name, marked when an annotation makes the object the default of its kind.
pub(super) fn default_marked(object: &Value, annotation: &str) -> String {
    let name = text(object, "metadata.name");
    let marked =
        entries(object, "metadata.annotations").any(|(key, value)| key == annotation && value == "true");
    if marked {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}

pub(super) fn policy(cells: &Cells<'_>) -> Vec<Value> {
    vec![
        cells.name(),
        selector(cells.object, "spec.podSelector"),
        cells.age(),
    ]
}

pub(super) fn node(cells: &Cells<'_>) -> Vec<Value> {
    let object = cells.object;
    let ready = list(object, "status.conditions")
        .iter()
        .rev()
        .find(|c| text(c, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(object, "spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text(object, &format!("status.nodeInfo.{field}")).to_owned();
    let unknown = |text: String| {
        if text.is_empty() {
            "<unknown>".to_owned()
        } else {
            text
        }
    };
    let mut kernel = unknown(info("kernelVersion"));
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    vec![
        cells.name(),
        json!(status),
        or_none(&roles(object)),
        cells.age(),
        json!(info("kubeletVersion")),
        address(object, "InternalIP"),
        address(object, "ExternalIP"),
        json!(unknown(info("osImage"))),
        json!(kernel),
        json!(unknown(info("containerRuntimeVersion"))),
    ]
}

fn roles(object: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in entries(object, "metadata.labels") {
        if let Some(role) = key
            .strip_prefix("node-role.kubernetes.io/")
            .filter(|role| !role.is_empty())
        {
            roles.insert(role);
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str().filter(|role| !role.is_empty()));
        }
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address(object: &Value, kind: &str) -> Value {
    let found = list(object, "status.addresses")
        .iter()
        .find(|address| text(address, "type") == kind);
    found.map_or(json!("<none>"), |address| json!(text(address, "address")))
}

pub(super) fn assigned(cells: &Cells<'_>) -> Vec<Value> {
    let parent = at(cells.object, "spec.parentRef").map(|parent| {
        let group = text(parent, "group");
        let resource = text(parent, "resource");
        let mut shown = if group.is_empty() {
            resource.to_lowercase()
        } else {
            format!("{resource}.{group}").to_lowercase()
        };
        for part in [text(parent, "namespace"), text(parent, "name")] {
            if !part.is_empty() {
                shown.push('/');
                shown.push_str(part);
            }
        }
        shown
    });
    vec![cells.name(), or_none(&parent.unwrap_or_default())]
}

pub(super) fn range(cells: &Cells<'_>) -> Vec<Value> {
    vec![
        cells.name(),
        json!(strings(cells.object, "spec.cidrs").join(",")),
        cells.age(),
    ]
}
