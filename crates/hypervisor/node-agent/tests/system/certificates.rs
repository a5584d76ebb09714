// SPDX-License-Identifier: Apache-2.0
//! Certificates from the secret to the files and the reload.

use std::sync::Arc;

use cobaltcore_api::HypervisorSpec;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::scene::{NAMESPACE, NODE, Scene, eventually};
use crate::services::OnStart;

const RELOAD: &str = "virt-admin-server-update-tls.service";
const TYPE: &str = "TLSCertificateInstalled";

pub(crate) struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    /// Certificate and key for a name.
    pub(crate) fn pair(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Puts a secret into a namespace, new or changed.
    pub(crate) async fn publish(&self, scene: &Scene, namespace: &str, pair: &(String, String)) {
        let text = |text: &String| serde_json::to_value(ByteString(text.clone().into_bytes())).unwrap();
        let name = format!("tls-libvirt-{NODE}");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "data": {"ca.crt": text(&self.pem), "tls.crt": text(&pair.0), "tls.key": text(&pair.1)}});
        let api: Api<Secret> = Api::namespaced(scene.server.client(), namespace);
        let parameters = PatchParams::apply("cert-manager").force();
        api.patch(&name, &parameters, &Patch::Apply(&secret))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_is_installed_loaded_once_and_a_bad_one_changes_nothing() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.on_start(RELOAD, OnStart::Done);
    let authority = Authority::new();
    // The right name in the wrong namespace is somebody else's secret.
    scene
        .server
        .apply_yaml("apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n")
        .await
        .unwrap();
    authority
        .publish(&scene, "elsewhere", &authority.pair(NODE))
        .await;
    let first = authority.pair(NODE);
    authority.publish(&scene, NAMESPACE, &first).await;
    let agent = scene.agent(&[]);
    let message = scene.until(TYPE, "True/Ready").await;
    assert!(
        message.starts_with("TLS certificate is ready and updated, valid until "),
        "{message}"
    );
    let file = |path: &str| std::fs::read_to_string(scene.pki().join(path)).unwrap();
    assert_eq!(file("libvirt/servercert.pem"), first.0);
    assert_eq!(file("qemu/client-key.pem"), first.1, "a link to the server's key");
    assert_eq!(scene.far.started(), [RELOAD]);

    let foreign = authority.pair(NODE);
    authority
        .publish(&scene, NAMESPACE, &(authority.pair(NODE).0, foreign.1))
        .await;
    let message = scene.until(TYPE, "False/InvalidCertificate").await;
    assert!(
        message.contains("tls.key does not belong to tls.crt"),
        "{message}"
    );
    assert_eq!(file("libvirt/servercert.pem"), first.0, "the old files stay");
    scene.until_told("Normal CertificateInstalled").await;
    scene.until_told("Warning CertificateFailed").await;

    let second = authority.pair(NODE);
    authority.publish(&scene, NAMESPACE, &second).await;
    scene.until(TYPE, "True/Ready").await;
    assert_eq!(file("ch/server-cert.pem"), second.0);
    assert_eq!(scene.far.started(), [RELOAD, RELOAD]);

    // What is loaded is not loaded again by the next agent.
    agent.stop().await;
    let agent = scene.agent(&[]);
    eventually("the next agent finds everything in place", async || {
        let status = scene.status().await;
        let found = crate::scene::condition(&status, TYPE);
        let message = found["message"].as_str().unwrap_or_default().to_owned();
        message
            .starts_with("TLS certificate is ready and up to date")
            .then_some(())
            .ok_or(found)
    })
    .await;
    assert_eq!(scene.far.started(), [RELOAD, RELOAD]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_is_not_ready() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    let authority = Authority::new();
    authority.publish(&scene, NAMESPACE, &authority.pair(NODE)).await;
    let agent = scene.agent(&[]);
    let message = scene.until(TYPE, "False/FailedToStartUpdateTLSService").await;
    assert!(message.contains("not found"), "{message}");
    scene.far.on_start(RELOAD, OnStart::Done);
    scene.until(TYPE, "True/Ready").await;
    agent.stop().await;
}

