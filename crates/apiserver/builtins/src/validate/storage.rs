// SPDX-License-Identifier: Apache-2.0
//! Rules of claims, volumes and the storage group.

use std::collections::{BTreeMap, BTreeSet};

use cobaltcore_schema::Cause;
use cobaltcore_text::go;
use serde_json::{Value, json};

use super::errors::{Errors, is_native};
use super::volume::{csi_driver, host_path, nfs};
use crate::json::{at, ensure, entries, int, list, map, same, strings, text};
use crate::names;
use crate::quantity::Quantity;

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

fn access_modes(errors: &mut Errors, spec: &Value, field: &str, detail: &str) {
    let modes = strings(spec, "accessModes");
    let path = format!("{field}.accessModes");
    if modes.is_empty() {
        errors.required(path.as_str(), detail);
    }
    for mode in &modes {
        if !MODES.contains(mode) {
            errors.not_supported(path.as_str(), *mode, &MODES);
        }
    }
    let others = modes
        .iter()
        .any(|mode| *mode != "ReadWriteOncePod" && MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && others {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn storage_amount(object: &Value, path: &str) -> Option<Quantity> {
    map(object, path)
        .and_then(|list| list.get("storage"))
        .and_then(|amount| Quantity::from_value(amount).ok())
}

/// The spec of a claim, in a claim or in a template.
pub(super) fn claim_spec(errors: &mut Errors, spec: &Value, field: &str) {
    access_modes(errors, spec, field, "at least 1 access mode is required");
    errors.selector(at(spec, "selector"), &format!("{field}.selector"));
    let path = format!("{field}.resources[storage]");
    match storage_amount(spec, "resources.requests") {
        None => errors.required(path, ""),
        Some(amount) if amount.is_zero() || amount.is_negative() => {
            errors.invalid(path, amount.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
    for name in ["storageClassName", "volumeAttributesClassName"] {
        let class = text(spec, name);
        if !class.is_empty() {
            errors.all(&format!("{field}.{name}"), class, names::dns1123_subdomain(class));
        }
    }
    errors.optional_choice(
        at(spec, "volumeMode"),
        &format!("{field}.volumeMode"),
        &["Block", "Filesystem"],
    );
    for name in ["dataSource", "dataSourceRef"] {
        let Some(source) = at(spec, name) else { continue };
        for part in ["name", "kind"] {
            if text(source, part).is_empty() {
                errors.required(format!("{field}.{name}.{part}"), "");
            }
        }
        if text(source, "apiGroup").is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
            errors.invalid(
                format!("{field}.{name}"),
                text(source, "kind"),
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            );
        }
    }
}

pub(super) fn claim(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    claim_spec(errors, at(object, "spec").unwrap_or(&Value::Null), "spec");
    if let Some(old) = old {
        claim_update(errors, object, old);
    }
}

fn claim_update(errors: &mut Errors, new: &Value, old: &Value) {
    let bound = text(new, "status.phase") == "Bound";
    let clone = |object: &Value| at(object, "spec").cloned().unwrap_or_default();
    let (mut after, mut before) = (clone(new), clone(old));
    if text(old, "spec.volumeName").is_empty() {
        copy(&mut before, &after, "volumeName");
    }
    // A claim without a class may get one later.
    if at(old, "spec.storageClassName").is_none() {
        copy(&mut before, &after, "storageClassName");
    }
    if bound {
        copy(&mut after, &before, "volumeAttributesClassName");
        let amount = map(old, "spec.resources.requests")
            .and_then(|list| list.get("storage"))
            .cloned();
        if let Some(amount) = amount {
            ensure(&mut after, "resources.requests").insert("storage".to_owned(), amount);
        }
    }
    if !same(Some(&after), Some(&before)) {
        errors.forbidden(
            "spec",
            &format!(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n- {before}\n+ {after}"
            ),
        );
    }
    let sizes = (
        storage_amount(new, "spec.resources.requests"),
        storage_amount(old, "spec.resources.requests"),
    );
    if let (Some(size), Some(was)) = sizes
        && size < was
        && storage_amount(old, "status.capacity").is_none_or(|capacity| size <= capacity)
    {
        errors.forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        );
    }
    errors.immutable("spec.volumeMode", new, old, "volumeMode");
}

fn copy(target: &mut Value, source: &Value, name: &str) {
    let value = at(source, name).cloned();
    let fields = ensure(target, "");
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
}

/// Fields of a volume's spec that are no source.
const PLAIN: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn sources(spec: &Value) -> serde_json::Map<String, Value> {
    entries(spec, "")
        .filter(|(name, value)| !PLAIN.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

pub(super) fn volume(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let spec = at(object, "spec").unwrap_or(&Value::Null);
    access_modes(errors, spec, "spec", "");
    let capacity = map(spec, "capacity");
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.capacity", "");
    }
    if capacity.is_none_or(|capacity| !capacity.contains_key("storage") || capacity.len() > 1) {
        let shown = at(spec, "capacity").cloned().unwrap_or(Value::Null);
        errors.not_supported("spec.capacity", shown, &["storage"]);
    }
    for (name, amount) in entries(spec, "capacity") {
        if let Ok(amount) = Quantity::from_value(amount)
            && (amount.is_zero() || amount.is_negative())
        {
            errors.invalid(
                format!("spec.capacity[{name}]"),
                amount.to_string(),
                "must be greater than zero",
            );
        }
    }
    let policies = ["Delete", "Recycle", "Retain"];
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policies.contains(&policy) {
        errors.not_supported("spec.persistentVolumeReclaimPolicy", policy, &policies);
    }
    volume_sources(errors, spec);
    if policy == "Recycle" && is_root(text(spec, "hostPath.path")) {
        errors.forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.all("spec.storageClassName", class, names::dns1123_subdomain(class));
    }
    errors.optional_choice(
        at(spec, "volumeMode"),
        "spec.volumeMode",
        &["Block", "Filesystem"],
    );
    if let Some(old) = old {
        volume_update(errors, object, old);
    }
}

/// Whether a path is that of everything, however it is written.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| part.is_empty() || part == ".")
}

fn volume_sources(errors: &mut Errors, spec: &Value) {
    let given = sources(spec);
    if given.is_empty() {
        errors.required("spec", "must specify a volume type");
    }
    for name in given.keys().skip(1) {
        errors.forbidden(format!("spec.{name}"), "may not specify more than 1 volume type");
    }
    if let Some((name, source)) = given.iter().next() {
        let field = format!("spec.{name}");
        match name.as_str() {
            "hostPath" => host_path(errors, source, &field),
            "nfs" => nfs(errors, source, &field),
            "csi" => {
                csi_driver(errors, text(source, "driver"), &format!("{field}.driver"));
                if text(source, "volumeHandle").is_empty() {
                    errors.required(format!("{field}.volumeHandle"), "");
                }
            }
            "local" => {
                if text(source, "path").is_empty() {
                    errors.required(format!("{field}.path"), "");
                }
                if at(spec, "nodeAffinity").is_none() {
                    errors.required("spec.nodeAffinity", "Local volume requires node affinity");
                }
            }
            _ => {}
        }
    }
    if let Some(class) = at(spec, "volumeAttributesClassName").and_then(Value::as_str) {
        const FIELD: &str = "spec.volumeAttributesClassName";
        if class.is_empty() {
            errors.required(FIELD, "an empty string is disallowed");
        } else {
            errors.all(FIELD, class, names::dns1123_subdomain(class));
        }
        if at(spec, "csi").is_none() {
            errors.required(
                "spec.csi",
                "has to be specified when using volumeAttributesClassName",
            );
        }
    }
    if let Some(required) = at(spec, "nodeAffinity.required") {
        if list(required, "nodeSelectorTerms").is_empty() {
            errors.required(
                "spec.nodeAffinity.required.nodeSelectorTerms",
                "must have at least one node selector term",
            );
        }
        for (position, term) in list(required, "nodeSelectorTerms").iter().enumerate() {
            let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{position}]");
            super::scheduling::node_term(errors, term, &path);
        }
    } else if at(spec, "nodeAffinity").is_some() {
        errors.required(
            "spec.nodeAffinity.required",
            "must specify required node constraints",
        );
    }
}

fn volume_update(errors: &mut Errors, new: &Value, old: &Value) {
    let pick = |object: &Value| Value::Object(sources(at(object, "spec").unwrap_or(&Value::Null)));
    let (after, before) = (pick(new), pick(old));
    if !same(Some(&after), Some(&before)) {
        errors.forbidden(
            "spec.persistentvolumesource",
            &format!("spec.persistentvolumesource is immutable after creation\n- {before}\n+ {after}"),
        );
    }
    errors.immutable("spec.volumeMode", new, old, "volumeMode");
    if at(old, "spec.nodeAffinity").is_some() {
        errors.immutable("spec.nodeAffinity", new, old, "nodeAffinity");
    }
}

pub(super) fn storage(errors: &mut Errors, object: &Value, old: Option<&Value>, kind: &str) {
    match (kind, old) {
        ("StorageClass", None) => storage_class(errors, object),
        ("StorageClass", Some(old)) => {
            storage_class(errors, object);
            for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                errors.immutable(name, object, old, name);
            }
        }
        ("CSIDriver", old) => {
            if old.is_none() {
                csi_driver(errors, text(object, "metadata.name"), "metadata.name");
            }
            driver(errors, object);
            if let Some(old) = old {
                errors.immutable("spec.attachRequired", object, old, "spec.attachedRequired");
                errors.immutable(
                    "spec.volumeLifecycleModes",
                    object,
                    old,
                    "spec.volumeLifecycleModes",
                );
            }
        }
        ("CSINode", old) => {
            csi_node(errors, object);
            if let Some(old) = old {
                csi_node_update(errors, object, old);
            }
        }
        ("CSIStorageCapacity", old) => capacity(errors, object, old),
        ("VolumeAttributesClass", old) => attributes(errors, object, old),
        (_, old) => {
            attachment(errors, object);
            if let Some(old) = old {
                errors.immutable("spec", object, old, "spec");
            }
        }
    }
}

fn capacity(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        errors.immutable("nodeTopology", object, old, "nodeTopology");
        errors.immutable("storageClassName", object, old, "storageClassName");
        return;
    }
    errors.selector(at(object, "nodeTopology"), "nodeTopology");
    let class = text(object, "storageClassName");
    errors.all("storageClassName", class, names::dns1123_subdomain(class));
    if let Some(amount) = at(object, "capacity").and_then(|value| Quantity::from_value(value).ok())
        && amount.is_negative()
    {
        errors.invalid(
            "capacity",
            amount.to_string(),
            "must be greater than or equal to 0",
        );
    }
}

fn attributes(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        for name in ["driverName", "parameters"] {
            if !same(at(object, name), at(old, name)) {
                errors.forbidden(name, &format!("updates to {name} are forbidden."));
            }
        }
    }
    provisioner(errors, object, "driverName");
    if entries(object, "parameters").next().is_none() {
        errors.required("parameters", "must contain at least one key/value pair");
    } else {
        parameters(errors, object);
    }
}

