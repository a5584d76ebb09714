// SPDX-License-Identifier: Apache-2.0
//! Who may do what: roles and bindings, what a refusal says, and the report about rights that were
//! missing.

use crate::words::*;
use cobaltcore_apiserver::testkit::{Reply, TestServer};
use cobaltcore_apiserver::{Authorization, Config};
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn refusals_name_everything() {
    let server = TestServer::start_with_rbac().await;
    let user = server.as_user("u", &[]);
    let cases: Vec<(Method, &str, &str)> = vec![
        (
            Method::GET,
            MAPS,
            "configmaps is forbidden: User \"u\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            Method::GET,
            "/api/v1/configmaps",
            "configmaps is forbidden: User \"u\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope",
        ),
        (
            Method::GET,
            "/api/v1/configmaps?watch=true",
            "configmaps is forbidden: User \"u\" cannot watch resource \"configmaps\" in API group \"\" at the cluster scope",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default/secrets/x",
            "secrets \"x\" is forbidden: User \"u\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\"",
        ),
        (
            Method::GET,
            "/api/v1/nodes/x",
            "nodes \"x\" is forbidden: User \"u\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default",
            "namespaces \"default\" is forbidden: User \"u\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"default\"",
        ),
        (
            Method::DELETE,
            "/apis/apps/v1/namespaces/default/deployments/d",
            "deployments.apps \"d\" is forbidden: User \"u\" cannot delete resource \"deployments\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            Method::DELETE,
            "/apis/apps/v1/namespaces/default/deployments",
            "deployments.apps is forbidden: User \"u\" cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            Method::GET,
            "/apis/apps/v1/namespaces/default/deployments/d/status",
            "deployments.apps \"d\" is forbidden: User \"u\" cannot get resource \"deployments/status\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            Method::POST,
            MAPS,
            "configmaps is forbidden: User \"u\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            Method::GET,
            "/apis/no.such/v1/things",
            "things.no.such is forbidden: User \"u\" cannot list resource \"things\" in API group \"no.such\" at the cluster scope",
        ),
        (
            Method::GET,
            "/metrics",
            "forbidden: User \"u\" cannot get path \"/metrics\"",
        ),
    ];
    for (method, path, text) in cases {
        let reply = user.send(method, path, &[], "").await;
        assert_eq!(
            (reply.code, reply.reason(), reply.message()),
            (403, "Forbidden", text),
            "{path}"
        );
        assert_eq!(
            (&reply.body["kind"], &reply.body["status"]),
            (&json!("Status"), &json!("Failure"))
        );
    }
    let named = user.get("/api/v1/namespaces/default/secrets/x").await;
    assert_eq!(named.body["details"], json!({"name": "x", "kind": "secrets"}));
    for path in [
        "/api",
        "/apis",
        "/version",
        "/healthz",
        "/openapi/v2",
        "/api/v1",
        "/apis/apps/v1",
    ] {
        assert_eq!(
            server
                .as_user("u", &["system:authenticated"])
                .get(path)
                .await
                .code,
            200,
            "{path}"
        );
    }
}

#[tokio::test]
async fn rules_match_by_verb_group_resource_and_name() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    create(&admin, MAPS, &map("one", "1")).await;
    create(&admin, MAPS, &map("two", "1")).await;
    let mut named = rule(&[""], &["configmaps"], &["get", "list", "watch", "update"]);
    named["resourceNames"] = json!(["one"]);
    grant(&admin, "named", "ann", json!([named])).await;
    let ann = server.as_user("ann", &[]);
    assert_eq!(ann.get(&format!("{MAPS}/one")).await.code, 200);
    assert_eq!(ann.get(&format!("{MAPS}/two")).await.code, 403);
    assert_eq!(ann.get(MAPS).await.code, 403);
    assert_eq!(
        ann.get(&format!("{MAPS}?fieldSelector=metadata.name%3Done"))
            .await
            .code,
        200
    );
    assert_eq!(
        ann.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dtwo"))
            .await
            .code,
        403
    );
    assert_eq!(
        ann.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Done"))
            .await
            .code,
        200
    );
    grant(
        &admin,
        "sub",
        "bob",
        json!([
            rule(&["apps"], &["*/status"], &["get"]),
            rule(&["*"], &["secrets"], &["*"])
        ]),
    )
    .await;
    let bob = server.as_user("bob", &[]);
    assert_eq!(
        bob.get("/apis/apps/v1/namespaces/default/deployments/d/status")
            .await
            .code,
        404,
        "allowed, but not there"
    );
    assert_eq!(
        bob.get("/apis/apps/v1/namespaces/default/deployments/d")
            .await
            .code,
        403
    );
    assert_eq!(bob.get("/api/v1/namespaces/default/secrets").await.code, 200);
    assert_eq!(
        bob.get("/api/v1/namespaces/kube-system/secrets").await.code,
        403,
        "a Role ends at its namespace"
    );
    grant_cluster(
        &admin,
        "paths",
        "eve",
        json!([{"nonResourceURLs": ["/debug/*", "/metrics"], "verbs": ["get"]}]),
    )
    .await;
    let eve = server.as_user("eve", &[]);
    assert_eq!(eve.get("/metrics").await.code, 200);
    assert_eq!(eve.get("/debug/rbac").await.code, 200);
    assert_eq!(eve.get("/metrics/x").await.code, 403);
    admin.delete(&format!("{RBAC}/clusterrolebindings/paths")).await;
    assert_eq!(
        eve.get("/metrics").await.code,
        403,
        "a change counts for the next request"
    );
}

