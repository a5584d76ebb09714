// SPDX-License-Identifier: Apache-2.0
//! Roles that collect other roles, and the roles every server starts with.

use cobaltcore_access::rbac::{aggregate, authorize, bootstrap_objects, reconcile, selector_matches};
use cobaltcore_access::{Attributes, Index, User};
use serde_json::{Value, json};

fn role(kind: &str, namespace: &str, name: &str, rules: &Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(kind: &str, namespace: &str, name: &str, role: (&str, &str), subjects: &Value) -> Value {
    json!({
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": subjects,
    })
}

#[test]
fn selectors_of_aggregation() {
    let labels = json!({"app": "x", "tier": "1"});
    for (selector, wanted) in [
        (json!({}), true),
        (json!({"matchLabels": {"app": "x"}}), true),
        (json!({"matchLabels": {"app": "y"}}), false),
        (json!({"matchLabels": {"absent": "x"}}), false),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "z"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["x"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "absent", "operator": "In", "values": ["x"]}]}),
            false,
        ),
        (
            json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["2"]}]}),
            false,
        ),
    ] {
        assert_eq!(selector_matches(&selector, Some(&labels)), wanted, "{selector}");
    }
    assert!(
        selector_matches(&json!({}), None) && !selector_matches(&json!({"matchLabels": {"a": "b"}}), None)
    );
}

#[test]
fn aggregation_follows_chains_and_drops_what_is_gone() {
    let labelled = |name: &str, label: &str, rules: Value| {
        let mut r = role("ClusterRole", "", name, &rules);
        r["metadata"]["labels"] = json!({label: "true"});
        r
    };
    let collects = |mut r: Value, label: &str| {
        r["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        r
    };
    let (a, b) = (
        json!({"verbs": ["get"], "nonResourceURLs": ["/a"]}),
        json!({"verbs": ["get"], "nonResourceURLs": ["/b"]}),
    );
    let roles = [
        collects(
            role(
                "ClusterRole",
                "",
                "a-top",
                &json!([{"verbs": ["get"], "nonResourceURLs": ["/old"]}]),
            ),
            "to-top",
        ),
        collects(labelled("m-middle", "to-top", json!([])), "to-middle"),
        labelled("z-source", "to-middle", json!([a, b, a])),
        labelled("y-source", "to-top", json!([b])),
    ];
    let changed = aggregate(&roles);
    assert_eq!(changed.keys().collect::<Vec<_>>(), ["a-top", "m-middle"]);
    assert_eq!(changed["m-middle"], [a.clone(), b.clone()]);
    // sources by name: m-middle before y-source; /old is gone, /b stands once
    assert_eq!(changed["a-top"], [a, b]);
}

#[test]
fn bootstrap_roles_are_those_of_the_reference() {
    let objects = bootstrap_objects(|_| true);
    let count = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).count();
    assert_eq!(
        (
            count("ClusterRole"),
            count("ClusterRoleBinding"),
            count("Role"),
            count("RoleBinding")
        ),
        (31, 12, 1, 1)
    );
    let find = |kind: &str, name: &str| {
        objects
            .iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
            .expect("bootstrap object")
    };
    for object in &objects {
        assert_eq!(
            object["metadata"]["labels"]["kubernetes.io/bootstrapping"],
            "rbac-defaults"
        );
        assert_eq!(
            object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"],
            "true"
        );
        assert_eq!(object["apiVersion"], "rbac.authorization.k8s.io/v1");
        if object["kind"] == "ClusterRole" {
            let rules = object["rules"].as_array().expect("rules");
            assert!(
                !rules.is_empty()
                    && rules
                        .iter()
                        .all(|r| r["verbs"].as_array().is_some_and(|v| !v.is_empty())),
                "{object}"
            );
        }
    }
    assert_eq!(
        find("ClusterRole", "cluster-admin")["rules"],
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}])
    );
    assert_eq!(
        find("ClusterRole", "edit")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"],
        "true"
    );
    assert_eq!(
        find("ClusterRole", "view")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
        "true"
    );
    assert_eq!(find("ClusterRoleBinding", "system:node").get("subjects"), None);
    assert_eq!(
        find("ClusterRole", "system:aggregate-to-admin")["rules"][0],
        json!({"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]})
    );
    assert_eq!(
        find("ClusterRole", "system:kube-scheduler")["rules"][2],
        json!({"apiGroups": ["coordination.k8s.io"], "resourceNames": ["kube-scheduler"], "resources": ["leases"], "verbs": ["get", "list", "update", "watch"]})
    );
    assert_eq!(
        find("ClusterRole", "system:aggregate-to-edit")["rules"][0]["apiGroups"],
        json!([""])
    );
}

#[test]
fn bootstrap_roles_decide_as_expected() {
    let served = |g: &str| g != "extensions" && g != "resource.k8s.io";
    let objects = bootstrap_objects(served);
    assert!(!objects.iter().any(|o| o.to_string().contains("\"extensions\"")));
    let mut index = Index::build(&objects);
    for name in ["admin", "edit", "view"] {
        let to = json!([{"kind": "User", "name": name}]);
        index.upsert(
            "RoleBinding",
            "n",
            name,
            &binding("RoleBinding", "n", name, ("ClusterRole", name), &to),
        );
    }
    let allowed = |who: &User, verb: &str, group: &str, resource: &str| {
        authorize(
            &index,
            &Attributes::resource(who, verb, group, resource).in_namespace("n"),
        )
        .allowed
    };
    let [admin, edit, view] = ["admin", "edit", "view"].map(|n| User::new(n, ["system:authenticated"]));
    assert!(
        allowed(&view, "list", "", "pods")
            && !allowed(&view, "get", "", "secrets")
            && !allowed(&view, "create", "", "pods")
    );
    assert!(allowed(&edit, "create", "apps", "deployments") && allowed(&edit, "get", "", "secrets"));
    assert!(!allowed(&edit, "create", "rbac.authorization.k8s.io", "roles"));
    assert!(
        allowed(&admin, "create", "rbac.authorization.k8s.io", "rolebindings")
            && allowed(&admin, "list", "", "pods")
    );
    assert!(!allowed(&admin, "update", "", "resourcequotas"));
    let path = |who: &User, path: &str| authorize(&index, &Attributes::path(who, "get", path)).allowed;
    let anonymous = User::anonymous();
    for open in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
        assert!(path(&anonymous, open) && path(&view, open), "{open}");
    }
    assert!(
        !path(&anonymous, "/api")
            && path(&view, "/api/v1")
            && path(&view, "/openapi/v3")
            && !path(&view, "/metrics")
    );
    let account = User::service_account("n", "a", None);
    assert!(path(&account, "/openid/v1/jwks") && !path(&view, "/openid/v1/jwks"));
    let review = Attributes::resource(
        &view,
        "create",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
    );
    assert!(authorize(&index, &review).allowed);
}

