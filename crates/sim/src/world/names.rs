// SPDX-License-Identifier: Apache-2.0
//! Names and numbers of the world: host names, the seeded source of randomness, and identifiers drawn from it. The same
//! seed and the same order of requests give the same identifiers.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Name of a host: of its Nova service, its libvirt daemon and its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct HostName(Arc<str>);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for HostName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for HostName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A seeded source of randomness that is saved with the world (SplitMix64).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// The identifier of something that `owner` has exactly one of under this name, always the same.
pub(crate) fn named_uuid(owner: Uuid, name: &str) -> Uuid {
    let bytes = owner.as_bytes().iter().chain(name.as_bytes());
    let mixed = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Random::new(mixed).uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_identifiers() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        let drawn = one.uuid();
        assert_eq!(drawn, two.uuid());
        assert_eq!(drawn.get_version_num(), 4);
        assert_ne!(drawn, one.uuid());
        assert!((0.0..1.0).contains(&one.fraction()));
    }
}
