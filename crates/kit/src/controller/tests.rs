// SPDX-License-Identifier: Apache-2.0
//! A controller against a small API server that lists one object and then keeps silent.

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::startup::Component;
use crate::telemetry::Telemetry;

/// Answers the list with `names` and leaves every watch open.
fn client(names: &[&str]) -> kube::Client {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "1", "uid": name}}))
        .collect();
    let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Some((request, send)) = handle.next_request().await {
            if request.uri().query().unwrap_or_default().contains("watch=true") {
                open.push(send);
            } else {
                send.send_response(Response::new(Body::from(serde_json::to_vec(&list).unwrap())));
            }
        }
    });
    kube::Client::new(service, "ns")
}

#[derive(Debug, thiserror::Error)]
#[error("the world says no")]
struct No;

/// Fails as often as it is told to, then rests.
struct Scripted {
    failures: Mutex<u32>,
    log: Arc<Mutex<Vec<String>>>,
    done: CancellationToken,
    hang: bool,
}

impl Reconciler for Scripted {
    type Object = ConfigMap;
    type Facts = u32;
    type Action = &'static str;
    type Error = No;

    async fn observe(&self, object: &Arc<ConfigMap>) -> Result<u32, No> {
        self.log.lock().push(format!("observe {}", object.name_any()));
        if self.hang {
            std::future::pending::<()>().await;
        }
        Ok(*self.failures.lock())
    }

    fn decide(&self, _: &ConfigMap, failures: &u32) -> Plan<&'static str> {
        if *failures > 0 {
            Plan::of(vec!["fail", "never"])
        } else {
            Plan::of(vec!["one", "two"])
        }
    }

    async fn act(&self, _: &Arc<ConfigMap>, action: &'static str) -> Result<(), No> {
        self.log.lock().push(action.to_owned());
        match action {
            "fail" => {
                *self.failures.lock() -= 1;
                Err(No)
            }
            "two" => {
                self.done.cancel();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

async fn run(failures: u32, hang: bool, options: Options) -> (Vec<String>, String, Health) {
    let telemetry = Telemetry::new(&Component {
        name: "t",
        version: "1",
        commit: "c",
    });
    let (log, done, health) = (Arc::default(), CancellationToken::new(), Health::new());
    let reconciler = Scripted {
        failures: Mutex::new(failures),
        log: Arc::clone(&log),
        done: done.clone(),
        hang,
    };
    let client = client(&["a"]);
    let runner = ControllerRunner::new("test", Api::all(client), watcher::Config::default(), reconciler)
        .options(options);
    if hang {
        let stop = done.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            stop.cancel();
        });
    }
    runner
        .run(ControllerMetrics::new(&telemetry), health.clone(), done)
        .await
        .unwrap();
    let log = log.lock().clone();
    (log, telemetry.encode(), health)
}

#[tokio::test(start_paused = true)]
async fn a_failed_pass_is_tried_again_from_the_start_and_counted() {
    let (log, metrics, health) = run(2, false, Options::default()).await;
    assert_eq!(
        log,
        [
            "observe a",
            "fail",
            "observe a",
            "fail",
            "observe a",
            "one",
            "two"
        ]
    );
    for line in [
        "controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 2",
        "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"test\"} 2",
        "controller_runtime_reconcile_time_seconds_count{controller=\"test\"} 3",
        "controller_runtime_max_concurrent_reconciles{controller=\"test\"} 8",
        "controller_runtime_active_workers{controller=\"test\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(health.ready().ok && health.live().ok);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_hangs_is_dropped_and_tried_again() {
    let options = Options {
        pass_time: Duration::from_secs(10),
        ..Options::default()
    };
    let (log, metrics, health) = run(0, true, options).await;
    assert!(log.len() >= 5, "{log:?}");
    assert!(!metrics.contains("result=\"error\"} 0"), "{metrics}");
    assert!(health.live().ok);
}

#[test]
fn plans_say_when_to_look_again() {
    let plan = Plan::of(vec![1]).again_after(Duration::from_secs(5));
    assert_eq!(
        plan,
        Plan {
            actions: vec![1],
            next: Next::After(Duration::from_secs(5))
        }
    );
    assert_eq!(
        Plan::<u8>::rest(),
        Plan {
            actions: vec![],
            next: Next::OnChange
        }
    );
}

#[test]
fn whoever_was_overtaken_is_known_by_the_answer_however_it_is_wrapped() {
    let answer = |code| {
        let status = serde_json::json!({"status": "Failure", "code": code, "message": "m", "reason": "r"});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    };
    assert!(overtaken(&answer(409)));
    assert!(overtaken(&crate::Error::kube("changing", answer(409))));
    assert!(!overtaken(&crate::Error::kube("changing", answer(500))));
    assert!(!overtaken(&std::io::Error::other("no answer at all")));
}
