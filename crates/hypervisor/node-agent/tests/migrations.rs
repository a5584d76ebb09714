// SPDX-License-Identifier: Apache-2.0
//! Migrations as two agents see them, over an embedded Kubernetes API and two scripted libvirt hosts that tell what real
//! ones tell, in the same order.
#![allow(clippy::unwrap_used)]

mod rules;
mod support;
mod told;

use std::time::Duration;

use cobaltcore_api::crds;
use cobaltcore_apiserver::{Effect, Fault};
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_libvirt::types::{JobStats, Params, Value};
use cobaltcore_node_agent_bench::host::{FarHost, definition};
use support::{
    Agent, config, create, is_connected, migrations, over_socket, prepare, until, until_migration,
};
use uuid::Uuid;

const SERVER: Uuid = Uuid::from_u128(0x12e4_79eb_6bef_4fdb_bfdc_0388_df68_bed9);

fn job(kind: i32, operation: i32, total: u64, remaining: u64) -> JobStats {
    let number = Value::ULLong;
    let params = Params::default()
        .with("operation", Value::Int(operation))
        .with("time_elapsed", number(2755))
        .with("downtime", number(44))
        .with("setup_time", number(3))
        .with("data_total", number(total))
        .with("data_processed", number(total - remaining))
        .with("data_remaining", number(remaining))
        .with("memory_total", number(total))
        .with("memory_processed", number(total - remaining))
        .with("memory_remaining", number(remaining))
        .with("memory_bps", number(17_301_504))
        .with("memory_dirty_rate", number(0))
        .with("memory_iteration", number(3))
        .with("memory_page_size", number(4096));
    JobStats { kind, params }
}

/// An API whose agents are bound by the shipped rules.
async fn bound_server() -> cobaltcore_apiserver::testkit::TestServer {
    let server = cobaltcore_apiserver::testkit::TestServer::start_with_rbac().await;
    prepare(&server).await;
    rules::apply(&server, &[]).await;
    server
}

