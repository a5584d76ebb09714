// SPDX-License-Identifier: Apache-2.0
//! Column headings. Each is one line: name, type, priority and where its description comes from - a
//! field of the type table, or a sentence of its own where no single field stands behind it.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::kind::Kind;
use crate::table::description;

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// JSON type of the cells.
    pub kind: &'static str,
    /// `name` for the column that identifies the object, else empty.
    pub format: &'static str,
    /// What the column shows.
    pub description: &'static str,
    /// 0 is always shown, 1 only in wide output.
    pub priority: i32,
}

/// Heading, type, priority, source of the description: `Definition:path` or text.
type Spec = (&'static str, &'static str, i32, &'static str);

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const NAME: Spec = ("Name", "string", 0, "@meta:name");
const AGE: Spec = ("Age", "string", 0, "@meta:creationTimestamp");
const CONTAINERS: Spec = (
    "Containers",
    "string",
    1,
    "Names of the containers in the template.",
);
const IMAGES: Spec = ("Images", "string", 1, "Images of the containers in the template.");

pub(super) fn of(kind: &Kind) -> &'static [Column] {
    type Cache = Mutex<HashMap<&'static str, &'static [Column]>>;
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let mut cache = CACHE
        .get_or_init(Cache::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // Bounded: one list per kind, for the life of the process.
    cache
        .entry(kind.definition)
        .or_insert_with(|| build(kind.definition, specs(kind)).leak())
}

/// Columns of a `Status` answer.
pub fn status_columns() -> Vec<Column> {
    const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
    build(
        STATUS,
        &[
            ("Status", "string", 0, "@:status"),
            ("Reason", "string", 0, "@:reason"),
            ("Message", "string", 0, "@:message"),
        ],
    )
}

fn build(definition: &str, specs: &[Spec]) -> Vec<Column> {
    specs
        .iter()
        .map(|(name, kind, priority, source)| Column {
            name,
            kind,
            format: if *name == "Name" || *name == "Attacher" {
                "name"
            } else {
                ""
            },
            description: describe(definition, source),
            priority: *priority,
        })
        .collect()
}

fn describe(definition: &str, source: &'static str) -> &'static str {
    let Some(reference) = source.strip_prefix('@') else {
        return source;
    };
    let (start, path) = reference.split_once(':').unwrap_or(("", reference));
    let start = if start == "meta" { META } else { definition };
    description(start, &path.split('.').collect::<Vec<_>>()).unwrap_or_default()
}

fn specs(kind: &Kind) -> &'static [Spec] {
    match kind.id() {
        ("", "Pod") => &[
            NAME,
            (
                "Ready",
                "string",
                0,
                "Containers that are ready, out of all that should be.",
            ),
            (
                "Status",
                "string",
                0,
                "What the containers of this pod are doing, taken together.",
            ),
            (
                "Restarts",
                "string",
                0,
                "How often containers of this pod were restarted, and when last.",
            ),
            AGE,
            ("IP", "string", 1, "@:status.podIP"),
            ("Node", "string", 1, "@:spec.nodeName"),
            ("Nominated Node", "string", 1, "@:status.nominatedNodeName"),
            ("Readiness Gates", "string", 1, "@:spec.readinessGates"),
        ],
        ("", "PodTemplate") => &[
            NAME,
            ("Containers", "string", 0, CONTAINERS.3),
            ("Images", "string", 0, IMAGES.3),
            (
                "Pod Labels",
                "string",
                0,
                "Labels pods made from the template get.",
            ),
        ],
        ("apps", "Deployment") => &[
            NAME,
            ("Ready", "string", 0, "Pods that are ready, out of those wanted."),
            ("Up-to-date", "string", 0, "@:status.updatedReplicas"),
            ("Available", "string", 0, "@:status.availableReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", 1, "@:spec.selector"),
        ],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &[
            NAME,
            ("Desired", "integer", 0, "@:spec.replicas"),
            ("Current", "integer", 0, "@:status.replicas"),
            ("Ready", "integer", 0, "@:status.readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", 1, "@:spec.selector"),
        ],
        ("apps", "StatefulSet") => &[
            NAME,
            ("Ready", "string", 0, "Pods that are ready, out of those wanted."),
            AGE,
            CONTAINERS,
            IMAGES,
        ],
        ("apps", "DaemonSet") => &[
            NAME,
            ("Desired", "integer", 0, "@:status.desiredNumberScheduled"),
            ("Current", "integer", 0, "@:status.currentNumberScheduled"),
            ("Ready", "integer", 0, "@:status.numberReady"),
            ("Up-to-date", "integer", 0, "@:status.updatedNumberScheduled"),
            ("Available", "integer", 0, "@:status.numberAvailable"),
            ("Node Selector", "string", 0, "@:spec.template.spec.nodeSelector"),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", 1, "@:spec.selector"),
        ],
        ("apps", "ControllerRevision") => &[
            NAME,
            (
                "Controller",
                "string",
                0,
                "The controller the revision belongs to.",
            ),
            ("Revision", "string", 0, "@:revision"),
            AGE,
        ],
        ("batch", "Job") => &[
            NAME,
            ("Status", "string", 0, "How far the job has come."),
            ("Completions", "string", 0, "@:status.succeeded"),
            (
                "Duration",
                "string",
                0,
                "Time from start to completion, or until now.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", 1, "@:spec.selector"),
        ],
        ("batch", "CronJob") => &[
            NAME,
            ("Schedule", "string", 0, "@:spec.schedule"),
            ("Timezone", "string", 0, "@:spec.timeZone"),
            ("Suspend", "boolean", 0, "@:spec.suspend"),
            ("Active", "integer", 0, "@:status.active"),
            ("Last Schedule", "string", 0, "@:status.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", 1, "@:spec.jobTemplate.spec.selector"),
        ],
        ("autoscaling", _) => &[
            NAME,
            ("Reference", "string", 0, "@:spec.scaleTargetRef"),
            ("Targets", "string", 0, "Current and wanted value of each metric."),
            ("MinPods", "string", 0, "@:spec.minReplicas"),
            ("MaxPods", "string", 0, "@:spec.maxReplicas"),
            ("Replicas", "string", 0, "@:status.currentReplicas"),
            AGE,
        ],
        ("policy", _) => &[
            NAME,
            ("Min Available", "string", 0, "How many pods must stay available."),
            (
                "Max Unavailable",
                "string",
                0,
                "How many pods may be unavailable.",
            ),
            (
                "Allowed Disruptions",
                "integer",
                0,
                "How many pods may be disrupted now.",
            ),
            AGE,
        ],
        _ => cluster_specs(kind),
    }
}

fn cluster_specs(kind: &Kind) -> &'static [Spec] {
    match kind.id() {
        ("", "Service") => &[
            NAME,
            ("Type", "string", 0, "@:spec.type"),
            ("Cluster-IP", "string", 0, "@:spec.clusterIP"),
            ("External-IP", "string", 0, "@:spec.externalIPs"),
            ("Port(s)", "string", 0, "@:spec.ports"),
            AGE,
            ("Selector", "string", 1, "@:spec.selector"),
        ],
        ("", "Endpoints") => &[NAME, ("Endpoints", "string", 0, "@:subsets"), AGE],
        ("discovery.k8s.io", _) => &[
            NAME,
            ("AddressType", "string", 0, "@:addressType"),
            ("Ports", "string", 0, "@:ports"),
            ("Endpoints", "string", 0, "@:endpoints"),
            AGE,
        ],
        ("networking.k8s.io", "Ingress") => &[
            NAME,
            ("Class", "string", 0, "@:spec.ingressClassName"),
            ("Hosts", "string", 0, "Hosts the rules apply to."),
            ("Address", "string", 0, "@:status.loadBalancer"),
            ("Ports", "string", 0, "Ports that are open, with or without TLS."),
            AGE,
        ],
        ("networking.k8s.io", "IngressClass") => &[
            NAME,
            ("Controller", "string", 0, "@:spec.controller"),
            ("Parameters", "string", 0, "@:spec.parameters"),
            AGE,
        ],
        ("networking.k8s.io", "NetworkPolicy") => {
            &[NAME, ("Pod-Selector", "string", 0, "@:spec.podSelector"), AGE]
        }
        ("", "Node") => &[
            NAME,
            (
                "Status",
                "string",
                0,
                "Whether the node is ready, and whether it takes pods.",
            ),
            ("Roles", "string", 0, "Roles named by the node's labels."),
            AGE,
            ("Version", "string", 0, "@:status.nodeInfo.kubeletVersion"),
            ("Internal-IP", "string", 1, "@:status.addresses"),
            ("External-IP", "string", 1, "@:status.addresses"),
            ("OS-Image", "string", 1, "@:status.nodeInfo.osImage"),
            ("Kernel-Version", "string", 1, "@:status.nodeInfo.kernelVersion"),
            (
                "Container-Runtime",
                "string",
                1,
                "@:status.nodeInfo.containerRuntimeVersion",
            ),
        ],
        ("", "Namespace") => &[NAME, ("Status", "string", 0, "Phase of the namespace."), AGE],
        ("", "Secret") => &[
            NAME,
            ("Type", "string", 0, "@:type"),
            ("Data", "string", 0, "@:data"),
            AGE,
        ],
        ("", "ConfigMap") => &[NAME, ("Data", "string", 0, "@:data"), AGE],
        ("", "ServiceAccount") => &[NAME, AGE],
        ("", "ResourceQuota") => &[
            NAME,
            (
                "Request",
                "string",
                0,
                "Used and allowed amounts that are requested.",
            ),
            ("Limit", "string", 0, "Used and allowed amounts that are limits."),
            AGE,
        ],
        ("", "Event") => &[
            ("Last Seen", "string", 0, "@:lastTimestamp"),
            ("Type", "string", 0, "@:type"),
            ("Reason", "string", 0, "@:reason"),
            ("Object", "string", 0, "@:involvedObject"),
            ("Subobject", "string", 1, "@:involvedObject.fieldPath"),
            ("Source", "string", 1, "@:source"),
            ("Message", "string", 0, "@:message"),
            ("First Seen", "string", 1, "@:firstTimestamp"),
            ("Count", "string", 1, "@:count"),
            ("Name", "string", 1, "@meta:name"),
        ],
        ("events.k8s.io", "Event") => &[
            ("Last Seen", "string", 0, "@:deprecatedLastTimestamp"),
            ("Type", "string", 0, "@:type"),
            ("Reason", "string", 0, "@:reason"),
            ("Object", "string", 0, "@:regarding"),
            ("Subobject", "string", 1, "@:regarding.fieldPath"),
            ("Source", "string", 1, "@:deprecatedSource"),
            ("Message", "string", 0, "@:note"),
            ("First Seen", "string", 1, "@:deprecatedFirstTimestamp"),
            ("Count", "string", 1, "@:deprecatedCount"),
            ("Name", "string", 1, "@meta:name"),
        ],
        _ => other_specs(kind),
    }
}

