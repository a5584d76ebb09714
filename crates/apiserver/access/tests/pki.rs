// SPDX-License-Identifier: Apache-2.0
//! Keys and certificates on disk and in memory.

use cobaltcore_access::AccessError;
use cobaltcore_access::pki::{
    CertificateInfo, KubeconfigEntry, Pki, PkiOptions, client_identity, merge_kubeconfig, write_kubeconfig,
};
use cobaltcore_access::tokens::StaticTokens;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

fn options() -> PkiOptions {
    PkiOptions {
        sans: vec!["Kube.Example.".into(), "10.9.8.7".into(), "*.lab.example".into()],
        bind: vec!["0.0.0.0".parse().expect("ip"), "192.0.2.5".parse().expect("ip")],
        service_ip: Some("10.96.0.1".parse().expect("ip")),
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("metadata").mode() & 0o777
}

/// Asks rustls, not ourselves, whether the chain is good for a name.
fn tls_accepts(pki: &Pki, name: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.ca_der().clone()).expect("root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("verifier");
    let chain = pki.cert_chain();
    let name = ServerName::try_from(name.to_owned()).expect("name");
    rustls::client::danger::ServerCertVerifier::verify_server_cert(
        &*verifier,
        &chain[0],
        &[],
        &name,
        &[],
        UnixTime::now(),
    )
    .is_ok()
}

#[test]
fn first_start_creates_private_files_and_later_starts_keep_them() {
    let dir = tempfile::tempdir().expect("dir");
    let home = dir.path().join("data/pki");
    let first = Pki::open_or_create(&home, &options()).expect("created");
    assert_eq!(mode(&home), 0o700);
    for name in [
        "ca.crt",
        "ca.key",
        "server.crt",
        "server.key",
        "sa.key",
        "admin-token",
    ] {
        assert_eq!(mode(&home.join(name)), 0o600, "{name}");
    }
    assert_eq!(
        std::fs::read_dir(&home).expect("dir").count(),
        6,
        "no temporary file is left"
    );
    assert_eq!(first.admin_token().len(), 43);
    let second = Pki::open_or_create(&home, &options()).expect("opened");
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.cert_chain(), second.cert_chain());
    assert_eq!(first.admin_token(), second.admin_token());
    assert_eq!(first.sa_key().kid(), second.sa_key().kid());
    assert!(
        !format!("{first:?}").contains(first.admin_token()),
        "secrets are not printed"
    );
}

#[test]
fn the_server_certificate_is_good_for_its_names() {
    let pki = Pki::ephemeral(&options()).expect("ephemeral");
    for name in [
        "localhost",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
        "192.0.2.5",
        "10.96.0.1",
        "10.9.8.7",
        "kube.example",
        "a.lab.example",
    ] {
        assert!(tls_accepts(&pki, name), "{name}");
        assert!(pki.host_allowed(name), "{name}");
    }
    for name in ["example.com", "0.0.0.0", "10.9.8.8", "lab.example"] {
        assert!(!tls_accepts(&pki, name) && !pki.host_allowed(name), "{name}");
    }
    for (host, wanted) in [
        ("localhost:6443", true),
        ("LOCALHOST.", true),
        ("[::1]:6443", true),
        ("[0:0:0:0:0:0:0:1]", true),
        ("127.0.0.1:1", true),
        ("localhost.evil.example", false),
        ("[::1]evil", false),
        ("", false),
        (":6443", false),
        (".lab.example", false),
    ] {
        assert_eq!(pki.host_allowed(host), wanted, "{host:?}");
    }
}

#[test]
fn names_that_fit_no_certificate_are_refused() {
    for bad in ["", "a b", "-x", "x_y", "é.example", "https://host"] {
        let options = PkiOptions {
            sans: vec![bad.into()],
            ..PkiOptions::default()
        };
        assert!(
            matches!(Pki::ephemeral(&options), Err(AccessError::BadName { .. })),
            "{bad:?}"
        );
    }
}

#[test]
fn the_server_certificate_is_renewed_in_time_and_for_new_names() {
    let dir = tempfile::tempdir().expect("dir");
    let home = dir.path().join("pki");
    let start: Timestamp = "2026-03-01T12:00:00Z".parse().expect("time");
    let days = |n: i64| start + SignedDuration::from_hours(24 * n);
    let open =
        |at: Timestamp, options: &PkiOptions| Pki::open_or_create_at(&home, options, at).expect("opened");
    let plain = PkiOptions::default();
    let first = open(start, &plain);
    let info = CertificateInfo::parse(&first.cert_chain()[0]).expect("certificate");
    assert!(
        info.not_after >= days(365) && info.not_after <= days(367),
        "{}",
        info.not_after
    );
    assert_eq!(open(days(334), &plain).cert_chain(), first.cert_chain());
    let renewed = open(days(340), &plain);
    assert_ne!(renewed.cert_chain(), first.cert_chain());
    assert_eq!(renewed.ca_pem(), first.ca_pem(), "clients keep their authority");
    assert_eq!(open(days(340), &plain).cert_chain(), renewed.cert_chain());
    let named = open(days(340), &options());
    assert_ne!(named.cert_chain(), renewed.cert_chain());
    assert!(
        CertificateInfo::parse(&named.cert_chain()[0])
            .expect("certificate")
            .names
            .contains(&"kube.example".to_owned())
    );
    // a name less needs no new certificate
    assert_eq!(open(days(340), &plain).cert_chain(), named.cert_chain());
    // after ten years the authority is renewed, with the same key
    let old = open(days(3640), &plain);
    assert_ne!(old.ca_pem(), first.ca_pem());
    let key = |pki: &Pki| {
        CertificateInfo::parse(pki.ca_der())
            .expect("certificate")
            .public_key
    };
    assert_eq!(key(&old), key(&first));
}

