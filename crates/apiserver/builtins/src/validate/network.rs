// SPDX-License-Identifier: Apache-2.0
//! Rules of network policies, ingresses, endpoints and endpoint slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::errors::Errors;
use super::net::{network, parse_cidr};
use crate::json::{at, int, list, number, same, strings, text};
use crate::names;

pub(super) fn policy(errors: &mut Errors, object: &Value) {
    errors.selector(at(object, "spec.podSelector"), "spec.podSelector");
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (position, rule) in list(object, &format!("spec.{direction}")).iter().enumerate() {
            let path = format!("spec.{direction}[{position}]");
            for (index, port) in list(rule, "ports").iter().enumerate() {
                policy_port(errors, port, &format!("{path}.ports[{index}]"));
            }
            for (index, one) in list(rule, peers).iter().enumerate() {
                peer(errors, one, &format!("{path}.{peers}[{index}]"));
            }
        }
    }
    let types = strings(object, "spec.policyTypes");
    if types.len() > 2 {
        errors.invalid(
            "spec.policyTypes",
            json!(types),
            "may not specify more than two policyTypes",
        );
        return;
    }
    for (position, kind) in types.into_iter().enumerate() {
        if !matches!(kind, "Ingress" | "Egress") {
            errors.not_supported(
                format!("spec.policyTypes[{position}]"),
                kind,
                &["Ingress", "Egress"],
            );
        }
    }
}

