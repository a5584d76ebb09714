// SPDX-License-Identifier: Apache-2.0
//! Keys and certificates of one server.
//!
//! The first start creates them, later starts read them back, and the server certificate is
//! renewed in time or when a name was added. Everything private is readable by its owner only;
//! a file that is not is refused rather than repaired, because somebody may have read it already.
//! Tests use [`Pki::ephemeral`], which touches no disk.

mod der;
mod files;
mod kubeconfig;

pub use der::{CertificateInfo, client_identity};
pub use files::{check_private_dir, read_private, write_private};
pub use kubeconfig::{KubeconfigEntry, merge_kubeconfig, write_kubeconfig};

use crate::error::AccessError;
use crate::identity::User;
use crate::tokens::ServiceAccountKey;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CA_NAME: &str = "cobaltcore-embedded-ca";
const CA_DAYS: i64 = 3650;
const SERVER_DAYS: i64 = 365;
const CLIENT_DAYS: i64 = 365;
const RENEW_DAYS: i64 = 30;
const HOST_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What the server certificate has to be valid for, beyond the fixed names.
#[derive(Debug, Clone, Default)]
pub struct PkiOptions {
    /// Further names and addresses.
    pub sans: Vec<String>,
    /// Addresses the server listens on; unspecified ones (0.0.0.0) are passed over.
    pub bind: Vec<IpAddr>,
    /// The address of the Service default/kubernetes.
    pub service_ip: Option<IpAddr>,
}

impl PkiOptions {
    /// All names and addresses, as text, each once.
    fn names(&self) -> Result<Vec<String>, AccessError> {
        let mut names: Vec<String> = HOST_NAMES.iter().map(|&n| n.to_owned()).collect();
        let mut add = |name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        add("127.0.0.1".to_owned());
        add("::1".to_owned());
        for address in self
            .bind
            .iter()
            .chain(&self.service_ip)
            .filter(|a| !a.is_unspecified())
        {
            add(address.to_string());
        }
        for san in &self.sans {
            let name = san.trim().trim_end_matches('.').to_ascii_lowercase();
            let host = name.strip_prefix("*.").unwrap_or(&name);
            let address = name.parse::<IpAddr>().ok();
            if address.is_none() && !crate::identity::is_dns_subdomain(host) {
                return Err(AccessError::BadName { name: san.clone() });
            }
            add(address.map_or(name, |a| a.to_string()));
        }
        Ok(names)
    }
}

/// Keys and certificates of one server.
pub struct Pki {
    ca: CertificateDer<'static>,
    ca_pem: String,
    ca_key: KeyPair,
    server: CertificateDer<'static>,
    server_key: Vec<u8>,
    admin_token: String,
    sa_key: Arc<ServiceAccountKey>,
    names: Vec<String>,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

fn crypto(action: &'static str) -> impl Fn(rcgen::Error) -> AccessError {
    move |e| AccessError::Crypto {
        action,
        detail: e.to_string(),
    }
}

impl Pki {
    /// Reads what is in `dir` and creates what is missing.
    pub fn open_or_create(dir: &Path, options: &PkiOptions) -> Result<Self, AccessError> {
        Self::open_or_create_at(dir, options, Timestamp::now())
    }

    /// The same, as if it were `now`.
    pub fn open_or_create_at(dir: &Path, options: &PkiOptions, now: Timestamp) -> Result<Self, AccessError> {
        files::ensure_private_dir(dir)?;
        let names = options.names()?;
        let ca_key = stored_key(&dir.join("ca.key"))?;
        let (ca_path, server_path) = (dir.join("ca.crt"), dir.join("server.crt"));
        let ca = match stored_certificate(&ca_path)? {
            Some((der, info)) if info.not_after > later(now, RENEW_DAYS) => {
                if info.public_key != ca_key.public_key_raw() {
                    let detail = "it does not belong to ca.key".to_owned();
                    return Err(AccessError::Damaged {
                        path: ca_path,
                        detail,
                    });
                }
                der
            }
            // The same key and name: certificates issued before stay valid.
            _ => {
                let der = new_ca(&ca_key, now)?;
                files::replace_private(&ca_path, pem("CERTIFICATE", &der).as_bytes())?;
                der
            }
        };
        let server_key = stored_key(&dir.join("server.key"))?;
        let server = match stored_certificate(&server_path)? {
            Some((der, info))
                if info.not_after > later(now, RENEW_DAYS)
                    && info.public_key == server_key.public_key_raw()
                    && names.iter().all(|n| info.names.contains(n))
                    && info.signed_by(ca_key.public_key_raw()) =>
            {
                der
            }
            _ => {
                let der = new_server(&server_key, &ca_key, &names, now)?;
                files::replace_private(&server_path, pem("CERTIFICATE", &der).as_bytes())?;
                der
            }
        };
        let admin_token = stored_token(&dir.join("admin-token"))?;
        let sa_key = stored_sa_key(&dir.join("sa.key"))?;
        files::sync_dir(dir)?;
        Ok(Self::assemble(
            ca,
            ca_key,
            server,
            &server_key,
            admin_token,
            sa_key,
            names,
        ))
    }

