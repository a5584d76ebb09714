// SPDX-License-Identifier: Apache-2.0
//! Validation: every rule is tried with an object that breaks it, and the text is compared.

use cobaltcore_builtins::{Kind, find, prepare_service, service_needs};
use serde_json::{Value, json};

fn kind(group: &str, plural: &str) -> &'static Kind {
    find(group, if group == "autoscaling" { "v2" } else { "v1" }, plural).expect("served")
}

/// Read, defaulted and prepared, as the server does before it validates.
fn made(kind: &Kind, object: Value) -> Value {
    let mut object = object;
    if object.pointer("/metadata/name").is_none() {
        object["metadata"]["name"] = json!("x");
    }
    object["metadata"]["uid"] = json!("u");
    kind.decode(&mut object).unwrap_or_else(|error| panic!("{error}"));
    kind.default(&mut object);
    if kind.plural == "services" {
        prepare_service(&mut object, None);
        let needs = service_needs(&object);
        if needs.cluster_ip {
            object["spec"]["clusterIP"] = json!("10.96.0.9");
            object["spec"]["clusterIPs"] = json!(["10.96.0.9"]);
        }
        for port in needs.node_ports {
            object["spec"]["ports"][port]["nodePort"] = json!(30000 + port);
        }
    }
    kind.prepare_create(&mut object);
    object
}

fn errors(kind: &Kind, object: Value) -> Vec<String> {
    kind.validate_create(&made(kind, object))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn update_errors(kind: &Kind, old: Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let old = made(kind, old);
    let mut new = old.clone();
    change(&mut new);
    kind.default(&mut new);
    kind.prepare_update(&mut new, &old, None);
    kind.validate_update(&new, &old, None)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn container() -> Value {
    json!({"name": "c", "image": "i"})
}

fn pod(spec: Value) -> Value {
    let mut object = json!({"spec": {"containers": [container()]}});
    if let (Some(target), Value::Object(source)) = (object["spec"].as_object_mut(), spec) {
        target.extend(source);
    }
    object
}

#[test]
fn pods_are_refused_for_one_reason_each() {
    let pods = kind("", "pods");
    assert_eq!(errors(pods, pod(json!({}))), [""; 0]);
    for (spec, expected) in [
        (json!({"containers": []}), "spec.containers: Required value"),
        (
            json!({"containers": [{"name": "c"}]}),
            "spec.containers[0].image: Required value",
        ),
        (
            json!({"containers": [{"image": "i"}]}),
            "spec.containers[0].name: Required value",
        ),
        (
            json!({"containers": [container(), container()]}),
            r#"spec.containers[1].name: Duplicate value: "c""#,
        ),
        (
            json!({"initContainers": [container()]}),
            r#"spec.initContainers[0].name: Duplicate value: "c""#,
        ),
        (
            json!({"containers": [{"name": "A", "image": "i"}]}),
            r#"spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
        ),
        (
            json!({"restartPolicy": "Sometimes"}),
            r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}]}),
            r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
            r#"spec.containers[0].volumeMounts[0].name: Not found: "v""#,
        ),
        (
            json!({"volumes": [{"name": "v"}, {"name": "v"}]}),
            r#"spec.volumes[1].name: Duplicate value: "v""#,
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 70000}]}]}),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]}),
            "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "livenessProbe": {"periodSeconds": 1}}]}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"tolerations": [{"operator": "Equal"}]}),
            r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "a=b"}]}]}),
            r#"spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
        ),
        (
            json!({"nodeName": "n", "schedulingGates": [{"name": "a"}]}),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
    ] {
        assert_eq!(errors(pods, pod(spec)), [expected]);
    }
}

