// SPDX-License-Identifier: Apache-2.0
//! The endpoints below a pod that change one part of it: containers to look into it with, and the
//! size of those it has. Whatever else is sent there is put back as it was.

use cobaltcore_text::go;
use serde_json::Value;

use crate::json::{at, ensure, list, list_mut, take_over, text};
use crate::limits::{amounts, pod_amounts};
use crate::prepare::keep_metadata;
use crate::quantity::Quantity;

/// Of a pod sent to add containers to look into it with, everything else is as it was.
pub(crate) fn only_ephemeral(new: &mut Value, old: &Value) {
    const FIELD: &str = "ephemeralContainers";
    let sent = at(new, "spec.ephemeralContainers").cloned();
    keep_metadata(new, old);
    take_over(new, old, "spec");
    take_over(new, old, "status");
    let spec = ensure(new, "spec");
    match sent {
        Some(sent) => spec.insert(FIELD.to_owned(), sent),
        None => spec.remove(FIELD),
    };
}

/// Of a pod sent to give its containers more or less, everything else is as it was. Containers that
/// are not the same ones are left for the rules to refuse.
pub(crate) fn only_sizes(new: &mut Value, old: &Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let names = |pod: &Value, field: &str| -> Vec<String> {
        list(pod, &format!("spec.{field}"))
            .iter()
            .map(|container| text(container, "name").to_owned())
            .collect()
    };
    if LISTS.iter().any(|field| names(new, field) != names(old, field)) {
        return;
    }
    let sent = at(new, "spec").cloned().unwrap_or_default();
    keep_metadata(new, old);
    take_over(new, old, "spec");
    take_over(new, old, "status");
    if let Some(whole) = at(&sent, "resources").cloned() {
        ensure(new, "spec").insert("resources".to_owned(), whole);
    }
    for field in LISTS {
        let given = list(&sent, field);
        for (container, given) in list_mut(new, &format!("spec.{field}")).iter_mut().zip(given) {
            take_over(container, given, "resources");
            take_over(container, given, "resizePolicy");
        }
    }
}

/// Why a pod cannot have another size on its node: what kind of reason that is, and the reason itself.
pub fn resize_objection(pod: &Value, node: &Value) -> Option<(&'static str, String)> {
    let system = at(node, "metadata.labels")
        .and_then(|labels| labels.get("kubernetes.io/os"))
        .and_then(Value::as_str);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let why = format!(
            "pod resize is only supported on linux nodes, node {} is {}",
            go::quote(text(node, "metadata.name")),
            go::quote(system)
        );
        return Some(("UnsupportedPlatform", why));
    }
    let (requests, _) = pod_amounts(pod);
    let offered = amounts(node, "status.allocatable");
    let none = Quantity::from_integer(0);
    let short: Vec<String> = ["cpu", "memory"]
        .into_iter()
        .filter_map(|name| {
            let wanted = requests.get(name)?;
            let there = offered.get(name).unwrap_or(&none);
            let shown = |amount: &Quantity| match name {
                "cpu" => amount.milli_value(),
                _ => amount.value(),
            };
            (wanted > there).then(|| {
                format!(
                    "{name}, requested: {}, allocatable: {}",
                    shown(wanted),
                    shown(there)
                )
            })
        })
        .collect();
    if short.is_empty() {
        return None;
    }
    let why = format!(
        "node didn't have enough allocatable resources: {}",
        short.join("; ")
    );
    Some(("NodeCapacity", why))
}
