// SPDX-License-Identifier: Apache-2.0
//! Secrets that are refused, files on a real disk, and the way from secret to proof as a table.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const HOST: &str = "node1.example";

struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

fn authority() -> Authority {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        pem,
        issuer: rcgen::Issuer::new(params, key),
    }
}

struct Pair {
    certificate: String,
    key: String,
}

fn pair(authority: &Authority, names: &[&str]) -> Pair {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 1, 5);
    let certificate = params.signed_by(&key, &authority.issuer).unwrap().pem();
    Pair {
        certificate,
        key: key.serialize_pem(),
    }
}

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn check(ca: &str, certificate: &str, key: &str, at: Timestamp) -> Result<Material, Invalid> {
    let ip = Some("10.0.0.7".parse().unwrap());
    Material::check(ca.into(), certificate.into(), key.into(), HOST, ip, at)
}

fn material() -> Arc<Material> {
    let authority = authority();
    let Pair { certificate, key } = pair(&authority, &[HOST]);
    Arc::new(check(&authority.pem, &certificate, &key, now()).unwrap())
}

#[test]
fn what_does_not_fit_together_is_refused_with_the_reason() {
    let (authority, stranger) = (authority(), authority());
    let good = pair(&authority, &[HOST]);
    let other = pair(&authority, &[HOST]);
    let elsewhere = pair(&authority, &["node2.example"]);
    let by_address = pair(&authority, &["10.0.0.7"]);
    check(&authority.pem, &by_address.certificate, &by_address.key, now()).unwrap();
    let late = "2026-01-06T00:00:00Z".parse().unwrap();
    let table = [
        (
            check(&authority.pem, &good.certificate, &other.key, now()),
            "does not belong",
        ),
        (
            check(&stranger.pem, &good.certificate, &good.key, now()),
            "cannot be used",
        ),
        (
            check(&authority.pem, &elsewhere.certificate, &elsewhere.key, now()),
            "cannot be used",
        ),
        (
            check(&authority.pem, &good.certificate, &good.key, late),
            "cannot be used",
        ),
        (
            check("no pem", &good.certificate, &good.key, now()),
            "ca.crt: there is no certificate",
        ),
        (
            check(&authority.pem, "no pem", &good.key, now()),
            "tls.crt: there is no certificate",
        ),
        (
            check(&authority.pem, &good.certificate, "no pem", now()),
            "tls.key",
        ),
    ];
    for (found, text) in table {
        let error = found.unwrap_err().to_string();
        assert!(error.contains(text), "{error} should say {text}");
    }
}

#[test]
fn a_secret_with_a_key_missing_is_named_and_the_private_key_never_shows() {
    let secret: Secret = serde_json::from_value(serde_json::json!({"data": {"ca.crt": "eA=="}})).unwrap();
    let error = Material::from_secret(&secret, HOST, None, now()).unwrap_err();
    assert_eq!(error.to_string(), "missing data for secret key tls.crt");
    let shown = format!("{:?}", material());
    assert!(!shown.contains("PRIVATE") && shown.len() < 200, "{shown}");
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn files_are_replaced_only_when_they_differ_and_keys_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let (root, first) = (folder.path(), material());
    let files = PkiFiles::new(root, 0o640, None);
    // What the predecessor may have left: a readable key, and a file where a link belongs.
    std::fs::create_dir_all(root.join("qemu")).unwrap();
    std::fs::write(root.join("qemu/server-key.pem"), "old").unwrap();
    std::fs::write(root.join("qemu/client-cert.pem"), "a file").unwrap();
    symlink("elsewhere.pem", root.join("qemu/client-key.pem")).unwrap();

    assert_eq!(files.compare(&first), Disk::Different);
    files.install(&first).unwrap();
    assert_eq!(files.compare(&first), Disk::Equal);
    files.remember(&first).unwrap();
    assert_eq!(files.compare(&first), Disk::Loaded);

    for key in [
        "libvirt/private/serverkey.pem",
        "qemu/server-key.pem",
        "ch/server-key.pem",
    ] {
        assert_eq!(mode(&root.join(key)), 0o640, "{key}");
        assert_eq!(std::fs::read(root.join(key)).unwrap(), first.key());
    }
    for public in [
        "CA/cacert.pem",
        "libvirt/servercert.pem",
        "qemu/ca-cert.pem",
        "ch/server-cert.pem",
    ] {
        assert_eq!(mode(&root.join(public)), 0o644, "{public}");
    }
    for (link, target) in [
        ("libvirt/clientcert.pem", "servercert.pem"),
        ("libvirt/private/clientkey.pem", "serverkey.pem"),
        ("qemu/client-cert.pem", "server-cert.pem"),
        ("qemu/client-key.pem", "server-key.pem"),
        ("ch/client-cert.pem", "server-cert.pem"),
    ] {
        assert_eq!(
            std::fs::read_link(root.join(link)).unwrap(),
            Path::new(target),
            "{link}"
        );
    }

    let inode = |path: &str| std::fs::metadata(root.join(path)).unwrap().ino();
    let before = (inode("CA/cacert.pem"), inode("qemu/server-key.pem"));
    files.install(&first).unwrap();
    assert_eq!(
        before,
        (inode("CA/cacert.pem"), inode("qemu/server-key.pem")),
        "equal files stay untouched"
    );

    let second = material();
    assert_eq!(files.compare(&second), Disk::Different);
    files.install(&second).unwrap();
    assert_eq!(
        files.compare(&second),
        Disk::Equal,
        "nobody loaded the new content yet"
    );
    let left: Vec<_> = std::fs::read_dir(root.join("qemu"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().ends_with(".new")),
        "{left:?}"
    );
}

