// SPDX-License-Identifier: Apache-2.0
//! RBAC as the specification and the reference evaluate it, in tables.

use cobaltcore_access::rbac::{
    PolicyRule, RoleKind, authorize, check_binding_write, check_role_write, forbidden, missing_rights,
};
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

/// One user `u` who holds exactly these rules, cluster-wide.
fn holding(rules: &Value) -> Index {
    Index::build(&[
        role("ClusterRole", "", "r", rules),
        binding(
            "ClusterRoleBinding",
            "",
            "b",
            ("ClusterRole", "r"),
            &json!([{"kind": "User", "name": "u"}]),
        ),
    ])
}

fn user() -> User {
    User::new("u", ["system:authenticated"])
}

#[test]
fn every_form_of_a_resource_rule() {
    let u = user();
    let pods = |verb| Attributes::resource(&u, verb, "", "pods").in_namespace("n");
    let get = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let table: Vec<(Value, Attributes<'_>, bool)> = vec![
        (get.clone(), pods("get").named("x"), true),
        (get.clone(), pods("list"), false),
        (get.clone(), Attributes::resource(&u, "get", "", "secrets"), false),
        (
            get.clone(),
            Attributes::resource(&u, "get", "apps", "pods"),
            false,
        ),
        // a subresource is a resource of its own
        (get.clone(), pods("get").of_subresource("status"), false),
        (
            json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]}),
            pods("get"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]}),
            pods("get").of_subresource("status"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*/status"], "verbs": ["get"]}),
            pods("get").of_subresource("status"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*/status"], "verbs": ["get"]}),
            pods("get").of_subresource("log"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*/status"], "verbs": ["get"]}),
            pods("get"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods/*"], "verbs": ["get"]}),
            pods("get").of_subresource("status"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}),
            pods("get").of_subresource("status"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}),
            Attributes::resource(&u, "get", "apps", "x"),
            false,
        ),
        (
            json!({"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]}),
            Attributes::resource(&u, "get", "any", "pods"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}),
            pods("deletecollection"),
            true,
        ),
        (
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            Attributes::path(&u, "get", "/metrics"),
            false,
        ),
        // resourceNames
        (
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}),
            pods("get").named("x"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}),
            pods("get").named("y"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "resourceNames": ["x"]}),
            pods("list"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "resourceNames": ["x"]}),
            pods("list").named("x"),
            true,
        ),
        // no group, no match
        (
            json!({"resources": ["pods"], "verbs": ["get"]}),
            pods("get"),
            false,
        ),
    ];
    for (rule, attributes, wanted) in table {
        let decision = authorize(&holding(&json!([rule])), &attributes);
        assert_eq!(decision.allowed, wanted, "{rule} for {attributes:?}");
    }
}

#[test]
fn every_form_of_a_path_rule() {
    let u = user();
    for (url, path, wanted) in [
        ("/metrics", "/metrics", true),
        ("/metrics", "/metrics/slis", false),
        ("/healthz/*", "/healthz/etcd", true),
        ("/healthz/*", "/healthz", false),
        ("/healthz*", "/healthz", true),
        ("*", "/anything", true),
        ("/", "/", true),
        ("/", "/x", false),
    ] {
        let index = holding(&json!([{"nonResourceURLs": [url], "verbs": ["get"]}]));
        assert_eq!(
            authorize(&index, &Attributes::path(&u, "get", path)).allowed,
            wanted,
            "{url} {path}"
        );
        assert!(!authorize(&index, &Attributes::path(&u, "post", path)).allowed);
    }
}

#[test]
fn scopes_and_subjects() {
    let read = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let index = Index::build(&[
        role("ClusterRole", "", "reader", &read),
        role("Role", "a", "local", &read),
        binding(
            "RoleBinding",
            "a",
            "one",
            ("Role", "local"),
            &json!([{"kind": "ServiceAccount", "name": "agent"}]),
        ),
        binding(
            "RoleBinding",
            "b",
            "two",
            ("ClusterRole", "reader"),
            &json!([{"kind": "Group", "name": "ops"}]),
        ),
        binding(
            "RoleBinding",
            "b",
            "three",
            ("Role", "local"),
            &json!([{"kind": "User", "name": "eve"}]),
        ),
        binding(
            "ClusterRoleBinding",
            "",
            "four",
            ("ClusterRole", "reader"),
            &json!([{"kind": "User", "name": "zoe"}, {"kind": "ServiceAccount", "name": "root", "namespace": "sys"}]),
        ),
        binding(
            "ClusterRoleBinding",
            "",
            "five",
            ("ClusterRole", "reader"),
            &json!([{"kind": "ServiceAccount", "name": "nowhere"}]),
        ),
    ]);
    let agent = User::service_account("a", "agent", None);
    let stranger = User::service_account("b", "agent", None);
    let ops = User::new("o", ["ops"]);
    let eve = User::new("eve", Vec::<String>::new());
    let zoe = User::new("zoe", Vec::<String>::new());
    let root = User::service_account("sys", "root", None);
    let nowhere = User::new("system:serviceaccount::nowhere", Vec::<String>::new());
    let table = [
        (
            &agent,
            "a",
            true,
            "RBAC: allowed by RoleBinding \"one/a\" of Role \"local\" to ServiceAccount \"agent/a\"",
        ),
        (&agent, "b", false, ""),
        (&agent, "", false, ""),
        (&stranger, "a", false, ""),
        (
            &ops,
            "b",
            true,
            "RBAC: allowed by RoleBinding \"two/b\" of ClusterRole \"reader\" to Group \"ops\"",
        ),
        (&ops, "a", false, ""),
        // a RoleBinding finds Roles of its own namespace only
        (
            &eve,
            "b",
            false,
            "RBAC: role.rbac.authorization.k8s.io \"local\" not found",
        ),
        (
            &zoe,
            "",
            true,
            "RBAC: allowed by ClusterRoleBinding \"four\" of ClusterRole \"reader\" to User \"zoe\"",
        ),
        (
            &root,
            "x",
            true,
            "RBAC: allowed by ClusterRoleBinding \"four\" of ClusterRole \"reader\" to ServiceAccount \"root/sys\"",
        ),
        (&nowhere, "", false, ""),
    ];
    for (who, namespace, allowed, reason) in table {
        let decision = authorize(
            &index,
            &Attributes::resource(who, "get", "", "pods").in_namespace(namespace),
        );
        assert_eq!(
            (decision.allowed, decision.reason().as_str()),
            (allowed, reason),
            "{} in {namespace:?}",
            who.name
        );
    }
}

#[test]
fn masters_are_allowed_without_any_role() {
    let decision = authorize(&Index::new(), &Attributes::path(&User::admin(), "get", "/x"));
    assert!(decision.allowed && decision.reason().is_empty());
    assert!(!authorize(&Index::new(), &Attributes::path(&user(), "get", "/x")).allowed);
}

#[test]
fn changes_take_effect_with_the_swap_and_leave_the_old_index_alone() {
    let old = holding(&json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    let u = user();
    let ask = Attributes::resource(&u, "get", "", "pods");
    let mut new = old.clone();
    new.upsert("ClusterRole", "", "r", &role("ClusterRole", "", "r", &json!([])));
    assert!(authorize(&old, &ask).allowed && !authorize(&new, &ask).allowed);
    let mut unbound = old.clone();
    unbound.remove("ClusterRoleBinding", "", "b");
    assert!(!authorize(&unbound, &ask).allowed);
    // rebinding to somebody else takes the right from the first
    let mut moved = old.clone();
    let to = json!([{"kind": "User", "name": "other"}]);
    moved.upsert(
        "ClusterRoleBinding",
        "",
        "b",
        &binding("ClusterRoleBinding", "", "b", ("ClusterRole", "r"), &to),
    );
    assert!(!authorize(&moved, &ask).allowed);
    assert!(
        authorize(
            &moved,
            &Attributes {
                user: &User::new("other", [""]),
                ..ask
            }
        )
        .allowed
    );
    // deleting the role leaves the binding, and the answer says why it is void
    let mut dangling = old;
    dangling.remove("ClusterRole", "", "r");
    assert_eq!(
        authorize(&dangling, &ask).reason(),
        "RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found"
    );
}

#[test]
fn texts_of_refusals() {
    let u = user();
    let r = |group, resource, verb| Attributes::resource(&u, verb, group, resource);
    for (attributes, wanted) in [
        (
            r("", "configmaps", "list").in_namespace("n"),
            "configmaps is forbidden: User \"u\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"n\"",
        ),
        (
            r("", "secrets", "get").in_namespace("n").named("x"),
            "secrets \"x\" is forbidden: User \"u\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"",
        ),
        (
            r("", "nodes", "list"),
            "nodes is forbidden: User \"u\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            r("apps", "deployments", "update")
                .in_namespace("n")
                .named("d")
                .of_subresource("status"),
            "deployments.apps \"d\" is forbidden: User \"u\" cannot update resource \"deployments/status\" in API group \"apps\" in the namespace \"n\"",
        ),
        (
            Attributes::path(&u, "get", "/metrics"),
            "forbidden: User \"u\" cannot get path \"/metrics\"",
        ),
        (
            Attributes::path(&u, "get", "/<b>&"),
            "forbidden: User \"u\" cannot get path \"/&lt;b&gt;&amp;\"",
        ),
    ] {
        let refusal = forbidden(&attributes, "");
        assert_eq!(refusal.message(), wanted);
        assert_eq!((refusal.code(), refusal.reason()), (403, "Forbidden"));
    }
    let why = "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    assert!(
        forbidden(&r("", "pods", "get"), why)
            .message()
            .ends_with(&format!("at the cluster scope: {why}"))
    );
}

#[test]
fn nobody_grants_what_they_do_not_hold() {
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let index = holding(&pods);
    let u = user();
    let fits = role("ClusterRole", "", "new", &pods);
    assert_eq!(
        check_role_write(&index, &u, RoleKind::ClusterRole, "", "", &fits, None),
        Ok(())
    );

    let more = role(
        "ClusterRole",
        "",
        "new",
        &json!([
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "delete"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]),
    );
    let refusal =
        check_role_write(&index, &u, RoleKind::ClusterRole, "", "", &more, None).expect_err("escalation");
    assert_eq!(
        refusal.message(),
        "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"u\" (groups=[\"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\"]}\n\
         {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
    );
    assert_eq!(
        check_role_write(&index, &User::admin(), RoleKind::ClusterRole, "", "", &more, None),
        Ok(())
    );
    // an update that only concerns the garbage collector is no grant
    let mut collected = more.clone();
    collected["metadata"]["finalizers"] = json!(["x"]);
    assert_eq!(
        check_role_write(
            &index,
            &u,
            RoleKind::ClusterRole,
            "",
            "new",
            &collected,
            Some(&more)
        ),
        Ok(())
    );
}

#[test]
fn coverage_follows_wildcards_and_names() {
    let u = user();
    let rules = |v: &Value| {
        v.as_array()
            .expect("list")
            .iter()
            .map(PolicyRule::from_value)
            .collect::<Vec<_>>()
    };
    for (held, wanted, covered) in [
        (
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
            json!([{"apiGroups": ["a"], "resources": ["b/c"], "verbs": ["d"], "resourceNames": ["e"]}]),
            true,
        ),
        (
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
            json!([{"nonResourceURLs": ["/x"], "verbs": ["get"]}]),
            false,
        ),
        (
            json!([{"apiGroups": [""], "resources": ["*/scale"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["x/scale"], "verbs": ["get"]}]),
            true,
        ),
        (
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "resourceNames": ["a"]}]),
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}]),
            false,
        ),
        (
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "resourceNames": ["a", "b"]}]),
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "resourceNames": ["b"]}]),
            true,
        ),
        // two rules together cover, one by one
        (
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["y"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["x", "y"], "verbs": ["get"]}]),
            true,
        ),
        (
            json!([{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/a/b"], "verbs": ["get"]}]),
            true,
        ),
        (
            json!([{"nonResourceURLs": ["/a/b"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}]),
            false,
        ),
        (
            json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}]),
            false,
        ),
    ] {
        let missing = missing_rights(&holding(&held), &u, "", &rules(&wanted));
        assert_eq!(missing.is_none(), covered, "{held} / {wanted}: {missing:?}");
    }
}

