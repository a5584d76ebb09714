// SPDX-License-Identifier: Apache-2.0
//! Deletion on the wire: preconditions, finalizers, grace, defaults per kind, and what is answered.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use serde_json::{Value, json};

#[tokio::test]
async fn what_is_gone_is_told() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let object = made(&admin, MAPS, &map("a")).await;
    let reply = admin.delete(&format!("{MAPS}/a")).await;
    let details = json!({"name": "a", "kind": "configmaps", "uid": object["metadata"]["uid"]});
    assert_eq!(
        reply.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    );
    let object = made(&admin, DEPLOYMENTS, &deployment("d")).await;
    let reply = admin.delete(&format!("{DEPLOYMENTS}/d")).await;
    let details =
        json!({"name": "d", "group": "apps", "kind": "deployments", "uid": object["metadata"]["uid"]});
    assert_eq!(reply.body["details"], details);
    made(&admin, PODS, &pod("p")).await;
    made(&admin, SERVICES, &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})).await;
    for (path, kind) in [(format!("{PODS}/p"), "Pod"), (format!("{SERVICES}/s"), "Service")] {
        let reply = admin.delete(&path).await;
        assert_eq!(
            (reply.code, &reply.body["kind"]),
            (200, &json!(kind)),
            "these answer the object"
        );
        assert_eq!(admin.get(&path).await.code, 404);
    }
}

#[tokio::test]
async fn preconditions() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let object = made(&admin, MAPS, &map("a")).await;
    let a = format!("{MAPS}/a");
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let here = json!({"kind": "ConfigMap", "name": "a"});
    for (preconditions, why) in [
        (
            json!({"uid": "x"}),
            format!(
                "the UID in the precondition (x) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ),
        (
            json!({"resourceVersion": "1"}),
            format!(
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({}). The object might have been modified",
                version(&object)
            ),
        ),
    ] {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
        let reply = call(&admin, "DELETE", &a, "application/json", &body.to_string()).await;
        let message = format!("Operation cannot be fulfilled on ConfigMap \"a\": {why}");
        assert_eq!(reply.body, failure(409, "Conflict", &message, Some(here.clone())));
    }
    let body = json!({"preconditions": {"uid": uid, "resourceVersion": version(&object)}});
    assert_eq!(
        call(&admin, "DELETE", &a, "application/json", &body.to_string())
            .await
            .code,
        200
    );
}

#[tokio::test]
async fn finalizers_hold_what_is_deleted() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut object = deployment("d");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    made(&admin, DEPLOYMENTS, &object).await;
    let d = format!("{DEPLOYMENTS}/d");
    let reply = admin.delete(&d).await;
    let meta = &reply.body["metadata"];
    assert_eq!(
        (
            reply.code,
            &meta["deletionGracePeriodSeconds"],
            &meta["generation"]
        ),
        (200, &json!(0), &json!(2))
    );
    assert!(meta["deletionTimestamp"].is_string());
    assert_eq!(
        version(&admin.delete(&d).await.body),
        version(&reply.body),
        "asking again changes nothing"
    );
    let again = admin.post(DEPLOYMENTS, &deployment("d")).await;
    assert_eq!(
        again.message(),
        "object is being deleted: deployments.apps \"d\" already exists"
    );
    let more = admin
        .merge(
            &d,
            &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        )
        .await;
    assert_eq!(more.code, 422);
    assert!(more.message().contains("no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}"), "{}", more.message());
    let revived = admin
        .merge(&d, &json!({"metadata": {"deletionTimestamp": null}}))
        .await;
    assert_eq!(
        (revived.code, &revived.body["metadata"]["deletionTimestamp"]),
        (200, &meta["deletionTimestamp"])
    );
    assert_eq!(
        admin
            .merge(&d, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .code,
        200,
        "other changes are fine"
    );
    let last = admin.merge(&d, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(
        (last.code, &last.body["metadata"]["finalizers"]),
        (200, &Value::Null)
    );
    assert_eq!(admin.get(&d).await.code, 404);
}

#[tokio::test]
async fn policies_become_finalizers() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "finalizers": ["x/y"]}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    made(&admin, JOBS, &job).await;
    let reply = admin.delete(&format!("{JOBS}/j")).await;
    assert_eq!(
        reply.body["metadata"]["finalizers"],
        json!(["x/y", "orphan"]),
        "jobs leave their pods behind by default"
    );
    let warning = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning\"";
    assert_eq!(reply.warnings(), [warning]);
    for (policy, expected) in [
        ("Foreground", json!(["x/y", "foregroundDeletion"])),
        ("Orphan", json!(["x/y", "orphan"])),
        ("Background", json!(["x/y"])),
    ] {
        let mut object = map(&policy.to_lowercase());
        object["metadata"]["finalizers"] = json!(["x/y"]);
        made(&admin, MAPS, &object).await;
        let reply = admin
            .delete(&format!(
                "{MAPS}/{}?propagationPolicy={policy}",
                policy.to_lowercase()
            ))
            .await;
        assert_eq!(reply.body["metadata"]["finalizers"], expected, "{policy}");
    }
}

