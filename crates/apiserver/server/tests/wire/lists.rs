// SPDX-License-Identifier: Apache-2.0
//! Reading on the wire: selectors, pages that come from one state, exact revisions, and revisions
//! nobody has seen yet.

use crate::requests::*;
use crate::words::until;
use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::json;

/// Seven maps m0 to m6 labelled with their number and their parity, in a namespace of their own.
async fn seven(admin: &Caller) -> &'static str {
    made(
        admin,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lists"}}),
    )
    .await;
    let path = "/api/v1/namespaces/lists/configmaps";
    for n in 0..7 {
        let mut object = map(&format!("m{n}"));
        object["metadata"]["labels"] = json!({"n": n.to_string(), "odd": (n % 2 == 1).to_string()});
        made(admin, path, &object).await;
    }
    // The certificate of a new namespace comes when it comes, and would change what is counted.
    until(admin, &format!("{path}/kube-root-ca.crt"), |reply| {
        reply.code == 200
    })
    .await;
    path
}

#[tokio::test]
async fn label_selectors_select() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = seven(&admin).await;
    for (selector, expected) in [
        ("n=3", "m3"),
        ("n==3", "m3"),
        ("n in (1,2)", "m1 m2"),
        ("n in (1, 2),odd in (false)", "m2"),
        ("n notin (0,1,2,3,4),n", "m5 m6"),
        ("n,n!=0,n!=1,n!=2,n!=3", "m4 m5 m6"),
        ("n>4", "m5 m6"),
        ("n<2", "m0 m1"),
        ("n > 1, n < 3", "m2"),
        ("  odd = true ", "m1 m3 m5"),
        ("missing", ""),
        ("missing=", ""),
        ("n in ()", ""),
        ("!missing,n=6", "m6"),
        ("missing!=x,n=6", "m6"),
        ("missing notin (x),n=6", "m6"),
    ] {
        let reply = call(&admin, "GET", &format!("{path}?labelSelector={selector}"), "", "").await;
        let found: Vec<&str> = names(&reply).into_iter().filter(|n| n.starts_with('m')).collect();
        assert_eq!(found.join(" "), expected, "{selector}: {}", reply.code);
    }
}

