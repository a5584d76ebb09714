// SPDX-License-Identifier: Apache-2.0
//! Terms that end while something of them waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_engine::{Effect, Engine, Entry, Epoch, Input, Mono, Record, ReplicaId, Trouble, VERSION};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::{ONE, Rig, action};
use crate::brain::{Brain, Parts, channels};
use crate::chronicle::Chronicle;
use crate::journal::{FileJournal, Journal};

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
    let running = tokio::spawn(brain.run(stop.clone()));
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