    /// New keys and certificates in memory, for tests and throw-away servers.
    pub fn ephemeral(options: &PkiOptions) -> Result<Self, AccessError> {
        let now = Timestamp::now();
        let names = options.names()?;
        let ca_key = new_key()?;
        let server_key = new_key()?;
        let ca = new_ca(&ca_key, now)?;
        let server = new_server(&server_key, &ca_key, &names, now)?;
        let sa_key = Arc::new(ServiceAccountKey::generate()?);
        Ok(Self::assemble(
            ca,
            ca_key,
            server,
            &server_key,
            new_token()?,
            sa_key,
            names,
        ))
    }

    fn assemble(
        ca: CertificateDer<'static>,
        ca_key: KeyPair,
        server: CertificateDer<'static>,
        server_key: &KeyPair,
        admin_token: String,
        sa_key: Arc<ServiceAccountKey>,
        names: Vec<String>,
    ) -> Self {
        let ca_pem = pem("CERTIFICATE", &ca);
        Self {
            ca,
            ca_pem,
            ca_key,
            server,
            server_key: server_key.serialize_der(),
            admin_token,
            sa_key,
            names,
        }
    }

    /// The certificate authority, as clients get it.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The certificate authority in DER form, for verifying client certificates.
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        &self.ca
    }

    /// The chain the server presents.
    pub fn cert_chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.server.clone()]
    }

    /// The server's private key.
    pub fn server_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server_key.clone()))
    }

    /// The administrator's token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// The key that signs ServiceAccount tokens.
    pub fn sa_key(&self) -> Arc<ServiceAccountKey> {
        Arc::clone(&self.sa_key)
    }

    /// Host names and addresses that the server certificate is valid for.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether a `Host` header (or `:authority`) names this server; the port does not matter.
    pub fn host_allowed(&self, host: &str) -> bool {
        let bare = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
                _ => return false,
            },
            // More than one colon without brackets is a bare IPv6 address.
            None => match host.split_once(':') {
                Some((name, port)) if !port.contains(':') => name,
                Some(_) | None => host,
            },
        };
        let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        let name = name.parse::<IpAddr>().map_or(name, |a| a.to_string());
        self.names.iter().any(|known| match known.strip_prefix("*.") {
            Some(parent) => name
                .split_once('.')
                .is_some_and(|(first, rest)| !first.is_empty() && rest == parent),
            None => *known == name,
        })
    }

    /// Issues a client certificate; gives certificate and key as PEM.
    pub fn issue_client_cert(&self, user: &str, groups: &[&str]) -> Result<(String, String), AccessError> {
        let now = Timestamp::now();
        let key = new_key()?;
        let subject = der::Subject {
            common_name: user,
            organizations: groups,
        };
        let until = later(now, CLIENT_DAYS);
        let der = der::client_certificate(&self.ca_key, CA_NAME, &subject, key.public_key_raw(), now, until)?;
        Ok((pem("CERTIFICATE", &der), key.serialize_pem()))
    }

    /// The identity in a client certificate that TLS has already verified against this CA.
    pub fn client_user(&self, certificate: &[u8]) -> Option<User> {
        let (name, groups) = client_identity(certificate)?;
        (!name.is_empty()).then(|| User::new(name, groups).authenticated())
    }
}

fn later(now: Timestamp, days: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_hours(days.saturating_mul(24)))
        .unwrap_or(Timestamp::MAX)
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for (at, c) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            out.push('\n');
        }
        out.push(c);
    }
    let _ = writeln!(out, "\n-----END {label}-----");
    out
}

