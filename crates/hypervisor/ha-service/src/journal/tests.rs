// SPDX-License-Identifier: Apache-2.0
//! Of two who write one is refused, in both places; what was written is read back by whoever comes next.

use std::collections::BTreeSet;

use super::*;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Effect, Fault};
use cobaltcore_ha_engine::{
    Entry, Epoch, Evidence, IncidentId, IncidentKind, IncidentState, Ledger, VERSION, VmProgress, VmRecord,
    VmState, Wanted,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;

fn says(seq: u64, epoch: u64, entry: Entry) -> Record {
    Record {
        version: VERSION,
        seq,
        epoch: Epoch(epoch),
        at: Timestamp::now(),
        entry,
    }
}

pub(super) fn record(seq: u64, epoch: u64) -> Record {
    says(seq, epoch, Entry::Led)
}

/// The incident of a host; each has one.
pub(super) fn host(name: &str) -> IncidentId {
    IncidentId {
        epoch: Epoch(1),
        n: 1,
        host: name.parse().unwrap(),
        opened_ms: None,
    }
}

pub(super) fn about(seq: u64, epoch: u64, name: &str) -> Record {
    says(seq, epoch, Entry::Claimed { incident: host(name) })
}

/// An incident from its beginning to its end, in `size` records.
fn life(seq: u64, size: u64, name: &str) -> Vec<Record> {
    let opened = Entry::Opened {
        incident: host(name),
        kind: IncidentKind::HostDown,
        by: "monitor/host-down".into(),
        boot: None,
        evidence: Box::new(Evidence::default()),
        announced: false,
    };
    let closed = Entry::Moved {
        incident: host(name),
        state: IncidentState::Closed,
    };
    let last = seq + size - 1;
    let mut all = vec![says(seq, 1, opened)];
    all.extend((seq + 1..last).map(|seq| about(seq, 1, name)));
    all.push(says(last, 1, closed));
    all
}

fn forget(seq: u64, name: &str) -> Record {
    let incident = host(name);
    says(seq, 1, Entry::Forgotten { incident })
}

/// What a successor would know.
fn known(records: &[Record]) -> (BTreeSet<String>, u64) {
    let ledger = Ledger::replay(records).unwrap();
    let hosts = ledger.incidents.keys().map(|id| id.host.to_string());
    (hosts.collect(), ledger.seq)
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
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

/// The plan for a host full of guests with long names.
fn plan(seq: u64, name: &str, guests: usize) -> Record {
    let vm = |n: usize| VmRecord {
        server: format!("00000000-0000-4000-8000-{n:012}").parse().unwrap(),
        name: "n".repeat(255),
        priority: 500,
        group: String::new(),
        anti_affinity: None,
        memory_mib: 1024,
        original: VmState::Active,
        wanted: Wanted::Running,
        progress: VmProgress::Pending,
        attempt: 0,
        known: Vec::new(),
        locked: false,
        losses: Vec::new(),
        said: None,
    };
    let vms = (0..guests).map(vm).collect();
    let incident = host(name);
    says(seq, 1, Entry::Planned { incident, vms })
}

#[tokio::test]
async fn what_is_too_much_for_one_object_goes_into_several() {
    let server = TestServer::start().await;
    let journal = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let one = journal();
    one.load().await.unwrap();
    one.append(vec![record(1, 1)]).await.unwrap();
    // Three hosts of 900 guests each are planned at the same moment: more than Kubernetes keeps in one object.
    let plans = vec![
        plan(2, "n1", 900),
        plan(3, "n2", 900),
        plan(4, "n3", 900),
        record(5, 1),
    ];
    let size = |records: &[Record]| serde_json::to_string(records).unwrap().len();
    assert!(size(&plans) > 1 << 20, "{}", size(&plans));
    one.append(plans).await.unwrap();
    one.append(vec![record(6, 1)]).await.unwrap();
    let seen = journal().load().await.unwrap();
    assert_eq!(
        seen.iter().map(|record| record.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6]
    );
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(server.client(), "default");
    for map in maps.list(&kube::api::ListParams::default()).await.unwrap().items {
        let bytes: usize = map.data.iter().flatten().map(|(_, text)| text.len()).sum();
        assert!(bytes < 1 << 20, "{}: {bytes}", map.name_any());
    }
}

#[tokio::test]
async fn an_append_that_failed_may_be_tried_again_and_counts_once() {
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

#[tokio::test]
async fn a_file_loses_what_was_forgotten_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    journal.append(life(1, 10, "n1")).await.unwrap();
    journal.append(life(11, 10, "n2")).await.unwrap();
    let long_ago = Timestamp::UNIX_EPOCH;
    assert_eq!(journal.cut(long_ago).await.unwrap(), 0, "nothing was forgotten");
    journal.append(vec![forget(21, "n1")]).await.unwrap();
    assert_eq!(journal.cut(long_ago).await.unwrap(), 10, "the last record stays");
    let all = journal.load().await.unwrap();
    assert_eq!((known(&all), all.len()), ((names(["n2"]), 21), 12));
    journal.append(vec![record(22, 2)]).await.unwrap();
    assert_eq!(journal.cut(long_ago).await.unwrap(), 1);
    let again = Journal::File(FileJournal::open(folder.path()).unwrap());
    assert_eq!(known(&again.load().await.unwrap()), (names(["n2"]), 22));
}

async fn objects(server: &TestServer) -> Vec<String> {
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(server.client(), "default");
    let all = maps.list(&kube::api::ListParams::default()).await.unwrap();
    let names = all.items.iter().map(ConfigMap::name_any);
    names.filter(|name| name.starts_with("ha-journal-")).collect()
}

#[tokio::test]
async fn full_objects_lose_what_was_forgotten_and_those_with_nothing_left_go() {
    let server = TestServer::start().await;
    let open = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let journal = open();
    journal.load().await.unwrap();
    // Each of these fills an object.
    let mut seq = 1;
    for name in ["n1", "n2", "n3", "n4"] {
        journal.append(life(seq, 1500, name)).await.unwrap();
        seq += 1500;
    }
    assert_eq!(objects(&server).await.len(), 4);
    let long_ago = Timestamp::UNIX_EPOCH;
    assert_eq!(journal.cut(long_ago).await.unwrap(), 0);
    for name in ["n1", "n2"] {
        journal.append(vec![forget(seq, name)]).await.unwrap();
        seq += 1;
    }
    assert_eq!(journal.cut(long_ago).await.unwrap(), 3000);
    assert_eq!(
        objects(&server).await.len(),
        2,
        "two have nothing left but where they were"
    );
    let loaded = open().load().await.unwrap();
    assert_eq!(known(&loaded), (names(["n3", "n4"]), seq - 1));
    // Its writer goes on, and nothing more is done as long as nothing is forgotten.
    journal.append(vec![record(seq, 1)]).await.unwrap();
    assert_eq!(journal.cut(long_ago).await.unwrap(), 0);
    // An incident that stays open does not keep the others.
    journal.append(vec![forget(seq + 1, "n4")]).await.unwrap();
    journal.append(life(seq + 2, 1500, "n5")).await.unwrap();
    assert!(journal.cut(long_ago).await.unwrap() >= 1500);
    let loaded = open().load().await.unwrap();
    assert_eq!(known(&loaded), (names(["n3", "n5"]), seq + 1501));
    assert!(loaded.len() < 3100, "{}", loaded.len());
}

#[tokio::test]
async fn a_cut_that_was_interrupted_is_finished_by_the_next() {
    let server = TestServer::start().await;
    let journal = Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    journal.load().await.unwrap();
    for (n, name) in ["n1", "n2", "n3"].into_iter().enumerate() {
        journal
            .append(life(1 + n as u64 * 1500, 1500, name))
            .await
            .unwrap();
    }
    journal.append(vec![forget(4501, "n1")]).await.unwrap();
    let refuse = |verb: &'static str| {
        let effect = Effect::Refuse {
            code: 503,
            reason: "ServiceUnavailable",
            retry_after: None,
        };
        server
            .faults()
            .inject(Fault::new(effect).verb(verb).resource("configmaps").times(1));
    };
    let long_ago = Timestamp::UNIX_EPOCH;
    for verb in ["update", "delete"] {
        refuse(verb);
        journal.cut(long_ago).await.unwrap_err();
        let loaded = journal.load().await.unwrap();
        assert_eq!(
            known(&loaded),
            (names(["n2", "n3"]), 4501),
            "after a refused {verb}"
        );
    }
    assert_eq!(objects(&server).await.len(), 3);
    journal.cut(long_ago).await.unwrap();
    assert_eq!(objects(&server).await.len(), 2);
    assert_eq!(known(&journal.load().await.unwrap()), (names(["n2", "n3"]), 4501));
}

#[tokio::test]
async fn whoever_follows_reads_what_is_new() {
    let server = TestServer::start().await;
    let open = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let (leader, follower) = (open(), open());
    leader.load().await.unwrap();
    let mut place = None;
    assert_eq!(follower.follow(&mut place).await.unwrap(), News::All(Vec::new()));
    leader.append(vec![record(1, 1)]).await.unwrap();
    let News::All(all) = follower.follow(&mut place).await.unwrap() else {
        panic!("nothing was known")
    };
    assert_eq!(numbers(&all), [(1, 1)]);
    // From here on nobody reads the whole.
    let refuse = Effect::Refuse {
        code: 503,
        reason: "ServiceUnavailable",
        retry_after: None,
    };
    server
        .faults()
        .inject(Fault::new(refuse).verb("list").resource("configmaps").times(1));
    assert_eq!(follower.follow(&mut place).await.unwrap(), News::More(Vec::new()));
    let mut seq = 2;
    for size in [1, 3, 1500, 1500, 2] {
        let more: Vec<Record> = (seq..seq + size).map(|seq| about(seq, 1, "n1")).collect();
        leader.append(more.clone()).await.unwrap();
        let News::More(read) = follower.follow(&mut place).await.unwrap() else {
            panic!("it follows on what was known")
        };
        assert_eq!(numbers(&read), numbers(&more));
        seq += size;
    }
    // Nobody has, so the refusal is still there for whoever does.
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(server.client(), "default");
    assert!(maps.list(&kube::api::ListParams::default()).await.is_err());
    let names = objects(&server).await;
    assert!(names.len() > 1, "over the end of an object");
    // One who was away while the journal was made anew reads it whole.
    for name in names {
        maps.delete(&name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }
    assert_eq!(follower.follow(&mut place).await.unwrap(), News::All(Vec::new()));
}

/// Power fails in the middle of an append: whatever part of it reached the disk, it is there as a whole or not at all.
#[tokio::test]
async fn an_append_that_was_torn_never_happened() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    let appends: Vec<Vec<Record>> = vec![
        vec![record(1, 1)],
        life(2, 4, "n1"),
        vec![record(6, 1), record(7, 1)],
        life(8, 3, "n2"),
    ];
    let mut ends = BTreeSet::from([0]);
    for append in &appends {
        ends.insert(append.last().unwrap().seq);
        journal.append(append.clone()).await.unwrap();
    }
    let whole = std::fs::read(folder.path().join("journal.db-wal")).unwrap();
    let mut found = BTreeSet::new();
    for size in (0..=whole.len()).step_by(509).chain([whole.len()]) {
        let torn = tempfile::tempdir().unwrap();
        std::fs::copy(folder.path().join("journal.db"), torn.path().join("journal.db")).unwrap();
        std::fs::write(torn.path().join("journal.db-wal"), &whole[..size]).unwrap();
        let Ok(opened) = FileJournal::open(torn.path()) else {
            panic!("a torn append is no damage: {size} of {} bytes", whole.len());
        };
        let next = Journal::File(opened);
        let records = next.load().await.unwrap();
        let last = records.last().map_or(0, |record| record.seq);
        assert!(
            ends.contains(&last),
            "half an append: up to {last} with {size} bytes"
        );
        found.insert(last);
        next.append(vec![record(last + 1, 2)]).await.unwrap();
    }
    assert_eq!(found, ends, "every append was torn once");
}

#[tokio::test]
async fn a_file_whose_last_record_is_cut_is_read_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::File(FileJournal::open(folder.path()).unwrap());
    journal.append(life(1, 3, "n1")).await.unwrap();
    let other = rusqlite::Connection::open(folder.path().join("journal.db")).unwrap();
    let cut = "update journal set record = substr(record, 1, length(record) / 2) where seq = 3";
    other.execute(cut, []).unwrap();
    let error = journal.load().await.unwrap_err().to_string();
    assert!(
        error.contains("record 3 in journal.db") && error.contains("restore it"),
        "{error}"
    );
    other.execute("delete from journal where seq = 2", []).unwrap();
    other.execute("delete from journal where seq = 3", []).unwrap();
    assert_eq!(journal.load().await.unwrap().len(), 1, "what is left is a whole");
    let skipped =
        "insert into journal select 3, epoch, replace(record, '\"seq\":1', '\"seq\":3') from journal";
    other.execute(skipped, []).unwrap();
    let error = journal.load().await.unwrap_err().to_string();
    assert!(error.contains("record 3 follows record 1"), "{error}");
}

