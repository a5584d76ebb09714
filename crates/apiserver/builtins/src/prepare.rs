// SPDX-License-Identifier: Apache-2.0
//! What happens to an object between defaulting and validation: fields the client may not set are
//! reset, the stored half of an object is kept when only the other half is written, and generated
//! parts (job selectors, quality of service, the namespace's finalizer) are put in.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::decode::zero_field;
use crate::json::{
    at, ensure, flag, int, list, list_mut, map, map_mut, same, take_over, take_over_metadata, text,
};
use crate::kind::Kind;
use crate::quantity::Quantity;
use crate::times::{Precision, render};
use crate::validate::profiles;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl Kind {
    /// Prepares a new object. The server has set uid and creationTimestamp already.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.resets_status() {
            let status = zero_field(self.definition, "status");
            ensure(object, "").insert("status".to_owned(), status);
        }
        match self.id() {
            ("", "Pod") => pod(object),
            ("", "Namespace") => namespace(object),
            ("", "PersistentVolume") => volume(object),
            ("", "PersistentVolumeClaim") => {
                ensure(object, "status").insert("phase".to_owned(), json!("Pending"));
                data_sources(object);
            }
            ("", "Node") => node(object),
            ("", "ServiceAccount") => clean_secret_references(object),
            ("batch", "Job") => job_selector(object),
            ("apps", "DaemonSet") => template_generation(object, None),
            ("apps", "StatefulSet") => drop_max_unavailable(object, None),
            ("discovery.k8s.io", "EndpointSlice") => drop_topology(object),
            ("coordination.k8s.io", _) => drop_election(object, None),
            // Which versions were stored is the server's to know.
            ("apiextensions.k8s.io", _) => {
                ensure(object, "").remove("status");
            }
            ("certificates.k8s.io", _) => {
                let spec = ensure(object, "spec");
                for name in ["username", "uid", "groups", "extra"] {
                    spec.remove(name);
                }
            }
            _ => {}
        }
    }

    /// What conversion adds to a new object before it is noted who owns what of it.
    pub fn prepare_ownership(&self, object: &mut Value) {
        if self.id() == ("apps", "DaemonSet") {
            template_generation(object, None);
        }
    }

    fn resets_status(&self) -> bool {
        self.status
            && !matches!(
                self.id(),
                ("", "Node" | "Namespace") | ("apiextensions.k8s.io", _)
            )
    }

    /// Prepares an update of the main endpoint (`None`), of `status`, `finalize` or `approval`.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, subresource: Option<&str>) {
        match subresource {
            None => self.prepare_main(new, old),
            Some("status") => self.prepare_status(new, old),
            Some("finalize") => take_over(new, old, "status"),
            Some("approval") => prepare_approval(new, old),
            Some("ephemeralcontainers") => crate::pod_parts::only_ephemeral(new, old),
            Some("resize") => crate::pod_parts::only_sizes(new, old),
            Some(_) => {}
        }
    }

    fn prepare_main(&self, new: &mut Value, old: &Value) {
        if self.status {
            take_over(new, old, "status");
        }
        match self.id() {
            ("", "Namespace") => {
                let finalizers = at(old, "spec.finalizers").cloned();
                let spec = ensure(new, "spec");
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
            ("", "Service") => service_type_change(new, old),
            ("", "Node") if at(old, "spec.configSource").is_none() => {
                ensure(new, "spec").remove("configSource");
            }
            ("", "Secret") if text(new, "type").is_empty() => take_over(new, old, "type"),
            ("", "ServiceAccount") => clean_secret_references(new),
            ("", "PersistentVolumeClaim") => data_sources(new),
            ("apps", "DaemonSet") => template_generation(new, Some(old)),
            ("apps", "StatefulSet") => drop_max_unavailable(new, Some(old)),
            ("discovery.k8s.io", "EndpointSlice") if !same(at(new, "endpoints"), at(old, "endpoints")) => {
                drop_topology(new);
            }
            ("coordination.k8s.io", _) => drop_election(new, Some(old)),
            ("certificates.k8s.io", _) => take_over(new, old, "spec"),
            _ => {}
        }
    }

    /// Whether the status endpoint leaves labels, annotations and all other metadata alone. Older
    /// kinds let them through.
    pub fn status_keeps_metadata(&self) -> bool {
        matches!(
            self.id(),
            ("storage.k8s.io", "VolumeAttachment")
                | ("networking.k8s.io", "ServiceCIDR")
                | ("resource.k8s.io", "ResourceClaim")
                | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
                | ("apiregistration.k8s.io", "APIService")
        )
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        if self.status_keeps_metadata() {
            keep_metadata(new, old);
        }
        if old.get("spec").is_some() || new.get("spec").is_some() {
            take_over(new, old, "spec");
        }
        match self.id() {
            ("", "Pod") => {
                take_over_metadata(new, old, "ownerReferences");
                take_over_metadata(new, old, "deletionTimestamp");
                pod_status(new, old);
            }
            ("apps", "Deployment") => take_over_metadata(new, old, "labels"),
            ("certificates.k8s.io", _) => keep_decisions(new, old),
            _ => {}
        }
    }

    /// Times the reference sets while it prepares an update; call after [`Kind::prepare_update`].
    pub fn stamp_update(&self, new: &mut Value, old: &Value, subresource: Option<&str>, now: Timestamp) {
        match (self.id(), subresource) {
            (("", "PersistentVolume"), Some("status")) => {
                let unchanged = text(new, "status.phase") == text(old, "status.phase");
                let given = at(new, "status.lastPhaseTransitionTime").cloned();
                let before = at(old, "status.lastPhaseTransitionTime").cloned();
                let status = ensure(new, "status");
                if unchanged && given.is_none() {
                    if let Some(before) = before {
                        status.insert("lastPhaseTransitionTime".to_owned(), before);
                    }
                } else if !unchanged && (given.is_none() || given == before) {
                    status.insert(
                        "lastPhaseTransitionTime".to_owned(),
                        json!(render(now, Precision::Seconds)),
                    );
                }
            }
            (("certificates.k8s.io", _), Some("status" | "approval")) => {
                let stamp = json!(render(now, Precision::Seconds));
                for condition in list_mut(new, "status.conditions") {
                    let condition = ensure(condition, "");
                    crate::json::default(condition, "lastUpdateTime", stamp.clone());
                    crate::json::default(condition, "lastTransitionTime", stamp.clone());
                }
            }
            _ => {}
        }
    }

    /// Whether an update is one that raises metadata.generation.
    pub fn spec_changed(&self, new: &Value, old: &Value) -> bool {
        let differs = |path: &str| !same(at(new, path), at(old, path));
        match self.id() {
            ("apps", "Deployment") => differs("spec") || differs("metadata.annotations"),
            ("", "PodTemplate") => differs("template"),
            // Values of priority classes cannot change, and the reference never counts.
            ("scheduling.k8s.io", _) => false,
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
            ) => differs("webhooks"),
            ("discovery.k8s.io", _) => ["addressType", "endpoints", "ports", "metadata.labels"]
                .into_iter()
                .any(differs),
            _ => differs("spec"),
        }
    }
}

