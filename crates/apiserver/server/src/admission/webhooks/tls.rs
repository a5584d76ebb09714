// SPDX-License-Identifier: Apache-2.0
//! Whom to believe: the authorities a configuration names, or those of the operating system.
//! Certificates are always checked, and always for the name of the target.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Where distributions keep the authorities they trust.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// A client configuration that trusts the authorities of a bundle, or the system's without one.
pub(super) fn client_config(bundle: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let authorities = match bundle {
        Some(pem) => {
            read(pem).ok_or("unable to load root certificates: unable to parse bytes as PEM block")?
        }
        None => system()?,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let standard = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
    // Only certificates the configuration itself names can stand for themselves.
    let pinned = if bundle.is_some() { authorities } else { Vec::new() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { standard, pinned }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What is wrong with a bundle nobody can be believed by.
pub(super) fn bundle_problem(pem: &[u8]) -> Option<&'static str> {
    let Some(authorities) = read(pem) else {
        return Some("unable to load root certificates: unable to parse bytes as PEM block");
    };
    let (usable, _) = RootCertStore::empty().add_parsable_certificates(authorities);
    (usable == 0).then_some(
        "unable to load root certificates: failed to parse certificate: x509: malformed certificate",
    )
}

fn read(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect();
    (!found.is_empty()).then_some(found)
}

/// The system's authorities, read once.
fn system() -> Result<Vec<CertificateDer<'static>>, &'static str> {
    static FOUND: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        SYSTEM
            .iter()
            .find_map(|path| read(&std::fs::read(path).ok()?))
            .unwrap_or_default()
    });
    if found.is_empty() {
        Err("x509: certificate signed by unknown authority")
    } else {
        Ok(found.clone())
    }
}

/// The standard check, except that a certificate which is itself in the bundle is trusted even when
/// it calls itself an authority: that is what most tools make when asked for a self-signed one, and
/// the reference accepts it.
#[derive(Debug)]
struct Verifier {
    standard: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let result =
            self.standard
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match result {
            // Found only after the dates were found good.
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if is_authority(&why) && self.pinned.contains(end_entity) =>
            {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.standard.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.standard.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.standard.supported_verify_schemes()
    }
}

/// Whether a certificate was refused because it calls itself an authority.
fn is_authority(why: &rustls::OtherError) -> bool {
    format!("{why:?}").contains("CaUsedAsEndEntity")
}

/// A failed handshake in the words operators know from the reference.
pub(super) fn handshake_text(error: &std::io::Error, server_name: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(why)) => {
            let text = match why {
                // An authority of the right name and the wrong key is as unknown as any other.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "x509: certificate signed by unknown authority".to_owned()
                }
                // As is one that vouches for itself and was not named.
                CertificateError::Other(why) if is_authority(why) => {
                    "x509: certificate signed by unknown authority".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "x509: certificate has expired or is not yet valid".to_owned()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!("x509: certificate is not valid for {server_name}: {why}")
                }
                other => format!("x509: {other}"),
            };
            format!("tls: failed to verify certificate: {text}")
        }
        Some(other) => format!("tls: {other}"),
        None => error.to_string(),
    }
}
