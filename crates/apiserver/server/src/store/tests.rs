// SPDX-License-Identifier: Apache-2.0
//! Who writes, in which order, and what becomes of the log.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use serde_json::json;

use super::{
    Action, Change, CommitError, Draft, Durability, Expect, Key, Store, StoreOptions, Table, TypeId, sqlite,
    writer,
};

fn open(path: &Path) -> (Store, Arc<Table>) {
    let options = StoreOptions {
        path: Some(path.to_owned()),
        durability: Durability::Relaxed,
        history: Duration::from_mins(5),
        keys: Arc::default(),
    };
    let store = Store::open(&options).unwrap();
    let table = store
        .register(vec![(String::new(), "things".into())])
        .unwrap()
        .remove(0);
    (store, table)
}

fn put(table: TypeId, name: &str, expect: Expect, padding: usize) -> Vec<Change> {
    let object = json!({"kind": "Thing", "apiVersion": "v1", "metadata": {"name": name},
        "data": "x".repeat(padding)});
    vec![Change {
        table,
        key: Key::new("ns", name),
        expect,
        action: Action::Put(Draft::new(&object, 0)),
    }]
}

#[tokio::test]
async fn a_full_log_is_written_over_and_not_grown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let (store, table) = open(&path);
    let (objects, padding) = (1_000, 40_000);
    for n in 0..objects {
        store
            .commit(put(table.id, &format!("thing-{n}"), Expect::Absent, padding))
            .await
            .unwrap();
    }
    let (file, log) = sqlite::Database::sizes(&path);
    assert!(file > (objects * padding) as u64, "moved into the file: {file}");
    assert!(log < 16 << 20, "the log has {log} bytes");
    store.close();
    let (store, table) = open(&path);
    assert_eq!(table.snapshot(None, || store.revision()).items.len(), objects);
}

#[tokio::test]
async fn whoever_is_not_alone_waits_for_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(&dir.path().join("state.db"));
    let mut second = Box::pin(store.commit(put(table.id, "a", Expect::Absent, 1)));
    let somebody_writes = store.writer.lock();
    let asked = second.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        asked.is_pending(),
        "handed over, and nobody waited for on this thread"
    );
    drop(somebody_writes);
    let records = second.await.unwrap();
    let first = records[0].revision;
    let wrong = store
        .commit(put(table.id, "a", Expect::Absent, 1))
        .await
        .unwrap_err();
    assert!(matches!(wrong, CommitError::Conflict), "{wrong}");
    let next = store
        .commit(put(table.id, "a", Expect::Revision(first), 1))
        .await
        .unwrap();
    assert_eq!(
        next[0].revision,
        first + 1,
        "a refusal on either thread takes no revision"
    );
    store.close();
    let closed = store
        .commit(put(table.id, "b", Expect::Absent, 1))
        .await
        .unwrap_err();
    assert!(closed.to_string().contains("closed"), "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_and_the_lone_ones_between_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(&dir.path().join("state.db"));
    let store = Arc::new(store);
    let began = store.revision();
    store
        .commit(put(table.id, "counter", Expect::Absent, 0))
        .await
        .unwrap();
    let (writers, each) = (8, 50);
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, table) = (store.clone(), table.clone());
            tokio::spawn(async move {
                let key = Key::new("ns", "counter");
                let mut done = 0;
                while done < each {
                    let now = table.get(&key).unwrap();
                    let change = put(table.id, "counter", Expect::Revision(now.revision), 0);
                    match store.commit(change).await {
                        Ok(_) => done += 1,
                        Err(CommitError::Conflict) => tokio::task::yield_now().await,
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let now = table.get(&Key::new("ns", "counter")).unwrap().revision;
    assert_eq!(now, store.revision());
    assert_eq!(
        now - began,
        writers * each + 1,
        "each change has a revision of its own"
    );
}

#[tokio::test]
async fn a_writer_that_panics_ends_the_process() {
    const INSIDE: &str = "COBALTCORE_TEST_WRITER_PANICS";
    let name = "store::tests::a_writer_that_panics_ends_the_process";
    let Ok(whose) = std::env::var(INSIDE) else {
        for whose in ["its own", "the thread"] {
            let ended = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(INSIDE, whose)
                .output()
                .unwrap();
            assert_eq!(
                ended.status.code(),
                Some(writer::EXIT_SOFTWARE),
                "{whose}: {ended:?}"
            );
        }
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(&dir.path().join("state.db"));
    store.observe(Box::new(|_, _| panic!("an observer")));
    let mut change = Box::pin(store.commit(put(table.id, "a", Expect::Absent, 1)));
    if whose == "the thread" {
        let _somebody_writes = store.writer.lock();
        assert!(
            change
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    change.await.unwrap();
}

#[tokio::test]
async fn a_type_that_retires_takes_its_own_history_and_no_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let (store, table) = open(&path);
    let mut revisions = Vec::new();
    for name in ["before", "after"] {
        let records = store
            .commit(put(table.id, name, Expect::Absent, 1))
            .await
            .unwrap();
        revisions.push(records[0].revision);
    }
    let [before, after] = revisions[..] else {
        panic!("{revisions:?}")
    };
    store.retire(table.id, before).unwrap();
    store.close();
    let again = open(&path);
    for (store, table) in [(store, table), again] {
        assert!(store.events_since(&table, before - 1).await.is_err());
        let left = store.events_since(&table, before).await.unwrap();
        assert_eq!(left.iter().map(|e| e.revision).collect::<Vec<_>>(), [after]);
    }
}
