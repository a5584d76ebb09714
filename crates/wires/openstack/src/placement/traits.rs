// SPDX-License-Identifier: Apache-2.0
//! Traits of providers.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::Placement;
use crate::call::{Call, Request, Service};
use crate::error::{Error, Result};
use crate::ids::ProviderId;

static LIST: Call = Call::get(Service::Placement, "list traits", "/traits");
static CREATE: Call = Call::put(Service::Placement, "create a trait", "/traits/{trait}");
static DELETE: Call = Call::delete(Service::Placement, "delete a trait", "/traits/{trait}");
static GET: Call = Call::get(
    Service::Placement,
    "read a provider's traits",
    "/resource_providers/{provider}/traits",
);
static PUT: Call = Call::put(
    Service::Placement,
    "set a provider's traits",
    "/resource_providers/{provider}/traits",
);

/// How many times a change is tried against others who write.
const MOST_ROUNDS: u32 = 4;

/// A provider's traits and the generation they were read at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TraitSet {
    /// The traits.
    pub traits: BTreeSet<String>,
    /// The provider's generation.
    #[serde(rename = "resource_provider_generation")]
    pub generation: u64,
}

/// A name that Placement does not take for a custom trait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a custom trait: write CUSTOM_ and then capital letters, digits and underscores, at most 255 characters in all"
)]
pub struct TraitNameError(pub String);

/// Whether a name can be that of a custom trait.
pub fn check_custom_trait(name: &str) -> Result<(), TraitNameError> {
    let rest = name.strip_prefix("CUSTOM_").filter(|rest| !rest.is_empty());
    let plain = |rest: &str| {
        rest.bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if name.len() <= 255 && rest.is_some_and(plain) {
        Ok(())
    } else {
        Err(TraitNameError(name.to_owned()))
    }
}

impl Placement {
    /// All traits that Placement knows.
    pub async fn traits(&self) -> Result<BTreeSet<String>> {
        self.session.member(Request::new(&LIST, &[]), "traits").await
    }

    /// Makes sure that Placement knows a custom trait.
    pub async fn create_trait(&self, name: &str) -> Result<()> {
        self.session.done(Request::new(&CREATE, &[name])).await
    }

    /// Makes Placement forget a custom trait. It refuses while a provider has it.
    pub async fn delete_trait(&self, name: &str) -> Result<crate::Removal> {
        self.session.remove(Request::new(&DELETE, &[name])).await
    }

    /// A provider's traits.
    pub async fn provider_traits(&self, id: &ProviderId) -> Result<TraitSet> {
        self.session.whole(Request::new(&GET, &[id.as_str()])).await
    }

    /// Sets a provider's traits, all of them, if nobody changed the provider since they were read.
    pub async fn set_provider_traits(&self, id: &ProviderId, traits: &TraitSet) -> Result<TraitSet> {
        let body = json!({
            "resource_provider_generation": traits.generation, "traits": traits.traits,
        });
        let request = Request::new(&PUT, &[id.as_str()]).json(&body);
        self.session.whole(request).await
    }

    /// Changes a provider's traits: reads, lets `change` decide, writes only if that differs, and
    /// begins anew when somebody else wrote in between, at most four times. Returns what is there
    /// now. Custom traits that Placement does not know are not created here.
    pub async fn update_provider_traits(
        &self,
        id: &ProviderId,
        mut change: impl FnMut(&BTreeSet<String>) -> BTreeSet<String>,
    ) -> Result<TraitSet> {
        let mut round = 0;
        loop {
            round += 1;
            let current = self.provider_traits(id).await?;
            let wanted = change(&current.traits);
            if wanted == current.traits {
                return Ok(current);
            }
            let wanted = TraitSet {
                traits: wanted,
                generation: current.generation,
            };
            match self.set_provider_traits(id, &wanted).await {
                Err(Error::GenerationConflict(_)) if round < MOST_ROUNDS => {}
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_capital_custom_names_are_taken() {
        for name in ["CUSTOM_A", "CUSTOM_HW_GEN_2", "CUSTOM__"] {
            assert_eq!(check_custom_trait(name), Ok(()), "{name}");
        }
        let long = format!("CUSTOM_{}", "A".repeat(249));
        for name in [
            "CUSTOM_",
            "custom_a",
            "CUSTOM_a",
            "HW_CPU_X86_AVX",
            "CUSTOM_A-B",
            "",
            &long,
        ] {
            assert!(check_custom_trait(name).is_err(), "{name}");
        }
    }
}