#[test]
fn pods_change_only_where_they_may() {
    let pods = kind("", "pods");
    let ok: [fn(&mut Value); 4] = [
        |pod| pod["spec"]["containers"][0]["image"] = json!("other"),
        |pod| pod["spec"]["activeDeadlineSeconds"] = json!(10),
        |pod| pod["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]),
        |pod| pod["metadata"]["labels"] = json!({"a": "b"}),
    ];
    for change in ok {
        assert_eq!(update_errors(pods, pod(json!({})), change), [""; 0]);
    }
    let refused = update_errors(pods, pod(json!({})), |pod| pod["spec"]["nodeName"] = json!("n"));
    assert_eq!(refused.len(), 1);
    assert!(refused[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"));
    assert_eq!(
        update_errors(pods, pod(json!({})), |pod| pod["spec"]["containers"] =
            json!([container(), {"name": "d", "image": "i"}])),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
    let tolerating = pod(json!({"tolerations": [{"key": "a", "operator": "Exists"}]}));
    assert_eq!(
        update_errors(pods, tolerating, |pod| pod["spec"]["tolerations"] = json!([])),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
}

fn workload(spec: Value) -> Value {
    let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}}});
    if let (Some(target), Value::Object(source)) = (object["spec"].as_object_mut(), spec) {
        target.extend(source);
    }
    object
}

#[test]
fn workloads_need_matching_selectors() {
    for (group, plural, word) in [
        ("apps", "deployments", "deployment"),
        ("apps", "replicasets", "deployment"),
        ("apps", "statefulsets", "statefulset"),
    ] {
        let kind = kind(group, plural);
        assert_eq!(errors(kind, workload(json!({}))), [""; 0], "{plural}");
        assert_eq!(
            errors(kind, workload(json!({"selector": null}))),
            [
                "spec.selector: Required value",
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
            "{plural}"
        );
        assert_eq!(
            errors(kind, workload(json!({"selector": {}}))),
            [format!(
                "spec.selector: Invalid value: {{}}: empty selector is invalid for {word}"
            )],
            "{plural}"
        );
        assert_eq!(
            errors(kind, workload(json!({"selector": {"matchLabels": {"a": "c"}}}))),
            [
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
            ],
            "{plural}"
        );
        assert_eq!(
            errors(kind, workload(json!({"replicas": -1}))),
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
            "{plural}"
        );
    }
    let odd = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "X"}]}});
    let shown = r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"X"}]}"#;
    for (plural, unusable) in [
        ("deployments", Some(format!("{shown}: invalid label selector"))),
        ("replicasets", Some(format!("{shown}: invalid label selector"))),
        ("statefulsets", Some(shown.to_owned())),
        ("daemonsets", None),
    ] {
        let first = r#"spec.selector.matchExpressions[0].operator: Invalid value: "X": not a valid selector operator"#;
        let wanted: Vec<String> = [first.to_owned()].into_iter().chain(unusable).collect();
        assert_eq!(
            errors(kind("apps", plural), workload(odd.clone())),
            wanted,
            "{plural}"
        );
    }
    let deployments = kind("apps", "deployments");
    let relabelled = |object: &mut Value| {
        object["spec"]["selector"]["matchLabels"] = json!({"z": "y"});
        object["spec"]["template"]["metadata"]["labels"] = json!({"z": "y"});
    };
    assert_eq!(
        update_errors(deployments, workload(json!({})), relabelled),
        [r#"spec.selector: Invalid value: {"matchLabels":{"z":"y"}}: field is immutable"#]
    );
    let sets = kind("apps", "statefulsets");
    assert_eq!(
        update_errors(
            sets,
            workload(json!({"serviceName": "s"})),
            |set| set["spec"]["serviceName"] = json!("t")
        ),
        [
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        ]
    );
    assert_eq!(
        errors(
            deployments,
            workload(json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}))
        ),
        ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]
    );
    let mut never = workload(json!({}));
    never["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(
        errors(deployments, never),
        [r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#]
    );
}

fn job(spec: Value) -> Value {
    let mut object =
        json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}});
    if let (Some(target), Value::Object(source)) = (object["spec"].as_object_mut(), spec) {
        target.extend(source);
    }
    object
}