/// Something that serves TLS where libvirt would, with a certificate that can be exchanged.
struct Served {
    port: u16,
    config: Arc<Mutex<Arc<rustls::ServerConfig>>>,
    _task: AbortOnDropHandle<()>,
}

impl Served {
    async fn start(pair: &(String, String)) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Mutex::new(Self::config(pair)));
        let now = Arc::clone(&config);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = Arc::clone(&now.lock());
                let _ = tokio_rustls::TlsAcceptor::from(config).accept(stream).await;
            }
        });
        Self {
            port,
            config,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn config(pair: &(String, String)) -> Arc<rustls::ServerConfig> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.0.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(pair.1.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.unwrap(), key);
        Arc::new(config.unwrap())
    }

    fn load(&self, pair: &(String, String)) {
        *self.config.lock() = Self::config(pair);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_ready_when_it_is_seen_in_use() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.on_start(RELOAD, OnStart::Done);
    let authority = Authority::new();
    let (old, new) = (authority.pair(NODE), authority.pair(NODE));
    authority.publish(&scene, NAMESPACE, &new).await;
    // The unit says that it worked, and libvirt goes on serving what it had.
    let served = Served::start(&old).await;
    let port = served.port.to_string();
    let agent = scene.agent(&["--host-ip-address", "127.0.0.1", "--libvirt-tls-port", &port]);
    let message = scene.until(TYPE, "False/NotServed").await;
    assert!(message.contains("serves another one"), "{message}");
    served.load(&new);
    let message = scene.until(TYPE, "True/Ready").await;
    assert!(!message.contains("not seen in use"), "{message}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_libvirt_that_serves_no_tls_is_ready_and_the_doubt_is_told() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    scene.far.on_start(RELOAD, OnStart::Done);
    let authority = Authority::new();
    authority.publish(&scene, NAMESPACE, &authority.pair(NODE)).await;
    // An address of the loopback network that nobody else takes ports of.
    let address = "127.77.16.5";
    let unused = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
    let port = unused.local_addr().unwrap().port().to_string();
    drop(unused);
    let agent = scene.agent(&["--host-ip-address", address, "--libvirt-tls-port", &port]);
    let message = scene.until(TYPE, "True/Ready").await;
    assert!(message.contains("so it was not seen in use"), "{message}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn libvirt_is_restarted_only_where_that_is_wanted_and_once_per_certificate() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    // There is no unit that would make libvirt load its certificate.
    let authority = Authority::new();
    authority.publish(&scene, NAMESPACE, &authority.pair(NODE)).await;
    let agent = scene.agent(&[]);
    scene.until(TYPE, "False/FailedToStartUpdateTLSService").await;
    assert!(scene.far.restarted().is_empty());
    agent.stop().await;

    let served = Served::start(&authority.pair(NODE)).await;
    let port = served.port.to_string();
    let here = ["--host-ip-address", "127.0.0.1", "--libvirt-tls-port", &port];
    let agent = scene.agent(&[&here[..], &["--tls-restart-libvirtd=true"]].concat());
    eventually("libvirt was restarted", async || {
        let restarted = scene.far.restarted();
        (restarted == ["libvirtd.service"]).then_some(()).ok_or(restarted)
    })
    .await;
    // It serves another certificate all the same; however often that is seen, restarting it again would not help.
    let tried = scene.far.started().len();
    eventually("loading was tried again", async || {
        let started = scene.far.started().len();
        (started >= tried + 2).then_some(()).ok_or(started)
    })
    .await;
    scene.until(TYPE, "False/FailedToStartUpdateTLSService").await;
    assert_eq!(scene.far.restarted(), ["libvirtd.service"]);
    let new = authority.pair(NODE);
    served.load(&new);
    authority.publish(&scene, NAMESPACE, &new).await;
    scene.until(TYPE, "True/Ready").await;
    assert_eq!(scene.far.restarted(), ["libvirtd.service", "libvirtd.service"]);
    agent.stop().await;
}
