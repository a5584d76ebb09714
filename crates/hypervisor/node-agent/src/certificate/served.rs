// SPDX-License-Identifier: Apache-2.0
//! Which certificate libvirt serves. The certificate arrives before the server asks who we are, so it is seen even
//! where the handshake does not succeed afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;

use super::decide::Served;
use super::material::Material;

const TIME: Duration = Duration::from_secs(10);

/// Compares what is served at `address` with `material`.
pub(super) async fn compare(address: SocketAddr, material: &Material) -> Served {
    match tokio::time::timeout(TIME, leaf_at(address, material)).await {
        Ok(Some(leaf)) if leaf == material.leaf() => Served::Same,
        Ok(Some(_)) => Served::Other,
        // Nobody listens, or whoever listens does not show a certificate.
        Ok(None) | Err(_) => Served::NotListening,
    }
}

async fn leaf_at(address: SocketAddr, material: &Material) -> Option<Vec<u8>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let witness = Arc::new(Witness::default());
    let config = config(witness.clone(), material).ok()?;
    let name = ServerName::IpAddress(address.ip().into());
    // How the handshake ends does not matter, only what was shown.
    let _ = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    witness.leaf.lock().take()
}

/// libvirt wants to know its clients, so the host's own certificate is shown.
fn config(witness: Arc<Witness>, material: &Material) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(witness);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(material.certificate()).collect();
    match (chain, PrivateKeyDer::from_pem_slice(material.key())) {
        (Ok(chain), Ok(key)) => builder.with_client_auth_cert(chain, key),
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// Accepts any certificate and remembers it: the point is to learn what is served, nothing is said or believed.
#[derive(Debug, Default)]
struct Witness {
    leaf: Mutex<Option<Vec<u8>>>,
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.leaf.lock() = Some(leaf.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
