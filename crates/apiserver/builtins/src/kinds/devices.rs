// SPDX-License-Identifier: Apache-2.0
//! Kinds of dynamic resource allocation: devices, who offers them and who claims them.

use super::{BASE, READ_WRITE, own};
use crate::kind::Kind;

pub(super) static KINDS: &[Kind] = &[
    Kind {
        group: "resource.k8s.io",
        kind: "DeviceClass",
        plural: "deviceclasses",
        singular: "deviceclass",
        namespaced: false,
        has_generation: true,
        delete_returns_object: true,
        storage_group: "resource.k8s.io",
        definition: "io.k8s.api.resource.v1.DeviceClass",
        ..BASE
    },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        plural: "resourceclaims",
        singular: "resourceclaim",
        status: true,
        subresources: &[own("status", "ResourceClaim", READ_WRITE)],
        delete_returns_object: true,
        storage_group: "resource.k8s.io",
        definition: "io.k8s.api.resource.v1.ResourceClaim",
        ..BASE
    },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        singular: "resourceclaimtemplate",
        delete_returns_object: true,
        storage_group: "resource.k8s.io",
        definition: "io.k8s.api.resource.v1.ResourceClaimTemplate",
        ..BASE
    },
    Kind {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        plural: "resourceslices",
        singular: "resourceslice",
        namespaced: false,
        has_generation: true,
        delete_returns_object: true,
        storage_group: "resource.k8s.io",
        definition: "io.k8s.api.resource.v1.ResourceSlice",
        ..BASE
    },
];
