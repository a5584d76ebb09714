// SPDX-License-Identifier: Apache-2.0
//! The parts of the kit that speak to Kubernetes, against a real API server.

#![allow(clippy::unwrap_used)]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::reasons::{ReadyReason, TaintedReason};
use cobaltcore_api::{Hypervisor, HypervisorSpec};
use cobaltcore_kit::CancellationToken;
use cobaltcore_kit::auth::{Authorize as _, KubeAuthorizer, Verdict};
use cobaltcore_kit::controller::{ControllerMetrics, ControllerRunner, Plan, Reconciler};
use cobaltcore_kit::events::{self, Happening, Reporter};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::leader::{LeaderConfig, LeaderElector};
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::status::{self, Intent, NewCondition, StatusWriter, Written};
use cobaltcore_kit::telemetry::Telemetry;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use world::{until, world};

async fn hypervisor(api: &Api<Hypervisor>, name: &str) -> Hypervisor {
    api.create(
        &PostParams::default(),
        &Hypervisor::new(name, HypervisorSpec::default()),
    )
    .await
    .unwrap()
}

fn ready(reason: ReadyReason) -> Intent {
    let holds = reason == ReadyReason::Ready;
    Intent::new().condition(NewCondition::new(HypervisorCondition::Ready, holds, reason, "m"))
}

