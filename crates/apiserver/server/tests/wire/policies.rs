// SPDX-License-Identifier: Apache-2.0
//! Validating admission policies: what they judge, what they say, which parameters they use, and
//! what happens when they cannot decide.

use cobaltcore_apiserver::testkit::{Caller, TestServer};
use serde_json::{Value, json};

use crate::words::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(name: &str, spec: Value) -> Value {
    let mut all = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]}});
    for (key, value) in spec.as_object().cloned().unwrap_or_default() {
        all[key] = value;
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": all})
}

fn binding(name: &str, policy: &str, more: Value) -> Value {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    for (key, value) in more.as_object().cloned().unwrap_or_default() {
        spec[key] = value;
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": spec})
}

async fn bind(admin: &Caller, spec: Value, more: Value) {
    create(admin, POLICIES, &policy("p", spec)).await;
    create(admin, BINDINGS, &binding("b", "p", more)).await;
}

#[tokio::test]
async fn a_bound_policy_refuses_in_the_words_of_the_reference() {
    let server = TestServer::start().await;
    let admin = server.admin();
    create(
        &admin,
        POLICIES,
        &policy(
            "p",
            json!({"validations": [{"expression": "object.data.v != 'bad'"}]}),
        ),
    )
    .await;
    create(&admin, MAPS, &map("unbound", "bad")).await;
    create(&admin, BINDINGS, &binding("b", "p", json!({}))).await;
    create(&admin, MAPS, &map("good", "fine")).await;
    let refused = admin.post(MAPS, &map("x", "bad")).await;
    let text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.data.v != 'bad'";
    assert_eq!(
        refused.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
            "message": format!("configmaps \"x\" is forbidden: {text}"),
            "details": {"name": "x", "kind": "configmaps", "causes": [{"message": text}]}})
    );
    assert_eq!(admin.get(&format!("{MAPS}/x")).await.code, 404);
    let changed = admin
        .merge(&format!("{MAPS}/good"), &json!({"data": {"v": "bad"}}))
        .await;
    assert_eq!(changed.code, 422);
    admin.delete(&format!("{BINDINGS}/b")).await;
    create(&admin, MAPS, &map("x", "bad")).await;
}

#[tokio::test]
async fn messages_reasons_variables_and_conditions() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({
    "matchConditions": [{"name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')"}],
    "variables": [
        {"name": "value", "expression": "object.data['v']"},
        {"name": "size", "expression": "variables.value.size()"},
    ],
    "validations": [
        {"expression": "variables.size <= 5", "reason": "Forbidden",
         "messageExpression": "'too long: ' + string(variables.size) + ' in ' + namespaceObject.metadata.name"},
        {"expression": "request.operation == 'CREATE' || oldObject.data.v == variables.value", "message": "v stays"},
    ]});
    bind(&admin, spec, json!({})).await;
    let long = admin.post(MAPS, &map("a", "much too long")).await;
    assert_eq!((long.code, long.reason()), (403, "Forbidden"));
    assert!(
        long.message()
            .ends_with("denied request: too long: 13 in default"),
        "{}",
        long.message()
    );
    create(&admin, MAPS, &map("exempt-a", "much too long")).await;
    create(&admin, MAPS, &map("a", "short")).await;
    let changed = admin
        .merge(&format!("{MAPS}/a"), &json!({"data": {"v": "other"}}))
        .await;
    assert_eq!((changed.code, changed.reason()), (422, "Invalid"));
    assert!(
        changed.message().ends_with("denied request: v stays"),
        "{}",
        changed.message()
    );
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}});
    let failed = admin.post(MAPS, &absent).await;
    assert!(
        failed.message().ends_with(
            "expression 'variables.size <= 5' resulted in error: composited variable \"size\" fails to evaluate: composited variable \"value\" fails to evaluate: no such key: data"
        ),
        "{}",
        failed.message()
    );
}

#[tokio::test]
async fn what_cannot_be_decided_follows_the_failure_policy() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec =
        json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.nothing == 'x'"}]});
    bind(&admin, spec, json!({})).await;
    create(&admin, MAPS, &map("a", "v")).await;
}

#[tokio::test]
async fn bindings_warn_and_narrow() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"validations": [{"expression": "false", "message": "never"}]});
    bind(&admin, spec, json!({"validationActions": ["Warn"], "matchResources": {"objectSelector": {"matchLabels": {"strict": "yes"}}}})).await;
    let free = admin.post(MAPS, &map("a", "v")).await;
    assert_eq!((free.code, free.warnings()), (201, Vec::new()));
    let warned = admin.post(MAPS, &labelled("b", json!({"strict": "yes"}))).await;
    assert_eq!(
        (warned.code, warned.warnings()),
        (
            201,
            vec![
                "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never\""
                    .to_owned()
            ]
        )
    );
}

