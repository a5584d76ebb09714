// SPDX-License-Identifier: Apache-2.0
//! An authority of its own, with certificates for a daemon on 127.0.0.1 and for a client, in one directory.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use cobaltcore_libvirt::tls::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn leaf(
    issuer: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
    directory: &Path,
    kind: &str,
) {
    let mut params = params(name);
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    std::fs::write(directory.join(format!("{kind}cert.pem")), certificate.pem()).unwrap();
    std::fs::write(directory.join(format!("{kind}key.pem")), key.serialize_pem()).unwrap();
}

/// Writes `cacert.pem`, `clientcert.pem`, `clientkey.pem`, `servercert.pem`, `serverkey.pem`.
pub(crate) fn write(directory: &Path) -> PathBuf {
    std::fs::create_dir_all(directory).unwrap();
    let mut authority = params("test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(directory.join("cacert.pem"), issuer.pem()).unwrap();
    leaf(
        &issuer,
        "test daemon",
        ExtendedKeyUsagePurpose::ServerAuth,
        directory,
        "server",
    );
    leaf(
        &issuer,
        "test client",
        ExtendedKeyUsagePurpose::ClientAuth,
        directory,
        "client",
    );
    directory.to_owned()
}

/// The daemon's half of that directory.
#[allow(dead_code)]
pub(crate) fn server(directory: &Path) -> TlsFiles {
    TlsFiles {
        ca: directory.join("cacert.pem"),
        certificate: directory.join("servercert.pem"),
        key: directory.join("serverkey.pem"),
        crl: None,
    }
}
