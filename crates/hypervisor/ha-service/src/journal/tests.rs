// SPDX-License-Identifier: Apache-2.0
//! Of two who write one is refused, in both places; what was written is read back by whoever comes next.

use super::*;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_ha_engine::{Entry, Epoch, VERSION};

fn record(seq: u64, epoch: u64) -> Record {
    Record {
        version: VERSION,
        seq,
        epoch: Epoch(epoch),
        at: jiff::Timestamp::now(),
        entry: Entry::Led,
    }
}

fn numbers(records: &[Record]) -> Vec<(u64, u64)> {
    records
        .iter()
        .map(|record| (record.seq, record.epoch.0))
        .collect()
}

async fn takes_turns(one: Journal, two: Journal) {
    assert!(one.load().await.unwrap().is_empty());
    one.append(vec![record(1, 1), record(2, 1)]).await.unwrap();
    one.append(vec![record(3, 1)]).await.unwrap();
    let seen = two.load().await.unwrap();
    assert_eq!(numbers(&seen), [(1, 1), (2, 1), (3, 1)]);
    two.append(vec![record(4, 2)]).await.unwrap();
    // The first one does not know that it was replaced, and is told.
    let refused = one.append(vec![record(4, 1)]).await.unwrap_err();
    assert!(matches!(refused, AppendError::Replaced(_)), "{refused}");
    let seen = one.load().await.unwrap();
    assert_eq!(numbers(&seen), [(1, 1), (2, 1), (3, 1), (4, 2)]);
    let refused = one.append(vec![record(5, 1)]).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::Replaced(_)),
        "an old term never writes again: {refused}"
    );
    one.append(vec![record(5, 3)]).await.unwrap();
}

#[tokio::test]
async fn a_file_has_one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::File(FileJournal::open(folder.path()).unwrap());
    takes_turns(open(), open()).await;
    assert_eq!(open().load().await.unwrap().len(), 5, "and outlives both");
}

#[tokio::test]
async fn objects_have_one_writer_at_a_time() {
    let server = TestServer::start().await;
    let open = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    takes_turns(open(), open()).await;
    assert_eq!(open().load().await.unwrap().len(), 5, "and outlive both");
}

#[tokio::test]
async fn a_long_journal_goes_over_many_objects_and_two_writers_never_fork_it() {
    let server = TestServer::start().await;
    let open = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let (one, two) = (open(), open());
    one.load().await.unwrap();
    let many = |from: u64, epoch: u64| {
        (from..from + 1000)
            .map(|seq| record(seq, epoch))
            .collect::<Vec<_>>()
    };
    for n in 0..6 {
        one.append(many(1 + n * 1000, 1)).await.unwrap();
    }
    assert_eq!(two.load().await.unwrap().len(), 6000);
    // Both want to go on, the one before the other: one of them wins, whoever it is.
    let (a, b) = tokio::join!(one.append(many(6001, 1)), two.append(many(6001, 2)));
    assert!(a.is_ok() ^ b.is_ok(), "{a:?} {b:?}");
    let all = open().load().await.unwrap();
    let seqs: Vec<u64> = all.iter().map(|record| record.seq).collect();
    assert_eq!(seqs, (1..=7000).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_append_that_failed_may_be_tried_again_and_counts_once() {
    use cobaltcore_apiserver::{Effect, Fault};
    let server = TestServer::start().await;
    let journal = Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    journal.load().await.unwrap();
    journal.append(vec![record(1, 1)]).await.unwrap();
    let refuse = Effect::Refuse {
        code: 503,
        reason: "ServiceUnavailable",
        retry_after: None,
    };
    server
        .faults()
        .inject(Fault::new(refuse).verb("update").resource("configmaps").times(1));
    let failed = journal.append(vec![record(2, 1)]).await.unwrap_err();
    assert!(matches!(failed, AppendError::Unavailable(_)), "{failed}");
    journal.append(vec![record(2, 1)]).await.unwrap();
    assert_eq!(numbers(&journal.load().await.unwrap()), [(1, 1), (2, 1)]);
}
