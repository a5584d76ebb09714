// SPDX-License-Identifier: Apache-2.0
//! Keys, certificates and tokens from files that others rotate. Files are looked at again on
//! use, at most once per second; a rotation that is half done or broken leaves the old
//! material in service and says so once.

mod reload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;
use reload::Reloading;

/// The server side of TLS, reloaded when its files change.
#[derive(Clone)]
pub struct ServerTls(Arc<Reloading<Arc<rustls::ServerConfig>>>);

/// Where the server side of TLS finds its material.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key of the leaf.
    pub key: PathBuf,
    /// Authorities of client certificates; clients need none when absent.
    pub client_ca: Option<PathBuf>,
}

impl ServerTls {
    /// Loads the files; `protocols` are offered to clients, most wanted first.
    pub fn open(files: &ServerFiles, protocols: &[&str]) -> Result<Self, Error> {
        Self::open_with(files, protocols, true)
    }

    /// The same, but a client may come without a certificate; one that it shows must be good.
    pub fn open_to_all(files: &ServerFiles, protocols: &[&str]) -> Result<Self, Error> {
        Self::open_with(files, protocols, false)
    }

    fn open_with(files: &ServerFiles, protocols: &[&str], required: bool) -> Result<Self, Error> {
        let ServerFiles {
            certificate,
            key,
            client_ca,
        } = files.clone();
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let paths = [Some(certificate.clone()), Some(key.clone()), client_ca.clone()]
            .into_iter()
            .flatten()
            .collect();
        let load = move || {
            let chain = read_certificates(&certificate)?;
            let mut config = server_config(chain, read_key(&key)?, client_ca.as_deref(), required)?;
            config.alpn_protocols.clone_from(&protocols);
            Ok(Arc::new(config))
        };
        Ok(Self(Arc::new(Reloading::open(paths, load)?)))
    }

    /// A certificate made up on the spot, for ports whose clients do not verify.
    pub fn self_signed(names: Vec<String>) -> Result<Self, Error> {
        let refused = |error: rcgen::Error| Error::Tls(rustls::Error::General(error.to_string()));
        let made = rcgen::generate_simple_self_signed(names).map_err(refused)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|reason| Error::Tls(rustls::Error::General(reason.to_owned())))?;
        let mut config = server_config(vec![made.cert.der().clone()], key, None, false)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        Ok(Self(Arc::new(Reloading::open(Vec::new(), move || {
            Ok(Arc::clone(&config))
        })?)))
    }

    /// What the next connection uses.
    pub fn current(&self) -> Arc<rustls::ServerConfig> {
        self.0.current()
    }
}

/// The client side of TLS, reloaded when its files change.
#[derive(Clone)]
pub struct ClientTls(Arc<Reloading<Arc<rustls::ClientConfig>>>);

impl ClientTls {
    /// Trusts the authorities in `ca` and shows the certificate and key if given.
    pub fn open(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, Error> {
        let ca = ca.to_owned();
        let identity = identity.map(|(certificate, key)| (certificate.to_owned(), key.to_owned()));
        let mut paths = vec![ca.clone()];
        if let Some((certificate, key)) = &identity {
            paths.extend([certificate.clone(), key.clone()]);
        }
        let load = move || {
            let builder = rustls::ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()?
                .with_root_certificates(read_roots(&ca)?);
            let config = match &identity {
                None => builder.with_no_client_auth(),
                Some((certificate, key)) => {
                    builder.with_client_auth_cert(read_certificates(certificate)?, read_key(key)?)?
                }
            };
            Ok(Arc::new(config))
        };
        Ok(Self(Arc::new(Reloading::open(paths, load)?)))
    }

    /// What the next connection uses.
    pub fn current(&self) -> Arc<rustls::ClientConfig> {
        self.0.current()
    }
}

/// A bearer token in a file, such as the one Kubernetes mounts into pods.
#[derive(Clone, Debug)]
pub struct TokenFile(Arc<reload::Lazy<String>>);

impl TokenFile {
    /// The token in `path`; the file need not exist yet.
    ///
    /// ```
    /// use cobaltcore_kit::tls::TokenFile;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("token");
    /// let token = TokenFile::new(&path);
    /// assert!(token.current().is_err());
    /// std::fs::write(&path, "abc\n").unwrap();
    /// assert_eq!(token.current().unwrap(), "abc");
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(reload::Lazy::new(path.into(), read_token)))
    }

    /// The token as it is now, without white space around it.
    pub fn current(&self) -> Result<String, Error> {
        self.0.current()
    }
}