/// Metadata that a client cannot change through an endpoint made for something else.
pub(crate) fn keep_metadata(new: &mut Value, old: &Value) {
    for name in [
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        take_over_metadata(new, old, name);
    }
}

fn pod(object: &mut Value) {
    if int(object, "spec.terminationGracePeriodSeconds").is_some_and(|grace| grace < 0) {
        ensure(object, "spec").insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    confine(object);
    let class = qos_class(object);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !list(object, "spec.schedulingGates").is_empty() {
        let made = at(object, "metadata.creationTimestamp").cloned();
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": made,
        }]);
    }
    ensure(object, "").insert("status".to_owned(), status);
}

/// What the old annotations say about a container becomes its field, unless the pod says the same.
fn confine(pod: &mut Value) {
    if text(pod, "spec.os.name") == "windows" {
        return;
    }
    let of_pod = at(pod, "spec.securityContext.appArmorProfile").cloned();
    let annotations = map(pod, "metadata.annotations").cloned().unwrap_or_default();
    for field in [
        "spec.initContainers",
        "spec.containers",
        "spec.ephemeralContainers",
    ] {
        for container in list_mut(pod, field) {
            let key = format!("{}{}", profiles::APP_ARMOR, text(container, "name"));
            let Some(written) = annotations.get(&key).and_then(Value::as_str) else {
                continue;
            };
            if at(container, "securityContext.appArmorProfile").is_some()
                || profiles::is_profile(of_pod.as_ref(), written)
            {
                continue;
            }
            if let Some((kind, name)) = profiles::annotated_app_armor(written) {
                let mut profile = json!({"type": kind});
                if let Some(name) = name {
                    profile["localhostProfile"] = json!(name);
                }
                ensure(container, "securityContext").insert("appArmorProfile".to_owned(), profile);
            }
        }
    }
}

