// SPDX-License-Identifier: Apache-2.0
//! Namespaces: what each begins with, how it ends, and what the server keeps by itself in between:
//! budgets and old events.

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use jiff::SignedDuration;
use serde_json::{Value, json};

const SPACES: &str = "/api/v1/namespaces";

async fn space(admin: &Caller, name: &str) -> Value {
    create(
        admin,
        SPACES,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
    )
    .await
}

#[tokio::test]
async fn a_namespace_begins_with_an_account_and_a_certificate() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let made = space(&admin, "n").await;
    assert_eq!(made["status"], json!({"phase": "Active"}));
    assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    until(&admin, &format!("{SPACES}/n/serviceaccounts/default"), |r| {
        r.code == 200
    })
    .await;
    let ca = until(&admin, &format!("{SPACES}/n/configmaps/kube-root-ca.crt"), |r| {
        r.code == 200
    })
    .await
    .body;
    assert!(
        ca["data"]["ca.crt"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    admin.delete(&format!("{SPACES}/n/serviceaccounts/default")).await;
    until(&admin, &format!("{SPACES}/n/serviceaccounts/default"), |r| {
        r.code == 200
    })
    .await;
    admin
        .merge(
            &format!("{SPACES}/n/configmaps/kube-root-ca.crt"),
            &json!({"data": {"ca.crt": "mine"}}),
        )
        .await;
    until(&admin, &format!("{SPACES}/n/configmaps/kube-root-ca.crt"), |r| {
        r.body["data"] == ca["data"]
    })
    .await;
}

#[tokio::test]
async fn deleting_takes_everything_of_every_kind() {
    let server = TestServer::start().await;
    let admin = server.admin();
    install(
        &admin,
        &definition("widgets", "Widget", json!({"type": "object"})),
    )
    .await;
    space(&admin, "n").await;
    create(&admin, &format!("{SPACES}/n/configmaps"), &map("a", "1")).await;
    create(
        &admin,
        &format!("{SPACES}/n/secrets"),
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
    )
    .await;
    create(
        &admin,
        "/apis/example.com/v1/namespaces/n/widgets",
        &widget("w", json!({})),
    )
    .await;
    let reply = admin.delete(&format!("{SPACES}/n")).await;
    assert_eq!(
        (reply.code, &reply.body["kind"], &reply.body["status"]["phase"]),
        (200, &json!("Namespace"), &json!("Terminating"))
    );
    gone(&admin, &format!("{SPACES}/n")).await;
    for path in [
        format!("{SPACES}/n/configmaps"),
        format!("{SPACES}/n/secrets"),
        "/apis/example.com/v1/namespaces/n/widgets".to_owned(),
    ] {
        assert_eq!(admin.get(&path).await.body["items"], json!([]), "{path}");
    }
    let again = space(&admin, "n").await;
    assert_eq!(again["status"]["phase"], "Active");
}

#[tokio::test]
async fn a_held_object_holds_the_namespace_and_is_told() {
    let server = TestServer::start().await;
    let admin = server.admin();
    space(&admin, "n").await;
    let mut held = map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&admin, &format!("{SPACES}/n/configmaps"), &held).await;
    admin.delete(&format!("{SPACES}/n")).await;
    let waiting = until(&admin, &format!("{SPACES}/n"), |r| {
        r.body["status"]["conditions"]
            .as_array()
            .is_some_and(|c| c.len() == 5)
    })
    .await
    .body;
    let told = |kind: &str| {
        let c = condition(&waiting, kind);
        (
            c["status"].as_str().unwrap().to_owned(),
            c["reason"].as_str().unwrap().to_owned(),
            c["message"].as_str().unwrap().to_owned(),
        )
    };
    let is = |s: &str, r: &str, m: &str| (s.to_owned(), r.to_owned(), m.to_owned());
    assert_eq!(
        told("NamespaceDeletionDiscoveryFailure"),
        is(
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered"
        )
    );
    assert_eq!(
        told("NamespaceDeletionGroupVersionParsingFailure"),
        is(
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed"
        )
    );
    assert_eq!(
        told("NamespaceDeletionContentFailure"),
        is(
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization"
        )
    );
    assert_eq!(
        told("NamespaceContentRemaining"),
        is(
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
    );
    assert_eq!(
        told("NamespaceFinalizersRemaining"),
        is(
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
    );
    let refused = admin
        .post(&format!("{SPACES}/n/configmaps"), &map("new", "1"))
        .await;
    assert_eq!((refused.code, refused.reason()), (403, "Forbidden"));
    assert_eq!(
        refused.message(),
        "configmaps \"new\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
    assert_eq!(
        causes(&refused),
        ["metadata.namespace NamespaceTerminating: namespace n is being terminated"]
    );
    let changed = admin
        .merge(
            &format!("{SPACES}/n/configmaps/held"),
            &json!({"data": {"v": "2"}}),
        )
        .await;
    assert_eq!(changed.code, 200, "what is there can be changed");
    let more = admin
        .merge(
            &format!("{SPACES}/n/configmaps/held"),
            &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        )
        .await;
    assert_eq!(more.code, 422);
    assert!(
        more.message()
            .contains("no new finalizers can be added if the object is being deleted"),
        "{}",
        more.message()
    );
    admin
        .merge(
            &format!("{SPACES}/n/configmaps/held"),
            &json!({"metadata": {"finalizers": []}}),
        )
        .await;
    gone(&admin, &format!("{SPACES}/n")).await;
}

#[tokio::test]
async fn finalizers_of_a_namespace_are_changed_by_finalize() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let made = space(&admin, "n").await;
    let mut with = made.clone();
    with["spec"]["finalizers"] = json!(["kubernetes", "example.com/own"]);
    let put = admin.put(&format!("{SPACES}/n/finalize"), &with).await;
    assert_eq!(
        (put.code, &put.body["spec"]["finalizers"]),
        (200, &json!(["kubernetes", "example.com/own"])),
        "{}",
        put.body
    );
    admin.delete(&format!("{SPACES}/n")).await;
    let waiting = until(&admin, &format!("{SPACES}/n"), |r| {
        r.body["spec"]["finalizers"] == json!(["example.com/own"])
    })
    .await
    .body;
    let mut none = waiting.clone();
    none["spec"]["finalizers"] = json!([]);
    assert_eq!(admin.put(&format!("{SPACES}/n/finalize"), &none).await.code, 200);
    gone(&admin, &format!("{SPACES}/n")).await;
}

#[tokio::test]
async fn some_namespaces_stay() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for name in ["default", "kube-system", "kube-public"] {
        let reply = admin.delete(&format!("{SPACES}/{name}")).await;
        assert_eq!((reply.code, reply.reason()), (403, "Forbidden"), "{name}");
        assert_eq!(
            reply.message(),
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted")
        );
    }
    assert_eq!(admin.delete(SPACES).await.code, 405);
}

#[tokio::test]
async fn pods_of_a_namespace_get_their_grace() {
    let server = TestServer::start().await;
    let admin = server.admin();
    space(&admin, "n").await;
    let pods = format!("{SPACES}/n/pods");
    let pod = |name: &str, node: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    create(&admin, &pods, &pod("running", json!("node-1"))).await;
    create(&admin, &pods, &pod("waiting", json!(null))).await;
    admin.delete(&format!("{SPACES}/n")).await;
    gone(&admin, &format!("{pods}/waiting")).await;
    let left = until(&admin, &format!("{pods}/running"), |r| {
        r.body["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(left.body["metadata"]["deletionGracePeriodSeconds"], 30);
    let stays = admin.get(&format!("{SPACES}/n")).await;
    assert_eq!(stays.body["status"]["phase"], "Terminating");
    let gone_now = admin
        .delete(&format!("{pods}/running?gracePeriodSeconds=0"))
        .await;
    assert_eq!(gone_now.code, 200);
    gone(&admin, &format!("{SPACES}/n")).await;
}

#[tokio::test]
async fn budgets_follow_their_pods() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    create(&admin, budgets, &budget).await;
    let empty = until(&admin, &format!("{budgets}/b"), |r| {
        r.body["status"]["observedGeneration"] == 1
    })
    .await
    .body;
    assert_eq!(
        (
            &empty["status"]["disruptionsAllowed"],
            &empty["status"]["currentHealthy"],
            &empty["status"]["desiredHealthy"],
            &empty["status"]["expectedPods"]
        ),
        (&json!(0), &json!(0), &json!(1), &json!(0))
    );
    let allowed = condition(&empty, "DisruptionAllowed");
    assert_eq!(
        (&allowed["status"], &allowed["reason"]),
        (&json!("False"), &json!("InsufficientPods"))
    );
    for name in ["p1", "p2"] {
        create(&admin, pods, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})).await;
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(
            admin.merge(&format!("{pods}/{name}/status"), &status).await.code,
            200
        );
    }
    let full = until(&admin, &format!("{budgets}/b"), |r| {
        r.body["status"]["currentHealthy"] == 2
    })
    .await
    .body;
    assert_eq!(
        (
            &full["status"]["disruptionsAllowed"],
            &full["status"]["expectedPods"]
        ),
        (&json!(1), &json!(2))
    );
    assert_eq!(condition(&full, "DisruptionAllowed")["reason"], "SufficientPods");
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let first = admin.post(&format!("{pods}/p1/eviction"), &eviction("p1")).await;
    assert_eq!(
        (first.code, &first.body["status"]),
        (201, &json!("Success")),
        "{}",
        first.body
    );
    until(&admin, &format!("{budgets}/b"), |r| {
        r.body["status"]["currentHealthy"] == 1
    })
    .await;
    let second = admin.post(&format!("{pods}/p2/eviction"), &eviction("p2")).await;
    assert_eq!(
        (second.code, second.reason(), second.message()),
        (
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget."
        )
    );
    assert_eq!(
        causes(&second),
        [" DisruptionBudget: The disruption budget b needs 1 healthy pods and has 1 currently"],
        "{}",
        second.body
    );
    assert_eq!(
        admin
            .delete(&format!("{pods}/p1?gracePeriodSeconds=0"))
            .await
            .code,
        200
    );
    let after = until(&admin, &format!("{budgets}/b"), |r| {
        r.body["status"]["expectedPods"] == 1
    })
    .await
    .body;
    assert_eq!(after["status"]["disruptionsAllowed"], 0);
}

#[tokio::test]
async fn old_events_vanish() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let events = "/api/v1/namespaces/default/events";
    let now = server.clock().stamp();
    let event = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "R", "type": "Normal", "message": "m", "lastTimestamp": now,
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "default"}})
    };
    create(&admin, events, &event("old")).await;
    server.clock().advance(SignedDuration::from_mins(59));
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(admin.get(&format!("{events}/old")).await.code, 200);
    create(&admin, events, &{
        let mut e = event("young");
        e["lastTimestamp"] = json!(server.clock().stamp());
        e
    })
    .await;
    server.clock().advance(SignedDuration::from_mins(2));
    gone(&admin, &format!("{events}/old")).await;
    assert_eq!(admin.get(&format!("{events}/young")).await.code, 200);
}

