// SPDX-License-Identifier: Apache-2.0
//! What a secret must hold to be installed: three PEM texts that fit together and name this host. The private key
//! never shows in a log or in debug output.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::validity::Validity;

/// Secrets larger than this are not looked at; Kubernetes itself allows 1 MiB.
const MOST_BYTES: usize = 1024 * 1024;

/// Why a secret is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A key is missing.
    #[error("missing data for secret key {0}")]
    Missing(&'static str),
    /// A key does not hold what it should.
    #[error("{key}: {why}")]
    Content {
        /// The key of the secret.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The private key belongs to another certificate.
    #[error("tls.key does not belong to tls.crt: {0}")]
    Mismatch(String),
    /// The certificate is not for this host, has ended, or is not signed by `ca.crt`.
    #[error("tls.crt cannot be used by this host: {0}")]
    Unusable(String),
}

/// A checked secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
    leaf: Vec<u8>,
    validity: Validity,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl Material {
    /// Checks a secret: three keys, PEM, the key belongs to the certificate, the certificate is valid now, names the
    /// host or its address, and leads to the authority.
    pub fn from_secret(
        secret: &Secret,
        host: &str,
        ip: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Self, Invalid> {
        let data = |key: &'static str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            match bytes {
                Some(bytes) if bytes.0.len() > MOST_BYTES => Err(Invalid::Content {
                    key,
                    why: "too large".into(),
                }),
                Some(bytes) if !bytes.0.is_empty() => Ok(bytes.0.clone()),
                _ => Err(Invalid::Missing(key)),
            }
        };
        let (ca, certificate, key) = (data("ca.crt")?, data("tls.crt")?, data("tls.key")?);
        Self::check(ca, certificate, key, host, ip, now)
    }

    /// [`Material::from_secret`] from the three texts.
    pub fn check(
        ca: Vec<u8>,
        certificate: Vec<u8>,
        key: Vec<u8>,
        host: &str,
        ip: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Self, Invalid> {
        let authorities = certificates("ca.crt", &ca)?;
        let chain = certificates("tls.crt", &certificate)?;
        let (leaf, intermediates) = chain.split_first().ok_or(Invalid::Missing("tls.crt"))?;
        let content = |key, why: &dyn fmt::Display| Invalid::Content {
            key,
            why: why.to_string(),
        };
        let private = PrivateKeyDer::from_pem_slice(&key).map_err(|error| content("tls.key", &error))?;
        CertifiedKey::from_der(chain.clone(), private, &default_provider())
            .map_err(|error| Invalid::Mismatch(error.to_string()))?;
        let validity = Validity::of(leaf).map_err(|error| content("tls.crt", &error))?;
        verify(leaf, intermediates, authorities, &names(host, ip), now)?;
        Ok(Self {
            leaf: leaf.to_vec(),
            ca,
            certificate,
            key,
            validity,
        })
    }

    /// The authority, PEM.
    pub fn ca(&self) -> &[u8] {
        &self.ca
    }

    /// The certificate and its chain, PEM.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The private key, PEM.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The certificate itself, DER.
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// From when to when it is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// A short name for the whole content, which tells nothing about it.
    pub fn fingerprint(&self) -> String {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        for part in [&self.ca, &self.certificate, &self.key] {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finish();
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn certificates(key: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let content = |why: String| Invalid::Content { key, why };
    match found {
        Ok(found) if found.is_empty() => Err(content("there is no certificate".into())),
        Ok(found) => Ok(found),
        Err(error) => Err(content(format!("not PEM: {error}"))),
    }
}

fn names(host: &str, ip: Option<IpAddr>) -> Vec<ServerName<'static>> {
    let host = ServerName::try_from(host.to_owned()).ok();
    host.into_iter()
        .chain(ip.map(|ip| ServerName::IpAddress(ip.into())))
        .collect()
}

/// One of the names is enough; the first error is the one about the host's own name.
fn verify(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    authorities: Vec<CertificateDer<'static>>,
    names: &[ServerName<'_>],
    now: Timestamp,
) -> Result<(), Invalid> {
    let unusable = |error: &dyn fmt::Display| Invalid::Unusable(error.to_string());
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority);
        added.map_err(|error| Invalid::Content {
            key: "ca.crt",
            why: error.to_string(),
        })?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .build()
        .map_err(|error| unusable(&error))?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let mut first = None;
    for name in names {
        match verifier.verify_server_cert(leaf, intermediates, name, &[], time) {
            Ok(_) => return Ok(()),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.map_or_else(|| unusable(&"the host has no name"), |error| unusable(&error)))
}