#[test]
fn a_key_that_became_readable_is_put_right() {
    let folder = tempfile::tempdir().unwrap();
    let (files, material) = (PkiFiles::new(folder.path(), 0o600, None), material());
    files.install(&material).unwrap();
    let key = folder.path().join("ch/server-key.pem");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(files.compare(&material), Disk::Different);
    files.install(&material).unwrap();
    assert_eq!(mode(&key), 0o600);
}

#[test]
fn an_unwritable_place_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libvirt"), "a file where a directory belongs").unwrap();
    let error = PkiFiles::new(folder.path(), 0o640, None)
        .install(&material())
        .unwrap_err()
        .to_string();
    assert!(error.contains("libvirt/private"), "{error}");
}

fn observed(material: &Arc<Material>) -> Observed {
    Observed {
        install: true,
        requested: false,
        managed: false,
        absent: false,
        material: Some(Ok(material.clone())),
        disk: Disk::Loaded,
        reload: Reload::Unknown,
        served: Served::Unknown,
        updated: false,
    }
}

#[test]
fn the_way_from_secret_to_proof() {
    let material = material();
    let base = || observed(&material);
    let name = |step: Step| match step {
        Step::Nothing => "nothing",
        Step::Install(_) => "install",
        Step::Reload(_) => "reload",
        Step::Prove(_) => "prove",
    };
    let refused = Invalid::Missing("tls.key");
    let table = [
        (
            "not asked for",
            Observed {
                install: false,
                disk: Disk::Different,
                ..base()
            },
            "nothing",
        ),
        (
            "no secret",
            Observed {
                material: None,
                ..base()
            },
            "nothing",
        ),
        (
            "a bad secret",
            Observed {
                material: Some(Err(refused)),
                disk: Disk::Different,
                ..base()
            },
            "nothing",
        ),
        (
            "new content",
            Observed {
                disk: Disk::Different,
                ..base()
            },
            "install",
        ),
        (
            "written, not loaded",
            Observed {
                disk: Disk::Equal,
                ..base()
            },
            "reload",
        ),
        (
            "loaded just now",
            Observed {
                disk: Disk::Loaded,
                reload: Reload::Done,
                ..base()
            },
            "prove",
        ),
        (
            "loaded, not remembered",
            Observed {
                disk: Disk::Equal,
                reload: Reload::Done,
                ..base()
            },
            "prove",
        ),
        ("loaded before", base(), "prove"),
        (
            "loaded before, another served",
            Observed {
                served: Served::Other,
                ..base()
            },
            "reload",
        ),
        (
            "proven",
            Observed {
                served: Served::Same,
                ..base()
            },
            "nothing",
        ),
        (
            "nobody listens",
            Observed {
                served: Served::NotListening,
                ..base()
            },
            "nothing",
        ),
        (
            "the unit failed",
            Observed {
                disk: Disk::Equal,
                reload: Reload::Failed("x".into()),
                ..base()
            },
            "nothing",
        ),
    ];
    for (case, observed, step) in table {
        assert_eq!(name(decide(&observed)), step, "{case}");
    }
}