#[test]
fn escalate_bind_and_aggregation_are_rights_of_their_own() {
    let group = "rbac.authorization.k8s.io";
    let u = user();
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let strong = role("ClusterRole", "", "strong", &all);
    let escalator =
        holding(&json!([{"apiGroups": [group], "resources": ["clusterroles"], "verbs": ["escalate"]}]));
    assert_eq!(
        check_role_write(&escalator, &u, RoleKind::ClusterRole, "", "", &strong, None),
        Ok(())
    );

    let bind = |role: &str| binding("ClusterRoleBinding", "", "new", ("ClusterRole", role), &json!([]));
    let mut binder = holding(&json!([
        {"apiGroups": [group], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["strong"]},
    ]));
    binder.upsert("ClusterRole", "", "strong", &strong);
    binder.upsert("ClusterRole", "", "stronger", &strong);
    assert_eq!(
        check_binding_write(&binder, &u, "", &bind("strong"), None),
        Ok(())
    );
    let refusal = check_binding_write(&binder, &u, "", &bind("stronger"), None).expect_err("not bound");
    assert!(
        refusal
            .message()
            .starts_with("clusterrolebindings.rbac.authorization.k8s.io \"new\" is forbidden: user \"u\""),
        "{refusal:?}"
    );
    let refusal = check_binding_write(&binder, &u, "", &bind("absent"), None).expect_err("absent");
    assert_eq!(
        refusal.message(),
        "clusterrolebindings.rbac.authorization.k8s.io \"absent\" not found"
    );

    // everything but the paths is not enough to collect rules
    let mut collecting = role("ClusterRole", "", "sum", &json!([]));
    collecting["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let resources_only = holding(&json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    let refusal = check_role_write(
        &resources_only,
        &u,
        RoleKind::ClusterRole,
        "",
        "",
        &collecting,
        None,
    )
    .expect_err("no");
    assert!(
        refusal
            .message()
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[test]
fn namespaced_rights_grant_only_in_their_namespace() {
    let edit = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]);
    let index = Index::build(&[
        role("Role", "a", "r", &edit),
        binding(
            "RoleBinding",
            "a",
            "b",
            ("Role", "r"),
            &json!([{"kind": "User", "name": "u"}]),
        ),
    ]);
    let new = role("Role", "", "copy", &edit);
    assert_eq!(
        check_role_write(&index, &user(), RoleKind::Role, "a", "", &new, None),
        Ok(())
    );
    assert!(check_role_write(&index, &user(), RoleKind::Role, "b", "", &new, None).is_err());
    assert!(check_role_write(&index, &user(), RoleKind::ClusterRole, "a", "", &new, None).is_err());
}
