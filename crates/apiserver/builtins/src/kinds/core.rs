// SPDX-License-Identifier: Apache-2.0
//! Kinds of the core group.

use super::{BASE, CREATE_ONLY, READ_WRITE, REPLICAS, SCALE, own};
use crate::kind::{Kind, Subresource, Verbs};
use cobaltcore_schema::NameRule;

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "Binding",
        plural: "bindings",
        singular: "binding",
        definition: "io.k8s.api.core.v1.Binding",
        ..CREATE_ONLY
    },
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        definition: "io.k8s.api.core.v1.ConfigMap",
        ..BASE
    },
    Kind {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        creates_on_update: true,
        definition: "io.k8s.api.core.v1.Endpoints",
        ..BASE
    },
    Kind {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        creates_on_update: true,
        name_rule: NameRule::PathSegment,
        definition: "io.k8s.api.core.v1.Event",
        ..BASE
    },
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        creates_on_update: true,
        definition: "io.k8s.api.core.v1.LimitRange",
        ..BASE
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: Verbs::NoDeleteCollection,
        status: true,
        subresources: &[
            own("finalize", "Namespace", &["update"]),
            own("status", "Namespace", READ_WRITE),
        ],
        delete_returns_object: true,
        name_rule: NameRule::Label,
        definition: "io.k8s.api.core.v1.Namespace",
        ..BASE
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        subresources: &[own("status", "Node", READ_WRITE)],
        definition: "io.k8s.api.core.v1.Node",
        ..BASE
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        status: true,
        subresources: &[own("status", "PersistentVolumeClaim", READ_WRITE)],
        delete_returns_object: true,
        definition: "io.k8s.api.core.v1.PersistentVolumeClaim",
        ..BASE
    },
    Kind {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        status: true,
        subresources: &[own("status", "PersistentVolume", READ_WRITE)],
        delete_returns_object: true,
        definition: "io.k8s.api.core.v1.PersistentVolume",
        ..BASE
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        status: true,
        subresources: &[
            own("binding", "Binding", &["create"]),
            own("ephemeralcontainers", "Pod", READ_WRITE),
            Subresource {
                name: "eviction",
                kind: "Eviction",
                group: "policy",
                version: "v1",
                verbs: &["create"],
            },
            own("resize", "Pod", READ_WRITE),
            own("status", "Pod", READ_WRITE),
        ],
        has_generation: true,
        delete_returns_object: true,
        graceful: true,
        definition: "io.k8s.api.core.v1.Pod",
        ..BASE
    },
    Kind {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        has_generation: true,
        delete_returns_object: true,
        definition: "io.k8s.api.core.v1.PodTemplate",
        ..BASE
    },
    Kind {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        status: true,
        scale: REPLICAS,
        subresources: &[SCALE, own("status", "ReplicationController", READ_WRITE)],
        has_generation: true,
        default_orphan: true,
        definition: "io.k8s.api.core.v1.ReplicationController",
        ..BASE
    },
    Kind {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        status: true,
        subresources: &[own("status", "ResourceQuota", READ_WRITE)],
        delete_returns_object: true,
        definition: "io.k8s.api.core.v1.ResourceQuota",
        ..BASE
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        definition: "io.k8s.api.core.v1.Secret",
        ..BASE
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            kind: "TokenRequest",
            group: "authentication.k8s.io",
            version: "v1",
            verbs: &["create"],
        }],
        delete_returns_object: true,
        definition: "io.k8s.api.core.v1.ServiceAccount",
        ..BASE
    },
    Kind {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        status: true,
        subresources: &[own("status", "Service", READ_WRITE)],
        creates_on_update: true,
        delete_returns_object: true,
        name_rule: NameRule::Label,
        definition: "io.k8s.api.core.v1.Service",
        ..BASE
    },
];
