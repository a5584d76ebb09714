// SPDX-License-Identifier: Apache-2.0
//! The metal-operator driver against the embedded Kubernetes API and simulated BMCs. The operator
//! itself is played here: it parks, heals and forgets as the real one does.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use cobaltcore_api::names::HostName;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_engine::Power;
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Target};
use cobaltcore_sim::bmc::{Bmcs, PASSWORD, USER};
use cobaltcore_sim::world::{Power as Real, World};
use serde_json::{Value, json};

const ONE: &str = "node001-bb1";
const LABEL: &str = "kubernetes.metal.cloud.sap/name";
const SERVER: &str = "/apis/metal.ironcore.dev/v1alpha1/servers/metal-7";
const CLAIM: &str = "/apis/metal.ironcore.dev/v1alpha1/namespaces/metal/serverclaims/claim-7";

const CRDS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servers.metal.ironcore.dev}
spec:
  group: metal.ironcore.dev
  scope: Cluster
  names: {kind: Server, plural: servers, singular: server, listKind: ServerList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serverclaims.metal.ironcore.dev}
spec:
  group: metal.ironcore.dev
  scope: Namespaced
  names: {kind: ServerClaim, plural: serverclaims, singular: serverclaim, listKind: ServerClaimList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: metal}
";

struct Rig {
    api: TestServer,
    world: World,
    _bmcs: Bmcs,
    fences: Fences,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn new(mode: &str) -> Self {
        let world = World::builder().hosts(1).vms_per_host(1).manual_clock().build();
        let bmcs = Bmcs::start(&world).await.unwrap();
        let api = TestServer::start().await;
        api.apply_yaml(CRDS).await.unwrap();
        let uuid = world.read(|state| state.hosts[ONE].node_uuid.to_string());
        let server = json!({
            "apiVersion": "metal.ironcore.dev/v1alpha1", "kind": "Server", "metadata": {"name": "metal-7"},
            "spec": {"systemUUID": uuid, "serverClaimRef": {"namespace": "metal", "name": "claim-7"}},
        });
        let claim = json!({
            "apiVersion": "metal.ironcore.dev/v1alpha1", "kind": "ServerClaim",
            "metadata": {"name": "claim-7", "namespace": "metal"}, "spec": {"power": "On"},
        });
        let made = api
            .admin()
            .apply(&format!("{SERVER}?fieldManager=test"), &server)
            .await;
        assert_eq!(made.code, 201, "{}", made.message());
        let made = api
            .admin()
            .apply(&format!("{CLAIM}?fieldManager=test"), &claim)
            .await;
        assert_eq!(made.code, 201, "{}", made.message());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bmc.yaml");
        std::fs::write(&file, format!("username: {USER}\npassword: {PASSWORD}\n")).unwrap();
        let text = format!(
            "levels: [[{{driver: metal-operator, mode: {mode}, server_from: label/{LABEL}, url: '{{bmc}}', credentials_file: {}}}]]\nhosts: {{{ONE}: {{bmc: '{}'}}}}\n",
            file.display(),
            bmcs.url(ONE).unwrap()
        );
        let config: Config = cobaltcore_kit::config::Config::new()
            .text("t.yaml", &text)
            .load()
            .unwrap();
        let rig = Self {
            fences: Fences::new(config, Some(api.client())).unwrap(),
            api,
            world,
            _bmcs: bmcs,
            _folder: folder,
        };
        rig.status("On").await;
        rig
    }

    fn device(&self) -> Level {
        let mut target = Target::new(HostName::new(ONE).unwrap());
        target.labels = BTreeMap::from([(LABEL.to_owned(), "metal-7".to_owned())]);
        self.fences.level(&target, 0).unwrap()
    }

    async fn server(&self) -> Value {
        self.api.admin().get(SERVER).await.body
    }

