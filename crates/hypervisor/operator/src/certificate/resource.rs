// SPDX-License-Identifier: Apache-2.0
//! cert-manager's Certificate, as much of it as is written and read here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What a certificate should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cert-manager.io",
    version = "v1",
    kind = "Certificate",
    plural = "certificates",
    namespaced,
    status = "CertificateStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "A certificate that cert-manager keeps in a Secret."
)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSpec {
    /// The Secret to keep it in.
    pub secret_name: String,
    /// The name on the certificate, at most 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<String>,
    /// Host names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// Addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// How long it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its end it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
    /// Whether it may issue others.
    #[serde(rename = "isCA")]
    pub is_ca: bool,
    /// What it may be used for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usages: Vec<String>,
    /// Whom it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<PrivateKey>,
    /// Who issues it.
    pub issuer_ref: IssuerRef,
}

/// Whom a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Organisations.
    #[serde(default)]
    pub organizations: Vec<String>,
}

/// The key of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrivateKey {
    /// `RSA`, ...
    #[serde(default)]
    pub algorithm: String,
    /// `PKCS1`, ...
    #[serde(default)]
    pub encoding: String,
    /// Bits.
    #[serde(default)]
    pub size: i64,
}

/// Who issues a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IssuerRef {
    /// Its name.
    pub name: String,
    /// `Issuer` or `ClusterIssuer`.
    pub kind: String,
    /// Its API group.
    pub group: String,
}

/// How far a certificate got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateStatus {
    /// Conditions; `Ready` is the one that counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
