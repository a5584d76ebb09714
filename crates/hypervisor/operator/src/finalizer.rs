// SPDX-License-Identifier: Apache-2.0
//! Puts a finalizer on an object or takes it off. The list belongs to many, so each change names
//! the version it was made for; an object that others write at the same moment is read again
//! instead of failing the pass.

use std::fmt::Debug;
use std::time::Duration;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_kit::retry::Backoff;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Error;
use crate::context::Context;

/// How often somebody else may be faster; an object that was just made has many writers.
const TRIES: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Whether the finalizer `name` is to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    Hold(&'static str),
    Release(&'static str),
}

impl Finalizer {
    /// The list with this done, or nothing if it is as it should be.
    fn change(self, names: &[String]) -> Option<Vec<String>> {
        let (Self::Hold(ours) | Self::Release(ours)) = self;
        let mut changed: Vec<String> = names.iter().filter(|name| *name != ours).cloned().collect();
        if let Self::Hold(ours) = self {
            changed.push(ours.to_owned());
        }
        (changed.len() != names.len()).then_some(changed)
    }
}

/// Makes it so. An object that is gone, or was made anew, needs nothing.
pub(crate) async fn set<K>(
    context: &Context,
    manager: FieldManager,
    object: &K,
    finalizer: Finalizer,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let (name, kind) = (object.name_any(), K::kind(&()));
    let api: Api<K> = Api::all(context.client.clone());
    let params = PatchParams {
        field_manager: Some(manager.as_str().to_owned()),
        ..PatchParams::default()
    };
    let mut meta = object.meta().clone();
    for attempt in 1..=TRIES {
        let Some(names) = finalizer.change(meta.finalizers.as_deref().unwrap_or_default()) else {
            return Ok(());
        };
        let patch = json!({"metadata": {
            "finalizers": names, "resourceVersion": meta.resource_version, "uid": meta.uid,
        }});
        let call = format!("changing the finalizer of {kind} {name}");
        let patch = Patch::Merge(&patch);
        let patched = api.patch_metadata(&name, &params, &patch);
        match context.call(call, patched).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_conflict() && attempt < TRIES => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Backoff::CONTROLLER.random_pause(attempt).min(LONGEST_PAUSE)).await;
        let read = context.call(format!("reading {kind} {name}"), api.get_metadata_opt(&name));
        meta = match read.await? {
            Some(now) if now.metadata.uid == meta.uid => now.metadata,
            _ => return Ok(()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_name_is_touched_and_only_if_needed() {
        type Names = &'static [&'static str];
        let names = |names: Names| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let table: [(Names, Finalizer, Option<Names>); 6] = [
            (&[], Finalizer::Hold("ours"), Some(&["ours"])),
            (&["theirs"], Finalizer::Hold("ours"), Some(&["theirs", "ours"])),
            (&["ours", "theirs"], Finalizer::Hold("ours"), None),
            (&["ours", "theirs"], Finalizer::Release("ours"), Some(&["theirs"])),
            (&["theirs"], Finalizer::Release("ours"), None),
            (&[], Finalizer::Release("ours"), None),
        ];
        for (before, finalizer, after) in table {
            assert_eq!(
                finalizer.change(&names(before)),
                after.map(names),
                "{finalizer:?} on {before:?}"
            );
        }
    }
}