struct Scene {
    server: cobaltcore_apiserver::testkit::TestServer,
    source: FarHost,
    target: FarHost,
    _directory: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = |name: &str| FarHost::listen(&directory.path().join(name)).unwrap();
        let scene = Self {
            server: bound_server().await,
            source: host("one"),
            target: host("two"),
            _directory: directory,
        };
        scene.source.define(SERVER, "vm", &definition("vm", 0));
        scene.source.start_guest(SERVER);
        scene
    }

    async fn agent(&self, node: &str, far: &FarHost) -> Agent {
        if support::hypervisors(&self.server)
            .get_opt(node)
            .await
            .unwrap()
            .is_none()
        {
            create(&self.server, node).await;
        }
        let agent = self.start(node, &over_socket(far.socket()));
        until(&self.server, node, "connected", is_connected).await;
        agent
    }

    /// An agent that may do what the shipped rules allow.
    fn start(&self, node: &str, uri: &str) -> Agent {
        let client = self.server.client_as(rules::agent_on(node));
        Agent::start_as(config(node, uri, &[]), client)
    }

    async fn agents(&self) -> (Agent, Agent) {
        (
            self.agent("one", &self.source).await,
            self.agent("two", &self.target).await,
        )
    }

    async fn until(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        until_migration(&self.server, &SERVER.to_string(), what, wanted).await
    }

    /// What both sides tell while data flows.
    fn begin(&self) {
        self.source.set_job(SERVER, job(2, 5, 4 << 30, 1 << 30));
        self.target.define(SERVER, "vm", &definition("vm", 0));
        self.target.start_guest(SERVER);
        self.target.tell(SERVER, 2, 1);
        self.source
            .publish(SERVER, &EventBody::MigrationIteration { iteration: 1 });
    }

    /// The server begins to leave, for a host that nobody names.
    async fn leave(&self) {
        self.source.set_job(SERVER, job(2, 5, 4 << 30, 1 << 30));
        let iteration = EventBody::MigrationIteration { iteration: 1 };
        self.source.publish(SERVER, &iteration);
        self.until("running", |status| status["phase"] == "Running").await;
    }

    /// What both sides tell at a good end.
    fn complete(&self) {
        let end = job(3, 5, 4 << 30, 0);
        self.source.tell(SERVER, 3, 1);
        self.target.set_finished_job(SERVER, job(3, 4, 4 << 30, 0));
        self.target.tell(SERVER, 4, 1);
        self.source.stop_guest(SERVER, 3);
        self.source
            .publish(SERVER, &EventBody::JobCompleted { params: end.params });
        self.source.forget(SERVER);
    }

    /// Waits for an event about the migration.
    async fn until_told(&self, type_and_reason: &str) {
        told::until_told(&self.server, &SERVER.to_string(), type_and_reason).await;
    }

    async fn stays(&self, agents: (Agent, Agent)) {
        agents.0.stop().await;
        agents.1.stop().await;
        let report = self.server.server().api().rbac_report_for(rules::USER);
        assert!(
            report.missing.is_empty(),
            "the rules do not suffice: {:#?}",
            report.missing
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_is_told_from_both_sides_to_its_end() {
    let scene = Scene::new().await;
    let agents = scene.agents().await;
    scene.begin();
    let running = scene
        .until("running", |status| {
            status["phase"] == "Running" && status["destination"] == "two"
        })
        .await;
    assert_eq!(
        (&running["origin"], &running["type"]),
        (&"one".into(), &"unbounded".into())
    );
    assert_eq!(
        (&running["attempt"], &running["dataRemaining"]),
        (&1.into(), &"1.0 GiB".into())
    );
    scene.until_told("Normal MigrationStarted").await;
    scene.complete();
    let end = scene
        .until("completed", |status| status["phase"] == "Completed")
        .await;
    for (field, wanted) in [
        ("origin", "one"),
        ("destination", "two"),
        ("sourceNode", "one"),
        ("destinationNode", "two"),
        ("type", "completed"),
        ("operation", "migration_out"),
        ("timeElapsed", "2.755s"),
        ("downtime", "44ms"),
        ("dataTotal", "4.0 GiB"),
        ("dataProcessed", "4.0 GiB"),
        ("dataRemaining", "0 B"),
        ("memBps", "16.5 MiB/s"),
        ("memDirtyRate", "0/s"),
    ] {
        assert_eq!(end[field], wanted, "{field}");
    }
    assert_eq!(end["memIteration"], 3);
    assert!(end["started"].is_string() && end["finished"].is_string());
    let object = migrations(&scene.server).get(&SERVER.to_string()).await.unwrap();
    let labels = object.metadata.labels.unwrap();
    assert_eq!(labels["kvm.cloud.sap/source-node"], "one");
    assert_eq!(labels["kvm.cloud.sap/destination-node"], "two");
    scene.until_told("Normal MigrationCompleted").await;

    // And back: the second migration knows nothing of the first one's destination.
    scene.source.define(SERVER, "vm", &definition("vm", 0));
    scene.target.set_job(SERVER, job(2, 5, 1 << 30, 1 << 20));
    scene
        .target
        .publish(SERVER, &EventBody::MigrationIteration { iteration: 1 });
    let back = scene
        .until("under way back", |status| {
            status["attempt"] == 2 && status["phase"] == "Running"
        })
        .await;
    assert_eq!(
        (&back["origin"], back.get("finished"), back.get("errMsg")),
        (&"two".into(), None, None)
    );
    assert_eq!(back.get("destination"), None, "nobody has said yet where to");
    // Whoever followed the arrival leaves its end to the source for five seconds, and then finds another migration.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let still = scene.until("told", |status| status["attempt"] == 2).await;
    assert_eq!(
        (&still["phase"], still.get("destination")),
        (&"Running".into(), None)
    );
    let report = scene.server.server().api().rbac_report_for(rules::USER);
    let mut unused = Vec::new();
    for right in &report.unused {
        unused.extend(right.lines());
    }
    // Creating is a part of applying.
    unused.retain(|line| line.contains("migrations") && !line.starts_with("create"));
    assert_eq!(unused, Vec::<String>::new(), "granted in vain");
    scene.stays(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_migration_fails_and_the_next_one_is_followed() {
    let scene = Scene::new().await;
    let agents = scene.agents().await;
    scene.begin();
    scene
        .until("running", |status| status["phase"] == "Running")
        .await;
    // The source tells nothing at all; the destination loses the guest.
    scene.source.set_job(SERVER, JobStats::default());
    scene.target.stop_guest(SERVER, 5);
    scene.target.forget(SERVER);
    let failed = scene.until("failed", |status| status["phase"] == "Failed").await;
    scene.until_told("Warning MigrationFailed").await;
    assert_eq!(
        (&failed["type"], &failed["attempt"]),
        (&"failed".into(), &1.into())
    );
    assert_eq!(
        failed["errMsg"],
        "migration job ended without completion (cancelled or failed)"
    );
    assert_eq!(failed["dataRemaining"], "1.0 GiB", "the last figures stay");
    scene.begin();
    let again = scene
        .until("running again", |status| {
            status["attempt"] == 2 && status["phase"] == "Running"
        })
        .await;
    assert_eq!((again.get("errMsg"), again.get("finished")), (None, None));
    scene.complete();
    scene
        .until("completed", |status| {
            status["phase"] == "Completed" && status["attempt"] == 2
        })
        .await;
    scene.stays(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_dies_on_the_way_is_named() {
    let scene = Scene::new().await;
    let agent = scene.agent("one", &scene.source).await;
    scene.begin();
    scene
        .until("running", |status| status["phase"] == "Running")
        .await;
    scene.source.stop_guest(SERVER, 2);
    let failed = scene.until("failed", |status| status["phase"] == "Failed").await;
    assert_eq!(failed["errMsg"], "guest stopped during migration: crashed");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saving_a_guest_is_no_migration() {
    let scene = Scene::new().await;
    let agent = scene.agent("one", &scene.source).await;
    scene.source.set_job(SERVER, job(2, 2, 1 << 20, 1));
    scene
        .source
        .publish(SERVER, &EventBody::MigrationIteration { iteration: 1 });
    let params = job(3, 2, 1 << 20, 0).params;
    scene.source.publish(SERVER, &EventBody::JobCompleted { params });
    scene.source.stop_guest(SERVER, 4);
    until(&scene.server, "one", "saved", |status| {
        status["instances"][0]["active"] == false
    })
    .await;
    // A migration afterwards proves that the agent was looking all the time.
    scene.source.start_guest(SERVER);
    scene.begin();
    let running = scene
        .until("running", |status| status["phase"] == "Running")
        .await;
    assert_eq!(running["attempt"], 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_source_the_destination_writes_the_end() {
    let scene = Scene::new().await;
    let agent = scene.agent("two", &scene.target).await;
    scene.begin();
    scene
        .until("announced", |status| status["destination"] == "two")
        .await;
    scene.complete();
    let end = scene
        .until("completed", |status| status["phase"] == "Completed")
        .await;
    assert_eq!(
        (&end["operation"], &end["type"]),
        (&"migration_in".into(), &"completed".into())
    );
    assert_eq!(
        (&end["dataRemaining"], &end["downtime"]),
        (&"0 B".into(), &"44ms".into())
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_away_finds_out_how_it_ended() {
    let scene = Scene::new().await;
    let (one, two) = scene.agents().await;
    scene.begin();
    scene
        .until("running", |status| {
            status["phase"] == "Running" && status["destination"] == "two"
        })
        .await;

    // Restarted in the middle: the same migration goes on.
    one.stop().await;
    let one = scene.agent("one", &scene.source).await;
    scene.source.set_job(SERVER, job(2, 5, 4 << 30, 1 << 20));
    let resumed = scene
        .until("followed again", |status| status["dataRemaining"] == "1.0 MiB")
        .await;
    assert_eq!(resumed["attempt"], 1);

    // Away while it fails: the guest still runs here and has no job.
    one.stop().await;
    scene.source.set_job(SERVER, JobStats::default());
    let one = scene.agent("one", &scene.source).await;
    scene.until("failed", |status| status["phase"] == "Failed").await;
    scene.stays((one, two)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_saw_is_found_although_the_api_fails_at_first() {
    let scene = Scene::new().await;
    let one = scene.agent("one", &scene.source).await;
    scene.leave().await;
    one.stop().await;
    scene.source.set_job(SERVER, JobStats::default());
    let agent = rules::agent_on("one").name;
    for verb in ["list", "get"] {
        let failing = Effect::Refuse {
            code: 500,
            reason: "InternalError",
            retry_after: None,
        };
        let fault = Fault::new(failing).resource("migrations").verb(verb);
        scene.server.faults().inject(fault.user(&agent).times(1));
    }
    let one = scene.agent("one", &scene.source).await;
    scene.until("failed", |status| status["phase"] == "Failed").await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_left_unseen_is_found_where_it_runs() {
    let scene = Scene::new().await;
    let one = scene.agent("one", &scene.source).await;
    scene.leave().await;
    // While nobody watches, it leaves for a host that is not named in the object and that nobody saw it arrive at.
    one.stop().await;
    scene.source.forget(SERVER);
    scene.target.define(SERVER, "vm", &definition("vm", 0));
    scene.target.start_guest(SERVER);
    let two = scene.agent("two", &scene.target).await;
    until(&scene.server, "two", "running there", |status| {
        status["instances"][0]["active"] == true
    })
    .await;
    let one = scene.agent("one", &scene.source).await;
    let end = scene
        .until("completed", |status| status["phase"] == "Completed")
        .await;
    assert_eq!((&end["attempt"], end.get("destination")), (&1.into(), None));
    scene.stays((one, two)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_announces_nothing_is_asked() {
    let scene = Scene::new().await;
    scene.source.set_driver("CH");
    create(&scene.server, "one").await;
    let uri = format!("ch+unix:///system?socket={}", scene.source.socket().display());
    let agent = scene.start("one", &uri);
    until(&scene.server, "one", "connected", is_connected).await;
    let mut unnamed = job(2, 5, 1 << 30, 1 << 20);
    unnamed.params = unnamed
        .params
        .iter()
        .filter(|(name, _)| *name != "operation")
        .fold(Params::default(), |params, (name, value)| {
            params.with(name, value.clone())
        });
    scene.source.set_job(SERVER, unnamed);
    scene
        .until("running", |status| status["phase"] == "Running")
        .await;
    scene.source.stop_guest(SERVER, 3);
    let end = scene
        .until("completed", |status| status["phase"] == "Completed")
        .await;
    assert_eq!(end["operation"], "migration_out");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_cannot_be_created_is_survived() {
    let scene = Scene::new().await;
    for crd in crds() {
        if crd.spec.names.kind == "Migration" {
            let mut crd = serde_json::to_value(crd).unwrap();
            // As the running system ships it.
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"] =
                serde_json::json!(["metadata", "spec", "status"]);
            scene.server.apply_yaml(&crd.to_string()).await.unwrap();
        }
    }
    let agent = scene.agent("one", &scene.source).await;
    scene.begin();
    let event_told = || async {
        let events = scene
            .server
            .admin()
            .get("/apis/events.k8s.io/v1/events")
            .await
            .body;
        events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|event| event["note"].to_string().contains("cannot be created"))
    };
    let begin = tokio::time::Instant::now();
    while !event_told().await {
        assert!(begin.elapsed().as_secs() < 60, "nobody was told");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    scene.source.pause_guest(SERVER);
    until(&scene.server, "one", "still reporting", |status| {
        status["instances"][0]["state"] == "paused"
    })
    .await;
    agent.stop().await;
}