#[test]
fn jobs_and_cron_jobs_are_checked() {
    let jobs = kind("batch", "jobs");
    assert_eq!(errors(jobs, job(json!({}))), [""; 0]);
    let always = json!({"spec": {"template": {"spec": {"containers": [container()]}}}});
    assert_eq!(
        errors(jobs, always),
        [r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]
    );
    assert_eq!(
        errors(jobs, job(json!({"parallelism": -1}))),
        ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert_eq!(
        update_errors(jobs, job(json!({})), |job| job["spec"]["completions"] = json!(3)),
        ["spec.completions: Invalid value: 3: field is immutable"]
    );
    let image = |job: &mut Value| job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("z");
    assert!(update_errors(jobs, job(json!({})), image)[0].ends_with("field is immutable"));
    let labels = |job: &mut Value| job["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
    assert_eq!(
        update_errors(jobs, job(json!({"suspend": true})), labels),
        [""; 0]
    );
    let crons = kind("batch", "cronjobs");
    let cron = |schedule: &str, more: Value| {
        let mut object = json!({"spec": {"schedule": schedule, "jobTemplate": job(json!({}))}});
        if let (Some(target), Value::Object(source)) = (object["spec"].as_object_mut(), more) {
            target.extend(source);
        }
        object
    };
    assert_eq!(
        errors(crons, cron("*/5 * * * *", json!({"timeZone": "Europe/Berlin"}))),
        [""; 0]
    );
    assert_eq!(
        errors(crons, cron("* * * *", json!({}))),
        [r#"spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: [* * * *]"#]
    );
    assert_eq!(
        errors(crons, cron("TZ=UTC * * * * *", json!({}))),
        [
            r#"spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"#
        ]
    );
    assert_eq!(
        errors(crons, cron("@daily", json!({"timeZone": "Mars/Olympus"}))),
        [r#"spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus"#]
    );
    let mut long = cron("@daily", json!({}));
    long["metadata"] = json!({"name": "n".repeat(53)});
    assert_eq!(
        errors(crons, long),
        [format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 52 characters",
            "n".repeat(53)
        )]
    );
}

#[test]
fn config_maps_and_secrets_are_checked() {
    let maps = kind("", "configmaps");
    assert_eq!(errors(maps, json!({"data": {"a.b_c-D": "x"}})), [""; 0]);
    assert_eq!(
        errors(maps, json!({"data": {"bad key": "x"}})),
        [
            r#"data[bad key]: Invalid value: "bad key": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#
        ]
    );
    assert_eq!(
        errors(maps, json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}})),
        [r#"data[a]: Invalid value: "a": duplicate of key present in binaryData"#]
    );
    assert_eq!(
        errors(maps, json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}})),
        ["[]: Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        update_errors(maps, json!({"immutable": true, "data": {"a": "x"}}), |map| map
            ["data"]["a"] =
            json!("y")),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    let secrets = kind("", "secrets");
    for (object, expected) in [
        (
            json!({"type": "kubernetes.io/tls", "data": {"tls.key": ""}}),
            vec!["data[tls.crt]: Required value"],
        ),
        (
            json!({"type": "kubernetes.io/basic-auth"}),
            vec!["data[username]: Required value", "data[password]: Required value"],
        ),
        (
            json!({"type": "kubernetes.io/ssh-auth"}),
            vec!["data[ssh-privatekey]: Required value"],
        ),
        (
            json!({"type": "kubernetes.io/service-account-token"}),
            vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        (
            json!({"type": "kubernetes.io/dockerconfigjson"}),
            vec!["data[.dockerconfigjson]: Required value"],
        ),
        (
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}}),
            vec![
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input"#,
            ],
        ),
        (json!({"type": "example.com/own"}), vec![]),
    ] {
        assert_eq!(errors(secrets, object), expected);
    }
    assert_eq!(
        update_errors(secrets, json!({}), |secret| secret["type"] = json!("other")),
        [r#"type: Invalid value: "other": field is immutable"#]
    );
}

#[test]
fn services_are_checked() {
    let services = kind("", "services");
    let service = |spec: Value| json!({"spec": spec});
    for (spec, expected) in [
        (json!({"ports": [{"port": 80}]}), vec![]),
        (json!({}), vec!["spec.ports: Required value"]),
        (json!({"clusterIP": "None"}), vec![]),
        (
            json!({"ports": [{"port": 0}]}),
            vec![
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 81, "name": "b"}]}),
            vec!["spec.ports[0].name: Required value"],
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}),
            vec![r#"spec.ports[1].name: Duplicate value: "a""#],
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}),
            vec![
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        ),
        (
            json!({"type": "ExternalName"}),
            vec!["spec.externalName: Required value"],
        ),
        (
            json!({"type": "ExternalName", "externalName": "a.example"}),
            vec![],
        ),
        (
            json!({"type": "Odd", "ports": [{"port": 80}]}),
            vec![
                r#"spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
            ],
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30001}]}),
            vec!["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            json!({"clusterIP": "1.2.3", "ports": [{"port": 80}]}),
            vec![
                r#"spec.clusterIPs[0]: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
            ],
        ),
        (
            json!({"sessionAffinity": "x", "ports": [{"port": 80}]}),
            vec![r#"spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None""#],
        ),
    ] {
        assert_eq!(errors(services, service(spec.clone())), expected, "{spec}");
    }
    let moved = |service: &mut Value| {
        service["spec"]["clusterIP"] = json!("10.96.0.8");
        service["spec"]["clusterIPs"] = json!(["10.96.0.8"]);
    };
    assert_eq!(
        update_errors(services, service(json!({"ports": [{"port": 80}]})), moved),
        [r#"spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set"#]
    );
    let named = |service: &mut Value| {
        service["spec"]["type"] = json!("ExternalName");
        service["spec"]["externalName"] = json!("a.example");
    };
    assert_eq!(
        update_errors(services, service(json!({"ports": [{"port": 80}]})), named),
        [""; 0]
    );
}

