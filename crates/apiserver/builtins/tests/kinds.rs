// SPDX-License-Identifier: Apache-2.0
//! The table of kinds and types is complete and says what the API publishes.

use cobaltcore_builtins::{
    FieldType, Form, NameRule, OpenApi, Verbs, definitions, description, find, find_kind, kinds, reachable,
    table,
};
use cobaltcore_schema::{ListType, MapType, Schema};

/// Definition, field, list type, keys, patch words, merge key: the table of appendix A.
const OWNERSHIP: &[(&str, &str, &str, &str, &str, &str)] = &[
    ("meta.v1.ObjectMeta", "finalizers", "set", "", "merge", ""),
    (
        "meta.v1.ObjectMeta",
        "ownerReferences",
        "map",
        "uid",
        "merge",
        "uid",
    ),
    ("core.v1.PodSpec", "containers", "map", "name", "merge", "name"),
    (
        "core.v1.PodSpec",
        "initContainers",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "core.v1.PodSpec",
        "ephemeralContainers",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "core.v1.PodSpec",
        "volumes",
        "map",
        "name",
        "merge,retainKeys",
        "name",
    ),
    (
        "core.v1.PodSpec",
        "resourceClaims",
        "map",
        "name",
        "merge,retainKeys",
        "name",
    ),
    (
        "core.v1.PodSpec",
        "imagePullSecrets",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "core.v1.PodSpec",
        "schedulingGates",
        "map",
        "name",
        "merge",
        "name",
    ),
    ("core.v1.PodSpec", "hostAliases", "map", "ip", "merge", "ip"),
    (
        "core.v1.PodSpec",
        "topologySpreadConstraints",
        "map",
        "topologyKey,whenUnsatisfiable",
        "merge",
        "topologyKey",
    ),
    ("core.v1.Container", "env", "map", "name", "merge", "name"),
    (
        "core.v1.Container",
        "ports",
        "map",
        "containerPort,protocol",
        "merge",
        "containerPort",
    ),
    (
        "core.v1.Container",
        "volumeMounts",
        "map",
        "mountPath",
        "merge",
        "mountPath",
    ),
    (
        "core.v1.Container",
        "volumeDevices",
        "map",
        "devicePath",
        "merge",
        "devicePath",
    ),
    (
        "core.v1.EphemeralContainer",
        "env",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "core.v1.EphemeralContainer",
        "ports",
        "map",
        "containerPort,protocol",
        "merge",
        "containerPort",
    ),
    (
        "core.v1.EphemeralContainer",
        "volumeMounts",
        "map",
        "mountPath",
        "merge",
        "mountPath",
    ),
    (
        "core.v1.EphemeralContainer",
        "volumeDevices",
        "map",
        "devicePath",
        "merge",
        "devicePath",
    ),
    ("core.v1.ResourceRequirements", "claims", "map", "name", "", ""),
    (
        "core.v1.ContainerStatus",
        "allocatedResourcesStatus",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "core.v1.ContainerStatus",
        "volumeMounts",
        "map",
        "mountPath",
        "merge",
        "mountPath",
    ),
    ("core.v1.ResourceStatus", "resources", "map", "resourceID", "", ""),
    ("core.v1.PodStatus", "podIPs", "map", "ip", "merge", "ip"),
    ("core.v1.PodStatus", "hostIPs", "atomic", "", "merge", "ip"),
    (
        "core.v1.PodStatus",
        "resourceClaimStatuses",
        "map",
        "name",
        "merge,retainKeys",
        "name",
    ),
    ("core.v1.NodeSpec", "podCIDRs", "set", "", "merge", ""),
    ("core.v1.NodeStatus", "addresses", "map", "type", "merge", "type"),
    (
        "core.v1.ServiceSpec",
        "ports",
        "map",
        "port,protocol",
        "merge",
        "port",
    ),
    (
        "core.v1.ServiceAccount",
        "secrets",
        "map",
        "name",
        "merge",
        "name",
    ),
    ("apps.v1.DeploymentSpec", "strategy", "", "", "retainKeys", ""),
    (
        "policy.v1.PodDisruptionBudgetSpec",
        "selector",
        "",
        "",
        "replace",
        "",
    ),
    ("discovery.v1.Endpoint", "addresses", "set", "", "", ""),
    (
        "admissionregistration.v1.MutatingWebhookConfiguration",
        "webhooks",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.ValidatingWebhookConfiguration",
        "webhooks",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.MutatingWebhook",
        "matchConditions",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.ValidatingWebhook",
        "matchConditions",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "matchConditions",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.MutatingAdmissionPolicySpec",
        "matchConditions",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "variables",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        "validationActions",
        "set",
        "",
        "",
        "",
    ),
    (
        "storage.v1.CSINodeSpec",
        "drivers",
        "map",
        "name",
        "merge",
        "name",
    ),
    (
        "storage.v1.CSIDriverSpec",
        "volumeLifecycleModes",
        "set",
        "",
        "",
        "",
    ),
    (
        "apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        "map",
        "rule",
        "merge",
        "rule",
    ),
    ("batch.v1.UncountedTerminatedPods", "failed", "set", "", "", ""),
    ("batch.v1.UncountedTerminatedPods", "succeeded", "set", "", "", ""),
    (
        "batch.v1.PodFailurePolicyOnExitCodesRequirement",
        "values",
        "set",
        "",
        "",
        "",
    ),
    (
        "core.v1.ContainerRestartRuleOnExitCodes",
        "values",
        "set",
        "",
        "",
        "",
    ),
    // conditions
    (
        "apps.v1.DeploymentStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "apps.v1.ReplicaSetStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "apps.v1.StatefulSetStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "apps.v1.DaemonSetStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "core.v1.ReplicationControllerStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "autoscaling.v2.HorizontalPodAutoscalerStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "core.v1.NamespaceStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    ("core.v1.NodeStatus", "conditions", "map", "type", "merge", "type"),
    (
        "core.v1.PersistentVolumeClaimStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    ("core.v1.PodStatus", "conditions", "map", "type", "merge", "type"),
    (
        "core.v1.ServiceStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "policy.v1.PodDisruptionBudgetStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "networking.v1.ServiceCIDRStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "core.v1.ComponentStatus",
        "conditions",
        "map",
        "type",
        "merge",
        "type",
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        "map",
        "type",
        "",
        "",
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        "conditions",
        "map",
        "type",
        "",
        "",
    ),
    ("batch.v1.JobStatus", "conditions", "atomic", "", "merge", "type"),
];

const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("core.v1.PodSpec", "nodeSelector"),
    ("core.v1.ServiceSpec", "selector"),
    ("core.v1.ReplicationControllerSpec", "selector"),
    ("node.v1.Scheduling", "nodeSelector"),
];

const ATOMIC_STRUCTS: &[&str] = &[
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
    "core.v1.LocalObjectReference",
    "core.v1.TypedLocalObjectReference",
    "core.v1.ObjectReference",
    "core.v1.SecretReference",
    "core.v1.ConfigMapKeySelector",
    "core.v1.SecretKeySelector",
    "core.v1.FileKeySelector",
    "core.v1.ObjectFieldSelector",
    "core.v1.ResourceFieldSelector",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ScopeSelector",
    "core.v1.TopologySelectorTerm",
    "core.v1.EndpointAddress",
    "core.v1.EndpointPort",
    "discovery.v1.EndpointPort",
    "networking.v1.ServiceBackendPort",
    "rbac.v1.RoleRef",
    "rbac.v1.Subject",
    "autoscaling.v1.CrossVersionObjectReference",
    "admissionregistration.v1.MatchResources",
    "admissionregistration.v1.NamedRuleWithOperations",
    "admissionregistration.v1.ParamKind",
    "admissionregistration.v1.ParamRef",
    "admissionregistration.v1.Variable",
];

fn full(short: &str) -> String {
    match short.split_once('.') {
        Some(("meta", rest)) => format!("io.k8s.apimachinery.pkg.apis.meta.{rest}"),
        Some(("apiextensions", rest)) => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{rest}")
        }
        _ => format!("io.k8s.api.{short}"),
    }
}

