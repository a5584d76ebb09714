// SPDX-License-Identifier: Apache-2.0
//! Rules of services. Addresses and node ports are allocated by the server before this runs; here it
//! is only checked that they fit together and do not change.

use std::collections::BTreeSet;

use cobaltcore_schema::Cause;
use serde_json::{Value, json};

use super::errors::Errors;
use crate::json::{at, int, list, number, same, strings, text};
use crate::names;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

fn is_headless(object: &Value) -> bool {
    list(object, "spec.clusterIPs")
        .first()
        .is_some_and(|ip| ip == "None")
        && list(object, "spec.clusterIPs").len() == 1
}

fn is_external(object: &Value) -> bool {
    match text(object, "spec.type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(object, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

fn is_checked(object: &Value) -> bool {
    text(object, "spec.type") == "LoadBalancer" && text(object, "spec.externalTrafficPolicy") == "Local"
}

pub(super) fn service(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let kind = text(object, "spec.type");
    let ports = list(object, "spec.ports");
    let headless = is_headless(object);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    by_type(errors, object, kind, headless);
    let mut seen = BTreeSet::new();
    for (position, port) in ports.iter().enumerate() {
        self::port(
            errors,
            port,
            ports.len() > 1,
            &mut seen,
            &format!("spec.ports[{position}]"),
        );
    }
    errors.labels(object, "spec.selector", "spec.selector");
    affinity(errors, object);
    cluster_ips(errors, object, old);
    let known: Vec<&str> = old
        .map(|old| strings(old, "spec.externalIPs"))
        .unwrap_or_default();
    for (position, ip) in strings(object, "spec.externalIPs").into_iter().enumerate() {
        let field = format!("spec.externalIPs[{position}]");
        let before = errors.list.len();
        errors.ip(ip, &field, &known);
        if errors.list.len() == before {
            errors.endpoint_ip(ip, &field);
        }
    }
    errors.choice(
        kind,
        "spec.type",
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    unique_ports(errors, ports, kind);
    balancer(errors, object, kind, old);
    traffic(errors, object, kind);
}

fn by_type(errors: &mut Errors, object: &Value, kind: &str, headless: bool) {
    match kind {
        "LoadBalancer" | "NodePort" if headless => errors.invalid(
            "spec.clusterIPs[0]",
            "None",
            &format!("may not be set to 'None' for {kind} services"),
        ),
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let path = format!("spec.{field}");
                let set = match at(object, &path) {
                    Some(Value::Array(items)) => !items.is_empty(),
                    other => other.is_some(),
                };
                if set {
                    errors.forbidden(path, "may not be set for ExternalName services");
                }
            }
            let name = text(object, "spec.externalName").trim_end_matches('.');
            if name.is_empty() {
                errors.required("spec.externalName", "");
            } else {
                errors.all("spec.externalName", name, names::dns1123_subdomain(name));
            }
        }
        _ => {}
    }
}

fn port<'a>(errors: &mut Errors, port: &'a Value, named: bool, seen: &mut BTreeSet<&'a str>, path: &str) {
    let name = text(port, "name");
    if name.is_empty() {
        if named {
            errors.required(format!("{path}.name"), "");
        }
    } else {
        errors.all(&format!("{path}.name"), name, names::dns1123_label(name));
        if !seen.insert(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
    }
    errors.port(number(port, "port"), &format!("{path}.port"));
    errors.choice(
        text(port, "protocol"),
        &format!("{path}.protocol"),
        &["SCTP", "TCP", "UDP"],
    );
    errors.port_or_name(at(port, "targetPort"), &format!("{path}.targetPort"));
    if let Some(protocol) = at(port, "appProtocol").and_then(Value::as_str) {
        errors.all(
            &format!("{path}.appProtocol"),
            protocol,
            names::qualified_name(protocol),
        );
    }
}

fn affinity(errors: &mut Errors, object: &Value) {
    errors.choice(
        text(object, "spec.sessionAffinity"),
        "spec.sessionAffinity",
        &["ClientIP", "None"],
    );
    if text(object, "spec.sessionAffinity") == "ClientIP" {
        const FIELD: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        if let Some(seconds) = int(object, FIELD).filter(|seconds| !(1..=86400).contains(seconds)) {
            errors.invalid(FIELD, seconds, "must be greater than 0 and less than 86400");
        }
    }
}

fn cluster_ips(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if text(object, "spec.type") == "ExternalName" {
        return;
    }
    let single = text(object, "spec.clusterIP");
    let all = strings(object, "spec.clusterIPs");
    let shown = || json!(list(object, "spec.clusterIPs"));
    match (single.is_empty(), all.first()) {
        (false, None) => errors.required("spec.clusterIPs", ""),
        (false, Some(first)) if *first != single => {
            errors.invalid("spec.clusterIPs", shown(), "first value must match `clusterIP`");
        }
        (true, Some(_)) => {
            errors.invalid(
                "spec.clusterIPs",
                shown(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        _ => {}
    }
    families(errors, object);
    let known: Vec<&str> = old.map(|old| strings(old, "spec.clusterIPs")).unwrap_or_default();
    let before = errors.list.len();
    for (position, ip) in all.iter().enumerate() {
        if position == 0 && *ip == "None" {
            if all.len() > 1 {
                errors.invalid(
                    "spec.clusterIPs",
                    shown(),
                    "'None' must be the first and only value",
                );
            }
            continue;
        }
        errors.ip(ip, &format!("spec.clusterIPs[{position}]"), &known);
    }
    let valid = errors.list.len() == before;
    if all.len() > 2 {
        errors.invalid("spec.clusterIPs", shown(), "may only hold up to 2 values");
    }
    if valid {
        stacks(errors, object, &all, &shown());
    }
}

fn families(errors: &mut Errors, object: &Value) {
    let mut seen = BTreeSet::new();
    for (position, family) in strings(object, "spec.ipFamilies").into_iter().enumerate() {
        let field = format!("spec.ipFamilies[{position}]");
        if !FAMILIES.contains(&family) {
            errors.not_supported(field.as_str(), family, &FAMILIES);
        }
        if !seen.insert(family) {
            errors.duplicate(field, family);
        }
    }
    errors.optional_choice(
        at(object, "spec.ipFamilyPolicy"),
        "spec.ipFamilyPolicy",
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
}

fn stacks(errors: &mut Errors, object: &Value, all: &[&str], shown: &Value) {
    let six = |ip: &str| ip.contains(':');
    if let [first, second] = all
        && six(first) == six(second)
    {
        errors.invalid(
            "spec.clusterIPs",
            shown.clone(),
            "may specify no more than one IP for each IP family",
        );
    }
    if is_headless(object) {
        return;
    }
    for (position, (ip, family)) in all.iter().zip(strings(object, "spec.ipFamilies")).enumerate() {
        if six(ip) != (family == "IPv6") {
            errors.invalid(
                format!("spec.clusterIPs[{position}]"),
                *ip,
                &format!("expected an {family} value as indicated by `ipFamilies[{position}]`"),
            );
        }
    }
}

fn unique_ports(errors: &mut Errors, ports: &[Value], kind: &str) {
    let (mut node_ports, mut own) = (BTreeSet::new(), BTreeSet::new());
    for (position, port) in ports.iter().enumerate() {
        let node = number(port, "nodePort");
        if kind == "ClusterIP" && node != 0 {
            errors.forbidden(
                format!("spec.ports[{position}].nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    for (position, port) in ports.iter().enumerate() {
        let (protocol, node) = (text(port, "protocol"), number(port, "nodePort"));
        if node != 0 && !node_ports.insert((protocol, node)) {
            errors.duplicate(format!("spec.ports[{position}].nodePort"), node);
        }
    }
    for (position, port) in ports.iter().enumerate() {
        let (protocol, number) = (text(port, "protocol"), number(port, "port"));
        if !own.insert((protocol, number)) {
            // The reference prints its internal struct.
            errors.raw(
                Cause::Duplicate,
                format!("spec.ports[{position}]"),
                format!(
                    "Duplicate value: {{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
                ),
            );
        }
    }
}

fn balancer(errors: &mut Errors, object: &Value, kind: &str, old: Option<&Value>) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let ranges = strings(object, "spec.loadBalancerSourceRanges");
    if !ranges.is_empty() {
        if kind != "LoadBalancer" {
            errors.forbidden("spec.LoadBalancerSourceRanges", ONLY);
        }
        let known: Vec<&str> = old
            .map(|old| strings(old, "spec.loadBalancerSourceRanges"))
            .unwrap_or_default();
        for (position, range) in ranges.iter().enumerate() {
            errors.cidr(
                range.trim(),
                &format!("spec.LoadBalancerSourceRanges[{position}]"),
                &known,
            );
        }
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if kind != "LoadBalancer" && at(object, &format!("spec.{field}")).is_some() {
            errors.forbidden(format!("spec.{field}"), ONLY);
        }
    }
    let class = text(object, "spec.loadBalancerClass");
    if kind == "LoadBalancer" && !class.is_empty() {
        errors.all("spec.loadBalancerClass", class, names::qualified_name(class));
    }
}

fn traffic(errors: &mut Errors, object: &Value, kind: &str) {
    let policy = text(object, "spec.externalTrafficPolicy");
    if is_external(object) {
        errors.choice(policy, "spec.externalTrafficPolicy", &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.invalid(
            "spec.externalTrafficPolicy",
            policy,
            "may only be set for externally-accessible services",
        );
    }
    let check = number(object, "spec.healthCheckNodePort");
    match (is_checked(object), check) {
        (false, 0) => {}
        (false, port) => errors.invalid(
            "spec.healthCheckNodePort",
            port,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        (true, 0) => errors.required("spec.healthCheckNodePort", ""),
        (true, port) => errors.port(port, "spec.healthCheckNodePort"),
    }
    let internal = at(object, "spec.internalTrafficPolicy");
    if internal.is_none() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required("spec.internalTrafficPolicy", "");
    }
    errors.optional_choice(internal, "spec.internalTrafficPolicy", &["Cluster", "Local"]);
    errors.optional_choice(
        at(object, "spec.trafficDistribution"),
        "spec.trafficDistribution",
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// What may not change in a service that exists.
pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    if text(new, "spec.type") != "ExternalName" && text(old, "spec.type") != "ExternalName" {
        addresses(errors, new, old);
    }
    if text(new, "spec.type") == "LoadBalancer"
        && text(old, "spec.type") == "LoadBalancer"
        && !same(
            at(new, "spec.loadBalancerClass"),
            at(old, "spec.loadBalancerClass"),
        )
    {
        let class = at(new, "spec.loadBalancerClass").cloned().unwrap_or(Value::Null);
        errors.invalid("spec.loadBalancerClass", class, "may not change once set");
    }
    if is_checked(new)
        && is_checked(old)
        && number(new, "spec.healthCheckNodePort") != number(old, "spec.healthCheckNodePort")
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}

fn addresses(errors: &mut Errors, new: &Value, old: &Value) {
    let (before, after) = (strings(old, "spec.clusterIPs"), strings(new, "spec.clusterIPs"));
    if is_headless(old) && is_headless(new) {
        return;
    }
    let shown = json!(list(new, "spec.clusterIPs"));
    if before.len() == after.len() {
        for (position, (a, b)) in before.iter().zip(&after).enumerate() {
            if a != b {
                errors.invalid(
                    format!("spec.clusterIPs[{position}]"),
                    shown.clone(),
                    "may not change once set",
                );
            }
        }
    } else if after.is_empty() {
        errors.invalid("spec.clusterIPs[0]", shown, "primary clusterIP can not be unset");
    } else if before.first().is_some_and(|first| after.first() != Some(first)) {
        errors.invalid("spec.clusterIPs[0]", shown, "may not change once set");
    } else if before.len() > after.len() && text(new, "spec.ipFamilyPolicy") != "SingleStack" {
        let policy = at(new, "spec.ipFamilyPolicy").cloned().unwrap_or(Value::Null);
        errors.invalid(
            "spec.ipFamilyPolicy",
            policy,
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
    let (families, now) = (strings(old, "spec.ipFamilies"), strings(new, "spec.ipFamilies"));
    let same_kind = is_headless(old) == is_headless(new);
    if same_kind
        && families
            .first()
            .is_some_and(|first| now.first().is_some_and(|now| now != first))
    {
        let shown = json!(list(new, "spec.ipFamilies"));
        errors.invalid("spec.ipFamilies[0]", shown, "may not change once set");
    }
}

/// Where a load balancer answers.
pub(super) fn status(errors: &mut Errors, new: &Value, old: &Value) {
    const INGRESS: &str = "status.loadBalancer.ingress";
    let points = list(new, INGRESS);
    if text(new, "spec.type") != "LoadBalancer" {
        if !points.is_empty() {
            errors.forbidden(INGRESS, "may only be used when `spec.type` is 'LoadBalancer'");
        }
        return;
    }
    let known: Vec<&str> = list(old, INGRESS)
        .iter()
        .map(|point| text(point, "ip"))
        .filter(|ip| !ip.is_empty())
        .collect();
    for (position, point) in points.iter().enumerate() {
        let path = format!("{INGRESS}[{position}]");
        let (ip, host) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() {
            errors.ip(ip, &format!("{path}.ip"), &known);
        }
        match at(point, "ipMode").and_then(Value::as_str) {
            None if !ip.is_empty() => {
                errors.required(format!("{path}.ipMode"), "must be specified when `ip` is set");
            }
            Some(_) if ip.is_empty() => {
                errors.forbidden(
                    format!("{path}.ipMode"),
                    "may not be specified when `ip` is not set",
                );
            }
            Some(mode) if !matches!(mode, "Proxy" | "VIP") => {
                errors.not_supported(format!("{path}.ipMode"), mode, &["Proxy", "VIP"]);
            }
            _ => {}
        }
        if !host.is_empty() {
            let path = format!("{path}.hostname");
            errors.all(&path, host, names::dns1123_subdomain(host));
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.invalid(path, host, "must be a DNS name, not an IP address");
            }
        }
    }
}
