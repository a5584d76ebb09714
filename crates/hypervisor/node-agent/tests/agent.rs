// SPDX-License-Identifier: Apache-2.0
//! The agent over real wires: an embedded Kubernetes API on one side, a scripted libvirt host on the other.
#![allow(clippy::unwrap_used)]

mod support;
mod told;

use std::time::Duration;

use cobaltcore_apiserver::{Effect, Fault};
use cobaltcore_libvirt::error::RpcError;
use cobaltcore_libvirt::procedure::Procedure;
use cobaltcore_node_agent_bench::host::{FarHost, definition};
use serde_json::json;
use support::{
    Agent, condition, config, connection, create, instance, is_connected, over_socket, server, until,
};
use told::until_told;
use uuid::Uuid;

const NODE: &str = "node1";

fn server_id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

struct Scene {
    server: cobaltcore_apiserver::testkit::TestServer,
    far: FarHost,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let far = FarHost::start(directory.path()).unwrap();
        Self {
            server: server().await,
            far,
            directory,
        }
    }

    fn agent(&self, flags: &[&str]) -> Agent {
        Agent::start(config(NODE, &over_socket(self.far.socket()), flags), &self.server)
    }

    async fn until(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        until(&self.server, NODE, what, wanted).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_contact_tells_everything() {
    let scene = Scene::new().await;
    scene.far.define(server_id(1), "idle", &definition("idle", 3));
    for (number, name) in [(2, "zeta"), (3, "alpha")] {
        scene.far.define(server_id(number), name, &definition(name, 1));
        scene.far.start_guest(server_id(number));
    }
    create(&scene.server, NODE).await;
    let agent = scene.agent(&[]);
    let status = scene
        .until("complete", |status| {
            is_connected(status)
                && status["allocation"]["cpu"] == "6"
                && status["domainCapabilities"]["arch"] == "x86_64"
                && status["cells"][1]["allocation"]["cpu"] == "4"
        })
        .await;
    assert_eq!(
        status["instances"],
        json!([
            {"id": server_id(3), "name": "alpha", "active": true, "state": "running"},
            {"id": server_id(2), "name": "zeta", "active": true, "state": "running"},
            {"id": server_id(1), "name": "idle", "active": false, "state": "shutoff"},
        ])
    );
    assert_eq!(status["numInstances"], 3);
    assert_eq!(
        (&status["libVirtVersion"], &status["hypervisorVersion"]),
        (&json!("9.0.0"), &json!("7.2.22"))
    );
    assert_eq!(status["capacity"], json!({"cpu": "16", "memory": "256Gi"}));
    let cells: Vec<&serde_json::Value> = status["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| &cell["cellID"])
        .collect();
    assert_eq!(cells, [0, 1, 2, 3]);
    assert_eq!(
        status["cells"][1]["allocation"],
        json!({"cpu": "4", "memory": "1Gi"})
    );
    assert_eq!(
        status["cells"][3]["allocation"],
        json!({"cpu": "2", "memory": "512Mi"})
    );
    assert_eq!(status["agent"]["driver"], "QEMU");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hypervisor_that_does_not_exist_yet_is_waited_for() {
    let scene = Scene::new().await;
    scene.far.populate(2);
    let agent = scene.agent(&[]);
    while scene.far.calls() < 5 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    agent.assert_alive();
    create(&scene.server, NODE).await;
    scene
        .until("reported", |status| status["numInstances"] == 2)
        .await;
    support::hypervisors(&scene.server)
        .delete(NODE, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    create(&scene.server, NODE).await;
    scene
        .until("reported again", |status| status["numInstances"] == 2)
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_guest_shows() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1h"]);
    scene.until("connected", is_connected).await;
    let guest = server_id(7);
    let shows = |active: bool, state: &'static str| {
        move |status: &serde_json::Value| {
            let guest = instance(status, "vm");
            guest["active"] == active && guest["state"] == state
        }
    };
    scene.far.define(guest, "vm", &definition("vm", 2));
    scene.until("defined", shows(false, "shutoff")).await;
    scene.far.start_guest(guest);
    scene.until("started", shows(true, "running")).await;
    scene.far.pause_guest(guest);
    scene.until("paused", shows(true, "paused")).await;
    scene.far.tell(guest, 8, 0);
    scene.until("crashed and kept", shows(true, "crashed")).await;
    scene.far.stop_guest(guest, 2);
    scene.until("crashed", shows(false, "shutoff")).await;
    let status = scene
        .until("counted", |status| status["cells"][2]["allocation"]["cpu"] == "2")
        .await;
    assert_eq!(
        status["allocation"],
        json!({"cpu": "2", "memory": "512Mi"}),
        "a stopped guest keeps its claim"
    );

    // A transient guest goes without an event of its own: reading it again finds nothing.
    scene.far.start_guest(guest);
    scene.until("started again", shows(true, "running")).await;
    scene.far.forget(guest);
    scene.far.tell(guest, 5, 1);
    scene
        .until("gone", |status| {
            status["numInstances"] == 0 && status["allocation"]["cpu"] == "0"
        })
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_host_with_fifty_guests_is_silent() {
    let scene = Scene::new().await;
    scene.far.populate(50);
    create(&scene.server, NODE).await;
    // A second stands for the minute of production, so that ten minutes fit into a test.
    let agent = scene.agent(&["--resync-interval", "1s", "--refresh-interval", "2s"]);
    scene
        .until("complete", |status| {
            // Without a message bus the units and the shutdown lock are given some seconds before they are called unknown.
            let said = |type_| condition(status, type_).is_object();
            let all_said = said("libvirtd.service") && said("EvacuationReady");
            status["allocation"]["cpu"] == "100" && is_connected(status) && all_said
        })
        .await;
    scene.server.comes_to_rest(Duration::from_secs(1)).await;
    let (before, began) = (scene.far.calls(), tokio::time::Instant::now());
    scene.server.assert_quiescent(Duration::from_secs(10)).await;
    let (calls, intervals) = (scene.far.calls() - before, began.elapsed().as_secs_f64().ceil());
    assert!(
        calls as f64 <= 3.0 * intervals,
        "{calls} calls in {intervals} intervals: {:?}",
        scene.far.calls_by_procedure()
    );
    assert!(calls >= 10, "it still looks: {calls} calls");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overcommit_changes_without_asking_libvirt() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1h"]);
    scene
        .until("complete", |status| {
            status["effectiveCapacity"]["cpu"] == "16" && is_connected(status)
        })
        .await;
    let before = scene.far.calls();
    let patch = json!({"spec": {"overcommit": {"cpu": 1.5}}});
    let params = kube::api::PatchParams::default();
    support::hypervisors(&scene.server)
        .patch(NODE, &params, &kube::api::Patch::Merge(&patch))
        .await
        .unwrap();
    let status = scene
        .until("overcommitted", |status| {
            status["effectiveCapacity"]["cpu"] == "24"
        })
        .await;
    assert_eq!(status["cells"][0]["effectiveCapacity"]["cpu"], "6");
    assert_eq!(scene.far.calls(), before);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_told_and_mended() {
    let scene = Scene::new().await;
    let guests = scene.far.populate(2);
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1h"]);
    scene
        .until("connected", |status| {
            is_connected(status) && status["numInstances"] == 2
        })
        .await;
    until_told(&scene.server, NODE, "Normal LibvirtConnected").await;
    for round in 0..5 {
        scene.far.refuse(
            Procedure::CONNECT_LIST_ALL_DOMAINS,
            Some(RpcError::new(1, 10, "not yet")),
        );
        scene.far.hang_up();
        let status = scene
            .until("lost", |status| connection(status).starts_with("False/"))
            .await;
        assert_eq!(status["numInstances"], 2, "what was known stays");
        until_told(&scene.server, NODE, "Warning LibvirtLost").await;
        scene.far.refuse(Procedure::CONNECT_LIST_ALL_DOMAINS, None);
        scene.until("back", is_connected).await;
        // Events are registered anew: without them nobody would notice this.
        scene.far.stop_guest(guests[0], 1);
        scene
            .until("stopped", |status| status["instances"][1]["active"] == false)
            .await;
        scene.far.start_guest(guests[0]);
        scene
            .until(&format!("started in round {round}"), |status| {
                status["instances"][1]["active"] == true
            })
            .await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_before_there_is_a_hypervisor_is_told_once_there_is_one() {
    let scene = Scene::new().await;
    scene.far.populate(2);
    let agent = scene.agent(&["--resync-interval", "1h"]);
    let mut calls = 0;
    while calls == 0 || calls != scene.far.calls() {
        calls = scene.far.calls();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    create(&scene.server, NODE).await;
    until_told(&scene.server, NODE, "Normal LibvirtConnected").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_nobody_listened_is_found() {
    let scene = Scene::new().await;
    let guests = scene.far.populate(3);
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1s"]);
    scene
        .until("connected", |status| {
            is_connected(status) && status["numInstances"] == 3
        })
        .await;
    scene.far.forget(guests[1]);
    scene
        .until("one fewer", |status| status["numInstances"] == 2)
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_libvirts_are_named_and_survived() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    let missing = scene.directory.path().join("nobody");
    let agent = Agent::start(config(NODE, &over_socket(&missing), &[]), &scene.server);
    let status = scene
        .until("refused", |status| connection(status) == "False/ConnectFailed")
        .await;
    let message = condition(&status, "LibVirtConnection")["message"].to_string();
    assert!(
        message.contains("unable to connect to libvirtd") && message.contains("nobody"),
        "{message}"
    );
    agent.stop().await;

    let ch = format!("ch+unix:///system?socket={}", scene.far.socket().display());
    let agent = Agent::start(config(NODE, &ch, &[]), &scene.server);
    let status = scene
        .until("no driver", |status| {
            connection(status) == "False/DriverUnavailable"
        })
        .await;
    assert!(
        condition(&status, "LibVirtConnection")["message"]
            .to_string()
            .contains("ch:///system")
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_libvirt_that_speaks_garbage_is_named_and_survived() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    let agent = scene.agent(&[]);
    scene.until("connected", is_connected).await;
    scene.far.refuse(
        Procedure::CONNECT_LIST_ALL_DOMAINS,
        Some(RpcError::new(1, 10, "not yet")),
    );
    scene
        .far
        .speak_garbage(b"\xff\xff\xff\xffHTTP/1.1 400 Bad Request\r\n\r\n");
    let status = scene
        .until("lost", |status| connection(status).starts_with("False/"))
        .await;
    let message = condition(&status, "LibVirtConnection")["message"].to_string();
    assert!(
        message.contains("does not speak the libvirt protocol") || message.contains("not yet"),
        "{message}"
    );
    scene.far.refuse(Procedure::CONNECT_LIST_ALL_DOMAINS, None);
    scene.until("back", is_connected).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_libvirt_is_called_a_timeout() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    let agent = scene.agent(&[]);
    scene.until("connected", is_connected).await;
    scene.far.freeze(true);
    scene
        .until("silent", |status| connection(status) == "False/Timeout")
        .await;
    scene.far.freeze(false);
    scene.until("back", is_connected).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_documents_degrade_and_spoil_nothing_else() {
    let scene = Scene::new().await;
    scene.far.populate(3);
    scene.far.define(
        server_id(1),
        "absurd",
        "<domain><memory unit='KiB'>99999999999999999999</memory><vcpu>-3</vcpu></domain>",
    );
    scene.far.define(server_id(2), "broken", "<domain><memory>");
    scene
        .far
        .set_capabilities(&cobaltcore_node_agent_bench::host::capabilities(2).replace("67108864", "none"));
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1h"]);
    let status = scene
        .until("degraded", |status| {
            connection(status) == "True/Degraded" && status["allocation"]["cpu"] == "6"
        })
        .await;
    assert_eq!(status["numInstances"], 5);
    let message = condition(&status, "LibVirtConnection")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    for words in ["guest absurd", "guest broken", "memory of cell 0"] {
        assert!(message.contains(words), "{message} lacks {words}");
    }
    until_told(&scene.server, NODE, "Warning DomainUnreadable").await;
    scene.far.define(server_id(1), "absurd", &definition("absurd", 0));
    scene.far.define(server_id(2), "broken", &definition("broken", 0));
    scene
        .until("counted", |status| status["allocation"]["cpu"] == "10")
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_status_write_is_tried_again() {
    let scene = Scene::new().await;
    scene.far.populate(1);
    create(&scene.server, NODE).await;
    let refuse = Effect::Refuse {
        code: 403,
        reason: "Forbidden",
        retry_after: None,
    };
    scene
        .server
        .faults()
        .inject(Fault::new(refuse).verb("patch").resource("hypervisors").times(3));
    let agent = scene.agent(&[]);
    scene
        .until("written after all", |status| {
            status["numInstances"] == 1 && is_connected(status)
        })
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_is_served_with_what_it_knows() {
    let scene = Scene::new().await;
    // The definition of the running system has no `agent` and no `state`.
    let mut crd = serde_json::to_value(&cobaltcore_api::crds()[0]).unwrap();
    for candidate in cobaltcore_api::crds() {
        if candidate.spec.names.kind == "Hypervisor" {
            crd = serde_json::to_value(candidate).unwrap();
        }
    }
    let status =
        &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    let fields = status.as_object_mut().unwrap();
    fields.remove("agent").unwrap();
    fields.remove("unplacedAllocation").unwrap();
    fields["cells"]["items"]["properties"]
        .as_object_mut()
        .unwrap()
        .remove("pages")
        .unwrap();
    fields["instances"]["items"]["properties"]
        .as_object_mut()
        .unwrap()
        .remove("state")
        .unwrap();
    scene.server.apply_yaml(&crd.to_string()).await.unwrap();
    scene.far.populate(2);
    create(&scene.server, NODE).await;
    let agent = scene.agent(&[]);
    let status = scene
        .until("written", |status| {
            status["numInstances"] == 2 && is_connected(status)
        })
        .await;
    assert_eq!(
        (status.get("agent"), status["instances"][0].get("state")),
        (None, None)
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_pages_are_counted_again_when_guests_come_and_go() {
    let scene = Scene::new().await;
    let pages = "<pages unit='KiB' size='4'>1</pages><pages unit='KiB' size='2048'>512</pages><cpus num='4'>";
    let capabilities = cobaltcore_node_agent_bench::host::capabilities(2);
    scene
        .far
        .set_capabilities(&capabilities.replace("<cpus num='4'>", pages));
    scene.far.set_free_pages(vec![512, 512]);
    let guest = scene.far.populate(1)[0];
    create(&scene.server, NODE).await;
    let agent = scene.agent(&["--resync-interval", "1h"]);
    let status = scene
        .until("told", |status| status["cells"][1]["pages"][0]["free"] == 512)
        .await;
    let pool = json!([{"size": "2Mi", "total": 512, "free": 512}]);
    assert_eq!(status["cells"][0]["pages"], pool);
    scene.far.set_free_pages(vec![512, 256]);
    scene.far.stop_guest(guest, 1);
    let status = scene
        .until("told again", |status| {
            status["cells"][1]["pages"][0]["free"] == 256
        })
        .await;
    assert_eq!(status["cells"][0]["pages"], pool);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_former_agent_wrote_is_taken_over_and_nothing_is_left_in_its_name() {
    let left = after_the_former_agent(true).await;
    assert_eq!(left, ["f:conditions", "f:traits"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_take_over_conditions_of_the_former_agent_still_go() {
    let left = after_the_former_agent(false).await;
    assert!(left.contains(&"f:traits".to_owned()), "{left:?}");
}

/// Lets an agent take over; returns which fields of the status are still owned under the former name.
async fn after_the_former_agent(may_write_objects: bool) -> Vec<String> {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    // As the agent of the running system leaves it; a trait by somebody else under the same name stays.
    let old_condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "Running", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let old = json!({"status": {"numInstances": 7, "libVirtVersion": "8.0.0", "traits": ["CUSTOM_A"],
        "instances": [{"id": "x", "name": "gone", "active": true}],
        "conditions": [old_condition("libvirtd.service"), old_condition("openvswitch-switch.service"), old_condition("Ready")]}});
    let params = kube::api::PatchParams {
        field_manager: Some("manager".to_owned()),
        ..kube::api::PatchParams::default()
    };
    support::hypervisors(&scene.server)
        .patch_status(NODE, &params, &kube::api::Patch::Merge(&old))
        .await
        .unwrap();
    scene.far.populate(1);
    // Without the right to write the object itself, what nobody writes any more goes all the same.
    if !may_write_objects {
        let refuse = Effect::Refuse {
            code: 403,
            reason: "Forbidden",
            retry_after: None,
        };
        // Taking over is the first thing it tries.
        let fault = Fault::new(refuse).verb("patch").resource("hypervisors").times(1);
        scene.server.faults().inject(fault);
    }
    let agent = scene.agent(&["--watch-units", "virtqemud.service"]);
    let status = scene
        .until("taken over", |status| {
            let gone = |type_| condition(status, type_).is_null();
            is_connected(status) && gone("libvirtd.service") && gone("openvswitch-switch.service")
        })
        .await;
    assert_eq!(status["numInstances"], 1);
    assert_eq!(status["traits"], json!(["CUSTOM_A"]));
    assert!(condition(&status, "Ready").is_object());
    let object = support::hypervisors(&scene.server).get(NODE).await.unwrap();
    let managers = object.metadata.managed_fields.unwrap();
    let former: Vec<_> = managers
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some("manager"))
        .collect();
    assert_eq!(former.len(), 1, "{managers:#?}");
    let left = former[0].fields_v1.as_ref().unwrap().0["f:status"].clone();
    let conditions = left["f:conditions"].as_object().unwrap();
    assert!(!conditions.keys().any(|key| key.contains(".service")), "{left:#}");
    agent.stop().await;
    let names = left.as_object().unwrap().keys().cloned();
    names.filter(|name| name != ".").collect()
}

#[tokio::test]
async fn a_stop_is_quiet() {
    // One thread, so that everything the agent says is heard here.
    let heard = support::Heard::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let scene = Scene::new().await;
    scene.far.populate(2);
    create(&scene.server, NODE).await;
    for _ in 0..5 {
        let agent = scene.agent(&[]);
        scene.until("connected", is_connected).await;
        heard.forget();
        agent.stop().await;
        assert_eq!(heard.warnings(), Vec::<String>::new());
    }
}

/// What a health endpoint answers; nothing while nobody listens.
async fn ask(address: &str, path: &str) -> Option<(u16, String)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn health_watches_the_agents_own_loops_and_not_libvirt() {
    let scene = Scene::new().await;
    create(&scene.server, NODE).await;
    // An address of the loopback network that nobody else takes ports of.
    let free = std::net::TcpListener::bind("127.77.16.4:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let away = Effect::Refuse {
        code: 503,
        reason: "ServiceUnavailable",
        retry_after: None,
    };
    scene
        .server
        .faults()
        .inject(Fault::new(away).resource("hypervisors"));
    let missing = over_socket(&scene.directory.path().join("nobody"));
    let agent = Agent::start(
        config(NODE, &missing, &["--health-probe-bind-address", &address]),
        &scene.server,
    );
    let until = async |path: &str, code: u16| {
        let begin = tokio::time::Instant::now();
        loop {
            let answer = ask(&address, path).await;
            if let Some((found, text)) = &answer
                && *found == code
            {
                return text.clone();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{path} is not {code}: {answer:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let text = until("/readyz", 500).await;
    assert!(text.contains("[-]kubernetes"), "{text}");
    scene.server.faults().clear();
    until("/readyz", 200).await;
    scene
        .until("without libvirt", |status| {
            connection(status) == "False/ConnectFailed"
        })
        .await;
    let text = until("/healthz?verbose", 200).await;
    for part in ["hypervisor-watch", "libvirt", "publisher"] {
        assert!(
            text.contains(&format!("[+]{part} ok")),
            "{part} is not watched: {text}"
        );
    }
    agent.stop().await;
}