#[tokio::test]
async fn label_selectors_that_do_not_parse() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let part = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    for (selector, message) in [
        ("x=y=z", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("=x", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("a=b,", "found '', expected: identifier after ','".to_owned()),
        ("a,,b", "found ',', expected: identifier after ','".to_owned()),
        ("n in 1", "unable to parse requirement: found '1' expected: '('".to_owned()),
        ("n in (1", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("n>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        ("-a=b", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {part}")),
        ("a=-b", format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {value}")),
    ] {
        let reply = call(&admin, "GET", &format!("{MAPS}?labelSelector={selector}"), "", "").await;
        assert_eq!(reply.body, failure(400, "BadRequest", &message, None), "{selector}");
    }
}

#[tokio::test]
async fn field_selectors() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = seven(&admin).await;
    for (selector, expected) in [
        ("metadata.name=m1", "m1"),
        ("metadata.name==m1,metadata.namespace=lists", "m1"),
        ("metadata.namespace=other", ""),
        ("metadata.name=m1,metadata.name=m2", ""),
        ("metadata.name=m1,", "m1"),
        (
            "metadata.name!=m0,metadata.name!=m1,metadata.name!=m2,metadata.name!=m3,metadata.name!=m4,metadata.name!=kube-root-ca.crt",
            "m5 m6",
        ),
    ] {
        let reply = admin.get(&format!("{path}?fieldSelector={selector}")).await;
        assert_eq!(names(&reply).join(" "), expected, "{selector}");
    }
    let only = |label: &str| {
        format!("\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    };
    for (collection, selector, message) in [
        (MAPS, "foo=bar", only("foo")),
        (DEPLOYMENTS, "spec.foo=x", only("spec.foo")),
        (
            PODS,
            "spec.foo=x",
            "field label not supported: spec.foo".to_owned(),
        ),
        (
            "/api/v1/nodes",
            "foo=1",
            "field label not supported: foo".to_owned(),
        ),
        (SECRETS, "foo=1", "field label not supported: foo".to_owned()),
        (
            "/api/v1/events",
            "foo=1",
            "field label not supported: foo".to_owned(),
        ),
        (
            JOBS,
            "foo=1",
            "field label \"foo\" not supported for Job".to_owned(),
        ),
        (
            MAPS,
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'".to_owned(),
        ),
        (
            MAPS,
            "metadata.name=a,b",
            "invalid selector: 'metadata.name=a,b'; can't understand 'b'".to_owned(),
        ),
    ] {
        let reply = admin.get(&format!("{collection}?fieldSelector={selector}")).await;
        assert_eq!(
            reply.body,
            failure(400, "BadRequest", &message, None),
            "{collection} {selector}"
        );
    }
    let active = admin
        .get("/api/v1/namespaces?fieldSelector=status.phase=Active,metadata.name=default")
        .await;
    assert_eq!(names(&active), ["default"]);
    // Kinds without labels of their own know both of the metadata, also at the cluster scope.
    for (selector, found) in [
        ("metadata.namespace=x", 0),
        ("metadata.namespace=,metadata.name=view", 1),
    ] {
        let roles = admin
            .get(&format!(
                "/apis/rbac.authorization.k8s.io/v1/clusterroles?fieldSelector={selector}"
            ))
            .await;
        assert_eq!((roles.code, names(&roles).len()), (200, found), "{selector}");
    }
    let nodes = admin
        .get("/api/v1/nodes?fieldSelector=metadata.namespace=x")
        .await;
    assert_eq!(
        nodes.body["message"],
        "field label not supported: metadata.namespace"
    );
}

#[tokio::test]
async fn pages_come_from_one_state() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let path = seven(&admin).await;
    let first = admin
        .get(&format!(
            "{path}?limit=3&fieldSelector=metadata.name!=kube-root-ca.crt"
        ))
        .await;
    assert_eq!(names(&first), ["m0", "m1", "m2"]);
    assert_eq!(
        first.body["metadata"]["remainingItemCount"],
        json!(null),
        "unknown with a selector"
    );
    let first = admin.get(&format!("{path}?limit=4")).await;
    let total = names(&admin.get(path).await).len();
    assert_eq!(first.body["metadata"]["remainingItemCount"], json!(total - 4));
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    made(&admin, path, &map("m00")).await;
    assert_eq!(admin.delete(&format!("{path}/m5")).await.code, 200);
    let second = admin.get(&format!("{path}?limit=500&continue={token}")).await;
    assert!(
        names(&second).contains(&"m5") && !names(&second).contains(&"m00"),
        "{:?}",
        names(&second)
    );
    assert_eq!(
        second.body["metadata"],
        json!({"resourceVersion": version(&first.body)})
    );
    let refused = admin
        .get(&format!("{path}?continue={token}&resourceVersion=5"))
        .await;
    assert_eq!(
        refused.body,
        failure(
            400,
            "BadRequest",
            "specifying resource version is not allowed when using continue",
            None
        )
    );
    assert_eq!(
        names(&admin.get(&format!("{path}?limit=2&resourceVersion=0")).await).len(),
        total,
        "a limit with 0 is ignored"
    );
    let exact = admin
        .get(&format!(
            "{path}?resourceVersion={}&resourceVersionMatch=Exact",
            version(&first.body)
        ))
        .await;
    assert_eq!(
        (names(&exact).len(), version(&exact.body)),
        (total, version(&first.body))
    );
    let fresh = admin
        .get(&format!(
            "{path}?resourceVersion={}&resourceVersionMatch=NotOlderThan",
            version(&first.body)
        ))
        .await;
    assert!(names(&fresh).contains(&"m00"));
}

#[tokio::test]
async fn lists_say_what_they_are() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let empty = admin.get("/api/v1/namespaces/default/secrets").await;
    let version_of = version(&empty.body);
    assert_eq!(
        empty.body,
        json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": version_of}, "items": []})
    );
    made(
        &admin,
        SECRETS,
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
    )
    .await;
    let list = admin.get(SECRETS).await;
    assert_eq!(
        (
            &list.body["items"][0]["kind"],
            &list.body["items"][0]["apiVersion"]
        ),
        (&json!(null), &json!(null))
    );
    made(&admin, DEFINITIONS, &widgets()).await;
    made(&admin, WIDGETS, &widget("w", 1)).await;
    let list = admin.get(WIDGETS).await;
    assert_eq!(
        (&list.body["kind"], &list.body["items"][0]["kind"]),
        (&json!("WidgetList"), &json!("Widget"))
    );
    let all = admin.get("/api/v1/serviceaccounts").await;
    let namespaces: Vec<&str> = all.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["namespace"].as_str().unwrap())
        .collect();
    assert!(namespaces.is_sorted(), "{namespaces:?}");
}

#[tokio::test]
async fn revisions_from_the_future() {
    let server = TestServer::start().await;
    let admin = server.admin();
    made(&admin, MAPS, &map("a")).await;
    for path in [
        format!("{MAPS}/a?resourceVersion=999999"),
        format!("{MAPS}?resourceVersion=999999"),
    ] {
        let reply = admin.get(&path).await;
        let now = server.admin().get("/api/v1/namespaces/default").await;
        assert_eq!(now.code, 200);
        assert_eq!(
            (reply.code, reply.reason(), header(&reply, "retry-after")),
            (504, "Timeout", "1"),
            "{path}"
        );
        assert!(
            reply
                .message()
                .starts_with("Timeout: Too large resource version: 999999, current: "),
            "{}",
            reply.message()
        );
        let details = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1});
        assert_eq!(reply.body["details"], details);
    }
    assert_eq!(admin.get(&format!("{MAPS}/a?resourceVersion=0")).await.code, 200);
    assert_eq!(admin.get(&format!("{MAPS}/a?resourceVersion=")).await.code, 200);
}
