// SPDX-License-Identifier: Apache-2.0
//! Health, metrics and the paths beside the resources, as probes and scrapers ask for them.

use cobaltcore_apiserver::testkit::TestServer;
use serde_json::json;

#[tokio::test]
async fn health_and_metrics_speak_as_expected() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/ping"] {
        let reply = admin.get(path).await;
        assert_eq!((reply.code, &reply.raw[..]), (200, &b"ok"[..]), "{path}");
    }
    let verbose = admin.get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&verbose.raw).into_owned();
    assert!(
        text.contains("[+]ping ok\n") && text.ends_with("readyz check passed\n"),
        "{text}"
    );
    let without = admin.get("/livez?verbose&exclude=ping").await;
    assert!(String::from_utf8_lossy(&without.raw).starts_with("[+]ping excluded: ok\n"));
    assert_eq!(admin.get("/livez/nothing").await.code, 404);
    let version = admin.get("/version").await.body;
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&json!("1"), &json!("36"))
    );
    assert!(
        version["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with("v1.36.0+cobaltcore.")
    );
    let rules = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.size)"}],
        "properties": {"size": {"type": "integer"}}}}});
    let kind = crate::words::definition_with("widgets", "Widget", rules, json!({}));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(admin.post(path, &kind).await.code, 201);
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let sized = crate::words::widget("a", json!({"size": 1}));
    assert_eq!(admin.post(path, &sized).await.code, 201);
    let metrics = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.raw).into_owned();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(value.parse::<f64>().is_ok() || value == "+Inf", "{line}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{line}");
    }
    for name in [
        "apiserver_request_total{",
        "apiserver_request_duration_seconds_bucket{",
        "apiserver_response_sizes_bucket{",
        "apiserver_current_inflight_requests{request_kind=",
        "apiserver_longrunning_requests ",
        "apiserver_watch_events_total ",
        "apiserver_watch_events_sizes_bytes_total ",
        "apiserver_storage_objects{resource=",
        "apiserver_authorization_decisions_total{type=\"RBAC\",name=\"rbac\",decision=\"allowed\"}",
        "cobaltcore_kube_revision ",
        "cobaltcore_kube_compacted_revision ",
        "cobaltcore_kube_commit_seconds_bucket{",
        "cobaltcore_kube_commit_batch_changes_bucket{",
        "cobaltcore_kube_writer_queue 0",
        "cobaltcore_kube_db_bytes ",
        "cobaltcore_kube_wal_bytes ",
        "cobaltcore_kube_watchers{resource=",
        "cobaltcore_kube_watchers_dropped_total ",
        "cobaltcore_kube_history_events{resource=",
        "cobaltcore_kube_gc_deletions_total ",
        "cobaltcore_kube_cel_evaluations_total 1",
        "cobaltcore_kube_cel_budget_exceeded_total 0",
        "cobaltcore_kube_ssa_conflicts_total ",
        "cobaltcore_kube_rbac_denied_total ",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(name)),
            "{name} is missing in {text}"
        );
    }
    for line in [
        "# TYPE apiserver_request_total counter",
        "# TYPE apiserver_request_duration_seconds histogram",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing");
    }
    assert!(!text.contains("# EOF"));
}