/// Whoever makes volumes, by a qualified name in any case.
fn provisioner(errors: &mut Errors, object: &Value, field: &str) {
    let name = text(object, field);
    if name.is_empty() {
        errors.required(field, "");
    } else {
        let lower = name.to_lowercase();
        errors.all(field, &lower, names::qualified_name(&lower));
    }
}

fn parameters(errors: &mut Errors, object: &Value) {
    let parameters: Vec<_> = entries(object, "parameters").collect();
    if parameters.len() > 512 {
        errors.too_long("parameters", 512);
    }
    if parameters.iter().any(|(key, _)| key.is_empty()) {
        errors.invalid("parameters", "", "field can not be empty.");
    }
    let size: usize = parameters
        .iter()
        .map(|(k, v)| k.len() + v.as_str().unwrap_or_default().len())
        .sum();
    if size > 256 * 1024 {
        errors.too_long("parameters", 256 * 1024);
    }
}

fn storage_class(errors: &mut Errors, object: &Value) {
    provisioner(errors, object, "provisioner");
    parameters(errors, object);
    errors.optional_choice(
        at(object, "reclaimPolicy"),
        "reclaimPolicy",
        &["Delete", "Retain"],
    );
    errors.optional_choice(
        at(object, "volumeBindingMode"),
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
    );
    let terms = list(object, "allowedTopologies");
    for (position, term) in terms.iter().enumerate() {
        let path = format!("allowedTopologies[{position}]");
        topology_term(errors, term, &path);
        let earlier = terms.iter().take(position);
        let mut again = earlier
            .filter(|other| expressions(other) == expressions(term))
            .count();
        // One that says nothing is taken for each of those that are still to come.
        if list(term, "matchLabelExpressions").is_empty() {
            again += terms.len();
        }
        for _ in 0..again {
            errors.duplicate(format!("{path}.matchLabelExpressions"), "");
        }
    }
}

