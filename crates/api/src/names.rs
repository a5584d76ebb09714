// SPDX-License-Identifier: Apache-2.0
//! Names and identifiers as types, so that a host name cannot end up where a server id
//! belongs. Each is checked once, where it enters. Copies are cheap: a short name lies in
//! place, a longer one is shared.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, StrExt};

/// A name or identifier that does not have the form its type promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    /// The type that refused it.
    pub expected: &'static str,
    /// The refused text.
    pub found: String,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a valid {}", self.found, self.expected)
    }
}

impl std::error::Error for InvalidName {}

macro_rules! name_type {
    ($(#[$meta:meta])* $name:ident, $expected:literal, $normalise:path) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "SmolStr", into = "SmolStr")]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks `text` and takes it.
            pub fn new(text: impl Into<SmolStr>) -> Result<Self, InvalidName> {
                let text = text.into();
                match $normalise(&text) {
                    Some(name) => Ok(Self(name)),
                    None => Err(InvalidName { expected: $expected, found: text.into() }),
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<SmolStr> for $name {
            type Error = InvalidName;

            fn try_from(text: SmolStr) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$name> for SmolStr {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
    };
}

name_type! {
    /// The name of a host: a Node, its Hypervisor, or the host of a compute service.
    HostName, "host name", dns_subdomain
}
name_type! {
    /// The UUID of a server in Nova, which is also the UUID of its libvirt domain.
    ServerId, "server id", uuid
}
name_type! {
    /// The UUID of a hypervisor in Nova, which is also its resource provider in Placement.
    HypervisorId, "hypervisor id", uuid
}
name_type! {
    /// The UUID of a compute service in Nova.
    ServiceId, "service id", uuid
}
name_type! {
    /// The UUID of a project.
    ProjectId, "project id", project
}

impl HostName {
    /// The text before the first dot.
    pub fn short(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }
}

/// A DNS subdomain as Kubernetes wants object names: at most 253 characters, labels of lower
/// case letters, digits and dashes.
fn dns_subdomain(text: &SmolStr) -> Option<SmolStr> {
    let label = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    (text.len() <= 253 && text.split('.').all(label)).then(|| text.clone())
}

/// A UUID in 8-4-4-4-12 form; libvirt and Nova differ in case, so it is lowered.
fn uuid(text: &SmolStr) -> Option<SmolStr> {
    let groups = text.split('-').map(str::len);
    (groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()))
        .then(|| lowered(text))
}

/// Keystone writes project ids with and without dashes.
fn project(text: &SmolStr) -> Option<SmolStr> {
    let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { Some(lowered(text)) } else { uuid(text) }
}

/// Shares the text if it is in lower case already, as it nearly always is.
fn lowered(text: &SmolStr) -> SmolStr {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        text.to_ascii_lowercase_smolstr()
    } else {
        text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_follow_the_rules_of_object_names() {
        for good in ["node001-bb086", "node001.cc.example", "7"] {
            assert_eq!(HostName::new(good).unwrap().as_str(), good);
        }
        let too_long = "a".repeat(254);
        for bad in ["", "Node1", "-a", "a-", "a..b", "a_b", &too_long] {
            assert!(HostName::new(bad).is_err(), "{bad}");
        }
        assert_eq!(HostName::new("node001.cc.example").unwrap().short(), "node001");
    }

    #[test]
    fn server_ids_are_lower_case_uuids() {
        let id = ServerId::new("12E479EB-6bef-4fdb-bfdc-0388df68bed9").unwrap();
        assert_eq!(id.as_str(), "12e479eb-6bef-4fdb-bfdc-0388df68bed9");
        for bad in [
            "",
            "vm-001",
            "12e479eb6bef4fdbbfdc0388df68bed9",
            "12e479eb-6bef-4fdb-bfdc-0388df68bedg",
        ] {
            assert!(serde_json::from_value::<ServerId>(bad.into()).is_err(), "{bad}");
        }
        assert!(ProjectId::new("12e479eb6bef4fdbbfdc0388df68bed9").is_ok());
    }
}
