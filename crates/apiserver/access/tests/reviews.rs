// SPDX-License-Identifier: Apache-2.0
//! Acting as somebody else, and asking who one is and what one may.

use cobaltcore_access::impersonation::{LastModes, impersonate, wanted_user};
use cobaltcore_access::rbac::authorize;
use cobaltcore_access::review::{
    local_subject_access_review, self_subject_access_review, self_subject_review, self_subject_rules_review,
    subject_access_review,
};
use cobaltcore_access::{Attributes, Decision, Index, Refusal, User};
use serde_json::{Value, json};

fn index(rules: &Value) -> Index {
    Index::build(&[
        json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules}),
        json!({
            "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "boss"}],
        }),
    ])
}

fn boss() -> User {
    User::new("boss", ["system:authenticated"])
}

fn wanted(headers: &[(&str, &str)]) -> User {
    wanted_user(headers.iter().map(|(k, v)| (*k, v.as_bytes())))
        .expect("headers")
        .expect("a user")
}

fn try_as(rules: &Value, headers: &[(&str, &str)]) -> Result<User, Refusal> {
    try_again_as(rules, headers, &LastModes::default())
}

fn try_again_as(rules: &Value, headers: &[(&str, &str)], last: &LastModes) -> Result<User, Refusal> {
    let (index, boss) = (index(rules), boss());
    let request = Attributes::resource(&boss, "list", "", "pods").in_namespace("n");
    impersonate(&wanted(headers), &request, last, &|attributes| {
        authorize(&index, attributes)
    })
}

fn plain(group: &str, resource: &str, names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

#[test]
fn headers_become_the_wanted_identity() {
    let user = wanted(&[
        ("Impersonate-User", "bob"),
        ("impersonate-group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Extra-acme.com%2fproject", "p1"),
        ("Impersonate-Extra-acme.com%2Fproject", "p2"),
        ("Impersonate-Extra-bad%zz", "x"),
        ("Accept", "y"),
    ]);
    assert_eq!((user.name.as_str(), user.uid.as_deref()), ("bob", Some("u1")));
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra["acme.com/project"], ["p1", "p2"]);
    assert_eq!(user.extra["bad%zz"], ["x"]);
    assert_eq!(wanted_user([("accept", &b"x"[..])]), Ok(None));
    assert_eq!(wanted_user([("impersonate-user", &b""[..])]), Ok(None));
    let refusal = wanted_user([("Impersonate-Group", &b"dev"[..])]).expect_err("no user");
    assert_eq!(
        (refusal.code(), refusal.message().as_str()),
        (
            400,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, Extra:map[string][]string(nil)} without impersonating a user name"
        )
    );
    assert_eq!(
        wanted_user([("impersonate-user", &b"\xff"[..])])
            .expect_err("bytes")
            .code(),
        400
    );
}

#[test]
fn the_plain_verb_allows_each_part() {
    let users = plain("", "users", &["bob"]);
    let user = try_as(&json!([users]), &[("Impersonate-User", "bob")]).expect("allowed");
    assert_eq!(
        (user.name.as_str(), user.groups),
        ("bob", vec!["system:authenticated".to_owned()])
    );
    assert!(try_as(&json!([users]), &[("Impersonate-User", "eve")]).is_err());
    assert!(
        try_as(
            &json!([users]),
            &[("Impersonate-User", "bob"), ("Impersonate-Group", "dev")]
        )
        .is_err()
    );
    let with_groups = json!([users, plain("", "groups", &["dev", "system:masters"])]);
    let user = try_as(
        &with_groups,
        &[("Impersonate-User", "bob"), ("Impersonate-Group", "dev")],
    )
    .expect("allowed");
    assert_eq!(user.groups, ["dev", "system:authenticated"]);
    let masters = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "system:masters"),
    ];
    assert!(try_as(&with_groups, &masters).expect("named").is_master());
    let extras = json!([
        users,
        plain("authentication.k8s.io", "userextras/scope", &["read"]),
        plain("authentication.k8s.io", "uids", &["u1"])
    ]);
    let user = try_as(
        &extras,
        &[
            ("Impersonate-User", "bob"),
            ("Impersonate-Extra-Scope", "read"),
            ("Impersonate-Uid", "u1"),
        ],
    )
    .expect("allowed");
    assert_eq!(
        (user.extra["scope"].as_slice(), user.uid.as_deref()),
        (&["read".to_owned()][..], Some("u1"))
    );
    assert!(
        try_as(
            &extras,
            &[("Impersonate-User", "bob"), ("Impersonate-Extra-Scope", "write")]
        )
        .is_err()
    );
}

