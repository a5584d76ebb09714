// SPDX-License-Identifier: Apache-2.0
//! Which certificate a node should have, and what to say about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cobaltcore_api::Hypervisor;
use cobaltcore_api::conditions::HypervisorCondition::CertificateIssued;
use cobaltcore_api::reasons::CertificateIssuedReason::{Issued, NotRequested, Pending};
use cobaltcore_kit::controller::Plan;
use cobaltcore_kit::status::{NewCondition, find};
use k8s_openapi::api::core::v1::Node;

use super::{Certificate, CertificateSpec, IssuerRef, PrivateKey, Subject};
use crate::config::{CertificateMode, Config};

/// What the names of certificates begin with.
pub(super) const PREFIX: &str = "libvirt-";
/// The longest common name that X.509 allows.
const LONGEST_NAME: usize = 64;

/// The name of the certificate of a node.
pub(super) fn name(node: &str) -> String {
    format!("{PREFIX}{node}")
}

/// What is known besides the Node.
pub(crate) struct Facts {
    pub(super) installed: bool,
    pub(super) hypervisor: Option<Arc<Hypervisor>>,
    pub(super) certificate: Option<Arc<Certificate>>,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask cert-manager for a certificate.
    Request(Box<CertificateSpec>),
    /// Say how far it got, or nothing.
    Report(Option<NewCondition>),
}

/// What of a Node is looked at.
pub(super) fn inputs(node: &Node) -> impl PartialEq + use<> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone());
    (node.metadata.labels.clone(), node.metadata.uid.clone(), addresses)
}

/// What to do.
pub(super) fn decide(node: &Node, facts: &Facts, config: &Config) -> Plan<Action> {
    // Nothing is known yet of a node without Hypervisor; its arrival is the next look.
    let Some(hypervisor) = facts.hypervisor.as_deref() else {
        return Plan::rest();
    };
    let wanted = match config.certificates {
        CertificateMode::Never => false,
        CertificateMode::Always => true,
        CertificateMode::Auto => facts.installed && hypervisor.spec.install_certificate,
    };
    if !wanted {
        return Plan::of(vec![Action::Report(None)]);
    }
    if !facts.installed {
        let message = "cert-manager is not installed in this cluster";
        let condition = NewCondition::no(CertificateIssued, NotRequested, message);
        return Plan::of(vec![Action::Report(Some(condition))]);
    }
    let spec = spec(node, config);
    let there = facts.certificate.as_deref();
    let request = there
        .is_none_or(|certificate| certificate.spec != spec)
        .then(|| Action::Request(Box::new(spec)));
    let report = Action::Report(Some(mirror(there)));
    Plan::of(request.into_iter().chain([report]).collect())
}

/// What cert-manager says, as a condition of the Hypervisor.
fn mirror(certificate: Option<&Certificate>) -> NewCondition {
    let status = certificate.and_then(|certificate| certificate.status.as_ref());
    match status.and_then(|status| find(&status.conditions, "Ready")) {
        Some(ready) if ready.status == "True" => {
            NewCondition::yes(CertificateIssued, Issued, ready.message.clone())
        }
        Some(ready) => NewCondition::no(CertificateIssued, Pending, ready.message.clone()),
        None => NewCondition::no(CertificateIssued, Pending, "Waiting for cert-manager"),
    }
}

