// SPDX-License-Identifier: Apache-2.0
//! Who the roles of `up` are: each acts as the account of its own manifests, with the rights written
//! there and no others, so that a right that is missing in production is missing here as well.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::cluster::Cluster;

/// Where agents run and Migration objects go.
pub(crate) const AGENTS: &str = "monsoon3";
/// Where everything else runs.
pub(crate) const PLATFORM: &str = "cobaltcore";

/// The manifests, word for word. Those of agents are moved to their namespace, as an overlay would.
const MANIFESTS: [(&str, &str, &str); 11] = [
    (
        "hypervisor-operator/service-account.yaml",
        PLATFORM,
        include_str!("../../../../deploy/hypervisor-operator/service-account.yaml"),
    ),
    (
        "hypervisor-operator/rbac.yaml",
        PLATFORM,
        include_str!("../../../../deploy/hypervisor-operator/rbac.yaml"),
    ),
    (
        "hypervisor-operator/namespaced-rbac.yaml",
        PLATFORM,
        include_str!("../../../../deploy/hypervisor-operator/namespaced-rbac.yaml"),
    ),
    (
        "ha-service/service-account.yaml",
        PLATFORM,
        include_str!("../../../../deploy/ha-service/service-account.yaml"),
    ),
    (
        "ha-service/rbac.yaml",
        PLATFORM,
        include_str!("../../../../deploy/ha-service/rbac.yaml"),
    ),
    (
        "ha-service/namespaced-rbac.yaml",
        PLATFORM,
        include_str!("../../../../deploy/ha-service/namespaced-rbac.yaml"),
    ),
    (
        "console/service-account.yaml",
        PLATFORM,
        include_str!("../../../../deploy/console/service-account.yaml"),
    ),
    (
        "console/rbac.yaml",
        PLATFORM,
        include_str!("../../../../deploy/console/rbac.yaml"),
    ),
    (
        "console/people.yaml",
        PLATFORM,
        include_str!("../../../../deploy/console/people.yaml"),
    ),
    (
        "node-agent/serviceaccount.yaml",
        AGENTS,
        include_str!("../../../../deploy/node-agent/serviceaccount.yaml"),
    ),
    (
        "node-agent/rbac.yaml",
        AGENTS,
        include_str!("../../../../deploy/node-agent/rbac.yaml"),
    ),
];

/// Makes the namespaces, accounts and rights of all roles.
pub(crate) async fn install(cluster: &Cluster) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.administrator()?);
    for name in [PLATFORM, AGENTS] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        namespaces
            .patch(
                name,
                &PatchParams::apply("cobaltcore-up").force(),
                &Patch::Apply(&object),
            )
            .await
            .with_context(|| format!("cannot make the namespace {name}"))?;
    }
    for (path, namespace, text) in MANIFESTS {
        let moved = text.replace("namespace: cobaltcore", &format!("namespace: {namespace}"));
        cluster.apply_yaml(path, &moved).await?;
    }
    Ok(())
}

/// Speaks to the API as the node agents.
pub(crate) fn node_agent(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    cluster.account(AGENTS, "kvm-node-agent")
}

/// The same as the hypervisor operator.
pub(crate) fn operator(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    cluster.account(PLATFORM, "hypervisor-operator")
}

/// How the console speaks to the API by itself, beside the people who sign in there.
pub(crate) fn console(mut config: kube::Config) -> kube::Config {
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{PLATFORM}:console"));
    config
}

/// The same as the HA service.
pub(crate) fn ha_service(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    cluster.account(PLATFORM, "kvm-ha-service")
}
