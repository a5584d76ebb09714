// SPDX-License-Identifier: Apache-2.0
//! The server's first steps: it starts empty, keeps what it was given, and forgets nothing when it
//! stops.

use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Authorization, Config, Keys};
use serde_json::json;

fn on_disk(dir: &std::path::Path) -> Config {
    Config {
        data_dir: Some(dir.to_owned()),
        authorization: Authorization::AlwaysAllow,
        ..Config::default()
    }
}

#[tokio::test]
async fn a_new_server_has_what_every_cluster_begins_with() {
    let server = TestServer::start().await;
    let list = server.admin().get("/api/v1/namespaces").await;
    let names: Vec<&str> = list.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    let service = server
        .admin()
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await;
    assert_eq!(service.body["spec"]["clusterIP"], "10.96.0.1");
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    ] {
        let path = format!("{classes}/{name}");
        let class = server.admin().get(&path).await.body;
        assert_eq!(
            (&class["value"], &class["preemptionPolicy"]),
            (
                &serde_json::json!(value),
                &serde_json::json!("PreemptLowerPriority")
            )
        );
        let refused = server.admin().delete(&path).await;
        assert_eq!(refused.code, 403);
        assert!(
            refused
                .message()
                .ends_with("this is a system priority class and cannot be deleted")
        );
    }
}

/// The service of the API leads to the server, in both kinds that tell it; whatever was made of them
/// is put right with the next start.
#[tokio::test]
async fn the_service_of_the_api_has_a_destination() {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for round in 0..2 {
        let server = TestServer::with(on_disk(dir.path())).await;
        let admin = server.admin();
        let port = admin.get(service).await.body["spec"]["ports"][0]["targetPort"].clone();
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let old = admin.get(endpoints).await.body;
        assert_eq!(
            old["subsets"],
            json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}]),
            "start {round}"
        );
        let new = admin.get(slices).await.body;
        assert_eq!(
            (&new["endpoints"], &new["ports"], &new["addressType"]),
            (
                &json!([{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]),
                &ports,
                &json!("IPv4")
            )
        );
        assert_eq!(
            (&old["metadata"]["labels"], &new["metadata"]["labels"]),
            (
                &json!({"endpointslice.kubernetes.io/skip-mirror": "true"}),
                &json!({"kubernetes.io/service-name": "kubernetes"})
            )
        );
        let elsewhere = json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}]}]});
        assert_eq!(admin.merge(endpoints, &elsewhere).await.code, 200);
        assert_eq!(admin.delete(slices).await.code, 200);
        server.stop().await;
    }
}

#[tokio::test]
async fn objects_and_definitions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}}}}}]},
    });
    let first = TestServer::with(on_disk(dir.path())).await;
    let admin = first.admin();
    assert_eq!(
        admin
            .post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                &definition
            )
            .await
            .code,
        201
    );
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    let created = admin
        .post("/apis/example.com/v1/namespaces/default/widgets", &widget)
        .await;
    assert_eq!((created.code, &created.body["spec"]["size"]), (201, &json!(3)));
    let revision: u64 = created.body["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    first.stop().await;

    let second = TestServer::with(on_disk(dir.path())).await;
    let found = second
        .admin()
        .get("/apis/example.com/v1/namespaces/default/widgets/w")
        .await;
    assert_eq!(found.body["metadata"], created.body["metadata"]);
    let mut watch = second
        .admin()
        .watch(&format!(
            "/apis/example.com/v1/widgets?watch=true&resourceVersion={}",
            revision - 1
        ))
        .await;
    assert_eq!(
        watch.expect().await["object"]["metadata"]["name"],
        "w",
        "history survives too"
    );
    let next = second
        .admin()
        .merge(
            "/apis/example.com/v1/namespaces/default/widgets/w",
            &json!({"spec": {"size": 4}}),
        )
        .await;
    let later: u64 = next.body["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(later > revision);
    let sound = || {
        let report = cobaltcore_apiserver::check(&dir.path().join("state.db"), &Keys::default()).unwrap();
        assert!(report.problems.is_empty() && report.objects > 10, "{report:?}");
    };
    sound();
    second.stop().await;
    sound();
}

#[tokio::test]
async fn a_second_server_cannot_have_the_same_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let _first = TestServer::with(on_disk(dir.path())).await;
    let error = TestServer::try_with(on_disk(dir.path())).await.unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn a_hundred_servers_live_side_by_side() {
    let mut servers = Vec::new();
    for n in 0..100 {
        let server = TestServer::start().await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("only-{n}")}});
        assert_eq!(
            server
                .admin()
                .post("/api/v1/namespaces/default/configmaps", &map)
                .await
                .code,
            201
        );
        servers.push(server);
    }
    for (n, server) in servers.iter().enumerate() {
        let own = format!("/api/v1/namespaces/default/configmaps/only-{n}");
        assert_eq!(server.admin().get(&own).await.code, 200);
        let other = format!("/api/v1/namespaces/default/configmaps/only-{}", (n + 1) % 100);
        assert_eq!(server.admin().get(&other).await.code, 404);
    }
}

#[tokio::test]
async fn the_user_s_own_kubeconfig_gets_a_context_on_request() {
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join(".kube/config");
    let start = async |merge: bool| {
        TestServer::with(Config {
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig_merge: merge.then(|| own.clone()),
            ..on_disk(&home.path().join("kube"))
        })
        .await
    };
    start(false).await.stop().await;
    assert!(!own.exists(), "nothing is touched unasked");
    start(true).await.stop().await;
    let first = std::fs::read_to_string(&own).unwrap();
    assert!(first.contains("current-context: \"cobaltcore\""), "{first}");
    let theirs = first.replace("cobaltcore", "production");
    std::fs::write(&own, &theirs).unwrap();
    start(true).await.stop().await;
    let merged = std::fs::read_to_string(&own).unwrap();
    assert!(merged.contains("current-context: \"production\""), "{merged}");
    for name in ["production", "cobaltcore"] {
        let context = format!("    user: \"{name}\"\n  name: \"{name}\"");
        assert!(merged.contains(&context), "{name} is missing in {merged}");
    }
}

#[tokio::test]
async fn what_is_on_disk_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let server = TestServer::with(Config {
        listen: vec![([127, 0, 0, 1], 0).into()],
        port_given: true,
        ..on_disk(dir.path())
    })
    .await;
    let mut seen = Vec::new();
    for folder in [dir.path().to_owned(), dir.path().join("pki")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let wanted = if entry.path().is_dir() { 0o700 } else { 0o600 };
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o777,
                wanted,
                "{:?}",
                entry.path()
            );
            seen.push(entry.file_name().into_string().unwrap());
        }
    }
    for file in ["state.db", "state.db-wal", "kubeconfig", "lock", "ca.key"] {
        assert!(
            seen.iter().any(|name| name == file),
            "{file} is missing in {seen:?}"
        );
    }
    server.stop().await;
}