#[tokio::test]
async fn a_binding_may_lend_a_cluster_role_to_one_namespace() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "v"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "Group", "name": "team"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]});
    create(
        &admin,
        &format!("{RBAC}/namespaces/default/rolebindings"),
        &binding,
    )
    .await;
    for caller in [
        server.as_user("u", &["team"]),
        server.as_service_account("default", "sa"),
    ] {
        assert_eq!(caller.get(MAPS).await.code, 200);
        assert_eq!(
            caller.get("/api/v1/namespaces/default/secrets").await.code,
            403,
            "view shows no secrets"
        );
        assert_eq!(
            caller.get("/api/v1/namespaces/kube-system/configmaps").await.code,
            403
        );
        assert_eq!(caller.delete(&format!("{MAPS}/x")).await.code, 403);
    }
    let changed = admin
        .merge(
            &format!("{RBAC}/namespaces/default/rolebindings/v"),
            &json!({"roleRef": {"name": "edit"}}),
        )
        .await;
    assert_eq!(changed.code, 422);
    assert!(
        causes(&changed)[0].starts_with("roleRef FieldValueInvalid: ")
            && causes(&changed)[0].ends_with("cannot change roleRef"),
        "{:?}",
        causes(&changed)
    );
}

#[tokio::test]
async fn nobody_hands_out_what_they_do_not_have() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    grant(
        &admin,
        "maker",
        "ann",
        json!([
            rule(
                &["rbac.authorization.k8s.io"],
                &["roles", "rolebindings"],
                &["get", "create", "update"]
            ),
            rule(&[""], &["configmaps"], &["get", "list"])
        ]),
    )
    .await;
    let ann = server.as_user("ann", &["g"]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    assert_eq!(
        ann.post(
            &roles,
            &role("fine", json!([rule(&[""], &["configmaps"], &["get"])]))
        )
        .await
        .code,
        201
    );
    let more = ann
        .post(
            &roles,
            &role("more", json!([rule(&[""], &["secrets"], &["get"])])),
        )
        .await;
    assert_eq!((more.code, more.reason()), (403, "Forbidden"));
    assert_eq!(
        more.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"g\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    let binding = |name: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": "x"}]})
    };
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let bound = ann.post(&bindings, &binding("b", "admin")).await;
    assert_eq!(bound.code, 403);
    assert!(bound.message().starts_with("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"ann\" (groups=[\"g\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n"), "{}", bound.message());
    let mut may_bind = rule(&["rbac.authorization.k8s.io"], &["clusterroles"], &["bind"]);
    may_bind["resourceNames"] = json!(["admin"]);
    grant_cluster(&admin, "binder", "ann", json!([may_bind])).await;
    assert_eq!(ann.post(&bindings, &binding("b", "admin")).await.code, 201);
    let missing = ann.post(&bindings, &binding("c", "nothing")).await;
    assert_eq!(
        (missing.code, missing.reason()),
        (404, "NotFound"),
        "{}",
        missing.body
    );
    grant(
        &admin,
        "escalator",
        "ann",
        json!([rule(&["rbac.authorization.k8s.io"], &["roles"], &["escalate"])]),
    )
    .await;
    assert_eq!(
        ann.post(
            &roles,
            &role("more", json!([rule(&[""], &["secrets"], &["get"])]))
        )
        .await
        .code,
        201
    );
}