#[tokio::test]
async fn parameters_are_objects() {
    let server = TestServer::start().await;
    let admin = server.admin();
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
        "validations": [{"expression": "object.metadata.name.startsWith(params.data.prefix)",
            "messageExpression": "'must start with ' + params.data.prefix"}]});
    bind(
        &admin,
        spec,
        json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}),
    )
    .await;
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let path = "/api/v1/namespaces/default/secrets";
    let missing = admin.post(path, &secret("a")).await;
    assert!(
        missing.message().ends_with("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{}",
        missing.message()
    );
    let limits = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": {"prefix": "ok-"}});
    create(&admin, MAPS, &limits).await;
    let refused = admin.post(path, &secret("a")).await;
    assert!(
        refused.message().ends_with("denied request: must start with ok-"),
        "{}",
        refused.message()
    );
    create(&admin, path, &secret("ok-a")).await;
}

#[tokio::test]
async fn policies_are_checked_when_they_are_made() {
    let server = TestServer::start().await;
    let admin = server.admin();
    for (spec, field, text) in [
        (
            json!({}),
            "spec.validations",
            "validations or auditAnnotations must contain at least one item",
        ),
        (
            json!({"validations": [{"expression": ""}]}),
            "spec.validations[0].expression",
            "expression is not specified",
        ),
        (
            json!({"validations": [{"expression": "object."}]}),
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:8: Syntax error",
        ),
        (
            json!({"validations": [{"expression": "'x'"}]}),
            "spec.validations[0].expression",
            "must evaluate to bool",
        ),
        (
            json!({"validations": [{"expression": "params.x"}]}),
            "spec.validations[0].expression",
            "undeclared reference to 'params'",
        ),
        (
            json!({"validations": [{"expression": "variables.x"}]}),
            "spec.validations[0].expression",
            "undeclared reference to 'variables'",
        ),
        (
            json!({"validations": [{"expression": "true", "reason": "Whatever"}]}),
            "spec.validations[0].reason",
            "Unsupported value",
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConstraints": {}}),
            "spec.matchConstraints.resourceRules",
            "Required value",
        ),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "a", "expression": "nonsense"}]}),
            "spec.variables[0].expression",
            "undeclared reference to 'nonsense'",
        ),
    ] {
        let refused = admin.post(POLICIES, &policy("p", spec.clone())).await;
        assert_eq!(refused.code, 422, "{spec}");
        assert!(
            causes(&refused)
                .iter()
                .any(|c| c.starts_with(&format!("{field} ")) && c.contains(text)),
            "{spec}: {:?}",
            causes(&refused)
        );
    }
    let both = admin
        .post(
            BINDINGS,
            &binding("b", "p", json!({"validationActions": ["Deny", "Warn"]})),
        )
        .await;
    assert!(
        both.message().contains("must not contain both Deny and Warn"),
        "{}",
        both.message()
    );
}

#[tokio::test]
async fn expressions_ask_what_the_requester_may_do() {
    let server = TestServer::start_with_rbac().await;
    let admin = server.admin();
    let role = |rules: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "maps"}, "rules": rules})
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let base = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]});
    create(&admin, roles, &role(json!([base]))).await;
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    create(
        &admin,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &bound,
    )
    .await;
    let why = "authorizer.path('/metrics').check('get').reason() + string(authorizer.path('/version').check('get').errored())";
    let spec = json!({"variables": [{"name": "why", "expression": why}], "validations": [
        {"expression": "authorizer.requestResource.check('create').allowed()"},
        {"expression": "authorizer.serviceAccount('default', 'robot').group('').resource('configmaps').namespace('default').check('create').allowed()"},
        {"expression": "!authorizer.serviceAccount('default', 'other').group('').resource('configmaps').namespace('default').check('create').allowed()"},
        {"expression": "authorizer.group('apps').resource('deployments').subresource('scale').namespace('default').name('x').check('patch').allowed()",
         "messageExpression": "'no: ' + variables.why"},
    ]});
    // What is said does not depend on rights by itself.
    let mut direct = spec.clone();
    direct["validations"][3]["messageExpression"] = json!(why);
    let refused = admin.post(POLICIES, &policy("direct", direct)).await;
    assert!(
        refused.message().contains("undeclared reference to 'authorizer'"),
        "{}",
        refused.message()
    );
    bind(&admin, spec, json!({})).await;
    let jane = server.as_user("jane", &[]);
    let refused = jane.post(MAPS, &map("a", "v")).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(
        refused.message().ends_with("denied request: no: false"),
        "{}",
        refused.message()
    );
    let more = json!([base, {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}]);
    let widened = admin
        .merge(&format!("{roles}/maps"), &json!({"rules": more}))
        .await;
    assert_eq!(widened.code, 200, "{}", widened.body);
    create(&jane, MAPS, &map("a", "v")).await;
}