fn policy_port(errors: &mut Errors, port: &Value, path: &str) {
    errors.optional_choice(
        at(port, "protocol"),
        &format!("{path}.protocol"),
        &["TCP", "UDP", "SCTP"],
    );
    let end = int(port, "endPort");
    let field = format!("{path}.endPort");
    match at(port, "port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(field, end, "may not be specified when `port` is non-numeric");
            }
            errors.all(&format!("{path}.port"), name, names::port_name(name));
        }
        Some(start) => {
            let start = start.as_i64().unwrap_or(0);
            errors.port(start, &format!("{path}.port"));
            if let Some(end) = end {
                if end < start {
                    errors.invalid(field.as_str(), start, "must be greater than or equal to `port`");
                }
                errors.port(end, &field);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(field, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn peer(errors: &mut Errors, peer: &Value, path: &str) {
    for name in ["podSelector", "namespaceSelector"] {
        errors.selector(at(peer, name), &format!("{path}.{name}"));
    }
    let selectors = at(peer, "podSelector").is_some() || at(peer, "namespaceSelector").is_some();
    match at(peer, "ipBlock") {
        Some(block) => {
            ip_block(errors, block, &format!("{path}.ipBlock"));
            if selectors {
                errors.forbidden(path, "may not specify both ipBlock and another peer");
            }
        }
        None if !selectors => errors.required(path, "must specify a peer"),
        None => {}
    }
}

fn ip_block(errors: &mut Errors, block: &Value, path: &str) {
    let range = text(block, "cidr");
    if range.is_empty() {
        errors.required(format!("{path}.cidr"), "");
        return;
    }
    errors.cidr(range, &format!("{path}.cidr"), &[]);
    let Some((base, bits)) = parse_cidr(range) else {
        return;
    };
    for (position, except) in strings(block, "except").into_iter().enumerate() {
        let field = format!("{path}.except[{position}]");
        errors.cidr(except, &field, &[]);
        let Some((inner, inner_bits)) = parse_cidr(except) else {
            continue;
        };
        let inside = base.is_ipv4() == inner.is_ipv4() && network(inner, bits) == network(base, bits);
        if !inside || bits >= inner_bits {
            errors.invalid(field, except, "must be a strict subset of `cidr`");
        }
    }
}

pub(super) fn ingress(errors: &mut Errors, object: &Value) {
    let rules = list(object, "spec.rules");
    let default = at(object, "spec.defaultBackend");
    if rules.is_empty() && default.is_none() {
        errors.invalid(
            "spec",
            at(object, "spec.rules").cloned().unwrap_or(Value::Null),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(backend) = default {
        self::backend(errors, backend, "spec.defaultBackend");
    }
    for (position, rule) in rules.iter().enumerate() {
        ingress_rule(errors, rule, &format!("spec.rules[{position}]"));
    }
    for (position, tls) in list(object, "spec.tls").iter().enumerate() {
        let path = format!("spec.tls[{position}]");
        for (index, host) in strings(tls, "hosts").into_iter().enumerate() {
            host_name(errors, host, &format!("{path}.hosts[{index}]"));
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            errors.all(
                &format!("{path}.secretName"),
                secret,
                names::dns1123_subdomain(secret),
            );
        }
    }
    if let Some(class) = at(object, "spec.ingressClassName").and_then(Value::as_str) {
        errors.all("spec.ingressClassName", class, names::dns1123_subdomain(class));
    }
}

/// Where an ingress is reached: addresses that are some, and names that are none.
pub(super) fn ingress_status(errors: &mut Errors, object: &Value) {
    const POINTS: &str = "status.loadBalancer.ingress";
    for (position, point) in list(object, POINTS).iter().enumerate() {
        let path = format!("{POINTS}[{position}]");
        let (ip, host) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() {
            errors.ip(ip, &format!("{path}.ip"), &[]);
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

fn host_name(errors: &mut Errors, host: &str, field: &str) {
    let problems = if host.contains('*') {
        names::wildcard_subdomain(host)
    } else {
        names::dns1123_subdomain(host)
    };
    errors.all(field, host, problems);
}

fn ingress_rule(errors: &mut Errors, rule: &Value, path: &str) {
    let host = text(rule, "host");
    if !host.is_empty() {
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(
                format!("{path}.host"),
                host,
                "must be a DNS name, not an IP address",
            );
        }
        host_name(errors, host, &format!("{path}.host"));
    }
    let Some(http) = at(rule, "http") else { return };
    let paths = list(http, "paths");
    if paths.is_empty() {
        errors.required(format!("{path}.http.paths"), "");
    }
    for (position, one) in paths.iter().enumerate() {
        http_path(errors, one, &format!("{path}.http.paths[{position}]"));
    }
}

fn http_path(errors: &mut Errors, one: &Value, field: &str) {
    let path = text(one, "path");
    match at(one, "pathType").and_then(Value::as_str) {
        None => {
            errors.required(format!("{field}.pathType"), "pathType must be specified");
            return;
        }
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                errors.invalid(format!("{field}.path"), path, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(bad) {
                    errors.invalid(
                        format!("{field}.path"),
                        path,
                        &format!("must not contain '{bad}'"),
                    );
                }
            }
            for bad in ["/..", "/."] {
                if path.ends_with(bad) {
                    errors.invalid(format!("{field}.path"), path, &format!("cannot end with '{bad}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !path.starts_with('/') {
                errors.invalid(format!("{field}.path"), path, "must be an absolute path");
            }
        }
        Some(other) => errors.not_supported(
            format!("{field}.pathType"),
            other,
            &["Exact", "ImplementationSpecific", "Prefix"],
        ),
    }
    backend(
        errors,
        at(one, "backend").unwrap_or(&Value::Null),
        &format!("{field}.backend"),
    );
}

fn backend(errors: &mut Errors, backend: &Value, field: &str) {
    match (at(backend, "resource"), at(backend, "service")) {
        (Some(_), Some(_)) => errors.invalid(field, "", "cannot set both resource and service backends"),
        (None, None) => errors.invalid(field, "", "resource or service backend is required"),
        (Some(resource), None) => {
            for name in ["kind", "name"] {
                if text(resource, name).is_empty() {
                    errors.required(format!("{field}.resource.{name}"), "");
                }
            }
        }
        (None, Some(service)) => {
            let name = text(service, "name");
            if name.is_empty() {
                errors.required(format!("{field}.service.name"), "");
            } else {
                errors.all(&format!("{field}.service.name"), name, names::dns1123_label(name));
            }
            match (text(service, "port.name"), number(service, "port.number")) {
                ("", 0) => errors.required(field, "port name or number is required"),
                ("", port) => errors.port(port, &format!("{field}.service.port.number")),
                (name, 0) => errors.all(
                    &format!("{field}.service.port.name"),
                    name,
                    names::port_name(name),
                ),
                _ => errors.invalid(field, "", "cannot set both port name & port number"),
            }
        }
    }
}

pub(super) fn ingress_class(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let controller = text(object, "spec.controller");
    if controller.len() > 250 {
        errors.too_long("spec.controller", 250);
    }
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.required("spec.controller", ""),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            errors.all("spec.controller", host, names::dns1123_subdomain(host));
            let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(allowed) {
                errors.invalid(
                    "spec.controller",
                    path,
                    &names::regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]),
                );
            }
        }
        _ => errors.invalid(
            "spec.controller",
            controller,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
    if let Some(old) = old {
        errors.immutable("spec.controller", object, old, "spec.controller");
    }
    let Some(parameters) = at(object, "spec.parameters") else {
        return;
    };
    for name in ["kind", "name"] {
        let value = text(parameters, name);
        if value.is_empty() {
            errors.required(format!("spec.parameters.{name}"), "");
        } else {
            errors.all(
                &format!("spec.parameters.{name}"),
                value,
                names::path_segment(value),
            );
        }
    }
    let namespace = at(parameters, "namespace");
    match text(parameters, "scope") {
        "Namespace" if namespace.is_none() => {
            errors.required(
                "spec.parameters.namespace",
                "`parameters.scope` is set to 'Namespace'",
            );
        }
        "Cluster" if namespace.is_some() => {
            errors.forbidden(
                "spec.parameters.namespace",
                "`parameters.scope` is set to 'Cluster'",
            );
        }
        "Namespace" | "Cluster" => {}
        other => errors.not_supported("spec.parameters.scope", other, &["Cluster", "Namespace"]),
    }
}

pub(super) fn endpoints(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if old.is_some_and(|old| same(at(old, "subsets"), at(object, "subsets"))) {
        return;
    }
    for (position, subset) in list(object, "subsets").iter().enumerate() {
        let path = format!("subsets[{position}]");
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.required(path.as_str(), "must specify `addresses` or `notReadyAddresses`");
        }
        for part in ["addresses", "notReadyAddresses"] {
            for (index, address) in list(subset, part).iter().enumerate() {
                endpoint_address(errors, address, &format!("{path}.{part}[{index}]"));
            }
        }
        let ports = list(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            let field = format!("{path}.ports[{index}]");
            let name = text(port, "name");
            if name.is_empty() && ports.len() > 1 {
                errors.required(format!("{field}.name"), "");
            } else if !name.is_empty() {
                errors.all(&format!("{field}.name"), name, names::dns1123_label(name));
            }
            errors.port(number(port, "port"), &format!("{field}.port"));
            errors.choice(
                text(port, "protocol"),
                &format!("{field}.protocol"),
                &["SCTP", "TCP", "UDP"],
            );
        }
    }
}

/// What is no address at all is said so twice: by the rule for addresses and by that for endpoints.
fn endpoint_address(errors: &mut Errors, address: &Value, path: &str) {
    let (field, ip) = (format!("{path}.ip"), text(address, "ip"));
    errors.ip(ip, &field, &[]);
    let host = text(address, "hostname");
    if !host.is_empty() {
        errors.all(&format!("{path}.hostname"), host, names::dns1123_label(host));
    }
    if let Some(node) = at(address, "nodeName").and_then(Value::as_str) {
        errors.all(&format!("{path}.nodeName"), node, names::dns1123_subdomain(node));
    }
    if ip.parse::<std::net::IpAddr>().is_ok() {
        errors.endpoint_ip(ip, &field);
    } else if super::net::sloppy(ip).is_none() {
        errors.invalid(field, ip, "must be a valid IP address");
    }
}

pub(super) fn slice(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let kind = text(object, "addressType");
    errors.choice(kind, "addressType", &["FQDN", "IPv4", "IPv6"]);
    slice_ports(errors, object);
    let unchanged = old.is_some_and(|old| same(at(old, "endpoints"), at(object, "endpoints")));
    if !unchanged {
        slice_endpoints(errors, object, kind);
    }
    if let Some(old) = old {
        errors.immutable("addressType", object, old, "addressType");
    }
}

fn slice_ports(errors: &mut Errors, object: &Value) {
    let ports = list(object, "ports");
    if ports.len() > 20_000 {
        errors.too_many("ports", ports.len(), 20_000);
        return;
    }
    let mut seen = BTreeSet::new();
    for (position, port) in ports.iter().enumerate() {
        let path = format!("ports[{position}]");
        let name = text(port, "name");
        if !name.is_empty() {
            errors.all(&format!("{path}.name"), name, names::dns1123_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        errors.choice(
            text(port, "protocol"),
            &format!("{path}.protocol"),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn slice_endpoints(errors: &mut Errors, object: &Value, kind: &str) {
    let endpoints = list(object, "endpoints");
    if endpoints.len() > 1000 {
        errors.too_many("endpoints", endpoints.len(), 1000);
        return;
    }
    for (position, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{position}].addresses");
        let addresses = strings(endpoint, "addresses");
        if addresses.is_empty() {
            errors.required(path.as_str(), "must contain at least 1 address");
        } else if addresses.len() > 100 {
            errors.too_many(path.as_str(), addresses.len(), 100);
        }
        for (index, address) in addresses.iter().enumerate() {
            let field = format!("{path}[{index}]");
            if kind == "FQDN" {
                errors.all(&field, address, names::dns1123_subdomain(address));
                continue;
            }
            let before = errors.list.len();
            errors.ip(address, &field, &[]);
            if errors.list.len() > before {
                continue;
            }
            if kind == "IPv4" && address.contains(':') {
                errors.invalid(path.as_str(), *address, "must be an IPv4 address");
            } else if kind == "IPv6" && !address.contains(':') {
                errors.invalid(path.as_str(), *address, "must be an IPv6 address");
            }
            errors.endpoint_ip(address, &field);
        }
        let host = text(endpoint, "hostname");
        if !host.is_empty() {
            errors.all(
                &format!("endpoints[{position}].hostname"),
                host,
                names::dns1123_label(host),
            );
        }
    }
}

/// An address object bears the address as its name and says whose it is.
pub(super) fn address(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        errors.immutable("spec.parentRef", object, old, "spec.parentRef");
        return;
    }
    let name = text(object, "metadata.name");
    match name.parse::<std::net::IpAddr>() {
        Ok(address) if address.to_string() != name => errors.invalid(
            "metadata.name",
            name,
            &format!("must be in canonical form (\"{address}\")"),
        ),
        _ => errors.ip(name, "metadata.name", &[]),
    }
    let Some(parent) = at(object, "spec.parentRef") else {
        errors.required("spec.parentRef", "");
        return;
    };
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.all("spec.parentRef.group", group, names::dns1123_subdomain(group));
    }
    for (name, needed) in [("resource", true), ("name", true), ("namespace", false)] {
        let field = format!("spec.parentRef.{name}");
        match text(parent, name) {
            "" if needed => errors.required(field, ""),
            "" => {}
            value => errors.all(&field, value, names::path_segment(value)),
        }
    }
}

/// A range of service addresses: one, or one of each family; a second one may be added later.
pub(super) fn range(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    const FIELD: &str = "spec.cidrs";
    let ranges = strings(object, FIELD);
    if let Some(old) = old {
        let before = strings(old, FIELD);
        if before.len() == ranges.len() || (before.len() == 1 && ranges.len() == 2) {
            for (index, (old, new)) in before.iter().zip(&ranges).enumerate() {
                if old != new {
                    errors.invalid(format!("{FIELD}[{index}]"), *new, "field is immutable");
                }
            }
        } else {
            errors.invalid(FIELD, ranges.clone(), "field is immutable");
        }
        if before.len() == ranges.len() || ranges.len() != 2 {
            return;
        }
    }
    match ranges.len() {
        0 => errors.required(FIELD, "at least one CIDR required"),
        1 | 2 => {
            for (index, range) in ranges.iter().enumerate() {
                errors.cidr(range, &format!("{FIELD}[{index}]"), &[]);
            }
            let families: Vec<Option<bool>> = ranges
                .iter()
                .map(|range| super::net::parse_cidr(range).map(|(address, _)| address.is_ipv4()))
                .collect();
            if let [Some(first), Some(second)] = families.as_slice()
                && first == second
            {
                errors.invalid(
                    FIELD,
                    ranges,
                    "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
                );
            }
        }
        _ => errors.invalid(
            FIELD,
            serde_json::json!({"CIDRs": ranges}),
            "may only hold up to 2 values",
        ),
    }
}