#[test]
fn the_condition_is_ready_only_for_what_is_loaded() {
    let material = material();
    let base = || observed(&material);
    let failed = |reload: Reload| Observed {
        disk: Disk::Equal,
        reload,
        ..base()
    };
    let operator = Observed {
        material: None,
        absent: true,
        requested: true,
        ..base()
    };
    let table = [
        (
            Observed {
                served: Served::Same,
                ..base()
            },
            "True",
            "Ready",
            "TLS certificate is ready and up to date",
        ),
        (
            Observed {
                served: Served::Same,
                updated: true,
                ..base()
            },
            "True",
            "Ready",
            "ready and updated, valid until 2026-01-05T00:00:00Z",
        ),
        (
            failed(Reload::Failed("no such unit".into())),
            "False",
            "FailedToStartUpdateTLSService",
            "Failed to start virt-admin-server-update-tls service: no such unit",
        ),
        (
            failed(Reload::NotInstalled("disk full".into())),
            "False",
            "FailedToUpdateTLSCertificate",
            "Failed to update TLS certificate: disk full",
        ),
        (
            Observed {
                served: Served::Other,
                ..base()
            },
            "False",
            "NotServed",
            "serves another one",
        ),
        (
            Observed {
                material: Some(Err(Invalid::Missing("tls.key"))),
                ..base()
            },
            "False",
            "InvalidCertificate",
            "missing data",
        ),
        (operator, "False", "ManagedByOperator", "operator"),
    ];
    for (observed, status, reason, text) in table {
        let shown = format!("{:?}", verdict(&observed, now()).condition.unwrap());
        assert!(
            [status, reason, text].iter().all(|word| shown.contains(word)),
            "{shown}"
        );
    }
    assert_eq!(
        verdict(
            &Observed {
                install: false,
                ..base()
            },
            now()
        )
        .condition,
        None
    );
    let old = "2026-01-04T12:00:00Z".parse().unwrap();
    let shown = format!(
        "{:?}",
        verdict(
            &Observed {
                served: Served::Same,
                ..base()
            },
            old
        )
        .condition
    );
    assert!(shown.contains("less than a quarter"), "{shown}");
}

/// Serves TLS with `material` until it is dropped.
async fn serve(material: &Material) -> (std::net::SocketAddr, tokio_util::task::AbortOnDropHandle<()>) {
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(material.certificate()).collect();
    let key = PrivateKeyDer::from_pem_slice(material.key()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.unwrap(), key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    (address, tokio_util::task::AbortOnDropHandle::new(task))
}

#[tokio::test]
async fn what_is_served_is_compared_with_what_is_installed() {
    let (ours, other) = (material(), material());
    let (address, server) = serve(&ours).await;
    assert_eq!(served::compare(address, &ours).await, Served::Same);
    assert_eq!(served::compare(address, &other).await, Served::Other);
    drop(server);
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    assert_eq!(served::compare(address, &ours).await, Served::NotListening);
}

#[test]
fn the_request_is_sorted_short_and_signs_nothing() {
    let host = format!("{}.example", "x".repeat(70));
    let addresses: BTreeSet<_> = ["10.0.0.9", "10.0.0.7"].map(|ip| ip.parse().unwrap()).into();
    let wanted = certificate_for(&host, "ns", "issuer", &addresses);
    let spec = &wanted["spec"];
    assert_eq!(spec["ipAddresses"], serde_json::json!(["10.0.0.7", "10.0.0.9"]));
    assert_eq!(spec["commonName"].as_str().unwrap().len(), 64);
    assert_eq!(spec["dnsNames"][0], host.as_str());
    assert!(!spec["usages"].to_string().contains("cert sign"));
    assert_eq!(spec["privateKey"]["size"], 4096);
}

proptest! {
    #[test]
    fn any_bytes_in_a_secret_are_refused_without_harm(
        ca in proptest::collection::vec(any::<u8>(), 0..200),
        crt in proptest::collection::vec(any::<u8>(), 0..200),
        key in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert!(Material::check(ca, crt, key, HOST, None, now()).is_err());
    }

    #[test]
    fn any_bytes_that_call_themselves_a_certificate_are_refused_without_harm(
        inside in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        static GOOD: std::sync::OnceLock<(String, Pair)> = std::sync::OnceLock::new();
        let (ca, good) = GOOD.get_or_init(|| {
            let authority = authority();
            let pair = pair(&authority, &[HOST]);
            (authority.pem, pair)
        });
        let hex: String = inside.iter().map(|byte| format!("{byte:02x}")).collect();
        let pem = format!("-----BEGIN CERTIFICATE-----\n{hex}\n-----END CERTIFICATE-----\n");
        prop_assert!(check(ca, &pem, &good.key, now()).is_err());
        prop_assert!(check(&pem, &good.certificate, &good.key, now()).is_err());
    }
}
