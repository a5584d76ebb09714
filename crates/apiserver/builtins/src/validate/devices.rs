// SPDX-License-Identifier: Apache-2.0
//! Rules of dynamic resource allocation: device classes, claims, their templates, and the slices
//! drivers publish. Expressions that select devices are judged by whoever allocates them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, is_extended};
use super::volume::csi_driver;
use crate::json::{at, entries, flag, list, map, number, strings, text};
use crate::names;

/// Entries of a list of requests, constraints, configurations or selectors.
const MOST: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_DEVICES: usize = 128;
/// Devices of a slice where any has taints or draws on counters.
const MOST_COMPLEX_DEVICES: usize = 64;
const MOST_PROPERTIES: usize = 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

pub(super) fn devices(errors: &mut Errors, object: &Value, old: Option<&Value>, kind: &str) {
    match (kind, old) {
        ("DeviceClass", _) => class(errors, object),
        ("ResourceClaim", None) => claim(errors, object, "spec"),
        ("ResourceClaimTemplate", None) => {
            errors.labels(object, "spec.metadata.labels", "spec.metadata.labels");
            errors.annotations(object, "spec.metadata.annotations", "spec.metadata.annotations");
            claim(errors, object, "spec.spec");
        }
        ("ResourceClaim" | "ResourceClaimTemplate", Some(old)) => {
            errors.immutable("spec", object, old, "spec");
        }
        (_, old) => slice(errors, object, old),
    }
}

fn class(errors: &mut Errors, object: &Value) {
    selectors(errors, object, "spec.selectors", "spec.selectors");
    if few(errors, object, "spec.config", "spec.config", MOST) {
        for (index, config) in list(object, "spec.config").iter().enumerate() {
            opaque(errors, config, &format!("spec.config[{index}]"));
        }
    }
    if let Some(name) = at(object, "spec.extendedResourceName").and_then(Value::as_str)
        && !is_extended(name)
    {
        errors.invalid(
            "spec.extendedResourceName",
            name,
            "must be a valid extended resource name",
        );
    }
}

/// Whether a list is short enough to be looked at.
fn few(errors: &mut Errors, object: &Value, path: &str, field: &str, most: usize) -> bool {
    let length = list(object, path).len();
    if length > most {
        errors.too_many(field, length, most);
    }
    length <= most
}

fn unique(errors: &mut Errors, keys: &[&str], field: &str) {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.iter().enumerate() {
        if !seen.insert(*key) {
            errors.duplicate(format!("{field}[{index}]"), *key);
        }
    }
}

fn selectors(errors: &mut Errors, object: &Value, path: &str, field: &str) {
    if !few(errors, object, path, field, MOST) {
        return;
    }
    for (index, selector) in list(object, path).iter().enumerate() {
        if at(selector, "cel").is_none() {
            errors.required(format!("{field}[{index}].cel"), "");
        }
    }
}

