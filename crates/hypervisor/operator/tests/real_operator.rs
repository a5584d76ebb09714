// SPDX-License-Identifier: Apache-2.0
//! The operator on real hosts under a real OpenStack: a Node appears, its host is proven by a test
//! server that boots on it and comes into production, is drained by real migrations, goes through maintenance,
//! and leaves without a trace in Nova and Placement.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cobaltcore_api::{Eviction, Hypervisor};
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_kit::config::HumanDuration;
use cobaltcore_kit::health::Health;
use cobaltcore_kit::shutdown::Shutdown;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_lab::{Lab, Options};
use cobaltcore_openstack::glance::NewImage;
use cobaltcore_openstack::{CloudConfig, Session, Settings};
use cobaltcore_operator::config::{GardenerMode, HaMode};
use cobaltcore_operator::{Clock, Config, Surroundings};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const ZONE: &str = "lab-zone";
const TEST: &str = "tenant_filter_tests";
const IMAGE: &str = "operator-proof";

/// A disk whose boot sector prints what the firmware knows of the machine to the serial console.
/// Nova gives every machine its server's id as serial number, so the console of a server that
/// really booted shows that id, and no other console does.
fn speaking_disk() -> Vec<u8> {
    let code: &[u8] = &[
        0xfa, // cli
        0xbb, 0x20, 0x00, // mov bx, 0x20: the first file of the firmware's configuration
        0xba, 0x10, 0x05, // next: mov dx, 0x510
        0x89, 0xd8, // mov ax, bx
        0xef, // out dx, ax: choose the file
        0xb9, 0x00, 0x08, // mov cx, 2048
        0xba, 0x11, 0x05, // read: mov dx, 0x511
        0xec, // in al, dx
        0x3c, 0x20, // cmp al, ' '
        0x72, 0x08, // jb skip
        0x3c, 0x7e, // cmp al, '~'
        0x77, 0x04, // ja skip
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xee, // out dx, al: say it
        0xe2, 0xee, // skip: loop read
        0x43, // inc bx
        0x83, 0xfb, 0x40, // cmp bx, 0x40
        0x75, 0xdf, // jne next
        0xf4, // halt: hlt
        0xeb, 0xfd, // jmp halt
    ];
    let mut disk = vec![0u8; 1 << 20];
    disk[..code.len()].copy_from_slice(code);
    (disk[510], disk[511]) = (0x55, 0xaa);
    disk
}

fn config() -> Config {
    Config {
        health_probe_bind_address: "0".into(),
        agent_namespaces: vec!["agents".into()],
        ha_mode: HaMode::Off,
        gardener: GardenerMode::On,
        test_project: "admin".into(),
        test_project_domain: "Default".into(),
        test_image: IMAGE.into(),
        test_flavor: "nano".into(),
        test_network: "none".into(),
        test_volume_size: 0,
        onboarding_retry_interval: HumanDuration(Duration::from_secs(5)),
        ..Config::default()
    }
}

async fn until<F, Fut>(what: &str, mut look: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    for _ in 0..600 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("waited in vain: {what}");
}

fn said(conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition], type_: &str) -> String {
    conditions
        .iter()
        .filter(|condition| condition.type_ == type_)
        .map(|c| format!("{}/{}/{}", c.status, c.reason, c.message))
        .collect()
}

struct Stage {
    began: Instant,
    hypervisors: Api<Hypervisor>,
    evictions: Api<Eviction>,
    nodes: Api<Node>,
    pods: Api<Pod>,
}

impl Stage {
    /// Where the time goes, for people who look at a slow run.
    fn tell(&self, what: &str) {
        eprintln!("{:>4} s  {what}", self.began.elapsed().as_secs());
    }

