// SPDX-License-Identifier: Apache-2.0
//! Who may do what: tokens and their end, impersonation, roles and bindings, and the report about
//! rights that were missing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "literals read better in place"
)]

#[path = "common/wire.rs"]
mod wire;

use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use cobaltcore_apiserver::{Authorization, Config};
use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};
use wire::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn grant(admin: &Caller, name: &str, user: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    create(admin, &format!("{RBAC}/namespaces/default/roles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": [{"kind": "User", "name": user}]});
    create(
        admin,
        &format!("{RBAC}/namespaces/default/rolebindings"),
        &binding,
    )
    .await;
}

async fn grant_cluster(admin: &Caller, name: &str, user: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    create(admin, &format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": [{"kind": "User", "name": user}]});
    create(admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

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
async fn cluster_roles_collect_others() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let collector = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sum"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-sum": "true"}}]}});
    create(&admin, &format!("{RBAC}/clusterroles"), &collector).await;
    let part = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "part", "labels": {"to-sum": "true", "rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [rule(&["example.com"], &["widgets"], &["get"])]});
    create(&admin, &format!("{RBAC}/clusterroles"), &part).await;
    let sum = until(&admin, &format!("{RBAC}/clusterroles/sum"), |r| {
        r.body["rules"].as_array().is_some_and(|l| !l.is_empty())
    })
    .await;
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
        until(&admin, &format!("{RBAC}/clusterroles/{name}"), holds).await;
    }
    admin.delete(&format!("{RBAC}/clusterroles/part")).await;
    until(&admin, &format!("{RBAC}/clusterroles/sum"), |r| {
        r.body["rules"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
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

async fn token_of(admin: &Caller, account: &str, spec: Value) -> Reply {
    admin
        .post(
            &format!("{ACCOUNTS}/{account}/token"),
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}),
        )
        .await
}

async fn review(admin: &Caller, token: &str, audiences: Value) -> Value {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": audiences}});
    admin
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
        .await
        .body["status"]
        .clone()
}

#[tokio::test]
async fn tokens_live_as_long_as_their_account() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let account = create(&admin, ACCOUNTS, &account).await;
    let made = token_of(&admin, "robot", json!({})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(
        (&made.body["kind"], &made.body["spec"]["expirationSeconds"]),
        (&json!("TokenRequest"), &json!(3600))
    );
    assert_eq!(
        made.body["spec"]["audiences"],
        json!(["https://kubernetes.default.svc"])
    );
    assert!(made.body["status"]["expirationTimestamp"].is_string());
    let token = made.body["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&admin, &token, json!(null)).await;
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(
        (&status["user"]["username"], &status["user"]["uid"]),
        (
            &json!("system:serviceaccount:default:robot"),
            &json!(uid(&account))
        )
    );
    let groups = status["user"]["groups"].as_array().unwrap();
    for group in [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ] {
        assert!(groups.contains(&json!(group)), "{group}: {groups:?}");
    }
    assert!(
        status["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]
            .as_str()
            .unwrap()
            .starts_with("JTI=")
    );
    admin.delete(&format!("{ACCOUNTS}/robot")).await;
    let status = review(&admin, &token, json!(null)).await;
    assert!(
        status["authenticated"].as_bool() != Some(true) && status["error"].is_string(),
        "{status}"
    );
    create(
        &admin,
        ACCOUNTS,
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
    )
    .await;
    let status = review(&admin, &token, json!(null)).await;
    assert_ne!(
        status["authenticated"], true,
        "another account of the same name: {status}"
    );
}

#[tokio::test]
async fn tokens_have_audiences_limits_and_bounds() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    create(
        &admin,
        ACCOUNTS,
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
    )
    .await;
    let short = token_of(&admin, "robot", json!({"expirationSeconds": 10})).await;
    assert_eq!(short.code, 422, "{}", short.body);
    assert_eq!(
        causes(&short),
        [
            "spec.expirationSeconds FieldValueInvalid: Invalid value: 10: may not specify a duration less than 10 minutes"
        ]
    );
    let foreign = token_of(&admin, "robot", json!({"audiences": ["vault"]})).await;
    let token = foreign.body["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&admin, &token, json!(["vault", "other"])).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["vault"])),
        "{status}"
    );
    assert_ne!(review(&admin, &token, json!(null)).await["authenticated"], true);
    assert_eq!(token_of(&admin, "nobody", json!({})).await.code, 404);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    let pod = create(&admin, pods, &pod).await;
    let bound = token_of(
        &admin,
        "robot",
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}),
    )
    .await;
    assert_eq!(bound.code, 201, "{}", bound.body);
    let token = bound.body["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&admin, &token, json!(null)).await;
    assert_eq!(
        status["user"]["extra"]["authentication.kubernetes.io/pod-uid"],
        json!([uid(&pod)]),
        "{status}"
    );
    admin.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await;
    assert_ne!(
        review(&admin, &token, json!(null)).await["authenticated"],
        true,
        "its pod is gone"
    );
    let missing = token_of(
        &admin,
        "robot",
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}),
    )
    .await;
    assert_eq!((missing.code, missing.message()), (404, "pods \"p\" not found"));
    let plain = token_of(&admin, "robot", json!({})).await.body["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    server.clock().advance(SignedDuration::from_secs(3_700));
    assert_ne!(
        review(&admin, &plain, json!(null)).await["authenticated"],
        true,
        "time is up"
    );
    let empty = admin
        .post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": ""}}),
        )
        .await;
    assert_eq!(
        (empty.code, empty.message()),
        (400, "token is required for TokenReview in authentication")
    );
    let garbage = review(&admin, "garbage", json!(null)).await;
    assert!(
        garbage["error"].is_string() && garbage["authenticated"].as_bool() != Some(true),
        "{garbage}"
    );
}

