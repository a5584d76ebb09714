// SPDX-License-Identifier: Apache-2.0
//! What is shipped for clusters fits together: agents reach every replica, and each other.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use cobaltcore_ha_agent::config::{Config, Discover};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy");
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn agents_report_to_every_replica() {
    let config = Config::parse("config.yaml", &read("ha-agent/config.yaml")).unwrap();
    assert_eq!(config.service.discover, Discover::Dns);
    let services = read("ha-service/services.yaml");
    for endpoint in &config.service.endpoints {
        let host = endpoint.trim_start_matches("https://").split('.').next().unwrap();
        let named = format!("metadata: {{name: {host}, ");
        let service = services
            .split("\n---\n")
            .find(|text| text.contains(&named))
            .unwrap();
        // Any other name leads to one replica at a time, and the others would take the host for silent.
        assert!(service.contains("clusterIP: None"), "{host}:\n{service}");
        assert!(
            service.contains("publishNotReadyAddresses: true"),
            "{host}:\n{service}"
        );
    }
}

/// Without these an agent in a pod never learns that the boot before ended in a crash.
#[test]
fn agents_see_what_a_crashed_kernel_left() {
    let pods = read("ha-agent/daemonset.yaml");
    for place in ["/var/lib/systemd/pstore", "/var/crash"] {
        assert!(
            pods.contains(&format!("mountPath: {place}, readOnly: true")),
            "{place}"
        );
        assert!(pods.contains(&format!("hostPath: {{path: {place},")), "{place}");
    }
}

#[test]
fn agents_answer_each_other_at_the_addresses_of_their_hosts() {
    let config = Config::parse("config.yaml", &read("ha-agent/config.yaml")).unwrap();
    let port = config.metrics.listen.rsplit(':').next().unwrap();
    let pods = read("ha-agent/daemonset.yaml");
    assert!(
        pods.contains(&format!("containerPort: {port}, hostPort: {port}")),
        "{pods}"
    );
}

/// Whatever is wrong with a node, its guests are watched, by a pod that may do nothing else.
#[test]
fn agents_run_on_every_hypervisor_and_without_rights() {
    let pods = read("ha-agent/daemonset.yaml");
    for words in [
        "key: nova.openstack.cloud.sap/virt-driver\n                    operator: Exists",
        "tolerations:\n        - operator: Exists",
        "priorityClassName: system-node-critical",
        "supplementalGroups: [108]",
        "automountServiceAccountToken: false",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
        "drop: [ALL]",
        "fieldPath: spec.nodeName",
        "httpGet: {path: /healthz, port: metrics}",
        "httpGet: {path: /readyz, port: metrics}",
        "hostPath: {path: /run/libvirt,",
        "hostPath: {path: /var/lib/kvm-ha-agent,",
    ] {
        assert!(pods.contains(words), "{words}");
    }
    assert!(
        !pods.contains("watchdog"),
        "only who fences itself gets the device"
    );
    assert!(
        !read("ha-agent/serviceaccount.yaml").contains("kind: Role"),
        "no rights in the cluster"
    );
}

/// A pipeline that reads the service's log selects its lines by the name of the container.
#[test]
fn the_service_keeps_the_name_that_its_log_is_found_by() {
    let pods = read("ha-service/statefulset.yaml");
    for words in [
        "name: kvm-ha-service-container\n",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
    ] {
        assert!(pods.contains(words), "{words}");
    }
}
