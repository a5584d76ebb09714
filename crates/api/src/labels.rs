// SPDX-License-Identifier: Apache-2.0
//! Label keys that roles read or write, and the set copied from a Node to its Hypervisor and
//! on to its Evictions.

use crate::key::Key;

/// Makes a Node a hypervisor, whatever its value.
pub const VIRT_DRIVER: Key = Key::new("nova.openstack.cloud.sap/virt-driver");
/// Switches lifecycle management on for a Node; see [`LIFECYCLE_SKIP_TESTS`].
pub const LIFECYCLE: Key = Key::new("cobaltcore.cloud.sap/node-hypervisor-lifecycle");
/// The value of [`LIFECYCLE`] that leaves the test server out.
pub const LIFECYCLE_SKIP_TESTS: &str = "skip-tests";
/// The host name as the kubelet reports it.
pub const HOSTNAME: Key = Key::new("kubernetes.io/hostname");
/// The building block of a host.
pub const BUILDING_BLOCK: Key = Key::new("kubernetes.metal.cloud.sap/bb");
/// The cluster of a host.
pub const METAL_CLUSTER: Key = Key::new("kubernetes.metal.cloud.sap/cluster");
/// The name of the machine.
pub const METAL_NAME: Key = Key::new("kubernetes.metal.cloud.sap/name");
/// The type of the machine.
pub const METAL_TYPE: Key = Key::new("kubernetes.metal.cloud.sap/type");
/// The Gardener worker group.
pub const WORKER_GROUP: Key = Key::new("worker.garden.sapcloud.io/group");
/// The Gardener worker pool.
pub const WORKER_POOL: Key = Key::new("worker.gardener.cloud/pool");
/// The region.
pub const REGION: Key = Key::new("topology.kubernetes.io/region");
/// The availability zone.
pub const ZONE: Key = Key::new("topology.kubernetes.io/zone");
/// Marks the signalling Deployment, its pods and its disruption budget.
pub const MAINTENANCE_CONTROLLER: Key = Key::new("cobaltcore-maintenance-controller");
/// Tells Gardener to keep a node unschedulable until the pod is ready (value `true`).
pub const GARDENER_CRITICAL_COMPONENT: Key = Key::new("node.gardener.cloud/critical-component");
/// The source host, on a Migration.
pub const SOURCE_NODE: Key = Key::new("kvm.cloud.sap/source-node");
/// The destination host, on a Migration.
pub const DESTINATION_NODE: Key = Key::new("kvm.cloud.sap/destination-node");
/// The host an object belongs to.
pub const HYPERVISOR: Key = Key::new("kvm.cloud.sap/hypervisor");

/// What a Hypervisor inherits from its Node and an Eviction from its Hypervisor.
pub const INHERITED: &[Key] = &[
    HOSTNAME,
    BUILDING_BLOCK,
    METAL_CLUSTER,
    METAL_NAME,
    METAL_TYPE,
    WORKER_GROUP,
    WORKER_POOL,
    REGION,
    ZONE,
];
