// SPDX-License-Identifier: Apache-2.0
//! Connection URIs, as far as this client goes: local sockets, TCP and TLS. Everything else is refused with a
//! sentence that says what is wrong and what would work.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::Error;

/// Port of clear-text connections.
pub const TCP_PORT: u16 = 16_509;
/// Port of TLS connections.
pub const TLS_PORT: u16 = 16_514;
const MAX_URI: usize = 4096;

/// How to reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A local socket; without a path the well-known ones are tried.
    Unix {
        /// Path from the URI.
        socket: Option<PathBuf>,
    },
    /// Clear text.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// TLS with certificates on both sides.
    Tls {
        /// Name or address; the certificate must be for it.
        host: String,
        /// Port.
        port: u16,
        /// Directory with `cacert.pem`, `clientcert.pem`, `clientkey.pem` instead of the system's.
        pkipath: Option<PathBuf>,
    },
}

/// Which local socket a URI without one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The monolithic daemon's, then the driver's own.
    #[default]
    Auto,
    /// The monolithic daemon's.
    Legacy,
    /// The driver's own.
    Direct,
}

/// A parsed connection URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    driver: String,
    path: String,
    transport: Transport,
    mode: Mode,
}

impl Uri {
    /// Name of the driver: `qemu`, `ch`, `test`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// How to reach the daemon.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The same driver and path over another transport.
    pub fn with_transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Whether libvirt offers a socket here through which nothing can be changed.
    pub fn has_read_only_socket(&self) -> bool {
        match &self.transport {
            Transport::Unix { socket: Some(path) } => beside(path).exists(),
            Transport::Unix { socket: None } => self.sockets(true).iter().any(|path| path.exists()),
            Transport::Tcp { .. } | Transport::Tls { .. } => false,
        }
    }

    /// The same libvirt through that socket.
    pub fn to_read_only(&self) -> Self {
        let mut uri = self.clone();
        if let Transport::Unix { socket: Some(path) } = &mut uri.transport {
            *path = beside(path);
        }
        uri
    }

    /// The local form that is sent in the open call, e.g. `qemu:///system`.
    pub fn open_name(&self) -> String {
        format!("{}://{}", self.driver, self.path)
    }

    /// The local sockets to try, in order.
    pub fn sockets(&self, read_only: bool) -> Vec<PathBuf> {
        if let Transport::Unix { socket: Some(path) } = &self.transport {
            return vec![path.clone()];
        }
        let suffix = if read_only { "-ro" } else { "" };
        let run = Path::new("/run/libvirt");
        let legacy = run.join(format!("libvirt-sock{suffix}"));
        let direct = run.join(format!("virt{}d-sock{suffix}", self.driver));
        match self.mode {
            Mode::Auto => vec![legacy, direct],
            Mode::Legacy => vec![legacy],
            Mode::Direct => vec![direct],
        }
    }

    /// Where this leads, for messages.
    pub fn endpoint(&self) -> String {
        match &self.transport {
            Transport::Unix { socket: Some(path) } => format!("unix socket {}", path.display()),
            Transport::Unix { socket: None } => "the local libvirt socket".to_owned(),
            Transport::Tcp { host, port } => format!("tcp {}:{port}", bracketed(host)),
            Transport::Tls { host, port, .. } => format!("tls {}:{port}", bracketed(host)),
        }
    }
}

/// The libvirts that an agent's flags mean, in the order to try: `auto` stands for Cloud Hypervisor's and then QEMU's,
/// and a socket that is given wins over the transport.
pub fn candidates(text: &str, socket: Option<&Path>) -> Result<Vec<Uri>, Error> {
    let texts = match text {
        "auto" => vec!["ch:///system", "qemu:///system"],
        one => vec![one],
    };
    let socket = socket.filter(|path| !path.as_os_str().is_empty());
    let uri = |text: &str| {
        let uri: Uri = text.parse()?;
        Ok(match socket {
            Some(path) => uri.with_transport(Transport::Unix {
                socket: Some(path.to_owned()),
            }),
            None => uri,
        })
    };
    texts.into_iter().map(uri).collect()
}

/// libvirt names the read-only socket after the other one.
fn beside(path: &Path) -> PathBuf {
    let text = path.as_os_str().to_string_lossy();
    if text.ends_with("-ro") {
        return path.to_owned();
    }
    PathBuf::from(format!("{text}-ro"))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            driver,
            path,
            transport,
            mode,
        } = self;
        match transport {
            Transport::Unix { socket: Some(socket) } => {
                write!(f, "{driver}+unix://{path}?socket={}", socket.display())
            }
            Transport::Unix { socket: None } => match mode {
                Mode::Auto => write!(f, "{driver}://{path}"),
                Mode::Legacy => write!(f, "{driver}://{path}?mode=legacy"),
                Mode::Direct => write!(f, "{driver}://{path}?mode=direct"),
            },
            Transport::Tcp { host, port } => write!(f, "{driver}+tcp://{}:{port}{path}", bracketed(host)),
            Transport::Tls { host, port, .. } => write!(f, "{driver}+tls://{}:{port}{path}", bracketed(host)),
        }
    }
}