#[test]
fn every_ownership_rule_of_the_api_is_in_the_table() {
    for (definition, field, list, keys, words, merge_key) in OWNERSHIP {
        let found = table()
            .find(&full(definition))
            .unwrap_or_else(|| panic!("{definition} is missing"));
        let found = found
            .field(field)
            .unwrap_or_else(|| panic!("{definition}.{field} is missing"));
        let expected = match *list {
            "set" => Some(ListType::Set),
            "atomic" => Some(ListType::Atomic),
            "map" => Some(ListType::Map(keys.split(',').map(str::to_owned).collect())),
            _ => None,
        };
        assert_eq!(found.list_type, expected, "{definition}.{field}");
        assert_eq!(found.patch_words, *words, "{definition}.{field}");
        assert_eq!(
            found.patch.merge_key.as_deref().unwrap_or_default(),
            *merge_key,
            "{definition}.{field}"
        );
        assert_eq!(found.patch.merge, words.contains("merge"), "{definition}.{field}");
        assert_eq!(
            found.patch.retain_keys,
            words.contains("retainKeys"),
            "{definition}.{field}"
        );
    }
    for (definition, field) in ATOMIC_MAPS {
        let found = table()
            .find(&full(definition))
            .and_then(|found| found.field(field))
            .map(|f| f.map_type);
        assert_eq!(found, Some(Some(MapType::Atomic)), "{definition}.{field}");
    }
    for definition in ATOMIC_STRUCTS {
        let found = table().find(&full(definition)).map(|found| found.map_type);
        assert_eq!(found, Some(Some(MapType::Atomic)), "{definition}");
    }
}