    async fn until(&self, name: &str, type_: &str, wanted: &str) -> Hypervisor {
        let mut last = String::new();
        for _ in 0..600 {
            if let Some(object) = self.hypervisors.get_opt(name).await.unwrap() {
                let now = said(object.status.as_ref().map_or(&[], |s| &s.conditions), type_);
                if now != last {
                    self.tell(&format!("{name} {type_} {now}"));
                    last = now;
                }
                if last.starts_with(wanted) && (!wanted.is_empty() || last.is_empty()) {
                    return object;
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let eviction = self.evictions.get_opt(name).await.unwrap();
        panic!("{name} never said {type_} {wanted}, but {last}; eviction {eviction:#?}");
    }

    async fn edit(&self, name: &str, patch: Value) {
        let params = PatchParams {
            field_manager: Some("somebody".into()),
            ..PatchParams::default()
        };
        self.hypervisors
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// A Node appears, with the pod of its nova-compute.
    async fn add(&self, name: &str) {
        let node = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "nova.openstack.cloud.sap/virt-driver": "kvm",
                    "cobaltcore.cloud.sap/node-hypervisor-lifecycle": "",
                    "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONE,
                },
                "annotations": {
                    "nova.openstack.cloud.sap/aggregates": "operator-prod",
                    "nova.openstack.cloud.sap/custom-traits": "CUSTOM_OPERATOR_PROOF",
                },
            },
        });
        let node = serde_json::from_value(node).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.unwrap();
        self.node_conditions(name, &json!([{"type": "Ready", "status": "True"}]))
            .await;
        let pod = json!({
            "metadata": {"name": format!("nova-compute-{name}")},
            "spec": {"nodeName": name, "containers": [{"name": "nova-compute", "image": "nova"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn node_conditions(&self, name: &str, conditions: &Value) {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        self.nodes
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// The aggregates and the image that hosts are brought in with.
async fn prepare(session: &Session) {
    let nova = session.nova();
    let known = nova.aggregates().await.unwrap();
    for (name, zone) in [(ZONE, Some(ZONE)), (TEST, None), ("operator-prod", None)] {
        if !known.iter().any(|aggregate| aggregate.name == name) {
            nova.create_aggregate(name, zone).await.unwrap();
        }
    }
    let glance = session.glance();
    if glance.image_by_name(IMAGE).await.unwrap().is_none() {
        let image = NewImage {
            name: IMAGE.into(),
            disk_format: "raw".into(),
            public: true,
        };
        let image = glance.create_image(&image).await.unwrap();
        glance
            .upload_image(&image.id, Bytes::from(speaking_disk()))
            .await
            .unwrap();
    }
}

/// Gives the lab back as it was found.
async fn tidy(session: &Session) {
    let nova = session.nova();
    for aggregate in nova.aggregates().await.unwrap() {
        if [ZONE, TEST, "operator-prod"].contains(&aggregate.name.as_str()) {
            for host in &aggregate.hosts {
                nova.remove_host(aggregate.id, host).await.unwrap();
            }
            nova.delete_aggregate(aggregate.id).await.unwrap();
        }
    }
    if let Some(image) = session.glance().image_by_name(IMAGE).await.unwrap() {
        session.glance().delete_image(&image.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_host_comes_in_is_drained_comes_back_and_leaves() {
    let started = tokio::task::spawn_blocking(|| Lab::join_or_start(&Options::with_hosts(2)));
    let lab = match started.await.unwrap() {
        Ok(lab) => lab,
        Err(skip) => return skip.print(),
    };
    let control = lab.description().control.clone().unwrap();
    let variables = BTreeMap::from([
        ("OS_AUTH_URL", control.auth_url.clone()),
        ("OS_USERNAME", control.username.clone()),
        ("OS_PASSWORD", control.password.clone()),
        ("OS_PROJECT_NAME", "admin".to_owned()),
        ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
        ("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()),
        ("OS_REGION_NAME", "RegionOne".to_owned()),
    ]);
    let cloud = CloudConfig::from_variables(|name| variables.get(name).cloned()).unwrap();
    let session = Session::new(cloud, Settings::default()).unwrap();
    prepare(&session).await;

    let server = TestServer::start().await;
    server.apply_yaml(&cobaltcore_api::crds_yaml(None)).await.unwrap();
    for namespace in ["agents", "monsoon3"] {
        let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
        server.apply_yaml(&text).await.unwrap();
    }
    let shutdown = Shutdown::new(Duration::from_secs(10));
    let component = Component {
        name: "hypervisor-operator",
        version: "0",
        commit: "none",
    };
    let surroundings = Surroundings {
        client: server.client(),
        telemetry: Telemetry::new(&component),
        health: Health::new(),
        shutdown: shutdown.clone(),
        clock: Clock::new(),
        openstack: Some(session.clone()),
    };
    let operator = tokio::spawn(cobaltcore_operator::run(config(), surroundings));
    let stage = Stage {
        began: Instant::now(),
        hypervisors: Api::all(server.client()),
        evictions: Api::all(server.client()),
        nodes: Api::all(server.client()),
        pods: Api::namespaced(server.client(), "agents"),
    };
    let names: Vec<String> = lab.hosts().iter().map(|host| host.name().to_owned()).collect();

    come_in(&stage, &session, &names).await;
    stage.tell("all hosts are active");
    drain(&stage, &lab, &names[0]).await;
    stage.tell("one was drained and is back");
    leave(&stage, &session, &lab, &names[0]).await;
    stage.tell("one has left and is back");

    shutdown.begin("the test is over");
    operator.await.unwrap().unwrap();
    tidy(&session).await;
}

/// Aggregates, traits, and a test server that boots on each host.
async fn come_in(stage: &Stage, session: &Session, names: &[String]) {
    for name in names {
        stage.add(name).await;
    }
    for name in names {
        let active = stage.until(name, "Onboarding", "False/Succeeded").await;
        stage.until(name, "HypervisorDisabled", "False/Succeeded").await;
        stage.until(name, "Ready", "True/Ready").await;
        let id = active.status.unwrap().hypervisor_id;
        let traits = session
            .placement()
            .provider_traits(&id.as_str().into())
            .await
            .unwrap();
        assert!(traits.traits.contains("CUSTOM_OPERATOR_PROOF"));
    }
    let aggregates = session.nova().aggregates().await.unwrap();
    let hosts = |name: &str| {
        let aggregate = aggregates
            .iter()
            .find(|aggregate| aggregate.name == name)
            .unwrap();
        aggregate.hosts.len()
    };
    assert_eq!(
        (hosts(ZONE), hosts("operator-prod"), hosts(TEST)),
        (names.len(), names.len(), 0)
    );
    until("the test servers are gone", || async {
        let left = session
            .nova()
            .servers(&cobaltcore_openstack::nova::ServerFilter::everywhere())
            .await
            .unwrap();
        !left.iter().any(|server| server.name.starts_with("ohooc-"))
    })
    .await;
}

/// Maintenance with a running, a paused, a shut-off and a broken server.
async fn drain(stage: &Stage, lab: &Lab, node: &str) {
    let cloud = lab.cloud().unwrap();
    let host = lab.host_named(node).unwrap();
    let block = |work: &mut dyn FnMut()| tokio::task::block_in_place(work);
    let mut ids = Vec::new();
    block(&mut || {
        for name in ["real-running", "real-paused", "real-off", "real-broken"] {
            ids.push(cloud.create(name, host).unwrap());
        }
        for id in &ids {
            cloud.wait_for(id, "ACTIVE", Some(node)).unwrap();
        }
        cloud.action(&ids[2], &json!({"os-stop": null})).unwrap();
        cloud.action(&ids[1], &json!({"pause": null})).unwrap();
        cloud
            .action(&ids[3], &json!({"os-resetState": {"state": "error"}}))
            .unwrap();
        cloud.wait_for(&ids[1], "PAUSED", None).unwrap();
        cloud.wait_for(&ids[2], "SHUTOFF", None).unwrap();
    });
    let enter = json!({"spec": {"maintenance": "manual", "maintenanceReason": "proof"}});
    stage.edit(node, enter).await;
    let failed = stage.until(node, "Evicting", "True/Failed").await;
    let text = said(&failed.status.unwrap().conditions, "Evicting");
    assert_eq!(
        text,
        format!("True/Failed/1 of 4 instances could not be moved: {}", ids[3])
    );
    block(&mut || {
        for (id, status, kind) in [
            (&ids[0], "ACTIVE", "live-migration"),
            (&ids[1], "PAUSED", "live-migration"),
            (&ids[2], "SHUTOFF", "migration"),
        ] {
            let server = cloud.wait_for(id, status, None).unwrap();
            assert_ne!(server.host.as_deref(), Some(node), "{id} has left");
            let moves = cloud.migrations(id).unwrap();
            assert_eq!(moves.len(), 1, "moved once: {moves:?}");
            assert_eq!(moves[0].migration_type.as_deref(), Some(kind));
        }
        // What was off still starts where it is now.
        cloud.action(&ids[2], &json!({"os-start": null})).unwrap();
        let started = cloud.wait_for(&ids[2], "ACTIVE", None).unwrap();
        assert_ne!(started.host.as_deref(), Some(node));
        assert!(lab.guests_running_twice().unwrap().is_empty());
        assert_eq!(cloud.service(host).unwrap().status, "disabled");
        cloud.delete(&ids[3]).unwrap();
    });
    // With the broken one gone, another try ends well.
    let retry = Patch::Merge(json!({"metadata": {"annotations": {"kvm.cloud.sap/retry": "1"}}}));
    stage
        .evictions
        .patch(node, &PatchParams::default(), &retry)
        .await
        .unwrap();
    stage.until(node, "Evicting", "False/Succeeded").await;
    stage
        .edit(
            node,
            json!({"spec": {"maintenance": "", "maintenanceReason": ""}}),
        )
        .await;
    stage.until(node, "HypervisorDisabled", "False/Succeeded").await;
    stage.until(node, "Evicting", "").await;
    block(&mut || {
        assert_eq!(cloud.service(host).unwrap().status, "enabled");
        for id in &ids[..3] {
            cloud.delete(id).unwrap();
        }
    });
}

/// Termination: nothing of the host is left in Nova and Placement.
async fn leave(stage: &Stage, session: &Session, lab: &Lab, node: &str) {
    let provider = stage
        .hypervisors
        .get(node)
        .await
        .unwrap()
        .status
        .unwrap()
        .hypervisor_id;
    let signal = json!([{"type": "Ready", "status": "True"}, {"type": "Terminating", "status": "True"}]);
    stage.node_conditions(node, &signal).await;
    stage.until(node, "Evicting", "False/Succeeded").await;
    stage
        .until(node, "Offboarded", "False/Offboarding/Waiting for agent pods")
        .await;
    let host = lab.host_named(node).unwrap();
    tokio::task::block_in_place(|| host.kill_process("nova-compute").unwrap());
    let now = DeleteParams::default().grace_period(0);
    stage
        .pods
        .delete(&format!("nova-compute-{node}"), &now)
        .await
        .unwrap();
    stage.until(node, "Offboarded", "True/Offboarded").await;
    let nova = session.nova();
    let services = nova.compute_services().await.unwrap();
    assert!(!services.iter().any(|service| service.host == node), "no service");
    let aggregates = nova.aggregates().await.unwrap();
    assert!(
        !aggregates
            .iter()
            .any(|aggregate| aggregate.hosts.iter().any(|host| host == node))
    );
    let left = session.placement().provider(&provider.as_str().into()).await;
    assert!(left.is_err_and(|error| error.is_not_found()), "no provider");
    // Its compute service registers anew, so that the lab has its host back.
    tokio::task::block_in_place(|| host.start_process("nova-compute").unwrap());
    until("the host is back", || async {
        let services = nova.compute_services().await.unwrap();
        services.iter().any(|service| service.host == node)
    })
    .await;
}