#[tokio::test]
async fn rights_in_a_namespace_open_no_other() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    create(&admin, &path, &binding).await;
    let eve = server.as_user("eve", &[]);
    let own = eve.get("/api/v1/namespaces/default").await;
    assert_eq!(own.body["metadata"]["name"], "default");
    for (path, code) in [
        ("/api/v1/namespaces", 403),
        ("/api/v1/namespaces/kube-system", 403),
        ("/api/v1/namespaces/default/namespaces", 404),
        ("/api/v1/namespaces/default/namespaces/kube-system", 404),
        ("/api/v1/watch/namespaces/default/namespaces", 404),
        ("/api/v1/watch/namespaces/default/namespaces/kube-system", 404),
    ] {
        assert_eq!(eve.get(path).await.code, code, "{path}");
    }
}

#[tokio::test]
async fn cluster_roles_collect_others() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let collector = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sum"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-sum": "true"}}]}});
    create(&admin, &format!("{RBAC}/clusterroles"), &collector).await;
    let part = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "part", "labels": {"to-sum": "true", "rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [rule(&["example.com"], &["widgets"], &["get"])]});
    create(&admin, &format!("{RBAC}/clusterroles"), &part).await;
    let sum = admin.get(&format!("{RBAC}/clusterroles/sum")).await;
    assert_eq!(
        sum.body["rules"],
        json!([rule(&["example.com"], &["widgets"], &["get"])])
    );
    let holds = |r: &Reply| {
        r.body["rules"]
            .as_array()
            .unwrap()
            .iter()
            .any(|x| x["apiGroups"] == json!(["example.com"]))
    };
    for name in ["view", "edit", "admin"] {
        let role = admin.get(&format!("{RBAC}/clusterroles/{name}")).await;
        assert!(holds(&role), "{name}");
    }
    admin.delete(&format!("{RBAC}/clusterroles/part")).await;
    let sum = admin.get(&format!("{RBAC}/clusterroles/sum")).await;
    assert_eq!(sum.body["rules"], Value::Null);
}

#[tokio::test]
async fn the_first_roles_are_there() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    for name in [
        "cluster-admin",
        "admin",
        "edit",
        "view",
        "system:basic-user",
        "system:discovery",
        "system:public-info-viewer",
        "system:auth-delegator",
        "system:service-account-issuer-discovery",
        "system:aggregate-to-admin",
        "system:aggregate-to-edit",
        "system:aggregate-to-view",
    ] {
        let role = admin.get(&format!("{RBAC}/clusterroles/{name}")).await;
        assert_eq!(role.code, 200, "{name}");
        assert_eq!(
            role.body["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults",
            "{name}"
        );
        assert_eq!(
            role.body["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"], "true",
            "{name}"
        );
    }
    let binding = admin
        .get(&format!("{RBAC}/clusterrolebindings/cluster-admin"))
        .await
        .body;
    assert_eq!(
        binding["subjects"],
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:masters"}])
    );
    assert_eq!(
        admin
            .get(&format!("{RBAC}/clusterroles/cluster-admin"))
            .await
            .body["rules"],
        json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}])
    );
}