#[test]
fn every_kind_has_structure_and_columns() {
    for kind in kinds() {
        let definition = table().find(kind.definition);
        assert!(
            definition.is_some_and(|found| found.field("metadata").is_some()),
            "{}",
            kind.definition
        );
        assert!(kind.schema().is_struct(), "{}", kind.kind);
        assert_eq!(kind.schema().definition.as_deref(), Some(kind.definition));
        assert!(!kind.columns().is_empty(), "{}", kind.kind);
        assert!(
            kind.columns().iter().all(|column| !column.description.is_empty()),
            "{}",
            kind.kind
        );
        assert!(
            std::ptr::eq(kind.storage().storage(), kind.storage()),
            "{}",
            kind.kind
        );
        assert_eq!(kind.status, kind.subresource("status").is_some(), "{}", kind.kind);
        assert_eq!(
            kind.scale.is_some(),
            kind.subresource("scale").is_some(),
            "{}",
            kind.kind
        );
    }
}

#[test]
fn kinds_of_the_specification_are_served() {
    for (group, version, plural, short, namespaced, status) in [
        ("", "v1", "namespaces", "ns", false, true),
        ("", "v1", "nodes", "no", false, true),
        ("", "v1", "pods", "po", true, true),
        ("", "v1", "bindings", "", true, false),
        ("", "v1", "services", "svc", true, true),
        ("", "v1", "configmaps", "cm", true, false),
        ("", "v1", "secrets", "", true, false),
        ("", "v1", "serviceaccounts", "sa", true, false),
        ("", "v1", "events", "ev", true, false),
        ("", "v1", "endpoints", "ep", true, false),
        ("", "v1", "persistentvolumeclaims", "pvc", true, true),
        ("", "v1", "persistentvolumes", "pv", false, true),
        ("", "v1", "replicationcontrollers", "rc", true, true),
        ("", "v1", "resourcequotas", "quota", true, true),
        ("", "v1", "limitranges", "limits", true, false),
        ("", "v1", "podtemplates", "", true, false),
        ("apps", "v1", "deployments", "deploy", true, true),
        ("apps", "v1", "statefulsets", "sts", true, true),
        ("apps", "v1", "replicasets", "rs", true, true),
        ("apps", "v1", "daemonsets", "ds", true, true),
        ("apps", "v1", "controllerrevisions", "", true, false),
        ("batch", "v1", "jobs", "", true, true),
        ("batch", "v1", "cronjobs", "cj", true, true),
        ("autoscaling", "v2", "horizontalpodautoscalers", "hpa", true, true),
        ("autoscaling", "v1", "horizontalpodautoscalers", "hpa", true, true),
        ("policy", "v1", "poddisruptionbudgets", "pdb", true, true),
        (
            "networking.k8s.io",
            "v1",
            "networkpolicies",
            "netpol",
            true,
            false,
        ),
        ("networking.k8s.io", "v1", "ingresses", "ing", true, true),
        ("networking.k8s.io", "v1", "ingressclasses", "", false, false),
        ("discovery.k8s.io", "v1", "endpointslices", "", true, false),
        ("coordination.k8s.io", "v1", "leases", "", true, false),
        ("events.k8s.io", "v1", "events", "ev", true, false),
        ("rbac.authorization.k8s.io", "v1", "roles", "", true, false),
        ("rbac.authorization.k8s.io", "v1", "rolebindings", "", true, false),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "clusterroles",
            "",
            false,
            false,
        ),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "clusterrolebindings",
            "",
            false,
            false,
        ),
        ("scheduling.k8s.io", "v1", "priorityclasses", "pc", false, false),
        ("storage.k8s.io", "v1", "storageclasses", "sc", false, false),
        ("storage.k8s.io", "v1", "csidrivers", "", false, false),
        ("storage.k8s.io", "v1", "csinodes", "", false, false),
        ("storage.k8s.io", "v1", "volumeattachments", "", false, true),
        ("node.k8s.io", "v1", "runtimeclasses", "", false, false),
        (
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "crd",
            false,
            true,
        ),
        (
            "admissionregistration.k8s.io",
            "v1",
            "validatingwebhookconfigurations",
            "",
            false,
            false,
        ),
        (
            "admissionregistration.k8s.io",
            "v1",
            "mutatingwebhookconfigurations",
            "",
            false,
            false,
        ),
        ("authentication.k8s.io", "v1", "tokenreviews", "", false, false),
        (
            "authentication.k8s.io",
            "v1",
            "selfsubjectreviews",
            "",
            false,
            false,
        ),
        (
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            "",
            false,
            false,
        ),
        (
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
            "",
            false,
            false,
        ),
        (
            "authorization.k8s.io",
            "v1",
            "selfsubjectrulesreviews",
            "",
            false,
            false,
        ),
        (
            "authorization.k8s.io",
            "v1",
            "localsubjectaccessreviews",
            "",
            true,
            false,
        ),
        (
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "csr",
            false,
            true,
        ),
        ("apiregistration.k8s.io", "v1", "apiservices", "", false, true),
    ] {
        let kind = find(group, version, plural).unwrap_or_else(|| panic!("{group}/{version} {plural}"));
        assert_eq!(
            kind.short_names.first().copied().unwrap_or_default(),
            short,
            "{plural}"
        );
        assert_eq!(kind.namespaced, namespaced, "{plural}");
        assert_eq!(kind.status, status, "{plural}");
        assert_eq!(kind.singular, kind.kind.to_lowercase(), "{plural}");
        assert!(find_kind(group, version, kind.kind).is_some(), "{plural}");
    }
    assert!(find("", "v1", "podz").is_none());
}

