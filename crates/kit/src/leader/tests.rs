// SPDX-License-Identifier: Apache-2.0
//! Elections against a small API server that keeps one lease with optimistic locking.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::startup::Component;

#[derive(Default)]
struct Store {
    lease: Option<Value>,
    version: u64,
    broken: bool,
}

/// A client whose server is `store`.
fn client(store: &Arc<Mutex<Store>>) -> kube::Client {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let (status, answer) = answer(&mut store.lock(), &method, serde_json::from_slice(&body).ok());
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            send.send_response(Response::builder().status(status).body(body).unwrap());
        }
    });
    kube::Client::new(service, "default")
}

fn answer(store: &mut Store, method: &Method, body: Option<Value>) -> (StatusCode, Value) {
    let failure = |code: u16, reason: &str| {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
        (StatusCode::from_u16(code).unwrap(), status)
    };
    if store.broken {
        return failure(500, "InternalError");
    }
    match (method, body, &store.lease) {
        (&Method::GET, _, Some(lease)) => (StatusCode::OK, lease.clone()),
        (&Method::GET, _, None) => failure(404, "NotFound"),
        (&Method::POST, Some(_), Some(_)) => failure(409, "AlreadyExists"),
        (&Method::PUT, Some(new), Some(old))
            if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] =>
        {
            failure(409, "Conflict")
        }
        (_, Some(mut new), _) => {
            store.version += 1;
            new["metadata"]["resourceVersion"] = store.version.to_string().into();
            store.lease = Some(new.clone());
            (StatusCode::OK, new)
        }
        _ => failure(400, "BadRequest"),
    }
}

fn elector(store: &Arc<Mutex<Store>>, identity: &str) -> LeaderElector {
    let config = LeaderConfig {
        identity: identity.into(),
        ..LeaderConfig::new("ns", "lease")
    };
    LeaderElector::new(client(store), config).unwrap()
}

fn holder(store: &Arc<Mutex<Store>>) -> String {
    let store = store.lock();
    store
        .lease
        .as_ref()
        .and_then(|l| l["spec"]["holderIdentity"].as_str())
        .unwrap_or("none")
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_held_during_the_work_and_given_back_after() {
    let store = Arc::default();
    let telemetry = Telemetry::new(&Component {
        name: "t",
        version: "1",
        commit: "c",
    });
    let candidate = elector(&store, "a").with_metrics(&telemetry);
    let leading = candidate.leading();
    let seen = Arc::clone(&store);
    let during = telemetry.clone();
    let answer = candidate
        .run(CancellationToken::new(), |_| async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            (holder(&seen), during.encode())
        })
        .await
        .unwrap();
    let (held_by, metrics) = answer.unwrap();
    assert_eq!(held_by, "a");
    assert!(
        metrics.contains("leader_election_master_status{name=\"lease\"} 1"),
        "{metrics}"
    );
    assert!(
        telemetry
            .encode()
            .contains("leader_election_master_status{name=\"lease\"} 0")
    );
    assert_eq!(holder(&store), "");
    assert!(!leading.get());
    assert!(store.lock().version > 20, "renewed every two seconds");
}

