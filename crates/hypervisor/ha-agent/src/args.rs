// SPDX-License-Identifier: Apache-2.0
//! What the agent is told on the command line: who it is, where libvirt is and where its configuration is. Everything
//! else is in the configuration, because that may change while the agent runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use cobaltcore_api::names::HostName;
use cobaltcore_libvirt::uri::{self, Uri};

use crate::error::Error;

/// The command line of the agent.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// Name of this host: that of its Node and its Hypervisor [default: the kernel's host name]
    #[arg(long, env = "HOSTNAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// The configuration; a change takes effect without a restart
    #[arg(
        long,
        env = "KVM_HA_AGENT_CONFIG",
        default_value = "/etc/kvm-ha-agent/config.yaml",
        value_name = "FILE"
    )]
    pub config: PathBuf,
    /// Which libvirt to listen to: ch:///system, qemu:///system, qemu+tcp://host/system, or auto (ch, then qemu)
    #[arg(
        long,
        env = "LIBVIRT_DEFAULT_URI",
        default_value = "ch:///system",
        value_name = "URI",
        help_heading = "Libvirt"
    )]
    pub libvirt_uri: String,
    /// Local socket of libvirt; wins over the transport in the URI
    #[arg(long, env = "LIBVIRT_SOCKET", value_name = "PATH", help_heading = "Libvirt")]
    pub libvirt_socket: Option<PathBuf>,
    /// Root of the host's file system, for /proc, /sys and crash dumps
    #[arg(
        long,
        env = "HOST_ROOT",
        default_value = "/",
        value_name = "DIR",
        help_heading = "System"
    )]
    pub host_root: PathBuf,
    /// Address of the D-Bus system bus, where shutdowns are announced; `none` to do without [default: the system's]
    #[arg(
        long,
        env = "DBUS_SYSTEM_BUS_ADDRESS",
        value_name = "ADDRESS",
        help_heading = "System"
    )]
    pub system_bus: Option<String>,
}

/// The same, checked.
#[derive(Debug, Clone)]
pub struct Start {
    /// The host.
    pub host: HostName,
    /// The configuration.
    pub config: PathBuf,
    /// Where libvirt is, in this order.
    pub uris: Vec<Uri>,
    /// Root of the host's file system.
    pub host_root: PathBuf,
    /// The system bus, unless there is none.
    pub system_bus: Option<String>,
    /// How long a shutdown of the host is held back for the service to hear of it.
    pub hold: Duration,
}

impl Start {
    /// Checks what was given.
    pub fn new(args: Args) -> Result<Self, Error> {
        let Args {
            node_name,
            config,
            libvirt_uri,
            libvirt_socket,
            host_root,
            system_bus,
        } = args;
        let name = node_name.filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let host = HostName::new(name.to_lowercase())
            .map_err(|error| Error::argument("--node-name", error.to_string()))?;
        let system_bus = system_bus
            .filter(|address| !address.is_empty())
            .unwrap_or_else(|| crate::logind::SYSTEM_BUS.to_owned());
        let uris = uri::candidates(&libvirt_uri, libvirt_socket.as_deref())
            .map_err(|error| Error::argument("--libvirt-uri", error.to_string()))?;
        Ok(Self {
            host,
            config,
            uris,
            host_root,
            system_bus: Some(system_bus).filter(|address| address != "none"),
            hold: crate::logind::HOLD,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: &str, uri: &str) -> Args {
        Args {
            node_name: Some(name.to_owned()),
            config: "/c".into(),
            libvirt_uri: uri.to_owned(),
            libvirt_socket: None,
            host_root: "/".into(),
            system_bus: None,
        }
    }

    #[test]
    fn mistakes_name_the_flag() {
        assert_eq!(Start::new(args("Node001", "auto")).unwrap().uris.len(), 2);
        assert_eq!(
            Start::new(args("Node001", "auto")).unwrap().host.as_str(),
            "node001"
        );
        for (name, uri, flag) in [("no name", "auto", "--node-name"), ("n", "::", "--libvirt-uri")] {
            let error = Start::new(args(name, uri)).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }
}