#[test]
fn files_open_to_others_are_refused_with_the_remedy() {
    for name in ["ca.key", "server.key", "sa.key", "admin-token", "."] {
        let dir = tempfile::tempdir().expect("dir");
        let home = dir.path().join("pki");
        Pki::open_or_create(&home, &PkiOptions::default()).expect("created");
        let path = if name == "." {
            home.clone()
        } else {
            home.join(name)
        };
        let (loose, wanted) = if name == "." {
            (0o750, "0700")
        } else {
            (0o640, "0600")
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(loose)).expect("chmod");
        let text = Pki::open_or_create(&home, &PkiOptions::default())
            .expect_err(name)
            .to_string();
        assert!(
            text.contains(&format!("run: chmod {wanted} {}", path.display())),
            "{text}"
        );
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let dir = tempfile::tempdir().expect("dir");
    let home = dir.path().join("pki");
    Pki::open_or_create(&home, &PkiOptions::default()).expect("created");
    let key = home.join("ca.key");
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&key, &elsewhere).expect("move");
    symlink(&elsewhere, &key).expect("link");
    let error = Pki::open_or_create(&home, &PkiOptions::default()).expect_err("link");
    assert!(
        matches!(&error, AccessError::WrongType { path, .. } if *path == key),
        "{error}"
    );
    let linked = dir.path().join("linked");
    symlink(&home, &linked).expect("link");
    assert!(matches!(
        Pki::open_or_create(&linked, &PkiOptions::default()),
        Err(AccessError::WrongType { .. })
    ));
}

#[test]
fn damaged_files_are_named() {
    for (name, content) in [
        ("ca.key", "x"),
        (
            "server.key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ),
        (
            "ca.crt",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ),
        ("sa.key", ""),
        ("admin-token", "short\n"),
    ] {
        let dir = tempfile::tempdir().expect("dir");
        let home = dir.path().join("pki");
        Pki::open_or_create(&home, &PkiOptions::default()).expect("created");
        std::fs::write(home.join(name), content).expect("write");
        let error = Pki::open_or_create(&home, &PkiOptions::default()).expect_err(name);
        assert!(
            matches!(&error, AccessError::Damaged { path, .. } if path.ends_with(name)),
            "{error}"
        );
    }
}

#[test]
fn client_certificates_carry_user_and_groups() {
    let pki = Pki::ephemeral(&PkiOptions::default()).expect("ephemeral");
    let (cert, key) = pki.issue_client_cert("alice", &["dev", "ops"]).expect("issued");
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).expect("pem");
    assert_eq!(
        client_identity(&der),
        Some(("alice".into(), vec!["dev".into(), "ops".into()]))
    );
    let user = pki.client_user(&der).expect("user");
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    // rustls takes it for a client certificate of this authority and of no other
    let accepts = |authority: &Pki| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.ca_der().clone()).expect("root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("verifier");
        verifier.verify_client_cert(&der, &[], UnixTime::now()).is_ok()
    };
    assert!(accepts(&pki));
    assert!(!accepts(
        &Pki::ephemeral(&PkiOptions::default()).expect("another")
    ));
    assert_eq!(client_identity(b"nonsense"), None);
}

#[test]
fn kubeconfigs_are_private_and_replace_atomically() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("kubeconfig");
    let entry = KubeconfigEntry {
        name: "cobaltcore",
        server: "https://127.0.0.1:6443",
        ca_pem: "PEM",
        token: "t0ken",
        namespace: None,
    };
    write_kubeconfig(&path, &entry).expect("written");
    assert_eq!(mode(&path), 0o600);
    let text = std::fs::read_to_string(&path).expect("read");
    for part in [
        "current-context: \"cobaltcore\"",
        "certificate-authority-data: UEVN",
        "server: \"https://127.0.0.1:6443\"",
        "token: \"t0ken\"",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let user = dir.path().join("user");
    std::fs::write(
        &user,
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n",
    )
    .expect("write");
    let link = dir.path().join("link");
    symlink(&user, &link).expect("link");
    merge_kubeconfig(&link, &entry).expect("merged");
    assert!(
        std::fs::symlink_metadata(&link)
            .expect("link")
            .file_type()
            .is_symlink(),
        "the link stays a link"
    );
    assert_eq!(mode(&user), 0o600);
    assert!(std::fs::read_to_string(&user).expect("read").contains("t0ken"));
    let flow = dir.path().join("flow");
    std::fs::write(&flow, "{}").expect("write");
    assert!(matches!(
        merge_kubeconfig(&flow, &entry),
        Err(AccessError::Kubeconfig { .. })
    ));
    assert_eq!(std::fs::read_to_string(&flow).expect("read"), "{}", "untouched");
}

#[test]
fn token_files_open_to_others_are_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("tokens");
    std::fs::write(&path, "t0k,u,1\n").expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let text = StaticTokens::read(&path).expect_err("loose").to_string();
    assert!(text.contains("run: chmod 0600"), "{text}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    assert_eq!(StaticTokens::read(&path).expect("private").len(), 1);
}