/// BestEffort, Burstable or Guaranteed.
pub fn qos_class(pod: &Value) -> &'static str {
    let mut requested = Map::new();
    let mut limited = Map::new();
    let mut guaranteed = true;
    let pod_level = map(pod, "spec.resources").is_some_and(|resources| !resources.is_empty());
    let spec = at(pod, "spec").cloned().unwrap_or_default();
    let sources: Vec<&Value> = if pod_level {
        vec![&spec]
    } else {
        list(pod, "spec.containers")
            .iter()
            .chain(list(pod, "spec.initContainers"))
            .collect()
    };
    for source in sources {
        collect(source, "resources.requests", &mut requested);
        let found = collect(source, "resources.limits", &mut limited);
        guaranteed &= found == 2;
    }
    if requested.is_empty() && limited.is_empty() {
        return "BestEffort";
    }
    let equal = requested.len() == limited.len()
        && requested.iter().all(|(name, sum)| {
            limited
                .get(name)
                .is_some_and(|limit| Quantity::from_value(limit).ok() == Quantity::from_value(sum).ok())
        });
    if guaranteed && equal {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds the positive cpu and memory amounts of a list to the sums; answers how many there were.
fn collect(source: &Value, path: &str, sums: &mut Map<String, Value>) -> usize {
    let mut found = 0;
    for name in ["cpu", "memory"] {
        let amount = map(source, path)
            .and_then(|list| list.get(name))
            .and_then(|v| Quantity::from_value(v).ok());
        let Some(amount) = amount.filter(|amount| !amount.is_zero() && !amount.is_negative()) else {
            continue;
        };
        found += 1;
        let sum = sums.get(name).and_then(|sum| Quantity::from_value(sum).ok());
        let sum = sum.map_or(amount.clone(), |sum| sum.add(&amount));
        sums.insert(name.to_owned(), Value::from(sum.to_string()));
    }
    found
}

fn pod_status(new: &mut Value, old: &Value) {
    if text(new, "status.qosClass").is_empty()
        && let Some(class) = at(old, "status.qosClass").cloned()
    {
        ensure(new, "status").insert("qosClass".to_owned(), class);
    }
    if let Some(observed) = at(old, "status.observedGeneration").cloned() {
        crate::json::default(ensure(new, "status"), "observedGeneration", observed);
    }
    let old_conditions = list(old, "status.conditions");
    for condition in list_mut(new, "status.conditions") {
        let kind = text(condition, "type").to_owned();
        let before = old_conditions.iter().find(|known| text(known, "type") == kind);
        if let Some(generation) = before.and_then(|known| at(known, "observedGeneration")).cloned() {
            crate::json::default(ensure(condition, ""), "observedGeneration", generation);
        }
    }
}

fn namespace(object: &mut Value) {
    ensure(object, "").insert("status".to_owned(), json!({"phase": "Active"}));
    let name = text(object, "metadata.name").to_owned();
    ensure(object, "metadata.labels").insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    let mut finalizers: Vec<Value> = list(object, "spec.finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    ensure(object, "spec").insert("finalizers".to_owned(), Value::Array(finalizers));
}

fn volume(object: &mut Value) {
    let created = at(object, "metadata.creationTimestamp").cloned();
    let status = ensure(object, "status");
    status.insert("phase".to_owned(), json!("Pending"));
    if let Some(created) = created {
        status.insert("lastPhaseTransitionTime".to_owned(), created);
    }
}

fn node(object: &mut Value) {
    ensure(object, "spec").remove("configSource");
    if let Some(status) = map_mut(object, "status") {
        status.remove("config");
    }
}

/// Whether something is a claim or a snapshot; `dataSource` can name nothing else.
fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (text(source, "kind"), text(source, "apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    )
}

/// dataSource and dataSourceRef mirror each other for volumes and snapshots; a dataSource that is
/// neither is forgotten.
fn data_sources(object: &mut Value) {
    if at(object, "spec.dataSource").is_some_and(|source| !is_claim_or_snapshot(source)) {
        ensure(object, "spec").remove("dataSource");
    }
    let source = at(object, "spec.dataSource").cloned();
    let reference = at(object, "spec.dataSourceRef").cloned();
    match (source, reference) {
        (Some(source), None) => {
            ensure(object, "spec").insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            let mut mirrored = reference;
            if let Some(fields) = mirrored.as_object_mut() {
                fields.remove("namespace");
            }
            if is_claim_or_snapshot(&mirrored) {
                ensure(object, "spec").insert("dataSource".to_owned(), mirrored);
            }
        }
        _ => {}
    }
}

/// Secrets of an account are referred to by name alone.
fn clean_secret_references(object: &mut Value) {
    for secret in list_mut(object, "secrets") {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|name, _| name == "name");
        }
    }
}

fn job_selector(object: &mut Value) {
    if flag(object, "spec.manualSelector") {
        return;
    }
    let name = text(object, "metadata.name").to_owned();
    let uid = text(object, "metadata.uid").to_owned();
    // A job without labels of its own has those of its pods, also those they get here.
    let own = map(object, "metadata.labels").filter(|labels| !labels.is_empty());
    let shared = own.is_none_or(|own| Some(own) == map(object, "spec.template.metadata.labels"));
    let labels = ensure(object, "spec.template.metadata.labels");
    for (key, value) in [
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
    ] {
        labels.entry(key).or_insert_with(|| json!(value));
    }
    let selector = ensure(object, "spec.selector.matchLabels");
    selector
        .entry("batch.kubernetes.io/controller-uid")
        .or_insert_with(|| json!(uid));
    if shared {
        let labels = map(object, "spec.template.metadata.labels").cloned();
        *ensure(object, "metadata.labels") = labels.unwrap_or_default();
    }
}

/// Counts template changes in the annotation older clients read.
fn template_generation(new: &mut Value, old: Option<&Value>) {
    let read = |object: &Value| -> i64 {
        map(object, "metadata.annotations")
            .and_then(|annotations| annotations.get(TEMPLATE_GENERATION))
            .and_then(Value::as_str)
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    };
    let number = match old {
        None => read(new).max(1),
        Some(old) if same(at(new, "spec.template"), at(old, "spec.template")) => read(old),
        Some(old) => read(old) + 1,
    };
    ensure(new, "metadata.annotations").insert(TEMPLATE_GENERATION.to_owned(), json!(number.to_string()));
}

/// The field belongs to a feature that is off; it stays only where it already was.
fn drop_max_unavailable(new: &mut Value, old: Option<&Value>) {
    const PATH: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    let in_use = old.is_some_and(|old| at(old, PATH).is_some());
    if !in_use && let Some(rolling) = map_mut(new, "spec.updateStrategy.rollingUpdate") {
        rolling.remove("maxUnavailable");
    }
}

/// Fields of coordinated leader election, which is off.
fn drop_election(new: &mut Value, old: Option<&Value>) {
    for field in ["strategy", "preferredHolder"] {
        let in_use = old.is_some_and(|old| at(old, &format!("spec.{field}")).is_some());
        if !in_use && let Some(spec) = map_mut(new, "spec") {
            spec.remove(field);
        }
    }
}

fn drop_topology(object: &mut Value) {
    for endpoint in list_mut(object, "endpoints") {
        ensure(endpoint, "").remove("deprecatedTopology");
    }
}

/// A change of the service's type wipes what the new type has no use for, unless the client changed
/// those fields too (then validation has its say).
fn service_type_change(new: &mut Value, old: &Value) {
    let kind = |object: &Value| text(object, "spec.type").to_owned();
    let (before, after) = (kind(old), kind(new));
    let unchanged = |new: &Value, path: &str| same(at(new, path), at(old, path));
    if before != "ExternalName" && after == "ExternalName" {
        // Whoever writes one address means the list of it, too.
        let implied = list(new, "spec.clusterIPs").is_empty() && !text(new, "spec.clusterIP").is_empty();
        if unchanged(new, "spec.clusterIP") && (implied || unchanged(new, "spec.clusterIPs")) {
            let spec = ensure(new, "spec");
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if unchanged(new, &format!("spec.{field}")) {
                ensure(new, "spec").remove(field);
            }
        }
    }
    let has_ports = |kind: &str| kind == "NodePort" || kind == "LoadBalancer";
    if has_ports(&before) && !has_ports(&after) && no_new_node_ports(new, old) {
        for port in list_mut(new, "spec.ports") {
            ensure(port, "").remove("nodePort");
        }
    }
    let checked = |object: &Value| {
        kind(object) == "LoadBalancer" && text(object, "spec.externalTrafficPolicy") == "Local"
    };
    if checked(old) && !checked(new) && unchanged(new, "spec.healthCheckNodePort") {
        ensure(new, "spec").remove("healthCheckNodePort");
    }
    if before == "LoadBalancer" && after != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(new, &format!("spec.{field}")) {
                ensure(new, "spec").remove(field);
            }
        }
    }
    let external = |object: &Value| {
        let kind = kind(object);
        has_ports(&kind) || (kind == "ClusterIP" && !list(object, "spec.externalIPs").is_empty())
    };
    if external(old) && !external(new) && unchanged(new, "spec.externalTrafficPolicy") {
        ensure(new, "spec").remove("externalTrafficPolicy");
    }
    if after != "LoadBalancer" {
        ensure(new, "status").insert("loadBalancer".to_owned(), json!({}));
    }
}

