// SPDX-License-Identifier: Apache-2.0
//! Allocations: who holds what of which provider, and who could hold what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Placement;
use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::{ConsumerId, ProjectId, ProviderId, UserId};
use crate::session::Removal;

static OF_PROVIDER: Call = Call::get(
    Service::Placement,
    "read a provider's allocations",
    "/resource_providers/{provider}/allocations",
);
static OF_CONSUMER: Call = Call::get(
    Service::Placement,
    "read a consumer's allocations",
    "/allocations/{consumer}",
);
static PUT: Call = Call::put(
    Service::Placement,
    "set a consumer's allocations",
    "/allocations/{consumer}",
);
static DELETE: Call = Call::delete(
    Service::Placement,
    "delete a consumer's allocations",
    "/allocations/{consumer}",
);
static CANDIDATES: Call = Call::get(
    Service::Placement,
    "ask for allocation candidates",
    "/allocation_candidates",
);

/// Amounts by resource class, such as `VCPU` and `MEMORY_MB`.
pub type Resources = BTreeMap<String, u64>;

/// What is held of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// How much.
    pub resources: Resources,
}

/// What a consumer holds, by provider. Without anything the consumer is unknown to Placement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Allocations {
    /// By provider.
    pub allocations: BTreeMap<ProviderId, Allocation>,
    /// Counts up with every change; nothing for a consumer that holds nothing.
    #[serde(default, rename = "consumer_generation")]
    pub generation: Option<u64>,
    /// Whose it is.
    #[serde(default)]
    pub project_id: Option<ProjectId>,
    /// Whose it is.
    #[serde(default)]
    pub user_id: Option<UserId>,
    /// What the consumer is (1.38).
    #[serde(default)]
    pub consumer_type: Option<String>,
}

/// What a consumer shall hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAllocation {
    /// By provider.
    pub allocations: BTreeMap<ProviderId, Allocation>,
    /// The generation that was read; nothing for a consumer that holds nothing yet.
    pub generation: Option<u64>,
    /// Whose it is.
    pub project_id: ProjectId,
    /// Whose it is.
    pub user_id: UserId,
    /// What the consumer is, such as `INSTANCE`.
    pub consumer_type: String,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateFilter {
    /// How much of what.
    pub resources: Resources,
    /// With all of these traits.
    pub required: BTreeSet<String>,
    /// With none of these traits.
    pub forbidden: BTreeSet<String>,
    /// In one of these aggregates, by UUID.
    pub member_of: Vec<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// One way to satisfy what is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Candidate {
    /// By provider.
    pub allocations: BTreeMap<ProviderId, Allocation>,
}

impl Placement {
    /// What is allocated on a provider, by consumer.
    pub async fn provider_allocations(&self, id: &ProviderId) -> Result<BTreeMap<ConsumerId, Allocation>> {
        let request = Request::new(&OF_PROVIDER, &[id.as_str()]);
        self.session.member(request, "allocations").await
    }

    /// What a consumer holds; one that Placement does not know holds nothing.
    pub async fn allocations(&self, id: &ConsumerId) -> Result<Allocations> {
        self.session
            .whole(Request::new(&OF_CONSUMER, &[id.as_str()]))
            .await
    }

    /// Sets what a consumer holds, if nobody changed it since the generation was read.
    pub async fn set_allocations(&self, id: &ConsumerId, new: &NewAllocation) -> Result<()> {
        let body = json!({
            "allocations": new.allocations, "consumer_generation": new.generation, "project_id": new.project_id,
            "user_id": new.user_id, "consumer_type": new.consumer_type,
        });
        let request = Request::new(&PUT, &[id.as_str()])
            .at_least(crate::Microversion::new(1, 38))
            .json(&body);
        self.session.done(request).await
    }

    /// Deletes what a consumer holds.
    pub async fn delete_allocations(&self, id: &ConsumerId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }

    /// Who could hold what is looked for.
    pub async fn allocation_candidates(&self, filter: &CandidateFilter) -> Result<Vec<Candidate>> {
        let resources: Vec<_> = filter
            .resources
            .iter()
            .map(|(class, amount)| format!("{class}:{amount}"))
            .collect();
        let forbidden = filter.forbidden.iter().map(|name| format!("!{name}"));
        let traits: Vec<_> = filter.required.iter().cloned().chain(forbidden).collect();
        let member_of = match filter.member_of.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("in:{}", many.join(","))),
        };
        let request = Request::new(&CANDIDATES, &[])
            .about(resources.join(","))
            .query("resources", resources.join(","))
            .maybe("required", (!traits.is_empty()).then(|| traits.join(",")))
            .maybe("member_of", member_of)
            .maybe("limit", filter.limit.map(|limit| limit.to_string()));
        self.session.member(request, "allocation_requests").await
    }
}
