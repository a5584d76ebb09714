// SPDX-License-Identifier: Apache-2.0
//! OpenAPI: what clients learn about the served types, and how long they may keep it.

use std::collections::BTreeSet;

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

use crate::words::{gone, until};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widgets(extra: &Value) -> Value {
    let mut spec = json!({
        "type": "object",
        "description": "what is wanted",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "enum": [1, 2, 3], "nullable": true},
            "port": {"x-kubernetes-int-or-string": true},
        },
    });
    for (name, schema) in extra.as_object().unwrap() {
        spec["properties"][name] = schema.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}},
            }],
        },
    })
}

async fn get(admin: &Caller, path: &str, headers: &[(&str, &str)]) -> Reply {
    admin.send(Method::GET, path, headers, "").await
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply
        .headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

async fn index(admin: &Caller) -> Vec<(String, String)> {
    let index = admin.get("/openapi/v3").await;
    assert_eq!(
        (index.code, header(&index, "content-type")),
        (200, "text/plain; charset=utf-8")
    );
    let paths = index.body["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, entry)| {
            (
                path.clone(),
                entry["serverRelativeURL"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

async fn address(admin: &Caller, path: &str) -> Option<String> {
    index(admin)
        .await
        .into_iter()
        .find(|(known, _)| known == path)
        .map(|(_, address)| address)
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

fn assert_resolved(document: &Value, path: &str) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    for target in found {
        // Names of definitions have neither tildes nor slashes, so the pointer needs no escapes.
        let target = target
            .strip_prefix('#')
            .unwrap_or_else(|| panic!("{path}: {target} leaves the document"));
        assert!(document.pointer(target).is_some(), "{path}: {target} is nowhere");
    }
}

#[tokio::test]
async fn documents_are_kept_under_their_hash() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let right = address(&admin, "api/v1").await.unwrap();
    let (plain, hash) = right.split_once("?hash=").unwrap();
    assert_eq!(plain, "/openapi/v3/api/v1");
    let etag = format!("\"{hash}\"");

    let found = get(&admin, &right, &[]).await;
    assert_eq!(
        (found.code, header(&found, "content-type")),
        (200, "application/json")
    );
    assert_eq!(header(&found, "cache-control"), "public, immutable");
    assert_eq!(header(&found, "etag"), etag);
    assert_eq!(header(&found, "vary"), "Accept");
    let year = server.clock().now().to_string()[..4].parse::<i32>().unwrap() + 1;
    assert!(
        header(&found, "expires").contains(&format!(" {year} ")),
        "{}",
        header(&found, "expires")
    );

    let unhashed = get(&admin, plain, &[]).await;
    assert_eq!(
        (unhashed.code, header(&unhashed, "cache-control")),
        (200, "no-cache, private")
    );
    assert_eq!(
        (header(&unhashed, "etag"), header(&unhashed, "expires")),
        (etag.as_str(), "")
    );
    assert_eq!(unhashed.raw, found.raw);

    let moved = get(&admin, "/openapi/v3/api/v1?hash=ABC", &[]).await;
    assert_eq!((moved.code, header(&moved, "location")), (301, right.as_str()));

    for address in [plain, right.as_str()] {
        let known = get(&admin, address, &[("if-none-match", &etag)]).await;
        assert_eq!(
            (known.code, known.raw.len(), header(&known, "etag")),
            (304, 0, etag.as_str())
        );
    }
    assert_eq!(
        get(&admin, plain, &[("if-none-match", "\"other\"")]).await.code,
        200
    );
    assert_eq!(get(&admin, "/openapi/v3/apis/nobody/v1", &[]).await.code, 404);
    assert_eq!(get(&admin, "/openapi/v4", &[]).await.code, 404);
}

#[tokio::test]
async fn documents_come_in_what_the_client_reads() {
    const THREE: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    const TWO: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    const TWO_NOW: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let server = TestServer::start().await;
    let admin = server.admin();
    let both = format!("{THREE}, application/json");
    for (path, accept, code, content_type) in [
        ("/openapi/v3/apis/apps/v1", "*/*", 200, "application/json"),
        ("/openapi/v3/apis/apps/v1", &both, 200, "application/json"),
        (
            "/openapi/v3/apis/apps/v1",
            THREE,
            406,
            "text/plain; charset=utf-8",
        ),
        ("/openapi/v2", "application/json", 200, "application/json"),
        ("/openapi/v2", TWO, 200, TWO_NOW),
        ("/openapi/v2", "text/html", 406, "text/plain; charset=utf-8"),
    ] {
        let reply = get(&admin, path, &[("accept", accept)]).await;
        assert_eq!(
            (reply.code, header(&reply, "content-type")),
            (code, content_type),
            "{path} as {accept}"
        );
    }
    let packed = get(&admin, "/openapi/v3/api/v1", &[("accept-encoding", "gzip")]).await;
    assert_eq!(header(&packed, "content-encoding"), "gzip");
    assert_eq!(packed.raw[..2], [0x1f, 0x8b]);
}

/// Every stored resource can be patched, and says so in the way kubectl looks for.
#[tokio::test]
async fn every_patch_names_its_kind_and_its_four_parameters() {
    let server = TestServer::start().await;
    let admin = server.admin();
    assert_eq!(admin.post(DEFINITIONS, &widgets(&json!({}))).await.code, 201);
    let mut seen = 0;
    for (path, address) in index(&admin).await {
        let document = get(&admin, &address, &[]).await.body;
        assert_eq!(document["openapi"], "3.0.0", "{path}");
        assert_eq!(
            document["components"]["securitySchemes"]["BearerToken"]["type"], "apiKey",
            "{path}"
        );
        assert_resolved(&document, &path);
        let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => (String::new(), version.to_owned()),
            ["apis", group, version] => (group.to_owned(), version.to_owned()),
            _ => continue,
        };
        let resources = admin.get(&format!("/{path}")).await.body;
        for resource in resources["resources"].as_array().unwrap() {
            if !resource["verbs"].as_array().unwrap().iter().any(|v| v == "patch") {
                continue;
            }
            let name = resource["name"].as_str().unwrap();
            let (plural, sub) = name
                .split_once('/')
                .map_or((name, String::new()), |(plural, sub)| (plural, format!("/{sub}")));
            let scope = if resource["namespaced"] == true {
                "/namespaces/{namespace}"
            } else {
                ""
            };
            let patch = &document["paths"][format!("/{path}{scope}/{plural}/{{name}}{sub}")]["patch"];
            assert_eq!(patch["x-kubernetes-action"], "patch", "{path} {name}");
            let about = &patch["x-kubernetes-group-version-kind"];
            let own = resource.get("version").is_none() || group == "shop.example.com";
            if own {
                assert_eq!(
                    (&about["group"], &about["version"]),
                    (&json!(group), &json!(version)),
                    "{path} {name}"
                );
                assert_eq!(about["kind"], resource["kind"], "{path} {name}");
            } else {
                assert_eq!(
                    (&about["group"], &about["kind"]),
                    (&resource["group"], &resource["kind"]),
                    "{path} {name}"
                );
            }
            let parameters: Vec<&Value> = patch["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| &p["name"])
                .collect();
            assert_eq!(
                parameters,
                ["dryRun", "fieldManager", "fieldValidation", "force"],
                "{path} {name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} patches were looked at");
}

#[tokio::test]
async fn schemas_carry_what_merging_and_explaining_need() {
    let server = TestServer::start().await;
    let document = server.admin().get("/openapi/v3/api/v1").await.body;
    let schemas = &document["components"]["schemas"];
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let metadata = &pod["properties"]["metadata"];
    assert_eq!(
        metadata["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(metadata["default"], json!({}));
    assert!(
        metadata["description"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"]["properties"];
    assert_eq!(
        (&port["protocol"]["default"], &port["containerPort"]["default"]),
        (&json!("TCP"), &json!(0))
    );
    assert_eq!(port["containerPort"]["format"], "int32");
    let list = &document["paths"]["/api/v1/pods"]["get"];
    assert_eq!(
        (&list["operationId"], &list["x-kubernetes-action"]),
        (&json!("listCoreV1PodForAllNamespaces"), &json!("list"))
    );
    let eviction = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
    assert_eq!(
        eviction["x-kubernetes-group-version-kind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
}

#[tokio::test]
async fn a_definition_changes_its_own_document_and_no_other() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = "apis/shop.example.com/v1";
    let before = index(&admin).await;
    assert!(!before.iter().any(|(known, _)| known == path));

    assert_eq!(admin.post(DEFINITIONS, &widgets(&json!({}))).await.code, 201);
    let created = index(&admin).await;
    let first = created.iter().find(|(known, _)| known == path).unwrap().1.clone();
    let others: Vec<_> = created.into_iter().filter(|(known, _)| known != path).collect();
    assert_eq!(others, before);

    let document = get(&admin, &first, &[]).await;
    assert_eq!(document.code, 200);
    assert_eq!(document.body["info"]["title"], "Kubernetes CRD Swagger");
    let schemas = &document.body["components"]["schemas"];
    let widget = &schemas["com.example.shop.v1.Widget"];
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "shop.example.com", "version": "v1", "kind": "Widget"}])
    );
    let spec = &widget["properties"]["spec"];
    assert_eq!(spec["description"], "what is wanted");
    assert_eq!(
        spec["properties"]["size"],
        json!({"type": "integer", "enum": [1, 2, 3], "nullable": true})
    );
    assert_eq!(
        spec["properties"]["port"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    let list = &schemas["com.example.shop.v1.WidgetList"];
    assert_eq!(
        list["properties"]["items"]["items"]["$ref"],
        "#/components/schemas/com.example.shop.v1.Widget"
    );
    assert!(document.body["paths"]["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}/status"]["patch"].is_object());

    let patch = json!([{
        "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour", "value": {"type": "string"},
    }]);
    assert_eq!(
        admin
            .json_patch(&format!("{DEFINITIONS}/widgets.shop.example.com"), &patch)
            .await
            .code,
        200
    );
    let moved = get(&admin, &first, &[]).await;
    assert_eq!(moved.code, 301, "the old hash is no longer right");
    let now = get(&admin, header(&moved, "location"), &[]).await;
    assert_eq!(
        now.body["components"]["schemas"]["com.example.shop.v1.Widget"]["properties"]["spec"]["properties"]["colour"],
        json!({"type": "string"})
    );

    assert_eq!(
        admin
            .delete(&format!("{DEFINITIONS}/widgets.shop.example.com"))
            .await
            .code,
        200
    );
    // Its objects go first, then the definition, then what described it.
    gone(&admin, &format!("{DEFINITIONS}/widgets.shop.example.com")).await;
    until(&admin, &first, |reply| reply.code == 404).await;
    assert_eq!(index(&admin).await, before);
}

#[tokio::test]
async fn version_two_describes_everything_at_once() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let before = get(&admin, "/openapi/v2", &[]).await;
    assert_eq!((before.code, &before.body["swagger"]), (200, &json!("2.0")));
    assert_resolved(&before.body, "v2");
    let definitions = before.body["definitions"].as_object().unwrap();
    for name in [
        "io.k8s.api.core.v1.Pod",
        "io.k8s.api.apps.v1.DeploymentList",
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    ] {
        assert!(definitions.contains_key(name), "{name}");
    }
    let etag = header(&before, "etag").to_owned();
    assert_eq!(
        get(&admin, "/openapi/v2", &[("if-none-match", &etag)]).await.code,
        304
    );

    assert_eq!(admin.post(DEFINITIONS, &widgets(&json!({}))).await.code, 201);
    let after = get(&admin, "/openapi/v2", &[("if-none-match", &etag)]).await;
    assert_eq!(after.code, 200);
    assert_resolved(&after.body, "v2");
    let spec = &after.body["definitions"]["com.example.shop.v1.Widget"]["properties"]["spec"];
    assert_eq!(
        spec["properties"]["size"],
        json!({"enum": [1, 2, 3]}),
        "null is not refused"
    );
    assert_eq!(spec.get("required"), None, "what may be null is not required");
    let patch =
        &after.body["paths"]["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert!(
        patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
    );
}

#[tokio::test]
async fn fields_that_take_some_values_only_list_them() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let document = admin.get("/openapi/v3/api/v1").await;
    let schemas = &document.body["components"]["schemas"];
    let of =
        |kind: &str, field: &str| schemas[format!("io.k8s.api.core.v1.{kind}")]["properties"][field].clone();
    assert_eq!(
        of("PodSpec", "restartPolicy")["enum"],
        json!(["Always", "Never", "OnFailure"])
    );
    assert_eq!(
        of("PersistentVolumeClaimSpec", "accessModes")["items"]["enum"],
        json!([
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOnce",
            "ReadWriteOncePod"
        ])
    );
    let all = admin.get("/openapi/v2").await;
    assert_eq!(
        all.body["definitions"]["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"]["enum"],
        json!(["Always", "IfNotPresent", "Never"])
    );
}

/// `/version` answers no kind, and is described all the same.
#[tokio::test]
async fn the_version_document_describes_what_is_answered() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let document = admin.get("/openapi/v3/version").await.body;
    assert_eq!(
        document["info"],
        json!({"title": "Kubernetes", "version": "1.36"})
    );
    let name = "io.k8s.apimachinery.pkg.version.Info";
    let media = &document["paths"]["/version/"]["get"]["responses"]["200"]["content"]["application/json"];
    assert_eq!(media["schema"]["$ref"], format!("#/components/schemas/{name}"));
    let described = &document["components"]["schemas"][name]["properties"];
    let described: BTreeSet<&String> = described.as_object().unwrap().keys().collect();
    let answered = admin.get("/version").await.body;
    let answered: BTreeSet<&String> = answered.as_object().unwrap().keys().collect();
    assert_eq!(described, answered);
}

/// The old paths of watches are described beside those that took their place.
#[tokio::test]
async fn old_paths_of_watches_are_described() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let document = get(&admin, "/openapi/v3/apis/apps/v1", &[]).await.body;
    for (path, id, action) in [
        (
            "deployments",
            "watchAppsV1DeploymentListForAllNamespaces",
            "watchlist",
        ),
        (
            "namespaces/{namespace}/deployments",
            "watchAppsV1NamespacedDeploymentList",
            "watchlist",
        ),
        (
            "namespaces/{namespace}/deployments/{name}",
            "watchAppsV1NamespacedDeployment",
            "watch",
        ),
    ] {
        let operation = &document["paths"][format!("/apis/apps/v1/watch/{path}")]["get"];
        assert_eq!(
            (&operation["operationId"], &operation["x-kubernetes-action"]),
            (&json!(id), &json!(action))
        );
        let answer =
            &operation["responses"]["200"]["content"]["application/json;stream=watch"]["schema"]["$ref"];
        let name = answer.as_str().and_then(|r| r.rsplit('/').next()).unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    let old = get(&admin, "/openapi/v2", &[]).await.body;
    assert!(old["paths"]["/api/v1/watch/nodes/{name}"]["get"].is_object());
    assert!(old["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"].is_object());
}

/// What a field is when nobody sets it is part of its description.
#[tokio::test]
async fn defaults_are_described() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let document = get(&admin, "/openapi/v3/api/v1", &[]).await.body;
    for (definition, field, default) in [
        ("ServicePort", "protocol", json!("TCP")),
        ("ReplicationControllerSpec", "replicas", json!(1)),
        ("LocalObjectReference", "name", json!("")),
        ("RBDVolumeSource", "pool", json!("rbd")),
        ("PodList", "metadata", json!({})),
    ] {
        let schema = &document["components"]["schemas"][format!("io.k8s.api.core.v1.{definition}")];
        assert_eq!(
            schema["properties"][field]["default"], default,
            "{definition}.{field}"
        );
    }
}