#[test]
fn a_service_update_keeps_what_was_allocated() {
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
        "ports": [{"name": "a", "port": 80, "nodePort": 30000}]}});
    let mut new = json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    assert_eq!(prepare_service(&mut new, Some(&old)), []);
    assert_eq!(new["spec"]["clusterIP"], "10.96.0.9");
    assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
    let needs = service_needs(&new);
    assert!(!needs.cluster_ip);
    assert_eq!(needs.node_ports, [1]);
    let mut loose = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
    assert_eq!(prepare_service(&mut loose, None), []);
    assert_eq!(loose["spec"]["ipFamilyPolicy"], "RequireDualStack");
    assert_eq!(loose["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
}

#[test]
fn other_level_a_kinds_are_checked() {
    for (group, plural, object, expected) in [
        (
            "policy",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": "x%"}}),
            vec![
                r#"spec.minAvailable: Invalid value: "x%": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
            ],
        ),
        (
            "policy",
            "poddisruptionbudgets",
            json!({"spec": {"maxUnavailable": "200%"}}),
            vec![r#"spec.maxUnavailable: Invalid value: "200%": must not be greater than 100%"#],
        ),
        (
            "coordination.k8s.io",
            "leases",
            json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
            vec![
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            "",
            "events",
            json!({"metadata": {"name": "e", "namespace": "a"}, "involvedObject": {"namespace": "b"}}),
            vec![r#"involvedObject.namespace: Invalid value: "b": does not match event.namespace"#],
        ),
        (
            "events.k8s.io",
            "events",
            json!({"metadata": {"name": "e", "namespace": "default"}, "type": "Odd"}),
            vec![
                "eventTime: Required value",
                r#"type: Invalid value: "": has invalid value: Odd"#,
            ],
        ),
        (
            "",
            "nodes",
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
            vec![
                r#"metadata.taints[1]: Duplicate value: {"Key":"k","Value":"v","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#,
            ],
        ),
        (
            "rbac.authorization.k8s.io",
            "roles",
            json!({"rules": [{"resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
            vec![
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
            ],
        ),
        (
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}, {"kind": "Robot", "name": "x"}]}),
            vec![
                r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
                "subjects[0].namespace: Required value",
                r#"subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
            ],
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            json!({"webhooks": [{"name": "a.b", "timeoutSeconds": 31, "clientConfig": {"url": "http://u@h/p?q#f"},
                "rules": [{"operations": ["*", "CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*", "pods"]}]}]}),
            vec![
                r#"webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots"#,
                r#"webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations"#,
                r#"webhooks[0].rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources"#,
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                r#"webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#"webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL"#,
                r#"webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL"#,
                r#"webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL"#,
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ],
        ),
        (
            "authorization.k8s.io",
            "subjectaccessreviews",
            json!({"spec": {}}),
            vec![
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                r#"spec.user: Invalid value: "": at least one of user or group must be specified"#,
            ],
        ),
    ] {
        assert_eq!(errors(kind(group, plural), object), expected, "{plural}");
    }
    let bindings = kind("rbac.authorization.k8s.io", "rolebindings");
    let binding = json!({"roleRef": {"kind": "Role", "name": "r"}});
    assert_eq!(
        update_errors(bindings, binding, |b| b["roleRef"]["name"] = json!("s")),
        [
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: cannot change roleRef"#
        ]
    );
    let nodes = kind("", "nodes");
    assert_eq!(
        update_errors(
            nodes,
            json!({"spec": {"providerID": "a", "podCIDR": "10.0.0.0/24"}}),
            |n| {
                n["spec"] = json!({"providerID": "b", "podCIDRs": ["10.0.1.0/24"]});
            }
        ),
        [
            r#"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid"#,
            r#"spec.providerID: Forbidden: node updates may not change providerID except from "" to valid"#,
        ]
    );
}

#[test]
fn level_b_kinds_follow_the_rules_that_are_named() {
    for (group, plural, object, expected) in [
        (
            "networking.k8s.io",
            "ingresses",
            json!({"spec": {"rules": [{"host": "1.2.3.4", "http": {"paths": [{"path": "x", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {}}}}]}}]}}),
            vec![
                r#"spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address"#,
                r#"spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path"#,
                "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            ],
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            json!({"spec": {"ingress": [{"from": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}]}}),
            vec![
                "spec.ingress[0].from[0]: Required value: must specify a peer",
                r#"spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`"#,
            ],
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"spec": {"minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment"}}}),
            vec![
                "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
                "spec.scaleTargetRef.name: Required value",
                "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
            ],
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({"spec": {}}),
            vec![
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"value": 1_000_000_001}),
            vec!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({}),
            vec!["provisioner: Required value"],
        ),
        (
            "node.k8s.io",
            "runtimeclasses",
            json!({}),
            vec!["handler: Required value"],
        ),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}, {"addresses": []}]}),
            vec![
                r#"endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                "endpoints[1].addresses: Required value: must contain at least 1 address",
            ],
        ),
    ] {
        assert_eq!(errors(kind(group, plural), object), expected, "{plural}");
    }
}