fn other_specs(kind: &Kind) -> &'static [Spec] {
    match kind.id() {
        ("", "PersistentVolume") => &[
            NAME,
            ("Capacity", "string", 0, "@:spec.capacity"),
            ("Access Modes", "string", 0, "@:spec.accessModes"),
            (
                "Reclaim Policy",
                "string",
                0,
                "@:spec.persistentVolumeReclaimPolicy",
            ),
            ("Status", "string", 0, "@:status.phase"),
            ("Claim", "string", 0, "@:spec.claimRef"),
            ("StorageClass", "string", 0, "@:spec.storageClassName"),
            (
                "VolumeAttributesClass",
                "string",
                0,
                "@:spec.volumeAttributesClassName",
            ),
            ("Reason", "string", 0, "@:status.reason"),
            AGE,
            ("VolumeMode", "string", 1, "@:spec.volumeMode"),
        ],
        ("", "PersistentVolumeClaim") => &[
            NAME,
            ("Status", "string", 0, "@:status.phase"),
            ("Volume", "string", 0, "@:spec.volumeName"),
            ("Capacity", "string", 0, "@:status.capacity"),
            ("Access Modes", "string", 0, "@:status.accessModes"),
            ("StorageClass", "string", 0, "@:spec.storageClassName"),
            (
                "VolumeAttributesClass",
                "string",
                0,
                "@:spec.volumeAttributesClassName",
            ),
            AGE,
            ("VolumeMode", "string", 1, "@:spec.volumeMode"),
        ],
        ("coordination.k8s.io", _) => &[NAME, ("Holder", "string", 0, "@:spec.holderIdentity"), AGE],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &[
            NAME,
            ("Role", "string", 0, "@:roleRef"),
            AGE,
            ("Users", "string", 1, "Users the binding names."),
            ("Groups", "string", 1, "Groups the binding names."),
            (
                "ServiceAccounts",
                "string",
                1,
                "Service accounts the binding names.",
            ),
        ],
        ("scheduling.k8s.io", _) => &[
            NAME,
            ("Value", "integer", 0, "@:value"),
            ("Global-Default", "boolean", 0, "@:globalDefault"),
            AGE,
            ("PreemptionPolicy", "string", 0, "@:preemptionPolicy"),
        ],
        ("storage.k8s.io", "StorageClass") => &[
            NAME,
            ("Provisioner", "string", 0, "@:provisioner"),
            ("ReclaimPolicy", "string", 0, "@:reclaimPolicy"),
            ("VolumeBindingMode", "string", 0, "@:volumeBindingMode"),
            ("AllowVolumeExpansion", "string", 0, "@:allowVolumeExpansion"),
            AGE,
        ],
        ("storage.k8s.io", "CSIDriver") => &[
            NAME,
            ("AttachRequired", "boolean", 0, "@:spec.attachRequired"),
            ("PodInfoOnMount", "boolean", 0, "@:spec.podInfoOnMount"),
            ("StorageCapacity", "boolean", 0, "@:spec.storageCapacity"),
            ("TokenRequests", "string", 0, "@:spec.tokenRequests"),
            ("RequiresRepublish", "boolean", 0, "@:spec.requiresRepublish"),
            ("Modes", "string", 0, "@:spec.volumeLifecycleModes"),
            AGE,
        ],
        ("storage.k8s.io", "CSINode") => &[
            NAME,
            (
                "Drivers",
                "integer",
                0,
                "How many CSI drivers are registered on the node.",
            ),
            AGE,
        ],
        ("storage.k8s.io", "VolumeAttachment") => &[
            NAME,
            ("Attacher", "string", 0, "@:spec.attacher"),
            ("PV", "string", 0, "@:spec.source.persistentVolumeName"),
            ("Node", "string", 0, "@:spec.nodeName"),
            ("Attached", "boolean", 0, "@:status.attached"),
            AGE,
        ],
        ("storage.k8s.io", "VolumeAttributesClass") => {
            &[NAME, ("DriverName", "string", 0, "@:driverName"), AGE]
        }
        ("resource.k8s.io", "ResourceClaim") => &[
            NAME,
            (
                "State",
                "string",
                0,
                "Whether the claim has a device, and who uses it.",
            ),
            AGE,
        ],
        ("resource.k8s.io", "ResourceSlice") => &[
            NAME,
            ("Node", "string", 0, "@:spec.nodeName"),
            ("Driver", "string", 0, "@:spec.driver"),
            ("Pool", "string", 0, "@:spec.pool.name"),
            AGE,
        ],
        ("resource.k8s.io", _) => &[NAME, AGE],
        ("networking.k8s.io", "IPAddress") => &[NAME, ("ParentRef", "string", 0, "@:spec.parentRef")],
        ("networking.k8s.io", "ServiceCIDR") => &[NAME, ("CIDRs", "string", 0, "@:spec.cidrs"), AGE],
        ("node.k8s.io", _) => &[NAME, ("Handler", "string", 0, "@:handler"), AGE],
        ("admissionregistration.k8s.io", kind) => admission_specs(kind),
        ("certificates.k8s.io", _) => &[
            NAME,
            AGE,
            ("SignerName", "string", 0, "@:spec.signerName"),
            ("Requestor", "string", 0, "@:spec.request"),
            ("RequestedDuration", "string", 0, "@:spec.expirationSeconds"),
            ("Condition", "string", 0, "@:status.conditions"),
        ],
        ("apiregistration.k8s.io", _) => &[
            NAME,
            ("Service", "string", 0, "The service behind this API, or Local."),
            ("Available", "string", 0, "Whether the API answers."),
            AGE,
        ],
        _ => &[NAME, ("Created At", "date", 0, "@meta:creationTimestamp")],
    }
}

fn admission_specs(kind: &str) -> &'static [Spec] {
    match kind {
        "ValidatingAdmissionPolicy" => &[
            NAME,
            ("Validations", "integer", 0, "How many rules the policy has."),
            ("ParamKind", "string", 0, "@:spec.paramKind"),
            AGE,
        ],
        "MutatingAdmissionPolicy" => &[
            NAME,
            ("Mutations", "integer", 0, "How many mutations the policy has."),
            ("ParamKind", "string", 0, "@:spec.paramKind"),
            AGE,
        ],
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => &[
            NAME,
            ("PolicyName", "string", 0, "@:spec.policyName"),
            ("ParamRef", "string", 0, "@:spec.paramRef"),
            AGE,
        ],
        _ => &[
            NAME,
            (
                "Webhooks",
                "integer",
                0,
                "How many webhooks the configuration has.",
            ),
            AGE,
        ],
    }
}