#[test]
fn accounts_and_the_anonymous_get_their_groups() {
    let accounts = json!([plain("", "serviceaccounts", &["agent"])]);
    let user = try_as(
        &accounts,
        &[("Impersonate-User", "system:serviceaccount:n:agent")],
    )
    .expect("allowed");
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated"
        ]
    );
    let users = json!([plain("", "users", &[])]);
    assert!(try_as(&users, &[("Impersonate-User", "system:serviceaccount:n:agent")]).is_err());
    let anonymous = try_as(&users, &[("Impersonate-User", "system:anonymous")]).expect("allowed");
    assert_eq!(anonymous.groups, ["system:unauthenticated"]);
}

#[test]
fn constrained_verbs_allow_for_this_request_only() {
    let on = |verb: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]});
    let who = json!({"apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]});
    let bob = [("Impersonate-User", "bob")];
    assert!(try_as(&json!([on("impersonate-on:user-info:list"), who]), &bob).is_ok());
    assert!(try_as(&json!([on("impersonate-on:user-info:get"), who]), &bob).is_err());
    assert!(try_as(&json!([on("impersonate-on:user-info:list")]), &bob).is_err());
    let masters = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "system:masters"),
    ];
    let refusal = try_as(&json!([on("impersonate-on:user-info:list"), who]), &masters).expect_err("masters");
    assert!(
        refusal
            .message()
            .ends_with("impersonating the system:masters group is not allowed"),
        "{}",
        refusal.message()
    );
    let node = json!({"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"], "verbs": ["impersonate:arbitrary-node"]});
    let user = try_as(
        &json!([on("impersonate-on:arbitrary-node:list"), node]),
        &[("Impersonate-User", "system:node:w")],
    )
    .expect("node");
    assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
}

#[test]
fn a_refused_impersonation_names_the_first_missing_right() {
    let refusal = try_as(&json!([]), &[("Impersonate-User", "bob")]).expect_err("no rights");
    assert_eq!(
        refusal.message(),
        "pods is forbidden: User \"boss\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"n\""
    );
    // where no constrained mode fits, the plain verb's refusal is shown
    let refusal = try_as(
        &json!([]),
        &[
            ("Impersonate-User", "system:serviceaccount:n:a"),
            ("Impersonate-Group", "g"),
        ],
    )
    .expect_err("no");
    assert_eq!(
        refusal.message(),
        "serviceaccounts \"a\" is forbidden: User \"boss\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"n\""
    );
}

#[test]
fn self_subject_review_tells_who_one_is() {
    let now = "2026-01-02T03:04:05Z".parse().expect("time");
    assert_eq!(
        self_subject_review(&boss(), now),
        json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"},
            "status": {"userInfo": {"username": "boss", "groups": ["system:authenticated"]}},
        })
    );
}

#[test]
fn access_reviews_evaluate_the_authoriser() {
    let index = index(&json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]));
    let ask = |a: &Attributes<'_>| authorize(&index, a);
    let boss = boss();
    let pods = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "n"}}});
    let answer = self_subject_access_review(&pods("get"), &boss, &ask).expect("answer");
    assert_eq!(answer["kind"], "SelfSubjectAccessReview");
    assert_eq!(answer["metadata"], json!({}));
    assert_eq!(answer["spec"], pods("get")["spec"]);
    assert_eq!(
        answer["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"boss\""})
    );
    assert_eq!(
        self_subject_access_review(&pods("list"), &boss, &ask).expect("answer")["status"],
        json!({"allowed": false})
    );
    let metrics = json!({"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
    assert_eq!(
        self_subject_access_review(&metrics, &boss, &ask).expect("answer")["status"]["allowed"],
        true
    );
    assert_eq!(
        self_subject_access_review(&metrics, &User::admin(), &ask).expect("answer")["status"],
        json!({"allowed": true})
    );

    let mut other = pods("get");
    other["spec"]["user"] = json!("boss");
    assert_eq!(
        subject_access_review(&other, &ask).expect("answer")["status"]["allowed"],
        true
    );
    other["spec"]["user"] = json!("eve");
    other["spec"]["groups"] = json!(["dev"]);
    assert_eq!(
        subject_access_review(&other, &ask).expect("answer")["status"],
        json!({"allowed": false})
    );
    other["spec"]["groups"] = json!(["system:masters"]);
    assert_eq!(
        subject_access_review(&other, &ask).expect("answer")["status"]["allowed"],
        true
    );

    let answer = local_subject_access_review(&other, "n", &ask).expect("answer");
    assert_eq!(answer["metadata"]["namespace"], "n");
    let partly = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "fieldSelector": {"requirements": [
        {"key": "spec.nodeName", "operator": "In", "values": ["a"]}, {"key": "x", "operator": "Newer"},
    ]}}}});
    assert_eq!(
        self_subject_access_review(&partly, &boss, &ask).expect("answer")["status"]["evaluationError"],
        "spec.resourceAttributes.fieldSelector partially ignored due to parse error"
    );
}

