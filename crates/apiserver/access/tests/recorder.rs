// SPDX-License-Identifier: Apache-2.0
//! What the recorder says about the roles of a controller.

use cobaltcore_access::rbac::{Decision, authorize, bootstrap_objects};
use cobaltcore_access::recorder::{
    Recorder, Records, Report, ReportOptions, ServedResource, report, to_yaml,
};
use cobaltcore_access::{Attributes, Index, User};
use jiff::Timestamp;
use serde_json::{Value, json};

const AGENT: &str = "system:serviceaccount:sys:agent";

fn index(rules: &Value) -> Index {
    let mut objects = bootstrap_objects(|_| true);
    objects.push(json!({"kind": "ClusterRole", "metadata": {"name": "agent"}, "rules": rules}));
    objects.push(json!({
        "kind": "ClusterRoleBinding", "metadata": {"name": "agent"},
        "roleRef": {"kind": "ClusterRole", "name": "agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "sys"}],
    }));
    Index::build(&objects)
}

fn served() -> Vec<ServedResource> {
    let one = |group: &str, resource: &str, verbs: &[&str]| ServedResource {
        group: group.into(),
        resource: resource.into(),
        verbs: verbs.iter().map(|&v| v.into()).collect(),
    };
    vec![
        one("", "pods", &["get", "list", "watch"]),
        one("", "pods/status", &["get", "patch"]),
        one("", "secrets", &["get", "list"]),
        one("apps", "deployments", &["get", "list"]),
    ]
}

struct Run {
    index: Index,
    user: User,
    recorder: Recorder,
}

impl Run {
    fn new(rules: &Value) -> Self {
        let recorder = Recorder::new();
        recorder.scenario("drain");
        Self {
            index: index(rules),
            user: User::service_account("sys", "agent", None),
            recorder,
        }
    }

    fn ask(&self, verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = Attributes::resource(&self.user, verb, group, resource)
            .of_subresource(sub)
            .in_namespace(namespace)
            .named(name);
        let decision = authorize(&self.index, &attributes);
        self.recorder
            .record(&attributes, &decision, Timestamp::UNIX_EPOCH);
        decision.allowed
    }

    fn report(&self) -> Report {
        report(
            &self.recorder.records(),
            AGENT,
            &self.index,
            &served(),
            ReportOptions::default(),
        )
    }
}

#[test]
fn what_was_refused_becomes_the_smallest_manifests() {
    let run = Run::new(&json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    assert!(run.ask("get", "", "pods", "a", "p"));
    for verb in ["watch", "list"] {
        assert!(!run.ask(verb, "", "nodes", "", ""));
        assert!(!run.ask(verb, "apps", "deployments", "", ""));
        assert!(!run.ask(verb, "apps", "statefulsets", "", ""));
    }
    // covered by the cluster-wide need
    assert!(!run.ask("list", "apps", "deployments", "a", ""));
    assert!(!run.ask("patch", "", "pods/status", "a", "p1"));
    assert!(!run.ask("patch", "", "pods/status", "a", "p2"));
    let path = Attributes::path(&run.user, "get", "/metrics");
    run.recorder
        .record(&path, &authorize(&run.index, &path), Timestamp::UNIX_EPOCH);
    let found = run.report();
    assert_eq!(
        found.missing_manifests(),
        [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "agent-missing"},
                "rules": [
                    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
                    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
                    {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["list", "watch"]},
                ],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "agent-missing", "namespace": "a"},
                "rules": [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}],
            }),
        ]
    );
    assert_eq!(found.missing.iter().map(|m| m.denied).sum::<u64>(), 9);
    let yaml = found.missing_yaml();
    assert!(yaml.contains("# asked for by name: p1, p2\n"), "{yaml}");
    assert!(
        yaml.contains("rules:\n- apiGroups:\n  - \"\"\n  resources:\n  - pods/status\n  verbs:\n  - patch\n"),
        "{yaml}"
    );

    // the manifests do what they promise
    let mut fixed = run.index.clone();
    for manifest in found.missing_manifests() {
        let kind = manifest["kind"].as_str().expect("kind").to_owned();
        let namespace = manifest["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        fixed.upsert(&kind, &namespace, "agent-missing", &manifest);
        let binding = json!({
            "roleRef": {"kind": kind, "name": "agent-missing"},
            "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "sys"}],
        });
        let binding_kind = if kind == "Role" {
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        fixed.upsert(binding_kind, &namespace, "agent-missing", &binding);
    }
    let after = report(
        &run.recorder.records(),
        AGENT,
        &fixed,
        &served(),
        ReportOptions::default(),
    );
    assert!(after.missing.is_empty(), "{:?}", after.missing);
}

#[test]
fn names_are_part_of_the_rules_on_request() {
    let run = Run::new(&json!([]));
    run.ask("get", "", "secrets", "a", "cert");
    run.ask("get", "", "secrets", "a", "token");
    let options = ReportOptions { names: true };
    let found = report(&run.recorder.records(), AGENT, &run.index, &served(), options);
    assert_eq!(
        found.missing_manifests()[0]["rules"],
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["cert", "token"], "verbs": ["get"]}])
    );
}