fn no_new_node_ports(new: &Value, old: &Value) -> bool {
    let ports = |object: &Value| -> Vec<i64> {
        list(object, "spec.ports")
            .iter()
            .map(|port| crate::json::number(port, "nodePort"))
            .filter(|p| *p != 0)
            .collect()
    };
    let known = ports(old);
    ports(new).iter().all(|port| known.contains(port))
}

fn prepare_approval(new: &mut Value, old: &Value) {
    let conditions = at(new, "status.conditions").cloned();
    take_over(new, old, "spec");
    take_over(new, old, "status");
    let status = ensure(new, "status");
    match conditions {
        Some(conditions) => status.insert("conditions".to_owned(), conditions),
        None => status.remove("conditions"),
    };
}

/// Approvals and denials are only changed through their own endpoint.
fn keep_decisions(new: &mut Value, old: &Value) {
    let decided = |condition: &Value| matches!(text(condition, "type"), "Approved" | "Denied");
    let kept: Vec<Value> = list(old, "status.conditions")
        .iter()
        .filter(|c| decided(c))
        .cloned()
        .collect();
    for condition in list_mut(new, "status.conditions") {
        if let Some(before) = kept
            .iter()
            .find(|known| text(known, "type") == text(condition, "type"))
        {
            *condition = before.clone();
        }
    }
}