#[test]
fn ill_formed_reviews_are_refused_with_their_causes() {
    let ask = |_: &Attributes<'_>| Decision::allow();
    let both = json!({"user": "u", "resourceAttributes": {}, "nonResourceAttributes": {"path": "/x", "verb": "get"}});
    let none = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    let self_review = |body: Value| self_subject_access_review(&body, &boss(), &ask).expect_err("invalid");
    let review = |body: Value| subject_access_review(&body, &ask).expect_err("invalid");
    let local = |body: Value| local_subject_access_review(&body, "n", &ask).expect_err("invalid");
    for (refusal, message) in [
        (self_review(json!({"spec": {}})), none.to_owned()),
        (self_review(json!({})), none.to_owned()),
        (self_review(json!({"spec": both})), "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes".to_owned()),
        (self_review(json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}})), "metadata: Invalid value: {\"name\":\"x\"}: must be empty".to_owned()),
        (review(json!({"spec": {"resourceAttributes": {}}})), "spec.user: Invalid value: \"\": at least one of user or group must be specified".to_owned()),
        (review(json!({"spec": {}})), format!("[{none}, spec.user: Invalid value: \"\": at least one of user or group must be specified]")),
        (local(json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "other"}}})), "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace".to_owned()),
        (local(json!({"spec": {"user": "u", "nonResourceAttributes": {"path": "/x", "verb": "get"}}})), "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: disallowed on this kind of request".to_owned()),
        (self_review(json!({"spec": {"resourceAttributes": {"labelSelector": {}}}})), "spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required".to_owned()),
    ] {
        assert_eq!(refusal.code(), 422);
        let text = refusal.message();
        assert!(text.ends_with(&format!("\"\" is invalid: {message}")), "{text}");
    }
    let elsewhere =
        json!({"metadata": {"namespace": "other"}, "spec": {"user": "u", "resourceAttributes": {}}});
    assert_eq!(
        local(elsewhere).message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[test]
fn rules_reviews_list_what_the_caller_holds() {
    let index = index(&json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]));
    let boss = boss();
    let body = json!({"spec": {"namespace": "n"}});
    let answer = self_subject_rules_review(&body, Some((&index, &boss))).expect("answer");
    assert_eq!(
        answer["status"],
        json!({
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
            "incomplete": false,
        })
    );
    assert_eq!(
        self_subject_rules_review(&body, None).expect("answer")["status"]["resourceRules"][0]["verbs"],
        json!(["*"])
    );
    let refusal = self_subject_rules_review(&json!({}), None).expect_err("no namespace");
    assert_eq!(
        (refusal.code(), refusal.message().as_str()),
        (400, "no namespace on request")
    );
}

#[test]
fn whoever_acted_by_the_plain_verb_is_told_of_the_plain_verb() {
    let (rules, last) = (json!([plain("", "users", &["bob"])]), LastModes::default());
    let eve = [("Impersonate-User", "eve")];
    let before = try_again_as(&rules, &eve, &last).expect_err("eve");
    assert!(before.message().contains("impersonate-on:user-info:list"));
    try_again_as(&rules, &[("Impersonate-User", "bob")], &last).expect("bob");
    let after = try_again_as(&rules, &eve, &last).expect_err("eve");
    assert_eq!(
        after.message(),
        "users \"eve\" is forbidden: User \"boss\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
}
