// SPDX-License-Identifier: Apache-2.0
//! Resource providers: what there is, and how much of it is in use.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Placement;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::ProviderId;
use crate::session::Removal;

static LIST: Call = Call::get(Service::Placement, "list providers", "/resource_providers");
static SHOW: Call = Call::get(
    Service::Placement,
    "show a provider",
    "/resource_providers/{provider}",
);
static CREATE: Call = Call::post(Service::Placement, "create a provider", "/resource_providers");
static DELETE: Call = Call::delete(
    Service::Placement,
    "delete a provider",
    "/resource_providers/{provider}",
);
static INVENTORIES: Call = Call::get(
    Service::Placement,
    "read a provider's inventories",
    "/resource_providers/{provider}/inventories",
);
static SET_INVENTORIES: Call = Call::put(
    Service::Placement,
    "set a provider's inventories",
    "/resource_providers/{provider}/inventories",
);
static USAGES: Call = Call::get(
    Service::Placement,
    "read a provider's usages",
    "/resource_providers/{provider}/usages",
);
static AGGREGATES: Call = Call::get(
    Service::Placement,
    "read a provider's aggregates",
    "/resource_providers/{provider}/aggregates",
);
static SET_AGGREGATES: Call = Call::put(
    Service::Placement,
    "set a provider's aggregates",
    "/resource_providers/{provider}/aggregates",
);

/// A resource provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Provider {
    /// Its id.
    #[serde(rename = "uuid")]
    pub id: ProviderId,
    /// Its name, for a hypervisor its hostname.
    pub name: String,
    /// Counts up with every change.
    pub generation: u64,
    /// The provider it is part of.
    #[serde(default, rename = "parent_provider_uuid")]
    pub parent: Option<ProviderId>,
    /// The provider at the root of its tree.
    #[serde(default, rename = "root_provider_uuid")]
    pub root: Option<ProviderId>,
}

/// Which providers to list. Without anything: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderFilter {
    /// With exactly this name.
    pub name: Option<String>,
    /// With this id.
    pub id: Option<ProviderId>,
    /// In the tree of this one.
    pub in_tree: Option<ProviderId>,
    /// In this aggregate.
    pub member_of: Option<String>,
    /// With all of these traits.
    pub required: Vec<String>,
}

/// How much of one resource class a provider has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// In all.
    pub total: u64,
    /// Not to be given out.
    #[serde(default)]
    pub reserved: u64,
    /// At least this much at a time.
    #[serde(default = "one")]
    pub min_unit: u64,
    /// At most this much at a time.
    #[serde(default = "one")]
    pub max_unit: u64,
    /// In steps of this.
    #[serde(default = "one")]
    pub step_size: u64,
    /// How many times what is there may be given out.
    #[serde(default = "one_to_one")]
    pub allocation_ratio: f64,
}

impl Inventory {
    /// How much may be given out.
    pub fn capacity(&self) -> u64 {
        let real = self.total.saturating_sub(self.reserved);
        (real as f64 * self.allocation_ratio) as u64
    }
}

const fn one() -> u64 {
    1
}

const fn one_to_one() -> f64 {
    1.0
}

/// What a provider has, by resource class.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Inventories {
    /// By resource class.
    pub inventories: BTreeMap<String, Inventory>,
    /// The provider's generation.
    #[serde(rename = "resource_provider_generation")]
    pub generation: u64,
}

/// How much of a provider is in use, by resource class.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Usages {
    /// By resource class.
    pub usages: BTreeMap<String, u64>,
    /// The provider's generation.
    #[serde(rename = "resource_provider_generation")]
    pub generation: u64,
}

/// The aggregates of a provider, by their UUIDs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProviderAggregates {
    /// The aggregates.
    pub aggregates: BTreeSet<String>,
    /// The provider's generation.
    #[serde(rename = "resource_provider_generation")]
    pub generation: u64,
}

impl Placement {
    /// The providers that match.
    pub async fn providers(&self, filter: &ProviderFilter) -> Result<Vec<Provider>> {
        let required = (!filter.required.is_empty()).then(|| filter.required.join(","));
        let request = Request::new(&LIST, &[])
            .maybe("name", filter.name.clone())
            .maybe("uuid", filter.id.as_ref().map(ProviderId::as_str))
            .maybe("in_tree", filter.in_tree.as_ref().map(ProviderId::as_str))
            .maybe("member_of", filter.member_of.clone())
            .maybe("required", required);
        self.session.member(request, "resource_providers").await
    }

    /// One provider.
    pub async fn provider(&self, id: &ProviderId) -> Result<Provider> {
        self.session.whole(Request::new(&SHOW, &[id.as_str()])).await
    }

    /// Creates a provider.
    pub async fn create_provider(&self, name: &str, id: Option<&ProviderId>) -> Result<Provider> {
        let mut body = json!({ "name": name });
        if let Some(id) = id {
            body["uuid"] = json!(id);
        }
        let request = Request::new(&CREATE, &[])
            .about(format!("provider {name}"))
            .json(&body);
        self.session.whole(request).await
    }

    /// Deletes a provider. Placement refuses while something is allocated on it.
    pub async fn delete_provider(&self, id: &ProviderId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }

    /// What a provider has.
    pub async fn inventories(&self, id: &ProviderId) -> Result<Inventories> {
        self.session
            .whole(Request::new(&INVENTORIES, &[id.as_str()]))
            .await
    }

    /// Sets what a provider has, if nobody changed it since the generation was read.
    pub async fn set_inventories(&self, id: &ProviderId, inventories: &Inventories) -> Result<Inventories> {
        let body = json!({
            "resource_provider_generation": inventories.generation, "inventories": inventories.inventories,
        });
        let request = Request::new(&SET_INVENTORIES, &[id.as_str()]).json(&body);
        self.session.whole(request).await
    }

    /// How much of a provider is in use.
    pub async fn usages(&self, id: &ProviderId) -> Result<Usages> {
        self.session.whole(Request::new(&USAGES, &[id.as_str()])).await
    }

    /// The aggregates of a provider.
    pub async fn provider_aggregates(&self, id: &ProviderId) -> Result<ProviderAggregates> {
        self.session
            .whole(Request::new(&AGGREGATES, &[id.as_str()]))
            .await
    }

    /// Sets the aggregates of a provider, if nobody changed it since the generation was read.
    pub async fn set_provider_aggregates(
        &self,
        id: &ProviderId,
        aggregates: &ProviderAggregates,
    ) -> Result<ProviderAggregates> {
        let body = json!({
            "resource_provider_generation": aggregates.generation, "aggregates": aggregates.aggregates,
        });
        let request = Request::new(&SET_AGGREGATES, &[id.as_str()]).json(&body);
        self.session.whole(request).await
    }
}
