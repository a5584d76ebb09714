// SPDX-License-Identifier: Apache-2.0
//! High availability, certificates and the definitions of the running system.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::Maintenance;
use cobaltcore_operator::Config;
use cobaltcore_operator::config::HaMode;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::definitions;
use crate::world::{
    Operator, cluster, condition, config, create_node, hypervisors, node, node_status, say, until,
    until_condition,
};

/// An HA service that notes what it is asked and answers with the next code, then with 200.
async fn ha_service(codes: &'static [u16]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    tokio::spawn(async move {
        let mut codes = codes.iter();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.ends_with('}') {
                let count = stream.read(&mut buffer).await.unwrap();
                text += std::str::from_utf8(&buffer[..count]).unwrap();
            }
            let (head, body) = (
                text.lines().next().unwrap().to_owned(),
                text.lines().last().unwrap().to_owned(),
            );
            log.lock().push(format!("{head} {body}"));
            let code = codes.next().unwrap_or(&200);
            let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, asked)
}

#[tokio::test]
async fn in_direct_mode_the_ha_service_is_told_once_per_change() {
    let server = cluster().await;
    let client = server.client();
    let (url, asked) = ha_service(&[500]).await;
    let settings = Config {
        ha_mode: HaMode::Direct,
        ha_service_url: url,
        ..config()
    };
    let operator = Operator::start(client.clone(), settings);
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    say(
        &client,
        "node1",
        "onboarding",
        json!({"conditions": [{"type": "Onboarding", "status": "True", "reason": "Handover"}]}),
    )
    .await;
    until_condition(&client, "node1", "HaEnabled", "True/Succeeded/HA is enabled").await;
    say(
        &client,
        "node1",
        "HypervisorMaintenance",
        json!({"conditions": [{"type": "Evicting", "status": "False", "reason": "Succeeded"}]}),
    )
    .await;
    until_condition(
        &client,
        "node1",
        "HaEnabled",
        "False/Evicted/HA disabled due to eviction",
    )
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = "POST /api/hypervisors/node1 HTTP/1.1";
    assert_eq!(
        *asked.lock(),
        [
            format!("{path} {{\"enabled\":true}}"),
            format!("{path} {{\"enabled\":true}}"),
            format!("{path} {{\"enabled\":false}}")
        ],
        "the refused call is repeated, the others are not"
    );
    operator.stop().await;
}

#[tokio::test]
async fn without_high_availability_every_host_says_so() {
    let server = cluster().await;
    let client = server.client();
    let settings = Config {
        ha_mode: HaMode::Off,
        ..config()
    };
    let operator = Operator::start(client.clone(), settings);
    create_node(&client, &node("node1")).await;
    until_condition(
        &client,
        "node1",
        "HaEnabled",
        "False/Disabled/HA is not configured",
    )
    .await;
    operator.stop().await;
}

pub(crate) const CERT_MANAGER: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: Certificate, plural: certificates, singular: certificate, listKind: CertificateList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn certificates_are_requested_when_cert_manager_arrives_and_mirrored() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False").await;
    assert_eq!(
        condition(
            &hypervisors(&client).get("node1").await.unwrap(),
            "CertificateIssued"
        ),
        ""
    );
    server.apply_yaml(CERT_MANAGER).await.unwrap();
    let certificates: Api<cobaltcore_operator::certificate::Certificate> =
        Api::namespaced(client.clone(), "monsoon3");
    let certificate = until("the certificate", || async {
        certificates.get_opt("libvirt-node1").await.ok()?
    })
    .await;
    assert_eq!(certificate.spec.ip_addresses, ["10.0.0.1", "fd00::1"]);
    assert_eq!(certificate.spec.secret_name, "tls-libvirt-node1");
    assert_eq!(certificate.owner_references()[0].kind, "Node");
    until_condition(
        &client,
        "node1",
        "CertificateIssued",
        "False/Pending/Waiting for cert-manager",
    )
    .await;
    let issued = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "valid", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    certificates
        .patch_status("libvirt-node1", &PatchParams::default(), &Patch::Merge(issued))
        .await
        .unwrap();
    until_condition(&client, "node1", "CertificateIssued", "True/Issued/valid").await;
    operator.stop().await;
}

