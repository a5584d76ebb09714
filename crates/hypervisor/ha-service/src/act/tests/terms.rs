// SPDX-License-Identifier: Apache-2.0
//! Terms that end while something of them waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Effect as Strike, Fault};
use cobaltcore_ha_engine::{Effect, Engine, Entry, Epoch, Input, Mono, Record, ReplicaId, Trouble, VERSION};
use cobaltcore_kit::health::Health;
use cobaltcore_kit::leader::LeaderConfig;
use cobaltcore_kit::startup::Component;
use cobaltcore_kit::telemetry::Telemetry;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{ONE, Rig, action};
use crate::brain::{Brain, BrainHandle, Parts, channels};
use crate::chronicle::Chronicle;
use crate::journal::{FileJournal, Journal, ObjectJournal};
use crate::leadership::Campaign;

#[tokio::test]
async fn what_a_term_wanted_does_not_leave_after_its_end() {
    let rig = Rig::new().await;
    let server = rig.server_on(ONE);
    let lock = || {
        let server = server.clone();
        action(Effect::Lock { server }, Mono(u64::MAX))
    };
    let terms = rig.executor.terms();
    terms.end(Epoch(2));
    assert!(
        rig.executor.run(&lock()).await.is_ok(),
        "an earlier one is no concern of it"
    );
    let (reply, mut replies) = mpsc::channel(64);
    // Far more than leave at once.
    for _ in 0..40 {
        rig.executor.start(lock(), reply.clone());
    }
    terms.end(Epoch(3));
    let before = rig.far.calls().writes().len();
    terms.settled().await;
    drop(reply);
    let mut kept = 0;
    while let Some(Input::Outcome { result, .. }) = replies.recv().await {
        kept += usize::from(matches!(result, Err(Trouble::NotStarted)));
    }
    assert!(kept > 30, "{kept} of 40 were kept back");
    let after = rig.far.calls().writes().len();
    assert!(after - before < 10, "Nova heard {} of them", after - before);
    assert_eq!(rig.executor.run(&lock()).await.unwrap_err(), Trouble::NotStarted);
}

/// A loop that runs: how it is spoken to, what rings when a term fails, and how it ends.
type Running = (BrainHandle, Arc<Notify>, CancellationToken, JoinHandle<()>);

/// The loop around an engine with this journal.
pub(super) fn begin(rig: &Rig, journal: Journal) -> Running {
    begin_seen(rig, journal, &Health::new())
}

/// How long the loop may go without a tick.
const HANGS: Duration = Duration::from_secs(2);

/// The same, and `health` shows whether it goes on.
fn begin_seen(rig: &Rig, journal: Journal, health: &Health) -> Running {
    let (handle, ends) = channels();
    let failed = Arc::new(Notify::new());
    let (brain, _notices) = Brain::new(Parts {
        engine: Engine::new(cobaltcore_ha_engine::Config::default(), ReplicaId(0)),
        clock: rig.deps.clock,
        journal,
        executor: rig.executor.clone(),
        chronicle: Chronicle::default(),
        metrics: rig.deps.metrics.clone(),
        ends,
        failed: Arc::clone(&failed),
        renew_deadline: Duration::from_secs(10),
    });
    let stop = CancellationToken::new();
    let heart = health.heartbeat("loop", HANGS);
    let running = tokio::spawn(brain.run(heart, stop.clone()));
    (handle, failed, stop, running)
}

/// Has the loop hang until what this gives is dropped.
async fn hang(brain: &BrainHandle) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    let (hangs, seen) = tokio::sync::oneshot::channel();
    let brain = brain.clone();
    tokio::spawn(async move {
        let question = move |_: &Engine, _| {
            let _ = hangs.send(());
            let _ = released.recv();
        };
        brain.ask(question).await
    });
    seen.await.unwrap();
    release
}

/// Waits for something, and not for ever.
async fn wait_for(what: &str, mut there: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if there().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited for {what}");
}

fn telemetry() -> Telemetry {
    Telemetry::new(&Component {
        name: "kvm-ha-service",
        version: "0",
        commit: "none",
    })
}

