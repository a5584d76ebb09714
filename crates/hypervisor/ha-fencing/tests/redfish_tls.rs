// SPDX-License-Identifier: Apache-2.0
//! A BMC behind TLS: only one whose certificate the configured authorities signed is spoken to, and
//! nobody else is ever shown the password.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::Power;
use cobaltcore_ha_fencing::{Config, Fences, Target};
use cobaltcore_sim::bmc::{Bmcs, PASSWORD, USER};
use cobaltcore_sim::world::World;
use tokio::net::{TcpListener, TcpStream};

const ONE: &str = "node001-bb1";

/// An authority of one's own, and a certificate for `localhost` that it signed.
struct Signed {
    authority: String,
    server: rustls::ServerConfig,
}

fn signed() -> Signed {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())
        .unwrap();
    Signed { authority, server }
}

/// TLS in front of a plain BMC.
async fn behind_tls(plain: &str, server: rustls::ServerConfig) -> u16 {
    let inner = plain
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, inner) = (acceptor.clone(), inner.clone());
            tokio::spawn(async move {
                // A caller that does not trust us hangs up here.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut bmc = TcpStream::connect(&inner).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut bmc).await;
            });
        }
    });
    port
}

fn fences(folder: &Path, port: u16, options: &str) -> Fences {
    let file = folder.join("bmc.yaml");
    std::fs::write(&file, format!("username: {USER}\npassword: {PASSWORD}\n")).unwrap();
    let text = format!(
        "levels:\n- [{{driver: redfish, url: 'https://localhost:{port}', timeout: 5s, credentials_file: {}{options}}}]\n",
        file.display()
    );
    let config: Config = cobaltcore_kit::config::Config::new()
        .text("test.yaml", &text)
        .load()
        .unwrap();
    Fences::new(config, None).unwrap()
}

#[tokio::test]
async fn only_a_bmc_that_the_configured_authorities_signed_is_spoken_to() {
    cobaltcore_kit::startup::install_tls_provider();
    let world = World::builder().hosts(1).manual_clock().build();
    let bmcs = Bmcs::start(&world).await.unwrap();
    let Signed { authority, server } = signed();
    let port = behind_tls(&bmcs.url(ONE).unwrap(), server).await;
    let folder = tempfile::tempdir().unwrap();
    let (good, other) = (folder.path().join("good.pem"), folder.path().join("other.pem"));
    std::fs::write(&good, authority).unwrap();
    std::fs::write(&other, signed().authority).unwrap();
    let power = async |options: String| {
        let fences = fences(folder.path(), port, &options);
        let target = Target::new(HostName::new(ONE).unwrap());
        fences.level(&target, 0).unwrap().power().await
    };
    let trusting = power(format!(", ca_file: {}", good.display())).await;
    assert_eq!(trusting.unwrap(), Power::On);
    let refused = power(format!(", ca_file: {}", other.display()))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("certificate"), "{refused}");
    let unknown = power(String::new()).await.unwrap_err().to_string();
    assert!(
        unknown.contains("certificate"),
        "the machine's own authorities: {unknown}"
    );
    let careless = power(", verify_tls: false".to_owned()).await;
    assert_eq!(careless.unwrap(), Power::On, "somebody accepted that");
}
