// SPDX-License-Identifier: Apache-2.0
//! Forms of answers: tables, metadata only, YAML, indented, compressed.

use crate::requests::*;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

async fn get_as(caller: &Caller, path: &str, accept: &str) -> Reply {
    caller.send(Method::GET, path, &[("accept", accept)], "").await
}

#[tokio::test]
async fn columns_of_built_in_kinds() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (path, columns) in [
        (
            "/api/v1/pods",
            "Name Ready Status Restarts Age IP* Node* Nominated_Node* Readiness_Gates*",
        ),
        (
            "/api/v1/nodes",
            "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*",
        ),
        ("/api/v1/namespaces", "Name Status Age"),
        (
            "/api/v1/services",
            "Name Type Cluster-IP External-IP Port(s) Age Selector*",
        ),
        ("/api/v1/configmaps", "Name Data Age"),
        ("/api/v1/secrets", "Name Type Data Age"),
        ("/api/v1/serviceaccounts", "Name Age"),
        (
            "/api/v1/events",
            "Last_Seen Type Reason Object Subobject* Source* Message First_Seen* Count* Name*",
        ),
        (
            "/apis/apps/v1/deployments",
            "Name Ready Up-to-date Available Age Containers* Images* Selector*",
        ),
        ("/apis/apps/v1/statefulsets", "Name Ready Age Containers* Images*"),
        (
            "/apis/apps/v1/daemonsets",
            "Name Desired Current Ready Up-to-date Available Node_Selector Age Containers* Images* Selector*",
        ),
        (
            "/apis/apps/v1/replicasets",
            "Name Desired Current Ready Age Containers* Images* Selector*",
        ),
        (
            "/apis/batch/v1/jobs",
            "Name Status Completions Duration Age Containers* Images* Selector*",
        ),
        (
            "/apis/batch/v1/cronjobs",
            "Name Schedule Timezone Suspend Active Last_Schedule Age Containers* Images* Selector*",
        ),
        ("/apis/coordination.k8s.io/v1/leases", "Name Holder Age"),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            "Name Min_Available Max_Unavailable Allowed_Disruptions Age",
        ),
    ] {
        let reply = get_as(&admin, path, TABLE).await;
        let shown: Vec<String> = reply.body["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                let star = if c["priority"] == 1 { "*" } else { "" };
                format!("{}{star}", c["name"].as_str().unwrap().replace(' ', "_"))
            })
            .collect();
        assert_eq!(shown.join(" "), columns, "{path}");
        for column in reply.body["columnDefinitions"].as_array().unwrap() {
            assert!(
                column["description"].is_string()
                    && column["type"].is_string()
                    && column["format"].is_string(),
                "{path}: {column}"
            );
        }
    }
}

#[tokio::test]
async fn rows_carry_what_was_asked_for() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map_of("m", json!({"a": "1", "b": "2"}))).await;
    let path = format!("{MAPS}/m");
    let single = get_as(&admin, &path, TABLE).await;
    assert_eq!(
        (&single.body["kind"], &single.body["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(
        single.body["metadata"]["resourceVersion"],
        json!(version(&admin.get(&path).await.body))
    );
    let cells = &single.body["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1]), (&json!("m"), &json!(2)));
    for (include, kind) in [
        ("Metadata", json!("PartialObjectMetadata")),
        ("Object", json!("ConfigMap")),
        ("None", Value::Null),
        ("", json!("PartialObjectMetadata")),
    ] {
        let reply = get_as(&admin, &format!("{path}?includeObject={include}"), TABLE).await;
        assert_eq!(reply.body["rows"][0]["object"]["kind"], kind, "{include}");
    }
    let wrong = get_as(&admin, &format!("{path}?includeObject=foo"), TABLE).await;
    let message = "Unable to convert to Table as requested: includeObject: Invalid value: \"foo\": must be 'Metadata', 'Object', 'None', or empty";
    assert_eq!(wrong.body, failure(400, "BadRequest", message, None));
    let page = get_as(&admin, "/api/v1/namespaces?limit=1", TABLE).await;
    assert!(
        page.body["metadata"]["continue"].is_string()
            && page.body["metadata"]["remainingItemCount"].is_number()
    );
    let created = admin
        .send(
            Method::POST,
            MAPS,
            &[("accept", TABLE), ("content-type", "application/json")],
            map("n").to_string(),
        )
        .await;
    assert_eq!(
        (created.code, &created.body["kind"]),
        (201, &json!("Table")),
        "writes too"
    );
    made(&admin, DEFINITIONS, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let custom = get_as(&admin, WIDGETS, TABLE).await;
    let names: Vec<&str> = custom.body["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        (names, &custom.body["rows"][0]["cells"][0]),
        (vec!["Name", "Age"], &json!("w"))
    );
}

#[tokio::test]
async fn metadata_only() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let single = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let whole = admin.get("/api/v1/namespaces/default").await.body;
    let reply = get_as(&admin, "/api/v1/namespaces/default", single).await;
    assert_eq!(
        reply.body,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]})
    );
    let reply = get_as(&admin, "/api/v1/namespaces", list).await;
    assert_eq!(
        (&reply.body["kind"], &reply.body["items"][0]["kind"]),
        (
            &json!("PartialObjectMetadataList"),
            &json!("PartialObjectMetadata")
        )
    );
    for (path, accept, message) in [
        (
            "/api/v1/namespaces/default",
            list,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Namespace)",
        ),
        (
            "/api/v1/namespaces",
            single,
            "you requested PartialObjectMetadata, but the requested object is a list",
        ),
    ] {
        let reply = get_as(&admin, path, accept).await;
        assert_eq!((reply.code, reply.reason()), (406, "NotAcceptable"), "{path}");
        assert!(reply.message().starts_with(message), "{}", reply.message());
    }
}