#[tokio::test]
async fn the_operator_works_with_the_definitions_of_the_running_system() {
    let server = cobaltcore_apiserver::testkit::TestServer::start().await;
    server
        .apply_yaml(&definitions::of_the_running_system())
        .await
        .unwrap();
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "Ready", "False/Onboarding").await;
    server.comes_to_rest(Duration::from_secs(1)).await;
    assert_eq!(
        hypervisors(&client)
            .get("node1")
            .await
            .unwrap()
            .status
            .unwrap()
            .phase,
        None
    );
    // The definition is renewed while the operator runs.
    for crd in cobaltcore_api::crds() {
        server
            .apply_yaml(&serde_json::to_string(&crd).unwrap())
            .await
            .unwrap();
    }
    until("the phase", || async {
        hypervisors(&client).get("node1").await.unwrap().status?.phase
    })
    .await;
    operator.stop().await;
}

fn health(ready: &str, since: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]})
}

#[tokio::test]
async fn sick_nodes_are_reported_and_without_nova_nothing_is_moved() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    for name in ["node1", "node2", "node3", "node4"] {
        create_node(&client, &node(name)).await;
        until_condition(&client, name, "Ready", "False").await;
        say(
            &client,
            name,
            "onboarding",
            json!({"conditions": [{"type": "Onboarding", "status": "False", "reason": "Succeeded"}]}),
        )
        .await;
    }
    until_condition(&client, "node1", "Ready", "True").await;
    node_status(&client, "node1", &health("Unknown", "2026-01-01T00:00:00Z")).await;
    until_condition(&client, "node1", "NodeReady", "False/Unreachable").await;
    until_condition(&client, "node1", "Ready", "False/NodeNotReady").await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(client.clone());
    let told = |reason: &'static str| {
        let events = events.clone();
        async move {
            until(reason, || async {
                let all = events.list(&kube::api::ListParams::default()).await.unwrap();
                all.items
                    .iter()
                    .any(|event| event.reason.as_deref() == Some(reason))
                    .then_some(())
            })
            .await;
        }
    };
    told("NodeUnhealthy").await;
    // A second one makes half of the zone: that is nobody's own fault.
    node_status(&client, "node2", &health("False", "2026-01-01T00:00:00Z")).await;
    told("NodeHealthBrake").await;
    for name in ["node1", "node2"] {
        assert_eq!(
            hypervisors(&client).get(name).await.unwrap().spec.maintenance,
            Maintenance::Off
        );
    }
    until("the brake in the metrics", || async {
        operator
            .telemetry
            .encode()
            .contains("node_health_brake_active{zone=\"qa-de-1a\"} 1")
            .then_some(())
    })
    .await;
    node_status(&client, "node1", &health("True", "2026-01-01T00:00:00Z")).await;
    until_condition(&client, "node1", "Ready", "True").await;
    operator.stop().await;
}

#[tokio::test]
async fn pressure_is_shown_and_fades() {
    let server = cluster().await;
    let client = server.client();
    let operator = Operator::start(client.clone(), config());
    create_node(&client, &node("node1")).await;
    until_condition(&client, "node1", "NodePressure", "False/NoPressure").await;
    let disk = |status: &str| {
        json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]})
    };
    node_status(&client, "node1", &disk("True")).await;
    until_condition(
        &client,
        "node1",
        "NodePressure",
        "True/DiskPressure/node condition DiskPressure",
    )
    .await;
    node_status(&client, "node1", &disk("False")).await;
    until_condition(&client, "node1", "NodePressure", "False/NoPressure").await;
    operator.stop().await;
}
