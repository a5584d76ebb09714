// SPDX-License-Identifier: Apache-2.0
//! Definitions that a cluster may have instead of ours, or besides them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each suite uses its part; a test that unwraps says where it failed"
)]

/// Our definitions without what those of the running system do not have.
pub(crate) fn of_the_running_system() -> String {
    let mut text = String::new();
    for mut crd in cobaltcore_api::crds() {
        let name = crd.metadata.name.clone().unwrap();
        for difference in cobaltcore_api::crd::differences::DIFFERENCES {
            let Some(path) = difference.what.strip_prefix(".status.") else {
                continue;
            };
            if difference.crd != name || path.contains('.') || path.contains('[') {
                continue;
            }
            for version in &mut crd.spec.versions {
                let schema = version
                    .schema
                    .as_mut()
                    .and_then(|schema| schema.open_api_v3_schema.as_mut());
                let status = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("status"));
                if let Some(properties) = status.and_then(|status| status.properties.as_mut()) {
                    properties.remove(path);
                }
            }
        }
        text += &format!("---\n{}", serde_json::to_string(&crd).unwrap());
        text.push('\n');
    }
    text
}

/// The definition of the network agents' reports, as open as a test needs it.
pub(crate) const OVS_NODES: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovsnodes.ovs.c5c3.io}
spec:
  group: ovs.c5c3.io
  scope: Namespaced
  names: {kind: OVSNode, plural: ovsnodes, singular: ovsnode, listKind: OVSNodeList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: v1
kind: Namespace
metadata: {name: ovn-system}
";
