// SPDX-License-Identifier: Apache-2.0
//! Who is asking: tokens and their end, and acting as somebody else.

use crate::words::*;
use cobaltcore_apiserver::testkit::{Caller, Reply, TestServer};
use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

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
