// SPDX-License-Identifier: Apache-2.0
//! IP addresses and ranges. Sloppy old notations (leading zeros, IPv4 in IPv6 clothes) are refused
//! for new values and tolerated where the object already had them.

use std::net::{IpAddr, Ipv6Addr};

use super::errors::Errors;

fn mapped(address: &Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// An address with leading zeros in its parts, read the old way.
pub(super) fn sloppy(text: &str) -> Option<IpAddr> {
    let parts: Option<Vec<String>> = text
        .split('.')
        .map(|part| part.parse::<u8>().ok().map(|number| number.to_string()))
        .collect();
    parts
        .filter(|parts| parts.len() == 4)
        .and_then(|parts| parts.join(".").parse().ok())
}

/// Whether a range is one only when read the old way.
fn sloppy_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        sloppy(address).is_some() && bits.parse::<u8>().is_ok_and(|bits| bits <= 32)
    })
}

impl Errors {
    /// An address; `known` are values the stored object has and may keep.
    pub(super) fn ip(&mut self, value: &str, field: &str, known: &[&str]) {
        if known.contains(&value) {
            return;
        }
        match value.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) if mapped(&address) => {
                self.invalid(field, value, "must not be an IPv4-mapped IPv6 address");
            }
            Ok(_) => {}
            Err(_) if sloppy(value).is_some() => self.invalid(field, value, "must not have leading 0s"),
            Err(_) => self.invalid(
                field,
                value,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        }
    }

    /// An address range.
    pub(super) fn cidr(&mut self, value: &str, field: &str, known: &[&str]) {
        if known.contains(&value) {
            return;
        }
        const LEADING: &str = "must not have leading 0s in IP or prefix length";
        match parse_cidr(value) {
            Some(_) if value.rsplit_once("/0").is_some_and(|(_, bits)| !bits.is_empty()) => {
                self.invalid(field, value, LEADING);
            }
            None if sloppy_cidr(value) => self.invalid(field, value, LEADING),
            Some((address, bits)) if address != network(address, bits) => {
                self.invalid(field, value, "must not have bits set beyond the prefix length");
            }
            Some(_) => {}
            None => self.invalid(
                field,
                value,
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
        }
    }

    /// An address something can be reached at.
    pub(super) fn endpoint_ip(&mut self, value: &str, field: &str) {
        let Ok(address) = value.parse::<IpAddr>() else {
            self.ip(value, field, &[]);
            return;
        };
        let problem = if address.is_unspecified() {
            format!("may not be unspecified ({value})")
        } else if address.is_loopback() {
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
        } else if is_link_local(&address) {
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
        } else if is_link_local_multicast(&address) {
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
        } else {
            return;
        };
        self.invalid(field, value, &problem);
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6
            .segments()
            .first()
            .is_some_and(|first| first & 0xffc0 == 0xfe80),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.octets().starts_with(&[0xff, 0x02]),
    }
}

/// Address and prefix length of a range.
pub(super) fn parse_cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u32 = bits.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some((address, bits))
}

/// The first address of the range an address lies in.
pub(super) fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}
