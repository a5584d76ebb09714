// SPDX-License-Identifier: Apache-2.0
//! What the agent is told: flags and environment variables, checked once at the start. A mistake is reported with
//! the flag and what would be right; everything else in the crate only sees values that make sense.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cobaltcore_api::names::HostName;
use cobaltcore_kit::config::HumanDuration;
use cobaltcore_libvirt::uri::{self, Transport, Uri};

use crate::error::Error;

/// Where libvirt's local socket is unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/libvirt/libvirt-sock";

/// The command line of the agent.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// Name of this node and of its Hypervisor object [default: the kernel's host name]
    #[arg(long, env = "HOSTNAME", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Text for the origin and destination of migrations [default: the Hypervisor's label
    /// kubernetes.metal.cloud.sap/name, else the node name]
    #[arg(long, env = "NODE_LABEL", value_name = "TEXT")]
    pub node_label: Option<String>,
    /// Namespace of Migration, Certificate and Secret objects
    #[arg(long, env = "NAMESPACE", default_value = "monsoon3", value_name = "NAME")]
    pub namespace: String,

    /// Which libvirt to talk to: ch:///system, qemu:///system, qemu+tcp://host/system, ch+tls://host/system,
    /// or auto (ch, then qemu)
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
    /// Watch through the read-only socket: auto uses it when it exists
    #[arg(
        long,
        env = "LIBVIRT_READONLY",
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Libvirt"
    )]
    pub libvirt_readonly: ReadOnly,
    /// How often the list of guests is compared with what events told
    #[arg(long, env = "RESYNC_INTERVAL", default_value = "1m", value_parser = duration, value_name = "TIME", help_heading = "Libvirt")]
    pub resync_interval: Duration,
    /// How often capabilities and the definitions of unchanged guests are read again
    #[arg(long, env = "REFRESH_INTERVAL", default_value = "10m", value_parser = duration, value_name = "TIME", help_heading = "Libvirt")]
    pub refresh_interval: Duration,
    /// How long to collect changes before the status is written
    #[arg(long, env = "STATUS_DEBOUNCE", default_value = "20ms", value_parser = duration, value_name = "TIME")]
    pub status_debounce: Duration,
    /// Shortest time between two writes of the status
    #[arg(long, env = "STATUS_INTERVAL", default_value = "50ms", value_parser = duration, value_name = "TIME")]
    pub status_interval: Duration,

    /// Systemd units that become conditions
    #[arg(
        long,
        env = "WATCH_UNITS",
        default_value = "libvirtd.service,openvswitch-switch.service",
        value_delimiter = ',',
        value_name = "UNIT",
        help_heading = "System"
    )]
    pub watch_units: Vec<String>,
    /// The unit without which no connection to libvirt is tried
    #[arg(
        long,
        env = "LIBVIRT_UNIT",
        default_value = "libvirtd.service",
        value_name = "UNIT",
        help_heading = "System"
    )]
    pub libvirt_unit: String,
    /// Root of the host's file system, for os-release, /proc and /sys
    #[arg(
        long,
        env = "HOST_ROOT",
        default_value = "/",
        value_name = "DIR",
        help_heading = "System"
    )]
    pub host_root: PathBuf,
    /// Address of the D-Bus system bus [default: the system's]
    #[arg(
        long,
        env = "DBUS_SYSTEM_BUS_ADDRESS",
        value_name = "ADDRESS",
        help_heading = "System"
    )]
    pub system_bus: Option<String>,
    /// Directory where the agent remembers an update across restarts
    #[arg(
        long,
        env = "STATE_DIR",
        default_value = "/var/lib/kvm-node-agent",
        value_name = "DIR",
        help_heading = "System"
    )]
    pub state_dir: PathBuf,
    /// Warn when systemd would not hold a shutdown back at least this long
    #[arg(long, env = "MIN_SHUTDOWN_DELAY", default_value = "5m", value_parser = duration, value_name = "TIME", help_heading = "System")]
    pub min_shutdown_delay: Duration,

    /// Directory below which certificates are installed; nothing is installed without it
    #[arg(long, env = "PKI_PATH", value_name = "DIR", help_heading = "Certificates")]
    pub pki_path: Option<PathBuf>,
    /// Mode of private key files, octal
    #[arg(long, env = "PKI_KEY_MODE", default_value = "0640", value_parser = octal, value_name = "MODE", help_heading = "Certificates")]
    pub pki_key_mode: u32,
    /// Group of private key files [default: that of their directory]
    #[arg(long, env = "PKI_GID", value_name = "GID", help_heading = "Certificates")]
    pub pki_gid: Option<u32>,
    /// Create the cert-manager Certificate too, when the Hypervisor asks for it
    #[arg(long, env = "MANAGE_CERTIFICATE", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Certificates")]
    pub manage_certificate: bool,
    /// cert-manager Issuer to use
    #[arg(
        long,
        env = "ISSUER_NAME",
        default_value = "",
        value_name = "NAME",
        help_heading = "Certificates"
    )]
    pub issuer_name: String,
    /// Address of this host, for certificates and for libvirt over TCP
    #[arg(long, env = "HOST_IP_ADDRESS", value_name = "ADDRESS")]
    pub host_ip_address: Option<std::net::IpAddr>,
    /// Port where libvirt serves TLS; a new certificate is believed when it is seen there
    #[arg(long, env = "LIBVIRT_TLS_PORT", default_value_t = cobaltcore_libvirt::uri::TLS_PORT, value_name = "PORT",
        help_heading = "Certificates")]
    pub libvirt_tls_port: u16,
    /// Restart libvirtd when it cannot be told to load a new certificate
    #[arg(long, env = "TLS_RESTART_LIBVIRTD", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Certificates")]
    pub tls_restart_libvirtd: bool,

    /// Address of metrics, 0 for none
    #[arg(
        long,
        env = "METRICS_BIND_ADDRESS",
        default_value = ":8080",
        value_name = "ADDR",
        help_heading = "Observability"
    )]
    pub metrics_bind_address: String,
    /// Show metrics only to whom Kubernetes allows to read them
    #[arg(long, env = "METRICS_SECURE", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Observability")]
    pub metrics_secure: bool,
    /// Address of /healthz and /readyz, 0 for none
    #[arg(
        long,
        env = "HEALTH_PROBE_BIND_ADDRESS",
        default_value = ":8081",
        value_name = "ADDR",
        help_heading = "Observability"
    )]
    pub health_probe_bind_address: String,
    /// Kubeconfig to use instead of the pod's account
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// When to watch through the read-only socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadOnly {
    /// When the socket exists.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to reach libvirt.