#[tokio::test]
async fn pods_keep_to_the_security_their_namespace_asks_for() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "safe", "labels": labels}});
    create(&admin, "/api/v1/namespaces", &namespace).await;
    let pod = |name: &str, context: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "a", "image": "x", "securityContext": context}]}})
    };
    let pods = "/api/v1/namespaces/safe/pods";
    let refused = admin.post(pods, &pod("bad", json!({"privileged": true}))).await;
    assert_eq!((refused.code, refused.reason()), (403, "Forbidden"));
    assert_eq!(
        refused.message(),
        "pods \"bad\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"a\" must not set securityContext.privileged=true)"
    );
    let warned = admin.post(pods, &pod("plain", json!({}))).await;
    assert_eq!(warned.code, 201, "{}", warned.body);
    assert!(
        warned.warnings()[0].contains(
            "would violate PodSecurity \\\"restricted:latest\\\": allowPrivilegeEscalation != false"
        ),
        "{:?}",
        warned.warnings()
    );
    let free = admin
        .post(
            "/api/v1/namespaces/default/pods",
            &pod("bad", json!({"privileged": true})),
        )
        .await;
    assert_eq!((free.code, free.warnings()), (201, Vec::new()));
    let wrong = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "strict"}}});
    let refused = admin.merge("/api/v1/namespaces/safe", &wrong).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.body["details"]["causes"][0]["field"],
        "metadata.labels[pod-security.kubernetes.io/enforce]"
    );
}
