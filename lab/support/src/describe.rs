// SPDX-License-Identifier: Apache-2.0
//! What the lab says about itself: the JSON that `lab describe` prints and `lab start` keeps in
//! its folder. Nothing here is guessed; addresses and paths come from the lab alone.

use std::path::PathBuf;

use serde::Deserialize;

/// The running lab.
#[derive(Debug, Clone, Deserialize)]
pub struct Description {
    /// Prefix of its bridge and link names.
    pub name: String,
    /// Its folder, which is gone after the lab has been stopped.
    pub dir: PathBuf,
    /// The command that started it.
    pub command: PathBuf,
    /// Where every process of every machine logs to.
    pub logs: PathBuf,
    /// The address of this machine as seen from inside the lab.
    pub gateway: String,
    /// `kvm`, or `qemu` where /dev/kvm is missing.
    pub virtualization: String,
    /// The control plane, unless the lab has only hosts.
    pub control: Option<ControlPlane>,
    /// The hypervisor hosts.
    pub hosts: Vec<HostDescription>,
}

/// The OpenStack side of the lab.
#[derive(Debug, Clone, Deserialize)]
pub struct ControlPlane {
    /// Address of the machine that holds it.
    pub address: String,
    /// Keystone.
    pub auth_url: String,
    /// The administrator.
    pub username: String,
    /// Valid on the lab's own bridge only.
    pub password: String,
    /// A file for OpenStack clients.
    pub clouds_yaml: PathBuf,
    /// The entry in that file.
    pub cloud: String,
    /// Prometheus, if the lab was started with it.
    pub prometheus: Option<String>,
}

/// One hypervisor host.
#[derive(Debug, Clone, Deserialize)]
pub struct HostDescription {
    /// Its host name, also its name in Nova.
    pub name: String,
    /// Its address on the lab's bridge.
    pub address: String,
    /// The system UUID, as libvirt and Redfish report it.
    pub uuid: String,
    /// Holds id and start time of its first process, which lives as long as the host has power.
    pub init: PathBuf,
    /// libvirt over TCP; silent while the host is cut off.
    pub libvirt_tcp: String,
    /// libvirt over its unix socket; works while the host is cut off.
    pub libvirt_unix: String,
    /// The read-write socket.
    pub libvirt_socket: PathBuf,
    /// The read-only socket.
    pub libvirt_socket_ro: PathBuf,
    /// Open vSwitch's database over TCP.
    pub ovsdb_tcp: String,
    /// Open vSwitch's database over its unix socket.
    pub ovsdb_socket: PathBuf,
    /// Its BMC.
    pub redfish: RedfishAddress,
}

/// Where a host's BMC answers.
#[derive(Debug, Clone, Deserialize)]
pub struct RedfishAddress {
    /// Scheme, address and port.
    pub url: String,
    /// Path of the only computer system.
    pub system: String,
    /// Basic authentication.
    pub username: String,
    /// Valid on the lab's own bridge only.
    pub password: String,
}
