// SPDX-License-Identifier: Apache-2.0
//! Numbers of replicas as they were written. `2.0` is as whole as `2` everywhere in a custom resource
//! but where it is scaled: there the reference takes nothing that was written as a fraction. What is
//! put back here is refused when the object is judged.

use serde_json::Value;

use crate::decode;
use crate::registry::Resource;

/// Puts back the fractions a JSON body wrote for replicas, of an object or of a patch that has its
/// shape.
pub(crate) fn keep_fractions(resource: &Resource, body: &[u8], read: &mut Value) {
    for (path, written) in written_at(resource, body) {
        if let Some(fraction) = fraction_at(&written, &path)
            && let Some(place) = place(read, &path)
        {
            *place = fraction;
        }
    }
}

/// The same for the operations of a JSON patch.
pub(crate) fn keep_fractions_of_operations(resource: &Resource, body: &[u8], operations: &mut Value) {
    for (path, written) in written_at(resource, body) {
        let all = operations.as_array_mut().into_iter().flatten();
        for (operation, written) in all.zip(written.as_array().into_iter().flatten()) {
            let target = operation["path"].as_str().unwrap_or_default().to_owned();
            let steps: Vec<&str> = target.split('/').skip(1).collect();
            let within = path.iter().zip(&steps).all(|(own, step)| own == step);
            let inside = path.get(steps.len()..).filter(|_| within);
            if let Some(inside) = inside
                && let Some(fraction) = fraction_at(&written["value"], inside)
                && let Some(place) = place(&mut operation["value"], inside)
            {
                *place = fraction;
            }
        }
    }
}

/// The paths of replicas, each with the body as it was written; nothing for what is not scaled.
fn written_at(resource: &Resource, body: &[u8]) -> Vec<(Vec<String>, Value)> {
    if resource.as_custom().is_none() || !resource.has_scale() {
        return Vec::new();
    }
    let Ok(written) = decode::exact_json(body) else {
        return Vec::new();
    };
    let paths = resource.scale_paths();
    let steps = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
    [steps(&paths.spec_replicas), steps(&paths.status_replicas)]
        .into_iter()
        .map(|path| (path, written.value.clone()))
        .collect()
}

fn fraction_at(value: &Value, path: &[String]) -> Option<Value> {
    let found = path.iter().try_fold(value, |value, name| value.get(name))?;
    found.is_f64().then(|| found.clone())
}

fn place<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| value.get_mut(name))
}
