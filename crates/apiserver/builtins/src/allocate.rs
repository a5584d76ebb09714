// SPDX-License-Identifier: Apache-2.0
//! What a Service needs from the server before it can be validated. The order is: [`prepare_service`]
//! (keep what is already allocated, settle families), `Kind::prepare_update`, then fill everything
//! [`service_needs`] names, then validate.
//!
//! The server fills exactly these fields:
//! - `spec.clusterIP` and `spec.clusterIPs` (one address of the service range) when `cluster_ip` is set,
//! - `spec.ports[i].nodePort` for every listed `i`; ports with the same number and different protocols
//!   may share one,
//! - `spec.healthCheckNodePort` (out of the same range) when `health_check_port` is set.
//!
//! A value the client chose itself is not listed; the server checks that it is free and in range
//! (422, `spec.clusterIPs[0]` or `spec.ports[i].nodePort`, `provided port is already allocated`).

use cobaltcore_schema::FieldError;
use serde_json::{Map, Value, json};

use crate::json::{at, ensure, flag, list, list_mut, map, number, strings, text};

/// What is left to allocate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceNeeds {
    /// A cluster address.
    pub cluster_ip: bool,
    /// Node ports, by the position of the port.
    pub node_ports: Vec<usize>,
    /// A port for health checks.
    pub health_check_port: bool,
}

/// What the server has to allocate for a service.
pub fn service_needs(service: &Value) -> ServiceNeeds {
    let kind = text(service, "spec.type");
    let mut needs = ServiceNeeds {
        cluster_ip: kind != "ExternalName"
            && text(service, "spec.clusterIP").is_empty()
            && list(service, "spec.clusterIPs").is_empty(),
        node_ports: Vec::new(),
        health_check_port: kind == "LoadBalancer"
            && text(service, "spec.externalTrafficPolicy") == "Local"
            && number(service, "spec.healthCheckNodePort") == 0,
    };
    if wants_node_ports(service) {
        let open = list(service, "spec.ports").iter().enumerate();
        needs.node_ports = open
            .filter(|(_, port)| number(port, "nodePort") == 0)
            .map(|(at, _)| at)
            .collect();
    }
    needs
}

/// Takes over what the stored service already has, brings clusterIP and clusterIPs in line and settles
/// the address families of a cluster that knows only IPv4. Answers what cannot be settled.
pub fn prepare_service(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    normalise(service, old);
    families(service, old)
}

/// Whether every port of a service gets a node port, asked for or not.
fn wants_node_ports(service: &Value) -> bool {
    match text(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => {
            at(service, "spec.allocateLoadBalancerNodePorts").is_none()
                || flag(service, "spec.allocateLoadBalancerNodePorts")
        }
        _ => false,
    }
}

fn is_checked(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer" && text(service, "spec.externalTrafficPolicy") == "Local"
}

fn keep_allocated(new: &mut Value, old: &Value) {
    if text(old, "spec.type") != "ExternalName" && text(new, "spec.type") != "ExternalName" {
        for name in ["clusterIP", "clusterIPs"] {
            let unset = match at(new, &format!("spec.{name}")) {
                Some(Value::String(address)) => address.is_empty(),
                Some(Value::Array(addresses)) => addresses.is_empty(),
                _ => true,
            };
            if let Some(value) = at(old, &format!("spec.{name}")).filter(|_| unset).cloned() {
                ensure(new, "spec").insert(name.to_owned(), value);
            }
        }
    }
    if wants_node_ports(old) && wants_node_ports(new) {
        let given: Vec<i64> = list(new, "spec.ports")
            .iter()
            .map(|port| number(port, "nodePort"))
            .collect();
        for port in list_mut(new, "spec.ports") {
            let before = list(old, "spec.ports")
                .iter()
                .find(|known| text(known, "name") == text(port, "name"));
            let before = before.map_or(0, |known| number(known, "nodePort"));
            if number(port, "nodePort") == 0 && before != 0 && !given.contains(&before) {
                ensure(port, "").insert("nodePort".to_owned(), json!(before));
            }
        }
    }
    if is_checked(old) && is_checked(new) && number(new, "spec.healthCheckNodePort") == 0 {
        let port = number(old, "spec.healthCheckNodePort");
        ensure(new, "spec").insert("healthCheckNodePort".to_owned(), json!(port));
    }
}

fn normalise(new: &mut Value, old: Option<&Value>) {
    let single = text(new, "spec.clusterIP").to_owned();
    let Some(old) = old else {
        if !single.is_empty() && list(new, "spec.clusterIPs").is_empty() {
            ensure(new, "spec").insert("clusterIPs".to_owned(), json!([single]));
        }
        return;
    };
    let before = text(old, "spec.clusterIP");
    let untouched = at(new, "spec.clusterIPs") == at(old, "spec.clusterIPs");
    if before != single && untouched {
        let spec = ensure(new, "spec");
        if single.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".to_owned(), json!([single]));
        }
    }
}

fn families(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    if text(service, "spec.type") == "ExternalName" {
        return Vec::new();
    }
    let loose =
        text(service, "spec.clusterIP") == "None" && map(service, "spec.selector").is_none_or(Map::is_empty);
    if at(service, "spec.ipFamilyPolicy").is_none() {
        let kept = old.and_then(|old| at(old, "spec.ipFamilyPolicy")).cloned();
        let usual = json!(if loose { "RequireDualStack" } else { "SingleStack" });
        ensure(service, "spec").insert("ipFamilyPolicy".to_owned(), kept.unwrap_or(usual));
    }
    let policy = text(service, "spec.ipFamilyPolicy").to_owned();
    let mut errors = Vec::new();
    if policy == "SingleStack" {
        single_stack(service, &mut errors);
    }
    let mut known: Vec<String> = strings(service, "spec.ipFamilies")
        .into_iter()
        .map(str::to_owned)
        .collect();
    if loose {
        if known.is_empty() {
            known.push("IPv4".to_owned());
        }
        if known.len() < 2 && policy != "SingleStack" {
            let other = if known.first().is_some_and(|family| family == "IPv4") {
                "IPv6"
            } else {
                "IPv4"
            };
            known.push(other.to_owned());
        }
    } else {
        if policy == "RequireDualStack" {
            errors.push(FieldError::invalid(
                "spec.ipFamilyPolicy",
                &json!(policy),
                "this cluster is not configured for dual-stack services",
            ));
        }
        for (position, family) in known.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
            let field = format!("spec.ipFamilies[{position}]");
            errors.push(FieldError::invalid(
                field,
                &json!(family),
                "not configured on this cluster",
            ));
        }
        if known.is_empty() {
            known.push("IPv4".to_owned());
        }
    }
    ensure(service, "spec").insert("ipFamilies".to_owned(), json!(known));
    errors
}

fn single_stack(service: &Value, errors: &mut Vec<FieldError>) {
    for (field, words) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if list(service, &format!("spec.{field}")).len() == 2 {
            errors.push(FieldError::invalid(
                "spec.ipFamilyPolicy",
                &json!("SingleStack"),
                &format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {words} are specified"
                ),
            ));
        }
    }
}
