// SPDX-License-Identifier: Apache-2.0
//! The types the table starts from: every served kind, the kinds only subresources
//! speak, and what discovery and deletion exchange. Everything they reach follows by itself.

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v1 as autoscaling1, autoscaling::v2 as autoscaling2,
    batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::SchemaGenerator;

macro_rules! visit {
    ($generator:expr, $($kind:ty),+ $(,)?) => {
        $($generator.subschema_for::<$kind>();)+
    };
}

/// Makes the generator walk every root type.
pub fn visit(generator: &mut SchemaGenerator) {
    visit!(
        generator,
        core::Namespace,
        core::Node,
        core::Pod,
        core::Service,
        core::ConfigMap,
        core::Secret,
        core::ServiceAccount,
        core::Event,
        core::Endpoints,
        core::PersistentVolumeClaim,
        core::PersistentVolume,
        core::ReplicationController,
        core::ResourceQuota,
        core::LimitRange,
        core::PodTemplate,
        core::ComponentStatus,
        apps::Deployment,
        apps::StatefulSet,
        apps::ReplicaSet,
        apps::DaemonSet,
        apps::ControllerRevision,
        batch::Job,
        batch::CronJob,
        autoscaling1::HorizontalPodAutoscaler,
        autoscaling2::HorizontalPodAutoscaler,
        policy::PodDisruptionBudget,
        networking::NetworkPolicy,
        networking::Ingress,
        networking::IngressClass,
        networking::IPAddress,
        networking::ServiceCIDR,
        discovery::EndpointSlice,
        coordination::Lease,
        events::Event,
        rbac::Role,
        rbac::RoleBinding,
        rbac::ClusterRole,
        rbac::ClusterRoleBinding,
        scheduling::PriorityClass,
        storage::StorageClass,
        storage::CSIDriver,
        storage::CSINode,
        storage::VolumeAttachment,
        storage::CSIStorageCapacity,
        storage::VolumeAttributesClass,
        resource::DeviceClass,
        resource::ResourceClaim,
        resource::ResourceClaimTemplate,
        resource::ResourceSlice,
        flowcontrol::FlowSchema,
        flowcontrol::PriorityLevelConfiguration,
        node::RuntimeClass,
        apiextensions::CustomResourceDefinition,
        admission::ValidatingWebhookConfiguration,
        admission::MutatingWebhookConfiguration,
        admission::ValidatingAdmissionPolicy,
        admission::ValidatingAdmissionPolicyBinding,
        admission::MutatingAdmissionPolicy,
        admission::MutatingAdmissionPolicyBinding,
        certificates::CertificateSigningRequest,
        apiregistration::APIService,
        core::Binding,
        autoscaling1::Scale,
        policy::Eviction,
        authentication::TokenRequest,
        authentication::TokenReview,
        authentication::SelfSubjectReview,
        authorization::SubjectAccessReview,
        authorization::SelfSubjectAccessReview,
        authorization::SelfSubjectRulesReview,
        authorization::LocalSubjectAccessReview,
        meta::APIGroup,
        meta::APIGroupList,
        meta::APIResourceList,
        meta::APIVersions,
        meta::DeleteOptions,
        meta::ListMeta,
        meta::Patch,
        meta::Status,
        k8s_openapi::apimachinery::pkg::version::Info,
    );
}