#[derive(Debug, Clone)]
pub struct LibvirtConfig {
    /// Tried in this order; the next one when the daemon has no driver for one of them.
    pub uris: Vec<Uri>,
    /// When to watch through the read-only socket.
    pub readonly: ReadOnly,
    /// How often the list of guests is compared with what events told.
    pub resync: Duration,
    /// How often unchanged things are read again.
    pub refresh: Duration,
}

/// What the agent needs from systemd.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// Units that become conditions.
    pub watch_units: Vec<String>,
    /// The unit without which no connection to libvirt is tried.
    pub libvirt_unit: String,
    /// Root of the host's file system.
    pub host_root: PathBuf,
    /// Address of the system bus, if not the system's own.
    pub system_bus: Option<String>,
    /// Where the agent remembers an update across restarts.
    pub state_dir: PathBuf,
    /// The shortest delay of a shutdown that lets an evacuation finish.
    pub min_shutdown_delay: Duration,
}

/// How certificates are installed.
#[derive(Debug, Clone)]
pub struct CertificateConfig {
    /// Directory below which they go; `None` installs nothing.
    pub pki_path: Option<PathBuf>,
    /// Mode of private key files.
    pub key_mode: u32,
    /// Group of private key files.
    pub key_gid: Option<u32>,
    /// Whether to create the cert-manager Certificate too.
    pub manage: bool,
    /// cert-manager Issuer to use.
    pub issuer: String,
    /// Where libvirt serves TLS.
    pub tls_port: u16,
    /// Restart libvirtd when it cannot be told to load a new certificate.
    pub restart_libvirtd: bool,
}

/// Everything the agent is told, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of this node and of its Hypervisor.
    pub host: HostName,
    /// Text for the origin and destination of migrations, if given.
    pub node_label: Option<String>,
    /// Namespace of Migration, Certificate and Secret objects.
    pub namespace: String,
    /// Address of this host.
    pub host_ip: Option<std::net::IpAddr>,
    /// How to reach libvirt.
    pub libvirt: LibvirtConfig,
    /// How long to collect changes before the status is written.
    pub status_debounce: Duration,
    /// Shortest time between two writes of the status.
    pub status_interval: Duration,
    /// What is needed from systemd.
    pub system: SystemConfig,
    /// How certificates are installed.
    pub certificate: CertificateConfig,
    /// Address of metrics, if wanted.
    pub metrics_address: Option<String>,
    /// Show metrics only to whom Kubernetes allows to read them.
    pub metrics_secure: bool,
    /// Address of health endpoints, if wanted.
    pub health_address: Option<String>,
}