#[tokio::test(start_paused = true)]
async fn the_next_one_leads_when_the_first_stops() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let stop_a = CancellationToken::new();
    let (log, stop) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
    let (log_a, log_b) = (Arc::clone(&log), Arc::clone(&log));
    let a = tokio::spawn(elector(&store, "a").run(stop_a.clone(), move |token| async move {
        log_a.lock().push("a begins");
        token.cancelled().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        log_a.lock().push("a ends");
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let b = tokio::spawn(elector(&store, "b").run(stop.clone(), move |token| async move {
        log_b.lock().push("b begins");
        token.cancelled().await;
    }));
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop_a.cancel();
    assert_eq!(a.await.unwrap().unwrap(), Some(()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    stop.cancel();
    b.await.unwrap().unwrap();
    assert_eq!(*log.lock(), ["a begins", "a ends", "b begins"]);
    assert_eq!(
        store.lock().lease.as_ref().unwrap()["spec"]["leaseTransitions"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_its_work_before_others_may_start() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let (world, cancelled) = (Arc::clone(&store), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&cancelled);
    let began = Instant::now();
    let error = elector(&store, "a")
        .run(CancellationToken::new(), |token| async move {
            world.lock().broken = true;
            token.cancelled().await;
            told.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::LeadershipLost { .. }), "{error}");
    assert!(cancelled.load(Ordering::SeqCst));
    assert!(
        began.elapsed() <= Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_stops_at_once() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let world = Arc::clone(&store);
    let error = elector(&store, "a")
        .run(CancellationToken::new(), |token| async move {
            {
                let mut store = world.lock();
                store.version += 1;
                let version = store.version.to_string();
                let lease = store.lease.as_mut().unwrap();
                lease["metadata"]["resourceVersion"] = version.into();
                lease["spec"]["holderIdentity"] = "usurper".into();
            }
            token.cancelled().await;
        })
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "lost the lease ns/lease: \"usurper\" leads now"
    );
    assert_eq!(holder(&store), "usurper", "not ours to give back");
}

fn transitions(store: &Arc<Mutex<Store>>) -> i64 {
    let store = store.lock();
    let lease = store.lease.as_ref();
    lease
        .and_then(|l| l["spec"]["leaseTransitions"].as_i64())
        .unwrap_or(-1)
}

#[tokio::test(start_paused = true)]
async fn a_term_has_a_number_that_the_lease_says_and_nobody_had() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let candidate = elector(&store, "a");
    let (leading, world) = (candidate.leading(), Arc::clone(&store));
    let work = |_| async move {
        assert_eq!((leading.term(0).await, transitions(&world)), (0, 0));
        assert_eq!((leading.term(41).await, transitions(&world)), (41, 41));
        assert_eq!(leading.term(7).await, 41, "the lease is ahead");
        // Somebody deletes it: it is made anew with the same count.
        world.lock().lease = None;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(transitions(&world), 41);
    };
    candidate.run(CancellationToken::new(), work).await.unwrap();
    let next = elector(&store, "b");
    let (leading, world) = (next.leading(), Arc::clone(&store));
    let work = |_| async move {
        assert_eq!((leading.term(0).await, transitions(&world)), (42, 42));
    };
    next.run(CancellationToken::new(), work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_patient_candidate_begins_a_whole_lease_after_what_it_last_saw() {
    let store: Arc<Mutex<Store>> = Arc::default();
    let patient = |identity: &str| {
        let mut elector = elector(&store, identity);
        elector.config.patient = true;
        elector
    };
    let (ended, stop_a) = (Arc::new(Mutex::new(None)), CancellationToken::new());
    let begun = Instant::now();
    let a = tokio::spawn(patient("a").run(stop_a.clone(), |token| async move { token.cancelled().await }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        holder(&store),
        "a",
        "nobody held it before, so there is nobody to wait for: {:?}",
        begun.elapsed()
    );
    let told = Arc::clone(&ended);
    let b = tokio::spawn(patient("b").run(CancellationToken::new(), |_| async move {
        let last: Instant = told.lock().unwrap();
        last.elapsed()
    }));
    tokio::time::sleep(Duration::from_secs(7)).await;
    stop_a.cancel();
    a.await.unwrap().unwrap();
    *ended.lock() = Some(Instant::now());
    assert_eq!(holder(&store), "", "given back");
    let waited = b.await.unwrap().unwrap().unwrap();
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    // One that is deleted is waited for as well.
    let c = patient("c");
    let gone = Arc::clone(&store);
    *ended.lock() = None;
    let holds = tokio::spawn(patient("d").run(CancellationToken::new(), |_| std::future::pending::<()>()));
    tokio::time::sleep(Duration::from_secs(40)).await;
    let told = Arc::clone(&ended);
    let next = tokio::spawn(c.run(CancellationToken::new(), |_| async move {
        let last: Instant = told.lock().unwrap();
        last.elapsed()
    }));
    tokio::time::sleep(Duration::from_secs(5)).await;
    holds.abort();
    let _ = holds.await;
    gone.lock().lease = None;
    *ended.lock() = Some(Instant::now());
    let waited = next.await.unwrap().unwrap().unwrap();
    assert!(
        waited >= Duration::from_secs(12),
        "a lease from its last renewal: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn stopping_before_leading_is_no_error() {
    let store: Arc<Mutex<Store>> = Arc::default();
    store.lock().broken = true;
    let stop = CancellationToken::new();
    let waiting = tokio::spawn(elector(&store, "a").run(stop.clone(), |_| async {}));
    tokio::time::sleep(Duration::from_secs(20)).await;
    stop.cancel();
    assert_eq!(waiting.await.unwrap().unwrap(), None);
}

#[test]
fn impossible_timings_are_refused() {
    let good = LeaderConfig::new("ns", "lease");
    good.check().unwrap();
    let second = Duration::from_secs(1);
    let bad = [
        LeaderConfig {
            identity: String::new(),
            ..good.clone()
        },
        LeaderConfig {
            renew_deadline: good.lease_duration,
            ..good.clone()
        },
        LeaderConfig {
            retry_period: good.renew_deadline,
            ..good.clone()
        },
        LeaderConfig {
            lease_duration: second / 2,
            renew_deadline: second / 4,
            retry_period: second / 8,
            ..good.clone()
        },
        LeaderConfig {
            retry_period: Duration::ZERO,
            ..good.clone()
        },
    ];
    for config in bad {
        assert!(config.check().is_err(), "{config:?}");
    }
}
