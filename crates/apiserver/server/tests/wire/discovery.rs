// SPDX-License-Identifier: Apache-2.0
//! What is served, as clients find out: groups, versions, resources, plain and aggregated, and the
//! paths that are no resources.

use crate::requests::*;
use cobaltcore_apiserver::testkit::TestServer;
use http::Method;
use serde_json::{Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn plain_discovery() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for path in ["/api", "/api/"] {
        let reply = admin.get(path).await;
        assert_eq!(
            (&reply.body["kind"], &reply.body["versions"]),
            (&json!("APIVersions"), &json!(["v1"])),
            "{path}"
        );
        assert_eq!(
            reply.body["serverAddressByClientCIDRs"][0]["clientCIDR"],
            "0.0.0.0/0"
        );
    }
    let groups = admin.get("/apis").await;
    assert_eq!(
        (&groups.body["kind"], &groups.body["apiVersion"]),
        (&json!("APIGroupList"), &json!("v1"))
    );
    let autoscaling = groups.body["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["name"] == "autoscaling")
        .unwrap();
    let entry = |v: &str| json!({"groupVersion": format!("autoscaling/{v}"), "version": v});
    assert_eq!(
        *autoscaling,
        json!({"name": "autoscaling", "versions": [entry("v2"), entry("v1")], "preferredVersion": entry("v2")})
    );
    let group = admin.get("/apis/autoscaling/").await;
    assert_eq!(
        (
            &group.body["kind"],
            &group.body["apiVersion"],
            &group.body["name"]
        ),
        (&json!("APIGroup"), &json!("v1"), &json!("autoscaling"))
    );
}

#[tokio::test]
async fn resources_of_a_version() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let core = admin.get("/api/v1").await;
    assert_eq!(
        (&core.body["kind"], &core.body["groupVersion"]),
        (&json!("APIResourceList"), &json!("v1"))
    );
    let find = |reply: &Value, name: &str| {
        reply["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["name"] == name)
            .cloned()
            .unwrap_or(Value::Null)
    };
    let maps = find(&core.body, "configmaps");
    assert_eq!(
        maps,
        json!({"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap",
        "verbs": all, "shortNames": ["cm"], "storageVersionHash": "qFsyl6wFWjQ="})
    );
    assert_eq!(find(&core.body, "pods")["categories"], json!(["all"]));
    let namespaces: Vec<&str> = all.into_iter().filter(|v| *v != "deletecollection").collect();
    assert_eq!(find(&core.body, "namespaces")["verbs"], json!(namespaces));
    for (name, entry) in [
        (
            "bindings",
            json!({"name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"]}),
        ),
        (
            "pods/status",
            json!({"name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get", "patch", "update"]}),
        ),
        (
            "pods/binding",
            json!({"name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding", "verbs": ["create"]}),
        ),
        (
            "pods/eviction",
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}),
        ),
        (
            "namespaces/finalize",
            json!({"name": "namespaces/finalize", "singularName": "", "namespaced": false, "kind": "Namespace", "verbs": ["update"]}),
        ),
        (
            "serviceaccounts/token",
            json!({"name": "serviceaccounts/token", "singularName": "", "namespaced": true, "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"]}),
        ),
        (
            "replicationcontrollers/scale",
            json!({"name": "replicationcontrollers/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]}),
        ),
    ] {
        assert_eq!(find(&core.body, name), entry, "{name}");
    }
}

#[tokio::test]
async fn aggregated_discovery() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let ask = async |path: &str, extra: &[(&str, &str)]| {
        let mut headers = vec![("accept", AGGREGATED)];
        headers.extend_from_slice(extra);
        admin.send(Method::GET, path, &headers, "").await
    };
    let first = ask("/apis", &[]).await;
    assert_eq!(header(&first, "content-type"), AGGREGATED);
    assert_eq!(
        (header(&first, "vary"), header(&first, "cache-control")),
        ("Accept", "public")
    );
    assert_eq!(
        (
            &first.body["kind"],
            &first.body["apiVersion"],
            &first.body["metadata"]
        ),
        (
            &json!("APIGroupDiscoveryList"),
            &json!("apidiscovery.k8s.io/v2"),
            &json!({})
        )
    );
    let apps = first.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "apps")
        .unwrap();
    assert_eq!(
        (&apps["metadata"], &apps["versions"][0]["freshness"]),
        (&json!({"name": "apps"}), &json!("Current"))
    );
    let deployments = apps["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["resource"] == "deployments")
        .unwrap();
    assert_eq!(
        deployments["responseKind"],
        json!({"group": "", "version": "", "kind": "Deployment"})
    );
    assert_eq!(
        (&deployments["scope"], &deployments["shortNames"]),
        (&json!("Namespaced"), &json!(["deploy"]))
    );
    let scale = deployments["subresources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["subresource"] == "scale")
        .unwrap();
    assert_eq!(
        scale["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let etag = header(&first, "etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'));
    let unchanged = ask("/apis", &[("if-none-match", &etag)]).await;
    assert_eq!(
        (unchanged.code, unchanged.raw.len(), header(&unchanged, "etag")),
        (304, 0, etag.as_str())
    );
    made(&admin, DEFINITIONS, &widgets()).await;
    let changed = ask("/apis", &[("if-none-match", &etag)]).await;
    assert_eq!(changed.code, 200, "a new definition changes what is served");
    let core = ask("/api", &[]).await;
    assert_eq!(
        (
            core.body["items"].as_array().unwrap().len(),
            &core.body["items"][0]["versions"][0]["version"]
        ),
        (1, &json!("v1"))
    );
}

#[tokio::test]
async fn other_paths() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let version = admin.get("/version").await;
    assert_eq!(
        (&version.body["major"], &version.body["minor"]),
        (&json!("1"), &json!("36"))
    );
    assert!(version.body["gitVersion"].as_str().unwrap().starts_with("v1.36."));
    for path in [
        "/healthz",
        "/livez",
        "/readyz",
        "/healthz/ping",
        "/livez/ping",
        "/readyz/ping",
    ] {
        for method in ["GET", "POST"] {
            let reply = call(&admin, method, path, "", "").await;
            assert_eq!((reply.code, &reply.raw[..]), (200, &b"ok"[..]), "{method} {path}");
        }
    }
    let verbose = String::from_utf8(admin.get("/livez?verbose").await.raw.to_vec()).unwrap();
    assert!(
        verbose.starts_with("[+]ping ok\n") && verbose.ends_with("livez check passed\n"),
        "{verbose}"
    );
    let excluded = String::from_utf8(admin.get("/readyz?verbose&exclude=ping").await.raw.to_vec()).unwrap();
    assert!(
        excluded.contains("[+]ping excluded: ok\n") && excluded.ends_with("readyz check passed\n"),
        "{excluded}"
    );
    let root = admin.get("/").await;
    let paths: Vec<&str> = root.body["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_str().unwrap())
        .collect();
    for path in [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/version",
        "/openapi/v3",
    ] {
        assert!(paths.contains(&path), "{path}");
    }
    assert!(paths.is_sorted());
}
