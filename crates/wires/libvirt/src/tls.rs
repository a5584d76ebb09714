// SPDX-License-Identifier: Apache-2.0
//! Certificates for TLS connections, in libvirt's files and places. The peer's certificate is always verified, on
//! both sides; there is no switch to turn that off.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// Where the certificate authority, the own certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authority that signed the peer's certificate.
    pub ca: PathBuf,
    /// Own certificate chain; a client without one is usually refused by the daemon.
    pub certificate: PathBuf,
    /// Key of the own certificate.
    pub key: PathBuf,
    /// Revoked certificates; not an error when the file does not exist.
    pub crl: Option<PathBuf>,
}

impl TlsFiles {
    /// The client's files below `/etc/pki`.
    pub fn system() -> Self {
        Self::below(Path::new("/etc/pki"))
    }

    /// The client's files in a tree like `/etc/pki`.
    pub fn below(root: &Path) -> Self {
        Self {
            ca: root.join("CA/cacert.pem"),
            certificate: root.join("libvirt/clientcert.pem"),
            key: root.join("libvirt/private/clientkey.pem"),
            crl: Some(root.join("CA/cacrl.pem")),
        }
    }

    /// The client's files in one directory, as the URI parameter `pkipath` has it.
    pub fn flat(directory: &Path) -> Self {
        Self {
            ca: directory.join("cacert.pem"),
            certificate: directory.join("clientcert.pem"),
            key: directory.join("clientkey.pem"),
            crl: Some(directory.join("cacrl.pem")),
        }
    }

    pub(crate) fn client_identity(&self) -> String {
        if self.certificate.exists() {
            self.certificate.display().to_string()
        } else {
            format!("there is none: {} does not exist", self.certificate.display())
        }
    }

    /// How a client uses these files.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(read_roots(&self.ca)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(self.read_crls()?)
            .build()
            .map_err(|error| format!("{}: {error}", self.ca.display()))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_webpki_verifier(verifier);
        let config = if self.certificate.exists() {
            let (chain, key) = self.read_identity()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                format!(
                    "{} with {}: {error}",
                    self.certificate.display(),
                    self.key.display()
                )
            })?
        } else {
            builder.with_no_client_auth()
        };
        Ok(Arc::new(config))
    }

    /// How a daemon uses such files: clients need a certificate of the same authority.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(read_roots(&self.ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| format!("{}: {error}", self.ca.display()))?;
        let (chain, key) = self.read_identity()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| {
                format!(
                    "{} with {}: {error}",
                    self.certificate.display(),
                    self.key.display()
                )
            })?;
        // libvirt's client reads exactly one byte after the handshake and takes a session ticket for a failure.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn read_identity(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| format!("key {}: {error}", self.key.display()))?;
        Ok((chain, key))
    }

    fn read_crls(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
        let Some(path) = self.crl.as_deref().filter(|path| path.exists()) else {
            return Ok(Vec::new());
        };
        CertificateRevocationListDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| format!("revocation list {}: {error}", path.display()))
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| format!("certificate {}: {error}", path.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} has no certificate in it", path.display()));
    }
    Ok(certificates)
}

fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("authority {}: {error}", path.display()))?;
    }
    Ok(roots)
}
