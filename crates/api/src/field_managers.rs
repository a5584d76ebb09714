// SPDX-License-Identifier: Apache-2.0
//! Field managers of server-side apply. The names are those of the running system, so that a
//! switch-over takes fields over instead of leaving orphaned owners; none starts with
//! `kubectl`, which would mark a Hypervisor as edited by hand.

use crate::words::words;

words! {
    /// Who owns a field.
    pub enum FieldManager {
        /// The operator itself, for objects it creates.
        Operator = "openstack-hypervisor-operator",
        Hypervisor = "hypervisor",
        Onboarding = "onboarding",
        Offboarding = "offboarding",
        Eviction = "eviction",
        Maintenance = "HypervisorMaintenance",
        Aggregates = "aggregates",
        Traits = "traits",
        /// The Gardener node lifecycle controller.
        NodeLifecycle = "maintenance",
        Taint = "HypervisorTaint",
        Ready = "ready",
        /// The controller of libvirt certificates.
        Certificate = "certificate",
        /// The controller that calls or replaces the HA service.
        InstanceHa = "HypervisorInstanceHa",
        /// The controller that reacts to the health of nodes.
        NodeHealth = "node-health",
        /// The controller that mirrors the network of hosts.
        Network = "network",
        /// People, through the command line of this program.
        CommandLine = "cobaltcore",
        NodeAgent = "kvm-node-agent",
        NodeAgentSource = "kvm-node-agent-source",
        NodeAgentDestination = "kvm-node-agent-destination",
        HaService = "kvm-ha-service",
    }
}