fn time(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

#[tokio::test]
async fn writers_share_a_status_without_disturbing_each_other() {
    let world = world().await;
    let api: Api<Hypervisor> = Api::all(world.client.clone());
    let object = hypervisor(&api, "node1").await;
    let readiness = StatusWriter::new(world.client.clone(), FieldManager::Ready.as_str());
    let taint = StatusWriter::new(world.client.clone(), FieldManager::Taint.as_str());

    readiness
        .write_at(
            &object,
            &ready(ReadyReason::Onboarding),
            time("2026-01-01T00:00:00Z"),
        )
        .await
        .unwrap();
    let object = api.get("node1").await.unwrap();
    let tainted = NewCondition::no(HypervisorCondition::Tainted, TaintedReason::NoKubectl, "");
    taint
        .write(&object, &Intent::new().condition(tainted))
        .await
        .unwrap();
    let object = api.get("node1").await.unwrap();
    let conditions = &object.status.as_ref().unwrap().conditions;
    assert_eq!(conditions.len(), 2);

    // The same again is not even sent; another reason keeps the time of transition.
    let same = readiness
        .write(&object, &ready(ReadyReason::Onboarding))
        .await
        .unwrap();
    assert!(matches!(same, Written::Unchanged));
    let Written::Applied(object) = readiness
        .write(&object, &ready(ReadyReason::Evicting))
        .await
        .unwrap()
    else {
        panic!("another reason is a change");
    };
    let condition = status::find(
        &object.status.as_ref().unwrap().conditions,
        HypervisorCondition::Ready,
    )
    .unwrap();
    assert_eq!(
        (condition.reason.as_str(), condition.last_transition_time.0),
        ("Evicting", time("2026-01-01T00:00:00Z"))
    );
    assert_eq!(condition.observed_generation, Some(1));

    // What a writer no longer mentions goes, what others wrote stays.
    let Written::Applied(object) = readiness.write(object.as_ref(), &Intent::new()).await.unwrap() else {
        panic!("giving a condition up is a change");
    };
    let conditions = &object.status.as_ref().unwrap().conditions;
    assert!(status::find(conditions, HypervisorCondition::Ready).is_none());
    assert!(status::find(conditions, HypervisorCondition::Tainted).is_some());
}

#[tokio::test]
async fn fields_left_by_a_merge_patch_are_taken_over_and_lists_can_be_emptied() {
    let world = world().await;
    let api: Api<Hypervisor> = Api::all(world.client.clone());
    hypervisor(&api, "node1").await;
    let old = json!({"status": {"traits": ["CUSTOM_A"], "internalIp": "10.0.0.1"}});
    let params = PatchParams {
        field_manager: Some("traits".into()),
        ..PatchParams::default()
    };
    let object = api
        .patch_status("node1", &params, &Patch::Merge(&old))
        .await
        .unwrap();
    let writer = StatusWriter::new(world.client.clone(), FieldManager::Traits.as_str());
    let intent = Intent::new().field("traits", json!(["CUSTOM_A"]));
    let Written::Applied(object) = writer.write(&object, &intent).await.unwrap() else {
        panic!("ownership is a change")
    };
    assert!(matches!(
        writer.write(object.as_ref(), &intent).await.unwrap(),
        Written::Unchanged
    ));
    let intent = Intent::new().field("traits", json!([]));
    let Written::Applied(object) = writer.write(object.as_ref(), &intent).await.unwrap() else {
        panic!("emptied")
    };
    let status = object.status.as_ref().unwrap();
    assert_eq!(
        (status.traits.len(), status.internal_ip.as_str()),
        (0, "10.0.0.1")
    );
}

/// Applied as it is, a map without entries would become null where it had some, and null is refused.
#[tokio::test]
async fn a_map_that_is_empty_now_and_a_status_given_up_whole_are_written() {
    let world = world().await;
    let api: Api<Hypervisor> = Api::all(world.client.clone());
    let mut object = hypervisor(&api, "node1").await;
    let writer = StatusWriter::new(world.client.clone(), FieldManager::NodeAgent.as_str());
    let with = |system: serde_json::Value| Intent::new().field("operatingSystem", system);
    for (intent, wanted) in [
        (with(json!({"version": "1877.5"})), "1877.5"),
        (with(json!({})), ""),
        (with(json!({"version": "1877.6"})), "1877.6"),
        (Intent::new(), ""),
    ] {
        let Written::Applied(applied) = writer.write(&object, &intent).await.unwrap() else {
            panic!("{intent:?} is a change")
        };
        let status = applied.status.as_ref();
        let system = status.and_then(|status| status.operating_system.as_ref());
        assert_eq!(system.map_or("", |system| &system.version), wanted, "{intent:?}");
        object = *applied;
    }
}

fn quick(identity: &str) -> LeaderConfig {
    LeaderConfig {
        identity: identity.into(),
        // Nobody waits for these: whoever leaves gives the lease back. A busy machine may not take it from them.
        lease_duration: Duration::from_secs(120),
        renew_deadline: Duration::from_secs(90),
        retry_period: Duration::from_millis(100),
        ..LeaderConfig::new("default", "test-lease")
    }
}

#[tokio::test]
async fn leadership_passes_on_when_the_leader_leaves() {
    let world = world().await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "default");
    let holder = async || leases.get_opt("test-lease").await.unwrap()?.spec?.holder_identity;
    let active = Arc::new(AtomicUsize::new(0));
    let lead = |name: &'static str, stop: CancellationToken| {
        let (elector, active) = (
            LeaderElector::new(world.client.clone(), quick(name)).unwrap(),
            Arc::clone(&active),
        );
        tokio::spawn(elector.run(stop, move |token| async move {
            assert_eq!(active.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
            token.cancelled().await;
            active.fetch_sub(1, Ordering::SeqCst);
        }))
    };
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let first = lead("a", stop_a.clone());
    until("a leads", || async { (holder().await? == "a").then_some(()) }).await;
    let second = lead("b", stop_b.clone());
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop_a.cancel();
    first.await.unwrap().unwrap();
    until("b leads", || async { (holder().await? == "b").then_some(()) }).await;
    let spec = leases.get("test-lease").await.unwrap().spec.unwrap();
    assert_eq!(
        (spec.lease_transitions, spec.lease_duration_seconds),
        (Some(1), Some(120))
    );
    stop_b.cancel();
    second.await.unwrap().unwrap();
    assert_eq!(holder().await.as_deref(), Some(""));
}

#[tokio::test]
async fn repeated_events_become_one_series() {
    let world = world().await;
    let api: Api<Hypervisor> = Api::all(world.client.clone());
    let object = hypervisor(&api, "node1").await;
    let reporter = Reporter {
        controller: "kvm.cloud.sap/node-agent".into(),
        instance: "pod-1".into(),
        quiet: Duration::from_millis(1),
    };
    let (recorder, worker) = events::channel(world.client.clone(), reporter);
    for _ in 0..3 {
        recorder.record(
            &object,
            Happening::warning("LibvirtLost", "Connecting", "no answer"),
        );
    }
    let stop = CancellationToken::new();
    stop.cancel();
    worker.run(stop).await.unwrap();
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let found = events.list(&ListParams::default()).await.unwrap().items;
    let [event] = found.as_slice() else {
        panic!("one event: {found:?}")
    };
    let regarding = event.regarding.as_ref().unwrap();
    assert_eq!(regarding.uid, object.metadata.uid);
    assert_eq!(regarding.kind.as_deref(), Some("Hypervisor"));
    assert!(event.series.as_ref().unwrap().count >= 2);
    assert_eq!(event.note.as_deref(), Some("no answer"));
}

