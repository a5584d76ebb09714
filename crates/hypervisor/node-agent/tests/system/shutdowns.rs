// SPDX-License-Identifier: Apache-2.0
//! Shutdowns that are held back until the guests have left. The guests are put on the agent's board, where the
//! libvirt side puts what it learns.

use std::sync::Arc;

use cobaltcore_api::{Eviction, HypervisorSpec};
use cobaltcore_kit::CancellationToken;
use cobaltcore_kit::events::{self, Reporter};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use cobaltcore_node_agent::board::{Board, Guest, Link as Libvirt, Reading};
use cobaltcore_node_agent::context::{Context, Seen, Untold};
use cobaltcore_node_agent::metrics::Metrics;
use cobaltcore_node_agent::{inhibitor, systemd};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::scene::{NODE, PATIENCE, Scene, eventually};

struct Guarded {
    scene: Scene,
    board: Board,
    stop: CancellationToken,
    seen: watch::Sender<Seen>,
    task: JoinHandle<()>,
    _events: events::EventWorker,
}

impl Guarded {
    async fn new(guests: Option<usize>, spec: HypervisorSpec) -> Option<Self> {
        Self::with(Scene::new(spec).await?, guests).await
    }

    async fn with(scene: Scene, guests: Option<usize>) -> Option<Self> {
        let client = scene.server.client();
        let reporter = Reporter {
            controller: "test".into(),
            instance: "test".into(),
            quiet: PATIENCE,
        };
        let (recorder, worker) = events::channel(client.clone(), reporter);
        let (seen, hypervisor) = watch::channel(Some(Arc::new(scene.hypervisors().get(NODE).await.unwrap())));
        let board = Board::default();
        let component = Component {
            name: "test",
            version: "0",
            commit: "none",
        };
        let context = Context {
            config: Arc::new(scene.config(&[])),
            client,
            board: board.clone(),
            hypervisor,
            recorder,
            untold: Untold::default(),
            metrics: Metrics::new(&Telemetry::new(&component)),
            health: Health::new(),
        };
        let (links, bus) = watch::channel(systemd::Link::default());
        let stop = CancellationToken::new();
        tokio::spawn(systemd::keep(
            scene.bus.address(),
            links,
            CancellationToken::new(),
        ));
        let part = inhibitor::run(context, bus, stop.clone());
        let task = tokio::spawn(async move { part.await.unwrap() });
        let guarded = Self {
            scene,
            board,
            stop,
            seen,
            task,
            _events: worker,
        };
        guarded.guests(guests);
        Some(guarded)
    }

    /// Says how many guests run; `None` for a libvirt that cannot be asked.
    fn guests(&self, count: Option<usize>) {
        self.board.update_now(|model| {
            let guest = |name: u128| Guest {
                name: name.to_string(),
                active: true,
                state: None,
                claim: Reading::Pending,
            };
            model.libvirt.link = if count.is_some() {
                Libvirt::Up
            } else {
                Libvirt::Unknown
            };
            let numbers = 0..count.unwrap_or_default() as u128;
            model.libvirt.guests = Some(
                numbers
                    .map(|number| (Uuid::from_u128(number), guest(number)))
                    .collect(),
            );
            true
        });
    }

    async fn until_held(&self, count: u32) {
        let mut held = self.scene.far.held();
        let reached = tokio::time::timeout(PATIENCE, held.wait_for(|now| *now == count)).await;
        assert!(
            reached.is_ok(),
            "{} locks are held, not {count}",
            *self.scene.far.held().borrow()
        );
    }

    fn evictions(&self) -> Api<Eviction> {
        Api::all(self.scene.server.client())
    }

    async fn until_evicting(&self, name: &str) -> Eviction {
        eventually("there is an Eviction", async || self.evictions().get(name).await).await
    }

