// SPDX-License-Identifier: Apache-2.0
//! The agent under the rules that are shipped: they suffice, and nothing in them is granted in vain.

use std::collections::BTreeSet;

use clap::Parser as _;
use cobaltcore_api::HypervisorSpec;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

use crate::certificates::Authority;
use crate::rules::{self, USER, agent_on};
use crate::scene::{Agent, Cli, NAMESPACE, NODE, Scene, eventually};
use crate::services::{OnStart, Unit};

/// Rights that this scene has no occasion for: migrations need two libvirt hosts and are used by their own suite, under
/// the same rules; metrics need a scraper, and a watch that was cut off needs a second look at its object.
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
    rules::apply(&scene.server, &[]).await;
    scene.far.on_start("systemd-sysupdate@2.0.service", OnStart::Done);
    scene
        .far
        .on_start("virt-admin-server-update-tls.service", OnStart::Done);
    scene
        .far
        .set("libvirtd.service", Unit::new("active", "running"))
        .await;
    let authority = Authority::new();
    authority.publish(&scene, NAMESPACE, &authority.pair(NODE)).await;

    let agent = Agent::start(scene.config(&[]), scene.server.client_as(agent_on(NODE)));
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
    rules::apply(&server, &[]).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_speaks_for_its_own_node_only() {
    let server = TestServer::start_with_rbac().await;
    server.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    server
        .apply_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: monsoon3}\n")
        .await
        .unwrap();
    rules::apply(&server, &["takeover/role.yaml"]).await;
    for node in ["node1", "node2"] {
        let object = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": node}, "spec": {}});
        server.apply_yaml(&object.to_string()).await.unwrap();
    }
    let agent = server.caller(agent_on("node1"));
    let status = |node: &str| format!("/apis/kvm.cloud.sap/v1/hypervisors/{node}/status");
    let report = json!({"status": {"numInstances": 3}});
    assert_eq!(agent.merge(&status("node1"), &report).await.code, 200);
    let refused = agent.merge(&status("node2"), &report).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let words = "the agent of node1 may only write the Hypervisor of that name";
    assert!(refused.message().ends_with(words), "{}", refused.message());
    // Even where it may write the object to take over from its forerunner, the wishes in it are not its own.
    let object = "/apis/kvm.cloud.sap/v1/hypervisors/node1";
    let refused = agent.merge(object, &json!({"spec": {"reboot": true}})).await;
    assert!(
        refused
            .message()
            .ends_with("does not change what is asked of its host"),
        "{}",
        refused.message()
    );
    let owners = agent.get(object).await.body["metadata"]["managedFields"].clone();
    let same = json!({"metadata": {"managedFields": owners}});
    assert_eq!(agent.merge(object, &same).await.code, 200);
    // A token that does not say where it runs speaks for nobody.
    let nowhere = server.as_service_account(NAMESPACE, "kvm-node-agent");
    let refused = nowhere.merge(&status("node1"), &report).await;
    assert!(
        refused.message().contains("does not name its node"),
        "{}",
        refused.message()
    );

    let eviction = |name: &str, node: &str| {
        json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": name},
            "spec": {"hypervisor": node, "reason": "r"}})
    };
    let evictions = "/apis/kvm.cloud.sap/v1/evictions";
    assert_eq!(agent.post(evictions, &eviction("a", "node1")).await.code, 201);
    assert_eq!(agent.post(evictions, &eviction("b", "node2")).await.code, 403);

    let migrations = "/apis/kvm.cloud.sap/v1alpha1/namespaces/monsoon3/migrations";
    let migration = |name: &str, labels: serde_json::Value| {
        json!({"apiVersion": "kvm.cloud.sap/v1alpha1", "kind": "Migration",
            "metadata": {"name": name, "labels": labels}, "spec": {}})
    };
    for (name, labels, code) in [
        ("from", json!({"kvm.cloud.sap/source-node": "node1"}), 201),
        (
            "to",
            json!({"kvm.cloud.sap/destination-node": "node1", "kvm.cloud.sap/source-node": "node2"}),
            201,
        ),
        ("others", json!({"kvm.cloud.sap/source-node": "node2"}), 403),
        ("nobody", json!({}), 403),
    ] {
        let reply = agent.post(migrations, &migration(name, labels)).await;
        assert_eq!(reply.code, code, "{name}: {}", reply.body);
    }
    // People and the operator are not bound by it.
    let admin = server.admin();
    assert_eq!(admin.merge(&status("node2"), &report).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_pod_survives_what_it_has_to_and_may_nothing_else() {
    let server = TestServer::start().await;
    server
        .apply_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: monsoon3}\n")
        .await
        .unwrap();
    rules::apply(&server, &["daemonset.yaml"]).await;
    let path = "/apis/apps/v1/namespaces/monsoon3/daemonsets/kvm-node-agent";
    let shipped = server.admin().get(path).await.body;
    let pod = &shipped["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "system-node-critical");
    assert_eq!(
        pod["tolerations"],
        json!([{"operator": "Exists"}]),
        "also of hosts that are taken out"
    );
    assert_eq!(
        pod["terminationGracePeriodSeconds"], 600,
        "as long as an evacuation may take"
    );
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert_eq!(pod[field], Value::Null, "{field}");
    }
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let mounted = pod["volumes"].as_array().unwrap().iter();
    let paths: Vec<_> = mounted
        .filter_map(|volume| volume["hostPath"]["path"].as_str())
        .collect();
    assert!(!paths.is_empty() && !paths.contains(&"/"), "{paths:?}");

    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({"runAsUser": 42438, "runAsGroup": 42438, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    let mut variables = container["env"].as_array().unwrap().iter();
    let namespace = variables
        .find(|variable| variable["name"] == "NAMESPACE")
        .unwrap();
    assert_eq!(
        namespace["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.namespace"
    );
    let words = container["args"].as_array().unwrap().iter();
    let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "node-agent");
    Cli::try_parse_from(&words).expect("flags of the manifest");
}
