// SPDX-License-Identifier: Apache-2.0
//! IP addresses and networks, parsed as strictly as the reference: no zones, no IPv4 inside IPv6.

use cobaltcore_text::go;
use std::fmt;
use std::net::IpAddr;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ip(IpAddr);

/// A network; the address keeps the bits after the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cidr {
    addr: Ip,
    pub(crate) prefix: u8,
}

impl Ip {
    /// Parses an address.
    pub(crate) fn parse(text: &str) -> Result<Ip, String> {
        let without_zone = text.split('%').next().unwrap_or(text);
        let parsed: Result<IpAddr, _> = without_zone.parse();
        match parsed {
            Ok(IpAddr::V6(v6)) if without_zone.len() != text.len() => {
                let _ = v6;
                Err(format!(
                    "IP address {text} with zone value is not allowed",
                    text = go::quote(text)
                ))
            }
            Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => Err(format!(
                "IPv4-mapped IPv6 address {text} is not allowed",
                text = go::quote(text)
            )),
            Ok(ip) if without_zone.len() == text.len() => Ok(Ip(ip)),
            _ => Err(format!(
                "IP Address {text} parse error during conversion from string: ParseAddr({text}): unable to parse IP",
                text = go::quote(text)
            )),
        }
    }

    pub(crate) fn family(&self) -> i64 {
        if self.0.is_ipv4() { 4 } else { 6 }
    }

    pub(crate) fn bits(&self) -> u64 {
        if self.0.is_ipv4() { 32 } else { 128 }
    }

    pub(crate) fn is_unspecified(&self) -> bool {
        self.0.is_unspecified()
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.0.is_loopback()
    }

    pub(crate) fn is_link_local_multicast(&self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
            IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xff0f == 0xff02),
        }
    }

    pub(crate) fn is_link_local_unicast(&self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xffc0 == 0xfe80),
        }
    }

    pub(crate) fn is_global_unicast(&self) -> bool {
        let broadcast = matches!(self.0, IpAddr::V4(v4) if v4.is_broadcast());
        !(broadcast
            || self.0.is_unspecified()
            || self.0.is_loopback()
            || self.0.is_multicast()
            || self.is_link_local_unicast())
    }

    /// The address as a number, left-aligned in 128 bits.
    fn number(&self) -> u128 {
        match self.0 {
            IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
            IpAddr::V6(v6) => u128::from(v6),
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Cidr {
    /// Parses a network.
    pub(crate) fn parse(text: &str) -> Result<Cidr, String> {
        let fail = |why: &str| {
            format!(
                "network address parse error during conversion from string: netip.ParsePrefix({text}): {why}",
                text = go::quote(text)
            )
        };
        let (addr, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'"))?;
        if addr.contains('%') {
            return Err(fail("IPv6 zones cannot be present in a prefix"));
        }
        let parsed: IpAddr = addr.parse().map_err(|_| {
            fail(&format!(
                "ParseAddr({addr}): unable to parse IP",
                addr = go::quote(addr)
            ))
        })?;
        if matches!(parsed, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return Err(format!(
                "IPv4-mapped IPv6 address {text} is not allowed",
                text = go::quote(text)
            ));
        }
        let addr = Ip(parsed);
        let digits = bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
        let prefix: u8 = match bits.parse() {
            Ok(p) if digits => p,
            _ => {
                return Err(fail(&format!(
                    "bad bits after slash: {bits}",
                    bits = go::quote(bits)
                )));
            }
        };
        if u64::from(prefix) > addr.bits() {
            return Err(fail("prefix length out of range"));
        }
        Ok(Cidr { addr, prefix })
    }

    pub(crate) fn ip(&self) -> Ip {
        self.addr.clone()
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }

    pub(crate) fn contains(&self, ip: &Ip) -> bool {
        self.addr.family() == ip.family() && (self.addr.number() ^ ip.number()) & self.mask() == 0
    }

    /// Whether another network lies inside this one.
    pub(crate) fn contains_cidr(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(&other.addr)
    }

    /// The same network with the bits after the prefix cleared.
    pub(crate) fn masked(&self) -> Cidr {
        let number = self.addr.number() & self.mask();
        let addr = match self.addr.0 {
            IpAddr::V4(_) => Ip(IpAddr::V4(((number >> 96) as u32).into())),
            IpAddr::V6(_) => Ip(IpAddr::V6(number.into())),
        };
        Cidr {
            addr,
            prefix: self.prefix,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}