#[test]
fn bootstrap_objects_are_restored_unless_protected() {
    let objects = bootstrap_objects(|_| true);
    let find = |name: &str, kind: &str| {
        objects
            .iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
            .expect("object")
            .clone()
    };
    let expected = find("system:basic-user", "ClusterRole");
    assert_eq!(reconcile(&expected, None).as_ref(), Some(&expected));
    assert_eq!(reconcile(&expected, Some(&expected)), None);

    let mut stored = expected.clone();
    stored["metadata"]["uid"] = json!("u1");
    stored["metadata"]["labels"] = json!({"mine": "1"});
    stored["rules"] = json!([{"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]}]);
    let restored = reconcile(&expected, Some(&stored)).expect("to be restored");
    assert_eq!(restored["metadata"]["uid"], "u1");
    assert_eq!(
        restored["metadata"]["labels"],
        json!({"mine": "1", "kubernetes.io/bootstrapping": "rbac-defaults"})
    );
    assert_eq!(restored["rules"][0]["apiGroups"], json!(["x"]), "additions stay");
    assert_eq!(
        reconcile(&expected, Some(&restored)),
        None,
        "settled after one round"
    );

    stored["metadata"]["annotations"] = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    assert_eq!(reconcile(&expected, Some(&stored)), None);

    let binding = find("system:public-info-viewer", "ClusterRoleBinding");
    let mut stored = binding.clone();
    stored["subjects"] = json!([]);
    let restored = reconcile(&binding, Some(&stored)).expect("to be restored");
    assert_eq!(restored["subjects"], binding["subjects"]);

    // collected rules are computed elsewhere
    let admin = find("admin", "ClusterRole");
    let mut stored = admin.clone();
    stored["rules"] = json!([]);
    assert_eq!(reconcile(&admin, Some(&stored)), None);
    stored.as_object_mut().expect("object").remove("aggregationRule");
    let restored = reconcile(&admin, Some(&stored)).expect("aggregation is back");
    assert_eq!(restored["aggregationRule"], admin["aggregationRule"]);
}
