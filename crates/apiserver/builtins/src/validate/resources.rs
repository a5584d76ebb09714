// SPDX-License-Identifier: Apache-2.0
//! Rules of requests and limits, and of what a container may do on its host.

use cobaltcore_schema::Cause;
use cobaltcore_text::go;
use serde_json::Value;

use super::errors::{Errors, is_extended, is_native};
use super::profiles;
use crate::json::{at, entries, flag, int, list, strings, text};
use crate::names;
use crate::quantity::Quantity;

/// Requests and limits of a container, or of a whole pod.
pub(super) fn resources(errors: &mut Errors, resources: &Value, field: &str, whole_pod: bool) {
    let compute =
        |path: &str| entries(resources, path).any(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    let huge = |path: &str| entries(resources, path).any(|(name, _)| name.starts_with("hugepages-"));
    for part in ["limits", "requests"] {
        for (name, amount) in entries(resources, part) {
            let path = format!("{field}.{part}[{name}]");
            resource_name(errors, name, &path, whole_pod);
            errors.amount(name, amount, &path);
            if part == "requests" {
                request_within_limit(errors, resources, name, amount, field);
            }
        }
    }
    if whole_pod && !list(resources, "claims").is_empty() {
        errors.forbidden(
            format!("{field}.claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    let any = |test: &dyn Fn(&str) -> bool| test("limits") || test("requests");
    if !any(&compute) && any(&huge) {
        errors.forbidden(field, "HugePages require cpu or memory");
    }
}

fn request_within_limit(errors: &mut Errors, resources: &Value, name: &str, amount: &Value, field: &str) {
    let overcommit = is_native(name) && !name.starts_with("hugepages-");
    let limit = entries(resources, "limits")
        .find(|(key, _)| key.as_str() == name)
        .map(|(_, limit)| limit);
    let Some(limit) = limit else {
        if !overcommit {
            errors.required(
                format!("{field}.limits"),
                "Limit must be set for non overcommitable resources",
            );
        }
        return;
    };
    let (Ok(request), Ok(limit)) = (Quantity::from_value(amount), Quantity::from_value(limit)) else {
        return;
    };
    let problem = if request != limit && !overcommit {
        format!("must be equal to {name} limit of {limit}")
    } else if request > limit {
        format!("must be less than or equal to {name} limit of {limit}")
    } else {
        return;
    };
    errors.invalid(format!("{field}.requests"), request.to_string(), &problem);
}

pub(super) fn resource_name(errors: &mut Errors, name: &str, field: &str, whole_pod: bool) {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        errors.all(field, name, problems);
        return;
    }
    let huge = name.starts_with("hugepages-");
    if whole_pod {
        if !matches!(name, "cpu" | "memory") && !huge {
            errors.not_supported(field, name, &["cpu", "memory", "hugepages-"]);
        }
        return;
    }
    if !name.contains('/') {
        if !standard_resource(name) {
            errors.invalid(field, name, "must be a standard resource type or fully qualified");
        }
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !huge {
            errors.invalid(field, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(field, name, "doesn't follow extended resource name standard");
    }
}

/// The name of something that need not be of a container.
pub(super) fn any_name(errors: &mut Errors, name: &str, field: &str) {
    let problems = names::qualified_name(name);
    if problems.is_empty() && !name.contains('/') && !standard_resource(name) {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
    }
    errors.all(field, name, problems);
}

/// The name of something a quota counts.
pub(super) fn quota_name(errors: &mut Errors, name: &str, field: &str) {
    if name.contains('/') {
        errors.all(field, name, names::qualified_name(name));
        return;
    }
    let problems = names::qualified_name(name);
    let sound = problems.is_empty();
    errors.all(field, name, problems);
    if sound && !standard_resource(name) {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
    }
    if !standard_resource(name) || name == "storage" {
        errors.invalid(field, name, "must be a standard resource for quota");
    }
}

/// What a resource field selector reads must be an amount of a container.
pub(super) fn resource_field(errors: &mut Errors, reference: &Value, path: &str) {
    const FIELDS: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = text(reference, "resource");
    let field = format!("{path}.resource");
    if resource.is_empty() {
        errors.required(field, "");
    } else if !FIELDS.contains(&resource)
        && !resource.starts_with("limits.hugepages-")
        && !resource.starts_with("requests.hugepages-")
    {
        errors.not_supported(field, resource, &FIELDS);
    } else {
        divisor(errors, reference, resource, &format!("{path}.divisor"));
    }
}

/// What an amount may be counted in.
fn divisor(errors: &mut Errors, reference: &Value, resource: &str, field: &str) {
    const SIZES: [&str; 13] = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let Some(Ok(unit)) = at(reference, "divisor").map(Quantity::from_value) else {
        return;
    };
    let (units, listed, what): (&[&str], String, &str) = match resource.split_once('.') {
        Some((_, "cpu")) => (&["1m", "1"], "1m and 1".to_owned(), "cpu"),
        Some((_, "memory")) => (&SIZES, SIZES.join(", "), "memory"),
        Some((_, "ephemeral-storage")) => (&SIZES, SIZES.join(", "), "local ephemeral storage"),
        _ => (&SIZES, SIZES.join(", "), "hugepages"),
    };
    if !unit.is_zero() && !units.contains(&unit.to_string().as_str()) {
        let detail = format!("only divisor's values {listed} are supported with the {what} resource");
        errors.invalid(field, resource, &detail);
    }
}

/// The claims of a pod: each under a name, for one that exists or one made from a template.
pub(super) fn claims(errors: &mut Errors, claims: &[Value], field: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for (position, claim) in claims.iter().enumerate() {
        let path = format!("{field}[{position}]");
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(format!("{path}.name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(format!("{path}.name"), name);
        } else {
            errors.all(&format!("{path}.name"), name, names::dns1123_label(name));
            seen.push(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"].map(|part| at(claim, part));
        let detail = match sources {
            [Some(_), Some(_)] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [None, None] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => continue,
        };
        let shown = |source: Option<&Value>| go::json(source.unwrap_or(&Value::Null));
        errors.raw(
            Cause::Invalid,
            path,
            format!(
                "Invalid value: {{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}: {detail}",
                go::json(&Value::from(name)),
                shown(sources[0]),
                shown(sources[1]),
            ),
        );
    }
}

pub(super) fn standard_resource(name: &str) -> bool {
    const KNOWN: [&str; 20] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    ];
    KNOWN.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Security settings of one container.
pub(super) fn security(errors: &mut Errors, context: Option<&Value>, field: &str) {
    let Some(context) = context else { return };
    for id in ["runAsUser", "runAsGroup"] {
        user_id(errors, context, id, &format!("{field}.{id}"));
    }
    errors.optional_choice(
        at(context, "procMount"),
        &format!("{field}.procMount"),
        &["Default", "Unmasked"],
    );
    if at(context, "allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if flag(context, "privileged") {
            errors.invalid(
                field,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        if strings(context, "capabilities.add").contains(&"CAP_SYS_ADMIN") {
            errors.invalid(
                field,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    profiles::seccomp(
        errors,
        at(context, "seccompProfile"),
        &format!("{field}.seccompProfile"),
    );
    profiles::app_armor(
        errors,
        at(context, "appArmorProfile"),
        &format!("{field}.appArmorProfile"),
    );
}

pub(super) fn user_id(errors: &mut Errors, parent: &Value, path: &str, field: &str) {
    if let Some(id) = int(parent, path).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(field, id, &names::range_error(0, i64::from(i32::MAX)));
    }
}