#[tokio::test]
async fn an_object_whose_last_record_is_cut_is_read_and_continued_by_nobody() {
    let server = TestServer::start().await;
    let open = || Journal::Objects(Box::new(ObjectJournal::new(server.client(), "default", "ha")));
    let journal = open();
    journal.load().await.unwrap();
    journal.append(life(1, 3, "n1")).await.unwrap();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(server.client(), "default");
    let whole = maps.get("ha-journal-00000001").await.unwrap();
    let mut cut = whole.clone();
    for text in cut.data.as_mut().unwrap().values_mut() {
        text.truncate(text.len() - 40);
    }
    let how = kube::api::PostParams::default();
    let cut = maps.replace("ha-journal-00000001", &how, &cut).await.unwrap();
    let error = journal.append(vec![record(4, 1)]).await.unwrap_err();
    assert!(matches!(error, AppendError::Replaced(_)), "{error}");
    let error = open().load().await.unwrap_err().to_string();
    assert!(
        error.contains("ha-journal-00000001") && error.contains("restore it"),
        "{error}"
    );
    let mut restored = whole;
    restored.metadata.resource_version = cut.metadata.resource_version;
    maps.replace("ha-journal-00000001", &how, &restored)
        .await
        .unwrap();
    let next = open();
    assert_eq!(numbers(&next.load().await.unwrap()).len(), 3);
    next.append(vec![record(4, 2)]).await.unwrap();
}
