// SPDX-License-Identifier: Apache-2.0
//! Power failure in small: a server process is killed again and again while clients write to it.
//! Every acknowledged write must be there afterwards, revisions must never repeat or go back, and a
//! watch must go on where it was cut off.
//!
//! The number of rounds is `COBALTCORE_CRASH_ROUNDS`, 20 when it is not set.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "literals read better in place"
)]

#[path = "common/remote.rs"]
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cobaltcore_apiserver::{Authorization, Config, Server};
use http::Method;
use remote::{Connection, Failure, Remote};
use serde_json::{Value, json};

const DIR: &str = "COBALTCORE_CRASH_DIR";
const ROUNDS: &str = "COBALTCORE_CRASH_ROUNDS";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 4;
/// Names each writer works on.
const NAMES: u64 = 12;

/// The server process: the same test binary, told by the environment to be one.
#[test]
fn serve_until_killed() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let config = Config {
            data_dir: Some(dir.join("data")),
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            authorization: Authorization::AlwaysAllow,
            ..Config::default()
        };
        let server = Server::start(config).await.unwrap();
        std::fs::write(dir.join("address.new"), server.addresses()[0].to_string()).unwrap();
        std::fs::rename(dir.join("address.new"), dir.join("address")).unwrap();
        std::future::pending::<()>().await;
    });
}

struct Process(Child);

impl Process {
    async fn start(dir: &Path) -> (Self, Remote) {
        let address = dir.join("address");
        let _ = std::fs::remove_file(&address);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_until_killed", "--nocapture"])
            .env(DIR, dir)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut process = Self(child);
        let begun = Instant::now();
        let address: SocketAddr = loop {
            if let Ok(text) = std::fs::read_to_string(&address) {
                break text.parse().unwrap();
            }
            assert!(
                process.0.try_wait().unwrap().is_none(),
                "the server did not start again"
            );
            assert!(
                begun.elapsed() < Duration::from_mins(1),
                "the server takes too long to start"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let ca = std::fs::read_to_string(dir.join("data/pki/ca.crt")).unwrap();
        let token = std::fs::read_to_string(dir.join("data/pki/admin-token")).unwrap();
        (process, Remote::new(address, &ca, Some(token.trim())))
    }
}

impl Drop for Process {
    /// SIGKILL, to this process only.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A change that was sent: the value it sets, or that it removes the object.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    Set(String),
    Remove,
}

/// What is known of one object.
#[derive(Debug, Clone, PartialEq, Default)]
struct Known {
    /// The last acknowledged state: value and revision; `None` when it does not exist.
    acknowledged: Option<(String, u64)>,
    /// A change that was sent but never answered.
    doubtful: Option<Change>,
}

/// What all clients together know.
#[derive(Debug, Default)]
struct Ledger {
    objects: BTreeMap<String, Known>,
    /// Every acknowledged revision.
    acknowledged: BTreeSet<u64>,
    /// Every revision any client has seen, in answers or events.
    newest: u64,
    /// Revisions the watcher saw.
    watched: BTreeSet<u64>,
}

impl Ledger {
    fn acknowledge(&mut self, name: &str, state: Option<(String, u64)>) {
        if let Some((_, revision)) = &state {
            assert!(
                self.acknowledged.insert(*revision),
                "revision {revision} was given out twice"
            );
            self.newest = self.newest.max(*revision);
        }
        self.objects.insert(
            name.to_owned(),
            Known {
                acknowledged: state,
                doubtful: None,
            },
        );
    }

    fn doubt(&mut self, name: &str, change: Change) {
        self.objects.entry(name.to_owned()).or_default().doubtful = Some(change);
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|t| t.parse().ok())
        .unwrap_or_else(|| panic!("no revision in {object}"))
}

/// Creates, changes and deletes its own objects until the server is gone.
async fn write(remote: Remote, ledger: Arc<Mutex<Ledger>>, writer: usize, round: usize) {
    let Ok(mut connection) = remote.connect().await else {
        return;
    };
    for step in 0.. {
        let name = format!("w{writer}-{}", (step * 7 + round as u64) % NAMES);
        let value = format!("{round}.{step}");
        let exists = ledger
            .lock()
            .unwrap()
            .objects
            .get(&name)
            .is_some_and(|k| k.acknowledged.is_some());
        let change = if exists && step % 5 == 4 {
            Change::Remove
        } else {
            Change::Set(value)
        };
        let sent = one_write(&mut connection, &name, exists, &change).await;
        let mut ledger = ledger.lock().unwrap();
        match sent {
            Ok(state) => ledger.acknowledge(&name, state),
            Err(_) => return ledger.doubt(&name, change),
        }
    }
}

/// One change; the state that was acknowledged.
async fn one_write(
    connection: &mut Connection,
    name: &str,
    exists: bool,
    change: &Change,
) -> Result<Option<(String, u64)>, Failure> {
    let path = format!("{MAPS}/{name}");
    let Change::Set(value) = change else {
        let (code, body) = connection.send(Method::DELETE, &path, None).await?;
        assert_eq!(code, 200, "{body}");
        return Ok(None);
    };
    let (code, body) = if exists {
        let patch = json!({"data": {"v": value}});
        connection
            .send(
                Method::PATCH,
                &path,
                Some(("application/merge-patch+json", &patch)),
            )
            .await?
    } else {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"crash": "1"}}, "data": {"v": value}});
        connection.post(MAPS, &object).await?
    };
    assert_eq!(code, if exists { 200 } else { 201 }, "{body}");
    Ok(Some((value.clone(), revision(&body))))
}