fn random<const N: usize>() -> Result<[u8; N], AccessError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|e| AccessError::Crypto {
            action: "get random bytes",
            detail: e.to_string(),
        })?;
    Ok(bytes)
}

fn new_token() -> Result<String, AccessError> {
    Ok(URL_SAFE_NO_PAD.encode(random::<32>()?))
}

fn new_key() -> Result<KeyPair, AccessError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(crypto("create a key"))
}

/// A positive serial number nobody can guess.
fn serial() -> Result<SerialNumber, AccessError> {
    let mut bytes = random::<16>()?;
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}

fn base_params(common_name: &str, now: Timestamp, days: i64) -> Result<CertificateParams, AccessError> {
    let mut params = CertificateParams::default();
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        rcgen::date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    // Whole days, one spare at each end: clocks of clients may be behind.
    params.not_before = day(later(now, -1));
    params.not_after = day(later(now, days + 1));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.serial_number = Some(serial()?);
    Ok(params)
}

fn ca_params(now: Timestamp) -> Result<CertificateParams, AccessError> {
    let mut params = base_params(CA_NAME, now, CA_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn new_ca(key: &KeyPair, now: Timestamp) -> Result<CertificateDer<'static>, AccessError> {
    let certificate = ca_params(now)?
        .self_signed(key)
        .map_err(crypto("create the certificate authority"))?;
    Ok(certificate.der().clone())
}

fn new_server(
    key: &KeyPair,
    ca_key: &KeyPair,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateDer<'static>, AccessError> {
    let mut params = base_params("kube-apiserver", now, SERVER_DAYS)?;
    for name in names {
        let san = match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(
                name.as_str()
                    .try_into()
                    .map_err(|_| AccessError::BadName { name: name.clone() })?,
            ),
        };
        params.subject_alt_names.push(san);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let issuer_params = ca_params(now)?;
    let issuer = Issuer::from_params(&issuer_params, ca_key);
    let certificate = params
        .signed_by(key, &issuer)
        .map_err(crypto("create the server certificate"))?;
    Ok(certificate.der().clone())
}

fn stored_text(path: &Path) -> Result<Option<String>, AccessError> {
    let Some(bytes) = files::read_private(path)? else {
        return Ok(None);
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| AccessError::Damaged {
            path: path.to_owned(),
            detail: "not text".to_owned(),
        })
}

fn damaged(path: &Path, detail: impl std::fmt::Display) -> AccessError {
    AccessError::Damaged {
        path: PathBuf::from(path),
        detail: detail.to_string(),
    }
}

fn stored_key(path: &Path) -> Result<KeyPair, AccessError> {
    if let Some(text) = stored_text(path)? {
        return KeyPair::from_pkcs8_pem_and_sign_algo(&text, &PKCS_ECDSA_P256_SHA256)
            .map_err(|e| damaged(path, e));
    }
    let key = new_key()?;
    files::replace_private(path, key.serialize_pem().as_bytes())?;
    Ok(key)
}

type Stored = Option<(CertificateDer<'static>, CertificateInfo)>;

fn stored_certificate(path: &Path) -> Result<Stored, AccessError> {
    let Some(text) = stored_text(path)? else {
        return Ok(None);
    };
    let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|e| damaged(path, e))?;
    let info = CertificateInfo::parse(&der).ok_or_else(|| damaged(path, "not an X.509 certificate"))?;
    Ok(Some((der, info)))
}

fn stored_token(path: &Path) -> Result<String, AccessError> {
    if let Some(text) = stored_text(path)? {
        let token = text.trim();
        // Short or spaced texts would make a weak or unusable credential.
        if token.len() < 32 || token.contains(char::is_whitespace) {
            return Err(damaged(path, "the token is too short or contains spaces"));
        }
        return Ok(token.to_owned());
    }
    let token = new_token()?;
    files::replace_private(path, format!("{token}\n").as_bytes())?;
    Ok(token)
}

fn stored_sa_key(path: &Path) -> Result<Arc<ServiceAccountKey>, AccessError> {
    if let Some(text) = stored_text(path)? {
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|e| damaged(path, e))?;
        let key = ServiceAccountKey::from_pkcs8(key.secret_pkcs8_der()).map_err(|e| damaged(path, e))?;
        return Ok(Arc::new(key));
    }
    let key = ServiceAccountKey::generate()?;
    files::replace_private(path, pem("PRIVATE KEY", key.pkcs8()).as_bytes())?;
    Ok(Arc::new(key))
}