/// What a term allows, whatever the order it says so in.
fn expressions(term: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    list(term, "matchLabelExpressions")
        .iter()
        .map(|expression| {
            (
                text(expression, "key"),
                strings(expression, "values").into_iter().collect(),
            )
        })
        .collect()
}

/// Where volumes of a class may lie: each key once, with values to choose from.
fn topology_term(errors: &mut Errors, term: &Value, field: &str) {
    let mut keys: Vec<&str> = Vec::new();
    for (position, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
        let path = format!("{field}.matchLabelExpressions[{position}]");
        let (key, values) = (text(expression, "key"), strings(expression, "values"));
        if values.is_empty() {
            errors.required(format!("{path}.values"), "");
        }
        for (at, value) in values.iter().enumerate() {
            if values.iter().take(at).any(|earlier| earlier == value) {
                errors.duplicate(format!("{path}.values[{at}]"), *value);
            }
        }
        errors.all(&format!("{path}.key"), key, names::qualified_name(key));
        if keys.contains(&key) {
            errors.duplicate(format!("{path}.key"), key);
        }
        keys.push(key);
    }
}

fn driver(errors: &mut Errors, object: &Value) {
    errors.optional_choice(
        at(object, "spec.fsGroupPolicy"),
        "spec.fsGroupPolicy",
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    for mode in strings(object, "spec.volumeLifecycleModes") {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            errors.not_supported("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]);
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (position, token) in list(object, "spec.tokenRequests").iter().enumerate() {
        let audience = text(token, "audience");
        if seen.contains(&audience) {
            errors.duplicate(format!("spec.tokenRequests[{position}].audience"), audience);
            continue;
        }
        seen.push(audience);
        let field = format!("spec.tokenRequests[{position}].expirationSeconds");
        match int(token, "expirationSeconds") {
            Some(seconds) if seconds < 600 => {
                errors.invalid(field, seconds, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > 1 << 32 => {
                errors.invalid(
                    field,
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                );
            }
            _ => {}
        }
    }
    const PERIOD: &str = "spec.nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = int(object, PERIOD).filter(|seconds| *seconds < 10) {
        errors.invalid(PERIOD, seconds, "must be greater than or equal to 10 seconds");
    }
    const IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets";
    if let Some(given) = at(object, IN_SECRETS)
        && list(object, "spec.tokenRequests").is_empty()
    {
        errors.invalid(
            IN_SECRETS,
            given.clone(),
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
}

fn csi_node(errors: &mut Errors, object: &Value) {
    let mut seen: Vec<&str> = Vec::new();
    for (position, driver) in list(object, "spec.drivers").iter().enumerate() {
        let path = format!("spec.drivers[{position}]");
        let name = text(driver, "name");
        csi_driver(errors, name, &format!("{path}.name"));
        let id = text(driver, "nodeID");
        if id.is_empty() {
            errors.required(format!("{path}.nodeID"), "");
        }
        if id.len() > 192 {
            errors.invalid(format!("{path}.nodeID"), id, "must be 192 characters or less");
        }
        if seen.contains(&name) {
            errors.duplicate(format!("{path}.name"), name);
        }
        seen.push(name);
        errors.non_negative(driver, "allocatable.count", &format!("{path}.allocatable.count"));
        for key in strings(driver, "topologyKeys") {
            errors.all(&path, key, names::qualified_name(key));
        }
    }
}

/// A driver that is known on a node stays what it is there, but for how many volumes it can attach.
fn csi_node_update(errors: &mut Errors, new: &Value, old: &Value) {
    for known in list(old, "spec.drivers") {
        for driver in list(new, "spec.drivers") {
            let parts = ["nodeID", "topologyKeys"];
            let changed = parts.iter().any(|part| !same(at(driver, part), at(known, part)));
            if text(driver, "name") == text(known, "name") && changed {
                let shown = |part: &str| go::json(at(driver, part).unwrap_or(&Value::Null));
                errors.raw(
                    Cause::Invalid,
                    "spec.drivers",
                    format!(
                        "Invalid value: {{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}: field is immutable",
                        shown("name"),
                        shown("nodeID"),
                        shown("topologyKeys"),
                    ),
                );
            }
        }
    }
}

/// What went wrong with an attachment, by number.
pub(super) fn attachment_status(errors: &mut Errors, object: &Value) {
    for part in ["attachError", "detachError"] {
        let field = format!("status.{part}.errorCode");
        if let Some(code) = int(object, &field).filter(|code| *code < 0) {
            errors.invalid(field, code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

/// What became of a claim.
pub(super) fn claim_status(errors: &mut Errors, object: &Value) {
    const ALLOCATED: &str = "status.allocatedResources";
    const STATES: &str = "status.allocatedResourceStatuses";
    const RESIZES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (name, amount) in entries(object, "status.capacity") {
        errors.amount(name, amount, &format!("status.capacity[{name}]"));
    }
    for (name, state) in entries(object, STATES) {
        given_name(errors, name, STATES);
        if !RESIZES.contains(&state.as_str().unwrap_or_default()) {
            errors.not_supported(STATES, name.as_str(), &RESIZES);
        }
    }
    for (name, amount) in entries(object, ALLOCATED) {
        if given_name(errors, name, ALLOCATED) {
            errors.amount(name, amount, &format!("{ALLOCATED}[{name}]"));
        }
    }
}

/// Whether something can be given to a claim: storage, or what has a name of its own.
fn given_name(errors: &mut Errors, name: &str, field: &str) -> bool {
    let problems = names::qualified_name(name);
    let sound = problems.is_empty();
    errors.all(field, name, problems);
    let foreign = sound && is_native(name) && name != "storage";
    if foreign {
        errors.not_supported(field, name, &["storage"]);
    }
    sound && !foreign
}

fn attachment(errors: &mut Errors, object: &Value) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    csi_driver(errors, text(object, "spec.attacher"), "spec.attacher");
    let inline = at(object, "spec.source.inlineVolumeSpec");
    match (inline, at(object, "spec.source.persistentVolumeName")) {
        (None, None) => errors.required("spec.source", ONE),
        (Some(_), Some(_)) => errors.forbidden("spec.source", ONE),
        (None, Some(name)) if name == &json!("") => {
            errors.required(
                "spec.source.persistentVolumeName",
                "must specify non empty persistentVolumeName",
            );
        }
        (None, Some(name)) => {
            let name = name.as_str().unwrap_or_default();
            errors.all(
                "spec.source.persistentVolumeName",
                name,
                names::dns1123_subdomain(name),
            );
        }
        _ => {}
    }
    let node = text(object, "spec.nodeName");
    errors.all("spec.nodeName", node, names::dns1123_subdomain(node));
}