#[tokio::test]
async fn the_first_acceptable_form_wins() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (accept, content, kind) in [
        ("", "application/json", "Namespace"),
        ("*/*", "application/json", "Namespace"),
        ("text/html, */*", "application/json", "Namespace"),
        ("application/json; charset=utf-8", "application/json", "Namespace"),
        ("application/yaml", "application/yaml", ""),
        ("application/yaml, application/json", "application/yaml", ""),
        (
            "application/json;q=0.2,application/yaml;q=0.8",
            "application/yaml",
            "",
        ),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v9,application/json",
            "application/json",
            "Namespace",
        ),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
            "application/json",
            "Table",
        ),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "application/json",
            "Table",
        ),
    ] {
        let reply = get_as(&admin, "/api/v1/namespaces/default", accept).await;
        assert_eq!(
            (reply.code, header(&reply, "content-type")),
            (200, content),
            "{accept}"
        );
        assert_eq!(reply.body["kind"].as_str().unwrap_or_default(), kind, "{accept}");
    }
}

#[tokio::test]
async fn yaml_in_and_out() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let post = async |text: &str| call(&admin, "POST", MAPS, "application/yaml", text).await;
    let made = post("# a comment\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: y1}\ndata:\n  a: \"yes\"\n  b: |\n    two\n    lines\n").await;
    assert_eq!(
        (made.code, &made.body["data"]),
        (201, &json!({"a": "yes", "b": "two\nlines\n"}))
    );
    let wrong = post("kind: ConfigMap\napiVersion: v1\nmetadata: {name: y2}\ndata: {a: yes}\n").await;
    assert_eq!(
        wrong.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal bool into Go struct field ConfigMap.data of type string"
    );
    let octal = post("kind: ConfigMap\napiVersion: v1\nmetadata: {name: y3}\ndata: {a: 010}\n").await;
    assert_eq!(octal.code, 400, "010 is the number 8");
    let broken = post("kind: ConfigMap\napiVersion: v1\nmetadata: {name: y2\n").await;
    assert_eq!((broken.code, broken.reason()), (400, "BadRequest"));
    assert!(
        broken
            .message()
            .starts_with("the object provided is unrecognized (must be of type ConfigMap): yaml: "),
        "{}",
        broken.message()
    );
    let out = get_as(&admin, &format!("{MAPS}/y1"), "application/yaml").await;
    let text = String::from_utf8(out.raw.to_vec()).unwrap();
    assert!(
        text.starts_with(
            "apiVersion: v1\ndata:\n  a: \"yes\"\n  b: |\n    two\n    lines\nkind: ConfigMap\n"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn long_answers_are_compressed_for_those_who_accept_it() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for n in 0..5 {
        made(
            &admin,
            MAPS,
            &map_of(&format!("big{n}"), json!({"x": "y".repeat(60_000)})),
        )
        .await;
    }
    for (accept, compressed) in [
        ("gzip", true),
        ("deflate, gzip", true),
        ("gzip;q=0", false),
        ("identity", false),
    ] {
        let reply = admin
            .send(Method::GET, MAPS, &[("accept-encoding", accept)], "")
            .await;
        assert_eq!(
            header(&reply, "content-encoding") == "gzip",
            compressed,
            "{accept}"
        );
        assert_eq!(
            header(&reply, "vary").contains("Accept-Encoding"),
            compressed,
            "{accept}"
        );
        assert_eq!(reply.raw.starts_with(&[0x1f, 0x8b]), compressed, "{accept}");
    }
    let small = admin
        .send(
            Method::GET,
            &format!("{MAPS}/big0"),
            &[("accept-encoding", "gzip")],
            "",
        )
        .await;
    assert_eq!(header(&small, "content-encoding"), "");
}
