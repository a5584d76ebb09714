// SPDX-License-Identifier: Apache-2.0
//! Certificates from the secret to the files and the reload.

use cobaltcore_api::HypervisorSpec;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

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
