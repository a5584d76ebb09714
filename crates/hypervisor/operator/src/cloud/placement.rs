// SPDX-License-Identifier: Apache-2.0
//! Placement: the traits and the end of a resource provider, and whether a flavor fits elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cobaltcore_openstack::placement::{CandidateFilter, TraitSet};
use cobaltcore_openstack::{Optional as _, ProviderId};

use super::{Cloud, Error, Result};

/// How long the list of standard traits serves; it changes with releases of OpenStack.
const STANDARD: Duration = Duration::from_hours(1);

/// What a server asks of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flavor {
    /// Its name.
    pub(crate) name: String,
    resources: BTreeMap<String, u64>,
    required: BTreeSet<String>,
    forbidden: BTreeSet<String>,
}

impl Flavor {
    /// The flavor a server was made with.
    pub(crate) fn of(server: &cobaltcore_openstack::nova::Server) -> Self {
        let flavor = &server.flavor;
        let mut resources = BTreeMap::from([
            ("VCPU".to_owned(), u64::from(flavor.vcpus)),
            ("MEMORY_MB".to_owned(), flavor.ram),
        ]);
        let (mut required, mut forbidden) = (BTreeSet::new(), BTreeSet::new());
        for (key, value) in &flavor.extra_specs {
            if let Some(class) = key.strip_prefix("resources:") {
                resources.insert(class.to_owned(), value.parse().unwrap_or(0));
            } else if let Some(name) = key.strip_prefix("trait:") {
                match value.as_str() {
                    "required" => required.insert(name.to_owned()),
                    "forbidden" => forbidden.insert(name.to_owned()),
                    _ => false,
                };
            }
        }
        // An amount of zero means that the class is not asked for at all.
        resources.retain(|_, amount| *amount > 0);
        Self {
            name: flavor.original_name.clone(),
            resources,
            required,
            forbidden,
        }
    }
}

impl Cloud {
    /// Whether a provider other than `own` could hold a server of this flavor.
    pub(crate) async fn other_place(&self, flavor: &Flavor, own: &str) -> Result<bool> {
        let filter = CandidateFilter {
            resources: flavor.resources.clone(),
            required: flavor.required.clone(),
            forbidden: flavor.forbidden.clone(),
            ..CandidateFilter::default()
        };
        let candidates = self.placement().allocation_candidates(&filter).await?;
        let elsewhere = |provider: &ProviderId| provider.as_str() != own;
        Ok(candidates
            .iter()
            .any(|candidate| candidate.allocations.keys().any(elsewhere)))
    }

    /// The traits of a provider and its generation.
    pub(crate) async fn traits(&self, provider: &str) -> Result<(Vec<String>, u64)> {
        let set = self
            .placement()
            .provider_traits(&ProviderId::from(provider))
            .await?;
        Ok((set.traits.into_iter().collect(), set.generation))
    }

    /// Sets the traits of a provider if nobody changed it since `generation`.
    pub(crate) async fn set_traits(&self, provider: &str, traits: &[String], generation: u64) -> Result<()> {
        let set = TraitSet {
            traits: traits.iter().cloned().collect(),
            generation,
        };
        let set = self
            .placement()
            .set_provider_traits(&ProviderId::from(provider), &set)
            .await;
        Ok(set.map(drop)?)
    }

    /// Makes a custom trait known; one that is known is fine.
    pub(crate) async fn create_trait(&self, name: &str) -> Result<()> {
        Ok(self.placement().create_trait(name).await?)
    }

    /// Which of `names` are traits that Placement knows.
    pub(crate) async fn known_traits(&self, names: &[String]) -> Result<BTreeSet<String>> {
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let fetch = || async { Ok::<_, Error>(self.placement().traits().await?) };
        let all = self.standard_traits.get(STANDARD, fetch).await?;
        Ok(names.iter().filter(|name| all.contains(*name)).cloned().collect())
    }

    /// Whether there is such a provider.
    pub(crate) async fn has_provider(&self, provider: &str) -> Result<bool> {
        let found = self.placement().provider(&ProviderId::from(provider)).await;
        Ok(found.optional()?.is_some())
    }

    /// Deletes a provider nobody holds anything of. Consumers that Placement lists but that hold
    /// nothing are leftovers and are removed first.
    pub(crate) async fn clean_provider(&self, provider: &str) -> Result<()> {
        let (placement, id) = (self.placement(), ProviderId::from(provider));
        let Some(consumers) = placement.provider_allocations(&id).await.optional()? else {
            return Ok(());
        };
        for consumer in consumers.into_keys() {
            let held = placement.allocations(&consumer).await?;
            if held.allocations.values().any(|held| !held.resources.is_empty()) {
                let text = "cannot clean up provider, cannot handle non-empty consumer allocations";
                return Err(Error::Missing(text.to_owned()));
            }
            placement.delete_allocations(&consumer).await?;
        }
        placement.delete_provider(&id).await?;
        Ok(())
    }
}