fn opaque(errors: &mut Errors, config: &Value, field: &str) {
    let Some(opaque) = at(config, "opaque") else {
        errors.required(format!("{field}.opaque"), "");
        return;
    };
    csi_driver(errors, text(opaque, "driver"), &format!("{field}.opaque.driver"));
    let path = format!("{field}.opaque.parameters");
    match at(opaque, "parameters") {
        None | Some(Value::Null) => errors.required(path, ""),
        Some(Value::Object(_)) => {}
        Some(_) => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

fn claim(errors: &mut Errors, object: &Value, path: &str) {
    let field = format!("{path}.devices");
    let devices = at(object, &field).unwrap_or(&Value::Null);
    let requests = list(devices, "requests");
    let path = format!("{field}.requests");
    if few(errors, devices, "requests", &path, MOST) {
        for (index, asked) in requests.iter().enumerate() {
            request(errors, asked, &format!("{path}[{index}]"));
        }
        let named: Vec<&str> = requests.iter().map(|r| text(r, "name")).collect();
        unique(errors, &named, &path);
    }
    let path = format!("{field}.constraints");
    if few(errors, devices, "constraints", &path, MOST) {
        for (index, constraint) in list(devices, "constraints").iter().enumerate() {
            let path = format!("{path}[{index}]");
            references(errors, constraint, requests, &path);
            if ["matchAttribute", "distinctAttribute"]
                .iter()
                .all(|name| at(constraint, name).is_none())
            {
                errors.required(
                    path,
                    "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
                );
            }
        }
    }
    let path = format!("{field}.config");
    if few(errors, devices, "config", &path, MOST) {
        for (index, config) in list(devices, "config").iter().enumerate() {
            let path = format!("{path}[{index}]");
            references(errors, config, requests, &path);
            opaque(errors, config, &path);
        }
    }
}

/// Requests that a constraint or configuration names, alone or with one of their alternatives.
fn references(errors: &mut Errors, parent: &Value, requests: &[Value], field: &str) {
    let known = |name: &str| {
        let (request, alternative) = match name.split_once('/') {
            Some((request, alternative)) => (request, Some(alternative)),
            None => (name, None),
        };
        requests
            .iter()
            .filter(|r| text(r, "name") == request)
            .any(|r| match alternative {
                None => true,
                Some(wanted) => list(r, "firstAvailable")
                    .iter()
                    .any(|a| text(a, "name") == wanted),
            })
    };
    let path = format!("{field}.requests");
    if !few(errors, parent, "requests", &path, MOST) {
        return;
    }
    let named = strings(parent, "requests");
    for (index, name) in named.iter().enumerate() {
        if !known(name) {
            errors.invalid(
                format!("{path}[{index}]"),
                *name,
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
            );
        }
    }
    unique(errors, &named, &path);
}

fn label(errors: &mut Errors, value: &str, field: &str) {
    errors.all(field, value, names::dns1123_label(value));
}

fn request(errors: &mut Errors, request: &Value, field: &str) {
    label(errors, text(request, "name"), &format!("{field}.name"));
    let alternatives = list(request, "firstAvailable");
    match (at(request, "exactly"), alternatives.is_empty()) {
        (None, true) => errors.required(field, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), false) => errors.invalid(
            field,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (Some(exact), true) => wanted(errors, exact, &format!("{field}.exactly")),
        (None, false) => {
            let path = format!("{field}.firstAvailable");
            if !few(errors, request, "firstAvailable", &path, MOST_ALTERNATIVES) {
                return;
            }
            for (index, alternative) in alternatives.iter().enumerate() {
                let path = format!("{path}[{index}]");
                label(errors, text(alternative, "name"), &format!("{path}.name"));
                wanted(errors, alternative, &path);
            }
            let named: Vec<&str> = alternatives.iter().map(|a| text(a, "name")).collect();
            unique(errors, &named, &path);
        }
    }
}

/// What a request or one of its alternatives asks for.
fn wanted(errors: &mut Errors, request: &Value, field: &str) {
    let class = text(request, "deviceClassName");
    let path = format!("{field}.deviceClassName");
    if class.is_empty() {
        errors.required(path, "");
    } else {
        errors.all(&path, class, names::dns1123_subdomain(class));
    }
    selectors(errors, request, "selectors", &format!("{field}.selectors"));
    let count = number(request, "count");
    match text(request, "allocationMode") {
        "All" if count != 0 => errors.invalid(
            format!("{field}.count"),
            count,
            "must not be specified when allocationMode is 'All'",
        ),
        "ExactCount" if count <= 0 => {
            errors.invalid(format!("{field}.count"), count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        other => errors.not_supported(format!("{field}.allocationMode"), other, &["All", "ExactCount"]),
    }
    for (index, toleration) in list(request, "tolerations").iter().enumerate() {
        tolerated(errors, toleration, &format!("{field}.tolerations[{index}]"));
    }
}

fn tolerated(errors: &mut Errors, toleration: &Value, field: &str) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        errors.all(&format!("{field}.key"), key, names::qualified_name(key));
    }
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => errors.invalid(
            format!("{field}.value"),
            value,
            "must be empty for operator `Exists`",
        ),
        "Exists" => {}
        "Equal" => errors.all(&format!("{field}.value"), value, names::label_value(value)),
        "" => errors.required(format!("{field}.operator"), ""),
        other => errors.not_supported(format!("{field}.operator"), other, &["Equal", "Exists"]),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(format!("{field}.effect"), effect, &EFFECTS);
    }
}

/// Only an allocated claim can be used, and an allocation stays as it is until it is given back.
pub(super) fn status(errors: &mut Errors, new: &Value, old: &Value) {
    const USERS: &str = "status.reservedFor";
    let users = list(new, USERS);
    for (index, user) in users.iter().enumerate() {
        for name in ["resource", "name", "uid"] {
            if text(user, name).is_empty() {
                errors.required(format!("{USERS}[{index}].{name}"), "");
            }
        }
    }
    if at(new, "status.allocation").is_none() && !users.is_empty() {
        errors.forbidden(USERS, "may not be specified when `allocated` is not set");
    }
    if at(new, "status.allocation").is_some() && at(old, "status.allocation").is_some() {
        errors.immutable("status.allocation", new, old, "status.allocation");
    }
}

fn slice(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let spec = at(object, "spec").unwrap_or(&Value::Null);
    csi_driver(errors, text(spec, "driver"), "spec.driver");
    pool(errors, spec);
    if let Some(old) = old {
        for path in ["pool.name", "driver", "nodeName"] {
            let path = format!("spec.{path}");
            errors.immutable(&path, object, old, &path);
        }
    }
    places(errors, spec);
    let offered = list(spec, "devices");
    let complex = offered
        .iter()
        .any(|d| !list(d, "taints").is_empty() || !list(d, "consumesCounters").is_empty());
    let most = if complex {
        MOST_COMPLEX_DEVICES
    } else {
        MOST_DEVICES
    };
    if few(errors, spec, "devices", "spec.devices", most) {
        for (index, device) in offered.iter().enumerate() {
            offer(errors, device, &format!("spec.devices[{index}]"));
        }
        let named: Vec<&str> = offered.iter().map(|d| text(d, "name")).collect();
        unique(errors, &named, "spec.devices");
    }
}

fn pool(errors: &mut Errors, spec: &Value) {
    let name = text(spec, "pool.name");
    if name.is_empty() {
        errors.required("spec.pool.name", "");
    } else {
        if name.len() > 253 {
            errors.too_long("spec.pool.name", 253);
        }
        for part in name.split('/') {
            errors.all("spec.pool.name", part, names::dns1123_subdomain(part));
        }
    }
    let slices = number(spec, "pool.resourceSliceCount");
    if slices <= 0 {
        errors.invalid(
            "spec.pool.resourceSliceCount",
            slices,
            "must be greater than zero",
        );
    }
    let generation = number(spec, "pool.generation");
    if generation < 0 {
        errors.invalid(
            "spec.pool.generation",
            generation,
            "must be greater than or equal to zero",
        );
    }
}

/// Where the devices are: exactly one of four ways to say it.
fn places(errors: &mut Errors, spec: &Value) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut said = Vec::new();
    match at(spec, "nodeName").and_then(Value::as_str) {
        Some("") => errors.invalid(
            "spec.nodeName",
            "",
            "must be either unset or set to a non-empty string",
        ),
        Some(node) => {
            said.push("`nodeName`");
            errors.all("spec.nodeName", node, names::dns1123_subdomain(node));
        }
        None => {}
    }
    if map(spec, "nodeSelector").is_some() {
        said.push("`nodeSelector`");
        if list(spec, "nodeSelector.nodeSelectorTerms").len() != 1 {
            errors.invalid(
                "spec.nodeSelector.nodeSelectorTerms",
                list(spec, "nodeSelector.nodeSelectorTerms").to_vec(),
                "must have exactly one node selector term",
            );
        }
    }
    for (name, quoted) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match at(spec, name) {
            Some(Value::Bool(false)) => {
                errors.invalid(
                    format!("spec.{name}"),
                    false,
                    "must be either unset or set to true",
                );
            }
            Some(_) if flag(spec, name) => said.push(quoted),
            _ => {}
        }
    }
    match said.as_slice() {
        [] => errors.required("spec", ONE),
        [_] => {}
        several => errors.invalid(
            "spec",
            format!("{{{}}}", several.join(", ")),
            &format!("{ONE}, but multiple fields are set"),
        ),
    }
}

fn offer(errors: &mut Errors, device: &Value, field: &str) {
    label(errors, text(device, "name"), &format!("{field}.name"));
    let properties = entries(device, "attributes").count() + entries(device, "capacity").count();
    if properties > MOST_PROPERTIES {
        errors.invalid(
            field,
            properties,
            &format!("the total number of attributes and capacities must not exceed {MOST_PROPERTIES}"),
        );
    }
    for (index, taint) in list(device, "taints").iter().enumerate() {
        let path = format!("{field}.taints[{index}]");
        let key = text(taint, "key");
        errors.all(&format!("{path}.key"), key, names::qualified_name(key));
        match text(taint, "effect") {
            "" => errors.required(format!("{path}.effect"), ""),
            effect if EFFECTS.contains(&effect) => {}
            other => errors.not_supported(format!("{path}.effect"), other, &EFFECTS),
        }
    }
}