#[tokio::test]
async fn impersonation_needs_a_right_and_then_counts() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    grant(
        &admin,
        "reader",
        "ann",
        json!([rule(&[""], &["configmaps"], &["list"])]),
    )
    .await;
    let as_ann = [("impersonate-user", "ann")];
    assert_eq!(admin.send(Method::GET, MAPS, &as_ann, "").await.code, 200);
    let refused = admin
        .send(Method::GET, "/api/v1/namespaces/default/secrets", &as_ann, "")
        .await;
    assert_eq!(
        refused.message(),
        "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
    let bob = server.as_user("bob", &[]);
    let denied = bob.send(Method::GET, MAPS, &as_ann, "").await;
    assert_eq!(
        (denied.code, denied.message()),
        (
            403,
            "configmaps is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"configmaps\" in API group \"\" in the namespace \"default\""
        )
    );
    let me = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let who = async |headers: &[(&str, &str)]| {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        admin
            .send(
                Method::POST,
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                &all,
                me.clone(),
            )
            .await
    };
    let full = who(&[
        ("impersonate-user", "ann"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scopes", "x"),
    ])
    .await;
    assert_eq!(full.code, 201, "{}", full.body);
    assert_eq!(
        full.body["status"]["userInfo"],
        json!({"username": "ann", "uid": "7", "groups": ["a", "b", "system:authenticated"], "extra": {"scopes": ["x"]}})
    );
    let account = who(&[("impersonate-user", "system:serviceaccount:default:robot")]).await;
    assert_eq!(
        account.body["status"]["userInfo"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ]),
        "{}",
        account.body
    );
    let half = admin
        .send(Method::GET, MAPS, &[("impersonate-group", "a")], "")
        .await;
    assert_eq!(
        half.code, 400,
        "groups without a user make no sense: {}",
        half.body
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

#[tokio::test]
async fn health_and_metrics_speak_as_expected() {
    let server = TestServer::start().await;
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
    let metrics = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.raw).into_owned();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(value.parse::<f64>().is_ok() || value == "+Inf", "{line}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{line}");
    }
    for name in [
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "apiserver_storage_objects",
        "cobaltcore_kube_revision",
    ] {
        assert!(text.lines().any(|l| l.starts_with(name)), "{name} is missing");
    }
}