#[tokio::test]
async fn reviews_answer_what_requests_would() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    grant(
        &admin,
        "reader",
        "ann",
        json!([rule(&[""], &["configmaps"], &["get"])]),
    )
    .await;
    let ann = server.as_user("ann", &["system:authenticated"]);
    let auth = "/apis/authorization.k8s.io/v1";
    let ask = |verb: &str| json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"namespace": "default", "verb": verb, "resource": "configmaps"}}});
    let yes = ann
        .post(&format!("{auth}/selfsubjectaccessreviews"), &ask("get"))
        .await;
    assert_eq!(
        (yes.code, &yes.body["status"]["allowed"]),
        (201, &json!(true)),
        "{}",
        yes.body
    );
    assert_eq!(
        yes.body["status"]["reason"],
        "RBAC: allowed by RoleBinding \"reader/default\" of Role \"reader\" to User \"ann\""
    );
    let no = ann
        .post(&format!("{auth}/selfsubjectaccessreviews"), &ask("delete"))
        .await;
    assert_eq!((no.code, &no.body["status"]["allowed"]), (201, &json!(false)));
    let other = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "ann", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps"}}});
    assert_eq!(
        admin
            .post(&format!("{auth}/subjectaccessreviews"), &other)
            .await
            .body["status"]["allowed"],
        true
    );
    assert_eq!(
        ann.post(&format!("{auth}/subjectaccessreviews"), &other)
            .await
            .code,
        403
    );
    let mut local = other.clone();
    local["kind"] = json!("LocalSubjectAccessReview");
    local["spec"]["resourceAttributes"]["namespace"] = json!("kube-system");
    assert_eq!(
        admin
            .post(
                &format!("{auth}/namespaces/default/localsubjectaccessreviews"),
                &local
            )
            .await
            .code,
        422
    );
    let empty = admin.post(&format!("{auth}/subjectaccessreviews"), &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "ann"}})).await;
    assert_eq!(empty.code, 422, "{}", empty.body);
    let rules = ann.post(&format!("{auth}/selfsubjectrulesreviews"), &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}})).await;
    assert_eq!(rules.code, 201);
    assert!(
        rules.body["status"]["resourceRules"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["resources"] == json!(["configmaps"])),
        "{}",
        rules.body
    );
    assert_eq!(rules.body["status"]["incomplete"], false);
    let me = ann
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        )
        .await;
    assert_eq!(
        (me.code, &me.body["status"]["userInfo"]["username"]),
        (201, &json!("ann"))
    );
}

#[tokio::test]
async fn shadow_mode_lists_everything_that_would_be_missing() {
    let server = TestServer::with(Config {
        authorization: Authorization::Shadow,
        ..Config::default()
    })
    .await;
    let admin = server.admin();
    grant(
        &admin,
        "robot",
        "system:serviceaccount:default:robot",
        json!([rule(&[""], &["configmaps"], &["list", "delete"])]),
    )
    .await;
    let robot = server.as_service_account("default", "robot");
    assert_eq!(robot.get(MAPS).await.code, 200);
    assert_eq!(
        robot.get("/api/v1/namespaces/default/secrets").await.code,
        200,
        "allowed, but noted"
    );
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "more"}, "rules": [rule(&[""], &["pods"], &["get"])]});
    assert_eq!(
        robot
            .post(&format!("{RBAC}/namespaces/default/roles"), &role)
            .await
            .code,
        201,
        "nothing is refused here, not even escalation"
    );
    let report = admin
        .get("/debug/rbac?user=system:serviceaccount:default:robot&format=json")
        .await;
    assert_eq!(report.code, 200);
    let text = report.body.to_string();
    assert!(text.contains("secrets"), "missing: {text}");
    let yaml = admin
        .get("/debug/rbac?user=system:serviceaccount:default:robot&format=yaml")
        .await;
    assert!(String::from_utf8_lossy(&yaml.raw).contains("secrets"));
    let plain = admin
        .get("/debug/rbac?user=system:serviceaccount:default:robot")
        .await;
    let plain = String::from_utf8_lossy(&plain.raw).into_owned();
    assert!(
        plain.contains("delete") && plain.contains("configmaps"),
        "unused rights are told: {plain}"
    );
}

#[tokio::test]
async fn apply_and_put_that_create_need_the_right_to_create() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    grant(
        &admin,
        "patcher",
        "ann",
        json!([rule(
            &["", "coordination.k8s.io"],
            &["configmaps", "leases"],
            &["patch", "update", "get"]
        )]),
    )
    .await;
    let ann = server.as_user("ann", &[]);
    let refused = ann
        .apply(&format!("{MAPS}/a?fieldManager=m"), &map("a", "1"))
        .await;
    assert_eq!(
        (refused.code, refused.reason()),
        (403, "Forbidden"),
        "{}",
        refused.body
    );
    assert!(
        refused
            .message()
            .contains("cannot create resource \"configmaps\""),
        "{}",
        refused.message()
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    assert_eq!(
        ann.put("/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease)
            .await
            .code,
        403
    );
    assert_eq!(
        admin
            .put("/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease)
            .await
            .code,
        201
    );
    create(&admin, MAPS, &map("a", "1")).await;
    assert_eq!(
        ann.apply(&format!("{MAPS}/a?fieldManager=m&force=true"), &map("a", "2"))
            .await
            .code,
        200
    );
}