/// The journal knows nothing of a term that could not write its first record. The next one gets another number all the
/// same: what has the number of a term that is over does not leave.
#[tokio::test]
async fn a_term_after_one_that_wrote_nothing_has_a_number_of_its_own() {
    let rig = Rig::new().await;
    let server = TestServer::start().await;
    let conflict = Strike::Refuse {
        code: 409,
        reason: "Conflict",
        retry_after: None,
    };
    let fault = Fault::new(conflict)
        .verb("create")
        .resource("configmaps")
        .times(1);
    server.faults().inject(fault);
    let journal = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let written = journal();
    let (brain, failed, stop, running) = begin(&rig, written.clone());
    let campaign = Campaign {
        election: None,
        journal: written,
        brain,
        clock: rig.deps.clock,
        leadership: rig.deps.leadership.clone(),
        failed,
        terms: rig.executor.terms().clone(),
        renew_deadline: Duration::from_secs(10),
        metrics: rig.deps.metrics.clone(),
        telemetry: telemetry(),
    };
    let leads = tokio::spawn(campaign.run(stop.clone()));
    let term = loop {
        if let Some(record) = journal().load().await.unwrap().first() {
            break record.epoch;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let terms = rig.executor.terms();
    assert!(
        !terms.is_over(term),
        "nothing that it wants would ever leave: {term:?}"
    );
    stop.cancel();
    running.await.unwrap();
    leads.await.unwrap().unwrap();
}

/// Somebody else wrote to the journal: the term is over for its actions as well, and for them first.
#[tokio::test]
async fn a_term_whose_records_cannot_be_written_is_over_for_its_actions() {
    let rig = Rig::new().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    let other = Record {
        version: VERSION,
        seq: 1,
        epoch: Epoch(9),
        at: jiff::Timestamp::now(),
        entry: Entry::Led,
    };
    journal.append(vec![other]).await.unwrap();
    let (handle, failed, stop, running) = begin(&rig, journal);
    let sent_at = rig.deps.clock.mono();
    let lead = Input::Lead {
        epoch: Epoch(3),
        sent_at,
        journal: Vec::new(),
    };
    handle.tell(lead).await;
    failed.notified().await;
    let server = rig.server_on(ONE);
    let lock = action(Effect::Lock { server }, Mono(u64::MAX));
    assert_eq!(rig.executor.run(&lock).await.unwrap_err(), Trouble::NotStarted);
    stop.cancel();
    running.await.unwrap();
}

/// The lease is renewed whatever the loop does, so the loop has to show that it thinks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_whose_loop_hangs_gives_the_lease_back_and_leads_again_when_it_answers() {
    let rig = Rig::new().await;
    let server = TestServer::start().await;
    let journal = Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let (brain, failed, stop, running) = begin(&rig, journal.clone());
    // An API that is slow for a moment is not what ends this term.
    let lease = LeaderConfig {
        lease_duration: Duration::from_secs(8),
        renew_deadline: Duration::from_secs(7),
        retry_period: Duration::from_millis(500),
        ..LeaderConfig::new("default", "ha")
    };
    let campaign = Campaign {
        election: Some((server.client(), lease)),
        journal,
        brain: brain.clone(),
        clock: rig.deps.clock,
        leadership: rig.deps.leadership.clone(),
        failed,
        terms: rig.executor.terms().clone(),
        renew_deadline: Duration::from_secs(2),
        metrics: rig.deps.metrics.clone(),
        telemetry: telemetry(),
    };
    let leads = tokio::spawn(campaign.run(stop.clone()));
    let leases: Api<Lease> = Api::namespaced(server.client(), "default");
    let held = async || {
        let lease = leases.get("ha").await.ok().and_then(|lease| lease.spec);
        let holder = lease.and_then(|spec| spec.holder_identity);
        holder.is_some_and(|holder| !holder.is_empty())
    };
    let shown = || rig.deps.metrics.leader.get() == 1;
    wait_for("a leader", async || held().await && shown()).await;
    let release = hang(&brain).await;
    wait_for("the lease to be given back", async || !held().await).await;
    assert!(!shown(), "it says that it leads");
    drop(release);
    let term = brain.ask(|engine, _| engine.leads()).await.flatten();
    assert!(
        term.is_none_or(|term| rig.executor.terms().is_over(term)),
        "what it had wanted would leave as it wakes up"
    );
    wait_for("a leader that answers again", async || held().await && shown()).await;
    stop.cancel();
    running.await.unwrap();
    leads.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_loop_that_hangs_is_not_alive() {
    let rig = Rig::new().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    let health = Health::new();
    let (brain, _, stop, running) = begin_seen(&rig, journal, &health);
    let release = hang(&brain).await;
    wait_for("liveness to fail", async || !health.live().ok).await;
    drop(release);
    wait_for("a loop that goes on", async || health.live().ok).await;
    stop.cancel();
    running.await.unwrap();
}
