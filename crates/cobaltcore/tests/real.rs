// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore up` with a cluster or a cloud that it did not start: other processes play them. What makes no sense
//! together is refused before anything begins.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use cobaltcore_api::{Hypervisor, labels};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams};
use serde_json::json;
use support::{PROGRAM, Platform, all_in, eventually, field};

/// An API server of its own; it is killed with the test.
struct Cluster(Child);

impl Cluster {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        assert!(ready.starts_with("Kubernetes API ready"), "{ready}");
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An `up` that must not start.
fn refused(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(PROGRAM)
        .args(["up", "--console-listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_cluster_of_ones_own_holds_the_objects_of_a_simulated_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, up) = (folder.path().join("cluster"), folder.path().join("up"));
    let _cluster = Cluster::start(&cluster);
    let kubeconfig = cluster.join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let sizes = [
        "--hypervisors",
        "2",
        "--vms-per-host",
        "1",
        "--kubeconfig",
        kubeconfig,
    ];
    let platform = Platform::start_on_others(&up, &sizes, &[]);
    assert!(!up.join("state.db").exists(), "there is no embedded API");
    assert!(
        !platform.said.contains("#code="),
        "nobody gets more rights than they have: {}",
        platform.said
    );
    all_in(&cluster, "Active", 2);
    drop(platform);

    // Hosts that a simulated cloud knows nothing of are left alone, and so are contradictions.
    let other = folder.path().join("other");
    let (code, why) = refused(&other, &["--hypervisors", "1", "--kubeconfig", kubeconfig]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("node002-bb1") && why.contains("--cloud"), "{why}");
    let (code, why) = refused(&other, &["--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("--listen"), "{why}");
    let (code, why) = refused(&other, &["--kubeconfig", "/nowhere"]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("/nowhere"), "{why}");
}

async fn client(folder: &Path) -> kube::Client {
    cobaltcore_kit::startup::install_tls_provider();
    let path = folder.join("kubeconfig");
    cobaltcore_kit::program::client(Some(&path)).await.unwrap()
}

#[test]
fn a_cloud_of_ones_own_answers_for_hosts_of_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    let host = "node001-bb1";
    let _theirs = Platform::start(&theirs, &["--hypervisors", "2", "--vms-per-host", "1"]);
    let clouds = theirs.join("clouds.yaml");
    let set = [("OS_CLIENT_CONFIG_FILE", clouds.to_str().unwrap())];
    let platform = Platform::start_on_others(&ours, &["--cloud", "sim", "--listen", "127.0.0.1:0"], &set);
    assert!(!platform.said.contains("simulated"), "{}", platform.said);
    assert!(!ours.join("world.json").exists(), "there is no simulated world");

    // A host joins the cluster; what the operator knows of it comes from the other process's Nova.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": host, "labels": {
                labels::HOSTNAME.as_str(): host, labels::VIRT_DRIVER.as_str(): "kvm", labels::LIFECYCLE.as_str(): "true",
                labels::ZONE.as_str(): "qa-de-1a", labels::REGION.as_str(): "qa-de-1",
            }},
        });
        let nodes: Api<Node> = Api::all(client(&ours).await);
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let hypervisors: Api<Hypervisor> = Api::all(client(&ours).await);
        assert!(hypervisors.get_opt("node002-bb1").await.unwrap().is_none(), "nobody else's host");
    });
    eventually("the service of the other process's Nova", || {
        let known = field(&theirs, host, "/status/serviceId");
        !known.is_empty() && known == field(&ours, host, "/status/serviceId")
    });

    let (code, why) = refused(&folder.path().join("other"), &["--cloud", "nowhere"]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("nowhere") && why.contains("clouds.yaml"), "{why}");
    let (code, why) = refused(
        &folder.path().join("other"),
        &["--cloud", "sim", "--hypervisors", "3"],
    );
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("--hypervisors"), "{why}");
}
