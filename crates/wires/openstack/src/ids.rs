// SPDX-License-Identifier: Apache-2.0
//! Names and ids as types, so that a server cannot be taken for a service, and the words of
//! OpenStack's states as enums that keep words they do not know.

/// A newtype over the text by which a service knows an object.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

/// An enum over a service's words that keeps the words it does not know.
macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Deserialize)]
        #[serde(from = "String")]
        pub enum $name {
            $($(#[$word_doc])* $variant,)*
            /// A word that is not known here.
            Other(String),
        }

        impl $name {
            /// The service's word.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)*
                    _ => Self::Other(word),
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                Self::from(word.to_owned())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use states;

ids! {
    /// A server; also the UUID of its libvirt domain and of its consumer in Placement.
    ServerId
    /// A Nova service.
    ServiceId
    /// A Nova hypervisor; also its resource provider in Placement.
    HypervisorId
    /// A resource provider.
    ProviderId
    /// Whoever holds allocations.
    ConsumerId
    /// A server group.
    ServerGroupId
    /// A flavor.
    FlavorId
    /// An image.
    ImageId
    /// A network.
    NetworkId
    /// A subnet.
    SubnetId
    /// A port.
    PortId
    /// A Neutron agent.
    AgentId
    /// A volume.
    VolumeId
    /// A project.
    ProjectId
    /// A user.
    UserId
    /// A domain.
    DomainId
    /// A role.
    RoleId
}

/// An aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize)]
#[serde(transparent)]
pub struct AggregateId(pub u64);

/// A migration record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize)]
#[serde(transparent)]
pub struct MigrationId(pub u64);

impl std::fmt::Display for AggregateId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for MigrationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<HypervisorId> for ProviderId {
    fn from(id: HypervisorId) -> Self {
        Self(id.0)
    }
}

impl From<&HypervisorId> for ProviderId {
    fn from(id: &HypervisorId) -> Self {
        Self(id.0.clone())
    }
}

impl From<ServerId> for ConsumerId {
    fn from(id: ServerId) -> Self {
        Self(id.0)
    }
}

impl From<&ServerId> for ConsumerId {
    fn from(id: &ServerId) -> Self {
        Self(id.0.clone())
    }
}

impl From<&ConsumerId> for ServerId {
    fn from(id: &ConsumerId) -> Self {
        Self(id.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::nova::ServiceState;

    #[test]
    fn unknown_words_are_kept() {
        let states: Vec<ServiceState> = serde_json::from_str(r#"["up", "down", "sideways"]"#).unwrap();
        let other = ServiceState::Other("sideways".to_owned());
        assert_eq!(states, [ServiceState::Up, ServiceState::Down, other]);
        let words: Vec<_> = states.iter().map(ServiceState::as_str).collect();
        assert_eq!(words, ["up", "down", "sideways"]);
    }
}
