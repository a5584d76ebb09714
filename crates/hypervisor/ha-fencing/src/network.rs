// SPDX-License-Identifier: Apache-2.0
//! The networks that fencing devices may be in. An address that a label or a name leads to is not
//! believed blindly: whoever can set one could have passwords sent to a machine of their own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::{Deserialize, Serialize};

/// A network in the notation `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network such as 10.0.0.0/8");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if bits > longest {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        format!("{}/{}", network.address, network.bits)
    }
}

impl Network {
    fn holds(self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, length: u32| {
            let rest = length - u32::from(self.bits);
            a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
            _ => false,
        }
    }
}

/// Whether an address is in one of the networks; any address is when there are none.
pub(crate) fn allowed(networks: &[Network], address: IpAddr) -> bool {
    networks.is_empty()
        || networks
            .iter()
            .any(|network| network.holds(address.to_canonical()))
}

/// The host in an address as programs are given it: `10.1.0.1`, `[2001:db8::1]:623`, `bmc7.example:623` or a URL.
fn host_in(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or_default();
    if let Some((host, _)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    match rest.split_once(':') {
        // More than one colon is an address of its own.
        Some((host, port)) if !port.contains(':') => host,
        _ => rest,
    }
}

/// Whether a text is an address that somebody could be led to.
pub(crate) fn is_address(text: &str) -> bool {
    text.contains("://") || host_in(text).parse::<IpAddr>().is_ok()
}

/// Whether what follows this word is an address: the option of a fence agent (`ip`, `ipaddr`), or the argument of a
/// program (`-a`, `-H`, `--ip`).
pub(crate) fn names_address(word: &str) -> bool {
    if matches!(word, "-a" | "-H") {
        return true;
    }
    let word = word.to_ascii_lowercase();
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric());
    parts.any(|part| matches!(part, "ip" | "ipaddr" | "address" | "url" | "endpoint"))
}

/// Whether everything that an address leads to is in one of the networks. A name that leads nowhere is not.
pub(crate) async fn leads_inside(networks: &[Network], text: &str) -> bool {
    let host = host_in(text);
    if networks.is_empty() {
        return true;
    }
    if let Ok(address) = host.parse() {
        return allowed(networks, address);
    }
    let Ok(found) = tokio::net::lookup_host((host, 0)).await else {
        return false;
    };
    let found: Vec<SocketAddr> = found.collect();
    !found.is_empty() && found.iter().all(|found| allowed(networks, found.ip()))
}

/// Resolves names, and hands out allowed addresses only.
#[derive(Clone)]
pub(crate) struct Guarded(pub(crate) Arc<[Network]>);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let networks = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let good: Vec<SocketAddr> = found.filter(|found| allowed(&networks, found.ip())).collect();
            if good.is_empty() {
                return Err(format!("{} is in none of fencing.allowed_networks", name.as_str()).into());
            }
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_programs_are_given_them() {
        for (text, host) in [
            ("10.1.0.1", "10.1.0.1"),
            ("10.1.0.1:623", "10.1.0.1"),
            ("https://10.1.0.1/redfish/v1", "10.1.0.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:623", "2001:db8::1"),
            ("bmc7.example:623", "bmc7.example"),
        ] {
            assert_eq!(host_in(text), host, "{text}");
        }
        assert!(
            is_address("10.1.0.1")
                && is_address("http://bmc7")
                && !is_address("17")
                && !is_address("lanplus")
        );
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let network = |text: &str| Network::try_from(text.to_owned());
        let holds = |text: &str, address: &str| allowed(&[network(text).unwrap()], address.parse().unwrap());
        assert!(holds("10.99.0.0/24", "10.99.0.101"));
        assert!(!holds("10.99.0.0/24", "10.99.1.101"));
        assert!(holds("0.0.0.0/0", "192.0.2.1"));
        assert!(holds("10.1.2.3/32", "10.1.2.3") && !holds("10.1.2.3/32", "10.1.2.4"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(
            holds("10.0.0.0/8", "::ffff:10.1.1.1"),
            "a mapped address is the address"
        );
        assert!(!holds("10.0.0.0/8", "2001:db8::1"));
        assert!(allowed(&[], "192.0.2.1".parse().unwrap()));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", ""] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
