// SPDX-License-Identifier: Apache-2.0
//! The storage fence against the embedded Kubernetes API; csi-addons is played here.
#![allow(clippy::unwrap_used)]

use cobaltcore_api::names::HostName;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_engine::{Grade, Power};
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Target};
use serde_json::json;

const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: networkfences.csiaddons.openshift.io}
spec:
  group: csiaddons.openshift.io
  scope: Cluster
  names: {kind: NetworkFence, plural: networkfences, singular: networkfence, listKind: NetworkFenceList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
/// What csi-addons says when it is done.
const FENCED: &str = "fencing operation successful";
const UNFENCED: &str = "unfencing operation successful";
const PATH: &str = "/apis/csiaddons.openshift.io/v1alpha1/networkfences/cobaltcore-ha-n1";

fn config(text: &str) -> Config {
    cobaltcore_kit::config::Config::new()
        .text("t.yaml", text)
        .load()
        .unwrap()
}

const GOOD: &str = "required_grade: storage\nlevels:\n- - {driver: ceph-fence, cidrs: ['{internal_ip}/32'], \
                    provisioner: rook-ceph.rbd.csi.ceph.com, secret: rook-ceph/fencing, cluster_id: rook-ceph}\n";

fn target(ip: Option<&str>) -> Target {
    let mut target = Target::new(HostName::new("n1").unwrap());
    target.internal_ip = ip.map(str::to_owned);
    target
}

async fn says(api: &TestServer, result: &str, message: &str) {
    let status = json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "NetworkFence",
        "metadata": {"name": "cobaltcore-ha-n1"}, "status": {"result": result, "message": message},
    });
    let answer = api
        .admin()
        .apply(&format!("{PATH}?fieldManager=csi-addons&force=true"), &status)
        .await;
    assert_eq!(answer.code, 200, "{}", answer.message());
}

async fn shown(api: &TestServer) -> serde_json::Value {
    api.admin().get(PATH).await.body
}

fn level(fences: &Fences) -> Level {
    fences.level(&target(Some("10.1.0.7")), 0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_cut_off_when_ceph_says_so_and_let_in_again() {
    let api = TestServer::start().await;
    api.apply_yaml(CRD).await.unwrap();
    let fences = Fences::new(config(GOOD), Some(api.client())).unwrap();
    assert_eq!(level(&fences).grade(), Grade::Storage);
    assert_eq!(level(&fences).power().await.unwrap(), Power::On);
    level(&fences).release().await.unwrap();
    level(&fences).power_off().await.unwrap();
    level(&fences).power_off().await.unwrap();
    let made = shown(&api).await;
    assert_eq!(
        made["spec"],
        json!({"driver": "rook-ceph.rbd.csi.ceph.com", "fenceState": "Fenced", "cidrs": ["10.1.0.7/32"],
               "secret": {"namespace": "rook-ceph", "name": "fencing"}, "parameters": {"clusterID": "rook-ceph"}})
    );
    assert!(level(&fences).power().await.is_err(), "asked for is not in force");
    says(&api, "Failed", "no leader of the driver").await;
    assert!(level(&fences).power().await.is_err());
    says(&api, "Succeeded", FENCED).await;
    assert_eq!(level(&fences).power().await.unwrap(), Power::Off);
    level(&fences).hold().await.unwrap();
    // It is let in when csi-addons has said so: the result of the fence says nothing about it.
    let unknown = async || {
        let error = level(&fences).release().await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
        error.to_string()
    };
    unknown().await;
    assert_eq!(shown(&api).await["spec"]["fenceState"], "Unfenced");
    assert!(unknown().await.contains(FENCED));
    says(&api, "Failed", "no leader of the driver").await;
    assert!(unknown().await.contains("no leader of the driver"));
    says(&api, "Succeeded", UNFENCED).await;
    level(&fences).release().await.unwrap();
    level(&fences).release().await.unwrap();
    assert_eq!(
        level(&fences).power().await.unwrap(),
        Power::On,
        "whatever the last result says"
    );
    // The next fence does not inherit that result: it is another object.
    let error = level(&fences).power_off().await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    level(&fences).power_off().await.unwrap();
    assert!(level(&fences).power().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_told_with_its_key() {
    for (text, key) in [
        (
            "{driver: ceph-fence, provisioner: p, secret: a/b, cluster_id: c}",
            "cidrs",
        ),
        (
            "{driver: ceph-fence, cidrs: [10.0.0.1], provisioner: p, secret: a/b, cluster_id: c}",
            "cidrs",
        ),
        (
            "{driver: ceph-fence, cidrs: [10.0.0.1/32], secret: a/b, cluster_id: c}",
            "provisioner",
        ),
        (
            "{driver: ceph-fence, cidrs: [10.0.0.1/32], provisioner: p, secret: b, cluster_id: c}",
            "secret",
        ),
        (
            "{driver: ceph-fence, cidrs: [10.0.0.1/32], provisioner: p, secret: a/b}",
            "cluster_id",
        ),
    ] {
        let found = config(&format!("required_grade: storage\nlevels: [[{text}]]")).mistakes();
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, [format!("levels.0.0.{key}")], "{text}");
    }
    let error = Fences::new(config(GOOD), None).unwrap_err().to_string();
    assert!(error.contains("kubernetes.enabled"), "{error}");
    let api = TestServer::start().await;
    let fences = Fences::new(config(GOOD), Some(api.client())).unwrap();
    let error = fences.level(&target(None), 0).unwrap_err().to_string();
    assert!(error.contains("internalIp"), "{error}");
}