#[test]
fn rights_never_used_are_listed_with_wildcards_expanded() {
    let run = Run::new(&json!([
        {"apiGroups": [""], "resources": ["pods", "*/status"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["deployments"], "verbs": ["list", "delete"]},
        {"apiGroups": ["gone.example"], "resources": ["widgets"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics", "/debug"], "verbs": ["get"]},
    ]));
    run.ask("get", "", "pods", "a", "p");
    run.ask("list", "apps", "deployments", "", "");
    let path = Attributes::path(&run.user, "get", "/metrics");
    run.recorder
        .record(&path, &authorize(&run.index, &path), Timestamp::UNIX_EPOCH);
    let found = run.report();
    let all = [
        "get /debug",
        "get pods/status",
        "get widgets.gone.example",
        "list pods",
        "patch pods/status",
        "watch pods",
    ];
    assert_eq!(found.unused_lines(""), all);
    assert_eq!(
        found.unused_lines("# later\n\nget /debug\n  list pods\n"),
        [
            "get pods/status",
            "get widgets.gone.example",
            "patch pods/status",
            "watch pods"
        ]
    );
    assert!(
        found
            .unused
            .iter()
            .all(|u| u.rule.starts_with("ClusterRole/agent[")),
        "rights of everybody are left out"
    );
}

#[test]
fn grants_broader_than_their_use_are_named() {
    let run = Run::new(&json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
        {"apiGroups": [""], "resources": ["*"], "verbs": ["watch"]},
    ]));
    run.ask("get", "apps", "deployments", "a", "x");
    run.ask("get", "", "secrets", "a", "s");
    run.ask("get", "", "secrets", "b", "s");
    let found: Vec<(String, String)> = run
        .report()
        .broad
        .into_iter()
        .map(|b| (b.rule, b.finding))
        .collect();
    let pair = |rule: &str, finding: &str| (rule.to_owned(), finding.to_owned());
    let secrets = "lets read every Secret; resourceNames would restrict it";
    assert_eq!(
        found,
        [
            pair(
                "ClusterRole/agent[0]",
                "granted cluster-wide, used only in namespace a"
            ),
            pair("ClusterRole/agent[1]", secrets),
            pair("ClusterRole/agent[3]", "grants every resource (*)"),
            pair("ClusterRole/agent[3]", secrets),
        ]
    );
}

#[test]
fn records_survive_a_file_and_merge() {
    let first = Run::new(&json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    first.ask("get", "", "pods", "a", "p");
    first.ask("get", "", "pods", "a", "p");
    let second = Run::new(&json!([]));
    second.recorder.scenario("upgrade");
    second.ask("get", "", "pods", "a", "p");
    second.ask("delete", "", "pods", "a", "p");
    let stored = Records::from_value(&first.recorder.records().to_value()).expect("read back");
    assert_eq!(stored, first.recorder.records());
    let mut merged = stored;
    merged.merge(&second.recorder.records());
    assert_eq!(
        merged.scenarios.iter().map(String::as_str).collect::<Vec<_>>(),
        ["drain", "upgrade"]
    );
    let requests = &merged.users[AGENT].requests;
    let get = requests.iter().find(|(r, _)| r.verb == "get").expect("get").1;
    assert_eq!(
        (get.allowed, get.denied, get.rule.as_deref()),
        (2, 1, Some("ClusterRole/agent[0]"))
    );
    // what one run lacked and the roles in force allow is not missing
    let found = report(&merged, AGENT, &first.index, &served(), ReportOptions::default());
    assert_eq!(found.missing.len(), 1);
    assert_eq!(
        found.missing_manifests()[0]["rules"][0]["verbs"],
        json!(["delete"])
    );
    let text = found.to_text();
    assert!(
        text.contains("recorded from: drain, upgrade") && text.contains("missing: 1"),
        "{text}"
    );
    for bad in [
        json!({}),
        json!({"users": {"u": {}}}),
        json!({"users": {"u": {"requests": [{}]}}}),
        json!(7),
    ] {
        assert!(Records::from_value(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_flood_of_names_does_not_fill_the_memory() {
    let run = Run::new(&json!([]));
    for i in 0..1000 {
        run.ask("get", "", "pods", "a", &format!("p{i}"));
    }
    let records = run.recorder.records();
    let requests = &records.users[AGENT].requests;
    assert_eq!(requests.len(), 101);
    assert_eq!(
        requests.values().map(|u| u.denied).sum::<u64>(),
        1000,
        "every request is counted"
    );
    for i in 0..1100 {
        let user = User::new(format!("u{i}"), ["g"]);
        run.recorder.record(
            &Attributes::path(&user, "get", "/"),
            &Decision::default(),
            Timestamp::UNIX_EPOCH,
        );
    }
    let records = run.recorder.records();
    assert_eq!((records.users.len(), records.dropped), (1000, 101));
    assert!(run.report().to_text().contains("not complete: 101 requests"));
}

#[test]
fn yaml_quotes_what_could_be_misread() {
    let value = json!({
        "a": ["yes", "12", "", "x: y", "- z", "*", "plain", "/path", "1.5", "null", "a#b", "line\nbreak"],
        "b": {"c": {}, "d": [], "e": null, "f": 7, "g": [[1], {"h": true, "i": "j"}]},
        "on": "off",
    });
    let wanted = "a:\n- \"yes\"\n- \"12\"\n- \"\"\n- \"x: y\"\n- \"- z\"\n- \"*\"\n- plain\n- /path\n- \"1.5\"\n- \"null\"\n- \"a#b\"\n- \"line\\nbreak\"\n\
        b:\n  c: {}\n  d: []\n  e: null\n  f: 7\n  g:\n  - - 1\n  - h: true\n    i: j\n\"on\": \"off\"\n";
    assert_eq!(to_yaml(&value), wanted);
}