/// Follows the changes from where the last watch was cut off; returns when the server is gone, or at
/// `until` when it is given.
async fn follow(remote: Remote, ledger: Arc<Mutex<Ledger>>, from: Arc<Mutex<u64>>, until: Option<u64>) {
    let Ok(connection) = remote.connect().await else {
        return;
    };
    let at = *from.lock().unwrap();
    let path = format!("{MAPS}?watch=true&labelSelector=crash&resourceVersion={at}");
    let Ok((code, mut lines)) = connection.watch(&path).await else {
        return;
    };
    assert_eq!(code, 200);
    while until.is_none_or(|until| *from.lock().unwrap() < until) {
        let Ok(Some(event)) = lines.next().await else {
            return;
        };
        assert_ne!(
            event["type"], "ERROR",
            "history survives restarts, so nothing is too old: {event}"
        );
        let seen = revision(&event["object"]);
        let mut last = from.lock().unwrap();
        assert!(seen > *last, "events go forward: {seen} after {last}");
        *last = seen;
        let mut ledger = ledger.lock().unwrap();
        ledger.watched.insert(seen);
        ledger.newest = ledger.newest.max(seen);
    }
}

/// Compares what the server has with what it acknowledged, and settles what was in doubt.
async fn verify(remote: &Remote, ledger: &Mutex<Ledger>) -> u64 {
    let mut connection = remote.connect().await.unwrap();
    let (code, list) = connection
        .get(&format!("{MAPS}?labelSelector=crash"))
        .await
        .unwrap();
    assert_eq!(code, 200);
    let mut ledger = ledger.lock().unwrap();
    let at = revision(&list);
    assert!(
        at >= ledger.newest,
        "the server is at {at}, but {} was seen before",
        ledger.newest
    );
    let mut stored: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap().to_owned();
        stored.insert(
            name,
            (item["data"]["v"].as_str().unwrap().to_owned(), revision(item)),
        );
    }
    for (name, known) in &mut ledger.objects {
        let found = stored.remove(name);
        let as_acknowledged = found == known.acknowledged;
        let as_doubtful = match (&known.doubtful, &found) {
            (Some(Change::Set(value)), Some((stored, _))) => value == stored,
            (Some(Change::Remove), None) => true,
            _ => false,
        };
        assert!(
            as_acknowledged || as_doubtful,
            "{name} is {found:?}, known is {known:?}"
        );
        *known = Known {
            acknowledged: found,
            doubtful: None,
        };
    }
    assert!(stored.is_empty(), "nobody wrote {stored:?}");
    ledger.newest = at;
    at
}

async fn run(rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let ledger: Arc<Mutex<Ledger>> = Arc::default();
    let from = Arc::new(Mutex::new(0));
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..rounds {
        let (process, remote) = Process::start(dir.path()).await;
        let at = verify(&remote, &ledger).await;
        if round == 0 {
            *from.lock().unwrap() = at;
        }
        let before = ledger.lock().unwrap().acknowledged.len();
        let mut tasks: Vec<_> = (0..WRITERS)
            .map(|w| tokio::spawn(write(remote.clone(), ledger.clone(), w, round)))
            .collect();
        tasks.push(tokio::spawn(follow(remote, ledger.clone(), from.clone(), None)));
        moments ^= moments << 13;
        moments ^= moments >> 7;
        moments ^= moments << 17;
        tokio::time::sleep(Duration::from_millis(50 + moments % 250)).await;
        // A machine that is busy may need longer for the first of them.
        while ledger.lock().unwrap().acknowledged.len() <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(process);
        for task in tasks {
            task.await.unwrap();
        }
    }
    let (_process, remote) = Process::start(dir.path()).await;
    verify(&remote, &ledger).await;
    let last = ledger
        .lock()
        .unwrap()
        .objects
        .values()
        .filter_map(|k| k.acknowledged.as_ref())
        .map(|(_, r)| *r)
        .max()
        .unwrap();
    follow(remote, ledger.clone(), from, Some(last)).await;
    let ledger = ledger.lock().unwrap();
    let missed: Vec<&u64> = ledger
        .acknowledged
        .difference(&ledger.watched)
        .filter(|r| **r <= last)
        .collect();
    assert!(
        missed.is_empty(),
        "acknowledged, but never seen by the watch: {missed:?}"
    );
    assert!(
        ledger.acknowledged.len() > rounds,
        "only {} writes in {rounds} rounds",
        ledger.acknowledged.len()
    );
    println!(
        "{rounds} kills, {} acknowledged writes, {} events",
        ledger.acknowledged.len(),
        ledger.watched.len()
    );
}

#[test]
fn acknowledged_writes_survive_any_kill() {
    let rounds = std::env::var(ROUNDS)
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(rounds));
}