    async fn annotation(&self, key: &str) -> Option<String> {
        let server = self.server().await;
        server["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    async fn annotate(&self, annotations: Value) {
        let patch = json!({"metadata": {"annotations": annotations}});
        assert_eq!(self.api.admin().merge(SERVER, &patch).await.code, 200);
    }

    async fn status(&self, power: &str) {
        let patch = json!({"status": {"powerState": power, "state": "Reserved"}});
        let path = format!("{SERVER}/status");
        assert_eq!(self.api.admin().merge(&path, &patch).await.code, 200);
    }

    fn power(&self) -> Real {
        self.world.read(|state| state.hosts[ONE].power)
    }
}

/// So many seconds later, as the driver counts.
async fn after(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

const OPERATION: &str = "metal.ironcore.dev/operation";
const PARKED: &str = "metal.ironcore.dev/parked";

#[tokio::test]
async fn the_operator_stands_down_before_the_power_is_touched() {
    let rig = Rig::new("park+redfish").await;
    let device = rig.device();
    let told = device.identify().await.unwrap();
    let uuid = rig.world.read(|state| state.hosts[ONE].node_uuid.to_string());
    assert_eq!(told.system_uuid.as_deref(), Some(uuid.as_str()));
    device.power_off().await.unwrap();
    assert_eq!(rig.annotation(OPERATION).await.as_deref(), Some("park"));
    assert_eq!(rig.power(), Real::Off);
    assert_eq!(
        device.power().await.unwrap(),
        Power::Off,
        "the BMC is asked, not the operator's notes"
    );
    device.hold().await.unwrap();
    // The operator has parked it; the request is gone, its own mark stays.
    rig.annotate(json!({OPERATION: null, PARKED: "true"})).await;
    device.hold().await.unwrap();
    assert_eq!(
        rig.annotation(OPERATION).await,
        None,
        "what holds is not asked for again"
    );
    assert!(device.holds().await.unwrap());
    // Somebody unparked it: that is seen although it is still off, and the hold is asked for anew.
    rig.annotate(json!({PARKED: null})).await;
    assert_eq!(device.power().await.unwrap(), Power::Off);
    assert!(!device.holds().await.unwrap());
    device.hold().await.unwrap();
    assert!(device.holds().await.unwrap(), "about to be parked");
    assert_eq!(rig.annotation(OPERATION).await.as_deref(), Some("park"));
    rig.annotate(json!({OPERATION: null, PARKED: "true"})).await;
    assert!(device.release().await.unwrap().is_none());
    assert_eq!(rig.annotation(OPERATION).await.as_deref(), Some("unpark"));
}

#[tokio::test]
async fn another_operation_is_not_overwritten() {
    let rig = Rig::new("park+redfish").await;
    rig.annotate(json!({OPERATION: "rotate-credentials"})).await;
    let error = rig.device().power_off().await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(error.to_string().contains("rotate-credentials"), "{error}");
    assert_eq!(rig.power(), Real::On);
}

#[tokio::test]
async fn a_bmc_of_another_machine_than_the_operator_knows_identifies_nothing() {
    let rig = Rig::new("park+redfish").await;
    let patch = json!({"spec": {"systemUUID": "00000000-0000-0000-0000-000000000001"}});
    assert_eq!(rig.api.admin().merge(SERVER, &patch).await.code, 200);
    let told = rig.device().identify().await.unwrap();
    assert_eq!((told.system_uuid, told.serial), (None, None));
}

#[tokio::test]
async fn without_a_bmc_the_claim_is_changed_first_and_off_is_believed_when_it_was_carried_out() {
    let rig = Rig::new("claim").await;
    let device = rig.device();
    assert_eq!(device.power().await.unwrap(), Power::On);
    // Off in the operator's notes while the claim wants it on: it may be healed at any moment.
    rig.status("Off").await;
    let error = device.power().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    rig.status("On").await;
    device.power_off().await.unwrap();
    let claim = rig.api.admin().get(CLAIM).await.body;
    assert_eq!(claim["spec"]["power"], "Off");
    assert_eq!(
        rig.annotation(OPERATION).await.as_deref(),
        Some("force-off-server")
    );
    rig.status("Off").await;
    assert!(device.power().await.is_err(), "the order was not carried out yet");
    rig.annotate(json!({OPERATION: null})).await;
    let error = device.power().await.unwrap_err().to_string();
    assert!(error.contains("whoever owns the claim may revert it"), "{error}");
    after(29).await;
    assert!(device.power().await.is_err(), "half a minute is not over");
    after(2).await;
    // A device is made anew for each look; the watch goes on.
    assert_eq!(rig.device().power().await.unwrap(), Power::Off);
    device.hold().await.unwrap();
    // Whoever owns the claim reverts it: the reading is worth nothing, and the hold is renewed.
    let revert = json!({"spec": {"power": "On"}});
    rig.api.admin().merge(CLAIM, &revert).await;
    assert!(device.power().await.is_err());
    assert!(!device.holds().await.unwrap());
    device.hold().await.unwrap();
    assert_eq!(rig.api.admin().get(CLAIM).await.body["spec"]["power"], "Off");
    assert!(
        device.power().await.is_err(),
        "it was reverted once, and is watched anew"
    );
    after(31).await;
    assert_eq!(device.power().await.unwrap(), Power::Off);
    assert!(device.release().await.unwrap().is_none());
    assert_eq!(rig.api.admin().get(CLAIM).await.body["spec"]["power"], "On");
    assert_eq!(rig.power(), Real::On, "no BMC was touched");
}

#[tokio::test]
async fn an_old_operator_is_asked_by_the_servers_own_power() {
    let rig = Rig::new("legacy-spec-power").await;
    let device = rig.device();
    assert_eq!(device.power().await.unwrap(), Power::On);
    rig.status("Off").await;
    assert!(
        device.power().await.is_err(),
        "off, and nobody said that it is to stay so"
    );
    rig.status("On").await;
    device.power_off().await.unwrap();
    assert_eq!(rig.server().await["spec"]["power"], "Off");
    // The claim would be copied over it.
    assert_eq!(rig.api.admin().get(CLAIM).await.body["spec"]["power"], "Off");
    assert_eq!(rig.annotation(OPERATION).await, None);
    assert_eq!(
        device.power().await.unwrap(),
        Power::On,
        "wanted off is not off yet"
    );
    rig.status("Off").await;
    let error = device.power().await.unwrap_err().to_string();
    assert!(error.contains("whoever owns the claim may revert it"), "{error}");
    after(31).await;
    assert_eq!(device.power().await.unwrap(), Power::Off);
    device.hold().await.unwrap();
    // Somebody wants it on: the reading is worth nothing, and the hold is renewed.
    let revert = json!({"spec": {"power": "On"}});
    rig.api.admin().merge(SERVER, &revert).await;
    assert!(device.power().await.is_err());
    assert!(!device.holds().await.unwrap());
    device.hold().await.unwrap();
    assert_eq!(device.power().await.unwrap(), Power::Off);
    // The owner of the claim as well; after that nothing is known for half a minute.
    rig.api.admin().merge(CLAIM, &revert).await;
    assert!(device.power().await.is_err());
    device.hold().await.unwrap();
    assert!(
        device.power().await.is_err(),
        "it was reverted once, and is watched anew"
    );
    after(31).await;
    assert_eq!(device.power().await.unwrap(), Power::Off);
    assert!(device.release().await.unwrap().is_none());
    assert_eq!(rig.server().await["spec"]["power"], "On");
    assert_eq!(rig.api.admin().get(CLAIM).await.body["spec"]["power"], "On");
    assert_eq!(rig.power(), Real::On, "no BMC was touched");
}

#[tokio::test]
async fn a_newer_operator_erases_the_servers_power_and_the_error_says_which_mode_to_use() {
    let rig = Rig::new("legacy-spec-power").await;
    let admin = rig.api.admin();
    let eraser = async {
        loop {
            let patch = json!({"spec": {"power": null}});
            admin.merge(SERVER, &patch).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let device = rig.device();
    let error = tokio::select! {
        () = eraser => unreachable!("it erases for ever"),
        result = device.power_off() => result.unwrap_err(),
    };
    assert!(matches!(error, Error::NotOffered { .. }), "{error}");
    assert!(error.to_string().contains("park+redfish"), "{error}");
}

#[tokio::test]
async fn a_server_or_a_bmc_that_two_hosts_lead_to_switches_neither() {
    let rig = Rig::new("park+redfish").await;
    let target = |host: &str, server: &str| {
        let mut target = Target::new(HostName::new(host).unwrap());
        target.labels = BTreeMap::from([(LABEL.to_owned(), server.to_owned())]);
        target
    };
    let text = "levels: [[{driver: metal-operator, server_from: label/LABEL, url: 'https://{bmc}'}]]\n\
                hosts: {n1: {bmc: a}, n2: {bmc: a}, n3: {bmc: b}, n4: {bmc: c}}\n";
    let config: Config = cobaltcore_kit::config::Config::new()
        .text("t.yaml", &text.replace("LABEL", LABEL))
        .load()
        .unwrap();
    let fences = Fences::new(config, Some(rig.api.client())).unwrap();
    fences.level(&target("n1", "metal-1"), 0).unwrap();
    let shared = |level: Result<Level, Error>| matches!(level, Err(Error::Shared { .. }));
    assert!(shared(fences.level(&target("n2", "metal-2"), 0)), "one BMC");
    fences.level(&target("n3", "metal-3"), 0).unwrap();
    assert!(shared(fences.level(&target("n4", "metal-3"), 0)), "one Server");
}

#[tokio::test]
async fn a_host_without_its_label_cannot_be_fenced_and_says_so() {
    let rig = Rig::new("claim").await;
    let target = Target::new(HostName::new(ONE).unwrap());
    let error = rig.fences.level(&target, 0).unwrap_err().to_string();
    assert!(error.contains(LABEL), "{error}");
    let patch = json!({"spec": {"serverClaimRef": null}});
    rig.api.admin().merge(SERVER, &patch).await;
    let error = rig.device().power_off().await.unwrap_err().to_string();
    assert!(error.contains("ServerClaim"), "{error}");
}
