// SPDX-License-Identifier: Apache-2.0
//! Defaults of built-in kinds: what the reference fills in before anybody else sees an object.
//! Defaults only ever add; applying them twice changes nothing. Defaults that need the cluster
//! (service account, tolerations, priority, addresses) are not here.

mod cluster;
mod devices;
mod pod;
mod workload;

use serde_json::Value;

use crate::json::{default, default_text, ensure, list_mut, map_mut};
use crate::kind::Kind;

use pod::round_list;

impl Kind {
    /// Fills in the defaults of this kind.
    pub fn default(&self, object: &mut Value) {
        match self.id() {
            ("", "Pod") => pod::pod(object),
            ("", "PodTemplate") => pod::template(object, "template"),
            ("", "ReplicationController") => workload::replication_controller(object),
            ("apps", "Deployment") => workload::deployment(object),
            ("apps", "StatefulSet") => workload::stateful_set(object),
            ("apps", "DaemonSet") => workload::daemon_set(object),
            ("apps", "ReplicaSet") => workload::replica_set(object),
            ("batch", "Job") => workload::job(object),
            ("batch", "CronJob") => workload::cron_job(object),
            ("autoscaling", _) => workload::autoscaler(object, self.version),
            ("", "Service") => cluster::service(object),
            ("", "Namespace") => cluster::namespace(object),
            ("", "Node") => cluster::node(object),
            ("", "Secret") => cluster::secret(object),
            ("", "Endpoints") => cluster::endpoints(object),
            ("", "LimitRange") => cluster::limit_range(object),
            ("", "ResourceQuota") => {
                for path in ["spec.hard", "status.hard", "status.used"] {
                    round_list(object, path);
                }
            }
            ("", "PersistentVolumeClaim") => cluster::claim(object),
            ("", "PersistentVolume") => cluster::volume(object),
            ("networking.k8s.io", "NetworkPolicy") => cluster::network_policy(object),
            ("networking.k8s.io", "IngressClass") => {
                if let Some(parameters) = map_mut(object, "spec.parameters") {
                    default(parameters, "scope", "Cluster");
                }
            }
            ("discovery.k8s.io", "EndpointSlice") => {
                for port in list_mut(object, "ports") {
                    let port = ensure(port, "");
                    default(port, "name", "");
                    default(port, "protocol", "TCP");
                }
            }
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::binding(object),
            ("scheduling.k8s.io", "PriorityClass") => {
                default(ensure(object, ""), "preemptionPolicy", "PreemptLowerPriority");
            }
            ("storage.k8s.io", "StorageClass") => {
                let class = ensure(object, "");
                default(class, "reclaimPolicy", "Delete");
                default(class, "volumeBindingMode", "Immediate");
            }
            ("storage.k8s.io", "CSIDriver") => cluster::csi_driver(object),
            ("storage.k8s.io", "VolumeAttachment") => {
                if let Some(spec) = map_mut(object, "spec.source.inlineVolumeSpec") {
                    default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
                    default(spec, "volumeMode", "Filesystem");
                }
            }
            ("resource.k8s.io", kind) => devices::devices(object, kind),
            ("node.k8s.io", "RuntimeClass") => round_list(object, "overhead.podFixed"),
            ("admissionregistration.k8s.io", _) => cluster::admission(object, self.kind),
            ("apiextensions.k8s.io", _) => cluster::crd(object),
            ("apiregistration.k8s.io", _) => {
                if let Some(service) = map_mut(object, "spec.service") {
                    default(service, "port", 443);
                }
            }
            _ => {}
        }
    }
}

/// Defaults of a TokenRequest body.
pub fn default_token_request(object: &mut Value) {
    default(ensure(object, "spec"), "expirationSeconds", 3600);
}