#[test]
fn names_are_refused_in_the_words_of_the_reference() {
    use cobaltcore_builtins::NameRule;
    use cobaltcore_builtins::names::{label_value, qualified_name};
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    assert_eq!(NameRule::Subdomain.problems("a.b-c", false), [""; 0]);
    assert_eq!(NameRule::Subdomain.problems("A_b", false), [SUBDOMAIN]);
    assert_eq!(
        NameRule::Subdomain.problems(&"a".repeat(254), false),
        ["must be no more than 253 characters"]
    );
    assert_eq!(
        NameRule::Subdomain.problems("prefix-", true),
        [""; 0],
        "a generateName may end in a dash"
    );
    assert_eq!(NameRule::Label.problems("a.b", false), ["must not contain dots"]);
    assert_eq!(NameRule::PathSegment.problems("system:node", false), [""; 0]);
    assert_eq!(
        NameRule::PathSegment.problems("a/b%", false),
        ["may not contain '/'", "may not contain '%'"]
    );
    assert_eq!(NameRule::PathSegment.problems("..", false), ["may not be '..'"]);
    assert_eq!(label_value(&"v".repeat(64)), ["must be no more than 63 bytes"]);
    assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
    assert_eq!(qualified_name("A_b/x"), [format!("prefix part {SUBDOMAIN}")]);
}

#[test]
fn api_services_are_those_of_this_server() {
    let services = kind("apiregistration.k8s.io", "apiservices");
    let mut service = json!({"metadata": {"name": "v1.g.example"}, "spec": {"group": "g.example", "version": "v1",
        "groupPriorityMinimum": 10, "versionPriority": 10}});
    assert_eq!(errors(services, service.clone()), [""; 0]);
    service["spec"]["service"] = json!({"name": "s", "namespace": "n"});
    assert_eq!(
        errors(services, service),
        ["spec.service: Forbidden: other API servers are not aggregated here"]
    );
    assert_eq!(
        errors(
            services,
            json!({"metadata": {"name": "x"}, "spec": {"group": "a", "version": "v1"}})
        ),
        [
            "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a\"",
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000"
        ]
    );
}

#[test]
fn requests_for_certificates() {
    let requests = kind("certificates.k8s.io", "certificatesigningrequests");
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUE9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
    let good = json!({"request": pem, "signerName": "example.com/s", "usages": ["client auth"]});
    assert_eq!(errors(requests, json!({"spec": good})), [""; 0]);
    assert_eq!(
        errors(
            requests,
            json!({"spec": {"request": "YWJj", "signerName": "abc", "expirationSeconds": 5}})
        ),
        [
            "spec.request: Invalid value: \"YWJj\": PEM block type must be CERTIFICATE REQUEST",
            "spec.usages: Required value",
            "spec.signerName: Invalid value: \"abc\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)"
        ]
    );
    let twice = json!({"request": pem, "signerName": "com/s", "usages": ["signing", "signing"]});
    assert_eq!(
        errors(requests, json!({"spec": twice})),
        [
            "spec.usages[1]: Duplicate value: \"signing\"",
            "spec.signerName: Invalid value: \"com\": should be a domain with at least two segments separated by dots"
        ]
    );
}
