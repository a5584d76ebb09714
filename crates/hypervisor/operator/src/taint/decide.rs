// SPDX-License-Identifier: Apache-2.0
//! Edited by hand means: a field manager that starts with `kubectl` owns something.

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition::Tainted;
use cobaltcore_api::reasons::TaintedReason::{Kubectl, NoKubectl};
use cobaltcore_kit::status::NewCondition;

/// The sign in the column of edited hypervisors: a warning.
const EDITED: &str = "\u{26a0}\u{fe0f}";
/// The sign of the others: a green circle.
const UNTOUCHED: &str = "\u{1f7e2}";

/// The people's programs among the owners of fields.
pub(super) fn editors(hypervisor: &Hypervisor) -> Vec<&str> {
    let entries = hypervisor.metadata.managed_fields.iter().flatten();
    let managers = entries.filter_map(|entry| entry.manager.as_deref());
    managers
        .filter(|manager| manager.starts_with("kubectl"))
        .collect()
}

/// What `Tainted` should say.
pub(super) fn tainted(hypervisor: &Hypervisor) -> NewCondition {
    if editors(hypervisor).is_empty() {
        NewCondition::no(Tainted, NoKubectl, UNTOUCHED)
    } else {
        NewCondition::yes(Tainted, Kubectl, EDITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_programs_of_people_taint() {
        let table: &[(&[&str], bool)] = &[
            (&[], false),
            (&["hypervisor", "kvm-node-agent"], false),
            (&["hypervisor", "kubectl-edit"], true),
            (&["kubectl"], true),
            (&["my-kubectl"], false),
        ];
        for (managers, edited) in table {
            let entries: Vec<_> = managers.iter().map(|m| json!({"manager": m})).collect();
            let hypervisor = serde_json::from_value(
                json!({"metadata": {"name": "n", "managedFields": entries}, "spec": {}}),
            )
            .unwrap();
            let wanted = if *edited {
                NewCondition::yes(Tainted, Kubectl, "⚠️")
            } else {
                NewCondition::no(Tainted, NoKubectl, "🟢")
            };
            assert_eq!(tainted(&hypervisor), wanted, "{managers:?}");
        }
    }
}
