// SPDX-License-Identifier: Apache-2.0
//! The request to cert-manager, for installations where no operator makes it. Only fields the agent needs are
//! applied, under its own field manager, so what others add stays.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::field_managers::FieldManager;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::context::Context;

const CALL_TIME: Duration = Duration::from_secs(10);
/// The longest common name that X.509 allows.
const LONGEST_NAME: usize = 64;

/// Keeps the Certificate of the host as it should be.
#[derive(Default)]
pub struct CertificateRequest {
    applied: Option<Value>,
}

impl CertificateRequest {
    /// Applies the Certificate when the Hypervisor asks for it, the agent may, and it is not as it should be.
    pub(super) async fn ensure(&mut self, context: &Context, hypervisor: &Hypervisor) {
        let settings = &context.config.certificate;
        if !(settings.manage && hypervisor.spec.create_cert_manager_certificate) {
            self.applied = None;
            return;
        }
        let addresses = addresses(context).await;
        if addresses.is_empty() {
            tracing::warn!(
                "the host's name does not resolve and --host-ip-address is not given; no certificate is requested"
            );
            return;
        }
        let host = context.config.host.as_str();
        let wanted = certificate_for(host, &context.config.namespace, &settings.issuer, &addresses);
        if self.applied.as_ref() == Some(&wanted) {
            return;
        }
        match apply(context, host, &wanted).await {
            Ok(()) => self.applied = Some(wanted),
            Err(error) => tracing::warn!(error, "cannot request the certificate"),
        }
    }
}

async fn apply(context: &Context, host: &str, wanted: &Value) -> Result<(), String> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &context.config.namespace, &kind);
    let name = format!("libvirt-{host}");
    let parameters = PatchParams::apply(FieldManager::NodeAgent.as_str()).force();
    let patch = Patch::Apply(wanted);
    let call = api.patch(&name, &parameters, &patch);
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("applying Certificate {name}: {error}")),
        Err(_) => Err(format!(
            "applying Certificate {name}: no answer within {CALL_TIME:?}"
        )),
    }
}

/// The Certificate of a host.
///
/// ```
/// use cobaltcore_node_agent::certificate::certificate_for;
/// let addresses = ["10.0.0.7".parse().unwrap()];
/// let wanted = certificate_for("node1", "monsoon3", "issuer", &addresses.into());
/// assert_eq!(wanted["spec"]["secretName"], "tls-libvirt-node1");
/// assert_eq!(wanted["spec"]["ipAddresses"][0], "10.0.0.7");
/// ```
pub fn certificate_for(host: &str, namespace: &str, issuer: &str, addresses: &BTreeSet<IpAddr>) -> Value {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    // Host names are ASCII, so bytes are characters.
    let common_name = host.get(..LONGEST_NAME).unwrap_or(host);
    json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": format!("libvirt-{host}"), "namespace": namespace},
        "spec": {
            "secretName": super::secret_name(host),
            "privateKey": {"algorithm": "RSA", "encoding": "PKCS1", "size": 4096},
            "duration": "8h",
            "renewBefore": "2h",
            "isCA": false,
            "usages": ["server auth", "client auth", "digital signature", "key encipherment"],
            "subject": {"organizations": ["nova"]},
            "commonName": common_name,
            "dnsNames": [host],
            "ipAddresses": addresses,
            "issuerRef": {"name": issuer, "kind": "Issuer", "group": "cert-manager.io"},
        },
    })
}

/// The IPv4 addresses the host's name resolves to, else the address that was given.
async fn addresses(context: &Context) -> BTreeSet<IpAddr> {
    let lookup = tokio::net::lookup_host((context.config.host.as_str(), 0));
    let found = tokio::time::timeout(CALL_TIME, lookup).await;
    let found: BTreeSet<IpAddr> = found
        .into_iter()
        .flat_map(Result::into_iter)
        .flatten()
        .map(|address| address.ip())
        .filter(
            |address| matches!(address, IpAddr::V4(ip) if *ip != Ipv4Addr::UNSPECIFIED && !ip.is_loopback()),
        )
        .collect();
    if found.is_empty() {
        context.config.host_ip.into_iter().collect()
    } else {
        found
    }
}