/// The certificate that a node should have.
fn spec(node: &Node, config: &Config) -> CertificateSpec {
    let name = node.metadata.name.clone().unwrap_or_default();
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let (mut hosts, mut ips) = (BTreeSet::from([name.clone()]), BTreeSet::new());
    for address in addresses.filter(|address| !address.address.is_empty()) {
        match address.type_.as_str() {
            "Hostname" | "InternalDNS" | "ExternalDNS" => hosts.insert(address.address.clone()),
            "InternalIP" | "ExternalIP" => ips.insert(address.address.clone()),
            _ => false,
        };
    }
    let mut usages = vec![
        "server auth",
        "client auth",
        "digital signature",
        "key encipherment",
    ];
    if config.certificate_cert_sign {
        usages.insert(2, "cert sign");
    }
    CertificateSpec {
        secret_name: format!("tls-libvirt-{name}"),
        common_name: Some(name).filter(|name| name.len() <= LONGEST_NAME),
        dns_names: hosts.into_iter().collect(),
        ip_addresses: ips.into_iter().collect(),
        duration: Some("1128h0m0s".into()),
        renew_before: Some("888h0m0s".into()),
        is_ca: false,
        usages: usages.into_iter().map(str::to_owned).collect(),
        subject: Some(Subject {
            organizations: vec!["nova".into()],
        }),
        private_key: Some(PrivateKey {
            algorithm: "RSA".into(),
            encoding: "PKCS1".into(),
            size: 4096,
        }),
        issuer_ref: IssuerRef {
            name: config.certificate_issuer_name.clone(),
            kind: config.certificate_issuer_kind.clone(),
            group: "cert-manager.io".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "10.0.0.2"}, {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": name}, {"type": "InternalDNS", "address": "a.example"},
                {"type": "ExternalDNS", "address": ""},
            ]},
        }))
        .unwrap()
    }

    fn facts(installed: bool, install: bool) -> Facts {
        let hypervisor = json!({"metadata": {"name": "n1"}, "spec": {"installCertificate": install}});
        Facts {
            installed,
            hypervisor: Some(Arc::new(serde_json::from_value(hypervisor).unwrap())),
            certificate: None,
        }
    }

    fn config(certificates: CertificateMode) -> Config {
        Config {
            certificates,
            ..Config::default()
        }
    }

    #[test]
    fn the_certificate_names_the_node_and_nothing_twice() {
        let spec = spec(&node("n1"), &Config::default());
        assert_eq!(spec.dns_names, ["a.example", "n1"]);
        assert_eq!(spec.ip_addresses, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(
            (spec.secret_name.as_str(), spec.common_name.as_deref()),
            ("tls-libvirt-n1", Some("n1"))
        );
        assert!(!spec.usages.contains(&"cert sign".to_owned()));
        let long = "n".repeat(65);
        assert_eq!(super::spec(&node(&long), &Config::default()).common_name, None);
        let old = Config {
            certificate_cert_sign: true,
            ..Config::default()
        };
        assert!(
            super::spec(&node("n1"), &old)
                .usages
                .contains(&"cert sign".to_owned())
        );
    }

    #[test]
    fn a_certificate_is_requested_where_it_is_wanted() {
        use CertificateMode::{Always, Auto, Never};
        let table = [
            (Auto, true, true, true),
            (Auto, false, true, false),
            (Auto, true, false, false),
            (Always, true, false, true),
            (Always, false, true, false),
            (Never, true, true, false),
        ];
        for (mode, installed, install, requested) in table {
            let actions = decide(&node("n1"), &facts(installed, install), &config(mode)).actions;
            let found = actions.iter().any(|action| matches!(action, Action::Request(_)));
            assert_eq!(found, requested, "{mode:?} {installed} {install}");
        }
        let told = decide(&node("n1"), &facts(false, true), &config(Always)).actions;
        let missing = NewCondition::no(
            "CertificateIssued",
            "NotRequested",
            "cert-manager is not installed in this cluster",
        );
        assert_eq!(told, [Action::Report(Some(missing))]);
    }

    #[test]
    fn an_issued_certificate_is_mirrored_and_left_alone() {
        let mut facts = facts(true, true);
        let mut certificate = Certificate::new("libvirt-n1", spec(&node("n1"), &Config::default()));
        certificate.status = serde_json::from_value(json!({"conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "up to date", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}))
        .unwrap();
        facts.certificate = Some(Arc::new(certificate));
        let issued = NewCondition::yes("CertificateIssued", "Issued", "up to date");
        assert_eq!(
            decide(&node("n1"), &facts, &config(CertificateMode::Auto)).actions,
            [Action::Report(Some(issued))]
        );
    }
}