/// Copies the node name of a Hypervisor into its status.
struct Copier {
    writer: StatusWriter,
}

impl Reconciler for Copier {
    type Object = Hypervisor;
    type Facts = ();
    type Action = String;
    type Error = cobaltcore_kit::Error;

    async fn observe(&self, _: &Arc<Hypervisor>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn decide(&self, object: &Hypervisor, (): &()) -> Plan<String> {
        let wanted = format!("{}/{}", object.name_any(), object.spec.version);
        Plan::of(vec![wanted])
    }

    async fn act(&self, object: &Arc<Hypervisor>, wanted: String) -> Result<(), Self::Error> {
        self.writer
            .write(object.as_ref(), &Intent::new().field("computeHost", wanted))
            .await
            .map(drop)
    }
}

#[tokio::test]
async fn a_controller_follows_its_objects_and_then_rests() {
    let world = world().await;
    let api: Api<Hypervisor> = Api::all(world.client.clone());
    hypervisor(&api, "node1").await;
    let telemetry = Telemetry::new(&Component {
        name: "t",
        version: "1",
        commit: "c",
    });
    let (health, stop) = (Health::new(), CancellationToken::new());
    let copier = Copier {
        writer: StatusWriter::new(world.client.clone(), "copier"),
    };
    let runner = ControllerRunner::new("copier", api.clone(), watcher::Config::default(), copier);
    let running = tokio::spawn(runner.run(ControllerMetrics::new(&telemetry), health.clone(), stop.clone()));
    let host = async || Some(api.get("node1").await.unwrap().status?.compute_host);
    until("the status is written", || async {
        (host().await? == "node1/").then_some(())
    })
    .await;
    until("the cache is filled", || async {
        health.ready().ok.then_some(())
    })
    .await;
    let patch = Patch::Merge(json!({"spec": {"version": "1933.0"}}));
    api.patch("node1", &PatchParams::default(), &patch).await.unwrap();
    until("the change is followed", || async {
        (host().await? == "node1/1933.0").then_some(())
    })
    .await;
    let version = api.get("node1").await.unwrap().resource_version();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        api.get("node1").await.unwrap().resource_version(),
        version,
        "its own writes do not keep it busy"
    );
    stop.cancel();
    running.await.unwrap().unwrap();
    let text = telemetry.encode();
    assert!(
        text.contains("controller_runtime_reconcile_errors_total{controller=\"copier\"} 0"),
        "{text}"
    );
}

#[tokio::test]
async fn metrics_readers_are_checked_with_the_cluster() {
    let world = world().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "default");
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "prometheus"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts
        .create_token_request("prometheus", &PostParams::default(), &request)
        .await
        .unwrap();
    let token = token.status.unwrap().token.unwrap();
    let refused = KubeAuthorizer::new(world.client.clone())
        .authorize(Some(&token), "get", "/metrics")
        .await;
    assert!(matches!(refused, Verdict::Forbidden(_)), "{refused:?}");

    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "metrics-reader"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "metrics-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
    }))
    .unwrap();
    Api::all(world.client.clone())
        .create(&PostParams::default(), &role)
        .await
        .unwrap();
    Api::all(world.client.clone())
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    until("the role takes effect", || async {
        let authorizer = KubeAuthorizer::new(world.client.clone());
        (authorizer.authorize(Some(&token), "get", "/metrics").await == Verdict::Allowed).then_some(())
    })
    .await;
    let forged = KubeAuthorizer::new(world.client.clone())
        .authorize(Some("forged"), "get", "/metrics")
        .await;
    assert_eq!(forged, Verdict::Unauthenticated);
}