#[test]
fn switches_follow_the_reference() {
    let all = |test: fn(&cobaltcore_builtins::Kind) -> bool| -> Vec<&str> {
        let mut names: Vec<&str> = kinds()
            .iter()
            .filter(|kind| test(kind))
            .map(|kind| kind.plural)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    assert_eq!(
        all(|kind| kind.creates_on_update),
        [
            "clusterrolebindings",
            "clusterroles",
            "endpoints",
            "events",
            "leases",
            "limitranges",
            "rolebindings",
            "roles",
            "runtimeclasses",
            "services",
        ]
    );
    assert_eq!(
        all(|kind| kind.default_orphan),
        ["jobs", "replicationcontrollers"]
    );
    assert_eq!(all(|kind| kind.graceful), ["pods"]);
    assert_eq!(
        all(|kind| kind.name_rule == NameRule::Label),
        ["namespaces", "services", "statefulsets"]
    );
    assert_eq!(
        all(|kind| kind.verbs == Verbs::NoDeleteCollection),
        ["namespaces"]
    );
    let lease = find("coordination.k8s.io", "v1", "leases").map(|kind| kind.unconditional_update);
    assert_eq!(lease, Some(false));
    let events = find("events.k8s.io", "v1", "events").map(|kind| kind.storage().group);
    assert_eq!(events, Some(""));
}

fn node<'a>(schema: &'a Schema, path: &str) -> &'a Schema {
    path.split('.').fold(schema, |node, name| {
        let next = if name == "[]" {
            node.element()
        } else {
            node.child(name)
        };
        next.unwrap_or_else(|| panic!("{path} at {name}"))
    })
}

