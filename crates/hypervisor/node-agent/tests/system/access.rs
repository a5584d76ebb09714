// SPDX-License-Identifier: Apache-2.0
//! The agent under the rules that are shipped: they suffice, and nothing in them is granted in vain.

use std::collections::BTreeSet;
use std::path::Path;

use cobaltcore_api::HypervisorSpec;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::json;

use crate::certificates::Authority;
use crate::scene::{Agent, NAMESPACE, NODE, Scene, eventually};
use crate::services::{OnStart, UnitValues};

const USER: &str = "system:serviceaccount:monsoon3:kvm-node-agent";

/// Rights that this scene has no occasion for: migrations need two libvirt hosts and are seen by their own suite,
/// metrics need a scraper, and a watch that was cut off needs a second look at its object.
const NO_OCCASION: &[&str] = &[
    "create migrations.kvm.cloud.sap in monsoon3",
    "get migrations.kvm.cloud.sap in monsoon3",
    "list migrations.kvm.cloud.sap in monsoon3",
    "patch migrations.kvm.cloud.sap in monsoon3",
    "patch migrations.kvm.cloud.sap/status in monsoon3",
    "create tokenreviews.authentication.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "get hypervisors.kvm.cloud.sap",
    "patch events.events.k8s.io",
];

/// The shipped manifest, in the namespace of the scene.
fn manifest(file: &str) -> String {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/node-agent");
    let text = std::fs::read_to_string(deploy.join(file)).unwrap();
    text.replace("namespace: cobaltcore", &format!("namespace: {NAMESPACE}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_rules_suffice_and_grant_nothing_in_vain() {
    let server = TestServer::start_with_rbac().await;
    let spec = HypervisorSpec {
        version: "2.0".into(),
        ..HypervisorSpec::default()
    };
    let Some(scene) = Scene::with(server, spec).await else {
        return;
    };
    for file in ["serviceaccount.yaml", "rbac.yaml"] {
        scene.server.apply_yaml(&manifest(file)).await.unwrap();
    }
    scene.far.on_start("systemd-sysupdate@2.0.service", OnStart::Done);
    scene
        .far
        .on_start("virt-admin-server-update-tls.service", OnStart::Done);
    scene
        .far
        .set("libvirtd.service", UnitValues::new("active", "running"))
        .await;
    let authority = Authority::new();
    authority.publish(&scene, NAMESPACE, &authority.pair(NODE)).await;

    let client = scene
        .server
        .client_for_service_account(NAMESPACE, "kvm-node-agent");
    let agent = Agent::start(scene.config(&[]), client);
    scene.until("libvirtd.service", "True/Running").await;
    scene.until("TLSCertificateInstalled", "True/Ready").await;
    scene.until("OperatingSystemUpdate", "True/Completed").await;
    scene.until("EvacuationReady", "True/Armed").await;

    // A shutdown with a libvirt that cannot be asked needs an Eviction; one that exists is read and watched.
    let old = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": NODE},
        "spec": {"hypervisor": NODE, "reason": "a person was quicker"}});
    scene.server.apply_yaml(&old.to_string()).await.unwrap();
    scene.far.prepare_for_shutdown(true).await;
    let records = || scene.server.server().api().rbac_report_for(USER);
    eventually("every right was used", async || {
        let report = records();
        let mut unused = BTreeSet::new();
        for right in &report.unused {
            unused.extend(right.lines());
        }
        let expected: BTreeSet<String> = NO_OCCASION.iter().map(ToString::to_string).collect();
        let surplus: Vec<_> = unused.difference(&expected).cloned().collect();
        surplus.is_empty().then_some(()).ok_or(surplus)
    })
    .await;
    let report = records();
    assert!(
        report.missing.is_empty(),
        "the rules do not suffice: {:#?}",
        report.missing
    );
    assert_eq!(report.dropped, 0);

    let admin = scene.server.admin();
    let done = json!({"status": {"evictionState": "Succeeded"}});
    let path = format!("/apis/kvm.cloud.sap/v1/evictions/{NODE}/status");
    assert_eq!(admin.merge(&path, &done).await.code, 200);
    let mut held = scene.far.held();
    held.wait_for(|count| *count == 0).await.unwrap();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_namespace_sees_no_secret() {
    let server = TestServer::start_with_rbac().await;
    server
        .apply_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: monsoon3}\n")
        .await
        .unwrap();
    for file in ["serviceaccount.yaml", "rbac.yaml"] {
        server.apply_yaml(&manifest(file)).await.unwrap();
    }
    let agent = server.as_service_account(NAMESPACE, "kvm-node-agent");
    for (path, code) in [
        ("/api/v1/namespaces/monsoon3/secrets", 200),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/api/v1/secrets", 403),
        ("/api/v1/nodes", 403),
    ] {
        assert_eq!(agent.get(path).await.code, code, "{path}");
    }
    let hypervisor = "/apis/kvm.cloud.sap/v1/hypervisors/node1";
    assert_eq!(agent.delete(hypervisor).await.code, 403);
    assert_eq!(
        agent
            .merge(hypervisor, &json!({"spec": {"reboot": true}}))
            .await
            .code,
        403
    );
}