    async fn say(&self, name: &str, status: serde_json::Value) {
        let patch = json!({ "status": status });
        self.evictions()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_last_guest() {
    let Some(guarded) = Guarded::new(Some(2), HypervisorSpec::default()).await else {
        return;
    };
    guarded.until_held(1).await;
    let lock = cobaltcore_sim::system::Lock {
        what: "shutdown".to_owned(),
        who: "kvm-node-agent".to_owned(),
        why: "Emergency evacuation of host node.".to_owned(),
        mode: "delay".to_owned(),
    };
    assert_eq!(guarded.scene.far.locks(), [lock]);

    guarded.scene.far.prepare_for_shutdown(true).await;
    let eviction = guarded.until_evicting(NODE).await;
    assert_eq!(eviction.spec.hypervisor, NODE);
    assert_eq!(
        eviction.spec.reason,
        "kvm-node-agent: emergency evacuation due to host reboot"
    );
    let owners = eviction.metadata.owner_references.unwrap();
    assert_eq!(
        (
            owners[0].kind.as_str(),
            owners[0].name.as_str(),
            owners[0].controller
        ),
        ("Hypervisor", NODE, None)
    );

    guarded.guests(Some(1));
    guarded.say(NODE, json!({"evictionState": "Running"})).await;
    assert_eq!(*guarded.scene.far.held().borrow(), 1, "one guest still runs");
    guarded.guests(Some(0));
    guarded.until_held(0).await;

    // Called off: the next shutdown is held back again.
    guarded.scene.far.prepare_for_shutdown(false).await;
    guarded.until_held(1).await;
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_host_goes_down_at_once_and_a_silent_libvirt_is_not_empty() {
    let Some(guarded) = Guarded::new(Some(0), HypervisorSpec::default()).await else {
        return;
    };
    guarded.until_held(1).await;
    guarded.scene.far.prepare_for_shutdown(true).await;
    guarded.until_held(0).await;
    assert!(guarded.evictions().get_opt(NODE).await.unwrap().is_none());
    guarded.scene.far.prepare_for_shutdown(false).await;
    guarded.until_held(1).await;

    guarded.guests(None);
    guarded.scene.far.prepare_for_shutdown(true).await;
    guarded.until_evicting(NODE).await;
    assert_eq!(*guarded.scene.far.held().borrow(), 1);
    guarded
        .say(
            NODE,
            json!({"conditions": [{"type": "Evicting", "status": "False", "reason": "Succeeded",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        )
        .await;
    guarded.until_held(0).await;
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_of_an_earlier_shutdown_is_not_mistaken_for_this_one() {
    let Some(guarded) = Guarded::new(Some(1), HypervisorSpec::default()).await else {
        return;
    };
    let old = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": NODE},
        "spec": {"hypervisor": NODE, "reason": "last week"}});
    let old: Eviction = serde_json::from_value(old).unwrap();
    guarded
        .evictions()
        .create(&kube::api::PostParams::default(), &old)
        .await
        .unwrap();
    guarded.say(NODE, json!({"evictionState": "Succeeded"})).await;
    guarded.until_held(1).await;
    guarded.scene.far.prepare_for_shutdown(true).await;
    let name = format!("{NODE}-1b4e28ba");
    guarded.until_evicting(&name).await;
    assert_eq!(*guarded.scene.far.held().borrow(), 1);
    guarded.say(&name, json!({"evictionState": "Failed"})).await;
    guarded.until_held(0).await;
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_given_back_before_logind_loses_patience() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    // Three seconds are kept for saying why.
    scene.far.set_delay(std::time::Duration::from_secs(4));
    let guarded = Guarded::with(scene, Some(1)).await.unwrap();
    guarded.until_held(1).await;
    let said = || {
        let conditions = |model: &cobaltcore_node_agent::board::Model| {
            format!("{:?}", model.conditions.get("EvacuationReady"))
        };
        guarded.board.read(conditions)
    };
    eventually("too short a delay is told", async || {
        let said = said();
        (said.contains("DelayTooShort") && said.contains("4 s"))
            .then_some(())
            .ok_or(said)
    })
    .await;
    guarded.scene.far.prepare_for_shutdown(true).await;
    guarded.until_evicting(NODE).await;
    // The guest never leaves and the eviction never ends.
    guarded.until_held(0).await;
    let eviction = guarded.evictions().get(NODE).await.unwrap();
    assert_eq!(eviction.status.and_then(|status| status.eviction_state), None);
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_asked_to_stop_finishes_the_evacuation_first() {
    let Some(guarded) = Guarded::new(Some(1), HypervisorSpec::default()).await else {
        return;
    };
    guarded.until_held(1).await;
    guarded.scene.far.prepare_for_shutdown(true).await;
    guarded.until_evicting(NODE).await;
    guarded.stop.cancel();
    guarded.say(NODE, json!({"evictionState": "Running"})).await;
    assert!(!guarded.task.is_finished());
    assert_eq!(*guarded.scene.far.held().borrow(), 1);
    guarded.guests(Some(0));
    guarded.until_held(0).await;
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_follows_the_wish_and_survives_logind() {
    let Some(mut guarded) = Guarded::new(Some(1), HypervisorSpec::default()).await else {
        return;
    };
    guarded.until_held(1).await;
    let address = guarded.scene.bus.address();
    guarded.scene.far.again(&address).await;
    eventually("a lock was taken from the new logind", async || {
        let locks = guarded.scene.far.locks().len();
        (locks >= 2).then_some(()).ok_or(locks)
    })
    .await;
    guarded.until_held(1).await;
    let mut unwanted = guarded.scene.hypervisors().get(NODE).await.unwrap();
    unwanted.spec.evacuate_on_reboot = false;
    guarded.seen.send_replace(Some(Arc::new(unwanted)));
    guarded.until_held(0).await;
    eventually("it is told that nobody waits any more", async || {
        let shown = guarded
            .board
            .read(|model| format!("{:?}", model.conditions.get("EvacuationReady")));
        shown.contains("Disabled").then_some(()).ok_or(shown)
    })
    .await;
    guarded.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_agent_goes_on_until_the_evacuation_is_over() {
    let Some(scene) = Scene::new(HypervisorSpec::default()).await else {
        return;
    };
    let agent = scene.agent(&[]);
    scene.until("EvacuationReady", "True/Armed").await;
    scene.far.prepare_for_shutdown(true).await;
    let evictions: Api<Eviction> = Api::all(scene.server.client());
    eventually("there is an Eviction", async || evictions.get(NODE).await).await;
    scene.until_told("Warning ShutdownEvacuation").await;
    agent.terminate();
    // The other parts still work: what they see becomes status.
    let unit = "libvirtd.service";
    scene
        .far
        .set(unit, crate::services::Unit::new("failed", "failed"))
        .await;
    scene.until(unit, "False/Failed").await;
    assert!(!agent.has_ended());
    assert_eq!(*scene.far.held().borrow(), 1);
    let patch = json!({"status": {"evictionState": "Succeeded"}});
    evictions
        .patch_status(NODE, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let mut held = scene.far.held();
    tokio::time::timeout(PATIENCE, held.wait_for(|count| *count == 0))
        .await
        .unwrap()
        .unwrap();
    scene.until_told("Normal ShutdownEvacuated").await;
    agent.stop().await;
}
