// SPDX-License-Identifier: Apache-2.0
//! Validation of built-in kinds beyond structure and object metadata, in the words of the reference.
//! Objects have been decoded, defaulted and prepared before they come here. Rules that need other
//! objects (does the node exist, is the port free) are the server's.

mod access;
mod config;
mod container;
mod devices;
mod errors;
mod job;
mod job_failure;
mod job_status;
mod net;
mod network;
mod node;
mod pod;
mod pod_host;
mod pod_parts;
mod policy;
pub(crate) mod profiles;
mod quotas;
mod registration;
mod resources;
mod schedule;
mod scheduling;
mod service;
mod storage;
mod volume;
mod webhook;
mod workload;

use cobaltcore_schema::FieldError;
use serde_json::Value;

use crate::kind::Kind;
use errors::Errors;

impl Kind {
    /// What is wrong with a new object.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        match self.id() {
            ("", "Pod") => pod::create(&mut errors, object),
            ("", "PodTemplate") => pod::template(&mut errors, object, "template"),
            ("", "ReplicationController") => workload::replication_controller(&mut errors, object),
            ("apps", "Deployment") => workload::deployment(&mut errors, object),
            ("apps", "ReplicaSet") => workload::replica_set(&mut errors, object),
            ("apps", "StatefulSet") => workload::stateful_set(&mut errors, object, false),
            ("apps", "DaemonSet") => workload::daemon_set(&mut errors, object),
            ("apps", "ControllerRevision") => workload::revision(&mut errors, object),
            ("batch", "Job") => job::create(&mut errors, object),
            ("batch", "CronJob") => schedule::create(&mut errors, object),
            ("autoscaling", _) => scheduling::autoscaler(&mut errors, object, self.version),
            ("policy", _) => scheduling::budget(&mut errors, object),
            ("", "Service") => service::service(&mut errors, object, None),
            _ => self.validate_simple(&mut errors, object, None),
        }
        errors.list
    }

    /// What is wrong with an update of the main endpoint (`None`) or of a subresource.
    pub fn validate_update(&self, new: &Value, old: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        let mut errors = Errors::default();
        match (subresource, self.id()) {
            (None, id) => self.validate_main(&mut errors, id, new, old),
            (Some("ephemeralcontainers"), _) => pod_parts::ephemeral(&mut errors, new, old),
            (Some("resize"), _) => pod_parts::resize(&mut errors, new, old),
            (Some("status"), ("", "Pod")) => pod::status(&mut errors, new, old),
            (Some("status"), ("", "Namespace")) => config::namespace_status(&mut errors, new),
            (Some("status"), ("", "Node")) => node::update(&mut errors, new, old),
            (Some("status"), ("", "Service")) => service::status(&mut errors, new, old),
            (Some("status"), ("", "ResourceQuota")) => quotas::quota_status(&mut errors, new),
            (Some("status"), ("", "PersistentVolumeClaim")) => storage::claim_status(&mut errors, new),
            (Some("status"), ("networking.k8s.io", "Ingress")) => network::ingress_status(&mut errors, new),
            (Some("status"), ("autoscaling", _)) => scheduling::autoscaler_status(&mut errors, new),
            (Some("status"), ("storage.k8s.io", "VolumeAttachment")) => {
                storage::attachment_status(&mut errors, new);
            }
            (Some("status"), ("apps" | "" | "policy" | "batch", kind)) => {
                workload::status(&mut errors, self, new, old);
                match kind {
                    "Job" => job_status::update(&mut errors, new, old),
                    "PodDisruptionBudget" => errors.conditions(new, "status.conditions"),
                    _ => {}
                }
            }
            (Some("status"), ("admissionregistration.k8s.io", _)) => policy::status(&mut errors, new),
            (Some("status"), ("resource.k8s.io", _)) => devices::status(&mut errors, new, old),
            (part, ("certificates.k8s.io", _)) => registration::signing_update(&mut errors, new, old, part),
            (Some("finalize"), _) => config::finalize(&mut errors, new),
            (Some(_), _) => {}
        }
        errors.list
    }

    fn validate_main(&self, errors: &mut Errors, id: (&str, &str), new: &Value, old: &Value) {
        match id {
            ("", "Pod") => pod::update(errors, new, old),
            ("apps", "Deployment") => {
                workload::deployment(errors, new);
                errors.immutable("spec.selector", new, old, "spec.selector");
            }
            ("apps", "ReplicaSet") => {
                workload::replica_set(errors, new);
                errors.immutable("spec.selector", new, old, "spec.selector");
            }
            ("apps", "StatefulSet") => workload::stateful_set_update(errors, new, old),
            ("apps", "DaemonSet") => {
                errors.immutable("spec.selector", new, old, "spec.selector");
                workload::daemon_set(errors, new);
            }
            ("apps", "ControllerRevision") => {
                workload::revision_number(errors, new);
                errors.immutable("data", new, old, "data");
            }
            ("batch", "Job") => job::update(errors, new, old),
            ("batch", "CronJob") => schedule::update(errors, new, old),
            ("", "Service") => {
                service::update(errors, new, old);
                service::service(errors, new, Some(old));
            }
            ("", "Namespace") => {}
            ("", "Node") => node::update(errors, new, old),
            (
                "" | "apps" | "batch" | "autoscaling" | "policy",
                "PodTemplate" | "ReplicationController" | "HorizontalPodAutoscaler" | "PodDisruptionBudget",
            ) => errors.list.extend(self.validate_create(new)),
            _ => self.validate_simple(errors, new, Some(old)),
        }
    }

    /// Kinds whose rules are the same for new and changed objects, plus what may not change.
    fn validate_simple(&self, errors: &mut Errors, object: &Value, old: Option<&Value>) {
        match self.id() {
            ("", "ConfigMap") => config::config_map(errors, object, old),
            ("", "Secret") => config::secret(errors, object, old),
            ("", "Namespace") => config::namespace(errors, object),
            ("", "Node") => node::node(errors, object),
            ("" | "events.k8s.io", "Event") => config::event(errors, object, old, self.group),
            ("", "Endpoints") => network::endpoints(errors, object, old),
            ("", "ResourceQuota") => quotas::quota(errors, object, old),
            ("", "LimitRange") => quotas::limit_range(errors, object),
            ("", "PersistentVolumeClaim") => storage::claim(errors, object, old),
            ("", "PersistentVolume") => storage::volume(errors, object, old),
            ("", "Binding") => errors.list.extend(crate::pods::validate_binding(object)),
            ("coordination.k8s.io", _) => config::lease(errors, object),
            ("rbac.authorization.k8s.io", kind) => access::rbac(errors, object, old, kind),
            ("authorization.k8s.io", kind) => access::review(errors, object, kind),
            ("networking.k8s.io", "NetworkPolicy") => network::policy(errors, object),
            ("networking.k8s.io", "Ingress") => network::ingress(errors, object),
            ("networking.k8s.io", "IngressClass") => network::ingress_class(errors, object, old),
            ("networking.k8s.io", "IPAddress") => network::address(errors, object, old),
            ("networking.k8s.io", "ServiceCIDR") => network::range(errors, object, old),
            ("discovery.k8s.io", _) => network::slice(errors, object, old),
            ("resource.k8s.io", kind) => devices::devices(errors, object, old, kind),
            ("scheduling.k8s.io", _) => scheduling::priority_class(errors, object, old),
            ("node.k8s.io", _) => scheduling::runtime_class(errors, object, old),
            ("storage.k8s.io", kind) => storage::storage(errors, object, old, kind),
            ("apiregistration.k8s.io", _) => registration::api_service(errors, object),
            ("certificates.k8s.io", _) if old.is_none() => registration::signing_request(errors, object),
            ("admissionregistration.k8s.io", kind) => webhook::admission(errors, object, kind),
            _ => {}
        }
    }
}