fn read_token(path: &Path) -> Result<String, Error> {
    let text = read(path)?;
    let bad = |reason: &str| Error::BadFile {
        path: path.to_owned(),
        reason: reason.into(),
    };
    let token = std::str::from_utf8(&text)
        .map_err(|_| bad("the token is not text"))?
        .trim();
    if token.is_empty() {
        Err(bad("there is no token"))
    } else {
        Ok(token.to_owned())
    }
}

/// Every certificate in a PEM file; at least one.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let bad = |reason: String| Error::BadFile {
        path: path.to_owned(),
        reason,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| bad(format!("not PEM: {error}")))?;
    if found.is_empty() {
        Err(bad("there is no certificate".into()))
    } else {
        Ok(found)
    }
}

/// The first private key in a PEM file.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| Error::BadFile {
        path: path.to_owned(),
        reason: format!("there is no private key: {error}"),
    })
}

/// The authorities in a PEM file.
pub fn read_roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::ReadFile {
        path: path.to_owned(),
        source,
    })
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    client_ca: Option<&Path>,
    required: bool,
) -> Result<rustls::ServerConfig, Error> {
    let builder =
        rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut clients =
                WebPkiClientVerifier::builder_with_provider(Arc::new(read_roots(path)?), provider());
            if !required {
                clients = clients.allow_unauthenticated();
            }
            let verifier = clients.build().map_err(|error| Error::BadFile {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    Ok(builder.with_single_cert(chain, key)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    struct Authority {
        certificate: rcgen::Certificate,
        issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    }

    fn authority() -> Authority {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            certificate,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    fn write_pair(folder: &Path, authority: &Authority, name: &str) -> ServerFiles {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &authority.issuer).unwrap();
        let files = ServerFiles {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            client_ca: Some(folder.join("ca.crt")),
        };
        std::fs::write(&files.certificate, leaf.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        std::fs::write(folder.join("ca.crt"), authority.certificate.pem()).unwrap();
        files
    }

    async fn talk(server: &ServerTls, client: &ClientTls) -> std::io::Result<String> {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let acceptor = tokio_rustls::TlsAcceptor::from(server.current());
        let serving = tokio::spawn(async move {
            let mut stream = acceptor.accept(far).await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await
        });
        let connector = tokio_rustls::TlsConnector::from(client.current());
        let name = rustls_pki_types::ServerName::try_from("host.example").unwrap();
        let mut stream = connector.connect(name, near).await?;
        let mut text = String::new();
        let read = stream.read_to_string(&mut text).await;
        serving.await.unwrap()?;
        read.map(|_| text)
    }

    #[tokio::test]
    async fn both_sides_prove_who_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pair(folder.path(), &authority(), "host.example");
        let server = ServerTls::open(&files, &["http/1.1"]).unwrap();
        let ca = folder.path().join("ca.crt");
        let known = ClientTls::open(&ca, Some((&files.certificate, &files.key))).unwrap();
        assert_eq!(talk(&server, &known).await.unwrap(), "hello");
        let nobody = ClientTls::open(&ca, None).unwrap();
        assert!(talk(&server, &nobody).await.is_err());
    }

    #[test]
    fn a_key_that_does_not_fit_its_certificate_is_refused() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (files, foreign) = (
            write_pair(folder.path(), &authority(), "a"),
            write_pair(other.path(), &authority(), "a"),
        );
        let mixed = ServerFiles {
            key: foreign.key,
            ..files
        };
        assert!(matches!(
            ServerTls::open(&mixed, &[]).err().unwrap(),
            Error::Tls(_)
        ));
    }

    #[test]
    fn a_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.crt");
        let missing = read_certificates(&path).unwrap_err().to_string();
        assert!(
            missing.starts_with(&format!("cannot read {}", path.display())),
            "{missing}"
        );
        std::fs::write(&path, "no pem in here").unwrap();
        let empty = read_certificates(&path).unwrap_err().to_string();
        assert_eq!(empty, format!("{}: there is no certificate", path.display()));
    }

    #[test]
    fn a_self_signed_certificate_needs_no_files() {
        ServerTls::self_signed(vec!["localhost".into()])
            .unwrap()
            .current();
    }
}