#[tokio::test]
async fn pods_that_run_somewhere_get_time() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let mut object = pod("p");
    object["spec"]["nodeName"] = json!("n1");
    made(&admin, PODS, &object).await;
    let p = format!("{PODS}/p");
    for (query, grace) in [
        ("", 30),
        ("", 30),
        ("?gracePeriodSeconds=5", 5),
        ("?gracePeriodSeconds=50", 5),
    ] {
        let reply = admin.delete(&format!("{p}{query}")).await;
        assert_eq!(
            (reply.code, &reply.body["metadata"]["deletionGracePeriodSeconds"]),
            (200, &json!(grace)),
            "{query}"
        );
        assert_eq!(reply.body["metadata"]["generation"], json!(2));
    }
    assert_eq!(admin.delete(&format!("{p}?gracePeriodSeconds=0")).await.code, 200);
    assert_eq!(admin.get(&p).await.code, 404);
    for phase in ["Succeeded", "Failed"] {
        let mut object = pod("over");
        object["spec"]["nodeName"] = json!("n1");
        made(&admin, PODS, &object).await;
        admin
            .merge(
                &format!("{PODS}/over/status"),
                &json!({"status": {"phase": phase}}),
            )
            .await;
        admin.delete(&format!("{PODS}/over")).await;
        assert_eq!(admin.get(&format!("{PODS}/over")).await.code, 404, "{phase}");
    }
}

#[tokio::test]
async fn collections() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (name, colour) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"colour": colour});
        made(&admin, MAPS, &object).await;
    }
    let dry = admin
        .delete(&format!("{MAPS}?labelSelector=colour&dryRun=All"))
        .await;
    assert_eq!((dry.code, names(&dry)), (200, vec!["a", "b", "c"]));
    let reply = admin.delete(&format!("{MAPS}?labelSelector=colour=red")).await;
    assert_eq!(
        (reply.code, &reply.body["kind"], names(&reply)),
        (200, &json!("ConfigMapList"), vec!["a", "b"])
    );
    assert_eq!(
        names(&admin.get(&format!("{MAPS}?labelSelector=colour")).await),
        ["c"]
    );
    let reply = admin
        .delete(&format!("{MAPS}?fieldSelector=metadata.name=c"))
        .await;
    assert_eq!(names(&reply), ["c"]);
}

#[tokio::test]
async fn namespaces_leave_in_their_own_way() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for name in ["default", "kube-system", "kube-public"] {
        let reply = admin.delete(&format!("/api/v1/namespaces/{name}")).await;
        let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!(
            reply.body,
            failure(
                403,
                "Forbidden",
                &message,
                Some(json!({"kind": "namespaces", "name": name}))
            )
        );
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}});
    made(&admin, "/api/v1/namespaces", &namespace).await;
    let mut held = namespace.clone();
    held["spec"] = json!({"finalizers": ["kubernetes", "a/b"]});
    assert_eq!(admin.put("/api/v1/namespaces/t/finalize", &held).await.code, 200);
    let reply = admin.delete("/api/v1/namespaces/t").await;
    assert_eq!(
        (reply.code, &reply.body["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    assert_eq!(
        reply.body["metadata"]["deletionGracePeriodSeconds"],
        Value::Null,
        "there is no grace"
    );
    let refused = admin.post("/api/v1/namespaces/t/configmaps", &map("a")).await;
    let message = "configmaps \"a\" is forbidden: unable to create new content in namespace t because it is being terminated";
    let details = json!({"kind": "configmaps", "name": "a", "causes": [cause("NamespaceTerminating", "metadata.namespace", "namespace t is being terminated")]});
    assert_eq!(refused.body, failure(403, "Forbidden", message, Some(details)));
}
