// SPDX-License-Identifier: Apache-2.0
//! TLS in both directions: who gets in, who does not, and what the error says.
#![allow(clippy::unwrap_used)]

mod pki;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Options};
use cobaltcore_libvirt::error::Error;
use cobaltcore_libvirt::server::{Listener, ServerOptions};
use support::TestHost;

/// A daemon with the server certificate of this directory; gives its port.
async fn daemon(directory: &Path) -> u16 {
    let config = pki::server(directory).server_config().unwrap();
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap()
        .with_tls(config);
    let port = listener.address().unwrap().port();
    let host = Arc::new(TestHost::default());
    tokio::spawn(async move { listener.run(host, ServerOptions::default(), |_| {}).await });
    port
}

async fn connect(port: u16, host: &str, pki: &Path) -> Result<Connection, Error> {
    let uri = format!("qemu+tls://{host}:{port}/system?pkipath={}", pki.display());
    Connection::connect(&uri.parse().unwrap(), Options::default()).await
}

#[tokio::test]
async fn certificates_of_the_same_authority_get_in() {
    let directory = tempfile::tempdir().unwrap();
    let pki = pki::write(directory.path());
    let host = connect(daemon(&pki).await, "127.0.0.1", &pki).await.unwrap();
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
}

#[tokio::test]
async fn whoever_is_not_trusted_stays_out_and_learns_why() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, theirs) = (pki::write(ours.path()), pki::write(theirs.path()));
    let port = daemon(&ours).await;

    let stranger = connect(port, "127.0.0.1", &theirs).await.unwrap_err();
    assert!(
        matches!(&stranger, Error::Tls { why, .. } if why.contains("invalid peer certificate")),
        "{stranger}"
    );

    let other_name = connect(port, "localhost", &ours).await.unwrap_err();
    assert!(
        matches!(&other_name, Error::Tls { why, .. } if why.contains("not valid for name")),
        "{other_name}"
    );

    std::fs::remove_file(ours.join("clientcert.pem")).unwrap();
    let nameless = connect(port, "127.0.0.1", &ours).await.unwrap_err();
    assert!(
        nameless.to_string().contains("clientcert.pem does not exist"),
        "{nameless}"
    );

    std::fs::write(ours.join("cacert.pem"), "nothing").unwrap();
    let no_authority = connect(port, "127.0.0.1", &ours).await.unwrap_err();
    assert!(
        no_authority.to_string().contains("cacert.pem has no certificate"),
        "{no_authority}"
    );
}

#[tokio::test]
async fn a_client_that_never_finishes_its_handshake_does_not_keep_others_out() {
    let directory = tempfile::tempdir().unwrap();
    let pki = pki::write(directory.path());
    let port = daemon(&pki).await;
    let _silent = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let host = connect(port, "127.0.0.1", &pki).await.unwrap();
    assert_eq!(host.hostname().await.unwrap(), "sim-host");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_accepts_and_says_nothing_is_a_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let pki = pki::write(directory.path());
    let error = connect(port, "127.0.0.1", &pki).await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after, .. } if after == Duration::from_secs(5)),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn virsh_gets_in_with_its_certificate() {
    if !Path::new("/usr/bin/virsh").exists() {
        {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "SKIPPED: virsh is not installed");
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pki = pki::write(directory.path());
    let uri = format!(
        "qemu+tls://127.0.0.1:{}/system?pkipath={}",
        daemon(&pki).await,
        pki.display()
    );
    let output = tokio::process::Command::new("virsh")
        .args(["-c", &uri, "hostname"])
        .output()
        .await
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "sim-host",
        "{output:?}"
    );
}