#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    pkipath: Option<PathBuf>,
    mode: Mode,
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|why| {
            let uri = if text.chars().count() > 200 {
                text.chars().take(200).collect()
            } else {
                text.to_owned()
            };
            Error::Uri { uri, why }
        })
    }
}

fn parse(text: &str) -> Result<Uri, String> {
    if text.len() > MAX_URI {
        return Err(format!("longer than {MAX_URI} bytes"));
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or("expected <driver>[+transport]://[host[:port]]/path, e.g. qemu:///system")?;
    let (driver, transport) = match scheme.split_once('+') {
        Some((driver, transport)) => (driver, Some(transport)),
        None => (scheme, None),
    };
    if driver.is_empty()
        || !driver
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return Err(format!("{driver:?} is not a driver name (qemu, ch, test, ...)"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => return Err("the path is missing, e.g. /system".to_owned()),
    };
    if path.len() < 2 {
        return Err("the path is empty, expected e.g. /system".to_owned());
    }
    let (host, port) = parse_authority(authority)?;
    let query = parse_query(query)?;
    let transport = parse_transport(transport, host.as_deref(), port, &query)?;
    Ok(Uri {
        driver: driver.to_owned(),
        path: path.to_owned(),
        transport,
        mode: query.mode,
    })
}

fn parse_transport(
    name: Option<&str>,
    host: Option<&str>,
    port: Option<u16>,
    query: &Query,
) -> Result<Transport, String> {
    let need_host = |kind: &str| {
        host.map(str::to_owned)
            .ok_or(format!("{kind} needs a host, e.g. qemu+{kind}://10.0.0.1/system"))
    };
    let local_only = |kind: &str| match query.socket {
        Some(_) => Err(format!(
            "socket= only goes with the unix transport, not with {kind}"
        )),
        None => Ok(()),
    };
    match name {
        Some("unix") | None if host.is_none() => {
            if port.is_some() {
                return Err("a local socket has no port".to_owned());
            }
            Ok(Transport::Unix {
                socket: query.socket.clone(),
            })
        }
        Some("unix") => Err("a local socket has no host: use qemu+unix:///system?socket=/path".to_owned()),
        Some("tcp") => {
            local_only("tcp")?;
            Ok(Transport::Tcp {
                host: need_host("tcp")?,
                port: port.unwrap_or(TCP_PORT),
            })
        }
        // A host without a transport means TLS everywhere in libvirt.
        Some("tls") | None => {
            local_only("tls")?;
            Ok(Transport::Tls {
                host: need_host("tls")?,
                port: port.unwrap_or(TLS_PORT),
                pkipath: query.pkipath.clone(),
            })
        }
        Some(other) => Err(format!(
            "transport {other:?} is not supported: use unix, tcp or tls"
        )),
    }
}

fn parse_authority(authority: &str) -> Result<(Option<String>, Option<u16>), String> {
    if authority.contains('@') {
        return Err("user names in the host part are not supported".to_owned());
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or("the [ of an IPv6 address is not closed")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("[{host}] is not an IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(format!("unexpected {after:?} after the host")),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address needs brackets, e.g. [::1]".to_owned());
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = match port {
        None => None,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(format!("{text:?} is not a port")),
        },
    };
    Ok(((!host.is_empty()).then(|| host.to_owned()), port))
}

fn parse_query(query: &str) -> Result<Query, String> {
    let mut parsed = Query::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode(value)?;
        match key {
            "socket" => parsed.socket = Some(absolute(key, &value)?),
            "pkipath" => parsed.pkipath = Some(absolute(key, &value)?),
            "mode" => {
                parsed.mode = match value.as_str() {
                    "auto" => Mode::Auto,
                    "legacy" => Mode::Legacy,
                    "direct" => Mode::Direct,
                    other => return Err(format!("mode={other} is not one of auto, legacy, direct")),
                };
            }
            "no_verify" if value == "0" => {}
            "no_verify" => {
                return Err("no_verify is refused: the daemon's certificate is always checked".to_owned());
            }
            other => {
                return Err(format!(
                    "parameter {other:?} is not supported: use socket, pkipath or mode"
                ));
            }
        }
    }
    Ok(parsed)
}

fn absolute(key: &str, value: &str) -> Result<PathBuf, String> {
    if value.starts_with('/') && !value.contains('\0') {
        Ok(PathBuf::from(value))
    } else {
        Err(format!("{key}={value:?} is not an absolute path"))
    }
}

fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |next: Option<u8>| next.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(format!("{text:?} has a % that is not followed by two hex digits")),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8 after decoding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_read_only_socket_lies_beside_the_other() {
        let uri = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock";
        let read_only = uri.parse::<Uri>().unwrap().to_read_only();
        assert_eq!(read_only.to_string(), format!("{uri}-ro"));
        assert_eq!(read_only.to_read_only(), read_only);
        let tcp: Uri = "qemu+tcp://host:1/system".parse().unwrap();
        assert_eq!(tcp.to_read_only(), tcp);
        assert!(!tcp.has_read_only_socket());
    }

    #[test]
    fn flags_mean_one_libvirt_or_two_and_a_socket_wins() {
        let told = |text, socket: Option<&str>| {
            let uris = candidates(text, socket.map(Path::new)).unwrap();
            uris.iter().map(Uri::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told("auto", None), ["ch:///system", "qemu:///system"]);
        assert_eq!(
            told("qemu+tcp://a/system", Some("")),
            ["qemu+tcp://a:16509/system"]
        );
        assert_eq!(
            told("qemu+tcp://a/system", Some("/s")),
            ["qemu+unix:///system?socket=/s"]
        );
        assert!(candidates("::", None).is_err());
    }

    #[test]
    fn uris_that_work() {
        let unix = |socket: Option<&str>| Transport::Unix {
            socket: socket.map(PathBuf::from),
        };
        let tcp = |host: &str, port| Transport::Tcp {
            host: host.into(),
            port,
        };
        let tls = |host: &str, port| Transport::Tls {
            host: host.into(),
            port,
            pkipath: None,
        };
        for (text, transport, open) in [
            ("qemu:///system", unix(None), "qemu:///system"),
            ("ch:///system", unix(None), "ch:///system"),
            ("qemu+unix:///system", unix(None), "qemu:///system"),
            (
                "qemu+unix:///system?socket=/tmp/a%20b",
                unix(Some("/tmp/a b")),
                "qemu:///system",
            ),
            (
                "qemu+tcp://host:16509/system",
                tcp("host", 16509),
                "qemu:///system",
            ),
            ("ch+tcp://10.0.0.1/system", tcp("10.0.0.1", 16509), "ch:///system"),
            ("qemu+tcp://[::1]:77/system", tcp("::1", 77), "qemu:///system"),
            ("qemu+tls://host/system", tls("host", 16514), "qemu:///system"),
            ("qemu://host/system", tls("host", 16514), "qemu:///system"),
            ("test:///default", unix(None), "test:///default"),
        ] {
            let uri: Result<Uri, _> = text.parse();
            let uri = uri.map(|uri| (uri.transport().clone(), uri.open_name()));
            assert_eq!(uri.ok(), Some((transport, open.to_owned())), "{text}");
        }
    }

    #[test]
    fn uris_that_do_not_work_say_why() {
        for (text, why) in [
            ("", "expected <driver>"),
            ("qemu", "expected <driver>"),
            ("qemu://", "path is missing"),
            ("qemu:///", "path is empty"),
            ("QEMU:///system", "not a driver name"),
            ("qemu+ssh://host/system", "transport \"ssh\" is not supported"),
            ("qemu+tcp:///system", "tcp needs a host"),
            ("qemu+unix://host/system", "has no host"),
            ("qemu+tcp://host:0/system", "\"0\" is not a port"),
            ("qemu+tcp://host:99999/system", "is not a port"),
            ("qemu+tcp://::1/system", "needs brackets"),
            ("qemu+tcp://[zz]/system", "is not an IPv6 address"),
            ("qemu+tcp://root@host/system", "user names"),
            ("qemu+unix:///system?socket=rel", "not an absolute path"),
            (
                "qemu+tcp://host/system?socket=/x",
                "only goes with the unix transport",
            ),
            ("qemu+tls://host/system?no_verify=1", "always checked"),
            ("qemu:///system?frob=1", "parameter \"frob\""),
            ("qemu:///system?socket=/%zz", "two hex digits"),
        ] {
            let message = text
                .parse::<Uri>()
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(message.contains(why), "{text}: {message}");
        }
    }

    #[test]
    fn without_a_socket_the_monolithic_daemon_comes_first() {
        let uri = "qemu:///system"
            .parse::<Uri>()
            .map(|uri| uri.sockets(true))
            .unwrap_or_default();
        let names: Vec<_> = uri.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(
            names,
            ["/run/libvirt/libvirt-sock-ro", "/run/libvirt/virtqemud-sock-ro"]
        );
        let uri = "ch:///system?mode=direct"
            .parse::<Uri>()
            .map(|uri| uri.sockets(false))
            .unwrap_or_default();
        assert_eq!(uri, [PathBuf::from("/run/libvirt/virtchd-sock")]);
    }

    #[test]
    fn the_text_form_parses_back() {
        for text in [
            "qemu:///system",
            "ch+unix:///system?socket=/s",
            "qemu+tcp://[::1]:77/system",
            "test:///default",
        ] {
            let again = text.parse::<Uri>().map(|uri| uri.to_string()).unwrap_or_default();
            assert_eq!(again, text);
        }
    }
}
