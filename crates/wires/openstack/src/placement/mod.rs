// SPDX-License-Identifier: Apache-2.0
//! Placement: providers, their traits, inventories and aggregates, and who has allocated what. What
//! is written carries the generation it was read at; who comes second gets
//! [`Error::GenerationConflict`](crate::Error::GenerationConflict) and reads again.

mod allocations;
mod providers;
mod traits;

use std::time::Duration;

use crate::session::Session;

pub use allocations::{Allocation, Allocations, Candidate, CandidateFilter, NewAllocation, Resources};
pub use providers::{Inventories, Inventory, Provider, ProviderAggregates, ProviderFilter, Usages};
pub use traits::{TraitNameError, TraitSet, check_custom_trait};

/// Placement as one session sees it.
#[derive(Debug, Clone)]
pub struct Placement {
    session: Session,
}

impl Session {
    /// Placement.
    pub fn placement(&self) -> Placement {
        Placement {
            session: self.clone(),
        }
    }
}

impl Placement {
    /// The same with another time limit for every call.
    pub fn within(&self, deadline: Duration) -> Self {
        self.session.within(deadline).placement()
    }
}