#[test]
fn schema_trees_carry_ownership_and_key_defaults() {
    let deployment = find("apps", "v1", "deployments").expect("served").schema();
    let ports = node(deployment, "spec.template.spec.containers.[].ports");
    assert_eq!(
        ports.list_type,
        ListType::Map(vec!["containerPort".into(), "protocol".into()])
    );
    assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
    let protocol = node(deployment, "spec.template.spec.containers.[].ports.[].protocol");
    assert_eq!(protocol.default, Some(serde_json::json!("TCP")));
    assert_eq!(node(deployment, "spec.selector").map_type, MapType::Atomic);
    let volume = find("", "v1", "persistentvolumes").expect("served").schema();
    assert_eq!(
        node(volume, "spec.claimRef").map_type,
        MapType::Granular,
        "the field overrules its type"
    );
    let crd = find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .expect("served")
        .schema();
    assert!(node(crd, "spec.versions.[].schema.openAPIV3Schema").preserve_unknown);
}

#[test]
fn descriptions_are_found_by_path() {
    let text = description("io.k8s.api.core.v1.Pod", &["spec", "containers", "image"]);
    assert!(text.is_some_and(|text| text.to_lowercase().contains("image")));
    assert_eq!(description("io.k8s.api.core.v1.Pod", &["spec", "nothing"]), None);
    let described = find("", "v1", "pods").expect("served").schema_with_descriptions();
    assert!(
        node(described, "spec.nodeName")
            .description
            .as_deref()
            .is_some_and(|text| !text.is_empty())
    );
}

#[test]
fn definitions_refer_only_to_definitions() {
    for version in [OpenApi::V2, OpenApi::V3] {
        let all = definitions(version);
        let text = serde_json::to_string(&all).expect("serialises");
        let prefix = if version == OpenApi::V2 {
            "#/definitions/"
        } else {
            "#/components/schemas/"
        };
        for reference in text.split(prefix).skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(all.contains_key(name), "{name}");
        }
        let spec = &all["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(spec["x-kubernetes-list-map-keys"], serde_json::json!(["name"]));
        assert_eq!(spec["x-kubernetes-patch-strategy"], "merge");
        assert!(all.contains_key("io.k8s.api.apps.v1.DeploymentList"));
    }
    let v3 = definitions(OpenApi::V3);
    let deployment = &v3["io.k8s.api.apps.v1.Deployment"];
    assert!(
        deployment["properties"]["spec"]["allOf"].is_array(),
        "a description stands beside the reference"
    );
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"][0]["kind"],
        "Deployment"
    );
    let names =
        reachable("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition");
    assert!(names.iter().any(|name| name.ends_with(".JSONSchemaProps")));
}

#[test]
fn references_of_the_table_resolve() {
    fn check(kind: &FieldType) {
        match kind {
            FieldType::List(inner) | FieldType::Map(inner) => check(inner),
            FieldType::Definition(index) => assert!(table().get(*index).is_some()),
            _ => {}
        }
    }
    for definition in &table().definitions {
        assert!(definition.form != Form::Struct || definition.fields.is_sorted_by_key(|field| field.name));
        definition.fields.iter().for_each(|field| check(&field.kind));
    }
}