impl Config {
    /// Checks what was given.
    pub fn new(args: Args) -> Result<Self, Error> {
        let Args {
            node_name,
            node_label,
            namespace,
            libvirt_uri,
            libvirt_socket,
            libvirt_readonly,
            resync_interval,
            refresh_interval,
            status_debounce,
            status_interval,
            watch_units,
            libvirt_unit,
            host_root,
            system_bus,
            state_dir,
            min_shutdown_delay,
            pki_path,
            pki_key_mode,
            pki_gid,
            manage_certificate,
            issuer_name,
            host_ip_address,
            libvirt_tls_port,
            tls_restart_libvirtd,
            metrics_bind_address,
            metrics_secure,
            health_probe_bind_address,
            kubeconfig: _,
        } = args;
        let host = host_name(node_name)?;
        if namespace.is_empty() || HostName::new(namespace.clone()).is_err() {
            return Err(Error::config(
                "--namespace",
                format!("{namespace:?} is no namespace"),
            ));
        }
        if resync_interval < Duration::from_secs(1) {
            return Err(Error::config("--resync-interval", "must be at least 1s"));
        }
        let uris = uris(&libvirt_uri, libvirt_socket.as_deref(), host_ip_address)?;
        let address = |text: String| (!matches!(text.as_str(), "" | "0")).then_some(text);
        Ok(Self {
            host,
            node_label: node_label.filter(|label| !label.is_empty()),
            namespace,
            host_ip: host_ip_address,
            libvirt: LibvirtConfig {
                uris,
                readonly: libvirt_readonly,
                resync: resync_interval,
                refresh: refresh_interval,
            },
            status_debounce,
            status_interval,
            system: SystemConfig {
                watch_units: watch_units.into_iter().filter(|unit| !unit.is_empty()).collect(),
                libvirt_unit,
                host_root,
                system_bus: system_bus.filter(|address| !address.is_empty()),
                state_dir,
                min_shutdown_delay,
            },
            certificate: CertificateConfig {
                pki_path: pki_path.filter(|path| !path.as_os_str().is_empty()),
                key_mode: pki_key_mode,
                key_gid: pki_gid,
                manage: manage_certificate,
                issuer: issuer_name,
                tls_port: libvirt_tls_port,
                restart_libvirtd: tls_restart_libvirtd,
            },
            metrics_address: address(metrics_bind_address),
            metrics_secure,
            health_address: address(health_probe_bind_address),
        })
    }
}

fn host_name(given: Option<String>) -> Result<HostName, Error> {
    let name = match given.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    HostName::new(name).map_err(|error| Error::config("--node-name", error.to_string()))
}

/// The URIs to try. Without socket and transport libvirt is reached over TCP at the host's address, as the product
/// documents say.
fn uris(text: &str, socket: Option<&Path>, host_ip: Option<std::net::IpAddr>) -> Result<Vec<Uri>, Error> {
    let uris =
        uri::candidates(text, socket).map_err(|error| Error::config("--libvirt-uri", error.to_string()))?;
    let reach = |uri: Uri| match (uri.transport(), host_ip) {
        (Transport::Unix { socket: None }, Some(address)) if !has_local_socket(&uri) => {
            uri.with_transport(Transport::Tcp {
                host: address.to_string(),
                port: uri::TCP_PORT,
            })
        }
        _ => uri,
    };
    Ok(uris.into_iter().map(reach).collect())
}

fn has_local_socket(uri: &Uri) -> bool {
    uri.sockets(false).iter().any(|path| path.exists())
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<HumanDuration>().map(Duration::from)
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text.trim_start_matches("0o"), 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("{text:?} is no file mode such as 0640"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn config(flags: &[&str]) -> Result<Config, Error> {
        let flags = ["agent", "--node-name", "node1"].iter().chain(flags);
        Config::new(Cli::parse_from(flags).args)
    }

    #[test]
    fn the_defaults_are_those_of_the_running_system() {
        let config = config(&[]).unwrap();
        assert_eq!(config.namespace, "monsoon3");
        assert_eq!(config.libvirt.uris[0].to_string(), "ch:///system");
        assert_eq!(
            config.system.watch_units,
            ["libvirtd.service", "openvswitch-switch.service"]
        );
        assert_eq!(config.metrics_address.as_deref(), Some(":8080"));
        assert!(config.metrics_secure && config.certificate.pki_path.is_none());
    }

    #[test]
    fn a_socket_wins_over_the_transport_and_auto_means_both_drivers() {
        let config = config(&["--libvirt-uri", "auto", "--libvirt-socket", "/run/x"]).unwrap();
        let uris: Vec<String> = config.libvirt.uris.iter().map(ToString::to_string).collect();
        assert_eq!(
            uris,
            [
                "ch+unix:///system?socket=/run/x",
                "qemu+unix:///system?socket=/run/x"
            ]
        );
    }

    #[test]
    fn without_a_socket_the_hosts_address_is_used() {
        let config = config(&["--libvirt-uri", "none:///x", "--host-ip-address", "10.0.0.7"]).unwrap();
        // A machine that has the monolithic daemon's socket uses that instead.
        if !Path::new(DEFAULT_SOCKET).exists() {
            assert_eq!(config.libvirt.uris[0].to_string(), "none+tcp://10.0.0.7:16509/x");
        }
    }

    #[test]
    fn mistakes_name_the_flag() {
        for (flags, flag) in [
            (["--libvirt-uri", "xen+ssh://host/"], "--libvirt-uri"),
            (["--resync-interval", "10ms"], "--resync-interval"),
            (["--namespace", "Not A Namespace"], "--namespace"),
            (["--node-name", "UPPER"], "--node-name"),
        ] {
            let flags: Vec<&str> = if flag == "--node-name" {
                flags.to_vec()
            } else {
                ["--node-name", "node1"].into_iter().chain(flags).collect()
            };
            let args = Cli::parse_from(["agent"].into_iter().chain(flags)).args;
            let error = Config::new(args).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn zero_turns_a_listener_off() {
        let config = config(&["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]).unwrap();
        assert_eq!((config.metrics_address, config.health_address), (None, None));
    }
}
